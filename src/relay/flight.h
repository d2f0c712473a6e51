// SPDX-License-Identifier: MIT
// Every row that the relay has read and not finished: the one owner of their
// states. Rows travel in batches, each with one arena. The session's thread
// alone calls it.
//
//      open           sent            decided          settled
//   ── QUEUED ──────> SENT ─────────> DECIDED ───────> (gone)
//         |            |                 ^
//         |            '── no result ──. |
//         |── unreadable, refused ──────│┘
//         '── left: breaker, order, ────┴─> LEFT ────> (source)
//             ownership, stop
//
// The legal moves are one table in flight.c. A move that is not in it aborts a
// build for tests, and is counted in a release. A batch is finished when none
// of its rows is QUEUED or SENT; then it is settled, or released.
//
// A tag names a row while its batch is open. Tags are never used again: a
// result that comes for a row whose batch has ended finds nothing.

#ifndef SKR_RELAY_FLIGHT_H
#define SKR_RELAY_FLIGHT_H

#include "message/batch.h"
#include "relay/breaker.h"
#include "relay/sequencer.h"
#include "relay/settler.h"

// A batch has fewer rows than the second number has values.
enum { SKR_FLIGHT_BATCHES = 8, SKR_TAG_INDEX_BITS = 24 };

#define SKR_NO_TAG UINT64_MAX

enum skr_row_state {
    SKR_ROW_QUEUED,   // to be sent when its turn comes
    SKR_ROW_SENT,     // at the broker, without a result
    SKR_ROW_DECIDED,  // its item says what is to be written
    SKR_ROW_LEFT,     // stays in its row as it was read
    SKR_ROW_STATES,
};

struct skr_flight_row {
    enum skr_row_state state;
    struct skr_destination destination;
    // The sequencer's: its partition, 0 for none, and what follows it there.
    uint64_t partition;
    skr_tag next;
    bool waits_turn;    // for the row before it in its partition
    bool is_held_back;  // that one was not sent: neither is this
};

enum skr_batch_phase {
    SKR_BATCH_FREE,
    SKR_BATCH_FILLING,   // being read into
    SKR_BATCH_AHEAD,     // read before there is room to send it
    SKR_BATCH_OPEN,      // some rows are queued or sent
    SKR_BATCH_SETTLING,  // the settler's
};

struct skr_flight_batch {
    struct skr_job job;  // the first member: what the settler gets
    struct skr_flight_row *rows;
    enum skr_batch_phase phase;
    uint64_t serial;     // of its tags
    size_t unfinished;   // rows that are queued or sent
    int64_t claimed_ms;  // when its rows were made ours, at the latest
};

struct skr_flight {
    struct skr_flight_batch batches[SKR_FLIGHT_BATCHES];
    size_t most_rows, most_bytes;  // in flight
    uint64_t next_serial;
    uint64_t illegal_moves;
};

struct skr_room {
    size_t rows, bytes;
};

SKR_MUST_CHECK enum skr_code
skr_flight_init(struct skr_flight *flight, size_t batch_capacity,
                struct skr_error *error);
void skr_flight_fini(struct skr_flight *flight);

// What may be read and sent now. Rows that were read ahead take no room.
struct skr_room skr_flight_room(const struct skr_flight *flight);
// Whether the batch, which was read ahead, may be sent. One that is larger than
// all the room there is travels alone.
bool skr_flight_fits(const struct skr_flight *flight,
                     const struct skr_flight_batch *batch);

// An empty batch to read into, or NULL: all are in use.
struct skr_flight_batch *skr_flight_take_free(struct skr_flight *flight);
// It was read into: its rows are queued.
void skr_flight_open(struct skr_flight_batch *batch);
// There is no room for it yet; open() sends it later.
void skr_flight_put_ahead(struct skr_flight_batch *batch);
// Its rows are gone, or left: it is free.
void skr_flight_free(struct skr_flight_batch *batch);

static inline skr_tag
skr_flight_tag(const struct skr_flight_batch *batch, size_t index)
{
    return batch->serial << SKR_TAG_INDEX_BITS | index;
}
// The batch that the tag is of, and which row; NULL: it is the settler's, or
// has ended.
struct skr_flight_batch *
skr_flight_find(struct skr_flight *flight, skr_tag tag, size_t *index);

void skr_flight_move(struct skr_flight *flight, struct skr_flight_batch *batch,
                     size_t index, enum skr_row_state state);

// The next batch in that phase after *at, which starts as 0; NULL: no more.
struct skr_flight_batch *
skr_flight_next(struct skr_flight *flight, enum skr_batch_phase phase,
                size_t *at);
// An open batch of which no row is queued or sent, or NULL.
struct skr_flight_batch *skr_flight_find_finished(struct skr_flight *flight);
// Rows of open batches.
size_t skr_flight_count_open(const struct skr_flight *flight);

#endif
