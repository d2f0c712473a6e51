// SPDX-License-Identifier: MIT
// Removing what was sent and stayed. Rows are found by the index on
// delivered_at and removed by their ids.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/zone.h"
#include "store/cleaning.h"
#include "store/list.h"
#include "store/messenger/messenger.h"
#include "store/schema.h"

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

// A message that failed is available from then on; a Symfony worker that
// retries one has claimed it.
#define FAILED_BEFORE "available_at < {now_minus} AND delivered_at IS NULL"
static const struct kind failed = {
    .find_sql =
        "SELECT id, available_at " OF_QUEUE
        "available_at >= ? AND " FAILED_BEFORE " ORDER BY available_at LIMIT ?",
    .count_sql = "SELECT COUNT(*) " OF_QUEUE FAILED_BEFORE,
};

// What is cleaned, and how.
struct place {
    struct skr_db *db;
    const char *table;
    struct skr_zone zone;
    struct skr_arena arena;  // all texts
    const struct skr_cleaning *cleaning;
};

static const char *
fill(void *user, const char *sql_template, const char *ids, const char *id_rows)
{
    struct place *place = user;
    enum { OWN_WORDS = 3 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", place->table},
        {"ids", ids},
        {"id_rows", id_rows},
    };
    size_t count = OWN_WORDS + skr_zone_words(&place->zone, words + OWN_WORDS);
    return skr_sql_fill(skr_db_dialect(place->db), &place->arena, sql_template,
                        words, count);
}

static enum skr_code
clean(struct place *place, const char *queue, const struct kind *kind,
      uint64_t *removed, struct skr_error *error)
{
    struct skr_list_sql remove = {.range = NULL};
    const struct skr_list_filling filling = {
        .dialect = skr_db_dialect(place->db),
        .arena = &place->arena,
        .fill = fill,
        .layout = place,
    };
    const struct skr_cleaning_source source = {
        .table = place->table,
        .queue = queue,
        .find_sql = fill(place, kind->find_sql, "", ""),
        .count_sql = fill(place, kind->count_sql, "", ""),
        .remove = skr_cleaning_remove_rows,
        .most = SKR_CLEANING_MOST_ROWS,
        .user = &remove,
    };
    if (queue == NULL || source.find_sql == NULL || source.count_sql == NULL ||
        !skr_list_fill(&filling, "{remove_ids}", NULL, &remove))
        return skr_fail_memory(error);
    return skr_cleaning_run(place->cleaning, place->db, &source, removed,
                            error);
}

// A queue and the one beside it.
struct pair {
    const struct kind *own;      // what is removed of the queue
    const char *suffix;          // of the name of the other,
    const struct kind *besides;  // and what is removed of that
};

static enum skr_code
clean_pair(const struct skr_queue_place *queue, const struct pair *pair,
           const struct skr_cleaning *cleaning, struct skr_db *db,
           uint64_t *removed, struct skr_error *error)
{
    struct place place = {
        .table = queue->table, .cleaning = cleaning, .db = db};
    enum skr_code code =
        skr_messenger_check_names(queue->table, queue->queue, error);
    if (code == SKR_OK)
        code = skr_zone_read(skr_db_dialect(db), queue->time_zone, &place.zone,
                             error);
    // Found first, and then removed by their ids.
    if (code == SKR_OK)
        code = skr_schema_check_ids(skr_db_tx(db), queue->table,
                                    SKR_MESSENGER_ROW, "skirnir setup", error);
    if (code != SKR_OK)
        return code;
    code = clean(
        &place,
        skr_arena_format(&place.arena, "%s%s", queue->queue, pair->suffix),
        pair->besides, removed, error);
    // What stays there keeps nothing here.
    enum skr_code own = code;
    if (code == SKR_OK || code == SKR_REFUSED)
        own = clean(&place, queue->queue, pair->own, removed,
                    code == SKR_OK ? error : NULL);
    skr_arena_fini(&place.arena);
    return code == SKR_OK ? own : code;
}

enum skr_code
skr_messenger_clean(const struct skr_queue_place *place,
                    const struct skr_cleaning *cleaning, struct skr_db *db,
                    uint64_t *removed, struct skr_error *error)
{
    return clean_pair(place, &(struct pair){&done, ".sent", &sent}, cleaning,
                      db, removed, error);
}

enum skr_code
skr_messenger_clean_failed(const struct skr_queue_place *place,
                           const struct skr_cleaning *cleaning,
                           struct skr_db *db, uint64_t *removed,
                           struct skr_error *error)
{
    return clean_pair(place, &(struct pair){&failed, ".skirnir", &failed},
                      cleaning, db, removed, error);
}
