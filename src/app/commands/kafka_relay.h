// SPDX-License-Identifier: MIT
// `skirnir kafka-relay`: what kafka-outbox-relay does. Its environment
// variables and flags become a configuration, which the ordinary relay runs.

#ifndef SKR_APP_COMMANDS_KAFKA_RELAY_H
#define SKR_APP_COMMANDS_KAFKA_RELAY_H

#include "app/app.h"
#include "base/arena.h"
#include "db/db.h"
#include "store/kafka_outbox/kafka_outbox.h"

enum { SKR_KAFKA_RELAY_MAX_DATABASES = 16 };

struct skr_kafka_relay {
    // Flags, else the environment; as arguments of `relay`, the names of the
    // databases, by which their transports are called.
    struct skr_arguments arguments;
    const struct skr_arguments *command_line;  // the flags alone
    struct skr_output output;                  // JSON on standard output
    struct skr_app app;                        // of these two
    struct skr_arena arena;                    // the names
    struct skr_kafka_outbox_options table;
    // Of each database a transport, in the order of the names, then one to
    // Kafka for each, where that is needed; as if all tables were ours.
    struct skr_config *config;
    bool is_missing;  // a setting that is required
    bool is_usage;    // what a flag says makes no sense
    int wake_fd;      // by a signal that asks for a stop; -1: it ends a job
};

// Reads the settings. SKR_INVALID names what is wrong or missing.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_read(const struct skr_app *app, struct skr_kafka_relay *relay,
                     struct skr_error *error);
// No user of this command has written a DSN.
void skr_kafka_relay_leave_out_dsn(struct skr_error *error);
// The value of an option; NULL: it is not given, or empty.
const char *
skr_kafka_relay_find(const struct skr_arguments *given, const char *name);
// The same for tables that are ours, or were made by another program, which
// decides what is not set. Warnings are logged if they are wanted. From any
// thread.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_configure(struct skr_kafka_relay *relay, bool is_others,
                          bool warns, struct skr_config **config,
                          struct skr_error *error);

#endif
