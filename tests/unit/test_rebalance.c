// SPDX-License-Identifier: MIT
// How relays divide a queue evenly, and when one looks at the shares of others.
#include "relay/rebalance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NOW_MS = 1000000 };

struct crowd {
    struct skr_assignment shares[SKR_MEMBERS + 1];
    size_t count;
};

static struct skr_assignments
see(const struct crowd *crowd, size_t who)
{
    struct skr_assignments shares = {
        .ours = crowd->shares[who],
        .free = {.shards = (UINT64_C(1) << SKR_SHARDS) - 1,
                 .members = (UINT64_C(1) << SKR_MEMBERS) - 1},
    };
    for (size_t i = 0; i < crowd->count; i++) {
        shares.free.shards &= ~crowd->shares[i].shards;
        shares.free.members &= ~crowd->shares[i].members;
        shares.others += i != who && crowd->shares[i].members != 0;
    }
    return shares;
}

// Each changes its share once. Gives how many did.
static size_t
take_turns(struct crowd *crowd)
{
    size_t changed = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        struct skr_assignment give, take;
        const struct skr_assignments shares = see(crowd, i);
        skr_rebalance_plan(&shares, &give, &take);
        crowd->shares[i].shards =
            (crowd->shares[i].shards & ~give.shards) | take.shards;
        crowd->shares[i].members |= take.members;
        changed += (give.shards | take.shards | take.members) != 0;
    }
    return changed;
}

static size_t
count_shards(const struct skr_assignment *share)
{
    size_t count = 0;
    for (int slot = 0; slot < SKR_SHARDS; slot++)
        count += share->shards >> slot & 1;
    return count;
}

static void
test_relays_that_come_one_by_one_have_about_the_same_each(void **state)
{
    (void)state;
    struct crowd crowd = {.count = 0};
    for (crowd.count = 1; crowd.count <= SKR_MEMBERS; crowd.count++) {
        for (int turns = 0; take_turns(&crowd) > 0; turns++)
            assert_in_range(turns, 0, 10);
        size_t all = 0;
        for (size_t i = 0; i < crowd.count; i++) {
            size_t shards = count_shards(&crowd.shares[i]);
            assert_in_range(shards, SKR_SHARDS / crowd.count,
                            SKR_SHARDS / crowd.count + 1);
            all += shards;
        }
        assert_int_equal(all, SKR_SHARDS);
    }
    // One more finds no place.
    assert_int_equal(take_turns(&crowd), 0);
    assert_int_equal(crowd.shares[SKR_MEMBERS].shards, 0);
}

static void
test_a_queue_that_is_silent_is_looked_at_rarely_and_in_time(void **state)
{
    (void)state;
    static const struct {
        uint64_t shards;
        int64_t moved_ms;      // before now
        int64_t others_for_s;  // 0: no other member is there
        bool others_by_lock;
        int64_t want_ms;  // from now
    } cases[] = {
        {1, 0, 0, false, 1000},      {1, 59000, 0, false, 1000},
        {1, 60000, 0, false, 60000}, {1, 60000, 9, false, 9000},
        {1, 60000, 1, false, 1000},  {1, 60000, 900, false, 60000},
        {0, 60000, 9, false, 100},   {1, 0, 9, true, 400},
        {1, 60000, 9, true, 400},    {0, 60000, 9, true, 100},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct skr_assignments shares = {
            .others_for_s = cases[i].others_for_s,
            .others_by_lock = cases[i].others_by_lock};
        const struct skr_assignment ours = {.shards = cases[i].shards};
        struct skr_rebalance rebalance = {.moved_ms =
                                              NOW_MS - cases[i].moved_ms};
        skr_rebalance_polled(&rebalance, &ours, &shares, false, NOW_MS);
        assert_int_equal(skr_rebalance_next_ms(&rebalance, NOW_MS),
                         NOW_MS + cases[i].want_ms);
    }
}

static void
test_what_moves_is_a_reason_to_look_soon(void **state)
{
    (void)state;
    const struct skr_assignments alone = {.others = 0};
    const struct skr_assignment ours = {.shards = 1};
    struct skr_rebalance rebalance = {.moved_ms = 0};
    skr_rebalance_polled(&rebalance, &ours, &alone, false, NOW_MS);
    rebalance.moved_ms = NOW_MS + 30000;
    assert_int_equal(skr_rebalance_next_ms(&rebalance, NOW_MS + 30000),
                     NOW_MS + 1000);
}

static void
test_a_relay_without_a_shard_looks_sooner(void **state)
{
    (void)state;
    static const int64_t pauses[] = {100, 200, 400, 800, 1000, 1000};
    const struct skr_assignments shares = {.others = 1};
    const struct skr_assignment none = {.members = 1},
                                one = {.shards = 1, .members = 1};
    struct skr_rebalance rebalance = {.moved_ms = NOW_MS};
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
            skr_rebalance_polled(&rebalance, &none, &shares, false, NOW_MS);
            assert_int_equal(skr_rebalance_next_ms(&rebalance, NOW_MS),
                             NOW_MS + pauses[i]);
        }
        skr_rebalance_polled(&rebalance, &one, &shares, false, NOW_MS);
        assert_int_equal(skr_rebalance_next_ms(&rebalance, NOW_MS),
                         NOW_MS + 1000);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_relays_that_come_one_by_one_have_about_the_same_each),
        cmocka_unit_test(
            test_a_queue_that_is_silent_is_looked_at_rarely_and_in_time),
        cmocka_unit_test(test_what_moves_is_a_reason_to_look_soon),
        cmocka_unit_test(test_a_relay_without_a_shard_looks_sooner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
