// SPDX-License-Identifier: MIT
// Hosts of a DSN: which are this machine, and lists of them.
#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
test_only_loopback_is_this_machine(void **state)
{
    (void)state;
    static const char *const here[] = {
        "localhost",    "LOCALHOST", "127.0.0.1",       "127.255.255.254",
        "127.1",        "::1",       "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
        "::ffff:7f00:1"};
    static const char *const elsewhere[] = {"127.evil.example",
                                            "127.",
                                            "127.0.0.1.nip.io",
                                            "127.0.0.1 evil.example",
                                            "127.0.0.1,evil.example",
                                            "localhost.evil.example",
                                            "localhost,evil.example",
                                            "localhosts",
                                            "128.0.0.1",
                                            "0.0.0.0",
                                            "10.127.0.1",
                                            "::",
                                            "::2",
                                            "::ffff:10.0.0.1",
                                            "::127.0.0.1",
                                            "fe80::1",
                                            "db.example",
                                            ""};
    for (size_t i = 0; i < SKR_COUNT_OF(here); i++)
        if (!skr_host_is_this_machine(here[i]))
            fail_msg("%s is this machine", here[i]);
    for (size_t i = 0; i < SKR_COUNT_OF(elsewhere); i++)
        if (skr_host_is_this_machine(elsewhere[i]))
            fail_msg("'%s' is another machine", elsewhere[i]);
}

static void
test_a_list_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *name, *port;
    } expected[] = {{"a", "1"}, {"::1", "2"}, {"b.example", ""}, {"::2", ""}};
    const char *list = "a:1,[::1]:2,b.example,[::2]";
    struct skr_host host;
    for (size_t i = 0; i < SKR_COUNT_OF(expected); i++) {
        assert_non_null(list);
        list = skr_host_next(list, &host);
        assert_string_equal(host.name, expected[i].name);
        assert_string_equal(host.port, expected[i].port);
    }
    assert_null(list);
}

static void
test_one_other_host_of_several_is_found(void **state)
{
    (void)state;
    struct skr_host host;
    assert_false(skr_host_find_other("localhost", &host));
    assert_false(skr_host_find_other("127.0.0.1:1,[::1]:2,localhost", &host));
    assert_true(skr_host_find_other("127.0.0.1:1,db.example:2,[::1]", &host));
    assert_string_equal(host.name, "db.example");
    assert_true(skr_host_find_other("[fe80::1]:2", &host));
    assert_string_equal(host.name, "fe80::1");
}

static void
test_a_list_with_a_mistake_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host, *complaint;  // NULL: there is none
    } cases[] = {
        {"a", NULL},
        {"[::1]", NULL},
        {"a:1,[::1]:2,[::2],b", NULL},
        {"a:1,,b", "has no name"},
        {"a,:1", "has no name"},
        {"a,", "has no name"},
        {"a:0,b", "port of a "},
        {"a:65536,b", "port of a "},
        {"a:1x,b", "port of a "},
        {"a,b:", "port of b "},
        {"[::1]:,b", "port of ::1 "},
        {"[::1", "no ]"},
        {"a,[::1,b", "no ]"},
        {"[::1]x:1,b", "no ]"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char host[40], scheme[] = "amqp";
        struct skr_error error = {0};
        snprintf(host, sizeof(host), "%s", cases[i].host);
        const struct skr_url url = {.scheme = scheme, .host = host};
        enum skr_code code = skr_host_check_list(&url, &error);
        if (cases[i].complaint == NULL)
            assert_int_equal(code, SKR_OK);
        else if (code != SKR_INVALID ||
                 strstr(error.text, cases[i].complaint) == NULL)
            fail_msg("%s: %s", cases[i].host, error.text);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_loopback_is_this_machine),
        cmocka_unit_test(test_a_list_is_taken_apart),
        cmocka_unit_test(test_one_other_host_of_several_is_found),
        cmocka_unit_test(test_a_list_with_a_mistake_is_refused),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
