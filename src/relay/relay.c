// SPDX-License-Identifier: MIT
// The relay's life: sessions, one after the other, until it is stopped. A
// session has a broker, a database and the lock, or it does not exist: a relay
// that lost any of them lets a standby take over.

#include "relay/relay.h"

#include "base/backoff.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "db/rights.h"
#include "relay/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 10000,
    HAND_OVER_MS = 5000,  // to settle before the lock is let go
    DEFAULT_LEASE_MS = 3600000,
};

struct skr_relay {
    struct skr_relay_settings options;
    struct skr_sender_options senders[SKR_MAX_SENDERS];
    struct skr_session session;
    bool (*gives_up)(void *user);  // NULL: never
    void *gives_up_user;
    bool was_connected;  // to both sides, at least once
    bool is_refused;     // by a broker that is a server, at the last connection
    struct skr_trouble passed_over;  // hosts that can only be read
    struct skr_beat beat;            // of the session's thread
    bool waits_for_broker;           // the last session did not get it
    struct skr_db *attending;        // says so; NULL: cannot say so
    // See skr_relay_own(); NULL and empty: the settings are borrowed.
    struct skr_store *own_table;
    struct skr_arena own_texts;
};

static void
set_defaults(struct skr_relay_settings *options)
{
    if (options->in_flight == 0)
        options->in_flight = 1000;
    if (options->in_flight_bytes == 0)
        options->in_flight_bytes = 8 * 1024 * 1024;
    if (options->max_idle_ms == 0)
        options->max_idle_ms = 1000;
    if (options->long_open_ms == 0)
        options->long_open_ms = 10000;
    if (options->park_ms == 0)
        options->park_ms = 60000;
    if (options->lease_ms == 0)
        options->lease_ms = DEFAULT_LEASE_MS;
    if (options->stop_timeout_ms == 0)
        options->stop_timeout_ms = 8000;
}

static void
name_senders(struct skr_relay *relay)
{
    struct skr_session *session = &relay->session;
    struct skr_senders *senders = &session->dispatcher.senders;
    senders->count = relay->options.sender_count;
    for (size_t i = 0; i < relay->options.sender_count; i++) {
        relay->senders[i] = relay->options.senders[i];
        relay->senders[i].options.wake_fd = session->stop_fd;
        senders->items[i].options = &relay->senders[i];
    }
    relay->options.senders = relay->senders;
}

// What is read ahead must fit into what a batch leaves.
static void
size_batches(struct skr_session *session,
             const struct skr_relay_settings *options)
{
    size_t parts = skr_ownership_batches(session->ownership);
    size_t rest = skr_ownership_claims_rows(session->ownership) ? 0 : parts - 1;
    size_t rows = (options->in_flight + rest) / parts;
    size_t most = ((size_t)1 << SKR_TAG_INDEX_BITS) - 1;
    session->batch_capacity = rows == 0 ? 1 : rows < most ? rows : most;
    session->batch_bytes = (options->in_flight_bytes + rest) / parts;
}

static enum skr_code
make_session(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *options = &relay->options;
    struct skr_session *session = &relay->session;
    struct skr_dispatcher *dispatcher = &session->dispatcher;
    session->options = dispatcher->options = options;
    session->parking.name = options->name;
    session->parking.log = &options->log;
    session->parking.park_ms = options->park_ms;
    dispatcher->breakers.failure_limit = options->failure_limit;
    dispatcher->flight.most_rows = options->in_flight;
    dispatcher->flight.most_bytes = options->in_flight_bytes;
    skr_sequencer_init(&dispatcher->sequencer);
    enum skr_code code = skr_ownership_new(
        &(struct skr_ownership_options){.name = options->name,
                                        .claim = options->claim,
                                        .table = options->table,
                                        .lease_ms = options->lease_ms,
                                        .log = &options->log},
        &session->ownership, error);
    if (code != SKR_OK)
        return code;
    size_batches(session, options);
    code = skr_flight_init(&dispatcher->flight, session->batch_capacity, error);
    if (code == SKR_OK)
        code = skr_parking_init(&session->parking, error);
    if (code == SKR_OK)
        code = skr_source_new(
            &(struct skr_source_options){
                .table = options->table,
                .parked = &session->parking.parked,
                .claims_rows = skr_ownership_claims_rows(session->ownership)},
            &session->source, error);
    if (code != SKR_OK)
        return code;
    dispatcher->source = session->source;
    dispatcher->ownership = session->ownership;
    session->diagnostics = (struct skr_diagnostics){
        .options = options,
        .source = session->source,
        .expects_no_other = !skr_ownership_claims_rows(session->ownership),
    };
    return SKR_OK;
}

enum skr_code
skr_relay_make(const struct skr_relay_settings *options,
               struct skr_relay **relay, struct skr_error *error)
{
    if (options->sender_count == 0 || options->sender_count > SKR_MAX_SENDERS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a relay sends to 1 to %d transports, not %zu",
                        options->name, SKR_MAX_SENDERS, options->sender_count);
    struct skr_relay *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = *options;
    set_defaults(&made->options);
    made->session.stop_fd = eventfd(0, EFD_CLOEXEC);
    enum skr_code code = made->session.stop_fd < 0
                             ? skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                                        "eventfd: %s", strerror(errno))
                             : make_session(made, error);
    if (code != SKR_OK) {
        skr_relay_free(made);
        return code;
    }
    name_senders(made);
    *relay = made;
    return SKR_OK;
}

void
skr_relay_free(struct skr_relay *relay)
{
    if (relay == NULL)
        return;
    struct skr_session *session = &relay->session;
    if (session->stop_fd >= 0)
        close(session->stop_fd);
    skr_settler_free(session->settler);
    skr_source_free(session->source);
    skr_ownership_free(session->ownership);
    skr_parking_fini(&session->parking);
    skr_flight_fini(&session->dispatcher.flight);
    skr_breakers_fini(&session->dispatcher.breakers);
    skr_sequencer_fini(&session->dispatcher.sequencer);
    skr_store_free(relay->own_table);
    skr_arena_fini(&relay->own_texts);
    free(relay);
}

void
skr_relay_own(struct skr_relay *relay, struct skr_store *table,
              struct skr_arena texts)
{
    relay->own_table = table;
    relay->own_texts = texts;
}

void
skr_relay_give_up_by(struct skr_relay *relay, bool (*gives_up)(void *user),
                     void *user)
{
    relay->gives_up = gives_up;
    relay->gives_up_user = user;
}

void
skr_relay_stop(struct skr_relay *relay)
{
    eventfd_write(relay->session.stop_fd, 1);
}

struct skr_pulse
skr_relay_pulse(const struct skr_relay *relay)
{
    return (struct skr_pulse){{&relay->beat, &relay->session.settler_beat}};
}

struct skr_relay_counts
skr_relay_counts(struct skr_relay *relay)
{
    return relay->session.counts;
}

// The source reads from the start of the queue.
static enum skr_code
prepare_table(struct skr_relay *relay, struct skr_db *db,
              struct skr_error *error)
{
    const struct skr_store *table = relay->options.table;
    struct skr_source *source = relay->session.source;
    enum skr_code code = table->admin->check(table, db, error);
    if (code == SKR_OK)
        code = skr_source_open(source, db, error);
    if (code != SKR_MISSING || !relay->options.auto_setup)
        return code;
    code = skr_store_create(table, db, error);
    return code == SKR_OK ? skr_source_open(source, db, error) : code;
}

static void
stop_attending(struct skr_relay *relay)
{
    skr_db_close(relay->attending);
    relay->attending = NULL;
}

// A relay without its broker has no session, and nothing would tell it from one
// that does not run. Where the database is away as well, it could not be asked
// about relays.
static enum skr_code
attend(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *options = &relay->options;
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code = SKR_OK;
    if (relay->attending == NULL)
        code = skr_db_open(options->database, options->database_url,
                           &relay->attending, error);
    if (code == SKR_OK)
        code = options->table->source->lock_name(
            options->table, relay->attending, lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, SKR_ATTEND_WAITING, name);
    return relay->attending->ops->attend(relay->attending, name, error);
}

static void
show_waiting(struct skr_relay *relay)
{
    if (!relay->waits_for_broker || attend(relay, NULL) != SKR_OK)
        stop_attending(relay);
}

static enum skr_code
open_session(struct skr_relay *relay, struct skr_error *error)
{
    struct skr_session *session = &relay->session;
    enum skr_code code = skr_senders_open(&session->dispatcher.senders, error);
    relay->waits_for_broker = code != SKR_OK;
    relay->is_refused =
        code == SKR_REFUSED && relay->senders[0].options.database_url == NULL;
    if (code != SKR_OK)
        return code;
    stop_attending(relay);
    code = skr_db_open_or_create(
        relay->options.database, relay->options.database_url,
        relay->options.auto_setup, &session->db, error);
    if (code != SKR_OK)
        return code;
    skr_trouble_notice(&relay->passed_over, &relay->options.log,
                       "relay.passed_over", relay->options.name,
                       &session->db->passed_over);
    skr_settler_work_on(session->settler, session->db->server);
    skr_parking_work_on(&session->parking, session->db->server);
    code = prepare_table(relay, session->db, error);
    if (code == SKR_OK && relay->options.table_name != NULL)
        code = skr_rights_check_change(session->db, relay->options.table_name,
                                       "queue_name", error);
    if (code == SKR_OK)
        code = skr_diagnostics_begin(&session->diagnostics, session->db, error);
    if (code == SKR_OK)
        code = skr_ownership_begin(session->ownership, session->db, error);
    return code;
}

static void
close_session(struct skr_relay *relay)
{
    struct skr_session *session = &relay->session;
    // The next owner would send again what is confirmed and not settled.
    int64_t end_ms = session->stop_by_ms > 0 ? session->stop_by_ms
                                             : skr_clock_ms() + HAND_OVER_MS;
    bool has_time = true;
    skr_session_take_settled(session);
    while (skr_session_is_settling(session) && has_time) {
        skr_session_wait_for_settler(session);
        skr_session_take_settled(session);
        has_time = skr_clock_ms() < end_ms;
    }
    skr_ownership_release(session->ownership);
    skr_db_close(session->db);
    session->db = NULL;
    skr_senders_close(&session->dispatcher.senders);
}

// Waits to become one of the relays that work the queue. A standby is connected
// to both sides, so that it takes over at once, and keeps the broker's
// connection alive.
static enum skr_code
acquire(struct skr_relay *relay, struct skr_error *error)
{
    struct skr_session *session = &relay->session;
    for (;;) {
        const char *reason = NULL;
        struct skr_outcome result;
        size_t none = 0;
        enum skr_code code = skr_ownership_acquire(
            session->ownership, session->stop_fd, &reason, error);
        if (code != SKR_OK || reason == NULL)
            return code;
        if (skr_clock_sleep(session->stop_fd, 0) ||
            skr_session_is_over(session))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
        skr_ownership_say_standby(session->ownership, reason);
        skr_session_take_settled(session);
        relay->was_connected = true;
        code = skr_senders_outcomes(&session->dispatcher.senders, &result, 1,
                                    &none, 0, error);
        if (code != SKR_OK)
            return code;
        // Both sides answer, and more is not asked of a standby.
        skr_session_end_trouble(session);
    }
}

static enum skr_code
run_session(struct skr_relay *relay, struct skr_error *error)
{
    struct skr_session *session = &relay->session;
    session->works = false;
    enum skr_code code = open_session(relay, error);
    if (code == SKR_OK)
        code = acquire(relay, error);
    if (code == SKR_OK) {
        relay->was_connected = true;
        code = skr_session_run(session, error);
    }
    close_session(relay);
    return code;
}

// A mistake that was there from the start.
static bool
gives_up(struct skr_relay *relay, const struct skr_error *error)
{
    if (relay->was_connected)
        return false;
    skr_trouble_remind(&relay->session.trouble, skr_clock_ms());
    return relay->gives_up != NULL &&
           (skr_error_is_lasting(error) || relay->is_refused) &&
           relay->gives_up(relay->gives_up_user);
}

// Sessions, one after the other, until one ends as it should.
static enum skr_code
run_sessions(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *options = &relay->options;
    struct skr_session *session = &relay->session;
    struct skr_backoff backoff = {.first_ms = FIRST_PAUSE_MS,
                                  .longest_ms = LONGEST_PAUSE_MS};
    for (;;) {
        enum skr_code code = run_session(relay, error);
        if (code == SKR_OK || code == SKR_STOPPED || gives_up(relay, error))
            return code;
        if (session->works)
            skr_backoff_reset(&backoff);
        skr_trouble_report(&session->trouble, &options->log, "relay.trouble",
                           options->name, error);
        show_waiting(relay);
        if (skr_clock_sleep(session->stop_fd, skr_backoff_next(&backoff)) ||
            skr_session_is_over(session))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
}

// Why a relay that was to end when its queue is empty leaves rows in it.
static enum skr_code
explain_rest(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *options = &relay->options;
    if (skr_session_leaves_some(&relay->session))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: messages wait for a route that is "
                        "closed; relay.route_closed says why",
                        options->name);
    if (options->stop_when_empty &&
        skr_parked_count(&relay->session.parking.parked) > 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: the database refuses to change rows; "
                        "relay.row_parked says which, and why",
                        options->name);
    return SKR_OK;
}

static enum skr_code
run(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *options = &relay->options;
    struct skr_session *session = &relay->session;
    enum skr_code code = skr_settler_start(
        &(struct skr_settler_options){.name = options->name,
                                      .database = options->database,
                                      .database_url = options->database_url,
                                      .table = options->table,
                                      .ownership = session->ownership,
                                      .beat = &session->settler_beat,
                                      .log = &options->log},
        &session->settler, error);
    if (code != SKR_OK)
        return code;
    code = run_sessions(relay, error);
    stop_attending(relay);
    int64_t left_ms = session->stop_by_ms > 0
                          ? session->stop_by_ms - skr_clock_ms()
                          : options->stop_timeout_ms;
    skr_settler_stop(session->settler, left_ms > 0 ? (uint32_t)left_ms : 0);
    skr_session_take_settled(session);
    if (code == SKR_OK)
        code = explain_rest(relay, error);
    skr_log(&options->log, SKR_LOG_INFO, "relay.stopped",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_NUMBER("published", session->counts.published),
            SKR_LOG_NUMBER("retried", session->counts.retried),
            SKR_LOG_NUMBER("failed", session->counts.failed));
    return code;
}

enum skr_code
skr_relay_run(struct skr_relay *relay, struct skr_error *error)
{
    struct skr_error unwanted = {0};
    if (error == NULL)
        error = &unwanted;
    if (relay->session.settler != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a relay runs once; make another",
                        relay->options.name);
    skr_beat_begin(&relay->beat);
    enum skr_code code = run(relay, error);
    skr_beat_end();
    return code;
}
