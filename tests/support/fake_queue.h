// SPDX-License-Identifier: MIT
// A broker to consume from, in memory. What is given back, or was in the hands
// of a connection that ends, comes again, marked as redelivered. Without a
// limit it keeps no count of it, as a classic queue of RabbitMQ does; with one,
// it drops what came back so often, as a quorum queue does.

#ifndef SKR_TEST_FAKE_QUEUE_H
#define SKR_TEST_FAKE_QUEUE_H

#include "broker/broker.h"

#include <pthread.h>

enum { SKR_FAKE_QUEUE_CAPACITY = 4096 };

struct skr_fake_delivery {
    char headers[256];  // JSON
    char body[64];
    char broker_id[40];  // "": none
    bool redelivered;
    bool is_gone;        // acknowledged, or dropped
    const void *holder;  // a connection; NULL: waiting
    bool is_held;        // there
    int64_t until_ms;    // so long; by skr_clock_ms()
    size_t deliveries, returns;
};

struct skr_fake_queue {
    pthread_mutex_t lock;
    struct skr_fake_delivery items[SKR_FAKE_QUEUE_CAPACITY];
    size_t count;
    size_t acks, releases, receives, holds;
    size_t limit;      // more returns drop a message; 0: none
    size_t dropped;    // so many
    int64_t hold_ms;   // as in broker.h; taken over by connections
    size_t most_held;  // so many are its capacity; 0: any number is
    // So many settle() calls end with the connection, before anything is done.
    size_t settles_to_lose;
    bool refuses_retries;  // it delays, it says, and then does not
    bool is_away;  // no connection can be made, and those that are have ended
};

extern const struct skr_broker_ops skr_fake_queue_broker;

// The one that opened brokers receive from; forked children share it.
struct skr_fake_queue *skr_fake_queue_new(void);
void skr_fake_queue_free(struct skr_fake_queue *queue);
// As a broker does when the process on the other side has died: all that is in
// hand comes again.
void skr_fake_queue_lose_holders(struct skr_fake_queue *queue);
void skr_fake_queue_set_away(struct skr_fake_queue *queue, bool is_away);
// broker_id may be NULL.
void skr_fake_queue_add(struct skr_fake_queue *queue, const char *headers,
                        const char *body, const char *broker_id);
size_t skr_fake_queue_waiting(struct skr_fake_queue *queue);
size_t skr_fake_queue_releases(struct skr_fake_queue *queue);
// How often a message was held.
size_t skr_fake_queue_holds(struct skr_fake_queue *queue);

#endif
