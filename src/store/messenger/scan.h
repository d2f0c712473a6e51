// SPDX-License-Identifier: MIT
// A look under way: probes.c decides where to look, fetch.c takes what is found
// into the batch.

#ifndef SKR_STORE_MESSENGER_SCAN_H
#define SKR_STORE_MESSENGER_SCAN_H

#include "store/messenger/reader.h"

// What differs between plain and ordered queues, besides their statements.
struct queue_kind {
    // A row holds back those that follow it in its partition: what is late may
    // not be passed, and what may not be sent now is told all the same.
    bool has_partitions;
    // What lies in partitions that wait need not be looked at.
    bool passes_partitions;
    // One statement may bring what is late together with what is new.
    bool reads_fast;
    size_t full_scan_part;  // of a batch, as a fraction
};

// Which statements a kind of look runs.
struct access {
    enum skr_messenger_sql first, first_timed, next, by_id;
    bool locks;
    bool minds_foreign;  // claims of others are passed over
};

// A look under way.
struct skr_scan {
    struct skr_messenger_reader *reader;
    const struct skr_messenger *messenger;
    const struct queue_kind *queue;
    const struct access *access;
    const struct skr_read *read;
    struct skr_batch *batch;
    struct skr_tx tx;
    struct skr_cursor *at;
    size_t max_rows;
    int64_t now_ms;
    bool is_full;
    bool goes_on;  // a full scan takes a part of each batch, and is not over
    bool scanned_some;      // a full scan has found rows behind the cursor
    bool is_at_end;         // nothing lies beyond the cursor
    int64_t undecided_row;  // the cursor stays in front of it; 0: none

    // Of the statement under way.
    size_t seen;
    size_t whole_rows;  // that the server has sent, taken or not
    size_t whole_bytes;
    int64_t last_id;  // that was seen
    int64_t *ids;     // found, in ascending order, and to be fetched
    size_t id_count;
    bool skips_waiting;  // those that the relay knows of
    bool is_cut;         // of an ordered queue: some found no room
    size_t next_id;      // the first that is neither fetched nor passed over
    int64_t *mark;  // moves on with every id that is dealt with; NULL: none
};

// How many whole rows to ask for, of so many that are wanted; 0: the batch is
// full.
size_t skr_scan_limit(struct skr_scan *scan, size_t wanted);

SKR_MUST_CHECK enum skr_code
skr_scan_run(struct skr_scan *scan, enum skr_messenger_sql id,
             const struct skr_bounds *bounds, skr_row_fn *each_row,
             struct skr_error *error);
// Runs a statement that gives whole rows, and takes those that are not known.
// SKR_STOPPED: the batch is full, or a row is undecided.
SKR_MUST_CHECK enum skr_code
skr_scan_run_whole(struct skr_scan *scan, enum skr_messenger_sql id,
                   const struct skr_bounds *bounds, struct skr_error *error);
// Runs a statement that gives ids, and keeps those that are not known.
SKR_MUST_CHECK enum skr_code
skr_scan_find(struct skr_scan *scan, enum skr_messenger_sql id,
              const struct skr_bounds *bounds, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_scan_begin_ids(struct skr_scan *scan, struct skr_error *error);
// Takes the rows of the ids that were found. A claim locks them, and passes
// over those that others have. SKR_STOPPED: the batch is full, and the rest was
// not looked at.
SKR_MUST_CHECK enum skr_code
skr_scan_fetch(struct skr_scan *scan, int64_t *mark, struct skr_error *error);
// Others have the row: it may come back.
void skr_scan_pass_over(struct skr_scan *scan, int64_t row);

#endif
