// SPDX-License-Identifier: MIT
// Headers as an ordered list: parsed from and written as a JSON object, and the
// stamps in them, which are JSON arrays inside of a header.

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
    struct skr_header *items =
        skr_arena_grow(arena, headers->items, headers->count,
                       &headers->capacity, sizeof(*items));
    if (items == NULL)
        return false;
    headers->items = items;
    items[headers->count++] = (struct skr_header){.name = name, .value = value};
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

const char *
skr_headers_get(const struct skr_headers *headers, const char *name)
{
    return skr_headers_find(headers->items, headers->count, name);
}

bool
skr_headers_is_reserved(const char *name)
{
    return skr_text_starts_with(name, SKR_HEADER_RESERVED);
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
    switch (value->kind) {
    case SKR_JSON_NULL: return "null";
    case SKR_JSON_BOOLEAN: return value->truth ? "true" : "false";
    case SKR_JSON_NUMBER:
    case SKR_JSON_TEXT: return value->text;
    case SKR_JSON_ARRAY:
    case SKR_JSON_OBJECT: break;
    }
    return skr_json_compact(arena, value->text, value->text_size);
}

enum skr_code
skr_headers_check_size(size_t size, struct skr_error *error)
{
    if (size <= SKR_MAX_HEADERS_SIZE)
        return SKR_OK;
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "the headers have %zu bytes; %d are the most that a "
                    "message may have, put the rest into its body",
                    size, SKR_MAX_HEADERS_SIZE);
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
refuse_shape(const char *shape, struct skr_error *error)
{
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "headers are %s; a JSON object with at least "
                    "{\"type\":\"message.name\"} is needed",
                    shape);
}

struct parsing {
    struct skr_arena *arena;
    struct skr_headers headers;
    bool is_json;  // what is wrong is a header, and not its JSON
};

static enum skr_code
parse_member(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct parsing *parsing = user;
    enum skr_code code =
        child->name == NULL
            ? refuse_shape("JSON but not an object", error)
            : skr_headers_take(parsing->arena, child, &parsing->headers, error);
    parsing->is_json = code != SKR_OK;
    return code;
}

enum skr_code
skr_headers_parse(struct skr_arena *arena, const char *json, size_t size,
                  struct skr_headers *headers, struct skr_error *error)
{
    struct parsing parsing = {.arena = arena};
    enum skr_json_kind kind = SKR_JSON_NULL;
    enum skr_code code = skr_json_walk(
        &(struct skr_json_walker){
            .arena = arena, .take = parse_member, .user = &parsing},
        json, size, &kind, error);
    if (code == SKR_MALFORMED && !parsing.is_json && error != NULL) {
        struct skr_error reason = *error;
        return refuse_shape(reason.text, error);
    }
    if (code != SKR_OK)
        return code;
    if (kind != SKR_JSON_OBJECT)
        return refuse_shape(
            kind == SKR_JSON_ARRAY ? "[]" : "JSON but not an object", error);
    *headers = parsing.headers;
    return SKR_OK;
}

enum skr_code
skr_headers_write(const struct skr_header *headers, size_t count,
                  struct skr_text *json, struct skr_error *error)
{
    struct skr_json_writer writer = {.text = *json};
    size_t i = 0, size = 2;
    for (; i < count; i++)
        size +=
            2 + skr_json_quoted_size(headers[i].name, strlen(headers[i].name)) +
            skr_json_quoted_size(headers[i].value, strlen(headers[i].value));
    // What grows bit by bit takes twice as much in the end.
    if (!skr_text_reserve(&writer.text, size)) {
        *json = writer.text;
        return skr_fail_memory(error);
    }
    skr_json_begin_object(&writer);
    i = 0;
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

struct stamp {
    const char *member;
    struct skr_json last;   // element of the array
    struct skr_json found;  // its member of that name; name NULL: none
};

static enum skr_code
take_last(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct stamp *stamp = user;
    (void)error;
    stamp->last = *child;
    return SKR_OK;
}

static enum skr_code
find_member(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct stamp *stamp = user;
    (void)error;
    if (strlen(stamp->member) == child->name_size &&
        memcmp(stamp->member, child->name, child->name_size) == 0)
        stamp->found = *child;
    return SKR_OK;
}

enum skr_code
skr_stamp_read(struct skr_arena *arena, const char *value, const char *member,
               const char **text, struct skr_error *error)
{
    *text = NULL;
    struct stamp stamp = {.member = member};
    enum skr_json_kind kind = SKR_JSON_NULL;
    enum skr_code code = skr_json_walk(
        &(struct skr_json_walker){
            .arena = arena, .take = take_last, .user = &stamp},
        value, strlen(value), &kind, error);
    if (code == SKR_OK && kind == SKR_JSON_ARRAY &&
        stamp.last.kind == SKR_JSON_OBJECT)
        code = skr_json_walk(
            &(struct skr_json_walker){
                .arena = arena, .take = find_member, .user = &stamp},
            stamp.last.text, stamp.last.text_size, &kind, error);
    if (code == SKR_NO_MEMORY)
        return code;
    if (code != SKR_OK || stamp.found.kind == SKR_JSON_NULL)
        return SKR_OK;
    *text = value_text(arena, &stamp.found);
    return *text == NULL ? skr_fail_memory(error) : SKR_OK;
}

const char *
skr_stamp_write(struct skr_arena *arena, const char *member, const char *text)
{
    struct skr_json_writer writer = {.needs_comma = false};
    skr_json_begin_array(&writer);
    skr_json_begin_object(&writer);
    skr_json_write_member(&writer, member, text);
    skr_json_end_object(&writer);
    skr_json_end_array(&writer);
    return skr_json_take_text(&writer, arena);
}
