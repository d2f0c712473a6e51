// SPDX-License-Identifier: MIT
// Settling rows that the database refuses to change, and what a settle must not
// write: a dead letter of a row that is gone, or anything on a share that
// another can take meanwhile.
#include "table_world.h"

#include "base/error.h"
#include "support/faulty_database.h"

#define BAD "OLD.body LIKE 'bad%'"
#define LEFT "SELECT COUNT(*) FROM messenger_outbox"
#define BAD_LEFT LEFT " WHERE body LIKE 'bad%'"
#define DONE_LEFT BAD_LEFT " AND delivered_at = '9999-12-31 23:59:59'"
#define BIG_HEADERS                                \
    "{\"type\":\"order.placed\",\"X-Message-Id\":" \
    "\"01938d6f-1111-7000-8000-000000000001\",\"X-Other\":\"kept\"}"

enum { ROWS = 60, BAD_ROW = 23 };

static int
set_up_faulty(void **state)
{
    set_up(state);
    struct fixture *fixture = *state;
    skr_db_close(fixture->db);
    fixture->database.ops = skr_faulty_database(fixture->database.ops);
    fixture->db = skr_test_connect(&fixture->database);
    return 0;
}

static int
set_up_divided(void **state)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_ordered = true;
    options.is_sharded = true;
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    start(fixture);
    skr_db_close(fixture->db);
    fixture->database.ops = skr_faulty_database(fixture->database.ops);
    fixture->db = skr_test_connect(&fixture->database);
    return 0;
}

static int
tear_down_faulty(void **state)
{
    skr_faulty_set(NULL);
    skr_faulty_watch(NULL, NULL);
    return tear_down(state);
}

// Rows of which one is bad, all with the same result.
static void
read_with_a_bad_one(struct fixture *fixture, enum skr_state state)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < ROWS; i++)
        insert(fixture, "outbox", i == BAD_ROW ? "bad" : "good", BIG_HEADERS);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(read_rows(fixture), ROWS);
    set_states(fixture, state);
    for (size_t i = 0; i < fixture->batch.count; i++)
        skr_fail(&fixture->batch.items[i].reason, SKR_REFUSED, SKR_GIVE_UP,
                 "unroutable");
}

static void
assert_written(const struct fixture *fixture, enum skr_write bad)
{
    for (size_t i = 0; i < fixture->batch.count; i++) {
        const struct skr_batch_item *item = &fixture->batch.items[i];
        assert_int_equal(item->write, i == BAD_ROW ? bad : SKR_WRITE_DONE);
        assert_true((item->refusal != NULL) == (i == BAD_ROW));
    }
}

static void
test_each_result_is_written_but_for_the_row_that_is_refused(void **state)
{
    static const enum skr_state states[] = {SKR_RETRY_LATER, SKR_BLOCKED,
                                            SKR_DEAD, SKR_DONE};
    struct fixture *fixture = *state;
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        fixture->reader.at = (struct skr_cursor){0};
        read_with_a_bad_one(fixture, states[i]);
        settle(fixture);
        assert_written(fixture, SKR_WRITE_REFUSED);
        assert_non_null(strstr(fixture->batch.items[BAD_ROW].refusal,
                               "refused by a trigger"));
        assert_int_equal(skr_test_number(fixture->db, BAD_LEFT), 1);
        int64_t waiting = skr_test_number(fixture->db, LEFT
                                          " WHERE available_at > created_at");
        bool waits = states[i] == SKR_RETRY_LATER || states[i] == SKR_BLOCKED;
        assert_int_equal(waiting, waits ? ROWS - 1 : 0);
        assert_int_equal(skr_test_number(fixture->db, LEFT), waits ? ROWS : 1);
        assert_int_equal(count_rows(fixture, "messenger_messages"),
                         states[i] == SKR_DEAD ? ROWS - 1 : 0);
        skr_test_allow(fixture->db, "DELETE");
        skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
        skr_test_run(fixture->db, "DELETE FROM messenger_messages");
        skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    }
}

// Published ones go first, whatever becomes of the others.
static void
test_what_is_published_is_settled_beside_what_is_refused(void **state)
{
    struct fixture *fixture = *state;
    read_with_a_bad_one(fixture, SKR_DONE);
    fixture->batch.items[BAD_ROW].state = SKR_RETRY_LATER;
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    settle(fixture);
    assert_written(fixture, SKR_WRITE_REFUSED);
    assert_int_equal(skr_test_number(fixture->db, LEFT), 1);
}

static void
test_a_row_that_cannot_be_deleted_is_marked_as_done(void **state)
{
    struct fixture *fixture = *state;
    read_with_a_bad_one(fixture, SKR_DONE);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    settle(fixture);
    assert_written(fixture, SKR_WRITE_DONE);
    assert_int_equal(skr_test_number(fixture->db, LEFT), 1);
    assert_int_equal(skr_test_number(fixture->db, DONE_LEFT), 1);
    // It is not read again.
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(read_rows(fixture), 0);
}

// on_success: keep
static void
test_a_row_that_cannot_be_kept_as_sent_is_marked_as_done(void **state)
{
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    options.keeps_sent = true;
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    read_with_a_bad_one(fixture, SKR_DONE);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE",
                    BAD " AND NEW.queue_name <> OLD.queue_name");
    settle(fixture);
    assert_written(fixture, SKR_WRITE_DONE);
    assert_int_equal(skr_test_number(fixture->db, LEFT), ROWS);
    assert_int_equal(skr_test_number(fixture->db, DONE_LEFT), 1);
    assert_int_equal(
        skr_test_number(fixture->db, LEFT " WHERE queue_name = 'outbox.sent'"),
        ROWS - 1);
}

// By a lease, and with a fence around it: what is refused changes neither.
static void
test_a_leased_row_that_is_refused_stays_leased(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    const struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    for (int i = 0; i < ROWS; i++)
        insert(fixture, "outbox", i == BAD_ROW ? "bad" : "good", HEADERS);
    if (fixture->table->leases->claim(
            use_reader(&fixture->reader, fixture->table, fixture->db), &read,
            &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(fixture->batch.count, ROWS);
    for (size_t i = 0; i < ROWS; i++)
        fixture->batch.items[i].state =
            i % 2 == 0 || i == BAD_ROW ? SKR_RETRY_LATER : SKR_READ;
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    settle(fixture);
    assert_written(fixture, SKR_WRITE_REFUSED);
    assert_int_equal(
        skr_test_number(fixture->db, LEFT " WHERE delivered_at IS NOT NULL"),
        1);
    assert_int_equal(
        skr_test_number(fixture->db, BAD_LEFT " AND delivered_at IS NOT NULL"),
        1);
}

static enum skr_code
claim(struct fixture *fixture, const struct skr_read *read,
      struct skr_error *error)
{
    skr_batch_clear(&fixture->batch);
    return fixture->table->leases->claim(
        use_reader(&fixture->reader, fixture->table, fixture->db), read,
        &fixture->batch, error);
}

static void
test_a_row_that_cannot_be_claimed_comes_alone(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    size_t claimed = 0;
    int64_t refused = 0;
    for (int i = 0; i < ROWS; i++)
        insert(fixture, "outbox", i == BAD_ROW ? "bad" : "good", HEADERS);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    do {
        if (claim(fixture, &read, &error) != SKR_OK)
            fail_msg("%s", error.text);
        const struct skr_batch_item *item = &fixture->batch.items[0];
        if (fixture->batch.count == 1 && item->write == SKR_WRITE_REFUSED) {
            assert_int_equal(refused, 0);
            refused = item->row;
            assert_string_equal(fixture->batch.lease.time, "");
            assert_non_null(strstr(item->refusal, "refused by a trigger"));
            read.parked = &refused;
            read.parked_count = 1;
            continue;
        }
        claimed += fixture->batch.count;
    } while (fixture->batch.count > 0);
    assert_int_equal(claimed, ROWS - 1);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT id FROM messenger_outbox "
                                     "WHERE delivered_at IS NULL"),
                     refused);
    // As it is no longer refused it is claimed like any other.
    skr_test_allow(fixture->db, "UPDATE");
    read.parked_count = 0;
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(claim(fixture, &read, &error), SKR_OK);
    assert_int_equal(fixture->batch.count, 1);
    assert_int_equal(fixture->batch.items[0].write, SKR_WRITE_WHOLE);
}

static void
test_a_row_whose_lease_cannot_be_renewed_is_lost_alone(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    const struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    for (int i = 0; i < ROWS; i++)
        insert(fixture, "outbox", i == BAD_ROW ? "bad" : "good", HEADERS);
    assert_int_equal(claim(fixture, &read, &error), SKR_OK);
    assert_int_equal(fixture->batch.count, ROWS);
    // So that a renewal is seen within the second.
    skr_test_run(fixture->db, "UPDATE messenger_outbox "
                              "SET delivered_at = '2026-11-15 02:53:45'");
    snprintf(fixture->batch.lease.time, sizeof(fixture->batch.lease.time),
             "2026-11-15 02:53:45");
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    if (fixture->table->leases->renew(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < ROWS; i++) {
        assert_int_equal(fixture->batch.items[i].lost, i == BAD_ROW);
        assert_int_equal(fixture->batch.items[i].write, SKR_WRITE_WHOLE);
    }
    assert_int_equal(
        skr_test_number(fixture->db,
                        LEFT " WHERE delivered_at > '2026-11-15 02:53:45'"),
        ROWS - 1);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

// ---------------------------------------------------- whatever the row's size

// As a server does that takes no more at once than the row has.
static void
refuse_headers(const char *sql)
{
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_RUN,
        .sql = sql,
        .count = 1000,
        .code = SKR_INVALID,
        .remedy = SKR_GIVE_UP,
    });
}

static void
test_a_dead_letter_is_copied_inside_the_server(void **state)
{
    struct fixture *fixture = *state;
    struct skr_arena arena = {0};
    insert(fixture, "outbox", "{\"n\":1}", BIG_HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    set_states(fixture, SKR_DEAD);
    skr_fail(&fixture->batch.items[0].reason, SKR_REFUSED, SKR_GIVE_UP,
             "no \"queue\" wants it");
    const char *copy = skr_sql_fill(
        skr_db_dialect(fixture->db), &arena,
        "INSERT INTO messenger_messages (body, headers, queue_name, "
        "created_at, available_at) SELECT body, ?",
        NULL, 0);
    assert_non_null(copy);
    refuse_headers(copy);
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    skr_test_assert_text(fixture->db,
                         "SELECT body FROM messenger_messages WHERE "
                         "queue_name = 'failed.skirnir'",
                         "{\"n\":1}");
    char *text =
        skr_test_text(fixture->db, "SELECT headers FROM messenger_messages");
    struct skr_failure_report report;
    assert_int_equal(
        skr_failure_read(&arena, text, strlen(text), NULL, &report, NULL),
        SKR_OK);
    assert_string_equal(report.error_text, "no \"queue\" wants it");
    assert_string_equal(report.transport, "outbox");
    assert_string_equal(report.name, "order.placed");
    assert_true(report.has_id);
    assert_string_equal(
        skr_headers_find(report.headers.items, report.headers.count, "X-Other"),
        "kept");
    skr_arena_fini(&arena);
    free(text);
    assert_true(skr_faulty_failures() > 0);
}

// ---------------------------------------------------------- what is not a
// row's

static void
test_a_table_that_cannot_be_written_blames_no_row(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    read_with_a_bad_one(fixture, SKR_DONE);
    fixture->batch.items[BAD_ROW].state = SKR_RETRY_LATER;
    refuse_headers("UPDATE messenger_outbox SET ");
    assert_int_equal(fixture->table->settle->write(fixture->table, fixture->db,
                                                   &fixture->batch, &error),
                     SKR_INVALID);
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(fixture->batch.items[i].write, SKR_WRITE_WHOLE);
    assert_int_equal(skr_test_number(fixture->db, LEFT), ROWS);
    skr_faulty_set(NULL);
    settle(fixture);
    assert_int_equal(skr_test_number(fixture->db, LEFT), 1);
}

static void
test_a_table_that_takes_no_leases_blames_no_row(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    const struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    for (int i = 0; i < ROWS; i++)
        insert(fixture, "outbox", "good", HEADERS);
    refuse_headers("UPDATE messenger_outbox");
    assert_int_equal(claim(fixture, &read, &error), SKR_INVALID);
    assert_int_equal(fixture->batch.count, 0);
    skr_faulty_set(NULL);
    assert_int_equal(claim(fixture, &read, &error), SKR_OK);
    assert_int_equal(fixture->batch.count, ROWS);
}

// --------------------------------------------------- what must not be written

static void
remove_row(struct skr_tx real, const struct skr_statement *statement,
           void *user)
{
    (void)user;
    if (skr_faulty_begins(statement->sql,
                          "DELETE FROM messenger_outbox WHERE id = "))
        assert_int_equal(skr_tx_run(real,
                                    &(struct skr_statement){
                                        .sql = "DELETE FROM messenger_outbox"},
                                    NULL),
                         SKR_OK);
}

// It was there when it was copied, and is not when it is to be removed.
static void
test_a_row_that_is_gone_leaves_no_dead_letter(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    set_states(fixture, SKR_DEAD);
    skr_faulty_watch(remove_row, NULL);
    assert_int_equal(fixture->table->settle->write(fixture->table, fixture->db,
                                                   &fixture->batch, NULL),
                     SKR_CONFLICT);
    skr_faulty_watch(NULL, NULL);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
}

struct thief {
    struct skr_db *db;
    int tries;
};

// Takes over what is being settled, as a relay does that finds the lease run
// out.
static void
steal(struct skr_tx real, const struct skr_statement *statement, void *user)
{
    (void)real;
    struct thief *thief = user;
    if (strncmp(statement->sql, "DELETE", 6) != 0)
        return;
    thief->tries++;
    struct skr_error error = {0};
    enum skr_code code = skr_db_begin(thief->db, SKR_BEGIN_WRITE, &error);
    if (code == SKR_OK)
        code =
            skr_tx_run(skr_db_tx(thief->db),
                       &(struct skr_statement){
                           .sql = "UPDATE skirnir_lease SET epoch = epoch + 1"},
                       &error);
    if (code == SKR_OK)
        code = skr_db_commit(thief->db, &error);
    else
        skr_db_rollback(thief->db);
    assert_int_equal(code, SKR_CONFLICT);
}

static void
test_nobody_takes_a_share_while_it_is_settled(void **state)
{
    struct fixture *fixture = *state;
    struct skr_assignments shares;
    struct skr_assignment all = {.shards = (UINT64_C(1) << SKR_SHARDS) - 1,
                                 .members = 1};
    struct skr_error error = {0};
    const struct skr_store *table = fixture->table;
    insert_keyed(fixture->db, "a", "{}");
    if (table->shards->see(table, fixture->db, &shares, &error) != SKR_OK ||
        table->shards->take(table, fixture->db, &all,
                            &(struct skr_term){.lease_s = 60},
                            &error) != SKR_OK ||
        table->shards->see(table, fixture->db, &shares, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(read_rows(fixture), 1);
    fixture->batch.lease.shards = shares.ours.shards;
    fixture->batch.lease.epochs = shares.ours.epochs;
    set_states(fixture, SKR_DONE);
    struct thief thief = {.db = skr_test_connect_impatient(&fixture->database)};
    skr_faulty_watch(steal, &thief);
    settle(fixture);
    skr_faulty_watch(NULL, NULL);
    skr_db_close(thief.db);
    assert_int_equal(thief.tries, 1);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

#define FAULTY(test) \
    cmocka_unit_test_setup_teardown(test, set_up_faulty, tear_down_faulty)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_result_is_written_but_for_the_row_that_is_refused),
        TEST(test_what_is_published_is_settled_beside_what_is_refused),
        TEST(test_a_row_that_cannot_be_deleted_is_marked_as_done),
        TEST(test_a_row_that_cannot_be_kept_as_sent_is_marked_as_done),
        TEST(test_a_leased_row_that_is_refused_stays_leased),
        TEST(test_a_row_that_cannot_be_claimed_comes_alone),
        TEST(test_a_row_whose_lease_cannot_be_renewed_is_lost_alone),
        FAULTY(test_a_dead_letter_is_copied_inside_the_server),
        FAULTY(test_a_table_that_cannot_be_written_blames_no_row),
        FAULTY(test_a_table_that_takes_no_leases_blames_no_row),
        FAULTY(test_a_row_that_is_gone_leaves_no_dead_letter),
        cmocka_unit_test_setup_teardown(
            test_nobody_takes_a_share_while_it_is_settled, set_up_divided,
            tear_down_faulty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
