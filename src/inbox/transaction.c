// SPDX-License-Identifier: MIT
// One transaction: the deduplication rows and the handlers' effects commit
// together or not at all.

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "db/run.h"
#include "inbox/inside.h"
#include "message/id.h"

enum {
    ADMITTED_AT_ONCE = 64,
    APART_AFTER_DUPLICATES = 16,
    FEWEST_DUPLICATES = 10,
    DUPLICATES_MS = 2 * 60 * 1000,
};

static enum skr_code
admit(struct skr_consumer *consumer, struct job *job, struct skr_error *error)
{
    if (!job->has_id) {
        job->state = JOB_ADMITTED;
        return SKR_OK;
    }
    enum skr_code code = skr_deduplication_admit(
        consumer->deduplication, skr_db_tx(consumer->db),
        job->delivery.message.id, job->recorded_name, error);
    if (code == SKR_DUPLICATE) {
        job->state = JOB_SKIPPED;
        return SKR_OK;
    }
    if (code == SKR_OK)
        job->state = JOB_ADMITTED;
    return code;
}

// Whether it may be recorded before others are handled: if one of those ended
// the transaction, this one would be recorded and never handled. SQL that calls
// no procedure cannot.
static bool
can_wait_recorded(const struct job *job)
{
    return job->has_id && !job->is_spent && !job->was_run &&
           job->handler->sql != NULL &&
           !skr_sql_handler_calls(job->handler->sql);
}

static bool
may_admit_together(struct skr_consumer *consumer, const struct job *jobs,
                   size_t count)
{
    if (count < 2 || consumer->hooks.count > 0)
        return false;
    if (consumer->apart_left > 0) {
        consumer->apart_left--;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (jobs[i].state == JOB_READY && !can_wait_recorded(&jobs[i]))
            return false;
    return true;
}

static enum skr_code
admit_all(struct skr_consumer *consumer, struct job *jobs, size_t count,
          struct skr_error *error)
{
    struct skr_admission all[ADMITTED_AT_ONCE];
    enum skr_code code = SKR_OK;
    size_t found = 0;
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        if (jobs[i].state == JOB_READY) {
            all[found++] =
                (struct skr_admission){.id = jobs[i].delivery.message.id,
                                       .message_name = jobs[i].recorded_name};
            jobs[i].state = JOB_ADMITTED;
        }
        if (found < ADMITTED_AT_ONCE && i + 1 < count)
            continue;
        code = skr_deduplication_admit_all(consumer->deduplication,
                                           skr_db_tx(consumer->db), all, found,
                                           error);
        found = 0;
    }
    return code;
}

// Where there are no duplicates, which is the rule, a batch is recorded in a
// few round trips. Where there are, nothing has happened yet, and it begins
// again to be recorded message by message.
static enum skr_code
admit_together(struct skr_consumer *consumer, struct job *jobs, size_t count,
               struct skr_error *error)
{
    if (!may_admit_together(consumer, jobs, count))
        return SKR_OK;
    enum skr_code code = admit_all(consumer, jobs, count, error);
    if (code != SKR_DUPLICATE)
        return code;
    consumer->apart_left = APART_AFTER_DUPLICATES;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].state == JOB_ADMITTED)
            jobs[i].state = JOB_READY;
    skr_error_clear(error);
    skr_db_rollback(consumer->db);
    return skr_db_begin(consumer->db, SKR_BEGIN_GUARDED, error);
}

// Recorded with others, and not handled after all.
static enum skr_code
take_back(struct skr_consumer *consumer, struct job *job,
          struct skr_error *error)
{
    if (job->state != JOB_ADMITTED)
        return SKR_OK;
    job->state = JOB_READY;
    return skr_deduplication_forget(consumer->deduplication,
                                    skr_db_tx(consumer->db),
                                    job->delivery.message.id, error);
}

// A function that wants to try again may have met a deadlock or a connection
// that was cut. Whether it did, the driver is asked.
static void
examine(struct skr_consumer *consumer, struct skr_error *reason)
{
    struct skr_error found = {0};
    struct skr_tx tx = skr_db_tx(consumer->db);
    enum skr_code code = tx.ops->check(tx, &found);
    if (code == SKR_OK)
        code = skr_sql_run(tx, "SELECT 1", SKR_NO_VALUES, NULL, &found);
    if (code == SKR_NO_TRANSACTION || code == SKR_CONFLICT) {
        reason->code = SKR_CONFLICT;
        reason->remedy = SKR_TRY_AGAIN;
    } else if (code != SKR_OK && found.remedy == SKR_RECONNECT) {
        reason->code = code;
        reason->remedy = SKR_RECONNECT;
    }
}

// What an SQL handler says is the driver's word. Of a function's, which may be
// anything, only the text counts.
static void
explain(struct skr_consumer *consumer, const struct job *job,
        struct attempt *attempt)
{
    struct skr_error *reason = &attempt->reason;
    reason->code = SKR_REFUSED;
    reason->remedy = SKR_GIVE_UP;
    reason->native[0] = '\0';
    if (reason->text[0] == '\0')
        skr_fail(reason, SKR_REFUSED, SKR_GIVE_UP,
                 "the handler of %.100s said %s", job->handler->message_name,
                 attempt->verdict == SKR_REJECT ? "reject" : "retry");
    if (attempt->verdict == SKR_RETRY)
        examine(consumer, reason);
}

static enum skr_verdict
refuse_spent(const struct job *job, struct skr_error *reason)
{
    skr_fail(reason, SKR_TIMEOUT, SKR_GIVE_UP,
             "not handled again after %u deliveries; what became of the last: "
             "%.200s",
             (unsigned)job->retry_count,
             job->last_error == NULL ? "nothing is known" : job->last_error);
    return SKR_REJECT;
}

// One that was recorded a moment ago and is not any more has not been run.
static bool
was_run(const struct job *job, struct attempt *attempt)
{
    if (job->was_run)
        return true;
    attempt->verdict = SKR_RETRY;
    skr_fail(&attempt->reason, SKR_CONFLICT, SKR_TRY_AGAIN,
             "the record of a message that was handled is gone");
    return false;
}

// Ends the attempt at this job, unless its handler accepts it.
static bool
handle(struct skr_consumer *consumer, struct job *job, struct attempt *attempt)
{
    struct skr_tx tx = skr_db_tx(consumer->db);
    skr_error_clear(&attempt->reason);
    attempt->step = STEP_HANDLE;
    if (job->is_spent) {
        attempt->verdict = refuse_spent(job, &attempt->reason);
        return false;
    }
    if (job->handler->is_outside)
        return was_run(job, attempt);
    bool is_our_word = false;
    attempt->verdict =
        skr_job_run(consumer, job, tx, &is_our_word, &attempt->reason);
    if (attempt->verdict != SKR_ACCEPT) {
        if (!is_our_word)
            explain(consumer, job, attempt);
        return false;
    }
    // Without a transaction the next deduplication row would commit by itself
    // and outlive a handler that fails.
    skr_error_clear(&attempt->reason);
    attempt->step = STEP_COMMIT;
    if (tx.ops->check(tx, &attempt->reason) == SKR_OK)
        return true;
    skr_error_prefix(&attempt->reason,
                     "the handler of %.100s ended the "
                     "transaction",
                     job->handler->message_name);
    return false;
}

static bool
run_jobs(struct skr_consumer *consumer, struct job *jobs, size_t count,
         struct attempt *attempt)
{
    attempt->step = STEP_BEGIN;
    // Whatever a handler, or the server, does to it: nothing is acknowledged
    // that was not committed in the very transaction that begins here.
    if (skr_db_begin(consumer->db, SKR_BEGIN_GUARDED, &attempt->reason) !=
        SKR_OK)
        return false;
    attempt->step = STEP_ADMIT;
    if (admit_together(consumer, jobs, count, &attempt->reason) != SKR_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].state != JOB_READY && jobs[i].state != JOB_ADMITTED)
            continue;
        attempt->step = STEP_ADMIT;
        // The broker waits. What has run already is recorded all the same.
        if (i > 0 && !jobs[i].was_run && skr_consumer_is_late(consumer)) {
            if (take_back(consumer, &jobs[i], &attempt->reason) != SKR_OK)
                return false;
            continue;
        }
        if (jobs[i].state == JOB_READY &&
            admit(consumer, &jobs[i], &attempt->reason) != SKR_OK)
            return false;
        if (jobs[i].state == JOB_ADMITTED &&
            !handle(consumer, &jobs[i], attempt))
            return false;
        // Its verdict is known: deliveries of it need not be counted any more.
        attempt->step = STEP_ADMIT;
        if (jobs[i].is_counted &&
            skr_attempts_remove(consumer->attempts, skr_db_tx(consumer->db),
                                jobs[i].attempt_key,
                                &attempt->reason) != SKR_OK)
            return false;
    }
    attempt->step = STEP_COMMIT;
    skr_failpoint("consumer.handled");
    return skr_db_commit(consumer->db, &attempt->reason) == SKR_OK;
}

static void
log_over(const struct skr_consumer *consumer, const struct job *job,
         const char *event)
{
    if (consumer->log.write == NULL)
        return;
    char id[SKR_ID_TEXT_SIZE];
    skr_log(&consumer->log, SKR_LOG_DEBUG, event,
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_TEXT("message", job->delivery.message.name),
            SKR_LOG_TEXT("id", skr_job_format_id(job, id)));
}

// Duplicates are rare. A consumer that finds nothing else shares its table with
// another that gets the same messages: each is acknowledged unhandled here.
static void
note_duplicate(struct skr_consumer *consumer, bool is_duplicate)
{
    if (!is_duplicate) {
        consumer->duplicates_in_a_row = 0;
        consumer->has_said_duplicates = false;
        return;
    }
    int64_t now_ms = skr_clock_ms();
    uint32_t longest_ms = consumer->extras.duplicates_ms;
    if (consumer->duplicates_in_a_row++ == 0)
        consumer->duplicates_from_ms = now_ms;
    int64_t lasts_ms = now_ms - consumer->duplicates_from_ms;
    if (consumer->has_said_duplicates ||
        consumer->duplicates_in_a_row < FEWEST_DUPLICATES ||
        lasts_ms < (longest_ms == 0 ? DUPLICATES_MS : longest_ms))
        return;
    consumer->has_said_duplicates = true;
    skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.only_duplicates",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_NUMBER("messages", consumer->duplicates_in_a_row),
            SKR_LOG_NUMBER("seconds", (uint64_t)(lasts_ms / 1000)),
            SKR_LOG_TEXT("table", consumer->options.deduplication_table),
            SKR_LOG_TEXT("advice",
                         "if another consumer gets the same messages and "
                         "records them in this table, give this one a table of "
                         "its own: deduplication.table_name of its transport, "
                         "and read_default: false for what the other has "
                         "recorded before"));
}

static void
note_latency(struct skr_consumer *consumer, const struct job *job)
{
    int64_t made_us = skr_id_time_us(job->delivery.message.id);
    if (made_us > 0)
        skr_histogram_add(&consumer->latency, skr_clock_wall_us() - made_us);
}

static void
close_job(struct skr_consumer *consumer, struct job *job)
{
    if (job->state != JOB_ADMITTED && job->state != JOB_SKIPPED)
        return;
    bool was_handled = job->state == JOB_ADMITTED || job->may_be_committed;
    atomic_fetch_add(was_handled ? &consumer->handled : &consumer->duplicates,
                     1);
    log_over(consumer, job,
             was_handled ? "consumer.handled" : "consumer.duplicate");
    if (was_handled)
        note_latency(consumer, job);
    note_duplicate(consumer, !was_handled);
    job->state = JOB_OVER;
    job->is_counted = false;
}

static void
reopen_job(struct job *job, const struct attempt *attempt)
{
    if (job->state != JOB_ADMITTED && job->state != JOB_SKIPPED)
        return;
    if (job->state == JOB_ADMITTED && attempt->step == STEP_COMMIT)
        job->may_be_committed = true;
    job->state = JOB_READY;
}

void
skr_jobs_attempt(struct skr_consumer *consumer, struct job *jobs, size_t count,
                 struct attempt *attempt)
{
    *attempt = (struct attempt){.verdict = SKR_ACCEPT};
    attempt->committed = run_jobs(consumer, jobs, count, attempt);
    if (attempt->committed) {
        skr_failpoint("consumer.committed");
        for (size_t i = 0; i < count; i++)
            close_job(consumer, &jobs[i]);
        return;
    }
    skr_db_rollback(consumer->db);
    for (size_t i = 0; i < count; i++)
        reopen_job(&jobs[i], attempt);
}
