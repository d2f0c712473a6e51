// SPDX-License-Identifier: MIT
// Opens and closes connections, and checks the tables.

#include "inbox/connect.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"
#include "inbox/consumer_internals.h"
#include "inbox/sql_handler.h"

#include <string.h>

static struct skr_table_maker
find_maker(const struct skr_consumer *consumer, const struct skr_db *db)
{
    const struct skr_consumer_options *options = &consumer->options;
    return (struct skr_table_maker){&consumer->log, options->name,
                                    db == consumer->db
                                        ? options->database_url
                                        : options->failed_database_url};
}

static void
log_made(const struct skr_consumer *consumer, const char *table)
{
    const struct skr_table_maker maker = find_maker(consumer, consumer->db);
    skr_store_log_made(&maker, table);
}

// To a consumer that is new, what others had recorded is lost without a word.
static void
log_inheritance(const struct skr_consumer *consumer)
{
    if (!consumer->connection.was_ready && consumer->extras.warns_of_before)
        skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.inherits",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_TEXT("table", consumer->options.deduplication_table),
                SKR_LOG_TEXT("before", consumer->extras.deduplication_before),
                SKR_LOG_TEXT("advice",
                             "messages that are recorded in the table before "
                             "are acknowledged unhandled; for a consumer that "
                             "never used it set read_default: false, for one "
                             "that did read_default: true"));
}

static enum skr_code
check_deduplication(struct skr_consumer *consumer, struct skr_error *error)
{
    struct skr_deduplication *table = consumer->records.table;
    bool inherits = false;
    enum skr_code code = skr_deduplication_succeed(
        table, consumer->extras.deduplication_before, error);
    if (code == SKR_OK)
        code = skr_deduplication_check(table, consumer->db, error);
    if (code == SKR_MISSING && consumer->extras.deduplication_auto_setup) {
        code = skr_deduplication_create(table, consumer->db, error);
        if (code == SKR_OK)
            log_made(consumer, consumer->options.deduplication_table);
    }
    if (code == SKR_OK)
        code = skr_rights_check_insert(
            consumer->db, consumer->options.deduplication_table,
            "message_id, message_name, processed_at", error);
    if (code == SKR_OK)
        code =
            skr_deduplication_look_back(table, consumer->db, &inherits, error);
    if (inherits)
        log_inheritance(consumer);
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
    enum skr_code code = skr_attempts_check(consumer->db, error);
    if (code != SKR_MISSING)
        return code;
    if (extras->auto_setup || extras->deduplication_auto_setup) {
        code = skr_attempts_create(consumer->db, error);
        if (code == SKR_OK)
            log_made(consumer, SKR_ATTEMPT_TABLE);
        return code;
    }
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
    enum skr_code code =
        skr_dead_letters_check(consumer->dead_letters.table, db, error);
    if (code != SKR_MISSING)
        return code;
    const struct skr_table_maker maker = find_maker(consumer, db);
    if (consumer->extras.auto_setup)
        return skr_dead_letters_create(consumer->dead_letters.table, db, &maker,
                                       error);
    // Missing from the start is a mistake in the setup. One that went away
    // later holds up only the messages that need it.
    return consumer->connection.was_ready
               ? SKR_OK
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
    skr_trouble_notice(&consumer->connection.passed_over, &consumer->log,
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
    struct skr_consumer_options *options = &consumer->options;
    enum skr_code code = SKR_OK;
    if (options->failed_database == NULL) {
        code = skr_consumer_connect_database(consumer, error);
        *db = consumer->db;
        return code;
    }
    if (consumer->dead_letters.db == NULL) {
        code = skr_db_open_or_create(
            options->failed_database, options->failed_database_url,
            consumer->extras.auto_setup, &consumer->dead_letters.db, error);
        if (code == SKR_OK && consumer->db != NULL &&
            consumer->dead_letters.db->file != 0 &&
            consumer->dead_letters.db->file == consumer->db->file) {
            // Two connections to it would wait for each other's locks.
            options->failed_database = NULL;
            skr_consumer_drop_failed(consumer);
            return skr_consumer_connect_failed(consumer, db, error);
        }
        if (code == SKR_OK)
            code =
                check_failed_table(consumer, consumer->dead_letters.db, error);
        if (code != SKR_OK)
            skr_consumer_drop_failed(consumer);
    }
    *db = consumer->dead_letters.db;
    return code;
}

// The queue that a handler forwards to.
static enum skr_code
check_queue(struct skr_consumer *consumer, const struct handler *handler,
            struct skr_error *error)
{
    const struct skr_store *queue = handler->queue;
    const struct skr_table_maker maker = find_maker(consumer, consumer->db);
    enum skr_code code = queue->admin->check(queue, consumer->db, error);
    if (code == SKR_MISSING && handler->makes_queue)
        code = skr_store_create_for(queue, consumer->db, &maker, error);
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
        enum skr_code code = handler->queue == NULL
                                 ? SKR_OK
                                 : check_queue(consumer, handler, error);
        if (code != SKR_OK)
            return code;
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
    if (consumer->sources.broker != NULL)
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
                        &consumer->sources.broker, error);
    consumer->connection.is_refused =
        code == SKR_REFUSED && options->queue_database_url == NULL;
    if (code != SKR_OK || consumer->sources.broker->can.delays ||
        options->retry_broker != NULL)
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "a delivery from %s:// cannot be delayed; set "
                    "skr_consumer_options.retry_broker to &skr_queue_broker",
                    options->broker->scheme);
}

enum skr_code
skr_consumer_connect(struct skr_consumer *consumer, struct skr_error *error)
{
    struct skr_db *failed_db = NULL;
    consumer->connection.is_refused = false;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    // Later on, only the messages that need it wait for the failed table.
    if (code == SKR_OK && !consumer->connection.was_ready)
        code = skr_consumer_connect_failed(consumer, &failed_db, error);
    if (code == SKR_OK)
        code = connect_broker(consumer, error);
    if (code == SKR_OK && !consumer->connection.was_ready)
        code = check_handlers(consumer, error);
    if (code != SKR_OK)
        return code;
    if (!consumer->connection.was_ready) {
        skr_log(&consumer->log, SKR_LOG_INFO, "consumer.ready",
                SKR_LOG_TEXT("name", consumer->options.name));
        skr_health_tell(&consumer->log, SKR_HEALTH_ACTIVE, 0);
    }
    consumer->connection.was_ready = true;
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
    if (consumer->options.failed_database == NULL)
        skr_consumer_drop_database(consumer);
    skr_db_close(consumer->dead_letters.db);
    consumer->dead_letters.db = NULL;
}

bool
skr_consumer_is_stopping(const struct skr_consumer *consumer)
{
    return atomic_load(&consumer->is_stopped);
}

static bool
is_used_up(const struct skr_consumer_budget *budget)
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
    return skr_consumer_is_stopping(consumer) ||
           is_used_up(consumer->budget.shared) ||
           (extras->is_over != NULL && extras->is_over(extras->user));
}

void
skr_consumer_wait_out(struct skr_consumer *consumer,
                      const struct skr_error *error)
{
    skr_trouble_report(&consumer->connection.trouble, &consumer->log,
                       SKR_TROUBLE_CONSUMER, "consumer.trouble",
                       consumer->options.name, error);
    skr_clock_sleep(consumer->stop_fd,
                    skr_backoff_next(&consumer->connection.backoff));
}
