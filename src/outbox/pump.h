// SPDX-License-Identifier: MIT
// The pump: moves rows from the table to the broker and collects what became
// of them. One session of it lives as long as its connections and its lock.

#ifndef SKR_OUTBOX_PUMP_H
#define SKR_OUTBOX_PUMP_H

#include "outbox/relay.h"
#include "outbox/settler.h"
#include "outbox/waiting.h"

struct skr_pump {
    const struct skr_relay_options *options;
    struct skr_settler *settler;
    int stop_fd;
    int64_t stop_by_ms;  // when a stop must be over; 0: none was asked for

    struct skr_db *db;  // reads, and holds the lock
    struct skr_senders senders;
    struct skr_gates gates;
    // The server knows no lock that could be relied on; leases need none.
    bool is_unlocked;

    struct skr_position position;  // at the start of the queue
    int64_t *in_hand;              // room for every slot's rows
    struct skr_waiting waiting;
    size_t batch_capacity;
    bool may_have_more;  // the last read left rows, or something was written
    // Why the broker did not say what became of a message; code SKR_OK: it did.
    struct skr_error lost;
    bool settles_first;  // reads nothing before the settler has caught up
    size_t open_rows;    // in slots that are the pump's
    uint64_t finished;   // rows that came to an outcome
    struct skr_trouble trouble;  // of this and earlier sessions
    bool works;  // this session got a message through, or none is left
    int64_t spare_until_ms;   // no sweep before, while messages wait at gates
    int64_t next_foreign_ms;  // when to look for rows that are not ours
    int64_t next_others_ms;   // and for other workers on them
    bool said_foreign, said_others;
};

// Whether whoever runs the relay says that it is over.
bool skr_pump_is_over(const struct skr_pump *pump);

// Ends with SKR_STOPPED when the stop_fd is readable, SKR_OK when there is
// nothing left to do and the options say to end then, or the error that ended
// the session. It closes the broker. What has an outcome has been handed to the
// settler; the rest is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error);

// claiming.c: how rows become ours.

enum skr_lock_mode skr_pump_lock_mode(const struct skr_pump *pump);
// A relay that was frozen may have lost its lock without knowing: nothing goes
// to the broker on a proof of ownership that has grown old. is_idle: nothing is
// under way, and an older proof will do until something is to be sent.
SKR_MUST_CHECK enum skr_code
skr_pump_check_lock(struct skr_pump *pump, bool is_idle,
                    struct skr_error *error);
// Fills the slot's batch with rows that are this relay's from now on.
SKR_MUST_CHECK enum skr_code
skr_pump_take(struct skr_pump *pump, struct skr_slot *slot,
              const struct skr_read *read, struct skr_error *error);
// Whether its rows are ours for long enough to send one more.
bool
skr_pump_may_send(const struct skr_pump *pump, const struct skr_slot *slot);
// Keeps what is ours while the broker takes its time. An error ends the
// session: rows have been kept from others for too long.
SKR_MUST_CHECK enum skr_code
skr_pump_keep(struct skr_pump *pump, struct skr_error *error);

// sending.c: the way of single messages to the broker and back.

// Hands over what may go now; the rest stays as it was read.
SKR_MUST_CHECK enum skr_code
skr_pump_submit(struct skr_pump *pump, struct skr_slot *slot,
                struct skr_error *error);
// Lets outcomes come in, waiting up to timeout_ms for the first.
SKR_MUST_CHECK enum skr_code
skr_pump_collect(struct skr_pump *pump, uint32_t timeout_ms,
                 struct skr_error *error);
// The pump has done with the slot.
void skr_pump_close_slot(struct skr_pump *pump, struct skr_slot *slot);
// Says that earlier trouble is over.
void skr_pump_end_trouble(struct skr_pump *pump);

#endif
