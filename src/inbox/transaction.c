// SPDX-License-Identifier: MIT
// Handles jobs: records, invokes and commits, first all jobs together, then one
// by one until each has ended. What is known when that fails is judged here.

#include "inbox/transaction.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "db/run.h"
#include "inbox/child.h"
#include "inbox/connect.h"
#include "inbox/consumer_internals.h"
#include "inbox/settle.h"
#include "inbox/sql_handler.h"
#include "message/id.h"

#include <string.h>

enum {
    ADMITTED_AT_ONCE = 64,
    APART_AFTER_DUPLICATES = 16,
    FEWEST_DUPLICATES = 10,
    DUPLICATES_MS = 2 * 60 * 1000,
    FIRST_PAUSE_MS = 10,
    // Handlers without a transaction run for so long before what they accepted
    // is recorded.
    ROUND_MS = 100,
};

static enum skr_code
admit(struct skr_consumer *consumer, struct job *job, struct skr_error *error)
{
    enum skr_code code =
        job->has_id ? skr_deduplication_admit(
                          consumer->records.table, skr_db_tx(consumer->db),
                          job->delivery.message.id, job->recorded_name, error)
                    : SKR_OK;
    if (code != SKR_OK && code != SKR_DUPLICATE)
        return code;
    job->phase = code == SKR_OK ? JOB_RECORDED : JOB_DUPLICATE;
    return SKR_OK;
}

// Whether it may be recorded before others are handled: if one of those ended
// the transaction, this one would be recorded and never handled. SQL that calls
// no procedure cannot.
static bool
can_wait_recorded(const struct job *job)
{
    return job->has_id && job->exhaustion == SKR_RETRIES_LEFT &&
           !job->was_run && job->handler->sql != NULL &&
           !skr_sql_handler_calls(job->handler->sql);
}

static bool
may_admit_together(struct skr_consumer *consumer, const struct job *jobs,
                   size_t count)
{
    if (count < 2 || consumer->hooks.count > 0)
        return false;
    if (consumer->records.apart_left > 0) {
        consumer->records.apart_left--;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (jobs[i].phase == JOB_PENDING && !can_wait_recorded(&jobs[i]))
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
        if (jobs[i].phase == JOB_PENDING) {
            all[found++] =
                (struct skr_admission){.id = jobs[i].delivery.message.id,
                                       .message_name = jobs[i].recorded_name};
            jobs[i].phase = JOB_RECORDED;
        }
        if (found < ADMITTED_AT_ONCE && i + 1 < count)
            continue;
        code = skr_deduplication_admit_all(consumer->records.table,
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
    consumer->records.apart_left = APART_AFTER_DUPLICATES;
    for (size_t i = 0; i < count; i++)
        if (jobs[i].phase == JOB_RECORDED)
            jobs[i].phase = JOB_PENDING;
    skr_error_clear(error);
    skr_db_rollback(consumer->db);
    return skr_db_begin(consumer->db, SKR_BEGIN_GUARDED, error);
}

// Recorded with others, and not handled after all.
static enum skr_code
take_back(struct skr_consumer *consumer, struct job *job,
          struct skr_error *error)
{
    if (job->phase != JOB_RECORDED)
        return SKR_OK;
    job->phase = JOB_PENDING;
    return skr_deduplication_forget(consumer->records.table,
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

static enum skr_verdict
refuse_exhausted(const struct job *job, struct skr_error *reason)
{
    skr_fail(reason, SKR_TIMEOUT, SKR_GIVE_UP,
             "not handled again after %u deliveries; what became of the last: "
             "%.200s",
             (unsigned)job->retry_count,
             job->last_error == NULL ? "nothing is known" : job->last_error);
    return SKR_REJECT;
}

// A job whose record was found, and is not any more, has not been run. Its
// attempt fails as its handler's step would, and is tried again.
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
    attempt->step = SKR_STEP_HANDLE;
    if (job->exhaustion != SKR_RETRIES_LEFT) {
        attempt->verdict = refuse_exhausted(job, &attempt->reason);
        return false;
    }
    if (job->handler->wants_no_tx)
        return was_run(job, attempt);
    skr_job_invoke(consumer, job, tx, attempt);
    if (attempt->verdict != SKR_ACCEPT) {
        if (attempt->verdict == SKR_RETRY &&
            attempt->speaker == SKR_SPEAKER_FUNCTION)
            examine(consumer, &attempt->reason);
        return false;
    }
    // Without a transaction the next deduplication row would commit by itself
    // and outlive a handler that fails.
    skr_error_clear(&attempt->reason);
    attempt->step = SKR_STEP_COMMIT;
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
    attempt->step = SKR_STEP_BEGIN;
    // Whatever a handler, or the server, does to it: nothing is acknowledged
    // that was not committed in the very transaction that begins here.
    if (skr_db_begin(consumer->db, SKR_BEGIN_GUARDED, &attempt->reason) !=
        SKR_OK)
        return false;
    attempt->step = SKR_STEP_RECORD;
    if (admit_together(consumer, jobs, count, &attempt->reason) != SKR_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].phase != JOB_PENDING && jobs[i].phase != JOB_RECORDED)
            continue;
        attempt->step = SKR_STEP_RECORD;
        // The broker waits. What has run already is recorded all the same.
        if (i > 0 && !jobs[i].was_run && skr_consumer_is_late(consumer)) {
            if (take_back(consumer, &jobs[i], &attempt->reason) != SKR_OK)
                return false;
            continue;
        }
        if (jobs[i].phase == JOB_PENDING &&
            admit(consumer, &jobs[i], &attempt->reason) != SKR_OK)
            return false;
        if (jobs[i].phase == JOB_RECORDED &&
            !handle(consumer, &jobs[i], attempt))
            return false;
        // Its verdict is known: deliveries of it need not be counted any more.
        attempt->step = SKR_STEP_RECORD;
        if (jobs[i].is_counted &&
            skr_attempts_remove(skr_db_tx(consumer->db), jobs[i].attempt_key,
                                NULL, &attempt->reason) != SKR_OK)
            return false;
    }
    attempt->step = SKR_STEP_COMMIT;
    skr_failpoint("consumer.handled");
    return skr_db_commit(consumer->db, &attempt->reason) == SKR_OK;
}

// Duplicates are rare. A consumer that finds nothing else shares its table with
// another that gets the same messages: each is acknowledged unhandled here.
static void
note_duplicate(struct skr_consumer *consumer, bool is_duplicate)
{
    struct records *records = &consumer->records;
    if (!is_duplicate) {
        records->duplicates_in_a_row = 0;
        records->has_logged_duplicates = false;
        return;
    }
    int64_t now_ms = skr_clock_ms();
    uint32_t longest_ms = consumer->extras.duplicates_ms;
    if (records->duplicates_in_a_row++ == 0)
        records->duplicates_from_ms = now_ms;
    int64_t lasts_ms = now_ms - records->duplicates_from_ms;
    if (records->has_logged_duplicates ||
        records->duplicates_in_a_row < FEWEST_DUPLICATES ||
        lasts_ms < (longest_ms == 0 ? DUPLICATES_MS : longest_ms))
        return;
    records->has_logged_duplicates = true;
    skr_log(&consumer->log, SKR_LOG_WARNING, "consumer.only_duplicates",
            SKR_LOG_TEXT("name", consumer->options.name),
            SKR_LOG_NUMBER("messages", records->duplicates_in_a_row),
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
        skr_histogram_add(&consumer->tally.latency,
                          skr_clock_wall_us() - made_us);
}

// Its handler was to record it, and was called.
static bool
was_recorded_by_handler(const struct job *job)
{
    return job->was_run && job->has_id &&
           skr_child_records(job->handler->child);
}

// A command does otherwise than it says, or than is said of it, about records.
static void
note_unsaid(const struct skr_consumer *consumer, const struct job *job)
{
    struct handler *handler = job->handler;
    bool is_there = job->phase == JOB_DUPLICATE;
    if (!job->was_run || !job->has_id || handler->child == NULL ||
        job->may_be_committed || handler->has_logged_record ||
        is_there == skr_child_records(handler->child))
        return;
    handler->has_logged_record = true;
    skr_log(&consumer->log, SKR_LOG_WARNING,
            is_there ? "consumer.unsaid_record" : "consumer.no_record",
            SKR_LOG_JOB(consumer, job),
            SKR_LOG_TEXT("table", consumer->options.deduplication_table),
            SKR_LOG_TEXT(
                "advice",
                is_there
                    ? "when the command had accepted a message its record was "
                      "there, so it counts as a duplicate: a command that "
                      "records messages itself, as by handle() of a client, "
                      "needs deduplicates: true; see skirnir-handler(7)"
                    : "the command says that it deduplicates, and accepted a "
                      "message without a record of it in this table: its "
                      "effects may happen more than once; see "
                      "skirnir-handler(7)"));
}

static void
close_job(struct skr_consumer *consumer, struct job *job)
{
    if (job->phase != JOB_RECORDED && job->phase != JOB_DUPLICATE)
        return;
    bool was_handled = job->phase == JOB_RECORDED || job->may_be_committed ||
                       was_recorded_by_handler(job);
    note_unsaid(consumer, job);
    atomic_fetch_add(was_handled ? &consumer->tally.handled
                                 : &consumer->tally.duplicates,
                     1);
    if (consumer->log.write != NULL)
        skr_log(&consumer->log, SKR_LOG_DEBUG,
                was_handled ? "consumer.handled" : "consumer.duplicate",
                SKR_LOG_JOB(consumer, job));
    if (was_handled)
        note_latency(consumer, job);
    note_duplicate(consumer, !was_handled);
    job->is_counted = false;
    skr_job_end(consumer, job,
                was_handled ? SKR_END_COMMITTED : SKR_END_DUPLICATE);
}

// Runs the jobs that are pending in one transaction: all of them, or none.
static void
attempt_jobs(struct skr_consumer *consumer, struct job *jobs, size_t count,
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
    for (size_t i = 0; i < count; i++) {
        bool was_recorded = jobs[i].phase == JOB_RECORDED;
        if (was_recorded && attempt->step == SKR_STEP_COMMIT)
            jobs[i].may_be_committed = true;
        if (was_recorded || jobs[i].phase == JOB_DUPLICATE)
            jobs[i].phase = JOB_PENDING;
    }
}

// What is unclear is found out.
static enum skr_cause
find_cause(const struct skr_consumer *consumer, const struct job *job,
           const struct attempt *attempt)
{
    const struct skr_error *reason = &attempt->reason;
    enum skr_cause cause = skr_find_cause(&(struct skr_failed_try){
        .step = attempt->step,
        .verdict = attempt->verdict,
        .speaker = attempt->speaker,
        .code = reason->code,
        .remedy = reason->remedy,
    });
    if (cause != SKR_CAUSE_UNCLEAR)
        return cause;
    return skr_sql_handler_is_broken(job->handler->sql, skr_db_tx(consumer->db),
                                     reason)
               ? SKR_CAUSE_HANDLER
               : SKR_CAUSE_MESSAGE;
}

// Looks for a record by writing one, which waits for a transaction that has
// written it and is about to commit.
static enum skr_code
find_record(struct skr_consumer *consumer, struct job *job, bool *found,
            struct skr_error *error)
{
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    if (code == SKR_OK)
        code = skr_db_begin(consumer->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_deduplication_admit(
        consumer->records.table, skr_db_tx(consumer->db),
        job->delivery.message.id, job->recorded_name, error);
    *found = code == SKR_DUPLICATE;
    skr_db_rollback(consumer->db);
    return *found ? SKR_OK : code;
}

void
skr_job_find_handled(struct skr_consumer *consumer, struct job *job,
                     const struct skr_error *reason)
{
    skr_log(&consumer->log, SKR_LOG_INFO, "consumer.record_found",
            SKR_LOG_JOB(consumer, job), SKR_LOG_TEXT("error", reason->text));
    job->was_run = true;
    job->phase = JOB_DUPLICATE;
    close_job(consumer, job);
}

// A handler that records its messages by itself may have committed before it
// failed: then the message is handled. While that is not known, nothing becomes
// of the message.
static void
fail_job(struct skr_consumer *consumer, struct job *job, enum skr_end end,
         const struct attempt *attempt)
{
    struct skr_error problem = {0};
    bool is_recorded = false;
    if (job->has_id && skr_child_records(job->handler->child) &&
        find_record(consumer, job, &is_recorded, &problem) != SKR_OK) {
        if (problem.remedy == SKR_RECONNECT)
            skr_consumer_drop_database(consumer);
        skr_error_prefix(&problem, "whether the handler of %.100s recorded",
                         job->handler->message_name);
        skr_handler_set_down(consumer, job, &problem);
        return;
    }
    if (is_recorded)
        skr_job_find_handled(consumer, job, &attempt->reason);
    else
        skr_job_fail(consumer, job, end, attempt);
}

// SKR_END_NONE: it is tried again. Otherwise it has ended, but for one that
// waits for the database, as all do.
static enum skr_end
judge(struct skr_consumer *consumer, struct job *job, struct attempt *attempt,
      unsigned *conflicts, unsigned *losses)
{
    enum skr_cause cause = find_cause(consumer, job, attempt);
    unsigned times = 1;
    if (cause == SKR_CAUSE_CONFLICT)
        times = ++*conflicts;
    if (cause == SKR_CAUSE_CONNECTION) {
        skr_consumer_drop_database(consumer);
        times = ++*losses;
    }
    enum skr_end end = skr_end_of_cause(cause, attempt->step, times);
    if (end == SKR_END_HANDLER_FAILED && job->exhaustion != SKR_RETRIES_LEFT)
        end = SKR_END_RETRIES_EXHAUSTED;
    if (end == SKR_END_HANDLER_DOWN) {
        skr_error_prefix(&attempt->reason, "the handler of %.100s",
                         job->handler->message_name);
        skr_handler_set_down(consumer, job, &attempt->reason);
    } else if (end != SKR_END_NONE && end != SKR_END_DATABASE_AWAY) {
        fail_job(consumer, job, end, attempt);
    }
    return end;
}

static enum skr_code
handle_alone(struct skr_consumer *consumer, struct job *job,
             struct skr_error *error)
{
    struct attempt attempt;
    unsigned conflicts = 0, losses = 0;
    for (;;) {
        enum skr_code code = skr_consumer_connect_database(consumer, error);
        if (code != SKR_OK)
            return code;
        attempt_jobs(consumer, job, 1, &attempt);
        if (attempt.committed)
            return SKR_OK;
        enum skr_end end = judge(consumer, job, &attempt, &conflicts, &losses);
        if (end != SKR_END_NONE)
            return end == SKR_END_DATABASE_AWAY
                       ? skr_fail_with(error, &attempt.reason)
                       : SKR_OK;
        // A stop leaves the job pending: it has not been reached.
        if (skr_clock_sleep(consumer->stop_fd,
                            (int64_t)FIRST_PAUSE_MS << (conflicts + losses)))
            return SKR_OK;
    }
}

static enum skr_code
handle_jobs(struct skr_consumer *consumer, struct job *jobs, size_t count,
            struct skr_error *error)
{
    size_t pending = 0;
    for (size_t i = 0; i < count; i++)
        pending += jobs[i].phase == JOB_PENDING;
    if (pending > 1) {
        struct attempt attempt;
        enum skr_code code = skr_consumer_connect_database(consumer, error);
        if (code != SKR_OK)
            return code;
        attempt_jobs(consumer, jobs, count, &attempt);
        if (attempt.committed)
            return SKR_OK;
        if (attempt.reason.remedy == SKR_RECONNECT)
            skr_consumer_drop_database(consumer);
        else if (attempt.step == SKR_STEP_BEGIN)
            return skr_fail_with(error, &attempt.reason);
        skr_log(&consumer->log, SKR_LOG_DEBUG, "consumer.replay",
                SKR_LOG_TEXT("name", consumer->options.name),
                SKR_LOG_NUMBER("deliveries", count),
                SKR_LOG_TEXT("error", attempt.reason.text));
    }
    for (size_t i = 0; i < count; i++) {
        skr_jobs_wait_for_handlers(consumer, &jobs[i], 1);
        if (jobs[i].phase != JOB_PENDING)
            continue;
        // What has run already is recorded, or it would run again.
        if (!jobs[i].was_run && (skr_consumer_is_stopping(consumer) ||
                                 skr_consumer_is_late(consumer)))
            continue;
        enum skr_code code = handle_alone(consumer, &jobs[i], error);
        if (code != SKR_OK) {
            consumer->batch.alone_left = count;
            return code;
        }
    }
    return SKR_OK;
}

// The first of two equal messages that came together was accepted just now.
static bool
was_run_before(const struct job *jobs, const struct job *job)
{
    for (const struct job *other = jobs; other < job; other++)
        if (other->was_run && other->has_id &&
            memcmp(&other->delivery.message.id, &job->delivery.message.id,
                   sizeof(struct skr_id)) == 0)
            return true;
    return false;
}

static enum skr_code
is_known(struct skr_consumer *consumer, const struct job *jobs,
         const struct job *job, bool *known, struct skr_error *error)
{
    *known = job->has_id && was_run_before(jobs, job);
    if (*known || !job->has_id)
        return SKR_OK;
    enum skr_code code = skr_consumer_connect_database(consumer, error);
    if (code == SKR_OK)
        code = skr_deduplication_find(consumer->records.table,
                                      skr_db_tx(consumer->db),
                                      job->delivery.message.id, known, error);
    return code;
}

static enum skr_code
run(struct skr_consumer *consumer, struct job *job, struct skr_error *error)
{
    struct attempt attempt = {.step = SKR_STEP_HANDLE};
    skr_job_invoke(consumer, job, (struct skr_tx){0}, &attempt);
    if (attempt.verdict == SKR_ACCEPT) {
        job->was_run = true;
        skr_failpoint("consumer.ran_outside");
        return SKR_OK;
    }
    enum skr_end end =
        skr_end_of_cause(find_cause(consumer, job, &attempt), attempt.step, 1);
    if (end == SKR_END_NOT_REACHED)
        return skr_fail_with(error, &attempt.reason);
    if (end == SKR_END_HANDLER_DOWN)
        skr_handler_set_down(consumer, job, &attempt.reason);
    else
        fail_job(consumer, job, end, &attempt);
    return SKR_OK;
}

static bool
wants_to_run(const struct job *job)
{
    return job->phase == JOB_PENDING && job->handler->wants_no_tx &&
           !job->was_run && job->exhaustion == SKR_RETRIES_LEFT;
}

// Whether one before it in its partition has to be handled first: the
// transaction that does so comes later.
static bool
is_behind(const struct job *jobs, const struct job *job)
{
    bool runs = wants_to_run(job);
    if (job->incoming->partition == 0 || job->was_run)
        return false;
    for (const struct job *other = jobs; other < job; other++)
        if (other->incoming->partition == job->incoming->partition &&
            (other->phase == JOB_BLOCKED ||
             (runs && other->phase == JOB_PENDING &&
              !other->handler->wants_no_tx)))
            return true;
    return false;
}

// Handlers that want no transaction, as every process, run first; what they
// accepted stays pending, to be recorded afterwards together with other
// messages. What did not find time in this round, or has one before it in its
// partition that the transaction is to handle, is blocked, and has_more says
// so. An error is trouble that no message has caused.
static enum skr_code
run_without_tx(struct skr_consumer *consumer, struct job *jobs, size_t count,
               bool *has_more, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    int64_t end_ms = skr_clock_ms() + ROUND_MS;
    bool has_run = false, has_behind = false;
    *has_more = false;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        skr_jobs_wait_for_handlers(consumer, &jobs[i], 1);
        if (jobs[i].phase == JOB_BLOCKED)
            jobs[i].phase = JOB_PENDING;
        if (jobs[i].phase == JOB_PENDING && is_behind(jobs, &jobs[i])) {
            jobs[i].phase = JOB_BLOCKED;
            has_behind = true;
        }
        if (!wants_to_run(&jobs[i]))
            continue;
        if (code == SKR_OK && !*has_more)
            *has_more = (has_run && skr_clock_ms() >= end_ms) ||
                        skr_consumer_is_stopping(consumer);
        if (code == SKR_OK && !*has_more)
            code = is_known(consumer, jobs, &jobs[i], &known, error);
        if (code == SKR_OK && !*has_more && !known) {
            code = run(consumer, &jobs[i], error);
            has_run = true;
        }
        if (code != SKR_OK || *has_more)
            jobs[i].phase = JOB_BLOCKED;
    }
    *has_more = *has_more || has_behind;
    if (code != SKR_OK && error->remedy == SKR_RECONNECT)
        skr_consumer_drop_database(consumer);
    return code;
}

// Handlers without a transaction go before the transaction that records them, a
// few at a time: the longer a record waits, the more a crash repeats.
static enum skr_code
handle_all(struct skr_consumer *consumer, struct job *jobs, size_t count,
           struct skr_error *error)
{
    bool has_more = false;
    do {
        struct skr_error trouble = {0};
        enum skr_code ran =
            run_without_tx(consumer, jobs, count, &has_more, &trouble);
        enum skr_code code = handle_jobs(consumer, jobs, count, error);
        if (code != SKR_OK)
            return code;
        if (ran != SKR_OK)
            return skr_fail_with(error, &trouble);
    } while (has_more && !skr_consumer_is_stopping(consumer) &&
             !skr_consumer_is_late(consumer));
    return SKR_OK;
}

enum skr_code
skr_jobs_handle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error)
{
    struct skr_error ignored = {0};
    enum skr_code code = handle_all(consumer, jobs, count, error);
    for (size_t i = 0; code != SKR_OK && i < count; i++)
        if (jobs[i].phase != JOB_ENDED)
            skr_job_end(consumer, &jobs[i], SKR_END_DATABASE_AWAY);
    enum skr_code settled = skr_jobs_settle(consumer, jobs, count,
                                            code == SKR_OK ? error : &ignored);
    return code == SKR_OK ? settled : code;
}
