// SPDX-License-Identifier: MIT
// Who decides where a message goes.

#include "base/arena.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct skr_arena arena;

static const struct skr_route_sender unnamed[] = {{.name = "amqp"}};
static const struct skr_route_sender named[] = {
    {.name = "amqp", .exchange = "transport"},
    {.name = "other", .exchange = "elsewhere"},
    {.name = "queue", .is_one_queue = true},
};

static int
reset(void **state)
{
    (void)state;
    skr_arena_fini(&arena);
    return 0;
}

static void
test_patterns_match_word_by_word(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool want;
    } cases[] = {
        {"order.placed", "order.placed", true},
        {"order.placed", "order.placed.late", false},
        {"order.*", "order.placed", true},
        {"order.*", "order.item.added", false},
        {"order.*", "order", false},
        {"*.placed", "order.placed", true},
        {"order.#", "order", true},
        {"order.#", "order.item.added", true},
        {"order.#", "orders.item", false},
        {"#", "anything.at.all", true},
        {"#.added", "order.item.added", true},
        {"#.added", "added", true},
        {"#.added", "order.item.removed", false},
        {"a.#.d", "a.b.c.d", true},
        {"a.#.d", "a.d", true},
        {"ord*", "order", false},
        {"", "order.placed", false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        if (skr_route_matches(cases[i].pattern, cases[i].name) != cases[i].want)
            fail_msg("%s and %s", cases[i].pattern, cases[i].name);
}

static struct skr_envelope
envelope_of(const char *json)
{
    struct skr_headers headers = {0};
    struct skr_envelope envelope = {0};
    assert_int_equal(
        skr_headers_parse(&arena, json, strlen(json), &headers, NULL), SKR_OK);
    assert_int_equal(
        skr_envelope_read(&arena, &headers, NULL, NULL, &envelope, NULL),
        SKR_OK);
    assert_int_equal(skr_envelope_to_wire(&arena, NULL, NULL, &envelope, NULL),
                     SKR_OK);
    return envelope;
}

static void
test_the_first_that_says_something_wins(void **state)
{
    (void)state;
    static const struct skr_route_rule rules[] = {
        {.pattern = "order.*", .exchange = "by-pattern", .routing_key = "p"},
        {.pattern = "order.paid", .exchange = "by-name"},
    };
    const struct skr_routes plain = {.senders = unnamed};
    const struct skr_routes ruled = {
        .rules = rules, .rule_count = 2, .senders = unnamed};
    const struct skr_routes all = {
        .rules = rules, .rule_count = 2, .senders = named};
    static const struct skr_route_sender with_key[] = {
        {.exchange = "transport", .routing_key = "default"}};
    const struct skr_routes keyed = {
        .rules = rules, .rule_count = 2, .senders = with_key};
    const struct {
        const struct skr_routes *routes;
        const char *json, *exchange, *key;
    } cases[] = {
        {&plain, "{\"type\":\"order.placed\"}", "order.placed", "order.placed"},
        {&plain, "{\"type\":\"shop.order.placed\"}", "shop.order",
         "shop.order.placed"},
        {&ruled, "{\"type\":\"order.placed\"}", "by-pattern", "p"},
        {&ruled, "{\"type\":\"order.paid\"}", "by-name", "order.paid"},
        {&all, "{\"type\":\"user.added\"}", "transport", "user.added"},
        {&all,
         "{\"type\":\"order.placed\",\"X-Skirnir-Exchange\":\"own\","
         "\"X-Skirnir-Routing-Key\":\"k\"}",
         "own", "k"},
        {&all, "{\"type\":\"user.added\",\"X-Skirnir-Type-Exchange\":\"t\"}",
         "t", "user.added"},
        {&all, "{\"type\":\"order.placed\",\"X-Skirnir-Type-Exchange\":\"t\"}",
         "by-pattern", "p"},
        {&all, "{\"type\":\"App\\\\Event\"}", "transport", "App\\Event"},
        {&keyed, "{\"type\":\"user.added\"}", "transport", "default"},
        {&keyed, "{\"type\":\"order.placed\"}", "by-pattern", "p"},
        {&keyed, "{\"type\":\"user.added\",\"X-Skirnir-Routing-Key\":\"k\"}",
         "transport", "k"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_envelope envelope = envelope_of(cases[i].json);
        struct skr_route route = {0};
        assert_int_equal(
            skr_route_find(cases[i].routes, &arena, &envelope, &route, NULL),
            SKR_OK);
        assert_string_equal(route.exchange, cases[i].exchange);
        assert_string_equal(route.routing_key, cases[i].key);
        for (size_t h = 0; h < envelope.message.header_count; h++)
            assert_false(skr_text_starts_with(envelope.message.headers[h].name,
                                              "X-Skirnir-"));
    }
}

static void
test_a_class_without_a_name_needs_an_exchange(void **state)
{
    (void)state;
    const struct skr_routes plain = {.senders = unnamed};
    struct skr_envelope envelope = envelope_of("{\"type\":\"App\\\\Event\"}");
    struct skr_route route;
    struct skr_error error = {0};
    assert_int_equal(skr_route_find(&plain, &arena, &envelope, &route, &error),
                     SKR_REFUSED);
    assert_non_null(strstr(error.text, "message_types"));
}

static void
test_a_rule_adds_its_headers(void **state)
{
    (void)state;
    static const struct skr_header added[] = {{"tenant", "a"}};
    static const struct skr_route_rule rules[] = {
        {.pattern = "#", .headers = added, .header_count = 1}};
    const struct skr_routes routes = {
        .rules = rules, .rule_count = 1, .senders = unnamed};
    struct skr_envelope envelope = envelope_of("{\"type\":\"a.b\"}");
    struct skr_route route;
    assert_int_equal(skr_route_find(&routes, &arena, &envelope, &route, NULL),
                     SKR_OK);
    assert_string_equal(skr_headers_find(envelope.message.headers,
                                         envelope.message.header_count,
                                         "tenant"),
                        "a");
}

static void
test_a_rule_may_name_another_sender(void **state)
{
    (void)state;
    static const struct skr_route_rule rules[] = {
        {.pattern = "order.*", .sender = 1, .unroutable = SKR_UNROUTABLE_WAIT},
        {.pattern = "audit.#", .sender = 2},
    };
    const struct skr_routes routes = {
        .rules = rules, .rule_count = 2, .senders = named};
    static const struct {
        const char *json, *exchange, *key;
        size_t sender;
        enum skr_unroutable unroutable;
    } cases[] = {
        {"{\"type\":\"user.added\"}", "transport", "user.added", 0,
         SKR_UNROUTABLE_UNSAID},
        {"{\"type\":\"order.placed\"}", "elsewhere", "order.placed", 1,
         SKR_UNROUTABLE_WAIT},
        {"{\"type\":\"audit.seen\"}", "", "", 2, SKR_UNROUTABLE_UNSAID},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_envelope envelope = envelope_of(cases[i].json);
        struct skr_route route = {0};
        assert_int_equal(
            skr_route_find(&routes, &arena, &envelope, &route, NULL), SKR_OK);
        assert_string_equal(route.exchange, cases[i].exchange);
        assert_string_equal(route.routing_key, cases[i].key);
        assert_int_equal(route.sender, cases[i].sender);
        assert_int_equal(route.unroutable, cases[i].unroutable);
    }
}

static void
test_a_record_has_a_topic_and_a_key(void **state)
{
    (void)state;
    static const struct skr_route_rule rules[] = {
        {.pattern = "audit.#", .topic = "audit", .key = "one"}};
    static const struct skr_route_sender by_name[] = {
        {.name = "kafka", .topics = SKR_TOPICS_NAME}};
    static const struct skr_route_sender by_words[] = {
        {.name = "kafka", .topics = SKR_TOPICS_TWO_WORDS}};
    static const struct skr_route_sender fixed[] = {
        {.name = "kafka", .topics = SKR_TOPICS_NAME, .topic = "all"}};
    static const struct {
        const struct skr_route_sender *senders;
        const char *json, *partition_key, *topic, *key, *partition;
    } cases[] = {
        {by_name, "{\"type\":\"shop.order.placed\"}", "c-1",
         "shop.order.placed", "c-1", "c-1"},
        {by_words, "{\"type\":\"shop.order.placed\"}", "c-1", "shop.order",
         "c-1", "c-1"},
        {fixed, "{\"type\":\"shop.order.placed\"}", "c-1", "all", "c-1", "c-1"},
        {fixed, "{\"type\":\"App\\\\Event\"}", "c-1", "all", "c-1", "c-1"},
        {fixed, "{\"type\":\"audit.seen\"}", "c-1", "audit", "one", "c-1"},
        {by_name,
         "{\"type\":\"audit.seen\",\"X-Skirnir-Topic\":\"own\","
         "\"X-Skirnir-Key\":\"k\"}",
         NULL, "own", "k", "k"},
        {by_name, "{\"type\":\"a.b\"}", "", "a.b",
         "00000000-0000-0000-0000-000000000000",
         "00000000-0000-0000-0000-000000000000"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        const struct skr_routes routes = {
            .rules = rules, .rule_count = 1, .senders = cases[i].senders};
        struct skr_envelope envelope = envelope_of(cases[i].json);
        struct skr_route route = {0};
        envelope.message.id = (struct skr_id){{0}};
        envelope.message.partition_key = cases[i].partition_key;
        assert_int_equal(
            skr_route_find(&routes, &arena, &envelope, &route, NULL), SKR_OK);
        assert_string_equal(route.topic, cases[i].topic);
        assert_string_equal(route.exchange, cases[i].topic);
        assert_string_equal(route.key, cases[i].key);
        assert_string_equal(route.partition_key, cases[i].partition);
        for (size_t h = 0; h < envelope.message.header_count; h++)
            assert_false(skr_text_starts_with(envelope.message.headers[h].name,
                                              "X-Skirnir-"));
    }
    const struct skr_routes plain = {.senders = by_name};
    struct skr_envelope envelope = envelope_of("{\"type\":\"App\\\\Event\"}");
    struct skr_route route;
    struct skr_error error = {0};
    assert_int_equal(skr_route_find(&plain, &arena, &envelope, &route, &error),
                     SKR_REFUSED);
    assert_non_null(strstr(error.text, "has no topic"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_match_word_by_word),
        cmocka_unit_test_teardown(test_the_first_that_says_something_wins,
                                  reset),
        cmocka_unit_test_teardown(test_a_class_without_a_name_needs_an_exchange,
                                  reset),
        cmocka_unit_test_teardown(test_a_rule_adds_its_headers, reset),
        cmocka_unit_test_teardown(test_a_rule_may_name_another_sender, reset),
        cmocka_unit_test_teardown(test_a_record_has_a_topic_and_a_key, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
