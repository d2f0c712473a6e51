// SPDX-License-Identifier: MIT
// Consumers with their handlers, a thread each: what stops one of them does not
// stop another, and limits count for all together.

#include "app/app.h"
#include "app/drivers.h"
#include "app/service/supervisor.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "inbox/consumer.h"
#include "store/messenger/messenger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// What all of them share.
struct limits {
    pthread_mutex_t mutex;  // of the next two
    struct skr_limits common;
    bool is_over;  // once one has found so, all have
    struct skr_consumer_budget budget;
};

struct worker {
    struct skr_worker self;
    struct skr_consumer *consumer;
};

// With the queues of --queues as the only ones.
static enum skr_code
find_url(const struct skr_app *app,
         const struct skr_config_transport *transport, char **url,
         struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    char *whole = NULL;
    struct skr_text text = {0};
    if (skr_arguments_has(arguments, "queues") &&
        !skr_driver_scheme(transport->scheme)->has_exchanges)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s: --queues chooses among the queues of "
                        "amqp://, and %s:// has none to choose from",
                        transport->name, transport->scheme);
    enum skr_code code = skr_config_broker_url(transport, &whole, error);
    if (code != SKR_OK)
        return code;
    skr_text_add_string(&text, whole);
    free(whole);
    for (size_t i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].option->name, "queues") == 0)
            skr_url_add_parameter(&text, "only", arguments->given[i].value);
    *url = skr_text_take(&text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
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
        .retry_broker = skr_driver_find_broker("queue"),
        .queue_database_url =
            transport->database == NULL ? NULL : transport->database->url,
        .deduplication_table =
            skr_transport_deduplication(config, transport).table,
        .failed_table = failed.place.table,
        .failed_queue = failed.place.queue,
        .batch = transport->batch,
        .max_retries = transport->retry.max_retries == 0
                           ? -1
                           : (int32_t)transport->retry.max_retries,
        // Zero would mean the default there; here it is a choice.
        .retry_delay_ms =
            transport->retry.delay_ms == 0 ? 1 : transport->retry.delay_ms,
        .retry_multiplier = transport->retry.multiplier,
        .max_retry_delay_ms = transport->retry.max_delay_ms,
        .retry_jitter =
            transport->retry.jitter > 0 ? transport->retry.jitter : -1,
        .log = app->log.write,
        .log_user = app->log.user,
    };
    enum skr_code code =
        skr_transport_broker(transport, &options.broker, error);
    if (code == SKR_OK)
        code = skr_transport_database(config->inbox_database, &options.database,
                                      error);
    if (code == SKR_OK && transport->database != NULL)
        code = skr_transport_database(transport->database,
                                      &options.queue_database, error);
    if (code == SKR_OK && failed.database != NULL &&
        strcmp(failed.database->url, config->inbox_database->url) != 0) {
        options.failed_database_url = failed.database->url;
        code = skr_transport_database(failed.database, &options.failed_database,
                                      error);
    }
    char *url = NULL;
    if (code == SKR_OK)
        code = find_url(app, transport, &url, error);
    if (code != SKR_OK)
        return code;
    options.broker_url = url;
    code = skr_consumer_open(&options, consumer, error);
    free(url);
    return code;
}

static void
init_limits(const struct skr_app *app, struct limits *limits)
{
    *limits = (struct limits){.is_over = false};
    pthread_mutex_init(&limits->mutex, NULL);
    skr_limits_read(app, &limits->common);
    limits->budget.messages = limits->common.messages;
    limits->budget.failures =
        (uint64_t)skr_arguments_number(app->arguments, "failure-limit", 0);
}

static bool
is_over(void *user)
{
    struct limits *limits = user;
    pthread_mutex_lock(&limits->mutex);
    bool over = limits->is_over || skr_limits_is_over(&limits->common);
    limits->is_over = over;
    pthread_mutex_unlock(&limits->mutex);
    return over;
}

static bool
has_handler(const struct skr_config *config, const struct skr_name_pair *type)
{
    for (size_t i = 0; i < config->handler_count; i++)
        if (skr_name_rank(config->handlers[i].message_name, type->name,
                          type->class_name) > 0)
            return true;
    return false;
}

// A known type without a handler would fill the failed table: said before the
// first message is taken.
static enum skr_code
require_handlers(const struct skr_config *config,
                 const struct skr_config_transport *transport,
                 struct skr_error *error)
{
    bool fails = transport->unhandled == SKR_UNHANDLED_FAIL;
    if (transport->forward_to != NULL)
        return SKR_OK;
    for (size_t i = 0; i < config->message_type_count && fails; i++)
        if (!has_handler(config, &config->message_types[i]))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "message type %s has no handler; add handlers.%s, "
                            "remove it from message_types, or set unhandled "
                            "of transport %s",
                            config->message_types[i].name,
                            config->message_types[i].name, transport->name);
    if (config->handler_count == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no handlers are configured; add for example "
                        "handlers: {order.placed: {sql: 'INSERT ...'}}");
    return SKR_OK;
}

// What the configuration is made of may be secret, and is no business of a
// command that does not ask for it.
static enum skr_code
add_command(const struct skr_config *config,
            const struct skr_config_handler *handler,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const char **withheld =
        calloc(config->variable_count + 1, sizeof(*withheld));
    if (withheld == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0, count = 0; i < config->variable_count; i++)
        if (!skr_text_is_among(config->variables[i], handler->env.items,
                               handler->env.count))
            withheld[count++] = config->variables[i];
    enum skr_code code = skr_consumer_handle_command(
        consumer, handler->message_name,
        &(struct skr_handler_command){.words = handler->command.items,
                                      .word_count = handler->command.count,
                                      .withheld = withheld,
                                      .timeout_ms = handler->timeout_s * 1000,
                                      .recorder = handler->deduplicates},
        error);
    free(withheld);
    return code;
}

static enum skr_code
add_handler(const struct skr_config *config,
            const struct skr_config_handler *handler,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const char *name = handler->message_name;
    if (handler->library != NULL)
        return skr_consumer_handle_library(consumer, name, handler->library,
                                           handler->function,
                                           handler->transaction, error);
    if (handler->command.count > 0)
        return add_command(config, handler, consumer, error);
    return skr_consumer_handle_sql(consumer, name, handler->sql.items,
                                   handler->sql.count, error);
}

static enum skr_code
add_forward(const struct skr_config *config,
            const struct skr_config_transport *transport,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const struct skr_config_transport *target = NULL;
    const struct skr_db_ops *ops = NULL;
    struct skr_arena arena = {0};
    struct skr_forward forward = {.insert = NULL};
    enum skr_code code = skr_config_find_transport(
        config, transport->forward_to, &target, error);
    if (code == SKR_OK)
        code = skr_transport_database(target->database, &ops, error);
    if (code == SKR_OK)
        code = skr_messenger_insert_sql(ops->tx->dialect, &target->place,
                                        &arena, &forward.insert, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, target, &forward.queue, error);
    if (code == SKR_OK) {
        forward.makes_queue = target->auto_setup;
        code = skr_consumer_forward(consumer, &forward, error);
    }
    skr_arena_fini(&arena);
    return code;
}

// Those of the transport: all, or one that forwards. Loads libraries and finds
// programs: an error names the handler.
static enum skr_code
add_handlers(const struct skr_config *config,
             const struct skr_config_transport *transport,
             struct skr_consumer *consumer, struct skr_error *error)
{
    if (transport->forward_to != NULL)
        return add_forward(config, transport, consumer, error);
    for (size_t i = 0; i < config->handler_count; i++) {
        enum skr_code code =
            add_handler(config, &config->handlers[i], consumer, error);
        if (code != SKR_OK) {
            skr_error_prefix(error, "handlers.%s",
                             config->handlers[i].message_name);
            return code;
        }
    }
    return SKR_OK;
}

static enum skr_code
extend_consumer(const struct skr_app *app, const struct skr_config *config,
                const struct skr_config_transport *transport,
                struct limits *limits, const struct worker *worker,
                struct skr_error *error)
{
    const struct skr_deduplication_place records =
        skr_transport_deduplication(config, transport);
    const struct skr_consumer_extras extras = {
        .names = &config->names,
        .failed_time_zone = skr_transport_failed_place(config).place.time_zone,
        .failed_readable = skr_transport_failed_place(config).readable,
        .handles_missing_ids = transport->missing_id == SKR_MISSING_ID_HANDLE,
        .unhandled = transport->unhandled,
        .failure_limit = transport->failure_limit,
        .auto_setup = transport->auto_setup,
        .deduplication_auto_setup = config->deduplication_auto_setup,
        .deduplication_before = records.before,
        .warns_of_before = !records.before_is_said,
        .budget = &limits->budget,
        .sleep_ms = limits->common.sleep_ms,
        .stop_when_empty = skr_arguments_has(app->arguments, "stop-when-empty"),
        .is_over = is_over,
        .user = limits,
        .gives_up = skr_health_gives_up,
        .gives_up_user =
            &worker->self.environment->health.workers[worker->self.index],
        .tell_health = app->log.tell,
        .health_user = app->log.tell_user,
    };
    skr_consumer_extend(worker->consumer, &extras);
    return add_handlers(config, transport, worker->consumer, error);
}

static enum skr_code
run_worker(void *item, struct skr_error *error)
{
    const struct worker *worker = item;
    return skr_consumer_run(worker->consumer, error);
}

static void
stop_worker(void *item)
{
    const struct worker *worker = item;
    skr_consumer_stop(worker->consumer);
}

// Others go on, perhaps for weeks: it is said at once.
static void
say_ended(void *item, enum skr_code code, const struct skr_error *error)
{
    const struct worker *worker = item;
    const struct skr_worker *self = &worker->self;
    const struct skr_log log =
        skr_health_log(&self->environment->health, self->index);
    if (code == SKR_OK || self->is_alone)
        return;
    skr_log(&log, SKR_LOG_ERROR, "consumer.ended",
            SKR_LOG_TEXT("name", self->name),
            SKR_LOG_TEXT("error", error->text));
    skr_health_tell(&log, SKR_HEALTH_ENDED, 0);
}

static enum skr_code
open_worker(void *item, void *user, struct skr_error *error)
{
    struct worker *worker = item;
    const struct skr_worker *self = &worker->self;
    const struct skr_config *config = self->config;
    const struct skr_app app =
        skr_environment_app(self->environment, self->index);
    const struct skr_config_transport *transport = NULL;
    const struct skr_broker_ops *unused = NULL;
    enum skr_code code =
        skr_config_find_transport(config, self->name, &transport, error);
    if (code == SKR_OK)
        code = skr_transport_broker(transport, &unused, error);
    if (code == SKR_OK)
        code = require_handlers(config, transport, error);
    if (code == SKR_OK)
        code = skr_app_open_consumer(&app, config, transport, &worker->consumer,
                                     error);
    if (code == SKR_OK)
        code = extend_consumer(&app, config, transport, user, worker, error);
    if (code == SKR_OK)
        skr_health_watch(&self->environment->health, self->index,
                         skr_consumer_pulse(worker->consumer));
    return code;
}

static void
close_worker(void *item)
{
    const struct worker *worker = item;
    skr_consumer_close(worker->consumer);
}

static const struct skr_column columns[] = {
    {"transport", .label = "transport"},
    {"handled", NULL, "skirnir_consumer_handled_total",
     "Messages whose effects are committed.", SKR_AS_INTEGER},
    {"duplicates", NULL, "skirnir_consumer_duplicates_total",
     "Messages that were handled before.", SKR_AS_INTEGER},
    {"retried", NULL, "skirnir_consumer_retried_total",
     "Messages whose handling failed and is tried again.", SKR_AS_INTEGER},
    {"failed", NULL, "skirnir_consumer_failed_total",
     "Messages that were moved to the failed ones.", SKR_AS_INTEGER},
    {"ignored", NULL, "skirnir_consumer_ignored_total",
     "Messages without a handler that were ignored.", SKR_AS_INTEGER},
    {"handler_duration_seconds", NULL,
     "skirnir_consumer_handler_duration_seconds",
     "How long handlers took, whatever they said.", SKR_AS_TIMES},
    {"latency_seconds", NULL, "skirnir_consumer_latency_seconds",
     "From the time in the id of a message to the commit "
     "of its effects.",
     SKR_AS_TIMES},
    {"oldest_seconds", NULL, "skirnir_consumer_oldest_seconds",
     "Age of the oldest message that the broker gave last.", SKR_AS_INTEGER},
};

static void
read_counters(void *item, struct skr_report *report)
{
    const struct worker *worker = item;
    struct skr_consumer_counts counts = skr_consumer_counts(worker->consumer);
    skr_report_sum(report, "handled", counts.handled);
    skr_report_sum(report, "duplicates", counts.duplicates);
    skr_report_sum(report, "retried", counts.retried);
    skr_report_sum(report, "failed", counts.failed);
    skr_report_sum(report, "ignored", counts.ignored);
    skr_report_times(report, "handler_duration_seconds", counts.handling);
    skr_report_times(report, "latency_seconds", counts.latency);
    skr_report_greatest(report, "oldest_seconds", counts.oldest_us / 1000000);
}

// Once for all consumers of a transport.
static void
say_started(void *item)
{
    const struct worker *worker = item;
    const struct skr_worker *self = &worker->self;
    const struct skr_app *app = &self->environment->app;
    const struct skr_config *config = self->config;
    const struct skr_config_transport *transport = NULL;
    size_t each = (size_t)skr_arguments_number(app->arguments, "consumers", 1);
    if (self->index % each != 0 ||
        skr_config_find_transport(config, self->name, &transport, NULL) !=
            SKR_OK)
        return;
    char *source = skr_environment_place(config, transport);
    char *destination = skr_config_mask(config, config->inbox_database->url);
    skr_log(
        &app->log, SKR_LOG_INFO, "consumer.started",
        SKR_LOG_TEXT("name", transport->name),
        SKR_LOG_TEXT("version", SKR_VERSION),
        SKR_LOG_TEXT("file", config->path),
        SKR_LOG_TEXT("source", source == NULL ? "" : source),
        SKR_LOG_TEXT("destination", destination == NULL ? "?" : destination),
        SKR_LOG_NUMBER("consumers", each));
    free(destination);
    free(source);
}

static enum skr_code
run_consumers(const struct skr_app *app, const struct skr_config *config,
              struct skr_error *error)
{
    struct limits limits;
    const struct skr_task task = {
        .worker_size = sizeof(struct worker),
        .each = (size_t)skr_arguments_number(app->arguments, "consumers", 1),
        .user = &limits,
        .open = open_worker,
        .say_started = say_started,
        .run = run_worker,
        .stop = stop_worker,
        .ended = say_ended,
        .close = close_worker,
        .columns = SKR_COLUMNS(columns),
        .read = read_counters,
    };
    init_limits(app, &limits);
    enum skr_code code = skr_tasks_run(app, config, &task, error);
    pthread_mutex_destroy(&limits.mutex);
    return code;
}

// The transports of --all. Outboxes are relayed, by `skirnir relay`, and what
// is in the failure transport waits for people.
static enum skr_code
name_all(const struct skr_config *config, struct skr_arguments *arguments,
         struct skr_error *error)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (transport->kind == SKR_TRANSPORT_OUTBOX ||
            skr_driver_find_broker(transport->scheme) == NULL ||
            skr_transport_is_failure(config, transport))
            continue;
        if (arguments->positional_count == SKR_MAX_POSITIONAL)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "--all: over %d transports; give their names to "
                            "several processes",
                            SKR_MAX_POSITIONAL);
        arguments->positional[arguments->positional_count++] = transport->name;
    }
    if (arguments->positional_count > 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "--all: no transport of %s can be consumed", config->path);
}

// In Symfony's words a relay consumes the outbox.
static enum skr_code
run_named(const struct skr_app *app, const struct skr_config *config,
          struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    size_t outboxes = 0;
    for (size_t i = 0; i < arguments->positional_count; i++) {
        const struct skr_config_transport *transport = NULL;
        enum skr_code code = skr_config_find_transport(
            config, arguments->positional[i], &transport, error);
        if (code != SKR_OK)
            return code;
        outboxes += transport->kind == SKR_TRANSPORT_OUTBOX;
    }
    if (outboxes == 0)
        return run_consumers(app, config, error);
    if (skr_arguments_has(arguments, "queues"))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--queues is for transports of amqp://, not for an "
                        "outbox");
    if (outboxes == arguments->positional_count)
        return skr_relay_run_configured(app, config, error);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "some of these transports are outboxes, which are "
                    "relayed, and some are not; start `skirnir relay` for the "
                    "outboxes");
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    if (!skr_arguments_has(app->arguments, "all"))
        return run_named(app, config, error);
    struct skr_arguments arguments = *app->arguments;
    struct skr_app of_all = *app;
    of_all.arguments = &arguments;
    enum skr_code code = name_all(config, &arguments, error);
    return code != SKR_OK ? code : run_named(&of_all, config, error);
}

enum skr_exit
skr_command_consume(struct skr_app *app)
{
    bool has_names = app->arguments->positional_count > 0;
    bool is_all = skr_arguments_has(app->arguments, "all");
    if (has_names == is_all)
        return skr_app_usage(app, has_names
                                      ? "names and --all exclude each other"
                                      : "TRANSPORT... is missing, or --all");
    return skr_app_run_reloading(app, run);
}
