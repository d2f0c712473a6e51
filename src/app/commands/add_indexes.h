// SPDX-License-Identifier: MIT
// Adding to a table, while it is in use, what it lacks.

#ifndef SKR_APP_COMMANDS_ADD_INDEXES_H
#define SKR_APP_COMMANDS_ADD_INDEXES_H

#include "db/db.h"
#include "store/store.h"

// Runs the statements, one after the other, and prints each before it is run
// and after it ran. One setup at a time does this in a database; one that waits
// for another prints that too.
SKR_MUST_CHECK enum skr_code
skr_complete_table(const struct skr_store *table, struct skr_db *db,
                   struct skr_error *error);

#endif
