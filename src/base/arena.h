// SPDX-License-Identifier: MIT
// An arena: many small allocations that end together. Blocks are kept by a
// reset, so that a worker in its stride allocates nothing.

#ifndef SKR_BASE_ARENA_H
#define SKR_BASE_ARENA_H

#include <skirnir/skirnir.h>

struct skr_arena_block;

struct skr_arena {
    struct skr_arena_block *blocks;  // the first one is taken from
};

// A zeroed struct skr_arena is ready. NULL when memory is out.
void *skr_arena_take(struct skr_arena *arena, size_t size);
char *skr_arena_text(struct skr_arena *arena, const char *text, size_t size);
// A copy of the text; where that is NULL, *kept stays as it is.
SKR_MUST_CHECK enum skr_code
skr_arena_keep(struct skr_arena *arena, const char *text, const char **kept,
               struct skr_error *error);
// Bytes as text: as they are where every text column can hold them, else
// base64.
char *
skr_arena_storable(struct skr_arena *arena, const void *bytes, size_t size);
char *skr_arena_format(struct skr_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Room for one more item in an array of the arena: the items as they are, or a
// copy with twice the capacity. NULL: memory is out, and nothing has changed.
void *skr_arena_grow(struct skr_arena *arena, void *items, size_t count,
                     size_t *capacity, size_t item_size);

// Ends all allocations; keeps one block of ordinary size for the next round.
void skr_arena_reset(struct skr_arena *arena);
void skr_arena_fini(struct skr_arena *arena);

#endif
