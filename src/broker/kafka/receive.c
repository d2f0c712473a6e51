// SPDX-License-Identifier: MIT
// Records for the caller: what is held and due first, then what was fetched.

#include "base/clock.h"
#include "base/error.h"
#include "broker/kafka/kafka.h"

#include <poll.h>
#include <unistd.h>

enum { LONGEST_WAIT_MS = 250 };

static void
set_paused(struct kafka_broker *broker, struct kafka_lane *lane, bool is_paused)
{
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, lane->topic, lane->partition);
    if (is_paused)
        rd_kafka_pause_partitions(broker->client.handle, one);
    else
        rd_kafka_resume_partitions(broker->client.handle, one);
    rd_kafka_topic_partition_list_destroy(one);
    lane->is_paused = is_paused;
}

static bool
is_beyond_mending(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR__FATAL;
}

static enum skr_code
judge_error(struct kafka_broker *broker, const rd_kafka_message_t *message,
            struct skr_error *error)
{
    const char *text = rd_kafka_message_errstr(message);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        struct kafka_lane *lane = skr_kafka_lane_find(
            &broker->consumer.lanes, rd_kafka_topic_name(message->rkt),
            message->partition);
        if (lane != NULL)
            lane->is_at_end = true;
        skr_kafka_client_note_answer(&broker->client);
        return SKR_OK;
    }
    if (is_beyond_mending(message->err))
        return skr_fail(error,
                        message->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                            ? SKR_MISSING
                            : SKR_REFUSED,
                        SKR_RECONNECT, "Kafka at %.60s, group %.60s: %.160s",
                        broker->settings.brokers, broker->settings.group, text);
    if (message->err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED)
        skr_log(&broker->client.log, SKR_LOG_WARNING, "kafka.too_slow",
                SKR_LOG_TEXT("group", broker->settings.group),
                SKR_LOG_TEXT("error", text));
    skr_kafka_client_note(&broker->client, message->err, text);
    return SKR_OK;
}

// What librdkafka has given it does not give again: a new client begins behind
// the last that was settled.
static enum skr_code
fail_lost(const struct kafka_broker *broker, struct skr_error *error)
{
    return skr_fail(error, SKR_NO_MEMORY, SKR_RECONNECT,
                    "Kafka at %.60s, group %.60s: out of memory; what could "
                    "not be taken is fetched again",
                    broker->settings.brokers, broker->settings.group);
}

// A rebalance may take place in here, and lanes come and go.
static enum skr_code
fetch(struct kafka_broker *broker, size_t room, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < room && code == SKR_OK; i++) {
        rd_kafka_message_t *message =
            rd_kafka_consumer_poll(broker->client.handle, 0);
        if (message == NULL)
            return SKR_OK;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            code = judge_error(broker, message, error);
            rd_kafka_message_destroy(message);
            continue;
        }
        skr_kafka_client_note_answer(&broker->client);
        struct kafka_lane *lane = skr_kafka_lane_find(
            &broker->consumer.lanes, rd_kafka_topic_name(message->rkt),
            message->partition);
        if (lane == NULL)
            rd_kafka_message_destroy(message);
        else if (!skr_kafka_lane_append(lane, message))
            code = fail_lost(broker, error);
    }
    return code;
}

static enum skr_code
fill(struct kafka_broker *broker, struct skr_incoming *incoming,
     size_t capacity, size_t *count, bool *must_open, struct skr_error *error)
{
    struct kafka_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    for (struct kafka_lane *lane = consumer->lanes.first; lane != NULL;
         lane = lane->next)
        for (struct kafka_delivery *delivery = lane->first;
             delivery != NULL && code == SKR_OK && *count < capacity;
             delivery = delivery->next) {
            if (delivery->state != KAFKA_IN_HAND)
                continue;
            *must_open = *must_open || !lane->is_open;
            code = skr_kafka_incoming_fill(broker, &consumer->arena, delivery,
                                           &incoming[(*count)++], error);
        }
    return code;
}

static enum skr_code
collect(struct kafka_broker *broker, struct skr_incoming *incoming,
        size_t capacity, size_t *count, struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    size_t held = 0;
    bool must_open = false;
    for (struct kafka_lane *lane = broker->consumer.lanes.first; lane != NULL;
         lane = lane->next) {
        held += skr_kafka_lane_hand_out(lane, capacity - held, now_ms);
        if (lane->is_paused && !skr_kafka_lane_has_held(lane))
            set_paused(broker, lane, false);
    }
    *count = 0;
    enum skr_code code = fetch(broker, capacity - held, error);
    if (code == SKR_OK && broker->consumer.lacks_lane)
        code = fail_lost(broker, error);
    if (code == SKR_OK)
        code = fill(broker, incoming, capacity, count, &must_open, error);
    // Before the first of them can do harm.
    if (code == SKR_OK && must_open)
        code = skr_kafka_commit(broker, true, error);
    return code;
}

static int64_t
next_due_ms(const struct kafka_broker *broker, int64_t end_ms)
{
    for (const struct kafka_lane *lane = broker->consumer.lanes.first;
         lane != NULL; lane = lane->next) {
        int64_t due_ms = skr_kafka_lane_due_ms(lane);
        if (due_ms >= 0 && due_ms < end_ms)
            end_ms = due_ms;
    }
    return end_ms;
}

// Whether it is known that nothing is waiting. To join a group and to ask for
// the first records takes a while.
static bool
is_empty(const struct kafka_broker *broker)
{
    const struct kafka_lane *lane = broker->consumer.lanes.first;
    while (lane != NULL && (lane->is_at_end || lane->is_paused))
        lane = lane->next;
    return broker->consumer.is_member && lane == NULL;
}

// True: the caller is to stop.
static bool
wait_for_records(struct kafka_broker *broker, int64_t end_ms)
{
    int64_t left_ms = next_due_ms(broker, end_ms) - skr_clock_ms();
    if (left_ms < 0)
        left_ms = 0;
    struct pollfd fds[] = {
        {.fd = broker->consumer.ready_fd, .events = POLLIN},
        {.fd = broker->base.wake_fd, .events = POLLIN},
    };
    poll(fds, 2, left_ms < LONGEST_WAIT_MS ? (int)left_ms : LONGEST_WAIT_MS);
    uint64_t signals;
    ssize_t unused = read(broker->consumer.ready_fd, &signals, sizeof(signals));
    (void)unused;  // it may be empty
    return (fds[1].revents & POLLIN) != 0;
}

static enum skr_code
receive(struct kafka_broker *broker, struct skr_incoming *incoming,
        size_t capacity, size_t *count, uint32_t timeout_ms,
        struct skr_error *error)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    int64_t last_ms = end_ms + broker->settings.connect_timeout_ms;
    for (;;) {
        enum skr_code code = collect(broker, incoming, capacity, count, error);
        if (code == SKR_OK && *count == 0 &&
            !skr_kafka_client_look_after(&broker->client))
            code = skr_kafka_client_fail(&broker->client, "is away", error);
        if (code != SKR_OK || *count > 0)
            return code;
        int64_t now_ms = skr_clock_ms();
        bool is_over =
            now_ms >= last_ms || (now_ms >= end_ms && is_empty(broker));
        int64_t until_ms = now_ms < end_ms ? end_ms : last_ms;
        if (wait_for_records(broker, is_over ? 0 : until_ms))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
        if (is_over)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "no message came in time");
    }
}

static bool
holds_any(const struct kafka_broker *broker)
{
    const struct kafka_lane *lane = broker->consumer.lanes.first;
    while (lane != NULL && !skr_kafka_lane_has_held(lane))
        lane = lane->next;
    return lane != NULL;
}

enum skr_code
skr_kafka_receive(struct skr_broker *base, struct skr_incoming *incoming,
                  size_t capacity, size_t *count, uint32_t timeout_ms,
                  struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    struct kafka_consumer *consumer = &broker->consumer;
    if (broker->failure.code == SKR_OK && !consumer->is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection publishes; another is needed to "
                        "consume");
    if (broker->failure.code == SKR_OK) {
        if (consumer->capacity < capacity)
            consumer->capacity = capacity;
        skr_arena_reset(&consumer->arena);
        for (struct kafka_lane *lane = consumer->lanes.first; lane != NULL;
             lane = lane->next)
            skr_kafka_lane_prune(lane);
        enum skr_code code = receive(broker, incoming, capacity, count,
                                     timeout_ms, &broker->failure);
        base->holds = holds_any(broker);
        if (code == SKR_OK)
            return code;
        if (error != NULL)
            *error = broker->failure;
        // Only what is lost stays so.
        if (broker->failure.remedy != SKR_RECONNECT)
            skr_error_clear(&broker->failure);
        return code;
    }
    if (error != NULL)
        *error = broker->failure;
    return broker->failure.code;
}

enum skr_code
skr_kafka_settle(struct skr_broker *base, struct skr_incoming *incoming,
                 size_t count, struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    int64_t now_ms = skr_clock_ms();
    for (size_t i = 0; i < count; i++) {
        struct kafka_delivery *delivery =
            (struct kafka_delivery *)(uintptr_t)incoming[i].handle;
        skr_kafka_delivery_settle(delivery, incoming[i].settlement,
                                  incoming[i].delay_ms, now_ms);
        if (delivery->state == KAFKA_HELD && !delivery->lane->is_paused)
            set_paused(broker, delivery->lane, true);
    }
    return skr_kafka_commit(broker, false, error);
}
