// SPDX-License-Identifier: MIT
// Consuming from a real RabbitMQ: what comes, and what becomes of it.
#include "rabbitmq_receiver.h"

#include <sys/eventfd.h>

static void
test_what_is_waiting_comes_together_and_in_order(void **state)
{
    enum { COUNT = 1000, BATCH = 100 };
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    struct skr_incoming incoming[BATCH];
    put_numbers(world, world->queue, 0, COUNT);
    await_count(world, world->queue, COUNT);
    size_t largest = 0;
    for (size_t done = 0; done < COUNT;) {
        size_t count = receive(broker, incoming, BATCH);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(number_in(&incoming[i]), done + i);
            assert_false(incoming[i].redelivered);
            assert_int_equal(incoming[i].settlement, SKR_SETTLE_REQUEUE);
        }
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        largest = count > largest ? count : largest;
        done += count;
    }
    assert_true(largest > 10);
    expect_nothing(broker);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

// No consumer waits, and a message that was there before is found all the same.
static void
test_a_glance_finds_what_is_there(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < 20; i++) {
        struct skr_incoming incoming[4];
        struct skr_error error = {0};
        size_t count = 0;
        put_numbers(world, world->queue, i, i + 1);
        await_count(world, world->queue, 1);
        struct skr_broker *broker = open_receiver(world, "");
        assert_int_equal(
            broker->ops->receive(broker, incoming, 4, &count, 0, &error),
            SKR_OK);
        assert_int_equal(count, 1);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        expect_nothing(broker);
        skr_broker_close(broker);
    }
}

static void
test_waiting_ends_in_time_and_by_a_stop(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct skr_incoming incoming;
    size_t count = 0;
    char url[800];
    int wake_fd = eventfd(0, 0);
    snprintf(url, sizeof(url), "%s?queues=%s", world->url, world->queue);
    const struct skr_broker_options options = {.url = url, .wake_fd = wake_fd};
    assert_int_equal(
        skr_broker_open(&skr_rabbitmq_broker, &options, &broker, &error),
        SKR_OK);
    int64_t begin = skr_clock_ms();
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, 700, &error),
        SKR_TIMEOUT);
    assert_in_range(skr_clock_ms() - begin, 690, DEADLINE_MS);
    assert_int_equal(eventfd_write(wake_fd, 1), 0);
    begin = skr_clock_ms();
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, DEADLINE_MS, &error),
        SKR_STOPPED);
    assert_true(skr_clock_ms() - begin < DEADLINE_MS / 2);
    // It was a pause, and no more.
    eventfd_t value;
    assert_int_equal(eventfd_read(wake_fd, &value), 0);
    put_numbers(world, world->queue, 7, 8);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
    close(wake_fd);
}

static amqp_table_entry_t
entry(const char *name, amqp_field_value_t value)
{
    return (amqp_table_entry_t){.key = bytes(name), .value = value};
}

static amqp_field_value_t
raw_value(uint8_t kind, const char *text, size_t size)
{
    return (amqp_field_value_t){
        .kind = kind,
        .value.bytes = {.len = size, .bytes = (void *)(uintptr_t)text}};
}

static void
test_headers_of_every_kind_become_text(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    amqp_table_entry_t inner[] = {
        entry("a", (amqp_field_value_t){.kind = 'I', .value.i32 = -1}),
        entry("b\"", raw_value('S', "x\ny", 3)),
        entry("bin", raw_value('S', "\xff\0", 2)),
    };
    amqp_field_value_t items[] = {
        {.kind = 't', .value.boolean = 0},
        {.kind = 'V'},
        {.kind = 'F', .value.table = {.num_entries = 3, .entries = inner}},
        {.kind = 'd', .value.f64 = 0.5},
    };
    const struct {
        const char *text;
        amqp_field_value_t value;
    } cases[] = {
        {"text \xc3\xa9", raw_value('S', "text \xc3\xa9", 7)},
        {"", raw_value('S', "", 0)},
        {"/wA=", raw_value('S', "\xff\0", 2)},
        {"AAEC", raw_value('x', "\0\1\2", 3)},
        {"true", {.kind = 't', .value.boolean = 1}},
        {"-128", {.kind = 'b', .value.i8 = -128}},
        {"255", {.kind = 'B', .value.u8 = 255}},
        {"65535", {.kind = 'u', .value.u16 = 65535}},
        {"4294967295", {.kind = 'i', .value.u32 = UINT32_MAX}},
        {"-32768", {.kind = 's', .value.i16 = -32768}},
        {"-2147483648", {.kind = 'I', .value.i32 = INT32_MIN}},
        {"-9223372036854775808", {.kind = 'l', .value.i64 = INT64_MIN}},
        {"1.5", {.kind = 'f', .value.f32 = 1.5F}},
        {"-0.1", {.kind = 'd', .value.f64 = -0.1}},
        {"12.34", {.kind = 'D', .value.decimal = {2, 1234}}},
        {"0.007", {.kind = 'D', .value.decimal = {3, 7}}},
        {"1700000000", {.kind = 'T', .value.u64 = 1700000000}},
        {"null", {.kind = 'V'}},
        {"[false,null,{\"a\":-1,\"b\\\"\":\"x\\ny\",\"bin\":\"/wA=\"},0.5]",
         {.kind = 'A', .value.array = {.num_entries = 4, .entries = items}}},
        {"{\"a\":-1,\"b\\\"\":\"x\\ny\",\"bin\":\"/wA=\"}",
         {.kind = 'F', .value.table = {.num_entries = 3, .entries = inner}}},
    };
    amqp_table_entry_t entries[SKR_COUNT_OF(cases)];
    char names[SKR_COUNT_OF(cases)][8];
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        snprintf(names[i], sizeof(names[i]), "h%zu", i);
        entries[i] = entry(names[i], cases[i].value);
    }
    const amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {.num_entries = SKR_COUNT_OF(cases), .entries = entries}};
    put(world, world->queue, "x", 1, &properties);
    struct skr_incoming incoming;
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(incoming.problem.code, SKR_OK);
    assert_int_equal(incoming.headers.count, SKR_COUNT_OF(cases));
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        const char *text = header_of(&incoming, names[i]);
        assert_non_null(text);
        assert_string_equal(text, cases[i].text);
    }
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

// They tell how rows are read, and a publisher could set them.
static void
test_reserved_headers_are_dropped(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    amqp_table_entry_t entries[] = {
        entry("X-Skirnir-Body-Encoding", raw_value('S', "base64", 6)),
        entry("plain", raw_value('S', "text", 4)),
        entry("X-Skirnir-Raw-Headers", raw_value('S', "{}", 2)),
        entry("X-Skirnir-", (amqp_field_value_t){.kind = 'V'}),
    };
    const amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {.num_entries = SKR_COUNT_OF(entries), .entries = entries}};
    put(world, world->queue, "x", 1, &properties);
    struct skr_incoming incoming;
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(incoming.headers.count, 1);
    assert_string_equal(header_of(&incoming, "plain"), "text");
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

static void
test_properties_stand_in_for_headers(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    amqp_table_entry_t type[] = {entry("type", raw_value('S', "a.b", 3))};
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG |
                  AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG,
        .message_id = bytes("0190a0b0-0000-7000-8000-000000000001"),
        .type = bytes("order.placed"),
        .timestamp = 1700000000,
        .content_type = bytes("text/plain"),
    };
    put(world, world->queue, "1", 1, &properties);
    properties._flags |= AMQP_BASIC_HEADERS_FLAG;
    properties.headers = (amqp_table_t){.num_entries = 1, .entries = type};
    properties.timestamp = UINT64_MAX;
    properties.message_id = bytes("\xff\xfe");
    put(world, world->queue, "2", 1, &properties);
    put(world, world->queue, "3", 1, NULL);
    struct skr_incoming incoming;

    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_string_equal(incoming.broker_id,
                        "0190a0b0-0000-7000-8000-000000000001");
    assert_string_equal(header_of(&incoming, "type"), "order.placed");
    assert_string_equal(header_of(&incoming, "Content-Type"), "text/plain");
    assert_int_equal(incoming.created_at_us, INT64_C(1700000000000000));
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);

    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_string_equal(header_of(&incoming, "type"), "a.b");
    assert_int_equal(incoming.created_at_us, 0);
    assert_null(incoming.broker_id);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);

    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(incoming.headers.count, 0);
    assert_null(incoming.broker_id);
    assert_int_equal(incoming.problem.code, SKR_OK);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

static void
test_bodies_of_any_size_and_content_arrive_whole(void **state)
{
    static const size_t sizes[] = {0, 1, 131064, 131065, 64 * 1024 * 1024};
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    char *body = malloc(sizes[4]);
    for (size_t k = 0; k < sizes[4]; k++)
        body[k] = (char)(k * 31 + k / 251);
    for (size_t i = 0; i < SKR_COUNT_OF(sizes); i++)
        put(world, world->queue, body, sizes[i], NULL);
    for (size_t i = 0; i < SKR_COUNT_OF(sizes); i++) {
        struct skr_incoming incoming;
        assert_int_equal(receive(broker, &incoming, 1), 1);
        assert_int_equal(incoming.body_size, sizes[i]);
        assert_non_null(incoming.body);
        assert_memory_equal(incoming.body, body, sizes[i]);
        settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    }
    free(body);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

static void
test_a_table_that_nests_without_end_costs_nobody_anything(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    enum { LEVELS = 33 };
    static amqp_table_entry_t levels[LEVELS];
    for (size_t i = 0; i < LEVELS; i++)
        levels[i] = entry(
            "t", i == 0 ? (amqp_field_value_t){.kind = 'V'}
                        : (amqp_field_value_t){
                              .kind = 'F',
                              .value.table = {.num_entries = 1,
                                              .entries = &levels[i - 1]}});
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG};
    for (size_t i = LEVELS - 2; i < LEVELS; i++) {
        amqp_table_entry_t outer =
            entry("outer",
                  (amqp_field_value_t){.kind = 'F',
                                       .value.table = {.num_entries = 1,
                                                       .entries = &levels[i]}});
        properties.headers =
            (amqp_table_t){.num_entries = 1, .entries = &outer};
        put(world, world->queue, "x", 1, &properties);
    }
    put_numbers(world, world->queue, 0, 1000);
    struct skr_incoming incoming[2];
    assert_int_equal(receive(broker, incoming, 1), 1);
    assert_int_equal(incoming[0].problem.code, SKR_OK);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    assert_int_equal(receive(broker, incoming, 1), 1);
    assert_int_equal(incoming[0].problem.code, SKR_MALFORMED);
    assert_non_null(strstr(incoming[0].problem.text, "outer"));
    assert_true(incoming[0].raw_headers_size > LEVELS);
    assert_int_equal(incoming[0].headers.count, 0);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    for (size_t done = 0; done < 1000;) {
        size_t count = receive(broker, incoming, 2);
        assert_int_equal(number_in(&incoming[0]), done);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        done += count;
    }
    skr_broker_close(broker);
}

// What is acked never takes along what is open below it.
static void
test_acks_in_any_order_settle_no_other(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    enum { COUNT = 10 };
    struct skr_incoming incoming[COUNT];
    put_numbers(world, world->queue, 0, COUNT);
    await_count(world, world->queue, COUNT);
    size_t got = 0;
    while (got < COUNT) {
        got = receive(broker, incoming, COUNT);
        if (got < COUNT) {
            settle(broker, incoming, got, SKR_SETTLE_REQUEUE);
            await_count(world, world->queue, 0);
        }
    }
    // The first stays open; the sixth goes back; three are dealt with, the
    // ninth before the second. Those that were requeued may come in another
    // order.
    bool is_over[COUNT] = {false};
    is_over[number_in(&incoming[1])] = true;
    is_over[number_in(&incoming[2])] = true;
    is_over[number_in(&incoming[8])] = true;
    settle(broker, &incoming[8], 1, SKR_SETTLE_ACK);
    settle(broker, &incoming[5], 1, SKR_SETTLE_REQUEUE);
    settle(broker, &incoming[1], 2, SKR_SETTLE_ACK);
    // A second time is no mistake: it is what a caller does after trouble.
    settle(broker, &incoming[1], 2, SKR_SETTLE_ACK);
    skr_broker_close(broker);
    await_count(world, world->queue, COUNT - 3);

    broker = open_receiver(world, "");
    bool seen[COUNT] = {false};
    for (size_t done = 0; done < COUNT - 3; done++) {
        assert_int_equal(receive(broker, incoming, 1), 1);
        assert_true(incoming[0].redelivered);
        seen[number_in(&incoming[0])] = true;
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], !is_over[i]);
    expect_nothing(broker);
    skr_broker_close(broker);
}

static void
test_mixed_settlements_in_one_call_hold_each(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    struct skr_error error = {0};
    struct skr_incoming incoming[300];
    put_numbers(world, world->queue, 0, 300);
    await_count(world, world->queue, 300);
    bool released[300] = {false};
    size_t done = 0;
    while (done < 300) {
        size_t count = receive(broker, incoming, 300);
        for (size_t i = 0; i < count; i++) {
            size_t number = number_in(&incoming[i]);
            bool again = number % 3 == 0 && !released[number];
            assert_int_equal(incoming[i].redelivered, released[number]);
            released[number] = again;
            incoming[i].settlement =
                again ? SKR_SETTLE_REQUEUE : SKR_SETTLE_ACK;
            done += !again;
        }
        assert_int_equal(broker->ops->settle(broker, incoming, count, &error),
                         SKR_OK);
    }
    expect_nothing(broker);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

// What the caller forgot goes back, and the connection goes on.
static void
test_what_was_not_settled_is_given_back(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "&prefetch_count=1");
    struct skr_incoming incoming;
    put_numbers(world, world->queue, 0, 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_int_equal(receive(broker, &incoming, 1), 1);
    assert_true(incoming.redelivered);
    settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
    await_count(world, world->queue, 0);
}

// However few may be out of the queue at once.
static void
test_what_is_put_off_comes_again_after_all_others(void **state)
{
    enum { ALL = 40, CHOSEN = 3, DELAY_MS = 700 };
    struct world *world = *state;
    static const char *const settings[] = {
        "&prefetch_count=1", "&prefetch_count=2", "&prefetch_count=100"};
    for (size_t i = 0; i < SKR_COUNT_OF(settings); i++) {
        struct skr_broker *broker = open_receiver(world, settings[i]);
        struct skr_incoming incoming[ALL];
        put_numbers(world, world->queue, 0, ALL);
        size_t handled = 0, chosen = 0;
        int64_t put_off_ms = 0;
        while (handled + chosen < ALL) {
            size_t count = receive(broker, incoming, ALL);
            for (size_t k = 0; k < count; k++) {
                bool is_chosen = number_in(&incoming[k]) < CHOSEN;
                assert_false(is_chosen && incoming[k].redelivered);
                incoming[k].delay_ms = is_chosen ? DELAY_MS : 0;
                settle(broker, &incoming[k], 1,
                       is_chosen ? SKR_SETTLE_DEFER : SKR_SETTLE_ACK);
                chosen += is_chosen;
                handled += !is_chosen;
                put_off_ms = is_chosen ? skr_clock_ms() : put_off_ms;
            }
        }
        assert_int_equal(chosen, CHOSEN);
        while (chosen > 0) {
            size_t count = receive(broker, incoming, ALL);
            for (size_t k = 0; k < count; k++) {
                assert_true(number_in(&incoming[k]) < CHOSEN);
                assert_false(incoming[k].redelivered);
            }
            settle(broker, incoming, count, SKR_SETTLE_ACK);
            chosen -= count;
        }
        assert_true(skr_clock_ms() - put_off_ms >= DELAY_MS);
        skr_broker_close(broker);
        assert_int_equal(count_in(world, world->queue), 0);
    }
}

static void
test_what_is_put_off_goes_back_with_the_connection(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    struct skr_incoming incoming[3];
    put_numbers(world, world->queue, 0, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(receive(broker, incoming, 1), 1);
        incoming[0].delay_ms = 60000;
        settle(broker, incoming, 1, SKR_SETTLE_DEFER);
    }
    expect_nothing(broker);
    assert_true(broker->ops->status(broker).has_deferred);
    skr_broker_close(broker);
    await_count(world, world->queue, 3);
}

static void
test_a_quorum_queue_counts_its_deliveries(void **state)
{
    struct world *world = *state;
    char queue[80], parameters[200];
    snprintf(queue, sizeof(queue), "%s-quorum", world->queue);
    snprintf(parameters, sizeof(parameters),
             "queues[%s][arguments][x-queue-type]=quorum", queue);
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    if (try_open_receiver(world, parameters, true, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    struct skr_incoming incoming;
    put_numbers(world, queue, 0, 1);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(receive(broker, &incoming, 1), 1);
        assert_int_equal(incoming.delivery_count, i);
        assert_int_equal(incoming.redelivered, i > 0);
        // Being handed out is not being tried.
        assert_int_equal(incoming.retry_count, 0);
        settle(broker, &incoming, 1,
               i < 3 ? SKR_SETTLE_REQUEUE : SKR_SETTLE_ACK);
    }
    expect_nothing(broker);
    skr_broker_close(broker);
    amqp_queue_delete(world->raw, 1, bytes(queue), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

// What is held costs nothing, however often; what waited for too long went back
// once, and is kept from then on.
static void
test_a_quorum_queue_with_a_limit_drops_nothing(void **state)
{
    enum { ALL = 10, LIMIT = 1 };
    struct world *world = *state;
    char queue[80], parameters[300];
    snprintf(queue, sizeof(queue), "%s-limited", world->queue);
    snprintf(parameters, sizeof(parameters),
             "hold_timeout=0.3&prefetch_count=%d&queues[%s][arguments]"
             "[x-queue-type]=quorum&queues[%s][arguments][x-delivery-limit]=%d",
             ALL, queue, queue, LIMIT);
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    if (try_open_receiver(world, parameters, true, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    struct skr_incoming incoming[ALL];
    put_numbers(world, queue, 0, ALL);
    for (size_t i = 0; i < 5 * ALL;) {
        size_t count = receive(broker, incoming, ALL);
        for (size_t k = 0; k < count; k++)
            assert_int_equal(incoming[k].delivery_count, 0);
        settle(broker, incoming, count, SKR_SETTLE_DEFER);
        i += count;
    }
    skr_broker_close(broker);
    bool seen[ALL] = {false};
    if (try_open_receiver(world, parameters, true, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < ALL; i++) {
        assert_int_equal(receive(broker, incoming, 1), 1);
        size_t number = number_in(&incoming[0]);
        assert_true(number < ALL && !seen[number]);
        assert_int_equal(incoming[0].delivery_count, 1);
        seen[number] = true;
        // The others wait for longer than they should.
        skr_clock_sleep(-1, 500);
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    expect_nothing(broker);
    skr_broker_close(broker);
    amqp_queue_delete(world->raw, 1, bytes(queue), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static void
test_several_queues_are_consumed_at_once(void **state)
{
    struct world *world = *state;
    char parameters[200], other[80];
    snprintf(other, sizeof(other), "%s-other", world->queue);
    declare_queue(world, other, amqp_empty_table);
    snprintf(parameters, sizeof(parameters), ",%s", other);
    struct skr_broker *broker = open_receiver(world, parameters);
    put_numbers(world, world->queue, 0, 200);
    put_numbers(world, other, 200, 400);
    bool seen[400] = {false};
    for (size_t done = 0; done < 400;) {
        struct skr_incoming incoming[50];
        size_t count = receive(broker, incoming, 50);
        for (size_t i = 0; i < count; i++) {
            size_t number = number_in(&incoming[i]);
            assert_true(number < 400 && !seen[number]);
            seen[number] = true;
        }
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        done += count;
    }
    expect_nothing(broker);
    skr_broker_close(broker);
    amqp_queue_delete(world->raw, 1, bytes(other), 0, 0);
    expect_normal(amqp_get_rpc_reply(world->raw));
}

static void
test_prefetch_bounds_what_is_out_of_the_queue(void **state)
{
    static const struct {
        const char *parameters;
        uint32_t held;
    } cases[] = {{"&prefetch_count=10", 10}, {"", 20}};
    struct world *world = *state;
    put_numbers(world, world->queue, 0, 100);
    await_count(world, world->queue, 100);
    for (size_t k = 0; k < SKR_COUNT_OF(cases); k++) {
        struct skr_broker *broker = open_receiver(world, cases[k].parameters);
        struct skr_incoming incoming[4];
        size_t count = receive(broker, incoming, 4);
        await_count(world, world->queue, 100 - cases[k].held);
        settle(broker, incoming, count, SKR_SETTLE_REQUEUE);
        skr_broker_close(broker);
        await_count(world, world->queue, 100);
    }
}

static void
test_bytes_bound_what_is_held_here(void **state)
{
    enum { COUNT = 24, SIZE = 512 * 1024 };
    struct world *world = *state;
    struct skr_broker *broker =
        open_receiver(world, "&prefetch_bytes=1048576&heartbeat=1");
    char *body = calloc(1, SIZE);
    for (size_t i = 0; i < COUNT; i++) {
        body[0] = (char)i;
        put(world, world->queue, body, SIZE, NULL);
    }
    await_count(world, world->queue, COUNT);
    for (size_t done = 0; done < COUNT;) {
        struct skr_incoming incoming[COUNT];
        size_t count = receive(broker, incoming, COUNT);
        // Two fill it, and one is on its way when it is full.
        assert_in_range(count, 1, 3);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(((const char *)incoming[i].body)[0], done + i);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        done += count;
    }
    free(body);
    skr_broker_close(broker);
}

static void
test_x_death_counts_only_what_makes_sense(void **state)
{
    static const struct {
        const char *reason;
        bool is_ours;
        int64_t count;
        uint32_t expected;
    } cases[] = {
        {"rejected", true, 3, 3},
        {"rejected", true, -5, 0},
        {"rejected", true, INT64_MIN, 0},
        {"rejected", true, INT64_MAX, 1000000},
        {"rejected", false, 7, 0},
        {"expired", true, 7, 0},
    };
    struct world *world = *state;
    struct skr_broker *broker = open_receiver(world, "");
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        const char *queue = cases[i].is_ours ? world->queue : "another";
        amqp_table_entry_t death[] = {
            entry("count", (amqp_field_value_t){.kind = 'l',
                                                .value.i64 = cases[i].count}),
            entry("queue", raw_value('S', queue, strlen(queue))),
            entry("reason",
                  raw_value('S', cases[i].reason, strlen(cases[i].reason))),
        };
        amqp_field_value_t deaths[] = {
            {.kind = 'V'},
            {.kind = 'F', .value.table = {.num_entries = 3, .entries = death}}};
        amqp_table_entry_t headers[] = {
            entry("x-death",
                  (amqp_field_value_t){
                      .kind = 'A',
                      .value.array = {.num_entries = 2, .entries = deaths}})};
        const amqp_basic_properties_t properties = {
            ._flags = AMQP_BASIC_HEADERS_FLAG,
            .headers = {.num_entries = 1, .entries = headers}};
        put(world, world->queue, "x", 1, &properties);
        struct skr_incoming incoming;
        assert_int_equal(receive(broker, &incoming, 1), 1);
        assert_int_equal(incoming.retry_count, cases[i].expected);
        settle(broker, &incoming, 1, SKR_SETTLE_ACK);
    }
    skr_broker_close(broker);
}

static void
test_one_connection_does_not_publish_and_consume(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_incoming incoming;
    size_t count = 0;
    struct skr_broker *broker = open_receiver(world, "");
    make_message(world, 0);
    assert_int_equal(
        try_submit(world, broker, 0, world->exchange, "key", &error),
        SKR_INVALID);
    skr_broker_close(broker);
    broker = open_broker(world, "");
    submit_range(world, broker, 0, 1);
    collect(world, broker, 1);
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, 0, &error),
        SKR_INVALID);
    skr_broker_close(broker);
}

int
main(void)
{
    if (getenv("SKR_RABBITMQ_URL") == NULL) {
        printf("SKR_RABBITMQ_URL is not set\n");
        return 77;
    }
#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, rabbitmq_world_set_up, \
                                    rabbitmq_world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_what_is_waiting_comes_together_and_in_order),
        CASE(test_a_glance_finds_what_is_there),
        CASE(test_waiting_ends_in_time_and_by_a_stop),
        CASE(test_headers_of_every_kind_become_text),
        CASE(test_reserved_headers_are_dropped),
        CASE(test_properties_stand_in_for_headers),
        CASE(test_bodies_of_any_size_and_content_arrive_whole),
        CASE(test_a_table_that_nests_without_end_costs_nobody_anything),
        CASE(test_acks_in_any_order_settle_no_other),
        CASE(test_mixed_settlements_in_one_call_hold_each),
        CASE(test_what_was_not_settled_is_given_back),
        CASE(test_what_is_put_off_comes_again_after_all_others),
        CASE(test_what_is_put_off_goes_back_with_the_connection),
        CASE(test_a_quorum_queue_counts_its_deliveries),
        CASE(test_a_quorum_queue_with_a_limit_drops_nothing),
        CASE(test_several_queues_are_consumed_at_once),
        CASE(test_prefetch_bounds_what_is_out_of_the_queue),
        CASE(test_bytes_bound_what_is_held_here),
        CASE(test_x_death_counts_only_what_makes_sense),
        CASE(test_one_connection_does_not_publish_and_consume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
