// SPDX-License-Identifier: MIT
// What a driver provides, beside broker.h, whose server routes messages by
// exchanges and bindings to queues: which of them a transport has of its own,
// and how to make them.

#ifndef SKR_BROKER_TOPOLOGY_H
#define SKR_BROKER_TOPOLOGY_H

#include "amqp/declaration.h"
#include "base/arena.h"
#include "broker/broker.h"

// Symfony's, where a transport names none; its queue is called the same.
#define SKR_DEFAULT_EXCHANGE "messages"

// What a URL names as the transport's own: its exchange, queues and bindings,
// in an order in which they can be declared. All of it lives in the arena,
// which is the caller's to end, also after an error.
struct skr_plan {
    struct skr_arena arena;
    const char *server;  // one or more: "rabbit1:5672,rabbit2:5672"
    const char *vhost;
    const struct skr_amqp_declaration *declarations;
    size_t count;
};
// Asks no server.
typedef enum skr_code
skr_topology_plan_fn(const char *text, const struct skr_url *url,
                     struct skr_plan *plan, struct skr_error *error);

// Makes the object unless it is there, and waits for the answer. One that is
// there with other properties is left alone: SKR_REFUSED says which differ, and
// the connection is as good as before.
typedef enum skr_code
skr_topology_declare_fn(struct skr_broker *broker,
                        const struct skr_amqp_declaration *declaration,
                        struct skr_error *error);

struct skr_topology_ops {
    skr_topology_plan_fn *plan;
    skr_topology_declare_fn *declare;
};

#endif
