// SPDX-License-Identifier: MIT
// The way of rows to the broker and back: each gets its turn in its partition,
// its destination, and a decision from what the broker says. One session's
// thread.

#ifndef SKR_RELAY_DISPATCHER_H
#define SKR_RELAY_DISPATCHER_H

#include "relay/flight.h"
#include "relay/ownership.h"
#include "relay/relay.h"
#include "relay/senders.h"
#include "store/source.h"

struct skr_dispatcher {
    const struct skr_relay_settings *options;  // borrowed, as the next two are
    struct skr_source *source;
    struct skr_ownership *ownership;

    struct skr_flight flight;
    struct skr_sequencer sequencer;
    struct skr_breakers breakers;
    struct skr_senders senders;
    // Why the first sender did not say what became of a message; code SKR_OK:
    // it did.
    struct skr_error lost;
    bool is_draining;        // what is in flight ends, and nothing begins
    bool was_in_vain;        // no row of what was read last could be sent
    bool wants_rescan;       // rows were left that may be sent by now
    uint64_t decided;        // rows of batches that have ended
    uint64_t confirmed;      // messages that the broker has stored
    uint64_t stray_results;  // for rows that are not at the broker
};

// A session begins: nothing is in flight.
void skr_dispatcher_begin(struct skr_dispatcher *dispatcher);

// Gives each row of a batch that was read its place in its partition. Rows that
// stay where they are leave the batch. from_head: the source has read
// partitions from their heads.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_place(struct skr_dispatcher *dispatcher,
                     struct skr_flight_batch *batch, bool from_head,
                     struct skr_error *error);
// Sends the rows of a batch whose turn it is.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_send(struct skr_dispatcher *dispatcher,
                    struct skr_flight_batch *batch, struct skr_error *error);
// Takes results, waiting up to timeout_ms for the first, and decides.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_collect(struct skr_dispatcher *dispatcher, uint32_t timeout_ms,
                       struct skr_error *error);
// Messages at the broker.
size_t skr_dispatcher_pending(const struct skr_dispatcher *dispatcher);

// Long chains in batches that are slow go back to their rows, so that batches
// become free.
void skr_dispatcher_shorten_chains(struct skr_dispatcher *dispatcher);
// No row of the batch is queued or sent: tells the source what was left. True:
// something is to be written.
bool skr_dispatcher_close(struct skr_dispatcher *dispatcher,
                          struct skr_flight_batch *batch);
// Nothing more is sent: what was read ahead is left, for others to have soon.
void skr_dispatcher_begin_drain(struct skr_dispatcher *dispatcher);
// Closes the brokers: messages without a result are left.
void skr_dispatcher_end_drain(struct skr_dispatcher *dispatcher);
// Logs what the circuit breakers have to tell.
void skr_dispatcher_log_breakers(struct skr_dispatcher *dispatcher);

#endif
