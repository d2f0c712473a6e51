// SPDX-License-Identifier: MIT
// Plain arrays that grow. An array is three members of its owner's struct: the
// items (NULL at first), their count and the capacity; free(items) ends it.
// items_pointer is the address of the pointer to the first item (T **), and
// item_size is sizeof(T).

#ifndef SKR_BASE_VEC_H
#define SKR_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

// Makes room for `needed` items in all, at least doubling the capacity. What is
// new is not set. False: memory is out, and nothing has changed.
bool skr_vec_reserve(void *items_pointer, size_t *capacity, size_t needed,
                     size_t item_size);

// Copies the item to place `at`, moving up those from there on. False: memory
// is out, and nothing has changed.
bool skr_vec_insert(void *items_pointer, size_t *count, size_t *capacity,
                    size_t at, const void *item, size_t item_size);
void skr_vec_remove(void *items, size_t *count, size_t at, size_t item_size);

// For sorted items: how many come before the key, which is the place of the
// first that equals it, or where it would be inserted. compare() is called as
// by bsearch(): the key first, then an item.
typedef int skr_compare_fn(const void *key, const void *item);
size_t skr_vec_find(const void *items, size_t count, size_t item_size,
                    const void *key, skr_compare_fn *compare);

#endif
