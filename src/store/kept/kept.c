// SPDX-License-Identifier: MIT
// Stores failed messages and retries, with the mark that keeps a second
// delivery from storing them again.

#include "store/kept/kept.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "store/attempt/attempt.h"
#include "store/messenger/messenger.h"

#include <stdlib.h>
#include <string.h>

struct skr_kept {
    struct skr_arena arena;
    struct skr_store *table;
    struct skr_attempts *marks;
    const char *retry_queue;  // NULL: none
    const char *transport;
};

enum skr_code
skr_kept_check_names(const char *table, const char *queue,
                     struct skr_error *error)
{
    return skr_messenger_check_names(table, queue, error);
}

static enum skr_code
copy_names(struct skr_kept *kept, const struct skr_kept_options *options,
           struct skr_error *error)
{
    const char *queue = options->retry_queue;
    kept->transport = skr_arena_text(&kept->arena, options->transport,
                                     strlen(options->transport));
    if (queue != NULL)
        kept->retry_queue = skr_arena_text(&kept->arena, queue, strlen(queue));
    bool ok =
        kept->transport != NULL && (queue == NULL || kept->retry_queue != NULL);
    return ok ? SKR_OK : skr_fail_memory(error);
}

enum skr_code
skr_kept_new(const struct skr_kept_options *options, struct skr_kept **kept,
             struct skr_error *error)
{
    struct skr_kept *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    enum skr_code code = copy_names(made, options, error);
    if (code == SKR_OK)
        code = skr_attempts_new(options->dialect, &made->marks, error);
    if (code == SKR_OK)
        code = skr_messenger_new(
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
        skr_kept_free(made);
        return code;
    }
    *kept = made;
    return SKR_OK;
}

void
skr_kept_free(struct skr_kept *kept)
{
    if (kept == NULL)
        return;
    skr_attempts_free(kept->marks);
    skr_store_free(kept->table);
    skr_arena_fini(&kept->arena);
    free(kept);
}

enum skr_code
skr_kept_check(const struct skr_kept *kept, struct skr_db *db,
               struct skr_error *error)
{
    enum skr_code code = kept->table->admin->check(kept->table, db, error);
    return code == SKR_OK ? skr_attempts_check(kept->marks, db, error) : code;
}

enum skr_code
skr_kept_create(const struct skr_kept *kept, struct skr_db *db,
                struct skr_error *error)
{
    enum skr_code code = kept->table->admin->check(kept->table, db, error);
    if (code == SKR_MISSING)
        code = skr_store_create(kept->table, db, error);
    return code == SKR_OK ? skr_attempts_create(db, error) : code;
}

enum skr_code
skr_kept_has_retries(const struct skr_kept *kept, struct skr_tx tx,
                     bool *has_retries, int64_t *second_ms,
                     struct skr_error *error)
{
    return skr_messenger_has_rows(kept->table, tx, kept->retry_queue,
                                  has_retries, second_ms, error);
}

struct skr_id
skr_kept_mark(const struct skr_kept *kept, struct skr_id key, bool is_retry)
{
    return skr_attempts_key(key, kept->transport,
                            is_retry ? "retry" : "failed");
}

static enum skr_code
find_unnamed(const struct skr_kept *kept, struct skr_tx tx,
             const struct skr_kept_message *message, bool *is_there,
             struct skr_error *error)
{
    char digest[SKR_ID_TEXT_SIZE];
    if (!message->came_before)
        return SKR_OK;
    skr_id_format(message->mark, digest);
    enum skr_code code = skr_messenger_holds_failed(
        kept->table, tx, &(struct skr_sought){.digest = digest}, is_there,
        error);
    if (code == SKR_OK && *is_there)
        code =
            skr_attempts_take(kept->marks, tx, message->mark, is_there, error);
    return code;
}

// Whether the row is there since an earlier delivery.
static enum skr_code
mark_stored(const struct skr_kept *kept, struct skr_tx tx,
            const struct skr_kept_message *message, bool *is_there,
            struct skr_error *error)
{
    // Nothing tells whether a retry without an id was handled before, either.
    if (!message->has_id && message->is_retry)
        return SKR_OK;
    enum skr_code code =
        skr_attempts_mark(kept->marks, tx, message->mark, error);
    if (code != SKR_DUPLICATE)
        return code;
    if (!message->has_id)
        return find_unnamed(kept, tx, message, is_there, error);
    struct skr_sought sought = {.id = message->id};
    if (message->is_retry)
        return skr_messenger_holds(kept->table, tx, kept->retry_queue, &sought,
                                   is_there, error);
    sought.transport = kept->transport;
    return skr_messenger_holds_failed(kept->table, tx, &sought, is_there,
                                      error);
}

static enum skr_code
add_id(struct skr_arena *arena, struct skr_headers *headers, const char *name,
       struct skr_id id, struct skr_error *error)
{
    char text[SKR_ID_TEXT_SIZE];
    skr_id_format(id, text);
    bool ok = skr_headers_set(arena, headers, name,
                              skr_arena_text(arena, text, strlen(text)));
    return ok ? SKR_OK : skr_fail_memory(error);
}

// The marks of a failure or a retry go into a copy of the headers: the delivery
// stays as it came, should the table refuse it. An id that only the broker knew
// goes with it.
static enum skr_code
copy_headers(struct skr_arena *arena, const struct skr_kept_message *message,
             struct skr_headers *headers, struct skr_error *error)
{
    enum skr_code code =
        skr_headers_copy(arena, message->headers, headers, error);
    if (code != SKR_OK || !message->has_id || headers->count == 0 ||
        skr_headers_find(headers->items, headers->count, SKR_HEADER_ID) != NULL)
        return code;
    return add_id(arena, headers, SKR_HEADER_ID, message->id, error);
}

static enum skr_code
store_failed(const struct skr_kept *kept, struct skr_tx tx,
             struct skr_arena *arena, const struct skr_kept_message *message,
             struct skr_error *error)
{
    struct skr_failed_message failed = {
        .body = message->body,
        .body_size = message->body_size,
        .is_unseen = message->is_unseen,
        .failure = {.transport = kept->transport,
                    .retries = message->retries,
                    .reason = message->reason},
    };
    enum skr_code code = copy_headers(arena, message, &failed.headers, error);
    if (code == SKR_OK && failed.headers.count == 0)
        code = skr_failure_wrap_raw(
            arena, message->raw_headers == NULL ? "" : message->raw_headers,
            message->raw_headers_size, &failed.headers, error);
    if (code == SKR_OK && !message->has_id)
        code = add_id(arena, &failed.headers, SKR_HEADER_DIGEST, message->mark,
                      error);
    if (code != SKR_OK)
        return code;
    return skr_messenger_store_failed(kept->table, tx, arena, &failed, error);
}

static enum skr_code
store_retry(const struct skr_kept *kept, struct skr_tx tx,
            struct skr_arena *arena, const struct skr_kept_message *message,
            struct skr_error *error)
{
    struct skr_headers headers = {0};
    struct skr_text json = {0};
    enum skr_code code = copy_headers(arena, message, &headers, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(arena, &headers, message->retries,
                                      message->reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(headers.items, headers.count, &json, error);
    const struct skr_messenger_row row = {
        .body = message->body,
        .body_size = message->body_size,
        .headers = json.bytes,
        .headers_size = json.size,
        .delay_ms = message->delay_ms,
    };
    if (code == SKR_OK)
        code = skr_messenger_append(kept->table, tx, kept->retry_queue, &row, 1,
                                    error);
    skr_text_fini(&json);
    return code;
}

enum skr_code
skr_kept_store(const struct skr_kept *kept, struct skr_tx tx,
               struct skr_arena *arena, const struct skr_kept_message *message,
               bool *is_there, struct skr_error *error)
{
    *is_there = false;
    enum skr_code code = mark_stored(kept, tx, message, is_there, error);
    if (code != SKR_OK || *is_there)
        return code;
    return message->is_retry ? store_retry(kept, tx, arena, message, error)
                             : store_failed(kept, tx, arena, message, error);
}

enum skr_code
skr_kept_forget(const struct skr_kept *kept, struct skr_tx tx,
                struct skr_id mark, struct skr_error *error)
{
    return skr_attempts_remove(kept->marks, tx, mark, error);
}
