// SPDX-License-Identifier: MIT
// The order of commits: what was written after a transaction began to write
// waits for its end. Other suites' transactions hold it back as well, so that
// nothing here is expected to be quick.

#include "conformance/relay_ordered_world.h"
#include "store/schema.h"

enum { PATIENCE_MS = 60000, WRITERS = 3 };

static struct skr_store *
make_ordered(const struct fixture *fixture, bool by_commits, bool is_sharded)
{
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    if (skr_messenger_new(
            &(struct skr_messenger_options){
                .dialect = skr_db_dialect(fixture->db),
                .table = "messenger_outbox",
                .queue = "outbox",
                .is_ordered = true,
                .is_sharded = is_sharded,
                .by_commits = by_commits,
                .failed_table = "messenger_messages",
            },
            &table, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return table;
}

static void
use_table(struct fixture *fixture, struct skr_store *table)
{
    struct skr_error error = {0};
    skr_store_free(fixture->table);
    fixture->table = fixture->options.table = table;
    if (skr_store_create(table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static int
set_up_commits(void **state)
{
    set_up_as(state, true);
    struct fixture *fixture = *state;
    fixture->options.long_open_ms = 1;
    use_table(fixture, make_ordered(fixture, true, false));
    return 0;
}

static int
set_up_divided(void **state)
{
    set_up_commits(state);
    struct fixture *fixture = *state;
    use_table(fixture, make_ordered(fixture, true, true));
    fixture->options.claim = SKR_CLAIM_SHARDS;
    fixture->options.lease_ms = 15000;
    return 0;
}

// A transaction that has begun to write, though not here.
static struct skr_db *
begin_writer(const struct fixture *fixture)
{
    struct skr_db *writer = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(writer, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_true(skr_test_number(writer, "SELECT CAST(CAST(pg_current_xact_id() "
                                        "AS TEXT) AS BIGINT)") > 0);
    return writer;
}

static void
commit_writer(struct skr_db *writer)
{
    assert_int_equal(skr_db_commit(writer, NULL), SKR_OK);
    skr_db_close(writer);
}

static bool
is_held_back(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->held_back, __ATOMIC_RELAXED) > 0;
}

static void
wait_until_empty(struct fixture *fixture)
{
    assert_true(skr_test_eventually(outbox_is_empty, fixture, PATIENCE_MS));
    stop(fixture);
    assert_int_equal(fixture->troubles, 0);
}

static void
test_commits_in_reverse_arrive_in_the_order_of_their_ids(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *writers[WRITERS];
    char body[16];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = begin_writer(fixture);
        snprintf(body, sizeof(body), "k0:%d", i);
        insert_on(writers[i], "k0", body, 0);
    }
    start(fixture);
    for (int i = WRITERS; i-- > 1;)
        commit_writer(writers[i]);
    assert_true(skr_test_eventually(is_held_back, fixture, PATIENCE_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 0);
    commit_writer(writers[0]);
    wait_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), WRITERS);
}

// One that wrote something else before is older, and yet comes second. By the
// numbers of their transactions the second could go while the first may not.
static void
test_writers_that_wait_for_each_other_keep_their_order(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *second = begin_writer(fixture);
    struct skr_db *between = begin_writer(fixture);
    insert_keyed(fixture, "k0", 0);
    insert_on(second, "k0", "k0:1", 0);
    commit_writer(second);
    start(fixture);
    assert_true(skr_test_eventually(is_held_back, fixture, PATIENCE_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 0);
    commit_writer(between);
    wait_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 2);
}

static bool
got_one(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 1;
}

static bool
got_two(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 2;
}

// The reader has passed the place of a row that appears and may not go yet.
static void
test_a_late_row_that_is_held_back_is_not_passed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *early = begin_writer(fixture);
    struct skr_db *older = begin_writer(fixture);
    struct skr_db *between = begin_writer(fixture);
    struct skr_db *late = begin_writer(fixture);
    insert_on(late, "k0", "k0:0", 0);
    insert_on(early, "k1", "k1:0", 0);
    commit_writer(early);
    start(fixture);
    assert_true(skr_test_eventually(got_one, fixture, PATIENCE_MS));
    commit_writer(late);
    insert_on(older, "k0", "k0:1", 0);
    insert_on(older, "k1", "k1:1", 0);
    commit_writer(older);
    assert_true(skr_test_eventually(got_two, fixture, PATIENCE_MS));
    assert_int_equal(judge_key(&fixture->fake, "k1"), 2);
    commit_writer(between);
    wait_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 2);
}

static void
test_the_youngest_open_transaction_is_not_passed(void **state)
{
    check_youngest_is_not_passed(*state);
}

struct wanted_writer {
    struct fixture *fixture;
    int64_t process;
};

static bool
is_named(void *user)
{
    const struct wanted_writer *wanted = user;
    const struct skr_store *table = wanted->fixture->table;
    struct skr_writer writer;
    struct skr_error error = {0};
    if (table->partitions->find_writer(table, wanted->fixture->db, &writer,
                                       &error) != SKR_OK)
        fail_msg("%s", error.text);
    return writer.process == wanted->process && writer.age_s >= 1;
}

static void
test_a_transaction_that_holds_back_the_queue_is_named_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *writer = begin_writer(fixture);
    struct wanted_writer wanted = {
        .fixture = fixture,
        .process = skr_test_number(writer, "SELECT pg_backend_pid()"),
    };
    insert_keyed(fixture, "k0", 0);
    start(fixture);
    assert_true(skr_test_eventually(is_held_back, fixture, PATIENCE_MS));
    assert_true(skr_test_eventually(is_named, &wanted, PATIENCE_MS));
    assert_int_equal(__atomic_load_n(&fixture->held_back, __ATOMIC_RELAXED), 1);
    commit_writer(writer);
    wait_until_empty(fixture);
    assert_int_equal(fixture->held_back, 1);
}

static void
test_a_relay_that_ends_when_empty_waits_for_what_is_held_back(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *writer = begin_writer(fixture);
    insert_keyed(fixture, "k0", 0);
    fixture->options.stop_when_empty = true;
    start(fixture);
    assert_true(skr_test_eventually(is_held_back, fixture, PATIENCE_MS));
    commit_writer(writer);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_OK);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 1);
}

static void
test_messages_without_a_key_wait_for_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *writer = begin_writer(fixture);
    insert_on(fixture->db, "", "free:0", 0);
    run_until_empty(fixture);
    assert_int_equal(fixture->fake.got_count, 1);
    commit_writer(writer);
}

// As after a dump was loaded.
static void
test_numbers_of_another_server_hold_nothing_back(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture, "k0", 0);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET transaction_id = "
                              "'9223372036854775807'");
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 1);
}

struct setup {
    struct skr_db *db;
    int statements;
};

static enum skr_code
run_and_count(const char *sql, void *user, struct skr_error *error)
{
    struct setup *setup = user;
    setup->statements += strstr(sql, "transaction_id") != NULL;
    return skr_schema_run(sql, setup->db, error);
}

static void
complete(struct fixture *fixture, int statements)
{
    const struct skr_store *table = fixture->table;
    struct setup setup = {.db = fixture->db};
    struct skr_error error = {0};
    if (table->admin->complete(table, fixture->db, run_and_count, &setup,
                               &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(setup.statements, statements);
}

static void
test_setup_adds_the_number_of_the_transaction_once(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_store *table = fixture->table;
    struct skr_error error = {0};
    skr_test_run(fixture->db,
                 "ALTER TABLE messenger_outbox DROP COLUMN transaction_id");
    insert_keyed(fixture, "k0", 0);
    assert_int_equal(table->admin->check(table, fixture->db, &error),
                     SKR_INVALID);
    assert_non_null(strstr(error.text, "transaction_id"));
    assert_non_null(strstr(error.text, "skirnir setup"));
    complete(fixture, 1);
    complete(fixture, 0);
    assert_int_equal(table->admin->check(table, fixture->db, &error), SKR_OK);
    insert_keyed(fixture, "k0", 1);
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 2);
}

// What is known to wait need not be found again.
static void
test_many_late_rows_of_a_partition_that_waits_hold_back_no_other(void **state)
{
    struct fixture *fixture = *state;
    insert_on(fixture->db, "k1", "k1:0", 3600);
    struct skr_db *early = begin_writer(fixture);
    struct skr_db *late = begin_writer(fixture);
    for (int i = 0; i < 600; i++)
        insert_on(late, "k1", "k1:1", 0);
    insert_on(early, "k2", "k2:0", 0);
    commit_writer(early);
    start(fixture);
    assert_true(skr_test_eventually(got_one, fixture, PATIENCE_MS));
    commit_writer(late);
    insert_keyed(fixture, "k3", 0);
    assert_true(skr_test_eventually(got_two, fixture, PATIENCE_MS));
    stop(fixture);
}

#define COMMITS(test) \
    cmocka_unit_test_setup_teardown(test, set_up_commits, tear_down)
#define DIVIDED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_divided, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        COMMITS(test_commits_in_reverse_arrive_in_the_order_of_their_ids),
        DIVIDED(test_commits_in_reverse_arrive_in_the_order_of_their_ids),
        COMMITS(test_writers_that_wait_for_each_other_keep_their_order),
        COMMITS(test_a_late_row_that_is_held_back_is_not_passed),
        DIVIDED(test_a_late_row_that_is_held_back_is_not_passed),
        COMMITS(test_the_youngest_open_transaction_is_not_passed),
        DIVIDED(test_the_youngest_open_transaction_is_not_passed),
        COMMITS(test_a_transaction_that_holds_back_the_queue_is_named_once),
        COMMITS(test_a_relay_that_ends_when_empty_waits_for_what_is_held_back),
        COMMITS(test_messages_without_a_key_wait_for_nobody),
        COMMITS(test_numbers_of_another_server_hold_nothing_back),
        COMMITS(test_setup_adds_the_number_of_the_transaction_once),
        COMMITS(
            test_many_late_rows_of_a_partition_that_waits_hold_back_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
