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

struct filling {
    const struct skr_dialect *dialect;
    const struct skr_zone *zone;
    struct skr_arena *arena;
    const char *table;
};

static const char *
fill(void *user, const char *sql_template, const char *ids, const char *id_rows)
{
    const struct filling *filling = user;
    enum { OWN_WORDS = 3 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", filling->table},
        {"ids", ids},
        {"id_rows", id_rows},
    };
    size_t count = OWN_WORDS + skr_zone_words(filling->zone, words + OWN_WORDS);
    return skr_sql_fill(filling->dialect, filling->arena, sql_template, words,
                        count);
}

static bool
fill_all(struct filling *filling, const struct kind *kind,
         struct skr_cleaning_source *source, struct skr_list_sql *remove)
{
    source->find_sql = fill(filling, kind->find_sql, "", "");
    source->count_sql = fill(filling, kind->count_sql, "", "");
    return source->find_sql != NULL && source->count_sql != NULL &&
           skr_list_fill(
               &(struct skr_list_filling){
                   .dialect = filling->dialect,
                   .arena = filling->arena,
                   .fill = fill,
                   .layout = filling,
               },
               "{remove_ids}", NULL, remove);
}

// What is cleaned, and how.
struct place {
    const char *table;
    struct skr_zone zone;
    const struct skr_cleaning *cleaning;
    struct skr_db *db;
};

static enum skr_code
clean(struct place *place, const char *queue, const struct kind *kind,
      uint64_t *removed, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_list_sql remove = {.range = NULL};
    struct filling filling = {
        .dialect = skr_db_dialect(place->db),
        .zone = &place->zone,
        .arena = &arena,
        .table = place->table,
    };
    struct skr_cleaning_source source = {
        .table = place->table,
        .queue = queue,
        .remove = skr_cleaning_remove_rows,
        .most = SKR_CLEANING_MOST_ROWS,
        .user = &remove,
    };
    enum skr_code code = fill_all(&filling, kind, &source, &remove)
                             ? SKR_OK
                             : skr_fail_memory(error);
    if (code == SKR_OK)
        code = skr_cleaning_run(place->cleaning, place->db, &source, removed,
                                error);
    skr_arena_fini(&arena);
    return code;
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
    if (code != SKR_OK)
        return code;
    // Found first, and then removed by their ids.
    code = skr_schema_check_ids(skr_db_tx(db), queue->table, SKR_MESSENGER_ROW,
                                "skirnir setup", error);
    if (code != SKR_OK)
        return code;
    struct skr_arena arena = {0};
    const char *beside =
        skr_arena_format(&arena, "%s%s", queue->queue, pair->suffix);
    code = beside == NULL
               ? skr_fail_memory(error)
               : clean(&place, beside, pair->besides, removed, error);
    if (code == SKR_OK)
        code = clean(&place, queue->queue, pair->own, removed, error);
    skr_arena_fini(&arena);
    return code;
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
