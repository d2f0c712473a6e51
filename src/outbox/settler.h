// SPDX-License-Identifier: MIT
// The settler: a thread with a database connection of its own that records
// what became of batches, in the order in which they were handed to it.

#ifndef SKR_OUTBOX_SETTLER_H
#define SKR_OUTBOX_SETTLER_H

#include "base/log.h"
#include "outbox/gates.h"
#include "outbox/tally.h"
#include "outbox/waiting.h"
#include "table/table.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SKR_MAX_SLOTS = 8 };

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
    struct skr_db *db;   // holds row locks; NULL: none
    int64_t db_used_ms;
    enum skr_slot_state state;
    uint64_t turn;    // settled in ascending order
    uint64_t server;  // whose rows these are
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
    size_t usable_slots;            // at most SKR_MAX_SLOTS

    struct skr_slot slots[SKR_MAX_SLOTS];

    pthread_t thread;
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
    // Rows that could not be moved to the failed table, and stay.
    struct skr_waiting left;
};

// The caller has filled in the members up to usable_slots; the rest is zero.
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

// Those of them that are published and not yet gone, in ascending order.
size_t skr_settler_list_done(struct skr_settler *settler, int64_t *rows);

// Adds rows that stay although they came to an outcome: each is told once.
void
skr_settler_take_left(struct skr_settler *settler, struct skr_waiting *waiting);

// Waits until a slot is settled, up to timeout_ms. True: none is left.
bool skr_settler_wait(struct skr_settler *settler, uint32_t timeout_ms);

struct skr_settler_counts skr_settler_counts(struct skr_settler *settler);

// Ends the thread: settles what was handed over, but gives up after
// timeout_ms. Safe when it was never started.
void skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms);

#endif
