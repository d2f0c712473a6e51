// SPDX-License-Identifier: MIT
// Relays, a thread each: what stops one of them does not stop another.

#include "app/app.h"
#include "app/parts/relaying.h"
#include "app/parts/starting.h"
#include "app/service/reloading.h"
#include "app/service/serving.h"
#include "app/service/threads.h"
#include "base/error.h"

#include <stdlib.h>

static enum skr_code
run_relay(void *item, struct skr_error *error)
{
    const struct skr_relaying *relaying = item;
    return skr_relay_run(relaying->relay, error);
}

static void
stop_relay(void *item)
{
    const struct skr_relaying *relaying = item;
    skr_relay_stop(relaying->relay);
}

struct relays {
    struct skr_relaying *items;
    size_t count;
};

static void
read_counters(void *user, struct skr_metrics_set *set)
{
    const struct relays *relays = user;
    for (size_t i = 0; i < relays->count; i++) {
        struct skr_relay_tally *tally = &relays->items[i].tally;
        const char *name = relays->items[i].options.name;
        skr_metrics_count(set, "skirnir_relay_published_total",
                          "Messages that left the outbox for the broker.", name,
                          atomic_load(&tally->published));
        skr_metrics_count(set, "skirnir_relay_confirmed_total",
                          "Confirmations by the broker.", name,
                          atomic_load(&tally->confirmed));
        skr_metrics_count(set, "skirnir_relay_returned_total",
                          "Messages that came back since no queue took them.",
                          name, atomic_load(&tally->returned));
        skr_metrics_count(set, "skirnir_relay_retried_total",
                          "Messages that the broker refused for now.", name,
                          atomic_load(&tally->retried));
        skr_metrics_count(set, "skirnir_relay_failed_total",
                          "Messages that were moved to the failed ones.", name,
                          atomic_load(&tally->failed));
        skr_metrics_gauge(set, "skirnir_relay_parked_rows",
                          "Rows that the database refuses to change.", name,
                          atomic_load(&tally->parked));
        skr_metrics_time(set, "skirnir_relay_latency_seconds",
                         "From the commit of a message to its confirmation.",
                         name, &tally->latency);
    }
}

static void
say_started(const struct skr_app *app, const struct skr_config *config,
            const struct relays *relays)
{
    const struct skr_config_transport *outbox = NULL;
    for (size_t i = 0; i < relays->count; i++)
        if (skr_config_find_transport(config, relays->items[i].options.name,
                                      &outbox, NULL) == SKR_OK)
            skr_starting_say_relay(app, config, outbox,
                                   &relays->items[i].routing);
}

static enum skr_code
run_relays(struct skr_serving *serving, const struct skr_config *config,
           struct relays *relays, struct skr_error *error)
{
    const struct skr_arguments *arguments = serving->app.arguments;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && relays->count < arguments->positional_count) {
        const struct skr_app app = skr_serving_app(serving, relays->count);
        code = skr_relaying_init(&relays->items[relays->count], &app, config,
                                 arguments->positional[relays->count], error);
        if (code == SKR_OK)
            skr_relay_give_up_by(relays->items[relays->count].relay,
                                 skr_health_gives_up,
                                 skr_serving_worker(serving, relays->count));
        if (code == SKR_OK)
            skr_health_watch(
                &serving->health, relays->count,
                skr_relay_pulse(relays->items[relays->count].relay));
        relays->count++;
    }
    if (code == SKR_OK)
        say_started(&serving->app, config, relays);
    if (code == SKR_OK)
        code = skr_serving_start(serving, read_counters, relays, error);
    const struct skr_task task = {
        .run = run_relay,
        .stop = stop_relay,
        .items = relays->items,
        .item_size = sizeof(relays->items[0]),
        .count = relays->count,
        .stop_s = SKR_RELAY_STOP_S,
    };
    if (code == SKR_OK)
        code = skr_tasks_run(&serving->app, &task, error);
    skr_serving_stop(serving);
    for (size_t i = 0; i < relays->count; i++)
        skr_relaying_fini(&relays->items[i]);
    return code;
}

enum skr_code
skr_relay_run_configured(const struct skr_app *app,
                         const struct skr_config *config,
                         struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    struct skr_serving serving;
    struct relays relays = {
        .items = calloc(arguments->positional_count, sizeof(*relays.items))};
    if (relays.items == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_serving_init(&serving, app, config, 1, error);
    if (code == SKR_OK) {
        code = run_relays(&serving, config, &relays, error);
        skr_serving_fini(&serving);
    }
    free(relays.items);
    return code;
}

enum skr_exit
skr_command_relay(struct skr_app *app)
{
    return skr_app_run_reloading(app, skr_relay_run_configured);
}
