// SPDX-License-Identifier: MIT
// message_broker_amqp.topology: what is declared on a RabbitMQ server.

#ifndef SKR_APP_TOPOLOGY_H
#define SKR_APP_TOPOLOGY_H

#include "app/config.h"
#include "broker/broker.h"

// Exchanges, then queues, then bindings, each in the order of the file.
struct skr_topology {
    struct skr_arena arena;
    struct skr_declaration *declarations;
    size_t count;
};

// SKR_INVALID names file, line and key of the first mistake.
SKR_MUST_CHECK enum skr_code
skr_topology_read(const struct skr_config *config,
                  struct skr_topology *topology, struct skr_error *error);
void skr_topology_fini(struct skr_topology *topology);

// As RabbitMQ's own export and import of definitions has it: a JSON object of
// exchanges, queues and bindings. The caller frees it; NULL: no memory.
char *skr_topology_dump(const struct skr_topology *topology, const char *vhost);

#endif
