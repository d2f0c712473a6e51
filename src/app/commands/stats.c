// SPDX-License-Identifier: MIT
// `skirnir stats`: a table for people, JSON for programs, and the table again
// and again on a terminal.

#include "app/admin/stats.h"
#include "app/console/output.h"
#include "app/console/progress.h"
#include "app/console/terminal.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_WATCH_S = 2, SLICE_MS = 100, MOST_LAGS = 10 };

static void
tell_of_php(const struct skr_transport_stats *stats, FILE *out)
{
    uint64_t count = stats->counts.php;
    if (count == 0)
        return;
    fprintf(out,
            "\nOf %s %llu %s in PHP's own serialisation and %s for a Symfony "
            "worker; `serializer: messenger.transport.symfony_serializer` on "
            "that transport makes new ones readable.\n",
            stats->transport->name, (unsigned long long)count,
            count == 1 ? "is" : "are", count == 1 ? "waits" : "wait");
}

static void
tell_of_unread(const struct skr_report *unread, FILE *out)
{
    for (size_t i = 0; i < skr_report_rows(unread); i++) {
        const struct skr_cell *rows = skr_report_find(unread, i, "rows");
        fprintf(out,
                "\nThe queue '%s' of %s (database %s) has %s%lld row%s, and no "
                "transport of this configuration reads it.\n",
                skr_report_find(unread, i, "queue")->text,
                skr_report_find(unread, i, "table")->text,
                skr_report_find(unread, i, "database")->text,
                rows->is_estimate ? "~" : "", (long long)rows->number,
                rows->number == 1 ? "" : "s");
    }
}

// Those that are furthest behind, which come first.
static enum skr_code
print_lags(const struct skr_transport_stats *stats,
           const struct skr_report *lags, FILE *out, struct skr_error *error)
{
    size_t behind = 0, all = stats->depth.lag_count;
    while (behind < all && stats->depth.lags[behind].behind > 0)
        behind++;
    fprintf(out, "\n%s: behind in %zu of %zu partition%s\n",
            stats->transport->name, behind, all, all == 1 ? "" : "s");
    if (behind == 0)
        return SKR_OK;
    return skr_report_print(lags, skr_terminal_width(stdout),
                            behind < MOST_LAGS ? behind : MOST_LAGS, out,
                            error);
}

static enum skr_code
print_partitions(const struct skr_partition_stats *stats,
                 const struct skr_report *transports, size_t row, FILE *out,
                 struct skr_error *error)
{
    fprintf(out, "\n");
    enum skr_code code =
        skr_report_print(skr_report_find(transports, row, "partitions")->nested,
                         skr_terminal_width(stdout), 0, out, error);
    if (code != SKR_OK || stats->blocked_count == 0)
        return code;
    fprintf(out, "\n");
    return skr_blocked_print(
        stats, skr_report_find(transports, row, "blocked_partitions")->nested,
        out, error);
}

static enum skr_code
print_tables(const struct skr_stats *stats, const struct skr_report *transports,
             FILE *out, struct skr_error *error)
{
    enum skr_code code =
        skr_report_print(transports, skr_terminal_width(stdout), 0, out, error);
    for (size_t i = 0; i < stats->count && code == SKR_OK; i++) {
        const struct skr_transport_stats *item = &stats->items[i];
        const struct skr_report *lags =
            skr_report_find(transports, i, "lags")->nested;
        if (item->partitions.transport != NULL)
            code =
                print_partitions(&item->partitions, transports, i, out, error);
        else if (lags != NULL)
            code = print_lags(item, lags, out, error);
    }
    for (size_t i = 0; i < stats->count; i++)
        tell_of_php(&stats->items[i], out);
    if (stats->strayed > 0)
        fprintf(out,
                "\n%llu failed message%s of no transport that is configured; "
                "see `skirnir failed show`\n",
                (unsigned long long)stats->strayed,
                stats->strayed == 1 ? " is" : "s are");
    return code;
}

static enum skr_code
print_table(struct skr_stats *stats, FILE *out, struct skr_error *error)
{
    struct skr_report report;
    enum skr_code code = SKR_OK;
    skr_stats_report(stats, &report);
    if (report.is_broken) {
        code = skr_fail_memory(error);
    } else {
        code = print_tables(stats,
                            skr_report_find(&report, 0, "transports")->nested,
                            out, error);
        tell_of_unread(skr_report_find(&report, 0, "unread_queues")->nested,
                       out);
    }
    skr_report_fini(&report);
    return code;
}

static enum skr_code
print_json(struct skr_stats *stats, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    struct skr_report report;
    skr_stats_report(stats, &report);
    skr_report_write_row(&report, &json);
    skr_report_fini(&report);
    return skr_json_print(&json, error);
}

// What Symfony counts: what may be taken now.
static bool
find_count(const struct skr_transport_stats *stats, uint64_t *count)
{
    *count = stats->has_counts ? stats->counts.due : stats->depth.messages;
    return stats->trouble.code == SKR_OK &&
           (stats->has_counts ||
            (stats->has_depth && stats->depth.has_messages));
}

// {"transports":{"async":{"count":3}},"uncountable_transports":["sync"]}
static enum skr_code
print_as_symfony(const struct skr_stats *stats, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    uint64_t count = 0;
    skr_json_begin_object(&json);
    skr_json_write_name(&json, "transports");
    skr_json_begin_object(&json);
    for (size_t i = 0; i < stats->count; i++)
        if (find_count(&stats->items[i], &count)) {
            skr_json_write_name(&json, stats->items[i].transport->name);
            skr_json_begin_object(&json);
            skr_json_write_name(&json, "count");
            skr_json_write_unsigned(&json, count);
            skr_json_end_object(&json);
        }
    skr_json_end_object(&json);
    skr_json_write_name(&json, "uncountable_transports");
    skr_json_begin_array(&json);
    for (size_t i = 0; i < stats->count; i++) {
        const char *name = stats->items[i].transport->name;
        if (!find_count(&stats->items[i], &count))
            skr_json_write_text(&json, name, strlen(name));
    }
    skr_json_end_array(&json);
    skr_json_end_object(&json);
    return skr_json_print(&json, error);
}

// A reading, and the one before it.
struct pictures {
    struct skr_stats latest, earlier;
    int64_t latest_ms;  // by skr_clock_ms(); 0: there is none
};

static enum skr_code
look(const struct skr_app *app, const struct skr_config *config,
     struct pictures *pictures, struct skr_error *error)
{
    int64_t before_ms = pictures->latest_ms;
    skr_stats_fini(&pictures->earlier);
    pictures->earlier = pictures->latest;
    pictures->latest = (struct skr_stats){.items = NULL};
    pictures->latest_ms = skr_clock_ms();
    enum skr_code code = skr_stats_read(app, config, &pictures->latest, error);
    if (code == SKR_OK)
        skr_unread_find(app, config, &pictures->latest.silent,
                        &pictures->latest.unread);
    pictures->latest.elapsed_ms = pictures->latest_ms - before_ms;
    if (before_ms > 0 && pictures->latest.elapsed_ms > 0)
        pictures->latest.earlier = &pictures->earlier;
    return code;
}

static int64_t
watch_interval_s(const struct skr_arguments *arguments)
{
    return skr_arguments_number(arguments, "interval", DEFAULT_WATCH_S);
}

// Of what is shown again and again: which this is, and of when.
static enum skr_code
print_watched(const struct skr_app *app, const struct skr_config *config,
              struct skr_stats *stats, FILE *out, struct skr_error *error)
{
    char time[SKR_TIMESTAMP_SIZE];
    skr_clock_timestamp(skr_clock_wall_us(), time);
    fprintf(out, "skirnir stats, %s UTC, every %lld s, %s\n\n", time,
            (long long)watch_interval_s(app->arguments), config->path);
    return print_table(stats, out, error);
}

static enum skr_code
draw_watched(const struct skr_app *app, const struct skr_config *config,
             struct skr_stats *stats, struct skr_error *error)
{
    size_t size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return skr_fail_memory(error);
    enum skr_code code = print_watched(app, config, stats, out, error);
    if (fclose(out) != 0 && code == SKR_OK)
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        skr_terminal_draw(text, stdout);
    free(text);
    return code;
}

// --format, in the order of its words.
enum format { FORMAT_TXT, FORMAT_JSON };

static bool
has_symfonys_form(const struct skr_arguments *arguments)
{
    return skr_arguments_choice(arguments, "format", FORMAT_TXT) == FORMAT_JSON;
}

static bool
is_drawn(const struct skr_arguments *arguments)
{
    return skr_arguments_has(arguments, "watch") &&
           !skr_arguments_has(arguments, "json") &&
           !has_symfonys_form(arguments) && isatty(STDOUT_FILENO);
}

static enum skr_code
show(const struct skr_app *app, const struct skr_config *config,
     struct skr_stats *stats, struct skr_error *error)
{
    if (skr_arguments_has(app->arguments, "json"))
        return print_json(stats, error);
    if (has_symfonys_form(app->arguments))
        return print_as_symfony(stats, error);
    if (is_drawn(app->arguments))
        return draw_watched(app, config, stats, error);
    if (skr_arguments_has(app->arguments, "watch"))
        return print_watched(app, config, stats, stdout, error);
    return print_table(stats, stdout, error);
}

static enum skr_code
watch(const struct skr_app *app, const struct skr_config *config,
      struct pictures *pictures, struct skr_error *error)
{
    int64_t pause_ms = watch_interval_s(app->arguments) * 1000;
    skr_progress_catch_signals();
    while (!skr_progress_is_stopped()) {
        enum skr_code code = look(app, config, pictures, error);
        if (code == SKR_OK)
            code = show(app, config, &pictures->latest, error);
        // A reader that went away ends it; the program says so or not.
        if (code != SKR_OK || skr_output_flush(NULL) != SKR_OK)
            return code;
        int64_t end_ms = skr_clock_ms() + pause_ms;
        while (!skr_progress_is_stopped() && skr_clock_ms() < end_ms)
            skr_clock_sleep(-1, SLICE_MS);
    }
    if (is_drawn(app->arguments))
        printf("\n");
    return SKR_OK;
}

// With an interval, after another look that far away, so that there are rates.
static enum skr_code
show_once(const struct skr_app *app, const struct skr_config *config,
          struct pictures *pictures, struct skr_error *error)
{
    int64_t pause_ms =
        skr_arguments_number(app->arguments, "interval", 0) * 1000;
    enum skr_code code = look(app, config, pictures, error);
    if (code == SKR_OK && pause_ms > 0) {
        skr_clock_sleep(-1, pause_ms);
        code = look(app, config, pictures, error);
    }
    if (code == SKR_OK)
        code = show(app, config, &pictures->latest, error);
    const struct skr_error *trouble = &pictures->latest.failed_trouble;
    if (code == SKR_OK && trouble->code != SKR_OK)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_GIVE_UP,
                        "failed messages cannot be counted: %s", trouble->text);
    for (size_t i = 0; i < pictures->latest.count && code == SKR_OK; i++)
        if (pictures->latest.items[i].trouble.code != SKR_OK)
            code = skr_fail(error, SKR_UNAVAILABLE, SKR_GIVE_UP,
                            "not every transport could be asked");
    return code;
}

enum skr_code
skr_command_stats(const struct skr_app *app, const struct skr_config *config,
                  struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    const struct skr_config_transport *unused = NULL;
    for (size_t i = 0; i < arguments->positional_count; i++) {
        enum skr_code code = skr_config_find_transport(
            config, arguments->positional[i], &unused, error);
        if (code != SKR_OK)
            return code;
    }
    struct pictures pictures = {.latest_ms = 0};
    enum skr_code code = skr_arguments_has(arguments, "watch")
                             ? watch(app, config, &pictures, error)
                             : show_once(app, config, &pictures, error);
    skr_stats_fini(&pictures.earlier);
    skr_stats_fini(&pictures.latest);
    return code;
}
