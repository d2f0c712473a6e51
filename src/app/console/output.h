// SPDX-License-Identifier: MIT
// What the program says: one line an event.

#ifndef SKR_APP_CONSOLE_OUTPUT_H
#define SKR_APP_CONSOLE_OUTPUT_H

#include "app/console/log_line.h"
#include "app/console/log_writer.h"
#include "base/log.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_output {
    enum skr_log_level level;  // events beyond it are not said
    // Whether details (SKR_LOG_DEBUG) of single messages are said too: those
    // of an event with a field "message".
    bool each_message;
    struct skr_log_form form;
    int fd;
    // Writes the lines in the place of the threads that log. NULL: they do so
    // themselves, and wait for the reader.
    struct skr_log_writer *writer;
};

// Called first: a standard stream that the caller closed is opened so that
// using it fails. Otherwise the next file opened would take its number, and a
// line of output could end up in a database.
void skr_output_open(void);

// What is printed from now on goes nowhere; what is said still goes to standard
// error.
void skr_output_silence(void);

// SKR_REFUSED when something that was printed cannot be written, such as on a
// full disk; SKR_STOPPED when its reader went away.
SKR_MUST_CHECK enum skr_code skr_output_flush(struct skr_error *error);

// Of what runs for weeks: from now on no thread waits for the reader. Copies
// that are made afterwards share the writer.
SKR_MUST_CHECK enum skr_code
skr_output_start_writer(struct skr_output *output, struct skr_error *error);
// Waits a bounded time for the reader. Harmless where there is no writer.
void skr_output_stop_writer(struct skr_output *output);
// Before _exit(): the same, beside threads that still log.
void skr_output_end(const struct skr_output *output);

// A line for people, whatever the form of events and which of them are said;
// the level is its colour.
void
skr_output_say(const struct skr_output *output, enum skr_log_level level,
               const char *format, ...) __attribute__((format(printf, 3, 4)));

// A skr_log_fn whose user is a struct skr_output. A line is one write, so that
// threads do not mix theirs.
skr_log_fn skr_output_log;
struct skr_log skr_output_as_log(struct skr_output *output);

#endif
