// SPDX-License-Identifier: MIT
// Reads an amqp:// DSN in Symfony's form, with its options as parameters.

#include "broker/rabbitmq/settings.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLAIN_PORT = 5672,
    TLS_PORT = 5671,
    DEFAULT_TIMEOUT_S = 10,
    DEFAULT_CONFIRM_S = 30,
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

const char *
skr_rabbit_find_last(const struct skr_url *url, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0)
            value = url->parameters[i].value;
    return value;
}

static enum skr_code
read_switch(const struct skr_url *url, const char *name, bool fallback,
            bool *value, struct skr_error *error)
{
    static const char *const yes[] = {"1", "true", "on", "yes"};
    static const char *const no[] = {"0", "false", "off", "no", ""};
    const char *text = skr_rabbit_find_last(url, name);
    *value = fallback;
    if (text == NULL)
        return SKR_OK;
    *value = skr_text_is_among(text, yes, SKR_COUNT_OF(yes));
    if (*value || skr_text_is_among(text, no, SKR_COUNT_OF(no)))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%s in the DSN: true or false is needed", name, text);
}

// Symfony's times are seconds, with a fraction if need be.
static enum skr_code
read_seconds(const struct skr_url *url, const char *name, double least,
             int fallback, int64_t *time_ms, struct skr_error *error)
{
    const char *text = skr_rabbit_find_last(url, name);
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
keep(struct rabbit_settings *settings, const char *text, const char **kept,
     struct skr_error *error)
{
    *kept = NULL;
    if (text == NULL)
        return SKR_OK;
    *kept = skr_arena_text(&settings->arena, text, strlen(text));
    return *kept == NULL ? skr_fail_memory(error) : SKR_OK;
}

// Decodes a part of the raw path by the rules for a whole one.
static enum skr_code
keep_path_part(struct rabbit_settings *settings, const char *part, size_t size,
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
        code = keep(settings, url.path == NULL ? "" : url.path, kept, error);
    skr_url_fini(&url);
    skr_text_fini(&dsn);
    return code;
}

static enum skr_code
read_path(const char *text, struct rabbit_settings *settings,
          struct skr_error *error)
{
    const char *authority = strstr(text, "://") + 3;
    size_t size = strcspn(authority, "?");
    const char *slash = memchr(authority, '/', size);
    settings->vhost = "/";
    if (slash == NULL)
        return SKR_OK;
    const char *vhost = slash + 1;
    const char *end = authority + size;
    const char *next = memchr(vhost, '/', (size_t)(end - vhost));
    const char *vhost_end = next == NULL ? end : next;
    enum skr_code code = SKR_OK;
    if (vhost_end > vhost)
        code = keep_path_part(settings, vhost, (size_t)(vhost_end - vhost),
                              &settings->vhost, error);
    if (code == SKR_OK && next != NULL &&
        memchr(next + 1, '/', (size_t)(end - next - 1)) != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the path of the DSN has more than a vhost and an "
                        "exchange; a slash in a name is written as %%2f");
    if (code == SKR_OK && next != NULL && end > next + 1)
        code = keep_path_part(settings, next + 1, (size_t)(end - next - 1),
                              &settings->exchange, error);
    return code;
}

// "host", "host:5672", "[::1]:5672"; at is the end of it.
static enum skr_code
read_host(struct rabbit_settings *settings, const char *text, size_t size,
          uint16_t fallback_port, struct rabbit_host *host,
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
        skr_arena_text(&settings->arena, name, (size_t)(name_end - name));
    return host->name == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
read_hosts(const struct skr_url *url, struct rabbit_settings *settings,
           struct skr_error *error)
{
    const char *list = url->host == NULL ? "localhost" : url->host;
    uint16_t port = url->port != 0  ? url->port
                    : settings->tls ? TLS_PORT
                                    : PLAIN_PORT;
    size_t count = 1;
    for (const char *at = list; *at != '\0'; at++)
        count += *at == ',';
    settings->hosts =
        skr_arena_take(&settings->arena, count * sizeof(*settings->hosts));
    if (settings->hosts == NULL)
        return skr_fail_memory(error);
    for (const char *at = list;; at++) {
        size_t size = strcspn(at, ",");
        enum skr_code code =
            read_host(settings, at, size, port,
                      &settings->hosts[settings->host_count++], error);
        if (code != SKR_OK)
            return code;
        at += size;
        if (*at == '\0')
            return SKR_OK;
    }
}

static enum skr_code
read_texts(const struct skr_url *url, struct rabbit_settings *settings,
           struct skr_error *error)
{
    const char *vhost = skr_rabbit_find_last(url, "vhost");
    const char *exchange = skr_rabbit_find_last(url, "exchange[name]");
    const char *name = skr_rabbit_find_last(url, "connection_name");
    enum skr_code code = keep(settings, url->user == NULL ? "guest" : url->user,
                              &settings->user, error);
    if (code == SKR_OK)
        code = keep(settings, url->password == NULL ? "guest" : url->password,
                    &settings->password, error);
    if (code == SKR_OK)
        code = keep(settings, name == NULL ? "skirnir" : name,
                    &settings->connection_name, error);
    if (code == SKR_OK && vhost != NULL)
        code = keep(settings, vhost, &settings->vhost, error);
    if (code == SKR_OK && exchange != NULL)
        code = keep(settings, exchange, &settings->exchange, error);
    settings->has_defaults = skr_rabbit_find_last(url, "defaults") != NULL;
    if (settings->has_defaults && settings->exchange == NULL)
        settings->exchange = SKR_DEFAULT_EXCHANGE;
    if (code == SKR_OK)
        code = keep(settings, skr_rabbit_find_last(url, "exchange[type]"),
                    &settings->exchange_type, error);
    if (code == SKR_OK)
        code = keep(settings, skr_rabbit_find_last(url, "cacert"),
                    &settings->cacert, error);
    if (code == SKR_OK)
        code = keep(settings, skr_rabbit_find_last(url, "cert"),
                    &settings->cert, error);
    if (code == SKR_OK)
        code = keep(settings, skr_rabbit_find_last(url, "key"), &settings->key,
                    error);
    return code;
}

static enum skr_code
read_prefetch(const struct skr_url *url, struct rabbit_settings *settings,
              struct skr_error *error)
{
    int64_t count = 0, bytes = DEFAULT_PREFETCH_BYTES;
    const char *count_text = skr_rabbit_find_last(url, "prefetch_count");
    const char *bytes_text = skr_rabbit_find_last(url, "prefetch_bytes");
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
    settings->prefetch_count = (uint32_t)count;
    settings->prefetch_bytes = (size_t)bytes;
    return SKR_OK;
}

static enum skr_code
read_retry(const struct skr_url *url, struct rabbit_settings *settings,
           struct skr_error *error)
{
    const char *way = skr_rabbit_find_last(url, "retry_via");
    settings->delays = way != NULL && strcmp(way, "delay_queue") == 0;
    if (way == NULL || settings->delays || strcmp(way, "row") == 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "retry_via=%s in the DSN: row or delay_queue is needed",
                    way);
}

static enum skr_code
read_numbers(const struct skr_url *url, bool auto_setup,
             struct rabbit_settings *settings, struct skr_error *error)
{
    int64_t heartbeat_ms = 0;
    enum skr_code code =
        read_seconds(url, "connect_timeout", 0.1, DEFAULT_TIMEOUT_S,
                     &settings->connect_timeout_ms, error);
    if (code == SKR_OK)
        code = read_seconds(url, "confirm_timeout", 0.1, DEFAULT_CONFIRM_S,
                            &settings->confirm_timeout_ms, error);
    if (code == SKR_OK)
        code = read_seconds(url, "hold_timeout", 0.1, DEFAULT_HOLD_S,
                            &settings->hold_timeout_ms, error);
    if (code == SKR_OK)
        code = read_seconds(url, "heartbeat", 0, DEFAULT_HEARTBEAT_S,
                            &heartbeat_ms, error);
    if (code == SKR_OK)
        code = read_switch(url, "verify", true, &settings->verify, error);
    if (code == SKR_OK)
        code = read_switch(url, "auto_setup", auto_setup, &settings->auto_setup,
                           error);
    settings->heartbeat_s = (uint16_t)((heartbeat_ms + 999) / 1000);
    return code;
}

// A DSN that names a certificate does not mean plaintext.
static enum skr_code
check_tls(const struct rabbit_settings *settings, struct skr_error *error)
{
    const struct {
        const char *name, *value;
    } files[] = {{"cacert", settings->cacert},
                 {"cert", settings->cert},
                 {"key", settings->key}};
    for (size_t i = 0; i < SKR_COUNT_OF(files) && !settings->tls; i++)
        if (files[i].value != NULL && files[i].value[0] != '\0')
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "amqp:// is plaintext, and %s in the DSN asks for "
                            "TLS; write amqps://, or take it out",
                            files[i].name);
    return SKR_OK;
}

enum skr_code
skr_rabbit_settings_read(const char *text, const struct skr_url *url,
                         bool auto_setup, const struct skr_log *log,
                         struct rabbit_settings *settings,
                         struct skr_error *error)
{
    *settings = (struct rabbit_settings){
        .tls = strcmp(url->scheme, "amqps") == 0,
    };
    warn_of_unknown_parameters(url, log);
    enum skr_code code = read_path(text, settings, error);
    if (code == SKR_OK)
        code = read_hosts(url, settings, error);
    if (code == SKR_OK)
        code = read_texts(url, settings, error);
    if (code == SKR_OK)
        code = check_tls(settings, error);
    if (code == SKR_OK)
        code = read_numbers(url, auto_setup, settings, error);
    if (code == SKR_OK)
        code = read_prefetch(url, settings, error);
    if (code == SKR_OK)
        code = read_retry(url, settings, error);
    if (code == SKR_OK)
        code = skr_rabbit_queues_read(url, settings, error);
    if (code == SKR_OK && strlen(settings->vhost) > UINT8_MAX)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the vhost of the DSN is over %d bytes", UINT8_MAX);
    return code;
}

void
skr_rabbit_settings_fini(struct rabbit_settings *settings)
{
    skr_arena_fini(&settings->arena);
    *settings = (struct rabbit_settings){0};
}
