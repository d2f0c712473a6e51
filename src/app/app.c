// SPDX-License-Identifier: MIT
// What commands share: loading the configuration, printing an error, and the
// limits of time and memory at which a worker stops.

#include "app/app.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum skr_exit
skr_app_fail(const struct skr_app *app, const struct skr_error *error)
{
    skr_output_say(app->output, SKR_LOG_ERROR, "skirnir %s: %s",
                   app->command->name, error->text);
    return SKR_EXIT_FAILURE;
}

enum skr_exit
skr_app_usage(const struct skr_app *app, const char *format, ...)
{
    struct skr_error mistake;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mistake.text, sizeof(mistake.text), format, arguments);
    va_end(arguments);
    skr_output_say(app->output, SKR_LOG_ERROR,
                   "skirnir %s: %s; see skirnir %s --help", app->command->name,
                   mistake.text, app->command->name);
    return SKR_EXIT_USAGE;
}

void
skr_app_say_report(const struct skr_output *output,
                   enum skr_config_severity severity, const char *path,
                   int line, const char *text)
{
    bool mistake = severity == SKR_CONFIG_MISTAKE;
    enum skr_log_level level = mistake ? SKR_LOG_ERROR : SKR_LOG_WARNING;
    const char *kind = mistake ? "" : "warning: ";
    if (line > 0)
        skr_output_say(output, level, "%s:%d: %s%s", path, line, kind, text);
    else
        skr_output_say(output, level, "%s: %s%s", path, kind, text);
}

static void
print_report(void *user, enum skr_config_severity severity, const char *path,
             int line, const char *text)
{
    const struct skr_app *app = user;
    if (severity == SKR_CONFIG_MISTAKE ||
        !skr_arguments_has(app->arguments, "quiet"))
        skr_app_say_report(app->output, severity, path, line, text);
}

bool
skr_app_load(struct skr_app *app, struct skr_config **config)
{
    struct skr_error error = {0};
    const char *path = skr_arguments_find(app->arguments, "config");
    struct skr_config_listener listener = {print_report, app};
    return skr_config_load(path, listener, config, &error) == SKR_OK;
}

enum skr_exit
skr_app_run_configured(struct skr_app *app, skr_configured_fn *run)
{
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    if (!skr_app_load(app, &config))
        return SKR_EXIT_CONFIG;
    enum skr_exit exit_code = SKR_EXIT_OK;
    if (run(app, config, &error) != SKR_OK)
        exit_code = skr_app_fail(app, &error);
    skr_config_free(config);
    return exit_code;
}

void
skr_limits_read(const struct skr_app *app, struct skr_limits *limits)
{
    const struct skr_arguments *arguments = app->arguments;
    int64_t seconds = skr_arguments_number(arguments, "time-limit", 0);
    *limits = (struct skr_limits){
        .messages = (uint64_t)skr_arguments_number(arguments, "limit", 0),
        .sleep_ms = skr_arguments_ms(arguments, "sleep", 1000),
        .memory_bytes = skr_arguments_size(arguments, "memory-limit", 0),
        .log = app->log,
    };
    if (seconds > 0)
        limits->end_ms = app->start_ms + seconds * 1000;
}

static uint64_t
resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool
skr_limits_is_over(void *user)
{
    struct skr_limits *limits = user;
    int64_t now = skr_clock_ms();
    if (limits->end_ms > 0 && now >= limits->end_ms) {
        skr_log(&limits->log, SKR_LOG_INFO, "limit.time",
                SKR_LOG_TEXT("text", "the time limit is reached"));
        return true;
    }
    if (limits->memory_bytes == 0 || now < limits->next_memory_check_ms)
        return false;
    limits->next_memory_check_ms = now + 1000;
    uint64_t resident = resident_bytes();
    if (resident < limits->memory_bytes)
        return false;
    skr_log(&limits->log, SKR_LOG_INFO, "limit.memory",
            SKR_LOG_NUMBER("resident", resident),
            SKR_LOG_NUMBER("limit", limits->memory_bytes));
    return true;
}
