// SPDX-License-Identifier: MIT
// Back-off, vector, map and ring, and what they do when memory is out.
#include "base/arena.h"
#include "base/backoff.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/text.h"
#include "base/vec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oom.h"

// A sequence of numbers that is the same in every run.
static uint64_t
next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return *seed >> 33;
}

// ----------------------------------------------------------------- back-off

static void
test_pauses_double_up_to_the_longest(void **state)
{
    (void)state;
    static const struct {
        struct skr_backoff backoff;
        uint32_t want_ms[5];
    } cases[] = {
        {{.first_ms = 100, .longest_ms = 1000}, {100, 200, 400, 800, 1000}},
        {{.first_ms = 100, .longest_ms = 400}, {100, 200, 400, 400, 400}},
        {{.first_ms = 500, .longest_ms = 100}, {100, 100, 100, 100, 100}},
        {{.first_ms = 1U << 30, .longest_ms = UINT32_MAX},
         {1U << 30, 1U << 31, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_backoff backoff = cases[i].backoff;
        for (size_t k = 0; k < SKR_COUNT_OF(cases[i].want_ms); k++)
            assert_int_equal(skr_backoff_next(&backoff), cases[i].want_ms[k]);
    }
}

static void
test_a_reset_leads_back_to_the_first_pause(void **state)
{
    (void)state;
    struct skr_backoff backoff = {.first_ms = 10, .longest_ms = 1000};
    skr_backoff_reset(&backoff);
    assert_int_equal(skr_backoff_next(&backoff), 10);
    assert_int_equal(skr_backoff_next(&backoff), 20);
    skr_backoff_reset(&backoff);
    assert_int_equal(skr_backoff_next(&backoff), 10);
}

// ------------------------------------------------------------------- vector

struct pair {
    int64_t key;
    int64_t value;
};

static int
compare_pairs(const void *key, const void *item)
{
    int64_t a = *(const int64_t *)key, b = ((const struct pair *)item)->key;
    return (a > b) - (a < b);
}

static void
test_capacity_doubles_from_sixteen(void **state)
{
    (void)state;
    static const struct {
        size_t needed, capacity;
    } cases[] = {{0, 0}, {1, 16}, {16, 16}, {17, 32}, {33, 64}, {1000, 1024}};
    struct pair *items = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        assert_true(skr_vec_reserve(&items, &capacity, cases[i].needed,
                                    sizeof(*items)));
        assert_int_equal(capacity, cases[i].capacity);
        if (capacity > 0)
            memset(items, 1, capacity * sizeof(*items));
    }
    free(items);
}

static void
test_a_size_that_no_memory_has_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t needed;
        bool asks;
    } cases[] = {
        {SIZE_MAX, false},
        {SIZE_MAX / sizeof(struct pair) + 1, false},
        // Its bytes can be counted, those of twice the capacity cannot.
        {SIZE_MAX / sizeof(struct pair), true},
    };
    struct pair *items = NULL;
    size_t capacity = 0;
    assert_true(skr_vec_reserve(&items, &capacity, 1, sizeof(*items)));
    struct pair *before = items;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        skr_oom_arm(1);
        assert_false(skr_vec_reserve(&items, &capacity, cases[i].needed,
                                     sizeof(*items)));
        assert_int_equal(skr_oom_disarm(), cases[i].asks);
        assert_ptr_equal(items, before);
        assert_int_equal(capacity, 16);
    }
    free(items);
}

static void
test_inserted_items_stay_sorted_and_are_found(void **state)
{
    (void)state;
    struct pair *items = NULL;
    size_t count = 0, capacity = 0;
    uint64_t seed = 1;
    for (size_t i = 0; i < 500; i++) {
        struct pair pair = {.key = (int64_t)(next_random(&seed) % 1000)};
        pair.value = -pair.key;
        size_t at = skr_vec_find(items, count, sizeof(*items), &pair.key,
                                 compare_pairs);
        assert_true(skr_vec_insert(&items, &count, &capacity, at, &pair,
                                   sizeof(*items)));
        assert_int_equal(skr_vec_find(items, count, sizeof(*items), &pair.key,
                                      compare_pairs),
                         at);
    }
    assert_int_equal(count, 500);
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || items[i - 1].key <= items[i].key);
        assert_int_equal(items[i].value, -items[i].key);
    }
    free(items);
}

static void
test_a_removed_item_leaves_no_gap(void **state)
{
    (void)state;
    int items[] = {0, 1, 2, 3, 4};
    size_t count = SKR_COUNT_OF(items);
    skr_vec_remove(items, &count, 4, sizeof(items[0]));
    skr_vec_remove(items, &count, 0, sizeof(items[0]));
    skr_vec_remove(items, &count, 1, sizeof(items[0]));
    assert_int_equal(count, 2);
    assert_int_equal(items[0], 1);
    assert_int_equal(items[1], 3);
}

static void
test_a_vector_is_unchanged_when_memory_is_out(void **state)
{
    (void)state;
    size_t live = skr_oom_live();
    int *items = NULL;
    size_t count = 0, capacity = 0;
    skr_oom_arm(1);
    assert_false(skr_vec_insert(&items, &count, &capacity, 0, &(int){7},
                                sizeof(*items)));
    assert_true(skr_oom_disarm());
    assert_null(items);
    assert_int_equal(count + capacity, 0);
    for (int i = 0; i < 16; i++)
        assert_true(skr_vec_insert(&items, &count, &capacity, count, &i,
                                   sizeof(*items)));
    int *before = items;
    skr_oom_arm(1);
    assert_false(skr_vec_insert(&items, &count, &capacity, 0, &(int){7},
                                sizeof(*items)));
    assert_true(skr_oom_disarm());
    assert_ptr_equal(items, before);
    assert_int_equal(count, 16);
    assert_int_equal(capacity, 16);
    for (int i = 0; i < 16; i++)
        assert_int_equal(items[i], i);
    free(items);
    assert_int_equal(skr_oom_live(), live);
}

static void
test_an_array_of_an_arena_grows_or_is_unchanged(void **state)
{
    (void)state;
    size_t live = skr_oom_live();
    struct skr_arena arena = {0};
    int64_t *items = NULL;
    size_t capacity = 0;
    skr_oom_arm(1);
    assert_null(skr_arena_grow(&arena, items, 0, &capacity, sizeof(*items)));
    assert_true(skr_oom_disarm());
    assert_int_equal(capacity, 0);
    for (size_t count = 0; count < 100; count++) {
        items = skr_arena_grow(&arena, items, count, &capacity, sizeof(*items));
        assert_non_null(items);
        assert_true(count < capacity);
        items[count] = (int64_t)count;
    }
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(items[i], i);
    capacity = SIZE_MAX / sizeof(*items) / 2 + 1;
    assert_null(
        skr_arena_grow(&arena, items, capacity, &capacity, sizeof(*items)));
    skr_arena_fini(&arena);
    assert_int_equal(skr_oom_live(), live);
}

// ---------------------------------------------------------------------- map

static void
test_an_empty_map_has_nothing(void **state)
{
    (void)state;
    struct skr_map map = {0};
    size_t at = 0;
    assert_null(skr_map_get(&map, 0));
    assert_null(skr_map_remove(&map, 0));
    assert_null(skr_map_next(&map, &at, NULL));
    skr_map_clear(&map);
    skr_map_fini(&map);
}

static void
test_any_number_is_a_key(void **state)
{
    (void)state;
    static const uint64_t keys[] = {
        0, 1, UINT64_MAX, UINT64_MAX - 1, 1ULL << 32, 1ULL << 63, 16, 32, 48,
    };
    int values[SKR_COUNT_OF(keys)] = {0};
    struct skr_map map = {0};
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++)
        assert_true(skr_map_put(&map, keys[i], &values[i]));
    assert_int_equal(map.count, SKR_COUNT_OF(keys));
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++)
        assert_ptr_equal(skr_map_get(&map, keys[i]), &values[i]);
    for (size_t i = 0; i < SKR_COUNT_OF(keys); i++) {
        assert_ptr_equal(skr_map_remove(&map, keys[i]), &values[i]);
        assert_null(skr_map_get(&map, keys[i]));
        assert_null(skr_map_remove(&map, keys[i]));
    }
    assert_int_equal(map.count, 0);
    skr_map_fini(&map);
}

static void
test_a_key_has_the_value_that_it_was_last_given(void **state)
{
    (void)state;
    int first = 1, second = 2;
    struct skr_map map = {0};
    assert_true(skr_map_put(&map, 5, &first));
    assert_true(skr_map_put(&map, 5, &second));
    assert_int_equal(map.count, 1);
    assert_ptr_equal(skr_map_get(&map, 5), &second);
    skr_map_clear(&map);
    assert_int_equal(map.count, 0);
    assert_null(skr_map_get(&map, 5));
    assert_true(skr_map_put(&map, 5, &first));
    assert_ptr_equal(skr_map_get(&map, 5), &first);
    skr_map_fini(&map);
}

static void
assert_walk_meets_all(const struct skr_map *map, void *const *model,
                      size_t model_size, uint64_t step)
{
    size_t at = 0, met = 0;
    uint64_t key = 0;
    for (void *value = NULL; (value = skr_map_next(map, &at, &key)) != NULL;) {
        assert_int_equal(key % step, 0);
        assert_true(key / step < model_size);
        assert_ptr_equal(model[key / step], value);
        met++;
    }
    assert_int_equal(met, map->count);
}

// Few keys and many removals, so that runs of entries are long, wrap around the
// end and are cut in every place.
static void
test_a_map_agrees_with_a_plain_array(void **state)
{
    (void)state;
    enum { KEYS = 200 };
    static const uint64_t steps[] = {1, 16, 4096, 1ULL << 32, 1ULL << 56};
    for (size_t s = 0; s < SKR_COUNT_OF(steps); s++) {
        void *model[KEYS] = {NULL};
        char values[64];
        struct skr_map map = {0};
        uint64_t seed = s;
        for (size_t i = 0; i < 20000; i++) {
            size_t key = next_random(&seed) % KEYS;
            void *value = &values[next_random(&seed) % sizeof(values)];
            if (next_random(&seed) % 2 == 0) {
                assert_true(skr_map_put(&map, key * steps[s], value));
                model[key] = value;
            } else {
                assert_ptr_equal(skr_map_remove(&map, key * steps[s]),
                                 model[key]);
                model[key] = NULL;
            }
            key = next_random(&seed) % KEYS;
            assert_ptr_equal(skr_map_get(&map, key * steps[s]), model[key]);
            assert_true(map.count * 2 <= map.capacity);
        }
        assert_walk_meets_all(&map, model, KEYS, steps[s]);
        skr_map_fini(&map);
    }
}

static void
test_a_map_is_unchanged_when_memory_is_out(void **state)
{
    (void)state;
    size_t live = skr_oom_live();
    int value = 0, other = 0;
    struct skr_map map = {0};
    skr_oom_arm(1);
    assert_false(skr_map_put(&map, 1, &value));
    assert_true(skr_oom_disarm());
    assert_int_equal(map.count, 0);
    assert_null(skr_map_get(&map, 1));
    for (uint64_t key = 0; key < 8; key++)
        assert_true(skr_map_put(&map, key, &value));
    skr_oom_arm(1);
    assert_true(skr_map_put(&map, 3, &other));
    assert_false(skr_map_put(&map, 8, &value));
    assert_true(skr_oom_disarm());
    assert_int_equal(map.count, 8);
    assert_null(skr_map_get(&map, 8));
    for (uint64_t key = 0; key < 8; key++)
        assert_ptr_equal(skr_map_get(&map, key), key == 3 ? &other : &value);
    skr_map_fini(&map);
    assert_int_equal(skr_oom_live(), live);
}

// --------------------------------------------------------------------- ring

static void
test_a_ring_gives_first_what_came_first(void **state)
{
    (void)state;
    struct skr_ring ring = {.item_size = sizeof(uint64_t)};
    uint64_t seed = 7, pushed = 0, popped = 0, item = 0;
    assert_false(skr_ring_pop(&ring, &item));
    for (size_t i = 0; i < 5000; i++) {
        // Longer and shorter by turns, so that it wraps and grows while
        // wrapped.
        bool grows = (i / 500) % 2 == 0;
        if (next_random(&seed) % 4 < (grows ? 3 : 1)) {
            assert_true(skr_ring_push(&ring, &pushed));
            pushed++;
        } else if (skr_ring_pop(&ring, &item)) {
            assert_int_equal(item, popped);
            popped++;
        }
        assert_int_equal(ring.count, pushed - popped);
        for (size_t k = 0; k < ring.count; k++)
            assert_int_equal(*(uint64_t *)skr_ring_at(&ring, k), popped + k);
    }
    assert_true(ring.capacity > 16);
    while (skr_ring_pop(&ring, &item))
        assert_int_equal(item, popped++);
    assert_int_equal(ring.count, 0);
    assert_true(skr_ring_push(&ring, &pushed));
    assert_true(skr_ring_pop(&ring, &item));
    assert_int_equal(item, pushed);
    skr_ring_fini(&ring);
    assert_true(skr_ring_push(&ring, &pushed));
    skr_ring_fini(&ring);
}

static void
test_a_ring_is_unchanged_when_memory_is_out(void **state)
{
    (void)state;
    size_t live = skr_oom_live();
    struct skr_ring ring = {.item_size = sizeof(int)};
    int item = 0;
    skr_oom_arm(1);
    assert_false(skr_ring_push(&ring, &item));
    assert_true(skr_oom_disarm());
    assert_int_equal(ring.count, 0);
    for (item = 0; item < 16; item++)
        assert_true(skr_ring_push(&ring, &item));
    skr_oom_arm(1);
    assert_false(skr_ring_push(&ring, &item));
    assert_true(skr_oom_disarm());
    // What was taken out may come back without memory.
    skr_oom_arm(1);
    assert_true(skr_ring_pop(&ring, &item));
    assert_int_equal(item, 0);
    assert_true(skr_ring_push(&ring, &item));
    assert_false(skr_oom_disarm());
    for (int want = 1; want < 16; want++) {
        assert_true(skr_ring_pop(&ring, &item));
        assert_int_equal(item, want);
    }
    skr_ring_fini(&ring);
    assert_int_equal(skr_oom_live(), live);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pauses_double_up_to_the_longest),
        cmocka_unit_test(test_a_reset_leads_back_to_the_first_pause),
        cmocka_unit_test(test_capacity_doubles_from_sixteen),
        cmocka_unit_test(test_a_size_that_no_memory_has_is_refused),
        cmocka_unit_test(test_inserted_items_stay_sorted_and_are_found),
        cmocka_unit_test(test_a_removed_item_leaves_no_gap),
        cmocka_unit_test(test_a_vector_is_unchanged_when_memory_is_out),
        cmocka_unit_test(test_an_array_of_an_arena_grows_or_is_unchanged),
        cmocka_unit_test(test_an_empty_map_has_nothing),
        cmocka_unit_test(test_any_number_is_a_key),
        cmocka_unit_test(test_a_key_has_the_value_that_it_was_last_given),
        cmocka_unit_test(test_a_map_agrees_with_a_plain_array),
        cmocka_unit_test(test_a_map_is_unchanged_when_memory_is_out),
        cmocka_unit_test(test_a_ring_gives_first_what_came_first),
        cmocka_unit_test(test_a_ring_is_unchanged_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
