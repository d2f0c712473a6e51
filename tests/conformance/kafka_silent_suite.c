// SPDX-License-Identifier: MIT
// A cluster that is slow, hangs while nothing is to be sent to it, or has lost
// a part of itself. It is played by librdkafka, and time passes when the test
// says so.

#include "conformance/kafka_world.h"

#include <librdkafka/rdkafka_mock.h>

enum {
    ALL = -1,
    SLOW_MS = 300,
    FOREVER_MS = 3600 * 1000,
    JOIN_GROUP = 11,  // Kafka's number of that request
    LOOK_MS = 5000,   // it is asked that often, and not more
    CALLS = 100,
};

static int64_t ahead_ms;
static int looks;
static int patience_ms;  // of the last of them
// Once it has told of a topic it knows of "orders" no more; NULL: it does.
static rd_kafka_mock_cluster_t *forgetful;

int64_t __real_skr_clock_ms(void);
int64_t __wrap_skr_clock_ms(void);

int64_t
__wrap_skr_clock_ms(void)
{
    return __real_skr_clock_ms() + ahead_ms;
}

rd_kafka_resp_err_t
__real_rd_kafka_metadata(rd_kafka_t *handle, int all, rd_kafka_topic_t *topic,
                         const struct rd_kafka_metadata **metadata, int wait);
rd_kafka_resp_err_t
__wrap_rd_kafka_metadata(rd_kafka_t *handle, int all, rd_kafka_topic_t *topic,
                         const struct rd_kafka_metadata **metadata, int wait);

rd_kafka_resp_err_t
__wrap_rd_kafka_metadata(rd_kafka_t *handle, int all, rd_kafka_topic_t *topic,
                         const struct rd_kafka_metadata **metadata, int wait)
{
    looks++;
    patience_ms = wait;
    rd_kafka_resp_err_t answer =
        __real_rd_kafka_metadata(handle, all, topic, metadata, wait);
    if (topic != NULL && forgetful != NULL) {
        rd_kafka_mock_topic_set_error(forgetful, "orders",
                                      RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        forgetful = NULL;
    }
    return answer;
}

// The cluster that librdkafka plays tells of no groups: this one has a member
// that was given nothing, in a version, and as many topics as none.
static char stable[] = "Stable", nothing[6];
static struct rd_kafka_group_member_info member = {
    .member_assignment = nothing, .member_assignment_size = sizeof(nothing)};
static struct rd_kafka_group_info group = {
    .state = stable, .members = &member, .member_cnt = 1};
static const struct rd_kafka_group_list groups = {&group, 1};

rd_kafka_resp_err_t
__wrap_rd_kafka_list_groups(rd_kafka_t *handle, const char *name,
                            const struct rd_kafka_group_list **list, int wait);
void __wrap_rd_kafka_group_list_destroy(const struct rd_kafka_group_list *list);

rd_kafka_resp_err_t
__wrap_rd_kafka_list_groups(rd_kafka_t *handle, const char *name,
                            const struct rd_kafka_group_list **list, int wait)
{
    (void)handle;
    (void)wait;
    assert_string_equal(name, "orders");
    *list = &groups;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void
__wrap_rd_kafka_group_list_destroy(const struct rd_kafka_group_list *list)
{
    assert_ptr_equal(list, &groups);
}

struct fixture {
    rd_kafka_t *raw;
    rd_kafka_mock_cluster_t *cluster;
    char url[256];
    struct skr_broker *broker;
    int troubles, recoveries, given_up;  // that were told of
    int rebalances, partitions;          // of them, and given by them
    char said[400];                      // of the last trouble
};

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->raw = new_raw(RD_KAFKA_PRODUCER, "");
    fixture->cluster = rd_kafka_mock_cluster_new(fixture->raw, 1);
    assert_non_null(fixture->cluster);
    snprintf(fixture->url, sizeof(fixture->url), "kafka://%s",
             rd_kafka_mock_cluster_bootstraps(fixture->cluster));
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_broker_close(fixture->broker);
    forgetful = NULL;
    rd_kafka_mock_cluster_destroy(fixture->cluster);
    rd_kafka_destroy(fixture->raw);
    free(fixture);
    return 0;
}

static void
count_event(void *user, enum skr_log_level level, const char *event,
            const struct skr_log_field *fields, size_t count)
{
    struct fixture *fixture = user;
    (void)level;
    for (size_t i = 0; i < count; i++)
        if (strcmp(event, "kafka.trouble") == 0 &&
            strcmp(fields[i].name, "error") == 0)
            snprintf(fixture->said, sizeof(fixture->said), "%s",
                     fields[i].text);
        else if (strcmp(event, "kafka.rebalanced") == 0 &&
                 strcmp(fields[i].name, "partitions") == 0)
            fixture->partitions += (int)fields[i].number;
    fixture->rebalances += strcmp(event, "kafka.rebalanced") == 0;
    fixture->troubles += strcmp(event, "kafka.trouble") == 0;
    fixture->recoveries += strcmp(event, "kafka.recovered") == 0;
    fixture->given_up += strcmp(event, "kafka.given_up") == 0;
}

static void
connect_as(struct fixture *fixture, bool consumes)
{
    struct skr_error error = {0};
    const struct skr_broker_options options = {
        .url = fixture->url,
        .consumes = consumes,
        .wake_fd = -1,
        .log = {.write = count_event, .user = fixture},
    };
    if (skr_broker_open(&skr_kafka_broker, &options, &fixture->broker,
                        &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static void
connect_broker(struct fixture *fixture)
{
    connect_as(fixture, false);
}

static void
set_answer_ms(struct fixture *fixture, int time_ms)
{
    assert_int_equal(
        rd_kafka_mock_broker_set_rtt(fixture->cluster, ALL, time_ms), 0);
}

// As a relay does that sends to others meanwhile: how often it was looked for.
static int
ask_for_results(struct fixture *fixture)
{
    int before = looks;
    for (int i = 0; i < CALLS; i++) {
        struct skr_published published;
        size_t count = 1;
        assert_int_equal(fixture->broker->ops->results(
                             fixture->broker, &published, 1, &count, 0, NULL),
                         SKR_OK);
        assert_int_equal(count, 0);
    }
    return looks - before;
}

static void
test_a_cluster_that_is_slow_is_reached(void **state)
{
    struct fixture *fixture = *state;
    set_answer_ms(fixture, SLOW_MS);
    connect_broker(fixture);
    // It is not called away later on because of that.
    ahead_ms += LOOK_MS;
    assert_int_equal(ask_for_results(fixture), 1);
    assert_true(patience_ms > SLOW_MS);
}

static void
test_one_that_hangs_is_seldom_asked_and_ends_nothing(void **state)
{
    struct fixture *fixture = *state;
    connect_broker(fixture);
    set_answer_ms(fixture, FOREVER_MS);
    // Far beyond confirm_timeout.
    for (int i = 0; i < 10; i++) {
        ahead_ms += LOOK_MS;
        assert_true(ask_for_results(fixture) <= 1);
    }
    assert_true(fixture->troubles > 0);
    assert_int_equal(fixture->recoveries, 0);
    // A reader of the log who was told of the trouble is told of its end.
    skr_broker_close(fixture->broker);
    fixture->broker = NULL;
    assert_int_equal(fixture->given_up, 1);
}

static void
connect_consumer(struct fixture *fixture)
{
    assert_int_equal(
        rd_kafka_mock_topic_create(fixture->cluster, "orders", 1, 1), 0);
    size_t used = strlen(fixture->url);
    snprintf(fixture->url + used, sizeof(fixture->url) - used,
             "?topics=orders&group=orders&connect_timeout=3");
    connect_as(fixture, true);
}

static void
expect_nothing_to_consume(struct fixture *fixture)
{
    struct skr_incoming incoming;
    size_t count = 0;
    struct skr_error error = {0};
    enum skr_code code = fixture->broker->ops->receive(
        fixture->broker, &incoming, 1, &count, 100, &error);
    if (code != SKR_TIMEOUT)
        fail_msg("%d: %s", (int)code, error.text);
}

static void
receive_until(struct fixture *fixture, const int *events)
{
    int64_t end_ms = __real_skr_clock_ms() + DEADLINE_MS;
    while (*events == 0 && __real_skr_clock_ms() < end_ms)
        expect_nothing_to_consume(fixture);
    assert_int_equal(*events, 1);
}

// An answer waits behind the fetch that a broker is busy with.
static void
test_a_consumer_with_nothing_to_do_is_not_in_trouble(void **state)
{
    struct fixture *fixture = *state;
    connect_consumer(fixture);
    expect_nothing_to_consume(fixture);
    set_answer_ms(fixture, SLOW_MS);
    for (int i = 0; i < 10; i++) {
        ahead_ms += LOOK_MS;
        expect_nothing_to_consume(fixture);
    }
    assert_int_equal(fixture->troubles, 0);
}

// A group answers when all of its members are there, which may take minutes.
static void
test_a_consumer_that_waits_for_its_group_knows_whether_it_hangs(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(rd_kafka_mock_broker_push_request_error_rtts(
                         fixture->cluster, 1, JOIN_GROUP, 1,
                         RD_KAFKA_RESP_ERR_NO_ERROR, FOREVER_MS),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    connect_consumer(fixture);
    int64_t end_ms = __real_skr_clock_ms() + DEADLINE_MS;
    for (int last = looks + 2;
         looks < last && __real_skr_clock_ms() < end_ms;) {
        ahead_ms += LOOK_MS;
        expect_nothing_to_consume(fixture);
    }
    assert_int_equal(fixture->troubles, 0);
    set_answer_ms(fixture, FOREVER_MS);
    receive_until(fixture, &fixture->troubles);
    set_answer_ms(fixture, 0);
    receive_until(fixture, &fixture->recoveries);
}

// A topic that was made just now is not known to all brokers at once. Where the
// leader of a group asks another than the consumer did it gives out nothing.
static void
test_a_consumer_soon_finds_a_topic_that_was_not_known_everywhere(void **state)
{
    struct fixture *fixture = *state;
    forgetful = fixture->cluster;
    connect_consumer(fixture);
    receive_until(fixture, &fixture->rebalances);
    assert_int_equal(fixture->partitions, 0);
    rd_kafka_mock_topic_set_error(fixture->cluster, "orders",
                                  RD_KAFKA_RESP_ERR_NO_ERROR);
    receive_until(fixture, &fixture->partitions);
}

static void
set_leader(struct fixture *fixture, int broker)
{
    assert_int_equal(rd_kafka_mock_partition_set_leader(fixture->cluster,
                                                        "orders", 0, broker),
                     0);
}

static void
test_a_consumer_says_that_a_partition_has_no_leader(void **state)
{
    struct fixture *fixture = *state;
    connect_consumer(fixture);
    expect_nothing_to_consume(fixture);
    set_leader(fixture, -1);
    receive_until(fixture, &fixture->troubles);
    assert_non_null(strstr(fixture->said, "partition 0 of topic orders"));
    assert_non_null(strstr(fixture->said, "127.0.0.1:"));
    assert_int_equal(fixture->recoveries, 0);
    set_leader(fixture, 1);
    receive_until(fixture, &fixture->recoveries);
}

// In time: well before confirm_timeout.
static void
test_a_relay_says_that_a_partition_has_no_leader(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_route route = {.topic = "orders", .key = "k"};
    struct skr_message message = {
        .name = "order.placed", .body = "{}", .body_size = 2};
    struct skr_published published = {0};
    size_t count = 0;
    assert_int_equal(skr_id_new(&message.id, NULL), SKR_OK);
    assert_int_equal(
        rd_kafka_mock_topic_create(fixture->cluster, "orders", 1, 1), 0);
    set_leader(fixture, -1);
    connect_broker(fixture);
    const struct skr_broker_ops *ops = fixture->broker->ops;
    assert_int_equal(ops->submit(fixture->broker, &message, &route, 1, NULL),
                     SKR_OK);
    int64_t end_ms = __real_skr_clock_ms() + DEADLINE_MS;
    while (count == 0 && __real_skr_clock_ms() < end_ms) {
        assert_int_equal(
            ops->results(fixture->broker, &published, 1, &count, 100, NULL),
            SKR_OK);
        if (fixture->troubles > 0)
            set_leader(fixture, 1);
    }
    assert_int_equal(published.result, SKR_CONFIRMED);
    assert_int_equal(fixture->troubles, 1);
    assert_non_null(strstr(fixture->said, "partition 0 of topic orders"));
    while (fixture->recoveries == 0 && __real_skr_clock_ms() < end_ms)
        assert_int_equal(
            ops->results(fixture->broker, &published, 1, &count, 100, NULL),
            SKR_OK);
    assert_int_equal(fixture->recoveries, 1);
}

static void
confirm_one(struct fixture *fixture, uint64_t tag)
{
    const struct skr_message message = {
        .name = "orders", .body = "m", .body_size = 1};
    struct skr_published published = {0};
    struct skr_error error = {0};
    size_t count = 0;
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    if (fixture->broker->ops->submit(fixture->broker, &message, NULL, tag,
                                     &error) != SKR_OK)
        fail_msg("%s", error.text);
    while (count == 0 && skr_clock_ms() < end)
        if (fixture->broker->ops->results(fixture->broker, &published, 1,
                                          &count, 10, &error) != SKR_OK)
            fail_msg("%s", error.text);
    if (published.result != SKR_CONFIRMED)
        fail_msg("%s", published.reason.text);
    assert_int_equal(published.tag, tag);
}

// A relay asks for no results while it has sent nothing, as when its database
// keeps it waiting.
static void
test_time_in_which_nothing_was_sent_is_not_held_against_it(void **state)
{
    struct fixture *fixture = *state;
    connect_broker(fixture);
    confirm_one(fixture, 1);
    set_answer_ms(fixture, SLOW_MS);
    // Far beyond confirm_timeout.
    ahead_ms += FOREVER_MS;
    confirm_one(fixture, 2);
    assert_int_equal(fixture->troubles, 0);
}

int
main(void)
{
#define SILENT(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        SILENT(test_a_cluster_that_is_slow_is_reached),
        SILENT(test_one_that_hangs_is_seldom_asked_and_ends_nothing),
        SILENT(test_a_consumer_with_nothing_to_do_is_not_in_trouble),
        SILENT(test_a_consumer_that_waits_for_its_group_knows_whether_it_hangs),
        SILENT(
            test_a_consumer_soon_finds_a_topic_that_was_not_known_everywhere),
        SILENT(test_a_consumer_says_that_a_partition_has_no_leader),
        SILENT(test_a_relay_says_that_a_partition_has_no_leader),
        SILENT(test_time_in_which_nothing_was_sent_is_not_held_against_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
