// SPDX-License-Identifier: MIT
// Messages that no handler is for: they fail, are ignored, or wait until a
// consumer comes that has one. A producer may send thousands of them: the first
// is told in full, the others are counted, and the count is told once a minute.

#include "base/clock.h"
#include "base/error.h"
#include "inbox/inside.h"

enum { TELL_MS = 60 * 1000 };

static const char *
word_of(enum skr_unhandled unhandled)
{
    switch (unhandled) {
    case SKR_UNHANDLED_FAIL: return "fail";
    case SKR_UNHANDLED_IGNORE: return "ignore";
    case SKR_UNHANDLED_WAIT: return "wait";
    }
    return "";
}

// The log's event of one message, in full.
static void
tell(const struct skr_consumer *consumer, const struct job *job,
     enum skr_log_level level)
{
    if (consumer->extras.unhandled == SKR_UNHANDLED_FAIL) {
        skr_job_log_failed(consumer, job, level);
        return;
    }
    char id[SKR_ID_TEXT_SIZE];
    skr_log(&consumer->log, level, "consumer.unhandled",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_TEXT("message", job->delivery.message.name),
            SKR_LOG_TEXT("id", skr_job_format_id(job, id)),
            SKR_LOG_TEXT("unhandled", word_of(consumer->extras.unhandled)));
}

void
skr_unhandled_tell_count(struct skr_consumer *consumer, bool is_last)
{
    struct unhandled *unhandled = &consumer->unhandled;
    if (unhandled->untold == 0 ||
        (!is_last && skr_clock_ms() < unhandled->tell_again_ms))
        return;
    skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.unhandled_more",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_NUMBER("deliveries", unhandled->untold),
            SKR_LOG_TEXT("unhandled", word_of(consumer->extras.unhandled)));
    unhandled->untold = 0;
    unhandled->tell_again_ms = skr_clock_ms() + TELL_MS;
}

void
skr_job_note_unhandled(struct skr_consumer *consumer, const struct job *job)
{
    struct unhandled *unhandled = &consumer->unhandled;
    skr_unhandled_tell_count(consumer, false);
    int64_t now_ms = skr_clock_ms();
    bool is_first = now_ms >= unhandled->tell_again_ms;
    if (is_first)
        unhandled->tell_again_ms = now_ms + TELL_MS;
    else
        unhandled->untold++;
    tell(consumer, job, is_first ? SKR_LOG_WARNING : SKR_LOG_DEBUG);
}

void
skr_job_set_unhandled(struct skr_consumer *consumer, struct job *job)
{
    job->is_unhandled = true;
    skr_fail(&job->reason, SKR_INVALID, SKR_GIVE_UP,
             "unknown message type \"%.100s\": consumer %s has no handler for "
             "it; add one under handlers, or see unhandled of the transport",
             job->delivery.message.name, consumer->options.name);
    switch (consumer->extras.unhandled) {
    case SKR_UNHANDLED_FAIL: job->state = JOB_FAILED; return;
    case SKR_UNHANDLED_IGNORE: job->state = JOB_OVER; return;
    case SKR_UNHANDLED_WAIT:
        // The messages of a handler that is paused wait in any broker, and
        // spend no try on it.
        job->handler = &consumer->unhandled.nobody;
        skr_job_note_unhandled(consumer, job);
        return;
    }
}

void
skr_unhandled_init(struct skr_consumer *consumer)
{
    struct handler *nobody = &consumer->unhandled.nobody;
    nobody->backoff.pause_ms = 1;
    nobody->again_ms = INT64_MAX;
    skr_fail(&nobody->reason, SKR_INVALID, SKR_GIVE_UP,
             "consumer %s has no handler for this type; the message waits for "
             "one",
             consumer->options.name);
}
