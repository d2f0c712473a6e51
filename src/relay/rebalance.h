// SPDX-License-Identifier: MIT
// How relays divide the shards of a queue evenly among themselves, and when one
// looks at what the others have. No clock, no database.

#ifndef SKR_RELAY_REBALANCE_H
#define SKR_RELAY_REBALANCE_H

#include "base/backoff.h"
#include "store/store.h"

// When to look at the others' shards next. Times by skr_clock_ms().
struct skr_rebalance {
    int64_t next_look_ms;
    int64_t silent_look_ms;    // the same while nothing moves
    int64_t moved_ms;          // when something was last written or sent
    struct skr_backoff eager;  // between looks of a relay without a shard
    bool is_spare;             // it has none
};

// What a relay should give back and take, so that all have about the same. A
// relay without a seat takes one first, which tells the others that it is
// there.
void skr_rebalance_plan(const struct skr_shares *shares, struct skr_share *give,
                        struct skr_share *take);

// The others were looked at, and this relay owns `ours`: plans the next look.
// It is no later than the first of the others' leases can run out. A relay
// without a shard looks sooner, as others are about to give it some.
void skr_rebalance_looked(struct skr_rebalance *rebalance,
                          const struct skr_share *ours,
                          const struct skr_shares *shares, int64_t now_ms);
// When the next look is due.
int64_t
skr_rebalance_look_ms(const struct skr_rebalance *rebalance, int64_t now_ms);

#endif
