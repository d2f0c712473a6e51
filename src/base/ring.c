// SPDX-License-Identifier: MIT
// A growing first-in-first-out queue of items of one size in a circular buffer.

#include "base/ring.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

void *
skr_ring_at(const struct skr_ring *ring, size_t index)
{
    size_t place = (ring->first + index) & (ring->capacity - 1);
    return ring->items + place * ring->item_size;
}

static bool
grow(struct skr_ring *ring)
{
    struct skr_ring grown = *ring;
    grown.capacity = ring->capacity == 0 ? FIRST_CAPACITY : ring->capacity * 2;
    grown.first = 0;
    grown.items = calloc(grown.capacity, ring->item_size);
    if (grown.items == NULL)
        return false;
    for (size_t i = 0; i < ring->count; i++)
        memcpy(skr_ring_at(&grown, i), skr_ring_at(ring, i), ring->item_size);
    free(ring->items);
    *ring = grown;
    return true;
}

bool
skr_ring_push(struct skr_ring *ring, const void *item)
{
    if (ring->count == ring->capacity && !grow(ring))
        return false;
    memcpy(skr_ring_at(ring, ring->count++), item, ring->item_size);
    return true;
}

bool
skr_ring_pop(struct skr_ring *ring, void *item)
{
    if (ring->count == 0)
        return false;
    memcpy(item, skr_ring_at(ring, 0), ring->item_size);
    ring->first = (ring->first + 1) & (ring->capacity - 1);
    ring->count--;
    return true;
}

void
skr_ring_fini(struct skr_ring *ring)
{
    free(ring->items);
    *ring = (struct skr_ring){.item_size = ring->item_size};
}
