// SPDX-License-Identifier: MIT
// Reads an amqp:// DSN in Symfony's form, with its options as parameters.
//
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

#include "broker/rabbitmq/options.h"

#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { DURABLE_FLAG = 2, MOST_FLAGS = 65535 };

enum {
    PLAIN_PORT = 5672,
    TLS_PORT = 5671,
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_CONFIRM_MS = 25000,
    DEFAULT_HOLD_MS = 300000,
    DEFAULT_HEARTBEAT_MS = 30000,
    MOST_MS = 3600000,
    MOST_PREFETCH = 65535,  // a short in the protocol
    DEFAULT_PREFETCH_BYTES = 16 * 1024 * 1024,
};

// Half of what a machine of 32 bits can address.
#define MOST_PREFETCH_BYTES \
    (SIZE_MAX > UINT32_MAX ? INT64_C(1) << 40 : INT64_C(1) << 31)

#define AT(field) .place = offsetof(struct rabbit_options, field)

// Ours, and Symfony's, of which some concern its own client library.
static const struct skr_url_option known[] = {
    {"auto_setup", SKR_URL_BOOLEAN, AT(auto_setup)},
    {"cacert", SKR_URL_TEXT, AT(connection.tls.cacert)},
    {"cert", SKR_URL_TEXT, AT(connection.tls.cert)},
    {.name = "channel_max"},
    {"confirm_timeout", SKR_URL_SECONDS, AT(confirm_timeout_ms), .least = 100,
     .most = MOST_MS},
    {"connect_timeout", SKR_URL_SECONDS, AT(connection.connect_timeout_ms),
     .least = 100, .most = MOST_MS},
    {"connection_name", SKR_URL_TEXT, AT(connection.connection_name)},
    {.name = "defaults"},
    {.name = "delay[arguments]["},
    {"delay[exchange_name]", SKR_URL_TEXT, AT(delay_exchange)},
    {"delay[queue_name_pattern]", SKR_URL_TEXT, AT(delay_queue_pattern)},
    {.name = "exchange[arguments]["},
    {.name = "exchange[default_publish_routing_key]"},
    {.name = "exchange[flags]"},
    {"exchange[name]", SKR_URL_TEXT, AT(topology.exchange)},
    {"exchange[type]", SKR_URL_TEXT, AT(topology.exchange_type)},
    {.name = "frame_max"},
    {"heartbeat", SKR_URL_SECONDS, AT(heartbeat_ms), .least = 0,
     .most = MOST_MS},
    {"hold_timeout", SKR_URL_SECONDS, AT(hold_timeout_ms), .least = 100,
     .most = MOST_MS},
    {"key", SKR_URL_TEXT, AT(connection.tls.key)},
    {.name = "only"},
    {.name = "persistent"},
    {"prefetch_bytes", SKR_URL_NUMBER, AT(prefetch_bytes), .least = 1,
     .most = MOST_PREFETCH_BYTES},
    {"prefetch_count", SKR_URL_NUMBER, AT(prefetch_count), .least = 1,
     .most = MOST_PREFETCH},
    {.name = "queue"},
    {.name = "queue[name]"},
    {.name = "queues"},
    {.name = "queues["},
    {.name = "read_timeout"},
    {"retry_via", SKR_URL_CHOICE, AT(delays), .words = {"row", "delay_queue"}},
    {.name = "rpc_timeout"},
    {.name = "sasl_method"},
    {"verify", SKR_URL_BOOLEAN, AT(connection.tls.verify)},
    {"vhost", SKR_URL_TEXT, AT(connection.vhost)},
    {.name = "write_timeout"},
};

static void
warn_of_unknown_parameters(const struct skr_url *url, const struct skr_log *log)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (!skr_url_is_option(url->parameters[i].name, known,
                               SKR_COUNT_OF(known)))
            skr_log(log, SKR_LOG_WARNING, "amqp.unknown_option",
                    SKR_LOG_TEXT("option", url->parameters[i].name));
}

// Decodes a part of the raw path by the rules for a whole one.
static enum skr_code
keep_path_part(struct rabbit_options *options, const char *part, size_t size,
               const char **kept, struct skr_error *error)
{
    struct skr_url url = {0};
    const char *dsn =
        skr_arena_format(&options->arena, "amqp:///%.*s", (int)size, part);
    if (dsn == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_url_parse(dsn, &url, error);
    if (code == SKR_OK)
        code = skr_arena_keep(&options->arena, url.path, kept, error);
    skr_url_fini(&url);
    return code;
}

static enum skr_code
read_path(const char *text, struct rabbit_options *options,
          struct skr_error *error)
{
    const char **parts[] = {&options->connection.vhost,
                            &options->topology.exchange};
    const char *authority = strstr(text, "://") + 3;
    const char *end = authority + strcspn(authority, "?");
    const char *slash = memchr(authority, '/', (size_t)(end - authority));
    enum skr_code code = SKR_OK;
    options->connection.vhost = "/";
    for (size_t i = 0; slash != NULL && code == SKR_OK; i++) {
        const char *part = slash + 1;
        slash = memchr(part, '/', (size_t)(end - part));
        size_t size = (size_t)((slash == NULL ? end : slash) - part);
        if (i == SKR_COUNT_OF(parts))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the path of the DSN has more than a vhost and an "
                            "exchange; a slash in a name is written as %%2f");
        if (size > 0)
            code = keep_path_part(options, part, size, parts[i], error);
    }
    return code;
}

static enum skr_code
read_hosts(const struct skr_url *url, struct rabbit_options *options,
           struct skr_error *error)
{
    struct skr_amqp_options *connection = &options->connection;
    connection->port = url->port != 0          ? url->port
                       : connection->tls.is_on ? TLS_PORT
                                               : PLAIN_PORT;
    enum skr_code code = skr_host_check_list(url, error);
    return code == SKR_OK ? skr_arena_keep(&options->arena, url->host,
                                           &connection->hosts, error)
                          : code;
}

// A DSN that names a certificate does not mean plaintext, and one that names a
// key means to send a certificate.
static enum skr_code
check_tls(const struct rabbit_options *options, struct skr_error *error)
{
    const struct {
        const char *name, *value;
    } files[] = {{"cacert", options->connection.tls.cacert},
                 {"cert", options->connection.tls.cert},
                 {"key", options->connection.tls.key}};
    for (size_t i = 0;
         i < SKR_COUNT_OF(files) && !options->connection.tls.is_on; i++)
        if (files[i].value != NULL && files[i].value[0] != '\0')
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "amqp:// is plaintext, and %s in the DSN asks for "
                            "TLS; write amqps://, or take it out",
                            files[i].name);
    if (options->connection.tls.key != NULL &&
        options->connection.tls.cert == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "key in the DSN is that of no certificate; name the "
                        "client's own in cert, or take key out");
    return SKR_OK;
}

static const char *const numeric_arguments[] = {SKR_AMQP_NUMERIC_ARGUMENTS};

static enum skr_code
add_argument(struct rabbit_options *options, struct rabbit_arguments *arguments,
             const char *name, size_t size,
             const struct skr_url_parameter *parameter, struct skr_error *error)
{
    const char *value = parameter->value;
    struct skr_amqp_argument *items =
        skr_arena_grow(&options->arena, arguments->items, arguments->count,
                       &arguments->capacity, sizeof(*items));
    struct skr_amqp_argument argument = {
        .kind = SKR_AMQP_TEXT,
        .name = skr_arena_text(&options->arena, name, size),
        .text = skr_arena_text(&options->arena, value, strlen(value)),
    };
    if (items == NULL || argument.name == NULL || argument.text == NULL)
        return skr_fail_memory(error);
    if (skr_text_is_among(argument.name, numeric_arguments,
                          SKR_COUNT_OF(numeric_arguments))) {
        if (!skr_text_number(value, 0, INT64_MAX, &argument.number))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "%.100s: a whole number is needed, not '%.60s'",
                            parameter->name, value);
        argument.kind = SKR_AMQP_NUMBER;
    }
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        argument.kind = SKR_AMQP_BOOLEAN;
        argument.number = strcmp(value, "true") == 0;
    }
    arguments->items = items;
    items[arguments->count++] = argument;
    return SKR_OK;
}

static enum skr_code
add_key(struct rabbit_options *options, struct rabbit_queue *queue,
        const char *key, struct skr_error *error)
{
    const char **keys =
        skr_arena_grow(&options->arena, queue->binding_keys, queue->key_count,
                       &queue->key_capacity, sizeof(*keys));
    const char *copy = skr_arena_text(&options->arena, key, strlen(key));
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
                    "%.100s is not understood; a queue has binding_keys, "
                    "arguments, binding_arguments and flags",
                    parameter->name);
}

// What stands behind queues[NAME].
static enum skr_code
read_option(struct rabbit_options *options, struct rabbit_queue *queue,
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
        return add_key(options, queue, parameter->value, error);
    if (has_name && is_word(option, option_size, "arguments"))
        return add_argument(options, &queue->arguments, name, name_size,
                            parameter, error);
    if (has_name && is_word(option, option_size, "binding_arguments"))
        return add_argument(options, &queue->binding_arguments, name, name_size,
                            parameter, error);
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
read_queue(struct rabbit_options *options,
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
    enum skr_code code =
        skr_rabbit_queue_add(options, name, size, &queue, error);
    if (code != SKR_OK || *at == '\0')
        return code;
    return read_option(options, queue, at, parameter, error);
}

static enum skr_code
read_list(struct rabbit_options *options, const char *list,
          struct skr_error *error)
{
    struct rabbit_queue *queue = NULL;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && *list != '\0') {
        size_t size = strcspn(list, ",");
        code = skr_rabbit_queue_add(options, list, size, &queue, error);
        list += size;
        list += *list == ',';
    }
    return code;
}

// Those of the exchange or of delay queues: group[NAME]=value.
static enum skr_code
read_arguments(const struct skr_url *url, const char *group,
               struct rabbit_options *options,
               struct rabbit_arguments *arguments, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const char *at = url->parameters[i].name, *name = NULL;
        size_t size = 0;
        if (!skr_text_starts_with(at, group))
            continue;
        at += strlen(group);
        if (take_bracket(&at, &name, &size))
            code = add_argument(options, arguments, name, size,
                                &url->parameters[i], error);
    }
    return code;
}

static enum skr_code
fail_choice(const struct rabbit_topology *topology, const char *name,
            struct skr_error *error)
{
    struct skr_text names = {0};
    for (size_t i = 0; i < topology->queue_count; i++)
        skr_text_add_format(&names, "%s%s", i == 0 ? "" : ", ",
                            topology->queues[i].name);
    enum skr_code code =
        skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                 "the transport has no queue %.80s; it has: %.200s", name,
                 names.broken ? "" : names.bytes);
    skr_text_fini(&names);
    return code;
}

// Those that are wanted go to the front; without a choice all are.
static enum skr_code
choose(const struct skr_url *url, struct rabbit_topology *topology,
       struct skr_error *error)
{
    struct rabbit_queue *queues = topology->queues;
    size_t chosen = 0;
    for (size_t i = 0; i < url->parameter_count; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        size_t at = 0;
        if (strcmp(parameter->name, "only") != 0)
            continue;
        while (at < topology->queue_count &&
               strcmp(queues[at].name, parameter->value) != 0)
            at++;
        if (at == topology->queue_count)
            return fail_choice(topology, parameter->value, error);
        if (at < chosen)
            continue;
        const struct rabbit_queue wanted = queues[at];
        queues[at] = queues[chosen];
        queues[chosen++] = wanted;
    }
    topology->queue_count = chosen > 0 ? chosen : topology->queue_count;
    return SKR_OK;
}

static enum skr_code
read_queues(const struct skr_url *url, struct rabbit_options *options,
            struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        if (strcmp(parameter->name, "queues") == 0 ||
            strcmp(parameter->name, "queue") == 0 ||
            strcmp(parameter->name, "queue[name]") == 0)
            code = read_list(options, parameter->value, error);
        else if (skr_text_starts_with(parameter->name, "queues["))
            code = read_queue(options, parameter, error);
    }
    if (code == SKR_OK)
        code = skr_rabbit_topology_complete(options, error);
    return code == SKR_OK ? choose(url, &options->topology, error) : code;
}

enum skr_code
skr_rabbit_options_read(const char *text, const struct skr_url *url,
                        bool auto_setup, const struct skr_log *log,
                        struct rabbit_options *options, struct skr_error *error)
{
    *options = (struct rabbit_options){
        .connection = {.hosts = "localhost",
                       .product = "Skirnir",
                       .version = SKR_VERSION,
                       .user = "guest",
                       .password = "guest",
                       .connection_name = "skirnir",
                       .connect_timeout_ms = DEFAULT_CONNECT_MS,
                       .tls.is_on = strcmp(url->scheme, "amqps") == 0,
                       .tls.verify = true},
        .confirm_timeout_ms = DEFAULT_CONFIRM_MS,
        .hold_timeout_ms = DEFAULT_HOLD_MS,
        .heartbeat_ms = DEFAULT_HEARTBEAT_MS,
        .prefetch_bytes = DEFAULT_PREFETCH_BYTES,
        .auto_setup = auto_setup,
        .topology.has_defaults = skr_url_find(url, "defaults") != NULL,
        .delay_exchange = "delays",
        .delay_queue_pattern = "delay_%exchange_name%_%routing_key%_%delay%",
    };
    warn_of_unknown_parameters(url, log);
    enum skr_code code = read_path(text, options, error);
    if (code == SKR_OK)
        code = read_hosts(url, options, error);
    if (code == SKR_OK)
        code = skr_arena_keep(&options->arena, url->user,
                              &options->connection.user, error);
    if (code == SKR_OK)
        code = skr_arena_keep(&options->arena, url->password,
                              &options->connection.password, error);
    if (code == SKR_OK)
        code = skr_url_read(url, known, SKR_COUNT_OF(known), &options->arena,
                            options, error);
    options->connection.heartbeat_s =
        (uint16_t)((options->heartbeat_ms + 999) / 1000);
    if (code == SKR_OK)
        code = check_tls(options, error);
    if (code == SKR_OK)
        code = read_queues(url, options, error);
    if (code == SKR_OK)
        code = read_arguments(url, "delay[arguments]", options,
                              &options->delay_arguments, error);
    if (code == SKR_OK)
        code = read_arguments(url, "exchange[arguments]", options,
                              &options->topology.exchange_arguments, error);
    if (code == SKR_OK && strlen(options->connection.vhost) > UINT8_MAX)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the vhost of the DSN is over %d bytes", UINT8_MAX);
    return code;
}
