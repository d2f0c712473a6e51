// SPDX-License-Identifier: MIT
// A bump allocator over a list of blocks. An allocation that does not fit an
// ordinary block gets a block of its own.

#include "base/arena.h"

#include "base/error.h"
#include "base/text.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDINARY_SIZE = 64 * 1024 };

struct skr_arena_block {
    struct skr_arena_block *next;
    size_t size;
    size_t used;
    alignas(max_align_t) unsigned char bytes[];
};

static struct skr_arena_block *
add_block(struct skr_arena *arena, size_t size)
{
    size_t room = size > ORDINARY_SIZE ? size : ORDINARY_SIZE;
    if (room > SIZE_MAX - sizeof(struct skr_arena_block))
        return NULL;
    struct skr_arena_block *block = malloc(sizeof(*block) + room);
    if (block == NULL)
        return NULL;
    block->size = room;
    block->used = 0;
    // A block for one large thing goes second: what is left of the first one
    // still serves the small things to come.
    struct skr_arena_block **place = &arena->blocks;
    if (room > ORDINARY_SIZE && arena->blocks != NULL)
        place = &arena->blocks->next;
    block->next = *place;
    *place = block;
    return block;
}

void *
skr_arena_take(struct skr_arena *arena, size_t size)
{
    const size_t alignment = alignof(max_align_t);
    if (size > SIZE_MAX - alignment)
        return NULL;
    size = (size + alignment - 1) / alignment * alignment;
    struct skr_arena_block *block = arena->blocks;
    if (block == NULL || block->size - block->used < size)
        block = add_block(arena, size);
    if (block == NULL)
        return NULL;
    void *taken = block->bytes + block->used;
    block->used += size;
    return taken;
}

void *
skr_arena_grow(struct skr_arena *arena, void *items, size_t count,
               size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return items;
    size_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    void *grown = wanted > SIZE_MAX / item_size
                      ? NULL
                      : skr_arena_take(arena, wanted * item_size);
    if (grown == NULL)
        return NULL;
    if (count > 0)
        memcpy(grown, items, count * item_size);
    *capacity = wanted;
    return grown;
}

char *
skr_arena_text(struct skr_arena *arena, const char *text, size_t size)
{
    char *copy = size == SIZE_MAX ? NULL : skr_arena_take(arena, size + 1);
    if (copy == NULL)
        return NULL;
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

enum skr_code
skr_arena_keep(struct skr_arena *arena, const char *text, const char **kept,
               struct skr_error *error)
{
    if (text == NULL)
        return SKR_OK;
    *kept = skr_arena_text(arena, text, strlen(text));
    return *kept == NULL ? skr_fail_memory(error) : SKR_OK;
}

char *
skr_arena_storable(struct skr_arena *arena, const void *bytes, size_t size)
{
    if (skr_text_is_storable(bytes, size))
        return skr_arena_text(arena, bytes, size);
    char *encoded = skr_text_base64(bytes, size);
    char *copy = encoded == NULL
                     ? NULL
                     : skr_arena_text(arena, encoded, strlen(encoded));
    free(encoded);
    return copy;
}

char *
skr_arena_format(struct skr_arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : skr_arena_take(arena, (size_t)length + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

// All but one.
static void
free_blocks(struct skr_arena *arena, struct skr_arena_block *kept)
{
    for (struct skr_arena_block *block = arena->blocks, *next; block != NULL;
         block = next) {
        next = block->next;
        if (block != kept)
            free(block);
    }
    arena->blocks = kept;
}

void
skr_arena_reset(struct skr_arena *arena)
{
    struct skr_arena_block *kept = arena->blocks;
    while (kept != NULL && kept->size != ORDINARY_SIZE)
        kept = kept->next;
    free_blocks(arena, kept);
    if (kept != NULL) {
        kept->used = 0;
        kept->next = NULL;
    }
}

void
skr_arena_fini(struct skr_arena *arena)
{
    free_blocks(arena, NULL);
}
