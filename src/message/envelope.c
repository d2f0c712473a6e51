// SPDX-License-Identifier: MIT
// Reads what the headers say of a message (id, name, retries) and writes the
// headers it is sent with. Symfony's stamps and Skirnir's own headers meet
// here. Then a message on its way into the outbox: checked, and written as
// headers.

#include "message/envelope.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/id.h"
#include "message/trace.h"

#include <stdlib.h>
#include <string.h>

// "X-Message-Stamp-…\MessageIdStamp" in any namespace or none.
static bool
is_stamp(const char *header, const char *class_name)
{
    if (!skr_text_starts_with(header, SKR_HEADER_STAMP) ||
        !skr_text_ends_with(header, class_name))
        return false;
    size_t length = strlen(header), tail = strlen(class_name);
    char before = header[length - tail - 1];
    return before == '\\' || before == '-';
}

static const struct skr_header *
find_stamp(const struct skr_headers *headers, const char *class_name)
{
    for (size_t i = 0; i < headers->count; i++)
        if (is_stamp(headers->items[i].name, class_name))
            return &headers->items[i];
    return NULL;
}

// NULL in *text when there is no such stamp or it has no such member.
static enum skr_code
read_stamp(struct skr_arena *arena, const struct skr_headers *headers,
           const char *class_name, const char *member, const char **text,
           struct skr_error *error)
{
    const struct skr_header *stamp = find_stamp(headers, class_name);
    *text = NULL;
    if (stamp == NULL)
        return SKR_OK;
    return skr_stamp_read(arena, stamp->value, member, text, error);
}

// The stamp of the publishing application comes first: it is what consumers
// in other languages deduplicate by.
static enum skr_code
read_id(struct skr_arena *arena, const char *broker_id,
        struct skr_envelope *envelope, struct skr_error *error)
{
    const struct skr_headers *headers = &envelope->headers;
    const char *text = NULL;
    enum skr_code code =
        read_stamp(arena, headers, "MessageIdStamp", "messageId", &text, error);
    if (code != SKR_OK)
        return code;
    if (text == NULL && find_stamp(headers, "MessageIdStamp") != NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the MessageIdStamp header holds no id; "
                        "[{\"messageId\":\"<uuid>\"}] is needed");
    if (text == NULL)
        text = skr_headers_get(headers, SKR_HEADER_ID);
    if (text == NULL)
        text = broker_id;
    if (text == NULL)
        return SKR_OK;
    code = skr_id_parse(text, &envelope->message.id, error);
    // All zero is what a producer leaves that never set one: taken for an id,
    // every message after the first would count as its duplicate.
    envelope->has_unset_id =
        code == SKR_OK && skr_id_is_unset(envelope->message.id);
    envelope->has_id = code == SKR_OK && !envelope->has_unset_id;
    return code;
}

static const char *
find_name(const struct skr_names *names, const char *class_name)
{
    for (size_t i = 0; names != NULL && i < names->count; i++)
        if (strcmp(names->pairs[i].class_name, class_name) == 0)
            return names->pairs[i].name;
    return NULL;
}

// Other languages put their class, or a word of their own, into type; the
// semantic name stands beside it in a stamp, in a header of ours, or in the
// configuration.
static enum skr_code
translate_class(struct skr_arena *arena, const struct skr_names *names,
                struct skr_envelope *envelope, struct skr_error *error)
{
    const struct skr_headers *headers = &envelope->headers;
    const char *class_name = envelope->message.name;
    const char *name = NULL;
    enum skr_code code = read_stamp(arena, headers, "MessageNameStamp",
                                    "messageName", &name, error);
    if (code != SKR_OK)
        return code;
    if (name == NULL)
        name = skr_headers_get(headers, SKR_HEADER_NAME);
    if (name == NULL)
        name = find_name(names, class_name);
    envelope->class_name = class_name;
    if (name != NULL)
        envelope->message.name = name;
    return SKR_OK;
}

static enum skr_code
read_name(struct skr_arena *arena, const struct skr_names *names,
          struct skr_envelope *envelope, struct skr_error *error)
{
    const struct skr_headers *headers = &envelope->headers;
    const char *type = skr_headers_get(headers, SKR_HEADER_TYPE);
    if (type == NULL || type[0] == '\0')
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "headers have no type; add \"type\":\"message.name\"");
    envelope->message.name = type;
    if (skr_name_is_class(type) || find_name(names, type) != NULL)
        return translate_class(arena, names, envelope, error);
    envelope->class_name = skr_headers_get(headers, SKR_HEADER_CLASS);
    if (envelope->class_name == NULL)
        envelope->class_name = skr_names_find_class(names, type);
    return SKR_OK;
}

static enum skr_code
read_retry_count(struct skr_arena *arena, struct skr_envelope *envelope,
                 struct skr_error *error)
{
    const char *text = NULL;
    enum skr_code code =
        read_stamp(arena, &envelope->headers, "RedeliveryStamp", "retryCount",
                   &text, error);
    if (code != SKR_OK)
        return code;
    long count = text == NULL ? 0 : strtol(text, NULL, 10);
    // A count from outside is bounded, so that adding one stays a count.
    envelope->retry_count = count < 0         ? 0
                            : count > 1000000 ? 1000000
                                              : (uint32_t)count;
    return SKR_OK;
}

enum skr_code
skr_envelope_read(struct skr_arena *arena, const struct skr_headers *headers,
                  const char *broker_id, const struct skr_names *names,
                  struct skr_envelope *envelope, struct skr_error *error)
{
    struct skr_envelope read = {.headers = *headers};
    enum skr_code code = read_name(arena, names, &read, error);
    if (code == SKR_OK)
        code = read_id(arena, broker_id, &read, error);
    if (code == SKR_OK)
        code = read_retry_count(arena, &read, error);
    if (code == SKR_OK)
        code = read_stamp(arena, headers, "PartitionKeyStamp", "partitionKey",
                          &read.message.partition_key, error);
    if (code != SKR_OK)
        return code;
    const char *content_type =
        skr_headers_get(headers, SKR_HEADER_CONTENT_TYPE);
    read.message.content_type =
        content_type == NULL ? SKR_DEFAULT_CONTENT_TYPE : content_type;
    read.message.headers = headers->items;
    read.message.header_count = headers->count;
    skr_trace_read(&read.message);
    *envelope = read;
    return SKR_OK;
}

enum skr_code
skr_envelope_id_header(struct skr_arena *arena, const char *stamp_namespace,
                       const char **id_header, struct skr_error *error)
{
    if (stamp_namespace == NULL)
        stamp_namespace = SKR_DEFAULT_STAMP_NAMESPACE;
    *id_header = NULL;
    if (stamp_namespace[0] == '\0')
        return SKR_OK;
    *id_header = skr_arena_format(arena, SKR_HEADER_STAMP "%s\\MessageIdStamp",
                                  stamp_namespace);
    return *id_header == NULL ? skr_fail_memory(error) : SKR_OK;
}

// What concerns the sender's own bookkeeping and would mislead a receiver.
static bool
stays_home(const char *header)
{
    static const char *const stamps[] = {
        "PartitionKeyStamp", "DelayStamp",    "RedeliveryStamp",
        "BusNameStamp",      "SentStamp",     "SentToFailureTransportStamp",
        "ErrorDetailsStamp", "ReceivedStamp", "TransportMessageIdStamp",
    };
    if (strcmp(header, SKR_HEADER_TYPE) == 0 ||
        strcmp(header, SKR_HEADER_CONTENT_TYPE) == 0 ||
        strcmp(header, SKR_HEADER_CLASS) == 0 ||
        skr_headers_is_reserved(header))
        return true;
    for (size_t i = 0; i < SKR_COUNT_OF(stamps); i++)
        if (is_stamp(header, stamps[i]))
            return true;
    return false;
}

static bool
is_id(const char *header)
{
    return strcmp(header, SKR_HEADER_ID) == 0 ||
           is_stamp(header, "MessageIdStamp");
}

bool
skr_envelope_is_free_header(const char *header)
{
    return header[0] != '\0' && skr_text_is_storable(header, strlen(header)) &&
           !stays_home(header) && !is_id(header) &&
           !skr_text_starts_with(header, SKR_HEADER_STAMP);
}

static bool
add_id(struct skr_arena *arena, const struct skr_envelope *envelope,
       const char *id_header, struct skr_headers *wire)
{
    const struct skr_headers *came = &envelope->headers;
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(envelope->message.id, id);
    if (id_header != NULL &&
        (envelope->has_unset_id ||
         find_stamp(came, "MessageIdStamp") == NULL) &&
        !skr_headers_add(arena, wire, id_header,
                         skr_stamp_write(arena, "messageId", id)))
        return false;
    if (!envelope->has_unset_id && skr_headers_get(came, SKR_HEADER_ID) != NULL)
        return true;
    return skr_headers_add(arena, wire, SKR_HEADER_ID,
                           skr_arena_text(arena, id, strlen(id)));
}

enum skr_code
skr_envelope_to_wire(struct skr_arena *arena, const char *id_header,
                     const char *partition_header,
                     struct skr_envelope *envelope, struct skr_error *error)
{
    const struct skr_headers *came = &envelope->headers;
    const char *key = envelope->message.partition_key;
    struct skr_headers wire = {0};
    bool ok =
        skr_headers_add(arena, &wire, SKR_HEADER_TYPE, envelope->message.name);
    // A class that is its own name has no other name to travel beside.
    if (ok && envelope->class_name != NULL &&
        strcmp(envelope->class_name, envelope->message.name) != 0)
        ok = skr_headers_add(arena, &wire, SKR_HEADER_CLASS,
                             envelope->class_name);
    ok = ok && add_id(arena, envelope, id_header, &wire);
    for (size_t i = 0; ok && i < came->count; i++)
        if (!stays_home(came->items[i].name) &&
            !(envelope->has_unset_id && is_id(came->items[i].name)))
            ok = skr_headers_add(arena, &wire, came->items[i].name,
                                 came->items[i].value);
    if (ok && partition_header != NULL && key != NULL && key[0] != '\0')
        ok = skr_headers_set(arena, &wire, partition_header, key);
    if (!ok)
        return skr_fail_memory(error);
    envelope->message.headers = wire.items;
    envelope->message.header_count = wire.count;
    return SKR_OK;
}

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
