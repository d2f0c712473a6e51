// SPDX-License-Identifier: MIT
// The low-water mark: the id up to which no row can appear any more.
//
// Whoever holds an id at or below the cursor took it before the cursor got
// there. So each time the cursor's place is noted together with the number that
// the next transaction will have; once all transactions below that number are
// over, and their rows have been looked for, the place is the low-water mark.
// A transaction takes its id a moment before it has a number, so a place waits
// for the number of the note after it, which is taken a little later.

#include "table/horizon.h"

#include "base/arena.h"

#include <string.h>

// InnoDB shows its transactions from a cache that it does not renew while it
// has been read within the last tenth of a second: asked more often, it would
// tell of the past for ever.
enum {
    ASK_EVERY_MS = 150,
    ASK_RARELY_MS = 5000,  // while there is nothing new to ask about
    HIDDEN_MS = 60000,  // how long a transaction may take where we may not ask
};

bool
skr_horizon_is_late_possible(const char *sql,
                             const struct skr_position *position)
{
    return sql[0] != '\0' && position->cursor != 0 &&
           position->low_water < position->cursor;
}

static void
drop_marks(struct skr_position *position, size_t count)
{
    position->mark_count -= count;
    memmove(position->marks, &position->marks[count],
            position->mark_count * sizeof(position->marks[0]));
}

// What was known before this transaction began is used: what is over by that is
// seen by this one, which has just looked.
static void
raise_mark(struct skr_position *position)
{
    for (size_t i = position->mark_count; i-- > 1;) {
        if (position->marks[i].next > position->horizon)
            continue;
        position->low_water = position->marks[i - 1].cursor;
        drop_marks(position, i);
        return;
    }
}

static void
add_note(struct skr_position *position, int64_t next, int64_t now_ms)
{
    size_t count = position->mark_count;
    // When there is no room the newest gives way: the oldest are the next to be
    // reached.
    if (count == SKR_HORIZON_MARKS)
        count--;
    position->marks[count] = (struct skr_horizon_mark){
        .cursor = position->cursor, .next = next, .at_ms = now_ms};
    position->mark_count = count + 1;
}

// By time alone: what commits later than that is found by the sweep.
static void
follow_time(struct skr_position *position, int64_t now_ms)
{
    add_note(position, 0, now_ms);
    while (position->mark_count > 0 &&
           now_ms - position->marks[0].at_ms >= HIDDEN_MS) {
        position->low_water = position->marks[0].cursor;
        drop_marks(position, 1);
    }
}

// An idle queue beside a transaction that stays open for hours costs little.
static void
plan_next(struct skr_position *position, int64_t now_ms)
{
    size_t count = position->mark_count;
    bool is_new =
        count == 0 || position->marks[count - 1].cursor != position->cursor;
    int64_t pause_ms = is_new ? ASK_EVERY_MS : position->horizon_pause_ms * 2;
    if (pause_ms > ASK_RARELY_MS)
        pause_ms = ASK_RARELY_MS;
    position->horizon_pause_ms =
        pause_ms < ASK_EVERY_MS ? ASK_EVERY_MS : pause_ms;
    position->next_horizon_ms = now_ms + position->horizon_pause_ms;
}

enum skr_code
skr_horizon_follow(const char *sql, struct skr_tx tx, int64_t now_ms,
                   struct skr_position *position, struct skr_error *error)
{
    if (!position->horizon_hidden)
        raise_mark(position);
    if (now_ms < position->next_horizon_ms)
        return SKR_OK;
    plan_next(position, now_ms);
    if (position->horizon_hidden) {
        follow_time(position, now_ms);
        return SKR_OK;
    }
    struct skr_value columns[2] = {{.kind = SKR_NULL}, {.kind = SKR_NULL}};
    struct skr_arena arena = {0};
    bool found = false;
    enum skr_code code =
        skr_tx_fetch_one(tx, &(struct skr_statement){.sql = sql}, &arena,
                         columns, 2, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_REFUSED) {
        position->horizon_hidden = true;
        return SKR_OK;
    }
    if (code != SKR_OK || !found)
        return code;
    position->horizon = columns[0].integer;
    add_note(position, columns[1].integer, now_ms);
    return SKR_OK;
}
