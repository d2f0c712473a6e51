// SPDX-License-Identifier: MIT
// A struct with every kind of field, alone and in arrays, for the unit test
// and the fuzzer.

#ifndef TESTS_TYPED_EVERYTHING_H
#define TESTS_TYPED_EVERYTHING_H

#include <skirnir/typed.h>
#include <string.h>

enum color { RED = -1, GREEN = 7 };

struct point {
    double x;
    bool has_y;
    double y;
};

// A C type that only a codec knows.
struct decimal {
    char digits[64];
};

struct everything {
    const char *text;
    char chars[8];
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    double number;
    bool truth;
    struct skr_id id;
    int64_t at_us;
    enum color color;
    struct point point;
    struct decimal decimal;

    char *maybe_text;
    bool has_integer;
    int maybe_integer;
    bool has_point;
    struct point maybe_point;
    const double *maybe_numbers;
    size_t maybe_number_count;

    const char **texts;
    size_t text_count;
    char (*chars_list)[4];
    size_t chars_count;
    int16_t *integers;
    size_t integer_count;
    const uint64_t *unsigneds;
    size_t unsigned_count;
    double *numbers;
    size_t number_count;
    bool *truths;
    size_t truth_count;
    struct skr_id *ids;
    size_t id_count;
    int64_t *times;
    size_t time_count;
    enum color *colors;
    size_t color_count;
    struct point *points;
    size_t point_count;
    struct decimal *decimals;
    size_t decimal_count;
    struct everything *children;
    size_t child_count;
};

static enum skr_code
decimal_encode(const struct skr_codec *codec, const struct skr_field *field,
               const void *value, struct skr_json_writer *writer,
               struct skr_error *error)
{
    (void)codec, (void)field, (void)error;
    skr_json_write_digits(writer, ((const struct decimal *)value)->digits);
    return SKR_OK;
}

static enum skr_code
decimal_decode(const struct skr_codec *codec, const struct skr_field *field,
               const struct skr_json *json, void *value,
               struct skr_decoded *memory, struct skr_error *error)
{
    (void)codec, (void)memory;
    const char *digits;
    enum skr_code code = skr_json_read_digits(json, &digits, error);
    if (code != SKR_OK)
        return code;
    if (strlen(digits) >= field->size)
        return skr_codec_fail(error, SKR_MALFORMED, "too many digits");
    memcpy(value, digits, strlen(digits) + 1);
    return SKR_OK;
}

static const struct skr_codec decimal_codec_list[] = {
    {.c_type = "struct decimal",
     .encode = decimal_encode,
     .decode = decimal_decode},
};
static const struct skr_codecs decimal_codecs = SKR_CODECS(decimal_codec_list);

static const struct skr_enum_name color_names[] = {
    {RED, "red"},
    {GREEN, "green"},
};

static const struct skr_field point_fields[] = {
    SKR_FIELD_DOUBLE(struct point, x, "x"),
    SKR_FIELD_DOUBLE(struct point, y, "y",
                     SKR_OPTIONAL_IF(struct point, has_y)),
};
static const struct skr_type point = SKR_PART(struct point, point_fields);

// It has children of its own kind.
static const struct skr_type everything;

#define E struct everything
static const struct skr_field everything_fields[] = {
    SKR_FIELD_TEXT(E, text, "text"),
    SKR_FIELD_CHARS(E, chars, "chars"),
    SKR_FIELD_INTEGER(E, i8, "i8"),
    SKR_FIELD_INTEGER(E, i16, "i16"),
    SKR_FIELD_INTEGER(E, i32, "i32"),
    SKR_FIELD_INTEGER(E, i64, "i64"),
    SKR_FIELD_INTEGER(E, u8, "u8"),
    SKR_FIELD_INTEGER(E, u16, "u16"),
    SKR_FIELD_INTEGER(E, u32, "u32"),
    SKR_FIELD_INTEGER(E, u64, "u64"),
    SKR_FIELD_DOUBLE(E, number, "number"),
    SKR_FIELD_BOOLEAN(E, truth, "truth"),
    SKR_FIELD_UUID(E, id, "id"),
    SKR_FIELD_TIME(E, at_us, "at"),
    SKR_FIELD_ENUM(E, color, color_names, "color"),
    SKR_FIELD_STRUCT(E, point, point, "point"),
    SKR_FIELD_OWN(E, decimal, struct decimal, "decimal"),
    SKR_FIELD_TEXT(E, maybe_text, "maybeText", SKR_OPTIONAL),
    SKR_FIELD_INTEGER(E, maybe_integer, "maybeInteger",
                      SKR_OPTIONAL_IF(E, has_integer)),
    SKR_FIELD_STRUCT(E, maybe_point, point, "maybePoint",
                     SKR_OPTIONAL_IF(E, has_point)),
    SKR_ARRAY_DOUBLE(E, maybe_numbers, maybe_number_count, "maybeNumbers",
                     SKR_OPTIONAL),
    SKR_ARRAY_TEXT(E, texts, text_count, "texts"),
    SKR_ARRAY_CHARS(E, chars_list, chars_count, "charsList"),
    SKR_ARRAY_INTEGER(E, integers, integer_count, "integers"),
    SKR_ARRAY_INTEGER(E, unsigneds, unsigned_count, "unsigneds"),
    SKR_ARRAY_DOUBLE(E, numbers, number_count, "numbers"),
    SKR_ARRAY_BOOLEAN(E, truths, truth_count, "truths"),
    SKR_ARRAY_UUID(E, ids, id_count, "ids"),
    SKR_ARRAY_TIME(E, times, time_count, "times"),
    SKR_ARRAY_ENUM(E, colors, color_count, enum color, color_names, "colors"),
    SKR_ARRAY_STRUCT(E, points, point_count, point, "points"),
    SKR_ARRAY_OWN(E, decimals, decimal_count, struct decimal, "decimals"),
    SKR_ARRAY_STRUCT(E, children, child_count, everything, "children",
                     SKR_OPTIONAL),
};
#undef E
static const struct skr_type everything =
    SKR_TYPE("test.everything", struct everything, everything_fields,
             SKR_WITH_CODECS(decimal_codecs));

#endif
