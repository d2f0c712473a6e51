// SPDX-License-Identifier: MIT
// Memory of a batch, and the search for a row among sorted row ids.

#include "store/batch.h"

#include "base/error.h"

#include <stdlib.h>

enum skr_code
skr_batch_init(struct skr_batch *batch, size_t capacity,
               struct skr_error *error)
{
    struct skr_batch_item *items = calloc(capacity, sizeof(*items));
    if (items == NULL)
        return skr_fail_memory(error);
    *batch = (struct skr_batch){.items = items, .capacity = capacity};
    return SKR_OK;
}

void
skr_batch_clear(struct skr_batch *batch)
{
    batch->count = 0;
    batch->bytes = 0;
    batch->is_late = false;
    batch->lease = (struct skr_lease){.time = ""};
    skr_arena_reset(&batch->arena);
}

void
skr_batch_fini(struct skr_batch *batch)
{
    free(batch->items);
    skr_arena_fini(&batch->arena);
    *batch = (struct skr_batch){0};
}

int
skr_compare_rows(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

bool
skr_is_among_rows(int64_t row, const int64_t *rows, size_t count)
{
    return count > 0 &&
           bsearch(&row, rows, count, sizeof(row), skr_compare_rows) != NULL;
}
