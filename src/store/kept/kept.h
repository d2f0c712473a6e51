// SPDX-License-Identifier: MIT
// What a consumer keeps for later: messages that failed, in the failed table,
// and those that wait for their retry, as rows of a queue in the same table.
//
// A consumer that dies after storing a message, and before the broker has heard
// of it, gets the message once more. So that it is not stored twice, the
// consumer that stores it also marks it as stored, in skirnir_attempt; when the
// broker has heard of it the mark is removed. A mark that is found is not
// believed before the row itself is: it may have been dealt with since, and the
// message published again.
//
// A message without an id is known by what it says: the mark is made of that,
// and stands in the row as well. Others may say the same. So a mark counts for
// one delivery that came before, and the consumer that relies on it takes it
// away.
//
// An object holds texts of SQL for one dialect and is immutable: [shared].

#ifndef SKR_STORE_KEPT_KEPT_H
#define SKR_STORE_KEPT_KEPT_H

#include "store/store.h"

struct skr_kept;

struct skr_kept_options {
    const struct skr_dialect *dialect;
    const char *table;
    const char *failed_queue;
    const char *retry_queue;  // NULL: retries are no rows
    // The consumer's. Several may fail on one message, each for itself.
    const char *transport;
    const struct skr_names *names;  // borrowed; NULL: none
    const char *time_zone;          // of the table (db/zone.h); NULL: UTC
    bool failed_readable;           // see skr_messenger_options
};

// Whether a table and a queue in it can have these names: SKR_INVALID.
SKR_MUST_CHECK enum skr_code
skr_kept_check_names(const char *table, const char *queue,
                     struct skr_error *error);

// Copies the options' texts.
SKR_MUST_CHECK enum skr_code
skr_kept_new(const struct skr_kept_options *options, struct skr_kept **kept,
             struct skr_error *error);
void skr_kept_free(struct skr_kept *kept);

// As skr_store_check_fn, of the table and of skirnir_attempt beside it.
SKR_MUST_CHECK enum skr_code
skr_kept_check(const struct skr_kept *kept, struct skr_db *db,
               struct skr_error *error);
// Makes what is missing, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_kept_create(const struct skr_kept *kept, struct skr_db *db,
                struct skr_error *error);

// Whether anything waits for its retry, due or not: one small statement. If so,
// second_ms is how far the server's second has gone: rows become due with the
// next one.
SKR_MUST_CHECK enum skr_code
skr_kept_has_retries(const struct skr_kept *kept, struct skr_tx tx,
                     bool *has_retries, int64_t *second_ms,
                     struct skr_error *error);

struct skr_kept_message {
    // Headers as they came, or count 0 and raw_headers where they could not be
    // understood.
    const struct skr_headers *headers;
    const char *raw_headers;
    size_t raw_headers_size;
    const void *body;
    size_t body_size;
    bool is_unseen;  // as in struct skr_failed_message
    bool has_id;
    struct skr_id id;
    bool came_before;  // a consumer had it, and may have stored it
    struct skr_id mark;

    uint32_t retries;  // how many are spent, with that of a retry
    const struct skr_error *reason;
    bool is_retry;
    uint32_t delay_ms;  // of a retry
};

// key: the message's id, or what stands for it.
struct skr_id
skr_kept_mark(const struct skr_kept *kept, struct skr_id key, bool is_retry);

// Stores and marks it, in whatever transaction tx is; *is_there says that an
// earlier delivery of it was stored, and nothing was written. Where another
// transaction is about to store the same, this waits for its end.
SKR_MUST_CHECK enum skr_code
skr_kept_store(const struct skr_kept *kept, struct skr_tx tx,
               struct skr_arena *arena, const struct skr_kept_message *message,
               bool *is_there, struct skr_error *error);
// Removes a mark; harmless when there is none.
SKR_MUST_CHECK enum skr_code
skr_kept_forget(const struct skr_kept *kept, struct skr_tx tx,
                struct skr_id mark, struct skr_error *error);

#endif
