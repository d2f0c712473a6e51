// SPDX-License-Identifier: MIT
// What librdkafka's own statistics say of a cluster. To ask the cluster costs
// time, and a question waits behind the fetch that a broker is busy with; the
// statistics are here already, and tell of each broker and each partition.

#ifndef SKR_BROKER_KAFKA_VIEW_H
#define SKR_BROKER_KAFKA_VIEW_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stddef.h>

struct kafka_view {
    // No broker is connected, or those that are have not answered for a while.
    bool is_down;
    // A broker has answered within the last moments.
    bool has_answered;
    // What keeps the client from its work, for people: "partition 2 of topic
    // orders: broker 3 (10.0.0.3:9092), its leader, is away". "": nothing.
    char missing[200];
};

// json is librdkafka's. A broker that owes an answer for patience_ms does not
// answer. SKR_MALFORMED, SKR_NO_MEMORY: nothing is known.
SKR_MUST_CHECK enum skr_code
skr_kafka_view_read(const char *json, size_t size, int64_t patience_ms,
                    struct kafka_view *view, struct skr_error *error);

#endif
