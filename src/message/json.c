// SPDX-License-Identifier: MIT
// Asking a parsed JSON value for what it holds.

#include "message/json.h"

#include "base/error.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum skr_json_kind
skr_json_kind(const struct skr_json *json)
{
    return json->kind;
}

static const char *
kind_text(enum skr_json_kind kind)
{
    switch (kind) {
    case SKR_JSON_NULL: return "null";
    case SKR_JSON_BOOLEAN: return "a boolean";
    case SKR_JSON_NUMBER: return "a number";
    case SKR_JSON_TEXT: return "text";
    case SKR_JSON_ARRAY: return "an array";
    case SKR_JSON_OBJECT: return "an object";
    }
    abort();
}

enum skr_code
skr_json_fail_kind(const struct skr_json *json, const char *needed,
                   struct skr_error *error)
{
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP, "%s is needed, not %s",
                    needed, kind_text(json->kind));
}

enum skr_code
skr_json_read_boolean(const struct skr_json *json, bool *value,
                      struct skr_error *error)
{
    if (json->kind != SKR_JSON_BOOLEAN)
        return skr_json_fail_kind(json, "a boolean", error);
    *value = json->truth;
    return SKR_OK;
}

// False when it has a fraction or an exponent, or over 64 bits.
static bool
parse_whole(const char *digits, struct skr_whole *whole)
{
    whole->is_negative = digits[0] == '-';
    whole->magnitude = 0;
    for (const char *at = digits + whole->is_negative; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return false;
        uint64_t digit = (uint64_t)(*at - '0');
        if (whole->magnitude > (UINT64_MAX - digit) / 10)
            return false;
        whole->magnitude = whole->magnitude * 10 + digit;
    }
    return true;
}

enum skr_code
skr_json_read_whole(const struct skr_json *json, uint64_t least, uint64_t most,
                    struct skr_whole *whole, struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a whole number", error);
    if (!parse_whole(json->text, whole) ||
        whole->magnitude > (whole->is_negative ? least : most))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a whole number from %s%" PRIu64 " to %" PRIu64
                        " is needed",
                        least == 0 ? "" : "-", least, most);
    return SKR_OK;
}

enum skr_code
skr_json_read_signed(const struct skr_json *json, int64_t *value,
                     struct skr_error *error)
{
    struct skr_whole whole = {0};
    enum skr_code code = skr_json_read_whole(
        json, (uint64_t)INT64_MAX + 1, (uint64_t)INT64_MAX, &whole, error);
    if (code != SKR_OK)
        return code;
    *value =
        (int64_t)(whole.is_negative ? 0 - whole.magnitude : whole.magnitude);
    return SKR_OK;
}

enum skr_code
skr_json_read_unsigned(const struct skr_json *json, uint64_t *value,
                       struct skr_error *error)
{
    struct skr_whole whole = {0};
    enum skr_code code =
        skr_json_read_whole(json, 0, UINT64_MAX, &whole, error);
    if (code != SKR_OK)
        return code;
    *value = whole.magnitude;
    return SKR_OK;
}

// strtod() and printf() use the decimal point of the application's locale.
// One more call tells it without asking a function that is not thread-safe.
static size_t
find_decimal_point(char point[16])
{
    char half[16];
    int length = snprintf(half, sizeof(half), "%.1f", 0.5);
    size_t size = length > 2 ? (size_t)length - 2 : 0;
    memcpy(point, half + 1, size);
    return size;
}

// A copy of the digits with the locale's decimal point; the caller frees it.
static char *
localize(const char *digits, const char *point, size_t point_size)
{
    struct skr_text copy = {0};
    const char *dot = strchr(digits, '.');
    if (dot == NULL)
        dot = digits + strlen(digits);
    skr_text_add(&copy, digits, (size_t)(dot - digits));
    if (*dot == '.') {
        skr_text_add(&copy, point, point_size);
        skr_text_add_string(&copy, dot + 1);
    }
    return skr_text_take(&copy);
}

enum skr_code
skr_json_read_double(const struct skr_json *json, double *value,
                     struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a number", error);
    char point[16];
    size_t point_size = find_decimal_point(point);
    double number;
    if (point_size == 1 && point[0] == '.') {
        number = strtod(json->text, NULL);
    } else {
        char *localized = localize(json->text, point, point_size);
        if (localized == NULL)
            return skr_fail_memory(error);
        number = strtod(localized, NULL);
        free(localized);
    }
    if (!isfinite(number))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the number is too large");
    *value = number;
    return SKR_OK;
}

enum skr_code
skr_json_read_text(const struct skr_json *json, const char **text, size_t *size,
                   struct skr_error *error)
{
    if (json->kind != SKR_JSON_TEXT)
        return skr_json_fail_kind(json, "text", error);
    if (memchr(json->text, '\0', json->text_size) != NULL)
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the text has a zero character in it");
    *text = json->text;
    *size = json->text_size;
    return SKR_OK;
}

enum skr_code
skr_json_read_digits(const struct skr_json *json, const char **digits,
                     struct skr_error *error)
{
    if (json->kind != SKR_JSON_NUMBER)
        return skr_json_fail_kind(json, "a number", error);
    *digits = json->text;
    return SKR_OK;
}

const struct skr_json *
skr_json_find(const struct skr_json *json, const char *name)
{
    const struct skr_json *found = NULL;
    if (json->kind != SKR_JSON_OBJECT)
        return NULL;
    size_t size = strlen(name);
    for (const struct skr_json *at = json->first; at != NULL; at = at->next)
        if (at->name_size == size && memcmp(at->name, name, size) == 0)
            found = at;
    return found;
}

const struct skr_json *
skr_json_first(const struct skr_json *json)
{
    return json->first;
}

const struct skr_json *
skr_json_next(const struct skr_json *json)
{
    return json->next;
}

const char *
skr_json_name(const struct skr_json *json)
{
    return json->name;
}

// Below DBL_MIN fewer than 15 digits may do; above it, what has a short form
// shows it at 15, since %g drops trailing zeros.
static void
format_shortest(double value, char *text, size_t size)
{
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

bool
skr_number_format(double value, char text[SKR_NUMBER_SIZE])
{
    if (!isfinite(value))
        return false;
    char localized[SKR_NUMBER_SIZE];
    format_shortest(value, localized, sizeof(localized));
    char point[16];
    size_t point_size = find_decimal_point(point);
    char *out = text;
    bool is_plain = true;
    for (const char *at = localized; *at != '\0'; at++) {
        if (point_size > 0 && strncmp(at, point, point_size) == 0) {
            *out++ = '.';
            at += point_size - 1;
            is_plain = false;
            continue;
        }
        *out++ = *at;
        if (*at == 'e')
            is_plain = false;
    }
    memcpy(out, is_plain ? ".0" : "", is_plain ? 3 : 1);
    return true;
}
