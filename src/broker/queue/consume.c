// SPDX-License-Identifier: MIT
// Consuming from the queue: rows are claimed by a lease and settled in place.
//
// A consumer that dies leaves its rows claimed; whoever claims them next finds
// their count of tries raised. So that a message which kills its consumer runs
// out of tries alone, a row that was tried before is never in hand together
// with another one: then only the guilty row can be left behind again.

#include "broker/queue/queue.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

enum { MOST_BYTES = 8 * 1024 * 1024 };

static enum skr_code
start(struct queue_broker *broker, size_t capacity, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (broker->batch.capacity < capacity) {
        skr_batch_fini(&broker->batch);
        skr_batch_fini(&broker->settling);
        code = skr_batch_init(&broker->batch, capacity, error);
        if (code == SKR_OK)
            code = skr_batch_init(&broker->settling, capacity, error);
        if (code != SKR_OK)
            return code;
    }
    return skr_queue_keepalive_start(broker, capacity, error);
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

// Gives the rows from `first` on back to the queue at once.
static enum skr_code
free_tail(struct queue_broker *broker, size_t first,
          const struct skr_lease *lease, struct skr_error *error)
{
    struct skr_batch *batch = &broker->batch;
    if (first == batch->count)
        return SKR_OK;
    struct skr_batch tail = {.items = batch->items + first,
                             .count = batch->count - first,
                             .capacity = batch->count - first};
    for (size_t i = 0; i < tail.count; i++)
        tail.items[i].state = SKR_READ;
    // They lie behind the cursor now: the next claim starts over, one by one.
    broker->position = (struct skr_position){0};
    broker->claim_size = 1;
    batch->count = first;
    return skr_messenger_release(broker->table, broker->db, &tail, lease,
                                 error);
}

// Claims grow from one row to as many as are wanted, and fall back to one as
// soon as a row shows up that was tried before.
static enum skr_code
claim(struct queue_broker *broker, size_t capacity, struct skr_error *error)
{
    if (broker->claim_size == 0)
        broker->claim_size = 1;
    struct skr_read read = {
        .max_rows =
            broker->claim_size < capacity ? broker->claim_size : capacity,
        .max_bytes = MOST_BYTES,
    };
    struct skr_lease lease = {0};
    skr_batch_clear(&broker->batch);
    enum skr_code code =
        skr_messenger_claim(broker->table, broker->db, &broker->position, &read,
                            &broker->batch, &lease, error);
    if (code != SKR_OK || broker->batch.count == 0)
        return code;
    size_t chosen = choose(&broker->batch);
    if (was_tried(&broker->batch.items[0]))
        broker->claim_size = 1;
    else if (broker->claim_size < capacity)
        broker->claim_size *= 4;
    code = free_tail(broker, chosen, &lease, error);
    if (code == SKR_OK)
        skr_queue_keepalive_hold(broker, &broker->batch, chosen, &lease);
    return code;
}

static void
fill(const struct skr_batch_item *item, size_t index,
     struct skr_incoming *incoming)
{
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
    if (item->state == SKR_HOPELESS)
        incoming->problem = item->reason;
}

static int64_t
earlier(int64_t deadline_ms, int64_t event_ms)
{
    return event_ms > 0 && event_ms < deadline_ms ? event_ms : deadline_ms;
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
    int64_t until_ms = earlier(deadline_ms, broker->position.next_due_ms);
    until_ms = earlier(until_ms, broker->position.next_sweep_ms);
    int64_t wait_ms = until_ms > now_ms ? until_ms - now_ms : 1;
    enum skr_code code = broker->db->ops->wait(broker->db, broker->wake_fd,
                                               (uint32_t)wait_ms, error);
    return code == SKR_TIMEOUT ? SKR_OK : code;
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
    for (;;) {
        if (broker->wake_fd >= 0 && skr_clock_sleep(broker->wake_fd, 0))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                            "stop was requested");
        code = claim(broker, capacity, error);
        if (code != SKR_OK)
            return code;
        if (broker->batch.count > 0)
            break;
        code = wait_for_rows(broker, deadline_ms, error);
        if (code != SKR_OK)
            return code;
    }
    for (size_t i = 0; i < broker->batch.count; i++)
        fill(&broker->batch.items[i], i, &incoming[i]);
    *count = broker->batch.count;
    return SKR_OK;
}

static void
take_settlement(const struct skr_incoming *incoming,
                struct skr_batch_item *item)
{
    switch (incoming->settlement) {
    case SKR_SETTLE_RELEASE: item->state = SKR_READ; return;
    case SKR_SETTLE_ACK: item->state = SKR_DONE; return;
    case SKR_SETTLE_RETRY:
        item->state = SKR_RETRY_LATER;
        item->delay_ms = incoming->delay_ms;
        item->reason = incoming->reason;
        return;
    }
}

enum skr_code
skr_queue_settle(struct skr_broker *base, struct skr_incoming *incoming,
                 size_t count, struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    struct skr_batch *settling = &broker->settling;
    bool releases = false;
    settling->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct skr_batch_item *item = &broker->batch.items[incoming[i].handle];
        take_settlement(&incoming[i], item);
        releases = releases || item->state == SKR_READ;
        settling->items[settling->count++] = *item;
    }
    struct skr_lease lease = skr_queue_keepalive_lock(&broker->keepalive);
    enum skr_code code = skr_messenger_release(broker->table, broker->db,
                                               settling, &lease, error);
    for (size_t i = 0; i < settling->count && code == SKR_OK; i++)
        skr_queue_keepalive_drop(&broker->keepalive, settling->items[i].row);
    skr_queue_keepalive_unlock(&broker->keepalive);
    // What was given back lies behind the cursor.
    if (releases)
        broker->position = (struct skr_position){0};
    return code;
}
