// SPDX-License-Identifier: MIT
// Running the statements of a look, and from what they find to items of the
// batch.
//
// Where another index leads to rows, a claim finds ids without a lock, and then
// locks those rows by their primary key: locked on their way through another
// index, two sessions that claim and delete would deadlock. What it cannot
// lock, or finds changed, is passed over.

#include "base/error.h"
#include "db/run.h"
#include "store/messenger/scan.h"

#include <string.h>

// --------------------------------------------------------- running a statement

static bool
is_waiting(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->waiting, read->waiting_count);
}

static bool
has_company(const struct skr_scan *scan)
{
    return scan->batch->count > 0 || scan->read->in_flight_count > 0;
}

size_t
skr_scan_limit(struct skr_scan *scan, size_t wanted)
{
    size_t most =
        skr_cursor_rows_for(scan->at, skr_batch_room(scan->read, scan->batch));
    // What is asked for by name is looked at, whatever others of its kind
    // weigh.
    if (most == 0 && (!has_company(scan) || scan->read->only != NULL))
        most = 1;
    scan->is_full = most == 0 || wanted == 0;
    return most < wanted ? most : wanted;
}

static void
note_size(struct skr_scan *scan, const struct skr_value *columns)
{
    scan->whole_rows++;
    scan->whole_bytes +=
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
}

static void
keep_sizes(struct skr_scan *scan)
{
    skr_cursor_note_sizes(scan->at, scan->whole_rows, scan->whole_bytes);
    scan->whole_rows = 0;
    scan->whole_bytes = 0;
}

enum skr_code
skr_scan_run(struct skr_scan *scan, enum skr_messenger_sql id,
             const struct skr_bounds *bounds, skr_row_fn *each_row,
             struct skr_error *error)
{
    scan->seen = 0;
    return skr_sql_each(scan->tx, skr_messenger_sql(scan->messenger, id),
                        skr_reader_bind(scan->reader, scan->at, id, bounds),
                        each_row, scan, error);
}

// ------------------------------------------------------- what becomes of a row

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
take(struct skr_scan *scan, const struct skr_value *columns,
     struct skr_error *error)
{
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    struct skr_batch *batch = scan->batch;
    // A row that is larger than all the room there is travels alone.
    scan->is_full =
        batch->count == scan->max_rows ||
        (has_company(scan) && size > skr_batch_room(scan->read, batch));
    if (scan->is_full)
        return SKR_STOPPED;
    return skr_messenger_take_row(scan->messenger, scan->reader->id_namespace,
                                  columns, batch, error);
}

void
skr_scan_pass_over(struct skr_scan *scan, int64_t row)
{
    struct skr_cursor *at = scan->at;
    if (scan->access->minds_foreign &&
        (at->foreign_from == 0 || row < at->foreign_from))
        at->foreign_from = row;
}

static enum skr_code
keep_id(struct skr_scan *scan, const struct skr_value *columns)
{
    int64_t row = columns[0].integer;
    scan->last_id = row;
    if (scan->skips_waiting && is_waiting(scan->read, row))
        return SKR_OK;
    // A probe may have found it already that looked for something else.
    if (scan->id_count < scan->max_rows && !skr_read_knows(scan->read, row) &&
        !is_in_batch(scan->batch, row))
        scan->ids[scan->id_count++] = row;
    return SKR_OK;
}

// In an ordered queue the relay is told that a partition has something behind
// the cursor; rows without a key are fetched as elsewhere.
static enum skr_code
keep_behind(struct skr_scan *scan, const struct skr_value *columns,
            struct skr_error *error)
{
    struct skr_batch *batch = scan->batch;
    const struct skr_value *key = &columns[1];
    int64_t row = columns[0].integer;
    bool has_order = key->size > 0 && skr_messenger_is_key(key);
    if (scan->is_cut)
        return SKR_OK;
    bool is_known = (scan->skips_waiting && is_waiting(scan->read, row)) ||
                    skr_read_knows(scan->read, row) ||
                    (!has_order && is_in_batch(batch, row));
    scan->is_cut = !is_known && batch->count + scan->id_count >= scan->max_rows;
    if (scan->is_cut)
        return SKR_OK;
    scan->last_id = row;
    if (is_known)
        return SKR_OK;
    if (!has_order) {
        scan->ids[scan->id_count++] = row;
        return SKR_OK;
    }
    struct skr_batch_item *item = &batch->items[batch->count];
    *item = (struct skr_batch_item){
        .row = row,
        .state = SKR_BEHIND,
        .is_untold = (columns[2].integer & SKR_MARK_UNDECIDED) != 0,
        .partition_key = skr_arena_text(&batch->arena, key->bytes, key->size),
    };
    if (item->partition_key == NULL)
        return skr_fail_memory(error);
    batch->count++;
    return SKR_OK;
}

static enum skr_code
keep_found(const struct skr_value *columns, size_t count, void *user,
           struct skr_error *error)
{
    (void)count;
    struct skr_scan *scan = user;
    scan->seen++;
    return scan->queue->has_partitions ? keep_behind(scan, columns, error)
                                       : keep_id(scan, columns);
}

// As a row comes that may not be sent now: it holds back its partition.
static enum skr_code
take_without_body(struct skr_scan *scan, const struct skr_value *columns,
                  struct skr_error *error)
{
    struct skr_value copy[SKR_COLUMN_COUNT];
    memcpy(copy, columns, sizeof(copy));
    copy[SKR_COLUMN_BODY] = (struct skr_value){.kind = SKR_NULL};
    return take(scan, copy, error);
}

// A whole row, beyond the cursor; or behind it, in a fast read.
static enum skr_code
take_whole(const struct skr_value *columns, size_t count, void *user,
           struct skr_error *error)
{
    (void)count;
    struct skr_scan *scan = user;
    const struct skr_read *read = scan->read;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    bool is_new = row > scan->at->mark.cursor || scan->at->mark.cursor == 0;
    enum skr_code code = SKR_OK;
    scan->seen++;
    note_size(scan, columns);
    if ((columns[SKR_COLUMN_MARKS].integer & SKR_MARK_UNDECIDED) != 0) {
        scan->undecided_row = row;
        return SKR_STOPPED;
    }
    if (skr_read_knows(read, row))
        code = scan->queue->has_partitions && skr_read_holds_back(read, row)
                   ? take_without_body(scan, columns, error)
                   : SKR_OK;
    else if (is_new || !is_waiting(read, row))
        code = take(scan, columns, error);
    if (code == SKR_OK && is_new)
        skr_low_watermark_move(&scan->at->mark, row);
    return code;
}

enum skr_code
skr_scan_run_whole(struct skr_scan *scan, enum skr_messenger_sql id,
                   const struct skr_bounds *bounds, struct skr_error *error)
{
    enum skr_code code = skr_scan_run(scan, id, bounds, take_whole, error);
    keep_sizes(scan);
    return code;
}

// ---------------------------------------------------------- from ids to rows

enum skr_code
skr_scan_begin_ids(struct skr_scan *scan, struct skr_error *error)
{
    scan->id_count = 0;
    scan->is_cut = false;
    if (scan->ids == NULL)
        scan->ids = skr_arena_take(
            &scan->batch->arena, scan->batch->capacity * sizeof(scan->ids[0]));
    return scan->ids == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_scan_find(struct skr_scan *scan, enum skr_messenger_sql id,
              const struct skr_bounds *bounds, struct skr_error *error)
{
    enum skr_code code = skr_scan_begin_ids(scan, error);
    return code == SKR_OK ? skr_scan_run(scan, id, bounds, keep_found, error)
                          : code;
}

// Ids before this one did not come: they are locked, or gone.
static void
pass_over_until(struct skr_scan *scan, int64_t row)
{
    while (scan->next_id < scan->id_count && scan->ids[scan->next_id] < row)
        skr_scan_pass_over(scan, scan->ids[scan->next_id++]);
}

// What was found by its id alone may be claimed by another reader, and what has
// a key that is none was found as if it had one: whatever its state.
static bool
is_free(const struct skr_scan *scan, const struct skr_value *columns)
{
    if (scan->access->locks ||
        (scan->queue->has_partitions &&
         !skr_messenger_is_key(&columns[SKR_COLUMN_PARTITION])))
        return columns[SKR_COLUMN_IS_FREE].integer != 0;
    return scan->read->only == NULL ||
           (columns[SKR_COLUMN_MARKS].integer & SKR_MARK_CLAIMED) == 0;
}

static enum skr_code
take_found(const struct skr_value *columns, size_t count, void *user,
           struct skr_error *error)
{
    (void)count;
    struct skr_scan *scan = user;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    note_size(scan, columns);
    if (scan->access->locks)
        pass_over_until(scan, row);
    if (is_free(scan, columns)) {
        enum skr_code code = take(scan, columns, error);
        if (code != SKR_OK)
            return code;
    } else {
        skr_scan_pass_over(scan, row);
    }
    scan->next_id++;
    if (scan->mark != NULL)
        *scan->mark = row;
    return SKR_OK;
}

// As many as there is room for at a time: of those that find none the server
// sends nothing, and a claim does not lock them.
static enum skr_code
fetch_pieces(struct skr_scan *scan, struct skr_error *error)
{
    enum skr_messenger_sql id = scan->access->by_id;
    const struct skr_values first = skr_reader_bind(
        scan->reader, scan->at, id, &(struct skr_bounds){.after = 0});
    for (size_t at = 0; at < scan->id_count;) {
        size_t count = skr_scan_limit(scan, scan->id_count - at);
        if (count == 0)
            return SKR_STOPPED;
        const struct skr_list_run list = {
            .sql = skr_messenger_list(scan->messenger, id),
            .first = {first.items[0]},
            .first_count = first.count,
            .rows = scan->ids + at,
            .count = count,
            .each_row = take_found,
            .user = scan,
        };
        enum skr_code code = skr_list_run(scan->tx, &list, error);
        keep_sizes(scan);
        if (code != SKR_OK)
            return code;
        at += count;
    }
    return SKR_OK;
}

enum skr_code
skr_scan_fetch(struct skr_scan *scan, int64_t *mark, struct skr_error *error)
{
    scan->next_id = 0;
    scan->mark = mark;
    enum skr_code code = fetch_pieces(scan, error);
    if (code != SKR_OK || !scan->access->locks || scan->id_count == 0)
        return code;
    pass_over_until(scan, INT64_MAX);
    if (mark != NULL)
        *mark = scan->ids[scan->id_count - 1];
    return SKR_OK;
}
