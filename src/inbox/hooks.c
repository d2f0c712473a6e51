// SPDX-License-Identifier: MIT
// What is called around a handler, in the order of registration.

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "inbox/inside.h"

enum skr_code
skr_consumer_add_hook(struct skr_consumer *consumer,
                      const struct skr_hook *hook, struct skr_error *error)
{
    struct hooks *hooks = &consumer->hooks;
    if (!skr_vec_insert(&hooks->items, &hooks->count, &hooks->capacity,
                        hooks->count, hook, sizeof(*hook)))
        return skr_fail_memory(error);
    return SKR_OK;
}

static enum skr_verdict
ask(const struct skr_hook *hook, skr_handler_fn *function,
    const struct job *job, struct skr_tx tx, struct skr_error *reason)
{
    if (function == NULL)
        return SKR_ACCEPT;
    skr_error_clear(reason);
    enum skr_verdict verdict = function(&job->delivery, tx, hook->user, reason);
    if (verdict != SKR_ACCEPT && reason->text[0] == '\0')
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP,
                 "a hook %s the handler of %.100s said %s",
                 function == hook->before ? "before" : "after",
                 job->handler->message_name,
                 verdict == SKR_REJECT ? "reject" : "retry");
    return verdict;
}

static enum skr_verdict
run_job(struct skr_consumer *consumer, const struct job *job, struct skr_tx tx,
        bool *is_our_word, struct skr_error *reason)
{
    const struct hooks *hooks = &consumer->hooks;
    struct handler *handler = job->handler;
    enum skr_verdict verdict = SKR_ACCEPT;
    *is_our_word = false;
    for (size_t i = 0; i < hooks->count && verdict == SKR_ACCEPT; i++)
        verdict =
            ask(&hooks->items[i], hooks->items[i].before, job, tx, reason);
    if (verdict != SKR_ACCEPT)
        return verdict;
    skr_error_clear(reason);
    int64_t began_us = skr_clock_us();
    verdict = handler->run(&job->delivery, tx, handler->user, reason);
    skr_histogram_add(&consumer->handling, skr_clock_us() - began_us);
    if (verdict == SKR_ACCEPT)
        skr_handler_resume(consumer, handler);
    // Of a function's word, which may be anything, only the text counts.
    *is_our_word = verdict != SKR_ACCEPT &&
                   (handler->sql != NULL || handler->child != NULL);
    for (size_t i = 0; i < hooks->count && verdict == SKR_ACCEPT; i++)
        verdict = ask(&hooks->items[i], hooks->items[i].after, job, tx, reason);
    return verdict;
}

enum skr_verdict
skr_job_run(struct skr_consumer *consumer, const struct job *job,
            struct skr_tx tx, bool *is_our_word, struct skr_error *reason)
{
    // However long a handler takes, that is its own business.
    skr_beat_wait();
    enum skr_verdict verdict = run_job(consumer, job, tx, is_our_word, reason);
    skr_beat_resume();
    return verdict;
}

void
skr_job_tell_hooks(const struct skr_consumer *consumer, const struct job *job)
{
    enum skr_verdict verdict = job->state == JOB_RETRY ? SKR_RETRY : SKR_REJECT;
    for (size_t i = 0; i < consumer->hooks.count; i++) {
        const struct skr_hook *hook = &consumer->hooks.items[i];
        if (hook->on_error != NULL)
            hook->on_error(&job->delivery, verdict, &job->reason, hook->user);
    }
}
