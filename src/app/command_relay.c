// SPDX-License-Identifier: MIT
#include "app/app.h"
#include "app/drivers.h"
#include "app/routing.h"
#include "app/transports.h"
#include "base/error.h"
#include "base/hash.h"
#include "outbox/relay.h"

#include <stdio.h>
#include <stdlib.h>

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
                        "doctrine:// transports",
                        name, (*outbox)->scheme);
    if (skr_transport_is_failure(config, *outbox))
        return skr_transport_refuse_failure(*outbox, error);
    if ((*outbox)->relay_to == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s has no destination; set "
                        "transports.%s.relay_to to the name of a transport",
                        name, name);
    code =
        skr_config_find_transport(config, (*outbox)->relay_to, target, error);
    if (code != SKR_OK)
        return code;
    if (skr_driver_find_broker((*target)->scheme) == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s: this build has no driver for %s://; it "
                        "has: %s",
                        (*target)->name, (*target)->scheme,
                        skr_driver_brokers());
    return SKR_OK;
}

static enum skr_code
read_options(const struct skr_app *app,
             const struct skr_config_transport *outbox,
             const struct skr_config_transport *target,
             struct skr_relay_options *options, struct skr_error *error)
{
    *options = (struct skr_relay_options){
        .name = outbox->name,
        .database_url = outbox->database->url,
        .auto_setup = outbox->auto_setup,
        .broker = skr_driver_find_broker(target->scheme),
        .broker_options = {.database_url = target->database == NULL
                                               ? NULL
                                               : target->database->url,
                           .auto_setup = target->auto_setup,
                           .log = app->log},
        .retry = outbox->retry,
        .in_flight = outbox->in_flight,
        .in_flight_bytes = outbox->in_flight_bytes,
        .stop_when_empty = skr_arguments_has(app->arguments, "stop-when-empty"),
        .log = app->log,
    };
    enum skr_code code =
        skr_transport_database(outbox->database, &options->database, error);
    if (code == SKR_OK && target->database != NULL)
        code = skr_transport_database(target->database,
                                      &options->broker_options.database, error);
    return code;
}

// One relay works a queue at a time, wherever it runs: the name is made from
// what is being worked.
static void
name_lock(const struct skr_config_transport *outbox, char name[32])
{
    struct skr_hash hash =
        skr_hash_add_text(skr_hash_start(), outbox->table_name);
    hash = skr_hash_add_text(hash, outbox->queue_name);
    snprintf(name, 32, "relay-%016llx",
             (unsigned long long)(hash.high ^ hash.low));
}

static void
stop_relay(void *relay)
{
    skr_relay_stop(relay);
}

static enum skr_code
run_until_stopped(const struct skr_relay_options *options,
                  struct skr_error *error)
{
    struct skr_relay *relay = NULL;
    enum skr_code code = skr_relay_new(options, &relay, error);
    if (code != SKR_OK)
        return code;
    skr_signals_on_stop(stop_relay, relay);
    code = skr_relay_run(relay, error);
    skr_signals_on_stop(NULL, NULL);
    skr_relay_free(relay);
    return code == SKR_STOPPED ? SKR_OK : code;
}

enum skr_code
skr_relay_run_configured(const struct skr_app *app,
                         const struct skr_config *config,
                         struct skr_error *error)
{
    const char *name = app->arguments->positional[0];
    const struct skr_config_transport *outbox = NULL, *target = NULL;
    struct skr_relay_options options;
    struct skr_limits limits;
    struct skr_routing routing;
    char *url = NULL;
    char lock_name[32];
    enum skr_code code = check_kinds(config, name, &outbox, &target, error);
    if (code == SKR_OK)
        code = read_options(app, outbox, target, &options, error);
    if (code == SKR_OK)
        code = skr_transport_broker_url(target, &url, error);
    if (code != SKR_OK)
        return code;
    code = skr_routing_read(config, target, &routing, error);
    skr_limits_read(app, &limits);
    name_lock(outbox, lock_name);
    options.lock_name = lock_name;
    options.broker_options.url = url;
    // A queue table is one queue: there is nowhere else to go.
    if (target->kind != SKR_TRANSPORT_QUEUE)
        options.routes = &routing.routes;
    options.limit = limits.messages;
    options.max_idle_ms = limits.sleep_ms;
    options.is_over = skr_limits_is_over;
    options.is_over_user = &limits;
    if (code == SKR_OK)
        code = skr_transport_table(config, outbox, &options.table, error);
    if (code == SKR_OK) {
        code = run_until_stopped(&options, error);
        skr_table_free(options.table);
    }
    skr_routing_fini(&routing);
    free(url);
    return code;
}

enum skr_exit
skr_command_relay(struct skr_app *app)
{
    return skr_app_run_configured(app, skr_relay_run_configured);
}
