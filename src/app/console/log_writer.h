// SPDX-License-Identifier: MIT
// A thread that writes lines to a descriptor, so that a thread that logs never
// waits for the reader. Lines keep their order. Where the reader is slow they
// are buffered, up to a bound; beyond it the oldest are dropped, and their
// number is told in their place.

#ifndef SKR_APP_CONSOLE_LOG_WRITER_H
#define SKR_APP_CONSOLE_LOG_WRITER_H

#include "app/console/log_line.h"

#include <skirnir/skirnir.h>

enum {
    SKR_LOG_WRITER_BYTES = 1024 * 1024,
    // How long the end of a process waits for what is buffered.
    SKR_LOG_WRITER_END_MS = 2000,
};

struct skr_log_writer;

// The form is that of the line which tells how many are missing.
SKR_MUST_CHECK enum skr_code
skr_log_writer_start(int fd, const struct skr_log_form *form,
                     struct skr_log_writer **writer, struct skr_error *error);
// A line with its end. From any thread; never waits for the descriptor.
void skr_log_writer_put(struct skr_log_writer *writer, const char *line,
                        size_t size);
// Writes what is buffered, while others may go on to log in vain: the process
// is to end. False: the descriptor takes nothing for the time above.
bool skr_log_writer_end(struct skr_log_writer *writer);
// The same, and frees the writer: no other thread logs by then. A descriptor
// that takes nothing is left with the thread that waits for it.
void skr_log_writer_stop(struct skr_log_writer *writer);

#endif
