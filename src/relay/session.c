// SPDX-License-Identifier: MIT
// A session from its connections to their end, and the relay's loop, turn().

#include "relay/session.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "db/run.h"

#include <stdlib.h>

enum {
    RESULT_WAIT_MS = 20,
    SETTLE_WAIT_MS = 100,
    ASK_AGAIN_MS = 1000,  // whether it is over
    SETTLING_PAUSE_MS = 20,
    HAND_OVER_MS = 5000,  // to settle before the lock is let go
    DIAGNOSE_MS = 60000,
    FRESH_MS = 10000,
};

// What is read ahead must fit into what a batch leaves.
static void
size_batches(struct skr_session *session)
{
    const struct skr_relay_settings *settings = session->settings;
    const struct skr_ownership_traits *traits =
        skr_ownership_traits(session->ownership);
    size_t rest = traits->claims_rows ? 0 : traits->batches - 1;
    size_t rows = (settings->in_flight + rest) / traits->batches;
    size_t most = ((size_t)1 << SKR_TAG_INDEX_BITS) - 1;
    session->batch_capacity = rows == 0 ? 1 : rows < most ? rows : most;
    session->batch_bytes = (settings->in_flight_bytes + rest) / traits->batches;
}

static bool
claims_rows(const struct skr_session *session)
{
    return skr_ownership_traits(session->ownership)->claims_rows;
}

enum skr_code
skr_session_init(struct skr_session *session,
                 const struct skr_relay_settings *settings, int stop_fd,
                 struct skr_error *error)
{
    session->settings = settings;
    session->stop_fd = stop_fd;
    enum skr_code code =
        skr_ownership_new(settings, &session->ownership, error);
    if (code != SKR_OK)
        return code;
    size_batches(session);
    code = skr_source_new(settings->table, &session->parked,
                          claims_rows(session), &session->source, error);
    if (code != SKR_OK)
        return code;
    session->dispatcher.settings = settings;
    session->dispatcher.source = session->source;
    session->dispatcher.ownership = session->ownership;
    return skr_dispatcher_init(&session->dispatcher, session->batch_capacity,
                               error);
}

void
skr_session_fini(struct skr_session *session)
{
    skr_settler_free(session->settler);
    skr_source_free(session->source);
    skr_ownership_free(session->ownership);
    skr_parked_fini(&session->parked);
    skr_dispatcher_fini(&session->dispatcher);
}

// A connection that opens proves little: a full disk lets rows be read, too.
// Trouble is over when a message got through, or none is left.
static void
end_trouble(struct skr_session *session)
{
    if (session->works)
        return;
    session->works = true;
    skr_trouble_end(&session->trouble, &session->settings->log,
                    SKR_TROUBLE_RELAY, "relay.recovered",
                    session->settings->name);
}

// Nothing is read, at the broker or being settled.
static bool
is_quiet(struct skr_session *session)
{
    return session->dispatcher.senders.pending == 0 &&
           skr_flight_count_open(&session->dispatcher.flight) == 0 &&
           !skr_settler_is_busy(session->settler);
}

static bool
is_at_limit(const struct skr_session *session)
{
    return session->settings->limits.messages > 0 &&
           session->dispatcher.decided >= session->settings->limits.messages;
}

bool
skr_session_leaves_some(const struct skr_session *session)
{
    return session->settings->stop_when_empty && !is_at_limit(session) &&
           !skr_relay_is_over(&session->settings->limits) &&
           session->dispatcher.breakers.open_count > 0;
}

// Diagnostics: what a relay notices beside its work.

// Whether it is time to look for what is logged once, and was not yet.
static bool
is_due(bool is_logged, int64_t *next_ms)
{
    int64_t now_ms = skr_clock_ms();
    if (is_logged || now_ms < *next_ms)
        return false;
    *next_ms = now_ms + DIAGNOSE_MS;
    return true;
}

static enum skr_code
look_for_foreign(struct skr_session *session, struct skr_error *error)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    const struct skr_relay_settings *settings = session->settings;
    const struct skr_store *table = settings->table;
    uint64_t count = 0;
    const char *cure = "";
    if (table->diagnosis == NULL ||
        !is_due(diagnostics->logged_foreign, &diagnostics->next_foreign_ms))
        return SKR_OK;
    enum skr_code code =
        table->diagnosis->foreign(table, session->db, &count, &cure, error);
    if (code != SKR_OK || count == 0)
        return code;
    diagnostics->logged_foreign = true;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.foreign_rows",
            SKR_LOG_TEXT("name", settings->name), SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", cure));
    return SKR_OK;
}

// A relay that claims no rows, and finds that another worker does, would send
// what that one sends as well.
static enum skr_code
look_for_claims(struct skr_session *session, struct skr_error *error)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    const struct skr_relay_settings *settings = session->settings;
    uint64_t count = 0;
    if (claims_rows(session) ||
        !is_due(diagnostics->logged_claimed, &diagnostics->next_claimed_ms))
        return SKR_OK;
    enum skr_code code =
        skr_source_count_claimed(session->source, &count, error);
    if (code != SKR_OK || count == 0)
        return code;
    diagnostics->logged_claimed = true;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.not_alone",
            SKR_LOG_TEXT("name", settings->name), SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", "another worker claims rows of this queue; "
                                 "stop it, or set `claim: lease` on this "
                                 "transport"));
    return SKR_OK;
}

// An open transaction holds back all that was written after it began.
static enum skr_code
look_for_writer(struct skr_session *session, struct skr_error *error)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    const struct skr_relay_settings *settings = session->settings;
    const struct skr_store *table = settings->table;
    struct skr_source_status status = skr_source_status(session->source);
    int64_t waited_ms = skr_clock_ms() - status.undecided_ms;
    struct skr_writer writer;
    if (status.undecided_ms == 0 ||
        status.undecided_row == diagnostics->logged_undecided ||
        waited_ms < settings->long_open_ms)
        return SKR_OK;
    enum skr_code code =
        table->partitions->find_writer(table, session->db, &writer, error);
    if (code != SKR_OK)
        return code;
    diagnostics->logged_undecided = status.undecided_row;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.held_back",
            SKR_LOG_TEXT("name", settings->name),
            SKR_LOG_NUMBER("row", status.undecided_row),
            SKR_LOG_NUMBER("pid", writer.process),
            SKR_LOG_NUMBER("age_s",
                           writer.age_s > 0 ? writer.age_s : waited_ms / 1000),
            SKR_LOG_TEXT("writer", writer.name),
            SKR_LOG_TEXT("cure", "commit_order waits for this transaction: end "
                                 "it, or let it write and commit sooner"));
    return SKR_OK;
}

// Warns of a writer in another time zone, whose rows would be sent hours late,
// or those that are to wait hours early. is_fresh: the newest row has just been
// written; otherwise an old time is no sign of anything.
static enum skr_code
look_for_skew(struct skr_session *session, bool is_fresh,
              struct skr_error *error)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    const struct skr_relay_settings *settings = session->settings;
    const struct skr_store *table = settings->table;
    int hours = 0;
    if (diagnostics->knows_skew || diagnostics->logged_skew ||
        table->diagnosis == NULL)
        return SKR_OK;
    enum skr_code code =
        table->diagnosis->skew(table, session->db, &hours, error);
    if (code != SKR_OK)
        return code;
    diagnostics->knows_skew = is_fresh;
    if (hours == 0 || (hours < 0 && !is_fresh))
        return SKR_OK;
    diagnostics->logged_skew = true;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.clock_skew",
            SKR_LOG_TEXT("name", settings->name),
            SKR_LOG_NUMBER("hours", hours < 0 ? -hours : hours),
            SKR_LOG_TEXT("direction", hours < 0 ? "behind" : "ahead"),
            SKR_LOG_TEXT("cure", "the newest row is of a writer in another "
                                 "zone: set time_zone of this transport to "
                                 "that zone"));
    return SKR_OK;
}

// Order is kept all the same, at a price: the database is asked for more.
static void
log_hidden(struct skr_session *session)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    const struct skr_relay_settings *settings = session->settings;
    if (diagnostics->logged_hidden ||
        !skr_source_status(session->source).hides_open)
        return;
    diagnostics->logged_hidden = true;
    skr_log(&settings->log, SKR_LOG_WARNING, "relay.right_missing",
            SKR_LOG_TEXT("name", settings->name),
            SKR_LOG_TEXT("right", "PROCESS"),
            SKR_LOG_TEXT("cure", "order is kept more cheaply by one who sees "
                                 "open transactions: GRANT PROCESS ON *.* TO "
                                 "this user of the database, and start the "
                                 "relay again"));
}

// After a read, before its rows are sent: once they are, they may be gone any
// moment.
static enum skr_code
look_around(struct skr_session *session, bool has_rows, struct skr_error *error)
{
    struct skr_diagnostics *diagnostics = &session->diagnostics;
    int64_t now_ms = skr_clock_ms();
    int64_t cursor = skr_source_status(session->source).cursor;
    log_hidden(session);
    if (!has_rows && !skr_source_may_have_more(session->source)) {
        diagnostics->empty_ms = now_ms;
        diagnostics->empty_cursor = cursor;
        if (session->dispatcher.senders.pending == 0)
            end_trouble(session);
        return look_for_foreign(session, error);
    }
    // A row beyond all that there were when nothing was left is fresh.
    if (!has_rows || diagnostics->empty_ms == 0 ||
        now_ms - diagnostics->empty_ms > FRESH_MS ||
        cursor <= diagnostics->empty_cursor)
        return SKR_OK;
    return look_for_skew(session, true, error);
}

// Settling.

static void
take_settled(struct skr_session *session)
{
    struct skr_job *job;
    while ((job = skr_settler_take(session->settler, session->db)) != NULL) {
        skr_source_release(session->source, &job->batch);
        skr_flight_free((struct skr_flight_batch *)job);
    }
}

// Batches of which no row is queued or sent go to the settler, if something is
// to be written: a decision, or that a claim is given back.
static void
settle_finished(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_flight_batch *batch;
    while ((batch = skr_flight_find_finished(&dispatcher->flight)) != NULL) {
        bool is_decided =
            skr_dispatcher_close(dispatcher, batch, &session->wants_rescan);
        skr_flight_end(&dispatcher->flight, batch);
        if (is_decided || claims_rows(session)) {
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
    uint64_t limit = session->settings->limits.messages;
    size_t most = room.bytes == 0 ? 0 : room.rows;
    if (limit > 0) {
        uint64_t taken =
            dispatcher->decided + skr_flight_count_open(&dispatcher->flight);
        uint64_t left = limit > taken ? limit - taken : 0;
        most = left < most ? (size_t)left : most;
    }
    return most < session->batch_capacity ? most : session->batch_capacity;
}

// To claim rows takes long enough for the window to run dry, so that some are
// claimed while it is full. Rows that wait for a destination must be found
// where they lie, and a row too large to be given beside others comes when
// there are none.
static bool
may_read_ahead(const struct skr_session *session)
{
    const struct skr_dispatcher *dispatcher = &session->dispatcher;
    return claims_rows(session) && !dispatcher->was_in_vain &&
           dispatcher->breakers.open_count == 0;
}

// A batch to read into, and how much; NULL when there is no room.
static struct skr_flight_batch *
take_batch(struct skr_session *session, bool is_ahead,
           struct skr_source_request *request)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    const struct skr_room batch_room = {session->batch_capacity,
                                        session->batch_bytes};
    struct skr_room room =
        is_ahead ? batch_room : skr_flight_room(&dispatcher->flight);
    *request = (struct skr_source_request){
        .rows = most_rows(session, room),
        .bytes = room.bytes,
        .spares_full_scans = dispatcher->breakers.open_count > 0,
    };
    request->passed =
        skr_sequencer_passed(&dispatcher->sequencer, &request->passed_count);
    struct skr_flight_batch *batch =
        request->rows == 0
            ? NULL
            : skr_flight_take_free(&dispatcher->flight, session->db->server,
                                   skr_clock_ms());
    if (batch == NULL)
        skr_dispatcher_shorten_chains(dispatcher);
    return batch;
}

// A row that cannot be claimed comes alone.
static enum skr_code
park_unclaimed(struct skr_session *session, struct skr_batch *batch,
               struct skr_error *error)
{
    if (batch->count != 1 || batch->items[0].write != SKR_WRITE_REFUSED)
        return SKR_OK;
    enum skr_code code = SKR_OK;
    if (!skr_settler_park(session->settler, &batch->items[0]))
        code = skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "too many rows cannot be claimed, as relay.row_parked "
                        "says: %s",
                        batch->items[0].refusal);
    skr_batch_clear(batch);
    return code;
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
    if (code == SKR_OK)
        code = park_unclaimed(session, read, error);
    if (code == SKR_OK && read->count > 0 && skr_has_order(&read->items[0]) &&
        skr_sequencer_chain(
            &dispatcher->sequencer,
            skr_sequencer_partition(read->items[0].partition_key))
                .length > 0) {
        skr_source_release(session->source, read);
        read->count = read->bytes = 0;
    }
    if (code != SKR_OK) {
        skr_flight_free(batch);
        return code;
    }
    code = skr_dispatcher_accept(dispatcher, batch, true, &has_rows, error);
    if (code == SKR_OK && has_rows)
        return skr_dispatcher_send(dispatcher, batch, error);
    if (code == SKR_OK &&
        skr_ownership_traits(session->ownership)->is_exclusive)
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
    struct skr_flight_batch *batch = take_batch(session, false, &request);
    if (batch == NULL)
        return SKR_OK;
    if (skr_breakers_next_probe(&dispatcher->breakers, skr_clock_ms(), &row))
        return fetch_probe(session, batch, &request, row, error);
    skr_flight_free(batch);
    return SKR_OK;
}

// Rows that were left, or parked, and may be sent by now lie behind the cursor.
// Those that are being settled would be passed over: they are looked for later.
static void
rescan(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    bool is_settling = skr_settler_is_busy(session->settler);
    session->wants_rescan |=
        skr_parked_release(&session->parked, skr_clock_ms());
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
    case SKR_PARTITION_IN_FLIGHT: break;
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
    placed = skr_dispatcher_accept(&session->dispatcher, batch, true, has_rows,
                                   error);
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
    struct skr_flight_batch *batch = take_batch(session, false, &request);
    if (batch == NULL)
        return SKR_OK;
    enum skr_code code = read_heads(session, batch, &request, &has_rows, error);
    if (code != SKR_OK || !has_rows)
        return code;
    *moved = true;
    return skr_dispatcher_send(&session->dispatcher, batch, error);
}

static struct skr_flight_batch *
find_ahead(struct skr_session *session)
{
    return skr_flight_next(&session->dispatcher.flight, SKR_BATCH_AHEAD, NULL);
}

// The next rows of the queue, in *batch; NULL: there are none.
static enum skr_code
read_on(struct skr_session *session, struct skr_flight_batch **batch,
        struct skr_error *error)
{
    struct skr_source_request request;
    bool has_rows = false;
    struct skr_flight_batch *taken =
        take_batch(session, may_read_ahead(session), &request);
    if (taken == NULL)
        return SKR_OK;
    enum skr_code code =
        skr_source_next(session->source, &request, &taken->job.batch, error);
    if (code == SKR_OK)
        code = park_unclaimed(session, &taken->job.batch, error);
    if (code != SKR_OK) {
        skr_flight_free(taken);
        return code;
    }
    code = skr_dispatcher_accept(&session->dispatcher, taken, false, &has_rows,
                                 error);
    if (code == SKR_OK)
        code = look_around(session, has_rows, error);
    if (code == SKR_OK && has_rows)
        *batch = taken;
    return code;
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
    if (claims_rows(session) &&
        !skr_flight_open_if_fits(&session->dispatcher.flight, batch))
        return SKR_OK;
    *moved = true;
    return skr_dispatcher_send(&session->dispatcher, batch, error);
}

static enum skr_code
fetch_and_send(struct skr_session *session, bool *moved,
               struct skr_error *error)
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

// Proves, renews and rebalances, and notes what that means for the session.
// Rows of an earlier session that came to no decision lie among those that are
// still being settled; read now, others would pass them.
static enum skr_code
own(struct skr_session *session, struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    struct skr_source_status status = skr_source_status(session->source);
    const struct skr_activity activity = {
        .is_idle = dispatcher->senders.pending == 0,
        .is_quiet = is_quiet(session),
        .cursor = status.cursor,
        .decided = dispatcher->decided,
        .has_due = status.has_due,
    };
    enum skr_ownership_state state = SKR_OWN_ACTIVE;
    if (session->phase == SKR_PHASE_SETTLING &&
        skr_settler_is_busy(session->settler))
        return skr_ownership_prove(session->ownership, error);
    enum skr_code code =
        skr_ownership_tick(session->ownership, &activity, &state, error);
    if (code != SKR_OK)
        return code;
    session->phase = SKR_PHASE_ACTIVE;
    skr_dispatcher_drain(dispatcher, state == SKR_OWN_DRAIN);
    switch (state) {
    case SKR_OWN_ACTIVE: break;
    case SKR_OWN_DRAIN: session->phase = SKR_PHASE_DRAINING; break;
    case SKR_OWN_CHANGED:
        skr_dispatcher_begin(dispatcher);
        return skr_source_open(session->source, session->db, error);
    case SKR_OWN_WAITING: session->phase = SKR_PHASE_STANDBY; break;
    case SKR_OWN_STANDBY:
        session->phase = SKR_PHASE_STANDBY;
        end_trouble(session);
        break;
    }
    return SKR_OK;
}

// Keeps claims on rows while the broker takes its time.
static enum skr_code
renew_claims(struct skr_session *session, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_FLIGHT_BATCHES && code == SKR_OK; i++) {
        struct skr_flight_batch *batch = &session->dispatcher.flight.batches[i];
        if (batch->phase == SKR_BATCH_OPEN || batch->phase == SKR_BATCH_AHEAD)
            code = skr_ownership_renew(session->ownership, &batch->job.batch,
                                       &batch->claimed_ms, error);
    }
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
    return session->phase == SKR_PHASE_SETTLING ||
           session->phase == SKR_PHASE_DRAINING ||
           (session->phase == SKR_PHASE_ACTIVE &&
            (skr_source_may_have_more(session->source) ||
             find_ahead(session) != NULL));
}

static uint32_t
idle_time_ms(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    int64_t now_ms = skr_clock_ms();
    int64_t until_ms = now_ms + session->settings->max_idle_ms;
    if (session->settings->limits.is_over != NULL)
        until_ms = skr_clock_earlier(until_ms, now_ms + ASK_AGAIN_MS);
    // What is settled meanwhile is logged soon.
    if (skr_settler_is_busy(session->settler))
        until_ms = skr_clock_earlier(until_ms, now_ms + SETTLE_WAIT_MS);
    const int64_t times_ms[] = {
        skr_ownership_next_ms(session->ownership),
        skr_settler_next_ms(session->settler),
        // A standby reads nothing, whatever is due.
        skr_parked_next_ms(&session->parked),
        skr_source_status(session->source).wake_ms,
        skr_breakers_next_ms(&dispatcher->breakers),
        skr_sequencer_next_head_ms(&dispatcher->sequencer),
    };
    size_t count = session->phase == SKR_PHASE_ACTIVE ? 6 : 2;
    for (size_t i = 0; i < count; i++)
        until_ms = skr_clock_earlier(until_ms, times_ms[i]);
    return until_ms > now_ms ? (uint32_t)(until_ms - now_ms) : 0;
}

// Takes results, and sleeps until something is due. Brokers are asked meanwhile
// too: they end a connection that falls silent.
static enum skr_code
collect_and_rest(struct skr_session *session, bool moved,
                 struct skr_error *error)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    if (dispatcher->senders.pending > 0) {
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
        (idle_ms == 0 && skr_settler_is_busy(session->settler)) ||
        (session->settings->stop_when_empty && !is_held_back(session));
    if (is_busy)
        skr_settler_wait(session->settler, session->stop_fd);
    enum skr_code code = skr_dispatcher_collect(dispatcher, 0, error);
    if (code != SKR_OK || is_busy)
        return code;
    return skr_source_wait(session->source, session->stop_fd, idle_ms, error);
}

static bool
is_empty(struct skr_session *session)
{
    return session->settings->stop_when_empty && !has_work(session) &&
           session->dispatcher.sequencer.heads.count == 0 &&
           !session->wants_rescan && !is_held_back(session);
}

// Whether the settings say to end now.
static enum skr_code
check_end(struct skr_session *session, struct skr_error *error)
{
    bool has_orphans = false;
    enum skr_code code = SKR_OK;
    if (session->phase == SKR_PHASE_SETTLING ||
        (!is_at_limit(session) && !is_empty(session)) ||
        session->dispatcher.senders.pending > 0 ||
        skr_settler_is_busy(session->settler))
        return SKR_OK;
    if (!is_at_limit(session))
        code =
            skr_ownership_find_orphans(session->ownership, &has_orphans, error);
    if (code == SKR_OK && !has_orphans)
        session->phase = SKR_PHASE_FINISHED;
    return code;
}

static enum skr_code
turn(struct skr_session *session, struct skr_error *error)
{
    bool moved = false;
    take_settled(session);
    enum skr_code code = own(session, error);
    if (code == SKR_OK)
        code = renew_claims(session, error);
    if (code == SKR_OK)
        code = look_for_claims(session, error);
    if (code == SKR_OK)
        code = look_for_writer(session, error);
    if (code == SKR_OK && session->phase == SKR_PHASE_ACTIVE)
        code = fetch_and_send(session, &moved, error);
    if (code == SKR_OK)
        code = collect_and_rest(session, moved, error);
    if (session->dispatcher.has_confirmed)
        end_trouble(session);
    settle_finished(session);
    return code == SKR_OK ? check_end(session, error) : code;
}

static int64_t
end_of_stop_ms(const struct skr_session *session)
{
    return session->stop_by_ms > 0
               ? session->stop_by_ms
               : skr_clock_ms() + session->settings->stop_timeout_ms;
}

// Lets what was sent come to its result, and settles it meanwhile.
static void
drain(struct skr_session *session)
{
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    int64_t until_ms = end_of_stop_ms(session);
    struct skr_error error = {0};
    enum skr_code code = SKR_OK;
    skr_dispatcher_drain(dispatcher, true);
    settle_finished(session);
    while (code == SKR_OK && dispatcher->senders.pending > 0 &&
           skr_clock_ms() < until_ms) {
        code = skr_dispatcher_collect(dispatcher, RESULT_WAIT_MS, &error);
        settle_finished(session);
        take_settled(session);
    }
    skr_dispatcher_end(dispatcher);
    settle_finished(session);
}

// Works the queue until there is a reason to end.
static enum skr_code
work(struct skr_session *session, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    session->phase = SKR_PHASE_SETTLING;
    skr_dispatcher_begin(&session->dispatcher);
    while (code == SKR_OK && session->phase != SKR_PHASE_FINISHED) {
        skr_beat_turn();
        if (skr_clock_sleep(session->stop_fd, 0)) {
            session->stop_by_ms = end_of_stop_ms(session);
            code = skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
        } else if (skr_relay_is_over(&session->settings->limits)) {
            session->phase = SKR_PHASE_FINISHED;
        } else {
            code = turn(session, error);
        }
    }
    drain(session);
    return code;
}

// Beginning and end of a session.

// The source reads from the start of the queue.
static enum skr_code
open_source(struct skr_session *session, struct skr_error *error)
{
    const struct skr_relay_settings *settings = session->settings;
    const struct skr_store *table = settings->table;
    const struct skr_table_maker maker = {&settings->log, settings->name,
                                          settings->database_url};
    enum skr_code code = table->admin->check(table, session->db, error);
    if (code == SKR_OK)
        code = skr_source_open(session->source, session->db, error);
    if (code != SKR_MISSING || !settings->auto_setup)
        return code;
    code = skr_store_create_for(table, session->db, &maker, error);
    if (code == SKR_OK)
        code = table->admin->check(table, session->db, error);
    return code == SKR_OK ? skr_source_open(session->source, session->db, error)
                          : code;
}

static void
stop_attending(struct skr_session *session)
{
    skr_db_close(session->attending);
    session->attending = NULL;
}

// A relay without its broker has no session, and nothing would tell it from one
// that does not run. Where the database is away as well, it could not be asked
// about relays.
static enum skr_code
attend(struct skr_session *session)
{
    const struct skr_relay_settings *settings = session->settings;
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code = SKR_OK;
    if (session->attending == NULL)
        code = skr_db_open(settings->database, settings->database_url,
                           &session->attending, NULL);
    if (code == SKR_OK)
        code = skr_store_name_lock(session->attending, settings->table->name,
                                   settings->table->queue, lock_name, NULL);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, SKR_ATTEND_WAITING, name);
    return session->attending->ops->locks->attend(session->attending, name,
                                                  NULL);
}

static enum skr_code
connect_both(struct skr_session *session, struct skr_error *error)
{
    const struct skr_relay_settings *settings = session->settings;
    session->works = false;
    enum skr_code code =
        skr_senders_open(&session->dispatcher.senders, settings->senders,
                         settings->sender_count, error);
    session->has_broker = code == SKR_OK;
    if (code != SKR_OK)
        return code;
    stop_attending(session);
    code = skr_db_open_or_create(settings->database, settings->database_url,
                                 settings->auto_setup, &session->db, error);
    if (code != SKR_OK)
        return code;
    session->db->log = &settings->log;
    session->db->name = settings->name;
    skr_trouble_notice(&session->passed_over, &settings->log,
                       "relay.passed_over", settings->name,
                       &session->db->passed_over);
    skr_settler_work_on(session->settler, session->db->server);
    code = open_source(session, error);
    if (code == SKR_OK && settings->table_name != NULL)
        code = skr_rights_check_change(session->db, settings->table_name,
                                       "queue_name", error);
    return code == SKR_OK ? look_for_skew(session, false, error) : code;
}

// Waits to become one of the relays that work the queue. A standby is connected
// to both sides, so that it takes over at once, and keeps the broker's
// connection alive.
static enum skr_code
acquire(struct skr_session *session, struct skr_error *error)
{
    for (;;) {
        bool is_granted = false;
        struct skr_published published;
        size_t none = 0;
        enum skr_code code =
            skr_ownership_acquire(session->ownership, session->db,
                                  session->stop_fd, &is_granted, error);
        if (code != SKR_OK)
            return code;
        session->was_connected = true;
        if (is_granted)
            return SKR_OK;
        if (skr_clock_sleep(session->stop_fd, 0) ||
            skr_relay_is_over(&session->settings->limits))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
        take_settled(session);
        code = skr_senders_results(&session->dispatcher.senders, &published, 1,
                                   &none, 0, error);
        if (code != SKR_OK)
            return code;
        // Both sides answer, and more is not asked of a standby.
        end_trouble(session);
    }
}

// The next owner would send again what is confirmed and not settled.
static void
close_both(struct skr_session *session)
{
    int64_t end_ms = session->stop_by_ms > 0 ? session->stop_by_ms
                                             : skr_clock_ms() + HAND_OVER_MS;
    bool has_time = true;
    take_settled(session);
    while (skr_settler_is_busy(session->settler) && has_time) {
        skr_settler_wait(session->settler, session->stop_fd);
        take_settled(session);
        has_time = skr_clock_ms() < end_ms;
    }
    skr_ownership_release(session->ownership);
    skr_db_close(session->db);
    session->db = NULL;
    skr_senders_close(&session->dispatcher.senders);
}

enum skr_code
skr_session_run(struct skr_session *session, struct skr_error *error)
{
    enum skr_code code = connect_both(session, error);
    if (code == SKR_OK)
        code = acquire(session, error);
    if (code == SKR_OK)
        code = work(session, error);
    close_both(session);
    return code;
}

void
skr_session_show_waiting(struct skr_session *session)
{
    if (!session->has_broker && attend(session) != SKR_OK)
        stop_attending(session);
}

enum skr_code
skr_session_start(struct skr_session *session, struct skr_error *error)
{
    return skr_settler_start(session->settings, session->ownership,
                             &session->parked, &session->settler_beat,
                             &session->settler, error);
}

void
skr_session_stop(struct skr_session *session)
{
    int64_t left_ms = end_of_stop_ms(session) - skr_clock_ms();
    stop_attending(session);
    skr_settler_stop(session->settler, left_ms > 0 ? (uint32_t)left_ms : 0);
    take_settled(session);
}
