// SPDX-License-Identifier: MIT
// Reads the partitions of an ordered outbox from its database, and finds the
// blocked head that TRANSPORT/ROW names.

#include "app/admin/partitions.h"

#include "app/console/terminal.h"
#include "app/wiring/transports.h"
#include "base/arena.h"
#include "base/error.h"
#include "store/messenger/messenger.h"

#include <string.h>

enum { MOST_BLOCKED = 100, MOST_REASON_BYTES = 200 };

static const struct skr_column columns[] = {
    {"blocked_head", "BLOCKED HEAD", .is_of_owner = true},
    {"transport", .label = "transport", .is_of_owner = true},
    {"partition", "PARTITION", .label = "partition"},
    // The row makes a sample the only one of its kind, whatever becomes of its
    // key.
    {"row", .label = "head", SKR_AS_INTEGER},
    {"length", "LENGTH", "skirnir_blocked_partition_messages",
     "Messages in a partition whose head waits for a person, that head "
     "included; of the first 100 of a transport.",
     SKR_AS_INTEGER},
    {"length_is_estimate", SKR_AS_TRUTH},
    {"name", "MESSAGE", SKR_AS_TEXT},
    {"error", "ERROR", SKR_AS_TEXT},
    {"reason", .label = "reason", .is_hidden = true},
};
const struct skr_columns skr_blocked_columns = {columns, SKR_COUNT_OF(columns)};

// The writer of the headers may have told a reason at any length, and
// Prometheus keeps labels for long.
static void
add_reason(struct skr_report *report, const char *reason)
{
    char cut[MOST_REASON_BYTES + sizeof("...")];
    size_t size = strlen(reason), kept = size;
    if (size > MOST_REASON_BYTES)
        kept = skr_text_storable_size(reason, MOST_REASON_BYTES);
    snprintf(cut, sizeof(cut), "%.*s%s", (int)kept, reason,
             kept < size ? "..." : "");
    skr_report_text(report, "reason", cut);
}

static enum skr_code
add_blocked(const struct skr_blocked_head *head, void *user,
            struct skr_error *error)
{
    struct skr_partition_stats *stats = user;
    struct skr_report *report = &stats->blocked;
    (void)error;
    if (stats->blocked_count == MOST_BLOCKED) {
        stats->has_more = true;
        return SKR_OK;
    }
    stats->blocked_count++;
    stats->waiting += head->length;
    skr_report_add_row(report);
    skr_report_text(report, "transport", stats->transport);
    skr_report_text(report, "blocked_head",
                    skr_arena_format(&report->arena, "%s/%lld",
                                     stats->transport, (long long)head->row));
    skr_report_text(report, "partition", head->key);
    skr_report_number(report, "row", head->row);
    skr_report_estimate(report, "length", head->length, head->is_estimate);
    skr_report_number(report, "length_is_estimate", head->is_estimate);
    skr_report_text(report, "name", head->name);
    skr_report_text(report, "error", head->reason);
    add_reason(report, head->reason);
    return SKR_OK;
}

enum skr_code
skr_partition_stats_read(const struct skr_config *config,
                         const struct skr_config_transport *outbox,
                         struct skr_partition_stats *stats,
                         struct skr_error *error)
{
    struct skr_open_table ordered;
    *stats = (struct skr_partition_stats){
        .transport = outbox->name, .blocked = {.columns = skr_blocked_columns}};
    enum skr_code code = skr_transport_open(config, outbox, &ordered, error);
    if (code == SKR_OK)
        code = skr_messenger_count_partitions(ordered.table, ordered.db,
                                              &stats->counts, error);
    if (code == SKR_OK)
        code = skr_messenger_each_blocked(
            ordered.table, ordered.db,
            &(struct skr_blocked_page){.max = MOST_BLOCKED + 1,
                                       .measures = true},
            add_blocked, stats, error);
    skr_transport_close(&ordered);
    if (code != SKR_OK) {
        skr_report_fini(&stats->blocked);
        stats->transport = NULL;
    }
    return code;
}

enum skr_code
skr_blocked_print(const struct skr_partition_stats *stats,
                  const struct skr_report *blocked, FILE *out,
                  struct skr_error *error)
{
    enum skr_code code =
        skr_report_print(blocked, skr_terminal_width(stdout), 0, out, error);
    if (stats->has_more)
        fprintf(out, "\nOf %s there are more than these %zu.\n",
                stats->transport, stats->blocked_count);
    return code;
}

bool
skr_ordered_is_meant(const struct skr_config_transport *outbox,
                     const char *only)
{
    return outbox->is_ordered &&
           (only == NULL || strcmp(only, outbox->name) == 0);
}

enum skr_code
skr_blocked_remind(const struct skr_config *config, const char *only,
                   struct skr_error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < config->transport_count; i++) {
        struct skr_partition_stats stats;
        if (!skr_ordered_is_meant(&config->transports[i], only))
            continue;
        enum skr_code code = skr_partition_stats_read(
            config, &config->transports[i], &stats, error);
        // Without its tables it has none.
        if (code != SKR_OK && code != SKR_MISSING)
            return code;
        count += stats.blocked_count + stats.has_more;
        skr_report_fini(&stats.blocked);
    }
    skr_error_clear(error);
    if (count == 0)
        return SKR_OK;
    if (count > MOST_BLOCKED)
        printf("More than %d", MOST_BLOCKED);
    else
        printf("%zu", count);
    printf(" partition%s blocked; `skirnir partition retry --all` ends "
           "that.\n",
           count == 1 ? " is" : "s are");
    return SKR_OK;
}

bool
skr_blocked_is_name(const char *text)
{
    return strchr(text, '/') != NULL;
}

static enum skr_code
read_name(const struct skr_config *config, const char *name,
          const struct skr_config_transport **outbox, int64_t *row,
          struct skr_error *error)
{
    const char *slash = strrchr(name, '/');
    char transport[128];
    if (!skr_text_number(slash + 1, INT64_MIN, INT64_MAX, row) ||
        (size_t)(slash - name) >= sizeof(transport))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.80s is no blocked head; those are named "
                        "TRANSPORT/ROW, as `skirnir failed show` lists them",
                        name);
    snprintf(transport, sizeof(transport), "%.*s", (int)(slash - name), name);
    return skr_transport_choose_outbox(config, transport, true, outbox, error);
}

// A blocked head that the command line names, and who wants it.
struct named {
    const struct skr_config *config;
    const char *name;
    const struct skr_config_transport *outbox;
    struct skr_open_table ordered;
    const struct skr_blocked_head *head;
    struct skr_arena arena;
    bool dry_run;
    skr_failed_found_fn *each;
    void *user;
};

static enum skr_code
find_named(struct named *named, skr_blocked_head_fn *take,
           struct skr_error *error)
{
    int64_t row = 0;
    enum skr_code code =
        read_name(named->config, named->name, &named->outbox, &row, error);
    if (code == SKR_OK)
        code = skr_transport_open(named->config, named->outbox, &named->ordered,
                                  error);
    if (code == SKR_OK)
        code = skr_messenger_find_blocked(
            named->ordered.table, named->ordered.db, row, take, named, error);
    skr_transport_close(&named->ordered);
    skr_arena_fini(&named->arena);
    return code;
}

static enum skr_code
give_row(const struct skr_failed_row *row, void *user, struct skr_error *error)
{
    struct named *named = user;
    struct skr_failure_report report;
    enum skr_code code =
        skr_failure_read(&named->arena, row->headers, row->headers_size,
                         &named->config->names, &report, error);
    if (code != SKR_OK)
        return code;
    report.transport = named->outbox->name;
    // One that cannot be understood does not tell it.
    report.error_text = named->head->reason;
    const struct skr_failed_found found = {.blocked_head = named->name,
                                           .partition = named->head->key,
                                           .database = named->outbox->database,
                                           .row = row,
                                           .report = &report};
    return named->each(&found, named->user, error);
}

// The row is read as those of the failed table are.
static enum skr_code
give_head(const struct skr_blocked_head *head, void *user,
          struct skr_error *error)
{
    struct named *named = user;
    struct skr_db *db = named->ordered.db;
    struct skr_failed_rows *rows = NULL;
    struct skr_failed_wanted wanted = {.id = head->row};
    const struct skr_failed_rows_options options = {
        .dialect = skr_db_dialect(db),
        .table = named->outbox->place.table,
        .queue = named->outbox->place.queue,
        .time_zone = named->outbox->place.time_zone,
    };
    named->head = head;
    enum skr_code code = skr_failed_rows_new(&options, &rows, error);
    if (code == SKR_OK)
        code = skr_failed_rows_find(rows, skr_db_tx(db), &wanted, give_row,
                                    named, error);
    if (code == SKR_OK && !wanted.found)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "%s is gone, a moment ago", named->name);
    skr_failed_rows_free(rows);
    return code;
}

enum skr_code
skr_blocked_find(const struct skr_config *config, const char *name,
                 skr_failed_found_fn *each, void *user, struct skr_error *error)
{
    struct named named = {
        .config = config, .name = name, .each = each, .user = user};
    return find_named(&named, give_head, error);
}

static enum skr_code
retry_head(const struct skr_blocked_head *head, void *user,
           struct skr_error *error)
{
    struct named *named = user;
    bool has_ended = true;
    enum skr_code code = SKR_OK;
    if (!named->dry_run)
        code =
            skr_messenger_end_blocked(named->ordered.table, named->ordered.db,
                                      head, false, &has_ended, error);
    if (code != SKR_OK || has_ended)
        return code;
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP, "%s is gone, a moment ago",
                    named->name);
}

enum skr_code
skr_blocked_retry(const struct skr_app *app, const struct skr_config *config,
                  struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    bool dry_run = skr_arguments_has(arguments, "dry-run");
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < arguments->positional_count && code == SKR_OK; i++) {
        const char *name = arguments->positional[i];
        if (!skr_blocked_is_name(name))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "%.60s: failed messages and blocked heads are "
                            "retried one kind at a time",
                            name);
        struct named named = {
            .config = config, .name = name, .dry_run = dry_run};
        code = find_named(&named, retry_head, error);
        if (code == SKR_OK)
            printf(
                "%s: %s\n", name,
                dry_run
                    ? "would be due"
                    : "is due within a second; its partition goes on once it "
                      "is sent");
    }
    return code;
}
