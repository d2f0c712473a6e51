// SPDX-License-Identifier: MIT
// Lists, finds and removes single rows of the failed table, for the commands
// `skirnir failed`.

#include "store/messenger/failed_rows.h"

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
#include <stdlib.h>
#include <string.h>

#define COLUMNS "id, queue_name, created_at, headers"

// A row that Symfony retried or removed on MariaDB and MySQL stays, marked as
// done, until a Symfony worker reads the table: it is no failed message.
#define UNFINISHED SKR_MESSENGER_UNFINISHED_UNINDEXED
// One by one, the rows of a queue are in the order of their ids already: none
// of another queue is read, and nothing is sorted.
// Parameters: queue, id, number of rows, the same of the other queue, number.
#define OF_QUEUE(beyond, order)                                         \
    "{union_open}SELECT " COLUMNS " FROM {table} WHERE queue_name = ? " \
    "AND id " beyond " ? AND " UNFINISHED " ORDER BY id" order          \
    " LIMIT ?{union_close}"
static const char newest_sql[] = OF_QUEUE("<", " DESC") " UNION ALL " OF_QUEUE(
    "<", " DESC") " ORDER BY id DESC LIMIT ?";
static const char oldest_sql[] =
    OF_QUEUE(">", "") " UNION ALL " OF_QUEUE(">", "") " ORDER BY id LIMIT ?";
// Parameter: id.
static const char find_sql[] =
    "SELECT " COLUMNS ", body FROM {table} WHERE id = ? AND " UNFINISHED;
// Parameters: id, queue, queue, redeliver timeout.
static const char remove_sql[] =
    "DELETE FROM {table} WHERE id = ? AND queue_name IN (?, ?) AND "
    "(delivered_at IS NULL OR delivered_at < {now_minus})";
static const char now_sql[] = "SELECT {now}";

enum { COLUMN_ID, COLUMN_QUEUE, COLUMN_TIME, COLUMN_HEADERS, COLUMN_BODY };

struct skr_failed_rows {
    struct skr_arena arena;
    const char *name;
    const char *queue, *aside;
    uint32_t redeliver_timeout_s;
    const char *newest, *oldest, *find, *remove, *now;
};

static bool
fill(struct skr_failed_rows *rows, const struct skr_dialect *dialect,
     const struct skr_zone *zone)
{
    const struct {
        const char *sql_template;
        const char **sql;
    } texts[] = {
        {newest_sql, &rows->newest}, {oldest_sql, &rows->oldest},
        {find_sql, &rows->find},     {remove_sql, &rows->remove},
        {now_sql, &rows->now},
    };
    struct skr_word words[1 + SKR_ZONE_WORDS] = {{"table", rows->name}};
    size_t count = 1 + skr_zone_words(zone, words + 1);
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        *texts[i].sql = skr_sql_fill(dialect, &rows->arena,
                                     texts[i].sql_template, words, count);
        if (*texts[i].sql == NULL)
            return false;
    }
    return true;
}

enum skr_code
skr_failed_rows_new(const struct skr_failed_rows_options *options,
                    struct skr_failed_rows **rows, struct skr_error *error)
{
    enum skr_code code =
        skr_messenger_check_names(options->table, options->queue, error);
    struct skr_zone zone;
    if (code == SKR_OK)
        code =
            skr_zone_read(options->dialect, options->time_zone, &zone, error);
    if (code != SKR_OK)
        return code;
    struct skr_failed_rows *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    struct skr_arena *arena = &made->arena;
    made->redeliver_timeout_s = options->redeliver_timeout_s;
    made->name = skr_arena_text(arena, options->table, strlen(options->table));
    made->queue = skr_arena_text(arena, options->queue, strlen(options->queue));
    made->aside = skr_arena_format(arena, "%s.skirnir", options->queue);
    if (made->name == NULL || made->queue == NULL || made->aside == NULL ||
        !fill(made, options->dialect, &zone)) {
        skr_failed_rows_free(made);
        return skr_fail_memory(error);
    }
    *rows = made;
    return SKR_OK;
}

void
skr_failed_rows_free(struct skr_failed_rows *rows)
{
    if (rows == NULL)
        return;
    skr_arena_fini(&rows->arena);
    free(rows);
}

enum skr_code
skr_failed_rows_check(const struct skr_failed_rows *rows, struct skr_tx tx,
                      struct skr_error *error)
{
    return skr_messenger_check_table(tx, rows->name, SKR_MESSENGER_ROW, error);
}

struct look {
    const struct skr_failed_rows *rows;
    skr_failed_row_fn *each;
    void *user;
    size_t seen;
    int64_t last;
    bool found;
};

// A collation may take other names for the same.
static bool
is_of_queue(const struct skr_failed_rows *rows, const char *queue)
{
    return strcmp(queue, rows->queue) == 0 || strcmp(queue, rows->aside) == 0;
}

static enum skr_code
give_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct look *look = user;
    const struct skr_failed_row row = {
        .id = columns[COLUMN_ID].integer,
        .queue = columns[COLUMN_QUEUE].bytes,
        .created_at = columns[COLUMN_TIME].bytes,
        .headers = columns[COLUMN_HEADERS].bytes,
        .headers_size = columns[COLUMN_HEADERS].size,
        .body = count > COLUMN_BODY ? columns[COLUMN_BODY].bytes : NULL,
        .body_size = count > COLUMN_BODY ? columns[COLUMN_BODY].size : 0,
    };
    look->seen++;
    look->last = row.id;
    if (!is_of_queue(look->rows, row.queue))
        return SKR_OK;
    look->found = true;
    return look->each == NULL ? SKR_OK : look->each(&row, look->user, error);
}

enum skr_code
skr_failed_rows_list(const struct skr_failed_rows *rows, struct skr_tx tx,
                     struct skr_failed_page *page, skr_failed_row_fn *each,
                     void *user, struct skr_error *error)
{
    struct look look = {
        .rows = rows, .each = each, .user = user, .last = page->after};
    int64_t max = (int64_t)page->max;
    enum skr_code code = skr_sql_each(
        tx, page->newest_first ? rows->newest : rows->oldest,
        skr_values("%s %jd %jd %s %jd %jd %jd", rows->queue, page->after, max,
                   rows->aside, page->after, max, max),
        give_row, &look, error);
    page->after = look.last;
    page->has_more = look.seen == page->max;
    return code;
}

enum skr_code
skr_failed_rows_find(const struct skr_failed_rows *rows, struct skr_tx tx,
                     struct skr_failed_wanted *wanted, skr_failed_row_fn *each,
                     void *user, struct skr_error *error)
{
    struct look look = {.rows = rows, .each = each, .user = user};
    enum skr_code code = skr_sql_each(
        tx, rows->find, skr_values("%jd", wanted->id), give_row, &look, error);
    wanted->found = look.found;
    return code;
}

enum skr_code
skr_failed_rows_remove(const struct skr_failed_rows *rows, struct skr_tx tx,
                       int64_t id, struct skr_error *error)
{
    uint64_t affected = 0;
    struct skr_failed_wanted wanted = {.id = id};
    enum skr_code code =
        skr_sql_run(tx, rows->remove,
                    skr_values("%jd %s %s %jd", id, rows->queue, rows->aside,
                               (int64_t)rows->redeliver_timeout_s),
                    &affected, error);
    if (code != SKR_OK || affected > 0)
        return code;
    code = skr_failed_rows_find(rows, tx, &wanted, NULL, NULL, error);
    if (code != SKR_OK)
        return code;
    if (!wanted.found)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "it is no longer among the failed messages: someone "
                        "else retried or removed it");
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "a worker has claimed it and may be at it; it is free "
                    "again when that ends, or after %u s",
                    rows->redeliver_timeout_s);
}

enum skr_code
skr_failed_rows_now(const struct skr_failed_rows *rows, struct skr_tx tx,
                    int64_t *wall_us, struct skr_error *error)
{
    char now[2 * SKR_TIME_SIZE];
    enum skr_code code =
        skr_sql_text(tx, rows->now, SKR_NO_VALUES, now, sizeof(now), error);
    if (code == SKR_OK && !skr_clock_parse_timestamp(now, wall_us))
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the database's clock cannot be read");
    return code;
}
