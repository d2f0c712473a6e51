// SPDX-License-Identifier: MIT
// `skirnir failed show`: the list, one message in full, or groups by error.

#include "app/admin/failed.h"
#include "app/admin/partitions.h"
#include "app/admin/stats.h"
#include "app/console/terminal.h"
#include "base/error.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX = 50, MOST_GROUPS = 1000, MOST_ERROR = 400 };

static const char *
or_none(const char *text)
{
    return text == NULL || text[0] == '\0' ? "-" : text;
}

struct printing {
    struct skr_arena *arena;  // for the texts of one value
    int depth;
    bool has_children;
};

static void print_value(const struct skr_json *json, int depth);

static enum skr_code
print_child(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct printing *printing = user;
    (void)error;
    printf("%s\n%*s", printing->has_children ? "," : "",
           4 + 2 * printing->depth, "");
    printing->has_children = true;
    if (child->name != NULL) {
        printf("\"");
        skr_print_plain(child->name, child->name_size, false, stdout);
        printf("\": ");
    }
    print_value(child, printing->depth);
    skr_arena_reset(printing->arena);
    return SKR_OK;
}

static void
print_scalar(const struct skr_json *json)
{
    struct skr_json_writer writer = {.needs_comma = false};
    skr_json_write(&writer, json);
    if (writer.text.bytes != NULL)
        skr_print_plain(writer.text.bytes, writer.text.size, false, stdout);
    skr_text_fini(&writer.text);
}

// Its children are printed as they are found: a body may be of any size.
static void
print_value(const struct skr_json *json, int depth)
{
    bool is_object = json->kind == SKR_JSON_OBJECT;
    if (!is_object && json->kind != SKR_JSON_ARRAY) {
        print_scalar(json);
        return;
    }
    struct skr_arena arena = {0};
    struct printing printing = {.arena = &arena, .depth = depth + 1};
    enum skr_json_kind kind = json->kind;
    printf("%c", is_object ? '{' : '[');
    enum skr_code code = skr_json_walk(
        &(struct skr_json_walker){
            .arena = &arena, .take = print_child, .user = &printing},
        json->text, json->text_size, &kind, NULL);
    if (code != SKR_OK)
        printf(" (memory is out)");
    skr_arena_fini(&arena);
    if (printing.has_children)
        printf("\n%*s", 4 + 2 * depth, "");
    printf("%c", is_object ? '}' : ']');
}

// A scalar alone needs no other form than its own.
static bool
print_json(const char *body, size_t size)
{
    struct skr_json json = {.text = body, .text_size = size};
    if (skr_json_scan(body, size, 0, &json.kind, NULL) != SKR_OK ||
        (json.kind != SKR_JSON_OBJECT && json.kind != SKR_JSON_ARRAY))
        return false;
    printf("    ");
    print_value(&json, 0);
    printf("\n");
    return true;
}

static void
print_body(const struct skr_failed_found *found)
{
    const struct skr_failed_row *row = found->row;
    const struct skr_headers *headers = &found->report->headers;
    const char *encoding = skr_headers_get(headers, SKR_HEADER_BODY_ENCODING);
    bool is_base64 = encoding != NULL && strcmp(encoding, "base64") == 0;
    if (row->body == NULL)
        return;
    printf("\n  body, %zu bytes%s\n", row->body_size,
           is_base64 ? " of base64: it is no text" : "");
    if (print_json(row->body, row->body_size))
        return;
    if (!skr_text_is_storable(row->body, row->body_size)) {
        printf("    (no text)\n");
        return;
    }
    printf("    ");
    skr_print_plain(row->body, row->body_size, true, stdout);
    printf("\n");
}

static void
print_headers(const struct skr_failed_found *found)
{
    const struct skr_headers *headers = &found->report->headers;
    printf("\n  headers\n");
    for (size_t i = 0; i < headers->count; i++) {
        const struct skr_header *header = &headers->items[i];
        printf("    ");
        skr_print_plain(header->name, strlen(header->name), false, stdout);
        printf(": ");
        skr_print_plain(header->value, strlen(header->value), false, stdout);
        printf("\n");
    }
    if (headers->count == 0) {
        printf("    ");
        skr_print_plain(found->row->headers, found->row->headers_size, false,
                        stdout);
        printf("\n");
    }
}

static const struct skr_column columns[] = {
    {"several", "DATABASE", .is_hidden = true},
    {"blocked_head", SKR_AS_TEXT},
    {"partition", SKR_AS_TEXT},
    {"number", "ID", SKR_AS_INTEGER},
    {"row", SKR_AS_INTEGER},
    {"database", SKR_AS_TEXT},
    {"queue", SKR_AS_TEXT},
    {"failed_at", "FAILED AT", SKR_AS_TEXT},
    {"published_at", SKR_AS_TEXT},
    {"transport", "TRANSPORT", SKR_AS_TEXT},
    {"name", "MESSAGE", SKR_AS_TEXT},
    {"class", SKR_AS_TEXT},
    {"id", SKR_AS_TEXT},
    {"retries", "RETRIES", SKR_AS_INTEGER},
    {"error", "ERROR", SKR_AS_TEXT},
    {"error_class", SKR_AS_TEXT},
    {"error_code", SKR_AS_TEXT},
    {"headers", .kind = SKR_COLUMN_JSON},
    {"body", SKR_AS_TEXT},
    {"body_base64", SKR_AS_TEXT},
};

static void
fill_headers(const struct skr_headers *headers, struct skr_report *report)
{
    struct skr_json_writer json = {.needs_comma = false};
    skr_json_begin_object(&json);
    for (size_t i = 0; i < headers->count; i++) {
        skr_json_write_name(&json, headers->items[i].name);
        skr_json_write_storable(&json, headers->items[i].value);
    }
    skr_json_end_object(&json);
    report->is_broken |= json.text.broken || json.error.code != SKR_OK;
    skr_report_text(report, "headers", json.text.bytes);
    skr_text_fini(&json.text);
}

// Bytes that are no text stand there as base64, under another name.
static void
fill_body(const struct skr_failed_found *found, struct skr_report *report)
{
    const struct skr_failed_row *row = found->row;
    if (row->body == NULL)
        return;
    fill_headers(&found->report->headers, report);
    if (skr_text_is_storable(row->body, row->body_size)) {
        skr_report_text(report, "body", row->body);
        return;
    }
    char *encoded = skr_text_base64(row->body, row->body_size);
    skr_report_text(report, "body_base64", encoded);
    free(encoded);
}

// Adds a row, without the body.
static void
fill_message(const struct skr_failed_found *found, struct skr_report *report)
{
    const struct skr_failure_report *failure = found->report;
    char id[SKR_ID_TEXT_SIZE] = "";
    if (failure->has_id)
        skr_id_format(failure->id, id);
    bool is_blocked = found->blocked_head != NULL;
    skr_report_add_row(report);
    if (is_blocked) {
        skr_report_text(report, "blocked_head", found->blocked_head);
        skr_report_text(report, "partition", found->partition);
    }
    skr_report_number(report, is_blocked ? "row" : "number", found->row->id);
    skr_report_text(report, "database", found->database->name);
    skr_report_text(report, "queue", found->row->queue);
    skr_report_text(report, is_blocked ? "published_at" : "failed_at",
                    found->row->created_at);
    skr_report_text(report, "transport", failure->transport);
    skr_report_text(report, "name", failure->name);
    if (failure->is_php)
        skr_report_show(report, "name", "(PHP)");
    skr_report_text(report, "class", failure->class_name);
    skr_report_text(report, "id", failure->has_id ? id : NULL);
    skr_report_number(report, "retries", failure->retries);
    skr_report_text(report, "error", failure->error_text);
    skr_report_show(report, "error", "%.*s", MOST_ERROR,
                    or_none(failure->error_text));
    skr_report_text(report, "error_class", failure->error_class);
    skr_report_text(report, "error_code", failure->error_code);
}

struct list {
    struct skr_report report;
    bool names_databases;
    uint64_t count;
    uint64_t max;
    bool has_more;
};

static enum skr_code
list_one(const struct skr_failed_found *found, void *user,
         struct skr_error *error)
{
    struct list *list = user;
    (void)error;
    if (list->count == list->max) {
        list->has_more = true;
        return SKR_STOPPED;
    }
    list->count++;
    fill_message(found, &list->report);
    if (list->names_databases)
        skr_report_text(&list->report, "several", found->database->name);
    return SKR_OK;
}

static enum skr_code
print_table(const struct skr_report *report, struct skr_error *error)
{
    if (skr_report_rows(report) > 0)
        return skr_report_print(report, skr_terminal_width(stdout), 0, stdout,
                                error);
    printf("No failed messages match.\n");
    return SKR_OK;
}

static enum skr_code
print_list(const struct list *list, struct skr_error *error)
{
    enum skr_code code = print_table(&list->report, error);
    if (code == SKR_OK && list->has_more)
        printf("The newest %llu are shown; --max=N shows more.\n",
               (unsigned long long)list->count);
    return code;
}

static enum skr_code
print_blocked(const struct skr_partition_stats *stats, bool is_first,
              struct skr_error *error)
{
    if (is_first)
        printf("\nThese hold back their partitions; `skirnir failed retry` "
               "sends one once more, `skirnir partition skip` moves it to the "
               "failed messages.\n");
    return skr_blocked_print(stats, &stats->blocked, stdout, error);
}

// The blocked heads of all ordered outboxes: in the array that is begun, or as
// tables. only: of one transport; NULL: of all.
static enum skr_code
show_blocked(const struct skr_config *config, const char *only,
             struct skr_json_writer *json, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t shown = 0;
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++) {
        const struct skr_config_transport *outbox = &config->transports[i];
        struct skr_partition_stats stats;
        if (!skr_ordered_is_meant(outbox, only))
            continue;
        code = skr_partition_stats_read(config, outbox, &stats, error);
        if (code == SKR_OK && json != NULL)
            skr_report_write_rows(&stats.blocked, json);
        else if (code == SKR_OK && stats.blocked_count > 0)
            code = print_blocked(&stats, shown++ == 0, error);
        skr_report_fini(&stats.blocked);
        // Without its tables it has none.
        if (code == SKR_MISSING) {
            skr_error_clear(error);
            code = SKR_OK;
        }
    }
    return code;
}

static enum skr_code
show_list(const struct skr_app *app, struct skr_failed_session *session,
          struct skr_failed_filter *filter, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    bool is_json = skr_arguments_has(app->arguments, "json");
    struct list list = {
        .report = {.columns = SKR_COLUMNS(columns)},
        .names_databases = session->source_count > 1,
        .max = filter->max > 0 ? filter->max : DEFAULT_MAX,
    };
    filter->max = 0;
    // Of those only the transport is asked for.
    struct skr_failed_filter others = *filter;
    others.transport = NULL;
    enum skr_code code =
        skr_failed_each(session, filter, true, list_one, &list, error);
    if (is_json) {
        skr_json_begin_array(&json);
        skr_report_write_rows(&list.report, &json);
    } else if (code == SKR_OK) {
        code = print_list(&list, error);
    }
    if (code == SKR_OK && skr_failed_filter_is_empty(&others))
        code = show_blocked(session->config, filter->transport,
                            is_json ? &json : NULL, error);
    if (is_json)
        skr_json_end_array(&json);
    if (is_json && code == SKR_OK)
        code = skr_json_print(&json, error);
    else
        skr_text_fini(&json.text);
    skr_report_fini(&list.report);
    return code;
}

// Messages that failed for the same reason, whatever numbers its text has.
static const struct skr_column group_columns[] = {
    {"key", .is_hidden = true},
    {"count", "COUNT", SKR_AS_INTEGER},
    {"transport", "TRANSPORT", SKR_AS_TEXT},
    {"newest", "NEWEST", SKR_AS_INTEGER},
    {"newest_at", "AT", SKR_AS_TEXT},
    {"error_class", "CLASS", SKR_AS_TEXT},
    {"error", "ERROR", SKR_AS_TEXT},
};

static char *
make_key(const struct skr_failure_report *report)
{
    struct skr_text key = {0};
    skr_text_add_format(&key, "%s\n%s\n", or_none(report->transport),
                        or_none(report->error_class));
    const char *at = or_none(report->error_text);
    while (*at != '\0') {
        if (isdigit((unsigned char)*at)) {
            skr_text_add_string(&key, "#");
            at += strspn(at, "0123456789");
        } else {
            skr_text_add(&key, at++, 1);
        }
    }
    return skr_text_take(&key);
}

struct groups {
    struct skr_report report;
    bool is_full;
};

static enum skr_code
group_one(const struct skr_failed_found *found, void *user,
          struct skr_error *error)
{
    struct groups *groups = user;
    struct skr_report *report = &groups->report;
    const struct skr_failure_report *failure = found->report;
    char *key = make_key(failure);
    if (key == NULL)
        return skr_fail_memory(error);
    if (skr_report_choose_row(report, key)) {
        skr_report_sum(report, "count", 1);
    } else if (skr_report_rows(report) < MOST_GROUPS) {
        skr_report_row_of(report, key);
        skr_report_number(report, "count", 1);
        skr_report_text(report, "transport", or_none(failure->transport));
        skr_report_number(report, "newest", found->row->id);
        skr_report_text(report, "newest_at", found->row->created_at);
        skr_report_text(report, "error_class", or_none(failure->error_class));
        skr_report_text(report, "error", or_none(failure->error_text));
        skr_report_show(report, "error", "%.*s", MOST_ERROR,
                        or_none(failure->error_text));
    } else {
        groups->is_full = true;
    }
    free(key);
    return SKR_OK;
}

static enum skr_code
show_groups(const struct skr_app *app, struct skr_failed_session *session,
            const struct skr_failed_filter *filter, struct skr_error *error)
{
    struct groups groups = {.report = {.columns = SKR_COLUMNS(group_columns)}};
    enum skr_code code =
        skr_failed_each(session, filter, true, group_one, &groups, error);
    skr_report_sort(&groups.report, "count");
    if (code == SKR_OK && skr_arguments_has(app->arguments, "json"))
        code = skr_report_print_json(&groups.report, error);
    else if (code == SKR_OK)
        code = print_table(&groups.report, error);
    if (groups.is_full && !skr_arguments_has(app->arguments, "json"))
        printf("There are more than %d different errors.\n", MOST_GROUPS);
    skr_report_fini(&groups.report);
    return code;
}

// What is shown of one message, beside headers and body.
static const struct {
    const char *title, *column;
} fields[] = {
    {"partition", "partition"}, {"message", "name"},
    {"PHP class", "class"},     {"id", "id"},
    {"transport", "transport"}, {"published", "published_at"},
    {"failed at", "failed_at"}, {"retries", "retries"},
    {"error", "error"},         {"class", "error_class"},
    {"code", "error_code"},     {"queue", "queue"},
    {"database", "database"},
};

static void
print_fields(const struct skr_report *report, bool is_php)
{
    for (size_t i = 0; i < SKR_COUNT_OF(fields); i++) {
        const struct skr_cell *cell =
            skr_report_find(report, 0, fields[i].column);
        const char *text = cell->text;
        char number[24];
        snprintf(number, sizeof(number), "%lld", (long long)cell->number);
        if (is_php && strcmp(fields[i].column, "name") == 0)
            text = "(in PHP's own serialisation)";
        else if (cell->state == SKR_CELL_KNOWN && text == NULL)
            text = number;
        if (text == NULL || text[0] == '\0')
            continue;
        printf("  %-10s ", fields[i].title);
        skr_print_plain(text, strlen(text), false, stdout);
        putchar('\n');
    }
}

// With a detail of 1 or more headers and body too, the body in lines if it is
// JSON.
static void
print_message(const struct skr_failed_found *found,
              const struct skr_report *report, size_t detail)
{
    if (found->blocked_head != NULL)
        printf("Blocked head %s\n", found->blocked_head);
    else
        printf("Failed message %lld\n", (long long)found->row->id);
    print_fields(report, found->report->is_php);
    if (detail == 0) {
        printf("  -vv shows headers and body.\n");
        return;
    }
    print_headers(found);
    print_body(found);
}

struct view {
    bool is_json;
    size_t detail;
    size_t shown;
};

static enum skr_code
show_one(const struct skr_failed_found *found, void *user,
         struct skr_error *error)
{
    struct view *view = user;
    struct skr_json_writer json = {.needs_comma = false};
    struct skr_report report = {.columns = SKR_COLUMNS(columns)};
    fill_message(found, &report);
    bool is_broken = report.is_broken;
    if (view->shown++ > 0)
        printf("\n");
    if (view->is_json) {
        fill_body(found, &report);
        skr_report_write_row(&report, &json);
    } else if (!is_broken) {
        print_message(found, &report, view->detail);
    }
    skr_report_fini(&report);
    if (view->is_json)
        return skr_json_print(&json, error);
    return is_broken ? skr_fail_memory(error) : SKR_OK;
}

// Both kinds as they are listed.
static enum skr_code
find_and_show(struct skr_failed_session *session, const char *name,
              struct view *view, struct skr_error *error)
{
    int64_t id = 0;
    if (skr_blocked_is_name(name))
        return skr_blocked_find(session->config, name, show_one, view, error);
    enum skr_code code = skr_failed_read_id(name, &id, error);
    if (code == SKR_OK)
        code = skr_failed_find(session, id, show_one, view, error);
    return code;
}

// One that is not there is named, and the others are shown.
static enum skr_code
show_named(struct skr_failed_session *session,
           const struct skr_arguments *arguments, struct view *view,
           struct skr_error *error)
{
    size_t missing = 0, count = arguments->positional_count;
    for (size_t i = 0; i < count; i++) {
        struct skr_error reason = {0};
        enum skr_code code =
            find_and_show(session, arguments->positional[i], view, &reason);
        bool is_missing = code == SKR_MISSING || code == SKR_INVALID;
        if (code != SKR_OK && (!is_missing || count == 1))
            return skr_fail_with(error, &reason);
        if (is_missing)
            fprintf(stderr, "%s\n", reason.text);
        missing += is_missing;
    }
    if (missing == 0)
        return SKR_OK;
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                    "%zu of %zu could not be shown, for the reasons above",
                    missing, count);
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config,
    struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    struct skr_failed_filter filter;
    struct skr_failed_session session;
    struct view view = {
        .is_json = skr_arguments_has(arguments, "json"),
        .detail = skr_arguments_count(arguments, "verbose"),
    };
    skr_failed_filter_read(arguments, &filter);
    enum skr_code code = skr_failed_filter_check(app, &filter, config, error);
    if (code == SKR_OK)
        code = skr_failed_open(&session, config,
                               skr_arguments_find(arguments, "database"), NULL,
                               error);
    if (code != SKR_OK)
        return code;
    if (arguments->positional_count > 0)
        code = show_named(&session, arguments, &view, error);
    else if (skr_arguments_has(arguments, "stats"))
        code = show_groups(app, &session, &filter, error);
    else
        code = show_list(app, &session, &filter, error);
    skr_failed_close(&session);
    return code;
}

enum skr_exit
skr_command_failed_show(struct skr_app *app)
{
    const struct skr_arguments *arguments = app->arguments;
    size_t count = arguments->positional_count;
    struct skr_failed_filter filter;
    struct skr_error error;
    int64_t id;
    for (size_t i = 0; i < count; i++)
        if (!skr_blocked_is_name(arguments->positional[i]) &&
            skr_failed_read_id(arguments->positional[i], &id, &error) != SKR_OK)
            return skr_app_usage(app, "%s", error.text);
    skr_failed_filter_read(app->arguments, &filter);
    if (count > 0 && !skr_failed_filter_is_empty(&filter))
        return skr_app_usage(app, "numbers and filters exclude each other");
    if (count > 0 && skr_arguments_has(app->arguments, "stats"))
        return skr_app_usage(app, "numbers and --stats exclude each other");
    return skr_app_run_configured(app, run);
}
