// SPDX-License-Identifier: MIT
// Makes drivers, tables and deduplication tables from a transport's settings,
// so that commands need not know the options of each.

#include "app/wiring/transports.h"

#include "app/config/yaml_tree.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "relay/ownership.h"
#include "store/attempt/attempt.h"
#include "store/deduplication/deduplication.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/messenger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RELAY_FULL_SCAN_MS = 60000 };

enum skr_code
skr_transport_database(const struct skr_config_database *database,
                       const struct skr_db_ops **ops, struct skr_error *error)
{
    struct skr_url url;
    char missing[SKR_DRIVER_MISSING_SIZE];
    enum skr_code code = skr_url_parse(database->url, &url, error);
    if (code != SKR_OK) {
        skr_error_prefix(error, "database %s", database->name);
        return code;
    }
    const struct skr_db_ops *found = skr_driver_find_database(url.scheme);
    if (found == NULL)
        code =
            skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "database %s: %s",
                     database->name, skr_driver_missing(url.scheme, missing));
    else
        *ops = found;
    skr_url_fini(&url);
    return code;
}

enum skr_code
skr_transport_open_database(const struct skr_config_database *database,
                            struct skr_db **db, struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    enum skr_code code = skr_transport_database(database, &ops, error);
    if (code == SKR_OK)
        code = skr_db_open_to_read(ops, database->url, db, error);
    return code;
}

enum skr_code
skr_transport_open_unless_silent(const struct skr_config_database *database,
                                 struct skr_silent *silent, struct skr_db **db,
                                 struct skr_error *error)
{
    for (size_t i = 0; silent != NULL && i < silent->count; i++)
        if (strcmp(silent->databases[i]->url, database->url) == 0) {
            *error = silent->errors[i];
            return error->code;
        }
    enum skr_code code = skr_transport_open_database(database, db, error);
    if (code == SKR_UNAVAILABLE && silent != NULL &&
        silent->count < SKR_MOST_SILENT) {
        silent->databases[silent->count] = database;
        silent->errors[silent->count++] = *error;
    }
    return code;
}

enum skr_code
skr_transport_broker(const struct skr_config_transport *transport,
                     const struct skr_broker_ops **ops, struct skr_error *error)
{
    char missing[SKR_DRIVER_MISSING_SIZE];
    *ops = skr_driver_find_broker(transport->scheme);
    if (*ops != NULL)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP, "transport %s: %s",
                    transport->name,
                    skr_driver_missing(transport->scheme, missing));
}

enum skr_code
skr_transport_open_broker(const struct skr_config_transport *transport,
                          const struct skr_broker_options *options,
                          struct skr_broker **broker, struct skr_error *error)
{
    struct skr_broker_options complete = *options;
    const struct skr_broker_ops *ops = NULL;
    char *url = NULL;
    enum skr_code code = skr_transport_broker(transport, &ops, error);
    if (code == SKR_OK && transport->database != NULL) {
        complete.database_url = transport->database->url;
        code = skr_transport_database(transport->database, &complete.database,
                                      error);
    }
    if (code == SKR_OK)
        code = skr_config_broker_url(transport, &url, error);
    complete.url = url;
    if (code == SKR_OK)
        code = skr_broker_open(ops, &complete, broker, error);
    free(url);
    return code;
}

enum skr_code
skr_transport_print_sql(const char *sql, void *user, struct skr_error *error)
{
    (void)user;
    (void)error;
    printf("%s;\n", sql);
    return SKR_OK;
}

struct skr_failed_place
skr_transport_failed_place(const struct skr_config *config)
{
    struct skr_failed_place failed = {.place = {
                                          .table = "messenger_messages",
                                          .queue = "failed",
                                          .redeliver_timeout_s = 3600,
                                      }};
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (!skr_transport_is_failure(config, transport))
            continue;
        failed.database = transport->database;
        failed.place = transport->place;
        // PHP's own serializer cannot read what is JSON.
        failed.readable = transport->serializer != NULL;
    }
    return failed;
}

bool
skr_transport_is_failure(const struct skr_config *config,
                         const struct skr_config_transport *transport)
{
    return config->failure_transport != NULL &&
           strcmp(transport->name, config->failure_transport) == 0;
}

enum skr_claim
skr_transport_claim(const struct skr_config_transport *transport)
{
    return skr_ownership_kind(transport->relay.claim, transport->is_ordered);
}

enum skr_code
skr_transport_table(const struct skr_config *config,
                    const struct skr_config_transport *transport,
                    struct skr_store **table, struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    enum skr_code code =
        skr_transport_database(transport->database, &ops, error);
    if (code != SKR_OK)
        return code;
    if (transport->kafka_outbox != NULL) {
        struct skr_kafka_outbox_options kafka = *transport->kafka_outbox;
        kafka.dialect = ops->tx->dialect;
        kafka.table = transport->place.table;
        kafka.marks = transport->relay.on_success == SKR_ON_SUCCESS_KEEP;
        return skr_kafka_outbox_new(&kafka, table, error);
    }
    struct skr_failed_place failed = skr_transport_failed_place(config);
    const struct skr_messenger_options options = {
        .dialect = ops->tx->dialect,
        .table = transport->place.table,
        .queue = transport->place.queue,
        .redeliver_timeout_s = transport->place.redeliver_timeout_s,
        .full_scan_ms = RELAY_FULL_SCAN_MS,
        .keeps_sent = transport->relay.on_success == SKR_ON_SUCCESS_KEEP,
        .is_ordered = transport->is_ordered,
        .is_sharded = skr_ownership_has_shards(skr_transport_claim(transport)),
        .by_commits = transport->relay.commit_order,
        .limits_headers = true,
        .partition_header = transport->relay.partition_header,
        .stamp_namespace = transport->stamp_namespace,
        .names = &config->names,
        .time_zone = transport->place.time_zone,
        .failed_time_zone = failed.place.time_zone,
        .transport = transport->name,
        .failed_table = failed.place.table,
        .failed_queue = failed.place.queue,
        .failed_readable = failed.readable,
    };
    return skr_messenger_new(&options, table, error);
}

enum skr_code
skr_transport_open(const struct skr_config *config,
                   const struct skr_config_transport *transport,
                   struct skr_open_table *open, struct skr_error *error)
{
    *open = (struct skr_open_table){.db = NULL};
    enum skr_code code =
        skr_transport_table(config, transport, &open->table, error);
    if (code == SKR_OK)
        code =
            skr_transport_open_database(transport->database, &open->db, error);
    if (code != SKR_OK)
        skr_transport_close(open);
    return code;
}

void
skr_transport_close(struct skr_open_table *open)
{
    skr_db_close(open->db);
    skr_store_free(open->table);
    *open = (struct skr_open_table){.db = NULL};
}

enum skr_code
skr_transport_check(const struct skr_config *config,
                    const struct skr_config_transport *transport,
                    struct skr_error *error)
{
    struct skr_open_table open;
    enum skr_code code = skr_transport_open(config, transport, &open, error);
    if (code == SKR_OK)
        code = open.table->admin->check(open.table, open.db, error);
    skr_transport_close(&open);
    return code;
}

static bool
is_choice(const struct skr_config_transport *transport, bool only_ordered)
{
    return transport->kind == SKR_TRANSPORT_OUTBOX &&
           (transport->is_ordered || !only_ordered);
}

enum skr_code
skr_transport_choose_outbox(const struct skr_config *config, const char *name,
                            bool only_ordered,
                            const struct skr_config_transport **outbox,
                            struct skr_error *error)
{
    const struct skr_config_transport *found = NULL;
    const char *kind = only_ordered ? "ordered " : "";
    if (name != NULL) {
        enum skr_code code =
            skr_config_find_transport(config, name, &found, error);
        if (code == SKR_OK && !is_choice(found, only_ordered))
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "transport %s is %s://, not an %soutbox", name,
                            found->scheme, kind);
        *outbox = found;
        return code;
    }
    struct skr_text names = {0};
    size_t count = 0;
    // A failure transport is a doctrine table too, but no outbox.
    for (size_t i = 0; i < config->transport_count; i++)
        if (is_choice(&config->transports[i], only_ordered) &&
            !skr_transport_is_failure(config, &config->transports[i])) {
            found = &config->transports[i];
            skr_text_add_format(&names, "%s%s", count++ == 0 ? "" : ", ",
                                found->name);
        }
    enum skr_code code = SKR_OK;
    if (count > 1)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there are several %soutboxes; name one of them with "
                        "--transport: %s",
                        kind, names.broken ? found->name : names.bytes);
    skr_text_fini(&names);
    if (code != SKR_OK)
        return code;
    if (found == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no %soutbox is configured; add a%s transport", kind,
                        only_ordered ? "n ordered-doctrine://"
                                     : " doctrine://");
    *outbox = found;
    return SKR_OK;
}

struct skr_deduplication_place
skr_transport_deduplication(const struct skr_config *config,
                            const struct skr_config_transport *transport)
{
    const char *shared = config->deduplication_table;
    const char *own = transport->deduplication.table;
    if (own == NULL ||
        skr_config_same_table(config->inbox_database, own, shared))
        return (struct skr_deduplication_place){.table = shared};
    const struct skr_yaml_entry *entry =
        skr_yaml_find(transport->node, "deduplication");
    return (struct skr_deduplication_place){
        .table = own,
        .before = transport->deduplication.reads_default ? shared : NULL,
        .before_is_said = entry != NULL &&
                          skr_yaml_find(entry->value, "read_default") != NULL,
    };
}

// Transports may share a table of their own; it is told of with the first.
static bool
is_first_of_table(const struct skr_config *config, size_t which)
{
    const struct skr_config_database *database = config->inbox_database;
    const char *table = config->transports[which].deduplication.table;
    if (table == NULL ||
        skr_config_same_table(database, table, config->deduplication_table))
        return false;
    for (size_t i = 0; i < which; i++) {
        const char *other = config->transports[i].deduplication.table;
        if (other != NULL && skr_config_same_table(database, other, table))
            return false;
    }
    return true;
}

bool
skr_deduplication_place_next(const struct skr_config *config, size_t *at,
                             struct skr_deduplication_place *place)
{
    if (*at == 0) {
        ++*at;
        *place = (struct skr_deduplication_place){
            .table = config->deduplication_table};
        return true;
    }
    while (*at <= config->transport_count) {
        size_t which = (*at)++ - 1;
        if (!is_first_of_table(config, which))
            continue;
        *place =
            skr_transport_deduplication(config, &config->transports[which]);
        return true;
    }
    return false;
}

enum skr_code
skr_deduplication_place_table(const struct skr_config *config,
                              const struct skr_deduplication_place *place,
                              struct skr_deduplication **table,
                              struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    struct skr_deduplication *made = NULL;
    enum skr_code code =
        skr_transport_database(config->inbox_database, &ops, error);
    if (code == SKR_OK)
        code =
            skr_deduplication_new(ops->tx->dialect, place->table, &made, error);
    if (code == SKR_OK)
        code = skr_deduplication_succeed(made, place->before, error);
    if (code != SKR_OK) {
        skr_deduplication_free(made);
        return code;
    }
    *table = made;
    return SKR_OK;
}

bool
skr_transport_has_table(const struct skr_config_transport *transport)
{
    return transport->kind == SKR_TRANSPORT_OUTBOX ||
           transport->kind == SKR_TRANSPORT_QUEUE;
}

bool
skr_transport_keeps_failures(const struct skr_config *config,
                             const struct skr_config_transport *transport)
{
    return transport->scheme == NULL ||
           skr_transport_is_failure(config, transport);
}

enum skr_code
skr_transport_give_sql(const struct skr_config *config,
                       const struct skr_config_transport *transport,
                       skr_sql_text_fn *each, void *user,
                       struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    struct skr_store *table = NULL;
    enum skr_code code = skr_transport_table(config, transport, &table, error);
    if (code == SKR_OK)
        code = skr_transport_database(transport->database, &ops, error);
    if (code == SKR_OK)
        code = table->admin->setup(table, NULL, each, user, error);
    if (code == SKR_OK && skr_transport_keeps_failures(config, transport))
        code = skr_attempts_setup(ops->tx->dialect, each, user, error);
    skr_store_free(table);
    return code;
}

enum skr_code
skr_inbox_give_sql(const struct skr_config *config, skr_sql_text_fn *each,
                   void *user, struct skr_error *error)
{
    const struct skr_db_ops *ops = NULL;
    struct skr_deduplication_place place;
    size_t at = 0;
    enum skr_code code =
        skr_transport_database(config->inbox_database, &ops, error);
    while (code == SKR_OK &&
           skr_deduplication_place_next(config, &at, &place)) {
        struct skr_deduplication *table = NULL;
        code = skr_deduplication_place_table(config, &place, &table, error);
        if (code == SKR_OK)
            code = skr_deduplication_setup(table, each, user, error);
        skr_deduplication_free(table);
    }
    if (code != SKR_OK)
        return code;
    return skr_attempts_setup(ops->tx->dialect, each, user, error);
}

enum skr_code
skr_config_give_sql(const struct skr_config *config, skr_sql_text_fn *each,
                    void *user, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++)
        if (skr_transport_has_table(&config->transports[i]))
            code = skr_transport_give_sql(config, &config->transports[i], each,
                                          user, error);
    return code == SKR_OK ? skr_inbox_give_sql(config, each, user, error)
                          : code;
}
