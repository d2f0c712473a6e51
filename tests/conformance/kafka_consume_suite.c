// SPDX-License-Identifier: MIT
// Consuming from a real Kafka: what comes, how far the group has come, and what
// comes again.
#include "kafka_world.h"
#include "support/oom.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static void
expect_nothing(struct skr_broker *broker, uint32_t timeout_ms)
{
    struct skr_incoming incoming;
    struct skr_error error = {0};
    size_t count = 0;
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, timeout_ms, &error),
        SKR_TIMEOUT);
    assert_int_equal(count, 0);
}

// Receives and acknowledges until the numbers from 0 to count - 1 were seen;
// those that came twice are counted.
static size_t
drain(struct skr_broker *broker, bool *seen, size_t count)
{
    struct skr_incoming incoming[BATCH];
    size_t left = 0, twice = 0;
    for (size_t i = 0; i < count; i++)
        left += !seen[i];
    while (left > 0) {
        size_t found = receive(broker, incoming, BATCH);
        for (size_t i = 0; i < found; i++) {
            size_t number = delivery_number(&incoming[i]);
            assert_true(number < count);
            left -= !seen[number];
            twice += seen[number];
            seen[number] = true;
        }
        settle(broker, incoming, found, SKR_SETTLE_ACK);
    }
    return twice;
}

static void
test_all_records_come_once_and_in_order(void **state)
{
    struct world *world = *state;
    enum { COUNT = 5000 };
    put_numbers(world, 0, COUNT);
    struct skr_broker *broker = open_receiver(world, "");
    struct skr_incoming incoming[BATCH];
    size_t last[10] = {0}, total = 0;
    assert_true(broker->can.delays);
    while (total < COUNT) {
        size_t count = receive(broker, incoming, BATCH);
        for (size_t i = 0; i < count; i++) {
            size_t number = delivery_number(&incoming[i]);
            // The next of its key, without a gap.
            assert_int_equal(number, last[number % 10] * 10 + number % 10);
            last[number % 10]++;
            assert_true(incoming[i].partition > 0);
            assert_false(incoming[i].redelivered);
            assert_int_equal(incoming[i].retry_count, 0);
            assert_true(incoming[i].created_at_us > 0);
        }
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        total += count;
    }
    expect_nothing(broker, 0);
    skr_broker_close(broker);
    // The group has come to the end.
    broker = open_receiver(world, "");
    expect_nothing(broker, 2000);
    skr_broker_close(broker);
}

static void
test_what_is_not_settled_comes_again_to_the_next_consumer(void **state)
{
    struct world *world = *state;
    enum { COUNT = 300 };
    bool seen[COUNT] = {false};
    struct skr_incoming incoming[BATCH];
    put_numbers(world, 0, COUNT);
    struct skr_broker *broker = open_receiver(world, "");
    size_t count = receive(broker, incoming, BATCH);
    // The first alone is settled, and the last of each partition is not.
    settle(broker, incoming, 1, SKR_SETTLE_ACK);
    seen[delivery_number(&incoming[0])] = true;
    settle(broker, incoming + 1, count - 1, SKR_SETTLE_REQUEUE);
    skr_broker_close(broker);
    broker = open_receiver(world, "");
    assert_int_equal(drain(broker, seen, COUNT), 0);
    skr_broker_close(broker);
}

// Offsets go no further than the first that is open.
static void
test_a_gap_keeps_the_group_behind_it(void **state)
{
    struct world *world = *state;
    enum { COUNT = 40 };
    struct skr_incoming incoming[BATCH];
    char topic[80], url[600];
    snprintf(topic, sizeof(topic), "%s.one", world->topic);
    snprintf(url, sizeof(url), "%s/%s?group=%s", world->url, topic, topic);
    create_topic(world, topic, 1, NULL, NULL);
    struct skr_broker *sender = open_broker(world, "");
    for (size_t i = 0; i < COUNT; i++) {
        make_message(world, i);
        submit(world, sender, i, topic, "key");
    }
    collect(world, sender, COUNT);
    skr_broker_close(sender);

    struct skr_broker *broker = NULL;
    assert_int_equal(try_open(url, true, false, &broker, NULL), SKR_OK);
    size_t count = receive(broker, incoming, 20);
    assert_true(count > 10);
    for (size_t i = 0; i < count; i++)
        incoming[i].settlement = i == 5 ? SKR_SETTLE_REQUEUE : SKR_SETTLE_ACK;
    assert_int_equal(broker->ops->settle(broker, incoming, count, NULL),
                     SKR_OK);
    // Here only that one is missing.
    size_t again = receive(broker, incoming, 20);
    assert_int_equal(delivery_number(&incoming[0]), 5);
    if (again > 1)
        assert_true(delivery_number(&incoming[1]) >= count);
    settle(broker, incoming, again, SKR_SETTLE_REQUEUE);
    skr_broker_close(broker);
    // Who comes next does not know of the others.
    assert_int_equal(try_open(url, true, false, &broker, NULL), SKR_OK);
    receive(broker, incoming, 20);
    assert_int_equal(delivery_number(&incoming[0]), 5);
    skr_broker_close(broker);
}

// A consumer that went on behind it would pass it.
static void
test_what_finds_no_memory_ends_the_connection(void **state)
{
    struct world *world = *state;
    struct skr_incoming incoming[BATCH];
    struct skr_error error = {0};
    size_t count = 0;
    put_numbers(world, 0, 20);
    struct skr_broker *broker = open_receiver(world, "");
    settle(broker, incoming, receive(broker, incoming, 1), SKR_SETTLE_ACK);
    skr_oom_arm(1);
    assert_int_equal(broker->ops->receive(broker, incoming, BATCH, &count,
                                          DEADLINE_MS, &error),
                     SKR_NO_MEMORY);
    assert_true(skr_oom_disarm());
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_int_equal(broker->ops->receive(broker, incoming, BATCH, &count,
                                          DEADLINE_MS, &error),
                     SKR_NO_MEMORY);
    skr_broker_close(broker);
}

static void
check_delay(struct world *world, enum skr_settlement settlement,
            uint32_t retries)
{
    enum { COUNT = 400, DELAY_MS = 1500 };
    bool seen[COUNT] = {false};
    struct skr_incoming incoming[BATCH];
    put_numbers(world, 0, COUNT);
    struct skr_broker *broker = open_receiver(world, "");
    size_t count = receive(broker, incoming, 1);
    size_t held = delivery_number(&incoming[0]);
    uint64_t first = incoming[0].partition;
    incoming[0].delay_ms = DELAY_MS;
    settle(broker, incoming, count, settlement);
    int64_t due_ms = skr_clock_ms() + DELAY_MS;
    size_t others = 0, total = 0;
    bool came = false;
    while (total < COUNT) {
        count = receive(broker, incoming, 10);
        int64_t now_ms = skr_clock_ms();
        for (size_t i = 0; i < count; i++) {
            size_t number = delivery_number(&incoming[i]);
            if (incoming[i].partition == first && !came) {
                assert_int_equal(number, held);
                assert_int_equal(incoming[i].retry_count, retries);
                assert_true(now_ms >= due_ms - 5);
                came = true;
            }
            others += !came;
            assert_false(seen[number]);
            seen[number] = true;
        }
        // A consumer that stops at the end of the queue waits for it.
        assert_true(came || broker->ops->status(broker).has_deferred);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        total += count;
    }
    assert_true(came);
    expect_nothing(broker, 0);
    assert_false(broker->ops->status(broker).has_deferred);
    assert_true(others > 0);
    skr_broker_close(broker);
}

static void
test_a_retry_holds_its_partition_and_no_other(void **state)
{
    check_delay(*state, SKR_SETTLE_RETRY, 1);
}

static void
test_what_is_held_holds_its_partition_and_spends_no_retry(void **state)
{
    check_delay(*state, SKR_SETTLE_DEFER, 0);
}

static void
test_a_member_that_joins_gets_its_share_and_nothing_is_lost_or_doubled(
    void **state)
{
    struct world *world = *state;
    enum { COUNT = 4000 };
    static bool seen[COUNT];
    struct skr_incoming incoming[BATCH];
    memset(seen, 0, sizeof(seen));
    put_numbers(world, 0, COUNT);
    struct skr_broker *members[3] = {open_receiver(world, "")};
    size_t shares[3] = {0}, total = 0, rounds = 0;
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (total < COUNT && skr_clock_ms() < end_ms) {
        for (size_t k = 0; k < 3; k++) {
            size_t count = 0;
            struct skr_error error = {0};
            if (members[k] == NULL)
                continue;
            enum skr_code code = members[k]->ops->receive(
                members[k], incoming, 10, &count, 20, &error);
            if (code == SKR_TIMEOUT)
                continue;
            if (code != SKR_OK)
                fail_msg("%s", error.text);
            for (size_t i = 0; i < count; i++) {
                size_t number = delivery_number(&incoming[i]);
                assert_false(seen[number]);
                seen[number] = true;
            }
            settle(members[k], incoming, count, SKR_SETTLE_ACK);
            shares[k] += count;
            total += count;
        }
        rounds++;
        if (rounds == 20)
            members[1] = open_receiver(world, "");
        if (shares[1] > 100 && members[2] == NULL && shares[2] == 0)
            members[2] =
                open_receiver(world, "&partition.assignment.strategy=range");
        if (shares[2] > 50 && members[0] != NULL) {
            skr_broker_close(members[0]);
            members[0] = NULL;
        }
    }
    assert_int_equal(total, COUNT);
    assert_true(shares[1] > 0);
    for (size_t k = 0; k < 3; k++)
        skr_broker_close(members[k]);
}

// A process that died over a record leaves it, and no more than it had in hand,
// to be handled alone.
static void
test_what_a_dead_consumer_had_in_hand_is_marked(void **state)
{
    struct world *world = *state;
    enum { COUNT = 200 };
    struct skr_incoming incoming[BATCH];
    char topic[80], parameters[200];
    snprintf(topic, sizeof(topic), "%s.one", world->topic);
    create_topic(world, topic, 1, NULL, NULL);
    snprintf(parameters, sizeof(parameters),
             "&topics=%s&session.timeout.ms=6000", topic);
    struct skr_broker *sender = open_broker(world, "");
    for (size_t i = 0; i < COUNT; i++) {
        make_message(world, i);
        submit(world, sender, i, topic, "key");
    }
    collect(world, sender, COUNT);
    skr_broker_close(sender);

    pid_t child = fork();
    if (child == 0) {
        struct skr_broker *broker = open_receiver(world, parameters);
        size_t count = receive(broker, incoming, 10);
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        // The answer to the next comes after that to the first.
        while (delivery_number(&incoming[0]) < 20) {
            count = receive(broker, incoming, 10);
            if (delivery_number(&incoming[0]) < 20)
                settle(broker, incoming, count, SKR_SETTLE_ACK);
        }
        skr_clock_sleep(-1, 1000);
        raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    struct skr_broker *broker = open_receiver(world, parameters);
    size_t marked = 0, total = 0, first = SIZE_MAX;
    while (total < 100) {
        size_t count = receive(broker, incoming, 10);
        for (size_t i = 0; i < count; i++) {
            marked += incoming[i].redelivered;
            if (first == SIZE_MAX)
                first = delivery_number(&incoming[i]);
            // From the first on, and then no more.
            assert_int_equal(incoming[i].redelivered,
                             delivery_number(&incoming[i]) < first + marked);
        }
        settle(broker, incoming, count, SKR_SETTLE_ACK);
        total += count;
    }
    assert_int_equal(marked, 10);
    assert_in_range(first, 10, 30);
    skr_broker_close(broker);
}

static void
test_a_topic_that_is_missing_is_named_or_made(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    char url[600];
    snprintf(url, sizeof(url), "%s?topics=%s,%s.none&group=g", world->url,
             world->topic, world->topic);
    assert_int_equal(try_open(url, true, false, &broker, &error), SKR_MISSING);
    assert_non_null(strstr(error.text, ".none does not exist"));
    assert_int_equal(try_open(url, true, true, &broker, &error), SKR_OK);
    skr_broker_close(broker);
    assert_int_equal(try_open(url, true, false, &broker, &error), SKR_OK);
    skr_broker_close(broker);
    assert_int_equal(try_open(world->url, true, true, &broker, &error),
                     SKR_INVALID);
    assert_non_null(strstr(error.text, "no topic to consume from"));
}

static void
test_a_wake_ends_the_wait(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker = NULL;
    struct skr_incoming incoming[1];
    struct skr_error error = {0};
    size_t count = 0;
    char url[600];
    int wake_fd = eventfd(0, EFD_CLOEXEC);
    snprintf(url, sizeof(url), "%s/%s?group=g", world->url, world->topic);
    const struct skr_broker_options options = {
        .url = url, .consumes = true, .wake_fd = wake_fd};
    assert_int_equal(
        skr_broker_open(&skr_kafka_broker, &options, &broker, &error), SKR_OK);
    assert_int_equal(eventfd_write(wake_fd, 1), 0);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(
        broker->ops->receive(broker, incoming, 1, &count, DEADLINE_MS, &error),
        SKR_STOPPED);
    assert_true(skr_clock_ms() - start_ms < DEADLINE_MS / 2);
    skr_broker_close(broker);
    close(wake_fd);
}

// Of a server that takes connections and says nothing.
static void
test_a_wake_ends_connecting(void **state)
{
    (void)state;
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int silent_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silent_fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(silent_fd, 16), 0);
    assert_int_equal(getsockname(silent_fd, (struct sockaddr *)&address, &size),
                     0);
    char url[100];
    snprintf(url, sizeof(url), "kafka://127.0.0.1:%d/t?connect_timeout=600",
             ntohs(address.sin_port));
    int wake_fd = eventfd(1, EFD_CLOEXEC);
    for (int consumes = 0; consumes < 2; consumes++) {
        const struct skr_broker_options options = {
            .url = url, .consumes = consumes == 1, .wake_fd = wake_fd};
        assert_int_equal(
            skr_broker_open(&skr_kafka_broker, &options, &broker, &error),
            SKR_STOPPED);
    }
    close(wake_fd);
    close(silent_fd);
}

static void
count_joins(void *user, enum skr_log_level level, const char *event,
            const struct skr_log_field *fields, size_t count)
{
    int *events = user;
    (void)level;
    (void)fields;
    (void)count;
    events[0] += strcmp(event, "kafka.rebalanced") == 0;
    events[1] += strcmp(event, "kafka.joined_again") == 0;
}

// There are more members than partitions: nothing is to be had, and the others
// are not disturbed.
static void
test_a_member_that_is_given_nothing_leaves_the_others_alone(void **state)
{
    struct world *world = *state;
    enum { LOOKED_MS = 5000 };
    struct skr_broker *members[2] = {NULL};
    struct skr_incoming incoming[BATCH];
    int events[2] = {0};
    char topic[80], url[600];
    snprintf(topic, sizeof(topic), "%s.one", world->topic);
    snprintf(url, sizeof(url), "%s/%s?group=%s", world->url, topic, topic);
    create_topic(world, topic, 1, NULL, NULL);
    const struct skr_broker_options options = {
        .url = url,
        .consumes = true,
        .wake_fd = -1,
        .log = {.write = count_joins, .user = events}};
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS, calm_ms = 0;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            skr_broker_open(&skr_kafka_broker, &options, &members[i], NULL),
            SKR_OK);
    // The second is given nothing; then some time has passed for it to ask.
    for (int seen = 0; calm_ms == 0 || skr_clock_ms() < calm_ms;) {
        for (size_t i = 0; i < 2; i++) {
            size_t count = 0;
            enum skr_code code = members[i]->ops->receive(
                members[i], incoming, BATCH, &count, 20, NULL);
            assert_int_equal(code, SKR_TIMEOUT);
        }
        if (events[0] != seen)
            calm_ms = skr_clock_ms() + LOOKED_MS;
        seen = events[0];
        assert_true(skr_clock_ms() < end_ms);
    }
    assert_int_equal(events[1], 0);
    for (size_t i = 0; i < 2; i++)
        skr_broker_close(members[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        KAFKA_TEST(test_all_records_come_once_and_in_order),
        KAFKA_TEST(test_what_is_not_settled_comes_again_to_the_next_consumer),
        KAFKA_TEST(test_a_gap_keeps_the_group_behind_it),
        KAFKA_TEST(test_what_finds_no_memory_ends_the_connection),
        KAFKA_TEST(test_a_retry_holds_its_partition_and_no_other),
        KAFKA_TEST(test_what_is_held_holds_its_partition_and_spends_no_retry),
        KAFKA_TEST(
            test_a_member_that_joins_gets_its_share_and_nothing_is_lost_or_doubled),
        KAFKA_TEST(test_a_member_that_is_given_nothing_leaves_the_others_alone),
        KAFKA_TEST(test_what_a_dead_consumer_had_in_hand_is_marked),
        KAFKA_TEST(test_a_topic_that_is_missing_is_named_or_made),
        KAFKA_TEST(test_a_wake_ends_the_wait),
        KAFKA_TEST(test_a_wake_ends_connecting),
    };
    if (is_kafka_missing())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
