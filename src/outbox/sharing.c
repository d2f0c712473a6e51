// SPDX-License-Identifier: MIT
// Dividing a queue among relays. Each has some of the shards that its rows fall
// into, by leases, and works them as if it were alone. When relays come and go
// shards change hands: then a relay lets what is under way come to its end,
// changes its share, and reads anew from the start. So nothing has to be known
// of a shard but whether it is ours.
//
// A relay that comes or goes is noticed soon where something is sent, or
// written, in any share. Where nothing is, every query counts; but a relay that
// holds a liveness lock is looked after all the time, as it may leave work that
// no other relay sees.

#include "base/clock.h"
#include "base/error.h"
#include "outbox/pump.h"

enum {
    LOOK_MS = 1000,
    LIFE_LOOK_MS = 400,  // where a relay that is gone shows at once
    SHORTEST_PAUSE_MS = 100,
    SILENT_MS = 60000,  // after which every query counts
    MOST_STEPS = 4,
};

static struct skr_term
term_of(const struct skr_pump *pump)
{
    return (struct skr_term){.lease_s = pump->options->lease_ms / 1000,
                             .by_lock = pump->sharing.by_lock};
}

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
skr_sharing_plan(const struct skr_shares *shares, struct skr_share *give,
                 struct skr_share *take)
{
    *give = *take = (struct skr_share){.slots = 0};
    if (shares->ours.seats == 0) {
        take->seats = shares->free.seats & (~shares->free.seats + 1);
        return;
    }
    // What does not divide evenly goes to those on the first seats.
    size_t relays = shares->others + 1;
    size_t rank = count_bits(~shares->free.seats & (shares->ours.seats - 1));
    size_t fair = SKR_SLOTS / relays + (rank < SKR_SLOTS % relays);
    size_t ours = count_bits(shares->ours.slots);
    if (ours > fair)
        give->slots = some_of(shares->ours.slots, ours - fair);
    else
        take->slots = some_of(shares->free.slots, fair - ours);
}

static int64_t
lengthen(int64_t pause_ms, int64_t longest_ms)
{
    pause_ms = pause_ms == 0 ? SHORTEST_PAUSE_MS : pause_ms * 2;
    return pause_ms < longest_ms ? pause_ms : longest_ms;
}

void
skr_sharing_plan_look(struct skr_sharing *sharing,
                      const struct skr_shares *shares, int64_t now_ms)
{
    int64_t look_ms = shares->others_by_lock ? LIFE_LOOK_MS : LOOK_MS;
    int64_t silent_ms = shares->others_by_lock ? LIFE_LOOK_MS : SILENT_MS;
    if (shares->others_for_s > 0 && shares->others_for_s * 1000 < silent_ms)
        silent_ms = shares->others_for_s * 1000;
    sharing->eager_ms =
        sharing->share.slots == 0 ? lengthen(sharing->eager_ms, look_ms) : 0;
    sharing->next_look_ms =
        now_ms + (sharing->eager_ms > 0 ? sharing->eager_ms : look_ms);
    sharing->silent_look_ms = now_ms + silent_ms;
}

int64_t
skr_sharing_look_ms(const struct skr_sharing *sharing, int64_t now_ms)
{
    // Whoever has nothing of it sees nothing move.
    bool is_silent = sharing->share.slots != 0 &&
                     now_ms - sharing->moved_ms >= SILENT_MS &&
                     sharing->silent_look_ms > sharing->next_look_ms;
    return is_silent ? sharing->silent_look_ms : sharing->next_look_ms;
}

static bool
is_empty(const struct skr_share *share)
{
    return share->slots == 0 && share->seats == 0;
}

static bool
is_same(const struct skr_share *one, const struct skr_share *other)
{
    return one->slots == other->slots && one->seats == other->seats &&
           one->epochs == other->epochs;
}

bool
skr_pump_may_read(const struct skr_pump *pump)
{
    return !skr_pump_is_divided(pump) ||
           (!pump->sharing.is_changing && pump->sharing.share.slots != 0);
}

bool
skr_pump_has_share(const struct skr_pump *pump)
{
    return skr_clock_ms() - pump->sharing.leased_ms <
           (int64_t)pump->options->lease_ms * 2 / 3;
}

// While nothing is under way nothing waits for an attempt that fails.
static int64_t
renewal_ms(const struct skr_pump *pump)
{
    bool is_idle =
        skr_senders_pending(&pump->senders) == 0 && pump->open_rows == 0;
    return pump->sharing.leased_ms +
           pump->options->lease_ms / (is_idle ? 2 : 3);
}

int64_t
skr_pump_next_share_ms(const struct skr_pump *pump)
{
    const struct skr_sharing *sharing = &pump->sharing;
    if (!skr_pump_is_divided(pump))
        return 0;
    int64_t look_ms = skr_sharing_look_ms(sharing, skr_clock_ms());
    int64_t renew_ms = renewal_ms(pump);
    return is_empty(&sharing->share) || look_ms < renew_ms ? look_ms : renew_ms;
}

static enum skr_code
renew(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    struct skr_sharing *sharing = &pump->sharing;
    int64_t now_ms = skr_clock_ms();
    if (is_empty(&sharing->share) || now_ms < renewal_ms(pump))
        return SKR_OK;
    const struct skr_term term = term_of(pump);
    enum skr_code code =
        table->ops->renew_share(table, pump->db, &sharing->share, &term, error);
    if (code == SKR_OK)
        sharing->leased_ms = now_ms;
    else if (error->remedy == SKR_TRY_AGAIN && skr_pump_has_share(pump))
        code = SKR_OK;
    return code;
}

// The reader's cursor passes what others write too, of whosever share it is.
static void
note_movement(struct skr_pump *pump, int64_t now_ms)
{
    const struct skr_position *position = &pump->position;
    struct skr_sharing *sharing = &pump->sharing;
    bool is_due = position->next_due_ms > 0 && position->next_due_ms <= now_ms;
    if (sharing->cursor == position->cursor &&
        sharing->finished == pump->finished && !is_due)
        return;
    sharing->cursor = position->cursor;
    sharing->finished = pump->finished;
    sharing->moved_ms = now_ms;
}

static void
say_spare(struct skr_pump *pump, const char *reason)
{
    if (!pump->said_spare)
        skr_log(&pump->options->log, SKR_LOG_INFO, "relay.standby",
                SKR_LOG_TEXT("name", pump->options->name),
                SKR_LOG_TEXT("reason", reason));
    pump->said_spare = true;
    pump->said_active = false;
    // None is left for it.
    skr_pump_end_trouble(pump);
}

void
skr_pump_say_active(struct skr_pump *pump)
{
    if (!pump->said_active)
        skr_log(&pump->options->log, SKR_LOG_INFO, "relay.active",
                SKR_LOG_TEXT("name", pump->options->name));
    pump->said_active = true;
    pump->said_spare = false;
}

static enum skr_code
look_now(struct skr_pump *pump, int64_t now_ms, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    struct skr_sharing *sharing = &pump->sharing;
    struct skr_shares shares;
    struct skr_share give, take;
    enum skr_code code =
        table->ops->see_shares(table, pump->db, &shares, error);
    if (code != SKR_OK)
        return code;
    // At the start there may be what an earlier session has left.
    bool is_known = is_same(&shares.ours, &sharing->share);
    if (!is_known && !is_empty(&sharing->share))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the leases on shards ran out, and another relay has "
                        "them");
    skr_sharing_plan_look(sharing, &shares, now_ms);
    skr_sharing_plan(&shares, &give, &take);
    bool is_kept_out = shares.has_other_kind && is_empty(&sharing->share);
    sharing->is_changing =
        !is_kept_out && (!is_known || !is_empty(&give) || !is_empty(&take));
    sharing->leaves_some = shares.free.slots != 0;
    if (!sharing->is_changing)
        sharing->stuck_ms = 0;
    if (is_kept_out)
        say_spare(pump, "relays divide this queue by another scheme");
    else if (!sharing->is_changing && shares.ours.seats == 0)
        say_spare(pump, "as many relays as can divide this queue do so");
    return SKR_OK;
}

static enum skr_code
look(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_sharing *sharing = &pump->sharing;
    int64_t now_ms = skr_clock_ms();
    note_movement(pump, now_ms);
    if (now_ms < skr_sharing_look_ms(sharing, now_ms) || sharing->is_changing)
        return SKR_OK;
    return look_now(pump, now_ms, error);
}

enum skr_code
skr_pump_find_ownerless(struct skr_pump *pump, bool *is_some,
                        struct skr_error *error)
{
    *is_some = false;
    if (!skr_pump_is_divided(pump))
        return SKR_OK;
    enum skr_code code = look_now(pump, skr_clock_ms(), error);
    *is_some = pump->sharing.is_changing || pump->sharing.leaves_some;
    return code;
}

// What is ours, and one step towards what the plan says; *is_done: it says
// nothing more.
static enum skr_code
change_once(struct skr_pump *pump, bool may_step, bool *is_done,
            struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    struct skr_sharing *sharing = &pump->sharing;
    struct skr_shares shares;
    struct skr_share give, take;
    const struct skr_term term = term_of(pump);
    enum skr_code code =
        table->ops->see_shares(table, pump->db, &shares, error);
    if (code != SKR_OK)
        return code;
    sharing->share = shares.ours;
    sharing->leaves_some = shares.free.slots != 0;
    skr_sharing_plan(&shares, &give, &take);
    *is_done = is_empty(&give) && is_empty(&take);
    if (*is_done || !may_step)
        return SKR_OK;
    if (!is_empty(&give))
        code = table->ops->give_share(table, pump->db, &give, error);
    if (code == SKR_OK && !is_empty(&take))
        code = table->ops->take_share(table, pump->db, &take, &term, error);
    return code;
}

static void
say_share(struct skr_pump *pump)
{
    if (pump->sharing.share.slots != 0)
        skr_pump_say_active(pump);
    skr_log(&pump->options->log, SKR_LOG_INFO, "relay.share",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("slots", count_bits(pump->sharing.share.slots)),
            SKR_LOG_NUMBER("of", SKR_SLOTS));
}

// The end of the lease counts from before anything was taken or renewed.
static enum skr_code
change(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    struct skr_sharing *sharing = &pump->sharing;
    const struct skr_term term = term_of(pump);
    const uint64_t before = sharing->share.slots;
    int64_t now_ms = skr_clock_ms();
    bool is_done = false;
    enum skr_code code = SKR_OK;
    // Others take and give at the same time: what is left is for the next look.
    for (int i = 0; i <= MOST_STEPS && !is_done && code == SKR_OK; i++)
        code = change_once(pump, i < MOST_STEPS, &is_done, error);
    // Two who took the same are soon done; what one who was frozen has locked
    // cannot be had for long, and each attempt costs a pause.
    sharing->stuck_ms =
        is_done ? 0 : lengthen(sharing->stuck_ms, pump->options->lease_ms / 3);
    if (sharing->stuck_ms > 0)
        sharing->next_look_ms = now_ms + sharing->stuck_ms;
    if (code == SKR_OK && !is_empty(&sharing->share))
        code = table->ops->renew_share(table, pump->db, &sharing->share, &term,
                                       error);
    if (code == SKR_OK)
        code = table->ops->start(table, pump->db, &pump->position, error);
    if (code != SKR_OK)
        return code;
    sharing->leased_ms = now_ms;
    sharing->moved_ms = now_ms;
    sharing->is_changing = false;
    skr_waiting_clear(&pump->waiting);
    // Who was first at a closed gate may be another's now.
    skr_gates_begin(&pump->gates);
    skr_pump_begin_order(pump);
    if (sharing->share.slots != before)
        say_share(pump);
    return SKR_OK;
}

enum skr_code
skr_pump_share(struct skr_pump *pump, struct skr_error *error)
{
    if (!skr_pump_is_divided(pump))
        return SKR_OK;
    enum skr_code code = renew(pump, error);
    if (code == SKR_OK)
        code = look(pump, error);
    if (code == SKR_OK && pump->sharing.is_changing) {
        pump->is_draining = true;
        pump->may_have_more = true;
        if (skr_pump_is_quiet(pump))
            code = change(pump, error);
    }
    // Others have all of it.
    if (!pump->sharing.is_changing && pump->sharing.share.slots == 0)
        pump->may_have_more = false;
    return code;
}

void
skr_pump_leave_share(struct skr_pump *pump)
{
    const struct skr_table *table = pump->options->table;
    if (skr_pump_is_divided(pump) && pump->db != NULL &&
        !is_empty(&pump->sharing.share))
        // What is not given back runs out.
        (void)!table->ops->give_share(table, pump->db, &pump->sharing.share,
                                      NULL);
    pump->sharing = (struct skr_sharing){.is_changing = false};
}
