// SPDX-License-Identifier: MIT
// The queue broker: what is published, and what a queue needs to open.
#include "queue_world.h"

#include "base/clock.h"
#include "base/text.h"
#include "message/headers.h"
#include "support/memory_ceiling.h"

#include <skirnir/queue.h>
#include <stdio.h>
#include <string.h>

static void
test_the_content_type_stands_last_in_the_headers(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    struct skr_message *message = message_of(world, 0);
    message->content_type = "application/vnd.shop+json";
    submit(broker, message, 1);
    assert_int_equal(results_of(world, broker, 1), 1);
    skr_broker_close(broker);
    char expected[256];
    snprintf(expected, sizeof(expected),
             "{\"type\":\"order.placed\",\"X-Message-Id\":\"%s\","
             "\"Content-Type\":\"application/vnd.shop+json\"}",
             world->ids[0]);
    skr_test_assert_text(world->db, "SELECT headers FROM messenger_messages",
                         expected);
}

static void
test_results_of_one_write_come_in_parts(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t i = 0; i < 250; i++)
        submit(broker, message_of(world, i), 1000 + i);
    assert_int_equal(rows_left(world), 0);
    uint64_t tag = 1000;
    for (size_t part = 0; part < 3; part++) {
        size_t count = results_of(world, broker, 100);
        assert_int_equal(count, part < 2 ? 100 : 50);
        assert_int_equal(rows_left(world), 250);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(world->results[i].tag, tag++);
            assert_int_equal(world->results[i].result, SKR_CONFIRMED);
        }
        // What comes in between waits for its turn.
        if (part == 0)
            submit(broker, message_of(world, 250), 1250);
    }
    assert_int_equal(results_of(world, broker, 100), 1);
    assert_int_equal(world->results[0].tag, 1250);
    assert_int_equal(results_of(world, broker, 100), 0);
    skr_broker_close(broker);
}

static void
test_bad_messages_are_refused_and_998_others_are_stored(void **state)
{
    struct world *world = *state;
    char *large = malloc(SKR_MAX_HEADERS_SIZE + 1);
    memset(large, 'x', SKR_MAX_HEADERS_SIZE);
    large[SKR_MAX_HEADERS_SIZE] = '\0';
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t i = 0; i < 1000; i++) {
        struct skr_message *message = message_of(world, i);
        if (i == 500) {
            message->body = "\xff\xfe";
            message->body_size = 2;
        }
        if (i == 700)
            world->headers[i][1].value = large;
        submit(broker, message, i);
    }
    assert_int_equal(results_of(world, broker, MOST), 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(world->results[i].result, i == 500 || i == 700
                                                       ? SKR_REFUSED_FOR_GOOD
                                                       : SKR_CONFIRMED);
    assert_non_null(strstr(world->results[500].reason.text, "UTF-8"));
    assert_non_null(strstr(world->results[700].reason.text, "1048576"));
    assert_int_equal(rows_left(world), 998);
    skr_broker_close(broker);
    free(large);
}

static void
test_a_row_that_the_table_refuses_takes_no_other_along(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    skr_test_run(world->db, "CREATE UNIQUE INDEX one_at_a_time ON "
                            "messenger_messages (queue_name, available_at)");
    int64_t due_at_us = skr_clock_wall_us() + 3600 * INT64_C(1000000);
    for (size_t i = 0; i < 1000; i++) {
        struct skr_message *message = message_of(world, i);
        size_t slot = i == 700 ? 699 : i;
        message->due_at_us = due_at_us + (int64_t)slot * 1000000;
        submit(broker, message, i);
    }
    assert_int_equal(results_of(world, broker, MOST), 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(world->results[i].result,
                         i == 700 ? SKR_REFUSED_FOR_GOOD : SKR_CONFIRMED);
    assert_true(world->results[700].reason.text[0] != '\0');
    assert_int_equal(rows_left(world), 999);
    skr_broker_close(broker);
}

static void
test_a_table_that_is_gone_condemns_no_message(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "queue://orders");
    for (size_t i = 0; i < 10; i++)
        submit(broker, message_of(world, i), i);
    skr_test_run(world->db, "DROP TABLE messenger_messages");
    assert_int_equal(results_of(world, broker, 6), 6);
    assert_int_equal(results_of(world, broker, 6), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(world->results[i].tag, 6 + i);
        assert_int_equal(world->results[i].result, SKR_UNCERTAIN);
    }
    struct skr_error error = {0};
    size_t count = 99;
    assert_int_equal(
        broker->ops->results(broker, world->results, 6, &count, 0, &error),
        SKR_MISSING);
    assert_int_equal(count, 0);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_int_equal(
        broker->ops->submit(broker, &world->messages[0], NULL, 1, &error),
        SKR_MISSING);
    skr_broker_close(broker);
}

static void
test_a_locked_table_gives_uncertain_results(void **state)
{
    struct world *world = *state;
    publish(world, 0);
    snprintf(world->database.url, sizeof(world->database.url), "%s",
             world->database.impatient_url);
    struct skr_broker *broker = open_broker(world, "queue://orders");
    submit(broker, message_of(world, 0), 7);
    skr_test_hold_up(world->db, "messenger_messages");
    assert_int_equal(results_of(world, broker, 1), 1);
    assert_int_equal(world->results[0].result, SKR_UNCERTAIN);
    assert_int_equal(world->results[0].tag, 7);
    skr_db_rollback(world->db);
    skr_broker_close(broker);
}

static void
test_a_missing_table_is_named_with_its_cure(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    assert_int_equal(
        try_open(world, "queue://orders", false, -1, &broker, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "messenger_messages"));
    assert_non_null(strstr(error.text, "`skirnir setup`"));
    assert_int_equal(try_open(world, "queue://orders?auto_setup=true", false,
                              -1, &broker, &error),
                     SKR_OK);
    skr_broker_close(broker);
    assert_int_equal(
        try_open(world, "queue://orders", false, -1, &broker, &error), SKR_OK);
    skr_broker_close(broker);
}

static void
test_bad_options_are_named(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *url, *named;
    } cases[] = {
        {"queue://orders?redeliver_timeout=2", "redeliver_timeout"},
        {"queue://orders?redeliver_timeout=soon", "redeliver_timeout"},
        {"queue://orders?auto_setup=perhaps", "auto_setup"},
        {"queue://orders?table_name=a%20b", "a b"},
        {"queue://orders?queue_name=", "queue name"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        enum skr_code code =
            try_open(world, cases[i].url, true, -1, &broker, &error);
        if (code != SKR_INVALID || strstr(error.text, cases[i].named) == NULL)
            fail_msg("%s: %d %s", cases[i].url, (int)code, error.text);
    }
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct skr_broker_options options = {.url = "queue://orders"};
    assert_int_equal(
        skr_broker_open(&skr_queue_broker, &options, &broker, &error),
        SKR_INVALID);
    assert_non_null(strstr(error.text, "queue_database"));
}

#define TEST(name)                                            \
    cmocka_unit_test_setup_teardown(name, queue_world_set_up, \
                                    queue_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_content_type_stands_last_in_the_headers),
        TEST(test_results_of_one_write_come_in_parts),
        TEST(test_bad_messages_are_refused_and_998_others_are_stored),
        TEST(test_a_row_that_the_table_refuses_takes_no_other_along),
        TEST(test_a_table_that_is_gone_condemns_no_message),
        TEST(test_a_locked_table_gives_uncertain_results),
        TEST(test_a_missing_table_is_named_with_its_cure),
        TEST(test_bad_options_are_named),
    };
    skr_test_limit_memory(SKR_TEST_CEILING_MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
