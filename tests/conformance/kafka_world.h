// SPDX-License-Identifier: MIT
// What the suites of the Kafka broker share: a real server, the driver under
// test, and plain clients of librdkafka to look and to meddle with.

#ifndef SKR_TEST_KAFKA_WORLD_H
#define SKR_TEST_KAFKA_WORLD_H

#include "base/clock.h"
#include "base/text.h"
#include "broker/broker.h"
#include "message/route.h"

#include <librdkafka/rdkafka.h>
#include <setjmp.h>
#include <signal.h>
#include <skirnir/kafka.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 12000, DEADLINE_MS = 60000, PARTITIONS = 4, BATCH = 100 };

#include "conformance/deliveries.h"

struct world {
    rd_kafka_t *raw;
    char brokers[64];
    char topic[64];  // of four partitions
    char url[256];
    struct skr_message messages[MOST];
    char bodies[MOST][32];
    int results[MOST];  // by tag; -1: none yet
    struct skr_error reasons[MOST];
    size_t result_count;
    rd_kafka_message_t *records[MOST];  // what read_all() found
    size_t record_count;
    rd_kafka_t *reader;  // that the records belong to
};

static inline void
create_topic(struct world *world, const char *name, int partitions,
             const char *property, const char *value)
{
    char reason[200];
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(name, partitions, 1, reason, sizeof(reason));
    if (property != NULL)
        rd_kafka_NewTopic_set_config(topic, property, value);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(world->raw);
    // The answer comes when every broker knows of it.
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(world->raw, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_operation_timeout(options, 10000, reason,
                                                sizeof(reason));
    rd_kafka_CreateTopics(world->raw, &topic, 1, options, queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, DEADLINE_MS);
    assert_non_null(event);
    assert_int_equal(rd_kafka_event_error(event), 0);
    size_t count = 0;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(
            rd_kafka_event_CreateTopics_result(event), &count);
    assert_int_equal(rd_kafka_topic_result_error(results[0]), 0);
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(topic);
}

static inline rd_kafka_t *
new_raw(rd_kafka_type_t type, const char *brokers)
{
    char reason[200];
    rd_kafka_conf_t *properties = rd_kafka_conf_new();
    rd_kafka_conf_set(properties, "bootstrap.servers", brokers, NULL, 0);
    if (type == RD_KAFKA_CONSUMER) {
        rd_kafka_conf_set(properties, "group.id", "nobody", NULL, 0);
        rd_kafka_conf_set(properties, "enable.partition.eof", "true", NULL, 0);
        rd_kafka_conf_set(properties, "enable.auto.commit", "false", NULL, 0);
    }
    if (type == RD_KAFKA_PRODUCER) {
        rd_kafka_conf_set(properties, "compression.type", "snappy", NULL, 0);
        rd_kafka_conf_set(properties, "message.max.bytes", "8000000", NULL, 0);
    }
    rd_kafka_t *raw = rd_kafka_new(type, properties, reason, sizeof(reason));
    assert_non_null(raw);
    return raw;
}

static inline void
forget_records(struct world *world)
{
    for (size_t i = 0; i < world->record_count; i++)
        rd_kafka_message_destroy(world->records[i]);
    world->record_count = 0;
    if (world->reader != NULL)
        rd_kafka_destroy(world->reader);
    world->reader = NULL;
}

// Everything that a topic holds, partition by partition as it came.
static inline void
read_all(struct world *world, const char *topic, int partitions)
{
    forget_records(world);
    rd_kafka_t *raw = new_raw(RD_KAFKA_CONSUMER, world->brokers);
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++)
        rd_kafka_topic_partition_list_add(list, topic, i)->offset =
            RD_KAFKA_OFFSET_BEGINNING;
    assert_int_equal(rd_kafka_assign(raw, list), 0);
    rd_kafka_topic_partition_list_destroy(list);
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    for (int left = partitions; left > 0;) {
        assert_true(skr_clock_ms() < end);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(raw, 100);
        if (message == NULL)
            continue;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            assert_true(world->record_count < MOST);
            world->records[world->record_count++] = message;
            continue;
        }
        left -= message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(raw);
    world->reader = raw;
}

static inline const char *
record_header(const rd_kafka_message_t *record, const char *name)
{
    static char text[8][256];
    static unsigned next;
    rd_kafka_headers_t *headers = NULL;
    const void *value = NULL;
    size_t size = 0;
    if (rd_kafka_message_headers(record, &headers) != 0 ||
        rd_kafka_header_get_last(headers, name, &value, &size) != 0)
        return NULL;
    char *copy = text[next++ % 8];
    snprintf(copy, sizeof(text[0]), "%.*s", (int)size, (const char *)value);
    return copy;
}

static inline void
ignore_log(void *user, enum skr_log_level level, const char *event,
           const struct skr_log_field *fields, size_t count)
{
    (void)user;
    if (getenv("SKR_TEST_VERBOSE") == NULL)
        return;
    fprintf(stderr, "%d %s", (int)level, event);
    for (size_t i = 0; i < count; i++)
        if (fields[i].text != NULL)
            fprintf(stderr, " %s=%s", fields[i].name, fields[i].text);
        else
            fprintf(stderr, " %s=%lld", fields[i].name,
                    (long long)fields[i].number);
    fprintf(stderr, "\n");
}

static inline enum skr_code
try_open(const char *url, bool consumes, bool auto_setup,
         struct skr_broker **broker, struct skr_error *error)
{
    const struct skr_broker_options options = {
        .url = url,
        .consumes = consumes,
        .auto_setup = auto_setup,
        .wake_fd = -1,
        .log = {.write = ignore_log},
    };
    return skr_broker_open(&skr_kafka_broker, &options, broker, error);
}

// parameters: "linger.ms=5", or "".
static inline struct skr_broker *
open_broker(struct world *world, const char *parameters)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char url[600];
    snprintf(url, sizeof(url), "%s?%s", world->url, parameters);
    if (try_open(url, false, false, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return broker;
}

static inline void
make_message(struct world *world, size_t number)
{
    struct skr_message *message = &world->messages[number];
    snprintf(world->bodies[number], sizeof(world->bodies[number]), "%zu",
             number);
    *message = (struct skr_message){
        .name = "order.placed",
        .body = world->bodies[number],
        .body_size = strlen(world->bodies[number]),
    };
    assert_int_equal(skr_id_new(&message->id, NULL), SKR_OK);
}

static inline enum skr_code
try_submit(struct world *world, struct skr_broker *broker, size_t number,
           const char *topic, const char *key, struct skr_error *error)
{
    // Borrowed for the call: gone afterwards.
    char texts[2][400];
    snprintf(texts[0], sizeof(texts[0]), "%s", topic);
    snprintf(texts[1], sizeof(texts[1]), "%s", key == NULL ? "" : key);
    const struct skr_route route = {
        .topic = texts[0],
        .key = key == NULL ? NULL : texts[1],
        .partition_key = key == NULL ? NULL : texts[1],
    };
    world->results[number] = -1;
    enum skr_code code = broker->ops->submit(broker, &world->messages[number],
                                             &route, number, error);
    memset(texts, 'x', sizeof(texts));
    return code;
}

static inline void
submit(struct world *world, struct skr_broker *broker, size_t number,
       const char *topic, const char *key)
{
    struct skr_error error = {0};
    if (try_submit(world, broker, number, topic, key, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

// Messages first to end - 1 to the world's topic, by ten keys in turn.
static inline void
submit_range(struct world *world, struct skr_broker *broker, size_t first,
             size_t end)
{
    for (size_t i = first; i < end; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key-%zu", i % 10);
        make_message(world, i);
        submit(world, broker, i, world->topic, key);
    }
}

// One call of results().
static inline enum skr_code
collect_some(struct world *world, struct skr_broker *broker,
             uint32_t timeout_ms, struct skr_error *error)
{
    struct skr_published results[64];
    size_t count = 0;
    enum skr_code code = broker->ops->results(
        broker, results, SKR_COUNT_OF(results), &count, timeout_ms, error);
    for (size_t i = 0; i < count; i++) {
        uint64_t tag = results[i].tag;
        assert_true(tag < MOST);
        assert_int_equal(world->results[tag], -1);  // one result each
        world->results[tag] = (int)results[i].result;
        world->reasons[tag] = results[i].reason;
    }
    world->result_count += count;
    return code;
}

// Collects until so many results, or more, have come since the world began.
static inline void
collect(struct world *world, struct skr_broker *broker, size_t total)
{
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    struct skr_error error = {0};
    while (world->result_count < total && skr_clock_ms() < end)
        if (collect_some(world, broker, 100, &error) != SKR_OK)
            fail_msg("%s", error.text);
    assert_true(world->result_count >= total);
}

static inline void
expect_results(const struct world *world, size_t first, size_t end,
               enum skr_publish_result result)
{
    for (size_t i = first; i < end; i++)
        if (world->results[i] != (int)result)
            fail_msg("message %zu has result %d, not %d: %s", i,
                     world->results[i], (int)result, world->reasons[i].text);
}

// Publishes numbers first to end - 1, and waits until they are stored.
static inline void
put_numbers(struct world *world, size_t first, size_t end)
{
    struct skr_broker *broker = open_broker(world, "");
    size_t before = world->result_count;
    submit_range(world, broker, first, end);
    collect(world, broker, before + end - first);
    expect_results(world, first, end, SKR_CONFIRMED);
    skr_broker_close(broker);
}

// In the world's own group; parameters: "&derive_ids=true", or "".
static inline struct skr_broker *
open_receiver(struct world *world, const char *parameters)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char url[600];
    snprintf(url, sizeof(url), "%s/%s?group=%s%s", world->url, world->topic,
             world->topic, parameters);
    if (try_open(url, true, false, &broker, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return broker;
}

static inline size_t
delivery_number(const struct skr_incoming *incoming)
{
    char text[24] = "";
    assert_true(incoming->body_size < sizeof(text));
    memcpy(text, incoming->body, incoming->body_size);
    return strtoul(text, NULL, 10);
}

static inline int
kafka_world_set_up(void **state)
{
    static int counter;
    struct world *world = calloc(1, sizeof(*world));
    const char *url = getenv("SKR_KAFKA_URL");
    counter++;
    assert_non_null(url);
    snprintf(world->url, sizeof(world->url), "%s", url);
    snprintf(world->brokers, sizeof(world->brokers), "%s",
             url + strlen("kafka://"));
    snprintf(world->topic, sizeof(world->topic), "skr.%d.%d", getpid(),
             counter);
    world->raw = new_raw(RD_KAFKA_PRODUCER, world->brokers);
    create_topic(world, world->topic, PARTITIONS, NULL, NULL);
    *state = world;
    return 0;
}

static inline int
kafka_world_tear_down(void **state)
{
    struct world *world = *state;
    forget_records(world);
    rd_kafka_destroy(world->raw);
    free(world);
    return 0;
}

enum { SKIPPED = 77 };  // what main() returns
static inline bool
is_kafka_missing(void)
{
    if (getenv("SKR_KAFKA_URL") != NULL)
        return false;
    puts("SKR_KAFKA_URL is not set");
    return true;
}

#define KAFKA_TEST(name)                                      \
    cmocka_unit_test_setup_teardown(name, kafka_world_set_up, \
                                    kafka_world_tear_down)

#endif
