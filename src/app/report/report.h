// SPDX-License-Identifier: MIT
// A report: rows of typed values under columns that say what each is called in
// a table for people, in JSON and in Prometheus' text format. A command or a
// metric fills it once; three printers show it.

#ifndef SKR_APP_REPORT_REPORT_H
#define SKR_APP_REPORT_REPORT_H

#include "base/arena.h"
#include "base/histogram.h"
#include "base/text.h"
#include "message/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum skr_column_kind {
    SKR_COLUMN_TEXT,
    SKR_COLUMN_INTEGER,
    SKR_COLUMN_DURATION,  // whole seconds; a table says 5m, 3h, 2d
    SKR_COLUMN_BOOL,
    SKR_COLUMN_HISTOGRAM,  // times, in metrics alone
    SKR_COLUMN_JSON,       // text that is JSON already
    SKR_COLUMN_OBJECT,     // a report of one row
    SKR_COLUMN_LIST,       // a report of any number of rows
};

struct skr_columns {
    const struct skr_column *items;
    size_t count;
};

struct skr_column {
    const char *name;    // by which it is filled, and its key in JSON
    const char *title;   // in a table; NULL: it is in none
    const char *metric;  // one that ends in _total is a counter; NULL: none
    const char *help;    // of the metric
    const char *label;   // what its text is called in each sample of its row
    const char *unit;    // behind the number of a table; NULL: none
    enum skr_column_kind kind;
    bool is_hidden;  // it is no key in JSON
    // Nor is it one in a report within another, whose row says it.
    bool is_of_owner;
    const struct skr_columns *nested;  // of OBJECT and LIST
};

// The kinds that most have, for tables of columns.
#define SKR_AS_TEXT .kind = SKR_COLUMN_TEXT
#define SKR_AS_INTEGER .kind = SKR_COLUMN_INTEGER
#define SKR_AS_TRUTH .kind = SKR_COLUMN_BOOL
#define SKR_AS_TIMES .kind = SKR_COLUMN_HISTOGRAM

#define SKR_COLUMNS(array)                               \
    (struct skr_columns)                                 \
    {                                                    \
        .items = (array), .count = SKR_COUNT_OF((array)) \
    }

// A cell that is not filled is absent: no key in JSON. One that is not known is
// null there, no sample, and a dash in a table. A column of a table is left out
// where it is absent in all rows.
enum skr_cell_state { SKR_CELL_ABSENT, SKR_CELL_UNKNOWN, SKR_CELL_KNOWN };

struct skr_cell {
    enum skr_cell_state state;
    bool is_estimate;  // a table says ~5
    int64_t number;
    const char *text;
    const char *shown;  // in a table, in place of the value; NULL: the value
    struct skr_histogram_reading *times;
    struct skr_report *nested;
};

// A zeroed struct with its columns is empty. Memory that is out shows at the
// end: a printer says so.
struct skr_report {
    struct skr_columns columns;
    struct skr_arena arena;  // texts, times and reports of cells
    struct skr_cell *cells;  // row by row
    size_t cell_count, cell_capacity;
    size_t row;              // that is filled
    struct skr_cell unused;  // is filled once memory is out
    bool is_broken;
};
void skr_report_fini(struct skr_report *report);

size_t skr_report_rows(const struct skr_report *report);
const struct skr_cell *
skr_report_cell(const struct skr_report *report, size_t row, size_t column);
// By the name of its column.
const struct skr_cell *
skr_report_find(const struct skr_report *report, size_t row, const char *name);

// The row that is filled from now on: another one, or the one whose first
// column has this text. False: there is none, and the row is as before.
void skr_report_add_row(struct skr_report *report);
bool skr_report_choose_row(struct skr_report *report, const char *text);
// That row, which is begun where there is none.
void skr_report_row_of(struct skr_report *report, const char *text);
// Rows with the greatest numbers first.
void skr_report_sort(struct skr_report *report, const char *name);

// These fill a cell by the name of its column, which there has to be. Texts are
// copied; NULL is a text that is not known.
void
skr_report_text(struct skr_report *report, const char *name, const char *text);
void
skr_report_number(struct skr_report *report, const char *name, int64_t number);
void skr_report_known(struct skr_report *report, const char *name,
                      bool is_known, int64_t number);
void skr_report_estimate(struct skr_report *report, const char *name,
                         uint64_t number, bool is_estimate);
// What several workers of a row have: the sum, the greatest, and all times.
void
skr_report_sum(struct skr_report *report, const char *name, uint64_t number);
void skr_report_greatest(struct skr_report *report, const char *name,
                         int64_t number);
void skr_report_times(struct skr_report *report, const char *name,
                      const struct skr_histogram *times);
// Moves a report into the cell.
void skr_report_put(struct skr_report *report, const char *name,
                    struct skr_report *nested);
// What a table shows of the cell in place of its value.
void
skr_report_show(struct skr_report *report, const char *name, const char *format,
                ...) __attribute__((format(printf, 3, 4)));

// A table of the first rows, as wide as it has to be. width: of a terminal, to
// which the last column is cut; one that is too narrow for that has a line for
// each field. 0: it is none. max_rows 0: all. Characters that could steer a
// terminal become blanks.
SKR_MUST_CHECK enum skr_code
skr_report_print(const struct skr_report *report, size_t width, size_t max_rows,
                 FILE *out, struct skr_error *error);

// Each row as an object of the array that is begun; or the first as a value.
// Bytes that JSON cannot hold become question marks: a program that reads the
// numbers is not to lose them because of one bad text.
void skr_report_write_rows(const struct skr_report *report,
                           struct skr_json_writer *json);
void skr_report_write_row(const struct skr_report *report,
                          struct skr_json_writer *json);
void skr_json_write_storable(struct skr_json_writer *json, const char *text);
// Prints what was written, and a line break, on standard output.
SKR_MUST_CHECK enum skr_code
skr_json_print(struct skr_json_writer *json, struct skr_error *error);
// All rows as an array.
SKR_MUST_CHECK enum skr_code
skr_report_print_json(const struct skr_report *report, struct skr_error *error);

// All metrics of the report and of those within it, a name at a time. Rows of a
// name differ in their labels.
void skr_report_write_metrics(const struct skr_report *report,
                              struct skr_text *text);

#endif
