// SPDX-License-Identifier: MIT
// What a transport has of its own on the server, as its DSN names it.

#include "broker/rabbitmq/plan.h"

#include "base/error.h"
#include "base/text.h"

#include <string.h>

bool
skr_rabbit_has_exchange(const struct rabbit_settings *settings)
{
    return settings->exchange != NULL && settings->exchange[0] != '\0';
}

bool
skr_rabbit_is_own(const struct rabbit_settings *settings, const char *exchange)
{
    return skr_rabbit_has_exchange(settings) &&
           strcmp(settings->exchange, exchange) == 0;
}

size_t
skr_rabbit_own_queues(const struct rabbit_settings *settings)
{
    return settings->names_queues || settings->has_defaults
               ? settings->queue_count
               : 0;
}

struct skr_declaration
skr_rabbit_exchange_of(const struct rabbit_settings *settings)
{
    return (struct skr_declaration){
        .kind = SKR_DECLARE_EXCHANGE,
        .name = settings->exchange,
        // Symfony's default.
        .type = settings->exchange_type == NULL ? "fanout"
                                                : settings->exchange_type,
        .type_is_default = settings->exchange_type == NULL,
        .durable = true,
    };
}

struct skr_declaration
skr_rabbit_queue_of(const struct rabbit_queue *queue)
{
    return (struct skr_declaration){
        .kind = SKR_DECLARE_QUEUE,
        .name = queue->name,
        .durable = !queue->is_transient,
        .arguments = queue->arguments.items,
        .argument_count = queue->arguments.count,
    };
}

size_t
skr_rabbit_binding_count(const struct rabbit_settings *settings,
                         const struct rabbit_queue *queue)
{
    if (!skr_rabbit_has_exchange(settings))
        return 0;
    return queue->key_count == 0 ? 1 : queue->key_count;
}

struct skr_declaration
skr_rabbit_binding_of(const struct rabbit_settings *settings,
                      const struct rabbit_queue *queue, size_t index)
{
    return (struct skr_declaration){
        .kind = SKR_DECLARE_BINDING,
        .exchange = settings->exchange,
        .queue = queue->name,
        .binding_key = queue->key_count == 0 ? "" : queue->binding_keys[index],
        .arguments = queue->binding_arguments.items,
        .argument_count = queue->binding_arguments.count,
    };
}

static enum skr_code
plan_objects(struct rabbit_settings *settings, struct skr_plan *plan,
             struct skr_error *error)
{
    size_t queue_count = skr_rabbit_own_queues(settings);
    size_t most = 1 + queue_count;
    for (size_t i = 0; i < queue_count; i++)
        most += skr_rabbit_binding_count(settings, &settings->queues[i]);
    struct skr_declaration *declarations =
        skr_arena_take(&settings->arena, most * sizeof(*declarations));
    if (declarations == NULL)
        return skr_fail_memory(error);
    plan->declarations = declarations;
    // One without a type and without queues is another's to declare.
    if (skr_rabbit_has_exchange(settings) &&
        (settings->exchange_type != NULL || queue_count > 0))
        declarations[plan->count++] = skr_rabbit_exchange_of(settings);
    for (size_t i = 0; i < queue_count; i++)
        declarations[plan->count++] = skr_rabbit_queue_of(&settings->queues[i]);
    for (size_t i = 0; i < queue_count; i++) {
        const struct rabbit_queue *queue = &settings->queues[i];
        for (size_t k = 0; k < skr_rabbit_binding_count(settings, queue); k++)
            declarations[plan->count++] =
                skr_rabbit_binding_of(settings, queue, k);
    }
    return SKR_OK;
}

static enum skr_code
plan_place(struct rabbit_settings *settings, struct skr_plan *plan,
           struct skr_error *error)
{
    struct skr_text server = {0};
    for (size_t i = 0; i < settings->host_count; i++)
        skr_text_add_format(&server, "%s%s:%u", i == 0 ? "" : ",",
                            settings->hosts[i].name, settings->hosts[i].port);
    if (!server.broken)
        plan->server =
            skr_arena_text(&settings->arena, server.bytes, server.size);
    plan->vhost = settings->vhost;
    skr_text_fini(&server);
    return plan->server == NULL ? skr_fail_memory(error) : SKR_OK;
}

enum skr_code
skr_rabbit_plan(const char *text, const struct skr_url *url,
                struct skr_plan *plan, struct skr_error *error)
{
    const struct skr_log silent = {.write = NULL};
    struct rabbit_settings settings;
    *plan = (struct skr_plan){0};
    enum skr_code code =
        skr_rabbit_settings_read(text, url, false, &silent, &settings, error);
    if (code == SKR_OK)
        code = plan_place(&settings, plan, error);
    if (code == SKR_OK)
        code = plan_objects(&settings, plan, error);
    plan->arena = settings.arena;
    return code;
}
