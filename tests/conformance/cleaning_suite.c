// SPDX-License-Identifier: MIT
// Old rows go in steps that hold their locks for a moment only, whatever table
// they are of. The clock is the test's: it goes on by what statements are said
// to take, so that no step depends on how fast a server is.

#include "conformance/databases.h"

#include "base/clock.h"
#include "base/text.h"
#include "store/cleaning.h"
#include "store/deduplication/deduplication.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/messenger.h"
#include "support/faulty_database.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 300,
    BATCH = 200,
    DAY_S = 24 * 3600,
    MOST_HELD_MS = 50,
    LEAST_STEP = 10
};

static int64_t ahead_ms;

int64_t __real_skr_clock_ms(void);
int64_t __wrap_skr_clock_ms(void);

int64_t
__wrap_skr_clock_ms(void)
{
    return __real_skr_clock_ms() + ahead_ms;
}

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
    int64_t delete_ms;  // what one statement takes
    int64_t held_ms;    // by the step that is under way
    int64_t most_held_ms;
    uint64_t last_step;  // rows
    const char *theft;  // takes rows away before the first are removed; or NULL
};

typedef enum skr_code
clean_fn(struct fixture *fixture, const struct skr_cleaning *cleaning,
         uint64_t *removed, struct skr_error *error);

static void
pass_time(struct skr_tx real, const struct skr_statement *statement, void *user)
{
    struct fixture *fixture = user;
    if (strncmp(statement->sql, "DELETE", 6) != 0)
        return;
    const char *theft = fixture->theft;
    fixture->theft = NULL;
    if (theft != NULL)
        assert_int_equal(
            skr_tx_run(real, &(struct skr_statement){.sql = theft}, NULL),
            SKR_OK);
    ahead_ms += fixture->delete_ms;
    fixture->held_ms += fixture->delete_ms;
}

static bool
note_step(void *user, uint64_t rows)
{
    struct fixture *fixture = user;
    if (fixture->held_ms > fixture->most_held_ms)
        fixture->most_held_ms = fixture->held_ms;
    fixture->held_ms = 0;
    fixture->last_step = rows;
    return true;
}

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    skr_test_database_make(&fixture->database);
    // It is there now, and may be opened by who does not make one.
    skr_db_close(skr_test_connect(&fixture->database));
    const struct skr_db_ops *ops = skr_faulty_database(fixture->database.ops);
    assert_int_equal(
        skr_db_open(ops, fixture->database.url, &fixture->db, NULL), SKR_OK);
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_faulty_watch(NULL, NULL);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

// Runs it once a row; has_id: with 16 bytes bound.
static void
insert_all(struct fixture *fixture, const char *sql_template, bool has_id)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        unsigned char id[16] = {0};
        memcpy(id, &i, sizeof(i));
        const struct skr_value value = skr_bind_blob(id, sizeof(id));
        skr_test_run_template(fixture->db, sql_template, &value,
                              has_id ? 1 : 0);
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static enum skr_code
clean_messenger(struct fixture *fixture, const struct skr_cleaning *cleaning,
                uint64_t *removed, struct skr_error *error)
{
    return skr_messenger_clean(
        &(struct skr_queue_place){.table = "messenger_outbox",
                                  .queue = "outbox"},
        cleaning, fixture->db, removed, error);
}

static void
fill_messenger(struct fixture *fixture)
{
    struct skr_store *table = NULL;
    assert_int_equal(skr_messenger_new(
                         &(struct skr_messenger_options){
                             .dialect = skr_db_dialect(fixture->db),
                             .table = "messenger_outbox",
                             .queue = "outbox",
                         },
                         &table, NULL),
                     SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    skr_store_free(table);
    insert_all(fixture,
               "INSERT INTO messenger_outbox (body, headers, queue_name, "
               "created_at, available_at, delivered_at) VALUES ('1', '2', "
               "'outbox.sent', '2020-01-01 10:00:00', '2020-01-01 10:00:00', "
               "'2020-01-01 10:00:00')",
               false);
}

static enum skr_code
clean_deduplication(struct fixture *fixture,
                    const struct skr_cleaning *cleaning, uint64_t *removed,
                    struct skr_error *error)
{
    struct skr_deduplication *table = NULL;
    enum skr_code code =
        skr_deduplication_new(skr_db_dialect(fixture->db), NULL, &table, error);
    if (code == SKR_OK)
        code = skr_deduplication_clean(table, cleaning, fixture->db, removed,
                                       error);
    skr_deduplication_free(table);
    return code;
}

static void
fill_deduplication(struct fixture *fixture)
{
    struct skr_deduplication *table = NULL;
    assert_int_equal(
        skr_deduplication_new(skr_db_dialect(fixture->db), NULL, &table, NULL),
        SKR_OK);
    assert_int_equal(skr_deduplication_create(table, fixture->db, NULL),
                     SKR_OK);
    skr_deduplication_free(table);
    insert_all(fixture,
               "INSERT INTO message_broker_deduplication (message_id, "
               "message_name, processed_at) VALUES (?, 'a.b', "
               "'2020-01-01 10:00:00')",
               true);
}

static struct skr_store *
make_kafka_outbox(const struct fixture *fixture)
{
    struct skr_store *table = NULL;
    const struct skr_kafka_outbox_options options = {
        .dialect = skr_db_dialect(fixture->db), .marks = true};
    assert_int_equal(skr_kafka_outbox_new(&options, &table, NULL), SKR_OK);
    return table;
}

static enum skr_code
clean_kafka_outbox(struct fixture *fixture, const struct skr_cleaning *cleaning,
                   uint64_t *removed, struct skr_error *error)
{
    struct skr_store *table = make_kafka_outbox(fixture);
    enum skr_code code =
        skr_kafka_outbox_clean(table, cleaning, fixture->db, removed, error);
    skr_store_free(table);
    return code;
}

static void
fill_kafka_outbox(struct fixture *fixture)
{
    struct skr_store *table = make_kafka_outbox(fixture);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    skr_store_free(table);
    insert_all(fixture,
               "INSERT INTO kafka_outbox (topic, payload_json, "
               "push_completed_at) "
               "VALUES ('a', '1', '2020-01-01 10:00:00')",
               false);
}

static const struct {
    void (*fill)(struct fixture *fixture);
    clean_fn *clean;
    const char *name;
    const char *theft;  // of ten rows; NULL: ids are no numbers
    const char *mark;   // BAD_ROWS of them are bad, in their middle
} tables[] = {
    {fill_messenger, clean_messenger, "messenger_outbox",
     "DELETE FROM messenger_outbox WHERE id <= 10",
     "UPDATE messenger_outbox SET body = 'bad' WHERE id > 10 AND id <= 260"},
    {fill_deduplication, clean_deduplication, "message_broker_deduplication",
     NULL,
     "UPDATE message_broker_deduplication SET message_name = 'bad' WHERE "
     "message_id IN (SELECT message_id FROM (SELECT message_id FROM "
     "message_broker_deduplication ORDER BY message_id LIMIT 250) AS firsts)"},
    {fill_kafka_outbox, clean_kafka_outbox, "kafka_outbox",
     "DELETE FROM kafka_outbox WHERE id <= 10",
     "UPDATE kafka_outbox SET topic = 'bad' WHERE id > 10 AND id <= 260"},
};

static uint64_t
clean(struct fixture *fixture, clean_fn *how, int64_t delete_ms)
{
    struct skr_error error = {0};
    uint64_t removed = 0;
    const struct skr_cleaning cleaning = {
        .age_s = DAY_S,
        .batch_size = BATCH,
        .each_step = note_step,
        .user = fixture,
    };
    fixture->delete_ms = delete_ms;
    fixture->most_held_ms = 0;
    skr_faulty_watch(pass_time, fixture);
    if (how(fixture, &cleaning, &removed, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_faulty_watch(NULL, NULL);
    return removed;
}

static void
test_no_step_holds_its_locks_for_long(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++) {
        tables[i].fill(fixture);
        assert_int_equal(clean(fixture, tables[i].clean, 12), ROWS);
        assert_in_range(fixture->most_held_ms, 1, MOST_HELD_MS);
    }
}

static void
test_steps_shrink_where_one_statement_takes_long(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++) {
        tables[i].fill(fixture);
        assert_int_equal(clean(fixture, tables[i].clean, 60), ROWS);
        // One statement, and the fewest rows.
        assert_int_equal(fixture->most_held_ms, 60);
        assert_in_range(fixture->last_step, 1, LEAST_STEP);
    }
}

static void
test_what_others_have_removed_is_not_counted(void **state)
{
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++) {
        if (tables[i].theft == NULL)
            continue;
        tables[i].fill(fixture);
        fixture->theft = tables[i].theft;
        assert_int_equal(clean(fixture, tables[i].clean, 0), ROWS - 10);
    }
}

// More than are found at once, all of one time.
static void
test_rows_that_cannot_be_removed_keep_no_other(void **state)
{
    enum { BAD_ROWS = 250 };
    static const char *const columns[] = {"body", "message_name", "topic"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++) {
        char condition[60], sql[120], wanted[100];
        struct skr_error error = {0};
        const struct skr_cleaning cleaning = {.age_s = DAY_S,
                                              .batch_size = BATCH};
        uint64_t removed = 0;
        tables[i].fill(fixture);
        skr_test_run(fixture->db, tables[i].mark);
        snprintf(condition, sizeof(condition), "OLD.%s = 'bad'", columns[i]);
        skr_test_refuse(fixture->db, tables[i].name, "DELETE", condition);
        assert_int_equal(tables[i].clean(fixture, &cleaning, &removed, &error),
                         SKR_REFUSED);
        assert_int_equal(removed, ROWS - BAD_ROWS);
        snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM %s", tables[i].name);
        assert_int_equal(skr_test_number(fixture->db, sql), BAD_ROWS);
        snprintf(wanted, sizeof(wanted),
                 "%s that cannot be removed, and stay: %d;", tables[i].name,
                 BAD_ROWS);
        assert_non_null(strstr(error.text, wanted));
        assert_non_null(strstr(error.text, "refused by a trigger"));
        skr_test_allow(fixture->db, "DELETE");
        assert_int_equal(clean(fixture, tables[i].clean, 0), BAD_ROWS);
    }
}

static void
test_a_table_that_nothing_is_removed_from_blames_no_row(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    const struct skr_cleaning cleaning = {.age_s = DAY_S, .batch_size = BATCH};
    uint64_t removed = 0;
    fill_messenger(fixture);
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_RUN,
        .sql = "DELETE",
        .count = 1000,
        .code = SKR_REFUSED,
        .remedy = SKR_GIVE_UP,
    });
    assert_int_equal(clean_messenger(fixture, &cleaning, &removed, &error),
                     SKR_REFUSED);
    assert_null(strstr(error.text, "and stay"));
    assert_in_range(skr_faulty_failures(), 1, 20);
    skr_faulty_set(NULL);
    assert_int_equal(removed, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_step_holds_its_locks_for_long,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_steps_shrink_where_one_statement_takes_long, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_what_others_have_removed_is_not_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_rows_that_cannot_be_removed_keep_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_table_that_nothing_is_removed_from_blames_no_row, set_up,
            tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
