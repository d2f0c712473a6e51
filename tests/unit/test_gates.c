// SPDX-License-Identifier: MIT
// Gates by themselves: when they close, what is told of it, and how many there
// can be.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "outbox/gate_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
    struct skr_gates gates;
    struct skr_log log;
    int closings, openings;  // as people are told
    int64_t failures;        // of the last opening
    int64_t closed;          // as the last event has it
};

static void
note(void *user, enum skr_log_level level, const char *event,
     const struct skr_log_field *fields, size_t count)
{
    struct world *world = user;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, "closed") == 0)
            world->closed = fields[i].number;
        if (strcmp(fields[i].name, "failures") == 0)
            world->failures = fields[i].number;
    }
    if (level == SKR_LOG_WARNING && strcmp(event, "relay.route_closed") == 0)
        world->closings++;
    if (level == SKR_LOG_INFO && strcmp(event, "relay.route_open") == 0)
        world->openings++;
}

static int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->log = (struct skr_log){.write = note, .user = world};
    world->gates.name = "outbox";
    world->gates.log = &world->log;
    *state = world;
    return 0;
}

static int
tear_down(void **state)
{
    struct world *world = *state;
    skr_gates_fini(&world->gates);
    free(world);
    return 0;
}

// The message in a row of this number, with a routing key of its own. The text
// lives until the next call.
static struct skr_passage
passage_of(int row)
{
    static char key[32];
    struct skr_passage passage;
    snprintf(key, sizeof(key), "key.%d", row);
    const struct skr_route route = {.exchange = "orders", .routing_key = key};
    skr_passage_init(&passage, &route, "amqp", row);
    return passage;
}

static struct skr_error
refusal(void)
{
    struct skr_error error = {0};
    skr_fail(&error, SKR_REFUSED, SKR_TRY_AGAIN, "no queue takes it");
    return error;
}

static void
close_gate(struct world *world, enum skr_gate_kind kind, int row)
{
    struct skr_passage passage = passage_of(row);
    struct skr_error error = refusal();
    assert_true(skr_gates_admit(&world->gates, &passage));
    skr_gates_close(&world->gates, kind, &passage, &error);
}

static void
close_route(struct world *world, int row)
{
    close_gate(world, SKR_GATE_ROUTE, row);
}

static void
close_exchange(struct world *world, int row)
{
    close_gate(world, SKR_GATE_EXCHANGE, row);
}

static bool
admits(struct world *world, int row)
{
    struct skr_passage passage = passage_of(row);
    return skr_gates_admit(&world->gates, &passage);
}

// The row that may try, once one may.
static int64_t
wait_for_try(struct world *world)
{
    int64_t row = 0, end_ms = skr_clock_ms() + 20000;
    while (!skr_gates_next_try(&world->gates, &row)) {
        assert_true(skr_clock_ms() < end_ms);
        int64_t next_ms = skr_gates_next_ms(&world->gates);
        assert_true(next_ms > 0);
        skr_clock_sleep(-1, next_ms - skr_clock_ms());
    }
    return row;
}

static void
test_hundreds_of_closed_routes_leave_the_others_alone(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 500; i++)
        close_route(world, i);
    for (int i = 0; i < 500; i++)
        assert_false(admits(world, i));
    assert_true(admits(world, 501));
    // Twenty, and then at 40, 80, 160 and 320.
    assert_in_range(world->closings, 20, 26);
    assert_int_equal(world->closed, 500);
}

static void
test_a_route_beyond_the_most_waits_with_its_exchange(void **state)
{
    struct world *world = *state;
    // The exchange has one of them.
    for (int i = 1; i < SKR_MOST_ROUTE_GATES; i++)
        close_route(world, i);
    assert_true(admits(world, 100001));
    close_route(world, 100000);
    assert_false(admits(world, 100000));
    assert_false(admits(world, 100001));
    assert_in_range(world->closings, 20, 30);
}

static void
test_one_that_opens_and_closes_is_told_of_once(void **state)
{
    struct world *world = *state;
    struct skr_error error = refusal();
    struct skr_passage passage = passage_of(1);
    close_route(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_try(world), 1);
        passage = passage_of(1);
        skr_gates_confirm(&world->gates, &passage);
        assert_true(admits(world, 2));
        // The next is refused, which costs it nothing.
        assert_int_equal(skr_gates_refuse(&world->gates, &passage, &error),
                         SKR_GATE_HOLD);
        assert_false(admits(world, 1));
    }
    assert_int_equal(world->closings, 1);
    assert_int_equal(world->openings, 0);
    assert_int_equal(wait_for_try(world), 1);
    passage = passage_of(1);
    skr_gates_confirm(&world->gates, &passage);
    assert_false(skr_gates_are_closed(&world->gates));
    // After a while it is over.
    int64_t row = 0;
    skr_clock_sleep(-1, skr_gates_next_ms(&world->gates) - skr_clock_ms());
    assert_false(skr_gates_next_try(&world->gates, &row));
    assert_int_equal(world->openings, 1);
    assert_int_equal(world->failures, 3);
    assert_int_equal(world->closed, 0);
    assert_int_equal(skr_gates_next_ms(&world->gates), 0);
}

static void
test_a_row_that_another_has_proves_nothing(void **state)
{
    struct world *world = *state;
    close_route(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_try(world), 1);
        skr_gates_miss(&world->gates, 1);
        assert_true(skr_gates_are_closed(&world->gates));
        assert_false(admits(world, 1));
    }
    // Gone it is not there for ever.
    assert_int_equal(wait_for_try(world), 1);
    skr_gates_miss(&world->gates, 1);
    assert_true(admits(world, 1));
    assert_int_equal(world->openings, 0);
}

// Whatever becomes of that one, another may be sent by whoever has it then.
static void
test_who_is_refused_has_come_through_the_exchange(void **state)
{
    struct world *world = *state;
    struct skr_error error = refusal();
    close_exchange(world, 1);
    assert_int_equal(wait_for_try(world), 1);
    assert_false(admits(world, 2));
    struct skr_passage passage = passage_of(1);
    assert_int_equal(skr_gates_refuse(&world->gates, &passage, &error),
                     SKR_GATE_EXCUSE);
    assert_true(admits(world, 2));
    // That has not opened its route.
    for (int i = 1; i < 9; i++)
        skr_gates_refuse(&world->gates, &passage, &error);
    passage = passage_of(1);
    assert_int_equal(skr_gates_refuse(&world->gates, &passage, &error),
                     SKR_GATE_HOLD);
    assert_false(admits(world, 1));
    assert_true(admits(world, 2));
}

static void
test_a_try_that_tells_nothing_is_not_the_last(void **state)
{
    struct world *world = *state;
    close_exchange(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_try(world), 1);
        struct skr_passage passage = passage_of(1);
        skr_gates_end_try(&world->gates, &passage);
        assert_false(admits(world, 1));
    }
    assert_int_equal(wait_for_try(world), 1);
    assert_true(admits(world, 1));
}

static struct skr_passage
passage_to_orders(int64_t row)
{
    struct skr_passage passage;
    const struct skr_route route = {.exchange = "orders", .routing_key = ""};
    skr_passage_init(&passage, &route, "kafka", row);
    return passage;
}

static void
test_what_may_not_fail_any_more_is_the_first_to_try(void **state)
{
    struct world *world = *state;
    const struct skr_passage failed = passage_to_orders(1),
                             waiting = passage_to_orders(2),
                             behind = passage_to_orders(3);
    struct skr_error error = refusal();
    world->gates.failure_limit = 1;
    assert_true(skr_gates_may_fail(&world->gates, &failed, &error));
    assert_false(skr_gates_may_fail(&world->gates, &waiting, &error));
    assert_false(skr_gates_admit(&world->gates, &behind));
    // The minute is over.
    skr_gates_find(&world->gates, SKR_GATE_ROUTE, &waiting)->until_ms =
        skr_clock_ms();
    int64_t row = 0;
    assert_true(skr_gates_next_try(&world->gates, &row));
    assert_int_equal(row, 2);
}

static void
test_a_session_begins_by_finding_who_is_first_to_try(void **state)
{
    struct world *world = *state;
    const struct skr_passage waiting = passage_to_orders(2),
                             before = passage_to_orders(1);
    struct skr_error error = refusal();
    int64_t row = 0;
    skr_gates_close(&world->gates, SKR_GATE_ROUTE, &waiting, &error);
    skr_gates_find(&world->gates, SKR_GATE_ROUTE, &waiting)->until_ms =
        skr_clock_ms();
    skr_gates_begin(&world->gates);
    // The other one was under way when the last session ended.
    assert_false(skr_gates_next_try(&world->gates, &row));
    assert_false(skr_gates_admit(&world->gates, &before));
    assert_false(skr_gates_admit(&world->gates, &waiting));
    assert_int_equal(wait_for_try(world), 1);
}

// By trying again and again, whenever time has passed.
static bool
opens_in_the_end(struct world *world, const struct skr_passage *passage)
{
    struct skr_gate *gate;
    int64_t row = 0;
    for (int i = 0; i < 12; i++) {
        for (size_t at = 0;
             (gate = skr_gates_next(&world->gates, &at)) != NULL;)
            gate->until_ms = skr_clock_ms();
        if (!skr_gates_next_try(&world->gates, &row))
            break;
        assert_int_equal(row, passage->row);
        if (skr_gates_admit(&world->gates, passage))
            skr_gates_confirm(&world->gates, passage);
    }
    return !skr_gates_are_closed(&world->gates);
}

static void
expect_to_open_after(struct world *world, enum skr_gate_kind kind)
{
    struct skr_error error = refusal();
    close_exchange(world, 1);
    assert_int_equal(wait_for_try(world), 1);
    const struct skr_passage passage = passage_of(1);
    assert_true(skr_gates_admit(&world->gates, &passage));
    skr_gates_close(&world->gates, kind, &passage, &error);
    skr_gates_end_try(&world->gates, &passage);
    assert_true(opens_in_the_end(world, &passage));
}

static void
test_an_exchange_comes_back_before_its_queue(void **state)
{
    expect_to_open_after(*state, SKR_GATE_ROUTE);
}

static void
test_a_sender_is_lost_while_its_exchange_is_tried(void **state)
{
    expect_to_open_after(*state, SKR_GATE_SENDER);
}

static void
test_who_is_first_at_two_gates_tries_at_both(void **state)
{
    struct world *world = *state;
    struct skr_error error = refusal();
    close_route(world, 1);
    const struct skr_passage other = passage_of(2);
    assert_true(skr_gates_admit(&world->gates, &other));
    skr_gates_close(&world->gates, SKR_GATE_EXCHANGE, &other, &error);
    const struct skr_passage passage = passage_of(1);
    assert_false(skr_gates_admit(&world->gates, &passage));
    assert_true(opens_in_the_end(world, &passage));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hundreds_of_closed_routes_leave_the_others_alone),
        TEST(test_a_route_beyond_the_most_waits_with_its_exchange),
        TEST(test_one_that_opens_and_closes_is_told_of_once),
        TEST(test_a_row_that_another_has_proves_nothing),
        TEST(test_who_is_refused_has_come_through_the_exchange),
        TEST(test_a_try_that_tells_nothing_is_not_the_last),
        TEST(test_an_exchange_comes_back_before_its_queue),
        TEST(test_a_sender_is_lost_while_its_exchange_is_tried),
        TEST(test_who_is_first_at_two_gates_tries_at_both),
        TEST(test_what_may_not_fail_any_more_is_the_first_to_try),
        TEST(test_a_session_begins_by_finding_who_is_first_to_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
