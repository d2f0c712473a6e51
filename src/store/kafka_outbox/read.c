// SPDX-License-Identifier: MIT
// Finding the next rows: whole rows beyond the cursor in the order of their
// ids, and behind it those that committed late, were another's, or wait for
// what was. All of it in one snapshot, as with two a row could pass its
// predecessor.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/horizon.h"
#include "store/kafka_outbox/held.h"

#include <stdlib.h>
#include <string.h>

enum {
    SWEEP_MS = 10000,
    SWEEP_PAUSE = 20,
    LOOK_AGAIN_MS = 1000,  // whether what is claimed still is
};

// Parameters: cursor, lease, limit.
static const char beyond_sql[] =
    "SELECT " KAFKA_OUTBOX_COLUMNS
    " FROM {table} o WHERE o.id > ? AND " KAFKA_OUTBOX_UNFINISHED
    " AND " KAFKA_OUTBOX_FREE " ORDER BY o.id LIMIT ?";
// Without payloads, as most are in hand. Parameters: from, to, lease, limit.
static const char behind_sql[] =
    "SELECT o.id, o.topic, NULL, NULL, o.key, o.partition_key FROM {table} o "
    "WHERE o.id > ? AND o.id <= ? AND " KAFKA_OUTBOX_UNFINISHED
    " AND " KAFKA_OUTBOX_FREE " ORDER BY o.id LIMIT ?";
// Parameters: id, lease.
static const char only_sql[] =
    "SELECT " KAFKA_OUTBOX_COLUMNS
    " FROM {table} o WHERE o.id = ? AND " KAFKA_OUTBOX_UNFINISHED
    " AND " KAFKA_OUTBOX_FREE;
static const char by_id_sql[] =
    "SELECT " KAFKA_OUTBOX_COLUMNS " FROM {table} o WHERE o.id IN ({ids}) "
    "ORDER BY o.id";

struct reading {
    const struct skr_kafka_outbox *outbox;
    struct skr_tx tx;
    const struct skr_read *read;
    struct skr_batch *batch;
    struct skr_position position;
    struct kafka_outbox_held held;       // by others
    struct kafka_outbox_held unsettled;  // by rows that cannot be settled
    int64_t now_ms;
    bool has_snapshot;  // of several statements
    bool skips_waiting;
    bool moves_cursor;
    bool is_full;
    size_t seen;     // rows of the last statement
    int64_t last;    // the last of them
    int64_t *found;  // room for max_rows
    size_t found_count;
    size_t max_rows;
};

bool
skr_kafka_outbox_fill_read(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill(outbox, beyond_sql, &outbox->sql.beyond) &&
           skr_kafka_outbox_fill(outbox, behind_sql, &outbox->sql.behind) &&
           skr_kafka_outbox_fill(outbox, only_sql, &outbox->sql.only) &&
           skr_kafka_outbox_fill(outbox, "{horizon_inside}",
                                 &outbox->sql.horizon) &&
           skr_kafka_outbox_fill_list(outbox, by_id_sql, NULL,
                                      &outbox->sql.by_id);
}

static bool
is_passed_over(const struct reading *reading, const struct skr_value *columns)
{
    const struct skr_read *read = reading->read;
    int64_t row = columns[KAFKA_OUTBOX_ID].integer;
    return skr_is_among_rows(row, read->in_hand, read->in_hand_count) ||
           skr_is_among_rows(row, read->parked, read->parked_count) ||
           (reading->skips_waiting &&
            skr_is_among_rows(row, read->waiting, read->waiting_count)) ||
           skr_kafka_outbox_is_held_back(&reading->held, columns) ||
           skr_kafka_outbox_is_held_back(&reading->unsettled, columns);
}

static enum skr_code
stop_full(struct reading *reading, struct skr_error *error)
{
    reading->is_full = true;
    return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "full");
}

static enum skr_code
take_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct reading *reading = user;
    struct skr_batch *batch = reading->batch;
    (void)count;
    reading->seen++;
    reading->last = columns[KAFKA_OUTBOX_ID].integer;
    if (is_passed_over(reading, columns)) {
        if (reading->moves_cursor)
            skr_horizon_move(&reading->position, reading->last);
        return SKR_OK;
    }
    if (batch->count == reading->max_rows ||
        (batch->count > 0 && batch->bytes + skr_kafka_outbox_row_size(columns) >
                                 reading->read->max_bytes))
        return stop_full(reading, error);
    enum skr_code code =
        skr_kafka_outbox_take_row(reading->outbox, batch, columns, error);
    if (code == SKR_OK && reading->moves_cursor)
        skr_horizon_move(&reading->position, reading->last);
    return code;
}

static enum skr_code
note_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct reading *reading = user;
    (void)count;
    if (!is_passed_over(reading, columns)) {
        if (reading->batch->count + reading->found_count == reading->max_rows)
            return stop_full(reading, error);
        reading->found[reading->found_count++] =
            columns[KAFKA_OUTBOX_ID].integer;
    }
    reading->seen++;
    reading->last = columns[KAFKA_OUTBOX_ID].integer;
    return SKR_OK;
}

static enum skr_code
run(struct reading *reading, const char *sql, struct skr_values values,
    skr_row_fn *each_row, struct skr_error *error)
{
    reading->seen = 0;
    enum skr_code code =
        skr_sql_each(reading->tx, sql, values, each_row, reading, error);
    return code == SKR_STOPPED && reading->is_full ? SKR_OK : code;
}

static enum skr_code
fetch_found(struct reading *reading, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = &reading->outbox->sql.by_id,
        .rows = reading->found,
        .count = reading->found_count,
        .each_row = take_row,
        .user = reading,
    };
    return skr_list_run(reading->tx, &run, error);
}

// Takes what there is behind *from up to a row; *from moves on to where nothing
// was left.
static enum skr_code
look_between(struct reading *reading, int64_t *from, int64_t to,
             struct skr_error *error)
{
    size_t limit = reading->max_rows + reading->read->in_hand_count +
                   reading->read->parked_count + reading->read->waiting_count;
    enum skr_code code = SKR_OK;
    do {
        reading->found_count = 0;
        reading->last = *from;
        code = run(reading, reading->outbox->sql.behind,
                   skr_values("%jd %jd %jd %jd", *from, to,
                              reading->outbox->lease_s, (int64_t)limit),
                   note_row, error);
        bool saw_all = reading->seen < limit && !reading->is_full;
        int64_t last = reading->last;
        if (code == SKR_OK && reading->found_count > 0)
            code = fetch_found(reading, error);
        // Too many bytes: those that were found and not taken come again.
        if (code == SKR_STOPPED && reading->is_full)
            return SKR_OK;
        if (code != SKR_OK || saw_all)
            return code;
        *from = last;
    } while (!reading->is_full);
    return SKR_OK;
}

// A pass over everything behind the cursor begins when its time has come, and
// when a row that was another's has become free or is finished: those that
// waited for it come before any that are beyond the cursor.
static enum skr_code
begin_sweep(struct reading *reading, bool *sweeps, struct skr_error *error)
{
    struct skr_position *position = &reading->position;
    enum skr_code code = skr_kafka_outbox_read_held(
        reading->outbox, reading->tx, position, &reading->held, error);
    bool has_changed = reading->held.rows != position->held_count;
    *sweeps = has_changed || position->next_sweep_ms <= reading->now_ms;
    if (code != SKR_OK || !*sweeps ||
        (!has_changed && position->pass_cursor != 0))
        return code;
    position->pass_cursor = INT64_MIN;
    position->next_sweep_ms = reading->now_ms;
    code = skr_kafka_outbox_find_held(reading->outbox, reading->tx, position,
                                      error);
    reading->held.count = 0;
    reading->held.rows = 0;
    if (code == SKR_OK)
        code = skr_kafka_outbox_read_held(reading->outbox, reading->tx,
                                          position, &reading->held, error);
    return code;
}

// In as many reads as it takes.
static enum skr_code
sweep(struct reading *reading, struct skr_error *error)
{
    struct skr_position *position = &reading->position;
    enum skr_code code =
        look_between(reading, &position->pass_cursor, position->cursor, error);
    if (code != SKR_OK || reading->is_full)
        return code;
    position->pass_cursor = 0;
    int64_t took_ms = skr_clock_ms() - reading->now_ms;
    position->next_sweep_ms =
        reading->now_ms + SWEEP_MS + SWEEP_PAUSE * took_ms;
    return SKR_OK;
}

// Rows that committed after the cursor, or a sweep, had passed their ids. Each
// time, as nothing may pass what has just appeared.
static enum skr_code
look_for_late(struct reading *reading, int64_t to, struct skr_error *error)
{
    int64_t from = reading->position.low_water;
    if (to > reading->position.unbroken_from)
        to = reading->position.unbroken_from;
    if (from >= to)
        return SKR_OK;
    reading->skips_waiting = true;
    enum skr_code code = look_between(reading, &from, to, error);
    reading->skips_waiting = false;
    return code;
}

// What is left behind the cursor, in the order of ids.
static enum skr_code
look_behind(struct reading *reading, struct skr_error *error)
{
    struct skr_position *position = &reading->position;
    const char *horizon = reading->outbox->sql.horizon;
    bool may_be_late = skr_horizon_is_late_possible(horizon, position);
    bool sweeps = false;
    enum skr_code code = begin_sweep(reading, &sweeps, error);
    if (code == SKR_OK && may_be_late)
        code = look_for_late(
            reading, sweeps ? position->pass_cursor : position->cursor, error);
    if (code == SKR_OK && sweeps && !reading->is_full)
        code = sweep(reading, error);
    if (code != SKR_OK || reading->is_full || !may_be_late)
        return code;
    return skr_horizon_follow(horizon, true, reading->tx, reading->now_ms,
                              position, error);
}

static enum skr_code
look_beyond(struct reading *reading, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t limit;
    reading->moves_cursor = true;
    do {
        limit = reading->max_rows - reading->batch->count;
        if (reading->is_full || limit == 0) {
            reading->is_full = true;
            break;
        }
        code = run(reading, reading->outbox->sql.beyond,
                   skr_values("%jd %jd %jd", reading->position.cursor,
                              reading->outbox->lease_s, (int64_t)limit),
                   take_row, error);
        if (!reading->has_snapshot && reading->seen == limit)
            reading->is_full = true;
    } while (code == SKR_OK && reading->has_snapshot && reading->seen == limit);
    reading->moves_cursor = false;
    return code;
}

static enum skr_code
look_for_one(struct reading *reading, struct skr_error *error)
{
    enum skr_code code =
        skr_kafka_outbox_read_held(reading->outbox, reading->tx,
                                   &reading->position, &reading->held, error);
    if (code != SKR_OK)
        return code;
    return run(
        reading, reading->outbox->sql.only,
        skr_values("%jd %jd", *reading->read->only, reading->outbox->lease_s),
        take_row, error);
}

// Rows lie behind the cursor, and none beyond: the table may have been emptied,
// and its ids begin anew. Where it was something else this does no harm.
static void
begin_anew(struct skr_position *position)
{
    position->cursor = INT64_MIN;
    position->low_water = INT64_MIN;
    position->unbroken_from = INT64_MIN;
    position->mark_count = 0;
}

static enum skr_code
fill_batch(struct reading *reading, struct skr_error *error)
{
    struct skr_position *position = &reading->position;
    int64_t cursor = position->cursor;
    enum skr_code code = look_behind(reading, error);
    bool found_some = reading->batch->count > 0;
    if (code == SKR_OK)
        code = look_beyond(reading, error);
    if (code != SKR_OK)
        return code;
    if (found_some && !reading->is_full && position->cursor == cursor &&
        position->held_count == 0 && position->low_water == cursor)
        begin_anew(position);
    skr_horizon_settle(reading->outbox->sql.horizon, position);
    position->next_held_ms = reading->now_ms + LOOK_AGAIN_MS;
    position->has_more = reading->is_full;
    return SKR_OK;
}

enum skr_code
skr_kafka_outbox_start(const struct skr_store *table, struct skr_db *db,
                       struct skr_position *position, struct skr_error *error)
{
    *position = (struct skr_position){
        .cursor = INT64_MIN,
        .low_water = INT64_MIN,
        .unbroken_from = INT64_MIN,
        .next_sweep_ms = skr_clock_ms() + SWEEP_MS,
    };
    skr_horizon_start(position, db);
    return skr_kafka_outbox_find_held(skr_kafka_outbox_of(table), skr_db_tx(db),
                                      position, error);
}

// One statement is a snapshot by itself. More than one are needed for what lies
// behind the cursor, and where some hold back others.
static bool
needs_snapshot(const struct reading *reading)
{
    const struct skr_position *position = &reading->position;
    return reading->read->only != NULL || reading->read->unsettled_count > 0 ||
           position->held_count > 0 ||
           position->next_sweep_ms <= reading->now_ms ||
           (reading->outbox->sql.horizon[0] != '\0' &&
            position->low_water < position->unbroken_from);
}

enum skr_code
skr_kafka_outbox_read(const struct skr_store *table, struct skr_db *db,
                      struct skr_position *position,
                      const struct skr_read *read, struct skr_batch *batch,
                      struct skr_error *error)
{
    struct reading reading = {
        .outbox = skr_kafka_outbox_of(table),
        .tx = skr_db_tx(db),
        .read = read,
        .batch = batch,
        .position = *position,
        .now_ms = skr_clock_ms(),
        .max_rows =
            read->max_rows < batch->capacity ? read->max_rows : batch->capacity,
    };
    enum skr_code code = skr_db_follow(db, reading.outbox->name, "", error);
    if (code != SKR_OK)
        return code;
    reading.found = calloc(reading.max_rows, sizeof(*reading.found));
    if (reading.found == NULL)
        return skr_fail_memory(error);
    reading.has_snapshot = needs_snapshot(&reading);
    if (reading.has_snapshot)
        code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code == SKR_OK && read->unsettled_count > 0)
        code = skr_kafka_outbox_hold_rows(
            reading.outbox, reading.tx, read->unsettled, read->unsettled_count,
            &reading.unsettled, error);
    if (code == SKR_OK)
        code = read->only != NULL ? look_for_one(&reading, error)
                                  : fill_batch(&reading, error);
    if (reading.has_snapshot)
        skr_db_rollback(db);
    free(reading.found);
    skr_kafka_outbox_held_fini(&reading.held);
    skr_kafka_outbox_held_fini(&reading.unsettled);
    if (code != SKR_OK) {
        skr_batch_clear(batch);
        return code;
    }
    *position = reading.position;
    if (batch->count > 0)
        db->found_rows = true;
    return SKR_OK;
}
