// SPDX-License-Identifier: MIT
// Filling a report: cells are found by the names of their columns.

#include "app/report/report.h"

#include "base/vec.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void
skr_report_fini(struct skr_report *report)
{
    for (size_t i = 0; i < report->cell_count; i++)
        if (report->cells[i].nested != NULL)
            skr_report_fini(report->cells[i].nested);
    free(report->cells);
    skr_arena_fini(&report->arena);
    *report = (struct skr_report){.columns = report->columns};
}

size_t
skr_report_rows(const struct skr_report *report)
{
    return report->cell_count / report->columns.count;
}

const struct skr_cell *
skr_report_cell(const struct skr_report *report, size_t row, size_t column)
{
    return &report->cells[row * report->columns.count + column];
}

void
skr_report_add_row(struct skr_report *report)
{
    size_t count = report->columns.count;
    if (!skr_vec_reserve(&report->cells, &report->cell_capacity,
                         report->cell_count + count, sizeof(*report->cells))) {
        report->is_broken = true;
        return;
    }
    memset(report->cells + report->cell_count, 0,
           count * sizeof(*report->cells));
    report->row = skr_report_rows(report);
    report->cell_count += count;
}

bool
skr_report_choose_row(struct skr_report *report, const char *text)
{
    for (size_t row = 0; row < skr_report_rows(report); row++) {
        const char *found = skr_report_cell(report, row, 0)->text;
        if (found != NULL && strcmp(found, text) == 0) {
            report->row = row;
            return true;
        }
    }
    return false;
}

void
skr_report_row_of(struct skr_report *report, const char *text)
{
    if (skr_report_choose_row(report, text))
        return;
    skr_report_add_row(report);
    skr_report_text(report, report->columns.items[0].name, text);
}

// A name without a column is a mistake of the program.
static size_t
column_of(const struct skr_report *report, const char *name)
{
    size_t column = 0;
    while (strcmp(report->columns.items[column].name, name) != 0)
        if (++column == report->columns.count)
            abort();
    return column;
}

static struct skr_cell *
find(struct skr_report *report, const char *name)
{
    size_t column = column_of(report, name);
    return report->is_broken
               ? &report->unused
               : &report->cells[report->row * report->columns.count + column];
}

static struct skr_cell *
fill(struct skr_report *report, const char *name, enum skr_cell_state state)
{
    struct skr_cell *cell = find(report, name);
    cell->state = state;
    return cell;
}

const struct skr_cell *
skr_report_find(const struct skr_report *report, size_t row, const char *name)
{
    return skr_report_cell(report, row, column_of(report, name));
}

static int
compare_rows(const void *left, const void *right, void *column)
{
    const struct skr_cell *one = left, *other = right;
    size_t at = *(size_t *)column;
    return (one[at].number < other[at].number) -
           (one[at].number > other[at].number);
}

void
skr_report_sort(struct skr_report *report, const char *name)
{
    size_t column = column_of(report, name), rows = skr_report_rows(report);
    if (rows > 0)
        qsort_r(report->cells, rows,
                report->columns.count * sizeof(*report->cells), compare_rows,
                &column);
}

static const char *
copy(struct skr_report *report, const char *text)
{
    const char *copied = skr_arena_text(&report->arena, text, strlen(text));
    report->is_broken |= copied == NULL;
    return copied;
}

void
skr_report_text(struct skr_report *report, const char *name, const char *text)
{
    struct skr_cell *cell =
        fill(report, name, text == NULL ? SKR_CELL_UNKNOWN : SKR_CELL_KNOWN);
    cell->text = text == NULL ? NULL : copy(report, text);
}

void
skr_report_number(struct skr_report *report, const char *name, int64_t number)
{
    fill(report, name, SKR_CELL_KNOWN)->number = number;
}

void
skr_report_known(struct skr_report *report, const char *name, bool is_known,
                 int64_t number)
{
    fill(report, name, is_known ? SKR_CELL_KNOWN : SKR_CELL_UNKNOWN)->number =
        number;
}

void
skr_report_estimate(struct skr_report *report, const char *name,
                    uint64_t number, bool is_estimate)
{
    struct skr_cell *cell = fill(report, name, SKR_CELL_KNOWN);
    cell->number = (int64_t)number;
    cell->is_estimate = is_estimate && number > 0;
}

void
skr_report_sum(struct skr_report *report, const char *name, uint64_t number)
{
    fill(report, name, SKR_CELL_KNOWN)->number += (int64_t)number;
}

void
skr_report_greatest(struct skr_report *report, const char *name, int64_t number)
{
    struct skr_cell *cell = fill(report, name, SKR_CELL_KNOWN);
    if (number > cell->number)
        cell->number = number;
}

void
skr_report_times(struct skr_report *report, const char *name,
                 const struct skr_histogram *times)
{
    struct skr_cell *cell = fill(report, name, SKR_CELL_KNOWN);
    if (cell->times == NULL) {
        cell->times = skr_arena_take(&report->arena, sizeof(*cell->times));
        report->is_broken |= cell->times == NULL;
        if (cell->times != NULL)
            *cell->times = (struct skr_histogram_reading){.sum_us = 0};
    }
    if (cell->times != NULL)
        skr_histogram_read(times, cell->times);
}

void
skr_report_put(struct skr_report *report, const char *name,
               struct skr_report *nested)
{
    struct skr_report *moved = skr_arena_take(&report->arena, sizeof(*moved));
    report->is_broken |= moved == NULL || nested->is_broken;
    if (report->is_broken) {
        skr_report_fini(nested);
        return;
    }
    *moved = *nested;
    fill(report, name, SKR_CELL_KNOWN)->nested = moved;
    *nested = (struct skr_report){.columns = nested->columns};
}

void
skr_report_show(struct skr_report *report, const char *name, const char *format,
                ...)
{
    struct skr_cell *cell = find(report, name);
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    cell->shown = size < 0 ? NULL : copy(report, text);
    report->is_broken |= size < 0;
    if (size >= 0)
        free(text);
}
