// SPDX-License-Identifier: MIT
// Rows that wait are in order, and each is there once.
#include "outbox/waiting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MANY = 1 << 17 };

static void
assert_ascending(const struct skr_waiting *waiting)
{
    for (size_t i = 1; i < waiting->count; i++)
        assert_true(waiting->rows[i - 1] < waiting->rows[i]);
}

static void
test_rows_are_in_order_however_they_come(void **state)
{
    (void)state;
    static const int64_t rows[] = {5, 9, 7, 5, -3, 9, 8, 7, INT64_MAX, 1, 5};
    struct skr_waiting waiting = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        skr_waiting_add(&waiting, rows[i]);
    assert_int_equal(waiting.count, 7);
    assert_ascending(&waiting);
    skr_waiting_forget(&waiting, 6);
    assert_int_equal(waiting.count, 4);
    assert_int_equal(waiting.rows[0], 7);
    skr_waiting_add(&waiting, 6);
    assert_int_equal(waiting.rows[0], 6);
    skr_waiting_fini(&waiting);
}

static void
test_rows_that_come_by_chance_are_in_order(void **state)
{
    (void)state;
    struct skr_waiting waiting = {0};
    unsigned char is_there[500] = {0};
    size_t count = 0;
    uint32_t chance = 1;
    for (int i = 0; i < 2000; i++) {
        chance = chance * 1664525 + 1013904223;
        size_t row = (chance >> 8) % sizeof(is_there);
        count += !is_there[row];
        is_there[row] = 1;
        skr_waiting_add(&waiting, (int64_t)row);
        assert_int_equal(waiting.count, count);
    }
    assert_ascending(&waiting);
    skr_waiting_fini(&waiting);
}

// A sweep tells of all of them once more, from the first on.
static void
test_many_that_are_known_cost_little(void **state)
{
    (void)state;
    struct skr_waiting waiting = {0};
    clock_t start = clock();
    for (int told = 0; told < 2; told++)
        for (int64_t row = 1; row <= MANY; row++)
            skr_waiting_add(&waiting, row);
    assert_int_equal(waiting.count, MANY);
    assert_true(clock() - start < CLOCKS_PER_SEC);
    skr_waiting_fini(&waiting);
}

// Most of so many have left their table: those that have not are told again.
static void
test_the_newest_finds_room(void **state)
{
    (void)state;
    enum { MOST = 1 << 20 };
    struct skr_waiting waiting = {0};
    for (int64_t row = 1; row <= MOST; row++)
        skr_waiting_add(&waiting, row);
    skr_waiting_add(&waiting, MOST / 2);
    assert_int_equal(waiting.count, MOST);
    skr_waiting_add(&waiting, MOST + 1);
    skr_waiting_add(&waiting, MOST / 2);
    assert_int_equal(waiting.count, 2);
    assert_ascending(&waiting);
    skr_waiting_fini(&waiting);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_in_order_however_they_come),
        cmocka_unit_test(test_rows_that_come_by_chance_are_in_order),
        cmocka_unit_test(test_many_that_are_known_cost_little),
        cmocka_unit_test(test_the_newest_finds_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
