// SPDX-License-Identifier: MIT
// `skirnir setup-amqp`: declares exchanges, queues and bindings on RabbitMQ, or
// prints them.

#include "app/app.h"
#include "app/config/topology.h"
#include "app/drivers.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
describe(const struct skr_amqp_declaration *declaration)
{
    switch (declaration->object) {
    case SKR_AMQP_EXCHANGE:
        printf("exchange %s (%s)", declaration->name, declaration->type);
        return;
    case SKR_AMQP_QUEUE: printf("queue %s", declaration->name); return;
    case SKR_AMQP_BINDING:
        printf("binding %s -> %s", declaration->exchange, declaration->queue);
        if (declaration->binding_key[0] != '\0')
            printf(" (%s)", declaration->binding_key);
        return;
    }
}

static enum skr_code
dump(const struct skr_app *app, const struct skr_sites *sites,
     struct skr_error *error)
{
    const char *path = skr_arguments_find(app->arguments, "output");
    char *text = skr_sites_dump(sites);
    if (text == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    if (path == NULL) {
        puts(text);
    } else {
        FILE *file = fopen(path, "w");
        bool failed = file == NULL || fprintf(file, "%s\n", text) < 0;
        if (file != NULL && fclose(file) != 0)
            failed = true;
        if (failed)
            code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                            "cannot write %s: %s", path, strerror(errno));
    }
    free(text);
    return code;
}

static enum skr_code
connect_to(const struct skr_app *app, const char *url,
           struct skr_broker **broker, struct skr_error *error)
{
    const struct skr_broker_ops *ops = skr_site_driver(url);
    if (ops == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%samqp:// or amqps:// is needed, and a build that has "
                        "it; this one has: %s",
                        skr_arguments_has(app->arguments, "dsn") ? "--dsn: "
                                                                 : "",
                        skr_driver_brokers());
    const struct skr_broker_options options = {
        .url = url, .wake_fd = -1, .log = app->log};
    return skr_broker_open(ops, &options, broker, error);
}

// Goes on after an object that cannot be made, not after the server is gone.
static enum skr_code
declare_all(struct skr_broker *broker, const struct skr_topology *topology,
            size_t *failed, struct skr_error *error)
{
    for (size_t i = 0; i < topology->count; i++) {
        struct skr_error trouble = {0};
        enum skr_code code = broker->ops->topology->declare(
            broker, &topology->declarations[i], &trouble);
        fputs(code == SKR_OK ? "[OK] " : "[ERROR] ", stdout);
        describe(&topology->declarations[i]);
        printf(code == SKR_OK ? "\n" : ": %s\n", trouble.text);
        *failed += code != SKR_OK;
        if (code != SKR_OK && trouble.remedy == SKR_RECONNECT)
            return skr_fail_with(error, &trouble);
    }
    return SKR_OK;
}

static enum skr_code
declare_at(const struct skr_app *app, const struct skr_config *config,
           const struct skr_site *site, size_t *failed, struct skr_error *error)
{
    struct skr_broker *broker = NULL;
    if (site->url == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is no amqp:// transport in %s; give --dsn or "
                        "set MESSENGER_AMQP_DSN",
                        config->path);
    enum skr_code code = connect_to(app, site->url, &broker, error);
    if (code == SKR_OK)
        code = declare_all(broker, &site->topology, failed, error);
    skr_broker_close(broker);
    return code;
}

static enum skr_code
declare(const struct skr_app *app, const struct skr_config *config,
        const struct skr_sites *sites, struct skr_error *error)
{
    size_t failed = 0, total = 0;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < sites->count && code == SKR_OK; i++) {
        const struct skr_site *site = &sites->items[i];
        total += site->topology.count;
        if (site->topology.count > 0)
            code = declare_at(app, config, site, &failed, error);
    }
    if (code != SKR_OK || failed == 0)
        return code;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "%zu of %zu could not be declared", failed, total);
}

static void
say_what_would_be(const struct skr_sites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        const struct skr_topology *topology = &sites->items[i].topology;
        for (size_t k = 0; k < topology->count; k++) {
            describe(&topology->declarations[k]);
            puts(" would be declared");
        }
    }
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    struct skr_sites sites;
    enum skr_code code = skr_sites_find(
        config, skr_arguments_find(app->arguments, "dsn"),
        skr_arguments_find(app->arguments, "vhost"), &sites, error);
    if (code == SKR_OK && skr_arguments_has(app->arguments, "dump"))
        code = dump(app, &sites, error);
    else if (code == SKR_OK && skr_arguments_has(app->arguments, "dry-run"))
        say_what_would_be(&sites);
    else if (code == SKR_OK)
        code = declare(app, config, &sites, error);
    skr_sites_fini(&sites);
    return code;
}

enum skr_exit
skr_command_setup_amqp(struct skr_app *app)
{
    bool dumps = skr_arguments_has(app->arguments, "dump");
    if (skr_arguments_has(app->arguments, "output") && !dumps)
        return skr_app_usage(app, "--output goes with --dump");
    if (skr_arguments_has(app->arguments, "dry-run") && dumps)
        return skr_app_usage(app, "--dry-run and --dump exclude each other");
    return skr_app_run_configured(app, run);
}
