// SPDX-License-Identifier: MIT
#include "support/fake_queue.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct skr_fake_queue *the_queue;

struct fake_connection {
    struct skr_broker broker;
    struct skr_broker_status status;
    struct skr_arena arena;
};

struct skr_fake_queue *
skr_fake_queue_new(void)
{
    struct skr_fake_queue *queue =
        mmap(NULL, sizeof(*queue), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (queue == MAP_FAILED)
        abort();
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&queue->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    the_queue = queue;
    return queue;
}

void
skr_fake_queue_free(struct skr_fake_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
    munmap(queue, sizeof(*queue));
    the_queue = NULL;
}

static void
give_back(struct skr_fake_delivery *item)
{
    item->holder = NULL;
    item->is_held = false;
    item->redelivered = true;
    if (the_queue->limit > 0 && ++item->returns > the_queue->limit) {
        item->is_gone = true;
        the_queue->dropped++;
    }
}

void
skr_fake_queue_lose_holders(struct skr_fake_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->count; i++)
        if (!queue->items[i].is_gone && queue->items[i].holder != NULL)
            give_back(&queue->items[i]);
    pthread_mutex_unlock(&queue->lock);
}

void
skr_fake_queue_add(struct skr_fake_queue *queue, const char *headers,
                   const char *body, const char *broker_id)
{
    pthread_mutex_lock(&queue->lock);
    struct skr_fake_delivery *item = &queue->items[queue->count++];
    snprintf(item->headers, sizeof(item->headers), "%s", headers);
    snprintf(item->body, sizeof(item->body), "%s", body);
    snprintf(item->broker_id, sizeof(item->broker_id), "%s",
             broker_id == NULL ? "" : broker_id);
    pthread_mutex_unlock(&queue->lock);
}

size_t
skr_fake_queue_waiting(struct skr_fake_queue *queue)
{
    size_t waiting = 0;
    pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->count; i++)
        waiting += !queue->items[i].is_gone;
    pthread_mutex_unlock(&queue->lock);
    return waiting;
}

size_t
skr_fake_queue_releases(struct skr_fake_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    size_t releases = queue->releases;
    pthread_mutex_unlock(&queue->lock);
    return releases;
}

size_t
skr_fake_queue_holds(struct skr_fake_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    size_t holds = queue->holds;
    pthread_mutex_unlock(&queue->lock);
    return holds;
}

void
skr_fake_queue_set_away(struct skr_fake_queue *queue, bool is_away)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_away = is_away;
    pthread_mutex_unlock(&queue->lock);
}

static enum skr_code
check_connection(struct skr_error *error)
{
    pthread_mutex_lock(&the_queue->lock);
    bool is_away = the_queue->is_away;
    pthread_mutex_unlock(&the_queue->lock);
    if (!is_away)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the broker is away");
}

static enum skr_code
fake_open(struct skr_broker *broker, const struct skr_url *url,
          const struct skr_broker_options *options, struct skr_error *error)
{
    (void)url;
    (void)options;
    broker->can.delays = the_queue->refuses_retries;
    broker->can.hold_ms = the_queue->hold_ms;
    return check_connection(error);
}

static void
fake_close(struct skr_broker *broker)
{
    pthread_mutex_lock(&the_queue->lock);
    for (size_t i = 0; i < the_queue->count; i++)
        if (!the_queue->items[i].is_gone &&
            the_queue->items[i].holder == broker)
            give_back(&the_queue->items[i]);
    pthread_mutex_unlock(&the_queue->lock);
    skr_arena_fini(&((struct fake_connection *)broker)->arena);
}

static void
deliver(struct fake_connection *connection, size_t index,
        struct skr_incoming *incoming)
{
    struct skr_fake_delivery *item = &the_queue->items[index];
    *incoming = (struct skr_incoming){
        .raw_headers = item->headers,
        .raw_headers_size = strlen(item->headers),
        .body = item->body,
        .body_size = strlen(item->body),
        .broker_id = item->broker_id[0] == '\0' ? NULL : item->broker_id,
        .redelivered = item->redelivered,
        .delivery_count = (uint32_t)item->returns,
        .handle = index,
    };
    struct skr_headers headers = {0};
    if (skr_headers_parse(&connection->arena, item->headers,
                          strlen(item->headers), &headers,
                          &incoming->problem) == SKR_OK)
        incoming->headers = headers;
    item->holder = connection;
    item->is_held = false;
    item->deliveries++;
}

static bool
is_held_by(const struct skr_fake_delivery *item, const void *connection)
{
    return !item->is_gone && item->is_held && item->holder == connection;
}

static bool
is_ready(const struct skr_fake_delivery *item, const void *connection,
         int64_t now_ms)
{
    if (is_held_by(item, connection))
        return item->until_ms <= now_ms;
    return !item->is_gone && item->holder == NULL;
}

static size_t
take(struct fake_connection *connection, struct skr_incoming *incoming,
     size_t capacity)
{
    size_t count = 0;
    pthread_mutex_lock(&the_queue->lock);
    the_queue->receives++;
    skr_arena_reset(&connection->arena);
    int64_t now_ms = skr_clock_ms();
    size_t held = 0;
    for (size_t i = 0; i < the_queue->count; i++)
        held += is_held_by(&the_queue->items[i], connection);
    for (size_t i = 0; i < the_queue->count && count < capacity; i++)
        if (is_ready(&the_queue->items[i], connection, now_ms))
            deliver(connection, i, &incoming[count++]);
    connection->status.has_deferred = held > 0;
    connection->status.is_over_capacity =
        the_queue->most_held > 0 && held >= the_queue->most_held;
    pthread_mutex_unlock(&the_queue->lock);
    return count;
}

static enum skr_code
fake_receive(struct skr_broker *broker, struct skr_incoming *incoming,
             size_t capacity, size_t *count, uint32_t timeout_ms,
             struct skr_error *error)
{
    struct fake_connection *connection = (struct fake_connection *)broker;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    for (;;) {
        enum skr_code code = check_connection(error);
        if (code != SKR_OK)
            return code;
        *count = take(connection, incoming, capacity);
        if (*count > 0)
            return SKR_OK;
        if (skr_clock_ms() >= deadline_ms)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN, "empty");
        if (skr_clock_sleep(broker->wake_fd, 5))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stop");
    }
}

static enum skr_code
fake_settle(struct skr_broker *broker, struct skr_incoming *incoming,
            size_t count, struct skr_error *error)
{
    (void)broker;
    enum skr_code code = SKR_OK;
    pthread_mutex_lock(&the_queue->lock);
    if (the_queue->settles_to_lose > 0) {
        the_queue->settles_to_lose--;
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the connection is lost");
    }
    for (size_t i = 0; code == SKR_OK && i < count; i++) {
        struct skr_fake_delivery *item = &the_queue->items[incoming[i].handle];
        switch (incoming[i].settlement) {
        case SKR_SETTLE_ACK:
            item->is_gone = true;
            the_queue->acks++;
            break;
        case SKR_SETTLE_REQUEUE:
            give_back(item);
            the_queue->releases++;
            break;
        case SKR_SETTLE_DEFER:
            item->is_held = true;
            item->until_ms = skr_clock_ms() + incoming[i].delay_ms;
            the_queue->holds++;
            break;
        case SKR_SETTLE_RETRY:
            if (the_queue->refuses_retries) {
                incoming[i].was_refused = true;
                break;
            }
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the fake queue cannot delay");
            break;
        }
    }
    pthread_mutex_unlock(&the_queue->lock);
    return code;
}

static struct skr_broker_status
fake_status(struct skr_broker *broker)
{
    return ((struct fake_connection *)broker)->status;
}

const struct skr_broker_ops skr_fake_queue_broker = {
    .scheme = "fake",
    .size = sizeof(struct fake_connection),
    .open = fake_open,
    .close = fake_close,
    .receive = fake_receive,
    .settle = fake_settle,
    .status = fake_status,
};
