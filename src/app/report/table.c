// SPDX-License-Identifier: MIT
// A report as a table for people: texts, widths and cuts of columns.

#include "app/report/report.h"

#include "app/console/terminal.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 2, NARROW_GAP = 1, LEAST_LAST = 12, MOST_COLUMNS = 16 };

// What is printed: the columns that are shown, and their texts row by row.
struct table {
    const struct skr_column *columns[MOST_COLUMNS];
    size_t widths[MOST_COLUMNS];
    size_t column_count;
    const char **cells;
    size_t cell_count;
    struct skr_arena arena;
};

static const char *
duration_text(struct skr_arena *arena, int64_t seconds)
{
    static const struct {
        int64_t below, size;
        char unit;
    } units[] = {{120, 1, 's'},
                 {2 * 3600L, 60, 'm'},
                 {48 * 3600L, 3600, 'h'},
                 {INT64_MAX, 86400, 'd'}};
    size_t i = 0;
    while (seconds >= units[i].below && i + 1 < SKR_COUNT_OF(units))
        i++;
    return skr_arena_format(
        arena, "%lld%c", (long long)(seconds / units[i].size), units[i].unit);
}

// NULL: memory is out.
static const char *
text_of(struct skr_arena *arena, const struct skr_column *column,
        const struct skr_cell *cell)
{
    if (cell->shown != NULL)
        return cell->shown;
    if (cell->state != SKR_CELL_KNOWN)
        return "-";
    switch (column->kind) {
    case SKR_COLUMN_INTEGER:
        return skr_arena_format(arena, "%s%lld%s", cell->is_estimate ? "~" : "",
                                (long long)cell->number,
                                column->unit == NULL ? "" : column->unit);
    case SKR_COLUMN_DURATION: return duration_text(arena, cell->number);
    case SKR_COLUMN_BOOL: return cell->number != 0 ? "yes" : "no";
    case SKR_COLUMN_TEXT:
    case SKR_COLUMN_JSON: return cell->text[0] == '\0' ? "-" : cell->text;
    case SKR_COLUMN_HISTOGRAM:
    case SKR_COLUMN_OBJECT:
    case SKR_COLUMN_LIST: break;
    }
    return "-";
}

static bool
is_shown(const struct skr_report *report, size_t column)
{
    size_t rows = skr_report_rows(report);
    if (report->columns.items[column].title == NULL)
        return false;
    for (size_t row = 0; row < rows; row++) {
        const struct skr_cell *cell = skr_report_cell(report, row, column);
        if (cell->state != SKR_CELL_ABSENT || cell->shown != NULL)
            return true;
    }
    return rows == 0;
}

// False: memory is out.
static bool
fill(struct table *table, const struct skr_report *report, size_t rows)
{
    size_t shown[MOST_COLUMNS];
    for (size_t i = 0; i < report->columns.count; i++)
        if (is_shown(report, i) && table->column_count < MOST_COLUMNS) {
            shown[table->column_count] = i;
            table->columns[table->column_count] = &report->columns.items[i];
            table->widths[table->column_count++] =
                skr_terminal_length(report->columns.items[i].title);
        }
    table->cells =
        calloc(rows * table->column_count + 1, sizeof(*table->cells));
    if (report->is_broken || table->cells == NULL)
        return false;
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < table->column_count; i++) {
            const char *text = text_of(&table->arena, table->columns[i],
                                       skr_report_cell(report, row, shown[i]));
            if (text == NULL)
                return false;
            size_t length = skr_terminal_length(text);
            if (length > table->widths[i])
                table->widths[i] = length;
            table->cells[table->cell_count++] = text;
        }
    return true;
}

// Numbers stand to the right.
static bool
is_number(const struct skr_column *column)
{
    return column->kind == SKR_COLUMN_INTEGER ||
           column->kind == SKR_COLUMN_DURATION;
}

static void
print_cell(const char *text, size_t width, bool is_right, bool is_last,
           FILE *out)
{
    size_t length = skr_terminal_length(text);
    size_t pad = length < width ? width - length : 0;
    if (is_right)
        fprintf(out, "%*s", (int)pad, "");
    if (length <= width) {
        skr_print_plain(text, strlen(text), false, out);
    } else {
        skr_print_plain(text, skr_terminal_bytes(text, width - 1), false, out);
        fputs("…", out);
    }
    if (!is_right && !is_last)
        fprintf(out, "%*s", (int)pad, "");
}

// cells NULL: the titles.
static void
print_line(const struct table *table, const char *const *cells, int gap,
           FILE *out)
{
    for (size_t i = 0; i < table->column_count; i++) {
        bool is_last = i + 1 == table->column_count;
        print_cell(cells == NULL ? table->columns[i]->title : cells[i],
                   table->widths[i], is_number(table->columns[i]), is_last,
                   out);
        if (!is_last)
            fprintf(out, "%*s", gap, "");
    }
    putc('\n', out);
}

// A field a line, a blank line between two rows.
static void
print_narrow(const struct table *table, size_t width, FILE *out)
{
    size_t title = 0;
    for (size_t i = 0; i < table->column_count; i++)
        if (skr_terminal_length(table->columns[i]->title) > title)
            title = skr_terminal_length(table->columns[i]->title);
    size_t room = width > title + GAP + 1 ? width - title - GAP : 1;
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t column = i % table->column_count;
        if (column == 0 && i > 0)
            putc('\n', out);
        print_cell(table->columns[column]->title, title, false, false, out);
        fprintf(out, "%*s", GAP, "");
        print_cell(table->cells[i], room, false, true, out);
        putc('\n', out);
    }
}

// Cuts the last column so that all of them fit. False: they cannot.
static bool
fit(struct table *table, size_t width, size_t gap)
{
    size_t last = table->column_count - 1, total = last * gap;
    for (size_t i = 0; i < table->column_count; i++)
        total += table->widths[i];
    if (width == 0 || total <= width)
        return true;
    size_t over = total - width;
    if (is_number(table->columns[last]) || table->widths[last] <= over ||
        table->widths[last] - over < LEAST_LAST)
        return false;
    table->widths[last] -= over;
    return true;
}

static void
print(struct table *table, size_t width, FILE *out)
{
    int gap = fit(table, width, GAP) ? GAP : NARROW_GAP;
    if (gap == NARROW_GAP && !fit(table, width, NARROW_GAP)) {
        print_narrow(table, width, out);
        return;
    }
    bool is_bold = skr_colour_is_wanted(fileno(out));
    fputs(skr_colour_bold(is_bold), out);
    print_line(table, NULL, gap, out);
    fputs(skr_colour_end(is_bold), out);
    for (size_t i = 0; i < table->cell_count; i += table->column_count)
        print_line(table, table->cells + i, gap, out);
}

enum skr_code
skr_report_print(const struct skr_report *report, size_t width, size_t max_rows,
                 FILE *out, struct skr_error *error)
{
    struct table table = {.column_count = 0};
    size_t rows = skr_report_rows(report);
    if (max_rows > 0 && max_rows < rows)
        rows = max_rows;
    enum skr_code code =
        fill(&table, report, rows) ? SKR_OK : skr_fail_memory(error);
    if (code == SKR_OK)
        print(&table, width, out);
    free(table.cells);
    skr_arena_fini(&table.arena);
    return code;
}
