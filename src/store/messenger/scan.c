// SPDX-License-Identifier: MIT
// Finding the next rows: whole rows beyond the cursor, and ids behind it of
// those whose time has come. All of it in one snapshot, as with two a row could
// pass its predecessor.
//
// Rows that wait are looked at once, when the cursor passes them; after that
// only their time is, and their bodies are not read before they are due.
//
// On a database with several writers at once a row may commit below the cursor
// after it has moved on: the part from the low-water mark to the cursor is
// looked at as well (horizon.c).
//
// Readers that share a queue pass over rows that others have. Such rows may
// come back, when their owner gives them back or dies: from the first of them
// to the cursor everything is looked at again every now and then.

#include "store/messenger/scan.h"
#include "base/clock.h"
#include "base/text.h"
#include "store/horizon.h"

#include <string.h>

// Parameters: queue, cursor, redeliver timeout, limit.
#define BEYOND(columns, queue)                              \
    "SELECT " columns " FROM {table} "                      \
    "WHERE " queue " AND id > ? AND " SKR_MESSENGER_FREE    \
    " AND " SKR_MESSENGER_DUE " AND NOT " SKR_MESSENGER_PHP \
    "{ours} ORDER BY id LIMIT ?"
static const char beyond_sql[] =
    BEYOND(SKR_MESSENGER_COLUMNS, "{queue_is_beyond}");
// From the start of the queue, before which there may be much of others.
static const char first_sql[] = BEYOND(SKR_MESSENGER_COLUMNS, "{queue_is}");
static const char first_ids_sql[] = BEYOND("id", "{queue_is}");
static const char first_timed_sql[] =
    BEYOND(SKR_MESSENGER_COLUMNS, "{queue_is_timed}");
static const char first_timed_ids_sql[] = BEYOND("id", "{queue_is_timed}");

// A claim beyond the cursor locks what it finds, by the primary key, and goes
// past what others have locked: two readers that claim at once find different
// rows. What it may not take, as rows of other queues, is locked for a moment
// only.
static const char claim_beyond_sql[] =
    "SELECT " SKR_MESSENGER_COLUMNS " FROM {table}{by_primary_key} "
    "WHERE {queue_is_beyond} AND id > ? AND " SKR_MESSENGER_FREE
    " AND " SKR_MESSENGER_DUE " AND NOT " SKR_MESSENGER_PHP
    " ORDER BY id LIMIT ? {lock_skip}";

// Few rows become due between two passes: by the index on their time, not by
// the much longer lists of all that wait or of the whole queue.
// Parameters: queue, from id, cursor, from time, until, timeout, limit.
#define DUE_IDS(queue)                                                   \
    "SELECT id FROM {table} WHERE " queue                                \
    " AND {no_index}id > ? AND {no_index}id <= ? "                       \
    "AND available_at > ? AND available_at <= ? AND " SKR_MESSENGER_FREE \
    " AND NOT " SKR_MESSENGER_PHP "{ours} ORDER BY id LIMIT ?"
static const char due_ids_sql[] = DUE_IDS("{queue_is_unindexed}");
static const char due_by_queue_sql[] = DUE_IDS("{queue_is}");

// Parameters: queue, from id, cursor, redeliver timeout, limit.
#define SWEEP_IDS(queue)                                             \
    "SELECT id FROM {table} WHERE " queue " AND id > ? AND id <= ? " \
    "AND " SKR_MESSENGER_FREE " AND " SKR_MESSENGER_DUE              \
    " AND NOT " SKR_MESSENGER_PHP "{ours} ORDER BY id LIMIT ?"
static const char sweep_ids_sql[] = SWEEP_IDS("{queue_is}");
static const char sweep_on_ids_sql[] = SWEEP_IDS("{queue_is_beyond}");

// Parameters: queue, from id, cursor, redeliver timeout, limit.
static const char late_ids_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_beyond} AND id > ? AND id <= ? "
    "AND " SKR_MESSENGER_FREE " AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP "{ours} ORDER BY id LIMIT ?";

// What was given back. Leases that ran out are found by their time.
// Parameters: queue, from id, cursor, limit.
static const char free_ids_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_beyond} AND id > ? AND id <= ? "
    "AND delivered_at IS NULL AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY id LIMIT ?";

// By the index on the times of claims, as few are claimed.
// Parameters: queue, redeliver timeout.
#define LEASED_IDS(queue) \
    "SELECT id FROM {table} WHERE " queue " AND " SKR_MESSENGER_LEASED
static const char leased_ids_sql[] = LEASED_IDS("{queue_is_unindexed}");
static const char leased_by_queue_sql[] = LEASED_IDS("{queue_is}");

static const char by_id_sql[] = "SELECT " SKR_MESSENGER_COLUMNS " FROM {table} "
                                "WHERE id IN ({ids}){ours} ORDER BY id";
// What was free and due when it was found may not be any more. That is no
// condition, as an index that serves it would be locked on the way.
// Parameters: redeliver timeout, ids.
#define LOCK(these)                                                   \
    "SELECT " SKR_MESSENGER_COLUMNS ", CASE WHEN " SKR_MESSENGER_FREE \
    " AND " SKR_MESSENGER_DUE " THEN 1 ELSE 0 END "                   \
    "FROM {table}{by_primary_key} WHERE " these " ORDER BY id {lock_skip}"

// While batches are full the rows that wait are not needed; a look at them now
// and then is enough.
// And one for rows that committed late is worth a statement so often, less
// while there is enough to send.
// What others have is looked at again so often, and less often the longer that
// takes: a look is followed by a pause so many times as long.
// And a few rows tell whether one is still undecided.
enum {
    LOOK_AGAIN_MS = 1000,
    LATE_LOOK_MS = 5,
    BUSY_LATE_LOOK_MS = 100,
    HELD_LOOK_MS = 500,
    HELD_PAUSE = 20,
    LONGEST_HELD_PAUSE_MS = 60000,
    FEW_ROWS = 8,
    // Before those that bind_end() gives, of which there are so many at most.
    LATE_PARAMETERS = 4,
    BEYOND_PARAMETERS = 3,
    END_PARAMETERS = SKR_MOST_PASSED + 1,
};

bool
skr_messenger_fill_scan(struct skr_messenger *messenger)
{
    struct skr_scan_sql *scan = &messenger->sql.scan;
    return skr_messenger_fill(messenger, due_ids_sql, &scan->due_ids) &&
           skr_messenger_fill(messenger, due_by_queue_sql,
                              &scan->due_by_queue) &&
           skr_messenger_fill(messenger, sweep_ids_sql, &scan->sweep_ids) &&
           skr_messenger_fill(messenger, sweep_on_ids_sql,
                              &scan->sweep_on_ids) &&
           skr_messenger_fill(messenger, late_ids_sql, &scan->late_ids) &&
           skr_messenger_fill(messenger, free_ids_sql, &scan->free_ids) &&
           skr_messenger_fill(messenger, first_sql, &scan->first) &&
           skr_messenger_fill(messenger, beyond_sql, &scan->beyond) &&
           skr_messenger_fill(messenger, first_ids_sql, &scan->first_ids) &&
           skr_messenger_fill(messenger, first_timed_sql, &scan->first_timed) &&
           skr_messenger_fill(messenger, first_timed_ids_sql,
                              &scan->first_timed_ids) &&
           skr_messenger_fill(messenger, claim_beyond_sql,
                              &scan->claim_beyond) &&
           skr_messenger_fill(messenger, leased_ids_sql, &scan->leased_ids) &&
           skr_messenger_fill(messenger, leased_by_queue_sql,
                              &scan->leased_by_queue) &&
           // Where order does not count rows are read outside transactions,
           // too.
           skr_messenger_fill(messenger,
                              messenger->is_ordered ? "{horizon_inside}"
                                                    : "{horizon}",
                              &messenger->sql.horizon) &&
           skr_messenger_fill_list(messenger, by_id_sql, &scan->by_id) &&
           skr_messenger_fill_ranged(messenger, LOCK(SKR_IN_LIST),
                                     LOCK(SKR_IN_RANGE), &scan->lock_ids);
}

// Fetches what was found. *saw_all: it was all there is, and is dealt with.
static enum skr_code
fetch_all(struct skr_scan *scan, size_t limit, bool *saw_all,
          struct skr_error *error)
{
    *saw_all =
        scan->seen < limit && scan->id_count < scan->max_rows && !scan->is_cut;
    enum skr_code code = skr_scan_fetch(scan, NULL, error);
    scan->is_full = scan->is_full || scan->is_cut;
    if (code != SKR_STOPPED || !scan->is_full)
        return code;
    *saw_all = false;
    return SKR_OK;
}

// Partitions that wait are passed where it need not be known whether what lies
// there has been decided upon.
static bool
passes_some(const struct skr_scan *scan)
{
    return scan->messenger->is_ordered && !scan->messenger->by_commits &&
           scan->read->passed_count > 0;
}

// What a statement ends with: the partitions that it passes, if it does, and
// its limit. Gives how many values these are.
static size_t
bind_end(const struct skr_scan *scan, bool passes, size_t limit,
         struct skr_value *values)
{
    const struct skr_read *read = scan->read;
    size_t count = 0;
    for (; passes && count < SKR_MOST_PASSED; count++)
        values[count] = skr_bind_text(read->passed[count % read->passed_count]);
    values[count++] = skr_bind_integer((int64_t)limit);
    return count;
}

static const char *
choose_late(const struct skr_scan *scan, bool passes)
{
    if (scan->messenger->is_ordered && scan->position.low_water == 0)
        return passes ? scan->sql->late_first_passing : scan->sql->late_first;
    return passes ? scan->sql->late_passing : scan->sql->late_ids;
}

// Rows that committed after the cursor had passed their ids.
static enum skr_code
look_for_late(struct skr_scan *scan, struct skr_error *error)
{
    const struct skr_messenger *messenger = scan->messenger;
    struct skr_position *position = &scan->position;
    if (!skr_horizon_is_late_possible(messenger->sql.horizon, position))
        return SKR_OK;
    // Where order counts nothing may pass what has just appeared.
    int64_t look_ms =
        position->next_late_ms + (position->has_more ? BUSY_LATE_LOOK_MS : 0);
    if (!messenger->is_ordered && scan->now_ms < look_ms)
        return SKR_OK;
    bool saw_all = false;
    size_t limit = scan->max_rows + skr_messenger_count_known(scan->read) +
                   scan->read->waiting_count;
    struct skr_value values[LATE_PARAMETERS + END_PARAMETERS] = {
        skr_bind_text(messenger->queue),
        skr_messenger_bind_cursor(position->low_water),
        skr_bind_integer(position->unbroken_from),
        skr_bind_integer(messenger->redeliver_timeout_s),
    };
    bool passes = passes_some(scan);
    size_t count = LATE_PARAMETERS +
                   bind_end(scan, passes, limit, values + LATE_PARAMETERS);
    scan->skips_waiting = true;
    enum skr_code code =
        skr_scan_find(scan, choose_late(scan, passes), values, count, error);
    scan->skips_waiting = false;
    if (code == SKR_OK)
        code = fetch_all(scan, limit, &saw_all, error);
    // What found no room is still behind: the mark must not pass it.
    if (code != SKR_OK || !saw_all)
        return code;
    // Where much lies between mark and cursor, a look takes its time.
    position->next_late_ms =
        scan->now_ms + LATE_LOOK_MS + 10 * (skr_clock_ms() - scan->now_ms);
    return skr_horizon_follow(messenger->sql.horizon, messenger->is_ordered,
                              scan->tx, scan->now_ms, position, error);
}

// Rows that another reader has claimed are passed over.
static enum skr_code
note_leased(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_scan *scan = user;
    int64_t row = columns[0].integer;
    if (row <= scan->position.cursor &&
        !skr_messenger_is_in_hand(scan->read, row))
        skr_scan_pass_over(scan, row);
    return SKR_OK;
}

static enum skr_code
find_leased(struct skr_scan *scan, struct skr_error *error)
{
    const struct skr_value values[] = {
        skr_bind_text(scan->messenger->queue),
        skr_bind_integer(scan->messenger->redeliver_timeout_s),
    };
    return skr_scan_run(scan,
                        scan->position.lacks_claims ? scan->sql->leased_by_queue
                                                    : scan->sql->leased_ids,
                        values, SKR_COUNT_OF(values), note_leased, error);
}

bool
skr_scan_is_held_due(const struct skr_position *position, int64_t now_ms)
{
    return position->held_from != 0 && position->next_held_ms <= now_ms;
}

// Rows that others had when the cursor passed them.
static enum skr_code
look_for_held(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    if (scan->kind == SKR_SCAN_READ ||
        !skr_scan_is_held_due(position, scan->now_ms))
        return SKR_OK;
    int64_t from = position->held_from;
    bool saw_all = false;
    size_t limit = scan->max_rows + skr_messenger_count_known(scan->read) +
                   scan->read->waiting_count;
    const struct skr_value values[] = {
        skr_bind_text(scan->messenger->queue),
        skr_bind_integer(from - 1),
        skr_bind_integer(position->cursor),
        skr_bind_integer((int64_t)limit),
    };
    position->held_from = 0;
    scan->skips_waiting = true;
    enum skr_code code = skr_scan_find(scan, scan->sql->free_ids, values,
                                       SKR_COUNT_OF(values), error);
    scan->skips_waiting = false;
    if (code == SKR_OK)
        code = fetch_all(scan, limit, &saw_all, error);
    if (code != SKR_OK)
        return code;
    if (!saw_all) {
        position->held_from = from;
        if (!scan->is_full)
            position->next_held_ms = scan->now_ms + HELD_LOOK_MS;
        return SKR_OK;
    }
    code = find_leased(scan, error);
    int64_t now_ms = skr_clock_ms();
    int64_t pause_ms = (now_ms - scan->now_ms) * HELD_PAUSE;
    if (pause_ms > LONGEST_HELD_PAUSE_MS)
        pause_ms = LONGEST_HELD_PAUSE_MS;
    position->next_held_ms =
        now_ms + (pause_ms > HELD_LOOK_MS ? pause_ms : HELD_LOOK_MS);
    return code;
}

// The cursor has moved on from there: what others had beyond it was not seen.
static enum skr_code
note_passed(struct skr_scan *scan, int64_t cursor, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    if (scan->kind == SKR_SCAN_READ || position->cursor == cursor)
        return SKR_OK;
    // From the start of the queue the way would be long.
    if (cursor == 0)
        return find_leased(scan, error);
    skr_scan_pass_over(scan, cursor + 1);
    return SKR_OK;
}

// Parameters in another order: those of what is selected come first.
static enum skr_code
read_ordered_beyond(struct skr_scan *scan, size_t limit,
                    struct skr_error *error)
{
    bool is_first = scan->position.cursor == 0;
    bool passes = !is_first && passes_some(scan);
    struct skr_value values[BEYOND_PARAMETERS + END_PARAMETERS] = {
        skr_bind_integer(scan->messenger->redeliver_timeout_s),
        skr_bind_text(scan->messenger->queue),
        skr_messenger_bind_cursor(scan->position.cursor),
    };
    size_t count = BEYOND_PARAMETERS +
                   bind_end(scan, passes, limit, values + BEYOND_PARAMETERS);
    return skr_scan_run_whole(scan,
                              is_first ? scan->sql->first
                              : passes ? scan->sql->beyond_passing
                                       : scan->sql->beyond,
                              values, count, error);
}

// Asks for rows, or for ids to lock, until there are no more or the batch is
// full.
static enum skr_code
read_some_beyond(struct skr_scan *scan, size_t limit, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    bool is_first = position->cursor == 0;
    if (scan->messenger->is_ordered)
        return read_ordered_beyond(scan, limit, error);
    const struct skr_value values[] = {
        skr_bind_text(scan->messenger->queue),
        skr_messenger_bind_cursor(position->cursor),
        skr_bind_integer(scan->messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)limit),
    };
    bool is_timed = position->dues_by_queue;
    if (scan->kind != SKR_SCAN_CLAIM)
        return skr_scan_run_whole(scan,
                                  !is_first  ? scan->sql->beyond
                                  : is_timed ? scan->sql->first_timed
                                             : scan->sql->first,
                                  values, SKR_COUNT_OF(values), error);
    if (!is_first)
        return skr_scan_run_whole(scan, scan->sql->claim_beyond, values,
                                  SKR_COUNT_OF(values), error);
    enum skr_code code = skr_scan_find(
        scan, is_timed ? scan->sql->first_timed_ids : scan->sql->first_ids,
        values, SKR_COUNT_OF(values), error);
    if (code != SKR_OK || scan->seen == 0)
        return code;
    int64_t last_id = scan->last_id;
    code = skr_scan_fetch(scan, &position->cursor, error);
    // Not all ids before it were seen, even if it finds no room for all rows.
    skr_horizon_skip(position, code == SKR_OK ? last_id : position->cursor);
    return code;
}

static enum skr_code
read_beyond(struct skr_scan *scan, struct skr_error *error)
{
    bool was_undecided = scan->position.undecided_row != 0;
    size_t limit;
    do {
        limit = scan->max_rows - scan->batch->count;
        if (was_undecided && limit > FEW_ROWS)
            limit = FEW_ROWS;
        was_undecided = false;
        scan->is_full = limit == 0;
        // Ids are small; a first claim asks for what there is room for when it
        // locks them.
        if (scan->kind != SKR_SCAN_CLAIM || scan->position.cursor != 0)
            limit = skr_scan_ask_for(scan, limit);
        if (limit == 0)
            return SKR_OK;
        enum skr_code code = read_some_beyond(scan, limit, error);
        if (code == SKR_STOPPED && (scan->is_full || scan->undecided_row != 0))
            break;
        if (code != SKR_OK)
            return code;
        // As many as were asked for, some of them in hand: there may be more.
    } while (scan->seen == limit);
    skr_scan_note_undecided(scan);
    return SKR_OK;
}

static enum skr_code
skip_rest(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    int64_t last = 0;
    enum skr_code code = skr_messenger_ask_rest(
        scan->messenger, scan->tx, scan->now_ms, position, &last, error);
    if (code == SKR_OK && last > position->cursor && scan->undecided_row == 0)
        skr_horizon_skip(position, last);
    scan->is_at_end = code == SKR_OK;
    return code;
}

// Rows lie behind the cursor, and none at it or beyond: the table may have been
// emptied, and its ids begin anew. Until they reach the cursor each would wait
// for a sweep, so that the reader begins anew as well. Where it was something
// else that does no harm.
static void
begin_anew(struct skr_position *position)
{
    position->cursor = 0;
    position->low_water = 0;
    position->unbroken_from = 0;
    position->mark_count = 0;
    position->held_from = 0;
}

static enum skr_code
fill_batch(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    enum skr_code code = SKR_OK;
    if (position->next_sweep_ms == 0) {
        // The first scan sees every row once: all that can become due later
        // has a later time than this.
        position->next_sweep_ms = scan->now_ms + scan->messenger->sweep_ms;
        code = skr_messenger_now(scan->messenger, scan->tx, position->due_mark,
                                 error);
    } else if (skr_messenger_is_pass_due(position, scan->now_ms)) {
        code = skr_scan_look_behind(scan, error);
    }
    if (code == SKR_OK && !scan->is_full)
        code = look_for_held(scan, error);
    if (code == SKR_OK && !scan->is_full)
        code = look_for_late(scan, error);
    if (code == SKR_OK && !scan->is_full)
        code = read_beyond(scan, error);
    if (code != SKR_OK)
        return code;
    // Nothing more can be read now: what is left are rows of other queues,
    // others' rows and rows that wait.
    if (!scan->is_full && !scan->sweeps_on)
        return skip_rest(scan, error);
    int64_t next_ms = scan->now_ms + LOOK_AGAIN_MS;
    if (position->next_due_ms <= scan->now_ms ||
        position->next_due_ms > next_ms)
        position->next_due_ms = next_ms;
    return SKR_OK;
}

// That we may not ask for transactions is found out, and told, before it
// counts.
void
skr_messenger_settle_mark(const struct skr_messenger *messenger,
                          struct skr_position *position)
{
    const char *horizon = messenger->sql.horizon;
    if (horizon[0] == '\0' || position->horizon_ms != 0 ||
        position->horizon_hidden)
        skr_horizon_settle(horizon, position);
}

enum skr_code
skr_messenger_scan(const struct skr_messenger *messenger,
                   enum skr_scan_kind kind, struct skr_tx tx,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    struct skr_scan scan = {
        .messenger = messenger,
        .sql = &messenger->sql.scan,
        .kind = kind,
        .tx = tx,
        .position = *position,
        .read = read,
        .batch = batch,
        .max_rows =
            read->max_rows < batch->capacity ? read->max_rows : batch->capacity,
        .now_ms = skr_clock_ms(),
    };
    enum skr_code code = read->only == NULL ? fill_batch(&scan, error)
                                            : skr_scan_fetch_only(&scan, error);
    if (code == SKR_OK)
        code = note_passed(&scan, position->cursor, error);
    // In an ordered queue what waits behind the cursor is no sign of that.
    if (!messenger->is_ordered && scan.swept_some && scan.is_at_end &&
        scan.position.cursor == position->cursor)
        begin_anew(&scan.position);
    skr_messenger_settle_mark(messenger, &scan.position);
    scan.position.has_more = scan.is_full || scan.sweeps_on;
    if (code == SKR_OK)
        *position = scan.position;
    else
        skr_batch_clear(batch);
    return code;
}
