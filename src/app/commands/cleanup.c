// SPDX-License-Identifier: MIT
// `skirnir cleanup-outbox` and `skirnir deduplication-cleanup`.

#include "app/console/progress.h"
#include "app/service/cleaner.h"
#include "base/error.h"

#include <stdio.h>

static struct skr_cleaning
read_cleaning(const struct skr_arguments *arguments, int64_t days,
              struct skr_progress *progress)
{
    struct skr_cleaning cleaning = skr_cleaner_shown_pace(
        progress, (uint32_t)(skr_arguments_number(arguments, "days", days) *
                             SKR_CLEANER_DAY_S));
    cleaning.batch_size = (uint32_t)skr_arguments_number(
        arguments, "batch-size", SKR_CLEANER_BATCH);
    cleaning.dry_run = skr_arguments_has(arguments, "dry-run");
    return cleaning;
}

static void
print_count(const char *what, const struct skr_cleaning *cleaning,
            uint64_t rows)
{
    printf("%s: %llu row%s older than %u days %sremoved.\n", what,
           (unsigned long long)rows, rows == 1 ? "" : "s",
           cleaning->age_s / SKR_CLEANER_DAY_S,
           cleaning->dry_run ? "would be " : "");
}

// Where rows are refused the other tables are cleaned all the same; it is told
// in the end.
static enum skr_code
keep_refusal(enum skr_code code, const struct skr_error *error,
             struct skr_error *refusal)
{
    if (code != SKR_REFUSED)
        return code;
    *refusal = *error;
    return SKR_OK;
}

static enum skr_code
end(const struct skr_error *refusal, struct skr_error *error)
{
    if (!skr_progress_is_stopped())
        return refusal->code == SKR_OK ? SKR_OK : skr_fail_with(error, refusal);
    return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                    "interrupted; what was removed is removed, and running it "
                    "again does the rest");
}

static enum skr_code
clean_transport(const struct skr_config *config,
                const struct skr_config_transport *transport,
                const struct skr_cleaning *cleaning, struct skr_error *error)
{
    uint64_t removed = 0;
    enum skr_code code = skr_cleaner_clean_transport(config, transport,
                                                     cleaning, &removed, error);
    skr_progress_clear(cleaning->user);
    if (code == SKR_OK || removed > 0)
        print_count(transport->name, cleaning, removed);
    return code;
}

// The transports that are named, or all outboxes.
enum skr_code
skr_command_cleanup_outbox(const struct skr_app *app,
                           const struct skr_config *config,
                           struct skr_error *error)
{
    size_t named = app->arguments->positional_count;
    struct skr_progress progress;
    const struct skr_cleaning cleaning =
        read_cleaning(app->arguments, 7, &progress);
    struct skr_error refusal = {.code = SKR_OK};
    enum skr_code code = SKR_OK;
    skr_progress_begin(&progress, 0, 0);
    skr_progress_catch_signals();
    for (size_t i = 0;
         i < (named > 0 ? named : config->transport_count) && code == SKR_OK;
         i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (named > 0)
            code = skr_config_find_transport(
                config, app->arguments->positional[i], &transport, error);
        if (code != SKR_OK)
            return code;
        if (skr_cleaner_has_table(config, transport) &&
            (named > 0 || transport->kind == SKR_TRANSPORT_OUTBOX))
            code = keep_refusal(
                clean_transport(config, transport, &cleaning, error), error,
                &refusal);
        else if (named > 0)
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "transport %s has no table of sent messages",
                            transport->name);
    }
    return code == SKR_OK ? end(&refusal, error) : code;
}

enum skr_code
skr_command_deduplication_cleanup(const struct skr_app *app,
                                  const struct skr_config *config,
                                  struct skr_error *error)
{
    struct skr_progress progress;
    const struct skr_cleaning cleaning =
        read_cleaning(app->arguments, 30, &progress);
    struct skr_deduplication_place place;
    struct skr_error refusal = {.code = SKR_OK};
    size_t at = 0;
    if (config->inbox_database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no database is called default; name another in "
                        "message_broker.inbox.database");
    skr_progress_begin(&progress, 0, 0);
    skr_progress_catch_signals();
    enum skr_code code = SKR_OK;
    while (code == SKR_OK &&
           skr_deduplication_place_next(config, &at, &place)) {
        uint64_t removed = 0;
        code = skr_cleaner_clean_deduplication(config, &place, &cleaning,
                                               &removed, error);
        // A table of a transport is made when its first consumer is.
        bool is_unmade = code == SKR_MISSING && at > 1;
        skr_progress_clear(&progress);
        if (is_unmade)
            code = SKR_OK;
        else if (code == SKR_OK || removed > 0)
            print_count(place.table, &cleaning, removed);
        code = keep_refusal(code, error, &refusal);
    }
    skr_progress_end(&progress);
    return code == SKR_OK ? end(&refusal, error) : code;
}
