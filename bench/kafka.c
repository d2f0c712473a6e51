// SPDX-License-Identifier: MIT
#include "kafka.h"

#include "bench.h"

enum { PATIENCE_MS = 30000 };

rd_kafka_t *
skr_bench_kafka_open(rd_kafka_type_t type, const char *brokers,
                     const struct skr_bench_property *properties, size_t count,
                     void (*on_report)(rd_kafka_t *handle,
                                       const rd_kafka_message_t *message,
                                       void *user),
                     void *user)
{
    char reason[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, reason,
                          sizeof(reason)) != RD_KAFKA_CONF_OK)
        skr_bench_die(brokers, reason);
    for (size_t i = 0; i < count; i++)
        if (rd_kafka_conf_set(conf, properties[i].name, properties[i].value,
                              reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
            skr_bench_die(properties[i].name, reason);
    if (on_report != NULL)
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_opaque(conf, user);
    rd_kafka_t *handle = rd_kafka_new(type, conf, reason, sizeof(reason));
    if (handle == NULL)
        skr_bench_die(brokers, reason);
    return handle;
}

int32_t
skr_bench_kafka_partitions(rd_kafka_t *handle, const char *topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *asked = rd_kafka_topic_new(handle, topic, NULL);
    rd_kafka_resp_err_t code =
        rd_kafka_metadata(handle, 0, asked, &metadata, PATIENCE_MS);
    rd_kafka_topic_destroy(asked);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        skr_bench_die(topic, rd_kafka_err2str(code));
    int32_t count = metadata->topic_cnt == 1
                        ? (int32_t)metadata->topics[0].partition_cnt
                        : 0;
    rd_kafka_metadata_destroy(metadata);
    return count;
}

uint64_t
skr_bench_kafka_count(rd_kafka_t *handle, const char *topic, int32_t partitions)
{
    uint64_t count = 0;
    for (int32_t i = 0; i < partitions; i++) {
        int64_t first = 0, next = 0;
        rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
            handle, topic, i, &first, &next, PATIENCE_MS);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
            skr_bench_die(topic, rd_kafka_err2str(code));
        count += (uint64_t)next;
    }
    return count;
}
