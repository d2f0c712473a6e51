// SPDX-License-Identifier: MIT
// Transactions that statements run in: the application's and our own.

#include "db/sqlite/connection.h"

#include "base/error.h"
#include "base/text.h"

static const struct skr_word words[] = {
    // One writer at a time: ids become visible in order.
    {"horizon", ""},
    {"horizon_inside", ""},
    {"now", "datetime('now')"},
    {"now_plus", "datetime('now', '+' || ? || ' seconds')"},
    {"now_after", "datetime('now', '+' || ((? + 999) / 1000.0) || ' seconds')"},
    {"now_minus", "datetime('now', '-' || ? || ' seconds')"},
    {"now_milliseconds", "CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)"},
    {"utc_now", "datetime('now')"},
    {"zone_names", ""},
    {"zone_offset", ""},
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
    {"unsigned_row_id", "{row_id}"},
    {"long_text", "TEXT"},
    {"optimize_table", "VACUUM"},
    {"json", "TEXT"},
    {"merged_headers", "json_patch(headers, ?)"},
    {"key", "\"key\""},
    {"timestamp", "DATETIME"},
    {"message_id", "BINARY(16)"},
    {"table_options", ""},
    {"inline_index", ""},
    {"create_index",
     "CREATE INDEX IF NOT EXISTS {table}_{index} ON {table} ({columns})"},
    {"find_table",
     "SELECT 1 FROM sqlite_master WHERE type = 'table' AND lower(name) = "
     "lower('{table}')"},
    {"find_indexes",
     "SELECT (SELECT name FROM pragma_index_info(list.name) WHERE seqno = 0), "
     "(SELECT name FROM pragma_index_info(list.name) WHERE seqno = 1), "
     "(SELECT name FROM pragma_index_info(list.name) WHERE seqno = 2) "
     "FROM pragma_index_list('{table}') AS list WHERE partial = 0"},
    {"prepare_index", ""},
    {"replace_index", ""},
    {"add_index",
     "CREATE INDEX IF NOT EXISTS {table}_{index} ON {table} ({columns})"},
    {"find_column", "SELECT 1 FROM pragma_table_info('{table}') "
                    "WHERE lower(name) = '{column}'"},
    {"prepare_column", ""},
    {"add_column", "ALTER TABLE {table} ADD COLUMN {column} {definition}"},
    {"key_text", "VARCHAR(255)"},
    {"partition_bytes", "partition_key"},
    // Columns of others may hold numbers. As text they are keys, if rows are
    // found by that; a column without a type finds none, nor does a fraction
    // that is cut. Those are given as bytes, and are no keys.
    {"partition_text",
     "CASE WHEN typeof(partition_key) NOT IN ('integer', 'real') "
     "THEN partition_key WHEN partition_key = +CAST(partition_key AS TEXT) "
     "THEN CAST(partition_key AS TEXT) ELSE CAST(partition_key AS BLOB) END"},
    {"writer_number", ""},
    {"is_decided", ""},
    {"oldest_writer", ""},
    {"union_open", "SELECT * FROM ("},
    {"union_close", ")"},
    {"insert_once", "ON CONFLICT (message_id) DO NOTHING"},
    {"unset_id", "X'00000000000000000000000000000000'"},
    {"lock_skip", ""},
    {"hold_owner_lock", ""},
    {"owner_lock_is_free", "1 = 0"},
    {"lock_rows", ""},
    {"is_in_share", "((SELECT COALESCE(SUM(1 << slot), 0) FROM skirnir_lease "
                    "WHERE {is_owner} AND slot < {slot_count} AND "
                    "expires_at > {utc_now}) >> ({shard}) & 1) = 1"},
    {"shard_of_key", "skirnir_hash(CASE WHEN partition_key = '' THEN id "
                     "ELSE partition_key END) % {slot_count}"},
    {"by_primary_key", ""},
    {"remove_ids", "DELETE FROM {table} WHERE id IN ({ids})"},
    {"in_range", "id >= ? AND id <= ?"},
    {"remove_range", "DELETE FROM {table} WHERE id >= ? AND id <= ?"},
    {"id_row", ""},
    {"random_hex", "lower(hex(randomblob(16)))"},
    {"no_index", "+"},
    {"queue_is", "queue_name = ?"},
    {"queue_is_beyond", "queue_name = ?"},
    {"queue_is_timed", "queue_name = ?"},
    {"queue_is_unindexed", "+queue_name = ?"},
    {"unsafe_engine", ""},
    {"reused_ids",
     "SELECT 'AUTOINCREMENT' WHERE skirnir_reuses_ids('{table}')"},
    // Ids are given one by one.
    {"row_estimate", "SELECT COALESCE((SELECT MAX(id) FROM {table}) - "
                     "(SELECT MIN(id) FROM {table}) + 1, 0)"},
    {"rows_written", "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence "
                     "WHERE name = '{table}' COLLATE NOCASE"},
    // Orders and orders are one table.
    {"table_place", "SELECT name FROM sqlite_master WHERE type = 'table' AND "
                    "name = '{table}' COLLATE NOCASE"},
    {"setup_lock", ""},
    {"notify_function", ""},
    {"notify_trigger", ""},
    {"find_notify", ""},
    {"drop_notify_trigger", ""},
    {"drop_notify_function", ""},
};

const struct skr_dialect skr_sqlite_dialect = {
    .name = "sqlite",
    .words = words,
    .word_count = SKR_COUNT_OF(words),
};

static enum skr_code
check(sqlite3 *connection, struct skr_error *error)
{
    if (!sqlite3_get_autocommit(connection))
        return SKR_OK;
    return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                    "the SQLite connection is in autocommit: run BEGIN "
                    "IMMEDIATE first, and COMMIT afterwards");
}

static enum skr_code
foreign_run(struct skr_tx tx, const struct skr_statement *statement,
            struct skr_error *error)
{
    return skr_sqlite_run(tx.connection, NULL, statement, error);
}

static enum skr_code
foreign_check(struct skr_tx tx, struct skr_error *error)
{
    return check(tx.connection, error);
}

static const struct skr_tx_ops foreign_tx = {
    .dialect = &skr_sqlite_dialect,
    .run = foreign_run,
    .check = foreign_check,
};

static enum skr_code
own_run(struct skr_tx tx, const struct skr_statement *statement,
        struct skr_error *error)
{
    struct skr_sqlite *sqlite = tx.connection;
    return skr_sqlite_run(sqlite->connection, &sqlite->cache, statement, error);
}

static enum skr_code
own_check(struct skr_tx tx, struct skr_error *error)
{
    struct skr_sqlite *sqlite = tx.connection;
    return check(sqlite->connection, error);
}

const struct skr_tx_ops skr_sqlite_own_tx = {
    .dialect = &skr_sqlite_dialect,
    .run = own_run,
    .check = own_check,
};

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
