// SPDX-License-Identifier: MIT
// Transactions that statements run in: the application's and our own.

#include "db/mysql/connection.h"

#include "base/error.h"
#include "base/text.h"

#include <string.h>

// The collation of these tables takes "a" and "A", and "a" and "a ", for the
// same; the bytes are compared as well. That cannot be done by an index.
#define QUEUE_BYTES "CAST(CONVERT(queue_name USING utf8mb4) AS BINARY)"

// Seconds by which a zone is ahead.
#define OFFSET_OF(zone, utc) \
    "TIMESTAMPDIFF(SECOND, " utc ", CONVERT_TZ(" utc ", '+00:00', " zone "))"
#define OFFSET_AT(utc) OFFSET_OF("{zone_text}", utc)
// Whole seconds from the one that is now, for a number of milliseconds.
#define SECONDS_AFTER \
    "((MICROSECOND(UTC_TIMESTAMP(3)) DIV 1000 + ? + 999) DIV 1000)"

// InnoDB tells when they began by the clock of the server's machine. Of the
// hour that comes twice when that is put back the earlier is taken: a mark that
// is late costs a look, one that is early costs the order.
#define STARTED "CONVERT_TZ(trx_started, 'SYSTEM', '+00:00')"
#define EARLIEST_START                                      \
    "LEAST(" STARTED ", trx_started - INTERVAL " OFFSET_OF( \
        "'SYSTEM'", "(" STARTED " - INTERVAL 3 HOUR)") " SECOND)"

// Those that have written nothing have the number 0 (MariaDB) or one beyond
// 2^48 (MySQL), and took no ids.
#define HAS_WRITTEN "trx_id > 0 AND trx_id < 281474976710656"
#define IS_OURS "trx_mysql_thread_id = CONNECTION_ID()"

static const struct skr_word words[] = {
    // By the second in which they began. Needs the right PROCESS.
    {"open_transactions",
     "SELECT CAST(COALESCE(MIN(UNIX_TIMESTAMP(" EARLIEST_START ")), "
     "UNIX_TIMESTAMP()) AS SIGNED), "
     "CAST(UNIX_TIMESTAMP() + 1 AS SIGNED) "
     "FROM information_schema.innodb_trx "
     "WHERE " HAS_WRITTEN},
    // While others ask as well, what InnoDB shows may be of long ago: it is
    // renewed when no session has asked for a tenth of a second. Our own
    // transaction began before that, whichever it was, and dates what is shown.
    {"open_transactions_inside",
     "SELECT CAST(CASE WHEN MAX(" IS_OURS ") = 1 THEN "
     "MIN(UNIX_TIMESTAMP(" EARLIEST_START ")) ELSE 0 END AS SIGNED), "
     "CAST(UNIX_TIMESTAMP() + 1 AS SIGNED) "
     "FROM information_schema.innodb_trx "
     "WHERE " IS_OURS " OR (" HAS_WRITTEN ")"},
    {"now", "UTC_TIMESTAMP()"},
    {"now_plus", "(UTC_TIMESTAMP() + INTERVAL ? SECOND)"},
    {"now_after", "(UTC_TIMESTAMP() + INTERVAL " SECONDS_AFTER " SECOND)"},
    {"now_minus", "(UTC_TIMESTAMP() - INTERVAL ? SECOND)"},
    {"now_milliseconds", "(MICROSECOND(UTC_TIMESTAMP(3)) DIV 1000)"},
    {"utc_now", "UTC_TIMESTAMP()"},
    {"zone_now", "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', {zone_text})"},
    {"zone_now_plus", "CONVERT_TZ(UTC_TIMESTAMP() + INTERVAL ? SECOND, "
                      "'+00:00', {zone_text})"},
    {"zone_now_after", "CONVERT_TZ(UTC_TIMESTAMP() + INTERVAL " SECONDS_AFTER
                       " SECOND, '+00:00', {zone_text})"},
    // By the lesser of the zone's offsets of late: when its clock is put back,
    // what was written a moment ago has an earlier time than what was written
    // before that.
    {"zone_now_minus", "UTC_TIMESTAMP() - INTERVAL ? SECOND + INTERVAL "
                       "LEAST(" OFFSET_AT("UTC_TIMESTAMP()") ", " OFFSET_AT(
                           "(UTC_TIMESTAMP() - INTERVAL 3 HOUR)") ") SECOND"},
    {"zone_from_utc", "CONVERT_TZ(?, '+00:00', {zone_text})"},
    {"zone_created_at", "CONVERT_TZ(created_at, {zone_text}, '+00:00')"},
    {"row_id", "BIGINT AUTO_INCREMENT NOT NULL PRIMARY KEY"},
    {"unsigned_row_id", "BIGINT UNSIGNED AUTO_INCREMENT NOT NULL PRIMARY KEY"},
    {"long_text", "LONGTEXT"},
    {"optimize_table", "OPTIMIZE TABLE {table}"},
    {"json", "JSON"},
    // Unlike CONCAT() it makes texts longer than max_allowed_packet.
    {"merged_headers", "JSON_MERGE_PATCH(headers, ?)"},
    {"key", "`key`"},
    {"timestamp", "DATETIME"},
    // Doctrine finds its type by this comment.
    {"message_id", "BINARY(16) COMMENT '(DC2Type:id_binary)'"},
    {"table_options", " DEFAULT CHARACTER SET utf8mb4 "
                      "COLLATE utf8mb4_unicode_ci ENGINE = InnoDB"},
    {"inline_index", ",\n    INDEX {index} ({columns})"},
    {"create_index", ""},
    {"find_table", "SELECT 1 FROM information_schema.tables WHERE table_schema "
                   "= DATABASE() AND table_name = '{table:name}'"},
    {"find_indexes",
     "SELECT MAX(CASE WHEN seq_in_index = 1 THEN column_name END), "
     "MAX(CASE WHEN seq_in_index = 2 THEN column_name END), "
     "MAX(CASE WHEN seq_in_index = 3 THEN column_name END) "
     "FROM information_schema.statistics WHERE table_schema = DATABASE() "
     "AND table_name = '{table:name}' GROUP BY index_name"},
    // Statements that come later wait behind the session that waits to alter a
    // table.
    {"prepare_index", "SET lock_wait_timeout = 1"},
    {"add_index", "ALTER TABLE {table} ADD INDEX {index} ({columns}), "
                  "ALGORITHM = INPLACE, LOCK = NONE"},
    {"find_column",
     "SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() "
     "AND table_name = '{table:name}' AND column_name = '{column}'"},
    {"prepare_column", "SET lock_wait_timeout = 1"},
    {"add_column", "ALTER TABLE {table} ADD COLUMN {column} {definition}, "
                   "ALGORITHM = INPLACE, LOCK = NONE"},
    {"key_text", "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"},
    // Others may have made it with a collation that takes "a" for "A"; and all
    // of them take "a" for "a ".
    {"partition_bytes", "CAST(CONVERT(partition_key USING utf8mb4) AS BINARY)"},
    // They take blanks for nothing, too.
    {"partition_text",
     "CASE WHEN partition_key = '' THEN '' ELSE partition_key END"},
    {"insert_once", ""},
    {"hold_owner_lock", "GET_LOCK('skirnir-{lock_owner}', 0) = 1"},
    {"owner_lock_is_free", "IS_FREE_LOCK(CONCAT('skirnir-', owner)) = 1"},
    {"is_in_share",
     "((SELECT COALESCE(BIT_OR(1 << slot), 0) FROM skirnir_lease "
     "WHERE {is_owner} AND slot < {shard_count} AND expires_at > "
     "{utc_now}) >> ({shard}) & 1) = 1"},
    // What is taken for '' is no key, as where it is read.
    {"shard_of_key", "CRC32(CASE WHEN partition_key = '' THEN id ELSE "
                     "partition_key END) % {shard_count}"},
    // In a small table a list of ids is found by reading all of it. A statement
    // that locks would then wait for rows that others have: for an application
    // that has not committed, or for a relay that waits for this one.
    {"by_primary_key", " FORCE INDEX (PRIMARY)"},
    // DELETE heeds no such advice; it does what a join of this order asks for.
    {"remove_ids", "DELETE gone FROM ({id_rows}) AS list STRAIGHT_JOIN {table} "
                   "AS gone FORCE INDEX (PRIMARY) ON gone.id = list.id"},
    // A scan that ends before the last row looks at that one, and not at the
    // one behind it, which an application may not have committed yet. On
    // MariaDB 10.11 a join's DELETE reads a table of thin rows from end to end
    // for an OR, whatever index is forced; this one goes by the primary key.
    {"in_range", "(id >= ? AND id <= ? OR id = ?)"},
    {"remove_range", "DELETE FROM {table} WHERE id >= ? AND id <= ? OR id = ? "
                     "ORDER BY id"},
    {"id_row", "CAST(? AS SIGNED) AS id"},
    // No server before MariaDB 10.10 has RANDOM_BYTES(). A UUID is unique by
    // its time and machine; the hash and RAND() make all digits differ.
    {"random_hex", "LEFT(SHA2(CONCAT(UUID(), RAND(), RAND()), 256), 32)"},
    {"no_index", ""},
    {"queue_is", "queue_name = ? AND " QUEUE_BYTES " = X'{queue_hex}'"},
    // By the primary key. With the index on the name the planner begins at the
    // first row of the queue, and passes all that were deleted and not purged.
    {"queue_is_beyond", QUEUE_BYTES " = ?"},
    // By the primary key, too: rows of other queues that are in front cost less
    // than to sort a backlog.
    {"queue_is_timed", QUEUE_BYTES " = ?"},
    {"queue_is_unindexed", QUEUE_BYTES " = ?"},
    {"unsafe_engine",
     "SELECT engine FROM information_schema.tables WHERE table_schema = "
     "DATABASE() AND table_name = '{table:name}' AND engine <> 'InnoDB'"},
    {"row_estimate", "SELECT CAST(COALESCE(MAX(table_rows), 0) AS SIGNED) FROM "
                     "information_schema.tables WHERE table_schema = "
                     "DATABASE() AND table_name = '{table:name}'"},
    {"rows_written",
     "SELECT CAST(COALESCE(MAX(auto_increment), 0) AS SIGNED) FROM "
     "information_schema.tables WHERE table_schema = DATABASE() AND table_name "
     "= '{table:name}'"},
    // Some servers keep names in lower case, and find them in any.
    {"last_row", "LAST_INSERT_ID()"},
    {"oldest_transaction_s",
     "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) "
     "FROM information_schema.innodb_trx"},
    {"table_place",
     "SELECT table_name FROM information_schema.tables WHERE table_schema = "
     "DATABASE() AND table_name = '{table:name}' "
     "ORDER BY CAST(table_name AS BINARY) = '{table:name}' DESC LIMIT 1"},
};

const struct skr_dialect skr_mysql_dialect = {
    .product = "MariaDB or MySQL",
    .words = words,
    .word_count = SKR_COUNT_OF(words),
    .quote = '`',
    .hash_is_comment = true,
    .transactions_are_clock = true,
    .locks_behind_range = true,
};

static enum skr_code
foreign_run(struct skr_tx tx, const struct skr_statement *statement,
            struct skr_error *error)
{
    return skr_mysql_run(tx.connection, NULL, statement, error);
}

static enum skr_code
foreign_check(struct skr_tx tx, struct skr_error *error)
{
    MYSQL *connection = tx.connection;
    if ((connection->server_status & SERVER_STATUS_IN_TRANS) != 0)
        return SKR_OK;
    if ((connection->server_status & SERVER_STATUS_AUTOCOMMIT) != 0)
        return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "the %s connection is in autocommit: run BEGIN first, "
                        "and COMMIT afterwards",
                        skr_mysql_product(connection));
    // With autocommit=0 the first statement begins a transaction, unless it
    // finds the connection lost and a new one, in autocommit, made in secret.
    my_bool reconnects = 0;
    mysql_get_optionv(connection, MYSQL_OPT_RECONNECT, &reconnects);
    if (!reconnects)
        return SKR_OK;
    return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                    "the %s connection may reconnect by itself and would be in "
                    "autocommit then: switch MYSQL_OPT_RECONNECT off, or run "
                    "BEGIN first",
                    skr_mysql_product(connection));
}

static const struct skr_tx_ops foreign_tx = {
    .dialect = &skr_mysql_dialect,
    .run = foreign_run,
    .check = foreign_check,
};

static enum skr_code
own_run(struct skr_tx tx, const struct skr_statement *statement,
        struct skr_error *error)
{
    struct skr_mysql *mysql = tx.connection;
    struct skr_error unwanted;
    if (error == NULL)
        error = &unwanted;
    if (mysql->is_rolled_back)
        return skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "the server has rolled the transaction back");
    enum skr_code code = SKR_OK;
    // Outside of a transaction a statement commits by itself.
    if (!mysql->has_begun && mysql->autocommit_is_off)
        code = skr_mysql_autocommit(mysql, error);
    if (code == SKR_OK)
        code = skr_mysql_run(mysql->connection, mysql, statement, error);
    // A deadlock ends the transaction, and the answer does not say so.
    if (code == SKR_CONFLICT && strcmp(error->native, "1213") == 0)
        mysql->is_rolled_back = mysql->has_begun;
    mysql->was_open |= skr_mysql_is_open(mysql);
    return code;
}

static enum skr_code
own_check(struct skr_tx tx, struct skr_error *error)
{
    struct skr_mysql *mysql = tx.connection;
    // Before its first statement only autocommit tells of a guarded one.
    bool is_fresh =
        mysql->is_guarded && !mysql->was_open &&
        (mysql->connection->server_status & SERVER_STATUS_AUTOCOMMIT) == 0;
    if (mysql->has_begun && !mysql->is_rolled_back &&
        (is_fresh || skr_mysql_is_open(mysql)))
        return SKR_OK;
    return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                    "no transaction is open: BEGIN is missing, or one of its "
                    "statements has ended it");
}

const struct skr_tx_ops skr_mysql_own_tx = {
    .dialect = &skr_mysql_dialect,
    .run = own_run,
    .check = own_check,
};

struct skr_tx
skr_mysql_tx(MYSQL *connection)
{
    return (struct skr_tx){.ops = &foreign_tx, .connection = connection};
}

MYSQL *
skr_mysql_connection(struct skr_tx tx)
{
    if (tx.ops == &foreign_tx)
        return tx.connection;
    if (tx.ops != &skr_mysql_own_tx)
        return NULL;
    struct skr_mysql *mysql = tx.connection;
    return mysql->connection;
}
