// SPDX-License-Identifier: MIT
// The effective values, walked along the table of keys into one tree that is
// printed as YAML, which reads back the same, or as JSON.
#include "app/config/config.h"

#include "app/config/keys.h"
#include "app/config/yaml_tree.h"
#include "base/error.h"
#include "base/secret.h"
#include "base/url.h"
#include "message/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#define MASK "***"

// What is shorter stands in too many places to be recognized.
enum { LEAST_VALUE = 4 };

// The value of the longest variable or file that the text begins with; 0: none.
static size_t
variable_size(const struct skr_config *config, const char *text)
{
    size_t longest = 0;
    // Values that stand in files of their own are taken for secrets.
    for (size_t i = 0; i < config->file_count; i++) {
        size_t size = strlen(config->files[i].text);
        if (size >= LEAST_VALUE && size > longest &&
            strncmp(text, config->files[i].text, size) == 0)
            longest = size;
    }
    for (size_t i = 0; i < config->variable_count; i++) {
        const char *name = config->variables[i];
        const char *value = getenv(name);
        size_t size = value == NULL ? 0 : strlen(value);
        if (size >= LEAST_VALUE && size > longest &&
            skr_secret_is_name(name, strlen(name)) &&
            strncmp(text, value, size) == 0)
            longest = size;
    }
    return longest;
}

static char *
mask_variables(const struct skr_config *config, const char *text)
{
    struct skr_text masked = {0};
    skr_text_add(&masked, "", 0);
    while (*text != '\0') {
        size_t size = variable_size(config, text);
        skr_text_add(&masked, size > 0 ? MASK : text,
                     size > 0 ? strlen(MASK) : 1);
        text += size > 0 ? size : 1;
    }
    return skr_text_take(&masked);
}

// A DSN may stand in any text, not only where one is expected.
char *
skr_config_mask(const struct skr_config *config, const char *text)
{
    if (skr_secret_is_key(text))
        return strdup(MASK);
    char *masked = mask_variables(config, text);
    if (masked == NULL || strstr(masked, "://") == NULL)
        return masked;
    char *dsn = skr_url_mask(masked);
    free(masked);
    return dsn;
}

struct showing {
    const struct skr_config *config;
    struct skr_arena arena;  // the tree
    struct skr_json unused;  // a value of it, once memory is out
    bool is_broken;
};

static struct skr_json *
build_value(struct showing *showing, const struct skr_config_key *key,
            const void *target);

static struct skr_json *
make(struct showing *showing, enum skr_json_kind kind, const char *text)
{
    struct skr_json *made = skr_arena_take(&showing->arena, sizeof(*made));
    bool has_text = text != NULL;
    size_t size = has_text ? strlen(text) : 0;
    if (has_text)
        text = skr_arena_text(&showing->arena, text, size);
    showing->is_broken |= made == NULL || (has_text && text == NULL);
    if (made == NULL)
        made = &showing->unused;
    *made = (struct skr_json){.kind = kind, .text = text, .text_size = size};
    return made;
}

static struct skr_json *
make_boolean(struct showing *showing, bool truth)
{
    struct skr_json *made = make(showing, SKR_JSON_BOOLEAN, NULL);
    made->truth = truth;
    return made;
}

static struct skr_json *
make_number(struct showing *showing, int64_t number)
{
    char digits[SKR_NUMBER_SIZE];
    snprintf(digits, sizeof(digits), "%" PRId64, number);
    return make(showing, SKR_JSON_NUMBER, digits);
}

static struct skr_json *
make_decimal(struct showing *showing, double number)
{
    char digits[SKR_NUMBER_SIZE];
    return skr_number_format(number, digits)
               ? make(showing, SKR_JSON_NUMBER, digits)
               : make(showing, SKR_JSON_NULL, NULL);
}

// name is borrowed; NULL in a list. Returns what is to follow the child.
static struct skr_json **
add(struct skr_json **end, const char *name, struct skr_json *child)
{
    if (child == NULL)
        return end;
    child->name = name;
    *end = child;
    return &child->next;
}

static struct skr_json *
build_ports(struct showing *showing, const struct skr_config_ports *ports)
{
    char range[24];
    snprintf(range, sizeof(range), "%u-%u", ports->first, ports->last);
    return ports->first == ports->last ? make_number(showing, ports->first)
                                       : make(showing, SKR_JSON_TEXT, range);
}

// Takes the text.
static struct skr_json *
own_text(struct showing *showing, char *text)
{
    struct skr_json *made = make(showing, SKR_JSON_TEXT, text);
    showing->is_broken |= text == NULL;
    free(text);
    return made;
}

static struct skr_json *
build_text(struct showing *showing, const char *text)
{
    return own_text(showing, skr_config_mask(showing->config, text));
}

// A value without a type of its own: what it looks like, where it would be
// written in no other way.
static struct skr_json *
build_scalar(struct showing *showing, const struct skr_yaml_node *node)
{
    char canonical[32];
    long long number = strtoll(node->text, NULL, 10);
    snprintf(canonical, sizeof(canonical), "%lld", number);
    bool is_true = strcmp(node->text, "true") == 0;
    if (node->is_plain && (is_true || strcmp(node->text, "false") == 0))
        return make_boolean(showing, is_true);
    if (node->is_plain && strcmp(node->text, canonical) == 0)
        return make_number(showing, number);
    return build_text(showing, node->text);
}

// Everything below a name that looks secret is.
static struct skr_json *
build_node(struct showing *showing, const struct skr_yaml_node *node,
           bool is_secret)
{
    if (node->kind == SKR_YAML_NULL)
        return make(showing, SKR_JSON_NULL, NULL);
    if (node->kind == SKR_YAML_TEXT)
        return is_secret ? make(showing, SKR_JSON_TEXT, MASK)
                         : build_scalar(showing, node);
    struct skr_json *built = make(
        showing, node->kind == SKR_YAML_LIST ? SKR_JSON_ARRAY : SKR_JSON_OBJECT,
        NULL);
    struct skr_json **end = &built->first;
    for (size_t i = 0; i < node->count; i++) {
        const char *name = node->entries[i].key;
        bool hides = is_secret ||
                     (name != NULL && skr_secret_is_name(name, strlen(name)));
        end =
            add(end, name, build_node(showing, node->entries[i].value, hides));
    }
    return built;
}

// Sections of others are not ours to show; their values are shown at the
// places that we have for them.
static bool
is_shown(const struct skr_config_key *key)
{
    return key->same_as == NULL && key->type != SKR_TYPE_IGNORED &&
           strcmp(key->path, "framework") != 0;
}

static struct skr_json *
build_map(struct showing *showing, const struct skr_config_key *parent,
          const void *target)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    struct skr_json *map = make(showing, SKR_JSON_OBJECT, NULL);
    struct skr_json **end = &map->first;
    for (size_t i = 0; i < count; i++) {
        if (!skr_config_is_child(parent, &keys[i]) || !is_shown(&keys[i]))
            continue;
        struct skr_json *value = build_value(showing, &keys[i], target);
        if (value != NULL &&
            (value->kind != SKR_JSON_OBJECT || value->first != NULL))
            end = add(end, skr_config_key_name(&keys[i]), value);
    }
    return map;
}

static struct skr_json *
build_names(struct showing *showing, const struct skr_config_key *key)
{
    const char *config = (const char *)showing->config;
    const struct skr_config_key *below = skr_config_find_child(key, "", true);
    const struct skr_config_collection *all = skr_config_collection(key->scope);
    const char *elements = *(const char *const *)(config + all->elements);
    size_t size = all->size;
    size_t count = size == 0 ? 0 : *(const size_t *)(config + all->count);
    struct skr_json *map = make(showing, SKR_JSON_OBJECT, NULL);
    struct skr_json **end = &map->first;
    for (size_t i = 0; i < count; i++) {
        const char *const *element = (const char *const *)(elements + i * size);
        end = add(end, *element, build_value(showing, below, element));
    }
    return map;
}

static struct skr_json *
build_options(struct showing *showing, const struct skr_config_key *key,
              const struct skr_config_transport *transport)
{
    if (transport->kind != SKR_TRANSPORT_OTHER)
        return build_map(showing, key, transport);
    const struct skr_yaml_entry *options =
        skr_yaml_find(transport->node, "options");
    return options == NULL ? NULL : build_node(showing, options->value, false);
}

static struct skr_json *
build_statements(struct showing *showing, const struct skr_config_texts *sql)
{
    if (sql->count == 0)
        return NULL;
    if (sql->count == 1)
        return build_text(showing, sql->items[0]);
    struct skr_json *list = make(showing, SKR_JSON_ARRAY, NULL);
    struct skr_json **end = &list->first;
    for (size_t i = 0; i < sql->count; i++)
        end = add(end, NULL, build_text(showing, sql->items[i]));
    return list;
}

#define BLANKS " \t\r\n;"

// Bytes of a value at text: up to a blank, or to the quote that it begins with.
static size_t
value_size(const char *text)
{
    if (*text != '"' && *text != '\'')
        return strcspn(text, BLANKS "\"'");
    const char *end = strchr(text + 1, *text);
    return end == NULL ? strlen(text) : (size_t)(end + 1 - text);
}

// One piece of a word, without blanks; what follows it may be its value.
static size_t
add_piece(struct skr_text *masked, const char *text, bool *is_next)
{
    size_t size = strcspn(text, BLANKS "\"'");
    size_t dashes = strspn(text, "-");
    size_t name = strcspn(text, "=" BLANKS "\"'");
    if (*is_next) {
        *is_next = false;
        skr_text_add_string(masked, MASK);
        return value_size(text);
    }
    bool is_secret =
        name > dashes && skr_secret_is_name(text + dashes, name - dashes);
    if (!is_secret || (text[name] != '=' && dashes == 0)) {
        // A quote alone is a piece as well.
        size = size == 0 ? 1 : size;
        skr_text_add(masked, text, size);
        return size;
    }
    if (text[name] != '=') {
        *is_next = true;
        skr_text_add(masked, text, name);
        return name;
    }
    skr_text_add(masked, text, name + 1);
    skr_text_add_string(masked, MASK);
    return name + 1 + value_size(text + name + 1);
}

// A word of a command as it may be seen: "--password=..." and "PASSWORD=..."
// stand for secrets too. *is_next: whether the next word is one, as after
// "--password"; false before the first.
static char *
mask_word(const struct skr_config *config, const char *word, bool *is_next)
{
    struct skr_text masked = {0};
    skr_text_add(&masked, "", 0);
    while (*word != '\0') {
        size_t blanks = strspn(word, BLANKS);
        skr_text_add(&masked, word, blanks);
        word += blanks;
        if (*word != '\0')
            word += add_piece(&masked, word, is_next);
    }
    char *text = skr_text_take(&masked);
    char *shown = text == NULL ? NULL : skr_config_mask(config, text);
    free(text);
    return shown;
}

// Always a list: a word may hold a space.
static struct skr_json *
build_words(struct showing *showing, const struct skr_config_texts *command)
{
    if (command->count == 0)
        return NULL;
    bool is_secret = false;
    struct skr_json *list = make(showing, SKR_JSON_ARRAY, NULL);
    struct skr_json **end = &list->first;
    for (size_t i = 0; i < command->count; i++)
        end = add(end, NULL,
                  own_text(showing, mask_word(showing->config,
                                              command->items[i], &is_secret)));
    return list;
}

static struct skr_json *
build_plain_text(struct showing *showing, const struct skr_config_key *key,
                 const char *text)
{
    if (text == NULL)
        return NULL;
    if (text[0] == '\0' && key->null == SKR_NULL_EMPTY)
        return make(showing, SKR_JSON_NULL, NULL);
    return build_text(showing, text);
}

static struct skr_json *
build_value(struct showing *showing, const struct skr_config_key *key,
            const void *target)
{
    const void *at = (const char *)target + key->offset;
    char word[SKR_CHOICE_SIZE];
    switch (key->type) {
    case SKR_TYPE_MAP:
        if (strcmp(key->path, "message_broker_amqp") == 0)
            return showing->config->amqp == NULL
                       ? NULL
                       : build_node(showing, showing->config->amqp, false);
        if (strcmp(key->path, "transports.*.options") == 0)
            return build_options(showing, key, target);
        return build_map(showing, key, target);
    case SKR_TYPE_NAMES: return build_names(showing, key);
    case SKR_TYPE_TRANSPORT: return build_map(showing, key, target);
    case SKR_TYPE_DSN:
    case SKR_TYPE_TEXT:
    case SKR_TYPE_TABLE:
    case SKR_TYPE_REFERENCE:
        return build_plain_text(showing, key, *(const char *const *)at);
    case SKR_TYPE_CHOICE:
        return make(showing, SKR_JSON_TEXT,
                    skr_config_choice_word(key, *(const unsigned *)at, word));
    case SKR_TYPE_NUMBER: return make_number(showing, *(const uint32_t *)at);
    case SKR_TYPE_SIZE:
        return make_number(showing, (int64_t) * (const uint64_t *)at);
    case SKR_TYPE_PORTS: return build_ports(showing, at);
    case SKR_TYPE_DECIMAL: return make_decimal(showing, *(const double *)at);
    case SKR_TYPE_BOOLEAN: return make_boolean(showing, *(const bool *)at);
    case SKR_TYPE_SQL: return build_statements(showing, at);
    case SKR_TYPE_COMMAND: return build_words(showing, at);
    case SKR_TYPE_VARIABLES: return build_words(showing, at);
    case SKR_TYPE_LIST:
    case SKR_TYPE_ANYTHING:
    case SKR_TYPE_IGNORED: return NULL;
    }
    abort();
}

// A plain text that the reader of a value without a type takes for a text.
static bool
is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on",
                                        "off",  "null",  "y",   "n"};
    static const char good[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-@";
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    return text[0] != '\0' && strspn(text, "0123456789./-@") == 0 &&
           text[strspn(text, good)] == '\0';
}

// Other line breaks than \n become one where they are not escaped.
static bool
has_other_break(const char *text)
{
    return strchr(text, '\r') != NULL || strstr(text, "\xc2\x85") != NULL ||
           strstr(text, "\xe2\x80\xa8") != NULL ||
           strstr(text, "\xe2\x80\xa9") != NULL;
}

// The emitter takes double quotes where a style cannot hold the text.
static bool
emit_scalar(yaml_emitter_t *emitter, const struct skr_text *text, bool is_text)
{
    yaml_event_t event;
    yaml_scalar_style_t style = YAML_SINGLE_QUOTED_SCALAR_STYLE;
    if (!is_text || is_plain(text->bytes))
        style = YAML_PLAIN_SCALAR_STYLE;
    else if (has_other_break(text->bytes))
        style = YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    else if (strchr(text->bytes, '\n') != NULL)
        style = YAML_LITERAL_SCALAR_STYLE;
    return !text->broken &&
           yaml_scalar_event_initialize(&event, NULL, NULL,
                                        (yaml_char_t *)text->bytes,
                                        (int)text->size, 1, 1, style) &&
           yaml_emitter_emit(emitter, &event);
}

// A % that would begin something for the reader is doubled.
static bool
emit_text(yaml_emitter_t *emitter, const char *text)
{
    struct skr_text escaped = {0};
    skr_text_add(&escaped, "", 0);
    for (; *text != '\0'; text++) {
        if (text[0] == '%' &&
            (text[1] == '%' || skr_text_starts_with(text, "%env(") ||
             skr_text_starts_with(text, "%kernel.project_dir%")))
            skr_text_add(&escaped, "%", 1);
        skr_text_add(&escaped, text, 1);
    }
    bool is_good = emit_scalar(emitter, &escaped, true);
    skr_text_fini(&escaped);
    return is_good;
}

// What is no text of ours to free.
static bool
emit_plain(yaml_emitter_t *emitter, const char *text, bool is_text)
{
    const struct skr_text plain = {.bytes = (char *)(uintptr_t)text,
                                   .size = strlen(text)};
    return emit_scalar(emitter, &plain, is_text);
}

static bool
emit(yaml_emitter_t *emitter, const struct skr_json *json)
{
    yaml_event_t event;
    bool is_object = json->kind == SKR_JSON_OBJECT;
    switch (json->kind) {
    case SKR_JSON_NULL: return emit_plain(emitter, "null", false);
    case SKR_JSON_BOOLEAN:
        return emit_plain(emitter, json->truth ? "true" : "false", false);
    case SKR_JSON_NUMBER: return emit_plain(emitter, json->text, false);
    case SKR_JSON_TEXT: return emit_text(emitter, json->text);
    case SKR_JSON_ARRAY:
    case SKR_JSON_OBJECT: break;
    }
    bool is_good = is_object
                       ? yaml_mapping_start_event_initialize(
                             &event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE)
                       : yaml_sequence_start_event_initialize(
                             &event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE);
    is_good = is_good && yaml_emitter_emit(emitter, &event);
    // Names are not filled in, so that a % in one stands for itself.
    for (const struct skr_json *child = json->first; is_good && child != NULL;
         child = child->next)
        is_good = (!is_object || emit_plain(emitter, child->name, true)) &&
                  emit(emitter, child);
    if (!is_good)
        return false;
    is_good = is_object ? yaml_mapping_end_event_initialize(&event)
                        : yaml_sequence_end_event_initialize(&event);
    return is_good && yaml_emitter_emit(emitter, &event);
}

// False: memory is out, or out cannot be written.
static bool
print_yaml(const struct skr_json *tree, FILE *out)
{
    yaml_emitter_t emitter;
    yaml_event_t event;
    if (!yaml_emitter_initialize(&emitter))
        return false;
    yaml_emitter_set_output_file(&emitter, out);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    bool is_good =
        yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) &&
        yaml_emitter_emit(&emitter, &event) &&
        yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) &&
        yaml_emitter_emit(&emitter, &event) && emit(&emitter, tree) &&
        yaml_document_end_event_initialize(&event, 1) &&
        yaml_emitter_emit(&emitter, &event) &&
        yaml_stream_end_event_initialize(&event) &&
        yaml_emitter_emit(&emitter, &event);
    yaml_emitter_delete(&emitter);
    return is_good;
}

static bool
print_json(const struct skr_json *tree, FILE *out)
{
    struct skr_json_writer writer = {.indent = 2};
    skr_json_write(&writer, tree);
    bool is_good = writer.error.code == SKR_OK && !writer.text.broken;
    if (is_good)
        fprintf(out, "%s\n", writer.text.bytes);
    skr_text_fini(&writer.text);
    return is_good;
}

enum skr_code
skr_config_show(const struct skr_config *config, enum skr_config_format format,
                FILE *out, struct skr_error *error)
{
    struct showing showing = {.config = config};
    const struct skr_json *tree = build_map(&showing, NULL, config);
    bool is_good = !showing.is_broken &&
                   (format == SKR_CONFIG_YAML ? print_yaml(tree, out)
                                              : print_json(tree, out));
    skr_arena_fini(&showing.arena);
    // Output that cannot be written is told of by the one who flushes it.
    return is_good || ferror(out) ? SKR_OK : skr_fail_memory(error);
}
