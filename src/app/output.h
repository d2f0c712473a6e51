// SPDX-License-Identifier: MIT
// What the program says: one line an event, on standard error.

#ifndef SKR_APP_OUTPUT_H
#define SKR_APP_OUTPUT_H

#include <skirnir/skirnir.h>

struct skr_output {
    enum skr_log_level level;  // events beyond it are not said
};

// A skr_log_fn whose user is a struct skr_output. A line is one write, so that
// threads do not mix theirs.
skr_log_fn skr_output_log;

#endif
