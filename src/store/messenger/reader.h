// SPDX-License-Identifier: MIT
// The reader of a messenger table: where it stands, and one look at the table.
//
// A read walks through a table of probes (probes.c): what lies behind the
// cursor and has become due, rows that others had claimed, rows that committed
// late, what is new beyond the cursor, and the tail of the table. Each is a
// statement or two, all in one snapshot. Where little is to be read one
// statement does: a fast read.

#ifndef SKR_STORE_MESSENGER_READER_H
#define SKR_STORE_MESSENGER_READER_H

#include "store/messenger/layout.h"

// Where a reader stands. A look works on a copy, which is kept when it
// succeeds. Times are by skr_clock_ms().
struct skr_cursor {
    struct skr_low_watermark mark;

    // Rows behind the cursor that have become due, or free, are looked for in
    // due scans: first those whose time came since the last one, and now and
    // then, in a full scan, all of them (leases that ran out, edits by hand).
    char due_until[SKR_TIME_SIZE];   // due up to here were looked for
    char scan_until[SKR_TIME_SIZE];  // of the scan under way; "": none
    int64_t scan_cursor;
    int64_t next_full_scan_ms;
    int64_t next_late_ms;  // when to look for rows that committed late
    // Where little is read, what else lies in the table is asked now and then.
    int64_t next_tail_ms;
    bool has_read_fast;   // since it was asked
    int64_t fast_row_ms;  // when that last brought a row

    // Claims alone. Foreign claims are passed, and their rows may come back:
    // those from here to the cursor are looked at again. 0: none were passed.
    int64_t foreign_from;
    int64_t next_foreign_ms;
    int64_t next_expired_ms;  // when to look for leases that ran out

    // In the order of commits: the row that was not read yet, as transactions
    // are open that may come before it, and since when; 0: none.
    int64_t undecided_row;
    int64_t undecided_ms, next_undecided_ms;

    bool has_more;        // the last read was full: rows were left that are due
    int64_t next_due_ms;  // 0: nothing waits for its time
    size_t row_size;      // of rows lately; 0: not known
};

struct skr_messenger_reader {
    struct skr_reader base;
    struct skr_cursor at;
    // What ids of rows without one are derived from; "": none are.
    char id_namespace[SKR_NAMESPACE_SIZE];
    struct skr_messenger_indexes indexes;
    size_t most_claimed;  // at once, after a row was refused; 0: no bound
};

// What a look is for.
enum skr_look_kind {
    SKR_LOOK_READ,   // one reader, which has the queue to itself
    SKR_LOOK_PEEK,   // whether there is something that could be locked
    SKR_LOOK_CLAIM,  // rows are locked, and those that others have passed over
};

struct skr_look {
    struct skr_messenger_reader *reader;
    enum skr_look_kind kind;
    const struct skr_read *read;
    struct skr_batch *batch;
    struct skr_cursor at;  // moves on if the look succeeds
};

// In whatever transaction the connection is; and in a snapshot of its own.
SKR_MUST_CHECK enum skr_code
skr_look_run(struct skr_look *look, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_look_run_alone(struct skr_look *look, struct skr_error *error);
// With as few statements as can be, where little is to be read, and outside
// transactions. *is_enough: there is no need for another look.
SKR_MUST_CHECK enum skr_code
skr_look_fast(struct skr_look *look, bool *is_enough, struct skr_error *error);

// What lies beyond the cursor and is not to be read now: the last id in the
// table, if it is beyond, and when the next row is due, which the cursor keeps.
SKR_MUST_CHECK enum skr_code
skr_reader_ask_tail(const struct skr_messenger_reader *reader,
                    struct skr_cursor *at, int64_t now_ms, int64_t *last,
                    struct skr_error *error);
// Whether there are reasons to look behind the cursor: whatever was said to
// become due, and rows that others had.
bool skr_cursor_is_scan_due(const struct skr_cursor *at, int64_t now_ms);
bool skr_cursor_is_foreign_due(const struct skr_cursor *at, int64_t now_ms);

// A server sends whole rows, as many as it was asked for, and a client library
// takes them in before the reader can say that it is enough. So the reader
// keeps in mind how large rows were lately, and asks for no more than there is
// room for: the bytes that a batch has left, and how many rows these are.
size_t
skr_batch_room(const struct skr_read *read, const struct skr_batch *batch);
size_t skr_cursor_rows_for(const struct skr_cursor *at, size_t room);
void skr_cursor_note_sizes(struct skr_cursor *at, size_t rows, size_t bytes);

// Binds the parameters that a statement has, for a reader that stands there.
struct skr_bounds {
    int64_t after, up_to;  // ids
    size_t limit;
    const struct skr_read *read;  // for partitions that are passed
};
struct skr_values
skr_reader_bind(const struct skr_messenger_reader *reader,
                const struct skr_cursor *at, enum skr_messenger_sql id,
                const struct skr_bounds *bounds);
// A reader that has not begun stands before every id, also before ids below 1,
// which an application may have chosen.
struct skr_value skr_bind_cursor(int64_t cursor);

// Whether a row is not to be given, since it is in flight or parked; whether it
// is parked; and parked and not published, so that its partition waits for it.
bool skr_read_knows(const struct skr_read *read, int64_t row);
bool skr_read_parks(const struct skr_read *read, int64_t row);
bool skr_read_holds_back(const struct skr_read *read, int64_t row);

#endif
