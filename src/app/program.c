// SPDX-License-Identifier: MIT
#include "app/program.h"

#include "app/app.h"
#include "app/drivers.h"
#include "app/output.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void
print_overview(FILE *out)
{
    fprintf(out, "Usage: skirnir COMMAND [options]\n\n"
                 "Carries messages between an application's database and a "
                 "message broker, and\nloses none.\n\nCommands:\n");
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        fprintf(out, "  %-22s %s\n", command->name, command->summary);
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

static const struct skr_command *
find_command(const char *name)
{
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        if (strcmp(command->name, name) == 0 ||
            (command->alias != NULL && strcmp(command->alias, name) == 0))
            return command;
    return NULL;
}

static enum skr_exit
run_command(const struct skr_command *command,
            const struct skr_arguments *arguments)
{
    struct skr_output output = {
        .level = skr_arguments_has(arguments, "quiet")     ? SKR_LOG_ERROR
                 : skr_arguments_has(arguments, "verbose") ? SKR_LOG_DEBUG
                                                           : SKR_LOG_INFO,
        .each_message = skr_arguments_count(arguments, "verbose") > 1,
    };
    struct skr_app app = {
        .command = command,
        .arguments = arguments,
        .log = {.write = skr_output_log, .user = &output},
    };
    return command->run(&app);
}

static void
print_usage_error(const char *command, const struct skr_error *error)
{
    fprintf(stderr, "skirnir%s%s: %s; see skirnir %s%s--help\n",
            command[0] == '\0' ? "" : " ", command, error->text, command,
            command[0] == '\0' ? "" : " ");
}

static enum skr_exit
run(int argc, char **argv)
{
    struct skr_arguments arguments = {0};
    struct skr_error error = {0};
    int at = argc;
    if (skr_arguments_parse(NULL, argc, argv, &arguments, &at, &error) !=
        SKR_OK) {
        print_usage_error("", &error);
        return SKR_EXIT_USAGE;
    }
    if (skr_arguments_has(&arguments, "version")) {
        print_version();
        return SKR_EXIT_OK;
    }
    if (at == argc || strcmp(argv[at], "help") == 0) {
        bool asked = at < argc || skr_arguments_has(&arguments, "help");
        print_overview(asked ? stdout : stderr);
        return asked ? SKR_EXIT_OK : SKR_EXIT_USAGE;
    }
    const struct skr_command *command = find_command(argv[at]);
    if (command == NULL) {
        fprintf(stderr,
                "skirnir: there is no command '%s'; skirnir --help lists "
                "them\n",
                argv[at]);
        return SKR_EXIT_USAGE;
    }
    if (skr_arguments_parse(command, argc - at, argv + at, &arguments, NULL,
                            &error) != SKR_OK) {
        print_usage_error(command->name, &error);
        return SKR_EXIT_USAGE;
    }
    if (skr_arguments_has(&arguments, "help")) {
        skr_command_help(command, stdout);
        return SKR_EXIT_OK;
    }
    return run_command(command, &arguments);
}

int
skr_program_run(int argc, char **argv)
{
    struct skr_error error;
    skr_output_open();
    // A reader that goes away (| head) is an error of the write, not a death.
    signal(SIGPIPE, SIG_IGN);
    enum skr_exit code = run(argc, argv);
    // A full disk or a closed pipe may show only here.
    if (skr_output_flush(&error) == SKR_OK || code != SKR_EXIT_OK)
        return (int)code;
    fprintf(stderr, "skirnir: %s\n", error.text);
    return SKR_EXIT_FAILURE;
}
