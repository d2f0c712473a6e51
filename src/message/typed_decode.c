// SPDX-License-Identifier: MIT
// From JSON to structs.

#include "base/error.h"
#include "message/json.h"
#include "message/typed.h"
#include "message/typed_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct skr_decoded {
    struct skr_arena arena;
};

// A value as it stands in the document, which was scanned: a tree of all of it
// would take many times its size. kind decides what it can be decoded to.
struct piece {
    enum skr_json_kind kind;
    const char *json;  // NULL: the member is missing
    size_t size;
};

struct decoder {
    struct skr_decoded *memory;
    struct skr_arena scratch;  // the scalar that is read
    struct skr_error *error;   // never NULL
};

static enum skr_code
decode_value(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct piece *piece,
             void *value);

// What a codec reads lives as long as what is decoded: it may keep its texts.
static enum skr_code
parse_piece(struct decoder *decoder, const struct piece *piece, bool is_kept,
            struct skr_json **json)
{
    skr_arena_reset(&decoder->scratch);
    return skr_json_parse(is_kept ? &decoder->memory->arena : &decoder->scratch,
                          piece->json, piece->size, 0, json, decoder->error);
}

static enum skr_code
fail_kind(const struct skr_place *place, const struct piece *piece,
          const char *needed, struct skr_error *error)
{
    const struct skr_json json = {.kind = piece->kind};
    skr_json_fail_kind(&json, needed, error);
    return skr_place_prefix(place, error);
}

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
count_element(void *user, const struct skr_json *child, struct skr_error *error)
{
    size_t *count = user;
    (void)child;
    (void)error;
    (*count)++;
    return SKR_OK;
}

struct elements {
    struct decoder *decoder;
    const struct skr_place *place;
    const struct skr_field *field;
    char *values;
    size_t index;  // of the next
};

static enum skr_code
decode_element(void *user, const struct skr_json *child,
               struct skr_error *error)
{
    struct elements *elements = user;
    const struct skr_field *field = elements->field;
    const struct piece piece = {child->kind, child->text, child->text_size};
    struct skr_place here = {.outer = elements->place,
                             .index = elements->index,
                             .depth = elements->place->depth + 1};
    (void)error;  // the decoder's
    return decode_value(elements->decoder, &here, field, &piece,
                        elements->values + elements->index++ * field->size);
}

static enum skr_code
decode_array(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct piece *piece,
             char *value)
{
    size_t count = 0;
    enum skr_json_kind kind;
    if (piece->kind != SKR_JSON_ARRAY)
        return fail_kind(place, piece, "an array", decoder->error);
    enum skr_code code = skr_json_walk(NULL, piece->json, piece->size, &kind,
                                       count_element, &count, decoder->error);
    if (code != SKR_OK)
        return code;
    if (count > SIZE_MAX / field->size)
        return skr_fail_memory(decoder->error);
    struct elements elements = {
        .decoder = decoder, .place = place, .field = field};
    elements.values = skr_decoded_take(decoder->memory, count * field->size);
    if (elements.values == NULL)
        return skr_fail_memory(decoder->error);
    code = skr_json_walk(NULL, piece->json, piece->size, &kind, decode_element,
                         &elements, decoder->error);
    if (code != SKR_OK)
        return code;
    memcpy(value + field->offset, &elements.values, sizeof(elements.values));
    memcpy(value + field->count_offset, &count, sizeof(count));
    return SKR_OK;
}

static enum skr_code
decode_field(struct decoder *decoder, const struct skr_place *place,
             const struct skr_field *field, const struct piece *piece,
             char *value)
{
    if (field->presence != SKR_REQUIRED &&
        (piece->json == NULL || piece->kind == SKR_JSON_NULL))
        return SKR_OK;
    if (piece->json == NULL)
        return skr_place_fail(place, decoder->error, SKR_MALFORMED,
                              "is missing");
    const bool is_present = true;
    if (field->presence == SKR_ABSENT_IF_FALSE)
        memcpy(value + field->present_offset, &is_present, sizeof(is_present));
    if (field->is_array)
        return decode_array(decoder, place, field, piece, value);
    return decode_value(decoder, place, field, piece, value + field->offset);
}

// The members that a type asks for, one for each of its fields.
struct members {
    const struct skr_type *type;
    struct piece *pieces;
};

// Of those with one name the last counts.
static enum skr_code
note_member(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct members *members = user;
    (void)error;
    for (size_t i = 0; i < members->type->field_count; i++)
        if (skr_json_has_name(child, members->type->fields[i].name))
            members->pieces[i] =
                (struct piece){child->kind, child->text, child->text_size};
    return SKR_OK;
}

static enum skr_code
decode_fields(struct decoder *decoder, const struct skr_place *place,
              const struct members *members, void *value)
{
    const struct skr_type *type = members->type;
    for (size_t i = 0; i < type->field_count; i++) {
        const struct skr_field *field = &type->fields[i];
        struct skr_place here = {.outer = place,
                                 .name = field->name,
                                 .depth = place->depth + 1,
                                 .codecs = type->codecs};
        enum skr_code code =
            skr_field_check(&here, type, field, decoder->error);
        if (code == SKR_OK)
            code =
                decode_field(decoder, &here, field, &members->pieces[i], value);
        if (code != SKR_OK)
            return code;
    }
    return SKR_OK;
}

static enum skr_code
decode_struct(struct decoder *decoder, const struct skr_place *place,
              const struct skr_type *type, const struct piece *piece,
              void *value)
{
    enum { USUAL_FIELDS = 32 };
    struct piece usual[USUAL_FIELDS] = {{.json = NULL}};
    struct members members = {type, usual};
    enum skr_json_kind kind;
    if (piece->kind != SKR_JSON_OBJECT)
        return fail_kind(place, piece, "an object", decoder->error);
    if (type->field_count > USUAL_FIELDS)
        members.pieces = calloc(type->field_count, sizeof(*members.pieces));
    if (members.pieces == NULL)
        return skr_fail_memory(decoder->error);
    enum skr_code code = skr_json_walk(NULL, piece->json, piece->size, &kind,
                                       note_member, &members, decoder->error);
    if (code == SKR_OK)
        code = decode_fields(decoder, place, &members, value);
    if (members.pieces != usual)
        free(members.pieces);
    return code;
}

// The text that is read lies where it is read next.
static enum skr_code
decode_text(struct decoder *decoder, const struct skr_json *json, void *value)
{
    const char *text;
    size_t size;
    enum skr_code code = skr_json_read_text(json, &text, &size, decoder->error);
    if (code != SKR_OK)
        return code;
    const char *copy = skr_arena_text(&decoder->memory->arena, text, size);
    if (copy == NULL)
        return skr_fail_memory(decoder->error);
    memcpy(value, &copy, sizeof(copy));
    return SKR_OK;
}

static enum skr_code
decode_scalar(struct decoder *decoder, const struct skr_field *field,
              const struct skr_json *json, void *value)
{
    switch (field->kind) {
    case SKR_KIND_TEXT: return decode_text(decoder, json, value);
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
             const struct skr_field *field, const struct piece *piece,
             void *value)
{
    struct skr_json *json = NULL;
    const struct skr_codec *codec =
        skr_place_find_codec(place, field, SKR_DECODING);
    if (codec == NULL && field->kind == SKR_KIND_STRUCT)
        return decode_struct(decoder, place, field->type, piece, value);
    // Of what has children only a codec looks at more than the kind.
    struct skr_json whole = {.kind = piece->kind};
    bool is_large =
        piece->kind == SKR_JSON_ARRAY || piece->kind == SKR_JSON_OBJECT;
    enum skr_code code = SKR_OK;
    if (codec == NULL && is_large)
        json = &whole;
    else
        code = parse_piece(decoder, piece, codec != NULL, &json);
    if (code == SKR_OK && codec == NULL) {
        code = decode_scalar(decoder, field, json, value);
    } else if (code == SKR_OK) {
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
    struct piece piece = {.json = json, .size = size};
    enum skr_code code =
        skr_json_scan(json, size, 0, &piece.kind, decoder->error);
    if (code != SKR_OK)
        return code;
    void *scratch = skr_decoded_take(decoder->memory, type->size);
    if (scratch == NULL)
        return skr_fail_memory(decoder->error);
    struct skr_place top = {.codecs = codecs};
    struct skr_field whole = {
        .kind = SKR_KIND_STRUCT, .size = type->size, .type = type};
    code = decode_value(decoder, &top, &whole, &piece, scratch);
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
    skr_arena_fini(&decoder.scratch);
    if (code != SKR_OK) {
        skr_decoded_free(decoded);
        return code;
    }
    *memory = decoded;
    return SKR_OK;
}
