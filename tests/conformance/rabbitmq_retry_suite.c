// SPDX-License-Identifier: MIT
// Retries through delay queues on a real RabbitMQ.
#include "rabbitmq_receiver.h"

#include <netinet/in.h>
#include <sys/socket.h>

static char delay_user[32];

static int
make_user(void **state)
{
    (void)state;
    snprintf(delay_user, sizeof(delay_user), "delay-%d", getpid());
    control("add_user", delay_user, "secret", NULL);
    control("set_permissions", "-p", "/", delay_user, "^$", "^$", ".*", NULL);
    return 0;
}

static int
delete_user(void **state)
{
    (void)state;
    control("delete_user", delay_user, NULL);
    return 0;
}

// "delay_X_Q_500_retry", as the world's names make it.
static void
delay_queue_of(const struct world *world, const char *delay, char name[256])
{
    snprintf(name, 256, "delay_%s_%s_%s_retry", world->exchange, world->queue,
             delay);
}

static struct skr_broker *
open_delaying(struct world *world)
{
    char parameters[200];
    snprintf(parameters, sizeof(parameters),
             "&retry_via=delay_queue&exchange[name]=%s", world->exchange);
    struct skr_broker *broker = open_receiver(world, parameters);
    assert_true(broker->can.delays);
    return broker;
}

static void
retry(struct skr_broker *broker, struct skr_incoming *incoming,
      uint32_t delay_ms)
{
    struct skr_error error = {0};
    incoming->settlement = SKR_SETTLE_RETRY;
    incoming->delay_ms = delay_ms;
    incoming->reason =
        (struct skr_error){.code = SKR_REFUSED, .text = "not yet"};
    if (broker->ops->settle(broker, incoming, 1, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// A server that is slow to confirm so much refuses it, and it is in hand as
// before.
static void
retry_until_taken(struct skr_broker *broker, struct skr_incoming *incoming,
                  uint32_t delay_ms)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    do
        retry(broker, incoming, delay_ms);
    while (incoming->was_refused && skr_clock_ms() < end_ms);
    assert_false(incoming->was_refused);
}

static void
test_a_retry_comes_back_after_its_delay_with_its_count(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    struct skr_incoming incoming;
    amqp_table_entry_t inner = {.key = bytes("deep"),
                                .value = {.kind = 'I', .value.i32 = 7}};
    amqp_field_value_t copies[] = {
        {.kind = 'S', .value.bytes = bytes("elsewhere")}};
    amqp_table_entry_t headers[] = {
        {.key = bytes("type"),
         .value = {.kind = 'S', .value.bytes = bytes("order.placed")}},
        {.key = bytes("table"),
         .value = {.kind = 'F',
                   .value.table = {.num_entries = 1, .entries = &inner}}},
        {.key = bytes("CC"),
         .value = {.kind = 'A',
                   .value.array = {.num_entries = 1, .entries = copies}}},
    };
    const amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                  AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_USER_ID_FLAG |
                  AMQP_BASIC_EXPIRATION_FLAG,
        .headers = {.num_entries = 3, .entries = headers},
        .message_id = bytes("any-id"),
        .correlation_id = bytes("kept"),
        .user_id = bytes("guest"),
        .expiration = bytes("60000"),
    };
    put(world, world->queue, "body", 4, &properties);
    int64_t begin = 0;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(receive(broker, &incoming, 1), 1);
        assert_true(skr_clock_ms() - begin >= 300);
        assert_int_equal(incoming.retry_count, i);
        assert_int_equal(incoming.body_size, 4);
        assert_memory_equal(incoming.body, "body", 4);
        assert_string_equal(incoming.broker_id, "any-id");
        assert_string_equal(header_of(&incoming, "type"), "order.placed");
        // Kinds are kept: a table stays one.
        assert_string_equal(header_of(&incoming, "table"), "{\"deep\":7}");
        assert_false(incoming.redelivered);
        if (i < 2) {
            begin = skr_clock_ms();
            retry(broker, &incoming, 300);
            char name[256];
            delay_queue_of(world, "300", name);
            assert_in_range(count_in(world, name), 0, 1);
        }
    }
    assert_non_null(strstr(header_of(&incoming, SKR_HEADER_ERROR), "not yet"));
    assert_null(header_of(&incoming, "CC"));
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    expect_nothing(broker);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

// What Symfony declares: the same, or the server would refuse it.
static void
test_the_delay_queue_is_symfonys(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    struct skr_incoming incoming;
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    // Two digits count, and up: no delay is shorter than was asked for.
    retry(broker, &incoming, 59001);
    char name[256];
    delay_queue_of(world, "60000", name);
    amqp_table_entry_t entries[] = {
        {.key = bytes("x-message-ttl"),
         .value = {.kind = 'l', .value.i64 = 60000}},
        {.key = bytes("x-expires"), .value = {.kind = 'l', .value.i64 = 70000}},
        {.key = bytes("x-dead-letter-exchange"),
         .value = {.kind = 'S', .value.bytes = bytes("")}},
        {.key = bytes("x-dead-letter-routing-key"),
         .value = {.kind = 'S', .value.bytes = bytes(world->queue)}},
    };
    amqp_queue_declare(world->raw, 1, bytes(name), 0, 1, 0, 0,
                       (amqp_table_t){.num_entries = 4, .entries = entries});
    expect_normal(amqp_get_rpc_reply(world->raw));
    amqp_exchange_declare(world->raw, 1, bytes("delays"), bytes("direct"), 0, 1,
                          0, 0, amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
    await_count(world, name, 1);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
    amqp_queue_delete(world->raw, 1, bytes(name), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static void
test_names_of_exchange_and_queue_can_be_chosen(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming;
    struct skr_broker *broker = open_receiver(
        world, "&retry_via=delay_queue&delay[exchange_name]=skr-later"
               "&delay[queue_name_pattern]=%25delay%25.%25routing_key%25.later"
               "&delay[arguments][x-max-length]=10");
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    retry(broker, &incoming, 60000);
    char name[256];
    snprintf(name, sizeof(name), "60000.%s.later_retry", world->queue);
    await_count(world, name, 1);
    skr_broker_close(broker);
    amqp_queue_delete(world->raw, 1, bytes(name), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
    delete_exchange(world, "skr-later");
}

static void
test_many_retries_in_one_call_lose_none(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    enum { COUNT = 200 };
    struct skr_incoming incoming[COUNT];
    uint32_t tries[COUNT] = {0};
    put_numbers(world, world->queue, 0, COUNT);
    for (size_t done = 0; done < COUNT;) {
        struct skr_error error = {0};
        size_t count = receive(broker, incoming, COUNT);
        for (size_t i = 0; i < count; i++) {
            size_t number = number_in(&incoming[i]);
            assert_int_equal(incoming[i].retry_count, tries[number]);
            bool again = number % 4 == 0 && tries[number] < 2;
            tries[number] += again;
            incoming[i].settlement = again ? SKR_SETTLE_RETRY : SKR_SETTLE_ACK;
            incoming[i].delay_ms = 1 + (uint32_t)number % 7;
            done += !again;
        }
        if (broker->ops->settle(broker, incoming, count, &error) != SKR_OK)
            fail_msg("%s", error.text);
    }
    expect_nothing(broker);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

static void
test_a_large_body_survives_its_retry(void **state)
{
    enum { SIZE = 5 * 1024 * 1024 };
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    struct skr_incoming incoming;
    char *body = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        body[i] = (char)(i * 31 + i / 251);
    put(world, world->queue, body, SIZE, NULL);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    retry_until_taken(broker, &incoming, 10);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(incoming.retry_count, 1);
    assert_int_equal(incoming.body_size, SIZE);
    assert_memory_equal(incoming.body, body, SIZE);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    free(body);
    skr_broker_close(broker);
}

// The original is not let go before its copy is stored.
static void
test_a_retry_that_cannot_be_published_is_refused(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming;
    snprintf(world->url, sizeof(world->url), "amqp://%s:secret@127.0.0.1:%s/",
             delay_user, getenv("SKR_RABBITMQ_PORT"));
    struct skr_broker *broker = open_delaying(world);
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    for (int i = 0; i < 2; i++) {
        retry(broker, &incoming, 100);
        assert_true(incoming.was_refused);
    }
    assert_int_equal(count_events(world, "amqp.not_delayed"), 1);
    skr_broker_close(broker);
    await_count(world, world->queue, 1);
}

// Marks the ports of all connections of this process.
static void
list_ports(bool is_ours[65536])
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in address = {.sin_family = AF_UNSPEC};
        socklen_t size = sizeof(address);
        if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
            address.sin_family == AF_INET)
            is_ours[ntohs(address.sin_port)] = true;
    }
}

// The server ends the connection that has come since. Other programs have
// theirs at the same time, and one that is not used for long is closed by
// itself.
static void
end_new_connection(const bool was_ours[65536])
{
    static bool is_ours[65536];
    char command[400];
    int port = 0;
    memset(is_ours, 0, sizeof(is_ours));
    list_ports(is_ours);
    for (int i = 0; i < 65536; i++)
        port = is_ours[i] && !was_ours[i] ? i : port;
    assert_true(port > 0);
    snprintf(command, sizeof(command),
             "[rabbit_networking:close_connection(C, \"for a test\") || "
             "C <- rabbit_networking:connections(), "
             "rabbit_networking:connection_info(C, [peer_port]) =:= "
             "[{peer_port, %d}]].",
             port);
    control("eval", command, NULL);
}

static void
test_a_lost_publishing_connection_is_made_anew(void **state)
{
    static bool was_ours[65536];
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    struct skr_incoming incoming;
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    memset(was_ours, 0, sizeof(was_ours));
    list_ports(was_ours);
    retry(broker, &incoming, 10);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    end_new_connection(was_ours);
    retry(broker, &incoming, 10);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(incoming.retry_count, 2);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

static void
test_without_delay_queues_a_retry_is_given_back(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    struct skr_incoming incoming;
    assert_false(broker->can.delays);
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    retry(broker, &incoming, 60000);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_true(incoming.redelivered);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

// A frame holds all headers; one more byte would end the connection.
static void
test_headers_without_room_for_a_count_are_refused(void **state)
{
    enum { SIZE = 130900 };
    struct world *world = *state;
    struct skr_broker *broker = open_delaying(world);
    struct skr_incoming incoming;
    char *large = malloc(SIZE);
    memset(large, 'x', SIZE);
    amqp_table_entry_t header = {
        .key = bytes("large"),
        .value = {.kind = 'S', .value.bytes = {.len = SIZE, .bytes = large}}};
    const amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {.num_entries = 1, .entries = &header}};
    put(world, world->queue, "x", 1, &properties);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    retry(broker, &incoming, 100);
    assert_true(incoming.was_refused);
    assert_int_equal(count_events(world, "amqp.not_delayed"), 1);
    // It is in hand as before.
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    free(large);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

int
main(void)
{
#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, rabbitmq_world_set_up, \
                                    rabbitmq_world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_retry_comes_back_after_its_delay_with_its_count),
        CASE(test_the_delay_queue_is_symfonys),
        CASE(test_names_of_exchange_and_queue_can_be_chosen),
        CASE(test_many_retries_in_one_call_lose_none),
        CASE(test_a_large_body_survives_its_retry),
        CASE(test_a_retry_that_cannot_be_published_is_refused),
        CASE(test_a_lost_publishing_connection_is_made_anew),
        CASE(test_without_delay_queues_a_retry_is_given_back),
        CASE(test_headers_without_room_for_a_count_are_refused),
    };
    if (getenv("SKR_RABBITMQ_URL") == NULL) {
        puts("SKR_RABBITMQ_URL is not set");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_user, delete_user);
}
