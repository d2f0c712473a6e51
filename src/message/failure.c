// SPDX-License-Identifier: MIT
// The delay before a retry, and the stamps by which Symfony recognizes a
// retried or failed message.

#include "message/failure.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <stdio.h>
#include <stdlib.h>
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

static void
write_text(struct skr_json_writer *writer, const char *name, const char *text)
{
    skr_json_write_name(writer, name);
    skr_json_write_text(writer, text, strlen(text));
}

static void
write_null(struct skr_json_writer *writer, const char *name)
{
    skr_json_write_name(writer, name);
    skr_json_write_null(writer);
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
    write_null(&writer, "exceptionMessage");
    write_null(&writer, "flattenException");
    write_text(&writer, "redeliveredAt", redelivered_at);
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
    write_text(&writer, "exceptionClass", class_name);
    if (reason->native[0] != '\0') {
        write_text(&writer, "exceptionCode", reason->native);
    } else {
        skr_json_write_name(&writer, "exceptionCode");
        skr_json_write_signed(&writer, reason->code);
    }
    // The text of an error may quote bytes from outside.
    bool is_text = skr_text_is_storable(reason->text, strlen(reason->text));
    write_text(&writer, "exceptionMessage",
               is_text ? reason->text : "(not UTF-8 text)");
    write_null(&writer, "flattenException");
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
    const char *class_name =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_CLASS);
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
    const char *type =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_TYPE);
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
    const char *name = SKR_HEADER_RAW;
    const char *value = NULL;
    if (skr_text_is_storable(raw, raw_size)) {
        value = skr_arena_text(arena, raw, raw_size);
    } else {
        char *encoded = skr_text_base64(raw, raw_size);
        name = SKR_HEADER_RAW_BASE64;
        if (encoded != NULL)
            value = skr_arena_text(arena, encoded, strlen(encoded));
        free(encoded);
    }
    *headers = (struct skr_headers){0};
    if (!skr_headers_add(arena, headers, name, value))
        return skr_fail_memory(error);
    return SKR_OK;
}
