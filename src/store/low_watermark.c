// SPDX-License-Identifier: MIT
// The low watermark: the id up to which no row can appear any more.
//
// A transaction that holds an id at or below the cursor took it before the
// cursor got there. So each time the cursor's place is noted together with the
// number that the next transaction will have; once all transactions below that
// number are over, and their rows have been looked for, the place is the
// low watermark. A transaction takes its id a moment before it has a number,
// so a place waits for the number of the note after it, which is taken a little
// later.
//
// Where transactions cannot be asked for, nothing is known of them: a user of
// MariaDB or MySQL without the right PROCESS may not ask, and a node of a
// Galera cluster knows nothing of those on other nodes. The mark then stays,
// unless no id is missing, and each look begins there. Where order does not
// count, a place is the mark when it was noted long ago: what commits later
// than that is found by the full scan.

#include "store/low_watermark.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
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
skr_low_watermark_start(struct skr_low_watermark *mark, const struct skr_db *db,
                        const char *sql, bool order_counts)
{
    *mark = (struct skr_low_watermark){
        .sql = sql,
        .order_counts = order_counts,
        .is_cluster = db->is_cluster,
        .hides_open = db->is_cluster,
        .backoff = {.first_ms = ASK_EVERY_MS, .longest_ms = ASK_RARELY_MS},
        .is_clock = skr_db_dialect(db)->transactions_are_clock,
    };
}

void
skr_low_watermark_restart(struct skr_low_watermark *mark, int64_t cursor)
{
    mark->cursor = cursor;
    mark->low = cursor;
    mark->contiguous_from = cursor;
    mark->checkpoint_count = 0;
}

void
skr_low_watermark_rewind(struct skr_low_watermark *mark, int64_t row)
{
    if (mark->cursor >= row)
        mark->cursor = row - 1;
    if (mark->contiguous_from > mark->cursor)
        mark->contiguous_from = mark->cursor;
}

// What has an id below 1 and commits late is left to the full scan.
void
skr_low_watermark_move(struct skr_low_watermark *mark, int64_t row)
{
    if (row - 1 != mark->cursor)
        mark->contiguous_from = row - 1;
    mark->cursor = row;
}

void
skr_low_watermark_skip(struct skr_low_watermark *mark, int64_t row)
{
    mark->contiguous_from = row;
    mark->cursor = row;
}

// Where nothing commits late there is nothing to look for behind.
void
skr_low_watermark_settle(struct skr_low_watermark *mark)
{
    if (mark->sql[0] != '\0' && mark->low < mark->contiguous_from)
        return;
    mark->low = mark->cursor;
    mark->checkpoint_count = 0;
}

bool
skr_low_watermark_may_be_late(const struct skr_low_watermark *mark)
{
    return mark->sql[0] != '\0' && mark->cursor != 0 &&
           mark->low < mark->cursor;
}

static void
drop_checkpoints(struct skr_low_watermark *mark, size_t count)
{
    mark->checkpoint_count -= count;
    memmove(mark->checkpoints, &mark->checkpoints[count],
            mark->checkpoint_count * sizeof(mark->checkpoints[0]));
}

// What was known before this transaction began is used: what is over by that is
// seen by this one, which has just looked.
void
skr_low_watermark_looked(struct skr_low_watermark *mark)
{
    for (size_t i = mark->checkpoint_count; i-- > 1;) {
        if (mark->checkpoints[i].next > mark->oldest)
            continue;
        mark->low = mark->checkpoints[i - 1].cursor;
        drop_checkpoints(mark, i);
        return;
    }
}

static void
add_checkpoint(struct skr_low_watermark *mark, int64_t next, int64_t now_ms)
{
    size_t count = mark->checkpoint_count;
    // When there is no room the newest gives way: the oldest are the next to be
    // reached.
    if (count == SKR_CHECKPOINTS)
        count--;
    mark->checkpoints[count] = (struct skr_checkpoint){
        .cursor = mark->cursor, .next = next, .at_ms = now_ms};
    mark->checkpoint_count = count + 1;
}

// A clock that is put back makes transactions that are open look younger than
// what comes after them. By our own clock, which is not, the server's has come
// so far at least: what is noted waits until the server's has passed that
// again. What is put back by less than two seconds may not be noticed.
static int64_t
heed_clock(struct skr_low_watermark *mark, int64_t next, int64_t now_ms)
{
    int64_t least = mark->clock_next + (now_ms - mark->clock_ms) / 1000;
    if (mark->clock_next != 0 && next < least && mark->clock_bound <= least)
        mark->clock_bound = least + 1;
    mark->clock_next = next;
    mark->clock_ms = now_ms;
    return next < mark->clock_bound ? mark->clock_bound : next;
}

void
skr_low_watermark_answered(struct skr_low_watermark *mark, int64_t oldest,
                           int64_t next, int64_t now_ms)
{
    if (mark->is_clock)
        next = heed_clock(mark, next, now_ms);
    if (mark->oldest != oldest || mark->oldest_ms == 0)
        mark->oldest_ms = now_ms;
    mark->oldest = oldest;
    add_checkpoint(mark, next, now_ms);
}

static void
move_to_old_checkpoint(struct skr_low_watermark *mark, int64_t now_ms)
{
    size_t count = 0;
    while (count < mark->checkpoint_count &&
           now_ms - mark->checkpoints[count].at_ms >= HIDDEN_MS)
        count++;
    if (count == 0)
        return;
    mark->low = mark->checkpoints[count - 1].cursor;
    drop_checkpoints(mark, count);
}

// An idle queue beside a transaction that stays open for hours costs little.
// And where many ask, each keeps the others from hearing anything new: relays
// that have heard nothing new for a while ask less often, and at different
// times.
static void
plan_next(struct skr_low_watermark *mark, int64_t now_ms)
{
    size_t count = mark->checkpoint_count;
    bool is_new =
        count == 0 || mark->checkpoints[count - 1].cursor != mark->cursor;
    bool is_stuck = mark->oldest_ms != 0 && now_ms - mark->oldest_ms > STUCK_MS;
    if (is_new && !is_stuck)
        skr_backoff_reset(&mark->backoff);
    uint32_t pause_ms = skr_backoff_next(&mark->backoff);
    mark->next_ask_ms = now_ms + pause_ms;
    if (is_stuck)
        mark->next_ask_ms += skr_clock_wall_us() % pause_ms / 2;
}

static enum skr_code
ask(struct skr_low_watermark *mark, struct skr_tx tx, int64_t now_ms,
    struct skr_error *error)
{
    struct skr_value columns[2] = {{.kind = SKR_NULL}, {.kind = SKR_NULL}};
    struct skr_row row = {.columns = columns, .count = 2};
    enum skr_code code = skr_sql_row(tx, mark->sql, SKR_NO_VALUES, &row, error);
    if (code == SKR_OK && row.found)
        skr_low_watermark_answered(mark, columns[0].integer, columns[1].integer,
                                   now_ms);
    if (code != SKR_CONFLICT)
        return code;
    // The server cannot tell now. Nothing is known by that, and the next look
    // asks again.
    skr_error_clear(error);
    return SKR_OK;
}

enum skr_code
skr_low_watermark_follow(struct skr_low_watermark *mark, struct skr_tx tx,
                         int64_t now_ms, struct skr_error *error)
{
    if (!mark->hides_open)
        skr_low_watermark_looked(mark);
    if (now_ms < mark->next_ask_ms || (mark->hides_open && mark->order_counts))
        return SKR_OK;
    plan_next(mark, now_ms);
    if (mark->hides_open) {
        add_checkpoint(mark, 0, now_ms);
        move_to_old_checkpoint(mark, now_ms);
        return SKR_OK;
    }
    enum skr_code code = ask(mark, tx, now_ms, error);
    if (code != SKR_REFUSED)
        return code;
    mark->hides_open = true;
    skr_error_clear(error);
    return SKR_OK;
}
