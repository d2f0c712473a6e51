// SPDX-License-Identifier: MIT
// What a consumer tells its group: how far each partition has come, and that a
// consumer has records of it in hand. The latter is a note beside the offset:
// the consumer that takes over from one that died finds it, and hands out those
// records one by one, since one of them may be what killed it.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/kafka/kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 5000 };

#define NOTE "skirnir "

static bool
add_position(rd_kafka_topic_partition_list_t *list, struct kafka_lane *lane,
             size_t in_hand)
{
    int64_t settled = skr_kafka_lane_settled(lane);
    bool is_open = in_hand > 0;
    if (settled < 0 || (settled == lane->committed && lane->is_open == is_open))
        return true;
    rd_kafka_topic_partition_t *partition =
        rd_kafka_topic_partition_list_add(list, lane->topic, lane->partition);
    partition->offset = settled;
    if (is_open) {
        char note[40];
        int size = snprintf(note, sizeof(note), NOTE "%zu", in_hand);
        partition->metadata = strdup(note);
        partition->metadata_size = (size_t)size;
        if (partition->metadata == NULL)
            return false;
    }
    lane->committed = settled;
    lane->is_open = is_open;
    return true;
}

static enum skr_code
send_positions(struct kafka_broker *broker,
               const rd_kafka_topic_partition_list_t *list, bool waits,
               struct skr_error *error)
{
    rd_kafka_t *handle = broker->client.handle;
    rd_kafka_resp_err_t result;
    if (!waits) {
        result = rd_kafka_commit(handle, list, 1);
    } else {
        // rd_kafka_commit() would wait for as long as it takes.
        rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
        result = rd_kafka_commit_queue(handle, list, queue, NULL, NULL);
        rd_kafka_event_t *event = result == RD_KAFKA_RESP_ERR_NO_ERROR
                                      ? rd_kafka_queue_poll(queue, ANSWER_MS)
                                      : NULL;
        if (result == RD_KAFKA_RESP_ERR_NO_ERROR)
            result = event == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT
                                   : rd_kafka_event_error(event);
        if (event != NULL)
            rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
    }
    if (result == RD_KAFKA_RESP_ERR_NO_ERROR)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "Kafka at %.60s did not take the offsets of group %.60s: "
                    "%s",
                    broker->settings.brokers, broker->settings.group,
                    rd_kafka_err2str(result));
}

// only NULL: all lanes.
static enum skr_code
commit_some(struct kafka_broker *broker,
            const rd_kafka_topic_partition_list_t *only, size_t in_hand,
            bool waits, struct skr_error *error)
{
    struct kafka_lanes *lanes = &broker->consumer.lanes;
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new(4);
    bool ok = true;
    for (struct kafka_lane *lane = lanes->first; lane != NULL && ok;
         lane = lane->next)
        if (only == NULL || rd_kafka_topic_partition_list_find(
                                only, lane->topic, lane->partition) != NULL)
            ok = add_position(list, lane, in_hand);
    enum skr_code code = ok ? SKR_OK : skr_fail_memory(error);
    if (code == SKR_OK && list->cnt > 0)
        code = send_positions(broker, list, waits, error);
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

enum skr_code
skr_kafka_commit(struct kafka_broker *broker, bool waits,
                 struct skr_error *error)
{
    return commit_some(broker, NULL, broker->consumer.capacity, waits, error);
}

static void
read_note(struct kafka_lane *lane, const rd_kafka_topic_partition_t *partition)
{
    char note[40];
    int64_t in_hand = 0;
    if (partition->offset < 0 || partition->metadata_size <= strlen(NOTE) ||
        partition->metadata_size >= sizeof(note) ||
        memcmp(partition->metadata, NOTE, strlen(NOTE)) != 0)
        return;
    memcpy(note, partition->metadata, partition->metadata_size);
    note[partition->metadata_size] = '\0';
    if (skr_text_number(note + strlen(NOTE), 1, INT32_MAX, &in_hand))
        lane->suspect_end = partition->offset + in_hand;
}

static void
take_on(struct kafka_broker *broker,
        const rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_topic_partition_list_t *known =
        rd_kafka_topic_partition_list_copy(partitions);
    rd_kafka_resp_err_t result =
        rd_kafka_committed(broker->client.handle, known, ANSWER_MS);
    for (int i = 0; i < known->cnt; i++) {
        const rd_kafka_topic_partition_t *partition = &known->elems[i];
        struct kafka_lane *lane = skr_kafka_lane_find(
            &broker->consumer.lanes, partition->topic, partition->partition);
        if (lane == NULL)
            lane = skr_kafka_lane_add(&broker->consumer.lanes, partition->topic,
                                      partition->partition);
        if (lane == NULL)
            broker->consumer.lacks_lane = true;
        else if (result == RD_KAFKA_RESP_ERR_NO_ERROR)
            read_note(lane, partition);
    }
    rd_kafka_topic_partition_list_destroy(known);
}

static void
let_go(struct kafka_broker *broker,
       const rd_kafka_topic_partition_list_t *partitions)
{
    struct kafka_lanes *lanes = &broker->consumer.lanes;
    struct skr_error problem = {0};
    // What is lost another has by now, and may have come further.
    if (!rd_kafka_assignment_lost(broker->client.handle) &&
        broker->client.down_since_ms == 0 &&
        commit_some(broker, partitions, 0, true, &problem) != SKR_OK)
        skr_log(&broker->client.log, SKR_LOG_WARNING, "kafka.not_committed",
                SKR_LOG_TEXT("error", problem.text));
    for (int i = 0; i < partitions->cnt; i++) {
        struct kafka_lane *lane = skr_kafka_lane_find(
            lanes, partitions->elems[i].topic, partitions->elems[i].partition);
        if (lane != NULL)
            skr_kafka_lane_remove(lanes, lane);
    }
}

static void
report_error(struct kafka_broker *broker, rd_kafka_error_t *problem)
{
    if (problem == NULL)
        return;
    skr_kafka_client_note(&broker->client, rd_kafka_error_code(problem),
                          rd_kafka_error_string(problem));
    rd_kafka_error_destroy(problem);
}

void
skr_kafka_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                       rd_kafka_topic_partition_list_t *partitions, void *user)
{
    struct kafka_broker *broker = skr_kafka_broker_of(user);
    const char *protocol = rd_kafka_rebalance_protocol(handle);
    bool is_incremental =
        protocol != NULL && strcmp(protocol, "COOPERATIVE") == 0;
    bool is_assigned = code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    skr_log(&broker->client.log, SKR_LOG_DEBUG, "kafka.rebalanced",
            SKR_LOG_TEXT("group", broker->settings.group),
            SKR_LOG_TEXT("change", is_assigned ? "given" : "taken"),
            SKR_LOG_NUMBER("partitions", partitions->cnt));
    broker->consumer.is_member = is_assigned || is_incremental;
    if (is_assigned) {
        take_on(broker, partitions);
        if (is_incremental)
            report_error(broker,
                         rd_kafka_incremental_assign(handle, partitions));
        else
            rd_kafka_assign(handle, partitions);
        return;
    }
    let_go(broker, partitions);
    if (is_incremental)
        report_error(broker, rd_kafka_incremental_unassign(handle, partitions));
    else
        rd_kafka_assign(handle, NULL);
}
