// SPDX-License-Identifier: MIT
// The low watermark: the id up to which no row can appear any more behind a
// reader's cursor.
//
// What decides is pure: it looks at this struct alone. An id is given once:
// what was seen cannot appear. The cursor moves to the next row that is there,
// and skips to one where it did not see all before it. After a read the
// watermark settles where nothing can appear by that. Where an id is missing,
// open transactions tell (low_watermark.c says how): looked() is told of each
// look at the rows from the watermark to the cursor, answered() of what the
// server said in the same transaction, after that look.
//
// follow() does both, and asks. Where transactions cannot be asked for
// (hides_open), the watermark of a queue whose order counts stays where it is,
// and each look begins there.

#ifndef SKR_STORE_LOW_WATERMARK_H
#define SKR_STORE_LOW_WATERMARK_H

#include "base/backoff.h"
#include "db/db.h"

enum { SKR_CHECKPOINTS = 16 };

// What was known of transactions when the cursor stood somewhere.
struct skr_checkpoint {
    int64_t cursor;
    int64_t next;  // transactions begun before are below this
    int64_t at_ms;
};

struct skr_low_watermark {
    const char *sql;  // asks for open transactions; "": nothing commits late
    bool order_counts;

    int64_t cursor;  // every row up to here has been looked at once
    int64_t low;     // none can appear at or below it; 0: it is not known
    // Beyond it every id up to the cursor was seen: none of them can appear.
    int64_t contiguous_from;

    struct skr_checkpoint checkpoints[SKR_CHECKPOINTS];  // oldest first
    size_t checkpoint_count;
    int64_t oldest;     // all transactions below it are over; 0: not known
    int64_t oldest_ms;  // since when, by skr_clock_ms(); 0: never asked
    // They are told by the seconds of the server's clock, which may be put
    // back: what it said last, plus one, when by skr_clock_ms(), and what it
    // has to pass again before what it says can be compared; 0: nothing.
    bool is_clock;
    int64_t clock_next, clock_ms, clock_bound;
    // Open transactions cannot be asked for: the user may not, or the server is
    // one of a cluster and does not know those of the others.
    bool hides_open;
    bool is_cluster;
    int64_t next_ask_ms;         // by skr_clock_ms()
    struct skr_backoff backoff;  // grows while nothing is read
};

// sql is borrowed: the dialect's {open_transactions}. The cursor stands at 0.
void
skr_low_watermark_start(struct skr_low_watermark *mark, const struct skr_db *db,
                        const char *sql, bool order_counts);
// Cursor and watermark stand there, and nothing is known.
void skr_low_watermark_restart(struct skr_low_watermark *mark, int64_t cursor);
void skr_low_watermark_move(struct skr_low_watermark *mark, int64_t row);
void skr_low_watermark_skip(struct skr_low_watermark *mark, int64_t row);
// A row that the cursor has passed is to be found again.
void skr_low_watermark_rewind(struct skr_low_watermark *mark, int64_t row);
void skr_low_watermark_settle(struct skr_low_watermark *mark);
bool skr_low_watermark_may_be_late(const struct skr_low_watermark *mark);
void skr_low_watermark_looked(struct skr_low_watermark *mark);
void skr_low_watermark_answered(struct skr_low_watermark *mark, int64_t oldest,
                                int64_t next, int64_t now_ms);
SKR_MUST_CHECK enum skr_code
skr_low_watermark_follow(struct skr_low_watermark *mark, struct skr_tx tx,
                         int64_t now_ms, struct skr_error *error);

#endif
