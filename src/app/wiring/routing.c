// SPDX-License-Identifier: MIT
// Reads routing rules and each transport's default exchange or topic as struct
// skr_routes.

#include "app/wiring/routing.h"

#include "app/config/keys.h"
#include "app/config/topology.h"
#include "app/config/yaml_tree.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/url.h"

#include <string.h>

static enum skr_code
read_headers(struct skr_arena *arena, const struct skr_yaml_node *node,
             struct skr_route_rule *rule, struct skr_error *error)
{
    if (node == NULL || node->count == 0)
        return SKR_OK;
    struct skr_header *headers =
        skr_arena_take(arena, node->count * sizeof(*headers));
    if (headers == NULL)
        return skr_fail_memory(error);
    size_t count = 0;
    for (size_t i = 0; i < node->count; i++)
        if (node->entries[i].value->kind == SKR_YAML_TEXT)
            headers[count++] =
                (struct skr_header){.name = node->entries[i].key,
                                    .value = node->entries[i].value->text};
    rule->headers = headers;
    rule->header_count = count;
    return SKR_OK;
}

static enum skr_code
fail_rule(const struct skr_config *config, const struct skr_yaml_entry *entry,
          const char *key, struct skr_error *error)
{
    enum skr_code code = error->code;
    skr_error_prefix(error, "%s:%d: message_broker_amqp.routing.%s.%s",
                     config->path, entry->line, entry->key, key);
    return code;
}

// Which of the relay's senders a rule means; one that is new is added.
static enum skr_code
find_sender(const struct skr_config *config, const char *name,
            struct skr_routing *routing, size_t *sender,
            struct skr_error *error)
{
    for (*sender = 0; *sender < routing->target_count; (*sender)++)
        if (strcmp(routing->targets[*sender]->name, name) == 0)
            return SKR_OK;
    const struct skr_config_transport *target = NULL;
    enum skr_code code =
        skr_config_find_transport(config, name, &target, error);
    if (code != SKR_OK)
        return code;
    if (target->kind == SKR_TRANSPORT_OUTBOX)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s is %s://, which is no destination", name,
                        target->scheme);
    if (routing->target_count == SKR_ROUTING_MAX_TARGETS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "one relay sends to at most %d transports",
                        SKR_ROUTING_MAX_TARGETS);
    routing->targets[routing->target_count++] = target;
    return SKR_OK;
}

// The word was checked when the file was read.
static enum skr_unroutable
read_unroutable(const char *word)
{
    unsigned value = SKR_UNROUTABLE_UNSAID;
    if (word == NULL ||
        !skr_config_find_choice(
            skr_config_find_key("message_broker_amqp.routing.*.unroutable"),
            word, &value))
        return SKR_UNROUTABLE_UNSAID;
    return (enum skr_unroutable)value;
}

static enum skr_code
read_rule(const struct skr_config *config, const struct skr_yaml_entry *entry,
          struct skr_routing *routing, struct skr_route_rule *rule,
          struct skr_error *error)
{
    const char *sender = skr_yaml_text(entry->value, "sender");
    *rule = (struct skr_route_rule){
        .pattern = entry->key,
        .unroutable =
            read_unroutable(skr_yaml_text(entry->value, "unroutable")),
        .exchange = skr_yaml_text(entry->value, "exchange"),
        .routing_key = skr_yaml_text(entry->value, "routing_key"),
        .topic = skr_yaml_text(entry->value, "topic"),
        .key = skr_yaml_text(entry->value, "key"),
    };
    if (sender != NULL &&
        find_sender(config, sender, routing, &rule->sender, error) != SKR_OK)
        return fail_rule(config, entry, "sender", error);
    return read_headers(&routing->arena,
                        skr_yaml_value(entry->value, "headers"), rule, error);
}

static enum skr_code
read_rules(const struct skr_config *config, struct skr_routing *routing,
           struct skr_error *error)
{
    const struct skr_yaml_node *node = skr_yaml_value(config->amqp, "routing");
    if (node == NULL || node->count == 0)
        return SKR_OK;
    struct skr_route_rule *rules =
        skr_arena_take(&routing->arena, node->count * sizeof(*rules));
    if (rules == NULL)
        return skr_fail_memory(error);
    bool is_one_queue = routing->targets[0]->kind == SKR_TRANSPORT_QUEUE;
    size_t count = 0;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < node->count && code == SKR_OK; i++) {
        code =
            read_rule(config, &node->entries[i], routing, &rules[count], error);
        // What says nothing but how RabbitMQ is reached is not for a queue.
        if (!is_one_queue || rules[count].sender > 0)
            count++;
    }
    routing->routes.rules = rules;
    routing->routes.rule_count = count;
    return code;
}

static const char *
first_of(const char *a, const char *b, const char *c)
{
    return a != NULL ? a : b != NULL ? b : c;
}

// As Symfony has it: the DSN's parameters, then options.exchange, then the
// DSN's path, then its default.
static enum skr_code
read_exchange(const struct skr_config_transport *target,
              struct skr_arena *arena, struct skr_route_sender *sender,
              struct skr_error *error)
{
    const struct skr_yaml_node *exchange =
        skr_yaml_value(skr_yaml_value(target->node, "options"), "exchange");
    struct skr_url url;
    enum skr_code code = skr_url_parse(target->dsn, &url, error);
    if (code != SKR_OK)
        return code;
    const char *name = first_of(skr_url_find(&url, "exchange[name]"),
                                skr_yaml_text(exchange, "name"),
                                skr_route_path_exchange(&url));
    if (name == NULL && target->has_defaults)
        name = SKR_DEFAULT_EXCHANGE;
    code = skr_arena_keep(arena, name, &sender->exchange, error);
    if (code == SKR_OK)
        code = skr_arena_keep(
            arena,
            first_of(
                skr_url_find(&url, "exchange[default_publish_routing_key]"),
                skr_yaml_text(exchange, "default_publish_routing_key"), NULL),
            &sender->routing_key, error);
    skr_url_fini(&url);
    return code;
}

// The DSN's parameters, then options, then the DSN's path.
static enum skr_code
read_topic(const struct skr_config_transport *target, struct skr_arena *arena,
           struct skr_route_sender *sender, struct skr_error *error)
{
    const struct skr_yaml_node *options =
        skr_yaml_value(target->node, "options");
    struct skr_url url;
    enum skr_code code = skr_url_parse(target->dsn, &url, error);
    if (code != SKR_OK)
        return code;
    const char *path =
        url.path == NULL || url.path[0] == '\0' ? NULL : url.path;
    const char *by = first_of(skr_url_find(&url, "topic_by"),
                              skr_yaml_text(options, "topic_by"), "name");
    unsigned topics = SKR_TOPICS_NAME;
    if (skr_config_find_choice(skr_config_find_option("kafka", "topic_by"), by,
                               &topics))
        sender->topics = (enum skr_topics)topics;
    else
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport %s: topic_by is name or two_words, not "
                        "'%.40s'",
                        target->name, by);
    if (code == SKR_OK)
        code = skr_arena_keep(arena,
                              first_of(skr_url_find(&url, "topic"),
                                       skr_yaml_text(options, "topic"), path),
                              &sender->topic, error);
    skr_url_fini(&url);
    return code;
}

static enum skr_code
read_senders(struct skr_routing *routing, struct skr_error *error)
{
    struct skr_route_sender *senders = skr_arena_take(
        &routing->arena, routing->target_count * sizeof(*senders));
    if (senders == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < routing->target_count && code == SKR_OK; i++) {
        const struct skr_config_transport *target = routing->targets[i];
        senders[i] = (struct skr_route_sender){
            .name = target->name,
            .is_one_queue = target->kind == SKR_TRANSPORT_QUEUE,
        };
        if (skr_driver_scheme(target->scheme)->has_topics)
            code = read_topic(target, &routing->arena, &senders[i], error);
        else if (!senders[i].is_one_queue)
            code = read_exchange(target, &routing->arena, &senders[i], error);
    }
    routing->routes.senders = senders;
    return code;
}

enum skr_code
skr_routing_read(const struct skr_config *config,
                 const struct skr_config_transport *target,
                 struct skr_routing *routing, struct skr_error *error)
{
    *routing = (struct skr_routing){.targets = {target}, .target_count = 1};
    enum skr_code code = read_rules(config, routing, error);
    return code != SKR_OK ? code : read_senders(routing, error);
}

void
skr_routing_fini(struct skr_routing *routing)
{
    skr_arena_fini(&routing->arena);
}
