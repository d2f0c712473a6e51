// SPDX-License-Identifier: MIT
// The table of kafka-outbox-relay: what is read from it, in which order, and
// what is written behind it.

#include "base/text.h"
#include "conformance/databases.h"
#include "db/sql.h"
#include "store/cleaning.h"
#include "store/identity.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN                                                             \
    "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS NULL " \
    "AND errored = 0"

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
    struct skr_store *table;
    struct skr_reader *reader;
    struct skr_batch batch;
};

static struct skr_store *
make_table(struct fixture *fixture, bool marks, bool takes_over)
{
    struct skr_store *table = NULL;
    assert_int_equal(skr_kafka_outbox_new(
                         &(struct skr_kafka_outbox_options){
                             .dialect = skr_db_dialect(fixture->db),
                             .marks = marks,
                             .takes_over = takes_over,
                         },
                         &table, NULL),
                     SKR_OK);
    return table;
}

static void
start(struct fixture *fixture)
{
    struct skr_error error = {0};
    free(fixture->reader);
    fixture->reader = NULL;
    if (fixture->table->source->open(fixture->table, fixture->db, true,
                                     &fixture->reader, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static int
set_up_with(void **state, bool marks)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct skr_error error = {0};
    assert_non_null(fixture);
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    fixture->table = make_table(fixture, marks, false);
    if (skr_store_create(fixture->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(skr_batch_init(&fixture->batch, 100, NULL), SKR_OK);
    start(fixture);
    *state = fixture;
    return 0;
}

static int
set_up(void **state)
{
    return set_up_with(state, false);
}

static int
set_up_marking(void **state)
{
    return set_up_with(state, true);
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_batch_fini(&fixture->batch);
    free(fixture->reader);
    skr_store_free(fixture->table);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static void
insert(struct fixture *fixture, const char *key, const char *payload)
{
    const struct skr_value values[] = {skr_bind_text(payload),
                                       skr_bind_text(key)};
    skr_test_run_template(fixture->db,
                          "INSERT INTO kafka_outbox (topic, payload_json, "
                          "{key}) VALUES ('orders', ?, ?)",
                          values, SKR_COUNT_OF(values));
}

// As the other relay does, so many seconds ago.
static void
claim(struct fixture *fixture, int64_t row, int64_t age_s)
{
    const struct skr_value values[] = {skr_bind_integer(age_s),
                                       skr_bind_integer(row)};
    skr_test_run_template(fixture->db,
                          "UPDATE kafka_outbox SET batch_id = "
                          "'11111111-1111-1111-1111-111111111111', "
                          "push_started_at = {now_minus} WHERE id = ?",
                          values, SKR_COUNT_OF(values));
}

static size_t
read_rows(struct fixture *fixture)
{
    const struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    if (fixture->table->source->read(fixture->reader, &read, &fixture->batch,
                                     &error) != SKR_OK)
        fail_msg("%s", error.text);
    return fixture->batch.count;
}

static void
settle(struct fixture *fixture, enum skr_state state, const char *reason)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < fixture->batch.count; i++) {
        struct skr_batch_item *item = &fixture->batch.items[i];
        item->state = state;
        item->delay_ms = 60000;
        snprintf(item->reason.text, sizeof(item->reason.text), "%s", reason);
    }
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// The payloads of the batch in one text.
static const char *
payloads(const struct fixture *fixture)
{
    static char text[1000];
    text[0] = '\0';
    for (size_t i = 0; i < fixture->batch.count; i++)
        strcat(text, fixture->batch.items[i].envelope.message.body);
    return text;
}

static void
test_rows_come_in_the_order_of_ids_with_their_place(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "a", "1");
    insert(fixture, "", "2");
    skr_test_run(fixture->db,
                 "UPDATE kafka_outbox SET partition_key = 'p' WHERE id = 2");
    insert(fixture, "", "3");
    assert_int_equal(read_rows(fixture), 3);
    assert_string_equal(payloads(fixture), "123");
    const struct skr_batch_item *items = fixture->batch.items;
    assert_string_equal(items[0].route.topic, "orders");
    assert_string_equal(items[0].route.key, "a");
    assert_string_equal(items[0].route.partition_key, "a");
    assert_null(items[1].route.key);
    assert_string_equal(items[1].route.partition_key, "p");
    assert_null(items[2].route.partition_key);
}

static bool
takes(struct fixture *fixture, const char *sql)
{
    return skr_tx_run(skr_db_tx(fixture->db),
                      &(struct skr_statement){.sql = sql}, NULL) == SKR_OK;
}

static void
test_our_table_wants_a_payload_and_takes_no_headers(void **state)
{
    struct fixture *fixture = *state;
    assert_false(takes(fixture, "INSERT INTO kafka_outbox (topic, "
                                "payload_json) VALUES ('orders', NULL)"));
    assert_false(
        takes(fixture, "INSERT INTO kafka_outbox (topic) VALUES ('orders')"));
    assert_true(takes(fixture, "INSERT INTO kafka_outbox (topic, "
                               "payload_json) VALUES ('orders', '1')"));
    assert_true(takes(fixture, "INSERT INTO kafka_outbox (topic, payload_json, "
                               "payload_headers) VALUES ('orders', '2', '')"));
    skr_test_assert_text(fixture->db,
                         "SELECT payload_headers FROM kafka_outbox "
                         "ORDER BY id",
                         "");
    assert_int_equal(read_rows(fixture), 2);
    assert_string_equal(payloads(fixture), "12");
    for (size_t i = 0; i < 2; i++) {
        assert_int_not_equal(fixture->batch.items[i].state, SKR_DEAD);
        assert_int_equal(fixture->batch.items[i].envelope.message.header_count,
                         0);
    }
}

// As others may have made it.
static void
allow_no_payload(struct fixture *fixture)
{
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox");
    skr_test_run_template(
        fixture->db,
        "CREATE TABLE kafka_outbox (id {row_id}, batch_id CHAR(36) NULL, "
        "push_started_at {timestamp} NULL, push_completed_at {timestamp} NULL, "
        "topic VARCHAR(255) NOT NULL, payload_json {json} NULL, "
        "payload_headers {json} NULL, push_attempts SMALLINT NOT NULL DEFAULT "
        "0, errored SMALLINT NOT NULL DEFAULT 0, error_reason VARCHAR(255) NOT "
        "NULL DEFAULT '', created_at {timestamp} NULL DEFAULT "
        "CURRENT_TIMESTAMP, partition_key VARCHAR(255) NOT NULL DEFAULT '', "
        "{key} VARCHAR(255) NOT NULL DEFAULT '')",
        NULL, 0);
    skr_test_run(fixture->db, "INSERT INTO kafka_outbox (topic, payload_json) "
                              "VALUES ('orders', NULL)");
}

static void
test_a_row_without_payload_has_failed_unless_tombstones_are_wanted(void **state)
{
    struct fixture *fixture = *state;
    allow_no_payload(fixture);
    start(fixture);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].state, SKR_DEAD);
    assert_non_null(
        strstr(fixture->batch.items[0].reason.text, "--publish-tombstones"));
    skr_store_free(fixture->table);
    assert_int_equal(skr_kafka_outbox_new(
                         &(struct skr_kafka_outbox_options){
                             .dialect = skr_db_dialect(fixture->db),
                             .publishes_tombstones = true,
                         },
                         &fixture->table, NULL),
                     SKR_OK);
    start(fixture);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_not_equal(fixture->batch.items[0].state, SKR_DEAD);
    assert_null(fixture->batch.items[0].envelope.message.body);
}

static void
test_done_rows_are_deleted(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 90; i++)
        insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), 90);
    settle(fixture, SKR_DONE, "");
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox"), 0);
}

static void
test_done_rows_are_marked_in_one_go(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 90; i++)
        insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), 90);
    settle(fixture, SKR_DONE, "");
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM kafka_outbox WHERE batch_id IS "
                        "NOT NULL AND push_started_at IS NOT NULL AND "
                        "push_completed_at IS NOT NULL AND push_attempts = 1 "
                        "AND errored = 0 AND error_reason = ''"),
        90);
    start(fixture);
    assert_int_equal(read_rows(fixture), 0);
}

// More rows than any list of ids has, in one batch.
static void
test_a_batch_may_be_longer_than_a_list(void **state)
{
    struct fixture *fixture = *state;
    enum { MANY = 1200 };
    const struct skr_read read = {.max_rows = MANY, .max_bytes = 1 << 20};
    struct skr_error error = {0};
    skr_batch_fini(&fixture->batch);
    assert_int_equal(skr_batch_init(&fixture->batch, MANY, NULL), SKR_OK);
    skr_test_run(fixture->db, "BEGIN");
    for (int i = 0; i < MANY; i++)
        insert(fixture, "a", "1");
    skr_test_run(fixture->db, "COMMIT");
    if (fixture->table->source->read(fixture->reader, &read, &fixture->batch,
                                     &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(fixture->batch.count, MANY);
    settle(fixture, SKR_DONE, "");
    assert_int_equal(skr_test_number(fixture->db, OPEN), 0);
}

static void
test_k8_k9_an_empty_table_gives_nothing_and_a_missing_one_an_error(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_read read = {.max_rows = 100, .max_bytes = 1 << 20};
    struct skr_error error = {0};
    assert_int_equal(read_rows(fixture), 0);
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox");
    assert_int_equal(fixture->table->source->read(fixture->reader, &read,
                                                  &fixture->batch, &error),
                     SKR_MISSING);
    assert_int_equal(fixture->batch.count, 0);
}

// One is done, one is tried again, one has failed for good.
static void
decide_three(struct fixture *fixture)
{
    static const enum skr_state states[] = {SKR_DONE, SKR_RETRY_LATER,
                                            SKR_DEAD};
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++)
        insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), SKR_COUNT_OF(states));
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++)
        fixture->batch.items[i].state = states[i];
}

static void
test_k10_all_results_of_a_batch_are_recorded_together(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    decide_three(fixture);
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM kafka_outbox WHERE push_attempts "
                        "= 1 AND ((id = 1 AND push_completed_at IS NOT NULL) "
                        "OR (id = 2 AND push_completed_at IS NULL AND errored "
                        "= 0) OR (id = 3 AND errored = 1))"),
        3);
}

// As far as a TINYINT goes, which the other relay's table has.
static void
test_attempts_are_counted_no_further_than_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    decide_three(fixture);
    skr_test_run(fixture->db, "UPDATE kafka_outbox SET push_attempts = 127");
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(skr_test_number(fixture->db, OPEN), 1);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM kafka_outbox WHERE "
                                     "push_attempts = 127"),
                     3);
}

static void
test_k11_k12_k13_what_cannot_be_recorded_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    decide_three(fixture);
    // The first result is written without it.
    skr_test_run(fixture->db, "ALTER TABLE kafka_outbox RENAME COLUMN "
                              "push_started_at TO pushed");
    assert_int_not_equal(fixture->table->settle->write(fixture->table,
                                                       fixture->db,
                                                       &fixture->batch, &error),
                         SKR_OK);
    assert_int_equal(skr_test_number(fixture->db, OPEN), 3);
    skr_test_run(fixture->db, "ALTER TABLE kafka_outbox RENAME COLUMN pushed "
                              "TO push_started_at");
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(skr_test_number(fixture->db, OPEN), 1);
}

static void
test_a_row_that_failed_for_good_says_why_as_far_as_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    char reason[310];
    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), 1);
    settle(fixture, SKR_DEAD, reason);
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM kafka_outbox WHERE errored = 1 "
                        "AND push_attempts = 1 AND push_completed_at IS NULL "
                        "AND LENGTH(error_reason) = 255"),
        1);
    start(fixture);
    assert_int_equal(read_rows(fixture), 0);
    uint64_t changed = 0;
    assert_int_equal(
        skr_kafka_outbox_change(fixture->table, fixture->db,
                                &(struct skr_errored_rows){.id = 0}, false,
                                &changed, NULL),
        SKR_OK);
    assert_int_equal(changed, 1);
    start(fixture);
    assert_int_equal(read_rows(fixture), 1);
}

static void
test_a_row_that_is_tried_again_waits_as_a_claim_and_holds_its_key(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), 1);
    settle(fixture, SKR_RETRY_LATER, "not now");
    insert(fixture, "a", "2");
    insert(fixture, "b", "3");
    start(fixture);
    assert_int_equal(read_rows(fixture), 1);
    assert_string_equal(payloads(fixture), "3");
    skr_test_assert_text(fixture->db,
                         "SELECT error_reason FROM kafka_outbox WHERE id = 1",
                         "not now");
}

// As the other relay does, which takes claims over that are so old: how many.
static int64_t
take_stale(struct fixture *fixture, int64_t age_s)
{
    const struct skr_value value = skr_bind_integer(age_s);
    skr_test_run_template(fixture->db,
                          "UPDATE kafka_outbox SET batch_id = "
                          "'33333333-3333-3333-3333-333333333333' WHERE "
                          "batch_id IS NOT NULL AND push_completed_at IS NULL "
                          "AND push_started_at < {now_minus} AND errored = 0",
                          &value, 1);
    return skr_test_number(fixture->db,
                           "SELECT COUNT(*) FROM kafka_outbox WHERE batch_id = "
                           "'33333333-3333-3333-3333-333333333333'");
}

static void
test_the_other_relay_takes_a_row_that_waits_when_its_time_has_come(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), 1);
    settle(fixture, SKR_RETRY_LATER, "not now");
    // Ten minutes by its claim are a minute, or a little less, from now.
    assert_int_equal(take_stale(fixture, 600), 0);
    assert_int_equal(take_stale(fixture, 500), 1);
}

static void
test_a_claim_of_another_holds_newer_rows_of_its_key(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 3; i++) {
        insert(fixture, "a", i == 0 ? "1" : i == 1 ? "2" : "3");
        insert(fixture, "b", "0");
    }
    claim(fixture, 3, 10);   // of a, the second
    claim(fixture, 2, 601);  // of b, and its time is up
    start(fixture);
    assert_int_equal(read_rows(fixture), 4);
    assert_string_equal(payloads(fixture), "1000");
    settle(fixture, SKR_DONE, "");
    assert_int_equal(read_rows(fixture), 0);
    // What waited for it comes before what is new.
    insert(fixture, "a", "4");
    skr_test_run(fixture->db, "UPDATE kafka_outbox SET batch_id = NULL, "
                              "push_started_at = NULL WHERE id = 3");
    assert_int_equal(read_rows(fixture), 3);
    assert_string_equal(payloads(fixture), "234");
}

static void
test_claims_are_void_for_who_takes_over(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "a", "1");
    insert(fixture, "a", "2");
    claim(fixture, 1, 1);
    skr_store_free(fixture->table);
    fixture->table = make_table(fixture, false, true);
    start(fixture);
    assert_int_equal(read_rows(fixture), 2);
    assert_string_equal(payloads(fixture), "12");
    // But not its own.
    settle(fixture, SKR_RETRY_LATER, "not now");
    start(fixture);
    assert_int_equal(read_rows(fixture), 0);
}

static void
test_what_commits_late_is_not_passed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client late = skr_test_client_open(&fixture->database);
    skr_test_client_begin(&late);
    skr_test_client_run(&late, "INSERT INTO kafka_outbox (topic, payload_json, "
                               "partition_key) VALUES ('orders', '1', 'a')");
    // Where there is one writer at a time nothing can commit before it.
    if (skr_test_writes_side_by_side(fixture->db)) {
        insert(fixture, "b", "0");
        assert_int_equal(read_rows(fixture), 1);
        settle(fixture, SKR_DONE, "");
    } else {
        assert_int_equal(read_rows(fixture), 0);
    }
    skr_test_client_commit(&late);
    insert(fixture, "a", "2");
    // Both are there: the older one comes first.
    assert_int_equal(read_rows(fixture), 2);
    assert_string_equal(payloads(fixture), "12");
    skr_test_client_close(&late);
}

// Nor for a row behind them: as ids without a gap are reached as a range.
static void
settle_beside_an_application(struct fixture *fixture)
{
    enum { MANY = 40 };
    struct skr_test_client application =
        skr_test_client_open(&fixture->database);
    for (int i = 0; i < MANY; i++)
        insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), MANY);
    bool is_beside = skr_test_writes_side_by_side(fixture->db);
    if (is_beside) {
        skr_test_client_begin(&application);
        skr_test_client_run(&application,
                            "INSERT INTO kafka_outbox (topic, payload_json) "
                            "VALUES ('orders', '2')");
    }
    struct skr_db *impatient = skr_test_connect_impatient(&fixture->database);
    struct skr_db *patient = fixture->db;
    fixture->db = impatient;
    settle(fixture, SKR_DONE, "");
    fixture->db = patient;
    skr_db_close(impatient);
    if (is_beside)
        skr_test_client_commit(&application);
    skr_test_client_close(&application);
    assert_int_equal(skr_test_number(fixture->db, OPEN), is_beside ? 1 : 0);
}

static void
test_deleting_waits_for_no_application(void **state)
{
    settle_beside_an_application(*state);
}

static void
test_marking_waits_for_no_application(void **state)
{
    settle_beside_an_application(*state);
}

// A row that stays among many that go is not touched.
static void
test_a_gap_among_many_rows_stays(void **state)
{
    struct fixture *fixture = *state;
    enum { MANY = 60, LEFT = 30 };
    struct skr_error error = {0};
    for (int i = 0; i < MANY; i++)
        insert(fixture, "a", "1");
    assert_int_equal(read_rows(fixture), MANY);
    for (int i = 0; i < MANY; i++)
        fixture->batch.items[i].state = i == LEFT ? SKR_READ : SKR_DONE;
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT SUM(id) FROM kafka_outbox"),
        LEFT + 1);
}

static void
test_who_made_the_table_is_known_for_good(void **state)
{
    struct fixture *fixture = *state;
    bool is_there = false, is_ours = false;
    assert_int_equal(skr_kafka_outbox_find_maker(fixture->table, fixture->db,
                                                 &is_there, &is_ours, NULL),
                     SKR_OK);
    assert_true(is_there && is_ours);
    // The other relay knows its bookkeeping by these names.
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT version FROM kafka_outbox_schema_migrations"),
        20220408111504);
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox_schema_migrations");
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    assert_int_equal(skr_kafka_outbox_find_maker(fixture->table, fixture->db,
                                                 &is_there, &is_ours, NULL),
                     SKR_OK);
    assert_true(is_there && !is_ours);
}

static enum skr_code
run_and_look(const char *sql, void *user, struct skr_error *error)
{
    const struct fixture *fixture = user;
    bool is_there = false, is_ours = false;
    skr_test_run(fixture->db, sql);
    enum skr_code code = skr_kafka_outbox_find_maker(
        fixture->table, fixture->db, &is_there, &is_ours, error);
    assert_false(is_there && !is_ours);
    return code;
}

// Where each statement of it is seen by others at once.
static void
test_a_table_that_is_being_made_is_taken_for_nobody_elses(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox");
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox_schema_migrations");
    assert_int_equal(fixture->table->admin->setup(fixture->table, fixture->db,
                                                  run_and_look, fixture, NULL),
                     SKR_OK);
}

static void
test_counts_tell_the_truth_and_cleaning_keeps_what_is_fresh(void **state)
{
    struct fixture *fixture = *state;
    struct skr_kafka_outbox_counts counts;
    uint64_t removed = 0;
    for (int i = 0; i < 4; i++)
        insert(fixture, "a", "1");
    skr_test_run(fixture->db,
                 "UPDATE kafka_outbox SET errored = 1 WHERE id = 4");
    const struct skr_value ages[] = {skr_bind_integer(7200),
                                     skr_bind_integer(60)};
    skr_test_run_template(fixture->db,
                          "UPDATE kafka_outbox SET push_completed_at = "
                          "{now_minus} WHERE id = 1",
                          &ages[0], 1);
    skr_test_run_template(fixture->db,
                          "UPDATE kafka_outbox SET push_completed_at = "
                          "{now_minus} WHERE id = 2",
                          &ages[1], 1);
    assert_int_equal(
        skr_kafka_outbox_count(fixture->table, fixture->db, &counts, NULL),
        SKR_OK);
    assert_int_equal(counts.queued, 2);
    assert_int_equal(counts.errored, 1);
    assert_int_equal(counts.total, 4);
    struct skr_cleaning cleaning = {
        .age_s = 3600, .batch_size = 1000, .dry_run = true};
    for (int i = 0; i < 2; i++) {
        removed = 0;
        assert_int_equal(skr_kafka_outbox_clean(fixture->table, &cleaning,
                                                fixture->db, &removed, NULL),
                         SKR_OK);
        assert_int_equal(removed, 1);
        cleaning.dry_run = false;
    }
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox"), 3);
}

// The table was emptied, and gives its ids once more.
static void
check_new_rows_stay(struct fixture *fixture, bool is_late)
{
    static const enum skr_state states[] = {SKR_DONE, SKR_RETRY_LATER,
                                            SKR_DEAD};
    const struct skr_value age = skr_bind_integer(60);
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        start(fixture);
        insert(fixture, "k", "{}");
        insert(fixture, "k", "{}");
        skr_test_run_template(
            fixture->db, "UPDATE kafka_outbox SET created_at = {now_minus}",
            &age, 1);
        assert_int_equal(read_rows(fixture), 2);
        fixture->batch.is_late = is_late;
        skr_test_run_template(
            fixture->db, "UPDATE kafka_outbox SET created_at = {now}", NULL, 0);
        settle(fixture, states[i], "");
        assert_int_equal(
            skr_test_number(fixture->db, OPEN " AND batch_id IS NULL"), 2);
        assert_true(fixture->batch.items[1].is_replaced);
        skr_test_run(fixture->db, "DELETE FROM kafka_outbox");
    }
}

static void
test_what_is_settled_late_does_not_hit_a_new_row_with_its_id(void **state)
{
    check_new_rows_stay(*state, true);
}

static void
test_where_ids_may_be_used_anew_nothing_hits_a_new_row(void **state)
{
    struct fixture *fixture = *state;
    if (skr_identity_is_unsure(skr_db_dialect(fixture->db)))
        check_new_rows_stay(fixture, false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_rows_come_in_the_order_of_ids_with_their_place, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_our_table_wants_a_payload_and_takes_no_headers, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_row_without_payload_has_failed_unless_tombstones_are_wanted,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_done_rows_are_deleted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_done_rows_are_marked_in_one_go,
                                        set_up_marking, tear_down),
        cmocka_unit_test_setup_teardown(test_a_batch_may_be_longer_than_a_list,
                                        set_up_marking, tear_down),
        cmocka_unit_test_setup_teardown(
            test_k8_k9_an_empty_table_gives_nothing_and_a_missing_one_an_error,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_k10_all_results_of_a_batch_are_recorded_together,
            set_up_marking, tear_down),
        cmocka_unit_test_setup_teardown(
            test_attempts_are_counted_no_further_than_there_is_room,
            set_up_marking, tear_down),
        cmocka_unit_test_setup_teardown(
            test_k11_k12_k13_what_cannot_be_recorded_changes_nothing, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_row_that_failed_for_good_says_why_as_far_as_there_is_room,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_row_that_is_tried_again_waits_as_a_claim_and_holds_its_key,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_other_relay_takes_a_row_that_waits_when_its_time_has_come,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_claim_of_another_holds_newer_rows_of_its_key, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_claims_are_void_for_who_takes_over,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_commits_late_is_not_passed,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deleting_waits_for_no_application,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marking_waits_for_no_application,
                                        set_up_marking, tear_down),
        cmocka_unit_test_setup_teardown(test_a_gap_among_many_rows_stays,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_who_made_the_table_is_known_for_good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_table_that_is_being_made_is_taken_for_nobody_elses, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_counts_tell_the_truth_and_cleaning_keeps_what_is_fresh, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_what_is_settled_late_does_not_hit_a_new_row_with_its_id,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_where_ids_may_be_used_anew_nothing_hits_a_new_row,
            set_up_marking, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
