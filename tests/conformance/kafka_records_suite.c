// SPDX-License-Identifier: MIT
// What a consumer is told of a record from a real Kafka, whatever produced it.
#include "kafka_world.h"

#include "support/memory_ceiling.h"

static void
produce_raw(struct world *world, rd_kafka_headers_t *headers, const char *key,
            const char *body)
{
    const rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = world->topic},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {.ptr = (void *)(uintptr_t)body,
                   .size = body == NULL ? 0 : strlen(body)}},
        {.vtype = RD_KAFKA_VTYPE_KEY,
         .u.mem = {.ptr = (void *)(uintptr_t)key,
                   .size = key == NULL ? 0 : strlen(key)}},
        {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
    };
    assert_null(rd_kafka_produceva(world->raw, parts, SKR_COUNT_OF(parts)));
    assert_int_equal(rd_kafka_flush(world->raw, DEADLINE_MS), 0);
}

static const char *
header_of(const struct skr_incoming *incoming, const char *name)
{
    return skr_headers_find(incoming->headers.items, incoming->headers.count,
                            name);
}

static void
test_a_foreign_record_has_its_topic_for_a_type_and_headers_as_text(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming[2];
    rd_kafka_headers_t *headers = rd_kafka_headers_new(6);
    rd_kafka_header_add(headers, "plain", -1, "text", -1);
    rd_kafka_header_add(headers, "bytes", -1, "\xff\x00\xfe", 3);
    rd_kafka_header_add(headers, "nothing", -1, NULL, 0);
    rd_kafka_header_add(headers, "X-Kafka-Key", -1, "another record's", -1);
    rd_kafka_header_add(headers, "X-Skirnir-Body-Encoding", -1, "base64", -1);
    rd_kafka_header_add(headers, "X-Skirnir-Raw-Headers", -1, "{}", -1);
    produce_raw(world, headers, NULL, "{}");
    struct skr_broker *broker = open_receiver(world, "");
    assert_int_equal(receive(broker, incoming, 2), 1);
    assert_string_equal(header_of(&incoming[0], "type"), world->topic);
    assert_string_equal(header_of(&incoming[0], "plain"), "text");
    assert_string_equal(header_of(&incoming[0], "bytes"), "/wD+");
    assert_string_equal(header_of(&incoming[0], "nothing"), "null");
    assert_null(header_of(&incoming[0], "X-Kafka-Key"));
    assert_null(header_of(&incoming[0], "X-Skirnir-Body-Encoding"));
    assert_null(header_of(&incoming[0], "X-Skirnir-Raw-Headers"));
    assert_null(incoming[0].broker_id);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);

    headers = rd_kafka_headers_new(1);
    rd_kafka_header_add(headers, "\xff", -1, "text", -1);
    produce_raw(world, headers, NULL, NULL);
    assert_int_equal(receive(broker, incoming, 2), 1);
    assert_int_equal(incoming[0].problem.code, SKR_MALFORMED);
    assert_non_null(strstr(incoming[0].problem.text, world->topic));
    assert_int_equal(incoming[0].body_size, 0);
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    skr_broker_close(broker);
}

// Compressed, it is small enough for any topic.
static void
test_headers_over_the_limit_are_not_read(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming[2];
    char *value = malloc(SKR_MAX_HEADERS_SIZE);
    memset(value, 'x', SKR_MAX_HEADERS_SIZE);
    struct skr_broker *broker = open_receiver(world, "");
    for (int i = 0; i < 2; i++) {
        rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
        rd_kafka_header_add(headers, "n", -1, value,
                            SKR_MAX_HEADERS_SIZE - 1 + i);
        produce_raw(world, headers, "k", "{}");
        assert_int_equal(receive(broker, incoming, 2), 1);
        assert_int_equal(incoming[0].problem.code,
                         i == 0 ? SKR_OK : SKR_MALFORMED);
        assert_int_equal(strstr(incoming[0].problem.text, "1048576") != NULL,
                         i > 0);
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    free(value);
    skr_broker_close(broker);
}

static void
test_a_record_tells_where_it_stood(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming[1];
    const char *keys[] = {"customer", "customer", "\xff"};
    struct skr_broker *broker = open_receiver(world, "");
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++) {
        produce_raw(world, rd_kafka_headers_new(0), keys[i], "{}");
        assert_int_equal(receive(broker, incoming, 1), 1);
        assert_string_equal(header_of(incoming, "X-Kafka-Topic"), world->topic);
        assert_non_null(header_of(incoming, "X-Kafka-Partition"));
        if (keys[i][0] == 'c') {
            assert_string_equal(header_of(incoming, "X-Kafka-Key"), keys[i]);
            assert_string_equal(header_of(incoming, "X-Kafka-Offset"),
                                i == 0 ? "0" : "1");
        } else {
            assert_null(header_of(incoming, "X-Kafka-Key"));
            assert_string_equal(header_of(incoming, "X-Kafka-Key-Base64"),
                                "/w==");
        }
        settle(broker, incoming, 1, SKR_SETTLE_ACK);
    }
    skr_broker_close(broker);
}

static void
test_a_derived_id_is_the_records_own_and_stays(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming[BATCH];
    char ids[50][SKR_ID_TEXT_SIZE];
    put_numbers(world, 0, 50);
    memset(ids, 0, sizeof(ids));
    for (int round = 0; round < 2; round++) {
        struct skr_broker *broker = NULL;
        char url[600];
        snprintf(url, sizeof(url), "%s/%s?group=%s-%d&derive_ids=true",
                 world->url, world->topic, world->topic, round);
        assert_int_equal(try_open(url, true, false, &broker, NULL), SKR_OK);
        for (size_t total = 0, count; total < 50; total += count) {
            count = receive(broker, incoming, BATCH);
            for (size_t i = 0; i < count; i++) {
                char *id = ids[delivery_number(&incoming[i])];
                struct skr_id parsed;
                assert_int_equal(
                    skr_id_parse(incoming[i].broker_id, &parsed, NULL), SKR_OK);
                for (size_t k = 0; k < 50 && round == 0; k++)
                    assert_string_not_equal(incoming[i].broker_id, ids[k]);
                if (round == 1)
                    assert_string_equal(incoming[i].broker_id, id);
                snprintf(id, sizeof(ids[0]), "%s", incoming[i].broker_id);
            }
            settle(broker, incoming, count, SKR_SETTLE_ACK);
        }
        skr_broker_close(broker);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KAFKA_TEST(
            test_a_foreign_record_has_its_topic_for_a_type_and_headers_as_text),
        KAFKA_TEST(test_headers_over_the_limit_are_not_read),
        KAFKA_TEST(test_a_record_tells_where_it_stood),
        KAFKA_TEST(test_a_derived_id_is_the_records_own_and_stays),
    };
    if (is_kafka_missing())
        return SKIPPED;
    skr_test_limit_memory(SKR_TEST_CEILING_MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
