// SPDX-License-Identifier: MIT
// Handing out what the server has sent.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/rabbitmq.h"

enum {
    // How long the queues are asked whether they are empty, when the caller
    // does not want to wait for a message.
    LOOK_MS = 5000,
    LOOK_PAUSE_MS = 10,
    // As long as enough is here the connection is looked at this often: a look
    // for each message costs a good part of what the message does.
    TURN_MS = 10,
};

static bool
has_waiting(const struct rabbit_broker *broker)
{
    const struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    return skr_rabbit_deliveries_waiting(deliveries) > 0 ||
           skr_rabbit_deliveries_due_ms(deliveries) <= skr_clock_ms();
}

static enum skr_code
send_counts(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    consumer->ready_count = 0;
    consumer->asked_ms = skr_clock_ms();
    for (size_t i = 0; i < broker->settings.queue_count && code == SKR_OK;
         i++) {
        // To ask for it would close the channel.
        if (consumer->subscriptions[i].state == RABBIT_MISSING)
            continue;
        amqp_queue_declare_t question = {
            .queue = amqp_cstring_bytes(broker->settings.queues[i].name),
            .passive = 1};
        code =
            skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                 AMQP_QUEUE_DECLARE_METHOD, &question, error);
        consumer->counts_due += code == SKR_OK;
    }
    return code;
}

// Takes what comes until nothing more is due from the server, a message is
// there, or the time is over.
static enum skr_code
await_answers(struct rabbit_broker *broker, int64_t deadline_ms,
              struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !has_waiting(broker) &&
           consumer->end.code == SKR_OK &&
           (consumer->counts_due > 0 || consumer->asked != NULL) &&
           skr_clock_ms() < deadline_ms) {
        code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK)
            code = skr_rabbit_consumer_turn(broker, LOOK_PAUSE_MS, error);
    }
    return code;
}

// Messages are pushed, so that a glance at the socket does not tell whether
// there are any. The queues are asked until they have none ready, and once
// more, since what was sent to us may still be behind the first answer.
static enum skr_code
look(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    int64_t deadline_ms = skr_clock_ms() + LOOK_MS;
    enum skr_code code = await_answers(broker, deadline_ms, error);
    for (int empty = 0; code == SKR_OK && empty < 2 && !has_waiting(broker) &&
                        consumer->end.code == SKR_OK &&
                        skr_clock_ms() < deadline_ms;) {
        code = send_counts(broker, error);
        if (code == SKR_OK)
            code = await_answers(broker, deadline_ms, error);
        empty = consumer->ready_count == 0 ? empty + 1 : 0;
        if (code == SKR_OK && empty == 0)
            code = skr_rabbit_consumer_turn(broker, LOOK_PAUSE_MS, error);
    }
    return code;
}

// What the server has been told to cancel may still be coming, and what has
// come may leave no room to hear of the end: it is handed out first.
static enum skr_code
resubscribe(struct rabbit_broker *broker, size_t capacity,
            struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = skr_rabbit_hold_review(broker, error);
    while (code == SKR_OK && consumer->cancels_due > 0 &&
           !has_waiting(broker)) {
        code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK)
            code = skr_rabbit_consumer_turn(broker, LOOK_PAUSE_MS, error);
    }
    if (code == SKR_OK && consumer->cancels_due == 0)
        code = skr_rabbit_subscribe(broker, capacity, error);
    return code;
}

static bool
has_enough(const struct rabbit_broker *broker, size_t capacity)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    return broker->failure.code == SKR_OK &&
           skr_rabbit_deliveries_waiting(&consumer->deliveries) >= capacity &&
           skr_clock_ms() - consumer->turned_ms < TURN_MS;
}

// SKR_OK: something is waiting.
static enum skr_code
wait_for_deliveries(struct rabbit_broker *broker, size_t capacity,
                    uint32_t timeout_ms, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    enum skr_code code = SKR_OK;
    if (!has_enough(broker, capacity))
        code = skr_rabbit_consumer_turn(broker, 0, error);
    if (code == SKR_OK && timeout_ms == 0 && !has_waiting(broker))
        code = look(broker, error);
    while (code == SKR_OK) {
        int64_t left_ms = deadline_ms - skr_clock_ms();
        code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK)
            code = skr_rabbit_ask_for_missing(broker, error);
        if (code != SKR_OK)
            return code;
        if (consumer->end.code != SKR_OK) {
            if (error != NULL)
                *error = consumer->end;
            return consumer->end.code;
        }
        if (has_waiting(broker))
            return SKR_OK;
        if (left_ms <= 0)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "nothing is waiting in queue %.80s%s",
                            broker->settings.queues[0].name,
                            broker->settings.queue_count > 1 ? " and others"
                                                             : "");
        int64_t due_in_ms =
            skr_rabbit_deliveries_due_ms(&consumer->deliveries) -
            skr_clock_ms();
        if (due_in_ms < left_ms)
            left_ms = due_in_ms > 0 ? due_in_ms : 0;
        code = skr_rabbit_consumer_turn(broker, (uint32_t)left_ms, error);
    }
    return code;
}

static enum skr_code
give(struct rabbit_broker *broker, struct skr_incoming *incoming,
     size_t capacity, size_t *count, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    int64_t now_ms = skr_clock_ms();
    for (size_t i = 0; i < capacity; i++) {
        uint64_t tag = 0;
        const struct rabbit_delivery *delivery =
            skr_rabbit_deliveries_give_due(&consumer->deliveries, now_ms, &tag);
        if (delivery == NULL)
            delivery = skr_rabbit_deliveries_give(&consumer->deliveries, &tag);
        if (delivery == NULL)
            return SKR_OK;
        // What was given before an error goes back by the next call.
        enum skr_code code = skr_rabbit_incoming_fill(
            &consumer->arena, broker->settings.queues[delivery->queue].name,
            delivery, tag, &incoming[i], error);
        if (code != SKR_OK)
            return code;
        *count = i + 1;
    }
    return SKR_OK;
}

enum skr_code
skr_rabbit_receive(struct skr_broker *base, struct skr_incoming *incoming,
                   size_t capacity, size_t *count, uint32_t timeout_ms,
                   struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t given = 0;
    *count = 0;
    enum skr_code code = skr_rabbit_consumer_prepare(broker, error);
    if (code != SKR_OK)
        return code;
    pthread_mutex_lock(&consumer->mutex);
    code = skr_rabbit_release_unsettled(broker, error);
    skr_arena_reset(&consumer->arena);
    skr_rabbit_deliveries_tidy(&consumer->deliveries);
    if (code == SKR_OK)
        code = resubscribe(broker, capacity, error);
    if (code == SKR_OK)
        code = wait_for_deliveries(broker, capacity, timeout_ms, error);
    if (code == SKR_OK)
        code = give(broker, incoming, capacity, &given, error);
    if (code == SKR_OK)
        *count = given;
    base->holds = consumer->deliveries.put_off_count > 0;
    base->is_laden = skr_rabbit_is_laden(broker);
    pthread_mutex_unlock(&consumer->mutex);
    return code;
}
