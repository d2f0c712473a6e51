// SPDX-License-Identifier: MIT
// SQL handlers: reads their statements, finds the named parameters, refuses
// what must not run inside the consumer's transaction, and runs them with a
// message's fields bound.
//
// One text is read the same way for every database. Where they disagree on
// what a character means, it is refused, and the error says what to write.

#include "inbox/sql_handler.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/db.h"
#include "db/sql.h"
#include "inbox/consumer_internals.h"
#include "message/envelope.h"
#include "message/headers.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    enum skr_sql_parameter parameter;
} known_parameters[] = {
    {"id", SKR_SQL_ID},           {"id_text", SKR_SQL_ID_TEXT},
    {"name", SKR_SQL_NAME},       {"body", SKR_SQL_BODY},
    {"headers", SKR_SQL_HEADERS}, {"partition_key", SKR_SQL_PARTITION_KEY},
};

static const struct {
    const char *words[18];
    const char *why;  // NULL: a statement may begin so
} first_words[] = {
    {{"INSERT", "UPDATE", "DELETE", "SELECT", "REPLACE", "WITH", "CALL",
      "VALUES", "MERGE"},
     NULL},
    {{"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE"},
     "changes the schema, which some databases commit at once; a handler "
     "cannot"},
    {{"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT",
      "RELEASE", "PREPARE", "LOCK", "UNLOCK", "XA", "VACUUM", "ATTACH",
      "DETACH", "PRAGMA", "SET"},
     "touches the transaction or the session, which are the consumer's"},
};

struct reader {
    const char *at;
    struct skr_text sql;
    const struct skr_dialect *dialect;
    struct skr_sql_template *parsed;
    bool has_word;
    bool is_over;  // a semicolon was read
    struct skr_error *error;
};

static bool
is_word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool
is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t
word_length(const char *at)
{
    size_t length = 0;
    while (is_word_start(at[length]) || isdigit((unsigned char)at[length]) ||
           at[length] == '$')
        length++;
    return length;
}

static enum skr_code
refuse(const struct reader *reader, const char *why)
{
    return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP, "%s", why);
}

static enum skr_code
check_first_word(const char *word, size_t length, struct skr_error *error)
{
    int shown = length < 40 ? (int)length : 40;
    for (size_t i = 0; i < SKR_COUNT_OF(first_words); i++)
        for (const char *const *at = first_words[i].words; *at != NULL; at++)
            if (strlen(*at) == length && strncasecmp(*at, word, length) == 0)
                return first_words[i].why == NULL
                           ? SKR_OK
                           : skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                                      "%.*s %s", shown, word,
                                      first_words[i].why);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "a handler's statement cannot begin with %.*s; INSERT, "
                    "UPDATE, DELETE, SELECT, REPLACE, WITH, CALL, VALUES or "
                    "MERGE is needed",
                    shown, word);
}

static enum skr_code
read_word(struct reader *reader)
{
    size_t length = word_length(reader->at);
    if (!reader->has_word) {
        enum skr_code code =
            check_first_word(reader->at, length, reader->error);
        if (code != SKR_OK)
            return code;
        reader->parsed->calls =
            length == 4 && strncasecmp(reader->at, "CALL", 4) == 0;
    }
    reader->has_word = true;
    skr_text_add(&reader->sql, reader->at, length);
    reader->at += length;
    return SKR_OK;
}

// A string or a quoted name; a doubled quote stands for one.
static enum skr_code
read_quoted(struct reader *reader)
{
    const char quote = *reader->at;
    const char *end = reader->at + 1;
    for (; *end != '\0'; end++) {
        if (*end == '\\' && end[1] == quote)
            return refuse(reader,
                          "a backslash before a quote means different things "
                          "to different databases; double the quote instead");
        if (*end != quote)
            continue;
        if (end[1] != quote)
            break;
        end++;
    }
    if (*end == '\0')
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a %c is not closed", quote);
    end++;
    skr_text_add(&reader->sql, reader->at, (size_t)(end - reader->at));
    reader->at = end;
    return SKR_OK;
}

static enum skr_code
skip_block_comment(struct reader *reader)
{
    if (reader->at[2] == '!')
        return refuse(
            reader,
            "a comment that begins with /*! is a statement to some databases");
    const char *end = strstr(reader->at + 2, "*/");
    if (end == NULL)
        return refuse(reader, "a /* is not closed");
    const char *inner = strstr(reader->at + 2, "/*");
    if (inner != NULL && inner < end)
        return refuse(reader, "a comment inside a comment ends at different "
                              "places in different databases");
    skr_text_add_string(&reader->sql, " ");
    reader->at = end + 2;
    return SKR_OK;
}

static enum skr_code
refuse_parameter(const struct reader *reader, const char *what, size_t length)
{
    return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                    "%.*s is no parameter that a handler can have; there are "
                    ":id, :id_text, :name, :body, :headers and "
                    ":partition_key",
                    length < 60 ? (int)length : 60, what);
}

static enum skr_code
read_parameter(struct reader *reader)
{
    const char *name = reader->at + 1;
    size_t length = word_length(name);
    for (size_t i = 0; i < SKR_COUNT_OF(known_parameters); i++) {
        if (strlen(known_parameters[i].name) != length ||
            strncmp(known_parameters[i].name, name, length) != 0)
            continue;
        struct skr_sql_template *parsed = reader->parsed;
        if (parsed->count == SKR_SQL_MAX_PARAMETERS)
            return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                            "more than %d parameters in one statement",
                            SKR_SQL_MAX_PARAMETERS);
        parsed->parameters[parsed->count++] = known_parameters[i].parameter;
        if (reader->dialect->numbers_parameters)
            skr_text_add_format(&reader->sql, "$%zu", parsed->count);
        else
            skr_text_add_string(&reader->sql, "?");
        reader->at = name + length;
        return SKR_OK;
    }
    return refuse_parameter(reader, reader->at, length + 1);
}

static enum skr_code
read_colon(struct reader *reader)
{
    char next = reader->at[1];
    if (is_word_start(next))
        return read_parameter(reader);
    if (isdigit((unsigned char)next))
        return refuse_parameter(reader, reader->at, 2);
    // Both of a pair, so that the second colon of x::text begins nothing.
    size_t length = next == ':' ? 2 : 1;
    skr_text_add(&reader->sql, reader->at, length);
    reader->at += length;
    return SKR_OK;
}

static enum skr_code
skip_line_comment(struct reader *reader)
{
    char next = reader->at[2];
    if (next != '\0' && !is_space(next))
        return refuse(reader, "-- without a blank behind it is a comment to "
                              "some databases and two signs to others; write a "
                              "blank behind it, or - (-1) for a number");
    reader->at += strcspn(reader->at, "\n");
    skr_text_add_string(&reader->sql, " ");
    return SKR_OK;
}

static enum skr_code
read_token(struct reader *reader)
{
    const char *at = reader->at;
    if (at[0] == '-' && at[1] == '-')
        return skip_line_comment(reader);
    if (at[0] == '/' && at[1] == '*')
        return skip_block_comment(reader);
    if (at[0] == '#' && reader->dialect->hash_is_comment)
        return refuse(reader, "# begins a comment here and nowhere else; write "
                              "-- and a blank instead");
    if (is_space(at[0])) {
        skr_text_add(&reader->sql, at, 1);
        reader->at++;
        return SKR_OK;
    }
    if (reader->is_over)
        return refuse(reader, "a second statement after a semicolon; make it "
                              "an item of its own in the handler's list");
    if (is_word_start(at[0]))
        return read_word(reader);
    if (!reader->has_word)
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a handler's statement cannot begin with %c",
                        at[0] >= ' ' && at[0] <= '~' ? at[0] : '?');
    if (at[0] == '\'' || at[0] == '"' || at[0] == '`')
        return read_quoted(reader);
    if (at[0] == ':')
        return read_colon(reader);
    if (at[0] == '?' || at[0] == '$' || (at[0] == '@' && is_word_start(at[1])))
        return refuse_parameter(reader, at, 1 + word_length(at + 1));
    if (at[0] == ';') {
        reader->is_over = true;
        reader->at++;
        return SKR_OK;
    }
    // A number's letters and dollars belong to it: 0x1f is no word.
    size_t length = isdigit((unsigned char)at[0]) ? word_length(at) : 1;
    skr_text_add(&reader->sql, at, length);
    reader->at += length;
    return SKR_OK;
}

enum skr_code
skr_sql_template_parse(const char *sql, const struct skr_dialect *dialect,
                       struct skr_arena *arena, struct skr_sql_template *parsed,
                       struct skr_error *error)
{
    struct skr_sql_template found = {0};
    struct reader reader = {
        .at = sql, .dialect = dialect, .parsed = &found, .error = error};
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && *reader.at != '\0')
        code = read_token(&reader);
    if (code == SKR_OK && !reader.has_word)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a handler's statement is empty");
    if (code == SKR_OK && !reader.sql.broken)
        found.sql = skr_arena_text(arena, reader.sql.bytes, reader.sql.size);
    if (code == SKR_OK && found.sql == NULL)
        code = skr_fail_memory(error);
    if (code == SKR_OK)
        *parsed = found;
    skr_text_fini(&reader.sql);
    return code;
}

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

static enum skr_code
sql_handler_new(const struct skr_dialect *dialect,
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

// fields NULL: with NULL in the place of each.
static enum skr_code
run_template(const struct skr_sql_template *template, const char *sql,
             const struct fields *fields, struct skr_tx tx,
             struct skr_error *error)
{
    struct skr_value values[SKR_SQL_MAX_PARAMETERS];
    for (size_t i = 0; i < template->count; i++)
        values[i] = fields == NULL ? (struct skr_value){.kind = SKR_NULL}
                                   : bind(fields, template->parameters[i]);
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = sql,
                                              .values = values,
                                              .value_count = template->count},
                      error);
}

static enum skr_verdict
run_handler(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
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
        code = run_template(&handler->templates[i], handler->templates[i].sql,
                            &fields, tx, reason);
    skr_text_fini(&fields.headers);
    return code == SKR_OK ? SKR_ACCEPT : SKR_RETRY;
}

// What retries of this hop wrote stays behind, and an id that the broker alone
// knew goes along: the next hop is to find the same id.
static enum skr_code
pass_headers(struct skr_arena *arena, const struct skr_message *message,
             struct skr_headers *headers, struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    struct skr_envelope found;
    for (size_t i = 0; i < message->header_count; i++) {
        const struct skr_header *header = &message->headers[i];
        if (strcmp(header->name, SKR_HEADER_REDELIVERY) != 0 &&
            strcmp(header->name, SKR_HEADER_ERROR) != 0 &&
            !skr_headers_add(arena, headers, header->name, header->value))
            return skr_fail_memory(error);
    }
    enum skr_code code =
        skr_envelope_read(arena, headers, NULL, NULL, &found, error);
    if (code != SKR_OK || found.has_id)
        return code;
    skr_id_format(message->id, id);
    return skr_headers_set(arena, headers, SKR_HEADER_ID,
                           skr_arena_text(arena, id, strlen(id)))
               ? SKR_OK
               : skr_fail_memory(error);
}

static enum skr_verdict
run_forward(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
{
    struct skr_arena arena = {0};
    struct skr_headers headers = {0};
    struct skr_delivery passed = *delivery;
    enum skr_verdict verdict = SKR_RETRY;
    if (pass_headers(&arena, &delivery->message, &headers, reason) == SKR_OK) {
        passed.message.headers = headers.items;
        passed.message.header_count = headers.count;
        verdict = run_handler(&passed, tx, user, reason);
    }
    skr_arena_fini(&arena);
    return verdict;
}

// A database makes a plan without running it, and NULL offends no statement.
static enum skr_code
explain(const struct skr_sql_handler *handler, size_t index, struct skr_tx tx,
        struct skr_error *error)
{
    return run_template(&handler->templates[index], handler->explained[index],
                        NULL, tx, error);
}

static bool
can_be_explained(const struct skr_sql_handler *handler, size_t index)
{
    const char *word = handler->templates[index].sql;
    word += strspn(word, " \t\r\n\v\f");
    return strncasecmp(word, "CALL", 4) != 0 &&
           strncasecmp(word, "VALUES", 6) != 0;
}

enum skr_code
skr_sql_handler_check(const struct skr_sql_handler *handler, struct skr_tx tx,
                      struct skr_error *error)
{
    for (size_t i = 0; i < handler->count; i++) {
        enum skr_code code = can_be_explained(handler, i)
                                 ? explain(handler, i, tx, error)
                                 : SKR_OK;
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
        enum skr_code code = explain(handler, i, tx, &found);
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
    struct skr_sql_handler *handler = NULL;
    enum skr_code code =
        sql_handler_new(tx.ops->dialect, &sql, 1, &handler, error);
    if (code == SKR_OK && can_be_explained(handler, 0))
        code = explain(handler, 0, tx, error);
    skr_sql_handler_free(handler);
    return code;
}

// Takes what the handler owns, also after an error.
static enum skr_code
add_sql(struct skr_consumer *consumer, const char *message_name,
        const char *const *statements, size_t count, struct handler *handler,
        struct skr_error *error)
{
    enum skr_code code =
        sql_handler_new(consumer->options.database->tx->dialect, statements,
                        count, &handler->sql, error);
    handler->user = handler->sql;
    if (code == SKR_OK)
        code =
            skr_handlers_add(&consumer->handlers, message_name, handler, error);
    if (code == SKR_OK)
        return SKR_OK;
    skr_sql_handler_free(handler->sql);
    skr_store_free(handler->queue);
    return code;
}

enum skr_code
skr_consumer_handle_sql(struct skr_consumer *consumer, const char *message_name,
                        const char *const *statements, size_t count,
                        struct skr_error *error)
{
    struct handler handler = {.run = run_handler};
    return add_sql(consumer, message_name, statements, count, &handler, error);
}

enum skr_code
skr_consumer_forward(struct skr_consumer *consumer,
                     const struct skr_forward *forward, struct skr_error *error)
{
    struct handler handler = {.run = run_forward,
                              .queue = forward->queue,
                              .makes_queue = forward->makes_queue};
    return add_sql(consumer, "*", &forward->insert, 1, &handler, error);
}
