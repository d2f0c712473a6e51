// SPDX-License-Identifier: MIT
// Run by tests/integration/test_clients.py, which makes the databases that
// SKR_CLIENT_SQLITE, _POSTGRESQL and _MARIADB name, with their tables.
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const test = require('node:test');
const { Message, Outbox, SkirnirError, Wait, handle, publish } = require('..');
const { connect } = require('./connect');

const vectors = (name) => JSON.parse(
    fs.readFileSync(path.join(__dirname, '../../vectors', name), 'utf8'));
const SECONDS = {
    sqlite: "strftime('%s', available_at) - strftime('%s', created_at)",
    postgresql: 'extract(epoch FROM available_at - created_at)',
    mariadb: 'TIMESTAMPDIFF(SECOND, created_at, available_at)',
};
// A part of Node since 22.
const hasSqlite = process.getBuiltinModule?.('node:sqlite') !== undefined;
const message = new Message({ id: '01890a5d-ac96-774b-bcce-b302099a8057', body: '{}',
    deduplication: { table: 'message_broker_deduplication', name: 'App\\Order' } });

async function publishVector(db, vector, quote) {
    const { name, body, body_hex: hex, key, headers, id, content_type: contentType } =
        vector.message;
    const { stamp_namespace: stampNamespace, ...options } = vector.outbox ?? {};
    const write = async () => {
        const outbox = new Outbox({ ...options, stampNamespace });
        await outbox.publish(db.connection, name, body ?? Buffer.from(hex, 'hex'),
            { key, headers, id, contentType });
        return outbox;
    };
    if (vector.error !== undefined) {
        await assert.rejects(write, (error) => error instanceof SkirnirError
            && error.message.includes(vector.error));
        return;
    }
    const { table } = await write();
    const columns = Object.keys(vector.row).map((name) => quote + name + quote);
    const rows = await db.ask(`SELECT ${columns.join(', ')} FROM ${table}`);
    assert.deepEqual(rows.map((row) => ({ ...row })), [vector.row]);
}

for (const kind of hasSqlite ? ['sqlite', 'postgresql', 'mariadb'] : ['postgresql', 'mariadb']) {
    test(kind, async (t) => {
        const db = await connect(kind);
        const run = (sql) => kind === 'sqlite' ? db.connection.exec(sql) : db.connection.query(sql);
        const begin = () => run(kind === 'sqlite' ? 'BEGIN IMMEDIATE' : 'BEGIN');
        const effect = () => run("INSERT INTO effects (order_id) VALUES ('1')");
        const count = async (table) => (await db.ask(`SELECT 1 FROM ${table}`)).length;
        t.after(() => db.close());
        t.beforeEach(async () => {
            try {
                await run('ROLLBACK');
            } catch { /* there was nothing to be rolled back */ }
            for (const table of ['messenger_outbox', 'Other_Outbox', 'kafka_outbox',
                'message_broker_deduplication', 'effects'])
                await run(`DELETE FROM ${table}`);
        });

        for (const vector of vectors('publish.json'))
            await t.test(vector.about, async () => {
                await begin();
                await publishVector(db, vector, kind === 'mariadb' ? '`' : '"');
            });

        await t.test('a message is there if the transaction commits', async () => {
            await begin();
            const id = await publish(db.connection, 'order.placed', { orderId: 1 });
            await run('ROLLBACK');
            assert.equal(await count('messenger_outbox'), 0);
            await begin();
            const again = await publish(db.connection, 'order.placed', { orderId: 1 });
            await run('COMMIT');
            assert.equal((await db.ask('SELECT body FROM messenger_outbox'))[0].body,
                '{"orderId":1}');
            assert.ok(id[14] === '7' && id < again);
        });

        await t.test('autocommit is refused', async () => {
            await assert.rejects(publish(db.connection, 'order.placed', {}), /autocommit/);
            assert.equal(await count('messenger_outbox'), 0);
        });

        await t.test('a pool is refused', { skip: db.pool === undefined }, async () => {
            await assert.rejects(publish(db.pool, 'order.placed', {}), /from the pool/);
            await assert.rejects(handle(db.pool, message, effect), /from the pool/);
        });

        await t.test('an id of zeros is none', async () => {
            await begin();
            const id = '00000000-0000-0000-0000-000000000000';
            assert.equal((await publish(db.connection, 'order.placed', {}, { id }))[14], '7');
        });

        await t.test('a delay is never short', async () => {
            await begin();
            await publish(db.connection, 'order.placed', {}, { delay: 60.5 });
            const [row] = await db.ask(`SELECT ${SECONDS[kind]} AS s FROM messenger_outbox`);
            assert.ok([61, 62].includes(Math.trunc(Number(row.s))));
        });

        await t.test('what is handled is recorded with it', async () => {
            assert.equal(await handle(db.connection, message, effect), true);
            assert.equal(await handle(db.connection, message, effect), false);
            assert.equal(await count('effects'), 1);
            const [row] = await db.ask(
                'SELECT message_id, message_name FROM message_broker_deduplication');
            assert.equal(Buffer.from(row.message_id).toString('hex'),
                '01890a5dac96774bbcceb302099a8057');
            assert.equal(row.message_name, 'App\\Order');
        });

        await t.test('a message without an id has no record', async () => {
            for (let i = 0; i < 2; i++)
                assert.equal(await handle(db.connection, new Message({ ...message, id: null }),
                    effect), true);
            assert.equal(await count('effects'), 2);
            assert.equal(await count('message_broker_deduplication'), 0);
        });

        await t.test('what fails leaves nothing', async () => {
            await assert.rejects(handle(db.connection, message, async () => {
                await effect();
                throw new TypeError('no');
            }), TypeError);
            assert.equal(await count('effects'), 0);
            assert.equal(await count('message_broker_deduplication'), 0);
            await assert.rejects(handle(db.connection, message, () => run('COMMIT')));
        });

        await t.test('a body that did not run has handled nothing', async () => {
            await assert.rejects(handle(db.connection, message, function* () {
                yield effect();
            }), /function\*/);
            assert.equal(await count('message_broker_deduplication'), 0);
        });

        await t.test('after a deadlock nothing commits by itself', { skip: kind !== 'mariadb' },
            async () => {
                await assert.rejects(handle(db.connection, message, async () => {
                    await run('ROLLBACK'); // as a deadlock does
                    await effect();
                }));
                assert.equal(await count('effects'), 0);
                assert.equal(await handle(db.connection, message, effect), true);
                assert.equal((await db.ask('SELECT @@autocommit AS a'))[0].a, 1);
            });

        await t.test('no text is taken for SQL', { skip: kind !== 'mariadb' }, async () => {
            await run("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')");
            await begin();
            await publish(db.connection, 'order.placed', "\\'\"");
            assert.equal((await db.ask('SELECT body FROM messenger_outbox'))[0].body, "\\'\"");
            await run('ROLLBACK');
            await run("SET SESSION sql_mode = DEFAULT");
        });

        await t.test("a transaction of the caller's is refused", async () => {
            await begin();
            await effect();
            await assert.rejects(handle(db.connection, message, effect), /inside a transaction/);
        });

        await t.test('a record that is locked is waited for', async () => {
            const other = await connect(kind);
            await handle(db.connection, message, () =>
                assert.rejects(handle(other.connection, message, effect), Wait));
            await other.close();
        });
    });
}

test('worker', async (t) => {
    for (const vector of vectors('worker.json'))
        await t.test(vector.about, async () => {
            const child = spawn(process.execPath, [path.join(__dirname, 'worker.js'),
                JSON.stringify(vector.ready.deduplicates ?? false)],
            { stdio: ['pipe', 'pipe', 'ignore'] });
            const ended = once(child, 'exit');
            const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
            const read = async () => JSON.parse((await lines.next()).value);
            assert.deepEqual(await read(), vector.ready);
            for (const { in: line, out } of vector.dialogue) {
                if (line === null)
                    break;
                child.stdin.write(JSON.stringify(line) + '\n');
                const answer = await read();
                // Half of a character would be replaced on the way through bytes.
                assert.equal(Buffer.from(answer.error ?? '').toString(), answer.error ?? '');
                if (out.error === undefined)
                    delete answer.error;
                assert.deepEqual(answer, out);
            }
            if (vector.dialogue.at(-1).in !== null)
                child.stdin.end();
            assert.equal((await lines.next()).done, true);
            assert.equal((await ended)[0], 0);
        });
});

test('what has not ended is not accepted', async () => {
    const never = '{ connect() {}, query: () => new Promise(() => {}) }';
    for (const [work, error] of [[`(message) => { handle(${never}, message); }`, /await/],
        ['function* () { yield 1; }', /function\*/]]) {
        const child = spawn(process.execPath, ['-e',
            `const { handle, run } = require('.'); run(${work});`],
        { cwd: path.join(__dirname, '..'), stdio: ['pipe', 'pipe', 'inherit'] });
        child.stdin.write('{"delivery":1}\n');
        const [, answer] = (await child.stdout.toArray()).join('').split('\n').map(
            (line) => line && JSON.parse(line));
        assert.equal(answer.verdict, 'retry');
        assert.match(answer.error, error);
    }
});

test('ids ascend', () => {
    const { newId } = require('../outbox');
    const ids = Array.from({ length: 5000 }, newId);
    assert.deepEqual(ids, [...new Set(ids)].sort());
});
