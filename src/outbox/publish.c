// SPDX-License-Identifier: MIT
// Publishing: a message becomes a row in the caller's own transaction.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "table/messenger/messenger.h"

#include <skirnir/skirnir.h>
#include <stdlib.h>
#include <string.h>

struct skr_outbox {
    struct skr_arena arena;
    const char *table;
    const char *queue;
    const char *id_header;
};

enum skr_code
skr_outbox_new(const struct skr_outbox_options *options,
               struct skr_outbox **outbox, struct skr_error *error)
{
    const struct skr_outbox_options defaults = {0};
    if (options == NULL)
        options = &defaults;
    const char *table =
        options->table == NULL ? "messenger_outbox" : options->table;
    const char *queue = options->queue == NULL ? "outbox" : options->queue;
    enum skr_code code = skr_messenger_check_names(table, queue, error);
    if (code != SKR_OK)
        return code;
    struct skr_outbox *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->table = skr_arena_text(&made->arena, table, strlen(table));
    made->queue = skr_arena_text(&made->arena, queue, strlen(queue));
    code = made->table == NULL || made->queue == NULL
               ? skr_fail_memory(error)
               : skr_envelope_id_header(&made->arena, options->stamp_namespace,
                                        &made->id_header, error);
    if (code != SKR_OK) {
        skr_outbox_free(made);
        return code;
    }
    *outbox = made;
    return SKR_OK;
}

void
skr_outbox_free(struct skr_outbox *outbox)
{
    if (outbox == NULL)
        return;
    skr_arena_fini(&outbox->arena);
    free(outbox);
}

static bool
is_unset(struct skr_id id)
{
    static const struct skr_id unset;
    return memcmp(&id, &unset, sizeof(id)) == 0;
}

// Every message is checked, and has its row ready, before the first is
// written: a mistake in the last leaves the caller's transaction untouched.
static enum skr_code
make_row(const struct skr_outbox *outbox, struct skr_message *message,
         struct skr_arena *arena, struct skr_messenger_row *row,
         struct skr_error *error)
{
    enum skr_code code = skr_message_check(message, error);
    if (code == SKR_OK && is_unset(message->id))
        code = skr_id_new(&message->id, error);
    if (code != SKR_OK)
        return code;
    struct skr_text json = {0};
    code = skr_message_write_headers(message, arena, outbox->id_header, &json,
                                     error);
    if (code == SKR_OK) {
        *row = (struct skr_messenger_row){
            .body = message->body,
            .body_size = message->body_size,
            .headers = skr_arena_text(arena, json.bytes, json.size),
            .headers_size = json.size,
            .due_at_us = message->due_at_us,
        };
        if (row->headers == NULL)
            code = skr_fail_memory(error);
    }
    skr_text_fini(&json);
    return code;
}

enum skr_code
skr_publish(const struct skr_outbox *outbox, struct skr_tx tx,
            struct skr_message *messages, size_t count, struct skr_error *error)
{
    enum skr_code code = tx.ops->check(tx, error);
    if (code != SKR_OK || count == 0)
        return code;
    struct skr_arena arena = {0};
    struct skr_messenger_row *rows =
        count > SIZE_MAX / sizeof(*rows)
            ? NULL
            : skr_arena_take(&arena, count * sizeof(*rows));
    if (rows == NULL)
        code = skr_fail_memory(error);
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = make_row(outbox, &messages[i], &arena, &rows[i], error);
    if (code == SKR_OK)
        code = skr_messenger_insert(tx, outbox->table, outbox->queue, rows,
                                    count, error);
    if (code == SKR_MISSING)
        skr_error_prefix(error, "run `skirnir setup` first");
    skr_arena_fini(&arena);
    return code;
}
