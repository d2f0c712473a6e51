// SPDX-License-Identifier: MIT
// Widths and cuts of columns, and the screen that `stats --watch` draws again.

#include "app/console/grid.h"

#include "app/console/colour.h"
#include "base/text.h"
#include "base/vec.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { GAP = 2, NARROW_GAP = 1, LEAST_LAST = 12 };

static bool
is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

// Characters, each taken for one column.
static size_t
length_of(const char *text)
{
    size_t length = 0;
    for (; *text != '\0'; text++)
        length += !is_continuation(*text);
    return length;
}

// Bytes of the first `length` characters.
static size_t
bytes_of(const char *text, size_t length)
{
    size_t at = 0;
    while (text[at] != '\0') {
        if (!is_continuation(text[at]) && length-- == 0)
            break;
        at++;
    }
    return at;
}

void
skr_print_plain(const char *text, size_t size, bool keeps_lines, FILE *out)
{
    for (size_t i = 0; i < size;) {
        size_t control = skr_text_control_size(text + i, size - i);
        bool is_line = keeps_lines && (text[i] == '\n' || text[i] == '\t');
        putc(control > 0 && !is_line ? ' ' : text[i], out);
        i += control > 0 ? control : 1;
    }
}

static void
print_cell(const char *text, size_t width, bool is_number, bool is_last,
           FILE *out)
{
    size_t length = length_of(text);
    size_t pad = length < width ? width - length : 0;
    if (is_number)
        fprintf(out, "%*s", (int)pad, "");
    if (length <= width) {
        skr_print_plain(text, strlen(text), false, out);
    } else {
        skr_print_plain(text, bytes_of(text, width - 1), false, out);
        fputs("…", out);
    }
    if (!is_number && !is_last)
        fprintf(out, "%*s", (int)pad, "");
}

void
skr_grid_add(struct skr_grid *grid, const char *format, ...)
{
    if (grid->broken)
        return;
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    const char *kept =
        size < 0 ? NULL : skr_arena_text(&grid->arena, text, (size_t)size);
    if (size >= 0)
        free(text);
    grid->broken =
        kept == NULL ||
        !skr_vec_insert(&grid->cells, &grid->cell_count, &grid->cell_capacity,
                        grid->cell_count, &kept, sizeof(kept));
}

void
skr_grid_fini(struct skr_grid *grid)
{
    free(grid->cells);
    skr_arena_fini(&grid->arena);
    grid->cells = NULL;
    grid->cell_count = grid->cell_capacity = 0;
}

static size_t
column_width(const struct skr_grid *grid, size_t column)
{
    size_t width = length_of(grid->columns[column].title);
    for (size_t i = column; i < grid->cell_count; i += grid->column_count) {
        size_t length = length_of(grid->cells[i]);
        if (length > width)
            width = length;
    }
    return width;
}

static void
print_line(const struct skr_grid *grid, const char *const *cells,
           const size_t *widths, int gap, FILE *out)
{
    for (size_t i = 0; i < grid->column_count; i++) {
        bool is_last = i + 1 == grid->column_count;
        print_cell(cells == NULL ? grid->columns[i].title : cells[i], widths[i],
                   grid->columns[i].is_number, is_last, out);
        if (!is_last)
            fprintf(out, "%*s", gap, "");
    }
    putc('\n', out);
}

// A field a line, a blank line between two rows.
static void
print_narrow(const struct skr_grid *grid, size_t width, FILE *out)
{
    size_t title = 0;
    for (size_t i = 0; i < grid->column_count; i++)
        if (length_of(grid->columns[i].title) > title)
            title = length_of(grid->columns[i].title);
    size_t room = width > title + GAP + 1 ? width - title - GAP : 1;
    for (size_t i = 0; i < grid->cell_count; i++) {
        size_t column = i % grid->column_count;
        if (column == 0 && i > 0)
            putc('\n', out);
        print_cell(grid->columns[column].title, title, false, false, out);
        fprintf(out, "%*s", GAP, "");
        print_cell(grid->cells[i], room, false, true, out);
        putc('\n', out);
    }
}

// Cuts the last column so that all of them fit. False: they cannot.
static bool
fit(const struct skr_grid *grid, size_t *widths, size_t width, size_t gap)
{
    size_t last = grid->column_count - 1, total = last * gap;
    for (size_t i = 0; i < grid->column_count; i++)
        total += widths[i];
    if (width == 0 || total <= width)
        return true;
    size_t over = total - width;
    if (grid->columns[last].is_number || widths[last] <= over ||
        widths[last] - over < LEAST_LAST)
        return false;
    widths[last] -= over;
    return true;
}

bool
skr_grid_print(const struct skr_grid *grid, size_t width, FILE *out)
{
    size_t widths[16] = {0};
    int gap = GAP;
    if (grid->broken || grid->column_count > SKR_COUNT_OF(widths))
        return false;
    for (size_t i = 0; i < grid->column_count; i++)
        widths[i] = column_width(grid, i);
    if (!fit(grid, widths, width, GAP)) {
        gap = NARROW_GAP;
        if (!fit(grid, widths, width, NARROW_GAP)) {
            print_narrow(grid, width, out);
            return true;
        }
    }
    bool is_bold = skr_colour_is_wanted(fileno(out));
    fputs(skr_colour_bold(is_bold), out);
    print_line(grid, NULL, widths, gap, out);
    fputs(skr_colour_end(is_bold), out);
    for (size_t i = 0; i < grid->cell_count; i += grid->column_count)
        print_line(grid, grid->cells + i, widths, gap, out);
    return true;
}

static struct winsize
window_of(FILE *out)
{
    struct winsize window = {.ws_col = 0};
    if (!isatty(fileno(out)))
        return window;
    if (ioctl(fileno(out), TIOCGWINSZ, &window) != 0 || window.ws_col == 0 ||
        window.ws_row == 0)
        window = (struct winsize){.ws_col = 80, .ws_row = 24};
    return window;
}

size_t
skr_terminal_width(FILE *out)
{
    return window_of(out).ws_col;
}

size_t
skr_terminal_height(FILE *out)
{
    return window_of(out).ws_row;
}

static size_t
count_lines(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

// No line is ended but by the next one: the last may be the lowest that there
// is, and an end would move all of them up.
void
skr_terminal_draw(const char *text, size_t width, size_t height, FILE *out)
{
    size_t count = count_lines(text);
    size_t shown = count <= height ? count : height - 1;
    fputs("\033[H", out);
    for (size_t i = 0; i < shown; i++) {
        size_t size = strcspn(text, "\n"), fitting = bytes_of(text, width);
        fputs(i == 0 ? "" : "\n", out);
        skr_print_plain(text, fitting < size ? fitting : size, false, out);
        fputs("\033[K", out);
        text += size + 1;
    }
    if (shown < count)
        fprintf(out, "%s… %zu more\033[K", shown == 0 ? "" : "\n",
                count - shown);
    fputs("\033[J", out);
}
