// SPDX-License-Identifier: MIT
// The common part of typed_encode.c and typed_decode.c: the path to a field for
// error texts, the choice of a codec, and the check of a field's description.

#include "message/typed.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns the size of what was written, which is cut where room ends.
static size_t
print_path(const struct skr_place *place, char *path, size_t room)
{
    if (place->outer == NULL)
        return 0;
    size_t used = print_path(place->outer, path, room);
    if (used + 1 >= room)
        return used;
    int length;
    if (place->name == NULL)
        length = snprintf(path + used, room - used, "[%zu]", place->index);
    else
        length = snprintf(path + used, room - used, "%s%s",
                          used == 0 ? "" : ".", place->name);
    if (length < 0 || (size_t)length >= room - used)
        return room - 1;
    return used + (size_t)length;
}

enum skr_code
skr_place_prefix(const struct skr_place *place, struct skr_error *error)
{
    // Leaves room for what is wrong, however deep the place is.
    char path[sizeof(error->text) / 2] = "";
    if (print_path(place, path, sizeof(path)) > 0)
        skr_error_prefix(error, "%s", path);
    return error->code;
}

enum skr_code
skr_place_fail(const struct skr_place *place, struct skr_error *error,
               enum skr_code code, const char *format, ...)
{
    char text[sizeof(error->text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    skr_fail(error, code, SKR_GIVE_UP, "%s", text);
    return skr_place_prefix(place, error);
}

static bool
fits(const struct skr_codec *codec, const struct skr_field *field,
     enum skr_direction direction)
{
    if (direction == SKR_ENCODING ? codec->encode == NULL
                                  : codec->decode == NULL)
        return false;
    if (codec->c_type == NULL)
        return codec->kind == field->kind;
    const char *c_type = field->kind == SKR_KIND_STRUCT ? field->type->c_type
                         : field->kind == SKR_KIND_OWN  ? field->c_type
                                                        : NULL;
    return c_type != NULL && strcmp(codec->c_type, c_type) == 0;
}

const struct skr_codec *
skr_place_find_codec(const struct skr_place *place,
                     const struct skr_field *field,
                     enum skr_direction direction)
{
    if (place->outer != NULL) {
        const struct skr_codec *found =
            skr_place_find_codec(place->outer, field, direction);
        if (found != NULL)
            return found;
    }
    if (place->codecs == NULL)
        return NULL;
    for (size_t i = 0; i < place->codecs->count; i++)
        if (fits(&place->codecs->items[i], field, direction))
            return &place->codecs->items[i];
    return NULL;
}

enum skr_code
skr_place_fail_codec(const struct skr_place *place, enum skr_code code,
                     struct skr_error *error)
{
    if (error->code == SKR_OK)
        skr_fail(error, code, SKR_GIVE_UP, "its codec failed");
    skr_place_prefix(place, error);
    return code;
}

enum skr_code
skr_codec_fail(struct skr_error *error, enum skr_code code, const char *why)
{
    return skr_fail(error, code, SKR_GIVE_UP, "%s", why);
}

// NULL: the size is one that the kind can have.
static const char *
find_size_mistake(const struct skr_field *field)
{
    size_t size = field->size;
    bool is_right = false;
    switch (field->kind) {
    case SKR_KIND_TEXT: is_right = size == sizeof(char *); break;
    case SKR_KIND_CHARS: is_right = size > 0; break;
    case SKR_KIND_SIGNED:
    case SKR_KIND_UNSIGNED:
        is_right = size == 1 || size == 2 || size == 4 || size == 8;
        break;
    case SKR_KIND_DOUBLE: is_right = size == sizeof(double); break;
    case SKR_KIND_BOOLEAN: is_right = size == sizeof(bool); break;
    case SKR_KIND_UUID: is_right = size == sizeof(struct skr_id); break;
    case SKR_KIND_TIME: is_right = size == sizeof(int64_t); break;
    case SKR_KIND_ENUM: is_right = size == sizeof(int); break;
    case SKR_KIND_STRUCT:
        if (field->type == NULL)
            return "the description has no type";
        is_right = size == field->type->size;
        break;
    case SKR_KIND_OWN:
        if (field->c_type == NULL)
            return "the description has no C type";
        is_right = size > 0;
        break;
    }
    return is_right ? NULL : "the description has another size than its type";
}

static bool
is_inside(const struct skr_type *type, size_t offset, size_t size)
{
    return offset <= type->size && size <= type->size - offset;
}

static const char *
find_mistake(const struct skr_type *type, const struct skr_field *field)
{
    if (field->name == NULL)
        return "the description has no name";
    size_t size = field->is_array ? sizeof(void *) : field->size;
    if (!is_inside(type, field->offset, size) ||
        (field->is_array &&
         !is_inside(type, field->count_offset, sizeof(size_t))) ||
        (field->presence == SKR_ABSENT_IF_FALSE &&
         !is_inside(type, field->present_offset, sizeof(bool))))
        return "the description points outside of its struct";
    if (field->presence == SKR_ABSENT_IF_NULL && !field->is_array &&
        field->kind != SKR_KIND_TEXT)
        return "the description has SKR_OPTIONAL, but there is no pointer "
               "that could be NULL: SKR_OPTIONAL_IF is needed";
    return find_size_mistake(field);
}

enum skr_code
skr_field_check(const struct skr_place *place, const struct skr_type *type,
                const struct skr_field *field, struct skr_error *error)
{
    const char *mistake = find_mistake(type, field);
    if (mistake == NULL)
        return SKR_OK;
    return skr_place_fail(place, error, SKR_INVALID, "%s", mistake);
}
