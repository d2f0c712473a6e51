// SPDX-License-Identifier: MIT
// Copies libyaml's document into a tree in an arena, after checking its depth
// and its anchors event by event.

#include "app/config/yaml_tree.h"

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

static const char too_deep[] = "nested too deeply (32 levels at most)";
static const char too_many[] = "too many values, aliases counted each time "
                               "they are used (20000 at most)";

struct copying {
    yaml_document_t *document;
    struct skr_arena *arena;
    size_t nodes;
    int *line;
    struct skr_error *error;
};

static enum skr_code copy_node(struct copying *copying, int index, int depth,
                               struct skr_yaml_node **copied);

static int
line_of(yaml_mark_t mark)
{
    return (int)mark.line + 1;
}

static enum skr_code
refuse_at(yaml_mark_t mark, int *line, const char *text,
          struct skr_error *error)
{
    *line = line_of(mark);
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP, "%s", text);
}

static enum skr_code
refuse(struct copying *copying, const yaml_node_t *node, const char *text)
{
    return refuse_at(node->start_mark, copying->line, text, copying->error);
}

// What a plain text stands for as a value: nothing, which is NULL, or a boolean
// in the one way in which the rest of the program sees it, or itself.
static const char *
meaning_of(const char *plain)
{
    static const char *const words[][2] = {
        {"", NULL},       {"~", NULL},        {"null", NULL},
        {"Null", NULL},   {"NULL", NULL},     {"True", "true"},
        {"TRUE", "true"}, {"False", "false"}, {"FALSE", "false"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (strcmp(plain, words[i][0]) == 0)
            return words[i][1];
    return plain;
}

static enum skr_code
copy_scalar(struct copying *copying, const yaml_node_t *node, const char **text)
{
    const char *value = (const char *)node->data.scalar.value;
    size_t length = node->data.scalar.length;
    if (memchr(value, '\0', length) != NULL)
        return refuse(copying, node, "a text holds a zero byte");
    *text = skr_arena_text(copying->arena, value, length);
    return *text == NULL ? skr_fail_memory(copying->error) : SKR_OK;
}

static struct skr_yaml_entry *
take_entries(struct copying *copying, size_t count)
{
    return skr_arena_take(copying->arena,
                          count * sizeof(struct skr_yaml_entry));
}

static enum skr_code
copy_list(struct copying *copying, const yaml_node_t *node, int depth,
          struct skr_yaml_node *list)
{
    const yaml_node_item_t *items = node->data.sequence.items.start;
    size_t count = (size_t)(node->data.sequence.items.top - items);
    list->entries = take_entries(copying, count);
    if (list->entries == NULL)
        return skr_fail_memory(copying->error);
    for (size_t i = 0; i < count; i++) {
        struct skr_yaml_entry *entry = &list->entries[i];
        entry->key = NULL;
        enum skr_code code =
            copy_node(copying, items[i], depth + 1, &entry->value);
        if (code != SKR_OK)
            return code;
        entry->line = entry->value->line;
        list->count++;
    }
    return SKR_OK;
}

static bool
is_merge_key(const yaml_node_t *key)
{
    return key->type == YAML_SCALAR_NODE &&
           key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)key->data.scalar.value, "<<") == 0;
}

static enum skr_code
refuse_merge(struct copying *copying, int line)
{
    *copying->line = line;
    return skr_fail(copying->error, SKR_MALFORMED, SKR_GIVE_UP,
                    "<< needs a map or a list of maps, and stands once in a "
                    "map");
}

// Adds what the merged map has and the map itself does not.
static void
merge_map(const struct skr_yaml_node *merged, struct skr_yaml_node *map)
{
    for (size_t i = 0; i < merged->count; i++)
        if (skr_yaml_find(map, merged->entries[i].key) == NULL)
            map->entries[map->count++] = merged->entries[i];
}

static enum skr_code
merge_all(struct copying *copying, const yaml_node_pair_t *pair, int depth,
          struct skr_yaml_node *map)
{
    struct skr_yaml_node *merged = NULL;
    enum skr_code code = copy_node(copying, pair->value, depth + 1, &merged);
    if (code != SKR_OK)
        return code;
    struct skr_yaml_entry alone = {.value = merged};
    bool is_list = merged->kind == SKR_YAML_LIST;
    const struct skr_yaml_entry *maps = is_list ? merged->entries : &alone;
    size_t count = is_list ? merged->count : 1;
    size_t room = map->count;
    for (size_t i = 0; i < count; i++) {
        if (maps[i].value->kind != SKR_YAML_MAP)
            return refuse_merge(copying, merged->line);
        room += maps[i].value->count;
    }
    struct skr_yaml_entry *entries = take_entries(copying, room);
    if (entries == NULL)
        return skr_fail_memory(copying->error);
    if (map->count > 0)
        memcpy(entries, map->entries, map->count * sizeof(*entries));
    map->entries = entries;
    for (size_t i = 0; i < count; i++)
        merge_map(maps[i].value, map);
    return SKR_OK;
}

static enum skr_code
copy_pair(struct copying *copying, const yaml_node_pair_t *pair, int depth,
          struct skr_yaml_node *map)
{
    const yaml_node_t *key =
        yaml_document_get_node(copying->document, pair->key);
    if (key->type != YAML_SCALAR_NODE)
        return refuse(copying, key, "a key must be a text");
    struct skr_yaml_entry *entry = &map->entries[map->count];
    entry->line = line_of(key->start_mark);
    enum skr_code code = copy_scalar(copying, key, &entry->key);
    if (code == SKR_OK)
        code = copy_node(copying, pair->value, depth + 1, &entry->value);
    if (code == SKR_OK)
        map->count++;
    return code;
}

static enum skr_code
copy_map(struct copying *copying, const yaml_node_t *node, int depth,
         struct skr_yaml_node *map)
{
    const yaml_node_pair_t *pairs = node->data.mapping.pairs.start;
    size_t count = (size_t)(node->data.mapping.pairs.top - pairs);
    map->entries = take_entries(copying, count);
    if (map->entries == NULL)
        return skr_fail_memory(copying->error);
    const yaml_node_pair_t *merge = NULL;
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *key =
            yaml_document_get_node(copying->document, pairs[i].key);
        enum skr_code code = SKR_OK;
        if (!is_merge_key(key))
            code = copy_pair(copying, &pairs[i], depth, map);
        else if (merge == NULL)
            merge = &pairs[i];
        else
            code = refuse_merge(copying, line_of(key->start_mark));
        if (code != SKR_OK)
            return code;
    }
    // Last, because the map's own keys win wherever << stands.
    return merge == NULL ? SKR_OK : merge_all(copying, merge, depth, map);
}

static enum skr_code
copy_node(struct copying *copying, int index, int depth,
          struct skr_yaml_node **copied)
{
    const yaml_node_t *node = yaml_document_get_node(copying->document, index);
    if (depth > SKR_YAML_MAX_DEPTH)
        return refuse(copying, node, too_deep);
    if (++copying->nodes > SKR_YAML_MAX_NODES)
        return refuse(copying, node, too_many);
    struct skr_yaml_node *copy = skr_arena_take(copying->arena, sizeof(*copy));
    if (copy == NULL)
        return skr_fail_memory(copying->error);
    *copy = (struct skr_yaml_node){.line = line_of(node->start_mark)};
    *copied = copy;
    enum skr_code code = SKR_OK;
    switch (node->type) {
    case YAML_NO_NODE: return SKR_OK;
    case YAML_SCALAR_NODE:
        code = copy_scalar(copying, node, &copy->text);
        copy->is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (code == SKR_OK && copy->is_plain)
            copy->text = meaning_of(copy->text);
        copy->kind = copy->text == NULL ? SKR_YAML_NULL : SKR_YAML_TEXT;
        return code;
    case YAML_SEQUENCE_NODE:
        copy->kind = SKR_YAML_LIST;
        return copy_list(copying, node, depth, copy);
    case YAML_MAPPING_NODE:
        copy->kind = SKR_YAML_MAP;
        return copy_map(copying, node, depth, copy);
    }
    return SKR_OK;
}

struct input {
    const char *bytes;
    size_t size;
};

// Whether a tab stands before the first character of a line, counted from 0.
static bool
is_indented_by_tab(const struct input *input, size_t line)
{
    const char *at = input->bytes, *end = at + input->size;
    for (; line > 0 && at != NULL; line--) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at == NULL ? NULL : at + 1;
    }
    while (at != NULL && at < end && *at == ' ')
        at++;
    return at != NULL && at < end && *at == '\t';
}

// What is not closed shows where something else begins. A text that begins with
// %, @ or * is taken for something else than a text.
static enum skr_code
fail_syntax(const yaml_parser_t *parser, const char *problem,
            struct skr_error *error)
{
    char outside[120] = "";
    if (strstr(problem, "cannot start any token") != NULL ||
        strstr(problem, "alphabetic or numeric character") != NULL)
        snprintf(outside, sizeof(outside),
                 "; put quotes around a text that begins with such a sign");
    else if (parser->context != NULL &&
             parser->context_mark.line != parser->problem_mark.line)
        snprintf(outside, sizeof(outside), "; %.80s that begins in line %d",
                 parser->context, line_of(parser->context_mark));
    return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                    "not YAML: %s (column %zu)%s", problem,
                    parser->problem_mark.column + 1, outside);
}

static enum skr_code
fail_parser(const yaml_parser_t *parser, const struct input *input, int *line,
            struct skr_error *error)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return skr_fail_memory(error);
    const char *problem = parser->problem == NULL ? "?" : parser->problem;
    if (parser->error == YAML_READER_ERROR) {
        *line = line_of(parser->mark);
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "not YAML: %s at byte %zu", problem,
                        parser->problem_offset);
    }
    *line = line_of(parser->problem_mark);
    if (is_indented_by_tab(input, parser->problem_mark.line))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "not YAML: a tab is in the indentation; put blanks in "
                        "its place");
    return fail_syntax(parser, problem, error);
}

struct shape {
    size_t documents, nodes, open;
};

static enum skr_code
check_event(struct shape *shape, const yaml_event_t *event, int *line,
            struct skr_error *error)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++shape->documents > 1)
            return refuse_at(event->start_mark, line,
                             "a second document begins here; one file holds "
                             "one document",
                             error);
        return SKR_OK;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (++shape->open > SKR_YAML_MAX_DEPTH + 1)
            return refuse_at(event->start_mark, line, too_deep, error);
        shape->nodes++;
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: shape->open--; break;
    case YAML_SCALAR_EVENT:
    case YAML_ALIAS_EVENT: shape->nodes++; break;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT: break;
    }
    if (shape->nodes > SKR_YAML_MAX_NODES)
        return refuse_at(event->start_mark, line, too_many, error);
    return SKR_OK;
}

// Event by event, before a tree is built: the time that libyaml takes grows
// with the square of the depth and of the number of anchors, so that a small
// file could keep it busy for minutes.
static enum skr_code
check_shape(const struct input *input, int *line, struct skr_error *error)
{
    yaml_parser_t parser;
    struct shape shape = {0};
    if (!yaml_parser_initialize(&parser))
        return skr_fail_memory(error);
    yaml_parser_set_input_string(&parser, (const unsigned char *)input->bytes,
                                 input->size);
    enum skr_code code = SKR_OK;
    bool at_end = false;
    while (code == SKR_OK && !at_end) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            code = fail_parser(&parser, input, line, error);
            break;
        }
        at_end = event.type == YAML_STREAM_END_EVENT;
        code = check_event(&shape, &event, line, error);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return code;
}

enum skr_code
skr_yaml_parse(const char *bytes, size_t size, struct skr_arena *arena,
               struct skr_yaml_node **root, int *line, struct skr_error *error)
{
    struct copying copying = {.arena = arena, .line = line, .error = error};
    const struct input input = {.bytes = bytes, .size = size};
    yaml_parser_t parser;
    enum skr_code code = check_shape(&input, line, error);
    if (code != SKR_OK)
        return code;
    if (!yaml_parser_initialize(&parser))
        return skr_fail_memory(error);
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, size);
    yaml_document_t document;
    struct skr_yaml_node *copied = NULL;
    if (!yaml_parser_load(&parser, &document)) {
        code = fail_parser(&parser, &input, line, error);
        goto delete_parser;
    }
    copying.document = &document;
    if (yaml_document_get_root_node(&document) != NULL)
        code = copy_node(&copying, 1, 0, &copied);
    if (code == SKR_OK)
        *root = copied;
    yaml_document_delete(&document);
delete_parser:
    yaml_parser_delete(&parser);
    return code;
}

const struct skr_yaml_entry *
skr_yaml_find(const struct skr_yaml_node *node, const char *key)
{
    if (node == NULL || node->kind != SKR_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < node->count; i++)
        if (strcmp(node->entries[i].key, key) == 0)
            return &node->entries[i];
    return NULL;
}

const struct skr_yaml_node *
skr_yaml_value(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_entry *entry = skr_yaml_find(node, key);
    return entry == NULL ? NULL : entry->value;
}

const char *
skr_yaml_text(const struct skr_yaml_node *node, const char *key)
{
    const struct skr_yaml_node *value = skr_yaml_value(node, key);
    return value == NULL || value->kind != SKR_YAML_TEXT ? NULL : value->text;
}
