// SPDX-License-Identifier: MIT
// Rows of a report as JSON objects.

#include "app/report/report.h"

#include "base/error.h"

#include <string.h>

void
skr_json_write_storable(struct skr_json_writer *json, const char *text)
{
    struct skr_text storable = {0};
    skr_text_add_storable(&storable, text, strlen(text));
    json->text.broken |= storable.broken;
    skr_json_write_text(json, storable.size > 0 ? storable.bytes : "",
                        storable.size);
    skr_text_fini(&storable);
}

static void write_rows(const struct skr_report *report, bool is_nested,
                       size_t max, struct skr_json_writer *json);

static void
write_value(const struct skr_column *column, const struct skr_cell *cell,
            struct skr_json_writer *json)
{
    switch (column->kind) {
    case SKR_COLUMN_TEXT: skr_json_write_storable(json, cell->text); break;
    case SKR_COLUMN_INTEGER:
    case SKR_COLUMN_DURATION: skr_json_write_signed(json, cell->number); break;
    case SKR_COLUMN_BOOL:
        skr_json_write_boolean(json, cell->number != 0);
        break;
    case SKR_COLUMN_JSON:
        skr_json_write_separator(json);
        skr_text_add_string(&json->text, cell->text);
        json->needs_comma = true;
        break;
    case SKR_COLUMN_OBJECT: write_rows(cell->nested, true, 1, json); break;
    case SKR_COLUMN_LIST:
        skr_json_begin_array(json);
        write_rows(cell->nested, true, SIZE_MAX, json);
        skr_json_end_array(json);
        break;
    case SKR_COLUMN_HISTOGRAM: skr_json_write_null(json); break;
    }
}

static void
write_rows(const struct skr_report *report, bool is_nested, size_t max,
           struct skr_json_writer *json)
{
    size_t rows = skr_report_rows(report);
    json->text.broken |= report->is_broken;
    for (size_t row = 0; row < rows && row < max; row++) {
        skr_json_begin_object(json);
        for (size_t i = 0; i < report->columns.count; i++) {
            const struct skr_column *column = &report->columns.items[i];
            const struct skr_cell *cell = skr_report_cell(report, row, i);
            if (column->is_hidden || cell->state == SKR_CELL_ABSENT ||
                (is_nested && column->is_of_owner))
                continue;
            skr_json_write_name(json, column->name);
            if (cell->state == SKR_CELL_UNKNOWN)
                skr_json_write_null(json);
            else
                write_value(column, cell, json);
        }
        skr_json_end_object(json);
    }
}

void
skr_report_write_rows(const struct skr_report *report,
                      struct skr_json_writer *json)
{
    write_rows(report, false, SIZE_MAX, json);
}

void
skr_report_write_row(const struct skr_report *report,
                     struct skr_json_writer *json)
{
    write_rows(report, false, 1, json);
}

enum skr_code
skr_json_print(struct skr_json_writer *json, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (json->error.code != SKR_OK)
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "this cannot be written as JSON: %s", json->error.text);
    else if (json->text.broken)
        code = skr_fail_memory(error);
    else
        printf("%s\n", json->text.bytes);
    skr_text_fini(&json->text);
    return code;
}

enum skr_code
skr_report_print_json(const struct skr_report *report, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    skr_json_begin_array(&json);
    skr_report_write_rows(report, &json);
    skr_json_end_array(&json);
    return skr_json_print(&json, error);
}
