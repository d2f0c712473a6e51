// SPDX-License-Identifier: MIT
// Relays, a thread each: what stops one of them does not stop another.

#include "app/app.h"
#include "app/relaying.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

struct job {
    struct skr_relaying relaying;
    pthread_t thread;
    bool is_running;
    enum skr_code code;
    struct skr_error error;
};

struct jobs {
    struct job *items;
    size_t count;
};

static void
stop_all(void *user)
{
    const struct jobs *jobs = user;
    for (size_t i = 0; i < jobs->count; i++)
        skr_relay_stop(jobs->items[i].relaying.relay);
}

static void *
run_job(void *user)
{
    struct job *job = user;
    job->code = skr_relay_run(job->relaying.relay, &job->error);
    return NULL;
}

static enum skr_code
start_all(struct jobs *jobs, struct skr_error *error)
{
    for (size_t i = 0; i < jobs->count; i++) {
        int failure =
            skr_thread_start(&jobs->items[i].thread, run_job, &jobs->items[i]);
        if (failure != 0)
            return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                            "cannot start a thread: %s", strerror(failure));
        jobs->items[i].is_running = true;
    }
    return SKR_OK;
}

static enum skr_code
join_all(struct jobs *jobs, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < jobs->count; i++) {
        struct job *job = &jobs->items[i];
        if (!job->is_running)
            continue;
        pthread_join(job->thread, NULL);
        if (code != SKR_OK || job->code == SKR_OK || job->code == SKR_STOPPED)
            continue;
        code = job->code;
        *error = job->error;
    }
    return code;
}

static enum skr_code
run_all(struct jobs *jobs, struct skr_error *error)
{
    skr_signals_on_stop(stop_all, jobs);
    enum skr_code code = start_all(jobs, error);
    if (code != SKR_OK)
        stop_all(jobs);
    struct skr_error later = {0};
    enum skr_code ended = join_all(jobs, &later);
    skr_signals_on_stop(NULL, NULL);
    if (code == SKR_OK && ended != SKR_OK)
        *error = later;
    return code == SKR_OK ? ended : code;
}

static enum skr_code
check_names(const struct skr_arguments *arguments, struct skr_error *error)
{
    for (size_t i = 0; i < arguments->positional_count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(arguments->positional[i], arguments->positional[k]) == 0)
                return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                "transport %s is named twice",
                                arguments->positional[i]);
    return SKR_OK;
}

enum skr_code
skr_relay_run_configured(const struct skr_app *app,
                         const struct skr_config *config,
                         struct skr_error *error)
{
    const struct skr_arguments *arguments = app->arguments;
    enum skr_code code = check_names(arguments, error);
    if (code != SKR_OK)
        return code;
    struct jobs jobs = {
        .items = calloc(arguments->positional_count, sizeof(struct job)),
    };
    if (jobs.items == NULL)
        return skr_fail_memory(error);
    while (code == SKR_OK && jobs.count < arguments->positional_count) {
        code = skr_relaying_init(&jobs.items[jobs.count].relaying, app, config,
                                 arguments->positional[jobs.count], error);
        jobs.count++;
    }
    if (code == SKR_OK)
        code = run_all(&jobs, error);
    for (size_t i = 0; i < jobs.count; i++)
        skr_relaying_fini(&jobs.items[i].relaying);
    free(jobs.items);
    return code;
}

enum skr_exit
skr_command_relay(struct skr_app *app)
{
    return skr_app_run_configured(app, skr_relay_run_configured);
}
