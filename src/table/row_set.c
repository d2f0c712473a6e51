// SPDX-License-Identifier: MIT
// A set of row ids as a sorted array: rows come in ascending order nearly
// always, so that most of them are added at the end.

#include "table/row_set.h"

#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

// How many rows of the set come before this one.
static size_t
count_before(const struct skr_row_set *set, int64_t row)
{
    size_t from = 0, to = set->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->rows[middle] < row)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

bool
skr_row_set_has(const struct skr_row_set *set, int64_t row)
{
    size_t at = count_before(set, row);
    return at < set->count && set->rows[at] == row;
}

bool
skr_row_set_add(struct skr_row_set *set, int64_t row)
{
    size_t at = count_before(set, row);
    if (at < set->count && set->rows[at] == row)
        return true;
    if (set->most > 0 && set->count == set->most)
        at = set->count = 0;
    if (!skr_vec_reserve(&set->rows, &set->capacity, set->count + 1,
                         sizeof(set->rows[0])))
        return false;
    memmove(&set->rows[at + 1], &set->rows[at],
            (set->count - at) * sizeof(set->rows[0]));
    set->rows[at] = row;
    set->count++;
    return true;
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
    size_t at = count_before(set, row);
    if (at < set->count && set->rows[at] == row)
        remove_range(set, at, at + 1);
}

void
skr_row_set_remove_up_to(struct skr_row_set *set, int64_t row)
{
    size_t at = count_before(set, row);
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
