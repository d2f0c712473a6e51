// SPDX-License-Identifier: MIT
#include "app/app.h"
#include "app/drivers.h"
#include "app/handlers.h"
#include "app/transports.h"
#include "base/error.h"
#include "inbox/consumer.h"

#include <stdlib.h>
#include <string.h>

static enum skr_code
check_transport(const struct skr_config_transport *transport,
                struct skr_error *error)
{
    if (skr_driver_find_broker(transport->scheme) == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s: this build has no driver for %s://; it "
                        "has: %s",
                        transport->name, transport->scheme,
                        skr_driver_brokers());
    return SKR_OK;
}

enum skr_code
skr_app_open_consumer(const struct skr_app *app,
                      const struct skr_config *config,
                      const struct skr_config_transport *transport,
                      struct skr_consumer **consumer, struct skr_error *error)
{
    struct skr_failed_place failed = skr_transport_failed_place(config);
    struct skr_consumer_options options = {
        .name = transport->name,
        .database_url = config->inbox_database->url,
        .broker = skr_driver_find_broker(transport->scheme),
        .retry_broker = skr_driver_find_broker("queue"),
        .queue_database_url =
            transport->database == NULL ? NULL : transport->database->url,
        .deduplication_table = config->deduplication_table,
        .failed_table = failed.table,
        .failed_queue = failed.queue,
        .batch = transport->batch,
        .max_retries = transport->retry.max_retries == 0
                           ? -1
                           : (int32_t)transport->retry.max_retries,
        // Zero would mean the default there; here it is a choice.
        .retry_delay_ms =
            transport->retry.delay_ms == 0 ? 1 : transport->retry.delay_ms,
        .retry_multiplier = transport->retry.multiplier,
        .max_retry_delay_ms = transport->retry.max_delay_ms,
        .log = app->log.write,
        .log_user = app->log.user,
    };
    enum skr_code code = skr_transport_database(config->inbox_database,
                                                &options.database, error);
    if (code == SKR_OK && transport->database != NULL)
        code = skr_transport_database(transport->database,
                                      &options.queue_database, error);
    if (code == SKR_OK && failed.database != NULL &&
        failed.database != config->inbox_database) {
        options.failed_database_url = failed.database->url;
        code = skr_transport_database(failed.database, &options.failed_database,
                                      error);
    }
    char *url = NULL;
    if (code == SKR_OK)
        code = skr_transport_broker_url(transport, &url, error);
    if (code != SKR_OK)
        return code;
    options.broker_url = url;
    code = skr_consumer_open(&options, consumer, error);
    free(url);
    return code;
}

static enum skr_code
extend_consumer(const struct skr_app *app, const struct skr_config *config,
                const struct skr_config_transport *transport,
                struct skr_limits *limits, struct skr_consumer *consumer,
                struct skr_error *error)
{
    skr_limits_read(app, limits);
    const struct skr_consumer_extras extras = {
        .names = &config->names,
        .failed_readable = skr_transport_failed_place(config).readable,
        .handles_missing_ids = strcmp(transport->missing_id, "handle") == 0,
        .auto_setup = transport->auto_setup,
        .deduplication_auto_setup = config->deduplication_auto_setup,
        .limit = limits->messages,
        .sleep_ms = limits->sleep_ms,
        .stop_when_empty = skr_arguments_has(app->arguments, "stop-when-empty"),
        .is_over = skr_limits_is_over,
        .user = limits,
    };
    skr_consumer_extend(consumer, &extras);
    return skr_app_add_handlers(config, consumer, error);
}

static void
stop_consumer(void *consumer)
{
    skr_consumer_stop(consumer);
}

static enum skr_code
run_consumer(const struct skr_app *app, const struct skr_config *config,
             const struct skr_config_transport *transport,
             struct skr_error *error)
{
    struct skr_consumer *consumer = NULL;
    struct skr_limits limits;
    enum skr_code code = check_transport(transport, error);
    if (code == SKR_OK)
        code = skr_app_require_handlers(config, error);
    if (code == SKR_OK)
        code = skr_app_open_consumer(app, config, transport, &consumer, error);
    if (code == SKR_OK)
        code =
            extend_consumer(app, config, transport, &limits, consumer, error);
    if (code == SKR_OK) {
        skr_signals_on_stop(stop_consumer, consumer);
        code = skr_consumer_run(consumer, error);
        skr_signals_on_stop(NULL, NULL);
    }
    skr_consumer_close(consumer);
    return code == SKR_STOPPED ? SKR_OK : code;
}

// In Symfony's words a relay consumes the outbox.
static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    const struct skr_config_transport *transport = NULL;
    enum skr_code code = skr_config_find_transport(
        config, app->arguments->positional[0], &transport, error);
    if (code != SKR_OK)
        return code;
    if (transport->kind == SKR_TRANSPORT_OUTBOX)
        return skr_relay_run_configured(app, config, error);
    return run_consumer(app, config, transport, error);
}

enum skr_exit
skr_command_consume(struct skr_app *app)
{
    return skr_app_run_configured(app, run);
}
