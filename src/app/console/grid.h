// SPDX-License-Identifier: MIT
// Tables for people: columns as wide as they have to be, and one line a field
// where the terminal is too narrow for that.

#ifndef SKR_APP_CONSOLE_GRID_H
#define SKR_APP_CONSOLE_GRID_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdio.h>

struct skr_grid_column {
    const char *title;
    bool is_number;  // stands to the right
};

// A zeroed struct with its columns is empty. Memory that is out shows at the
// end: print() says false.
struct skr_grid {
    const struct skr_grid_column *columns;
    size_t column_count;
    struct skr_arena arena;
    const char **cells;
    size_t cell_count, cell_capacity;
    bool broken;
};

// The next cell, from left to right and down. Characters that could steer a
// terminal become blanks.
void skr_grid_add(struct skr_grid *grid, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// width 0: as wide as it is. The last column is cut to fit.
bool skr_grid_print(const struct skr_grid *grid, size_t width, FILE *out);
void skr_grid_fini(struct skr_grid *grid);

// Of the terminal that out is; 0: it is none.
size_t skr_terminal_width(FILE *out);
size_t skr_terminal_height(FILE *out);

// Draws lines of text in the place of what a terminal of that size shows. What
// does not fit is left out, and how many lines of it is said in the last one.
void
skr_terminal_draw(const char *text, size_t width, size_t height, FILE *out);

// Prints text from outside so that it cannot steer a terminal; line breaks are
// kept where it may have several lines.
void
skr_print_plain(const char *text, size_t size, bool keeps_lines, FILE *out);

#endif
