// SPDX-License-Identifier: MIT
// The effective values, walked along the table of keys into one JSON tree that
// is printed as YAML or as JSON.
#include "app/config/config.h"

#include "app/config/keys.h"
#include "app/config/mask.h"
#include "app/config/yaml_print.h"
#include "app/config/yaml_tree.h"
#include "base/error.h"
#include "base/secret.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *
build_ports(const struct skr_config_ports *ports)
{
    if (ports->first == ports->last)
        return json_integer(ports->first);
    return json_sprintf("%u-%u", ports->first, ports->last);
}

static json_t *
build_value(const struct skr_config *config, const struct skr_config_key *key,
            const void *target);

// Takes the text.
static json_t *
own_text(char *text)
{
    json_t *value = text == NULL ? NULL : json_string(text);
    free(text);
    return value;
}

static json_t *
build_text(const struct skr_config *config, const char *text)
{
    return own_text(skr_config_mask(config, text));
}

// A value without a type of its own: what it looks like, where it would be
// written in no other way.
static json_t *
build_scalar(const struct skr_config *config, const struct skr_yaml_node *node)
{
    char canonical[32];
    long long number = strtoll(node->text, NULL, 10);
    snprintf(canonical, sizeof(canonical), "%lld", number);
    if (node->is_plain && strcmp(node->text, "true") == 0)
        return json_true();
    if (node->is_plain && strcmp(node->text, "false") == 0)
        return json_false();
    if (node->is_plain && strcmp(node->text, canonical) == 0)
        return json_integer(number);
    return build_text(config, node->text);
}

// Everything below a name that looks secret is.
static json_t *
build_node(const struct skr_config *config, const struct skr_yaml_node *node,
           bool is_secret)
{
    json_t *built = NULL;
    switch (node->kind) {
    case SKR_YAML_NULL: return json_null();
    case SKR_YAML_TEXT:
        return is_secret ? json_string("***") : build_scalar(config, node);
    case SKR_YAML_LIST:
        built = json_array();
        for (size_t i = 0; i < node->count; i++)
            json_array_append_new(
                built, build_node(config, node->entries[i].value, is_secret));
        return built;
    case SKR_YAML_MAP:
        built = json_object();
        for (size_t i = 0; i < node->count; i++) {
            const char *name = node->entries[i].key;
            json_object_set_new(
                built, name,
                build_node(config, node->entries[i].value,
                           is_secret ||
                               skr_secret_is_name(name, strlen(name))));
        }
        return built;
    }
    abort();
}

// Sections of others are not ours to show; their values are shown at the
// places that we have for them.
static bool
is_shown(const struct skr_config_key *key)
{
    return key->same_as == NULL && key->type != SKR_TYPE_IGNORED &&
           strcmp(key->path, "framework") != 0;
}

static json_t *
build_map(const struct skr_config *config, const struct skr_config_key *parent,
          const void *target)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    json_t *map = json_object();
    for (size_t i = 0; i < count; i++) {
        if (!skr_config_is_child(parent, &keys[i]) || !is_shown(&keys[i]))
            continue;
        json_t *value = build_value(config, &keys[i], target);
        if (value == NULL)
            continue;
        if (json_is_object(value) && json_object_size(value) == 0)
            json_decref(value);
        else
            json_object_set_new(map, skr_config_key_name(&keys[i]), value);
    }
    return map;
}

static json_t *
build_names(const struct skr_config *config, const struct skr_config_key *key)
{
    const struct skr_config_key *below = skr_config_find_child(key, "", true);
    const char *elements = NULL;
    size_t count = 0, size = 0;
    switch (key->scope) {
    case SKR_SCOPE_DATABASE:
        elements = (const char *)config->databases;
        count = config->database_count;
        size = sizeof(*config->databases);
        break;
    case SKR_SCOPE_TRANSPORT:
        elements = (const char *)config->transports;
        count = config->transport_count;
        size = sizeof(*config->transports);
        break;
    case SKR_SCOPE_MESSAGE_TYPE:
        elements = (const char *)config->message_types;
        count = config->message_type_count;
        size = sizeof(*config->message_types);
        break;
    case SKR_SCOPE_HANDLER:
        elements = (const char *)config->handlers;
        count = config->handler_count;
        size = sizeof(*config->handlers);
        break;
    case SKR_SCOPE_NONE:
    case SKR_SCOPE_CONFIG: break;
    }
    json_t *map = json_object();
    for (size_t i = 0; i < count; i++) {
        const char *const *element = (const char *const *)(elements + i * size);
        json_object_set_new(map, *element, build_value(config, below, element));
    }
    return map;
}

static json_t *
build_options(const struct skr_config *config, const struct skr_config_key *key,
              const struct skr_config_transport *transport)
{
    if (transport->kind != SKR_TRANSPORT_OTHER)
        return build_map(config, key, transport);
    const struct skr_yaml_entry *options =
        skr_yaml_find(transport->node, "options");
    return options == NULL ? NULL : build_node(config, options->value, false);
}

static json_t *
build_statements(const struct skr_config *config,
                 const struct skr_config_texts *sql)
{
    if (sql->count == 0)
        return NULL;
    if (sql->count == 1)
        return build_text(config, sql->items[0]);
    json_t *list = json_array();
    for (size_t i = 0; i < sql->count; i++)
        json_array_append_new(list, build_text(config, sql->items[i]));
    return list;
}

// Always a list: a word may hold a space.
static json_t *
build_words(const struct skr_config *config,
            const struct skr_config_texts *command)
{
    if (command->count == 0)
        return NULL;
    json_t *list = json_array();
    bool is_secret = false;
    for (size_t i = 0; i < command->count; i++)
        json_array_append_new(
            list, own_text(skr_config_mask_word(config, command->items[i],
                                                &is_secret)));
    return list;
}

static json_t *
build_plain_text(const struct skr_config *config,
                 const struct skr_config_key *key, const char *text)
{
    if (text == NULL)
        return NULL;
    if (text[0] == '\0' && key->null == SKR_NULL_EMPTY)
        return json_null();
    return build_text(config, text);
}

static json_t *
build_value(const struct skr_config *config, const struct skr_config_key *key,
            const void *target)
{
    const void *at = (const char *)target + key->offset;
    switch (key->type) {
    case SKR_TYPE_MAP:
        if (strcmp(key->path, "message_broker_amqp") == 0)
            return config->amqp ? build_node(config, config->amqp, false)
                                : NULL;
        if (strcmp(key->path, "transports.*.options") == 0)
            return build_options(config, key, target);
        return build_map(config, key, target);
    case SKR_TYPE_NAMES: return build_names(config, key);
    case SKR_TYPE_TRANSPORT: return build_map(config, key, target);
    case SKR_TYPE_DSN:
    case SKR_TYPE_TEXT:
    case SKR_TYPE_TABLE:
    case SKR_TYPE_REFERENCE:
        return build_plain_text(config, key, *(const char *const *)at);
    case SKR_TYPE_NUMBER: return json_integer(*(const uint32_t *)at);
    case SKR_TYPE_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case SKR_TYPE_PORTS: return build_ports(at);
    case SKR_TYPE_DECIMAL: return json_real(*(const double *)at);
    case SKR_TYPE_BOOLEAN: return json_boolean(*(const bool *)at);
    case SKR_TYPE_SQL: return build_statements(config, at);
    case SKR_TYPE_COMMAND: return build_words(config, at);
    case SKR_TYPE_VARIABLES: return build_words(config, at);
    case SKR_TYPE_LIST:
    case SKR_TYPE_ANYTHING:
    case SKR_TYPE_IGNORED: return NULL;
    }
    abort();
}

enum skr_code
skr_config_show(const struct skr_config *config, enum skr_config_format format,
                FILE *out, struct skr_error *error)
{
    json_t *tree = build_map(config, NULL, config);
    if (tree == NULL)
        return skr_fail_memory(error);
    switch (format) {
    case SKR_CONFIG_YAML: skr_yaml_print(tree, out); break;
    case SKR_CONFIG_JSON:
        json_dumpf(tree, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        fputc('\n', out);
        break;
    }
    json_decref(tree);
    if (fflush(out) != 0 || ferror(out))
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "the output cannot be written");
    return SKR_OK;
}
