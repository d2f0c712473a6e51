// SPDX-License-Identifier: MIT
// Reads a kafka:// DSN into settings and librdkafka's configuration object,
// with the security protocol that its login and TLS options ask for. Of
// librdkafka's properties a DSN may set some; those that it may not would break
// a promise, run code or weaken TLS.

#include "broker/kafka/settings.h"

#include "base/error.h"
#include "base/nearest.h"
#include "base/text.h"
#include "base/url.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// Identity, login, TLS, network and pace: none of them changes what is promised
// of a message. skirnir.yaml(5) has the same list.
static const char *const allowed[] = {
    "auto.offset.reset",
    "batch.num.messages",
    "batch.size",
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.id",
    "client.rack",
    "compression.codec",
    "compression.level",
    "compression.type",
    "connections.max.idle.ms",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.id",
    "heartbeat.interval.ms",
    "linger.ms",
    "log.connection.close",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.max.bytes",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "sasl.kerberos.keytab",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.sigalgs.list",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
};

#define PROMISE "that no message is lost or passed rests on it"
#define CODE "it runs a program, or loads code, in this process"
#define LOG "librdkafka's own diagnosis is not for a log that others read"
#define PROOF "verify=0 gives up that the server proves who it is"
#define BOUNDS "in_flight and in_flight_bytes bound what is under way"
#define PLACE "the host of the DSN says where the brokers are"

static const struct {
    const char *name, *reason;
} refused[] = {
    {"acks", PROMISE},
    {"request.required.acks", PROMISE},
    {"enable.idempotence", PROMISE},
    {"enable.gapless.guarantee", PROMISE},
    {"message.timeout.ms", PROMISE},
    {"delivery.timeout.ms", PROMISE},
    {"message.send.max.retries", PROMISE},
    {"retries", PROMISE},
    {"max.in.flight", PROMISE},
    {"max.in.flight.requests.per.connection", PROMISE},
    {"delivery.report.only.error", PROMISE},
    {"queuing.strategy", PROMISE},
    {"transactional.id", PROMISE},
    {"sticky.partitioning.linger.ms", PROMISE},
    {"topic.blacklist", PROMISE},
    {"isolation.level", PROMISE},
    {"enable.auto.commit", PROMISE},
    {"auto.commit.enable", PROMISE},
    {"auto.commit.interval.ms", PROMISE},
    {"enable.auto.offset.store", PROMISE},
    {"enable.partition.eof", PROMISE},
    {"offset.store.method", PROMISE},
    {"offset.store.path", PROMISE},
    {"offset.store.sync.interval.ms", PROMISE},
    {"test.mock.num.brokers", "messages would go to brokers that are none"},
    {"test.mock.broker.rtt", "messages would go to brokers that are none"},
    {"plugin.library.paths", CODE},
    {"interceptors", CODE},
    {"ssl.engine.id", CODE},
    {"ssl.engine.location", CODE},
    {"ssl.providers", CODE},
    {"sasl.kerberos.kinit.cmd", CODE},
    {"enable.ssl.certificate.verification", PROOF},
    {"ssl.endpoint.identification.algorithm", PROOF},
    {"sasl.oauthbearer.config", "it is for tokens that nobody has signed"},
    {"enable.sasl.oauthbearer.unsecure.jwt",
     "it is for tokens that nobody has signed"},
    {"debug", LOG},
    {"log_level", LOG},
    {"statistics.interval.ms", LOG},
    {"queue.buffering.max.messages", BOUNDS},
    {"queue.buffering.max.kbytes", BOUNDS},
    {"queue.buffering.backpressure.threshold", BOUNDS},
    {"bootstrap.servers", PLACE},
    {"metadata.broker.list", PLACE},
    {"allow.auto.create.topics", "auto_setup makes topics that are missing"},
    {"group.instance.id", "consumers of one process would push each other out"},
};

enum {
    DEFAULT_PORT = 9092,
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_CONFIRM_MS = 25000,
    MOST_MS = 3600000,
    DEFAULT_PREFETCH_BYTES = 16 * 1024 * 1024,
    LONGEST_TOPIC = 249,
};

#define AT(field) .place = offsetof(struct kafka_settings, field)

static const struct skr_url_option own[] = {
    {"auto_setup", SKR_URL_BOOLEAN, AT(auto_setup)},
    {"confirm_timeout", SKR_URL_SECONDS, AT(confirm_timeout_ms), .least = 1000,
     .most = MOST_MS},
    {"connect_timeout", SKR_URL_SECONDS, AT(connect_timeout_ms), .least = 1000,
     .most = MOST_MS},
    {"derive_ids", SKR_URL_BOOLEAN, AT(derives_ids)},
    {"group", SKR_URL_TEXT, AT(group)},
    {"missing_topic", SKR_URL_CHOICE, AT(fails_missing_topics),
     .words = {"wait", "fail"}},
    {"partitioner", SKR_URL_CHOICE, AT(is_fnv1a),
     .words = {"murmur2", "fnv1a"}},
    {"prefetch_bytes", SKR_URL_NUMBER, AT(prefetch_bytes), .least = 1024,
     .most = INT64_C(2) << 30},
    {"tls", SKR_URL_BOOLEAN, AT(tls)},
    {.name = "topic"},
    {.name = "topic_by"},
    {.name = "topics"},
    {.name = "topics["},
    {"verify", SKR_URL_BOOLEAN, AT(verify)},
};

static bool
is_of_librdkafka(const char *name)
{
    rd_kafka_conf_t *properties = rd_kafka_conf_new();
    size_t size = 0;
    bool is_known =
        properties != NULL &&
        rd_kafka_conf_get(properties, name, NULL, &size) == RD_KAFKA_CONF_OK;
    if (properties != NULL)
        rd_kafka_conf_destroy(properties);
    return is_known;
}

// Sets nothing: some properties run code as soon as they are set.
static enum skr_code
check_property(const char *name, struct skr_error *error)
{
    struct skr_nearest nearest = {.name = name};
    if (skr_text_is_among(name, allowed, SKR_COUNT_OF(allowed)))
        return SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(refused); i++)
        if (strcmp(refused[i].name, name) == 0)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "%s in the DSN cannot be set: %s", name,
                            refused[i].reason);
    if (is_of_librdkafka(name))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.60s in the DSN cannot be set: it is not among the "
                        "properties of librdkafka that skirnir.yaml(5) lists, "
                        "which break no promise",
                        name);
    for (size_t i = 0; i < SKR_COUNT_OF(own); i++)
        skr_nearest_compare(&nearest, own[i].name, own[i].name);
    for (size_t i = 0; i < SKR_COUNT_OF(allowed); i++)
        skr_nearest_compare(&nearest, allowed[i], allowed[i]);
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%.60s in the DSN is neither a parameter of kafka:// nor "
                    "a property that librdkafka %s knows%s%s%s",
                    name, rd_kafka_version_str(),
                    nearest.meant == NULL ? "" : "; did you mean ",
                    nearest.meant == NULL ? "" : nearest.meant,
                    nearest.meant == NULL ? "" : "?");
}

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
        return skr_arena_keep(&settings->arena, url->host, &settings->brokers,
                              error);
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
        const char **grown = skr_arena_grow(
            &settings->arena, settings->topics, settings->topic_count,
            &settings->topic_capacity, sizeof(*grown));
        char *topic = skr_arena_text(&settings->arena, at, size);
        if (grown == NULL || topic == NULL)
            return skr_fail_memory(error);
        // One that begins with ^ is a pattern.
        if (topic[0] != '^' && !skr_kafka_is_topic(topic))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "topics in the DSN: '%.60s' is no name of a topic",
                            topic);
        settings->topics = grown;
        grown[settings->topic_count++] = topic;
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
        return skr_arena_keep(&settings->arena, topic, &settings->topic, error);
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++)
        if (strcmp(url->parameters[i].name, "topics") == 0 ||
            skr_text_starts_with(url->parameters[i].name, "topics["))
            code = add_topics(settings, url->parameters[i].value, error);
    settings->is_consumed = settings->topic_count > 0;
    if (code == SKR_OK && settings->topic_count == 0 && topic != NULL)
        code = add_topics(settings, topic, error);
    return code;
}

// A DSN that names a certificate does not mean plaintext, unless tls=0 says so.
static bool
names_certificate(const struct skr_url *url)
{
    static const char *const files[] = {"cacert",
                                        "cert",
                                        "key",
                                        "ssl.ca.location",
                                        "ssl.ca.pem",
                                        "ssl.certificate.location",
                                        "ssl.certificate.pem",
                                        "ssl.key.location",
                                        "ssl.keystore.location"};
    for (size_t i = 0; i < SKR_COUNT_OF(files); i++) {
        const char *file = skr_url_find(url, files[i]);
        if (file != NULL && file[0] != '\0')
            return true;
    }
    return false;
}

static enum skr_code
check_tls(const struct kafka_settings *settings, struct skr_error *error)
{
    char protocol[32] = "";
    size_t size = sizeof(protocol);
    if (!settings->tls ||
        (rd_kafka_conf_get(settings->properties, "security.protocol", protocol,
                           &size) == RD_KAFKA_CONF_OK &&
         strstr(protocol, "ssl") != NULL))
        return SKR_OK;
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
    enum skr_code code = SKR_OK;
    bool logs_in = url->user != NULL;
    bool is_clear =
        protocol != NULL && strcasecmp(protocol, "sasl_plaintext") == 0;
    if (protocol == NULL && (settings->tls || logs_in))
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
set_proof(struct kafka_settings *settings, struct skr_error *error)
{
    bool verify = settings->verify;
    enum skr_code code = skr_kafka_set(settings->properties,
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
set_defaults(struct kafka_settings *settings, bool consumes,
             struct skr_error *error)
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
    char kilobytes[24];
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(defaults) && code == SKR_OK; i++)
        if (consumes || !defaults[i].of_consumers)
            code = skr_kafka_set(settings->properties, defaults[i].name,
                                 defaults[i].value, error);
    if (code != SKR_OK || !consumes)
        return code;
    snprintf(kilobytes, sizeof(kilobytes), "%lld",
             (long long)(settings->prefetch_bytes + 1023) / 1024);
    return skr_kafka_set(settings->properties, "queued.max.messages.kbytes",
                         kilobytes, error);
}

// NULL: it is none of librdkafka's. Those of TLS have the names that they have
// in the DSNs of other drivers, too.
static const char *
property_of(const char *name)
{
    if (strcmp(name, "cacert") == 0)
        return "ssl.ca.location";
    if (strcmp(name, "cert") == 0)
        return "ssl.certificate.location";
    if (strcmp(name, "key") == 0)
        return "ssl.key.location";
    return skr_url_is_option(name, own, SKR_COUNT_OF(own)) ? NULL : name;
}

static enum skr_code
set_properties(const struct skr_url *url, struct kafka_settings *settings,
               struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < url->parameter_count && code == SKR_OK; i++) {
        const char *name = property_of(url->parameters[i].name);
        if (name == NULL)
            continue;
        code = check_property(name, error);
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
    enum skr_code code = set_defaults(settings, consumes, error);
    if (code == SKR_OK)
        code = set_security(url, settings, error);
    if (code == SKR_OK)
        code = set_proof(settings, error);
    if (code == SKR_OK)
        code = set_properties(url, settings, error);
    if (code == SKR_OK)
        code = check_tls(settings, error);
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
    const char *group_id = skr_url_find(url, "group.id");
    *settings = (struct kafka_settings){
        .tls = names_certificate(url),
        .verify = true,
        .prefetch_bytes = DEFAULT_PREFETCH_BYTES,
        .auto_setup = auto_setup,
        .connect_timeout_ms = DEFAULT_CONNECT_MS,
        .confirm_timeout_ms = DEFAULT_CONFIRM_MS,
    };
    enum skr_code code = read_brokers(url, settings, error);
    if (code == SKR_OK)
        code = read_topics(url, consumes, settings, error);
    if (code == SKR_OK)
        code = skr_arena_keep(&settings->arena,
                              group_id == NULL ? "skirnir" : group_id,
                              &settings->group, error);
    if (code == SKR_OK)
        code = skr_url_read(url, own, SKR_COUNT_OF(own), &settings->arena,
                            settings, error);
    settings->is_consumed = settings->is_consumed || group_id != NULL ||
                            skr_url_find(url, "group") != NULL;
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
