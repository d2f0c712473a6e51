// SPDX-License-Identifier: MIT
// One session of the relay: connections, ownership and what is in flight. It
// lives as long as those, and its loop is the design: own, fetch, send,
// collect, settle, sleep.

#ifndef SKR_RELAY_SESSION_H
#define SKR_RELAY_SESSION_H

#include "relay/diagnostics.h"
#include "relay/dispatcher.h"
#include "relay/parking.h"
#include "relay/relay.h"

enum skr_phase {
    SKR_PHASE_SETTLING,  // rows of an earlier session are settled first
    SKR_PHASE_ACTIVE,    // reads and sends
    SKR_PHASE_DRAINING,  // begins nothing: its rows are about to change
    SKR_PHASE_STANDBY,   // others work the queue
    SKR_PHASE_FINISHED,  // nothing is left, and the options say to end then
};

// What outlives a session, too: circuit breakers, parked rows, and batches that
// are still being settled.
struct skr_session {
    const struct skr_relay_settings *options;
    struct skr_db *db;  // reads, and holds the lock
    struct skr_source *source;
    struct skr_ownership *ownership;
    struct skr_settler *settler;
    struct skr_beat settler_beat;
    struct skr_dispatcher dispatcher;
    struct skr_parking parking;
    struct skr_diagnostics diagnostics;
    struct skr_relay_counts counts;
    enum skr_phase phase;
    int stop_fd;
    int64_t stop_by_ms;     // when a stop must be over; 0: none was asked for
    size_t batch_capacity;  // rows, and bytes, of what is read ahead
    size_t batch_bytes;
    bool wants_rescan;           // once nothing is being settled
    bool works;                  // a message got through, or none is left
    struct skr_trouble trouble;  // of this and earlier sessions
};

// Runs until the stop_fd is readable: SKR_STOPPED; until nothing is left to do
// and the options say to end then: SKR_OK; or until the error that ends the
// session. It closes the brokers. Decided rows have been put to the settler;
// the rest is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_session_run(struct skr_session *session, struct skr_error *error);

// Takes what the settler has done, and puts what is to be tried again.
void skr_session_take_settled(struct skr_session *session);
bool skr_session_is_settling(struct skr_session *session);
// Waits a moment for something to be settled.
void skr_session_wait_for_settler(struct skr_session *session);
// Says that earlier trouble is over.
void skr_session_end_trouble(struct skr_session *session);
// Whether the caller's is_over() says so.
bool skr_session_is_over(const struct skr_session *session);
// After a run that ended since nothing more could be sent: whether messages
// wait for a destination.
bool skr_session_leaves_some(const struct skr_session *session);

#endif
