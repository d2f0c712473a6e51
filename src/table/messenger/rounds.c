// SPDX-License-Identifier: MIT
// Rounds: how often the partitions of an ordered queue are looked through by
// relays that share it by row locks. As long as a round finds something the
// next begins at once. After one that did not, a small statement tells whether
// another is worth while. It does not tell of rows that commit late, with ids
// that were passed: for those there are rounds as long as a transaction may
// have some.

#include "base/clock.h"
#include "base/error.h"
#include "table/horizon.h"
#include "table/messenger/ordered.h"

enum {
    LEAST_PAUSE_MS = 10,
    LONGEST_PAUSE_MS = 500,
    PAUSE = 20,    // times as long as the claims of a round took
    PATIENCE = 8,  // that part of the time since something was found
    LATE_MS = 1000,
    SILENT_MS = 60000,      // after which every query counts
    SILENT_LATE_MS = 1500,  // while a transaction is open that may be late
};

static bool
is_silent(const struct skr_position *position, int64_t now_ms)
{
    return now_ms - position->found_ms >= SILENT_MS;
}

// What the last claim gave counts if any of it could be sent.
void
skr_rounds_count(struct skr_position *position, const struct skr_read *read)
{
    if (position->has_given && !read->in_vain)
        position->round_found = true;
    position->has_given = false;
}

static int64_t
late_pause_ms(const struct skr_messenger *messenger,
              const struct skr_position *position, int64_t now_ms)
{
    if (!is_silent(position, now_ms))
        return LATE_MS;
    return skr_horizon_is_late_possible(messenger->sql.horizon, position)
               ? SILENT_LATE_MS
               : INT64_MAX;
}

// What others had is free before long, or at once if they die.
static int64_t
pause_ms(const struct skr_messenger *messenger,
         const struct skr_position *position, int64_t now_ms)
{
    int64_t since_ms = now_ms - position->found_ms;
    int64_t late_ms = late_pause_ms(messenger, position, now_ms);
    if (!position->is_held)
        return late_ms < messenger->sweep_ms ? late_ms : messenger->sweep_ms;
    int64_t spent_ms = position->round_spent_ms * PAUSE;
    int64_t wanted_ms =
        spent_ms > since_ms / PATIENCE ? spent_ms : since_ms / PATIENCE;
    return wanted_ms < LEAST_PAUSE_MS     ? LEAST_PAUSE_MS
           : wanted_ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS
                                          : wanted_ms;
}

static void
end_round(const struct skr_messenger *messenger, struct skr_position *position,
          int64_t now_ms)
{
    bool was_busy = !position->is_quiet || position->is_held;
    if (position->round_found || position->found_ms == 0)
        position->found_ms = now_ms;
    position->is_quiet = !position->round_found;
    position->is_held = position->round_held;
    position->may_be_bare =
        was_busy && position->is_quiet && !position->is_held;
    position->held_from = 1;
    position->next_held_ms = now_ms + pause_ms(messenger, position, now_ms);
    position->is_in_round = false;
}

// Where there is no row at all nothing is due, or held, or can have been
// passed.
static enum skr_code
ask_if_bare(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_position *position, struct skr_error *error)
{
    bool has_rows = false;
    enum skr_code code = skr_messenger_has_rows(
        &messenger->table, tx, messenger->queue, &has_rows, error);
    position->is_bare = code == SKR_OK && !has_rows;
    position->may_be_bare = false;
    if (!position->is_bare)
        return code;
    position->held_from = 0;
    position->next_due_ms = 0;
    position->next_sweep_ms = 0;
    return SKR_OK;
}

static bool
has_come(int64_t time_ms, int64_t now_ms)
{
    return time_ms > 0 && time_ms <= now_ms;
}

// Before a round, which then sees what was over by now.
static enum skr_code
ask_for_writers(const struct skr_messenger *messenger, struct skr_db *db,
                struct skr_position *position, int64_t now_ms,
                struct skr_error *error)
{
    if (!is_silent(position, now_ms) || now_ms < position->next_horizon_ms ||
        !skr_horizon_is_late_possible(messenger->sql.horizon, position))
        return SKR_OK;
    enum skr_code code =
        skr_messenger_begin_look(messenger, db, position, error);
    if (code != SKR_OK)
        return code;
    code = skr_horizon_follow(messenger->sql.horizon, messenger->sql.rows_print,
                              skr_db_tx(db), now_ms, position, error);
    skr_db_rollback(db);
    return code;
}

// Whether there is a new row, or the time of one has come.
static enum skr_code
ask_for_work(const struct skr_messenger *messenger, struct skr_db *db,
             struct skr_position *position, int64_t now_ms, bool *is_worth,
             struct skr_error *error)
{
    struct skr_tx tx = skr_db_tx(db);
    bool was_bare = position->is_bare;
    int64_t last = 0;
    enum skr_code code = SKR_OK;
    if (was_bare || position->may_be_bare)
        code = ask_if_bare(messenger, tx, position, error);
    *is_worth = false;
    if (code != SKR_OK || position->is_bare)
        return code;
    if (position->due_mark[0] == '\0')
        code = skr_messenger_now(messenger, tx, position->due_mark, error);
    if (code == SKR_OK)
        code = skr_messenger_ask_rest(messenger, tx, now_ms, position, &last,
                                      error);
    *is_worth = was_bare || last > position->cursor ||
                has_come(position->next_due_ms, now_ms) ||
                has_come(position->next_held_ms, now_ms) ||
                has_come(position->next_sweep_ms, now_ms);
    // While new ones come there are rounds anyway.
    if (code == SKR_OK && *is_worth && last == position->cursor)
        code = ask_for_writers(messenger, db, position, now_ms, error);
    if (code != SKR_OK || !*is_worth)
        return code;
    position->cursor = last;
    position->next_sweep_ms = 0;
    return skr_messenger_now(messenger, tx, position->due_mark, error);
}

enum skr_code
skr_rounds_begin(const struct skr_messenger *messenger, struct skr_db *db,
                 struct skr_position *position, bool *is_worth,
                 struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    enum skr_code code = SKR_OK;
    *is_worth = true;
    if (position->is_in_round && !position->round_ends)
        return SKR_OK;
    if (position->is_in_round)
        end_round(messenger, position, now_ms);
    if (position->is_quiet)
        code = ask_for_work(messenger, db, position, now_ms, is_worth, error);
    if (code != SKR_OK || !*is_worth)
        return code;
    position->is_in_round = true;
    position->round_spent_ms = 0;
    position->round_found = false;
    position->round_held = false;
    position->round_ends = false;
    return SKR_OK;
}
