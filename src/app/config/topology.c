// SPDX-License-Identifier: MIT
// Reads the topology's keys as declarations for a broker, and writes them as
// JSON in the form of RabbitMQ's definitions.

#include "app/config/topology.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const exchange_types[] = {"direct", "fanout", "topic",
                                             "headers"};
static const char *const numeric_arguments[] = {SKR_NUMERIC_ARGUMENTS};

// Of a configuration that was checked when it was read: words are known, and
// arguments are what the server takes.
struct reader {
    struct skr_topology *topology;
    struct skr_error *error;
};

static const char *
text_of(const struct skr_yaml_node *node, const char *key, const char *fallback)
{
    const struct skr_yaml_entry *entry = skr_yaml_find(node, key);
    return entry == NULL || entry->value->kind != SKR_YAML_TEXT
               ? fallback
               : entry->value->text;
}

static bool
is_true(const char *text)
{
    static const char *const words[] = {"true", "yes", "on", "1"};
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
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

bool
skr_topology_is_exchange_type(const char *word)
{
    return skr_text_is_among(word, exchange_types,
                             SKR_COUNT_OF(exchange_types));
}

static bool
must_be_number(const char *argument)
{
    return skr_text_is_among(argument, numeric_arguments,
                             SKR_COUNT_OF(numeric_arguments));
}

const char *
skr_topology_argument_needs(const struct skr_yaml_entry *entry)
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
read_argument(const struct skr_yaml_entry *entry, struct skr_argument *argument)
{
    const struct skr_yaml_node *value = entry->value;
    *argument = (struct skr_argument){.name = entry->key, .text = value->text};
    if ((must_be_number(entry->key) || value->is_plain) &&
        read_number(value->text, &argument->number)) {
        argument->kind = SKR_ARGUMENT_NUMBER;
    } else if (value->is_plain && (strcasecmp(value->text, "true") == 0 ||
                                   strcasecmp(value->text, "false") == 0)) {
        argument->kind = SKR_ARGUMENT_BOOLEAN;
        argument->number = is_true(value->text);
    }
}

static enum skr_code
read_arguments(struct reader *reader, const struct skr_yaml_node *node,
               struct skr_declaration *declaration)
{
    const struct skr_yaml_entry *found = skr_yaml_find(node, "arguments");
    const struct skr_yaml_node *map = found == NULL ? NULL : found->value;
    if (map == NULL || map->count == 0)
        return SKR_OK;
    struct skr_argument *arguments = skr_arena_take(
        &reader->topology->arena, map->count * sizeof(*arguments));
    if (arguments == NULL)
        return skr_fail_memory(reader->error);
    declaration->arguments = arguments;
    for (size_t i = 0; i < map->count; i++)
        if (map->entries[i].value->kind != SKR_YAML_NULL)
            read_argument(&map->entries[i],
                          &arguments[declaration->argument_count++]);
    return SKR_OK;
}

static enum skr_code
read_exchange(struct reader *reader, const struct skr_yaml_entry *entry,
              struct skr_declaration *declaration)
{
    *declaration = (struct skr_declaration){
        .kind = SKR_DECLARE_EXCHANGE,
        .name = entry->key,
        .type = text_of(entry->value, "type", ""),
        .durable = is_true(text_of(entry->value, "durable", "true")),
    };
    return read_arguments(reader, entry->value, declaration);
}

static enum skr_code
read_queue(struct reader *reader, const struct skr_yaml_entry *entry,
           struct skr_declaration *declaration)
{
    *declaration = (struct skr_declaration){
        .kind = SKR_DECLARE_QUEUE,
        .name = entry->key,
        .durable = is_true(text_of(entry->value, "durable", "true")),
    };
    return read_arguments(reader, entry->value, declaration);
}

static enum skr_code
read_binding(struct reader *reader, const struct skr_yaml_entry *entry,
             struct skr_declaration *declaration)
{
    *declaration = (struct skr_declaration){
        .kind = SKR_DECLARE_BINDING,
        .exchange = text_of(entry->value, "exchange", ""),
        .queue = text_of(entry->value, "queue", ""),
        .binding_key = text_of(entry->value, "binding_key", ""),
    };
    return read_arguments(reader, entry->value, declaration);
}

enum skr_code
skr_topology_read(const struct skr_config *config,
                  struct skr_topology *topology, struct skr_error *error)
{
    static const struct {
        const char *key;
        enum skr_code (*read)(struct reader *reader,
                              const struct skr_yaml_entry *entry,
                              struct skr_declaration *declaration);
    } sections[] = {
        {"exchanges", read_exchange},
        {"queues", read_queue},
        {"bindings", read_binding},
    };
    struct reader reader = {topology, error};
    const struct skr_yaml_entry *found =
        skr_yaml_find(config->amqp, "topology");
    const struct skr_yaml_node *root = found == NULL ? NULL : found->value;
    *topology = (struct skr_topology){0};
    size_t total = 0;
    for (size_t i = 0; root != NULL && i < SKR_COUNT_OF(sections); i++) {
        found = skr_yaml_find(root, sections[i].key);
        total += found == NULL ? 0 : found->value->count;
    }
    if (total == 0)
        return SKR_OK;
    topology->declarations = skr_arena_take(
        &topology->arena, total * sizeof(*topology->declarations));
    if (topology->declarations == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < SKR_COUNT_OF(sections); i++) {
        found = skr_yaml_find(root, sections[i].key);
        for (size_t k = 0; found != NULL && k < found->value->count; k++) {
            enum skr_code code =
                sections[i].read(&reader, &found->value->entries[k],
                                 &topology->declarations[topology->count++]);
            if (code != SKR_OK)
                return code;
        }
    }
    return SKR_OK;
}

static bool
is_same(const struct skr_declaration *a, const struct skr_declaration *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind != SKR_DECLARE_BINDING)
        return strcmp(a->name, b->name) == 0;
    return strcmp(a->exchange, b->exchange) == 0 &&
           strcmp(a->queue, b->queue) == 0 &&
           strcmp(a->binding_key, b->binding_key) == 0;
}

static bool
has(const struct skr_topology *topology,
    const struct skr_declaration *declaration)
{
    for (size_t i = 0; i < topology->count; i++)
        if (is_same(&topology->declarations[i], declaration))
            return true;
    return false;
}

enum skr_code
skr_topology_add(struct skr_topology *topology,
                 const struct skr_declaration *declarations, size_t count,
                 struct skr_error *error)
{
    struct skr_declaration *all = skr_arena_take(
        &topology->arena, (topology->count + count + 1) * sizeof(*all));
    if (all == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < topology->count; i++)
        all[i] = topology->declarations[i];
    topology->declarations = all;
    for (size_t i = 0; i < count; i++)
        if (!has(topology, &declarations[i]))
            all[topology->count++] = declarations[i];
    return SKR_OK;
}

void
skr_topology_fini(struct skr_topology *topology)
{
    skr_arena_fini(&topology->arena);
    *topology = (struct skr_topology){0};
}

static json_t *
dump_arguments(const struct skr_declaration *declaration)
{
    json_t *arguments = json_object();
    for (size_t i = 0; i < declaration->argument_count; i++) {
        const struct skr_argument *argument = &declaration->arguments[i];
        json_t *value = NULL;
        switch (argument->kind) {
        case SKR_ARGUMENT_TEXT: value = json_string(argument->text); break;
        case SKR_ARGUMENT_NUMBER: value = json_integer(argument->number); break;
        case SKR_ARGUMENT_BOOLEAN:
            value = json_boolean(argument->number != 0);
            break;
        }
        if (json_object_set_new(arguments, argument->name, value) != 0) {
            json_decref(arguments);
            return NULL;
        }
    }
    return arguments;
}

static json_t *
dump_declaration(const struct skr_declaration *declaration, const char *vhost)
{
    json_t *arguments = dump_arguments(declaration);
    switch (declaration->kind) {
    case SKR_DECLARE_EXCHANGE:
        return json_pack("{ss ss ss sb sb sb so}", "name", declaration->name,
                         "vhost", vhost, "type", declaration->type, "durable",
                         declaration->durable, "auto_delete", 0, "internal", 0,
                         "arguments", arguments);
    case SKR_DECLARE_QUEUE:
        return json_pack("{ss ss sb sb so}", "name", declaration->name, "vhost",
                         vhost, "durable", declaration->durable, "auto_delete",
                         0, "arguments", arguments);
    case SKR_DECLARE_BINDING:
        return json_pack("{ss ss ss ss ss so}", "source", declaration->exchange,
                         "vhost", vhost, "destination", declaration->queue,
                         "destination_type", "queue", "routing_key",
                         declaration->binding_key, "arguments", arguments);
    }
    abort();
}

static bool
dump_site(const struct skr_site *site, json_t *root)
{
    static const char *const lists[] = {"exchanges", "queues", "bindings"};
    for (size_t i = 0; i < site->topology.count; i++) {
        const struct skr_declaration *declaration =
            &site->topology.declarations[i];
        json_t *list = json_object_get(root, lists[declaration->kind]);
        if (json_array_append_new(
                list, dump_declaration(declaration, site->vhost)) != 0)
            return false;
    }
    return true;
}

char *
skr_sites_dump(const struct skr_sites *sites)
{
    json_t *root =
        json_pack("{s[] s[] s[]}", "exchanges", "queues", "bindings");
    bool complete = root != NULL;
    for (size_t i = 0; complete && i < sites->count; i++)
        complete = dump_site(&sites->items[i], root);
    char *text = complete ? json_dumps(root, JSON_INDENT(4)) : NULL;
    json_decref(root);
    return text;
}
