// SPDX-License-Identifier: MIT
// Reports in Prometheus' text format.

#include "app/report/report.h"

#include <stdlib.h>
#include <string.h>

// In a label's value these have to be written so.
static void
add_escaped(struct skr_text *text, const struct skr_text *storable)
{
    const char *value = storable->bytes;
    for (size_t at = 0; at < storable->size; at++) {
        if (value[at] == '\\' || value[at] == '"')
            skr_text_add_string(text, "\\");
        if (value[at] == '\n')
            skr_text_add_string(text, "\\n");
        else
            skr_text_add(text, value + at, 1);
    }
}

// One byte that is no UTF-8 would have all of the scrape refused: it becomes a
// question mark, as in the text of an error.
static void
write_label(struct skr_text *text, const char *label, const char *value)
{
    struct skr_text storable = {0};
    skr_text_add_storable(&storable, value, strlen(value));
    text->broken |= storable.broken;
    skr_text_add_format(text, "%s=\"", label);
    add_escaped(text, &storable);
    skr_text_add_string(text, "\"");
    skr_text_fini(&storable);
}

// A row, and what its samples begin with: a name and the labels of the row.
struct sample {
    const struct skr_report *report;
    size_t row;
    const struct skr_column *column;
    const struct skr_cell *cell;
};

static void
begin_sample(struct skr_text *text, const struct sample *sample,
             const char *ending, const char *bound)
{
    const struct skr_report *report = sample->report;
    const char *separator = "{";
    skr_text_add_format(text, "%s%s", sample->column->metric, ending);
    for (size_t i = 0; i < report->columns.count; i++) {
        const char *label = report->columns.items[i].label;
        const struct skr_cell *cell = skr_report_cell(report, sample->row, i);
        if (label == NULL)
            continue;
        skr_text_add_string(text, separator);
        separator = ",";
        if (cell->text != NULL)
            write_label(text, label, cell->text);
        else
            skr_text_add_format(text, "%s=\"%lld\"", label,
                                (long long)cell->number);
    }
    if (bound != NULL) {
        skr_text_add_format(text, "%sle=\"%s\"", separator, bound);
        separator = ",";
    }
    skr_text_add_string(text, separator[0] == '{' ? " " : "} ");
}

// Each step has all that is below it, too; the last has everything.
static void
write_histogram(struct skr_text *text, const struct sample *sample)
{
    const struct skr_histogram_reading *times = sample->cell->times;
    uint64_t count = 0;
    for (int i = 0; i < SKR_HISTOGRAM_STEPS; i++) {
        char bound[32] = "+Inf";
        if (i < SKR_HISTOGRAM_STEPS - 1)
            snprintf(bound, sizeof(bound), "%g",
                     (double)skr_histogram_bounds_us[i] / 1e6);
        count += times->counts[i];
        begin_sample(text, sample, "_bucket", bound);
        skr_text_add_format(text, "%llu\n", (unsigned long long)count);
    }
    begin_sample(text, sample, "_sum", NULL);
    skr_text_add_format(text, "%llu.%06llu\n",
                        (unsigned long long)times->sum_us / 1000000,
                        (unsigned long long)times->sum_us % 1000000);
    begin_sample(text, sample, "_count", NULL);
    skr_text_add_format(text, "%llu\n", (unsigned long long)count);
}

static const char *
type_of(const struct skr_column *column)
{
    static const char counter[] = "_total";
    size_t size = strlen(column->metric), ending = strlen(counter);
    if (column->kind == SKR_COLUMN_HISTOGRAM)
        return "histogram";
    return size > ending && strcmp(column->metric + size - ending, counter) == 0
               ? "counter"
               : "gauge";
}

// Reports with the same columns.
struct reports {
    struct skr_columns columns;
    const struct skr_report **items;
    size_t count;
};

static void
write_family(struct skr_text *text, const struct reports *reports, size_t index)
{
    const struct skr_column *column = &reports->columns.items[index];
    skr_text_add_format(text, "# HELP %s %s\n# TYPE %s %s\n", column->metric,
                        column->help, column->metric, type_of(column));
    for (size_t i = 0; i < reports->count; i++) {
        struct sample sample = {.report = reports->items[i], .column = column};
        size_t rows = skr_report_rows(sample.report);
        for (; sample.row < rows; sample.row++) {
            sample.cell = skr_report_cell(sample.report, sample.row, index);
            if (sample.cell->state != SKR_CELL_KNOWN)
                continue;
            if (column->kind == SKR_COLUMN_HISTOGRAM) {
                write_histogram(text, &sample);
                continue;
            }
            begin_sample(text, &sample, "", NULL);
            skr_text_add_format(text, "%lld\n", (long long)sample.cell->number);
        }
    }
}

static void write_reports(struct skr_text *text, const struct reports *reports);

static void
write_nested(struct skr_text *text, const struct reports *reports, size_t index)
{
    struct reports nested = {.columns = *reports->columns.items[index].nested};
    size_t most = 1;
    for (size_t i = 0; i < reports->count; i++)
        most += skr_report_rows(reports->items[i]);
    nested.items = calloc(most, sizeof(*nested.items));
    text->broken |= nested.items == NULL;
    for (size_t i = 0; i < reports->count && nested.items != NULL; i++)
        for (size_t row = 0; row < skr_report_rows(reports->items[i]); row++) {
            const struct skr_report *found =
                skr_report_cell(reports->items[i], row, index)->nested;
            if (found != NULL)
                nested.items[nested.count++] = found;
        }
    write_reports(text, &nested);
    free(nested.items);
}

static void
write_reports(struct skr_text *text, const struct reports *reports)
{
    for (size_t i = 0; i < reports->count; i++)
        text->broken |= reports->items[i]->is_broken;
    for (size_t i = 0; i < reports->columns.count; i++) {
        if (reports->columns.items[i].metric != NULL)
            write_family(text, reports, i);
        if (reports->columns.items[i].nested != NULL)
            write_nested(text, reports, i);
    }
}

void
skr_report_write_metrics(const struct skr_report *report, struct skr_text *text)
{
    write_reports(text, &(struct reports){.columns = report->columns,
                                          .items = &report,
                                          .count = 1});
}
