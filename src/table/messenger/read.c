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

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

#include <stdlib.h>
#include <string.h>

// Parameters: queue, cursor, redeliver timeout, limit.
#define BEYOND(queue)                                       \
    "SELECT " SKR_MESSENGER_COLUMNS " FROM {table} "        \
    "WHERE " queue " AND id > ? AND " SKR_MESSENGER_FREE    \
    " AND " SKR_MESSENGER_DUE " AND NOT " SKR_MESSENGER_PHP \
    " ORDER BY id LIMIT ? {lock}"
static const char beyond_sql[] = BEYOND("{queue_is_beyond}");
// From the start of the queue, before which there may be much of others.
static const char first_sql[] = BEYOND("{queue_is}");

// Few rows become due between two passes: by the index on their time, not by
// the much longer lists of all that wait or of the whole queue.
// Parameters: queue, from id, cursor, from time, until, timeout, limit.
static const char due_ids_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_unindexed} "
    "AND {no_index}id > ? AND {no_index}id <= ? "
    "AND available_at > ? AND available_at <= ? AND " SKR_MESSENGER_FREE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY id LIMIT ? {lock}";

// Parameters: queue, from id, cursor, redeliver timeout, limit.
static const char sweep_ids_sql[] =
    "SELECT id FROM {table} WHERE {queue_is} AND id > ? AND id <= ? "
    "AND " SKR_MESSENGER_FREE " AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY id LIMIT ? {lock}";

// Parameters: queue, low-water mark, cursor, redeliver timeout, limit.
static const char late_ids_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_beyond} AND id > ? AND id <= ? "
    "AND " SKR_MESSENGER_FREE " AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY id LIMIT ? {lock}";

static const char by_id_sql[] = "SELECT " SKR_MESSENGER_COLUMNS " FROM {table} "
                                "WHERE id IN ({ids}) ORDER BY id {lock}";

// The next time that a pass has to look for: after the last pass, not after
// now, as a row may have become due since the pass of this very snapshot. The
// last id is looked for beyond the cursor: from the end of the table the way
// leads over all rows that were deleted and are not cleaned away yet.
// Parameters: cursor, queue, mark of the last pass.
static const char rest_sql[] =
    "SELECT {now}, {now_milliseconds}, "
    "(SELECT MAX(id) FROM {table} WHERE id > ?), "
    "(SELECT available_at FROM {table} WHERE {queue_is_unindexed} "
    "AND available_at > ? AND available_at > created_at "
    "ORDER BY available_at LIMIT 1)";

// While batches are full nobody asks what waits; a look now and then is enough.
// And one for rows that committed late is worth a statement so often.
enum { LOOK_AGAIN_MS = 1000, LATE_LOOK_MS = 5 };

struct scan {
    const struct skr_messenger *messenger;
    const struct skr_scan_sql *sql;
    struct skr_tx tx;
    struct skr_position position;
    const struct skr_read *read;
    struct skr_batch *batch;
    size_t max_rows;
    int64_t now_ms;
    bool is_full;

    // Of the statement under way.
    size_t seen;
    int64_t *ids;
    size_t id_count;
    bool is_for_late;
};

bool
skr_messenger_fill_scan(struct skr_messenger *messenger, const char *lock,
                        struct skr_scan_sql *scan)
{
    return skr_messenger_fill_lock(messenger, due_ids_sql, lock,
                                   &scan->due_ids) &&
           skr_messenger_fill_lock(messenger, sweep_ids_sql, lock,
                                   &scan->sweep_ids) &&
           skr_messenger_fill_lock(messenger, late_ids_sql, lock,
                                   &scan->late_ids) &&
           skr_messenger_fill_lock(messenger, first_sql, lock, &scan->first) &&
           skr_messenger_fill_lock(messenger, beyond_sql, lock,
                                   &scan->beyond) &&
           skr_messenger_fill_list(messenger, by_id_sql, lock, &scan->by_id);
}

bool
skr_messenger_fill_read(struct skr_messenger *messenger)
{
    return skr_messenger_fill_scan(messenger, "", &messenger->sql.read) &&
           skr_messenger_fill(messenger, rest_sql, &messenger->sql.rest) &&
           skr_messenger_fill(messenger, "{horizon}", &messenger->sql.horizon);
}

static int
compare_ids(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static bool
is_listed(const int64_t *rows, size_t count, int64_t row)
{
    return count > 0 &&
           bsearch(&row, rows, count, sizeof(row), compare_ids) != NULL;
}

static bool
is_in_hand(const struct skr_read *read, int64_t row)
{
    return is_listed(read->in_hand, read->in_hand_count, row);
}

static bool
is_in_batch(const struct skr_batch *batch, int64_t row)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].row == row)
            return true;
    return false;
}

// SKR_STOPPED when the row finds no room: the statement ends there.
static enum skr_code
take(struct scan *scan, const struct skr_value *columns,
     struct skr_error *error)
{
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    struct skr_batch *batch = scan->batch;
    // A row that is larger than all the room there is travels alone.
    bool has_company = batch->count > 0 || scan->read->in_hand_count > 0;
    scan->is_full =
        batch->count == scan->max_rows ||
        (has_company && (batch->bytes >= scan->read->max_bytes ||
                         size > scan->read->max_bytes - batch->bytes));
    if (scan->is_full)
        return SKR_STOPPED;
    return skr_messenger_take_row(scan->messenger, scan->position.id_namespace,
                                  columns, batch, error);
}

static enum skr_code
keep_id(const struct skr_value *columns, size_t count, void *user,
        struct skr_error *error)
{
    (void)count;
    (void)error;
    struct scan *scan = user;
    scan->seen++;
    int64_t row = columns[0].integer;
    if (scan->is_for_late &&
        is_listed(scan->read->waiting, scan->read->waiting_count, row))
        return SKR_OK;
    // A pass may have found it already that looked for something else.
    if (scan->id_count < scan->max_rows && !is_in_hand(scan->read, row) &&
        !is_in_batch(scan->batch, row))
        scan->ids[scan->id_count++] = row;
    return SKR_OK;
}

static enum skr_code
take_behind(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    struct scan *scan = user;
    enum skr_code code = take(scan, columns, error);
    if (code == SKR_OK)
        scan->position.pass_cursor = columns[SKR_COLUMN_ID].integer;
    return code;
}

static enum skr_code
take_beyond(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    struct scan *scan = user;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    enum skr_code code = SKR_OK;
    scan->seen++;
    if (!is_in_hand(scan->read, row))
        code = take(scan, columns, error);
    if (code == SKR_OK)
        scan->position.cursor = row;
    return code;
}

// A reader that has not begun stands before every id, also before those that
// somebody chose below 1.
static struct skr_value
bind_cursor(int64_t cursor)
{
    return skr_bind_integer(cursor == 0 ? INT64_MIN : cursor);
}

static enum skr_code
run(struct scan *scan, const char *sql, const struct skr_value *values,
    size_t count, skr_row_fn *each_row, struct skr_error *error)
{
    scan->seen = 0;
    return skr_tx_run(scan->tx,
                      &(struct skr_statement){.sql = sql,
                                              .values = values,
                                              .value_count = count,
                                              .each_row = each_row,
                                              .user = scan},
                      error);
}

// A sweep is a pass that looks at everything behind the cursor; its mark is
// empty meanwhile.
static enum skr_code
begin_pass(struct scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    position->pass_cursor = 0;
    if (position->next_sweep_ms <= scan->now_ms) {
        position->due_mark[0] = '\0';
        position->next_sweep_ms = scan->now_ms + scan->messenger->sweep_ms;
    }
    return skr_messenger_now(scan->messenger, scan->tx, position->pass_until,
                             error);
}

static void
end_pass(struct skr_position *position)
{
    memcpy(position->due_mark, position->pass_until,
           sizeof(position->due_mark));
    position->pass_until[0] = '\0';
    position->pass_cursor = 0;
}

static enum skr_code
find_ids(struct scan *scan, int64_t limit, struct skr_error *error)
{
    const struct skr_messenger *messenger = scan->messenger;
    const struct skr_position *position = &scan->position;
    const struct skr_value queue = skr_bind_text(messenger->queue);
    const struct skr_value from = bind_cursor(position->pass_cursor);
    const struct skr_value to = skr_bind_integer(position->cursor);
    const struct skr_value timeout =
        skr_bind_integer(messenger->redeliver_timeout_s);
    if (position->due_mark[0] == '\0') {
        const struct skr_value values[] = {queue, from, to, timeout,
                                           skr_bind_integer(limit)};
        return run(scan, scan->sql->sweep_ids, values, SKR_COUNT_OF(values),
                   keep_id, error);
    }
    const struct skr_value values[] = {
        queue,
        from,
        to,
        skr_bind_text(position->due_mark),
        skr_bind_text(position->pass_until),
        timeout,
        skr_bind_integer(limit),
    };
    return run(scan, scan->sql->due_ids, values, SKR_COUNT_OF(values), keep_id,
               error);
}

static enum skr_code
take_room_for_ids(struct scan *scan, struct skr_error *error)
{
    scan->id_count = 0;
    scan->ids = skr_arena_take(&scan->batch->arena,
                               scan->max_rows * sizeof(scan->ids[0]));
    return scan->ids == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
fetch_ids(struct scan *scan, skr_row_fn *take_row, struct skr_error *error)
{
    return skr_messenger_run_list(scan->tx,
                                  &(struct skr_list_run){
                                      .sql = &scan->sql->by_id,
                                      .rows = scan->ids,
                                      .count = scan->id_count,
                                      .each_row = take_row,
                                      .user = scan,
                                  },
                                  error);
}

static enum skr_code
look_behind(struct scan *scan, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (scan->position.pass_until[0] == '\0')
        code = begin_pass(scan, error);
    if (code != SKR_OK)
        return code;
    code = take_room_for_ids(scan, error);
    if (code != SKR_OK)
        return code;
    // Those in hand are skipped, so that many more may have to be asked for.
    size_t limit = scan->max_rows + scan->read->in_hand_count;
    code = find_ids(scan, (int64_t)limit, error);
    if (code != SKR_OK)
        return code;
    bool is_last = scan->seen < limit && scan->id_count < scan->max_rows;
    code = fetch_ids(scan, take_behind, error);
    if (code == SKR_STOPPED && scan->is_full)
        return SKR_OK;
    if (code == SKR_OK && is_last)
        end_pass(&scan->position);
    return code;
}

static enum skr_code
take_late(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    return take(user, columns, error);
}

// Rows that committed after the cursor had passed their ids.
static enum skr_code
look_for_late(struct scan *scan, struct skr_error *error)
{
    const struct skr_messenger *messenger = scan->messenger;
    struct skr_position *position = &scan->position;
    if (!skr_messenger_is_late_possible(messenger, position) ||
        scan->now_ms < position->next_late_ms)
        return SKR_OK;
    enum skr_code code = take_room_for_ids(scan, error);
    if (code != SKR_OK)
        return code;
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        bind_cursor(position->low_water),
        skr_bind_integer(position->cursor),
        skr_bind_integer(messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)(scan->max_rows + scan->read->in_hand_count +
                                   scan->read->waiting_count)),
    };
    scan->is_for_late = true;
    code = run(scan, scan->sql->late_ids, values, SKR_COUNT_OF(values), keep_id,
               error);
    scan->is_for_late = false;
    bool saw_all = scan->id_count < scan->max_rows;
    if (code == SKR_OK)
        code = fetch_ids(scan, take_late, error);
    if (code == SKR_STOPPED && scan->is_full)
        return SKR_OK;
    // What found no room is still behind: the mark must not pass it.
    if (code != SKR_OK || !saw_all)
        return code;
    // Where much lies between mark and cursor, a look takes its time.
    position->next_late_ms =
        scan->now_ms + LATE_LOOK_MS + 10 * (skr_clock_ms() - scan->now_ms);
    return skr_messenger_follow_horizon(messenger, scan->tx, scan->now_ms,
                                        position, error);
}

static enum skr_code
read_beyond(struct scan *scan, struct skr_error *error)
{
    size_t limit;
    do {
        limit = scan->max_rows - scan->batch->count;
        scan->is_full = limit == 0;
        if (scan->is_full)
            return SKR_OK;
        const struct skr_value values[] = {
            skr_bind_text(scan->messenger->queue),
            bind_cursor(scan->position.cursor),
            skr_bind_integer(scan->messenger->redeliver_timeout_s),
            skr_bind_integer((int64_t)limit),
        };
        const char *sql =
            scan->position.cursor == 0 ? scan->sql->first : scan->sql->beyond;
        enum skr_code code =
            run(scan, sql, values, SKR_COUNT_OF(values), take_beyond, error);
        if (code == SKR_STOPPED && scan->is_full)
            return SKR_OK;
        if (code != SKR_OK)
            return code;
        // As many as were asked for, some of them in hand: there may be more.
    } while (scan->seen == limit);
    return SKR_OK;
}

// When the next row is due, as far as the last pass has not looked.
static void
note_due(const struct skr_value *columns, struct scan *scan)
{
    struct skr_position *position = &scan->position;
    position->next_due_ms = 0;
    char now[SKR_POSITION_TIME_SIZE], due[SKR_POSITION_TIME_SIZE];
    skr_messenger_copy_time(&columns[0], now);
    skr_messenger_copy_time(&columns[3], due);
    int64_t now_us = 0, due_us = 0;
    // Both by the server's clock; only the distance is carried over to ours.
    if (skr_clock_parse_timestamp(now, &now_us) &&
        skr_clock_parse_timestamp(due, &due_us)) {
        int64_t due_ms =
            scan->now_ms + (due_us - now_us) / 1000 - columns[1].integer + 1;
        position->next_due_ms = due_ms > scan->now_ms ? due_ms : scan->now_ms;
    }
}

static enum skr_code
note_rest(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct scan *scan = user;
    struct skr_position *position = &scan->position;
    if (columns[2].kind == SKR_INTEGER && columns[2].integer > position->cursor)
        position->cursor = columns[2].integer;
    note_due(columns, scan);
    return SKR_OK;
}

static enum skr_code
note_peek(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct scan *scan = user;
    scan->is_full = columns[2].kind == SKR_INTEGER &&
                    columns[2].integer > scan->position.cursor;
    note_due(columns, scan);
    return SKR_OK;
}

static enum skr_code
ask_for_rest(struct scan *scan, skr_row_fn *note, struct skr_error *error)
{
    const struct skr_value values[] = {
        bind_cursor(scan->position.cursor),
        skr_bind_text(scan->messenger->queue),
        skr_bind_text(scan->position.due_mark),
    };
    return run(scan, scan->messenger->sql.rest, values, SKR_COUNT_OF(values),
               note, error);
}

static bool
is_pass_due(const struct scan *scan)
{
    const struct skr_position *position = &scan->position;
    return position->pass_until[0] != '\0' ||
           position->next_sweep_ms <= scan->now_ms ||
           (position->next_due_ms > 0 && position->next_due_ms <= scan->now_ms);
}

static enum skr_code
fill_batch(struct scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    enum skr_code code = SKR_OK;
    if (position->next_sweep_ms == 0) {
        // The first scan sees every row once: all that can become due later
        // has a later time than this.
        position->next_sweep_ms = scan->now_ms + scan->messenger->sweep_ms;
        code = skr_messenger_now(scan->messenger, scan->tx, position->due_mark,
                                 error);
    } else if (is_pass_due(scan)) {
        code = look_behind(scan, error);
    }
    if (code == SKR_OK && !scan->is_full)
        code = look_for_late(scan, error);
    if (code == SKR_OK && !scan->is_full)
        code = read_beyond(scan, error);
    if (code != SKR_OK)
        return code;
    // Nothing more can be read now: what is left are rows of other queues,
    // others' rows and rows that wait.
    if (!scan->is_full)
        return ask_for_rest(scan, note_rest, error);
    int64_t next_ms = scan->now_ms + LOOK_AGAIN_MS;
    if (position->next_due_ms <= scan->now_ms ||
        position->next_due_ms > next_ms)
        position->next_due_ms = next_ms;
    return SKR_OK;
}

static enum skr_code
take_only(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    struct scan *scan = user;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    if (columns[SKR_COLUMN_CLAIMED].integer != 0 || is_in_hand(scan->read, row))
        return SKR_OK;
    return take(scan, columns, error);
}

// Where the reader stands, and what is left to read, stays as it was.
static enum skr_code
fetch_only(struct scan *scan, struct skr_error *error)
{
    enum skr_code code = take_room_for_ids(scan, error);
    if (code != SKR_OK)
        return code;
    scan->ids[scan->id_count++] = *scan->read->only;
    code = fetch_ids(scan, take_only, error);
    scan->is_full = scan->position.has_more;
    return code == SKR_STOPPED ? SKR_OK : code;
}

enum skr_code
skr_messenger_scan(const struct skr_messenger *messenger,
                   const struct skr_scan_sql *sql, struct skr_tx tx,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    struct scan scan = {
        .messenger = messenger,
        .sql = sql,
        .tx = tx,
        .position = *position,
        .read = read,
        .batch = batch,
        .max_rows =
            read->max_rows < batch->capacity ? read->max_rows : batch->capacity,
        .now_ms = skr_clock_ms(),
    };
    enum skr_code code = read->only == NULL ? fill_batch(&scan, error)
                                            : fetch_only(&scan, error);
    // Where nothing commits late there is nothing to look for behind.
    if (messenger->sql.horizon[0] == '\0')
        scan.position.low_water = scan.position.cursor;
    scan.position.has_more = scan.is_full;
    if (code == SKR_OK)
        *position = scan.position;
    else
        skr_batch_clear(batch);
    return code;
}

// One small statement tells whether a look is worth while. Where commits are
// seen by other means nobody looks in vain.
static enum skr_code
is_worth_reading(const struct skr_messenger *messenger, struct skr_db *db,
                 struct skr_position *position, bool *is_worth,
                 struct skr_error *error)
{
    struct scan scan = {.messenger = messenger,
                        .tx = skr_db_tx(db),
                        .position = *position,
                        .now_ms = skr_clock_ms()};
    *is_worth = messenger->sql.horizon[0] == '\0' || position->cursor == 0 ||
                position->has_more || is_pass_due(&scan) ||
                skr_messenger_is_late_possible(messenger, position);
    if (*is_worth)
        return SKR_OK;
    enum skr_code code = ask_for_rest(&scan, note_peek, error);
    if (code != SKR_OK)
        return code;
    position->next_due_ms = scan.position.next_due_ms;
    *is_worth = scan.is_full || is_pass_due(&scan);
    return SKR_OK;
}

enum skr_code
skr_messenger_read(const struct skr_table *table, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    bool is_worth = read->only != NULL;
    enum skr_code code = SKR_OK;
    if (!is_worth)
        code = is_worth_reading(messenger, db, position, &is_worth, error);
    if (code != SKR_OK || !is_worth)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_scan(messenger, &messenger->sql.read, skr_db_tx(db),
                              position, read, batch, error);
    skr_db_rollback(db);
    if (batch->count > 0)
        db->found_rows = true;
    return code;
}
