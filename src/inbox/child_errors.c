// SPDX-License-Identifier: MIT
// What a child writes to its standard error.

#include "base/error.h"
#include "inbox/child.h"

#include <unistd.h>

// Lines of a child's errors for one message.
enum { MOST_LOGGED = 20 };

static void
log_line(struct skr_child_errors *errors,
         const struct skr_child_options *options)
{
    struct skr_error shown;
    if (errors->size == 0)
        return;
    if (errors->logged++ < MOST_LOGGED) {
        // Makes text of it whatever the bytes are.
        skr_fail(&shown, SKR_OK, SKR_GIVE_UP, "%.*s", (int)errors->size,
                 errors->line);
        skr_log(&options->log, SKR_LOG_WARNING, "child.stderr",
                SKR_LOG_TEXT("name", options->consumer),
                SKR_LOG_TEXT("message", options->message_name),
                SKR_LOG_TEXT("text", shown.text));
    } else {
        errors->dropped += errors->size;
    }
    errors->size = 0;
}

void
skr_child_read_errors(struct skr_child_errors *errors,
                      const struct skr_child_options *options, int *file)
{
    char bytes[4096];
    ssize_t size;
    while ((size = read(*file, bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < size; i++) {
            if (bytes[i] != '\n')
                errors->line[errors->size++] = bytes[i];
            if (bytes[i] == '\n' || errors->size == sizeof(errors->line))
                log_line(errors, options);
        }
    if (size == 0) {
        // Closed, or a wait for more would end at once, again and again.
        close(*file);
        *file = -1;
    }
}

void
skr_child_end_errors(struct skr_child_errors *errors,
                     const struct skr_child_options *options)
{
    log_line(errors, options);
    if (errors->dropped > 0)
        skr_log(&options->log, SKR_LOG_WARNING, "child.stderr_dropped",
                SKR_LOG_TEXT("name", options->consumer),
                SKR_LOG_TEXT("message", options->message_name),
                SKR_LOG_NUMBER("bytes", errors->dropped));
    errors->dropped = 0;
    errors->logged = 0;
}
