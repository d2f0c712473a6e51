// SPDX-License-Identifier: MIT
// Typed messages: describe a C struct once, then publish and receive structs.
//
// A description is constant data, made by the macros below or by a generator
// that fills struct skr_field and struct skr_type itself. It is checked where
// the compiler can (a member of the wrong type does not compile) and otherwise
// when it is used (SKR_INVALID names the field).
//
// Threads: descriptions and codecs are constant and may be used by any number
// of threads at once; a struct skr_decoded is confined to one at a time.

#ifndef SKIRNIR_TYPED_H
#define SKIRNIR_TYPED_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// -------------------------------------------------------------- descriptions

// What a value is in C, and what it is in JSON.
enum skr_kind {
    SKR_KIND_TEXT,      // char * or const char *; text without a zero
    SKR_KIND_CHARS,     // char[n], zero-terminated; text under n bytes
    SKR_KIND_SIGNED,    // 1, 2, 4 or 8 bytes; a whole number, range checked
    SKR_KIND_UNSIGNED,  // likewise
    SKR_KIND_DOUBLE,    // double; a number; comes back bit by bit the same
    SKR_KIND_BOOLEAN,   // bool; true or false
    SKR_KIND_UUID,      // struct skr_id; text, a UUID (a ULID is read as well)
    SKR_KIND_TIME,      // int64_t, microseconds since 1970; text, RFC 3339
    SKR_KIND_ENUM,      // int or an enum of its size; text, one of names
    SKR_KIND_STRUCT,    // a struct that has a description; an object
    SKR_KIND_OWN,       // a C type of the application; what its codec makes it
};

// How a struct shows that an optional field is absent. In JSON it is left out;
// when reading, null means absent as well. A required field must be there.
enum skr_presence {
    SKR_REQUIRED,
    SKR_ABSENT_IF_NULL,   // text and arrays: the pointer is NULL
    SKR_ABSENT_IF_FALSE,  // a bool member of the struct says so
};

struct skr_enum_name {
    int value;
    const char *name;
};

struct skr_type;
struct skr_codecs;

// One field. Offsets count from the beginning of the struct it is part of.
struct skr_field {
    const char *name;    // in JSON
    enum skr_kind kind;  // of the value; of an array: of its elements
    enum skr_presence presence;
    size_t present_offset;  // SKR_ABSENT_IF_FALSE: of the bool member
    size_t offset;  // of the value; of an array: of the pointer to its elements
    size_t size;    // sizeof the value; of an array: sizeof one element
    bool is_array;
    size_t count_offset;                // of an array: of its size_t member
    const struct skr_type *type;        // SKR_KIND_STRUCT
    const struct skr_enum_name *names;  // SKR_KIND_ENUM
    size_t name_count;
    const char *c_type;  // SKR_KIND_OWN: "struct money"
};

// A struct. Types may nest and refer to themselves (by arrays); values nest up
// to SKR_TYPED_DEPTH levels of objects and arrays.
struct skr_type {
    const char *name;    // of the message, "order.placed"; NULL: a part of one
    const char *c_type;  // "struct order_placed"
    size_t size;         // sizeof it
    const struct skr_field *fields;
    size_t field_count;
    const struct skr_codecs *codecs;  // NULL: built-in ones alone
    // Where messages of the type go on a broker with exchanges, unless the
    // configuration or the message itself says otherwise. NULL: as others do.
    const char *exchange;
    const char *routing_key;
};

enum { SKR_TYPED_DEPTH = 32 };

// Types, from an array of fields. A trailing SKR_WITH_CODECS(codecs) adds the
// application's own codecs:
//   SKR_TYPE("order.placed", struct order_placed, order_placed_fields)
//   SKR_PART(struct item, item_fields, SKR_WITH_CODECS(shop_codecs))
#define SKR_TYPE(message_name, T, ...)                                        \
    {                                                                         \
        .name = (message_name), .c_type = #T, .size = sizeof(T),              \
        .field_count = SKR_COUNT_FIELDS(__VA_ARGS__, ), .fields = __VA_ARGS__ \
    }
#define SKR_PART(T, ...)                                                      \
    {                                                                         \
        .c_type = #T, .size = sizeof(T),                                      \
        .field_count = SKR_COUNT_FIELDS(__VA_ARGS__, ), .fields = __VA_ARGS__ \
    }
#define SKR_WITH_CODECS(own_codecs) .codecs = &(own_codecs)
// Likewise, where its messages go; each may be NULL:
//   SKR_TYPE("order.placed", struct order_placed, order_placed_fields,
//            SKR_WITH_ROUTE("orders", "order.placed.v2"))
#define SKR_WITH_ROUTE(to_exchange, by_key) \
    .exchange = (to_exchange), .routing_key = (by_key)

// Fields: struct, member, name in JSON; SKR_OPTIONAL or SKR_OPTIONAL_IF may
// follow:
//   SKR_FIELD_TEXT(struct order_placed, note, "note", SKR_OPTIONAL)
//   SKR_FIELD_DOUBLE(struct order_placed, discount, "discount",
//                    SKR_OPTIONAL_IF(struct order_placed, has_discount))
#define SKR_FIELD_TEXT(T, member, ...)                               \
    SKR_FIELD(SKR_KIND_TEXT,                                         \
              SKR_OFFSET(T, member, char ** : 0, const char ** : 0), \
              SKR_SIZE(T, member), __VA_ARGS__)
#define SKR_FIELD_CHARS(T, member, ...)                                \
    SKR_FIELD(SKR_KIND_CHARS,                                          \
              SKR_OFFSET(T, member, char(*)[SKR_SIZE(T, member)] : 0), \
              SKR_SIZE(T, member), __VA_ARGS__)
// Any integer type of C but plain char; its size and sign decide the range.
#define SKR_FIELD_INTEGER(T, member, ...)                          \
    SKR_FIELD(_Generic(&((T *)0)->member, SKR_INTEGER_TYPES(, *)), \
              offsetof(T, member), SKR_SIZE(T, member), __VA_ARGS__)
#define SKR_FIELD_DOUBLE(T, member, ...)                            \
    SKR_FIELD(SKR_KIND_DOUBLE, SKR_OFFSET(T, member, double * : 0), \
              sizeof(double), __VA_ARGS__)
#define SKR_FIELD_BOOLEAN(T, member, ...)                          \
    SKR_FIELD(SKR_KIND_BOOLEAN, SKR_OFFSET(T, member, bool * : 0), \
              sizeof(bool), __VA_ARGS__)
#define SKR_FIELD_UUID(T, member, ...)                                   \
    SKR_FIELD(SKR_KIND_UUID, SKR_OFFSET(T, member, struct skr_id * : 0), \
              sizeof(struct skr_id), __VA_ARGS__)
#define SKR_FIELD_TIME(T, member, ...)                             \
    SKR_FIELD(SKR_KIND_TIME, SKR_OFFSET(T, member, int64_t * : 0), \
              sizeof(int64_t), __VA_ARGS__)
// enum_names is an array of struct skr_enum_name.
#define SKR_FIELD_ENUM(T, member, enum_names, ...)                             \
    SKR_FIELD(SKR_KIND_ENUM, SKR_OFFSET(T, member, int * : 0, unsigned * : 0), \
              SKR_SIZE(T, member), __VA_ARGS__, .names = (enum_names),         \
              .name_count = sizeof(enum_names) / sizeof((enum_names)[0]))
// part is the struct skr_type of the member.
#define SKR_FIELD_STRUCT(T, member, part, ...)                           \
    SKR_FIELD(SKR_KIND_STRUCT, offsetof(T, member), SKR_SIZE(T, member), \
              __VA_ARGS__, .type = &(part))
// own_type is a C type that a codec handles, such as struct money.
#define SKR_FIELD_OWN(T, member, own_type, ...)                    \
    SKR_FIELD(SKR_KIND_OWN, SKR_OFFSET(T, member, own_type * : 0), \
              sizeof(own_type), __VA_ARGS__, .c_type = #own_type)

// Arrays: a pointer to the elements and a size_t member with their number. An
// empty array may be NULL; one that was read and is empty is not.
//   SKR_ARRAY_STRUCT(struct order_placed, items, item_count, item, "items")
#define SKR_ARRAY_TEXT(T, member, count, ...)                           \
    SKR_ARRAY(SKR_KIND_TEXT,                                            \
              SKR_OFFSET(T, member, char *** : 0, const char *** : 0,   \
                         char *const ** : 0, const char *const ** : 0), \
              sizeof(char *), T, count, __VA_ARGS__)
// char (*member)[n]
#define SKR_ARRAY_CHARS(T, member, count, ...)                            \
    SKR_ARRAY(                                                            \
        SKR_KIND_CHARS,                                                   \
        SKR_OFFSET(T, member, char(**)[SKR_ELEMENT_SIZE(T, member)] : 0), \
        SKR_ELEMENT_SIZE(T, member), T, count, __VA_ARGS__)
#define SKR_ARRAY_INTEGER(T, member, count, ...)                          \
    SKR_ARRAY(_Generic(&((T *)0)->member, SKR_INTEGER_TYPES(, **),        \
                       SKR_INTEGER_TYPES(const, **)),                     \
              offsetof(T, member), SKR_ELEMENT_SIZE(T, member), T, count, \
              __VA_ARGS__)
#define SKR_ARRAY_DOUBLE(T, member, count, ...)                 \
    SKR_ARRAY(SKR_KIND_DOUBLE, SKR_ELEMENTS(T, member, double), \
              sizeof(double), T, count, __VA_ARGS__)
#define SKR_ARRAY_BOOLEAN(T, member, count, ...)                             \
    SKR_ARRAY(SKR_KIND_BOOLEAN, SKR_ELEMENTS(T, member, bool), sizeof(bool), \
              T, count, __VA_ARGS__)
#define SKR_ARRAY_UUID(T, member, count, ...)                        \
    SKR_ARRAY(SKR_KIND_UUID, SKR_ELEMENTS(T, member, struct skr_id), \
              sizeof(struct skr_id), T, count, __VA_ARGS__)
#define SKR_ARRAY_TIME(T, member, count, ...)                  \
    SKR_ARRAY(SKR_KIND_TIME, SKR_ELEMENTS(T, member, int64_t), \
              sizeof(int64_t), T, count, __VA_ARGS__)
#define SKR_ARRAY_ENUM(T, member, count, enum_type, enum_names, ...)           \
    SKR_ARRAY(SKR_KIND_ENUM, SKR_ELEMENTS(T, member, enum_type),               \
              sizeof(enum_type), T, count, __VA_ARGS__, .names = (enum_names), \
              .name_count = sizeof(enum_names) / sizeof((enum_names)[0]))
#define SKR_ARRAY_STRUCT(T, member, count, part, ...)             \
    SKR_ARRAY(SKR_KIND_STRUCT, SKR_POINTER_OFFSET(T, member),     \
              SKR_ELEMENT_SIZE(T, member), T, count, __VA_ARGS__, \
              .type = &(part))
#define SKR_ARRAY_OWN(T, member, count, own_type, ...)         \
    SKR_ARRAY(SKR_KIND_OWN, SKR_ELEMENTS(T, member, own_type), \
              sizeof(own_type), T, count, __VA_ARGS__, .c_type = #own_type)

// Absent when the pointer is NULL: for text and arrays.
#define SKR_OPTIONAL .presence = SKR_ABSENT_IF_NULL
// Absent when this bool member is false: for any field.
#define SKR_OPTIONAL_IF(T, flag)     \
    .presence = SKR_ABSENT_IF_FALSE, \
    .present_offset = SKR_OFFSET(T, flag, bool * : 0)

// What the macros above are made of. SKR_OFFSET is an offset that compiles
// only if the member's address has one of the types listed: an address, since
// an array would pass for a pointer otherwise.
#define SKR_FIELD(field_kind, field_offset, field_size, ...)                  \
    {                                                                         \
        .kind = (field_kind), .offset = (field_offset), .size = (field_size), \
        .name = __VA_ARGS__                                                   \
    }
#define SKR_ARRAY(field_kind, field_offset, field_size, T, count, ...)    \
    {                                                                     \
        .is_array = true, .kind = (field_kind), .offset = (field_offset), \
        .size = (field_size),                                             \
        .count_offset = SKR_OFFSET(T, count, size_t * : 0),               \
        .name = __VA_ARGS__                                               \
    }
#define SKR_OFFSET(T, member, ...) \
    (offsetof(T, member) + _Generic(&((T *)0)->member, __VA_ARGS__))
#define SKR_ELEMENTS(T, member, element) \
    SKR_OFFSET(T, member, element ** : 0, const element ** : 0)
#define SKR_SIZE(T, member) sizeof(((T *)0)->member)
#define SKR_ELEMENT_SIZE(T, member) sizeof(*((T *)0)->member)
#define SKR_COUNT_FIELDS(fields, ...) (sizeof(fields) / sizeof((fields)[0]))
#define SKR_POINTER_OFFSET(T, member) \
    SKR_OFFSET(T, member, __typeof__(*((T *)0)->member) ** : 0)
#define SKR_SIGNED_IF(address_type) \
    address_type:                   \
    SKR_KIND_SIGNED
#define SKR_UNSIGNED_IF(address_type) \
    address_type:                     \
    SKR_KIND_UNSIGNED
#define SKR_INTEGER_TYPES(qualifier, pointer)              \
    SKR_SIGNED_IF(qualifier signed char pointer),          \
        SKR_SIGNED_IF(qualifier short pointer),            \
        SKR_SIGNED_IF(qualifier int pointer),              \
        SKR_SIGNED_IF(qualifier long pointer),             \
        SKR_SIGNED_IF(qualifier long long pointer),        \
        SKR_UNSIGNED_IF(qualifier unsigned char pointer),  \
        SKR_UNSIGNED_IF(qualifier unsigned short pointer), \
        SKR_UNSIGNED_IF(qualifier unsigned pointer),       \
        SKR_UNSIGNED_IF(qualifier unsigned long pointer),  \
        SKR_UNSIGNED_IF(qualifier unsigned long long pointer)

// ------------------------------------------------------------------- calling

// Everything that a decoded struct points to.
struct skr_decoded;

// Gives JSON text, zero-terminated, that the caller frees with free(); size may
// be NULL. codecs may be NULL; they come before those of the type, which come
// before the built-in ones. SKR_INVALID names the field that cannot be written:
// NaN, an infinity, text that is not UTF-8, a required pointer that is NULL, a
// number that is no member of its enum.
SKR_API SKR_MUST_CHECK enum skr_code
skr_encode(const struct skr_type *type, const void *value,
           const struct skr_codecs *codecs, char **json, size_t *size,
           struct skr_error *error);

struct skr_encoded {
    const void *json;
    size_t size;
    const struct skr_codecs *codecs;  // as those of skr_encode()
};

// Fills *value; what it points to lives in *memory. Members that the
// description does not name become zero. Unknown JSON fields are ignored; of
// a field that is there twice the last one counts. SKR_MALFORMED names the
// field and what is wrong with it: "items[2].price: a number is needed, not
// text". The json is needed no longer afterwards.
SKR_API SKR_MUST_CHECK enum skr_code
skr_decode(const struct skr_type *type, const struct skr_encoded *encoded,
           void *value, struct skr_decoded **memory, struct skr_error *error);
SKR_API void skr_decoded_free(struct skr_decoded *memory);

// A struct, and what it does not give: id, headers, partition key, times. Name,
// body and content type of extra must be empty; it may be NULL.
struct skr_typed_message {
    const struct skr_type *type;
    const void *value;
    const struct skr_message *extra;
};
// Publishes a struct under its type's name, as skr_publish() does: in tx, seen
// if and only if tx commits. id, which may be NULL, receives the message's.
// SKR_INVALID leaves tx untouched.
SKR_API SKR_MUST_CHECK enum skr_code
skr_publish_typed(const struct skr_outbox *outbox, struct skr_tx tx,
                  const struct skr_typed_message *typed, struct skr_id *id,
                  struct skr_error *error);

// -------------------------------------------------------------------- codecs

// A JSON value that is being read. It lives as long as the call of the codec.
struct skr_json;
// Where JSON is being written.
struct skr_json_writer;
struct skr_codec;

// Writes the value as exactly one JSON value. field->size is its size. What is
// put into error gets the field's path before it.
typedef enum skr_code
skr_codec_encode_fn(const struct skr_codec *codec,
                    const struct skr_field *field, const void *value,
                    struct skr_json_writer *writer, struct skr_error *error);

// Reads a JSON value, which may be of any kind but is null only for a required
// field, into *value, field->size zeroed bytes. What *value points to is taken
// from memory by skr_decoded_take().
typedef enum skr_code
skr_codec_decode_fn(const struct skr_codec *codec,
                    const struct skr_field *field, const struct skr_json *json,
                    void *value, struct skr_decoded *memory,
                    struct skr_error *error);

// Handles every field of a C type (SKR_FIELD_OWN, and SKR_FIELD_STRUCT whose
// type has this c_type), or of a kind. It sees elements of arrays one by one.
struct skr_codec {
    const char *c_type;           // "struct money"; NULL: a kind
    enum skr_kind kind;           // read only if c_type is NULL
    skr_codec_encode_fn *encode;  // NULL: writing stays as it was
    skr_codec_decode_fn *decode;  // NULL: reading stays as it was
    void *user;                   // for the codec alone
};

// The first that fits is used.
struct skr_codecs {
    const struct skr_codec *items;
    size_t count;
};

#define SKR_CODECS(array)                                             \
    {                                                                 \
        .items = (array), .count = sizeof(array) / sizeof((array)[0]) \
    }

// Memory that lives as long as the decoded struct; zeroed, aligned for any
// type. NULL when memory is out.
SKR_API void *skr_decoded_take(struct skr_decoded *memory, size_t size);

// Fills an error with "why" and returns its code, to end a codec's failing
// path: SKR_MALFORMED when reading, SKR_INVALID when writing. error may be
// NULL.
SKR_API enum skr_code
skr_codec_fail(struct skr_error *error, enum skr_code code, const char *why);

enum skr_json_kind {
    SKR_JSON_NULL,
    SKR_JSON_BOOLEAN,
    SKR_JSON_NUMBER,
    SKR_JSON_TEXT,
    SKR_JSON_ARRAY,
    SKR_JSON_OBJECT,
};

SKR_API enum skr_json_kind skr_json_kind(const struct skr_json *json);

// SKR_MALFORMED when the value is of another kind, or out of range.
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_boolean(const struct skr_json *json, bool *value,
                      struct skr_error *error);
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_signed(const struct skr_json *json, int64_t *value,
                     struct skr_error *error);
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_unsigned(const struct skr_json *json, uint64_t *value,
                       struct skr_error *error);
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_double(const struct skr_json *json, double *value,
                     struct skr_error *error);
// UTF-8, zero-terminated, without another zero in it. It lives as long as the
// decoded struct.
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_text(const struct skr_json *json, const char **text, size_t *size,
                   struct skr_error *error);
// A number as it is written, digit by digit, for decimal types. They live as
// long as the call of the codec.
SKR_API SKR_MUST_CHECK enum skr_code
skr_json_read_digits(const struct skr_json *json, const char **digits,
                     struct skr_error *error);

// The field of an object; NULL when there is none or json is no object.
SKR_API const struct skr_json *
skr_json_find(const struct skr_json *json, const char *name);
// The first element or field of an array or object, and the one after; NULL
// when there is none.
SKR_API const struct skr_json *skr_json_first(const struct skr_json *json);
SKR_API const struct skr_json *skr_json_next(const struct skr_json *json);
// The name under which an object has this value; NULL outside of objects.
SKR_API const char *skr_json_name(const struct skr_json *json);

// Commas are the writer's business. A mistake (NaN, text that is not UTF-8,
// an object that is not closed) is kept and fails the encoding when the codec
// is done.
SKR_API void skr_json_write_null(struct skr_json_writer *writer);
SKR_API void skr_json_write_boolean(struct skr_json_writer *writer, bool value);
SKR_API void
skr_json_write_signed(struct skr_json_writer *writer, int64_t value);
SKR_API void
skr_json_write_unsigned(struct skr_json_writer *writer, uint64_t value);
// The shortest text that gives the same double, always with a fraction or an
// exponent: 100.0, so that readers that tell the two apart see no integer.
SKR_API void
skr_json_write_double(struct skr_json_writer *writer, double value);
SKR_API void skr_json_write_text(struct skr_json_writer *writer,
                                 const char *text, size_t size);
// A number digit by digit, for decimal types.
SKR_API void
skr_json_write_digits(struct skr_json_writer *writer, const char *digits);
SKR_API void skr_json_begin_object(struct skr_json_writer *writer);
SKR_API void
skr_json_write_name(struct skr_json_writer *writer, const char *name);
SKR_API void skr_json_end_object(struct skr_json_writer *writer);
SKR_API void skr_json_begin_array(struct skr_json_writer *writer);
SKR_API void skr_json_end_array(struct skr_json_writer *writer);

#ifdef __cplusplus
}
#endif

#endif
