// SPDX-License-Identifier: MIT
// Recording what became of the rows that a relay has read.

#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

#include <string.h>

static const char remove_sql[] = "DELETE FROM {table} WHERE id IN ({ids})";
// Parameters: headers, seconds, id.
static const char retry_sql[] =
    "UPDATE {table} SET headers = ?, available_at = {now_plus}, "
    "delivered_at = NULL WHERE id = ?";
// The body is copied inside the database, whatever its bytes are.
// Parameters: headers, queue, id.
static const char copy_to_failed_sql[] =
    "INSERT INTO {failed_table} "
    "(body, headers, queue_name, created_at, available_at) "
    "SELECT body, ?, ?, {now}, {now} FROM {table} WHERE id = ?";

bool
skr_messenger_fill_settle(struct skr_messenger *messenger)
{
    return skr_messenger_fill_list(messenger, remove_sql, "",
                                   &messenger->sql.remove) &&
           skr_messenger_fill(messenger, retry_sql, &messenger->sql.retry) &&
           skr_messenger_fill(messenger, copy_to_failed_sql,
                              &messenger->sql.copy_to_failed);
}

enum skr_code
skr_messenger_mark_retry(struct skr_arena *arena,
                         const struct skr_batch_item *item,
                         struct skr_text *json, int64_t *delay_s,
                         struct skr_error *error)
{
    // Tables count whole seconds, and the clock's part of one is dropped before
    // this is added: one more, so that no retry is early.
    *delay_s = (item->delay_ms + 999LL) / 1000 + 1;
    if (item->envelope.headers.count == 0) {
        // What could not be parsed has no place for a count and stays as it is.
        skr_text_add(json, item->raw_headers, item->raw_headers_size);
        return json->broken ? skr_fail_memory(error) : SKR_OK;
    }
    struct skr_headers headers;
    enum skr_code code =
        skr_headers_copy(arena, &item->envelope.headers, &headers, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(arena, &headers,
                                      item->envelope.retry_count +
                                          (item->is_excused ? 0 : 1),
                                      &item->reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(headers.items, headers.count, json, error);
    return code;
}

static enum skr_code
retry_later(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_arena *arena, const struct skr_batch_item *item,
            struct skr_error *error)
{
    struct skr_text json = {0};
    int64_t delay_s = 0;
    enum skr_code code =
        skr_messenger_mark_retry(arena, item, &json, &delay_s, error);
    if (code == SKR_OK) {
        const struct skr_value values[] = {
            skr_bind_bytes(json.bytes, json.size),
            skr_bind_integer(delay_s),
            skr_bind_integer(item->row),
        };
        code = skr_tx_run(tx,
                          &(struct skr_statement){
                              .sql = messenger->sql.retry,
                              .values = values,
                              .value_count = SKR_COUNT_OF(values),
                          },
                          error);
    }
    skr_text_fini(&json);
    return code;
}

// The id that was derived for a row goes with it: in the failed table it would
// come out as another.
static enum skr_code
keep_id(struct skr_arena *arena, const struct skr_envelope *envelope,
        struct skr_headers *headers, struct skr_error *error)
{
    if (!envelope->has_id ||
        skr_headers_find(headers->items, headers->count, SKR_HEADER_ID) != NULL)
        return SKR_OK;
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(envelope->message.id, id);
    if (!skr_headers_add(arena, headers, SKR_HEADER_ID,
                         skr_arena_text(arena, id, strlen(id))))
        return skr_fail_memory(error);
    return SKR_OK;
}

// A row that someone else has removed meanwhile is not ours to fail. Whether it
// was there is known when our own delete has removed it; if that did not, the
// copy was of a row that is gone, and everything is rolled back and done again.
static enum skr_code
copy_and_remove(const struct skr_messenger *messenger, struct skr_tx tx,
                int64_t row, const struct skr_text *json, const char *queue,
                struct skr_error *error)
{
    const struct skr_value values[] = {
        skr_bind_bytes(json->bytes, json->size),
        skr_bind_text(queue),
        skr_bind_integer(row),
    };
    uint64_t copied = 0, removed = 0;
    enum skr_code code = skr_tx_run(tx,
                                    &(struct skr_statement){
                                        .sql = messenger->sql.copy_to_failed,
                                        .values = values,
                                        .value_count = SKR_COUNT_OF(values),
                                        .affected = &copied,
                                    },
                                    error);
    if (code != SKR_OK || copied == 0)
        return code;
    code = skr_messenger_run_list(tx,
                                  &(struct skr_list_run){
                                      .sql = &messenger->sql.remove,
                                      .rows = &row,
                                      .count = 1,
                                      .affected = &removed,
                                  },
                                  error);
    if (code != SKR_OK || removed == 1)
        return code;
    return skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                    "row %lld of %s was removed by another connection",
                    (long long)row, messenger->name);
}

static enum skr_code
move_to_failed(const struct skr_messenger *messenger, struct skr_tx tx,
               struct skr_arena *arena, const struct skr_batch_item *item,
               struct skr_error *error)
{
    const struct skr_envelope *envelope = &item->envelope;
    struct skr_failed_message message = {
        .raw_headers = item->raw_headers,
        .raw_headers_size = item->raw_headers_size,
        .body = envelope->message.body,
        .body_size = envelope->message.body_size,
        .failure = {.transport = messenger->transport,
                    .retries = envelope->retry_count,
                    .reason = &item->reason},
    };
    struct skr_text json = {0};
    const char *queue = NULL;
    enum skr_code code =
        skr_headers_copy(arena, &envelope->headers, &message.headers, error);
    if (code == SKR_OK)
        code = keep_id(arena, envelope, &message.headers, error);
    if (code == SKR_OK)
        code = skr_messenger_mark_failed(messenger, arena, &message, &json,
                                         &queue, error);
    if (code == SKR_OK)
        code = copy_and_remove(messenger, tx, item->row, &json, queue, error);
    skr_text_fini(&json);
    return code;
}

static enum skr_code
settle_item(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_arena *arena, const struct skr_batch_item *item,
            struct skr_error *error)
{
    switch (item->state) {
    case SKR_READ:
    case SKR_SENT:
    case SKR_DONE: return SKR_OK;
    case SKR_RETRY_LATER: return retry_later(messenger, tx, arena, item, error);
    case SKR_HOPELESS:
        if (messenger->failed_table == NULL)
            return SKR_OK;
        return move_to_failed(messenger, tx, arena, item, error);
    }
    return SKR_OK;
}

static enum skr_code
settle_all(const struct skr_messenger *messenger, struct skr_tx tx,
           struct skr_arena *arena, const struct skr_batch *batch,
           struct skr_error *error)
{
    enum skr_code code = skr_messenger_run_state(
        tx, &(struct skr_list_run){.sql = &messenger->sql.remove}, batch,
        SKR_DONE, error);
    for (size_t i = 0; code == SKR_OK && i < batch->count; i++)
        code = settle_item(messenger, tx, arena, &batch->items[i], error);
    return code;
}

enum skr_code
skr_messenger_settle(const struct skr_table *table, struct skr_db *db,
                     struct skr_batch *batch, struct skr_error *error)
{
    struct skr_arena arena = {0};
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = settle_all(skr_messenger_of(table), skr_db_tx(db), &arena, batch,
                      error);
    skr_arena_fini(&arena);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}
