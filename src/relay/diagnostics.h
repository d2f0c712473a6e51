// SPDX-License-Identifier: MIT
// What a relay notices beside its work and tells people once: rows that it
// cannot publish, another worker on its queue, a transaction that holds it
// back, a writer in another time zone, a right that it lacks.

#ifndef SKR_RELAY_DIAGNOSTICS_H
#define SKR_RELAY_DIAGNOSTICS_H

#include "relay/relay.h"
#include "store/source.h"

struct skr_diagnostics {
    const struct skr_relay_settings *options;
    struct skr_source *source;
    bool expects_no_other;  // worker to claim rows of the queue
    int64_t next_foreign_ms, next_claimed_ms;  // when to look
    // When the queue was last seen to be empty, and where the source stood.
    int64_t empty_ms, empty_cursor;
    int64_t logged_undecided;  // the row that waits for a transaction; 0: none
    bool knows_skew;           // of a row that was written while it looked
    bool logged_foreign, logged_claimed, logged_skew, logged_hidden;
};

// At every turn.
SKR_MUST_CHECK enum skr_code
skr_diagnostics_look(struct skr_diagnostics *diagnostics, struct skr_db *db,
                     struct skr_error *error);
// When a session begins.
SKR_MUST_CHECK enum skr_code
skr_diagnostics_begin(struct skr_diagnostics *diagnostics, struct skr_db *db,
                      struct skr_error *error);
// After a read, before its rows are sent: once they are, they may be gone any
// moment.
SKR_MUST_CHECK enum skr_code
skr_diagnostics_after_read(struct skr_diagnostics *diagnostics,
                           struct skr_db *db, bool has_rows,
                           struct skr_error *error);
// When there is nothing to do. Rows that no relay publishes look like a relay
// that hangs.
SKR_MUST_CHECK enum skr_code
skr_diagnostics_look_for_foreign(struct skr_diagnostics *diagnostics,
                                 struct skr_db *db, struct skr_error *error);

#endif
