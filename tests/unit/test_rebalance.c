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
    struct skr_share shares[SKR_SEATS + 1];
    size_t count;
};

static struct skr_shares
see(const struct crowd *crowd, size_t who)
{
    struct skr_shares shares = {
        .ours = crowd->shares[who],
        .free = {.slots = (UINT64_C(1) << SKR_SLOTS) - 1,
                 .seats = (UINT64_C(1) << SKR_SEATS) - 1},
    };
    for (size_t i = 0; i < crowd->count; i++) {
        shares.free.slots &= ~crowd->shares[i].slots;
        shares.free.seats &= ~crowd->shares[i].seats;
        shares.others += i != who && crowd->shares[i].seats != 0;
    }
    return shares;
}

// Each changes its share once. Gives how many did.
static size_t
take_turns(struct crowd *crowd)
{
    size_t changed = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        struct skr_share give, take;
        const struct skr_shares shares = see(crowd, i);
        skr_rebalance_plan(&shares, &give, &take);
        crowd->shares[i].slots =
            (crowd->shares[i].slots & ~give.slots) | take.slots;
        crowd->shares[i].seats |= take.seats;
        changed += (give.slots | take.slots | take.seats) != 0;
    }
    return changed;
}

static size_t
count_slots(const struct skr_share *share)
{
    size_t count = 0;
    for (int slot = 0; slot < SKR_SLOTS; slot++)
        count += share->slots >> slot & 1;
    return count;
}

static void
test_relays_that_come_one_by_one_have_about_the_same_each(void **state)
{
    (void)state;
    struct crowd crowd = {.count = 0};
    for (crowd.count = 1; crowd.count <= SKR_SEATS; crowd.count++) {
        for (int turns = 0; take_turns(&crowd) > 0; turns++)
            assert_in_range(turns, 0, 10);
        size_t all = 0;
        for (size_t i = 0; i < crowd.count; i++) {
            size_t slots = count_slots(&crowd.shares[i]);
            assert_in_range(slots, SKR_SLOTS / crowd.count,
                            SKR_SLOTS / crowd.count + 1);
            all += slots;
        }
        assert_int_equal(all, SKR_SLOTS);
    }
    // One more finds no seat.
    assert_int_equal(take_turns(&crowd), 0);
    assert_int_equal(crowd.shares[SKR_SEATS].slots, 0);
}

static void
test_a_queue_that_is_silent_is_looked_at_rarely_and_in_time(void **state)
{
    (void)state;
    static const struct {
        uint64_t slots;
        int64_t moved_ms;      // before now
        int64_t others_for_s;  // 0: nobody else is there
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
        const struct skr_shares shares = {.others_for_s = cases[i].others_for_s,
                                          .others_by_lock =
                                              cases[i].others_by_lock};
        const struct skr_share ours = {.slots = cases[i].slots};
        struct skr_rebalance rebalance = {.moved_ms =
                                              NOW_MS - cases[i].moved_ms};
        skr_rebalance_looked(&rebalance, &ours, &shares, NOW_MS);
        assert_int_equal(skr_rebalance_look_ms(&rebalance, NOW_MS),
                         NOW_MS + cases[i].want_ms);
    }
}

static void
test_what_moves_is_a_reason_to_look_soon(void **state)
{
    (void)state;
    const struct skr_shares alone = {.others = 0};
    const struct skr_share ours = {.slots = 1};
    struct skr_rebalance rebalance = {.moved_ms = 0};
    skr_rebalance_looked(&rebalance, &ours, &alone, NOW_MS);
    rebalance.moved_ms = NOW_MS + 30000;
    assert_int_equal(skr_rebalance_look_ms(&rebalance, NOW_MS + 30000),
                     NOW_MS + 1000);
}

static void
test_a_relay_without_a_shard_looks_sooner(void **state)
{
    (void)state;
    static const int64_t pauses[] = {100, 200, 400, 800, 1000, 1000};
    const struct skr_shares shares = {.others = 1};
    const struct skr_share none = {.seats = 1}, one = {.slots = 1, .seats = 1};
    struct skr_rebalance rebalance = {.moved_ms = NOW_MS};
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
            skr_rebalance_looked(&rebalance, &none, &shares, NOW_MS);
            assert_int_equal(skr_rebalance_look_ms(&rebalance, NOW_MS),
                             NOW_MS + pauses[i]);
        }
        skr_rebalance_looked(&rebalance, &one, &shares, NOW_MS);
        assert_int_equal(skr_rebalance_look_ms(&rebalance, NOW_MS),
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
