// SPDX-License-Identifier: MIT
// Runs a command, and again under a new configuration after a SIGHUP or when a
// file with credentials has changed.

#include "app/service/reloading.h"

#include "app/console/signals.h"
#include "base/clock.h"

enum {
    LOOK_MS = 2000,      // at files with credentials
    REFUSED_MS = 60000,  // after one that was of no use
};

static void
refuse(const struct skr_app *app, const struct skr_error *error)
{
    skr_log(&app->log, SKR_LOG_ERROR, "config.refused",
            SKR_LOG_TEXT("error", error->text));
}

bool
skr_reloading_try(const struct skr_app *app)
{
    struct skr_config *loaded = NULL;
    struct skr_error error = {0};
    // Not every command has a configuration.
    if (app->reloading == NULL)
        return false;
    const char *path = skr_arguments_find(app->arguments, "config");
    if (skr_config_load(path, NULL, NULL, &loaded, &error) != SKR_OK) {
        app->reloading->next_look_ms = skr_clock_ms() + REFUSED_MS;
        refuse(app, &error);
        return false;
    }
    skr_log(&app->log, SKR_LOG_INFO, "config.reloaded",
            SKR_LOG_TEXT("file", loaded->path));
    app->reloading->next = loaded;
    return true;
}

int64_t
skr_reloading_pause_ms(const struct skr_app *app)
{
    return app->reloading == NULL || app->reloading->present->file_count == 0
               ? -1
               : LOOK_MS;
}

bool
skr_reloading_is_needed(const struct skr_app *app)
{
    int64_t now_ms = skr_clock_ms();
    if (skr_reloading_pause_ms(app) < 0 ||
        now_ms < app->reloading->next_look_ms)
        return false;
    app->reloading->next_look_ms = now_ms + LOOK_MS;
    return skr_config_files_changed(app->reloading->present);
}

void
skr_reloading_note_start(const struct skr_app *app)
{
    if (app->reloading != NULL)
        app->reloading->has_started = true;
}

void
skr_reloading_note_work(const struct skr_app *app)
{
    if (app->reloading != NULL)
        app->reloading->has_worked = true;
}

bool
skr_reloading_has_worked(const struct skr_app *app)
{
    return app->reloading != NULL && app->reloading->has_worked;
}

bool
skr_reloading_is_due(const struct skr_app *app)
{
    return app->reloading->next != NULL && !skr_signals_ask_stop();
}

// Runs under one configuration after the other. *config is the last one that
// was of use.
static enum skr_code
run_all(struct skr_app *app, skr_configured_fn *run, struct skr_config **config,
        struct skr_error *error)
{
    struct skr_reloading *reloading = app->reloading;
    struct skr_config *before = NULL;
    for (;;) {
        reloading->has_started = false;
        reloading->present = *config;
        enum skr_code code = run(app, *config, error);
        if (code != SKR_OK && !reloading->has_started && before != NULL) {
            refuse(app, error);
            reloading->next_look_ms = skr_clock_ms() + REFUSED_MS;
            skr_config_free(*config);
            *config = before;
            before = NULL;
            continue;
        }
        skr_config_free(before);
        before = NULL;
        if (code != SKR_OK || !skr_reloading_is_due(app))
            return code;
        before = *config;
        *config = reloading->next;
        reloading->next = NULL;
    }
}

enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run)
{
    struct skr_reloading reloading = {.next = NULL};
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    if (skr_output_start_writer(app->output, &error) != SKR_OK)
        return skr_app_fail(app, &error);
    if (!skr_app_load(app, &config))
        return SKR_EXIT_CONFIG;
    enum skr_exit exit_code = SKR_EXIT_OK;
    app->reloading = &reloading;
    if (run_all(app, run, &config, &error) != SKR_OK)
        exit_code = skr_app_fail(app, &error);
    app->reloading = NULL;
    skr_config_free(reloading.next);
    skr_config_free(config);
    return exit_code;
}
