// SPDX-License-Identifier: MIT
// message_broker_amqp.routing and a transport's exchange, as routes.

#ifndef SKR_APP_WIRING_ROUTING_H
#define SKR_APP_WIRING_ROUTING_H

#include "app/config/config.h"
#include "message/route.h"

enum { SKR_ROUTING_MAX_TARGETS = 16 };

// Borrows texts from the configuration.
struct skr_routing {
    struct skr_arena arena;
    struct skr_routes routes;
    // The routes' senders: first the outbox's own, then those of rules.
    const struct skr_config_transport *targets[SKR_ROUTING_MAX_TARGETS];
    size_t target_count;
};

// For what is relayed to `target`. SKR_INVALID names file, line and key of a
// rule that cannot be followed.
SKR_MUST_CHECK enum skr_code
skr_routing_read(const struct skr_config *config,
                 const struct skr_config_transport *target,
                 struct skr_routing *routing, struct skr_error *error);
void skr_routing_fini(struct skr_routing *routing);

#endif
