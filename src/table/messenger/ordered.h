// SPDX-License-Identifier: MIT
// Partitions, for the files that read them.

#ifndef SKR_TABLE_MESSENGER_ORDERED_H
#define SKR_TABLE_MESSENGER_ORDERED_H

#include "table/messenger/layout.h"

// Forgets the one row in the batch if it is not the head of its partition.
SKR_MUST_CHECK enum skr_code
skr_ordered_keep_head(const struct skr_messenger *messenger, struct skr_tx tx,
                      struct skr_batch *batch, struct skr_error *error);

#endif
