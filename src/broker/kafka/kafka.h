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

#include "base/backoff.h"
#include "broker/broker.h"
#include "broker/kafka/client.h"

#include <librdkafka/rdkafka.h>
#include <stddef.h>

// A message that was submitted, until its result was told.
struct kafka_entry {
    struct kafka_entry *previous, *next;
    const struct skr_message *message;
    uint64_t tag;
    const char *topic;
    const char *key;                 // NULL: a null key
    const char *partition_key;       // NULL: any partition
    bool is_suspect;                 // of a batch that was refused
    bool was_taken;                  // by librdkafka, whatever became of it
    bool is_refused;                 // others wait behind it
    enum skr_publish_result result;  // once it is finished
    rd_kafka_resp_err_t native;
};

struct kafka_list {
    struct kafka_entry *first, *last;
    size_t count;
};

struct kafka_window {
    struct kafka_list open, finished;
    struct kafka_entry *waiting;  // the first that librdkafka does not have
    size_t suspects;              // among those that are open
    size_t refused;               // among those that are finished
};

struct kafka_producer {
    struct kafka_window window;
    bool is_careful;   // one message at a time
    bool must_change;  // a new producer is needed
    bool finds_blame;  // it has to be a careful one
    bool is_ending;    // what comes back now is not refused
    unsigned changes;  // without a message that got through
    int64_t progress_ms;
};

struct kafka_assigned;

enum kafka_delivery_state {
    KAFKA_DEFERRED,  // waits for due_ms
    KAFKA_IN_HAND,   // the caller has it
    KAFKA_SETTLED,
};

struct kafka_delivery {
    struct kafka_delivery *next;
    struct kafka_assigned *assigned;
    rd_kafka_message_t *message;
    enum kafka_delivery_state state;
    int64_t due_ms;
    uint32_t retry_count;
};

// A partition that is assigned to us. It keeps its records in order until
// nothing before them is open, so it knows how far the group has come. A record
// that is given back, or is to be tried again, is deferred here with all that
// was fetched behind it; fetching is paused meanwhile.
struct kafka_assigned {
    struct kafka_assigned *next;
    uint64_t number;  // from 1
    struct kafka_delivery *first, *last;
    int64_t position;   // behind the last that was fetched; negative: unknown
    int64_t committed;  // as the broker was told; negative: nothing
    // What lies before this may have been in the hands of one that died.
    int64_t suspect_end;
    bool is_open;    // the broker knows that records are in hand
    bool is_paused;  // librdkafka fetches nothing
    bool is_at_end;  // there is nothing behind the position
    int32_t partition;
    char topic[];
};

struct kafka_assignment {
    struct kafka_assigned *first;
    uint64_t last_number;
};

// Topics of which nothing is ours: see unread.c.
struct kafka_unread {
    int64_t ask_ms;  // when the group is to be asked of them; 0: it is not
    struct skr_backoff backoff;
};

struct kafka_consumer {
    bool is_wanted;
    rd_kafka_queue_t *queue;  // NULL: not subscribed
    int ready_fd;             // librdkafka writes to it when messages come
    struct kafka_assignment assignment;
    struct skr_arena arena;  // what the caller was given
    size_t capacity;         // the most that receive() was asked for
    bool is_member;          // the group has said which partitions are ours
    bool lacks_partition;    // memory was out when a partition became ours
    struct kafka_unread unread;
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

// producer.c
skr_broker_submit_fn skr_kafka_submit;
skr_broker_results_fn skr_kafka_results;
SKR_MUST_CHECK enum skr_code
skr_kafka_producer_start(struct kafka_broker *broker, bool is_careful,
                         struct skr_error *error);
void skr_kafka_producer_fini(struct kafka_broker *broker);
// The partition of a key, from 0 to count - 1; count is at least 1. The same
// key has to come out the same for ever, and as other clients have it: order
// hangs on it.
int32_t
skr_kafka_partition(bool is_fnv1a, const void *key, size_t size, int32_t count);

// consumer.c
skr_broker_receive_fn skr_kafka_receive;
skr_broker_settle_fn skr_kafka_settle;
skr_broker_status_fn skr_kafka_status;
// joins: the group; else it is a client of the group's name and no member.
SKR_MUST_CHECK enum skr_code
skr_kafka_consumer_start(struct kafka_broker *broker, bool joins,
                         struct skr_error *error);
void skr_kafka_consumer_fini(struct kafka_broker *broker);

// unread.c: after partitions were given; and often, which seldom waits.
void skr_kafka_unread_note(struct kafka_broker *broker);
void skr_kafka_unread_look_after(struct kafka_broker *broker);

// record.c: a record as the caller gets it, with its texts in the arena.
SKR_MUST_CHECK enum skr_code
skr_kafka_record_read(const struct kafka_broker *broker,
                      struct skr_arena *arena,
                      const struct kafka_delivery *delivery,
                      struct skr_incoming *incoming, struct skr_error *error);

#endif
