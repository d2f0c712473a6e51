// SPDX-License-Identifier: MIT
// A message that kills its consumer leaves no trace but that it is delivered
// again. Where the broker does not count how often, it is counted here, before
// the handler runs: the message must run out of attempts.

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "inbox/inside.h"

#include <string.h>

enum { CLEAN_MS = 3600 * 1000 };

// It may differ each time that the same message comes.
static bool
tells_of_deliveries(const char *header)
{
    static const char *const names[] = {SKR_HEADER_REDELIVERY, SKR_HEADER_ERROR,
                                        "x-delivery-count"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++)
        if (strcmp(header, names[i]) == 0)
            return true;
    return false;
}

struct skr_id
skr_job_key(const struct job *job)
{
    const struct skr_incoming *incoming = job->incoming;
    struct skr_id key = job->delivery.message.id;
    if (job->has_id)
        return key;
    struct skr_hash hash =
        skr_hash_add(skr_hash_start(), incoming->body, incoming->body_size);
    if (incoming->headers.count == 0)
        hash = skr_hash_add(hash, incoming->raw_headers,
                            incoming->raw_headers_size);
    for (size_t i = 0; i < incoming->headers.count; i++) {
        const struct skr_header *header = &incoming->headers.items[i];
        if (tells_of_deliveries(header->name))
            continue;
        hash = skr_hash_add_text(hash, header->name);
        hash = skr_hash_add_text(hash, header->value);
    }
    memcpy(key.bytes, &hash, sizeof(key.bytes));
    return key;
}

static struct skr_id
attempt_key_of(const struct skr_consumer *consumer, const struct job *job)
{
    return skr_attempts_key(skr_job_key(job), consumer->options.name,
                            "attempt");
}

static bool
is_same(struct skr_id a, struct skr_id b)
{
    return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

// One that was given back while the database could not be told has its attempt
// counted already.
static void
take_back_uncounted(struct skr_consumer *consumer, const struct job *job)
{
    if (!consumer->has_uncounted ||
        !is_same(consumer->uncounted, job->attempt_key))
        return;
    struct skr_error ignored = {0};
    if (skr_attempts_lower(consumer->attempts, skr_db_tx(consumer->db),
                           job->attempt_key, &ignored) == SKR_OK)
        consumer->has_uncounted = false;
}

// Rows are left behind by crashes alone: a consumer that comes upon one looks
// for more.
static void
clean(struct skr_consumer *consumer)
{
    int64_t now_ms = skr_clock_ms();
    if (now_ms < consumer->clean_again_ms)
        return;
    consumer->clean_again_ms = now_ms + CLEAN_MS;
    struct skr_error problem = {0};
    if (skr_attempts_clean(consumer->attempts, skr_db_tx(consumer->db),
                           &problem) != SKR_OK)
        skr_log(&consumer->log, SKR_LOG_DEBUG, "consumer.not_cleaned",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_TEXT("error", problem.text));
}

enum skr_code
skr_job_count(struct skr_consumer *consumer, struct job *job,
              struct skr_error *error)
{
    bool is_tried = job->state == JOB_READY || job->state == JOB_FAILED;
    if (!is_tried || !job->incoming->redelivered || consumer->source == NULL ||
        consumer->source->counts)
        return SKR_OK;
    uint32_t count = 0;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    if (code != SKR_OK)
        return code;
    job->attempt_key = attempt_key_of(consumer, job);
    take_back_uncounted(consumer, job);
    code = skr_attempts_raise(consumer->attempts, consumer->db,
                              job->attempt_key, &count, error);
    if (code != SKR_OK)
        return code;
    clean(consumer);
    job->is_counted = true;
    job->retry_count += count;
    job->delivery.attempt = job->retry_count + 1;
    return skr_job_find_spent(consumer, job, error);
}

static void
uncount(struct skr_consumer *consumer, const struct job *job)
{
    struct skr_error problem = {0};
    if (skr_consumer_connect_database(consumer, &problem) == SKR_OK &&
        skr_attempts_lower(consumer->attempts, skr_db_tx(consumer->db),
                           job->attempt_key, &problem) == SKR_OK)
        return;
    consumer->has_uncounted = true;
    consumer->uncounted = job->attempt_key;
}

// It was handled, by this delivery or an earlier one, and whatever a consumer
// left behind that died over it means nothing any more.
static bool
is_past(const struct skr_consumer *consumer, const struct job *job)
{
    bool is_retry =
        consumer->source != NULL && consumer->source == consumer->retries;
    return job->state == JOB_OVER && job->has_id && !job->is_marked &&
           (is_retry || job->incoming->redelivered);
}

static void
remove_attempt(struct skr_consumer *consumer, struct skr_id key)
{
    struct skr_error ignored = {0};
    enum skr_code code =
        consumer->db == NULL
            ? SKR_OK
            : skr_attempts_remove(consumer->attempts, skr_db_tx(consumer->db),
                                  key, &ignored);
    (void)code;
}

static void
remove_mark(struct skr_consumer *consumer, struct skr_id mark)
{
    struct skr_error ignored = {0};
    struct skr_db *db = consumer->options.failed_database == NULL
                            ? consumer->db
                            : consumer->failed_db;
    enum skr_code code =
        db == NULL
            ? SKR_OK
            : skr_kept_forget(consumer->kept, skr_db_tx(db), mark, &ignored);
    (void)code;
}

// What cannot be removed now is cleaned some day.
void
skr_job_forget(struct skr_consumer *consumer, struct job *job)
{
    bool is_released = job->incoming->settlement == SKR_SETTLE_RELEASE ||
                       job->incoming->settlement == SKR_SETTLE_HOLD;
    const struct skr_id id = job->delivery.message.id;
    if (job->is_counted && is_released)
        uncount(consumer, job);
    else if (job->is_counted)
        remove_attempt(consumer, job->attempt_key);
    if (job->is_marked && !is_released)
        remove_mark(consumer, job->mark);
    if (is_past(consumer, job)) {
        remove_attempt(consumer, attempt_key_of(consumer, job));
        remove_mark(consumer, skr_kept_mark(consumer->kept, id, true));
        remove_mark(consumer, skr_kept_mark(consumer->kept, id, false));
    }
    job->is_counted = false;
    job->is_marked = false;
}
