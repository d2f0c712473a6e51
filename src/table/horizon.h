// SPDX-License-Identifier: MIT
// Whether rows may still appear behind a reader's cursor, and what is known now
// of transactions. The first is asked before, the second after a look at them,
// in the same transaction. sql is the dialect's {horizon}.
//
// An id is given once: what was seen cannot appear. The cursor moves to the
// next row that is there, and skips to one where it did not see all before it.
// After a read the mark settles where nothing can appear by that.
//
// Where we may not ask for transactions, and order counts, the rows are looked
// at before that transaction as well, committed or not. print_sql is the
// dialect's {rows_print}; NULL: order does not count.

#ifndef SKR_TABLE_HORIZON_H
#define SKR_TABLE_HORIZON_H

#include "table/table.h"

void skr_horizon_move(struct skr_position *position, int64_t row);
void skr_horizon_skip(struct skr_position *position, int64_t row);
void skr_horizon_settle(const char *sql, struct skr_position *position);
bool skr_horizon_is_late_possible(const char *sql,
                                  const struct skr_position *position);
SKR_MUST_CHECK enum skr_code
skr_horizon_look_ahead(const char *print_sql, struct skr_db *db,
                       struct skr_position *position, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_horizon_follow(const char *sql, const char *print_sql, struct skr_tx tx,
                   int64_t now_ms, struct skr_position *position,
                   struct skr_error *error);

#endif
