// SPDX-License-Identifier: MIT
// How rows become this relay's: by the lock on the whole queue, by leases on
// rows or on partitions (sharing.c), or by row locks in transactions that stay
// open until the broker has answered.

#include "base/clock.h"
#include "base/error.h"
#include "outbox/pump.h"

enum {
    LOCK_CHECK_MS = 3000,        // how old the proof of ownership may grow
    IDLE_LOCK_CHECK_MS = 10000,  // while nothing is sent
    // The same where leases decide, and the lock only keeps others out.
    IDLE_SHARE_CHECK_MS = 60000,
    MOST_HELD_MS = 10000,  // row locks that wait for the broker
    IDLE_DB_MS = 5000,     // the server ends silent sessions that hold locks
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

// Each batch that is held has a session of its own, bounded by the server as
// every session with a lock is: a relay that is frozen loses its rows.
static enum skr_code
open_holder(struct skr_pump *pump, struct skr_slot *slot,
            struct skr_error *error)
{
    const struct skr_relay_options *options = pump->options;
    bool granted = false;
    // One of an earlier session may be of another server.
    if (slot->db != NULL && slot->db->server == slot->batch.server)
        return SKR_OK;
    skr_db_close(slot->db);
    slot->db = NULL;
    enum skr_code code =
        skr_db_open(options->database, options->database_url, &slot->db, error);
    if (code != SKR_OK)
        return code;
    if (slot->db->server != slot->batch.server)
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "the DSN leads to another server than the one that is "
                        "read");
    if (code == SKR_OK)
        code = slot->db->ops->lock(slot->db, pump->lock_name,
                                   skr_pump_lock_mode(pump), pump->stop_fd, 0,
                                   &granted, error);
    if (code == SKR_OK && !granted)
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "another relay wants the queue for itself");
    if (code != SKR_OK) {
        skr_db_close(slot->db);
        slot->db = NULL;
    }
    return code;
}

static enum skr_code
hold(struct skr_pump *pump, struct skr_slot *slot, const struct skr_read *read,
     struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    enum skr_code code = table->ops->follow(table, pump->db, error);
    if (code == SKR_OK)
        code = open_holder(pump, slot, error);
    if (code != SKR_OK)
        return code;
    slot->db_used_ms = skr_clock_ms();
    code = table->ops->hold(table, slot->db, &pump->position, read,
                            &slot->batch, error);
    // It is not the holder that waits for more.
    if (slot->batch.count > 0)
        pump->db->found_rows = true;
    if (code != SKR_OK && error->remedy != SKR_TRY_AGAIN) {
        skr_db_close(slot->db);
        slot->db = NULL;
    }
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
    if (pump->options->claim == SKR_CLAIM_LEASED)
        code = table->ops->claim(table, pump->db, &pump->position, read,
                                 &slot->batch, error);
    else
        code = hold(pump, slot, read, error);
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
        enum skr_slot_state state = skr_settler_state(pump->settler, slot);
        if (state == SKR_SLOT_FREE && slot->db != NULL &&
            now - slot->db_used_ms > IDLE_DB_MS) {
            skr_db_close(slot->db);
            slot->db = NULL;
        }
        if (state != SKR_SLOT_OPEN)
            continue;
        if (slot->batch.claim == SKR_CLAIM_LEASED)
            code = renew(pump, slot, now, error);
        else if (now - slot->claimed_ms > MOST_HELD_MS)
            code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                            "the broker has not confirmed messages for %d s, "
                            "and their rows are locked: they are given back",
                            MOST_HELD_MS / 1000);
    }
    return code;
}
