// SPDX-License-Identifier: MIT
// What a broker has that consumes.

#ifndef SKR_BROKER_RABBITMQ_CONSUME_H
#define SKR_BROKER_RABBITMQ_CONSUME_H

#include "broker/rabbitmq/deliveries.h"
#include "broker/rabbitmq/link.h"

#include <pthread.h>

struct rabbit_broker;

// The connection that retries are published on; opened when one is.
struct rabbit_delay {
    struct rabbit_link link;
    bool is_open;
    uint64_t tag;     // of what was published last
    int64_t used_ms;  // when that was
    // After a failure to reach the server all are refused for this reason, so
    // that the caller does not wait for each of them; until then, by
    // skr_clock_ms().
    struct skr_error reason;
    int64_t again_ms;
    struct skr_trouble trouble;
};

struct rabbit_subscription {
    enum rabbit_subscribed {
        RABBIT_OFF,
        RABBIT_ASKED,
        RABBIT_ON,       // its messages come
        RABBIT_MISSING,  // the server has no such queue, for now
    } state;
    struct skr_error reason;     // why it is missing
    struct skr_trouble trouble;  // and that it was said
};

struct rabbit_heartbeat {
    pthread_t thread;
    pthread_cond_t wake;
    bool is_running, is_stopping;
};

struct rabbit_consumer {
    bool is_wanted;    // receive() will be called, or was
    bool is_prepared;  // the channel is open, the queues are there
    bool is_started;   // messages may come
    // How often new consumers took the place of others. A quorum queue takes
    // one with an old tag for the old one, deliveries and all.
    uint64_t generation;
    struct rabbit_subscription *subscriptions;  // one for each queue
    const char *asked;  // the queue that an answer is due for; NULL: none is
    int64_t asked_ms;
    int64_t ask_again_ms;  // for those that are missing
    size_t counts_due;     // of messages in a queue
    size_t cancels_due;    // of consumers
    uint64_t ready_count;  // the sum of those that have come
    int64_t turned_ms;     // when the connection was last looked at

    // What the server may hand out ahead, over all queues, and the most that
    // was ever asked for; by hold.c.
    uint32_t prefetch, most_prefetch;
    int64_t subscribed_ms;    // since when
    uint64_t subscribed_at;   // the tag that was next to be given then
    bool is_giving_back;      // what comes, until the consumers are cancelled
    uint64_t subscribed_end;  // the tag that was next to come

    struct rabbit_deliveries deliveries;
    struct skr_arena arena;  // texts of what was given
    struct skr_error end;    // why no more will come; SKR_OK: they will
    struct rabbit_delay delay;

    // Over everything but what the caller was given: the thread serves the
    // connection while the caller is busy with it.
    pthread_mutex_t mutex;
    bool has_mutex;
    struct rabbit_heartbeat heartbeat;
};

// delay.c: publishes a copy that comes back to its queue after incoming's
// delay, with the count of retries raised, and waits until it is stored.
// After an error it may not be stored: SKR_INVALID, it has no room for that;
// SKR_UNAVAILABLE, no answer came in time; else what the server said.
SKR_MUST_CHECK enum skr_code
skr_rabbit_delay_publish(struct rabbit_broker *broker,
                         const struct rabbit_delivery *delivery,
                         const struct skr_incoming *incoming,
                         struct skr_error *error);
// Lets the connection go once it has not been used for a while.
void skr_rabbit_delay_tidy(struct rabbit_delay *delay);
void skr_rabbit_delay_close(struct rabbit_delay *delay, bool is_alive);

#endif
