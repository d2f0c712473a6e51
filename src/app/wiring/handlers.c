// SPDX-License-Identifier: MIT
// Registers the configured handlers with a consumer, and checks them for
// `config check` without running them.

#include "app/wiring/handlers.h"

#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "inbox/child.h"
#include "inbox/consumer.h"
#include "inbox/sql_handler.h"
#include "store/messenger/messenger.h"

#include <stdlib.h>
#include <string.h>

static bool
has_handler(const struct skr_config *config, const struct skr_name_pair *type)
{
    for (size_t i = 0; i < config->handler_count; i++)
        if (skr_name_rank(config->handlers[i].message_name, type->name,
                          type->class_name) > 0)
            return true;
    return false;
}

// A known type without a handler would fill the failed table: said before the
// first message is taken.
enum skr_code
skr_app_require_handlers(const struct skr_config *config,
                         const struct skr_config_transport *transport,
                         struct skr_error *error)
{
    bool fails = transport->unhandled == SKR_UNHANDLED_FAIL;
    if (transport->forward_to != NULL)
        return SKR_OK;
    for (size_t i = 0; i < config->message_type_count && fails; i++)
        if (!has_handler(config, &config->message_types[i]))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "message type %s has no handler; add handlers.%s, "
                            "remove it from message_types, or set unhandled "
                            "of transport %s",
                            config->message_types[i].name,
                            config->message_types[i].name, transport->name);
    if (config->handler_count == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no handlers are configured; add for example "
                        "handlers: {order.placed: {sql: 'INSERT ...'}}");
    return SKR_OK;
}

// What the configuration is made of may be secret, and is no business of a
// command that does not ask for it.
static enum skr_code
add_command(const struct skr_config *config,
            const struct skr_config_handler *handler,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const char **withheld =
        calloc(config->variable_count + 1, sizeof(*withheld));
    if (withheld == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0, count = 0; i < config->variable_count; i++)
        if (!skr_text_is_among(config->variables[i], handler->env.items,
                               handler->env.count))
            withheld[count++] = config->variables[i];
    enum skr_code code = skr_consumer_handle_command(
        consumer, handler->message_name,
        &(struct skr_handler_command){.words = handler->command.items,
                                      .word_count = handler->command.count,
                                      .withheld = withheld,
                                      .timeout_ms = handler->timeout_s * 1000,
                                      .recorder = handler->deduplicates},
        error);
    free(withheld);
    return code;
}

static enum skr_code
add_handler(const struct skr_config *config,
            const struct skr_config_handler *handler,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const char *name = handler->message_name;
    if (handler->library != NULL)
        return skr_consumer_handle_library(consumer, name, handler->library,
                                           handler->function,
                                           handler->transaction, error);
    if (handler->command.count > 0)
        return add_command(config, handler, consumer, error);
    return skr_consumer_handle_sql(consumer, name, handler->sql.items,
                                   handler->sql.count, error);
}

static enum skr_code
add_forward(const struct skr_config *config,
            const struct skr_config_transport *transport,
            struct skr_consumer *consumer, struct skr_error *error)
{
    const struct skr_config_transport *target = NULL;
    const struct skr_db_ops *ops = NULL;
    struct skr_arena arena = {0};
    struct skr_forward forward = {.insert = NULL};
    enum skr_code code = skr_config_find_transport(
        config, transport->forward_to, &target, error);
    if (code == SKR_OK)
        code = skr_transport_database(target->database, &ops, error);
    if (code == SKR_OK)
        code = skr_messenger_insert_sql(ops->tx->dialect, &target->place,
                                        &arena, &forward.insert, error);
    if (code == SKR_OK)
        code = skr_transport_table(config, target, &forward.queue, error);
    if (code == SKR_OK) {
        forward.makes_queue = target->auto_setup;
        code = skr_consumer_forward(consumer, &forward, error);
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_app_add_handlers(const struct skr_config *config,
                     const struct skr_config_transport *transport,
                     struct skr_consumer *consumer, struct skr_error *error)
{
    if (transport->forward_to != NULL)
        return add_forward(config, transport, consumer, error);
    for (size_t i = 0; i < config->handler_count; i++) {
        enum skr_code code =
            add_handler(config, &config->handlers[i], consumer, error);
        if (code != SKR_OK) {
            skr_error_prefix(error, "handlers.%s",
                             config->handlers[i].message_name);
            return code;
        }
    }
    return SKR_OK;
}

struct checking {
    const struct skr_config *config;
    const struct skr_config_handler *handler;
    skr_config_report_fn *report;
    void *user;
};

static void
report(const struct checking *checking, enum skr_config_severity severity,
       const char *key, const char *text)
{
    struct skr_error shown;
    skr_fail(&shown, SKR_OK, SKR_GIVE_UP, "handlers.%s.%s: %s",
             checking->handler->message_name, key, text);
    checking->report(checking->user, severity, checking->config->path,
                     checking->handler->line, shown.text);
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

void
skr_app_check_handlers(const struct skr_config *config,
                       skr_config_report_fn *report_fn, void *user)
{
    struct checking checking = {
        .config = config, .report = report_fn, .user = user};
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
