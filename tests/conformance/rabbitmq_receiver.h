// SPDX-License-Identifier: MIT
// What the suites that consume from RabbitMQ share, on top of the world.

#ifndef SKR_TEST_RABBITMQ_RECEIVER_H
#define SKR_TEST_RABBITMQ_RECEIVER_H

#include "rabbitmq_world.h"

#include "conformance/deliveries.h"

static inline enum skr_code
try_open_receiver(struct world *world, const char *parameters, bool auto_setup,
                  struct skr_broker **broker, struct skr_error *error)
{
    char url[2400];
    snprintf(url, sizeof(url), "%s?%s", world->url, parameters);
    const struct skr_broker_options options = {
        .url = url,
        .auto_setup = auto_setup,
        .consumes = true,
        .wake_fd = -1,
        .log = {.write = write_log, .user = world},
    };
    return skr_broker_open(&skr_rabbitmq_broker, &options, broker, error);
}

// Consumes from the world's queue; parameters: "&prefetch_count=1", or "".
static inline struct skr_broker *
open_receiver(struct world *world, const char *parameters)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char all[1200];
    snprintf(all, sizeof(all), "queues=%s%s", world->queue, parameters);
    if (try_open_receiver(world, all, false, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return broker;
}

// To a queue by its name, with these properties or none.
static inline void
put(struct world *world, const char *queue, const void *body, size_t size,
    const amqp_basic_properties_t *properties)
{
    assert_int_equal(amqp_basic_publish(world->raw, 1, amqp_empty_bytes,
                                        bytes(queue), 0, 0, properties,
                                        (amqp_bytes_t){
                                            .len = size,
                                            // It is not written to.
                                            .bytes = (void *)(uintptr_t)body,
                                        }),
                     AMQP_STATUS_OK);
}

// Messages whose bodies are the numbers from first to end - 1.
static inline void
put_numbers(struct world *world, const char *queue, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        char body[24];
        int size = snprintf(body, sizeof(body), "%zu", i);
        put(world, queue, body, (size_t)size, NULL);
    }
}

static inline void
expect_nothing(struct skr_broker *broker)
{
    struct skr_incoming incoming;
    struct skr_error error = {0};
    size_t count = 0;
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, 0, &error),
        SKR_TIMEOUT);
    assert_int_equal(count, 0);
}

static inline size_t
number_in(const struct skr_incoming *incoming)
{
    char text[24] = "";
    assert_true(incoming->body_size < sizeof(text));
    memcpy(text, incoming->body, incoming->body_size);
    return strtoul(text, NULL, 10);
}

// Waits until so many are ready in the queue: no consumer has them.
static inline void
await_count(struct world *world, const char *queue, uint32_t expected)
{
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    while (count_in(world, queue) != expected && skr_clock_ms() < end)
        skr_clock_sleep(-1, 5);
    assert_int_equal(count_in(world, queue), expected);
}

static inline const char *
header_of(const struct skr_incoming *incoming, const char *name)
{
    return skr_headers_find(incoming->headers.items, incoming->headers.count,
                            name);
}

#endif
