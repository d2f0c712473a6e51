// SPDX-License-Identifier: MIT
// What can be declared on an AMQP server: exchanges, queues and bindings, with
// their arguments.

#ifndef SKR_AMQP_DECLARATION_H
#define SKR_AMQP_DECLARATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum skr_amqp_object {
    SKR_AMQP_EXCHANGE,
    SKR_AMQP_QUEUE,
    SKR_AMQP_BINDING,
};

// The server refuses these as text, and DSNs and environments hold nothing
// else.
#define SKR_AMQP_NUMERIC_ARGUMENTS                                           \
    "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority", \
        "x-expires", "x-delivery-limit", "x-delay"

struct skr_amqp_argument {
    const char *name;
    enum skr_amqp_argument_kind {
        SKR_AMQP_TEXT,
        SKR_AMQP_NUMBER,
        SKR_AMQP_BOOLEAN,
    } kind;
    const char *text;  // never NULL in a text
    int64_t number;    // of a boolean: 0 or 1
};

struct skr_amqp_declaration {
    enum skr_amqp_object object;
    const char *name;      // of an exchange or a queue
    const char *type;      // of an exchange
    bool type_is_default;  // no setting names it
    bool durable;
    const char *exchange, *queue, *binding_key;  // of a binding
    const struct skr_amqp_argument *arguments;
    size_t argument_count;
};

#endif
