// SPDX-License-Identifier: MIT
// A relay's share of an ordered queue that several divide among themselves.

#ifndef SKR_OUTBOX_SHARING_H
#define SKR_OUTBOX_SHARING_H

#include "table/table.h"

// All times by skr_clock_ms().
struct skr_sharing {
    struct skr_share share;
    int64_t leased_ms;     // when its lease began, at the latest
    int64_t next_look_ms;  // at what others have
    bool is_changing;      // once nothing is under way
};

// What a relay should give back and take, so that all have about the same.
// Whoever has no seat takes one first: it tells the others that he is there.
void skr_sharing_plan(const struct skr_shares *shares, struct skr_share *give,
                      struct skr_share *take);

#endif
