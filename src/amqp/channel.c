// SPDX-License-Identifier: MIT
// Methods as librabbitmq has them, from plain texts and numbers.

#include "amqp/channel.h"

#include "base/error.h"

#include <amqp.h>
#include <amqp_framing.h>
#include <stdlib.h>
#include <string.h>

enum skr_code
skr_amqp_check_short(const char *what, const char *text,
                     struct skr_error *error)
{
    size_t size = strlen(text);
    if (size < SKR_AMQP_SHORT_SIZE)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%s %.60s... is %zu bytes; AMQP carries at most %d", what,
                    text, size, SKR_AMQP_SHORT_SIZE - 1);
}

void
skr_amqp_copy_short(struct skr_amqp_piece piece, char text[SKR_AMQP_SHORT_SIZE])
{
    size_t size =
        piece.size < SKR_AMQP_SHORT_SIZE ? piece.size : SKR_AMQP_SHORT_SIZE - 1;
    if (size > 0)
        memcpy(text, piece.bytes, size);
    text[size] = '\0';
}

enum skr_code
skr_amqp_channel_open(struct skr_amqp *amqp, uint16_t channel, bool confirms,
                      struct skr_error *error)
{
    amqp_channel_open_t open = {0};
    amqp_confirm_select_t select = {0};
    enum skr_code code =
        skr_amqp_send(amqp, channel, AMQP_CHANNEL_OPEN_METHOD, &open, error);
    if (code == SKR_OK && confirms)
        code = skr_amqp_send(amqp, channel, AMQP_CONFIRM_SELECT_METHOD, &select,
                             error);
    return code;
}

enum skr_code
skr_amqp_channel_close(struct skr_amqp *amqp, uint16_t channel,
                       struct skr_error *error)
{
    amqp_channel_close_t method = {.reply_code = AMQP_REPLY_SUCCESS};
    return skr_amqp_send(amqp, channel, AMQP_CHANNEL_CLOSE_METHOD, &method,
                         error);
}

enum skr_code
skr_amqp_publish(struct skr_amqp *amqp, uint16_t channel,
                 const struct skr_amqp_publish *message,
                 struct skr_error *error)
{
    amqp_basic_publish_t method = {
        .exchange = amqp_cstring_bytes(message->exchange),
        .routing_key = amqp_cstring_bytes(message->routing_key),
        .mandatory = 1,
    };
    enum skr_code code =
        skr_amqp_send(amqp, channel, AMQP_BASIC_PUBLISH_METHOD, &method, error);
    if (code == SKR_OK)
        code = skr_amqp_send_properties(amqp, channel, message->body_size,
                                        message->properties, error);
    return code;
}

static amqp_field_value_t
value_of(const struct skr_amqp_argument *argument)
{
    switch (argument->kind) {
    case SKR_AMQP_TEXT:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_UTF8,
                                    .value.bytes =
                                        amqp_cstring_bytes(argument->text)};
    case SKR_AMQP_NUMBER:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_I64,
                                    .value.i64 = argument->number};
    case SKR_AMQP_BOOLEAN:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_BOOLEAN,
                                    .value.boolean = argument->number != 0};
    }
    abort();
}

static enum skr_code
send_declaration(struct skr_amqp *amqp, uint16_t channel,
                 const struct skr_amqp_declaration *declaration,
                 amqp_table_t arguments, struct skr_error *error)
{
    switch (declaration->object) {
    case SKR_AMQP_EXCHANGE: {
        amqp_exchange_declare_t fields = {
            .exchange = amqp_cstring_bytes(declaration->name),
            .type = amqp_cstring_bytes(declaration->type),
            .durable = declaration->durable,
            .arguments = arguments,
        };
        return skr_amqp_send(amqp, channel, AMQP_EXCHANGE_DECLARE_METHOD,
                             &fields, error);
    }
    case SKR_AMQP_QUEUE: {
        amqp_queue_declare_t fields = {
            .queue = amqp_cstring_bytes(declaration->name),
            .durable = declaration->durable,
            .arguments = arguments,
        };
        return skr_amqp_send(amqp, channel, AMQP_QUEUE_DECLARE_METHOD, &fields,
                             error);
    }
    case SKR_AMQP_BINDING: {
        amqp_queue_bind_t fields = {
            .queue = amqp_cstring_bytes(declaration->queue),
            .exchange = amqp_cstring_bytes(declaration->exchange),
            .routing_key = amqp_cstring_bytes(declaration->binding_key),
            .arguments = arguments,
        };
        return skr_amqp_send(amqp, channel, AMQP_QUEUE_BIND_METHOD, &fields,
                             error);
    }
    }
    abort();
}

static enum skr_code
check_sizes(const struct skr_amqp_declaration *declaration,
            struct skr_error *error)
{
    const struct {
        const char *what, *text;
    } texts[] = {
        {"name", declaration->name},
        {"type", declaration->type},
        {"exchange", declaration->exchange},
        {"queue", declaration->queue},
        {"binding key", declaration->binding_key},
    };
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(texts) && code == SKR_OK; i++)
        if (texts[i].text != NULL)
            code = skr_amqp_check_short(texts[i].what, texts[i].text, error);
    for (size_t i = 0; i < declaration->argument_count && code == SKR_OK; i++)
        code = skr_amqp_check_short("argument", declaration->arguments[i].name,
                                    error);
    return code;
}

enum skr_code
skr_amqp_declare(struct skr_amqp *amqp, uint16_t channel,
                 const struct skr_amqp_declaration *declaration,
                 struct skr_error *error)
{
    enum skr_code code = check_sizes(declaration, error);
    if (code != SKR_OK)
        return code;
    amqp_table_entry_t *entries =
        calloc(declaration->argument_count + 1, sizeof(*entries));
    if (entries == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < declaration->argument_count; i++)
        entries[i] = (amqp_table_entry_t){
            .key = amqp_cstring_bytes(declaration->arguments[i].name),
            .value = value_of(&declaration->arguments[i]),
        };
    const amqp_table_t arguments = {
        .num_entries = (int)declaration->argument_count, .entries = entries};
    code = send_declaration(amqp, channel, declaration, arguments, error);
    free(entries);
    return code;
}

enum skr_code
skr_amqp_look_for(struct skr_amqp *amqp, uint16_t channel,
                  enum skr_amqp_object object, const char *name,
                  struct skr_error *error)
{
    amqp_queue_declare_t queue = {.queue = amqp_cstring_bytes(name),
                                  .passive = 1};
    amqp_exchange_declare_t exchange = {.exchange = amqp_cstring_bytes(name),
                                        .type = amqp_cstring_bytes("direct"),
                                        .passive = 1};
    enum skr_code code = skr_amqp_check_short("name", name, error);
    if (code != SKR_OK)
        return code;
    if (object == SKR_AMQP_QUEUE)
        return skr_amqp_send(amqp, channel, AMQP_QUEUE_DECLARE_METHOD, &queue,
                             error);
    return skr_amqp_send(amqp, channel, AMQP_EXCHANGE_DECLARE_METHOD, &exchange,
                         error);
}

enum skr_code
skr_amqp_delete_unused(struct skr_amqp *amqp, uint16_t channel,
                       const char *exchange, struct skr_error *error)
{
    amqp_exchange_delete_t method = {.exchange = amqp_cstring_bytes(exchange),
                                     .if_unused = 1};
    return skr_amqp_send(amqp, channel, AMQP_EXCHANGE_DELETE_METHOD, &method,
                         error);
}

enum skr_code
skr_amqp_qos(struct skr_amqp *amqp, uint16_t channel, uint16_t prefetch,
             struct skr_error *error)
{
    amqp_basic_qos_t method = {.prefetch_count = prefetch};
    return skr_amqp_send(amqp, channel, AMQP_BASIC_QOS_METHOD, &method, error);
}

enum skr_code
skr_amqp_consume(struct skr_amqp *amqp, uint16_t channel, const char *queue,
                 const char *consumer_tag, struct skr_error *error)
{
    amqp_basic_consume_t method = {
        .queue = amqp_cstring_bytes(queue),
        .consumer_tag = amqp_cstring_bytes(consumer_tag),
    };
    return skr_amqp_send(amqp, channel, AMQP_BASIC_CONSUME_METHOD, &method,
                         error);
}

enum skr_code
skr_amqp_cancel(struct skr_amqp *amqp, uint16_t channel,
                const char *consumer_tag, struct skr_error *error)
{
    amqp_basic_cancel_t method = {.consumer_tag =
                                      amqp_cstring_bytes(consumer_tag)};
    return skr_amqp_send(amqp, channel, AMQP_BASIC_CANCEL_METHOD, &method,
                         error);
}

enum skr_code
skr_amqp_ack(struct skr_amqp *amqp, uint16_t channel, uint64_t tag,
             bool multiple, struct skr_error *error)
{
    amqp_basic_ack_t method = {.delivery_tag = tag, .multiple = multiple};
    return skr_amqp_send(amqp, channel, AMQP_BASIC_ACK_METHOD, &method, error);
}

enum skr_code
skr_amqp_requeue(struct skr_amqp *amqp, uint16_t channel, uint64_t tag,
                 struct skr_error *error)
{
    amqp_basic_reject_t method = {.delivery_tag = tag, .requeue = 1};
    return skr_amqp_send(amqp, channel, AMQP_BASIC_REJECT_METHOD, &method,
                         error);
}
