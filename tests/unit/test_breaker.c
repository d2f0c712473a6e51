// SPDX-License-Identifier: MIT
// Circuit breakers by themselves: the table of their states, what is told of
// them, and how many there can be.

#include "base/error.h"
#include "base/text.h"
#include "relay/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MINUTE_MS = 60000 };

struct world {
    struct skr_breakers breakers;
    int64_t now_ms;
    int trips, ends;                               // loud notices of each
    int quiet;                                     // notices
    uint64_t failures;                             // of the last end
    size_t open_count;                             // as the last notice has it
    char error[400];                               // of the last trip
    char name[SKR_BREAKER_NAME_SIZE], native[16];  // of the last notice
};

static void
take_notice(void *user, const struct skr_breaker_notice *notice)
{
    struct world *world = user;
    world->open_count = notice->open_count;
    snprintf(world->name, sizeof(world->name), "%s", notice->name);
    snprintf(world->native, sizeof(world->native), "%s", notice->error.native);
    if (notice->is_open)
        snprintf(world->error, sizeof(world->error), "%s", notice->error.text);
    else
        world->failures = notice->failures;
    world->quiet += !notice->is_loud;
    world->trips += notice->is_loud && notice->is_open;
    world->ends += notice->is_loud && !notice->is_open;
}

static int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world->now_ms = 1000000;
    world->breakers.tell = take_notice;
    world->breakers.tell_user = world;
    *state = world;
    return 0;
}

static int
tear_down(void **state)
{
    struct world *world = *state;
    skr_breakers_fini(&world->breakers);
    free(world);
    return 0;
}

// The message in a row of this number, with a routing key of its own. The text
// lives until the next call.
static struct skr_destination
own_route(int row)
{
    static char key[32];
    struct skr_destination destination;
    snprintf(key, sizeof(key), "key.%d", row);
    const struct skr_route route = {.exchange = "orders", .routing_key = key};
    skr_destination_init(&destination, &route, "amqp", row);
    return destination;
}

// The message in a row of this number, to a route that it shares with others.
static struct skr_destination
shared_route(int64_t row)
{
    struct skr_destination destination;
    const struct skr_route route = {.exchange = "orders", .routing_key = ""};
    skr_destination_init(&destination, &route, "kafka", row);
    return destination;
}

static struct skr_error
refusal(void)
{
    struct skr_error error = {0};
    skr_fail(&error, SKR_REFUSED, SKR_TRY_AGAIN, "no queue takes it");
    return error;
}

static bool
allow(struct world *world, const struct skr_destination *destination)
{
    return skr_breakers_allow(&world->breakers, destination, world->now_ms);
}

static void
confirm(struct world *world, const struct skr_destination *destination)
{
    skr_breakers_report(&world->breakers, destination, SKR_CONFIRMED, NULL,
                        world->now_ms);
}

static void
end_probe(struct world *world, const struct skr_destination *destination)
{
    skr_breakers_report(&world->breakers, destination, SKR_HELD_BACK, NULL,
                        world->now_ms);
}

static enum skr_blame
refuse(struct world *world, const struct skr_destination *destination)
{
    struct skr_error error = refusal();
    enum skr_blame blame =
        skr_breakers_report(&world->breakers, destination, SKR_REFUSED_FOR_NOW,
                            &error, world->now_ms);
    return blame;
}

static void
reach(struct world *world, const struct skr_destination *destination)
{
    skr_breakers_report(&world->breakers, destination, SKR_REFUSED_FOR_GOOD,
                        NULL, world->now_ms);
}

// Reports the result that trips the breaker of that scope.
static void
trip_for(struct world *world, enum skr_breaker_scope scope,
         const struct skr_destination *destination,
         const struct skr_error *error)
{
    static const enum skr_publish_result results[] = {
        [SKR_BREAKER_SENDER] = SKR_UNCERTAIN,
        [SKR_BREAKER_EXCHANGE] = SKR_ROUTE_UNAVAILABLE,
        [SKR_BREAKER_ROUTE] = SKR_UNROUTABLE,
    };
    struct skr_destination copy = *destination;
    copy.route.sender = 1;
    copy.route.unroutable = SKR_UNROUTABLE_WAIT;
    skr_breakers_report(&world->breakers, &copy, results[scope], error,
                        world->now_ms);
}

static void
trip(struct world *world, enum skr_breaker_scope scope,
     const struct skr_destination *destination)
{
    struct skr_error error = refusal();
    trip_for(world, scope, destination, &error);
}

static bool
may_fail(struct world *world, const struct skr_destination *destination)
{
    struct skr_error error = refusal();
    bool may = skr_breakers_may_fail(&world->breakers, destination, &error,
                                     world->now_ms);
    return may;
}

// 0: none.
static int64_t
next_probe(struct world *world)
{
    int64_t row = 0;
    bool is_found =
        skr_breakers_next_probe(&world->breakers, world->now_ms, &row);
    return is_found ? row : 0;
}

static void
trip_allowed(struct world *world, enum skr_breaker_scope scope, int row)
{
    struct skr_destination destination = own_route(row);
    assert_true(allow(world, &destination));
    trip(world, scope, &destination);
}

static void
trip_route(struct world *world, int row)
{
    trip_allowed(world, SKR_BREAKER_ROUTE, row);
}

static void
trip_exchange(struct world *world, int row)
{
    trip_allowed(world, SKR_BREAKER_EXCHANGE, row);
}

static bool
allows(struct world *world, int row)
{
    struct skr_destination destination = own_route(row);
    return allow(world, &destination);
}

static void
sleep_until_next(struct world *world)
{
    int64_t next_ms = skr_breakers_next_ms(&world->breakers);
    assert_true(next_ms > 0);
    if (next_ms > world->now_ms)
        world->now_ms = next_ms;
}

// The row of the next probe, once there is one.
static int64_t
wait_for_probe(struct world *world)
{
    int64_t row, end_ms = world->now_ms + 20000;
    while ((row = next_probe(world)) == 0) {
        sleep_until_next(world);
        assert_true(world->now_ms < end_ms);
    }
    return row;
}

static void
test_hundreds_of_open_routes_leave_the_others_alone(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 500; i++)
        trip_route(world, i);
    for (int i = 0; i < 500; i++)
        assert_false(allows(world, i));
    assert_true(allows(world, 501));
    // Twenty, and then at 40, 80, 160 and 320.
    assert_int_equal(world->trips, 24);
    assert_int_equal(world->quiet, 500 - 24);
    assert_int_equal(world->open_count, 500);
}

static void
test_a_route_beyond_the_most_shares_the_breaker_of_its_exchange(void **state)
{
    struct world *world = *state;
    // The exchange has one of them.
    for (int i = 1; i < SKR_MOST_ROUTE_BREAKERS; i++)
        trip_route(world, i);
    assert_true(allows(world, 100001));
    trip_route(world, 100000);
    assert_false(allows(world, 100000));
    assert_false(allows(world, 100001));
    assert_in_range(world->trips, 20, 30);
}

// Closes what is open: a session begins, and no row is found to wait.
static void
close_all(struct world *world)
{
    skr_breakers_begin(&world->breakers, world->now_ms);
    world->now_ms += MINUTE_MS;
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(world->breakers.open_count, 0);
}

static void
test_idle_breakers_without_an_outage_make_room_for_others(void **state)
{
    struct world *world = *state;
    struct skr_destination destination;
    trip_route(world, 1);
    close_all(world);
    trip_route(world, 2);
    for (int i = 0; i < SKR_MOST_BREAKERS; i++) {
        char exchange[32];
        snprintf(exchange, sizeof(exchange), "exchange.%d", i);
        const struct skr_route route = {.exchange = exchange,
                                        .routing_key = ""};
        skr_destination_init(&destination, &route, "amqp", i);
        assert_true(allow(world, &destination));
    }
    assert_int_equal(world->breakers.others.count, SKR_MOST_BREAKERS);
    // An exchange beyond the most shares the breaker of its sender.
    assert_int_equal(world->breakers.sender_count, 1);
    world->now_ms += MINUTE_MS;
    trip_route(world, 3);
    // Of three routes and of their exchange.
    assert_int_equal(world->breakers.others.count, 4);
    assert_true(allows(world, 1));
    assert_false(allows(world, 2));
    assert_false(allows(world, 3));
}

static void
test_one_that_trips_and_closes_is_told_of_once(void **state)
{
    struct world *world = *state;
    struct skr_destination destination = own_route(1);
    trip_route(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_probe(world), 1);
        destination = own_route(1);
        confirm(world, &destination);
        assert_true(allows(world, 2));
        // The next is refused, which costs it nothing.
        destination = own_route(1);
        assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
        assert_false(allows(world, 1));
    }
    assert_int_equal(world->trips, 1);
    assert_int_equal(world->ends, 0);
    assert_int_equal(wait_for_probe(world), 1);
    confirm(world, &destination);
    assert_int_equal(world->breakers.open_count, 0);
    // After a while it is over.
    sleep_until_next(world);
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(world->ends, 1);
    assert_int_equal(world->failures, 3);
    assert_int_equal(world->open_count, 0);
    assert_int_equal(world->quiet, 0);
    assert_int_equal(skr_breakers_next_ms(&world->breakers), 0);
}

static void
test_an_outage_that_lasts_is_told_of_each_minute(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    int64_t told_ms = world->now_ms;
    for (int minute = 1; minute <= 3; minute++) {
        while (world->trips == minute) {
            assert_true(world->now_ms - told_ms < 2 * MINUTE_MS);
            sleep_until_next(world);
            assert_int_equal(next_probe(world), 1);
            assert_int_equal(refuse(world, &destination),
                             SKR_BLAME_DESTINATION);
        }
        assert_true(world->now_ms - told_ms >= MINUTE_MS);
        told_ms = world->now_ms;
    }
    assert_int_equal(world->quiet, 0);
    assert_int_equal(world->ends, 0);
}

static void
test_a_row_that_another_relay_has_proves_nothing(void **state)
{
    struct world *world = *state;
    trip_route(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_probe(world), 1);
        skr_breakers_miss(&world->breakers, 1, world->now_ms);
        assert_true(world->breakers.open_count > 0);
        assert_false(allows(world, 1));
    }
    // A row that is never there is gone.
    assert_int_equal(wait_for_probe(world), 1);
    skr_breakers_miss(&world->breakers, 1, world->now_ms);
    assert_true(allows(world, 1));
    assert_int_equal(world->ends, 0);
}

// Whatever its result, another message may be sent to the exchange then.
static void
test_a_refused_message_has_reached_the_exchange(void **state)
{
    struct world *world = *state;
    trip_exchange(world, 1);
    assert_int_equal(wait_for_probe(world), 1);
    assert_false(allows(world, 2));
    struct skr_destination destination = own_route(1);
    assert_int_equal(refuse(world, &destination), SKR_BLAME_NOBODY);
    assert_true(allows(world, 2));
    // That has not proved its route.
    destination = own_route(1);
    for (int i = 1; i < 9; i++)
        assert_int_equal(refuse(world, &destination), SKR_BLAME_NOBODY);
    assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
    assert_false(allows(world, 1));
    assert_true(allows(world, 2));
}

static void
test_a_probe_that_tells_nothing_is_not_the_last(void **state)
{
    struct world *world = *state;
    trip_exchange(world, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_probe(world), 1);
        struct skr_destination destination = own_route(1);
        end_probe(world, &destination);
        assert_false(allows(world, 1));
    }
    assert_int_equal(wait_for_probe(world), 1);
    assert_true(allows(world, 1));
}

static void
test_a_message_that_may_not_fail_any_more_is_the_first_probe(void **state)
{
    struct world *world = *state;
    const struct skr_destination failed = shared_route(1),
                                 waiting = shared_route(2),
                                 behind = shared_route(3);
    world->breakers.failure_limit = 1;
    assert_true(may_fail(world, &failed));
    world->now_ms += 1000;
    assert_false(may_fail(world, &waiting));
    assert_string_equal(world->error,
                        "exchange orders, routing key  waits: 1 messages "
                        "failed within a minute (failure_limit): no queue "
                        "takes it");
    assert_false(allow(world, &behind));
    world->now_ms += MINUTE_MS - 1001;
    assert_int_equal(next_probe(world), 0);
    // The minute is over.
    world->now_ms++;
    assert_int_equal(next_probe(world), 2);
}

static void
test_a_session_begins_by_finding_the_first_row_of_each_breaker(void **state)
{
    struct world *world = *state;
    const struct skr_destination waiting = shared_route(2),
                                 before = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &waiting);
    world->now_ms += 1000;
    skr_breakers_begin(&world->breakers, world->now_ms);
    // The other one was in flight when the last session ended.
    assert_int_equal(next_probe(world), 0);
    assert_false(allow(world, &before));
    assert_false(allow(world, &waiting));
    assert_int_equal(wait_for_probe(world), 1);
}

// By probing again and again, whenever time has passed.
static bool
closes_in_the_end(struct world *world,
                  const struct skr_destination *destination)
{
    for (int i = 0; i < 12; i++) {
        world->now_ms += MINUTE_MS;
        int64_t row = next_probe(world);
        if (row == 0)
            break;
        assert_int_equal(row, destination->row);
        if (allow(world, destination))
            confirm(world, destination);
    }
    return world->breakers.open_count == 0;
}

static void
expect_to_close_after(struct world *world, enum skr_breaker_scope scope)
{
    trip_exchange(world, 1);
    assert_int_equal(wait_for_probe(world), 1);
    const struct skr_destination destination = own_route(1);
    assert_true(allow(world, &destination));
    trip(world, scope, &destination);
    end_probe(world, &destination);
    assert_true(closes_in_the_end(world, &destination));
}

static void
test_an_exchange_comes_back_before_its_queue(void **state)
{
    expect_to_close_after(*state, SKR_BREAKER_ROUTE);
}

static void
test_a_sender_is_lost_while_its_exchange_is_probed(void **state)
{
    expect_to_close_after(*state, SKR_BREAKER_SENDER);
}

static void
test_the_first_row_of_two_breakers_probes_both(void **state)
{
    struct world *world = *state;
    trip_route(world, 1);
    trip_exchange(world, 2);
    const struct skr_destination destination = own_route(1);
    assert_false(allow(world, &destination));
    assert_true(closes_in_the_end(world, &destination));
}

static void
test_a_breaker_that_closes_has_waiting_rows_read_once(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    assert_int_equal(wait_for_probe(world), 1);
    assert_false(skr_breakers_are_closed_for(&world->breakers, &destination));
    assert_false(skr_breakers_take_recovered(&world->breakers));
    reach(world, &destination);
    assert_true(skr_breakers_are_closed_for(&world->breakers, &destination));
    assert_true(skr_breakers_take_recovered(&world->breakers));
    assert_false(skr_breakers_take_recovered(&world->breakers));
}

static void
test_pauses_double_up_to_a_minute(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    static const int64_t pauses[] = {1000,  2000,  4000,  8000,
                                     16000, 32000, 60000, 60000};
    for (size_t i = 0; i < SKR_COUNT_OF(pauses); i++) {
        assert_int_equal(skr_breakers_next_ms(&world->breakers) - world->now_ms,
                         pauses[i]);
        sleep_until_next(world);
        assert_int_equal(next_probe(world), 1);
        assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
    }
    // They begin anew when a message has got through.
    sleep_until_next(world);
    assert_int_equal(next_probe(world), 1);
    confirm(world, &destination);
    assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
    assert_int_equal(skr_breakers_next_ms(&world->breakers) - world->now_ms,
                     1000);
}

static void
test_a_message_that_gets_through_ends_the_refusals_in_a_row(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    assert_true(allow(world, &destination));
    for (int i = 0; i < 18; i++) {
        if (i == 9)
            confirm(world, &destination);
        assert_int_equal(refuse(world, &destination),
                         i < 9 ? SKR_BLAME_NOBODY : SKR_BLAME_MESSAGE);
    }
    assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
}

static void
test_a_probe_that_finds_another_breaker_open_is_over(void **state)
{
    struct world *world = *state;
    trip_exchange(world, 1);
    assert_int_equal(wait_for_probe(world), 1);
    // Row 2 was in flight.
    struct skr_destination destination = own_route(2);
    trip(world, SKR_BREAKER_SENDER, &destination);
    destination = own_route(1);
    assert_false(allow(world, &destination));
    const struct skr_breaker *exchange = skr_map_get(
        &world->breakers.others, destination.keys[SKR_BREAKER_EXCHANGE]);
    assert_int_equal(exchange->state, SKR_BREAKER_OPEN);
}

static void
test_a_probe_that_trips_its_route_has_reached_the_exchange(void **state)
{
    struct world *world = *state;
    trip_exchange(world, 1);
    assert_int_equal(wait_for_probe(world), 1);
    trip_route(world, 1);
    assert_false(allows(world, 1));
    assert_true(allows(world, 2));
}

static void
test_a_breaker_that_trips_again_has_missed_nothing(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(wait_for_probe(world), 1);
        if (i == 2)
            trip(world, SKR_BREAKER_ROUTE, &destination);
        else
            skr_breakers_miss(&world->breakers, 1, world->now_ms);
        assert_false(allow(world, &destination));
    }
}

static void
test_an_outage_ends_two_seconds_after_a_message_got_through(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    assert_int_equal(wait_for_probe(world), 1);
    confirm(world, &destination);
    world->now_ms += 1999;
    // The next message does not put it off.
    confirm(world, &destination);
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(world->ends, 0);
    world->now_ms++;
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(world->ends, 1);
}

static void
test_an_outage_does_not_end_while_no_message_gets_through(void **state)
{
    struct world *world = *state;
    const struct skr_destination destination = shared_route(1);
    trip(world, SKR_BREAKER_ROUTE, &destination);
    assert_int_equal(wait_for_probe(world), 1);
    confirm(world, &destination);
    assert_int_equal(refuse(world, &destination), SKR_BLAME_DESTINATION);
    close_all(world);
    world->now_ms += MINUTE_MS;
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(world->ends, 0);
    assert_int_equal(skr_breakers_next_ms(&world->breakers), 0);
}

static void
end_outage_of(struct world *world, int row)
{
    struct skr_destination destination = own_route(row);
    confirm(world, &destination);
    world->now_ms += 2000;
    assert_int_equal(next_probe(world), 0);
}

static void
test_the_end_of_an_outage_is_as_loud_as_its_beginning(void **state)
{
    struct world *world = *state;
    trip_route(world, 1);
    close_all(world);
    end_outage_of(world, 1);
    assert_int_equal(world->trips, 1);
    assert_int_equal(world->ends, 1);
    // Now it is one of many.
    for (int i = 30; i > 0; i--)
        trip_route(world, i);
    assert_int_equal(world->trips, 1 + 20);
    assert_int_equal(world->quiet, 10);
    close_all(world);
    end_outage_of(world, 1);
    assert_int_equal(world->ends, 1);
    assert_int_equal(world->quiet, 11);
    end_outage_of(world, 30);
    assert_int_equal(world->ends, 2);
}

static void
expect_name(struct world *world, enum skr_breaker_scope scope,
            const struct skr_route *route, const char *name)
{
    struct skr_destination destination;
    skr_destination_init(&destination, route, "events", 1);
    struct skr_error error = refusal();
    int trips = world->trips;
    skr_error_set_native(&error, "312");
    trip_for(world, scope, &destination, &error);
    assert_int_equal(world->trips, trips + 1);
    assert_string_equal(world->name, name);
    assert_string_equal(world->native, "312");
    char text[300];
    snprintf(text, sizeof(text), "%s waits: no queue takes it", name);
    assert_string_equal(world->error, text);
    assert_int_equal(world->quiet, 0);
    skr_breakers_fini(&world->breakers);
    world->breakers =
        (struct skr_breakers){.tell = take_notice, .tell_user = world};
}

static void
test_a_notice_names_the_destination_as_people_know_it(void **state)
{
    struct world *world = *state;
    const struct skr_route amqp = {.exchange = "shop", .routing_key = "order"},
                           kafka = {.exchange = "shop.order",
                                    .routing_key = "",
                                    .topic = "shop.order"},
                           queue = {.exchange = "", .routing_key = ""};
    expect_name(world, SKR_BREAKER_SENDER, &amqp, "transport events");
    expect_name(world, SKR_BREAKER_EXCHANGE, &amqp, "exchange shop");
    expect_name(world, SKR_BREAKER_ROUTE, &amqp,
                "exchange shop, routing key order");
    expect_name(world, SKR_BREAKER_EXCHANGE, &kafka, "topic shop.order");
    expect_name(world, SKR_BREAKER_ROUTE, &kafka, "topic shop.order");
    expect_name(world, SKR_BREAKER_ROUTE, &queue, "transport events");
    expect_name(world, SKR_BREAKER_ROUTE, NULL, "rows without a route");
}

static void
test_of_very_many_outages_every_doubling_is_loud(void **state)
{
    struct world *world = *state;
    // Loud are 20, and then at 40, 80, 160, ... 1280.
    for (int i = 1; i <= 2000; i++)
        trip_route(world, i);
    assert_int_equal(world->trips, 26);
    assert_int_equal(world->quiet, 2000 - 26);
    assert_int_equal(world->open_count, 2000);
}

static void
test_the_ends_of_many_outages_are_as_loud_as_their_beginnings(void **state)
{
    struct world *world = *state;
    enum { COUNT = 200 };
    for (int i = 1; i <= COUNT; i++)
        trip_route(world, i);
    int trips = world->trips;
    close_all(world);
    for (int i = 1; i <= COUNT; i++) {
        struct skr_destination destination = own_route(i);
        confirm(world, &destination);
    }
    sleep_until_next(world);
    world->quiet = 0;
    assert_int_equal(next_probe(world), 0);
    assert_int_equal(skr_breakers_next_ms(&world->breakers), 0);
    assert_int_equal(world->ends, trips);
    assert_int_equal(world->ends + world->quiet, COUNT);
    assert_int_equal(world->open_count, 0);
}

// The state table. Row 1 is the one that tripped the breaker, which is of its
// route; row 2 goes to the same route.
enum start {
    FRESH,     // closed, nothing known
    PASSING,   // closed, the exchange has confirmed a message lately
    STALE,     // closed, the confirmation was long ago
    NEARLY,    // closed, nine refusals in a row
    UNPROVEN,  // closed in an outage: no row waited, and none got through
    PROVEN,    // closed in an outage: a message got through
    OPEN,      // row 1 waits
    OPEN_NEW,  // a session has begun: no row waits yet
    PROBING,   // half-open, row 1 is the probe
    MISSING,   // the same, and row 1 could not be had twice
};
enum event {
    ALLOW,
    CONFIRM,
    REACH,
    REFUSE,
    TRIP,
    END_PROBE,
    MISS,
    FORGET,
    BEGIN,
    TIME,  // passes, by a minute
};
enum { STARTS = MISSING + 1, EVENTS = TIME + 1 };

static void
go_to(struct world *world, enum start start)
{
    const struct skr_destination one = shared_route(1), two = shared_route(2);
    switch (start) {
    case FRESH: break;
    case PASSING:
    case STALE:
        assert_true(allow(world, &two));
        confirm(world, &two);
        world->now_ms += start == STALE ? 10000 : 9999;
        break;
    case NEARLY:
        for (int i = 0; i < 9; i++)
            assert_int_equal(refuse(world, &one), SKR_BLAME_NOBODY);
        break;
    case UNPROVEN:
        go_to(world, OPEN_NEW);
        world->now_ms += MINUTE_MS;
        assert_int_equal(next_probe(world), 0);
        break;
    case PROVEN:
        go_to(world, PROBING);
        confirm(world, &one);
        break;
    case OPEN: trip(world, SKR_BREAKER_ROUTE, &one); break;
    case OPEN_NEW:
        go_to(world, OPEN);
        skr_breakers_begin(&world->breakers, world->now_ms);
        break;
    case PROBING:
        go_to(world, OPEN);
        assert_int_equal(wait_for_probe(world), 1);
        break;
    case MISSING:
        go_to(world, PROBING);
        for (int i = 0; i < 2; i++) {
            skr_breakers_miss(&world->breakers, 1, world->now_ms);
            assert_int_equal(wait_for_probe(world), 1);
        }
        break;
    }
}

// What the call gave: whether the row may go, the blame, or the row of the
// probe.
static int64_t
happen(struct world *world, enum event event, int64_t row)
{
    const struct skr_destination destination = shared_route(row);
    struct skr_breakers *breakers = &world->breakers;
    switch (event) {
    case ALLOW: return allow(world, &destination);
    case CONFIRM: confirm(world, &destination); return 0;
    case REACH: reach(world, &destination); return 0;
    case REFUSE: return (int64_t)refuse(world, &destination);
    case TRIP: trip(world, SKR_BREAKER_ROUTE, &destination); return 0;
    case END_PROBE: end_probe(world, &destination); return 0;
    case MISS: skr_breakers_miss(breakers, row, world->now_ms); return 0;
    case FORGET: skr_breakers_forget(breakers, row); return 0;
    case BEGIN: skr_breakers_begin(breakers, world->now_ms); return 0;
    case TIME: world->now_ms += MINUTE_MS; return next_probe(world);
    }
    return 0;
}

static enum skr_breaker_state
state_of_route(struct world *world)
{
    const struct skr_destination destination = shared_route(1);
    const struct skr_breaker *breaker = skr_map_get(
        &world->breakers.others, destination.keys[SKR_BREAKER_ROUTE]);
    return breaker == NULL ? SKR_BREAKER_CLOSED : breaker->state;
}

// Of each event the state afterwards (closed, open, half-open) and the answer:
// allowed + or not -; the blame of message, nobody or destination; the row of
// the probe.
// clang-format off
static const struct line {
    enum start start;
    int64_t row;
    const char *cells;
} table[] = {
    // ALLOW, CONFIRM, REACH, REFUSE, TRIP, END_PROBE, MISS, FORGET, BEGIN, TIME
    {FRESH, 1,    "C+ C. C. Cn O. C. C. C. C. C."},
    {PASSING, 1,  "C+ C. C. Cm O. C. C. C. C. C."},
    {STALE, 1,    "C+ C. C. Cn O. C. C. C. C. C."},
    {NEARLY, 1,   "C+ C. C. Od O. C. C. C. C. C."},
    {UNPROVEN, 1, "C+ C. C. Od O. C. C. C. C. C."},
    {PROVEN, 1,   "C+ C. C. Od O. C. C. C. C. C."},
    {OPEN, 1,     "O- O. O. Od O. O. O. O. O. H1"},
    {OPEN, 2,     "O- O. O. Od O. O. O. O."},
    {OPEN_NEW, 1, "O- O. O. Od O. O. O. O. O. C."},
    {OPEN_NEW, 2, "O- O. O. Od O. O. O. O."},
    {PROBING, 1,  "H+ C. C. Od O. O. O. C. O. H."},
    {PROBING, 2,  "H- H. H. Hd H. H. H. H."},
    {MISSING, 1,  "H+ C. C. Od O. O. C. C. O. H."},
    {MISSING, 2,  "H- H. H. Hd H. H. H. H."},
};
// clang-format on

// The cell that an event makes, as in the table.
static void
write_cell(struct world *world, enum event event, int64_t row, char cell[3])
{
    int64_t answer = happen(world, event, row);
    cell[0] = "COH"[state_of_route(world)];
    cell[1] = event == ALLOW    ? "-+"[answer]
              : event == REFUSE ? "mnd"[answer]
                                : ".1"[answer];
    cell[2] = '\0';
}

static void
expect_cell(void **state, const struct line *line, enum event event)
{
    struct world *world = *state;
    char expected[3] = {line->cells[event * 3], line->cells[event * 3 + 1], 0};
    char cell[3];
    go_to(world, line->start);
    write_cell(world, event, line->row, cell);
    if (strcmp(cell, expected) != 0)
        fail_msg("start %d, event %d, row %lld: %s, not %s", line->start, event,
                 (long long)line->row, cell, expected);
    assert_int_equal(world->breakers.open_count > 0, cell[0] != 'C');
    // An open breaker has a time at which it is probed.
    if (cell[0] == 'O')
        assert_true(skr_breakers_next_ms(&world->breakers) > 0);
    tear_down(state);
    set_up(state);
}

static void
test_every_event_leads_from_every_state_as_the_table_says(void **state)
{
    bool is_tested[STARTS] = {false};
    for (size_t i = 0; i < SKR_COUNT_OF(table); i++) {
        // Those behind FORGET have no row.
        int events = table[i].row == 1 ? EVENTS : BEGIN;
        assert_int_equal(strlen(table[i].cells), events * 3 - 1);
        for (int event = 0; event < events; event++)
            expect_cell(state, &table[i], (enum event)event);
        is_tested[table[i].start] |= table[i].row == 1;
    }
    for (size_t i = 0; i < STARTS; i++)
        assert_true(is_tested[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hundreds_of_open_routes_leave_the_others_alone),
        TEST(test_a_route_beyond_the_most_shares_the_breaker_of_its_exchange),
        TEST(test_idle_breakers_without_an_outage_make_room_for_others),
        TEST(test_one_that_trips_and_closes_is_told_of_once),
        TEST(test_an_outage_that_lasts_is_told_of_each_minute),
        TEST(test_a_row_that_another_relay_has_proves_nothing),
        TEST(test_a_refused_message_has_reached_the_exchange),
        TEST(test_a_probe_that_tells_nothing_is_not_the_last),
        TEST(test_an_exchange_comes_back_before_its_queue),
        TEST(test_a_sender_is_lost_while_its_exchange_is_probed),
        TEST(test_the_first_row_of_two_breakers_probes_both),
        TEST(test_a_message_that_may_not_fail_any_more_is_the_first_probe),
        TEST(test_a_session_begins_by_finding_the_first_row_of_each_breaker),
        TEST(test_a_breaker_that_closes_has_waiting_rows_read_once),
        TEST(test_pauses_double_up_to_a_minute),
        TEST(test_a_message_that_gets_through_ends_the_refusals_in_a_row),
        TEST(test_a_probe_that_finds_another_breaker_open_is_over),
        TEST(test_a_probe_that_trips_its_route_has_reached_the_exchange),
        TEST(test_a_breaker_that_trips_again_has_missed_nothing),
        TEST(test_an_outage_ends_two_seconds_after_a_message_got_through),
        TEST(test_an_outage_does_not_end_while_no_message_gets_through),
        TEST(test_the_end_of_an_outage_is_as_loud_as_its_beginning),
        TEST(test_a_notice_names_the_destination_as_people_know_it),
        TEST(test_of_very_many_outages_every_doubling_is_loud),
        TEST(test_the_ends_of_many_outages_are_as_loud_as_their_beginnings),
        TEST(test_every_event_leads_from_every_state_as_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
