// SPDX-License-Identifier: MIT
// What a relay has done so far, for other threads to read while it runs.

#ifndef SKR_RELAY_TALLY_H
#define SKR_RELAY_TALLY_H

#include "base/histogram.h"

#include <stdbool.h>

struct skr_batch_item;

// [shared]
struct skr_relay_tally {
    // Rows that are settled: gone from the outbox, deferred, moved to the
    // failed ones, and left where they block their partition.
    atomic_uint_fast64_t published, retried, failed, blocked;
    // Rows that the database refuses to change at the moment.
    atomic_uint_fast64_t parked;
    // Messages that the broker has stored, and that it returned since no queue
    // wants them. What is sent twice is counted twice.
    atomic_uint_fast64_t confirmed, returned;
    struct skr_histogram latency;  // from commit to confirmation
};

// How long ago the message was committed, as nearly as its row tells: tables
// have whole seconds, a UUIDv7 that was made within that second has the
// millisecond. False: unknown, or it was to wait.
bool skr_tally_latency(const struct skr_batch_item *item, int64_t now_us,
                       int64_t *latency_us);

// The broker has stored the message.
void skr_tally_confirm(struct skr_relay_tally *tally,
                       const struct skr_batch_item *item);

#endif
