// SPDX-License-Identifier: MIT
// Runs the statements of an SQL handler with a message's fields bound.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/db.h"
#include "inbox/inside.h"
#include "inbox/sql_handler.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct skr_sql_handler {
    struct skr_arena arena;
    struct skr_sql_template *templates;
    const char **explained;  // the same statements, to be looked at only
    size_t count;
    bool wants_headers;
};

static enum skr_code
parse_all(struct skr_sql_handler *handler, const struct skr_dialect *dialect,
          const char *const *statements, struct skr_error *error)
{
    for (size_t i = 0; i < handler->count; i++) {
        struct skr_sql_template *template = &handler->templates[i];
        enum skr_code code = skr_sql_template_parse(
            statements[i], dialect, &handler->arena, template, error);
        if (code != SKR_OK)
            return code;
        handler->explained[i] =
            skr_arena_format(&handler->arena, "EXPLAIN %s", template->sql);
        if (handler->explained[i] == NULL)
            return skr_fail_memory(error);
        for (size_t p = 0; p < template->count; p++)
            if (template->parameters[p] == SKR_SQL_HEADERS)
                handler->wants_headers = true;
    }
    return SKR_OK;
}

enum skr_code
skr_sql_handler_new(const struct skr_dialect *dialect,
                    const char *const *statements, size_t count,
                    struct skr_sql_handler **handler, struct skr_error *error)
{
    if (count == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "an SQL handler needs at least one statement");
    struct skr_sql_handler *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->count = count;
    made->templates =
        skr_arena_take(&made->arena, count * sizeof(*made->templates));
    made->explained =
        skr_arena_take(&made->arena, count * sizeof(*made->explained));
    enum skr_code code = made->templates == NULL || made->explained == NULL
                             ? skr_fail_memory(error)
                             : parse_all(made, dialect, statements, error);
    if (code != SKR_OK) {
        skr_sql_handler_free(made);
        return code;
    }
    *handler = made;
    return SKR_OK;
}

bool
skr_sql_handler_calls(const struct skr_sql_handler *handler)
{
    for (size_t i = 0; i < handler->count; i++)
        if (handler->templates[i].calls)
            return true;
    return false;
}

void
skr_sql_handler_free(struct skr_sql_handler *handler)
{
    if (handler == NULL)
        return;
    skr_arena_fini(&handler->arena);
    free(handler);
}

struct fields {
    const struct skr_message *message;
    char id_text[SKR_ID_TEXT_SIZE];
    struct skr_text headers;
};

static struct skr_value
bind(const struct fields *fields, enum skr_sql_parameter parameter)
{
    const struct skr_message *message = fields->message;
    switch (parameter) {
    case SKR_SQL_ID: return skr_bind_id(&message->id);
    case SKR_SQL_ID_TEXT: return skr_bind_text(fields->id_text);
    case SKR_SQL_NAME: return skr_bind_text(message->name);
    case SKR_SQL_BODY: return skr_bind_bytes(message->body, message->body_size);
    case SKR_SQL_HEADERS:
        return skr_bind_bytes(fields->headers.bytes, fields->headers.size);
    case SKR_SQL_PARTITION_KEY: return skr_bind_text(message->partition_key);
    }
    abort();
}

static enum skr_code
run_template(const struct skr_sql_template *template,
             const struct fields *fields, struct skr_tx tx,
             struct skr_error *error)
{
    struct skr_value values[SKR_SQL_MAX_PARAMETERS];
    for (size_t i = 0; i < template->count; i++)
        values[i] = bind(fields, template->parameters[i]);
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = template->sql,
                                              .values = values,
                                              .value_count = template->count},
                      error);
}

enum skr_verdict
skr_sql_handler_run(const struct skr_delivery *delivery, struct skr_tx tx,
                    void *user, struct skr_error *reason)
{
    const struct skr_sql_handler *handler = user;
    struct fields fields = {.message = &delivery->message};
    enum skr_code code = SKR_OK;
    skr_id_format(delivery->message.id, fields.id_text);
    if (handler->wants_headers)
        code = skr_headers_write(delivery->message.headers,
                                 delivery->message.header_count,
                                 &fields.headers, reason);
    if (code == SKR_OK && fields.headers.broken)
        code = skr_fail_memory(reason);
    for (size_t i = 0; i < handler->count && code == SKR_OK; i++)
        code = run_template(&handler->templates[i], &fields, tx, reason);
    skr_text_fini(&fields.headers);
    return code == SKR_OK ? SKR_ACCEPT : SKR_RETRY;
}

// A database makes a plan without running it, and NULL offends no statement.
static enum skr_code
explain(const char *explained, size_t count, struct skr_tx tx,
        struct skr_error *error)
{
    struct skr_value values[SKR_SQL_MAX_PARAMETERS];
    for (size_t i = 0; i < SKR_SQL_MAX_PARAMETERS; i++)
        values[i] = (struct skr_value){.kind = SKR_NULL};
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = explained,
                                              .values = values,
                                              .value_count = count},
                      error);
}

static bool
can_be_explained(const char *sql)
{
    const char *word = sql + strspn(sql, " \t\r\n\v\f");
    return strncasecmp(word, "CALL", 4) != 0 &&
           strncasecmp(word, "VALUES", 6) != 0;
}

enum skr_code
skr_sql_handler_check(const struct skr_sql_handler *handler, struct skr_tx tx,
                      struct skr_error *error)
{
    for (size_t i = 0; i < handler->count; i++) {
        const struct skr_sql_template *template = &handler->templates[i];
        if (!can_be_explained(template->sql))
            continue;
        enum skr_code code =
            explain(handler->explained[i], template->count, tx, error);
        if (code == SKR_MISSING || code == SKR_INVALID)
            return code;
    }
    return SKR_OK;
}

// One that cannot be explained for reasons of its own fails in another way.
bool
skr_sql_handler_is_broken(const struct skr_sql_handler *handler,
                          struct skr_tx tx, const struct skr_error *reason)
{
    for (size_t i = 0; i < handler->count; i++) {
        struct skr_error found = {0};
        enum skr_code code = explain(handler->explained[i],
                                     handler->templates[i].count, tx, &found);
        if (code != SKR_OK && code == reason->code &&
            strcmp(found.native, reason->native) == 0)
            return true;
    }
    return false;
}

enum skr_code
skr_sql_statement_check(const char *sql, struct skr_tx tx,
                        struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_sql_template template;
    const char *explained = NULL;
    enum skr_code code =
        skr_sql_template_parse(sql, tx.ops->dialect, &arena, &template, error);
    if (code == SKR_OK && can_be_explained(template.sql)) {
        explained = skr_arena_format(&arena, "EXPLAIN %s", template.sql);
        code = explained == NULL
                   ? skr_fail_memory(error)
                   : explain(explained, template.count, tx, error);
    }
    skr_arena_fini(&arena);
    return code;
}
