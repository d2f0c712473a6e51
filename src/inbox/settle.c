// SPDX-License-Identifier: MIT
// Carries out decisions: counts attempts, writes the rows of dead letters and
// retries, tells the broker, and removes what was recorded of a delivery that
// is settled. What a table or a broker refuses is a fact more, and is decided
// again.

#include "inbox/settle.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/text.h"
#include "inbox/child.h"
#include "inbox/connect.h"
#include "inbox/consumer_internals.h"

#include <string.h>

enum {
    LONGEST_PAUSE_MS = 30000,
    // After a failure to write a row, a pause so many times as long: messages
    // that can be handled do not wait for a database that does not answer.
    PAUSE_FACTOR = 10,
    CLEAN_MS = 3600 * 1000,
};

static void
decide(const struct skr_consumer *consumer, struct job *job)
{
    job->decision = skr_delivery_decide(&job->facts, &consumer->policy);
}

static void
set_end(struct skr_consumer *consumer, struct job *job, enum skr_end end)
{
    struct skr_broker *source = consumer->sources.current;
    struct skr_delivery_facts *facts = &job->facts;
    job->phase = JOB_ENDED;
    facts->end = end;
    facts->retries = job->retry_count;
    facts->has_retry_queue = skr_consumer_has_retries(consumer);
    facts->was_requeued = job->incoming->delivery_count > 0;
    facts->broker_delays = source != NULL && source->can.delays;
    // Only what may be deferred for long asks: that takes the driver's lock.
    if (end == SKR_END_HANDLER_DOWN || end == SKR_END_UNHANDLED ||
        facts->limit_wait_ms > 0)
        facts->is_over_capacity =
            source != NULL && source->ops->status(source).is_over_capacity;
    if (end == SKR_END_HANDLER_DOWN)
        facts->handler_wait_ms = skr_handler_wait_ms(job->handler);
    decide(consumer, job);
}

// What has run already is recorded, or it would run again.
static void
hold_back_partition(struct skr_consumer *consumer, const struct job *job)
{
    const struct batch *batch = &consumer->batch;
    if (job->incoming->partition == 0)
        return;
    for (size_t i = (size_t)(job - batch->jobs) + 1; i < batch->count; i++) {
        struct job *other = &batch->jobs[i];
        if (other->incoming->partition == job->incoming->partition &&
            !other->was_run &&
            (other->phase == JOB_PENDING || other->phase == JOB_BLOCKED))
            set_end(consumer, other, SKR_END_NOT_REACHED);
    }
}

// One mistake is not to move a whole backlog into the failed table: beyond
// failure_limit the message waits, and so do all others of its handler. What
// becomes of those that no handler is for is said by unhandled; what is not
// understood could not wait in a row, and is not bounded.
static void
bound_failures(struct skr_consumer *consumer, struct job *job)
{
    struct handler *handler = job->handler;
    struct skr_error reason = job->reason;
    uint32_t limit = consumer->extras.failure_limit;
    if (job->decision.disposition != SKR_DEAD_LETTER || handler == NULL ||
        job->facts.end == SKR_END_UNHANDLED ||
        job->facts.end == SKR_END_NOT_UNDERSTOOD)
        return;
    uint32_t wait_ms =
        skr_failures_count(&handler->failures, limit, skr_clock_ms());
    if (wait_ms == 0)
        return;
    skr_error_prefix(&reason,
                     "%u messages of %.80s failed within a minute, and none "
                     "succeeded (failure_limit)",
                     (unsigned)limit, handler->message_name);
    if (skr_handler_wait_ms(handler) == 0) {
        skr_backoff_next(&handler->backoff);
        skr_handler_pause(consumer, handler, SKR_TROUBLE_HARMLESS, &reason,
                          wait_ms);
    }
    job->facts.limit_wait_ms = wait_ms;
    set_end(consumer, job, job->facts.end);
}

void
skr_job_end(struct skr_consumer *consumer, struct job *job, enum skr_end end)
{
    set_end(consumer, job, end);
    bound_failures(consumer, job);
    if (job->decision.disposition == SKR_RETRY_AFTER ||
        job->decision.disposition == SKR_DEFER)
        hold_back_partition(consumer, job);
}

void
skr_job_fail(struct skr_consumer *consumer, struct job *job, enum skr_end end,
             const struct attempt *attempt)
{
    job->reason = attempt->reason;
    job->facts.verdict = attempt->verdict;
    consumer->random = consumer->random * 1664525u + 1013904223u;
    job->facts.random = consumer->random;
    skr_job_end(consumer, job, end);
    skr_job_tell_hooks(consumer, job);
    if (job->decision.disposition == SKR_DEAD_LETTER ||
        job->facts.limit_wait_ms > 0)
        return;
    skr_log(&consumer->log, SKR_LOG_INFO, "consumer.retry",
            SKR_LOG_JOB(consumer, job),
            SKR_LOG_NUMBER("retry", job->retry_count + 1),
            SKR_LOG_NUMBER("delay_ms", job->decision.delay_ms),
            SKR_LOG_TEXT("error", job->reason.text));
}

// Its id; without one it is known by what it says.
static struct skr_id
key_of(const struct job *job)
{
    // They may differ each time that the same message comes.
    static const char *const passing[] = {SKR_HEADER_REDELIVERY,
                                          SKR_HEADER_ERROR, "x-delivery-count"};
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
        if (skr_text_is_among(header->name, passing, SKR_COUNT_OF(passing)))
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
    return skr_attempts_key(key_of(job), consumer->options.name, "attempt");
}

// One that was requeued while the database could not be told has its attempt
// counted already.
static void
take_back_uncounted(struct skr_consumer *consumer, const struct job *job)
{
    if (!consumer->attempts.has_uncounted ||
        memcmp(&consumer->attempts.uncounted, &job->attempt_key,
               sizeof(job->attempt_key)) != 0)
        return;
    struct skr_error ignored = {0};
    if (skr_attempts_lower(skr_db_tx(consumer->db), job->attempt_key,
                           &ignored) == SKR_OK)
        consumer->attempts.has_uncounted = false;
}

// Rows are left behind by crashes alone: a consumer that comes upon one looks
// for more.
static void
clean(struct skr_consumer *consumer)
{
    int64_t now_ms = skr_clock_ms();
    if (now_ms < consumer->attempts.clean_again_ms)
        return;
    consumer->attempts.clean_again_ms = now_ms + CLEAN_MS;
    struct skr_error problem = {0};
    if (skr_attempts_clean(skr_db_tx(consumer->db), &problem) != SKR_OK)
        skr_log(&consumer->log, SKR_LOG_DEBUG, "consumer.not_cleaned",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_TEXT("error", problem.text));
}

// A row that cannot be read has no place for the count of a source that counts.
enum skr_code
skr_job_count(struct skr_consumer *consumer, struct job *job,
              struct skr_error *error)
{
    const struct skr_broker *source = consumer->sources.current;
    bool is_tried = job->phase == JOB_PENDING ||
                    job->decision.disposition == SKR_DEAD_LETTER;
    if (!is_tried || !job->incoming->redelivered || source == NULL ||
        (source->can.counts && job->incoming->problem.code == SKR_OK))
        return SKR_OK;
    uint32_t count = 0;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    if (code != SKR_OK)
        return code;
    job->attempt_key = attempt_key_of(consumer, job);
    take_back_uncounted(consumer, job);
    code = skr_attempts_raise(consumer->db, job->attempt_key, &count, error);
    if (code != SKR_OK)
        return code;
    clean(consumer);
    job->is_counted = true;
    job->retry_count += count;
    job->delivery.attempt = job->retry_count + 1;
    return skr_job_find_exhaustion(consumer, job, error);
}

static void
uncount(struct skr_consumer *consumer, const struct job *job)
{
    struct skr_error problem = {0};
    if (skr_consumer_connect_database(consumer, &problem) == SKR_OK &&
        skr_attempts_lower(skr_db_tx(consumer->db), job->attempt_key,
                           &problem) == SKR_OK)
        return;
    consumer->attempts.has_uncounted = true;
    consumer->attempts.uncounted = job->attempt_key;
}

// It was handled, by this delivery or an earlier one, and whatever a consumer
// left behind that died over it means nothing any more.
static bool
is_past(const struct skr_consumer *consumer, const struct job *job)
{
    const struct sources *sources = &consumer->sources;
    bool is_retry =
        sources->current != NULL && sources->current == sources->retries;
    return job->decision.disposition == SKR_ACK && job->has_id &&
           (is_retry || job->incoming->redelivered);
}

// What cannot be removed now is cleaned some day.
static void
remove_row(struct skr_db *db, struct skr_id key)
{
    struct skr_error ignored = {0};
    enum skr_code code =
        db == NULL ? SKR_OK
                   : skr_attempts_remove(skr_db_tx(db), key, NULL, &ignored);
    (void)code;
}

// After it was settled: what was recorded of it is needed no more. One that was
// requeued or deferred has not been tried.
static void
forget(struct skr_consumer *consumer, struct job *job)
{
    const struct skr_dead_letters *letters = consumer->dead_letters.table;
    struct skr_db *db = consumer->options.failed_database == NULL
                            ? consumer->db
                            : consumer->dead_letters.db;
    const struct skr_id id = job->delivery.message.id;
    bool comes_as_it_was = job->incoming->settlement == SKR_SETTLE_REQUEUE ||
                           job->incoming->settlement == SKR_SETTLE_DEFER;
    if (job->is_counted && comes_as_it_was)
        uncount(consumer, job);
    else if (job->is_counted)
        remove_row(consumer->db, job->attempt_key);
    if (job->is_stored && !comes_as_it_was)
        remove_row(db, job->receipt);
    if (is_past(consumer, job)) {
        remove_row(consumer->db, attempt_key_of(consumer, job));
        remove_row(db, skr_dead_letters_receipt(letters, id, true));
        remove_row(db, skr_dead_letters_receipt(letters, id, false));
    }
    job->is_counted = false;
    job->is_stored = false;
}

static bool
becomes_retry(const struct job *job)
{
    return job->decision.disposition == SKR_RETRY_AFTER;
}

// Inserts the record of a dead letter whose handler records messages by itself,
// and deletes it: that waits for a transaction of the handler which is about to
// commit. SKR_DUPLICATE: the message is handled. With a failed table in another
// database *is_held says that a transaction holds the record: it is to be
// rolled back once the dead letter is stored there.
static enum skr_code
exclude_record(struct skr_consumer *consumer, const struct job *job,
               bool *is_held, struct skr_error *error)
{
    const struct skr_deduplication *records = consumer->records.table;
    const struct skr_id id = job->delivery.message.id;
    enum skr_code code = SKR_OK;
    *is_held = false;
    if (becomes_retry(job) || !job->has_id || job->handler == NULL ||
        job->facts.end == SKR_END_NOT_UNDERSTOOD ||
        !skr_child_records(job->handler->child))
        return SKR_OK;
    if (consumer->options.failed_database != NULL) {
        code = skr_consumer_connect_database(consumer, error);
        if (code == SKR_OK)
            code = skr_db_begin(consumer->db, SKR_BEGIN_WRITE, error);
        *is_held = code == SKR_OK;
    }
    if (code == SKR_OK)
        code = skr_deduplication_admit(records, skr_db_tx(consumer->db), id,
                                       job->recorded_name, error);
    return code == SKR_OK && !*is_held
               ? skr_deduplication_forget(records, skr_db_tx(consumer->db), id,
                                          error)
               : code;
}

// *is_of_record: an error is one of the deduplication table.
static enum skr_code
insert(struct skr_consumer *consumer, struct job *job, struct skr_db *db,
       bool *is_there, bool *is_of_record, struct skr_error *error)
{
    const struct skr_incoming *incoming = job->incoming;
    const struct skr_delivery_decision *decision = &job->decision;
    const struct skr_dead_letters *table = consumer->dead_letters.table;
    job->receipt =
        skr_dead_letters_receipt(table, key_of(job), becomes_retry(job));
    const struct skr_letter letter = {
        .headers = &incoming->headers,
        .raw_headers = incoming->raw_headers,
        .raw_headers_size = incoming->raw_headers_size,
        .body = incoming->body,
        .body_size = incoming->body_size,
        .is_unseen = job->exhaustion == SKR_STORING_FAILED,
        .has_id = job->has_id,
        .id = job->delivery.message.id,
        .came_before = incoming->redelivered,
        .receipt = job->receipt,
        .retries = job->retry_count +
                   (becomes_retry(job) && !decision->is_not_counted),
        .reason = &job->reason,
        .is_retry = becomes_retry(job),
        .delay_ms = decision->delay_ms,
    };
    bool is_held = false;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = exclude_record(consumer, job, &is_held, error);
    *is_of_record = code != SKR_OK;
    if (code == SKR_OK)
        code =
            skr_dead_letters_store(table, skr_db_tx(db), &consumer->batch.arena,
                                   &letter, is_there, error);
    code = skr_db_end(db, code, error);
    if (is_held)
        skr_db_rollback(consumer->db);
    return code;
}

static enum skr_code
try_store(struct skr_consumer *consumer, struct job *job, bool *is_there,
          struct skr_error *error)
{
    struct skr_db *db = NULL;
    bool is_of_record = false;
    enum skr_code code = skr_consumer_connect_failed(consumer, &db, error);
    if (code != SKR_OK)
        return code;
    if (!becomes_retry(job))
        skr_failpoint("consumer.storing");
    code = insert(consumer, job, db, is_there, &is_of_record, error);
    if (code == SKR_OK || code == SKR_DUPLICATE)
        return code;
    if (is_of_record && (code == SKR_MISSING || error->remedy == SKR_RECONNECT))
        skr_consumer_drop_database(consumer);
    if (code == SKR_MISSING && !is_of_record)
        return skr_consumer_fail_missing(consumer, error);
    skr_error_prefix(
        error, is_of_record ? "deduplication table %s" : "failed table %s",
        is_of_record ? consumer->options.deduplication_table
                     : consumer->options.failed_table);
    return code;
}

static enum skr_code
store(struct skr_consumer *consumer, struct job *job, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool is_there = false;
    for (int tries = 0; tries < 2; tries++) {
        code = try_store(consumer, job, &is_there, error);
        if (code != SKR_MISSING &&
            (code == SKR_OK || error->remedy != SKR_RECONNECT))
            break;
        // On connecting, a table that is gone is made where that is allowed.
        skr_consumer_drop_failed(consumer);
    }
    if (code == SKR_DUPLICATE) {
        const struct skr_error reason = job->reason;
        skr_job_find_handled(consumer, job, &reason);
        return SKR_OK;
    }
    if (code != SKR_OK)
        return code;
    job->is_stored = true;
    if (becomes_retry(job)) {
        skr_failpoint("consumer.retry_stored");
        consumer->sources.retry_again_ms = 0;
        return SKR_OK;
    }
    skr_failpoint("consumer.failed_stored");
    atomic_fetch_add(&consumer->tally.failed, 1);
    atomic_fetch_add(&consumer->budget.shared->failed, 1);
    if (!is_there && job->facts.end == SKR_END_UNHANDLED)
        skr_job_note_unhandled(consumer, job);
    else if (!is_there)
        skr_job_log_failed(consumer, job, SKR_LOG_WARNING);
    return SKR_OK;
}

// False: the table does not take it, or is in a pause.
static bool
store_or_pause(struct skr_consumer *consumer, struct job *job, bool *has_failed)
{
    struct dead_letters *letters = &consumer->dead_letters;
    struct skr_error problem = {0};
    int64_t start_ms = skr_clock_ms();
    if (start_ms < letters->again_ms)
        return false;
    if (store(consumer, job, &problem) == SKR_OK) {
        skr_backoff_reset(&letters->backoff);
        skr_trouble_end(&letters->trouble, &consumer->log,
                        SKR_TROUBLE_DEAD_LETTER, "consumer.keep_recovered",
                        consumer->options.name);
        return true;
    }
    skr_trouble_report(&letters->trouble, &consumer->log,
                       SKR_TROUBLE_DEAD_LETTER, "consumer.keep_trouble",
                       consumer->options.name, &problem);
    int64_t pause_ms = (skr_clock_ms() - start_ms) * PAUSE_FACTOR;
    letters->again_ms =
        start_ms + (pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS);
    *has_failed = true;
    return false;
}

// What the broker is not to deliver again by itself is stored before it is
// acknowledged, each row in a transaction of its own. A table or connection
// that is gone is made anew first, where that is possible. A job whose row
// cannot be written has that among its facts, and is decided again.
static void
write_rows(struct skr_consumer *consumer, struct job *jobs, size_t count)
{
    struct skr_backoff *backoff = &consumer->dead_letters.backoff;
    bool has_failed = false;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].decision.needs_row)
            jobs[i].facts.is_row_unwritable =
                !store_or_pause(consumer, &jobs[i], &has_failed);
    if (has_failed)
        skr_backoff_next(backoff);
    for (size_t i = 0; i < count; i++)
        if (jobs[i].facts.is_row_unwritable) {
            struct handler *handler = jobs[i].handler;
            if (jobs[i].decision.disposition == SKR_DEAD_LETTER &&
                handler != NULL)
                handler->failures.count -= handler->failures.count > 0;
            jobs[i].facts.row_wait_ms = backoff->pause_ms;
            decide(consumer, &jobs[i]);
        }
}

static void
set_settlement(struct job *job)
{
    static const enum skr_settlement settlements[] = {
        [SKR_ACK] = SKR_SETTLE_ACK,
        [SKR_DEAD_LETTER] = SKR_SETTLE_ACK,
        [SKR_RETRY_AFTER] = SKR_SETTLE_RETRY,
        [SKR_DEFER] = SKR_SETTLE_DEFER,
        [SKR_REQUEUE] = SKR_SETTLE_REQUEUE};
    struct skr_incoming *incoming = job->incoming;
    incoming->settlement = job->is_stored
                               ? SKR_SETTLE_ACK
                               : settlements[job->decision.disposition];
    incoming->delay_ms =
        incoming->settlement == SKR_SETTLE_ACK ? 0 : job->decision.delay_ms;
    if (incoming->settlement != SKR_SETTLE_RETRY)
        return;
    incoming->reason = job->reason;
    // Of one that is exhausted the headers tell why already.
    if (job->exhaustion != SKR_RETRIES_LEFT)
        skr_error_clear(&incoming->reason);
}

static void
finish(struct skr_consumer *consumer, struct job *job)
{
    const struct skr_delivery_decision *decision = &job->decision;
    bool is_retry =
        decision->disposition == SKR_RETRY_AFTER && !decision->is_not_counted;
    bool is_over = decision->disposition == SKR_ACK ||
                   decision->disposition == SKR_DEAD_LETTER;
    forget(consumer, job);
    // A retry that came to nothing is the next owner's business.
    if (job->incoming->was_lost)
        return;
    if (is_retry) {
        atomic_fetch_add(&consumer->tally.retried, 1);
        atomic_fetch_add(&consumer->budget.shared->failed, 1);
    }
    if (job->facts.end == SKR_END_UNHANDLED &&
        decision->disposition == SKR_ACK) {
        atomic_fetch_add(&consumer->tally.ignored, 1);
        skr_job_note_unhandled(consumer, job);
    }
    if (is_retry || is_over) {
        consumer->budget.taken++;
        atomic_fetch_add(&consumer->budget.shared->taken, 1);
    }
}

// The broker will deliver them again, although no handler is to blame.
static void
give_up(struct skr_consumer *consumer, struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].incoming->settlement == SKR_SETTLE_REQUEUE ||
            jobs[i].incoming->settlement == SKR_SETTLE_DEFER)
            forget(consumer, &jobs[i]);
}

// The broker is told until it has understood: what is not settled comes again
// with its tries raised, although no handler is to blame.
static enum skr_code
tell(struct skr_consumer *consumer, struct job *jobs, size_t count,
     struct skr_error *error)
{
    struct skr_broker *source = consumer->sources.current;
    for (;;) {
        skr_beat_wait();
        enum skr_code code =
            source->ops->settle(source, jobs[0].incoming, count, error);
        skr_beat_resume();
        if (code == SKR_OK)
            return SKR_OK;
        if (error->remedy != SKR_TRY_AGAIN ||
            skr_consumer_is_ending(consumer)) {
            skr_consumer_drop_source(consumer);
            give_up(consumer, jobs, count);
            return code;
        }
        skr_consumer_wait_out(consumer, error);
    }
}

// Requeued it would come again at once, uncounted, until a queue that counts
// for itself drops it.
static enum skr_code
settle_refused(struct skr_consumer *consumer, struct job *job,
               struct skr_error *error)
{
    job->facts.is_delay_refused = true;
    job->facts.is_row_unwritable = false;
    decide(consumer, job);
    write_rows(consumer, job, 1);
    set_settlement(job);
    return tell(consumer, job, 1, error);
}

enum skr_code
skr_jobs_settle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (jobs[i].phase != JOB_ENDED)
            set_end(consumer, &jobs[i], SKR_END_NOT_REACHED);
    write_rows(consumer, jobs, count);
    for (size_t i = 0; i < count; i++)
        set_settlement(&jobs[i]);
    if (count == 0 || consumer->sources.current == NULL) {
        give_up(consumer, jobs, count);
        return SKR_OK;
    }
    enum skr_code code = tell(consumer, jobs, count, error);
    if (code != SKR_OK)
        return code;
    skr_failpoint("consumer.acked");
    for (size_t i = 0; i < count; i++) {
        bool was_refused = jobs[i].incoming->was_refused;
        // Without its connection the rest comes again.
        if (was_refused && code == SKR_OK)
            code = settle_refused(consumer, &jobs[i], error);
        if (!was_refused || code == SKR_OK)
            finish(consumer, &jobs[i]);
    }
    return code;
}
