// SPDX-License-Identifier: MIT
// The records of each assigned partition in a list, from the oldest that is not
// settled on: the offset to commit is read off its head.

#include "broker/kafka/lanes.h"

#include <stdlib.h>
#include <string.h>

struct kafka_lane *
skr_kafka_lane_find(const struct kafka_lanes *lanes, const char *topic,
                    int32_t partition)
{
    struct kafka_lane *lane = lanes->first;
    while (lane != NULL &&
           (lane->partition != partition || strcmp(lane->topic, topic) != 0))
        lane = lane->next;
    return lane;
}

struct kafka_lane *
skr_kafka_lane_add(struct kafka_lanes *lanes, const char *topic,
                   int32_t partition)
{
    size_t size = strlen(topic) + 1;
    struct kafka_lane *lane = malloc(sizeof(*lane) + size);
    if (lane == NULL)
        return NULL;
    *lane = (struct kafka_lane){
        .next = lanes->first,
        .number = ++lanes->last_number,
        .position = -1,
        .committed = -1,
        .suspect_end = -1,
        .partition = partition,
    };
    memcpy(lane->topic, topic, size);
    lanes->first = lane;
    return lane;
}

static void
free_first(struct kafka_lane *lane)
{
    struct kafka_delivery *delivery = lane->first;
    lane->first = delivery->next;
    if (lane->first == NULL)
        lane->last = NULL;
    if (delivery->message != NULL)
        rd_kafka_message_destroy(delivery->message);
    free(delivery);
}

void
skr_kafka_lane_remove(struct kafka_lanes *lanes, struct kafka_lane *lane)
{
    struct kafka_lane **place = &lanes->first;
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    while (lane->first != NULL)
        free_first(lane);
    free(lane);
}

void
skr_kafka_lanes_fini(struct kafka_lanes *lanes)
{
    while (lanes->first != NULL)
        skr_kafka_lane_remove(lanes, lanes->first);
}

bool
skr_kafka_lane_append(struct kafka_lane *lane, rd_kafka_message_t *message)
{
    struct kafka_delivery *delivery = malloc(sizeof(*delivery));
    if (delivery == NULL) {
        rd_kafka_message_destroy(message);
        return false;
    }
    *delivery = (struct kafka_delivery){
        .lane = lane,
        .message = message,
        .state = skr_kafka_lane_has_held(lane) ? KAFKA_HELD : KAFKA_IN_HAND,
    };
    if (lane->last == NULL)
        lane->first = delivery;
    else
        lane->last->next = delivery;
    lane->last = delivery;
    lane->position = message->offset + 1;
    lane->is_at_end = false;
    return true;
}

void
skr_kafka_lane_prune(struct kafka_lane *lane)
{
    while (lane->first != NULL && lane->first->state == KAFKA_SETTLED)
        free_first(lane);
    for (struct kafka_delivery *delivery = lane->first; delivery != NULL;
         delivery = delivery->next)
        if (delivery->state == KAFKA_IN_HAND)
            delivery->state = KAFKA_HELD;
}

bool
skr_kafka_lane_has_held(const struct kafka_lane *lane)
{
    return skr_kafka_lane_due_ms(lane) >= 0;
}

int64_t
skr_kafka_lane_due_ms(const struct kafka_lane *lane)
{
    for (const struct kafka_delivery *delivery = lane->first; delivery != NULL;
         delivery = delivery->next)
        if (delivery->state == KAFKA_HELD)
            return delivery->due_ms;
    return -1;
}

size_t
skr_kafka_lane_hand_out(struct kafka_lane *lane, size_t most, int64_t now_ms)
{
    size_t count = 0;
    for (struct kafka_delivery *delivery = lane->first;
         delivery != NULL && count < most; delivery = delivery->next) {
        if (delivery->state != KAFKA_HELD)
            continue;
        if (delivery->due_ms > now_ms)
            break;
        delivery->state = KAFKA_IN_HAND;
        count++;
    }
    return count;
}

void
skr_kafka_delivery_settle(struct kafka_delivery *delivery,
                          enum skr_settlement settlement, uint32_t delay_ms,
                          int64_t now_ms)
{
    delivery->state = KAFKA_HELD;
    delivery->due_ms = now_ms;
    switch (settlement) {
    case SKR_SETTLE_ACK: delivery->state = KAFKA_SETTLED; return;
    case SKR_SETTLE_RELEASE: return;
    case SKR_SETTLE_HOLD: delivery->due_ms = now_ms + delay_ms; return;
    case SKR_SETTLE_RETRY:
        delivery->due_ms = now_ms + delay_ms;
        delivery->retry_count++;
        return;
    }
}

int64_t
skr_kafka_lane_settled(const struct kafka_lane *lane)
{
    for (const struct kafka_delivery *delivery = lane->first; delivery != NULL;
         delivery = delivery->next)
        if (delivery->state != KAFKA_SETTLED)
            return delivery->message->offset;
    return lane->position;
}
