// SPDX-License-Identifier: MIT
// Partitions of which a row is in another's hands, as one snapshot shows them.

#ifndef SKR_STORE_KAFKA_OUTBOX_HELD_H
#define SKR_STORE_KAFKA_OUTBOX_HELD_H

#include "base/hash.h"
#include "store/kafka_outbox/layout.h"

struct kafka_outbox_hold {
    struct skr_hash partition;
    int64_t row;  // the first
};

struct kafka_outbox_held {
    struct kafka_outbox_hold *items;  // in the order of partitions
    size_t count, capacity;
    int64_t rows;  // in others' hands, those without a key among them
};

// Finds out where such rows begin and end.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_find_held(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx, struct skr_position *position,
                           struct skr_error *error);
// Reads those that were there, as far as they still are.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_read_held(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx,
                           const struct skr_position *position,
                           struct kafka_outbox_held *held,
                           struct skr_error *error);
// Reads those of these rows that are not finished, by their ids.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_hold_rows(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx, const int64_t *rows, size_t count,
                           struct kafka_outbox_held *held,
                           struct skr_error *error);
bool skr_kafka_outbox_is_held_back(const struct kafka_outbox_held *held,
                                   const struct skr_value *columns);
void skr_kafka_outbox_held_fini(struct kafka_outbox_held *held);

#endif
