// SPDX-License-Identifier: MIT
// What a failed row says about itself, and how it becomes a message again.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/failure.h"

#include <stdlib.h>
#include <string.h>

static const char *
find(const struct skr_headers *headers, const char *name)
{
    return skr_headers_find(headers->items, headers->count, name);
}

static enum skr_code
read_member(struct skr_arena *arena, const struct skr_headers *headers,
            const char *stamp, const char *member, const char **text,
            struct skr_error *error)
{
    const char *value = find(headers, stamp);
    *text = NULL;
    return value == NULL ? SKR_OK
                         : skr_stamp_read(arena, value, member, text, error);
}

static enum skr_code
read_stamps(struct skr_arena *arena, struct skr_failure_report *report,
            struct skr_error *error)
{
    const struct skr_headers *headers = &report->headers;
    const char *retries = NULL;
    enum skr_code code =
        read_member(arena, headers, SKR_HEADER_SENT_TO_FAILURE,
                    "originalReceiverName", &report->transport, error);
    if (code == SKR_OK)
        code = read_member(arena, headers, SKR_HEADER_ERROR, "exceptionClass",
                           &report->error_class, error);
    if (code == SKR_OK)
        code = read_member(arena, headers, SKR_HEADER_ERROR, "exceptionCode",
                           &report->error_code, error);
    if (code == SKR_OK)
        code = read_member(arena, headers, SKR_HEADER_ERROR, "exceptionMessage",
                           &report->error_text, error);
    // Before there was a stamp of its own, Symfony put it into this one.
    if (code == SKR_OK && report->error_text == NULL)
        code = read_member(arena, headers, SKR_HEADER_REDELIVERY,
                           "exceptionMessage", &report->error_text, error);
    if (code == SKR_OK)
        code = read_member(arena, headers, SKR_HEADER_REDELIVERY, "retryCount",
                           &retries, error);
    int64_t count = 0;
    if (code == SKR_OK && retries != NULL &&
        skr_text_number(retries, 0, INT32_MAX, &count))
        report->retries = (uint32_t)count;
    return code;
}

// A row that failed because its headers make no sense has none of these.
static enum skr_code
read_message(struct skr_arena *arena, const struct skr_names *names,
             struct skr_failure_report *report, struct skr_error *error)
{
    struct skr_envelope envelope = {0};
    enum skr_code code = skr_envelope_read(arena, &report->headers, NULL, names,
                                           &envelope, NULL);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    report->partition_key = find(&report->headers, SKR_HEADER_PARTITION);
    report->name = code == SKR_OK ? envelope.message.name
                                  : find(&report->headers, SKR_HEADER_TYPE);
    if (code != SKR_OK)
        return SKR_OK;
    if (report->partition_key == NULL)
        report->partition_key = envelope.message.partition_key;
    report->class_name = envelope.class_name;
    report->has_id = envelope.has_id;
    report->id = envelope.message.id;
    return SKR_OK;
}

enum skr_code
skr_failure_read(struct skr_arena *arena, const char *json, size_t size,
                 const struct skr_names *names,
                 struct skr_failure_report *report, struct skr_error *error)
{
    *report = (struct skr_failure_report){0};
    report->is_php = size == 2 && memcmp(json, "[]", 2) == 0;
    enum skr_code code =
        skr_headers_parse(arena, json, size, &report->headers, NULL);
    if (code == SKR_NO_MEMORY)
        return skr_fail_memory(error);
    if (code != SKR_OK)
        return SKR_OK;
    code = read_stamps(arena, report, error);
    if (code == SKR_OK)
        code = read_message(arena, names, report, error);
    return code;
}

// Of the failure, and of the way there: a message that is tried again has all
// its retries before it.
static bool
tells_of_failure(const char *header)
{
    static const char *const stamps[] = {
        SKR_HEADER_SENT_TO_FAILURE,
        SKR_HEADER_ERROR,
        SKR_HEADER_REDELIVERY,
        SKR_HEADER_NAME,
        SKR_HEADER_DIGEST,
        SKR_HEADER_PARTITION,
        "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\DelayStamp",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(stamps); i++)
        if (strcmp(header, stamps[i]) == 0)
            return true;
    return false;
}

static enum skr_code
write_raw(const struct skr_headers *headers, struct skr_text *json,
          struct skr_error *error)
{
    const char *raw = find(headers, SKR_HEADER_RAW);
    const char *encoded = find(headers, SKR_HEADER_RAW_BASE64);
    if (raw != NULL) {
        skr_text_add_string(json, raw);
        return json->broken ? skr_fail_memory(error) : SKR_OK;
    }
    size_t size = strlen(encoded), bytes_size = 0;
    char *bytes = malloc(size + 1);
    if (bytes == NULL)
        return skr_fail_memory(error);
    bool ok = skr_text_from_base64(encoded, size, bytes, &bytes_size);
    if (ok)
        skr_text_add(json, bytes, bytes_size);
    free(bytes);
    if (!ok)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the header " SKR_HEADER_RAW_BASE64 " is no base64");
    return json->broken ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_failure_undo(struct skr_arena *arena, const struct skr_headers *headers,
                 struct skr_text *json, struct skr_error *error)
{
    if (find(headers, SKR_HEADER_RAW) != NULL ||
        find(headers, SKR_HEADER_RAW_BASE64) != NULL)
        return write_raw(headers, json, error);
    struct skr_headers kept = {0};
    const char *name = find(headers, SKR_HEADER_NAME);
    for (size_t i = 0; i < headers->count; i++) {
        const struct skr_header *header = &headers->items[i];
        if (tells_of_failure(header->name))
            continue;
        bool is_type = strcmp(header->name, SKR_HEADER_TYPE) == 0;
        if (!skr_headers_add(arena, &kept, header->name,
                             is_type && name != NULL ? name : header->value))
            return skr_fail_memory(error);
    }
    return skr_headers_write(kept.items, kept.count, json, error);
}
