// SPDX-License-Identifier: MIT
#include "message/headers.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <string.h>

bool
skr_headers_add(struct skr_arena *arena, struct skr_headers *headers,
                const char *name, const char *value)
{
    if (name == NULL || value == NULL)
        return false;
    if (headers->count == headers->capacity) {
        size_t capacity = headers->capacity == 0 ? 8 : headers->capacity * 2;
        struct skr_header *items =
            skr_arena_take(arena, capacity * sizeof(*items));
        if (items == NULL)
            return false;
        if (headers->count > 0)
            memcpy(items, headers->items, headers->count * sizeof(*items));
        headers->items = items;
        headers->capacity = capacity;
    }
    headers->items[headers->count++] =
        (struct skr_header){.name = name, .value = value};
    return true;
}

bool
skr_headers_set(struct skr_arena *arena, struct skr_headers *headers,
                const char *name, const char *value)
{
    for (size_t i = 0; i < headers->count && value != NULL; i++)
        if (strcmp(headers->items[i].name, name) == 0) {
            headers->items[i].value = value;
            return true;
        }
    return skr_headers_add(arena, headers, name, value);
}

enum skr_code
skr_headers_copy(struct skr_arena *arena, const struct skr_headers *headers,
                 struct skr_headers *copy, struct skr_error *error)
{
    struct skr_headers made = {0};
    for (size_t i = 0; i < headers->count; i++)
        if (!skr_headers_add(arena, &made, headers->items[i].name,
                             headers->items[i].value))
            return skr_fail_memory(error);
    *copy = made;
    return SKR_OK;
}

const char *
skr_headers_find(const struct skr_header *headers, size_t count,
                 const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(headers[i].name, name) == 0)
            return headers[i].value;
    return NULL;
}

static bool
has_zero(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

// Text as it is, anything else as its JSON. NULL when memory is out.
static const char *
value_text(struct skr_arena *arena, const struct skr_json *value)
{
    if (value->kind == SKR_JSON_TEXT)
        return value->text;
    struct skr_json_writer writer = {.needs_comma = false};
    skr_json_write(&writer, value);
    return skr_json_take_text(&writer, arena);
}

enum skr_code
skr_headers_take(struct skr_arena *arena, const struct skr_json *member,
                 struct skr_headers *headers, struct skr_error *error)
{
    if (has_zero(member->name, member->name_size) ||
        (member->kind == SKR_JSON_TEXT &&
         has_zero(member->text, member->text_size)))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "header '%.80s' holds a zero byte", member->name);
    if (headers->count == SKR_MAX_HEADERS)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "there are more than %d headers", SKR_MAX_HEADERS);
    const char *value = value_text(arena, member);
    if (value == NULL || !skr_headers_set(arena, headers, member->name, value))
        return skr_fail_memory(error);
    return SKR_OK;
}

static enum skr_code
refuse_shape(const struct skr_json *root, struct skr_error *error)
{
    bool is_empty = root->kind == SKR_JSON_ARRAY && root->first == NULL;
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "headers are %s; a JSON object with at least "
                    "{\"type\":\"message.name\"} is needed",
                    is_empty ? "[]" : "JSON but not an object");
}

enum skr_code
skr_headers_parse(struct skr_arena *arena, const char *json, size_t size,
                  struct skr_headers *headers, struct skr_error *error)
{
    struct skr_json *root = NULL;
    enum skr_code code = skr_json_parse(arena, json, size, 0, &root, error);
    if (code == SKR_MALFORMED)
        skr_error_prefix(error, "headers");
    if (code != SKR_OK)
        return code;
    if (root->kind != SKR_JSON_OBJECT)
        return refuse_shape(root, error);
    struct skr_headers parsed = {0};
    for (const struct skr_json *member = root->first;
         member != NULL && code == SKR_OK; member = member->next)
        code = skr_headers_take(arena, member, &parsed, error);
    if (code == SKR_OK)
        *headers = parsed;
    return code;
}

enum skr_code
skr_headers_write(const struct skr_header *headers, size_t count,
                  struct skr_text *json, struct skr_error *error)
{
    struct skr_json_writer writer = {.text = *json};
    skr_json_begin_object(&writer);
    size_t i = 0;
    for (; i < count && writer.error.code == SKR_OK; i++) {
        skr_json_write_name(&writer, headers[i].name);
        skr_json_write_text(&writer, headers[i].value,
                            strlen(headers[i].value));
    }
    skr_json_end_object(&writer);
    *json = writer.text;
    if (writer.error.code != SKR_OK)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "header '%.80s' is not UTF-8", headers[i - 1].name);
    return json->broken ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_stamp_read(struct skr_arena *arena, const char *value, const char *member,
               const char **text, struct skr_error *error)
{
    *text = NULL;
    struct skr_json *root = NULL;
    enum skr_code code =
        skr_json_parse(arena, value, strlen(value), 0, &root, error);
    if (code == SKR_NO_MEMORY)
        return code;
    if (code != SKR_OK || root->kind != SKR_JSON_ARRAY || root->first == NULL)
        return SKR_OK;
    const struct skr_json *last = root->first;
    while (last->next != NULL)
        last = last->next;
    const struct skr_json *found =
        last->kind == SKR_JSON_OBJECT ? skr_json_find(last, member) : NULL;
    if (found == NULL || found->kind == SKR_JSON_NULL)
        return SKR_OK;
    *text = value_text(arena, found);
    return *text == NULL ? skr_fail_memory(error) : SKR_OK;
}

const char *
skr_stamp_write(struct skr_arena *arena, const char *member, const char *text)
{
    struct skr_json_writer writer = {.needs_comma = false};
    skr_json_begin_array(&writer);
    skr_json_begin_object(&writer);
    skr_json_write_name(&writer, member);
    skr_json_write_text(&writer, text, strlen(text));
    skr_json_end_object(&writer);
    skr_json_end_array(&writer);
    return skr_json_take_text(&writer, arena);
}
