// SPDX-License-Identifier: MIT
// Runs workers in a thread each, passes signals on to them, and ends the
// process when one of them does not stop in time.

#include "app/service/threads.h"

#include "app/console/signals.h"
#include "app/service/reloading.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 60000,
    // Workers have their own ways to end in time; this is for those that hang.
    GRACE_MS = 1000,
};

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
    atomic_size_t ended;
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
               (skr_signals_take_reload() ||
                skr_reloading_is_needed(workers->app)) &&
               skr_reloading_try(workers->app)) {
        // Asked for once more meanwhile, it is for the next workers.
        stop_all(workers);
    }
}

static void
wait_for_all(struct workers *workers, size_t started, int wake_fd)
{
    while (atomic_load(&workers->ended) < started) {
        heed_signals(workers);
        int64_t pause_ms = skr_reloading_pause_ms(workers->app);
        int64_t left_ms = workers->end_by_ms != 0
                              ? workers->end_by_ms - skr_clock_ms()
                          : pause_ms > 0 ? pause_ms
                                         : LOOK_MS;
        if (skr_clock_sleep(wake_fd, left_ms > 0 ? left_ms : 0))
            skr_signals_drain();
    }
}

static enum skr_code
join_all(struct workers *workers, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
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
    struct skr_error later = {0};
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
    enum skr_code ended = join_all(workers, &later);
    if (code == SKR_OK && ended != SKR_OK)
        *error = later;
    return code == SKR_OK ? ended : code;
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
        .items = calloc(task->count, sizeof(*workers.items)),
        .count = task->count,
    };
    if (workers.items == NULL)
        return skr_fail_memory(error);
    skr_reloading_note_start(app);
    enum skr_code code = run_workers(&workers, wake_fd, error);
    free(workers.items);
    return code;
}
