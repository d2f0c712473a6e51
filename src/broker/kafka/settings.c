// SPDX-License-Identifier: MIT
// Reads a kafka:// DSN into settings and librdkafka's configuration object,
// with the security protocol that its login and TLS options ask for.

#include "broker/kafka/settings.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/kafka/properties.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    DEFAULT_PORT = 9092,
    DEFAULT_CONNECT_S = 10,
    DEFAULT_CONFIRM_S = 30,
    MOST_SECONDS = 3600,
    DEFAULT_PREFETCH_BYTES = 16 * 1024 * 1024,
    LONGEST_TOPIC = 249,
};

static const char *const own_parameters[] = {
    "auto_setup",      "cacert",      "cert",           "confirm_timeout",
    "connect_timeout", "derive_ids",  "group",          "key",
    "missing_topic",   "partitioner", "prefetch_bytes", "tls",
    "topic",           "topic_by",    "topics",         "verify",
};

bool
skr_kafka_is_topic(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && size <= LONGEST_TOPIC && strcmp(text, ".") != 0 &&
           strcmp(text, "..") != 0 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == size;
}

enum skr_code
skr_kafka_set(rd_kafka_conf_t *properties, const char *name, const char *value,
              struct skr_error *error)
{
    char reason[200];
    if (rd_kafka_conf_set(properties, name, value, reason, sizeof(reason)) ==
        RD_KAFKA_CONF_OK)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "librdkafka does not take the value of %.60s in the DSN",
                    name);
}

static enum skr_code
keep(struct kafka_settings *settings, const char *text, const char **kept,
     struct skr_error *error)
{
    if (text == NULL)
        return SKR_OK;
    *kept = skr_arena_text(&settings->arena, text, strlen(text));
    return *kept == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
read_switch(const struct skr_url *url, const char *name, bool *value,
            struct skr_error *error)
{
    static const char *const yes[] = {"1", "true", "on", "yes"};
    static const char *const no[] = {"0", "false", "off", "no", ""};
    const char *text = skr_url_find(url, name);
    if (text == NULL)
        return SKR_OK;
    *value = skr_text_is_among(text, yes, SKR_COUNT_OF(yes));
    if (*value || skr_text_is_among(text, no, SKR_COUNT_OF(no)))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s=%.40s in the DSN: true or false is needed", name, text);
}

static enum skr_code
read_seconds(const struct skr_url *url, const char *name, int fallback,
             int64_t *time_ms, struct skr_error *error)
{
    int64_t seconds = 0;
    enum skr_code code =
        skr_url_number(url, name, 1, MOST_SECONDS, fallback, &seconds, error);
    *time_ms = seconds * 1000;
    return code;
}

// librdkafka wants every broker with its port.
static enum skr_code
read_brokers(const struct skr_url *url, struct kafka_settings *settings,
             struct skr_error *error)
{
    if (url->host == NULL || url->host[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no broker; kafka://HOST:9092 is "
                        "needed");
    if (strchr(url->host, ',') != NULL)
        return keep(settings, url->host, &settings->brokers, error);
    settings->brokers =
        skr_arena_format(&settings->arena, "%s:%u", url->host,
                         url->port == 0 ? DEFAULT_PORT : (unsigned)url->port);
    return settings->brokers == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
add_topics(struct kafka_settings *settings, const char *list,
           struct skr_error *error)
{
    for (const char *at = list; *at != '\0';) {
        size_t size = strcspn(at, ",");
        const char **grown = skr_arena_take(
            &settings->arena, (settings->topic_count + 1) * sizeof(*grown));
        char *topic = skr_arena_text(&settings->arena, at, size);
        if (grown == NULL || topic == NULL)
            return skr_fail_memory(error);
        // One that begins with ^ is a pattern.
        if (topic[0] != '^' && !skr_kafka_is_topic(topic))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "topics in the DSN: '%.60s' is no name of a topic",
                            topic);
        if (settings->topic_count > 0)
            memcpy(grown, settings->topics,
                   settings->topic_count * sizeof(*grown));
        grown[settings->topic_count++] = topic;
        settings->topics = grown;
        at += size;
        at += *at == ',';
    }
    return SKR_OK;
}

static enum skr_code
read_topics(const struct skr_url *url, bool consumes,
            struct kafka_settings *settings, struct skr_error *error)
{
    const char *topic = skr_url_find(url, "topic");
    const char *path =
        url->path == NULL || url->path[0] == '\0' ? NULL : url->path;
    if (topic == NULL)
        topic = path;
    enum skr_code code = SKR_OK;
    if (!consumes && topic != NULL && !skr_kafka_is_topic(topic))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "'%.60s' in the DSN is no name of a topic", topic);
    if (!consumes)
        return keep(settings, topic, &settings->topic, error);
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++)
        if (strcmp(url->parameters[i].name, "topics") == 0 ||
            skr_text_starts_with(url->parameters[i].name, "topics["))
            code = add_topics(settings, url->parameters[i].value, error);
    settings->is_consumed = settings->topic_count > 0;
    if (code == SKR_OK && settings->topic_count == 0 && topic != NULL)
        code = add_topics(settings, topic, error);
    return code;
}

static enum skr_code
read_partitioner(const struct skr_url *url, struct kafka_settings *settings,
                 struct skr_error *error)
{
    const char *text = skr_url_find(url, "partitioner");
    settings->partitioner = KAFKA_MURMUR2;
    if (text == NULL || strcmp(text, "murmur2") == 0)
        return SKR_OK;
    settings->partitioner = KAFKA_FNV1A;
    if (strcmp(text, "fnv1a") == 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "partitioner=%.40s in the DSN: murmur2 or fnv1a is needed",
                    text);
}

static enum skr_code
read_missing_topic(const struct skr_url *url, struct kafka_settings *settings,
                   struct skr_error *error)
{
    const char *text = skr_url_find(url, "missing_topic");
    settings->fails_missing_topics = text != NULL && strcmp(text, "fail") == 0;
    if (text == NULL || settings->fails_missing_topics ||
        strcmp(text, "wait") == 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "missing_topic=%.40s in the DSN: wait or fail is needed",
                    text);
}

// A DSN that names a certificate does not mean plaintext, unless tls=0 says so.
static enum skr_code
read_tls(const struct skr_url *url, bool *tls, struct skr_error *error)
{
    static const char *const files[] = {
        "cacert",          "cert",       "key",
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
        "ssl.key.location"};
    *tls = false;
    for (size_t i = 0; i < SKR_COUNT_OF(files); i++) {
        const char *file = skr_url_find(url, files[i]);
        *tls = *tls || (file != NULL && file[0] != '\0');
    }
    return read_switch(url, "tls", tls, error);
}

static enum skr_code
check_tls(const struct skr_url *url, const struct kafka_settings *settings,
          struct skr_error *error)
{
    char protocol[32] = "";
    size_t size = sizeof(protocol);
    bool tls = false;
    enum skr_code code = read_tls(url, &tls, error);
    if (code != SKR_OK || !tls ||
        (rd_kafka_conf_get(settings->properties, "security.protocol", protocol,
                           &size) == RD_KAFKA_CONF_OK &&
         strstr(protocol, "ssl") != NULL))
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "security.protocol=%s in the DSN is plaintext, and tls or "
                    "a certificate asks for TLS; take one of them out",
                    protocol);
}

// A password goes nowhere in the clear unless that is asked for.
static enum skr_code
set_security(const struct skr_url *url, struct kafka_settings *settings,
             struct skr_error *error)
{
    rd_kafka_conf_t *properties = settings->properties;
    const char *protocol = skr_url_find(url, "security.protocol");
    bool tls = false;
    enum skr_code code = read_tls(url, &tls, error);
    bool logs_in = url->user != NULL;
    bool is_clear =
        protocol != NULL && strcasecmp(protocol, "sasl_plaintext") == 0;
    if (code == SKR_OK && protocol == NULL && (tls || logs_in))
        code = skr_kafka_set(properties, "security.protocol",
                             logs_in ? "sasl_ssl" : "ssl", error);
    if (code != SKR_OK || !logs_in)
        return code;
    code = skr_kafka_set(properties, "sasl.username", url->user, error);
    if (code == SKR_OK)
        code = skr_kafka_set(properties, "sasl.password",
                             url->password == NULL ? "" : url->password, error);
    if (code == SKR_OK && skr_url_find(url, "sasl.mechanism") == NULL &&
        skr_url_find(url, "sasl.mechanisms") == NULL)
        code = skr_kafka_set(properties, "sasl.mechanisms",
                             is_clear ? "SCRAM-SHA-256" : "PLAIN", error);
    return code;
}

static enum skr_code
set_files(const struct skr_url *url, struct kafka_settings *settings,
          struct skr_error *error)
{
    static const struct {
        const char *parameter, *property;
    } files[] = {
        {"cacert", "ssl.ca.location"},
        {"cert", "ssl.certificate.location"},
        {"key", "ssl.key.location"},
    };
    bool verify = true;
    enum skr_code code = read_switch(url, "verify", &verify, error);
    for (size_t i = 0; i < SKR_COUNT_OF(files) && code == SKR_OK; i++) {
        const char *value = skr_url_find(url, files[i].parameter);
        if (value != NULL)
            code = skr_kafka_set(settings->properties, files[i].property, value,
                                 error);
    }
    if (code == SKR_OK)
        code = skr_kafka_set(settings->properties,
                             "enable.ssl.certificate.verification",
                             verify ? "true" : "false", error);
    // Without this any certificate of a known authority would do.
    if (code == SKR_OK)
        code = skr_kafka_set(settings->properties,
                             "ssl.endpoint.identification.algorithm",
                             verify ? "https" : "none", error);
    return code;
}

static enum skr_code
set_defaults(const struct skr_url *url, struct kafka_settings *settings,
             bool consumes, struct skr_error *error)
{
    static const struct {
        const char *name, *value;
        bool of_consumers;
    } defaults[] = {
        {"client.id", "skirnir", false},
        {"reconnect.backoff.max.ms", "1000", false},
        {"linger.ms", "1", false},
        {"auto.offset.reset", "earliest", true},
        {"queued.min.messages", "2000", true},
        // How long the group waits for a member that died.
        {"session.timeout.ms", "10000", true},
    };
    int64_t bytes = 0;
    char kilobytes[24];
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(defaults) && code == SKR_OK; i++)
        if (consumes || !defaults[i].of_consumers)
            code = skr_kafka_set(settings->properties, defaults[i].name,
                                 defaults[i].value, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "prefetch_bytes", 1024, INT64_C(2) << 30,
                              DEFAULT_PREFETCH_BYTES, &bytes, error);
    if (code != SKR_OK || !consumes)
        return code;
    snprintf(kilobytes, sizeof(kilobytes), "%lld",
             (long long)(bytes + 1023) / 1024);
    return skr_kafka_set(settings->properties, "queued.max.messages.kbytes",
                         kilobytes, error);
}

static enum skr_code
set_properties(const struct skr_url *url, struct kafka_settings *settings,
               struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const char *name = url->parameters[i].name;
        if (skr_text_is_among(name, own_parameters,
                              SKR_COUNT_OF(own_parameters)) ||
            skr_text_starts_with(name, "topics["))
            continue;
        code = skr_kafka_check_property(name, error);
        if (code == SKR_OK)
            code = skr_kafka_set(settings->properties, name,
                                 url->parameters[i].value, error);
    }
    return code;
}

static enum skr_code
read_properties(const struct skr_url *url, struct kafka_settings *settings,
                bool consumes, struct skr_error *error)
{
    settings->properties = rd_kafka_conf_new();
    if (settings->properties == NULL)
        return skr_fail_memory(error);
    enum skr_code code = set_defaults(url, settings, consumes, error);
    if (code == SKR_OK)
        code = set_security(url, settings, error);
    if (code == SKR_OK)
        code = set_files(url, settings, error);
    if (code == SKR_OK)
        code = set_properties(url, settings, error);
    if (code == SKR_OK)
        code = check_tls(url, settings, error);
    if (code == SKR_OK)
        code = skr_kafka_set(settings->properties, "bootstrap.servers",
                             settings->brokers, error);
    return code;
}

enum skr_code
skr_kafka_settings_read(const struct skr_url *url, bool auto_setup,
                        bool consumes, struct kafka_settings *settings,
                        struct skr_error *error)
{
    const char *group = skr_url_find(url, "group");
    if (group == NULL)
        group = skr_url_find(url, "group.id");
    *settings = (struct kafka_settings){.auto_setup = auto_setup};
    enum skr_code code = read_brokers(url, settings, error);
    if (code == SKR_OK)
        code = read_topics(url, consumes, settings, error);
    if (code == SKR_OK)
        code = keep(settings, group == NULL ? "skirnir" : group,
                    &settings->group, error);
    settings->is_consumed = settings->is_consumed || group != NULL;
    if (code == SKR_OK)
        code = read_partitioner(url, settings, error);
    if (code == SKR_OK)
        code = read_missing_topic(url, settings, error);
    if (code == SKR_OK)
        code = read_switch(url, "derive_ids", &settings->derives_ids, error);
    if (code == SKR_OK)
        code = read_switch(url, "auto_setup", &settings->auto_setup, error);
    if (code == SKR_OK)
        code = read_seconds(url, "connect_timeout", DEFAULT_CONNECT_S,
                            &settings->connect_timeout_ms, error);
    if (code == SKR_OK)
        code = read_seconds(url, "confirm_timeout", DEFAULT_CONFIRM_S,
                            &settings->confirm_timeout_ms, error);
    if (code == SKR_OK)
        code = read_properties(url, settings, consumes, error);
    return code;
}

void
skr_kafka_settings_fini(struct kafka_settings *settings)
{
    if (settings->properties != NULL)
        rd_kafka_conf_destroy(settings->properties);
    skr_arena_fini(&settings->arena);
    *settings = (struct kafka_settings){0};
}
