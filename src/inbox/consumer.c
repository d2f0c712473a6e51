// SPDX-License-Identifier: MIT
// The consumer: receives, handles, settles, and lives on through trouble.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "inbox/inside.h"
#include "message/id.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    ROOM_PAUSE_MS = 20,
    IDLE_CHECK_MS = 5000,
};

struct skr_consumer_counts
skr_consumer_counts(const struct skr_consumer *consumer)
{
    return (struct skr_consumer_counts){
        .handled = atomic_load(&consumer->handled),
        .duplicates = atomic_load(&consumer->duplicates),
        .retried = atomic_load(&consumer->retried),
        .failed = atomic_load(&consumer->failed),
        .ignored = atomic_load(&consumer->ignored),
    };
}

const struct skr_histogram *
skr_consumer_handling(const struct skr_consumer *consumer)
{
    return &consumer->handling;
}

const struct skr_histogram *
skr_consumer_latency(const struct skr_consumer *consumer)
{
    return &consumer->latency;
}

int64_t
skr_consumer_oldest_us(const struct skr_consumer *consumer)
{
    int64_t oldest_us = atomic_load(&consumer->oldest_us);
    int64_t age_us = oldest_us == 0 ? 0 : skr_clock_wall_us() - oldest_us;
    // Clocks differ.
    return age_us > 0 ? age_us : 0;
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
    const uint64_t one = 1;
    atomic_store(&consumer->is_stopped, true);
    ssize_t written = write(consumer->stop_fd, &one, sizeof(one));
    (void)written;  // it can only be full, and then it is readable as well
    errno = saved;
}

// Deliveries that may share a transaction. One that a consumer had and did not
// settle may be what killed it: it goes alone.
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

// Retries are as old as their delays make them, and say nothing of the queue.
static void
note_oldest(struct skr_consumer *consumer, size_t count)
{
    int64_t oldest_us = 0;
    if (consumer->source != consumer->broker)
        return;
    for (size_t i = 0; i < count; i++) {
        int64_t made_us = skr_id_time_us(consumer->jobs[i].delivery.message.id);
        if (made_us > 0 && (oldest_us == 0 || made_us < oldest_us))
            oldest_us = made_us;
    }
    atomic_store(&consumer->oldest_us, oldest_us);
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
    note_oldest(consumer, claimed);
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

// While nothing comes a database that is only there for handlers is asked for
// nothing, and its loss would be told with the next message.
static enum skr_code
check_idle(struct skr_consumer *consumer, struct skr_error *error)
{
    const struct skr_consumer_options *options = &consumer->options;
    bool is_asked = skr_consumer_has_retries(consumer)
                        ? options->failed_database == NULL
                        : options->queue_database_url != NULL &&
                              strcmp(options->queue_database_url,
                                     options->database_url) == 0;
    int64_t now_ms = skr_clock_ms();
    if (is_asked || consumer->db == NULL || now_ms < consumer->idle_check_ms)
        return SKR_TIMEOUT;
    consumer->idle_check_ms = now_ms + IDLE_CHECK_MS;
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
    code = skr_consumer_receive(consumer, room, &count, error);
    if (code == SKR_TIMEOUT) {
        atomic_store(&consumer->oldest_us, 0);
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

static enum skr_code
make_kept(struct skr_consumer *consumer, struct skr_error *error)
{
    if (consumer->kept != NULL)
        return SKR_OK;
    const struct skr_consumer_options *options = &consumer->options;
    const struct skr_db_ops *database = options->failed_database != NULL
                                            ? options->failed_database
                                            : options->database;
    return skr_kept_new(
        &(struct skr_kept_options){
            .dialect = database->tx->dialect,
            .table = options->failed_table,
            .failed_queue = options->failed_queue,
            .retry_queue = consumer->retry_queue,
            .transport = options->name,
            .names = consumer->extras.names,
            .time_zone = consumer->extras.failed_time_zone,
            .failed_readable = consumer->extras.failed_readable,
        },
        &consumer->kept, error);
}

// A mistake that was there from the start ends the run, so that the person who
// started it sees it; what breaks later is waited out.
static bool
gives_up(struct skr_consumer *consumer, const struct skr_error *error)
{
    const struct skr_consumer_extras *extras = &consumer->extras;
    if (consumer->was_ready)
        return false;
    skr_trouble_remind(&consumer->trouble, skr_clock_ms());
    if (extras->gives_up == NULL)
        return error->code == SKR_MISSING ||
               (error->code == SKR_INVALID && error->remedy == SKR_GIVE_UP);
    return (skr_error_is_lasting(error) || consumer->is_refused) &&
           extras->gives_up(extras->gives_up_user);
}

static enum skr_code
loop(struct skr_consumer *consumer, struct skr_error *error)
{
    for (;;) {
        struct skr_error problem = {0};
        skr_beat_turn();
        skr_unhandled_tell_count(consumer, false);
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
        if (gives_up(consumer, &problem)) {
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

// A stop that comes in between is still told by the first of both.
static void
forget_stop(struct skr_consumer *consumer)
{
    uint64_t stops;
    atomic_store(&consumer->is_stopped, false);
    ssize_t size = read(consumer->stop_fd, &stops, sizeof(stops));
    (void)size;
}

static void
say_stopped(struct skr_consumer *consumer)
{
    const struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_unhandled_tell_count(consumer, true);
    skr_log(&consumer->log, SKR_LOG_INFO, "consumer.stopped",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_NUMBER("handled", counts.handled),
            SKR_LOG_NUMBER("duplicates", counts.duplicates),
            SKR_LOG_NUMBER("retried", counts.retried),
            SKR_LOG_NUMBER("failed", counts.failed),
            SKR_LOG_NUMBER("ignored", counts.ignored));
}

enum skr_code
skr_consumer_run(struct skr_consumer *consumer, struct skr_error *error)
{
    enum skr_code code = make_kept(consumer, error);
    if (code != SKR_OK)
        return code;
    start_budget(consumer);
    consumer->was_ready = false;
    consumer->keep_again_ms = 0;
    consumer->retry_again_ms = 0;
    skr_beat_begin(&consumer->beat);
    code = loop(consumer, error);
    skr_handlers_rest(&consumer->handlers);
    // All are let go, so that a consumer that does not run holds nothing.
    skr_consumer_drop_brokers(consumer);
    skr_consumer_drop_database(consumer);
    skr_consumer_drop_failed(consumer);
    skr_beat_end();
    say_stopped(consumer);
    if (code == SKR_STOPPED)
        forget_stop(consumer);
    return code;
}
