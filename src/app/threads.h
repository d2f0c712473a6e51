// SPDX-License-Identifier: MIT
// Several things that run until they are stopped, a thread each.

#ifndef SKR_APP_THREADS_H
#define SKR_APP_THREADS_H

#include <skirnir/skirnir.h>

// SKR_STOPPED is as good an end as SKR_OK.
typedef enum skr_code skr_task_run_fn(void *user, struct skr_error *error);
// Ends the run, or the next one at its beginning. From any thread and from a
// signal handler.
typedef void skr_task_stop_fn(void *user);
// When a task has ended, from its thread.
typedef void skr_task_ended_fn(void *user, enum skr_code code,
                               const struct skr_error *error);

struct skr_task {
    skr_task_run_fn *run;
    skr_task_stop_fn *stop;
    skr_task_ended_fn *ended;  // NULL: nobody wants to know
    void *user;
};

// Runs all tasks and returns when the last has ended. SIGTERM and SIGINT stop
// them all; what ends one of them does not end another. The first error of the
// first task that had one is returned.
SKR_MUST_CHECK enum skr_code
skr_tasks_run(const struct skr_task *tasks, size_t count,
              struct skr_error *error);

#endif
