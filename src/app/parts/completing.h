// SPDX-License-Identifier: MIT
// Adding to a table, while it is in use, what it lacks.

#ifndef SKR_APP_PARTS_COMPLETING_H
#define SKR_APP_PARTS_COMPLETING_H

#include "db/db.h"
#include "table/table.h"

// Gives the statements, to be run, one after the other. One setup at a time
// does this in a database; whoever waits for another says so.
SKR_MUST_CHECK enum skr_code
skr_complete_table(const struct skr_table *table, struct skr_db *db,
                   skr_sql_text_fn *each, void *user, struct skr_error *error);

#endif
