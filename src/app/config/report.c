// SPDX-License-Identifier: MIT
// Reports of mistakes and warnings, and the reader's memory.
#include "app/config/reader.h"

#include "base/error.h"
#include "base/secret.h"
#include "base/url.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_SIZE = 512 };

static __attribute__((format(printf, 4, 0))) void
report(struct skr_config_reader *reader, enum skr_config_severity severity,
       const struct skr_config_place *place, const char *format,
       va_list arguments)
{
    char text[REPORT_SIZE];
    int used = 0;
    if (place->path[0] != '\0')
        used = snprintf(text, sizeof(text), "%s: ", place->path);
    if (used < 0 || (size_t)used >= sizeof(text))
        used = 0;
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    if (reader->listener.report != NULL)
        reader->listener.report(reader->listener.user, severity,
                                reader->config->path, place->line, text);
    reader->mistakes += severity == SKR_CONFIG_MISTAKE;
    if (severity == SKR_CONFIG_WARNING || reader->code != SKR_OK)
        return;
    reader->code = SKR_INVALID;
    if (place->line > 0)
        skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP, "%s:%d: %s",
                 reader->config->path, place->line, text);
    else
        skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP, "%s: %s",
                 reader->config->path, text);
}

bool
skr_config_mistake(struct skr_config_reader *reader,
                   const struct skr_config_place *place, const char *format,
                   ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(reader, SKR_CONFIG_MISTAKE, place, format, arguments);
    va_end(arguments);
    return false;
}

void
skr_config_warn(struct skr_config_reader *reader,
                const struct skr_config_place *place, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(reader, SKR_CONFIG_WARNING, place, format, arguments);
    va_end(arguments);
}

const char *
skr_config_text(struct skr_config_reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *formatted = NULL;
    int length = vasprintf(&formatted, format, arguments);
    va_end(arguments);
    const char *kept = NULL;
    if (length >= 0) {
        kept =
            skr_arena_text(&reader->config->arena, formatted, (size_t)length);
        free(formatted);
    }
    if (kept == NULL)
        reader->out_of_memory = true;
    return kept == NULL ? "" : kept;
}

void *
skr_config_take(struct skr_config_reader *reader, size_t count, size_t size)
{
    void *taken = skr_arena_take(&reader->config->arena, count * size);
    if (taken == NULL)
        reader->out_of_memory = true;
    else
        memset(taken, 0, count * size);
    return taken;
}

const char *
skr_config_excerpt(const char *text, char excerpt[SKR_CONFIG_EXCERPT_SIZE])
{
    // A DSN at the wrong place must not show its password either.
    char *masked = strstr(text, "://") == NULL ? NULL : skr_url_mask(text);
    const char *from = skr_secret_is_key(text) ? "***"
                       : masked == NULL        ? text
                                               : masked;
    bool is_text = skr_text_is_storable(from, strlen(from));
    size_t length = 0;
    for (; from[length] != '\0' && length < SKR_CONFIG_EXCERPT_SIZE - 4;
         length++) {
        unsigned char c = (unsigned char)from[length];
        excerpt[length] = c < ' ' || (c > '~' && !is_text) ? '?' : from[length];
    }
    // Not in the middle of a character.
    while (from[length] != '\0' && length > 0 &&
           ((unsigned char)from[length] & 0xc0) == 0x80)
        length--;
    strcpy(excerpt + length, from[length] == '\0' ? "" : "...");
    free(masked);
    return excerpt;
}
