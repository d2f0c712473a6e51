// SPDX-License-Identifier: MIT
// Letters: what a consumer stores before it acknowledges a delivery. A dead
// letter is a row of the failed table; a message that waits for its retry is a
// row of a queue in the same table.
//
// A consumer that dies after storing a letter, and before the broker has heard
// of it, gets the message once more. So that it is not stored twice, a receipt
// is written into skirnir_attempt in the same transaction, and removed when the
// broker has heard of it. It names the row, and a receipt that is found is not
// believed before that is found.
//
// A message without an id is known by a digest of its content: the receipt's
// key is made of that. Other messages may have the same content. So a receipt
// counts for one delivery that came before, and the consumer that relies on it
// removes it.
//
// An object is immutable: [shared].

#ifndef SKR_STORE_DEAD_LETTER_DEAD_LETTER_H
#define SKR_STORE_DEAD_LETTER_DEAD_LETTER_H

#include "store/store.h"

struct skr_dead_letters;

struct skr_dead_letters_options {
    const struct skr_dialect *dialect;
    const char *table;
    const char *failed_queue;
    const char *retry_queue;  // NULL: retries are no rows; borrowed
    // The consumer's, borrowed. Several may fail on one message, each for
    // itself.
    const char *transport;
    const struct skr_names *names;  // borrowed; NULL: none
    const char *time_zone;          // of the table (db/zone.h); NULL: UTC
    bool failed_readable;           // see skr_messenger_options
};

// Whether a table and a queue in it can have these names: SKR_INVALID.
SKR_MUST_CHECK enum skr_code
skr_dead_letters_check_names(const char *table, const char *queue,
                             struct skr_error *error);

SKR_MUST_CHECK enum skr_code
skr_dead_letters_new(const struct skr_dead_letters_options *options,
                     struct skr_dead_letters **letters,
                     struct skr_error *error);
void skr_dead_letters_free(struct skr_dead_letters *letters);

// As check() of store.h, of the table and of skirnir_attempt beside it.
SKR_MUST_CHECK enum skr_code
skr_dead_letters_check(const struct skr_dead_letters *letters,
                       struct skr_db *db, struct skr_error *error);
// Makes what is missing, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_dead_letters_create(const struct skr_dead_letters *letters,
                        struct skr_db *db, const struct skr_table_maker *maker,
                        struct skr_error *error);

// Whether anything waits for its retry, due or not: one small statement. If so,
// second_ms is how far the server's second has gone: rows become due with the
// next one.
SKR_MUST_CHECK enum skr_code
skr_dead_letters_has_retries(const struct skr_dead_letters *letters,
                             struct skr_tx tx, bool *has_retries,
                             int64_t *second_ms, struct skr_error *error);

struct skr_letter {
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
    struct skr_id receipt;

    uint32_t retries;  // that it has had, with that of a retry
    const struct skr_error *reason;
    bool is_retry;
    uint32_t delay_ms;  // of a retry
};

// The key of its receipt. key: the message's id, or what stands for it.
struct skr_id skr_dead_letters_receipt(const struct skr_dead_letters *letters,
                                       struct skr_id key, bool is_retry);

// Stores it with its receipt, in whatever transaction tx is; *is_there says
// that an earlier delivery of it was stored, and nothing was written. Where
// another transaction is about to store the same, this waits for its end.
SKR_MUST_CHECK enum skr_code
skr_dead_letters_store(const struct skr_dead_letters *letters, struct skr_tx tx,
                       struct skr_arena *arena, const struct skr_letter *letter,
                       bool *is_there, struct skr_error *error);

#endif
