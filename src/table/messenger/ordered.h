// SPDX-License-Identifier: MIT
// Reading partitions, shared by the files that do it.

#ifndef SKR_TABLE_MESSENGER_ORDERED_H
#define SKR_TABLE_MESSENGER_ORDERED_H

#include "table/messenger/layout.h"

// As read_partitions(), up to an id and in whatever transaction tx is. Adds to
// the batch. skipped: how many rows of a partition that are done may lie before
// those that are wanted.
SKR_MUST_CHECK enum skr_code
skr_ordered_read(const struct skr_messenger *messenger, struct skr_tx tx,
                 const struct skr_position *position,
                 const struct skr_read *read, int64_t up_to, size_t skipped,
                 struct skr_partition_read *partitions, size_t count,
                 struct skr_batch *batch, struct skr_error *error);
// Forgets the one row in the batch if it is not the head of its partition.
SKR_MUST_CHECK enum skr_code
skr_ordered_keep_head(const struct skr_messenger *messenger, struct skr_tx tx,
                      struct skr_batch *batch, struct skr_error *error);

#endif
