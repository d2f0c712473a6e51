// SPDX-License-Identifier: MIT
// Publishing to a real RabbitMQ: what arrives, and what is said of the rest.
#include "broker/topology.h"
#include "rabbitmq_world.h"

static void
test_ten_thousand_messages_arrive_once_and_in_order(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    enum { COUNT = 10000, WINDOW = 1000 };
    for (size_t i = 0; i < COUNT; i += WINDOW / 2) {
        submit_range(world, broker, i, i + WINDOW / 2);
        if (i >= WINDOW / 2)
            collect(world, broker, i);
    }
    collect(world, broker, COUNT);
    expect_results(world, 0, COUNT, SKR_CONFIRMED);
    assert_int_equal(count_in(world, world->queue), COUNT);
    amqp_basic_consume(world->raw, 1, bytes(world->queue), amqp_empty_bytes, 0,
                       1, 0, amqp_empty_table);
    expect_normal(amqp_get_rpc_reply(world->raw));
    for (size_t i = 0; i < COUNT; i++) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(world->raw);
        expect_normal(amqp_consume_message(world->raw, &envelope, NULL, 0));
        assert_int_equal(envelope.message.body.len, strlen(world->bodies[i]));
        assert_memory_equal(envelope.message.body.bytes, world->bodies[i],
                            envelope.message.body.len);
        amqp_destroy_envelope(&envelope);
    }
    skr_broker_close(broker);
}

static void
expect_bytes(amqp_bytes_t found, const char *expected)
{
    assert_int_equal(found.len, strlen(expected));
    assert_memory_equal(found.bytes, expected, found.len);
}

static void
test_the_wire_carries_exactly_what_was_given(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    const struct skr_header headers[] = {
        {"type", "order.placed"},
        {"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp",
         "[{\"messageId\":\"0197\"}]"},
        {"empty", ""},
        {"special", "\x01\t\n\"'\\ \xc3\xa6\xe2\x82\xac\xf0\x9f\x90\x87"},
        {"not utf-8", "\xff\xfe"},
        {"type", "twice"},
        {"number", "42"},
    };
    make_message(world, 0);
    world->messages[0].headers = headers;
    world->messages[0].header_count = SKR_COUNT_OF(headers);
    world->messages[0].content_type = "application/cloudevents+json";
    uint64_t before = (uint64_t)(skr_clock_wall_us() / 1000000);
    submit(world, broker, 0, world->exchange, "key");
    make_message(world, 1);  // neither headers nor a body
    world->messages[1].body = NULL;
    world->messages[1].body_size = 0;
    submit(world, broker, 1, world->exchange, "key");
    collect(world, broker, 2);
    expect_results(world, 0, 2, SKR_CONFIRMED);

    amqp_message_t message;
    char id[SKR_ID_TEXT_SIZE];
    take(world, world->queue, &message);
    const amqp_basic_properties_t *properties = &message.properties;
    expect_bytes(message.body, world->bodies[0]);
    expect_bytes(properties->content_type, "application/cloudevents+json");
    expect_bytes(properties->type, "order.placed");
    skr_id_format(world->messages[0].id, id);
    expect_bytes(properties->message_id, id);
    assert_int_equal(properties->delivery_mode, AMQP_DELIVERY_PERSISTENT);
    assert_in_range(properties->timestamp, before, before + 60);
    assert_int_equal(properties->_flags,
                     AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG |
                         AMQP_BASIC_DELIVERY_MODE_FLAG |
                         AMQP_BASIC_MESSAGE_ID_FLAG |
                         AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG);
    assert_int_equal(properties->headers.num_entries, SKR_COUNT_OF(headers));
    for (size_t i = 0; i < SKR_COUNT_OF(headers); i++) {
        const amqp_table_entry_t *entry = &properties->headers.entries[i];
        expect_bytes(entry->key, headers[i].name);
        assert_int_equal(entry->value.kind, AMQP_FIELD_KIND_UTF8);
        expect_bytes(entry->value.value.bytes, headers[i].value);
    }
    amqp_destroy_message(&message);

    take(world, world->queue, &message);
    assert_int_equal(message.body.len, 0);
    assert_int_equal(message.properties.headers.num_entries, 0);
    expect_bytes(message.properties.content_type, "application/json");
    amqp_destroy_message(&message);
    skr_broker_close(broker);
}

static void
test_a_body_of_many_frames_arrives_whole(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    size_t sizes[] = {131064, 131065, 5 * 1024 * 1024 + 1};
    for (size_t i = 0; i < SKR_COUNT_OF(sizes); i++) {
        char *body = malloc(sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            body[k] = (char)(k * 31 + k / 251);
        make_message(world, i);
        world->messages[i].body = body;
        world->messages[i].body_size = sizes[i];
        submit(world, broker, i, world->exchange, "key");
    }
    collect(world, broker, SKR_COUNT_OF(sizes));
    for (size_t i = 0; i < SKR_COUNT_OF(sizes); i++) {
        amqp_message_t message;
        take(world, world->queue, &message);
        assert_int_equal(message.body.len, sizes[i]);
        assert_memory_equal(message.body.bytes, world->messages[i].body,
                            sizes[i]);
        amqp_destroy_message(&message);
        union {
            const void *given;
            void *owned;
        } body = {.given = world->messages[i].body};
        free(body.owned);
    }
    skr_broker_close(broker);
}

static void
test_an_unroutable_message_is_refused_for_good_and_named(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    // Every third one; one id stands for three messages, to two places.
    for (size_t i = 0; i < 300; i++) {
        make_message(world, i);
        if (i % 3 != 0)
            world->messages[i].id = world->messages[i - 1].id;
        submit(world, broker, i, world->exchange,
               i % 3 == 1 ? "nowhere" : "key");
    }
    collect(world, broker, 300);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(world->results[i],
                         i % 3 == 1 ? SKR_UNROUTABLE : SKR_CONFIRMED);
    const struct skr_error *reason = &world->reasons[1];
    assert_non_null(strstr(reason->text, world->exchange));
    assert_non_null(strstr(reason->text, "nowhere"));
    assert_string_equal(reason->native, "312");
    assert_int_equal(count_in(world, world->queue), 200);
    skr_broker_close(broker);
}

static void
test_a_missing_exchange_closes_its_route_and_no_other(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    char missing[80];
    snprintf(missing, sizeof(missing), "%s.missing", world->exchange);
    for (size_t i = 0; i < 200; i++) {
        make_message(world, i);
        submit(world, broker, i, i % 2 == 0 ? world->exchange : missing, "key");
    }
    collect(world, broker, 200);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(world->results[i],
                         i % 2 == 0 ? SKR_CONFIRMED : SKR_ROUTE_UNAVAILABLE);
    assert_non_null(strstr(world->reasons[1].text, missing));
    assert_string_equal(world->reasons[1].native, "404");
    assert_int_equal(world->reasons[1].code, SKR_MISSING);
    // No channel was spent on it: nothing went twice.
    assert_int_equal(count_events(world, "amqp.channel_closed"), 0);
    assert_int_equal(count_in(world, world->queue), 100);

    // Once it is there, messages pass, without a new connection.
    declare_exchange(world, missing);
    bind_queue(world, missing, world->queue, "key");
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    do {
        world->result_count = 0;
        make_message(world, 0);
        submit(world, broker, 0, missing, "key");
        collect(world, broker, 1);
    } while (world->results[0] == SKR_ROUTE_UNAVAILABLE &&
             skr_clock_ms() < end);
    assert_int_equal(world->results[0], SKR_CONFIRMED);
    delete_exchange(world, missing);
    skr_broker_close(broker);
}

static void
test_an_exchange_deleted_in_mid_flight_costs_no_other_message(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    char other[80];
    snprintf(other, sizeof(other), "%s.other", world->exchange);
    declare_exchange(world, other);
    bind_queue(world, other, world->queue, "key");
    make_message(world, 0);
    submit(world, broker, 0, other, "key");
    collect(world, broker, 1);
    delete_exchange(world, other);  // the driver believes that it is there
    for (size_t i = 1; i < 301; i++) {
        make_message(world, i);
        submit(world, broker, i, i % 3 == 0 ? other : world->exchange, "key");
    }
    collect(world, broker, 301);
    for (size_t i = 1; i < 301; i++)
        assert_int_equal(world->results[i],
                         i % 3 == 0 ? SKR_ROUTE_UNAVAILABLE : SKR_CONFIRMED);
    assert_int_equal(count_events(world, "amqp.channel_closed"), 1);
    skr_broker_close(broker);
}

static void
test_a_full_queue_refuses_for_now(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    char full[80];
    snprintf(full, sizeof(full), "%s-full", world->queue);
    amqp_table_entry_t arguments[] = {
        {.key = bytes("x-max-length"),
         .value = {.kind = AMQP_FIELD_KIND_I32, .value.i32 = 1}},
        {.key = bytes("x-overflow"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8,
                   .value.bytes = bytes("reject-publish")}},
    };
    declare_queue(world, full,
                  (amqp_table_t){.num_entries = 2, .entries = arguments});
    bind_queue(world, world->exchange, full, "full");
    for (size_t i = 0; i < 20; i++) {
        make_message(world, i);
        submit(world, broker, i, world->exchange, i % 2 == 0 ? "key" : "full");
    }
    collect(world, broker, 20);
    size_t refused = 0;
    for (size_t i = 0; i < 20; i++) {
        if (i % 2 == 0)
            assert_int_equal(world->results[i], SKR_CONFIRMED);
        if (world->results[i] != SKR_REFUSED_FOR_NOW)
            continue;
        refused++;
        assert_non_null(strstr(world->reasons[i].text, world->exchange));
        assert_non_null(strstr(world->reasons[i].text, "full"));
    }
    assert_true(refused >= 8);
    amqp_queue_delete(world->raw, 1, bytes(full), 0, 0);
    skr_broker_close(broker);
}

// A CC header must be a list: as a text it closes the channel.
static void
test_a_closed_channel_costs_only_the_message_that_closed_it(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    const struct skr_header poison = {"CC", "not a list"};
    for (size_t i = 0; i < 500; i++) {
        make_message(world, i);
        if (i == 100 || i == 101 || i == 499) {
            world->messages[i].headers = &poison;
            world->messages[i].header_count = 1;
        }
        submit(world, broker, i, world->exchange, i == 50 ? "nowhere" : "key");
    }
    collect(world, broker, 500);
    for (size_t i = 0; i < 500; i++) {
        bool is_guilty = i == 100 || i == 101 || i == 499;
        assert_int_equal(world->results[i], i == 50     ? SKR_UNROUTABLE
                                            : is_guilty ? SKR_REFUSED_FOR_GOOD
                                                        : SKR_CONFIRMED);
    }
    assert_string_equal(world->reasons[50].native, "312");
    assert_string_equal(world->reasons[100].native, "406");
    assert_string_equal(world->reasons[499].native, "406");
    // And it goes on as before.
    submit_range(world, broker, 500, 1500);
    collect(world, broker, 1500);
    expect_results(world, 500, 1500, SKR_CONFIRMED);
    skr_broker_close(broker);
}

static void
test_what_amqp_cannot_carry_is_refused_before_it_is_sent(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    enum { LONG = 131072 };
    char *long_text = malloc(LONG + 1);
    memset(long_text, 'a', LONG);
    long_text[LONG] = '\0';
    char name[257];
    memset(name, 'n', 256);
    name[256] = '\0';
    const struct {
        const char *exchange, *key, *content_type;
        struct skr_header header;
        const char *says;
    } cases[] = {
        {name, "key", NULL, {"a", "b"}, "exchange"},
        {world->exchange, name, NULL, {"a", "b"}, "routing key"},
        {world->exchange, "key", name, {"a", "b"}, "content type"},
        {world->exchange, "key", NULL, {name, "b"}, "header name"},
        {world->exchange, "key", NULL, {"a", long_text}, "headers"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        make_message(world, i);
        world->messages[i].content_type = cases[i].content_type;
        world->messages[i].headers = &cases[i].header;
        world->messages[i].header_count = 1;
        assert_int_equal(try_submit(world, broker, i, cases[i].exchange,
                                    cases[i].key, &error),
                         SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        if (strstr(error.text, cases[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", error.text, cases[i].says);
    }
    // The largest headers that still fit.
    size_t around = strlen("order.placed") + strlen("application/json") + 100;
    struct skr_header header = {"a", long_text + around};
    make_message(world, 5);
    world->messages[5].headers = &header;
    world->messages[5].header_count = 1;
    for (; try_submit(world, broker, 5, world->exchange, "key", NULL) == SKR_OK;
         header.value--)
        collect(world, broker, world->result_count + 1);
    assert_true(world->result_count > 0);
    assert_int_equal(world->results[5], -1);
    assert_int_equal(count_in(world, world->queue), world->result_count);
    submit_range(world, broker, 6, 7);
    collect(world, broker, world->result_count + 1);
    assert_int_equal(world->results[6], SKR_CONFIRMED);
    free(long_text);
    skr_broker_close(broker);
}

static void
test_a_message_over_the_servers_limit_is_refused_alone(void **state)
{
    struct world *world = *state;
    control("eval", "application:set_env(rabbit, max_message_size, 100000).",
            NULL);
    struct skr_broker *broker = open_broker(world, "");
    char *body = calloc(1, 300000);
    for (size_t i = 0; i < 100; i++) {
        make_message(world, i);
        if (i == 40) {
            world->messages[i].body = body;
            world->messages[i].body_size = 300000;
        }
        submit(world, broker, i, world->exchange, "key");
    }
    collect(world, broker, 100);
    control("eval", "application:set_env(rabbit, max_message_size, 134217728).",
            NULL);
    expect_results(world, 0, 40, SKR_CONFIRMED);
    expect_results(world, 40, 41, SKR_REFUSED_FOR_GOOD);
    expect_results(world, 41, 100, SKR_CONFIRMED);
    assert_non_null(strstr(world->reasons[40].text, "300000"));
    free(body);
    skr_broker_close(broker);
}

static void
test_the_default_exchange_needs_no_asking(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    make_message(world, 0);
    make_message(world, 1);
    submit(world, broker, 0, "", world->queue);
    submit(world, broker, 1, "", "no such queue");
    collect(world, broker, 2);
    assert_int_equal(world->results[0], SKR_CONFIRMED);
    assert_int_equal(world->results[1], SKR_UNROUTABLE);
    skr_broker_close(broker);
}

static void
test_a_declaration_that_differs_is_told_and_left_alone(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    struct skr_error error = {0};
    char name[80];
    snprintf(name, sizeof(name), "%s.made", world->exchange);
    const struct skr_amqp_argument arguments[] = {
        {.name = "x-message-ttl", .kind = SKR_AMQP_NUMBER, .number = 60000},
        {.name = "x-dead-letter-exchange",
         .kind = SKR_AMQP_TEXT,
         .text = "dead"},
        {.name = "x-single-active-consumer",
         .kind = SKR_AMQP_BOOLEAN,
         .number = 1},
    };
    const struct skr_amqp_declaration good[] = {
        {.object = SKR_AMQP_EXCHANGE,
         .name = name,
         .type = "topic",
         .durable = true},
        {.object = SKR_AMQP_QUEUE,
         .name = name,
         .durable = true,
         .arguments = arguments,
         .argument_count = SKR_COUNT_OF(arguments)},
        {.object = SKR_AMQP_BINDING,
         .exchange = name,
         .queue = name,
         .binding_key = "order.#"},
    };
    struct skr_amqp_declaration other = good[0];
    other.type = "fanout";
    struct skr_amqp_declaration missing = good[2];
    missing.queue = "no such queue";
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < SKR_COUNT_OF(good); i++)
            if (broker->ops->topology->declare(broker, &good[i], &error) !=
                SKR_OK)
                fail_msg("%s", error.text);
        assert_int_equal(broker->ops->topology->declare(broker, &other, &error),
                         SKR_REFUSED);
        assert_string_equal(error.native, "406");
        assert_non_null(strstr(error.text, name));
        assert_int_equal(
            broker->ops->topology->declare(broker, &missing, &error),
            SKR_MISSING);
    }
    make_message(world, 0);
    submit(world, broker, 0, name, "order.placed");
    collect(world, broker, 1);
    assert_int_equal(world->results[0], SKR_CONFIRMED);
    amqp_queue_delete(world->raw, 1, bytes(name), 0, 0);
    amqp_exchange_delete(world->raw, 1, bytes(name), 0);
    skr_broker_close(broker);
}

static void
test_an_exchange_is_declared_only_when_the_dsn_says_so(void **state)
{
    struct world *world = *state;
    char parameters[256];
    static const struct {
        const char *format;
        enum skr_publish_result result;
    } cases[] = {
        {"exchange[name]=%s&exchange[type]=topic", SKR_ROUTE_UNAVAILABLE},
        {"exchange[name]=%s&auto_setup=true", SKR_ROUTE_UNAVAILABLE},
        // It is there now, with no queue.
        {"exchange[name]=%s&exchange%%5Btype%%5D=topic&auto_setup=true",
         SKR_UNROUTABLE},
    };
    char name[80];
    snprintf(name, sizeof(name), "%s.auto", world->exchange);
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_text text = {0};
        // A format that is not a literal, without giving one to printf().
        const char *at = strstr(cases[i].format, "%s");
        skr_text_add(&text, cases[i].format, (size_t)(at - cases[i].format));
        skr_text_add_string(&text, name);
        for (at += 2; *at != '\0'; at++) {
            skr_text_add(&text, at, 1);
            at += at[0] == '%' && at[1] == '%';
        }
        snprintf(parameters, sizeof(parameters), "%s", text.bytes);
        skr_text_fini(&text);
        struct skr_broker *broker = open_broker(world, parameters);
        make_message(world, i);
        // Without a route it goes to the transport's exchange.
        world->results[i] = -1;
        assert_int_equal(
            broker->ops->submit(broker, &world->messages[i], NULL, i, NULL),
            SKR_OK);
        collect(world, broker, i + 1);
        assert_int_equal(world->results[i], cases[i].result);
        skr_broker_close(broker);
    }
    delete_exchange(world, name);
}

// Results in small helpings, and a close while messages are on their way.
static void
test_closing_with_messages_in_flight_is_safe(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    submit_range(world, broker, 0, 1000);
    struct skr_error error = {0};
    assert_int_equal(collect_some(world, broker, 100, &error), SKR_OK);
    skr_broker_close(broker);
    broker = open_broker(world, "");
    skr_broker_close(broker);
}

int
main(void)
{
#define CASE(name)                                               \
    cmocka_unit_test_setup_teardown(name, rabbitmq_world_set_up, \
                                    rabbitmq_world_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_ten_thousand_messages_arrive_once_and_in_order),
        CASE(test_the_wire_carries_exactly_what_was_given),
        CASE(test_a_body_of_many_frames_arrives_whole),
        CASE(test_an_unroutable_message_is_refused_for_good_and_named),
        CASE(test_a_missing_exchange_closes_its_route_and_no_other),
        CASE(test_an_exchange_deleted_in_mid_flight_costs_no_other_message),
        CASE(test_a_full_queue_refuses_for_now),
        CASE(test_a_closed_channel_costs_only_the_message_that_closed_it),
        CASE(test_what_amqp_cannot_carry_is_refused_before_it_is_sent),
        CASE(test_a_message_over_the_servers_limit_is_refused_alone),
        CASE(test_the_default_exchange_needs_no_asking),
        CASE(test_a_declaration_that_differs_is_told_and_left_alone),
        CASE(test_an_exchange_is_declared_only_when_the_dsn_says_so),
        CASE(test_closing_with_messages_in_flight_is_safe),
    };
    if (getenv("SKR_RABBITMQ_URL") == NULL) {
        puts("SKR_RABBITMQ_URL is not set");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
