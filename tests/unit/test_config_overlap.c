// SPDX-License-Identifier: MIT
// Transports that get the same messages need a deduplication table each.
#include "config_helpers.h"

#include "app/drivers.h"

#define HANDLER "handlers: {order.placed: {sql: 'DELETE FROM a'}}\n"
#define BILLING(options) \
    "transports:\n  billing: {dsn: 'amqp://h', options: {" options "}}\n"
#define AUDIT(options) "  audit: {dsn: 'amqp://h', options: {" options "}}\n"
#define FROM(type) "exchange: {name: orders, type: " type "}, "
#define QUEUE(name, key) "queues: {" name ": {binding_keys: ['" key "']}}"
#define PAIR(type, one, other)              \
    BILLING(FROM(type) QUEUE("bills", one)) \
    AUDIT(FROM(type) QUEUE("log", other)) HANDLER

#define SEEN(first, second)                                                  \
    "transports:\n"                                                          \
    "  billing: {dsn: 'amqp://h', deduplication: {table_name: " first        \
    "}, options: {" FROM("fanout") QUEUE(                                    \
        "bills",                                                             \
        "") "}}\n"                                                           \
            "  audit: {dsn: 'amqp://h', deduplication: {table_name: " second \
            "}, options: {" FROM("fanout") QUEUE("log", "") "}}\n" HANDLER

#define FORWARDING(first, second)                                              \
    "transports:\n"                                                            \
    "  billing: {dsn: 'amqp://h', forward_to: " first                          \
    ", options: {" FROM("fanout")                                              \
        QUEUE("bills",                                                         \
              "") "}}\n"                                                       \
                  "  audit: {dsn: 'amqp://h', "                                \
                  "forward_to: " second ", options: {" FROM("fanout")          \
                      QUEUE("log", "") "}}\n"                                  \
                                       "  a: queue://default?queue_name=a\n  " \
                                       "b: queue://default?queue_name=b\n"

static const char *const refused[] = {
    PAIR("fanout", "a", "b"),
    PAIR("direct", "order.placed", "order.placed"),
    PAIR("topic", "order.placed", "order.placed"),
    PAIR("topic", "order.*", "*.placed"),
    PAIR("topic", "#", "order.placed"),
    PAIR("topic", "#", ""),
    PAIR("topic", "order.#", "order"),
    PAIR("topic", "order.#.late", "#.paid.*"),
    PAIR("topic", "#.a.#.b", "b.#.a.#"),
    // Neither names a type or a key: all of it goes to both.
    BILLING("exchange: {name: orders}, queues: {bills: ~}")
        AUDIT("exchange: {name: orders}, queues: {log: ~}") HANDLER,
    // One of several queues, and bindings that stand in the topology.
    BILLING("queues: {other: ~, bills: ~}") AUDIT("queues: {log: ~}") HANDLER
    "message_broker_amqp:\n  topology:\n"
    "    exchanges: {orders: {type: topic}}\n"
    "    bindings:\n"
    "      - {exchange: orders, queue: bills, binding_key: 'order.#'}\n"
    "      - {exchange: orders, queue: log, binding_key: '#'}\n",
    // Where each of them forwards to, the other's messages are not.
    FORWARDING("a", "b"),
    // A table that both have for themselves, however they spell it.
    SEEN("seen", "seen"),
    SEEN("seen", "Seen"),
};

static const char *const allowed[] = {
    PAIR("direct", "order.placed", "order.paid"),
    PAIR("direct", "#", "order.paid"),
    PAIR("topic", "order.*", "order"),
    PAIR("topic", "order.*", "order.placed.late"),
    PAIR("topic", "order.#", "bill.#"),
    PAIR("topic", "*", ""),
    PAIR("topic", "#.late", "#.early"),
    // What the headers say is not known here.
    PAIR("headers", "", ""),
    // The server may know it as a topic.
    BILLING("exchange: {name: orders}, " QUEUE("bills", "a"))
        AUDIT("exchange: {name: orders}, " QUEUE("log", "b")) HANDLER,
    // One queue gives a message to one of them.
    BILLING(FROM("fanout") QUEUE("bills", ""))
        AUDIT(FROM("fanout") QUEUE("bills", "")) HANDLER,
    BILLING(FROM("fanout") "queues: {bills: ~, log: ~}") HANDLER,
    // Other exchanges, other servers, other virtual hosts.
    BILLING(FROM("fanout") QUEUE("bills", ""))
        AUDIT("exchange: {name: b, type: fanout}, " QUEUE("log", "")) HANDLER,
    BILLING(FROM("fanout") QUEUE(
        "bills", "")) "  audit: {dsn: 'amqp://g', options: {" FROM("fanout")
        QUEUE("log", "") "}}\n" HANDLER,
    BILLING(FROM("fanout") QUEUE(
        "bills", "")) "  audit: {dsn: 'amqp://h/v', options: {" FROM("fanout")
        QUEUE("log", "") "}}\n" HANDLER,
    // Queues that others fill: Symfony's default exchange is not theirs.
    BILLING("queues: {bills: ~}") AUDIT("queues: {log: ~}") HANDLER,
    // Nothing is handled here.
    BILLING(FROM("fanout") QUEUE("bills", ""))
        AUDIT(FROM("fanout") QUEUE("log", "")),
    // One queue holds a message once, whichever of them brought it.
    FORWARDING("a", "a"),
    FORWARDING("a", "a") HANDLER,
    // A table of its own.
    BILLING(FROM("fanout") QUEUE(
        "bills", "")) "  audit: {dsn: 'amqp://h', deduplication: {table_name: "
                      "seen}, options: {" FROM("fanout")
                          QUEUE("log", "") "}}\n" HANDLER,
    // It may be there to be published to.
    BILLING(FROM("fanout") QUEUE("bills", "")) AUDIT(FROM("fanout") QUEUE(
        "log",
        "")) "  outbox: {dsn: 'doctrine://default', relay_to: audit}\n" HANDLER,
    BILLING(FROM("fanout") QUEUE("bills", ""))
        AUDIT(FROM("fanout") QUEUE("log", "")) HANDLER
    "message_broker_amqp: {routing: {order.placed: {sender: billing}}}\n",
};

static void
test_an_overlap_that_the_file_shows_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(refused); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error = {0};
        if (parse(refused[i], &reports, &config, &error) == SKR_OK)
            fail_msg("accepted:\n%s", refused[i]);
        // Both transports, both queues, and the key that cures it.
        static const char *const words[] = {
            "3: transports.audit: its queue 'log'",
            "exchange 'orders'",
            "'bills' of the transport 'billing'",
            "transports.audit.deduplication.table_name",
        };
        for (size_t k = 0; k < SKR_COUNT_OF(words); k++)
            if (strstr(reports.bytes, words[k]) == NULL)
                fail_msg("no %s in: %s", words[k], reports.bytes);
        assert_int_equal(error.code, SKR_INVALID);
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

#define KAFKA(one, other)                                       \
    "transports:\n  billing: {dsn: 'kafka://h', options: {" one \
    "}}\n  audit: {dsn: 'kafka://h', options: {" other "}}\n"

static void
test_groups_of_one_topic_are_refused(void **state)
{
    (void)state;
    if (skr_driver_find_broker("kafka") == NULL)
        return;
    static const char *const files[] = {
        KAFKA("topics: [orders], group: bills", "topics: orders, group: log")
            HANDLER,
        KAFKA("topics: [a, orders], group: bills",
              "topics: [b, orders], group: log") HANDLER,
        // Published to, and consumed all the same.
        KAFKA("topics: [orders], group: bills",
              "topics: orders, group: log") "  outbox: {dsn: "
                                            "'doctrine://default', relay_to: "
                                            "audit}\n" HANDLER,
    };
    for (size_t i = 0; i < SKR_COUNT_OF(files); i++) {
        struct skr_text reports = {0};
        struct skr_config *config = NULL;
        struct skr_error error = {0};
        if (parse(files[i], &reports, &config, &error) == SKR_OK)
            fail_msg("accepted:\n%s", files[i]);
        assert_non_null(strstr(reports.bytes,
                               "3: transports.audit: its group 'log' gets the "
                               "same messages of the topic 'orders' as the "
                               "group 'bills' of the transport 'billing'"));
        assert_non_null(
            strstr(reports.bytes, "transports.audit.deduplication.table_name"));
        skr_text_fini(&reports);
        skr_config_free(config);
    }
}

static void
test_groups_that_do_not_meet_are_allowed(void **state)
{
    (void)state;
    static const char *const files[] = {
        // One group shares its messages.
        KAFKA("topics: [orders], group: bills",
              "topics: [orders], group: bills") HANDLER,
        KAFKA("topics: [orders], group: bills", "topics: [bills], group: log")
            HANDLER,
        KAFKA("topics: [orders], group: bills", "topic: orders") HANDLER,
        KAFKA("topics: [orders], group: bills", "topics: [orders], group: log"),
        "transports:\n"
        "  billing: {dsn: 'kafka://h/orders', options: {group: bills}}\n"
        "  audit: {dsn: 'kafka://g/orders', options: {group: log}}\n" HANDLER,
        "transports:\n"
        "  billing: {dsn: 'kafka://h/orders', options: {group: bills}}\n"
        "  audit: {dsn: 'kafka://h/orders', options: {group: log}, "
        "deduplication: {table_name: seen}}\n" HANDLER,
    };
    for (size_t i = 0; i < SKR_COUNT_OF(files); i++)
        skr_config_free(parse_clean(files[i]));
}

static void
test_what_is_no_overlap_for_sure_is_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(allowed); i++)
        skr_config_free(parse_clean(allowed[i]));
}

// The queue that one forwards to is handled beside the other.
static void
test_a_queue_that_is_forwarded_to_is_looked_at(void **state)
{
    (void)state;
    struct skr_text reports = {0};
    struct skr_config *config = NULL;
    struct skr_error error = {0};
    assert_int_equal(
        parse(BILLING(FROM("fanout") QUEUE(
                  "bills",
                  "")) "  audit: {dsn: 'amqp://h', forward_to: inbox, options: "
                       "{" FROM("fanout") QUEUE(
                           "log", "") "}}\n"
                                      "  inbox: queue://default\n" HANDLER,
              &reports, &config, &error),
        SKR_INVALID);
    assert_non_null(strstr(reports.bytes, "3: transports.audit: its queue"));
    assert_non_null(
        strstr(reports.bytes, "table message_broker_deduplication"));
    assert_non_null(
        strstr(reports.bytes, "transports.inbox.deduplication.table_name"));
    skr_text_fini(&reports);
    skr_config_free(config);
}

// The time it takes does not grow with what could be tried.
static void
test_long_patterns_are_compared_at_once(void **state)
{
    (void)state;
    struct skr_text one = {0}, other = {0}, yaml = {0};
    for (size_t i = 0; i < 60; i++) {
        skr_text_add_string(&one, "#.a.");
        skr_text_add_string(&other, "#.a.");
    }
    skr_text_add_string(&one, "b");
    skr_text_add_string(&other, "c");
    skr_text_add_format(&yaml,
                        BILLING(FROM("topic") QUEUE("bills", "%s"))
                            AUDIT(FROM("topic") QUEUE("log", "%s")) HANDLER,
                        one.bytes, other.bytes);
    skr_config_free(parse_clean(yaml.bytes));
    skr_text_fini(&one);
    skr_text_fini(&other);
    skr_text_fini(&yaml);
}

#define TEST(name) cmocka_unit_test_setup(test_##name, set_environment)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_overlap_that_the_file_shows_is_refused),
        TEST(what_is_no_overlap_for_sure_is_allowed),
        TEST(long_patterns_are_compared_at_once),
        TEST(a_queue_that_is_forwarded_to_is_looked_at),
        TEST(groups_of_one_topic_are_refused),
        TEST(groups_that_do_not_meet_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
