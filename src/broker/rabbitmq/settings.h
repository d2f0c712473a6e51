// SPDX-License-Identifier: MIT
// What a DSN says about a RabbitMQ server.

#ifndef SKR_BROKER_RABBITMQ_SETTINGS_H
#define SKR_BROKER_RABBITMQ_SETTINGS_H

#include "base/arena.h"
#include "broker/broker.h"

#include <stdbool.h>

struct rabbit_host {
    char *name;  // OpenSSL wants it so
    uint16_t port;
};

// Arguments of a queue or a binding; a list that grows in an arena.
struct rabbit_arguments {
    struct skr_argument *items;
    size_t count, capacity;
};

// A queue of the transport, and what auto_setup makes of it.
struct rabbit_queue {
    const char *name;
    bool is_transient;
    const char **binding_keys;  // none: one, which is empty
    size_t key_count, key_capacity;
    struct rabbit_arguments arguments, binding_arguments;
};

// All texts live in the arena.
struct rabbit_settings {
    struct skr_arena arena;
    struct rabbit_host *hosts;  // at least one
    size_t host_count;
    const char *user;
    const char *password;
    const char *vhost;
    const char *connection_name;

    bool tls;
    bool verify;         // of the server's certificate and its name
    const char *cacert;  // NULL: the system's authorities
    const char *cert;    // NULL: none of our own
    const char *key;     // NULL: in the same file as cert

    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
    int64_t hold_timeout_ms;
    uint16_t heartbeat_s;  // 0: none

    const char *exchange;       // of the transport; NULL: none
    const char *exchange_type;  // NULL: it is not ours to declare
    bool auto_setup;

    struct rabbit_queue *queues;  // at least one
    size_t queue_count, queue_capacity;
    bool names_queues;  // the DSN does, rather than convention
    // What it does not name is Symfony's default, and the transport's own: the
    // exchange, and a queue, which is made together with the exchange.
    bool has_defaults;
    uint32_t prefetch_count;  // 0: by how many receive() is asked for
    size_t prefetch_bytes;    // held here, at most

    bool delays;                 // retries travel through delay queues
    const char *delay_exchange;  // of those
    const char *delay_queue_pattern;
    struct rabbit_arguments delay_arguments;
};

// text is what url was parsed from: only there a slash in the name of a vhost
// and one after it can be told apart. What has no meaning here is logged.
SKR_MUST_CHECK enum skr_code
skr_rabbit_settings_read(const char *text, const struct skr_url *url,
                         bool auto_setup, const struct skr_log *log,
                         struct rabbit_settings *settings,
                         struct skr_error *error);
// queues.c's part of it: queues and delay queues, with their arguments.
SKR_MUST_CHECK enum skr_code
skr_rabbit_queues_read(const struct skr_url *url,
                       struct rabbit_settings *settings,
                       struct skr_error *error);
// The last one wins, so that a command can add its own to a DSN; NULL: none.
const char *skr_rabbit_find_last(const struct skr_url *url, const char *name);
void skr_rabbit_settings_fini(struct rabbit_settings *settings);

#endif
