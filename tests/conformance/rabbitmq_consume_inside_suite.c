// SPDX-License-Identifier: MIT
// Consuming from a server that misbehaves, and the bookkeeping of deliveries
// against chance. No server is needed.

#include "broker/rabbitmq/deliveries.h"
#include "rabbitmq_receiver.h"
#include "support/fake_rabbitmq.h"
#include "support/oom.h"

#include <arpa/inet.h>

static struct skr_fake_rabbitmq fake;

static int
start(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    skr_fake_rabbitmq_start(&fake, NULL);
    snprintf(world->url, sizeof(world->url), "amqp://a:secret@127.0.0.1:%d/",
             fake.port);
    *state = world;
    return 0;
}

static int
stop(void **state)
{
    skr_fake_rabbitmq_stop(&fake);
    free(*state);
    return 0;
}

static struct skr_broker *
open_on(struct world *world, const char *queue, const char *parameters)
{
    snprintf(world->queue, sizeof(world->queue), "%s", queue);
    return open_receiver(world, parameters);
}

static enum skr_code
receive_to_the_end(struct skr_broker *broker, struct skr_error *error)
{
    struct skr_incoming incoming;
    size_t count = 0;
    int64_t end = skr_clock_ms() + DEADLINE_MS;
    enum skr_code code = SKR_TIMEOUT;
    while (code == SKR_TIMEOUT && skr_clock_ms() < end)
        code = broker->ops->receive(broker, &incoming, 1, &count, 100, error);
    return code;
}

static void
test_what_makes_no_sense_ends_the_connection(void **state)
{
    static const struct {
        const char *queue, *says;
    } cases[] = {
        {"unturned", "out of turn"},
        {"nobody", "for nobody"},
        {"twice", "out of turn"},
        {"bodiless", "out of place"},
        {"endless", "out of place"},
        {"huge", "out of place"},
        {"cancelled", "cancelled"},
        {"406", "406"},
        {"541", "541"},
    };
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_broker *broker = open_on(world, cases[i].queue, "");
        struct skr_error error = {0};
        assert_int_equal(receive_to_the_end(broker, &error), SKR_UNAVAILABLE);
        assert_int_equal(error.remedy, SKR_RECONNECT);
        if (strstr(error.text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].queue, error.text);
        skr_broker_close(broker);
    }
}

// Whole messages come through, and then the end is told; never a part of one.
static void
test_a_connection_cut_at_any_byte_gives_whole_messages_only(void **state)
{
    struct world *world = *state;
    size_t most = 0;
    for (size_t bytes = 0; bytes < 2600; bytes += bytes < 260 ? 1 : 97) {
        char queue[32];
        struct skr_error error = {0};
        struct skr_incoming incoming[20];
        size_t done = 0, count = 0;
        enum skr_code code = SKR_OK;
        snprintf(queue, sizeof(queue), "cut-%zu", bytes);
        struct skr_broker *broker = open_on(world, queue, "");
        while (code == SKR_OK) {
            code = broker->ops->receive(broker, incoming, 20, &count,
                                        DEADLINE_MS, &error);
            for (size_t i = 0; code == SKR_OK && i < count; i++) {
                assert_int_equal(incoming[i].body_size, 6);
                assert_memory_equal(incoming[i].body, "abcdef", 6);
                assert_string_equal(header_of(&incoming[i], "type"), "a.b");
            }
            done += code == SKR_OK ? count : 0;
            for (size_t i = 0; i < count; i++)
                incoming[i].settlement = SKR_SETTLE_ACK;
            if (code == SKR_OK)
                code = broker->ops->settle(broker, incoming, count, &error);
            if (done == 20)
                break;
        }
        assert_true(done == 20 || code == SKR_UNAVAILABLE);
        assert_true(done == 20 || error.remedy == SKR_RECONNECT);
        most = done > most ? done : most;
        skr_broker_close(broker);
    }
    assert_true(most > 10);
}

static void
test_a_server_that_does_not_answer_is_given_up(void **state)
{
    struct world *world = *state;
    struct skr_broker *broker =
        open_on(world, "silent", "&confirm_timeout=0.5");
    struct skr_error error = {0};
    assert_int_equal(receive_to_the_end(broker, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "confirm_timeout"));
    skr_broker_close(broker);
}

static void
test_a_consumer_goes_on_to_a_host_that_answers(void **state)
{
    struct world *world = *state;
    struct skr_fake_rabbitmq other;
    char names[2][32];
    int last = -1;
    skr_fake_rabbitmq_start(&other, NULL);
    snprintf(names[0], sizeof(names[0]), "127.0.0.1:%d ", fake.port);
    snprintf(names[1], sizeof(names[1]), "127.0.0.1:%d ", other.port);
    snprintf(world->url, sizeof(world->url),
             "amqp://a:secret@127.0.0.1:%d,127.0.0.1:%d/", fake.port,
             other.port);
    for (size_t i = 0; i < 10; i++) {
        struct skr_error error = {0};
        struct skr_broker *broker =
            open_on(world, "silent", "&confirm_timeout=0.1");
        assert_int_equal(receive_to_the_end(broker, &error), SKR_UNAVAILABLE);
        int which = strstr(error.text, names[0]) != NULL ? 0 : 1;
        assert_non_null(strstr(error.text, names[which]));
        assert_int_not_equal(which, last);
        last = which;
        skr_broker_close(broker);
    }
    skr_fake_rabbitmq_stop(&other);
}

// In a cluster of which a node hangs a binding would never be answered.
static void
test_a_delay_queue_that_is_bound_is_not_bound_again(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_incoming incoming;
    struct skr_broker *broker =
        open_on(world, "good",
                "&retry_via=delay_queue&confirm_timeout=2"
                "&delay[queue_name_pattern]=unbindable");
    assert_int_equal(receive(broker, &incoming, 1), 1);
    incoming.settlement = SKR_SETTLE_RETRY;
    incoming.delay_ms = 1000;
    assert_int_equal(broker->ops->settle(broker, &incoming, 1, &error), SKR_OK);
    assert_false(incoming.was_refused);
    skr_broker_close(broker);
}

static void
test_properties_that_cannot_be_read_cost_only_their_message(void **state)
{
    static const char *const queues[] = {"broken", "unknown"};
    struct world *world = *state;
    for (size_t k = 0; k < SKR_COUNT_OF(queues); k++) {
        struct skr_broker *broker = open_on(world, queues[k], "");
        struct skr_incoming incoming[21];
        for (size_t done = 0; done < 21;) {
            size_t count = receive(broker, incoming, 21);
            for (size_t i = 0; i < count; i++) {
                bool is_bad = done + i == 0;
                assert_int_equal(incoming[i].problem.code,
                                 is_bad ? SKR_MALFORMED : SKR_OK);
                assert_int_equal(incoming[i].raw_headers != NULL, is_bad);
                if (is_bad)
                    continue;
                assert_string_equal(header_of(&incoming[i], "type"), "a.b");
                assert_string_equal(header_of(&incoming[i], "t"), "{\"n\":7}");
                assert_memory_equal(incoming[i].body, "abcdef", 6);
            }
            settle(broker, incoming, count, SKR_SETTLE_ACK);
            done += count;
        }
        skr_broker_close(broker);
    }
}

// A server may agree to frames of any size.
static void
test_headers_over_the_limit_are_not_read(void **state)
{
    enum { HEAD = 7 };  // a name of one byte, a kind, four bytes of a size
    static const size_t over[] = {0, 1};
    unsigned char *bytes = malloc(SKR_MAX_HEADERS_SIZE + 1);
    (void)state;
    memset(bytes, 'x', SKR_MAX_HEADERS_SIZE + 1);
    for (size_t i = 0; i < SKR_COUNT_OF(over); i++) {
        struct skr_arena arena = {0};
        struct skr_headers headers = {0};
        struct skr_error error = {0};
        struct skr_amqp_piece table = {.bytes = bytes,
                                       .size = SKR_MAX_HEADERS_SIZE + over[i]};
        uint32_t size = htonl((uint32_t)(table.size - HEAD));
        memcpy(bytes, "\001nS", 3);
        memcpy(bytes + 3, &size, sizeof(size));
        assert_int_equal(
            skr_rabbit_headers_read(&arena, table, &headers, &error),
            over[i] == 0 ? SKR_OK : SKR_MALFORMED);
        assert_int_equal(headers.count, over[i] == 0);
        assert_int_equal(strstr(error.text, "1048576") != NULL, over[i] > 0);
        skr_arena_fini(&arena);
    }
    free(bytes);
}

// One consumer's life: receives, acknowledges, gives back, tries again later.
static void
run_session(struct world *world)
{
    struct skr_broker *broker = NULL;
    struct skr_error error = {0};
    struct skr_incoming incoming[8];
    if (try_open_receiver(world,
                          "queues=good&queues[good][arguments][x-max-length]=1"
                          "&retry_via=delay_queue&heartbeat=0",
                          true, &broker, &error) != SKR_OK) {
        assert_string_not_equal(error.text, "");
        return;
    }
    for (size_t done = 0; done < 20;) {
        size_t count = 0;
        enum skr_code code = broker->ops->receive(broker, incoming, 8, &count,
                                                  DEADLINE_MS, &error);
        if (code != SKR_OK) {
            assert_int_equal(code, SKR_NO_MEMORY);
            break;
        }
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(incoming[i].problem.code, SKR_OK);
            incoming[i].settlement = (enum skr_settlement)((done + i) % 4);
            incoming[i].delay_ms = 1000;
        }
        if (broker->ops->settle(broker, incoming, count, &error) != SKR_OK)
            break;
        done += count;
    }
    skr_broker_close(broker);
}

static void
test_memory_that_runs_out_leaks_nothing(void **state)
{
    struct world *world = *state;
    bool struck = true;
    size_t nth = 0;
    while (struck) {
        size_t live = skr_oom_live();
        skr_oom_arm(++nth);
        run_session(world);
        struck = skr_oom_disarm();
        assert_int_equal(skr_oom_live(), live);
    }
    assert_true(nth > 50);
}

// Whatever the memory was wanted for: the connection goes on, or the caller is
// told to make another. It is never told to try again what fails for ever.
static void
test_memory_that_runs_out_ends_no_consumer(void **state)
{
    struct world *world = *state;
    bool struck = true;
    size_t failures = 0;
    for (size_t nth = 1; struck; nth++) {
        struct skr_broker *broker = open_on(world, "good", "");
        struct skr_incoming incoming[8];
        struct skr_error error = {0};
        size_t count = 0;
        skr_oom_arm(nth);
        enum skr_code code = broker->ops->receive(broker, incoming, 8, &count,
                                                  DEADLINE_MS, &error);
        struck = skr_oom_disarm();
        if (code != SKR_OK) {
            failures++;
            assert_int_equal(code, SKR_NO_MEMORY);
            if (error.remedy == SKR_TRY_AGAIN)
                assert_int_equal(broker->ops->receive(broker, incoming, 8,
                                                      &count, DEADLINE_MS,
                                                      &error),
                                 SKR_OK);
            else
                assert_int_equal(error.remedy, SKR_RECONNECT);
        }
        skr_broker_close(broker);
    }
    assert_true(failures > 3);
}

enum fact { UNKNOWN, OPEN, PUT_OFF, WANTS_ACK, SETTLED };

// What the server holds: an ack must name a tag that it has not heard of yet,
// and takes nothing along that the caller has not dealt with.
static void
hear_ack(enum fact *facts, uint64_t tag, bool multiple, uint64_t *unheard)
{
    assert_int_equal(facts[tag], WANTS_ACK);
    for (uint64_t i = multiple ? 1 : tag; i <= tag; i++) {
        assert_int_not_equal(facts[i], OPEN);
        assert_int_not_equal(facts[i], PUT_OFF);
        *unheard -= facts[i] == WANTS_ACK;
        if (facts[i] == WANTS_ACK)
            facts[i] = SETTLED;
    }
}

static const unsigned char text[] = "body";

static void
take_in(struct rabbit_deliveries *deliveries, uint64_t tag)
{
    bool fits = false;
    assert_int_equal(
        skr_rabbit_deliveries_begin(deliveries, tag, 0, false, &fits, NULL),
        SKR_OK);
    assert_true(fits);
    assert_int_equal(
        skr_rabbit_deliveries_properties(
            deliveries, (struct skr_amqp_piece){text, 2}, 4, &fits, NULL),
        SKR_OK);
    assert_true(skr_rabbit_deliveries_body(deliveries,
                                           (struct skr_amqp_piece){text, 4}));
}

// A quorum queue that hears of each by itself may not have done so for all of
// them when the connection ends.
static void
test_what_was_put_off_is_acknowledged_in_one_go(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    struct rabbit_deliveries deliveries;
    struct rabbit_delivery *due = NULL;
    uint64_t tag = 0;
    skr_rabbit_deliveries_init(&deliveries);
    for (uint64_t i = 1; i <= COUNT; i++) {
        take_in(&deliveries, i);
        struct rabbit_delivery *given =
            skr_rabbit_deliveries_give(&deliveries, &tag);
        assert_non_null(given);
        skr_rabbit_deliveries_defer(&deliveries, given, 10);
        assert_int_equal(deliveries.deferred_count, i);
    }
    while ((due = skr_rabbit_deliveries_give_due(&deliveries, 10, &tag)) !=
           NULL)
        due->state = RABBIT_ACK_DUE;
    assert_int_equal(skr_rabbit_deliveries_ack(&deliveries), COUNT);
    assert_int_equal(skr_rabbit_deliveries_ack_alone(&deliveries, COUNT), 0);
    skr_rabbit_deliveries_fini(&deliveries);
}

static void
put_off(struct rabbit_deliveries *deliveries, enum fact *facts, uint64_t tag,
        int64_t now_ms)
{
    struct rabbit_delivery *given = skr_rabbit_deliveries_find(deliveries, tag);
    assert_non_null(given);
    skr_rabbit_deliveries_defer(deliveries, given, now_ms + random() % 100);
    assert_null(skr_rabbit_deliveries_find(deliveries, tag));
    facts[tag] = PUT_OFF;
}

static void
test_acks_hold_against_chance(void **state)
{
    (void)state;
    enum { TOTAL = 20000, MOST_OPEN = 300 };
    struct rabbit_deliveries deliveries;
    enum fact *facts = calloc(TOTAL + 2, sizeof(*facts));
    uint64_t come = 0, given = 0, unheard = 0, tag = 0;
    size_t settled = 0;
    srandom(1);
    skr_rabbit_deliveries_init(&deliveries);
    for (int64_t now_ms = 0; settled < TOTAL; now_ms++) {
        long dice = random() % 100;
        if (dice < 40 && come < TOTAL && come - settled < MOST_OPEN) {
            take_in(&deliveries, ++come);
        } else if (dice < 70 &&
                   skr_rabbit_deliveries_give(&deliveries, &tag) != NULL) {
            assert_int_equal(tag, ++given);
            facts[tag] = OPEN;
        } else if (dice < 90 && deliveries.count > 0 &&
                   deliveries.items[0].tag < deliveries.next) {
            uint64_t first = deliveries.items[0].tag;
            tag = first + (uint64_t)random() % (deliveries.next - first);
            struct rabbit_delivery *found =
                skr_rabbit_deliveries_find(&deliveries, tag);
            assert_int_equal(found != NULL, facts[tag] == OPEN);
            if (found == NULL)
                continue;
            if (random() % 50 == 0) {
                put_off(&deliveries, facts, tag, now_ms);
                continue;
            }
            bool is_back = random() % 4 == 0;
            found->state = is_back ? RABBIT_OVER : RABBIT_ACK_DUE;
            facts[tag] = is_back ? SETTLED : WANTS_ACK;
            unheard += !is_back;
            settled++;
        } else {
            struct rabbit_delivery *due = NULL;
            while ((due = skr_rabbit_deliveries_give_due(&deliveries, now_ms,
                                                         &tag)) != NULL) {
                assert_int_equal(facts[tag], PUT_OFF);
                assert_memory_equal(due->block + 2, text, 4);
                assert_ptr_equal(skr_rabbit_deliveries_find(&deliveries, tag),
                                 due);
                if (random() % 3 == 0) {
                    put_off(&deliveries, facts, tag, now_ms + 1);
                    continue;
                }
                due->state = RABBIT_ACK_DUE;
                facts[tag] = WANTS_ACK;
                unheard++;
                settled++;
            }
            uint64_t last = skr_rabbit_deliveries_ack(&deliveries);
            if (last > 0)
                hear_ack(facts, last, true, &unheard);
            while ((last = skr_rabbit_deliveries_ack_alone(&deliveries, last)) >
                   0)
                hear_ack(facts, last, false, &unheard);
            assert_int_equal(unheard, 0);
            skr_rabbit_deliveries_tidy(&deliveries);
            assert_true(deliveries.held_bytes + deliveries.deferred_bytes <=
                        6 * (come - settled));
            assert_int_equal(deliveries.deferred_bytes,
                             6 * deliveries.deferred_count);
        }
    }
    skr_rabbit_deliveries_fini(&deliveries);
    free(facts);
}

int
main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(test_what_makes_no_sense_ends_the_connection),
        CASE(test_a_connection_cut_at_any_byte_gives_whole_messages_only),
        CASE(test_a_server_that_does_not_answer_is_given_up),
        CASE(test_a_consumer_goes_on_to_a_host_that_answers),
        CASE(test_a_delay_queue_that_is_bound_is_not_bound_again),
        CASE(test_properties_that_cannot_be_read_cost_only_their_message),
        cmocka_unit_test(test_headers_over_the_limit_are_not_read),
        CASE(test_memory_that_runs_out_leaks_nothing),
        CASE(test_memory_that_runs_out_ends_no_consumer),
        cmocka_unit_test(test_what_was_put_off_is_acknowledged_in_one_go),
        cmocka_unit_test(test_acks_hold_against_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
