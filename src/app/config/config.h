// SPDX-License-Identifier: MIT
// The configuration: YAML in the vocabulary of Symfony's messenger.yaml, read
// into one struct. One table (keys.h) drives the reading, the defaults,
// `skirnir config show` and the check that every key is in the manual.

#ifndef SKR_APP_CONFIG_CONFIG_H
#define SKR_APP_CONFIG_CONFIG_H

#include "base/arena.h"
#include "inbox/consumer.h"
#include "message/failure.h"
#include "message/name.h"
#include "message/route.h"
#include "store/place.h"

#include <skirnir/relay.h>
#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stdio.h>

struct skr_kafka_outbox_options;
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

// What options that choose among words say, in the order of their words.
enum skr_on_success { SKR_ON_SUCCESS_DELETE, SKR_ON_SUCCESS_KEEP };
enum skr_on_failure { SKR_ON_FAILURE_BLOCK, SKR_ON_FAILURE_SKIP };
enum skr_missing_id {
    SKR_MISSING_ID_FAIL,
    SKR_MISSING_ID_HANDLE,
    SKR_MISSING_ID_DERIVE,
};

// How an outbox is relayed.
struct skr_config_relay {
    uint32_t in_flight;
    uint64_t in_flight_bytes;
    enum skr_relay_claim claim;
    enum skr_unroutable unroutable;
    enum skr_on_success on_success;
    enum skr_on_failure on_failure;  // of ordered outboxes
    bool commit_order;               // of ordered outboxes, as the next
    const char *partition_header;    // NULL: none
};

// Where consumers of a transport record what they handled.
struct skr_config_deduplication {
    const char *table;  // NULL: with all others
    bool reads_default;
};

// Where something stands in the file.
struct skr_config_source {
    const char *path;  // of its key: transports.NAME, or in Symfony's section
    int line;
};

struct skr_config_transport {
    const char *name;
    struct skr_config_source source;
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
    struct skr_queue_place place;  // of a table
    bool auto_setup;
    // Of amqp://: what it does not name of exchange and queue is Symfony's
    // default. Not where the file lists exchanges, as there names decide, nor
    // of a queue that is consumed alone.
    bool has_defaults;
    bool has_wrong_option;  // of its driver, which was told

    const char *serializer;  // NULL: PHP's own
    // NULL: the default one; "": none, which is written as null.
    const char *stamp_namespace;
    const char *relay_to;  // an outbox's destination; NULL: none
    // Where a consumer puts messages instead of handling them; NULL: nowhere.
    const char *forward_to;
    struct skr_retry_policy retry;
    struct skr_config_relay relay;
    uint32_t batch;
    enum skr_missing_id missing_id;
    enum skr_unhandled unhandled;
    uint32_t failure_limit;  // of a relay's route, or a consumer's handler
    struct skr_config_deduplication deduplication;
    // Of the layout of kafka-outbox-relay's table, which no file can ask for;
    // NULL: it is Symfony's.
    const struct skr_kafka_outbox_options *kafka_outbox;
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
    enum skr_recorder deduplicates;  // of a command
    bool transaction;
    struct skr_config_texts env;  // variables that a command may have
};

struct skr_config_ports {
    uint16_t first, last;  // 0: none
};

struct skr_config_cleanup {
    uint32_t interval_s;  // 0: never
    uint32_t outbox_days;
    uint32_t deduplication_days;
    uint32_t failed_days;  // 0: for ever
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
    const char *inbox_database_name;   // NULL: there is no such database
    const struct skr_yaml_node *amqp;  // message_broker_amqp; NULL: none
    struct skr_config_cleanup cleanup;
    struct skr_config_ports metrics_ports;
    const char *metrics_address;  // NULL: all of them, which no file asks for
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
struct skr_config_listener {
    skr_config_report_fn *report;  // NULL: none
    void *user;
};

// path NULL: SKIRNIR_CONFIG, else skirnir.yaml in the working folder, else
// /etc/skirnir/skirnir.yaml.
SKR_MUST_CHECK enum skr_code
skr_config_load(const char *path, struct skr_config_listener listener,
                struct skr_config **config, struct skr_error *error);
// The same from memory; path names it in reports, and relative paths begin in
// its folder.
SKR_MUST_CHECK enum skr_code
skr_config_parse(const char *text, size_t size, const char *path,
                 struct skr_config_listener listener,
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
// Whether consumers of this configuration have something to do.
bool skr_config_consumes(const struct skr_config *config);
// Whether the two spell one table of the database.
bool skr_config_same_table(const struct skr_config_database *database,
                           const char *a, const char *b);
// Whether both have a table, and it is one.
bool skr_config_share_table(const struct skr_config_transport *a,
                            const struct skr_config_transport *b);
// Effective values with secrets masked, as YAML that loads again or as JSON.
enum skr_config_format { SKR_CONFIG_YAML, SKR_CONFIG_JSON };
SKR_MUST_CHECK enum skr_code
skr_config_show(const struct skr_config *config, enum skr_config_format format,
                FILE *out, struct skr_error *error);
// A value with "***" in place of a private key, of what is secret in a DSN, and
// of each variable of the environment that is in it and has the name of a
// secret. NULL: memory is out; the caller frees it.
char *skr_config_mask(const struct skr_config *config, const char *text);

// The URL for the broker's driver: the DSN with the effective settings, so that
// a driver reads one text wherever they were written. The caller frees it.
SKR_MUST_CHECK enum skr_code
skr_config_broker_url(const struct skr_config_transport *transport, char **url,
                      struct skr_error *error);

#endif
