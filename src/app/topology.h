// SPDX-License-Identifier: MIT
// message_broker_amqp.topology: what is declared on a RabbitMQ server.

#ifndef SKR_APP_TOPOLOGY_H
#define SKR_APP_TOPOLOGY_H

#include "app/config.h"
#include "app/yaml_tree.h"
#include "broker/broker.h"

bool skr_topology_is_exchange_type(const char *word);
// What the server needs as an argument of this name where something else
// stands, such as "a whole number"; NULL: it is good.
const char *skr_topology_argument_needs(const struct skr_yaml_entry *entry);

// Exchanges, then queues, then bindings, each in the order of the file.
struct skr_topology {
    struct skr_arena arena;
    struct skr_declaration *declarations;
    size_t count;
};

// Of a configuration that was checked. SKR_INVALID: it has none.
SKR_MUST_CHECK enum skr_code
skr_topology_read(const struct skr_config *config,
                  struct skr_topology *topology, struct skr_error *error);
void skr_topology_fini(struct skr_topology *topology);

// As RabbitMQ's own export and import of definitions has it: a JSON object of
// exchanges, queues and bindings. The caller frees it; NULL: no memory.
char *skr_topology_dump(const struct skr_topology *topology, const char *vhost);

#endif
