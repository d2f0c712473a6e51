// SPDX-License-Identifier: MIT
// What cannot be handled is kept in the failed table, with its bytes and the
// reason; only then does the broker hear that it is dealt with.

#include "base/error.h"
#include "base/failpoint.h"
#include "inbox/inside.h"

static enum skr_code
store(struct skr_consumer *consumer, struct skr_db *db,
      struct skr_failed_message *message, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_store_failed(consumer->failed_table, skr_db_tx(db),
                                      &consumer->arena, message, error);
    if (code != SKR_OK) {
        skr_db_rollback(db);
        return code;
    }
    return skr_db_commit(db, error);
}

static void
log_failed(const struct skr_consumer *consumer, const struct job *job)
{
    const struct skr_message *message = &job->delivery.message;
    char id[SKR_ID_TEXT_SIZE] = "";
    // Without a name it was not understood, and has no id either.
    if (message->name != NULL)
        skr_id_format(message->id, id);
    skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.failed",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_TEXT("message", message->name == NULL ? "" : message->name),
            SKR_LOG_TEXT("id", id), SKR_LOG_NUMBER("retries", job->retry_count),
            SKR_LOG_TEXT("error", job->reason.text));
}

static enum skr_code
keep(struct skr_consumer *consumer, const struct job *job,
     struct skr_error *error)
{
    const struct skr_incoming *incoming = job->incoming;
    struct skr_failed_message message = {
        .body = incoming->body,
        .body_size = incoming->body_size,
        .failure = {.transport = consumer->options.name,
                    .retries = job->retry_count,
                    .reason = &job->reason},
    };
    struct skr_db *db = NULL;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    // The marks go into a copy: the delivery stays as it came, should the table
    // refuse it and the message be given back.
    if (code == SKR_OK)
        code = skr_headers_copy(&consumer->arena, &incoming->headers,
                                &message.headers, error);
    if (code != SKR_OK)
        return code;
    if (message.headers.count == 0) {
        message.raw_headers = incoming->raw_headers;
        message.raw_headers_size = incoming->raw_headers_size;
    }
    code = store(consumer, db, &message, error);
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
    for (int tries = 0; tries < 2; tries++) {
        code = keep(consumer, job, error);
        if (code != SKR_MISSING &&
            (code == SKR_OK || error->remedy != SKR_RECONNECT))
            break;
        // On connecting, a table that is gone is made where that is allowed.
        drop_connection(consumer);
    }
    if (code != SKR_OK)
        return code;
    skr_failpoint("consumer.failed_stored");
    atomic_fetch_add(&consumer->failed, 1);
    log_failed(consumer, job);
    return SKR_OK;
}
