// SPDX-License-Identifier: MIT
// A handler whose table is missing, or whose process does not start, fails with
// every message. Its messages wait for it, and are none the worse; those of
// other handlers go on. After a pause one of them finds out whether it is over.

#include "base/clock.h"
#include "base/error.h"
#include "inbox/inside.h"

void
skr_handler_pause(struct skr_consumer *consumer, struct handler *handler,
                  const struct skr_error *reason)
{
    handler->reason = *reason;
    skr_trouble_remind(&handler->trouble, skr_clock_ms());
    skr_trouble_report(&handler->trouble, &consumer->log, "consumer.trouble",
                       consumer->options.name, reason);
    handler->again_ms = skr_clock_ms() + skr_backoff_next(&handler->backoff);
}

// That the consumer is well again is said when nothing else is in trouble.
void
skr_handler_resume(struct skr_consumer *consumer, struct handler *handler)
{
    if (handler->backoff.pause_ms == 0)
        return;
    skr_backoff_reset(&handler->backoff);
    if (consumer->trouble.text[0] == '\0')
        consumer->trouble = handler->trouble;
    handler->trouble = (struct skr_trouble){0};
}

bool
skr_handler_is_paused(const struct handler *handler)
{
    return handler != NULL && handler->backoff.pause_ms > 0 &&
           skr_clock_ms() < handler->again_ms;
}

// Those behind it in its lane would pass it: they go back, and come after it.
// What has run already is recorded, or it would run again.
void
skr_job_hold_lane(struct skr_consumer *consumer, const struct job *job)
{
    if (job->incoming->lane == 0)
        return;
    for (size_t i = (size_t)(job - consumer->jobs) + 1; i < consumer->job_count;
         i++) {
        struct job *other = &consumer->jobs[i];
        if (other->incoming->lane == job->incoming->lane && !other->was_run &&
            (other->state == JOB_READY || other->state == JOB_HELD))
            other->state = JOB_RELEASED;
    }
}

void
skr_job_wait(struct skr_consumer *consumer, struct job *job)
{
    job->state = JOB_WAITING;
    skr_job_hold_lane(consumer, job);
}

// What needs no handler any more needs not wait for it.
void
skr_jobs_set_aside(struct skr_consumer *consumer, struct job *jobs,
                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((jobs[i].state == JOB_READY || jobs[i].state == JOB_HELD) &&
            !jobs[i].was_run && !jobs[i].is_spent &&
            skr_handler_is_paused(jobs[i].handler))
            skr_job_wait(consumer, &jobs[i]);
}
