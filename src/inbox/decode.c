// SPDX-License-Identifier: MIT
// A delivery as it came from the broker becomes a job for a handler.

#include "base/error.h"
#include "base/text.h"
#include "inbox/inside.h"
#include "message/envelope.h"

#include <string.h>

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
    if (!envelope->has_id && !consumer->extras.handles_missing_ids)
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the message has no id, so it cannot be deduplicated; "
                        "send a MessageIdStamp or an X-Message-Id header");
    // The databases differ in what they would do with it.
    if (!skr_deduplication_has_room(job->recorded_name))
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the message's type is longer than %d characters, so "
                        "it cannot be recorded: %.60s...",
                        SKR_DEDUPLICATION_NAME_LENGTH, job->recorded_name);
    if (!skr_text_is_storable(incoming->body, incoming->body_size))
        return skr_fail(reason, SKR_MALFORMED, SKR_GIVE_UP,
                        "the body is not text in UTF-8");
    return SKR_OK;
}

// A verdict never lets the count grow this far. What does are consumers that
// died over the message, or were stopped so hard that they could not give it
// back. One that was in hand among others need not have been seen by a handler:
// without any retries it still has one delivery by itself.
enum skr_code
skr_job_find_spent(struct skr_consumer *consumer, struct job *job,
                   struct skr_error *error)
{
    const struct skr_headers *headers = &job->incoming->headers;
    uint32_t most =
        consumer->retry.max_retries > 0 ? consumer->retry.max_retries : 1;
    job->is_spent = job->retry_count > most;
    job->is_unseen = job->retry_count > most + 1;
    if (!job->is_spent)
        return SKR_OK;
    const char *stamp =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_ERROR);
    if (stamp == NULL)
        return SKR_OK;
    return skr_stamp_read(&consumer->arena, stamp, "exceptionMessage",
                          &job->last_error, error);
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

// What a broker hands out, a stranger may have written: by its count of retries
// a message is at its last try, but not beyond. Of rows the count is ours.
static void
bound_retries(const struct skr_consumer *consumer, struct job *job)
{
    uint32_t most = consumer->retry.max_retries;
    if (consumer->source != NULL && !consumer->source->counts &&
        job->retry_count > most)
        job->retry_count = most;
}

// The key of a record of Kafka. A relay gives a message without a partition key
// its id there.
static const char *
find_record_key(const struct skr_headers *headers,
                const struct skr_envelope *envelope)
{
    const char *key =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_KAFKA_KEY);
    char id[SKR_ID_TEXT_SIZE] = "";
    if (envelope->has_id)
        skr_id_format(envelope->message.id, id);
    return key != NULL && strcmp(key, id) != 0 ? key : NULL;
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
    bound_retries(consumer, job);
    job->delivery = (struct skr_delivery){
        .message = envelope.message,
        .attempt = job->retry_count + 1,
        .source = consumer->options.name,
    };
    job->has_id = envelope.has_id;
    struct skr_message *message = &job->delivery.message;
    message->headers = incoming->headers.items;
    message->header_count = incoming->headers.count;
    message->body = incoming->body;
    message->body_size = incoming->body_size;
    message->created_at_us = incoming->created_at_us;
    if (message->partition_key == NULL)
        message->partition_key = find_record_key(&incoming->headers, &envelope);
    job->handler = skr_handlers_find(&consumer->handlers, message->name,
                                     envelope.class_name);
    const char *class_name =
        skr_names_find_class(consumer->extras.names, message->name);
    job->recorded_name = class_name == NULL ? message->name : class_name;
    if (job->handler == NULL)
        skr_job_set_unhandled(consumer, job);
    else if (find_obstacle(consumer, &envelope, job, &reason) != SKR_OK)
        fail_job(job, &reason);
    return skr_job_find_spent(consumer, job, error);
}
