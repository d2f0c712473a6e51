// SPDX-License-Identifier: MIT
// RabbitMQ's part of a configuration, as far as its keys alone do not tell
// whether a value makes sense: a mistake here would show when the relay runs.
#include "app/config/reader.h"

#include "app/config/topology.h"

#include <string.h>

static const struct skr_yaml_entry *
find_filled(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_entry *entry =
        node == NULL ? NULL : skr_yaml_find(node, key);
    return entry == NULL || entry->value->kind == SKR_YAML_NULL ? NULL : entry;
}

static void
check_exchange_type(struct skr_config_reader *reader, const char *path,
                    const struct skr_yaml_node *exchange)
{
    const struct skr_yaml_entry *type = find_filled(exchange, "type");
    if (type == NULL)
        return;
    struct skr_config_place place = {
        .path = skr_config_text(reader, "%s.type", path),
        .line = type->line,
    };
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    bool is_text = type->value->kind == SKR_YAML_TEXT;
    if (!is_text || !skr_topology_is_exchange_type(type->value->text))
        skr_config_mistake(
            reader, &place,
            "no exchange has the type '%s'; direct, fanout, topic or headers "
            "is needed",
            is_text ? skr_config_excerpt(type->value->text, excerpt) : "");
}

static void
check_arguments(struct skr_config_reader *reader, const char *path,
                const struct skr_yaml_node *owner)
{
    const struct skr_yaml_entry *arguments = find_filled(owner, "arguments");
    if (arguments == NULL || arguments->value->count == 0)
        return;
    struct skr_config_place place = {
        .path = skr_config_text(reader, "%s.arguments", path),
        .line = arguments->line,
    };
    if (arguments->value->kind != SKR_YAML_MAP) {
        skr_config_mistake(reader, &place, "a map is needed");
        return;
    }
    for (size_t i = 0; i < arguments->value->count; i++) {
        const struct skr_yaml_entry *entry = &arguments->value->entries[i];
        const char *needed = skr_topology_argument_needs(entry);
        struct skr_config_place inside = {
            .path = skr_config_text(reader, "%s.%s", place.path, entry->key),
            .line = entry->line,
        };
        if (needed != NULL)
            skr_config_mistake(reader, &inside, "%s is needed", needed);
    }
}

static void
check_topology(struct skr_config_reader *reader,
               const struct skr_yaml_node *topology)
{
    static const char *const sections[] = {"exchanges", "queues", "bindings"};
    for (size_t i = 0; i < SKR_COUNT_OF(sections); i++) {
        const struct skr_yaml_entry *section =
            find_filled(topology, sections[i]);
        for (size_t k = 0; section != NULL && k < section->value->count; k++) {
            const struct skr_yaml_entry *entry = &section->value->entries[k];
            const char *path =
                entry->key != NULL
                    ? skr_config_text(reader,
                                      "message_broker_amqp.topology.%s.%s",
                                      sections[i], entry->key)
                    : skr_config_text(reader,
                                      "message_broker_amqp.topology.%s[%zu]",
                                      sections[i], k);
            if (i == 0)
                check_exchange_type(reader, path, entry->value);
            check_arguments(reader, path, entry->value);
        }
    }
}

static bool
has_transport(const struct skr_config *config, const char *name)
{
    for (size_t i = 0; i < config->transport_count; i++)
        if (strcmp(config->transports[i].name, name) == 0)
            return true;
    return false;
}

static void
check_rule(struct skr_config_reader *reader, const struct skr_yaml_entry *rule)
{
    const struct skr_yaml_entry *sender = find_filled(rule->value, "sender");
    const struct skr_yaml_entry *headers = find_filled(rule->value, "headers");
    const char *path =
        skr_config_text(reader, "message_broker_amqp.routing.%s", rule->key);
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    if (sender != NULL && sender->value->kind == SKR_YAML_TEXT &&
        !has_transport(reader->config, sender->value->text)) {
        struct skr_config_place place = {
            .path = skr_config_text(reader, "%s.sender", path),
            .line = sender->line,
        };
        skr_config_mistake(
            reader, &place,
            "there is no transport '%s'; name one, or leave sender "
            "out for the outbox's relay_to",
            skr_config_excerpt(sender->value->text, excerpt));
    }
    bool is_map = headers == NULL || headers->value->kind == SKR_YAML_MAP ||
                  headers->value->count == 0;
    for (size_t i = 0; is_map && headers != NULL && i < headers->value->count;
         i++)
        is_map = headers->value->entries[i].value->kind == SKR_YAML_TEXT;
    if (is_map)
        return;
    struct skr_config_place place = {
        .path = skr_config_text(reader, "%s.headers", path),
        .line = headers->line,
    };
    skr_config_mistake(reader, &place, "a map of texts is needed");
}

static void
check_transport(struct skr_config_reader *reader,
                const struct skr_config_transport *transport)
{
    const struct skr_yaml_entry *options =
        find_filled(transport->node, "options");
    const struct skr_yaml_entry *exchange =
        options == NULL ? NULL : find_filled(options->value, "exchange");
    if (exchange == NULL || transport->kind != SKR_TRANSPORT_OTHER)
        return;
    const char *path = skr_config_text(reader, "transports.%s.options.exchange",
                                       transport->name);
    if (exchange->value->kind == SKR_YAML_MAP) {
        check_exchange_type(reader, path, exchange->value);
        check_arguments(reader, path, exchange->value);
        return;
    }
    struct skr_config_place place = {.path = path, .line = exchange->line};
    skr_config_mistake(reader, &place,
                       "a map is needed, such as {name: orders, type: topic}");
}

bool
skr_config_publishes_by(const struct skr_config *config, const char *name)
{
    const struct skr_yaml_entry *routing = find_filled(config->amqp, "routing");
    for (size_t i = 0; i < config->transport_count; i++)
        if (config->transports[i].relay_to != NULL &&
            strcmp(config->transports[i].relay_to, name) == 0)
            return true;
    for (size_t i = 0; routing != NULL && i < routing->value->count; i++) {
        const struct skr_yaml_entry *sender =
            find_filled(routing->value->entries[i].value, "sender");
        if (sender != NULL && sender->value->kind == SKR_YAML_TEXT &&
            strcmp(sender->value->text, name) == 0)
            return true;
    }
    return false;
}

static bool
names_queue(const struct skr_config_transport *transport)
{
    const struct skr_yaml_entry *options =
        find_filled(transport->node, "options");
    return strstr(transport->dsn, "?queue") != NULL ||
           strstr(transport->dsn, "&queue") != NULL ||
           (options != NULL && (find_filled(options->value, "queues") != NULL ||
                                find_filled(options->value, "queue") != NULL));
}

// A queue that is consumed alone may be filled in ways that the file does not
// know of.
static bool
has_defaults(const struct skr_config *config,
             const struct skr_config_transport *transport)
{
    return transport->dsn != NULL && skr_transport_is_amqp(transport) &&
           (!names_queue(transport) ||
            skr_config_publishes_by(config, transport->name));
}

void
skr_config_set_amqp_defaults(struct skr_config_reader *reader)
{
    struct skr_config *config = reader->config;
    const struct skr_yaml_entry *topology =
        find_filled(config->amqp, "topology");
    const struct skr_yaml_entry *exchanges =
        topology == NULL ? NULL : find_filled(topology->value, "exchanges");
    bool lists_exchanges = exchanges != NULL && exchanges->value->count > 0;
    for (size_t i = 0; i < config->transport_count; i++)
        config->transports[i].has_defaults =
            !lists_exchanges && has_defaults(config, &config->transports[i]);
}

void
skr_config_check_amqp(struct skr_config_reader *reader)
{
    const struct skr_config *config = reader->config;
    const struct skr_yaml_entry *routing = find_filled(config->amqp, "routing");
    const struct skr_yaml_entry *topology =
        find_filled(config->amqp, "topology");
    if (topology != NULL)
        check_topology(reader, topology->value);
    for (size_t i = 0; routing != NULL && i < routing->value->count; i++)
        check_rule(reader, &routing->value->entries[i]);
    for (size_t i = 0; i < config->transport_count; i++)
        check_transport(reader, &config->transports[i]);
}
