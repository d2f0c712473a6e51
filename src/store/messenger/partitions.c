// SPDX-License-Identifier: MIT
// Counts partitions and lists blocked heads, each with a bounded number of rows
// read.

#include "store/messenger/partitions.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/layout.h"

#include <string.h>

enum { EXACT = 100000 };
#define BOUND "100001"
#define BLOCKED "available_at = '9999-12-31 23:59:59'"

// So many rows are read, whatever becomes of them then. Parameter: queue.
#define READ "FROM {table} WHERE {queue_is} LIMIT " BOUND
#define OPEN                                                              \
    "FROM (SELECT id, partition_key, created_at, delivered_at " READ ") " \
    "AS bounded WHERE partition_key <> '' AND " SKR_MESSENGER_UNFINISHED " "
static const char size_sql[] =
    "SELECT COUNT(*) FROM (SELECT 1 AS one " READ ") AS bounded";
static const char largest_sql[] =
    "SELECT {partition_text}, COUNT(*) AS length, COUNT(*) OVER () " OPEN
    "GROUP BY partition_key, {partition_bytes} ORDER BY length DESC LIMIT 1";
#define OLDEST "SELECT {partition_text}, id, created_at, {now} "
static const char oldest_sql[] = OLDEST OPEN "ORDER BY id LIMIT 1";
// Which rows of a large queue are read is not defined, so its oldest head is
// looked for by itself: from the first row on, as far as ids are near it.
// Parameters: queue; then queue, that id, and the last one to look at.
static const char first_row_sql[] =
    "SELECT id FROM {table} WHERE {queue_is} ORDER BY id LIMIT 1";
static const char first_head_sql[] =
    OLDEST "FROM {table} WHERE {queue_is_beyond} AND id >= ? AND id <= ? "
           "AND partition_key <> '' AND " SKR_MESSENGER_UNFINISHED
           " ORDER BY id LIMIT 1";
// By the index on times, or on queue and time: few are blocked. Their bodies
// are of no interest. Parameters: queue, then cursor and limit, or id.
#define BLOCKED_HEADS(queue_is)                                     \
    "SELECT id, '', headers, created_at, {created_at_utc}, 0, 1, "  \
    "{partition_text} FROM {table} WHERE " queue_is " AND " BLOCKED \
    " AND partition_key <> '' AND " SKR_MESSENGER_UNFINISHED
// An index on times alone has those of one time in the order of ids. The other
// has not: those that are blocked are sorted, lest the whole queue is read in
// that order.
static const char blocked_sql[] =
    BLOCKED_HEADS("{queue_is_unindexed}") " AND id > ? ORDER BY id LIMIT ?";
static const char blocked_by_queue_sql[] = BLOCKED_HEADS(
    "{queue_is}") " AND {no_index}id > ? ORDER BY {no_index}id LIMIT ?";
static const char blocked_row_sql[] =
    BLOCKED_HEADS("{queue_is_unindexed}") " AND id = ?";
// Parameters: queue, key, twice.
static const char length_sql[] =
    "SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} WHERE {queue_is} "
    "AND partition_key = ? AND {partition_bytes} = ? "
    "AND " SKR_MESSENGER_UNFINISHED " LIMIT " BOUND ") AS bounded";

bool
skr_messenger_fill_partitions(struct skr_messenger *messenger)
{
    return !messenger->is_ordered ||
           (skr_messenger_fill(messenger, size_sql, &messenger->sql.size) &&
            skr_messenger_fill(messenger, largest_sql,
                               &messenger->sql.largest) &&
            skr_messenger_fill(messenger, oldest_sql, &messenger->sql.oldest) &&
            skr_messenger_fill(messenger, first_row_sql,
                               &messenger->sql.first_row) &&
            skr_messenger_fill(messenger, first_head_sql,
                               &messenger->sql.first_head) &&
            skr_messenger_fill(messenger, blocked_sql,
                               &messenger->sql.blocked) &&
            skr_messenger_fill(messenger, blocked_by_queue_sql,
                               &messenger->sql.blocked_by_queue) &&
            skr_messenger_fill(messenger, length_sql, &messenger->sql.length) &&
            skr_messenger_fill(messenger, blocked_row_sql,
                               &messenger->sql.blocked_row));
}

static void
copy_key(const struct skr_value *value, char key[SKR_POSITION_KEY_SIZE])
{
    size_t size = value->size < SKR_POSITION_KEY_SIZE
                      ? value->size
                      : SKR_POSITION_KEY_SIZE - 1;
    memcpy(key, value->bytes, size);
    key[size] = '\0';
}

static enum skr_code
find_largest(const struct skr_messenger *messenger, struct skr_tx tx,
             struct skr_arena *arena, struct skr_partitions *partitions,
             struct skr_error *error)
{
    const struct skr_values queue = skr_values("%s", messenger->queue);
    struct skr_value columns[3];
    struct skr_row row = {.arena = arena, .columns = columns, .count = 3};
    int64_t size = 0;
    enum skr_code code =
        skr_sql_number(tx, messenger->sql.size, queue, &size, error);
    partitions->is_estimate = size > EXACT;
    if (code == SKR_OK)
        code = skr_sql_row(tx, messenger->sql.largest, queue, &row, error);
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
    char created[SKR_POSITION_TIME_SIZE], now[SKR_POSITION_TIME_SIZE];
    int64_t created_us = 0, now_us = 0;
    copy_key(&columns[0], partitions->oldest);
    partitions->oldest_row = columns[1].integer;
    skr_messenger_copy_time(&columns[2], created);
    skr_messenger_copy_time(&columns[3], now);
    if (skr_clock_parse_timestamp(created, &created_us) &&
        skr_clock_parse_timestamp(now, &now_us) && now_us > created_us)
        partitions->oldest_s = (now_us - created_us) / 1000000;
}

static enum skr_code
find_first_head(const struct skr_messenger *messenger, struct skr_tx tx,
                struct skr_row *head, struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code =
        skr_sql_row(tx, messenger->sql.first_row,
                    skr_values("%s", messenger->queue), &row, error);
    if (code != SKR_OK || !row.found)
        return code;
    int64_t first = column.integer;
    int64_t last = first < INT64_MAX - EXACT ? first + EXACT : INT64_MAX;
    return skr_sql_row(tx, messenger->sql.first_head,
                       skr_values("%s %jd %jd", messenger->queue, first, last),
                       head, error);
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
        code = skr_sql_row(tx, messenger->sql.oldest,
                           skr_values("%s", messenger->queue), &head, error);
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
        if (skr_messenger_check_ordered(messenger, db, &reason) == SKR_INVALID)
            *error = reason;
    }
    return code;
}

enum skr_code
skr_messenger_measure(const struct skr_store *table, struct skr_db *db,
                      const char *key, uint64_t *length,
                      struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    int64_t number = 0;
    enum skr_code code = skr_sql_number(
        skr_db_tx(db), messenger->sql.length,
        skr_values("%s %s %s", messenger->queue, key, key), &number, error);
    *length = (uint64_t)number;
    return code;
}

struct listing {
    const struct skr_messenger *messenger;
    struct skr_batch batch;
    struct skr_position position;  // for the ids of rows that have none
};

static enum skr_code
take_blocked(const struct skr_value *columns, size_t count, void *user,
             struct skr_error *error)
{
    (void)count;
    struct listing *listing = user;
    return skr_messenger_take_row(listing->messenger,
                                  listing->position.id_namespace, columns,
                                  &listing->batch, error);
}

static enum skr_code
list_page(struct listing *listing, struct skr_db *db,
          const struct skr_blocked_page *page, struct skr_error *error)
{
    const struct skr_messenger *messenger = listing->messenger;
    const struct skr_values values = {3,
                                      {skr_bind_text(messenger->queue),
                                       skr_messenger_bind_cursor(page->after),
                                       skr_bind_integer((int64_t)page->max)}};
    enum skr_code code =
        skr_messenger_learn(messenger, db, &listing->position, error);
    if (code != SKR_OK)
        return code;
    return skr_sql_each(skr_db_tx(db),
                        listing->position.dues_by_queue
                            ? messenger->sql.blocked_by_queue
                            : messenger->sql.blocked,
                        values, take_blocked, listing, error);
}

static enum skr_code
tell(struct listing *listing, const struct skr_store *table, struct skr_db *db,
     bool measures, skr_blocked_head_fn *each, void *user,
     struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < listing->batch.count && code == SKR_OK; i++) {
        const struct skr_batch_item *item = &listing->batch.items[i];
        const char *reason =
            skr_messenger_blocked_reason(&listing->batch, item);
        struct skr_blocked_head head = {
            .row = item->row,
            .key = item->partition_key,
            .name = item->envelope.message.name,
            .reason = reason == NULL ? item->reason.text : reason,
        };
        if (measures)
            code =
                skr_messenger_measure(table, db, head.key, &head.length, error);
        head.is_estimate = head.length > EXACT;
        if (code == SKR_OK)
            code = each(&head, user, error);
    }
    return code;
}

static enum skr_code
begin_listing(struct listing *listing, const struct skr_store *table,
              struct skr_db *db, size_t max, struct skr_error *error)
{
    *listing = (struct listing){.messenger = skr_messenger_of(table)};
    enum skr_code code = skr_batch_init(&listing->batch, max, error);
    if (code == SKR_OK)
        code = table->source->start(table, db, &listing->position, error);
    return code;
}

enum skr_code
skr_messenger_each_blocked(const struct skr_store *table, struct skr_db *db,
                           const struct skr_blocked_page *page,
                           skr_blocked_head_fn *each, void *user,
                           struct skr_error *error)
{
    struct listing listing;
    enum skr_code code = begin_listing(&listing, table, db, page->max, error);
    if (code == SKR_OK)
        code = list_page(&listing, db, page, error);
    if (code == SKR_OK)
        code = tell(&listing, table, db, page->measures, each, user, error);
    skr_batch_fini(&listing.batch);
    return code;
}

enum skr_code
skr_messenger_find_blocked(const struct skr_store *table, struct skr_db *db,
                           int64_t row, skr_blocked_head_fn *each, void *user,
                           struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct listing listing;
    enum skr_code code = begin_listing(&listing, table, db, 1, error);
    if (code == SKR_OK)
        code = skr_sql_each(skr_db_tx(db), messenger->sql.blocked_row,
                            skr_values("%s %jd", messenger->queue, row),
                            take_blocked, &listing, error);
    if (code == SKR_OK && listing.batch.count == 0)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "row %lld of table %s is not the head of a blocked "
                        "partition",
                        (long long)row, messenger->name);
    if (code == SKR_OK)
        code = tell(&listing, table, db, true, each, user, error);
    skr_batch_fini(&listing.batch);
    return code;
}
