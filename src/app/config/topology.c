// SPDX-License-Identifier: MIT
// RabbitMQ's part of a configuration. Which exchanges, queues and bindings it
// has: what the keys of the topology list, what each transport has of its own,
// what is there by default, and on which server and virtual host it belongs;
// written as JSON in the form of RabbitMQ's definitions, too. And whether its
// values make sense, where their keys alone do not tell.

#include "app/config/topology.h"
#include "app/config/reader.h"
#include "app/drivers.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "message/json.h"
#include "message/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const exchange_types[] = {"direct", "fanout", "topic",
                                             "headers"};
static const char *const numeric_arguments[] = {SKR_AMQP_NUMERIC_ARGUMENTS};

static const char *const lists[] = {
    [SKR_AMQP_EXCHANGE] = "exchanges",
    [SKR_AMQP_QUEUE] = "queues",
    [SKR_AMQP_BINDING] = "bindings",
};

// The entry with this key, if it has a value.
static const struct skr_yaml_entry *
find(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_entry *entry = skr_yaml_find(node, key);
    return entry == NULL || entry->value->kind == SKR_YAML_NULL ? NULL : entry;
}

static const struct skr_yaml_entry *
find_below(const struct skr_yaml_node *node, const char *key, const char *below)
{
    const struct skr_yaml_entry *entry = find(node, key);
    return entry == NULL ? NULL : find(entry->value, below);
}

static const char *
text_of(const struct skr_yaml_node *node, const char *key)
{
    const char *text = skr_yaml_text(node, key);
    return text == NULL ? "" : text;
}

static bool
read_number(const char *text, int64_t *number)
{
    char *end = NULL;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 &&
           strspn(text, "+-0123456789") == strlen(text);
}

static bool
must_be_number(const char *argument)
{
    return skr_text_is_among(argument, numeric_arguments,
                             SKR_COUNT_OF(numeric_arguments));
}

// What the server needs as an argument of this name where something else
// stands, such as "a whole number"; NULL: it is good.
static const char *
argument_needs(const struct skr_yaml_entry *entry)
{
    int64_t number = 0;
    if (entry->value->kind == SKR_YAML_NULL)
        return NULL;
    if (entry->value->kind != SKR_YAML_TEXT)
        return "a text, a number or a boolean";
    if (must_be_number(entry->key) && !read_number(entry->value->text, &number))
        return "a whole number";
    return NULL;
}

static void
read_argument(const struct skr_yaml_entry *entry,
              struct skr_amqp_argument *argument)
{
    const struct skr_yaml_node *value = entry->value;
    *argument =
        (struct skr_amqp_argument){.name = entry->key, .text = value->text};
    if ((must_be_number(entry->key) || value->is_plain) &&
        read_number(value->text, &argument->number)) {
        argument->kind = SKR_AMQP_NUMBER;
    } else if (value->is_plain && (strcmp(value->text, "true") == 0 ||
                                   strcmp(value->text, "false") == 0)) {
        argument->kind = SKR_AMQP_BOOLEAN;
        argument->number = strcmp(value->text, "true") == 0;
    }
}

static enum skr_code
read_arguments(struct skr_topology *topology, const struct skr_yaml_node *node,
               struct skr_amqp_declaration *declaration,
               struct skr_error *error)
{
    const struct skr_yaml_entry *found = find(node, "arguments");
    if (found == NULL || found->value->count == 0)
        return SKR_OK;
    const struct skr_yaml_node *map = found->value;
    struct skr_amqp_argument *arguments =
        skr_arena_take(&topology->arena, map->count * sizeof(*arguments));
    if (arguments == NULL)
        return skr_fail_memory(error);
    declaration->arguments = arguments;
    for (size_t i = 0; i < map->count; i++)
        if (map->entries[i].value->kind != SKR_YAML_NULL)
            read_argument(&map->entries[i],
                          &arguments[declaration->argument_count++]);
    return SKR_OK;
}

// Room for one more; NULL: memory is out.
static struct skr_amqp_declaration *
append(struct skr_topology *topology)
{
    struct skr_amqp_declaration *grown =
        skr_arena_grow(&topology->arena, topology->declarations,
                       topology->count, &topology->capacity, sizeof(*grown));
    if (grown == NULL)
        return NULL;
    topology->declarations = grown;
    return &grown[topology->count++];
}

// What an object does not have is empty in it.
static enum skr_code
read_object(struct skr_topology *topology, enum skr_amqp_object object,
            const struct skr_yaml_entry *entry, struct skr_error *error)
{
    const struct skr_yaml_node *node = entry->value;
    struct skr_amqp_declaration *declaration = append(topology);
    if (declaration == NULL)
        return skr_fail_memory(error);
    *declaration = (struct skr_amqp_declaration){
        .object = object,
        .name = entry->key,
        .type = text_of(node, "type"),
        .durable = true,
        .exchange = text_of(node, "exchange"),
        .queue = text_of(node, "queue"),
        .binding_key = text_of(node, "binding_key"),
    };
    // That it is a boolean was checked.
    (void)skr_text_boolean(text_of(node, "durable"), &declaration->durable);
    return read_arguments(topology, node, declaration, error);
}

// Of a configuration that was checked.
static enum skr_code
read_topology(const struct skr_config *config, struct skr_topology *topology,
              struct skr_error *error)
{
    const struct skr_yaml_entry *root = skr_yaml_find(config->amqp, "topology");
    enum skr_code code = SKR_OK;
    *topology = (struct skr_topology){0};
    for (size_t i = 0; root != NULL && i < SKR_COUNT_OF(lists); i++) {
        const struct skr_yaml_entry *list =
            skr_yaml_find(root->value, lists[i]);
        size_t count = list == NULL ? 0 : list->value->count;
        for (size_t k = 0; k < count && code == SKR_OK; k++)
            code = read_object(topology, (enum skr_amqp_object)i,
                               &list->value->entries[k], error);
    }
    return code;
}

static bool
is_same(const struct skr_amqp_declaration *a,
        const struct skr_amqp_declaration *b)
{
    if (a->object != b->object)
        return false;
    if (a->object != SKR_AMQP_BINDING)
        return strcmp(a->name, b->name) == 0;
    return strcmp(a->exchange, b->exchange) == 0 &&
           strcmp(a->queue, b->queue) == 0 &&
           strcmp(a->binding_key, b->binding_key) == 0;
}

static bool
has(const struct skr_topology *topology,
    const struct skr_amqp_declaration *declaration)
{
    for (size_t i = 0; i < topology->count; i++)
        if (is_same(&topology->declarations[i], declaration))
            return true;
    return false;
}

// Borrows what declarations point to. One of a name that is there already is
// left out: the first declaration says what it looks like.
static enum skr_code
add_declarations(struct skr_topology *topology,
                 const struct skr_amqp_declaration *declarations, size_t count,
                 struct skr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (has(topology, &declarations[i]))
            continue;
        struct skr_amqp_declaration *added = append(topology);
        if (added == NULL)
            return skr_fail_memory(error);
        *added = declarations[i];
    }
    return SKR_OK;
}

static bool
is_amqp(const struct skr_config_transport *transport)
{
    return skr_driver_scheme(transport->scheme)->has_exchanges;
}

// A queue that is consumed alone may be filled in ways that the file does not
// know of.
static bool
has_defaults(const struct skr_config *config,
             const struct skr_config_transport *transport)
{
    if (transport->dsn == NULL || !is_amqp(transport))
        return false;
    bool names_queue =
        strstr(transport->dsn, "?queue") != NULL ||
        strstr(transport->dsn, "&queue") != NULL ||
        find_below(transport->node, "options", "queues") != NULL ||
        find_below(transport->node, "options", "queue") != NULL;
    return !names_queue || skr_config_publishes_by(config, transport->name);
}

void
skr_config_set_amqp_defaults(struct skr_config_reader *reader)
{
    struct skr_config *config = reader->config;
    const struct skr_yaml_entry *exchanges =
        find_below(config->amqp, "topology", "exchanges");
    bool lists_exchanges = exchanges != NULL && exchanges->value->count > 0;
    for (size_t i = 0; i < config->transport_count; i++)
        config->transports[i].has_defaults =
            !lists_exchanges && has_defaults(config, &config->transports[i]);
}

// --dsn, the transport that is called amqp, the first of its kind, or what
// Symfony's recipe puts into the environment.
static enum skr_code
find_url(const struct skr_config *config, const char *dsn, char **url,
         struct skr_error *error)
{
    const struct skr_config_transport *chosen = NULL;
    for (size_t i = 0; dsn == NULL && i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (is_amqp(transport) &&
            (chosen == NULL || strcmp(transport->name, "amqp") == 0))
            chosen = transport;
    }
    if (chosen != NULL)
        return skr_config_broker_url(chosen, url, error);
    if (dsn == NULL)
        dsn = getenv("MESSENGER_AMQP_DSN");
    if (dsn == NULL)
        return SKR_OK;
    *url = strdup(dsn);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

// A parameter beats the vhost in the path.
static enum skr_code
set_vhost(char **url, const char *vhost, struct skr_error *error)
{
    struct skr_text text = {0};
    if (vhost == NULL || *url == NULL)
        return SKR_OK;
    skr_text_add_string(&text, *url);
    skr_url_add_parameter(&text, "vhost", vhost);
    free(*url);
    *url = skr_text_take(&text);
    return *url == NULL ? skr_fail_memory(error) : SKR_OK;
}

const struct skr_broker_ops *
skr_site_driver(const char *url)
{
    char scheme[16] = "";
    size_t size = strcspn(url, ":");
    if (size < sizeof(scheme))
        memcpy(scheme, url, size);
    const struct skr_broker_ops *ops = skr_driver_find_broker(scheme);
    return ops == NULL || ops->topology == NULL ? NULL : ops;
}

// Of a URL that no driver here understands it is empty: the command that
// connects says so.
static enum skr_code
make_plan(struct skr_sites *sites, const char *text, struct skr_plan **plan,
          struct skr_error *error)
{
    struct skr_url url;
    const struct skr_broker_ops *ops =
        text == NULL ? NULL : skr_site_driver(text);
    *plan = &sites->plans[sites->plan_count++];
    **plan = (struct skr_plan){.server = "", .vhost = "/"};
    if (ops == NULL)
        return SKR_OK;
    enum skr_code code = skr_url_parse(text, &url, error);
    if (code != SKR_OK)
        return code;
    code = ops->topology->plan(text, &url, *plan, error);
    skr_url_fini(&url);
    return code;
}

static enum skr_code
add_topology(struct skr_sites *sites, const struct skr_config *config,
             const char *dsn, const char *vhost, struct skr_error *error)
{
    struct skr_site *site = &sites->items[sites->count++];
    struct skr_plan *plan = NULL;
    enum skr_code code = find_url(config, dsn, &site->url, error);
    if (code == SKR_OK)
        code = set_vhost(&site->url, vhost, error);
    if (code == SKR_OK)
        code = make_plan(sites, site->url, &plan, error);
    if (code != SKR_OK)
        return code;
    site->server = plan->server;
    site->vhost = vhost == NULL ? plan->vhost : vhost;
    return read_topology(config, &site->topology, error);
}

struct skr_site *
skr_site_find(const struct skr_sites *sites, const struct skr_plan *plan)
{
    for (size_t i = 0; i < sites->count; i++)
        if (strcmp(sites->items[i].server, plan->server) == 0 &&
            strcmp(sites->items[i].vhost, plan->vhost) == 0)
            return &sites->items[i];
    return NULL;
}

static enum skr_code
add_transport(struct skr_sites *sites,
              const struct skr_config_transport *transport, const char *dsn,
              const char *vhost, struct skr_error *error)
{
    char *url = NULL;
    struct skr_plan *plan = NULL;
    enum skr_code code = skr_config_broker_url(transport, &url, error);
    if (code == SKR_OK)
        code = set_vhost(&url, vhost, error);
    if (code == SKR_OK)
        code = make_plan(sites, url, &plan, error);
    if (code == SKR_OK && plan->count > 0) {
        struct skr_site *site =
            dsn == NULL ? skr_site_find(sites, plan) : &sites->items[0];
        if (site == NULL) {
            site = &sites->items[sites->count++];
            *site = (struct skr_site){
                url, plan->server, plan->vhost, {{0}, NULL, 0, 0}};
            url = NULL;
        }
        code = add_declarations(&site->topology, plan->declarations,
                                plan->count, error);
    }
    free(url);
    return code;
}

enum skr_code
skr_sites_find(const struct skr_config *config, const char *dsn,
               const char *vhost, struct skr_sites *sites,
               struct skr_error *error)
{
    size_t most = config->transport_count + 1, total = 0;
    *sites = (struct skr_sites){
        .items = calloc(most, sizeof(*sites->items)),
        .plans = calloc(most, sizeof(*sites->plans)),
    };
    if (sites->items == NULL || sites->plans == NULL)
        return skr_fail_memory(error);
    enum skr_code code = add_topology(sites, config, dsn, vhost, error);
    for (size_t i = 0; i < config->transport_count && code == SKR_OK; i++)
        if (is_amqp(&config->transports[i]))
            code =
                add_transport(sites, &config->transports[i], dsn, vhost, error);
    for (size_t i = 0; i < sites->count; i++)
        total += sites->items[i].topology.count;
    if (code == SKR_OK && total == 0)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s has nothing to declare; write exchanges, queues "
                        "and bindings under message_broker_amqp.topology, or "
                        "`queues` into the options of an amqp:// transport",
                        config->path);
    return code;
}

void
skr_sites_fini(struct skr_sites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        skr_arena_fini(&sites->items[i].topology.arena);
        free(sites->items[i].url);
    }
    for (size_t i = 0; i < sites->plan_count; i++)
        skr_arena_fini(&sites->plans[i].arena);
    free(sites->items);
    free(sites->plans);
    *sites = (struct skr_sites){0};
}

static void
dump_boolean(struct skr_json_writer *json, const char *name, bool truth)
{
    skr_json_write_name(json, name);
    skr_json_write_boolean(json, truth);
}

static void
dump_arguments(struct skr_json_writer *json,
               const struct skr_amqp_declaration *declaration)
{
    skr_json_write_name(json, "arguments");
    skr_json_begin_object(json);
    for (size_t i = 0; i < declaration->argument_count; i++) {
        const struct skr_amqp_argument *argument = &declaration->arguments[i];
        skr_json_write_name(json, argument->name);
        switch (argument->kind) {
        case SKR_AMQP_TEXT:
            skr_json_write_text(json, argument->text, strlen(argument->text));
            break;
        case SKR_AMQP_NUMBER:
            skr_json_write_signed(json, argument->number);
            break;
        case SKR_AMQP_BOOLEAN:
            skr_json_write_boolean(json, argument->number != 0);
            break;
        }
    }
    skr_json_end_object(json);
}

static void
dump_declaration(struct skr_json_writer *json,
                 const struct skr_amqp_declaration *declaration,
                 const char *vhost)
{
    bool is_binding = declaration->object == SKR_AMQP_BINDING;
    bool is_exchange = declaration->object == SKR_AMQP_EXCHANGE;
    skr_json_begin_object(json);
    skr_json_write_member(json, is_binding ? "source" : "name",
                          is_binding ? declaration->exchange
                                     : declaration->name);
    skr_json_write_member(json, "vhost", vhost);
    if (is_binding) {
        skr_json_write_member(json, "destination", declaration->queue);
        skr_json_write_member(json, "destination_type", "queue");
        skr_json_write_member(json, "routing_key", declaration->binding_key);
    } else {
        if (is_exchange)
            skr_json_write_member(json, "type", declaration->type);
        dump_boolean(json, "durable", declaration->durable);
        dump_boolean(json, "auto_delete", false);
        if (is_exchange)
            dump_boolean(json, "internal", false);
    }
    dump_arguments(json, declaration);
    skr_json_end_object(json);
}

char *
skr_sites_dump(const struct skr_sites *sites)
{
    struct skr_json_writer json = {.indent = 4};
    skr_json_begin_object(&json);
    for (size_t list = 0; list < SKR_COUNT_OF(lists); list++) {
        skr_json_write_name(&json, lists[list]);
        skr_json_begin_array(&json);
        for (size_t i = 0; i < sites->count; i++) {
            const struct skr_site *site = &sites->items[i];
            for (size_t k = 0; k < site->topology.count; k++)
                if (site->topology.declarations[k].object == list)
                    dump_declaration(&json, &site->topology.declarations[k],
                                     site->vhost);
        }
        skr_json_end_array(&json);
    }
    skr_json_end_object(&json);
    return skr_text_take(&json.text);
}

static void
refuse(struct skr_config_reader *reader, const char *path,
       const struct skr_yaml_entry *entry, const char *text)
{
    const struct skr_config_place place = {.path = path, .line = entry->line};
    skr_config_mistake(reader, &place, "%s", text);
}

static void
check_exchange_type(struct skr_config_reader *reader, const char *path,
                    const struct skr_yaml_node *exchange)
{
    const struct skr_yaml_entry *type = find(exchange, "type");
    char excerpt[SKR_CONFIG_EXCERPT_SIZE] = "";
    if (type == NULL)
        return;
    const char *word = text_of(exchange, "type");
    if (!skr_text_is_among(word, exchange_types, SKR_COUNT_OF(exchange_types)))
        refuse(reader, skr_config_text(reader, "%s.type", path), type,
               skr_config_text(reader,
                               "no exchange has the type '%s'; direct, fanout, "
                               "topic or headers is needed",
                               skr_config_excerpt(word, excerpt)));
}

static void
check_arguments(struct skr_config_reader *reader, const char *path,
                const struct skr_yaml_node *owner)
{
    const struct skr_yaml_entry *arguments = find(owner, "arguments");
    if (arguments == NULL || arguments->value->count == 0)
        return;
    path = skr_config_text(reader, "%s.arguments", path);
    if (arguments->value->kind != SKR_YAML_MAP) {
        refuse(reader, path, arguments, "a map is needed");
        return;
    }
    for (size_t i = 0; i < arguments->value->count; i++) {
        const struct skr_yaml_entry *entry = &arguments->value->entries[i];
        const char *needed = argument_needs(entry);
        int64_t number = 0;
        if (needed != NULL)
            refuse(reader, skr_config_text(reader, "%s.%s", path, entry->key),
                   entry, skr_config_text(reader, "%s is needed", needed));
        else if (entry->value->kind == SKR_YAML_TEXT &&
                 entry->value->is_plain &&
                 read_number(entry->value->text, &number))
            // 007 is sent as 7, and `config show` shows what is sent.
            entry->value->text =
                skr_config_text(reader, "%lld", (long long)number);
    }
}

static void
check_topology(struct skr_config_reader *reader,
               const struct skr_yaml_node *topology)
{
    for (size_t i = 0; i < SKR_COUNT_OF(lists); i++) {
        const struct skr_yaml_entry *section = find(topology, lists[i]);
        for (size_t k = 0; section != NULL && k < section->value->count; k++) {
            const struct skr_yaml_entry *entry = &section->value->entries[k];
            const char *path =
                entry->key != NULL
                    ? skr_config_text(reader,
                                      "message_broker_amqp.topology.%s.%s",
                                      lists[i], entry->key)
                    : skr_config_text(reader,
                                      "message_broker_amqp.topology.%s[%zu]",
                                      lists[i], k);
            if (i == SKR_AMQP_EXCHANGE)
                check_exchange_type(reader, path, entry->value);
            check_arguments(reader, path, entry->value);
        }
    }
}

static void
check_rule(struct skr_config_reader *reader, const struct skr_yaml_entry *rule)
{
    const struct skr_config_transport *found = NULL;
    const char *sender = skr_yaml_text(rule->value, "sender");
    const struct skr_yaml_entry *headers = find(rule->value, "headers");
    const char *path =
        skr_config_text(reader, "message_broker_amqp.routing.%s", rule->key);
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    if (sender != NULL && skr_config_find_transport(reader->config, sender,
                                                    &found, NULL) != SKR_OK)
        refuse(reader, skr_config_text(reader, "%s.sender", path),
               skr_yaml_find(rule->value, "sender"),
               skr_config_text(
                   reader,
                   "there is no transport '%s'; name one, or leave sender out "
                   "for the outbox's relay_to",
                   skr_config_excerpt(sender, excerpt)));
    bool is_map = headers == NULL || headers->value->kind == SKR_YAML_MAP ||
                  headers->value->count == 0;
    for (size_t i = 0; is_map && headers != NULL && i < headers->value->count;
         i++)
        is_map = headers->value->entries[i].value->kind == SKR_YAML_TEXT;
    if (!is_map)
        refuse(reader, skr_config_text(reader, "%s.headers", path), headers,
               "a map of texts is needed");
}

static void
check_transport(struct skr_config_reader *reader,
                const struct skr_config_transport *transport)
{
    const struct skr_yaml_entry *exchange =
        find_below(transport->node, "options", "exchange");
    if (exchange == NULL || transport->kind != SKR_TRANSPORT_OTHER)
        return;
    const char *path = skr_config_text(reader, "transports.%s.options.exchange",
                                       transport->name);
    if (exchange->value->kind == SKR_YAML_MAP) {
        check_exchange_type(reader, path, exchange->value);
        check_arguments(reader, path, exchange->value);
        return;
    }
    refuse(reader, path, exchange,
           "a map is needed, such as {name: orders, type: topic}");
}

bool
skr_config_publishes_by(const struct skr_config *config, const char *name)
{
    const struct skr_yaml_entry *routing = find(config->amqp, "routing");
    for (size_t i = 0; i < config->transport_count; i++)
        if (config->transports[i].relay_to != NULL &&
            strcmp(config->transports[i].relay_to, name) == 0)
            return true;
    for (size_t i = 0; routing != NULL && i < routing->value->count; i++) {
        const char *sender =
            skr_yaml_text(routing->value->entries[i].value, "sender");
        if (sender != NULL && strcmp(sender, name) == 0)
            return true;
    }
    return false;
}

void
skr_config_check_amqp(struct skr_config_reader *reader)
{
    const struct skr_config *config = reader->config;
    const struct skr_yaml_entry *routing = find(config->amqp, "routing");
    const struct skr_yaml_entry *topology = find(config->amqp, "topology");
    if (topology != NULL)
        check_topology(reader, topology->value);
    for (size_t i = 0; routing != NULL && i < routing->value->count; i++)
        check_rule(reader, &routing->value->entries[i]);
    for (size_t i = 0; i < config->transport_count; i++)
        check_transport(reader, &config->transports[i]);
}
