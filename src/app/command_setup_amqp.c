// SPDX-License-Identifier: MIT
#include "app/app.h"
#include "app/drivers.h"
#include "app/topology.h"
#include "app/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
describe(const struct skr_declaration *declaration)
{
    switch (declaration->kind) {
    case SKR_DECLARE_EXCHANGE:
        printf("exchange %s (%s)", declaration->name, declaration->type);
        return;
    case SKR_DECLARE_QUEUE: printf("queue %s", declaration->name); return;
    case SKR_DECLARE_BINDING:
        printf("binding %s -> %s", declaration->exchange, declaration->queue);
        if (declaration->binding_key[0] != '\0')
            printf(" (%s)", declaration->binding_key);
        return;
    }
}

static enum skr_code
dump(const struct skr_app *app, const struct skr_topology *topology,
     struct skr_error *error)
{
    const char *path = skr_arguments_find(app->arguments, "output");
    const char *vhost = skr_arguments_find(app->arguments, "vhost");
    char *text = skr_topology_dump(topology, vhost == NULL ? "/" : vhost);
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

static bool
is_amqp(const struct skr_config_transport *transport)
{
    return transport->scheme != NULL &&
           (strcmp(transport->scheme, "amqp") == 0 ||
            strcmp(transport->scheme, "amqps") == 0);
}

// --dsn, the transport that is called amqp, the first of its kind, or what
// Symfony's recipe puts into the environment.
static enum skr_code
find_url(const struct skr_app *app, const struct skr_config *config, char **url,
         struct skr_error *error)
{
    const char *dsn = skr_arguments_find(app->arguments, "dsn");
    const struct skr_config_transport *chosen = NULL;
    for (size_t i = 0; dsn == NULL && i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (is_amqp(transport) &&
            (chosen == NULL || strcmp(transport->name, "amqp") == 0))
            chosen = transport;
    }
    if (chosen != NULL)
        return skr_transport_broker_url(chosen, url, error);
    if (dsn == NULL)
        dsn = getenv("MESSENGER_AMQP_DSN");
    if (dsn == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is no amqp:// transport in %s; give --dsn or "
                        "set MESSENGER_AMQP_DSN",
                        config->path);
    *url = strdup(dsn);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

// A parameter beats the vhost in the path.
static enum skr_code
set_vhost(char **url, const char *vhost, struct skr_error *error)
{
    struct skr_text text = {0};
    if (vhost == NULL)
        return SKR_OK;
    skr_text_add_string(&text, *url);
    skr_url_add_parameter(&text, "vhost", vhost);
    free(*url);
    *url = skr_text_take(&text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
connect_to(const struct skr_app *app, const char *url,
           struct skr_broker **broker, struct skr_error *error)
{
    char scheme[16] = "";
    size_t size = strcspn(url, ":");
    if (size < sizeof(scheme))
        memcpy(scheme, url, size);
    const struct skr_broker_ops *ops = skr_driver_find_broker(scheme);
    if (ops == NULL || ops->declare == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "amqp:// or amqps:// is needed, and a build that has "
                        "it; this one has: %s",
                        skr_driver_brokers());
    const struct skr_broker_options options = {
        .url = url, .wake_fd = -1, .log = app->log};
    return skr_broker_open(ops, &options, broker, error);
}

// Goes on after an object that cannot be made, not after the server is gone.
static enum skr_code
declare_all(struct skr_broker *broker, const struct skr_topology *topology,
            struct skr_error *error)
{
    size_t failed = 0;
    for (size_t i = 0; i < topology->count; i++) {
        struct skr_error trouble = {0};
        enum skr_code code =
            broker->ops->declare(broker, &topology->declarations[i], &trouble);
        fputs(code == SKR_OK ? "[OK] " : "[ERROR] ", stdout);
        describe(&topology->declarations[i]);
        printf(code == SKR_OK ? "\n" : ": %s\n", trouble.text);
        failed += code != SKR_OK;
        if (code != SKR_OK && trouble.remedy == SKR_RECONNECT) {
            *error = trouble;
            return code;
        }
    }
    if (failed == 0)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "%zu of %zu could not be declared", failed,
                    topology->count);
}

static enum skr_code
declare_on_server(const struct skr_app *app, const struct skr_config *config,
                  const struct skr_topology *topology, struct skr_error *error)
{
    char *url = NULL;
    struct skr_broker *broker = NULL;
    enum skr_code code = find_url(app, config, &url, error);
    if (code == SKR_OK)
        code =
            set_vhost(&url, skr_arguments_find(app->arguments, "vhost"), error);
    if (code == SKR_OK)
        code = connect_to(app, url, &broker, error);
    if (code == SKR_OK)
        code = declare_all(broker, topology, error);
    skr_broker_close(broker);
    free(url);
    return code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    struct skr_topology topology;
    enum skr_code code = skr_topology_read(config, &topology, error);
    if (code == SKR_OK && skr_arguments_has(app->arguments, "dump")) {
        code = dump(app, &topology, error);
    } else if (code == SKR_OK && skr_arguments_has(app->arguments, "dry-run")) {
        for (size_t i = 0; i < topology.count; i++) {
            describe(&topology.declarations[i]);
            puts(" would be declared");
        }
    } else if (code == SKR_OK) {
        code = declare_on_server(app, config, &topology, error);
    }
    skr_topology_fini(&topology);
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
