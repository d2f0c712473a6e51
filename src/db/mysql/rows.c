// SPDX-License-Identifier: MIT
// The rows of a statement. On our own connections they are given as they
// arrive, so that memory does not grow with their number; should another
// statement run meanwhile, those still on the wire are taken in first.

#include "db/mysql/connection.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

#include <limits.h>
#include <stdlib.h>

enum {
    MAX_COLUMNS = 32,
    FIRST_CAPACITY = 1024,
    BINARY_CHARSET = 63,
};

struct column {
    enum skr_value_kind kind;
    int64_t integer;
    char *bytes;             // room for capacity, and a zero at the end
    unsigned long capacity;  // grows to the longest value
    unsigned long size;
    my_bool is_null;
};

struct saved_row {
    struct saved_row *next;
    struct skr_value values[];
};

struct skr_mysql_rows {
    MYSQL *connection;
    MYSQL_STMT *handle;
    struct column columns[MAX_COLUMNS];
    MYSQL_BIND binds[MAX_COLUMNS];
    size_t count;

    // Once taken in; what the row function is looking at stays where it is.
    bool is_taken_in;
    struct skr_arena arena;
    struct saved_row *saved;
    char *in_use[MAX_COLUMNS];
    struct skr_error failure;  // behind the last saved row
};

static enum skr_value_kind
kind_of(const MYSQL_FIELD *field)
{
    static const enum enum_field_types integers[] = {
        MYSQL_TYPE_TINY, MYSQL_TYPE_SHORT,    MYSQL_TYPE_INT24,
        MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_YEAR,
    };
    static const enum enum_field_types strings[] = {
        MYSQL_TYPE_VARCHAR,     MYSQL_TYPE_VAR_STRING, MYSQL_TYPE_STRING,
        MYSQL_TYPE_TINY_BLOB,   MYSQL_TYPE_BLOB,       MYSQL_TYPE_LONG_BLOB,
        MYSQL_TYPE_MEDIUM_BLOB, MYSQL_TYPE_GEOMETRY,   MYSQL_TYPE_BIT,
    };
    for (size_t i = 0; i < SKR_COUNT_OF(integers); i++)
        if (field->type == integers[i])
            return SKR_INTEGER;
    for (size_t i = 0; i < SKR_COUNT_OF(strings); i++)
        if (field->type == strings[i] && field->charsetnr == BINARY_CHARSET)
            return SKR_BLOB;
    // Times, and numbers with a fraction, come as text too.
    return SKR_TEXT;
}

static void
bind_column(struct column *column, MYSQL_BIND *bind)
{
    *bind = (MYSQL_BIND){.is_null = &column->is_null, .length = &column->size};
    if (column->kind == SKR_INTEGER) {
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->buffer = &column->integer;
        return;
    }
    bind->buffer_type =
        column->kind == SKR_BLOB ? MYSQL_TYPE_LONG_BLOB : MYSQL_TYPE_STRING;
    bind->buffer = column->bytes;
    bind->buffer_length = column->capacity;
}

static bool
make_room(struct column *column, unsigned long capacity)
{
    char *bytes = realloc(column->bytes, capacity + 1);
    if (bytes == NULL)
        return false;
    column->bytes = bytes;
    column->capacity = capacity;
    return true;
}

static enum skr_code
bind_columns(struct skr_mysql_rows *rows, struct skr_error *error)
{
    for (size_t i = 0; i < rows->count; i++)
        bind_column(&rows->columns[i], &rows->binds[i]);
    if (mysql_stmt_bind_result(rows->handle, rows->binds))
        return skr_mysql_fail_statement(rows->connection, rows->handle, error);
    return SKR_OK;
}

static enum skr_code
start(struct skr_mysql_rows *rows, const char *sql, struct skr_error *error)
{
    rows->count = mysql_stmt_field_count(rows->handle);
    if (rows->count > MAX_COLUMNS) {
        rows->count = 0;
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "more than %d columns: %.200s", MAX_COLUMNS, sql);
    }
    // Asked for each time: a table may have changed since it was prepared.
    MYSQL_RES *metadata = mysql_stmt_result_metadata(rows->handle);
    if (metadata == NULL)
        return skr_fail_memory(error);
    bool has_room = true;
    for (size_t i = 0; i < rows->count; i++) {
        struct column *column = &rows->columns[i];
        column->kind = kind_of(mysql_fetch_field_direct(metadata, (unsigned)i));
        if (column->kind != SKR_INTEGER)
            has_room = has_room && make_room(column, FIRST_CAPACITY);
    }
    mysql_free_result(metadata);
    return has_room ? bind_columns(rows, error) : skr_fail_memory(error);
}

// Values that were longer than their room are read again, whole.
static enum skr_code
read_long_values(struct skr_mysql_rows *rows, struct skr_error *error)
{
    bool has_grown = false;
    for (size_t i = 0; i < rows->count; i++) {
        struct column *column = &rows->columns[i];
        if (column->kind == SKR_INTEGER || column->is_null ||
            column->size <= column->capacity)
            continue;
        // The server says how long it is; the sum must not wrap.
        if (column->size > ULONG_MAX / 2 ||
            !make_room(column, column->size + column->size / 4))
            return skr_fail_memory(error);
        MYSQL_BIND bind;
        bind_column(column, &bind);
        if (mysql_stmt_fetch_column(rows->handle, &bind, (unsigned)i, 0) != 0)
            return skr_mysql_fail_statement(rows->connection, rows->handle,
                                            error);
        has_grown = true;
    }
    return has_grown ? bind_columns(rows, error) : SKR_OK;
}

static struct skr_value
value_of(const struct column *column)
{
    if (column->is_null)
        return (struct skr_value){.kind = SKR_NULL};
    if (column->kind == SKR_INTEGER)
        return skr_bind_integer(column->integer);
    column->bytes[column->size] = '\0';
    return (struct skr_value){
        .kind = column->kind, .bytes = column->bytes, .size = column->size};
}

// The next row from the wire.
static enum skr_code
fetch(struct skr_mysql_rows *rows, struct skr_value *values, bool *has_row,
      struct skr_error *error)
{
    int result = mysql_stmt_fetch(rows->handle);
    *has_row = result != MYSQL_NO_DATA;
    if (!*has_row)
        return SKR_OK;
    if (result != 0 && result != MYSQL_DATA_TRUNCATED)
        return skr_mysql_fail_statement(rows->connection, rows->handle, error);
    enum skr_code code = read_long_values(rows, error);
    for (size_t i = 0; code == SKR_OK && i < rows->count; i++)
        values[i] = value_of(&rows->columns[i]);
    return code;
}

static struct saved_row *
save_row(struct skr_mysql_rows *rows, const struct skr_value *values)
{
    struct saved_row *row = skr_arena_take(
        &rows->arena, sizeof(*row) + rows->count * sizeof(values[0]));
    if (row == NULL)
        return NULL;
    row->next = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        row->values[i] = values[i];
        if (values[i].bytes == NULL)
            continue;
        row->values[i].bytes =
            skr_arena_text(&rows->arena, values[i].bytes, values[i].size);
        if (row->values[i].bytes == NULL)
            return NULL;
    }
    return row;
}

static enum skr_code
save_rest(struct skr_mysql_rows *rows, struct skr_error *error)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct column *column = &rows->columns[i];
        if (column->kind == SKR_INTEGER)
            continue;
        rows->in_use[i] = column->bytes;
        column->bytes = NULL;
        if (!make_room(column, column->capacity))
            return skr_fail_memory(error);
    }
    enum skr_code code = bind_columns(rows, error);
    struct saved_row **end = &rows->saved;
    while (code == SKR_OK) {
        struct skr_value values[MAX_COLUMNS];
        bool has_row = false;
        code = fetch(rows, values, &has_row, error);
        if (code != SKR_OK || !has_row)
            break;
        *end = save_row(rows, values);
        if (*end == NULL)
            code = skr_fail_memory(error);
        else
            end = &(*end)->next;
    }
    return code;
}

enum skr_code
skr_mysql_take_in(struct skr_mysql *mysql, struct skr_error *error)
{
    struct skr_mysql_rows *rows = mysql->coming;
    if (rows == NULL)
        return SKR_OK;
    mysql->coming = NULL;
    rows->is_taken_in = true;
    enum skr_code code = save_rest(rows, &rows->failure);
    // Whatever went wrong, the wire must be empty afterwards.
    mysql_stmt_free_result(rows->handle);
    if (code != SKR_OK && error != NULL)
        *error = rows->failure;
    return code;
}

static enum skr_code
next_saved(struct skr_mysql_rows *rows, struct skr_value *values, bool *has_row,
           struct skr_error *error)
{
    struct saved_row *row = rows->saved;
    *has_row = row != NULL;
    if (row == NULL) {
        if (rows->failure.code != SKR_OK && error != NULL)
            *error = rows->failure;
        return rows->failure.code;
    }
    rows->saved = row->next;
    for (size_t i = 0; i < rows->count; i++)
        values[i] = row->values[i];
    return SKR_OK;
}

static enum skr_code
give(struct skr_mysql_rows *rows, const struct skr_statement *statement,
     struct skr_error *error)
{
    for (;;) {
        struct skr_value values[MAX_COLUMNS];
        bool has_row = false;
        enum skr_code code = rows->is_taken_in
                                 ? next_saved(rows, values, &has_row, error)
                                 : fetch(rows, values, &has_row, error);
        if (code == SKR_OK && has_row)
            code = statement->each_row(values, rows->count, statement->user,
                                       error);
        if (code != SKR_OK || !has_row)
            return code;
    }
}

enum skr_code
skr_mysql_give_rows(MYSQL *connection, struct skr_mysql *own,
                    MYSQL_STMT *handle, const struct skr_statement *statement,
                    struct skr_error *error)
{
    struct skr_mysql_rows rows = {.connection = connection, .handle = handle};
    enum skr_code code = start(&rows, statement->sql, error);
    if (code == SKR_OK && own == NULL && mysql_stmt_store_result(handle) != 0)
        code = skr_mysql_fail_statement(connection, handle, error);
    if (own != NULL)
        own->coming = &rows;
    if (code == SKR_OK)
        code = give(&rows, statement, error);
    if (own != NULL && own->coming == &rows)
        own->coming = NULL;
    for (size_t i = 0; i < rows.count; i++) {
        free(rows.columns[i].bytes);
        free(rows.in_use[i]);
    }
    skr_arena_fini(&rows.arena);
    return code;
}
