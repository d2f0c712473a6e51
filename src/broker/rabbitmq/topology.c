// SPDX-License-Identifier: MIT
// Declaring exchanges, queues and bindings.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <stdlib.h>
#include <string.h>

enum { TURN_MS = 100 };

static amqp_field_value_t
value_of(const struct skr_argument *argument)
{
    switch (argument->kind) {
    case SKR_ARGUMENT_TEXT:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_UTF8,
                                    .value.bytes =
                                        amqp_cstring_bytes(argument->text)};
    case SKR_ARGUMENT_NUMBER:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_I64,
                                    .value.i64 = argument->number};
    case SKR_ARGUMENT_BOOLEAN:
        return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_BOOLEAN,
                                    .value.boolean = argument->number != 0};
    }
    abort();
}

amqp_table_entry_t
skr_rabbit_entry(const struct skr_argument *argument)
{
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(argument->name),
                                .value = value_of(argument)};
}

static enum skr_code
await_answer(struct rabbit_broker *broker, struct skr_error *error)
{
    int64_t start_ms = skr_clock_ms();
    while (broker->answer == RABBIT_NONE) {
        enum skr_code code = skr_rabbit_turn(broker, TURN_MS, error);
        if (code == SKR_OK && broker->answer == RABBIT_NONE)
            code = skr_rabbit_check_stop(broker, error);
        if (code != SKR_OK)
            return code;
        int64_t waited_ms = skr_clock_ms() - start_ms;
        if (broker->answer == RABBIT_NONE &&
            waited_ms > broker->settings.confirm_timeout_ms)
            return skr_rabbit_link_fail_silent(&broker->link, waited_ms, error);
    }
    if (broker->answer == RABBIT_YES)
        return SKR_OK;
    if (error != NULL)
        *error = broker->answer_error;
    return broker->answer_error.code;
}

static enum skr_code
ask(struct rabbit_broker *broker, amqp_method_number_t method, void *fields,
    struct skr_error *error)
{
    broker->answer = RABBIT_NONE;
    enum skr_code code = skr_rabbit_link_send(&broker->link, RABBIT_DECLARING,
                                              method, fields, error);
    return code == SKR_OK ? await_answer(broker, error) : code;
}

static enum skr_code
send_fields(struct rabbit_broker *broker, amqp_channel_t channel,
            const struct skr_declaration *declaration, amqp_table_t arguments,
            struct skr_error *error)
{
    struct rabbit_link *link = &broker->link;
    switch (declaration->kind) {
    case SKR_DECLARE_EXCHANGE: {
        amqp_exchange_declare_t fields = {
            .exchange = amqp_cstring_bytes(declaration->name),
            .type = amqp_cstring_bytes(declaration->type),
            .durable = declaration->durable,
            .arguments = arguments,
        };
        return skr_rabbit_link_send(link, channel, AMQP_EXCHANGE_DECLARE_METHOD,
                                    &fields, error);
    }
    case SKR_DECLARE_QUEUE: {
        amqp_queue_declare_t fields = {
            .queue = amqp_cstring_bytes(declaration->name),
            .durable = declaration->durable,
            .arguments = arguments,
        };
        return skr_rabbit_link_send(link, channel, AMQP_QUEUE_DECLARE_METHOD,
                                    &fields, error);
    }
    case SKR_DECLARE_BINDING: {
        amqp_queue_bind_t fields = {
            .queue = amqp_cstring_bytes(declaration->queue),
            .exchange = amqp_cstring_bytes(declaration->exchange),
            .routing_key = amqp_cstring_bytes(declaration->binding_key),
            .arguments = arguments,
        };
        return skr_rabbit_link_send(link, channel, AMQP_QUEUE_BIND_METHOD,
                                    &fields, error);
    }
    }
    abort();
}

static enum skr_code
send_declaration(struct rabbit_broker *broker, amqp_channel_t channel,
                 const struct skr_declaration *declaration,
                 struct skr_error *error)
{
    amqp_table_entry_t *entries =
        calloc(declaration->argument_count + 1, sizeof(*entries));
    if (entries == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < declaration->argument_count; i++)
        entries[i] = skr_rabbit_entry(&declaration->arguments[i]);
    amqp_table_t arguments = {.num_entries = (int)declaration->argument_count,
                              .entries = entries};
    enum skr_code code =
        send_fields(broker, channel, declaration, arguments, error);
    free(entries);
    return code;
}

static enum skr_code
check_sizes(const struct skr_declaration *declaration, struct skr_error *error)
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
            code = skr_rabbit_check_short(texts[i].what, texts[i].text, error);
    for (size_t i = 0; i < declaration->argument_count && code == SKR_OK; i++)
        code = skr_rabbit_check_short("argument",
                                      declaration->arguments[i].name, error);
    return code;
}

enum skr_code
skr_rabbit_bind_aside(struct rabbit_broker *broker,
                      const struct skr_declaration *binding,
                      struct skr_error *error)
{
    enum skr_code code = check_sizes(binding, error);
    if (code == SKR_OK && !broker->is_binding_open)
        code = skr_rabbit_open_channel(broker, RABBIT_BINDING, error);
    broker->is_binding_open = code == SKR_OK;
    return code == SKR_OK
               ? send_declaration(broker, RABBIT_BINDING, binding, error)
               : code;
}

static enum skr_code
open_channel(struct rabbit_broker *broker, struct skr_error *error)
{
    if (broker->is_declaring_open)
        return SKR_OK;
    broker->answer = RABBIT_NONE;
    enum skr_code code =
        skr_rabbit_open_channel(broker, RABBIT_DECLARING, error);
    if (code == SKR_OK)
        code = await_answer(broker, error);
    broker->is_declaring_open = code == SKR_OK;
    return code;
}

enum skr_code
skr_rabbit_look_for(struct rabbit_broker *broker,
                    enum skr_declaration_kind kind, const char *name,
                    struct skr_error *error)
{
    enum skr_code code = skr_rabbit_check_short("name", name, error);
    if (code == SKR_OK)
        code = open_channel(broker, error);
    if (code != SKR_OK)
        return code;
    if (kind == SKR_DECLARE_QUEUE) {
        amqp_queue_declare_t fields = {.queue = amqp_cstring_bytes(name),
                                       .passive = 1};
        return ask(broker, AMQP_QUEUE_DECLARE_METHOD, &fields, error);
    } else {
        amqp_exchange_declare_t fields = {.exchange = amqp_cstring_bytes(name),
                                          .type = amqp_cstring_bytes("direct"),
                                          .passive = 1};
        return ask(broker, AMQP_EXCHANGE_DECLARE_METHOD, &fields, error);
    }
}

void
skr_rabbit_exchange_take_back(struct rabbit_broker *broker, const char *name)
{
    struct skr_error ignored = {0};
    amqp_exchange_delete_t fields = {.exchange = amqp_cstring_bytes(name),
                                     .if_unused = 1};
    enum skr_code code = open_channel(broker, &ignored);
    if (code == SKR_OK)
        code = ask(broker, AMQP_EXCHANGE_DELETE_METHOD, &fields, &ignored);
    if (code != SKR_OK)
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
                SKR_LOG_TEXT("reason", ignored.text));
}

// The server tells where access was refused, and not to what.
static void
name_rights(const struct rabbit_broker *broker,
            const struct skr_declaration *declaration, struct skr_error *error)
{
    if (error != NULL && strcmp(error->native, "403") == 0)
        skr_error_prefix(error, "user %.40s needs the permission to %s",
                         broker->settings.user,
                         declaration->kind == SKR_DECLARE_BINDING
                             ? "read the exchange and to write the queue"
                             : "configure it");
}

enum skr_code
skr_rabbit_declare(struct skr_broker *base,
                   const struct skr_declaration *declaration,
                   struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    enum skr_code code = check_sizes(declaration, error);
    if (code == SKR_OK)
        code = open_channel(broker, error);
    if (code != SKR_OK)
        return code;
    broker->answer = RABBIT_NONE;
    code = send_declaration(broker, RABBIT_DECLARING, declaration, error);
    if (code == SKR_OK)
        code = await_answer(broker, error);
    if (code == SKR_REFUSED)
        name_rights(broker, declaration, error);
    return code;
}
