// SPDX-License-Identifier: MIT
// Every row that the relay has read and not finished: the one owner of their
// states. Rows travel in batches, each with one arena. The session's thread
// alone calls it.
//
//   QUEUED ── sent ──> SENT ── result ──> DECIDED ── settled ──> (gone)
//   QUEUED ── unreadable, refused ──────> DECIDED
//   QUEUED ── breaker, order, ownership, stop ──> LEFT ──> (source)
//                      SENT ── no result ───────> LEFT
//
// The legal moves are one table in flight.c; a move that is not in it ends the
// process. A batch is finished when none of its rows is QUEUED or SENT; then it
// is settled, or released, after those that have earlier rows of its keys:
// after a crash such a row would be sent again, behind a later one that is not.
//
// A tag names a row while its batch is open. Tags are never used again: a
// result that comes for a row whose batch has ended finds nothing.

#ifndef SKR_RELAY_FLIGHT_H
#define SKR_RELAY_FLIGHT_H

#include "relay/breaker.h"
#include "relay/sequencer.h"
#include "relay/settler.h"
#include "store/batch.h"

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

// The state is moved by skr_flight_move() alone; what follows the item is the
// dispatcher's.
struct skr_flight_row {
    enum skr_row_state state;
    struct skr_flight_batch *batch;
    struct skr_batch_item *item;
    struct skr_destination destination;
    uint64_t key;                 // of rows that keep an order; 0: none
    uint64_t partition;           // the same, of an ordered queue; 0: none
    struct skr_flight_row *next;  // in its partition; NULL: the last
    bool waits_turn;              // for the row before it in its partition
    bool is_held_back;            // that one was not sent: neither is this
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
    // As the batch has them: it may not be looked into while it is settled.
    size_t row_count, byte_count;
    struct skr_flight_row *rows;
    enum skr_batch_phase phase;
    uint64_t serial;     // of its tags
    size_t unfinished;   // rows that are queued or sent
    uint32_t after;      // batches that end before it, a bit each
    int64_t claimed_ms;  // when its rows were made ours, at the latest
};

struct skr_room {
    size_t rows, bytes;
};

struct skr_flight {
    struct skr_flight_batch batches[SKR_FLIGHT_BATCHES];
    struct skr_room most;  // in flight
    uint64_t next_serial;
    struct skr_map newest;  // open batch with the last row of each key
};

// Of zeroes: how much may be in flight, and how many rows a batch has room for.
SKR_MUST_CHECK enum skr_code
skr_flight_init(struct skr_flight *flight, struct skr_room most,
                size_t batch_capacity, struct skr_error *error);
void skr_flight_fini(struct skr_flight *flight);

// What may be read and sent now. Rows that were read ahead take no room.
struct skr_room skr_flight_room(const struct skr_flight *flight);

// An empty batch to read into, from that server and at that time, or NULL: all
// are in use.
struct skr_flight_batch *skr_flight_take_free(struct skr_flight *flight,
                                              uint64_t server, int64_t now_ms);
// It was read into: its rows are queued.
void skr_flight_open(struct skr_flight_batch *batch);
// The same if there is room for it; else it is AHEAD, to be asked for later. A
// batch that is larger than all the room there is travels alone.
bool skr_flight_open_if_fits(struct skr_flight *flight,
                             struct skr_flight_batch *batch);
// It was opened, and its rows have their keys.
SKR_MUST_CHECK enum skr_code
skr_flight_note_order(struct skr_flight *flight, struct skr_flight_batch *batch,
                      struct skr_error *error);
// It is finished: others need not wait for it, and it is SETTLING until it is
// freed.
void skr_flight_end(struct skr_flight *flight, struct skr_flight_batch *batch);
// Its rows are gone, or left: it is free.
void skr_flight_free(struct skr_flight_batch *batch);

static inline skr_tag
skr_flight_tag(const struct skr_flight_row *row)
{
    return row->batch->serial << SKR_TAG_INDEX_BITS |
           (skr_tag)(row - row->batch->rows);
}
// The row that the tag is of; NULL: its batch is the settler's, or has ended.
struct skr_flight_row *skr_flight_find(struct skr_flight *flight, skr_tag tag);

// The process ends where the table has no such move.
void skr_flight_move(struct skr_flight_row *row, enum skr_row_state state);

// The next batch in that phase, the first after NULL; NULL: no more.
struct skr_flight_batch *
skr_flight_next(struct skr_flight *flight, enum skr_batch_phase phase,
                struct skr_flight_batch *after);
// An open batch of which no row is queued or sent, and that waits for no other,
// or NULL.
struct skr_flight_batch *skr_flight_find_finished(struct skr_flight *flight);
// Rows of open batches.
size_t skr_flight_count_open(const struct skr_flight *flight);

#endif
