// SPDX-License-Identifier: MIT
// What differs between the databases. A connection is a Client of pg, one of
// mysql2/promise, or a database of node:sqlite, and stays the caller's.
'use strict';

// What was asked for cannot be done; nothing was written.
class SkirnirError extends Error {}

const UTC = "date_trunc('second', statement_timestamp() AT TIME ZONE 'UTC')";

const postgresql = {
    quote: (name) => `"${name}"`,
    fold: (name) => name.toLowerCase(),
    mark: (number) => `$${number}`,
    now: UTC,
    later: (ms) => "date_trunc('second', (statement_timestamp() + make_interval("
        + `secs => (${ms} + 999) / 1000.0)) AT TIME ZONE 'UTC')`,
    once: ' ON CONFLICT (message_id) DO NOTHING',
    begin: 'BEGIN',
    hold: () => [],
    run: async (connection, sql, values = []) => (await connection.query(sql, values)).rowCount,
    mayPublish: (connection) => postgresql.isOpen(connection),
    // Later versions of pg tell. Else: a transaction that is open began with a
    // statement of its own, before this one.
    isOpen: async (connection) => {
        const known = connection.getTransactionStatus?.();
        if (known)
            return known !== 'I';
        const answer = await connection.query(
            'SELECT statement_timestamp() <> transaction_timestamp() AS open');
        return answer.rows[0].open;
    },
    isDuplicate: () => false,
    isLocked: (error) => ['55P03', '40P01', '40001'].includes(error.code),
};

const IN_TRANSACTION = 1; // of the server's status
const AUTOCOMMIT = 2;
const mysql = {
    quote: (name) => `\`${name}\``,
    fold: (name) => name,
    mark: () => '?',
    now: 'UTC_TIMESTAMP()',
    later: (ms) => '(UTC_TIMESTAMP() + INTERVAL ((MICROSECOND(UTC_TIMESTAMP(3)) DIV 1000 + '
        + `${ms} + 999) DIV 1000) SECOND)`,
    once: '', // a second row is error 1062; IGNORE would hide others
    begin: 'START TRANSACTION',
    // execute: query would paste the values, and knows nothing of a server that
    // takes a backslash as it is.
    run: async (connection, sql, values = []) =>
        (await (values.length > 0 ? connection.execute(sql, values)
            : connection.query(sql)))[0].affectedRows,
    status: async (connection) => (await connection.query('DO 0'))[0].serverStatus,
    mayPublish: async (connection) =>
        (await mysql.status(connection) & (IN_TRANSACTION | AUTOCOMMIT)) !== AUTOCOMMIT,
    isOpen: async (connection) => (await mysql.status(connection) & IN_TRANSACTION) !== 0,
    // After a deadlock, which ends the transaction, nothing is to commit by
    // itself, even if the caller goes on.
    hold: async (connection) => {
        if ((await mysql.status(connection) & AUTOCOMMIT) === 0)
            return [];
        await connection.query('SET autocommit = 0');
        return ['SET autocommit = 1'];
    },
    isDuplicate: (error) => error.errno === 1062,
    isLocked: (error) => error.errno === 1205 || error.errno === 1213,
};

const sqlite = {
    quote: (name) => `"${name}"`,
    fold: (name) => name,
    mark: () => '?',
    now: "datetime('now')",
    later: (ms) => `datetime('now', '+' || ((${ms} + 999) / 1000.0) || ' seconds')`,
    once: ' ON CONFLICT (message_id) DO NOTHING',
    begin: 'BEGIN IMMEDIATE',
    hold: () => [],
    run: async (connection, sql, values = []) =>
        Number(connection.prepare(sql).run(...values).changes),
    mayPublish: (connection) => sqlite.isOpen(connection),
    // SQLite refuses to begin a second transaction, which changes nothing.
    isOpen: async (connection) => {
        const known = connection.isTransaction;
        if (known !== undefined)
            return known;
        try {
            connection.exec('BEGIN');
        } catch (error) {
            return error.message.includes('within a transaction');
        }
        connection.exec('ROLLBACK');
        return false;
    },
    isDuplicate: () => false,
    isLocked: (error) => error.message.includes('database is locked'),
};

function kindOf(connection) {
    if (typeof connection?.prepare === 'function' && typeof connection.query !== 'function')
        return sqlite;
    if (typeof connection?.query !== 'function')
        throw new SkirnirError('a connection of pg, mysql2/promise or node:sqlite is needed');
    if (typeof connection.connect !== 'function' && typeof connection.execute !== 'function'
        || connection.idleCount !== undefined || typeof connection.getConnection === 'function')
        throw new SkirnirError('a transaction has one connection: take one from the pool');
    return typeof connection.execute === 'function' ? mysql : postgresql;
}

// Quoted, in the case that the server would give it without quotes.
function tableName(kind, name) {
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(name))
        throw new SkirnirError(`table name '${name}': letters, digits and underscores are needed, `
            + 'at most 63, not beginning with a digit');
    return kind.quote(kind.fold(name));
}

// A table that keeps what is rolled back would break the promise.
async function checkEngine(kind, connection, table) {
    if (kind !== mysql)
        return;
    const [rows] = await connection.query(
        'SELECT t.ENGINE AS engine FROM information_schema.TABLES AS t JOIN '
        + 'information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE WHERE t.TABLE_SCHEMA = '
        + "DATABASE() AND t.TABLE_NAME = ? AND e.TRANSACTIONS <> 'YES'", [table]);
    if (rows.length > 0)
        throw new SkirnirError(`table ${table} has the engine ${rows[0].engine}, which takes no `
            + 'part in transactions');
}

module.exports = { SkirnirError, checkEngine, kindOf, tableName };
