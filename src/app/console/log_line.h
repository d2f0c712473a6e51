// SPDX-License-Identifier: MIT
// An event as a line of text.

#ifndef SKR_APP_CONSOLE_LOG_LINE_H
#define SKR_APP_CONSOLE_LOG_LINE_H

#include "base/text.h"

#include <skirnir/skirnir.h>

struct skr_log_form {
    bool is_json;            // a line is a JSON object
    const char *event_name;  // what the event is called there: "event"
    bool has_colours;        // of a line of text: its level
};

// Adds the line, with its end.
void skr_log_line_write(const struct skr_log_form *form, struct skr_text *line,
                        enum skr_log_level level, const char *event,
                        const struct skr_log_field *fields, size_t count);

#endif
