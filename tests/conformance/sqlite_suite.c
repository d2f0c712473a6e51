// SPDX-License-Identifier: MIT
// What SQLite has to show beyond the contract of a driver: tables whose ids are
// used again, and its result codes.

#include "base/text.h"
#include "conformance/databases.h"
#include "db/sqlite/connection.h"
#include "store/cleaning.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/failed_rows.h"
#include "store/messenger/messenger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
};

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

// -------------------------------------------------------- ids that are reused

// As the table of a name is usually written.
static void
make_reusing(struct fixture *fixture, const char *table, const char *more)
{
    char sql[400];
    snprintf(sql, sizeof(sql),
             "CREATE TABLE %s (id INTEGER PRIMARY KEY, -- no AUTOINCREMENT\n"
             "body TEXT NOT NULL, headers TEXT NOT NULL, queue_name TEXT NOT "
             "NULL, created_at DATETIME NOT NULL, available_at DATETIME NOT "
             "NULL, delivered_at DATETIME%s)",
             table, more);
    skr_test_run(fixture->db, sql);
}

static void
remake(struct fixture *fixture, const char *table)
{
    char sql[80];
    snprintf(sql, sizeof(sql), "DROP TABLE %s", table);
    skr_test_run(fixture->db, sql);
    make_reusing(fixture, table, "");
}

static struct skr_store *
make_table(struct fixture *fixture, bool is_ordered)
{
    struct skr_store *table = NULL;
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .is_ordered = is_ordered,
        .failed_table = "messenger_messages",
    };
    assert_int_equal(skr_messenger_new(&options, &table, NULL), SKR_OK);
    return table;
}

static void
assert_refused(enum skr_code code, const struct skr_error *error,
               const char *table)
{
    char rename[80], copy[80];
    snprintf(rename, sizeof(rename), "ALTER TABLE %s RENAME TO old;", table);
    snprintf(copy, sizeof(copy), "INSERT INTO %s SELECT ", table);
    assert_int_equal(code, SKR_REFUSED);
    assert_int_equal(error->remedy, SKR_GIVE_UP);
    if (strstr(error->text, "AUTOINCREMENT") == NULL ||
        strstr(error->text, rename) == NULL ||
        strstr(error->text, copy) == NULL ||
        strstr(error->text, " FROM old") == NULL)
        fail_msg("%s", error->text);
}

static void
test_an_outbox_whose_ids_are_used_again_is_refused(void **state)
{
    struct fixture *fixture = *state;
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        struct skr_store *table = make_table(fixture, is_ordered == 1);
        struct skr_error error = {0};
        assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
        assert_int_equal(table->admin->check(table, fixture->db, NULL), SKR_OK);
        skr_test_run(fixture->db, "DROP TABLE messenger_outbox");
        make_reusing(fixture, "messenger_outbox",
                     is_ordered ? ", partition_key TEXT NOT NULL DEFAULT ''"
                                : "");
        assert_refused(table->admin->check(table, fixture->db, &error), &error,
                       "messenger_outbox");
        skr_test_run(fixture->db, "DROP TABLE messenger_outbox");
        skr_store_free(table);
    }
}

// A second program that deals with a failed message would hit the next one.
static void
test_so_is_a_failed_table(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = make_table(fixture, false);
    struct skr_failed_rows *rows = NULL;
    struct skr_error error = {0};
    const struct skr_failed_rows_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_messages",
        .queue = "failed",
    };
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    remake(fixture, "messenger_messages");
    assert_refused(table->admin->check(table, fixture->db, &error), &error,
                   "messenger_messages");
    assert_int_equal(skr_failed_rows_new(&options, &rows, NULL), SKR_OK);
    assert_refused(skr_failed_rows_check(rows, skr_db_tx(fixture->db), &error),
                   &error, "messenger_messages");
    skr_failed_rows_free(rows);
    skr_store_free(table);
}

static void
test_such_a_table_is_not_cleaned(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    uint64_t removed = 0;
    make_reusing(fixture, "messenger_outbox", "");
    assert_refused(skr_messenger_clean(
                       &(struct skr_queue_place){.table = "messenger_outbox",
                                                 .queue = "outbox"},
                       &(struct skr_cleaning){.age_s = 1}, fixture->db,
                       &removed, &error),
                   &error, "messenger_outbox");
}

static void
test_so_is_a_kafka_outbox(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    const struct skr_kafka_outbox_options options = {
        .dialect = skr_db_dialect(fixture->db)};
    assert_int_equal(skr_kafka_outbox_new(&options, &table, NULL), SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    assert_int_equal(table->admin->check(table, fixture->db, NULL), SKR_OK);
    skr_test_run(fixture->db, "CREATE TABLE other (id INTEGER PRIMARY KEY, "
                              "batch_id, push_started_at, push_completed_at, "
                              "topic, payload_json, payload_headers, "
                              "push_attempts, errored, error_reason, "
                              "created_at, partition_key, key)");
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox");
    skr_test_run(fixture->db, "ALTER TABLE other RENAME TO kafka_outbox");
    assert_refused(table->admin->check(table, fixture->db, &error), &error,
                   "kafka_outbox");
    skr_store_free(table);
}

// The statements of the refusal, in their order.
static void
test_the_cure_keeps_rows_and_ids(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = make_table(fixture, false);
    struct skr_error error = {0};
    char insert[400] = "";
    make_reusing(fixture, "messenger_outbox", "");
    skr_test_run(fixture->db,
                 "INSERT INTO messenger_outbox VALUES (7, 'b', '{}', 'outbox', "
                 "'2026-11-16 00:00:00', '2026-11-16 00:00:00', NULL)");
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    assert_refused(table->admin->check(table, fixture->db, &error), &error,
                   "messenger_outbox");
    snprintf(insert, sizeof(insert), "%s", strstr(error.text, "INSERT INTO"));
    skr_test_run(fixture->db, "ALTER TABLE messenger_outbox RENAME TO old");
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    skr_test_run(fixture->db, insert);
    assert_int_equal(table->admin->check(table, fixture->db, NULL), SKR_OK);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT id FROM messenger_outbox "
                                     "WHERE body = 'b'"),
                     7);
    skr_store_free(table);
}

// ---------------------------------------------------------------- result codes

// What is no message's fault is tried again, or after a new connection.
static void
test_result_codes_have_their_remedies(void **state)
{
    (void)state;
    static const struct {
        int native;
        enum skr_code code;
        enum skr_remedy remedy;
        const char *words;
    } cases[] = {
        {SQLITE_BUSY, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {SQLITE_LOCKED, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {SQLITE_PROTOCOL, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {SQLITE_INTERRUPT, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {SQLITE_SCHEMA, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {SQLITE_FULL, SKR_REFUSED, SKR_TRY_AGAIN, "space"},
        {SQLITE_NOLFS, SKR_REFUSED, SKR_TRY_AGAIN, "file system"},
        {SQLITE_IOERR, SKR_UNAVAILABLE, SKR_RECONNECT, "disk"},
        {SQLITE_IOERR_FSYNC, SKR_UNAVAILABLE, SKR_RECONNECT, "disk"},
        {SQLITE_IOERR_NOMEM, SKR_NO_MEMORY, SKR_TRY_AGAIN, ""},
        {SQLITE_NOMEM, SKR_NO_MEMORY, SKR_TRY_AGAIN, ""},
        {SQLITE_CANTOPEN, SKR_UNAVAILABLE, SKR_RECONNECT, "disk"},
        {SQLITE_CORRUPT, SKR_INVALID, SKR_RECONNECT, "damaged"},
        {SQLITE_NOTADB, SKR_INVALID, SKR_RECONNECT, "damaged"},
        {SQLITE_INTERNAL, SKR_UNAVAILABLE, SKR_RECONNECT, ""},
        {SQLITE_READONLY, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {SQLITE_READONLY_DBMOVED, SKR_REFUSED, SKR_RECONNECT, "moved"},
        {SQLITE_PERM, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {SQLITE_CONSTRAINT_UNIQUE, SKR_DUPLICATE, SKR_GIVE_UP, ""},
        {SQLITE_CONSTRAINT_CHECK, SKR_REFUSED, SKR_GIVE_UP, ""},
        {SQLITE_TOOBIG, SKR_INVALID, SKR_GIVE_UP, ""},
        {SQLITE_MISMATCH, SKR_INVALID, SKR_GIVE_UP, ""},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        assert_int_equal(skr_sqlite_fail_path("shop.db", cases[i].native,
                                              "as asked for", &error),
                         cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        if (strstr(error.text, cases[i].words) == NULL)
            fail_msg("%s", error.text);
    }
}

int
main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_an_outbox_whose_ids_are_used_again_is_refused),
        TEST(test_so_is_a_failed_table),
        TEST(test_such_a_table_is_not_cleaned),
        TEST(test_so_is_a_kafka_outbox),
        TEST(test_the_cure_keeps_rows_and_ids),
        TEST(test_result_codes_have_their_remedies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
