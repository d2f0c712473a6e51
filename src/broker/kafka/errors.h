// SPDX-License-Identifier: MIT
// What librdkafka says of a message, as a fate.

#ifndef SKR_BROKER_KAFKA_ERRORS_H
#define SKR_BROKER_KAFKA_ERRORS_H

#include "broker/broker.h"

#include <librdkafka/rdkafka.h>

enum kafka_blame {
    KAFKA_BLAME_MESSAGE,   // or another of its batch
    KAFKA_BLAME_TOPIC,     // nothing can go there now
    KAFKA_BLAME_BROKER,    // may pass later
    KAFKA_BLAME_PRODUCER,  // it has ended: a new one has to send this again
};

enum kafka_blame skr_kafka_blame(rd_kafka_resp_err_t code);
bool skr_kafka_is_missing_topic(rd_kafka_resp_err_t code);

// Why a finished one was not confirmed.
struct kafka_entry;
void
skr_kafka_explain(const struct kafka_entry *entry, struct skr_error *reason);

#endif
