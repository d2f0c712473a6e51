// SPDX-License-Identifier: MIT
// The consumer's inside, for the program: what the public header leaves out.

#ifndef SKR_INBOX_CONSUMER_H
#define SKR_INBOX_CONSUMER_H

#include "base/histogram.h"
#include "message/name.h"

#include <skirnir/skirnir.h>
#include <stdatomic.h>
#include <stdbool.h>

struct skr_consumer_counts {
    uint64_t handled;     // effects committed
    uint64_t duplicates;  // seen before, acknowledged
    uint64_t retried;
    uint64_t failed;  // kept in the failed table
};

// From any thread.
struct skr_consumer_counts
skr_consumer_counts(const struct skr_consumer *consumer);
// How long each call of a handler took, whatever its verdict. Likewise.
const struct skr_histogram *
skr_consumer_handling(const struct skr_consumer *consumer);

// Likewise: whether its loop has turned within this time, or waits for a server
// or a handler.
bool
skr_consumer_is_turning(const struct skr_consumer *consumer, int64_t within_ms);

// How much several consumers may do together. Zeroed but for the limits.
// [shared]
struct skr_consumer_budget {
    uint64_t messages;  // stop after so many deliveries; 0: never
    uint64_t failures;  // stop after so many retries and failures; 0: never
    // The consumers' own: deliveries that are in hand or dealt with, those that
    // are dealt with, and failures.
    atomic_uint_fast64_t claimed, taken, failed;
};

// To be called between skr_consumer_open() and skr_consumer_run().
struct skr_consumer_extras {
    const struct skr_names *names;  // message_types; borrowed; NULL: none
    const char *failed_time_zone;   // of the failed table; NULL: UTC
    bool failed_readable;           // see skr_messenger_options
    // A message without an id is handled, each time it comes, rather than kept
    // in the failed table.
    bool handles_missing_ids;
    bool auto_setup;  // make the failed table when it is missing
    bool deduplication_auto_setup;
    // The table that deduplication_table takes over from; see
    // skr_deduplication_succeed(). Borrowed; NULL: none.
    const char *deduplication_before;
    // So long may all that comes be duplicates before it is said; 0: two
    // minutes.
    uint32_t duplicates_ms;
    uint64_t limit;  // stop after so many deliveries; 0: never
    // Shared with others, and instead of the limit; borrowed; NULL: none.
    struct skr_consumer_budget *budget;
    uint32_t sleep_ms;     // longest wait for a delivery; 0: 1000
    bool stop_when_empty;  // return SKR_OK once nothing is waiting
    // Asked after each batch and each wait; true ends the run with SKR_OK.
    bool (*is_over)(void *user);
    void *user;
};
void skr_consumer_extend(struct skr_consumer *consumer,
                         const struct skr_consumer_extras *extras);

// A handler that is SQL: statements run in the handler's transaction, with
// :id :name :body :headers :partition_key bound. See inbox/sql_handler.h.
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_sql(struct skr_consumer *consumer, const char *message_name,
                        const char *const *statements, size_t count,
                        struct skr_error *error);

// A handler in a shared object: SKR_INVALID as skr_library_open().
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_library(struct skr_consumer *consumer,
                            const char *message_name, const char *path,
                            const char *function, bool wants_transaction,
                            struct skr_error *error);

// A handler that is a process, outside of any transaction: see inbox/child.h.
// withheld, which ends with NULL, names variables of the environment that it
// does not get.
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_command(struct skr_consumer *consumer,
                            const char *message_name, const char *const *words,
                            size_t count, const char *const *withheld,
                            uint32_t timeout_ms, struct skr_error *error);

#endif
