// SPDX-License-Identifier: MIT
// A server's reply codes as errors.

#ifndef SKR_AMQP_ERRORS_H
#define SKR_AMQP_ERRORS_H

#include "amqp/fields.h"

// Of what a server says when it closes a channel or a connection, that which
// others ask for.
enum {
    SKR_AMQP_NO_ROUTE = 312,
    SKR_AMQP_ACCESS_REFUSED = 403,
    SKR_AMQP_NOT_FOUND = 404,
    SKR_AMQP_NOT_ALLOWED = 530,  // the virtual host
};

struct skr_amqp_reply {
    uint16_t code;
    struct skr_amqp_piece text;
};

// "NOT_FOUND - no exchange 'x' in vhost '/'", as the server says it; its code
// is the error's native one.
enum skr_code
skr_amqp_fail_reply(struct skr_error *error, struct skr_amqp_reply reply);

// Whether the server closed the connection for something that this client sent.
bool skr_amqp_blames_client(uint16_t code);

#endif
