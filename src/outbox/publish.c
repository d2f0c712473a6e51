// SPDX-License-Identifier: MIT
// Publishing: a message becomes a row in the caller's own transaction.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/id.h"
#include "store/append.h"

#include <skirnir/skirnir.h>
#include <stdlib.h>
#include <string.h>

struct skr_outbox {
    struct skr_appender *appender;
    struct skr_arena arena;
    const char *id_header;
};

enum skr_code
skr_outbox_new(const struct skr_outbox_options *options,
               struct skr_outbox **outbox, struct skr_error *error)
{
    const struct skr_outbox_options defaults = {0};
    if (options == NULL)
        options = &defaults;
    struct skr_outbox *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_appender_new(options, &made->appender, error);
    if (code == SKR_OK)
        code = skr_envelope_id_header(&made->arena, options->stamp_namespace,
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
    skr_appender_free(outbox->appender);
    skr_arena_fini(&outbox->arena);
    free(outbox);
}

// A relay would find the row malformed.
static enum skr_code
check_headers_size(const struct skr_message *message, size_t size,
                   struct skr_error *error)
{
    enum skr_code code = skr_headers_check_size(size, error);
    if (code == SKR_OK)
        return SKR_OK;
    skr_error_prefix(error, "message %s", message->name);
    if (error != NULL)
        error->code = SKR_INVALID;
    return SKR_INVALID;
}

// Every message is checked, and has its row ready, before the first is
// written: a mistake in the last leaves the caller's transaction untouched.
static enum skr_code
make_row(const struct skr_outbox *outbox, const struct skr_message *message,
         struct skr_arena *arena, struct skr_append_row *row,
         struct skr_error *error)
{
    const struct skr_appender *appender = outbox->appender;
    struct skr_message whole = *message;
    enum skr_code code = skr_message_check(message, error);
    if (code == SKR_OK)
        code = appender->ops->check(appender, message, error);
    if (code == SKR_OK && skr_id_is_unset(whole.id))
        code = skr_id_new(&whole.id, error);
    if (code != SKR_OK)
        return code;
    struct skr_text json = {0};
    code = skr_message_write_headers(&whole, arena, outbox->id_header, &json,
                                     error);
    if (code == SKR_OK)
        code = check_headers_size(message, json.size, error);
    if (code == SKR_OK) {
        *row = (struct skr_append_row){
            .message = message,
            .id = whole.id,
            .headers = skr_arena_text(arena, json.bytes, json.size),
            .headers_size = json.size,
        };
        if (row->headers == NULL)
            code = skr_fail_memory(error);
    }
    skr_text_fini(&json);
    return code;
}

static int
compare_ids(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct skr_id));
}

// A consumer takes the second message of an id for a duplicate of the first and
// drops it: a mistake that must not go unseen.
static enum skr_code
refuse_equal_ids(struct skr_arena *arena, const struct skr_append_row *rows,
                 size_t count, struct skr_error *error)
{
    struct skr_id *sorted = skr_arena_take(arena, count * sizeof(*sorted));
    if (sorted == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        sorted[i] = rows[i].id;
    qsort(sorted, count, sizeof(*sorted), compare_ids);
    for (size_t i = 1; i < count; i++)
        if (compare_ids(&sorted[i - 1], &sorted[i]) == 0) {
            char text[SKR_ID_TEXT_SIZE];
            skr_id_format(sorted[i], text);
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "two messages have the id %s; leave it zero to "
                            "have one made for each",
                            text);
        }
    return SKR_OK;
}

static enum skr_code
make_rows(const struct skr_outbox *outbox, const struct skr_message *messages,
          struct skr_append_row *rows, size_t count, struct skr_arena *arena,
          struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = make_row(outbox, &messages[i], arena, &rows[i], error);
    return code != SKR_OK ? code : refuse_equal_ids(arena, rows, count, error);
}

enum skr_code
skr_publish(const struct skr_outbox *outbox, struct skr_tx tx,
            const struct skr_message *messages, size_t count,
            struct skr_id *ids, struct skr_error *error)
{
    if (outbox == NULL || tx.ops == NULL || tx.connection == NULL ||
        (messages == NULL && count > 0))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "skr_publish: outbox, connection and messages must "
                        "not be NULL");
    enum skr_code code = tx.ops->check(tx, error);
    if (code != SKR_OK || count == 0)
        return code;
    struct skr_arena arena = {0};
    struct skr_append_row *rows =
        count <= SIZE_MAX / sizeof(*rows)
            ? skr_arena_take(&arena, count * sizeof(*rows))
            : NULL;
    code = rows == NULL
               ? skr_fail_memory(error)
               : make_rows(outbox, messages, rows, count, &arena, error);
    if (code == SKR_OK)
        code = skr_append(outbox->appender, tx, rows, count, error);
    for (size_t i = 0; i < count && code == SKR_OK && ids != NULL; i++)
        ids[i] = rows[i].id;
    skr_arena_fini(&arena);
    return code;
}
