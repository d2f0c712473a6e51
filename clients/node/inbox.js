// SPDX-License-Identifier: MIT
// Handling a message once: the record of it and the effects of a function are
// committed together, or neither is.
'use strict';

const { SkirnirError, kindOf, tableName } = require('./database');
const { Wait, checkRan } = require('./worker');

// Begins a transaction on the connection, records the message, awaits
// work(connection, message), and commits. false: it was recorded before, and
// work was not called. What it throws is thrown after a rollback; it must not
// end the transaction itself. Wait: another transaction has the record.
async function handle(connection, message, work) {
    message.isInHand = true; // for run(), which is not to accept it before
    try {
        return await handleOnce(connection, message, work);
    } finally {
        message.isInHand = false;
    }
}

async function handleOnce(connection, message, work) {
    const kind = kindOf(connection);
    if (await kind.isOpen(connection))
        throw new SkirnirError('the connection is inside a transaction: end it first, as this one '
            + 'ends with what is handled');
    const after = await kind.hold(connection); // run after the end
    const end = async (how) => {
        for (const sql of [how, ...after])
            await kind.run(connection, sql);
    };
    try {
        if (!await record(kind, connection, message)) {
            await end('ROLLBACK');
            return false;
        }
        checkRan(await work(connection, message));
        // Fails if the transaction in which the record stands was ended.
        await kind.run(connection, 'RELEASE SAVEPOINT skirnir');
        await end('COMMIT');
        return true;
    } catch (error) {
        // This error is the one to be told.
        await end('ROLLBACK').catch(() => {});
        throw error;
    }
}

async function record(kind, connection, message) {
    const table = tableName(kind, message.deduplication.table);
    try {
        await kind.run(connection, kind.begin);
        await kind.run(connection, 'SAVEPOINT skirnir');
        if (message.id === null)
            return true; // nothing tells whether it came before
        const id = Buffer.from(message.id.replaceAll('-', ''), 'hex');
        const count = await kind.run(connection,
            `INSERT INTO ${table} (message_id, message_name, processed_at) VALUES `
            + `(${kind.mark(1)}, ${kind.mark(2)}, ${kind.now})${kind.once}`,
            [id, message.deduplication.name]);
        if (count !== 0 && count !== 1)
            throw new SkirnirError(`the driver tells of ${count} rows where one was written`);
        return count === 1;
    } catch (error) {
        if (kind.isDuplicate(error))
            return false;
        if (kind.isLocked(error))
            throw new Wait(`the record of the message is locked: ${error.message}`);
        throw error;
    }
}

module.exports = { handle };
