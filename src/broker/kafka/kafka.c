// SPDX-License-Identifier: MIT
// Apache Kafka as a broker, on librdkafka.

#include "broker/kafka/kafka.h"

#include "base/error.h"

#include <skirnir/kafka.h>

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
    base->delays = true;
    enum skr_code code = skr_kafka_settings_read(
        url, options->auto_setup, reads, &broker->settings, error);
    if (code == SKR_OK && options->inspects)
        return skr_kafka_consumer_connect(broker, error);
    if (code == SKR_OK && options->consumes)
        return skr_kafka_consumer_start(broker, error);
    if (code == SKR_OK)
        code = skr_kafka_producer_start(broker, false, error);
    return code == SKR_OK ? skr_kafka_client_reach(&broker->client, error)
                          : code;
}

static void
kafka_close(struct skr_broker *base)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    if (broker->consumer.is_wanted)
        skr_kafka_consumer_end(broker);
    else
        skr_kafka_producer_end(broker);
    skr_kafka_window_fini(&broker->producer.window);
    skr_kafka_settings_fini(&broker->settings);
}

const struct skr_broker_ops skr_kafka_broker = {
    .scheme = "kafka",
    .size = sizeof(struct kafka_broker),
    .open = kafka_open,
    .close = kafka_close,
    .submit = skr_kafka_submit,
    .outcomes = skr_kafka_outcomes,
    .receive = skr_kafka_receive,
    .settle = skr_kafka_settle,
    .depth = skr_kafka_depth,
};
