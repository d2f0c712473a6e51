// SPDX-License-Identifier: MIT
// Stores dead letters and retries, each with the receipt that keeps a second
// delivery from storing it again.

#include "store/dead_letter/dead_letter.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "store/attempt/attempt.h"
#include "store/messenger/messenger.h"

#include <stdlib.h>
#include <string.h>

struct skr_dead_letters {
    struct skr_store *table;
    const char *retry_queue, *transport;  // borrowed
};

enum skr_code
skr_dead_letters_check_names(const char *table, const char *queue,
                             struct skr_error *error)
{
    return skr_messenger_check_names(table, queue, error);
}

enum skr_code
skr_dead_letters_new(const struct skr_dead_letters_options *options,
                     struct skr_dead_letters **letters, struct skr_error *error)
{
    struct skr_dead_letters *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->retry_queue = options->retry_queue;
    made->transport = options->transport;
    enum skr_code code = skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = options->dialect,
            .table = options->table,
            .queue = options->failed_queue,
            .names = options->names,
            .time_zone = options->time_zone,
            .failed_time_zone = options->time_zone,
            .transport = options->transport,
            .failed_table = options->table,
            .failed_queue = options->failed_queue,
            .failed_readable = options->failed_readable,
        },
        &made->table, error);
    if (code != SKR_OK) {
        skr_dead_letters_free(made);
        return code;
    }
    *letters = made;
    return SKR_OK;
}

void
skr_dead_letters_free(struct skr_dead_letters *letters)
{
    if (letters == NULL)
        return;
    skr_store_free(letters->table);
    free(letters);
}

enum skr_code
skr_dead_letters_check(const struct skr_dead_letters *letters,
                       struct skr_db *db, struct skr_error *error)
{
    enum skr_code code =
        letters->table->admin->check(letters->table, db, error);
    return code == SKR_OK ? skr_attempts_check(db, error) : code;
}

enum skr_code
skr_dead_letters_create(const struct skr_dead_letters *letters,
                        struct skr_db *db, const struct skr_table_maker *maker,
                        struct skr_error *error)
{
    enum skr_code code =
        letters->table->admin->check(letters->table, db, error);
    if (code == SKR_MISSING)
        code = skr_store_create_for(letters->table, db, maker, error);
    if (code == SKR_OK)
        code = skr_attempts_check(db, error);
    if (code != SKR_MISSING)
        return code;
    code = skr_attempts_create(db, error);
    if (code == SKR_OK)
        skr_store_log_made(maker, SKR_ATTEMPT_TABLE);
    return code;
}

enum skr_code
skr_dead_letters_has_retries(const struct skr_dead_letters *letters,
                             struct skr_tx tx, bool *has_retries,
                             int64_t *second_ms, struct skr_error *error)
{
    return skr_messenger_has_rows(letters->table, tx, letters->retry_queue,
                                  has_retries, second_ms, error);
}

struct skr_id
skr_dead_letters_receipt(const struct skr_dead_letters *letters,
                         struct skr_id key, bool is_retry)
{
    return skr_attempts_key(key, letters->transport,
                            is_retry ? "retry" : "failed");
}

// Whether the row is there that the receipt is for. It may have been dealt with
// since, and the message published again.
static enum skr_code
find_row(const struct skr_dead_letters *letters, struct skr_tx tx,
         const struct skr_letter *letter, bool *is_there,
         struct skr_error *error)
{
    int64_t row = 0;
    enum skr_code code =
        skr_attempts_find_row(tx, letter->receipt, &row, error);
    if (code != SKR_OK)
        return code;
    return skr_messenger_holds(letters->table, tx, row,
                               letter->is_retry ? letters->retry_queue : NULL,
                               is_there, error);
}

static bool
has_receipt(const struct skr_letter *letter)
{
    // Nothing tells whether a retry without an id was handled before, either.
    return letter->has_id || !letter->is_retry;
}

// *is_there: the row is there since an earlier delivery.
static enum skr_code
add_receipt(const struct skr_dead_letters *letters, struct skr_tx tx,
            const struct skr_letter *letter, bool *is_there,
            struct skr_error *error)
{
    if (!has_receipt(letter))
        return SKR_OK;
    enum skr_code code = skr_attempts_add_receipt(tx, letter->receipt, error);
    if (code != SKR_DUPLICATE)
        return code;
    if (!letter->has_id && !letter->came_before)
        return SKR_OK;
    code = find_row(letters, tx, letter, is_there, error);
    if (code != SKR_OK || letter->has_id || !*is_there)
        return code;
    return skr_attempts_remove(tx, letter->receipt, is_there, error);
}

// The stamps of a failure or a retry go into a copy of the headers: the
// delivery stays as it came, should the table refuse it. An id that only the
// broker knew goes with it.
static enum skr_code
copy_headers(struct skr_arena *arena, const struct skr_letter *letter,
             struct skr_headers *headers, struct skr_error *error)
{
    enum skr_code code =
        skr_headers_copy(arena, letter->headers, headers, error);
    if (code != SKR_OK || !letter->has_id || headers->count == 0 ||
        skr_headers_get(headers, SKR_HEADER_ID) != NULL)
        return code;
    char text[SKR_ID_TEXT_SIZE];
    skr_id_format(letter->id, text);
    if (!skr_headers_set(arena, headers, SKR_HEADER_ID,
                         skr_arena_text(arena, text, strlen(text))))
        return skr_fail_memory(error);
    return SKR_OK;
}

static enum skr_code
store_failed(const struct skr_dead_letters *letters, struct skr_tx tx,
             struct skr_arena *arena, const struct skr_letter *letter,
             struct skr_error *error)
{
    struct skr_failed_message failed = {
        .body = letter->body,
        .body_size = letter->body_size,
        .is_unseen = letter->is_unseen,
        .failure = {.transport = letters->transport,
                    .retries = letter->retries,
                    .reason = letter->reason},
    };
    enum skr_code code = copy_headers(arena, letter, &failed.headers, error);
    if (code == SKR_OK && failed.headers.count == 0)
        code = skr_failure_wrap_raw(
            arena, letter->raw_headers == NULL ? "" : letter->raw_headers,
            letter->raw_headers_size, &failed.headers, error);
    if (code != SKR_OK)
        return code;
    return skr_messenger_store_failed(letters->table, tx, arena, &failed,
                                      error);
}

static enum skr_code
store_retry(const struct skr_dead_letters *letters, struct skr_tx tx,
            struct skr_arena *arena, const struct skr_letter *letter,
            struct skr_error *error)
{
    struct skr_headers headers = {0};
    struct skr_text json = {0};
    enum skr_code code = copy_headers(arena, letter, &headers, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(arena, &headers, letter->retries,
                                      letter->reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(headers.items, headers.count, &json, error);
    const struct skr_messenger_row row = {
        .body = letter->body,
        .body_size = letter->body_size,
        .headers = json.bytes,
        .headers_size = json.size,
        .delay_ms = letter->delay_ms,
    };
    if (code == SKR_OK)
        code = skr_messenger_append(letters->table, tx, letters->retry_queue,
                                    &row, 1, error);
    skr_text_fini(&json);
    return code;
}

enum skr_code
skr_dead_letters_store(const struct skr_dead_letters *letters, struct skr_tx tx,
                       struct skr_arena *arena, const struct skr_letter *letter,
                       bool *is_there, struct skr_error *error)
{
    *is_there = false;
    enum skr_code code = add_receipt(letters, tx, letter, is_there, error);
    if (code != SKR_OK || *is_there)
        return code;
    int64_t row = 0;
    code = letter->is_retry ? store_retry(letters, tx, arena, letter, error)
                            : store_failed(letters, tx, arena, letter, error);
    if (code == SKR_OK && has_receipt(letter))
        code = skr_messenger_last_row(letters->table, tx, &row, error);
    if (code == SKR_OK && row > 0)
        code = skr_attempts_note_row(tx, letter->receipt, row, error);
    return code;
}
