// SPDX-License-Identifier: MIT
// A set of row ids as a sorted array: rows come in ascending order nearly
// always, so that most of them are added at the end.

#include "store/row_set.h"

#include "base/vec.h"
#include "store/batch.h"

#include <stdlib.h>
#include <string.h>

// The place of the row, or where it would be.
static size_t
find(const struct skr_row_set *set, int64_t row)
{
    return skr_vec_find(set->rows, set->count, sizeof(row), &row,
                        skr_compare_rows);
}

bool
skr_row_set_add(struct skr_row_set *set, int64_t row)
{
    size_t at = find(set, row);
    if (at < set->count && set->rows[at] == row)
        return true;
    if (set->most > 0 && set->count == set->most)
        at = set->count = 0;
    return skr_vec_insert(&set->rows, &set->count, &set->capacity, at, &row,
                          sizeof(row));
}

static void
remove_range(struct skr_row_set *set, size_t from, size_t to)
{
    memmove(&set->rows[from], &set->rows[to],
            (set->count - to) * sizeof(set->rows[0]));
    set->count -= to - from;
}

void
skr_row_set_remove(struct skr_row_set *set, int64_t row)
{
    size_t at = find(set, row);
    if (at < set->count && set->rows[at] == row)
        remove_range(set, at, at + 1);
}

void
skr_row_set_remove_up_to(struct skr_row_set *set, int64_t row)
{
    size_t at = find(set, row);
    at += at < set->count && set->rows[at] == row;
    if (at > 0)
        remove_range(set, 0, at);
}

void
skr_row_set_clear(struct skr_row_set *set)
{
    set->count = 0;
}

void
skr_row_set_fini(struct skr_row_set *set)
{
    free(set->rows);
    *set = (struct skr_row_set){.most = set->most};
}
