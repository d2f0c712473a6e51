// SPDX-License-Identifier: MIT
// Compares the creation times of a batch's rows with the table's before
// anything is written about them, on databases that give an id twice.

#include "store/identity.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct known {
    struct skr_batch_item **items;  // in ascending order of their rows
    size_t count;
};

static size_t
kept_size(const struct skr_value *created_at)
{
    if (created_at->bytes == NULL)
        return 0;
    return created_at->size < SKR_IDENTITY_SIZE ? created_at->size
                                                : SKR_IDENTITY_SIZE - 1;
}

const char *
skr_identity_take(struct skr_arena *arena, const struct skr_value *created_at)
{
    size_t size = kept_size(created_at);
    return skr_arena_text(arena, size == 0 ? "" : created_at->bytes, size);
}

bool
skr_identity_is_unsure(const struct skr_dialect *dialect)
{
    return skr_sql_word(dialect, "reused_ids")[0] != '\0';
}

static bool
is_asked_for(const struct skr_batch_item *item)
{
    return item->created_at != NULL && skr_has_result(item) &&
           skr_is_written_now(item);
}

static int
compare_items(const void *left, const void *right)
{
    const struct skr_batch_item *const *a = left, *const *b = right;
    return skr_compare_rows(&(*a)->row, &(*b)->row);
}

static int
compare_with_row(const void *row, const void *item)
{
    const struct skr_batch_item *const *known = item;
    return skr_compare_rows(row, &(*known)->row);
}

static enum skr_code
compare_row(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    const struct known *known = user;
    (void)count;
    (void)error;
    struct skr_batch_item **found =
        bsearch(&columns[0].integer, known->items, known->count,
                sizeof(known->items[0]), compare_with_row);
    if (found == NULL)
        return SKR_OK;
    size_t size = kept_size(&columns[1]);
    struct skr_batch_item *item = *found;
    if (strlen(item->created_at) == size &&
        (size == 0 || memcmp(item->created_at, columns[1].bytes, size) == 0))
        return SKR_OK;
    item->state = SKR_READ;
    item->lost = true;
    item->is_replaced = true;
    return SKR_OK;
}

enum skr_code
skr_identity_check(struct skr_tx tx, const struct skr_list_sql *sql,
                   struct skr_batch *batch, struct skr_error *error)
{
    struct known known = {0};
    known.items = calloc(batch->count + 1, sizeof(known.items[0]));
    if (known.items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < batch->count; i++)
        if (is_asked_for(&batch->items[i]))
            known.items[known.count++] = &batch->items[i];
    qsort(known.items, known.count, sizeof(known.items[0]), compare_items);
    const struct skr_list_run run = {
        .sql = sql,
        .each_row = compare_row,
        .user = &known,
    };
    enum skr_code code =
        skr_list_run_items(tx, &run, batch, is_asked_for, NULL, error);
    free(known.items);
    return code;
}
