// SPDX-License-Identifier: MIT
// Parking rows that the database refuses to change, and telling of each once.

#include "base/clock.h"
#include "base/error.h"
#include "outbox/settler.h"

#include <stdio.h>

enum {
    MOST_REFUSAL_LINES = 5,  // of one batch
};

static struct skr_parked_row
row_of(const struct skr_batch_item *item)
{
    struct skr_parked_row row = {.row = item->row};
    if (item->created_at != NULL)
        snprintf(row.created_at, sizeof(row.created_at), "%s",
                 item->created_at);
    return row;
}

void
skr_settler_leave_unpublished(struct skr_settler *settler,
                              struct skr_batch *batch)
{
    pthread_mutex_lock(&settler->lock);
    for (size_t i = 0; i < batch->count; i++) {
        struct skr_batch_item *item = &batch->items[i];
        if (!skr_has_outcome(item) || item->state == SKR_DONE ||
            !skr_is_written_now(item))
            continue;
        item->state = SKR_READ;
        if (batch->server != settler->server)
            continue;
        struct skr_parked_row row = row_of(item);
        row.until_ms = skr_clock_ms() + settler->park_ms;
        skr_parked_add(&settler->parked, row);
    }
    pthread_mutex_unlock(&settler->lock);
}

static void
log_refusal(const struct skr_settler *settler,
            const struct skr_batch_item *item)
{
    const char *outcome = "retry";
    bool is_parked = item->write == SKR_WRITE_REFUSED;
    if (item->state == SKR_DONE)
        outcome = "published";
    else if (item->state == SKR_HOPELESS)
        outcome = "failed";
    else if (item->state == SKR_BLOCKED)
        outcome = "blocked";
    skr_log(settler->log, SKR_LOG_WARNING,
            is_parked ? "relay.row_parked" : "relay.row_stays",
            SKR_LOG_TEXT("name", settler->name),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_TEXT("outcome", outcome),
            SKR_LOG_TEXT("error", item->refusal),
            SKR_LOG_TEXT(
                "cure", is_parked
                            ? "mend what refuses to change the row; until then "
                              "the row is left alone and tried now and then"
                            : "mend what refuses to change the row; the "
                              "outcome alone was written to it"));
}

// Notes what the database refused. True: it was not known.
static bool
note_refusal(struct skr_settler *settler, const struct skr_batch_item *item)
{
    bool is_parked = item->write == SKR_WRITE_REFUSED;
    bool is_published = item->state == SKR_DONE;
    // Gone for good, but for a retry: that may come again.
    if (!is_parked && item->state != SKR_RETRY_LATER)
        return true;
    struct skr_parked_row row = row_of(item);
    row.is_published = is_parked && is_published;
    if (is_parked)
        row.until_ms = skr_clock_ms() + settler->park_ms;
    return skr_parked_add(&settler->parked, row);
}

enum skr_code
skr_settler_reserve_parked(struct skr_settler *settler, struct skr_batch *batch,
                           struct skr_error *error)
{
    size_t published = 0;
    for (size_t i = 0; i < batch->count; i++)
        published += batch->items[i].write == SKR_WRITE_REFUSED &&
                     batch->items[i].state == SKR_DONE;
    pthread_mutex_lock(&settler->lock);
    bool has_room =
        published == 0 || skr_parked_reserve(&settler->parked, published);
    pthread_mutex_unlock(&settler->lock);
    if (has_room)
        return SKR_OK;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].write == SKR_WRITE_REFUSED)
            batch->items[i].write = SKR_WRITE_WHOLE;
    return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                    "the database refuses to change %d published rows of the "
                    "outbox, as relay.row_parked says; no more are sent",
                    SKR_MOST_PARKED_PUBLISHED);
}

// Parks a row that was refused, or takes one out that no longer is. A row of a
// server that is no longer read is none of those that are parked. True: its
// refusal was not known.
static bool
park(struct skr_settler *settler, const struct skr_batch *batch,
     const struct skr_batch_item *item)
{
    bool is_new = false;
    pthread_mutex_lock(&settler->lock);
    if (batch->server != settler->server)
        is_new = false;
    else if (item->refusal != NULL)
        is_new = note_refusal(settler, item);
    else
        skr_parked_remove(&settler->parked, item->row);
    pthread_mutex_unlock(&settler->lock);
    return is_new;
}

void
skr_settler_park_refused(struct skr_settler *settler,
                         const struct skr_batch *batch)
{
    pthread_mutex_lock(&settler->lock);
    bool has_parked = settler->parked.count > 0;
    pthread_mutex_unlock(&settler->lock);
    size_t told = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (skr_has_outcome(item) && (has_parked || item->refusal != NULL) &&
            park(settler, batch, item) && ++told <= MOST_REFUSAL_LINES)
            log_refusal(settler, item);
    }
    if (told > MOST_REFUSAL_LINES)
        skr_log(settler->log, SKR_LOG_WARNING, "relay.refused_more",
                SKR_LOG_TEXT("name", settler->name),
                SKR_LOG_NUMBER("rows", told - MOST_REFUSAL_LINES));
}

size_t
skr_settler_unpark(struct skr_settler *settler)
{
    const struct skr_batch *batch = &settler->again;
    size_t settled = 0;
    pthread_mutex_lock(&settler->lock);
    bool is_read_now = batch->server == settler->server;
    for (size_t i = 0; i < batch->count && is_read_now; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->is_replaced)
            settled += skr_parked_replace(&settler->parked, item->row);
        else if (!item->lost && item->write != SKR_WRITE_REFUSED)
            settled += skr_parked_remove(&settler->parked, item->row);
    }
    pthread_mutex_unlock(&settler->lock);
    return settled;
}

size_t
skr_settler_list_parked(struct skr_settler *settler, int64_t *rows)
{
    pthread_mutex_lock(&settler->lock);
    size_t count = skr_parked_list(&settler->parked, rows);
    pthread_mutex_unlock(&settler->lock);
    return count;
}

size_t
skr_settler_list_unsettled(struct skr_settler *settler, int64_t *rows)
{
    pthread_mutex_lock(&settler->lock);
    size_t count = skr_parked_list_published(&settler->parked, false, rows);
    pthread_mutex_unlock(&settler->lock);
    return count;
}

bool
skr_settler_release_parked(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    bool is_some = skr_parked_release(&settler->parked, skr_clock_ms());
    pthread_mutex_unlock(&settler->lock);
    return is_some;
}

int64_t
skr_settler_parked_ms(struct skr_settler *settler)
{
    pthread_mutex_lock(&settler->lock);
    int64_t next_ms = skr_parked_next_ms(&settler->parked);
    pthread_mutex_unlock(&settler->lock);
    return next_ms;
}
