// SPDX-License-Identifier: MIT
// What a row says about its failures, in stamps that Symfony reads too.

#ifndef SKR_MESSAGE_FAILURE_H
#define SKR_MESSAGE_FAILURE_H

#include "message/headers.h"
#include "message/name.h"

#include <stdbool.h>

struct skr_arena;
struct skr_text;

// How often and when to try again: delay * multiplier^n, at most max_delay,
// each moved by up to jitter of it either way so that retries do not march in
// step.
struct skr_retry_policy {
    uint32_t max_retries;
    uint32_t delay_ms;
    double multiplier;
    uint32_t max_delay_ms;  // 0: a day
    double jitter;          // from 0 to 1
};

#define SKR_DEFAULT_RETRY_POLICY                                              \
    (struct skr_retry_policy)                                                 \
    {                                                                         \
        .max_retries = 3, .delay_ms = 1000, .multiplier = 2.0, .jitter = 0.1, \
    }

// retry counts from 1. random is any number; by it the jitter is drawn.
uint32_t skr_retry_delay_ms(const struct skr_retry_policy *policy,
                            uint32_t retry, uint32_t random);

// What failed within a minute. Zeroed: nothing did.
struct skr_failures {
    int64_t since_ms;  // when the minute began
    uint32_t count;
};
// Counts one more, at now_ms. If that would be more than limit (0: any number)
// it is not counted: returns how long the minute lasts; else 0.
uint32_t skr_failures_count(struct skr_failures *failures, uint32_t limit,
                            int64_t now_ms);

// Headers of a row that waits for retry number `retry`.
SKR_MUST_CHECK enum skr_code
skr_failure_mark_retry(struct skr_arena *arena, struct skr_headers *headers,
                       uint32_t retry, const struct skr_error *reason,
                       struct skr_error *error);

struct skr_failure {
    const char *transport;  // where it failed
    uint32_t retries;       // how many were spent
    const struct skr_error *reason;
};

// Headers of the row in the failed table. Where the class is known (the
// X-Message-Class header, a class in type, or names) type becomes the class,
// so that Symfony can read the row; *readable says so, and the caller picks
// the queue: a row that Symfony cannot decode is deleted by its failed:show.
SKR_MUST_CHECK enum skr_code
skr_failure_mark_failed(struct skr_arena *arena, struct skr_headers *headers,
                        const struct skr_names *names,
                        const struct skr_failure *failure, bool *readable,
                        struct skr_error *error);

// Headers for a row whose own could not be understood: they are kept as text,
// or as base64 where they are no text, beside the reason.
SKR_MUST_CHECK enum skr_code
skr_failure_wrap_raw(struct skr_arena *arena, const void *raw, size_t raw_size,
                     struct skr_headers *headers, struct skr_error *error);

// What the headers of a row in the failed table say, by whichever program they
// were written. What is not said is NULL.
struct skr_failure_report {
    struct skr_headers headers;  // count 0: they could not be understood
    const char *transport;       // where it failed
    const char *name;            // the message's
    const char *class_name;
    const char *partition_key;
    bool has_id;
    struct skr_id id;
    const char *error_class, *error_code, *error_text;
    uint32_t retries;
    bool is_php;  // PHP's own serialisation: the body says it all, to PHP alone
};
// json is the headers column. Fails only for lack of memory.
SKR_MUST_CHECK enum skr_code
skr_failure_read(struct skr_arena *arena, const char *json, size_t size,
                 const struct skr_names *names,
                 struct skr_failure_report *report, struct skr_error *error);

// Appends the headers column of a message that is to be tried again as if it
// had never failed: what mark_failed() and wrap_raw() did is undone, and so is
// what Symfony's listeners add. The id stays.
SKR_MUST_CHECK enum skr_code
skr_failure_undo(struct skr_arena *arena, const struct skr_headers *headers,
                 struct skr_text *json, struct skr_error *error);

#endif
