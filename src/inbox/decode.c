// SPDX-License-Identifier: MIT
// A delivery as it came from the broker becomes a job for a handler.

#include "base/error.h"
#include "base/text.h"
#include "inbox/consumer_internals.h"
#include "inbox/settle.h"
#include "message/envelope.h"

#include <string.h>

const char *
skr_job_format_id(const struct job *job, char text[SKR_ID_TEXT_SIZE])
{
    text[0] = '\0';
    if (job->has_id)
        skr_id_format(job->delivery.message.id, text);
    return text;
}

void
skr_job_log_failed(const struct skr_consumer *consumer, const struct job *job,
                   enum skr_log_level level)
{
    skr_log(&consumer->log, level, "consumer.failed",
            SKR_LOG_JOB(consumer, job),
            SKR_LOG_NUMBER("retries", job->retry_count),
            SKR_LOG_TEXT("error", job->reason.text));
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

enum skr_code
skr_job_find_exhaustion(struct skr_consumer *consumer, struct job *job,
                        struct skr_error *error)
{
    const struct skr_headers *headers = &job->incoming->headers;
    job->exhaustion =
        skr_find_exhaustion(job->retry_count, &consumer->policy.retry);
    if (job->exhaustion == SKR_RETRIES_LEFT)
        return SKR_OK;
    const char *stamp = skr_headers_get(headers, SKR_HEADER_ERROR);
    if (stamp == NULL)
        return SKR_OK;
    return skr_stamp_read(&consumer->batch.arena, stamp, "exceptionMessage",
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
    return skr_envelope_read(&consumer->batch.arena, &incoming->headers,
                             incoming->broker_id, consumer->extras.names,
                             envelope, reason);
}

// What a broker hands out, a stranger may have written: by its count of retries
// a message is at its last try, but not beyond. Of rows the count is ours.
static void
bound_retries(const struct skr_consumer *consumer, struct job *job)
{
    uint32_t most = consumer->policy.retry.max_retries;
    if (consumer->sources.current != NULL &&
        !consumer->sources.current->can.counts && job->retry_count > most)
        job->retry_count = most;
}

// The key of a record of Kafka. A relay gives a message without a partition key
// its id there.
static const char *
find_record_key(const struct skr_headers *headers,
                const struct skr_envelope *envelope)
{
    const char *key = skr_headers_get(headers, SKR_HEADER_KAFKA_KEY);
    char id[SKR_ID_TEXT_SIZE] = "";
    if (envelope->has_id)
        skr_id_format(envelope->message.id, id);
    return key != NULL && strcmp(key, id) != 0 ? key : NULL;
}

enum skr_code
skr_job_decode(struct skr_consumer *consumer, struct job *job,
               struct skr_error *error)
{
    const struct skr_incoming *incoming = job->incoming;
    struct skr_envelope envelope = {0};
    job->retry_count = incoming->retry_count;
    enum skr_code code = read_envelope(consumer, job, &envelope, &job->reason);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK) {
        skr_job_end(consumer, job, SKR_END_NOT_UNDERSTOOD);
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
    else if (find_obstacle(consumer, &envelope, job, &job->reason) != SKR_OK)
        skr_job_end(consumer, job, SKR_END_NOT_UNDERSTOOD);
    return skr_job_find_exhaustion(consumer, job, error);
}
