// SPDX-License-Identifier: MIT
// The inside of the Kafka broker, shared by its files alone.
//
// Publishing: librdkafka batches, sends again for as long as it takes, and
// keeps the order; a message is confirmed by its delivery report. A batch that
// the broker refuses takes innocent messages with it, and ends the producer
// (enable.gapless.guarantee), or those behind it would pass. Then a careful
// producer sends what is open one by one, until it is known who is to blame.

#ifndef SKR_BROKER_KAFKA_KAFKA_H
#define SKR_BROKER_KAFKA_KAFKA_H

#include "broker/broker.h"
#include "broker/kafka/client.h"
#include "broker/kafka/lanes.h"
#include "broker/kafka/window.h"

#include <stddef.h>

struct kafka_producer {
    struct kafka_window window;
    bool is_careful;   // one message at a time
    bool must_change;  // a new producer is needed
    bool finds_blame;  // it has to be a careful one
    bool is_ending;    // what comes back now is not refused
    unsigned changes;  // without a message that got through
    int64_t progress_ms;
};

struct kafka_consumer {
    bool is_wanted;
    rd_kafka_queue_t *queue;  // NULL: not subscribed
    int ready_fd;             // librdkafka writes to it when messages come
    struct kafka_lanes lanes;
    struct skr_arena arena;  // what the caller was given
    size_t capacity;         // the most that receive() was asked for
    bool is_member;          // the group has said which partitions are ours
    bool lacks_lane;         // memory was out when a partition became ours
};

struct kafka_broker {
    struct skr_broker base;
    struct kafka_settings settings;
    struct kafka_client client;
    struct skr_error failure;  // why the connection is lost; SKR_OK: it is not

    struct kafka_producer producer;
    struct kafka_consumer consumer;
};

// As librdkafka gives it to callbacks.
static inline struct kafka_broker *
skr_kafka_broker_of(void *client)
{
    return (struct kafka_broker *)((char *)client -
                                   offsetof(struct kafka_broker, client));
}

skr_broker_submit_fn skr_kafka_submit;
skr_broker_outcomes_fn skr_kafka_outcomes;
skr_broker_receive_fn skr_kafka_receive;
skr_broker_settle_fn skr_kafka_settle;
skr_broker_depth_fn skr_kafka_depth;  // lag.c
skr_broker_plan_fn skr_kafka_plan;    // plan.c

// producer.c
SKR_MUST_CHECK enum skr_code
skr_kafka_producer_start(struct kafka_broker *broker, bool is_careful,
                         struct skr_error *error);
// Ends the client at once: what was not confirmed is left open in the window.
void skr_kafka_producer_end(struct kafka_broker *broker);
// Of a message to a topic that takes none now.
enum skr_fate skr_kafka_topic_fate(const struct kafka_broker *broker,
                                   rd_kafka_resp_err_t result);

// consume.c
SKR_MUST_CHECK enum skr_code
skr_kafka_consumer_start(struct kafka_broker *broker, struct skr_error *error);
// A client of the group's name that is no member of it.
SKR_MUST_CHECK enum skr_code
skr_kafka_consumer_connect(struct kafka_broker *broker, bool is_watched,
                           struct skr_error *error);
void skr_kafka_consumer_end(struct kafka_broker *broker);
// The callback that lanes come and go by.
void
skr_kafka_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                       rd_kafka_topic_partition_list_t *partitions, void *user);
// Tells the broker how far each lane has come. waits: for its answer.
SKR_MUST_CHECK enum skr_code
skr_kafka_commit(struct kafka_broker *broker, bool waits,
                 struct skr_error *error);

// incoming.c: a record as the caller gets it, with its texts in the arena.
SKR_MUST_CHECK enum skr_code
skr_kafka_incoming_fill(const struct kafka_broker *broker,
                        struct skr_arena *arena,
                        const struct kafka_delivery *delivery,
                        struct skr_incoming *incoming, struct skr_error *error);

#endif
