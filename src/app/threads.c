// SPDX-License-Identifier: MIT
#include "app/threads.h"

#include "app/app.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

struct worker {
    const struct skr_task *task;
    pthread_t thread;
    bool is_running;
    enum skr_code code;
    struct skr_error error;
};

struct workers {
    struct worker *items;
    size_t count;
};

static void
stop_all(void *user)
{
    const struct workers *workers = user;
    for (size_t i = 0; i < workers->count; i++)
        workers->items[i].task->stop(workers->items[i].task->user);
}

static void *
run_worker(void *user)
{
    struct worker *worker = user;
    const struct skr_task *task = worker->task;
    worker->code = task->run(task->user, &worker->error);
    if (worker->code == SKR_STOPPED)
        worker->code = SKR_OK;
    if (task->ended != NULL)
        task->ended(task->user, worker->code, &worker->error);
    return NULL;
}

static enum skr_code
start_all(struct workers *workers, struct skr_error *error)
{
    for (size_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->items[i];
        int failure = skr_thread_start(&worker->thread, run_worker, worker);
        if (failure != 0)
            return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                            "cannot start a thread: %s", strerror(failure));
        worker->is_running = true;
    }
    return SKR_OK;
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

enum skr_code
skr_tasks_run(const struct skr_task *tasks, size_t count,
              struct skr_error *error)
{
    struct workers workers = {
        .items = calloc(count, sizeof(*workers.items)),
        .count = count,
    };
    struct skr_error later = {0};
    if (workers.items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        workers.items[i].task = &tasks[i];
    skr_signals_on_stop(stop_all, &workers);
    enum skr_code code = start_all(&workers, error);
    if (code != SKR_OK)
        stop_all(&workers);
    enum skr_code ended = join_all(&workers, &later);
    skr_signals_on_stop(NULL, NULL);
    free(workers.items);
    if (code == SKR_OK && ended != SKR_OK)
        *error = later;
    return code == SKR_OK ? ended : code;
}
