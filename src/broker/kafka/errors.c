// SPDX-License-Identifier: MIT
// The table from librdkafka's error codes to publish results, and the advice
// that goes with them.

#include "broker/kafka/kafka.h"

#include "base/error.h"
#include "base/text.h"

#include <stdlib.h>

static const struct {
    rd_kafka_resp_err_t code;
    enum kafka_blame blame;
    const char *cure;
} errors[] = {
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, KAFKA_BLAME_MESSAGE,
     "it is larger than the topic takes; raise its max.message.bytes, or make "
     "the message smaller"},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, KAFKA_BLAME_MESSAGE,
     "it is larger than a segment of the topic's log"},
    {RD_KAFKA_RESP_ERR_INVALID_RECORD, KAFKA_BLAME_MESSAGE,
     "a topic that is compacted wants a key"},
    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, KAFKA_BLAME_MESSAGE,
     "its time is out of the topic's bounds"},
    {RD_KAFKA_RESP_ERR_POLICY_VIOLATION, KAFKA_BLAME_MESSAGE,
     "a policy of the cluster forbids it"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, KAFKA_BLAME_TOPIC,
     "it does not exist, and the cluster does not make it by itself; create "
     "it"},
    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, KAFKA_BLAME_TOPIC,
     "it does not exist, and the cluster does not make it by itself; create "
     "it"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, KAFKA_BLAME_TOPIC,
     "a partition of it is not there"},
    {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, KAFKA_BLAME_TOPIC,
     "the cluster takes no topic of that name"},
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, KAFKA_BLAME_TOPIC,
     "the user may not write to it; allow it by an ACL"},
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, KAFKA_BLAME_PRODUCER,
     "the user needs the right IdempotentWrite"},
    {RD_KAFKA_RESP_ERR__FATAL, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__PURGE_QUEUE, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__DESTROY, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_BLAME_PRODUCER,
     NULL},
    {RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, KAFKA_BLAME_PRODUCER, NULL},
};

enum kafka_blame
skr_kafka_blame(rd_kafka_resp_err_t code)
{
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].code == code)
            return errors[i].blame;
    return KAFKA_BLAME_BROKER;
}

static const char *
find_cure(rd_kafka_resp_err_t code, bool was_taken)
{
    // The client has a limit of its own, and says the same.
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && !was_taken)
        return "it is larger than this client sends; raise message.max.bytes "
               "in the DSN, or make the message smaller";
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].code == code && errors[i].cure != NULL)
            return errors[i].cure;
    return "it is tried again";
}

static enum skr_code
code_of(enum skr_publish_result result)
{
    switch (result) {
    case SKR_CONFIRMED: return SKR_OK;
    case SKR_REFUSED_FOR_NOW:
    case SKR_REFUSED_FOR_GOOD:
    case SKR_UNROUTABLE:
    case SKR_HELD_BACK: return SKR_REFUSED;
    case SKR_UNCERTAIN: return SKR_UNAVAILABLE;
    case SKR_ROUTE_UNAVAILABLE: return SKR_MISSING;
    }
    abort();
}

void
skr_kafka_explain(const struct kafka_entry *entry, struct skr_error *reason)
{
    skr_fail(reason, code_of(entry->result),
             entry->result == SKR_REFUSED_FOR_NOW ? SKR_TRY_AGAIN : SKR_GIVE_UP,
             "topic %.100s: %s (%s)", entry->topic,
             find_cure(entry->native, entry->was_taken),
             rd_kafka_err2name(entry->native));
    skr_error_set_native(reason, "%d", (int)entry->native);
}
