// SPDX-License-Identifier: MIT
// The consuming channel: opening it, subscribing, and what comes on it.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/errors.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_WAIT_MS = 250,
    // Fewer would be waited for, one by one.
    LEAST_PREFETCH = 20,
};

static enum skr_code
init(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->has_mutex)
        return SKR_OK;
    consumer->subscriptions =
        calloc(broker->settings.queue_count, sizeof(*consumer->subscriptions));
    if (consumer->subscriptions == NULL)
        return skr_fail_memory(error);
    skr_rabbit_deliveries_init(&consumer->deliveries);
    consumer->delay.link.stream.fd = -1;
    if (pthread_mutex_init(&consumer->mutex, NULL) != 0) {
        free(consumer->subscriptions);
        return skr_fail_memory(error);
    }
    consumer->has_mutex = true;
    return SKR_OK;
}

void
skr_rabbit_consumer_fini(struct rabbit_broker *broker)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (!consumer->has_mutex)
        return;
    skr_rabbit_heartbeat_stop(broker);
    skr_rabbit_delay_close(&consumer->delay, true);
    skr_rabbit_deliveries_fini(&consumer->deliveries);
    skr_arena_fini(&consumer->arena);
    free(consumer->subscriptions);
    pthread_mutex_destroy(&consumer->mutex);
    consumer->has_mutex = false;
}

enum skr_code
skr_rabbit_consumer_prepare(struct rabbit_broker *broker,
                            struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->is_prepared)
        return SKR_OK;
    if (broker->window.end > 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection publishes; another is needed to "
                        "consume");
    consumer->is_wanted = true;
    enum skr_code code = init(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_subscriptions_set_up(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_open_channel(broker, RABBIT_CONSUMING, error);
    consumer->is_prepared = code == SKR_OK;
    return code;
}

// The queue by the tag that we gave its consumer; queue_count: none.
static size_t
queue_of(const struct rabbit_broker *broker, amqp_bytes_t tag)
{
    size_t count = broker->settings.queue_count;
    char text[RABBIT_TAG_SIZE];
    int64_t number = 0;
    if (tag.len >= sizeof(text))
        return count;
    memcpy(text, tag.bytes, tag.len);
    text[tag.len] = '\0';
    uint64_t end = (broker->consumer.generation + 1) * count;
    if (!skr_text_number(text, 0, (int64_t)end - 1, &number))
        return count;
    return (size_t)number % count;
}

static enum skr_code
on_deliver(struct rabbit_broker *broker, const amqp_basic_deliver_t *deliver,
           struct skr_error *error)
{
    bool fits = false;
    size_t queue = queue_of(broker, deliver->consumer_tag);
    if (queue == broker->settings.queue_count)
        return skr_rabbit_fail_unexpected(broker, "a delivery for nobody",
                                          error);
    enum skr_code code = skr_rabbit_deliveries_begin(
        &broker->consumer.deliveries, deliver->delivery_tag, queue,
        deliver->redelivered != 0, &fits, error);
    if (code == SKR_OK && !fits)
        return skr_rabbit_fail_unexpected(broker, "a delivery out of turn",
                                          error);
    return code;
}

static enum skr_code
on_method(struct rabbit_broker *broker, const amqp_method_t *method,
          struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    switch (method->id) {
    case AMQP_BASIC_DELIVER_METHOD:
        return on_deliver(broker, method->decoded, error);
    case AMQP_BASIC_CONSUME_OK_METHOD:
        return skr_rabbit_on_subscribed(broker, error);
    case AMQP_BASIC_CANCEL_METHOD: {
        const amqp_basic_cancel_t *cancel = method->decoded;
        skr_rabbit_on_lost(broker, queue_of(broker, cancel->consumer_tag));
        return SKR_OK;
    }
    case AMQP_BASIC_CANCEL_OK_METHOD:
        return skr_rabbit_on_cancelled(broker, error);
    case AMQP_CHANNEL_OPEN_OK_METHOD:
    case AMQP_BASIC_QOS_OK_METHOD: return SKR_OK;
    case AMQP_QUEUE_DECLARE_OK_METHOD:
        if (consumer->counts_due > 0) {
            const amqp_queue_declare_ok_t *answer = method->decoded;
            consumer->counts_due--;
            consumer->ready_count += answer->message_count;
            return SKR_OK;
        }
        break;
    default: break;
    }
    return skr_rabbit_fail_unexpected(broker, "a method while consuming",
                                      error);
}

enum skr_code
skr_rabbit_on_consuming(struct rabbit_broker *broker, const amqp_frame_t *frame,
                        struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    const amqp_bytes_t *raw = &frame->payload.properties.raw;
    const amqp_bytes_t *body = &frame->payload.body_fragment;
    bool fits = false;
    enum skr_code code = SKR_OK;
    switch (frame->frame_type) {
    case AMQP_FRAME_METHOD:
        return on_method(broker, &frame->payload.method, error);
    case AMQP_FRAME_HEADER:
        code = skr_rabbit_deliveries_properties(
            deliveries,
            (struct rabbit_piece){.bytes = raw->bytes, .size = raw->len},
            frame->payload.properties.body_size, &fits, error);
        break;
    case AMQP_FRAME_BODY:
        fits = skr_rabbit_deliveries_body(
            deliveries,
            (struct rabbit_piece){.bytes = body->bytes, .size = body->len});
        break;
    default: break;
    }
    if (code == SKR_OK && !fits)
        return skr_rabbit_fail_unexpected(
            broker, "a piece of a message out of place", error);
    return code;
}

enum skr_code
skr_rabbit_on_consuming_closed(struct rabbit_broker *broker,
                               const struct skr_error *reason,
                               struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    if (skr_rabbit_link_flush(&broker->link, NULL) != SKR_OK)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "RabbitMQ at %s closed the channel: %s",
                        broker->link.stream.peer, reason->text);
    if (consumer->asked != NULL) {
        struct skr_error said = *reason;
        skr_rabbit_fail_queue(broker, consumer->asked, "read", &said);
        if (error != NULL)
            *error = said;
        return said.code;
    }
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s, vhost %.40s, closed the consuming "
                    "channel: %s",
                    broker->link.stream.peer, broker->settings.vhost,
                    reason->text);
}

// What is held is bounded, but one message has room whatever its size.
static bool
has_room(const struct rabbit_broker *broker)
{
    const struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    return deliveries->held_bytes < broker->settings.prefetch_bytes ||
           skr_rabbit_deliveries_waiting(deliveries) == 0;
}

// *is_drained: there is nothing left to take, so that waiting makes sense.
static enum skr_code
take_frames(struct rabbit_broker *broker, size_t *count, bool *is_drained,
            struct skr_error *error)
{
    *is_drained = false;
    while (has_room(broker)) {
        amqp_frame_t frame;
        bool found = false;
        enum skr_code code =
            skr_rabbit_link_next(&broker->link, &frame, &found, error);
        if (code == SKR_OK && found)
            code = skr_rabbit_handle(broker, &frame, error);
        if (code == SKR_OK && broker->consumer.is_giving_back)
            code = skr_rabbit_release_waiting(broker, error);
        if (code != SKR_OK)
            return code;
        if (!found) {
            *is_drained = true;
            return SKR_OK;
        }
        (*count)++;
    }
    return SKR_OK;
}

static enum skr_code
check_patience(const struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    int64_t waited_ms = skr_clock_ms() - consumer->asked_ms;
    if ((consumer->asked == NULL && consumer->counts_due == 0 &&
         consumer->cancels_due == 0) ||
        waited_ms <= broker->settings.confirm_timeout_ms)
        return SKR_OK;
    return skr_rabbit_link_fail_silent(&broker->link, waited_ms, error);
}

static enum skr_code
turn(struct rabbit_broker *broker, uint32_t timeout_ms, struct skr_error *error)
{
    size_t count = 0;
    bool is_drained = false;
    broker->consumer.turned_ms = skr_clock_ms();
    enum skr_code code = skr_rabbit_link_flush(&broker->link, error);
    if (code == SKR_OK)
        code = take_frames(broker, &count, &is_drained, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    // A server that has more to say than we take cannot show that it lives. It
    // wants to be told that we do.
    if (!is_drained)
        broker->link.heard_ms = skr_clock_ms();
    if (code == SKR_OK)
        code = skr_rabbit_link_tick(&broker->link, error);
    if (code == SKR_OK && is_drained)
        code = check_patience(broker, error);
    if (code != SKR_OK || count > 0 || timeout_ms == 0 || !is_drained)
        return code;
    struct rabbit_patience patience = {
        .deadline_ms =
            skr_clock_ms() +
            (timeout_ms < LONGEST_WAIT_MS ? timeout_ms : LONGEST_WAIT_MS),
        .wake_fd = broker->base.wake_fd,
    };
    code = skr_rabbit_link_wait(&broker->link, &patience, error);
    if (code == SKR_OK)
        code = take_frames(broker, &count, &is_drained, error);
    return code;
}

enum skr_code
skr_rabbit_consumer_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                         struct skr_error *error)
{
    struct skr_error *failure = &broker->failure;
    enum skr_code code = failure->code;
    if (code == SKR_OK)
        code = turn(broker, timeout_ms, failure);
    skr_rabbit_delay_tidy(&broker->consumer.delay);
    if (code == SKR_TIMEOUT || code == SKR_STOPPED) {
        // Nothing is wrong with the connection.
        skr_error_clear(failure);
        return SKR_OK;
    }
    if (code != SKR_OK && error != NULL)
        *error = *failure;
    return code;
}

enum skr_code
skr_rabbit_subscribe(struct rabbit_broker *broker, size_t capacity,
                     struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_settings *settings = &broker->settings;
    if (consumer->is_started)
        return SKR_OK;
    if (consumer->most_prefetch == 0) {
        // So that the next batch is here when one is done.
        consumer->most_prefetch =
            settings->prefetch_count > 0    ? settings->prefetch_count
            : capacity > UINT16_MAX / 2     ? UINT16_MAX
            : capacity < LEAST_PREFETCH / 2 ? LEAST_PREFETCH
                                            : (uint32_t)capacity * 2;
        consumer->prefetch = consumer->most_prefetch;
    }
    consumer->subscribed_ms = skr_clock_ms();
    consumer->subscribed_at = consumer->deliveries.next;
    consumer->subscribed_end = consumer->deliveries.end;
    // It holds for each queue by itself.
    size_t prefetch = consumer->prefetch / settings->queue_count;
    amqp_basic_qos_t method = {
        .prefetch_count = prefetch == 0 ? 1 : (uint16_t)prefetch,
    };
    enum skr_code code = skr_rabbit_heartbeat_start(broker, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                    AMQP_BASIC_QOS_METHOD, &method, error);
    if (code == SKR_OK)
        code = skr_rabbit_subscribe_next(broker, error);
    consumer->is_started = code == SKR_OK;
    return code;
}
