// SPDX-License-Identifier: MIT
// Colours of a terminal: never in a file or a pipe, where TERM is dumb, or
// where NO_COLOR is set.

#ifndef SKR_APP_CONSOLE_COLOUR_H
#define SKR_APP_CONSOLE_COLOUR_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

bool skr_colour_is_wanted(int fd);

// What begins the colour of a level, and bold; what ends both. "" where nothing
// is to be seen of it.
const char *skr_colour_of(bool is_wanted, enum skr_log_level level);
const char *skr_colour_bold(bool is_wanted);
const char *skr_colour_end(bool is_wanted);

#endif
