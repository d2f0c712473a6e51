// SPDX-License-Identifier: MIT
// Counts partitions and lists blocked heads, each with a bounded number of rows
// read; and what people do with a partition that waits: look at its head, make
// it due, or move it out of the way.

#include "store/messenger/partitions.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/reader.h"

#include <stdio.h>

enum { EXACT = 100000 };

static void
copy_key(const struct skr_value *value, char key[SKR_KEY_SIZE])
{
    snprintf(key, SKR_KEY_SIZE, "%.*s", (int)value->size,
             (const char *)value->bytes);
}

static enum skr_code
find_largest(const struct skr_messenger *messenger, struct skr_tx tx,
             struct skr_arena *arena, struct skr_partitions *partitions,
             struct skr_error *error)
{
    const struct skr_values queue = skr_values("%s", messenger->table.queue);
    struct skr_value columns[3];
    struct skr_row row = {.arena = arena, .columns = columns, .count = 3};
    int64_t size = 0;
    enum skr_code code = skr_sql_number(
        tx, skr_messenger_sql(messenger, SKR_SQL_SIZE), queue, &size, error);
    partitions->is_estimate = size > EXACT;
    if (code == SKR_OK)
        code = skr_sql_row(tx, skr_messenger_sql(messenger, SKR_SQL_LARGEST),
                           queue, &row, error);
    if (code != SKR_OK || !row.found)
        return code;
    copy_key(&columns[0], partitions->largest);
    partitions->largest_length = (uint64_t)columns[1].integer;
    partitions->count = (uint64_t)columns[2].integer;
    return SKR_OK;
}

enum { OLDEST_COLUMNS = 4 };

static void
note_oldest(const struct skr_value columns[OLDEST_COLUMNS],
            struct skr_partitions *partitions)
{
    int64_t age_us = 0;
    copy_key(&columns[0], partitions->oldest);
    partitions->oldest_row = columns[1].integer;
    if (skr_messenger_measure(&columns[2], &columns[3], &age_us) && age_us > 0)
        partitions->oldest_s = age_us / 1000000;
}

static enum skr_code
find_first_head(const struct skr_messenger *messenger, struct skr_tx tx,
                struct skr_row *head, struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code =
        skr_sql_row(tx, skr_messenger_sql(messenger, SKR_SQL_FIRST_ROW),
                    skr_values("%s", messenger->table.queue), &row, error);
    if (code != SKR_OK || !row.found)
        return code;
    int64_t first = column.integer;
    int64_t last = first < INT64_MAX - EXACT ? first + EXACT : INT64_MAX;
    return skr_sql_row(
        tx, skr_messenger_sql(messenger, SKR_SQL_FIRST_HEAD),
        skr_values("%s %jd %jd", messenger->table.queue, first, last), head,
        error);
}

static enum skr_code
find_oldest(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_arena *arena, struct skr_partitions *partitions,
            struct skr_error *error)
{
    struct skr_value columns[OLDEST_COLUMNS];
    struct skr_row head = {
        .arena = arena, .columns = columns, .count = OLDEST_COLUMNS};
    enum skr_code code = SKR_OK;
    if (partitions->is_estimate)
        code = find_first_head(messenger, tx, &head, error);
    if (code == SKR_OK && !head.found)
        code =
            skr_sql_row(tx, skr_messenger_sql(messenger, SKR_SQL_OLDEST),
                        skr_values("%s", messenger->table.queue), &head, error);
    if (code == SKR_OK && head.found)
        note_oldest(columns, partitions);
    return code;
}

enum skr_code
skr_messenger_count_partitions(const struct skr_store *table, struct skr_db *db,
                               struct skr_partitions *partitions,
                               struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_arena arena = {0};
    *partitions = (struct skr_partitions){.count = 0};
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = find_largest(messenger, skr_db_tx(db), &arena, partitions, error);
    if (code == SKR_OK)
        code = find_oldest(messenger, skr_db_tx(db), &arena, partitions, error);
    skr_db_rollback(db);
    skr_arena_fini(&arena);
    // It may be that of a plain outbox.
    if (code != SKR_OK && code != SKR_MISSING && error != NULL) {
        struct skr_error reason = {0};
        if (skr_messenger_check_columns(messenger, db, &reason) == SKR_INVALID)
            *error = reason;
    }
    return code;
}

static enum skr_code
measure(const struct skr_store *table, struct skr_db *db, const char *key,
        uint64_t *length, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    int64_t number = 0;
    enum skr_code code = skr_sql_number(
        skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_LENGTH),
        skr_values("%s %s %s", messenger->table.queue, key, key), &number,
        error);
    *length = (uint64_t)number;
    return code;
}

const struct skr_partition_ops skr_messenger_partitions = {
    .read = skr_messenger_read_partitions,
    .measure = measure,
    .find_writer = skr_messenger_find_writer,
};

// Heads of partitions, as they are read for people.
struct heads {
    const struct skr_messenger *messenger;
    struct skr_batch batch;
    char id_namespace[SKR_NAMESPACE_SIZE];  // for ids of rows without one
    bool is_blocked;                        // the one that was read last
};

static enum skr_code
take_head(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    struct heads *heads = user;
    heads->is_blocked =
        count > SKR_COLUMN_COUNT && columns[SKR_COLUMN_COUNT + 1].integer != 0;
    return skr_messenger_take_row(heads->messenger, heads->id_namespace,
                                  columns, &heads->batch, error);
}

static enum skr_code
begin_heads(struct heads *heads, const struct skr_store *table,
            struct skr_db *db, size_t max, struct skr_error *error)
{
    *heads = (struct heads){.messenger = skr_messenger_of(table)};
    enum skr_code code = skr_batch_init(&heads->batch, max, error);
    if (code == SKR_OK)
        code = skr_messenger_find_namespace(heads->messenger, skr_db_tx(db),
                                            heads->id_namespace, error);
    return code;
}

static const char *
find_blocked_reason(struct skr_batch *batch, const struct skr_batch_item *item)
{
    const struct skr_headers *headers = &item->envelope.headers;
    const char *stamp = skr_headers_get(headers, SKR_HEADER_ERROR);
    const char *text = NULL;
    if (stamp != NULL &&
        skr_stamp_read(&batch->arena, stamp, "exceptionMessage", &text, NULL) !=
            SKR_OK)
        text = NULL;
    return text;
}

static enum skr_code
tell(struct heads *heads, struct skr_db *db, bool measures,
     skr_blocked_head_fn *each, void *user, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < heads->batch.count && code == SKR_OK; i++) {
        const struct skr_batch_item *item = &heads->batch.items[i];
        const char *reason = find_blocked_reason(&heads->batch, item);
        struct skr_blocked_head head = {
            .row = item->row,
            .key = item->partition_key,
            .name = item->envelope.message.name,
            .reason = reason == NULL ? item->reason.text : reason,
        };
        if (measures)
            code = measure(&heads->messenger->table, db, head.key, &head.length,
                           error);
        head.is_estimate = head.length > EXACT;
        if (code == SKR_OK)
            code = each(&head, user, error);
    }
    return code;
}

enum skr_code
skr_messenger_each_blocked(const struct skr_store *table, struct skr_db *db,
                           const struct skr_blocked_page *page,
                           skr_blocked_head_fn *each, void *user,
                           struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_messenger_indexes indexes = {.are_known = false};
    struct heads heads;
    enum skr_code code = begin_heads(&heads, table, db, page->max, error);
    if (code == SKR_OK)
        code = skr_messenger_learn(messenger, db, &indexes, error);
    if (code == SKR_OK)
        code = skr_sql_each(
            skr_db_tx(db),
            indexes.dues_by_queue
                ? skr_messenger_sql(messenger, SKR_SQL_BLOCKED_BY_QUEUE)
                : skr_messenger_sql(messenger, SKR_SQL_BLOCKED),
            (struct skr_values){3,
                                {skr_bind_text(messenger->table.queue),
                                 skr_bind_cursor(page->after),
                                 skr_bind_integer((int64_t)page->max)}},
            take_head, &heads, error);
    if (code == SKR_OK)
        code = tell(&heads, db, page->measures, each, user, error);
    skr_batch_fini(&heads.batch);
    return code;
}

enum skr_code
skr_messenger_find_blocked(const struct skr_store *table, struct skr_db *db,
                           int64_t row, skr_blocked_head_fn *each, void *user,
                           struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct heads heads;
    enum skr_code code = begin_heads(&heads, table, db, 1, error);
    if (code == SKR_OK)
        code = skr_sql_each(skr_db_tx(db),
                            skr_messenger_sql(messenger, SKR_SQL_BLOCKED_ROW),
                            skr_values("%s %jd", messenger->table.queue, row),
                            take_head, &heads, error);
    if (code == SKR_OK && heads.batch.count == 0)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "row %lld of table %s is not the head of a blocked "
                        "partition",
                        (long long)row, messenger->table.name);
    if (code == SKR_OK)
        code = tell(&heads, db, true, each, user, error);
    skr_batch_fini(&heads.batch);
    return code;
}

static enum skr_code
find_head(struct heads *heads, struct skr_tx tx, const char *key,
          struct skr_error *error)
{
    const struct skr_messenger *messenger = heads->messenger;
    skr_batch_clear(&heads->batch);
    return skr_sql_each(
        tx, skr_messenger_sql(messenger, SKR_SQL_WHOLE_HEAD),
        skr_values("%s %s %s", messenger->table.queue, key, key), take_head,
        heads, error);
}

static enum skr_code
set_due(const struct heads *heads, struct skr_tx tx, const char *sql,
        struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = SKR_OK;
    int64_t row = heads->batch.items[0].row;
    for (int64_t s = 1; s <= 2 && code == SKR_OK && affected == 0; s++)
        code = skr_sql_run(tx, sql, skr_values("%jd %jd %jd", s, row, s),
                           &affected, error);
    return code;
}

static void
find_reason(struct heads *heads, struct skr_batch_item *item)
{
    const char *text = find_blocked_reason(&heads->batch, item);
    // One that cannot be understood tells by itself.
    if (text == NULL && item->reason.code != SKR_OK)
        return;
    skr_fail(&item->reason, SKR_REFUSED, SKR_GIVE_UP, "%s",
             text == NULL ? "skipped by hand" : text);
}

static enum skr_code
refuse(const struct heads *heads, const char *key, struct skr_error *error)
{
    if (heads->batch.count == 0)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "table %s holds no message of the partition '%.80s'",
                        heads->messenger->table.name, key);
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "the partition '%.80s' is not blocked: its head, row %lld, "
                    "is on its way or waits for its time",
                    key, (long long)heads->batch.items[0].row);
}

static enum skr_code
skip_head(struct heads *heads, const struct skr_store *table, struct skr_db *db,
          const char *key, struct skr_error *error)
{
    struct skr_batch_item *item = &heads->batch.items[0];
    find_reason(heads, item);
    item->state = SKR_DEAD;
    enum skr_code code = table->settle->write(table, db, &heads->batch, error);
    if (code == SKR_OK)
        code = find_head(heads, skr_db_tx(db), key, error);
    if (code != SKR_OK || heads->batch.count == 0)
        return code;
    return set_due(heads, skr_db_tx(db),
                   skr_messenger_sql(heads->messenger, SKR_SQL_TOUCH), error);
}

static enum skr_code
begin_end(struct heads *heads, const struct skr_store *table, struct skr_db *db,
          const char *key, bool *is_blocked, struct skr_error *error)
{
    enum skr_code code = begin_heads(heads, table, db, 1, error);
    if (code == SKR_OK)
        code = find_head(heads, skr_db_tx(db), key, error);
    *is_blocked = code == SKR_OK && heads->batch.count > 0 && heads->is_blocked;
    return code;
}

static enum skr_code
end_found(struct heads *heads, const struct skr_store *table, struct skr_db *db,
          const char *key, bool skips, struct skr_error *error)
{
    return skips
               ? skip_head(heads, table, db, key, error)
               : set_due(heads, skr_db_tx(db),
                         skr_messenger_sql(heads->messenger, SKR_SQL_MAKE_DUE),
                         error);
}

enum skr_code
skr_messenger_end_block(const struct skr_store *table, struct skr_db *db,
                        const char *key, bool skips, int64_t *row,
                        struct skr_error *error)
{
    struct heads heads;
    bool is_blocked = false;
    enum skr_code code = begin_end(&heads, table, db, key, &is_blocked, error);
    if (code == SKR_OK && !is_blocked)
        code = refuse(&heads, key, error);
    if (is_blocked) {
        *row = heads.batch.items[0].row;
        code = end_found(&heads, table, db, key, skips, error);
    }
    skr_batch_fini(&heads.batch);
    return code;
}

enum skr_code
skr_messenger_end_blocked(const struct skr_store *table, struct skr_db *db,
                          const struct skr_blocked_head *head, bool skips,
                          bool *ended, struct skr_error *error)
{
    struct heads heads;
    enum skr_code code = begin_end(&heads, table, db, head->key, ended, error);
    *ended = *ended && heads.batch.items[0].row == head->row;
    if (*ended)
        code = end_found(&heads, table, db, head->key, skips, error);
    skr_batch_fini(&heads.batch);
    return code;
}
