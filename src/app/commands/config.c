// SPDX-License-Identifier: MIT
// skirnir config check|show|keys: what a file says, and what handlers and
// tables that it names would be refused for.

#include "app/config/config.h"
#include "app/app.h"
#include "app/config/keys.h"
#include "app/report/report.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"
#include "inbox/child.h"
#include "inbox/consumer.h"
#include "inbox/sql_handler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tally {
    size_t mistakes;
    size_t warnings;
    struct skr_output output;
};

static void
print_report(void *user, enum skr_config_severity severity, const char *path,
             int line, const char *text)
{
    struct tally *tally = user;
    tally->mistakes += severity == SKR_CONFIG_MISTAKE;
    tally->warnings += severity == SKR_CONFIG_WARNING;
    skr_app_say_report(&tally->output, severity, path, line, text);
}

static const char *
chosen_file(const struct skr_app *app)
{
    if (app->arguments->positional_count > 1)
        return app->arguments->positional[1];
    return skr_arguments_find(app->arguments, "config");
}

static const char *
plural(size_t count)
{
    return count == 1 ? "" : "s";
}

// Asks only databases that are files: others have no such tables, and may be
// away. What else is the matter is told by the command that meets it.
static enum skr_code
find_reused_ids(const struct skr_config *config,
                const struct skr_config_transport *transport,
                struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    if (transport->kind == SKR_TRANSPORT_OTHER ||
        skr_transport_database(transport->database, &ops, error) != SKR_OK ||
        skr_sql_word(ops->tx->dialect, "reused_ids")[0] == '\0')
        return SKR_OK;
    enum skr_code code = skr_transport_check(config, transport, error);
    return code == SKR_REFUSED ? code : SKR_OK;
}

// Tables that must not be read, as an id of theirs is used again, and outboxes
// from which nothing goes anywhere. To load a file with one of these is no
// mistake: a Symfony worker may consume it.
static void
check_transports(const struct skr_config *config,
                 struct skr_config_listener listener)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        enum skr_config_severity severity = SKR_CONFIG_MISTAKE;
        struct skr_error error = {0};
        if (find_reused_ids(config, transport, &error) != SKR_OK) {
            skr_error_prefix(&error, "%s", transport->source.path);
        } else if (transport->kind == SKR_TRANSPORT_OUTBOX &&
                   transport->relay_to == NULL &&
                   !skr_transport_is_failure(config, transport)) {
            skr_fail(&error, SKR_INVALID, SKR_GIVE_UP,
                     "%s.relay_to is missing: nothing takes the messages of "
                     "this outbox; name a transport such as queue:// or "
                     "amqp://",
                     transport->source.path);
            // Symfony's section says nothing of it.
            if (skr_text_starts_with(transport->source.path, "framework."))
                severity = SKR_CONFIG_WARNING;
        } else {
            continue;
        }
        listener.report(listener.user, severity, config->path,
                        transport->source.line, error.text);
    }
}

struct checking {
    struct skr_config_listener listener;
    const struct skr_config *config;
    const struct skr_config_handler *handler;
};

static void
report(const struct checking *checking, enum skr_config_severity severity,
       const char *key, const char *text)
{
    struct skr_error shown;
    skr_fail(&shown, SKR_OK, SKR_GIVE_UP, "handlers.%s.%s: %s",
             checking->handler->message_name, key, text);
    checking->listener.report(checking->listener.user, severity,
                              checking->config->path, checking->handler->line,
                              shown.text);
}

static void
check_library(const struct checking *checking)
{
    const char *path = checking->handler->library;
    struct skr_error error = {0};
    if (strchr(path, '/') == NULL)
        report(checking, SKR_CONFIG_WARNING, "library",
               "a name without a slash is searched for among the system's "
               "libraries when it is loaded, and was not looked into; write "
               "its path");
    else if (skr_library_look(path, checking->handler->function, &error) !=
             SKR_OK)
        report(checking, SKR_CONFIG_MISTAKE, "library", error.text);
}

static void
check_sql(const struct checking *checking, struct skr_db *db)
{
    for (size_t i = 0; i < checking->handler->sql.count; i++) {
        struct skr_error error = {0};
        enum skr_code code = skr_sql_statement_check(
            checking->handler->sql.items[i], skr_db_tx(db), &error);
        // A table may be made later; what is no SQL stays so.
        if (code != SKR_OK)
            report(checking,
                   code == SKR_INVALID ? SKR_CONFIG_MISTAKE
                                       : SKR_CONFIG_WARNING,
                   "sql", error.text);
    }
}

static struct skr_db *
open_database(const struct checking *checking)
{
    const struct skr_config_database *database =
        checking->config->inbox_database;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    enum skr_code code = skr_transport_open_database(database, &db, &error);
    if (code == SKR_OK)
        return db;
    // One that is yet to be made is expected when a configuration is checked
    // before setup.
    if (code == SKR_MISSING)
        return NULL;
    skr_error_prefix(&error, "the database was not asked about it");
    report(checking, SKR_CONFIG_WARNING, "sql", error.text);
    return NULL;
}

static void
check_handlers(const struct skr_config *config,
               struct skr_config_listener listener)
{
    struct checking checking = {.listener = listener, .config = config};
    struct skr_db *db = NULL;
    bool was_tried = false;
    for (size_t i = 0; i < config->handler_count; i++) {
        const struct skr_config_handler *handler = &config->handlers[i];
        struct skr_error error = {0};
        checking.handler = handler;
        if (handler->library != NULL)
            check_library(&checking);
        if (handler->command.count > 0 &&
            skr_process_check(handler->command.items[0], &error) != SKR_OK)
            report(&checking, SKR_CONFIG_MISTAKE, "command", error.text);
        for (size_t n = 0; n < handler->env.count; n++)
            if (getenv(handler->env.items[n]) == NULL) {
                skr_fail(&error, SKR_OK, SKR_GIVE_UP,
                         "the environment variable %s is not set",
                         handler->env.items[n]);
                report(&checking, SKR_CONFIG_WARNING, "env", error.text);
            }
        if (handler->sql.count > 0 && !was_tried) {
            db = open_database(&checking);
            was_tried = true;
        }
        if (handler->sql.count > 0 && db != NULL)
            check_sql(&checking, db);
    }
    skr_db_close(db);
}

void
skr_app_check(const struct skr_config *config,
              struct skr_config_listener listener)
{
    check_handlers(config, listener);
    check_transports(config, listener);
}

static enum skr_exit
check(struct skr_app *app)
{
    struct tally tally = {.output = {.fd = STDOUT_FILENO}};
    struct skr_config *config = NULL;
    struct skr_error error;
    const struct skr_config_listener listener = {print_report, &tally};
    enum skr_code code =
        skr_config_load(chosen_file(app), listener, &config, &error);
    if (code == SKR_NO_MEMORY)
        return skr_app_fail(app, &error);
    if (code == SKR_OK)
        skr_app_check(config, listener);
    if (code != SKR_OK || tally.mistakes > 0) {
        skr_config_free(config);
        printf("%zu mistake%s, %zu warning%s\n", tally.mistakes,
               plural(tally.mistakes), tally.warnings, plural(tally.warnings));
        return SKR_EXIT_CONFIG;
    }
    printf("%s: ok, %zu transport%s, %zu database%s", config->path,
           config->transport_count, plural(config->transport_count),
           config->database_count, plural(config->database_count));
    if (tally.warnings > 0)
        printf(", %zu warning%s", tally.warnings, plural(tally.warnings));
    printf("\n");
    skr_config_free(config);
    return SKR_EXIT_OK;
}

static enum skr_exit
show(struct skr_app *app)
{
    struct tally tally = {.output = {.fd = STDERR_FILENO}};
    struct skr_config *config = NULL;
    struct skr_error error;
    bool as_json = skr_arguments_has(app->arguments, "json");
    enum skr_code code = skr_config_load(
        chosen_file(app), (struct skr_config_listener){print_report, &tally},
        &config, &error);
    if (code == SKR_NO_MEMORY)
        return skr_app_fail(app, &error);
    if (code != SKR_OK)
        return SKR_EXIT_CONFIG;
    code = skr_config_show(config, as_json ? SKR_CONFIG_JSON : SKR_CONFIG_YAML,
                           stdout, &error);
    skr_config_free(config);
    return code == SKR_OK ? SKR_EXIT_OK : skr_app_fail(app, &error);
}

static void
print_keys(void)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        struct skr_text text = {0};
        skr_config_describe(&keys[i], &text);
        printf("%s\n    %s\n", keys[i].path, text.broken ? "" : text.bytes);
        skr_text_fini(&text);
    }
}

static enum skr_code
print_keys_as_json(struct skr_error *error)
{
    static const struct skr_column columns[] = {
        {"path", SKR_AS_TEXT},    {"type", SKR_AS_TEXT},
        {"default", SKR_AS_TEXT}, {"required", SKR_AS_TRUTH},
        {"help", SKR_AS_TEXT},
    };
    struct skr_report report = {.columns = SKR_COLUMNS(columns)};
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        skr_report_add_row(&report);
        skr_report_text(&report, "path", keys[i].path);
        skr_report_text(&report, "type", skr_config_types[keys[i].type].text);
        skr_report_text(&report, "default", keys[i].fallback);
        skr_report_number(&report, "required", keys[i].required);
        skr_report_text(&report, "help", keys[i].help);
    }
    enum skr_code code = skr_report_print_json(&report, error);
    skr_report_fini(&report);
    return code;
}

enum skr_exit
skr_command_config(struct skr_app *app)
{
    const char *action = app->arguments->positional[0];
    if (strcmp(action, "check") == 0)
        return check(app);
    if (strcmp(action, "show") == 0)
        return show(app);
    if (strcmp(action, "keys") != 0)
        return skr_app_usage(app, "'%s' is unknown; check, show or keys",
                             action);
    struct skr_error error;
    if (app->arguments->positional_count > 1)
        return skr_app_usage(app,
                             "'%s' is one argument too many: keys prints "
                             "those that any file may have",
                             app->arguments->positional[1]);
    if (!skr_arguments_has(app->arguments, "json"))
        print_keys();
    else if (print_keys_as_json(&error) != SKR_OK)
        return skr_app_fail(app, &error);
    return SKR_EXIT_OK;
}
