// SPDX-License-Identifier: MIT
// How full a queue is, which queues there are, and who works them. Every
// statement reads a bounded number of rows: all of one queue, from its
// beginning, or all of the table from some time on, by the index on it.

#include "store/messenger/inspect.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "db/zone.h"
#include "store/messenger/layout.h"
#include "store/messenger/messenger.h"
#include "store/schema.h"

#include <stdio.h>
#include <string.h>

#define DONE "'9999-12-31 00:00:00'"
#define BOUND "100001"  // SKR_QUEUE_EXACT and one

// Parameter: queue.
static const char depth_sql[] =
    "SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} WHERE {queue_is} "
    "LIMIT " BOUND ") AS bounded";
// How many were looked at, how many wait for their time, how many for people.
// Parameters: queue, queue, and those of `from`.
#define DELAYED(from)                                                         \
    "SELECT COUNT(*), "                                                       \
    "COUNT(CASE WHEN {queue_is_unindexed} AND available_at > created_at AND " \
    "available_at < " DONE " THEN 1 END), "                                   \
    "COUNT(CASE WHEN {queue_is_unindexed} AND available_at >= " DONE          \
    " THEN 1 END) FROM (SELECT queue_name, created_at, available_at "         \
    "FROM " from ") AS bounded"
// How many were looked at, how many are claimed, how many are done.
// Parameters: queue, queue, and those of `from`.
#define CLAIMED(from)                                                \
    "SELECT COUNT(*), "                                              \
    "COUNT(CASE WHEN {queue_is_unindexed} AND delivered_at < " DONE  \
    " THEN 1 END), "                                                 \
    "COUNT(CASE WHEN {queue_is_unindexed} AND delivered_at >= " DONE \
    " THEN 1 END) FROM (SELECT queue_name, delivered_at "            \
    "FROM " from ") AS bounded"
// Parameter: queue.
#define FIRST_ROWS                                                \
    "(SELECT queue_name, created_at, available_at, delivered_at " \
    "FROM {table} WHERE {queue_is} LIMIT " BOUND ")"

// By an index on the time, or where there is none, of the first rows of the
// queue. The last parameter of the claimed ones: seconds.
static const char delayed_sql[] =
    DELAYED("{table} WHERE available_at > {now} "
            "ORDER BY available_at DESC LIMIT " BOUND);
static const char delayed_first_sql[] =
    DELAYED(FIRST_ROWS " AS firsts WHERE available_at > {now}");
static const char claimed_sql[] =
    CLAIMED("{table} WHERE delivered_at >= {now_minus} "
            "ORDER BY delivered_at DESC LIMIT " BOUND);
static const char claimed_first_sql[] =
    CLAIMED(FIRST_ROWS " AS firsts WHERE delivered_at >= {now_minus}");
// Of the first ones, which are the oldest or next to them: since when one is
// due, the time, and how many are PHP's. Parameter: queue.
static const char oldest_sql[] =
    "SELECT MIN(CASE WHEN " SKR_MESSENGER_DUE " AND delivered_at IS NULL AND "
    "headers <> '[]' THEN available_at END), {now}, "
    "COUNT(CASE WHEN headers = '[]' THEN 1 END) "
    "FROM (SELECT created_at, available_at, delivered_at, headers "
    "FROM {table} WHERE {queue_is} LIMIT 10000) AS bounded";

struct inspection {
    struct skr_arena arena;
    struct skr_tx tx;
    const struct skr_queue_place *place;
    struct skr_zone zone;
};

static const char *
fill(struct inspection *inspection, const char *sql_template, const char *queue)
{
    enum { OWN_WORDS = 2 };
    const char *hex = skr_messenger_hex(&inspection->arena, queue);
    if (hex == NULL)
        return NULL;
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", inspection->place->table},
        {"queue_hex", hex},
    };
    size_t count =
        OWN_WORDS + skr_zone_words(&inspection->zone, words + OWN_WORDS);
    return skr_sql_fill(inspection->tx.ops->dialect, &inspection->arena,
                        sql_template, words, count);
}

static enum skr_code
ask(struct inspection *inspection, const char *sql_template, const char *queue,
    struct skr_values values, struct skr_row *row, struct skr_error *error)
{
    const char *sql = fill(inspection, sql_template, queue);
    if (sql == NULL)
        return skr_fail_memory(error);
    row->arena = &inspection->arena;
    return skr_sql_row(inspection->tx, sql, values, row, error);
}

static enum skr_code
count_rows(struct inspection *inspection, const char *queue, uint64_t *rows,
           bool *is_estimate, struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code =
        ask(inspection, depth_sql, queue, skr_values("%s", queue), &row, error);
    if (code != SKR_OK)
        return code;
    *rows = (uint64_t)column.integer;
    if (*rows <= SKR_QUEUE_EXACT)
        return SKR_OK;
    *is_estimate = true;
    code = ask(inspection, "{row_estimate}", queue, SKR_NO_VALUES, &row, error);
    if (code == SKR_OK && (uint64_t)column.integer > *rows)
        *rows = (uint64_t)column.integer;
    return code;
}

// Two parts of a queue by a time of their rows.
struct parts {
    const char *column;
    const char *sql, *first_sql;  // by an index on it, or of the first rows
    bool with_timeout;
};

static enum skr_code
count_two(struct inspection *inspection, const struct parts *parts,
          struct skr_queue_counts *counts, uint64_t *earlier, uint64_t *later,
          struct skr_error *error)
{
    const struct skr_queue_place *place = inspection->place;
    const char *queue = place->queue;
    struct skr_value columns[3];
    struct skr_row row = {.columns = columns, .count = 3};
    bool has_index = false;
    enum skr_code code = skr_schema_has_index(
        inspection->tx, place->table, parts->column, NULL, &has_index, error);
    struct skr_values values =
        has_index ? skr_values("%s %s", queue, queue)
                  : skr_values("%s %s %s", queue, queue, queue);
    if (parts->with_timeout)
        values.items[values.count++] =
            skr_bind_integer(place->redeliver_timeout_s);
    if (code == SKR_OK)
        code = ask(inspection, has_index ? parts->sql : parts->first_sql, queue,
                   values, &row, error);
    if (code != SKR_OK)
        return code;
    counts->parts_are_estimates |= columns[0].integer > SKR_QUEUE_EXACT ||
                                   (!has_index && counts->depth_is_estimate);
    *earlier = (uint64_t)columns[1].integer;
    *later = (uint64_t)columns[2].integer;
    return SKR_OK;
}

static enum skr_code
count_parts(struct inspection *inspection, struct skr_queue_counts *counts,
            uint64_t *done, struct skr_error *error)
{
    static const struct parts delayed = {.column = "available_at",
                                         .sql = delayed_sql,
                                         .first_sql = delayed_first_sql};
    static const struct parts claimed = {.column = "delivered_at",
                                         .sql = claimed_sql,
                                         .first_sql = claimed_first_sql,
                                         .with_timeout = true};
    enum skr_code code = count_two(inspection, &delayed, counts,
                                   &counts->delayed, &counts->blocked, error);
    if (code == SKR_OK)
        code = count_two(inspection, &claimed, counts, &counts->in_flight, done,
                         error);
    return code;
}

static enum skr_code
find_oldest(struct inspection *inspection, struct skr_queue_counts *counts,
            struct skr_error *error)
{
    const char *queue = inspection->place->queue;
    struct skr_value columns[3];
    struct skr_row row = {.columns = columns, .count = 3};
    int64_t age_us = 0;
    enum skr_code code = ask(inspection, oldest_sql, queue,
                             skr_values("%s", queue), &row, error);
    if (code != SKR_OK)
        return code;
    counts->php = (uint64_t)columns[2].integer;
    counts->has_oldest =
        skr_messenger_measure(&columns[0], &columns[1], &age_us);
    // A time may be rounded up, or that of another zone.
    counts->oldest_s = age_us > 0 ? age_us / 1000000 : 0;
    return SKR_OK;
}

// A table that cannot tell, such as one that another program made in another
// way, is not asked again: it is no reason not to tell the rest.
static void
count_written(struct inspection *inspection, struct skr_queue_counts *counts)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    if (ask(inspection, "{rows_written}", inspection->place->queue,
            SKR_NO_VALUES, &row, NULL) == SKR_OK)
        counts->written = (uint64_t)column.integer;
}

static uint64_t
less(uint64_t from, uint64_t by)
{
    return from > by ? from - by : 0;
}

static enum skr_code
inspect(struct inspection *inspection, struct skr_queue_counts *counts,
        struct skr_error *error)
{
    const char *queue = inspection->place->queue;
    uint64_t done = 0;
    const char *sent = skr_arena_format(&inspection->arena, "%s.sent", queue);
    if (sent == NULL)
        return skr_fail_memory(error);
    enum skr_code code = count_rows(inspection, queue, &counts->depth,
                                    &counts->depth_is_estimate, error);
    if (code == SKR_OK)
        code = count_rows(inspection, sent, &counts->sent,
                          &counts->sent_is_estimate, error);
    if (code == SKR_OK)
        code = count_parts(inspection, counts, &done, error);
    if (code == SKR_OK && counts->depth > 0)
        code = find_oldest(inspection, counts, error);
    // An estimate is of all the table.
    if (counts->depth_is_estimate && counts->depth > SKR_QUEUE_EXACT + 1)
        counts->depth = less(counts->depth, counts->sent) > SKR_QUEUE_EXACT
                            ? less(counts->depth, counts->sent)
                            : SKR_QUEUE_EXACT + 1;
    counts->depth = less(counts->depth, done);
    counts->due = less(counts->depth, counts->delayed + counts->blocked +
                                          counts->in_flight + counts->php);
    return code;
}

enum skr_code
skr_queue_count(struct skr_db *db, const struct skr_queue_place *place,
                struct skr_queue_counts *counts, struct skr_error *error)
{
    struct inspection inspection = {.tx = skr_db_tx(db), .place = place};
    *counts = (struct skr_queue_counts){0};
    enum skr_code code =
        skr_messenger_check_names(place->table, place->queue, error);
    if (code == SKR_OK)
        code = skr_zone_read(skr_db_dialect(db), place->time_zone,
                             &inspection.zone, error);
    if (code == SKR_OK)
        code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = inspect(&inspection, counts, error);
    if (code == SKR_OK)
        count_written(&inspection, counts);
    skr_arena_fini(&inspection.arena);
    // Nothing was written.
    skr_db_rollback(db);
    return code;
}

// Which queues the table has, at a cost that grows with their number and not
// with that of the rows: each is found by one step along the index.

enum { MOST_NAMES = 100 };

// Parameter: the name before it.
static const char next_sql[] =
    "SELECT MIN(queue_name) FROM {table} WHERE queue_name > ?";
// Where the collation takes "Orders" for "orders", the step passes one of them.
// Parameters: the name that was found, twice.
static const char alike_sql[] =
    "SELECT MIN(queue_name) FROM (SELECT queue_name FROM {table} "
    "WHERE queue_name = ? LIMIT 10000) AS firsts "
    "WHERE NOT ({queue_is_unindexed})";

// *found: NULL where there is none.
static enum skr_code
find_name(struct inspection *inspection, const char *sql_template,
          struct skr_values values, const char **found, struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code = ask(inspection, sql_template, "", values, &row, error);
    *found = code == SKR_OK ? column.bytes : NULL;
    return code;
}

static enum skr_code
step_through(struct inspection *inspection, skr_queue_name_fn *each, void *user,
             struct skr_error *error)
{
    const char *name = "";
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < MOST_NAMES && code == SKR_OK; i++) {
        const char *alike = NULL;
        code = find_name(inspection, next_sql, skr_values("%s", name), &name,
                         error);
        if (code != SKR_OK || name == NULL)
            break;
        code = find_name(inspection, alike_sql, skr_values("%s %s", name, name),
                         &alike, error);
        if (code == SKR_OK)
            code = each(name, user, error);
        if (code == SKR_OK && alike != NULL)
            code = each(alike, user, error);
    }
    return code;
}

enum skr_code
skr_queue_each_name(struct skr_db *db, const char *table,
                    skr_queue_name_fn *each, void *user,
                    struct skr_error *error)
{
    const struct skr_queue_place place = {.table = table};
    struct inspection inspection = {
        .tx = skr_db_tx(db), .place = &place, .zone.is_utc = true};
    enum skr_code code = skr_messenger_check_names(table, "any", error);
    if (code == SKR_OK)
        code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = step_through(&inspection, each, user, error);
    skr_arena_fini(&inspection.arena);
    // Nothing was written.
    skr_db_rollback(db);
    return code;
}

enum skr_code
skr_queue_holder(struct skr_db *db, const struct skr_queue_place *place,
                 char holder[SKR_HOLDER_SIZE], struct skr_error *error)
{
    char name[SKR_LOCK_NAME_SIZE];
    enum skr_code code =
        skr_store_name_lock(db, place->table, place->queue, name, error);
    if (code != SKR_OK)
        return code;
    return db->ops->locks->holder(db, name, holder, error);
}

enum skr_code
skr_queue_attendance(struct skr_db *db, const struct skr_queue_place *place,
                     enum skr_attendance kind, int64_t *count,
                     struct skr_error *error)
{
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code =
        skr_store_name_lock(db, place->table, place->queue, lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, kind, name);
    return db->ops->locks->attendance(db, name, count, error);
}
