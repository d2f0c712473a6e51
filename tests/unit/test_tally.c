// SPDX-License-Identifier: MIT
// Times in steps, and how long a message took from its commit.
#include "relay/dispatcher.h"
#include "store/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
test_a_time_falls_into_the_first_step_that_holds_it(void **state)
{
    (void)state;
    static const struct {
        int64_t time_us;
        int step;
    } cases[] = {
        {INT64_MIN, 0}, {-1, 0},         {0, 0},
        {1000, 0},      {1001, 1},       {2500, 1},
        {1000000, 9},   {300000000, 15}, {300000001, 16},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct skr_histogram histogram = {0};
        struct skr_histogram_reading reading = {0};
        skr_histogram_add(&histogram, cases[i].time_us);
        skr_histogram_read(&histogram, &reading);
        for (int step = 0; step < SKR_HISTOGRAM_STEPS; step++)
            assert_int_equal(reading.counts[step], step == cases[i].step);
        assert_int_equal(reading.sum_us,
                         cases[i].time_us < 0 ? 0 : cases[i].time_us);
    }
}

static void
test_readings_add_up(void **state)
{
    (void)state;
    struct skr_histogram first = {0}, second = {0};
    struct skr_histogram_reading reading = {0};
    skr_histogram_add(&first, 10);
    skr_histogram_add(&second, 20);
    skr_histogram_read(&first, &reading);
    skr_histogram_read(&second, &reading);
    assert_int_equal(reading.counts[0], 2);
    assert_int_equal(reading.sum_us, 30);
}

// 2026-11-15 00:00:00 UTC; the ids below are of that second, 250 ms later, and
// of another.
static const int64_t created_us = 1794700800000000;

static struct skr_id
uuid7(int64_t time_ms)
{
    struct skr_id id = {{0}};
    for (int i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)(time_ms >> (40 - 8 * i));
    id.bytes[6] = 0x70;
    id.bytes[8] = 0x80;
    return id;
}

static struct skr_batch_item
item_of(struct skr_id id)
{
    struct skr_batch_item item = {.row = 1};
    item.envelope.message.id = id;
    item.envelope.message.created_at_us = created_us;
    return item;
}

static void
test_latency_counts_from_the_best_time_that_is_known(void **state)
{
    (void)state;
    int64_t created_ms = created_us / 1000;
    struct skr_id other_version = uuid7(created_ms + 250);
    other_version.bytes[6] = 0x40;
    const struct {
        struct skr_id id;
        int64_t expected_us;
    } cases[] = {
        {uuid7(created_ms + 250), 500000},
        {uuid7(created_ms), 750000},
        {uuid7(created_ms + 1000), 750000},
        {uuid7(created_ms - 1), 750000},
        {uuid7(0), 750000},
        {other_version, 750000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct skr_batch_item item = item_of(cases[i].id);
        int64_t latency_us = -1;
        assert_true(
            skr_dispatcher_latency(&item, created_us + 750000, &latency_us));
        assert_int_equal(latency_us, cases[i].expected_us);
    }
}

static void
test_a_clock_that_is_behind_counts_as_no_time(void **state)
{
    (void)state;
    struct skr_batch_item item = item_of(uuid7(0));
    int64_t latency_us = -1;
    assert_true(skr_dispatcher_latency(&item, created_us - 5, &latency_us));
    assert_int_equal(latency_us, 0);
}

static void
test_what_was_scheduled_has_no_latency_and_what_was_refused_has(void **state)
{
    (void)state;
    struct skr_batch_item item = item_of(uuid7(0));
    int64_t latency_us = -1;
    item.had_to_wait = true;
    assert_false(skr_dispatcher_latency(&item, created_us + 1, &latency_us));
    item.envelope.retry_count = 1;
    assert_true(skr_dispatcher_latency(&item, created_us + 1, &latency_us));
    item.envelope.message.created_at_us = 0;
    assert_false(skr_dispatcher_latency(&item, created_us + 1, &latency_us));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_time_falls_into_the_first_step_that_holds_it),
        cmocka_unit_test(test_readings_add_up),
        cmocka_unit_test(test_latency_counts_from_the_best_time_that_is_known),
        cmocka_unit_test(test_a_clock_that_is_behind_counts_as_no_time),
        cmocka_unit_test(
            test_what_was_scheduled_has_no_latency_and_what_was_refused_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
