// SPDX-License-Identifier: MIT
// A set of row ids, in ascending order: what a reader is told about rows that
// it has given already.

#ifndef SKR_STORE_ROW_SET_H
#define SKR_STORE_ROW_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Starts as zeroes, but for `most`.
struct skr_row_set {
    int64_t *rows;
    size_t count;
    size_t capacity;
    size_t most;  // when it has so many, the next one empties it; 0: never
};

// False: memory is out, and the row is not in the set.
bool skr_row_set_add(struct skr_row_set *set, int64_t row);
void skr_row_set_remove(struct skr_row_set *set, int64_t row);
// Removes this row and all before it.
void skr_row_set_remove_up_to(struct skr_row_set *set, int64_t row);
void skr_row_set_clear(struct skr_row_set *set);
void skr_row_set_fini(struct skr_row_set *set);

#endif
