// SPDX-License-Identifier: MIT
// Whether rows may still appear behind a reader's cursor, and what is known now
// of transactions. The first is asked before, the second after a look at them,
// in the same transaction. sql is the dialect's {horizon}.

#ifndef SKR_TABLE_HORIZON_H
#define SKR_TABLE_HORIZON_H

#include "table/table.h"

bool skr_horizon_is_late_possible(const char *sql,
                                  const struct skr_position *position);
SKR_MUST_CHECK enum skr_code
skr_horizon_follow(const char *sql, struct skr_tx tx, int64_t now_ms,
                   struct skr_position *position, struct skr_error *error);

#endif
