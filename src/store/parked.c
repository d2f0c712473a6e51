// SPDX-License-Identifier: MIT
// Parked rows as a sorted array, bounded in number.

#include "store/parked.h"

#include "base/clock.h"
#include "base/vec.h"
#include "store/batch.h"

#include <stddef.h>
#include <stdlib.h>

// Rows are compared by their first member.
_Static_assert(offsetof(struct skr_parked_row, row) == 0, "see find()");

// The place of the row, or where it would be.
static size_t
find(const struct skr_parked *parked, int64_t row)
{
    return skr_vec_find(parked->rows, parked->count, sizeof(parked->rows[0]),
                        &row, skr_compare_rows);
}

static bool
is_at(const struct skr_parked *parked, size_t at, int64_t row)
{
    return at < parked->count && parked->rows[at].row == row;
}

static void
remove_at(struct skr_parked *parked, size_t at)
{
    parked->published -= parked->rows[at].is_published;
    skr_vec_remove(parked->rows, &parked->count, at, sizeof(parked->rows[0]));
}

// One that is only known to have been told of gives way.
static void
make_room(struct skr_parked *parked)
{
    for (size_t i = 0; i < parked->count; i++)
        if (!parked->rows[i].is_published && parked->rows[i].until_ms == 0) {
            remove_at(parked, i);
            return;
        }
}

// Rows that are not published leave the others their room.
static bool
finds_room(const struct skr_parked *parked, bool is_published)
{
    size_t others = parked->count - parked->published;
    return is_published ? parked->published < SKR_MOST_PARKED_PUBLISHED
                        : others < SKR_MOST_PARKED - SKR_MOST_PARKED_PUBLISHED;
}

bool
skr_parked_reserve(struct skr_parked *parked, size_t published)
{
    return parked->published + published <= SKR_MOST_PARKED_PUBLISHED &&
           skr_vec_reserve(&parked->rows, &parked->capacity,
                           parked->count + published, sizeof(parked->rows[0]));
}

bool
skr_parked_add(struct skr_parked *parked, struct skr_parked_row row)
{
    size_t at = find(parked, row.row);
    if (is_at(parked, at, row.row)) {
        parked->published -= parked->rows[at].is_published;
        parked->published += row.is_published;
        parked->rows[at] = row;
        return false;
    }
    if (!finds_room(parked, row.is_published))
        make_room(parked);
    at = find(parked, row.row);
    if (finds_room(parked, row.is_published) &&
        skr_vec_insert(&parked->rows, &parked->count, &parked->capacity, at,
                       &row, sizeof(row)))
        parked->published += row.is_published;
    return true;
}

bool
skr_parked_knows(const struct skr_parked *parked, int64_t row)
{
    return is_at(parked, find(parked, row), row);
}

bool
skr_parked_remove(struct skr_parked *parked, int64_t row)
{
    size_t at = find(parked, row);
    if (!is_at(parked, at, row))
        return false;
    parked->has_freed |= !parked->rows[at].is_published;
    remove_at(parked, at);
    return true;
}

bool
skr_parked_replace(struct skr_parked *parked, int64_t row)
{
    parked->has_freed = true;
    return skr_parked_remove(parked, row);
}

bool
skr_parked_is_left_alone(const struct skr_parked_row *row)
{
    return row->is_published || row->until_ms > 0;
}

size_t
skr_parked_count(const struct skr_parked *parked)
{
    size_t count = 0;
    for (size_t i = 0; i < parked->count; i++)
        count += skr_parked_is_left_alone(&parked->rows[i]);
    return count;
}

bool
skr_parked_list(const struct skr_parked *parked, struct skr_row_set *rows)
{
    bool ok = true;
    for (size_t i = 0; i < parked->count && ok; i++)
        ok = !skr_parked_is_left_alone(&parked->rows[i]) ||
             skr_row_set_add(rows, parked->rows[i].row);
    return ok;
}

size_t
skr_parked_take_due(struct skr_parked *parked, int64_t now_ms, int64_t next_ms,
                    struct skr_parked_row *rows, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < parked->count && count < most; i++) {
        struct skr_parked_row *row = &parked->rows[i];
        if (!row->is_published || row->until_ms > now_ms)
            continue;
        row->until_ms = next_ms;
        rows[count++] = *row;
    }
    return count;
}

void
skr_parked_defer(struct skr_parked *parked, int64_t next_ms)
{
    for (size_t i = 0; i < parked->count; i++)
        if (parked->rows[i].is_published && parked->rows[i].until_ms < next_ms)
            parked->rows[i].until_ms = next_ms;
}

bool
skr_parked_release(struct skr_parked *parked, int64_t now_ms)
{
    bool is_some = parked->has_freed;
    parked->has_freed = false;
    for (size_t i = 0; i < parked->count; i++) {
        struct skr_parked_row *row = &parked->rows[i];
        if (row->is_published || row->until_ms == 0 || row->until_ms > now_ms)
            continue;
        row->until_ms = 0;
        is_some = true;
    }
    return is_some;
}

// The least time of those that are published, or of the others; 0: none.
static int64_t
find_next_ms(const struct skr_parked *parked, bool is_published)
{
    int64_t next_ms = 0;
    for (size_t i = 0; i < parked->count; i++)
        if (parked->rows[i].is_published == is_published)
            next_ms = skr_clock_earlier(next_ms, parked->rows[i].until_ms);
    return next_ms;
}

int64_t
skr_parked_due_ms(const struct skr_parked *parked)
{
    return parked->published == 0 ? 0 : find_next_ms(parked, true);
}

int64_t
skr_parked_next_ms(const struct skr_parked *parked)
{
    return find_next_ms(parked, false);
}

void
skr_parked_clear(struct skr_parked *parked)
{
    parked->count = 0;
    parked->published = 0;
    parked->has_freed = false;
}

void
skr_parked_fini(struct skr_parked *parked)
{
    free(parked->rows);
    *parked = (struct skr_parked){.rows = NULL};
}
