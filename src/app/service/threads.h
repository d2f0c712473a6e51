// SPDX-License-Identifier: MIT
// Several things that run until they are stopped, a thread each.

#ifndef SKR_APP_SERVICE_THREADS_H
#define SKR_APP_SERVICE_THREADS_H

#include "app/app.h"

// SKR_STOPPED is as good an end as SKR_OK.
typedef enum skr_code skr_task_run_fn(void *item, struct skr_error *error);
// Ends the run, or the next one at its beginning. From another thread.
typedef void skr_task_stop_fn(void *item);
// When a task has ended, from its thread.
typedef void skr_task_ended_fn(void *item, enum skr_code code,
                               const struct skr_error *error);

// For stop_s of a relay, which finishes in half of this; it is for one that
// waits for an answer of its database, and less than what service managers have
// patience for.
enum { SKR_RELAY_STOP_S = 15 };

// What is done with each item of an array.
struct skr_task {
    skr_task_run_fn *run;
    skr_task_stop_fn *stop;
    skr_task_ended_fn *ended;  // NULL: not called
    void *items;
    size_t item_size;
    size_t count;
    // How long a stop may take where --stop-timeout does not say; 0: for ever.
    uint32_t stop_s;
};

// Runs the task on all items and returns when the last has ended. What ends one
// does not end another; the error of the first that had one is returned.
//
// SIGTERM and SIGINT stop them all. The process ends soon after the time that a
// stop may take although some are still at it. SIGHUP has the
// configuration loaded again, and stops them all if that is a good one.
SKR_MUST_CHECK enum skr_code
skr_tasks_run(const struct skr_app *app, const struct skr_task *task,
              struct skr_error *error);

#endif
