// SPDX-License-Identifier: MIT
// A scan under way, shared by the files that do it: scan.c decides where to
// look, fetch.c takes what is found into the batch.

#ifndef SKR_STORE_MESSENGER_SCAN_H
#define SKR_STORE_MESSENGER_SCAN_H

#include "store/messenger/layout.h"

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
    bool sweeps_on;         // a sweep is not over
    bool swept_some;        // a sweep has found rows behind the cursor
    bool is_at_end;         // nothing lies beyond the cursor
    int64_t undecided_row;  // the cursor stays in front of it; 0: none

    // Of the statement under way.
    size_t seen;
    size_t whole_rows;  // that the server has sent, taken or not
    size_t whole_bytes;
    int64_t last_id;  // that was seen
    int64_t *ids;     // found, in ascending order, and to be fetched
    size_t id_count;
    bool skips_waiting;  // those that the reader knows of
    bool is_cut;         // of an ordered queue: some found no room
    size_t next_id;      // the first that is neither fetched nor passed over
    int64_t *mark;  // moves on with every id that is dealt with; NULL: none
};

// How many whole rows to ask for, of so many that are wanted: a server sends
// all of them, however large they are. 0: the batch is full.
size_t skr_scan_ask_for(struct skr_scan *scan, size_t wanted);

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

// Runs a statement that gives whole rows beyond the cursor, and takes those
// that are not in hand. SKR_STOPPED: the batch is full, or a row is undecided.
SKR_MUST_CHECK enum skr_code
skr_scan_run_whole(struct skr_scan *scan, const char *sql,
                   const struct skr_value *values, size_t count,
                   struct skr_error *error);

// pass.c: the next step of a pass over what lies behind the cursor.
SKR_MUST_CHECK enum skr_code
skr_scan_look_behind(struct skr_scan *scan, struct skr_error *error);

// commits.c: keeps in the position what stopped the reader, and when to look
// again; or that nothing did.
void skr_scan_note_undecided(struct skr_scan *scan);

// Others have the row: it may come back.
void skr_scan_pass_over(struct skr_scan *scan, int64_t row);
// Whether it is time to look at those again.
bool skr_scan_is_held_due(const struct skr_position *position, int64_t now_ms);

#endif
