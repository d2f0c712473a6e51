// SPDX-License-Identifier: MIT
// Opens the failed tables of all databases, and searches them page by page by
// id, class, error or time.

#include "app/admin/failed.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 100 };

static void
close_source(struct skr_failed_source *source)
{
    skr_failed_rows_free(source->rows);
    skr_db_close(source->db);
    *source = (struct skr_failed_source){.db = NULL};
}

static enum skr_code
open_source(const struct skr_failed_session *session,
            const struct skr_config_database *database,
            struct skr_failed_source *source, struct skr_error *error)
{
    *source = (struct skr_failed_source){.database = database};
    struct skr_failed_rows_options options = {
        .table = session->failed.place.table,
        .queue = session->failed.place.queue,
        .redeliver_timeout_s = session->failed.place.redeliver_timeout_s,
        .time_zone = session->failed.place.time_zone,
    };
    enum skr_code code = skr_transport_open_unless_silent(
        database, session->silent, &source->db, error);
    if (code == SKR_OK) {
        options.dialect = skr_db_dialect(source->db);
        code = skr_failed_rows_new(&options, &source->rows, error);
    }
    if (code == SKR_OK)
        code =
            skr_failed_rows_check(source->rows, skr_db_tx(source->db), error);
    if (code != SKR_OK) {
        skr_error_prefix(error, "database %s", database->name);
        close_source(source);
    }
    return code;
}

// Where one was there before, nothing is added. A database that is not set up
// yet holds no failed messages.
static enum skr_code
add_source(struct skr_failed_session *session,
           const struct skr_config_database *database, const char *only,
           struct skr_error *error)
{
    if (database == NULL || (only != NULL && strcmp(database->name, only) != 0))
        return SKR_OK;
    for (size_t i = 0; i < session->source_count; i++)
        if (strcmp(session->sources[i].database->url, database->url) == 0)
            return SKR_OK;
    enum skr_code code = open_source(
        session, database, &session->sources[session->source_count], error);
    if (code == SKR_OK)
        session->source_count++;
    return code == SKR_MISSING ? SKR_OK : code;
}

static enum skr_code
check_database(const struct skr_config *config, const char *name,
               struct skr_error *error)
{
    for (size_t i = 0; i < config->database_count; i++)
        if (strcmp(config->databases[i].name, name) == 0)
            return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "--database=%.60s: no such database is configured", name);
}

// A relay keeps what failed beside its outbox, a consumer where the failure
// transport is.
static enum skr_code
add_sources(struct skr_failed_session *session, const char *only,
            struct skr_error *error)
{
    const struct skr_config *config = session->config;
    enum skr_code code =
        add_source(session, session->failed.database, only, error);
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++)
        if (config->transports[i].kind == SKR_TRANSPORT_OUTBOX)
            code = add_source(session, config->transports[i].database, only,
                              error);
    if (code == SKR_OK && session->failed.database == NULL)
        code = add_source(session, config->inbox_database, only, error);
    return code;
}

enum skr_code
skr_failed_open(struct skr_failed_session *session,
                const struct skr_config *config, const char *only,
                struct skr_silent *silent, struct skr_error *error)
{
    // A place may be among the databases, or be the default one that is not.
    size_t most = config->database_count + 3;
    *session = (struct skr_failed_session){
        .config = config,
        .silent = silent,
        .failed = skr_transport_failed_place(config),
        .sources = calloc(most, sizeof(*session->sources)),
        .targets = calloc(most, sizeof(*session->targets)),
    };
    enum skr_code code = SKR_OK;
    if (session->sources == NULL || session->targets == NULL)
        code = skr_fail_memory(error);
    if (code == SKR_OK && only != NULL)
        code = check_database(config, only, error);
    if (code == SKR_OK)
        code = add_sources(session, only, error);
    if (code == SKR_OK && session->source_count == 0)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no table %s for failed messages yet; "
                        "`skirnir setup` makes it",
                        session->failed.place.table);
    if (code != SKR_OK)
        skr_failed_close(session);
    return code;
}

void
skr_failed_close(struct skr_failed_session *session)
{
    for (size_t i = 0; i < session->source_count; i++)
        close_source(&session->sources[i]);
    for (size_t i = 0;
         session->targets != NULL && session->targets[i].db != NULL; i++)
        close_source(&session->targets[i]);
    free(session->sources);
    free(session->targets);
    session->sources = session->targets = NULL;
    session->source_count = 0;
}

static bool
is_any(const struct skr_since *time)
{
    return time->ago_s == 0 && time->at == NULL;
}

void
skr_failed_filter_read(const struct skr_arguments *arguments,
                       struct skr_failed_filter *filter)
{
    *filter = (struct skr_failed_filter){
        .transport = skr_arguments_find(arguments, "transport"),
        .name = skr_arguments_find(arguments, "name"),
        .class_name = skr_arguments_find(arguments, "class"),
        .error_text = skr_arguments_find(arguments, "error"),
        .since = skr_arguments_since(arguments, "since"),
        .before = skr_arguments_since(arguments, "older-than"),
        .max = (uint64_t)skr_arguments_number(arguments, "max", 0),
    };
}

enum skr_code
skr_failed_filter_check(const struct skr_app *app,
                        const struct skr_failed_filter *filter,
                        const struct skr_config *config,
                        struct skr_error *error)
{
    const struct skr_config_transport *unused = NULL;
    struct skr_error unknown;
    if (filter->transport != NULL &&
        !skr_arguments_has(app->arguments, "quiet") &&
        skr_config_find_transport(config, filter->transport, &unused,
                                  &unknown) != SKR_OK)
        skr_output_say(app->output, SKR_LOG_WARNING, "warning: %s",
                       unknown.text);
    if (filter->transport == NULL || config->failure_transport == NULL ||
        strcmp(filter->transport, config->failure_transport) != 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "--transport=%.60s: all failed messages stand there; the "
                    "option names the transport in which they failed. Leave it "
                    "out",
                    filter->transport);
}

bool
skr_failed_filter_is_empty(const struct skr_failed_filter *filter)
{
    return filter->transport == NULL && filter->name == NULL &&
           filter->class_name == NULL && filter->error_text == NULL &&
           is_any(&filter->since) && is_any(&filter->before) &&
           filter->max == 0;
}

// Backslashes part namespaces and quote nothing.
static bool
fits(const char *pattern, const char *text)
{
    return pattern == NULL ||
           (text != NULL && fnmatch(pattern, text, FNM_NOESCAPE) == 0);
}

// Of what failed, in the form of the table: "" is any time.
struct span {
    char since[SKR_TIMESTAMP_SIZE];
    char before[SKR_TIMESTAMP_SIZE];
};

static bool
passes(const struct skr_failed_filter *filter, const struct span *span,
       const struct skr_failed_row *row,
       const struct skr_failure_report *report)
{
    if (filter->transport != NULL &&
        (report->transport == NULL ||
         strcmp(report->transport, filter->transport) != 0))
        return false;
    if (filter->error_text != NULL &&
        (report->error_text == NULL ||
         strstr(report->error_text, filter->error_text) == NULL))
        return false;
    // Times of this form are in the order of their texts.
    if ((span->since[0] != '\0' && strcmp(row->created_at, span->since) < 0) ||
        (span->before[0] != '\0' && strcmp(row->created_at, span->before) >= 0))
        return false;
    return fits(filter->name, report->name) &&
           fits(filter->class_name, report->class_name);
}

struct page {
    struct skr_arena arena;
    struct skr_failed_row rows[PAGE];
    size_t count;
};

static enum skr_code
keep_row(const struct skr_failed_row *row, void *user, struct skr_error *error)
{
    struct page *page = user;
    struct skr_arena *arena = &page->arena;
    struct skr_failed_row *kept = &page->rows[page->count];
    *kept = *row;
    kept->queue = skr_arena_text(arena, row->queue, strlen(row->queue));
    kept->created_at =
        skr_arena_text(arena, row->created_at, strlen(row->created_at));
    kept->headers = skr_arena_text(arena, row->headers, row->headers_size);
    if (row->body != NULL)
        kept->body = skr_arena_text(arena, row->body, row->body_size);
    if (kept->queue == NULL || kept->created_at == NULL ||
        kept->headers == NULL || (row->body != NULL && kept->body == NULL))
        return skr_fail_memory(error);
    page->count++;
    return SKR_OK;
}

struct search {
    struct skr_failed_session *session;
    const struct skr_failed_filter *filter;
    bool newest_first;
    struct span span;
    uint64_t given;
    skr_failed_found_fn *each;
    void *user;
};

static enum skr_code
give(struct search *search, struct skr_failed_source *source, struct page *page,
     size_t index, struct skr_error *error)
{
    const struct skr_failed_filter *filter = search->filter;
    const struct skr_failed_row *row = &page->rows[index];
    struct skr_failure_report report;
    enum skr_code code =
        skr_failure_read(&page->arena, row->headers, row->headers_size,
                         &search->session->config->names, &report, error);
    if (code != SKR_OK ||
        (filter != NULL && !passes(filter, &search->span, row, &report)))
        return code;
    if (filter != NULL && filter->max > 0 && search->given == filter->max)
        return SKR_STOPPED;
    search->given++;
    const struct skr_failed_found found = {.database = source->database,
                                           .source = source,
                                           .row = row,
                                           .report = &report};
    return search->each(&found, search->user, error);
}

static enum skr_code
find_time(const struct skr_since *time, const struct skr_failed_source *source,
          char text[SKR_TIMESTAMP_SIZE], struct skr_error *error)
{
    int64_t now_us = 0;
    text[0] = '\0';
    if (time->ago_s > 0) {
        enum skr_code code = skr_failed_rows_now(
            source->rows, skr_db_tx(source->db), &now_us, error);
        if (code != SKR_OK)
            return code;
        skr_clock_timestamp(now_us - time->ago_s * 1000000, text);
    } else if (time->at != NULL) {
        // A day alone is where it begins, and sorts before its times.
        strncat(text, time->at, SKR_TIMESTAMP_SIZE - 1);
    }
    return SKR_OK;
}

static enum skr_code
read_page(const struct skr_failed_source *source,
          struct skr_failed_page *wanted, struct page *page,
          struct skr_error *error)
{
    skr_arena_reset(&page->arena);
    page->count = 0;
    return skr_failed_rows_list(source->rows, skr_db_tx(source->db), wanted,
                                keep_row, page, error);
}

static enum skr_code
search_source(struct search *search, struct skr_failed_source *source,
              struct page *page, struct skr_error *error)
{
    struct skr_failed_page newest = {
        .newest_first = true, .after = INT64_MAX, .max = 1};
    struct skr_failed_page wanted = {
        .newest_first = search->newest_first,
        .after = search->newest_first ? INT64_MAX : 0,
        .max = PAGE,
        .has_more = true,
    };
    struct span *span = &search->span;
    enum skr_code code =
        find_time(&search->filter->since, source, span->since, error);
    if (code == SKR_OK)
        code = find_time(&search->filter->before, source, span->before, error);
    if (code == SKR_OK && !search->newest_first)
        code = read_page(source, &newest, page, error);
    while (code == SKR_OK && wanted.has_more &&
           (search->newest_first || wanted.after < newest.after)) {
        code = read_page(source, &wanted, page, error);
        for (size_t i = 0; i < page->count && code == SKR_OK; i++)
            if (page->rows[i].id <= newest.after)
                code = give(search, source, page, i, error);
    }
    return code;
}

enum skr_code
skr_failed_each(struct skr_failed_session *session,
                const struct skr_failed_filter *filter, bool newest_first,
                skr_failed_found_fn *each, void *user, struct skr_error *error)
{
    struct search search = {
        .session = session,
        .filter = filter,
        .newest_first = newest_first,
        .each = each,
        .user = user,
    };
    struct page *page = calloc(1, sizeof(*page));
    if (page == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < session->source_count && code == SKR_OK; i++)
        code = search_source(&search, &session->sources[i], page, error);
    skr_arena_fini(&page->arena);
    free(page);
    return code == SKR_STOPPED ? SKR_OK : code;
}

enum skr_code
skr_failed_find(struct skr_failed_session *session, int64_t id,
                skr_failed_found_fn *each, void *user, struct skr_error *error)
{
    struct search search = {.session = session, .each = each, .user = user};
    struct page *page = calloc(1, sizeof(*page));
    struct skr_failed_source *holder = NULL;
    enum skr_code code = page == NULL ? skr_fail_memory(error) : SKR_OK;
    for (size_t i = 0; i < session->source_count && code == SKR_OK; i++) {
        struct skr_failed_source *source = &session->sources[i];
        struct skr_failed_wanted wanted = {.id = id};
        code = skr_failed_rows_find(source->rows, skr_db_tx(source->db),
                                    &wanted, keep_row, page, error);
        if (code == SKR_OK && wanted.found && holder != NULL)
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the databases %s and %s both have a failed "
                            "message %lld; name one with --database",
                            holder->database->name, source->database->name,
                            (long long)id);
        if (wanted.found)
            holder = source;
    }
    if (code == SKR_OK && holder == NULL)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no failed message %lld; `skirnir failed "
                        "show` lists them",
                        (long long)id);
    if (code == SKR_OK)
        code = give(&search, holder, page, 0, error);
    if (page != NULL)
        skr_arena_fini(&page->arena);
    free(page);
    return code;
}

enum skr_code
skr_failed_read_id(const char *text, int64_t *id, struct skr_error *error)
{
    if (skr_text_number(text, 1, INT64_MAX, id))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "'%.60s' is no number of a failed message", text);
}
