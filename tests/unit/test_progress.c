// SPDX-License-Identifier: MIT
// A bar for people, and a rate that is kept.

#include "app/console/progress.h"
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void
test_a_rate_is_not_exceeded(void **state)
{
    // Such that a step takes no whole number of milliseconds, or less than one.
    static const uint32_t rates[] = {600, 1500};
    enum { STEPS = 300 };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct skr_progress progress;
        int64_t start_us = skr_clock_us();
        skr_progress_begin(&progress, STEPS, rates[i]);
        for (int step = 0; step < STEPS; step++)
            assert_true(skr_progress_step(&progress, 1));
        int64_t least_us = INT64_C(1000000) * STEPS / rates[i];
        // The last may be early by less than a millisecond.
        assert_true(skr_clock_us() - start_us > least_us - 1000);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rate_is_not_exceeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
