// SPDX-License-Identifier: MIT
#include "message/headers.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
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

void
skr_headers_remove(struct skr_headers *headers, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < headers->count; i++)
        if (strcmp(headers->items[i].name, name) != 0)
            headers->items[kept++] = headers->items[i];
    headers->count = kept;
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

static const char *
value_text(struct skr_arena *arena, const json_t *value)
{
    if (json_is_string(value))
        return skr_arena_text(arena, json_string_value(value),
                              json_string_length(value));
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        return NULL;
    const char *copy = skr_arena_text(arena, text, strlen(text));
    free(text);
    return copy;
}

static enum skr_code
copy_members(struct skr_arena *arena, json_t *object,
             struct skr_headers *headers, struct skr_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const char *name_copy = skr_arena_text(arena, name, strlen(name));
        const char *value_copy = value_text(arena, value);
        if (!skr_headers_add(arena, headers, name_copy, value_copy))
            return skr_fail_memory(error);
    }
    return SKR_OK;
}

static enum skr_code
refuse_shape(const json_t *root, struct skr_error *error)
{
    if (json_is_array(root) && json_array_size(root) == 0)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "headers are []: a JSON object with at least "
                        "{\"type\":\"message.name\"} is needed");
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "headers are JSON but not an object; "
                    "{\"type\":\"message.name\"} is needed");
}

// jansson takes a token that it had no memory to copy for bad syntax, and drops
// bytes of one that it had no memory to grow, so its word is not enough: a
// sound row would count as malformed or be read wrongly. errno was 0 before the
// call.
static bool
ran_out_of_memory(const json_t *root, const json_error_t *problem)
{
    return errno == ENOMEM || (root == NULL && json_error_code(problem) ==
                                                   json_error_out_of_memory);
}

enum skr_code
skr_headers_parse(struct skr_arena *arena, const char *json, size_t size,
                  struct skr_headers *headers, struct skr_error *error)
{
    json_error_t problem;
    errno = 0;
    json_t *root = json_loadb(json, size, 0, &problem);
    if (ran_out_of_memory(root, &problem)) {
        json_decref(root);
        return skr_fail_memory(error);
    }
    if (root == NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "headers are not JSON: %.100s at byte %d", problem.text,
                        problem.position);
    struct skr_headers parsed = {0};
    enum skr_code code = json_is_object(root)
                             ? copy_members(arena, root, &parsed, error)
                             : refuse_shape(root, error);
    json_decref(root);
    if (code == SKR_OK)
        *headers = parsed;
    return code;
}

enum skr_code
skr_headers_write(const struct skr_header *headers, size_t count,
                  struct skr_text *json, struct skr_error *error)
{
    json_t *object = json_object();
    if (object == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (!skr_text_is_storable(name, strlen(name)) ||
            !skr_text_is_storable(value, strlen(value)))
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "header '%.80s' is not UTF-8", name);
        else if (json_object_set_new(object, name, json_string(value)) != 0)
            code = skr_fail_memory(error);
    }
    char *text = code == SKR_OK ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (code != SKR_OK)
        return code;
    if (text != NULL)
        skr_text_add_string(json, text);
    code = text == NULL || json->broken ? skr_fail_memory(error) : SKR_OK;
    free(text);
    return code;
}

enum skr_code
skr_stamp_read(struct skr_arena *arena, const char *value, const char *member,
               const char **text, struct skr_error *error)
{
    json_error_t problem;
    *text = NULL;
    errno = 0;
    json_t *root = json_loads(value, 0, &problem);
    if (ran_out_of_memory(root, &problem)) {
        json_decref(root);
        return skr_fail_memory(error);
    }
    if (root == NULL)
        return SKR_OK;
    size_t count = json_array_size(root);
    const json_t *found =
        count == 0 ? NULL
                   : json_object_get(json_array_get(root, count - 1), member);
    enum skr_code code = SKR_OK;
    if (found != NULL && !json_is_null(found)) {
        *text = value_text(arena, found);
        if (*text == NULL)
            code = skr_fail_memory(error);
    }
    json_decref(root);
    return code;
}

const char *
skr_stamp_write(struct skr_arena *arena, const char *member, const char *text)
{
    json_t *stamp = json_pack("[{s:s}]", member, text);
    char *dumped = stamp == NULL ? NULL : json_dumps(stamp, JSON_COMPACT);
    json_decref(stamp);
    const char *copy =
        dumped == NULL ? NULL : skr_arena_text(arena, dumped, strlen(dumped));
    free(dumped);
    return copy;
}
