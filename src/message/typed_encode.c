// SPDX-License-Identifier: MIT
// From structs to JSON.

#include "base/error.h"
#include "message/json.h"
#include "message/typed.h"
#include "message/typed_time.h"

#include <stdlib.h>
#include <string.h>

struct encoder {
    struct skr_json_writer writer;
    struct skr_error *error;  // never NULL
};

static enum skr_code
encode_value(struct encoder *encoder, const struct skr_place *place,
             const struct skr_field *field, const void *value);

// What the writer found wrong gets the place where it happened.
static enum skr_code
check_writer(struct encoder *encoder, const struct skr_place *place)
{
    if (encoder->writer.error.code == SKR_OK)
        return SKR_OK;
    *encoder->error = encoder->writer.error;
    return skr_place_prefix(place, encoder->error);
}

// A codec is the application's code: what it wrote is read back before it
// becomes part of a message.
static enum skr_code
check_codec_output(struct encoder *encoder, const struct skr_place *place,
                   size_t start)
{
    const struct skr_text *text = &encoder->writer.text;
    if (text->broken)
        return skr_fail_memory(encoder->error);
    enum skr_json_kind kind;
    enum skr_code code = skr_json_scan(text->bytes + start, text->size - start,
                                       place->depth, &kind, encoder->error);
    if (code != SKR_MALFORMED)
        return code;
    return skr_place_fail(place, encoder->error, SKR_INVALID,
                          "its codec did not write one JSON value");
}

static enum skr_code
encode_by_codec(struct encoder *encoder, const struct skr_place *place,
                const struct skr_codec *codec, const struct skr_field *field,
                const void *value)
{
    skr_json_write_separator(&encoder->writer);
    size_t start = encoder->writer.text.size;
    skr_error_clear(encoder->error);
    enum skr_code code =
        codec->encode(codec, field, value, &encoder->writer, encoder->error);
    if (code != SKR_OK)
        return skr_place_fail_codec(place, code, encoder->error);
    code = check_writer(encoder, place);
    if (code == SKR_OK)
        code = check_codec_output(encoder, place, start);
    encoder->writer.needs_comma = true;
    return code;
}

static void
write_signed(struct skr_json_writer *writer, const void *value, size_t size)
{
    int8_t one;
    int16_t two;
    int32_t four;
    int64_t eight;
    if (size == 1) {
        memcpy(&one, value, size);
        eight = one;
    } else if (size == 2) {
        memcpy(&two, value, size);
        eight = two;
    } else if (size == 4) {
        memcpy(&four, value, size);
        eight = four;
    } else {
        memcpy(&eight, value, size);
    }
    skr_json_write_signed(writer, eight);
}

static void
write_unsigned(struct skr_json_writer *writer, const void *value, size_t size)
{
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    if (size == 1) {
        memcpy(&one, value, size);
        eight = one;
    } else if (size == 2) {
        memcpy(&two, value, size);
        eight = two;
    } else if (size == 4) {
        memcpy(&four, value, size);
        eight = four;
    } else {
        memcpy(&eight, value, size);
    }
    skr_json_write_unsigned(writer, eight);
}

static enum skr_code
encode_text(struct encoder *encoder, const struct skr_place *place,
            const void *value)
{
    const char *text;
    memcpy(&text, value, sizeof(text));
    if (text == NULL)
        return skr_place_fail(place, encoder->error, SKR_INVALID,
                              "text is needed, not NULL");
    skr_json_write_text(&encoder->writer, text, strlen(text));
    return check_writer(encoder, place);
}

static enum skr_code
encode_chars(struct encoder *encoder, const struct skr_place *place,
             const struct skr_field *field, const void *value)
{
    const char *text = value;
    const char *end = memchr(text, '\0', field->size);
    if (end == NULL)
        return skr_place_fail(place, encoder->error, SKR_INVALID,
                              "no terminating zero in char[%zu]", field->size);
    skr_json_write_text(&encoder->writer, text, (size_t)(end - text));
    return check_writer(encoder, place);
}

static enum skr_code
encode_time(struct encoder *encoder, const struct skr_place *place,
            const void *value)
{
    int64_t time_us;
    memcpy(&time_us, value, sizeof(time_us));
    char text[SKR_TIME_TEXT_SIZE];
    if (!skr_time_format(time_us, text))
        return skr_place_fail(place, encoder->error, SKR_INVALID,
                              "the time is not in the years 0000 to 9999");
    skr_json_write_text(&encoder->writer, text, strlen(text));
    return SKR_OK;
}

static enum skr_code
encode_enum(struct encoder *encoder, const struct skr_place *place,
            const struct skr_field *field, const void *value)
{
    int number;
    memcpy(&number, value, sizeof(number));
    for (size_t i = 0; i < field->name_count; i++) {
        if (field->names[i].value != number)
            continue;
        const char *name = field->names[i].name;
        skr_json_write_text(&encoder->writer, name, strlen(name));
        return check_writer(encoder, place);
    }
    return skr_place_fail(place, encoder->error, SKR_INVALID,
                          "%d is not in its table of names", number);
}

static enum skr_code
check_depth(struct encoder *encoder, const struct skr_place *place)
{
    if (place->depth < SKR_TYPED_DEPTH)
        return SKR_OK;
    return skr_place_fail(place, encoder->error, SKR_INVALID,
                          "nested deeper than %d levels", SKR_TYPED_DEPTH);
}

static enum skr_code
encode_array(struct encoder *encoder, const struct skr_place *place,
             const struct skr_field *field, const char *elements, size_t count)
{
    if (elements == NULL && count > 0)
        return skr_place_fail(place, encoder->error, SKR_INVALID,
                              "%zu elements are needed, not NULL", count);
    enum skr_code code = check_depth(encoder, place);
    if (code != SKR_OK)
        return code;
    skr_json_begin_array(&encoder->writer);
    for (size_t i = 0; i < count; i++) {
        struct skr_place here = {
            .outer = place, .index = i, .depth = place->depth + 1};
        code = encode_value(encoder, &here, field, elements + i * field->size);
        if (code != SKR_OK)
            return code;
    }
    skr_json_end_array(&encoder->writer);
    return SKR_OK;
}

static enum skr_code
encode_field(struct encoder *encoder, const struct skr_place *place,
             const struct skr_field *field, const char *value)
{
    const char *pointer = NULL;
    if (field->is_array || field->presence == SKR_ABSENT_IF_NULL)
        memcpy(&pointer, value + field->offset, sizeof(pointer));
    bool is_present = true;
    if (field->presence == SKR_ABSENT_IF_FALSE)
        memcpy(&is_present, value + field->present_offset, sizeof(is_present));
    if (!is_present ||
        (field->presence == SKR_ABSENT_IF_NULL && pointer == NULL))
        return SKR_OK;
    skr_json_write_name(&encoder->writer, field->name);
    if (!field->is_array)
        return encode_value(encoder, place, field, value + field->offset);
    size_t count;
    memcpy(&count, value + field->count_offset, sizeof(count));
    return encode_array(encoder, place, field, pointer, count);
}

static enum skr_code
encode_struct(struct encoder *encoder, const struct skr_place *place,
              const struct skr_type *type, const void *value)
{
    enum skr_code code = check_depth(encoder, place);
    if (code != SKR_OK)
        return code;
    skr_json_begin_object(&encoder->writer);
    for (size_t i = 0; i < type->field_count; i++) {
        const struct skr_field *field = &type->fields[i];
        struct skr_place here = {.outer = place,
                                 .name = field->name,
                                 .depth = place->depth + 1,
                                 .codecs = type->codecs};
        code = skr_field_check(&here, type, field, encoder->error);
        if (code == SKR_OK)
            code = encode_field(encoder, &here, field, value);
        if (code != SKR_OK)
            return code;
    }
    skr_json_end_object(&encoder->writer);
    return SKR_OK;
}

static enum skr_code
encode_built_in(struct encoder *encoder, const struct skr_place *place,
                const struct skr_field *field, const void *value)
{
    struct skr_json_writer *writer = &encoder->writer;
    double number;
    bool truth;
    struct skr_id id;
    char id_text[SKR_ID_TEXT_SIZE];
    switch (field->kind) {
    case SKR_KIND_TEXT: return encode_text(encoder, place, value);
    case SKR_KIND_CHARS: return encode_chars(encoder, place, field, value);
    case SKR_KIND_SIGNED:
        write_signed(writer, value, field->size);
        return SKR_OK;
    case SKR_KIND_UNSIGNED:
        write_unsigned(writer, value, field->size);
        return SKR_OK;
    case SKR_KIND_DOUBLE:
        memcpy(&number, value, sizeof(number));
        skr_json_write_double(writer, number);
        return check_writer(encoder, place);
    case SKR_KIND_BOOLEAN:
        memcpy(&truth, value, sizeof(truth));
        skr_json_write_boolean(writer, truth);
        return SKR_OK;
    case SKR_KIND_UUID:
        memcpy(&id, value, sizeof(id));
        skr_id_format(id, id_text);
        skr_json_write_text(writer, id_text, strlen(id_text));
        return SKR_OK;
    case SKR_KIND_TIME: return encode_time(encoder, place, value);
    case SKR_KIND_ENUM: return encode_enum(encoder, place, field, value);
    case SKR_KIND_STRUCT:
        return encode_struct(encoder, place, field->type, value);
    case SKR_KIND_OWN:
        return skr_place_fail(place, encoder->error, SKR_INVALID,
                              "no codec writes %s", field->c_type);
    }
    abort();
}

static enum skr_code
encode_value(struct encoder *encoder, const struct skr_place *place,
             const struct skr_field *field, const void *value)
{
    const struct skr_codec *codec =
        skr_place_find_codec(place, field, SKR_ENCODING);
    if (codec != NULL)
        return encode_by_codec(encoder, place, codec, field, value);
    return encode_built_in(encoder, place, field, value);
}

enum skr_code
skr_encode(const struct skr_type *type, const void *value,
           const struct skr_codecs *codecs, char **json, size_t *size,
           struct skr_error *error)
{
    struct skr_error unwanted;
    struct encoder encoder = {.error = error == NULL ? &unwanted : error};
    struct skr_place top = {.codecs = codecs};
    struct skr_field whole = {
        .kind = SKR_KIND_STRUCT, .size = type->size, .type = type};
    enum skr_code code = encode_value(&encoder, &top, &whole, value);
    if (code != SKR_OK)
        goto free_text;
    size_t written = encoder.writer.text.size;
    char *taken = skr_text_take(&encoder.writer.text);
    if (taken == NULL)
        return skr_fail_memory(error);
    *json = taken;
    if (size != NULL)
        *size = written;
    return SKR_OK;
free_text:
    skr_text_fini(&encoder.writer.text);
    return code;
}
