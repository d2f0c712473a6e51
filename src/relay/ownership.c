// SPDX-License-Identifier: MIT
// The queue's lock, the leases on shards and the leases on rows, behind one
// contract.
//
// When relays come and go shards change hands: then a relay lets what is in
// flight come to its end, changes its shards, and reads from the start. So
// nothing has to be known of a row but whether its shard is ours.

#include "relay/ownership.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "relay/rebalance.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    LOCK_WAIT_MS = 1000,
    LIVENESS_PAUSE_MS = 100,
    PROOF_MS = 3000,        // how old the proof of the lock may grow
    IDLE_PROOF_MS = 10000,  // while nothing is sent
    // The same where leases decide, and the lock only keeps other kinds out.
    IDLE_SHARDS_PROOF_MS = 60000,
    SETTLER_PROOF_MS = 10000,
    MOST_STEPS = 4,
    ROW_LEASE_MS = 3600000,  // Symfony's
    SHARD_LEASE_MS = 15000,
};

// The relay's shards, and the change that is under way.
struct shards {
    struct skr_assignment ours;
    struct skr_rebalance rebalance;
    int64_t leased_ms;  // when the leases began, at the latest
    bool by_lock;       // this session holds our liveness lock
    bool is_changing;   // once nothing is in flight
    bool has_orphans;   // shards without an owner, at the last poll
};

enum role { ROLE_UNKNOWN, ROLE_ACTIVE, ROLE_STANDBY };

struct kind {
    enum skr_lock_mode lock;
    bool has_shards, claims_rows;
    uint32_t lease_ms;      // where the settings say nothing else
    int64_t idle_proof_ms;  // how old the proof may grow while nothing is sent
    const char *kept_out;   // why the lock is not granted
};

static const char by_another[] =
    "a relay has this queue to itself, or shares it by another `claim` or "
    "scheme";

static const struct kind kinds[] = {
    [SKR_CLAIM_NONE] = {SKR_LOCK_ALONE, false, false, 0, IDLE_PROOF_MS,
                        "another relay works this queue"},
    [SKR_CLAIM_LEASED] = {SKR_LOCK_TOGETHER, false, true, ROW_LEASE_MS,
                          IDLE_PROOF_MS, by_another},
    [SKR_CLAIM_SHARDS] = {SKR_LOCK_IN_SHARES, true, false, SHARD_LEASE_MS,
                          IDLE_SHARDS_PROOF_MS, by_another},
};

// On a plain queue, and on an ordered one.
static const enum skr_claim choices[][2] = {
    [SKR_RELAY_EXCLUSIVE] = {SKR_CLAIM_NONE, SKR_CLAIM_NONE},
    [SKR_RELAY_SHARED] = {SKR_CLAIM_SHARDS, SKR_CLAIM_SHARDS},
    [SKR_RELAY_LEASE] = {SKR_CLAIM_LEASED, SKR_CLAIM_SHARDS},
};

struct skr_ownership {
    const struct skr_relay_settings *settings;
    const struct skr_store *table;
    const struct kind *kind;
    uint32_t lease_ms;
    struct skr_ownership_traits traits;
    struct skr_db *db;
    char lock_name[SKR_LOCK_NAME_SIZE];
    bool is_locked;    // in this session
    bool is_unlocked;  // the server has no lock to rely on; leases need none
    // When the lock was last known to be ours; 0: it is not.
    atomic_int_fast64_t proven_ms;
    bool is_idle;  // at the last tick
    struct shards shards;
    enum role logged;
};

enum skr_claim
skr_ownership_kind(enum skr_relay_claim asked, bool is_ordered)
{
    return choices[asked][is_ordered];
}

enum skr_code
skr_ownership_choose(const struct skr_relay_options *options,
                     enum skr_claim *kind, struct skr_error *error)
{
    if ((unsigned)options->claim >= SKR_COUNT_OF(choices))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.claim is %u; SKR_RELAY_EXCLUSIVE, "
                        "SKR_RELAY_SHARED or SKR_RELAY_LEASE is needed",
                        (unsigned)options->claim);
    *kind = skr_ownership_kind(options->claim, options->is_ordered);
    return SKR_OK;
}

bool
skr_ownership_has_shards(enum skr_claim kind)
{
    return kinds[kind].has_shards;
}

enum skr_code
skr_ownership_new(const struct skr_relay_settings *settings,
                  struct skr_ownership **ownership, struct skr_error *error)
{
    const struct kind *kind = &kinds[settings->claim];
    struct skr_ownership *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    bool is_fenced = kind->has_shards && settings->table->partitions != NULL;
    made->settings = settings;
    made->table = settings->table;
    made->lease_ms =
        settings->lease_ms == 0 ? kind->lease_ms : settings->lease_ms;
    made->kind = kind;
    made->traits = (struct skr_ownership_traits){
        .is_exclusive = !kind->has_shards && !kind->claims_rows,
        .claims_rows = kind->claims_rows,
        .batches = kind->claims_rows || is_fenced ? 2 : 4,
    };
    *ownership = made;
    return SKR_OK;
}

void
skr_ownership_free(struct skr_ownership *ownership)
{
    free(ownership);
}

const struct skr_ownership_traits *
skr_ownership_traits(const struct skr_ownership *ownership)
{
    return &ownership->traits;
}

bool
skr_ownership_has_rows(const struct skr_ownership *ownership)
{
    return ownership->db != NULL &&
           (!ownership->kind->has_shards || ownership->shards.ours.shards != 0);
}

static void
log_active(struct skr_ownership *ownership)
{
    if (ownership->logged == ROLE_ACTIVE)
        return;
    ownership->logged = ROLE_ACTIVE;
    skr_log(&ownership->settings->log, SKR_LOG_INFO, "relay.active",
            SKR_LOG_TEXT("name", ownership->settings->name));
    skr_health_tell(&ownership->settings->log, SKR_HEALTH_ACTIVE, 0);
}

static void
log_standby(struct skr_ownership *ownership, const char *reason)
{
    if (ownership->logged == ROLE_STANDBY)
        return;
    ownership->logged = ROLE_STANDBY;
    skr_log(&ownership->settings->log, SKR_LOG_INFO, "relay.standby",
            SKR_LOG_TEXT("name", ownership->settings->name),
            SKR_LOG_TEXT("reason", reason));
    skr_health_tell(&ownership->settings->log, SKR_HEALTH_STANDBY, 0);
}

// Leases keep relays apart by themselves: where the server has no lock to rely
// on, only an exclusive relay could be in the way, and there it is refused.
static bool
may_go_unlocked(struct skr_ownership *ownership, const struct skr_error *error)
{
    if (ownership->traits.is_exclusive || error->code != SKR_REFUSED ||
        error->remedy != SKR_GIVE_UP)
        return false;
    if (!ownership->is_unlocked)
        skr_log(&ownership->settings->log, SKR_LOG_INFO, "relay.unlocked",
                SKR_LOG_TEXT("name", ownership->settings->name),
                SKR_LOG_TEXT("reason", error->text));
    ownership->is_unlocked = true;
    return true;
}

static enum skr_code
lock_queue(struct skr_ownership *ownership, int stop_fd, bool *is_granted,
           struct skr_error *error)
{
    struct skr_db *db = ownership->db;
    struct skr_error failure = {0};
    int64_t now_ms = skr_clock_ms();
    skr_beat_wait();
    enum skr_code code =
        skr_db_lock(db, ownership->lock_name, ownership->kind->lock, stop_fd,
                    LOCK_WAIT_MS, &failure);
    skr_beat_resume();
    if (code != SKR_OK && may_go_unlocked(ownership, &failure)) {
        *is_granted = true;
        return SKR_OK;
    }
    if (code != SKR_OK && error != NULL)
        *error = failure;
    *is_granted = code == SKR_OK && db->holds_lock;
    if (*is_granted) {
        atomic_store(&ownership->proven_ms, now_ms);
        ownership->is_unlocked = false;
    }
    return code;
}

// The server may not have noticed yet that an earlier connection is lost. Where
// the queue's lock cannot be had no other is to be relied on.
static enum skr_code
take_liveness_lock(struct skr_ownership *ownership, int stop_fd, bool *is_held,
                   struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    enum skr_liveness liveness = SKR_LIVES_BY_LEASES;
    enum skr_code code = SKR_OK;
    if (ownership->kind->has_shards && !ownership->is_unlocked)
        code = table->shards->live(table, ownership->db, &liveness, error);
    *is_held = liveness != SKR_LIVES_ELSEWHERE;
    ownership->shards.by_lock = liveness == SKR_LIVES_BY_LOCK;
    if (code == SKR_OK && !*is_held)
        skr_clock_sleep(stop_fd, LIVENESS_PAUSE_MS);
    return code;
}

static enum skr_code
begin(struct skr_ownership *ownership, struct skr_db *db,
      struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    ownership->db = db;
    ownership->is_locked = false;
    ownership->shards = (struct shards){.is_changing = false};
    return skr_store_name_lock(db, table->name, table->queue,
                               ownership->lock_name, error);
}

enum skr_code
skr_ownership_acquire(struct skr_ownership *ownership, struct skr_db *db,
                      int stop_fd, bool *is_granted, struct skr_error *error)
{
    const char *reason = ownership->kind->kept_out;
    enum skr_code code =
        ownership->db == NULL ? begin(ownership, db, error) : SKR_OK;
    *is_granted = false;
    if (code == SKR_OK && !ownership->is_locked)
        code = lock_queue(ownership, stop_fd, &ownership->is_locked, error);
    if (code == SKR_OK && ownership->is_locked) {
        reason = "an earlier session of this relay has not ended yet";
        code = take_liveness_lock(ownership, stop_fd, is_granted, error);
    }
    if (code != SKR_OK)
        return code;
    if (!*is_granted && !skr_clock_sleep(stop_fd, 0))
        log_standby(ownership, reason);
    // Of a queue that is divided into shards there may be none to be had.
    else if (*is_granted && !ownership->kind->has_shards)
        log_active(ownership);
    return SKR_OK;
}

static enum skr_code
prove(struct skr_ownership *ownership, bool is_idle, struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    int64_t most_ms = is_idle ? ownership->kind->idle_proof_ms : PROOF_MS;
    if (ownership->is_unlocked ||
        now_ms - atomic_load(&ownership->proven_ms) < most_ms)
        return SKR_OK;
    enum skr_code code = skr_db_check_lock(ownership->db, error);
    if (code == SKR_OK)
        atomic_store(&ownership->proven_ms, now_ms);
    return code;
}

// Leases are relied on for two thirds of their time.
static bool
is_fresh(const struct skr_ownership *ownership, int64_t since_ms)
{
    return skr_clock_ms() - since_ms < (int64_t)ownership->lease_ms * 2 / 3;
}

static bool
is_empty(const struct skr_assignment *share)
{
    return share->shards == 0 && share->members == 0;
}

enum skr_code
skr_ownership_prove(struct skr_ownership *ownership, struct skr_error *error)
{
    enum skr_code code = prove(ownership, false, error);
    if (code != SKR_OK || is_empty(&ownership->shards.ours) ||
        is_fresh(ownership, ownership->shards.leased_ms))
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the leases on shards could not be renewed in time: "
                    "nothing more is sent on them");
}

bool
skr_ownership_covers(const struct skr_ownership *ownership, int64_t claimed_ms)
{
    return !ownership->kind->claims_rows || is_fresh(ownership, claimed_ms);
}

bool
skr_ownership_may_decide(const struct skr_ownership *ownership)
{
    int64_t proven_ms = atomic_load(&ownership->proven_ms);
    return !ownership->traits.is_exclusive ||
           (proven_ms > 0 && skr_clock_ms() - proven_ms < SETTLER_PROOF_MS);
}

void
skr_ownership_stamp(const struct skr_ownership *ownership,
                    struct skr_batch *batch)
{
    if (!ownership->kind->has_shards)
        return;
    assert(ownership->shards.ours.shards != 0);
    batch->lease.shards = ownership->shards.ours.shards;
    batch->lease.epochs = ownership->shards.ours.epochs;
    batch->lease.write_s =
        ownership->db->is_cluster ? ownership->lease_ms / 1000 : 0;
}

enum skr_code
skr_ownership_renew(struct skr_ownership *ownership, struct skr_batch *batch,
                    int64_t *claimed_ms, struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    int64_t now_ms = skr_clock_ms();
    if (!ownership->kind->claims_rows ||
        now_ms - *claimed_ms < ownership->lease_ms / 3)
        return SKR_OK;
    enum skr_code code =
        table->leases->renew(table, ownership->db, batch, error);
    if (code == SKR_OK)
        *claimed_ms = now_ms;
    else if (error->remedy == SKR_TRY_AGAIN)
        code = SKR_OK;
    return code;
}

static bool
is_same(const struct skr_assignment *one, const struct skr_assignment *other)
{
    return one->shards == other->shards && one->members == other->members &&
           one->epochs == other->epochs;
}

static struct skr_term
term_of(const struct skr_ownership *ownership)
{
    return (struct skr_term){.lease_s = ownership->lease_ms / 1000,
                             .by_lock = ownership->shards.by_lock};
}

// While nothing is in flight nothing waits for a renewal that fails.
static int64_t
renewal_ms(const struct skr_ownership *ownership)
{
    return ownership->shards.leased_ms +
           ownership->lease_ms / (ownership->is_idle ? 2 : 3);
}

int64_t
skr_ownership_next_ms(const struct skr_ownership *ownership)
{
    const struct shards *shards = &ownership->shards;
    if (!ownership->kind->has_shards)
        return 0;
    int64_t poll_ms = skr_rebalance_next_ms(&shards->rebalance, skr_clock_ms());
    int64_t renew_ms = renewal_ms(ownership);
    return is_empty(&shards->ours) || poll_ms < renew_ms ? poll_ms : renew_ms;
}

static enum skr_code
renew_shards(struct skr_ownership *ownership, struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    struct shards *shards = &ownership->shards;
    const struct skr_term term = term_of(ownership);
    int64_t now_ms = skr_clock_ms();
    if (is_empty(&shards->ours) || now_ms < renewal_ms(ownership))
        return SKR_OK;
    enum skr_code code =
        table->shards->renew(table, ownership->db, &shards->ours, &term, error);
    if (code == SKR_OK)
        shards->leased_ms = now_ms;
    else if (error->remedy == SKR_TRY_AGAIN &&
             is_fresh(ownership, shards->leased_ms))
        code = SKR_OK;
    return code;
}

static enum skr_code
poll_shards(struct skr_ownership *ownership, int64_t now_ms,
            struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    struct shards *shards = &ownership->shards;
    struct skr_assignments seen;
    struct skr_assignment give, take;
    enum skr_code code = table->shards->see(table, ownership->db, &seen, error);
    if (code != SKR_OK)
        return code;
    // At the start there may be what an earlier session has left.
    bool is_known = is_same(&seen.ours, &shards->ours);
    if (!is_known && !is_empty(&shards->ours))
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the leases on shards ran out, and another relay has "
                        "them");
    skr_rebalance_plan(&seen, &give, &take);
    bool is_kept_out = seen.has_other_kind && is_empty(&shards->ours);
    shards->is_changing =
        !is_kept_out && (!is_known || !is_empty(&give) || !is_empty(&take));
    shards->has_orphans = seen.free.shards != 0;
    skr_rebalance_polled(&shards->rebalance, &shards->ours, &seen,
                         shards->is_changing, now_ms);
    if (is_kept_out)
        log_standby(ownership, "relays divide this queue by another scheme");
    else if (!shards->is_changing && seen.ours.members == 0)
        log_standby(ownership, "as many relays as can divide this queue do so");
    return SKR_OK;
}

enum skr_code
skr_ownership_find_orphans(struct skr_ownership *ownership, bool *has_orphans,
                           struct skr_error *error)
{
    *has_orphans = false;
    if (!ownership->kind->has_shards)
        return SKR_OK;
    enum skr_code code = poll_shards(ownership, skr_clock_ms(), error);
    *has_orphans =
        ownership->shards.is_changing || ownership->shards.has_orphans;
    return code;
}

bool
skr_ownership_leaves_orphans(const struct skr_ownership *ownership)
{
    return ownership->shards.has_orphans;
}

// Sees what is ours, and takes one step towards what the plan says; *is_done:
// it says nothing more.
static enum skr_code
step(struct skr_ownership *ownership, bool may_write, bool *is_done,
     struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    struct shards *shards = &ownership->shards;
    const struct skr_term term = term_of(ownership);
    struct skr_assignments seen;
    struct skr_assignment give, take;
    enum skr_code code = table->shards->see(table, ownership->db, &seen, error);
    if (code != SKR_OK)
        return code;
    shards->ours = seen.ours;
    shards->has_orphans = seen.free.shards != 0;
    skr_rebalance_plan(&seen, &give, &take);
    *is_done = is_empty(&give) && is_empty(&take);
    if (*is_done || !may_write)
        return SKR_OK;
    if (!is_empty(&give))
        code = table->shards->give(table, ownership->db, &give, error);
    if (code == SKR_OK && !is_empty(&take))
        code = table->shards->take(table, ownership->db, &take, &term, error);
    return code;
}

static void
log_shards(struct skr_ownership *ownership)
{
    int count = __builtin_popcountll(ownership->shards.ours.shards);
    if (count > 0)
        log_active(ownership);
    skr_log(&ownership->settings->log, SKR_LOG_INFO, "relay.share",
            SKR_LOG_TEXT("name", ownership->settings->name),
            SKR_LOG_NUMBER("slots", count), SKR_LOG_NUMBER("of", SKR_SHARDS));
}

// The end of the leases counts from before anything was taken or renewed.
static enum skr_code
change(struct skr_ownership *ownership, struct skr_error *error)
{
    const struct skr_store *table = ownership->table;
    struct shards *shards = &ownership->shards;
    const struct skr_term term = term_of(ownership);
    const uint64_t before = shards->ours.shards;
    int64_t now_ms = skr_clock_ms();
    bool is_done = false;
    enum skr_code code = SKR_OK;
    // Others take and give at the same time: what is left is for the next poll.
    for (int i = 0; i <= MOST_STEPS && !is_done && code == SKR_OK; i++)
        code = step(ownership, i < MOST_STEPS, &is_done, error);
    if (code == SKR_OK && !is_empty(&shards->ours))
        code = table->shards->renew(table, ownership->db, &shards->ours, &term,
                                    error);
    if (code != SKR_OK)
        return code;
    shards->leased_ms = now_ms;
    skr_rebalance_changed(&shards->rebalance, &shards->ours, is_done,
                          ownership->lease_ms / 3, now_ms);
    shards->is_changing = false;
    if (shards->ours.shards != before)
        log_shards(ownership);
    return SKR_OK;
}

static enum skr_code
tick_shards(struct skr_ownership *ownership,
            const struct skr_activity *activity,
            enum skr_ownership_state *state, struct skr_error *error)
{
    struct shards *shards = &ownership->shards;
    int64_t now_ms = skr_clock_ms();
    enum skr_code code = renew_shards(ownership, error);
    skr_rebalance_note(&shards->rebalance, activity, now_ms);
    if (code == SKR_OK && !shards->is_changing &&
        now_ms >= skr_rebalance_next_ms(&shards->rebalance, now_ms))
        code = poll_shards(ownership, now_ms, error);
    if (code != SKR_OK)
        return code;
    bool is_changed = shards->is_changing && activity->is_quiet;
    if (is_changed)
        code = change(ownership, error);
    if (shards->is_changing)
        *state = SKR_OWN_DRAIN;
    else if (shards->ours.shards == 0)
        *state = ownership->logged == ROLE_STANDBY ? SKR_OWN_STANDBY
                                                   : SKR_OWN_WAITING;
    else
        *state = is_changed ? SKR_OWN_CHANGED : SKR_OWN_ACTIVE;
    return code;
}

enum skr_code
skr_ownership_tick(struct skr_ownership *ownership,
                   const struct skr_activity *activity,
                   enum skr_ownership_state *state, struct skr_error *error)
{
    ownership->is_idle = activity->is_idle;
    *state = SKR_OWN_ACTIVE;
    enum skr_code code = prove(ownership, activity->is_idle, error);
    if (code == SKR_OK && ownership->kind->has_shards)
        code = tick_shards(ownership, activity, state, error);
    return code;
}

void
skr_ownership_release(struct skr_ownership *ownership)
{
    const struct skr_store *table = ownership->table;
    struct shards *shards = &ownership->shards;
    atomic_store(&ownership->proven_ms, 0);
    // What is not given back runs out.
    if (ownership->db != NULL && !is_empty(&shards->ours))
        (void)!table->shards->give(table, ownership->db, &shards->ours, NULL);
    *shards = (struct shards){.is_changing = false};
    ownership->db = NULL;
}
