// SPDX-License-Identifier: MIT
#include "app/program.h"

#include "app/app.h"
#include "app/console/output.h"
#include "app/drivers.h"
#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void
print_overview(FILE *out)
{
    fprintf(out, "Usage: skirnir COMMAND [options]\n\n"
                 "Carries messages between an application's database and a "
                 "message broker, and\nloses none.\n\nCommands:\n");
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        fprintf(out, "  %-23s %s\n", command->name, command->summary);
    fprintf(out,
            "\n`skirnir COMMAND --help` explains a command, with examples.\n"
            "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 mistake in the "
            "configuration.\n\nExample:\n"
            "  skirnir setup\n"
            "  skirnir publish order.placed --body '{\"orderId\":1}'\n"
            "  skirnir relay outbox --stop-when-empty\n");
}

static void
print_version(void)
{
    printf("skirnir %s (databases: %s; brokers: %s)\n", SKR_VERSION,
           skr_driver_databases(), skr_driver_brokers());
}

// Whether words, of which there are `count`, begin with the command's name;
// *used is how many of them that takes.
static bool
is_called(const struct skr_command *command, char **words, int count, int *used)
{
    const char *second = strchr(command->name, ' ');
    *used = 1;
    if ((command->alias != NULL && strcmp(command->alias, words[0]) == 0) ||
        strcmp(command->name, words[0]) == 0)
        return true;
    *used = 2;
    size_t first_size = second == NULL ? 0 : (size_t)(second - command->name);
    return second != NULL && count > 1 && strlen(words[0]) == first_size &&
           strncmp(command->name, words[0], first_size) == 0 &&
           strcmp(second + 1, words[1]) == 0;
}

static const struct skr_command *
find_command(char **words, int count, int *used)
{
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        if (is_called(command, words, count, used))
            return command;
    return NULL;
}

// The first of two words alone: those that begin with it, "" when none does.
static void
list_group(const char *word, char *text, size_t size)
{
    size_t length = strlen(word), used = 0;
    text[0] = '\0';
    for (const struct skr_command *command = skr_commands;
         command->name != NULL && used < size; command++)
        if (strncmp(command->name, word, length) == 0 &&
            command->name[length] == ' ')
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used == 0 ? "" : ", ", command->name);
}

static enum skr_exit
refuse_command(const char *word)
{
    char group[200];
    list_group(word, group, sizeof(group));
    if (group[0] != '\0')
        fprintf(stderr, "skirnir: '%s' needs a second word: %s\n", word, group);
    else
        fprintf(stderr,
                "skirnir: there is no command '%s'; skirnir --help lists "
                "them\n",
                word);
    return SKR_EXIT_USAGE;
}

static enum skr_exit
run_command(const struct skr_command *command,
            const struct skr_arguments *arguments)
{
    const char *format = skr_arguments_find(arguments, "log-format");
    bool is_json = format != NULL && strcmp(format, "json") == 0;
    struct skr_output output = {
        .level = skr_arguments_has(arguments, "quiet")     ? SKR_LOG_ERROR
                 : skr_arguments_has(arguments, "verbose") ? SKR_LOG_DEBUG
                                                           : SKR_LOG_INFO,
        .each_message = skr_arguments_count(arguments, "verbose") > 1,
        .form = {.is_json = is_json, .event_name = "event"},
        .fd = STDERR_FILENO,
    };
    struct skr_app app = {
        .command = command,
        .arguments = arguments,
        .output = &output,
        .log = {.write = skr_output_log, .user = &output},
        .start_ms = skr_clock_ms(),
        .start_s = skr_clock_wall_us() / 1000000,
    };
    enum skr_exit code = command->run(&app);
    skr_output_stop_writer(&output);
    return code;
}

static void
print_usage_error(const char *command, const struct skr_error *error)
{
    fprintf(stderr, "skirnir%s%s: %s; see skirnir %s%s--help\n",
            command[0] == '\0' ? "" : " ", command, error->text, command,
            command[0] == '\0' ? "" : " ");
}

static enum skr_exit
run(int argc, char **argv, struct skr_arguments *arguments)
{
    struct skr_error error = {0};
    int at = argc;
    if (skr_arguments_parse(NULL, argc, argv, arguments, &at, &error) !=
        SKR_OK) {
        print_usage_error("", &error);
        return SKR_EXIT_USAGE;
    }
    if (skr_arguments_has(arguments, "version")) {
        print_version();
        return SKR_EXIT_OK;
    }
    if (at == argc || strcmp(argv[at], "help") == 0) {
        bool asked = at < argc || skr_arguments_has(arguments, "help");
        print_overview(asked ? stdout : stderr);
        return asked ? SKR_EXIT_OK : SKR_EXIT_USAGE;
    }
    int used = 1;
    const struct skr_command *command =
        find_command(argv + at, argc - at, &used);
    if (command == NULL)
        return refuse_command(argv[at]);
    // Parsing begins behind the last word of the name.
    at += used - 1;
    if (skr_arguments_parse(command, argc - at, argv + at, arguments, NULL,
                            &error) != SKR_OK) {
        print_usage_error(command->name, &error);
        return SKR_EXIT_USAGE;
    }
    if (skr_arguments_has(arguments, "help")) {
        skr_command_help(command, stdout);
        return SKR_EXIT_OK;
    }
    return run_command(command, arguments);
}

int
skr_program_run(int argc, char **argv)
{
    struct skr_error error;
    skr_output_open();
    // A reader that goes away (| head) is an error of the write, not a death.
    signal(SIGPIPE, SIG_IGN);
    struct skr_arguments arguments = {0};
    enum skr_exit code = run(argc, argv, &arguments);
    skr_arguments_fini(&arguments);
    // A full disk may show only here. A reader that has seen enough (| head) is
    // no failure.
    enum skr_code written = skr_output_flush(&error);
    if (written == SKR_OK || written == SKR_STOPPED || code != SKR_EXIT_OK)
        return (int)code;
    fprintf(stderr, "skirnir: %s\n", error.text);
    return SKR_EXIT_FAILURE;
}
