// SPDX-License-Identifier: MIT
// `skirnir failed retry` and `skirnir failed remove`: the messages that were
// named, or all that a filter lets pass, one by one.

#include "app/console/grid.h"
#include "app/console/progress.h"
#include "app/parts/blocked.h"
#include "app/parts/failed.h"
#include "app/parts/partitions.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct change {
    const struct skr_app *app;
    struct skr_failed_session *session;
    struct skr_failed_filter filter;
    int64_t ids[SKR_FAILED_MAX_IDS];
    size_t id_count;
    bool removes;  // else it retries
    bool dry_run;
    const char *to;
    struct skr_progress progress;
    uint64_t total;
    uint64_t done, skipped;
};

// To standard error, so that what is done can be counted on the output.
static void
say_skipped(struct change *change, int64_t id, const struct skr_error *reason)
{
    change->skipped++;
    skr_progress_clear(&change->progress);
    fprintf(stderr, "%lld: ", (long long)id);
    skr_print_plain(reason->text, strlen(reason->text), false, stderr);
    fprintf(stderr, "\n");
}

static void
say_done(struct change *change, const struct skr_failed_found *found,
         const struct skr_failed_target *target)
{
    const char *name = found->report->name == NULL ? "message without a name"
                                                   : found->report->name;
    bool in_detail = change->id_count > 0 || change->dry_run ||
                     skr_arguments_has(change->app->arguments, "verbose");
    if (!in_detail)
        return;
    skr_progress_clear(&change->progress);
    printf("%lld: ", (long long)found->row->id);
    skr_print_plain(name, strlen(name), false, stdout);
    if (change->removes)
        printf(" %s\n", change->dry_run ? "would be removed" : "removed");
    else
        printf(" %s %s (queue %s of %s)\n",
               change->dry_run ? "would go back to" : "back to",
               target->transport, target->queue, target->table);
    // Before the bar, which is not buffered, is drawn again.
    if (change->progress.is_shown)
        fflush(stdout);
}

// What is wrong with one message is said and does not stop the others; what
// is wrong with a database does.
static enum skr_code
change_one(const struct skr_failed_found *found, void *user,
           struct skr_error *error)
{
    struct change *change = user;
    struct skr_failed_target target = {.transport = NULL};
    struct skr_arena arena = {0};
    struct skr_error reason = {0};
    enum skr_code code = SKR_OK;
    int64_t id = found->row->id;
    if (!change->removes)
        code = skr_failed_find_target(change->session, found->report,
                                      change->to, &arena, &target, &reason);
    if (code == SKR_OK && !change->dry_run)
        code = change->removes ? skr_failed_remove(found->source, id, &reason)
                               : skr_failed_move(change->session, found->source,
                                                 id, &target, &reason);
    if (code == SKR_OK) {
        change->done++;
        say_done(change, found, &target);
    } else if (code == SKR_MISSING || code == SKR_REFUSED ||
               code == SKR_INVALID || code == SKR_MALFORMED) {
        say_skipped(change, id, &reason);
        code = SKR_OK;
    } else if (error != NULL) {
        *error = reason;
    }
    skr_arena_fini(&arena);
    if (code == SKR_OK && !skr_progress_step(&change->progress, 1))
        return SKR_STOPPED;
    return code;
}

static enum skr_code
change_named(struct change *change, struct skr_error *error)
{
    for (size_t i = 0; i < change->id_count && !skr_progress_is_stopped();
         i++) {
        struct skr_error reason = {0};
        enum skr_code code = skr_failed_find(change->session, change->ids[i],
                                             change_one, change, &reason);
        if (code == SKR_MISSING || code == SKR_INVALID) {
            change->skipped++;
            skr_progress_clear(&change->progress);
            fprintf(stderr, "%s\n", reason.text);
        } else if (code != SKR_OK && code != SKR_STOPPED) {
            *error = reason;
            return code;
        }
    }
    return SKR_OK;
}

static enum skr_code
count_one(const struct skr_failed_found *found, void *user,
          struct skr_error *error)
{
    (void)found;
    (void)error;
    ++*(uint64_t *)user;
    return SKR_OK;
}

// For the bar and for the question; without them the command does not wait for
// it.
static enum skr_code
count(struct change *change, bool is_asked, struct skr_error *error)
{
    change->total = change->id_count;
    if (change->id_count > 0 || (!is_asked && !isatty(STDERR_FILENO)))
        return SKR_OK;
    return skr_failed_each(change->session, &change->filter, false, count_one,
                           &change->total, error);
}

static bool
is_confirmed(const struct change *change)
{
    char question[80];
    snprintf(question, sizeof(question), "Remove %llu message%s for good?",
             (unsigned long long)change->total, change->total == 1 ? "" : "s");
    return skr_ask(question);
}

static void
print_summary(const struct change *change)
{
    const char *what = change->removes ? "removed" : "retried";
    printf("%llu message%s %s%s", (unsigned long long)change->done,
           change->done == 1 ? "" : "s", change->dry_run ? "would be " : "",
           what);
    if (change->skipped > 0)
        printf(", %llu left alone", (unsigned long long)change->skipped);
    printf("%s.\n", skr_progress_is_stopped() ? "; interrupted" : "");
}

// Blocked heads stand in their outbox, and of filters only the transport
// chooses among them.
static enum skr_code
remind_of_blocked(const struct change *change, struct skr_error *error)
{
    struct skr_failed_filter others = change->filter;
    others.transport = NULL;
    if (change->removes || change->id_count > 0 ||
        !skr_failed_filter_is_empty(&others))
        return SKR_OK;
    return skr_blocked_remind(change->session->config, change->filter.transport,
                              error);
}

static enum skr_code
change_all(struct change *change, struct skr_error *error)
{
    const struct skr_arguments *arguments = change->app->arguments;
    bool is_asked = change->removes && !change->dry_run &&
                    !skr_arguments_has(arguments, "force");
    enum skr_code code = count(change, is_asked, error);
    if (code != SKR_OK)
        return code;
    if (is_asked && change->total > 0 && !is_confirmed(change)) {
        printf("Nothing was removed.\n");
        return SKR_OK;
    }
    skr_progress_catch_signals();
    skr_progress_begin(&change->progress, change->total,
                       (uint32_t)skr_arguments_number(arguments, "rate", 0));
    code = change->id_count > 0
               ? change_named(change, error)
               : skr_failed_each(change->session, &change->filter, false,
                                 change_one, change, error);
    skr_progress_end(&change->progress);
    print_summary(change);
    if (code == SKR_OK)
        code = remind_of_blocked(change, error);
    if (code == SKR_OK && skr_progress_is_stopped())
        return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP,
                        "interrupted; what was done is done, and running it "
                        "again does the rest");
    if (code == SKR_OK && change->skipped > 0)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "%llu message%s left alone, for the reasons above",
                        (unsigned long long)change->skipped,
                        change->skipped == 1 ? " was" : "s were");
    return code;
}

static enum skr_code
run(const struct skr_app *app, const struct skr_config *config, bool removes,
    struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    struct skr_failed_session session;
    struct change change = {
        .app = app,
        .session = &session,
        .removes = removes,
        .dry_run = skr_arguments_has(arguments, "dry-run"),
        .to = skr_arguments_find(arguments, "to"),
    };
    const struct skr_config_transport *unused = NULL;
    enum skr_code code = SKR_OK;
    if (change.to != NULL)
        code = skr_config_find_transport(config, change.to, &unused, error);
    skr_failed_filter_read(arguments, &change.filter);
    if (code == SKR_OK)
        code = skr_failed_filter_check(app, &change.filter, config, error);
    if (code == SKR_OK)
        code =
            skr_failed_read_ids(arguments, change.ids, &change.id_count, error);
    if (code == SKR_OK)
        code = skr_failed_open(
            &session, config, skr_arguments_find(arguments, "database"), error);
    if (code != SKR_OK)
        return code;
    code = change_all(&change, error);
    skr_failed_close(&session);
    return code;
}

static enum skr_code
run_retry(const struct skr_app *app, const struct skr_config *config,
          struct skr_error *error)
{
    return run(app, config, false, error);
}

static enum skr_code
run_remove(const struct skr_app *app, const struct skr_config *config,
           struct skr_error *error)
{
    return run(app, config, true, error);
}

// Which messages are meant has to be said, and in one way.
static bool
says_which(struct skr_app *app, enum skr_exit *exit_code)
{
    int64_t ids[SKR_FAILED_MAX_IDS];
    size_t count = 0;
    struct skr_failed_filter filter;
    struct skr_error error;
    bool all = skr_arguments_has(app->arguments, "all");
    skr_failed_filter_read(app->arguments, &filter);
    bool filters = !skr_failed_filter_is_empty(&filter);
    if (skr_failed_read_ids(app->arguments, ids, &count, &error) != SKR_OK) {
        *exit_code = skr_app_usage(app, "%s", error.text);
        return false;
    }
    if (count == 0 && !all && !filters) {
        *exit_code =
            skr_app_usage(app, "which messages? Give their numbers, a filter "
                               "such as --transport, or --all");
        return false;
    }
    if (count > 0 && (all || filters)) {
        *exit_code =
            skr_app_usage(app, "numbers and filters exclude each other");
        return false;
    }
    return true;
}

enum skr_exit
skr_command_failed_retry(struct skr_app *app)
{
    enum skr_exit exit_code = SKR_EXIT_OK;
    // They are in an outbox still, and stay there.
    if (app->arguments->positional_count > 0 &&
        skr_blocked_is_name(app->arguments->positional[0]))
        return skr_app_run_configured(app, skr_blocked_retry);
    if (!says_which(app, &exit_code))
        return exit_code;
    return skr_app_run_configured(app, run_retry);
}

enum skr_exit
skr_command_failed_remove(struct skr_app *app)
{
    enum skr_exit exit_code = SKR_EXIT_OK;
    if (!says_which(app, &exit_code))
        return exit_code;
    if (!isatty(STDIN_FILENO) && !skr_arguments_has(app->arguments, "force") &&
        !skr_arguments_has(app->arguments, "dry-run"))
        return skr_app_usage(app, "there is no terminal to ask on; --force "
                                  "removes without asking");
    return skr_app_run_configured(app, run_remove);
}
