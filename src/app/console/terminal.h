// SPDX-License-Identifier: MIT
// The size of a terminal, and text that fits it and cannot steer it.

#ifndef SKR_APP_CONSOLE_TERMINAL_H
#define SKR_APP_CONSOLE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Of the terminal that out is; 0: it is none.
size_t skr_terminal_width(FILE *out);
size_t skr_terminal_height(FILE *out);

// Characters of a text, each taken for one column; and how many bytes the first
// of these have.
size_t skr_terminal_length(const char *text);
size_t skr_terminal_bytes(const char *text, size_t length);

// Draws lines of text in the place of what a terminal of that size shows. What
// does not fit is left out, and how many lines of it is said in the last one.
void
skr_terminal_draw(const char *text, size_t width, size_t height, FILE *out);

// Prints text from outside so that it cannot steer a terminal; line breaks are
// kept where it may have several lines.
void
skr_print_plain(const char *text, size_t size, bool keeps_lines, FILE *out);

#endif
