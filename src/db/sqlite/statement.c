// SPDX-License-Identifier: MIT
// Running one statement: prepare or find it, bind, step, reset.

#include "db/sqlite/connection.h"

#include "base/error.h"

#include <string.h>

enum { MAX_COLUMNS = 32 };

// The place of a statement in the cache, the least recently used one where
// there is no room; its statement is not the text's yet.
static size_t
find_place(struct skr_sqlite_cache *cache, const char *sql, bool *found)
{
    size_t oldest = 0;
    for (size_t i = 0; i < cache->count; i++) {
        if (strcmp(sqlite3_sql(cache->entries[i].statement), sql) == 0) {
            *found = true;
            return i;
        }
        if (cache->entries[i].used_at < cache->entries[oldest].used_at)
            oldest = i;
    }
    *found = false;
    return cache->count < SKR_SQLITE_CACHE_SIZE ? cache->count : oldest;
}

static enum skr_code
prepare(sqlite3 *connection, const char *sql, unsigned flags,
        sqlite3_stmt **prepared, struct skr_error *error)
{
    const char *tail = NULL;
    int native =
        sqlite3_prepare_v3(connection, sql, -1, flags, prepared, &tail);
    if (native != SQLITE_OK)
        return skr_sqlite_fail(connection, native, error);
    if (*prepared != NULL && tail[strspn(tail, "; \t\r\n")] == '\0')
        return SKR_OK;
    sqlite3_finalize(*prepared);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "exactly one SQL statement is needed: %.200s", sql);
}

// *is_cached: the statement stays the cache's.
static enum skr_code
find_or_prepare(sqlite3 *connection, struct skr_sqlite_cache *cache,
                const char *sql, sqlite3_stmt **prepared, bool *is_cached,
                struct skr_error *error)
{
    *is_cached = false;
    if (cache == NULL)
        return prepare(connection, sql, 0, prepared, error);
    bool found = false;
    size_t place = find_place(cache, sql, &found);
    bool is_taken = place < cache->count;
    // One that is being stepped further up the call stack is left alone.
    if (is_taken && sqlite3_stmt_busy(cache->entries[place].statement))
        return prepare(connection, sql, 0, prepared, error);
    if (!found) {
        enum skr_code code = prepare(connection, sql, SQLITE_PREPARE_PERSISTENT,
                                     prepared, error);
        if (code != SKR_OK)
            return code;
        if (is_taken)
            sqlite3_finalize(cache->entries[place].statement);
        else
            cache->count++;
        cache->entries[place].statement = *prepared;
    }
    cache->entries[place].used_at = ++cache->uses;
    *prepared = cache->entries[place].statement;
    *is_cached = true;
    return SKR_OK;
}

void
skr_sqlite_cache_clear(struct skr_sqlite_cache *cache)
{
    for (size_t i = 0; i < cache->count; i++)
        sqlite3_finalize(cache->entries[i].statement);
    cache->count = 0;
}

static int
bind_value(sqlite3_stmt *prepared, int at, const struct skr_value *value)
{
    switch (value->kind) {
    case SKR_NULL: return sqlite3_bind_null(prepared, at);
    case SKR_INTEGER: return sqlite3_bind_int64(prepared, at, value->integer);
    case SKR_TEXT:
        return sqlite3_bind_text64(prepared, at, value->bytes, value->size,
                                   SQLITE_STATIC, SQLITE_UTF8);
    case SKR_BLOB:
        // A blob of no bytes may come without an address, which would be NULL.
        if (value->size == 0)
            return sqlite3_bind_zeroblob(prepared, at, 0);
        return sqlite3_bind_blob64(prepared, at, value->bytes, value->size,
                                   SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

static enum skr_code
bind_values(sqlite3 *connection, sqlite3_stmt *prepared,
            const struct skr_statement *statement, struct skr_error *error)
{
    int wanted = sqlite3_bind_parameter_count(prepared);
    if ((size_t)wanted != statement->value_count)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%zu values for %d parameters: %.200s",
                        statement->value_count, wanted, statement->sql);
    for (int i = 0; i < wanted; i++) {
        int native = bind_value(prepared, i + 1, &statement->values[i]);
        if (native != SQLITE_OK)
            return skr_sqlite_fail(connection, native, error);
    }
    return SKR_OK;
}

// False: memory is out.
static bool
read_column(sqlite3_stmt *prepared, int at, struct skr_value *column)
{
    *column = (struct skr_value){.kind = SKR_NULL};
    switch (sqlite3_column_type(prepared, at)) {
    case SQLITE_NULL: return true;
    case SQLITE_INTEGER:
        column->kind = SKR_INTEGER;
        column->integer = sqlite3_column_int64(prepared, at);
        return true;
    case SQLITE_BLOB:
        column->kind = SKR_BLOB;
        column->bytes = sqlite3_column_blob(prepared, at);
        column->size = (size_t)sqlite3_column_bytes(prepared, at);
        if (column->size == 0)
            column->bytes = "";
        return column->bytes != NULL;
    default:  // text, and numbers with a fraction as text
        column->kind = SKR_TEXT;
        column->bytes = sqlite3_column_text(prepared, at);
        column->size = (size_t)sqlite3_column_bytes(prepared, at);
        return column->bytes != NULL;
    }
}

static enum skr_code
give_row(sqlite3_stmt *prepared, const struct skr_statement *statement,
         struct skr_error *error)
{
    if (statement->each_row == NULL)
        return SKR_OK;
    struct skr_value columns[MAX_COLUMNS];
    int count = sqlite3_column_count(prepared);
    if (count > MAX_COLUMNS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "more than %d columns: %.200s", MAX_COLUMNS,
                        statement->sql);
    for (int i = 0; i < count; i++)
        if (!read_column(prepared, i, &columns[i]))
            return skr_fail_memory(error);
    return statement->each_row(columns, (size_t)count, statement->user, error);
}

static enum skr_code
step(sqlite3 *connection, sqlite3_stmt *prepared,
     const struct skr_statement *statement, struct skr_error *error)
{
    int native;
    while ((native = sqlite3_step(prepared)) == SQLITE_ROW) {
        enum skr_code code = give_row(prepared, statement, error);
        if (code != SKR_OK)
            return code;
    }
    if (native != SQLITE_DONE)
        return skr_sqlite_fail(connection, native, error);
    if (statement->affected != NULL)
        *statement->affected = sqlite3_stmt_readonly(prepared)
                                   ? 0
                                   : (uint64_t)sqlite3_changes(connection);
    return SKR_OK;
}

enum skr_code
skr_sqlite_run(sqlite3 *connection, struct skr_sqlite_cache *cache,
               const struct skr_statement *statement, struct skr_error *error)
{
    sqlite3_stmt *prepared = NULL;
    bool is_cached = false;
    enum skr_code code = find_or_prepare(connection, cache, statement->sql,
                                         &prepared, &is_cached, error);
    if (code != SKR_OK)
        return code;
    code = bind_values(connection, prepared, statement, error);
    if (code == SKR_OK)
        code = step(connection, prepared, statement, error);
    if (is_cached) {
        sqlite3_reset(prepared);
        // What was bound belongs to the caller and is about to go.
        sqlite3_clear_bindings(prepared);
    } else {
        sqlite3_finalize(prepared);
    }
    return code;
}
