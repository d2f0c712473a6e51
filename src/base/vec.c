// SPDX-License-Identifier: MIT
// Growth, insertion, removal and binary search for arrays whose owner keeps the
// pointer, the count and the capacity.

#include "base/vec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

bool
skr_vec_reserve(void *items_pointer, size_t *capacity, size_t needed,
                size_t item_size)
{
    if (needed <= *capacity)
        return true;
    size_t most = SIZE_MAX / item_size;
    if (needed > most)
        return false;
    size_t wanted = *capacity == 0 ? FIRST_CAPACITY : *capacity;
    while (wanted < needed)
        wanted = wanted <= most / 2 ? wanted * 2 : needed;
    // A T * may not be read as a void *, though both are stored alike.
    void *items = NULL;
    memcpy(&items, items_pointer, sizeof(items));
    items = realloc(items, wanted * item_size);
    if (items == NULL)
        return false;
    memcpy(items_pointer, &items, sizeof(items));
    *capacity = wanted;
    return true;
}

bool
skr_vec_insert(void *items_pointer, size_t *count, size_t *capacity, size_t at,
               const void *item, size_t item_size)
{
    if (!skr_vec_reserve(items_pointer, capacity, *count + 1, item_size))
        return false;
    unsigned char *items = NULL;
    memcpy(&items, items_pointer, sizeof(items));
    unsigned char *place = items + at * item_size;
    memmove(place + item_size, place, (*count - at) * item_size);
    memcpy(place, item, item_size);
    (*count)++;
    return true;
}

void
skr_vec_remove(void *items, size_t *count, size_t at, size_t item_size)
{
    unsigned char *place = (unsigned char *)items + at * item_size;
    (*count)--;
    memmove(place, place + item_size, (*count - at) * item_size);
}

size_t
skr_vec_find(const void *items, size_t count, size_t item_size, const void *key,
             skr_compare_fn *compare)
{
    size_t from = 0, to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (compare(key, (const unsigned char *)items + middle * item_size) > 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}
