// SPDX-License-Identifier: MIT
// The relay's life: sessions, one after the other, until it is stopped. An
// embedder's options (<skirnir/relay.h>) become a table, a sender and the
// settings of a relay that owns them; their defaults are the program's.

#include "relay/relay.h"

#include "base/arena.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "relay/ownership.h"
#include "relay/session.h"
#include "store/messenger/messenger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 10000,
    MOST_IN_FLIGHT = 1000000,
    FAILURE_LIMIT = 100,
};

struct skr_relay {
    struct skr_relay_settings settings;
    struct skr_sender_options senders[SKR_MAX_SENDERS];
    struct skr_relay_tally tally;  // where the settings name none
    int stop_fd;
    struct skr_session session;
    struct skr_beat beat;  // of the session's thread
    // An embedder's; NULL and empty: the settings are borrowed.
    struct skr_store *own_table;
    struct skr_arena own_texts;
};

static void
default_to(uint32_t *setting, uint32_t value)
{
    if (*setting == 0)
        *setting = value;
}

static void
set_defaults(struct skr_relay *relay)
{
    struct skr_relay_settings *settings = &relay->settings;
    default_to(&settings->in_flight, 1000);
    default_to(&settings->max_idle_ms, 1000);
    default_to(&settings->long_open_ms, 10000);
    default_to(&settings->park_ms, 60000);
    default_to(&settings->stop_timeout_ms, 8000);
    if (settings->in_flight_bytes == 0)
        settings->in_flight_bytes = 8 * 1024 * 1024;
    if (settings->tally == NULL)
        settings->tally = &relay->tally;
    for (size_t i = 0; i < settings->sender_count; i++) {
        relay->senders[i] = settings->senders[i];
        relay->senders[i].options.wake_fd = relay->stop_fd;
    }
    settings->senders = relay->senders;
}

enum skr_code
skr_relay_make(const struct skr_relay_settings *settings,
               struct skr_relay **relay, struct skr_error *error)
{
    if (settings->sender_count == 0 || settings->sender_count > SKR_MAX_SENDERS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s: a relay sends to 1 to %d transports, not %zu",
                        settings->name, SKR_MAX_SENDERS,
                        settings->sender_count);
    struct skr_relay *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->settings = *settings;
    made->stop_fd = eventfd(0, EFD_CLOEXEC);
    set_defaults(made);
    enum skr_code code = made->stop_fd < 0
                             ? skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                                        "eventfd: %s", strerror(errno))
                             : skr_session_init(&made->session, &made->settings,
                                                made->stop_fd, error);
    if (code != SKR_OK) {
        skr_relay_free(made);
        return code;
    }
    *relay = made;
    return SKR_OK;
}

void
skr_relay_free(struct skr_relay *relay)
{
    if (relay == NULL)
        return;
    if (relay->stop_fd >= 0)
        close(relay->stop_fd);
    skr_session_fini(&relay->session);
    skr_store_free(relay->own_table);
    skr_arena_fini(&relay->own_texts);
    free(relay);
}

void
skr_relay_stop(struct skr_relay *relay)
{
    eventfd_write(relay->stop_fd, 1);
}

struct skr_pulse
skr_relay_pulse(const struct skr_relay *relay)
{
    return (struct skr_pulse){{&relay->beat, &relay->session.settler_beat}};
}

// Whether the error is a mistake that was there from the start. A broker that
// is a server and refuses the login is one, a table that serves as a broker may
// be busy.
static bool
gives_up(struct skr_relay *relay, const struct skr_error *error)
{
    const struct skr_relay_limits *limits = &relay->settings.limits;
    const struct skr_session *session = &relay->session;
    bool is_refused = !session->has_broker && error->code == SKR_REFUSED &&
                      relay->senders[0].options.database_url == NULL;
    return !session->was_connected && limits->gives_up != NULL &&
           (skr_error_is_lasting(error) || is_refused) &&
           limits->gives_up(limits->gives_up_user);
}

// Sessions, one after the other, until one ends as it should.
static enum skr_code
run_sessions(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *settings = &relay->settings;
    struct skr_session *session = &relay->session;
    struct skr_backoff backoff = {.first_ms = FIRST_PAUSE_MS,
                                  .longest_ms = LONGEST_PAUSE_MS};
    for (;;) {
        enum skr_code code = skr_session_run(session, error);
        if (code == SKR_OK || code == SKR_STOPPED || gives_up(relay, error))
            return code;
        if (session->works)
            skr_backoff_reset(&backoff);
        skr_trouble_report(&session->trouble, &settings->log, SKR_TROUBLE_RELAY,
                           "relay.trouble", settings->name, error);
        skr_session_show_waiting(session);
        if (skr_clock_sleep(relay->stop_fd, skr_backoff_next(&backoff)) ||
            skr_relay_is_over(&settings->limits))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
}

// Why a relay that was to end when its queue is empty leaves rows in it.
static enum skr_code
explain_rest(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *settings = &relay->settings;
    if (skr_session_leaves_some(&relay->session))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: messages wait for a route that is "
                        "closed; relay.route_closed says why",
                        settings->name);
    if (settings->stop_when_empty && atomic_load(&settings->tally->parked) > 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%s: not empty: the database refuses to change rows; "
                        "relay.row_parked says which, and why",
                        settings->name);
    return SKR_OK;
}

static enum skr_code
run(struct skr_relay *relay, struct skr_error *error)
{
    const struct skr_relay_settings *settings = &relay->settings;
    struct skr_relay_tally *tally = settings->tally;
    enum skr_code code = skr_session_start(&relay->session, error);
    if (code != SKR_OK)
        return code;
    code = run_sessions(relay, error);
    skr_session_stop(&relay->session);
    if (code == SKR_OK)
        code = explain_rest(relay, error);
    skr_log(&settings->log, SKR_LOG_INFO, "relay.stopped",
            SKR_LOG_TEXT("name", settings->name),
            SKR_LOG_NUMBER("published", atomic_load(&tally->published)),
            SKR_LOG_NUMBER("retried", atomic_load(&tally->retried)),
            SKR_LOG_NUMBER("failed", atomic_load(&tally->failed)));
    skr_health_tell(&settings->log, SKR_HEALTH_ENDED, 0);
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
                        relay->settings.name);
    skr_beat_begin(&relay->beat);
    enum skr_code code = run(relay, error);
    skr_beat_end();
    return code;
}

// An embedder's options.

struct embedding {
    struct skr_relay_options options;  // with defaults; all texts are copies
    struct skr_arena texts;
    struct skr_store *table;
    struct skr_routes *routes;  // NULL: the broker is one queue
    enum skr_claim kind;        // of ownership
};

// Copies texts, and says which option is missing.
static enum skr_code
copy_options(struct embedding *embedding, const struct skr_relay_options *from,
             struct skr_error *error)
{
    struct skr_relay_options *options = &embedding->options;
    const struct {
        const char *name, **value;
        bool is_needed;
        const char *fallback;
    } texts[] = {
        {"name", &options->name, true, NULL},
        {"database_url", &options->database_url, true, NULL},
        {"table", &options->table, false, "messenger_outbox"},
        {"queue", &options->queue, false, "outbox"},
        {"broker_url", &options->broker_url, true, NULL},
        {"queue_database_url", &options->queue_database_url,
         from->queue_database != NULL, NULL},
        {"failed_table", &options->failed_table, false, "messenger_messages"},
        {"failed_queue", &options->failed_queue, false, "failed"},
    };
    *options = *from;
    const char *missing = options->database == NULL ? "database" : NULL;
    missing = options->broker == NULL ? "broker" : missing;
    for (size_t i = 0; i < SKR_COUNT_OF(texts) && missing == NULL; i++) {
        const char **value = texts[i].value;
        if (*value == NULL)
            *value = texts[i].fallback;
        if (*value == NULL && texts[i].is_needed)
            missing = texts[i].name;
        if (*value == NULL)
            continue;
        *value = skr_arena_text(&embedding->texts, *value, strlen(*value));
        if (*value == NULL)
            return skr_fail_memory(error);
    }
    if (missing != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.%s is not set", missing);
    if (options->in_flight > MOST_IN_FLIGHT)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_relay_options.in_flight is %u; at most %d is "
                        "possible",
                        (unsigned)options->in_flight, MOST_IN_FLIGHT);
    return SKR_OK;
}

static enum skr_code
make_table(struct embedding *embedding, struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    return skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = options->database->tx->dialect,
            .table = options->table,
            .queue = options->queue,
            .is_ordered = options->is_ordered,
            .is_sharded = skr_ownership_has_shards(embedding->kind),
            .limits_headers = true,
            .transport = options->name,
            .failed_table = options->failed_table,
            .failed_queue = options->failed_queue,
        },
        &embedding->table, error);
}

// The exchange or topic that the URL of a broker names goes before the
// convention.
static enum skr_code
make_routes(struct embedding *embedding, struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    struct skr_arena *arena = &embedding->texts;
    struct skr_url url;
    if (options->queue_database != NULL)
        return SKR_OK;
    enum skr_code code = skr_url_parse(options->broker_url, &url, error);
    if (code != SKR_OK)
        return code;
    bool has_topics = options->broker->has_topics;
    const char *own =
        skr_url_find(&url, has_topics ? "topic" : "exchange[name]");
    if (own == NULL)
        own = has_topics ? url.path : skr_route_path_exchange(&url);
    bool is_named = own != NULL && own[0] != '\0';
    if (is_named)
        own = skr_arena_text(arena, own, strlen(own));
    skr_url_fini(&url);
    struct skr_routes *routes = skr_arena_take(arena, sizeof(*routes));
    struct skr_route_sender *sender = skr_arena_take(arena, sizeof(*sender));
    if (routes == NULL || sender == NULL || (is_named && own == NULL))
        return skr_fail_memory(error);
    *sender = (struct skr_route_sender){
        .name = options->name,
        .topics = has_topics ? SKR_TOPICS_NAME : SKR_TOPICS_NONE,
        .exchange = is_named && !has_topics ? own : NULL,
        .topic = is_named && has_topics ? own : NULL,
    };
    *routes = (struct skr_routes){.senders = sender};
    embedding->routes = routes;
    return SKR_OK;
}

static bool
give_up(void *user)
{
    (void)user;
    return true;
}

static enum skr_code
make_relay(struct embedding *embedding, struct skr_relay **relay,
           struct skr_error *error)
{
    const struct skr_relay_options *options = &embedding->options;
    const struct skr_log log = {.write = options->log,
                                .user = options->log_user};
    const struct skr_sender_options sender = {
        .name = options->broker->scheme,
        .broker = options->broker,
        .options = {.url = options->broker_url,
                    .database = options->queue_database,
                    .database_url = options->queue_database_url,
                    .log = log},
    };
    return skr_relay_make(
        &(struct skr_relay_settings){
            .name = options->name,
            .database = options->database,
            .database_url = options->database_url,
            .table = embedding->table,
            .table_name = options->table,
            .senders = &sender,
            .sender_count = 1,
            .routes = embedding->routes,
            .claim = embedding->kind,
            .retry = SKR_DEFAULT_RETRY_POLICY,
            .blocks_partitions = true,
            .unroutable = SKR_UNROUTABLE_FAIL,
            .failure_limit = FAILURE_LIMIT,
            .in_flight = options->in_flight,
            .stop_when_empty = options->stop_when_empty,
            .limits = {.gives_up = give_up},
            .log = log,
        },
        relay, error);
}

enum skr_code
skr_relay_new(const struct skr_relay_options *options, struct skr_relay **relay,
              struct skr_error *error)
{
    struct embedding embedding = {.table = NULL};
    struct skr_relay *made = NULL;
    enum skr_code code = options == NULL
                             ? skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                        "a relay needs skr_relay_options")
                             : copy_options(&embedding, options, error);
    if (code == SKR_OK)
        code = skr_ownership_choose(options, &embedding.kind, error);
    if (code == SKR_OK)
        code = make_table(&embedding, error);
    if (code == SKR_OK)
        code = make_routes(&embedding, error);
    if (code == SKR_OK)
        code = make_relay(&embedding, &made, error);
    if (code != SKR_OK) {
        skr_store_free(embedding.table);
        skr_arena_fini(&embedding.texts);
        return code;
    }
    made->own_table = embedding.table;
    made->own_texts = embedding.texts;
    *relay = made;
    return SKR_OK;
}
