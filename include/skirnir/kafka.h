// SPDX-License-Identifier: MIT
// Apache Kafka as a broker. Link with skirnir-kafka.

#ifndef SKIRNIR_KAFKA_H
#define SKIRNIR_KAFKA_H

#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

// URL: kafka://USER:PASSWORD@HOST:PORT/TOPIC. HOST may be a list,
// "a:9092,b:9092"; the port is 9092 by default. A user logs in by SASL, over
// TLS with the mechanism PLAIN; with security.protocol=sasl_plaintext by
// SCRAM-SHA-256. Servers are verified unless verify=0.
//
// Parameters, times in seconds: tls=1; cacert, cert, key (PEM files);
// connect_timeout=10; confirm_timeout=30, how long the brokers may be silent
// before the connection counts as lost. Any other name is a property of
// librdkafka, such as compression.type=lz4, linger.ms=5 or
// sasl.mechanisms=SCRAM-SHA-512. Those that the promises rest on (acks,
// idempotence, retries, commits of offsets) cannot be set.
//
// To publish: messages go to the topic that the route names, else to TOPIC,
// else to that of the message's full name. partitioner is murmur2, as Java has
// it, or fnv1a, as Sarama's hash partitioner has it. missing_topic says what
// becomes of messages to a topic that is missing, where the cluster makes none:
// they wait until it is there, or fail.
//
// To consume: topics=a,b (or topics[]=a, or TOPIC), in the consumer group
// group=skirnir. A new group begins with the oldest message
// (auto.offset.reset). derive_ids=true gives a message without an id one that
// is made from its place and time. auto_setup makes topics that are missing.
// A message that is to be tried again keeps its place: its partition waits for
// it, others go on. prefetch_bytes=16777216 bounds what is fetched ahead.
SKR_API extern const struct skr_broker_ops skr_kafka_broker;

#ifdef __cplusplus
}
#endif

#endif
