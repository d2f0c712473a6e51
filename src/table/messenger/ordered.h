// SPDX-License-Identifier: MIT
// Partitions, for the files that claim them.

#ifndef SKR_TABLE_MESSENGER_ORDERED_H
#define SKR_TABLE_MESSENGER_ORDERED_H

#include "table/messenger/layout.h"

// Forgets the one row in the batch if it is not the head of its partition.
SKR_MUST_CHECK enum skr_code
skr_ordered_keep_head(const struct skr_messenger *messenger, struct skr_tx tx,
                      struct skr_batch *batch, struct skr_error *error);

// rounds.c: whether what the last claim gave was worth while, and whether there
// is a round under way, or one that is worth while to begin.
void
skr_rounds_count(struct skr_position *position, const struct skr_read *read);
SKR_MUST_CHECK enum skr_code
skr_rounds_begin(const struct skr_messenger *messenger, struct skr_db *db,
                 struct skr_position *position, bool *is_worth,
                 struct skr_error *error);

#endif
