// SPDX-License-Identifier: MIT
// The worker of tests/integration/test_clients.py: an effect for each order,
// and a byte in the file `progress` for each call.
'use strict';

const fs = require('node:fs');
const { handle, run } = require('..');
const { connect } = require('./connect');

const progress = fs.openSync('progress', 'a');

connect(process.argv[2], 10).then(({ connection, ask }) => {
    const place = async (_, message) => {
        fs.writeSync(progress, '.');
        await ask(`INSERT INTO effects (order_id) VALUES ('${message.json().orderId}')`);
    };
    return run((message) => handle(connection, message, place), { deduplicates: true });
});
