// SPDX-License-Identifier: MIT
// Runs a statement about many ids in pieces of a few fixed sizes, or as a range
// where the ids are dense.

#include "store/list.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "store/batch.h"

#include <stdlib.h>
#include <string.h>

// A shorter range saves nothing.
enum { LEAST_RANGE = 32 };

bool
skr_list_fill(const struct skr_list_filling *filling, const char *list_template,
              const char *range_template, struct skr_list_sql *list)
{
    size_t size = 1;
    for (size_t i = 0; i < SKR_SQL_LIST_SIZES; i++) {
        const char *ids = skr_sql_list(filling->arena, size);
        const char *id_rows = skr_sql_rows(filling->arena, size);
        if (ids == NULL || id_rows == NULL)
            return false;
        list->sql[i] =
            filling->fill(filling->layout, list_template, ids, id_rows);
        if (list->sql[i] == NULL)
            return false;
        size = skr_sql_list_size(size + 1);
    }
    if (range_template == NULL)
        return true;
    list->parts_last = filling->dialect->locks_behind_range;
    list->range = filling->fill(filling->layout, range_template, "", "");
    return list->range != NULL;
}

static const char *
pick(const struct skr_list_sql *list, size_t size)
{
    size_t place = 0;
    for (size_t smaller = 1; smaller < size; place++)
        smaller = skr_sql_list_size(smaller + 1);
    return list->sql[place];
}

// The values have room for those before the ids.
static enum skr_code
run_text(struct skr_tx tx, const struct skr_list_run *run, const char *sql,
         struct skr_value *values, size_t id_count, struct skr_error *error)
{
    uint64_t affected = 0;
    memcpy(values, run->first, run->first_count * sizeof(values[0]));
    enum skr_code code =
        skr_tx_run(tx,
                   &(struct skr_statement){
                       .sql = sql,
                       .values = values,
                       .value_count = run->first_count + id_count,
                       .each_row = run->each_row,
                       .user = run->user,
                       .affected = run->affected == NULL ? NULL : &affected,
                   },
                   error);
    if (code == SKR_OK && run->affected != NULL)
        *run->affected += affected;
    return code;
}

static enum skr_code
run_piece(struct skr_tx tx, const struct skr_list_run *run, size_t from,
          size_t count, struct skr_error *error)
{
    struct skr_value values[SKR_COUNT_OF(run->first) + SKR_SQL_MAX_LIST];
    size_t size = skr_sql_list_size(count);
    for (size_t i = 0; i < size; i++)
        values[run->first_count + i] =
            skr_bind_integer(run->rows[from + (i < count ? i : count - 1)]);
    return run_text(tx, run, pick(run->sql, size), values, size, error);
}

static enum skr_code
run_range(struct skr_tx tx, const struct skr_list_run *run, size_t from,
          size_t count, struct skr_error *error)
{
    struct skr_value values[SKR_COUNT_OF(run->first) + 3];
    struct skr_value *bounds = values + run->first_count;
    bool parts_last = run->sql->parts_last;
    const int64_t *last = &run->rows[from + count - 1];
    bounds[0] = skr_bind_integer(run->rows[from]);
    bounds[1] = skr_bind_integer(parts_last ? last[-1] : *last);
    bounds[2] = skr_bind_integer(*last);
    return run_text(tx, run, run->sql->range, values, parts_last ? 3 : 2,
                    error);
}

// How many ids from this one on are reached as a range, if that is most of
// them. Behind it a list is enough, but for more than one takes.
static size_t
measure_range(const struct skr_list_run *run, size_t from)
{
    size_t length = 1, left = run->count - from;
    if (run->sql->range == NULL || run->by_lists ||
        (from > 0 && left <= SKR_SQL_MAX_LIST))
        return 0;
    while (length < left &&
           run->rows[from + length] == run->rows[from] + (int64_t)length)
        length++;
    if (length < LEAST_RANGE || length < left / 2)
        return 0;
    return length;
}

enum skr_code
skr_list_run(struct skr_tx tx, const struct skr_list_run *run,
             struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t at = 0; at < run->count && code == SKR_OK;) {
        size_t count = measure_range(run, at);
        bool is_range = count > 0;
        if (!is_range)
            count = run->count - at < SKR_SQL_MAX_LIST ? run->count - at
                                                       : SKR_SQL_MAX_LIST;
        code = is_range ? run_range(tx, run, at, count, error)
                        : run_piece(tx, run, at, count, error);
        at += count;
    }
    return code;
}

enum skr_code
skr_list_run_items(struct skr_tx tx, const struct skr_list_run *run,
                   const struct skr_batch *batch, skr_item_test_fn *is_wanted,
                   uint64_t *wanted, struct skr_error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += is_wanted == NULL || is_wanted(&batch->items[i]);
    if (wanted != NULL)
        *wanted = count;
    if (count == 0)
        return SKR_OK;
    struct skr_arena arena = {0};
    int64_t *rows = skr_arena_take(&arena, count * sizeof(rows[0]));
    if (rows == NULL)
        return skr_fail_memory(error);
    struct skr_list_run listed = *run;
    listed.rows = rows;
    for (size_t i = 0; i < batch->count; i++)
        if (is_wanted == NULL || is_wanted(&batch->items[i]))
            rows[listed.count++] = batch->items[i].row;
    qsort(rows, count, sizeof(rows[0]), skr_compare_rows);
    enum skr_code code = skr_list_run(tx, &listed, error);
    skr_arena_fini(&arena);
    return code;
}

bool
skr_list_has_gap(const struct skr_batch *batch)
{
    for (size_t i = 1; i < batch->count; i++)
        if (batch->items[i].row != batch->items[i - 1].row + 1)
            return true;
    return false;
}

bool
skr_list_finishes(const struct skr_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].state != SKR_DONE)
            return false;
    return batch->count <= SKR_SQL_MAX_LIST || !skr_list_has_gap(batch);
}
