// SPDX-License-Identifier: MIT
// The consumer: is made of what it is told, receives, handles, settles, and
// lives on through trouble.
//
// Deliveries come from the broker, and from the queue of retries beside it,
// which is a table and has to be asked. It is asked once a second whether it
// has any rows; only then is it opened as a queue, with a connection of its own
// for the leases. Rows become due with a whole second of the server's clock: as
// long as there are any it is asked just then, so that none waits for the next
// look. While there is something in both they take turns.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/url.h"
#include "inbox/consumer_internals.h"
#include "message/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_BATCH = 100,
    MOST_BATCH = 10000,
    ROOM_PAUSE_MS = 20,
    IDLE_CHECK_MS = 5000,
    DEFAULT_SLEEP_MS = 1000,
    LOOK_MS = 1000,
    // Two clocks that are read one after the other are not told apart to the
    // millisecond: a look that is early costs a second, one that is late this.
    MARGIN_MS = 10,
    PAUSE_MS = 5000,  // after trouble
    // A broker that is not waited for at all may go and ask its server.
    SHORTEST_WAIT_MS = 1,
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
    const struct skr_broker_ops *brokers[] = {options->broker,
                                              options->retry_broker};
    for (size_t i = 0; i < SKR_COUNT_OF(brokers); i++)
        if (brokers[i] != NULL &&
            (brokers[i]->receive == NULL || brokers[i]->settle == NULL))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the %s driver cannot %s", brokers[i]->scheme,
                            i == 0 ? "consume"
                                   : "be the retry_broker: it cannot consume");
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

static enum skr_code
copy_options(struct skr_consumer *consumer,
             const struct skr_consumer_options *from, struct skr_error *error)
{
    struct skr_consumer_options *to = &consumer->options;
    const struct {
        const char **text, *fallback;
    } texts[] = {
        {&to->name, NULL},
        {&to->database_url, NULL},
        {&to->failed_database_url, NULL},
        {&to->broker_url, NULL},
        {&to->queue_database_url, NULL},
        {&to->deduplication_table, "message_broker_deduplication"},
        {&to->failed_table, "messenger_messages"},
        {&to->failed_queue, "failed"},
    };
    *to = *from;
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        const char *text = *texts[i].text;
        if (text == NULL)
            text = texts[i].fallback;
        if (text != NULL)
            *texts[i].text =
                skr_arena_text(&consumer->texts, text, strlen(text));
        if (text != NULL && *texts[i].text == NULL)
            return skr_fail_memory(error);
    }
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
    consumer->policy.retry = retry;
    return SKR_OK;
}

static enum skr_code
name_retries(struct skr_consumer *consumer, struct skr_error *error)
{
    if (!skr_consumer_has_retries(consumer))
        return SKR_OK;
    consumer->sources.retry_queue =
        skr_arena_format(&consumer->texts, "%s.retry", consumer->options.name);
    if (consumer->sources.retry_queue == NULL)
        return skr_fail_memory(error);
    return skr_dead_letters_check_names(consumer->options.failed_table,
                                        consumer->sources.retry_queue, error);
}

static enum skr_code
allocate(struct skr_consumer *consumer, struct skr_error *error)
{
    consumer->batch.capacity =
        consumer->options.batch == 0 ? DEFAULT_BATCH : consumer->options.batch;
    consumer->batch.most = consumer->batch.capacity;
    consumer->connection.backoff =
        (struct skr_backoff){.first_ms = 100, .longest_ms = 5000};
    consumer->dead_letters.backoff =
        (struct skr_backoff){.first_ms = 1000, .longest_ms = 30000};
    consumer->batch.incoming =
        calloc(consumer->batch.capacity, sizeof(*consumer->batch.incoming));
    consumer->batch.jobs =
        calloc(consumer->batch.capacity, sizeof(*consumer->batch.jobs));
    if (consumer->batch.incoming == NULL || consumer->batch.jobs == NULL)
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
        code = skr_deduplication_new(options->database->tx->dialect,
                                     opened->options.deduplication_table,
                                     &opened->records.table, error);
    if (code != SKR_OK) {
        skr_consumer_close(opened);
        return code;
    }
    *consumer = opened;
    return SKR_OK;
}

void
skr_consumer_extend(struct skr_consumer *consumer,
                    const struct skr_consumer_extras *extras)
{
    consumer->extras = *extras;
    consumer->policy.unhandled = extras->unhandled;
    consumer->log.tell = extras->tell_health;
    consumer->log.tell_user = extras->health_user;
}

enum skr_code
skr_consumer_handle(struct skr_consumer *consumer, const char *message_name,
                    skr_handler_fn *handler, void *user,
                    struct skr_error *error)
{
    const struct handler added = {.run = handler, .user = user};
    return skr_handlers_add(&consumer->handlers, message_name, &added, error);
}

enum skr_code
skr_consumer_handle_without_tx(struct skr_consumer *consumer,
                               const char *message_name,
                               skr_handler_fn *handler, void *user,
                               struct skr_error *error)
{
    const struct handler added = {
        .run = handler, .user = user, .wants_no_tx = true};
    return skr_handlers_add(&consumer->handlers, message_name, &added, error);
}

bool
skr_consumer_has_retries(const struct skr_consumer *consumer)
{
    return consumer->options.retry_broker != NULL &&
           consumer->options.retry_broker != consumer->options.broker;
}

// Deliveries are deferred: a queue that gives nothing is not empty.
static bool
has_deferred(const struct skr_consumer *consumer)
{
    struct skr_broker *broker = consumer->sources.broker;
    struct skr_broker *retries = consumer->sources.retries;
    return (broker != NULL && broker->ops->status(broker).has_deferred) ||
           (retries != NULL && retries->ops->status(retries).has_deferred);
}

bool
skr_consumer_is_late(const struct skr_consumer *consumer)
{
    return consumer->sources.current != NULL &&
           consumer->sources.current->can.hold_ms > 0 &&
           skr_clock_ms() - consumer->batch.received_ms >
               consumer->sources.current->can.hold_ms;
}

static void
close_source(struct sources *sources, struct skr_broker **source)
{
    if (sources->current == *source)
        sources->current = NULL;
    skr_broker_close(*source);
    *source = NULL;
}

void
skr_consumer_drop_source(struct skr_consumer *consumer)
{
    struct sources *sources = &consumer->sources;
    if (sources->current != NULL)
        close_source(sources, sources->current == sources->retries
                                  ? &sources->retries
                                  : &sources->broker);
}

static void
drop_all(struct skr_consumer *consumer)
{
    close_source(&consumer->sources, &consumer->sources.broker);
    close_source(&consumer->sources, &consumer->sources.retries);
    skr_consumer_drop_database(consumer);
    skr_consumer_drop_failed(consumer);
}

static enum skr_code
receive_from(struct skr_consumer *consumer, struct skr_broker *broker,
             size_t capacity, uint32_t timeout_ms, size_t *count,
             struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = broker->ops->receive(
        broker, consumer->batch.incoming, capacity, count, timeout_ms, error);
    skr_beat_resume();
    return code;
}

int64_t
skr_retries_next_look_ms(int64_t now_ms, bool has_rows, int64_t second_ms)
{
    return now_ms + LOOK_MS + (has_rows ? MARGIN_MS - second_ms : 0);
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
    skr_text_add_string(&url,
                        is_plain ? consumer->sources.retry_queue : "retry");
    skr_url_add_parameter(&url, "table_name", consumer->options.failed_table);
    skr_url_add_parameter(&url, "queue_name", consumer->sources.retry_queue);
    if (zone != NULL)
        skr_url_add_parameter(&url, "time_zone", zone);
    // What a consumer that died had in hand is given to another soon: it has
    // waited for its retry already.
    skr_url_add_parameter(&url, "redeliver_timeout", "15");
    return skr_text_take(&url);
}

static enum skr_code
connect_retries(struct skr_consumer *consumer, struct skr_error *error)
{
    if (consumer->sources.retries != NULL)
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
        &consumer->sources.retries, error);
    free(url);
    return code;
}

static enum skr_code
look_for_retries(struct skr_consumer *consumer, size_t capacity, size_t *count,
                 struct skr_error *error)
{
    struct skr_db *db = NULL;
    bool has_rows = false;
    int64_t second_ms = 0;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    if (code == SKR_OK)
        code = skr_dead_letters_has_retries(consumer->dead_letters.table,
                                            skr_db_tx(db), &has_rows,
                                            &second_ms, error);
    consumer->sources.retry_again_ms =
        skr_retries_next_look_ms(skr_clock_ms(), has_rows, second_ms);
    if (code == SKR_OK && !has_rows)
        return SKR_TIMEOUT;
    if (code == SKR_OK)
        code = connect_retries(consumer, error);
    if (code != SKR_OK)
        return code;
    return receive_from(consumer, consumer->sources.retries, capacity, 0, count,
                        error);
}

// From the queue of retries alone, if there is one. SKR_TIMEOUT as well when
// there is trouble: it is said here.
static enum skr_code
receive_retries(struct skr_consumer *consumer, size_t capacity, size_t *count,
                struct skr_error *error)
{
    struct skr_error problem = {0};
    if (!skr_consumer_has_retries(consumer))
        return SKR_TIMEOUT;
    enum skr_code code = look_for_retries(consumer, capacity, count, &problem);
    if (code == SKR_OK || code == SKR_TIMEOUT) {
        skr_trouble_end(&consumer->sources.retry_trouble, &consumer->log,
                        SKR_TROUBLE_RETRIES, "consumer.retry_recovered",
                        consumer->options.name);
        if (code == SKR_OK)
            consumer->sources.current = consumer->sources.retries;
        return code;
    }
    if (code == SKR_STOPPED)
        return skr_fail_with(error, &problem);
    skr_trouble_report(&consumer->sources.retry_trouble, &consumer->log,
                       SKR_TROUBLE_RETRIES, "consumer.retry_trouble",
                       consumer->options.name, &problem);
    // Nothing is known of the queue on a connection that is gone.
    if (problem.remedy != SKR_TRY_AGAIN) {
        close_source(&consumer->sources, &consumer->sources.retries);
        skr_consumer_drop_failed(consumer);
    }
    consumer->sources.retry_again_ms = skr_clock_ms() + PAUSE_MS;
    return SKR_TIMEOUT;
}

static enum skr_code
receive_from_broker(struct skr_consumer *consumer, size_t capacity,
                    int64_t timeout_ms, size_t *count, struct skr_error *error)
{
    consumer->sources.current = consumer->sources.broker;
    return receive_from(consumer, consumer->sources.broker, capacity,
                        timeout_ms > 0 ? (uint32_t)timeout_ms : 0, count,
                        error);
}

static int64_t
longest_wait_ms(const struct skr_consumer *consumer)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    if (extras->stop_when_empty && !has_deferred(consumer))
        return 0;
    return extras->sleep_ms > 0 ? extras->sleep_ms : DEFAULT_SLEEP_MS;
}

// Receives from one of the sources, up to capacity. SKR_TIMEOUT: neither has
// anything. Trouble with the queue of retries is no error: the broker goes on
// without it.
static enum skr_code
receive(struct skr_consumer *consumer, size_t capacity, size_t *count,
        struct skr_error *error)
{
    int64_t timeout_ms = longest_wait_ms(consumer);
    if (!skr_consumer_has_retries(consumer))
        return receive_from_broker(consumer, capacity, timeout_ms, count,
                                   error);
    bool had_retry = consumer->sources.current != NULL &&
                     consumer->sources.current == consumer->sources.retries;
    int64_t wait_ms = consumer->sources.retry_again_ms - skr_clock_ms();
    bool has_looked = !had_retry && wait_ms <= 0;
    enum skr_code code = SKR_TIMEOUT;
    if (has_looked) {
        code = receive_retries(consumer, capacity, count, error);
        wait_ms = consumer->sources.retry_again_ms - skr_clock_ms();
    }
    if (code != SKR_TIMEOUT)
        return code;
    if (had_retry)
        wait_ms = SHORTEST_WAIT_MS;
    code = receive_from_broker(consumer, capacity,
                               timeout_ms < wait_ms ? timeout_ms : wait_ms,
                               count, error);
    // Where the last one came from there may be more.
    if (code == SKR_TIMEOUT && !has_looked &&
        (had_retry || consumer->extras.stop_when_empty))
        code = receive_retries(consumer, capacity, count, error);
    return code;
}

struct skr_consumer_counts
skr_consumer_counts(const struct skr_consumer *consumer)
{
    const struct tally *tally = &consumer->tally;
    int64_t oldest_us = atomic_load(&tally->oldest_us);
    int64_t age_us = oldest_us == 0 ? 0 : skr_clock_wall_us() - oldest_us;
    return (struct skr_consumer_counts){
        .handled = atomic_load(&tally->handled),
        .duplicates = atomic_load(&tally->duplicates),
        .retried = atomic_load(&tally->retried),
        .failed = atomic_load(&tally->failed),
        .ignored = atomic_load(&tally->ignored),
        .handling = &tally->handling,
        .latency = &tally->latency,
        // Clocks differ.
        .oldest_us = age_us > 0 ? age_us : 0,
    };
}

struct skr_pulse
skr_consumer_pulse(const struct skr_consumer *consumer)
{
    return (struct skr_pulse){{&consumer->beat}};
}

void
skr_consumer_stop(struct skr_consumer *consumer)
{
    // Nothing but a system call: this may run inside a signal handler.
    int saved = errno;
    atomic_store(&consumer->is_stopped, true);
    // It can only be full, and then it is readable as well.
    eventfd_write(consumer->stop_fd, 1);
    errno = saved;
}

// Deliveries that may share a transaction. One that a consumer had and did not
// settle may be what killed it: it goes alone.
static size_t
group_size(struct skr_consumer *consumer, size_t first, size_t count)
{
    if (consumer->batch.alone_left > 0) {
        consumer->batch.alone_left--;
        return 1;
    }
    const struct skr_incoming *incoming = consumer->batch.incoming;
    if (incoming[first].redelivered)
        return 1;
    size_t size = 1;
    while (first + size < count && !incoming[first + size].redelivered)
        size++;
    return size;
}

// So many of count may be handled when others have so many in hand.
static size_t
fit_budget(const struct skr_consumer_budget *budget, uint64_t claimed,
           size_t count)
{
    if (budget->messages == 0)
        return count;
    uint64_t left = claimed < budget->messages ? budget->messages - claimed : 0;
    return left < count ? (size_t)left : count;
}

// How many more may be received.
static size_t
find_room(const struct skr_consumer *consumer)
{
    const struct skr_consumer_budget *budget = consumer->budget.shared;
    return fit_budget(budget, atomic_load(&budget->claimed),
                      consumer->batch.most);
}

// So many of what came may be handled. Nothing is claimed before it is there:
// a consumer whose queue is empty would keep others from their messages.
static size_t
claim(struct skr_consumer *consumer, size_t count)
{
    struct skr_consumer_budget *budget = consumer->budget.shared;
    uint_fast64_t claimed = atomic_load(&budget->claimed);
    size_t wanted;
    do
        wanted = fit_budget(budget, claimed, count);
    while (!atomic_compare_exchange_weak(&budget->claimed, &claimed,
                                         claimed + wanted));
    return wanted;
}

static enum skr_code
handle_groups(struct skr_consumer *consumer, size_t count, size_t *done,
              struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && *done < count &&
           !skr_consumer_is_stopping(consumer) &&
           !(*done > 0 && skr_consumer_is_late(consumer))) {
        struct job *jobs = &consumer->batch.jobs[*done];
        size_t size = group_size(consumer, *done, count);
        skr_jobs_wait_for_handlers(consumer, jobs, size);
        code = skr_job_count(consumer, jobs, error);
        if (code != SKR_OK)
            break;
        code = skr_jobs_handle(consumer, jobs, size, error);
        *done += size;
    }
    return code;
}

// What finds no time is requeued and comes again, so that less is asked for;
// and more, when half of the time was enough.
static void
learn_pace(struct skr_consumer *consumer, uint64_t taken)
{
    struct batch *batch = &consumer->batch;
    const struct skr_broker *source = consumer->sources.current;
    int64_t spent_ms = skr_clock_ms() - batch->received_ms;
    if (source == NULL || source->can.hold_ms == 0)
        return;
    if (spent_ms > source->can.hold_ms)
        batch->most = taken > 1 ? (size_t)taken / 2 : 1;
    else if (spent_ms < source->can.hold_ms / 2 &&
             batch->most < batch->capacity)
        batch->most *= 2;
    if (batch->most > batch->capacity)
        batch->most = batch->capacity;
}

// Retries are as old as their delays make them, and say nothing of the queue.
static void
note_oldest(struct skr_consumer *consumer, size_t count)
{
    const struct job *jobs = consumer->batch.jobs;
    int64_t oldest_us = 0;
    if (consumer->sources.current != consumer->sources.broker)
        return;
    for (size_t i = 0; i < count; i++) {
        int64_t made_us = skr_id_time_us(jobs[i].delivery.message.id);
        if (made_us > 0 && (oldest_us == 0 || made_us < oldest_us))
            oldest_us = made_us;
    }
    atomic_store(&consumer->tally.oldest_us, oldest_us);
}

// What was not reached goes back to the broker for others to take; but not in
// trouble, which others have as well.
static enum skr_code
leave(struct skr_consumer *consumer, size_t first, bool is_in_trouble,
      struct skr_error *error)
{
    struct batch *batch = &consumer->batch;
    for (size_t i = first; i < batch->count; i++)
        skr_job_end(consumer, &batch->jobs[i],
                    is_in_trouble ? SKR_END_DATABASE_AWAY
                                  : SKR_END_NOT_REACHED);
    return skr_jobs_settle(consumer, &batch->jobs[first], batch->count - first,
                           error);
}

static enum skr_code
handle_received(struct skr_consumer *consumer, size_t count,
                struct skr_error *error)
{
    struct batch *batch = &consumer->batch;
    enum skr_code code = SKR_OK;
    size_t done = 0, claimed = claim(consumer, count);
    uint64_t taken_before = consumer->budget.taken;
    batch->received_ms = skr_clock_ms();
    batch->count = count;
    skr_arena_reset(&batch->arena);
    for (size_t i = 0; i < count; i++)
        batch->jobs[i] = (struct job){.incoming = &batch->incoming[i]};
    for (size_t i = 0; i < claimed && code == SKR_OK; i++)
        code = skr_job_decode(consumer, &batch->jobs[i], error);
    note_oldest(consumer, claimed);
    if (code == SKR_OK)
        code = handle_groups(consumer, claimed, &done, error);
    if (code == SKR_OK)
        learn_pace(consumer, consumer->budget.taken - taken_before);
    struct skr_error ignored = {0};
    enum skr_code left = leave(consumer, done, code != SKR_OK,
                               code == SKR_OK ? error : &ignored);
    atomic_fetch_sub(&consumer->budget.shared->claimed,
                     claimed - (consumer->budget.taken - taken_before));
    return code == SKR_OK ? left : code;
}

// Retries are rows: they need the database, and not a broker that is away.
static void
work_off_retries(struct skr_consumer *consumer)
{
    struct skr_error ignored = {0};
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && consumer->db != NULL &&
           consumer->sources.broker == NULL &&
           !skr_consumer_is_ending(consumer)) {
        size_t count = 0, room = find_room(consumer);
        if (room == 0)
            return;
        code = receive_retries(consumer, room, &count, &ignored);
        if (code == SKR_OK)
            code = handle_received(consumer, count, &ignored);
    }
}

// While nothing comes a session that is only there for handlers is asked for
// nothing: its loss would be told with the next message, and MySQL would end
// it, as it does with one that is silent in a transaction.
static enum skr_code
check_idle(struct skr_consumer *consumer, struct skr_error *error)
{
    bool is_asked = skr_consumer_has_retries(consumer) &&
                    consumer->options.failed_database == NULL;
    int64_t now_ms = skr_clock_ms();
    if (is_asked || consumer->db == NULL ||
        now_ms < consumer->connection.idle_check_ms)
        return SKR_TIMEOUT;
    consumer->connection.idle_check_ms = now_ms + IDLE_CHECK_MS;
    enum skr_code code = skr_db_check_alive(consumer->db, error);
    return code == SKR_OK ? SKR_TIMEOUT : code;
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
    code = receive(consumer, room, &count, error);
    if (code == SKR_TIMEOUT) {
        atomic_store(&consumer->tally.oldest_us, 0);
        code = check_idle(consumer, error);
        if (code != SKR_TIMEOUT)
            return code;
    }
    if (code == SKR_TIMEOUT || code == SKR_STOPPED)
        return code;
    if (code != SKR_OK) {
        // An error may have left rows claimed that are not in hand: a new
        // connection knows nothing of them either, but is in a known state.
        if (error->remedy != SKR_TRY_AGAIN)
            skr_consumer_drop_source(consumer);
        return code;
    }
    skr_failpoint("consumer.received");
    return handle_received(consumer, count, error);
}

void
skr_consumer_close(struct skr_consumer *consumer)
{
    if (consumer == NULL)
        return;
    drop_all(consumer);
    skr_dead_letters_free(consumer->dead_letters.table);
    skr_deduplication_free(consumer->records.table);
    skr_handlers_fini(&consumer->handlers);
    free(consumer->hooks.items);
    if (consumer->stop_fd >= 0)
        close(consumer->stop_fd);
    free(consumer->batch.incoming);
    free(consumer->batch.jobs);
    skr_arena_fini(&consumer->batch.arena);
    skr_arena_fini(&consumer->texts);
    free(consumer);
}

static enum skr_code
make_dead_letters(struct skr_consumer *consumer, struct skr_error *error)
{
    if (consumer->dead_letters.table != NULL)
        return SKR_OK;
    const struct skr_consumer_options *options = &consumer->options;
    const struct skr_db_ops *database = options->failed_database != NULL
                                            ? options->failed_database
                                            : options->database;
    return skr_dead_letters_new(
        &(struct skr_dead_letters_options){
            .dialect = database->tx->dialect,
            .table = options->failed_table,
            .failed_queue = options->failed_queue,
            .retry_queue = consumer->sources.retry_queue,
            .transport = options->name,
            .names = consumer->extras.names,
            .time_zone = consumer->extras.failed_time_zone,
            .failed_readable = consumer->extras.failed_readable,
        },
        &consumer->dead_letters.table, error);
}

static void
end_trouble(struct skr_consumer *consumer)
{
    skr_backoff_reset(&consumer->connection.backoff);
    for (size_t i = 0; i < consumer->handlers.count; i++)
        if (consumer->handlers.items[i].backoff.pause_ms > 0)
            return;
    skr_trouble_end(&consumer->connection.trouble, &consumer->log,
                    SKR_TROUBLE_CONSUMER, "consumer.recovered",
                    consumer->options.name);
}

// A mistake that was there from the start ends the run, so that the person who
// started it sees it; what breaks later is waited out.
static bool
gives_up(struct skr_consumer *consumer, const struct skr_error *error)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    if (consumer->connection.was_ready)
        return false;
    if (extras->gives_up == NULL)
        return error->code == SKR_MISSING ||
               (error->code == SKR_INVALID && error->remedy == SKR_GIVE_UP);
    return (skr_error_is_lasting(error) || consumer->connection.is_refused) &&
           extras->gives_up(extras->gives_up_user);
}

static enum skr_code
loop(struct skr_consumer *consumer, struct skr_error *error)
{
    for (;;) {
        struct skr_error problem = {0};
        skr_beat_turn();
        skr_unhandled_log_count(consumer, false);
        if (skr_consumer_is_stopping(consumer))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                            "stop was requested");
        if (skr_consumer_is_ending(consumer))
            return SKR_OK;
        enum skr_code code = consume(consumer, &problem);
        if (code == SKR_OK || code == SKR_TIMEOUT)
            end_trouble(consumer);
        if (code == SKR_OK || code == SKR_STOPPED)
            continue;
        if (code == SKR_TIMEOUT) {
            if (consumer->extras.stop_when_empty && !has_deferred(consumer))
                return SKR_OK;
            continue;
        }
        if (gives_up(consumer, &problem))
            return skr_fail_with(error, &problem);
        // A table that is gone is looked for, or made, on connecting.
        if (problem.remedy == SKR_RECONNECT || code == SKR_MISSING)
            skr_consumer_drop_database(consumer);
        skr_consumer_wait_out(consumer, &problem);
    }
}

static void
say_stopped(struct skr_consumer *consumer)
{
    const struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_unhandled_log_count(consumer, true);
    skr_log(&consumer->log, SKR_LOG_INFO, "consumer.stopped",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_NUMBER("handled", counts.handled),
            SKR_LOG_NUMBER("duplicates", counts.duplicates),
            SKR_LOG_NUMBER("retried", counts.retried),
            SKR_LOG_NUMBER("failed", counts.failed),
            SKR_LOG_NUMBER("ignored", counts.ignored));
    skr_health_tell(&consumer->log, SKR_HEALTH_ENDED, 0);
}

enum skr_code
skr_consumer_run(struct skr_consumer *consumer, struct skr_error *error)
{
    enum skr_code code = make_dead_letters(consumer, error);
    if (code != SKR_OK)
        return code;
    struct budget *budget = &consumer->budget;
    budget->own.messages = consumer->extras.limit;
    atomic_store(&budget->own.claimed, 0);
    atomic_store(&budget->own.taken, 0);
    budget->shared = consumer->extras.budget != NULL ? consumer->extras.budget
                                                     : &budget->own;
    consumer->connection.was_ready = false;
    consumer->dead_letters.again_ms = 0;
    consumer->sources.retry_again_ms = 0;
    skr_beat_begin(&consumer->beat);
    code = loop(consumer, error);
    skr_handlers_rest(&consumer->handlers);
    // All are let go, so that a consumer that does not run holds nothing.
    drop_all(consumer);
    skr_beat_end();
    say_stopped(consumer);
    // A stop that comes in between is still told by the first of both.
    if (code == SKR_STOPPED) {
        eventfd_t stops;
        atomic_store(&consumer->is_stopped, false);
        eventfd_read(consumer->stop_fd, &stops);
    }
    return code;
}
