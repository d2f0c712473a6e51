// SPDX-License-Identifier: MIT
// What is wrong with a handler by itself. Nothing is loaded, run or asked here:
// that is done by the commands that need handlers.
#include "app/config/reader.h"

#include "base/error.h"
#include "base/url.h"
#include "db/db.h"
#include "db/sql.h"
#include "inbox/sql_handler.h"

#include <string.h>

static const struct skr_dialect *
inbox_dialect(const struct skr_config *config)
{
    // For checks only, where this build has no driver.
    static const struct skr_dialect plain = {.product = "SQL"};
    const struct skr_dialect *dialect =
        skr_config_dialect(config->inbox_database);
    return dialect == NULL ? &plain : dialect;
}

// A key of a handler; NULL: it is not written.
static const struct skr_yaml_entry *
find_key(const struct skr_config_reader *reader,
         const struct skr_config_handler *handler, const char *key)
{
    const struct skr_yaml_entry *entry =
        skr_yaml_find(reader->root, "handlers");
    entry = skr_yaml_find(entry->value, handler->message_name);
    return skr_yaml_find(entry->value, key);
}

// What is wrong with an item of a list, or with the key; it stands at the
// handler where that is not written.
enum { WHOLE = -1 };
static void
refuse(struct skr_config_reader *reader,
       const struct skr_config_handler *handler, const char *key, int index,
       const char *text)
{
    const struct skr_yaml_entry *entry = find_key(reader, handler, key);
    struct skr_config_place place = {
        .path = skr_config_text(reader, "handlers.%s", handler->message_name),
        .line = handler->line,
    };
    if (entry != NULL) {
        place.line = entry->line;
        place.path = skr_config_text(reader, "%s.%s", place.path, key);
    }
    if (index != WHOLE && entry->value->kind == SKR_YAML_LIST) {
        place.line = entry->value->entries[index].line;
        place.path = skr_config_text(reader, "%s[%d]", place.path, index);
    }
    skr_config_mistake(reader, &place, "%s", text);
}

static void
check_sql(struct skr_config_reader *reader, const struct skr_dialect *dialect,
          const struct skr_config_handler *handler)
{
    for (size_t i = 0; i < handler->sql.count; i++) {
        struct skr_sql_template parsed;
        struct skr_error error;
        if (handler->sql.items[i] != NULL &&
            skr_sql_template_parse(handler->sql.items[i], dialect,
                                   &reader->config->arena, &parsed,
                                   &error) != SKR_OK)
            refuse(reader, handler, "sql", (int)i, error.text);
    }
}

// A plain text is the program alone: a space in it means arguments, and how
// those are told apart is a shell's business.
static void
check_command(struct skr_config_reader *reader,
              const struct skr_config_handler *handler)
{
    const struct skr_yaml_entry *entry = find_key(reader, handler, "command");
    if (handler->command.count == 0 || handler->command.items[0] == NULL)
        return;
    const char *program = handler->command.items[0];
    if (program[0] == '\0')
        refuse(reader, handler, "command", WHOLE,
               "the program's name is empty");
    else if (entry->value->kind == SKR_YAML_TEXT &&
             strpbrk(program, " \t\n") != NULL)
        refuse(reader, handler, "command", WHOLE,
               "a program with arguments is written as a list, such as [php, "
               "worker.php]");
}

static void
check_variables(struct skr_config_reader *reader,
                const struct skr_config_handler *handler)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    for (size_t i = 0; i < handler->env.count; i++) {
        const char *name = handler->env.items[i];
        if (name != NULL && !skr_text_is_identifier(name))
            refuse(reader, handler, "env", (int)i,
                   skr_config_text(reader,
                                   "'%s' is no name of an environment variable",
                                   skr_config_excerpt(name, excerpt)));
    }
}

// What goes with another key, or not without it.
static void
check_companions(struct skr_config_reader *reader,
                 const struct skr_config_handler *handler)
{
    bool is_command = handler->command.count > 0;
    bool is_function = handler->function != NULL;
    bool is_library = handler->library != NULL;
    const struct {
        bool is_wrong;
        const char *key, *text;
    } rules[] = {
        {handler->env.count > 0 && !is_command, "env",
         "only a command has an environment of its own; leave this out"},
        {handler->deduplicates != SKR_RECORDER_CONSUMER && !is_command,
         "deduplicates",
         "only a command may record messages by itself; leave this out"},
        {is_library && !is_function, "library",
         "the key 'function' is missing beside it"},
        {!is_library && is_function, "function",
         "the key 'library' is missing beside it"},
        {handler->sql.count > 0 && !handler->transaction, "transaction",
         "SQL runs in the transaction; only the function of a library can do "
         "without"},
        {is_command && handler->transaction &&
             find_key(reader, handler, "transaction") != NULL,
         "transaction",
         "a command cannot take part in the transaction; leave this out"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(rules); i++)
        if (rules[i].is_wrong)
            refuse(reader, handler, rules[i].key, WHOLE, rules[i].text);
}

static void
check_handler(struct skr_config_reader *reader,
              const struct skr_dialect *dialect,
              struct skr_config_handler *handler)
{
    static const char *const kinds[] = {"sql", "library", "command"};
    const char *first = NULL;
    for (size_t i = 0; i < SKR_COUNT_OF(kinds); i++) {
        bool is_there = find_key(reader, handler, kinds[i]) != NULL;
        if (is_there && first != NULL)
            refuse(reader, handler, kinds[i], WHOLE,
                   skr_config_text(
                       reader, "the handler has '%s' already; one is enough",
                       first));
        if (is_there)
            first = kinds[i];
    }
    if (first == NULL)
        refuse(reader, handler, "", WHOLE,
               "one of the keys 'sql', 'library' and 'command' is needed");
    check_sql(reader, dialect, handler);
    check_command(reader, handler);
    check_variables(reader, handler);
    check_companions(reader, handler);
    if (handler->command.count > 0)
        handler->transaction = false;
}

// A library or a program that is named by a path; others are looked for where
// the system has them.
static void
place_files(struct skr_config_reader *reader,
            struct skr_config_handler *handler)
{
    if (handler->library != NULL && strchr(handler->library, '/') != NULL)
        handler->library = skr_config_place_path(reader, handler->library);
    if (handler->command.count == 0 || handler->command.items[0] == NULL ||
        strchr(handler->command.items[0], '/') == NULL)
        return;
    size_t count = handler->command.count;
    const char **items = skr_config_take(reader, count, sizeof(*items));
    if (items == NULL)
        return;
    memcpy(items, handler->command.items, count * sizeof(*items));
    items[0] = skr_config_place_path(reader, items[0]);
    handler->command.items = items;
}

// One type cannot be two messages: what comes under it would be taken for the
// first alone.
static void
check_message_types(struct skr_config_reader *reader)
{
    const struct skr_config *config = reader->config;
    const struct skr_config_key *key =
        skr_config_find_key("message_broker.inbox.message_types");
    const struct skr_config_place *place =
        &reader->given[skr_config_key_index(key)];
    for (size_t i = 0; i < config->message_type_count; i++)
        for (size_t j = 0; j < config->message_type_count; j++) {
            const struct skr_name_pair *pair = &config->message_types[i];
            const struct skr_name_pair *other = &config->message_types[j];
            if (i < j && pair->class_name != NULL &&
                other->class_name != NULL &&
                strcmp(pair->class_name, other->class_name) == 0)
                skr_config_mistake(reader, place,
                                   "'%s' is the type of '%s' and of '%s'; a "
                                   "type is of one message",
                                   pair->class_name, pair->name, other->name);
            if (i != j && pair->class_name != NULL &&
                strcmp(pair->class_name, other->name) == 0)
                skr_config_mistake(reader, place,
                                   "'%s' is the type of '%s' and a message of "
                                   "its own; rename one of them",
                                   other->name, pair->name);
        }
}

void
skr_config_check_handlers(struct skr_config_reader *reader)
{
    struct skr_config *config = reader->config;
    check_message_types(reader);
    const struct skr_dialect *dialect = inbox_dialect(config);
    for (size_t i = 0; i < config->handler_count; i++) {
        check_handler(reader, dialect, &config->handlers[i]);
        place_files(reader, &config->handlers[i]);
    }
}
