// SPDX-License-Identifier: MIT
#include "outbox/order.h"

#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

uint64_t
skr_order_partition(const char *key)
{
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), key);
    uint64_t partition = hash.low ^ hash.high;
    return partition == 0 ? 1 : partition;
}

void
skr_order_clear(struct skr_order *order)
{
    if (order->capacity > 0)
        memset(order->entries, 0, order->capacity * sizeof(order->entries[0]));
    order->count = 0;
}

void
skr_order_fini(struct skr_order *order)
{
    free(order->entries);
    *order = (struct skr_order){.entries = NULL};
}

// The partition's own place, or the free one where it would be.
static struct skr_order_entry *
place_of(const struct skr_order *order, uint64_t partition)
{
    size_t at = partition & (order->capacity - 1);
    while (order->entries[at].partition != 0 &&
           order->entries[at].partition != partition)
        at = (at + 1) & (order->capacity - 1);
    return &order->entries[at];
}

static struct skr_order_entry *
find(const struct skr_order *order, uint64_t partition)
{
    if (order->capacity == 0)
        return NULL;
    struct skr_order_entry *entry = place_of(order, partition);
    return entry->partition == 0 ? NULL : entry;
}

static enum skr_code
grow(struct skr_order *order, struct skr_error *error)
{
    struct skr_order larger = {
        .capacity = order->capacity == 0 ? FIRST_CAPACITY : order->capacity * 2,
        .count = order->count,
    };
    larger.entries = calloc(larger.capacity, sizeof(larger.entries[0]));
    if (larger.entries == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < order->capacity; i++)
        if (order->entries[i].partition != 0)
            *place_of(&larger, order->entries[i].partition) = order->entries[i];
    free(order->entries);
    *order = larger;
    return SKR_OK;
}

static enum skr_code
find_or_make(struct skr_order *order, uint64_t partition,
             struct skr_order_entry **entry, struct skr_error *error)
{
    *entry = find(order, partition);
    if (*entry != NULL)
        return SKR_OK;
    // Half full at most, so that ways are short.
    if (order->count * 2 >= order->capacity) {
        enum skr_code code = grow(order, error);
        if (code != SKR_OK)
            return code;
    }
    *entry = place_of(order, partition);
    **entry = (struct skr_order_entry){.partition = partition};
    order->count++;
    return SKR_OK;
}

// Those behind the gap that would no longer be found move up.
static void
forget(struct skr_order *order, struct skr_order_entry *entry)
{
    size_t mask = order->capacity - 1;
    size_t gap = (size_t)(entry - order->entries);
    order->entries[gap].partition = 0;
    order->count--;
    for (size_t at = (gap + 1) & mask; order->entries[at].partition != 0;
         at = (at + 1) & mask) {
        size_t home = order->entries[at].partition & mask;
        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        order->entries[gap] = order->entries[at];
        order->entries[at].partition = 0;
        gap = at;
    }
}

static void
chain(struct skr_order_entry *entry, uint64_t ticket,
      enum skr_order_place *place, uint64_t *before)
{
    *place = entry->length == 0 ? SKR_ORDER_FIRST : SKR_ORDER_CHAINED;
    *before = entry->last;
    if (entry->length == 0)
        entry->first = ticket;
    entry->last = ticket;
    entry->length++;
}

// What is left behind blocks the partition, and so does being read from its
// head, which may begin a chain all the same.
static enum skr_code
take(struct skr_order *order, uint64_t partition, uint64_t ticket, bool resumes,
     enum skr_order_place *place, uint64_t *before, struct skr_error *error)
{
    struct skr_order_entry *entry = NULL;
    enum skr_code code = find_or_make(order, partition, &entry, error);
    if (code != SKR_OK)
        return code;
    bool is_full = entry->length == SKR_ORDER_LONGEST_CHAIN;
    bool is_left = is_full || (entry->is_blocked && !resumes);
    entry->is_blocked = entry->is_blocked || is_full || resumes;
    if (is_left)
        *place = SKR_ORDER_LEFT;
    else
        chain(entry, ticket, place, before);
    return SKR_OK;
}

enum skr_code
skr_order_add(struct skr_order *order, uint64_t partition, uint64_t ticket,
              enum skr_order_place *place, uint64_t *before,
              struct skr_error *error)
{
    return take(order, partition, ticket, false, place, before, error);
}

enum skr_code
skr_order_resume(struct skr_order *order, uint64_t partition, uint64_t ticket,
                 enum skr_order_place *place, uint64_t *before,
                 struct skr_error *error)
{
    return take(order, partition, ticket, true, place, before, error);
}

enum skr_code
skr_order_block(struct skr_order *order, uint64_t partition,
                struct skr_error *error)
{
    struct skr_order_entry *entry = NULL;
    enum skr_code code = find_or_make(order, partition, &entry, error);
    if (code == SKR_OK)
        entry->is_blocked = true;
    return code;
}

bool
skr_order_is_blocked(const struct skr_order *order, uint64_t partition)
{
    const struct skr_order_entry *entry = find(order, partition);
    return entry != NULL && entry->is_blocked;
}

bool
skr_order_is_in_hand(const struct skr_order *order, uint64_t partition)
{
    const struct skr_order_entry *entry = find(order, partition);
    return entry != NULL && entry->length > 0;
}

bool
skr_order_chain(const struct skr_order *order, uint64_t partition,
                uint64_t *first, uint64_t *last)
{
    const struct skr_order_entry *entry = find(order, partition);
    if (entry == NULL || entry->length == 0)
        return false;
    *first = entry->first;
    *last = entry->last;
    return true;
}

bool
skr_order_set_listed(struct skr_order *order, uint64_t partition,
                     bool is_listed)
{
    struct skr_order_entry *entry = find(order, partition);
    if (entry == NULL || !entry->is_blocked || entry->is_listed == is_listed)
        return false;
    entry->is_listed = is_listed;
    return true;
}

bool
skr_order_advance(struct skr_order *order, uint64_t partition, uint64_t next,
                  bool *is_behind)
{
    struct skr_order_entry *entry = find(order, partition);
    *is_behind = false;
    if (entry == NULL || entry->length == 0)
        return false;
    entry->length--;
    if (entry->length > 0) {
        entry->first = next;
        return true;
    }
    *is_behind = entry->is_blocked;
    if (!entry->is_blocked)
        forget(order, entry);
    return false;
}

void
skr_order_drop(struct skr_order *order, uint64_t partition)
{
    struct skr_order_entry *entry = find(order, partition);
    if (entry == NULL)
        return;
    entry->length = 0;
    entry->is_blocked = true;
}

void
skr_order_trim(struct skr_order *order, uint64_t partition)
{
    struct skr_order_entry *entry = find(order, partition);
    if (entry == NULL || entry->length == 0)
        return;
    entry->length = 1;
    entry->last = entry->first;
    entry->is_blocked = true;
}

void
skr_order_unblock(struct skr_order *order, uint64_t partition)
{
    struct skr_order_entry *entry = find(order, partition);
    if (entry == NULL)
        return;
    entry->is_blocked = false;
    if (entry->length == 0)
        forget(order, entry);
}
