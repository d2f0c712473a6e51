// SPDX-License-Identifier: MIT
// Starts and stops health, metrics, cleanup, the search for unread queues and
// the notifier as one, for relays and consumers alike.

#include "app/service/serving.h"

#include "app/parts/cleaner.h"
#include "app/service/notifier.h"
#include "app/service/reloading.h"
#include "base/error.h"

#include <string.h>

static enum skr_code
check_names(const struct skr_arguments *arguments, struct skr_error *error)
{
    for (size_t i = 0; i < arguments->positional_count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(arguments->positional[i], arguments->positional[k]) == 0)
                return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                "transport %s is named twice; name it once "
                                "(for more consumers of it there is "
                                "--consumers)",
                                arguments->positional[i]);
    return SKR_OK;
}

enum skr_code
skr_serving_init(struct skr_serving *serving, const struct skr_app *app,
                 const struct skr_config *config, size_t each,
                 struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    enum skr_code code = check_names(arguments, error);
    if (code != SKR_OK)
        return code;
    *serving = (struct skr_serving){.app = *app};
    serving->options = (struct skr_metrics_options){
        .app = app,
        .config = config,
        .health = &serving->health,
    };
    serving->unread = (struct skr_unread_watch){
        .config = config,
        .names = arguments->positional,
        .name_count = arguments->positional_count,
        .log = app->log,
    };
    code = skr_health_init(&serving->health, &app->log, arguments->positional,
                           arguments->positional_count, each, error);
    // A service that has worked goes on, whatever the new file says.
    serving->health.waits =
        skr_arguments_has(arguments, "wait") || skr_reloading_has_worked(app);
    return code;
}

void *
skr_serving_worker(struct skr_serving *serving, size_t index)
{
    return &serving->health.workers[index];
}

struct skr_app
skr_serving_app(struct skr_serving *serving, size_t index)
{
    struct skr_app app = serving->app;
    app.log = skr_health_log(&serving->health, index);
    return app;
}

enum skr_code
skr_serving_start(struct skr_serving *serving, skr_metrics_read_fn *read,
                  void *user, struct skr_error *error)
{
    serving->options.read = read;
    serving->options.user = user;
    enum skr_code code =
        skr_metrics_start(&serving->options, &serving->metrics, error);
    if (code != SKR_OK)
        return code;
    code = skr_cleaner_start(
        &(struct skr_cleaner_options){
            .interval_s = serving->options.config->cleanup_interval_s,
            .log = serving->app.log,
            .clean = skr_cleaner_clean_configured,
            .user = serving->options.config,
        },
        &serving->cleaner, error);
    if (code != SKR_OK)
        return code;
    serving->notifier = skr_notifier_start(
        &serving->health, skr_reloading_has_worked(&serving->app));
    serving->unread_watcher = skr_unread_start(&serving->unread);
    return SKR_OK;
}

void
skr_serving_stop(struct skr_serving *serving)
{
    skr_notifier_stop(serving->notifier, skr_reloading_is_due(&serving->app));
    if (skr_health_have_worked(&serving->health))
        skr_reloading_note_work(&serving->app);
    skr_metrics_stop(serving->metrics);
    skr_cleaner_stop(serving->unread_watcher);
    skr_cleaner_stop(serving->cleaner);
    serving->notifier = NULL;
    serving->metrics = NULL;
    serving->unread_watcher = NULL;
    serving->cleaner = NULL;
}

void
skr_serving_fini(struct skr_serving *serving)
{
    skr_health_fini(&serving->health);
}
