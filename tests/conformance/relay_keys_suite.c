// SPDX-License-Identifier: MIT
// Partition keys of every kind that a database takes, and relays that claim in
// every way: each message arrives in the order of its key, or is where people
// see it, with the reason.

#include "conformance/relay_ordered_world.h"
#include "store/messenger/partitions.h"

enum {
    EACH = 70,        // more than are in hand of one partition at a time
    LONG_KEY = 1024,  // bytes
};

static int
set_up_by(void **state, enum skr_claim claim)
{
    set_up_as(state, true);
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    options.full_scan_ms = 60000;
    options.is_ordered = true;
    options.is_sharded = claim == SKR_CLAIM_SHARDS;
    use_outbox(fixture, &options);
    struct skr_error error = {0};
    if (skr_store_create(fixture->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    fixture->options.claim = claim;
    fixture->options.lease_ms = 3000;
    fixture->options.blocks_partitions = true;
    return 0;
}

static int
set_up_exclusive(void **state)
{
    return set_up_by(state, SKR_CLAIM_NONE);
}

static int
set_up_divided(void **state)
{
    return set_up_by(state, SKR_CLAIM_SHARDS);
}

// False: no such key can be there.
static bool
insert_odd(struct fixture *fixture, struct skr_value key)
{
    struct skr_arena arena = {0};
    const struct skr_value values[] = {
        skr_bind_text("odd:0"), skr_bind_text("{\"type\":\"order.placed\"}"),
        key};
    const struct skr_statement statement = {
        .sql = skr_sql_fill(skr_db_dialect(fixture->db), &arena,
                            "INSERT INTO messenger_outbox (body, headers, "
                            "queue_name, partition_key, created_at, "
                            "available_at) VALUES (?, ?, 'outbox', ?, {now}, "
                            "{now})",
                            NULL, 0),
        .values = values,
        .value_count = 3,
    };
    bool ok = skr_tx_run(skr_db_tx(fixture->db), &statement, NULL) == SKR_OK;
    skr_arena_fini(&arena);
    return ok;
}

static void
test_a_key_that_is_no_text_is_refused_row_by_row(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value keys[] = {
        skr_bind_bytes("a\0b", 3),
        skr_bind_bytes("\0", 1),
        skr_bind_blob("\xff\xfe", 2),
    };
    int odd = 0;
    for (int number = 0; number < EACH; number++) {
        for (size_t i = 0; i < SKR_COUNT_OF(keys); i++)
            odd += insert_odd(fixture, keys[i]);
        insert_keyed(fixture, "a", number);
        insert_keyed(fixture, "b", number);
    }
    // PostgreSQL takes none of them, or makes a text of the bytes.
    int refused = odd >= 2 * EACH ? odd : 0;
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "a"), EACH);
    assert_int_equal(judge_key(&fixture->fake, "b"), EACH);
    assert_int_equal(fixture->fake.got_count, 2 * EACH + odd - refused);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED
                                     " WHERE headers LIKE '%in hexadecimal%'"),
                     refused);
    assert_int_equal(fixture->blocked, 0);
}

static void
run_where_it_can(struct fixture *fixture, const char *sql)
{
    (void)!skr_tx_run(skr_db_tx(fixture->db),
                      &(struct skr_statement){.sql = sql}, NULL);
}

// Longer than any key of ours, in a table of others: the second of them begins
// with the first.
static void
test_a_key_that_is_too_long_is_refused_row_by_row(void **state)
{
    struct fixture *fixture = *state;
    char text[2 * LONG_KEY + 1];
    for (size_t i = 0; i < 2 * LONG_KEY; i += 4)
        memcpy(text + i, "\xf0\x9f\x98\x80", 4);
    run_where_it_can(fixture, "ALTER TABLE messenger_outbox MODIFY "
                              "partition_key VARCHAR(550) CHARACTER SET "
                              "utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT "
                              "''");
    run_where_it_can(fixture, "ALTER TABLE messenger_outbox ALTER COLUMN "
                              "partition_key TYPE TEXT");
    for (int number = 0; number < EACH; number++) {
        assert_true(insert_odd(fixture, skr_bind_bytes(text, LONG_KEY)));
        assert_true(insert_odd(fixture, skr_bind_bytes(text, 2 * LONG_KEY)));
        insert_keyed(fixture, "a", number);
        insert_keyed(fixture, "\xf0\x9f\x98\x81", number);
    }
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "a"), EACH);
    assert_int_equal(judge_key(&fixture->fake, "\xf0\x9f\x98\x81"), EACH);
    assert_int_equal(fixture->fake.got_count, 2 * EACH);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED
                                     " WHERE headers LIKE '%in hexadecimal%'"),
                     2 * EACH);
}

// Where columns hold what is not of their type, and keys may be numbers.
static bool
make_keys_numbers(struct fixture *fixture)
{
    if (strcmp(skr_db_dialect(fixture->db)->product, "SQLite") != 0)
        return false;
    static const char *const statements[] = {
        "DROP INDEX messenger_outbox_idx_partition_id",
        "ALTER TABLE messenger_outbox DROP COLUMN partition_key",
        "ALTER TABLE messenger_outbox ADD COLUMN partition_key INTEGER NOT "
        "NULL DEFAULT ''",
        "CREATE INDEX messenger_outbox_idx_partition_id ON messenger_outbox "
        "(queue_name, partition_key, id)",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(statements); i++)
        skr_test_run(fixture->db, statements[i]);
    return true;
}

static void
test_keys_that_are_numbers_arrive_in_their_order(void **state)
{
    struct fixture *fixture = *state;
    struct skr_partitions partitions;
    if (!make_keys_numbers(fixture))
        return;
    for (int number = 0; number < EACH; number++) {
        insert_keyed(fixture, "4711", number);
        insert_keyed(fixture, "-1", number);
        insert_keyed(fixture, "", number);
    }
    insert_keyed(fixture, "4711", EACH);
    assert_int_equal(
        skr_test_number(fixture->db,
                        ROWS " WHERE typeof(partition_key) = 'integer'"),
        2 * EACH + 1);
    assert_int_equal(skr_messenger_count_partitions(fixture->table, fixture->db,
                                                    &partitions, NULL),
                     SKR_OK);
    assert_string_equal(partitions.largest, "4711");
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "4711"), EACH + 1);
    assert_int_equal(judge_key(&fixture->fake, "-1"), EACH);
    assert_int_equal(fixture->fake.got_count, 3 * EACH + 1);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

// Some databases take some of these for the same.
static const char *const near_keys[] = {"a", "a ", "A", "a\t", "\ta", "  "};

// Made by others, where the database has such: it takes still more for the
// same, and sorts it otherwise.
static void
ignore_case(struct fixture *fixture)
{
    run_where_it_can(fixture, "ALTER TABLE messenger_outbox MODIFY "
                              "partition_key VARCHAR(255) CHARACTER SET "
                              "utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL "
                              "DEFAULT ''");
}

static void
send_near_keys(struct fixture *fixture)
{
    for (int number = 0; number < EACH; number++) {
        for (size_t i = 0; i < SKR_COUNT_OF(near_keys); i++)
            insert_keyed(fixture, near_keys[i], number);
        insert_keyed(fixture, "", number);
    }
    run_until_empty(fixture);
    // Blanks may be no key at all.
    for (size_t i = 0; i < SKR_COUNT_OF(near_keys) - 1; i++)
        assert_int_equal(judge_key(&fixture->fake, near_keys[i]), EACH);
    assert_int_equal(fixture->fake.got_count,
                     (SKR_COUNT_OF(near_keys) + 1) * EACH);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_keys_that_look_alike_arrive_in_their_order(void **state)
{
    send_near_keys(*state);
}

static void
test_so_they_do_from_a_table_of_others(void **state)
{
    ignore_case(*state);
    send_near_keys(*state);
}

static enum skr_publish_result
refuse_all_for_good(const struct skr_fake_message *message, size_t count,
                    void *user)
{
    (void)message;
    (void)count;
    (void)user;
    return SKR_REFUSED_FOR_GOOD;
}

static enum skr_code
count_head(const struct skr_blocked_head *head, void *user,
           struct skr_error *error)
{
    (void)error;
    assert_int_equal(head->length, 1);
    ++*(size_t *)user;
    return SKR_OK;
}

static void
test_each_of_them_is_seen_when_it_cannot_be_sent(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_store *table = fixture->table;
    struct skr_partitions partitions;
    size_t heads = 0;
    fixture->fake.result = refuse_all_for_good;
    for (size_t i = 0; i < SKR_COUNT_OF(near_keys); i++)
        insert_keyed(fixture, near_keys[i], 0);
    assert_int_equal(
        skr_messenger_count_partitions(table, fixture->db, &partitions, NULL),
        SKR_OK);
    // Where it is no key, blanks are no partition.
    assert_in_range(partitions.count, SKR_COUNT_OF(near_keys) - 1,
                    SKR_COUNT_OF(near_keys));
    assert_int_equal(partitions.largest_length, 1);
    run_until_empty(fixture);
    assert_int_equal(
        skr_messenger_each_blocked(
            table, fixture->db,
            &(struct skr_blocked_page){.max = 100, .measures = true},
            count_head, &heads, NULL),
        SKR_OK);
    assert_int_equal(heads, skr_test_number(fixture->db, ROWS));
    assert_int_equal(heads + skr_test_number(fixture->db, FAILED),
                     SKR_COUNT_OF(near_keys));
}

#define KEYS(test)                                                      \
    cmocka_unit_test_setup_teardown(test, set_up_exclusive, tear_down), \
        cmocka_unit_test_setup_teardown(test, set_up_divided, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KEYS(test_a_key_that_is_no_text_is_refused_row_by_row),
        KEYS(test_a_key_that_is_too_long_is_refused_row_by_row),
        KEYS(test_keys_that_are_numbers_arrive_in_their_order),
        KEYS(test_keys_that_look_alike_arrive_in_their_order),
        KEYS(test_so_they_do_from_a_table_of_others),
        KEYS(test_each_of_them_is_seen_when_it_cannot_be_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
