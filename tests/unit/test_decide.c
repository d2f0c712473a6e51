// SPDX-License-Identifier: MIT
// What becomes of a delivery: every cause of a try that failed, every end, and
// everything that keeps a decision from being carried out.

#include "inbox/decide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct skr_delivery_policy policy = {
    .retry = {.max_retries = 3, .delay_ms = 1000, .multiplier = 2.0},
    .unhandled = SKR_UNHANDLED_FAIL,
};

static void
test_exhaustion(void **state)
{
    (void)state;
    static const struct {
        uint32_t max_retries, retries;
        enum skr_exhaustion want;
    } cases[] = {
        {3, 0, SKR_RETRIES_LEFT},
        {3, 3, SKR_RETRIES_LEFT},
        {3, 4, SKR_RETRIES_EXHAUSTED},
        {3, 5, SKR_STORING_FAILED},
        {3, UINT32_MAX, SKR_STORING_FAILED},
        // Without retries it has one delivery by itself.
        {0, 1, SKR_RETRIES_LEFT},
        {0, 2, SKR_RETRIES_EXHAUSTED},
        {0, 3, SKR_STORING_FAILED},
        {1, 1, SKR_RETRIES_LEFT},
        {1, 2, SKR_RETRIES_EXHAUSTED},
        {UINT32_MAX, UINT32_MAX, SKR_RETRIES_LEFT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(
            skr_find_exhaustion(cases[i].retries,
                                &(struct skr_retry_policy){
                                    .max_retries = cases[i].max_retries}),
            cases[i].want);
}

static void
test_causes(void **state)
{
    (void)state;
    static const struct {
        struct skr_failed_try failed;
        enum skr_cause want;
    } cases[] = {
        {{.step = SKR_STEP_BEGIN, .code = SKR_TIMEOUT, .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_BEGIN,
          .code = SKR_CONFLICT,
          .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_BEGIN, .code = SKR_REFUSED, .remedy = SKR_GIVE_UP},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_BEGIN,
          .code = SKR_UNAVAILABLE,
          .remedy = SKR_RECONNECT},
         SKR_CAUSE_CONNECTION},
        {{.step = SKR_STEP_RECORD,
          .code = SKR_UNAVAILABLE,
          .remedy = SKR_RECONNECT},
         SKR_CAUSE_CONNECTION},
        {{.step = SKR_STEP_RECORD,
          .code = SKR_CONFLICT,
          .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_CONFLICT},
        {{.step = SKR_STEP_RECORD, .code = SKR_REFUSED, .remedy = SKR_GIVE_UP},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_RECORD,
          .code = SKR_TIMEOUT,
          .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_COMMIT,
          .code = SKR_UNAVAILABLE,
          .remedy = SKR_RECONNECT},
         SKR_CAUSE_CONNECTION},
        {{.step = SKR_STEP_COMMIT,
          .code = SKR_CONFLICT,
          .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_CONFLICT},
        {{.step = SKR_STEP_COMMIT,
          .code = SKR_TIMEOUT,
          .remedy = SKR_TRY_AGAIN},
         SKR_CAUSE_DATABASE},
        {{.step = SKR_STEP_COMMIT, .code = SKR_REFUSED, .remedy = SKR_GIVE_UP},
         SKR_CAUSE_MESSAGE},
        // A rejection is the handler's word, in whatever trouble.
        {{SKR_STEP_HANDLE, SKR_REJECT, SKR_SPEAKER_FUNCTION, SKR_UNAVAILABLE,
          SKR_RECONNECT},
         SKR_CAUSE_MESSAGE},
        {{SKR_STEP_HANDLE, SKR_REJECT, SKR_SPEAKER_PROCESS, SKR_TIMEOUT,
          SKR_TRY_AGAIN},
         SKR_CAUSE_MESSAGE},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_FUNCTION, SKR_UNAVAILABLE,
          SKR_RECONNECT},
         SKR_CAUSE_CONNECTION},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_FUNCTION, SKR_CONFLICT,
          SKR_TRY_AGAIN},
         SKR_CAUSE_CONFLICT},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_FUNCTION, SKR_REFUSED,
          SKR_GIVE_UP},
         SKR_CAUSE_MESSAGE},
        // What a function says of itself is not believed.
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_FUNCTION, SKR_TIMEOUT,
          SKR_TRY_AGAIN},
         SKR_CAUSE_MESSAGE},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_FUNCTION, SKR_MISSING,
          SKR_GIVE_UP},
         SKR_CAUSE_MESSAGE},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_SQL, SKR_UNAVAILABLE,
          SKR_RECONNECT},
         SKR_CAUSE_CONNECTION},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_SQL, SKR_CONFLICT,
          SKR_TRY_AGAIN},
         SKR_CAUSE_CONFLICT},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_SQL, SKR_TIMEOUT,
          SKR_TRY_AGAIN},
         SKR_CAUSE_HANDLER},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_SQL, SKR_MISSING,
          SKR_GIVE_UP},
         SKR_CAUSE_HANDLER},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_SQL, SKR_REFUSED,
          SKR_GIVE_UP},
         SKR_CAUSE_UNCLEAR},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_PROCESS, SKR_STOPPED,
          SKR_TRY_AGAIN},
         SKR_CAUSE_STOP},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_PROCESS, SKR_MISSING,
          SKR_TRY_AGAIN},
         SKR_CAUSE_HANDLER},
        {{SKR_STEP_HANDLE, SKR_RETRY, SKR_SPEAKER_PROCESS, SKR_REFUSED,
          SKR_GIVE_UP},
         SKR_CAUSE_MESSAGE},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(skr_find_cause(&cases[i].failed), cases[i].want);
}

static void
test_ends_of_causes(void **state)
{
    (void)state;
    static const struct {
        enum skr_cause cause;
        enum skr_step step;
        unsigned times;
        enum skr_end want;
    } cases[] = {
        {SKR_CAUSE_MESSAGE, SKR_STEP_HANDLE, 1, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_MESSAGE, SKR_STEP_COMMIT, 1, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_UNCLEAR, SKR_STEP_HANDLE, 1, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_HANDLER, SKR_STEP_HANDLE, 1, SKR_END_HANDLER_DOWN},
        {SKR_CAUSE_DATABASE, SKR_STEP_BEGIN, 1, SKR_END_DATABASE_AWAY},
        {SKR_CAUSE_DATABASE, SKR_STEP_COMMIT, 1, SKR_END_DATABASE_AWAY},
        {SKR_CAUSE_STOP, SKR_STEP_HANDLE, 1, SKR_END_NOT_REACHED},
        {SKR_CAUSE_CONFLICT, SKR_STEP_RECORD, 1, SKR_END_NONE},
        {SKR_CAUSE_CONFLICT, SKR_STEP_RECORD, 5, SKR_END_NONE},
        {SKR_CAUSE_CONFLICT, SKR_STEP_RECORD, 6, SKR_END_DATABASE_AWAY},
        {SKR_CAUSE_CONFLICT, SKR_STEP_HANDLE, 5, SKR_END_NONE},
        {SKR_CAUSE_CONFLICT, SKR_STEP_HANDLE, 6, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_CONFLICT, SKR_STEP_COMMIT, 6, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_CONNECTION, SKR_STEP_HANDLE, 3, SKR_END_NONE},
        {SKR_CAUSE_CONNECTION, SKR_STEP_HANDLE, 4, SKR_END_HANDLER_FAILED},
        {SKR_CAUSE_CONNECTION, SKR_STEP_BEGIN, 3, SKR_END_NONE},
        {SKR_CAUSE_CONNECTION, SKR_STEP_BEGIN, 4, SKR_END_DATABASE_AWAY},
        {SKR_CAUSE_CONNECTION, SKR_STEP_RECORD, 4, SKR_END_DATABASE_AWAY},
        {SKR_CAUSE_CONNECTION, SKR_STEP_COMMIT, 4, SKR_END_DATABASE_AWAY},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(
            skr_end_of_cause(cases[i].cause, cases[i].step, cases[i].times),
            cases[i].want);
}

struct decision_case {
    struct skr_delivery_facts facts;
    struct skr_delivery_decision want;
};

static void
check_cases(const struct decision_case *cases, size_t count,
            const struct skr_delivery_policy *rules)
{
    for (size_t i = 0; i < count; i++) {
        const struct skr_delivery_decision *want = &cases[i].want;
        struct skr_delivery_decision got =
            skr_delivery_decide(&cases[i].facts, rules);
        assert_int_equal(got.disposition, want->disposition);
        assert_int_equal(got.delay_ms, want->delay_ms);
        assert_int_equal(got.is_not_counted, want->is_not_counted);
        assert_int_equal(got.needs_row, want->needs_row);
    }
}

static void
test_what_needs_no_row(void **state)
{
    (void)state;
    static const struct decision_case cases[] = {
        {{.end = SKR_END_COMMITTED}, {SKR_ACK, 0, false, false}},
        {{.end = SKR_END_COMMITTED,
          .retries = 99,
          .is_over_capacity = true,
          .was_requeued = true,
          .is_row_unwritable = true},
         {SKR_ACK, 0, false, false}},
        {{.end = SKR_END_DUPLICATE}, {SKR_ACK, 0, false, false}},
        // Trouble that all have: nothing is requeued, as others have it, too.
        {{.end = SKR_END_DATABASE_AWAY}, {SKR_DEFER, 0, false, false}},
        {{.end = SKR_END_DATABASE_AWAY,
          .was_requeued = true,
          .is_over_capacity = true,
          .has_retry_queue = true},
         {SKR_DEFER, 0, false, false}},
        {{.end = SKR_END_NOT_REACHED}, {SKR_REQUEUE, 0, false, false}},
        {{.end = SKR_END_NOT_REACHED, .broker_delays = true, .retries = 99},
         {SKR_REQUEUE, 0, false, false}},
        {{.end = SKR_END_NONE}, {SKR_REQUEUE, 0, false, false}},
        // A queue that counts drops in the end what it gets back.
        {{.end = SKR_END_NOT_REACHED, .was_requeued = true},
         {SKR_DEFER, 0, false, false}},
    };
    check_cases(cases, COUNT_OF(cases), &policy);
}

static void
test_dead_letters(void **state)
{
    (void)state;
    static const struct decision_case cases[] = {
        {{.end = SKR_END_NOT_UNDERSTOOD}, {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_NOT_UNDERSTOOD, .broker_delays = true},
         {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_RETRIES_EXHAUSTED, .retries = 4},
         {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_UNHANDLED}, {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_HANDLER_FAILED, .verdict = SKR_REJECT},
         {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_HANDLER_FAILED, .verdict = SKR_RETRY, .retries = 3},
         {SKR_DEAD_LETTER, 0, false, true}},
        {{.end = SKR_END_HANDLER_FAILED, .verdict = SKR_RETRY, .retries = 99},
         {SKR_DEAD_LETTER, 0, false, true}},
        // A dead letter whose row cannot be written is never dropped: the
        // broker delays it, or it is deferred.
        {{.end = SKR_END_NOT_UNDERSTOOD,
          .broker_delays = true,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_RETRY_AFTER, 30000, true, false}},
        {{.end = SKR_END_NOT_UNDERSTOOD,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_DEFER, 2000, false, false}},
        {{.end = SKR_END_NOT_UNDERSTOOD,
          .broker_delays = true,
          .is_delay_refused = true,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_DEFER, 2000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_REJECT,
          .has_retry_queue = true,
          .is_row_unwritable = true,
          .row_wait_ms = 4000},
         {SKR_DEFER, 4000, false, false}},
        {{.end = SKR_END_NOT_UNDERSTOOD,
          .broker_delays = true,
          .is_delay_refused = true},
         {SKR_DEAD_LETTER, 0, false, true}},
    };
    check_cases(cases, COUNT_OF(cases), &policy);
}

static void
test_dead_letters_beyond_the_limit(void **state)
{
    (void)state;
    static const struct decision_case cases[] = {
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_REJECT,
          .limit_wait_ms = 700},
         {SKR_DEFER, 700, false, false}},
        {{.end = SKR_END_RETRIES_EXHAUSTED,
          .retries = 4,
          .limit_wait_ms = 60000},
         {SKR_DEFER, 30000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_REJECT,
          .has_retry_queue = true,
          .is_over_capacity = true,
          .limit_wait_ms = 700},
         {SKR_RETRY_AFTER, 30000, true, true}},
        // A retry is none.
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true,
          .limit_wait_ms = 700},
         {SKR_RETRY_AFTER, 1000, false, false}},
    };
    check_cases(cases, COUNT_OF(cases), &policy);
}

static void
test_failures_of_a_minute_are_counted(void **state)
{
    (void)state;
    struct skr_failures failures = {0};
    const int64_t now_ms = 1000000;
    assert_int_equal(skr_failures_count(&failures, 2, now_ms), 0);
    assert_int_equal(skr_failures_count(&failures, 2, now_ms + 10), 0);
    assert_int_equal(skr_failures_count(&failures, 2, now_ms + 20), 59980);
    assert_int_equal(skr_failures_count(&failures, 2, now_ms + 59999), 1);
    assert_int_equal(failures.count, 2);
    assert_int_equal(skr_failures_count(&failures, 2, now_ms + 60000), 0);
    assert_int_equal(failures.count, 1);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(skr_failures_count(&failures, 0, now_ms + 60000), 0);
}

static void
test_retries(void **state)
{
    (void)state;
    static const struct decision_case cases[] = {
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true},
         {SKR_RETRY_AFTER, 1000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .retries = 2,
          .broker_delays = true},
         {SKR_RETRY_AFTER, 4000, false, false}},
        // A conflict after the handler's ACCEPT counts as a retry.
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_ACCEPT,
          .broker_delays = true},
         {SKR_RETRY_AFTER, 1000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .has_retry_queue = true},
         {SKR_RETRY_AFTER, 1000, false, true}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true,
          .has_retry_queue = true},
         {SKR_RETRY_AFTER, 1000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true,
          .has_retry_queue = true,
          .is_delay_refused = true},
         {SKR_RETRY_AFTER, 1000, false, true}},
        // Where no row can wait for it either, it waits in hand.
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true,
          .is_delay_refused = true},
         {SKR_DEFER, 1000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .has_retry_queue = true,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_DEFER, 2000, false, false}},
        {{.end = SKR_END_HANDLER_FAILED,
          .verdict = SKR_RETRY,
          .broker_delays = true,
          .has_retry_queue = true,
          .is_delay_refused = true,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_DEFER, 2000, false, false}},
    };
    check_cases(cases, COUNT_OF(cases), &policy);
}

static void
test_handlers_that_are_down(void **state)
{
    (void)state;
    static const struct decision_case cases[] = {
        {{.end = SKR_END_HANDLER_DOWN, .handler_wait_ms = 700},
         {SKR_DEFER, 700, false, false}},
        {{.end = SKR_END_HANDLER_DOWN, .handler_wait_ms = 90000},
         {SKR_DEFER, 30000, false, false}},
        {{.end = SKR_END_HANDLER_DOWN, .retries = 99},
         {SKR_DEFER, 0, false, false}},
        {{.end = SKR_END_HANDLER_DOWN,
          .handler_wait_ms = 700,
          .has_retry_queue = true},
         {SKR_DEFER, 700, false, false}},
        {{.end = SKR_END_HANDLER_DOWN,
          .handler_wait_ms = 700,
          .is_over_capacity = true},
         {SKR_DEFER, 700, false, false}},
        {{.end = SKR_END_HANDLER_DOWN,
          .handler_wait_ms = 700,
          .has_retry_queue = true,
          .is_over_capacity = true},
         {SKR_RETRY_AFTER, 30000, true, true}},
        {{.end = SKR_END_HANDLER_DOWN,
          .handler_wait_ms = 700,
          .broker_delays = true,
          .has_retry_queue = true,
          .was_requeued = true},
         {SKR_RETRY_AFTER, 30000, true, true}},
        {{.end = SKR_END_HANDLER_DOWN,
          .handler_wait_ms = 700,
          .broker_delays = true,
          .has_retry_queue = true,
          .was_requeued = true,
          .is_row_unwritable = true,
          .row_wait_ms = 2000},
         {SKR_DEFER, 2000, false, false}},
    };
    check_cases(cases, COUNT_OF(cases), &policy);
}

static void
test_unhandled_messages(void **state)
{
    (void)state;
    struct skr_delivery_policy rules = policy;
    static const struct decision_case ignored[] = {
        {{.end = SKR_END_UNHANDLED}, {SKR_ACK, 0, false, false}},
        {{.end = SKR_END_UNHANDLED, .has_retry_queue = true, .retries = 99},
         {SKR_ACK, 0, false, false}},
    };
    rules.unhandled = SKR_UNHANDLED_IGNORE;
    check_cases(ignored, COUNT_OF(ignored), &rules);
    static const struct decision_case waiting[] = {
        {{.end = SKR_END_UNHANDLED}, {SKR_DEFER, 30000, false, false}},
        {{.end = SKR_END_UNHANDLED, .has_retry_queue = true},
         {SKR_DEFER, 30000, false, false}},
        {{.end = SKR_END_UNHANDLED,
          .has_retry_queue = true,
          .is_over_capacity = true},
         {SKR_RETRY_AFTER, 30000, true, true}},
        {{.end = SKR_END_UNHANDLED,
          .has_retry_queue = true,
          .was_requeued = true},
         {SKR_RETRY_AFTER, 30000, true, true}},
        // Of another end the rule says nothing.
        {{.end = SKR_END_NOT_UNDERSTOOD}, {SKR_DEAD_LETTER, 0, false, true}},
    };
    rules.unhandled = SKR_UNHANDLED_WAIT;
    check_cases(waiting, COUNT_OF(waiting), &rules);
}

static void
test_jitter_is_drawn_by_the_number(void **state)
{
    (void)state;
    struct skr_delivery_policy rules = policy;
    rules.retry.jitter = 0.5;
    struct skr_delivery_facts facts = {.end = SKR_END_HANDLER_FAILED,
                                       .verdict = SKR_RETRY,
                                       .random = 12345,
                                       .broker_delays = true};
    uint32_t want = skr_retry_delay_ms(&rules.retry, 1, 12345);
    assert_int_equal(skr_delivery_decide(&facts, &rules).delay_ms, want);
    facts.is_delay_refused = true;
    facts.has_retry_queue = true;
    assert_int_equal(skr_delivery_decide(&facts, &rules).delay_ms, want);
}

// Of all that can be known together: a delivery is acknowledged only if it was
// committed, may be ignored, or has a row; and what cannot be written or
// delayed is decided otherwise, so that carrying it out comes to an end.
static void
check_any(const struct skr_delivery_facts *facts,
          const struct skr_delivery_policy *rules)
{
    struct skr_delivery_decision got = skr_delivery_decide(facts, rules);
    bool is_done = facts->end == SKR_END_COMMITTED ||
                   facts->end == SKR_END_DUPLICATE ||
                   (facts->end == SKR_END_UNHANDLED &&
                    rules->unhandled == SKR_UNHANDLED_IGNORE);
    assert_int_equal(got.disposition == SKR_ACK, is_done);
    if (facts->is_row_unwritable)
        assert_false(got.needs_row);
    else if (got.disposition == SKR_DEAD_LETTER)
        assert_true(got.needs_row);
    if (got.needs_row)
        assert_true(got.disposition == SKR_DEAD_LETTER ||
                    got.disposition == SKR_RETRY_AFTER);
    // Without a row it is the broker that delays.
    if (got.disposition == SKR_RETRY_AFTER && !got.needs_row)
        assert_true(facts->broker_delays && !facts->is_delay_refused);
    // A handler that is down, or a database that is away, costs no retry.
    if (facts->end != SKR_END_HANDLER_FAILED &&
        got.disposition == SKR_RETRY_AFTER)
        assert_true(got.is_not_counted);
    if (got.disposition == SKR_REQUEUE)
        assert_false(facts->was_requeued);
}

static void
test_no_delivery_is_dropped(void **state)
{
    (void)state;
    struct skr_delivery_policy rules = policy;
    for (unsigned bits = 0; bits < 128; bits++)
        for (int end = SKR_END_NONE; end <= SKR_END_NOT_REACHED; end++)
            for (int rule = 0; rule <= SKR_UNHANDLED_WAIT; rule++)
                for (unsigned retries = 0; retries < 6; retries++)
                    for (int verdict = 0; verdict <= SKR_REJECT; verdict++) {
                        rules.unhandled = (enum skr_unhandled)rule;
                        check_any(
                            &(struct skr_delivery_facts){
                                .end = (enum skr_end)end,
                                .verdict = (enum skr_verdict)verdict,
                                .retries = retries,
                                .handler_wait_ms = 100,
                                .row_wait_ms = 1000,
                                .broker_delays = bits & 1,
                                .is_over_capacity = bits & 2,
                                .was_requeued = bits & 4,
                                .has_retry_queue = bits & 8,
                                .is_delay_refused = bits & 16,
                                .is_row_unwritable = bits & 32,
                                .limit_wait_ms = bits & 64,
                            },
                            &rules);
                    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_causes),
        cmocka_unit_test(test_ends_of_causes),
        cmocka_unit_test(test_what_needs_no_row),
        cmocka_unit_test(test_dead_letters),
        cmocka_unit_test(test_dead_letters_beyond_the_limit),
        cmocka_unit_test(test_failures_of_a_minute_are_counted),
        cmocka_unit_test(test_retries),
        cmocka_unit_test(test_handlers_that_are_down),
        cmocka_unit_test(test_unhandled_messages),
        cmocka_unit_test(test_jitter_is_drawn_by_the_number),
        cmocka_unit_test(test_no_delivery_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
