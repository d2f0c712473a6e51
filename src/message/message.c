// SPDX-License-Identifier: MIT
// A message on its way into the outbox: checked, and written as headers.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/trace.h"

#include <string.h>

enum {
    MAX_PARTITION_KEY = 255,
    // The library adds the rest: type, content type, ids, key and trace.
    MOST_GIVEN = SKR_MAX_HEADERS - 7,
};

// Headers that the library writes from the message's own fields: a second
// value under the same name would win or lose by chance.
static bool
is_ours(const char *name)
{
    return strcmp(name, SKR_HEADER_TYPE) == 0 ||
           strcmp(name, SKR_HEADER_CONTENT_TYPE) == 0 ||
           strcmp(name, SKR_HEADER_ID) == 0 ||
           (skr_text_starts_with(name, SKR_HEADER_STAMP) &&
            (skr_text_ends_with(name, "MessageIdStamp") ||
             skr_text_ends_with(name, "PartitionKeyStamp")));
}

static bool
has_control_character(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == '\x7f')
            return true;
    return false;
}

static enum skr_code
check_headers(const struct skr_message *message, struct skr_error *error)
{
    if (message->headers == NULL && message->header_count > 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has a header count but no headers",
                        message->name);
    if (message->header_count > MOST_GIVEN)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has more than %d headers", message->name,
                        MOST_GIVEN);
    for (size_t i = 0; i < message->header_count; i++) {
        const struct skr_header *header = &message->headers[i];
        if (header->name == NULL || header->name[0] == '\0' ||
            header->value == NULL)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "message %s: header %zu has no name or no value",
                            message->name, i);
        // Consumers write names into protocols and logs of lines; a value may
        // be any text.
        if (has_control_character(header->name))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "message %s: the name of header %zu holds a "
                            "control character, such as a line break",
                            message->name, i);
        if (is_ours(header->name))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "message %s: header '%.80s' is written by the "
                            "library; set the message's field instead",
                            message->name, header->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(header->name, message->headers[j].name) == 0)
                return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                "message %s: header '%.80s' is given twice",
                                message->name, header->name);
    }
    return SKR_OK;
}

static enum skr_code
check_content_type(const struct skr_message *message, struct skr_error *error)
{
    const char *type = message->content_type;
    if (type == NULL)
        return SKR_OK;
    if (type[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: the content type is empty; leave it out "
                        "for application/json",
                        message->name);
    if (!skr_text_is_storable(type, strlen(type)) ||
        has_control_character(type))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: the content type is not UTF-8 text, or "
                        "holds a control character",
                        message->name);
    return SKR_OK;
}

enum skr_code
skr_message_check(const struct skr_message *message, struct skr_error *error)
{
    enum skr_code code = skr_name_check(message->name, error);
    if (code != SKR_OK)
        return code;
    if (message->body == NULL && message->body_size > 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has a size but no body", message->name);
    if (!skr_text_is_storable(message->body, message->body_size))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: the body is not UTF-8 text, or holds a "
                        "zero byte; the table stores text: encode it, for "
                        "example as base64",
                        message->name);
    if (message->partition_key != NULL &&
        !skr_text_is_storable(message->partition_key,
                              strlen(message->partition_key)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: the partition key is not UTF-8 text",
                        message->name);
    if (message->partition_key != NULL &&
        strlen(message->partition_key) > MAX_PARTITION_KEY)
        return skr_fail(
            error, SKR_INVALID, SKR_GIVE_UP,
            "message %s: the partition key is over %d bytes: it has "
            "%zu; use a shorter one, such as a hash of it",
            message->name, MAX_PARTITION_KEY, strlen(message->partition_key));
    if (message->due_at_us < 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s: the due time is before 1970",
                        message->name);
    code = check_content_type(message, error);
    if (code == SKR_OK)
        code = check_headers(message, error);
    return code != SKR_OK ? code : skr_trace_check(message, error);
}

// The partition key's stamp has the same namespace as the id's, and there is
// none without: a Symfony that cannot load its class deletes the message.
static const char *
partition_header(struct skr_arena *arena, const char *id_header)
{
    size_t stem = strlen(id_header) - strlen("MessageIdStamp");
    return skr_arena_format(arena, "%.*sPartitionKeyStamp", (int)stem,
                            id_header);
}

enum skr_code
skr_message_write_headers(const struct skr_message *message,
                          struct skr_arena *arena, const char *id_header,
                          struct skr_text *json, struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    struct skr_headers row = {0};
    bool ok = skr_headers_add(arena, &row, SKR_HEADER_TYPE, message->name);
    if (ok && id_header != NULL)
        ok = skr_headers_add(arena, &row, id_header,
                             skr_stamp_write(arena, "messageId", id));
    ok = ok && skr_headers_add(arena, &row, SKR_HEADER_ID, id);
    if (ok && message->partition_key != NULL && id_header != NULL)
        ok = skr_headers_add(
            arena, &row, partition_header(arena, id_header),
            skr_stamp_write(arena, "partitionKey", message->partition_key));
    for (size_t i = 0; ok && i < message->header_count; i++)
        ok = skr_headers_add(arena, &row, message->headers[i].name,
                             message->headers[i].value);
    if (ok && message->traceparent != NULL)
        ok = skr_headers_add(arena, &row, SKR_HEADER_TRACEPARENT,
                             message->traceparent);
    if (ok && message->tracestate != NULL)
        ok = skr_headers_add(arena, &row, SKR_HEADER_TRACESTATE,
                             message->tracestate);
    ok = ok && skr_headers_add(arena, &row, SKR_HEADER_CONTENT_TYPE,
                               message->content_type == NULL
                                   ? SKR_DEFAULT_CONTENT_TYPE
                                   : message->content_type);
    if (!ok)
        return skr_fail_memory(error);
    return skr_headers_write(row.items, row.count, json, error);
}
