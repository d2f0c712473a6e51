// SPDX-License-Identifier: MIT
// Open addressing: an entry stands at its home place, which its key says, or
// behind it with no free entry between. A removal moves up the entries behind
// it that may stand nearer to their homes, so that no trace of it stays.
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

// Keys may differ in their high bits alone, or grow by a fixed step.
static size_t
home_of(const struct skr_map *map, uint64_t key)
{
    key = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15U;
    return (size_t)(key ^ (key >> 32)) & (map->capacity - 1);
}

// The entry of the key, or the free one where it would be.
static struct skr_map_entry *
find(const struct skr_map *map, uint64_t key)
{
    size_t at = home_of(map, key);
    while (map->entries[at].value != NULL && map->entries[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->entries[at];
}

void *
skr_map_get(const struct skr_map *map, uint64_t key)
{
    return map->count == 0 ? NULL : find(map, key)->value;
}

static bool
grow(struct skr_map *map)
{
    struct skr_map grown = {
        .capacity = map->capacity == 0 ? FIRST_CAPACITY : map->capacity * 2,
        .count = map->count,
    };
    grown.entries = calloc(grown.capacity, sizeof(*grown.entries));
    if (grown.entries == NULL)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].value != NULL)
            *find(&grown, map->entries[i].key) = map->entries[i];
    free(map->entries);
    *map = grown;
    return true;
}

bool
skr_map_put(struct skr_map *map, uint64_t key, void *value)
{
    if (skr_map_get(map, key) == NULL) {
        if ((map->count + 1) * 2 > map->capacity && !grow(map))
            return false;
        map->count++;
    }
    *find(map, key) = (struct skr_map_entry){.key = key, .value = value};
    return true;
}

void *
skr_map_remove(struct skr_map *map, uint64_t key)
{
    void *removed = skr_map_get(map, key);
    if (removed == NULL)
        return NULL;
    size_t mask = map->capacity - 1;
    size_t hole = (size_t)(find(map, key) - map->entries);
    for (size_t at = (hole + 1) & mask; map->entries[at].value != NULL;
         at = (at + 1) & mask) {
        // How far it stands from its home, and how far from the hole.
        size_t away = (at - home_of(map, map->entries[at].key)) & mask;
        if (away < ((at - hole) & mask))
            continue;
        map->entries[hole] = map->entries[at];
        hole = at;
    }
    map->entries[hole].value = NULL;
    map->count--;
    return removed;
}

void *
skr_map_next(const struct skr_map *map, size_t *at, uint64_t *key)
{
    while (*at < map->capacity) {
        const struct skr_map_entry *entry = &map->entries[(*at)++];
        if (entry->value == NULL)
            continue;
        if (key != NULL)
            *key = entry->key;
        return entry->value;
    }
    return NULL;
}

void
skr_map_clear(struct skr_map *map)
{
    if (map->count > 0)
        memset(map->entries, 0, map->capacity * sizeof(*map->entries));
    map->count = 0;
}

void
skr_map_fini(struct skr_map *map)
{
    free(map->entries);
    *map = (struct skr_map){.entries = NULL};
}
