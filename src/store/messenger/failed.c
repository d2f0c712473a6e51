// SPDX-License-Identifier: MIT
// How a message stands in the failed table, and whether it is still there.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "message/json.h"
#include "store/messenger/layout.h"

#include <string.h>

// Symfony decodes a JSON object and deletes what it cannot decode.
static bool
is_json_object(const struct skr_failed_message *message)
{
    enum skr_json_kind kind = SKR_JSON_NULL;
    return message->body_size > 0 &&
           skr_json_scan(message->body, message->body_size, 0, &kind, NULL) ==
               SKR_OK &&
           kind == SKR_JSON_OBJECT;
}

// The failed table has no column for the key.
static enum skr_code
keep_key(struct skr_arena *arena, struct skr_failed_message *message,
         struct skr_error *error)
{
    const char *key = message->partition_key;
    if (key == NULL || key[0] == '\0' ||
        !skr_text_is_storable(key, strlen(key)) ||
        skr_headers_set(arena, &message->headers, SKR_HEADER_PARTITION, key))
        return SKR_OK;
    return skr_fail_memory(error);
}

enum skr_code
skr_messenger_mark_failed(const struct skr_messenger *messenger,
                          struct skr_arena *arena,
                          struct skr_failed_message *message,
                          struct skr_text *json, const char **queue,
                          struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool is_named = false;
    if (message->headers.count == 0)
        code = skr_failure_wrap_raw(
            arena, message->raw_headers == NULL ? "" : message->raw_headers,
            message->raw_headers_size, &message->headers, error);
    if (code == SKR_OK && message->body_encoding != NULL &&
        !skr_headers_set(arena, &message->headers, SKR_HEADER_BODY_ENCODING,
                         message->body_encoding))
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        code = keep_key(arena, message, error);
    if (code == SKR_OK)
        code =
            skr_failure_mark_failed(arena, &message->headers, messenger->names,
                                    &message->failure, &is_named, error);
    if (code == SKR_OK)
        code = skr_headers_write(message->headers.items, message->headers.count,
                                 json, error);
    bool is_readable = messenger->failed_readable && is_named &&
                       !message->is_unseen && is_json_object(message);
    *queue = is_readable ? messenger->failed_queue : messenger->failed_aside;
    return code;
}

// The name and the class of the message are left as they are: the row is not
// for Symfony, as its body was not looked at.
enum skr_code
skr_messenger_list_added(const struct skr_messenger *messenger,
                         struct skr_arena *arena,
                         const struct skr_failed_message *message,
                         struct skr_text *json, struct skr_error *error)
{
    const struct skr_headers *all = &message->headers;
    struct skr_failed_message added = {
        .partition_key = message->partition_key,
        .failure = message->failure,
    };
    const char *id = skr_headers_get(all, SKR_HEADER_ID);
    bool is_named = false;
    enum skr_code code = SKR_OK;
    if (id != NULL &&
        !skr_headers_add(arena, &added.headers, SKR_HEADER_ID, id))
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        code = keep_key(arena, &added, error);
    if (code == SKR_OK)
        code = skr_failure_mark_failed(arena, &added.headers, messenger->names,
                                       &added.failure, &is_named, error);
    if (code == SKR_OK)
        code = skr_headers_write(added.headers.items, added.headers.count, json,
                                 error);
    return code;
}

static enum skr_code
encode_body(struct skr_arena *arena, struct skr_failed_message *message,
            struct skr_error *error)
{
    if (skr_text_is_storable(message->body, message->body_size))
        return SKR_OK;
    const char *copy =
        skr_arena_storable(arena, message->body, message->body_size);
    if (copy == NULL)
        return skr_fail_memory(error);
    message->body = copy;
    message->body_size = strlen(copy);
    message->body_encoding = "base64";
    return SKR_OK;
}

enum skr_code
skr_messenger_store_failed(const struct skr_store *table, struct skr_tx tx,
                           struct skr_arena *arena,
                           struct skr_failed_message *message,
                           struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    if (messenger->failed_table == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table %s has no failed table", messenger->table.name);
    struct skr_text json = {0};
    const char *queue = NULL;
    enum skr_code code = encode_body(arena, message, error);
    if (code == SKR_OK)
        code = skr_messenger_mark_failed(messenger, arena, message, &json,
                                         &queue, error);
    if (code == SKR_OK) {
        const struct skr_values values = {
            3,
            {skr_bind_bytes(message->body, message->body_size),
             skr_bind_bytes(json.bytes, json.size), skr_bind_text(queue)}};
        code = skr_sql_run(tx, skr_messenger_sql(messenger, SKR_SQL_FAIL),
                           values, NULL, error);
    }
    skr_text_fini(&json);
    return code;
}

enum skr_code
skr_messenger_has_rows(const struct skr_store *table, struct skr_tx tx,
                       const char *queue, bool *has_rows, int64_t *second_ms,
                       struct skr_error *error)
{
    struct skr_value column;
    struct skr_row row = {.columns = &column, .count = 1};
    enum skr_code code =
        skr_sql_row(tx, skr_messenger_sql(skr_messenger_of(table), SKR_SQL_ANY),
                    skr_values("%s", queue), &row, error);
    if (code == SKR_OK) {
        *has_rows = row.found;
        *second_ms = column.integer;
    }
    return code;
}

enum skr_code
skr_messenger_last_row(const struct skr_store *table, struct skr_tx tx,
                       int64_t *row, struct skr_error *error)
{
    return skr_sql_number(
        tx, skr_messenger_sql(skr_messenger_of(table), SKR_SQL_LAST_ROW),
        SKR_NO_VALUES, row, error);
}

enum skr_code
skr_messenger_holds(const struct skr_store *table, struct skr_tx tx,
                    int64_t row, const char *queue, bool *holds,
                    struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return skr_sql_finds(
        tx, skr_messenger_sql(messenger, SKR_SQL_HOLDS),
        skr_values("%jd %s %s", row,
                   queue == NULL ? messenger->failed_queue : queue,
                   queue == NULL ? messenger->failed_aside : queue),
        holds, error);
}
