// SPDX-License-Identifier: MIT
// The program: finds the command that the first words name, parses its options
// and runs it, or prints help, or the nearest name. The commands themselves are
// in commands.c.

#include "app/app.h"
#include "app/console/output.h"
#include "app/console/terminal.h"
#include "app/drivers.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Whether the name has two words, of which this is the first.
static bool
begins_with(const struct skr_command *command, const char *word)
{
    size_t length = strlen(word);
    return strncmp(command->name, word, length) == 0 &&
           command->name[length] == ' ';
}

// All of them, or those of two words that begin with this one.
static void
print_commands(const char *group, FILE *out)
{
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        if (group == NULL || begins_with(command, group))
            fprintf(out, "  %-23s %s\n", command->name, command->summary);
}

static void
print_overview(FILE *out)
{
    fprintf(out, "Usage: skirnir COMMAND [options]\n\n"
                 "Carries messages between an application's database and a "
                 "message broker, and\nloses none.\n\nCommands:\n");
    print_commands(NULL, out);
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

// Whether commands of two words begin with this one.
static bool
is_group(const char *word)
{
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++)
        if (begins_with(command, word))
            return true;
    return false;
}

static void
print_group(const char *word)
{
    printf("Usage: skirnir %s WORD [options]\n\nCommands:\n", word);
    print_commands(word, stdout);
    printf("\n`skirnir %s WORD --help` explains a command, with examples.\n",
           word);
}

// What may have been meant by these words, of all commands or of those that
// begin with group.
static const char *
find_meant(const char *words, const char *group)
{
    struct skr_nearest nearest = {.name = words};
    for (const struct skr_command *command = skr_commands;
         command->name != NULL; command++) {
        const char *second = strchr(command->name, ' ');
        if (group != NULL && !begins_with(command, group))
            continue;
        if (group == NULL)
            skr_nearest_compare(&nearest, command->name, command->name);
        if (second != NULL)
            skr_nearest_compare(&nearest, second + 1, command->name);
        if (group == NULL && command->alias != NULL)
            skr_nearest_compare(&nearest, command->alias, command->alias);
    }
    return nearest.meant;
}

// Where there is no command yet, and none that has ended.
static const struct skr_output errors = {.fd = STDERR_FILENO};

// "failed show, failed retry": those that begin with the word.
static void
list_group(const char *word, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct skr_command *command = skr_commands;
         command->name != NULL && used < size; command++)
        if (begins_with(command, word))
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used == 0 ? "" : ", ", command->name);
}

static enum skr_exit
refuse_second(const char *first, const char *second)
{
    char group[200];
    const char *meant = second == NULL ? NULL : find_meant(second, first);
    list_group(first, group, sizeof(group));
    if (second == NULL)
        skr_output_say(&errors, SKR_LOG_ERROR,
                       "skirnir: '%s' needs a second word: %s", first, group);
    else if (meant == NULL)
        skr_output_say(&errors, SKR_LOG_ERROR,
                       "skirnir: there is no command '%s %s'; there are %s",
                       first, second, group);
    else
        skr_output_say(&errors, SKR_LOG_ERROR,
                       "skirnir: there is no command '%s %s', did you mean "
                       "'%s'?",
                       first, second, meant);
    return SKR_EXIT_USAGE;
}

static enum skr_exit
refuse_command(char **words, int count)
{
    const char *second = count > 1 && words[1][0] != '-' ? words[1] : NULL;
    if (is_group(words[0]))
        return refuse_second(words[0], second);
    char both[80];
    snprintf(both, sizeof(both), "%s %s", words[0],
             second == NULL ? "" : second);
    // The second word may belong to the name, or be an argument.
    const char *meant = second == NULL ? NULL : find_meant(both, NULL);
    if (meant == NULL)
        meant = find_meant(words[0], NULL);
    if (meant != NULL)
        skr_output_say(&errors, SKR_LOG_ERROR,
                       "skirnir: there is no command '%s', did you mean '%s'?",
                       words[0], meant);
    else
        skr_output_say(&errors, SKR_LOG_ERROR,
                       "skirnir: there is no command '%s'; skirnir --help "
                       "lists them",
                       words[0]);
    return SKR_EXIT_USAGE;
}

// What --help says of the command, or of all that begin with the first word.
static enum skr_exit
explain(char **words, int count)
{
    int used;
    const struct skr_command *command = NULL;
    if (count > 0)
        command = find_command(words, count, &used);
    if (command != NULL)
        skr_command_help(command, stdout);
    else if (count == 0)
        print_overview(stdout);
    else if (is_group(words[0]) && (count == 1 || words[1][0] == '-'))
        print_group(words[0]);
    else
        return refuse_command(words, count);
    return SKR_EXIT_OK;
}

// Once each, however often it is given.
static void
say_ignored(const struct skr_app *app)
{
    const struct skr_arguments *arguments = app->arguments;
    for (size_t i = 0; i < arguments->given_count; i++) {
        const struct skr_option *option = arguments->given[i].option;
        bool is_said = option->ignored == NULL;
        for (size_t before = 0; before < i; before++)
            is_said |= arguments->given[before].option == option;
        if (!is_said)
            skr_output_say(app->output, SKR_LOG_WARNING,
                           "skirnir %s: --%s is ignored: %s",
                           app->command->name, option->name, option->ignored);
    }
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
        .form = {.is_json = skr_arguments_choice(arguments, "log-format",
                                                 SKR_LOG_FORMAT_TEXT) ==
                            SKR_LOG_FORMAT_JSON,
                 .event_name = "event",
                 .has_colours = skr_colour_is_wanted(STDERR_FILENO)},
        .fd = STDERR_FILENO,
    };
    struct skr_app app = {
        .command = command,
        .arguments = arguments,
        .output = &output,
        .log = skr_output_as_log(&output),
        .start_ms = skr_clock_ms(),
        .start_s = skr_clock_wall_us() / 1000000,
    };
    bool reports = command->reports &&
                   !skr_arguments_has(arguments, "dry-run") &&
                   !skr_arguments_has(arguments, "print-sql");
    if (reports && skr_arguments_has(arguments, "quiet"))
        skr_output_silence();
    say_ignored(&app);
    struct skr_error error;
    enum skr_exit code = command->run != NULL
                             ? command->run(&app)
                             : skr_app_run_configured(&app, command->work);
    skr_output_stop_writer(&output);
    // Who runs it again should know.
    if (code == SKR_EXIT_OK && reports &&
        skr_output_flush(&error) == SKR_REFUSED) {
        skr_output_say(&output, SKR_LOG_ERROR, "skirnir %s: it is done, but %s",
                       command->name, error.text);
        code = SKR_EXIT_FAILURE;
    }
    return code;
}

static void
print_usage_error(const char *command, const struct skr_error *error)
{
    bool asks = skr_text_ends_with(error->text, "?");
    skr_output_say(
        &errors, SKR_LOG_ERROR, "skirnir%s%s: %s%s skirnir %s%s--help",
        command[0] == '\0' ? "" : " ", command, error->text,
        asks ? " See" : "; see", command, command[0] == '\0' ? "" : " ");
}

// `failed --help`; anything else that is no command is refused.
static enum skr_exit
run_group(char **words, int count, struct skr_arguments *arguments)
{
    int next = count;
    if (!is_group(words[0]) ||
        skr_arguments_parse(NULL, count, words, arguments, &next, NULL) !=
            SKR_OK ||
        !skr_arguments_has(arguments, "help"))
        return refuse_command(words, count);
    return explain(words, 1);
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
    bool is_asked = at < argc && strcmp(argv[at], "help") == 0;
    if (is_asked || skr_arguments_has(arguments, "help"))
        return explain(argv + at + is_asked, argc - at - is_asked);
    if (at == argc) {
        print_overview(stderr);
        return SKR_EXIT_USAGE;
    }
    int used = 1;
    const struct skr_command *command =
        find_command(argv + at, argc - at, &used);
    if (command == NULL)
        return run_group(argv + at, argc - at, arguments);
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
    if (skr_arguments_has(arguments, "version")) {
        print_version();
        return SKR_EXIT_OK;
    }
    return run_command(command, arguments);
}

int
main(int argc, char **argv)
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
    skr_output_say(&errors, SKR_LOG_ERROR, "skirnir: %s", error.text);
    return SKR_EXIT_FAILURE;
}
