// SPDX-License-Identifier: MIT
// Filling templates, and statements about many rows at once.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 5, LONGEST_TRYING_MS = 1000 };

_Static_assert(SKR_SLOTS == 60, "statements know it as {slot_count}");
_Static_assert(SKR_MARK_UNDECIDED == 4, "statements know it too");

static const char *
fill(struct skr_messenger *messenger, const char *sql_template, const char *ids,
     const char *id_rows)
{
    enum { OWN_WORDS = 11 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", messenger->name},
        {"queue_hex", messenger->queue_hex},
        {"failed_table",
         messenger->failed_table == NULL ? "" : messenger->failed_table},
        {"failed_now", messenger->failed_now},
        {"ids", ids},
        {"id_rows", id_rows},
        {"owner", messenger->owner == NULL ? "" : messenger->owner},
        {"slot_count", "60"},
        {"ours", messenger->owner == NULL ? "" : " AND {is_in_share}"},
        {"decided", messenger->by_commits ? " AND {is_decided}" : ""},
        {"undecided_mark", messenger->by_commits
                               ? " + CASE WHEN {is_decided} THEN 0 ELSE 4 END"
                               : ""},
    };
    size_t count =
        OWN_WORDS + skr_zone_words(&messenger->zone, words + OWN_WORDS);
    return skr_sql_fill(messenger->dialect, &messenger->arena, sql_template,
                        words, count);
}

bool
skr_messenger_fill(struct skr_messenger *messenger, const char *sql_template,
                   const char **sql)
{
    *sql = fill(messenger, sql_template, "", "");
    return *sql != NULL;
}

bool
skr_messenger_fill_list(struct skr_messenger *messenger,
                        const char *sql_template, struct skr_list_sql *list)
{
    size_t size = 1;
    for (size_t i = 0; i < SKR_SQL_LIST_SIZES; i++) {
        const char *ids = skr_sql_list(&messenger->arena, size);
        const char *id_rows = skr_sql_rows(&messenger->arena, size);
        if (ids == NULL || id_rows == NULL)
            return false;
        list->sql[i] = fill(messenger, sql_template, ids, id_rows);
        if (list->sql[i] == NULL)
            return false;
        size = skr_sql_list_size(size + 1);
    }
    return true;
}

static const char *
pick(const struct skr_list_sql *list, size_t size)
{
    size_t place = 0;
    for (size_t smaller = 1; smaller < size; place++)
        smaller = skr_sql_list_size(smaller + 1);
    return list->sql[place];
}

static enum skr_code
run_piece(struct skr_tx tx, const struct skr_list_run *run, const int64_t *rows,
          size_t count, struct skr_error *error)
{
    struct skr_value values[SKR_COUNT_OF(run->first) + SKR_SQL_MAX_LIST];
    size_t size = skr_sql_list_size(count);
    memcpy(values, run->first, run->first_count * sizeof(values[0]));
    for (size_t i = 0; i < size; i++)
        values[run->first_count + i] =
            skr_bind_integer(rows[i < count ? i : count - 1]);
    uint64_t affected = 0;
    enum skr_code code =
        skr_tx_run(tx,
                   &(struct skr_statement){
                       .sql = pick(run->sql, size),
                       .values = values,
                       .value_count = run->first_count + size,
                       .each_row = run->each_row,
                       .user = run->user,
                       .affected = run->affected == NULL ? NULL : &affected,
                   },
                   error);
    if (code == SKR_OK && run->affected != NULL)
        *run->affected += affected;
    return code;
}

enum skr_code
skr_messenger_run_list(struct skr_tx tx, const struct skr_list_run *run,
                       struct skr_error *error)
{
    for (size_t at = 0; at < run->count; at += SKR_SQL_MAX_LIST) {
        size_t left = run->count - at;
        enum skr_code code =
            run_piece(tx, run, run->rows + at,
                      left < SKR_SQL_MAX_LIST ? left : SKR_SQL_MAX_LIST, error);
        if (code != SKR_OK)
            return code;
    }
    return SKR_OK;
}

enum skr_code
skr_messenger_run_items(struct skr_tx tx, const struct skr_list_run *run,
                        const struct skr_batch *batch,
                        skr_item_test_fn *is_wanted, uint64_t *wanted,
                        struct skr_error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += is_wanted(&batch->items[i]);
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
        if (is_wanted(&batch->items[i]))
            rows[listed.count++] = batch->items[i].row;
    qsort(rows, count, sizeof(rows[0]), skr_compare_rows);
    enum skr_code code = skr_messenger_run_list(tx, &listed, error);
    skr_arena_fini(&arena);
    return code;
}

bool
skr_messenger_may_try_again(struct skr_tries *tries, enum skr_code code,
                            const struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    tries->failed++;
    if (code != SKR_CONFLICT || error->remedy != SKR_TRY_AGAIN ||
        tries->failed > MOST_TRIES ||
        now_ms - tries->started_ms > LONGEST_TRYING_MS)
        return false;
    skr_clock_sleep(-1, tries->failed);
    return true;
}

void
skr_messenger_copy_time(const struct skr_value *value,
                        char time[SKR_POSITION_TIME_SIZE])
{
    // Without a part of a second, should the server give one.
    size_t size = value->size < SKR_POSITION_TIME_SIZE
                      ? value->size
                      : SKR_POSITION_TIME_SIZE - 1;
    if (value->bytes == NULL)
        size = 0;
    else
        memcpy(time, value->bytes, size);
    time[size] = '\0';
}

static enum skr_code
keep_time(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    skr_messenger_copy_time(&columns[0], user);
    return SKR_OK;
}

enum skr_code
skr_messenger_now(const struct skr_messenger *messenger, struct skr_tx tx,
                  char time[SKR_POSITION_TIME_SIZE], struct skr_error *error)
{
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = messenger->sql.now,
                                              .each_row = keep_time,
                                              .user = time},
                      error);
}
