// SPDX-License-Identifier: MIT
// A relay that comes or goes is noticed soon where something is sent, or
// written, in any shard. Where nothing is, every query counts; but a relay with
// a liveness lock is polled all the time, as it may leave work that no other
// relay sees.

#include "relay/rebalance.h"

enum {
    POLL_MS = 1000,
    LIVENESS_POLL_MS = 400,  // where a relay that is gone shows at once
    SHORTEST_PAUSE_MS = 100,
    SILENT_MS = 60000,  // after which every query counts
    STUCK_PAUSE_MS = 100,
};

static size_t
count_bits(uint64_t bits)
{
    return (size_t)__builtin_popcountll(bits);
}

// So many of them, spread evenly: shards of a plain queue are blocks of ids,
// and rows that come one after the other are for all relays.
static uint64_t
some_of(uint64_t bits, size_t count)
{
    uint64_t some = 0;
    size_t all = count_bits(bits);
    count = count < all ? count : all;
    for (size_t i = 0; bits != 0; i++) {
        if (i * count / all != (i + 1) * count / all)
            some |= bits & (~bits + 1);
        bits &= bits - 1;
    }
    return some;
}

void
skr_rebalance_plan(const struct skr_assignments *shares,
                   struct skr_assignment *give, struct skr_assignment *take)
{
    *give = *take = (struct skr_assignment){.shards = 0};
    if (shares->ours.members == 0) {
        take->members = shares->free.members & (~shares->free.members + 1);
        return;
    }
    // What does not divide evenly goes to the first members.
    size_t relays = shares->others + 1;
    size_t rank =
        count_bits(~shares->free.members & (shares->ours.members - 1));
    size_t fair = SKR_SHARDS / relays + (rank < SKR_SHARDS % relays);
    size_t ours = count_bits(shares->ours.shards);
    if (ours > fair)
        give->shards = some_of(shares->ours.shards, ours - fair);
    else
        take->shards = some_of(shares->free.shards, fair - ours);
}

void
skr_rebalance_note(struct skr_rebalance *rebalance,
                   const struct skr_activity *activity, int64_t now_ms)
{
    if (rebalance->cursor == activity->cursor &&
        rebalance->decided == activity->decided && !activity->has_due)
        return;
    rebalance->cursor = activity->cursor;
    rebalance->decided = activity->decided;
    rebalance->moved_ms = now_ms;
}

void
skr_rebalance_polled(struct skr_rebalance *rebalance,
                     const struct skr_assignment *ours,
                     const struct skr_assignments *shares, bool is_changing,
                     int64_t now_ms)
{
    int64_t poll_ms = shares->others_by_lock ? LIVENESS_POLL_MS : POLL_MS;
    int64_t silent_ms = shares->others_by_lock ? LIVENESS_POLL_MS : SILENT_MS;
    if (shares->others_for_s > 0 && shares->others_for_s * 1000 < silent_ms)
        silent_ms = shares->others_for_s * 1000;
    if (!is_changing)
        skr_backoff_reset(&rebalance->stuck);
    rebalance->silent_poll_ms = now_ms + silent_ms;
    rebalance->is_spare = ours->shards == 0;
    rebalance->eager.first_ms = SHORTEST_PAUSE_MS;
    rebalance->eager.longest_ms = (uint32_t)poll_ms;
    if (rebalance->is_spare)
        poll_ms = skr_backoff_next(&rebalance->eager);
    else
        skr_backoff_reset(&rebalance->eager);
    rebalance->next_poll_ms = now_ms + poll_ms;
}

void
skr_rebalance_changed(struct skr_rebalance *rebalance,
                      const struct skr_assignment *ours, bool is_done,
                      uint32_t longest_ms, int64_t now_ms)
{
    rebalance->moved_ms = now_ms;
    rebalance->is_spare = ours->shards == 0;
    rebalance->stuck.first_ms = STUCK_PAUSE_MS;
    rebalance->stuck.longest_ms = longest_ms;
    if (is_done)
        skr_backoff_reset(&rebalance->stuck);
    else
        rebalance->next_poll_ms = now_ms + skr_backoff_next(&rebalance->stuck);
}

int64_t
skr_rebalance_next_ms(const struct skr_rebalance *rebalance, int64_t now_ms)
{
    // A relay without a shard sees nothing move.
    bool is_silent = !rebalance->is_spare &&
                     now_ms - rebalance->moved_ms >= SILENT_MS &&
                     rebalance->silent_poll_ms > rebalance->next_poll_ms;
    return is_silent ? rebalance->silent_poll_ms : rebalance->next_poll_ms;
}
