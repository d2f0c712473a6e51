// SPDX-License-Identifier: MIT
// Consuming from the queue: rows are claimed by a lease and settled in place.
//
// A consumer that dies leaves its rows claimed; the consumer that claims them
// next finds their count of tries raised. So that a message which kills its
// consumer runs out of tries alone, a row that was tried before is never in
// hand together with another one: then only the guilty row can be left behind
// again.
//
// A thread renews the lease of rows in a handler's hands, with a connection of
// its own: the handler may have the consumer's for minutes.

#include "broker/queue/queue.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_BYTES = 8 * 1024 * 1024,
    // A full scan of the queue is followed by a pause so many times as long as
    // it took, but never longer than this.
    SCAN_PAUSE = 200,
    LONGEST_SCAN_PAUSE_MS = 60000,
    // A row knows whole seconds, and is never early.
    ROUNDING_MS = 2000,
    // A condition waits by a clock that stands still while the host is
    // suspended; leases go on. The time is looked at this often.
    LONGEST_WAIT_MS = 1000,
    PARK_MS = 60000,  // a row that cannot be claimed is tried again so often
};

// So many rows in hand are another's by now.
static void
log_lost(const struct queue_broker *broker, uint64_t rows)
{
    skr_log(&broker->log, SKR_LOG_WARNING, "queue.lease_lost",
            SKR_LOG_TEXT("name", broker->name), SKR_LOG_NUMBER("rows", rows));
}

static int64_t
interval_ms(const struct queue_broker *broker)
{
    return broker->redeliver_timeout_s * 1000 / 3;
}

// On an SQLite file that the handler itself has locked the renewal cannot get
// through. That is harmless: no other consumer can claim the rows either.
static void
log_failure(struct queue_broker *broker, const struct skr_error *error)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    bool busy = error->code == SKR_CONFLICT;
    if (busy && keepalive->logged_busy)
        return;
    keepalive->logged_busy = keepalive->logged_busy || busy;
    skr_log(&broker->log, busy ? SKR_LOG_DEBUG : SKR_LOG_WARNING,
            "queue.not_renewed", SKR_LOG_TEXT("name", broker->name),
            SKR_LOG_TEXT("error", error->text));
}

static void
renew(struct queue_broker *broker)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    struct skr_error error = {0};
    struct skr_batch *held = &keepalive->held;
    enum skr_code code = SKR_OK;
    if (keepalive->db == NULL)
        code = skr_db_open(broker->database, broker->database_url,
                           &keepalive->db, &error);
    if (code == SKR_OK)
        code = broker->table->leases->renew(broker->table, keepalive->db, held,
                                            &error);
    if (code != SKR_OK) {
        log_failure(broker, &error);
        if (error.remedy == SKR_RECONNECT) {
            skr_db_close(keepalive->db);
            keepalive->db = NULL;
        }
        return;
    }
    size_t kept = 0;
    skr_arena_reset(&held->arena);
    for (size_t i = 0; i < held->count; i++)
        if (!held->items[i].lost)
            held->items[kept++] = held->items[i];
    size_t lost = held->count - kept;
    if (lost == 0)
        return;
    held->count = kept;
    keepalive->has_lost = true;
    log_lost(broker, lost);
}

static void *
keep_alive(void *user)
{
    struct queue_broker *broker = user;
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    while (!keepalive->stopping) {
        keepalive->is_idle = keepalive->held.count == 0;
        if (keepalive->is_idle) {
            pthread_cond_wait(&keepalive->wake, &keepalive->mutex);
            continue;
        }
        int64_t delay_ms = keepalive->renew_at_ms - skr_clock_ms();
        if (delay_ms > 0) {
            struct timespec until = skr_clock_deadline(
                delay_ms < LONGEST_WAIT_MS ? delay_ms : LONGEST_WAIT_MS);
            pthread_cond_timedwait(&keepalive->wake, &keepalive->mutex, &until);
            continue;
        }
        renew(broker);
        keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
    }
    pthread_mutex_unlock(&keepalive->mutex);
    skr_db_close(keepalive->db);
    return NULL;
}

// Starts the thread unless it runs.
static enum skr_code
start_keepalive(struct queue_broker *broker, size_t capacity,
                struct skr_error *error)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    if (!keepalive->is_ready) {
        if (skr_condition_init(&keepalive->wake) != 0)
            return skr_fail_memory(error);
        pthread_mutex_init(&keepalive->mutex, NULL);
        keepalive->is_ready = true;
    }
    pthread_mutex_lock(&keepalive->mutex);
    struct skr_batch *held = &keepalive->held;
    bool has_room = skr_vec_reserve(&held->items, &held->capacity, capacity,
                                    sizeof(*held->items));
    pthread_mutex_unlock(&keepalive->mutex);
    if (!has_room)
        return skr_fail_memory(error);
    if (keepalive->is_running)
        return SKR_OK;
    int failed = skr_thread_start(&keepalive->thread, keep_alive, broker);
    if (failed != 0)
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot start the keepalive thread: %s",
                        strerror(failed));
    keepalive->is_running = true;
    return SKR_OK;
}

// From now on these rows are renewed.
static void
hold(struct queue_broker *broker, const struct skr_batch *batch, size_t count)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    pthread_mutex_lock(&keepalive->mutex);
    struct skr_batch *held = &keepalive->held;
    for (size_t i = 0; i < count; i++)
        held->items[i] = (struct skr_batch_item){.row = batch->items[i].row};
    held->count = count;
    held->lease = batch->lease;
    keepalive->has_lost = false;
    keepalive->renew_at_ms = skr_clock_ms() + interval_ms(broker);
    // Once a second at most: after that the thread looks by itself.
    if (keepalive->is_idle)
        pthread_cond_signal(&keepalive->wake);
    keepalive->is_idle = false;
    pthread_mutex_unlock(&keepalive->mutex);
}

// A row that is settled needs no renewal. With the mutex, as the next.
static void
drop(struct queue_keepalive *keepalive, int64_t row)
{
    struct skr_batch *held = &keepalive->held;
    for (size_t i = 0; i < held->count; i++)
        if (held->items[i].row == row) {
            held->items[i] = held->items[--held->count];
            return;
        }
}

// One that is not held any more is another's, and may only be deleted.
static bool
holds(const struct queue_keepalive *keepalive, int64_t row)
{
    if (!keepalive->has_lost)
        return true;
    for (size_t i = 0; i < keepalive->held.count; i++)
        if (keepalive->held.items[i].row == row)
            return true;
    return false;
}

static enum skr_code
reserve(struct skr_batch *batch, size_t capacity, struct skr_error *error)
{
    if (batch->capacity >= capacity)
        return SKR_OK;
    skr_batch_fini(batch);
    return skr_batch_init(batch, capacity, error);
}

static enum skr_code
start(struct queue_broker *broker, size_t capacity, struct skr_error *error)
{
    enum skr_code code = reserve(&broker->batch, capacity, error);
    if (code == SKR_OK)
        code = reserve(&broker->settling, capacity, error);
    if (code == SKR_OK && broker->reader == NULL)
        code = broker->table->source->open(broker->table, broker->db,
                                           broker->derives_ids, &broker->reader,
                                           error);
    if (code != SKR_OK)
        return code;
    return start_keepalive(broker, capacity, error);
}

static bool
was_tried(const struct skr_batch_item *item)
{
    return item->redelivered || item->envelope.retry_count > 0;
}

// Moves what may be handed out together to the front of the batch: the first
// row alone if it was tried before, else all rows that were not.
static size_t
choose(struct skr_batch *batch)
{
    if (was_tried(&batch->items[0]))
        return 1;
    size_t chosen = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (was_tried(&batch->items[i]))
            continue;
        struct skr_batch_item item = batch->items[i];
        batch->items[i] = batch->items[chosen];
        batch->items[chosen++] = item;
    }
    return chosen;
}

// Gives the rows from `first` on back to the queue at once. Should that fail
// they come again when their lease has run out; those before are in hand.
static void
free_tail(struct queue_broker *broker, size_t first)
{
    struct skr_batch *batch = &broker->batch;
    struct skr_batch tail = {.items = batch->items + first,
                             .count = batch->count - first,
                             .capacity = batch->count - first,
                             .lease = batch->lease};
    for (size_t i = 0; i < tail.count; i++)
        broker->table->leases->rewind(broker->reader, tail.items[i].row);
    batch->count = first;
    // They are looked at one by one.
    broker->claim_size = 1;
    struct skr_error error = {0};
    if (broker->table->leases->release(broker->table, broker->db, &tail,
                                       &error) != SKR_OK)
        skr_log(&broker->log, SKR_LOG_WARNING, "queue.not_released",
                SKR_LOG_TEXT("name", broker->name),
                SKR_LOG_NUMBER("rows", tail.count),
                SKR_LOG_TEXT("error", error.text));
}

// The table scans as often as is good for small queues. In a large one, such
// as a million rows for tomorrow, that would keep a consumer busy that has
// nothing to do.
static enum skr_code
claim_rows(struct queue_broker *broker, const struct skr_read *read,
           struct skr_error *error)
{
    const struct skr_source_ops *source = broker->table->source;
    int64_t before_ms = source->status(broker->reader).next_full_scan_ms;
    int64_t start_ms = skr_clock_ms();
    enum skr_code code = broker->table->leases->claim(broker->reader, read,
                                                      &broker->batch, error);
    int64_t scan_ms = source->status(broker->reader).next_full_scan_ms;
    if (scan_ms == before_ms)
        return code;
    int64_t now_ms = skr_clock_ms();
    int64_t pause_ms = (now_ms - start_ms) * SCAN_PAUSE;
    if (pause_ms > LONGEST_SCAN_PAUSE_MS)
        pause_ms = LONGEST_SCAN_PAUSE_MS;
    if (scan_ms < now_ms + pause_ms)
        source->plan_scan(broker->reader, now_ms + pause_ms);
    return code;
}

// What the database refuses to change stays as it is. It comes again when its
// lease has run out, and the deduplication knows what was handled.
static void
log_refusal(const struct queue_broker *broker,
            const struct skr_batch_item *item)
{
    bool stays = item->write == SKR_WRITE_REFUSED;
    const char *outcome = item->state == SKR_READ ? "unclaimed" : "retry";
    skr_log(
        &broker->log, SKR_LOG_WARNING, "queue.row_refused",
        SKR_LOG_TEXT("name", broker->name), SKR_LOG_NUMBER("row", item->row),
        SKR_LOG_TEXT("outcome", item->state == SKR_DONE ? "handled" : outcome),
        SKR_LOG_TEXT("error", item->refusal),
        SKR_LOG_TEXT("cure", stays ? "mend what refuses to change the row; it "
                                     "comes again after a while"
                                   : "mend what refuses to change the row; the "
                                     "outcome alone was written to it"));
}

// What the database refuses to lease is left alone for a while.
static enum skr_code
park(struct queue_broker *broker, struct skr_error *error)
{
    const struct skr_batch_item *item = &broker->batch.items[0];
    const struct skr_parked_row row = {.row = item->row,
                                       .until_ms = skr_clock_ms() + PARK_MS};
    bool is_new = skr_parked_add(&broker->parked, row);
    if (!skr_parked_knows(&broker->parked, row.row))
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "too many rows of queue %s cannot be claimed, as "
                        "queue.row_refused says: %s",
                        broker->name, item->refusal);
    if (is_new)
        log_refusal(broker, item);
    skr_batch_clear(&broker->batch);
    return SKR_OK;
}

static bool
is_refused(const struct skr_batch *batch)
{
    return batch->count == 1 && batch->items[0].write == SKR_WRITE_REFUSED;
}

// Claims grow from one row to as many as are wanted, and fall back to one as
// soon as a row shows up that was tried before.
static enum skr_code
claim(struct queue_broker *broker, size_t capacity, struct skr_error *error)
{
    if (broker->claim_size == 0)
        broker->claim_size = 1;
    skr_parked_release(&broker->parked, skr_clock_ms());
    skr_row_set_clear(&broker->passed);
    if (!skr_parked_list(&broker->parked, &broker->passed))
        return skr_fail_memory(error);
    struct skr_read read = {
        .max_rows =
            broker->claim_size < capacity ? broker->claim_size : capacity,
        .max_bytes = MOST_BYTES,
        .counts_tries = true,
        .parked = broker->passed.rows,
        .parked_count = broker->passed.count,
    };
    skr_batch_clear(&broker->batch);
    enum skr_code code = claim_rows(broker, &read, error);
    if (code != SKR_OK || broker->batch.count == 0)
        return code;
    if (is_refused(&broker->batch))
        return SKR_OK;
    size_t chosen = choose(&broker->batch);
    if (was_tried(&broker->batch.items[0]))
        broker->claim_size = 1;
    else if (broker->claim_size < capacity)
        broker->claim_size *= 4;
    hold(broker, &broker->batch, chosen);
    if (chosen < broker->batch.count)
        free_tail(broker, chosen);
    return SKR_OK;
}

// What tells how a row is to be read is of no use to the handler that gets the
// message, and would change how it is read when it fails.
static enum skr_code
drop_reserved(struct skr_arena *arena, struct skr_headers *headers,
              struct skr_error *error)
{
    size_t reserved = 0;
    for (size_t i = 0; i < headers->count; i++)
        reserved += skr_headers_is_reserved(headers->items[i].name);
    if (reserved == 0)
        return SKR_OK;
    struct skr_headers left = {0};
    for (size_t i = 0; i < headers->count; i++)
        if (!skr_headers_is_reserved(headers->items[i].name) &&
            !skr_headers_add(arena, &left, headers->items[i].name,
                             headers->items[i].value))
            return skr_fail_memory(error);
    *headers = left;
    return SKR_OK;
}

// What was derived stands in for the id that a broker would give.
static enum skr_code
fill(struct queue_broker *broker, size_t index, struct skr_incoming *incoming,
     struct skr_error *error)
{
    const struct skr_batch_item *item = &broker->batch.items[index];
    const struct skr_message *message = &item->envelope.message;
    *incoming = (struct skr_incoming){
        .headers = item->envelope.headers,
        .raw_headers = item->raw_headers,
        .raw_headers_size = item->raw_headers_size,
        .body = message->body,
        .body_size = message->body_size,
        .created_at_us = message->created_at_us,
        .retry_count = item->envelope.retry_count,
        .redelivered = was_tried(item),
        .handle = index,
    };
    enum skr_code code =
        drop_reserved(&broker->batch.arena, &incoming->headers, error);
    if (item->state == SKR_DEAD)
        incoming->problem = item->reason;
    if (code != SKR_OK || !broker->derives_ids || !item->envelope.has_id)
        return code;
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    return skr_arena_keep(&broker->batch.arena, id, &incoming->broker_id,
                          error);
}

// SKR_OK: look again.
static enum skr_code
wait_for_rows(struct queue_broker *broker, int64_t deadline_ms,
              struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    if (now_ms >= deadline_ms)
        return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                        "nothing is waiting in queue %s", broker->name);
    int64_t until_ms = broker->table->source->status(broker->reader).wake_ms;
    if (until_ms == 0 || until_ms > deadline_ms)
        until_ms = deadline_ms;
    int64_t wait_ms = until_ms > now_ms ? until_ms - now_ms : 1;
    enum skr_code code = broker->db->ops->wait(broker->db, broker->base.wake_fd,
                                               (uint32_t)wait_ms, error);
    return code == SKR_TIMEOUT ? SKR_OK : code;
}

struct skr_broker_status
skr_queue_status(struct skr_broker *base)
{
    const struct queue_broker *broker = (struct queue_broker *)base;
    return (struct skr_broker_status){.has_deferred = broker->has_deferred};
}

enum skr_code
skr_queue_receive(struct skr_broker *base, struct skr_incoming *incoming,
                  size_t capacity, size_t *count, uint32_t timeout_ms,
                  struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    enum skr_code code = start(broker, capacity, error);
    if (code != SKR_OK)
        return code;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    broker->has_deferred = skr_clock_ms() < broker->deferred_until_ms;
    for (;;) {
        if (broker->base.wake_fd >= 0 &&
            skr_clock_sleep(broker->base.wake_fd, 0))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                            "stop was requested");
        code = claim(broker, capacity, error);
        if (code != SKR_OK)
            return code;
        if (broker->batch.count > 0 && !is_refused(&broker->batch))
            break;
        code = broker->batch.count > 0
                   ? park(broker, error)
                   : wait_for_rows(broker, deadline_ms, error);
        if (code != SKR_OK)
            return code;
    }
    for (size_t i = 0; i < broker->batch.count && code == SKR_OK; i++)
        code = fill(broker, i, &incoming[i], error);
    if (code == SKR_OK)
        *count = broker->batch.count;
    return code;
}

static void
take_settlement(const struct skr_incoming *incoming,
                struct skr_batch_item *item)
{
    switch (incoming->settlement) {
    case SKR_SETTLE_REQUEUE: item->state = SKR_READ; return;
    case SKR_SETTLE_ACK: item->state = SKR_DONE; return;
    case SKR_SETTLE_DEFER:
    case SKR_SETTLE_RETRY:
        item->is_not_counted = incoming->settlement == SKR_SETTLE_DEFER;
        item->state = item->is_not_counted && incoming->delay_ms == 0
                          ? SKR_READ
                          : SKR_RETRY_LATER;
        item->delay_ms = incoming->delay_ms;
        item->reason = incoming->reason;
        return;
    }
}

static void
note_held(struct queue_broker *broker, const struct skr_incoming *incoming)
{
    int64_t due_ms = skr_clock_ms() + incoming->delay_ms + ROUNDING_MS;
    if (incoming->settlement == SKR_SETTLE_DEFER && incoming->delay_ms > 0 &&
        due_ms > broker->deferred_until_ms)
        broker->deferred_until_ms = due_ms;
}

// Takes the items to settle into a batch of their own. A row that another
// consumer has by now is left alone, unless it is dealt with: then it may go,
// although another has it.
static void
gather(struct queue_broker *broker, struct skr_incoming *incoming, size_t count)
{
    struct skr_batch *settling = &broker->settling;
    for (size_t i = 0; i < count; i++) {
        struct skr_batch_item *item = &broker->batch.items[incoming[i].handle];
        take_settlement(&incoming[i], item);
        note_held(broker, &incoming[i]);
        incoming[i].was_lost =
            item->state != SKR_DONE && !holds(&broker->keepalive, item->row);
        if (!incoming[i].was_lost)
            settling->items[settling->count++] = *item;
    }
}

static void
finish_settled(struct queue_broker *broker, struct skr_incoming *incoming,
               size_t count)
{
    const struct skr_batch_item *item = broker->settling.items;
    for (size_t i = 0; i < count; i++) {
        if (incoming[i].was_lost)
            continue;
        bool is_refused = item->write == SKR_WRITE_REFUSED;
        incoming[i].was_lost =
            item->lost || (is_refused && item->state != SKR_DONE);
        if (item->refusal != NULL &&
            skr_parked_add(&broker->parked,
                           (struct skr_parked_row){.row = item->row}))
            log_refusal(broker, item);
        drop(&broker->keepalive, item->row);
        if (item->state == SKR_READ)
            broker->table->leases->rewind(broker->reader, item->row);
        item++;
    }
}

enum skr_code
skr_queue_settle(struct skr_broker *base, struct skr_incoming *incoming,
                 size_t count, struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    struct skr_batch *settling = &broker->settling;
    uint64_t lost = 0;
    skr_batch_clear(settling);
    // The lease does not move meanwhile, and is that of every row that is held.
    pthread_mutex_lock(&broker->keepalive.mutex);
    settling->lease = broker->keepalive.held.lease;
    gather(broker, incoming, count);
    enum skr_code code = broker->table->settle->write(broker->table, broker->db,
                                                      settling, error);
    for (size_t i = 0; code == SKR_OK && i < settling->count; i++)
        lost += settling->items[i].lost;
    if (code == SKR_OK)
        finish_settled(broker, incoming, count);
    pthread_mutex_unlock(&broker->keepalive.mutex);
    if (code == SKR_OK && lost > 0)
        log_lost(broker, lost);
    return code;
}

void
skr_queue_consumer_fini(struct queue_broker *broker)
{
    struct queue_keepalive *keepalive = &broker->keepalive;
    if (keepalive->is_running) {
        pthread_mutex_lock(&keepalive->mutex);
        keepalive->stopping = true;
        pthread_cond_signal(&keepalive->wake);
        pthread_mutex_unlock(&keepalive->mutex);
        pthread_join(keepalive->thread, NULL);
    }
    if (keepalive->is_ready) {
        pthread_cond_destroy(&keepalive->wake);
        pthread_mutex_destroy(&keepalive->mutex);
    }
    skr_batch_fini(&keepalive->held);
    skr_batch_fini(&broker->batch);
    skr_batch_fini(&broker->settling);
    skr_parked_fini(&broker->parked);
    skr_row_set_fini(&broker->passed);
    free(broker->reader);
}
