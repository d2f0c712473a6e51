// SPDX-License-Identifier: MIT
// A delivery as it came from the broker becomes a job for a handler.

#include "base/error.h"
#include "base/text.h"
#include "inbox/inside.h"
#include "message/envelope.h"

static void
fail_job(struct job *job, const struct skr_error *reason)
{
    job->state = JOB_FAILED;
    job->reason = *reason;
}

// What keeps an understood message from its handler; SKR_OK: nothing.
static enum skr_code
find_obstacle(const struct skr_consumer *consumer,
              const struct skr_envelope *envelope, const struct job *job,
              struct skr_error *reason)
{
    const struct skr_incoming *incoming = job->incoming;
    if (!envelope->has_id)
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the message has no id, so it cannot be deduplicated; "
                        "send a MessageIdStamp or an X-Message-Id header");
    if (!skr_text_is_storable(incoming->body, incoming->body_size))
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the body is not text in UTF-8");
    if (job->handler == NULL)
        return skr_fail(reason, SKR_INVALID, SKR_GIVE_UP,
                        "unknown message type \"%.100s\": consumer %s has no "
                        "handler for it",
                        envelope->message.name, consumer->options.name);
    // Each of these tries ended without a word: the consumer died over it, or
    // was stopped so hard that it could not give the message back.
    if (job->retry_count > consumer->retry.max_retries)
        return skr_fail(reason, SKR_TIMEOUT, SKR_GIVE_UP,
                        "not handled again: %u earlier deliveries ended "
                        "without a verdict, as when a handler kills its "
                        "process",
                        (unsigned)job->retry_count);
    return SKR_OK;
}

static enum skr_code
read_envelope(struct skr_consumer *consumer, struct job *job,
              struct skr_envelope *envelope, struct skr_error *reason)
{
    const struct skr_incoming *incoming = job->incoming;
    if (incoming->problem.code != SKR_OK) {
        *reason = incoming->problem;
        return incoming->problem.code;
    }
    return skr_envelope_read(&consumer->arena, &incoming->headers,
                             incoming->broker_id, consumer->extras.names,
                             envelope, reason);
}

enum skr_code
skr_job_decode(struct skr_consumer *consumer, struct skr_incoming *incoming,
               struct job *job, struct skr_error *error)
{
    struct skr_envelope envelope = {0};
    struct skr_error reason = {0};
    *job = (struct job){.incoming = incoming,
                        .retry_count = incoming->retry_count};
    enum skr_code code = read_envelope(consumer, job, &envelope, &reason);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK) {
        fail_job(job, &reason);
        return SKR_OK;
    }
    if (envelope.retry_count > job->retry_count)
        job->retry_count = envelope.retry_count;
    job->delivery = (struct skr_delivery){
        .message = envelope.message,
        .attempt = job->retry_count + 1,
        .source = consumer->options.name,
    };
    struct skr_message *message = &job->delivery.message;
    message->headers = incoming->headers.items;
    message->header_count = incoming->headers.count;
    message->body = incoming->body;
    message->body_size = incoming->body_size;
    message->created_at_us = incoming->created_at_us;
    job->handler = skr_handlers_find(&consumer->handlers, message->name);
    const char *class_name =
        skr_names_find_class(consumer->extras.names, message->name);
    job->recorded_name = class_name == NULL ? message->name : class_name;
    if (find_obstacle(consumer, &envelope, job, &reason) != SKR_OK)
        fail_job(job, &reason);
    return SKR_OK;
}
