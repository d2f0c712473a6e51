// SPDX-License-Identifier: MIT
// A delivery in the consumer's hand: what it is, how far it has come, and what
// becomes of it. Its way is told in decide.h.

#ifndef SKR_INBOX_JOB_H
#define SKR_INBOX_JOB_H

#include "broker/broker.h"
#include "inbox/decide.h"

struct handler;

enum job_phase {
    JOB_PENDING,    // to be handled
    JOB_BLOCKED,    // to be handled when those before it have been recorded
    JOB_RECORDED,   // in a transaction that is not committed yet
    JOB_DUPLICATE,  // found to be recorded; likewise
    JOB_ENDED,      // facts and decision are set
};

struct job {
    struct skr_incoming *incoming;
    struct skr_delivery delivery;
    struct handler *handler;    // NULL: none, or the message was not understood
    const char *recorded_name;  // in the deduplication row
    uint32_t retry_count;
    bool has_id;  // without one nothing tells whether it came before
    enum job_phase phase;
    enum skr_exhaustion exhaustion;
    const char *last_error;  // of one that is exhausted; NULL: unknown
    // A transaction that held it may have been committed without our knowing:
    // a duplicate then means that it was.
    bool may_be_committed;
    // Its handler has run without a transaction and accepted it: to be
    // recorded.
    bool was_run;
    // Its attempt was counted under this key, and the row is still there.
    bool is_counted;
    struct skr_id attempt_key;
    struct skr_delivery_facts facts;
    struct skr_delivery_decision decision;
    // The row that the decision needs is written, and a receipt under this key
    // says so until the broker has heard of it.
    bool is_stored;
    struct skr_id receipt;
    struct skr_error reason;  // of what is not acknowledged
};

// What came of one try to handle one job, or several in one transaction.
struct attempt {
    bool committed;
    enum skr_step step;        // where it ended, if not committed
    enum skr_verdict verdict;  // of SKR_STEP_HANDLE, as speaker
    enum skr_speaker speaker;
    struct skr_error reason;
};

// decode.c: fills a job of its delivery. The only errors are the consumer's
// own; a delivery that cannot be understood has ended.
SKR_MUST_CHECK enum skr_code
skr_job_decode(struct skr_consumer *consumer, struct job *job,
               struct skr_error *error);
// decode.c: sets exhaustion and last_error, by retry_count.
SKR_MUST_CHECK enum skr_code
skr_job_find_exhaustion(struct skr_consumer *consumer, struct job *job,
                        struct skr_error *error);
// decode.c: the message's id as text, "" where it has none.
const char *
skr_job_format_id(const struct job *job, char text[SKR_ID_TEXT_SIZE]);
// What each line of the log tells of a message. Without a name it was not
// understood.
#define SKR_LOG_JOB(consumer, job)                                   \
    SKR_LOG_TEXT("name", (consumer)->options.name),                  \
        SKR_LOG_TEXT("message", (job)->delivery.message.name == NULL \
                                    ? ""                             \
                                    : (job)->delivery.message.name), \
        SKR_LOG_TEXT("id",                                           \
                     skr_job_format_id((job), (char[SKR_ID_TEXT_SIZE]){0}))
// decode.c: the log's event of a dead letter.
void skr_job_log_failed(const struct skr_consumer *consumer,
                        const struct job *job, enum skr_log_level level);

#endif
