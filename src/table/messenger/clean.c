// SPDX-License-Identifier: MIT
// Removing what was sent and stayed. Rows are found by the index on
// delivered_at and removed by their ids.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/zone.h"
#include "table/cleaning.h"
#include "table/messenger/messenger.h"

#include <stdlib.h>
#include <string.h>

#define DONE "delivered_at >= '9999-12-31 00:00:00'"

// Parameters: queue, time, seconds, rows. The time, which is that of the last
// row found, passes over what was deleted and is still in the index.
static const char find_sent_sql[] =
    "SELECT id, delivered_at FROM {table} WHERE {queue_is_unindexed} AND "
    "delivered_at >= ? AND delivered_at < {now_minus} "
    "ORDER BY delivered_at LIMIT ?";
// Parameters: queue, seconds.
static const char count_sent_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE {queue_is_unindexed} AND "
    "delivered_at < {now_minus}";
// Parameters: queue, seconds, rows.
static const char find_done_sql[] =
    "SELECT id, delivered_at FROM {table} WHERE {queue_is_unindexed} AND " DONE
    " AND created_at < {now_minus} LIMIT ?";
static const char count_done_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE {queue_is_unindexed} AND " DONE
    " AND created_at < {now_minus}";

struct source {
    struct skr_arena arena;
    const char *queue;
    bool is_sent;
    const char *find_sql, *count_sql;
    const char *remove_sql;  // of SKR_SQL_MAX_LIST ids
    uint32_t age_s;
    char last_time[24];
    int64_t *ids;
    size_t count;
};

static bool
fill(struct source *source, const struct skr_dialect *dialect,
     const char *table, const struct skr_zone *zone)
{
    struct skr_arena *arena = &source->arena;
    enum { OWN_WORDS = 3 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", table},
        {"ids", skr_sql_list(arena, SKR_SQL_MAX_LIST)},
        {"id_rows", skr_sql_rows(arena, SKR_SQL_MAX_LIST)},
    };
    size_t count = OWN_WORDS + skr_zone_words(zone, words + OWN_WORDS);
    if (words[1].text == NULL || words[2].text == NULL)
        return false;
    source->find_sql = skr_sql_fill(
        dialect, arena, source->is_sent ? find_sent_sql : find_done_sql, words,
        count);
    source->count_sql = skr_sql_fill(
        dialect, arena, source->is_sent ? count_sent_sql : count_done_sql,
        words, count);
    source->remove_sql =
        skr_sql_fill(dialect, arena, "{remove_ids}", words, count);
    return source->find_sql != NULL && source->count_sql != NULL &&
           source->remove_sql != NULL;
}

static enum skr_code
keep_id(const struct skr_value *columns, size_t count, void *user,
        struct skr_error *error)
{
    (void)count;
    (void)error;
    struct source *source = user;
    source->ids[source->count++] = columns[0].integer;
    source->last_time[0] = '\0';
    strncat(source->last_time, columns[1].bytes, sizeof(source->last_time) - 1);
    return SKR_OK;
}

static enum skr_code
find(void *user, struct skr_tx tx, size_t size, size_t *found,
     struct skr_error *error)
{
    struct source *source = user;
    struct skr_value values[4];
    char last_time[sizeof(source->last_time)];
    size_t count = 0;
    // Rows that are found write a new one.
    memcpy(last_time, source->last_time, sizeof(last_time));
    values[count++] = skr_bind_text(source->queue);
    if (source->is_sent)
        values[count++] = skr_bind_text(last_time);
    values[count++] = skr_bind_integer(source->age_s);
    values[count++] = skr_bind_integer((int64_t)size);
    source->count = 0;
    enum skr_code code = skr_tx_run(tx,
                                    &(struct skr_statement){
                                        .sql = source->find_sql,
                                        .values = values,
                                        .value_count = count,
                                        .each_row = keep_id,
                                        .user = source,
                                    },
                                    error);
    *found = source->count;
    return code;
}

static enum skr_code
remove_piece(const struct source *source, struct skr_tx tx, size_t first,
             size_t count, uint64_t *removed, struct skr_error *error)
{
    struct skr_value values[SKR_SQL_MAX_LIST];
    uint64_t affected = 0;
    for (size_t i = 0; i < SKR_SQL_MAX_LIST; i++)
        values[i] =
            skr_bind_integer(source->ids[first + (i < count ? i : count - 1)]);
    enum skr_code code = skr_tx_run(tx,
                                    &(struct skr_statement){
                                        .sql = source->remove_sql,
                                        .values = values,
                                        .value_count = SKR_SQL_MAX_LIST,
                                        .affected = &affected,
                                    },
                                    error);
    *removed += affected;
    return code;
}

static enum skr_code
step(void *user, struct skr_tx tx, size_t first, size_t count,
     uint64_t *removed, struct skr_error *error)
{
    struct source *source = user;
    // In the order of ids: two who remove the same do not deadlock.
    if (first == 0)
        qsort(source->ids, source->count, sizeof(source->ids[0]),
              skr_compare_rows);
    enum skr_code code = SKR_OK;
    for (size_t done = 0; code == SKR_OK && done < count;) {
        size_t left = count - done;
        size_t piece = left < SKR_SQL_MAX_LIST ? left : SKR_SQL_MAX_LIST;
        code = remove_piece(source, tx, first + done, piece, removed, error);
        done += piece;
    }
    return code;
}

static enum skr_code
count_rows(const struct source *source, struct skr_db *db, uint64_t *rows,
           struct skr_error *error)
{
    const struct skr_value values[] = {
        skr_bind_text(source->queue),
        skr_bind_integer(source->age_s),
    };
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code = skr_tx_fetch_one(
        skr_db_tx(db),
        &(struct skr_statement){.sql = source->count_sql,
                                .values = values,
                                .value_count = SKR_COUNT_OF(values)},
        &arena, &value, 1, &found, error);
    if (code == SKR_OK)
        *rows += (uint64_t)value.integer;
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
clean(const char *table, const char *queue, bool is_sent,
      const struct skr_zone *zone, const struct skr_cleaning *cleaning,
      struct skr_db *db, uint64_t *removed, struct skr_error *error)
{
    struct source source = {
        .queue = queue,
        .is_sent = is_sent,
        .age_s = cleaning->age_s,
        .last_time = "1000-01-01 00:00:00",
        .ids = calloc(cleaning->batch_size, sizeof(int64_t)),
    };
    enum skr_code code = SKR_OK;
    if (source.ids == NULL || !fill(&source, skr_db_dialect(db), table, zone))
        code = skr_fail_memory(error);
    else if (cleaning->dry_run)
        code = count_rows(&source, db, removed, error);
    else
        code =
            skr_cleaning_run(cleaning, db, find, step, &source, removed, error);
    skr_arena_fini(&source.arena);
    free(source.ids);
    return code;
}

enum skr_code
skr_messenger_clean(const char *table, const char *queue, const char *time_zone,
                    const struct skr_cleaning *cleaning, struct skr_db *db,
                    uint64_t *removed, struct skr_error *error)
{
    struct skr_zone zone;
    enum skr_code code = skr_messenger_check_names(table, queue, error);
    if (code == SKR_OK)
        code = skr_zone_read(skr_db_dialect(db), time_zone, &zone, error);
    if (code != SKR_OK)
        return code;
    struct skr_arena arena = {0};
    const char *sent = skr_arena_format(&arena, "%s.sent", queue);
    code = sent == NULL
               ? skr_fail_memory(error)
               : clean(table, sent, true, &zone, cleaning, db, removed, error);
    if (code == SKR_OK)
        code = clean(table, queue, false, &zone, cleaning, db, removed, error);
    skr_arena_fini(&arena);
    return code;
}
