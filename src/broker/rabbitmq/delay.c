// SPDX-License-Identifier: MIT
// Retries through delay queues, as Symfony has them: a copy waits in a queue
// whose messages expire after the delay and go back, by the default exchange,
// to the queue that they came from. Such a queue expires too, together with
// what is in it, ten seconds later than its messages: it is declared again
// before every publish, and nothing lies between the two. It is bound only when
// a copy comes back: a cluster of which a node hangs answers no binding, not
// even of what is bound.
//
// One copy goes at a time, on a connection of its own. A message that comes
// back carries no tag, and may carry no id either; alone it needs none.

#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "broker/rabbitmq/errors.h"
#include "broker/rabbitmq/rabbitmq.h"
#include "message/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHANNEL = 1,
    EXPIRES_AFTER_MS = 10000,
    IDLE_MS = 10000,
    PAUSE_MS = 5000,  // after the server was not reached
    ENOUGH_UNSENT = 256 * 1024,
    NAME_SIZE = 256,
    PROPERTIES_OVERHEAD = 8 + 12,
    MOST_ARGUMENTS = 32,
    STOPPING_MS = 2000,  // for a retry under way when a stop is asked for
};

// A copy on its way.
struct copy {
    const char *queue;
    char name[NAME_SIZE];  // of the delay queue, and its routing key
    uint32_t delay_ms;
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
        skr_rabbit_link_close(&delay->link, is_alive);
    delay->is_open = false;
}

void
skr_rabbit_delay_tidy(struct rabbit_delay *delay)
{
    if (delay->is_open && skr_clock_ms() - delay->used_ms > IDLE_MS)
        skr_rabbit_delay_close(delay, true);
}

// Every length of delay has a queue of its own: two digits that count keep
// them few.
static uint32_t
round_up(uint32_t delay_ms)
{
    uint64_t step = 1;
    while (delay_ms / step >= 100)
        step *= 10;
    uint64_t rounded = (delay_ms + step - 1) / step * step;
    if (rounded > UINT32_MAX - EXPIRES_AFTER_MS)
        rounded = UINT32_MAX - EXPIRES_AFTER_MS;
    return rounded == 0 ? 1 : (uint32_t)rounded;
}

static enum skr_code
make_name(const struct rabbit_settings *settings, struct copy *copy,
          struct skr_error *error)
{
    const char *exchange =
        settings->exchange == NULL ? "messages" : settings->exchange;
    char delay[16];
    snprintf(delay, sizeof(delay), "%u", (unsigned)copy->delay_ms);
    const struct {
        const char *word, *value;
    } words[] = {{"%delay%", delay},
                 {"%exchange_name%", exchange},
                 {"%routing_key%", copy->queue}};
    struct skr_text name = {0};
    for (const char *at = settings->delay_queue_pattern; *at != '\0';) {
        size_t i = 0;
        while (i < SKR_COUNT_OF(words) &&
               !skr_text_starts_with(at, words[i].word))
            i++;
        if (i < SKR_COUNT_OF(words))
            skr_text_add_string(&name, words[i].value);
        else
            skr_text_add(&name, at, 1);
        at += i < SKR_COUNT_OF(words) ? strlen(words[i].word) : 1;
    }
    skr_text_add_string(&name, "_retry");
    bool fits = !name.broken && name.size < sizeof(copy->name);
    if (fits)
        memcpy(copy->name, name.bytes, name.size + 1);
    size_t size = name.size;
    bool is_broken = name.broken;
    skr_text_fini(&name);
    if (is_broken)
        return skr_fail_memory(error);
    if (!fits)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the name of the delay queue is %zu bytes; at most %d "
                        "are carried",
                        size, NAME_SIZE - 1);
    return SKR_OK;
}

// Stays behind: it was for one trip only, or would lead the copy astray.
static bool
stays_behind(const struct rabbit_field *field, const struct skr_headers *stamps)
{
    if (skr_rabbit_field_is(field, "CC") || skr_rabbit_field_is(field, "BCC"))
        return true;
    for (size_t i = 0; i < stamps->count; i++)
        if (skr_rabbit_field_is(field, stamps->items[i].name))
            return true;
    return false;
}

static void
write_table(struct rabbit_piece from, const struct skr_headers *stamps,
            struct skr_text *table)
{
    struct rabbit_field field;
    while (skr_rabbit_table_next(&from, &field))
        if (!stays_behind(&field, stamps))
            skr_text_add(table, (const char *)field.all.bytes, field.all.size);
    for (size_t i = 0; i < stamps->count; i++)
        skr_rabbit_table_add_text(table, stamps->items[i].name,
                                  stamps->items[i].value);
}

// All as it came but for the stamps: headers keep their kinds.
static enum skr_code
write_properties(struct rabbit_broker *broker,
                 const struct rabbit_delivery *delivery,
                 const struct skr_incoming *incoming, struct copy *copy,
                 struct skr_error *error)
{
    static const unsigned char persistent[] = {AMQP_DELIVERY_PERSISTENT};
    struct rabbit_properties properties = {0};
    struct skr_headers stamps = {0};
    struct skr_text table = {0};
    const struct rabbit_piece raw = {.bytes = delivery->block,
                                     .size = delivery->properties_size};
    enum skr_code code = skr_rabbit_properties_read(raw, &properties, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(&broker->consumer.arena, &stamps,
                                      incoming->retry_count + 1,
                                      &incoming->reason, error);
    if (code != SKR_OK)
        return code == SKR_MALFORMED ? SKR_INVALID : code;
    struct rabbit_piece *pieces = properties.pieces;
    write_table(pieces[RABBIT_HEADERS], &stamps, &table);
    pieces[RABBIT_HEADERS] = (struct rabbit_piece){
        .bytes = (const unsigned char *)table.bytes, .size = table.size};
    pieces[RABBIT_DELIVERY_MODE] =
        (struct rabbit_piece){.bytes = persistent, .size = sizeof(persistent)};
    // The server compares it with the user that publishes.
    pieces[RABBIT_USER_ID] = (struct rabbit_piece){0};
    // A message's own time would cut the delay short.
    pieces[RABBIT_EXPIRATION] = (struct rabbit_piece){0};
    if (!table.broken)
        skr_rabbit_properties_write(&properties, &copy->properties);
    if (table.broken || copy->properties.broken)
        code = skr_fail_memory(error);
    skr_text_fini(&table);
    return code;
}

static enum skr_code
open_link(struct rabbit_broker *broker, struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    amqp_channel_open_t open = {0};
    amqp_confirm_select_t select = {0};
    amqp_exchange_declare_t declare = {
        .exchange = amqp_cstring_bytes(broker->settings.delay_exchange),
        .type = amqp_cstring_bytes("direct"),
        .durable = 1};
    enum skr_code code = skr_rabbit_link_open(&delay->link, &broker->settings,
                                              broker->base.wake_fd, error);
    if (code != SKR_OK)
        return code;
    delay->is_open = true;
    delay->tag = 0;
    code = skr_rabbit_link_send(&delay->link, CHANNEL, AMQP_CHANNEL_OPEN_METHOD,
                                &open, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_send(&delay->link, CHANNEL,
                                    AMQP_CONFIRM_SELECT_METHOD, &select, error);
    if (code == SKR_OK)
        code =
            skr_rabbit_link_send(&delay->link, CHANNEL,
                                 AMQP_EXCHANGE_DECLARE_METHOD, &declare, error);
    return code;
}

static enum skr_code
send_queue(struct rabbit_broker *broker, const struct copy *copy,
           struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct rabbit_arguments *more = &settings->delay_arguments;
    const struct skr_argument own[] = {
        {"x-message-ttl", SKR_ARGUMENT_NUMBER, NULL, copy->delay_ms},
        {"x-expires", SKR_ARGUMENT_NUMBER, NULL,
         (int64_t)copy->delay_ms + EXPIRES_AFTER_MS},
        {"x-dead-letter-exchange", SKR_ARGUMENT_TEXT, "", 0},
        {"x-dead-letter-routing-key", SKR_ARGUMENT_TEXT, copy->queue, 0},
    };
    amqp_table_entry_t entries[SKR_COUNT_OF(own) + MOST_ARGUMENTS];
    size_t count = 0;
    for (size_t i = 0; i < SKR_COUNT_OF(own); i++)
        entries[count++] = skr_rabbit_entry(&own[i]);
    for (size_t i = 0; i < more->count && i < MOST_ARGUMENTS; i++)
        entries[count++] = skr_rabbit_entry(&more->items[i]);
    amqp_queue_declare_t method = {
        .queue = amqp_cstring_bytes(copy->name),
        .durable = 1,
        .arguments = {.num_entries = (int)count, .entries = entries},
    };
    return skr_rabbit_link_send(&broker->consumer.delay.link, CHANNEL,
                                AMQP_QUEUE_DECLARE_METHOD, &method, error);
}

static enum skr_code
send_binding(struct rabbit_broker *broker, const struct copy *copy,
             struct skr_error *error)
{
    const char *exchange = broker->settings.delay_exchange;
    amqp_queue_bind_t bind = {.queue = amqp_cstring_bytes(copy->name),
                              .exchange = amqp_cstring_bytes(exchange),
                              .routing_key = amqp_cstring_bytes(copy->name)};
    return skr_rabbit_link_send(&broker->consumer.delay.link, CHANNEL,
                                AMQP_QUEUE_BIND_METHOD, &bind, error);
}

static enum skr_code
on_method(struct rabbit_delay *delay, const amqp_method_t *method,
          struct copy *copy, struct skr_error *error)
{
    switch (method->id) {
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = method->decoded;
        return skr_rabbit_fail_reply(error, close->reply_code,
                                     close->reply_text);
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = method->decoded;
        return skr_rabbit_fail_reply(error, close->reply_code,
                                     close->reply_text);
    }
    case AMQP_BASIC_RETURN_METHOD:
        skr_fail(&copy->refusal, SKR_REFUSED, SKR_TRY_AGAIN,
                 "it did not get into delay queue %.120s", copy->name);
        return SKR_OK;
    case AMQP_BASIC_NACK_METHOD:
        return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                        "delay queue %.120s does not take it", copy->name);
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        copy->is_confirmed = ack->delivery_tag == delay->tag;
        return SKR_OK;
    }
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
        amqp_frame_t frame;
        code = skr_rabbit_link_next(&delay->link, &frame, &found, error);
        if (code == SKR_OK && found && frame.frame_type == AMQP_FRAME_METHOD)
            code = on_method(delay, &frame.payload.method, copy, error);
    }
    return code;
}

// Before a stop there is some time left, and no more.
static struct rabbit_patience
patience_of(const struct rabbit_broker *broker, int64_t end_ms)
{
    int64_t stop_ms = skr_clock_ms() + STOPPING_MS;
    bool is_stopping = skr_rabbit_check_stop(broker, NULL) != SKR_OK;
    return (struct rabbit_patience){
        .deadline_ms = is_stopping && stop_ms < end_ms ? stop_ms : end_ms,
        .wake_fd = is_stopping ? -1 : broker->base.wake_fd,
    };
}

// Until the server has taken enough of what is to be sent, or has confirmed.
static enum skr_code
await(struct rabbit_broker *broker, struct copy *copy, size_t most_unsent,
      bool until_confirmed, struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    int64_t end_ms = skr_clock_ms() + broker->settings.confirm_timeout_ms;
    struct rabbit_patience patience = patience_of(broker, end_ms);
    enum skr_code code = skr_rabbit_link_flush(&delay->link, error);
    while (code == SKR_OK &&
           (until_confirmed ||
            skr_rabbit_link_unsent(&delay->link) > most_unsent)) {
        code = take_frames(delay, copy, error);
        if (code != SKR_OK || copy->is_confirmed)
            return code;
        code = skr_rabbit_link_wait(&delay->link, &patience, error);
        if (code == SKR_STOPPED) {
            patience = patience_of(broker, end_ms);
            code = SKR_OK;
        }
    }
    if (code != SKR_TIMEOUT)
        return code;
    // Before a stop the time may be too short to tell.
    if (skr_clock_ms() >= end_ms)
        skr_silence_note(delay->link.stream.peer);
    return skr_fail(error, SKR_UNAVAILABLE, SKR_TRY_AGAIN,
                    "RabbitMQ at %s has not confirmed a retry in time "
                    "(confirm_timeout)",
                    delay->link.stream.peer);
}

static enum skr_code
send_copy(struct rabbit_broker *broker, struct copy *copy,
          struct skr_error *error)
{
    struct rabbit_delay *delay = &broker->consumer.delay;
    amqp_basic_publish_t publish = {
        .exchange = amqp_cstring_bytes(broker->settings.delay_exchange),
        .routing_key = amqp_cstring_bytes(copy->name),
        .mandatory = 1,
    };
    delay->tag++;
    enum skr_code code = skr_rabbit_link_send(
        &delay->link, CHANNEL, AMQP_BASIC_PUBLISH_METHOD, &publish, error);
    if (code == SKR_OK)
        code = skr_rabbit_link_send_raw_properties(
            &delay->link, CHANNEL, copy->body_size, copy->properties.bytes,
            copy->properties.size, error);
    for (size_t sent = 0; sent < copy->body_size && code == SKR_OK;) {
        size_t size = copy->body_size - sent;
        code = skr_rabbit_link_send_body(&delay->link, CHANNEL,
                                         copy->body + sent, &size, error);
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
    enum skr_code code = send_queue(broker, copy, error);
    if (code == SKR_OK && binds)
        code = send_binding(broker, copy, error);
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
    enum skr_code code = delay->is_open ? SKR_OK : open_link(broker, error);
    // What does not fit would end the connection.
    if (code == SKR_OK &&
        copy->properties.size + PROPERTIES_OVERHEAD > delay->link.frame_max)
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
    if (copy->refusal.code != SKR_OK && error != NULL)
        *error = copy->refusal;
    return copy->refusal.code;
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

enum skr_code
skr_rabbit_delay_publish(struct rabbit_broker *broker,
                         const struct rabbit_delivery *delivery,
                         const struct skr_incoming *incoming,
                         struct skr_error *error)
{
    struct copy copy = {
        .queue = broker->settings.queues[delivery->queue].name,
        .delay_ms = round_up(incoming->delay_ms),
        .body = incoming->body,
        .body_size = incoming->body_size,
    };
    enum skr_code code = make_name(&broker->settings, &copy, error);
    if (code == SKR_OK)
        code = write_properties(broker, delivery, incoming, &copy, error);
    if (code == SKR_OK)
        code = publish(broker, &copy, error);
    if (code != SKR_OK && code != SKR_INVALID)
        skr_error_prefix(error, "retry of queue %.60s in vhost %.40s",
                         copy.queue, broker->settings.vhost);
    skr_text_fini(&copy.properties);
    return code;
}
