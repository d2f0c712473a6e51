// SPDX-License-Identifier: MIT
#include "outbox/waiting.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Eight megabytes. So many are told of only while the low watermark stays where
// it is: beside a transaction that is open for long, or where there is none.
// Those that have left their table by then are not known from those that wait,
// and all are found again that do.
enum { FIRST_ROWS = 1024, MOST_ROWS = 1 << 20 };

static bool
has_room(struct skr_waiting *waiting)
{
    if (waiting->count < waiting->capacity)
        return true;
    size_t capacity =
        waiting->capacity == 0 ? FIRST_ROWS : waiting->capacity * 2;
    int64_t *rows =
        capacity > MOST_ROWS
            ? NULL
            : realloc(waiting->rows, capacity * sizeof(waiting->rows[0]));
    if (rows == NULL)
        return false;
    waiting->rows = rows;
    waiting->capacity = capacity;
    return true;
}

// How many of them come before this one.
static size_t
count_before(const struct skr_waiting *waiting, int64_t row)
{
    size_t from = 0, to = waiting->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (waiting->rows[middle] < row)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void
skr_waiting_add(struct skr_waiting *waiting, int64_t row)
{
    size_t at = count_before(waiting, row);
    if (at < waiting->count && waiting->rows[at] == row)
        return;
    if (waiting->count == MOST_ROWS) {
        skr_waiting_clear(waiting);
        at = 0;
    }
    if (!has_room(waiting))
        return;
    memmove(&waiting->rows[at + 1], &waiting->rows[at],
            (waiting->count - at) * sizeof(waiting->rows[0]));
    waiting->rows[at] = row;
    waiting->count++;
}

void
skr_waiting_forget(struct skr_waiting *waiting, int64_t up_to)
{
    size_t gone = 0;
    while (gone < waiting->count && waiting->rows[gone] <= up_to)
        gone++;
    if (gone == 0)
        return;
    waiting->count -= gone;
    memmove(waiting->rows, &waiting->rows[gone],
            waiting->count * sizeof(waiting->rows[0]));
}

void
skr_waiting_clear(struct skr_waiting *waiting)
{
    waiting->count = 0;
}

void
skr_waiting_fini(struct skr_waiting *waiting)
{
    free(waiting->rows);
    *waiting = (struct skr_waiting){.rows = NULL};
}
