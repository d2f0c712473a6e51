// SPDX-License-Identifier: MIT
// A queue of items of one size, first in, first out, that grows. It starts as
// {.item_size = sizeof(T)}.

#ifndef SKR_BASE_RING_H
#define SKR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>

struct skr_ring {
    size_t item_size;
    size_t count;
    size_t capacity;  // a power of two, or 0
    size_t first;     // where the oldest item stands
    unsigned char *items;
};

// Copies the item behind the last one. False: memory is out, and nothing has
// changed. After a pop there is room for one push, which cannot fail.
bool skr_ring_push(struct skr_ring *ring, const void *item);
// Copies the oldest item to `item` and takes it out. False: there is none.
bool skr_ring_pop(struct skr_ring *ring, void *item);
// The item with so many before it, below count; valid until the next push.
void *skr_ring_at(const struct skr_ring *ring, size_t index);

// Empties it and frees the memory; it can be used again.
void skr_ring_fini(struct skr_ring *ring);

#endif
