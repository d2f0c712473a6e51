// SPDX-License-Identifier: MIT
// Partition keys of every kind that a database takes, and relays that claim in
// every way: each message arrives in the order of its key, or is where people
// see it, with the reason.

#include "conformance/relay_ordered_world.h"
#include "table/messenger/partitions.h"

enum { EACH = 70 };  // more than are in hand of one partition at a time

static int
set_up_by(void **state, enum skr_claim claim)
{
    set_up_as(state, true);
    struct fixture *fixture = *state;
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .sweep_ms = 60000,
        .is_ordered = true,
        .is_divided = claim == SKR_CLAIM_SLOTS,
        .transport = "outbox",
        .failed_table = "messenger_messages",
        .failed_queue = "failed",
    };
    skr_table_free(fixture->table);
    struct skr_error error = {0};
    if (skr_messenger_new(&options, &fixture->table, &error) != SKR_OK ||
        skr_table_create(fixture->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    fixture->options.table = fixture->table;
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
    return set_up_by(state, SKR_CLAIM_SLOTS);
}

// Where rows can be locked.
static int
set_up_locked(void **state)
{
    set_up_by(state, SKR_CLAIM_LOCKED);
    struct fixture *fixture = *state;
    if (!has_several_writers(fixture))
        fixture->options.claim = SKR_CLAIM_NONE;
    return 0;
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

#define KEYS(test)                                                       \
    cmocka_unit_test_setup_teardown(test, set_up_exclusive, tear_down),  \
        cmocka_unit_test_setup_teardown(test, set_up_locked, tear_down), \
        cmocka_unit_test_setup_teardown(test, set_up_divided, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KEYS(test_a_key_that_is_no_text_is_refused_row_by_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
