// SPDX-License-Identifier: MIT
// A relay's share of a queue that several divide among themselves.

#ifndef SKR_OUTBOX_SHARING_H
#define SKR_OUTBOX_SHARING_H

#include "table/table.h"

// All times by skr_clock_ms().
struct skr_sharing {
    struct skr_share share;
    bool by_lock;            // this session holds our liveness lock
    int64_t leased_ms;       // when its lease began, at the latest
    int64_t next_look_ms;    // at what others have
    int64_t silent_look_ms;  // the same while nothing moves
    int64_t eager_ms;        // between looks of one who has no slot; 0: he has
    int64_t stuck_ms;  // after a change that got stuck; 0: the last did not
    // When something was last written or sent, and what was there then.
    int64_t moved_ms;
    int64_t cursor;
    uint64_t finished;
    bool is_changing;  // once nothing is under way
    bool leaves_some;  // there were slots that nobody had, at the last look
};

// What a relay should give back and take, so that all have about the same.
// Whoever has no seat takes one first: it tells the others that he is there.
void skr_sharing_plan(const struct skr_shares *shares, struct skr_share *give,
                      struct skr_share *take);

// Others are looked at: plans the next look, should nothing move until then.
// That is no later than the first of their leases can run out. Whoever has no
// slot looks sooner, as others are about to give him some.
void skr_sharing_plan_look(struct skr_sharing *sharing,
                           const struct skr_shares *shares, int64_t now_ms);
// When the next look is due.
int64_t skr_sharing_look_ms(const struct skr_sharing *sharing, int64_t now_ms);

#endif
