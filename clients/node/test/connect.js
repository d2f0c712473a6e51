// SPDX-License-Identifier: MIT
// Connections to the databases of the tests, in autocommit.
'use strict';

async function connect(kind, patienceS = 0) {
    if (kind === 'sqlite') {
        const { DatabaseSync } = require('node:sqlite');
        const db = new DatabaseSync(process.env.SKR_CLIENT_SQLITE);
        db.exec(`PRAGMA busy_timeout = ${patienceS * 1000}`);
        return { connection: db, ask: async (sql) => db.prepare(sql).all(), close: () => db.close() };
    }
    const url = new URL(process.env[`SKR_CLIENT_${kind.toUpperCase()}`]);
    const options = { host: url.hostname, port: Number(url.port), user: url.username,
        database: url.pathname.slice(1) };
    if (kind === 'postgresql') {
        const { Client } = require('pg');
        const client = new Client({ ...options, options: `-c lock_timeout=${patienceS * 1000 + 50}` });
        await client.connect();
        return { connection: client, pool: new (require('pg').Pool)(options),
            ask: async (sql) => (await client.query(sql)).rows,
            close: () => client.end() };
    }
    const mysql = require('mysql2/promise');
    const client = await mysql.createConnection(options);
    await client.query(`SET innodb_lock_wait_timeout = ${patienceS}`);
    return { connection: client, pool: mysql.createPool(options),
        ask: async (sql) => (await client.query(sql))[0],
        close: () => client.end() };
}

module.exports = { connect };
