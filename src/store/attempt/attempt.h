// SPDX-License-Identifier: MIT
// skirnir_attempt: what has to be known of a delivery before the broker hears
// of it, and must outlive the consumer that has it in hand. A row is an
// attempt that was begun, or a receipt for a letter that was stored. It is
// removed when the delivery is settled; what a crash leaves behind is cleaned
// by age.

#ifndef SKR_STORE_ATTEMPT_ATTEMPT_H
#define SKR_STORE_ATTEMPT_ATTEMPT_H

#include "store/store.h"

#define SKR_ATTEMPT_TABLE "skirnir_attempt"

SKR_MUST_CHECK enum skr_code
skr_attempts_setup(const struct skr_dialect *dialect, skr_sql_text_fn *each,
                   void *user, struct skr_error *error);
// Runs it in one transaction, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_attempts_create(struct skr_db *db, struct skr_error *error);
// SKR_MISSING and SKR_INVALID as check() of store.h.
SKR_MUST_CHECK enum skr_code
skr_attempts_check(struct skr_db *db, struct skr_error *error);

// The key of a row about a message, by its id or what stands for it. Several
// consumers may have the same message, each for itself. what: "attempt", or
// what was stored.
struct skr_id
skr_attempts_key(struct skr_id id, const char *consumer, const char *what);

// Counts one attempt more, in a transaction of its own, and gives how many
// there are: 1 the first time.
SKR_MUST_CHECK enum skr_code
skr_attempts_raise(struct skr_db *db, struct skr_id key, uint32_t *count,
                   struct skr_error *error);
// Takes one back, in whatever transaction tx is.
SKR_MUST_CHECK enum skr_code
skr_attempts_lower(struct skr_tx tx, struct skr_id key,
                   struct skr_error *error);
// Adds a receipt: SKR_DUPLICATE when it is there. The transaction stays usable
// either way. Where another transaction is about to add the same, this waits
// for its end.
SKR_MUST_CHECK enum skr_code
skr_attempts_add_receipt(struct skr_tx tx, struct skr_id key,
                         struct skr_error *error);
// Which row was stored with the receipt; 0: that is not known.
SKR_MUST_CHECK enum skr_code
skr_attempts_note_row(struct skr_tx tx, struct skr_id key, int64_t row,
                      struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_attempts_find_row(struct skr_tx tx, struct skr_id key, int64_t *row,
                      struct skr_error *error);
// Removes an attempt or a receipt; harmless when there is none. Of several
// consumers that try at once, one finds that it was there. was_there may be
// NULL.
SKR_MUST_CHECK enum skr_code
skr_attempts_remove(struct skr_tx tx, struct skr_id key, bool *was_there,
                    struct skr_error *error);
// Removes what is older than a week: its message is long gone.
SKR_MUST_CHECK enum skr_code
skr_attempts_clean(struct skr_tx tx, struct skr_error *error);

#endif
