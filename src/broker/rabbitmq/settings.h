// SPDX-License-Identifier: MIT
// What a DSN says about a RabbitMQ server.

#ifndef SKR_BROKER_RABBITMQ_SETTINGS_H
#define SKR_BROKER_RABBITMQ_SETTINGS_H

#include "base/arena.h"
#include "base/log.h"

#include <stdbool.h>

struct skr_url;

struct rabbit_host {
    char *name;  // OpenSSL wants it so
    uint16_t port;
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
    uint16_t heartbeat_s;  // 0: none

    const char *exchange;       // of the transport; NULL: none
    const char *exchange_type;  // NULL: it is not ours to declare
    bool auto_setup;
};

// text is what url was parsed from: only there a slash in the name of a vhost
// and one after it can be told apart. What has no meaning here is logged.
SKR_MUST_CHECK enum skr_code
skr_rabbit_settings_read(const char *text, const struct skr_url *url,
                         bool auto_setup, const struct skr_log *log,
                         struct rabbit_settings *settings,
                         struct skr_error *error);
void skr_rabbit_settings_fini(struct rabbit_settings *settings);

#endif
