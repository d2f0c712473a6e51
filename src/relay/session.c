// SPDX-License-Identifier: MIT
// The relay's loop.

#include "relay/session.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "relay/tally.h"

#include <stdlib.h>

enum {
    RESULT_WAIT_MS = 20,
    SETTLE_WAIT_MS = 100,
    ASK_AGAIN_MS = 1000,  // whether it is over
    SETTLING_PAUSE_MS = 20,
    MOST_FAILURE_LINES = 5,  // of one batch
};

// A connection that opens proves little: a full disk lets rows be read, too.
// Trouble is over when a message got through, or none is left.
void
skr_session_end_trouble(struct skr_session *session)
{
    if (session->works)
        return;
    session->works = true;
    skr_trouble_end(&session->trouble, &session->options->log,
                    "relay.recovered", session->options->name);
}

bool
skr_session_is_over(const struct skr_session *session)
{
    const struct skr_relay_settings *options = session->options;
    return options->is_over != NULL && options->is_over(options->is_over_user);
}

bool
skr_session_is_settling(struct skr_session *session)
{
    size_t at = 0;
    return skr_flight_next(&session->dispatcher.flight, SKR_BATCH_SETTLING,
                           &at) != NULL;
}

// Nothing is read, at the broker or being settled.
static bool
is_quiet(struct skr_session *session)
{
    return skr_dispatcher_pending(&session->dispatcher) == 0 &&
           skr_flight_count_open(&session->dispatcher.flight) == 0 &&
           !skr_session_is_settling(session);
}

static bool
is_at_limit(const struct skr_session *session)
{
    return session->options->limit > 0 &&
           session->dispatcher.decided >= session->options->limit;
}

bool
skr_session_leaves_some(const struct skr_session *session)
{
    return session->options->stop_when_empty && !is_at_limit(session) &&
           !skr_session_is_over(session) &&
           skr_breakers_any_open(&session->dispatcher.breakers);
}

// Settling: what comes back from the settler.

static void
count_batch(struct skr_session *session, const struct skr_batch *batch)
{
    struct skr_relay_counts *counts = &session->counts;
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        bool is_written = item->write != SKR_WRITE_REFUSED;
        counts->published += item->state == SKR_DONE;
        counts->retried += is_written && item->state == SKR_RETRY_LATER;
        counts->failed += is_written && item->state == SKR_HOPELESS;
        counts->blocked += is_written && item->state == SKR_BLOCKED;
    }
}

static void
tell_counts(const struct skr_session *session)
{
    struct skr_relay_tally *tally = session->options->tally;
    const struct skr_relay_counts *counts = &session->counts;
    if (tally == NULL)
        return;
    atomic_store(&tally->parked, skr_parked_count(&session->parking.parked));
    atomic_store(&tally->published, counts->published);
    atomic_store(&tally->retried, counts->retried);
    atomic_store(&tally->failed, counts->failed);
    atomic_store(&tally->blocked, counts->blocked);
}

// Nothing of the partition is sent before a person acts.
static void
log_blocked(struct skr_session *session, const struct skr_batch_item *item,
            bool measures)
{
    const struct skr_relay_settings *options = session->options;
    const struct skr_store *table = options->table;
    uint64_t length = 0;
    // Of no weight: if it cannot be asked, or would be for many partitions, the
    // rest is said all the same.
    if (!measures || session->db == NULL ||
        table->partitions->measure(table, session->db, item->partition_key,
                                   &length, NULL) != SKR_OK)
        length = 0;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.partition_blocked",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_TEXT("partition", item->partition_key),
            SKR_LOG_NUMBER("row", item->row), SKR_LOG_NUMBER("length", length),
            SKR_LOG_TEXT("error", item->reason.text),
            SKR_LOG_TEXT("cure", "mend the cause and run `skirnir partition "
                                 "retry`, or `skirnir partition skip`"));
}

// Each by itself while they are few; a batch full of them is one event.
static void
log_failures(struct skr_session *session, const struct skr_batch *batch)
{
    const struct skr_relay_settings *options = session->options;
    size_t failed = 0, blocked = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (item->write == SKR_WRITE_REFUSED)
            continue;
        if (item->state == SKR_BLOCKED)
            log_blocked(session, item, ++blocked <= MOST_FAILURE_LINES);
        if (item->state != SKR_HOPELESS || ++failed > MOST_FAILURE_LINES)
            continue;
        skr_log(&options->log, SKR_LOG_WARNING, "relay.failed",
                SKR_LOG_TEXT("name", options->name),
                SKR_LOG_NUMBER("row", item->row),
                SKR_LOG_TEXT("error", item->reason.text));
    }
    if (failed > MOST_FAILURE_LINES)
        skr_log(&options->log, SKR_LOG_WARNING, "relay.failed_more",
                SKR_LOG_TEXT("name", options->name),
                SKR_LOG_NUMBER("rows", failed - MOST_FAILURE_LINES));
}

void
skr_session_take_settled(struct skr_session *session)
{
    struct skr_job *job;
    while ((job = skr_settler_take(session->settler)) != NULL) {
        if (!skr_parking_is_again(&session->parking, job)) {
            if (!skr_parking_take(&session->parking, job))
                continue;
            log_failures(session, &job->batch);
            count_batch(session, &job->batch);
            skr_source_release(session->source, &job->batch);
            skr_flight_free((struct skr_flight_batch *)job);
        }
        tell_counts(session);
    }
    while ((job = skr_parking_next_job(&session->parking, session->ownership,
                                       skr_session_is_settling(session))) !=
           NULL)
        skr_settler_put(session->settler, job);
}

// Batches of which no row is queued or sent go to the settler, if something is
// to be written: a decision, or that a claim is given back.
static void
settle_finished(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_flight_batch *batch;
    while ((batch = skr_flight_find_finished(&dispatcher->flight)) != NULL) {
        bool is_decided = skr_dispatcher_close(dispatcher, batch);
        if (is_decided || skr_ownership_claims_rows(session->ownership)) {
            batch->phase = SKR_BATCH_SETTLING;
            skr_settler_put(session->settler, &batch->job);
        } else {
            skr_source_release(session->source, &batch->job.batch);
            skr_flight_free(batch);
        }
    }
}

// Fetching: how rows come into flight.

// How many rows may be read into that room.
static size_t
most_rows(const struct skr_session *session, struct skr_room room)
{
    const struct skr_dispatcher *dispatcher = &session->dispatcher;
    uint64_t limit = session->options->limit;
    size_t most = room.bytes == 0 ? 0 : room.rows;
    if (limit > 0) {
        uint64_t taken =
            dispatcher->decided + skr_flight_count_open(&dispatcher->flight);
        uint64_t left = limit > taken ? limit - taken : 0;
        most = left < most ? (size_t)left : most;
    }
    return most < session->batch_capacity ? most : session->batch_capacity;
}

// A batch to read into, and how much; NULL when there is no room.
static struct skr_flight_batch *
take_batch(struct skr_session *session, struct skr_room room,
           struct skr_source_request *request)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    size_t most = most_rows(session, room), passed_count;
    const char *const *passed =
        skr_sequencer_passed(&dispatcher->sequencer, &passed_count);
    *request = (struct skr_source_request){
        .rows = most,
        .bytes = room.bytes,
        .passed = passed,
        .passed_count = passed_count,
        .spares_full_scans = skr_breakers_any_open(&dispatcher->breakers),
    };
    struct skr_flight_batch *batch =
        most == 0 ? NULL : skr_flight_take_free(&dispatcher->flight);
    if (batch == NULL) {
        skr_dispatcher_shorten_chains(dispatcher);
        return NULL;
    }
    batch->job.batch.server = session->db->server;
    batch->claimed_ms = skr_clock_ms();
    return batch;
}

// Whatever was read is this relay's by the token of now. *has_rows tells
// whether there are any, even if something failed: what has its place may be
// sent from elsewhere.
static enum skr_code
accept(struct skr_session *session, struct skr_flight_batch *batch,
       bool from_head, bool *has_rows, struct skr_error *error)
{
    skr_ownership_stamp(session->ownership, &batch->job.batch);
    enum skr_code code =
        skr_dispatcher_place(&session->dispatcher, batch, from_head, error);
    *has_rows = batch->job.batch.count > 0;
    if (*has_rows) {
        skr_flight_open(batch);
    } else {
        session->dispatcher.was_in_vain = true;
        skr_flight_free(batch);
    }
    return code;
}

static enum skr_code
send(struct skr_session *session, struct skr_flight_batch *batch,
     struct skr_error *error)
{
    skr_failpoint("relay.read");
    return skr_dispatcher_send(&session->dispatcher, batch, error);
}

// A row that is asked for by name is the head of its partition, unless
// something of that is in flight already.
static enum skr_code
fetch_probe(struct skr_session *session, struct skr_flight_batch *batch,
            const struct skr_source_request *request, int64_t row,
            struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_batch *read = &batch->job.batch;
    bool has_rows = false;
    enum skr_code code =
        skr_source_fetch(session->source, request, row, read, error);
    if (code == SKR_OK && read->count > 0 && skr_has_order(&read->items[0]) &&
        skr_sequencer_is_in_flight(
            &dispatcher->sequencer,
            skr_sequencer_partition(read->items[0].partition_key))) {
        skr_source_release(session->source, read);
        read->count = read->bytes = 0;
    }
    if (code != SKR_OK) {
        skr_flight_free(batch);
        return code;
    }
    code = accept(session, batch, true, &has_rows, error);
    if (code == SKR_OK && has_rows)
        return send(session, batch, error);
    if (code == SKR_OK && skr_ownership_is_exclusive(session->ownership))
        skr_breakers_forget(&dispatcher->breakers, row);
    else if (code == SKR_OK)
        skr_breakers_miss(&dispatcher->breakers, row, skr_clock_ms());
    return code;
}

// Lets one message probe a circuit breaker whose time has come.
static enum skr_code
probe(struct skr_session *session, struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_source_request request;
    int64_t row = 0, next_ms = skr_breakers_next_ms(&dispatcher->breakers);
    if (next_ms == 0 || next_ms > skr_clock_ms())
        return SKR_OK;
    struct skr_flight_batch *batch =
        take_batch(session, skr_flight_room(&dispatcher->flight), &request);
    enum skr_code code = SKR_OK;
    if (batch == NULL)
        return SKR_OK;
    if (skr_breakers_next_probe(&dispatcher->breakers, skr_clock_ms(), &row))
        code = fetch_probe(session, batch, &request, row, error);
    else
        skr_flight_free(batch);
    skr_dispatcher_log_breakers(dispatcher);
    return code;
}

// Rows that were left, or parked, and may be sent by now lie behind the cursor.
// Those that are being settled would be passed over: they are looked for later.
static void
rescan(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    bool is_settling = skr_session_is_settling(session);
    session->wants_rescan |=
        dispatcher->wants_rescan || skr_parking_release(&session->parking);
    dispatcher->wants_rescan = false;
    if (skr_breakers_take_recovered(&dispatcher->breakers)) {
        skr_source_rescan(session->source, false);
        session->wants_rescan = is_settling;
    } else if (session->wants_rescan) {
        session->wants_rescan =
            !skr_source_rescan(session->source, is_settling);
    }
}

// What is known now of a partition that was read from its head.
static enum skr_code
note_end(struct skr_session *session, const struct skr_partition_read *read,
         struct skr_error *error)
{
    struct skr_sequencer *sequencer = &session->dispatcher.sequencer;
    switch (read->end) {
    case SKR_PARTITION_EMPTY:
        skr_sequencer_unblock(sequencer, skr_sequencer_partition(read->key));
        return SKR_OK;
    // Its time will come, and is looked for.
    case SKR_PARTITION_WAITS: return SKR_OK;
    case SKR_PARTITION_MORE:
    case SKR_PARTITION_IN_HAND: break;
    }
    // It is read again when what is in flight of it is done.
    if (read->given > 0)
        return SKR_OK;
    return skr_sequencer_list_head(sequencer, read->key,
                                   skr_clock_ms() + SETTLING_PAUSE_MS, error);
}

static enum skr_code
read_heads(struct skr_session *session, struct skr_flight_batch *batch,
           const struct skr_source_request *request, bool *has_rows,
           struct skr_error *error)
{
    struct skr_partition_read partitions[SKR_MOST_PARTITIONS];
    char *keys[SKR_MOST_PARTITIONS];
    size_t most = request->rows < SKR_MOST_PARTITIONS ? request->rows
                                                      : SKR_MOST_PARTITIONS;
    size_t count = skr_sequencer_take_heads(&session->dispatcher.sequencer,
                                            skr_clock_ms(), keys, most);
    enum skr_code code = SKR_OK, placed = SKR_OK;
    for (size_t i = 0; i < count; i++)
        partitions[i] = (struct skr_partition_read){.key = keys[i]};
    if (count > 0)
        code = skr_source_fetch_partitions(session->source, request, partitions,
                                           count, &batch->job.batch, error);
    placed = accept(session, batch, true, has_rows, error);
    code = code == SKR_OK ? placed : code;
    for (size_t i = 0; i < count; i++) {
        if (code == SKR_OK)
            code = note_end(session, &partitions[i], error);
        free(keys[i]);
    }
    return code;
}

// Partitions of which something lies behind the cursor.
static enum skr_code
fetch_heads(struct skr_session *session, bool *moved, struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    int64_t next_ms = skr_sequencer_next_head_ms(&dispatcher->sequencer);
    struct skr_source_request request;
    bool has_rows = false;
    if (next_ms == 0 || next_ms > skr_clock_ms())
        return SKR_OK;
    struct skr_flight_batch *batch =
        take_batch(session, skr_flight_room(&dispatcher->flight), &request);
    if (batch == NULL)
        return SKR_OK;
    enum skr_code code = read_heads(session, batch, &request, &has_rows, error);
    if (code != SKR_OK || !has_rows)
        return code;
    *moved = true;
    return send(session, batch, error);
}

static struct skr_flight_batch *
find_ahead(struct skr_session *session)
{
    size_t at = 0;
    return skr_flight_next(&session->dispatcher.flight, SKR_BATCH_AHEAD, &at);
}

// To claim rows takes long enough for the window to run dry, so that some are
// claimed while it is full. Rows that wait for a destination must be found
// where they lie, and a row too large to be given beside others comes when
// there are none.
static struct skr_room
choose_room(const struct skr_session *session)
{
    const struct skr_dispatcher *dispatcher = &session->dispatcher;
    if (skr_ownership_claims_rows(session->ownership) &&
        !dispatcher->was_in_vain &&
        !skr_breakers_any_open(&dispatcher->breakers))
        return (struct skr_room){session->batch_capacity, session->batch_bytes};
    return skr_flight_room(&dispatcher->flight);
}

// The next rows of the queue, in *batch; NULL: there are none.
static enum skr_code
read_on(struct skr_session *session, struct skr_flight_batch **batch,
        struct skr_error *error)
{
    struct skr_source_request request;
    bool has_rows = false;
    struct skr_flight_batch *taken =
        take_batch(session, choose_room(session), &request);
    if (taken == NULL)
        return SKR_OK;
    enum skr_code code =
        skr_source_next(session->source, &request, &taken->job.batch, error);
    if (code != SKR_OK) {
        skr_flight_free(taken);
        return code;
    }
    code = accept(session, taken, false, &has_rows, error);
    if (code == SKR_OK)
        code = skr_diagnostics_after_read(&session->diagnostics, session->db,
                                          has_rows, error);
    if (code != SKR_OK)
        return code;
    if (has_rows)
        *batch = taken;
    if (has_rows || skr_source_may_have_more(session->source))
        return SKR_OK;
    if (skr_dispatcher_pending(&session->dispatcher) == 0)
        skr_session_end_trouble(session);
    return skr_diagnostics_look_for_foreign(&session->diagnostics, session->db,
                                            error);
}

static enum skr_code
fetch_next(struct skr_session *session, bool *moved, struct skr_error *error)
{
    struct skr_flight_batch *batch = find_ahead(session);
    enum skr_code code = SKR_OK;
    if (batch == NULL && skr_source_may_have_more(session->source))
        code = read_on(session, &batch, error);
    if (code != SKR_OK || batch == NULL)
        return code;
    if (skr_ownership_claims_rows(session->ownership)) {
        skr_flight_put_ahead(batch);
        if (!skr_flight_fits(&session->dispatcher.flight, batch))
            return SKR_OK;
        skr_flight_open(batch);
    }
    *moved = true;
    return send(session, batch, error);
}

static enum skr_code
fetch(struct skr_session *session, bool *moved, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (!skr_source_is_restarting(session->source)) {
        code = probe(session, error);
        rescan(session);
    }
    if (code == SKR_OK && !skr_source_is_restarting(session->source))
        code = fetch_heads(session, moved, error);
    if (code == SKR_OK)
        code = fetch_next(session, moved, error);
    return code;
}

// The loop.

// Renews, proves and rebalances, and notes what that means for the session.
static enum skr_code
own(struct skr_session *session, struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_source_status status = skr_source_status(session->source);
    const struct skr_activity activity = {
        .is_idle = skr_dispatcher_pending(dispatcher) == 0,
        .is_quiet = is_quiet(session),
        .cursor = status.cursor,
        .decided = dispatcher->decided,
        .has_due = status.has_due,
    };
    enum skr_ownership_state state = SKR_OWN_ACTIVE;
    enum skr_code code =
        skr_ownership_tick(session->ownership, &activity, &state, error);
    if (code != SKR_OK)
        return code;
    session->phase = SKR_PHASE_ACTIVE;
    dispatcher->is_draining = state == SKR_OWN_DRAIN;
    switch (state) {
    case SKR_OWN_ACTIVE: break;
    case SKR_OWN_DRAIN: session->phase = SKR_PHASE_DRAINING; break;
    case SKR_OWN_CHANGED:
        skr_dispatcher_begin(dispatcher);
        return skr_source_open(session->source, session->db, error);
    case SKR_OWN_STANDBY:
        session->phase = SKR_PHASE_STANDBY;
        if (skr_ownership_stands_by(session->ownership))
            skr_session_end_trouble(session);
        break;
    }
    return SKR_OK;
}

// Keeps claims on rows while the broker takes its time.
static enum skr_code
renew_claims(struct skr_session *session, struct skr_error *error)
{
    static const enum skr_batch_phase phases[] = {SKR_BATCH_OPEN,
                                                  SKR_BATCH_AHEAD};
    enum skr_code code = SKR_OK;
    struct skr_flight_batch *batch;
    for (size_t i = 0; i < 2; i++)
        for (size_t at = 0; code == SKR_OK && (batch = skr_flight_next(
                                                   &session->dispatcher.flight,
                                                   phases[i], &at)) != NULL;)
            code = skr_ownership_renew(session->ownership, &batch->job.batch,
                                       &batch->claimed_ms, error);
    return code;
}

// Rows that others hold back are committed, and will go; so will those of
// shards that another relay is about to take.
static bool
is_held_back(const struct skr_session *session)
{
    return skr_source_status(session->source).undecided_ms != 0 ||
           skr_ownership_leaves_orphans(session->ownership);
}

static bool
has_work(struct skr_session *session)
{
    return session->phase == SKR_PHASE_DRAINING ||
           (session->phase == SKR_PHASE_ACTIVE &&
            (skr_source_may_have_more(session->source) ||
             find_ahead(session) != NULL));
}

static uint32_t
idle_time_ms(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    int64_t now_ms = skr_clock_ms();
    int64_t longest_ms = session->options->max_idle_ms;
    if (session->options->is_over != NULL && longest_ms > ASK_AGAIN_MS)
        longest_ms = ASK_AGAIN_MS;
    int64_t until_ms = skr_clock_earlier(
        now_ms + longest_ms, skr_ownership_next_ms(session->ownership));
    bool is_settling = skr_session_is_settling(session);
    until_ms = skr_clock_earlier(
        until_ms, skr_parking_next_job_ms(&session->parking, session->ownership,
                                          is_settling));
    // What is settled meanwhile is told soon.
    if (is_settling)
        until_ms = skr_clock_earlier(until_ms, now_ms + SETTLE_WAIT_MS);
    // A standby reads nothing, whatever is due.
    if (session->phase == SKR_PHASE_ACTIVE) {
        until_ms = skr_clock_earlier(until_ms,
                                     skr_parking_release_ms(&session->parking));
        until_ms =
            skr_clock_earlier(until_ms, skr_source_wake_ms(session->source));
        until_ms = skr_clock_earlier(
            until_ms, skr_breakers_next_ms(&dispatcher->breakers));
        until_ms = skr_clock_earlier(
            until_ms, skr_sequencer_next_head_ms(&dispatcher->sequencer));
    }
    return until_ms > now_ms ? (uint32_t)(until_ms - now_ms) : 0;
}

void
skr_session_wait_for_settler(struct skr_session *session)
{
    if (skr_parking_has_waiting(&session->parking))
        skr_clock_sleep(session->stop_fd, RESULT_WAIT_MS);
    else
        skr_settler_wait(session->settler, RESULT_WAIT_MS);
}

// Sleeps until something is due. A broker is heard of meanwhile: it ends a
// connection that falls silent.
static enum skr_code
rest(struct skr_session *session, bool moved, struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    if (skr_dispatcher_pending(dispatcher) > 0) {
        enum skr_code code = skr_dispatcher_collect(
            dispatcher, moved ? 0 : RESULT_WAIT_MS, error);
        if (code == SKR_OK && !skr_source_may_have_more(session->source))
            code = skr_source_wait(session->source, session->stop_fd, 0, error);
        return code;
    }
    if (moved)
        return SKR_OK;
    // A window that is full of settling batches moves when one is settled, and
    // a relay that ends when it is empty ends when all are.
    uint32_t idle_ms = idle_time_ms(session);
    bool is_busy =
        has_work(session) ||
        (idle_ms == 0 && skr_session_is_settling(session)) ||
        (session->options->stop_when_empty && !is_held_back(session));
    if (is_busy)
        skr_session_wait_for_settler(session);
    enum skr_code code = skr_dispatcher_collect(dispatcher, 0, error);
    if (code != SKR_OK || is_busy)
        return code;
    return skr_source_wait(session->source, session->stop_fd, idle_ms, error);
}

static enum skr_code
turn(struct skr_session *session, struct skr_error *error)
{
    bool moved = false;
    enum skr_code code = own(session, error);
    if (code == SKR_OK)
        code = renew_claims(session, error);
    if (code == SKR_OK)
        code = skr_diagnostics_look(&session->diagnostics, session->db, error);
    if (code == SKR_OK && session->phase == SKR_PHASE_ACTIVE)
        code = fetch(session, &moved, error);
    if (code == SKR_OK)
        code = rest(session, moved, error);
    return code;
}

// Rows of an earlier session that came to no decision lie among those that are
// still being settled; read now, others would pass them.
static enum skr_code
wait_for_earlier(struct skr_session *session, struct skr_error *error)
{
    if (!skr_session_is_settling(session)) {
        session->phase = SKR_PHASE_ACTIVE;
        return SKR_OK;
    }
    skr_session_wait_for_settler(session);
    enum skr_code code = skr_ownership_prove(session->ownership, error);
    return code == SKR_OK
               ? skr_dispatcher_collect(&session->dispatcher, 0, error)
               : code;
}

static bool
is_empty(struct skr_session *session)
{
    return session->options->stop_when_empty && !has_work(session) &&
           session->dispatcher.sequencer.heads.count == 0 &&
           !session->wants_rescan && !session->dispatcher.wants_rescan &&
           !is_held_back(session);
}

// Whether the options say to end now.
static enum skr_code
check_end(struct skr_session *session, struct skr_error *error)
{
    bool has_orphans = false;
    enum skr_code code = SKR_OK;
    if (session->phase == SKR_PHASE_SETTLING ||
        (!is_at_limit(session) && !is_empty(session)) ||
        skr_dispatcher_pending(&session->dispatcher) > 0 ||
        skr_session_is_settling(session))
        return SKR_OK;
    if (!is_at_limit(session))
        code =
            skr_ownership_find_orphans(session->ownership, &has_orphans, error);
    if (code == SKR_OK && !has_orphans)
        session->phase = SKR_PHASE_FINISHED;
    return code;
}

static enum skr_code
go_on(struct skr_session *session, struct skr_error *error)
{
    skr_beat_turn();
    if (skr_clock_sleep(session->stop_fd, 0)) {
        session->stop_by_ms =
            skr_clock_ms() + session->options->stop_timeout_ms;
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
    if (skr_session_is_over(session)) {
        session->phase = SKR_PHASE_FINISHED;
        return SKR_OK;
    }
    skr_session_take_settled(session);
    enum skr_code code = session->phase == SKR_PHASE_SETTLING
                             ? wait_for_earlier(session, error)
                             : turn(session, error);
    if (session->dispatcher.confirmed > 0)
        skr_session_end_trouble(session);
    settle_finished(session);
    return code == SKR_OK ? check_end(session, error) : code;
}

// Lets what was sent come to its result, and settles it meanwhile.
static void
drain(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    int64_t until_ms = session->stop_by_ms > 0
                           ? session->stop_by_ms
                           : skr_clock_ms() + session->options->stop_timeout_ms;
    struct skr_error error = {0};
    enum skr_code code = SKR_OK;
    skr_dispatcher_begin_drain(dispatcher);
    settle_finished(session);
    while (code == SKR_OK && skr_dispatcher_pending(dispatcher) > 0 &&
           skr_clock_ms() < until_ms) {
        code = skr_dispatcher_collect(dispatcher, RESULT_WAIT_MS, &error);
        settle_finished(session);
        skr_session_take_settled(session);
    }
    skr_dispatcher_end_drain(dispatcher);
    settle_finished(session);
}

enum skr_code
skr_session_run(struct skr_session *session, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    session->phase = SKR_PHASE_SETTLING;
    session->dispatcher.confirmed = 0;
    skr_dispatcher_begin(&session->dispatcher);
    while (code == SKR_OK && session->phase != SKR_PHASE_FINISHED)
        code = go_on(session, error);
    drain(session);
    return code;
}
