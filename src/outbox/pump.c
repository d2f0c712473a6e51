// SPDX-License-Identifier: MIT
#include "outbox/pump.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"

enum {
    LOCK_CHECK_MS = 3000,  // how old the proof of ownership may grow
    OUTCOMES_AT_ONCE = 64,
    OUTCOME_WAIT_MS = 20,
    FOREIGN_LOOK_MS = 60000,
    ROUTE_PAUSE_MS = 5000,
    ASK_AGAIN_MS = 1000,  // whether it is over
};

// A ticket is a slot and an item in it.
static uint64_t
ticket_of(const struct skr_pump *pump, const struct skr_slot *slot, size_t item)
{
    return (uint64_t)(slot - pump->settler->slots) << 32 | item;
}

// A relay that was frozen may have lost its lock without knowing: nothing goes
// to the broker on a proof of ownership that has grown old.
static enum skr_code
check_lock(struct skr_pump *pump, struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (now - pump->lock_seen_ms < LOCK_CHECK_MS)
        return SKR_OK;
    enum skr_code code = pump->db->ops->check_lock(pump->db, error);
    if (code == SKR_OK)
        pump->lock_seen_ms = now;
    return code;
}

static bool
has_outcome(const struct skr_batch_item *item)
{
    return item->state != SKR_READ && item->state != SKR_SENT;
}

// A connection that opens proves little: a full disk lets rows be read, too.
// Trouble is over when a message got through, or none is left.
static void
end_trouble(struct skr_pump *pump)
{
    if (pump->works)
        return;
    pump->works = true;
    skr_trouble_end(&pump->trouble, &pump->options->log, "relay.recovered",
                    pump->options->name);
}

static void
close_slot(struct skr_pump *pump, struct skr_slot *slot)
{
    size_t outcomes = 0;
    for (size_t i = 0; i < slot->batch.count; i++)
        outcomes += has_outcome(&slot->batch.items[i]);
    pump->open_rows -= slot->batch.count;
    pump->finished += outcomes;
    if (outcomes > 0)
        skr_settler_hand_over(pump->settler, slot);
    else
        skr_settler_put_back(pump->settler, slot);
}

static void
refuse(const struct skr_pump *pump, struct skr_batch_item *item,
       const struct skr_error *reason)
{
    const struct skr_retry_policy *retry = &pump->options->retry;
    item->reason = *reason;
    if (item->envelope.retry_count >= retry->max_retries) {
        item->state = SKR_HOPELESS;
        return;
    }
    item->state = SKR_RETRY_LATER;
    // Any number that differs from row to row and time to time will do.
    uint32_t jitter = (uint32_t)(item->row ^ skr_clock_wall_us()) * 2654435761u;
    item->delay_ms =
        skr_retry_delay_ms(retry, item->envelope.retry_count + 1, jitter);
}

static enum skr_code
submit_item(struct skr_pump *pump, struct skr_slot *slot, size_t index,
            struct skr_error *error)
{
    struct skr_batch_item *item = &slot->batch.items[index];
    enum skr_code code = check_lock(pump, error);
    if (code != SKR_OK)
        return code;
    struct skr_route route = {0};
    if (pump->options->routes != NULL)
        code = skr_route_find(pump->options->routes, &slot->batch.arena,
                              &item->envelope, &route, error);
    if (code == SKR_OK)
        code = pump->broker->ops->submit(pump->broker, &item->envelope.message,
                                         pump->options->routes == NULL ? NULL
                                                                       : &route,
                                         ticket_of(pump, slot, index), error);
    if (code == SKR_OK) {
        item->state = SKR_SENT;
        slot->batch.pending++;
        pump->pending++;
        return SKR_OK;
    }
    if (error->remedy != SKR_GIVE_UP)
        return code;
    // Refused before it was sent: this message's own fault.
    item->state = SKR_HOPELESS;
    item->reason = *error;
    return SKR_OK;
}

static enum skr_code
submit_batch(struct skr_pump *pump, struct skr_slot *slot,
             struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < slot->batch.count && code == SKR_OK; i++)
        if (slot->batch.items[i].state == SKR_READ)
            code = submit_item(pump, slot, i, error);
    skr_failpoint("relay.submitted");
    if (slot->batch.pending == 0)
        close_slot(pump, slot);
    return code;
}

static size_t
bytes_in_hand(struct skr_pump *pump)
{
    size_t bytes = 0;
    pthread_mutex_lock(&pump->settler->lock);
    for (size_t i = 0; i < SKR_MAX_SLOTS; i++)
        if (pump->settler->slots[i].state != SKR_SLOT_FREE)
            bytes += pump->settler->slots[i].batch.bytes;
    pthread_mutex_unlock(&pump->settler->lock);
    return bytes;
}

// How many rows may be read now; 0 when the window is full.
static size_t
room_for_rows(const struct skr_pump *pump, size_t rows_in_hand, size_t bytes)
{
    const struct skr_relay_options *options = pump->options;
    if (rows_in_hand >= options->in_flight || bytes >= options->in_flight_bytes)
        return 0;
    size_t room = options->in_flight - rows_in_hand;
    if (options->limit > 0) {
        uint64_t taken = pump->finished + pump->open_rows;
        uint64_t left = options->limit > taken ? options->limit - taken : 0;
        room = left < room ? (size_t)left : room;
    }
    return room < pump->batch_capacity ? room : pump->batch_capacity;
}

// Rows that nobody publishes look like a relay that hangs: said once, with the
// cure. Looked for when there is nothing else to do.
static enum skr_code
look_for_foreign(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int64_t now = skr_clock_ms();
    if (table->ops->foreign == NULL || pump->said_foreign ||
        now < pump->next_foreign_ms)
        return SKR_OK;
    pump->next_foreign_ms = now + FOREIGN_LOOK_MS;
    uint64_t count = 0;
    const char *cure = "";
    enum skr_code code =
        table->ops->foreign(table, pump->db, &count, &cure, error);
    if (code != SKR_OK || count == 0)
        return code;
    pump->said_foreign = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.foreign_rows",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("rows", count), SKR_LOG_TEXT("cure", cure));
    return SKR_OK;
}

// Reads and submits one batch if there is room. *moved tells whether rows came.
static enum skr_code
read_and_submit(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    *moved = false;
    size_t in_hand = skr_settler_list_rows(pump->settler, pump->in_hand);
    size_t bytes = bytes_in_hand(pump);
    size_t room = room_for_rows(pump, in_hand, bytes);
    struct skr_slot *slot =
        room == 0 ? NULL : skr_settler_take_free(pump->settler);
    if (slot == NULL)
        return SKR_OK;
    const struct skr_read read = {
        .max_rows = room,
        .max_bytes = pump->options->in_flight_bytes - bytes,
        .in_hand = pump->in_hand,
        .in_hand_count = in_hand,
    };
    enum skr_code code = pump->options->table->ops->read(
        pump->options->table, pump->db, &pump->position, &read, &slot->batch,
        error);
    pump->may_have_more = code == SKR_OK && pump->position.has_more;
    if (code != SKR_OK || slot->batch.count == 0) {
        skr_settler_put_back(pump->settler, slot);
        if (code != SKR_OK || pump->may_have_more)
            return code;
        end_trouble(pump);
        return look_for_foreign(pump, error);
    }
    skr_failpoint("relay.read");
    *moved = true;
    pump->open_rows += slot->batch.count;
    return submit_batch(pump, slot, error);
}

// One mistake in a route must not fail all that waits for it: the rows stay as
// they are and are looked at again after a while.
static void
hold_route(struct skr_pump *pump, const struct skr_error *reason)
{
    int64_t again_ms = skr_clock_ms() + ROUTE_PAUSE_MS;
    skr_trouble_report(&pump->route_trouble, &pump->options->log,
                       "relay.route_closed", pump->options->name, reason);
    if (pump->position.next_sweep_ms > again_ms)
        pump->position.next_sweep_ms = again_ms;
}

static void
apply(struct skr_pump *pump, const struct skr_outcome *outcome)
{
    struct skr_slot *slot = &pump->settler->slots[outcome->ticket >> 32];
    struct skr_batch_item *item =
        &slot->batch.items[outcome->ticket & UINT32_MAX];
    switch (outcome->fate) {
    case SKR_CONFIRMED:
        item->state = SKR_DONE;
        end_trouble(pump);
        break;
    case SKR_REFUSED_ONCE: refuse(pump, item, &outcome->reason); break;
    case SKR_REFUSED_FOR_GOOD:
        item->state = SKR_HOPELESS;
        item->reason = outcome->reason;
        break;
    case SKR_ROUTE_CLOSED:
        item->state = SKR_READ;
        hold_route(pump, &outcome->reason);
        break;
    case SKR_UNCERTAIN:
        item->state = SKR_READ;
        if (pump->lost.code == SKR_OK)
            pump->lost = outcome->reason;
        if (pump->lost.code == SKR_OK)
            skr_fail(&pump->lost, SKR_UNAVAILABLE, SKR_RECONNECT,
                     "the broker did not say what became of a message");
        break;
    }
    pump->pending--;
    if (--slot->batch.pending == 0)
        close_slot(pump, slot);
}

static enum skr_code
collect(struct skr_pump *pump, uint32_t timeout_ms, struct skr_error *error)
{
    struct skr_outcome outcomes[OUTCOMES_AT_ONCE];
    enum skr_code code = SKR_OK;
    size_t count;
    do {
        count = 0;
        code = pump->broker->ops->outcomes(pump->broker, outcomes,
                                           SKR_COUNT_OF(outcomes), &count,
                                           timeout_ms, error);
        if (count > 0)
            skr_failpoint("relay.confirmed");
        for (size_t i = 0; i < count; i++)
            apply(pump, &outcomes[i]);
        timeout_ms = 0;
    } while (code == SKR_OK && count == SKR_COUNT_OF(outcomes));
    if (code == SKR_TIMEOUT)
        return SKR_OK;
    if (pump->lost.code == SKR_OK)
        return code;
    *error = pump->lost;
    error->remedy = SKR_RECONNECT;
    return error->code;
}

static uint32_t
idle_time_ms(const struct skr_pump *pump)
{
    int64_t now = skr_clock_ms();
    uint32_t longest_ms = pump->options->max_idle_ms;
    if (pump->options->is_over != NULL && longest_ms > ASK_AGAIN_MS)
        longest_ms = ASK_AGAIN_MS;
    int64_t until = now + longest_ms;
    if (pump->position.next_due_ms > 0 && pump->position.next_due_ms < until)
        until = pump->position.next_due_ms;
    if (pump->position.next_sweep_ms > 0 &&
        pump->position.next_sweep_ms < until)
        until = pump->position.next_sweep_ms;
    return until > now ? (uint32_t)(until - now) : 0;
}

// Sleeps until there may be rows. The time of those that wait is up, or a
// sweep is due, when it ends by time-out: then the next read looks for them.
static enum skr_code
wait_for_rows(struct skr_pump *pump, uint32_t timeout_ms,
              struct skr_error *error)
{
    enum skr_code code =
        pump->db->ops->wait(pump->db, pump->stop_fd, timeout_ms, error);
    if (code != SKR_OK && code != SKR_TIMEOUT)
        return code;
    if (code == SKR_OK || idle_time_ms(pump) == 0)
        pump->may_have_more = true;
    return SKR_OK;
}

static bool
is_finished(const struct skr_pump *pump)
{
    const struct skr_relay_options *options = pump->options;
    bool at_limit = options->limit > 0 && pump->finished >= options->limit;
    bool empty = options->stop_when_empty && !pump->may_have_more;
    return (at_limit || empty) && skr_settler_wait(pump->settler, 0);
}

// One turn: read if there may be something, then let outcomes come in, then
// wait for whichever comes next.
static enum skr_code
turn(struct skr_pump *pump, struct skr_error *error)
{
    bool moved = false;
    // Here too, not only before sending: the session that holds the lock must
    // be heard of while the window is full and nothing is read.
    enum skr_code code = check_lock(pump, error);
    if (code == SKR_OK && pump->may_have_more)
        code = read_and_submit(pump, &moved, error);
    if (code != SKR_OK)
        return code;
    if (pump->pending > 0) {
        code = collect(pump, moved ? 0 : OUTCOME_WAIT_MS, error);
        if (code == SKR_OK && !pump->may_have_more)
            code = wait_for_rows(pump, 0, error);
        return code;
    }
    if (moved)
        return SKR_OK;
    // A window that is full of settling batches moves when one is settled, and
    // a relay that ends when it is empty ends when all are.
    if (pump->may_have_more || pump->options->stop_when_empty) {
        skr_settler_wait(pump->settler, OUTCOME_WAIT_MS);
        return SKR_OK;
    }
    // A broker wants to be heard of while there is nothing to send.
    code = collect(pump, 0, error);
    if (code != SKR_OK)
        return code;
    return wait_for_rows(pump, idle_time_ms(pump), error);
}

// Lets what was sent come to its outcome; what has none by then is forgotten
// and its row read again by whoever comes next. The broker goes first: it
// borrows messages until then.
static void
drain(struct skr_pump *pump)
{
    int64_t end = pump->stop_by_ms > 0
                      ? pump->stop_by_ms
                      : skr_clock_ms() + pump->options->stop_timeout_ms;
    struct skr_error error = {0};
    while (pump->pending > 0 && skr_clock_ms() < end)
        if (collect(pump, OUTCOME_WAIT_MS, &error) != SKR_OK)
            break;
    skr_broker_close(pump->broker);
    pump->broker = NULL;
    for (struct skr_slot *slot;
         (slot = skr_settler_find_open(pump->settler)) != NULL;)
        close_slot(pump, slot);
    pump->pending = 0;
}

bool
skr_pump_is_over(const struct skr_pump *pump)
{
    const struct skr_relay_options *options = pump->options;
    return options->is_over != NULL && options->is_over(options->is_over_user);
}

// One turn, or the end of it all.
static enum skr_code
go_on(struct skr_pump *pump, bool *finished, struct skr_error *error)
{
    if (skr_clock_sleep(pump->stop_fd, 0)) {
        pump->stop_by_ms = skr_clock_ms() + pump->options->stop_timeout_ms;
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
    *finished = skr_pump_is_over(pump);
    if (*finished)
        return SKR_OK;
    // Rows of an earlier session that came to no outcome lie among those that
    // are still being settled; read now, others would pass them.
    if (pump->settles_first) {
        pump->settles_first = !skr_settler_wait(pump->settler, 100);
        return check_lock(pump, error);
    }
    enum skr_code code = turn(pump, error);
    *finished = code == SKR_OK && pump->pending == 0 && is_finished(pump);
    return code;
}

enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error)
{
    pump->settles_first = true;
    pump->may_have_more = true;
    pump->lost = (struct skr_error){.code = SKR_OK};
    pump->lock_seen_ms = skr_clock_ms();
    bool finished = false;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !finished)
        code = go_on(pump, &finished, error);
    drain(pump);
    return code;
}
