// SPDX-License-Identifier: MIT
// Tables: claims by lease, and deduplication.

#include "table_world.h"

// ---------------------------------------------------------------------- leases

struct consumer {
    struct skr_db *db;
    struct skr_messenger_reader reader;
    struct skr_batch batch;
};

static void
open_consumer(const struct fixture *fixture, struct consumer *consumer)
{
    *consumer = (struct consumer){.db = skr_test_connect(&fixture->database)};
    assert_int_equal(skr_batch_init(&consumer->batch, 100, NULL), SKR_OK);
}

static void
close_consumer(struct consumer *consumer)
{
    skr_batch_fini(&consumer->batch);
    skr_db_close(consumer->db);
}

static size_t
claim(const struct fixture *fixture, struct consumer *consumer, size_t max_rows)
{
    struct skr_error error = {0};
    const struct skr_read read = {
        .max_rows = max_rows, .max_bytes = 1 << 20, .counts_tries = true};
    skr_batch_clear(&consumer->batch);
    if (fixture->table->leases->claim(
            use_reader(&consumer->reader, fixture->table, consumer->db), &read,
            &consumer->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    // No transaction is open: the low-water mark may follow at once.
    consumer->reader.at.mark.low = consumer->reader.at.mark.cursor;
    return consumer->batch.count;
}

// How many were another's.
static uint64_t
release(const struct fixture *fixture, struct consumer *consumer)
{
    struct skr_error error = {0};
    if (fixture->table->settle->write(fixture->table, consumer->db,
                                      &consumer->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    uint64_t lost = 0;
    for (size_t i = 0; i < consumer->batch.count; i++)
        lost += consumer->batch.items[i].lost;
    return lost;
}

static void
age_claims(struct fixture *fixture, int64_t seconds)
{
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET delivered_at = {now_minus} "
        "WHERE delivered_at IS NOT NULL",
        (const struct skr_value[]){skr_bind_integer(seconds)}, 1);
}

static void
test_consumers_claim_distinct_rows(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 10);
    struct consumer a, b;
    open_consumer(fixture, &a);
    open_consumer(fixture, &b);
    assert_int_equal(claim(fixture, &a, 4), 4);
    assert_int_equal(claim(fixture, &b, 100), 6);
    assert_int_equal(b.batch.items[0].row, a.batch.items[3].row + 1);
    assert_int_equal(claim(fixture, &a, 100), 0);
    close_consumer(&a);
    close_consumer(&b);
}

static int
claim_until_empty(const struct fixture *fixture)
{
    struct consumer consumer;
    open_consumer(fixture, &consumer);
    size_t count;
    while ((count = claim(fixture, &consumer, 7)) > 0) {
        // Each row is handled by exactly one: a second insert would fail.
        for (size_t i = 0; i < count; i++) {
            skr_test_run_template(consumer.db,
                                  "INSERT INTO handled (id) VALUES (?)",
                                  (const struct skr_value[]){skr_bind_integer(
                                      consumer.batch.items[i].row)},
                                  1);
            consumer.batch.items[i].state = SKR_DONE;
        }
        release(fixture, &consumer);
    }
    close_consumer(&consumer);
    return 0;
}

static void
test_processes_share_a_queue_without_taking_a_row_twice(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 100);
    skr_test_run(fixture->db, "CREATE TABLE handled (id INTEGER PRIMARY KEY)");
    skr_db_close(fixture->db);
    run_in_processes(4, claim_until_empty, fixture);
    fixture->db = skr_test_connect(&fixture->database);
    assert_int_equal(count_rows(fixture, "handled"), 100);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

static void
test_an_idle_claim_writes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct consumer consumer;
    open_consumer(fixture, &consumer);
    insert(fixture, "other", "{}", HEADERS);
    // A writer at work would hold up anyone who wants to write.
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
    int64_t start_ms = skr_clock_ms();
    for (int i = 0; i < 10; i++)
        assert_int_equal(claim(fixture, &consumer, 10), 0);
    assert_true(skr_clock_ms() - start_ms < 20000);
    skr_db_rollback(fixture->db);
    close_consumer(&consumer);
}

static void
test_an_expired_lease_is_delivered_again_with_a_raised_count(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 2);
    struct consumer a, b;
    open_consumer(fixture, &a);
    open_consumer(fixture, &b);
    assert_int_equal(claim(fixture, &a, 10), 2);
    assert_false(a.batch.items[0].redelivered);
    assert_int_equal(a.batch.items[0].envelope.retry_count, 0);
    assert_int_equal(claim(fixture, &b, 10), 0);
    age_claims(fixture, 61);
    for (uint32_t round = 1; round <= 3; round++) {
        skr_clock_sleep(-1, 2);
        assert_int_equal(claim(fixture, &b, 10), 2);
        assert_true(b.batch.items[0].redelivered);
        assert_int_equal(b.batch.items[0].envelope.retry_count, round);
        // Written before anyone handles it.
        assert_int_equal(
            skr_test_number(fixture->db,
                            "SELECT COUNT(*) FROM messenger_outbox "
                            "WHERE headers LIKE '%RedeliveryStamp%'"),
            2);
        age_claims(fixture, 61);
    }
    close_consumer(&a);
    close_consumer(&b);
}

static void
test_a_release_is_fenced_by_the_lease(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    struct consumer a, b;
    open_consumer(fixture, &a);
    open_consumer(fixture, &b);
    assert_int_equal(claim(fixture, &a, 10), 3);
    age_claims(fixture, 61);
    // All at once, as a scan finds them.
    b.reader.at.next_expired_ms = INT64_MAX;
    assert_int_equal(claim(fixture, &b, 10), 3);
    char *headers = skr_test_text(
        fixture->db, "SELECT headers FROM messenger_outbox WHERE id = 2");
    // The first one wakes up: its lease is the time that was there before.
    skr_clock_timestamp(skr_clock_wall_us() - 61 * 1000000LL,
                        a.batch.lease.time);
    a.batch.items[0].state = SKR_READ;
    a.batch.items[1].state = SKR_RETRY_LATER;
    a.batch.items[2].state = SKR_DONE;
    assert_int_equal(release(fixture, &a), 1);
    assert_true(a.batch.items[1].lost);
    skr_test_assert_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 1",
        b.batch.lease.time);
    skr_test_assert_text(fixture->db,
                         "SELECT headers FROM messenger_outbox WHERE id = 2",
                         headers);
    free(headers);
    // What was confirmed may go, whichever relay holds it.
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 2);
    // The owner's own release holds.
    b.batch.items[0].state = SKR_READ;
    b.batch.items[1].state = SKR_RETRY_LATER;
    b.batch.items[1].delay_ms = 90000;
    b.batch.items[2].state = SKR_DONE;
    assert_int_equal(release(fixture, &b), 0);
    assert_false(b.batch.items[1].lost);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE delivered_at IS NULL"),
                     2);
    // Free at once, and the one that waits is not.
    skr_clock_sleep(-1, 2);
    assert_int_equal(claim(fixture, &a, 10), 1);
    assert_int_equal(a.batch.items[0].row, 1);
    assert_false(a.batch.items[0].redelivered);
    close_consumer(&a);
    close_consumer(&b);
}

static void
test_keeping_moves_the_lease_of_rows_that_are_still_ours(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    struct consumer a;
    open_consumer(fixture, &a);
    assert_int_equal(claim(fixture, &a, 10), 3);
    age_claims(fixture, 30);
    // The lease that those rows have now.
    char *time = skr_test_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 1");
    memcpy(a.batch.lease.time, time, sizeof(a.batch.lease.time));
    free(time);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = NULL "
                              "WHERE id = 2");
    char before[sizeof(a.batch.lease.time)];
    memcpy(before, a.batch.lease.time, sizeof(before));
    // Whatever became of it: until it is settled it is in hand.
    a.batch.items[2].state = SKR_RETRY_LATER;
    assert_int_equal(
        fixture->table->leases->renew(fixture->table, a.db, &a.batch, NULL),
        SKR_OK);
    assert_false(a.batch.items[0].lost);
    assert_true(a.batch.items[1].lost);
    assert_false(a.batch.items[2].lost);
    assert_string_not_equal(a.batch.lease.time, before);
    skr_test_assert_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 3",
        a.batch.lease.time);
    skr_test_assert_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 2",
        NULL);
    close_consumer(&a);
}

// True when the next owner's claim and the renewal were of one second.
static bool
renew_beside_another_claim(struct fixture *fixture, struct consumer *late,
                           struct consumer *next)
{
    for (size_t i = 0; i < 2; i++)
        late->batch.items[i].lost = false;
    age_claims(fixture, 61);
    char *time = skr_test_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 1");
    memcpy(late->batch.lease.time, time, sizeof(late->batch.lease.time));
    free(time);
    next->reader.at.next_expired_ms = 0;
    assert_int_equal(claim(fixture, next, 10), 1);
    assert_int_equal(fixture->table->leases->renew(fixture->table, late->db,
                                                   &late->batch, NULL),
                     SKR_OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(late->batch.items[i].lost,
                         late->batch.items[i].row == next->batch.items[0].row);
    return strcmp(late->batch.lease.time, next->batch.lease.time) == 0;
}

static void
test_a_row_claimed_in_the_second_of_the_renewal_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 2);
    struct consumer a, b;
    open_consumer(fixture, &a);
    open_consumer(fixture, &b);
    assert_int_equal(claim(fixture, &a, 10), 2);
    int rounds = 0;
    while (!renew_beside_another_claim(fixture, &a, &b))
        assert_in_range(++rounds, 1, 20);
    close_consumer(&a);
    close_consumer(&b);
}

static void
test_a_lease_that_ran_out_is_found_without_a_sweep(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    insert(fixture, "outbox", "O:8:\"stdClass\"", "[]");
    struct consumer a, b;
    open_consumer(fixture, &a);
    open_consumer(fixture, &b);
    assert_int_equal(claim(fixture, &a, 10), 3);
    assert_int_equal(claim(fixture, &b, 10), 0);
    // What is not ours to read stays another worker's, however late he is.
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET delivered_at = {now} "
                          "WHERE headers = '[]'",
                          NULL, 0);
    age_claims(fixture, 61);
    assert_int_equal(claim(fixture, &b, 10), 0);
    b.reader.at.next_expired_ms = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(claim(fixture, &b, 10), 1);
        assert_true(b.batch.items[0].redelivered);
        assert_int_equal(b.batch.items[0].envelope.retry_count, 1);
    }
    assert_int_equal(claim(fixture, &b, 10), 0);
    assert_true(b.reader.at.next_expired_ms > skr_clock_ms());
    close_consumer(&a);
    close_consumer(&b);
}

static void
test_a_malformed_row_can_be_claimed_and_removed(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "{}", "no json");
    insert(fixture, "outbox", "{}", HEADERS);
    struct consumer a;
    open_consumer(fixture, &a);
    assert_int_equal(claim(fixture, &a, 10), 2);
    assert_int_equal(a.batch.items[0].state, SKR_DEAD);
    // It is claimed like any other: no other relay has it meanwhile.
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE delivered_at IS NOT NULL"),
                     2);
    a.batch.items[0].state = SKR_RETRY_LATER;
    a.batch.items[1].state = SKR_DONE;
    release(fixture, &a);
    skr_test_assert_text(fixture->db, "SELECT headers FROM messenger_outbox",
                         "no json");
    close_consumer(&a);
}

// --------------------------------------------------------------- deduplication

static void
test_an_id_is_admitted_once_and_with_its_transaction(void **state)
{
    struct fixture *fixture = *state;
    struct skr_deduplication *table = NULL;
    struct skr_error error = {0};
    struct skr_db *db = fixture->db;
    assert_int_equal(
        skr_deduplication_new(skr_db_dialect(db), NULL, &table, &error),
        SKR_OK);
    assert_int_equal(skr_deduplication_check(table, db, &error), SKR_MISSING);
    assert_non_null(strstr(error.text, "setup-deduplication"));
    assert_int_equal(skr_deduplication_create(table, db, &error), SKR_OK);
    assert_int_equal(skr_deduplication_check(table, db, &error), SKR_OK);
    struct skr_tx tx = skr_db_tx(db);
    // Ids that differ in their last byte alone, with zeros in between.
    struct skr_id first = {{1, 0, 2}}, second = {{1, 0, 2}};
    second.bytes[15] = 1;
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(
        skr_deduplication_admit(table, tx, first, "order.placed", &error),
        SKR_OK);
    skr_db_rollback(db);
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(
        skr_deduplication_admit(table, tx, first, "order.placed", &error),
        SKR_OK);
    assert_int_equal(
        skr_deduplication_admit(table, tx, first, "order.placed", &error),
        SKR_DUPLICATE);
    // The transaction is as good as before.
    assert_int_equal(
        skr_deduplication_admit(table, tx, second, "order.placed", &error),
        SKR_OK);
    // Alike on every database, and before it is asked.
    char long_name[257] = "";
    memset(long_name, 'a', 256);
    assert_int_equal(
        skr_deduplication_admit(table, tx, first, long_name, &error),
        SKR_INVALID);
    assert_int_equal(skr_db_commit(db, &error), SKR_OK);
    assert_int_equal(
        skr_deduplication_admit(table, tx, first, "other.name", &error),
        SKR_DUPLICATE);
    assert_int_equal(count_rows(fixture, "message_broker_deduplication"), 2);
    assert_int_equal(skr_test_number(db, "SELECT MIN(LENGTH(message_id)) FROM "
                                         "message_broker_deduplication"),
                     16);
    skr_deduplication_free(table);
}

static void
test_many_ids_are_admitted_together_or_not_at_all(void **state)
{
    enum { COUNT = 87 };
    struct fixture *fixture = *state;
    struct skr_deduplication *table = NULL;
    struct skr_admission all[COUNT];
    struct skr_db *db = fixture->db;
    struct skr_tx tx = skr_db_tx(db);
    assert_int_equal(
        skr_deduplication_new(skr_db_dialect(db), NULL, &table, NULL), SKR_OK);
    assert_int_equal(skr_deduplication_create(table, db, NULL), SKR_OK);
    for (size_t i = 0; i < COUNT; i++)
        all[i] = (struct skr_admission){.id = {{9, (unsigned char)i}},
                                        .message_name = "order.placed"};
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(skr_deduplication_admit_all(table, tx, all, COUNT, NULL),
                     SKR_OK);
    assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
    assert_int_equal(count_rows(fixture, "message_broker_deduplication"),
                     COUNT);
    // One that is there already, and one that is among them twice.
    for (size_t old = 0; old < 2; old++) {
        for (size_t i = 0; i < COUNT; i++)
            all[i].id.bytes[0] = 10;
        all[COUNT - 2].id.bytes[0] = old == 0 ? 9 : 10;
        all[COUNT - 2].id.bytes[1] = old == 0 ? 3 : COUNT - 1;
        assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
        assert_int_equal(
            skr_deduplication_admit_all(table, tx, all, COUNT, NULL),
            SKR_DUPLICATE);
        skr_db_rollback(db);
        assert_int_equal(count_rows(fixture, "message_broker_deduplication"),
                         COUNT);
    }
    skr_deduplication_free(table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_consumers_claim_distinct_rows),
        TEST(test_processes_share_a_queue_without_taking_a_row_twice),
        TEST(test_an_idle_claim_writes_nothing),
        SWEEPING_TEST(
            test_an_expired_lease_is_delivered_again_with_a_raised_count),
        SWEEPING_TEST(test_a_release_is_fenced_by_the_lease),
        TEST(test_keeping_moves_the_lease_of_rows_that_are_still_ours),
        TEST(test_a_row_claimed_in_the_second_of_the_renewal_is_not_kept),
        TEST(test_a_lease_that_ran_out_is_found_without_a_sweep),
        TEST(test_a_malformed_row_can_be_claimed_and_removed),
        TEST(test_an_id_is_admitted_once_and_with_its_transaction),
        TEST(test_many_ids_are_admitted_together_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
