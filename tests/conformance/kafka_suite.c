// SPDX-License-Identifier: MIT
// Publishing to a real Kafka: what arrives, and what is said of the rest.
#include "base/error.h"
#include "base/url.h"
#include "broker/kafka/kafka.h"

#include "kafka_world.h"

static size_t
number_in(const rd_kafka_message_t *record)
{
    char text[24] = "";
    assert_true(record->len < sizeof(text));
    memcpy(text, record->payload, record->len);
    return strtoul(text, NULL, 10);
}

// Each number from 0 to count - 1 once, and in order within its key.
static void
expect_numbers(struct world *world, size_t count)
{
    size_t last[10] = {0};
    bool *seen = calloc(count, sizeof(*seen));
    assert_int_equal(world->record_count, count);
    for (size_t i = 0; i < count; i++) {
        size_t number = number_in(world->records[i]);
        assert_true(number < count);
        assert_false(seen[number]);
        seen[number] = true;
        assert_true(number >= last[number % 10]);
        last[number % 10] = number;
    }
    free(seen);
}

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
    skr_broker_close(broker);
    read_all(world, world->topic, PARTITIONS);
    expect_numbers(world, COUNT);
}

static void
test_a_record_carries_exactly_what_was_given(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    const struct skr_header headers[] = {
        {"type", "order.placed"},
        {"empty", ""},
        {"special", "\x01\t\n\"'\\ \xc3\xa6\xe2\x82\xac\xf0\x9f\x90\x87"},
        {"not utf-8", "\xff\xfe"},
    };
    make_message(world, 0);
    world->messages[0].headers = headers;
    world->messages[0].header_count = SKR_COUNT_OF(headers);
    world->messages[0].content_type = "application/cloudevents+json";
    submit(world, broker, 0, world->topic, "customer-1");
    collect(world, broker, 1);
    expect_results(world, 0, 1, SKR_CONFIRMED);
    skr_broker_close(broker);

    read_all(world, world->topic, PARTITIONS);
    assert_int_equal(world->record_count, 1);
    const rd_kafka_message_t *record = world->records[0];
    assert_int_equal(record->len, 1);
    assert_memory_equal(record->payload, "0", 1);
    assert_int_equal(record->key_len, strlen("customer-1"));
    assert_memory_equal(record->key, "customer-1", record->key_len);
    assert_int_equal(record->partition,
                     skr_kafka_partition(false, "customer-1", 10, PARTITIONS));
    for (size_t i = 0; i < SKR_COUNT_OF(headers); i++)
        assert_string_equal(record_header(record, headers[i].name),
                            headers[i].value);
    assert_string_equal(record_header(record, "Content-Type"),
                        "application/cloudevents+json");
}

static void
test_a_tombstone_has_no_value_and_a_null_key_is_null(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    make_message(world, 0);
    world->messages[0].body = NULL;
    world->messages[0].body_size = 0;
    submit(world, broker, 0, world->topic, NULL);
    collect(world, broker, 1);
    skr_broker_close(broker);
    read_all(world, world->topic, PARTITIONS);
    assert_int_equal(world->record_count, 1);
    assert_null(world->records[0]->payload);
    assert_null(world->records[0]->key);
}

// A null key can have a partition of its own.
static void
test_the_partition_follows_the_partition_key_by_either_hash(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *parameters;
        bool is_fnv1a;
    } cases[] = {{"partitioner=murmur2", false}, {"partitioner=fnv1a", true}};
    size_t number = 0;
    for (size_t k = 0; k < SKR_COUNT_OF(cases); k++) {
        struct skr_broker *broker = open_broker(world, cases[k].parameters);
        for (size_t i = 0; i < 20; i++, number++) {
            char key[16];
            snprintf(key, sizeof(key), "p%zu", i);
            make_message(world, number);
            world->results[number] = -1;
            const struct skr_route route = {.topic = world->topic,
                                            .partition_key = key};
            assert_int_equal(broker->ops->submit(broker,
                                                 &world->messages[number],
                                                 &route, number, NULL),
                             SKR_OK);
        }
        collect(world, broker, number);
        skr_broker_close(broker);
    }
    read_all(world, world->topic, PARTITIONS);
    assert_int_equal(world->record_count, number);
    for (size_t i = 0; i < number; i++) {
        size_t found = number_in(world->records[i]);
        char key[16];
        int size = snprintf(key, sizeof(key), "p%zu", found % 20);
        assert_null(world->records[i]->key);
        assert_int_equal(world->records[i]->partition,
                         skr_kafka_partition(cases[found / 20].is_fnv1a, key,
                                             (size_t)size, PARTITIONS));
    }
}

static void
test_without_a_route_the_topic_is_the_message_name_and_the_key_its_id(
    void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    char id[SKR_ID_TEXT_SIZE];
    make_message(world, 0);
    world->messages[0].name = world->topic;
    world->results[0] = -1;
    assert_int_equal(
        broker->ops->submit(broker, &world->messages[0], NULL, 0, NULL),
        SKR_OK);
    collect(world, broker, 1);
    expect_results(world, 0, 1, SKR_CONFIRMED);
    skr_broker_close(broker);
    read_all(world, world->topic, PARTITIONS);
    assert_int_equal(world->record_count, 1);
    skr_id_format(world->messages[0].id, id);
    assert_int_equal(world->records[0]->key_len, strlen(id));
    assert_memory_equal(world->records[0]->key, id, strlen(id));
}

// As a relay does: what waited behind one that was refused goes again once
// that is known.
static void
collect_all(struct world *world, struct skr_broker *broker, size_t count,
            const char *topic)
{
    size_t held = count;
    do {
        collect(world, broker, world->result_count + held);
        held = 0;
        for (size_t i = 0; i < count; i++)
            if (world->results[i] == SKR_HELD_BACK) {
                submit(world, broker, i, topic, "key");
                held++;
            }
    } while (held > 0);
}

// The broker refuses the batch as a whole: the others go again, in order.
static void
test_a_row_that_is_too_large_is_refused_alone(void **state)
{
    struct world *world = *state;
    char topic[80];
    static char large[3000];
    enum { COUNT = 500 };
    snprintf(topic, sizeof(topic), "%s.small", world->topic);
    create_topic(world, topic, 1, "max.message.bytes", "2000");
    // Small batches fit, so that later ones could pass what was refused.
    struct skr_broker *broker =
        open_broker(world, "linger.ms=50&batch.num.messages=20");
    memset(large, 'x', sizeof(large));
    for (size_t i = 0; i < COUNT; i++) {
        make_message(world, i);
        if (i == 7 || i == 250 || i == 251) {
            world->messages[i].body = large;
            world->messages[i].body_size = sizeof(large);
        }
        submit(world, broker, i, topic, "key");
    }
    collect_all(world, broker, COUNT, topic);
    skr_broker_close(broker);
    read_all(world, topic, 1);
    size_t next = 0;
    for (size_t i = 0; i < COUNT; i++) {
        bool is_large = i == 7 || i == 250 || i == 251;
        expect_results(world, i, i + 1,
                       is_large ? SKR_REFUSED_FOR_GOOD : SKR_CONFIRMED);
        if (is_large)
            assert_non_null(strstr(world->reasons[i].text, "max.message"));
    }
    // Some may be there twice: first occurrences are in order.
    for (size_t i = 0; i < world->record_count; i++) {
        size_t number = number_in(world->records[i]);
        while (next == 7 || next == 250 || next == 251)
            next++;
        assert_true(number <= next);
        next += number == next;
    }
    assert_int_equal(next, COUNT);
}

static void
test_what_no_topic_would_take_is_refused_at_once(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "");
    static char large[2000000];
    memset(large, 'x', sizeof(large));
    make_message(world, 0);
    world->messages[0].body = large;
    world->messages[0].body_size = sizeof(large);
    submit(world, broker, 0, world->topic, "key");
    make_message(world, 1);
    submit(world, broker, 1, world->topic, "key");
    make_message(world, 2);
    submit(world, broker, 2, world->topic, "another");
    collect(world, broker, 3);
    expect_results(world, 0, 1, SKR_REFUSED_FOR_GOOD);
    // Whether it may pass is not for the driver to say.
    expect_results(world, 1, 2, SKR_HELD_BACK);
    expect_results(world, 2, 3, SKR_CONFIRMED);
    submit(world, broker, 1, world->topic, "key");
    collect(world, broker, 4);
    expect_results(world, 1, 2, SKR_CONFIRMED);
    // Not the topic's limit, which has the words the other way round.
    assert_non_null(strstr(world->reasons[0].text, "raise message.max.bytes"));

    char long_name[252];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const char *const wrong[] = {"",    ".",        "..",         "a b",
                                 "a/b", "\xc3\xa6", long_name + 1};
    for (size_t i = 0; i < SKR_COUNT_OF(wrong); i++) {
        struct skr_error error = {0};
        assert_int_equal(try_submit(world, broker, 1, wrong[i], "key", &error),
                         SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        assert_non_null(strstr(error.text, "no name of a topic"));
    }
    long_name[249] = '\0';
    make_message(world, 3);
    submit(world, broker, 3, long_name, "key");
    collect(world, broker, 5);
    expect_results(world, 3, 4, SKR_CONFIRMED);
    skr_broker_close(broker);
}

static void
test_what_is_not_confirmed_when_it_closes_was_borrowed_no_longer(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = open_broker(world, "linger.ms=1000");
    submit_range(world, broker, 0, 100);
    skr_broker_close(broker);
    memset(world->bodies, 'x', sizeof(world->bodies));
}

static void
expect_refusal(const char *url, enum skr_code expected, const char *text)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    int64_t start_ms = skr_clock_ms();
    enum skr_code code = try_open(url, false, false, &broker, &error);
    if (code != expected || strstr(error.text, text) == NULL)
        fail_msg("%s: %s: %s", url, skr_code_name(code), error.text);
    assert_null(strstr(error.text, "secret"));
    assert_true(skr_clock_ms() - start_ms < 15000);
}

// What is said of it without asking a server; "": nothing.
static const char *
check_url(const char *text)
{
    static struct skr_error error;
    const struct skr_log log = {.write = ignore_log};
    struct skr_url url;
    skr_error_clear(&error);
    assert_int_equal(skr_url_parse(text, &url, NULL), SKR_OK);
    enum skr_code code = skr_kafka_broker.check_url(text, &url, &log, &error);
    skr_url_fini(&url);
    assert_int_equal(code, error.code);
    return error.text;
}

static void
test_mistakes_in_the_dsn_are_named(void **state)
{
    static const struct {
        const char *url, *text;
    } cases[] = {
        {"kafka://?a=b", "no broker"},
        {"kafka://h/?acks=1", "acks in the DSN cannot be set"},
        {"kafka://h/?message.timeout.ms=1", "cannot be set"},
        {"kafka://h/?no.such.thing=1", "neither a parameter"},
        {"kafka://h/?linger.ms=secret", "does not take the value of linger.ms"},
        {"kafka://h/?partitioner=random", "murmur2 or fnv1a"},
        {"kafka://h/?verify=perhaps", "true or false"},
        {"kafka://h/a%20b", "no name of a topic"},
        {"kafka://h/?connect_timeout=soon", "connect_timeout"},
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        expect_refusal(cases[i].url, SKR_INVALID, cases[i].text);
        assert_non_null(strstr(check_url(cases[i].url), cases[i].text));
    }
    assert_non_null(
        strstr(check_url("kafka://h?topics=a,b%20c"), "no name of a topic"));
    static const char *const good[] = {
        "kafka://h", "kafka://h:9092,i/orders?linger.ms=5",
        "kafka://h/%5Eorders.*?group=shop", "kafka://h?topics[0]=a&topics[1]=b",
        "kafka://h?topic_by=name&auto_setup=true"};
    for (size_t i = 0; i < SKR_COUNT_OF(good); i++)
        assert_string_equal(check_url(good[i]), "");
}

static void
test_a_broker_that_is_not_there_is_named_with_the_cure(void **state)
{
    (void)state;
    expect_refusal("kafka://127.0.0.1:1", SKR_UNAVAILABLE,
                   "127.0.0.1:1 cannot be reached: check that a broker runs");
    expect_refusal("kafka://no-such-host.invalid", SKR_UNAVAILABLE,
                   "check the names of the brokers");
}

static void
test_tls_and_logins_are_verified_and_mistakes_said_as_such(void **state)
{
    struct world *world = *state;
    const char *certificates = getenv("SKR_KAFKA_CERTIFICATES");
    const char *user = getenv("SKR_KAFKA_USER");
    const char *password = getenv("SKR_KAFKA_PASSWORD");
    const char *tls = getenv("SKR_KAFKA_TLS_PORT");
    const char *sasl = getenv("SKR_KAFKA_SASL_PORT");
    const char *clear = getenv("SKR_KAFKA_SASL_PLAINTEXT_PORT");
    char good[6][400], url[500];
    if (certificates == NULL)
        skip();
    snprintf(good[0], 400, "kafka://127.0.0.1:%s?tls=1&cacert=%s/authority.pem",
             tls, certificates);
    snprintf(good[1], 400, "kafka://%s:%s@127.0.0.1:%s?cacert=%s/authority.pem",
             user, password, sasl, certificates);
    snprintf(good[2], 400, "%.300s&sasl.mechanisms=SCRAM-SHA-256", good[1]);
    snprintf(good[3], 400,
             "kafka://%s:%s@127.0.0.1:%s?security.protocol=sasl_plaintext",
             user, password, clear);
    snprintf(good[4], 400, "kafka://localhost:%s?tls=1&cacert=%s/authority.pem",
             tls, certificates);
    snprintf(good[5], 400, "kafka://127.0.0.1:%s?tls=1&verify=0", tls);
    for (size_t i = 0; i < SKR_COUNT_OF(good); i++) {
        struct skr_broker *broker = NULL;
        struct skr_error error = {0};
        if (try_open(good[i], false, false, &broker, &error) != SKR_OK)
            fail_msg("%s: %s", good[i], error.text);
        skr_broker_close(broker);
    }
    snprintf(url, sizeof(url),
             "kafka://%s:wrong-secret@127.0.0.1:%s?cacert=%s/authority.pem",
             user, sasl, certificates);
    expect_refusal(url, SKR_REFUSED, "the login was refused");
    snprintf(url, sizeof(url), "kafka://127.0.0.1:%s?tls=1&cacert=%s/%s", tls,
             certificates, "stranger.pem");
    expect_refusal(url, SKR_REFUSED, "TLS failed: check cacert");
    // The certificate is for 127.0.0.1 and localhost; 127.1 leads there too.
    snprintf(url, sizeof(url), "kafka://127.1:%s?tls=1&cacert=%s/authority.pem",
             tls, certificates);
    expect_refusal(url, SKR_REFUSED, "TLS failed: check cacert");
    // A URL that names an authority is not connected without it.
    snprintf(url, sizeof(url), "kafka://%s?cacert=%s/authority.pem",
             world->brokers, certificates);
    expect_refusal(url, SKR_UNAVAILABLE, "TLS met a port without it");
    snprintf(url, sizeof(url), "kafka://%s?tls=1", world->brokers);
    expect_refusal(url, SKR_UNAVAILABLE, "TLS met a port without it");
    snprintf(url, sizeof(url), "kafka://127.0.0.1:%s", tls);
    expect_refusal(url, SKR_UNAVAILABLE, "seems to want TLS");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KAFKA_TEST(test_ten_thousand_messages_arrive_once_and_in_order),
        KAFKA_TEST(test_a_record_carries_exactly_what_was_given),
        KAFKA_TEST(test_a_tombstone_has_no_value_and_a_null_key_is_null),
        KAFKA_TEST(test_the_partition_follows_the_partition_key_by_either_hash),
        KAFKA_TEST(
            test_without_a_route_the_topic_is_the_message_name_and_the_key_its_id),
        KAFKA_TEST(test_a_row_that_is_too_large_is_refused_alone),
        KAFKA_TEST(test_what_no_topic_would_take_is_refused_at_once),
        KAFKA_TEST(
            test_what_is_not_confirmed_when_it_closes_was_borrowed_no_longer),
        KAFKA_TEST(test_mistakes_in_the_dsn_are_named),
        KAFKA_TEST(test_a_broker_that_is_not_there_is_named_with_the_cure),
        KAFKA_TEST(test_tls_and_logins_are_verified_and_mistakes_said_as_such),
    };
    if (is_kafka_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
