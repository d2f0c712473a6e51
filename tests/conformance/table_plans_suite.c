// SPDX-License-Identifier: MIT
// What it costs to claim and to settle a batch of an ordered outbox with a
// backlog: how many statements, and that none of them reads or sorts all of it.

#include "store/identity.h"
#include "table_world.h"

#include "base/error.h"
#include "support/faulty_database.h"

enum { KEYS = 1000, DOUBLINGS = 5, BATCH = 500, BATCHES = 3, LEASE_S = 60 };

// A table, and the statements that it runs.
struct watched {
    struct skr_db *db;
    struct skr_store *table;
    struct skr_messenger_reader reader;
    struct skr_batch batch;
    struct skr_assignments shares;
    enum skr_claim claim;
    size_t plans;
};

static void
add_backlog(struct fixture *fixture)
{
    char key[16];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "key %d", i);
        const struct skr_value values[] = {skr_bind_text(HEADERS),
                                           skr_bind_text(key)};
        skr_test_run_template(
            fixture->db,
            "INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) "
            "VALUES ('1', ?, 'outbox', ?, {now}, {now})",
            values, SKR_COUNT_OF(values));
    }
    for (int i = 0; i < DOUBLINGS; i++)
        skr_test_run(fixture->db,
                     "INSERT INTO messenger_outbox (body, headers, queue_name, "
                     "partition_key, created_at, available_at) SELECT body, "
                     "headers, queue_name, partition_key, created_at, "
                     "available_at FROM messenger_outbox ORDER BY id");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static void
check_plan(struct skr_tx real, const struct skr_statement *statement,
           void *user)
{
    struct watched *watched = user;
    if (strstr(statement->sql, "messenger_outbox") == NULL ||
        strstr(statement->sql, "LIMIT 0") != NULL)
        return;
    char *plan = skr_test_plan(real, statement);
    if (skr_test_plan_is_costly(plan))
        fail_msg("%s\n%s", statement->sql, plan);
    watched->plans++;
    free(plan);
}

static void
open_watched(struct fixture *fixture, bool is_ordered, enum skr_claim claim,
             struct watched *watched)
{
    struct skr_error error = {0};
    const struct skr_db_ops *ops = skr_faulty_database(fixture->database.ops);
    *watched = (struct watched){.claim = claim};
    assert_int_equal(
        skr_db_open(ops, fixture->database.url, &watched->db, NULL), SKR_OK);
    assert_int_equal(skr_batch_init(&watched->batch, BATCH, NULL), SKR_OK);
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_ordered = is_ordered;
    options.is_sharded = claim == SKR_CLAIM_SHARDS;
    watched->table = make_table_by(&options);
    if (skr_store_create(watched->table, watched->db, &error) != SKR_OK ||
        open_reader(watched->table, watched->db, &watched->reader, &error) !=
            SKR_OK)
        fail_msg("%s", error.text);
}

static void
take_all(struct watched *watched)
{
    const struct skr_assignment all = {.shards =
                                           (UINT64_C(1) << SKR_SHARDS) - 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(watched->table->shards->see(watched->table,
                                                     watched->db,
                                                     &watched->shares, NULL),
                         SKR_OK);
        assert_int_equal(watched->table->shards->take(
                             watched->table, watched->db, &all,
                             &(struct skr_term){.lease_s = LEASE_S}, NULL),
                         SKR_OK);
    }
}

static void
close_watched(struct watched *watched)
{
    skr_faulty_watch(NULL, NULL);
    skr_batch_fini(&watched->batch);
    skr_store_free(watched->table);
    skr_db_close(watched->db);
}

static void
claim(struct watched *watched)
{
    const struct skr_read read = {.max_rows = BATCH, .max_bytes = 8 << 20};
    struct skr_error error = {0};
    if (watched->table->source->read(
            use_reader(&watched->reader, watched->table, watched->db), &read,
            &watched->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    if (watched->claim == SKR_CLAIM_SHARDS) {
        watched->batch.lease.shards = watched->shares.ours.shards;
        watched->batch.lease.epochs = watched->shares.ours.epochs;
    }
}

static void
settle_done(struct watched *watched)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < watched->batch.count; i++)
        watched->batch.items[i].state = SKR_DONE;
    if (watched->table->settle->write(watched->table, watched->db,
                                      &watched->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_batch_clear(&watched->batch);
}

// The heads of as many partitions as are ever asked for at once.
static void
read_heads(struct watched *watched)
{
    struct skr_partition_read partitions[SKR_MOST_PARTITIONS];
    char keys[SKR_MOST_PARTITIONS][16];
    const struct skr_read read = {.max_rows = BATCH, .max_bytes = 8 << 20};
    struct skr_error error = {0};
    for (int i = 0; i < SKR_MOST_PARTITIONS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key %d", i);
        partitions[i] = (struct skr_partition_read){.key = keys[i]};
    }
    // As if the cursor had passed all of them.
    struct skr_messenger_reader passed = watched->reader;
    passed.at.mark.cursor = INT64_MAX;
    if (watched->table->partitions->read(&passed.base, &read, partitions,
                                         SKR_MOST_PARTITIONS, &watched->batch,
                                         &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_in_range(watched->batch.count, SKR_MOST_PARTITIONS, BATCH);
    skr_batch_clear(&watched->batch);
}

static void
list_blocked(struct watched *watched)
{
    for (int64_t after = 0; after <= KEYS; after += KEYS) {
        const struct skr_blocked_page page = {.after = after, .max = 100};
        assert_int_equal(skr_messenger_each_blocked(watched->table, watched->db,
                                                    &page, ignore_head, NULL,
                                                    NULL),
                         SKR_OK);
    }
}

static void
count_statements(struct fixture *fixture, enum skr_claim how)
{
    struct watched watched;
    // Where ids may be given twice, a look whether the rows are those that were
    // read.
    size_t looks = skr_identity_is_unsure(skr_db_dialect(fixture->db)) ? 1 : 0;
    open_watched(fixture, true, how, &watched);
    if (how == SKR_CLAIM_SHARDS)
        take_all(&watched);
    // The first looks around: what there is, and by which indexes.
    claim(&watched);
    settle_done(&watched);
    // What transactions are open, what they committed late and whose leases ran
    // out is asked by time, not by the batch.
    watched.reader.at.mark.next_ask_ms = INT64_MAX;
    watched.reader.at.next_late_ms = INT64_MAX;
    watched.reader.at.next_expired_ms = INT64_MAX;
    watched.reader.at.next_full_scan_ms = INT64_MAX;
    for (int i = 0; i < BATCHES; i++) {
        size_t before = skr_faulty_runs();
        // By the begin of a transaction each is one more.
        claim(&watched);
        assert_int_equal(watched.batch.count, BATCH);
        assert_in_range(skr_faulty_runs() - before, 1, 1 + 2);
        before = skr_faulty_runs();
        settle_done(&watched);
        assert_in_range(skr_faulty_runs() - before, 1, 1 + 2 + looks);
    }
    close_watched(&watched);
}

static void
test_a_batch_costs_two_statements_to_claim_and_two_to_settle(void **state)
{
    struct fixture *fixture = *state;
    count_statements(fixture, SKR_CLAIM_NONE);
    count_statements(fixture, SKR_CLAIM_SHARDS);
}

static void
check_plans(struct fixture *fixture, bool is_ordered, enum skr_claim how)
{
    struct watched watched;
    open_watched(fixture, is_ordered, how, &watched);
    if (how == SKR_CLAIM_SHARDS)
        take_all(&watched);
    skr_faulty_watch(check_plan, &watched);
    for (int i = 0; i < BATCHES; i++) {
        claim(&watched);
        settle_done(&watched);
        if (is_ordered)
            read_heads(&watched);
        // What has become due, and everything else behind the cursor.
        watched.reader.at.next_due_ms = 1;
        watched.reader.at.next_full_scan_ms = i == 0 ? 1 : INT64_MAX;
    }
    if (is_ordered)
        list_blocked(&watched);
    close_watched(&watched);
}

static void
test_no_statement_reads_or_sorts_the_backlog(void **state)
{
    static const struct {
        bool is_ordered;
        enum skr_claim claim;
    } ways[] = {{true, SKR_CLAIM_NONE},
                {true, SKR_CLAIM_SHARDS},
                {false, SKR_CLAIM_SHARDS}};
    struct fixture *fixture = *state;
    // What was known at first was of an empty table.
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < SKR_COUNT_OF(ways); i++) {
            skr_test_run(fixture->db, "UPDATE skirnir_lease SET owner = ''");
            check_plans(fixture, ways[i].is_ordered, ways[i].claim);
        }
        skr_test_count_anew(fixture->db);
    }
}

static void
test_a_costly_plan_is_told(void **state)
{
    struct fixture *fixture = *state;
    static const char *const costly[] = {
        "SELECT id FROM messenger_outbox WHERE body = 'x'",
        "SELECT id FROM messenger_outbox WHERE queue_name = 'outbox' "
        "ORDER BY headers LIMIT 1",
    };
    skr_test_count_anew(fixture->db);
    for (size_t i = 0; i < SKR_COUNT_OF(costly); i++) {
        char *plan = skr_test_plan(skr_db_tx(fixture->db),
                                   &(struct skr_statement){.sql = costly[i]});
        if (!skr_test_plan_is_costly(plan))
            fail_msg("%s\n%s", costly[i], plan);
        free(plan);
    }
}

static int
set_up_backlog(void **state)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    struct watched watched;
    open_watched(fixture, true, SKR_CLAIM_SHARDS, &watched);
    close_watched(&watched);
    add_backlog(fixture);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_batch_costs_two_statements_to_claim_and_two_to_settle,
            set_up_backlog, tear_down),
        cmocka_unit_test_setup_teardown(
            test_no_statement_reads_or_sorts_the_backlog, set_up_backlog,
            tear_down),
        cmocka_unit_test_setup_teardown(test_a_costly_plan_is_told,
                                        set_up_backlog, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
