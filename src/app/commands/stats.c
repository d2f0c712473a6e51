// SPDX-License-Identifier: MIT
// `skirnir stats`: a table for people, JSON for programs, and the table again
// and again on a terminal.

#include "app/parts/stats.h"
#include "app/console/grid.h"
#include "app/console/output.h"
#include "app/console/progress.h"
#include "app/parts/lags.h"
#include "app/parts/members.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_WATCH_S = 2, SLICE_MS = 100 };

static void
add_number(struct skr_grid *grid, uint64_t number, bool is_estimate)
{
    skr_grid_add(grid, "%s%llu", is_estimate && number > 0 ? "~" : "",
                 (unsigned long long)number);
}

static void
add_age(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    int64_t age_s = 0;
    bool have_some = stats->has_depth && stats->depth.has_messages &&
                     stats->depth.messages > 0;
    if (!skr_stats_find_oldest(stats, &age_s))
        skr_grid_add(grid, have_some ? "unknown" : "-");
    else if (age_s < 120)
        skr_grid_add(grid, "%llds", (long long)age_s);
    else if (age_s < 2 * 3600)
        skr_grid_add(grid, "%lldm", (long long)age_s / 60);
    else if (age_s < 48 * 3600)
        skr_grid_add(grid, "%lldh", (long long)age_s / 3600);
    else
        skr_grid_add(grid, "%lldd", (long long)age_s / 86400);
}

static void
add_relay(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    if (stats->holder[0] != '\0')
        skr_grid_add(grid, "active: %s", stats->holder);
    else if (stats->attendance > 0)
        skr_grid_add(grid, "no relay works: %lld wait%s for the broker",
                     (long long)stats->attendance,
                     stats->attendance == 1 ? "s" : "");
    else
        skr_grid_add(grid, "no relay");
}

static void
add_state(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    uint64_t consumers = 0;
    if (stats->trouble.code != SKR_OK)
        skr_grid_add(grid, "trouble: %s", stats->trouble.text);
    else if (stats->is_failure)
        skr_grid_add(grid, "see `skirnir failed show`");
    else if (stats->transport->kind == SKR_TRANSPORT_OUTBOX)
        add_relay(grid, stats);
    else if (skr_stats_find_consumers(stats, &consumers))
        skr_grid_add(grid, "%llu consumer%s%s", (unsigned long long)consumers,
                     consumers == 1 ? "" : "s",
                     stats->retries > 0 ? ", retries wait" : "");
    else
        skr_grid_add(grid, stats->has_depth ? "reachable" : "-");
}

static void
add_nothing(struct skr_grid *grid, size_t cells)
{
    while (cells-- > 0)
        skr_grid_add(grid, "-");
}

static void
add_counts(struct skr_grid *grid, const struct skr_queue_counts *counts)
{
    add_number(grid, counts->depth, counts->depth_is_estimate);
    add_number(grid, counts->due, counts->depth_is_estimate);
    add_number(grid, counts->in_flight, counts->parts_are_estimates);
    add_number(grid, counts->delayed, counts->parts_are_estimates);
    add_number(grid, counts->blocked, counts->parts_are_estimates);
}

static void
add_depth(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    const struct skr_depth *depth = &stats->depth;
    if (depth->has_messages)
        add_number(grid, depth->messages,
                   stats->is_failure && stats->failed_is_estimate);
    else
        add_nothing(grid, 1);
    if (depth->has_messages && depth->are_due)
        add_number(grid, depth->messages, false);
    else
        add_nothing(grid, 1);
    add_nothing(grid, 1);
    add_number(grid, stats->retries, false);
    add_nothing(grid, 1);
}

static void
add_rates(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    if (stats->has_in_rate && stats->has_out_rate)
        skr_grid_add(grid, "%.0f/%.0f", stats->in_rate, stats->out_rate);
    else if (stats->has_in_rate)
        skr_grid_add(grid, "%.0f/-", stats->in_rate);
    else if (stats->has_net_rate)
        skr_grid_add(grid, "%+.0f", stats->net_rate);
    else
        add_nothing(grid, 1);
}

static void
add_row(struct skr_grid *grid, const struct skr_transport_stats *stats)
{
    skr_grid_add(grid, "%s", stats->transport->name);
    if (stats->has_counts)
        add_counts(grid, &stats->counts);
    else if (stats->has_depth)
        add_depth(grid, stats);
    else
        add_nothing(grid, 5);
    if (stats->has_failed)
        add_number(grid, stats->failed, stats->failed_is_estimate);
    else
        add_nothing(grid, 1);
    add_age(grid, stats);
    add_rates(grid, stats);
    add_state(grid, stats);
}

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
tell_of_unread(const struct skr_unread_queue *unread, FILE *out)
{
    fprintf(out,
            "\nThe queue '%s' of %s (database %s) has %s%llu row%s, and no "
            "transport of this configuration reads it.\n",
            unread->queue, unread->table, unread->database,
            unread->is_estimate ? "~" : "", (unsigned long long)unread->rows,
            unread->rows == 1 ? "" : "s");
}

static enum skr_code
print_table(const struct skr_stats *stats, size_t width, FILE *out,
            struct skr_error *error)
{
    static const struct skr_grid_column columns[] = {
        {"TRANSPORT", false},           {"DEPTH", .is_number = true},
        {"DUE", .is_number = true},     {"IN FLIGHT", .is_number = true},
        {"DELAYED", .is_number = true}, {"BLOCKED", .is_number = true},
        {"FAILED", .is_number = true},  {"OLDEST", .is_number = true},
        {"IN/OUT", .is_number = true},  {"STATE", false},
    };
    struct skr_grid grid = {.columns = columns,
                            .column_count = SKR_COUNT_OF(columns)};
    for (size_t i = 0; i < stats->count; i++)
        add_row(&grid, &stats->items[i]);
    enum skr_code code = SKR_OK;
    if (!skr_grid_print(&grid, width, out))
        code = skr_fail_memory(error);
    skr_grid_fini(&grid);
    for (size_t i = 0; i < stats->count && code == SKR_OK; i++) {
        const struct skr_transport_stats *item = &stats->items[i];
        const char *name = item->transport->name;
        if (item->partitions != NULL)
            code = skr_partition_stats_print(name, item->partitions, width, out,
                                             error);
        else if (item->has_depth)
            code = skr_lags_print(name, &item->depth, width, out, error);
    }
    for (size_t i = 0; i < stats->count; i++)
        tell_of_php(&stats->items[i], out);
    if (stats->strayed > 0)
        fprintf(out,
                "\n%llu failed message%s of no transport that is configured; "
                "see `skirnir failed show`\n",
                (unsigned long long)stats->strayed,
                stats->strayed == 1 ? " is" : "s are");
    for (size_t i = 0; i < stats->unread.count; i++)
        tell_of_unread(&stats->unread.items[i], out);
    return code;
}

static void
write_rate(struct skr_json_writer *json, const char *name, bool is_known,
           double rate)
{
    skr_json_write_name(json, name);
    if (is_known)
        skr_json_write_signed(json, (int64_t)(rate + (rate < 0 ? -0.5 : 0.5)));
    else
        skr_json_write_null(json);
}

static void
write_counts(const struct skr_queue_counts *counts,
             struct skr_json_writer *json)
{
    skr_member_number(json, "depth", counts->depth);
    skr_member_number(json, "due", counts->due);
    skr_member_number(json, "in_flight", counts->in_flight);
    skr_member_number(json, "delayed", counts->delayed);
    skr_member_number(json, "blocked", counts->blocked);
    skr_member_number(json, "php", counts->php);
    skr_member_number(json, "sent", counts->sent);
    skr_member_truth(json, "depth_is_estimate", counts->depth_is_estimate);
    skr_member_truth(json, "sent_is_estimate", counts->sent_is_estimate);
    skr_member_truth(json, "parts_are_estimates", counts->parts_are_estimates);
}

// Of a broker, or of what could not be asked: every field is there.
static void
write_depth(const struct skr_transport_stats *stats,
            struct skr_json_writer *json)
{
    const struct skr_depth *depth = &stats->depth;
    bool is_told = stats->has_depth && depth->has_messages;
    skr_member_known(json, "depth", is_told, depth->messages);
    skr_member_known(json, "due", is_told && depth->are_due, depth->messages);
    skr_member_known(json, "in_flight", false, 0);
    skr_member_known(json, "delayed", stats->has_depth, stats->retries);
    skr_member_known(json, "blocked", false, 0);
    skr_member_known(json, "consumers",
                     stats->has_depth && depth->has_consumers,
                     depth->consumers);
    skr_member_known(json, "retries", stats->has_depth, stats->retries);
    if (stats->has_depth)
        skr_lags_write(depth, json);
}

static void
write_one(const struct skr_transport_stats *stats, struct skr_json_writer *json)
{
    bool is_outbox = stats->transport->kind == SKR_TRANSPORT_OUTBOX;
    int64_t oldest_s = 0;
    bool has_oldest = skr_stats_find_oldest(stats, &oldest_s);
    skr_json_begin_object(json);
    skr_member_text(json, "transport", stats->transport->name);
    skr_member_text(json, "scheme", stats->transport->scheme);
    if (stats->has_counts)
        write_counts(&stats->counts, json);
    else
        write_depth(stats, json);
    skr_member_known(json, "oldest_seconds", has_oldest, (uint64_t)oldest_s);
    uint64_t consumers = 0;
    if (stats->has_counts && !is_outbox) {
        bool is_known = skr_stats_find_consumers(stats, &consumers);
        skr_member_known(json, "consumers", is_known, consumers);
    }
    if (is_outbox && stats->has_counts) {
        skr_member_truth(json, "active", stats->holder[0] != '\0');
        skr_member_text(json, "holder",
                        stats->holder[0] == '\0' ? NULL : stats->holder);
        skr_member_known(json, "waiting_for_broker", stats->attendance >= 0,
                         (uint64_t)stats->attendance);
    }
    if (stats->partitions != NULL)
        skr_partition_stats_write(stats->partitions, json);
    write_rate(json, "in_per_second", stats->has_in_rate, stats->in_rate);
    write_rate(json, "out_per_second", stats->has_out_rate, stats->out_rate);
    write_rate(json, "net_per_second", stats->has_net_rate, stats->net_rate);
    skr_member_known(json, "failed", stats->has_failed, stats->failed);
    skr_member_truth(json, "failed_is_estimate", stats->failed_is_estimate);
    skr_member_text(json, "error",
                    stats->trouble.code == SKR_OK ? NULL : stats->trouble.text);
    skr_json_end_object(json);
}

static void
write_unread(const struct skr_unread_queue *unread,
             struct skr_json_writer *json)
{
    skr_json_begin_object(json);
    skr_member_text(json, "database", unread->database);
    skr_member_text(json, "table", unread->table);
    skr_member_text(json, "queue", unread->queue);
    skr_member_number(json, "rows", unread->rows);
    skr_member_truth(json, "rows_are_estimate", unread->is_estimate);
    skr_json_end_object(json);
}

static enum skr_code
print_written(struct skr_json_writer *json, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (json->error.code != SKR_OK || json->text.broken)
        code = skr_fail_memory(error);
    else
        printf("%s\n", json->text.bytes);
    skr_text_fini(&json->text);
    return code;
}

static enum skr_code
print_json(const struct skr_stats *stats, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    skr_json_begin_object(&json);
    skr_json_write_name(&json, "transports");
    skr_json_begin_array(&json);
    for (size_t i = 0; i < stats->count; i++)
        write_one(&stats->items[i], &json);
    skr_json_end_array(&json);
    skr_json_write_name(&json, "unread_queues");
    skr_json_begin_array(&json);
    for (size_t i = 0; i < stats->unread.count; i++)
        write_unread(&stats->unread.items[i], &json);
    skr_json_end_array(&json);
    skr_member_known(&json, "failed", stats->failed_trouble.code == SKR_OK,
                     stats->failed);
    skr_member_known(&json, "failed_elsewhere",
                     stats->failed_trouble.code == SKR_OK, stats->strayed);
    skr_member_truth(&json, "failed_is_estimate", stats->failed_is_estimate);
    skr_json_end_object(&json);
    return print_written(&json, error);
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
            skr_member_number(&json, "count", count);
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
    return print_written(&json, error);
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
    const struct skr_arguments *arguments = app->arguments;
    int64_t before_ms = pictures->latest_ms;
    skr_stats_fini(&pictures->earlier);
    pictures->earlier = pictures->latest;
    pictures->latest = (struct skr_stats){.items = NULL};
    pictures->latest_ms = skr_clock_ms();
    enum skr_code code =
        skr_stats_read(app, config, arguments->positional,
                       arguments->positional_count, &pictures->latest, error);
    if (code == SKR_OK)
        code = skr_unread_list(config, arguments->positional,
                               arguments->positional_count,
                               &pictures->latest.unread, error);
    if (code == SKR_OK && before_ms > 0)
        skr_stats_measure(&pictures->latest, &pictures->earlier,
                          pictures->latest_ms - before_ms);
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
              const struct skr_stats *stats, FILE *out, struct skr_error *error)
{
    char time[SKR_TIMESTAMP_SIZE];
    skr_clock_timestamp(skr_clock_wall_us(), time);
    fprintf(out, "skirnir stats, %s UTC, every %lld s, %s\n\n", time,
            (long long)watch_interval_s(app->arguments), config->path);
    return print_table(stats, skr_terminal_width(stdout), out, error);
}

static enum skr_code
draw_watched(const struct skr_app *app, const struct skr_config *config,
             const struct skr_stats *stats, struct skr_error *error)
{
    size_t width = skr_terminal_width(stdout), size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return skr_fail_memory(error);
    enum skr_code code = print_watched(app, config, stats, out, error);
    if (fclose(out) != 0 && code == SKR_OK)
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        skr_terminal_draw(text, width, skr_terminal_height(stdout), stdout);
    free(text);
    return code;
}

static bool
has_symfonys_form(const struct skr_arguments *arguments)
{
    const char *format = skr_arguments_find(arguments, "format");
    return format != NULL && strcmp(format, "json") == 0;
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
     const struct skr_stats *stats, struct skr_error *error)
{
    if (skr_arguments_has(app->arguments, "json"))
        return print_json(stats, error);
    if (has_symfonys_form(app->arguments))
        return print_as_symfony(stats, error);
    if (is_drawn(app->arguments))
        return draw_watched(app, config, stats, error);
    if (skr_arguments_has(app->arguments, "watch"))
        return print_watched(app, config, stats, stdout, error);
    return print_table(stats, skr_terminal_width(stdout), stdout, error);
}

static void
wait_for_next(int64_t pause_ms)
{
    int64_t end_ms = skr_clock_ms() + pause_ms;
    while (!skr_progress_is_stopped() && skr_clock_ms() < end_ms)
        skr_clock_sleep(-1, SLICE_MS);
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
        wait_for_next(pause_ms);
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

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
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

enum skr_exit
skr_command_stats(struct skr_app *app)
{
    return skr_app_run_configured(app, run);
}
