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
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DURABLE_FLAG = 2, MOST_FLAGS = 65535 };

enum {
    PLAIN_PORT = 5672,
    TLS_PORT = 5671,
    DEFAULT_TIMEOUT_S = 10,
    DEFAULT_CONFIRM_S = 25,
    DEFAULT_HOLD_S = 300,
    DEFAULT_HEARTBEAT_S = 30,
    MOST_SECONDS = 3600,
    MOST_PREFETCH = 65535,  // a short in the protocol
    DEFAULT_PREFETCH_BYTES = 16 * 1024 * 1024,
};

// Half of what a machine of 32 bits can address.
#define MOST_PREFETCH_BYTES \
    (SIZE_MAX > UINT32_MAX ? INT64_C(1) << 40 : INT64_C(1) << 31)

// Ours, and Symfony's, of which some concern its own client library.
static const char *const known_parameters[] = {
    "auto_setup",
    "cacert",
    "cert",
    "channel_max",
    "confirm_timeout",
    "connect_timeout",
    "connection_name",
    "defaults",
    "frame_max",
    "heartbeat",
    "hold_timeout",
    "key",
    "only",
    "persistent",
    "prefetch_bytes",
    "prefetch_count",
    "queue",
    "queues",
    "read_timeout",
    "retry_via",
    "rpc_timeout",
    "sasl_method",
    "verify",
    "vhost",
    "write_timeout",
};
static const char *const known_groups[] = {"exchange[", "queues[", "queue[",
                                           "delay["};

static bool
is_known(const char *name)
{
    if (skr_text_is_among(name, known_parameters,
                          SKR_COUNT_OF(known_parameters)))
        return true;
    for (size_t i = 0; i < SKR_COUNT_OF(known_groups); i++)
        if (skr_text_starts_with(name, known_groups[i]))
            return true;
    return false;
}

static void
warn_of_unknown_parameters(const struct skr_url *url, const struct skr_log *log)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (!is_known(url->parameters[i].name))
            skr_log(log, SKR_LOG_WARNING, "amqp.unknown_option",
                    SKR_LOG_TEXT("option", url->parameters[i].name));
}

static const char *
find_last(const struct skr_url *url, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0)
            value = url->parameters[i].value;
    return value;
}

// Symfony's times are seconds, with a fraction if need be.
static enum skr_code
read_seconds(const struct skr_url *url, const char *name, double least,
             int fallback, int64_t *time_ms, struct skr_error *error)
{
    const char *text = find_last(url, name);
    *time_ms = (int64_t)fallback * 1000;
    if (text == NULL)
        return SKR_OK;
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < least ||
        seconds > MOST_SECONDS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s=%s in the DSN: a number of seconds from %g to %d "
                        "is needed",
                        name, text, least, MOST_SECONDS);
    *time_ms = (int64_t)(seconds * 1000);
    return SKR_OK;
}

static enum skr_code
keep(struct rabbit_options *options, const char *text, const char **kept,
     struct skr_error *error)
{
    if (text == NULL)
        return SKR_OK;
    *kept = skr_arena_text(&options->arena, text, strlen(text));
    return *kept == NULL ? skr_fail_memory(error) : SKR_OK;
}

// Decodes a part of the raw path by the rules for a whole one.
static enum skr_code
keep_path_part(struct rabbit_options *options, const char *part, size_t size,
               const char **kept, struct skr_error *error)
{
    struct skr_text dsn = {0};
    struct skr_url url = {0};
    skr_text_add_string(&dsn, "amqp:///");
    skr_text_add(&dsn, part, size);
    if (dsn.broken) {
        skr_text_fini(&dsn);
        return skr_fail_memory(error);
    }
    enum skr_code code = skr_url_parse(dsn.bytes, &url, error);
    if (code == SKR_OK)
        code = keep(options, url.path == NULL ? "" : url.path, kept, error);
    skr_url_fini(&url);
    skr_text_fini(&dsn);
    return code;
}

static enum skr_code
read_path(const char *text, struct rabbit_options *options,
          struct skr_error *error)
{
    const char *authority = strstr(text, "://") + 3;
    size_t size = strcspn(authority, "?");
    const char *slash = memchr(authority, '/', size);
    options->connection.vhost = "/";
    if (slash == NULL)
        return SKR_OK;
    const char *vhost = slash + 1;
    const char *end = authority + size;
    const char *next = memchr(vhost, '/', (size_t)(end - vhost));
    const char *vhost_end = next == NULL ? end : next;
    enum skr_code code = SKR_OK;
    if (vhost_end > vhost)
        code = keep_path_part(options, vhost, (size_t)(vhost_end - vhost),
                              &options->connection.vhost, error);
    if (code == SKR_OK && next != NULL &&
        memchr(next + 1, '/', (size_t)(end - next - 1)) != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the path of the DSN has more than a vhost and an "
                        "exchange; a slash in a name is written as %%2f");
    if (code == SKR_OK && next != NULL && end > next + 1)
        code = keep_path_part(options, next + 1, (size_t)(end - next - 1),
                              &options->topology.exchange, error);
    return code;
}

// "host", "host:5672", "[::1]:5672"; at is the end of it.
static enum skr_code
read_host(struct rabbit_options *options, const char *text, size_t size,
          uint16_t fallback_port, struct skr_amqp_host *host,
          struct skr_error *error)
{
    const char *end = text + size;
    const char *name = text;
    const char *name_end = end;
    const char *colon = memchr(text, ':', size);
    if (size > 0 && text[0] == '[') {
        name = text + 1;
        name_end = memchr(text, ']', size);
        if (name_end == NULL)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the host of the DSN begins with [ and has no ]");
        colon = name_end + 1 < end ? name_end + 1 : NULL;
    } else if (colon != NULL) {
        name_end = colon;
    }
    host->port = fallback_port;
    if (colon != NULL) {
        char *stop = NULL;
        errno = 0;
        unsigned long port = strtoul(colon + 1, &stop, 10);
        if (*colon != ':' || stop != end || errno != 0 || port == 0 ||
            port > UINT16_MAX || colon[1] < '0' || colon[1] > '9')
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the port of a host of the DSN is not a number "
                            "from 1 to 65535");
        host->port = (uint16_t)port;
    }
    if (name == name_end)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a host of the DSN has no name");
    host->name =
        skr_arena_text(&options->arena, name, (size_t)(name_end - name));
    return host->name == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
read_hosts(const struct skr_url *url, struct rabbit_options *options,
           struct skr_error *error)
{
    const char *list = url->host == NULL ? "localhost" : url->host;
    struct skr_amqp_options *connection = &options->connection;
    uint16_t port = url->port != 0          ? url->port
                    : connection->tls.is_on ? TLS_PORT
                                            : PLAIN_PORT;
    size_t count = 1;
    for (const char *at = list; *at != '\0'; at++)
        count += *at == ',';
    struct skr_amqp_host *hosts =
        skr_arena_take(&options->arena, count * sizeof(*hosts));
    if (hosts == NULL)
        return skr_fail_memory(error);
    connection->hosts = hosts;
    for (const char *at = list;; at++) {
        size_t size = strcspn(at, ",");
        enum skr_code code = read_host(options, at, size, port,
                                       &hosts[connection->host_count++], error);
        if (code != SKR_OK)
            return code;
        at += size;
        if (*at == '\0')
            return SKR_OK;
    }
}

static enum skr_code
read_texts(const struct skr_url *url, struct rabbit_options *options,
           struct skr_error *error)
{
    struct skr_amqp_options *server = &options->connection;
    struct rabbit_topology *topology = &options->topology;
    const struct {
        const char *text;
        const char **kept;  // what it is without the text
    } texts[] = {
        {url->user, &server->user},
        {url->password, &server->password},
        {find_last(url, "connection_name"), &server->connection_name},
        {find_last(url, "vhost"), &server->vhost},
        {find_last(url, "cacert"), &server->tls.cacert},
        {find_last(url, "cert"), &server->tls.cert},
        {find_last(url, "key"), &server->tls.key},
        {find_last(url, "exchange[name]"), &topology->exchange},
        {find_last(url, "exchange[type]"), &topology->exchange_type},
        {find_last(url, "delay[exchange_name]"), &options->delay_exchange},
        {find_last(url, "delay[queue_name_pattern]"),
         &options->delay_queue_pattern},
    };
    enum skr_code code = SKR_OK;
    topology->has_defaults = find_last(url, "defaults") != NULL;
    for (size_t i = 0; i < SKR_COUNT_OF(texts) && code == SKR_OK; i++)
        code = keep(options, texts[i].text, texts[i].kept, error);
    return code;
}

static enum skr_code
read_prefetch(const struct skr_url *url, struct rabbit_options *options,
              struct skr_error *error)
{
    int64_t count = 0, bytes = DEFAULT_PREFETCH_BYTES;
    const char *count_text = find_last(url, "prefetch_count");
    const char *bytes_text = find_last(url, "prefetch_bytes");
    if (count_text != NULL &&
        !skr_text_number(count_text, 1, MOST_PREFETCH, &count))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "prefetch_count=%s in the DSN: a number from 1 to %d "
                        "is needed",
                        count_text, MOST_PREFETCH);
    if (bytes_text != NULL &&
        !skr_text_number(bytes_text, 1, MOST_PREFETCH_BYTES, &bytes))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "prefetch_bytes=%s in the DSN: a number of bytes from "
                        "1 to %lld is needed",
                        bytes_text, (long long)MOST_PREFETCH_BYTES);
    options->prefetch_count = (uint32_t)count;
    options->prefetch_bytes = (size_t)bytes;
    return SKR_OK;
}

static enum skr_code
read_retry(const struct skr_url *url, struct rabbit_options *options,
           struct skr_error *error)
{
    const char *way = find_last(url, "retry_via");
    options->delays = way != NULL && strcmp(way, "delay_queue") == 0;
    if (way == NULL || options->delays || strcmp(way, "row") == 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "retry_via=%s in the DSN: row or delay_queue is needed",
                    way);
}

static enum skr_code
read_times(const struct skr_url *url, struct rabbit_options *options,
           struct skr_error *error)
{
    int64_t heartbeat_ms = 0;
    const struct {
        const char *name;
        double least;
        int fallback_s;
        int64_t *time_ms;
    } times[] = {
        {"connect_timeout", 0.1, DEFAULT_TIMEOUT_S,
         &options->connection.connect_timeout_ms},
        {"confirm_timeout", 0.1, DEFAULT_CONFIRM_S,
         &options->confirm_timeout_ms},
        {"hold_timeout", 0.1, DEFAULT_HOLD_S, &options->hold_timeout_ms},
        {"heartbeat", 0, DEFAULT_HEARTBEAT_S, &heartbeat_ms},
    };
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(times) && code == SKR_OK; i++)
        code = read_seconds(url, times[i].name, times[i].least,
                            times[i].fallback_s, times[i].time_ms, error);
    options->connection.heartbeat_s = (uint16_t)((heartbeat_ms + 999) / 1000);
    return code;
}

// A DSN that names a certificate does not mean plaintext.
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
    return SKR_OK;
}

static const char *const numeric_arguments[] = {SKR_AMQP_NUMERIC_ARGUMENTS};

static enum skr_code
add_argument(struct rabbit_options *options, struct rabbit_arguments *arguments,
             const char *name, size_t size, const char *value,
             struct skr_error *error)
{
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
                            "argument %s in the DSN: a whole number is "
                            "needed, not '%.60s'",
                            argument.name, value);
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
                            parameter->value, error);
    if (has_name && is_word(option, option_size, "binding_arguments"))
        return add_argument(options, &queue->binding_arguments, name, name_size,
                            parameter->value, error);
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

static enum skr_code
read_delay_arguments(const struct skr_url *url, struct rabbit_options *options,
                     struct skr_error *error)
{
    static const char group[] = "delay[arguments]";
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const char *at = url->parameters[i].name, *name = NULL;
        size_t size = 0;
        if (!skr_text_starts_with(at, group))
            continue;
        at += sizeof(group) - 1;
        if (take_bracket(&at, &name, &size))
            code = add_argument(options, &options->delay_arguments, name, size,
                                url->parameters[i].value, error);
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
choose(const struct skr_url *url, struct rabbit_options *options,
       struct skr_error *error)
{
    struct rabbit_queue *found = NULL;
    size_t all = options->topology.queue_count, kept = 0;
    for (size_t i = 0; i < url->parameter_count; i++) {
        const struct skr_url_parameter *parameter = &url->parameters[i];
        if (strcmp(parameter->name, "only") != 0)
            continue;
        enum skr_code code = skr_rabbit_queue_add(
            options, parameter->value, strlen(parameter->value), &found, error);
        if (code != SKR_OK)
            return code;
        if (options->topology.queue_count > all)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the transport has no queue %.80s",
                            parameter->value);
    }
    for (size_t i = 0; i < all; i++)
        if (is_wanted(url, options->topology.queues[i].name))
            options->topology.queues[kept++] = options->topology.queues[i];
    options->topology.queue_count = kept;
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
    return code == SKR_OK ? choose(url, options, error) : code;
}

enum skr_code
skr_rabbit_options_read(const char *text, const struct skr_url *url,
                        bool auto_setup, const struct skr_log *log,
                        struct rabbit_options *options, struct skr_error *error)
{
    *options = (struct rabbit_options){
        .connection = {.product = "Skirnir",
                       .version = SKR_VERSION,
                       .user = "guest",
                       .password = "guest",
                       .connection_name = "skirnir",
                       .tls.is_on = strcmp(url->scheme, "amqps") == 0,
                       .tls.verify = true},
        .auto_setup = auto_setup,
        .delay_exchange = "delays",
        .delay_queue_pattern = "delay_%exchange_name%_%routing_key%_%delay%",
    };
    warn_of_unknown_parameters(url, log);
    enum skr_code code = read_path(text, options, error);
    if (code == SKR_OK)
        code = read_hosts(url, options, error);
    if (code == SKR_OK)
        code = read_texts(url, options, error);
    if (code == SKR_OK)
        code = check_tls(options, error);
    if (code == SKR_OK)
        code = read_times(url, options, error);
    if (code == SKR_OK)
        code = skr_url_boolean(url, "verify", &options->connection.tls.verify,
                               error);
    if (code == SKR_OK)
        code = skr_url_boolean(url, "auto_setup", &options->auto_setup, error);
    if (code == SKR_OK)
        code = read_prefetch(url, options, error);
    if (code == SKR_OK)
        code = read_retry(url, options, error);
    if (code == SKR_OK)
        code = read_queues(url, options, error);
    if (code == SKR_OK)
        code = read_delay_arguments(url, options, error);
    if (code == SKR_OK && strlen(options->connection.vhost) > UINT8_MAX)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the vhost of the DSN is over %d bytes", UINT8_MAX);
    return code;
}

void
skr_rabbit_options_fini(struct rabbit_options *options)
{
    skr_arena_fini(&options->arena);
    *options = (struct rabbit_options){0};
}
