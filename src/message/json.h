// SPDX-License-Identifier: MIT
// JSON as headers and typed messages read and write it. By hand, since the
// libraries at hand hold integers in 64 signed bits and fail on larger ones
// even in members that are not asked for; here a number keeps its digits until
// a caller wants it in a certain type. And a relay parses headers for every
// row.

#ifndef SKR_MESSAGE_TYPED_JSON_H
#define SKR_MESSAGE_TYPED_JSON_H

#include "base/arena.h"
#include "base/text.h"

#include <skirnir/typed.h>

struct skr_json {
    enum skr_json_kind kind;
    bool truth;        // of a boolean
    const char *name;  // in its object; zero-terminated, may hold zeros
    size_t name_size;
    // Text, or the digits of a number; zero-terminated, text may hold zeros.
    const char *text;
    size_t text_size;
    struct skr_json *first;
    struct skr_json *next;
};

// A tree that borrows nothing from bytes. What its texts say lives in the
// second arena, all else in the first; one may serve as both.
SKR_MUST_CHECK enum skr_code
skr_json_parse(struct skr_arena *nodes, struct skr_arena *texts,
               const char *bytes, size_t size, struct skr_json **json,
               struct skr_error *error);

// Whether the bytes are one JSON value, and of which kind. depth is the number
// of levels that are open around it already. Takes no memory.
SKR_MUST_CHECK enum skr_code
skr_json_scan(const char *bytes, size_t size, size_t depth,
              enum skr_json_kind *kind, struct skr_error *error);

// Hands out the members of an object or the elements of an array, one by one;
// of another value only the kind is told. Names and scalars lie in the arena.
// A child that is an object or an array has its own JSON in text, borrowed from
// bytes and not zero-terminated. So this takes less memory than the bytes have,
// and a little for each child, where a tree may take forty times as much.
// Without an arena it takes none: each child has its own JSON in text, and its
// name is as it stands there, see skr_json_has_name(). What take() returns ends
// the walk unless it is SKR_OK.
typedef enum skr_code
skr_json_child_fn(void *user, const struct skr_json *child,
                  struct skr_error *error);
struct skr_json_walker {
    struct skr_arena *arena;
    skr_json_child_fn *take;
    void *user;
};
SKR_MUST_CHECK enum skr_code
skr_json_walk(const struct skr_json_walker *walker, const char *bytes,
              size_t size, enum skr_json_kind *kind, struct skr_error *error);

// Of a member that was handed out without an arena.
bool skr_json_has_name(const struct skr_json *member, const char *name);

// JSON that was scanned before, as skr_json_write() would write its tree. NULL
// when memory is out.
const char *
skr_json_compact(struct skr_arena *arena, const char *json, size_t size);

// "a number is needed, not text"
enum skr_code skr_json_fail_kind(const struct skr_json *json,
                                 const char *needed, struct skr_error *error);

// A whole number from -least to most; magnitude and sign apart.
struct skr_whole {
    bool is_negative;
    uint64_t magnitude;
};
SKR_MUST_CHECK enum skr_code
skr_json_read_whole(const struct skr_json *json, uint64_t least, uint64_t most,
                    struct skr_whole *whole, struct skr_error *error);

// The first mistake stays in error, the text is of no use then.
struct skr_json_writer {
    struct skr_text text;
    bool needs_comma;
    unsigned indent;         // blanks a level; 0: all in one line
    unsigned depth;          // levels that are open
    struct skr_error error;  // code SKR_OK: none
};

// How many bytes a text has when it is written.
size_t skr_json_quoted_size(const char *bytes, size_t size);

// A member of an object that is text; NULL is null.
void skr_json_write_member(struct skr_json_writer *writer, const char *name,
                           const char *text);

// A whole tree.
void
skr_json_write(struct skr_json_writer *writer, const struct skr_json *json);

// What was written, copied into the arena; NULL after a mistake or when memory
// is out. The writer holds nothing afterwards.
const char *
skr_json_take_text(struct skr_json_writer *writer, struct skr_arena *arena);

// Writes the comma that is due, so that what follows is the value alone.
void skr_json_write_separator(struct skr_json_writer *writer);

enum { SKR_NUMBER_SIZE = 40 };
// False for NaN and infinities, which JSON cannot say.
SKR_MUST_CHECK bool skr_number_format(double value, char text[SKR_NUMBER_SIZE]);

#endif
