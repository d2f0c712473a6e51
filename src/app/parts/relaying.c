// SPDX-License-Identifier: MIT
// Makes the options of a relay from a configuration: outbox, senders, routes,
// claims and limits.

#include "app/parts/relaying.h"

#include "app/drivers.h"
#include "app/parts/transports.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_SHARE_S = 15 };

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
        return skr_transport_refuse_failure(*outbox, error);
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
    char missing[SKR_DRIVER_MISSING_SIZE];
    *sender = (struct skr_sender_options){
        .name = target->name,
        .broker = skr_driver_find_broker(target->scheme),
        .options = {.auto_setup = target->auto_setup, .log = app->log},
    };
    if (sender->broker == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "transport %s: %s",
                        target->name,
                        skr_driver_missing(target->scheme, missing));
    enum skr_code code = skr_config_broker_url(target, url, error);
    sender->options.url = *url;
    if (code != SKR_OK || target->database == NULL)
        return code;
    sender->options.database_url = target->database->url;
    return skr_transport_database(target->database, &sender->options.database,
                                  error);
}

static enum skr_code
read_senders(struct skr_relaying *relaying, const struct skr_app *app,
             struct skr_error *error)
{
    const struct skr_routing *routing = &relaying->routing;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < routing->target_count && code == SKR_OK; i++)
        code = read_sender(app, routing->targets[i], &relaying->senders[i],
                           &relaying->urls[i], error);
    relaying->options.senders = relaying->senders;
    relaying->options.sender_count = routing->target_count;
    relaying->options.routes = &routing->routes;
    return code;
}

// Of rows it is how long a worker of Symfony may take, and long; shards are to
// go on soon when their relay has died.
static uint32_t
lease_ms(const struct skr_config_transport *outbox)
{
    uint32_t lease_s = outbox->redeliver_timeout_s;
    if (skr_transport_claim(outbox) == SKR_CLAIM_SLOTS &&
        lease_s > LONGEST_SHARE_S)
        lease_s = LONGEST_SHARE_S;
    return lease_s * 1000;
}

static bool
is_over(void *user)
{
    struct skr_relaying *relaying = user;
    struct skr_relay_tally *tally = &relaying->tally;
    uint64_t failures = atomic_load(&tally->retried) +
                        atomic_load(&tally->failed) +
                        atomic_load(&tally->blocked);
    if (relaying->failure_limit > 0 && failures >= relaying->failure_limit)
        return true;
    return skr_limits_is_over(&relaying->limits);
}

static enum skr_code
read_options(struct skr_relaying *relaying, const struct skr_app *app,
             const struct skr_config_transport *outbox, struct skr_error *error)
{
    const struct skr_limits *limits = &relaying->limits;
    struct skr_relay_settings *options = &relaying->options;
    *options = (struct skr_relay_settings){
        .name = outbox->name,
        .database_url = outbox->database->url,
        .table_name = outbox->table_name,
        .auto_setup = outbox->auto_setup,
        .claim = skr_transport_claim(outbox),
        .blocks_partitions = strcmp(outbox->on_failure, "block") == 0,
        .lease_ms = lease_ms(outbox),
        .retry = outbox->retry,
        .failure_limit = outbox->failure_limit,
        .in_flight = outbox->in_flight,
        .in_flight_bytes = outbox->in_flight_bytes,
        .max_idle_ms = limits->sleep_ms,
        .stop_when_empty = skr_arguments_has(app->arguments, "stop-when-empty"),
        .limit = limits->messages,
        .stop_timeout_ms =
            (uint32_t)skr_arguments_number(app->arguments, "stop-timeout", 0) *
            1000,
        .is_over = is_over,
        .is_over_user = relaying,
        .log = app->log,
        .tally = &relaying->tally,
    };
    enum skr_code code = skr_routing_read_unroutable(
        outbox->unroutable, &options->unroutable, error);
    if (code == SKR_OK)
        code =
            skr_transport_database(outbox->database, &options->database, error);
    return code;
}

enum skr_code
skr_relaying_init(struct skr_relaying *relaying, const struct skr_app *app,
                  const struct skr_config *config, const char *name,
                  struct skr_error *error)
{
    const struct skr_config_transport *outbox = NULL, *target = NULL;
    *relaying = (struct skr_relaying){.relay = NULL};
    enum skr_code code = check_kinds(config, name, &outbox, &target, error);
    if (code != SKR_OK)
        return code;
    skr_limits_read(app, &relaying->limits);
    relaying->failure_limit =
        (uint64_t)skr_arguments_number(app->arguments, "failure-limit", 0);
    code = read_options(relaying, app, outbox, error);
    if (code == SKR_OK)
        code = skr_routing_read(config, target, &relaying->routing, error);
    if (code == SKR_OK)
        code = read_senders(relaying, app, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, outbox, &relaying->options.table,
                                   error);
    if (code == SKR_OK)
        code = skr_relay_make(&relaying->options, &relaying->relay, error);
    return code;
}

void
skr_relaying_fini(struct skr_relaying *relaying)
{
    skr_relay_free(relaying->relay);
    skr_store_free(relaying->options.table);
    for (size_t i = 0; i < SKR_ROUTING_MAX_TARGETS; i++)
        free(relaying->urls[i]);
    skr_routing_fini(&relaying->routing);
}
