// SPDX-License-Identifier: MIT
// Partitions that wait and are long. What lies beyond the reader of these would
// be read to be left where it is: it need not be. All that a blocked partition
// has is read from its head once it goes on.

#ifndef SKR_OUTBOX_PASSING_H
#define SKR_OUTBOX_PASSING_H

#include "outbox/order.h"
#include "table/table.h"

struct skr_passing {
    char *keys[SKR_MOST_PASSED];  // the oldest first
    size_t count;
};

// Rows of one batch that were left because their partition waits, and whether
// most of the batch is of one partition.
struct skr_passing_vote {
    const char *key;
    size_t votes;
};
void skr_passing_vote(struct skr_passing_vote *vote, const char *key);

// The oldest gives way when there is no room. Without memory all stays as it
// was.
void skr_passing_add(struct skr_passing *passing, const char *key);
// Forgets those that do not wait any more, or of which something is in hand.
void
skr_passing_review(struct skr_passing *passing, const struct skr_order *order);
void skr_passing_clear(struct skr_passing *passing);

#endif
