// SPDX-License-Identifier: MIT
#include "publish.h"

#include "bench.h"

#include <string.h>

static struct skr_outbox *
open_outbox(struct skr_outbox_options options)
{
    struct skr_outbox *outbox = NULL;
    struct skr_error error = {0};
    if (skr_outbox_new(&options, &outbox, &error) != SKR_OK)
        skr_bench_die("outbox", error.text);
    return outbox;
}

struct skr_outbox *
skr_bench_outbox_open(const char *queue)
{
    return open_outbox((struct skr_outbox_options){.queue = queue});
}

struct skr_outbox *
skr_bench_kafka_outbox_open(const char *topic)
{
    return open_outbox(
        (struct skr_outbox_options){.is_kafka = true, .topic = topic});
}

static bool
is_conflict(const struct skr_error *error)
{
    static const char *const natives[] = {"1213", "1205", "40001", "40P01",
                                          "55P03"};
    for (size_t i = 0; i < sizeof(natives) / sizeof(natives[0]); i++)
        if (strcmp(error->native, natives[i]) == 0)
            return true;
    return false;
}

bool
skr_bench_publish(const struct skr_outbox *outbox, struct skr_tx tx, long first,
                  size_t count, int64_t due_at_us)
{
    static _Thread_local char bodies[SKR_BENCH_MOST_MESSAGES]
                                    [SKR_BENCH_BODY_SIZE + 1];
    static _Thread_local struct skr_message messages[SKR_BENCH_MOST_MESSAGES];
    struct skr_error error = {0};
    for (size_t i = 0; i < count; i++) {
        skr_bench_write_body(bodies[i], SKR_BENCH_BODY_SIZE, first + (long)i);
        messages[i] = (struct skr_message){
            .name = "order.placed",
            .body = bodies[i],
            .body_size = SKR_BENCH_BODY_SIZE,
            .due_at_us = due_at_us,
        };
    }
    if (skr_publish(outbox, tx, messages, count, NULL, &error) == SKR_OK)
        return true;
    if (!is_conflict(&error))
        skr_bench_die("publish", error.text);
    return false;
}
