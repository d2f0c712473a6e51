// SPDX-License-Identifier: MIT
// Messages that were submitted, in that order, until their outcome was told.

#ifndef SKR_BROKER_KAFKA_WINDOW_H
#define SKR_BROKER_KAFKA_WINDOW_H

#include "broker/broker.h"

#include <librdkafka/rdkafka.h>

struct skr_route;

struct kafka_entry {
    struct kafka_entry *previous, *next;
    const struct skr_message *message;
    uint64_t ticket;
    const char *topic;
    const char *key;            // NULL: a null key
    const char *partition_key;  // NULL: any partition
    bool is_suspect;            // of a batch that was refused
    bool was_taken;             // by librdkafka, whatever became of it
    bool is_refused;            // others wait behind it
    enum skr_fate fate;         // once it is finished
    rd_kafka_resp_err_t result;
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

// Copies the texts. topic is that of a route or a default. Held back at once
// behind one that was refused and has not been taken yet.
SKR_MUST_CHECK enum skr_code
skr_kafka_window_add(struct kafka_window *window,
                     const struct skr_message *message, const char *topic,
                     const char *key, const char *partition_key,
                     uint64_t ticket, struct skr_error *error);
void
skr_kafka_window_finish(struct kafka_window *window, struct kafka_entry *entry,
                        enum skr_fate fate, rd_kafka_resp_err_t result);
// Those of its key that librdkafka does not have are held back with it: whether
// they may pass is for the caller to say.
void
skr_kafka_window_refuse(struct kafka_window *window, struct kafka_entry *entry,
                        enum skr_fate fate, rd_kafka_resp_err_t result);
// The oldest that is finished, for the caller to free; NULL: none.
struct kafka_entry *skr_kafka_window_take(struct kafka_window *window);
// What is open has to be sent from the start; each one is suspected, or none.
void skr_kafka_window_rewind(struct kafka_window *window, bool are_suspects);
void skr_kafka_window_fini(struct kafka_window *window);

#endif
