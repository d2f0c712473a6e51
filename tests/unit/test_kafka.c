// SPDX-License-Identifier: MIT
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "broker/broker.h"
#include "broker/kafka/kafka.h"
#include "broker/kafka/settings.h"

#include <setjmp.h>
#include <skirnir/kafka.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

// As Java's Utils.murmur2() and Go's fnv.New32a() with Sarama's sign have it.
static void
test_a_key_lies_where_java_and_go_put_it(void **state)
{
    static const struct {
        const char *key;
        uint32_t murmur2, fnv1a;
    } cases[] = {
        {"kafka", 0xd067cf64, 0xd33c4e1},
        {"giberish123456789", 0x8f552b0c, 0x77a58295},
        {"1234", 0x9fc97b14, 0x23bdd03},
        {"234", 0xe7c009ca, 0x2dea3cd2},
        {"34", 0x873930da, 0x740fa83e},
        {"4", 0x5a4b5ca1, 0x310ca263},
        {"", 0x106e08d9, 0x7ee3623b},
    };
    static const int32_t counts[] = {1, 2, 3, 4, 12, 100, 1000};
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        for (size_t k = 0; k < SKR_COUNT_OF(counts); k++) {
            const char *key = cases[i].key;
            uint32_t count = (uint32_t)counts[k];
            assert_int_equal(
                skr_kafka_partition(false, key, strlen(key), counts[k]),
                (cases[i].murmur2 & 0x7fffffff) % count);
            assert_int_equal(
                skr_kafka_partition(true, key, strlen(key), counts[k]),
                cases[i].fnv1a % count);
        }
}

static void
test_the_names_of_topics_are_those_that_kafka_takes(void **state)
{
    char longest[251];
    (void)state;
    memset(longest, 'a', sizeof(longest));
    longest[250] = '\0';
    assert_false(skr_kafka_is_topic(longest));
    assert_true(skr_kafka_is_topic(longest + 1));
    assert_true(skr_kafka_is_topic("Order_placed-1.x"));
    static const char *const wrong[] = {"",    ".",    "..",      "a b",
                                        "a/b", "a\\b", "\xc3\xa6"};
    for (size_t i = 0; i < SKR_COUNT_OF(wrong); i++)
        assert_false(skr_kafka_is_topic(wrong[i]));
}

// What check_url() says; "": nothing.
static const char *
check(const char *text)
{
    static struct skr_error error;
    const struct skr_log log = {0};
    struct skr_url url;
    skr_error_clear(&error);
    assert_int_equal(skr_url_parse(text, &url, NULL), SKR_OK);
    enum skr_code code = skr_kafka_broker.check_url(text, &url, &log, &error);
    skr_url_fini(&url);
    assert_int_equal(code, error.code);
    return error.text;
}

static void
test_what_breaks_a_promise_cannot_be_set(void **state)
{
    static const struct {
        const char *parameter, *reason;
    } cases[] = {
        {"test.mock.num.brokers=3", "brokers that are none"},
        {"delivery.report.only.error=true", "no message is lost"},
        {"plugin.library.paths=monitoring-interceptor", "loads code"},
        {"interceptors=x", "loads code"},
        {"ssl.engine.location=/tmp/e.so", "loads code"},
        {"ssl.providers=legacy", "loads code"},
        {"sasl.kerberos.kinit.cmd=touch%20/tmp/x", "runs a program"},
        {"enable.idempotence=false", "no message is lost"},
        {"acks=1", "no message is lost"},
        {"request.required.acks=0", "no message is lost"},
        {"message.timeout.ms=1", "no message is lost"},
        {"delivery.timeout.ms=1", "no message is lost"},
        {"retries=0", "no message is lost"},
        {"max.in.flight=100", "no message is lost"},
        {"queuing.strategy=lifo", "no message is lost"},
        {"enable.auto.commit=true", "no message is lost"},
        {"auto.commit.enable=true", "no message is lost"},
        {"enable.auto.offset.store=true", "no message is lost"},
        {"offset.store.method=file", "no message is lost"},
        {"isolation.level=read_uncommitted", "no message is lost"},
        {"topic.blacklist=.*", "no message is lost"},
        {"transactional.id=x", "no message is lost"},
        {"queue.buffering.max.messages=1", "in_flight"},
        {"debug=all", "not for a log"},
        {"log_level=7", "not for a log"},
        {"enable.ssl.certificate.verification=false", "verify=0"},
        {"ssl.endpoint.identification.algorithm=none", "verify=0"},
        {"enable.sasl.oauthbearer.unsecure.jwt=true", "nobody has signed"},
        {"bootstrap.servers=evil.example:1", "the host of the DSN"},
        // Nothing is said against it, and nothing for it.
        {"socket.max.fails=0", "skirnir.yaml(5) lists"},
        {"api.version.request=false", "skirnir.yaml(5) lists"},
        {"no.such.thing=1", "neither a parameter"},
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char url[200];
        snprintf(url, sizeof(url), "kafka://h/?%s", cases[i].parameter);
        const char *said = check(url);
        size_t size = strcspn(cases[i].parameter, "=");
        if (strstr(said, cases[i].reason) == NULL ||
            strncmp(said, cases[i].parameter, size) != 0)
            fail_msg("%s: %s", cases[i].parameter, said);
    }
}

static void
test_login_network_and_pace_can_be_set(void **state)
{
    (void)state;
    assert_string_equal(
        check("kafka://h/?client.id=a&client.rack=b&linger.ms=5&"
              "compression.type=lz4&batch.size=1000&socket.timeout.ms=5000&"
              "max.poll.interval.ms=600000&session.timeout.ms=6000&"
              "socket.keepalive.enable=true&broker.address.family=v4&"
              "message.max.bytes=2000000&log.connection.close=false&"
              "partition.assignment.strategy=cooperative-sticky"),
        "");
    assert_string_equal(check("kafka://u:p@h/?sasl.mechanisms=SCRAM-SHA-512"),
                        "");
    assert_string_equal(
        check("kafka://h/?security.protocol=sasl_ssl&sasl.mechanism=PLAIN&"
              "sasl.username=u&sasl.password=p"),
        "");
}

static void
test_tls_that_is_asked_for_is_not_taken_back(void **state)
{
    static const char *const contradictions[] = {
        "kafka://h/?tls=1&security.protocol=plaintext",
        "kafka://h/?cacert=/a.pem&security.protocol=plaintext",
        "kafka://u:p@h/?tls=1&security.protocol=sasl_plaintext",
        "kafka://h/?ssl.ca.location=/a.pem&security.protocol=PLAINTEXT",
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(contradictions); i++)
        if (strstr(check(contradictions[i]), "asks for TLS") == NULL)
            fail_msg("%s: %s", contradictions[i], check(contradictions[i]));
    assert_string_equal(check("kafka://h/?tls=1&security.protocol=ssl"), "");
    assert_string_equal(check("kafka://h/?tls=0&security.protocol=plaintext"),
                        "");
}

// What librdkafka is told of a property.
static const char *
property_of(const char *text, const char *name)
{
    static char value[32];
    size_t size = sizeof(value);
    struct kafka_settings settings;
    struct skr_url url;
    assert_int_equal(skr_url_parse(text, &url, NULL), SKR_OK);
    assert_int_equal(
        skr_kafka_settings_read(&url, false, false, &settings, NULL), SKR_OK);
    assert_int_equal(rd_kafka_conf_get(settings.properties, name, value, &size),
                     RD_KAFKA_CONF_OK);
    skr_kafka_settings_fini(&settings);
    skr_url_fini(&url);
    return value;
}

static void
test_a_certificate_means_tls(void **state)
{
    static const struct {
        const char *url, *protocol;
    } cases[] = {
        {"kafka://h", "plaintext"},
        {"kafka://h?tls=1", "ssl"},
        {"kafka://h?cacert=/a.pem", "ssl"},
        {"kafka://h?ssl.ca.location=/a.pem", "ssl"},
        {"kafka://h?ssl.keystore.location=/a.p12", "ssl"},
        {"kafka://h?cert=/a.pem&key=/a.key", "ssl"},
        {"kafka://h?cacert=", "plaintext"},
        {"kafka://h?tls=0&cacert=/a.pem", "plaintext"},
        {"kafka://u:p@h?cacert=/a.pem", "sasl_ssl"},
        {"kafka://u:p@h", "sasl_ssl"},
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_string_equal(property_of(cases[i].url, "security.protocol"),
                            cases[i].protocol);
}

// Any certificate of a known authority would do otherwise.
static void
test_a_certificate_and_its_name_are_verified(void **state)
{
    static const char *const urls[] = {"kafka://h?tls=1", "kafka://u:p@h",
                                       "kafka://h?tls=1&verify=1"};
    static const char verifies[] = "enable.ssl.certificate.verification";
    static const char compares[] = "ssl.endpoint.identification.algorithm";
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(urls); i++) {
        assert_string_equal(property_of(urls[i], verifies), "true");
        assert_string_equal(property_of(urls[i], compares), "https");
    }
    assert_string_equal(property_of("kafka://h?tls=1&verify=0", verifies),
                        "false");
    assert_string_equal(property_of("kafka://h?tls=1&verify=0", compares),
                        "none");
}

static void
test_a_password_in_plaintext_is_told_of(void **state)
{
#define OPEN "security.protocol=sasl_plaintext&sasl.mechanisms="
    static const struct {
        const char *url, *host;  // NULL: nothing is said
    } cases[] = {
        {"kafka://u:p@mq.example?" OPEN "PLAIN", "mq.example"},
        {"kafka://u:p@127.0.0.1:1,mq.example:2?" OPEN "PLAIN", "mq.example"},
        {"kafka://u:p@127.evil.example?" OPEN "PLAIN", "127.evil.example"},
        {"kafka://mq.example?" OPEN "PLAIN&sasl.username=u&sasl.password=p",
         "mq.example"},
        {"kafka://u:p@mq.example?" OPEN "OAUTHBEARER", "mq.example"},
        {"kafka://u:p@mq.example?" OPEN "SCRAM-SHA-256", NULL},
        {"kafka://u:p@mq.example?security.protocol=sasl_plaintext", NULL},
        {"kafka://u:p@127.0.0.1:1,[::1]:2?" OPEN "PLAIN", NULL},
        {"kafka://u:p@mq.example", NULL},
        {"kafka://mq.example", NULL},
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char said[SKR_EXPOSURE_SIZE];
        struct skr_url url;
        assert_int_equal(skr_url_parse(cases[i].url, &url, NULL), SKR_OK);
        skr_kafka_broker.exposure(&url, said);
        skr_url_fini(&url);
        if (cases[i].host == NULL)
            assert_string_equal(said, "");
        else if (strstr(said, cases[i].host) == NULL ||
                 strstr(said, "SCRAM-SHA-512") == NULL)
            fail_msg("%s: %s", cases[i].url, said);
    }
}

// As librdkafka tells of brokers: what it sent and received last, in ms.
struct told {
    const char *state, *join_state;
    int owed, sent, received;        // by the broker that leads partitions
    int group_owed, group_received;  // by the one that coordinates the group
};

static struct kafka_view
view_of(const struct told *told)
{
    char json[1000];
    struct kafka_view view;
    struct skr_error error = {0};
    int size = snprintf(
        json, sizeof(json),
        "{\"brokers\":{\"h:1/1\":{\"nodeid\":1,\"source\":\"learned\","
        "\"state\":\"%s\",\"waitresp_cnt\":%d,\"rx\":9,\"txidle\":%d000,"
        "\"rxidle\":%d000},\"GroupCoordinator\":{\"nodeid\":1,"
        "\"nodename\":\"h:1\",\"source\":\"logical\",\"state\":\"%s\","
        "\"waitresp_cnt\":%d,\"rx\":9,\"txidle\":%d000,\"rxidle\":%d000}},"
        "\"topics\":{},\"cgrp\":{\"state\":\"up\",\"join_state\":\"%s\"}}",
        told->state, told->owed, told->sent, told->received, told->state,
        told->group_owed, told->group_received, told->group_received,
        told->join_state);
    if (skr_kafka_view_read(json, (size_t)size, 5500, &view, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return view;
}

static void
test_statistics_tell_who_answers_and_who_does_not(void **state)
{
    static const struct {
        const char *what;
        struct told told;
        bool has_answered, is_down;
    } cases[] = {
        {"it fetches", {"UP", "steady", 1, 200, 200, 0, 2900}, true, false},
        {"its fetch is not answered",
         {"UP", "steady", 1, 5600, 5600, 1, 8000},
         false,
         true},
        {"it has no partition and hears of its group",
         {"UP", "steady", 0, 60000, 60000, 0, 2900},
         true,
         false},
        {"it hears nothing of its group",
         {"UP", "steady", 0, 60000, 60000, 1, 5600},
         false,
         true},
        // Nothing is known of these.
        {"its group keeps it waiting",
         {"UP", "wait-join", 0, 60000, 60000, 1, 60000},
         false,
         false},
        {"it has only just asked",
         {"UP", "wait-join", 1, 10, 60000, 1, 60000},
         false,
         false},
        {"it has asked long ago",
         {"UP", "wait-sync", 1, 5600, 60000, 1, 60000},
         false,
         true},
        {"no broker is connected",
         {"DOWN", "wait-join", 0, 100, 100, 0, 100},
         false,
         true},
    };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct kafka_view view = view_of(&cases[i].told);
        if (view.has_answered != cases[i].has_answered ||
            view.is_down != cases[i].is_down)
            fail_msg("%s: answered %d, down %d", cases[i].what,
                     view.has_answered, view.is_down);
    }
}

// As a cluster of ten thousand partitions has them, the last without a leader.
static void
write_partitions(struct skr_text *json)
{
    skr_text_add_string(
        json, "{\"brokers\":{\"h:1/1\":{\"nodeid\":1,\"source\":"
              "\"learned\",\"state\":\"UP\"}},\"topics\":{\"orders\":{"
              "\"topic\":\"orders\",\"partitions\":{");
    for (int i = 0; i < 10000; i++)
        skr_text_add_format(
            json,
            "%s\"%d\":{\"partition\":%d,\"broker\":1,\"leader\":%d,"
            "\"desired\":true,\"unknown\":false,\"msgq_cnt\":0,"
            "\"xmit_msgq_cnt\":0,\"fetchq_cnt\":0,\"fetchq_size\":0,"
            "\"fetch_state\":\"active\",\"query_offset\":-1001,"
            "\"next_offset\":12345,\"app_offset\":-1001,"
            "\"stored_offset\":-1001,\"lo_offset\":0,\"hi_offset\":12345,"
            "\"txmsgs\":0,\"txbytes\":0,\"rxmsgs\":0,\"rxbytes\":0,"
            "\"msgs_inflight\":0}",
            i == 0 ? "" : ",", i, i, i == 9999 ? -1 : 1);
    skr_text_add_string(json, "}}}}");
    assert_false(json->broken);
}

static void
test_statistics_of_many_partitions_take_little_memory(void **state)
{
    (void)state;
    struct skr_text json = {0};
    struct kafka_view view;
    struct rlimit before;
    write_partitions(&json);
    assert_in_range(json.size, 3000000, 6000000);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    const struct rlimit tight = {
        .rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + 8 * 1024 * 1024,
        .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
#endif
    enum skr_code code =
        skr_kafka_view_read(json.bytes, json.size, 5500, &view, NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    skr_text_fini(&json);
    assert_int_equal(code, SKR_OK);
    assert_string_equal(view.missing,
                        "partition 9999 of topic orders has no leader");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_lies_where_java_and_go_put_it),
        cmocka_unit_test(test_the_names_of_topics_are_those_that_kafka_takes),
        cmocka_unit_test(test_what_breaks_a_promise_cannot_be_set),
        cmocka_unit_test(test_login_network_and_pace_can_be_set),
        cmocka_unit_test(test_tls_that_is_asked_for_is_not_taken_back),
        cmocka_unit_test(test_a_certificate_means_tls),
        cmocka_unit_test(test_a_certificate_and_its_name_are_verified),
        cmocka_unit_test(test_a_password_in_plaintext_is_told_of),
        cmocka_unit_test(test_statistics_tell_who_answers_and_who_does_not),
        cmocka_unit_test(test_statistics_of_many_partitions_take_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
