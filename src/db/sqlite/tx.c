// SPDX-License-Identifier: MIT
// Statements, and the transactions that they run in, the application's and our
// own; SQLite's dialect.

#include "db/sqlite/connection.h"

#include "base/error.h"
#include "base/text.h"

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

// cache is NULL for a connection that is not ours.
static enum skr_code
run_statement(sqlite3 *connection, struct skr_sqlite_cache *cache,
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

static const struct skr_word words[] = {
    // One writer at a time: ids become visible in order.
    {"open_transactions", ""},
    {"now", "datetime('now')"},
    {"now_plus", "datetime('now', '+' || ? || ' seconds')"},
    {"now_after", "datetime('now', '+' || ((? + 999) / 1000.0) || ' seconds')"},
    {"now_minus", "datetime('now', '-' || ? || ' seconds')"},
    {"now_milliseconds", "CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)"},
    {"utc_now", "datetime('now')"},
    {"zone_names", ""},
    {"zone_now", "datetime('now', {zone_text})"},
    {"zone_now_plus", "datetime('now', '+' || ? || ' seconds', {zone_text})"},
    {"zone_now_after", "datetime('now', '+' || ((? + 999) / 1000.0) || "
                       "' seconds', {zone_text})"},
    {"zone_now_minus", "datetime('now', '-' || ? || ' seconds', {zone_text})"},
    {"zone_from_utc", "datetime(?, {zone_text})"},
    {"zone_created_at", "datetime(created_at, {zone_back})"},
    // Without AUTOINCREMENT the id of a deleted row is used again, and a late
    // delete would take a new message.
    {"row_id", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"},
    {"optimize_table", "VACUUM"},
    {"json", "TEXT"},
    {"merged_headers", "json_patch(headers, ?)"},
    {"timestamp", "DATETIME"},
    {"message_id", "BINARY(16)"},
    {"find_table",
     "SELECT 1 FROM sqlite_master WHERE type = 'table' AND lower(name) = "
     "lower('{table:name}')"},
    {"find_indexes",
     "SELECT (SELECT name FROM pragma_index_info(list.name) WHERE seqno = 0), "
     "(SELECT name FROM pragma_index_info(list.name) WHERE seqno = 1), "
     "(SELECT name FROM pragma_index_info(list.name) WHERE seqno = 2) "
     "FROM pragma_index_list('{table:name}') AS list WHERE partial = 0"},
    {"prepare_index", ""},
    {"add_index",
     "CREATE INDEX IF NOT EXISTS {own_index} ON {table} ({columns})"},
    {"find_column", "SELECT 1 FROM pragma_table_info('{table:name}') "
                    "WHERE lower(name) = '{column}'"},
    {"prepare_column", ""},
    {"add_column", "ALTER TABLE {table} ADD COLUMN {column} {definition}"},
    // Columns of others may hold numbers. As text they are keys, if rows are
    // found by that; a column without a type finds none, nor does a fraction
    // that is cut. Those are given as bytes, and are no keys.
    {"partition_text",
     "CASE WHEN typeof(partition_key) NOT IN ('integer', 'real') "
     "THEN partition_key WHEN partition_key = +CAST(partition_key AS TEXT) "
     "THEN CAST(partition_key AS TEXT) ELSE CAST(partition_key AS BLOB) END"},
    {"union_open", "SELECT * FROM ("},
    {"union_close", ")"},
    {"lock_skip", ""},
    {"hold_owner_lock", ""},
    {"owner_lock_is_free", "1 = 0"},
    {"lock_rows", ""},
    {"is_in_share", "((SELECT COALESCE(SUM(1 << slot), 0) FROM skirnir_lease "
                    "WHERE {is_owner} AND slot < {shard_count} AND "
                    "expires_at > {utc_now}) >> ({shard}) & 1) = 1"},
    {"shard_of_key", "skirnir_hash(CASE WHEN partition_key = '' THEN id "
                     "ELSE partition_key END) % {shard_count}"},
    {"random_hex", "lower(hex(randomblob(16)))"},
    {"queue_is_beyond", "queue_name = ?"},
    {"queue_is_unindexed", "+queue_name = ?"},
    {"reused_ids",
     "SELECT 'AUTOINCREMENT' WHERE skirnir_reuses_ids('{table:name}')"},
    // Ids are given one by one.
    {"row_estimate", "SELECT COALESCE((SELECT MAX(id) FROM {table}) - "
                     "(SELECT MIN(id) FROM {table}) + 1, 0)"},
    {"rows_written", "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence "
                     "WHERE name = '{table:name}' COLLATE NOCASE"},
    // Orders and orders are one table.
    {"last_row", "last_insert_rowid()"},
    {"oldest_transaction_s", ""},
    {"table_place", "SELECT name FROM sqlite_master WHERE type = 'table' AND "
                    "name = '{table:name}' COLLATE NOCASE"},
};

const struct skr_dialect skr_sqlite_dialect = {
    .product = "SQLite",
    .words = words,
    .word_count = SKR_COUNT_OF(words),
    .quote = '"',
    .name_case = SKR_CASE_KEPT,
};

static const struct skr_tx_ops foreign_tx;

static enum skr_code
run_in(struct skr_tx tx, const struct skr_statement *statement,
       struct skr_error *error)
{
    struct skr_sqlite *own = tx.ops == &foreign_tx ? NULL : tx.connection;
    return own == NULL
               ? run_statement(tx.connection, NULL, statement, error)
               : run_statement(own->connection, &own->cache, statement, error);
}

static enum skr_code
check_tx(struct skr_tx tx, struct skr_error *error)
{
    const struct skr_sqlite *own = tx.ops == &foreign_tx ? NULL : tx.connection;
    if (!sqlite3_get_autocommit(own == NULL ? tx.connection : own->connection))
        return SKR_OK;
    return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                    "the SQLite connection is in autocommit: run BEGIN "
                    "IMMEDIATE first, and COMMIT afterwards");
}

static const struct skr_tx_ops foreign_tx = {
    .dialect = &skr_sqlite_dialect, .run = run_in, .check = check_tx};
const struct skr_tx_ops skr_sqlite_own_tx = {
    .dialect = &skr_sqlite_dialect, .run = run_in, .check = check_tx};

struct skr_tx
skr_sqlite_tx(sqlite3 *connection)
{
    return (struct skr_tx){.ops = &foreign_tx, .connection = connection};
}

sqlite3 *
skr_sqlite_connection(struct skr_tx tx)
{
    if (tx.ops == &foreign_tx)
        return tx.connection;
    if (tx.ops != &skr_sqlite_own_tx)
        return NULL;
    struct skr_sqlite *sqlite = tx.connection;
    return sqlite->connection;
}
