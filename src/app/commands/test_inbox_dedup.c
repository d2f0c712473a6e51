// SPDX-License-Identifier: MIT
// skirnir test-inbox-dedup: three identical messages go into a queue of their
// own on a configured transport, and have one effect. Everything that it writes
// has a name or an id of its own, and is removed again.

#include "app/app.h"
#include "app/console/signals.h"
#include "app/drivers.h"
#include "app/wiring/transports.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/topology.h"
#include "inbox/consumer.h"
#include "message/route.h"
#include "store/deduplication/deduplication.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE "skirnir.test"

enum {
    COPIES = 3,
    MOST_CALLS = 16,
    PATIENCE_MS = 30000,
    DRAIN_MS = 5000,
    TAKE_MS = 250,
    RETRY_LEASE_S = 15,
    EXPIRES_MS = 60000,
};

// That of the trial: nothing of the application's comes near it.
struct queue {
    const struct skr_app *app;
    struct skr_id id;  // of the messages
    char name[sizeof(MESSAGE ".") + SKR_ID_TEXT_SIZE];
    struct skr_config_transport transport;  // with this queue alone
    char *dsn;                              // owned; NULL: the transport's
    char retries_name[sizeof(MESSAGE "..retry") + SKR_ID_TEXT_SIZE];
    struct skr_config_transport retries;  // zeroes: the queue holds its own
};

// The DSN with the trial's queue in place of those that it names.
static enum skr_code
write_dsn(struct queue *queue, const struct skr_config_transport *transport,
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
    skr_url_add_parameter(&dsn, "queues", queue->name);
    skr_url_fini(&url);
    free(full);
    queue->dsn = skr_text_take(&dsn);
    return queue->dsn == NULL ? skr_fail_memory(error) : SKR_OK;
}

// What the consumer puts off where the broker cannot: rows in the place of
// failed messages, under the trial's own name.
static void
init_retries(struct queue *queue, const struct skr_config *config)
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
        .place = {.table = failed.place.table,
                  .queue = queue->retries_name,
                  .redeliver_timeout_s = RETRY_LEASE_S,
                  .time_zone = failed.place.time_zone != NULL
                                   ? failed.place.time_zone
                                   : "UTC"},
    };
}

// Whether a queue can be had there: in a table by its name alone, on a server
// that makes queues. SKR_INVALID says why not.
static enum skr_code
check_transport(const struct skr_config_transport *transport,
                struct skr_error *error)
{
    const struct skr_broker_ops *broker =
        skr_driver_find_broker(transport->scheme);
    if (broker == NULL || broker->receive == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, which nothing consumes from",
                        transport->name, transport->scheme);
    if (transport->kind != SKR_TRANSPORT_QUEUE && broker->topology == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, where no queue can be made for "
                        "a trial alone, and what it publishes would stay; name "
                        "one that is queue:// or amqp://, as deduplication is "
                        "the same for all",
                        transport->name, transport->scheme);
    return SKR_OK;
}

// In a table the name of a queue is enough; on a server it is declared before
// the messages are published, and bound to nothing.
static enum skr_code
init_queue(struct queue *queue, const struct skr_config *config,
           const struct skr_config_transport *transport,
           struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    enum skr_code code = check_transport(transport, error);
    if (code != SKR_OK)
        return code;
    skr_id_format(queue->id, id);
    snprintf(queue->name, sizeof(queue->name), "skirnir.test.%s", id);
    queue->transport = *transport;
    // The consumer's retries have its name: those of the application are not
    // the trial's.
    queue->transport.name = queue->name;
    queue->transport.place.queue = queue->name;
    // Nothing of it is ever to be kept as failed.
    queue->transport.retry.max_retries = 1000000;
    queue->transport.retry.delay_ms = 0;
    queue->transport.missing_id = SKR_MISSING_ID_FAIL;
    if (transport->kind == SKR_TRANSPORT_QUEUE)
        return SKR_OK;
    init_retries(queue, config);
    code = write_dsn(queue, transport, error);
    queue->transport.dsn = queue->dsn;
    queue->transport.node = NULL;
    queue->transport.auto_setup = false;
    return code;
}

static enum skr_code
open_broker(const struct queue *queue,
            const struct skr_config_transport *transport,
            struct skr_broker **broker, struct skr_error *error)
{
    const struct skr_broker_options options = {
        .auto_setup = transport->auto_setup,
        .wake_fd = -1,
        .log = queue->app->log,
    };
    return skr_transport_open_broker(transport, &options, broker, error);
}

// No driver can delete a queue: the server does, some time after its last use.
static enum skr_code
declare_queue(const struct queue *queue, struct skr_broker *broker,
              struct skr_error *error)
{
    const struct skr_amqp_argument expires = {
        .name = "x-expires", .kind = SKR_AMQP_NUMBER, .number = EXPIRES_MS};
    const struct skr_amqp_declaration declaration = {
        .object = SKR_AMQP_QUEUE,
        .name = queue->name,
        .durable = true,
        .arguments = &expires,
        .argument_count = 1,
    };
    if (broker->ops->topology == NULL)
        return SKR_OK;
    return broker->ops->topology->declare(broker, &declaration, error);
}

static enum skr_code
wait_for_results(struct skr_broker *broker, struct skr_error *error)
{
    int64_t end_ms = skr_clock_ms() + PATIENCE_MS;
    for (size_t confirmed = 0; confirmed < COPIES;) {
        struct skr_published results[COPIES];
        size_t count = 0;
        enum skr_code code =
            broker->ops->results(broker, results, COPIES, &count, 1000, error);
        if (code != SKR_OK && code != SKR_TIMEOUT)
            return code;
        for (size_t i = 0; i < count; i++)
            if (results[i].result != SKR_CONFIRMED)
                return skr_fail_with(error, &results[i].reason);
        confirmed += count;
        if (skr_clock_ms() > end_ms)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "the broker did not confirm the messages");
    }
    return SKR_OK;
}

// Returns when the broker has confirmed all copies.
static enum skr_code
publish(const struct queue *queue, struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(queue->id, id);
    const struct skr_header headers[] = {{"type", MESSAGE},
                                         {"X-Message-Id", id}};
    const struct skr_message message = {
        .id = queue->id,
        .name = MESSAGE,
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
    for (uint64_t i = 0; i < COPIES && code == SKR_OK; i++)
        code = broker->ops->submit(broker, &message, &route, i, error);
    if (code == SKR_OK)
        code = wait_for_results(broker, error);
    skr_broker_close(broker);
    return code;
}

static enum skr_code
take(struct skr_broker *broker, uint64_t *left, struct skr_error *error)
{
    struct skr_incoming incoming[COPIES] = {0};
    size_t count = 0;
    enum skr_code code =
        broker->ops->receive(broker, incoming, COPIES, &count, TAKE_MS, error);
    for (size_t i = 0; i < count; i++)
        incoming[i].settlement = SKR_SETTLE_ACK;
    if (code == SKR_OK)
        code = broker->ops->settle(broker, incoming, count, error);
    *left -= count < *left ? count : *left;
    return code == SKR_TIMEOUT ? SKR_OK : code;
}

// Takes so many that are left, in the queue or as retries beside it, if they
// come within a few seconds.
static enum skr_code
drain(const struct queue *queue, uint64_t left, struct skr_error *error)
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

struct trial {
    const struct skr_config *config;
    struct queue queue;
    struct skr_deduplication *deduplication;
    int64_t end_ms;

    // One for each call of the handler: the effect is a row with this id.
    struct skr_id effects[MOST_CALLS];
    size_t calls;
    struct skr_consumer_counts counts;
    bool is_interrupted;
};

static enum skr_code
find_transport(const struct skr_app *app, const struct skr_config *config,
               const struct skr_config_transport **transport,
               struct skr_error *error)
{
    if (app->arguments->positional_count > 0)
        return skr_config_find_transport(config, app->arguments->positional[0],
                                         transport, error);
    for (size_t i = 0; i < config->transport_count; i++)
        if (check_transport(&config->transports[i], error) == SKR_OK) {
            *transport = &config->transports[i];
            return SKR_OK;
        }
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "no transport is configured that is consumed from and "
                    "holds queues, such as queue:// or amqp://");
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
                                   MESSAGE ".effect", reason) == SKR_OK
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
            .auto_setup = trial->queue.transport.auto_setup,
            .deduplication_auto_setup = trial->config->deduplication_auto_setup,
            .deduplication_before = skr_transport_deduplication(
                                        trial->config, &trial->queue.transport)
                                        .before,
            .limit = COPIES,
            .is_over = is_late,
            .user = trial,
        });
    enum skr_code code =
        skr_consumer_handle(consumer, MESSAGE, have_effect, trial, error);
    if (code == SKR_OK)
        code = skr_consumer_run(consumer, error);
    trial->counts = skr_consumer_counts(consumer);
    trial->is_interrupted = code == SKR_STOPPED;
    return code == SKR_STOPPED ? SKR_OK : code;
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
                                        trial->queue.id, error);
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
    enum skr_code code = publish(&trial->queue, error);
    if (code == SKR_OK) {
        printf("published: %d identical messages to %s\n", COPIES,
               trial->queue.name);
        code = consume(trial, consumer, error);
    }
    skr_signals_on_stop(NULL, NULL);
    // A run that was interrupted or failed has given back what it had.
    enum skr_code drained = drain(
        &trial->queue,
        COPIES - trial->counts.handled - trial->counts.duplicates, &later);
    if (code == SKR_OK && drained != SKR_OK)
        *error = later;
    code = code == SKR_OK ? drained : code;
    enum skr_code counted = count_effects(trial, &effects, &later);
    if (code == SKR_OK && counted != SKR_OK)
        *error = later;
    code = code == SKR_OK ? counted : code;
    return code == SKR_OK ? judge(trial, effects, error) : code;
}

enum skr_code
skr_command_test_inbox_dedup(const struct skr_app *app,
                             const struct skr_config *config,
                             struct skr_error *error)
{
    struct trial trial = {.config = config, .queue = {.app = app}};
    const struct skr_config_transport *transport = NULL;
    struct skr_deduplication_place place;
    struct skr_consumer *consumer = NULL;
    if (config->inbox_database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no database is called default; name another in "
                        "message_broker.inbox.database");
    enum skr_code code = find_transport(app, config, &transport, error);
    if (code == SKR_OK)
        code = skr_id_new(&trial.queue.id, error);
    if (code == SKR_OK)
        code = init_queue(&trial.queue, config, transport, error);
    if (code == SKR_OK) {
        place = skr_transport_deduplication(config, &trial.queue.transport);
        code = skr_deduplication_place_table(config, &place,
                                             &trial.deduplication, error);
    }
    if (code == SKR_OK)
        code = skr_app_open_consumer(app, config, &trial.queue.transport,
                                     &consumer, error);
    if (code == SKR_OK)
        code = try_it(&trial, consumer, error);
    skr_consumer_close(consumer);
    skr_deduplication_free(trial.deduplication);
    free(trial.queue.dsn);
    return code;
}
