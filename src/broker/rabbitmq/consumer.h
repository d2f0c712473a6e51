// SPDX-License-Identifier: MIT
// The consuming side of a broker: subscriptions to queues, how many messages
// the server may hand out ahead, and the thread that serves the connection
// while the caller is busy. deliveries.h keeps what has come.

#ifndef SKR_BROKER_RABBITMQ_CONSUMER_H
#define SKR_BROKER_RABBITMQ_CONSUMER_H

#include "amqp/connection.h"
#include "broker/rabbitmq/deliveries.h"

#include <pthread.h>

struct rabbit_broker;

struct rabbit_subscription {
    enum rabbit_subscribed {
        RABBIT_OFF,
        RABBIT_ASKED,
        RABBIT_ON,       // its messages come
        RABBIT_MISSING,  // the server has no such queue, for now
    } state;
    struct skr_error reason;     // why it is missing
    struct skr_trouble trouble;  // and that it was logged
};

// The server takes a consumer for dead that has a message for too long, and
// cuts it off from all of them. How many may wait here depends on how fast the
// caller is, which only shows: what has waited for hold_timeout is given back,
// and the server is asked for no more than half of what the caller takes in
// that time. It grows again when that turns out to be enough. What was deferred
// tells of trouble: how long others wait then says nothing of the pace. A
// prefetch holds for the consumers that are made after it, so that a new one
// needs new consumers: the old are cancelled first.
struct rabbit_prefetch {
    // What the server may hand out ahead, over all queues, and the most that
    // was ever asked for.
    uint32_t count, most;
    int64_t since_ms;      // when it was asked for
    uint64_t since_given;  // the tag that was next to be given then
    uint64_t since_come;   // the tag that was next to come then
    bool is_returning;     // what comes, until the consumers are cancelled
};

// A handler may take minutes, and the server ends a connection that is silent
// for two heartbeats. While the caller is busy a thread serves it: what comes
// is taken, as far as there is room, heartbeats are sent, and what waits for
// too long is given back.
struct rabbit_service {
    pthread_t thread;
    pthread_cond_t wake;
    bool is_running, is_stopping;
};

// Retries go through delay queues, as Symfony has them, on a connection of
// their own.
struct rabbit_delay {
    struct skr_amqp amqp;  // opened for the first retry
    bool is_open;
    uint64_t tag;     // of the copy that was published last
    int64_t used_ms;  // when that was
    // After a failure to reach the server all retries are refused for this
    // reason, so that the caller does not wait for each of them; until then, by
    // skr_clock_ms().
    struct skr_error reason;
    int64_t again_ms;
    struct skr_trouble trouble;
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
    struct rabbit_prefetch prefetch;

    struct rabbit_deliveries deliveries;
    struct skr_arena arena;  // texts of what was given
    struct skr_error end;    // why no more will come; SKR_OK: they will
    struct rabbit_delay delay;

    // Over everything but what the caller was given: the thread serves the
    // connection while the caller is busy with it.
    pthread_mutex_t mutex;
    bool has_mutex;
    struct rabbit_service service;
};

skr_broker_receive_fn skr_rabbit_receive;
skr_broker_settle_fn skr_rabbit_settle;
skr_broker_status_fn skr_rabbit_status;

// Closes the connection once it has not been used for a while.
void skr_rabbit_delay_tidy(struct rabbit_delay *delay);
void skr_rabbit_delay_close(struct rabbit_delay *delay, bool is_alive);

// Opens the channel and sees to the queues, by open() or the first receive().
SKR_MUST_CHECK enum skr_code
skr_rabbit_consumer_prepare(struct rabbit_broker *broker,
                            struct skr_error *error);
void skr_rabbit_consumer_fini(struct rabbit_broker *broker);

// What comes on its channel.
SKR_MUST_CHECK enum skr_code
skr_rabbit_consumer_on_frame(struct rabbit_broker *broker,
                             const struct skr_amqp_frame *frame,
                             struct skr_error *error);
#endif
