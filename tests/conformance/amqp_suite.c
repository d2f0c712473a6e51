// SPDX-License-Identifier: MIT
// The AMQP client by itself, against a server in another process. No RabbitMQ
// is needed.
#include "amqp/channel.h"
#include "base/clock.h"
#include "support/fake_rabbitmq.h"
#include "support/oom.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHANNEL = 1, DEADLINE_MS = 20000 };

struct world {
    struct skr_fake_rabbitmq server;
    struct skr_amqp_options options;
    struct skr_amqp connection;
    char host[24];
};

static void
start_server(struct world *world, const char *greeting)
{
    skr_fake_rabbitmq_start(&world->server, greeting);
    snprintf(world->host, sizeof(world->host), "127.0.0.1:%d",
             world->server.port);
    world->options = (struct skr_amqp_options){
        .hosts = world->host,
        .user = "a",
        .password = "secret",
        .vhost = "/",
        .product = "test",
        .version = "1",
        .connection_name = "test",
        .connect_timeout_ms = 10000,
        .heartbeat_s = 30,
    };
    world->connection = SKR_AMQP_CLOSED;
}

static int
start(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    start_server(world, NULL);
    *state = world;
    return 0;
}

static int
stop(void **state)
{
    struct world *world = *state;
    skr_amqp_close(&world->connection, true);
    skr_fake_rabbitmq_stop(&world->server);
    free(world);
    return 0;
}

static void
open_connection(struct world *world)
{
    struct skr_error error = {0};
    if (skr_amqp_open(&world->connection, &world->options, -1, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
}

static void
take(struct world *world, struct skr_amqp_frame *frame)
{
    const struct skr_amqp_deadline deadline = {
        .at_ms = skr_clock_ms() + DEADLINE_MS, .wake_fd = -1};
    struct skr_error error = {0};
    bool found = false;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !found) {
        code = skr_amqp_next(&world->connection, frame, &found, &error);
        if (code == SKR_OK && !found)
            code = skr_amqp_wait(&world->connection, &deadline, &error);
    }
    if (code != SKR_OK)
        fail_msg("%s", error.text);
}

static void
expect(struct world *world, enum skr_amqp_kind kind,
       struct skr_amqp_frame *frame)
{
    take(world, frame);
    assert_int_equal(frame->kind, kind);
    assert_int_equal(frame->channel, CHANNEL);
}

static void
open_channel(struct world *world)
{
    struct skr_amqp_frame frame;
    open_connection(world);
    assert_int_equal(
        skr_amqp_channel_open(&world->connection, CHANNEL, true, NULL), SKR_OK);
    expect(world, SKR_AMQP_OPEN_OK, &frame);
    expect(world, SKR_AMQP_SELECT_OK, &frame);
}

static void
publish(struct world *world, const char *body)
{
    struct skr_text raw = {0};
    const struct skr_amqp_properties properties = {
        .pieces[SKR_AMQP_MESSAGE_ID] = {.bytes = (const unsigned char *)"id-7",
                                        .size = 4}};
    skr_amqp_properties_write(&properties, &raw);
    const struct skr_amqp_publish message = {
        .exchange = "x",
        .routing_key = "key",
        .properties = {.bytes = (unsigned char *)raw.bytes, .size = raw.size},
        .body_size = strlen(body),
    };
    assert_int_equal(
        skr_amqp_publish(&world->connection, CHANNEL, &message, NULL), SKR_OK);
    size_t size = strlen(body);
    assert_int_equal(
        skr_amqp_send_body(&world->connection, CHANNEL, body, &size, NULL),
        SKR_OK);
    assert_int_equal(size, strlen(body));
    assert_true(skr_amqp_unsent(&world->connection) > 0);
    assert_int_equal(skr_amqp_flush(&world->connection, NULL), SKR_OK);
    assert_int_equal(skr_amqp_unsent(&world->connection), 0);
    skr_text_fini(&raw);
}

static void
test_a_message_is_confirmed_refused_or_returned(void **state)
{
    struct world *world = *state;
    struct skr_amqp_frame frame;
    char text[SKR_AMQP_SHORT_SIZE];
    open_channel(world);
    publish(world, "ack");
    expect(world, SKR_AMQP_ACK, &frame);
    assert_int_equal(frame.confirm.tag, 1);
    assert_false(frame.confirm.multiple);
    publish(world, "nack");
    expect(world, SKR_AMQP_NACK, &frame);
    assert_int_equal(frame.confirm.tag, 2);
    publish(world, "return");
    expect(world, SKR_AMQP_RETURN, &frame);
    assert_int_equal(frame.returned.reply.code, SKR_AMQP_NO_ROUTE);
    skr_amqp_copy_short(frame.returned.routing_key, text);
    assert_string_equal(text, "key");
    expect(world, SKR_AMQP_PROPERTIES, &frame);
    struct skr_amqp_properties returned;
    assert_int_equal(
        skr_amqp_properties_read(frame.content.properties, &returned, NULL),
        SKR_OK);
    skr_amqp_copy_short(returned.pieces[SKR_AMQP_MESSAGE_ID], text);
    assert_string_equal(text, "id-7");
    for (uint64_t left = frame.content.body_size; left > 0;) {
        expect(world, SKR_AMQP_BODY, &frame);
        left -= frame.text.size;
    }
    expect(world, SKR_AMQP_ACK, &frame);
    assert_int_equal(frame.confirm.tag, 3);
}

static void
test_a_closed_connection_says_why(void **state)
{
    struct world *world = *state;
    struct skr_amqp_frame frame;
    struct skr_error reason = {0};
    open_channel(world);
    publish(world, "501");
    take(world, &frame);
    assert_int_equal(frame.kind, SKR_AMQP_CONNECTION_CLOSE);
    assert_int_equal(frame.channel, 0);
    assert_int_equal(frame.reply.code, 501);
    assert_int_equal(
        skr_amqp_accept_close(&world->connection, &frame, &reason, NULL),
        SKR_OK);
    assert_int_equal(reason.code, SKR_REFUSED);
    assert_string_equal(reason.native, "501");
}

static void
test_a_queue_delivers_what_it_has(void **state)
{
    struct world *world = *state;
    struct skr_amqp *connection = &world->connection;
    struct skr_amqp_frame frame;
    char tag[SKR_AMQP_SHORT_SIZE];
    open_channel(world);
    assert_int_equal(skr_amqp_qos(connection, CHANNEL, 50, NULL), SKR_OK);
    assert_int_equal(skr_amqp_consume(connection, CHANNEL, "good", "0", NULL),
                     SKR_OK);
    expect(world, SKR_AMQP_QOS_OK, &frame);
    expect(world, SKR_AMQP_CONSUME_OK, &frame);
    for (uint64_t i = 1; i <= 20; i++) {
        expect(world, SKR_AMQP_DELIVER, &frame);
        assert_int_equal(frame.delivery.tag, i);
        skr_amqp_copy_short(frame.delivery.consumer_tag, tag);
        assert_string_equal(tag, "0");
        expect(world, SKR_AMQP_PROPERTIES, &frame);
        for (uint64_t left = frame.content.body_size; left > 0;) {
            expect(world, SKR_AMQP_BODY, &frame);
            left -= frame.text.size;
        }
    }
    assert_int_equal(skr_amqp_requeue(connection, CHANNEL, 20, NULL), SKR_OK);
    assert_int_equal(skr_amqp_ack(connection, CHANNEL, 19, true, NULL), SKR_OK);
    assert_int_equal(skr_amqp_flush(connection, NULL), SKR_OK);
}

static void
test_what_has_no_room_in_a_frame_is_refused_here(void **state)
{
    struct world *world = *state;
    char name[300];
    struct skr_error error = {0};
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    open_channel(world);
    const struct skr_amqp_argument argument = {.name = name};
    const struct skr_amqp_declaration declarations[] = {
        {.object = SKR_AMQP_QUEUE, .name = name},
        {.object = SKR_AMQP_EXCHANGE, .name = "x", .type = name},
        {.object = SKR_AMQP_BINDING,
         .exchange = "x",
         .queue = "q",
         .binding_key = name},
        {.object = SKR_AMQP_QUEUE,
         .name = "q",
         .arguments = &argument,
         .argument_count = 1},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(declarations); i++)
        assert_int_equal(skr_amqp_declare(&world->connection, CHANNEL,
                                          &declarations[i], &error),
                         SKR_INVALID);
    assert_int_equal(skr_amqp_look_for(&world->connection, CHANNEL,
                                       SKR_AMQP_EXCHANGE, name, &error),
                     SKR_INVALID);
    assert_int_equal(skr_amqp_unsent(&world->connection), 0);
    name[255] = '\0';
    assert_int_equal(skr_amqp_check_short("name", name, &error), SKR_OK);
}

static void
test_a_wait_ends_in_time_or_when_it_is_told_to(void **state)
{
    struct world *world = *state;
    int wake_fd = eventfd(1, 0);
    open_channel(world);
    struct skr_amqp_deadline deadline = {.at_ms = skr_clock_ms() + 20,
                                         .wake_fd = -1};
    assert_int_equal(skr_amqp_wait(&world->connection, &deadline, NULL),
                     SKR_TIMEOUT);
    deadline = (struct skr_amqp_deadline){.at_ms = skr_clock_ms() + DEADLINE_MS,
                                          .wake_fd = wake_fd};
    assert_int_equal(skr_amqp_wait(&world->connection, &deadline, NULL),
                     SKR_STOPPED);
    close(wake_fd);
}

// A server that shows no sign of life for two heartbeats is gone; a client that
// has sent nothing for half of one sends one.
static void
test_heartbeats_are_sent_and_missed(void **state)
{
    struct world *world = *state;
    struct skr_amqp *connection = &world->connection;
    struct skr_error error = {0};
    open_channel(world);
    int64_t now_ms = skr_clock_ms();
    connection->heartbeat_ms = 10000;
    connection->last_received_ms = now_ms;
    connection->last_sent_ms = now_ms - 6000;
    assert_int_equal(skr_amqp_tick(connection, &error), SKR_OK);
    assert_true(connection->last_sent_ms >= now_ms);
    connection->last_received_ms = skr_clock_ms() - 20001;
    assert_int_equal(skr_amqp_tick(connection, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    connection->heartbeat_ms = 0;
    assert_int_equal(skr_amqp_tick(connection, &error), SKR_OK);
}

static void
test_an_error_of_a_login_repeats_no_password(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    skr_fake_rabbitmq_stop(&world->server);
    start_server(world, "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_int_equal(
        skr_amqp_open(&world->connection, &world->options, -1, &error),
        SKR_UNAVAILABLE);
    assert_null(strstr(error.text, "secret"));
    assert_non_null(strstr(error.text, "127.0.0.1"));
}

// Every allocation of a login fails once.
static void
test_a_login_without_memory_leaves_nothing_behind(void **state)
{
    struct world *world = *state;
    size_t before = skr_oom_live();
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        skr_oom_arm(nth);
        enum skr_code code =
            skr_amqp_open(&world->connection, &world->options, -1, NULL);
        has_failed = skr_oom_disarm();
        assert_int_equal(code == SKR_OK, !has_failed);
        skr_amqp_close(&world->connection, code == SKR_OK);
        assert_int_equal(skr_oom_live(), before);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_message_is_confirmed_refused_or_returned, start, stop),
        cmocka_unit_test_setup_teardown(test_a_closed_connection_says_why,
                                        start, stop),
        cmocka_unit_test_setup_teardown(test_a_queue_delivers_what_it_has,
                                        start, stop),
        cmocka_unit_test_setup_teardown(
            test_what_has_no_room_in_a_frame_is_refused_here, start, stop),
        cmocka_unit_test_setup_teardown(
            test_a_wait_ends_in_time_or_when_it_is_told_to, start, stop),
        cmocka_unit_test_setup_teardown(test_heartbeats_are_sent_and_missed,
                                        start, stop),
        cmocka_unit_test_setup_teardown(
            test_an_error_of_a_login_repeats_no_password, start, stop),
        cmocka_unit_test_setup_teardown(
            test_a_login_without_memory_leaves_nothing_behind, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
