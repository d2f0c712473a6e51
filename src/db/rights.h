// SPDX-License-Identifier: MIT
// Whether the database's user may write to a table, asked by statements that
// change no row.

#ifndef SKR_DB_RIGHTS_H
#define SKR_DB_RIGHTS_H

#include <skirnir/skirnir.h>

struct skr_db;

// columns: all that an INSERT has to give. SKR_REFUSED with SKR_GIVE_UP names
// the right that is missing; any other failure is left to the statements that
// follow.
SKR_MUST_CHECK enum skr_code
skr_rights_check_insert(struct skr_db *db, const char *table,
                        const char *columns, struct skr_error *error);
// The same of a user who may neither UPDATE nor DELETE. One of both is enough
// for some of the work, and the rest says what it misses.
SKR_MUST_CHECK enum skr_code
skr_rights_check_change(struct skr_db *db, const char *table,
                        const char *column, struct skr_error *error);

#endif
