// SPDX-License-Identifier: MIT
// AMQP's fields as header texts.

#include "broker/rabbitmq/fields.h"

#include "base/error.h"
#include "message/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Bytes as text: as they are where a text column can hold them, else base64.
// NULL when memory is out.
static const char *
text_of(struct skr_arena *arena, struct rabbit_piece piece)
{
    if (skr_text_is_storable(piece.bytes, piece.size))
        return skr_arena_text(arena, (const char *)piece.bytes, piece.size);
    char *encoded = skr_text_base64(piece.bytes, piece.size);
    const char *text = encoded == NULL
                           ? NULL
                           : skr_arena_text(arena, encoded, strlen(encoded));
    free(encoded);
    return text;
}

static void
write_double(struct skr_json_writer *writer, double value)
{
    if (isfinite(value))
        skr_json_write_double(writer, value);
    else if (isnan(value))
        skr_json_write_text(writer, "NaN", 3);
    else if (value > 0)
        skr_json_write_text(writer, "Infinity", 8);
    else
        skr_json_write_text(writer, "-Infinity", 9);
}

static uint64_t
bits_of(struct rabbit_piece piece)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < piece.size; i++)
        bits = bits << 8 | piece.bytes[i];
    return bits;
}

// How many digits stand behind the point, then the digits as a whole number.
static void
write_decimal(struct skr_json_writer *writer, struct rabbit_piece value)
{
    enum { MOST_SCALE = 255 };
    char digits[MOST_SCALE + 16], text[MOST_SCALE + 32];
    size_t scale = value.bytes[0];
    struct rabbit_piece rest = {.bytes = value.bytes + 1,
                                .size = value.size - 1};
    int size = snprintf(digits, sizeof(digits), "%0*" PRIu32, (int)scale + 1,
                        (uint32_t)bits_of(rest));
    size_t whole = (size_t)size - scale;
    snprintf(text, sizeof(text), "%.*s%s%s", (int)whole, digits,
             scale > 0 ? "." : "", digits + whole);
    skr_json_write_digits(writer, text);
}

static void
write_number(struct skr_json_writer *writer, const struct rabbit_field *field)
{
    int64_t number = 0;
    if (field->kind == 'L' || field->kind == 'T')
        skr_json_write_unsigned(writer, bits_of(field->value));
    else if (skr_rabbit_field_number(field, &number))
        skr_json_write_signed(writer, number);
}

static void
write_float(struct skr_json_writer *writer, struct rabbit_piece value)
{
    uint32_t bits = (uint32_t)bits_of(value);
    float number;
    memcpy(&number, &bits, sizeof(number));
    write_double(writer, (double)number);
}

struct conversion {
    struct skr_arena *arena;
    struct skr_json_writer *writer;
    struct skr_error *error;
};

static enum skr_code
write_value(struct conversion *conversion, const struct rabbit_field *field,
            size_t depth);

static enum skr_code
write_nested(struct conversion *conversion, const struct rabbit_field *field,
             size_t depth)
{
    struct rabbit_piece inside = field->value;
    struct rabbit_field next;
    bool is_table = field->kind == 'F';
    if (depth == RABBIT_FIELD_DEPTH)
        return skr_fail(conversion->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "tables nest deeper than %d", RABBIT_FIELD_DEPTH);
    is_table ? skr_json_begin_object(conversion->writer)
             : skr_json_begin_array(conversion->writer);
    while (is_table ? skr_rabbit_table_next(&inside, &next)
                    : skr_rabbit_array_next(&inside, &next)) {
        if (is_table) {
            const char *name = text_of(conversion->arena, next.name);
            if (name == NULL)
                return skr_fail_memory(conversion->error);
            skr_json_write_name(conversion->writer, name);
        }
        enum skr_code code = write_value(conversion, &next, depth + 1);
        if (code != SKR_OK)
            return code;
    }
    is_table ? skr_json_end_object(conversion->writer)
             : skr_json_end_array(conversion->writer);
    if (inside.size > 0)
        return skr_fail(conversion->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a nested value is cut short or of unknown kind");
    return SKR_OK;
}

static enum skr_code
write_value(struct conversion *conversion, const struct rabbit_field *field,
            size_t depth)
{
    struct skr_json_writer *writer = conversion->writer;
    switch (field->kind) {
    case 'A':
    case 'F': return write_nested(conversion, field, depth);
    case 'S':
    case 'x': {
        const char *text = text_of(conversion->arena, field->value);
        if (text == NULL)
            return skr_fail_memory(conversion->error);
        skr_json_write_text(writer, text, strlen(text));
        return SKR_OK;
    }
    case 'V': skr_json_write_null(writer); return SKR_OK;
    case 't':
        skr_json_write_boolean(writer, field->value.bytes[0] != 0);
        return SKR_OK;
    case 'f': write_float(writer, field->value); return SKR_OK;
    case 'd': {
        uint64_t bits = bits_of(field->value);
        double number;
        memcpy(&number, &bits, sizeof(number));
        write_double(writer, number);
        return SKR_OK;
    }
    case 'D': write_decimal(writer, field->value); return SKR_OK;
    default: write_number(writer, field); return SKR_OK;
    }
}

// A float that is no number is a text in JSON; as a header it needs no quotes.
static const char *
without_quotes(struct skr_arena *arena, const struct rabbit_field *field,
               const char *json)
{
    size_t size = strlen(json);
    if ((field->kind != 'f' && field->kind != 'd') || json[0] != '"')
        return json;
    return skr_arena_text(arena, json + 1, size - 2);
}

static enum skr_code
value_of(struct skr_arena *arena, const struct rabbit_field *field,
         const char **value, struct skr_error *error)
{
    if (field->kind == 'S' || field->kind == 'x') {
        *value = text_of(arena, field->value);
        return *value == NULL ? skr_fail_memory(error) : SKR_OK;
    }
    struct skr_json_writer writer = {.needs_comma = false};
    struct conversion conversion = {
        .arena = arena, .writer = &writer, .error = error};
    enum skr_code code = write_value(&conversion, field, 0);
    if (code != SKR_OK) {
        skr_text_fini(&writer.text);
        return code;
    }
    const char *json = skr_json_take_text(&writer, arena);
    *value = json == NULL ? NULL : without_quotes(arena, field, json);
    return *value == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_rabbit_headers_read(struct skr_arena *arena, struct rabbit_piece table,
                        struct skr_headers *headers, struct skr_error *error)
{
    struct skr_headers read = {0};
    struct rabbit_field field;
    enum skr_code code = skr_headers_check_size(table.size, error);
    if (code != SKR_OK)
        return code;
    while (skr_rabbit_table_next(&table, &field)) {
        const char *name = text_of(arena, field.name);
        const char *value = NULL;
        if (name == NULL)
            return skr_fail_memory(error);
        if (skr_headers_is_reserved(name))
            continue;
        code = value_of(arena, &field, &value, error);
        if (code == SKR_MALFORMED)
            skr_error_prefix(error, "header '%.80s'", name);
        if (code != SKR_OK)
            return code;
        if (read.count == SKR_MAX_HEADERS)
            return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                            "there are more than %d headers", SKR_MAX_HEADERS);
        if (!skr_headers_set(arena, &read, name, value))
            return skr_fail_memory(error);
    }
    if (table.size > 0)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the headers are cut short, or hold a kind of value "
                        "that AMQP 0-9-1 does not know");
    *headers = read;
    return SKR_OK;
}
