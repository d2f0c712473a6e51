// SPDX-License-Identifier: MIT
// The pump: moves rows from the table to the broker and collects what became
// of them. One session of it lives as long as its connections and its lock.

#ifndef SKR_OUTBOX_PUMP_H
#define SKR_OUTBOX_PUMP_H

#include "outbox/relay.h"
#include "outbox/settler.h"

struct skr_pump {
    const struct skr_relay_options *options;
    struct skr_settler *settler;
    int stop_fd;
    int64_t stop_by_ms;  // when a stop must be over; 0: none was asked for

    struct skr_db *db;  // reads, and holds the lock
    struct skr_broker *broker;
    int64_t lock_seen_ms;  // when the lock was last known to be ours

    struct skr_position position;  // at the start of the queue
    int64_t *in_hand;              // room for every slot's rows
    size_t batch_capacity;
    size_t pending;      // sent, without an outcome yet
    bool may_have_more;  // the last read left rows, or something was written
    // Why the broker did not say what became of a message; code SKR_OK: it did.
    struct skr_error lost;
    bool settles_first;  // reads nothing before the settler has caught up
    size_t open_rows;    // in slots that are the pump's
    uint64_t finished;   // rows that came to an outcome
    struct skr_trouble trouble;  // of this and earlier sessions
    struct skr_trouble route_trouble;
    bool works;  // this session got a message through, or none is left
    int64_t next_foreign_ms;  // when to look for rows that are not ours
    bool said_foreign;
};

// Whether whoever runs the relay says that it is over.
bool skr_pump_is_over(const struct skr_pump *pump);

// Ends with SKR_STOPPED when the stop_fd is readable, SKR_OK when there is
// nothing left to do and the options say to end then, or the error that ended
// the session. It closes the broker. What has an outcome has been handed to the
// settler; the rest is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error);

#endif
