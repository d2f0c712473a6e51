// SPDX-License-Identifier: MIT
// The queues of a transport: made where that is wanted, and named with the cure
// where they are missing.

#include "base/error.h"
#include "broker/rabbitmq/memory.h"
#include "broker/rabbitmq/plan.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <string.h>

enum skr_code
skr_rabbit_fail_queue(const struct rabbit_broker *broker, const char *queue,
                      struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_error said = *error;
    bool is_exclusive = strstr(said.text, "exclusive") != NULL;
    // In another way of the connection's, it keeps its own words.
    if (said.native[0] == '\0')
        return said.code;
    if (strcmp(said.native, "404") == 0)
        skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                 "queue %.80s is not in vhost %.40s; %s", queue,
                 settings->vhost,
                 settings->names_queues
                     ? "declare it with `skirnir setup-amqp`, or correct "
                       "`queues`"
                     : "name those to consume from in `queues`, and declare "
                       "them with `skirnir setup-amqp`");
    else if (strcmp(said.native, "405") == 0 || is_exclusive)
        skr_fail(error, SKR_REFUSED, SKR_RECONNECT,
                 "queue %.80s in vhost %.40s is in exclusive use by another "
                 "connection; end that one, or do not make it exclusive",
                 queue, settings->vhost);
    else if (strcmp(said.native, "403") == 0)
        skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                 "queue %.60s in vhost %.40s: access is refused to user %.40s; "
                 "see `rabbitmqctl set_permissions` (consuming needs read)",
                 queue, settings->vhost, settings->user);
    else
        skr_error_prefix(error, "queue %.80s in vhost %.40s", queue,
                         settings->vhost);
    skr_error_set_native(error, "%s", said.native);
    return error->code;
}

// Errors are written to this one, so that they can be read here.
static enum skr_code
look_for(struct rabbit_broker *broker, enum skr_declaration_kind kind,
         const char *name, struct skr_error *error)
{
    enum skr_code code = skr_rabbit_look_for(broker, kind, name, error);
    if (code == SKR_OK)
        skr_error_clear(error);
    return code;
}

// An exchange that is there is left as it is: its type may be another's choice.
static enum skr_code
make_exchange(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_declaration declaration = skr_rabbit_exchange_of(settings);
    enum skr_code code =
        look_for(broker, SKR_DECLARE_EXCHANGE, settings->exchange, error);
    if (code == SKR_MISSING) {
        code = skr_rabbit_declare(&broker->base, &declaration, error);
        broker->has_made_exchange = code == SKR_OK;
    }
    if (code != SKR_OK)
        skr_error_prefix(error, "exchange %.80s in vhost %.40s",
                         settings->exchange, settings->vhost);
    return code;
}

// A server cannot be asked for a binding: that it is there is known of those
// that this process has made, of a queue and an exchange that were not new.
static enum skr_code
bind(struct rabbit_broker *broker, const struct rabbit_queue *queue,
     size_t index, bool is_new, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_declaration declaration =
        skr_rabbit_binding_of(settings, queue, index);
    if (!is_new && !broker->has_made_exchange &&
        skr_rabbit_was_made(settings, &declaration))
        return SKR_OK;
    enum skr_code code = skr_rabbit_declare(&broker->base, &declaration, error);
    if (code == SKR_OK)
        skr_rabbit_note_made(settings, &declaration);
    else
        skr_error_prefix(error, "binding %.60s to %.60s in vhost %.40s",
                         queue->name, broker->settings.exchange,
                         broker->settings.vhost);
    return code;
}

static enum skr_code
make_queue(struct rabbit_broker *broker, const struct rabbit_queue *queue,
           struct skr_error *error)
{
    const struct skr_declaration declaration = skr_rabbit_queue_of(queue);
    return skr_rabbit_declare(&broker->base, &declaration, error);
}

enum skr_code
skr_rabbit_queue_set_up(struct rabbit_broker *broker,
                        const struct rabbit_queue *queue,
                        struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    enum skr_code code =
        look_for(broker, SKR_DECLARE_QUEUE, queue->name, error);
    bool is_new = code == SKR_MISSING && settings->auto_setup;
    if (is_new)
        code = make_queue(broker, queue, error);
    if (code != SKR_OK)
        return skr_rabbit_fail_queue(broker, queue->name, error);
    size_t bindings =
        settings->auto_setup ? skr_rabbit_binding_count(settings, queue) : 0;
    for (size_t i = 0; i < bindings && code == SKR_OK; i++)
        code = bind(broker, queue, i, is_new, error);
    return code;
}

enum skr_code
skr_rabbit_exchange_set_up(struct rabbit_broker *broker,
                           struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    if (!settings->auto_setup || !skr_rabbit_has_exchange(settings))
        return SKR_OK;
    return make_exchange(broker, error);
}

enum skr_code
skr_rabbit_exchange_declare(struct rabbit_broker *broker,
                            struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    struct skr_error trouble = {0};
    if (!skr_rabbit_has_exchange(settings) || settings->exchange_type == NULL)
        return SKR_OK;
    const struct skr_declaration declaration = skr_rabbit_exchange_of(settings);
    enum skr_code code = make_exchange(broker, &trouble);
    if (code == SKR_OK && !broker->has_made_exchange &&
        !skr_rabbit_was_made(settings, &declaration))
        code = skr_rabbit_declare(&broker->base, &declaration, &trouble);
    if (code == SKR_OK)
        skr_rabbit_note_made(settings, &declaration);
    else if (error != NULL)
        *error = trouble;
    return code;
}

enum skr_code
skr_rabbit_queues_set_up(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    struct skr_error trouble = {0};
    enum skr_code code = skr_rabbit_exchange_set_up(broker, &trouble);
    for (size_t i = 0; i < settings->queue_count && code == SKR_OK; i++)
        code = skr_rabbit_queue_set_up(broker, &settings->queues[i], &trouble);
    if (code != SKR_OK && error != NULL)
        *error = trouble;
    return code;
}

enum skr_code
skr_rabbit_depth(struct skr_broker *base, struct skr_depth *depth,
                 struct skr_error *error)
{
    struct rabbit_broker *broker = (struct rabbit_broker *)base;
    const struct rabbit_settings *settings = &broker->settings;
    struct skr_error trouble = {0};
    enum skr_code code = SKR_OK;
    *depth = (struct skr_depth){
        .has_messages = true, .are_due = true, .has_consumers = true};
    for (size_t i = 0; i < settings->queue_count && code == SKR_OK; i++) {
        const char *name = settings->queues[i].name;
        code = look_for(broker, SKR_DECLARE_QUEUE, name, &trouble);
        // One that only convention names is not missed: the transport may be
        // there to publish to exchanges.
        if (code == SKR_MISSING && !settings->names_queues) {
            *depth = (struct skr_depth){.has_messages = false};
            return SKR_OK;
        }
        if (code != SKR_OK)
            code = skr_rabbit_fail_queue(broker, name, &trouble);
        depth->messages += broker->answer_messages;
        depth->consumers += broker->answer_consumers;
    }
    if (code != SKR_OK && error != NULL)
        *error = trouble;
    return code;
}
