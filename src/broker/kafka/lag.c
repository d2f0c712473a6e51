// SPDX-License-Identifier: MIT
// How far a group is behind the topics that it reads.

#include "base/error.h"
#include "broker/kafka/kafka.h"

#include <regex.h>
#include <string.h>

// A topic that begins with ^ is a pattern, as for a subscription.
static bool
is_matched(const char *wanted, const char *name)
{
    regex_t pattern;
    if (wanted[0] != '^')
        return strcmp(wanted, name) == 0;
    if (regcomp(&pattern, wanted, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    bool matches = regexec(&pattern, name, 0, NULL, 0) == 0;
    regfree(&pattern);
    return matches;
}

static void
add_partitions(const struct kafka_settings *settings,
               const struct rd_kafka_metadata *metadata,
               rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *topic = &metadata->topics[i];
        bool is_wanted = false;
        for (size_t k = 0; k < settings->topic_count && !is_wanted; k++)
            is_wanted = is_matched(settings->topics[k], topic->topic);
        for (int p = 0; is_wanted && p < topic->partition_cnt; p++)
            rd_kafka_topic_partition_list_add(partitions, topic->topic,
                                              topic->partitions[p].id);
    }
}

static enum skr_code
check_topics(const struct kafka_settings *settings,
             const rd_kafka_topic_partition_list_t *partitions,
             struct skr_error *error)
{
    for (size_t i = 0; i < settings->topic_count; i++) {
        const char *name = settings->topics[i];
        bool is_there = name[0] == '^';
        for (int p = 0; p < partitions->cnt && !is_there; p++)
            is_there = strcmp(partitions->elems[p].topic, name) == 0;
        if (!is_there)
            return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                            "topic %.100s does not exist on Kafka at %.60s",
                            name, settings->brokers);
    }
    return SKR_OK;
}

// Whether anybody reads by the name of the group: the transport may be there
// to publish to.
static bool
is_read(const struct kafka_broker *broker,
        const rd_kafka_topic_partition_list_t *partitions,
        const struct skr_depth *depth)
{
    bool is_committed = false;
    for (int i = 0; i < partitions->cnt && !is_committed; i++)
        is_committed = partitions->elems[i].offset >= 0;
    return broker->settings.is_consumed || is_committed || depth->consumers > 0;
}

// The group begins at the first message where it has not said how far it is,
// and where that is gone.
static enum skr_code
add_lag(struct kafka_broker *broker,
        const rd_kafka_topic_partition_list_t *partitions,
        struct skr_depth *depth, struct skr_error *error)
{
    for (int i = 0; i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *partition = &partitions->elems[i];
        int64_t first = 0, end = 0;
        rd_kafka_resp_err_t result = rd_kafka_query_watermark_offsets(
            broker->client.handle, partition->topic, partition->partition,
            &first, &end, (int)broker->settings.connect_timeout_ms);
        if (result != RD_KAFKA_RESP_ERR_NO_ERROR)
            return skr_kafka_client_fail(&broker->client,
                                         "does not tell of its offsets", error);
        int64_t from = partition->offset > first ? partition->offset : first;
        if (end > from)
            depth->messages += (uint64_t)(end - from);
        depth->written += (uint64_t)end;
    }
    depth->taken = depth->written - depth->messages;
    depth->has_totals = true;
    return SKR_OK;
}

static void
count_members(struct kafka_broker *broker, struct skr_depth *depth)
{
    const struct rd_kafka_group_list *groups = NULL;
    if (rd_kafka_list_groups(broker->client.handle, broker->settings.group,
                             &groups,
                             (int)broker->settings.connect_timeout_ms) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    depth->has_consumers = true;
    for (int i = 0; i < groups->group_cnt; i++)
        depth->consumers += (uint64_t)groups->groups[i].member_cnt;
    rd_kafka_group_list_destroy(groups);
}

enum skr_code
skr_kafka_depth(struct skr_broker *base, struct skr_depth *depth,
                struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    rd_kafka_t *handle = broker->client.handle;
    int timeout_ms = (int)broker->settings.connect_timeout_ms;
    const struct rd_kafka_metadata *metadata = NULL;
    *depth = (struct skr_depth){.messages = 0};
    if (rd_kafka_metadata(handle, 1, NULL, &metadata, timeout_ms) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return skr_kafka_client_fail(&broker->client,
                                     "does not tell of its topics", error);
    rd_kafka_topic_partition_list_t *partitions =
        rd_kafka_topic_partition_list_new(metadata->topic_cnt);
    add_partitions(&broker->settings, metadata, partitions);
    rd_kafka_metadata_destroy(metadata);
    enum skr_code code = SKR_OK;
    if (broker->settings.is_consumed)
        code = check_topics(&broker->settings, partitions, error);
    if (code == SKR_OK && rd_kafka_committed(handle, partitions, timeout_ms) !=
                              RD_KAFKA_RESP_ERR_NO_ERROR)
        code = skr_kafka_client_fail(
            &broker->client, "does not tell how far the group is", error);
    if (code == SKR_OK)
        code = add_lag(broker, partitions, depth, error);
    if (code == SKR_OK)
        count_members(broker, depth);
    if (code == SKR_OK)
        depth->has_messages = is_read(broker, partitions, depth);
    rd_kafka_topic_partition_list_destroy(partitions);
    return code;
}
