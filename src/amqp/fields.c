// SPDX-License-Identifier: MIT
// Properties and tables, taken apart and put together byte by byte.

#include "amqp/fields.h"

#include "base/error.h"

#include <string.h>

static const enum {
    SHORT_TEXT,
    TABLE,
    OCTET,
    TIME
} shapes[] = {
    [SKR_AMQP_CONTENT_TYPE] = SHORT_TEXT,
    [SKR_AMQP_CONTENT_ENCODING] = SHORT_TEXT,
    [SKR_AMQP_HEADERS] = TABLE,
    [SKR_AMQP_DELIVERY_MODE] = OCTET,
    [SKR_AMQP_PRIORITY] = OCTET,
    [SKR_AMQP_CORRELATION_ID] = SHORT_TEXT,
    [SKR_AMQP_REPLY_TO] = SHORT_TEXT,
    [SKR_AMQP_EXPIRATION] = SHORT_TEXT,
    [SKR_AMQP_MESSAGE_ID] = SHORT_TEXT,
    [SKR_AMQP_TIMESTAMP] = TIME,
    [SKR_AMQP_TYPE] = SHORT_TEXT,
    [SKR_AMQP_USER_ID] = SHORT_TEXT,
    [SKR_AMQP_APP_ID] = SHORT_TEXT,
    [SKR_AMQP_CLUSTER_ID] = SHORT_TEXT,
};

struct skr_amqp_piece
skr_amqp_text_piece(const char *text)
{
    return (struct skr_amqp_piece){.bytes = (const unsigned char *)text,
                                   .size = strlen(text)};
}

struct skr_amqp_piece
skr_amqp_written_piece(const struct skr_text *text)
{
    const char *bytes = text->bytes == NULL ? "" : text->bytes;
    return (struct skr_amqp_piece){.bytes = (const unsigned char *)bytes,
                                   .size = text->size};
}

uint64_t
skr_amqp_number(struct skr_amqp_piece piece)
{
    uint64_t number = 0;
    for (size_t i = 0; i < piece.size; i++)
        number = number << 8 | piece.bytes[i];
    return number;
}

static bool
take(struct skr_amqp_piece *from, size_t size, struct skr_amqp_piece *taken)
{
    if (from->size < size)
        return false;
    *taken = (struct skr_amqp_piece){.bytes = from->bytes, .size = size};
    from->bytes += size;
    from->size -= size;
    return true;
}

// What follows its own size of so many bytes.
static bool
take_sized(struct skr_amqp_piece *from, size_t size_size,
           struct skr_amqp_piece *taken)
{
    struct skr_amqp_piece size;
    return take(from, size_size, &size) &&
           take(from, (size_t)skr_amqp_number(size), taken);
}

static bool
take_property(struct skr_amqp_piece *from, enum skr_amqp_property property,
              struct skr_amqp_piece *taken)
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
skr_amqp_properties_read(struct skr_amqp_piece raw,
                         struct skr_amqp_properties *properties,
                         struct skr_error *error)
{
    struct skr_amqp_properties read = {0};
    struct skr_amqp_piece flags = {0};
    bool is_whole = take(&raw, 2, &flags);
    unsigned bits = is_whole ? (unsigned)skr_amqp_number(flags) : 0;
    if ((bits & 3) != 0)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the message has properties that AMQP 0-9-1 does not "
                        "know");
    for (size_t i = 0; i < SKR_AMQP_PROPERTY_COUNT && is_whole; i++)
        if ((bits & flag_of(i)) != 0)
            is_whole =
                take_property(&raw, (enum skr_amqp_property)i, &read.pieces[i]);
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

void
skr_amqp_properties_write(const struct skr_amqp_properties *properties,
                          struct skr_text *raw)
{
    unsigned bits = 0;
    for (size_t i = 0; i < SKR_AMQP_PROPERTY_COUNT; i++)
        if (properties->pieces[i].bytes != NULL)
            bits |= flag_of(i);
    add_number(raw, bits, 2);
    for (size_t i = 0; i < SKR_AMQP_PROPERTY_COUNT; i++) {
        struct skr_amqp_piece piece = properties->pieces[i];
        if (piece.bytes == NULL)
            continue;
        if (shapes[i] == SHORT_TEXT)
            add_number(raw, piece.size, 1);
        else if (shapes[i] == TABLE)
            add_number(raw, piece.size, 4);
        skr_text_add(raw, (const char *)piece.bytes, piece.size);
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
take_value(struct skr_amqp_piece *from, struct skr_amqp_field *field)
{
    struct skr_amqp_piece kind;
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
take_field(struct skr_amqp_piece *from, bool has_name,
           struct skr_amqp_field *field)
{
    struct skr_amqp_piece left = *from;
    *field = (struct skr_amqp_field){.name = {.bytes = from->bytes}};
    if (left.size == 0 || (has_name && !take_sized(&left, 1, &field->name)) ||
        !take_value(&left, field))
        return false;
    field->all = (struct skr_amqp_piece){.bytes = from->bytes,
                                         .size = from->size - left.size};
    *from = left;
    return true;
}

bool
skr_amqp_table_next(struct skr_amqp_piece *table, struct skr_amqp_field *field)
{
    return take_field(table, true, field);
}

bool
skr_amqp_array_next(struct skr_amqp_piece *array, struct skr_amqp_field *field)
{
    return take_field(array, false, field);
}

bool
skr_amqp_field_is(const struct skr_amqp_field *field, const char *name)
{
    return field->name.size == strlen(name) &&
           memcmp(field->name.bytes, name, field->name.size) == 0;
}

bool
skr_amqp_table_find(struct skr_amqp_piece table, const char *name,
                    struct skr_amqp_field *field)
{
    bool found = false;
    struct skr_amqp_field next;
    while (skr_amqp_table_next(&table, &next))
        if (skr_amqp_field_is(&next, name)) {
            *field = next;
            found = true;
        }
    return found;
}

bool
skr_amqp_field_number(const struct skr_amqp_field *field, int64_t *number)
{
    const struct skr_amqp_piece value = {.bytes = field->value.bytes,
                                         .size = fixed_size(field->kind)};
    uint64_t bits = skr_amqp_number(value);
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
skr_amqp_table_add_text(struct skr_text *table, const char *name,
                        const char *value)
{
    size_t name_size = strlen(name), value_size = strlen(value);
    add_number(table, name_size, 1);
    skr_text_add(table, name, name_size);
    skr_text_add(table, "S", 1);
    add_number(table, value_size, 4);
    skr_text_add(table, value, value_size);
}
