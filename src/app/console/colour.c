// SPDX-License-Identifier: MIT
// Decides whether a stream gets colours, and gives the escape sequences.

#include "app/console/colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool
skr_colour_is_wanted(int fd)
{
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (refused != NULL && refused[0] != '\0')
        return false;
    return terminal != NULL && terminal[0] != '\0' &&
           strcmp(terminal, "dumb") != 0 && isatty(fd);
}

const char *
skr_colour_of(bool is_wanted, enum skr_log_level level)
{
    if (!is_wanted)
        return "";
    switch (level) {
    case SKR_LOG_ERROR: return "\033[31m";
    case SKR_LOG_WARNING: return "\033[33m";
    case SKR_LOG_INFO: return "\033[32m";
    case SKR_LOG_DEBUG: return "\033[2m";
    }
    return "";
}

const char *
skr_colour_bold(bool is_wanted)
{
    return is_wanted ? "\033[1m" : "";
}

const char *
skr_colour_end(bool is_wanted)
{
    return is_wanted ? "\033[0m" : "";
}
