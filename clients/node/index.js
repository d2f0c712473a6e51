// SPDX-License-Identifier: MIT
// Skirnir for Node: publish in your transaction, handle each message once.
'use strict';

const { SkirnirError } = require('./database');
const { Outbox, publish } = require('./outbox');
const { handle } = require('./inbox');
const { Message, Reject, Wait, run } = require('./worker');

module.exports = { Message, Outbox, Reject, SkirnirError, Wait, handle, publish, run };
