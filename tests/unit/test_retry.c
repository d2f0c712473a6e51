// SPDX-License-Identifier: MIT
// What becomes of a row: every result, whatever is to blame, and every rule for
// messages that no queue takes.

#include "relay/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ANY_RULE SKR_UNROUTABLE_FAIL

static const struct skr_retry_policy policy = {
    .max_retries = 3, .delay_ms = 1000, .multiplier = 2.0};

static void
test_every_row_of_the_table(void **state)
{
    (void)state;
    static const struct {
        struct skr_publish_facts facts;
        struct skr_retry_decision want;
    } cases[] = {
        {{SKR_CONFIRMED, SKR_BLAME_MESSAGE, ANY_RULE, 3},
         {SKR_DECISION_DONE, 0, false}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_MESSAGE, ANY_RULE, 0},
         {SKR_DECISION_RETRY, 1000, false}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_MESSAGE, ANY_RULE, 2},
         {SKR_DECISION_RETRY, 4000, false}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_MESSAGE, ANY_RULE, 3},
         {SKR_DECISION_GIVE_UP, 0, false}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_MESSAGE, ANY_RULE, 99},
         {SKR_DECISION_GIVE_UP, 0, false}},
        // Not counted, it is tried for ever.
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_NOBODY, ANY_RULE, 0},
         {SKR_DECISION_RETRY, 1000, true}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_NOBODY, ANY_RULE, 3},
         {SKR_DECISION_RETRY, 8000, true}},
        {{SKR_REFUSED_FOR_NOW, SKR_BLAME_DESTINATION, ANY_RULE, 99},
         {SKR_DECISION_LEAVE, 0, false}},
        {{SKR_REFUSED_FOR_GOOD, SKR_BLAME_MESSAGE, ANY_RULE, 0},
         {SKR_DECISION_GIVE_UP, 0, false}},
        {{SKR_UNROUTABLE, SKR_BLAME_MESSAGE, SKR_UNROUTABLE_UNSAID, 0},
         {SKR_DECISION_GIVE_UP, 0, false}},
        {{SKR_UNROUTABLE, SKR_BLAME_MESSAGE, SKR_UNROUTABLE_FAIL, 0},
         {SKR_DECISION_GIVE_UP, 0, false}},
        {{SKR_UNROUTABLE, SKR_BLAME_MESSAGE, SKR_UNROUTABLE_DROP, 0},
         {SKR_DECISION_DONE, 0, false}},
        {{SKR_UNROUTABLE, SKR_BLAME_MESSAGE, SKR_UNROUTABLE_WAIT, 9},
         {SKR_DECISION_LEAVE, 0, false}},
        {{SKR_UNCERTAIN, SKR_BLAME_MESSAGE, ANY_RULE, 9},
         {SKR_DECISION_LEAVE, 0, false}},
        {{SKR_ROUTE_UNAVAILABLE, SKR_BLAME_MESSAGE, ANY_RULE, 9},
         {SKR_DECISION_LEAVE, 0, false}},
        {{SKR_HELD_BACK, SKR_BLAME_MESSAGE, ANY_RULE, 9},
         {SKR_DECISION_LEAVE, 0, false}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct skr_retry_decision got =
            skr_retry_decide(&cases[i].facts, &policy, 5);
        print_message("case %zu\n", i);
        assert_int_equal(got.decision, cases[i].want.decision);
        assert_int_equal(got.delay_ms, cases[i].want.delay_ms);
        assert_int_equal(got.is_not_counted, cases[i].want.is_not_counted);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
