// SPDX-License-Identifier: MIT
// Reads librdkafka's statistics JSON: which brokers are down or silent, and
// which partitions have no leader.

#include "broker/kafka/view.h"

#include "base/error.h"
#include "base/text.h"
#include "message/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { US_A_MS = 1000 };

static const struct skr_json *
find(const struct skr_json *object, const char *name)
{
    const struct skr_json *member = object == NULL ? NULL : object->first;
    while (member != NULL && strcmp(member->name, name) != 0)
        member = member->next;
    return member;
}

static const char *
text_of(const struct skr_json *object, const char *name)
{
    const struct skr_json *member = find(object, name);
    return member == NULL || member->text == NULL ? "" : member->text;
}

static int64_t
number_of(const struct skr_json *object, const char *name)
{
    return strtoll(text_of(object, name), NULL, 10);
}

static bool
is_up(const struct skr_json *broker)
{
    return strcmp(text_of(broker, "state"), "UP") == 0;
}

// One that librdkafka has no need of is not connected, and not missed.
static bool
is_away(const struct skr_json *broker)
{
    return !is_up(broker) && strcmp(text_of(broker, "state"), "INIT") != 0;
}

// A member that waits for the others of its group is answered when all are
// there.
static bool
is_joining(const struct skr_json *group)
{
    static const char *const states[] = {"wait-join", "wait-metadata",
                                         "wait-sync"};
    return skr_text_is_among(text_of(group, "join_state"), states,
                             SKR_COUNT_OF(states));
}

// A broker that was asked nothing for a while has answered nothing either: it
// does not owe an answer for longer than since the last request.
static bool
is_silent(const struct skr_json *broker, int64_t patience_ms)
{
    return is_up(broker) && number_of(broker, "waitresp_cnt") > 0 &&
           number_of(broker, "txidle") > patience_ms * US_A_MS &&
           number_of(broker, "rxidle") > patience_ms * US_A_MS;
}

static void
read_brokers(const struct skr_json *brokers, const struct skr_json *group,
             int64_t patience_ms, struct kafka_view *view)
{
    bool any_up = false, any_silent = false;
    const struct skr_json *broker = brokers == NULL ? NULL : brokers->first;
    for (; broker != NULL; broker = broker->next) {
        bool is_logical = strcmp(text_of(broker, "source"), "logical") == 0;
        if (is_logical && is_joining(group))
            continue;
        bool has_spoken = number_of(broker, "rx") > 0 &&
                          number_of(broker, "rxidle") <= patience_ms * US_A_MS;
        any_up = any_up || is_up(broker);
        any_silent = any_silent || is_silent(broker, patience_ms);
        view->has_answered =
            view->has_answered || (is_up(broker) && has_spoken);
    }
    view->is_down = !view->has_answered && (any_silent || !any_up);
}

static const struct skr_json *
find_broker(const struct skr_json *brokers, int64_t id)
{
    const struct skr_json *broker = brokers == NULL ? NULL : brokers->first;
    while (broker != NULL &&
           (number_of(broker, "nodeid") != id ||
            strcmp(text_of(broker, "source"), "logical") == 0))
        broker = broker->next;
    return broker;
}

// That a consumer fetches from, or that a producer has messages for.
static bool
is_needed(const struct skr_json *partition)
{
    static const char *const idle[] = {"", "none", "stopping", "stopped"};
    return number_of(partition, "partition") >= 0 &&
           (!skr_text_is_among(text_of(partition, "fetch_state"), idle,
                               SKR_COUNT_OF(idle)) ||
            number_of(partition, "msgq_cnt") +
                    number_of(partition, "xmit_msgq_cnt") +
                    number_of(partition, "msgs_inflight") >
                0);
}

// False: nothing is wrong with it.
static bool
judge_partition(const struct skr_json *partition, const char *topic,
                const struct skr_json *brokers, int64_t patience_ms,
                struct kafka_view *view)
{
    int64_t id = number_of(partition, "leader");
    long long number = number_of(partition, "partition");
    const struct skr_json *leader = find_broker(brokers, id);
    if (id < 0) {
        snprintf(view->missing, sizeof(view->missing),
                 "partition %lld of topic %.80s has no leader", number, topic);
        return true;
    }
    if (leader == NULL || (!is_away(leader) && !is_silent(leader, patience_ms)))
        return false;
    snprintf(view->missing, sizeof(view->missing),
             "partition %lld of topic %.80s: broker %.60s, its leader, %s",
             number, topic, leader->name,
             is_away(leader) ? "is away" : "does not answer");
    return true;
}

static void
read_topics(const struct skr_json *topics, const struct skr_json *brokers,
            int64_t patience_ms, struct kafka_view *view)
{
    const struct skr_json *topic = topics == NULL ? NULL : topics->first;
    bool is_found = false;
    for (; topic != NULL && !is_found; topic = topic->next) {
        const struct skr_json *partitions = find(topic, "partitions");
        const struct skr_json *partition =
            partitions == NULL ? NULL : partitions->first;
        for (; partition != NULL && !is_found; partition = partition->next)
            is_found = is_needed(partition) &&
                       judge_partition(partition, topic->name, brokers,
                                       patience_ms, view);
    }
}

static void
read_group(const struct skr_json *group, const struct skr_json *brokers,
           int64_t patience_ms, struct kafka_view *view)
{
    const char *state = text_of(group, "state");
    const struct skr_json *coordinator = find(brokers, "GroupCoordinator");
    if (group == NULL || strcmp(state, "init") == 0)
        return;
    bool is_known = strcmp(state, "up") == 0;
    if (is_known && (is_joining(group) || !is_silent(coordinator, patience_ms)))
        return;
    snprintf(view->missing, sizeof(view->missing),
             "the coordinator of the group %.60s%s",
             is_known ? text_of(coordinator, "nodename") : "",
             is_known ? " does not answer" : "is away");
}

enum skr_code
skr_kafka_view_read(const char *json, size_t size, int64_t patience_ms,
                    struct kafka_view *view, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_json *root = NULL;
    *view = (struct kafka_view){.is_down = false};
    enum skr_code code = skr_json_parse(&arena, json, size, 0, &root, error);
    if (code == SKR_OK) {
        const struct skr_json *brokers = find(root, "brokers");
        const struct skr_json *group = find(root, "cgrp");
        read_brokers(brokers, group, patience_ms, view);
        read_topics(find(root, "topics"), brokers, patience_ms, view);
        if (view->missing[0] == '\0')
            read_group(group, brokers, patience_ms, view);
    }
    skr_arena_fini(&arena);
    return code;
}
