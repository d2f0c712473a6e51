// SPDX-License-Identifier: MIT
// Fills struct skr_error. Texts are made valid UTF-8 here, once for all
// callers. Then the names of codes, and the version, as the public header
// promises them.

#include "base/error.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Error texts end up in tables and in JSON and may quote what came from
// outside: bytes that are no UTF-8 become question marks, and a character that
// was cut in two by the end of the room goes.
static void
make_storable(struct skr_error *error)
{
    size_t size = strlen(error->text);
    size_t at = skr_text_storable_size(error->text, size);
    while (at < size) {
        if (size == sizeof(error->text) - 1 && size - at < 4) {
            error->text[at] = '\0';
            return;
        }
        error->text[at++] = '?';
        at += skr_text_storable_size(error->text + at, size - at);
    }
}

enum skr_code
skr_fail(struct skr_error *error, enum skr_code code, enum skr_remedy remedy,
         const char *format, ...)
{
    if (error == NULL)
        return code;
    error->code = code;
    error->remedy = remedy;
    error->native[0] = '\0';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    make_storable(error);
    return code;
}

enum skr_code
skr_fail_memory(struct skr_error *error)
{
    return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN, "out of memory");
}

enum skr_code
skr_fail_with(struct skr_error *error, const struct skr_error *reason)
{
    if (error != NULL)
        *error = *reason;
    return reason->code;
}

void
skr_error_prefix(struct skr_error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    char before[sizeof(error->text)];
    memcpy(before, error->text, sizeof(before));
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    size_t room = sizeof(error->text);
    // The return value is looked at because gcc warns of a cut otherwise.
    if (length >= 0 && (size_t)length < room &&
        snprintf(error->text + length, room - (size_t)length, ": %s", before) <
            0)
        error->text[length] = '\0';
    make_storable(error);
}

void
skr_error_advise(struct skr_error *error, const char *advice)
{
    if (error == NULL || advice == NULL)
        return;
    size_t room = sizeof(error->text), length = strlen(error->text);
    size_t most = room - strlen(advice) - sizeof("; ");
    if (length > most)
        length = most;
    snprintf(error->text + length, room - length, "; %s", advice);
    make_storable(error);
}

void
skr_error_set_native(struct skr_error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->native, sizeof(error->native), format, arguments);
    va_end(arguments);
}

void
skr_error_clear(struct skr_error *error)
{
    if (error != NULL)
        *error = (struct skr_error){.code = SKR_OK};
}

bool
skr_error_is_lasting(const struct skr_error *error)
{
    return error->code == SKR_MISSING || error->code == SKR_INVALID ||
           (error->code == SKR_REFUSED && error->remedy == SKR_GIVE_UP);
}

static const struct {
    const char *name;
    const char *text;
} codes[] = {
#define SKR_CODE_ENTRY(name, text) {#name, text},
    SKR_CODES(SKR_CODE_ENTRY)
#undef SKR_CODE_ENTRY
};

const char *
skr_version(void)
{
    return SKR_VERSION;
}

const char *
skr_code_name(enum skr_code code)
{
    return (size_t)code < SKR_COUNT_OF(codes) ? codes[code].name : "UNKNOWN";
}

const char *
skr_code_text(enum skr_code code)
{
    return (size_t)code < SKR_COUNT_OF(codes) ? codes[code].text
                                              : "unknown code";
}
