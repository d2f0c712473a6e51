// SPDX-License-Identifier: MIT
// Jobs that came together share a transaction: their deduplication rows and the
// handlers' effects commit together or not at all. When anything goes wrong in
// it, all of it is rolled back and each job is done again by itself, so that a
// verdict touches its own message and no other.

#ifndef SKR_INBOX_TRANSACTION_H
#define SKR_INBOX_TRANSACTION_H

#include "inbox/job.h"
#include "store/deduplication/deduplication.h"

// The deduplication table, and what was found in it lately.
struct records {
    struct skr_deduplication *table;
    // So many batches are recorded message by message, since there were
    // duplicates.
    size_t apart_left;
    // Since then all that came were duplicates, so many; 0: not so. It is
    // logged once, until a message is handled.
    int64_t duplicates_from_ms;
    uint64_t duplicates_in_a_row;
    bool has_logged_duplicates;
};

// The job failed for that reason, and a record of its handler's own was found:
// it is handled.
void skr_job_find_handled(struct skr_consumer *consumer, struct job *job,
                          const struct skr_error *reason);

// Handles jobs and settles them with the broker. An error is trouble that no
// message has caused: what it kept from being handled is deferred.
SKR_MUST_CHECK enum skr_code
skr_jobs_handle(struct skr_consumer *consumer, struct job *jobs, size_t count,
                struct skr_error *error);

#endif
