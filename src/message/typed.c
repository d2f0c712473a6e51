// SPDX-License-Identifier: MIT
// Typed messages: the path to a field for error texts, the choice of a codec
// and the check of a field's description; then from structs to JSON, and from
// JSON to structs.

#include "base/clock.h"
#include "base/error.h"
#include "message/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A field, or an element of an array, on the way down into a message. Places
// lie on the stack of the calls that go down; no path is written until an
// error asks for it.
struct place {
    const struct place *outer;  // NULL: the message itself
    const char *name;           // NULL: an element, at index
    size_t index;
    size_t depth;                     // objects and arrays that are open here
    const struct skr_codecs *codecs;  // that hold from here on; may be NULL
};

enum direction { ENCODING, DECODING };

// Returns the size of what was written, which is cut where room ends.
static size_t
print_path(const struct place *place, char *path, size_t room)
{
    if (place->outer == NULL)
        return 0;
    size_t used = print_path(place->outer, path, room);
    if (used + 1 >= room)
        return used;
    int length;
    if (place->name == NULL)
        length = snprintf(path + used, room - used, "[%zu]", place->index);
    else
        length = snprintf(path + used, room - used, "%s%s",
                          used == 0 ? "" : ".", place->name);
    if (length < 0 || (size_t)length >= room - used)
        return room - 1;
    return used + (size_t)length;
}

// Puts the path before the text of an error that has none yet. error is not
// NULL.
static enum skr_code
prefix_place(const struct place *place, struct skr_error *error)
{
    // Leaves room for what is wrong, however deep the place is.
    char path[sizeof(error->text) / 2] = "";
    if (print_path(place, path, sizeof(path)) > 0)
        skr_error_prefix(error, "%s", path);
    return error->code;
}

// "items[2].price: " and the text.
__attribute__((format(printf, 4, 5))) static enum skr_code
fail_at(const struct place *place, struct skr_error *error, enum skr_code code,
        const char *format, ...)
{
    char text[sizeof(error->text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    skr_fail(error, code, SKR_GIVE_UP, "%s", text);
    return prefix_place(place, error);
}

static bool
fits(const struct skr_codec *codec, const struct skr_field *field,
     enum direction direction)
{
    if (direction == ENCODING ? codec->encode == NULL : codec->decode == NULL)
        return false;
    if (codec->c_type == NULL)
        return codec->kind == field->kind;
    const char *c_type = field->kind == SKR_KIND_STRUCT ? field->type->c_type
                         : field->kind == SKR_KIND_OWN  ? field->c_type
                                                        : NULL;
    return c_type != NULL && strcmp(codec->c_type, c_type) == 0;
}

// The codec of the application for a field, NULL when the built-in one is to be
// used. Those of outer places come first: the caller's decide over those of a
// nested type.
static const struct skr_codec *
find_codec(const struct place *place, const struct skr_field *field,
           enum direction direction)
{
    if (place->outer != NULL) {
        const struct skr_codec *found =
            find_codec(place->outer, field, direction);
        if (found != NULL)
            return found;
    }
    if (place->codecs == NULL)
        return NULL;
    for (size_t i = 0; i < place->codecs->count; i++)
        if (fits(&place->codecs->items[i], field, direction))
            return &place->codecs->items[i];
    return NULL;
}

// After a codec has failed: its text with the path before it. Returns code.
static enum skr_code
fail_codec(const struct place *place, enum skr_code code,
           struct skr_error *error)
{
    if (error->code == SKR_OK)
        skr_fail(error, code, SKR_GIVE_UP, "its codec failed");
    prefix_place(place, error);
    return code;
}

enum skr_code
skr_codec_fail(struct skr_error *error, enum skr_code code, const char *why)
{
    return skr_fail(error, code, SKR_GIVE_UP, "%s", why);
}

// NULL: the size is one that the kind can have.
static const char *
find_size_mistake(const struct skr_field *field)
{
    static const size_t sizes[] = {
        [SKR_KIND_TEXT] = sizeof(char *),
        [SKR_KIND_DOUBLE] = sizeof(double),
        [SKR_KIND_BOOLEAN] = sizeof(bool),
        [SKR_KIND_UUID] = sizeof(struct skr_id),
        [SKR_KIND_TIME] = sizeof(int64_t),
        [SKR_KIND_ENUM] = sizeof(int),
    };
    enum skr_kind kind = field->kind;
    size_t size = field->size;
    if ((unsigned)kind > SKR_KIND_OWN)
        return "the description has an unknown kind";
    if (kind == SKR_KIND_STRUCT && field->type == NULL)
        return "the description has no type";
    if (kind == SKR_KIND_OWN && field->c_type == NULL)
        return "the description has no C type";
    bool is_right = kind == SKR_KIND_STRUCT ? size == field->type->size
                    : kind == SKR_KIND_CHARS || kind == SKR_KIND_OWN ? size > 0
                    : kind == SKR_KIND_SIGNED || kind == SKR_KIND_UNSIGNED
                        ? size == 1 || size == 2 || size == 4 || size == 8
                        : size == sizes[kind];
    return is_right ? NULL : "the description has another size than its type";
}

static bool
is_inside(const struct skr_type *type, size_t offset, size_t size)
{
    return offset <= type->size && size <= type->size - offset;
}

static const char *
find_mistake(const struct skr_type *type, const struct skr_field *field)
{
    if (field->name == NULL)
        return "the description has no name";
    size_t size = field->is_array ? sizeof(void *) : field->size;
    if (!is_inside(type, field->offset, size) ||
        (field->is_array &&
         !is_inside(type, field->count_offset, sizeof(size_t))) ||
        (field->presence == SKR_ABSENT_IF_FALSE &&
         !is_inside(type, field->present_offset, sizeof(bool))))
        return "the description points outside of its struct";
    if (field->presence == SKR_ABSENT_IF_NULL && !field->is_array &&
        field->kind != SKR_KIND_TEXT)
        return "the description has SKR_OPTIONAL, but there is no pointer "
               "that could be NULL: SKR_OPTIONAL_IF is needed";
    return find_size_mistake(field);
}

// SKR_INVALID when a field cannot be part of the type, or contradicts itself.
static enum skr_code
check_field(const struct place *place, const struct skr_type *type,
            const struct skr_field *field, struct skr_error *error)
{
    const char *mistake = find_mistake(type, field);
    if (mistake == NULL)
        return SKR_OK;
    return fail_at(place, error, SKR_INVALID, "%s", mistake);
}

struct encoder {
    struct skr_json_writer writer;
    struct skr_error *error;  // never NULL
};

static enum skr_code
encode_value(struct encoder *encoder, const struct place *place,
             const struct skr_field *field, const void *value);

// What the writer found wrong gets the place where it happened.
static enum skr_code
check_writer(struct encoder *encoder, const struct place *place)
{
    if (encoder->writer.error.code == SKR_OK)
        return SKR_OK;
    *encoder->error = encoder->writer.error;
    return prefix_place(place, encoder->error);
}

// A codec is the application's code: what it wrote is read back before it
// becomes part of a message.
static enum skr_code
check_codec_output(struct encoder *encoder, const struct place *place,
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
    return fail_at(place, encoder->error, SKR_INVALID,
                   "its codec did not write one JSON value");
}

static enum skr_code
encode_by_codec(struct encoder *encoder, const struct place *place,
                const struct skr_codec *codec, const struct skr_field *field,
                const void *value)
{
    skr_json_write_separator(&encoder->writer);
    size_t start = encoder->writer.text.size;
    skr_error_clear(encoder->error);
    enum skr_code code =
        codec->encode(codec, field, value, &encoder->writer, encoder->error);
    if (code != SKR_OK)
        return fail_codec(place, code, encoder->error);
    code = check_writer(encoder, place);
    if (code == SKR_OK)
        code = check_codec_output(encoder, place, start);
    encoder->writer.needs_comma = true;
    return code;
}

// Where a number of that size stands among the bytes of a larger one.
static void *
low_bytes(uint64_t *bits, size_t size)
{
    bool is_little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    return (unsigned char *)bits + (is_little ? 0 : sizeof(*bits) - size);
}

static void
write_integer(struct skr_json_writer *writer, const void *value, size_t size,
              bool is_signed)
{
    uint64_t bits = 0, sign = UINT64_C(1) << (8 * size - 1);
    memcpy(low_bytes(&bits, size), value, size);
    if (is_signed)
        skr_json_write_signed(writer, (int64_t)((bits ^ sign) - sign));
    else
        skr_json_write_unsigned(writer, bits);
}

static enum skr_code
encode_text(struct encoder *encoder, const struct place *place,
            const void *value)
{
    const char *text;
    memcpy(&text, value, sizeof(text));
    if (text == NULL)
        return fail_at(place, encoder->error, SKR_INVALID,
                       "text is needed, not NULL");
    skr_json_write_text(&encoder->writer, text, strlen(text));
    return check_writer(encoder, place);
}

static enum skr_code
encode_chars(struct encoder *encoder, const struct place *place,
             const struct skr_field *field, const void *value)
{
    const char *text = value;
    const char *end = memchr(text, '\0', field->size);
    if (end == NULL)
        return fail_at(place, encoder->error, SKR_INVALID,
                       "no terminating zero in char[%zu]", field->size);
    skr_json_write_text(&encoder->writer, text, (size_t)(end - text));
    return check_writer(encoder, place);
}

static enum skr_code
encode_time(struct encoder *encoder, const struct place *place,
            const void *value)
{
    int64_t time_us;
    memcpy(&time_us, value, sizeof(time_us));
    char text[SKR_TIME_TEXT_SIZE];
    if (!skr_time_format(time_us, text))
        return fail_at(place, encoder->error, SKR_INVALID,
                       "the time is not in the years 0000 to 9999");
    skr_json_write_text(&encoder->writer, text, strlen(text));
    return SKR_OK;
}

static enum skr_code
encode_enum(struct encoder *encoder, const struct place *place,
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
    return fail_at(place, encoder->error, SKR_INVALID,
                   "%d is not in its table of names", number);
}

static enum skr_code
check_depth(struct encoder *encoder, const struct place *place)
{
    if (place->depth < SKR_TYPED_DEPTH)
        return SKR_OK;
    return fail_at(place, encoder->error, SKR_INVALID,
                   "nested deeper than %d levels", SKR_TYPED_DEPTH);
}

static enum skr_code
encode_array(struct encoder *encoder, const struct place *place,
             const struct skr_field *field, const char *elements, size_t count)
{
    if (elements == NULL && count > 0)
        return fail_at(place, encoder->error, SKR_INVALID,
                       "%zu elements are needed, not NULL", count);
    enum skr_code code = check_depth(encoder, place);
    if (code != SKR_OK)
        return code;
    skr_json_begin_array(&encoder->writer);
    for (size_t i = 0; i < count; i++) {
        struct place here = {
            .outer = place, .index = i, .depth = place->depth + 1};
        code = encode_value(encoder, &here, field, elements + i * field->size);
        if (code != SKR_OK)
            return code;
    }
    skr_json_end_array(&encoder->writer);
    return SKR_OK;
}

static enum skr_code
encode_field(struct encoder *encoder, const struct place *place,
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
encode_struct(struct encoder *encoder, const struct place *place,
              const struct skr_type *type, const void *value)
{
    enum skr_code code = check_depth(encoder, place);
    if (code != SKR_OK)
        return code;
    skr_json_begin_object(&encoder->writer);
    for (size_t i = 0; i < type->field_count; i++) {
        const struct skr_field *field = &type->fields[i];
        struct place here = {.outer = place,
                             .name = field->name,
                             .depth = place->depth + 1,
                             .codecs = type->codecs};
        code = check_field(&here, type, field, encoder->error);
        if (code == SKR_OK)
            code = encode_field(encoder, &here, field, value);
        if (code != SKR_OK)
            return code;
    }
    skr_json_end_object(&encoder->writer);
    return SKR_OK;
}

static enum skr_code
encode_built_in(struct encoder *encoder, const struct place *place,
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
    case SKR_KIND_UNSIGNED:
        write_integer(writer, value, field->size,
                      field->kind == SKR_KIND_SIGNED);
        break;
    case SKR_KIND_DOUBLE:
        memcpy(&number, value, sizeof(number));
        skr_json_write_double(writer, number);
        break;
    case SKR_KIND_BOOLEAN:
        memcpy(&truth, value, sizeof(truth));
        skr_json_write_boolean(writer, truth);
        break;
    case SKR_KIND_UUID:
        memcpy(&id, value, sizeof(id));
        skr_id_format(id, id_text);
        skr_json_write_text(writer, id_text, strlen(id_text));
        break;
    case SKR_KIND_TIME: return encode_time(encoder, place, value);
    case SKR_KIND_ENUM: return encode_enum(encoder, place, field, value);
    case SKR_KIND_STRUCT:
        return encode_struct(encoder, place, field->type, value);
    case SKR_KIND_OWN:
        return fail_at(place, encoder->error, SKR_INVALID, "no codec writes %s",
                       field->c_type);
    }
    return check_writer(encoder, place);
}

static enum skr_code
encode_value(struct encoder *encoder, const struct place *place,
             const struct skr_field *field, const void *value)
{
    const struct skr_codec *codec = find_codec(place, field, ENCODING);
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
    struct place top = {.codecs = codecs};
    struct skr_field whole = {
        .kind = SKR_KIND_STRUCT, .size = type->size, .type = type};
    enum skr_code code = encode_value(&encoder, &top, &whole, value);
    if (code != SKR_OK) {
        skr_text_fini(&encoder.writer.text);
        return code;
    }
    size_t written = encoder.writer.text.size;
    char *taken = skr_text_take(&encoder.writer.text);
    if (taken == NULL)
        return skr_fail_memory(error);
    *json = taken;
    if (size != NULL)
        *size = written;
    return SKR_OK;
}

struct skr_decoded {
    struct skr_arena arena;
};

// A value as it stands in the document, which was scanned: a tree of all of it
// would take many times its size. kind decides what it can be decoded to.
struct piece {
    enum skr_json_kind kind;
    const char *json;  // NULL: the member is missing
    size_t size;
};

struct decoder {
    struct skr_decoded *memory;
    struct skr_arena scratch;  // what is read at the moment
    struct skr_error *error;   // never NULL
};

static enum skr_code
decode_value(struct decoder *decoder, const struct place *place,
             const struct skr_field *field, const struct piece *piece,
             void *value);

// A codec may keep the texts that it reads; the rest lives until the next value
// is read.
static enum skr_code
parse_piece(struct decoder *decoder, const struct piece *piece, bool is_kept,
            struct skr_json **json)
{
    struct skr_arena *scratch = &decoder->scratch;
    skr_arena_reset(scratch);
    return skr_json_parse(scratch, is_kept ? &decoder->memory->arena : scratch,
                          piece->json, piece->size, json, decoder->error);
}

static enum skr_code
fail_kind(const struct place *place, const struct piece *piece,
          const char *needed, struct skr_error *error)
{
    const struct skr_json json = {.kind = piece->kind};
    skr_json_fail_kind(&json, needed, error);
    return prefix_place(place, error);
}

void *
skr_decoded_take(struct skr_decoded *memory, size_t size)
{
    void *taken = skr_arena_take(&memory->arena, size);
    if (taken != NULL)
        memset(taken, 0, size);
    return taken;
}

void
skr_decoded_free(struct skr_decoded *memory)
{
    if (memory == NULL)
        return;
    skr_arena_fini(&memory->arena);
    free(memory);
}

static enum skr_code
decode_chars(struct decoder *decoder, const struct skr_field *field,
             const char *text, size_t size, void *value)
{
    if (size >= field->size)
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "%zu bytes of text do not fit into char[%zu]", size,
                        field->size);
    memcpy(value, text, size + 1);
    return SKR_OK;
}

static enum skr_code
decode_integer(struct decoder *decoder, const struct skr_field *field,
               const struct skr_json *json, void *value)
{
    bool is_signed = field->kind == SKR_KIND_SIGNED;
    uint64_t most = UINT64_MAX >> (64 - 8 * field->size + is_signed);
    uint64_t least = is_signed ? most + 1 : 0;
    struct skr_whole whole;
    enum skr_code code =
        skr_json_read_whole(json, least, most, &whole, decoder->error);
    if (code != SKR_OK)
        return code;
    if (whole.is_negative)
        whole.magnitude = 0 - whole.magnitude;
    memcpy(value, low_bytes(&whole.magnitude, field->size), field->size);
    return SKR_OK;
}

static enum skr_code
decode_uuid(struct decoder *decoder, const char *text, void *value)
{
    struct skr_id id;
    if (skr_id_parse(text, &id, NULL) != SKR_OK)
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a UUID is needed");
    memcpy(value, &id, sizeof(id));
    return SKR_OK;
}

static enum skr_code
decode_time(struct decoder *decoder, const char *text, void *value)
{
    int64_t time_us;
    if (!skr_time_parse(text, &time_us))
        return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a time such as 2025-10-08T13:30:00+00:00 is needed");
    memcpy(value, &time_us, sizeof(time_us));
    return SKR_OK;
}

static enum skr_code
decode_enum(struct decoder *decoder, const struct skr_field *field,
            const char *text, void *value)
{
    char names[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < field->name_count; i++) {
        if (strcmp(field->names[i].name, text) == 0) {
            memcpy(value, &field->names[i].value, sizeof(int));
            return SKR_OK;
        }
        int length = snprintf(names + used, sizeof(names) - used, "%s%s",
                              i == 0 ? "" : ", ", field->names[i].name);
        if (length > 0 && (size_t)length < sizeof(names) - used)
            used += (size_t)length;
        else
            used = sizeof(names) - 1;
    }
    return skr_fail(decoder->error, SKR_MALFORMED, SKR_GIVE_UP,
                    "one of %s is needed", names);
}

static enum skr_code
count_element(void *user, const struct skr_json *child, struct skr_error *error)
{
    size_t *count = user;
    (void)child;
    (void)error;
    (*count)++;
    return SKR_OK;
}

struct elements {
    struct decoder *decoder;
    const struct place *place;
    const struct skr_field *field;
    char *values;
    size_t index;  // of the next
};

static enum skr_code
decode_element(void *user, const struct skr_json *child,
               struct skr_error *error)
{
    struct elements *elements = user;
    const struct skr_field *field = elements->field;
    const struct piece piece = {child->kind, child->text, child->text_size};
    struct place here = {.outer = elements->place,
                         .index = elements->index,
                         .depth = elements->place->depth + 1};
    (void)error;  // the decoder's
    return decode_value(elements->decoder, &here, field, &piece,
                        elements->values + elements->index++ * field->size);
}

static enum skr_code
decode_array(struct decoder *decoder, const struct place *place,
             const struct skr_field *field, const struct piece *piece,
             char *value)
{
    size_t count = 0;
    enum skr_json_kind kind;
    if (piece->kind != SKR_JSON_ARRAY)
        return fail_kind(place, piece, "an array", decoder->error);
    enum skr_code code = skr_json_walk(
        &(struct skr_json_walker){.take = count_element, .user = &count},
        piece->json, piece->size, &kind, decoder->error);
    if (code != SKR_OK)
        return code;
    if (count > SIZE_MAX / field->size)
        return skr_fail_memory(decoder->error);
    struct elements elements = {
        .decoder = decoder, .place = place, .field = field};
    elements.values = skr_decoded_take(decoder->memory, count * field->size);
    if (elements.values == NULL)
        return skr_fail_memory(decoder->error);
    code = skr_json_walk(
        &(struct skr_json_walker){.take = decode_element, .user = &elements},
        piece->json, piece->size, &kind, decoder->error);
    if (code != SKR_OK)
        return code;
    memcpy(value + field->offset, &elements.values, sizeof(elements.values));
    memcpy(value + field->count_offset, &count, sizeof(count));
    return SKR_OK;
}

static enum skr_code
decode_field(struct decoder *decoder, const struct place *place,
             const struct skr_field *field, const struct piece *piece,
             char *value)
{
    if (field->presence != SKR_REQUIRED &&
        (piece->json == NULL || piece->kind == SKR_JSON_NULL))
        return SKR_OK;
    if (piece->json == NULL)
        return fail_at(place, decoder->error, SKR_MALFORMED, "is missing");
    const bool is_present = true;
    if (field->presence == SKR_ABSENT_IF_FALSE)
        memcpy(value + field->present_offset, &is_present, sizeof(is_present));
    if (field->is_array)
        return decode_array(decoder, place, field, piece, value);
    return decode_value(decoder, place, field, piece, value + field->offset);
}

// The members that a type asks for, one for each of its fields.
struct members {
    const struct skr_type *type;
    struct piece *pieces;
};

// Of those with one name the last counts.
static enum skr_code
note_member(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct members *members = user;
    (void)error;
    for (size_t i = 0; i < members->type->field_count; i++)
        if (skr_json_has_name(child, members->type->fields[i].name))
            members->pieces[i] =
                (struct piece){child->kind, child->text, child->text_size};
    return SKR_OK;
}

static enum skr_code
decode_fields(struct decoder *decoder, const struct place *place,
              const struct members *members, void *value)
{
    const struct skr_type *type = members->type;
    for (size_t i = 0; i < type->field_count; i++) {
        const struct skr_field *field = &type->fields[i];
        struct place here = {.outer = place,
                             .name = field->name,
                             .depth = place->depth + 1,
                             .codecs = type->codecs};
        enum skr_code code = check_field(&here, type, field, decoder->error);
        if (code == SKR_OK)
            code =
                decode_field(decoder, &here, field, &members->pieces[i], value);
        if (code != SKR_OK)
            return code;
    }
    return SKR_OK;
}

static enum skr_code
decode_struct(struct decoder *decoder, const struct place *place,
              const struct skr_type *type, const struct piece *piece,
              void *value)
{
    enum { USUAL_FIELDS = 32 };
    struct piece usual[USUAL_FIELDS] = {{.json = NULL}};
    struct members members = {type, usual};
    enum skr_json_kind kind;
    if (piece->kind != SKR_JSON_OBJECT)
        return fail_kind(place, piece, "an object", decoder->error);
    if (type->field_count > USUAL_FIELDS)
        members.pieces = calloc(type->field_count, sizeof(*members.pieces));
    if (members.pieces == NULL)
        return skr_fail_memory(decoder->error);
    enum skr_code code = skr_json_walk(
        &(struct skr_json_walker){.take = note_member, .user = &members},
        piece->json, piece->size, &kind, decoder->error);
    if (code == SKR_OK)
        code = decode_fields(decoder, place, &members, value);
    if (members.pieces != usual)
        free(members.pieces);
    return code;
}

static enum skr_code
decode_scalar(struct decoder *decoder, const struct skr_field *field,
              const struct skr_json *json, void *value)
{
    const char *text = NULL;
    size_t size = 0;
    bool is_text = field->kind == SKR_KIND_TEXT ||
                   field->kind == SKR_KIND_CHARS ||
                   field->kind == SKR_KIND_UUID ||
                   field->kind == SKR_KIND_TIME || field->kind == SKR_KIND_ENUM;
    enum skr_code code =
        is_text ? skr_json_read_text(json, &text, &size, decoder->error)
                : SKR_OK;
    if (code != SKR_OK)
        return code;
    switch (field->kind) {
    case SKR_KIND_TEXT:
        // What was read lies where the next text will be read.
        text = skr_arena_text(&decoder->memory->arena, text, size);
        if (text == NULL)
            return skr_fail_memory(decoder->error);
        memcpy(value, &text, sizeof(text));
        return SKR_OK;
    case SKR_KIND_CHARS: return decode_chars(decoder, field, text, size, value);
    case SKR_KIND_SIGNED:
    case SKR_KIND_UNSIGNED: return decode_integer(decoder, field, json, value);
    case SKR_KIND_DOUBLE:
        return skr_json_read_double(json, value, decoder->error);
    case SKR_KIND_BOOLEAN:
        return skr_json_read_boolean(json, value, decoder->error);
    case SKR_KIND_UUID: return decode_uuid(decoder, text, value);
    case SKR_KIND_TIME: return decode_time(decoder, text, value);
    case SKR_KIND_ENUM: return decode_enum(decoder, field, text, value);
    case SKR_KIND_STRUCT: break;
    case SKR_KIND_OWN:
        return skr_fail(decoder->error, SKR_INVALID, SKR_GIVE_UP,
                        "no codec reads %s", field->c_type);
    }
    abort();
}

static enum skr_code
decode_value(struct decoder *decoder, const struct place *place,
             const struct skr_field *field, const struct piece *piece,
             void *value)
{
    struct skr_json *json = NULL;
    const struct skr_codec *codec = find_codec(place, field, DECODING);
    if (codec == NULL && field->kind == SKR_KIND_STRUCT)
        return decode_struct(decoder, place, field->type, piece, value);
    // Of what has children only a codec looks at more than the kind.
    struct skr_json whole = {.kind = piece->kind};
    bool is_large =
        piece->kind == SKR_JSON_ARRAY || piece->kind == SKR_JSON_OBJECT;
    enum skr_code code = SKR_OK;
    if (codec == NULL && is_large)
        json = &whole;
    else
        code = parse_piece(decoder, piece, codec != NULL, &json);
    if (code == SKR_OK && codec == NULL) {
        code = decode_scalar(decoder, field, json, value);
    } else if (code == SKR_OK) {
        skr_error_clear(decoder->error);
        code = codec->decode(codec, field, json, value, decoder->memory,
                             decoder->error);
    }
    if (code == SKR_OK)
        return SKR_OK;
    return fail_codec(place, code, decoder->error);
}

// value is written only at the very end, when nothing can fail any more.
static enum skr_code
decode_document(struct decoder *decoder, const struct skr_type *type,
                const struct skr_encoded *encoded, void *value)
{
    struct piece piece = {.json = encoded->size == 0 ? "" : encoded->json,
                          .size = encoded->size};
    enum skr_code code =
        skr_json_scan(piece.json, piece.size, 0, &piece.kind, decoder->error);
    if (code != SKR_OK)
        return code;
    void *scratch = skr_decoded_take(decoder->memory, type->size);
    if (scratch == NULL)
        return skr_fail_memory(decoder->error);
    struct place top = {.codecs = encoded->codecs};
    struct skr_field whole = {
        .kind = SKR_KIND_STRUCT, .size = type->size, .type = type};
    code = decode_value(decoder, &top, &whole, &piece, scratch);
    if (code != SKR_OK)
        return code;
    memcpy(value, scratch, type->size);
    return SKR_OK;
}

enum skr_code
skr_decode(const struct skr_type *type, const struct skr_encoded *encoded,
           void *value, struct skr_decoded **memory, struct skr_error *error)
{
    struct skr_error unwanted;
    struct skr_decoded *decoded = calloc(1, sizeof(*decoded));
    if (decoded == NULL)
        return skr_fail_memory(error);
    struct decoder decoder = {.memory = decoded,
                              .error = error == NULL ? &unwanted : error};
    enum skr_code code = decode_document(&decoder, type, encoded, value);
    skr_arena_fini(&decoder.scratch);
    if (code != SKR_OK) {
        skr_decoded_free(decoded);
        return code;
    }
    *memory = decoded;
    return SKR_OK;
}
