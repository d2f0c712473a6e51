// SPDX-License-Identifier: MIT
// What the broker is not to deliver again becomes a row: in the failed table,
// with its bytes and the reason, or in the queue of retries, with its due time.
// Only then does the broker hear that it is dealt with.
//
// A consumer that dies in between gets the delivery once more. So that it does
// not store it twice, the transaction also marks the message as stored; when
// the broker has heard of it the mark is removed. A mark that is found is not
// believed before the row itself is: it may have been dealt with since, and the
// message published again.
//
// A message without an id is known by what it says: the mark is made of that,
// and stands in the row as well. Others may say the same. So a mark counts for
// one delivery that came before, and whoever relies on it takes it away.

#include "base/error.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/text.h"
#include "inbox/inside.h"

#include <string.h>

struct skr_id
skr_job_mark(const struct skr_consumer *consumer, const struct job *job,
             bool is_retry)
{
    const struct skr_id key = skr_job_key(job);
    struct skr_hash hash =
        skr_hash_add(skr_hash_start(), key.bytes, sizeof(key.bytes));
    hash = skr_hash_add_text(hash, consumer->options.name);
    hash = skr_hash_add_text(hash, is_retry ? "retry" : "failed");
    struct skr_id mark;
    memcpy(mark.bytes, &hash, sizeof(mark.bytes));
    return mark;
}

static enum skr_code
find_unnamed(struct skr_consumer *consumer, struct job *job, struct skr_tx tx,
             bool *is_there, struct skr_error *error)
{
    char digest[SKR_ID_TEXT_SIZE];
    if (!job->incoming->redelivered)
        return SKR_OK;
    skr_id_format(job->mark, digest);
    enum skr_code code = skr_messenger_holds_failed(
        consumer->failed_table, tx, &(struct skr_sought){.digest = digest},
        is_there, error);
    if (code == SKR_OK && *is_there)
        code =
            skr_attempts_take(consumer->marks, tx, job->mark, is_there, error);
    return code;
}

// Whether the row is there since an earlier delivery.
static enum skr_code
mark_stored(struct skr_consumer *consumer, struct job *job, struct skr_tx tx,
            bool *is_there, struct skr_error *error)
{
    *is_there = false;
    // Nothing tells whether a retry without an id was handled before, either.
    if (!job->has_id && job->state == JOB_RETRY)
        return SKR_OK;
    job->mark = skr_job_mark(consumer, job, job->state == JOB_RETRY);
    enum skr_code code =
        skr_attempts_mark(consumer->marks, tx, job->mark, error);
    job->is_marked = code == SKR_OK || code == SKR_DUPLICATE;
    if (code != SKR_DUPLICATE)
        return code;
    if (!job->has_id)
        return find_unnamed(consumer, job, tx, is_there, error);
    struct skr_sought sought = {.id = job->delivery.message.id};
    if (job->state == JOB_RETRY)
        return skr_messenger_holds(consumer->failed_table, tx,
                                   consumer->retry_queue, &sought, is_there,
                                   error);
    sought.transport = consumer->options.name;
    return skr_messenger_holds_failed(consumer->failed_table, tx, &sought,
                                      is_there, error);
}

static enum skr_code
add_id(struct skr_consumer *consumer, struct skr_headers *headers,
       const char *name, struct skr_id id, struct skr_error *error)
{
    char text[SKR_ID_TEXT_SIZE];
    skr_id_format(id, text);
    bool ok =
        skr_headers_set(&consumer->arena, headers, name,
                        skr_arena_text(&consumer->arena, text, strlen(text)));
    return ok ? SKR_OK : skr_fail_memory(error);
}

// The marks of a failure or a retry go into a copy of the headers: the delivery
// stays as it came, should the table refuse it. An id that only the broker knew
// goes with it.
static enum skr_code
copy_headers(struct skr_consumer *consumer, const struct job *job,
             struct skr_headers *headers, struct skr_error *error)
{
    struct skr_arena *arena = &consumer->arena;
    enum skr_code code =
        skr_headers_copy(arena, &job->incoming->headers, headers, error);
    if (code != SKR_OK || !job->has_id || headers->count == 0 ||
        skr_headers_find(headers->items, headers->count, SKR_HEADER_ID) != NULL)
        return code;
    return add_id(consumer, headers, SKR_HEADER_ID, job->delivery.message.id,
                  error);
}

static enum skr_code
store_failed(struct skr_consumer *consumer, const struct job *job,
             struct skr_tx tx, struct skr_error *error)
{
    const struct skr_incoming *incoming = job->incoming;
    struct skr_failed_message message = {
        .body = incoming->body,
        .body_size = incoming->body_size,
        .failure = {.transport = consumer->options.name,
                    .retries = job->retry_count,
                    .reason = &job->reason},
    };
    enum skr_code code = copy_headers(consumer, job, &message.headers, error);
    if (code == SKR_OK && message.headers.count == 0)
        code = skr_failure_wrap_raw(
            &consumer->arena,
            incoming->raw_headers == NULL ? "" : incoming->raw_headers,
            incoming->raw_headers_size, &message.headers, error);
    if (code == SKR_OK && !job->has_id)
        code = add_id(consumer, &message.headers, SKR_HEADER_DIGEST, job->mark,
                      error);
    if (code != SKR_OK)
        return code;
    return skr_messenger_store_failed(consumer->failed_table, tx,
                                      &consumer->arena, &message, error);
}

static enum skr_code
store_retry(struct skr_consumer *consumer, const struct job *job,
            struct skr_tx tx, struct skr_error *error)
{
    struct skr_headers headers = {0};
    struct skr_text json = {0};
    enum skr_code code = copy_headers(consumer, job, &headers, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(
            &consumer->arena, &headers,
            job->retry_count + (job->is_excused ? 0 : 1), &job->reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(headers.items, headers.count, &json, error);
    // Tables know seconds: a retry is never early.
    const struct skr_messenger_row row = {
        .body = job->incoming->body,
        .body_size = job->incoming->body_size,
        .headers = json.bytes,
        .headers_size = json.size,
        .delay_s = (job->incoming->delay_ms + 999) / 1000,
    };
    if (code == SKR_OK)
        code = skr_messenger_append(consumer->failed_table, tx,
                                    consumer->retry_queue, &row, 1, error);
    skr_text_fini(&json);
    return code;
}

static enum skr_code
store(struct skr_consumer *consumer, struct job *job, struct skr_db *db,
      bool *is_there, struct skr_error *error)
{
    struct skr_tx tx = skr_db_tx(db);
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = mark_stored(consumer, job, tx, is_there, error);
    if (code == SKR_OK && !*is_there)
        code = job->state == JOB_RETRY ? store_retry(consumer, job, tx, error)
                                       : store_failed(consumer, job, tx, error);
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
keep(struct skr_consumer *consumer, struct job *job, bool *is_there,
     struct skr_error *error)
{
    struct skr_db *db = NULL;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    if (code != SKR_OK)
        return code;
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
    if (code != SKR_OK) {
        job->is_marked = false;
        return code;
    }
    if (job->state == JOB_RETRY) {
        skr_failpoint("consumer.retry_stored");
        job->state = JOB_MOVED;
        return SKR_OK;
    }
    skr_failpoint("consumer.failed_stored");
    job->state = JOB_OVER;
    atomic_fetch_add(&consumer->failed, 1);
    atomic_fetch_add(&consumer->budget->failed, 1);
    if (!is_there)
        log_failed(consumer, job);
    return SKR_OK;
}
