// SPDX-License-Identifier: MIT
// A map from numbers to pointers. Any key is legal, 0 too; a value is never
// NULL and stays the caller's. A zeroed struct is an empty map.

#ifndef SKR_BASE_MAP_H
#define SKR_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct skr_map_entry {
    uint64_t key;
    void *value;  // NULL: the entry is free
};

struct skr_map {
    struct skr_map_entry *entries;
    size_t capacity;  // a power of two, or 0; at most half is in use
    size_t count;
};

// NULL: there is none.
void *skr_map_get(const struct skr_map *map, uint64_t key);
// In place of the value that the key has, if it has one. False: memory is out,
// and nothing has changed; a key that is there needs none.
bool skr_map_put(struct skr_map *map, uint64_t key, void *value);
// Gives the value that is no longer in the map; NULL: there was none.
void *skr_map_remove(struct skr_map *map, uint64_t key);

// The next value of a walk in no particular order, which begins with *at = 0;
// NULL: the walk is over. key may be NULL. Nothing may be put or removed during
// a walk.
void *skr_map_next(const struct skr_map *map, size_t *at, uint64_t *key);

// Empties it and keeps the memory for new entries.
void skr_map_clear(struct skr_map *map);
void skr_map_fini(struct skr_map *map);

#endif
