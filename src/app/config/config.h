// SPDX-License-Identifier: MIT
// The configuration: YAML in the vocabulary of Symfony's messenger.yaml, read
// into one struct. One table (keys.h) drives the reading, the defaults,
// `skirnir config show` and the check that every key is in the manual.

#ifndef SKR_APP_CONFIG_CONFIG_H
#define SKR_APP_CONFIG_CONFIG_H

#include "base/arena.h"
#include "message/failure.h"
#include "message/name.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stdio.h>

struct skr_yaml_node;

struct skr_config_database {
    const char *name;
    const char *url;  // %env()% already filled in
};

enum skr_transport_kind {
    SKR_TRANSPORT_OUTBOX,  // doctrine://, ordered-doctrine://
    SKR_TRANSPORT_QUEUE,   // queue://
    SKR_TRANSPORT_OTHER,   // a scheme that this build has no driver for
};

struct skr_config_transport {
    const char *name;
    int line;  // where it stands in the file
    // As it is written there, %env()% filled in: options of a scheme that the
    // table of keys does not know are found here.
    const struct skr_yaml_node *node;
    const char *dsn;
    const char *folder;  // where its relative paths begin; NULL: where we are
    enum skr_transport_kind kind;
    bool is_ordered;  // messages with the same partition key keep their order
    const char *scheme;
    // From the DSN's query, which wins, or from options.
    const struct skr_config_database *database;
    const char *table_name;
    const char *queue_name;
    uint32_t redeliver_timeout_s;
    bool auto_setup;
    // Of amqp://: what it does not name of exchange and queue is Symfony's
    // default. Not where the file lists exchanges, as there names decide, nor
    // of a queue that is consumed alone.
    bool has_defaults;
    const char *time_zone;

    const char *serializer;  // NULL: PHP's own
    // NULL: the default one; "": none, which is written as null.
    const char *stamp_namespace;
    const char *relay_to;  // an outbox's destination; NULL: none
    struct skr_retry_policy retry;
    uint32_t in_flight;
    uint64_t in_flight_bytes;
    const char *claim;       // "exclusive", "shared" or "lease"
    const char *unroutable;  // "fail", "drop" or "wait"
    uint32_t failure_limit;
    uint32_t batch;
    const char *on_success;        // "delete" or "keep"
    const char *on_failure;        // "block" or "skip"; of ordered outboxes
    bool commit_order;             // of ordered outboxes, as the next
    const char *partition_header;  // NULL: none
    const char *missing_id;        // "fail", "handle" or "derive"
    const char *unhandled;         // "fail", "ignore" or "wait"
    // Where its consumers record what they handled. NULL: with all others.
    const char *deduplication_table;
    bool deduplication_reads_default;
};

// After a mistake an item is NULL.
struct skr_config_texts {
    const char *const *items;
    size_t count;
};

struct skr_config_handler {
    const char *message_name;
    int line;
    // One of these three is given.
    struct skr_config_texts sql;
    struct skr_config_texts command;
    const char *library;

    const char *function;
    uint32_t timeout_s;
    bool transaction;
    struct skr_config_texts env;  // variables that a command may have
};

struct skr_config_ports {
    uint16_t first, last;  // 0: none
};

struct skr_config_file {
    const char *path, *text;
};

struct skr_config {
    const char *path;
    struct skr_arena arena;  // all texts

    struct skr_config_database *databases;
    size_t database_count;
    struct skr_config_transport *transports;
    size_t transport_count;
    struct skr_config_handler *handlers;
    size_t handler_count;
    struct skr_name_pair *message_types;
    size_t message_type_count;
    struct skr_names names;  // the same message_types, as the layers want them

    const char *failure_transport;  // NULL: none
    const char *default_serializer;
    const char *deduplication_table;
    bool deduplication_auto_setup;
    // Where handlers run and deduplication rows stand; NULL when there is no
    // such database, which a configuration without handlers may leave so.
    const struct skr_config_database *inbox_database;
    const char *inbox_database_name;
    const struct skr_yaml_node *amqp;  // message_broker_amqp; NULL: none
    uint32_t cleanup_interval_s;       // 0: never
    uint32_t cleanup_outbox_days;
    uint32_t cleanup_deduplication_days;
    uint32_t cleanup_failed_days;  // 0: for ever
    struct skr_config_ports metrics_ports;
    const char *metrics_address;
    // Files that its values are made of, as they were read.
    struct skr_config_file *files;
    size_t file_count;
    // Variables of the environment that its values are made of.
    const char **variables;
    size_t variable_count;
};

// Every mistake and every warning goes to report with file, line (0: none) and
// a text that begins with the key; the first mistake is also the error. A
// mistake does not end the reading: all of them are reported in one go.
enum skr_config_severity { SKR_CONFIG_MISTAKE, SKR_CONFIG_WARNING };
typedef void skr_config_report_fn(void *user, enum skr_config_severity severity,
                                  const char *path, int line, const char *text);

// path NULL: SKIRNIR_CONFIG, else skirnir.yaml in the working folder, else
// /etc/skirnir/skirnir.yaml. report may be NULL.
SKR_MUST_CHECK enum skr_code
skr_config_load(const char *path, skr_config_report_fn *report, void *user,
                struct skr_config **config, struct skr_error *error);
// The same from memory; path names it in reports, and relative paths begin in
// its folder.
SKR_MUST_CHECK enum skr_code
skr_config_parse(const char *text, size_t size, const char *path,
                 skr_config_report_fn *report, void *user,
                 struct skr_config **config, struct skr_error *error);
void skr_config_free(struct skr_config *config);

// Whether a file that %env(file:NAME)% read has another text by now: the
// configuration is to be loaded again.
bool skr_config_files_changed(const struct skr_config *config);

// SKR_INVALID lists the names that are configured.
SKR_MUST_CHECK enum skr_code
skr_config_find_transport(const struct skr_config *config, const char *name,
                          const struct skr_config_transport **transport,
                          struct skr_error *error);
// Effective values with secrets masked, as YAML that loads again or as JSON.
enum skr_config_format { SKR_CONFIG_YAML, SKR_CONFIG_JSON };
SKR_MUST_CHECK enum skr_code
skr_config_show(const struct skr_config *config, enum skr_config_format format,
                FILE *out, struct skr_error *error);

// The URL for the broker's driver: the DSN with the effective settings, so that
// a driver reads one text wherever they were written. The caller frees it.
SKR_MUST_CHECK enum skr_code
skr_config_broker_url(const struct skr_config_transport *transport, char **url,
                      struct skr_error *error);

#endif
