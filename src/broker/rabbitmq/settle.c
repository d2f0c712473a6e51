// SPDX-License-Identifier: MIT
// Telling the server what became of its messages.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/rabbitmq.h"

static enum skr_code
send_ack(struct rabbit_broker *broker, uint64_t tag, bool multiple,
         struct skr_error *error)
{
    amqp_basic_ack_t method = {.delivery_tag = tag, .multiple = multiple};
    return skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                AMQP_BASIC_ACK_METHOD, &method, error);
}

static enum skr_code
send_reject(struct rabbit_broker *broker, uint64_t tag, struct skr_error *error)
{
    amqp_basic_reject_t method = {.delivery_tag = tag, .requeue = 1};
    return skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                AMQP_BASIC_REJECT_METHOD, &method, error);
}

static enum skr_code
release(struct rabbit_broker *broker, struct rabbit_delivery *delivery,
        uint64_t tag, struct skr_error *error)
{
    delivery->state = RABBIT_OVER;
    return send_reject(broker, tag, error);
}

// Released ones have been told before: an ack of all up to a tag passes over
// them.
static enum skr_code
send_acks(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    uint64_t tag = skr_rabbit_deliveries_ack(deliveries);
    if (tag > 0)
        code = send_ack(broker, tag, true, error);
    while (code == SKR_OK &&
           (tag = skr_rabbit_deliveries_ack_alone(deliveries, tag)) > 0)
        code = send_ack(broker, tag, false, error);
    return code;
}

static enum skr_code
settle_plain(struct rabbit_broker *broker, const struct skr_incoming *incoming,
             struct skr_error *error)
{
    struct rabbit_delivery *delivery = skr_rabbit_deliveries_find(
        &broker->consumer.deliveries, incoming->handle);
    // Settled by a call before this one.
    if (delivery == NULL)
        return SKR_OK;
    switch (incoming->settlement) {
    case SKR_SETTLE_ACK: delivery->state = RABBIT_ACK_DUE; return SKR_OK;
    case SKR_SETTLE_RETRY:
        if (broker->base.delays)
            return SKR_OK;
        break;
    case SKR_SETTLE_HOLD:
        return skr_rabbit_deliveries_put_off(
            &broker->consumer.deliveries, incoming->handle,
            skr_clock_ms() + incoming->delay_ms, error);
    case SKR_SETTLE_RELEASE: break;
    }
    return release(broker, delivery, incoming->handle, error);
}

// The original is acknowledged once its copy is stored, and not before.
static enum skr_code
settle_retry(struct rabbit_broker *broker, struct skr_incoming *incoming,
             struct skr_error *error)
{
    struct rabbit_delivery *delivery = skr_rabbit_deliveries_find(
        &broker->consumer.deliveries, incoming->handle);
    if (delivery == NULL || incoming->settlement != SKR_SETTLE_RETRY)
        return SKR_OK;
    struct rabbit_delay *delay = &broker->consumer.delay;
    const char *queue = broker->settings.queues[delivery->queue].name;
    struct skr_error trouble = {0};
    incoming->was_refused = false;
    enum skr_code code =
        skr_rabbit_delay_publish(broker, delivery, incoming, &trouble);
    if (code == SKR_STOPPED || code == SKR_NO_MEMORY) {
        // This connection is as good as before: the caller may try again.
        trouble.remedy = SKR_TRY_AGAIN;
        if (error != NULL)
            *error = trouble;
        return code;
    }
    if (code != SKR_OK) {
        skr_trouble_report(&delay->trouble, &broker->log, "amqp.not_delayed",
                           queue, &trouble);
        incoming->was_refused = true;
        return SKR_OK;
    }
    skr_trouble_end(&delay->trouble, &broker->log, "amqp.delayed_again", queue);
    delivery->state = RABBIT_ACK_DUE;
    return SKR_OK;
}

static enum skr_code
settle(struct rabbit_broker *broker, struct skr_incoming *incoming,
       size_t count, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = settle_plain(broker, &incoming[i], error);
    // Before the retries, which may take a while.
    if (code == SKR_OK)
        code = send_acks(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    for (size_t i = 0; i < count && code == SKR_OK && broker->base.delays; i++)
        code = settle_retry(broker, &incoming[i], error);
    struct skr_error ignored = {0};
    struct skr_error *rest = code == SKR_OK ? error : &ignored;
    enum skr_code told = send_acks(broker, rest);
    if (told == SKR_OK)
        told = skr_rabbit_link_flush(&broker->link, rest);
    return code == SKR_OK ? told : code;
}

enum skr_code
skr_rabbit_settle(struct skr_broker *base, struct skr_incoming *incoming,
                  size_t count, struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    struct rabbit_consumer *consumer = &broker->consumer;
    if (!consumer->has_mutex)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "nothing was received on this connection");
    pthread_mutex_lock(&consumer->mutex);
    enum skr_code code = broker->failure.code;
    if (code == SKR_OK)
        code = settle(broker, incoming, count, error);
    else if (error != NULL)
        *error = broker->failure;
    pthread_mutex_unlock(&consumer->mutex);
    return code;
}

enum skr_code
skr_rabbit_release_unsettled(struct rabbit_broker *broker,
                             struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    for (uint64_t tag = deliveries->first;
         tag < deliveries->next && code == SKR_OK; tag++) {
        struct rabbit_delivery *delivery =
            skr_rabbit_deliveries_find(deliveries, tag);
        if (delivery != NULL)
            code = release(broker, delivery, tag, error);
    }
    for (size_t i = 0; i < deliveries->put_off_count; i++)
        if (deliveries->put_off[i].delivery.state == RABBIT_GIVEN)
            deliveries->put_off[i].delivery.state = RABBIT_COME;
    return code;
}

enum skr_code
skr_rabbit_release_waiting(struct rabbit_broker *broker,
                           struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    struct rabbit_delivery *delivery;
    uint64_t tag = 0;
    while (code == SKR_OK &&
           (delivery = skr_rabbit_deliveries_give(deliveries, &tag)) != NULL) {
        // Once is no harm. A queue that counts has a limit, and its end.
        if (skr_rabbit_delivery_was_out(delivery)) {
            code = skr_rabbit_deliveries_put_off(deliveries, tag,
                                                 skr_clock_ms(), error);
            continue;
        }
        skr_rabbit_deliveries_drop(deliveries, delivery);
        code = send_reject(broker, tag, error);
    }
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    return code;
}
