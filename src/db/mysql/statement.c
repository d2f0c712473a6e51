// SPDX-License-Identifier: MIT
// Running one statement. How it travels depends on whose connection it is and
// on what is wanted:
//
//   nothing bound, no rows wanted      as text: one round trip
//   ours                               prepared once, then one round trip
//   the application's                  prepared and executed at once: one round
//                                      trip on MariaDB, two on MySQL, and
//                                      nothing stays behind on the server
//
// On our own connections rows are given as they arrive, so that memory does not
// grow with their number; should another statement run meanwhile, those still
// on the wire are taken in first. Statements of ours stay prepared on the
// server, by their text.

#include "db/mysql/connection.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct skr_mysql_prepared *
find(struct skr_mysql_cache *cache, const char *sql)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->entries[i].sql, sql) == 0)
            return &cache->entries[i];
    return NULL;
}

// A place for one more: a new one, or the one that was used the longest ago.
// NULL when the rows of all are being read.
static struct skr_mysql_prepared *
make_place(struct skr_mysql_cache *cache)
{
    if (cache->count < SKR_MYSQL_CACHE_SIZE)
        return &cache->entries[cache->count++];
    struct skr_mysql_prepared *oldest = NULL;
    for (size_t i = 0; i < cache->count; i++) {
        struct skr_mysql_prepared *entry = &cache->entries[i];
        if (!entry->is_busy &&
            (oldest == NULL || entry->used_at < oldest->used_at))
            oldest = entry;
    }
    if (oldest == NULL)
        return NULL;
    mysql_stmt_close(oldest->handle);
    free(oldest->sql);
    return oldest;
}

static enum skr_code
prepare(MYSQL *connection, const char *sql, struct skr_mysql_prepared *prepared,
        struct skr_error *error)
{
    MYSQL_STMT *handle = mysql_stmt_init(connection);
    if (handle == NULL)
        return skr_fail_memory(error);
    if (mysql_stmt_prepare(handle, sql, strlen(sql)) != 0) {
        enum skr_code code =
            skr_mysql_fail_statement(connection, handle, error);
        mysql_stmt_close(handle);
        return code;
    }
    *prepared = (struct skr_mysql_prepared){.handle = handle};
    return SKR_OK;
}

// Finds or prepares a statement of ours; it lies in one_off when the cache has
// no place for it. Either way release() takes it back.
static enum skr_code
find_or_prepare(struct skr_mysql *mysql, const char *sql,
                struct skr_mysql_prepared *one_off,
                struct skr_mysql_prepared **prepared, struct skr_error *error)
{
    struct skr_mysql_cache *cache = &mysql->cache;
    struct skr_mysql_prepared *entry = find(cache, sql);
    bool is_new = entry == NULL;
    if (is_new || entry->is_busy) {
        // Prepared before there is a place for it: a mistake costs no other
        // statement its own.
        enum skr_code code = prepare(mysql->connection, sql, one_off, error);
        if (code != SKR_OK)
            return code;
        entry = one_off;
    }
    if (is_new) {
        char *copy = strdup(sql);
        struct skr_mysql_prepared *place =
            copy == NULL ? NULL : make_place(cache);
        if (place == NULL) {
            free(copy);
        } else {
            *place = *one_off;
            place->sql = copy;
            entry = place;
        }
    }
    entry->used_at = ++cache->uses;
    entry->is_busy = true;
    *prepared = entry;
    return SKR_OK;
}

static void
release(struct skr_mysql_prepared *prepared,
        const struct skr_mysql_prepared *one_off)
{
    prepared->is_busy = false;
    if (prepared == one_off)
        mysql_stmt_close(prepared->handle);
}

void
skr_mysql_cache_clear(struct skr_mysql_cache *cache)
{
    for (size_t i = 0; i < cache->count; i++) {
        mysql_stmt_close(cache->entries[i].handle);
        free(cache->entries[i].sql);
    }
    cache->count = 0;
}

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

// What is still coming, so that another statement can run.
static enum skr_code
take_in(struct skr_mysql *mysql, struct skr_error *error)
{
    struct skr_mysql_rows *rows = mysql->coming;
    if (rows == NULL)
        return SKR_OK;
    mysql->coming = NULL;
    rows->is_taken_in = true;
    enum skr_code code = save_rest(rows, &rows->failure);
    // Whatever went wrong, the wire must be empty afterwards.
    mysql_stmt_free_result(rows->handle);
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &rows->failure);
}

static enum skr_code
next_saved(struct skr_mysql_rows *rows, struct skr_value *values, bool *has_row,
           struct skr_error *error)
{
    struct saved_row *row = rows->saved;
    *has_row = row != NULL;
    if (row == NULL)
        return rows->failure.code == SKR_OK
                   ? SKR_OK
                   : skr_fail_with(error, &rows->failure);
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

// own is NULL for a connection that is not ours; all rows are then taken in
// first.
static enum skr_code
give_rows(MYSQL *connection, struct skr_mysql *own, MYSQL_STMT *handle,
          const struct skr_statement *statement, struct skr_error *error)
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

// Discards all results of a text; a procedure may give several.
static enum skr_code
discard_results(MYSQL *connection, struct skr_error *error)
{
    int more;
    do {
        // Rows are read from the wire and dropped one by one.
        mysql_free_result(mysql_use_result(connection));
        more = mysql_next_result(connection);
    } while (more == 0);
    return more > 0 ? skr_mysql_fail(connection, error) : SKR_OK;
}

static enum skr_code
take_text_results(MYSQL *connection, uint64_t *affected,
                  struct skr_error *error)
{
    bool has_rows = mysql_field_count(connection) > 0;
    if (affected != NULL)
        *affected = has_rows ? 0 : mysql_affected_rows(connection);
    return discard_results(connection, error);
}

enum skr_code
skr_mysql_exec(MYSQL *connection, const char *sql, uint64_t *affected,
               struct skr_error *error)
{
    errno = 0;
    if (mysql_real_query(connection, sql, strlen(sql)) != 0)
        return skr_mysql_fail(connection, error);
    return take_text_results(connection, affected, error);
}

// The client library's own limit cannot be changed once it is connected: the
// answer is waited for before the library does.
static enum skr_code
exec_long(struct skr_mysql *mysql, const struct skr_statement *statement,
          struct skr_error *error)
{
    MYSQL *connection = mysql->connection;
    unsigned timeout_s = mysql->timeout_s > SKR_LONG_TIMEOUT_S
                             ? mysql->timeout_s
                             : SKR_LONG_TIMEOUT_S;
    errno = 0;
    if (mysql_send_query(connection, statement->sql, strlen(statement->sql)))
        return skr_mysql_fail(connection, error);
    if (!skr_clock_await((int)mysql_get_socket(connection), POLLIN,
                         INT64_C(1000) * timeout_s)) {
        enum skr_code code =
            skr_mysql_fail_silent(connection, timeout_s, error);
        // So that the library knows that it is over.
        shutdown((int)mysql_get_socket(connection), SHUT_RDWR);
        mysql_read_query_result(connection);
        return code;
    }
    if (mysql_read_query_result(connection))
        return skr_mysql_fail(connection, error);
    return take_text_results(connection, statement->affected, error);
}

static void
bind_value(const struct skr_value *value, MYSQL_BIND *bind)
{
    *bind = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL};
    // The client library declares what it only reads as writable.
    union {
        const void *read;
        void *write;
    } bytes = {.read = value->bytes};
    switch (value->kind) {
    case SKR_NULL: return;
    case SKR_INTEGER:
        bytes.read = &value->integer;
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->buffer = bytes.write;
        return;
    case SKR_TEXT:
    case SKR_BLOB:
        bind->buffer_type =
            value->kind == SKR_TEXT ? MYSQL_TYPE_STRING : MYSQL_TYPE_LONG_BLOB;
        if (value->bytes == NULL)
            bytes.read = "";
        bind->buffer = bytes.write;
        bind->buffer_length = value->size;
        bind->length_value = value->size;
        return;
    }
}

// NULL: memory is out.
static MYSQL_BIND *
make_binds(const struct skr_statement *statement)
{
    MYSQL_BIND *binds = calloc(statement->value_count + 1, sizeof(*binds));
    if (binds == NULL)
        return NULL;
    for (size_t i = 0; i < statement->value_count; i++) {
        bind_value(&statement->values[i], &binds[i]);
        binds[i].length = &binds[i].length_value;
    }
    return binds;
}

// A server that is given more than it takes closes the connection, and the
// reason is lost on the way.
static enum skr_code
check_size(const struct skr_mysql *mysql, const struct skr_statement *statement,
           struct skr_error *error)
{
    enum { ROOM_PER_VALUE = 32, ROOM_BESIDE = 1024 };
    uint64_t size = ROOM_BESIDE + statement->value_count * ROOM_PER_VALUE;
    for (size_t i = 0; i < statement->value_count; i++)
        size += statement->values[i].size;
    if (size <= mysql->max_packet)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s takes no statement of %llu bytes; raise the server's "
                    "max_allowed_packet, which is %llu",
                    skr_mysql_product(mysql->connection),
                    (unsigned long long)size,
                    (unsigned long long)mysql->max_packet);
}

static enum skr_code
bind_values(MYSQL *connection, MYSQL_STMT *handle,
            const struct skr_statement *statement, MYSQL_BIND *binds,
            struct skr_error *error)
{
    unsigned long wanted = mysql_stmt_param_count(handle);
    if (wanted != statement->value_count)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%zu values for %lu parameters: %.200s",
                        statement->value_count, wanted, statement->sql);
    if (wanted > 0 && mysql_stmt_bind_param(handle, binds))
        return skr_mysql_fail_statement(connection, handle, error);
    return SKR_OK;
}

// Whatever is left of the results, so that the connection is free again.
static enum skr_code
finish(MYSQL *connection, MYSQL_STMT *handle, struct skr_error *error)
{
    int more;
    do {
        mysql_stmt_free_result(handle);
        more = mysql_stmt_next_result(handle);
    } while (more == 0);
    return more > 0 ? skr_mysql_fail_statement(connection, handle, error)
                    : SKR_OK;
}

static enum skr_code
take_results(MYSQL *connection, struct skr_mysql *own, MYSQL_STMT *handle,
             const struct skr_statement *statement, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool has_rows = mysql_stmt_field_count(handle) > 0;
    if (statement->affected != NULL)
        *statement->affected = has_rows ? 0 : mysql_stmt_affected_rows(handle);
    if (has_rows && statement->each_row != NULL)
        code = give_rows(connection, own, handle, statement, error);
    enum skr_code finished =
        finish(connection, handle, code == SKR_OK ? error : NULL);
    return code == SKR_OK ? finished : code;
}

static enum skr_code
run_prepared(struct skr_mysql *mysql, const struct skr_statement *statement,
             MYSQL_BIND *binds, struct skr_error *error)
{
    struct skr_mysql_prepared one_off, *prepared = NULL;
    MYSQL *connection = mysql->connection;
    enum skr_code code =
        find_or_prepare(mysql, statement->sql, &one_off, &prepared, error);
    if (code != SKR_OK)
        return code;
    MYSQL_STMT *handle = prepared->handle;
    code = bind_values(connection, handle, statement, binds, error);
    if (code == SKR_OK && mysql_stmt_execute(handle) != 0)
        code = skr_mysql_fail_statement(connection, handle, error);
    else if (code == SKR_OK)
        code = take_results(connection, mysql, handle, statement, error);
    release(prepared, &one_off);
    return code;
}

enum skr_code
skr_mysql_exec_prepared(struct skr_mysql *mysql, const char *sql,
                        struct skr_error *error)
{
    MYSQL_BIND none;
    enum skr_code code = take_in(mysql, error);
    errno = 0;
    return code == SKR_OK
               ? run_prepared(mysql, &(struct skr_statement){.sql = sql}, &none,
                              error)
               : code;
}

static enum skr_code
run_at_once(MYSQL *connection, const struct skr_statement *statement,
            MYSQL_BIND *binds, struct skr_error *error)
{
    MYSQL_STMT *handle = mysql_stmt_init(connection);
    if (handle == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    unsigned count = (unsigned)statement->value_count;
    if (mysql_stmt_attr_set(handle, STMT_ATTR_PREBIND_PARAMS, &count) ||
        (count > 0 && mysql_stmt_bind_param(handle, binds)) ||
        mariadb_stmt_execute_direct(handle, statement->sql,
                                    strlen(statement->sql)) != 0)
        code = skr_mysql_fail_statement(connection, handle, error);
    else
        code = take_results(connection, NULL, handle, statement, error);
    mysql_stmt_close(handle);
    return code;
}

enum skr_code
skr_mysql_run(MYSQL *connection, struct skr_mysql *own,
              const struct skr_statement *statement, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (own != NULL)
        code = take_in(own, error);
    if (code == SKR_OK && own != NULL)
        code = check_size(own, statement, error);
    if (code != SKR_OK)
        return code;
    if (own != NULL && statement->takes_long)
        return exec_long(own, statement, error);
    if (statement->value_count == 0 && statement->each_row == NULL &&
        strchr(statement->sql, '?') == NULL)
        return skr_mysql_exec(connection, statement->sql, statement->affected,
                              error);
    MYSQL_BIND *binds = make_binds(statement);
    if (binds == NULL)
        return skr_fail_memory(error);
    errno = 0;
    code = own == NULL ? run_at_once(connection, statement, binds, error)
                       : run_prepared(own, statement, binds, error);
    free(binds);
    return code;
}
