// SPDX-License-Identifier: MIT
// Properties and tables, taken apart and put together byte by byte.

#include "base/error.h"
#include "broker/rabbitmq/fields.h"

#include <string.h>

enum { MOST_COUNT = 1000000 };

static const enum {
    SHORT_TEXT,
    TABLE,
    OCTET,
    TIME
} shapes[] = {
    [RABBIT_CONTENT_TYPE] = SHORT_TEXT, [RABBIT_CONTENT_ENCODING] = SHORT_TEXT,
    [RABBIT_HEADERS] = TABLE,           [RABBIT_DELIVERY_MODE] = OCTET,
    [RABBIT_PRIORITY] = OCTET,          [RABBIT_CORRELATION_ID] = SHORT_TEXT,
    [RABBIT_REPLY_TO] = SHORT_TEXT,     [RABBIT_EXPIRATION] = SHORT_TEXT,
    [RABBIT_MESSAGE_ID] = SHORT_TEXT,   [RABBIT_TIMESTAMP] = TIME,
    [RABBIT_TYPE] = SHORT_TEXT,         [RABBIT_USER_ID] = SHORT_TEXT,
    [RABBIT_APP_ID] = SHORT_TEXT,       [RABBIT_CLUSTER_ID] = SHORT_TEXT,
};

static uint64_t
number_at(const unsigned char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

static bool
take(struct rabbit_piece *from, size_t size, struct rabbit_piece *taken)
{
    if (from->size < size)
        return false;
    *taken = (struct rabbit_piece){.bytes = from->bytes, .size = size};
    from->bytes += size;
    from->size -= size;
    return true;
}

// What follows its own size of so many bytes.
static bool
take_sized(struct rabbit_piece *from, size_t size_size,
           struct rabbit_piece *taken)
{
    struct rabbit_piece size;
    return take(from, size_size, &size) &&
           take(from, (size_t)number_at(size.bytes, size_size), taken);
}

static bool
take_property(struct rabbit_piece *from, enum rabbit_property property,
              struct rabbit_piece *taken)
{
    switch (shapes[property]) {
    case SHORT_TEXT: return take_sized(from, 1, taken);
    case TABLE: return take_sized(from, 4, taken);
    case OCTET: return take(from, 1, taken);
    case TIME: return take(from, 8, taken);
    }
    return false;
}

// The first property has the highest bit.
static unsigned
flag_of(size_t property)
{
    return 1U << (15 - property);
}

enum skr_code
skr_rabbit_properties_read(struct rabbit_piece raw,
                           struct rabbit_properties *properties,
                           struct skr_error *error)
{
    struct rabbit_properties read = {0};
    struct rabbit_piece flags = {0};
    bool is_whole = take(&raw, 2, &flags);
    unsigned bits = is_whole ? (unsigned)number_at(flags.bytes, 2) : 0;
    if ((bits & 3) != 0)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the message has properties that AMQP 0-9-1 does not "
                        "know");
    for (size_t i = 0; i < RABBIT_PROPERTY_COUNT && is_whole; i++)
        if ((bits & flag_of(i)) != 0)
            is_whole =
                take_property(&raw, (enum rabbit_property)i, &read.pieces[i]);
    if (!is_whole)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the properties of the message are cut short");
    *properties = read;
    return SKR_OK;
}

static void
add_number(struct skr_text *raw, uint64_t number, size_t size)
{
    char bytes[8];
    for (size_t i = size; i > 0; i--) {
        bytes[i - 1] = (char)(number & 0xFF);
        number >>= 8;
    }
    skr_text_add(raw, bytes, size);
}

static void
add_piece(struct skr_text *raw, struct rabbit_piece piece)
{
    skr_text_add(raw, (const char *)piece.bytes, piece.size);
}

void
skr_rabbit_properties_write(const struct rabbit_properties *properties,
                            struct skr_text *raw)
{
    unsigned bits = 0;
    for (size_t i = 0; i < RABBIT_PROPERTY_COUNT; i++)
        if (properties->pieces[i].bytes != NULL)
            bits |= flag_of(i);
    add_number(raw, bits, 2);
    for (size_t i = 0; i < RABBIT_PROPERTY_COUNT; i++) {
        struct rabbit_piece piece = properties->pieces[i];
        if (piece.bytes == NULL)
            continue;
        if (shapes[i] == SHORT_TEXT)
            add_number(raw, piece.size, 1);
        else if (shapes[i] == TABLE)
            add_number(raw, piece.size, 4);
        add_piece(raw, piece);
    }
}

// How many bytes a value of fixed size has; 0: it has another shape.
static size_t
fixed_size(char kind)
{
    switch (kind) {
    case 't':
    case 'b':
    case 'B': return 1;
    case 's':
    case 'u': return 2;
    case 'I':
    case 'i':
    case 'f': return 4;
    case 'D': return 5;
    case 'l':
    case 'L':
    case 'd':
    case 'T': return 8;
    default: return 0;
    }
}

static bool
take_value(struct rabbit_piece *from, struct rabbit_field *field)
{
    struct rabbit_piece kind;
    if (!take(from, 1, &kind))
        return false;
    field->kind = (char)kind.bytes[0];
    switch (field->kind) {
    case 'V': return take(from, 0, &field->value);
    case 'S':
    case 'x':
    case 'A':
    case 'F': return take_sized(from, 4, &field->value);
    default:
        return fixed_size(field->kind) > 0 &&
               take(from, fixed_size(field->kind), &field->value);
    }
}

static bool
take_field(struct rabbit_piece *from, bool has_name, struct rabbit_field *field)
{
    struct rabbit_piece left = *from;
    *field = (struct rabbit_field){.name = {.bytes = from->bytes}};
    if (left.size == 0 || (has_name && !take_sized(&left, 1, &field->name)) ||
        !take_value(&left, field))
        return false;
    field->all = (struct rabbit_piece){.bytes = from->bytes,
                                       .size = from->size - left.size};
    *from = left;
    return true;
}

bool
skr_rabbit_table_next(struct rabbit_piece *table, struct rabbit_field *field)
{
    return take_field(table, true, field);
}

bool
skr_rabbit_array_next(struct rabbit_piece *array, struct rabbit_field *field)
{
    return take_field(array, false, field);
}

bool
skr_rabbit_field_is(const struct rabbit_field *field, const char *name)
{
    return field->name.size == strlen(name) &&
           memcmp(field->name.bytes, name, field->name.size) == 0;
}

bool
skr_rabbit_table_find(struct rabbit_piece table, const char *name,
                      struct rabbit_field *field)
{
    bool found = false;
    struct rabbit_field next;
    while (skr_rabbit_table_next(&table, &next))
        if (skr_rabbit_field_is(&next, name)) {
            *field = next;
            found = true;
        }
    return found;
}

bool
skr_rabbit_field_number(const struct rabbit_field *field, int64_t *number)
{
    uint64_t bits = number_at(field->value.bytes, fixed_size(field->kind));
    switch (field->kind) {
    case 'b': *number = (int8_t)bits; return true;
    case 'B':
    case 'u':
    case 'i': *number = (int64_t)bits; return true;
    case 's': *number = (int16_t)bits; return true;
    case 'I': *number = (int32_t)bits; return true;
    case 'l': *number = (int64_t)bits; return true;
    case 'L':
    case 'T':
        *number = bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
        return true;
    default: return false;
    }
}

void
skr_rabbit_table_add_text(struct skr_text *table, const char *name,
                          const char *value)
{
    size_t name_size = strlen(name), value_size = strlen(value);
    add_number(table, name_size, 1);
    skr_text_add(table, name, name_size);
    skr_text_add(table, "S", 1);
    add_number(table, value_size, 4);
    skr_text_add(table, value, value_size);
}

// A count from outside is bounded, so that adding to it stays a count.
static uint32_t
count_of(const struct rabbit_field *field)
{
    int64_t number = 0;
    if (!skr_rabbit_field_number(field, &number) || number < 0)
        return 0;
    return number > MOST_COUNT ? MOST_COUNT : (uint32_t)number;
}

static bool
says(struct rabbit_piece table, const char *name, const char *text)
{
    struct rabbit_field field;
    return skr_rabbit_table_find(table, name, &field) && field.kind == 'S' &&
           field.value.size == strlen(text) &&
           memcmp(field.value.bytes, text, field.value.size) == 0;
}

uint32_t
skr_rabbit_rejections(struct rabbit_piece headers, const char *queue)
{
    struct rabbit_field deaths, death, count;
    uint32_t total = 0;
    if (!skr_rabbit_table_find(headers, "x-death", &deaths) ||
        deaths.kind != 'A')
        return 0;
    while (skr_rabbit_array_next(&deaths.value, &death))
        if (death.kind == 'F' && says(death.value, "queue", queue) &&
            says(death.value, "reason", "rejected") &&
            skr_rabbit_table_find(death.value, "count", &count) &&
            count_of(&count) > total)
            total = count_of(&count);
    return total;
}

uint32_t
skr_rabbit_delivery_count(struct rabbit_piece headers)
{
    struct rabbit_field field;
    return skr_rabbit_table_find(headers, "x-delivery-count", &field)
               ? count_of(&field)
               : 0;
}
