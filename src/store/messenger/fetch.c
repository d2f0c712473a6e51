// SPDX-License-Identifier: MIT
// From ids that were found to items of the batch.
//
// Where another index leads to rows, a claim finds ids without a lock, and then
// locks those rows by their primary key: locked on their way through another
// index, two sessions that claim and delete would deadlock. What it cannot
// lock, or finds changed, is passed over.

#include "base/error.h"
#include "store/horizon.h"
#include "store/messenger/scan.h"

#include <string.h>

bool
skr_messenger_is_in_hand(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->in_hand, read->in_hand_count) ||
           skr_messenger_is_parked(read, row);
}

bool
skr_messenger_is_parked(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->parked, read->parked_count);
}

bool
skr_messenger_holds_back(const struct skr_read *read, int64_t row)
{
    return skr_messenger_is_parked(read, row) &&
           !skr_is_among_rows(row, read->done, read->done_count);
}

bool
skr_messenger_is_waiting(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->waiting, read->waiting_count);
}

static bool
is_in_batch(const struct skr_batch *batch, int64_t row)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].row == row)
            return true;
    return false;
}

static bool
has_company(const struct skr_scan *scan)
{
    return scan->batch->count > 0 || scan->read->in_hand_count > 0;
}

size_t
skr_scan_ask_for(struct skr_scan *scan, size_t wanted)
{
    size_t room = skr_messenger_room(scan->read, scan->batch);
    size_t most = skr_messenger_rows_for(&scan->position, room);
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
    skr_messenger_note_sizes(&scan->position, scan->whole_rows,
                             scan->whole_bytes);
    scan->whole_rows = 0;
    scan->whole_bytes = 0;
}

enum skr_code
skr_scan_run(struct skr_scan *scan, const char *sql,
             const struct skr_value *values, size_t count, skr_row_fn *each_row,
             struct skr_error *error)
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
        (has_company(scan) && size > skr_messenger_room(scan->read, batch));
    if (scan->is_full)
        return SKR_STOPPED;
    return skr_messenger_take_row(scan->messenger, scan->position.id_namespace,
                                  columns, batch, error);
}

// In an ordered queue the reader is told that a partition has something behind
// the cursor; rows without a key are fetched as elsewhere.
static enum skr_code
keep_ordered(struct skr_scan *scan, const struct skr_value *columns,
             struct skr_error *error)
{
    struct skr_batch *batch = scan->batch;
    const struct skr_value *key = &columns[1];
    int64_t row = columns[0].integer;
    bool has_order = key->size > 0 && skr_messenger_is_key(key);
    if (scan->is_cut)
        return SKR_OK;
    bool is_known =
        (scan->skips_waiting && skr_messenger_is_waiting(scan->read, row)) ||
        skr_messenger_is_in_hand(scan->read, row) ||
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
keep_id(const struct skr_value *columns, size_t count, void *user,
        struct skr_error *error)
{
    (void)count;
    struct skr_scan *scan = user;
    int64_t row = columns[0].integer;
    scan->seen++;
    if (scan->messenger->is_ordered)
        return keep_ordered(scan, columns, error);
    scan->last_id = row;
    if (scan->skips_waiting && skr_messenger_is_waiting(scan->read, row))
        return SKR_OK;
    // A pass may have found it already that looked for something else.
    if (scan->id_count < scan->max_rows &&
        !skr_messenger_is_in_hand(scan->read, row) &&
        !is_in_batch(scan->batch, row))
        scan->ids[scan->id_count++] = row;
    return SKR_OK;
}

static enum skr_code
take_room_for_ids(struct skr_scan *scan, struct skr_error *error)
{
    scan->id_count = 0;
    scan->is_cut = false;
    if (scan->ids == NULL)
        scan->ids = skr_arena_take(
            &scan->batch->arena, scan->batch->capacity * sizeof(scan->ids[0]));
    return scan->ids == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_scan_find(struct skr_scan *scan, const char *sql,
              const struct skr_value *values, size_t count,
              struct skr_error *error)
{
    enum skr_code code = take_room_for_ids(scan, error);
    if (code != SKR_OK)
        return code;
    return skr_scan_run(scan, sql, values, count, keep_id, error);
}

void
skr_scan_pass_over(struct skr_scan *scan, int64_t row)
{
    struct skr_position *position = &scan->position;
    if (scan->kind == SKR_SCAN_READ)
        return;
    if (position->held_from == 0 || row < position->held_from)
        position->held_from = row;
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
    if (scan->kind == SKR_SCAN_CLAIM ||
        (scan->messenger->is_ordered &&
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
    if (scan->kind == SKR_SCAN_CLAIM)
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
    bool locks = scan->kind == SKR_SCAN_CLAIM;
    for (size_t at = 0; at < scan->id_count;) {
        size_t count = skr_scan_ask_for(scan, scan->id_count - at);
        if (count == 0)
            return SKR_STOPPED;
        const struct skr_list_run run = {
            .sql = locks ? &scan->sql->lock_ids : &scan->sql->by_id,
            .first = {skr_bind_integer(scan->messenger->redeliver_timeout_s)},
            .first_count = locks || scan->messenger->is_ordered ? 1 : 0,
            .rows = scan->ids + at,
            .count = count,
            .each_row = take_found,
            .user = scan,
        };
        enum skr_code code = skr_list_run(scan->tx, &run, error);
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
    if (code != SKR_OK || scan->kind != SKR_SCAN_CLAIM || scan->id_count == 0)
        return code;
    pass_over_until(scan, INT64_MAX);
    if (mark != NULL)
        *mark = scan->ids[scan->id_count - 1];
    return SKR_OK;
}

enum skr_code
skr_scan_fetch_only(struct skr_scan *scan, struct skr_error *error)
{
    enum skr_code code = take_room_for_ids(scan, error);
    if (code != SKR_OK || scan->max_rows == 0)
        return code;
    if (!skr_messenger_is_in_hand(scan->read, *scan->read->only))
        scan->ids[scan->id_count++] = *scan->read->only;
    code = skr_scan_fetch(scan, NULL, error);
    scan->is_full = scan->position.has_more;
    if (code == SKR_OK && scan->messenger->is_ordered && scan->batch->count > 0)
        code = skr_ordered_keep_head(scan->messenger, scan->tx, scan->batch,
                                     error);
    return code == SKR_STOPPED ? SKR_OK : code;
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

static enum skr_code
take_beyond(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    struct skr_scan *scan = user;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    enum skr_code code = SKR_OK;
    scan->seen++;
    note_size(scan, columns);
    if ((columns[SKR_COLUMN_MARKS].integer & SKR_MARK_UNDECIDED) != 0) {
        scan->undecided_row = row;
        return SKR_STOPPED;
    }
    if (!skr_messenger_is_in_hand(scan->read, row))
        code = take(scan, columns, error);
    else if (scan->messenger->is_ordered &&
             skr_messenger_holds_back(scan->read, row))
        code = take_without_body(scan, columns, error);
    if (code == SKR_OK)
        skr_horizon_move(&scan->position, row);
    return code;
}

enum skr_code
skr_scan_run_whole(struct skr_scan *scan, const char *sql,
                   const struct skr_value *values, size_t count,
                   struct skr_error *error)
{
    enum skr_code code =
        skr_scan_run(scan, sql, values, count, take_beyond, error);
    keep_sizes(scan);
    return code;
}
