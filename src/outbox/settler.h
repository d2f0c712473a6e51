// SPDX-License-Identifier: MIT
// The settler: a thread with a database connection of its own that records
// what became of batches, in the order in which they were handed to it.

#ifndef SKR_OUTBOX_SETTLER_H
#define SKR_OUTBOX_SETTLER_H

#include "base/beat.h"
#include "base/log.h"
#include "outbox/gates.h"
#include "outbox/parked.h"
#include "outbox/tally.h"
#include "table/table.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SKR_MAX_SLOTS = 8,
    SKR_MOST_AGAIN = 64,  // parked rows that are settled together
};

enum skr_slot_state {
    SKR_SLOT_FREE,
    SKR_SLOT_OPEN,      // the pump's
    SKR_SLOT_SETTLING,  // the settler's
};

// The place of a message in its partition.
struct skr_link {
    uint64_t partition;  // 0: it has no order
    uint64_t next;       // the ticket that follows it; SKR_NO_TICKET: none
    bool is_left;        // another held it back: it stays in its row
};
#define SKR_NO_TICKET UINT64_MAX

// A batch on its way through the relay. Its state changes under the settler's
// lock; its content belongs to whoever the state names.
struct skr_slot {
    struct skr_batch batch;
    struct skr_passage *passages;  // where each of its messages goes
    struct skr_link *links;        // and what follows it
    int64_t *done;                 // rows that are published, once handed over
    size_t done_count;
    int64_t claimed_ms;  // when its rows were made ours, at the latest
    enum skr_slot_state state;
    uint64_t turn;  // settled in ascending order
};

struct skr_settler_counts {
    uint64_t published;
    uint64_t retried;
    uint64_t failed;
    uint64_t blocked;
};

struct skr_settler {
    const char *name;
    const struct skr_db_ops *database;
    const char *database_url;
    const struct skr_table *table;
    const struct skr_log *log;

    struct skr_relay_tally *tally;  // NULL: nobody wants to know
    uint32_t park_ms;  // how often what the database refuses is tried again

    struct skr_slot slots[SKR_MAX_SLOTS];

    pthread_t thread;
    struct skr_beat beat;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;  // a slot's state, or the request to end
    // When the lock on the queue was last known to be ours; 0: it is not.
    atomic_int_fast64_t owned_ms;
    uint64_t next_turn;
    uint64_t server;  // that is read now
    bool ending;      // end once every slot handed over is settled
    bool given_up;    // end now; what is not settled will be sent again
    int give_up_fd;
    struct skr_settler_counts counts;
    struct skr_trouble trouble;
    struct skr_parked parked;  // of the server that is read now

    // The settler's thread alone: published rows that are parked, to be settled
    // after all, and under which claim.
    struct skr_batch again;
    struct skr_parked_row again_rows[SKR_MOST_AGAIN];
    int64_t again_ms;  // not before that while batches wait
    enum skr_claim claim;
    struct skr_lease lease;
};

// The caller has filled in the members up to park_ms; the rest is zero.
SKR_MUST_CHECK enum skr_code
skr_settler_start(struct skr_settler *settler, size_t batch_capacity,
                  struct skr_error *error);

// Tells which server is read from now on. What was read from another is not
// settled any more: there the ids may be those of other rows.
void skr_settler_work_on(struct skr_settler *settler, uint64_t server);

// A free slot, which is the pump's from now on, or NULL.
struct skr_slot *skr_settler_take_free(struct skr_settler *settler);
enum skr_slot_state
skr_settler_state(struct skr_settler *settler, const struct skr_slot *slot);
// A slot that is the pump's, or NULL.
struct skr_slot *skr_settler_find_open(struct skr_settler *settler);
void skr_settler_put_back(struct skr_settler *settler, struct skr_slot *slot);
void skr_settler_hand_over(struct skr_settler *settler, struct skr_slot *slot);

// The rows of all slots that are not free, in ascending order: what a read must
// not give again. rows has room for every slot's capacity.
size_t skr_settler_list_rows(struct skr_settler *settler, int64_t *rows);

// Those of them, and of parked rows, that are published and not yet gone, in
// ascending order. rows has room for SKR_MOST_PARKED more.
size_t skr_settler_list_done(struct skr_settler *settler, int64_t *rows);

// The rows that are parked, in ascending order. rows has room for
// SKR_MOST_PARKED.
size_t skr_settler_list_parked(struct skr_settler *settler, int64_t *rows);
// Those that are not published, and were parked until they may be read: what
// follows them in their partition waits until they are settled.
size_t skr_settler_list_unsettled(struct skr_settler *settler, int64_t *rows);
// Whether rows that were parked may be read again from now on, and when the
// next may; 0: none waits for its time.
bool skr_settler_release_parked(struct skr_settler *settler);
int64_t skr_settler_parked_ms(struct skr_settler *settler);

// parking.c, for the settler's thread.

// The table cannot be written: rows of the batch that came to an outcome and
// are not published stay where they are, and are read again after a while.
void skr_settler_leave_unpublished(struct skr_settler *settler,
                                   struct skr_batch *batch);
// Makes room for the published rows of the batch that were refused. Without it
// they are to be settled again: what is parked is sent once more by whoever
// comes next, and its number is bounded for that.
SKR_MUST_CHECK enum skr_code
skr_settler_reserve_parked(struct skr_settler *settler, struct skr_batch *batch,
                           struct skr_error *error);
// Parks the rows of the batch that were refused, and tells of each once: by
// itself while they are few.
void skr_settler_park_refused(struct skr_settler *settler,
                              const struct skr_batch *batch);
// Takes out of the parked rows those of `again` that could be settled after
// all, and those whose id is a new row's. Gives how many those are.
size_t skr_settler_unpark(struct skr_settler *settler);

// telling.c, for the settler's thread: counts a batch that is settled, tells
// the counts to other threads, both under the lock; and logs what failed or
// blocks its partition. db may be NULL.
void
skr_settler_count(struct skr_settler *settler, const struct skr_batch *batch);
void skr_settler_tell(const struct skr_settler *settler);
void skr_settler_log_outcomes(const struct skr_settler *settler,
                              struct skr_db *db, const struct skr_batch *batch);

// Waits until a slot is settled, up to timeout_ms. True: none is left.
bool skr_settler_wait(struct skr_settler *settler, uint32_t timeout_ms);

struct skr_settler_counts skr_settler_counts(struct skr_settler *settler);

// Ends the thread: settles what was handed over, but gives up after
// timeout_ms. Safe when it was never started.
void skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms);

#endif
