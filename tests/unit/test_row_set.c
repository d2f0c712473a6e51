// SPDX-License-Identifier: MIT
// Rows of a set are in order, and each is there once.
#include "store/batch.h"
#include "store/row_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MANY = 1 << 17 };

static void
assert_ascending(const struct skr_row_set *set)
{
    for (size_t i = 1; i < set->count; i++)
        assert_true(set->rows[i - 1] < set->rows[i]);
}

static void
test_rows_are_in_order_however_they_come(void **state)
{
    (void)state;
    static const int64_t rows[] = {5, 9, 7, 5, -3, 9, 8, 7, INT64_MAX, 1, 5};
    struct skr_row_set set = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_true(skr_row_set_add(&set, rows[i]));
    assert_int_equal(set.count, 7);
    assert_ascending(&set);
    skr_row_set_remove_up_to(&set, 6);
    assert_int_equal(set.count, 4);
    assert_int_equal(set.rows[0], 7);
    assert_true(skr_row_set_add(&set, 6));
    assert_int_equal(set.rows[0], 6);
    skr_row_set_fini(&set);
}

static void
test_rows_that_come_by_chance_are_in_order(void **state)
{
    (void)state;
    struct skr_row_set set = {0};
    unsigned char is_there[500] = {0};
    size_t count = 0;
    uint32_t chance = 1;
    for (int i = 0; i < 2000; i++) {
        chance = chance * 1664525 + 1013904223;
        size_t row = (chance >> 8) % sizeof(is_there);
        count += !is_there[row];
        is_there[row] = 1;
        assert_true(skr_row_set_add(&set, (int64_t)row));
        assert_int_equal(set.count, count);
    }
    assert_ascending(&set);
    skr_row_set_fini(&set);
}

// A full scan tells of all of them once more, from the first on.
static void
test_many_that_are_known_cost_little(void **state)
{
    (void)state;
    struct skr_row_set set = {0};
    clock_t start = clock();
    for (int told = 0; told < 2; told++)
        for (int64_t row = 1; row <= MANY; row++)
            assert_true(skr_row_set_add(&set, row));
    assert_int_equal(set.count, MANY);
    assert_true(clock() - start < CLOCKS_PER_SEC);
    skr_row_set_fini(&set);
}

// Most of so many have left their table: those that have not are told again.
static void
test_the_newest_finds_room(void **state)
{
    (void)state;
    enum { MOST = 1 << 20 };
    struct skr_row_set set = {.most = MOST};
    for (int64_t row = 1; row <= MOST; row++)
        assert_true(skr_row_set_add(&set, row));
    assert_true(skr_row_set_add(&set, MOST / 2));
    assert_int_equal(set.count, MOST);
    assert_true(skr_row_set_add(&set, MOST + 1));
    assert_true(skr_row_set_add(&set, MOST / 2));
    assert_int_equal(set.count, 2);
    assert_ascending(&set);
    skr_row_set_fini(&set);
}

static void
test_rows_that_are_removed_are_gone_and_no_others(void **state)
{
    (void)state;
    struct skr_row_set set = {0};
    skr_row_set_remove(&set, 1);
    for (int64_t row = 1; row <= 9; row++)
        assert_true(skr_row_set_add(&set, row));
    skr_row_set_remove(&set, 5);
    skr_row_set_remove(&set, 5);
    skr_row_set_remove(&set, 10);
    assert_int_equal(set.count, 8);
    assert_false(skr_is_among_rows(5, set.rows, set.count));
    assert_true(skr_is_among_rows(4, set.rows, set.count) &&
                skr_is_among_rows(6, set.rows, set.count));
    assert_ascending(&set);
    skr_row_set_remove_up_to(&set, 9);
    assert_int_equal(set.count, 0);
    skr_row_set_fini(&set);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_in_order_however_they_come),
        cmocka_unit_test(test_rows_that_come_by_chance_are_in_order),
        cmocka_unit_test(test_many_that_are_known_cost_little),
        cmocka_unit_test(test_the_newest_finds_room),
        cmocka_unit_test(test_rows_that_are_removed_are_gone_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
