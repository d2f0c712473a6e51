// SPDX-License-Identifier: MIT
// How relays divide the shards of a queue evenly among themselves, and when one
// polls what the others have. No clock, no database: times are the caller's, by
// skr_clock_ms().

#ifndef SKR_RELAY_REBALANCE_H
#define SKR_RELAY_REBALANCE_H

#include "base/backoff.h"
#include "store/store.h"

// When to poll the others' shards next.
struct skr_rebalance {
    int64_t next_poll_ms;
    int64_t silent_poll_ms;    // the same while nothing moves
    int64_t moved_ms;          // when something was last written or sent
    struct skr_backoff eager;  // between polls of a relay without a shard
    struct skr_backoff stuck;  // after a change that did not come to its end
    bool is_spare;             // it has none
    int64_t cursor;            // of the source, and decided rows, when
    uint64_t decided;          // something last moved
};

// What a relay has done since the last call.
struct skr_activity {
    bool is_idle;      // nothing is at the broker
    bool is_quiet;     // and nothing is read or being settled
    int64_t cursor;    // of the source: it passes what is written to any shard
    uint64_t decided;  // rows that came to a decision
    bool has_due;
};

// What a relay should give back and take, so that all have about the same. A
// relay that is not a member takes a place first, which tells the others that
// it is there.
void
skr_rebalance_plan(const struct skr_assignments *shares,
                   struct skr_assignment *give, struct skr_assignment *take);

// Where nothing moves every query counts.
void skr_rebalance_note(struct skr_rebalance *rebalance,
                        const struct skr_activity *activity, int64_t now_ms);
// The others were polled, and this relay owns `ours`, which are about to change
// or not: plans the next poll. It is no later than the first of the others'
// leases can run out. A relay without a shard polls sooner, as others are about
// to give it some.
void skr_rebalance_polled(struct skr_rebalance *rebalance,
                          const struct skr_assignment *ours,
                          const struct skr_assignments *shares,
                          bool is_changing, int64_t now_ms);
// Shards have changed hands, and this relay owns `ours`. is_done: as planned.
// Else it is tried again: relays that took the same shards are soon done; what
// a frozen one has locked cannot be had for long, and each attempt costs a
// pause, up to longest_ms.
void skr_rebalance_changed(struct skr_rebalance *rebalance,
                           const struct skr_assignment *ours, bool is_done,
                           uint32_t longest_ms, int64_t now_ms);
// When the next poll is due.
int64_t
skr_rebalance_next_ms(const struct skr_rebalance *rebalance, int64_t now_ms);

#endif
