// SPDX-License-Identifier: MIT
// What a DSN says of Kafka: see include/skirnir/kafka.h.

#ifndef SKR_BROKER_KAFKA_SETTINGS_H
#define SKR_BROKER_KAFKA_SETTINGS_H

#include "base/arena.h"

#include <librdkafka/rdkafka.h>
#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_url;

struct kafka_settings {
    struct skr_arena arena;  // all texts
    const char *brokers;     // "a:9092,b:9092": for librdkafka and for errors
    const char *topic;       // to publish to; NULL: as the route says
    const char **topics;     // to consume from
    size_t topic_count, topic_capacity;
    const char *group;
    bool is_consumed;  // the DSN says from which topics, or by which group
    bool is_fnv1a;  // which partition a key has: as in Sarama; else as in Java
    bool tls;       // the DSN asks for it, or names a certificate
    bool verify;    // that the server proves who it is
    int64_t prefetch_bytes;
    bool fails_missing_topics;
    bool derives_ids;
    bool auto_setup;
    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
    rd_kafka_conf_t *properties;  // what both kinds of client share
};

// fini() is needed after an error, too.
SKR_MUST_CHECK enum skr_code
skr_kafka_settings_read(const struct skr_url *url, bool auto_setup,
                        bool consumes, struct kafka_settings *settings,
                        struct skr_error *error);
void skr_kafka_settings_fini(struct kafka_settings *settings);

// Sets a property of librdkafka. Its value is never part of an error: it may be
// a password.
SKR_MUST_CHECK enum skr_code
skr_kafka_set(rd_kafka_conf_t *properties, const char *name, const char *value,
              struct skr_error *error);

// 1 to 249 letters, digits, dots, underscores and hyphens.
bool skr_kafka_is_topic(const char *text);

#endif
