// SPDX-License-Identifier: MIT
// A circular buffer of lines, each behind its size. It has no lock:
// log_writer.c has one.

#include "app/console/log_ring.h"

#include <string.h>

void
skr_log_ring_init(struct skr_log_ring *ring, char *bytes, size_t capacity)
{
    *ring = (struct skr_log_ring){.bytes = bytes, .capacity = capacity};
}

// Bytes from a place on that stand before the end of the storage.
static size_t
before_end(const struct skr_log_ring *ring, size_t at, size_t size)
{
    return size < ring->capacity - at ? size : ring->capacity - at;
}

static void
write_bytes(struct skr_log_ring *ring, const void *bytes, size_t size)
{
    size_t at = (ring->begin + ring->used) % ring->capacity;
    size_t first = before_end(ring, at, size);
    memcpy(ring->bytes + at, bytes, first);
    memcpy(ring->bytes, (const char *)bytes + first, size - first);
    ring->used += size;
}

static void
skip_bytes(struct skr_log_ring *ring, size_t size)
{
    ring->used -= size;
    // An empty ring begins anew, so that a quiet one touches little memory.
    ring->begin = ring->used == 0 ? 0 : (ring->begin + size) % ring->capacity;
}

static size_t
read_size(const struct skr_log_ring *ring)
{
    uint32_t size;
    size_t first = before_end(ring, ring->begin, sizeof(size));
    memcpy(&size, ring->bytes + ring->begin, first);
    memcpy((char *)&size + first, ring->bytes, sizeof(size) - first);
    return size;
}

void
skr_log_ring_add(struct skr_log_ring *ring, const char *line, size_t size)
{
    uint32_t stored = (uint32_t)size;
    size_t needed = sizeof(stored) + size;
    if (needed > ring->capacity) {
        ring->dropped++;
        return;
    }
    while (ring->capacity - ring->used < needed) {
        skip_bytes(ring, sizeof(stored) + read_size(ring));
        ring->dropped++;
    }
    write_bytes(ring, &stored, sizeof(stored));
    write_bytes(ring, line, size);
}

bool
skr_log_ring_take(struct skr_log_ring *ring, struct skr_text *line)
{
    skr_text_clear(line);
    if (ring->used == 0)
        return false;
    size_t size = read_size(ring);
    size_t at = (ring->begin + sizeof(uint32_t)) % ring->capacity;
    size_t first = before_end(ring, at, size);
    skr_text_add(line, ring->bytes + at, first);
    skr_text_add(line, ring->bytes, size - first);
    skip_bytes(ring, sizeof(uint32_t) + size);
    return true;
}
