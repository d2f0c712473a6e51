// SPDX-License-Identifier: MIT
// What a message's properties say, read from the bytes as they came: any
// publisher may have written them. Nothing here follows a table deeper than it
// must, and nothing is taken on trust but the bounds of the frame.

#ifndef SKR_BROKER_RABBITMQ_FIELDS_H
#define SKR_BROKER_RABBITMQ_FIELDS_H

#include "base/text.h"
#include "message/headers.h"

// Tables and arrays inside each other, at most: what nests deeper is refused.
enum { RABBIT_FIELD_DEPTH = 32 };

// A run of bytes that it does not own; bytes NULL: none.
struct rabbit_piece {
    const unsigned char *bytes;
    size_t size;
};

// In the order of the wire.
enum rabbit_property {
    RABBIT_CONTENT_TYPE,
    RABBIT_CONTENT_ENCODING,
    RABBIT_HEADERS,  // the table's inside, without its size
    RABBIT_DELIVERY_MODE,
    RABBIT_PRIORITY,
    RABBIT_CORRELATION_ID,
    RABBIT_REPLY_TO,
    RABBIT_EXPIRATION,
    RABBIT_MESSAGE_ID,
    RABBIT_TIMESTAMP,
    RABBIT_TYPE,
    RABBIT_USER_ID,
    RABBIT_APP_ID,
    RABBIT_CLUSTER_ID,
    RABBIT_PROPERTY_COUNT,
};

struct rabbit_properties {
    struct rabbit_piece pieces[RABBIT_PROPERTY_COUNT];
};

// Borrows from raw. SKR_MALFORMED: it ends too early, or has parts that are not
// of AMQP 0-9-1.
SKR_MUST_CHECK enum skr_code
skr_rabbit_properties_read(struct rabbit_piece raw,
                           struct rabbit_properties *properties,
                           struct skr_error *error);
void skr_rabbit_properties_write(const struct rabbit_properties *properties,
                                 struct skr_text *raw);

// A field of a table, or a value of an array, whose name is empty.
struct rabbit_field {
    struct rabbit_piece name;
    char kind;
    struct rabbit_piece value;  // a text or a table: without its size
    struct rabbit_piece all;    // name, kind and value as they stand
};

// Takes the first field off the table. False: there is none, or it is broken,
// and then *table is not empty.
bool
skr_rabbit_table_next(struct rabbit_piece *table, struct rabbit_field *field);
bool
skr_rabbit_array_next(struct rabbit_piece *array, struct rabbit_field *field);
bool skr_rabbit_field_is(const struct rabbit_field *field, const char *name);
// The last field of that name and kind; false when there is none.
bool skr_rabbit_table_find(struct rabbit_piece table, const char *name,
                           struct rabbit_field *field);
// Any kind of integer; one that has no room becomes the nearest that has.
bool skr_rabbit_field_number(const struct rabbit_field *field, int64_t *number);

void skr_rabbit_table_add_text(struct skr_text *table, const char *name,
                               const char *value);

// The table as headers, in the arena. Text stands as it is. Everything else
// becomes its JSON text: numbers, true, false, null; timestamps as seconds,
// decimals with their digits, nested tables as objects and arrays as arrays. A
// float that is no number is "NaN", "Infinity" or "-Infinity". Bytes that are
// no UTF-8, or hold a zero, become base64, in names too. Of two headers with
// one name the last counts. SKR_MALFORMED says what cannot be read.
SKR_MUST_CHECK enum skr_code
skr_rabbit_headers_read(struct skr_arena *arena, struct rabbit_piece table,
                        struct skr_headers *headers, struct skr_error *error);

// How often a message was rejected from this queue, by its x-death header.
uint32_t skr_rabbit_rejections(struct rabbit_piece headers, const char *queue);
// How often it was handed out before, by a quorum queue's own count.
uint32_t skr_rabbit_delivery_count(struct rabbit_piece headers);

#endif
