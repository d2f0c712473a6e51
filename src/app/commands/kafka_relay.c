// SPDX-License-Identifier: MIT
// A relay from kafka_outbox to Kafka for each of the databases, in the place of
// kafka-outbox-relay.

#include "app/commands/kafka_relay.h"
#include "app/console/signals.h"
#include "app/drivers.h"
#include "app/parts/cleaner.h"
#include "app/service/notifier.h"
#include "app/service/threads.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <stdlib.h>

enum { LEAST_IN_FLIGHT = 8000, LOOK_MS = 60000 };

// As transports.*.failure_limit is by default.
enum { FAILURE_LIMIT = 100 };

struct worker {
    struct skr_relay *relay;
    struct skr_store *table;
    struct skr_sender_options sender;
    char *broker_url;
};

static enum skr_code
look_at_table(const struct skr_kafka_relay_settings *settings, size_t index,
              bool *is_others, struct skr_error *error)
{
    bool is_there = false, is_ours = false;
    struct skr_store *table = NULL;
    struct skr_db *db = NULL;
    enum skr_code code = skr_kafka_relay_table(settings, true, &table, error);
    if (code == SKR_OK)
        code = skr_kafka_relay_open(settings, index,
                                    !settings->skips_migrations, &db, error);
    if (code == SKR_OK)
        code =
            skr_kafka_outbox_find_maker(table, db, &is_there, &is_ours, error);
    if (code == SKR_OK && !is_there && !settings->skips_migrations)
        code = skr_store_create(table, db, error);
    if (code == SKR_OK)
        code = table->admin->check(table, db, error);
    *is_others = is_there && !is_ours;
    skr_db_close(db);
    skr_store_free(table);
    if (code != SKR_OK)
        skr_error_prefix(error, "database %s", settings->names[index]);
    return code;
}

static enum skr_code
write_broker_url(const struct skr_kafka_relay_settings *settings,
                 const char *partitioner, const char *compression, char **url,
                 struct skr_error *error)
{
    struct skr_text text = {0};
    skr_text_add_format(&text, "kafka://%s", settings->brokers);
    skr_url_add_parameter(&text, "partitioner", partitioner);
    if (settings->tls)
        skr_url_add_parameter(&text, "tls", "1");
    if (settings->tls && settings->skips_verifying)
        skr_url_add_parameter(&text, "verify", "0");
    skr_url_add_parameter(&text, "missing_topic", "fail");
    // The last word is that of the options.
    skr_url_add_parameter(&text, "compression.type", compression);
    if (settings->options != NULL)
        skr_text_add_format(&text, "&%s", settings->options);
    *url = skr_text_take(&text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

// Said whatever the level: it decides what becomes of rows, and where keys go.
static void
say_start(const struct skr_kafka_relay_settings *settings, size_t index,
          bool marks, const char *partitioner, const char *compression)
{
    struct skr_output output = settings->output;
    const struct skr_log log = {.write = skr_output_log, .user = &output};
    char *source = skr_url_mask(settings->urls[index]);
    output.level = SKR_LOG_DEBUG;
    skr_log(&log, SKR_LOG_INFO, "kafkarelay.started",
            SKR_LOG_TEXT("version", SKR_VERSION),
            SKR_LOG_TEXT("database", settings->names[index]),
            SKR_LOG_TEXT("source", source == NULL ? "" : source),
            SKR_LOG_TEXT("table", settings->table),
            SKR_LOG_TEXT("brokers", settings->hosts),
            SKR_LOG_TEXT("on_success", marks ? "mark" : "delete"),
            SKR_LOG_TEXT("partitioner", partitioner),
            SKR_LOG_TEXT("compression", compression));
    free(source);
}

// All databases have one host and one password.
static void
warn_of_exposure(struct skr_kafka_relay_settings *settings,
                 skr_exposure_fn *exposure, const char *text)
{
    struct skr_url url;
    const struct skr_log log = {.write = skr_output_log,
                                .user = &settings->output};
    char said[SKR_EXPOSURE_SIZE] = "";
    if (exposure == NULL || skr_url_parse(text, &url, NULL) != SKR_OK)
        return;
    exposure(&url, said);
    if (said[0] != '\0')
        skr_log(&log, SKR_LOG_WARNING, "kafkarelay.plaintext",
                SKR_LOG_TEXT("cure", said));
    skr_url_fini(&url);
}

static enum skr_code
make_relay(const struct skr_kafka_relay_settings *settings,
           struct skr_health *health, struct worker *worker, size_t index,
           struct skr_error *error)
{
    const struct skr_log log = skr_health_log(health, index);
    worker->sender = (struct skr_sender_options){
        .name = "kafka",
        .broker = skr_driver_find_broker("kafka"),
        .options = {.url = worker->broker_url, .log = log},
    };
    const struct skr_relay_settings options = {
        .name = settings->names[index],
        .database = settings->database,
        .database_url = settings->urls[index],
        .table = worker->table,
        .auto_setup = !settings->skips_migrations,
        .senders = &worker->sender,
        .sender_count = 1,
        .retry = {.max_retries = settings->attempts - 1,
                  .delay_ms = 1000,
                  .multiplier = 2,
                  .max_delay_ms = 60000,
                  .jitter = 0.1},
        .in_flight = settings->batch * 4 > LEAST_IN_FLIGHT ? settings->batch * 4
                                                           : LEAST_IN_FLIGHT,
        .max_idle_ms = settings->poll_ms,
        .failure_limit = FAILURE_LIMIT,
        .log = log,
    };
    return skr_relay_make(&options, &worker->relay, error);
}

static enum skr_code
open_worker(struct skr_kafka_relay_settings *settings,
            struct skr_health *health, struct worker *worker, size_t index,
            struct skr_error *error)
{
    bool is_others = false;
    enum skr_code code = look_at_table(settings, index, &is_others, error);
    bool marks = settings->success == SKR_KAFKA_RELAY_MARK ||
                 (settings->success == SKR_KAFKA_RELAY_BY_TABLE && is_others);
    // As the other relay had it, where it was.
    const char *partitioner = is_others ? "fnv1a" : "murmur2";
    const char *compression = is_others ? "gzip" : "none";
    if (settings->partitioner != NULL)
        partitioner = settings->partitioner;
    if (code == SKR_OK)
        code = skr_kafka_relay_table(settings, marks, &worker->table, error);
    if (code == SKR_OK)
        code = write_broker_url(settings, partitioner, compression,
                                &worker->broker_url, error);
    if (code == SKR_OK && index == 0)
        warn_of_exposure(settings, skr_driver_find_broker("kafka")->exposure,
                         worker->broker_url);
    if (code == SKR_OK)
        code = make_relay(settings, health, worker, index, error);
    if (code == SKR_OK)
        skr_relay_give_up_by(worker->relay, skr_health_gives_up,
                             &health->workers[index]);
    if (code == SKR_OK)
        skr_health_watch(health, index, skr_relay_pulse(worker->relay));
    if (code == SKR_OK)
        say_start(settings, index, marks, partitioner, compression);
    return code;
}

static enum skr_code
run_worker(void *user, struct skr_error *error)
{
    const struct worker *worker = user;
    return skr_relay_run(worker->relay, error);
}

static void
stop_worker(void *user)
{
    const struct worker *worker = user;
    skr_relay_stop(worker->relay);
}

// The supervisor that is told of readiness may end it at once: by then signals
// are heeded.
static enum skr_code
run_tasks(const struct skr_app *app, const struct skr_task *task,
          struct skr_health *health, struct skr_error *error)
{
    skr_signals_watch();
    struct skr_notifier *notifier = skr_notifier_start(health, false);
    enum skr_code code = skr_tasks_run(app, task, error);
    skr_notifier_stop(notifier, false);
    return code;
}

static enum skr_code
run_workers(const struct skr_app *app,
            struct skr_kafka_relay_settings *settings,
            struct skr_health *health, struct skr_error *error)
{
    struct worker workers[SKR_KAFKA_RELAY_MAX_DATABASES] = {{0}};
    const struct skr_task task = {
        .run = run_worker,
        .stop = stop_worker,
        .items = workers,
        .item_size = sizeof(workers[0]),
        .count = settings->database_count,
        .stop_s = SKR_RELAY_STOP_S,
    };
    struct skr_cleaner *cleaner = NULL;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++)
        code = open_worker(settings, health, &workers[i], i, error);
    if (code == SKR_OK)
        code = skr_cleaner_start(
            &(struct skr_cleaner_options){
                .interval_s = settings->cleanup_interval_s,
                .log = {.write = skr_output_log, .user = &settings->output},
                .clean = skr_kafka_relay_clean,
                .user = settings,
            },
            &cleaner, error);
    if (code == SKR_OK)
        code = run_tasks(app, &task, health, error);
    skr_cleaner_stop(cleaner);
    for (size_t i = 0; i < settings->database_count; i++) {
        skr_relay_free(workers[i].relay);
        skr_store_free(workers[i].table);
        free(workers[i].broker_url);
    }
    return code;
}

// The tables are made, and nothing is published until a signal ends the
// process. The supervisor that is told of readiness may send one at once: by
// then signals are heeded.
static enum skr_code
wait_for_end(const struct skr_kafka_relay_settings *settings,
             struct skr_error *error)
{
    struct skr_kafka_relay_page *page = NULL;
    enum skr_code code = SKR_OK;
    bool is_others;
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++)
        code = look_at_table(settings, i, &is_others, error);
    int fd = skr_signals_watch();
    if (code == SKR_OK)
        code = skr_kafka_relay_page_open(settings, &page, error);
    struct skr_notifier *notifier =
        code == SKR_OK ? skr_notifier_start(NULL, true) : NULL;
    while (code == SKR_OK && !skr_signals_ask_stop())
        if (skr_clock_sleep(fd, LOOK_MS))
            skr_signals_drain();
    skr_notifier_stop(notifier, false);
    skr_kafka_relay_page_close(page);
    return code;
}

static enum skr_code
run_service(const struct skr_app *app,
            struct skr_kafka_relay_settings *settings, struct skr_error *error)
{
    struct skr_kafka_relay_page *page = NULL;
    char missing[SKR_DRIVER_MISSING_SIZE];
    if (settings->brokers == NULL && !settings->polling_disabled)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--kafka-host, or KAFKA_HOST in the environment, is "
                        "needed");
    if (skr_driver_find_broker("kafka") == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "%s",
                        skr_driver_missing("kafka", missing));
    warn_of_exposure(settings, settings->database->exposure, settings->urls[0]);
    if (settings->polling_disabled)
        return wait_for_end(settings, error);
    struct skr_health health;
    const struct skr_log log = skr_output_as_log(&settings->output);
    enum skr_code code = skr_health_init(&health, &log, settings->names,
                                         settings->database_count, 1, error);
    if (code != SKR_OK)
        return code;
    health.waits = settings->waits;
    code = skr_kafka_relay_page_open(settings, &page, error);
    if (code == SKR_OK)
        code = run_workers(app, settings, &health, error);
    skr_kafka_relay_page_close(page);
    skr_health_fini(&health);
    return code == SKR_STOPPED ? SKR_OK : code;
}

static enum skr_code
run_command(const struct skr_app *app,
            struct skr_kafka_relay_settings *settings, struct skr_error *error)
{
    if (app->arguments->positional_count > 0)
        return skr_kafka_relay_tend(settings, app->arguments, error);
    if (settings->cleans || settings->optimizes)
        return skr_kafka_relay_run_jobs(settings, error);
    enum skr_code code = skr_output_start_writer(&settings->output, error);
    if (code == SKR_OK)
        code = run_service(app, settings, error);
    skr_output_stop_writer(&settings->output);
    return code;
}

enum skr_exit
skr_command_kafka_relay(struct skr_app *app)
{
    struct skr_kafka_relay_settings settings;
    struct skr_error error = {0};
    bool is_missing = false;
    if (skr_kafka_relay_check_words(app->arguments, &error) != SKR_OK)
        return skr_app_usage(app, "%s", error.text);
    if (skr_output_start_writer(app->output, &error) != SKR_OK)
        return skr_app_fail(app, &error);
    enum skr_code code =
        skr_kafka_relay_read(app->arguments, &settings, &is_missing, &error);
    if (getenv("NEW_RELIC_ENABLED") != NULL)
        skr_output_say(app->output, SKR_LOG_WARNING,
                       "skirnir kafka-relay: NEW_RELIC_* is "
                       "ignored; /metrics has the numbers");
    if (code == SKR_OK)
        code = run_command(app, &settings, &error);
    skr_kafka_relay_fini(&settings);
    if (code == SKR_OK)
        return SKR_EXIT_OK;
    skr_app_fail(app, &error);
    return is_missing ? SKR_EXIT_MISSING : SKR_EXIT_FAILURE;
}
