// SPDX-License-Identifier: MIT
// The consumer's connections, the tables it needs, and waiting for them.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "db/rights.h"
#include "inbox/inside.h"

#include <stdlib.h>
#include <string.h>

static enum skr_code
check_deduplication(struct skr_consumer *consumer, struct skr_error *error)
{
    struct skr_deduplication *table = consumer->deduplication;
    enum skr_code code = skr_deduplication_succeed(
        table, consumer->extras.deduplication_before, error);
    if (code == SKR_OK)
        code = skr_deduplication_check(table, consumer->db, error);
    if (code == SKR_MISSING && consumer->extras.deduplication_auto_setup)
        code = skr_deduplication_create(table, consumer->db, error);
    if (code == SKR_OK)
        code = skr_rights_check_insert(
            consumer->db, consumer->options.deduplication_table,
            "message_id, message_name, processed_at", error);
    if (code == SKR_OK)
        code = skr_deduplication_look_back(table, consumer->db, error);
    if (code != SKR_MISSING)
        return code;
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                    "the deduplication table %s does not exist; create it "
                    "with `skirnir setup-deduplication --force`",
                    consumer->options.deduplication_table);
}

static enum skr_code
check_attempts(struct skr_consumer *consumer, struct skr_error *error)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    enum skr_code code =
        skr_attempts_check(consumer->attempts, consumer->db, error);
    if (code != SKR_MISSING)
        return code;
    if (extras->auto_setup || extras->deduplication_auto_setup)
        return skr_attempts_create(consumer->db, error);
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                    "the table " SKR_ATTEMPT_TABLE
                    " does not exist; create it with `skirnir "
                    "setup-deduplication --force`");
}

enum skr_code
skr_consumer_fail_missing(const struct skr_consumer *consumer,
                          struct skr_error *error)
{
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                    "the failed table %s, or " SKR_ATTEMPT_TABLE
                    " beside it, does not exist; create it with `skirnir "
                    "setup`",
                    consumer->options.failed_table);
}

static enum skr_code
check_failed_table(struct skr_consumer *consumer, struct skr_db *db,
                   struct skr_error *error)
{
    enum skr_code code = skr_kept_check(consumer->kept, db, error);
    if (code != SKR_MISSING)
        return code;
    if (consumer->extras.auto_setup)
        return skr_kept_create(consumer->kept, db, error);
    // Missing from the start is a mistake in the setup. One that went away
    // later holds up only the messages that need it.
    return consumer->was_ready ? SKR_OK
                               : skr_consumer_fail_missing(consumer, error);
}

enum skr_code
skr_consumer_connect_database(struct skr_consumer *consumer,
                              struct skr_error *error)
{
    if (consumer->db != NULL)
        return SKR_OK;
    enum skr_code code = skr_db_open_or_create(
        consumer->options.database, consumer->options.database_url,
        consumer->extras.auto_setup, &consumer->db, error);
    if (code != SKR_OK)
        return code;
    skr_trouble_notice(&consumer->passed_over, &consumer->log,
                       "consumer.passed_over", consumer->options.name,
                       &consumer->db->passed_over);
    code = check_deduplication(consumer, error);
    if (code == SKR_OK)
        code = check_attempts(consumer, error);
    if (code == SKR_OK && consumer->options.failed_database == NULL)
        code = check_failed_table(consumer, consumer->db, error);
    if (code != SKR_OK)
        skr_consumer_drop_database(consumer);
    return code;
}

enum skr_code
skr_consumer_connect_failed(struct skr_consumer *consumer, struct skr_db **db,
                            struct skr_error *error)
{
    const struct skr_consumer_options *options = &consumer->options;
    enum skr_code code = SKR_OK;
    if (options->failed_database == NULL) {
        code = skr_consumer_connect_database(consumer, error);
        *db = consumer->db;
        return code;
    }
    if (consumer->failed_db == NULL) {
        code = skr_db_open_or_create(
            options->failed_database, options->failed_database_url,
            consumer->extras.auto_setup, &consumer->failed_db, error);
        if (code == SKR_OK)
            code = check_failed_table(consumer, consumer->failed_db, error);
        if (code != SKR_OK)
            skr_consumer_drop_failed(consumer);
    }
    *db = consumer->failed_db;
    return code;
}

// A handler whose table or column is missing waits for it, and the others go
// on. Where there is no other a command can do nothing, and ends; the consumer
// of an application waits, as its messages do.
static enum skr_code
check_handlers(struct skr_consumer *consumer, struct skr_error *error)
{
    size_t broken = 0;
    if (consumer->extras.gives_up == NULL)
        return SKR_OK;
    for (size_t i = 0; i < consumer->handlers.count; i++) {
        const struct handler *handler = &consumer->handlers.items[i];
        struct skr_error reason = {0};
        if (handler->sql == NULL ||
            skr_sql_handler_check(handler->sql, skr_db_tx(consumer->db),
                                  &reason) == SKR_OK)
            continue;
        skr_error_prefix(&reason, "the handler of %s", handler->message_name);
        broken++;
        if (broken == consumer->handlers.count)
            return skr_fail(error, reason.code, SKR_GIVE_UP,
                            reason.code == SKR_MISSING
                                ? "%s; create the table, or correct its name "
                                  "in handlers"
                                : "%s; correct the statement in handlers",
                            reason.text);
        skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.handler_waits",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_TEXT("error", reason.text));
    }
    return SKR_OK;
}

static enum skr_code
connect_broker(struct skr_consumer *consumer, struct skr_error *error)
{
    if (consumer->broker != NULL)
        return SKR_OK;
    const struct skr_consumer_options *options = &consumer->options;
    enum skr_code code =
        skr_broker_open(options->broker,
                        &(struct skr_broker_options){
                            .url = options->broker_url,
                            .database = options->queue_database,
                            .database_url = options->queue_database_url,
                            .auto_setup = consumer->extras.auto_setup,
                            .consumes = true,
                            .wake_fd = consumer->stop_fd,
                            .log = consumer->log,
                        },
                        &consumer->broker, error);
    consumer->is_refused =
        code == SKR_REFUSED && options->queue_database_url == NULL;
    if (code != SKR_OK || consumer->broker->delays ||
        options->retry_broker != NULL)
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "a delivery from %s:// cannot be delayed; set "
                    "skr_consumer_options.retry_broker to &skr_queue_broker",
                    options->broker->scheme);
}

// A queue that is a table holds its retries itself.
bool
skr_consumer_has_retries(const struct skr_consumer *consumer)
{
    return consumer->options.retry_broker != NULL &&
           consumer->options.retry_broker != consumer->options.broker;
}

bool
skr_consumer_holds_any(const struct skr_consumer *consumer)
{
    return (consumer->broker != NULL && consumer->broker->holds) ||
           (consumer->retries != NULL && consumer->retries->holds);
}

bool
skr_consumer_is_late(const struct skr_consumer *consumer)
{
    return consumer->source != NULL && consumer->source->hold_ms > 0 &&
           skr_clock_ms() - consumer->received_ms > consumer->source->hold_ms;
}

// Where they are found again as they were stored. The name of the queue for
// people is that of the consumer, if a URL takes it as it is. NULL: memory is
// out.
static char *
write_retry_url(const struct skr_consumer *consumer)
{
    const char *name = consumer->options.name;
    const char *zone = consumer->extras.failed_time_zone;
    bool is_plain =
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == strlen(name);
    struct skr_text url = {0};
    skr_text_add_string(&url, "queue://");
    skr_text_add_string(&url, is_plain ? consumer->retry_queue : "retry");
    skr_url_add_parameter(&url, "table_name", consumer->options.failed_table);
    skr_url_add_parameter(&url, "queue_name", consumer->retry_queue);
    if (zone != NULL)
        skr_url_add_parameter(&url, "time_zone", zone);
    // What a consumer that died had in hand is given to another soon: it has
    // waited for its retry already.
    skr_url_add_parameter(&url, "redeliver_timeout", "15");
    return skr_text_take(&url);
}

enum skr_code
skr_consumer_connect_retries(struct skr_consumer *consumer,
                             struct skr_error *error)
{
    if (consumer->retries != NULL)
        return SKR_OK;
    const struct skr_consumer_options *options = &consumer->options;
    bool is_elsewhere = options->failed_database != NULL;
    char *url = write_retry_url(consumer);
    if (url == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_broker_open(
        options->retry_broker,
        &(struct skr_broker_options){
            .url = url,
            .database =
                is_elsewhere ? options->failed_database : options->database,
            .database_url = is_elsewhere ? options->failed_database_url
                                         : options->database_url,
            .auto_setup = consumer->extras.auto_setup,
            .consumes = true,
            .is_own = true,
            .wake_fd = consumer->stop_fd,
            .log = consumer->log,
        },
        &consumer->retries, error);
    free(url);
    return code;
}

enum skr_code
skr_consumer_connect(struct skr_consumer *consumer, struct skr_error *error)
{
    struct skr_db *failed_db = NULL;
    consumer->is_refused = false;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    // Later on, only the messages that need it wait for the failed table.
    if (code == SKR_OK && !consumer->was_ready)
        code = skr_consumer_connect_failed(consumer, &failed_db, error);
    if (code == SKR_OK)
        code = connect_broker(consumer, error);
    if (code == SKR_OK && !consumer->was_ready)
        code = check_handlers(consumer, error);
    if (code != SKR_OK)
        return code;
    if (!consumer->was_ready)
        skr_log(&consumer->log, SKR_LOG_INFO, "consumer.ready",
                SKR_LOG_TEXT("name", consumer->options.name));
    consumer->was_ready = true;
    return SKR_OK;
}

void
skr_consumer_drop_database(struct skr_consumer *consumer)
{
    skr_db_close(consumer->db);
    consumer->db = NULL;
}

void
skr_consumer_drop_failed(struct skr_consumer *consumer)
{
    skr_db_close(consumer->failed_db);
    consumer->failed_db = NULL;
}

void
skr_consumer_drop_source(struct skr_consumer *consumer)
{
    if (consumer->source == NULL)
        return;
    if (consumer->source == consumer->retries)
        consumer->retries = NULL;
    else
        consumer->broker = NULL;
    skr_broker_close(consumer->source);
    consumer->source = NULL;
}

void
skr_consumer_drop_brokers(struct skr_consumer *consumer)
{
    skr_broker_close(consumer->broker);
    skr_broker_close(consumer->retries);
    consumer->broker = NULL;
    consumer->retries = NULL;
    consumer->source = NULL;
}

bool
skr_consumer_is_stopping(const struct skr_consumer *consumer)
{
    return atomic_load(&consumer->is_stopped);
}

static bool
is_spent(const struct skr_consumer_budget *budget)
{
    return (budget->messages > 0 &&
            atomic_load(&budget->taken) >= budget->messages) ||
           (budget->failures > 0 &&
            atomic_load(&budget->failed) >= budget->failures);
}

bool
skr_consumer_is_ending(const struct skr_consumer *consumer)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    return skr_consumer_is_stopping(consumer) || is_spent(consumer->budget) ||
           (extras->is_over != NULL && extras->is_over(extras->user));
}

void
skr_consumer_wait_out(struct skr_consumer *consumer,
                      const struct skr_error *error)
{
    skr_trouble_report(&consumer->trouble, &consumer->log, "consumer.trouble",
                       consumer->options.name, error);
    skr_clock_sleep(consumer->stop_fd, skr_backoff_next(&consumer->backoff));
}

void
skr_consumer_end_trouble(struct skr_consumer *consumer)
{
    skr_backoff_reset(&consumer->backoff);
    for (size_t i = 0; i < consumer->handlers.count; i++)
        if (consumer->handlers.items[i].backoff.pause_ms > 0)
            return;
    skr_trouble_end(&consumer->trouble, &consumer->log, "consumer.recovered",
                    consumer->options.name);
}
