// SPDX-License-Identifier: MIT
// The table of legal moves, and the batches that rows travel in.

#include "relay/flight.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const bool is_legal[SKR_ROW_STATES][SKR_ROW_STATES] = {
    [SKR_ROW_QUEUED] = {[SKR_ROW_SENT] = true,
                        [SKR_ROW_DECIDED] = true,
                        [SKR_ROW_LEFT] = true},
    [SKR_ROW_SENT] = {[SKR_ROW_DECIDED] = true, [SKR_ROW_LEFT] = true},
};

static bool
is_unfinished(enum skr_row_state state)
{
    return state == SKR_ROW_QUEUED || state == SKR_ROW_SENT;
}

static enum skr_code
make_batch(struct skr_flight_batch *batch, size_t capacity,
           struct skr_error *error)
{
    batch->rows = calloc(capacity, sizeof(batch->rows[0]));
    if (batch->rows == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_batch_init(&batch->job.batch, capacity, error);
    for (size_t i = 0; i < capacity && code == SKR_OK; i++) {
        batch->rows[i].batch = batch;
        batch->rows[i].item = &batch->job.batch.items[i];
    }
    return code;
}

enum skr_code
skr_flight_init(struct skr_flight *flight, struct skr_room most,
                size_t batch_capacity, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    flight->most = most;
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES && code == SKR_OK; i++)
        code = make_batch(&flight->batches[i], batch_capacity, error);
    if (code != SKR_OK)
        skr_flight_fini(flight);
    return code;
}

void
skr_flight_fini(struct skr_flight *flight)
{
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES; i++) {
        skr_batch_fini(&flight->batches[i].job.batch);
        free(flight->batches[i].rows);
        flight->batches[i].rows = NULL;
    }
    skr_map_fini(&flight->newest);
}

static size_t
subtract(size_t whole, size_t part)
{
    return part < whole ? whole - part : 0;
}

static bool
takes_room(const struct skr_flight_batch *batch)
{
    return batch->phase == SKR_BATCH_OPEN || batch->phase == SKR_BATCH_SETTLING;
}

struct skr_room
skr_flight_room(const struct skr_flight *flight)
{
    struct skr_room room = flight->most;
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES; i++) {
        const struct skr_flight_batch *batch = &flight->batches[i];
        if (!takes_room(batch))
            continue;
        room.rows = subtract(room.rows, batch->row_count);
        room.bytes = subtract(room.bytes, batch->byte_count);
    }
    return room;
}

struct skr_flight_batch *
skr_flight_take_free(struct skr_flight *flight, uint64_t server, int64_t now_ms)
{
    struct skr_flight_batch *batch =
        skr_flight_next(flight, SKR_BATCH_FREE, NULL);
    if (batch == NULL)
        return NULL;
    batch->phase = SKR_BATCH_FILLING;
    batch->serial = flight->next_serial++;
    batch->unfinished = 0;
    batch->claimed_ms = now_ms;
    batch->job.batch.server = server;
    return batch;
}

void
skr_flight_open(struct skr_flight_batch *batch)
{
    batch->phase = SKR_BATCH_OPEN;
    batch->unfinished = batch->job.batch.count;
    batch->row_count = batch->job.batch.count;
    batch->byte_count = batch->job.batch.bytes;
    for (size_t i = 0; i < batch->job.batch.count; i++)
        batch->rows[i].state = SKR_ROW_QUEUED;
}

bool
skr_flight_open_if_fits(struct skr_flight *flight,
                        struct skr_flight_batch *batch)
{
    skr_flight_open(batch);
    batch->phase = SKR_BATCH_AHEAD;
    struct skr_room room = skr_flight_room(flight);
    if (room.rows < flight->most.rows &&
        (batch->row_count > room.rows || batch->byte_count > room.bytes))
        return false;
    batch->phase = SKR_BATCH_OPEN;
    return true;
}

enum skr_code
skr_flight_note_order(struct skr_flight *flight, struct skr_flight_batch *batch,
                      struct skr_error *error)
{
    for (size_t i = 0; i < batch->row_count; i++) {
        uint64_t key = batch->rows[i].key;
        if (key == 0)
            continue;
        const struct skr_flight_batch *before =
            skr_map_get(&flight->newest, key);
        if (before == batch)
            continue;
        if (before != NULL)
            batch->after |= 1U << (before - flight->batches);
        if (!skr_map_put(&flight->newest, key, batch))
            return skr_fail_memory(error);
    }
    return SKR_OK;
}

void
skr_flight_end(struct skr_flight *flight, struct skr_flight_batch *batch)
{
    for (size_t i = 0; i < batch->row_count; i++)
        if (skr_map_get(&flight->newest, batch->rows[i].key) == batch)
            skr_map_remove(&flight->newest, batch->rows[i].key);
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES; i++)
        flight->batches[i].after &= ~(1U << (batch - flight->batches));
    batch->phase = SKR_BATCH_SETTLING;
}

void
skr_flight_free(struct skr_flight_batch *batch)
{
    skr_batch_clear(&batch->job.batch);
    batch->row_count = batch->byte_count = 0;
    batch->phase = SKR_BATCH_FREE;
}

struct skr_flight_row *
skr_flight_find(struct skr_flight *flight, skr_tag tag)
{
    size_t index = tag & (((skr_tag)1 << SKR_TAG_INDEX_BITS) - 1);
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES; i++) {
        struct skr_flight_batch *batch = &flight->batches[i];
        bool is_ours = batch->phase != SKR_BATCH_FREE &&
                       batch->phase != SKR_BATCH_SETTLING;
        if (is_ours && batch->serial == tag >> SKR_TAG_INDEX_BITS &&
            index < batch->job.batch.count)
            return &batch->rows[index];
    }
    return NULL;
}

void
skr_flight_move(struct skr_flight_row *row, enum skr_row_state state)
{
    // A row that moved otherwise would be sent out of order, or leave before it
    // is confirmed. A process that ends loses nothing: rows that it had are
    // sent by the next.
    if (!is_legal[row->state][state])
        abort();
    row->batch->unfinished -=
        is_unfinished(row->state) && !is_unfinished(state);
    row->state = state;
}

struct skr_flight_batch *
skr_flight_next(struct skr_flight *flight, enum skr_batch_phase phase,
                struct skr_flight_batch *after)
{
    struct skr_flight_batch *batch =
        after == NULL ? flight->batches : after + 1;
    for (; batch < flight->batches + SKR_FLIGHT_BATCHES; batch++)
        if (batch->phase == phase)
            return batch;
    return NULL;
}

struct skr_flight_batch *
skr_flight_find_finished(struct skr_flight *flight)
{
    struct skr_flight_batch *batch = NULL;
    while ((batch = skr_flight_next(flight, SKR_BATCH_OPEN, batch)) != NULL &&
           (batch->unfinished > 0 || batch->after != 0))
        ;
    return batch;
}

size_t
skr_flight_count_open(const struct skr_flight *flight)
{
    size_t count = 0;
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES; i++)
        if (flight->batches[i].phase == SKR_BATCH_OPEN ||
            flight->batches[i].phase == SKR_BATCH_AHEAD)
            count += flight->batches[i].row_count;
    return count;
}
