// SPDX-License-Identifier: MIT
// Consuming: the queues that messages come from, what comes on the channel, how
// much of it the server may hand out ahead, and handing it out to the caller.
// settle.c tells the server what became of it.
//
// One of several queues may be missing: it was deleted, or the node that has it
// went away. The others go on meanwhile, and the server is asked for it now and
// then.

#include "broker/rabbitmq/consumer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "broker/rabbitmq/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    // Fewer would be waited for, one by one.
    LEAST_PREFETCH = 20,
    ASK_AGAIN_MS = 3000,
    // So many messages that cannot be handled now make way for others.
    MOST_DEFERRED = 1000,
    TURNS_A_HEARTBEAT = 4,
    TAG_SIZE = 24,
    // How long the queues are asked whether they are empty, when the caller
    // does not want to wait for a message.
    POLL_MS = 5000,
    POLL_PAUSE_MS = 10,
    // As long as enough is here the connection is looked at this often: a look
    // for each message costs a good part of what the message does.
    TURN_MS = 10,
};

static const char *
queue_name(const struct rabbit_broker *broker, size_t queue)
{
    return broker->options.topology.queues[queue].name;
}

// The first in this state; queue_count: none is.
static size_t
find_state(const struct rabbit_broker *broker, enum rabbit_subscribed state)
{
    size_t queue = 0;
    while (queue < broker->options.topology.queue_count &&
           broker->consumer.subscriptions[queue].state != state)
        queue++;
    return queue;
}

static size_t
count_state(const struct rabbit_broker *broker, enum rabbit_subscribed state)
{
    size_t found = 0;
    for (size_t i = 0; i < broker->options.topology.queue_count; i++)
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
log_missing(struct rabbit_broker *broker)
{
    for (size_t i = 0; i < broker->options.topology.queue_count; i++) {
        struct rabbit_subscription *subscription =
            &broker->consumer.subscriptions[i];
        if (subscription->state == RABBIT_MISSING)
            skr_trouble_report(&subscription->trouble, &broker->log,
                               SKR_TROUBLE_HARMLESS, "amqp.queue_missing",
                               queue_name(broker, i), &subscription->reason);
    }
}

// Makes, or looks for, the queues to consume from. SKR_MISSING: none is there.
// Those that are missing beside others are logged.
static enum skr_code
set_up_queues(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_topology *topology = &broker->options.topology;
    struct skr_error trouble = {0};
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < topology->queue_count && code == SKR_OK; i++) {
        broker->consumer.subscriptions[i].state = RABBIT_OFF;
        code = skr_rabbit_queue_make(broker, &topology->queues[i], &trouble);
        if (code != SKR_MISSING)
            continue;
        miss(broker, i, &trouble);
        // Without any queue the consumer is told of the last that is missing.
        if (count_state(broker, RABBIT_MISSING) < topology->queue_count)
            code = SKR_OK;
    }
    if (code == SKR_OK) {
        log_missing(broker);
        code = skr_rabbit_consuming_bind(broker, &trouble);
    }
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &trouble);
}

// Under which the server knows the consumer of a queue.
static void
write_tag(const struct rabbit_broker *broker, size_t queue, char tag[TAG_SIZE])
{
    snprintf(tag, TAG_SIZE, "%llu",
             (unsigned long long)(broker->consumer.generation *
                                      broker->options.topology.queue_count +
                                  queue));
}

// Asks for the messages of the next queue, if there is one; its answer asks for
// those of the one after it.
static enum skr_code
subscribe_next(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queue = find_state(broker, RABBIT_OFF);
    char tag[TAG_SIZE];
    if (queue == broker->options.topology.queue_count)
        return SKR_OK;
    write_tag(broker, queue, tag);
    consumer->subscriptions[queue].state = RABBIT_ASKED;
    consumer->asked = queue_name(broker, queue);
    consumer->asked_ms = skr_clock_ms();
    return skr_amqp_consume(&broker->amqp, RABBIT_CONSUMING, consumer->asked,
                            tag, error);
}

static enum skr_code
on_subscribed(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queue = find_state(broker, RABBIT_ASKED);
    if (consumer->asked == NULL)
        return skr_rabbit_fail_unexpected(
            broker, "an answer to no subscription", error);
    // Its end may have been told first.
    if (queue < broker->options.topology.queue_count)
        consumer->subscriptions[queue].state = RABBIT_ON;
    consumer->asked = NULL;
    return subscribe_next(broker, error);
}

// The server has ended the consumer of a queue; queue_count: of none of ours.
static void
on_lost(struct rabbit_broker *broker, size_t queue)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    size_t queues = broker->options.topology.queue_count;
    struct skr_error reason = {0};
    skr_fail(&reason, SKR_UNAVAILABLE, SKR_RECONNECT,
             "queue %.80s in vhost %.40s: RabbitMQ cancelled the consumer; the "
             "queue was deleted, or the node that has it went away",
             queue == queues ? "?" : queue_name(broker, queue),
             broker->options.connection.vhost);
    if (queue < queues)
        miss(broker, queue, &reason);
    consumer->ask_again_ms = skr_clock_ms();
    if (queue == queues || count_state(broker, RABBIT_MISSING) == queues)
        consumer->end = reason;
    else
        log_missing(broker);
}

static enum skr_code
ask_for(struct rabbit_broker *broker, size_t queue, struct skr_error *error)
{
    struct rabbit_subscription *subscription =
        &broker->consumer.subscriptions[queue];
    struct skr_error trouble = {0};
    const struct rabbit_queue *sought = &broker->options.topology.queues[queue];
    enum skr_code code = skr_rabbit_queue_make(broker, sought, &trouble);
    if (code == SKR_OK)
        code = skr_rabbit_queue_bind(broker, sought, &trouble);
    if (code == SKR_OK) {
        subscription->state = RABBIT_OFF;
        skr_trouble_end(&subscription->trouble, &broker->log,
                        SKR_TROUBLE_HARMLESS, "amqp.queue_found", sought->name);
        return SKR_OK;
    }
    // That it is missing was said.
    if (code == SKR_MISSING)
        return SKR_OK;
    if (code == SKR_REFUSED) {
        miss(broker, queue, &trouble);
        log_missing(broker);
        return SKR_OK;
    }
    return skr_fail_with(error, &trouble);
}

// Now and then, and at once after a queue was lost: those that are back are
// consumed from.
static enum skr_code
ask_for_missing(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    if (skr_clock_ms() < consumer->ask_again_ms || !consumer->is_started ||
        consumer->asked != NULL || consumer->cancels_due > 0 ||
        consumer->counts_due > 0 || consumer->end.code != SKR_OK ||
        count_state(broker, RABBIT_MISSING) == 0)
        return SKR_OK;
    consumer->ask_again_ms = skr_clock_ms() + ASK_AGAIN_MS;
    for (size_t i = 0;
         i < broker->options.topology.queue_count && code == SKR_OK; i++)
        if (consumer->subscriptions[i].state == RABBIT_MISSING)
            code = ask_for(broker, i, error);
    return code == SKR_OK ? subscribe_next(broker, error) : code;
}

static enum skr_code
on_cancelled(struct rabbit_broker *broker, struct skr_error *error)
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
    for (size_t i = 0; i < broker->options.topology.queue_count; i++)
        if (consumer->subscriptions[i].state == RABBIT_ON)
            consumer->subscriptions[i].state = RABBIT_OFF;
    consumer->prefetch.is_returning = false;
    return SKR_OK;
}

// The queue by the tag that we gave its consumer; queue_count: none.
static size_t
queue_of(const struct rabbit_broker *broker, struct skr_amqp_piece tag)
{
    size_t count = broker->options.topology.queue_count;
    char text[TAG_SIZE];
    int64_t number = 0;
    if (tag.size >= sizeof(text))
        return count;
    memcpy(text, tag.bytes, tag.size);
    text[tag.size] = '\0';
    uint64_t end = (broker->consumer.generation + 1) * count;
    if (!skr_text_number(text, 0, (int64_t)end - 1, &number))
        return count;
    return (size_t)number % count;
}

static enum skr_code
on_deliver(struct rabbit_broker *broker, const struct skr_amqp_frame *frame,
           struct skr_error *error)
{
    bool fits = false;
    size_t queue = queue_of(broker, frame->delivery.consumer_tag);
    if (queue == broker->options.topology.queue_count)
        return skr_rabbit_fail_unexpected(broker, "a delivery for nobody",
                                          error);
    enum skr_code code = skr_rabbit_deliveries_begin(
        &broker->consumer.deliveries, frame->delivery.tag, queue,
        frame->delivery.redelivered, &fits, error);
    if (code == SKR_OK && !fits)
        return skr_rabbit_fail_unexpected(broker, "a delivery out of turn",
                                          error);
    return code;
}

// The consuming channel is gone, and all that the server had given on it.
static enum skr_code
on_closed(struct rabbit_broker *broker, const struct skr_amqp_frame *frame,
          struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    const char *peer = broker->amqp.stream.peer;
    struct skr_error reason = {0};
    enum skr_code code =
        skr_amqp_accept_close(&broker->amqp, frame, &reason, error);
    if (code != SKR_OK)
        return code;
    if (skr_amqp_flush(&broker->amqp, NULL) == SKR_OK &&
        consumer->asked != NULL) {
        skr_rabbit_fail_queue(broker, consumer->asked, "read", &reason);
        return skr_fail_with(error, &reason);
    }
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s, vhost %.40s, closed the consuming "
                    "channel: %s",
                    peer, broker->options.connection.vhost, reason.text);
}

static enum skr_code
on_piece(struct rabbit_broker *broker, const struct skr_amqp_frame *frame,
         struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    bool fits = false;
    enum skr_code code = SKR_OK;
    if (frame->kind == SKR_AMQP_PROPERTIES)
        code = skr_rabbit_deliveries_properties(
            deliveries, frame->content.properties, frame->content.body_size,
            &fits, error);
    else
        fits = skr_rabbit_deliveries_body(deliveries, frame->text);
    if (code == SKR_OK && !fits)
        return skr_rabbit_fail_unexpected(
            broker, "a piece of a message out of place", error);
    return code;
}

enum skr_code
skr_rabbit_consumer_on_frame(struct rabbit_broker *broker,
                             const struct skr_amqp_frame *frame,
                             struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    switch (frame->kind) {
    case SKR_AMQP_CHANNEL_CLOSE: return on_closed(broker, frame, error);
    case SKR_AMQP_DELIVER: return on_deliver(broker, frame, error);
    case SKR_AMQP_PROPERTIES:
    case SKR_AMQP_BODY: return on_piece(broker, frame, error);
    case SKR_AMQP_CONSUME_OK: return on_subscribed(broker, error);
    case SKR_AMQP_CANCEL:
        on_lost(broker, queue_of(broker, frame->text));
        return SKR_OK;
    case SKR_AMQP_CANCEL_OK: return on_cancelled(broker, error);
    case SKR_AMQP_OPEN_OK:
    case SKR_AMQP_QOS_OK: return SKR_OK;
    case SKR_AMQP_QUEUE_DECLARE_OK:
        if (consumer->counts_due > 0) {
            consumer->counts_due--;
            consumer->ready_count += frame->queue.messages;
            return SKR_OK;
        }
        break;
    default: break;
    }
    return skr_rabbit_fail_unexpected(broker, "a method while consuming",
                                      error);
}

// What has come and was not given to the caller goes back, unless it did before
// and its queue counts: then it is deferred.
static enum skr_code
return_waiting(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    struct rabbit_delivery *delivery;
    uint64_t tag = 0;
    while (code == SKR_OK &&
           (delivery = skr_rabbit_deliveries_give(deliveries, &tag)) != NULL) {
        // Once is no harm. A queue that counts has a limit, and its end.
        if (skr_rabbit_delivery_was_out(delivery)) {
            skr_rabbit_deliveries_defer(deliveries, delivery, skr_clock_ms());
            continue;
        }
        skr_rabbit_deliveries_drop(deliveries, delivery);
        code = skr_amqp_requeue(&broker->amqp, RABBIT_CONSUMING, tag, error);
    }
    if (code == SKR_OK)
        code = skr_amqp_flush(&broker->amqp, error);
    return code;
}

// Bytes in memory are bounded, but one message has room whatever its size.
static bool
has_room(const struct rabbit_broker *broker)
{
    const struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    return (int64_t)deliveries->held_bytes < broker->options.prefetch_bytes ||
           skr_rabbit_deliveries_waiting(deliveries) == 0;
}

// *is_drained: there is nothing left to take, so that waiting makes sense.
static enum skr_code
take_frames(struct rabbit_broker *broker, size_t *count, bool *is_drained,
            struct skr_error *error)
{
    *is_drained = false;
    while (has_room(broker)) {
        struct skr_amqp_frame frame;
        bool found = false;
        enum skr_code code =
            skr_amqp_next(&broker->amqp, &frame, &found, error);
        if (code == SKR_OK && found)
            code = skr_rabbit_handle(broker, &frame, error);
        if (code == SKR_OK && broker->consumer.prefetch.is_returning)
            code = return_waiting(broker, error);
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
check_answers(const struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->asked == NULL && consumer->counts_due == 0 &&
        consumer->cancels_due == 0)
        return SKR_OK;
    return skr_rabbit_check_silence(broker, consumer->asked_ms, error);
}

static enum skr_code
turn(struct rabbit_broker *broker, uint32_t timeout_ms, struct skr_error *error)
{
    size_t count = 0;
    bool is_drained = false;
    broker->consumer.turned_ms = skr_clock_ms();
    enum skr_code code = skr_amqp_flush(&broker->amqp, error);
    if (code == SKR_OK)
        code = take_frames(broker, &count, &is_drained, error);
    if (code == SKR_OK)
        code = skr_amqp_flush(&broker->amqp, error);
    // A server that has more to say than we take cannot show that it lives. It
    // wants to be told that we do.
    if (!is_drained)
        broker->amqp.last_received_ms = skr_clock_ms();
    if (code == SKR_OK)
        code = skr_amqp_tick(&broker->amqp, error);
    if (code == SKR_OK && is_drained)
        code = check_answers(broker, error);
    if (code != SKR_OK || count > 0 || timeout_ms == 0 || !is_drained)
        return code;
    code = skr_rabbit_wait(broker, timeout_ms, broker->base.wake_fd, error);
    if (code == SKR_OK)
        code = take_frames(broker, &count, &is_drained, error);
    return code;
}

// Sends and takes what can be without waiting, then waits up to timeout_ms if
// nothing came. After an error the connection is lost, and failure says why.
static enum skr_code
turn_consumer(struct rabbit_broker *broker, uint32_t timeout_ms,
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
    // The failure stays, so that the same call would meet it again.
    if (code != SKR_OK && failure->remedy == SKR_TRY_AGAIN)
        failure->remedy = SKR_RECONNECT;
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, failure);
}

static bool
is_over_capacity(const struct rabbit_broker *broker)
{
    const struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    int64_t since_ms = skr_clock_ms() - broker->options.hold_timeout_ms;
    for (size_t i = 0; i < deliveries->count; i++)
        if (deliveries->items[i].is_deferred &&
            deliveries->items[i].came_ms < since_ms)
            return true;
    return deliveries->deferred_count >= MOST_DEFERRED ||
           (int64_t)deliveries->deferred_bytes >=
               broker->options.prefetch_bytes;
}

static enum skr_code
send_cancels(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    consumer->asked_ms = skr_clock_ms();
    for (size_t i = 0;
         i < broker->options.topology.queue_count && code == SKR_OK; i++) {
        char tag[TAG_SIZE];
        if (consumer->subscriptions[i].state != RABBIT_ON)
            continue;
        write_tag(broker, i, tag);
        code = skr_amqp_cancel(&broker->amqp, RABBIT_CONSUMING, tag, error);
        consumer->cancels_due += code == SKR_OK;
    }
    if (code == SKR_OK)
        code = skr_amqp_flush(&broker->amqp, error);
    return code;
}

static void
lower(struct rabbit_broker *broker, int64_t now_ms)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    uint64_t given = consumer->deliveries.next - consumer->prefetch.since_given;
    uint64_t elapsed_ms = (uint64_t)(now_ms - consumer->prefetch.since_ms) + 1;
    uint64_t pace =
        given * (uint64_t)broker->options.hold_timeout_ms / elapsed_ms / 2;
    if (pace >= consumer->prefetch.count)
        pace = consumer->prefetch.count / 2;
    consumer->prefetch.count = pace == 0 ? 1 : (uint32_t)pace;
    consumer->prefetch.is_returning = true;
    skr_log(&broker->log, SKR_LOG_INFO, "amqp.held_too_long",
            SKR_LOG_TEXT("queue", queue_name(broker, 0)),
            SKR_LOG_NUMBER("given_back", skr_rabbit_deliveries_waiting(
                                             &consumer->deliveries)),
            SKR_LOG_NUMBER("prefetch", consumer->prefetch.count));
}

// Half of the prefetch is taken. What was deferred by an old consumer is none
// of a new one's.
static bool
is_half_deferred(const struct rabbit_broker *broker)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_deliveries *deliveries = &consumer->deliveries;
    size_t most =
        consumer->prefetch.count / broker->options.topology.queue_count;
    size_t taken = 0;
    for (size_t i = 0; i < deliveries->count; i++)
        taken += deliveries->items[i].is_deferred &&
                 deliveries->items[i].tag >= consumer->prefetch.since_come;
    return taken > 0 && taken * 2 >= most &&
           deliveries->deferred_count < MOST_DEFERRED;
}

// Sees to it that nothing waits here for too long, and that what was deferred
// leaves room for others, by cancelling the consumers; the next receive() makes
// new ones with another prefetch.
static enum skr_code
review_prefetch(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_delivery *oldest =
        skr_rabbit_deliveries_oldest(&consumer->deliveries);
    enum skr_code code = SKR_OK;
    int64_t now_ms = skr_clock_ms();
    int64_t limit_ms = broker->options.hold_timeout_ms;
    if (!consumer->is_started || consumer->asked != NULL ||
        consumer->cancels_due > 0 || consumer->counts_due > 0 ||
        broker->failure.code != SKR_OK || consumer->end.code != SKR_OK)
        return SKR_OK;
    if (is_half_deferred(broker))
        return send_cancels(broker, error);
    if (oldest != NULL && consumer->deliveries.deferred_count == 0 &&
        now_ms - oldest->came_ms > limit_ms) {
        lower(broker, now_ms);
        code = send_cancels(broker, error);
        // The server hears of them after the end of their consumers. What is
        // still under way goes the same way as it comes.
        return code == SKR_OK ? return_waiting(broker, error) : code;
    }
    if (consumer->prefetch.count >= consumer->prefetch.most ||
        now_ms - consumer->prefetch.since_ms <= limit_ms)
        return SKR_OK;
    consumer->prefetch.count =
        consumer->prefetch.count > consumer->prefetch.most / 2
            ? consumer->prefetch.most
            : consumer->prefetch.count * 2;
    return send_cancels(broker, error);
}

static int64_t
pause_ms(const struct rabbit_broker *broker)
{
    int64_t beat_ms = broker->amqp.heartbeat_ms;
    int64_t hold_ms = broker->options.hold_timeout_ms;
    return (beat_ms > 0 && beat_ms < hold_ms ? beat_ms : hold_ms) /
           TURNS_A_HEARTBEAT;
}

static void *
serve(void *user)
{
    struct rabbit_broker *broker = user;
    struct rabbit_consumer *consumer = &broker->consumer;
    struct rabbit_service *service = &consumer->service;
    pthread_mutex_lock(&consumer->mutex);
    while (!service->is_stopping) {
        struct timespec until = skr_clock_deadline((uint32_t)pause_ms(broker));
        pthread_cond_timedwait(&service->wake, &consumer->mutex, &until);
        if (service->is_stopping)
            break;
        // What goes wrong, the next call of the caller returns.
        bool is_well = review_prefetch(broker, &broker->failure) == SKR_OK;
        if (turn_consumer(broker, 0, NULL) != SKR_OK || !is_well)
            break;
    }
    pthread_mutex_unlock(&consumer->mutex);
    return NULL;
}

static enum skr_code
start_service(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_service *service = &broker->consumer.service;
    if (service->is_running)
        return SKR_OK;
    if (skr_condition_init(&service->wake) != 0)
        return skr_fail_memory(error);
    int failed = skr_thread_start(&service->thread, serve, broker);
    if (failed != 0) {
        pthread_cond_destroy(&service->wake);
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot start the heartbeat thread: %s",
                        strerror(failed));
    }
    service->is_running = true;
    return SKR_OK;
}

static void
stop_service(struct rabbit_broker *broker)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    struct rabbit_service *service = &consumer->service;
    if (!service->is_running)
        return;
    pthread_mutex_lock(&consumer->mutex);
    service->is_stopping = true;
    pthread_cond_signal(&service->wake);
    pthread_mutex_unlock(&consumer->mutex);
    pthread_join(service->thread, NULL);
    pthread_cond_destroy(&service->wake);
    service->is_running = false;
}

// Lets messages come, at most twice as many as receive() is asked for if the
// options do not say.
static enum skr_code
subscribe(struct rabbit_broker *broker, size_t capacity,
          struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    const struct rabbit_topology *topology = &broker->options.topology;
    if (consumer->is_started)
        return SKR_OK;
    if (consumer->prefetch.most == 0) {
        // So that the next batch is here when one is done.
        consumer->prefetch.most = broker->options.prefetch_count > 0
                                      ? (uint32_t)broker->options.prefetch_count
                                  : capacity > UINT16_MAX / 2 ? UINT16_MAX
                                  : capacity < LEAST_PREFETCH / 2
                                      ? LEAST_PREFETCH
                                      : (uint32_t)capacity * 2;
        consumer->prefetch.count = consumer->prefetch.most;
    }
    consumer->prefetch.since_ms = skr_clock_ms();
    consumer->prefetch.since_given = consumer->deliveries.next;
    consumer->prefetch.since_come = consumer->deliveries.end;
    // It holds for each queue by itself.
    size_t prefetch = consumer->prefetch.count / topology->queue_count;
    enum skr_code code = start_service(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_qos(&broker->amqp, RABBIT_CONSUMING,
                            prefetch == 0 ? 1 : (uint16_t)prefetch, error);
    if (code == SKR_OK)
        code = subscribe_next(broker, error);
    consumer->is_started = code == SKR_OK;
    return code;
}

static enum skr_code
init(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->has_mutex)
        return SKR_OK;
    consumer->subscriptions = calloc(broker->options.topology.queue_count,
                                     sizeof(*consumer->subscriptions));
    if (consumer->subscriptions == NULL)
        return skr_fail_memory(error);
    skr_rabbit_deliveries_init(&consumer->deliveries);
    consumer->delay.amqp = SKR_AMQP_CLOSED;
    if (pthread_mutex_init(&consumer->mutex, NULL) != 0) {
        free(consumer->subscriptions);
        return skr_fail_memory(error);
    }
    consumer->has_mutex = true;
    return SKR_OK;
}

enum skr_code
skr_rabbit_consumer_prepare(struct rabbit_broker *broker,
                            struct skr_error *error)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (consumer->is_prepared)
        return SKR_OK;
    if (broker->publisher.window.end > 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection publishes; another is needed to "
                        "consume");
    consumer->is_wanted = true;
    enum skr_code code = init(broker, error);
    if (code == SKR_OK)
        code = set_up_queues(broker, error);
    if (code == SKR_OK)
        code = skr_amqp_channel_open(&broker->amqp, RABBIT_CONSUMING, false,
                                     error);
    consumer->is_prepared = code == SKR_OK;
    return code;
}

// Gives back what the caller was given and has not settled.
static enum skr_code
return_unsettled(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < deliveries->count && code == SKR_OK; i++) {
        struct rabbit_delivery *delivery = &deliveries->items[i];
        if (delivery->state != RABBIT_GIVEN)
            continue;
        delivery->state = delivery->is_deferred ? RABBIT_COME : RABBIT_OVER;
        if (!delivery->is_deferred)
            code = skr_amqp_requeue(&broker->amqp, RABBIT_CONSUMING,
                                    delivery->tag, error);
    }
    return code;
}

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
    for (size_t i = 0;
         i < broker->options.topology.queue_count && code == SKR_OK; i++) {
        // To ask for it would close the channel.
        if (consumer->subscriptions[i].state == RABBIT_MISSING)
            continue;
        code = skr_amqp_look_for(&broker->amqp, RABBIT_CONSUMING,
                                 SKR_AMQP_QUEUE, queue_name(broker, i), error);
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
            code = turn_consumer(broker, POLL_PAUSE_MS, error);
    }
    return code;
}

// Messages are pushed, so that a glance at the socket does not tell whether
// there are any. The queues are asked until they have none ready, and once
// more, since what was sent to us may still be behind the first answer.
static enum skr_code
poll_queues(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    int64_t deadline_ms = skr_clock_ms() + POLL_MS;
    enum skr_code code = await_answers(broker, deadline_ms, error);
    for (int empty = 0; code == SKR_OK && empty < 2 && !has_waiting(broker) &&
                        consumer->end.code == SKR_OK &&
                        skr_clock_ms() < deadline_ms;) {
        code = send_counts(broker, error);
        if (code == SKR_OK)
            code = await_answers(broker, deadline_ms, error);
        empty = consumer->ready_count == 0 ? empty + 1 : 0;
        if (code == SKR_OK && empty == 0)
            code = turn_consumer(broker, POLL_PAUSE_MS, error);
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
    enum skr_code code = review_prefetch(broker, error);
    while (code == SKR_OK && consumer->cancels_due > 0 &&
           !has_waiting(broker)) {
        code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK)
            code = turn_consumer(broker, POLL_PAUSE_MS, error);
    }
    if (code == SKR_OK && consumer->cancels_due == 0)
        code = subscribe(broker, capacity, error);
    return code;
}

// SKR_OK: something is waiting.
static enum skr_code
wait_for_deliveries(struct rabbit_broker *broker, size_t capacity,
                    uint32_t timeout_ms, struct skr_error *error)
{
    const struct rabbit_consumer *consumer = &broker->consumer;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    enum skr_code code = SKR_OK;
    if (broker->failure.code != SKR_OK ||
        skr_rabbit_deliveries_waiting(&consumer->deliveries) < capacity ||
        skr_clock_ms() - consumer->turned_ms >= TURN_MS)
        code = turn_consumer(broker, 0, error);
    if (code == SKR_OK && timeout_ms == 0 && !has_waiting(broker))
        code = poll_queues(broker, error);
    while (code == SKR_OK) {
        int64_t left_ms = deadline_ms - skr_clock_ms();
        code = skr_rabbit_check_stop(broker, error);
        if (code == SKR_OK)
            code = ask_for_missing(broker, error);
        if (code != SKR_OK)
            return code;
        if (consumer->end.code != SKR_OK)
            return skr_fail_with(error, &consumer->end);
        if (has_waiting(broker))
            return SKR_OK;
        if (left_ms <= 0)
            return skr_fail(
                error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                "nothing is waiting in queue %.80s%s", queue_name(broker, 0),
                broker->options.topology.queue_count > 1 ? " and others" : "");
        int64_t due_in_ms =
            skr_rabbit_deliveries_due_ms(&consumer->deliveries) -
            skr_clock_ms();
        if (due_in_ms < left_ms)
            left_ms = due_in_ms > 0 ? due_in_ms : 0;
        code = turn_consumer(broker, (uint32_t)left_ms, error);
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
            &consumer->arena, queue_name(broker, delivery->queue), delivery,
            tag, &incoming[i], error);
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
    code = return_unsettled(broker, error);
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
    pthread_mutex_unlock(&consumer->mutex);
    return code;
}

void
skr_rabbit_consumer_fini(struct rabbit_broker *broker)
{
    struct rabbit_consumer *consumer = &broker->consumer;
    if (!consumer->has_mutex)
        return;
    stop_service(broker);
    skr_rabbit_delay_close(&consumer->delay, true);
    skr_rabbit_deliveries_fini(&consumer->deliveries);
    skr_arena_fini(&consumer->arena);
    free(consumer->subscriptions);
    pthread_mutex_destroy(&consumer->mutex);
    consumer->has_mutex = false;
}

struct skr_broker_status
skr_rabbit_status(struct skr_broker *base)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    struct rabbit_consumer *consumer = &broker->consumer;
    struct skr_broker_status status = {.is_blocked =
                                           broker->publisher.is_blocked};
    if (!consumer->has_mutex)
        return status;
    pthread_mutex_lock(&consumer->mutex);
    status.has_deferred = consumer->deliveries.deferred_count > 0;
    status.is_over_capacity = is_over_capacity(broker);
    pthread_mutex_unlock(&consumer->mutex);
    return status;
}
