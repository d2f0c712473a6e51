// SPDX-License-Identifier: MIT
// What becomes of each job is decided here, by skr_delivery_decide(), and
// carried out here: the row is written first, and then the broker is told.
//
// What the broker is not to deliver again becomes a row: a dead letter in the
// failed table, with its bytes and the reason, or a row of the queue of
// retries, with its due time. Only then is the delivery acknowledged.
//
// A message that kills its consumer leaves no trace but that it is delivered
// again. Where the broker does not count how often, it is counted here, before
// the handler runs: the message must run out of attempts.

#ifndef SKR_INBOX_SETTLE_H
#define SKR_INBOX_SETTLE_H

#include "base/backoff.h"
#include "base/log.h"
#include "inbox/job.h"
#include "store/attempt/attempt.h"
#include "store/dead_letter/dead_letter.h"

struct attempt_counts {
    // Counted, but requeued without a verdict when the database could not be
    // told: counted no second time.
    bool has_uncounted;
    struct skr_id uncounted;
    int64_t clean_again_ms;  // rows of crashes; by skr_clock_ms()
};

struct dead_letters {
    struct skr_dead_letters *table;
    struct skr_db *db;           // NULL: in the consumer's, or not open
    struct skr_trouble trouble;  // with the table
    int64_t again_ms;            // not before this; by skr_clock_ms()
    struct skr_backoff backoff;  // of deliveries whose row cannot be written
};

// Before a delivery is handled, or stored as one that cannot be handled, that a
// consumer had and did not settle: commits the attempt, unless its broker
// counts by itself.
SKR_MUST_CHECK enum skr_code
skr_job_count(struct skr_consumer *consumer, struct job *job,
              struct skr_error *error);

// The job has ended so, and is decided. One that is to come again holds back
// those behind it in its partition: they would pass it, and have not been
// reached.
void
skr_job_end(struct skr_consumer *consumer, struct job *job, enum skr_end end);
// The same for one whose handler failed, or that is exhausted: the attempt says
// why. The hooks are told.
void skr_job_fail(struct skr_consumer *consumer, struct job *job,
                  enum skr_end end, const struct attempt *attempt);

// Carries out what was decided of the jobs, and counts it. Those that have not
// ended were not reached. An error is the broker's: its connection is closed.
SKR_MUST_CHECK enum skr_code
skr_jobs_settle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error);

#endif
