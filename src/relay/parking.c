// SPDX-License-Identifier: MIT
// Parking rows, telling of them, and trying them again.

#include "relay/parking.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>

enum {
    MOST_LINES = 5,   // about one batch
    AGAIN_PAUSE = 4,  // times as long as trying parked rows took
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 5000,
};

enum skr_code
skr_parking_init(struct skr_parking *parking, struct skr_error *error)
{
    parking->again.tries_once = true;
    parking->waiting_backoff = (struct skr_backoff){
        .first_ms = FIRST_PAUSE_MS, .longest_ms = LONGEST_PAUSE_MS};
    return skr_batch_init(&parking->again.batch, SKR_MOST_AGAIN, error);
}

void
skr_parking_fini(struct skr_parking *parking)
{
    skr_batch_fini(&parking->again.batch);
    skr_parked_fini(&parking->parked);
}

void
skr_parking_work_on(struct skr_parking *parking, uint64_t server)
{
    size_t published = parking->parked.published;
    if (parking->server == server)
        return;
    parking->server = server;
    skr_parked_clear(&parking->parked);
    if (published > 0)
        skr_log(parking->log, SKR_LOG_WARNING, "relay.server_changed",
                SKR_LOG_TEXT("name", parking->name),
                SKR_LOG_NUMBER("unsettled", published));
}

static struct skr_parked_row
row_of(const struct skr_batch_item *item)
{
    struct skr_parked_row row = {.row = item->row};
    if (item->created_at != NULL)
        snprintf(row.created_at, sizeof(row.created_at), "%s",
                 item->created_at);
    return row;
}

static bool
is_refused(const struct skr_batch_item *item)
{
    return item->write == SKR_WRITE_REFUSED;
}

// Whether the published rows of the batch that were refused find room. What is
// parked is sent once more by the next relay: its number is bounded for that.
static bool
has_room(struct skr_parking *parking, const struct skr_batch *batch)
{
    size_t published = 0;
    for (size_t i = 0; i < batch->count; i++)
        published +=
            is_refused(&batch->items[i]) && batch->items[i].state == SKR_DONE;
    return published == 0 || skr_parked_reserve(&parking->parked, published);
}

static void
put_off(struct skr_parking *parking, struct skr_job *job)
{
    struct skr_batch *batch = &job->batch;
    struct skr_error error = {0};
    for (size_t i = 0; i < batch->count; i++)
        if (is_refused(&batch->items[i]))
            batch->items[i].write = SKR_WRITE_WHOLE;
    batch->is_late = true;
    skr_fail(&error, SKR_REFUSED, SKR_TRY_AGAIN,
             "the database refuses to change %d published rows of the outbox, "
             "as relay.row_parked says; no more are sent",
             SKR_MOST_PARKED_PUBLISHED);
    skr_trouble_report(&parking->trouble, parking->log, "relay.settle_trouble",
                       parking->name, &error);
    if (parking->waiting == NULL)
        parking->waiting_ms =
            skr_clock_ms() + skr_backoff_next(&parking->waiting_backoff);
    job->next = parking->waiting;
    parking->waiting = job;
    parking->put_off += !job->was_put_off;
    job->was_put_off = true;
}

// The job is settled. Once all are that had found no room the trouble is over.
static void
note_settled(struct skr_parking *parking, struct skr_job *job)
{
    parking->put_off -= job->was_put_off;
    job->was_put_off = false;
    if (parking->put_off > 0)
        return;
    skr_backoff_reset(&parking->waiting_backoff);
    skr_trouble_end(&parking->trouble, parking->log, "relay.settle_recovered",
                    parking->name);
}

static void
log_refusal(const struct skr_parking *parking,
            const struct skr_batch_item *item)
{
    const char *outcome = "retry";
    if (item->state == SKR_DONE)
        outcome = "published";
    else if (item->state == SKR_HOPELESS)
        outcome = "failed";
    else if (item->state == SKR_BLOCKED)
        outcome = "blocked";
    skr_log(parking->log, SKR_LOG_WARNING,
            is_refused(item) ? "relay.row_parked" : "relay.row_stays",
            SKR_LOG_TEXT("name", parking->name),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_TEXT("outcome", outcome),
            SKR_LOG_TEXT("error", item->refusal),
            SKR_LOG_TEXT("cure",
                         is_refused(item)
                             ? "mend what refuses to change the row; until "
                               "then the row is left alone and tried now and "
                               "then"
                             : "mend what refuses to change the row; the "
                               "outcome alone was written to it"));
}

// Notes what the database refused. True: it was not known.
static bool
note_refusal(struct skr_parking *parking, const struct skr_batch_item *item)
{
    // It is gone for good, but for a retry: that may come again.
    if (!is_refused(item) && item->state != SKR_RETRY_LATER)
        return true;
    struct skr_parked_row row = row_of(item);
    row.is_published = is_refused(item) && item->state == SKR_DONE;
    if (is_refused(item))
        row.until_ms = skr_clock_ms() + parking->park_ms;
    return skr_parked_add(&parking->parked, row);
}

// Parks a row that was refused, or takes one out that no longer is. True: its
// refusal was not known.
static bool
park(struct skr_parking *parking, const struct skr_job *job,
     const struct skr_batch_item *item)
{
    if (item->is_put_back) {
        struct skr_parked_row row = row_of(item);
        row.until_ms = job->refused_ms + parking->park_ms;
        skr_parked_add(&parking->parked, row);
        return false;
    }
    if (!skr_has_outcome(item))
        return false;
    if (item->refusal != NULL)
        return note_refusal(parking, item);
    skr_parked_remove(&parking->parked, item->row);
    return false;
}

bool
skr_parking_take(struct skr_parking *parking, struct skr_job *job)
{
    const struct skr_batch *batch = &job->batch;
    size_t told = 0;
    if (!has_room(parking, batch)) {
        put_off(parking, job);
        return false;
    }
    note_settled(parking, job);
    // A row of another server is none of those that are parked.
    for (size_t i = 0; i < batch->count && batch->server == parking->server;
         i++)
        if (park(parking, job, &batch->items[i]) && ++told <= MOST_LINES)
            log_refusal(parking, &batch->items[i]);
    if (told > MOST_LINES)
        skr_log(parking->log, SKR_LOG_WARNING, "relay.refused_more",
                SKR_LOG_TEXT("name", parking->name),
                SKR_LOG_NUMBER("rows", told - MOST_LINES));
    return true;
}

// Published rows that are parked and due, as a job.
static struct skr_job *
list_again(struct skr_parking *parking, const struct skr_ownership *ownership)
{
    struct skr_batch *batch = &parking->again.batch;
    const struct skr_parked_row *rows = parking->again_rows;
    int64_t now_ms = skr_clock_ms();
    skr_batch_clear(batch);
    batch->count =
        skr_parked_take_due(&parking->parked, now_ms, now_ms + parking->park_ms,
                            parking->again_rows, SKR_MOST_AGAIN);
    batch->server = parking->server;
    batch->claim = SKR_CLAIM_NONE;
    skr_ownership_stamp(ownership, batch);
    batch->is_late = true;
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i] = (struct skr_batch_item){
            .row = rows[i].row,
            .created_at = rows[i].created_at,
            .state = SKR_DONE,
        };
    parking->is_settling = true;
    return &parking->again;
}

static int64_t
again_due_ms(const struct skr_parking *parking)
{
    return parking->is_settling ? 0 : skr_parked_due_ms(&parking->parked);
}

struct skr_job *
skr_parking_next_job(struct skr_parking *parking,
                     const struct skr_ownership *ownership, bool is_settling)
{
    int64_t now_ms = skr_clock_ms();
    struct skr_job *waiting = parking->waiting;
    int64_t due_ms = again_due_ms(parking);
    if (due_ms > 0 && due_ms <= now_ms && skr_ownership_has_rows(ownership) &&
        (!is_settling || parking->again_ms <= now_ms))
        return list_again(parking, ownership);
    if (waiting == NULL || parking->waiting_ms > now_ms)
        return NULL;
    parking->waiting = waiting->next;
    return waiting;
}

int64_t
skr_parking_next_job_ms(const struct skr_parking *parking,
                        const struct skr_ownership *ownership, bool is_settling)
{
    int64_t due_ms =
        skr_ownership_has_rows(ownership) ? again_due_ms(parking) : 0;
    if (due_ms > 0 && is_settling && due_ms < parking->again_ms)
        due_ms = parking->again_ms;
    return skr_clock_earlier(
        due_ms, parking->waiting == NULL ? 0 : parking->waiting_ms);
}

// Many rows that are refused one by one take long.
bool
skr_parking_is_again(struct skr_parking *parking, const struct skr_job *job)
{
    const struct skr_batch *batch = &parking->again.batch;
    size_t settled = 0;
    int64_t now_ms = skr_clock_ms();
    if (job != &parking->again)
        return false;
    parking->is_settling = false;
    parking->again_ms = now_ms + AGAIN_PAUSE * job->took_ms;
    if (job->has_failed) {
        skr_parked_put_off(&parking->parked, now_ms + parking->park_ms);
        return true;
    }
    for (size_t i = 0; i < batch->count && batch->server == parking->server;
         i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->is_replaced)
            settled += skr_parked_replace(&parking->parked, item->row);
        else if (!item->lost && !is_refused(item))
            settled += skr_parked_remove(&parking->parked, item->row);
    }
    if (settled > 0)
        skr_log(parking->log, SKR_LOG_INFO, "relay.unparked",
                SKR_LOG_TEXT("name", parking->name),
                SKR_LOG_NUMBER("rows", settled));
    return true;
}

bool
skr_parking_release(struct skr_parking *parking)
{
    return skr_parked_release(&parking->parked, skr_clock_ms());
}

int64_t
skr_parking_release_ms(const struct skr_parking *parking)
{
    return skr_parked_next_ms(&parking->parked);
}

bool
skr_parking_has_waiting(const struct skr_parking *parking)
{
    return parking->waiting != NULL;
}
