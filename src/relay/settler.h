// SPDX-License-Identifier: MIT
// The settler: a thread with a database connection of its own that writes what
// was decided about rows, so that neither the broker nor the reader waits for
// it. Jobs go in by put() and come back by take(); in between they are the
// settler's alone.
//
// A row whose decision the database refuses to write is parked, and logged
// once. One that is published is settled again now and then, and not sent
// again; any other is left alone for a while and then read like any row.

#ifndef SKR_RELAY_SETTLER_H
#define SKR_RELAY_SETTLER_H

#include "base/beat.h"
#include "base/log.h"
#include "relay/relay.h"
#include "store/parked.h"
#include "store/store.h"

struct skr_settler;
struct skr_ownership;

// A batch whose rows are decided. When it comes back each item says what became
// of that: its state, `write`, `lost` and `refusal`. The rest is the settler's
// and begins as zeroes.
struct skr_job {
    struct skr_batch batch;
    // When the table was found to refuse every row's decision: rows that are
    // not published were left then, and their states are SKR_READ; 0: never.
    int64_t refused_ms;
    int64_t took_ms;    // to settle it, waits included
    bool has_failed;    // to be settled, the last time
    bool was_deferred;  // there was no room to park its rows
    struct skr_job *next;
};

// All but the last two are borrowed. ownership is asked whether a decision may
// be written that is the owner's alone; parked is changed by the session's
// thread alone; beat is of the settler's thread, for others to ask.
SKR_MUST_CHECK enum skr_code
skr_settler_start(const struct skr_relay_settings *settings,
                  const struct skr_ownership *ownership,
                  struct skr_parked *parked, struct skr_beat *beat,
                  struct skr_settler **settler, struct skr_error *error);

// Rows of this server are read from now on. What was read from another is not
// settled any more, and parked rows are forgotten: there the ids may be those
// of other rows.
void skr_settler_work_on(struct skr_settler *settler, uint64_t server);

void skr_settler_put(struct skr_settler *settler, struct skr_job *job);
// A job that is settled, counted and logged, its refused rows parked; or NULL,
// and then what is to be tried again has been put. db: the session's, by which
// a blocked partition is measured, or NULL.
struct skr_job *
skr_settler_take(struct skr_settler *settler, struct skr_db *db);
// Whether jobs were put that have not been taken.
bool skr_settler_is_busy(const struct skr_settler *settler);
// Waits for a moment until a job can be taken, or none is left.
void skr_settler_wait(struct skr_settler *settler, int stop_fd);
// When take() has something to try again, by skr_clock_ms(); 0: never.
int64_t skr_settler_next_ms(const struct skr_settler *settler);

// Parks a row that cannot be claimed, and logs a new one. False: no room.
bool skr_settler_park(struct skr_settler *settler,
                      const struct skr_batch_item *item);

// Ends the thread: it settles what was put, but gives up after timeout_ms.
// Jobs can still be taken.
void skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms);
// Takes NULL.
void skr_settler_free(struct skr_settler *settler);

#endif
