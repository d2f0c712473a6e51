// SPDX-License-Identifier: MIT
#include "app/routing.h"

#include "app/yaml_tree.h"
#include "base/error.h"
#include "base/url.h"

#include <string.h>

static const struct skr_yaml_node *
find_node(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_entry *entry =
        node == NULL ? NULL : skr_yaml_find(node, key);
    return entry == NULL ? NULL : entry->value;
}

static const char *
find_text(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_node *value = find_node(node, key);
    return value == NULL || value->kind != SKR_YAML_TEXT ? NULL : value->text;
}

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
read_rule(const struct skr_config *config,
          const struct skr_config_transport *target,
          const struct skr_yaml_entry *entry, struct skr_arena *arena,
          struct skr_route_rule *rule, struct skr_error *error)
{
    const char *sender = find_text(entry->value, "sender");
    if (sender != NULL && strcmp(sender, target->name) != 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s:%d: message_broker_amqp.routing.%s.sender is %s, "
                        "but the outbox is relayed to %s; give such messages "
                        "an outbox of their own",
                        config->path, entry->line, entry->key, sender,
                        target->name);
    *rule = (struct skr_route_rule){
        .pattern = entry->key,
        .exchange = find_text(entry->value, "exchange"),
        .routing_key = find_text(entry->value, "routing_key"),
    };
    return read_headers(arena, find_node(entry->value, "headers"), rule, error);
}

static enum skr_code
read_rules(const struct skr_config *config,
           const struct skr_config_transport *target,
           struct skr_routing *routing, struct skr_error *error)
{
    const struct skr_yaml_node *node = find_node(config->amqp, "routing");
    if (node == NULL || node->count == 0)
        return SKR_OK;
    struct skr_route_rule *rules =
        skr_arena_take(&routing->arena, node->count * sizeof(*rules));
    if (rules == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < node->count && code == SKR_OK; i++)
        code = read_rule(config, target, &node->entries[i], &routing->arena,
                         &rules[i], error);
    routing->routes.rules = rules;
    routing->routes.rule_count = node->count;
    return code;
}

// As Symfony has it: options.exchange.name, else the second part of the DSN's
// path, behind the virtual host.
static enum skr_code
read_exchange(const struct skr_config_transport *target,
              struct skr_routing *routing, struct skr_error *error)
{
    const struct skr_yaml_node *options = find_node(target->node, "options");
    routing->routes.exchange =
        find_text(find_node(options, "exchange"), "name");
    if (routing->routes.exchange != NULL)
        return SKR_OK;
    struct skr_url url;
    enum skr_code code = skr_url_parse(target->dsn, &url, error);
    if (code != SKR_OK)
        return code;
    const char *named = skr_url_find(&url, "exchange[name]");
    const char *slash = url.path == NULL ? NULL : strchr(url.path, '/');
    // A virtual host that is "/" itself comes decoded.
    if (slash == url.path && slash != NULL)
        slash = strchr(slash + 1, '/');
    if (named == NULL && slash != NULL && slash[1] != '\0')
        named = slash + 1;
    if (named != NULL) {
        routing->routes.exchange =
            skr_arena_text(&routing->arena, named, strlen(named));
        if (routing->routes.exchange == NULL)
            code = skr_fail_memory(error);
    }
    skr_url_fini(&url);
    return code;
}

enum skr_code
skr_routing_read(const struct skr_config *config,
                 const struct skr_config_transport *target,
                 struct skr_routing *routing, struct skr_error *error)
{
    *routing = (struct skr_routing){.routes = {.rules = NULL}};
    enum skr_code code = read_exchange(target, routing, error);
    return code != SKR_OK ? code : read_rules(config, target, routing, error);
}

void
skr_routing_fini(struct skr_routing *routing)
{
    skr_arena_fini(&routing->arena);
}
