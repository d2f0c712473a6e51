// SPDX-License-Identifier: MIT
// The queues that messages come from. One of several may be missing: it was
// deleted, or the node that has it went away. The others go on meanwhile, and
// the server is asked for it now and then.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <stdio.h>

enum { ASK_AGAIN_MS = 3000 };

// The first in this state; queue_count: none is.
static size_t
find(const struct rabbit_broker *broker, enum rabbit_subscribed state)
{
    size_t queue = 0;
    while (queue < broker->settings.queue_count &&
           broker->consumer.subscriptions[queue].state != state)
        queue++;
    return queue;
}

static size_t
count(const struct rabbit_broker *broker, enum rabbit_subscribed state)
{
    size_t found = 0;
    for (size_t i = 0; i < broker->settings.queue_count; i++)
        found += broker->consumer.subscriptions[i].state == state;
    return found;
}

static void
miss(struct rabbit_broker *broker, size_t queue, const struct skr_error *reason)
{
    struct rabbit_subscription *subscription =
        &broker->consumer.subscriptions[queue];
    subscription->state = RABBIT_MISSING;
    subscription->reason = *reason;
}

static void
say_missing(struct rabbit_broker *broker)
{
    for (size_t i = 0; i < broker->settings.queue_count; i++) {
        struct rabbit_subscription *subscription =
            &broker->consumer.subscriptions[i];
        if (subscription->state == RABBIT_MISSING)
            skr_trouble_report(
                &subscription->trouble, &broker->log, "amqp.queue_missing",
                broker->settings.queues[i].name, &subscription->reason);
    }
}

// Queues that are there are consumed from, whatever may not be bound to them.
static enum skr_code
bind_all(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    bool is_new = false;
    enum skr_code code = skr_rabbit_exchange_make(broker, &is_new, error);
    bool is_made = is_new && code == SKR_OK;
    for (size_t i = 0; i < settings->queue_count && code == SKR_OK; i++)
        if (broker->consumer.subscriptions[i].state != RABBIT_MISSING)
            code = skr_rabbit_queue_bind(broker, &settings->queues[i], error);
    if (code != SKR_REFUSED)
        return code;
    skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
            SKR_LOG_TEXT("reason", error->text));
    if (is_made)
        skr_rabbit_exchange_take_back(broker, settings->exchange);
    return SKR_OK;
}

enum skr_code
skr_rabbit_subscriptions_set_up(struct rabbit_broker *broker,
                                struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    struct skr_error trouble = {0};
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < settings->queue_count && code == SKR_OK; i++) {
        broker->consumer.subscriptions[i].state = RABBIT_OFF;
        code = skr_rabbit_queue_make(broker, &settings->queues[i], &trouble);
        if (code != SKR_MISSING)
            continue;
        miss(broker, i, &trouble);
        // Without any queue the consumer is told of the last that is missing.
        if (count(broker, RABBIT_MISSING) < settings->queue_count)
            code = SKR_OK;
    }
    if (code == SKR_OK) {
        say_missing(broker);
        code = bind_all(broker, &trouble);
    }
    if (code != SKR_OK && error != NULL)
        *error = trouble;
    return code;
}

void
skr_rabbit_consumer_tag(const struct rabbit_broker *broker, size_t queue,
                        char tag[RABBIT_TAG_SIZE])
{
    snprintf(tag, RABBIT_TAG_SIZE, "%llu",
             (unsigned long long)(broker->consumer.generation *
                                      broker->settings.queue_count +
                                  queue));
}

enum skr_code
skr_rabbit_subscribe_next(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queue = find(broker, RABBIT_OFF);
    char tag[RABBIT_TAG_SIZE];
    if (queue == broker->settings.queue_count)
        return SKR_OK;
    skr_rabbit_consumer_tag(broker, queue, tag);
    consumer->subscriptions[queue].state = RABBIT_ASKED;
    consumer->asked = broker->settings.queues[queue].name;
    consumer->asked_ms = skr_clock_ms();
    amqp_basic_consume_t method = {
        .queue = amqp_cstring_bytes(consumer->asked),
        .consumer_tag = amqp_cstring_bytes(tag),
    };
    return skr_rabbit_link_send(&broker->link, RABBIT_CONSUMING,
                                AMQP_BASIC_CONSUME_METHOD, &method, error);
}

enum skr_code
skr_rabbit_on_subscribed(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queue = find(broker, RABBIT_ASKED);
    if (consumer->asked == NULL)
        return skr_rabbit_fail_unexpected(
            broker, "an answer to no subscription", error);
    // Its end may have been told first.
    if (queue < broker->settings.queue_count)
        consumer->subscriptions[queue].state = RABBIT_ON;
    consumer->asked = NULL;
    return skr_rabbit_subscribe_next(broker, error);
}

void
skr_rabbit_on_lost(struct rabbit_broker *broker, size_t queue)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queues = broker->settings.queue_count;
    struct skr_error reason = {0};
    skr_fail(&reason, SKR_UNAVAILABLE, SKR_RECONNECT,
             "queue %.80s in vhost %.40s: RabbitMQ cancelled the consumer; the "
             "queue was deleted, or the node that has it went away",
             queue == queues ? "?" : broker->settings.queues[queue].name,
             broker->settings.vhost);
    if (queue < queues)
        miss(broker, queue, &reason);
    consumer->ask_again_ms = skr_clock_ms();
    if (queue == queues || count(broker, RABBIT_MISSING) == queues)
        consumer->end = reason;
    else
        say_missing(broker);
}

static enum skr_code
ask_for(struct rabbit_broker *broker, size_t queue, struct skr_error *error)
{
    struct rabbit_subscription *subscription =
        &broker->consumer.subscriptions[queue];
    struct skr_error trouble = {0};
    const struct rabbit_queue *sought = &broker->settings.queues[queue];
    enum skr_code code = skr_rabbit_queue_make(broker, sought, &trouble);
    if (code == SKR_OK)
        code = skr_rabbit_queue_bind(broker, sought, &trouble);
    if (code == SKR_OK) {
        subscription->state = RABBIT_OFF;
        skr_trouble_end(&subscription->trouble, &broker->log,
                        "amqp.queue_found", sought->name);
        return SKR_OK;
    }
    // That it is missing was said.
    if (code == SKR_MISSING)
        return SKR_OK;
    if (code == SKR_REFUSED) {
        miss(broker, queue, &trouble);
        say_missing(broker);
        return SKR_OK;
    }
    if (error != NULL)
        *error = trouble;
    return code;
}

enum skr_code
skr_rabbit_ask_for_missing(struct rabbit_broker *broker,
                           struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    if (skr_clock_ms() < consumer->ask_again_ms || !consumer->is_started ||
        consumer->asked != NULL || consumer->cancels_due > 0 ||
        consumer->counts_due > 0 || consumer->end.code != SKR_OK ||
        count(broker, RABBIT_MISSING) == 0)
        return SKR_OK;
    consumer->ask_again_ms = skr_clock_ms() + ASK_AGAIN_MS;
    for (size_t i = 0; i < broker->settings.queue_count && code == SKR_OK; i++)
        if (consumer->subscriptions[i].state == RABBIT_MISSING)
            code = ask_for(broker, i, error);
    return code == SKR_OK ? skr_rabbit_subscribe_next(broker, error) : code;
}
