// SPDX-License-Identifier: MIT
// The librdkafka properties that a DSN may set, and those that it may not, each
// with the reason: they would break a promise, run code or weaken TLS.

#include "broker/kafka/properties.h"

#include "base/error.h"
#include "base/text.h"

#include <librdkafka/rdkafka.h>
#include <string.h>

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

enum skr_code
skr_kafka_check_property(const char *name, struct skr_error *error)
{
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
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%.60s in the DSN is neither a parameter of kafka:// nor "
                    "a property that librdkafka %s knows",
                    name, rd_kafka_version_str());
}
