// SPDX-License-Identifier: MIT
// One session of the relay: connections, ownership and what is in flight, all
// or nothing. A relay that lost any of them lets a standby take over. Its loop
// is the design: own, fetch, send, collect, settle, rest.

#ifndef SKR_RELAY_SESSION_H
#define SKR_RELAY_SESSION_H

#include "relay/dispatcher.h"
#include "relay/relay.h"

enum skr_phase {
    SKR_PHASE_SETTLING,  // rows of an earlier session are settled first
    SKR_PHASE_ACTIVE,    // reads and sends
    SKR_PHASE_DRAINING,  // begins nothing: its rows are about to change
    SKR_PHASE_STANDBY,   // others work the queue
    SKR_PHASE_FINISHED,  // nothing is left, and the settings say to end then
};

// What a relay notices beside its work, and logs once: rows that it cannot
// publish, another worker on its queue, a transaction that holds it back, a
// writer in another time zone, a right that it lacks.
struct skr_diagnostics {
    int64_t next_foreign_ms, next_claimed_ms;  // when to look for them
    // When the queue was last seen to be empty, and where the source stood.
    int64_t empty_ms, empty_cursor;
    int64_t logged_undecided;  // the row that waits for a transaction; 0: none
    bool knows_skew;           // of a row that was written while it looked
    bool logged_foreign, logged_claimed, logged_skew, logged_hidden;
};

// Circuit breakers, parked rows, and batches that are still being settled
// outlive a session.
struct skr_session {
    const struct skr_relay_settings *settings;
    struct skr_db *db;         // reads, and holds the lock
    struct skr_db *attending;  // shows a relay that waits for its broker, or
                               // NULL
    struct skr_source *source;
    struct skr_ownership *ownership;
    struct skr_settler *settler;
    struct skr_beat settler_beat;
    struct skr_dispatcher dispatcher;
    struct skr_parked parked;
    struct skr_diagnostics diagnostics;
    enum skr_phase phase;
    int stop_fd;
    int64_t stop_by_ms;     // when a stop must be over; 0: none was asked for
    size_t batch_capacity;  // rows, and bytes, of what is read ahead
    size_t batch_bytes;
    bool wants_rescan;               // once nothing is being settled
    bool has_broker;                 // it could be opened, in the last session
    bool was_connected;              // to both sides, in any session
    bool works;                      // a message got through, or none is left
    struct skr_trouble trouble;      // of this and earlier sessions
    struct skr_trouble passed_over;  // hosts that can only be read
};

// Of zeroes. The settings, of which none is left to its default, are borrowed.
SKR_MUST_CHECK enum skr_code
skr_session_init(struct skr_session *session,
                 const struct skr_relay_settings *settings, int stop_fd,
                 struct skr_error *error);
void skr_session_fini(struct skr_session *session);

// Before the first run, and after the last: the settler begins, and ends.
SKR_MUST_CHECK enum skr_code
skr_session_start(struct skr_session *session, struct skr_error *error);
void skr_session_stop(struct skr_session *session);

// Connects, acquires the queue and works it until the stop_fd is readable:
// SKR_STOPPED; until nothing is left to do and the settings say to end then:
// SKR_OK; or until the error that ends the session. Decided rows have been put
// to the settler; the rest is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_session_run(struct skr_session *session, struct skr_error *error);

// After a session that failed without its broker: lets others see that the
// relay waits for it. May take as long as connecting to the database does.
void skr_session_show_waiting(struct skr_session *session);

// After a run that ended since nothing more could be sent: whether messages
// wait for a destination.
bool skr_session_leaves_some(const struct skr_session *session);

#endif
