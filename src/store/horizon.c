// SPDX-License-Identifier: MIT
// The low-water mark: the id up to which no row can appear any more.
//
// A transaction that holds an id at or below the cursor took it before the
// cursor got there. So each time the cursor's place is noted together with the
// number that the next transaction will have; once all transactions below that
// number are over, and their rows have been looked for, the place is the
// low-water mark. A transaction takes its id a moment before it has a number,
// so a place waits for the number of the note after it, which is taken a little
// later.
//
// Where transactions cannot be asked for, nothing is known of them: a user of
// MariaDB or MySQL without the right PROCESS may not ask, and a node of a
// Galera cluster knows nothing of those on other nodes. The mark then stays,
// unless no id is missing, and each look begins there. Where order does not
// count, a place is the mark when it was noted long ago: what commits later
// than that is found by the full scan.

#include "store/horizon.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

#include <string.h>

// InnoDB shows its transactions from a cache that it does not renew while it
// has been read within the last tenth of a second: asked more often, it would
// tell of the past for ever.
enum {
    ASK_EVERY_MS = 150,
    ASK_RARELY_MS = 5000,  // while there is nothing new to ask about
    STUCK_MS = 2000,       // or the answer has been the same for so long
    HIDDEN_MS = 60000,     // when a place is old enough where we cannot ask
};

void
skr_horizon_start(struct skr_position *position, const struct skr_db *db)
{
    position->is_cluster = db->is_cluster;
    position->horizon_hidden = db->is_cluster;
    position->horizon_is_clock = skr_db_dialect(db)->horizon_is_clock;
}

// What has an id below 1 and commits late is left to the sweep.
void
skr_horizon_move(struct skr_position *position, int64_t row)
{
    if (row - 1 != position->cursor)
        position->unbroken_from = row - 1;
    position->cursor = row;
}

void
skr_horizon_skip(struct skr_position *position, int64_t row)
{
    position->unbroken_from = row;
    position->cursor = row;
}

// Where nothing commits late there is nothing to look for behind.
void
skr_horizon_settle(const char *sql, struct skr_position *position)
{
    if (sql[0] != '\0' && position->low_water < position->unbroken_from)
        return;
    position->low_water = position->cursor;
    position->mark_count = 0;
}

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
void
skr_horizon_looked(struct skr_position *position)
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

// A clock that is put back makes transactions that are open look younger than
// what comes after them. By our own clock, which is not, the server's has come
// so far at least: what is noted waits until the server's has passed that
// again. What is put back by less than two seconds may not be noticed.
static int64_t
heed_clock(struct skr_position *position, int64_t next, int64_t now_ms)
{
    int64_t least = position->clock_next + (now_ms - position->clock_ms) / 1000;
    if (position->clock_next != 0 && next < least &&
        position->clock_bound <= least)
        position->clock_bound = least + 1;
    position->clock_next = next;
    position->clock_ms = now_ms;
    return next < position->clock_bound ? position->clock_bound : next;
}

void
skr_horizon_answered(struct skr_position *position, int64_t oldest,
                     int64_t next, int64_t now_ms)
{
    if (position->horizon_is_clock)
        next = heed_clock(position, next, now_ms);
    if (position->horizon != oldest || position->horizon_ms == 0)
        position->horizon_ms = now_ms;
    position->horizon = oldest;
    add_note(position, next, now_ms);
}

static size_t
count_old_marks(const struct skr_position *position, int64_t now_ms)
{
    size_t count = 0;
    while (count < position->mark_count &&
           now_ms - position->marks[count].at_ms >= HIDDEN_MS)
        count++;
    return count;
}

static void
move_to_mark(struct skr_position *position, size_t count)
{
    if (count == 0)
        return;
    position->low_water = position->marks[count - 1].cursor;
    drop_marks(position, count);
}

// An idle queue beside a transaction that stays open for hours costs little.
// And where many ask, each keeps the others from hearing anything new: relays
// that have heard nothing new for a while ask less often, and at different
// times.
static void
plan_next(struct skr_position *position, int64_t now_ms)
{
    size_t count = position->mark_count;
    bool is_new =
        count == 0 || position->marks[count - 1].cursor != position->cursor;
    bool is_stuck =
        position->horizon_ms != 0 && now_ms - position->horizon_ms > STUCK_MS;
    int64_t pause_ms =
        is_new && !is_stuck ? ASK_EVERY_MS : position->horizon_pause_ms * 2;
    if (pause_ms > ASK_RARELY_MS)
        pause_ms = ASK_RARELY_MS;
    position->horizon_pause_ms =
        pause_ms < ASK_EVERY_MS ? ASK_EVERY_MS : pause_ms;
    position->next_horizon_ms = now_ms + position->horizon_pause_ms;
    if (is_stuck)
        position->next_horizon_ms +=
            skr_clock_wall_us() % position->horizon_pause_ms / 2;
}

static enum skr_code
ask(const char *sql, struct skr_tx tx, int64_t now_ms,
    struct skr_position *position, struct skr_error *error)
{
    struct skr_value columns[2] = {{.kind = SKR_NULL}, {.kind = SKR_NULL}};
    struct skr_arena arena = {0};
    bool found = false;
    enum skr_code code =
        skr_tx_fetch_one(tx, &(struct skr_statement){.sql = sql}, &arena,
                         columns, 2, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK && found)
        skr_horizon_answered(position, columns[0].integer, columns[1].integer,
                             now_ms);
    if (code != SKR_CONFLICT)
        return code;
    // The server cannot tell now. Nothing is known by that, and the next look
    // asks again.
    skr_error_clear(error);
    return SKR_OK;
}

enum skr_code
skr_horizon_follow(const char *sql, bool order_counts, struct skr_tx tx,
                   int64_t now_ms, struct skr_position *position,
                   struct skr_error *error)
{
    if (!position->horizon_hidden)
        skr_horizon_looked(position);
    if (now_ms < position->next_horizon_ms ||
        (position->horizon_hidden && order_counts))
        return SKR_OK;
    plan_next(position, now_ms);
    if (position->horizon_hidden) {
        add_note(position, 0, now_ms);
        move_to_mark(position, count_old_marks(position, now_ms));
        return SKR_OK;
    }
    enum skr_code code = ask(sql, tx, now_ms, position, error);
    if (code != SKR_REFUSED)
        return code;
    position->horizon_hidden = true;
    skr_error_clear(error);
    return SKR_OK;
}
