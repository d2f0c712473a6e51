// SPDX-License-Identifier: MIT
// Relays, a thread each: what stops one of them does not stop another.

#include "app/app.h"
#include "app/cleaner.h"
#include "app/relaying.h"
#include "app/threads.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static enum skr_code
run_relay(void *user, struct skr_error *error)
{
    const struct skr_relaying *relaying = user;
    return skr_relay_run(relaying->relay, error);
}

static void
stop_relay(void *user)
{
    const struct skr_relaying *relaying = user;
    skr_relay_stop(relaying->relay);
}

static enum skr_code
run_all(struct skr_relaying *relayings, size_t count, struct skr_error *error)
{
    struct skr_task *tasks = calloc(count, sizeof(*tasks));
    if (tasks == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        tasks[i] = (struct skr_task){
            .run = run_relay, .stop = stop_relay, .user = &relayings[i]};
    enum skr_code code = skr_tasks_run(tasks, count, error);
    free(tasks);
    return code;
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
    size_t count = 0;
    struct skr_relaying *relayings =
        calloc(arguments->positional_count, sizeof(*relayings));
    if (relayings == NULL)
        return skr_fail_memory(error);
    while (code == SKR_OK && count < arguments->positional_count) {
        code = skr_relaying_init(&relayings[count], app, config,
                                 arguments->positional[count], error);
        count++;
    }
    struct skr_cleaner *cleaner = NULL;
    if (code == SKR_OK)
        code = skr_cleaner_start(config, &app->log, &cleaner, error);
    if (code == SKR_OK)
        code = run_all(relayings, count, error);
    skr_cleaner_stop(cleaner);
    for (size_t i = 0; i < count; i++)
        skr_relaying_fini(&relayings[i]);
    free(relayings);
    return code;
}

enum skr_exit
skr_command_relay(struct skr_app *app)
{
    return skr_app_run_configured(app, skr_relay_run_configured);
}
