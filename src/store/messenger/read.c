// SPDX-License-Identifier: MIT
// A scan in a snapshot of its own, and how many rows others have.

#include "base/text.h"
#include "store/messenger/layout.h"

// Parameters: queue, redeliver timeout.
static const char count_leased_sql[] =
    "SELECT COUNT(*) FROM (SELECT id FROM {table} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_LEASED " LIMIT 1000) AS leased";
// Workers that claim do so from the first row on, or keep up with the last.
// Parameters: cursor, queue, redeliver timeout.
static const char count_near_sql[] =
    "SELECT COUNT(*) FROM ({union_open}SELECT id, queue_name, delivered_at "
    "FROM {table} ORDER BY id LIMIT 250{union_close} UNION {union_open}"
    "SELECT id, queue_name, delivered_at FROM {table} WHERE id <= ? "
    "ORDER BY id DESC LIMIT 250{union_close}) AS near "
    "WHERE {queue_is_unindexed} AND " SKR_MESSENGER_LEASED;

bool
skr_messenger_fill_read(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, count_leased_sql,
                              &messenger->sql.count_leased) &&
           skr_messenger_fill(messenger, count_near_sql,
                              &messenger->sql.count_near);
}

enum skr_code
skr_messenger_look(const struct skr_messenger *messenger,
                   enum skr_scan_kind kind, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_scan(messenger, kind, skr_db_tx(db), position, read,
                              batch, error);
    skr_db_rollback(db);
    if (batch->count > 0)
        db->found_rows = true;
    return code;
}

enum skr_code
skr_messenger_leased(const struct skr_store *table, struct skr_db *db,
                     struct skr_position *position, uint64_t *count,
                     struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_value values[] = {
        skr_bind_integer(position->cursor),
        skr_bind_text(messenger->queue),
        skr_bind_integer(messenger->redeliver_timeout_s),
    };
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code = skr_messenger_learn(messenger, db, position, error);
    if (code != SKR_OK)
        return code;
    bool is_near = position->lacks_claims;
    const struct skr_statement statement = {
        .sql =
            is_near ? messenger->sql.count_near : messenger->sql.count_leased,
        .values = is_near ? values : values + 1,
        .value_count = SKR_COUNT_OF(values) - !is_near,
    };
    code = skr_tx_fetch_one(skr_db_tx(db), &statement, &arena, &value, 1,
                            &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK)
        *count = (uint64_t)value.integer;
    return code;
}
