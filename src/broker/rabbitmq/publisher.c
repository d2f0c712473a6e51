// SPDX-License-Identifier: MIT
// Messages on their way to the server, the exchanges that they go to, and what
// the server says of both.
//
// A message for an exchange that is missing would close the channel and make
// everything in flight uncertain, so the server is asked before the first
// message for it goes, and again after a close.

#include "broker/rabbitmq/publisher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "broker/rabbitmq/driver.h"
#include "message/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    // Bytes that wait for the server to read: beyond the first, they are
    // written; beyond the second, messages wait instead.
    WRITE_AT = 32 * 1024,
    ENOUGH_UNSENT = 256 * 1024,
    // How long a channel stays that has refused something, at first and at
    // most; and how long messages are kept back so that nothing is in flight on
    // it.
    RENEW_AFTER_MS = 500,
    MOST_RENEW_AFTER_MS = 10000,
    MOST_DRAIN_MS = 250,
    ASK_AGAIN_MS = 1000,
    // Names may come from messages: they must not fill the memory.
    MOST_EXCHANGES = 4096,
};

static int
compare_name(const void *name, const void *exchange)
{
    return strcmp(name, ((const struct rabbit_exchange *)exchange)->name);
}

static size_t
place_of(const struct rabbit_publisher *publisher, const char *name)
{
    return skr_vec_find(publisher->exchanges, publisher->exchange_count,
                        sizeof(*publisher->exchanges), name, compare_name);
}

static struct rabbit_exchange *
find_exchange(struct rabbit_publisher *publisher, const char *name)
{
    size_t place = place_of(publisher, name);
    if (place == publisher->exchange_count ||
        strcmp(publisher->exchanges[place].name, name) != 0)
        return NULL;
    return &publisher->exchanges[place];
}

static void
forget_exchanges(struct rabbit_publisher *publisher)
{
    for (size_t i = 0; i < publisher->exchange_count; i++)
        free(publisher->exchanges[i].name);
    free(publisher->exchanges);
    publisher->exchanges = NULL;
    publisher->exchange_count = publisher->exchange_capacity = 0;
}

// trouble NULL: it is there.
static enum skr_code
note_exchange(struct rabbit_publisher *publisher, const char *name,
              const struct skr_error *trouble, struct skr_error *error)
{
    struct rabbit_exchange *exchange = find_exchange(publisher, name);
    if (exchange == NULL && publisher->exchange_count == MOST_EXCHANGES)
        forget_exchanges(publisher);
    if (exchange == NULL) {
        const struct rabbit_exchange added = {.name = strdup(name)};
        size_t place = place_of(publisher, name);
        if (added.name == NULL ||
            !skr_vec_insert(&publisher->exchanges, &publisher->exchange_count,
                            &publisher->exchange_capacity, place, &added,
                            sizeof(added))) {
            free(added.name);
            return skr_fail_memory(error);
        }
        exchange = &publisher->exchanges[place];
    }
    exchange->is_there = trouble == NULL;
    if (trouble != NULL) {
        exchange->trouble = *trouble;
        exchange->ask_again_ms = skr_clock_ms() + ASK_AGAIN_MS;
    }
    return SKR_OK;
}

static const char *
content_type_of(const struct skr_message *message)
{
    return message->content_type == NULL ? SKR_DEFAULT_CONTENT_TYPE
                                         : message->content_type;
}

static enum skr_code
check_sizes(const struct rabbit_broker *broker,
            const struct skr_message *message, const char *exchange,
            const char *routing_key, struct skr_error *error)
{
    enum skr_code code = skr_amqp_check_short("exchange", exchange, error);
    if (code == SKR_OK)
        code = skr_amqp_check_short("routing key", routing_key, error);
    if (code == SKR_OK)
        code = skr_amqp_check_short("message name", message->name, error);
    if (code == SKR_OK)
        code = skr_amqp_check_short("content type", content_type_of(message),
                                    error);
    // Flags, delivery mode, timestamp, message id, the table's size.
    size_t size = 2 + 1 + 8 + SKR_ID_TEXT_SIZE + 4 +
                  SKR_AMQP_PROPERTIES_OVERHEAD + 1 + strlen(message->name) + 1 +
                  strlen(content_type_of(message));
    for (size_t i = 0; i < message->header_count && code == SKR_OK; i++) {
        const struct skr_header *header = &message->headers[i];
        code = skr_amqp_check_short("header name", header->name, error);
        size += 1 + strlen(header->name) + 1 + 4 + strlen(header->value);
    }
    if (code == SKR_OK && size > broker->amqp.frame_max)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the headers are too large: %zu bytes with the other "
                        "properties, and RabbitMQ takes %zu in a frame",
                        size, broker->amqp.frame_max);
    return code;
}

// Short texts go with a size of one byte, numbers most significant byte first.
static enum skr_code
write_properties(struct rabbit_publisher *publisher,
                 const struct skr_message *message, struct skr_error *error)
{
    static const unsigned char persistent[] = {SKR_AMQP_PERSISTENT};
    struct skr_text *headers = &publisher->headers;
    unsigned char time[8];
    uint64_t now_s = (uint64_t)(skr_clock_wall_us() / 1000000);
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    for (size_t i = sizeof(time); i > 0; i--, now_s >>= 8)
        time[i - 1] = (unsigned char)(now_s & 0xFF);
    skr_text_clear(headers);
    for (size_t i = 0; i < message->header_count; i++)
        skr_amqp_table_add_text(headers, message->headers[i].name,
                                message->headers[i].value);
    struct skr_amqp_properties properties = {
        .pieces = {
            [SKR_AMQP_CONTENT_TYPE] =
                skr_amqp_text_piece(content_type_of(message)),
            [SKR_AMQP_HEADERS] = skr_amqp_written_piece(headers),
            [SKR_AMQP_DELIVERY_MODE] = {.bytes = persistent, .size = 1},
            [SKR_AMQP_MESSAGE_ID] = skr_amqp_text_piece(id),
            [SKR_AMQP_TIMESTAMP] = {.bytes = time, .size = sizeof(time)},
            [SKR_AMQP_TYPE] = skr_amqp_text_piece(message->name),
        }};
    skr_text_clear(&publisher->properties);
    skr_amqp_properties_write(&properties, &publisher->properties);
    return headers->broken || publisher->properties.broken
               ? skr_fail_memory(error)
               : SKR_OK;
}

static enum skr_code
send_entry(struct rabbit_broker *broker, const struct rabbit_entry *entry,
           struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    enum skr_code code = write_properties(publisher, entry->message, error);
    if (code != SKR_OK)
        return code;
    const struct skr_amqp_publish publish = {
        .exchange = skr_rabbit_entry_exchange(entry),
        .routing_key = skr_rabbit_entry_key(entry),
        .properties = skr_amqp_written_piece(&publisher->properties),
        .body_size = entry->message->body_size,
    };
    code = skr_amqp_publish(&broker->amqp, RABBIT_PUBLISHING, &publish, error);
    if (code != SKR_OK)
        return code;
    publisher->sending = publish.body_size == 0 ? NULL : entry->message;
    publisher->body_sent = 0;
    skr_rabbit_window_sent(&publisher->window, skr_clock_ms());
    return SKR_OK;
}

static enum skr_code
send_body(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    const struct skr_message *message = publisher->sending;
    size_t size = message->body_size - publisher->body_sent;
    enum skr_code code = skr_amqp_send_body(
        &broker->amqp, RABBIT_PUBLISHING,
        (const char *)message->body + publisher->body_sent, &size, error);
    if (code != SKR_OK)
        return code;
    publisher->body_sent += size;
    if (publisher->body_sent == message->body_size)
        publisher->sending = NULL;
    return SKR_OK;
}

// Sends the entry, or sees to it that its exchange becomes known. *waits: it
// has to wait, and those behind it with it, or the order would be lost.
static enum skr_code
try_entry(struct rabbit_broker *broker, const struct rabbit_entry *entry,
          bool *waits, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    const char *name = skr_rabbit_entry_exchange(entry);
    const struct rabbit_exchange *exchange = find_exchange(publisher, name);
    // The default exchange is always there, and may not be asked for.
    if (name[0] == '\0' || (exchange != NULL && exchange->is_there))
        return send_entry(broker, entry, error);
    if (exchange != NULL && skr_clock_ms() < exchange->ask_again_ms) {
        skr_rabbit_window_skip(&publisher->window, SKR_ROUTE_UNAVAILABLE,
                               &exchange->trouble);
        return SKR_OK;
    }
    *waits = true;
    if (publisher->is_asking || !publisher->is_asking_open)
        return SKR_OK;
    // The answer comes later.
    snprintf(publisher->asked, sizeof(publisher->asked), "%s", name);
    publisher->is_asking = true;
    publisher->asked_ms = skr_clock_ms();
    return skr_amqp_look_for(&broker->amqp, RABBIT_ASKING, SKR_AMQP_EXCHANGE,
                             name, error);
}

// A channel knows the leaders of quorum queues from its first message to each.
// One that was elected since it does not learn of as long as the first one's
// node is down: it refuses all that goes to that queue, and a new channel does
// not. A queue that is full refuses on that one, too: each that was of no use
// doubles the time to the next.
static void
plan_renewal(struct rabbit_broker *broker)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    int64_t now_ms = skr_clock_ms();
    if (publisher->renew_ms != 0)
        return;
    bool was_of_use = publisher->renewed_ms == 0 ||
                      now_ms - publisher->renewed_ms > 2 * MOST_RENEW_AFTER_MS;
    if (was_of_use)
        publisher->renewal = (struct skr_backoff){
            .first_ms = RENEW_AFTER_MS, .longest_ms = MOST_RENEW_AFTER_MS};
    publisher->renew_ms = now_ms + skr_backoff_next(&publisher->renewal);
}

// Closes the channel if it is time for another. *waits: nothing is to be sent
// on it.
static enum skr_code
renew_channel(struct rabbit_broker *broker, bool *waits,
              struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    int64_t now_ms = skr_clock_ms();
    if (publisher->renew_ms == 0 || now_ms < publisher->renew_ms)
        return SKR_OK;
    *waits = now_ms < publisher->renew_ms + MOST_DRAIN_MS;
    if (publisher->window.in_flight > 0) {
        if (!*waits)
            publisher->renew_ms = now_ms + MOST_RENEW_AFTER_MS;
        return SKR_OK;
    }
    *waits = true;
    publisher->is_open = false;
    publisher->renewed_ms = now_ms;
    publisher->asked_ms = now_ms;
    skr_rabbit_window_restart(&publisher->window);
    return skr_amqp_channel_close(&broker->amqp, RABBIT_PUBLISHING, error);
}

enum skr_code
skr_rabbit_send_waiting(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    enum skr_code code = SKR_OK;
    bool waits = false;
    while (code == SKR_OK && !waits && publisher->is_open &&
           !publisher->is_blocked &&
           skr_amqp_unsent(&broker->amqp) < ENOUGH_UNSENT) {
        if (publisher->sending != NULL) {
            code = send_body(broker, error);
            continue;
        }
        if (broker->setup.is_due)
            break;
        code = renew_channel(broker, &waits, error);
        if (code != SKR_OK || waits)
            break;
        const struct rabbit_entry *entry =
            skr_rabbit_window_next(&publisher->window);
        if (entry == NULL)
            return SKR_OK;
        code = try_entry(broker, entry, &waits, error);
    }
    return code;
}

enum skr_code
skr_rabbit_submit(struct skr_broker *base, const struct skr_message *message,
                  const struct skr_route *route, uint64_t tag,
                  struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    if (broker->consumer.is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection consumes; another is needed to "
                        "publish");
    if (broker->failure.code != SKR_OK)
        return skr_fail_with(error, &broker->failure);
    const char *exchange = route == NULL ? NULL : route->exchange;
    if (exchange == NULL)
        exchange = broker->options.topology.exchange;
    if (exchange == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "nothing says which exchange %.100s goes to",
                        message->name);
    const char *routing_key = route == NULL || route->routing_key == NULL
                                  ? message->name
                                  : route->routing_key;
    enum skr_code code =
        check_sizes(broker, message, exchange, routing_key, error);
    if (code == SKR_OK)
        code = skr_rabbit_window_add(&broker->publisher.window, message,
                                     exchange, routing_key, tag, error);
    // From here on it has a result, whatever happens.
    if (code == SKR_OK &&
        skr_rabbit_send_waiting(broker, &broker->failure) == SKR_OK &&
        skr_amqp_unsent(&broker->amqp) >= WRITE_AT &&
        skr_amqp_flush(&broker->amqp, &broker->failure) != SKR_OK)
        return SKR_OK;  // results() tells
    return code;
}

static enum skr_code
open_channel(struct rabbit_broker *broker, uint16_t channel,
             struct skr_error *error)
{
    broker->publisher.asked_ms = skr_clock_ms();
    return skr_amqp_channel_open(&broker->amqp, channel,
                                 channel == RABBIT_PUBLISHING, error);
}

// What a close says about the one message that caused it.
static enum skr_publish_result
result_of(uint16_t reply, const struct skr_error *reason)
{
    switch (reply) {
    case SKR_AMQP_NO_ROUTE: return SKR_UNROUTABLE;
    case SKR_AMQP_ACCESS_REFUSED:
    case SKR_AMQP_NOT_FOUND:
    case SKR_AMQP_NOT_ALLOWED: return SKR_ROUTE_UNAVAILABLE;
    default:
        return reason->remedy == SKR_GIVE_UP ? SKR_REFUSED_FOR_GOOD
                                             : SKR_REFUSED_FOR_NOW;
    }
}

// Everything that was sent on the channel becomes suspect and goes again, one
// at a time; what was alone on it has closed it.
static enum skr_code
on_publishing_closed(struct rabbit_broker *broker,
                     const struct skr_amqp_reply *reply,
                     const struct skr_error *reason, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    enum skr_code code = SKR_OK;
    struct skr_error said = *reason;
    if (!publisher->is_open)
        return skr_rabbit_fail_unexpected(broker, reason->text, error);
    skr_log(&broker->log, SKR_LOG_WARNING, "amqp.channel_closed",
            SKR_LOG_TEXT("broker", broker->amqp.stream.peer),
            SKR_LOG_NUMBER("in_flight", publisher->window.in_flight),
            SKR_LOG_TEXT("reason", reason->text));
    forget_exchanges(publisher);
    const struct rabbit_entry *oldest =
        skr_rabbit_window_oldest(&publisher->window);
    // Access to one topic of an exchange may be refused, or to all of it.
    static const char mark[] = "access to topic";
    bool concerns_exchange = reply->code == SKR_AMQP_NOT_FOUND ||
                             (reply->code == SKR_AMQP_ACCESS_REFUSED &&
                              memmem(reply->text.bytes, reply->text.size, mark,
                                     sizeof(mark) - 1) == NULL);
    if (publisher->window.in_flight == 1 && concerns_exchange) {
        const char *exchange = skr_rabbit_entry_exchange(oldest);
        skr_rabbit_fail_exchange(broker, exchange, &said);
        code = note_exchange(publisher, exchange, &said, error);
    }
    skr_rabbit_window_rewind(&publisher->window, result_of(reply->code, reason),
                             &said);
    publisher->is_open = false;
    publisher->renew_ms = 0;
    publisher->sending = NULL;
    publisher->returning = (struct rabbit_return){0};
    return code;
}

static enum skr_code
on_asking_closed(struct rabbit_broker *broker, const struct skr_error *reason,
                 struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    publisher->is_asking_open = false;
    if (!publisher->is_asking)
        return skr_rabbit_fail_unexpected(broker, reason->text, error);
    publisher->is_asking = false;
    if (strcmp(reason->native, "404") == 0 &&
        skr_rabbit_may_set_up_again(broker, publisher->asked,
                                    publisher->asked_ms))
        return SKR_OK;  // it is asked for again
    struct skr_error said = *reason;
    skr_rabbit_fail_exchange(broker, publisher->asked, &said);
    return note_exchange(publisher, publisher->asked, &said, error);
}

static enum skr_code
on_channel_close(struct rabbit_broker *broker,
                 const struct skr_amqp_frame *frame, struct skr_error *error)
{
    struct skr_error reason = {0};
    enum skr_code code =
        skr_amqp_accept_close(&broker->amqp, frame, &reason, error);
    if (code != SKR_OK)
        return code;
    // The server tells where access was refused, and not to what.
    if (frame->reply.code == SKR_AMQP_ACCESS_REFUSED)
        skr_error_prefix(&reason, "the user needs the permission to write to "
                                  "the exchange");
    if (frame->channel == RABBIT_PUBLISHING)
        code = on_publishing_closed(broker, &frame->reply, &reason, error);
    else
        code = on_asking_closed(broker, &reason, error);
    if (code != SKR_OK)
        return code;
    return open_channel(broker, frame->channel, error);
}

static enum skr_code
on_confirmation(struct rabbit_broker *broker,
                const struct skr_amqp_frame *frame,
                enum skr_publish_result result, struct skr_error *error)
{
    if (!skr_rabbit_window_settle(&broker->publisher.window, frame->confirm.tag,
                                  frame->confirm.multiple, result))
        return skr_rabbit_fail_unexpected(broker, "a confirm of nothing",
                                          error);
    return SKR_OK;
}

static void
on_return(struct rabbit_return *returning, const struct skr_amqp_frame *frame)
{
    const struct skr_amqp_reply *reply = &frame->returned.reply;
    char text[SKR_AMQP_SHORT_SIZE];
    skr_amqp_copy_short(frame->returned.exchange, returning->exchange);
    skr_amqp_copy_short(frame->returned.routing_key, returning->routing_key);
    skr_amqp_copy_short(reply->text, text);
    returning->is_coming = true;
    skr_fail(&returning->reason, SKR_REFUSED, SKR_GIVE_UP,
             "no queue takes it: exchange %.100s, routing key %.100s (RabbitMQ "
             "says %u: %.40s)",
             returning->exchange, returning->routing_key, reply->code, text);
    skr_error_set_native(&returning->reason, "%u", reply->code);
}

static enum skr_code
on_renewal(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    if (publisher->is_open || publisher->renew_ms == 0)
        return skr_rabbit_fail_unexpected(broker, "a close-ok", error);
    publisher->renew_ms = 0;
    return open_channel(broker, RABBIT_PUBLISHING, error);
}

// The properties of a message that came back tell which one it is.
static enum skr_code
on_returned_properties(struct rabbit_broker *broker,
                       const struct skr_amqp_frame *frame,
                       struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    struct skr_amqp_properties properties = {0};
    struct skr_id id;
    char text[SKR_ID_TEXT_SIZE] = "";
    struct rabbit_entry *entry = NULL;
    publisher->returning.body_left = frame->content.body_size;
    publisher->returning.is_coming = publisher->returning.body_left > 0;
    const struct skr_amqp_piece *given =
        &properties.pieces[SKR_AMQP_MESSAGE_ID];
    if (skr_amqp_properties_read(frame->content.properties, &properties,
                                 NULL) == SKR_OK &&
        given->size == sizeof(text) - 1) {
        memcpy(text, given->bytes, sizeof(text) - 1);
        if (skr_id_parse(text, &id, NULL) == SKR_OK)
            entry = skr_rabbit_window_find(&publisher->window, id,
                                           publisher->returning.exchange,
                                           publisher->returning.routing_key);
    }
    if (entry == NULL)
        return skr_rabbit_fail_unexpected(
            broker, "the return of an unknown message", error);
    entry->goes_again = skr_rabbit_may_set_up_again(
        broker, publisher->returning.exchange, entry->sent_ms);
    return skr_rabbit_entry_return(entry, &publisher->returning.reason, error);
}

static enum skr_code
on_returned_body(struct rabbit_broker *broker,
                 const struct skr_amqp_frame *frame, struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    size_t size = frame->text.size;
    if (size > publisher->returning.body_left)
        return skr_rabbit_fail_unexpected(
            broker, "more of a body than announced", error);
    publisher->returning.body_left -= size;
    publisher->returning.is_coming = publisher->returning.body_left > 0;
    return SKR_OK;
}

static enum skr_code
on_publishing(struct rabbit_broker *broker, const struct skr_amqp_frame *frame,
              struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    switch (frame->kind) {
    case SKR_AMQP_ACK:
        return on_confirmation(broker, frame, SKR_CONFIRMED, error);
    case SKR_AMQP_NACK:
        plan_renewal(broker);
        return on_confirmation(broker, frame, SKR_REFUSED_FOR_NOW, error);
    case SKR_AMQP_RETURN:
        on_return(&publisher->returning, frame);
        return SKR_OK;
    case SKR_AMQP_OPEN_OK: return SKR_OK;
    case SKR_AMQP_SELECT_OK: publisher->is_open = true; return SKR_OK;
    case SKR_AMQP_CHANNEL_CLOSE_OK: return on_renewal(broker, error);
    case SKR_AMQP_PROPERTIES:
        if (publisher->returning.is_coming)
            return on_returned_properties(broker, frame, error);
        break;
    case SKR_AMQP_BODY:
        if (publisher->returning.is_coming)
            return on_returned_body(broker, frame, error);
        break;
    default:
        return skr_rabbit_fail_unexpected(broker, "a method while publishing",
                                          error);
    }
    return skr_rabbit_fail_unexpected(broker, "a frame out of place", error);
}

static enum skr_code
on_asking(struct rabbit_broker *broker, const struct skr_amqp_frame *frame,
          struct skr_error *error)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    if (frame->kind == SKR_AMQP_OPEN_OK) {
        publisher->is_asking_open = true;
        return SKR_OK;
    }
    if (frame->kind != SKR_AMQP_EXCHANGE_DECLARE_OK || !publisher->is_asking)
        return skr_rabbit_fail_unexpected(broker, "an answer to no question",
                                          error);
    publisher->is_asking = false;
    return note_exchange(publisher, publisher->asked, NULL, error);
}

enum skr_code
skr_rabbit_publisher_on_frame(struct rabbit_broker *broker,
                              const struct skr_amqp_frame *frame,
                              struct skr_error *error)
{
    if (frame->kind == SKR_AMQP_CHANNEL_CLOSE)
        return on_channel_close(broker, frame, error);
    return frame->channel == RABBIT_PUBLISHING
               ? on_publishing(broker, frame, error)
               : on_asking(broker, frame, error);
}

bool
skr_rabbit_publisher_on_close(struct rabbit_broker *broker, uint16_t code,
                              const struct skr_error *reason)
{
    struct rabbit_publisher *publisher = &broker->publisher;
    if (!skr_amqp_blames_client(code) || publisher->window.in_flight == 0)
        return false;
    skr_rabbit_window_rewind(&publisher->window, result_of(code, reason),
                             reason);
    publisher->must_reconnect = true;
    return true;
}

static void
forget_connection(struct rabbit_publisher *publisher)
{
    publisher->is_open = publisher->is_asking_open = false;
    publisher->renew_ms = publisher->renewed_ms = 0;
    publisher->is_asking = false;
    publisher->is_blocked = false;
    publisher->must_reconnect = false;
    publisher->sending = NULL;
    publisher->returning = (struct rabbit_return){0};
    forget_exchanges(publisher);
}

enum skr_code
skr_rabbit_publisher_start(struct rabbit_broker *broker,
                           struct skr_error *error)
{
    forget_connection(&broker->publisher);
    enum skr_code code = open_channel(broker, RABBIT_PUBLISHING, error);
    if (code == SKR_OK)
        code = open_channel(broker, RABBIT_ASKING, error);
    return code;
}

void
skr_rabbit_publisher_fini(struct rabbit_publisher *publisher)
{
    skr_rabbit_window_fini(&publisher->window);
    forget_exchanges(publisher);
    skr_text_fini(&publisher->headers);
    skr_text_fini(&publisher->properties);
}

// While the server holds the connection on purpose (connection.blocked) the
// clock stands still.
enum skr_code
skr_rabbit_publisher_check(const struct rabbit_broker *broker,
                           struct skr_error *error)
{
    const struct rabbit_publisher *publisher = &broker->publisher;
    const struct rabbit_entry *oldest =
        skr_rabbit_window_oldest(&publisher->window);
    int64_t last_sent_ms = broker->amqp.last_sent_ms;
    int64_t since_ms = skr_clock_ms();
    if (publisher->is_blocked)
        return SKR_OK;
    if (oldest != NULL)
        since_ms = oldest->sent_ms;
    // A large message on a slow line is on its way as long as bytes go.
    if (oldest != NULL && since_ms < last_sent_ms &&
        (publisher->sending != NULL || skr_amqp_unsent(&broker->amqp) > 0))
        since_ms = last_sent_ms;
    if ((publisher->is_asking || !publisher->is_asking_open ||
         !publisher->is_open) &&
        since_ms > publisher->asked_ms)
        since_ms = publisher->asked_ms;
    if (since_ms < publisher->unblocked_ms)
        since_ms = publisher->unblocked_ms;
    return skr_rabbit_check_silence(broker, since_ms, error);
}

enum skr_code
skr_rabbit_results(struct skr_broker *base, struct skr_published *results,
                   size_t capacity, size_t *count, uint32_t timeout_ms,
                   struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    struct rabbit_window *window = &broker->publisher.window;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    enum skr_code code = SKR_OK;
    bool waits = true;
    while (code == SKR_OK && waits) {
        if (broker->setup.is_due)
            skr_rabbit_set_up_again(broker);
        int64_t left = deadline_ms - skr_clock_ms();
        waits = left > 0 && window->outstanding > 0 &&
                window->done_first == window->done_end;
        code = skr_rabbit_turn(broker, waits ? (uint32_t)left : 0, error);
        waits = waits && window->done_first == window->done_end;
    }
    *count =
        skr_rabbit_window_give(window, &broker->failure, results, capacity);
    // The error comes when there is nothing else left to tell.
    return *count > 0 ? SKR_OK : code;
}
