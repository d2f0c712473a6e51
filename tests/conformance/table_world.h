// SPDX-License-Identifier: MIT
// What the suites of the tables share: an outbox and its failed table.

#ifndef SKR_TEST_TABLE_WORLD_H
#define SKR_TEST_TABLE_WORLD_H

#include "databases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "db/sql.h"
#include "store/deduplication/deduplication.h"
#include "store/messenger/partitions.h"
#include "store/messenger/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADERS "{\"type\":\"order.placed\"}"

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
    struct skr_store *table;
    struct skr_messenger_reader reader;
    struct skr_batch batch;
    // In most tests no transaction is open but for a moment: the low-water mark
    // may follow the cursor at once.
    bool waits_for_watermark;
};

// A reader that is made by hand, and may change its table and its connection.
static inline struct skr_reader *
use_reader(struct skr_messenger_reader *reader, const struct skr_store *table,
           struct skr_db *db)
{
    reader->base = (struct skr_reader){.store = table, .db = db};
    reader->at.mark.sql =
        skr_messenger_sql(skr_messenger_of(table), SKR_SQL_OPEN_TRANSACTIONS);
    reader->at.mark.order_counts = table->partitions != NULL;
    return &reader->base;
}

// One that is made as by a worker.
static inline enum skr_code
open_reader(const struct skr_store *table, struct skr_db *db,
            struct skr_messenger_reader *reader, struct skr_error *error)
{
    struct skr_reader *opened = NULL;
    enum skr_code code = table->source->open(table, db, true, &opened, error);
    if (code == SKR_OK)
        *reader = *(struct skr_messenger_reader *)opened;
    free(opened);
    return code;
}

// The outbox of every suite; some change a thing or two.
static inline struct skr_messenger_options
outbox_options(const struct fixture *fixture)
{
    return (struct skr_messenger_options){
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .redeliver_timeout_s = 60,
        .transport = "outbox",
        .failed_table = "messenger_messages",
        .failed_queue = "failed",
        .failed_readable = true,
    };
}

static inline struct skr_store *
make_table_by(const struct skr_messenger_options *options)
{
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    if (skr_messenger_new(options, &table, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return table;
}

static inline struct skr_store *
make_table(const struct fixture *fixture, uint32_t full_scan_ms)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.full_scan_ms = full_scan_ms;
    return make_table_by(&options);
}

static inline struct skr_store *
make_ordered(const struct fixture *fixture)
{
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_ordered = true;
    return make_table_by(&options);
}

static inline int
set_up_with_sweep(void **state, uint32_t full_scan_ms)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    fixture->table = make_table(fixture, full_scan_ms);
    assert_int_equal(skr_batch_init(&fixture->batch, 100, NULL), SKR_OK);
    *state = fixture;
    return 0;
}

static inline int
set_up_bare(void **state)
{
    return set_up_with_sweep(state, 0);
}

static inline void
start(struct fixture *fixture)
{
    struct skr_error error = {0};
    if (skr_store_create(fixture->table, fixture->db, &error) != SKR_OK ||
        open_reader(fixture->table, fixture->db, &fixture->reader, &error) !=
            SKR_OK)
        fail_msg("%s", error.text);
}

// Whether the queue's lock is to be had, by the name that this connection has
// for it.
static inline bool
may_work_queue(const struct skr_store *table, struct skr_db *db)
{
    char name[SKR_LOCK_NAME_SIZE];
    struct skr_error error = {0};
    if (skr_store_name_lock(db, table->name, table->queue, name, &error) !=
            SKR_OK ||
        skr_db_lock(db, name, SKR_LOCK_ALONE, -1, 0, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return db->holds_lock;
}

static inline int
set_up(void **state)
{
    set_up_with_sweep(state, 0);
    start(*state);
    return 0;
}

// Everything behind the cursor is looked at by every read but the first.
static inline int
set_up_sweeping(void **state)
{
    set_up_with_sweep(state, 1);
    start(*state);
    return 0;
}

static inline int
set_up_ordered_bare(void **state)
{
    set_up_bare(state);
    struct fixture *fixture = *state;
    skr_store_free(fixture->table);
    fixture->table = make_ordered(fixture);
    return 0;
}

static inline int
set_up_ordered(void **state)
{
    set_up_ordered_bare(state);
    start(*state);
    return 0;
}

static inline int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_batch_fini(&fixture->batch);
    skr_store_free(fixture->table);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static inline void
insert_value(struct fixture *fixture, const char *queue, struct skr_value body,
             struct skr_value headers)
{
    const struct skr_value values[] = {body, headers, skr_bind_text(queue)};
    skr_test_run_template(fixture->db,
                          "INSERT INTO messenger_outbox (body, headers, "
                          "queue_name, created_at, available_at) "
                          "VALUES (?, ?, ?, {now}, {now})",
                          values, SKR_COUNT_OF(values));
}

static inline void
insert(struct fixture *fixture, const char *queue, const char *body,
       const char *headers)
{
    insert_value(fixture, queue, skr_bind_text(body), skr_bind_text(headers));
}

static inline void
insert_keyed(struct skr_db *db, const char *key, const char *body)
{
    const struct skr_value values[] = {
        skr_bind_text(body), skr_bind_text(HEADERS), skr_bind_text(key)};
    skr_test_run_template(db,
                          "INSERT INTO messenger_outbox (body, headers, "
                          "queue_name, partition_key, created_at, "
                          "available_at) VALUES (?, ?, 'outbox', ?, {now}, "
                          "{now})",
                          values, SKR_COUNT_OF(values));
}

static inline void
insert_many(struct fixture *fixture, size_t count)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (size_t i = 0; i < count; i++)
        insert(fixture, "outbox", "{}", HEADERS);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static inline size_t
read_with(struct fixture *fixture, const struct skr_read *read)
{
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    if (fixture->table->source->read(
            use_reader(&fixture->reader, fixture->table, fixture->db), read,
            &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    if (!fixture->waits_for_watermark)
        fixture->reader.at.mark.low = fixture->reader.at.mark.cursor;
    return fixture->batch.count;
}

static inline size_t
read_rows(struct fixture *fixture)
{
    return read_with(fixture,
                     &(struct skr_read){.max_rows = 100, .max_bytes = 1 << 20});
}

static inline void
settle(struct fixture *fixture)
{
    struct skr_error error = {0};
    if (fixture->table->settle->write(fixture->table, fixture->db,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static inline void
set_states(struct fixture *fixture, enum skr_state state)
{
    for (size_t i = 0; i < fixture->batch.count; i++)
        fixture->batch.items[i].state = state;
}

static inline int64_t
count_rows(struct fixture *fixture, const char *table)
{
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM %s", table);
    return skr_test_number(fixture->db, sql);
}

// Runs a function in several processes at once and wants 0 from each.
static inline void
run_in_processes(int count, int (*run)(const struct fixture *fixture),
                 const struct fixture *fixture)
{
    int gate[2];
    assert_int_equal(pipe(gate), 0);
    pid_t children[16];
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            char byte;
            close(gate[1]);
            // All of them go when the last writer is gone.
            if (read(gate[0], &byte, 1) != 0)
                _exit(100);
            _exit(run(fixture));
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < count; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define BARE_TEST(name) \
    cmocka_unit_test_setup_teardown(name, set_up_bare, tear_down)
#define SWEEPING_TEST(name) \
    cmocka_unit_test_setup_teardown(name, set_up_sweeping, tear_down)

// For who is interested in what a list costs.
static inline enum skr_code
ignore_head(const struct skr_blocked_head *head, void *user,
            struct skr_error *error)
{
    (void)head;
    (void)user;
    (void)error;
    return SKR_OK;
}

// A read that fails leaves the reader where it was, and no transaction open.
static inline void
check_error_moves_nothing(struct fixture *fixture)
{
    insert_many(fixture, 3);
    assert_int_equal(read_rows(fixture), 3);
    struct skr_cursor before = fixture->reader.at;
    skr_test_run(fixture->db,
                 "ALTER TABLE messenger_outbox RENAME TO elsewhere");
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    const struct skr_read read = {.max_rows = 10, .max_bytes = 1000};
    assert_int_equal(
        fixture->table->source->read(
            use_reader(&fixture->reader, fixture->table, fixture->db), &read,
            &fixture->batch, &error),
        SKR_MISSING);
    assert_int_equal(fixture->batch.count, 0);
    assert_memory_equal(&before, &fixture->reader.at, sizeof(before));
    struct skr_tx tx = skr_db_tx(fixture->db);
    assert_int_equal(tx.ops->check(tx, NULL), SKR_NO_TRANSACTION);
    skr_test_run(fixture->db,
                 "ALTER TABLE elsewhere RENAME TO messenger_outbox");
    insert_many(fixture, 1);
    assert_int_equal(read_rows(fixture), 1);
}

#endif
