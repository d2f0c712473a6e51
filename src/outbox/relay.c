// SPDX-License-Identifier: MIT
// The relay's life: sessions, one after the other, until it is stopped. A
// session has a broker, a database and the lock, or it does not exist: a relay
// that lost any of them lets a standby take over.

#include "outbox/relay.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "outbox/pump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 10000,
    LOCK_WAIT_MS = 1000,
    LIFE_PAUSE_MS = 100,
    HAND_OVER_MS = 5000,  // to settle before the lock is let go
    DEFAULT_LEASE_MS = 3600000,
};

struct skr_relay {
    struct skr_relay_options options;
    struct skr_sender_options senders[SKR_MAX_SENDERS];
    struct skr_settler settler;
    struct skr_pump pump;
    bool (*gives_up)(void *user);  // NULL: never
    void *gives_up_user;
    bool was_connected;  // to both sides, at least once
    bool is_refused;     // by a broker that is a server, at the last connection
    bool said_standby;
    struct skr_trouble passed_over;  // hosts that can only be read
    struct skr_beat beat;            // of the pump's thread
    bool waits_for_broker;           // the last session did not get it
    struct skr_db *attending;        // says so; NULL: nobody can be told
};

static void
set_defaults(struct skr_relay_options *options)
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
    struct skr_pump *pump = &relay->pump;
    pump->senders.count = relay->options.sender_count;
    for (size_t i = 0; i < relay->options.sender_count; i++) {
        relay->senders[i] = relay->options.senders[i];
        relay->senders[i].options.wake_fd = pump->stop_fd;
        pump->senders.items[i].options = &relay->senders[i];
    }
    relay->options.senders = relay->senders;
}

// Small batches keep the window full while one is read and another settled;
// large ones cost fewer statements, of which a claim of rows takes several, and
// a settle under a fence. What waits for room must fit into what one of them
// leaves.
static void
size_batches(struct skr_pump *pump, const struct skr_relay_options *options)
{
    bool is_plain_share = options->claim == SKR_CLAIM_SLOTS &&
                          options->table->ops->read_partitions == NULL;
    size_t parts = options->claim == SKR_CLAIM_NONE || is_plain_share ? 4 : 2;
    size_t rest = options->claim == SKR_CLAIM_LEASED ? 0 : parts - 1;
    size_t rows = (options->in_flight + rest) / parts;
    pump->batch_capacity = rows > 0 ? rows : 1;
    pump->batch_bytes = (options->in_flight_bytes + rest) / parts;
}

enum skr_code
skr_relay_new(const struct skr_relay_options *options, struct skr_relay **relay,
              struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (options->sender_count == 0 || options->sender_count > SKR_MAX_SENDERS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a relay sends to 1 to %d transports, not %zu",
                        options->name, SKR_MAX_SENDERS, options->sender_count);
    struct skr_relay *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = *options;
    set_defaults(&made->options);
    size_batches(&made->pump, &made->options);
    made->pump.options = &made->options;
    made->pump.settler = &made->settler;
    made->pump.in_hand = calloc(SKR_MAX_SLOTS * made->pump.batch_capacity,
                                sizeof(*made->pump.in_hand));
    made->pump.done =
        calloc(SKR_MAX_SLOTS * made->pump.batch_capacity + SKR_MOST_PARKED,
               sizeof(*made->pump.done));
    made->pump.parked = calloc(SKR_MOST_PARKED, sizeof(*made->pump.parked));
    made->pump.unsettled =
        calloc(SKR_MOST_PARKED, sizeof(*made->pump.unsettled));
    if (made->pump.in_hand == NULL || made->pump.done == NULL ||
        made->pump.parked == NULL || made->pump.unsettled == NULL) {
        code = skr_fail_memory(error);
        goto free_relay;
    }
    made->pump.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (made->pump.stop_fd < 0) {
        code = skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN, "eventfd: %s",
                        strerror(errno));
        goto free_relay;
    }
    name_senders(made);
    made->pump.gates.name = made->options.name;
    made->pump.gates.log = &made->options.log;
    made->pump.gates.failure_limit = made->options.failure_limit;
    made->settler.name = made->options.name;
    made->settler.database = made->options.database;
    made->settler.database_url = made->options.database_url;
    made->settler.table = made->options.table;
    made->settler.log = &made->options.log;
    made->settler.tally = made->options.tally;
    made->settler.park_ms = made->options.park_ms;
    *relay = made;
    return SKR_OK;
free_relay:
    free(made->pump.in_hand);
    free(made->pump.done);
    free(made->pump.parked);
    free(made->pump.unsettled);
    free(made);
    return code;
}

void
skr_relay_free(struct skr_relay *relay)
{
    if (relay == NULL)
        return;
    close(relay->pump.stop_fd);
    skr_gates_fini(&relay->pump.gates);
    skr_waiting_fini(&relay->pump.waiting);
    skr_order_fini(&relay->pump.order);
    skr_heads_fini(&relay->pump.heads);
    skr_passing_clear(&relay->pump.passing);
    free(relay->pump.in_hand);
    free(relay->pump.done);
    free(relay->pump.parked);
    free(relay->pump.unsettled);
    free(relay);
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
    eventfd_write(relay->pump.stop_fd, 1);
}

struct skr_pulse
skr_relay_pulse(const struct skr_relay *relay)
{
    return (struct skr_pulse){{&relay->beat, &relay->settler.beat}};
}

struct skr_relay_counts
skr_relay_counts(struct skr_relay *relay)
{
    struct skr_settler_counts settled = skr_settler_counts(&relay->settler);
    return (struct skr_relay_counts){
        .published = settled.published,
        .retried = settled.retried,
        .failed = settled.failed,
        .blocked = settled.blocked,
    };
}

static enum skr_code
prepare_table(struct skr_relay *relay, struct skr_db *db,
              struct skr_error *error)
{
    const struct skr_table *table = relay->options.table;
    enum skr_code code = table->ops->check(table, db, error);
    if (code == SKR_OK)
        code = table->ops->start(table, db, &relay->pump.position, error);
    if (code != SKR_MISSING || !relay->options.auto_setup)
        return code;
    code = skr_table_create(table, db, error);
    if (code != SKR_OK)
        return code;
    return table->ops->start(table, db, &relay->pump.position, error);
}

static void
stop_attending(struct skr_relay *relay)
{
    skr_db_close(relay->attending);
    relay->attending = NULL;
}

// A relay without its broker has no session, and nothing would tell it from one
// that does not run. Where the database is away as well, nobody could ask it.
static enum skr_code
attend(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_options *options = &relay->options;
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code = SKR_OK;
    if (relay->attending == NULL)
        code = skr_db_open(options->database, options->database_url,
                           &relay->attending, error);
    if (code == SKR_OK)
        code = options->table->ops->lock_name(options->table, relay->attending,
                                              lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_table_name_attendance(lock_name, SKR_ATTEND_WAITING, name);
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
    struct skr_pump *pump = &relay->pump;
    enum skr_code code = skr_senders_open(&pump->senders, error);
    relay->waits_for_broker = code != SKR_OK;
    relay->is_refused =
        code == SKR_REFUSED && relay->senders[0].options.database_url == NULL;
    if (code != SKR_OK)
        return code;
    stop_attending(relay);
    code = skr_db_open_or_create(relay->options.database,
                                 relay->options.database_url,
                                 relay->options.auto_setup, &pump->db, error);
    if (code != SKR_OK)
        return code;
    skr_trouble_notice(&relay->passed_over, &relay->options.log,
                       "relay.passed_over", relay->options.name,
                       &pump->db->passed_over);
    skr_settler_work_on(&relay->settler, pump->db->server);
    code = prepare_table(relay, pump->db, error);
    if (code == SKR_OK)
        code = skr_pump_look_for_skew(pump, false, error);
    if (code == SKR_OK)
        code = relay->options.table->ops->lock_name(
            relay->options.table, pump->db, pump->lock_name, error);
    return code;
}

static void
close_session(struct skr_relay *relay)
{
    struct skr_pump *pump = &relay->pump;
    // Whoever takes over would send again what is confirmed and not settled.
    int64_t end =
        pump->stop_by_ms > 0 ? pump->stop_by_ms : skr_clock_ms() + HAND_OVER_MS;
    while (!skr_settler_wait(pump->settler, 100) && skr_clock_ms() < end)
        ;
    atomic_store(&relay->settler.owned_ms, 0);
    skr_pump_leave_share(pump);
    skr_db_close(pump->db);
    pump->db = NULL;
    skr_senders_close(&pump->senders);
}

static void
say_standby(struct skr_relay *relay, const char *reason)
{
    if (!relay->said_standby)
        skr_log(&relay->options.log, SKR_LOG_INFO, "relay.standby",
                SKR_LOG_TEXT("name", relay->options.name),
                SKR_LOG_TEXT("reason", reason));
    relay->said_standby = true;
    relay->pump.said_active = false;
}

// Between two attempts to become active. A standby is connected to both sides,
// so that it takes over at once.
static enum skr_code
stand_by(struct skr_relay *relay, uint32_t pause_ms, const char *reason,
         struct skr_error *error)
{
    struct skr_pump *pump = &relay->pump;
    if (skr_clock_sleep(pump->stop_fd, pause_ms) || skr_pump_is_over(pump))
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    say_standby(relay, reason);
    relay->was_connected = true;
    // Keeps the broker's connection alive while nothing is sent.
    size_t none = 0;
    struct skr_outcome outcome;
    return skr_senders_outcomes(&pump->senders, &outcome, 1, &none, 0, error);
}

// Leases keep workers apart by themselves: where the server has no lock to rely
// on, nobody but an exclusive relay could be in the way, and there it is
// refused.
static bool
may_go_unlocked(struct skr_relay *relay, const struct skr_error *error)
{
    struct skr_pump *pump = &relay->pump;
    if (relay->options.claim == SKR_CLAIM_NONE || error->code != SKR_REFUSED ||
        error->remedy != SKR_GIVE_UP)
        return false;
    if (!pump->is_unlocked)
        skr_log(&relay->options.log, SKR_LOG_INFO, "relay.unlocked",
                SKR_LOG_TEXT("name", relay->options.name),
                SKR_LOG_TEXT("reason", error->text));
    pump->is_unlocked = true;
    return true;
}

static enum skr_code
wait_for_lock(struct skr_relay *relay, struct skr_error *error)
{
    struct skr_pump *pump = &relay->pump;
    const char *reason = relay->options.claim == SKR_CLAIM_NONE
                             ? "another relay works this queue"
                             : "a relay has this queue to itself, or shares it "
                               "by another `claim` or scheme";
    for (;;) {
        bool granted = false;
        int64_t now = skr_clock_ms();
        skr_beat_wait();
        enum skr_code code = pump->db->ops->lock(
            pump->db, pump->lock_name, skr_pump_lock_mode(pump), pump->stop_fd,
            LOCK_WAIT_MS, &granted, error);
        skr_beat_resume();
        if (code != SKR_OK && may_go_unlocked(relay, error))
            return SKR_OK;
        if (code == SKR_OK && granted) {
            atomic_store(&relay->settler.owned_ms, now);
            pump->is_unlocked = false;
        }
        if (code == SKR_OK && !granted) {
            code = stand_by(relay, 0, reason, error);
            // Both sides answer, and more is not asked of a standby.
            if (code == SKR_OK)
                skr_pump_end_trouble(pump);
        }
        if (code != SKR_OK || granted)
            return code;
    }
}

// The server may not have noticed yet that an earlier connection is lost. Where
// the queue's lock cannot be had no other is to be relied on.
static enum skr_code
come_alive(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_table *table = relay->options.table;
    struct skr_pump *pump = &relay->pump;
    bool has_locks = skr_pump_is_divided(pump) && !pump->is_unlocked;
    enum skr_liveness liveness =
        has_locks ? SKR_LIVES_ELSEWHERE : SKR_LIVES_BY_LEASES;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && liveness == SKR_LIVES_ELSEWHERE) {
        code = table->ops->live(table, pump->db, &liveness, error);
        if (code == SKR_OK && liveness == SKR_LIVES_ELSEWHERE)
            code = stand_by(relay, LIFE_PAUSE_MS,
                            "an earlier session of this relay has not ended "
                            "yet",
                            error);
    }
    pump->sharing.by_lock = liveness == SKR_LIVES_BY_LOCK;
    return code;
}

static enum skr_code
run_session(struct skr_relay *relay, struct skr_error *error)
{
    relay->pump.works = false;
    enum skr_code code = open_session(relay, error);
    if (code == SKR_OK)
        code = wait_for_lock(relay, error);
    if (code == SKR_OK)
        code = come_alive(relay, error);
    if (code == SKR_OK) {
        relay->said_standby = false;
        relay->was_connected = true;
        // Of a divided queue there may be no share to be had.
        if (!skr_pump_is_divided(&relay->pump))
            skr_pump_say_active(&relay->pump);
        code = skr_pump_run(&relay->pump, error);
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
    skr_trouble_remind(&relay->pump.trouble, skr_clock_ms());
    return relay->gives_up != NULL &&
           (skr_error_is_lasting(error) || relay->is_refused) &&
           relay->gives_up(relay->gives_up_user);
}

static enum skr_code
run_sessions(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_options *options = &relay->options;
    enum skr_code code =
        skr_settler_start(&relay->settler, relay->pump.batch_capacity, error);
    if (code != SKR_OK)
        return code;
    uint32_t pause_ms = FIRST_PAUSE_MS;
    for (;;) {
        code = run_session(relay, error);
        if (code == SKR_OK || code == SKR_STOPPED || gives_up(relay, error))
            break;
        if (relay->pump.works)
            pause_ms = FIRST_PAUSE_MS;
        skr_trouble_report(&relay->pump.trouble, &options->log, "relay.trouble",
                           options->name, error);
        show_waiting(relay);
        if (skr_clock_sleep(relay->pump.stop_fd, pause_ms) ||
            skr_pump_is_over(&relay->pump)) {
            code = skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
            break;
        }
        pause_ms =
            pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
    }
    stop_attending(relay);
    int64_t left_ms = relay->pump.stop_by_ms > 0
                          ? relay->pump.stop_by_ms - skr_clock_ms()
                          : options->stop_timeout_ms;
    bool leaves_parked =
        options->stop_when_empty &&
        skr_settler_list_parked(&relay->settler, relay->pump.parked) > 0;
    skr_settler_stop(&relay->settler, left_ms > 0 ? (uint32_t)left_ms : 0);
    if (code == SKR_OK && skr_pump_leaves_some(&relay->pump))
        code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: messages wait for a route that is "
                        "closed; relay.route_closed says why",
                        options->name);
    else if (code == SKR_OK && leaves_parked)
        code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: the database refuses to change rows; "
                        "relay.row_parked says which, and why",
                        options->name);
    struct skr_relay_counts counts = skr_relay_counts(relay);
    skr_log(&options->log, SKR_LOG_INFO, "relay.stopped",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_NUMBER("published", counts.published),
            SKR_LOG_NUMBER("retried", counts.retried),
            SKR_LOG_NUMBER("failed", counts.failed));
    return code;
}

enum skr_code
skr_relay_run(struct skr_relay *relay, struct skr_error *error)
{
    skr_beat_begin(&relay->beat);
    enum skr_code code = run_sessions(relay, error);
    skr_beat_end();
    return code;
}
