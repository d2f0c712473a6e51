// SPDX-License-Identifier: MIT
// message_broker_deduplication: which messages a database has seen.

#ifndef SKR_STORE_DEDUPLICATION_DEDUPLICATION_H
#define SKR_STORE_DEDUPLICATION_DEDUPLICATION_H

#include "store/store.h"

struct skr_deduplication;

// name NULL: "message_broker_deduplication".
SKR_MUST_CHECK enum skr_code
skr_deduplication_new(const struct skr_dialect *dialect, const char *name,
                      struct skr_deduplication **table,
                      struct skr_error *error);
void skr_deduplication_free(struct skr_deduplication *table);

// The table takes over from another in the moment in which it is made: what is
// recorded there until then counts as handled here, too, and what others record
// there later does not. NULL, or its own name: it is the only one. Called
// before anything else; a second call does nothing.
SKR_MUST_CHECK enum skr_code
skr_deduplication_succeed(struct skr_deduplication *table, const char *before,
                          struct skr_error *error);
// Finds out whether there is anything to look for in the other table: not once
// the mark of that moment has been cleaned away, which is as old as what could
// be found. Until this was called nothing is. *inherits: there is, and this
// table has no record of its own yet.
SKR_MUST_CHECK enum skr_code
skr_deduplication_look_back(struct skr_deduplication *table, struct skr_db *db,
                            bool *inherits, struct skr_error *error);

SKR_MUST_CHECK enum skr_code
skr_deduplication_setup(const struct skr_deduplication *table,
                        skr_sql_text_fn *each, void *user,
                        struct skr_error *error);
// Runs them in one transaction, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_deduplication_create(const struct skr_deduplication *table,
                         struct skr_db *db, struct skr_error *error);
// SKR_MISSING and SKR_INVALID as check() of store.h.
SKR_MUST_CHECK enum skr_code
skr_deduplication_check(const struct skr_deduplication *table,
                        struct skr_db *db, struct skr_error *error);

enum { SKR_DEDUPLICATION_NAME_LENGTH = 255 };  // characters, not bytes

// Whether the name of a message finds room in the table.
bool skr_deduplication_has_room(const char *message_name);

// Inserts the id: SKR_OK the first time, SKR_DUPLICATE after that. The caller
// is in a transaction, which stays usable either way. SKR_INVALID for a name
// that finds no room: nothing was done.
SKR_MUST_CHECK enum skr_code
skr_deduplication_admit(const struct skr_deduplication *table, struct skr_tx tx,
                        struct skr_id id, const char *message_name,
                        struct skr_error *error);

struct skr_admission {
    struct skr_id id;
    const char *message_name;
};

// Inserts all of them, in a few statements. SKR_DUPLICATE: one is recorded
// already, or is among them twice; what became of the others is unknown, and
// the transaction is to be rolled back.
SKR_MUST_CHECK enum skr_code
skr_deduplication_admit_all(const struct skr_deduplication *table,
                            struct skr_tx tx, const struct skr_admission *all,
                            size_t count, struct skr_error *error);

// Whether the id is recorded, for a caller that wants to know before it begins.
SKR_MUST_CHECK enum skr_code
skr_deduplication_find(const struct skr_deduplication *table, struct skr_tx tx,
                       struct skr_id id, bool *found, struct skr_error *error);

// Removes the record of an id; harmless when there is none.
SKR_MUST_CHECK enum skr_code
skr_deduplication_forget(const struct skr_deduplication *table,
                         struct skr_tx tx, struct skr_id id,
                         struct skr_error *error);

// Removes the records of what was handled longer ago. A message that comes
// again after that is handled again. removed is added to.
struct skr_cleaning;
SKR_MUST_CHECK enum skr_code
skr_deduplication_clean(const struct skr_deduplication *table,
                        const struct skr_cleaning *cleaning, struct skr_db *db,
                        uint64_t *removed, struct skr_error *error);

#endif
