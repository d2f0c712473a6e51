// SPDX-License-Identifier: MIT
// What the settler tells of outcomes that are written: counts and log lines.

#include "outbox/settler.h"

enum { MOST_FAILURE_LINES = 5 };  // of one batch

void
skr_settler_tell(const struct skr_settler *settler)
{
    struct skr_relay_tally *tally = settler->tally;
    const struct skr_settler_counts *counts = &settler->counts;
    if (tally == NULL)
        return;
    atomic_store(&tally->parked, skr_parked_count(&settler->parked));
    atomic_store(&tally->published, counts->published);
    atomic_store(&tally->retried, counts->retried);
    atomic_store(&tally->failed, counts->failed);
    atomic_store(&tally->blocked, counts->blocked);
}

void
skr_settler_count(struct skr_settler *settler, const struct skr_batch *batch)
{
    struct skr_settler_counts *counts = &settler->counts;
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        bool is_written = item->write != SKR_WRITE_REFUSED;
        counts->published += item->state == SKR_DONE;
        counts->retried += is_written && item->state == SKR_RETRY_LATER;
        counts->failed += is_written && item->state == SKR_HOPELESS;
        counts->blocked += is_written && item->state == SKR_BLOCKED;
    }
}

// Nothing of the partition is sent before somebody does something.
static void
log_blocked(const struct skr_settler *settler, struct skr_db *db,
            const struct skr_batch_item *item)
{
    const struct skr_table *table = settler->table;
    uint64_t length = 0;
    // Of no weight: if it cannot be asked, the rest is said all the same.
    if (db == NULL || table->ops->measure(table, db, item->partition_key,
                                          &length, NULL) != SKR_OK)
        length = 0;
    skr_log(settler->log, SKR_LOG_WARNING, "relay.partition_blocked",
            SKR_LOG_TEXT("name", settler->name),
            SKR_LOG_TEXT("partition", item->partition_key),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_NUMBER("length", length),
            SKR_LOG_TEXT("error", item->reason.text),
            SKR_LOG_TEXT("cure", "mend the cause and run `skirnir partition "
                                 "retry`, or `skirnir partition skip`"));
}

// Each by itself while they are few; a batch full of them is one event.
void
skr_settler_log_outcomes(const struct skr_settler *settler, struct skr_db *db,
                         const struct skr_batch *batch)
{
    size_t failed = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->write == SKR_WRITE_REFUSED)
            continue;
        if (item->state == SKR_BLOCKED)
            log_blocked(settler, db, item);
        if (item->state != SKR_HOPELESS || ++failed > MOST_FAILURE_LINES)
            continue;
        skr_log(settler->log, SKR_LOG_WARNING, "relay.failed",
                SKR_LOG_TEXT("name", settler->name),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", item->reason.text));
    }
    if (failed > MOST_FAILURE_LINES)
        skr_log(settler->log, SKR_LOG_WARNING, "relay.failed_more",
                SKR_LOG_TEXT("name", settler->name),
                SKR_LOG_NUMBER("rows", failed - MOST_FAILURE_LINES));
}
