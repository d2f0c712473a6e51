// SPDX-License-Identifier: MIT
// A message of RabbitMQ as a consumer sees it: its fields as header texts, and
// how often it was tried before.

#include "broker/rabbitmq/deliveries.h"

#include "base/error.h"
#include "message/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_COUNT = 1000000 };

// NULL when memory is out.
static const char *
text_of(struct skr_arena *arena, struct skr_amqp_piece piece)
{
    return skr_arena_storable(arena, piece.bytes, piece.size);
}

// How many digits stand behind the point, then the digits as a whole number.
static void
write_decimal(struct skr_json_writer *writer, struct skr_amqp_piece value)
{
    enum { MOST_SCALE = 255 };
    char digits[MOST_SCALE + 16], text[MOST_SCALE + 32];
    size_t scale = value.bytes[0];
    struct skr_amqp_piece rest = {.bytes = value.bytes + 1,
                                  .size = value.size - 1};
    int size = snprintf(digits, sizeof(digits), "%0*" PRIu32, (int)scale + 1,
                        (uint32_t)skr_amqp_number(rest));
    size_t whole = (size_t)size - scale;
    snprintf(text, sizeof(text), "%.*s%s%s", (int)whole, digits,
             scale > 0 ? "." : "", digits + whole);
    skr_json_write_digits(writer, text);
}

static void
write_number(struct skr_json_writer *writer, const struct skr_amqp_field *field)
{
    int64_t number = 0;
    if (field->kind == 'L' || field->kind == 'T')
        skr_json_write_unsigned(writer, skr_amqp_number(field->value));
    else if (skr_amqp_field_number(field, &number))
        skr_json_write_signed(writer, number);
}

static void
write_float(struct skr_json_writer *writer, struct skr_amqp_piece value)
{
    uint64_t bits = skr_amqp_number(value);
    uint32_t single_bits = (uint32_t)bits;
    float single;
    double number;
    memcpy(&number, &bits, sizeof(number));
    memcpy(&single, &single_bits, sizeof(single));
    if (value.size == sizeof(single))
        number = (double)single;
    const char *word = isnan(number) ? "NaN"
                       : number > 0  ? "Infinity"
                                     : "-Infinity";
    if (isfinite(number))
        skr_json_write_double(writer, number);
    else
        skr_json_write_text(writer, word, strlen(word));
}

struct conversion {
    struct skr_arena *arena;
    struct skr_json_writer *writer;
    struct skr_error *error;
};

static enum skr_code
write_value(struct conversion *conversion, const struct skr_amqp_field *field,
            size_t depth);

static enum skr_code
write_nested(struct conversion *conversion, const struct skr_amqp_field *field,
             size_t depth)
{
    struct skr_amqp_piece inside = field->value;
    struct skr_amqp_field next;
    bool is_table = field->kind == 'F';
    if (depth == SKR_AMQP_FIELD_DEPTH)
        return skr_fail(conversion->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "tables nest deeper than %d", SKR_AMQP_FIELD_DEPTH);
    is_table ? skr_json_begin_object(conversion->writer)
             : skr_json_begin_array(conversion->writer);
    while (is_table ? skr_amqp_table_next(&inside, &next)
                    : skr_amqp_array_next(&inside, &next)) {
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
write_value(struct conversion *conversion, const struct skr_amqp_field *field,
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
    case 'f':
    case 'd': write_float(writer, field->value); return SKR_OK;
    case 'D': write_decimal(writer, field->value); return SKR_OK;
    default: write_number(writer, field); return SKR_OK;
    }
}

// A float that is no number is a text in JSON; as a header it needs no quotes.
static const char *
without_quotes(struct skr_arena *arena, const struct skr_amqp_field *field,
               const char *json)
{
    size_t size = strlen(json);
    if ((field->kind != 'f' && field->kind != 'd') || json[0] != '"')
        return json;
    return skr_arena_text(arena, json + 1, size - 2);
}

static enum skr_code
value_of(struct skr_arena *arena, const struct skr_amqp_field *field,
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
skr_rabbit_headers_read(struct skr_arena *arena, struct skr_amqp_piece table,
                        struct skr_headers *headers, struct skr_error *error)
{
    struct skr_headers read = {0};
    struct skr_amqp_field field;
    enum skr_code code = skr_headers_check_size(table.size, error);
    if (code != SKR_OK)
        return code;
    while (skr_amqp_table_next(&table, &field)) {
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

// A count from outside is bounded, so that adding to it stays a count.
static uint32_t
count_of(const struct skr_amqp_field *field)
{
    int64_t number = 0;
    if (!skr_amqp_field_number(field, &number) || number < 0)
        return 0;
    return number > MOST_COUNT ? MOST_COUNT : (uint32_t)number;
}

static bool
says(struct skr_amqp_piece table, const char *name, const char *text)
{
    struct skr_amqp_field field;
    return skr_amqp_table_find(table, name, &field) && field.kind == 'S' &&
           field.value.size == strlen(text) &&
           memcmp(field.value.bytes, text, field.value.size) == 0;
}

uint32_t
skr_rabbit_rejections(struct skr_amqp_piece headers, const char *queue)
{
    struct skr_amqp_field deaths, death, count;
    uint32_t total = 0;
    if (!skr_amqp_table_find(headers, "x-death", &deaths) || deaths.kind != 'A')
        return 0;
    while (skr_amqp_array_next(&deaths.value, &death))
        if (death.kind == 'F' && says(death.value, "queue", queue) &&
            says(death.value, "reason", "rejected") &&
            skr_amqp_table_find(death.value, "count", &count) &&
            count_of(&count) > total)
            total = count_of(&count);
    return total;
}

uint32_t
skr_rabbit_delivery_count(struct skr_amqp_piece headers)
{
    struct skr_amqp_field field;
    return skr_amqp_table_find(headers, "x-delivery-count", &field)
               ? count_of(&field)
               : 0;
}

static bool
is_text(struct skr_amqp_piece piece)
{
    return piece.size > 0 && skr_text_is_storable(piece.bytes, piece.size);
}

// A property that stands in for a header that is missing.
static enum skr_code
add_missing(struct skr_arena *arena, struct skr_headers *headers,
            const char *name, struct skr_amqp_piece piece,
            struct skr_error *error)
{
    if (!is_text(piece) || skr_headers_get(headers, name) != NULL)
        return SKR_OK;
    const char *value =
        skr_arena_text(arena, (const char *)piece.bytes, piece.size);
    return skr_headers_add(arena, headers, name, value)
               ? SKR_OK
               : skr_fail_memory(error);
}

// How often it was tried before: Symfony's stamp says so, and x-death where a
// queue of ours has a dead letter exchange that leads back to it.
static enum skr_code
read_retry_count(struct skr_arena *arena, const char *queue,
                 struct skr_amqp_piece table, struct skr_incoming *incoming,
                 struct skr_error *error)
{
    const struct skr_headers *headers = &incoming->headers;
    const char *stamp = skr_headers_get(headers, SKR_HEADER_REDELIVERY);
    const char *text = NULL;
    int64_t count = 0;
    incoming->retry_count = skr_rabbit_rejections(table, queue);
    if (stamp == NULL)
        return SKR_OK;
    enum skr_code code =
        skr_stamp_read(arena, stamp, "retryCount", &text, error);
    if (code == SKR_OK && text != NULL &&
        skr_text_number(text, 0, INT64_MAX, &count) &&
        count > incoming->retry_count)
        incoming->retry_count =
            count > MOST_COUNT ? MOST_COUNT : (uint32_t)count;
    return code;
}

static enum skr_code
read_properties(struct skr_arena *arena, const char *queue,
                struct skr_amqp_piece raw, struct skr_incoming *incoming,
                struct skr_error *error)
{
    struct skr_amqp_properties properties = {0};
    enum skr_code code = skr_amqp_properties_read(raw, &properties, error);
    if (code != SKR_OK)
        return code;
    const struct skr_amqp_piece *pieces = properties.pieces;
    struct skr_amqp_piece table = pieces[SKR_AMQP_HEADERS];
    if (is_text(pieces[SKR_AMQP_MESSAGE_ID])) {
        incoming->broker_id = skr_arena_text(
            arena, (const char *)pieces[SKR_AMQP_MESSAGE_ID].bytes,
            pieces[SKR_AMQP_MESSAGE_ID].size);
        if (incoming->broker_id == NULL)
            return skr_fail_memory(error);
    }
    uint64_t seconds = skr_amqp_number(pieces[SKR_AMQP_TIMESTAMP]);
    // Later than any clock: no time at all.
    if (seconds <= INT64_MAX / 1000000)
        incoming->created_at_us = (int64_t)seconds * 1000000;
    incoming->delivery_count = skr_rabbit_delivery_count(table);
    if (incoming->delivery_count > 0)
        incoming->redelivered = true;
    code = skr_rabbit_headers_read(arena, table, &incoming->headers, error);
    if (code == SKR_OK)
        code = add_missing(arena, &incoming->headers, SKR_HEADER_TYPE,
                           pieces[SKR_AMQP_TYPE], error);
    if (code == SKR_OK)
        code = add_missing(arena, &incoming->headers, SKR_HEADER_CONTENT_TYPE,
                           pieces[SKR_AMQP_CONTENT_TYPE], error);
    if (code == SKR_OK)
        code = read_retry_count(arena, queue, table, incoming, error);
    return code;
}

bool
skr_rabbit_delivery_was_out(const struct rabbit_delivery *delivery)
{
    const struct skr_amqp_piece raw = {.bytes = delivery->block,
                                       .size = delivery->properties_size};
    struct skr_amqp_properties properties = {0};
    return skr_amqp_properties_read(raw, &properties, NULL) == SKR_OK &&
           skr_rabbit_delivery_count(properties.pieces[SKR_AMQP_HEADERS]) > 0;
}

enum skr_code
skr_rabbit_incoming_fill(struct skr_arena *arena, const char *queue,
                         const struct rabbit_delivery *delivery, uint64_t tag,
                         struct skr_incoming *incoming, struct skr_error *error)
{
    const struct skr_amqp_piece raw = {.bytes = delivery->block,
                                       .size = delivery->properties_size};
    struct skr_error problem = {0};
    *incoming = (struct skr_incoming){
        .body = delivery->block + delivery->properties_size,
        .body_size = delivery->body_size,
        .redelivered = delivery->redelivered,
        .handle = tag,
    };
    enum skr_code code = read_properties(arena, queue, raw, incoming, &problem);
    if (code == SKR_MALFORMED) {
        incoming->headers = (struct skr_headers){0};
        incoming->raw_headers = (const char *)raw.bytes;
        incoming->raw_headers_size = raw.size;
        incoming->problem = problem;
        return SKR_OK;
    }
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &problem);
}
