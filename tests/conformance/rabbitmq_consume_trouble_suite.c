// SPDX-License-Identifier: MIT
// Consuming from a real RabbitMQ that loses queues, rights and connections.
#include "rabbitmq_receiver.h"

static char vhost[32], user[32];

static int
make_vhost(void **state)
{
    (void)state;
    snprintf(vhost, sizeof(vhost), "skr-in-%d", getpid());
    snprintf(user, sizeof(user), "in-%d", getpid());
    control("add_vhost", vhost, NULL);
    control("add_user", user, "secret", NULL);
    control("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*", NULL);
    control("set_permissions", "-p", vhost, user, "^$", "^$", "^mine$", NULL);
    return 0;
}

static int
delete_vhost(void **state)
{
    (void)state;
    control("delete_vhost", vhost, NULL);
    control("delete_user", user, NULL);
    return 0;
}

// The world moves into the vhost of this suite.
static void
move(struct world *world, const char *login)
{
    amqp_connection_close(world->raw, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(world->raw);
    world->raw = connect_raw(vhost);
    snprintf(world->url, sizeof(world->url), "amqp://%s@127.0.0.1:%s/%s", login,
             getenv("SKR_RABBITMQ_PORT"), vhost);
}

static void
delete_queue(struct world *world, const char *queue)
{
    amqp_queue_delete(world->raw, 1, bytes(queue), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

// Receives until there is an error.
static enum skr_code
receive_trouble(struct skr_broker *broker, struct skr_error *error)
{
    struct skr_incoming incoming;
    size_t count = 0;
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    enum skr_code code = SKR_TIMEOUT;
    while (code == SKR_TIMEOUT && skr_clock_ms() < end)
        code = broker->ops->receive(broker, &incoming, 1, &count, 100, error);
    return code;
}

static void
test_a_missing_queue_is_named_with_its_cure(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    move(world, "guest:guest");
    assert_int_equal(
        try_open_receiver(world, "queues=nowhere", false, &broker, &error),
        SKR_MISSING);
    assert_null(broker);
    for (int lazily = 0; lazily < 2; lazily++) {
        assert_non_null(strstr(error.text, "nowhere"));
        assert_non_null(strstr(error.text, vhost));
        assert_non_null(strstr(error.text, "setup-amqp"));
        assert_string_equal(error.native, "404");
        if (lazily)
            continue;
        broker = open_broker(world, "queues=nowhere");
        error = (struct skr_error){0};
        assert_int_equal(receive_trouble(broker, &error), SKR_MISSING);
        skr_broker_close(broker);
    }
}

static void
test_a_queue_that_is_deleted_is_told(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct skr_incoming incoming;
    declare_queue(world, "gone", amqp_empty_table);
    assert_int_equal(
        try_open_receiver(world, "queues=gone", false, &broker, &error),
        SKR_OK);
    put_numbers(world, "gone", 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    delete_queue(world, "gone");
    // What is in hand is still settled.
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    assert_int_equal(receive_trouble(broker, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "queue gone in vhost /"));
    // And stays.
    assert_int_equal(receive_trouble(broker, &error), SKR_UNAVAILABLE);
    skr_broker_close(broker);
    assert_int_equal(
        try_open_receiver(world, "queues=gone", false, &broker, &error),
        SKR_MISSING);
    assert_int_equal(
        try_open_receiver(world, "queues=gone", true, &broker, &error), SKR_OK);
    put_numbers(world, "gone", 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
    delete_queue(world, "gone");
}

static void
test_a_deleted_queue_does_not_stop_the_others(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct skr_incoming incoming;
    char parameters[100];
    snprintf(parameters, sizeof(parameters), "queues=gone,%s", world->queue);
    declare_queue(world, "gone", amqp_empty_table);
    // Deleted while it is consumed from, then missing from the start.
    for (size_t round = 0; round < 2; round++) {
        assert_int_equal(
            try_open_receiver(world, parameters, false, &broker, &error),
            SKR_OK);
        if (round == 0) {
            put_numbers(world, "gone", 0, 1);
            assert_int_equal(receive(broker, &incoming, 1), 1);
            settle(broker, &incoming, 1, SKR_SETTLE_ACK);
            delete_queue(world, "gone");
        }
        put_numbers(world, world->queue, 0, 1);
        assert_int_equal(receive(broker, &incoming, 1), 1);
        settle(broker, &incoming, 1, SKR_SETTLE_ACK);
        declare_queue(world, "gone", amqp_empty_table);
        put_numbers(world, "gone", 0, 1);
        assert_int_equal(receive(broker, &incoming, 1), 1);
        settle(broker, &incoming, 1, SKR_SETTLE_ACK);
        assert_int_equal(count_events(world, "amqp.queue_missing"), round + 1);
        assert_int_equal(count_events(world, "amqp.queue_found"), round + 1);
        skr_broker_close(broker);
        delete_queue(world, "gone");
    }
    // Without any there is nothing to wait for.
    assert_int_equal(
        try_open_receiver(world, "queues=gone,away", false, &broker, &error),
        SKR_MISSING);
}

static void
test_refused_access_is_named_with_its_cure(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char login[64];
    snprintf(login, sizeof(login), "%s:secret", user);
    move(world, login);
    declare_queue(world, "mine", amqp_empty_table);
    declare_queue(world, "yours", amqp_empty_table);
    enum skr_code code =
        try_open_receiver(world, "queues=mine,yours", false, &broker, &error);
    if (code == SKR_OK) {
        code = receive_trouble(broker, &error);
        skr_broker_close(broker);
    }
    assert_int_equal(code, SKR_REFUSED);
    assert_string_equal(error.native, "403");
    assert_non_null(strstr(error.text, "queue yours"));
    assert_non_null(strstr(error.text, vhost));
    assert_non_null(strstr(error.text, user));
    assert_non_null(strstr(error.text, "set_permissions"));
    assert_null(strstr(error.text, "secret"));

    // The right to read is all that is needed.
    assert_int_equal(
        try_open_receiver(world, "queues=mine", false, &broker, &error),
        SKR_OK);
    struct skr_incoming incoming;
    put_numbers(world, "mine", 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

static void
test_exclusive_use_by_another_is_told(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    amqp_queue_declare(world->raw, 1, bytes("private"), 0, 0, 1, 0,
                       amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
    assert_int_equal(
        try_open_receiver(world, "queues=private", false, &broker, &error),
        SKR_REFUSED);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "queue private in vhost /"));
    assert_non_null(strstr(error.text, "exclusive"));
    delete_queue(world, "private");

    amqp_basic_consume(world->raw, 1, bytes(world->queue), bytes("alone"), 0, 0,
                       1, amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
    broker = open_receiver(world, "");
    error = (struct skr_error){0};
    assert_int_equal(receive_trouble(broker, &error), SKR_REFUSED);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "exclusive"));
    assert_non_null(strstr(error.text, world->queue));
    skr_broker_close(broker);
}

static void
test_a_lost_connection_brings_everything_again(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_incoming incoming[10];
    move(world, "guest:guest");
    declare_queue(world, "again", amqp_empty_table);
    struct skr_broker *broker = NULL;
    assert_int_equal(
        try_open_receiver(world, "queues=again", false, &broker, &error),
        SKR_OK);
    put_numbers(world, "again", 0, 10);
    size_t count = receive(broker, incoming, 5);
    control("close_all_connections", "--vhost", vhost, "for a test", NULL);
    // Whether the caller notices by a receive or by a settle.
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    for (size_t i = 0; i < count; i++)
        incoming[i].settlement = SKR_SETTLE_ACK;
    assert_int_equal(receive_trouble(broker, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "for a test"));
    assert_int_equal(broker->ops->settle(broker, incoming, count, &error),
                     SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_true(skr_clock_ms() < end);
    skr_broker_close(broker);

    amqp_destroy_connection(world->raw);
    world->raw = connect_raw(vhost);
    await_count(world, "again", 10);
    assert_int_equal(
        try_open_receiver(world, "queues=again", false, &broker, &error),
        SKR_OK);
    for (size_t done = 0; done < 10; done += count) {
        count = receive(broker, incoming, 10);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(number_in(&incoming[i]), done + i);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
    }
    skr_broker_close(broker);
    await_count(world, "again", 0);
}

// The server ends a connection that is silent for two heartbeats.
static void
test_a_busy_caller_keeps_the_connection(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker =
        open_receiver(world, "&heartbeat=1&prefetch_count=50");
    struct skr_incoming incoming[2];
    put_numbers(world, world->queue, 0, 30);
    assert_int_equal(receive(broker, incoming, 1), 1);
    // Busy for five heartbeats, while more comes in.
    int64_t end = skr_clock_ms() + 5000;
    for (size_t i = 30; skr_clock_ms() < end; i++) {
        put_numbers(world, world->queue, i, i + 1);
        skr_clock_sleep(-1, 500);
    }
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    for (size_t i = 1; i < 30; i++) {
        assert_int_equal(receive(broker, incoming, 1), 1);
        assert_int_equal(number_in(&incoming[0]), i);
        assert_false(incoming[0].redelivered);
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    skr_broker_close(broker);
}

// What finds no room here stays on the wire, and signs of life go all the same.
static void
test_a_busy_caller_with_no_room_keeps_the_connection(void **state)
{
    enum { COUNT = 8, SIZE = 512 * 1024 };
    struct world *world = *state;
    struct skr_broker *broker =
        open_receiver(world, "&heartbeat=1&prefetch_bytes=1048576");
    struct skr_incoming incoming[1];
    char *body = calloc(1, SIZE);
    for (size_t i = 0; i < COUNT; i++)
        put(world, world->queue, body, SIZE, NULL);
    free(body);
    await_count(world, world->queue, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(receive(broker, incoming, 1), 1);
        assert_false(incoming[0].redelivered);
        // Busy for five heartbeats.
        if (i == 0)
            skr_clock_sleep(-1, 5000);
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    skr_broker_close(broker);
}

static void
check_given_back(struct world *world, const char *parameters)
{
    enum { ALL = 40, AHEAD = 30 };
    struct skr_broker *broker = open_receiver(world, parameters);
    struct skr_incoming incoming[AHEAD];
    bool seen[ALL] = {false};
    int before = count_events(world, "amqp.held_too_long");
    put_numbers(world, world->queue, 0, ALL);
    assert_int_equal(receive(broker, incoming, 1), 1);
    seen[number_in(&incoming[0])] = true;
    await_count(world, world->queue, ALL - AHEAD);
    // While the caller is busy: all but the one that it has in hand.
    await_count(world, world->queue, ALL - 1);
    assert_int_equal(count_events(world, "amqp.held_too_long"), before + 1);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    // At this pace there is no use in having more than one here.
    assert_int_equal(receive(broker, incoming, AHEAD), 1);
    assert_int_equal(count_in(world, world->queue), ALL - 2);
    for (size_t left = ALL - 1; left > 0; left--) {
        assert_false(seen[number_in(&incoming[0])]);
        seen[number_in(&incoming[0])] = true;
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
        if (left > 1)
            assert_int_equal(receive(broker, incoming, 1), 1);
    }
    skr_broker_close(broker);
    assert_int_equal(count_in(world, world->queue), 0);
}

static void
test_what_waits_too_long_for_a_busy_caller_is_given_back(void **state)
{
    check_given_back(*state, "&hold_timeout=1&prefetch_count=30");
    // Most of them are on their way: there is no room for them here.
    check_given_back(*state,
                     "&hold_timeout=1&prefetch_count=30&prefetch_bytes=1");
}

// As fast as this one is now, more may come ahead again.
static void
test_a_caller_who_has_become_quick_is_given_more(void **state)
{
    enum { AHEAD = 16 };
    struct world *world = *state;
    struct skr_broker *broker =
        open_receiver(world, "&hold_timeout=0.3&prefetch_count=16");
    struct skr_incoming incoming[AHEAD];
    put_numbers(world, world->queue, 0, AHEAD);
    assert_int_equal(receive(broker, incoming, 1), 1);
    await_count(world, world->queue, AHEAD - 1);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    size_t most = 0;
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    for (size_t next = AHEAD; most < AHEAD && skr_clock_ms() < end;
         next += AHEAD) {
        put_numbers(world, world->queue, next, next + AHEAD);
        size_t count = receive(broker, incoming, AHEAD);
        most = count > most ? count : most;
        settle(broker, incoming, count, SKR_SETTLE_ACK);
    }
    assert_int_equal(most, AHEAD);
    skr_broker_close(broker);
}

static void
test_a_silent_server_is_noticed(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_broker *broker = open_receiver(world, "&heartbeat=1");
    expect_nothing(broker);
    freeze_server();
    enum skr_code code = receive_trouble(broker, &error);
    thaw_server();
    assert_int_equal(code, SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "sign of life"));
    skr_broker_close(broker);
}

static void
test_auto_setup_makes_exchange_queue_and_bindings(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    const char *parameters =
        "exchange[name]=setup.x&exchange[type]=topic"
        "&queues[setup-a][binding_keys][0]=order.*"
        "&queues[setup-a][binding_keys][1]=user.*"
        "&queues[setup-a][arguments][x-max-length]=1000"
        "&queues[setup-a][arguments][x-single-active-consumer]=true"
        "&queues[setup-b]=";
    move(world, "guest:guest");
    // Without it nothing is made.
    assert_int_equal(
        try_open_receiver(world, parameters, false, &broker, &error),
        SKR_MISSING);
    amqp_exchange_declare(world->raw, 1, bytes("setup.x"), bytes("topic"), 1, 1,
                          0, 0, amqp_empty_table);
    assert_int_equal(amqp_get_rpc_reply(world->raw).reply_type,
                     AMQP_RESPONSE_SERVER_EXCEPTION);
    amqp_destroy_connection(world->raw);
    world->raw = connect_raw(vhost);

    // Twice is as good as once, and what differs is left alone.
    for (int i = 0; i < 3; i++) {
        if (try_open_receiver(world,
                              i < 2 ? parameters
                                    : "exchange[name]=setup.x"
                                      "&exchange[type]=direct&queues=setup-a",
                              true, &broker, &error) != SKR_OK)
            fail_msg("%s", error.text);
        skr_broker_close(broker);
    }
    static const char *const keys[] = {"order.placed", "user.made", "other",
                                       ""};
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++)
        amqp_basic_publish(world->raw, 1, bytes("setup.x"), bytes(keys[i]), 0,
                           0, NULL, bytes("x"));
    await_count(world, "setup-b", 1);  // bound by an empty key
    // Two by their keys; the last attempt bound the empty one, too.
    await_count(world, "setup-a", 3);
    // The arguments are as they were given, numbers as numbers.
    amqp_table_entry_t entries[] = {
        {.key = bytes("x-max-length"),
         .value = {.kind = 'l', .value.i64 = 1000}},
        {.key = bytes("x-single-active-consumer"),
         .value = {.kind = 't', .value.boolean = 1}},
    };
    amqp_queue_declare(world->raw, 1, bytes("setup-a"), 0, 1, 0, 0,
                       (amqp_table_t){.num_entries = 2, .entries = entries});
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static void
test_tls_carries_deliveries_of_any_size(void **state)
{
    struct world *world = *state;
    const char *url = getenv("SKR_RABBITMQ_TLS_URL");
    enum { SIZE = 3 * 1024 * 1024, COUNT = 2000 };
    if (url == NULL)
        skip();
    snprintf(world->url, sizeof(world->url), "%s", url);
    struct skr_broker *broker =
        open_receiver(world, "&verify=0&prefetch_bytes=65536&heartbeat=1");
    char *body = malloc(SIZE);
    memset(body, 'x', SIZE);
    put_numbers(world, world->queue, 0, COUNT);
    put(world, world->queue, body, SIZE, NULL);
    struct skr_incoming incoming[100];
    for (size_t done = 0; done < COUNT + 1;) {
        size_t count = receive(broker, incoming, 100);
        for (size_t i = 0; i < count && done + i < COUNT; i++)
            assert_int_equal(number_in(&incoming[i]), done + i);
        if (done + count > COUNT) {
            assert_int_equal(incoming[count - 1].body_size, SIZE);
            assert_memory_equal(incoming[count - 1].body, body, SIZE);
        }
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        done += count;
    }
    free(body);
    skr_broker_close(broker);
}

static void
test_what_the_dsn_says_wrong_is_named(void **state)
{
    static const struct {
        const char *parameters, *says;
    } cases[] = {
        {"prefetch_count=0", "prefetch_count"},
        {"prefetch_count=70000", "prefetch_count"},
        {"prefetch_bytes=x", "prefetch_bytes"},
        {"retry_via=pigeon", "retry_via"},
        {"queues[a][unknown]=1", "queues[a][unknown]"},
        {"queues[a][arguments][x-max-length]=many", "x-max-length"},
        {"queues[a=1", "queues[a"},
        {"queues=a,,b", "0 bytes"},
    };
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        assert_int_equal(try_open_receiver(world, cases[i].parameters, false,
                                           &broker, &error),
                         SKR_INVALID);
        if (strstr(error.text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].parameters, error.text);
    }
}

int
main(void)
{
#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, rabbitmq_world_set_up, \
                                    rabbitmq_world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_missing_queue_is_named_with_its_cure),
        CASE(test_a_queue_that_is_deleted_is_told),
        CASE(test_a_deleted_queue_does_not_stop_the_others),
        CASE(test_refused_access_is_named_with_its_cure),
        CASE(test_exclusive_use_by_another_is_told),
        CASE(test_a_lost_connection_brings_everything_again),
        CASE(test_a_busy_caller_keeps_the_connection),
        CASE(test_a_busy_caller_with_no_room_keeps_the_connection),
        CASE(test_what_waits_too_long_for_a_busy_caller_is_given_back),
        CASE(test_a_caller_who_has_become_quick_is_given_more),
        CASE(test_a_silent_server_is_noticed),
        CASE(test_auto_setup_makes_exchange_queue_and_bindings),
        CASE(test_tls_carries_deliveries_of_any_size),
        CASE(test_what_the_dsn_says_wrong_is_named),
    };
    if (getenv("SKR_RABBITMQ_URL") == NULL) {
        puts("SKR_RABBITMQ_URL is not set");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_vhost, delete_vhost);
}
