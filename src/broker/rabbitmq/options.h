// SPDX-License-Identifier: MIT
// What a DSN says about a RabbitMQ server.

#ifndef SKR_BROKER_RABBITMQ_OPTIONS_H
#define SKR_BROKER_RABBITMQ_OPTIONS_H

#include "amqp/connection.h"
#include "base/arena.h"
#include "broker/rabbitmq/topology.h"

// All texts live in the arena, which is to be ended after an error, too.
struct rabbit_options {
    struct skr_arena arena;
    struct skr_amqp_options connection;
    int64_t confirm_timeout_ms;
    int64_t hold_timeout_ms;
    int64_t heartbeat_ms;
    bool auto_setup;
    struct rabbit_topology topology;
    int64_t prefetch_count;  // 0: by how many receive() is asked for
    int64_t prefetch_bytes;  // in memory, at most

    bool delays;                 // retries travel through delay queues
    const char *delay_exchange;  // of those
    const char *delay_queue_pattern;
    struct rabbit_arguments delay_arguments;
};

// text is what url was parsed from: only there a slash in the name of a vhost
// and one after it can be told apart. What has no meaning here is logged.
SKR_MUST_CHECK enum skr_code
skr_rabbit_options_read(const char *text, const struct skr_url *url,
                        bool auto_setup, const struct skr_log *log,
                        struct rabbit_options *options,
                        struct skr_error *error);

#endif
