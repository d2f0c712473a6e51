// SPDX-License-Identifier: MIT
// Removing what was completed long ago, found by the index on that time.

#include "store/cleaning.h"
#include "store/kafka_outbox/layout.h"

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

enum skr_code
skr_kafka_outbox_clean(const struct skr_store *table,
                       const struct skr_cleaning *cleaning, struct skr_db *db,
                       uint64_t *removed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return skr_cleaning_run(cleaning, db,
                            &(struct skr_cleaning_source){
                                .table = outbox->name,
                                .find_sql = outbox->sql.find_old,
                                .count_sql = outbox->sql.count_old,
                                .remove = skr_cleaning_remove_rows,
                                .most = SKR_CLEANING_MOST_ROWS,
                                .user = &outbox->sql.remove,
                            },
                            removed, error);
}
