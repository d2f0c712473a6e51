// SPDX-License-Identifier: MIT
#include "outbox/pump.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"

enum {
    OUTCOME_WAIT_MS = 20,
    LOOK_AROUND_MS = 60000,
    SPARE_SWEEP_MS = 300000,
    ASK_AGAIN_MS = 1000,  // whether it is over
    FRESH_MS = 10000,
};

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
    pump->next_foreign_ms = now + LOOK_AROUND_MS;
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

// A relay that has the queue to itself, and finds that it has not, would send
// what the other one sends as well.
static enum skr_code
look_for_others(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int64_t now = skr_clock_ms();
    if (table->ops->leased == NULL || pump->said_others ||
        pump->options->claim != SKR_CLAIM_NONE || now < pump->next_others_ms)
        return SKR_OK;
    pump->next_others_ms = now + LOOK_AROUND_MS;
    uint64_t count = 0;
    enum skr_code code =
        table->ops->leased(table, pump->db, &pump->position, &count, error);
    if (code != SKR_OK || count == 0)
        return code;
    pump->said_others = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.not_alone",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", "another worker claims rows of this queue; "
                                 "stop it, or set `claim: lease` on this "
                                 "transport"));
    return SKR_OK;
}

// Somebody's open transaction holds back all that was written after it began.
static enum skr_code
look_for_writer(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    const struct skr_position *position = &pump->position;
    int64_t waited_ms = skr_clock_ms() - position->undecided_ms;
    struct skr_writer writer;
    if (position->undecided_ms == 0 ||
        position->undecided_row == pump->said_undecided ||
        waited_ms < pump->options->long_open_ms)
        return SKR_OK;
    enum skr_code code =
        table->ops->find_writer(table, pump->db, &writer, error);
    if (code != SKR_OK)
        return code;
    pump->said_undecided = position->undecided_row;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.held_back",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("row", position->undecided_row),
            SKR_LOG_NUMBER("pid", writer.process),
            SKR_LOG_NUMBER("age_s",
                           writer.age_s > 0 ? writer.age_s : waited_ms / 1000),
            SKR_LOG_TEXT("writer", writer.name),
            SKR_LOG_TEXT("cure", "commit_order waits for this transaction: end "
                                 "it, or let it write and commit sooner"));
    return SKR_OK;
}

enum skr_code
skr_pump_look_for_skew(struct skr_pump *pump, bool is_fresh,
                       struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int hours = 0;
    if (pump->knows_skew || pump->said_skew || table->ops->skew == NULL)
        return SKR_OK;
    enum skr_code code = table->ops->skew(table, pump->db, &hours, error);
    if (code != SKR_OK)
        return code;
    pump->knows_skew = is_fresh;
    if (hours == 0 || (hours < 0 && !is_fresh))
        return SKR_OK;
    pump->said_skew = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.clock_skew",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("hours", hours < 0 ? -hours : hours),
            SKR_LOG_TEXT("direction", hours < 0 ? "behind" : "ahead"),
            SKR_LOG_TEXT("cure", "the newest row is of a writer in another "
                                 "zone: set time_zone of this transport to "
                                 "that zone"));
    return SKR_OK;
}

// A slot to read into, and how much; NULL when the window is full.
static struct skr_slot *
take_slot(struct skr_pump *pump, struct skr_read *read)
{
    size_t in_hand = skr_settler_list_rows(pump->settler, pump->in_hand);
    size_t bytes = bytes_in_hand(pump);
    size_t room = room_for_rows(pump, in_hand, bytes);
    skr_settler_take_left(pump->settler, &pump->waiting);
    skr_waiting_forget(&pump->waiting, pump->position.low_water);
    *read = (struct skr_read){
        .max_rows = room,
        .max_bytes = room == 0 ? 0 : pump->options->in_flight_bytes - bytes,
        .in_hand = pump->in_hand,
        .in_hand_count = in_hand,
        .waiting = pump->waiting.rows,
        .waiting_count = pump->waiting.count,
        .in_vain = pump->in_vain,
    };
    struct skr_slot *slot =
        room == 0 ? NULL : skr_settler_take_free(pump->settler);
    if (!skr_pump_is_ordered(pump))
        return slot;
    read->done = pump->done;
    read->done_count = skr_settler_list_done(pump->settler, pump->done);
    if (slot == NULL)
        skr_pump_shorten_chains(pump);
    return slot;
}

// Sends what was read. A slot without rows goes back.
static enum skr_code
submit(struct skr_pump *pump, struct skr_slot *slot, enum skr_code code,
       struct skr_error *error)
{
    if (slot->batch.count == 0) {
        pump->in_vain = true;
        // What was claimed, and cannot be sent now, is let go.
        if (slot->db != NULL && slot->batch.claim == SKR_CLAIM_LOCKED)
            skr_db_rollback(slot->db);
        skr_settler_put_back(pump->settler, slot);
        return code;
    }
    pump->open_rows += slot->batch.count;
    // What has its place may be sent from elsewhere: the slot is in use.
    if (code != SKR_OK)
        return code;
    skr_failpoint("relay.read");
    return skr_pump_submit(pump, slot, error);
}

// A row beyond all that there were when nothing was left has just been written.
// It is looked at before it is sent: once it is, it may be gone any moment.
static enum skr_code
look_at_fresh(struct skr_pump *pump, bool moved, struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (!moved && !pump->position.has_more) {
        pump->empty_ms = now;
        pump->empty_cursor = pump->position.cursor;
    }
    if (!moved || pump->empty_ms == 0 || now - pump->empty_ms > FRESH_MS ||
        pump->position.cursor <= pump->empty_cursor)
        return SKR_OK;
    return skr_pump_look_for_skew(pump, true, error);
}

// Order is kept all the same, at a price: the database is asked for more.
static void
tell_of_hidden(struct skr_pump *pump)
{
    const struct skr_table_ops *ops = pump->options->table->ops;
    if (!pump->position.horizon_hidden || pump->said_hidden ||
        (ops->read_partitions == NULL && !ops->keeps_keys))
        return;
    pump->said_hidden = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.right_missing",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_TEXT("right", "PROCESS"),
            SKR_LOG_TEXT("cure", "order is kept more cheaply by one who sees "
                                 "open transactions: GRANT PROCESS ON *.* TO "
                                 "this user of the database, and start the "
                                 "relay again"));
}

// *moved tells whether rows came that can be sent.
static enum skr_code
fill_and_submit(struct skr_pump *pump, struct skr_slot *slot,
                const struct skr_read *read, bool *moved,
                struct skr_error *error)
{
    enum skr_code code = skr_pump_take(pump, slot, read, error);
    tell_of_hidden(pump);
    if (code == SKR_OK)
        code = skr_pump_arrange(pump, slot, read, error);
    *moved = code == SKR_OK && slot->batch.count > 0;
    if (code == SKR_OK)
        code = look_at_fresh(pump, *moved, error);
    return submit(pump, slot, code, error);
}

// Rows that wait at a closed gate are read again by a sweep, each time in vain:
// while there are such, sweeps are few. Not where nothing else would find a row
// of a transaction that was long.
static void
spare_sweeps(struct skr_pump *pump)
{
    int64_t now = skr_clock_ms();
    if (!skr_gates_are_closed(&pump->gates) || pump->position.horizon_hidden ||
        pump->position.next_sweep_ms == 0 || pump->position.next_sweep_ms > now)
        return;
    if (now < pump->spare_until_ms)
        pump->position.next_sweep_ms = pump->spare_until_ms;
    else
        pump->spare_until_ms = now + SPARE_SWEEP_MS;
}

static enum skr_code
read_and_submit(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    struct skr_read read;
    struct skr_slot *slot = take_slot(pump, &read);
    *moved = false;
    if (slot == NULL)
        return SKR_OK;
    spare_sweeps(pump);
    enum skr_code code = fill_and_submit(pump, slot, &read, moved, error);
    pump->may_have_more = (code == SKR_OK || *moved) && pump->position.has_more;
    if (code != SKR_OK || *moved || pump->may_have_more)
        return code;
    skr_pump_end_trouble(pump);
    return look_for_foreign(pump, error);
}

// Partitions of which something lies behind the cursor.
static enum skr_code
read_heads(struct skr_pump *pump, bool *moved, struct skr_error *error)
{
    int64_t next_ms = skr_heads_next_ms(&pump->heads);
    struct skr_read read;
    if (next_ms == 0 || next_ms > skr_clock_ms())
        return SKR_OK;
    struct skr_slot *slot = take_slot(pump, &read);
    if (slot == NULL)
        return SKR_OK;
    enum skr_code code = skr_pump_read_heads(pump, slot, &read, error);
    *moved = code == SKR_OK && slot->batch.count > 0;
    return submit(pump, slot, code, error);
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

// Lets one message try at each gate whose time has come.
static enum skr_code
try_gates(struct skr_pump *pump, struct skr_error *error)
{
    int64_t next_ms = skr_gates_next_ms(&pump->gates);
    struct skr_read read;
    struct skr_slot *slot = next_ms == 0 || next_ms > skr_clock_ms()
                                ? NULL
                                : take_slot(pump, &read);
    enum skr_code code = SKR_OK;
    int64_t row = 0;
    if (slot != NULL && skr_gates_next_try(&pump->gates, &row)) {
        bool is_there = false;
        read.only = &row;
        code = fill_and_submit(pump, slot, &read, &is_there, error);
        if (code == SKR_OK && !is_there)
            miss(pump, row);
    } else if (slot != NULL) {
        skr_settler_put_back(pump->settler, slot);
    }
    if (skr_gates_have_opened(&pump->gates)) {
        pump->position.next_sweep_ms = skr_clock_ms();
        pump->spare_until_ms = 0;
        pump->may_have_more = true;
        pump->reads_anew = pump->options->table->ops->keeps_keys;
    }
    return code;
}

bool
skr_pump_is_quiet(struct skr_pump *pump)
{
    return skr_senders_pending(&pump->senders) == 0 &&
           skr_settler_find_open(pump->settler) == NULL &&
           skr_settler_wait(pump->settler, 0);
}

// A row that was refused holds back those of its key once that is written, and
// what waited at a gate may be in hand: until then others would pass.
static enum skr_code
begin_anew(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    pump->may_have_more = true;
    if (!skr_pump_is_quiet(pump))
        return SKR_OK;
    pump->reads_anew = false;
    skr_waiting_clear(&pump->waiting);
    return table->ops->start(table, pump->db, &pump->position, error);
}

static enum skr_code
read_all(struct skr_pump *pump, bool *moved, bool *moved_heads,
         struct skr_error *error)
{
    enum skr_code code =
        pump->reads_anew ? begin_anew(pump, error) : try_gates(pump, error);
    if (code != SKR_OK || pump->reads_anew)
        return code;
    code = read_heads(pump, moved_heads, error);
    if (code == SKR_OK && pump->may_have_more)
        code = read_and_submit(pump, moved, error);
    return code;
}

// The earlier of two times, of which 0 is never.
static int64_t
earlier(int64_t one, int64_t other)
{
    return one == 0 || (other > 0 && other < one) ? other : one;
}

// When there is something to read, as far as is known.
static int64_t
next_read_ms(struct skr_pump *pump)
{
    int64_t next_ms = earlier(skr_position_next_ms(&pump->position),
                              skr_gates_next_ms(&pump->gates));
    return earlier(next_ms, skr_heads_next_ms(&pump->heads));
}

static uint32_t
idle_time_ms(struct skr_pump *pump)
{
    int64_t now = skr_clock_ms();
    uint32_t longest_ms = pump->options->max_idle_ms;
    if (pump->options->is_over != NULL && longest_ms > ASK_AGAIN_MS)
        longest_ms = ASK_AGAIN_MS;
    int64_t until = earlier(now + longest_ms, next_read_ms(pump));
    until = earlier(until, skr_pump_next_share_ms(pump));
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
    int64_t next_ms = next_read_ms(pump);
    if (code == SKR_OK || (next_ms > 0 && next_ms <= skr_clock_ms()))
        pump->may_have_more = true;
    return SKR_OK;
}

static bool
is_at_limit(const struct skr_pump *pump)
{
    return pump->options->limit > 0 && pump->finished >= pump->options->limit;
}

bool
skr_pump_leaves_some(const struct skr_pump *pump)
{
    return pump->options->stop_when_empty && !is_at_limit(pump) &&
           !skr_pump_is_over(pump) && skr_gates_are_closed(&pump->gates);
}

// What others hold back is committed, and will go.
static bool
is_held_back(const struct skr_pump *pump)
{
    return pump->position.undecided_ms != 0 || pump->position.is_held;
}

static bool
is_finished(const struct skr_pump *pump)
{
    const struct skr_relay_options *options = pump->options;
    bool empty = options->stop_when_empty && !pump->may_have_more &&
                 pump->heads.count == 0 && !is_held_back(pump);
    return (is_at_limit(pump) || empty) && skr_settler_wait(pump->settler, 0);
}

// One turn: read if there may be something, then let outcomes come in, then
// wait for whichever comes next.
static enum skr_code
turn(struct skr_pump *pump, struct skr_error *error)
{
    bool moved = false, moved_heads = false;
    // Here too, not only before sending: the session that holds the lock must
    // be heard of while the window is full and nothing is read.
    bool is_idle = skr_senders_pending(&pump->senders) == 0;
    enum skr_code code = skr_pump_check_lock(pump, is_idle, error);
    if (code == SKR_OK)
        code = skr_pump_keep(pump, error);
    if (code == SKR_OK)
        code = look_for_others(pump, error);
    if (code == SKR_OK)
        code = look_for_writer(pump, error);
    if (code == SKR_OK)
        code = skr_pump_share(pump, error);
    if (code == SKR_OK && skr_pump_may_read(pump))
        code = read_all(pump, &moved, &moved_heads, error);
    if (code != SKR_OK)
        return code;
    moved = moved || moved_heads;
    if (skr_senders_pending(&pump->senders) > 0) {
        code = skr_pump_collect(pump, moved ? 0 : OUTCOME_WAIT_MS, error);
        if (code == SKR_OK && !pump->may_have_more)
            code = wait_for_rows(pump, 0, error);
        return code;
    }
    if (moved)
        return SKR_OK;
    // A window that is full of settling batches moves when one is settled, and
    // a relay that ends when it is empty ends when all are.
    if (pump->may_have_more ||
        (pump->options->stop_when_empty && !is_held_back(pump))) {
        skr_settler_wait(pump->settler, OUTCOME_WAIT_MS);
        return SKR_OK;
    }
    // A broker wants to be heard of while there is nothing to send.
    code = skr_pump_collect(pump, 0, error);
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
    pump->is_draining = true;
    while (skr_senders_pending(&pump->senders) > 0 && skr_clock_ms() < end)
        if (skr_pump_collect(pump, OUTCOME_WAIT_MS, &error) != SKR_OK)
            break;
    skr_senders_close(&pump->senders);
    for (struct skr_slot *slot;
         (slot = skr_settler_find_open(pump->settler)) != NULL;)
        skr_pump_close_slot(pump, slot);
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
        return skr_pump_check_lock(pump, false, error);
    }
    enum skr_code code = turn(pump, error);
    *finished = code == SKR_OK && skr_senders_pending(&pump->senders) == 0 &&
                is_finished(pump);
    return code;
}

enum skr_code
skr_pump_run(struct skr_pump *pump, struct skr_error *error)
{
    pump->settles_first = true;
    pump->reads_anew = false;
    pump->may_have_more = true;
    pump->lost = (struct skr_error){.code = SKR_OK};
    skr_gates_begin(&pump->gates);
    skr_waiting_clear(&pump->waiting);
    skr_pump_begin_order(pump);
    bool finished = false;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !finished)
        code = go_on(pump, &finished, error);
    drain(pump);
    return code;
}
