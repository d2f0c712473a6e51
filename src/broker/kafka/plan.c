// SPDX-License-Identifier: MIT
// What a DSN consumes, in the words of a topology: each topic gives all of its
// messages to each group, as a fanout exchange does to its queues.

#include "base/error.h"
#include "broker/kafka/kafka.h"

static void
plan_topic(const struct kafka_settings *settings, const char *topic,
           struct skr_declaration declarations[2])
{
    declarations[0] = (struct skr_declaration){
        .kind = SKR_DECLARE_EXCHANGE, .name = topic, .type = "fanout"};
    declarations[1] = (struct skr_declaration){.kind = SKR_DECLARE_BINDING,
                                               .exchange = topic,
                                               .queue = settings->group,
                                               .binding_key = ""};
}

enum skr_code
skr_kafka_plan(const char *text, const struct skr_url *url,
               struct skr_plan *plan, struct skr_error *error)
{
    struct kafka_settings settings;
    (void)text;
    *plan = (struct skr_plan){.server = "", .vhost = ""};
    enum skr_code code =
        skr_kafka_settings_read(url, false, true, &settings, error);
    struct skr_declaration *declarations =
        code != SKR_OK || !settings.is_consumed
            ? NULL
            : skr_arena_take(&settings.arena, (1 + 2 * settings.topic_count) *
                                                  sizeof(*declarations));
    if (code == SKR_OK && settings.is_consumed && declarations == NULL)
        code = skr_fail_memory(error);
    if (declarations != NULL) {
        plan->server = settings.brokers;
        plan->declarations = declarations;
        declarations[plan->count++] = (struct skr_declaration){
            .kind = SKR_DECLARE_QUEUE, .name = settings.group};
        for (size_t i = 0; i < settings.topic_count; i++, plan->count += 2)
            plan_topic(&settings, settings.topics[i],
                       &declarations[plan->count]);
    }
    // All texts are the caller's from now on.
    plan->arena = settings.arena;
    settings.arena = (struct skr_arena){0};
    skr_kafka_settings_fini(&settings);
    return code;
}
