// SPDX-License-Identifier: MIT
// Reads the SQL of a handler: finds its named parameters and refuses what must
// not run inside the consumer's transaction.
//
// One text is read the same way for every database. Where they disagree on
// what a character means, it is refused, and the error says what to write.

#include "inbox/sql_handler.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

#include <stdio.h>
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

static const char *const allowed_words[] = {"INSERT", "UPDATE",  "DELETE",
                                            "SELECT", "REPLACE", "WITH",
                                            "CALL",   "VALUES",  "MERGE"};

static const char *const schema_words[] = {
    "CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE"};

static const char *const transaction_words[] = {
    "BEGIN",     "START",   "COMMIT",  "END",    "ROLLBACK", "ABORT",
    "SAVEPOINT", "RELEASE", "PREPARE", "LOCK",   "UNLOCK",   "XA",
    "VACUUM",    "ATTACH",  "DETACH",  "PRAGMA", "SET"};

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
is_digit(char c)
{
    return c >= '0' && c <= '9';
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
    while (is_word_start(at[length]) || is_digit(at[length]) ||
           at[length] == '$')
        length++;
    return length;
}

static bool
is_one_of(const char *word, size_t length, const char *const *list,
          size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == length &&
            strncasecmp(list[i], word, length) == 0)
            return true;
    return false;
}

static enum skr_code
check_first_word(const char *word, size_t length, struct skr_error *error)
{
    int shown = length < 40 ? (int)length : 40;
    if (is_one_of(word, length, allowed_words, SKR_COUNT_OF(allowed_words)))
        return SKR_OK;
    if (is_one_of(word, length, schema_words, SKR_COUNT_OF(schema_words)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.*s changes the schema, which some databases commit "
                        "at once; a handler cannot",
                        shown, word);
    if (is_one_of(word, length, transaction_words,
                  SKR_COUNT_OF(transaction_words)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.*s touches the transaction or the session, which "
                        "are the consumer's",
                        shown, word);
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
            return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                            "a backslash before a quote means different "
                            "things to different databases; double the quote "
                            "instead");
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
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a comment that begins with /*! is a statement to "
                        "some databases");
    const char *end = strstr(reader->at + 2, "*/");
    if (end == NULL)
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a /* is not closed");
    const char *inner = strstr(reader->at + 2, "/*");
    if (inner != NULL && inner < end)
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a comment inside a comment ends at different places "
                        "in different databases");
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
    if (is_digit(next))
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
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "-- without a blank behind it is a comment to some "
                        "databases and two signs to others; write a blank "
                        "behind it, or - (-1) for a number");
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
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "# begins a comment here and nowhere else; write -- "
                        "and a blank instead");
    if (is_space(at[0])) {
        skr_text_add(&reader->sql, at, 1);
        reader->at++;
        return SKR_OK;
    }
    if (reader->is_over)
        return skr_fail(reader->error, SKR_INVALID, SKR_GIVE_UP,
                        "a second statement after a semicolon; make it an "
                        "item of its own in the handler's list");
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
    size_t length = is_digit(at[0]) ? word_length(at) : 1;
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
