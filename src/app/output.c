// SPDX-License-Identifier: MIT
#include "app/output.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void
skr_output_open(void)
{
    // The wrong way round on purpose: reading from the output fails, and so
    // does writing to the input.
    static const int ways[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < (int)SKR_COUNT_OF(ways); fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", ways[fd]) < 0)
            return;
}

enum skr_code
skr_output_flush(struct skr_error *error)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return SKR_OK;
    const char *reason = errno == 0 ? "a write failed" : strerror(errno);
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "the output cannot be written: %s", reason);
}

static const char *
level_name(enum skr_log_level level)
{
    switch (level) {
    case SKR_LOG_ERROR: return "error";
    case SKR_LOG_WARNING: return "warning";
    case SKR_LOG_INFO: return "info";
    case SKR_LOG_DEBUG: return "debug";
    }
    return "error";
}

// Values with spaces or quotes are quoted; control characters, which could
// forge a line, become spaces.
static void
add_value(struct skr_text *line, const char *value)
{
    bool plain = value[0] != '\0' && strpbrk(value, " \"=\t\r\n") == NULL;
    if (plain) {
        skr_text_add_string(line, value);
        return;
    }
    skr_text_add_string(line, "\"");
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            skr_text_add_string(line, "\\");
        char shown = (unsigned char)*at < ' ' ? ' ' : *at;
        skr_text_add(line, &shown, 1);
    }
    skr_text_add_string(line, "\"");
}

static bool
is_about_a_message(const struct skr_log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "message") == 0)
            return true;
    return false;
}

void
skr_output_log(void *user, enum skr_log_level level, const char *event,
               const struct skr_log_field *fields, size_t count)
{
    const struct skr_output *output = user;
    if (level > output->level ||
        (level == SKR_LOG_DEBUG && !output->each_message &&
         is_about_a_message(fields, count)))
        return;
    int64_t now = skr_clock_wall_us();
    char time[SKR_TIMESTAMP_SIZE];
    skr_clock_timestamp(now, time);
    struct skr_text line = {0};
    skr_text_add_format(&line, "%.10sT%s.%03dZ %s %s", time, time + 11,
                        (int)(now / 1000 % 1000), level_name(level), event);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text != NULL && fields[i].text[0] == '\0')
            continue;
        skr_text_add_format(&line, " %s=", fields[i].name);
        if (fields[i].text != NULL)
            add_value(&line, fields[i].text);
        else
            skr_text_add_format(&line, "%lld", (long long)fields[i].number);
    }
    skr_text_add_string(&line, "\n");
    // A log that cannot be written is not worth dying for.
    if (!line.broken && write(STDERR_FILENO, line.bytes, line.size) < 0)
        line.size = 0;
    skr_text_fini(&line);
}
