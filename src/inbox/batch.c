// SPDX-License-Identifier: MIT
// Jobs that came together share a transaction. When anything goes wrong in it,
// all of it is rolled back and each job is done again by itself, so that a
// verdict touches its own message and no other.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "inbox/inside.h"

#include <stdlib.h>

enum {
    MOST_CONFLICTS = 5,
    MOST_LOSSES = 3,
    FIRST_PAUSE_MS = 10,
    // What the failed table does not take comes again after this.
    PUT_OFF_MS = 30000,
    // After a failure to keep a message, a pause so many times as long: those
    // that can be handled do not wait for a database that does not answer.
    KEEP_PAUSE = 10,
};

enum blame {
    BLAME_MESSAGE,     // its handler's verdict, or what it did
    BLAME_CONFLICT,    // another transaction was in the way
    BLAME_CONNECTION,  // lost under way: what was committed is unknown
    BLAME_HANDLER,     // its statements, whatever the message
    BLAME_DATABASE,    // nothing can be done on it now
};

// A mistake in the statements, or in the tables that they are about, meets
// every message alike: none of them is to blame.
static bool
is_sql_to_blame(struct skr_consumer *consumer, const struct job *job,
                const struct skr_error *reason)
{
    if (job->handler->sql == NULL)
        return false;
    return reason->remedy == SKR_TRY_AGAIN || reason->code == SKR_MISSING ||
           skr_sql_handler_is_broken(job->handler->sql, skr_db_tx(consumer->db),
                                     reason);
}

static enum blame
find_blame(struct skr_consumer *consumer, const struct job *job,
           const struct attempt *attempt)
{
    const struct skr_error *reason = &attempt->reason;
    if (attempt->step == STEP_HANDLE && attempt->verdict == SKR_REJECT)
        return BLAME_MESSAGE;
    if (reason->remedy == SKR_RECONNECT)
        return BLAME_CONNECTION;
    if (attempt->step == STEP_BEGIN)
        return BLAME_DATABASE;
    if (reason->code == SKR_CONFLICT)
        return BLAME_CONFLICT;
    switch (attempt->step) {
    case STEP_BEGIN:
    case STEP_ADMIT: return BLAME_DATABASE;
    case STEP_HANDLE:
        return is_sql_to_blame(consumer, job, reason) ? BLAME_HANDLER
                                                      : BLAME_MESSAGE;
    case STEP_COMMIT:
        return reason->remedy == SKR_TRY_AGAIN ? BLAME_DATABASE : BLAME_MESSAGE;
    }
    abort();
}

static uint32_t
next_random(struct skr_consumer *consumer)
{
    consumer->random = consumer->random * 1664525u + 1013904223u;
    return consumer->random;
}

void
skr_job_decide(struct skr_consumer *consumer, struct job *job,
               const struct attempt *attempt)
{
    job->reason = attempt->reason;
    char id[SKR_ID_TEXT_SIZE];
    bool rejected =
        attempt->step == STEP_HANDLE && attempt->verdict == SKR_REJECT;
    if (rejected || job->retry_count >= consumer->retry.max_retries) {
        job->state = JOB_FAILED;
        skr_job_tell_hooks(consumer, job);
        return;
    }
    job->state = JOB_RETRY;
    skr_job_hold_lane(consumer, job);
    skr_job_tell_hooks(consumer, job);
    job->incoming->delay_ms = skr_retry_delay_ms(
        &consumer->retry, job->retry_count + 1, next_random(consumer));
    skr_log(&consumer->log, SKR_LOG_INFO, "consumer.retry",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_TEXT("message", job->delivery.message.name),
            SKR_LOG_TEXT("id", skr_job_format_id(job, id)),
            SKR_LOG_NUMBER("retry", job->retry_count + 1),
            SKR_LOG_NUMBER("delay_ms", job->incoming->delay_ms),
            SKR_LOG_TEXT("error", job->reason.text));
}

static enum skr_code
report(const struct attempt *attempt, struct skr_error *error)
{
    if (error != NULL)
        *error = attempt->reason;
    return attempt->reason.code;
}

static enum skr_code
handle_alone(struct skr_consumer *consumer, struct job *job,
             struct skr_error *error)
{
    struct attempt attempt;
    unsigned conflicts = 0, losses = 0;
    for (;;) {
        enum skr_code code = skr_consumer_connect_database(consumer, error);
        if (code != SKR_OK)
            return code;
        skr_jobs_attempt(consumer, job, 1, &attempt);
        if (attempt.committed)
            return SKR_OK;
        bool is_settled = false;
        switch (find_blame(consumer, job, &attempt)) {
        case BLAME_MESSAGE: is_settled = true; break;
        case BLAME_CONFLICT:
            is_settled = ++conflicts > MOST_CONFLICTS;
            // Nothing that its handler does has been in another session's way
            // yet.
            if (is_settled && attempt.step == STEP_ADMIT)
                return report(&attempt, error);
            break;
        case BLAME_CONNECTION:
            skr_consumer_drop_database(consumer);
            is_settled = ++losses > MOST_LOSSES;
            // Only a handler can lose a connection by what it does.
            if (is_settled && attempt.step != STEP_HANDLE)
                return report(&attempt, error);
            break;
        case BLAME_HANDLER:
            skr_error_prefix(&attempt.reason, "the handler of %.100s",
                             job->handler->message_name);
            skr_handler_pause(consumer, job->handler, &attempt.reason);
            skr_job_wait(consumer, job);
            return SKR_OK;
        case BLAME_DATABASE: return report(&attempt, error);
        }
        if (is_settled) {
            skr_job_decide(consumer, job, &attempt);
            return SKR_OK;
        }
        // A stop leaves the job ready: it will be given back.
        if (skr_clock_sleep(consumer->stop_fd,
                            (int64_t)FIRST_PAUSE_MS << (conflicts + losses)))
            return SKR_OK;
    }
}

static size_t
count_ready(const struct job *jobs, size_t count)
{
    size_t ready = 0;
    for (size_t i = 0; i < count; i++)
        ready += jobs[i].state == JOB_READY;
    return ready;
}

static enum skr_code
handle_jobs(struct skr_consumer *consumer, struct job *jobs, size_t count,
            struct skr_error *error)
{
    if (count_ready(jobs, count) > 1) {
        struct attempt attempt;
        enum skr_code code = skr_consumer_connect_database(consumer, error);
        if (code != SKR_OK)
            return code;
        skr_jobs_attempt(consumer, jobs, count, &attempt);
        if (attempt.committed)
            return SKR_OK;
        if (attempt.reason.remedy == SKR_RECONNECT)
            skr_consumer_drop_database(consumer);
        else if (attempt.step == STEP_BEGIN)
            return report(&attempt, error);
        skr_log(&consumer->log, SKR_LOG_DEBUG, "consumer.replay",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_NUMBER("deliveries", count),
                SKR_LOG_TEXT("error", attempt.reason.text));
    }
    for (size_t i = 0; i < count; i++) {
        skr_jobs_set_aside(consumer, &jobs[i], 1);
        if (jobs[i].state != JOB_READY)
            continue;
        // What has run already is recorded, or it would run again.
        if (!jobs[i].was_run && (skr_consumer_is_stopping(consumer) ||
                                 skr_consumer_is_late(consumer)))
            continue;
        enum skr_code code = handle_alone(consumer, &jobs[i], error);
        if (code != SKR_OK) {
            consumer->alone_left = count;
            return code;
        }
    }
    return SKR_OK;
}

// Handlers that run outside go before the transaction that records them, a few
// at a time: the longer a record waits, the more a crash repeats.
static enum skr_code
handle_all(struct skr_consumer *consumer, struct job *jobs, size_t count,
           struct skr_error *error)
{
    bool has_more = false;
    do {
        struct skr_error trouble = {0};
        enum skr_code outside =
            skr_jobs_run_outside(consumer, jobs, count, &has_more, &trouble);
        enum skr_code code = handle_jobs(consumer, jobs, count, error);
        if (code != SKR_OK)
            return code;
        if (outside != SKR_OK) {
            *error = trouble;
            return outside;
        }
    } while (has_more && !skr_consumer_is_stopping(consumer) &&
             !skr_consumer_is_late(consumer));
    return SKR_OK;
}

// What the broker is not to deliver again by itself has to be stored before it
// is acknowledged.
static bool
needs_row(const struct skr_consumer *consumer, const struct job *job)
{
    if (job->state != JOB_RETRY || consumer->source == NULL)
        return job->state == JOB_FAILED;
    return !consumer->source->delays || job->is_excused ||
           (job->is_undelayed && skr_consumer_has_retries(consumer));
}

// There is a limit to what is held for a handler in trouble, and to how long.
// What a queue that counts got back before, on a stop perhaps, is not held.
static void
unload(const struct skr_consumer *consumer, struct job *jobs, size_t count)
{
    const struct skr_broker *source = consumer->source;
    if (source == NULL || !skr_consumer_has_retries(consumer))
        return;
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].state != JOB_WAITING ||
            !skr_handler_is_paused(jobs[i].handler) ||
            (!source->is_laden && jobs[i].incoming->delivery_count == 0))
            continue;
        jobs[i].state = JOB_RETRY;
        jobs[i].is_excused = true;
        jobs[i].reason = jobs[i].handler->reason;
        jobs[i].incoming->delay_ms = PUT_OFF_MS;
    }
}

// What the table does not take stays as it is: it will be put off, and never
// dropped.
static void
keep_rows(struct skr_consumer *consumer, struct job *jobs, size_t count)
{
    bool is_unkept = false;
    for (size_t i = 0; i < count; i++) {
        int64_t start_ms = skr_clock_ms();
        if (!needs_row(consumer, &jobs[i]) ||
            start_ms < consumer->keep_again_ms)
            continue;
        struct skr_error problem = {0};
        if (skr_job_keep(consumer, &jobs[i], &problem) == SKR_OK) {
            skr_backoff_reset(&consumer->put_off);
            skr_trouble_end(&consumer->unkept, &consumer->log,
                            "consumer.keep_recovered", consumer->options.name);
            continue;
        }
        skr_trouble_report(&consumer->unkept, &consumer->log,
                           "consumer.keep_trouble", consumer->options.name,
                           &problem);
        int64_t pause_ms = (skr_clock_ms() - start_ms) * KEEP_PAUSE;
        consumer->keep_again_ms =
            start_ms + (pause_ms < PUT_OFF_MS ? pause_ms : PUT_OFF_MS);
        is_unkept = true;
    }
    if (is_unkept)
        skr_backoff_next(&consumer->put_off);
}

// What has no row goes out of the way of others. The count that a broker raises
// by it does no harm: the message is not to be handled again.
static void
put_off(const struct skr_consumer *consumer, struct job *job)
{
    struct skr_incoming *incoming = job->incoming;
    incoming->settlement = SKR_SETTLE_HOLD;
    incoming->delay_ms = consumer->put_off.pause_ms;
    if (!consumer->source->delays || job->is_excused || job->is_undelayed)
        return;
    incoming->delay_ms = PUT_OFF_MS;
    incoming->settlement = SKR_SETTLE_RETRY;
    incoming->reason = job->reason;
    // Of one that is spent the row tells why already.
    if (job->is_spent)
        skr_error_clear(&incoming->reason);
}

// Until its handler is tried again; or at once, after a pause of the consumer.
static uint32_t
find_wait_ms(const struct job *job)
{
    if (!skr_handler_is_paused(job->handler))
        return 0;
    int64_t wait_ms = job->handler->again_ms - skr_clock_ms();
    if (wait_ms > PUT_OFF_MS)
        wait_ms = PUT_OFF_MS;
    return wait_ms > 0 ? (uint32_t)wait_ms : 0;
}

static void
set_settlement(const struct skr_consumer *consumer, struct job *job)
{
    struct skr_incoming *incoming = job->incoming;
    // A queue that counts how often it got a message back drops it in the end.
    // This one was given back once.
    incoming->settlement =
        incoming->delivery_count > 0 ? SKR_SETTLE_HOLD : SKR_SETTLE_RELEASE;
    incoming->delay_ms = job->state == JOB_RETRY ? incoming->delay_ms : 0;
    if (consumer->source == NULL)
        return;
    if (needs_row(consumer, job)) {
        put_off(consumer, job);
        return;
    }
    switch (job->state) {
    case JOB_OVER:
    case JOB_MOVED: incoming->settlement = SKR_SETTLE_ACK; return;
    case JOB_RETRY:
        // Where no row can wait for it either, it waits in hand.
        incoming->settlement =
            job->is_undelayed ? SKR_SETTLE_HOLD : SKR_SETTLE_RETRY;
        incoming->reason = job->reason;
        return;
    case JOB_WAITING:
        incoming->settlement = SKR_SETTLE_HOLD;
        incoming->delay_ms = find_wait_ms(job);
        return;
    case JOB_FAILED:
    case JOB_READY:
    case JOB_HELD:
    case JOB_ADMITTED:
    case JOB_SKIPPED:
    case JOB_RELEASED: return;
    }
}

static void
finish(struct skr_consumer *consumer, struct job *job)
{
    bool is_retry = (job->state == JOB_MOVED && !job->is_excused) ||
                    (job->state == JOB_RETRY &&
                     job->incoming->settlement == SKR_SETTLE_RETRY);
    skr_job_forget(consumer, job);
    // A retry that came to nothing is the next owner's business.
    if (job->incoming->was_lost)
        return;
    if (is_retry) {
        atomic_fetch_add(&consumer->retried, 1);
        atomic_fetch_add(&consumer->budget->failed, 1);
    }
    if (job->is_unhandled && job->state == JOB_OVER &&
        consumer->extras.unhandled == SKR_UNHANDLED_IGNORE) {
        atomic_fetch_add(&consumer->ignored, 1);
        skr_job_note_unhandled(consumer, job);
    }
    if (is_retry || job->state == JOB_OVER) {
        consumer->taken++;
        atomic_fetch_add(&consumer->budget->taken, 1);
    }
}

// The broker will deliver it again, although no handler is to blame.
static void
give_up(struct skr_consumer *consumer, struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].incoming->settlement == SKR_SETTLE_RELEASE ||
            jobs[i].incoming->settlement == SKR_SETTLE_HOLD)
            skr_job_forget(consumer, &jobs[i]);
}

// The broker is told until it has understood: what is not settled comes again
// with its tries raised, although no handler is to blame.
static enum skr_code
tell(struct skr_consumer *consumer, struct job *jobs, size_t count,
     struct skr_error *error)
{
    for (;;) {
        skr_beat_wait();
        enum skr_code code = consumer->source->ops->settle(
            consumer->source, jobs[0].incoming, count, error);
        skr_beat_resume();
        if (code == SKR_OK)
            return SKR_OK;
        if (error->remedy != SKR_TRY_AGAIN ||
            skr_consumer_is_ending(consumer)) {
            skr_consumer_drop_source(consumer);
            give_up(consumer, jobs, count);
            return code;
        }
        skr_consumer_wait_out(consumer, error);
    }
}

// Given back it would come again at once, uncounted, until a queue that counts
// for itself drops it.
static enum skr_code
settle_refused(struct skr_consumer *consumer, struct job *job,
               struct skr_error *error)
{
    job->is_undelayed = true;
    keep_rows(consumer, job, 1);
    set_settlement(consumer, job);
    return tell(consumer, job, 1, error);
}

static enum skr_code
settle(struct skr_consumer *consumer, struct job *jobs, size_t count,
       struct skr_error *error)
{
    for (size_t i = 0; i < count; i++)
        set_settlement(consumer, &jobs[i]);
    if (count == 0 || consumer->source == NULL) {
        give_up(consumer, jobs, count);
        return SKR_OK;
    }
    enum skr_code code = tell(consumer, jobs, count, error);
    if (code != SKR_OK)
        return code;
    skr_failpoint("consumer.acked");
    for (size_t i = 0; i < count; i++) {
        bool was_refused = jobs[i].incoming->was_refused;
        // Without its connection the rest comes again.
        if (was_refused && code == SKR_OK)
            code = settle_refused(consumer, &jobs[i], error);
        if (!was_refused || code == SKR_OK)
            finish(consumer, &jobs[i]);
    }
    return code;
}

enum skr_code
skr_jobs_handle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error)
{
    struct skr_error problem = {0}, unsettled = {0};
    enum skr_code code = handle_all(consumer, jobs, count, &problem);
    for (size_t i = 0; code != SKR_OK && i < count; i++)
        if (jobs[i].state == JOB_READY || jobs[i].state == JOB_HELD)
            skr_job_wait(consumer, &jobs[i]);
    unload(consumer, jobs, count);
    keep_rows(consumer, jobs, count);
    enum skr_code settled = settle(consumer, jobs, count, &unsettled);
    if (code == SKR_OK) {
        code = settled;
        problem = unsettled;
    }
    if (code != SKR_OK)
        *error = problem;
    return code;
}

enum skr_code
skr_jobs_leave(struct skr_consumer *consumer, struct job *jobs, size_t count,
               enum job_state state, struct skr_error *error)
{
    for (size_t i = 0; i < count; i++)
        jobs[i].state = state;
    return settle(consumer, jobs, count, error);
}
