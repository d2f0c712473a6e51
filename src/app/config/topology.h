// SPDX-License-Identifier: MIT
// message_broker_amqp.topology: what is declared on a RabbitMQ server.

#ifndef SKR_APP_CONFIG_TOPOLOGY_H
#define SKR_APP_CONFIG_TOPOLOGY_H

#include "app/config/config.h"
#include "app/config/yaml_tree.h"
#include "broker/topology.h"

// Exchanges, then queues, then bindings, each in the order of the file; then
// what was added.
struct skr_topology {
    struct skr_arena arena;
    struct skr_amqp_declaration *declarations;
    size_t count, capacity;
};

// A virtual host of a server, and what is to be declared there.
struct skr_site {
    char *url;           // NULL: not configured
    const char *server;  // "" where that is unknown
    const char *vhost;
    struct skr_topology topology;
};

struct skr_sites {
    struct skr_site *items;
    size_t count;
    // Of the topology, then one for each amqp:// transport in their order.
    struct skr_plan *plans;
    size_t plan_count;
};

// What message_broker_amqp.topology lists, and what amqp:// transports have of
// their own, each where it belongs; with a dsn, all of it there. The first is
// that of the topology. dsn and vhost may be NULL. SKR_INVALID: there is
// nothing to declare.
SKR_MUST_CHECK enum skr_code
skr_sites_find(const struct skr_config *config, const char *dsn,
               const char *vhost, struct skr_sites *sites,
               struct skr_error *error);
void skr_sites_fini(struct skr_sites *sites);
// Where the plan belongs; NULL: nothing is declared there.
struct skr_site *
skr_site_find(const struct skr_sites *sites, const struct skr_plan *plan);

// The driver that can declare something there; NULL: none.
const struct skr_broker_ops *skr_site_driver(const char *url);

// As RabbitMQ's own export and import of definitions has it: a JSON object of
// exchanges, queues and bindings. The caller frees it; NULL: no memory.
char *skr_sites_dump(const struct skr_sites *sites);

#endif
