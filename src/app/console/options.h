// SPDX-License-Identifier: MIT
// Commands and their options, described by tables: one description parses,
// checks and explains.

#ifndef SKR_APP_CONSOLE_OPTIONS_H
#define SKR_APP_CONSOLE_OPTIONS_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct skr_app;
struct skr_config;

// What a value has to be. It is checked while the command line is read, so
// that a wrong one is wrong usage, whatever the command does with it.
enum skr_option_kind {
    SKR_OPTION_FLAG,
    SKR_OPTION_SWITCH,  // a flag that may be said to be "true" or "false"
    SKR_OPTION_TEXT,
    SKR_OPTION_NUMBER,   // whole, from least to most
    SKR_OPTION_PORTS,    // "9187" or "9187-9197"
    SKR_OPTION_SECONDS,  // "0.5": from a thousandth of one to most
    SKR_OPTION_SIZE,     // "134217728", "128M", "1G"
    SKR_OPTION_PAIR,     // "NAME=VALUE"
    SKR_OPTION_CHOICE,   // one of choices
    SKR_OPTION_ID,       // a UUID or a ULID
    SKR_OPTION_SINCE,    // "2h", "7d", "2026-11-15", "2026-11-15 02:53:45"
};

struct skr_option {
    const char *name;   // long, without dashes
    char letter;        // '\0': none
    const char *value;  // "N", for the help; NULL: a flag
    const char *help;
    enum skr_option_kind kind;
    int64_t least, most;
    bool required;
    const char *choices;  // words with blanks between them
    // Its value is taken out of the command line, which others can see.
    bool is_secret;
    // Of another program's option that means nothing here: why. It is taken
    // with any value, and told in a line.
    const char *ignored;
    // Of the environment, read where the option is not given; NULL: none.
    const char *variable;
};

// Documented in the manual; scripts rely on them.
enum skr_exit {
    SKR_EXIT_OK = 0,
    SKR_EXIT_FAILURE = 1,  // it was tried and did not work
    SKR_EXIT_USAGE = 2,    // the command line makes no sense
    SKR_EXIT_CONFIG = 3,   // the configuration has a mistake
    // A setting is missing, as kafka-outbox-relay says it.
    SKR_EXIT_MISSING = 255,
};

typedef enum skr_exit skr_command_fn(struct skr_app *app);
typedef enum skr_code
skr_configured_fn(const struct skr_app *app, const struct skr_config *config,
                  struct skr_error *error);

struct skr_command {
    const char *name;       // one word or two
    const char *alias;      // Symfony's name for it; NULL: none
    const char *arguments;  // "TRANSPORT"
    size_t least_arguments;
    size_t most_arguments;
    const char *summary;               // one line
    const char *help;                  // paragraphs, and examples
    const struct skr_option *options;  // ends with a name of NULL
    // As Go has it: one dash is as good as two before a whole name, so that
    // several letters in a row are flags only.
    bool takes_one_dash;
    // It prints what it did, which is not said with -q. What was asked for is:
    // --dry-run, --print-sql.
    bool reports;
    // One of them: all that it needs is its configuration, or it is for itself.
    skr_configured_fn *work;
    skr_command_fn *run;
};

enum { SKR_MAX_GIVEN = 64, SKR_MAX_POSITIONAL = 64 };

struct skr_given {
    const struct skr_option *option;
    const char *value;  // NULL: a flag, or a switch that says no more
};

struct skr_arguments {
    struct skr_given given[SKR_MAX_GIVEN];  // in the order of the command line
    size_t given_count;
    const char *positional[SKR_MAX_POSITIONAL];
    size_t positional_count;
    char *secrets[SKR_MAX_GIVEN];  // values of secret options
    size_t secret_count;
};

// --log-format, in the order of its words.
enum skr_log_format { SKR_LOG_FORMAT_TEXT, SKR_LOG_FORMAT_JSON };

// Options that every command has: config, quiet, verbose, log-format, help,
// version.
extern const struct skr_option skr_global_options[];

// Options may stand before, between and after arguments; "--" ends them.
// command NULL: only global options are known, and parsing ends at the first
// argument, whose index in argv is *next (argc when there is none). Errors are
// wrong usage.
SKR_MUST_CHECK enum skr_code
skr_arguments_parse(const struct skr_command *command, int argc, char **argv,
                    struct skr_arguments *arguments, int *next,
                    struct skr_error *error);

// Adds options that are given by their variables; one that is empty is none.
SKR_MUST_CHECK enum skr_code
skr_arguments_read_environment(const struct skr_command *command,
                               struct skr_arguments *arguments,
                               struct skr_error *error);
// Adds one. The value is borrowed.
SKR_MUST_CHECK enum skr_code
skr_arguments_give(struct skr_arguments *arguments,
                   const struct skr_option *option, const char *value,
                   struct skr_error *error);

void skr_arguments_fini(struct skr_arguments *arguments);

// The last value given, or NULL.
const char *
skr_arguments_find(const struct skr_arguments *arguments, const char *name);
bool skr_arguments_has(const struct skr_arguments *arguments, const char *name);
// Whether a switch is on.
bool
skr_arguments_is_on(const struct skr_arguments *arguments, const char *name);
size_t
skr_arguments_count(const struct skr_arguments *arguments, const char *name);
// Values of options of these kinds; fallback when it is not given.
int64_t skr_arguments_number(const struct skr_arguments *arguments,
                             const char *name, int64_t fallback);
// Of a choice: the place of the word among its choices, from 0.
int skr_arguments_choice(const struct skr_arguments *arguments,
                         const char *name, int fallback);
uint64_t skr_arguments_size(const struct skr_arguments *arguments,
                            const char *name, uint64_t fallback);
// Of seconds, in milliseconds.
uint32_t skr_arguments_ms(const struct skr_arguments *arguments,
                          const char *name, uint32_t fallback);

// Of an option of that kind: seconds ago by the database's clock, or a time; 0
// and NULL: it is not given.
struct skr_since {
    int64_t ago_s;
    const char *at;
};
struct skr_since
skr_arguments_since(const struct skr_arguments *arguments, const char *name);

void skr_command_help(const struct skr_command *command, FILE *out);

#endif
