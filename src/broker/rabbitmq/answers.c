// SPDX-License-Identifier: MIT
// What the server says, frame by frame.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/errors.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <string.h>

enum skr_code
skr_rabbit_open_channel(struct rabbit_broker *broker, amqp_channel_t channel,
                        struct skr_error *error)
{
    amqp_channel_open_t open = {0};
    amqp_confirm_select_t select = {0};
    broker->channel_asked_ms = skr_clock_ms();
    enum skr_code code = skr_rabbit_link_send(
        &broker->link, channel, AMQP_CHANNEL_OPEN_METHOD, &open, error);
    if (code == SKR_OK && channel == RABBIT_PUBLISHING)
        code = skr_rabbit_link_send(&broker->link, channel,
                                    AMQP_CONFIRM_SELECT_METHOD, &select, error);
    return code;
}

enum skr_code
skr_rabbit_fail_unexpected(const struct rabbit_broker *broker, const char *what,
                           struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s sent what was not expected: %s",
                    broker->link.stream.peer, what);
}

// Short strings fit: they have a byte for their size.
static void
copy_short(amqp_bytes_t bytes, char text[256])
{
    size_t size = bytes.len < 255 ? bytes.len : 255;
    if (size > 0)
        memcpy(text, bytes.bytes, size);
    text[size] = '\0';
}

static enum skr_code
on_connection_close(struct rabbit_broker *broker,
                    const amqp_connection_close_t *close,
                    struct skr_error *error)
{
    amqp_connection_close_ok_t answer = {0};
    struct skr_error reason = {0};
    skr_rabbit_fail_reply(&reason, close->reply_code, close->reply_text);
    enum skr_code code = skr_rabbit_link_send(
        &broker->link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &answer, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_flush(&broker->link, error);
    if (code != SKR_OK)
        return code;
    if (skr_rabbit_blames_us(close->reply_code) &&
        broker->window.in_flight > 0) {
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.connection_closed",
                SKR_LOG_TEXT("broker", broker->link.stream.peer),
                SKR_LOG_TEXT("reason", reason.text));
        skr_rabbit_window_rewind(&broker->window,
                                 skr_rabbit_fate(close->reply_code), &reason);
        broker->must_reconnect = true;
        return SKR_OK;
    }
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "RabbitMQ at %s closed the connection: %s",
                    broker->link.stream.peer, reason.text);
}

static enum skr_code
on_connection(struct rabbit_broker *broker, const amqp_method_t *method,
              struct skr_error *error)
{
    switch (method->id) {
    case AMQP_CONNECTION_CLOSE_METHOD:
        return on_connection_close(broker, method->decoded, error);
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *blocked = method->decoded;
        char reason[256];
        copy_short(blocked->reason, reason);
        if (!broker->base.is_blocked)
            skr_log(&broker->log, SKR_LOG_WARNING, "amqp.blocked",
                    SKR_LOG_TEXT("broker", broker->link.stream.peer),
                    SKR_LOG_TEXT("reason", reason));
        broker->base.is_blocked = true;
        return SKR_OK;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        skr_log(&broker->log, SKR_LOG_INFO, "amqp.unblocked",
                SKR_LOG_TEXT("broker", broker->link.stream.peer));
        broker->base.is_blocked = false;
        broker->unblocked_ms = skr_clock_ms();
        return SKR_OK;
    default:
        return skr_rabbit_fail_unexpected(broker, "a method on channel 0",
                                          error);
    }
}

// Access to one topic of an exchange may be refused, or to all of it.
static bool
concerns_exchange(const amqp_channel_close_t *close)
{
    static const char mark[] = "access to topic";
    return close->reply_code == AMQP_NOT_FOUND ||
           (close->reply_code == AMQP_ACCESS_REFUSED &&
            memmem(close->reply_text.bytes, close->reply_text.len, mark,
                   sizeof(mark) - 1) == NULL);
}

// Everything that was sent on the channel becomes suspect and goes again, one
// at a time; what was alone on it has closed it.
static enum skr_code
on_publishing_closed(struct rabbit_broker *broker,
                     const amqp_channel_close_t *close,
                     const struct skr_error *reason, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    struct skr_error said = *reason;
    if (!broker->is_publishing_open)
        return skr_rabbit_fail_unexpected(broker, reason->text, error);
    skr_log(&broker->log, SKR_LOG_WARNING, "amqp.channel_closed",
            SKR_LOG_TEXT("broker", broker->link.stream.peer),
            SKR_LOG_NUMBER("in_flight", broker->window.in_flight),
            SKR_LOG_TEXT("reason", reason->text));
    skr_rabbit_exchanges_forget(&broker->exchanges);
    const struct rabbit_entry *oldest =
        skr_rabbit_window_oldest(&broker->window);
    if (broker->window.in_flight == 1 && concerns_exchange(close)) {
        const char *exchange = skr_rabbit_entry_exchange(oldest);
        skr_rabbit_fail_exchange(broker, exchange, &said);
        code = skr_rabbit_exchange_note(&broker->exchanges, exchange, &said,
                                        error);
    }
    skr_rabbit_window_rewind(&broker->window,
                             skr_rabbit_fate(close->reply_code), &said);
    broker->is_publishing_open = false;
    broker->renew_ms = 0;
    broker->sending = NULL;
    broker->returning = (struct rabbit_return){0};
    return code;
}

static enum skr_code
on_asking_closed(struct rabbit_broker *broker, const struct skr_error *reason,
                 struct skr_error *error)
{
    broker->is_asking_open = false;
    if (!broker->is_asking)
        return skr_rabbit_fail_unexpected(broker, reason->text, error);
    broker->is_asking = false;
    if (strcmp(reason->native, "404") == 0 &&
        skr_rabbit_may_mend(broker, broker->asked, broker->channel_asked_ms))
        return SKR_OK;  // it is asked for again
    struct skr_error said = *reason;
    skr_rabbit_fail_exchange(broker, broker->asked, &said);
    return skr_rabbit_exchange_note(&broker->exchanges, broker->asked, &said,
                                    error);
}

static enum skr_code
on_channel_close(struct rabbit_broker *broker, amqp_channel_t channel,
                 const amqp_channel_close_t *close, struct skr_error *error)
{
    amqp_channel_close_ok_t answer = {0};
    struct skr_error reason = {0};
    enum skr_code code = skr_rabbit_link_send(
        &broker->link, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &answer, error);
    if (code != SKR_OK)
        return code;
    skr_rabbit_fail_reply(&reason, close->reply_code, close->reply_text);
    // The server tells where access was refused, and not to what.
    if (close->reply_code == AMQP_ACCESS_REFUSED &&
        (channel == RABBIT_PUBLISHING || channel == RABBIT_ASKING))
        skr_error_prefix(&reason, "the user needs the permission to write to "
                                  "the exchange");
    switch (channel) {
    case RABBIT_PUBLISHING:
        code = on_publishing_closed(broker, close, &reason, error);
        break;
    case RABBIT_ASKING: code = on_asking_closed(broker, &reason, error); break;
    case RABBIT_CONSUMING:
        return skr_rabbit_on_consuming_closed(broker, &reason, error);
    case RABBIT_BINDING:
        broker->is_binding_open = false;
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
                SKR_LOG_TEXT("reason", reason.text));
        return SKR_OK;
    default:
        broker->is_declaring_open = false;
        broker->answer = RABBIT_NO;
        broker->answer_error = reason;
        return SKR_OK;  // opened again when it is needed
    }
    if (code != SKR_OK)
        return code;
    return skr_rabbit_open_channel(broker, channel, error);
}

static enum skr_code
on_confirmation(struct rabbit_broker *broker, uint64_t tag, bool multiple,
                enum skr_fate fate, struct skr_error *error)
{
    if (!skr_rabbit_window_settle(&broker->window, tag, multiple, fate))
        return skr_rabbit_fail_unexpected(broker, "a confirm of nothing",
                                          error);
    return SKR_OK;
}

static void
on_return(struct rabbit_broker *broker, const amqp_basic_return_t *method)
{
    struct rabbit_return *returning = &broker->returning;
    char text[256];
    copy_short(method->exchange, returning->exchange);
    copy_short(method->routing_key, returning->routing_key);
    copy_short(method->reply_text, text);
    returning->is_coming = true;
    skr_fail(&returning->reason, SKR_REFUSED, SKR_GIVE_UP,
             "no queue takes it: exchange %.100s, routing key %.100s (RabbitMQ "
             "says %u: %.40s)",
             returning->exchange, returning->routing_key, method->reply_code,
             text);
    skr_error_set_native(&returning->reason, "%u", method->reply_code);
}

static enum skr_code
on_renewal(struct rabbit_broker *broker, struct skr_error *error)
{
    if (broker->is_publishing_open || broker->renew_ms == 0)
        return skr_rabbit_fail_unexpected(broker, "a close-ok", error);
    broker->renew_ms = 0;
    return skr_rabbit_open_channel(broker, RABBIT_PUBLISHING, error);
}

static enum skr_code
on_publishing(struct rabbit_broker *broker, const amqp_method_t *method,
              struct skr_error *error)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        return on_confirmation(broker, ack->delivery_tag, ack->multiple,
                               SKR_CONFIRMED, error);
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        skr_rabbit_plan_renewal(broker);
        return on_confirmation(broker, nack->delivery_tag, nack->multiple,
                               SKR_REFUSED_ONCE, error);
    }
    case AMQP_BASIC_RETURN_METHOD:
        on_return(broker, method->decoded);
        return SKR_OK;
    case AMQP_CHANNEL_OPEN_OK_METHOD: return SKR_OK;
    case AMQP_CONFIRM_SELECT_OK_METHOD:
        broker->is_publishing_open = true;
        return SKR_OK;
    case AMQP_CHANNEL_CLOSE_OK_METHOD: return on_renewal(broker, error);
    default:
        return skr_rabbit_fail_unexpected(broker, "a method while publishing",
                                          error);
    }
}

static enum skr_code
on_asking(struct rabbit_broker *broker, const amqp_method_t *method,
          struct skr_error *error)
{
    if (method->id == AMQP_CHANNEL_OPEN_OK_METHOD) {
        broker->is_asking_open = true;
        return SKR_OK;
    }
    if (method->id != AMQP_EXCHANGE_DECLARE_OK_METHOD || !broker->is_asking)
        return skr_rabbit_fail_unexpected(broker, "an answer to no question",
                                          error);
    broker->is_asking = false;
    return skr_rabbit_exchange_note(&broker->exchanges, broker->asked, NULL,
                                    error);
}

// The properties of a message that came back tell which one it is.
static enum skr_code
on_returned_properties(struct rabbit_broker *broker, const amqp_frame_t *frame,
                       struct skr_error *error)
{
    const struct rabbit_piece raw = {.bytes =
                                         frame->payload.properties.raw.bytes,
                                     .size = frame->payload.properties.raw.len};
    struct rabbit_properties properties = {0};
    struct skr_id id;
    char text[SKR_ID_TEXT_SIZE] = "";
    struct rabbit_entry *entry = NULL;
    broker->returning.body_left = frame->payload.properties.body_size;
    broker->returning.is_coming = broker->returning.body_left > 0;
    const struct rabbit_piece *given = &properties.pieces[RABBIT_MESSAGE_ID];
    if (skr_rabbit_properties_read(raw, &properties, NULL) == SKR_OK &&
        given->size == sizeof(text) - 1) {
        memcpy(text, given->bytes, sizeof(text) - 1);
        if (skr_id_parse(text, &id, NULL) == SKR_OK)
            entry = skr_rabbit_window_find(&broker->window, id,
                                           broker->returning.exchange,
                                           broker->returning.routing_key);
    }
    if (entry == NULL)
        return skr_rabbit_fail_unexpected(
            broker, "the return of an unknown message", error);
    entry->goes_again =
        skr_rabbit_may_mend(broker, broker->returning.exchange, entry->sent_ms);
    return skr_rabbit_entry_return(entry, &broker->returning.reason, error);
}

static enum skr_code
on_returned_body(struct rabbit_broker *broker, const amqp_frame_t *frame,
                 struct skr_error *error)
{
    size_t size = frame->payload.body_fragment.len;
    if (size > broker->returning.body_left)
        return skr_rabbit_fail_unexpected(
            broker, "more of a body than announced", error);
    broker->returning.body_left -= size;
    broker->returning.is_coming = broker->returning.body_left > 0;
    return SKR_OK;
}

static void
on_declaring(struct rabbit_broker *broker, const amqp_method_t *method)
{
    broker->answer = RABBIT_YES;
    if (method->id != AMQP_QUEUE_DECLARE_OK_METHOD)
        return;
    const amqp_queue_declare_ok_t *queue = method->decoded;
    broker->answer_messages = queue->message_count;
    broker->answer_consumers = queue->consumer_count;
}

static enum skr_code
on_method(struct rabbit_broker *broker, amqp_channel_t channel,
          const amqp_method_t *method, struct skr_error *error)
{
    if (channel == 0)
        return on_connection(broker, method, error);
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD)
        return on_channel_close(broker, channel, method->decoded, error);
    switch (channel) {
    case RABBIT_PUBLISHING: return on_publishing(broker, method, error);
    case RABBIT_ASKING: return on_asking(broker, method, error);
    case RABBIT_DECLARING: on_declaring(broker, method); return SKR_OK;
    case RABBIT_BINDING: return SKR_OK;
    default:
        return skr_rabbit_fail_unexpected(broker, "an unknown channel", error);
    }
}

enum skr_code
skr_rabbit_handle(struct rabbit_broker *broker, const amqp_frame_t *frame,
                  struct skr_error *error)
{
    bool is_return =
        frame->channel == RABBIT_PUBLISHING && broker->returning.is_coming;
    bool is_close = frame->frame_type == AMQP_FRAME_METHOD &&
                    frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD;
    if (frame->channel == RABBIT_CONSUMING && !is_close)
        return skr_rabbit_on_consuming(broker, frame, error);
    switch (frame->frame_type) {
    case AMQP_FRAME_HEARTBEAT: return SKR_OK;
    case AMQP_FRAME_METHOD:
        return on_method(broker, frame->channel, &frame->payload.method, error);
    case AMQP_FRAME_HEADER:
        if (is_return)
            return on_returned_properties(broker, frame, error);
        break;
    case AMQP_FRAME_BODY:
        if (is_return)
            return on_returned_body(broker, frame, error);
        break;
    default: break;
    }
    return skr_rabbit_fail_unexpected(broker, "a frame out of place", error);
}
