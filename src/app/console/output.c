// SPDX-License-Identifier: MIT
// Standard output and standard error of the program: opened safely, flushed
// with an error on a full disk, and used as the log of workers.

#include "app/console/output.h"

#include "app/console/terminal.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

void
skr_output_silence(void)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0)
        return;
    fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
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

static bool
is_about_a_message(const struct skr_log_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "message") == 0)
            return true;
    return false;
}

// A log that cannot be written is not worth dying for.
static void
put(const struct skr_output *output, const struct skr_text *line)
{
    if (line->broken)
        return;
    if (output->writer != NULL) {
        skr_log_writer_put(output->writer, line->bytes, line->size);
        return;
    }
    ssize_t written = write(output->fd, line->bytes, line->size);
    (void)written;
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
    skr_log_line_write(&output->form, &line, level, event, fields, count);
    put(output, &line);
    skr_text_fini(&line);
}

struct skr_log
skr_output_as_log(struct skr_output *output)
{
    return (struct skr_log){
        .write = skr_output_log,
        .user = output,
        .each_message = output->each_message && output->level >= SKR_LOG_DEBUG,
    };
}

// What comes from outside may not steer a terminal; it may have several lines.
static void
add_plain(struct skr_text *line, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t control = skr_text_control_size(text + at, size - at);
        bool is_line = text[at] == '\n' || text[at] == '\t';
        skr_text_add(line, control > 0 && !is_line ? " " : text + at, 1);
        at += control > 0 ? control : 1;
    }
}

void
skr_output_say(const struct skr_output *output, enum skr_log_level level,
               const char *format, ...)
{
    bool has_colours = skr_colour_is_wanted(output->fd);
    struct skr_text line = {0};
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    skr_text_add_string(&line, skr_colour_of(has_colours, level));
    if (size >= 0)
        add_plain(&line, text, (size_t)size);
    skr_text_add_string(&line, skr_colour_end(has_colours));
    skr_text_add_string(&line, "\n");
    put(output, &line);
    skr_text_fini(&line);
    free(size >= 0 ? text : NULL);
}

enum skr_code
skr_output_start_writer(struct skr_output *output, struct skr_error *error)
{
    return skr_log_writer_start(output->fd, &output->form, &output->writer,
                                error);
}

void
skr_output_end(const struct skr_output *output)
{
    if (output->writer != NULL)
        skr_log_writer_end(output->writer);
}

void
skr_output_stop_writer(struct skr_output *output)
{
    if (output->writer != NULL)
        skr_log_writer_stop(output->writer);
    output->writer = NULL;
}
