// SPDX-License-Identifier: MIT
// The pump: moves rows from the table to the broker and collects what became
// of them. One session of it lives as long as its connections and its lock.

#ifndef SKR_OUTBOX_PUMP_H
#define SKR_OUTBOX_PUMP_H

#include "outbox/relay.h"
#include "outbox/settler.h"

#include <stdatomic.h>

struct skr_pump {
    const struct skr_relay_options *options;
    struct skr_settler *settler;
    int stop_fd;

    struct skr_db *db;  // reads, and holds the lock
    struct skr_broker *broker;
    int64_t lock_seen_ms;  // when the lock was last known to be ours

    struct skr_position position;  // at the start of the queue
    int64_t *in_hand;              // room for every slot's rows
    size_t batch_capacity;
    size_t pending;      // sent, without an outcome yet
    bool may_have_more;  // the last read gave rows, or something was written
    bool broker_lost;
    int64_t next_foreign_ms;  // when to look for rows that are not ours
    bool said_foreign;
    _Atomic uint64_t read;
};

// Ends with SKR_STOPPED when the stop_fd is readable, SKR_OK when there is
// nothing left to do and the options say to end then, or the error that ended
// the session. What has an outcome has been handed to the settler; the rest
// is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error);

#endif
