// SPDX-License-Identifier: MIT
// Whether rows are still the ones that were read. A table that was emptied or
// made anew gives ids a second time: an id alone does not tell a row from one
// that came later, the id and the time at which the row was made do.

#ifndef SKR_STORE_IDENTITY_H
#define SKR_STORE_IDENTITY_H

#include "store/batch.h"
#include "store/list.h"

// As many characters of a time as are kept and compared: up to the seconds.
enum { SKR_IDENTITY_SIZE = 20 };

// Parameters: ids.
#define SKR_IDENTITY_SQL \
    "SELECT id, created_at FROM {table} WHERE id IN ({ids})"

// What a row says of the time at which it was made, in the arena; "" where that
// is no text. NULL: memory is out.
const char *
skr_identity_take(struct skr_arena *arena, const struct skr_value *created_at);

// Whether every settle of a table of this database has to ask.
bool skr_identity_is_unsure(const struct skr_dialect *dialect);

// In the transaction that is going to write: items of which the id is a new
// row's are marked as replaced and lost, and are SKR_READ from now on, so that
// nothing is written to the new row. Items without a time are not looked at.
SKR_MUST_CHECK enum skr_code
skr_identity_check(struct skr_tx tx, const struct skr_list_sql *sql,
                   struct skr_batch *batch, struct skr_error *error);

#endif
