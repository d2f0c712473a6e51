// SPDX-License-Identifier: MIT
// What encoding and decoding of typed messages share: where they are in the
// message, which codec holds there, whether the description makes sense.

#ifndef SKR_MESSAGE_TYPED_H
#define SKR_MESSAGE_TYPED_H

#include <skirnir/typed.h>

// A field, or an element of an array, on the way down into a message. Places
// lie on the stack of the calls that go down; no path is written until an
// error asks for it.
struct skr_place {
    const struct skr_place *outer;  // NULL: the message itself
    const char *name;               // NULL: an element, at index
    size_t index;
    size_t depth;                     // objects and arrays that are open here
    const struct skr_codecs *codecs;  // that hold from here on; may be NULL
};

// "items[2].price: " and the text.
enum skr_code
skr_place_fail(const struct skr_place *place, struct skr_error *error,
               enum skr_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Puts the path before the text of an error that has none yet. error is not
// NULL.
enum skr_code
skr_place_prefix(const struct skr_place *place, struct skr_error *error);

enum skr_direction { SKR_ENCODING, SKR_DECODING };

// The codec of the application for a field, NULL when the built-in one is to be
// used. Those of outer places come first: the caller's decide over those of a
// nested type.
const struct skr_codec *skr_place_find_codec(const struct skr_place *place,
                                             const struct skr_field *field,
                                             enum skr_direction direction);

// After a codec has failed: its text with the path before it. Returns code.
enum skr_code skr_place_fail_codec(const struct skr_place *place,
                                   enum skr_code code, struct skr_error *error);

// SKR_INVALID when a field cannot be part of the type, or contradicts itself.
SKR_MUST_CHECK enum skr_code
skr_field_check(const struct skr_place *place, const struct skr_type *type,
                const struct skr_field *field, struct skr_error *error);

#endif
