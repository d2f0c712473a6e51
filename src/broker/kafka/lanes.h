// SPDX-License-Identifier: MIT
// Lanes: the partitions that are ours to consume from. A lane keeps its records
// in order until nothing before them is open, so it knows how far the group has
// come. A record that is given back, or is to be tried again, is held here with
// all that was fetched behind it; its partition is paused meanwhile.

#ifndef SKR_BROKER_KAFKA_LANES_H
#define SKR_BROKER_KAFKA_LANES_H

#include "broker/broker.h"

#include <librdkafka/rdkafka.h>

struct kafka_lane;

enum kafka_delivery_state {
    KAFKA_HELD,     // waits for due_ms
    KAFKA_IN_HAND,  // the caller has it
    KAFKA_SETTLED,
};

struct kafka_delivery {
    struct kafka_delivery *next;
    struct kafka_lane *lane;
    rd_kafka_message_t *message;
    enum kafka_delivery_state state;
    int64_t due_ms;
    uint32_t retry_count;
};

struct kafka_lane {
    struct kafka_lane *next;
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

struct kafka_lanes {
    struct kafka_lane *first;
    uint64_t last_number;
};

// The lane of a partition; NULL: none.
struct kafka_lane *skr_kafka_lane_find(const struct kafka_lanes *lanes,
                                       const char *topic, int32_t partition);
// NULL when memory is out.
struct kafka_lane *skr_kafka_lane_add(struct kafka_lanes *lanes,
                                      const char *topic, int32_t partition);
void skr_kafka_lane_remove(struct kafka_lanes *lanes, struct kafka_lane *lane);
void skr_kafka_lanes_fini(struct kafka_lanes *lanes);

// Takes the message. It is in hand, unless others of its lane are held. False
// when memory is out.
SKR_MUST_CHECK bool
skr_kafka_lane_append(struct kafka_lane *lane, rd_kafka_message_t *message);
// Frees what is settled; what the caller has not settled is held.
void skr_kafka_lane_prune(struct kafka_lane *lane);
// Hands out what is held and due, in order, up to most; how many it was.
size_t
skr_kafka_lane_hand_out(struct kafka_lane *lane, size_t most, int64_t now_ms);
bool skr_kafka_lane_has_held(const struct kafka_lane *lane);
// When the first that is held is due; negative: none is.
int64_t skr_kafka_lane_due_ms(const struct kafka_lane *lane);

void skr_kafka_delivery_settle(struct kafka_delivery *delivery,
                               enum skr_settlement settlement,
                               uint32_t delay_ms, int64_t now_ms);
// Everything before it is settled; negative: nothing is known.
int64_t skr_kafka_lane_settled(const struct kafka_lane *lane);

#endif
