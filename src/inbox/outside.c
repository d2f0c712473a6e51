// SPDX-License-Identifier: MIT
// Handlers that want no transaction: they run first, and what they accepted is
// recorded afterwards, together with other messages.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "inbox/inside.h"

#include <string.h>

// Handlers run for so long before what they accepted is recorded.
enum { ROUND_MS = 100 };

enum skr_code
skr_consumer_handle_without_tx(struct skr_consumer *consumer,
                               const char *message_name,
                               skr_handler_fn *handler, void *user,
                               struct skr_error *error)
{
    return skr_handlers_add(
        &consumer->handlers, message_name,
        &(struct handler){.run = handler, .user = user, .is_outside = true},
        error);
}

// The first of two equal messages that came together was accepted just now.
static bool
was_run_before(const struct job *jobs, const struct job *job)
{
    for (const struct job *other = jobs; other < job; other++)
        if (other->was_run && other->has_id &&
            memcmp(&other->delivery.message.id, &job->delivery.message.id,
                   sizeof(struct skr_id)) == 0)
            return true;
    return false;
}

static enum skr_code
is_known(struct skr_consumer *consumer, const struct job *jobs,
         const struct job *job, bool *known, struct skr_error *error)
{
    *known = false;
    if (!job->has_id)
        return SKR_OK;
    *known = was_run_before(jobs, job);
    if (*known)
        return SKR_OK;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    if (code == SKR_OK)
        code = skr_deduplication_find(consumer->deduplication,
                                      skr_db_tx(consumer->db),
                                      job->delivery.message.id, known, error);
    return code;
}

static enum skr_code
run(struct skr_consumer *consumer, struct job *job, struct skr_error *error)
{
    struct attempt attempt = {.step = STEP_HANDLE};
    struct skr_error *reason = &attempt.reason;
    bool is_our_word = false;
    attempt.verdict =
        skr_job_run(consumer, job, (struct skr_tx){0}, &is_our_word, reason);
    if (attempt.verdict == SKR_ACCEPT) {
        job->was_run = true;
        skr_failpoint("consumer.ran_outside");
        return SKR_OK;
    }
    // A process that cannot be had at all is not the message's doing.
    if (is_our_word && attempt.verdict == SKR_RETRY &&
        reason->remedy == SKR_TRY_AGAIN) {
        if (reason->code == SKR_STOPPED) {
            *error = *reason;
            return reason->code;
        }
        skr_handler_pause(consumer, job->handler, reason);
        skr_job_wait(consumer, job);
        return SKR_OK;
    }
    if (reason->text[0] == '\0')
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP,
                 "the handler of %.100s said %s", job->handler->message_name,
                 attempt.verdict == SKR_REJECT ? "reject" : "retry");
    reason->code = SKR_REFUSED;
    reason->remedy = SKR_GIVE_UP;
    reason->native[0] = '\0';
    skr_job_decide(consumer, job, &attempt);
    return SKR_OK;
}

static bool
wants_to_run(const struct job *job)
{
    return job->state == JOB_READY && job->handler->is_outside &&
           !job->was_run && !job->is_spent;
}

// Whether one before it in its lane has to be handled first: the transaction
// that does so comes later.
static bool
is_behind(const struct job *jobs, const struct job *job)
{
    bool runs = wants_to_run(job);
    if (job->incoming->lane == 0 || job->was_run)
        return false;
    for (const struct job *other = jobs; other < job; other++)
        if (other->incoming->lane == job->incoming->lane &&
            (other->state == JOB_HELD || (runs && other->state == JOB_READY &&
                                          !other->handler->is_outside)))
            return true;
    return false;
}

enum skr_code
skr_jobs_run_outside(struct skr_consumer *consumer, struct job *jobs,
                     size_t count, bool *has_more, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    int64_t end_ms = skr_clock_ms() + ROUND_MS;
    bool has_run = false, has_behind = false;
    *has_more = false;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        skr_jobs_set_aside(consumer, &jobs[i], 1);
        if (jobs[i].state == JOB_HELD)
            jobs[i].state = JOB_READY;
        if (jobs[i].state == JOB_READY && is_behind(jobs, &jobs[i])) {
            jobs[i].state = JOB_HELD;
            has_behind = true;
        }
        if (!wants_to_run(&jobs[i]))
            continue;
        if (code == SKR_OK && !*has_more)
            *has_more = (has_run && skr_clock_ms() >= end_ms) ||
                        skr_consumer_is_stopping(consumer);
        if (code == SKR_OK && !*has_more)
            code = is_known(consumer, jobs, &jobs[i], &known, error);
        if (code == SKR_OK && !*has_more && !known) {
            code = run(consumer, &jobs[i], error);
            has_run = true;
        }
        if (code != SKR_OK || *has_more)
            jobs[i].state = JOB_HELD;
    }
    *has_more = *has_more || has_behind;
    if (code != SKR_OK && error->remedy == SKR_RECONNECT)
        skr_consumer_drop_database(consumer);
    return code;
}
