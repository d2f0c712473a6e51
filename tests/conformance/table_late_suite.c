// SPDX-License-Identifier: MIT
// Rows whose ids were given before, and whose commit comes after, those of
// others: never missed, and not only found by the sweep.

#include "table_world.h"

// Full scans are too rare to find anything here: what is late is found soon, by
// the looks for it, or never.
enum { FULL_SCAN_MS = 3600000, SOON_MS = 8000 };

static void
insert_as(struct fixture *fixture, struct skr_test_client *client,
          const char *body)
{
    struct skr_arena arena = {0};
    char sql_template[320];
    snprintf(sql_template, sizeof(sql_template),
             "INSERT INTO messenger_outbox (body, headers, queue_name, "
             "created_at, available_at) VALUES ('%s', 'x', 'outbox', "
             "{now}, {now})",
             body);
    char *sql = skr_sql_fill(skr_db_dialect(fixture->db), &arena, sql_template,
                             NULL, 0);
    skr_test_client_run(client, sql);
    skr_arena_fini(&arena);
}

static int
set_up_as(void **state, bool is_ordered)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    options.full_scan_ms = FULL_SCAN_MS;
    options.is_ordered = is_ordered;
    skr_store_free(fixture->table);
    fixture->table = make_table_by(&options);
    fixture->waits_for_watermark = true;
    start(fixture);
    return 0;
}

static int
set_up_waiting(void **state)
{
    return set_up_as(state, false);
}

static int
set_up_ordered_waiting(void **state)
{
    return set_up_as(state, true);
}

static const char *
first_body(const struct fixture *fixture)
{
    return fixture->batch.items[0].envelope.message.body;
}

static bool
reads_something(void *user)
{
    return read_rows(user) > 0;
}

static void
test_a_row_that_commits_late_is_read(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client early = skr_test_client_open(&fixture->database);
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    bool side_by_side = skr_test_writes_side_by_side(fixture->db);
    skr_test_client_begin(&late);
    insert_as(fixture, &late, "late");
    if (side_by_side) {
        skr_test_client_begin(&early);
        insert_as(fixture, &early, "early");
        skr_test_client_commit(&early);
        assert_int_equal(read_rows(fixture), 1);
        assert_string_equal(first_body(fixture), "early");
        set_states(fixture, SKR_DONE);
        settle(fixture);
        assert_int_equal(read_rows(fixture), 0);
    }
    skr_test_client_commit(&late);
    assert_true(skr_test_eventually(reads_something, fixture, SOON_MS));
    assert_string_equal(first_body(fixture), "late");
    skr_test_client_close(&early);
    skr_test_client_close(&late);
}

// A user of MariaDB without the right PROCESS.
static void
test_a_late_row_is_read_by_one_who_may_not_ask_for_transactions(void **state)
{
    struct fixture *fixture = *state;
    fixture->reader.at.mark.hides_open = true;
    test_a_row_that_commits_late_is_read(state);
    assert_true(fixture->reader.at.mark.hides_open);
}

static void
read_and_settle(struct fixture *fixture)
{
    read_rows(fixture);
    set_states(fixture, SKR_DONE);
    settle(fixture);
}

// Where open transactions cannot be asked for: however long one is open, what
// it commits is found by the next look.
static void
test_where_order_counts_the_mark_stays_where_nobody_tells(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    fixture->reader.at.mark.hides_open = true;
    skr_test_client_begin(&late);
    insert_as(fixture, &late, "late");
    for (int i = 0; i < 5; i++) {
        insert_keyed(fixture->db, "c", "c");
        for (size_t at = 0; at < fixture->reader.at.mark.checkpoint_count; at++)
            fixture->reader.at.mark.checkpoints[at].at_ms -= 3600000;
        fixture->reader.at.mark.next_ask_ms = 0;
        read_and_settle(fixture);
    }
    assert_int_equal(fixture->reader.at.mark.low, 0);
    skr_test_client_commit(&late);
    assert_int_equal(read_rows(fixture), 1);
    assert_string_equal(first_body(fixture), "late");
    skr_test_client_close(&late);
}

enum { WRITERS = 5 };

// Each begins before any commits, and they commit in reverse.
static void
test_commits_in_reverse_lose_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client clients[WRITERS];
    size_t writers = skr_test_writes_side_by_side(fixture->db) ? WRITERS : 1;
    for (size_t i = 0; i < writers; i++) {
        clients[i] = skr_test_client_open(&fixture->database);
        skr_test_client_begin(&clients[i]);
        char body[8];
        snprintf(body, sizeof(body), "m%zu", i);
        insert_as(fixture, &clients[i], body);
    }
    for (size_t i = writers; i-- > 0;) {
        skr_test_client_commit(&clients[i]);
        assert_true(skr_test_eventually(reads_something, fixture, SOON_MS));
        assert_int_equal(fixture->batch.count, 1);
        char body[8];
        snprintf(body, sizeof(body), "m%zu", i);
        assert_string_equal(first_body(fixture), body);
        set_states(fixture, SKR_DONE);
        settle(fixture);
        skr_test_client_close(&clients[i]);
    }
}

static bool
mark_has_caught_up(void *user)
{
    struct fixture *fixture = user;
    read_rows(fixture);
    return !skr_test_writes_side_by_side(fixture->db) ||
           fixture->reader.at.mark.low == fixture->reader.at.mark.cursor;
}

// While a transaction is open the mark stays below its id; afterwards it
// follows the cursor, and idle reads are one small statement again.
static void
test_the_mark_waits_for_open_transactions(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    assert_int_equal(read_rows(fixture), 3);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_true(skr_test_eventually(mark_has_caught_up, fixture, 60000));
    int64_t before = fixture->reader.at.mark.low;
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    skr_test_client_begin(&late);
    insert_as(fixture, &late, "late");
    if (skr_test_writes_side_by_side(fixture->db)) {
        insert_many(fixture, 1);
        assert_int_equal(read_rows(fixture), 1);
        set_states(fixture, SKR_DONE);
        settle(fixture);
        for (int i = 0; i < 20; i++) {
            skr_clock_sleep(-1, 20);
            read_rows(fixture);
        }
        assert_int_equal(fixture->reader.at.mark.low, before);
    }
    skr_test_client_commit(&late);
    assert_true(skr_test_eventually(reads_something, fixture, SOON_MS));
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_true(skr_test_eventually(mark_has_caught_up, fixture, 60000));
    skr_test_client_close(&late);
}

// As a relay reads whose broker is silent: what it has read stays in its hands,
// and it writes nothing. Each read asks for transactions.
static size_t
read_in_silence(struct fixture *fixture, const int64_t *in_hand, size_t count)
{
    fixture->reader.at.mark.next_ask_ms = 0;
    fixture->reader.at.next_late_ms = 0;
    fixture->reader.at.has_read_fast = false;
    return read_with(fixture, &(struct skr_read){.max_rows = 100,
                                                 .max_bytes = 1 << 20,
                                                 .in_flight = in_hand,
                                                 .in_flight_count = count});
}

// A transaction that began to write after all that have ended, and nothing is
// written meanwhile.
static void
test_the_mark_waits_for_the_youngest_open_transaction(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    struct skr_test_client older = skr_test_client_open(&fixture->database);
    struct skr_test_client youngest = skr_test_client_open(&fixture->database);
    insert_many(fixture, 1);
    assert_true(skr_test_eventually(mark_has_caught_up, fixture, 60000));
    read_and_settle(fixture);
    skr_test_client_begin(&older);
    insert_as(fixture, &older, "older");
    skr_test_client_begin(&youngest);
    insert_as(fixture, &youngest, "youngest");
    insert_as(fixture, &older, "older");
    skr_test_client_commit(&older);
    assert_int_equal(read_in_silence(fixture, NULL, 0), 2);
    const int64_t in_hand[] = {fixture->batch.items[0].row,
                               fixture->batch.items[1].row};
    assert_int_equal(in_hand[1], in_hand[0] + 2);
    for (int i = 0; i < 8; i++) {
        // What InnoDB shows is renewed a tenth of a second after each look.
        skr_clock_sleep(-1, 120);
        assert_int_equal(read_in_silence(fixture, in_hand, 2), 0);
        assert_true(fixture->reader.at.mark.low <= in_hand[0]);
    }
    skr_test_client_commit(&youngest);
    assert_int_equal(read_in_silence(fixture, in_hand, 2), 1);
    assert_string_equal(first_body(fixture), "youngest");
    skr_test_client_close(&older);
    skr_test_client_close(&youngest);
}

// What was seen cannot appear: only where an id is missing does the mark wait.
static void
test_the_mark_does_not_wait_where_no_id_is_missing(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    assert_true(skr_test_eventually(mark_has_caught_up, fixture, 60000));
    int64_t before = fixture->reader.at.mark.low;
    insert_many(fixture, 3);
    assert_int_equal(read_rows(fixture), 3);
    assert_int_equal(fixture->reader.at.mark.low, before + 3);
    assert_int_equal(fixture->reader.at.mark.cursor, before + 3);
    assert_int_equal(fixture->reader.at.mark.checkpoint_count, 0);
}

// Of rows that are claimed by their ids, as those of a first claim are, some
// may find no room.
static size_t
claim_three(struct fixture *fixture)
{
    struct skr_error error = {0};
    const struct skr_read read = {.max_rows = 100, .max_bytes = 200};
    skr_batch_clear(&fixture->batch);
    if (fixture->table->leases->claim(
            use_reader(&fixture->reader, fixture->table, fixture->db), &read,
            &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    size_t count = fixture->batch.count;
    set_states(fixture, SKR_DONE);
    settle(fixture);
    return count;
}

static bool
claims_all(void *user)
{
    struct fixture *fixture = user;
    claim_three(fixture);
    return count_rows(fixture, "messenger_outbox") == 0;
}

static void
test_a_first_claim_that_is_cut_short_misses_no_late_row(void **state)
{
    static const char body[] = "0123456789012345678901234567890123456789";
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    insert(fixture, "outbox", body, HEADERS);
    skr_test_client_begin(&late);
    insert_as(fixture, &late, "late");
    for (int i = 0; i < 4; i++)
        insert(fixture, "outbox", body, HEADERS);
    assert_in_range(claim_three(fixture), 2, 4);
    skr_test_client_commit(&late);
    skr_test_client_close(&late);
    assert_true(skr_test_eventually(claims_all, fixture, SOON_MS));
}

static void
insert_odd_for_tomorrow(struct fixture *fixture, struct skr_test_client *client)
{
    struct skr_arena arena = {0};
    char *sql = skr_sql_fill(
        skr_db_dialect(fixture->db), &arena,
        "INSERT INTO messenger_outbox (body, headers, queue_name, "
        "partition_key, created_at, available_at) VALUES ('odd', 'x', "
        "'outbox', CONCAT('a', CHAR(0)), {now}, {now} + INTERVAL 1 DAY)",
        NULL, 0);
    skr_test_client_run(client, sql);
    skr_arena_fini(&arena);
}

static bool
catches_up_unharmed(void *user)
{
    struct fixture *fixture = user;
    bool has_caught_up = mark_has_caught_up(fixture);
    for (size_t i = 0; i < fixture->batch.count; i++)
        assert_int_not_equal(fixture->batch.items[i].state, SKR_DEAD);
    return has_caught_up;
}

// Where a key may have a zero byte, and rows commit late.
static void
test_a_late_row_with_a_bad_key_waits_for_its_time(void **state)
{
    struct fixture *fixture = *state;
    if (strcmp(skr_db_dialect(fixture->db)->product, "MariaDB or MySQL") != 0)
        return;
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    skr_test_client_begin(&late);
    insert_odd_for_tomorrow(fixture, &late);
    insert_keyed(fixture->db, "b", "b1");
    read_and_settle(fixture);
    skr_test_client_commit(&late);
    assert_true(skr_test_eventually(catches_up_unharmed, fixture, 60000));
    skr_test_client_close(&late);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_row_that_commits_late_is_read,
                                        set_up_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_late_row_is_read_by_one_who_may_not_ask_for_transactions,
            set_up_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_where_order_counts_the_mark_stays_where_nobody_tells,
            set_up_ordered_waiting, tear_down),
        cmocka_unit_test_setup_teardown(test_commits_in_reverse_lose_nothing,
                                        set_up_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_mark_waits_for_open_transactions, set_up_waiting,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_mark_waits_for_the_youngest_open_transaction,
            set_up_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_mark_waits_for_the_youngest_open_transaction,
            set_up_ordered_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_mark_does_not_wait_where_no_id_is_missing, set_up_waiting,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_mark_does_not_wait_where_no_id_is_missing,
            set_up_ordered_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_first_claim_that_is_cut_short_misses_no_late_row,
            set_up_waiting, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_late_row_with_a_bad_key_waits_for_its_time,
            set_up_ordered_waiting, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
