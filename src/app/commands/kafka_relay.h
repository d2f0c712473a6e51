// SPDX-License-Identifier: MIT
// `skirnir kafka-relay`: what kafka-outbox-relay does, by its environment
// variables and flags.

#ifndef SKR_APP_COMMANDS_KAFKA_RELAY_H
#define SKR_APP_COMMANDS_KAFKA_RELAY_H

#include "app/app.h"
#include "app/console/output.h"
#include "base/arena.h"
#include "relay/relay.h"

enum { SKR_KAFKA_RELAY_MAX_DATABASES = 16 };

enum skr_kafka_relay_success {
    SKR_KAFKA_RELAY_BY_TABLE,  // marks where the table was there before
    SKR_KAFKA_RELAY_MARK,
    SKR_KAFKA_RELAY_DELETE,
};

struct skr_kafka_relay_settings {
    struct skr_arena arena;  // all texts
    const char *names[SKR_KAFKA_RELAY_MAX_DATABASES];
    const char *urls[SKR_KAFKA_RELAY_MAX_DATABASES];
    size_t database_count;
    const struct skr_db_ops *database;
    const char *table;
    const char *brokers;      // "a:9092,b:9092"; NULL: none
    const char *hosts;        // the same, or "", without a login before them
    const char *partitioner;  // NULL: by the table
    const char *options;      // "name=value&...", of a kafka:// DSN; or NULL
    enum skr_kafka_relay_success success;
    const char *listen;  // "HOST:PORT", ":80"; "": nothing is served
    const char *sidecar_url;
    bool tls, skips_verifying;
    bool cleans, optimizes, polling_disabled, skips_migrations, takes_over;
    bool publishes_tombstones;
    bool waits;                   // for servers, as long as it takes
    bool dry_run;                 // of a job
    uint32_t cleanup_interval_s;  // 0: never
    uint32_t attempts;
    uint32_t poll_ms;
    uint32_t batch;
    struct skr_output output;
};

// From flags, else the environment. SKR_INVALID names what is wrong or missing;
// *is_missing: something that is required.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_read(const struct skr_arguments *arguments,
                     struct skr_kafka_relay_settings *settings,
                     bool *is_missing, struct skr_error *error);
void skr_kafka_relay_fini(struct skr_kafka_relay_settings *settings);

// The table of one of the databases; marks as the settings or the table say.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_table(const struct skr_kafka_relay_settings *settings,
                      bool marks, struct skr_store **table,
                      struct skr_error *error);

// Opens one of the databases, patiently: it may start together with us. With
// creates, one that is a file is made. Where the settings say that it waits it
// does so without end, and says for what each minute.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_open(const struct skr_kafka_relay_settings *settings,
                     size_t index, bool creates, struct skr_db **db,
                     struct skr_error *error);

// A connection to the first address of the host that takes one, each asked for
// so long; -1: none does.
int skr_kafka_relay_dial(const char *host, const char *port, int patience_ms);

// Removes from every database what was completed long ago, as clean() in struct
// skr_cleaner_options; user: the settings.
struct skr_cleaner;
void skr_kafka_relay_clean(struct skr_cleaner *cleaner, const void *user);
// RUN_CLEANUP and RUN_OPTIMIZE, on every database; then the sidecar is told.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_run_jobs(const struct skr_kafka_relay_settings *settings,
                         struct skr_error *error);
// SKR_INVALID: this is no place where a sidecar could be told anything.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_check_sidecar(const char *text, struct skr_error *error);
// POST URL/quitquitquit. Whatever it answers is fine: it was told.
// SKR_UNAVAILABLE: it was not.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_tell_sidecar(const char *text, struct skr_error *error);
// SKR_INVALID: the words behind kafka-relay mean nothing to
// skr_kafka_relay_tend.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_check_words(const struct skr_arguments *arguments,
                            struct skr_error *error);
// `errored show|retry|remove [ID]` and `migrate`.
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_tend(const struct skr_kafka_relay_settings *settings,
                     const struct skr_arguments *arguments,
                     struct skr_error *error);

// A page for probes and Prometheus, served by a thread of its own.
struct skr_kafka_relay_page;
SKR_MUST_CHECK enum skr_code
skr_kafka_relay_page_open(const struct skr_kafka_relay_settings *settings,
                          struct skr_kafka_relay_page **page,
                          struct skr_error *error);
void skr_kafka_relay_page_close(struct skr_kafka_relay_page *page);

#endif
