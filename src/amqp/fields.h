// SPDX-License-Identifier: MIT
// The properties of a message and its field tables, read from the bytes as they
// came and written back: any publisher may have made them. Nothing here follows
// a table deeper than it must, and nothing is taken on trust but the bounds of
// the frame.

#ifndef SKR_AMQP_FIELDS_H
#define SKR_AMQP_FIELDS_H

#include "base/text.h"

#include <skirnir/skirnir.h>

// Tables and arrays inside each other, at most: what nests deeper is refused.
enum { SKR_AMQP_FIELD_DEPTH = 32 };

// Bytes that belong to another object; bytes NULL: none.
struct skr_amqp_piece {
    const unsigned char *bytes;
    size_t size;
};

// A text without its zero.
struct skr_amqp_piece skr_amqp_text_piece(const char *text);
// What was written; never NULL bytes, so that an empty one is there, too.
struct skr_amqp_piece skr_amqp_written_piece(const struct skr_text *text);

// In the order of the wire.
enum skr_amqp_property {
    SKR_AMQP_CONTENT_TYPE,
    SKR_AMQP_CONTENT_ENCODING,
    SKR_AMQP_HEADERS,  // the table's content, without its size
    SKR_AMQP_DELIVERY_MODE,
    SKR_AMQP_PRIORITY,
    SKR_AMQP_CORRELATION_ID,
    SKR_AMQP_REPLY_TO,
    SKR_AMQP_EXPIRATION,
    SKR_AMQP_MESSAGE_ID,
    SKR_AMQP_TIMESTAMP,
    SKR_AMQP_TYPE,
    SKR_AMQP_USER_ID,
    SKR_AMQP_APP_ID,
    SKR_AMQP_CLUSTER_ID,
    SKR_AMQP_PROPERTY_COUNT,
};

// The delivery mode of a message that a restart of the server does not lose.
enum { SKR_AMQP_PERSISTENT = 2 };

struct skr_amqp_properties {
    struct skr_amqp_piece pieces[SKR_AMQP_PROPERTY_COUNT];
};

// Borrows from raw. SKR_MALFORMED: it ends too early, or has parts that are not
// of AMQP 0-9-1.
SKR_MUST_CHECK enum skr_code
skr_amqp_properties_read(struct skr_amqp_piece raw,
                         struct skr_amqp_properties *properties,
                         struct skr_error *error);
void skr_amqp_properties_write(const struct skr_amqp_properties *properties,
                               struct skr_text *raw);

// A field of a table, or a value of an array, whose name is empty.
struct skr_amqp_field {
    struct skr_amqp_piece name;
    char kind;
    struct skr_amqp_piece value;  // a text or a table: without its size
    struct skr_amqp_piece all;    // name, kind and value as they stand
};

// Takes the first field off the table. False: there is none, or it is broken,
// and then *table is not empty.
bool
skr_amqp_table_next(struct skr_amqp_piece *table, struct skr_amqp_field *field);
bool
skr_amqp_array_next(struct skr_amqp_piece *array, struct skr_amqp_field *field);
bool skr_amqp_field_is(const struct skr_amqp_field *field, const char *name);
// The last field of that name; false when there is none.
bool skr_amqp_table_find(struct skr_amqp_piece table, const char *name,
                         struct skr_amqp_field *field);
// Any kind of integer; one that has no room becomes the nearest that has.
bool skr_amqp_field_number(const struct skr_amqp_field *field, int64_t *number);

// Adds a field; a name has at most 255 bytes.
void skr_amqp_table_add_text(struct skr_text *table, const char *name,
                             const char *value);

// The piece as an unsigned number, most significant byte first.
uint64_t skr_amqp_number(struct skr_amqp_piece piece);

#endif
