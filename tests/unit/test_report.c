// SPDX-License-Identifier: MIT
// One report in three forms.
#include "app/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct skr_column head_items[] = {
    {"of", "HEAD OF", .label = "transport", .is_of_owner = true},
    {"key", "KEY", .label = "partition"},
    {"row", .label = "head", .kind = SKR_COLUMN_INTEGER},
    {"length", "LENGTH", "x_length", "Messages.", .kind = SKR_COLUMN_INTEGER},
};
static const struct skr_columns head_columns = {head_items,
                                                SKR_COUNT_OF(head_items)};

static const struct skr_column columns[] = {
    {"transport", "TRANSPORT", .label = "transport"},
    {"depth", "DEPTH", "x_depth", "How many wait.", .kind = SKR_COLUMN_INTEGER},
    {"sent", NULL, "x_sent_total", "How many went.",
     .kind = SKR_COLUMN_INTEGER},
    {"oldest_seconds", "OLDEST", .kind = SKR_COLUMN_DURATION},
    {"is_active", .kind = SKR_COLUMN_BOOL},
    {"headers", .kind = SKR_COLUMN_JSON},
    {"heads", .kind = SKR_COLUMN_LIST, .nested = &head_columns},
    {"state", "STATE", .is_hidden = true},
    {"seldom", "SELDOM", .kind = SKR_COLUMN_TEXT},
};

static void
fill(struct skr_report *report)
{
    struct skr_report heads = {.columns = head_columns};
    *report = (struct skr_report){.columns = SKR_COLUMNS(columns)};
    skr_report_add_row(report);
    skr_report_text(report, "transport", "a\"b\n\xff");
    skr_report_estimate(report, "depth", 5, true);
    skr_report_number(report, "sent", 7);
    skr_report_number(report, "oldest_seconds", 7199);
    skr_report_number(report, "is_active", true);
    skr_report_text(report, "headers", "{\"x\":1}");
    skr_report_show(report, "state", "active: %d", 3);
    skr_report_add_row(&heads);
    skr_report_text(&heads, "of", "a");
    skr_report_text(&heads, "key", "k");
    skr_report_number(&heads, "row", 12);
    skr_report_number(&heads, "length", 2);
    skr_report_put(report, "heads", &heads);
    skr_report_row_of(report, "other");
    skr_report_known(report, "depth", false, 0);
    skr_report_known(report, "oldest_seconds", false, 0);
    skr_report_text(report, "headers", NULL);
}

static void
assert_table(const struct skr_report *report, size_t width, size_t max_rows,
             const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(skr_report_print(report, width, max_rows, out, NULL),
                     SKR_OK);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void
test_a_table_shows_what_has_a_title_and_is_filled(void **state)
{
    struct skr_report report;
    (void)state;
    fill(&report);
    assert_table(&report, 0, 0,
                 "TRANSPORT  DEPTH  OLDEST  STATE\n"
                 "a\"b \xff         ~5    119m  active: 3\n"
                 "other          -       -  -\n");
    assert_table(&report, 20, 1,
                 "TRANSPORT  a\"b \xff\nDEPTH      ~5\nOLDEST     119m\n"
                 "STATE      active: 3\n");
    skr_report_fini(&report);
}

static void
test_json_tells_what_is_absent_from_what_is_not_known(void **state)
{
    struct skr_json_writer json = {.needs_comma = false};
    struct skr_report report;
    (void)state;
    fill(&report);
    skr_json_begin_array(&json);
    skr_report_write_rows(&report, &json);
    skr_json_end_array(&json);
    assert_string_equal(
        json.text.bytes,
        "[{\"transport\":\"a\\\"b\\n?\",\"depth\":5,\"sent\":7,"
        "\"oldest_seconds\":7199,\"is_active\":true,\"headers\":{\"x\":1},"
        "\"heads\":[{\"key\":\"k\",\"row\":12,\"length\":2}]},"
        "{\"transport\":\"other\",\"depth\":null,\"oldest_seconds\":null,"
        "\"headers\":null}]");
    skr_text_fini(&json.text);
    skr_report_fini(&report);
}

static void
test_metrics_have_the_labels_of_their_rows(void **state)
{
    struct skr_text text = {0};
    struct skr_report report;
    (void)state;
    fill(&report);
    skr_report_write_metrics(&report, &text);
    assert_string_equal(
        text.bytes,
        "# HELP x_depth How many wait.\n# TYPE x_depth gauge\n"
        "x_depth{transport=\"a\\\"b\\n?\"} 5\n"
        "# HELP x_sent_total How many went.\n# TYPE x_sent_total counter\n"
        "x_sent_total{transport=\"a\\\"b\\n?\"} 7\n"
        "# HELP x_length Messages.\n# TYPE x_length gauge\n"
        "x_length{transport=\"a\",partition=\"k\",head=\"12\"} 2\n");
    skr_text_fini(&text);
    skr_report_fini(&report);
}

static void
test_workers_of_one_row_add_up(void **state)
{
    static const struct skr_column items[] = {
        {"name", .label = "transport"},
        {"handled", "N", "x_total", "Handled.", .kind = SKR_COLUMN_INTEGER},
        {"oldest", "O", "x_oldest", "Age.", .kind = SKR_COLUMN_INTEGER},
        {"times", NULL, "x_seconds", "Times.", .kind = SKR_COLUMN_HISTOGRAM},
    };
    struct skr_report report = {.columns = SKR_COLUMNS(items)};
    struct skr_histogram times = {0};
    struct skr_text text = {0};
    (void)state;
    skr_histogram_add(&times, 1500);
    for (int worker = 0; worker < 2; worker++) {
        skr_report_row_of(&report, "orders");
        skr_report_sum(&report, "handled", 2);
        skr_report_greatest(&report, "oldest", 9 - worker);
        skr_report_times(&report, "times", &times);
    }
    skr_report_row_of(&report, "many");
    skr_report_sum(&report, "handled", 50);
    skr_report_sort(&report, "handled");
    assert_int_equal(skr_report_rows(&report), 2);
    assert_string_equal(skr_report_find(&report, 0, "name")->text, "many");
    assert_int_equal(skr_report_find(&report, 1, "handled")->number, 4);
    assert_int_equal(skr_report_find(&report, 1, "oldest")->number, 9);
    skr_report_write_metrics(&report, &text);
    assert_non_null(strstr(text.bytes, "# TYPE x_seconds histogram\n"
                                       "x_seconds_bucket{transport=\"orders\","
                                       "le=\"0.001\"} 0\n"
                                       "x_seconds_bucket{transport=\"orders\","
                                       "le=\"0.0025\"} 2\n"));
    assert_non_null(strstr(text.bytes,
                           "x_seconds_bucket{transport=\"orders\",le=\"+Inf\"} "
                           "2\nx_seconds_sum{transport=\"orders\"} 0.003000\n"
                           "x_seconds_count{transport=\"orders\"} 2\n"));
    skr_text_fini(&text);
    skr_report_fini(&report);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_shows_what_has_a_title_and_is_filled),
        cmocka_unit_test(test_json_tells_what_is_absent_from_what_is_not_known),
        cmocka_unit_test(test_metrics_have_the_labels_of_their_rows),
        cmocka_unit_test(test_workers_of_one_row_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
