// SPDX-License-Identifier: MIT
// The consumer: receives, handles, settles, and lives on through trouble.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/url.h"
#include "inbox/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_BATCH = 100,
    MOST_BATCH = 10000,
    ROOM_PAUSE_MS = 20,
};

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
    consumer->retry = retry;
    return SKR_OK;
}

// The name of the queue for people is that of the consumer, where a URL takes
// it as it is.
static enum skr_code
name_retries(struct skr_consumer *consumer, struct skr_error *error)
{
    const char *name = consumer->options.name;
    const char *table = consumer->options.failed_table;
    struct skr_arena *arena = &consumer->texts;
    if (!skr_consumer_has_retries(consumer))
        return SKR_OK;
    consumer->retry_queue = skr_arena_format(arena, "%s.retry", name);
    if (consumer->retry_queue == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        skr_messenger_check_names(table, consumer->retry_queue, error);
    if (code != SKR_OK)
        return code;
    bool is_plain =
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == strlen(name);
    struct skr_text url = {0};
    skr_text_add_string(&url, "queue://");
    skr_text_add_string(&url, is_plain ? consumer->retry_queue : "retry");
    skr_url_add_parameter(&url, "table_name", table);
    skr_url_add_parameter(&url, "queue_name", consumer->retry_queue);
    // What a consumer that died had in hand is somebody's soon: it has waited
    // for its retry already.
    skr_url_add_parameter(&url, "redeliver_timeout", "15");
    char *text = skr_text_take(&url);
    if (text != NULL)
        consumer->retry_url = skr_arena_text(arena, text, strlen(text));
    free(text);
    return consumer->retry_url == NULL ? skr_fail_memory(error) : SKR_OK;
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
    if (code == SKR_OK)
        code = skr_attempts_new(options->failed_database != NULL
                                    ? options->failed_database->tx->dialect
                                    : options->database->tx->dialect,
                                &consumer->marks, error);
    return code;
}

static enum skr_code
allocate(struct skr_consumer *consumer, struct skr_error *error)
{
    consumer->capacity =
        consumer->options.batch == 0 ? DEFAULT_BATCH : consumer->options.batch;
    consumer->most = consumer->capacity;
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
    skr_attempts_free(consumer->marks);
    skr_table_free(consumer->failed_table);
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

struct skr_consumer_counts
skr_consumer_counts(const struct skr_consumer *consumer)
{
    return (struct skr_consumer_counts){
        .handled = atomic_load(&consumer->handled),
        .duplicates = atomic_load(&consumer->duplicates),
        .retried = atomic_load(&consumer->retried),
        .failed = atomic_load(&consumer->failed),
    };
}

const struct skr_histogram *
skr_consumer_handling(const struct skr_consumer *consumer)
{
    return &consumer->handling;
}

void
skr_consumer_stop(struct skr_consumer *consumer)
{
    // Nothing but a system call: this may run inside a signal handler.
    int saved = errno;
    const uint64_t one = 1;
    ssize_t written = write(consumer->stop_fd, &one, sizeof(one));
    (void)written;  // it can only be full, and then it is readable as well
    errno = saved;
}

// Deliveries that may share a transaction. One that somebody had and did not
// settle may be what killed him: it goes alone.
static size_t
group_size(struct skr_consumer *consumer, size_t first, size_t count)
{
    if (consumer->alone_left > 0) {
        consumer->alone_left--;
        return 1;
    }
    const struct skr_incoming *incoming = consumer->incoming;
    if (incoming[first].redelivered)
        return 1;
    size_t size = 1;
    while (first + size < count && !incoming[first + size].redelivered)
        size++;
    return size;
}

// How many more may be received.
static size_t
find_room(const struct skr_consumer *consumer)
{
    const struct skr_consumer_budget *budget = consumer->budget;
    if (budget->messages == 0)
        return consumer->most;
    uint64_t claimed = atomic_load(&budget->claimed);
    uint64_t left = claimed < budget->messages ? budget->messages - claimed : 0;
    return left < consumer->most ? (size_t)left : consumer->most;
}

// So many of what came may be handled. Nothing is claimed before it is there:
// a consumer whose queue is empty would keep others from their messages.
static size_t
claim(struct skr_consumer *consumer, size_t count)
{
    struct skr_consumer_budget *budget = consumer->budget;
    uint_fast64_t claimed = atomic_load(&budget->claimed);
    uint64_t wanted;
    do {
        wanted = count;
        if (budget->messages > 0) {
            uint64_t left =
                claimed < budget->messages ? budget->messages - claimed : 0;
            wanted = left < count ? left : count;
        }
    } while (!atomic_compare_exchange_weak(&budget->claimed, &claimed,
                                           claimed + wanted));
    return (size_t)wanted;
}

static enum skr_code
handle_groups(struct skr_consumer *consumer, size_t count, size_t *done,
              struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && *done < count &&
           !skr_consumer_is_stopping(consumer) &&
           !(*done > 0 && skr_consumer_is_late(consumer))) {
        size_t size = group_size(consumer, *done, count);
        skr_jobs_set_aside(consumer, &consumer->jobs[*done], size);
        code = skr_job_count(consumer, &consumer->jobs[*done], error);
        if (code != SKR_OK)
            break;
        code = skr_jobs_handle(consumer, &consumer->jobs[*done], size, error);
        *done += size;
    }
    return code;
}

// What finds no time is given back and comes again, so that less is asked for;
// and more, when half of the time was enough.
static void
learn_pace(struct skr_consumer *consumer, uint64_t taken)
{
    int64_t hold_ms = consumer->source == NULL ? 0 : consumer->source->hold_ms;
    int64_t spent_ms = skr_clock_ms() - consumer->received_ms;
    if (hold_ms == 0)
        return;
    if (spent_ms > hold_ms)
        consumer->most = taken > 1 ? (size_t)taken / 2 : 1;
    else if (spent_ms < hold_ms / 2 && consumer->most < consumer->capacity)
        consumer->most *= 2;
    if (consumer->most > consumer->capacity)
        consumer->most = consumer->capacity;
}

static enum skr_code
handle_received(struct skr_consumer *consumer, size_t count,
                struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t done = 0;
    size_t claimed = claim(consumer, count);
    uint64_t taken_before = consumer->taken;
    consumer->received_ms = skr_clock_ms();
    skr_arena_reset(&consumer->arena);
    consumer->job_count = count;
    for (size_t i = 0; i < count; i++)
        consumer->jobs[i] = (struct job){.incoming = &consumer->incoming[i]};
    for (size_t i = 0; i < claimed && code == SKR_OK; i++)
        code = skr_job_decode(consumer, &consumer->incoming[i],
                              &consumer->jobs[i], error);
    if (code == SKR_OK)
        code = handle_groups(consumer, claimed, &done, error);
    if (code == SKR_OK)
        learn_pace(consumer, consumer->taken - taken_before);
    // What was not reached goes back to the broker for others to take; but not
    // in trouble, which others have as well.
    struct skr_error ignored;
    enum skr_code left =
        skr_jobs_leave(consumer, &consumer->jobs[done], count - done,
                       code == SKR_OK ? JOB_RELEASED : JOB_WAITING,
                       code == SKR_OK ? error : &ignored);
    atomic_fetch_sub(&consumer->budget->claimed,
                     claimed - (consumer->taken - taken_before));
    return code == SKR_OK ? left : code;
}

// Retries are rows: they need the database, and not a broker that is away.
static void
work_off_retries(struct skr_consumer *consumer)
{
    struct skr_error ignored = {0};
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && consumer->db != NULL && consumer->broker == NULL &&
           !skr_consumer_is_ending(consumer)) {
        size_t count = 0, room = find_room(consumer);
        if (room == 0)
            return;
        code = skr_consumer_receive_retries(consumer, room, &count, &ignored);
        if (code == SKR_OK)
            code = handle_received(consumer, count, &ignored);
    }
}

// SKR_TIMEOUT: nothing is waiting.
static enum skr_code
consume(struct skr_consumer *consumer, struct skr_error *error)
{
    enum skr_code code = skr_consumer_connect(consumer, error);
    if (code != SKR_OK) {
        if (error->remedy == SKR_RECONNECT)
            work_off_retries(consumer);
        return code;
    }
    size_t count = 0;
    size_t room = find_room(consumer);
    if (room == 0) {
        // Others have the last ones in hand, and may give them back.
        skr_clock_sleep(consumer->stop_fd, ROOM_PAUSE_MS);
        return SKR_OK;
    }
    code = skr_consumer_receive(consumer, room, &count, error);
    if (code == SKR_TIMEOUT || code == SKR_STOPPED)
        return code;
    if (code != SKR_OK) {
        // An error may have left rows claimed that nobody has in hand: a new
        // connection knows nothing of them either, but is in a known state.
        if (error->remedy != SKR_TRY_AGAIN)
            skr_consumer_drop_source(consumer);
        return code;
    }
    skr_failpoint("consumer.received");
    return handle_received(consumer, count, error);
}

static enum skr_code
make_failed_table(struct skr_consumer *consumer, struct skr_error *error)
{
    if (consumer->failed_table != NULL)
        return SKR_OK;
    const struct skr_consumer_options *options = &consumer->options;
    const struct skr_db_ops *database = options->failed_database != NULL
                                            ? options->failed_database
                                            : options->database;
    return skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = database->tx->dialect,
            .table = options->failed_table,
            .queue = options->failed_queue,
            .names = consumer->extras.names,
            .time_zone = consumer->extras.failed_time_zone,
            .failed_time_zone = consumer->extras.failed_time_zone,
            .transport = options->name,
            .failed_table = options->failed_table,
            .failed_queue = options->failed_queue,
            .failed_readable = consumer->extras.failed_readable,
        },
        &consumer->failed_table, error);
}

// A mistake that was there from the start is told to whoever started this;
// what breaks later is waited out.
static bool
is_mistake(const struct skr_consumer *consumer, enum skr_code code)
{
    return !consumer->was_ready && (code == SKR_MISSING || code == SKR_INVALID);
}

static enum skr_code
loop(struct skr_consumer *consumer, struct skr_error *error)
{
    for (;;) {
        struct skr_error problem = {0};
        if (skr_consumer_is_stopping(consumer))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                            "stop was requested");
        if (skr_consumer_is_ending(consumer))
            return SKR_OK;
        enum skr_code code = consume(consumer, &problem);
        if (code == SKR_OK || code == SKR_TIMEOUT)
            skr_consumer_end_trouble(consumer);
        if (code == SKR_OK || code == SKR_STOPPED)
            continue;
        if (code == SKR_TIMEOUT) {
            if (consumer->extras.stop_when_empty &&
                !skr_consumer_holds_any(consumer))
                return SKR_OK;
            continue;
        }
        if (is_mistake(consumer, code)) {
            if (error != NULL)
                *error = problem;
            return code;
        }
        // A table that is gone is looked for, or made, on connecting.
        if (problem.remedy == SKR_RECONNECT || code == SKR_MISSING)
            skr_consumer_drop_database(consumer);
        skr_consumer_wait_out(consumer, &problem);
    }
}

static void
start_budget(struct skr_consumer *consumer)
{
    struct skr_consumer_budget *own = &consumer->own_budget;
    own->messages = consumer->extras.limit;
    atomic_store(&own->claimed, 0);
    atomic_store(&own->taken, 0);
    consumer->budget =
        consumer->extras.budget != NULL ? consumer->extras.budget : own;
}

enum skr_code
skr_consumer_run(struct skr_consumer *consumer, struct skr_error *error)
{
    enum skr_code code = make_failed_table(consumer, error);
    if (code != SKR_OK)
        return code;
    start_budget(consumer);
    consumer->was_ready = false;
    consumer->keep_again_ms = 0;
    consumer->retry_again_ms = 0;
    code = loop(consumer, error);
    skr_handlers_rest(&consumer->handlers);
    // All are let go, so that a consumer that does not run holds nothing.
    skr_consumer_drop_brokers(consumer);
    skr_consumer_drop_database(consumer);
    skr_consumer_drop_failed(consumer);
    uint64_t stops;
    ssize_t size = code == SKR_STOPPED
                       ? read(consumer->stop_fd, &stops, sizeof(stops))
                       : 0;
    (void)size;
    return code;
}
