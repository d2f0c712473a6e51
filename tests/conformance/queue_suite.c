// SPDX-License-Identifier: MIT
// The queue broker: a table that several consumers share.
#include "queue_world.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void
test_what_is_published_arrives_once_and_in_order(void **state)
{
    struct world *world = *state;
    publish(world, 250);
    assert_int_equal(rows_left(world), 250);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    size_t next = 0, count = 0;
    while (receive(world, broker, &count, 0) == SKR_OK) {
        for (size_t i = 0; i < count; i++) {
            const struct skr_incoming *incoming = &world->incoming[i];
            assert_int_equal(incoming->body_size, strlen(world->bodies[next]));
            assert_memory_equal(incoming->body, world->bodies[next],
                                incoming->body_size);
            assert_string_equal(skr_headers_find(incoming->headers.items,
                                                 incoming->headers.count,
                                                 SKR_HEADER_ID),
                                world->ids[next]);
            assert_int_equal(incoming->retry_count, 0);
            assert_false(incoming->redelivered);
            assert_true(incoming->created_at_us > 0);
            next++;
        }
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    }
    assert_int_equal(next, 250);
    assert_int_equal(rows_left(world), 0);
    skr_broker_close(broker);
}

static void
test_several_consumers_never_share_a_message(void **state)
{
    struct world *world = *state;
    unsigned char came[MOST] = {0};
    publish(world, 300);
    struct skr_broker *brokers[3];
    for (size_t i = 0; i < 3; i++)
        brokers[i] = open_broker(world, "queue://orders");
    size_t total = 0, turn = 0, count = 0;
    while (receive(world, brokers[turn % 3], &count, 0) == SKR_OK) {
        struct skr_incoming mine[100];
        memcpy(mine, world->incoming, count * sizeof(mine[0]));
        // Another one reads while these are in hand.
        size_t others = 0;
        if (receive(world, brokers[(turn + 1) % 3], &others, 0) == SKR_OK) {
            for (size_t i = 0; i < others; i++) {
                size_t number = 0;
                sscanf(world->incoming[i].body, "{\"number\":%zu}", &number);
                came[number]++;
            }
            settle_all(world, brokers[(turn + 1) % 3], others, SKR_SETTLE_ACK,
                       0);
        }
        memcpy(world->incoming, mine, count * sizeof(mine[0]));
        for (size_t i = 0; i < count; i++) {
            size_t number = 0;
            sscanf(mine[i].body, "{\"number\":%zu}", &number);
            came[number]++;
        }
        settle_all(world, brokers[turn % 3], count, SKR_SETTLE_ACK, 0);
        total += count + others;
        turn++;
    }
    assert_int_equal(total, 300);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(came[i], 1);
    for (size_t i = 0; i < 3; i++)
        skr_broker_close(brokers[i]);
}

static void
test_an_expired_lease_comes_again_with_its_tries_raised(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 1);
    struct skr_broker *dead = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, dead, &count, 0), SKR_OK);
    assert_int_equal(count, 1);
    skr_broker_close(dead);

    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    for (uint32_t tries = 1; tries <= 3; tries++) {
        skr_broker_close(broker);
        broker = open_broker(world, "queue://orders");
        expire_leases(world);
        assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        assert_int_equal(count, 1);
        assert_int_equal(world->incoming[0].retry_count, tries);
        assert_true(world->incoming[0].redelivered);
    }
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    assert_int_equal(rows_left(world), 0);
    skr_broker_close(broker);
}

// A consumer that dies over a message must not drag others along with it.
static void
test_what_was_tried_before_comes_alone(void **state)
{
    struct world *world = *state;
    unsigned char came[MOST] = {0};
    size_t count = 0, held = 0;
    publish(world, 60);
    struct skr_broker *dead = open_broker(world, "queue://orders");
    struct skr_broker *broker = open_broker(world, "queue://orders");
    // Claims grow: this one has many in hand in the end.
    while (held < 20) {
        if (held > 0)
            settle_all(world, dead, held, SKR_SETTLE_ACK, 0);
        assert_int_equal(receive(world, dead, &held, 0), SKR_OK);
    }
    int64_t left = rows_left(world);
    skr_broker_close(dead);
    expire_leases(world);
    for (int64_t i = 0; i < (int64_t)held; i++) {
        assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        assert_int_equal(count, 1);
        assert_true(world->incoming[0].redelivered);
        assert_int_equal(world->incoming[0].retry_count, 1);
        // No other one is in hand: all the rest have the old lease, or none.
        assert_int_equal(
            skr_test_number(world->db,
                            "SELECT COUNT(*) FROM messenger_messages WHERE "
                            "delivered_at = (SELECT MAX(delivered_at) FROM "
                            "messenger_messages)"),
            1);
        settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    }
    assert_int_equal(drain(world, broker, came), left - (int64_t)held);
    assert_int_equal(rows_left(world), 0);
    skr_broker_close(broker);
}

static void
test_a_tried_message_among_fresh_ones_raises_no_other(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 120);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    // Until claims are large, then one in the middle was tried before.
    size_t taken = 0;
    while (taken < 20) {
        assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
        taken += count;
    }
    const struct skr_value age = skr_bind_integer(100);
    skr_test_run_template(world->db,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus} WHERE id = 60",
                          &age, 1);
    size_t alone = 0;
    while (receive(world, broker, &count, 0) == SKR_OK) {
        for (size_t i = 0; i < count; i++)
            if (world->incoming[i].redelivered) {
                assert_int_equal(count, 1);
                assert_int_equal(world->incoming[i].retry_count, 1);
                alone++;
            } else {
                assert_int_equal(world->incoming[i].retry_count, 0);
            }
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
        taken += count;
    }
    assert_int_equal(alone, 1);
    assert_int_equal(taken, 120);
    skr_broker_close(broker);
}

static void
test_a_message_is_not_early(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    struct skr_message *message = message_of(world, 0);
    message->due_at_us = skr_clock_wall_us() + 1200000;
    submit(broker, message, 1);
    assert_int_equal(results_of(world, broker, 1), 1);
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    assert_int_equal(receive(world, broker, &count, 10000), SKR_OK);
    assert_true(skr_clock_wall_us() >= message->due_at_us);
    assert_int_equal(count, 1);
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    skr_broker_close(broker);
}

static void
test_a_retry_waits_and_counts(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 1);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    snprintf(world->incoming[0].reason.text,
             sizeof(world->incoming[0].reason.text), "not today");
    world->incoming[0].reason.code = SKR_REFUSED;
    settle_all(world, broker, 1, SKR_SETTLE_RETRY, 1000);
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    assert_int_equal(rows_left(world), 1);
    assert_int_equal(receive(world, broker, &count, 10000), SKR_OK);
    assert_int_equal(world->incoming[0].retry_count, 1);
    assert_non_null(strstr(world->incoming[0].raw_headers, "not today"));
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    skr_broker_close(broker);
}

static void
test_what_is_given_back_is_free_at_once(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 1);
    struct skr_broker *first =
        open_broker(world, "queue://orders?redeliver_timeout=3");
    struct skr_broker *second =
        open_broker(world, "queue://orders?redeliver_timeout=3");
    assert_int_equal(receive(world, first, &count, 0), SKR_OK);
    assert_int_equal(receive(world, second, &count, 0), SKR_TIMEOUT);
    settle_all(world, first, 1, SKR_SETTLE_REQUEUE, 0);
    assert_int_equal(receive(world, first, &count, 0), SKR_OK);
    assert_int_equal(world->incoming[0].retry_count, 0);
    assert_false(world->incoming[0].redelivered);
    settle_all(world, first, 1, SKR_SETTLE_REQUEUE, 0);
    // Another consumer, whose eyes are elsewhere, finds it too.
    assert_int_equal(receive(world, second, &count, 20000), SKR_OK);
    assert_int_equal(world->incoming[0].retry_count, 0);
    settle_all(world, second, 1, SKR_SETTLE_ACK, 0);
    skr_broker_close(first);
    skr_broker_close(second);
}

static void
test_what_is_held_comes_again_and_spends_no_retry(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 1);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    settle_all(world, broker, 1, SKR_SETTLE_DEFER, 0);
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    settle_all(world, broker, 1, SKR_SETTLE_DEFER, 1000);
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    assert_int_equal(receive(world, broker, &count, 10000), SKR_OK);
    assert_int_equal(world->incoming[0].retry_count, 0);
    assert_false(world->incoming[0].redelivered);
    settle_all(world, broker, 1, SKR_SETTLE_ACK, 0);
    skr_broker_close(broker);
    assert_int_equal(rows_left(world), 0);
}

struct change {
    struct world *world;
    char *before;
};

static bool
lease_has_moved(void *user)
{
    struct change *change = user;
    char *now = skr_test_text(change->world->db,
                              "SELECT delivered_at FROM messenger_messages");
    bool moved = now != NULL && strcmp(now, change->before) != 0;
    free(now);
    return moved;
}

static void
test_a_lease_is_renewed_and_settled_after_that(void **state)
{
    struct world *world = *state;
    size_t count = 0;
    publish(world, 2);
    struct skr_broker *broker =
        open_broker(world, "queue://orders?redeliver_timeout=3");
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(count, 1);
    struct change change = {world, skr_test_text(world->db,
                                                 "SELECT delivered_at FROM "
                                                 "messenger_messages WHERE "
                                                 "delivered_at IS NOT NULL")};
    skr_test_run(world->db, "DELETE FROM messenger_messages "
                            "WHERE delivered_at IS NULL");
    assert_true(skr_test_eventually(lease_has_moved, &change, 10000));
    free(change.before);
    // A retry is written only while the lease is ours: ours is the new one.
    settle_all(world, broker, 1, SKR_SETTLE_RETRY, 60000);
    skr_test_assert_text(world->db,
                         "SELECT delivered_at FROM messenger_messages", NULL);
    assert_int_equal(skr_test_number(world->db,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE available_at > created_at"),
                     1);
    skr_broker_close(broker);
}

static void
test_bad_rows_come_with_their_bytes_and_block_nothing(void **state)
{
    struct world *world = *state;
    static const char *const bad[] = {
        "not json", "{", "[1]", "{\"a\":\"b\"}",
        "{\"type\":\"a.b\",\"X-Message-Id\":\"?\"}"};
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t i = 0; i < SKR_COUNT_OF(bad); i++) {
        const struct skr_value values[] = {skr_bind_text("{}"),
                                           skr_bind_text(bad[i])};
        skr_test_run_template(world->db,
                              "INSERT INTO messenger_messages (body, headers, "
                              "queue_name, created_at, available_at) VALUES "
                              "(?, ?, 'default', {now}, {now})",
                              values, 2);
    }
    publish(world, 1000);
    size_t seen_bad = 0, seen_good = 0, count = 0;
    while (receive(world, broker, &count, 0) == SKR_OK) {
        for (size_t i = 0; i < count; i++) {
            const struct skr_incoming *incoming = &world->incoming[i];
            if (incoming->problem.code == SKR_OK) {
                seen_good++;
                continue;
            }
            assert_int_equal(incoming->problem.code, SKR_MALFORMED);
            assert_true(incoming->problem.text[0] != '\0');
            assert_int_equal(incoming->raw_headers_size, strlen(bad[seen_bad]));
            assert_memory_equal(incoming->raw_headers, bad[seen_bad],
                                incoming->raw_headers_size);
            seen_bad++;
        }
        settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    }
    assert_int_equal(seen_bad, SKR_COUNT_OF(bad));
    assert_int_equal(seen_good, 1000);
    assert_int_equal(rows_left(world), 0);
    skr_broker_close(broker);
}

// A handler has no use for it, and it would change how the message is read once
// that has failed.
static void
test_what_says_how_a_row_is_read_goes_no_further(void **state)
{
    struct world *world = *state;
    static const char headers[] =
        "{\"type\":\"a.b\",\"a\":\"b\","
        "\"X-Message-Id\":\"0192f0c1-5a3e-7c44-8f6e-3b2a1c0d9e8f\","
        "\"X-Skirnir-Body-Encoding\":\"base64\"}";
    const struct skr_value values[] = {skr_bind_text("AAE="),
                                       skr_bind_text(headers)};
    size_t count = 0;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    skr_test_run_template(world->db,
                          "INSERT INTO messenger_messages (body, headers, "
                          "queue_name, created_at, available_at) VALUES "
                          "(?, ?, 'default', {now}, {now})",
                          values, 2);
    assert_int_equal(receive(world, broker, &count, 0), SKR_OK);
    assert_int_equal(count, 1);
    const struct skr_incoming *incoming = &world->incoming[0];
    assert_int_equal(incoming->body_size, 2);
    assert_memory_equal(incoming->body, "\0\1", 2);
    assert_non_null(skr_headers_find(incoming->headers.items,
                                     incoming->headers.count, "a"));
    assert_null(skr_headers_find(incoming->headers.items,
                                 incoming->headers.count,
                                 "X-Skirnir-Body-Encoding"));
    settle_all(world, broker, count, SKR_SETTLE_ACK, 0);
    skr_broker_close(broker);
}

static void
test_a_stop_ends_the_wait(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    size_t count = 0;
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(
        try_open(world, "queue://orders", true, wake_fd, &broker, &error),
        SKR_OK);
    assert_int_equal(receive(world, broker, &count, 0), SKR_TIMEOUT);
    assert_int_equal(eventfd_write(wake_fd, 1), 0);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(receive(world, broker, &count, 60000), SKR_STOPPED);
    assert_true(skr_clock_ms() - start_ms < 10000);
    skr_broker_close(broker);
    close(wake_fd);
}

#define TEST(name)                                            \
    cmocka_unit_test_setup_teardown(name, queue_world_set_up, \
                                    queue_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_published_arrives_once_and_in_order),
        TEST(test_several_consumers_never_share_a_message),
        TEST(test_an_expired_lease_comes_again_with_its_tries_raised),
        TEST(test_what_was_tried_before_comes_alone),
        TEST(test_a_tried_message_among_fresh_ones_raises_no_other),
        TEST(test_a_message_is_not_early),
        TEST(test_a_retry_waits_and_counts),
        TEST(test_what_is_given_back_is_free_at_once),
        TEST(test_what_is_held_comes_again_and_spends_no_retry),
        TEST(test_a_lease_is_renewed_and_settled_after_that),
        TEST(test_bad_rows_come_with_their_bytes_and_block_nothing),
        TEST(test_what_says_how_a_row_is_read_goes_no_further),
        TEST(test_a_stop_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
