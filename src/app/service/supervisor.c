// SPDX-License-Identifier: MIT
// Runs workers in a thread each, with metrics, cleanup, the search for unread
// queues and the notifier beside them, passes signals on to them, and ends the
// process when one of them does not stop in time. After a SIGHUP, or when a
// file with credentials has changed, they run again under the new
// configuration.

#include "app/service/supervisor.h"

#include "app/admin/stats.h"
#include "app/console/signals.h"
#include "app/service/cleaner.h"
#include "app/service/metrics.h"
#include "app/service/notifier.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UNREAD_INTERVAL_S = 3600,
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

static bool
has_worked(const struct skr_app *app)
{
    return app->reload != NULL && app->reload->has_worked;
}

static bool
is_reload_due(const struct skr_app *app)
{
    return app->reload != NULL && app->reload->next != NULL &&
           !skr_signals_ask_stop();
}

struct worker {
    struct workers *all;
    void *self;  // of the task
    pthread_t thread;
    bool is_running;
    enum skr_code code;
    struct skr_error error;
};

struct workers {
    const struct skr_app *app;
    const struct skr_task *task;
    struct skr_environment environment;
    struct skr_metrics_options metrics_options;
    struct skr_metrics *metrics;
    struct skr_notifier *notifier;
    struct skr_cleaner *unread_watcher;  // NULL: none
    struct skr_cleaner *cleaner;         // NULL: none
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
        workers->task->stop(workers->items[i].self);
}

// What asks databases, within any thread.
static void
close_environment(struct workers *workers)
{
    skr_metrics_stop(workers->metrics);
    skr_cleaner_stop(workers->unread_watcher);
    skr_cleaner_stop(workers->cleaner);
    workers->metrics = NULL;
    workers->unread_watcher = NULL;
    workers->cleaner = NULL;
}

static void *
run_worker(void *user)
{
    struct worker *worker = user;
    const struct skr_task *task = worker->all->task;
    worker->code = task->run(worker->self, &worker->error);
    if (worker->code == SKR_STOPPED)
        worker->code = SKR_OK;
    if (task->ended != NULL)
        task->ended(worker->self, worker->code, &worker->error);
    // That may wait for a silent database, too, and has the same time to end.
    if (atomic_fetch_add(&worker->all->finished, 1) + 1 == worker->all->count)
        close_environment(worker->all);
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

// The transport that the command line names twice; NULL: none.
static const char *
find_repeated(const struct skr_arguments *arguments)
{
    for (size_t i = 0; i < arguments->positional_count; i++)
        if (skr_text_is_among(arguments->positional[i], arguments->positional,
                              i))
            return arguments->positional[i];
    return NULL;
}

static void
read_all(void *user, struct skr_report *report)
{
    const struct workers *workers = user;
    report->columns = workers->task->columns;
    for (size_t i = 0; i < workers->count; i++) {
        const struct skr_worker *worker = workers->items[i].self;
        skr_report_row_of(report, worker->name);
        workers->task->read(workers->items[i].self, report);
    }
}

static enum skr_code
init_environment(struct workers *workers, const struct skr_config *config,
                 struct skr_error *error)
{
    struct skr_environment *environment = &workers->environment;
    const struct skr_app *app = workers->app;
    const struct skr_arguments *arguments = app->arguments;
    environment->app = *app;
    enum skr_code code = skr_health_init(
        &environment->health, &app->log, arguments->positional,
        arguments->positional_count, workers->task->each, error);
    // A service that has worked goes on, whatever the new file says.
    environment->health.waits =
        skr_arguments_has(arguments, "wait") || has_worked(app);
    workers->metrics_options = (struct skr_metrics_options){
        .app = app,
        .config = config,
        .health = &environment->health,
        .read = read_all,
        .user = workers,
    };
    return code;
}

// At once and then rarely.
static void
search_unread(struct skr_cleaner *cleaner, const void *user)
{
    const struct workers *workers = user;
    struct skr_report unread = {.columns = skr_unread_columns};
    (void)cleaner;
    skr_unread_find(workers->app, workers->metrics_options.config, NULL,
                    &unread);
    for (size_t i = 0; i < skr_report_rows(&unread) && !unread.is_broken; i++)
        skr_log(
            &workers->app->log, SKR_LOG_WARNING, "config.unread_queue",
            SKR_LOG_TEXT("database",
                         skr_report_find(&unread, i, "database")->text),
            SKR_LOG_TEXT("table", skr_report_find(&unread, i, "table")->text),
            SKR_LOG_TEXT("queue", skr_report_find(&unread, i, "queue")->text),
            SKR_LOG_NUMBER("rows", skr_report_find(&unread, i, "rows")->number),
            SKR_LOG_TEXT("cure",
                         "no transport of this configuration reads them: "
                         "correct the queue_name of the rows, or add a "
                         "transport"));
    skr_report_fini(&unread);
}

static enum skr_code
start_environment(struct workers *workers, struct skr_error *error)
{
    const struct skr_app *app = workers->app;
    const struct skr_config *config = workers->metrics_options.config;
    enum skr_code code =
        skr_metrics_start(&workers->metrics_options, &workers->metrics, error);
    if (code == SKR_OK)
        code = skr_cleaner_start(
            &(struct skr_cleaner_options){
                .interval_s = config->cleanup.interval_s,
                .log = app->log,
                .clean = skr_cleaner_clean_configured,
                .user = config,
            },
            &workers->cleaner, error);
    if (code != SKR_OK)
        return code;
    workers->notifier =
        skr_notifier_start(&workers->environment.health, has_worked(app));
    // Without that thread work goes on.
    const struct skr_cleaner_options search = {
        .interval_s = UNREAD_INTERVAL_S,
        .log = app->log,
        .clean = search_unread,
        .user = workers,
    };
    if (skr_cleaner_start(&search, &workers->unread_watcher, NULL) != SKR_OK)
        workers->unread_watcher = NULL;
    return SKR_OK;
}

static void
stop_environment(struct workers *workers)
{
    skr_notifier_stop(workers->notifier, is_reload_due(workers->app));
    if (workers->app->reload != NULL &&
        skr_health_have_worked(&workers->environment.health))
        workers->app->reload->has_worked = true;
    close_environment(workers);
}

static enum skr_code
open_all(struct workers *workers, const struct skr_config *config, char *place,
         struct skr_error *error)
{
    const struct skr_arguments *arguments = workers->app->arguments;
    const struct skr_task *task = workers->task;
    size_t wanted = task->each * arguments->positional_count;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && workers->count < wanted) {
        struct skr_worker *worker =
            (void *)(place + workers->count * task->worker_size);
        *worker = (struct skr_worker){
            .environment = &workers->environment,
            .config = config,
            .name = arguments->positional[workers->count / task->each],
            .index = workers->count,
            .is_alone = wanted == 1,
        };
        workers->items[workers->count++] =
            (struct worker){.all = workers, .self = worker};
        code = task->open(worker, task->user, error);
    }
    for (size_t i = 0; i < workers->count && code == SKR_OK; i++)
        task->say_started(workers->items[i].self);
    return code;
}

static enum skr_code
run_workers(struct workers *workers, struct skr_error *error)
{
    size_t started = 0;
    enum skr_code code = start_environment(workers, error);
    int wake_fd = skr_signals_watch();
    if (code == SKR_OK && wake_fd < 0)
        code = skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "the system gives no eventfd");
    if (code != SKR_OK)
        return code;
    if (workers->app->reload != NULL)
        workers->app->reload->has_started = true;
    code = start_all(workers, &started, error);
    if (code != SKR_OK)
        stop_all(workers);
    wait_for_all(workers, started, wake_fd);
    return join_all(workers, code, error);
}

enum skr_code
skr_tasks_run(const struct skr_app *app, const struct skr_config *config,
              const struct skr_task *task, struct skr_error *error)
{
    size_t most = task->each * app->arguments->positional_count + 1;
    struct workers workers = {
        .app = app,
        .task = task,
        .items = calloc(most, sizeof(*workers.items)),
    };
    char *place = calloc(most, task->worker_size);
    enum skr_code code = workers.items == NULL || place == NULL
                             ? skr_fail_memory(error)
                             : init_environment(&workers, config, error);
    if (code == SKR_OK) {
        code = open_all(&workers, config, place, error);
        if (code == SKR_OK)
            code = run_workers(&workers, error);
        stop_environment(&workers);
        for (size_t i = 0; i < workers.count; i++)
            task->close(workers.items[i].self);
        skr_health_fini(&workers.environment.health);
    }
    free(place);
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
        if (code != SKR_OK || !is_reload_due(app))
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
    const char *repeated = find_repeated(app->arguments);
    if (repeated != NULL)
        return skr_app_usage(app, "transport %s is named twice; name it once%s",
                             repeated,
                             app->command->run == skr_command_consume
                                 ? " (--consumers=N starts more consumers)"
                                 : "");
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

struct skr_app
skr_environment_app(struct skr_environment *environment, size_t index)
{
    struct skr_app app = environment->app;
    app.log = skr_health_log(&environment->health, index);
    return app;
}

char *
skr_environment_place(const struct skr_config *config,
                      const struct skr_config_transport *transport)
{
    struct skr_text text = {0};
    bool is_table = transport->database != NULL;
    char *masked = skr_config_mask(config, is_table ? transport->database->url
                                                    : transport->dsn);
    skr_text_add_string(&text, masked == NULL ? "?" : masked);
    if (is_table)
        skr_text_add_format(&text, " %s/%s", transport->place.table,
                            transport->place.queue);
    free(masked);
    return skr_text_take(&text);
}
