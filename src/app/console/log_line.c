// SPDX-License-Identifier: MIT
// Formats an event as `time level event key=value` or as one line of JSON.

#include "app/console/log_line.h"

#include "app/console/terminal.h"
#include "base/clock.h"
#include "message/json.h"

#include <stdio.h>
#include <string.h>

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

static bool
is_plain(const char *value)
{
    size_t size = strlen(value), at = 0;
    while (at < size && strchr(" \"=", value[at]) == NULL &&
           skr_text_control_size(value + at, size - at) == 0)
        at++;
    return at > 0 && at == size;
}

// Values with spaces or quotes are quoted; control characters, which could
// forge a line or steer a terminal, become spaces.
static void
add_value(struct skr_text *line, const char *value)
{
    if (is_plain(value)) {
        skr_text_add_string(line, value);
        return;
    }
    skr_text_add_string(line, "\"");
    for (size_t size = strlen(value), at = 0; at < size;) {
        size_t control = skr_text_control_size(value + at, size - at);
        if (value[at] == '"' || value[at] == '\\')
            skr_text_add_string(line, "\\");
        skr_text_add(line, control > 0 ? " " : value + at, 1);
        at += control > 0 ? control : 1;
    }
    skr_text_add_string(line, "\"");
}

// "2026-11-15T02:53:45.123Z"
enum { TIME_SIZE = 32 };

static void
format_now(char text[TIME_SIZE])
{
    int64_t now = skr_clock_wall_us();
    char time[SKR_TIMESTAMP_SIZE];
    skr_clock_timestamp(now, time);
    snprintf(text, TIME_SIZE, "%.10sT%s.%03dZ", time, time + 11,
             (int)(now / 1000 % 1000));
}

static void
write_text(bool has_colours, struct skr_text *line, enum skr_log_level level,
           const char *event, const struct skr_log_field *fields, size_t count)
{
    char time[TIME_SIZE];
    format_now(time);
    skr_text_add_format(line, "%s %s%s%s %s", time,
                        skr_colour_of(has_colours, level), level_name(level),
                        skr_colour_end(has_colours), event);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text != NULL && fields[i].text[0] == '\0')
            continue;
        skr_text_add_format(line, " %s=", fields[i].name);
        if (fields[i].text != NULL)
            add_value(line, fields[i].text);
        else
            skr_text_add_format(line, "%lld", (long long)fields[i].number);
    }
}

static void
write_member(struct skr_json_writer *json, const char *name, const char *text)
{
    size_t size = skr_text_storable_size(text, strlen(text));
    skr_json_write_name(json, name);
    skr_json_write_text(json, text, size);
}

// The fields of the event stand beside its own: none has one of these names.
static void
write_json(const char *event_name, struct skr_text *line,
           enum skr_log_level level, const char *event,
           const struct skr_log_field *fields, size_t count)
{
    struct skr_json_writer json = {.text = *line};
    char time[TIME_SIZE];
    format_now(time);
    skr_json_begin_object(&json);
    write_member(&json, "time", time);
    write_member(&json, "level", level_name(level));
    write_member(&json, event_name, event);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].text != NULL) {
            write_member(&json, fields[i].name, fields[i].text);
        } else {
            skr_json_write_name(&json, fields[i].name);
            skr_json_write_signed(&json, fields[i].number);
        }
    }
    skr_json_end_object(&json);
    *line = json.text;
    line->broken |= json.error.code != SKR_OK;
}

void
skr_log_line_write(const struct skr_log_form *form, struct skr_text *line,
                   enum skr_log_level level, const char *event,
                   const struct skr_log_field *fields, size_t count)
{
    if (form->is_json)
        write_json(form->event_name, line, level, event, fields, count);
    else
        write_text(form->has_colours, line, level, event, fields, count);
    skr_text_add_string(line, "\n");
}
