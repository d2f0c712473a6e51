// SPDX-License-Identifier: MIT
// A scan under way, shared by the files that do it: scan.c decides where to
// look, fetch.c takes what is found into the batch.

#ifndef SKR_TABLE_MESSENGER_SCAN_H
#define SKR_TABLE_MESSENGER_SCAN_H

#include "table/messenger/layout.h"

struct skr_scan {
    const struct skr_messenger *messenger;
    const struct skr_scan_sql *sql;
    enum skr_scan_kind kind;
    struct skr_tx tx;
    struct skr_position position;
    const struct skr_read *read;
    struct skr_batch *batch;
    size_t max_rows;
    int64_t now_ms;
    bool is_full;

    // Of the statement under way.
    size_t seen;
    int64_t last_id;  // that was seen
    int64_t *ids;     // found, in ascending order, and to be fetched
    size_t id_count;
    bool skips_waiting;  // those that the reader knows of
    size_t next_id;      // the first that is neither fetched nor passed over
    int64_t *mark;  // moves on with every id that is dealt with; NULL: none
};

// A reader that has not begun stands before every id, also before those that
// somebody chose below 1.
struct skr_value skr_scan_bind_cursor(int64_t cursor);

SKR_MUST_CHECK enum skr_code
skr_scan_run(struct skr_scan *scan, const char *sql,
             const struct skr_value *values, size_t count, skr_row_fn *each_row,
             struct skr_error *error);

// Runs a statement that gives ids, and keeps those that are not in hand.
SKR_MUST_CHECK enum skr_code
skr_scan_find(struct skr_scan *scan, const char *sql,
              const struct skr_value *values, size_t count,
              struct skr_error *error);
// Takes the rows of these ids. A claim locks them, and passes over those that
// others have. SKR_STOPPED: the batch is full, and the rest was not looked at.
SKR_MUST_CHECK enum skr_code
skr_scan_fetch(struct skr_scan *scan, int64_t *mark, struct skr_error *error);

// Takes the one row that is asked for. Where the reader stands, and what is
// left to read, stays as it was.
SKR_MUST_CHECK enum skr_code
skr_scan_fetch_only(struct skr_scan *scan, struct skr_error *error);

// For whole rows beyond the cursor.
skr_row_fn skr_scan_take_beyond;

// Others have the row: it may come back.
void skr_scan_pass_over(struct skr_scan *scan, int64_t row);
bool skr_scan_is_in_hand(const struct skr_scan *scan, int64_t row);

// When the next row is due, from what the statement `rest` gives.
SKR_MUST_CHECK enum skr_code
skr_scan_ask_for_rest(struct skr_scan *scan, skr_row_fn *note,
                      struct skr_error *error);
void skr_scan_note_due(const struct skr_value *columns, struct skr_scan *scan);
// Whether there are reasons to look behind the cursor.
bool skr_scan_is_pass_due(const struct skr_scan *scan);
bool skr_scan_is_held_due(const struct skr_scan *scan);

#endif
