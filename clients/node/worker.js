// SPDX-License-Identifier: MIT
// The loop of a handler's process, as `command:` in skirnir.yaml names it: a
// line of JSON comes for each message, and one is answered.
'use strict';

const fs = require('node:fs');
const { Console } = require('node:console');
const { SkirnirError } = require('./database');

// No further try would help: to the failed table at once.
class Reject extends Error {}
// Something else has locked what is needed: again soon, at no cost.
class Wait extends Error {}

// The members of the line: id, name, type, attempt, source, partition_key,
// content_type, traceparent, tracestate, headers, and deduplication. body is
// text, or a Buffer where it is none.
class Message {
    constructor(members) {
        Object.assign(this, members);
        if (members.body_encoding === 'base64')
            this.body = Buffer.from(members.body, 'base64');
    }

    // The body, parsed. One that is not JSON is rejected.
    json() {
        try {
            return JSON.parse(this.body);
        } catch (error) {
            throw new Reject(`the body is not JSON: ${error.message}`);
        }
    }
}

// Awaits work(message) for each message until there are no more. What it throws
// is the answer: Reject, Wait, or anything else for a retry. After that last
// kind, and after idleS seconds without a message, the process ends: it is
// replaced when it is needed, with a new connection. deduplicates: work records
// each message, as handle() does; 'own': in another database. What is printed
// goes to standard error.
async function run(work, { deduplicates = false, idleS = 60 } = {}) {
    process.stdout.write = process.stderr.write.bind(process.stderr);
    globalThis.console = new Console(process.stderr);
    say({ ready: true, ...deduplicates ? { deduplicates } : {} });
    let idle = setTimeout(() => process.exit(0), idleS * 1000);
    for await (const line of linesOf(process.stdin)) {
        clearTimeout(idle);
        const message = new Message(JSON.parse(line));
        const answer = await call(work, message);
        say({ delivery: message.delivery, ...answer });
        if (answer.verdict === 'retry')
            break;
        idle = setTimeout(() => process.exit(0), idleS * 1000);
    }
    // Connections that are open would keep it alive.
    process.exit(0);
}

// Of bytes: a line of JSON may hold what Unicode takes for the end of one.
async function* linesOf(stream) {
    let parts = [];
    for await (let chunk of stream) {
        for (let end; (end = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(end + 1)) {
            yield Buffer.concat([...parts, chunk.subarray(0, end)]).toString();
            parts = [];
        }
        parts.push(chunk);
    }
}

async function call(work, message) {
    try {
        checkRan(await work(message));
        if (message.isInHand)
            throw new SkirnirError('the handler ended before handle() did: return its promise, '
                + 'or await it');
        return { verdict: 'accept' };
    } catch (error) {
        const verdict = error instanceof Reject ? 'reject' : error instanceof Wait ? 'wait' : 'retry';
        // By way of bytes: half of a character, which is no text, is replaced.
        const text = Buffer.from(String(error?.message || error)).toString();
        return { verdict, error: [...text].slice(0, 1000).join('') };
    }
}

// A generator's body has not run when it is returned.
function checkRan(result) {
    if (typeof result?.next === 'function')
        throw new SkirnirError('the handler is `function*`: its body would not run; write a plain '
            + 'or an async function');
}

function say(line) {
    const bytes = Buffer.from(JSON.stringify(line) + '\n');
    for (let sent = 0; sent < bytes.length;)
        sent += fs.writeSync(1, bytes, sent);
}

module.exports = { Message, Reject, Wait, checkRan, run };
