// SPDX-License-Identifier: MIT
// The settler: a thread with a database connection of its own that writes what
// was decided about rows, so that neither the broker nor the reader waits for
// it. Jobs go in by put() and come back by take(), in the order in which they
// were put; in between they are the settler's alone.

#ifndef SKR_RELAY_SETTLER_H
#define SKR_RELAY_SETTLER_H

#include "base/beat.h"
#include "base/log.h"
#include "store/store.h"

struct skr_settler;
struct skr_ownership;

// A batch whose rows are decided. When it comes back each item says what became
// of that: its state, `write`, `lost` and `refusal`.
struct skr_job {
    struct skr_batch batch;
    // As the batch has them, for threads that may not look into it now.
    size_t row_count, byte_count;
    // When the table was found to refuse every row's decision: rows that are
    // not published were left then, and their states are SKR_READ; 0: never.
    int64_t refused_ms;
    int64_t took_ms;  // to settle it, waits included
    // Settled once, and not again and again until that succeeds; then
    // has_failed tells whether it did not.
    bool tries_once, has_failed;
    bool was_put_off;  // the parking's: it found no room there
    struct skr_job *next;
};

struct skr_settler_options {
    const char *name;
    const struct skr_db_ops *database;
    const char *database_url;
    const struct skr_store *table;
    // Asked whether a decision may be written that is the owner's alone.
    const struct skr_ownership *ownership;
    struct skr_beat *beat;  // of its thread, for others to ask
    const struct skr_log *log;
};

SKR_MUST_CHECK enum skr_code
skr_settler_start(const struct skr_settler_options *options,
                  struct skr_settler **settler, struct skr_error *error);

// Tells which server is read from now on. What was read from another is not
// settled any more: there the ids may be those of other rows.
void skr_settler_work_on(struct skr_settler *settler, uint64_t server);

void skr_settler_put(struct skr_settler *settler, struct skr_job *job);
// A job that is settled, or NULL.
struct skr_job *skr_settler_take(struct skr_settler *settler);
// Waits until a job can be taken, or none is left, up to timeout_ms.
void skr_settler_wait(struct skr_settler *settler, uint32_t timeout_ms);

// Ends the thread: it settles what was put, but gives up after timeout_ms.
// Jobs can still be taken.
void skr_settler_stop(struct skr_settler *settler, uint32_t timeout_ms);
// Takes NULL.
void skr_settler_free(struct skr_settler *settler);

#endif
