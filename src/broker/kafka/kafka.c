// SPDX-License-Identifier: MIT
// Apache Kafka as a broker, on librdkafka.

#include "broker/kafka/kafka.h"

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

#include <skirnir/kafka.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static enum skr_code
check_topics(const struct kafka_settings *settings, struct skr_error *error)
{
    if (settings->topic_count > 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "the DSN names no topic to consume from; add topics=NAME");
}

static enum skr_code
check_as(const struct skr_url *url, bool consumes, struct skr_error *error)
{
    struct kafka_settings settings;
    enum skr_code code =
        skr_kafka_settings_read(url, false, consumes, &settings, error);
    if (code == SKR_OK && consumes)
        code = check_topics(&settings, error);
    skr_kafka_settings_fini(&settings);
    return code;
}

// It is not known whether it is to publish to or to consume from: only a
// consumer may name several topics, or a pattern.
static enum skr_code
kafka_check_url(const char *text, const struct skr_url *url,
                const struct skr_log *log, struct skr_error *error)
{
    (void)text;
    (void)log;
    bool consumes = false;
    for (size_t i = 0; i < url->parameter_count; i++)
        consumes = consumes || strcmp(url->parameters[i].name, "topics") == 0 ||
                   skr_text_starts_with(url->parameters[i].name, "topics[");
    struct skr_error problem = {0};
    enum skr_code code = check_as(url, consumes, &problem);
    if (code == SKR_INVALID && !consumes && check_as(url, true, NULL) == SKR_OK)
        return SKR_OK;
    if (code != SKR_OK && error != NULL)
        *error = problem;
    return code;
}

static const char *
find_last(const struct skr_url *url, const char *name, const char *other)
{
    const char *value = NULL;
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0 ||
            strcmp(url->parameters[i].name, other) == 0)
            value = url->parameters[i].value;
    return value;
}

// SCRAM and Kerberos send no password; the token of OAUTHBEARER is as good as
// one.
static void
kafka_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct skr_host host;
    const char *protocol = find_last(url, "security.protocol", "");
    const char *mechanism = find_last(url, "sasl.mechanism", "sasl.mechanisms");
    said[0] = '\0';
    if (protocol == NULL || strcasecmp(protocol, "sasl_plaintext") != 0 ||
        mechanism == NULL ||
        (strcasecmp(mechanism, "PLAIN") != 0 &&
         strcasecmp(mechanism, "OAUTHBEARER") != 0) ||
        url->host == NULL || !skr_host_find_other(url->host, &host))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "sasl_plaintext with %.20s sends the login to %.80s in plaintext; "
             "take security.protocol out, or set sasl.mechanisms to "
             "SCRAM-SHA-512",
             mechanism, host.name);
}

static enum skr_code
kafka_open(struct skr_broker *base, const struct skr_url *url,
           const struct skr_broker_options *options, struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    bool reads = options->consumes || options->inspects;
    broker->consumer.is_wanted = reads;
    broker->consumer.ready_fd = -1;
    broker->client.settings = &broker->settings;
    broker->client.log = options->log;
    base->can.delays = true;
    enum skr_code code = skr_kafka_settings_read(
        url, options->auto_setup, reads, &broker->settings, error);
    if (code == SKR_OK && options->inspects)
        return skr_kafka_consumer_start(broker, false, error);
    if (code == SKR_OK && options->consumes)
        code = check_topics(&broker->settings, error);
    if (code == SKR_OK && options->consumes)
        return skr_kafka_consumer_start(broker, true, error);
    if (code == SKR_OK)
        code = skr_kafka_producer_start(broker, false, error);
    if (code == SKR_OK)
        code = skr_kafka_client_reach(&broker->client, base->wake_fd, error);
    return code;
}

static void
kafka_close(struct skr_broker *base)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    if (broker->consumer.is_wanted)
        skr_kafka_consumer_fini(broker);
    else
        skr_kafka_producer_fini(broker);
    skr_kafka_client_fini(&broker->client);
    skr_kafka_settings_fini(&broker->settings);
}

static enum skr_code
kafka_subscription(const struct skr_url *url,
                   struct skr_subscription *subscription,
                   struct skr_error *error)
{
    struct kafka_settings settings;
    *subscription = (struct skr_subscription){.server = "", .group = ""};
    enum skr_code code =
        skr_kafka_settings_read(url, false, true, &settings, error);
    if (code == SKR_OK && settings.is_consumed)
        *subscription = (struct skr_subscription){
            .server = settings.brokers,
            .group = settings.group,
            .topics = settings.topics,
            .topic_count = settings.topic_count,
        };
    // All texts are the caller's from now on.
    subscription->arena = settings.arena;
    settings.arena = (struct skr_arena){0};
    skr_kafka_settings_fini(&settings);
    return code;
}

static const char *const file_parameters[] = {"cacert",
                                              "cert",
                                              "key",
                                              "ssl.ca.location",
                                              "ssl.certificate.location",
                                              "ssl.crl.location",
                                              "ssl.key.location",
                                              "ssl.keystore.location",
                                              NULL};
static const struct skr_url_files files = {.parameters = file_parameters};

const struct skr_broker_ops skr_kafka_broker = {
    .scheme = "kafka",
    .size = sizeof(struct kafka_broker),
    .has_topics = true,
    .check_url = kafka_check_url,
    .exposure = kafka_exposure,
    .files = &files,
    .open = kafka_open,
    .close = kafka_close,
    .submit = skr_kafka_submit,
    .results = skr_kafka_results,
    .receive = skr_kafka_receive,
    .settle = skr_kafka_settle,
    .status = skr_kafka_status,
    .depth = skr_kafka_depth,
    .subscription = kafka_subscription,
};
