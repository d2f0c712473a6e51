// SPDX-License-Identifier: MIT
// When a relay looks at the shares of others.
#include "outbox/sharing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NOW_MS = 1000000 };

static void
test_a_queue_that_is_silent_is_looked_at_rarely_and_in_time(void **state)
{
    (void)state;
    static const struct {
        uint64_t slots;
        int64_t moved_ms;      // before now
        int64_t others_for_s;  // 0: nobody else is there
        int64_t want_ms;       // from now
    } cases[] = {
        {1, 0, 0, 1000},     {1, 59000, 0, 1000}, {1, 60000, 0, 60000},
        {1, 60000, 9, 9000}, {1, 60000, 1, 1000}, {1, 60000, 900, 60000},
        {0, 60000, 9, 1000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct skr_shares shares = {.others_for_s =
                                              cases[i].others_for_s};
        struct skr_sharing sharing = {.share.slots = cases[i].slots,
                                      .moved_ms = NOW_MS - cases[i].moved_ms};
        skr_sharing_plan_look(&sharing, &shares, NOW_MS);
        assert_int_equal(skr_sharing_look_ms(&sharing, NOW_MS),
                         NOW_MS + cases[i].want_ms);
    }
}

static void
test_what_moves_is_a_reason_to_look_soon(void **state)
{
    (void)state;
    const struct skr_shares alone = {.others = 0};
    struct skr_sharing sharing = {.share.slots = 1};
    skr_sharing_plan_look(&sharing, &alone, NOW_MS);
    sharing.moved_ms = NOW_MS + 30000;
    assert_int_equal(skr_sharing_look_ms(&sharing, NOW_MS + 30000),
                     NOW_MS + 1000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_a_queue_that_is_silent_is_looked_at_rarely_and_in_time),
        cmocka_unit_test(test_what_moves_is_a_reason_to_look_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
