// SPDX-License-Identifier: MIT
// Programs that run for weeks: workers in a thread each until they are stopped,
// under one configuration after the other.

#ifndef SKR_APP_SERVICE_SUPERVISOR_H
#define SKR_APP_SERVICE_SUPERVISOR_H

#include "app/service/worker_environment.h"

// SKR_STOPPED is as good an end as SKR_OK.
typedef enum skr_code skr_task_run_fn(void *item, struct skr_error *error);
// Ends the run, or the next one at its beginning. From another thread.
typedef void skr_task_stop_fn(void *item);
// When a task has ended, from its thread.
typedef void skr_task_ended_fn(void *item, enum skr_code code,
                               const struct skr_error *error);

// What is done with each item of an array.
struct skr_task {
    skr_task_run_fn *run;
    skr_task_stop_fn *stop;
    skr_task_ended_fn *ended;  // NULL: not called
    void *items;
    size_t item_size;
    size_t count;
    struct skr_environment *environment;  // closed by the last that ends
    // How long a stop may take where --stop-timeout does not say; 0: for ever.
    uint32_t stop_s;
};

// Runs the task on all items and returns when the last has ended. What ends one
// does not end another; the error of the first that had one is returned. With
// no items it waits for the signal that ends the process.
//
// SIGTERM and SIGINT stop them all. The process ends soon after the time that a
// stop may take although some, or the environment, are still at it. SIGHUP has
// the configuration loaded again, and stops them all if that is a good one.
SKR_MUST_CHECK enum skr_code
skr_tasks_run(const struct skr_app *app, const struct skr_task *task,
              struct skr_error *error);

// As skr_app_run_configured(), and again under each configuration that is good.
// One under which nothing can be started is given up, and the one before it
// runs on.
enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run);

// All workers were at work under the present configuration.
void skr_reload_note_work(const struct skr_app *app);
// Whether they were so under a configuration before the present one.
bool skr_reload_has_worked(const struct skr_app *app);

// Whether what ends now begins again under another configuration.
bool skr_reload_is_due(const struct skr_app *app);

#endif
