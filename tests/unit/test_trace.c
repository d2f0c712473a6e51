// SPDX-License-Identifier: MIT
#include "message/trace.h"

#include "base/text.h"
#include "message/envelope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "00-" TRACE "-b7ad6b7169203331-01"

static void
test_a_parent_has_the_shape_of_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_parent;
    } cases[] = {
        {PARENT, true},
        {"00-" TRACE "-b7ad6b7169203331-00", true},
        // A version to come may say more.
        {"01-" TRACE "-b7ad6b7169203331-01-more", true},
        {"00-" TRACE "-b7ad6b7169203331-01-more", false},
        {"00-" TRACE "-b7ad6b7169203331-01-", false},
        {"01-" TRACE "-b7ad6b7169203331-01.more", false},
        {"ff-" TRACE "-b7ad6b7169203331-01", false},
        {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
        {"00-" TRACE "-0000000000000000-01", false},
        {"00-" TRACE "-b7ad6b716920333-01", false},
        {"00-" TRACE "-b7ad6b7169203331", false},
        {"00-" TRACE "-b7ad6b7169203331-1", false},
        {"00-" TRACE, false},
        {"00-ab", false},
        {"00", false},
        {" " PARENT, false},
        {"", false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        if (skr_trace_is_parent(cases[i].text) != cases[i].is_parent)
            fail_msg("%s", cases[i].text);
}

static void
test_a_state_is_a_list_of_members(void **state)
{
    (void)state;
    char many[33 * 4];
    for (size_t i = 0; i < 33; i++)
        memcpy(many + i * 4, "a=b,", 4);
    many[33 * 4 - 1] = '\0';
    const struct {
        const char *text;
        bool is_state;
    } cases[] = {
        {"congo=t61rcWkgMzE", true},
        {"rojo=00f067aa0ba902b7, congo=t61", true},
        {"a=b,,c=d", true},
        {"a", false},
        {"=b", false},
        {"a=b,=c", false},
        {"a=\n", false},
        {"a=\xc3\xa9", false},
        {many + 4, true},
        {many, false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        if (skr_trace_is_state(cases[i].text) != cases[i].is_state)
            fail_msg("%s", cases[i].text);
}

static void
test_a_malformed_trace_is_not_published(void **state)
{
    (void)state;
    static const struct skr_header parent[] = {{"traceparent", PARENT}};
    static const struct skr_header broken[] = {{"traceparent", "00-ab"}};
    static const struct {
        struct skr_message message;
        const char *says;  // NULL: it is taken
    } cases[] = {
        {{.traceparent = PARENT}, NULL},
        {{.traceparent = PARENT, .tracestate = "a=b"}, NULL},
        {{.headers = parent, .header_count = 1}, NULL},
        {{.headers = parent, .header_count = 1, .tracestate = "a=b"}, NULL},
        {{.traceparent = "00-ab"}, "traceparent is '00-ab'"},
        {{.headers = broken, .header_count = 1}, "traceparent is '00-ab'"},
        {{.traceparent = PARENT, .headers = parent, .header_count = 1},
         "given twice"},
        {{.tracestate = "a=b"}, "without a traceparent"},
        {{.traceparent = PARENT, .tracestate = "a"}, "tracestate is 'a'"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        struct skr_message message = cases[i].message;
        message.name = "order.placed";
        enum skr_code code = skr_message_check(&message, &error);
        assert_int_equal(code, cases[i].says == NULL ? SKR_OK : SKR_INVALID);
        if (cases[i].says != NULL && strstr(error.text, cases[i].says) == NULL)
            fail_msg("%zu: %s", i, error.text);
    }
}

static void
test_a_malformed_trace_that_arrives_counts_as_none(void **state)
{
    (void)state;
    struct skr_header headers[] = {{"traceparent", PARENT},
                                   {"tracestate", "a=b"}};
    struct skr_message message = {.headers = headers, .header_count = 2};
    skr_trace_read(&message);
    assert_string_equal(message.traceparent, PARENT);
    assert_string_equal(message.tracestate, "a=b");
    headers[0].value = "00-ab";
    skr_trace_read(&message);
    assert_null(message.traceparent);
    assert_null(message.tracestate);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_parent_has_the_shape_of_the_standard),
        cmocka_unit_test(test_a_state_is_a_list_of_members),
        cmocka_unit_test(test_a_malformed_trace_is_not_published),
        cmocka_unit_test(test_a_malformed_trace_that_arrives_counts_as_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
