// SPDX-License-Identifier: MIT
// Data source names: parts, parameters, and what is masked in them.
#include "base/arena.h"
#include "base/text.h"
#include "base/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
assert_same_text(const char *got, const char *wanted)
{
    if (wanted == NULL)
        assert_null(got);
    else
        assert_string_equal(got, wanted);
}

static void
test_a_url_is_split_into_decoded_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *scheme, *user, *password, *host;
        uint16_t port;
        const char *path;
    } cases[] = {
        {"sqlite:///shop.db", "sqlite", NULL, NULL, NULL, 0, "shop.db"},
        {"sqlite:////var/shop.db", "sqlite", NULL, NULL, NULL, 0,
         "/var/shop.db"},
        {"queue://orders", "queue", NULL, NULL, "orders", 0, NULL},
        {"queue://orders?a=b", "queue", NULL, NULL, "orders", 0, NULL},
        {"amqp://", "amqp", NULL, NULL, NULL, 0, NULL},
        {"amqp://host/", "amqp", NULL, NULL, "host", 0, ""},
        {"amqp://host/%2f", "amqp", NULL, NULL, "host", 0, "/"},
        {"mysql://u:p@h:3306/db", "mysql", "u", "p", "h", 3306, "db"},
        {"mysql://u@h/db", "mysql", "u", NULL, "h", 0, "db"},
        {"mysql://u:@h/db", "mysql", "u", "", "h", 0, "db"},
        {"mysql://:p@h/db", "mysql", "", "p", "h", 0, "db"},
        {"mysql://u:a@b@h/db", "mysql", "u", "a@b", "h", 0, "db"},
        {"mysql://u:a:b@h/db", "mysql", "u", "a:b", "h", 0, "db"},
        {"mysql://u:%40%3A%2f%3F%25@h/db", "mysql", "u", "@:/?%", "h", 0, "db"},
        {"mysql://h:1", "mysql", NULL, NULL, "h", 1, NULL},
        {"mysql://h:65535", "mysql", NULL, NULL, "h", 65535, NULL},
        {"mysql://h:00080", "mysql", NULL, NULL, "h", 80, NULL},
        {"mysql://:3306/db", "mysql", NULL, NULL, NULL, 3306, "db"},
        {"pgsql://[::1]:5432/db", "pgsql", NULL, NULL, "[::1]", 5432, "db"},
        {"pgsql://[fe80::1]/db", "pgsql", NULL, NULL, "[fe80::1]", 0, "db"},
        {"kafka://a:1,b:2/topic", "kafka", NULL, NULL, "a:1,b:2", 0, "topic"},
        {"sqlite:////a@b/shop.db", "sqlite", NULL, NULL, NULL, 0,
         "/a@b/shop.db"},
        {"pgsql://u:p@h/db?application_name=a@b", "pgsql", "u", "p", "h", 0,
         "db"},
        {"kafka://h:1?principal=a@b", "kafka", NULL, NULL, "h", 1, NULL},
        {"ordered-doctrine://default?x=y@z", "ordered-doctrine", NULL, NULL,
         "default", 0, NULL},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_url url;
        struct skr_error error = {0};
        if (skr_url_parse(cases[i].text, &url, &error) != SKR_OK)
            fail_msg("%s: %s", cases[i].text, error.text);
        assert_same_text(url.scheme, cases[i].scheme);
        assert_same_text(url.user, cases[i].user);
        assert_same_text(url.password, cases[i].password);
        assert_same_text(url.host, cases[i].host);
        assert_int_equal(url.port, cases[i].port);
        assert_same_text(url.path, cases[i].path);
        skr_url_fini(&url);
    }
}

static void
test_a_bad_url_is_refused_without_quoting_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *complaint;
    } cases[] = {
        {"", "scheme"},
        {"shop.db", "scheme"},
        {"://h", "scheme"},
        {"sqlite:/hunter2.db", "scheme"},
        {"SQLITE:///hunter2.db", "scheme"},
        {"mysql://u:hunter2@h:0/db", "port"},
        {"mysql://u:hunter2@h:65536/db", "port"},
        {"mysql://u:hunter2@h:/db", "port"},
        {"mysql://u:hunter2@h:+80/db", "port"},
        {"mysql://u:hunter2@h: 80/db", "port"},
        {"mysql://u:hunter2@h:80x/db", "port"},
        {"mysql://u:hunter2@h:-18446744073709551615/db", "port"},
        {"mysql://u:hunter2@h:99999999999999999999/db", "port"},
        {"mysql://u:hunter2@[::1/db", "port"},
        // A password that is not escaped.
        {"mysql://u:3306/hunter2@h/db", "behind a /"},
        {"mysql://u:3306?hunter2@h/db", "? %3f"},
        {"mysql://u:p@q?hunter2@h/db", "@ %40"},
        {"mysql://one:3306,u:hunter2/hunter2@h/db", "behind a /"},
        {"mysql://u:p@hunter2/w@h/db", "behind a /"},
        {"mysql://u:p@q/hunter2@h/db", "behind a /"},
        {"amqp://u:p@q?hunter2=w@h/db", "behind a /"},
        {"mysql://u:p@q?x=hunter2@h:1/db", "behind a /"},
        // What a file or a variable ends with.
        {"mysql://u:hunter2@h/db\n", "line break ends"},
        {"mysql://u:hunter2@h/db ", "blank"},
        {"mysql://u:hunter2@h:3306\r\n", "line break ends"},
        {"mysql://u:hunter2@h/db?a=1\n", "line break ends"},
        {"mysql://u%:hunter2@h/db", "user"},
        {"mysql://u:hunter2%@h/db", "password"},
        {"mysql://u:hunter2%4@h/db", "password"},
        {"mysql://u:hunter2%4g@h/db", "password"},
        {"mysql://u:hunter2%00@h/db", "zero byte"},
        {"mysql://u:hunter2@h%zz/db", "host"},
        {"mysql://u:hunter2@h/d%", "path"},
        {"mysql://u:hunter2@h/db?a%=b", "parameter name"},
        {"mysql://u:hunter2@h/db?a=%1", "parameter value"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_url url = {.port = 7};
        struct skr_error error = {0};
        assert_int_equal(skr_url_parse(cases[i].text, &url, &error),
                         SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        if (strstr(error.text, cases[i].complaint) == NULL)
            fail_msg("%s: %s", cases[i].text, error.text);
        assert_null(strstr(error.text, "hunter2"));
        assert_int_equal(url.port, 7);
        assert_int_equal(skr_url_parse(cases[i].text, &url, NULL), SKR_INVALID);
    }
}

static void
test_names_of_files_are_placed_in_a_folder(void **state)
{
    (void)state;
    static const char *const parameters[] = {"ca", NULL};
    static const struct {
        bool is_path;
        const char *text, *want;
    } cases[] = {
        {true, "sqlite:///a.db", "sqlite:////f%20%25/a.db"},
        {true, "sqlite:////a.db", "sqlite:////a.db"},
        {true, "sqlite:///%2Fa.db?ca=b", "sqlite:///%2Fa.db?ca=/f%20%25/b"},
        {true, "sqlite:///:memory:", "sqlite:///:memory:"},
        {true, "sqlite:///", "sqlite:///"},
        {false, "m://u:p@h/a?x=ca&ca=b&y", "m://u:p@h/a?x=ca&ca=/f%20%25/b&y"},
        {false, "m://h/a?ca=/b&ca=", "m://h/a?ca=/b&ca="},
        {false, "m://h/a?ca=system", "m://h/a?ca=system"},
        {false, "m://h/a?ca=system.pem", "m://h/a?ca=/f%20%25/system.pem"},
        {false, "m://h/a?ca=FILE:/etc/a", "m://h/a?ca=FILE:/etc/a"},
        {false, "m://h/a?cab=b&ca", "m://h/a?cab=b&ca"},
        {false, "", ""},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        const struct skr_url_files files = {.is_path = cases[i].is_path,
                                            .parameters = parameters};
        char *placed = skr_url_place(cases[i].text, &files, "/f %");
        assert_non_null(placed);
        assert_string_equal(placed, cases[i].want);
        free(placed);
    }
}

static void
test_url_parameters_are_found_by_their_decoded_names(void **state)
{
    (void)state;
    struct skr_url url;
    assert_int_equal(
        skr_url_parse("queue://x?a=1&b%20c=d%26e&empty=&bare&a=2&u=m://n:o@p",
                      &url, NULL),
        SKR_OK);
    assert_string_equal(skr_url_find(&url, "a"), "1");
    assert_string_equal(skr_url_find(&url, "b c"), "d&e");
    assert_string_equal(skr_url_find(&url, "empty"), "");
    assert_string_equal(skr_url_find(&url, "bare"), "");
    assert_string_equal(skr_url_find(&url, "u"), "m://n:o@p");
    assert_null(skr_url_find(&url, "A"));
    skr_url_fini(&url);
    assert_null(skr_url_find(&url, "a"));
}

static void
test_a_url_holds_32_parameters_and_no_more(void **state)
{
    (void)state;
    struct skr_text text = {0};
    skr_text_add_string(&text, "queue://x?p=0");
    for (int i = 1; i < SKR_URL_MAX_PARAMETERS; i++)
        skr_text_add_format(&text, "&p%d=%d", i, i);
    struct skr_url url;
    assert_int_equal(skr_url_parse(text.bytes, &url, NULL), SKR_OK);
    assert_string_equal(skr_url_find(&url, "p31"), "31");
    skr_url_fini(&url);
    skr_text_add_string(&text, "&one=more");
    assert_int_equal(skr_url_parse(text.bytes, &url, NULL), SKR_INVALID);
    skr_text_fini(&text);
}

static void
test_a_number_in_a_url_is_whole_and_in_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum skr_code code;
        int64_t number;
    } cases[] = {
        {"q://x", SKR_OK, 60},
        {"q://x?n=3", SKR_OK, 3},
        {"q://x?n=100", SKR_OK, 100},
        {"q://x?n=2", SKR_INVALID, 0},
        {"q://x?n=101", SKR_INVALID, 0},
        {"q://x?n=", SKR_INVALID, 0},
        {"q://x?n=5s", SKR_INVALID, 0},
        {"q://x?n=5.0", SKR_INVALID, 0},
        {"q://x?n=99999999999999999999", SKR_INVALID, 0},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_url url;
        struct skr_error error = {0};
        int64_t number = 60;
        assert_int_equal(skr_url_parse(cases[i].text, &url, NULL), SKR_OK);
        assert_int_equal(skr_url_number(&url, "n", 3, 100, &number, &error),
                         cases[i].code);
        if (cases[i].code == SKR_OK)
            assert_int_equal(number, cases[i].number);
        else
            assert_non_null(strstr(error.text, "n="));
        skr_url_fini(&url);
    }
}

static void
test_a_boolean_in_a_url_is_a_word_of_either_case(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum skr_code code;
        bool value;
    } cases[] = {
        {"q://x", SKR_OK, true},          {"q://x?b=0", SKR_OK, false},
        {"q://x?b=False", SKR_OK, false}, {"q://x?b=off", SKR_OK, false},
        {"q://x?b=NO", SKR_OK, false},    {"q://x?b=1", SKR_OK, true},
        {"q://x?b=True", SKR_OK, true},   {"q://x?b=on", SKR_OK, true},
        {"q://x?b=YES", SKR_OK, true},    {"q://x?b=", SKR_INVALID, true},
        {"q://x?b", SKR_INVALID, true},   {"q://x?b=2", SKR_INVALID, true},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_url url;
        struct skr_error error = {0};
        bool value = true;
        assert_int_equal(skr_url_parse(cases[i].text, &url, NULL), SKR_OK);
        assert_int_equal(skr_url_boolean(&url, "b", &value, &error),
                         cases[i].code);
        assert_int_equal(value, cases[i].value);
        if (cases[i].code != SKR_OK)
            assert_non_null(strstr(error.text, "b="));
        skr_url_fini(&url);
    }
}

static void
test_a_copy_outlives_its_url(void **state)
{
    (void)state;
    struct skr_url url = {0}, copy = {0};
    assert_int_equal(skr_url_parse("m://u:p@h:7/d?a=b&c=%26", &url, NULL),
                     SKR_OK);
    assert_int_equal(skr_url_copy(&url, &copy), SKR_OK);
    skr_url_fini(&url);
    assert_string_equal(copy.scheme, "m");
    assert_string_equal(copy.user, "u");
    assert_string_equal(copy.password, "p");
    assert_string_equal(copy.host, "h");
    assert_int_equal(copy.port, 7);
    assert_string_equal(copy.path, "d");
    assert_string_equal(skr_url_find(&copy, "a"), "b");
    assert_string_equal(skr_url_find(&copy, "c"), "&");
    skr_url_fini(&copy);
}

static void
test_masking_hides_every_secret_and_keeps_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *text, *masked;
    } cases[] = {
        {"", ""},
        {"sqlite:///shop.db", "sqlite:///shop.db"},
        {"mysql://h:3306/db", "mysql://h:3306/db"},
        // Alone it may be a token.
        {"mysql://u@h:3306/db", "mysql://***@h:3306/db"},
        {"amqp://TOKEN@h", "amqp://***@h"},
        {"amqp://@h", "amqp://@h"},
        {"amqp://u@h/v@w", "amqp://***@h/v@w"},
        {"queue://default?queue_name=a@b", "queue://default?queue_name=a@b"},
        {"mysql://u:p@h:3306/db?x=1", "mysql://u:***@h:3306/db?x=1"},
        // Not escaped, and wrong as a URL: masked all the same.
        {"mysql://u:p@q@h/db", "mysql://u:***@h/db"},
        {"mysql://u:p/q@h/db", "mysql://u:***@h/db"},
        {"mysql://u:p?q@h/db", "mysql://u:***@h/db"},
        {"mysql://u:p#:&=q@h/db", "mysql://u:***@h/db"},
        {"u:p@h", "u:***@h"},
        {"a://b?password=p", "a://b?password=***"},
        {"a://b?x=1&PassWord=p&y=2", "a://b?x=1&PassWord=***&y=2"},
        {"a://b?ssl_key=p&token=q", "a://b?ssl_key=***&token=***"},
        {"a://b?wake_dsn=m%3A%2F%2Fu%3Ap%40h", "a://b?wake_dsn=***"},
        {"a://b?sasl.password=p%26q", "a://b?sasl.password=***"},
        {"a://b?password=a=b", "a://b?password=***"},
        {"a://b?password&x=1", "a://b?password&x=1"},
        // An @ or a : in a parameter does not bring half of it to light.
        {"a://b?password=p:q@r", "a://b?password=***"},
        {"a://u:p@h/d?password=q@r&x=1", "a://u:***&x=1"},
        {"a://u:p@h/d?mail=x@y&password=q", "a://u:***@y&password=***"},
        {"a://h/d?mail=x@y&password=q", "a://h/d?mail=x@y&password=***"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char *masked = skr_url_mask(cases[i].text);
        assert_non_null(masked);
        assert_string_equal(masked, cases[i].masked);
        free(masked);
    }
}

struct read {
    const char *text;
    bool is_on, is_second;
    int64_t number, time_ms;
};

#define AT(field) .place = offsetof(struct read, field)

static const struct skr_url_option known[] = {
    {"text", SKR_URL_TEXT, AT(text)},
    {"on", SKR_URL_BOOLEAN, AT(is_on)},
    {"number", SKR_URL_NUMBER, AT(number), .least = 1, .most = 9},
    {"time", SKR_URL_SECONDS, AT(time_ms), .least = 100, .most = 5000},
    {"word", SKR_URL_CHOICE, AT(is_second), .words = {"one", "two"}},
    {.name = "other"},
    {.name = "list["},
};

static enum skr_code
read_options(const char *text, struct skr_arena *arena, struct read *read,
             struct skr_error *error)
{
    struct skr_url url;
    assert_int_equal(skr_url_parse(text, &url, NULL), SKR_OK);
    enum skr_code code =
        skr_url_read(&url, known, SKR_COUNT_OF(known), arena, read, error);
    skr_url_fini(&url);
    return code;
}

static void
test_options_are_read_by_their_table(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    struct read read = {.number = 7, .time_ms = 7, .is_on = true};
    struct skr_error error = {0};
    assert_int_equal(read_options("a://h?other=1", &arena, &read, &error),
                     SKR_OK);
    assert_null(read.text);
    assert_int_equal(read.number, 7);
    assert_int_equal(read.time_ms, 7);
    assert_true(read.is_on);
    // Of two with one name the last.
    assert_int_equal(
        read_options("a://h?text=x&number=x&text=y&number=9&on=no&time=1.25&"
                     "word=two",
                     &arena, &read, &error),
        SKR_OK);
    assert_string_equal(read.text, "y");
    assert_int_equal(read.number, 9);
    assert_int_equal(read.time_ms, 1250);
    assert_false(read.is_on);
    assert_true(read.is_second);
    assert_int_equal(read_options("a://h?word=one", &arena, &read, &error),
                     SKR_OK);
    assert_false(read.is_second);
    skr_arena_fini(&arena);
}

static void
test_options_out_of_bounds_are_refused_with_what_is_needed(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a://h?number=0", "number=0 in the DSN: a whole number from 1 to 9"},
        {"a://h?number=1.5", "a whole number from 1 to 9"},
        {"a://h?on=", "on= in the DSN: true or false"},
        {"a://h?time=0.05", "a number of seconds from 0.1 to 5"},
        {"a://h?time=6", "a number of seconds from 0.1 to 5"},
        {"a://h?time=nan", "a number of seconds"},
        {"a://h?time=1s", "a number of seconds"},
        {"a://h?word=three", "word=three in the DSN: one or two is needed"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        struct read read = {.number = 7};
        struct skr_error error = {0};
        assert_int_equal(read_options(cases[i][0], &arena, &read, &error),
                         SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        if (strstr(error.text, cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], error.text);
        skr_arena_fini(&arena);
    }
    assert_true(skr_url_is_option("other", known, SKR_COUNT_OF(known)));
    assert_true(skr_url_is_option("list[0]", known, SKR_COUNT_OF(known)));
    assert_false(skr_url_is_option("list", known, SKR_COUNT_OF(known)));
    assert_false(skr_url_is_option("others", known, SKR_COUNT_OF(known)));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_url_is_split_into_decoded_parts),
        cmocka_unit_test(test_a_bad_url_is_refused_without_quoting_it),
        cmocka_unit_test(test_names_of_files_are_placed_in_a_folder),
        cmocka_unit_test(test_url_parameters_are_found_by_their_decoded_names),
        cmocka_unit_test(test_a_url_holds_32_parameters_and_no_more),
        cmocka_unit_test(test_a_number_in_a_url_is_whole_and_in_range),
        cmocka_unit_test(test_a_boolean_in_a_url_is_a_word_of_either_case),
        cmocka_unit_test(test_options_are_read_by_their_table),
        cmocka_unit_test(
            test_options_out_of_bounds_are_refused_with_what_is_needed),
        cmocka_unit_test(test_a_copy_outlives_its_url),
        cmocka_unit_test(test_masking_hides_every_secret_and_keeps_the_rest),
    };
    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
