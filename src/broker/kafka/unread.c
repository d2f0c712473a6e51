// SPDX-License-Identifier: MIT
// A topic that its group goes without. The leader of a group asks one broker
// which partitions there are, and a broker may not have heard yet of a topic
// that was made just now. librdkafka then gives out nothing of it and has no
// reason to try again: it knew the topic when it joined. So a consumer that is
// given nothing of a topic asks who has it, and has the group divide it anew if
// no member does.

#include "base/clock.h"
#include "broker/kafka/kafka.h"

#include <string.h>

// An answer may wait behind a fetch.
enum { FIRST_MS = 1000, LONGEST_MS = 60000, ANSWER_MS = 2000 };

static bool
is_ours(const struct kafka_broker *broker, const char *topic)
{
    const struct kafka_assigned *assigned = broker->consumer.assignment.first;
    while (assigned != NULL && strcmp(assigned->topic, topic) != 0)
        assigned = assigned->next;
    return assigned != NULL;
}

static void
plan(struct kafka_unread *unread)
{
    unread->backoff.first_ms = FIRST_MS;
    unread->backoff.longest_ms = LONGEST_MS;
    unread->ask_ms = skr_clock_ms() + skr_backoff_next(&unread->backoff);
}

struct bytes {
    const unsigned char *at;
    size_t left;
};

// The next number of so many bytes, the highest first. Where they end it is 0,
// and nothing is left.
static uint32_t
take_number(struct bytes *bytes, size_t size)
{
    uint32_t number = 0;
    if (bytes->left < size)
        bytes->left = size = 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | bytes->at[i];
    bytes->at += size;
    bytes->left -= size;
    return number;
}

static bool
take_topic(struct bytes *bytes, const char *topic)
{
    size_t size = take_number(bytes, 2);
    bool is_it = size <= bytes->left && size == strlen(topic) &&
                 memcmp(bytes->at, topic, size) == 0;
    size = size <= bytes->left ? size : bytes->left;
    bytes->at += size;
    bytes->left -= size;
    uint32_t partitions = take_number(bytes, 4);
    for (uint32_t i = 0; i < partitions && bytes->left > 0; i++)
        take_number(bytes, 4);
    return is_it && partitions > 0;
}

// A member's assignment is a version, a count, and topics with the numbers of
// their partitions.
static bool
has_topic(const struct rd_kafka_group_member_info *member, const char *topic)
{
    struct bytes bytes = {member->member_assignment,
                          (size_t)member->member_assignment_size};
    take_number(&bytes, 2);
    uint32_t topics = take_number(&bytes, 4);
    bool has = false;
    for (uint32_t i = 0; i < topics && bytes.left > 0 && !has; i++)
        has = take_topic(&bytes, topic);
    return has;
}

static bool
is_read(const struct rd_kafka_group_info *group, const char *topic)
{
    for (int i = 0; i < group->member_cnt; i++)
        if (has_topic(&group->members[i], topic))
            return true;
    return false;
}

// Whether nothing of some topic is ours, nor of a member of the group, which
// may be NULL. What a pattern stands for is not known here.
static bool
lacks_any(const struct kafka_broker *broker,
          const struct rd_kafka_group_info *group)
{
    for (size_t i = 0; i < broker->settings.topic_count; i++) {
        const char *topic = broker->settings.topics[i];
        if (topic[0] != '^' && !is_ours(broker, topic) &&
            (group == NULL || !is_read(group, topic)))
            return true;
    }
    return false;
}

void
skr_kafka_unread_note(struct kafka_broker *broker)
{
    struct kafka_unread *unread = &broker->consumer.unread;
    unread->ask_ms = 0;
    if (lacks_any(broker, NULL))
        plan(unread);
    else
        skr_backoff_reset(&unread->backoff);
}

// Subscribed once more to the same topics, a member joins its group anew.
static void
join_again(struct kafka_broker *broker)
{
    rd_kafka_topic_partition_list_t *topics = NULL;
    if (rd_kafka_subscription(broker->client.handle, &topics) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    skr_log(&broker->client.log, SKR_LOG_DEBUG, "kafka.joined_again",
            SKR_LOG_TEXT("group", broker->settings.group));
    rd_kafka_subscribe(broker->client.handle, topics);
    rd_kafka_topic_partition_list_destroy(topics);
}

// Groups that are being divided tell nothing: that is asked again later.
static void
judge(struct kafka_broker *broker, const struct rd_kafka_group_list *groups)
{
    if (groups->group_cnt == 0 ||
        strcmp(groups->groups[0].state, "Stable") != 0)
        plan(&broker->consumer.unread);
    else if (lacks_any(broker, &groups->groups[0]))
        join_again(broker);
}

void
skr_kafka_unread_look_after(struct kafka_broker *broker)
{
    struct kafka_unread *unread = &broker->consumer.unread;
    const struct rd_kafka_group_list *groups = NULL;
    if (unread->ask_ms == 0 || skr_clock_ms() < unread->ask_ms)
        return;
    unread->ask_ms = 0;
    // librdkafka 2.0 can ask without waiting, but hangs after some errors then.
    rd_kafka_resp_err_t native = rd_kafka_list_groups(
        broker->client.handle, broker->settings.group, &groups, ANSWER_MS);
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR ||
        native == RD_KAFKA_RESP_ERR__PARTIAL)
        judge(broker, groups);
    else
        plan(unread);
    if (groups != NULL)
        rd_kafka_group_list_destroy(groups);
}
