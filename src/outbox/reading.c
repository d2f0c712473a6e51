// SPDX-License-Identifier: MIT
// How rows come into the window: the next ones of the queue, the heads of
// partitions, and those that are to try a gate.

#include "base/clock.h"
#include "base/failpoint.h"
#include "outbox/pump.h"

enum { SPARE_SWEEP_MS = 300000 };

struct room {
    size_t rows;
    size_t bytes;
};

static size_t
subtract(size_t whole, size_t part)
{
    return part < whole ? whole - part : 0;
}

// What may be sent now. Rows that wait to be sent take no room.
static struct room
room_in_window(const struct skr_pump *pump, const struct skr_slot *waiting)
{
    struct room room = {pump->options->in_flight,
                        pump->options->in_flight_bytes};
    pthread_mutex_lock(&pump->settler->lock);
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++) {
        const struct skr_slot *slot = &pump->settler->slots[i];
        if (slot->state == SKR_SLOT_FREE || slot == waiting)
            continue;
        room.rows = subtract(room.rows, slot->batch.count);
        room.bytes = subtract(room.bytes, slot->batch.bytes);
    }
    pthread_mutex_unlock(&pump->settler->lock);
    return room;
}

// Whether rows may wait for room in the window once they are read. To claim
// some takes long enough for the window to run dry; to read them does not.
static bool
may_wait(const struct skr_pump *pump)
{
    return pump->options->claim == SKR_CLAIM_LEASED;
}

// Whether rows are read while the window is full, so that they are there when
// it has room. What waits at a gate must be found where it lies, and a row that
// is too large to be given beside others comes when there are none.
static bool
reads_ahead(const struct skr_pump *pump)
{
    return may_wait(pump) && !pump->in_vain &&
           !skr_gates_are_closed(&pump->gates);
}

// A larger row travels alone.
static bool
fits(const struct skr_pump *pump, const struct skr_slot *slot)
{
    struct room room = room_in_window(pump, slot);
    return room.rows == pump->options->in_flight ||
           (slot->batch.count <= room.rows && slot->batch.bytes <= room.bytes);
}

// How many rows may be read into that room.
static size_t
most_rows(const struct skr_pump *pump, struct room room)
{
    const struct skr_relay_options *options = pump->options;
    size_t most = room.bytes == 0 ? 0 : room.rows;
    if (options->limit > 0) {
        uint64_t taken = pump->finished + pump->open_rows;
        uint64_t left = options->limit > taken ? options->limit - taken : 0;
        most = left < most ? (size_t)left : most;
    }
    return most < pump->batch_capacity ? most : pump->batch_capacity;
}

// A slot to read into, and how much; NULL when there is no room.
static struct skr_slot *
take_slot(struct skr_pump *pump, struct room room, struct skr_read *read)
{
    size_t most = most_rows(pump, room);
    skr_waiting_forget(&pump->waiting, pump->position.low_water);
    *read = (struct skr_read){
        .max_rows = most,
        .max_bytes = room.bytes,
        .in_hand = pump->in_hand,
        .in_hand_count = skr_settler_list_rows(pump->settler, pump->in_hand),
        .waiting = pump->waiting.rows,
        .waiting_count = pump->waiting.count,
        .parked = pump->parked,
        .parked_count = skr_settler_list_parked(pump->settler, pump->parked),
    };
    struct skr_slot *slot =
        most == 0 ? NULL : skr_settler_take_free(pump->settler);
    if (pump->options->table->ops->keeps_keys) {
        read->unsettled = pump->unsettled;
        read->unsettled_count =
            skr_settler_list_unsettled(pump->settler, pump->unsettled);
    }
    if (!skr_pump_is_ordered(pump))
        return slot;
    skr_passing_review(&pump->passing, &pump->order);
    read->passed = (const char *const *)pump->passing.keys;
    read->passed_count = pump->passing.count;
    read->done = pump->done;
    read->done_count = skr_settler_list_done(pump->settler, pump->done);
    if (slot == NULL)
        skr_pump_shorten_chains(pump);
    return slot;
}

// A slot that was read into holds rows from now on, or goes back.
static bool
has_rows(struct skr_pump *pump, struct skr_slot *slot)
{
    if (slot->batch.count > 0) {
        pump->open_rows += slot->batch.count;
        return true;
    }
    pump->in_vain = true;
    skr_settler_put_back(pump->settler, slot);
    return false;
}

// *is_filled tells whether there are rows, even if something failed: what has
// its place may be sent from elsewhere, and the slot is in use.
static enum skr_code
fill(struct skr_pump *pump, struct skr_slot *slot, const struct skr_read *read,
     bool *is_filled, struct skr_error *error)
{
    enum skr_code code = skr_pump_take(pump, slot, read, error);
    skr_pump_tell_of_hidden(pump);
    if (code == SKR_OK)
        code = skr_pump_arrange(pump, slot, read, error);
    *is_filled = has_rows(pump, slot);
    if (code == SKR_OK)
        code = skr_pump_look_at_fresh(pump, *is_filled, error);
    return code;
}

static enum skr_code
send_all(struct skr_pump *pump, struct skr_slot *slot, struct skr_error *error)
{
    skr_failpoint("relay.read");
    return skr_pump_submit(pump, slot, error);
}

static bool
is_sweep_due(const struct skr_pump *pump)
{
    int64_t next_ms = pump->position.next_sweep_ms;
    return next_ms != 0 && next_ms <= skr_clock_ms();
}

// Rows that wait at a closed gate are read again by a sweep, each time in vain:
// while there are such, sweeps are few. Not where nothing else would find a row
// of a transaction that was long. One that is due begins when the pass under
// way is over.
static void
spare_sweep(struct skr_pump *pump)
{
    if (skr_gates_are_closed(&pump->gates) && !pump->position.horizon_hidden &&
        is_sweep_due(pump) && !skr_position_is_in_pass(&pump->position) &&
        skr_clock_ms() < pump->spare_until_ms)
        pump->position.next_sweep_ms = pump->spare_until_ms;
}

// Fills the slot as fill() does, and notes when a sweep has begun that was due.
static enum skr_code
fill_and_sweep(struct skr_pump *pump, struct skr_slot *slot,
               const struct skr_read *read, bool *is_filled,
               struct skr_error *error)
{
    spare_sweep(pump);
    bool was_due = is_sweep_due(pump);
    enum skr_code code = fill(pump, slot, read, is_filled, error);
    if (was_due && !is_sweep_due(pump) && skr_gates_are_closed(&pump->gates))
        pump->spare_until_ms = skr_clock_ms() + SPARE_SWEEP_MS;
    return code;
}

// The next rows of the queue, in *slot; NULL: there are none.
static enum skr_code
read_on(struct skr_pump *pump, struct skr_slot **slot, struct skr_error *error)
{
    struct room room = {pump->batch_capacity, pump->batch_bytes};
    struct skr_read read;
    bool is_filled = false;
    if (!reads_ahead(pump))
        room = room_in_window(pump, NULL);
    struct skr_slot *taken = take_slot(pump, room, &read);
    if (taken == NULL)
        return SKR_OK;
    enum skr_code code = fill_and_sweep(pump, taken, &read, &is_filled, error);
    if (code != SKR_OK)
        return code;
    pump->may_have_more = pump->position.has_more;
    if (is_filled)
        *slot = taken;
    if (is_filled || pump->may_have_more)
        return SKR_OK;
    if (skr_senders_pending(&pump->senders) == 0)
        skr_pump_end_trouble(pump);
    return skr_pump_look_for_foreign(pump, error);
}

static enum skr_code
read_and_send(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    struct skr_slot *slot = pump->ahead;
    enum skr_code code = SKR_OK;
    if (slot == NULL)
        code = read_on(pump, &slot, error);
    if (code != SKR_OK || slot == NULL)
        return code;
    pump->ahead = may_wait(pump) && !fits(pump, slot) ? slot : NULL;
    if (pump->ahead != NULL)
        return SKR_OK;
    *moved = true;
    return send_all(pump, slot, error);
}

// Partitions of which something lies behind the cursor.
static enum skr_code
read_heads(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    int64_t next_ms = skr_heads_next_ms(&pump->heads);
    struct skr_read read;
    if (next_ms == 0 || next_ms > skr_clock_ms())
        return SKR_OK;
    struct skr_slot *slot =
        take_slot(pump, room_in_window(pump, pump->ahead), &read);
    if (slot == NULL)
        return SKR_OK;
    enum skr_code code = skr_pump_read_heads(pump, slot, &read, error);
    bool is_filled = has_rows(pump, slot);
    if (code != SKR_OK || !is_filled)
        return code;
    *moved = true;
    return send_all(pump, slot, error);
}

// Whoever is alone on the queue knows that the row is gone.
static void
miss(struct skr_pump *pump, int64_t row)
{
    if (pump->options->claim == SKR_CLAIM_NONE)
        skr_gates_forget(&pump->gates, row);
    else
        skr_gates_miss(&pump->gates, row);
}

static enum skr_code
try_gate(struct skr_pump *pump, struct skr_slot *slot, struct skr_read *read,
         int64_t row, struct skr_error *error)
{
    bool is_there = false;
    read->only = &row;
    enum skr_code code = fill(pump, slot, read, &is_there, error);
    if (code == SKR_OK && is_there)
        return send_all(pump, slot, error);
    if (code == SKR_OK)
        miss(pump, row);
    return code;
}

// Lets one message try at each gate whose time has come.
static enum skr_code
try_gates(struct skr_pump *pump, struct skr_error *error)
{
    int64_t next_ms = skr_gates_next_ms(&pump->gates);
    struct skr_read read;
    struct skr_slot *slot =
        next_ms == 0 || next_ms > skr_clock_ms()
            ? NULL
            : take_slot(pump, room_in_window(pump, pump->ahead), &read);
    enum skr_code code = SKR_OK;
    int64_t row = 0;
    if (slot != NULL && skr_gates_next_try(&pump->gates, &row))
        code = try_gate(pump, slot, &read, row, error);
    else if (slot != NULL)
        skr_settler_put_back(pump->settler, slot);
    pump->sweeps_anew |= skr_settler_release_parked(pump->settler);
    // What is being settled would be passed over once more. Where a row holds
    // back its key nothing else is read from now on, until that is over.
    bool keeps_keys = pump->options->table->ops->keeps_keys;
    bool sweeps =
        pump->sweeps_anew && (keeps_keys || skr_settler_wait(pump->settler, 0));
    pump->sweeps_anew = pump->sweeps_anew && !sweeps;
    if (skr_gates_have_opened(&pump->gates) || sweeps) {
        pump->position.next_sweep_ms = skr_clock_ms();
        pump->spare_until_ms = 0;
        pump->may_have_more = true;
        pump->reads_anew = keeps_keys;
    }
    return code;
}

void
skr_pump_give_back(struct skr_pump *pump)
{
    struct skr_slot *slot = pump->ahead;
    if (slot == NULL)
        return;
    // Those that cannot be understood have not been judged.
    for (size_t i = 0; i < slot->batch.count; i++)
        slot->batch.items[i].state = SKR_READ;
    pump->ahead = NULL;
    skr_pump_close_slot(pump, slot);
}

// A row that was refused holds back those of its key once that is written, and
// what waited at a gate may be in hand: until then others would pass.
static enum skr_code
begin_anew(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    pump->may_have_more = true;
    skr_pump_give_back(pump);
    if (!skr_pump_is_quiet(pump))
        return SKR_OK;
    pump->reads_anew = false;
    skr_waiting_clear(&pump->waiting);
    return table->ops->start(table, pump->db, &pump->position, error);
}

enum skr_code
skr_pump_read(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    enum skr_code code =
        pump->reads_anew ? begin_anew(pump, error) : try_gates(pump, error);
    if (code != SKR_OK || pump->reads_anew)
        return code;
    code = read_heads(pump, moved, error);
    if (code == SKR_OK && (pump->may_have_more || pump->ahead != NULL))
        code = read_and_send(pump, moved, error);
    return code;
}
