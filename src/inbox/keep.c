// SPDX-License-Identifier: MIT
// What the broker is not to deliver again becomes a row: in the failed table,
// with its bytes and the reason, or in the queue of retries, with its due time.
// Only then does the broker hear that it is dealt with.

#include "base/error.h"
#include "base/failpoint.h"
#include "inbox/inside.h"

static enum skr_code
store(struct skr_consumer *consumer, struct job *job, struct skr_db *db,
      bool *is_there, struct skr_error *error)
{
    const struct skr_incoming *incoming = job->incoming;
    bool is_retry = job->state == JOB_RETRY;
    job->mark = skr_kept_mark(consumer->kept, skr_job_key(job), is_retry);
    const struct skr_kept_message message = {
        .headers = &incoming->headers,
        .raw_headers = incoming->raw_headers,
        .raw_headers_size = incoming->raw_headers_size,
        .body = incoming->body,
        .body_size = incoming->body_size,
        .is_unseen = job->is_unseen,
        .has_id = job->has_id,
        .id = job->delivery.message.id,
        .came_before = incoming->redelivered,
        .mark = job->mark,
        .retries = job->retry_count + (is_retry && !job->is_excused),
        .reason = &job->reason,
        .is_retry = is_retry,
        .delay_ms = incoming->delay_ms,
    };
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_kept_store(consumer->kept, skr_db_tx(db), &consumer->arena,
                          &message, is_there, error);
    if (code != SKR_OK) {
        skr_db_rollback(db);
        return code;
    }
    return skr_db_commit(db, error);
}

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
    // Without a name it was not understood.
    const char *name = job->delivery.message.name;
    char id[SKR_ID_TEXT_SIZE];
    skr_log(&consumer->log, level, "consumer.failed",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_TEXT("message", name == NULL ? "" : name),
            SKR_LOG_TEXT("id", skr_job_format_id(job, id)),
            SKR_LOG_NUMBER("retries", job->retry_count),
            SKR_LOG_TEXT("error", job->reason.text));
}

static enum skr_code
keep(struct skr_consumer *consumer, struct job *job, bool *is_there,
     struct skr_error *error)
{
    struct skr_db *db = NULL;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    if (code != SKR_OK)
        return code;
    if (job->state == JOB_FAILED)
        skr_failpoint("consumer.storing");
    code = store(consumer, job, db, is_there, error);
    if (code == SKR_MISSING)
        return skr_consumer_fail_missing(consumer, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "failed table %s",
                         consumer->options.failed_table);
    return code;
}

static void
drop_connection(struct skr_consumer *consumer)
{
    if (consumer->options.failed_database == NULL)
        skr_consumer_drop_database(consumer);
    else
        skr_consumer_drop_failed(consumer);
}

enum skr_code
skr_job_keep(struct skr_consumer *consumer, struct job *job,
             struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool is_there = false;
    for (int tries = 0; tries < 2; tries++) {
        code = keep(consumer, job, &is_there, error);
        if (code != SKR_MISSING &&
            (code == SKR_OK || error->remedy != SKR_RECONNECT))
            break;
        // On connecting, a table that is gone is made where that is allowed.
        drop_connection(consumer);
    }
    if (code != SKR_OK)
        return code;
    job->is_marked = true;
    if (job->state == JOB_RETRY) {
        skr_failpoint("consumer.retry_stored");
        job->state = JOB_MOVED;
        consumer->retry_again_ms = 0;
        return SKR_OK;
    }
    skr_failpoint("consumer.failed_stored");
    job->state = JOB_OVER;
    atomic_fetch_add(&consumer->failed, 1);
    atomic_fetch_add(&consumer->budget->failed, 1);
    if (!is_there && job->is_unhandled)
        skr_job_note_unhandled(consumer, job);
    else if (!is_there)
        skr_job_log_failed(consumer, job, SKR_LOG_WARNING);
    return SKR_OK;
}
