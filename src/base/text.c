// SPDX-License-Identifier: MIT
// Growing strings, and the checks that text from outside has to pass before it
// is stored or printed: UTF-8, control characters, identifiers, numbers,
// base64.

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool
skr_text_reserve(struct skr_text *text, size_t more)
{
    if (text->broken || more >= SIZE_MAX / 2 - text->size) {
        text->broken = true;
        return false;
    }
    size_t needed = text->size + more + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity * 2 > needed ? text->capacity * 2 : needed;
    if (capacity < 64)
        capacity = 64;
    char *grown = realloc(text->bytes, capacity);
    if (grown == NULL) {
        text->broken = true;
        return false;
    }
    text->bytes = grown;
    text->capacity = capacity;
    return true;
}

void
skr_text_add(struct skr_text *text, const char *bytes, size_t size)
{
    if (!skr_text_reserve(text, size))
        return;
    if (size > 0)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

void
skr_text_add_string(struct skr_text *text, const char *string)
{
    skr_text_add(text, string, strlen(string));
}

void
skr_text_add_format(struct skr_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        text->broken = true;
    else if (skr_text_reserve(text, (size_t)length)) {
        vsnprintf(text->bytes + text->size, (size_t)length + 1, format, again);
        text->size += (size_t)length;
    }
    va_end(again);
}

void
skr_text_clear(struct skr_text *text)
{
    text->size = 0;
    text->broken = false;
    if (text->bytes != NULL)
        text->bytes[0] = '\0';
}

void
skr_text_fini(struct skr_text *text)
{
    free(text->bytes);
    *text = (struct skr_text){0};
}

char *
skr_text_take(struct skr_text *text)
{
    if (text->bytes == NULL)
        skr_text_add(text, "", 0);
    char *taken = text->broken ? NULL : text->bytes;
    if (text->broken)
        free(text->bytes);
    *text = (struct skr_text){0};
    return taken;
}

// The number of bytes of the character at p, or 0 if it is not well-formed
// (overlong forms, surrogates and values past U+10FFFF are not).
static size_t
character_size(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return p[0] == 0 ? 0 : 1;
    size_t size = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < size)
        return 0;
    unsigned char least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < least || p[1] > most)
        return 0;
    for (size_t i = 2; i < size; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    return size;
}

// Eight bytes at once, as nearly all text is ASCII: none has its high bit set,
// and none is zero (only a zero borrows from it when one is taken from each).
static bool
is_plain(const unsigned char *p)
{
    uint64_t eight;
    memcpy(&eight, p, sizeof(eight));
    return ((eight | (eight - 0x0101010101010101)) & 0x8080808080808080) == 0;
}

size_t
skr_text_storable_size(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    size_t at = 0;
    while (at < size) {
        if (size - at >= 8 && is_plain(p + at)) {
            at += 8;
            continue;
        }
        size_t step = character_size(p + at, size - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

void
skr_text_add_storable(struct skr_text *text, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t good = skr_text_storable_size(bytes + at, size - at);
        skr_text_add(text, bytes + at, good);
        at += good;
        if (at < size)
            skr_text_add_string(text, "?");
        at += at < size;
    }
}

bool
skr_text_is_storable(const void *bytes, size_t size)
{
    return skr_text_storable_size(bytes, size) == size;
}

bool
skr_text_add_file(struct skr_text *text, FILE *file, size_t most)
{
    char chunk[16384];
    size_t got;
    errno = 0;
    while (text->size <= most &&
           (got = fread(chunk, 1, sizeof(chunk), file)) > 0)
        skr_text_add(text, chunk, got);
    return ferror(file) == 0;
}

size_t
skr_text_control_size(const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (size > 0 && (bytes[0] < ' ' || bytes[0] == 0x7f))
        return 1;
    bool is_c1 =
        size > 1 && bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] < 0xa0;
    return is_c1 ? 2 : 0;
}

bool
skr_text_is_identifier(const char *text)
{
    size_t length = text == NULL
                        ? 0
                        : strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return length > 0 && length <= 63 && text[length] == '\0' &&
           !(text[0] >= '0' && text[0] <= '9');
}

bool
skr_text_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool
skr_text_ends_with(const char *text, const char *suffix)
{
    size_t text_size = strlen(text), suffix_size = strlen(suffix);
    return text_size >= suffix_size &&
           strcmp(text + text_size - suffix_size, suffix) == 0;
}

bool
skr_text_is_among(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

bool
skr_text_number(const char *text, int64_t least, int64_t most, int64_t *number)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0 || parsed < least || parsed > most)
        return false;
    *number = parsed;
    return true;
}

bool
skr_text_boolean(const char *text, bool *value)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        for (int meaning = 0; meaning < 2; meaning++)
            if (strcasecmp(text, words[i][meaning]) == 0) {
                *value = meaning == 1;
                return true;
            }
    return false;
}

int
skr_text_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool
skr_text_ports(const char *text, uint16_t *first, uint16_t *last)
{
    char start[8];
    size_t size = strcspn(text, "-");
    bool is_range = text[size] == '-';
    int64_t low, high;
    snprintf(start, sizeof(start), "%.*s", (int)size, text);
    if (size >= sizeof(start) ||
        !skr_text_number(start, is_range, UINT16_MAX, &low))
        return false;
    high = low;
    if (is_range && !skr_text_number(text + size + 1, low, UINT16_MAX, &high))
        return false;
    *first = (uint16_t)low;
    *last = (uint16_t)high;
    return true;
}

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *
skr_text_base64(const void *bytes, size_t size)
{
    const unsigned char *in = bytes;
    if (size > SIZE_MAX / 2)
        return NULL;
    char *encoded = malloc((size + 2) / 3 * 4 + 1);
    if (encoded == NULL)
        return NULL;
    char *out = encoded;
    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        uint32_t word = (uint32_t)in[at] << 16 |
                        (left > 1 ? (uint32_t)in[at + 1] << 8 : 0) |
                        (left > 2 ? in[at + 2] : 0);
        *out++ = base64_alphabet[word >> 18];
        *out++ = base64_alphabet[word >> 12 & 63];
        *out++ = left > 1 ? base64_alphabet[word >> 6 & 63] : '=';
        *out++ = left > 2 ? base64_alphabet[word & 63] : '=';
    }
    *out = '\0';
    return encoded;
}

bool
skr_text_from_base64(const char *text, size_t size, void *bytes,
                     size_t *bytes_size)
{
    unsigned char *out = bytes;
    size_t count = 0, padding = 0;
    uint32_t word = 0;
    if (size % 4 != 0)
        return false;
    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    for (size_t at = 0; at < size - padding; at++) {
        const char *place =
            text[at] == '\0' ? NULL : strchr(base64_alphabet, text[at]);
        if (place == NULL)
            return false;
        // Each letter but the first of four completes a byte.
        word = word << 6 | (uint32_t)(place - base64_alphabet);
        if (at % 4 != 0)
            out[count++] = (unsigned char)(word >> (6 - 2 * (at % 4)));
    }
    *bytes_size = count;
    return true;
}
