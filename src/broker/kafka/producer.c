// SPDX-License-Identifier: MIT
// The producer of librdkafka: its properties, its reports, its end.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/kafka/errors.h"
#include "broker/kafka/kafka.h"

#include <string.h>

enum { END_LIMIT_MS = 5000, END_POLL_MS = 50 };

static void
note_progress(struct kafka_broker *broker)
{
    broker->producer.progress_ms = skr_clock_ms();
    broker->producer.changes = 0;
}

static void
refuse(struct kafka_broker *broker, struct kafka_entry *entry,
       enum skr_fate fate, rd_kafka_resp_err_t result)
{
    note_progress(broker);
    skr_kafka_window_refuse(&broker->producer.window, entry, fate, result);
}

enum skr_fate
skr_kafka_topic_fate(const struct kafka_broker *broker,
                     rd_kafka_resp_err_t result)
{
    return broker->settings.fails_missing_topics &&
                   skr_kafka_is_missing_topic(result)
               ? SKR_REFUSED_FOR_GOOD
               : SKR_ROUTE_CLOSED;
}

static void
on_report(rd_kafka_t *handle, const rd_kafka_message_t *report, void *user)
{
    struct kafka_broker *broker = skr_kafka_broker_of(user);
    struct kafka_producer *producer = &broker->producer;
    struct kafka_entry *entry = report->_private;
    (void)handle;
    if (report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        skr_kafka_client_note_answer(&broker->client);
        note_progress(broker);
        skr_kafka_window_finish(&producer->window, entry, SKR_CONFIRMED,
                                report->err);
        return;
    }
    if (producer->is_ending)
        return;  // it stays open, for the next producer
    switch (skr_kafka_blame(report->err)) {
    case KAFKA_BLAME_MESSAGE:
        if (producer->is_careful)
            refuse(broker, entry, SKR_REFUSED_FOR_GOOD, report->err);
        break;
    case KAFKA_BLAME_BROKER:
        if (producer->is_careful)
            refuse(broker, entry, SKR_REFUSED_ONCE, report->err);
        break;
    case KAFKA_BLAME_TOPIC:
        refuse(broker, entry, skr_kafka_topic_fate(broker, report->err),
               report->err);
        return;
    case KAFKA_BLAME_PRODUCER: producer->must_change = true; return;
    }
    // It may be another's fault, and those behind it would pass: it stays open.
    if (!producer->is_careful)
        producer->must_change = producer->finds_blame = true;
}

// By the key for the partition, which may be another than the record's.
static int32_t
choose_partition(const rd_kafka_topic_t *topic, const void *key,
                 size_t key_size, int32_t count, void *user, void *message)
{
    const struct kafka_settings *settings = user;
    const struct kafka_entry *entry = message;
    if (entry->partition_key == NULL)
        return rd_kafka_msg_partitioner_random(topic, key, key_size, count,
                                               NULL, NULL);
    return skr_kafka_partition(settings->partitioner, entry->partition_key,
                               strlen(entry->partition_key), count);
}

static enum skr_code
set_promises(rd_kafka_conf_t *properties, bool is_careful,
             struct skr_error *error)
{
    const struct {
        const char *name, *value;
    } promises[] = {
        {"enable.idempotence", "true"},
        {"acks", "all"},
        {"message.timeout.ms", "0"},
        {"retries", "2147483647"},
        {"max.in.flight.requests.per.connection", is_careful ? "1" : "5"},
        // One message is under way, behind which nothing can pass.
        {"enable.gapless.guarantee", is_careful ? "false" : "true"},
        {"queue.buffering.max.messages", "10000000"},
        // Or records without a key would not be given to our partitioner.
        {"sticky.partitioning.linger.ms", "0"},
        {"topic.metadata.propagation.max.ms", "10000"},
    };
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(promises) && code == SKR_OK; i++)
        code = skr_kafka_set(properties, promises[i].name, promises[i].value,
                             error);
    if (code == SKR_OK && is_careful)
        code = skr_kafka_set(properties, "batch.num.messages", "1", error);
    return code;
}

enum skr_code
skr_kafka_producer_start(struct kafka_broker *broker, bool is_careful,
                         struct skr_error *error)
{
    rd_kafka_conf_t *properties =
        rd_kafka_conf_dup(broker->settings.properties);
    enum skr_code code = set_promises(properties, is_careful, error);
    if (code != SKR_OK) {
        rd_kafka_conf_destroy(properties);
        return code;
    }
    rd_kafka_conf_set_dr_msg_cb(properties, on_report);
    // Properties of topics are set through it: it is there already.
    rd_kafka_topic_conf_t *of_topics =
        rd_kafka_conf_get_default_topic_conf(properties);
    rd_kafka_topic_conf_set_opaque(of_topics, &broker->settings);
    rd_kafka_topic_conf_set_partitioner_cb(of_topics, choose_partition);
    code = skr_kafka_client_start(&broker->client, RD_KAFKA_PRODUCER, true,
                                  properties, error);
    broker->producer.is_careful = is_careful;
    broker->producer.must_change = false;
    broker->producer.progress_ms = skr_clock_ms();
    return code;
}

void
skr_kafka_producer_end(struct kafka_broker *broker)
{
    rd_kafka_t *handle = broker->client.handle;
    if (handle == NULL)
        return;
    broker->producer.is_ending = true;
    rd_kafka_purge(handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    // Reports that are here already count.
    int64_t end_ms = skr_clock_ms() + END_LIMIT_MS;
    while (rd_kafka_outq_len(handle) > 0 && skr_clock_ms() < end_ms)
        rd_kafka_poll(handle, END_POLL_MS);
    rd_kafka_destroy(handle);
    broker->client.handle = NULL;
    broker->producer.is_ending = false;
}
