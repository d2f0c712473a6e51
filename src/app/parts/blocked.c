// SPDX-License-Identifier: MIT
// Finds the blocked head that TRANSPORT/ROW names, and makes it due again, for
// the commands `skirnir failed`.

#include "app/parts/blocked.h"

#include "app/parts/partitions.h"
#include "base/arena.h"
#include "base/error.h"
#include "store/messenger/messenger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    char *end = NULL;
    errno = 0;
    *row = strtoll(slash + 1, &end, 10);
    if (end == slash + 1 || *end != '\0' || errno != 0 ||
        (size_t)(slash - name) >= sizeof(transport))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.80s is no blocked head; those are named "
                        "TRANSPORT/ROW, as `skirnir failed show` lists them",
                        name);
    memcpy(transport, name, (size_t)(slash - name));
    transport[slash - name] = '\0';
    enum skr_code code =
        skr_config_find_transport(config, transport, outbox, error);
    if (code == SKR_OK && !(*outbox)->is_ordered)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s is %s://, which has no partitions",
                        transport, (*outbox)->scheme);
    return code;
}

// A blocked head that the command line names.
struct named {
    const struct skr_config *config;
    const struct skr_config_transport *outbox;
    int64_t row;
    const char *name;
    const char *key, *reason;
    struct skr_ordered ordered;
    struct skr_arena arena;
};

static enum skr_code
keep_head(const struct skr_blocked_head *head, void *user,
          struct skr_error *error)
{
    struct named *named = user;
    named->key = skr_arena_text(&named->arena, head->key, strlen(head->key));
    named->reason =
        skr_arena_text(&named->arena, head->reason, strlen(head->reason));
    return named->key == NULL || named->reason == NULL ? skr_fail_memory(error)
                                                       : SKR_OK;
}

static enum skr_code
open_named(struct named *named, struct skr_error *error)
{
    enum skr_code code = read_name(named->config, named->name, &named->outbox,
                                   &named->row, error);
    if (code == SKR_OK)
        code = skr_ordered_open(named->config, named->outbox, &named->ordered,
                                error);
    if (code == SKR_OK)
        code =
            skr_messenger_find_blocked(named->ordered.table, named->ordered.db,
                                       named->row, keep_head, named, error);
    return code;
}

static void
close_named(struct named *named)
{
    skr_ordered_close(&named->ordered);
    skr_arena_fini(&named->arena);
}

struct giving {
    struct named *named;
    skr_failed_found_fn *each;
    void *user;
};

static enum skr_code
give_row(const struct skr_failed_row *row, void *user, struct skr_error *error)
{
    const struct giving *giving = user;
    struct named *named = giving->named;
    struct skr_failure_report report;
    enum skr_code code =
        skr_failure_read(&named->arena, row->headers, row->headers_size,
                         &named->config->names, &report, error);
    if (code != SKR_OK)
        return code;
    report.transport = named->outbox->name;
    // One that cannot be understood does not tell it.
    report.error_text = named->reason;
    const struct skr_failed_found found = {.blocked_head = named->name,
                                           .partition = named->key,
                                           .database = named->outbox->database,
                                           .row = row,
                                           .report = &report};
    return giving->each(&found, giving->user, error);
}

// The row is read as those of the failed table are.
static enum skr_code
read_named(struct named *named, skr_failed_found_fn *each, void *user,
           struct skr_error *error)
{
    struct giving giving = {.named = named, .each = each, .user = user};
    struct skr_db *db = named->ordered.db;
    struct skr_failed_rows *rows = NULL;
    bool found = false;
    const struct skr_failed_rows_options options = {
        .dialect = skr_db_dialect(db),
        .table = named->outbox->table_name,
        .queue = named->outbox->queue_name,
        .time_zone = named->outbox->time_zone,
    };
    enum skr_code code = skr_failed_rows_new(&options, &rows, error);
    if (code == SKR_OK)
        code = skr_failed_rows_find(rows, skr_db_tx(db), named->row, give_row,
                                    &giving, &found, error);
    if (code == SKR_OK && !found)
        code = skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "%s is gone, a moment ago", named->name);
    skr_failed_rows_free(rows);
    return code;
}

enum skr_code
skr_blocked_find(const struct skr_config *config, const char *name,
                 skr_failed_found_fn *each, void *user, struct skr_error *error)
{
    struct named named = {.config = config, .name = name};
    enum skr_code code = open_named(&named, error);
    if (code == SKR_OK)
        code = read_named(&named, each, user, error);
    close_named(&named);
    return code;
}

static enum skr_code
retry_one(const struct skr_config *config, const char *name, bool dry_run,
          struct skr_error *error)
{
    struct named named = {.config = config, .name = name};
    int64_t retried = 0;
    enum skr_code code = open_named(&named, error);
    if (code == SKR_OK && !dry_run)
        code = skr_messenger_end_block(named.ordered.table, named.ordered.db,
                                       named.key, false, &retried, error);
    close_named(&named);
    return code;
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
        code = retry_one(config, name, dry_run, error);
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
