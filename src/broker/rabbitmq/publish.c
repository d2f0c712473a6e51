// SPDX-License-Identifier: MIT
// Messages on their way to the server.

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "broker/rabbitmq/rabbitmq.h"
#include "message/route.h"

#include <stdlib.h>
#include <string.h>

enum {
    FRAME_OVERHEAD = 8 + 12,  // around the properties
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
};

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
    enum skr_code code = skr_rabbit_check_short("exchange", exchange, error);
    if (code == SKR_OK)
        code = skr_rabbit_check_short("routing key", routing_key, error);
    if (code == SKR_OK)
        code = skr_rabbit_check_short("message name", message->name, error);
    if (code == SKR_OK)
        code = skr_rabbit_check_short("content type", content_type_of(message),
                                      error);
    // Flags, delivery mode, timestamp, message id, the table's size.
    size_t size = 2 + 1 + 8 + SKR_ID_TEXT_SIZE + 4 + FRAME_OVERHEAD + 1 +
                  strlen(message->name) + 1 + strlen(content_type_of(message));
    for (size_t i = 0; i < message->header_count && code == SKR_OK; i++) {
        const struct skr_header *header = &message->headers[i];
        code = skr_rabbit_check_short("header name", header->name, error);
        size += 1 + strlen(header->name) + 1 + 4 + strlen(header->value);
    }
    if (code == SKR_OK && size > broker->link.frame_max)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the headers are too large: %zu bytes with the other "
                        "properties, and RabbitMQ takes %zu in a frame",
                        size, broker->link.frame_max);
    return code;
}

enum skr_code
skr_rabbit_submit(struct skr_broker *base, const struct skr_message *message,
                  const struct skr_route *route, uint64_t ticket,
                  struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    if (broker->consumer.is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection consumes; another is needed to "
                        "publish");
    if (broker->failure.code != SKR_OK) {
        if (error != NULL)
            *error = broker->failure;
        return broker->failure.code;
    }
    const char *exchange = route == NULL ? NULL : route->exchange;
    if (exchange == NULL)
        exchange = broker->settings.exchange;
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
        code = skr_rabbit_window_add(&broker->window, message, exchange,
                                     routing_key, ticket, error);
    // From here on it has an outcome, whatever happens.
    if (code == SKR_OK &&
        skr_rabbit_send_waiting(broker, &broker->failure) == SKR_OK &&
        skr_rabbit_link_unsent(&broker->link) >= WRITE_AT &&
        skr_rabbit_link_flush(&broker->link, &broker->failure) != SKR_OK)
        return SKR_OK;  // outcomes() tells
    return code;
}

static enum skr_code
fill_headers(struct rabbit_broker *broker, const struct skr_message *message,
             amqp_table_t *table, struct skr_error *error)
{
    if (!skr_vec_reserve(&broker->headers, &broker->header_capacity,
                         message->header_count, sizeof(*broker->headers)))
        return skr_fail_memory(error);
    for (size_t i = 0; i < message->header_count; i++)
        broker->headers[i] = (amqp_table_entry_t){
            .key = amqp_cstring_bytes(message->headers[i].name),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes =
                          amqp_cstring_bytes(message->headers[i].value)},
        };
    table->num_entries = (int)message->header_count;
    table->entries = broker->headers;
    return SKR_OK;
}

static enum skr_code
send_properties(struct rabbit_broker *broker, const struct skr_message *message,
                struct skr_error *error)
{
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG |
                  AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                  AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG,
        .content_type = amqp_cstring_bytes(content_type_of(message)),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = amqp_cstring_bytes(id),
        .timestamp = (uint64_t)(skr_clock_wall_us() / 1000000),
        .type = amqp_cstring_bytes(message->name),
    };
    enum skr_code code =
        fill_headers(broker, message, &properties.headers, error);
    if (code != SKR_OK)
        return code;
    return skr_rabbit_link_send_properties(&broker->link, RABBIT_PUBLISHING,
                                           message->body_size, &properties,
                                           error);
}

static enum skr_code
send_entry(struct rabbit_broker *broker, const struct rabbit_entry *entry,
           struct skr_error *error)
{
    amqp_basic_publish_t method = {
        .exchange = amqp_cstring_bytes(skr_rabbit_entry_exchange(entry)),
        .routing_key = amqp_cstring_bytes(skr_rabbit_entry_key(entry)),
        .mandatory = 1,
    };
    enum skr_code code =
        skr_rabbit_link_send(&broker->link, RABBIT_PUBLISHING,
                             AMQP_BASIC_PUBLISH_METHOD, &method, error);
    if (code == SKR_OK)
        code = send_properties(broker, entry->message, error);
    if (code != SKR_OK)
        return code;
    broker->sending = entry->message->body_size == 0 ? NULL : entry->message;
    broker->body_sent = 0;
    skr_rabbit_window_sent(&broker->window, skr_clock_ms());
    return SKR_OK;
}

static enum skr_code
send_body(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct skr_message *message = broker->sending;
    size_t size = message->body_size - broker->body_sent;
    enum skr_code code = skr_rabbit_link_send_body(
        &broker->link, RABBIT_PUBLISHING,
        (const char *)message->body + broker->body_sent, &size, error);
    if (code != SKR_OK)
        return code;
    broker->body_sent += size;
    if (broker->body_sent == message->body_size)
        broker->sending = NULL;
    return SKR_OK;
}

// Sends the entry, or sees to it that its exchange becomes known. *waits: it
// has to wait, and those behind it with it, or the order would be lost.
static enum skr_code
try_entry(struct rabbit_broker *broker, const struct rabbit_entry *entry,
          bool *waits, struct skr_error *error)
{
    const char *name = skr_rabbit_entry_exchange(entry);
    const struct rabbit_exchange *exchange =
        skr_rabbit_exchange_find(&broker->exchanges, name);
    // The default exchange is always there, and may not be asked for.
    if (name[0] == '\0' || (exchange != NULL && exchange->is_there))
        return send_entry(broker, entry, error);
    if (exchange != NULL && skr_clock_ms() < exchange->ask_again_ms) {
        skr_rabbit_window_skip(&broker->window, SKR_ROUTE_CLOSED,
                               &exchange->trouble);
        return SKR_OK;
    }
    *waits = true;
    if (broker->is_asking || !broker->is_asking_open)
        return SKR_OK;
    return skr_rabbit_exchange_ask(broker, name, error);
}

// A channel knows the leaders of quorum queues from its first message to each.
// One that was elected since it does not learn of as long as the first one's
// node is down: it refuses all that goes to that queue, and a new channel does
// not. A queue that is full refuses on that one, too: each that was of no use
// doubles the time to the next.
void
skr_rabbit_plan_renewal(struct rabbit_broker *broker)
{
    int64_t now_ms = skr_clock_ms();
    if (broker->renew_ms != 0)
        return;
    bool was_of_use = broker->renewed_ms == 0 ||
                      now_ms - broker->renewed_ms > 2 * MOST_RENEW_AFTER_MS;
    if (was_of_use)
        broker->renewal = (struct skr_backoff){
            .first_ms = RENEW_AFTER_MS, .longest_ms = MOST_RENEW_AFTER_MS};
    broker->renew_ms = now_ms + skr_backoff_next(&broker->renewal);
}

// Closes the channel if it is time for another. *waits: nothing is to be sent
// on it.
static enum skr_code
renew_channel(struct rabbit_broker *broker, bool *waits,
              struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    if (broker->renew_ms == 0 || now_ms < broker->renew_ms)
        return SKR_OK;
    *waits = now_ms < broker->renew_ms + MOST_DRAIN_MS;
    if (broker->window.in_flight > 0) {
        if (!*waits)
            broker->renew_ms = now_ms + MOST_RENEW_AFTER_MS;
        return SKR_OK;
    }
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS};
    *waits = true;
    broker->is_publishing_open = false;
    broker->renewed_ms = now_ms;
    broker->channel_asked_ms = now_ms;
    skr_rabbit_window_restart(&broker->window);
    return skr_rabbit_link_send(&broker->link, RABBIT_PUBLISHING,
                                AMQP_CHANNEL_CLOSE_METHOD, &close, error);
}

enum skr_code
skr_rabbit_send_waiting(struct rabbit_broker *broker, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool waits = false;
    while (code == SKR_OK && !waits && broker->is_publishing_open &&
           !broker->base.is_blocked &&
           skr_rabbit_link_unsent(&broker->link) < ENOUGH_UNSENT) {
        if (broker->sending != NULL) {
            code = send_body(broker, error);
            continue;
        }
        if (broker->must_mend)
            break;
        code = renew_channel(broker, &waits, error);
        if (code != SKR_OK || waits)
            break;
        const struct rabbit_entry *entry =
            skr_rabbit_window_next(&broker->window);
        if (entry == NULL)
            return SKR_OK;
        code = try_entry(broker, entry, &waits, error);
    }
    return code;
}
