// SPDX-License-Identifier: MIT
// A relay that comes or goes is noticed soon where something is sent, or
// written, in any shard. Where nothing is, every query counts; but a relay with
// a liveness lock is looked after all the time, as it may leave work that no
// other relay sees.

#include "relay/rebalance.h"

enum {
    LOOK_MS = 1000,
    LIVENESS_LOOK_MS = 400,  // where a relay that is gone shows at once
    SHORTEST_PAUSE_MS = 100,
    SILENT_MS = 60000,  // after which every query counts
};

static size_t
count_bits(uint64_t bits)
{
    size_t count = 0;
    for (; bits != 0; bits &= bits - 1)
        count++;
    return count;
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
skr_rebalance_plan(const struct skr_shares *shares, struct skr_share *give,
                   struct skr_share *take)
{
    *give = *take = (struct skr_share){.slots = 0};
    if (shares->ours.seats == 0) {
        take->seats = shares->free.seats & (~shares->free.seats + 1);
        return;
    }
    // What does not divide evenly goes to the relays on the first seats.
    size_t relays = shares->others + 1;
    size_t rank = count_bits(~shares->free.seats & (shares->ours.seats - 1));
    size_t fair = SKR_SLOTS / relays + (rank < SKR_SLOTS % relays);
    size_t ours = count_bits(shares->ours.slots);
    if (ours > fair)
        give->slots = some_of(shares->ours.slots, ours - fair);
    else
        take->slots = some_of(shares->free.slots, fair - ours);
}

void
skr_rebalance_looked(struct skr_rebalance *rebalance,
                     const struct skr_share *ours,
                     const struct skr_shares *shares, int64_t now_ms)
{
    int64_t look_ms = shares->others_by_lock ? LIVENESS_LOOK_MS : LOOK_MS;
    int64_t silent_ms = shares->others_by_lock ? LIVENESS_LOOK_MS : SILENT_MS;
    if (shares->others_for_s > 0 && shares->others_for_s * 1000 < silent_ms)
        silent_ms = shares->others_for_s * 1000;
    rebalance->silent_look_ms = now_ms + silent_ms;
    rebalance->is_spare = ours->slots == 0;
    rebalance->eager.first_ms = SHORTEST_PAUSE_MS;
    rebalance->eager.longest_ms = (uint32_t)look_ms;
    if (rebalance->is_spare)
        look_ms = skr_backoff_next(&rebalance->eager);
    else
        skr_backoff_reset(&rebalance->eager);
    rebalance->next_look_ms = now_ms + look_ms;
}

int64_t
skr_rebalance_look_ms(const struct skr_rebalance *rebalance, int64_t now_ms)
{
    // A relay without a shard sees nothing move.
    bool is_silent = !rebalance->is_spare &&
                     now_ms - rebalance->moved_ms >= SILENT_MS &&
                     rebalance->silent_look_ms > rebalance->next_look_ms;
    return is_silent ? rebalance->silent_look_ms : rebalance->next_look_ms;
}
