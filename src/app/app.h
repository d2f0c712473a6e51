// SPDX-License-Identifier: MIT
// What every command of the program has at hand.

#ifndef SKR_APP_APP_H
#define SKR_APP_APP_H

#include "app/config/config.h"
#include "app/console/options.h"
#include "app/console/output.h"
#include "base/log.h"

#include <skirnir/skirnir.h>

struct skr_environment;
struct skr_reload;
struct skr_report;
struct skr_app;

// Another program's names for what a worker serves, beside our own.
struct skr_aliases {
    const char *listen;  // the settings that name the place
    // What GET /healthz says; with_broker: by ?readiness=1. Called from two
    // threads at once.
    bool (*is_healthy)(const struct skr_app *app,
                       const struct skr_config *config, bool with_broker);
    // Its metrics, by the figures of our transports: sets the columns of an
    // empty report and fills it.
    void (*read)(const struct skr_report *transports,
                 struct skr_report *report);
    // What the relay of this place among the arguments works by: called from
    // its thread, before it begins, as long as that may take. The caller frees
    // the configuration.
    enum skr_code (*configure)(void *user, struct skr_environment *environment,
                               size_t index, struct skr_config **config,
                               struct skr_error *error);
    void *user;
};

struct skr_app {
    const struct skr_command *command;
    const struct skr_arguments *arguments;
    struct skr_output *output;  // standard error
    struct skr_log log;         // to it, by -q and -v
    int64_t start_ms;           // by skr_clock_ms()
    int64_t start_s;            // since 1970
    // Of what runs until it is stopped; else NULL.
    struct skr_reload *reload;
    const struct skr_aliases *aliases;  // NULL: none
};

// All commands, ended by a name of NULL.
extern const struct skr_command skr_commands[];

// Prints "skirnir COMMAND: text" to standard error; returns the exit code.
enum skr_exit
skr_app_fail(const struct skr_app *app, const struct skr_error *error);
enum skr_exit skr_app_usage(const struct skr_app *app, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// "FILE:LINE: warning: TEXT", as a configuration is reported on.
void skr_app_say_report(const struct skr_output *output,
                        enum skr_config_severity severity, const char *path,
                        int line, const char *text);
// Loads the configuration of --config, printing every mistake and warning.
// False: there was one.
bool skr_app_load(struct skr_app *app, struct skr_config **config);
// Loads it and runs what needs it; what goes wrong is said.
enum skr_exit
skr_app_run_configured(struct skr_app *app, skr_configured_fn *run);

// Reports what a consumer would refuse, what the database says of SQL without
// running it, tables whose ids are used again, and outboxes that go nowhere.
// Loads no library: no code of its file runs. A database that cannot be asked
// is a warning, and one that is not made yet is nothing.
void skr_app_check(const struct skr_config *config,
                   struct skr_config_listener listener);

// What --limit-like options ask for, shared by relay and consume.
struct skr_limits {
    uint64_t messages;  // 0: none
    uint32_t sleep_ms;  // longest wait for work
    int64_t end_ms;     // by skr_clock_ms(); 0: none
    uint64_t memory_bytes;
    int64_t next_memory_check_ms;
    struct skr_log log;
};
void skr_limits_read(const struct skr_app *app, struct skr_limits *limits);
// Fits the is_over callbacks of relay and consumer.
bool skr_limits_is_over(void *limits);

// What `skirnir relay TRANSPORT` does, for other names of the same.
skr_configured_fn skr_relay_run_configured;

// A consumer of a transport as it is configured, without handlers. It connects
// to nothing yet.
struct skr_consumer;
SKR_MUST_CHECK enum skr_code
skr_app_open_consumer(const struct skr_app *app,
                      const struct skr_config *config,
                      const struct skr_config_transport *transport,
                      struct skr_consumer **consumer, struct skr_error *error);

// Adds to a table, while it is in use, what it lacks. Runs the statements, one
// after the other, and prints each before it is run and after it ran. One setup
// at a time does this in a database; one that waits for another prints that
// too.
struct skr_store;
struct skr_db;
SKR_MUST_CHECK enum skr_code
skr_complete_table(const struct skr_store *table, struct skr_db *db,
                   struct skr_error *error);

skr_configured_fn skr_command_cleanup_outbox;
skr_command_fn skr_command_config;
skr_command_fn skr_command_consume;
skr_configured_fn skr_command_deduplication_cleanup;
skr_command_fn skr_command_failed_remove;
skr_command_fn skr_command_failed_retry;
skr_command_fn skr_command_failed_show;
skr_command_fn skr_command_doctor;
skr_command_fn skr_command_init;
skr_command_fn skr_command_partition;
skr_command_fn skr_command_kafka_relay;
skr_configured_fn skr_command_publish;
skr_command_fn skr_command_relay;
skr_command_fn skr_command_setup;
skr_command_fn skr_command_setup_amqp;
skr_command_fn skr_command_setup_deduplication;
skr_configured_fn skr_command_stats;
skr_configured_fn skr_command_test_inbox_dedup;

#endif
