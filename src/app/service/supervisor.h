// SPDX-License-Identifier: MIT
// Programs that run for weeks: workers in a thread each until they are stopped,
// under one configuration after the other, with what surrounds them: health,
// metrics, and what the service manager wants to hear.

#ifndef SKR_APP_SERVICE_SUPERVISOR_H
#define SKR_APP_SERVICE_SUPERVISOR_H

#include "app/app.h"
#include "app/report/report.h"
#include "app/service/health.h"

// What the workers of a process share.
struct skr_environment {
    struct skr_app app;  // as the one given
    struct skr_health health;
};
// What a worker is made with: its events are noted, and its alone.
struct skr_app
skr_environment_app(struct skr_environment *environment, size_t index);

// Where a transport is, as the line says that a worker begins with: in a
// database its table and queue, else its DSN. Secrets are masked. NULL: memory
// is out; the caller frees it.
char *skr_environment_place(const struct skr_config *config,
                            const struct skr_config_transport *transport);

// One of the workers of a task; the struct of each begins with this.
struct skr_worker {
    struct skr_environment *environment;
    const struct skr_config *config;
    const char *name;  // of its transport
    size_t index;      // among all
    bool is_alone;
};

// What is done for each transport that the arguments name. The struct of a
// worker is zeroed before open(), and is not moved.
struct skr_task {
    size_t worker_size;
    size_t each;  // so many workers for a transport
    void *user;
    enum skr_code (*open)(void *worker, void *user, struct skr_error *error);
    void (*say_started)(void *worker);  // once all are open
    // SKR_STOPPED is as good an end as SKR_OK.
    enum skr_code (*run)(void *worker, struct skr_error *error);
    // Ends the run, or the next one at its beginning. From another thread.
    void (*stop)(void *worker);
    // When it has ended, from its thread; NULL: not called.
    void (*ended)(void *worker, enum skr_code code,
                  const struct skr_error *error);
    void (*close)(void *worker);  // also after an open() that failed
    // Its figures, for the row of its transport.
    struct skr_columns columns;
    void (*read)(void *worker, struct skr_report *report);
    // How long a stop may take where --stop-timeout does not say; 0: for ever.
    uint32_t stop_s;
};

// Runs all workers and returns when the last has ended. What ends one does not
// end another; the error of the first that had one is returned. Without workers
// it waits for the signal that ends the process.
//
// SIGTERM and SIGINT stop them all. The process ends soon after the time that a
// stop may take although some, or what asks databases beside them, are still at
// it. SIGHUP has the configuration loaded again, and stops them all if that is
// a good one.
SKR_MUST_CHECK enum skr_code
skr_tasks_run(const struct skr_app *app, const struct skr_config *config,
              const struct skr_task *task, struct skr_error *error);

// As skr_app_run_configured(), and again under each configuration that is good.
// One under which nothing can be started is given up, and the one before it
// runs on.
enum skr_exit
skr_app_run_reloading(struct skr_app *app, skr_configured_fn *run);

#endif
