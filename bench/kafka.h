// SPDX-License-Identifier: MIT
// Kafka, as little of it as the programs of the benchmark need. What goes wrong
// ends the program.

#ifndef SKR_BENCH_KAFKA_H
#define SKR_BENCH_KAFKA_H

#include <librdkafka/rdkafka.h>
#include <stdint.h>

struct skr_bench_property {
    const char *name, *value;
};

// brokers: HOST:PORT. on_report may be NULL.
rd_kafka_t *
skr_bench_kafka_open(rd_kafka_type_t type, const char *brokers,
                     const struct skr_bench_property *properties, size_t count,
                     void (*on_report)(rd_kafka_t *handle,
                                       const rd_kafka_message_t *message,
                                       void *user),
                     void *user);
// How many partitions a topic has; 0: it is not there.
int32_t skr_bench_kafka_partitions(rd_kafka_t *handle, const char *topic);
// How many records it ever had.
uint64_t skr_bench_kafka_count(rd_kafka_t *handle, const char *topic,
                               int32_t partitions);

#endif
