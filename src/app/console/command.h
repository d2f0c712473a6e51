// SPDX-License-Identifier: MIT
// What a command of the program is.

#ifndef SKR_APP_CONSOLE_COMMAND_H
#define SKR_APP_CONSOLE_COMMAND_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stddef.h>

struct skr_app;
struct skr_config;
struct skr_option;

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

#endif
