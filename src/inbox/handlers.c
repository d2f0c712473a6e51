// SPDX-License-Identifier: MIT
// The table of a consumer's handlers, the call of one with the hooks around it,
// the back-off of those that are down, and messages without a handler.

#include "inbox/handlers.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "inbox/child.h"
#include "inbox/consumer_internals.h"
#include "inbox/settle.h"
#include "inbox/sql_handler.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MS = 60 * 1000 };

struct handler *
skr_handlers_find(const struct handlers *handlers, const char *name,
                  const char *class_name)
{
    struct handler *found = NULL;
    size_t best = 0;
    for (size_t i = 0; i < handlers->count; i++) {
        size_t rank =
            skr_name_rank(handlers->items[i].message_name, name, class_name);
        if (rank > best) {
            best = rank;
            found = &handlers->items[i];
        }
    }
    return found;
}

enum skr_code
skr_handlers_add(struct handlers *handlers, const char *message_name,
                 const struct handler *handler, struct skr_error *error)
{
    if (message_name == NULL || message_name[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a handler needs the name of a message");
    if (handler->run == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the handler of %s is no function", message_name);
    for (size_t i = 0; i < handlers->count; i++)
        if (strcmp(handlers->items[i].message_name, message_name) == 0)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "%s has a handler already", message_name);
    struct handler added = *handler;
    added.backoff = (struct skr_backoff){.first_ms = 100, .longest_ms = 30000};
    added.message_name = strdup(message_name);
    if (added.message_name == NULL ||
        !skr_vec_insert(&handlers->items, &handlers->count, &handlers->capacity,
                        handlers->count, &added, sizeof(added))) {
        free(added.message_name);
        return skr_fail_memory(error);
    }
    return SKR_OK;
}

void
skr_handlers_rest(struct handlers *handlers)
{
    for (size_t i = 0; i < handlers->count; i++)
        skr_child_end(handlers->items[i].child);
}

void
skr_handlers_fini(struct handlers *handlers)
{
    for (size_t i = 0; i < handlers->count; i++) {
        free(handlers->items[i].message_name);
        skr_sql_handler_free(handlers->items[i].sql);
        skr_child_free(handlers->items[i].child);
        skr_store_free(handlers->items[i].queue);
        if (handlers->items[i].library != NULL)
            dlclose(handlers->items[i].library);
    }
    free(handlers->items);
}

uint32_t
skr_handler_wait_ms(const struct handler *handler)
{
    if (handler == NULL || handler->backoff.pause_ms == 0)
        return 0;
    int64_t wait_ms = handler->again_ms - skr_clock_ms();
    if (wait_ms > UINT32_MAX)
        return UINT32_MAX;
    return wait_ms > 0 ? (uint32_t)wait_ms : 0;
}

static void
wait_for_handler(struct skr_consumer *consumer, struct job *job)
{
    job->reason = job->handler->reason;
    skr_job_end(consumer, job,
                job->handler == &consumer->unhandled.handler
                    ? SKR_END_UNHANDLED
                    : SKR_END_HANDLER_DOWN);
}

void
skr_handler_pause(struct skr_consumer *consumer, struct handler *handler,
                  enum skr_trouble_kind kind, const struct skr_error *reason,
                  uint32_t pause_ms)
{
    handler->reason = *reason;
    skr_trouble_report(&handler->trouble, &consumer->log, kind,
                       "consumer.trouble", consumer->options.name, reason);
    handler->again_ms = skr_clock_ms() + pause_ms;
}

void
skr_handler_set_down(struct skr_consumer *consumer, struct job *job,
                     const struct skr_error *reason)
{
    skr_handler_pause(consumer, job->handler, SKR_TROUBLE_CONSUMER, reason,
                      skr_backoff_next(&job->handler->backoff));
    wait_for_handler(consumer, job);
}

// What needs no handler any more does not wait for it.
void
skr_jobs_wait_for_handlers(struct skr_consumer *consumer, struct job *jobs,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((jobs[i].phase == JOB_PENDING || jobs[i].phase == JOB_BLOCKED) &&
            !jobs[i].was_run && jobs[i].exhaustion == SKR_RETRIES_LEFT &&
            skr_handler_wait_ms(jobs[i].handler) > 0)
            wait_for_handler(consumer, &jobs[i]);
}

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

// That the consumer is well again is logged when nothing else is in trouble.
static void
set_up(struct skr_consumer *consumer, struct handler *handler)
{
    struct skr_trouble *trouble = &consumer->connection.trouble;
    handler->failures.count = 0;
    if (handler->backoff.pause_ms == 0)
        return;
    skr_backoff_reset(&handler->backoff);
    if (trouble->text[0] == '\0')
        *trouble = handler->trouble;
    handler->trouble = (struct skr_trouble){0};
}

static enum skr_verdict
call_hook(const struct skr_hook *hook, skr_handler_fn *function,
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
call_handler(struct skr_consumer *consumer, const struct job *job,
             struct skr_tx tx, struct skr_error *reason)
{
    struct handler *handler = job->handler;
    skr_error_clear(reason);
    int64_t began_us = skr_clock_us();
    enum skr_verdict verdict =
        handler->run(&job->delivery, tx, handler->user, reason);
    skr_histogram_add(&consumer->tally.handling, skr_clock_us() - began_us);
    if (verdict == SKR_ACCEPT)
        set_up(consumer, handler);
    return verdict;
}

// What a driver says of statements, and the parent of a process that there is
// none, is believed. Of any other word the text alone counts.
static void
judge_reason(const struct job *job, struct attempt *attempt)
{
    struct skr_error *reason = &attempt->reason;
    if (attempt->verdict == SKR_ACCEPT || attempt->speaker == SKR_SPEAKER_SQL ||
        (attempt->speaker == SKR_SPEAKER_PROCESS &&
         reason->remedy == SKR_TRY_AGAIN))
        return;
    if (reason->text[0] == '\0')
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP,
                 "the handler of %.100s said %s", job->handler->message_name,
                 attempt->verdict == SKR_REJECT ? "reject" : "retry");
    reason->code = SKR_REFUSED;
    reason->remedy = SKR_GIVE_UP;
    reason->native[0] = '\0';
}

void
skr_job_invoke(struct skr_consumer *consumer, const struct job *job,
               struct skr_tx tx, struct attempt *attempt)
{
    const struct hooks *hooks = &consumer->hooks;
    struct skr_error *reason = &attempt->reason;
    enum skr_verdict verdict = SKR_ACCEPT;
    attempt->speaker = SKR_SPEAKER_FUNCTION;
    // However long a handler takes, that is its own business.
    skr_beat_wait();
    for (size_t i = 0; i < hooks->count && verdict == SKR_ACCEPT; i++)
        verdict = call_hook(&hooks->items[i], hooks->items[i].before, job, tx,
                            reason);
    if (verdict == SKR_ACCEPT) {
        verdict = call_handler(consumer, job, tx, reason);
        if (verdict != SKR_ACCEPT && job->handler->sql != NULL)
            attempt->speaker = SKR_SPEAKER_SQL;
        else if (verdict != SKR_ACCEPT && job->handler->child != NULL)
            attempt->speaker = SKR_SPEAKER_PROCESS;
    }
    for (size_t i = 0; i < hooks->count && verdict == SKR_ACCEPT; i++)
        verdict =
            call_hook(&hooks->items[i], hooks->items[i].after, job, tx, reason);
    skr_beat_resume();
    attempt->verdict = verdict;
    judge_reason(job, attempt);
}

void
skr_job_tell_hooks(const struct skr_consumer *consumer, const struct job *job)
{
    enum skr_verdict verdict =
        job->decision.disposition == SKR_DEAD_LETTER ? SKR_REJECT : SKR_RETRY;
    for (size_t i = 0; i < consumer->hooks.count; i++) {
        const struct skr_hook *hook = &consumer->hooks.items[i];
        if (hook->on_error != NULL)
            hook->on_error(&job->delivery, verdict, &job->reason, hook->user);
    }
}

static const char *const unhandled_words[] = {
    [SKR_UNHANDLED_FAIL] = "fail",
    [SKR_UNHANDLED_IGNORE] = "ignore",
    [SKR_UNHANDLED_WAIT] = "wait",
};

// The log's event of one message, in full.
static void
log_one(const struct skr_consumer *consumer, const struct job *job,
        enum skr_log_level level)
{
    if (consumer->policy.unhandled == SKR_UNHANDLED_FAIL) {
        skr_job_log_failed(consumer, job, level);
        return;
    }
    char id[SKR_ID_TEXT_SIZE];
    skr_log(
        &consumer->log, level, "consumer.unhandled",
        SKR_LOG_TEXT("name", consumer->options.name),
        SKR_LOG_TEXT("message", job->delivery.message.name),
        SKR_LOG_TEXT("id", skr_job_format_id(job, id)),
        SKR_LOG_TEXT("unhandled", unhandled_words[consumer->policy.unhandled]));
}

void
skr_unhandled_log_count(struct skr_consumer *consumer, bool is_last)
{
    struct unhandled *unhandled = &consumer->unhandled;
    if (unhandled->unlogged == 0 ||
        (!is_last && skr_clock_ms() < unhandled->log_again_ms))
        return;
    skr_log(
        &consumer->log, SKR_LOG_WARNING, "consumer.unhandled_more",
        SKR_LOG_TEXT("name", consumer->options.name),
        SKR_LOG_NUMBER("deliveries", unhandled->unlogged),
        SKR_LOG_TEXT("unhandled", unhandled_words[consumer->policy.unhandled]));
    unhandled->unlogged = 0;
    unhandled->log_again_ms = skr_clock_ms() + LOG_MS;
}

void
skr_job_note_unhandled(struct skr_consumer *consumer, const struct job *job)
{
    struct unhandled *unhandled = &consumer->unhandled;
    skr_unhandled_log_count(consumer, false);
    int64_t now_ms = skr_clock_ms();
    bool is_first = now_ms >= unhandled->log_again_ms;
    if (is_first)
        unhandled->log_again_ms = now_ms + LOG_MS;
    else
        unhandled->unlogged++;
    log_one(consumer, job, is_first ? SKR_LOG_WARNING : SKR_LOG_DEBUG);
}

void
skr_job_set_unhandled(struct skr_consumer *consumer, struct job *job)
{
    skr_fail(&job->reason, SKR_INVALID, SKR_GIVE_UP,
             "unknown message type \"%.100s\": consumer %s has no handler for "
             "it; add one under handlers, or see unhandled of the transport",
             job->delivery.message.name, consumer->options.name);
    if (consumer->policy.unhandled != SKR_UNHANDLED_WAIT) {
        skr_job_end(consumer, job, SKR_END_UNHANDLED);
        return;
    }
    // The messages of a handler that is down wait in any broker, and spend no
    // retry on it.
    job->handler = &consumer->unhandled.handler;
    skr_job_note_unhandled(consumer, job);
}

void
skr_unhandled_init(struct skr_consumer *consumer)
{
    struct handler *handler = &consumer->unhandled.handler;
    handler->backoff.pause_ms = 1;
    handler->again_ms = INT64_MAX;
    skr_fail(&handler->reason, SKR_INVALID, SKR_GIVE_UP,
             "consumer %s has no handler for this type; the message waits for "
             "one",
             consumer->options.name);
}
