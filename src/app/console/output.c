// SPDX-License-Identifier: MIT
#include "app/console/output.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

// A write that failed earlier has left no reason behind.
static bool
is_pipe_broken(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

enum skr_code
skr_output_flush(struct skr_error *error)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return SKR_OK;
    int native = errno;
    if (native == EPIPE || is_pipe_broken())
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "the reader of the output is gone");
    const char *reason = native == 0 ? "a write failed" : strerror(native);
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

static bool
is_about_a_message(const struct skr_log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "message") == 0)
            return true;
    return false;
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
write_text(struct skr_text *line, enum skr_log_level level, const char *event,
           const struct skr_log_field *fields, size_t count)
{
    char time[TIME_SIZE];
    format_now(time);
    skr_text_add_format(line, "%s %s %s", time, level_name(level), event);
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
write_json(const struct skr_output *output, struct skr_text *line,
           enum skr_log_level level, const char *event,
           const struct skr_log_field *fields, size_t count)
{
    struct skr_json_writer json = {.text = *line};
    char time[TIME_SIZE];
    format_now(time);
    skr_json_begin_object(&json);
    write_member(&json, "time", time);
    write_member(&json, "level", level_name(level));
    write_member(&json, output->event_name, event);
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
skr_output_log(void *user, enum skr_log_level level, const char *event,
               const struct skr_log_field *fields, size_t count)
{
    const struct skr_output *output = user;
    if (level > output->level ||
        (level == SKR_LOG_DEBUG && !output->each_message &&
         is_about_a_message(fields, count)))
        return;
    struct skr_text line = {0};
    if (output->is_json)
        write_json(output, &line, level, event, fields, count);
    else
        write_text(&line, level, event, fields, count);
    skr_text_add_string(&line, "\n");
    // A log that cannot be written is not worth dying for.
    if (!line.broken && write(output->fd, line.bytes, line.size) < 0)
        line.size = 0;
    skr_text_fini(&line);
}
