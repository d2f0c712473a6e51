// SPDX-License-Identifier: MIT
// Removing what was completed long ago, found by the index on that time.

#include "table/cleaning.h"
#include "table/kafka_outbox/layout.h"

enum { MOST_AT_ONCE = 100 };

static const char find_old_sql[] =
    "SELECT id, push_completed_at FROM {table} WHERE push_completed_at >= ? "
    "AND push_completed_at <= {now_minus} ORDER BY push_completed_at LIMIT ?";
static const char count_old_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE push_completed_at <= {now_minus}";

bool
skr_kafka_outbox_fill_clean(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill(outbox, find_old_sql, &outbox->sql.find_old) &&
           skr_kafka_outbox_fill(outbox, count_old_sql, &outbox->sql.count_old);
}

static enum skr_code
remove_found(const void *list, struct skr_tx tx,
             const union skr_cleaning_key *keys, size_t count,
             uint64_t *removed, struct skr_error *error)
{
    int64_t rows[MOST_AT_ONCE];
    for (size_t i = 0; i < count; i++)
        rows[i] = keys[i].row;
    const struct skr_list_run run = {
        .sql = list, .rows = rows, .count = count, .by_lists = true};
    enum skr_code code = skr_list_run(tx, &run, error);
    if (code == SKR_OK)
        *removed += count;
    return code;
}

enum skr_code
skr_kafka_outbox_clean(const struct skr_table *table,
                       const struct skr_cleaning *cleaning, struct skr_db *db,
                       uint64_t *removed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return skr_cleaning_run(cleaning, db,
                            &(struct skr_cleaning_source){
                                .table = outbox->name,
                                .find_sql = outbox->sql.find_old,
                                .count_sql = outbox->sql.count_old,
                                .remove = remove_found,
                                .most = MOST_AT_ONCE,
                                .user = &outbox->sql.remove,
                            },
                            removed, error);
}
