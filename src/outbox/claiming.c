// SPDX-License-Identifier: MIT
// How rows become this relay's: by the lock on the whole queue, by leases on
// rows, or by leases on shards of the queue (sharing.c).

#include "base/clock.h"
#include "base/error.h"
#include "outbox/pump.h"

enum {
    LOCK_CHECK_MS = 3000,        // how old the proof of ownership may grow
    IDLE_LOCK_CHECK_MS = 10000,  // while nothing is sent
    // The same where leases decide, and the lock only keeps others out.
    IDLE_SHARE_CHECK_MS = 60000,
    CONFLICT_PAUSE_MS = 10,
};

enum skr_lock_mode
skr_pump_lock_mode(const struct skr_pump *pump)
{
    if (skr_pump_is_divided(pump))
        return SKR_LOCK_IN_SHARES;
    return pump->options->claim == SKR_CLAIM_NONE ? SKR_LOCK_ALONE
                                                  : SKR_LOCK_TOGETHER;
}

enum skr_code
skr_pump_check_lock(struct skr_pump *pump, bool is_idle,
                    struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    int64_t idle_ms =
        skr_pump_is_divided(pump) ? IDLE_SHARE_CHECK_MS : IDLE_LOCK_CHECK_MS;
    int64_t most_ms = is_idle ? idle_ms : LOCK_CHECK_MS;
    if (pump->is_unlocked ||
        now - atomic_load(&pump->settler->owned_ms) < most_ms)
        return SKR_OK;
    enum skr_code code = pump->db->ops->check_lock(pump->db, error);
    if (code == SKR_OK)
        atomic_store(&pump->settler->owned_ms, now);
    return code;
}

enum skr_code
skr_pump_take(struct skr_pump *pump, struct skr_slot *slot,
              const struct skr_read *read, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    enum skr_code code = SKR_OK;
    slot->claimed_ms = skr_clock_ms();
    if (skr_pump_is_alone(pump)) {
        code = table->ops->read(table, pump->db, &pump->position, read,
                                &slot->batch, error);
        skr_pump_mark_claim(pump, slot);
        return code;
    }
    code = table->ops->claim(table, pump->db, &pump->position, read,
                             &slot->batch, error);
    if (code == SKR_OK || error->remedy != SKR_TRY_AGAIN)
        return code;
    // Others were in the way: there is something to claim, and soon.
    pump->position.has_more = true;
    skr_clock_sleep(pump->stop_fd, CONFLICT_PAUSE_MS);
    return SKR_OK;
}

void
skr_pump_mark_claim(const struct skr_pump *pump, struct skr_slot *slot)
{
    if (!skr_pump_is_divided(pump))
        return;
    slot->batch.claim = SKR_CLAIM_SLOTS;
    slot->batch.lease.slots = pump->sharing.share.slots;
    slot->batch.lease.epochs = pump->sharing.share.epochs;
    slot->batch.lease.write_s =
        pump->position.is_cluster ? pump->options->lease_ms / 1000 : 0;
}

bool
skr_pump_may_send(const struct skr_pump *pump, const struct skr_slot *slot)
{
    return slot->batch.claim != SKR_CLAIM_LEASED ||
           skr_clock_ms() - slot->claimed_ms <
               (int64_t)pump->options->lease_ms * 2 / 3;
}

static enum skr_code
renew(struct skr_pump *pump, struct skr_slot *slot, int64_t now,
      struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    if (now - slot->claimed_ms < pump->options->lease_ms / 3)
        return SKR_OK;
    enum skr_code code =
        table->ops->renew(table, pump->db, &slot->batch, error);
    if (code == SKR_OK)
        slot->claimed_ms = now;
    else if (error->remedy == SKR_TRY_AGAIN)
        code = SKR_OK;
    return code;
}

enum skr_code
skr_pump_keep(struct skr_pump *pump, struct skr_error *error)
{
    if (skr_pump_is_alone(pump))
        return SKR_OK;
    int64_t now = skr_clock_ms();
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_MAX_SLOTS && code == SKR_OK; i++) {
        struct skr_slot *slot = &pump->settler->slots[i];
        // What is not the pump's is looked after by the settler.
        if (skr_settler_state(pump->settler, slot) == SKR_SLOT_OPEN)
            code = renew(pump, slot, now, error);
    }
    return code;
}
