// SPDX-License-Identifier: MIT
// `skirnir failed show`: the list, one message in full, or groups by error.

#include "app/console/grid.h"
#include "app/parts/blocked.h"
#include "app/parts/failed.h"
#include "app/parts/failed_print.h"
#include "app/parts/members.h"
#include "app/parts/partitions.h"
#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MAX = 50, MOST_GROUPS = 1000, MOST_ERROR = 400 };

static const char *
or_none(const char *text)
{
    return text == NULL || text[0] == '\0' ? "-" : text;
}

struct list {
    struct skr_grid grid;
    struct skr_json_writer *json;  // NULL: a table
    bool names_databases;
    uint64_t count;
    uint64_t max;
    bool has_more;
};

static const struct skr_grid_column columns[] = {
    {"ID", .is_number = true},      {"FAILED AT", false},
    {"TRANSPORT", false},           {"MESSAGE", false},
    {"RETRIES", .is_number = true}, {"ERROR", false},
};
static const struct skr_grid_column columns_with_database[] = {
    {"DATABASE", false},  {"ID", .is_number = true},
    {"FAILED AT", false}, {"TRANSPORT", false},
    {"MESSAGE", false},   {"RETRIES", .is_number = true},
    {"ERROR", false},
};

static enum skr_code
list_one(const struct skr_failed_found *found, void *user,
         struct skr_error *error)
{
    struct list *list = user;
    const struct skr_failure_report *report = found->report;
    (void)error;
    if (list->count == list->max) {
        list->has_more = true;
        return SKR_STOPPED;
    }
    list->count++;
    if (list->json != NULL) {
        skr_failed_write_json(found, list->json);
        return SKR_OK;
    }
    if (list->names_databases)
        skr_grid_add(&list->grid, "%s", found->database->name);
    skr_grid_add(&list->grid, "%lld", (long long)found->row->id);
    skr_grid_add(&list->grid, "%s", found->row->created_at);
    skr_grid_add(&list->grid, "%s", or_none(report->transport));
    skr_grid_add(&list->grid, "%s",
                 report->is_php ? "(PHP)" : or_none(report->name));
    skr_grid_add(&list->grid, "%u", report->retries);
    skr_grid_add(&list->grid, "%.*s", MOST_ERROR, or_none(report->error_text));
    return SKR_OK;
}

static enum skr_code
print_list(const struct list *list, struct skr_error *error)
{
    if (list->count == 0) {
        printf("No failed messages match.\n");
        return SKR_OK;
    }
    if (!skr_grid_print(&list->grid, skr_terminal_width(stdout), stdout))
        return skr_fail_memory(error);
    if (list->has_more)
        printf("The newest %llu are shown; --max=N shows more.\n",
               (unsigned long long)list->count);
    return SKR_OK;
}

static enum skr_code
end_json(struct skr_json_writer *json, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (json->error.code != SKR_OK || json->text.broken)
        code = skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "a message cannot be written as JSON: it is no UTF-8");
    else
        printf("%s\n", json->text.bytes);
    skr_text_fini(&json->text);
    return code;
}

static enum skr_code
show_list(const struct skr_app *app, struct skr_failed_session *session,
          struct skr_failed_filter *filter, struct skr_error *error)
{
    struct skr_json_writer json = {.needs_comma = false};
    bool is_json = skr_arguments_has(app->arguments, "json");
    bool several = session->source_count > 1;
    struct list list = {
        .grid = {.columns = several ? columns_with_database : columns,
                 .column_count = several ? SKR_COUNT_OF(columns_with_database)
                                         : SKR_COUNT_OF(columns)},
        .json = is_json ? &json : NULL,
        .names_databases = several,
        .max = filter->max > 0 ? filter->max : DEFAULT_MAX,
    };
    filter->max = 0;
    // Of those only the transport is asked for.
    struct skr_failed_filter others = *filter;
    others.transport = NULL;
    bool shows_blocked = skr_failed_filter_is_empty(&others);
    if (is_json)
        skr_json_begin_array(&json);
    enum skr_code code =
        skr_failed_each(session, filter, true, list_one, &list, error);
    if (is_json && code == SKR_OK && shows_blocked)
        code =
            skr_blocked_write(session->config, filter->transport, &json, error);
    if (is_json)
        skr_json_end_array(&json);
    if (code == SKR_OK)
        code = is_json ? end_json(&json, error) : print_list(&list, error);
    if (!is_json && code == SKR_OK && shows_blocked)
        code = skr_blocked_print(session->config, filter->transport, error);
    skr_grid_fini(&list.grid);
    return code;
}

// Messages that failed for the same reason, whatever numbers its text has.
struct group {
    char *key;
    char *transport, *error_class, *error_text;
    uint64_t count;
    int64_t newest;
    char newest_at[24];
};

struct groups {
    struct group *items;
    size_t count;
    uint64_t messages;
    bool is_full;
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

static struct group *
find_group(struct groups *groups, const char *key)
{
    for (size_t i = 0; i < groups->count; i++)
        if (strcmp(groups->items[i].key, key) == 0)
            return &groups->items[i];
    return NULL;
}

static enum skr_code
group_one(const struct skr_failed_found *found, void *user,
          struct skr_error *error)
{
    struct groups *groups = user;
    const struct skr_failure_report *report = found->report;
    char *key = make_key(report);
    if (key == NULL)
        return skr_fail_memory(error);
    groups->messages++;
    struct group *group = find_group(groups, key);
    if (group != NULL) {
        free(key);
        group->count++;
        return SKR_OK;
    }
    if (groups->count == MOST_GROUPS) {
        groups->is_full = true;
        free(key);
        return SKR_OK;
    }
    group = &groups->items[groups->count++];
    *group = (struct group){
        .key = key,
        .transport = strdup(or_none(report->transport)),
        .error_class = strdup(or_none(report->error_class)),
        .error_text = strdup(or_none(report->error_text)),
        .count = 1,
        .newest = found->row->id,
    };
    snprintf(group->newest_at, sizeof(group->newest_at), "%s",
             found->row->created_at);
    if (group->transport == NULL || group->error_class == NULL ||
        group->error_text == NULL)
        return skr_fail_memory(error);
    return SKR_OK;
}

static int
compare_groups(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    return (a->count < b->count) - (a->count > b->count);
}

static enum skr_code
print_groups(const struct groups *groups, struct skr_error *error)
{
    static const struct skr_grid_column titles[] = {
        {"COUNT", .is_number = true},
        {"TRANSPORT", false},
        {"NEWEST", .is_number = true},
        {"AT", false},
        {"CLASS", false},
        {"ERROR", false},
    };
    struct skr_grid grid = {.columns = titles,
                            .column_count = SKR_COUNT_OF(titles)};
    if (groups->count == 0) {
        printf("No failed messages match.\n");
        return SKR_OK;
    }
    for (size_t i = 0; i < groups->count; i++) {
        const struct group *group = &groups->items[i];
        skr_grid_add(&grid, "%llu", (unsigned long long)group->count);
        skr_grid_add(&grid, "%s", group->transport);
        skr_grid_add(&grid, "%lld", (long long)group->newest);
        skr_grid_add(&grid, "%s", group->newest_at);
        skr_grid_add(&grid, "%s", group->error_class);
        skr_grid_add(&grid, "%.*s", MOST_ERROR, group->error_text);
    }
    enum skr_code code = SKR_OK;
    if (!skr_grid_print(&grid, skr_terminal_width(stdout), stdout))
        code = skr_fail_memory(error);
    if (groups->is_full)
        printf("There are more than %d different errors.\n", MOST_GROUPS);
    skr_grid_fini(&grid);
    return code;
}

static void
write_groups(const struct groups *groups, struct skr_json_writer *json)
{
    skr_json_begin_array(json);
    for (size_t i = 0; i < groups->count; i++) {
        const struct group *group = &groups->items[i];
        skr_json_begin_object(json);
        skr_member_number(json, "count", group->count);
        skr_member_text(json, "transport", group->transport);
        skr_member_text(json, "error_class", group->error_class);
        skr_member_text(json, "error", group->error_text);
        skr_json_write_name(json, "newest");
        skr_json_write_signed(json, group->newest);
        skr_member_text(json, "newest_at", group->newest_at);
        skr_json_end_object(json);
    }
    skr_json_end_array(json);
}

static enum skr_code
show_groups(const struct skr_app *app, struct skr_failed_session *session,
            const struct skr_failed_filter *filter, struct skr_error *error)
{
    struct groups groups = {.items =
                                calloc(MOST_GROUPS, sizeof(*groups.items))};
    if (groups.items == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        skr_failed_each(session, filter, true, group_one, &groups, error);
    qsort(groups.items, groups.count, sizeof(*groups.items), compare_groups);
    if (code == SKR_OK && skr_arguments_has(app->arguments, "json")) {
        struct skr_json_writer json = {.needs_comma = false};
        write_groups(&groups, &json);
        code = end_json(&json, error);
    } else if (code == SKR_OK) {
        code = print_groups(&groups, error);
    }
    for (size_t i = 0; i < groups.count; i++) {
        free(groups.items[i].key);
        free(groups.items[i].transport);
        free(groups.items[i].error_class);
        free(groups.items[i].error_text);
    }
    free(groups.items);
    return code;
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
    if (view->shown++ > 0)
        printf("\n");
    if (!view->is_json) {
        skr_failed_print(found, view->detail);
        return SKR_OK;
    }
    struct skr_json_writer json = {.needs_comma = false};
    skr_failed_write_json(found, &json);
    return end_json(&json, error);
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
        if (code != SKR_OK && (!is_missing || count == 1)) {
            *error = reason;
            return code;
        }
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
        code = skr_failed_open(
            &session, config, skr_arguments_find(arguments, "database"), error);
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
