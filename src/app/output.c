// SPDX-License-Identifier: MIT
#include "app/output.h"

#include "base/clock.h"
#include "base/text.h"

#include <string.h>
#include <unistd.h>

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

void
skr_output_log(void *user, enum skr_log_level level, const char *event,
               const struct skr_log_field *fields, size_t count)
{
    const struct skr_output *output = user;
    if (level > output->level)
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
