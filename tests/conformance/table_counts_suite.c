// SPDX-License-Identifier: MIT
// What people ask of a table costs no more when the table grows: beyond a bound
// nothing is counted. Shown by what the database says that it has read.

#include "table_world.h"

#include "store/messenger/failed_rows.h"
#include "store/messenger/inspect.h"

enum {
    DAYS = 16,
    DOUBLINGS = 12,
    ENOUGH = 40000,  // with what doubling made, beyond the bound
    MORE = 20000,
    BLOCKED_LISTED = 2,
    FAILED = 5,
    PAGE = 500,
};

typedef void ask_fn(struct fixture *fixture);

static void
count_queue(struct fixture *fixture)
{
    struct skr_error error = {0};
    struct skr_queue_counts counts;
    const struct skr_queue_place place = {.table = "messenger_outbox",
                                          .queue = "outbox",
                                          .redeliver_timeout_s = 60};
    if (skr_queue_count(fixture->db, &place, &counts, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_true(counts.depth_is_estimate);
}

static void
count_partitions(struct fixture *fixture)
{
    struct skr_error error = {0};
    struct skr_partitions partitions;
    if (skr_messenger_count_partitions(fixture->table, fixture->db, &partitions,
                                       &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static void
list_blocked(struct fixture *fixture)
{
    struct skr_error error = {0};
    if (skr_messenger_each_blocked(
            fixture->table, fixture->db,
            &(struct skr_blocked_page){.max = BLOCKED_LISTED, .measures = true},
            ignore_head, NULL, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static enum skr_code
count_failed(const struct skr_failed_row *row, void *user,
             struct skr_error *error)
{
    (void)row;
    (void)error;
    ++*(size_t *)user;
    return SKR_OK;
}

// Of a table that has the rows of a large queue too.
static void
list_failed(struct fixture *fixture)
{
    struct skr_failed_rows *rows = NULL;
    struct skr_error error = {0};
    size_t count = 0;
    struct skr_failed_page page = {
        .newest_first = true, .after = INT64_MAX, .max = PAGE};
    if (skr_failed_rows_new(
            &(struct skr_failed_rows_options){.dialect =
                                                  skr_db_dialect(fixture->db),
                                              .table = "messenger_outbox",
                                              .queue = "failed"},
            &rows, &error) != SKR_OK ||
        skr_failed_rows_list(rows, skr_db_tx(fixture->db), &page, count_failed,
                             &count, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(count, FAILED);
    skr_failed_rows_free(rows);
}

static const struct {
    const char *name;
    ask_fn *ask;
} asks[] = {
    {"counts of a queue", count_queue},
    {"counts of partitions", count_partitions},
    {"blocked heads", list_blocked},
    {"failed messages", list_failed},
};

#define INSERT                                                  \
    "INSERT INTO messenger_outbox (body, headers, queue_name, " \
    "partition_key, created_at, available_at, delivered_at) "
#define COPY                                                    \
    INSERT "SELECT body, headers, queue_name, partition_key, "  \
           "created_at, available_at, delivered_at "            \
           "FROM messenger_outbox WHERE queue_name = 'outbox' " \
           "AND partition_key = 'a'"

static void
insert_failed(struct fixture *fixture, int count)
{
    for (int i = 0; i < count; i++)
        skr_test_run(fixture->db,
                     INSERT "VALUES ('1', '2', 'failed', '', '2020-01-01 "
                            "10:00:00', '2020-01-01 10:00:00', NULL)");
}

// times: available and delivered; # is a day.
static void
insert_days(struct fixture *fixture, const char *times)
{
    char sql[400];
    for (int day = 1; day <= DAYS; day++) {
        size_t size = (size_t)snprintf(
            sql, sizeof(sql),
            INSERT "VALUES ('1', '2', 'outbox', 'a', '2020-01-01 10:00:00', ");
        for (const char *at = times; *at != '\0'; at++)
            size += (size_t)snprintf(sql + size, sizeof(sql) - size,
                                     *at == '#' ? "%02d" : "%c",
                                     *at == '#' ? day : *at);
        skr_test_run(fixture->db, sql);
    }
}

static void
add_copies(struct fixture *fixture, int count)
{
    char sql[400];
    snprintf(sql, sizeof(sql), COPY " LIMIT %d", count);
    skr_test_run(fixture->db, sql);
}

static void
measure(struct fixture *fixture, int64_t reads[SKR_COUNT_OF(asks)])
{
    for (size_t i = 0; i < SKR_COUNT_OF(asks); i++) {
        int64_t before = skr_test_reads(fixture->db);
        asks[i].ask(fixture);
        reads[i] = skr_test_reads(fixture->db) - before;
    }
}

static void
insert_oldest(struct fixture *fixture)
{
    skr_test_run(fixture->db,
                 INSERT "VALUES ('1', '2', 'outbox', 'z', '2020-01-01 "
                        "10:00:00', '2020-01-01 10:00:00', NULL)");
}

// Where keys are read in their order its key comes last, and where rows are
// read as they lie it does, as it has been written once more.
static void
check_oldest(struct fixture *fixture)
{
    struct skr_partitions partitions;
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET body = '2' "
                              "WHERE partition_key = 'z'");
    skr_test_drop_index(fixture->db, "messenger_outbox", "idx_queue_name");
    skr_test_count_anew(fixture->db);
    assert_int_equal(skr_messenger_count_partitions(fixture->table, fixture->db,
                                                    &partitions, NULL),
                     SKR_OK);
    assert_true(partitions.is_estimate);
    assert_string_equal(partitions.oldest, "z");
    assert_int_equal(partitions.oldest_row,
                     skr_test_number(fixture->db,
                                     "SELECT id FROM messenger_outbox "
                                     "WHERE partition_key = 'z'"));
}

static void
check_growth(struct fixture *fixture, const char *times)
{
    int64_t reads[SKR_COUNT_OF(asks)], later[SKR_COUNT_OF(asks)];
    // Some come before the queue and some after it.
    insert_failed(fixture, FAILED - 2);
    insert_oldest(fixture);
    insert_days(fixture, times);
    for (int i = 0; i < DOUBLINGS; i++)
        skr_test_run(fixture->db, COPY);
    add_copies(fixture, ENOUGH);
    insert_failed(fixture, 2);
    skr_test_count_anew(fixture->db);
    measure(fixture, reads);
    add_copies(fixture, MORE);
    measure(fixture, later);
    for (size_t i = 0; i < SKR_COUNT_OF(asks); i++)
        if (later[i] > reads[i] + reads[i] / 50 + 200)
            fail_msg("%s, %s: %lld reads, and %lld with more rows",
                     asks[i].name, times, (long long)reads[i],
                     (long long)later[i]);
}

static void
test_counting_costs_no_more_when_more_rows_wait(void **state)
{
    check_growth(*state, "'9999-12-31 23:59:59', NULL)");
    check_oldest(*state);
}

static void
test_counting_costs_no_more_when_more_rows_are_done(void **state)
{
    check_growth(*state, "'2020-01-# 10:00:00', '9999-12-31 23:59:59')");
}

// As newer versions of Symfony make it.
static void
test_counting_costs_no_more_with_another_index(void **state)
{
    struct fixture *fixture = *state;
    skr_test_drop_index(fixture->db, "messenger_outbox", "idx_available_at");
    skr_test_drop_index(fixture->db, "messenger_outbox", "idx_delivered_at");
    skr_test_run(fixture->db, "CREATE INDEX idx_new ON messenger_outbox "
                              "(queue_name, available_at, delivered_at, id)");
    check_growth(fixture, "'2020-01-# 10:00:00', '2020-01-# 10:00:00')");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_counting_costs_no_more_when_more_rows_wait, set_up_ordered,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_counting_costs_no_more_when_more_rows_are_done, set_up_ordered,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_counting_costs_no_more_with_another_index, set_up_ordered,
            tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
