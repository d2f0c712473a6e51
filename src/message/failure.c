// SPDX-License-Identifier: MIT
// The delay before a retry, the stamps by which Symfony recognizes a retried or
// failed message, and what a failed row says about itself.

#include "message/failure.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/json.h"

#include <stdio.h>
#include <string.h>

uint32_t
skr_retry_delay_ms(const struct skr_retry_policy *policy, uint32_t retry,
                   uint32_t random)
{
    double most =
        policy->max_delay_ms > 0 ? policy->max_delay_ms : 24.0 * 60 * 60 * 1000;
    double delay = policy->delay_ms;
    for (uint32_t i = 1; i < retry && delay < most; i++) {
        double grown = delay * policy->multiplier;
        if (grown <= delay)
            break;
        delay = grown;
    }
    delay *= 1 + policy->jitter * (2 * (random / (double)UINT32_MAX) - 1);
    return (uint32_t)(delay < most ? delay : most);
}

uint32_t
skr_failures_count(struct skr_failures *failures, uint32_t limit,
                   int64_t now_ms)
{
    enum { MINUTE_MS = 60000 };
    if (now_ms - failures->since_ms >= MINUTE_MS)
        *failures = (struct skr_failures){.since_ms = now_ms};
    if (limit > 0 && failures->count >= limit)
        return (uint32_t)(failures->since_ms + MINUTE_MS - now_ms);
    failures->count++;
    return 0;
}

// Ends the stamp that was begun by begin_stamp() and makes it a header.
static bool
set_stamp(struct skr_arena *arena, struct skr_headers *headers,
          const char *name, struct skr_json_writer *writer)
{
    skr_json_end_object(writer);
    skr_json_end_array(writer);
    return skr_headers_set(arena, headers, name,
                           skr_json_take_text(writer, arena));
}

static void
begin_stamp(struct skr_json_writer *writer)
{
    skr_json_begin_array(writer);
    skr_json_begin_object(writer);
}

static bool
set_redelivery(struct skr_arena *arena, struct skr_headers *headers,
               uint32_t retry)
{
    char now[SKR_TIMESTAMP_SIZE], redelivered_at[40];
    skr_clock_timestamp(skr_clock_wall_us(), now);
    snprintf(redelivered_at, sizeof(redelivered_at), "%.10sT%s+00:00", now,
             now + 11);
    struct skr_json_writer writer = {.needs_comma = false};
    begin_stamp(&writer);
    skr_json_write_name(&writer, "retryCount");
    skr_json_write_unsigned(&writer, retry);
    skr_json_write_member(&writer, "exceptionMessage", NULL);
    skr_json_write_member(&writer, "flattenException", NULL);
    skr_json_write_member(&writer, "redeliveredAt", redelivered_at);
    return set_stamp(arena, headers, SKR_HEADER_REDELIVERY, &writer);
}

static bool
set_error(struct skr_arena *arena, struct skr_headers *headers,
          const struct skr_error *reason)
{
    const char *class_name =
        skr_arena_format(arena, "Skirnir\\%s", skr_code_name(reason->code));
    if (class_name == NULL)
        return false;
    struct skr_json_writer writer = {.needs_comma = false};
    begin_stamp(&writer);
    skr_json_write_member(&writer, "exceptionClass", class_name);
    if (reason->native[0] != '\0') {
        skr_json_write_member(&writer, "exceptionCode", reason->native);
    } else {
        skr_json_write_name(&writer, "exceptionCode");
        skr_json_write_signed(&writer, reason->code);
    }
    // The text of an error may quote bytes from outside.
    bool is_text = skr_text_is_storable(reason->text, strlen(reason->text));
    skr_json_write_member(&writer, "exceptionMessage",
                          is_text ? reason->text : "(not UTF-8 text)");
    skr_json_write_member(&writer, "flattenException", NULL);
    return set_stamp(arena, headers, SKR_HEADER_ERROR, &writer);
}

enum skr_code
skr_failure_mark_retry(struct skr_arena *arena, struct skr_headers *headers,
                       uint32_t retry, const struct skr_error *reason,
                       struct skr_error *error)
{
    if (!set_redelivery(arena, headers, retry) ||
        (reason != NULL && reason->text[0] != '\0' &&
         !set_error(arena, headers, reason)))
        return skr_fail_memory(error);
    return SKR_OK;
}

static const char *
find_class(const struct skr_headers *headers, const struct skr_names *names,
           const char *type)
{
    const char *class_name = skr_headers_get(headers, SKR_HEADER_CLASS);
    if (class_name != NULL)
        return class_name;
    if (type == NULL)
        return NULL;
    return skr_name_is_class(type) ? type : skr_names_find_class(names, type);
}

enum skr_code
skr_failure_mark_failed(struct skr_arena *arena, struct skr_headers *headers,
                        const struct skr_names *names,
                        const struct skr_failure *failure, bool *readable,
                        struct skr_error *error)
{
    const char *type = skr_headers_get(headers, SKR_HEADER_TYPE);
    const char *class_name = find_class(headers, names, type);
    bool ok = true;
    if (class_name != NULL && type != NULL && !skr_name_is_class(type))
        ok = skr_headers_set(arena, headers, SKR_HEADER_NAME, type) &&
             skr_headers_set(arena, headers, SKR_HEADER_TYPE, class_name);
    const char *sent =
        skr_stamp_write(arena, "originalReceiverName", failure->transport);
    ok = ok && set_redelivery(arena, headers, failure->retries) &&
         set_error(arena, headers, failure->reason) &&
         skr_headers_set(arena, headers, SKR_HEADER_SENT_TO_FAILURE, sent);
    if (!ok)
        return skr_fail_memory(error);
    *readable = class_name != NULL && type != NULL;
    return SKR_OK;
}

enum skr_code
skr_failure_wrap_raw(struct skr_arena *arena, const void *raw, size_t raw_size,
                     struct skr_headers *headers, struct skr_error *error)
{
    const char *name = skr_text_is_storable(raw, raw_size)
                           ? SKR_HEADER_RAW
                           : SKR_HEADER_RAW_BASE64;
    const char *value = skr_arena_storable(arena, raw, raw_size);
    *headers = (struct skr_headers){0};
    return skr_headers_add(arena, headers, name, value)
               ? SKR_OK
               : skr_fail_memory(error);
}

static enum skr_code
read_stamps(struct skr_arena *arena, struct skr_failure_report *report,
            struct skr_error *error)
{
    const char *retries = NULL, *old_text = NULL;
    const struct {
        const char *stamp, *member, **text;
    } wanted[] = {
        {SKR_HEADER_SENT_TO_FAILURE, "originalReceiverName",
         &report->transport},
        {SKR_HEADER_ERROR, "exceptionClass", &report->error_class},
        {SKR_HEADER_ERROR, "exceptionCode", &report->error_code},
        {SKR_HEADER_ERROR, "exceptionMessage", &report->error_text},
        // Before there was a stamp of its own, Symfony put it into this one.
        {SKR_HEADER_REDELIVERY, "exceptionMessage", &old_text},
        {SKR_HEADER_REDELIVERY, "retryCount", &retries},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(wanted); i++) {
        const char *stamp = skr_headers_get(&report->headers, wanted[i].stamp);
        enum skr_code code =
            stamp == NULL ? SKR_OK
                          : skr_stamp_read(arena, stamp, wanted[i].member,
                                           wanted[i].text, error);
        if (code != SKR_OK)
            return code;
    }
    if (report->error_text == NULL)
        report->error_text = old_text;
    int64_t count = 0;
    if (retries != NULL && skr_text_number(retries, 0, INT32_MAX, &count))
        report->retries = (uint32_t)count;
    return SKR_OK;
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
    report->partition_key =
        skr_headers_get(&report->headers, SKR_HEADER_PARTITION);
    report->name = code == SKR_OK
                       ? envelope.message.name
                       : skr_headers_get(&report->headers, SKR_HEADER_TYPE);
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
    return skr_text_is_among(header, stamps, SKR_COUNT_OF(stamps));
}

static enum skr_code
write_raw(const struct skr_headers *headers, struct skr_text *json,
          struct skr_error *error)
{
    const char *raw = skr_headers_get(headers, SKR_HEADER_RAW);
    const char *encoded = skr_headers_get(headers, SKR_HEADER_RAW_BASE64);
    if (raw != NULL) {
        skr_text_add_string(json, raw);
        return json->broken ? skr_fail_memory(error) : SKR_OK;
    }
    size_t size = strlen(encoded), bytes_size = 0;
    if (!skr_text_reserve(json, size))
        return skr_fail_memory(error);
    char *bytes = json->bytes + json->size;
    if (!skr_text_from_base64(encoded, size, bytes, &bytes_size))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the header " SKR_HEADER_RAW_BASE64 " is no base64");
    bytes[bytes_size] = '\0';
    json->size += bytes_size;
    return SKR_OK;
}

enum skr_code
skr_failure_undo(struct skr_arena *arena, const struct skr_headers *headers,
                 struct skr_text *json, struct skr_error *error)
{
    if (skr_headers_get(headers, SKR_HEADER_RAW) != NULL ||
        skr_headers_get(headers, SKR_HEADER_RAW_BASE64) != NULL)
        return write_raw(headers, json, error);
    struct skr_headers kept = {0};
    const char *name = skr_headers_get(headers, SKR_HEADER_NAME);
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
