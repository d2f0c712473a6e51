// SPDX-License-Identifier: MIT
// From JSON to structs.

#include "base/error.h"
#include "message/json.h"
#include "message/typed.h"
#include "message/typed_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The parsed tree lies in it as well: text fields point into the tree.
struct skr_decoded {
    struct skr_arena arena;
};

struct decoder {
    struct skr_decoded *memory;
    struct skr_error *error;  // never NULL
};

static enum skr_code
decode_value(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct skr_json *json,
             void *value);

void *
skr_decoded_take(struct skr_decoded *memory, size_t size)
{
    void *taken = skr_arena_take(&memory->arena, size);
    if (taken != NULL)
        memset(taken, 0, size);
    return taken;
}

void
skr_decoded_free(struct skr_decoded *memory)
{
    if (memory == NULL)
        return;
    skr_arena_fini(&memory->arena);
    free(memory);
}

static enum skr_code
decode_chars(struct decoder *decoder, const struct skr_field *field,
             const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code = skr_json_read_text(json, &text, &size, decoder->error);
    if (code != SKR_OK)
        return code;
    if (size >= field->size)
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "%zu bytes of text do not fit into char[%zu]", size,
                        field->size);
    memcpy(value, text, size + 1);
    return SKR_OK;
}

static void
store_bits(uint64_t bits, void *value, size_t size)
{
    uint8_t one = (uint8_t)bits;
    uint16_t two = (uint16_t)bits;
    uint32_t four = (uint32_t)bits;
    memcpy(value,
           size == 1   ? (const void *)&one
           : size == 2 ? (const void *)&two
           : size == 4 ? (const void *)&four
                       : (const void *)&bits,
           size);
}

static enum skr_code
decode_integer(struct decoder *decoder, const struct skr_field *field,
               const struct skr_json *json, void *value)
{
    bool is_signed = field->kind == SKR_KIND_SIGNED;
    uint64_t most = UINT64_MAX >> (64 - 8 * field->size + is_signed);
    uint64_t least = is_signed ? most + 1 : 0;
    struct skr_whole whole;
    enum skr_code code =
        skr_json_read_whole(json, least, most, &whole, decoder->error);
    if (code != SKR_OK)
        return code;
    store_bits(whole.is_negative ? 0 - whole.magnitude : whole.magnitude, value,
               field->size);
    return SKR_OK;
}

static enum skr_code
decode_uuid(struct decoder *decoder, const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code = skr_json_read_text(json, &text, &size, decoder->error);
    if (code != SKR_OK)
        return code;
    struct skr_id id;
    if (skr_id_parse(text, &id, NULL) != SKR_OK)
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a UUID is needed");
    memcpy(value, &id, sizeof(id));
    return SKR_OK;
}

static enum skr_code
decode_time(struct decoder *decoder, const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code = skr_json_read_text(json, &text, &size, decoder->error);
    if (code != SKR_OK)
        return code;
    int64_t time_us;
    if (!skr_time_parse(text, &time_us))
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a time such as 2025-10-08T13:30:00+00:00 is needed");
    memcpy(value, &time_us, sizeof(time_us));
    return SKR_OK;
}

static enum skr_code
decode_enum(struct decoder *decoder, const struct skr_field *field,
            const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code = skr_json_read_text(json, &text, &size, decoder->error);
    if (code != SKR_OK)
        return code;
    char names[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < field->name_count; i++) {
        if (strcmp(field->names[i].name, text) == 0) {
            memcpy(value, &field->names[i].value, sizeof(int));
            return SKR_OK;
        }
        int length = snprintf(names + used, sizeof(names) - used, "%s%s",
                              i == 0 ? "" : ", ", field->names[i].name);
        if (length > 0 && (size_t)length < sizeof(names) - used)
            used += (size_t)length;
        else
            used = sizeof(names) - 1;
    }
    return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                    "one of %s is needed", names);
}

static enum skr_code
decode_array(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct skr_json *json,
             char *value)
{
    if (json->kind != SKR_JSON_ARRAY) {
        skr_json_fail_kind(json, "an array", decoder->error);
        return skr_place_prefix(place, decoder->error);
    }
    size_t count = 0;
    for (const struct skr_json *at = json->first; at != NULL; at = at->next)
        count++;
    if (count > SIZE_MAX / field->size)
        return skr_fail_memory(decoder->error);
    char *elements = skr_decoded_take(decoder->memory, count * field->size);
    if (elements == NULL)
        return skr_fail_memory(decoder->error);
    const struct skr_json *at = json->first;
    for (size_t i = 0; i < count; i++, at = at->next) {
        struct skr_place here = {
            .outer = place, .index = i, .depth = place->depth + 1};
        enum skr_code code =
            decode_value(decoder, &here, field, at, elements + i * field->size);
        if (code != SKR_OK)
            return code;
    }
    memcpy(value + field->offset, &elements, sizeof(elements));
    memcpy(value + field->count_offset, &count, sizeof(count));
    return SKR_OK;
}

static enum skr_code
decode_field(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct skr_json *json,
             char *value)
{
    if (field->presence != SKR_REQUIRED &&
        (json == NULL || json->kind == SKR_JSON_NULL))
        return SKR_OK;
    if (json == NULL)
        return skr_place_fail(place, decoder->error, SKR_MALFORMED,
                              "is missing");
    const bool is_present = true;
    if (field->presence == SKR_ABSENT_IF_FALSE)
        memcpy(value + field->present_offset, &is_present, sizeof(is_present));
    if (field->is_array)
        return decode_array(decoder, place, field, json, value);
    return decode_value(decoder, place, field, json, value + field->offset);
}

static enum skr_code
decode_struct(struct decoder *decoder, const struct skr_place *place,
              const struct skr_type *type, const struct skr_json *json,
              void *value)
{
    if (json->kind != SKR_JSON_OBJECT) {
        skr_json_fail_kind(json, "an object", decoder->error);
        return skr_place_prefix(place, decoder->error);
    }
    for (size_t i = 0; i < type->field_count; i++) {
        const struct skr_field *field = &type->fields[i];
        struct skr_place here = {.outer = place,
                                 .name = field->name,
                                 .depth = place->depth + 1,
                                 .codecs = type->codecs};
        enum skr_code code =
            skr_field_check(&here, type, field, decoder->error);
        if (code == SKR_OK)
            code = decode_field(decoder, &here, field,
                                skr_json_find(json, field->name), value);
        if (code != SKR_OK)
            return code;
    }
    return SKR_OK;
}

static enum skr_code
decode_scalar(struct decoder *decoder, const struct skr_field *field,
              const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code;
    switch (field->kind) {
    case SKR_KIND_TEXT:
        code = skr_json_read_text(json, &text, &size, decoder->error);
        if (code == SKR_OK)
            memcpy(value, &text, sizeof(text));
        return code;
    case SKR_KIND_CHARS: return decode_chars(decoder, field, json, value);
    case SKR_KIND_SIGNED:
    case SKR_KIND_UNSIGNED: return decode_integer(decoder, field, json, value);
    case SKR_KIND_DOUBLE:
        return skr_json_read_double(json, value, decoder->error);
    case SKR_KIND_BOOLEAN:
        return skr_json_read_boolean(json, value, decoder->error);
    case SKR_KIND_UUID: return decode_uuid(decoder, json, value);
    case SKR_KIND_TIME: return decode_time(decoder, json, value);
    case SKR_KIND_ENUM: return decode_enum(decoder, field, json, value);
    case SKR_KIND_STRUCT: break;
    case SKR_KIND_OWN:
        return skr_fail(decoder->error, SKR_INVALID, SKR_GIVE_UP,
                        "no codec reads %s", field->c_type);
    }
    abort();
}

static enum skr_code
decode_value(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct skr_json *json,
             void *value)
{
    const struct skr_codec *codec =
        skr_place_find_codec(place, field, SKR_DECODING);
    if (codec == NULL && field->kind == SKR_KIND_STRUCT)
        return decode_struct(decoder, place, field->type, json, value);
    enum skr_code code;
    if (codec == NULL) {
        code = decode_scalar(decoder, field, json, value);
    } else {
        skr_error_clear(decoder->error);
        code = codec->decode(codec, field, json, value, decoder->memory,
                             decoder->error);
    }
    if (code == SKR_OK)
        return SKR_OK;
    return skr_place_fail_codec(place, code, decoder->error);
}

// value is written only at the very end, when nothing can fail any more.
static enum skr_code
decode_document(struct decoder *decoder, const struct skr_type *type,
                const char *json, size_t size, const struct skr_codecs *codecs,
                void *value)
{
    struct skr_json *tree;
    enum skr_code code = skr_json_parse(&decoder->memory->arena, json, size, 0,
                                        &tree, decoder->error);
    if (code != SKR_OK)
        return code;
    void *scratch = skr_decoded_take(decoder->memory, type->size);
    if (scratch == NULL)
        return skr_fail_memory(decoder->error);
    struct skr_place top = {.codecs = codecs};
    struct skr_field whole = {
        .kind = SKR_KIND_STRUCT, .size = type->size, .type = type};
    code = decode_value(decoder, &top, &whole, tree, scratch);
    if (code != SKR_OK)
        return code;
    memcpy(value, scratch, type->size);
    return SKR_OK;
}

enum skr_code
skr_decode(const struct skr_type *type, const char *json, size_t size,
           const struct skr_codecs *codecs, void *value,
           struct skr_decoded **memory, struct skr_error *error)
{
    struct skr_error unwanted;
    struct skr_decoded *decoded = calloc(1, sizeof(*decoded));
    if (decoded == NULL)
        return skr_fail_memory(error);
    struct decoder decoder = {.memory = decoded,
                              .error = error == NULL ? &unwanted : error};
    enum skr_code code = decode_document(&decoder, type, size == 0 ? "" : json,
                                         size, codecs, value);
    if (code != SKR_OK) {
        skr_decoded_free(decoded);
        return code;
    }
    *memory = decoded;
    return SKR_OK;
}
