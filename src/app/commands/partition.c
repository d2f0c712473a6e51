// SPDX-License-Identifier: MIT
// `skirnir partition`: one partition by its key, or all that are blocked.

#include "app/admin/partitions.h"
#include "app/app.h"
#include "app/console/terminal.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "store/messenger/messenger.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 100 };

static bool
asks_to_skip(const struct skr_app *app)
{
    return strcmp(app->arguments->positional[0], "skip") == 0;
}

static enum skr_code
open_outbox(const struct skr_config *config,
            const struct skr_config_transport *outbox,
            struct skr_open_table *ordered, struct skr_error *error)
{
    enum skr_code code = skr_transport_open(config, outbox, ordered, error);
    if (code == SKR_OK)
        code = ordered->table->admin->check(ordered->table, ordered->db, error);
    return code;
}

static enum skr_code
run_one(const struct skr_app *app, const struct skr_config *config,
        struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    const struct skr_config_transport *outbox = NULL;
    struct skr_open_table ordered = {.db = NULL};
    int64_t row = 0;
    bool skips = asks_to_skip(app);
    enum skr_code code = skr_transport_choose_outbox(
        config, skr_arguments_find(arguments, "transport"), true, &outbox,
        error);
    if (code == SKR_OK)
        code = open_outbox(config, outbox, &ordered, error);
    if (code == SKR_OK)
        code = skr_messenger_end_block(ordered.table, ordered.db,
                                       arguments->positional[1], skips, &row,
                                       error);
    skr_transport_close(&ordered);
    if (code != SKR_OK)
        return code;
    printf(skips ? "%s: row %lld moved to the failed table; its partition "
                   "goes on\n"
                 : "%s: row %lld is due within a second; its partition goes "
                   "on once it is sent\n",
           outbox->name, (long long)row);
    return SKR_OK;
}

// All blocked heads, outbox by outbox and page by page.
struct bulk {
    const char *transport;   // whose turn it is
    const char *error_text;  // NULL: whatever the reason
    bool skips;              // else it retries
    bool dry_run;
    struct skr_open_table ordered;
    int64_t last;  // row that was looked at
    size_t in_page;
    uint64_t done, left, failed;
};

// What is wrong with one head is said and does not stop the others.
static enum skr_code
end_one(const struct skr_blocked_head *head, void *user,
        struct skr_error *error)
{
    struct bulk *bulk = user;
    struct skr_error reason = {0};
    bool ended = true;
    bulk->last = head->row;
    bulk->in_page++;
    if (bulk->error_text != NULL &&
        strstr(head->reason, bulk->error_text) == NULL)
        return SKR_OK;
    enum skr_code code = SKR_OK;
    if (!bulk->dry_run)
        code = skr_messenger_end_blocked(bulk->ordered.table, bulk->ordered.db,
                                         head, bulk->skips, &ended, &reason);
    if (code != SKR_OK && (reason.remedy == SKR_RECONNECT ||
                           code == SKR_MISSING || code == SKR_NO_MEMORY))
        return skr_fail_with(error, &reason);
    if (code != SKR_OK) {
        bulk->failed++;
        fprintf(stderr, "%s/%lld: ", bulk->transport, (long long)head->row);
        skr_print_plain(reason.text, strlen(reason.text), false, stderr);
        fprintf(stderr, "\n");
    } else if (ended) {
        bulk->done++;
    } else {
        bulk->left++;
    }
    return SKR_OK;
}

static enum skr_code
end_all_of(struct bulk *bulk, const struct skr_config *config,
           const struct skr_config_transport *outbox, struct skr_error *error)
{
    struct skr_blocked_page page = {.max = PAGE};
    bulk->transport = outbox->name;
    bulk->last = 0;
    enum skr_code code = open_outbox(config, outbox, &bulk->ordered, error);
    do {
        bulk->in_page = 0;
        page.after = bulk->last;
        if (code == SKR_OK)
            code = skr_messenger_each_blocked(bulk->ordered.table,
                                              bulk->ordered.db, &page, end_one,
                                              bulk, error);
    } while (code == SKR_OK && bulk->in_page == PAGE);
    skr_transport_close(&bulk->ordered);
    return code;
}

static void
print_summary(const struct bulk *bulk)
{
    bool is_one = bulk->done == 1;
    printf("%llu blocked head%s ", (unsigned long long)bulk->done,
           is_one ? "" : "s");
    if (bulk->dry_run)
        printf(bulk->skips ? "would be moved to the failed table."
                           : "would be made due.");
    else if (bulk->skips)
        printf("moved to the failed table; %s.",
               is_one ? "its partition goes on" : "their partitions go on");
    else
        printf(is_one ? "is due within a second; its partition goes on once it "
                        "is sent."
                      : "are due within a second; their partitions go on once "
                        "they are sent.");
    if (bulk->left > 0)
        printf(" %llu %s left alone: %s no partition any more.",
               (unsigned long long)bulk->left, bulk->left == 1 ? "was" : "were",
               bulk->left == 1 ? "it blocks" : "they block");
    printf("\n");
}

// Without a name all are meant, of which there is one at least.
static enum skr_code
check_transport(const struct skr_config *config, const char *name,
                struct skr_error *error)
{
    const struct skr_config_transport *unused = NULL;
    for (size_t i = 0; name == NULL && i < config->transport_count; i++)
        if (skr_ordered_is_meant(&config->transports[i], NULL))
            return SKR_OK;
    return skr_transport_choose_outbox(config, name, true, &unused, error);
}

static enum skr_code
run_all(const struct skr_app *app, const struct skr_config *config,
        struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    const char *only = skr_arguments_find(arguments, "transport");
    struct bulk bulk = {
        .error_text = skr_arguments_find(arguments, "error"),
        .skips = asks_to_skip(app),
        .dry_run = skr_arguments_has(arguments, "dry-run"),
    };
    enum skr_code code = check_transport(config, only, error);
    if (code != SKR_OK)
        return code;
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++)
        if (skr_ordered_is_meant(&config->transports[i], only))
            code = end_all_of(&bulk, config, &config->transports[i], error);
    print_summary(&bulk);
    if (code == SKR_OK && bulk.failed > 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%llu blocked head%s left alone, for the reasons above",
                        (unsigned long long)bulk.failed,
                        bulk.failed == 1 ? " was" : "s were");
    return code;
}

enum skr_exit
skr_command_partition(struct skr_app *app)
{
    const struct skr_arguments *arguments = app->arguments;
    const char *what = arguments->positional[0];
    bool has_key = arguments->positional_count > 1;
    bool all = skr_arguments_has(arguments, "all");
    if (strcmp(what, "skip") != 0 && strcmp(what, "retry") != 0)
        return skr_app_usage(app, "'%s' is unknown; skip or retry", what);
    if (has_key && all)
        return skr_app_usage(app, "KEY and --all exclude each other");
    if (!all && (skr_arguments_has(arguments, "error") ||
                 skr_arguments_has(arguments, "dry-run")))
        return skr_app_usage(app, "--error and --dry-run go with --all");
    if (!has_key && !all)
        return skr_app_usage(app, "which partition? Give its key, or --all");
    return skr_app_run_configured(app, all ? run_all : run_one);
}
