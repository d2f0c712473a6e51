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
    const struct skr_relay_settings *settings;  // borrowed, as the next two are
    struct skr_source *source;
    struct skr_ownership *ownership;

    struct skr_flight flight;
    struct skr_sequencer sequencer;
    struct skr_breakers breakers;
    struct skr_senders senders;
    // Why the first sender did not say what became of a message; code SKR_OK:
    // it did.
    struct skr_error lost;
    bool is_draining;    // what is in flight ends, and nothing begins
    bool was_in_vain;    // no row of what was read last could be sent
    bool has_confirmed;  // the broker has stored a message since begin()
    uint64_t decided;    // rows of batches that have ended
};

// Of zeroes, with settings, source and ownership. batch_capacity: rows of one
// batch, at most.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_init(struct skr_dispatcher *dispatcher, size_t batch_capacity,
                    struct skr_error *error);
void skr_dispatcher_fini(struct skr_dispatcher *dispatcher);

// A session begins: nothing is in flight.
void skr_dispatcher_begin(struct skr_dispatcher *dispatcher);

// Rows that were read are this relay's by the token of now. Gives each its turn
// in its partition; those that stay where they are leave the batch. from_head:
// the source has read partitions from their heads. *has_rows: the batch is
// open, else it is free, even if something failed: what has its turn may be
// sent when the row before it is done.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_accept(struct skr_dispatcher *dispatcher,
                      struct skr_flight_batch *batch, bool from_head,
                      bool *has_rows, struct skr_error *error);
// Sends the rows of a batch whose turn it is.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_send(struct skr_dispatcher *dispatcher,
                    struct skr_flight_batch *batch, struct skr_error *error);
// Takes results, waiting up to timeout_ms for the first, and decides.
SKR_MUST_CHECK enum skr_code
skr_dispatcher_collect(struct skr_dispatcher *dispatcher, uint32_t timeout_ms,
                       struct skr_error *error);

// Long chains in batches that are slow go back to their rows, so that batches
// become free.
void skr_dispatcher_shorten_chains(struct skr_dispatcher *dispatcher);
// No row of the batch is queued or sent: tells the source what was left. True:
// something is to be written. *is_overtaken is set where rows were left that
// may be sent by now.
bool skr_dispatcher_close(struct skr_dispatcher *dispatcher,
                          struct skr_flight_batch *batch, bool *is_overtaken);
// Whether nothing more is sent: what was read ahead is then left, for others to
// have soon.
void skr_dispatcher_drain(struct skr_dispatcher *dispatcher, bool is_draining);
// Closes the brokers: messages without a result are left.
void skr_dispatcher_end(struct skr_dispatcher *dispatcher);

// How long ago a message was committed, as nearly as its row tells: tables have
// whole seconds, a UUIDv7 that was made within that second has the millisecond.
// False: unknown, or it was to wait.
bool skr_dispatcher_latency(const struct skr_batch_item *item, int64_t now_us,
                            int64_t *latency_us);

#endif
