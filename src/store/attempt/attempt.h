// SPDX-License-Identifier: MIT
// skirnir_attempt: what has to be known of a delivery before the broker hears
// of it, and must outlive the consumer that has it in hand. A row is an
// attempt that was begun, or a mark that something was stored. It is removed
// when the delivery is settled; what a crash leaves behind is cleaned by age.

#ifndef SKR_STORE_ATTEMPT_ATTEMPT_H
#define SKR_STORE_ATTEMPT_ATTEMPT_H

#include "store/store.h"

#define SKR_ATTEMPT_TABLE "skirnir_attempt"

struct skr_attempts;

SKR_MUST_CHECK enum skr_code
skr_attempts_new(const struct skr_dialect *dialect,
                 struct skr_attempts **attempts, struct skr_error *error);
void skr_attempts_free(struct skr_attempts *attempts);

SKR_MUST_CHECK enum skr_code
skr_attempts_setup(const struct skr_dialect *dialect, skr_sql_text_fn *each,
                   void *user, struct skr_error *error);
// Runs it in one transaction, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_attempts_create(struct skr_db *db, struct skr_error *error);
// SKR_MISSING and SKR_INVALID as skr_store_check_fn.
SKR_MUST_CHECK enum skr_code
skr_attempts_check(const struct skr_attempts *attempts, struct skr_db *db,
                   struct skr_error *error);

// The key of a row about a message, by its id or what stands for it. Several
// consumers may have the same message, each for itself. what: "attempt", or
// what was stored.
struct skr_id
skr_attempts_key(struct skr_id id, const char *consumer, const char *what);

// Counts one attempt more, in a transaction of its own, and gives how many
// there are: 1 the first time.
SKR_MUST_CHECK enum skr_code
skr_attempts_raise(const struct skr_attempts *attempts, struct skr_db *db,
                   struct skr_id key, uint32_t *count, struct skr_error *error);
// Takes one back, in whatever transaction tx is.
SKR_MUST_CHECK enum skr_code
skr_attempts_lower(const struct skr_attempts *attempts, struct skr_tx tx,
                   struct skr_id key, struct skr_error *error);
// Adds a row that only says that there is one: SKR_DUPLICATE when it is there.
// The transaction stays usable either way. Where another transaction is about
// to add the same, this waits for its end.
SKR_MUST_CHECK enum skr_code
skr_attempts_mark(const struct skr_attempts *attempts, struct skr_tx tx,
                  struct skr_id key, struct skr_error *error);
// Takes such a row away. Of several consumers that try at once, one finds that
// it was there.
SKR_MUST_CHECK enum skr_code
skr_attempts_take(const struct skr_attempts *attempts, struct skr_tx tx,
                  struct skr_id key, bool *was_there, struct skr_error *error);
// Harmless when there is none.
SKR_MUST_CHECK enum skr_code
skr_attempts_remove(const struct skr_attempts *attempts, struct skr_tx tx,
                    struct skr_id key, struct skr_error *error);
// Removes what is older than a week: its message is long gone.
SKR_MUST_CHECK enum skr_code
skr_attempts_clean(const struct skr_attempts *attempts, struct skr_tx tx,
                   struct skr_error *error);

#endif
