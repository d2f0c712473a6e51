// SPDX-License-Identifier: MIT
// Runs workers in a thread each, passes signals on to them, and ends the
// process when one of them does not stop in time. After a SIGHUP, or when a
// file with credentials has changed, they run again under the new
// configuration.

#include "app/service/supervisor.h"

#include "app/console/signals.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    IDLE_MS = 60000,
    LOOK_MS = 2000,      // at files with credentials
    REFUSED_MS = 60000,  // after one that was of no use
    // Workers have their own ways to end in time; this is for those that hang.
    GRACE_MS = 1000,
};

struct skr_reload {
    // Loaded and found good: what runs under the present one is to end, and run
    // again under this. NULL: none.
    struct skr_config *next;
    const struct skr_config *present;
    bool has_started;      // workers run, or ran, under the present one
    bool has_worked;       // under one before the present one
    int64_t next_look_ms;  // for files that have changed, by skr_clock_ms()
};

static void
refuse(const struct skr_app *app, const struct skr_error *error)
{
    skr_log(&app->log, SKR_LOG_ERROR, "config.refused",
            SKR_LOG_TEXT("error", error->text));
}

// Loads the configuration again, and says what comes of it. True: it is to be
// used. A bad one changes nothing.
static bool
try_reload(const struct skr_app *app)
{
    struct skr_config *loaded = NULL;
    struct skr_error error = {0};
    // Not every command has a configuration.
    if (app->reload == NULL)
        return false;
    const char *path = skr_arguments_find(app->arguments, "config");
    if (skr_config_load(path, (struct skr_config_listener){0}, &loaded,
                        &error) != SKR_OK) {
        app->reload->next_look_ms = skr_clock_ms() + REFUSED_MS;
        refuse(app, &error);
        return false;
    }
    skr_log(&app->log, SKR_LOG_INFO, "config.reloaded",
            SKR_LOG_TEXT("file", loaded->path));
    app->reload->next = loaded;
    return true;
}

// How long the process may sleep before it looks again.
static int64_t
reload_pause_ms(const struct skr_app *app)
{
    return app->reload == NULL || app->reload->present->file_count == 0
               ? IDLE_MS
               : LOOK_MS;
}

// Whether a file with credentials has changed: then they are rotated, and the
// old ones may end at any time. False too when it was asked for a moment ago.
static bool
needs_reload(const struct skr_app *app)
{
    int64_t now_ms = skr_clock_ms();
    if (reload_pause_ms(app) == IDLE_MS || now_ms < app->reload->next_look_ms)
        return false;
    app->reload->next_look_ms = now_ms + LOOK_MS;
    return skr_config_files_changed(app->reload->present);
}

void
skr_reload_note_work(const struct skr_app *app)
{
    if (app->reload != NULL)
        app->reload->has_worked = true;
}

bool
skr_reload_has_worked(const struct skr_app *app)
{
    return app->reload != NULL && app->reload->has_worked;
}

bool
skr_reload_is_due(const struct skr_app *app)
{
    return app->reload != NULL && app->reload->next != NULL &&
           !skr_signals_ask_stop();
}

struct worker {
    struct workers *all;
    void *item;
    pthread_t thread;
    bool is_running;
    enum skr_code code;
    struct skr_error error;
};

struct workers {
    const struct skr_app *app;
    const struct skr_task *task;
    struct worker *items;
    size_t count;
    atomic_size_t finished, ended;  // before and after what each leaves behind
    bool is_stopped;
    int64_t end_by_ms;  // 0: whenever
};

static void
stop_all(struct workers *workers)
{
    if (workers->is_stopped)
        return;
    workers->is_stopped = true;
    for (size_t i = 0; i < workers->count; i++)
        workers->task->stop(workers->items[i].item);
}

static void *
run_worker(void *user)
{
    struct worker *worker = user;
    const struct skr_task *task = worker->all->task;
    worker->code = task->run(worker->item, &worker->error);
    if (worker->code == SKR_STOPPED)
        worker->code = SKR_OK;
    if (task->ended != NULL)
        task->ended(worker->item, worker->code, &worker->error);
    // That may wait for a silent database, too, and has the same time to end.
    if (atomic_fetch_add(&worker->all->finished, 1) + 1 == worker->all->count)
        skr_environment_close(task->environment);
    atomic_fetch_add(&worker->all->ended, 1);
    skr_signals_wake();
    return NULL;
}

static enum skr_code
start_all(struct workers *workers, size_t *started, struct skr_error *error)
{
    for (*started = 0; *started < workers->count; ++*started) {
        struct worker *worker = &workers->items[*started];
        int failure = skr_thread_start(&worker->thread, run_worker, worker);
        if (failure != 0)
            return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                            "cannot start a thread: %s", strerror(failure));
        worker->is_running = true;
    }
    return SKR_OK;
}

// A process that is killed loses nothing: what a worker has in hand will be
// done again.
static void
end_in_time(struct workers *workers)
{
    int64_t timeout_s =
        skr_arguments_number(workers->app->arguments, "stop-timeout",
                             (int64_t)workers->task->stop_s);
    if (timeout_s == 0)
        return;
    if (workers->end_by_ms == 0)
        workers->end_by_ms = skr_clock_ms() + timeout_s * 1000 + GRACE_MS;
    if (skr_clock_ms() < workers->end_by_ms)
        return;
    skr_log(&workers->app->log, SKR_LOG_ERROR, "stop.timeout",
            SKR_LOG_NUMBER("seconds", timeout_s),
            SKR_LOG_NUMBER("workers",
                           workers->count - atomic_load(&workers->ended)));
    skr_output_end(workers->app->output);
    _exit(SKR_EXIT_FAILURE);
}

// What signals have asked for since the last time.
static void
heed_signals(struct workers *workers)
{
    if (skr_signals_ask_stop()) {
        stop_all(workers);
        end_in_time(workers);
    } else if (!workers->is_stopped &&
               (skr_signals_take_reload() || needs_reload(workers->app)) &&
               try_reload(workers->app)) {
        // Asked for once more meanwhile, it is for the next workers.
        stop_all(workers);
    }
}

static void
wait_for_all(struct workers *workers, size_t started, int wake_fd)
{
    while (atomic_load(&workers->ended) < started ||
           (workers->count == 0 && !skr_signals_ask_stop())) {
        heed_signals(workers);
        int64_t left_ms = workers->end_by_ms != 0
                              ? workers->end_by_ms - skr_clock_ms()
                              : reload_pause_ms(workers->app);
        if (skr_clock_sleep(wake_fd, left_ms))
            skr_signals_drain();
    }
}

static enum skr_code
join_all(struct workers *workers, enum skr_code code, struct skr_error *error)
{
    for (size_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->items[i];
        if (!worker->is_running)
            continue;
        pthread_join(worker->thread, NULL);
        if (code != SKR_OK || worker->code == SKR_OK)
            continue;
        code = worker->code;
        *error = worker->error;
    }
    return code;
}

static enum skr_code
run_workers(struct workers *workers, int wake_fd, struct skr_error *error)
{
    size_t started = 0;
    for (size_t i = 0; i < workers->count; i++) {
        workers->items[i].all = workers;
        workers->items[i].item =
            (char *)workers->task->items + i * workers->task->item_size;
    }
    enum skr_code code = start_all(workers, &started, error);
    if (code != SKR_OK)
        stop_all(workers);
    wait_for_all(workers, started, wake_fd);
    return join_all(workers, code, error);
}

enum skr_code
skr_tasks_run(const struct skr_app *app, const struct skr_task *task,
              struct skr_error *error)
{
    int wake_fd = skr_signals_watch();
    if (wake_fd < 0)
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "the system gives no eventfd");
    struct workers workers = {
        .app = app,
        .task = task,
        .items = calloc(task->count + 1, sizeof(*workers.items)),
        .count = task->count,
    };
    if (workers.items == NULL)
        return skr_fail_memory(error);
    if (app->reload != NULL)
        app->reload->has_started = true;
    enum skr_code code = run_workers(&workers, wake_fd, error);
    free(workers.items);
    return code;
}

// Runs under one configuration after the other. *config is the last one that
// was of use.
static enum skr_code
run_all(struct skr_app *app, skr_configured_fn *run, struct skr_config **config,
        struct skr_error *error)
{
    struct skr_reload *reload = app->reload;
    struct skr_config *before = NULL;
    for (;;) {
        reload->has_started = false;
        reload->present = *config;
        enum skr_code code = run(app, *config, error);
        if (code != SKR_OK && !reload->has_started && before != NULL) {
            refuse(app, error);
            reload->next_look_ms = skr_clock_ms() + REFUSED_MS;
            skr_config_free(*config);
            *config = before;
            before = NULL;
            continue;
        }
        skr_config_free(before);
        if (code != SKR_OK || !skr_reload_is_due(app))
            return code;
        before = *config;
        *config = reload->next;
        reload->next = NULL;
    }
}

enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run)
{
    struct skr_reload reload = {.next = NULL};
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    if (skr_output_start_writer(app->output, &error) != SKR_OK)
        return skr_app_fail(app, &error);
    if (!skr_app_load(app, &config))
        return SKR_EXIT_CONFIG;
    enum skr_exit exit_code = SKR_EXIT_OK;
    app->reload = &reload;
    if (run_all(app, run, &config, &error) != SKR_OK)
        exit_code = skr_app_fail(app, &error);
    app->reload = NULL;
    skr_config_free(reload.next);
    skr_config_free(config);
    return exit_code;
}
