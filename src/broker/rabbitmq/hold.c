// SPDX-License-Identifier: MIT
// The server takes a consumer for dead that has a message for too long, and
// cuts it off from all of them. How many may wait here depends on how fast the
// caller is, which only shows: what has waited for hold_timeout is given back,
// and the server is asked for no more than half of what the caller takes in
// that time. It grows again when that turns out to be enough.
//
// What was put off tells of trouble: how long others wait then says nothing of
// the pace.
//
// A prefetch holds for the consumers that are made after it, so that a new one
// needs new consumers: the old are cancelled first.

#include "base/clock.h"
#include "broker/rabbitmq/rabbitmq.h"

enum {
    // So many messages that cannot be handled now make way for others.
    MOST_PUT_OFF = 1000,
};

bool
skr_rabbit_is_laden(const struct rabbit_broker *broker)
{
    const struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    int64_t since_ms = skr_clock_ms() - broker->settings.hold_timeout_ms;
    for (size_t i = 0; i < deliveries->put_off_count; i++)
        if (deliveries->put_off[i].delivery.came_ms < since_ms)
            return true;
    return deliveries->put_off_count >= MOST_PUT_OFF ||
           deliveries->put_off_bytes >= broker->settings.prefetch_bytes;
}

static enum skr_code
send_cancels(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    consumer->asked_ms = skr_clock_ms();
    for (size_t i = 0; i < broker->settings.queue_count && code == SKR_OK;
         i++) {
        char tag[RABBIT_TAG_SIZE];
        if (consumer->subscriptions[i].state != RABBIT_ON)
            continue;
        skr_rabbit_consumer_tag(broker, i, tag);
        amqp_basic_cancel_t method = {.consumer_tag = amqp_cstring_bytes(tag)};
        code = skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                    AMQP_BASIC_CANCEL_METHOD, &method, error);
        consumer->cancels_due += code == SKR_OK;
    }
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    return code;
}

static void
lower(struct rabbit_broker *broker, int64_t now_ms)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    uint64_t given = consumer->deliveries.next - consumer->subscribed_at;
    uint64_t elapsed_ms = (uint64_t)(now_ms - consumer->subscribed_ms) + 1;
    uint64_t pace =
        given * (uint64_t)broker->settings.hold_timeout_ms / elapsed_ms / 2;
    if (pace >= consumer->prefetch)
        pace = consumer->prefetch / 2;
    consumer->prefetch = pace == 0 ? 1 : (uint32_t)pace;
    consumer->is_giving_back = true;
    skr_log(&broker->log, SKR_LOG_INFO, "amqp.held_too_long",
            SKR_LOG_TEXT("queue", broker->settings.queues[0].name),
            SKR_LOG_NUMBER("given_back", skr_rabbit_deliveries_waiting(
                                             &consumer->deliveries)),
            SKR_LOG_NUMBER("prefetch", consumer->prefetch));
}

// Half of the prefetch is taken. What was put off by an old consumer is none of
// a new one's.
static bool
has_few_slots(const struct rabbit_broker *broker)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_deliveries *deliveries = &consumer->deliveries;
    size_t slots = consumer->prefetch / broker->settings.queue_count;
    size_t taken = 0;
    for (size_t i = 0; i < deliveries->put_off_count; i++)
        taken += deliveries->put_off[i].tag >= consumer->subscribed_end;
    return taken > 0 && taken * 2 >= slots &&
           deliveries->put_off_count < MOST_PUT_OFF;
}

enum skr_code
skr_rabbit_hold_review(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_delivery *oldest =
        skr_rabbit_deliveries_oldest(&consumer->deliveries);
    enum skr_code code = SKR_OK;
    int64_t now_ms = skr_clock_ms();
    int64_t limit_ms = broker->settings.hold_timeout_ms;
    if (!consumer->is_started || consumer->asked != NULL ||
        consumer->cancels_due > 0 || consumer->counts_due > 0 ||
        broker->failure.code != SKR_OK || consumer->end.code != SKR_OK)
        return SKR_OK;
    if (has_few_slots(broker))
        return send_cancels(broker, error);
    if (oldest != NULL && consumer->deliveries.put_off_count == 0 &&
        now_ms - oldest->came_ms > limit_ms) {
        lower(broker, now_ms);
        code = send_cancels(broker, error);
        // The server hears of them after the end of their consumers. What is
        // still under way goes the same way as it comes.
        return code == SKR_OK ? skr_rabbit_release_waiting(broker, error)
                              : code;
    }
    if (consumer->prefetch >= consumer->most_prefetch ||
        now_ms - consumer->subscribed_ms <= limit_ms)
        return SKR_OK;
    consumer->prefetch = consumer->prefetch > consumer->most_prefetch / 2
                             ? consumer->most_prefetch
                             : consumer->prefetch * 2;
    return send_cancels(broker, error);
}

enum skr_code
skr_rabbit_on_cancelled(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->cancels_due == 0)
        return skr_rabbit_fail_unexpected(broker, "an answer to no cancel",
                                          error);
    consumer->cancels_due--;
    if (consumer->cancels_due > 0)
        return SKR_OK;
    // The next receive() subscribes: a caller that is busy needs nothing more.
    consumer->is_started = false;
    consumer->generation++;
    for (size_t i = 0; i < broker->settings.queue_count; i++)
        if (consumer->subscriptions[i].state == RABBIT_ON)
            consumer->subscriptions[i].state = RABBIT_OFF;
    consumer->is_giving_back = false;
    return SKR_OK;
}
