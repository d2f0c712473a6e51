// SPDX-License-Identifier: MIT
// Values of the plain types: from text into the structs.
#include "app/config/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void
refuse_text(struct skr_config_reader *reader,
            const struct skr_config_place *place, const char *needed,
            const char *shown)
{
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    if (shown == NULL)
        skr_config_mistake(reader, place, "%s is needed", needed);
    else if (shown[0] == '\0')
        skr_config_mistake(reader, place, "%s is needed, not an empty text",
                           needed);
    else
        skr_config_mistake(reader, place, "%s is needed, not text '%s'", needed,
                           skr_config_excerpt(shown, excerpt));
}

void
skr_config_refuse(struct skr_config_reader *reader,
                  const struct skr_config_place *place,
                  const struct skr_yaml_node *node)
{
    static const char *const others[] = {[SKR_YAML_NULL] = "nothing",
                                         [SKR_YAML_LIST] = "a list",
                                         [SKR_YAML_MAP] = "a map"};
    const char *needed = skr_config_types[place->key->type].needed;
    if (node->kind == SKR_YAML_TEXT)
        refuse_text(reader, place, needed, node->text);
    else
        skr_config_mistake(reader, place, "%s is needed, not %s", needed,
                           others[node->kind]);
}

static void
refuse_range(struct skr_config_reader *reader,
             const struct skr_config_place *place, const char *shown)
{
    const struct skr_config_key *key = place->key;
    const char *needed = skr_config_text(
        reader, "%s from %" PRId64 " to %" PRId64,
        key->type == SKR_TYPE_SIZE ? "a size"
                                   : skr_config_types[key->type].needed,
        key->least, key->most);
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    if (shown == NULL)
        skr_config_mistake(reader, place, "%s is needed", needed);
    else
        skr_config_mistake(reader, place, "%s is needed, not %s", needed,
                           skr_config_excerpt(shown, excerpt));
}

// False when it is no whole number; one beyond all bounds becomes the nearest.
static bool
parse_number(const char *text, int64_t *number, const char **end)
{
    char *stop = NULL;
    const char *digits = text[0] == '-' || text[0] == '+' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    *number = strtoll(text, &stop, 10);
    *end = stop;
    return true;
}

static bool
parse_size(const char *text, int64_t *size)
{
    static const struct {
        const char *unit;
        int64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", 1 << 10},
        {"MiB", 1 << 20},
        {"GiB", 1 << 30},
        {"kB", 1000},
        {"KB", 1000},
        {"MB", 1000 * 1000},
        {"GB", 1000 * 1000 * 1000},
    };
    const char *unit = NULL;
    int64_t count = 0;
    if (!parse_number(text, &count, &unit))
        return false;
    unit += strspn(unit, " ");
    for (size_t i = 0; i < SKR_COUNT_OF(units); i++)
        if (strcmp(unit, units[i].unit) == 0) {
            if (__builtin_mul_overflow(count, units[i].bytes, size))
                *size = INT64_MAX;
            return true;
        }
    return false;
}

static bool
parse_decimal(const char *text, double *number)
{
    // strtod() also takes hexadecimal, infinity and what the locale likes.
    if (text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    char *end = NULL;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*number);
}

static void *
address_of(const struct skr_config_place *place)
{
    return (char *)place->target + place->key->offset;
}

static void
set_number(struct skr_config_reader *reader,
           const struct skr_config_place *place, const char *text,
           const char *shown)
{
    const struct skr_config_key *key = place->key;
    const char *end = NULL;
    int64_t number = 0;
    bool good = key->type == SKR_TYPE_SIZE
                    ? parse_size(text, &number)
                    : parse_number(text, &number, &end) && *end == '\0';
    if (!good)
        refuse_text(reader, place, skr_config_types[key->type].needed, shown);
    else if (number < key->least || number > key->most)
        refuse_range(reader, place, shown);
    else if (key->scope != SKR_SCOPE_NONE && key->type == SKR_TYPE_SIZE)
        *(uint64_t *)address_of(place) = (uint64_t)number;
    else if (key->scope != SKR_SCOPE_NONE)
        *(uint32_t *)address_of(place) = (uint32_t)number;
}

static void
set_ports(struct skr_config_reader *reader,
          const struct skr_config_place *place, const char *text,
          const char *shown)
{
    struct skr_config_ports ports;
    if (skr_text_ports(text, &ports.first, &ports.last))
        *(struct skr_config_ports *)address_of(place) = ports;
    else
        refuse_text(reader, place, skr_config_types[SKR_TYPE_PORTS].needed,
                    shown);
}

static void
set_decimal(struct skr_config_reader *reader,
            const struct skr_config_place *place, const char *text,
            const char *shown)
{
    const struct skr_config_key *key = place->key;
    double number = 0;
    if (!parse_decimal(text, &number))
        refuse_text(reader, place, skr_config_types[key->type].needed, shown);
    else if (number < (double)key->least || number > (double)key->most)
        refuse_range(reader, place, shown);
    else if (key->scope != SKR_SCOPE_NONE)
        *(double *)address_of(place) = number;
}

static void
set_boolean(struct skr_config_reader *reader,
            const struct skr_config_place *place, const char *text,
            const char *shown)
{
    bool value = false;
    if (!skr_text_boolean(text, &value))
        refuse_text(reader, place, skr_config_types[SKR_TYPE_BOOLEAN].needed,
                    shown);
    else if (place->key->scope != SKR_SCOPE_NONE)
        *(bool *)address_of(place) = value;
}

static void
set_choice(struct skr_config_reader *reader,
           const struct skr_config_place *place, const char *text,
           const char *shown)
{
    const struct skr_config_key *key = place->key;
    unsigned value = 0;
    if (key->former != NULL && strcmp(text, key->former) == 0) {
        skr_config_warn(reader, place, "'%s' is read as '%s': write that", text,
                        key->read_as);
        text = key->read_as;
    }
    if (!skr_config_find_choice(key, text, &value))
        refuse_text(reader, place, key->choices, shown);
    else if (key->scope != SKR_SCOPE_NONE)
        *(unsigned *)address_of(place) = value;
}

static void
set_text(struct skr_config_reader *reader, const struct skr_config_place *place,
         const char *text, const char *shown)
{
    const struct skr_config_key *key = place->key;
    char excerpt[SKR_CONFIG_EXCERPT_SIZE];
    bool is_filled_in = shown != NULL && shown[0] != '\0';
    if (key->type == SKR_TYPE_TABLE && !skr_text_is_identifier(text))
        refuse_text(reader, place,
                    "a table name of letters, digits and underscores, 63 at "
                    "most and no digit first,",
                    shown);
    else if (text[0] == '\0' && key->scope != SKR_SCOPE_NONE)
        skr_config_mistake(reader, place, "%s is needed, not an empty text%s%s",
                           skr_config_types[key->type].needed,
                           is_filled_in ? ", which is what stands in " : "",
                           is_filled_in ? skr_config_excerpt(shown, excerpt)
                                        : "");
    else if (key->scope != SKR_SCOPE_NONE)
        *(const char **)address_of(place) = text;
}

void
skr_config_set(struct skr_config_reader *reader,
               const struct skr_config_place *place, const char *text,
               const char *shown)
{
    switch (place->key->type) {
    case SKR_TYPE_NUMBER:
    case SKR_TYPE_SIZE: set_number(reader, place, text, shown); return;
    case SKR_TYPE_PORTS: set_ports(reader, place, text, shown); return;
    case SKR_TYPE_DECIMAL: set_decimal(reader, place, text, shown); return;
    case SKR_TYPE_BOOLEAN: set_boolean(reader, place, text, shown); return;
    case SKR_TYPE_CHOICE: set_choice(reader, place, text, shown); return;
    case SKR_TYPE_DSN:
    case SKR_TYPE_TEXT:
    case SKR_TYPE_TABLE:
    case SKR_TYPE_REFERENCE: set_text(reader, place, text, shown); return;
    case SKR_TYPE_MAP:
    case SKR_TYPE_NAMES:
    case SKR_TYPE_LIST:
    case SKR_TYPE_TRANSPORT:
    case SKR_TYPE_SQL:
    case SKR_TYPE_COMMAND:
    case SKR_TYPE_VARIABLES:
    case SKR_TYPE_ANYTHING:
    case SKR_TYPE_IGNORED: break;
    }
    abort();
}

void
skr_config_set_defaults(struct skr_config_reader *reader,
                        enum skr_config_scope scope,
                        enum skr_transport_kind kind, void *target)
{
    size_t count = 0;
    const struct skr_config_key *keys = skr_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        const struct skr_config_key *key = &keys[i];
        const char *fallback = key->fallback;
        if (kind == SKR_TRANSPORT_QUEUE && key->for_queue != NULL)
            fallback = key->for_queue;
        if (kind != SKR_TRANSPORT_OUTBOX && key->for_inbound != NULL)
            fallback = key->for_inbound;
        if (key->scope != scope || fallback == NULL)
            continue;
        if (key->table_only && kind == SKR_TRANSPORT_OTHER)
            continue;
        struct skr_config_place place = {
            .path = key->path, .key = key, .target = target};
        skr_config_set(reader, &place, fallback, fallback);
    }
}
