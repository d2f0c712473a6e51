// SPDX-License-Identifier: MIT
// skirnir test-inbox-dedup: three identical messages, one effect. Everything
// that it writes has a name or an id of its own, and is removed again.

#include "app/app.h"
#include "app/console/signals.h"
#include "app/drivers.h"
#include "app/parts/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "inbox/consumer.h"
#include "message/route.h"
#include "table/deduplication/deduplication.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COPIES = 3,
    MOST_CALLS = 16,
    PATIENCE_MS = 30000,
    DRAIN_MS = 5000,
    EXPIRES_MS = 60000,
};

#define MESSAGE_NAME "skirnir.test"

struct trial {
    const struct skr_app *app;
    const struct skr_config *config;
    struct skr_config_transport transport;  // with a queue of its own
    char *dsn;                              // owned; NULL: the transport's
    char queue[sizeof("skirnir.test.") + SKR_ID_TEXT_SIZE];
    struct skr_id id;  // of the message
    const struct skr_broker_ops *broker;
    struct skr_deduplication *deduplication;
    int64_t end_ms;

    // One for each call of the handler: the effect is a row with this id.
    struct skr_id effects[MOST_CALLS];
    size_t calls;
    struct skr_consumer_counts counts;
    bool is_interrupted;
};

// The DSN with the trial's queue in place of those that it names.
static enum skr_code
write_dsn(struct trial *trial, const struct skr_config_transport *transport,
          struct skr_error *error)
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
    skr_url_add_parameter(&dsn, "queues", trial->queue);
    skr_url_fini(&url);
    free(full);
    trial->dsn = skr_text_take(&dsn);
    return trial->dsn == NULL ? skr_fail_memory(error) : SKR_OK;
}

// A queue of its own: in a table its name is enough, on a server it is declared
// before the messages are published, and bound to nothing of the application's.
static enum skr_code
take_own_queue(struct trial *trial,
               const struct skr_config_transport *transport,
               struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    trial->broker = skr_driver_find_broker(transport->scheme);
    if (trial->broker == NULL || trial->broker->receive == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, which nothing consumes from",
                        transport->name, transport->scheme);
    skr_id_format(trial->id, id);
    snprintf(trial->queue, sizeof(trial->queue), "skirnir.test.%s", id);
    trial->transport = *transport;
    trial->transport.queue_name = trial->queue;
    // Nothing of it is ever to be kept as failed.
    trial->transport.retry.max_retries = 1000000;
    trial->transport.retry.delay_ms = 0;
    trial->transport.missing_id = "fail";
    if (transport->kind == SKR_TRANSPORT_QUEUE)
        return SKR_OK;
    enum skr_code code = write_dsn(trial, transport, error);
    trial->transport.dsn = trial->dsn;
    trial->transport.node = NULL;
    trial->transport.auto_setup = false;
    return code;
}

static enum skr_code
find_transport(const struct skr_app *app, const struct skr_config *config,
               const struct skr_config_transport **transport,
               struct skr_error *error)
{
    if (app->arguments->positional_count > 0)
        return skr_config_find_transport(config, app->arguments->positional[0],
                                         transport, error);
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_broker_ops *broker =
            skr_driver_find_broker(config->transports[i].scheme);
        if (broker != NULL && broker->receive != NULL) {
            *transport = &config->transports[i];
            return SKR_OK;
        }
    }
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "no transport is configured that is consumed from, such "
                    "as queue://");
}

static enum skr_code
open_broker(const struct trial *trial, struct skr_broker **broker,
            struct skr_error *error)
{
    const struct skr_config_transport *transport = &trial->transport;
    struct skr_broker_options options = {
        .auto_setup = transport->auto_setup,
        .wake_fd = -1,
        .log = trial->app->log,
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
        code = skr_broker_open(trial->broker, &options, broker, error);
    free(url);
    return code;
}

// No driver can delete a queue: the server does, some time after its last use.
static enum skr_code
declare_queue(const struct trial *trial, struct skr_broker *broker,
              struct skr_error *error)
{
    const struct skr_argument expires = {
        .name = "x-expires", .kind = SKR_ARGUMENT_NUMBER, .number = EXPIRES_MS};
    const struct skr_declaration declaration = {
        .kind = SKR_DECLARE_QUEUE,
        .name = trial->queue,
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
    for (size_t confirmed = 0; confirmed < COPIES;) {
        struct skr_outcome outcomes[COPIES];
        size_t count = 0;
        enum skr_code code = broker->ops->outcomes(broker, outcomes, COPIES,
                                                   &count, 1000, error);
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

static enum skr_code
publish(const struct trial *trial, struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(trial->id, id);
    const struct skr_header headers[] = {{"type", MESSAGE_NAME},
                                         {"X-Message-Id", id}};
    const struct skr_message message = {
        .id = trial->id,
        .name = MESSAGE_NAME,
        .content_type = "application/json",
        .body = "{}",
        .body_size = 2,
        .headers = headers,
        .header_count = SKR_COUNT_OF(headers),
    };
    struct skr_broker *broker = NULL;
    // By the exchange that knows every queue by its name.
    const struct skr_route route = {.exchange = "",
                                    .routing_key = trial->queue};
    enum skr_code code = open_broker(trial, &broker, error);
    if (code == SKR_OK)
        code = declare_queue(trial, broker, error);
    for (uint64_t i = 0; i < COPIES && code == SKR_OK; i++)
        code = broker->ops->submit(broker, &message, &route, i, error);
    if (code == SKR_OK)
        code = wait_for_outcomes(broker, error);
    skr_broker_close(broker);
    return code;
}

static enum skr_verdict
have_effect(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
{
    struct trial *trial = user;
    struct skr_id *effect = &trial->effects[trial->calls];
    (void)delivery;
    if (trial->calls == MOST_CALLS)
        return SKR_RETRY;
    if (skr_id_new(effect, reason) != SKR_OK)
        return SKR_RETRY;
    trial->calls++;
    return skr_deduplication_admit(trial->deduplication, tx, *effect,
                                   MESSAGE_NAME ".effect", reason) == SKR_OK
               ? SKR_ACCEPT
               : SKR_RETRY;
}

static bool
is_late(void *user)
{
    const struct trial *trial = user;
    return skr_clock_ms() > trial->end_ms || trial->calls == MOST_CALLS;
}

static enum skr_code
consume(struct trial *trial, struct skr_consumer *consumer,
        struct skr_error *error)
{
    trial->end_ms = skr_clock_ms() + PATIENCE_MS;
    skr_consumer_extend(
        consumer,
        &(struct skr_consumer_extras){
            .names = &trial->config->names,
            .auto_setup = trial->transport.auto_setup,
            .deduplication_auto_setup = trial->config->deduplication_auto_setup,
            .limit = COPIES,
            .is_over = is_late,
            .user = trial,
        });
    enum skr_code code =
        skr_consumer_handle(consumer, MESSAGE_NAME, have_effect, trial, error);
    if (code == SKR_OK)
        code = skr_consumer_run(consumer, error);
    trial->counts = skr_consumer_counts(consumer);
    trial->is_interrupted = code == SKR_STOPPED;
    return code == SKR_STOPPED ? SKR_OK : code;
}

// Takes what is left in the queue, if anything: a run that was interrupted or
// failed has given it back.
static enum skr_code
drain(const struct trial *trial, struct skr_error *error)
{
    struct skr_broker *broker = NULL;
    uint64_t left = COPIES - trial->counts.handled - trial->counts.duplicates;
    if (left == 0)
        return SKR_OK;
    int64_t end_ms = skr_clock_ms() + DRAIN_MS;
    enum skr_code code = open_broker(trial, &broker, error);
    while (code == SKR_OK && left > 0 && skr_clock_ms() < end_ms) {
        struct skr_incoming incoming[COPIES] = {0};
        size_t count = 0;
        code =
            broker->ops->receive(broker, incoming, COPIES, &count, 500, error);
        for (size_t i = 0; i < count; i++)
            incoming[i].settlement = SKR_SETTLE_ACK;
        if (code == SKR_OK)
            code = broker->ops->settle(broker, incoming, count, error);
        else if (code == SKR_TIMEOUT)
            code = SKR_OK;
        left -= count < left ? count : left;
    }
    skr_broker_close(broker);
    return code;
}

// Counts the effects and removes them, and the record of the message.
static enum skr_code
count_effects(const struct trial *trial, size_t *effects,
              struct skr_error *error)
{
    struct skr_db *db = NULL;
    *effects = 0;
    enum skr_code code =
        skr_transport_open_database(trial->config->inbox_database, &db, error);
    for (size_t i = 0; i < trial->calls && code == SKR_OK; i++) {
        bool found = false;
        code = skr_deduplication_find(trial->deduplication, skr_db_tx(db),
                                      trial->effects[i], &found, error);
        *effects += found;
    }
    if (code == SKR_OK)
        code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    for (size_t i = 0; i < trial->calls && code == SKR_OK; i++)
        code = skr_deduplication_forget(trial->deduplication, skr_db_tx(db),
                                        trial->effects[i], error);
    if (code == SKR_OK)
        code = skr_deduplication_forget(trial->deduplication, skr_db_tx(db),
                                        trial->id, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    skr_db_close(db);
    return code;
}

static enum skr_code
judge(const struct trial *trial, size_t effects, struct skr_error *error)
{
    const struct skr_consumer_counts *counts = &trial->counts;
    if (trial->is_interrupted)
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "interrupted; what it wrote is removed");
    printf("received: %llu handled, %llu skipped as duplicates\n",
           (unsigned long long)counts->handled,
           (unsigned long long)counts->duplicates);
    printf("effects in the database: %zu\n", effects);
    if (effects != 1 || counts->handled != 1 ||
        counts->duplicates != COPIES - 1)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%d identical messages had %zu effects, and %llu were "
                        "skipped; 1 and %d are right",
                        COPIES, effects, (unsigned long long)counts->duplicates,
                        COPIES - 1);
    printf("ok: one effect; all traces are removed\n");
    return SKR_OK;
}

static void
stop_consumer(void *consumer)
{
    skr_consumer_stop(consumer);
}

// What follows the publishing is done whatever became of it: the first error
// is the one to tell.
static enum skr_code
try_it(struct trial *trial, struct skr_consumer *consumer,
       struct skr_error *error)
{
    struct skr_error later = {0};
    size_t effects = 0;
    skr_signals_on_stop(stop_consumer, consumer);
    enum skr_code code = publish(trial, error);
    if (code == SKR_OK) {
        printf("published: %d identical messages to %s\n", COPIES,
               trial->queue);
        code = consume(trial, consumer, error);
    }
    skr_signals_on_stop(NULL, NULL);
    enum skr_code drained = drain(trial, &later);
    if (code == SKR_OK && drained != SKR_OK)
        *error = later;
    code = code == SKR_OK ? drained : code;
    enum skr_code counted = count_effects(trial, &effects, &later);
    if (code == SKR_OK && counted != SKR_OK)
        *error = later;
    code = code == SKR_OK ? counted : code;
    return code == SKR_OK ? judge(trial, effects, error) : code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    struct trial trial = {.app = app, .config = config};
    const struct skr_config_transport *transport = NULL;
    const struct skr_db_ops *ops = NULL;
    struct skr_consumer *consumer = NULL;
    if (config->inbox_database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the database '%s' of message_broker.inbox.database "
                        "is not configured",
                        config->inbox_database_name);
    enum skr_code code = find_transport(app, config, &transport, error);
    if (code == SKR_OK)
        code = skr_id_new(&trial.id, error);
    if (code == SKR_OK)
        code = take_own_queue(&trial, transport, error);
    if (code == SKR_OK)
        code = skr_transport_database(config->inbox_database, &ops, error);
    if (code == SKR_OK)
        code =
            skr_deduplication_new(ops->tx->dialect, config->deduplication_table,
                                  &trial.deduplication, error);
    if (code == SKR_OK)
        code = skr_app_open_consumer(app, config, &trial.transport, &consumer,
                                     error);
    if (code == SKR_OK)
        code = try_it(&trial, consumer, error);
    skr_consumer_close(consumer);
    skr_deduplication_free(trial.deduplication);
    free(trial.dsn);
    return code;
}

enum skr_exit
skr_command_test_inbox_dedup(struct skr_app *app)
{
    return skr_app_run_configured(app, run);
}
