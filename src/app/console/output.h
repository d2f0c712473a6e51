// SPDX-License-Identifier: MIT
// What the program says: one line an event.

#ifndef SKR_APP_CONSOLE_OUTPUT_H
#define SKR_APP_CONSOLE_OUTPUT_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_output {
    enum skr_log_level level;  // events beyond it are not said
    // Whether details (SKR_LOG_DEBUG) of single messages are said too: those
    // of an event with a field "message".
    bool each_message;
    bool is_json;            // a line is a JSON object
    const char *event_name;  // what the event is called there: "event"
    int fd;
};

// Called first: a standard stream that the caller closed is opened so that
// using it fails. Otherwise the next file opened would take its number, and a
// line of output could end up in a database.
void skr_output_open(void);

// SKR_REFUSED when something that was printed cannot be written, such as on a
// full disk; SKR_STOPPED when its reader went away.
SKR_MUST_CHECK enum skr_code skr_output_flush(struct skr_error *error);

// A skr_log_fn whose user is a struct skr_output. A line is one write, so that
// threads do not mix theirs.
skr_log_fn skr_output_log;

#endif
