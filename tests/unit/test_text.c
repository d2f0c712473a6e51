// SPDX-License-Identifier: MIT
// Growing text, and the checks of text from outside.
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
test_only_well_formed_utf8_without_zero_is_storable(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size, storable;
    } cases[] = {
        {"", 0, 0},
        {"plain\r\n\t", 8, 8},
        {"\x7f", 1, 1},
        {"a\0b", 3, 1},
        {"\xc2\x80", 2, 2},
        {"\xdf\xbf", 2, 2},
        {"\xe0\xa0\x80", 3, 3},
        {"\xed\x9f\xbf", 3, 3},
        {"\xee\x80\x80", 3, 3},
        {"\xef\xbf\xbf", 3, 3},
        {"\xf0\x90\x80\x80", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\x80", 1, 0},              // a continuation alone
        {"\xbf", 1, 0},              //
        {"\xc0\x80", 2, 0},          // overlong zero
        {"\xc1\xbf", 2, 0},          // overlong
        {"\xe0\x9f\xbf", 3, 0},      // overlong
        {"\xf0\x8f\xbf\xbf", 4, 0},  // overlong
        {"\xed\xa0\x80", 3, 0},      // surrogates
        {"\xed\xbf\xbf", 3, 0},      //
        {"\xf4\x90\x80\x80", 4, 0},  // past U+10FFFF
        {"\xf5\x80\x80\x80", 4, 0},  //
        {"\xff", 1, 0},              //
        {"ab\xc3", 3, 2},            // cut short
        {"ab\xe2\x82", 4, 2},        //
        {"ab\xf0\x9f\x98", 5, 2},    //
        {"\xc3(", 2, 0},             // no continuation
        {"\xe2\x82(", 3, 0},         //
        {"\xf0\x9f\x98(", 4, 0},     //
        {"ok\xf0\x9f\x98\x80\xc3\xa9!", 9, 9},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        // Copied to its exact size, so that a look past the end is seen.
        char *copy = malloc(cases[i].size + 1);
        assert_non_null(copy);
        char *exact = copy + 1;
        if (cases[i].size > 0)
            memcpy(exact, cases[i].bytes, cases[i].size);
        assert_int_equal(skr_text_storable_size(exact, cases[i].size),
                         cases[i].storable);
        assert_int_equal(skr_text_is_storable(exact, cases[i].size),
                         cases[i].storable == cases[i].size);
        free(copy);
    }
}

static void
test_identifiers_are_safe_in_sql(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool wanted;
    } cases[] = {
        {"messenger_outbox", true},
        {"_", true},
        {"T1", true},
        {"a23456789_123456789_123456789_123456789_123456789_123456789_123",
         true},
        {"a23456789_123456789_123456789_123456789_123456789_123456789_1234",
         false},
        {NULL, false},
        {"", false},
        {"1a", false},
        {"a-b", false},
        {"a.b", false},
        {"a b", false},
        {"a;b", false},
        {"a\"b", false},
        {"\xc3\xa9t\xc3\xa9", false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_int_equal(skr_text_is_identifier(cases[i].text),
                         cases[i].wanted);
}

static void
test_prefix_and_suffix(void **state)
{
    (void)state;
    assert_true(skr_text_starts_with("X-Message-Id", "X-"));
    assert_true(skr_text_starts_with("a", ""));
    assert_false(skr_text_starts_with("X", "X-"));
    assert_true(skr_text_ends_with("MessageIdStamp", "Stamp"));
    assert_true(skr_text_ends_with("Stamp", "Stamp"));
    assert_true(skr_text_ends_with("", ""));
    assert_false(skr_text_ends_with("tamp", "Stamp"));
}

static void
test_base64_follows_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *encoded;
    } cases[] = {
        {"", 0, ""},
        {"f", 1, "Zg=="},
        {"fo", 2, "Zm8="},
        {"foo", 3, "Zm9v"},
        {"foob", 4, "Zm9vYg=="},
        {"fooba", 5, "Zm9vYmE="},
        {"foobar", 6, "Zm9vYmFy"},
        {"\xfb\xff\xfe\x00", 4, "+//+AA=="},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char *encoded = skr_text_base64(cases[i].bytes, cases[i].size);
        assert_string_equal(encoded, cases[i].encoded);
        char decoded[16];
        size_t size = SIZE_MAX;
        assert_true(
            skr_text_from_base64(encoded, strlen(encoded), decoded, &size));
        assert_int_equal(size, cases[i].size);
        assert_memory_equal(decoded, cases[i].bytes, size);
        free(encoded);
    }
}

static void
test_what_is_no_base64_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "Z",    "Zg=",      "Zg",       "=g==", "Z===",  "====",
        "Zm=v", "Zg==Zm9v", "Zm9v Zg=", "Zm-_", "Zm9\n",
    };
    char decoded[16];
    size_t size = 0;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_false(
            skr_text_from_base64(cases[i], strlen(cases[i]), decoded, &size));
    assert_false(skr_text_from_base64("Zm\0v", 4, decoded, &size));
}

static void
test_text_grows_and_is_taken_whole(void **state)
{
    (void)state;
    struct skr_text text = {0};
    for (int i = 0; i < 1000; i++) {
        skr_text_add(&text, "ab\0c", 4);
        skr_text_add_string(&text, "-");
        skr_text_add_format(&text, "%05d", i);
    }
    assert_int_equal(text.size, 10000);
    assert_memory_equal(text.bytes + 9990, "ab\0c-00999", 11);
    char *taken = skr_text_take(&text);
    assert_non_null(taken);
    assert_null(text.bytes);
    free(taken);

    taken = skr_text_take(&text);
    assert_string_equal(taken, "");
    free(taken);
}

static void
test_a_cleared_text_keeps_its_room(void **state)
{
    (void)state;
    struct skr_text text = {0};
    skr_text_clear(&text);
    skr_text_add_format(&text, "%0500d", 7);
    const char *room = text.bytes;
    skr_text_clear(&text);
    assert_string_equal(text.bytes, "");
    skr_text_add_string(&text, "again");
    assert_ptr_equal(text.bytes, room);
    assert_string_equal(text.bytes, "again");
    skr_text_fini(&text);
}

static void
test_a_broken_text_stays_broken_until_cleared(void **state)
{
    (void)state;
    struct skr_text text = {0};
    skr_text_add_string(&text, "kept");
    skr_text_add(&text, "x", SIZE_MAX / 2);
    assert_true(text.broken);
    skr_text_add_string(&text, "more");
    skr_text_add_format(&text, "%d", 1);
    assert_string_equal(text.bytes, "kept");
    assert_null(skr_text_take(&text));
    assert_false(text.broken);
}

static void
test_bytes_that_are_no_text_become_question_marks(void **state)
{
    (void)state;
    struct skr_text text = {0};
    skr_text_add_storable(&text, "", 0);
    skr_text_add_storable(&text, "a\xff\xc3\xbc", 4);
    skr_text_add_storable(&text, "\0z\xe2\x82", 4);
    assert_string_equal(text.bytes, "a?\xc3\xbc?z??");
    skr_text_fini(&text);
}

static void
test_numbers_are_digits_within_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_number;
        int64_t want;
    } cases[] = {
        {"0", true, 0},     {"42", true, 42},
        {"-7", true, -7},   {"100", true, 100},
        {"101", false, 0},  {"-11", false, 0},
        {"", false, 0},     {" 1", false, 0},
        {"+1", false, 0},   {"1 ", false, 0},
        {"1x", false, 0},   {"-", false, 0},
        {"0x10", false, 0}, {"99999999999999999999", false, 0},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int64_t number = 0;
        assert_int_equal(skr_text_number(cases[i].text, -10, 100, &number),
                         cases[i].is_number);
        assert_int_equal(number, cases[i].want);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_well_formed_utf8_without_zero_is_storable),
        cmocka_unit_test(test_bytes_that_are_no_text_become_question_marks),
        cmocka_unit_test(test_identifiers_are_safe_in_sql),
        cmocka_unit_test(test_prefix_and_suffix),
        cmocka_unit_test(test_base64_follows_the_published_vectors),
        cmocka_unit_test(test_what_is_no_base64_is_refused),
        cmocka_unit_test(test_text_grows_and_is_taken_whole),
        cmocka_unit_test(test_a_cleared_text_keeps_its_room),
        cmocka_unit_test(test_numbers_are_digits_within_bounds),
        cmocka_unit_test(test_a_broken_text_stays_broken_until_cleared),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
