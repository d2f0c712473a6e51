// SPDX-License-Identifier: MIT
// Does what the body of a message says; see clients/vectors/README.md.
'use strict';

const { Reject, Wait, run } = require('..');

run((message) => {
    const { do: wanted, why } = message.json();
    if (wanted === 'reject')
        throw new Reject(why);
    if (wanted === 'wait')
        throw new Wait(why);
    if (wanted === 'fail')
        throw new Error(why);
    if (wanted === 'print')
        console.log('nothing that a consumer wants to know');
}, { deduplicates: JSON.parse(process.argv[2]) });
