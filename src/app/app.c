// SPDX-License-Identifier: MIT
#include "app/app.h"

#include "base/clock.h"
#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum skr_exit
skr_app_fail(const struct skr_app *app, const struct skr_error *error)
{
    fprintf(stderr, "skirnir %s: %s\n", app->command->name, error->text);
    return SKR_EXIT_FAILURE;
}

enum skr_exit
skr_app_usage(const struct skr_app *app, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "skirnir %s: ", app->command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see skirnir %s --help\n", app->command->name);
    return SKR_EXIT_USAGE;
}

static void
print_report(void *user, enum skr_config_severity severity, const char *path,
             int line, const char *text)
{
    const struct skr_app *app = user;
    bool mistake = severity == SKR_CONFIG_MISTAKE;
    if (!mistake && skr_arguments_has(app->arguments, "quiet"))
        return;
    if (line > 0)
        fprintf(stderr, "%s:%d: %s%s\n", path, line,
                mistake ? "" : "warning: ", text);
    else
        fprintf(stderr, "%s: %s%s\n", path, mistake ? "" : "warning: ", text);
}

enum skr_exit
skr_app_run_configured(struct skr_app *app, skr_configured_fn *run)
{
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    const char *path = skr_arguments_find(app->arguments, "config");
    if (skr_config_load(path, print_report, app, &config, &error) != SKR_OK)
        return SKR_EXIT_CONFIG;
    enum skr_exit exit_code = SKR_EXIT_OK;
    if (run(app, config, &error) != SKR_OK)
        exit_code = skr_app_fail(app, &error);
    skr_config_free(config);
    return exit_code;
}

// "134217728", "128M", "1G": as PHP writes sizes.
static enum skr_code
parse_size(const char *text, uint64_t *bytes, struct skr_error *error)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    default: break;
    }
    if (shift > 0)
        end++;
    if (end == text || *end != '\0' || errno != 0 || number == 0 ||
        text[0] == '-' || number > UINT64_MAX >> shift)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--memory-limit=%.40s: a size such as 128M is needed",
                        text);
    *bytes = (uint64_t)number << shift;
    return SKR_OK;
}

enum skr_code
skr_limits_read(const struct skr_app *app, struct skr_limits *limits,
                struct skr_error *error)
{
    int64_t seconds = 0, messages = 0, sleep_s = 0;
    const int64_t a_century = 100LL * 366 * 24 * 3600;
    const struct skr_arguments *arguments = app->arguments;
    enum skr_code code = skr_arguments_number(arguments, "time-limit", 1,
                                              a_century, 0, &seconds, error);
    if (code == SKR_OK)
        code = skr_arguments_number(arguments, "limit", 1, INT64_MAX, 0,
                                    &messages, error);
    if (code == SKR_OK)
        code = skr_arguments_number(arguments, "sleep", 1, 3600, 1, &sleep_s,
                                    error);
    if (code != SKR_OK)
        return code;
    *limits = (struct skr_limits){.messages = (uint64_t)messages,
                                  .sleep_ms = (uint32_t)sleep_s * 1000,
                                  .log = app->log};
    if (seconds > 0)
        limits->end_ms = skr_clock_ms() + seconds * 1000;
    const char *memory = skr_arguments_find(arguments, "memory-limit");
    if (memory == NULL)
        return SKR_OK;
    return parse_size(memory, &limits->memory_bytes, error);
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

// A handler can reach only what is static.
static void (*stop_function)(void *user);
static void *stop_user;

static void
handle_stop(int number)
{
    (void)number;
    int kept = errno;
    stop_function(stop_user);
    errno = kept;
}

void
skr_signals_on_stop(void (*stop)(void *user), void *user)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    // Ignored first, so that the handler never sees half of a change.
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    stop_function = stop;
    stop_user = user;
    if (stop == NULL)
        return;
    action.sa_handler = handle_stop;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}
