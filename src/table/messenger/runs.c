// SPDX-License-Identifier: MIT
// Ordered queues that several relays share by row locks. What is claimed are
// runs: of a partition the first rows, from its head on, the least id among all
// of its unfinished rows, up to one that may not be sent yet. Whoever has
// locked every row of a run has the partition. If any row that a claim looks at
// is another's the whole partition is: one that commits late, with a smaller id
// than those that he has in hand, makes nobody else its owner. Where more of
// them commit late than a claim looks at, two relays may have the partition for
// a run; writers of one key that wait for each other do not bring that about.
//
// Rows are found without a lock and in one snapshot, and then locked by their
// ids. Partitions are found page by page, in the order of their keys and around
// again (rounds.c): the index leads from one to the next, however long they
// are. Rows without a key take turns with them.

#include "table/messenger/runs.h"
#include "base/clock.h"
#include "base/error.h"
#include "table/messenger/ordered.h"

#include <stdlib.h>
#include <string.h>

// Parameters: queue, redeliver timeout, ids.
static const char lock_sql[] =
    "SELECT " SKR_MESSENGER_COLUMNS ", 1, {partition_text} "
    "FROM {table}{by_primary_key} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_READY " AND id IN ({ids}) ORDER BY id {lock_skip}";

bool
skr_messenger_fill_runs(struct skr_messenger *messenger)
{
    return !messenger->is_ordered ||
           (skr_runs_fill(messenger) &&
            skr_messenger_fill_list(messenger, lock_sql,
                                    &messenger->sql.lock_runs));
}

static int
compare_wanted(const void *left, const void *right)
{
    return skr_compare_rows(&((const struct skr_run_row *)left)->row,
                            &((const struct skr_run_row *)right)->row);
}

// Those that did not come are another's, or gone.
static void
miss_up_to(struct skr_runs *runs, int64_t row)
{
    for (; runs->compared < runs->wanted_count &&
           runs->wanted[runs->compared].row < row;
         runs->compared++) {
        int run = runs->wanted[runs->compared].run;
        runs->is_held = true;
        if (run != SKR_NO_RUN)
            runs->items[run].is_anothers = true;
    }
}

static enum skr_code
take_locked(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    struct skr_runs *runs = user;
    struct skr_batch *batch = runs->batch;
    miss_up_to(runs, columns[SKR_COLUMN_ID].integer);
    runs->run_of[batch->count] = runs->wanted[runs->compared++].run;
    return skr_messenger_take_row(runs->messenger, runs->position->id_namespace,
                                  columns, batch, error);
}

// They stay locked until the end of the claim.
static void
leave_others(struct skr_runs *runs)
{
    struct skr_batch *batch = runs->batch;
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int run = runs->run_of[i];
        if (run != SKR_NO_RUN && runs->items[run].is_anothers)
            batch->bytes -= batch->items[i].size;
        else
            batch->items[kept++] = batch->items[i];
    }
    batch->count = kept;
}

static enum skr_code
lock_rows(struct skr_runs *runs, struct skr_error *error)
{
    const struct skr_messenger *messenger = runs->messenger;
    int64_t rows[SKR_MOST_RUN_ROWS];
    size_t count = 0;
    // What is in our own hands is not asked for.
    for (size_t i = 0; i < runs->wanted_count; i++) {
        struct skr_run_row wanted = runs->wanted[i];
        if (wanted.run == SKR_NO_RUN || !runs->items[wanted.run].is_anothers)
            runs->wanted[count++] = wanted;
        else
            runs->is_held = true;
    }
    runs->wanted_count = count;
    qsort(runs->wanted, count, sizeof(runs->wanted[0]), compare_wanted);
    for (size_t i = 0; i < count; i++)
        rows[i] = runs->wanted[i].row;
    const struct skr_list_run run = {
        .sql = &messenger->sql.lock_runs,
        .first = {skr_bind_text(messenger->queue),
                  skr_bind_integer(messenger->redeliver_timeout_s)},
        .first_count = 2,
        .rows = rows,
        .count = count,
        .each_row = take_locked,
        .user = runs,
    };
    enum skr_code code = skr_list_run(skr_db_tx(runs->db), &run, error);
    miss_up_to(runs, INT64_MAX);
    leave_others(runs);
    return code;
}

// A key that is too long is found once more, by its beginning. Its rows are
// refused, so that it will be gone.
static void
move_behind(struct skr_position *position, const struct skr_run *last)
{
    size_t size = last->key_size;
    if (size >= SKR_POSITION_KEY_SIZE)
        size = SKR_POSITION_KEY_SIZE - 1;
    // Not within a character.
    while (size < last->key_size && (last->key[size] & 0xc0) == 0x80)
        size--;
    memcpy(position->partition_cursor, last->key, size);
    position->partition_cursor_size = size;
}

// Where the next claim goes on.
static void
move_on(struct skr_runs *runs)
{
    struct skr_position *position = runs->position;
    size_t passed = runs->room_ends;
    for (size_t i = 0; i < runs->count; i++)
        runs->is_held |= runs->items[i].is_anothers;
    position->free_cursor = runs->free_cursor;
    position->has_more_free = runs->has_more_free;
    position->free_had_turn = runs->free_had_turn;
    position->round_held |= runs->is_held;
    position->round_ends = runs->is_last;
    position->has_given = runs->batch->count > 0;
    position->has_more = true;
    if (runs->is_last) {
        position->partition_cursor_size = 0;
    } else if (runs->count > 0 && passed > 0) {
        move_behind(position, &runs->items[passed - 1]);
    }
}

static enum skr_code
claim_page(struct skr_runs *runs, struct skr_error *error)
{
    struct skr_position *position = runs->position;
    const struct skr_read *read = runs->read;
    size_t most = skr_messenger_rows_for(position, read->max_bytes);
    most = most < read->max_rows ? most : read->max_rows;
    most = most < runs->batch->capacity ? most : runs->batch->capacity;
    most = most < SKR_MOST_RUN_ROWS ? most : SKR_MOST_RUN_ROWS;
    runs->most = most < 1 ? 1 : most;
    runs->free_cursor = position->free_cursor;
    runs->has_more_free = position->has_more_free;
    enum skr_code code = skr_runs_find(runs, error);
    if (code == SKR_OK && runs->wanted_count > 0)
        code = lock_rows(runs, error);
    if (code == SKR_OK)
        move_on(runs);
    return code;
}

static enum skr_code
claim_only(struct skr_runs *runs, struct skr_error *error)
{
    struct skr_batch *batch = runs->batch;
    runs->wanted[runs->wanted_count++] =
        (struct skr_run_row){.row = *runs->read->only, .run = SKR_NO_RUN};
    enum skr_code code = lock_rows(runs, error);
    if (code != SKR_OK || batch->count == 0)
        return code;
    return skr_ordered_keep_head(runs->messenger, skr_db_tx(runs->db), batch,
                                 error);
}

// Without rows nothing stays open.
static enum skr_code
claim_rows(struct skr_runs *runs, struct skr_error *error)
{
    struct skr_batch *batch = runs->batch;
    enum skr_code code = skr_db_begin(runs->db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    code = runs->read->only == NULL ? claim_page(runs, error)
                                    : claim_only(runs, error);
    if (code == SKR_OK && batch->count > 0) {
        batch->claim = SKR_CLAIM_LOCKED;
        runs->db->found_rows = true;
        return SKR_OK;
    }
    skr_db_rollback(runs->db);
    skr_batch_clear(batch);
    return code;
}

static enum skr_code
claim_once(struct skr_runs *runs, struct skr_error *error)
{
    struct skr_position *position = runs->position;
    bool is_worth = true;
    enum skr_code code = SKR_OK;
    if (runs->read->only == NULL)
        code = skr_rounds_begin(runs->messenger, runs->db, position, &is_worth,
                                error);
    if (code != SKR_OK)
        return code;
    if (is_worth)
        return claim_rows(runs, error);
    position->has_more = false;
    return SKR_OK;
}

static enum skr_code
check_claims(const struct skr_messenger *messenger, struct skr_error *error)
{
    if (messenger->sql.lock_skip[0] == '\0')
        return skr_messenger_know_locks(messenger->dialect, error);
    // It would wait for its own transactions.
    if (messenger->by_commits)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "row locks are transactions that hold back "
                        "commit_order themselves; use `claim: exclusive` or "
                        "`claim: lease`");
    return SKR_OK;
}

enum skr_code
skr_messenger_hold_runs(const struct skr_table *table, struct skr_db *db,
                        struct skr_position *position,
                        const struct skr_read *read, struct skr_batch *batch,
                        struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct skr_error failure = {0};
    enum skr_code code = check_claims(messenger, &failure);
    if (code == SKR_OK)
        code = skr_messenger_learn(messenger, db, position, &failure);
    skr_rounds_count(position, read);
    while (code == SKR_OK) {
        struct skr_runs runs = {.messenger = messenger,
                                .db = db,
                                .position = position,
                                .read = read,
                                .batch = batch};
        code = claim_once(&runs, &failure);
        skr_arena_fini(&runs.arena);
        if (code == SKR_OK ||
            !skr_messenger_may_try_again(&tries, code, &failure))
            break;
        code = SKR_OK;
    }
    position->round_spent_ms += skr_clock_ms() - tries.started_ms;
    if (code != SKR_OK && error != NULL)
        *error = failure;
    return code;
}
