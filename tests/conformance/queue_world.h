// SPDX-License-Identifier: MIT
// What the suites of the queue broker share.

#ifndef SKR_TEST_QUEUE_WORLD_H
#define SKR_TEST_QUEUE_WORLD_H

#include "databases.h"

#include "broker/broker.h"

#include <skirnir/queue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1200 };

struct world {
    struct skr_test_database database;
    struct skr_db *db;  // to look and to meddle with
    struct skr_message messages[MOST];
    struct skr_header headers[MOST][2];
    char ids[MOST][SKR_ID_TEXT_SIZE];
    char bodies[MOST][24];
    struct skr_incoming incoming[MOST];
    struct skr_published results[MOST];
};

static inline int
queue_world_set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    skr_test_database_make(&world->database);
    world->db = skr_test_connect(&world->database);
    *state = world;
    return 0;
}

static inline int
queue_world_tear_down(void **state)
{
    struct world *world = *state;
    skr_db_close(world->db);
    skr_test_database_remove(&world->database);
    free(world);
    return 0;
}

static inline enum skr_code
try_open(struct world *world, const char *url, bool auto_setup, int wake_fd,
         struct skr_broker **broker, struct skr_error *error)
{
    struct skr_broker_options options = {
        .url = url,
        .database = world->database.ops,
        .database_url = world->database.url,
        .auto_setup = auto_setup,
        .wake_fd = wake_fd,
    };
    return skr_broker_open(&skr_queue_broker, &options, broker, error);
}

static inline struct skr_broker *
open_broker(struct world *world, const char *url)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    if (try_open(world, url, true, -1, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return broker;
}

static inline struct skr_message *
message_of(struct world *world, size_t number)
{
    struct skr_message *message = &world->messages[number];
    struct skr_error error;
    assert_int_equal(skr_id_new(&message->id, &error), SKR_OK);
    skr_id_format(message->id, world->ids[number]);
    snprintf(world->bodies[number], sizeof(world->bodies[number]),
             "{\"number\":%zu}", number);
    world->headers[number][0] =
        (struct skr_header){SKR_HEADER_TYPE, "order.placed"};
    world->headers[number][1] =
        (struct skr_header){SKR_HEADER_ID, world->ids[number]};
    message->name = "order.placed";
    message->body = world->bodies[number];
    message->body_size = strlen(world->bodies[number]);
    message->headers = world->headers[number];
    message->header_count = 2;
    return message;
}

static inline void
submit(struct skr_broker *broker, const struct skr_message *message,
       uint64_t tag)
{
    struct skr_error error = {0};
    if (broker->ops->submit(broker, message, NULL, tag, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static inline size_t
results_of(struct world *world, struct skr_broker *broker, size_t capacity)
{
    struct skr_error error = {0};
    size_t count = 0;
    if (broker->ops->results(broker, world->results, capacity, &count, 1000,
                             &error) != SKR_OK)
        fail_msg("%s", error.text);
    return count;
}

// Messages 0 .. count are in the queue when this returns.
static inline void
publish(struct world *world, size_t count)
{
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t i = 0; i < count; i++)
        submit(broker, message_of(world, i), i);
    assert_int_equal(results_of(world, broker, MOST), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(world->results[i].result, SKR_CONFIRMED);
    skr_broker_close(broker);
}

static inline enum skr_code
receive(struct world *world, struct skr_broker *broker, size_t *count,
        uint32_t timeout_ms)
{
    struct skr_error error = {0};
    *count = 0;
    enum skr_code code = broker->ops->receive(broker, world->incoming, 100,
                                              count, timeout_ms, &error);
    if (code != SKR_OK && code != SKR_TIMEOUT && code != SKR_STOPPED)
        fail_msg("%s", error.text);
    return code;
}

static inline void
settle_all(struct world *world, struct skr_broker *broker, size_t count,
           enum skr_settlement settlement, uint32_t delay_ms)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < count; i++) {
        world->incoming[i].settlement = settlement;
        world->incoming[i].delay_ms = delay_ms;
    }
    if (broker->ops->settle(broker, world->incoming, count, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// Receives and acknowledges until nothing is waiting; marks what came.
static inline size_t
drain(struct world *world, struct skr_broker *broker, unsigned char *came)
{
    size_t total = 0, count = 0;
    while (receive(world, broker, &count, 0) == SKR_OK) {
        for (size_t i = 0; i < count; i++) {
            size_t number = 0;
            assert_int_equal(world->incoming[i].problem.code, SKR_OK);
            assert_int_equal(
                sscanf(world->incoming[i].body, "{\"number\":%zu}", &number),
                1);
            came[number]++;
        }
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
        total += count;
    }
    return total;
}

static inline int64_t
rows_left(struct world *world)
{
    return skr_test_number(world->db,
                           "SELECT COUNT(*) FROM messenger_messages");
}

static inline void
expire_leases(struct world *world)
{
    const struct skr_value age = skr_bind_integer(100);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus} WHERE delivered_at IS NOT NULL",
                          &age, 1);
}

#endif
