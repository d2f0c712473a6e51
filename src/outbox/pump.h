// SPDX-License-Identifier: MIT
// The pump: moves rows from the table to the broker and collects what became
// of them. One session of it lives as long as its connections and its lock.

#ifndef SKR_OUTBOX_PUMP_H
#define SKR_OUTBOX_PUMP_H

#include "outbox/heads.h"
#include "outbox/order.h"
#include "outbox/passing.h"
#include "outbox/relay.h"
#include "outbox/settler.h"
#include "outbox/sharing.h"
#include "outbox/waiting.h"

struct skr_pump {
    const struct skr_relay_options *options;
    struct skr_settler *settler;
    int stop_fd;
    int64_t stop_by_ms;  // when a stop must be over; 0: none was asked for

    struct skr_db *db;  // reads, and holds the lock
    struct skr_senders senders;
    struct skr_gates gates;
    char lock_name[SKR_LOCK_NAME_SIZE];
    // The server knows no lock that could be relied on; leases need none.
    bool is_unlocked;

    struct skr_position position;  // at the start of the queue
    int64_t *in_hand, *done;       // room for every slot's rows
    int64_t *parked;               // for SKR_MOST_PARKED, as `done` has too
    int64_t *unsettled;            // for as many
    struct skr_waiting waiting;
    struct skr_order order;  // of ordered queues
    struct skr_heads heads;  // partitions to be read from their heads
    struct skr_passing passing;
    struct skr_sharing sharing;
    bool is_draining;  // what is under way ends, and nothing begins
    size_t batch_capacity;
    size_t batch_bytes;      // of what is read before there is room
    struct skr_slot *ahead;  // read, and to be sent when there is; or NULL
    bool may_have_more;  // the last read left rows, or something was written
    bool in_vain;        // nothing of what was read last could be sent
    // Why the broker did not say what became of a message; code SKR_OK: it did.
    struct skr_error lost;
    bool settles_first;  // reads nothing before the settler has caught up
    bool reads_anew;     // from the start, once nothing is under way
    bool sweeps_anew;    // once nothing is being settled
    size_t open_rows;    // in slots that are the pump's
    uint64_t finished;   // rows that came to an outcome
    struct skr_trouble trouble;  // of this and earlier sessions
    bool works;  // this session got a message through, or none is left
    int64_t spare_until_ms;   // no sweep before, while messages wait at gates
    int64_t next_foreign_ms;  // when to look for rows that are not ours
    int64_t next_others_ms;   // and for other workers on them
    bool said_foreign, said_others;
    int64_t said_undecided;  // the row that waits for a transaction; 0: none
    // When the queue was last seen to be empty, and where the reader stood.
    int64_t empty_ms, empty_cursor;
    bool knows_skew;  // of a row that was written while we looked
    bool said_skew;
    bool said_hidden;  // that transactions are hidden from us
    bool said_active;  // that this relay works the queue
    bool said_spare;   // that others divide all of the queue among them
};

static inline bool
skr_pump_is_ordered(const struct skr_pump *pump)
{
    return pump->options->table->ops->read_partitions != NULL;
}
// Whether relays divide the queue's shards among themselves: no single rows are
// claimed.
static inline bool
skr_pump_is_divided(const struct skr_pump *pump)
{
    return pump->options->claim == SKR_CLAIM_SLOTS;
}
// Whether what is read is nobody else's. Whoever has his share of the queue is
// alone in that.
static inline bool
skr_pump_is_alone(const struct skr_pump *pump)
{
    return pump->options->claim == SKR_CLAIM_NONE || skr_pump_is_divided(pump);
}

// Whether whoever runs the relay says that it is over.
bool skr_pump_is_over(const struct skr_pump *pump);
// Whether nothing is under way: every row that was read is settled, or
// forgotten.
bool skr_pump_is_quiet(struct skr_pump *pump);
// After a run that ended since nothing more could be sent: whether messages
// wait for a closed route.
bool skr_pump_leaves_some(const struct skr_pump *pump);

// Ends with SKR_STOPPED when the stop_fd is readable, SKR_OK when there is
// nothing left to do and the options say to end then, or the error that ended
// the session. It closes the broker. What has an outcome has been handed to the
// settler; the rest is forgotten and will be read again.
SKR_MUST_CHECK enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error);

// reading.c: how rows come into the window.

// Reads what there may be and sends what there is room for. *moved is set when
// something was sent.
SKR_MUST_CHECK enum skr_code
skr_pump_read(struct skr_pump *pump, bool *moved, struct skr_error *error);
// Rows that wait for room are everybody's again.
void skr_pump_give_back(struct skr_pump *pump);

// looking.c: what a relay notices beside its work, and says once.

// Rows that nobody publishes look like a relay that hangs. Looked for when
// there is nothing else to do.
SKR_MUST_CHECK enum skr_code
skr_pump_look_for_foreign(struct skr_pump *pump, struct skr_error *error);
// A relay that has the queue to itself, and finds that it has not, would send
// what the other one sends as well.
SKR_MUST_CHECK enum skr_code
skr_pump_look_for_others(struct skr_pump *pump, struct skr_error *error);
// Somebody's open transaction holds back all that was written after it began.
SKR_MUST_CHECK enum skr_code
skr_pump_look_for_writer(struct skr_pump *pump, struct skr_error *error);
// A row beyond all that there were when nothing was left has just been written.
// It is looked at before it is sent: once it is, it may be gone any moment.
SKR_MUST_CHECK enum skr_code
skr_pump_look_at_fresh(struct skr_pump *pump, bool has_rows,
                       struct skr_error *error);
// Order is kept all the same, at a price: the database is asked for more.
void skr_pump_tell_of_hidden(struct skr_pump *pump);
// Warns of a writer in another time zone, whose rows would be sent hours late,
// or those that are to wait hours early. is_fresh: the newest row has just been
// written; otherwise an old time is no sign of anything.
SKR_MUST_CHECK enum skr_code
skr_pump_look_for_skew(struct skr_pump *pump, bool is_fresh,
                       struct skr_error *error);

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
// Says of a batch that was read how its rows are ours.
void skr_pump_mark_claim(const struct skr_pump *pump, struct skr_slot *slot);
// Whether its rows are ours for long enough to send one more.
bool
skr_pump_may_send(const struct skr_pump *pump, const struct skr_slot *slot);
// Renews leases on rows while the broker takes its time.
SKR_MUST_CHECK enum skr_code
skr_pump_keep(struct skr_pump *pump, struct skr_error *error);

// sharing.c: which shards are this relay's, where several divide a queue among
// themselves.

// That this relay works the queue, unless that was the last thing said of it.
void skr_pump_say_active(struct skr_pump *pump);

// Keeps our share, and changes it when relays come and go. While it is about to
// change nothing is read.
SKR_MUST_CHECK enum skr_code
skr_pump_share(struct skr_pump *pump, struct skr_error *error);
// When that is to be called at the latest; 0: it need not be.
int64_t skr_pump_next_share_ms(const struct skr_pump *pump);
bool skr_pump_may_read(const struct skr_pump *pump);
// Whether there are shards that no relay works now, and of which some may be
// for us: a relay that ends when all is empty must not leave them.
SKR_MUST_CHECK enum skr_code
skr_pump_find_ownerless(struct skr_pump *pump, bool *is_some,
                        struct skr_error *error);
// Whether it is ours for long enough to send something of it.
bool skr_pump_has_share(const struct skr_pump *pump);
// Gives all of it back, for others to take at once.
void skr_pump_leave_share(struct skr_pump *pump);

// sending.c: the way of single messages to the broker and back.

// Hands over what may go now; the rest stays as it was read.
SKR_MUST_CHECK enum skr_code
skr_pump_submit(struct skr_pump *pump, struct skr_slot *slot,
                struct skr_error *error);
// Lets outcomes come in, waiting up to timeout_ms for the first.
SKR_MUST_CHECK enum skr_code
skr_pump_collect(struct skr_pump *pump, uint32_t timeout_ms,
                 struct skr_error *error);
// Sends a message, or says that it cannot be understood. Its state tells what
// became of that.
SKR_MUST_CHECK enum skr_code
skr_pump_send(struct skr_pump *pump, struct skr_slot *slot, size_t index,
              struct skr_error *error);
// One that was pending in the slot is so no more.
void skr_pump_release(struct skr_pump *pump, struct skr_slot *slot);
// A ticket is a slot and an item in it.
static inline uint64_t
skr_pump_ticket(const struct skr_pump *pump, const struct skr_slot *slot,
                size_t index)
{
    return (uint64_t)(slot - pump->settler->slots) << 32 | index;
}
static inline struct skr_slot *
skr_pump_find(const struct skr_pump *pump, uint64_t ticket, size_t *index)
{
    *index = ticket & UINT32_MAX;
    return &pump->settler->slots[ticket >> 32];
}
// The pump has done with the slot.
void skr_pump_close_slot(struct skr_pump *pump, struct skr_slot *slot);
// Says that earlier trouble is over.
void skr_pump_end_trouble(struct skr_pump *pump);

// ordering.c: the messages of a partition one after the other.

void skr_pump_begin_order(struct skr_pump *pump);
// Gives each row that was read its place in its partition. Those that stay in
// their rows leave the batch.
SKR_MUST_CHECK enum skr_code
skr_pump_arrange(struct skr_pump *pump, struct skr_slot *slot,
                 const struct skr_read *read, struct skr_error *error);
// A message has come to an outcome, or was not sent: the next of its partition
// goes, or all that follow it stay in their rows.
SKR_MUST_CHECK enum skr_code
skr_pump_follow(struct skr_pump *pump, struct skr_slot *slot, size_t index,
                struct skr_error *error);
// Reads partitions of which something lies behind the cursor into the slot, and
// gives the rows their places.
SKR_MUST_CHECK enum skr_code
skr_pump_read_heads(struct skr_pump *pump, struct skr_slot *slot,
                    const struct skr_read *read, struct skr_error *error);
// Chains that are slow go back to their rows, so that slots become free.
void skr_pump_shorten_chains(struct skr_pump *pump);

#endif
