// SPDX-License-Identifier: MIT
// The low watermark: whether rows may still appear behind a reader's cursor.
//
// What decides is pure: it looks at the position alone. An id is given once:
// what was seen cannot appear. The cursor moves to the next row that is there,
// and skips to one where it did not see all before it. After a read the mark
// settles where nothing can appear by that. Where an id is missing, open
// transactions tell (horizon.c says how): looked() is told of each look at the
// rows from the mark to the cursor, answered() of what the server said in the
// same transaction, after that look.
//
// follow() does both, and asks. sql is the dialect's {horizon}. Where
// transactions cannot be asked for (horizon_hidden), the mark of a queue whose
// order counts stays where it is, and each look begins there.

#ifndef SKR_STORE_HORIZON_H
#define SKR_STORE_HORIZON_H

#include "store/store.h"

void skr_horizon_move(struct skr_position *position, int64_t row);
void skr_horizon_skip(struct skr_position *position, int64_t row);
void skr_horizon_settle(const char *sql, struct skr_position *position);
bool skr_horizon_is_late_possible(const char *sql,
                                  const struct skr_position *position);
void skr_horizon_looked(struct skr_position *position);
void skr_horizon_answered(struct skr_position *position, int64_t oldest,
                          int64_t next, int64_t now_ms);
// Before the first read: whether other servers' transactions commit in this
// database.
void skr_horizon_start(struct skr_position *position, const struct skr_db *db);
SKR_MUST_CHECK enum skr_code
skr_horizon_follow(const char *sql, bool order_counts, struct skr_tx tx,
                   int64_t now_ms, struct skr_position *position,
                   struct skr_error *error);

#endif
