// SPDX-License-Identifier: MIT
// Making a consumer of what it is told: nothing is connected yet.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "inbox/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEFAULT_BATCH = 100, MOST_BATCH = 10000 };

static enum skr_code
check_options(const struct skr_consumer_options *options,
              struct skr_error *error)
{
    const char *missing = options->name == NULL           ? "name"
                          : options->database == NULL     ? "database"
                          : options->database_url == NULL ? "database_url"
                          : options->broker == NULL       ? "broker"
                          : options->broker_url == NULL   ? "broker_url"
                          : options->failed_database != NULL &&
                                  options->failed_database_url == NULL
                              ? "failed_database_url"
                              : NULL;
    if (missing != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_consumer_options.%s is not set", missing);
    if (options->broker->receive == NULL || options->broker->settle == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the %s driver cannot consume",
                        options->broker->scheme);
    if (options->retry_broker != NULL &&
        (options->retry_broker->receive == NULL ||
         options->retry_broker->settle == NULL))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the %s driver cannot be the retry_broker: it cannot "
                        "consume",
                        options->retry_broker->scheme);
    if (options->batch > MOST_BATCH)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "batch is %u; at most %d deliveries share a "
                        "transaction",
                        (unsigned)options->batch, MOST_BATCH);
    // Written so that a number that is none fails too.
    if (!(options->retry_multiplier == 0 || options->retry_multiplier >= 1))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "retry_multiplier is %g; at least 1 is needed",
                        options->retry_multiplier);
    if (!(options->retry_jitter <= 1))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "retry_jitter is %g; at most 1 is possible",
                        options->retry_jitter);
    return SKR_OK;
}

static bool
copy_text(struct skr_arena *arena, const char **text, const char *fallback)
{
    if (*text == NULL)
        *text = fallback;
    if (*text == NULL)
        return true;
    *text = skr_arena_text(arena, *text, strlen(*text));
    return *text != NULL;
}

static enum skr_code
copy_options(struct skr_consumer *consumer,
             const struct skr_consumer_options *from, struct skr_error *error)
{
    struct skr_consumer_options *to = &consumer->options;
    struct skr_arena *arena = &consumer->texts;
    *to = *from;
    if (!copy_text(arena, &to->name, NULL) ||
        !copy_text(arena, &to->database_url, NULL) ||
        !copy_text(arena, &to->failed_database_url, NULL) ||
        !copy_text(arena, &to->broker_url, NULL) ||
        !copy_text(arena, &to->queue_database_url, NULL) ||
        !copy_text(arena, &to->deduplication_table,
                   "message_broker_deduplication") ||
        !copy_text(arena, &to->failed_table, "messenger_messages") ||
        !copy_text(arena, &to->failed_queue, "failed"))
        return skr_fail_memory(error);
    consumer->log =
        (struct skr_log){.write = from->log, .user = from->log_user};
    struct skr_retry_policy retry = SKR_DEFAULT_RETRY_POLICY;
    if (from->max_retries != 0)
        retry.max_retries =
            from->max_retries < 0 ? 0 : (uint32_t)from->max_retries;
    if (from->retry_delay_ms != 0)
        retry.delay_ms = from->retry_delay_ms;
    if (from->retry_multiplier != 0)
        retry.multiplier = from->retry_multiplier;
    retry.max_delay_ms = from->max_retry_delay_ms;
    if (from->retry_jitter != 0)
        retry.jitter = from->retry_jitter < 0 ? 0 : from->retry_jitter;
    consumer->retry = retry;
    return SKR_OK;
}

static enum skr_code
name_retries(struct skr_consumer *consumer, struct skr_error *error)
{
    if (!skr_consumer_has_retries(consumer))
        return SKR_OK;
    consumer->retry_queue =
        skr_arena_format(&consumer->texts, "%s.retry", consumer->options.name);
    if (consumer->retry_queue == NULL)
        return skr_fail_memory(error);
    return skr_kept_check_names(consumer->options.failed_table,
                                consumer->retry_queue, error);
}

static enum skr_code
make_tables(struct skr_consumer *consumer, struct skr_error *error)
{
    const struct skr_consumer_options *options = &consumer->options;
    enum skr_code code = skr_deduplication_new(options->database->tx->dialect,
                                               options->deduplication_table,
                                               &consumer->deduplication, error);
    if (code == SKR_OK)
        code = skr_attempts_new(options->database->tx->dialect,
                                &consumer->attempts, error);
    return code;
}

static enum skr_code
allocate(struct skr_consumer *consumer, struct skr_error *error)
{
    consumer->capacity =
        consumer->options.batch == 0 ? DEFAULT_BATCH : consumer->options.batch;
    consumer->most = consumer->capacity;
    consumer->backoff =
        (struct skr_backoff){.first_ms = 100, .longest_ms = 5000};
    consumer->put_off =
        (struct skr_backoff){.first_ms = 1000, .longest_ms = 30000};
    consumer->incoming =
        calloc(consumer->capacity, sizeof(*consumer->incoming));
    consumer->jobs = calloc(consumer->capacity, sizeof(*consumer->jobs));
    if (consumer->incoming == NULL || consumer->jobs == NULL)
        return skr_fail_memory(error);
    consumer->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (consumer->stop_fd < 0)
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot make an eventfd: %s", strerror(errno));
    consumer->random = (uint32_t)skr_clock_wall_us();
    skr_unhandled_init(consumer);
    return SKR_OK;
}

enum skr_code
skr_consumer_open(const struct skr_consumer_options *options,
                  struct skr_consumer **consumer, struct skr_error *error)
{
    enum skr_code code = check_options(options, error);
    if (code != SKR_OK)
        return code;
    struct skr_consumer *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return skr_fail_memory(error);
    opened->stop_fd = -1;
    code = copy_options(opened, options, error);
    if (code == SKR_OK)
        code = allocate(opened, error);
    if (code == SKR_OK)
        code = name_retries(opened, error);
    if (code == SKR_OK)
        code = make_tables(opened, error);
    if (code != SKR_OK) {
        skr_consumer_close(opened);
        return code;
    }
    *consumer = opened;
    return SKR_OK;
}

void
skr_consumer_close(struct skr_consumer *consumer)
{
    if (consumer == NULL)
        return;
    skr_consumer_drop_brokers(consumer);
    skr_consumer_drop_database(consumer);
    skr_consumer_drop_failed(consumer);
    skr_attempts_free(consumer->attempts);
    skr_kept_free(consumer->kept);
    skr_deduplication_free(consumer->deduplication);
    skr_handlers_fini(&consumer->handlers);
    free(consumer->hooks.items);
    if (consumer->stop_fd >= 0)
        close(consumer->stop_fd);
    free(consumer->incoming);
    free(consumer->jobs);
    skr_arena_fini(&consumer->arena);
    skr_arena_fini(&consumer->texts);
    free(consumer);
}

void
skr_consumer_extend(struct skr_consumer *consumer,
                    const struct skr_consumer_extras *extras)
{
    consumer->extras = *extras;
}

enum skr_code
skr_consumer_handle(struct skr_consumer *consumer, const char *message_name,
                    skr_handler_fn *handler, void *user,
                    struct skr_error *error)
{
    return skr_handlers_add(&consumer->handlers, message_name,
                            &(struct handler){.run = handler, .user = user},
                            error);
}

enum skr_code
skr_consumer_handle_sql(struct skr_consumer *consumer, const char *message_name,
                        const char *const *statements, size_t count,
                        struct skr_error *error)
{
    struct skr_sql_handler *sql = NULL;
    enum skr_code code =
        skr_sql_handler_new(consumer->options.database->tx->dialect, statements,
                            count, &sql, error);
    if (code != SKR_OK)
        return code;
    code = skr_handlers_add(
        &consumer->handlers, message_name,
        &(struct handler){.run = skr_sql_handler_run, .user = sql, .sql = sql},
        error);
    if (code != SKR_OK)
        skr_sql_handler_free(sql);
    return code;
}
