// SPDX-License-Identifier: MIT
// Removing what was sent and stayed. Rows are found by the index on
// delivered_at and removed by their ids.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/zone.h"
#include "table/cleaning.h"
#include "table/messenger/messenger.h"

#include <string.h>

enum { MOST_AT_ONCE = 100 };

#define DONE "delivered_at >= '9999-12-31 00:00:00'"
#define OF_QUEUE "FROM {table} WHERE {queue_is_unindexed} AND "

// Which rows, and how they are found: as struct skr_cleaning_source has it, the
// queue bound first.
struct kind {
    const char *find_sql, *count_sql;
};

static const struct kind sent = {
    .find_sql = "SELECT id, delivered_at " OF_QUEUE
                "delivered_at >= ? AND delivered_at < {now_minus} "
                "ORDER BY delivered_at LIMIT ?",
    .count_sql = "SELECT COUNT(*) " OF_QUEUE "delivered_at < {now_minus}",
};
static const struct kind done = {
    .find_sql = "SELECT id, delivered_at " OF_QUEUE
                "delivered_at >= ? AND " DONE " AND created_at < {now_minus} "
                "ORDER BY delivered_at LIMIT ?",
    .count_sql =
        "SELECT COUNT(*) " OF_QUEUE DONE " AND created_at < {now_minus}",
};

static enum skr_code
remove_found(const void *remove_sql, struct skr_tx tx,
             const union skr_cleaning_key *keys, size_t count,
             uint64_t *removed, struct skr_error *error)
{
    struct skr_value values[MOST_AT_ONCE];
    uint64_t affected = 0;
    for (size_t i = 0; i < MOST_AT_ONCE; i++)
        values[i] = skr_bind_integer(keys[i < count ? i : count - 1].row);
    enum skr_code code = skr_tx_run(tx,
                                    &(struct skr_statement){
                                        .sql = remove_sql,
                                        .values = values,
                                        .value_count = MOST_AT_ONCE,
                                        .affected = &affected,
                                    },
                                    error);
    *removed += affected;
    return code;
}

static enum skr_code
fill(struct skr_cleaning_source *source, const struct kind *kind,
     const struct skr_dialect *dialect, const struct skr_zone *zone,
     struct skr_arena *arena, struct skr_error *error)
{
    enum { OWN_WORDS = 3 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", source->table},
        {"ids", skr_sql_list(arena, MOST_AT_ONCE)},
        {"id_rows", skr_sql_rows(arena, MOST_AT_ONCE)},
    };
    size_t count = OWN_WORDS + skr_zone_words(zone, words + OWN_WORDS);
    if (words[1].text == NULL || words[2].text == NULL)
        return skr_fail_memory(error);
    source->find_sql =
        skr_sql_fill(dialect, arena, kind->find_sql, words, count);
    source->count_sql =
        skr_sql_fill(dialect, arena, kind->count_sql, words, count);
    source->user = skr_sql_fill(dialect, arena, "{remove_ids}", words, count);
    return source->find_sql == NULL || source->count_sql == NULL ||
                   source->user == NULL
               ? skr_fail_memory(error)
               : SKR_OK;
}

static enum skr_code
clean(const char *table, const char *queue, const struct kind *kind,
      const struct skr_zone *zone, const struct skr_cleaning *cleaning,
      struct skr_db *db, uint64_t *removed, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_cleaning_source source = {
        .table = table,
        .queue = queue,
        .remove = remove_found,
        .most = MOST_AT_ONCE,
    };
    enum skr_code code =
        fill(&source, kind, skr_db_dialect(db), zone, &arena, error);
    if (code == SKR_OK)
        code = skr_cleaning_run(cleaning, db, &source, removed, error);
    skr_arena_fini(&arena);
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
    const char *kept = skr_arena_format(&arena, "%s.sent", queue);
    code = kept == NULL
               ? skr_fail_memory(error)
               : clean(table, kept, &sent, &zone, cleaning, db, removed, error);
    if (code == SKR_OK)
        code = clean(table, queue, &done, &zone, cleaning, db, removed, error);
    skr_arena_fini(&arena);
    return code;
}
