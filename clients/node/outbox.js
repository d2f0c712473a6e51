// SPDX-License-Identifier: MIT
// Publishing: a message becomes a row in the caller's transaction, the same
// row, to the byte, that skr_publish() of the C library writes.
'use strict';

const { randomBytes } = require('node:crypto');
const { SkirnirError, checkEngine, kindOf, tableName } = require('./database');

const NAMESPACE = 'Freyr\\MessageBroker\\Inbox';
const UNSET = '00000000-0000-0000-0000-000000000000';
const ULID = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const LONGEST_HEADERS = 1024 * 1024; // bytes
const MOST_HEADERS = 993;
let last = 0n;

const format = (hex) => hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

// A UUID version 7. Ids of one process are ascending.
function newId() {
    const random = randomBytes(10);
    const fresh = BigInt(Date.now()) << 12n | BigInt(random.readUInt16BE(0) & 0x3ff);
    last = fresh > last ? fresh : last + 1n;
    random[2] = random[2] & 0x3f | 0x80;
    const count = (last & 0xfffn).toString(16).padStart(3, '0');
    return format((last >> 12n).toString(16).padStart(12, '0') + '7' + count
        + random.toString('hex', 2));
}

// The canonical text of a UUID or a ULID.
function readId(text) {
    if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text))
        return text.toLowerCase();
    if (!/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i.test(text))
        throw new SkirnirError(`message id '${text}' is neither a UUID nor a ULID`);
    let value = 0n;
    for (const letter of text.toUpperCase())
        value = value << 5n | BigInt(ULID.indexOf(letter));
    return format(value.toString(16).padStart(32, '0'));
}

const bytesOf = (text) => Buffer.byteLength(text);
const hasControl = (text) => /[\x00-\x1f\x7f]/.test(text);
// Without a zero, and without half of a character.
const isText = (text) => !text.includes('\0')
    && !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);

// In the order in which they are given, which an object does not keep.
const toJson = (pairs) => '{' + pairs.map(([name, value]) =>
    `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(',') + '}';

function checkName(name) {
    if (typeof name !== 'string' || name.length > 255
        || !/^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)+$/.test(name))
        throw new SkirnirError(`message name '${name}': words of lower case letters and digits, `
            + 'joined by dots, are needed; order.placed would do');
}

function checkHeaders(name, headers) {
    if (headers.length > MOST_HEADERS)
        throw new SkirnirError(`message ${name} has more than ${MOST_HEADERS} headers`);
    for (const [header, value] of headers) {
        if (header === '' || typeof value !== 'string')
            throw new SkirnirError(`message ${name}: header '${header}' has no name or no value`);
        if (hasControl(header))
            throw new SkirnirError(`message ${name}: the name of a header holds a control character`);
        if (['type', 'Content-Type', 'X-Message-Id'].includes(header)
            || /^X-Message-Stamp-.*(MessageIdStamp|PartitionKeyStamp)$/s.test(header))
            throw new SkirnirError(`message ${name}: header '${header}' is written by the library`);
        if (!isText(header) || !isText(value))
            throw new SkirnirError(`message ${name}: header '${header}' is not UTF-8`);
    }
    const given = new Map(headers);
    if (given.size < headers.length)
        throw new SkirnirError(`message ${name}: a header is given twice`);
    checkTrace(name, given.get('traceparent'), given.get('tracestate'));
}

function checkTrace(name, parent, state) {
    const form = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}($|-)/;
    if (parent !== undefined
        && (!form.test(parent) || parent.startsWith('00') && parent.length !== 55))
        throw new SkirnirError(`message ${name}: traceparent is '${parent}'`);
    if (state === undefined)
        return;
    if (parent === undefined)
        throw new SkirnirError(`message ${name}: tracestate means nothing without a traceparent`);
    const members = state.split(',');
    const isWrong = (member) => !/^[ \t]*($|[^= \t][^=]*=)/.test(member);
    if (members.length > 32 || !/^[\t -~]*$/.test(state) || members.some(isWrong))
        throw new SkirnirError(`message ${name}: tracestate is '${state}'`);
}

// Text is sent as it is, as are the bytes of one; anything else as JSON.
function readBody(name, body) {
    if (typeof body === 'string')
        return body;
    if (!(body instanceof Uint8Array))
        return JSON.stringify(body);
    try {
        return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
    } catch {
        return '\0';
    }
}

// A table, and a queue in it. ordered: it has partition keys. kafka: it is the
// table of `skirnir kafka-relay`.
class Outbox {
    constructor({ table, queue = 'outbox', ordered = false, kafka = false, topic,
        stampNamespace = NAMESPACE } = {}) {
        Object.assign(this, { queue, ordered, kafka, topic, stampNamespace });
        this.table = table ?? (kafka ? 'kafka_outbox' : 'messenger_outbox');
        this.isChecked = false;
        if (queue === '' || bytesOf(queue) > 190 || !isText(queue))
            throw new SkirnirError(`queue name '${queue}': 1 to 190 bytes of UTF-8 text are needed`);
        if (topic !== undefined && (!kafka || !/^[A-Za-z0-9._-]{1,249}$/.test(topic)))
            throw new SkirnirError(`topic '${topic}': 1 to 249 letters, digits, dots, underscores `
                + 'and hyphens are needed, in a kafka_outbox only');
    }

    // Adds a message in the caller's transaction, and resolves to its id. The
    // relay sees it if and only if that commits. key: the partition key.
    // headers: further ones, an object, a Map or pairs. delay: seconds, at
    // least, until it is sent.
    async publish(connection, name, body, { key, headers = {}, id, delay = 0,
        contentType = 'application/json' } = {}) {
        const kind = kindOf(connection);
        const table = tableName(kind, this.table);
        const message = { name, key, delay, contentType, id: readId(id ?? UNSET) === UNSET ? newId() : readId(id),
            body: readBody(name, body),
            headers: Symbol.iterator in headers ? [...headers] : Object.entries(headers) };
        this.#check(message);
        const text = this.#allHeaders(message);
        if (bytesOf(text) > LONGEST_HEADERS)
            throw new SkirnirError(`message ${name}: the headers have over ${LONGEST_HEADERS} bytes`);
        if (!await kind.mayPublish(connection))
            throw new SkirnirError('the connection is in autocommit: begin a transaction first, and '
                + 'commit it afterwards');
        if (!this.isChecked)
            await checkEngine(kind, connection, this.table);
        this.isChecked = true;
        await kind.run(connection, ...this.#insert(kind, table, message, text));
        return message.id;
    }

    #check({ name, body, key, headers, delay, contentType }) {
        checkName(name);
        if (!isText(body))
            throw new SkirnirError(`message ${name}: the body is not UTF-8 text, or holds a zero byte`);
        if (key !== undefined && (!isText(key) || bytesOf(key) > 255))
            throw new SkirnirError(`message ${name}: the partition key is over 255 bytes, or not `
                + 'UTF-8 text');
        if (contentType === '' || !isText(contentType) || hasControl(contentType))
            throw new SkirnirError(`message ${name}: the content type is empty, or not UTF-8 text, `
                + 'or holds a control character');
        checkHeaders(name, headers);
        if (this.kafka)
            checkKafka(name, body, delay);
        else if (this.ordered && key === undefined)
            throw new SkirnirError(`message ${name} has no partition key, which this ordered outbox `
                + 'needs');
        else if (!this.ordered && key)
            throw new SkirnirError(`message ${name} has the partition key '${key}', but this outbox `
                + 'keeps no order');
        if (!(delay >= 0))
            throw new SkirnirError(`message ${name}: the delay is negative`);
    }

    #allHeaders({ name, id, key, headers, contentType }) {
        const stamp = `X-Message-Stamp-${this.stampNamespace}\\`;
        const has = this.stampNamespace !== '';
        return toJson([['type', name],
            ...has ? [[`${stamp}MessageIdStamp`, JSON.stringify([{ messageId: id }])]] : [],
            ['X-Message-Id', id],
            ...has && key !== undefined
                ? [[`${stamp}PartitionKeyStamp`, JSON.stringify([{ partitionKey: key }])]] : [],
            ...headers, ['Content-Type', contentType]]);
    }

    // The statement and its values.
    #insert(kind, table, { name, id, key, body, delay }, headers) {
        const row = this.kafka
            ? { topic: this.topic ?? name, payload_json: body, payload_headers: headers,
                key: key || id }
            : { body, headers, queue_name: this.queue,
                ...this.ordered ? { partition_key: key } : {} };
        const clock = this.kafka ? {} : { created_at: kind.now, available_at:
            delay > 0 ? kind.later(Math.trunc(delay * 1000)) : kind.now };
        const columns = [...Object.keys(row), ...Object.keys(clock)].map(kind.quote);
        const marks = Object.keys(row).map((_, i) => kind.mark(i + 1));
        return [`INSERT INTO ${table} (${columns.join(', ')}) `
            + `VALUES (${[...marks, ...Object.values(clock)].join(', ')})`, Object.values(row)];
    }
}

function checkKafka(name, body, delay) {
    if (delay)
        throw new SkirnirError(`message ${name} has a due time, which kafka_outbox does not know`);
    try {
        JSON.parse(body);
    } catch (error) {
        throw new SkirnirError(`message ${name}: its body must be JSON: ${error.message}`);
    }
}

const outbox = new Outbox();
// Into the queue `outbox` of the table `messenger_outbox`; an Outbox publishes
// elsewhere.
const publish = (connection, name, body, options) =>
    outbox.publish(connection, name, body, options);

module.exports = { Outbox, newId, publish };
