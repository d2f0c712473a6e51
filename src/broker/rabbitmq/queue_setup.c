// SPDX-License-Identifier: MIT
// The exchange, queues and bindings of a transport: made where that is wanted,
// and named with the cure where they are missing.

#include "base/clock.h"
#include "base/error.h"
#include "broker/rabbitmq/memory.h"
#include "broker/rabbitmq/plan.h"
#include "broker/rabbitmq/rabbitmq.h"

#include <string.h>

// What a set-up did not mend is not mended by another right behind it.
enum { MEND_AGAIN_MS = 10000 };

enum skr_code
skr_rabbit_fail_queue(const struct rabbit_broker *broker, const char *queue,
                      const char *right, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const char *peer = broker->link.stream.peer;
    const struct skr_error said = *error;
    bool is_exclusive = strstr(said.text, "exclusive") != NULL;
    // In another way of the connection's, it keeps its own words.
    if (said.native[0] == '\0')
        return said.code;
    if (strcmp(said.native, "404") == 0)
        skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                 "RabbitMQ at %.60s: queue %.80s is not in vhost %.40s; %s",
                 peer, queue, settings->vhost,
                 skr_rabbit_own_queues(settings) > 0
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
                 "RabbitMQ at %.60s: queue %.60s in vhost %.40s: access is "
                 "refused to user %.40s; see `rabbitmqctl set_permissions` "
                 "(%s needs %s)",
                 peer, queue, settings->vhost, settings->user,
                 strcmp(right, "read") == 0 ? "consuming" : "making it", right);
    else
        skr_error_prefix(error, "queue %.80s in vhost %.40s", queue,
                         settings->vhost);
    skr_error_set_native(error, "%s", said.native);
    return error->code;
}

enum skr_code
skr_rabbit_fail_exchange(const struct rabbit_broker *broker,
                         const char *exchange, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_error said = *error;
    bool is_own = skr_rabbit_is_own(settings, exchange);
    if (strcmp(said.native, "404") != 0)
        return said.code;
    // What kept it from being made says more.
    if (is_own && broker->set_up_trouble.code != SKR_OK) {
        *error = broker->set_up_trouble;
        error->code = said.code;
        return said.code;
    }
    skr_fail(error, said.code, said.remedy,
             "RabbitMQ at %.60s has no exchange '%.80s' in vhost '%.40s'; %s",
             broker->link.stream.peer, exchange, settings->vhost,
             is_own ? "declare it and its queue with `skirnir setup-amqp`"
                    : "name it, and a queue that is bound to it, under "
                      "message_broker_amqp.topology, and run `skirnir "
                      "setup-amqp`");
    skr_error_set_native(error, "%s", said.native);
    return said.code;
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

static enum skr_code
prefix_exchange(const struct rabbit_broker *broker, enum skr_code code,
                struct skr_error *error)
{
    if (code != SKR_OK)
        skr_error_prefix(error,
                         "RabbitMQ at %.60s: exchange %.80s in vhost "
                         "%.40s",
                         broker->link.stream.peer, broker->settings.exchange,
                         broker->settings.vhost);
    return code;
}

static enum skr_code
find_exchange(struct rabbit_broker *broker, bool *is_missing,
              struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    *is_missing = false;
    if (!skr_rabbit_has_exchange(settings))
        return SKR_OK;
    enum skr_code code =
        look_for(broker, SKR_DECLARE_EXCHANGE, settings->exchange, error);
    *is_missing = code == SKR_MISSING;
    return *is_missing ? SKR_OK : prefix_exchange(broker, code, error);
}

static enum skr_code
declare_exchange(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct skr_declaration declaration =
        skr_rabbit_exchange_of(&broker->settings);
    return prefix_exchange(
        broker, skr_rabbit_declare(&broker->base, &declaration, error), error);
}

// A server cannot be asked for a binding: that it is there is known of those
// that this process has made, of a queue and an exchange that were not new.
// These are made again, should one have taken them away, and not waited for.
static enum skr_code
bind(struct rabbit_broker *broker, const struct rabbit_queue *queue,
     size_t index, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_declaration declaration =
        skr_rabbit_binding_of(settings, queue, index);
    bool waits =
        broker->is_unbound || !skr_rabbit_was_made(settings, &declaration);
    enum skr_code code =
        waits ? skr_rabbit_declare(&broker->base, &declaration, error)
              : skr_rabbit_bind_aside(broker, &declaration, error);
    if (code == SKR_OK)
        skr_rabbit_note_made(settings, &declaration);
    else
        skr_error_prefix(error,
                         "RabbitMQ at %.60s: binding %.60s to %.60s in vhost "
                         "%.40s",
                         broker->link.stream.peer, queue->name,
                         settings->exchange, settings->vhost);
    return code;
}

enum skr_code
skr_rabbit_queue_make(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue, struct skr_error *error)
{
    const struct skr_declaration declaration = skr_rabbit_queue_of(queue);
    const char *right = "read";
    enum skr_code code =
        look_for(broker, SKR_DECLARE_QUEUE, queue->name, error);
    if (code == SKR_MISSING && broker->settings.auto_setup) {
        code = skr_rabbit_declare(&broker->base, &declaration, error);
        right = "configure";
        broker->is_unbound = true;
    }
    if (code != SKR_OK)
        return skr_rabbit_fail_queue(broker, queue->name, right, error);
    return SKR_OK;
}

enum skr_code
skr_rabbit_queue_bind(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    enum skr_code code = SKR_OK;
    size_t count =
        settings->auto_setup ? skr_rabbit_binding_count(settings, queue) : 0;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = bind(broker, queue, i, error);
    return code;
}

// An exchange that is there is left as it is: its type may be another's choice.
enum skr_code
skr_rabbit_exchange_make(struct rabbit_broker *broker, bool *is_new,
                         struct skr_error *error)
{
    *is_new = false;
    if (!broker->settings.auto_setup)
        return SKR_OK;
    enum skr_code code = find_exchange(broker, is_new, error);
    broker->is_unbound |= *is_new;
    return code == SKR_OK && *is_new ? declare_exchange(broker, error) : code;
}

// One whose type the DSN gives has to be of that type, which is asked once in
// the life of a process.
static enum skr_code
check_type(struct rabbit_broker *broker, struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    const struct skr_declaration declaration = skr_rabbit_exchange_of(settings);
    if (settings->exchange_type == NULL ||
        skr_rabbit_was_made(settings, &declaration))
        return SKR_OK;
    enum skr_code code = declare_exchange(broker, error);
    if (code == SKR_OK)
        skr_rabbit_note_made(settings, &declaration);
    return code;
}

// Exchange and bindings, once the queues are there. An exchange that nothing
// could be bound to is taken back: without it messages wait, with it they find
// no queue.
static enum skr_code
make_routes(struct rabbit_broker *broker, bool is_missing, size_t queues,
            struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    enum skr_code code = SKR_OK;
    if (!skr_rabbit_has_exchange(settings))
        return SKR_OK;
    if (!is_missing)
        code = check_type(broker, error);
    else if (queues > 0 || settings->exchange_type != NULL)
        code = declare_exchange(broker, error);
    if (code != SKR_OK)
        return code;
    for (size_t i = 0; i < queues && code == SKR_OK; i++)
        code = skr_rabbit_queue_bind(broker, &settings->queues[i], error);
    if (code == SKR_REFUSED && is_missing)
        skr_rabbit_exchange_take_back(broker, settings->exchange);
    return code;
}

// A default queue comes with its exchange. Beside one that is there, it is
// bound if it is there too, or was before, and else left out: others are bound,
// and messages without a consumer would pile up.
static bool
is_left_out(const struct rabbit_settings *settings, bool is_missing)
{
    if (is_missing || settings->names_queues || !settings->has_defaults ||
        !skr_rabbit_has_exchange(settings))
        return false;
    const struct skr_declaration binding =
        skr_rabbit_binding_of(settings, &settings->queues[0], 0);
    return !skr_rabbit_was_made(settings, &binding);
}

static enum skr_code
make_queues(struct rabbit_broker *broker, bool is_missing, size_t *queues,
            struct skr_error *error)
{
    const struct rabbit_settings *settings = &broker->settings;
    enum skr_code code = SKR_OK;
    *queues = skr_rabbit_own_queues(settings);
    if (is_left_out(settings, is_missing)) {
        code = look_for(broker, SKR_DECLARE_QUEUE, settings->queues[0].name,
                        error);
        *queues = code == SKR_OK;
        return code == SKR_MISSING ? SKR_OK : code;
    }
    for (size_t i = 0; i < *queues && code == SKR_OK; i++)
        code = skr_rabbit_queue_make(broker, &settings->queues[i], error);
    return code;
}

static enum skr_code
set_up(struct rabbit_broker *broker, struct skr_error *error)
{
    bool is_missing = false;
    size_t queues = 0;
    enum skr_code code = find_exchange(broker, &is_missing, error);
    broker->is_unbound |= is_missing;
    if (code == SKR_OK)
        code = make_queues(broker, is_missing, &queues, error);
    if (code == SKR_OK)
        code = make_routes(broker, is_missing, queues, error);
    return code;
}

enum skr_code
skr_rabbit_publishing_set_up(struct rabbit_broker *broker,
                             struct skr_error *error)
{
    struct skr_error *trouble = &broker->set_up_trouble;
    struct skr_error said = {0};
    if (!broker->settings.auto_setup)
        return SKR_OK;
    enum skr_code code = set_up(broker, &said);
    if (code == SKR_REFUSED && strcmp(said.native, "406") != 0) {
        if (strcmp(said.text, trouble->text) != 0)
            skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
                    SKR_LOG_TEXT("reason", said.text));
        *trouble = said;
        broker->mended_ms = skr_clock_ms();
        return SKR_OK;
    }
    skr_error_clear(trouble);
    if (code != SKR_OK && error != NULL)
        *error = said;
    return code;
}

bool
skr_rabbit_may_mend(struct rabbit_broker *broker, const char *exchange,
                    int64_t sent_ms)
{
    const struct rabbit_settings *settings = &broker->settings;
    if (!settings->auto_setup || !skr_rabbit_is_own(settings, exchange) ||
        skr_rabbit_own_queues(settings) == 0)
        return false;
    if (broker->must_mend || sent_ms <= broker->mended_ms)
        return true;
    broker->must_mend = broker->mended_ms == 0 ||
                        skr_clock_ms() - broker->mended_ms >= MEND_AGAIN_MS;
    return broker->must_mend;
}

void
skr_rabbit_mend(struct rabbit_broker *broker)
{
    struct skr_error trouble = {0};
    broker->is_unbound = true;
    enum skr_code code = skr_rabbit_publishing_set_up(broker, &trouble);
    if (code != SKR_OK && trouble.remedy == SKR_RECONNECT &&
        broker->failure.code == SKR_OK)
        broker->failure = trouble;
    if (code != SKR_OK && code != SKR_STOPPED)
        skr_log(&broker->log, SKR_LOG_WARNING, "amqp.not_declared",
                SKR_LOG_TEXT("reason", trouble.text));
    broker->must_mend = false;
    broker->mended_ms = skr_clock_ms();
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
            code = skr_rabbit_fail_queue(broker, name, "read", &trouble);
        depth->messages += broker->answer_messages;
        depth->consumers += broker->answer_consumers;
    }
    if (code != SKR_OK && error != NULL)
        *error = trouble;
    return code;
}
