// SPDX-License-Identifier: MIT
// Tells the server what became of deliveries: acknowledged, requeued, deferred,
// or tried again later.
//
// Retries go through delay queues: a copy of the message waits in a queue of
// skr_rabbit_delay_queue(). Such a queue expires, together with what is in it:
// it is declared again before every publish, and nothing lies between the two.
// It is bound only when a copy comes back: a cluster of which a node hangs
// answers no binding, not even of what is bound.
//
// One copy goes at a time, on a connection of its own. A message that comes
// back carries no tag, and may carry no id either; alone it needs none.

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "broker/rabbitmq/driver.h"
#include "message/failure.h"

enum {
    CHANNEL = 1,
    IDLE_MS = 10000,
    PAUSE_MS = 5000,  // after the server was not reached
    ENOUGH_UNSENT = 256 * 1024,
    STOPPING_MS = 2000,  // for a retry under way when a stop is asked for
};

// A copy on its way.
struct copy {
    struct rabbit_delay_queue to;
    struct skr_text properties;
    const char *body;
    size_t body_size;
    bool is_confirmed;
    struct skr_error refusal;  // SKR_OK: none
};

void
skr_rabbit_delay_close(struct rabbit_delay *delay, bool is_alive)
{
    if (delay->is_open)
        skr_amqp_close(&delay->amqp, is_alive);
    delay->is_open = false;
}

void
skr_rabbit_delay_tidy(struct rabbit_delay *delay)
{
    if (delay->is_open && skr_clock_ms() - delay->used_ms > IDLE_MS)
        skr_rabbit_delay_close(delay, true);
}

// Stays behind: it was for one trip only, or would lead the copy astray.
static bool
stays_behind(const struct skr_amqp_field *field,
             const struct skr_headers *stamps)
{
    if (skr_amqp_field_is(field, "CC") || skr_amqp_field_is(field, "BCC"))
        return true;
    for (size_t i = 0; i < stamps->count; i++)
        if (skr_amqp_field_is(field, stamps->items[i].name))
            return true;
    return false;
}

static void
write_table(struct skr_amqp_piece from, const struct skr_headers *stamps,
            struct skr_text *table)
{
    struct skr_amqp_field field;
    while (skr_amqp_table_next(&from, &field))
        if (!stays_behind(&field, stamps))
            skr_text_add(table, (const char *)field.all.bytes, field.all.size);
    for (size_t i = 0; i < stamps->count; i++)
        skr_amqp_table_add_text(table, stamps->items[i].name,
                                stamps->items[i].value);
}

// All as it came but for the stamps: headers keep their kinds.
static enum skr_code
write_properties(struct rabbit_broker *broker,
                 const struct rabbit_delivery *delivery,
                 const struct skr_incoming *incoming, struct copy *copy,
                 struct skr_error *error)
{
    static const unsigned char persistent[] = {SKR_AMQP_PERSISTENT};
    struct skr_amqp_properties properties = {0};
    struct skr_headers stamps = {0};
    struct skr_text table = {0};
    const struct skr_amqp_piece raw = {.bytes = delivery->block,
                                       .size = delivery->properties_size};
    enum skr_code code = skr_amqp_properties_read(raw, &properties, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(&broker->consumer.arena, &stamps,
                                      incoming->retry_count + 1,
                                      &incoming->reason, error);
    if (code != SKR_OK)
        return code == SKR_MALFORMED ? SKR_INVALID : code;
    struct skr_amqp_piece *pieces = properties.pieces;
    write_table(pieces[SKR_AMQP_HEADERS], &stamps, &table);
    pieces[SKR_AMQP_HEADERS] = skr_amqp_written_piece(&table);
    pieces[SKR_AMQP_DELIVERY_MODE] = (struct skr_amqp_piece){
        .bytes = persistent, .size = sizeof(persistent)};
    // The server compares it with the user that publishes.
    pieces[SKR_AMQP_USER_ID] = (struct skr_amqp_piece){0};
    // A message's own time would cut the delay short.
    pieces[SKR_AMQP_EXPIRATION] = (struct skr_amqp_piece){0};
    if (!table.broken)
        skr_amqp_properties_write(&properties, &copy->properties);
    if (table.broken || copy->properties.broken)
        code = skr_fail_memory(error);
    skr_text_fini(&table);
    return code;
}

static enum skr_code
open_connection(struct rabbit_broker *broker,
                const struct skr_amqp_declaration *exchange,
                struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    struct skr_amqp *amqp = &delay->amqp;
    enum skr_code code = skr_amqp_open(amqp, &broker->options.connection,
                                       broker->base.wake_fd, error);
    if (code != SKR_OK)
        return code;
    delay->is_open = true;
    delay->tag = 0;
    code = skr_amqp_channel_open(amqp, CHANNEL, true, error);
    if (code == SKR_OK)
        code = skr_amqp_declare(amqp, CHANNEL, exchange, error);
    return code;
}

static enum skr_code
on_frame(const struct rabbit_delay *delay, const struct skr_amqp_frame *frame,
         struct copy *copy, struct skr_error *error)
{
    switch (frame->kind) {
    case SKR_AMQP_CHANNEL_CLOSE:
    case SKR_AMQP_CONNECTION_CLOSE:
        return skr_amqp_fail_reply(error, frame->reply);
    case SKR_AMQP_RETURN:
        skr_fail(&copy->refusal, SKR_REFUSED, SKR_TRY_AGAIN,
                 "it did not get into delay queue %.120s", copy->to.name);
        return SKR_OK;
    case SKR_AMQP_NACK:
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "delay queue %.120s does not take it", copy->to.name);
    case SKR_AMQP_ACK:
        copy->is_confirmed = frame->confirm.tag == delay->tag;
        return SKR_OK;
    default: return SKR_OK;
    }
}

// Handles what has come.
static enum skr_code
take_frames(struct rabbit_delay *delay, struct copy *copy,
            struct skr_error *error)
{
    bool found = true;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && found && !copy->is_confirmed) {
        struct skr_amqp_frame frame;
        code = skr_amqp_next(&delay->amqp, &frame, &found, error);
        if (code == SKR_OK && found)
            code = on_frame(delay, &frame, copy, error);
    }
    return code;
}

// Before a stop there is some time left, and no more.
static struct skr_amqp_deadline
deadline_of(const struct rabbit_broker *broker, int64_t end_ms)
{
    int64_t stop_ms = skr_clock_ms() + STOPPING_MS;
    bool is_stopping = skr_rabbit_check_stop(broker, NULL) != SKR_OK;
    return (struct skr_amqp_deadline){
        .at_ms = is_stopping && stop_ms < end_ms ? stop_ms : end_ms,
        .wake_fd = is_stopping ? -1 : broker->base.wake_fd,
    };
}

// Until the server has taken enough of what is to be sent, or has confirmed.
static enum skr_code
await(struct rabbit_broker *broker, struct copy *copy, size_t most_unsent,
      bool until_confirmed, struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    int64_t end_ms = skr_clock_ms() + broker->options.confirm_timeout_ms;
    struct skr_amqp_deadline deadline = deadline_of(broker, end_ms);
    enum skr_code code = skr_amqp_flush(&delay->amqp, error);
    while (code == SKR_OK &&
           (until_confirmed || skr_amqp_unsent(&delay->amqp) > most_unsent)) {
        code = take_frames(delay, copy, error);
        if (code != SKR_OK || copy->is_confirmed)
            return code;
        code = skr_amqp_wait(&delay->amqp, &deadline, error);
        if (code == SKR_STOPPED) {
            deadline = deadline_of(broker, end_ms);
            code = SKR_OK;
        }
    }
    if (code != SKR_TIMEOUT)
        return code;
    // Before a stop the time may be too short to tell.
    if (skr_clock_ms() >= end_ms)
        skr_silence_note(delay->amqp.stream.peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "RabbitMQ at %s has not confirmed a retry in time "
                    "(confirm_timeout)",
                    delay->amqp.stream.peer);
}

static enum skr_code
send_copy(struct rabbit_broker *broker, struct copy *copy,
          struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    const struct skr_amqp_publish publish = {
        .exchange = copy->to.exchange.name,
        .routing_key = copy->to.name,
        .properties = skr_amqp_written_piece(&copy->properties),
        .body_size = copy->body_size,
    };
    delay->tag++;
    enum skr_code code =
        skr_amqp_publish(&delay->amqp, CHANNEL, &publish, error);
    for (size_t sent = 0; sent < copy->body_size && code == SKR_OK;) {
        size_t size = copy->body_size - sent;
        code = skr_amqp_send_body(&delay->amqp, CHANNEL, copy->body + sent,
                                  &size, error);
        sent += size;
        if (code == SKR_OK)
            code = await(broker, copy, ENOUGH_UNSENT, false, error);
    }
    return code;
}

// It is in its queue, or copy->refusal says why not.
static enum skr_code
store(struct rabbit_broker *broker, struct copy *copy, bool binds,
      struct skr_error *error)
{
    copy->is_confirmed = false;
    skr_error_clear(&copy->refusal);
    struct skr_amqp *amqp = &broker->consumer.delay.amqp;
    enum skr_code code =
        skr_amqp_declare(amqp, CHANNEL, &copy->to.queue, error);
    if (code == SKR_OK && binds)
        code = skr_amqp_declare(amqp, CHANNEL, &copy->to.binding, error);
    if (code == SKR_OK)
        code = send_copy(broker, copy, error);
    if (code == SKR_OK)
        code = await(broker, copy, 0, true, error);
    return code;
}

static enum skr_code
attempt(struct rabbit_broker *broker, struct copy *copy,
        struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    enum skr_code code =
        delay->is_open ? SKR_OK
                       : open_connection(broker, &copy->to.exchange, error);
    // What does not fit would end the connection.
    if (code == SKR_OK && copy->properties.size + SKR_AMQP_PROPERTIES_OVERHEAD >
                              delay->amqp.frame_max)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the headers have no room for the count of retries");
    if (code == SKR_OK)
        code = store(broker, copy, false, error);
    if (code == SKR_OK && copy->refusal.code != SKR_OK)
        code = store(broker, copy, true, error);
    delay->used_ms = skr_clock_ms();
    if (code != SKR_OK) {
        skr_rabbit_delay_close(delay, false);
        return code;
    }
    return copy->refusal.code == SKR_OK ? SKR_OK
                                        : skr_fail_with(error, &copy->refusal);
}

static enum skr_code
publish(struct rabbit_broker *broker, struct copy *copy,
        struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    if (skr_clock_ms() < delay->again_ms) {
        *error = delay->reason;
        return error->code;
    }
    bool was_open = delay->is_open;
    enum skr_code code = attempt(broker, copy, error);
    // One that was idle may have ended unnoticed. That it does not answer is
    // known after one wait.
    if (code == SKR_UNAVAILABLE && was_open && error->remedy == SKR_RECONNECT)
        code = attempt(broker, copy, error);
    if (code == SKR_UNAVAILABLE) {
        delay->reason = *error;
        delay->again_ms = skr_clock_ms() + PAUSE_MS;
    }
    return code;
}

// The copy comes back to its queue after incoming's delay, with the count of
// retries raised; this waits until it is stored. After an error it may not be
// stored: SKR_INVALID, it has no room for that; SKR_UNAVAILABLE, no answer came
// in time; else what the server said.
static enum skr_code
publish_copy(struct rabbit_broker *broker,
             const struct rabbit_delivery *delivery,
             const struct skr_incoming *incoming, struct skr_error *error)
{
    const char *queue = broker->options.topology.queues[delivery->queue].name;
    struct copy copy = {
        .body = incoming->body,
        .body_size = incoming->body_size,
    };
    enum skr_code code = skr_rabbit_delay_queue(
        &broker->options, queue, incoming->delay_ms, &copy.to, error);
    if (code == SKR_OK)
        code = write_properties(broker, delivery, incoming, &copy, error);
    if (code == SKR_OK)
        code = publish(broker, &copy, error);
    if (code != SKR_OK && code != SKR_INVALID)
        skr_error_prefix(error, "retry of queue %.60s in vhost %.40s", queue,
                         broker->options.connection.vhost);
    skr_text_fini(&copy.properties);
    return code;
}

// The server knows of those that were requeued: an ack of all up to a tag
// passes over them.
static enum skr_code
send_acks(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_deliveries *deliveries = &broker->consumer.deliveries;
    enum skr_code code = SKR_OK;
    uint64_t tag = skr_rabbit_deliveries_ack(deliveries);
    if (tag > 0)
        code = skr_amqp_ack(&broker->amqp, RABBIT_CONSUMING, tag, true, error);
    while (code == SKR_OK &&
           (tag = skr_rabbit_deliveries_ack_alone(deliveries, tag)) > 0)
        code = skr_amqp_ack(&broker->amqp, RABBIT_CONSUMING, tag, false, error);
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
        if (broker->base.can.delays)
            return SKR_OK;
        break;
    case SKR_SETTLE_DEFER:
        skr_rabbit_deliveries_defer(&broker->consumer.deliveries, delivery,
                                    skr_clock_ms() + incoming->delay_ms);
        return SKR_OK;
    case SKR_SETTLE_REQUEUE: break;
    }
    delivery->state = RABBIT_OVER;
    return skr_amqp_requeue(&broker->amqp, RABBIT_CONSUMING, incoming->handle,
                            error);
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
    const char *queue = broker->options.topology.queues[delivery->queue].name;
    struct skr_error trouble = {0};
    incoming->was_refused = false;
    enum skr_code code = publish_copy(broker, delivery, incoming, &trouble);
    if (code == SKR_STOPPED || code == SKR_NO_MEMORY) {
        // This connection is as good as before: the caller may try again.
        trouble.remedy = SKR_TRY_AGAIN;
        return skr_fail_with(error, &trouble);
    }
    if (code != SKR_OK) {
        skr_trouble_report(&delay->trouble, &broker->log, SKR_TROUBLE_HARMLESS,
                           "amqp.not_delayed", queue, &trouble);
        incoming->was_refused = true;
        return SKR_OK;
    }
    skr_trouble_end(&delay->trouble, &broker->log, SKR_TROUBLE_HARMLESS,
                    "amqp.delayed_again", queue);
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
        code = skr_amqp_flush(&broker->amqp, error);
    for (size_t i = 0; i < count && code == SKR_OK && broker->base.can.delays;
         i++)
        code = settle_retry(broker, &incoming[i], error);
    struct skr_error ignored = {0};
    struct skr_error *rest = code == SKR_OK ? error : &ignored;
    enum skr_code told = send_acks(broker, rest);
    if (told == SKR_OK)
        told = skr_amqp_flush(&broker->amqp, rest);
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
