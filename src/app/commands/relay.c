// SPDX-License-Identifier: MIT
// Relays as the configuration describes them, a thread each: what stops one of
// them does not stop another.

#include "relay/relay.h"
#include "app/app.h"
#include "app/service/supervisor.h"
#include "app/wiring/routing.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "relay/ownership.h"

#include <stdlib.h>

// A relay finishes in half of STOP_S; it is for one that waits for an answer of
// its database, and less than what service managers have patience for.
enum { LONGEST_SHARE_S = 15, STOP_S = 15 };

// One of them, with all that it borrows.
struct relay {
    struct skr_worker self;
    struct skr_config *own;  // NULL: that of all
    const struct skr_config_transport *outbox;
    struct skr_routing routing;
    struct skr_relay_settings options;
    struct skr_sender_options senders[SKR_ROUTING_MAX_TARGETS];
    char *urls[SKR_ROUTING_MAX_TARGETS];
    struct skr_limits limits;
    uint64_t failure_limit;  // 0: none
    struct skr_relay_tally tally;
    _Atomic(struct skr_relay *) relay;
    atomic_bool is_stopped;
};

static enum skr_code
check_kinds(const struct skr_config *config, const char *name,
            const struct skr_config_transport **outbox,
            const struct skr_config_transport **target, struct skr_error *error)
{
    enum skr_code code = skr_config_find_transport(config, name, outbox, error);
    if (code != SKR_OK)
        return code;
    if ((*outbox)->kind != SKR_TRANSPORT_OUTBOX)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, not an outbox; relay works on "
                        "doctrine:// and ordered-doctrine:// transports",
                        name, (*outbox)->scheme);
    if (skr_transport_is_failure(config, *outbox))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is the failure_transport: it keeps "
                        "messages that failed, which are neither relayed nor "
                        "consumed; see `skirnir failed show`",
                        name);
    if ((*outbox)->relay_to == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s has no destination; set "
                        "transports.%s.relay_to to the name of a transport",
                        name, name);
    return skr_config_find_transport(config, (*outbox)->relay_to, target,
                                     error);
}

static enum skr_code
read_sender(const struct skr_app *app,
            const struct skr_config_transport *target,
            struct skr_sender_options *sender, char **url,
            struct skr_error *error)
{
    *sender = (struct skr_sender_options){
        .name = target->name,
        .options = {.auto_setup = target->auto_setup, .log = app->log},
    };
    enum skr_code code = skr_transport_broker(target, &sender->broker, error);
    if (code == SKR_OK)
        code = skr_config_broker_url(target, url, error);
    sender->options.url = *url;
    if (code != SKR_OK || target->database == NULL)
        return code;
    sender->options.database_url = target->database->url;
    return skr_transport_database(target->database, &sender->options.database,
                                  error);
}

static enum skr_code
read_senders(struct relay *relay, const struct skr_app *app,
             struct skr_error *error)
{
    const struct skr_routing *routing = &relay->routing;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < routing->target_count && code == SKR_OK; i++)
        code = read_sender(app, routing->targets[i], &relay->senders[i],
                           &relay->urls[i], error);
    relay->options.senders = relay->senders;
    relay->options.sender_count = routing->target_count;
    relay->options.routes = &routing->routes;
    return code;
}

// Of rows it is how long a worker of Symfony may take, and long; shards are to
// go on soon when their relay has died.
static uint32_t
lease_ms(const struct skr_config_transport *outbox)
{
    uint32_t lease_s = outbox->place.redeliver_timeout_s;
    if (skr_ownership_has_shards(skr_transport_claim(outbox)) &&
        lease_s > LONGEST_SHARE_S)
        lease_s = LONGEST_SHARE_S;
    return lease_s * 1000;
}

static bool
is_over(void *user)
{
    struct relay *relay = user;
    struct skr_relay_tally *tally = &relay->tally;
    uint64_t failures = atomic_load(&tally->retried) +
                        atomic_load(&tally->failed) +
                        atomic_load(&tally->blocked);
    if (relay->failure_limit > 0 && failures >= relay->failure_limit)
        return true;
    return skr_limits_is_over(&relay->limits);
}

static enum skr_code
read_options(struct relay *relay, const struct skr_app *app,
             struct skr_error *error)
{
    const struct skr_config_transport *outbox = relay->outbox;
    const struct skr_limits *limits = &relay->limits;
    struct skr_relay_settings *options = &relay->options;
    *options = (struct skr_relay_settings){
        .name = outbox->name,
        .database_url = outbox->database->url,
        // A table of kafka-outbox-relay need not be deleted from.
        .table_name = outbox->kafka_outbox == NULL ? outbox->place.table : NULL,
        .auto_setup = outbox->auto_setup,
        .claim = skr_transport_claim(outbox),
        .blocks_partitions = outbox->relay.on_failure == SKR_ON_FAILURE_BLOCK,
        .unroutable = outbox->relay.unroutable,
        .lease_ms = lease_ms(outbox),
        .retry = outbox->retry,
        .failure_limit = outbox->failure_limit,
        .in_flight = outbox->relay.in_flight,
        .in_flight_bytes = outbox->relay.in_flight_bytes,
        .max_idle_ms = limits->sleep_ms,
        .stop_when_empty = skr_arguments_has(app->arguments, "stop-when-empty"),
        .limits = {.messages = limits->messages,
                   .is_over = is_over,
                   .gives_up = skr_health_gives_up,
                   .gives_up_user = app->log.tell_user,
                   .user = relay},
        .stop_timeout_ms =
            (uint32_t)skr_arguments_number(app->arguments, "stop-timeout", 0) *
            1000,
        .log = app->log,
        .tally = &relay->tally,
    };
    return skr_transport_database(outbox->database, &options->database, error);
}

static enum skr_code
open_by(struct relay *relay, const struct skr_config *config,
        struct skr_error *error)
{
    struct skr_health *health = &relay->self.environment->health;
    const struct skr_app app =
        skr_environment_app(relay->self.environment, relay->self.index);
    const struct skr_config_transport *target = NULL;
    struct skr_relay *made = NULL;
    enum skr_code code =
        check_kinds(config, relay->self.name, &relay->outbox, &target, error);
    if (code != SKR_OK)
        return code;
    skr_limits_read(&app, &relay->limits);
    relay->failure_limit =
        (uint64_t)skr_arguments_number(app.arguments, "failure-limit", 0);
    code = read_options(relay, &app, error);
    if (code == SKR_OK)
        code = skr_routing_read(config, target, &relay->routing, error);
    if (code == SKR_OK)
        code = read_senders(relay, &app, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, relay->outbox, &relay->options.table,
                                   error);
    if (code == SKR_OK)
        code = skr_relay_make(&relay->options, &made, error);
    if (code != SKR_OK)
        return code;
    skr_health_watch(health, relay->self.index, skr_relay_pulse(made));
    atomic_store(&relay->relay, made);
    return SKR_OK;
}

static enum skr_code
open_relay(void *item, void *user, struct skr_error *error)
{
    struct relay *relay = item;
    (void)user;
    return relay->self.environment->app.aliases != NULL
               ? SKR_OK
               : open_by(relay, relay->self.config, error);
}

static void
close_relay(void *item)
{
    struct relay *relay = item;
    skr_relay_free(atomic_load(&relay->relay));
    skr_store_free(relay->options.table);
    for (size_t i = 0; i < SKR_ROUTING_MAX_TARGETS; i++)
        free(relay->urls[i]);
    skr_routing_fini(&relay->routing);
    skr_config_free(relay->own);
}

// A line without the places is better than none.
static void
say_started(void *item)
{
    const struct relay *relay = item;
    const struct skr_routing *routing = &relay->routing;
    const struct skr_config *config =
        relay->own == NULL ? relay->self.config : relay->own;
    struct skr_text destination = {0};
    if (relay->outbox == NULL)
        return;
    char *source = skr_environment_place(config, relay->outbox);
    for (size_t i = 0; i < routing->target_count; i++) {
        char *place = skr_environment_place(config, routing->targets[i]);
        skr_text_add_format(&destination, "%s%s %s", i == 0 ? "" : ", ",
                            routing->targets[i]->name,
                            place == NULL ? "?" : place);
        free(place);
    }
    skr_log(&relay->self.environment->app.log, SKR_LOG_INFO, "relay.started",
            SKR_LOG_TEXT("name", relay->outbox->name),
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("file", config->path),
            SKR_LOG_TEXT("source", source == NULL ? "" : source),
            SKR_LOG_TEXT("destination",
                         destination.broken ? "" : destination.bytes));
    skr_text_fini(&destination);
    free(source);
}

// What a table decides is known once it was looked at, each by its own relay:
// a database that is away is in the way of no other.
static enum skr_code
run_relay(void *item, struct skr_error *error)
{
    struct relay *relay = item;
    const struct skr_aliases *aliases = relay->self.environment->app.aliases;
    enum skr_code code = SKR_OK;
    if (aliases != NULL) {
        code = aliases->configure(aliases->user, relay->self.environment,
                                  relay->self.index, &relay->own, error);
        if (code == SKR_OK)
            code = open_by(relay, relay->own, error);
        if (code == SKR_OK)
            say_started(relay);
    }
    // Asked while it was not there to be told.
    if (code == SKR_OK && atomic_load(&relay->is_stopped))
        code = SKR_STOPPED;
    return code == SKR_OK ? skr_relay_run(atomic_load(&relay->relay), error)
                          : code;
}

static void
stop_relay(void *item)
{
    struct relay *relay = item;
    atomic_store(&relay->is_stopped, true);
    struct skr_relay *made = atomic_load(&relay->relay);
    if (made != NULL)
        skr_relay_stop(made);
}

static const struct skr_column columns[] = {
    {"transport", .label = "transport"},
    {"published", NULL, "skirnir_relay_published_total",
     "Messages that left the outbox for the broker.", SKR_AS_INTEGER},
    {"confirmed", NULL, "skirnir_relay_confirmed_total",
     "Confirmations by the broker.", SKR_AS_INTEGER},
    {"returned", NULL, "skirnir_relay_returned_total",
     "Messages that came back since no queue took them.", SKR_AS_INTEGER},
    {"retried", NULL, "skirnir_relay_retried_total",
     "Messages that the broker refused for now.", SKR_AS_INTEGER},
    {"failed", NULL, "skirnir_relay_failed_total",
     "Messages that were moved to the failed ones.", SKR_AS_INTEGER},
    {"parked_rows", NULL, "skirnir_relay_parked_rows",
     "Rows that the database refuses to change.", SKR_AS_INTEGER},
    {"latency_seconds", NULL, "skirnir_relay_latency_seconds",
     "From the commit of a message to its confirmation.", SKR_AS_TIMES},
};

static void
read_counters(void *item, struct skr_report *report)
{
    struct relay *relay = item;
    struct skr_relay_tally *tally = &relay->tally;
    skr_report_sum(report, "published", atomic_load(&tally->published));
    skr_report_sum(report, "confirmed", atomic_load(&tally->confirmed));
    skr_report_sum(report, "returned", atomic_load(&tally->returned));
    skr_report_sum(report, "retried", atomic_load(&tally->retried));
    skr_report_sum(report, "failed", atomic_load(&tally->failed));
    skr_report_sum(report, "parked_rows", atomic_load(&tally->parked));
    skr_report_times(report, "latency_seconds", &tally->latency);
}

enum skr_code
skr_relay_run_configured(const struct skr_app *app,
                         const struct skr_config *config,
                         struct skr_error *error)
{
    const struct skr_task task = {
        .worker_size = sizeof(struct relay),
        .each = 1,
        .open = open_relay,
        .say_started = say_started,
        .run = run_relay,
        .stop = stop_relay,
        .close = close_relay,
        .columns = SKR_COLUMNS(columns),
        .read = read_counters,
        .stop_s = STOP_S,
    };
    return skr_tasks_run(app, config, &task, error);
}

enum skr_exit
skr_command_relay(struct skr_app *app)
{
    return skr_app_run_reloading(app, skr_relay_run_configured);
}
