// SPDX-License-Identifier: MIT
// What the suites of the consumer share: a queue in one database, handlers and
// their effects in another.

#ifndef SKR_TEST_CONSUMER_WORLD_H
#define SKR_TEST_CONSUMER_WORLD_H

#include "databases.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/broker.h"
#include "inbox/consumer.h"
#include "store/messenger/messenger.h"

#include <pthread.h>
#include <skirnir/queue.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
    struct skr_test_database queue_database, database;
    struct skr_db *queue, *db;  // to look and to meddle with
    struct skr_store *table;    // of the queue
    struct skr_consumer_options options;
    struct skr_consumer_extras extras;
    atomic_int troubles;  // log lines about trouble
    atomic_int recoveries;
    atomic_int losses;  // and about leases that were lost

    // For handlers.
    struct skr_consumer *consumer;
    size_t chosen;  // the number of a message that is special to a test
    atomic_size_t calls, chosen_calls;
    bool has_wavered;
    uint32_t last_attempt;
};

static inline void
count_lines(void *user, enum skr_log_level level, const char *event,
            const struct skr_log_field *fields, size_t count)
{
    struct world *world = user;
    (void)level;
    (void)fields;
    (void)count;
    if (strcmp(event, "consumer.trouble") == 0 ||
        strcmp(event, "consumer.keep_trouble") == 0)
        atomic_fetch_add(&world->troubles, 1);
    if (strcmp(event, "consumer.recovered") == 0)
        atomic_fetch_add(&world->recoveries, 1);
    if (strcmp(event, "queue.lease_lost") == 0)
        atomic_fetch_add(&world->losses, 1);
}

static inline int
consumer_world_set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct skr_error error = {0};
    skr_test_database_make(&world->queue_database);
    skr_test_database_make(&world->database);
    world->queue = skr_test_connect(&world->queue_database);
    world->db = skr_test_connect(&world->database);
    skr_test_run(world->db, "CREATE TABLE effects (number BIGINT NOT NULL)");
    assert_int_equal(skr_messenger_new(
                         &(struct skr_messenger_options){
                             .dialect = skr_db_dialect(world->queue),
                             .table = "messenger_messages",
                             .queue = "default"},
                         &world->table, &error),
                     SKR_OK);
    assert_int_equal(skr_store_create(world->table, world->queue, &error),
                     SKR_OK);
    world->options = (struct skr_consumer_options){
        .name = "shop",
        .database = world->database.ops,
        .database_url = world->database.url,
        .broker = &skr_queue_broker,
        .broker_url = "queue://shop",
        .queue_database = world->queue_database.ops,
        .queue_database_url = world->queue_database.url,
        // Long enough that a retry comes only when a test makes it due.
        .retry_delay_ms = 600000,
        .log = count_lines,
        .log_user = world,
    };
    world->extras = (struct skr_consumer_extras){
        .auto_setup = true,
        .deduplication_auto_setup = true,
        .stop_when_empty = true,
    };
    *state = world;
    return 0;
}

static inline int
consumer_world_tear_down(void **state)
{
    struct world *world = *state;
    skr_store_free(world->table);
    skr_db_close(world->queue);
    skr_db_close(world->db);
    skr_test_database_remove(&world->queue_database);
    skr_test_database_remove(&world->database);
    free(world);
    return 0;
}

static inline void
append(struct world *world, const struct skr_messenger_row *rows, size_t count)
{
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(world->queue, SKR_BEGIN_WRITE, &error),
                     SKR_OK);
    assert_int_equal(skr_messenger_append(world->table, skr_db_tx(world->queue),
                                          NULL, rows, count, &error),
                     SKR_OK);
    assert_int_equal(skr_db_commit(world->queue, &error), SKR_OK);
}

static inline void
publish_raw(struct world *world, const char *headers, const void *body,
            size_t body_size)
{
    const struct skr_messenger_row row = {.body = body,
                                          .body_size = body_size,
                                          .headers = headers,
                                          .headers_size = strlen(headers)};
    append(world, &row, 1);
}

// Messages whose body is their number, and whose id is made of it.
static inline void
publish(struct world *world, size_t first, size_t count)
{
    struct skr_messenger_row *rows = calloc(count, sizeof(*rows));
    char(*texts)[200] = calloc(count, sizeof(*texts));
    for (size_t i = 0; i < count; i++) {
        snprintf(texts[i], sizeof(texts[i]),
                 "{\"type\":\"order.placed\",\"X-Message-Id\":"
                 "\"01890a5d-ac96-774b-bcce-%012zu\"}",
                 first + i);
        char *body = texts[i] + 150;
        snprintf(body, 50, "%zu", first + i);
        rows[i] = (struct skr_messenger_row){.body = body,
                                             .body_size = strlen(body),
                                             .headers = texts[i],
                                             .headers_size = strlen(texts[i])};
    }
    append(world, rows, count);
    free(rows);
    free(texts);
}

static inline size_t
number_of(const struct skr_delivery *delivery)
{
    char text[32];
    snprintf(text, sizeof(text), "%.*s", (int)delivery->message.body_size,
             (const char *)delivery->message.body);
    return strtoul(text, NULL, 10);
}

static inline enum skr_verdict
add_effect(const struct skr_delivery *delivery, struct skr_tx tx,
           struct skr_error *reason)
{
    char sql[80];
    snprintf(sql, sizeof(sql), "INSERT INTO effects (number) VALUES (%zu)",
             number_of(delivery));
    return skr_tx_run(tx, &(struct skr_statement){.sql = sql}, reason) == SKR_OK
               ? SKR_ACCEPT
               : SKR_RETRY;
}

static inline enum skr_verdict
accept_order(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    struct world *world = user;
    atomic_fetch_add(&world->calls, 1);
    return add_effect(delivery, tx, reason);
}

static inline bool
is_chosen(struct world *world, const struct skr_delivery *delivery)
{
    atomic_fetch_add(&world->calls, 1);
    if (number_of(delivery) != world->chosen)
        return false;
    atomic_fetch_add(&world->chosen_calls, 1);
    return true;
}

static inline struct skr_consumer *
open_consumer(struct world *world, skr_handler_fn *handler)
{
    struct skr_consumer *consumer = NULL;
    struct skr_error error = {0};
    if (skr_consumer_open(&world->options, &consumer, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_consumer_extend(consumer, &world->extras);
    if (handler != NULL)
        assert_int_equal(skr_consumer_handle(consumer, "order.placed", handler,
                                             world, &error),
                         SKR_OK);
    world->consumer = consumer;
    return consumer;
}

static inline void
run_until_empty(struct skr_consumer *consumer)
{
    struct skr_error error = {0};
    if (skr_consumer_run(consumer, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// Opens, runs until the queue is empty, and closes.
static inline struct skr_consumer_counts
consume(struct world *world, skr_handler_fn *handler)
{
    struct skr_consumer *consumer = open_consumer(world, handler);
    run_until_empty(consumer);
    struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
    world->consumer = NULL;
    return counts;
}

// A consumer in a thread of its own.
struct running {
    struct skr_consumer *consumer;
    pthread_t thread;
};

static inline void *
run_consumer(void *user)
{
    struct skr_error error = {0};
    return (void *)(intptr_t)skr_consumer_run(user, &error);
}

static inline void
start_consumer(struct running *running, struct skr_consumer *consumer)
{
    running->consumer = consumer;
    assert_int_equal(
        pthread_create(&running->thread, NULL, run_consumer, consumer), 0);
}

static inline void
start_running(struct running *running, struct world *world,
              skr_handler_fn *handler)
{
    world->extras.stop_when_empty = false;
    start_consumer(running, open_consumer(world, handler));
}

static inline void
stop_running(struct running *running)
{
    void *code = NULL;
    skr_consumer_stop(running->consumer);
    assert_int_equal(pthread_join(running->thread, &code), 0);
    assert_int_equal((intptr_t)code, SKR_STOPPED);
    skr_consumer_close(running->consumer);
}

static inline void
make_retries_due(struct world *world)
{
    skr_test_run(world->queue,
                 "UPDATE messenger_messages SET available_at = created_at");
}

static inline void
expire_leases(struct world *world)
{
    const struct skr_value age = skr_bind_integer(100);
    skr_test_run_template(world->queue,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus} WHERE delivered_at IS NOT NULL",
                          &age, 1);
}

static inline int64_t
waiting(struct world *world)
{
    return skr_test_number(world->queue,
                           "SELECT COUNT(*) FROM messenger_messages");
}

static inline bool
has_no_messages(void *user)
{
    return waiting(user) == 0;
}

static inline bool
has_none_once_due(void *user)
{
    make_retries_due(user);
    return has_no_messages(user);
}

static inline bool
has_trouble(void *user)
{
    struct world *world = user;
    return atomic_load(&world->troubles) > 0;
}

static inline int64_t
failed_rows(struct world *world)
{
    return skr_test_number(world->db,
                           "SELECT COUNT(*) FROM messenger_messages");
}

// Each number below count has exactly one effect, but for `without`.
static inline void
assert_effects(struct world *world, size_t count, size_t without)
{
    int64_t expected = (int64_t)count - (without < count ? 1 : 0);
    char sql[96];
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(*) FROM effects"),
                     expected);
    assert_int_equal(skr_test_number(world->db, "SELECT COUNT(DISTINCT number)"
                                                " FROM effects"),
                     expected);
    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM effects WHERE number = %zu", without);
    assert_int_equal(skr_test_number(world->db, sql), 0);
}

enum { NONE = 1000000 };

#endif
