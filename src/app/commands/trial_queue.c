// SPDX-License-Identifier: MIT
// A temporary queue for test_inbox_dedup.c: made, filled and emptied on any
// broker.

#include "app/commands/trial_queue.h"

#include "app/drivers.h"
#include "app/parts/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "message/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_MS = 30000,
    DRAIN_MS = 5000,
    TAKE_MS = 250,
    RETRY_LEASE_S = 15,
    EXPIRES_MS = 60000,
};

// The DSN with the trial's queue in place of those that it names.
static enum skr_code
write_dsn(struct skr_trial_queue *queue,
          const struct skr_config_transport *transport, struct skr_error *error)
{
    struct skr_text dsn = {0};
    struct skr_url url;
    char *full = NULL;
    enum skr_code code = skr_config_broker_url(transport, &full, error);
    if (code == SKR_OK)
        code = skr_url_parse(full, &url, error);
    if (code != SKR_OK) {
        free(full);
        return code;
    }
    skr_text_add(&dsn, full, strcspn(full, "?"));
    for (size_t i = 0; i < url.parameter_count; i++)
        if (!skr_text_starts_with(url.parameters[i].name, "queue"))
            skr_url_add_parameter(&dsn, url.parameters[i].name,
                                  url.parameters[i].value);
    skr_url_add_parameter(&dsn, "queues", queue->name);
    skr_url_fini(&url);
    free(full);
    queue->dsn = skr_text_take(&dsn);
    return queue->dsn == NULL ? skr_fail_memory(error) : SKR_OK;
}

// What the consumer puts off where the broker cannot: rows in the place of
// failed messages, under the trial's own name.
static void
init_retries(struct skr_trial_queue *queue, const struct skr_config *config)
{
    struct skr_failed_place failed = skr_transport_failed_place(config);
    snprintf(queue->retries_name, sizeof(queue->retries_name), "%s.retry",
             queue->name);
    queue->retries = (struct skr_config_transport){
        .kind = SKR_TRANSPORT_QUEUE,
        .scheme = "queue",
        .dsn = "queue://retries",
        .database =
            failed.database != NULL ? failed.database : config->inbox_database,
        .table_name = failed.table,
        .queue_name = queue->retries_name,
        .redeliver_timeout_s = RETRY_LEASE_S,
        .time_zone = failed.time_zone != NULL ? failed.time_zone : "UTC",
        .missing_id = "fail",
    };
}

enum skr_code
skr_trial_queue_check(const struct skr_config_transport *transport,
                      struct skr_error *error)
{
    const struct skr_broker_ops *broker =
        skr_driver_find_broker(transport->scheme);
    if (broker == NULL || broker->receive == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, which nothing consumes from",
                        transport->name, transport->scheme);
    if (transport->kind != SKR_TRANSPORT_QUEUE && broker->declare == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, where no queue can be made for "
                        "a trial alone, and what it publishes would stay; name "
                        "one that is queue:// or amqp://, as deduplication is "
                        "the same for all",
                        transport->name, transport->scheme);
    return SKR_OK;
}

enum skr_code
skr_trial_queue_init(struct skr_trial_queue *queue,
                     const struct skr_config *config,
                     const struct skr_config_transport *transport,
                     struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    enum skr_code code = skr_trial_queue_check(transport, error);
    if (code != SKR_OK)
        return code;
    skr_id_format(queue->id, id);
    snprintf(queue->name, sizeof(queue->name), "skirnir.test.%s", id);
    queue->transport = *transport;
    // The consumer's retries have its name: those of the application are not
    // the trial's.
    queue->transport.name = queue->name;
    queue->transport.queue_name = queue->name;
    // Nothing of it is ever to be kept as failed.
    queue->transport.retry.max_retries = 1000000;
    queue->transport.retry.delay_ms = 0;
    queue->transport.missing_id = "fail";
    if (transport->kind == SKR_TRANSPORT_QUEUE)
        return SKR_OK;
    init_retries(queue, config);
    code = write_dsn(queue, transport, error);
    queue->transport.dsn = queue->dsn;
    queue->transport.node = NULL;
    queue->transport.auto_setup = false;
    return code;
}

void
skr_trial_queue_fini(struct skr_trial_queue *queue)
{
    free(queue->dsn);
}

static enum skr_code
open_broker(const struct skr_trial_queue *queue,
            const struct skr_config_transport *transport,
            struct skr_broker **broker, struct skr_error *error)
{
    struct skr_broker_options options = {
        .auto_setup = transport->auto_setup,
        .wake_fd = -1,
        .log = queue->app->log,
    };
    char *url = NULL;
    enum skr_code code = SKR_OK;
    if (transport->database != NULL) {
        options.database_url = transport->database->url;
        code = skr_transport_database(transport->database, &options.database,
                                      error);
    }
    if (code == SKR_OK)
        code = skr_config_broker_url(transport, &url, error);
    options.url = url;
    if (code == SKR_OK)
        code = skr_broker_open(skr_driver_find_broker(transport->scheme),
                               &options, broker, error);
    free(url);
    return code;
}

// No driver can delete a queue: the server does, some time after its last use.
static enum skr_code
declare_queue(const struct skr_trial_queue *queue, struct skr_broker *broker,
              struct skr_error *error)
{
    const struct skr_argument expires = {
        .name = "x-expires", .kind = SKR_ARGUMENT_NUMBER, .number = EXPIRES_MS};
    const struct skr_declaration declaration = {
        .kind = SKR_DECLARE_QUEUE,
        .name = queue->name,
        .durable = true,
        .arguments = &expires,
        .argument_count = 1,
    };
    if (broker->ops->declare == NULL)
        return SKR_OK;
    return broker->ops->declare(broker, &declaration, error);
}

static enum skr_code
wait_for_outcomes(struct skr_broker *broker, struct skr_error *error)
{
    int64_t end_ms = skr_clock_ms() + PATIENCE_MS;
    for (size_t confirmed = 0; confirmed < SKR_TRIAL_COPIES;) {
        struct skr_outcome outcomes[SKR_TRIAL_COPIES];
        size_t count = 0;
        enum skr_code code = broker->ops->outcomes(
            broker, outcomes, SKR_TRIAL_COPIES, &count, 1000, error);
        if (code != SKR_OK && code != SKR_TIMEOUT)
            return code;
        for (size_t i = 0; i < count; i++)
            if (outcomes[i].fate != SKR_CONFIRMED) {
                *error = outcomes[i].reason;
                return outcomes[i].reason.code;
            }
        confirmed += count;
        if (skr_clock_ms() > end_ms)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "the broker did not confirm the messages");
    }
    return SKR_OK;
}

enum skr_code
skr_trial_queue_publish(const struct skr_trial_queue *queue,
                        struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(queue->id, id);
    const struct skr_header headers[] = {{"type", SKR_TRIAL_MESSAGE},
                                         {"X-Message-Id", id}};
    const struct skr_message message = {
        .id = queue->id,
        .name = SKR_TRIAL_MESSAGE,
        .content_type = "application/json",
        .body = "{}",
        .body_size = 2,
        .headers = headers,
        .header_count = SKR_COUNT_OF(headers),
    };
    struct skr_broker *broker = NULL;
    // By the exchange that knows every queue by its name.
    const struct skr_route route = {.exchange = "", .routing_key = queue->name};
    enum skr_code code = open_broker(queue, &queue->transport, &broker, error);
    if (code == SKR_OK)
        code = declare_queue(queue, broker, error);
    for (uint64_t i = 0; i < SKR_TRIAL_COPIES && code == SKR_OK; i++)
        code = broker->ops->submit(broker, &message, &route, i, error);
    if (code == SKR_OK)
        code = wait_for_outcomes(broker, error);
    skr_broker_close(broker);
    return code;
}

static enum skr_code
take(struct skr_broker *broker, uint64_t *left, struct skr_error *error)
{
    struct skr_incoming incoming[SKR_TRIAL_COPIES] = {0};
    size_t count = 0;
    enum skr_code code = broker->ops->receive(
        broker, incoming, SKR_TRIAL_COPIES, &count, TAKE_MS, error);
    for (size_t i = 0; i < count; i++)
        incoming[i].settlement = SKR_SETTLE_ACK;
    if (code == SKR_OK)
        code = broker->ops->settle(broker, incoming, count, error);
    *left -= count < *left ? count : *left;
    return code == SKR_TIMEOUT ? SKR_OK : code;
}

enum skr_code
skr_trial_queue_drain(const struct skr_trial_queue *queue, uint64_t left,
                      struct skr_error *error)
{
    struct skr_broker *broker = NULL, *retries = NULL;
    if (left == 0)
        return SKR_OK;
    int64_t end_ms = skr_clock_ms() + DRAIN_MS;
    enum skr_code code = open_broker(queue, &queue->transport, &broker, error);
    // A table that is not there holds none.
    if (code == SKR_OK && queue->retries.scheme != NULL) {
        code = open_broker(queue, &queue->retries, &retries, error);
        code = code == SKR_MISSING ? SKR_OK : code;
    }
    while (code == SKR_OK && left > 0 && skr_clock_ms() < end_ms) {
        code = take(broker, &left, error);
        if (code == SKR_OK && retries != NULL)
            code = take(retries, &left, error);
    }
    skr_broker_close(retries);
    skr_broker_close(broker);
    return code;
}
