// SPDX-License-Identifier: MIT
// Walks the tree along the table of keys.
#include "app/config/reader.h"

#include "app/drivers.h"
#include "base/nearest.h"
#include "base/url.h"

#include <stdlib.h>
#include <string.h>

static void
read_value(struct skr_config_reader *reader,
           const struct skr_config_place *place, struct skr_yaml_node *node);

static struct skr_config_place
place_below(struct skr_config_reader *reader,
            const struct skr_config_place *parent,
            const struct skr_yaml_entry *entry)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    const char *name = skr_config_excerpt(entry->key, excerpt);
    return (struct skr_config_place){
        .path = skr_config_text(reader, "%s%s%s", parent->path,
                                parent->path[0] == '\0' ? "" : ".", name),
        .line = entry->line,
        .target = parent->target,
    };
}

static bool
is_repeated(struct skr_config_reader *reader,
            const struct skr_config_place *parent,
            const struct skr_yaml_node *map, size_t index)
{
    const struct skr_yaml_entry *entry = &map->entries[index];
    const struct skr_yaml_entry *first = skr_yaml_find(map, entry->key);
    if (first == entry)
        return false;
    struct skr_config_place place = place_below(reader, parent, entry);
    skr_config_mistake(reader, &place, "stands twice, first in line %d",
                       first->line);
    return true;
}

// A key that has two places must not be given at both.
static bool
is_given_elsewhere(struct skr_config_reader *reader,
                   const struct skr_config_place *place)
{
    if (strchr(place->key->path, '*') != NULL)
        return false;
    struct skr_config_place *given =
        &reader->given[skr_config_key_index(place->key)];
    if (given->path != NULL) {
        skr_config_mistake(reader, place,
                           "is the same as %s, which is given in line %d",
                           given->path, given->line);
        return true;
    }
    *given = *place;
    return false;
}

static void
note_ignored(struct skr_config_reader *reader,
             const struct skr_config_place *place,
             const struct skr_yaml_node *node)
{
    bool empty = node->kind == SKR_YAML_NULL ||
                 (node->kind != SKR_YAML_TEXT && node->count == 0);
    if (empty || place->key->silent)
        return;
    if (reader->ignored.size == 0)
        reader->ignored_line = place->line;
    const char *dot = strchr(place->path, '.');
    skr_text_add_format(&reader->ignored, "%s%s",
                        reader->ignored.size == 0 ? "" : ", ",
                        dot == NULL ? place->path : dot + 1);
}

// Whether a key beside the parent has this name.
static bool
is_known_outside(const struct skr_config_key *parent, const char *name)
{
    size_t outside = parent == NULL
                         ? 0
                         : (size_t)(skr_config_key_name(parent) - parent->path);
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count && outside > 0; i++)
        if (strncmp(keys[i].path, parent->path, outside) == 0 &&
            strcmp(keys[i].path + outside, name) == 0)
            return keys[i].type != SKR_TYPE_IGNORED;
    return false;
}

static bool
is_offered(const struct skr_config_key *parent,
           const struct skr_config_key *key)
{
    return skr_config_is_child(parent, key) &&
           !skr_text_ends_with(key->path, "*") &&
           key->type != SKR_TYPE_IGNORED && !key->unoffered;
}

// what: "key" or "parameter", with a name that is not a child of parent.
static void
refuse_unknown(struct skr_config_reader *reader,
               const struct skr_config_place *place, const char *what,
               const struct skr_config_key *parent, const char *name)
{
    char all[256];
    int used = snprintf(all, sizeof(all), "known here:");
    struct skr_nearest nearest = {.name = name};
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_offered(parent, &keys[i]))
            continue;
        const char *known = skr_config_key_name(&keys[i]);
        skr_nearest_compare(&nearest, known, known);
        if (used > 0 && (size_t)used < sizeof(all))
            used += snprintf(all + used, sizeof(all) - (size_t)used, "%s %s",
                             all[used - 1] == ':' ? "" : ",", known);
    }
    if (is_known_outside(parent, name))
        skr_config_mistake(reader, place,
                           "unknown %s; it belongs beside '%s', not into it",
                           what, skr_config_key_name(parent));
    else if (nearest.meant != NULL)
        skr_config_mistake(reader, place, "unknown %s; did you mean '%s'?",
                           what, nearest.meant);
    else
        skr_config_mistake(reader, place, "unknown %s; %s", what, all);
}

static void
read_entry(struct skr_config_reader *reader,
           const struct skr_config_place *parent,
           const struct skr_yaml_entry *entry)
{
    struct skr_config_place place = place_below(reader, parent, entry);
    bool other_driver = reader->transport != NULL &&
                        reader->transport->kind == SKR_TRANSPORT_OTHER;
    place.key = skr_config_find_child(parent->key, entry->key, other_driver);
    if (place.key == NULL) {
        refuse_unknown(reader, &place, "key", parent->key, entry->key);
        return;
    }
    if (place.key->same_as != NULL)
        place.key = skr_config_find_key(place.key->same_as);
    if (place.key->type == SKR_TYPE_IGNORED)
        note_ignored(reader, &place, entry->value);
    else if (!is_given_elsewhere(reader, &place))
        read_value(reader, &place, entry->value);
}

static void
report_missing(struct skr_config_reader *reader,
               const struct skr_config_place *place,
               const struct skr_yaml_node *map)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++)
        if (keys[i].required && skr_config_is_child(place->key, &keys[i]) &&
            skr_yaml_find(map, skr_config_key_name(&keys[i])) == NULL)
            skr_config_mistake(reader, place, "the key '%s' is missing",
                               skr_config_key_name(&keys[i]));
}

static void
read_map(struct skr_config_reader *reader, const struct skr_config_place *place,
         const struct skr_yaml_node *node)
{
    if (node->kind != SKR_YAML_MAP && node->kind != SKR_YAML_NULL) {
        skr_config_refuse(reader, place, node);
        return;
    }
    for (size_t i = 0; i < node->count; i++)
        if (!is_repeated(reader, place, node, i))
            read_entry(reader, place, &node->entries[i]);
    if (place->key != NULL)
        report_missing(reader, place, node);
}

// A word that is # alone, as a route's pattern has it.
static bool
has_hash_word(const char *name)
{
    for (const char *at = name; (at = strchr(at, '#')) != NULL; at++)
        if ((at == name || at[-1] == '.') && (at[1] == '\0' || at[1] == '.'))
            return true;
    return false;
}

// The name or the type of a message, or a pattern of such.
static void
check_type(struct skr_config_reader *reader,
           const struct skr_config_place *place, const char *type,
           bool may_be_pattern)
{
    struct skr_error error;
    if (skr_type_check(type, &error) != SKR_OK)
        skr_config_mistake(reader, place, "%s", error.text);
    else if (!may_be_pattern && strchr(type, '*') != NULL)
        skr_config_mistake(reader, place,
                           "* stands for no name here: each type of a message "
                           "has one name; only handlers have patterns");
    else if (may_be_pattern && has_hash_word(type))
        skr_config_mistake(reader, place,
                           "'#' stands for itself; write * for any number of "
                           "characters");
}

static void
check_name(struct skr_config_reader *reader,
           const struct skr_config_place *place, enum skr_config_scope scope,
           const char *name)
{
    if (scope == SKR_SCOPE_NONE)
        return;
    if (scope == SKR_SCOPE_MESSAGE_TYPE || scope == SKR_SCOPE_HANDLER) {
        check_type(reader, place, name, scope == SKR_SCOPE_HANDLER);
        return;
    }
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (good == 0 || name[good] != '\0' || name[0] == '-')
        skr_config_mistake(reader, place,
                           "a name needs letters, digits, '_', '.' and '-', "
                           "and no '-' first");
}

static void
read_element(struct skr_config_reader *reader,
             const struct skr_config_place *parent,
             const struct skr_yaml_entry *entry, void *element)
{
    struct skr_config_place place = place_below(reader, parent, entry);
    enum skr_config_scope scope = parent->key->scope;
    place.key = skr_config_find_child(parent->key, entry->key, true);
    place.target = element;
    check_name(reader, &place, scope, entry->key);
    if (element != NULL)
        *(const char **)element = entry->key;
    if (scope == SKR_SCOPE_HANDLER) {
        ((struct skr_config_handler *)element)->line = entry->line;
        skr_config_set_defaults(reader, scope, SKR_TRANSPORT_OTHER, element);
    }
    read_value(reader, &place, entry->value);
    if (scope == SKR_SCOPE_MESSAGE_TYPE) {
        const struct skr_name_pair *pair = element;
        if (pair->class_name != NULL)
            check_type(reader, &place, pair->class_name, false);
    }
}

static void
read_names(struct skr_config_reader *reader,
           const struct skr_config_place *place,
           const struct skr_yaml_node *node)
{
    enum skr_config_scope scope = place->key->scope;
    char *elements = NULL;
    size_t *count = NULL;
    size_t size = 0;
    if (node->kind != SKR_YAML_MAP && node->kind != SKR_YAML_NULL) {
        skr_config_refuse(reader, place, node);
        return;
    }
    if (scope != SKR_SCOPE_NONE) {
        char *config = (char *)reader->config;
        const struct skr_config_collection *all = skr_config_collection(scope);
        size = all->size;
        elements = skr_config_take(reader, node->count, size);
        count = (size_t *)(config + all->count);
        if (elements == NULL)
            return;
        *(void **)(config + all->elements) = elements;
    }
    for (size_t i = 0; i < node->count; i++) {
        if (is_repeated(reader, place, node, i))
            continue;
        void *element = NULL;
        if (elements != NULL)
            element = elements + size * (*count)++;
        read_element(reader, place, &node->entries[i], element);
    }
}

static void
read_list(struct skr_config_reader *reader,
          const struct skr_config_place *place, struct skr_yaml_node *node)
{
    if (node->kind != SKR_YAML_LIST && node->kind != SKR_YAML_NULL) {
        skr_config_refuse(reader, place, node);
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        struct skr_config_place item = {
            .path = skr_config_text(reader, "%s[%zu]", place->path, i),
            .line = node->entries[i].line,
            .key = skr_config_find_child(place->key, "", true),
        };
        read_value(reader, &item, node->entries[i].value);
    }
}

static void
read_anything(struct skr_config_reader *reader,
              const struct skr_config_place *place, struct skr_yaml_node *node)
{
    if (node->kind == SKR_YAML_TEXT) {
        const char *filled = skr_config_fill(reader, place, node->text);
        node->is_plain &= filled == node->text;
        node->text = filled == NULL ? "" : filled;
    }
    for (size_t i = 0; i < node->count; i++)
        read_anything(reader, place, node->entries[i].value);
}

// An option of a broker's driver is kept as it is, and is of the type that the
// table has for it. One that is unknown is the driver's to tell of.
static void
check_option(struct skr_config_reader *reader,
             const struct skr_config_place *place,
             const struct skr_yaml_node *node)
{
    struct skr_config_transport *transport = reader->transport;
    const char *name = strrchr(place->path, '.');
    struct skr_config_place option = *place;
    option.key = transport == NULL || name == NULL
                     ? NULL
                     : skr_config_find_option(
                           skr_driver_family(transport->scheme), name + 1);
    if (option.key == NULL || option.key->type == SKR_TYPE_ANYTHING ||
        option.key->type == SKR_TYPE_IGNORED || node->kind == SKR_YAML_NULL)
        return;
    size_t before = reader->mistakes;
    if (node->kind != SKR_YAML_TEXT)
        skr_config_refuse(reader, &option, node);
    else
        skr_config_set(reader, &option, node->text, node->text);
    transport->has_wrong_option |= reader->mistakes > before;
}

static void
read_plain(struct skr_config_reader *reader,
           const struct skr_config_place *place, struct skr_yaml_node *node)
{
    const struct skr_config_key *key = place->key;
    if (node->kind == SKR_YAML_NULL && key->null == SKR_NULL_ABSENT)
        return;
    if (node->kind == SKR_YAML_NULL && key->null == SKR_NULL_EMPTY) {
        *(const char **)((char *)place->target + key->offset) = "";
        return;
    }
    if (node->kind != SKR_YAML_TEXT) {
        skr_config_refuse(reader, place, node);
        return;
    }
    const char *filled = skr_config_fill(reader, place, node->text);
    if (filled == NULL)
        return;
    skr_config_set(reader, place, filled, node->text);
    node->is_plain &= filled == node->text;
    node->text = filled;
    if (key->type == SKR_TYPE_DSN)
        skr_config_read_dsn(reader, place);
}

static void
read_item(struct skr_config_reader *reader,
          const struct skr_config_place *place,
          const struct skr_yaml_node *node, const char **item)
{
    // A mistake leaves a NULL, so that the others keep their numbers.
    if (node->kind == SKR_YAML_TEXT)
        *item = skr_config_fill(reader, place, node->text);
    else
        skr_config_refuse(reader, place, node);
}

// A text or a list of texts.
static void
read_texts(struct skr_config_reader *reader,
           const struct skr_config_place *place,
           const struct skr_yaml_node *node)
{
    bool is_list = node->kind == SKR_YAML_LIST;
    size_t count = is_list ? node->count : 1;
    const char **items = skr_config_take(reader, count, sizeof(*items));
    if (items == NULL)
        return;
    *(struct skr_config_texts *)((char *)place->target + place->key->offset) =
        (struct skr_config_texts){items, count};
    if (!is_list) {
        read_item(reader, place, node, items);
        return;
    }
    if (count == 0)
        skr_config_mistake(reader, place, "the list of %s is empty",
                           place->key->type == SKR_TYPE_SQL       ? "statements"
                           : place->key->type == SKR_TYPE_COMMAND ? "words"
                                                                  : "names");
    for (size_t i = 0; i < count; i++) {
        struct skr_config_place item = *place;
        item.path = skr_config_text(reader, "%s[%zu]", place->path, i);
        item.line = node->entries[i].line;
        read_item(reader, &item, node->entries[i].value, &items[i]);
    }
}

static void
read_parameter(struct skr_config_reader *reader,
               const struct skr_config_place *dsn,
               const struct skr_url_parameter *parameter)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    const struct skr_config_key *options =
        skr_config_find_key("transports.*.options");
    struct skr_config_place place = *dsn;
    place.path = skr_config_text(reader, "%s?%s", dsn->path,
                                 skr_config_excerpt(parameter->name, excerpt));
    place.key = skr_config_find_child(options, parameter->name, false);
    if (place.key == NULL || place.key->type == SKR_TYPE_MAP) {
        refuse_unknown(reader, &place, "parameter", options, parameter->name);
        return;
    }
    if (place.key->type == SKR_TYPE_IGNORED) {
        skr_config_warn(reader, &place, "ignored: it means nothing here");
        return;
    }
    if (place.key->same_as != NULL)
        place.key = skr_config_find_key(place.key->same_as);
    if (!skr_text_is_storable(parameter->value, strlen(parameter->value))) {
        skr_config_mistake(reader, &place, "the value is not UTF-8");
        return;
    }
    skr_config_set(reader, &place,
                   skr_config_text(reader, "%s", parameter->value), NULL);
}

// Those of a transport's DSN.
static void
read_parameters(struct skr_config_reader *reader,
                const struct skr_config_place *place)
{
    struct skr_config_transport *transport = place->target;
    struct skr_url url;
    struct skr_error ignored;
    if (transport->kind == SKR_TRANSPORT_OTHER ||
        skr_url_parse(transport->dsn, &url, &ignored) != SKR_OK)
        return;
    for (size_t i = 0; i < url.parameter_count; i++)
        read_parameter(reader, place, &url.parameters[i]);
    if (url.user != NULL || url.port != 0 ||
        (url.path != NULL && url.path[0] != '\0'))
        skr_config_mistake(reader, place,
                           "%s://DATABASE?... is needed: the name of a "
                           "database, without user, port or path",
                           transport->scheme);
    skr_url_fini(&url);
}

// The DSN is read first: its scheme decides about defaults and options.
static void
put_dsn_first(struct skr_yaml_node *map)
{
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->entries[i].key, "dsn") == 0) {
            struct skr_yaml_entry entry = map->entries[i];
            memmove(map->entries + 1, map->entries, i * sizeof(entry));
            map->entries[0] = entry;
            return;
        }
}

static void
read_transport(struct skr_config_reader *reader,
               const struct skr_config_place *place, struct skr_yaml_node *node)
{
    struct skr_config_transport *transport = place->target;
    struct skr_config_place dsn = *place;
    transport->source =
        (struct skr_config_source){.path = place->path, .line = place->line};
    transport->node = node;
    transport->kind = SKR_TRANSPORT_OTHER;
    transport->scheme = "";
    skr_config_set_defaults(reader, SKR_SCOPE_TRANSPORT, transport->kind,
                            transport);
    reader->transport = transport;
    switch (node->kind) {
    case SKR_YAML_TEXT:
        dsn.key = skr_config_find_key("transports.*.dsn");
        read_plain(reader, &dsn, node);
        break;
    case SKR_YAML_MAP:
        put_dsn_first(node);
        read_map(reader, place, node);
        dsn.path = skr_config_text(reader, "%s.dsn", place->path);
        if (node->count > 0)
            dsn.line = node->entries[0].line;
        break;
    case SKR_YAML_NULL:
    case SKR_YAML_LIST: skr_config_refuse(reader, place, node); break;
    }
    if (transport->dsn != NULL)
        read_parameters(reader, &dsn);
    reader->transport = NULL;
}

static void
read_value(struct skr_config_reader *reader,
           const struct skr_config_place *place, struct skr_yaml_node *node)
{
    switch (place->key->type) {
    case SKR_TYPE_MAP: read_map(reader, place, node); return;
    case SKR_TYPE_NAMES: read_names(reader, place, node); return;
    case SKR_TYPE_LIST: read_list(reader, place, node); return;
    case SKR_TYPE_TRANSPORT: read_transport(reader, place, node); return;
    case SKR_TYPE_SQL:
    case SKR_TYPE_COMMAND:
    case SKR_TYPE_VARIABLES: read_texts(reader, place, node); return;
    case SKR_TYPE_ANYTHING:
        read_anything(reader, place, node);
        if (place->key->other_only)
            check_option(reader, place, node);
        return;
    case SKR_TYPE_IGNORED: return;
    case SKR_TYPE_DSN:
    case SKR_TYPE_TEXT:
    case SKR_TYPE_CHOICE:
    case SKR_TYPE_TABLE:
    case SKR_TYPE_REFERENCE:
    case SKR_TYPE_NUMBER:
    case SKR_TYPE_SIZE:
    case SKR_TYPE_PORTS:
    case SKR_TYPE_DECIMAL:
    case SKR_TYPE_BOOLEAN: read_plain(reader, place, node); return;
    }
    abort();
}

// One warning a section, however much of it is ignored.
static void
warn_of_ignored(struct skr_config_reader *reader, const char *section)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    struct skr_config_place place = {
        .path = skr_config_excerpt(section, excerpt),
        .line = reader->ignored_line,
    };
    if (reader->ignored.size == 0)
        return;
    if (strcmp(reader->ignored.bytes, place.path) == 0)
        skr_config_warn(reader, &place, "ignored: it means nothing here");
    else
        skr_config_warn(reader, &place,
                        "ignored, since it means nothing "
                        "here: %s",
                        reader->ignored.bytes);
    skr_text_clear(&reader->ignored);
}

void
skr_config_read(struct skr_config_reader *reader, struct skr_yaml_node *root)
{
    struct skr_config_place top = {.path = "", .target = reader->config};
    top.line = root->line;
    reader->root = root;
    skr_config_set_defaults(reader, SKR_SCOPE_CONFIG, SKR_TRANSPORT_OTHER,
                            reader->config);
    if (root->kind != SKR_YAML_MAP) {
        skr_config_mistake(reader, &top,
                           "a map of keys such as 'transports:' is needed");
        return;
    }
    for (size_t i = 0; i < root->count; i++) {
        if (is_repeated(reader, &top, root, i))
            continue;
        read_entry(reader, &top, &root->entries[i]);
        warn_of_ignored(reader, root->entries[i].key);
    }
    const struct skr_yaml_entry *amqp =
        skr_yaml_find(root, "message_broker_amqp");
    if (amqp != NULL)
        reader->config->amqp = amqp->value;
}
