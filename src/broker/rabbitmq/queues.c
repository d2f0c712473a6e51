// SPDX-License-Identifier: MIT
// Which queues a DSN names, in each of the ways that are in use:
//
//   queues=orders,returns      queue=orders      queue[name]=orders
//   queues[orders]=            queues[0]=orders
//   queues[orders][binding_keys][0]=order.placed
//   queues[orders][arguments][x-queue-type]=quorum
//   queues[orders][binding_arguments][x-match]=any
//   queues[orders][flags]=2
//
// Of these a consumer may want some alone: only=orders, once for each.
//
// The bracketed ones are how PHP writes a map, and Symfony its options.

#include "broker/rabbitmq/settings.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <string.h>

enum { DURABLE_FLAG = 2, MOST_FLAGS = 65535 };

static const char *const numeric_arguments[] = {SKR_NUMERIC_ARGUMENTS};

static enum skr_code
find_queue(struct rabbit_settings *settings, const char *name, size_t size,
           struct rabbit_queue **queue, struct skr_error *error)
{
    for (size_t i = 0; i < settings->queue_count; i++)
        if (strlen(settings->queues[i].name) == size &&
            memcmp(settings->queues[i].name, name, size) == 0) {
            *queue = &settings->queues[i];
            return SKR_OK;
        }
    if (size == 0 || size > UINT8_MAX)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names a queue of %zu bytes; from 1 to %d are "
                        "needed",
                        size, UINT8_MAX);
    struct rabbit_queue *queues = skr_arena_grow(
        &settings->arena, settings->queues, settings->queue_count,
        &settings->queue_capacity, sizeof(*queues));
    const char *copy = skr_arena_text(&settings->arena, name, size);
    if (queues == NULL || copy == NULL)
        return skr_fail_memory(error);
    settings->queues = queues;
    *queue = &queues[settings->queue_count++];
    **queue = (struct rabbit_queue){.name = copy};
    return SKR_OK;
}

static enum skr_code
add_argument(struct rabbit_settings *settings,
             struct rabbit_arguments *arguments, const char *name, size_t size,
             const char *value, struct skr_error *error)
{
    struct skr_argument *items =
        skr_arena_grow(&settings->arena, arguments->items, arguments->count,
                       &arguments->capacity, sizeof(*items));
    struct skr_argument argument = {
        .kind = SKR_ARGUMENT_TEXT,
        .name = skr_arena_text(&settings->arena, name, size),
        .text = skr_arena_text(&settings->arena, value, strlen(value)),
    };
    if (items == NULL || argument.name == NULL || argument.text == NULL)
        return skr_fail_memory(error);
    if (skr_text_is_among(argument.name, numeric_arguments,
                          SKR_COUNT_OF(numeric_arguments))) {
        if (!skr_text_number(value, 0, INT64_MAX, &argument.number))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "argument %s in the DSN: a whole number is "
                            "needed, not '%.60s'",
                            argument.name, value);
        argument.kind = SKR_ARGUMENT_NUMBER;
    }
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        argument.kind = SKR_ARGUMENT_BOOLEAN;
        argument.number = strcmp(value, "true") == 0;
    }
    arguments->items = items;
    items[arguments->count++] = argument;
    return SKR_OK;
}

static enum skr_code
add_key(struct rabbit_settings *settings, struct rabbit_queue *queue,
        const char *key, struct skr_error *error)
{
    const char **keys =
        skr_arena_grow(&settings->arena, queue->binding_keys, queue->key_count,
                       &queue->key_capacity, sizeof(*keys));
    const char *copy = skr_arena_text(&settings->arena, key, strlen(key));
    if (keys == NULL || copy == NULL)
        return skr_fail_memory(error);
    queue->binding_keys = keys;
    keys[queue->key_count++] = copy;
    return SKR_OK;
}

// "[inside]..." at *at; false when there is none.
static bool
take_bracket(const char **at, const char **inside, size_t *size)
{
    const char *end = **at == '[' ? strchr(*at, ']') : NULL;
    if (end == NULL)
        return false;
    *inside = *at + 1;
    *size = (size_t)(end - *inside);
    *at = end + 1;
    return true;
}

static bool
is_word(const char *text, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(text, word, size) == 0;
}

static enum skr_code
refuse(const struct skr_url_parameter *parameter, struct skr_error *error)
{
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%.100s in the DSN is not understood", parameter->name);
}

// What stands behind queues[NAME].
static enum skr_code
read_option(struct rabbit_settings *settings, struct rabbit_queue *queue,
            const char *at, const struct skr_url_parameter *parameter,
            struct skr_error *error)
{
    const char *option = NULL, *name = NULL;
    size_t option_size = 0, name_size = 0;
    int64_t flags = 0;
    if (!take_bracket(&at, &option, &option_size))
        return refuse(parameter, error);
    bool has_name = take_bracket(&at, &name, &name_size);
    if (is_word(option, option_size, "binding_keys"))
        return add_key(settings, queue, parameter->value, error);
    if (has_name && is_word(option, option_size, "arguments"))
        return add_argument(settings, &queue->arguments, name, name_size,
                            parameter->value, error);
    if (has_name && is_word(option, option_size, "binding_arguments"))
        return add_argument(settings, &queue->binding_arguments, name,
                            name_size, parameter->value, error);
    if (is_word(option, option_size, "flags") &&
        skr_text_number(parameter->value, 0, MOST_FLAGS, &flags)) {
        queue->is_transient = (flags & DURABLE_FLAG) == 0;
        return SKR_OK;
    }
    // An empty list or map.
    if (!has_name && parameter->value[0] == '\0')
        return SKR_OK;
    return refuse(parameter, error);
}

static enum skr_code
read_queue(struct rabbit_settings *settings,
           const struct skr_url_parameter *parameter, struct skr_error *error)
{
    const char *at = parameter->name + strlen("queues");
    const char *name = NULL;
    size_t size = 0;
    struct rabbit_queue *queue = NULL;
    if (!take_bracket(&at, &name, &size))
        return refuse(parameter, error);
    // The place in a list is no name.
    if (*at == '\0' && parameter->value[0] != '\0') {
        name = parameter->value;
        size = strlen(name);
    }
    enum skr_code code = find_queue(settings, name, size, &queue, error);
    if (code != SKR_OK || *at == '\0')
        return code;
    return read_option(settings, queue, at, parameter, error);
}

static enum skr_code
read_list(struct rabbit_settings *settings, const char *list,
          struct skr_error *error)
{
    struct rabbit_queue *queue = NULL;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && *list != '\0') {
        size_t size = strcspn(list, ",");
        code = find_queue(settings, list, size, &queue, error);
        list += size;
        list += *list == ',';
    }
    return code;
}

static enum skr_code
read_delay(const struct skr_url *url, struct rabbit_settings *settings,
           struct skr_error *error)
{
    static const char group[] = "delay[arguments]";
    const char *exchange = skr_rabbit_find_last(url, "delay[exchange_name]");
    const char *pattern =
        skr_rabbit_find_last(url, "delay[queue_name_pattern]");
    if (exchange == NULL)
        exchange = "delays";
    if (pattern == NULL)
        pattern = "delay_%exchange_name%_%routing_key%_%delay%";
    settings->delay_exchange =
        skr_arena_text(&settings->arena, exchange, strlen(exchange));
    settings->delay_queue_pattern =
        skr_arena_text(&settings->arena, pattern, strlen(pattern));
    if (settings->delay_exchange == NULL ||
        settings->delay_queue_pattern == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const char *at = url->parameters[i].name, *name = NULL;
        size_t size = 0;
        if (!skr_text_starts_with(at, group))
            continue;
        at += sizeof(group) - 1;
        if (take_bracket(&at, &name, &size))
            code = add_argument(settings, &settings->delay_arguments, name,
                                size, url->parameters[i].value, error);
    }
    return code;
}

static bool
is_wanted(const struct skr_url *url, const char *name)
{
    bool has_choice = false;
    for (size_t i = 0; i < url->parameter_count; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        if (strcmp(parameter->name, "only") != 0)
            continue;
        if (strcmp(parameter->value, name) == 0)
            return true;
        has_choice = true;
    }
    return !has_choice;
}

static enum skr_code
choose(const struct skr_url *url, struct rabbit_settings *settings,
       struct skr_error *error)
{
    struct rabbit_queue *found = NULL;
    size_t all = settings->queue_count, kept = 0;
    for (size_t i = 0; i < url->parameter_count; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        if (strcmp(parameter->name, "only") != 0)
            continue;
        enum skr_code code =
            find_queue(settings, parameter->value, strlen(parameter->value),
                       &found, error);
        if (code != SKR_OK)
            return code;
        if (settings->queue_count > all)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the transport has no queue %.80s",
                            parameter->value);
    }
    for (size_t i = 0; i < all; i++)
        if (is_wanted(url, settings->queues[i].name))
            settings->queues[kept++] = settings->queues[i];
    settings->queue_count = kept;
    return SKR_OK;
}

enum skr_code
skr_rabbit_queues_read(const struct skr_url *url,
                       struct rabbit_settings *settings,
                       struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        if (strcmp(parameter->name, "queues") == 0 ||
            strcmp(parameter->name, "queue") == 0 ||
            strcmp(parameter->name, "queue[name]") == 0)
            code = read_list(settings, parameter->value, error);
        else if (skr_text_starts_with(parameter->name, "queues["))
            code = read_queue(settings, parameter, error);
    }
    settings->names_queues = settings->queue_count > 0;
    // As Symfony has it: a queue of the exchange's name.
    if (code == SKR_OK && settings->queue_count == 0) {
        const char *name = settings->exchange;
        struct rabbit_queue *queue = NULL;
        if (name == NULL || name[0] == '\0' || strlen(name) > UINT8_MAX)
            name = SKR_DEFAULT_EXCHANGE;
        code = find_queue(settings, name, strlen(name), &queue, error);
    }
    if (code == SKR_OK)
        code = choose(url, settings, error);
    return code == SKR_OK ? read_delay(url, settings, error) : code;
}
