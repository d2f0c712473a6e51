// SPDX-License-Identifier: MIT
// Tables: several workers on one queue, by leases on rows.

#include "table_world.h"

#include "db/run.h"

#include <pthread.h>

struct worker {
    struct skr_db *db;
    struct skr_messenger_reader reader;
    struct skr_batch batch;
};

static void
open_worker(const struct fixture *fixture, struct worker *worker)
{
    *worker = (struct worker){.db = skr_test_connect(&fixture->database)};
    assert_int_equal(skr_batch_init(&worker->batch, 100, NULL), SKR_OK);
}

static void
close_worker(struct worker *worker)
{
    skr_batch_fini(&worker->batch);
    skr_db_close(worker->db);
}

static size_t
claim(const struct fixture *fixture, struct worker *worker, size_t max_rows)
{
    struct skr_error error = {0};
    const struct skr_read read = {.max_rows = max_rows, .max_bytes = 1 << 20};
    skr_batch_clear(&worker->batch);
    if (fixture->table->leases->claim(
            use_reader(&worker->reader, fixture->table, worker->db), &read,
            &worker->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return worker->batch.count;
}

static void
set_all(struct worker *worker, enum skr_state state)
{
    for (size_t i = 0; i < worker->batch.count; i++)
        worker->batch.items[i].state = state;
}

static void
settle_worker(const struct fixture *fixture, struct worker *worker)
{
    struct skr_error error = {0};
    if (fixture->table->settle->write(fixture->table, worker->db,
                                      &worker->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

struct search {
    const struct fixture *fixture;
    struct worker *worker;
};

static bool
finds_rows(void *user)
{
    const struct search *search = user;
    return claim(search->fixture, search->worker, 100) > 0;
}

// As the reader itself looks: no sweep comes so soon.
static void
assert_found_soon(const struct fixture *fixture, struct worker *worker,
                  int64_t row)
{
    struct search search = {fixture, worker};
    assert_true(skr_test_eventually(finds_rows, &search, 30000));
    assert_int_equal(worker->batch.items[0].row, row);
}

static void
test_released_rows_come_back_to_one_who_passed_them(void **state)
{
    struct fixture *fixture = *state;
    struct worker a, b;
    open_worker(fixture, &a);
    open_worker(fixture, &b);
    insert_many(fixture, 2);
    assert_int_equal(claim(fixture, &a, 1), 1);
    assert_int_equal(claim(fixture, &b, 10), 1);
    set_all(&b, SKR_DONE);
    settle_worker(fixture, &b);
    // Its cursor goes on.
    insert_many(fixture, 1);
    assert_int_equal(claim(fixture, &b, 10), 1);
    set_all(&b, SKR_DONE);
    settle_worker(fixture, &b);
    assert_int_equal(claim(fixture, &b, 10), 0);
    int64_t row = a.batch.items[0].row;
    assert_int_equal(
        fixture->table->leases->release(fixture->table, a.db, &a.batch, NULL),
        SKR_OK);
    assert_found_soon(fixture, &b, row);
    assert_false(b.batch.items[0].redelivered);
    set_all(&b, SKR_DONE);
    settle_worker(fixture, &b);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    close_worker(&a);
    close_worker(&b);
}

// As many rows as are reached as a range. The one behind it stays free, and two
// who claim in turns leave nothing out and take nothing twice.
static void
test_who_claims_a_range_leaves_the_row_behind_it_free(void **state)
{
    struct fixture *fixture = *state;
    struct worker workers[2], later;
    int64_t next = 1;
    insert_many(fixture, 300);
    for (size_t j = 0; j < 2; j++)
        open_worker(fixture, &workers[j]);
    for (size_t turn = 0; turn < 4; turn++) {
        struct worker *worker = &workers[turn % 2];
        assert_int_equal(claim(fixture, worker, 50), 50);
        assert_int_equal(worker->batch.items[0].row, next);
        assert_int_equal(worker->batch.items[49].row, next + 49);
        next += 50;
        // The second of them claims while the first has its rows.
        if (turn % 2 == 0)
            continue;
        for (size_t j = 0; j < 2; j++) {
            set_all(&workers[j], SKR_DONE);
            settle_worker(fixture, &workers[j]);
        }
    }
    assert_int_equal(claim(fixture, &workers[0], 99), 99);
    open_worker(fixture, &later);
    assert_int_equal(claim(fixture, &later, 99), 1);
    assert_int_equal(later.batch.items[0].row, next + 99);
    set_all(&workers[0], SKR_DONE);
    set_all(&later, SKR_DONE);
    settle_worker(fixture, &workers[0]);
    settle_worker(fixture, &later);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    for (size_t j = 0; j < 2; j++)
        close_worker(&workers[j]);
    close_worker(&later);
}

// Both have their rows, then both delete: neither waits for the other, nor for
// an application that has not committed yet.
static void
test_those_who_share_do_not_wait_for_each_other(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    insert_many(fixture, 40);
    struct worker a, b;
    open_worker(fixture, &a);
    open_worker(fixture, &b);
    assert_int_equal(claim(fixture, &a, 20), 20);
    assert_int_equal(claim(fixture, &b, 20), 20);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert(fixture, "outbox", "{}", HEADERS);
    int64_t start_ms = skr_clock_ms();
    set_all(&a, SKR_DONE);
    a.batch.items[3].state = SKR_RETRY_LATER;
    a.batch.items[4].state = SKR_DEAD;
    set_all(&b, SKR_DONE);
    settle_worker(fixture, &b);
    settle_worker(fixture, &a);
    // Nothing is left to claim beside the same application.
    assert_int_equal(claim(fixture, &a, 20), 0);
    // Less than a wait for a lock takes.
    assert_true(skr_clock_ms() - start_ms < 4500);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 2);
    close_worker(&a);
    close_worker(&b);
}

// ----------------------------------------------------------- many at one time

static int
claim_until_empty(const struct fixture *fixture)
{
    struct worker worker;
    open_worker(fixture, &worker);
    int64_t end_ms = skr_clock_ms() + 60000;
    while (skr_test_number(worker.db, "SELECT COUNT(*) FROM messenger_outbox "
                                      "WHERE queue_name = 'outbox'") > 0) {
        if (skr_clock_ms() > end_ms)
            return 1;
        size_t count = claim(fixture, &worker, 7);
        if (count == 0)
            skr_clock_sleep(-1, 2);
        // The last one is given back every time it comes in company.
        for (size_t i = 0; i < count; i++)
            worker.batch.items[i].state =
                i + 1 == count && count > 1 ? SKR_READ : SKR_DONE;
        if (count == 0)
            continue;
        for (size_t i = 0; i < count; i++) {
            if (worker.batch.items[i].state != SKR_DONE)
                continue;
            struct skr_db *ledger = skr_test_connect(&fixture->database);
            skr_test_run_template(ledger, "INSERT INTO handled (id) VALUES (?)",
                                  (const struct skr_value[]){skr_bind_integer(
                                      worker.batch.items[i].row)},
                                  1);
            skr_db_close(ledger);
        }
        settle_worker(fixture, &worker);
    }
    close_worker(&worker);
    return 0;
}

static void
run_many(struct fixture *fixture, int (*run)(const struct fixture *fixture))
{
    insert_many(fixture, 120);
    skr_test_run(fixture->db, "CREATE TABLE handled (id INTEGER PRIMARY KEY)");
    skr_db_close(fixture->db);
    run_in_processes(4, run, fixture);
    fixture->db = skr_test_connect(&fixture->database);
    assert_int_equal(count_rows(fixture, "handled"), 120);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

static void
test_many_lease_and_none_takes_a_row_twice(void **state)
{
    run_many(*state, claim_until_empty);
}

// --------------------------------------------------------------------- leases

static void
age_leases(struct fixture *fixture, struct worker *owner)
{
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET delivered_at = {now_minus} "
        "WHERE delivered_at IS NOT NULL",
        (const struct skr_value[]){skr_bind_integer(61)}, 1);
    char *time = skr_test_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox "
                     "WHERE delivered_at IS NOT NULL ORDER BY id LIMIT 1");
    memcpy(owner->batch.lease.time, time, sizeof(owner->batch.lease.time));
    free(time);
}

static void
test_a_late_owner_may_delete_and_nothing_else(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 4);
    struct worker late, next;
    open_worker(fixture, &late);
    open_worker(fixture, &next);
    assert_int_equal(claim(fixture, &late, 10), 4);
    age_leases(fixture, &late);
    // A relay that only passes rows on takes all that ran out, and counts
    // nothing.
    assert_int_equal(claim(fixture, &next, 10), 4);
    assert_true(next.batch.items[0].redelivered);
    assert_int_equal(next.batch.items[0].envelope.retry_count, 0);
    late.batch.items[0].state = SKR_RETRY_LATER;
    late.batch.items[1].state = SKR_DEAD;
    late.batch.items[2].state = SKR_READ;
    late.batch.items[3].state = SKR_DONE;
    settle_worker(fixture, &late);
    assert_true(late.batch.items[0].lost);
    assert_true(late.batch.items[1].lost);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 3);
    uint64_t leased = 0;
    assert_int_equal(
        fixture->table->diagnosis->count_claimed(
            use_reader(&fixture->reader, fixture->table, fixture->db), &leased,
            NULL),
        SKR_OK);
    assert_int_equal(leased, 3);
    // Nor does it get them back by renewing.
    assert_int_equal(fixture->table->leases->renew(fixture->table, late.db,
                                                   &late.batch, NULL),
                     SKR_OK);
    for (size_t i = 0; i < late.batch.count; i++)
        assert_true(late.batch.items[i].lost);
    // The owner's word counts, and what is gone already is no trouble.
    set_all(&next, SKR_DONE);
    next.batch.items[1].state = SKR_DEAD;
    settle_worker(fixture, &next);
    assert_false(next.batch.items[1].lost);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 1);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    close_worker(&late);
    close_worker(&next);
}

static void
test_what_another_leases_shows_one_who_reads_alone(void **state)
{
    struct fixture *fixture = *state;
    uint64_t leased = 7;
    struct worker other;
    open_worker(fixture, &other);
    insert_many(fixture, 3);
    // Done and not deleted, another queue's, and one that ran out: no sign.
    insert(fixture, "outbox", "{}", HEADERS);
    insert(fixture, "other", "{}", HEADERS);
    insert(fixture, "outbox", "{}", HEADERS);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET delivered_at = CASE id "
                          "WHEN 4 THEN '9999-12-31 23:59:59' WHEN 5 THEN {now} "
                          "ELSE {now_minus} END WHERE id > 3",
                          (const struct skr_value[]){skr_bind_integer(3000)},
                          1);
    assert_int_equal(
        fixture->table->diagnosis->count_claimed(
            use_reader(&fixture->reader, fixture->table, fixture->db), &leased,
            NULL),
        SKR_OK);
    assert_int_equal(leased, 0);
    other.reader.at.next_expired_ms = INT64_MAX;
    assert_int_equal(claim(fixture, &other, 2), 2);
    assert_int_equal(
        fixture->table->diagnosis->count_claimed(
            use_reader(&fixture->reader, fixture->table, fixture->db), &leased,
            NULL),
        SKR_OK);
    assert_int_equal(leased, 2);
    close_worker(&other);
}

// As Symfony's worker does it: one row in the order of time, locked, marked.
static int64_t
take_as_symfony(struct skr_db *db)
{
    struct skr_arena arena = {0};
    struct skr_value id = {.kind = SKR_NULL};
    struct skr_row row = {.arena = &arena, .columns = &id, .count = 1};
    const struct skr_value age = skr_bind_integer(3600);
    const char *sql = skr_sql_fill(
        skr_db_dialect(db), &arena,
        "SELECT id FROM messenger_outbox WHERE queue_name = 'outbox' AND "
        "(delivered_at IS NULL OR delivered_at < {now_minus}) "
        "AND available_at <= {now} ORDER BY available_at ASC LIMIT 1 "
        "{lock_skip}",
        NULL, 0);
    assert_non_null(sql);
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    enum skr_code code = skr_sql_fetch(
        skr_db_tx(db),
        &(struct skr_statement){.sql = sql, .values = &age, .value_count = 1},
        &row, NULL);
    skr_arena_fini(&arena);
    if (code == SKR_OK && row.found) {
        const struct skr_value claimed = skr_bind_integer(id.integer);
        skr_test_run_template(db,
                              "UPDATE messenger_outbox SET delivered_at = "
                              "{now} WHERE id = ?",
                              &claimed, 1);
        code = skr_db_commit(db, NULL);
    } else {
        skr_db_rollback(db);
    }
    // Symfony, too, tries again after a deadlock.
    return code == SKR_OK && row.found ? id.integer : 0;
}

static int
work_as_symfony(const struct fixture *fixture)
{
    struct skr_db *db = skr_test_connect(&fixture->database);
    int64_t end_ms = skr_clock_ms() + 60000;
    while (skr_test_number(db, "SELECT COUNT(*) FROM messenger_outbox") > 0) {
        if (skr_clock_ms() > end_ms)
            return 1;
        const struct skr_value row = skr_bind_integer(take_as_symfony(db));
        if (row.integer == 0)
            continue;
        skr_test_run_template(db, "INSERT INTO handled (id) VALUES (?)", &row,
                              1);
        skr_test_run_template(db, "DELETE FROM messenger_outbox WHERE id = ?",
                              &row, 1);
    }
    skr_db_close(db);
    return 0;
}

static int
work_side_by_side(const struct fixture *fixture)
{
    return getpid() % 2 == 0 ? work_as_symfony(fixture)
                             : claim_until_empty(fixture);
}

static void
test_beside_symfonys_worker_no_row_is_taken_twice(void **state)
{
    run_many(*state, work_side_by_side);
}

// ------------------------------------------------------------- what was sent

static struct skr_store *
make_keeping(const struct fixture *fixture)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.keeps_sent = true;
    return make_table_by(&options);
}

static void
test_what_was_sent_may_stay_under_another_name(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *deleting = fixture->table;
    struct worker a;
    open_worker(fixture, &a);
    insert_many(fixture, 4);
    fixture->table = make_keeping(fixture);
    assert_int_equal(read_rows(fixture), 4);
    set_states(fixture, SKR_READ);
    fixture->batch.items[0].state = SKR_DONE;
    settle(fixture);
    assert_int_equal(claim(fixture, &a, 2), 2);
    set_all(&a, SKR_DONE);
    settle_worker(fixture, &a);
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM messenger_outbox WHERE "
                        "queue_name = 'outbox.sent' AND delivered_at IS NOT "
                        "NULL AND id < 4"),
        3);
    // They are not read again, not even when they look like an old lease.
    age_leases(fixture, &a);
    a.reader.at = (struct skr_cursor){0};
    assert_int_equal(claim(fixture, &a, 10), 1);
    assert_int_equal(a.batch.items[0].row, 4);
    close_worker(&a);
    skr_store_free(fixture->table);
    fixture->table = deleting;
}

static void
test_a_queues_name_must_leave_room_for_that(void **state)
{
    struct fixture *fixture = *state;
    char queue[191];
    for (size_t size = 184; size <= 190; size++) {
        struct skr_store *table = NULL;
        struct skr_error error = {0};
        memset(queue, 'q', size);
        queue[size] = '\0';
        struct skr_messenger_options options = outbox_options(fixture);
        options.queue = queue;
        options.keeps_sent = true;
        enum skr_code code = skr_messenger_new(&options, &table, &error);
        assert_int_equal(code, size <= 185 ? SKR_OK : SKR_INVALID);
        skr_store_free(table);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_released_rows_come_back_to_one_who_passed_them),
        TEST(test_who_claims_a_range_leaves_the_row_behind_it_free),
        TEST(test_those_who_share_do_not_wait_for_each_other),
        TEST(test_many_lease_and_none_takes_a_row_twice),
        TEST(test_a_late_owner_may_delete_and_nothing_else),
        TEST(test_what_another_leases_shows_one_who_reads_alone),
        TEST(test_beside_symfonys_worker_no_row_is_taken_twice),
        TEST(test_what_was_sent_may_stay_under_another_name),
        TEST(test_a_queues_name_must_leave_room_for_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
