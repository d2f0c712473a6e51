// SPDX-License-Identifier: MIT
// Text that grows, and checks of text from outside.

#ifndef SKR_BASE_TEXT_H
#define SKR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SKR_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

// A zeroed struct is empty. An append that finds no memory marks the text as
// broken and later appends do nothing, so that callers check once, at the end.
struct skr_text {
    char *bytes;  // always zero-terminated once something was appended
    size_t size;
    size_t capacity;
    bool broken;
};

// Room for so many bytes more, so that a large text is not copied while it
// grows. False, and the text is broken, when memory is out.
bool skr_text_reserve(struct skr_text *text, size_t more);
void skr_text_add(struct skr_text *text, const char *bytes, size_t size);
void skr_text_add_string(struct skr_text *text, const char *string);
void skr_text_add_format(struct skr_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void skr_text_clear(struct skr_text *text);
void skr_text_fini(struct skr_text *text);

// The string, owned by the caller; NULL if the text is broken. text is empty
// afterwards.
char *skr_text_take(struct skr_text *text);

// Well-formed UTF-8 without a zero byte: what every text column can hold.
bool skr_text_is_storable(const void *bytes, size_t size);
// How many bytes from the start are so: size, if all are.
size_t skr_text_storable_size(const void *bytes, size_t size);
// Adds them with a question mark in place of each byte that is not.
void
skr_text_add_storable(struct skr_text *text, const char *bytes, size_t size);

// Adds what is in the file, or a little more than that many bytes of it. False:
// it cannot be read, as errno says.
bool skr_text_add_file(struct skr_text *text, FILE *file, size_t most);

// Bytes of the control character that the text begins with; 0: it is none.
// U+0080 to U+009F steer terminals too.
size_t skr_text_control_size(const char *text, size_t size);

// A letter or underscore, then letters, digits and underscores, 1 to 63 of
// them: safe to stand in SQL as the name of a table.
bool skr_text_is_identifier(const char *text);

bool skr_text_starts_with(const char *text, const char *prefix);
bool skr_text_ends_with(const char *text, const char *suffix);

bool
skr_text_is_among(const char *word, const char *const *words, size_t count);

// A whole number in decimal digits and nothing else, within bounds.
bool
skr_text_number(const char *text, int64_t least, int64_t most, int64_t *number);

// true, yes, on and 1, or false, no, off and 0, in letters of either case.
// Nothing at all is neither: an empty variable must not switch anything off.
bool skr_text_boolean(const char *text, bool *value);

// The value of a hexadecimal digit in letters of either case; -1: it is none.
int skr_text_hex_digit(char c);

// "9187", or a range such as "9187-9197".
bool skr_text_ports(const char *text, uint16_t *first, uint16_t *last);

// Standard alphabet with padding. NULL when memory is out; caller frees.
char *skr_text_base64(const void *bytes, size_t size);
// Undoes it, into bytes, which has room for size / 4 * 3 of them. False when
// the text is no base64.
bool skr_text_from_base64(const char *text, size_t size, void *bytes,
                          size_t *bytes_size);

#endif
