// SPDX-License-Identifier: MIT
// The messages of a partition, one after the other: which of the rows that were
// read may go, which follow another, and which stay where they are because
// something before them does.

#include "base/clock.h"
#include "base/error.h"
#include "outbox/pump.h"

#include <stdlib.h>

enum {
    AT_ONCE_MS = 1,
    SETTLING_PAUSE_MS = 20,  // before rows that are being settled are read
    SLOW_CHAIN_MS = 1000,
};

void
skr_pump_begin_order(struct skr_pump *pump)
{
    pump->is_draining = false;
    skr_order_clear(&pump->order);
    skr_heads_clear(&pump->heads);
    skr_passing_clear(&pump->passing);
}

static bool
has_order(const struct skr_batch_item *item)
{
    return item->partition_key != NULL && item->partition_key[0] != '\0';
}

static enum skr_code
list_head(struct skr_pump *pump, const char *key, int64_t not_before_ms,
          struct skr_error *error)
{
    uint64_t partition = skr_order_partition(key);
    if (!skr_order_set_listed(&pump->order, partition, true))
        return SKR_OK;
    return skr_heads_add(&pump->heads, key, not_before_ms, error);
}

// All that follow this one stay in their rows.
static void
let_go(struct skr_pump *pump, struct skr_link *link)
{
    uint64_t ticket = link->next;
    link->next = SKR_NO_TICKET;
    while (ticket != SKR_NO_TICKET) {
        size_t index;
        struct skr_slot *slot = skr_pump_find(pump, ticket, &index);
        ticket = slot->links[index].next;
        slot->links[index].next = SKR_NO_TICKET;
        slot->links[index].is_left = true;
        slot->batch.items[index].state = SKR_READ;
        skr_pump_release(pump, slot);
    }
}

static void
keep_first_alone(struct skr_pump *pump, uint64_t partition)
{
    uint64_t first, last;
    size_t index;
    if (!skr_order_chain(&pump->order, partition, &first, &last))
        return;
    struct skr_slot *slot = skr_pump_find(pump, first, &index);
    skr_order_trim(&pump->order, partition);
    let_go(pump, &slot->links[index]);
}

// A row behind the cursor. If it belongs before something that has not been
// sent, that must wait for it.
static enum skr_code
note_behind(struct skr_pump *pump, const struct skr_batch_item *behind,
            struct skr_error *error)
{
    uint64_t partition = skr_order_partition(behind->partition_key);
    uint64_t first, last;
    size_t index;
    enum skr_code code = skr_order_block(&pump->order, partition, error);
    if (code != SKR_OK)
        return code;
    if (!skr_order_chain(&pump->order, partition, &first, &last))
        return list_head(pump, behind->partition_key, AT_ONCE_MS, error);
    const struct skr_slot *slot = skr_pump_find(pump, last, &index);
    if (behind->row < slot->batch.items[index].row)
        keep_first_alone(pump, partition);
    return SKR_OK;
}

// Gives the item its place. False: it stays in its row.
static enum skr_code
place(struct skr_pump *pump, struct skr_slot *slot, size_t index, bool resumes,
      bool *stays, struct skr_error *error)
{
    struct skr_batch_item *item = &slot->batch.items[index];
    uint64_t before = 0, partition = skr_order_partition(item->partition_key);
    uint64_t ticket = skr_pump_ticket(pump, slot, index);
    enum skr_order_place found = SKR_ORDER_LEFT;
    enum skr_code code = item->state == SKR_NOT_READY
                             ? skr_order_block(&pump->order, partition, error)
                         : resumes
                             ? skr_order_resume(&pump->order, partition, ticket,
                                                &found, &before, error)
                             : skr_order_add(&pump->order, partition, ticket,
                                             &found, &before, error);
    *stays = found == SKR_ORDER_LEFT;
    if (code != SKR_OK || *stays)
        return code;
    slot->links[index].partition = partition;
    if (found == SKR_ORDER_CHAINED) {
        size_t at;
        struct skr_slot *holder = skr_pump_find(pump, before, &at);
        holder->links[at].next = ticket;
        item->state = SKR_CHAINED;
        slot->batch.pending++;
    }
    return SKR_OK;
}

static enum skr_code
arrange(struct skr_pump *pump, struct skr_slot *slot, bool resumes,
        struct skr_error *error)
{
    struct skr_batch *batch = &slot->batch;
    struct skr_passing_vote left = {.votes = 0};
    size_t kept = 0;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < batch->count && code == SKR_OK; i++)
        if (batch->items[i].state == SKR_BEHIND)
            code = note_behind(pump, &batch->items[i], error);
    for (size_t i = 0; i < batch->count && code == SKR_OK; i++) {
        bool stays = batch->items[i].state == SKR_BEHIND;
        batch->items[kept] = batch->items[i];
        slot->links[kept] = (struct skr_link){.next = SKR_NO_TICKET};
        if (!stays && has_order(&batch->items[kept])) {
            code = place(pump, slot, kept, resumes, &stays, error);
            if (code == SKR_OK && stays)
                skr_passing_vote(&left, batch->items[kept].partition_key);
        } else if (batch->items[kept].state == SKR_NOT_READY)
            stays = true;
        if (!stays) {
            kept++;
            continue;
        }
        batch->bytes -= batch->items[kept].size;
        // Its partition is known to have it: there is no need to find it again.
        if (!batch->items[kept].is_untold)
            skr_waiting_add(&pump->waiting, batch->items[kept].row);
    }
    if (code == SKR_OK && left.votes > batch->count / 2)
        skr_passing_add(&pump->passing, left.key);
    batch->count = kept;
    return code;
}

enum skr_code
skr_pump_arrange(struct skr_pump *pump, struct skr_slot *slot,
                 const struct skr_read *read, struct skr_error *error)
{
    struct skr_batch *batch = &slot->batch;
    if (!skr_pump_is_ordered(pump))
        return SKR_OK;
    // One that is asked for by name is the head of its partition, unless
    // something of that is under way already.
    bool is_only = read->only != NULL && batch->count > 0;
    if (is_only && has_order(&batch->items[0]) &&
        skr_order_is_in_hand(
            &pump->order, skr_order_partition(batch->items[0].partition_key))) {
        batch->count = 0;
        batch->bytes = 0;
        return SKR_OK;
    }
    return arrange(pump, slot, is_only, error);
}

// It was not sent, or not confirmed: what follows must not pass it.
static enum skr_code
hold_back(struct skr_pump *pump, struct skr_slot *slot, size_t index,
          struct skr_error *error)
{
    const struct skr_batch_item *item = &slot->batch.items[index];
    uint64_t partition = slot->links[index].partition;
    let_go(pump, &slot->links[index]);
    skr_order_drop(&pump->order, partition);
    // Once it has moved to the failed table the partition goes on.
    if (item->state == SKR_HOPELESS)
        return list_head(pump, item->partition_key,
                         skr_clock_ms() + SETTLING_PAUSE_MS, error);
    return SKR_OK;
}

enum skr_code
skr_pump_follow(struct skr_pump *pump, struct skr_slot *slot, size_t index,
                struct skr_error *error)
{
    const struct skr_link *link = &slot->links[index];
    const struct skr_batch_item *item = &slot->batch.items[index];
    bool is_behind = false;
    if (link->partition == 0)
        return SKR_OK;
    if (item->state != SKR_DONE || pump->is_draining ||
        pump->lost.code != SKR_OK)
        return hold_back(pump, slot, index, error);
    if (!skr_order_advance(&pump->order, link->partition, link->next,
                           &is_behind))
        return is_behind
                   ? list_head(pump, item->partition_key, AT_ONCE_MS, error)
                   : SKR_OK;
    size_t next;
    struct skr_slot *holder = skr_pump_find(pump, link->next, &next);
    enum skr_code code = skr_pump_send(pump, holder, next, error);
    if (code != SKR_OK || holder->batch.items[next].state == SKR_SENT)
        return code;
    code = hold_back(pump, holder, next, error);
    skr_pump_release(pump, holder);
    return code;
}

// Partitions whose turn it is, and of which nothing is in hand.
static size_t
take_heads(struct skr_pump *pump, size_t most, char **keys)
{
    int64_t now_ms = skr_clock_ms();
    size_t count = 0;
    char *key;
    while (count < most &&
           (key = skr_heads_take(&pump->heads, now_ms)) != NULL) {
        uint64_t partition = skr_order_partition(key);
        skr_order_set_listed(&pump->order, partition, false);
        if (skr_order_is_in_hand(&pump->order, partition))
            free(key);
        else
            keys[count++] = key;
    }
    return count;
}

// What is known now of a partition that was read.
static enum skr_code
note_end(struct skr_pump *pump, const struct skr_partition_read *read,
         struct skr_error *error)
{
    switch (read->end) {
    case SKR_PARTITION_EMPTY:
        skr_order_unblock(&pump->order, skr_order_partition(read->key));
        return SKR_OK;
    // Its time will come, and is looked for.
    case SKR_PARTITION_WAITS: return SKR_OK;
    case SKR_PARTITION_MORE:
    case SKR_PARTITION_IN_HAND: break;
    }
    // It is read again when what is in hand of it is done.
    if (read->given > 0)
        return SKR_OK;
    return list_head(pump, read->key, skr_clock_ms() + SETTLING_PAUSE_MS,
                     error);
}

enum skr_code
skr_pump_read_heads(struct skr_pump *pump, struct skr_slot *slot,
                    const struct skr_read *read, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    struct skr_partition_read partitions[SKR_MOST_PARTITIONS];
    char *keys[SKR_MOST_PARTITIONS];
    size_t most = read->max_rows < SKR_MOST_PARTITIONS ? read->max_rows
                                                       : SKR_MOST_PARTITIONS;
    size_t count = take_heads(pump, most, keys);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count; i++)
        partitions[i] = (struct skr_partition_read){.key = keys[i]};
    slot->claimed_ms = skr_clock_ms();
    if (count > 0)
        code =
            table->ops->read_partitions(table, pump->db, &pump->position, read,
                                        partitions, count, &slot->batch, error);
    skr_pump_mark_claim(pump, slot);
    if (code == SKR_OK)
        code = arrange(pump, slot, true, error);
    for (size_t i = 0; i < count; i++) {
        if (code == SKR_OK)
            code = note_end(pump, &partitions[i], error);
        free(keys[i]);
    }
    return code;
}

void
skr_pump_shorten_chains(struct skr_pump *pump)
{
    int64_t now_ms = skr_clock_ms();
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        struct skr_slot *slot = &pump->settler->slots[i];
        if (skr_settler_state(pump->settler, slot) != SKR_SLOT_OPEN ||
            now_ms - slot->claimed_ms < SLOW_CHAIN_MS)
            continue;
        // The slot must not close while it is looked through.
        slot->batch.pending++;
        for (size_t item = 0; item < slot->batch.count; item++)
            if (slot->batch.items[item].state == SKR_CHAINED)
                keep_first_alone(pump, slot->links[item].partition);
        skr_pump_release(pump, slot);
    }
}
