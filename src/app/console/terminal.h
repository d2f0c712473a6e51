// SPDX-License-Identifier: MIT
// A terminal: its size, its colours, and text that fits it and cannot steer it.

#ifndef SKR_APP_CONSOLE_TERMINAL_H
#define SKR_APP_CONSOLE_TERMINAL_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Of the terminal that out is; 0: it is none.
size_t skr_terminal_width(FILE *out);

// Whether there are colours: never in a file or a pipe, where TERM is dumb, or
// where NO_COLOR is set.
bool skr_colour_is_wanted(int fd);

// What begins the colour of a level, and bold; what ends both. "" where nothing
// is to be seen of it.
const char *skr_colour_of(bool is_wanted, enum skr_log_level level);
const char *skr_colour_bold(bool is_wanted);
const char *skr_colour_end(bool is_wanted);

// Characters of a text, each taken for one column; and how many bytes the first
// of these have.
size_t skr_terminal_length(const char *text);
size_t skr_terminal_bytes(const char *text, size_t length);

// Draws lines of text in the place of what the terminal shows. What does not
// fit is left out, and how many lines of it is said in the last one.
void skr_terminal_draw(const char *text, FILE *out);

// Prints text from outside so that it cannot steer a terminal; line breaks are
// kept where it may have several lines.
void
skr_print_plain(const char *text, size_t size, bool keeps_lines, FILE *out);

#endif
