// SPDX-License-Identifier: MIT
// Typed messages: structs to JSON and back, and every way this can fail.

#include "typed_everything.h"

#include "../support/memory_ceiling.h"
#include "base/clock.h"
#include "base/text.h"

#include <locale.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka needs some of the above.
#include <cmocka.h>

static const char everything_json[] =
    "{\"text\":\"Gr\xc3\xbc\xc3\x9f \\\"dich\\\" \\\\ \\n\\u0001/\","
    "\"chars\":\"sevenby\",\"i8\":-128,\"i16\":-32768,\"i32\":-2147483648,"
    "\"i64\":-9223372036854775808,\"u8\":255,\"u16\":65535,"
    "\"u32\":4294967295,\"u64\":18446744073709551615,"
    "\"number\":100.14285714285714,\"truth\":true,"
    "\"id\":\"01890a5d-ac96-774b-bcce-b302099a8057\","
    "\"at\":\"2025-10-08T13:30:00+00:00\",\"color\":\"red\","
    "\"point\":{\"x\":1.5},\"decimal\":12345678901234567890.10,"
    "\"maybeText\":\"here\",\"maybeInteger\":0,"
    "\"maybePoint\":{\"x\":-0.0,\"y\":1e+300},\"maybeNumbers\":[],"
    "\"texts\":[\"\",\"two\"],\"charsList\":[\"abc\",\"d\"],"
    "\"integers\":[-1,0,1],\"unsigneds\":[9007199254740993],"
    "\"numbers\":[0.1,123.45],\"truths\":[false,true],"
    "\"ids\":[\"00000000-0000-0000-0000-000000000000\"],"
    "\"times\":[\"1969-12-31T23:59:59.5+00:00\"],"
    "\"colors\":[\"green\",\"red\"],\"points\":[{\"x\":1.0,\"y\":2.0}],"
    "\"decimals\":[1e5,-0.10]}";

// The least that decodes.
#define MINIMUM                                                              \
    "\"text\":\"\",\"chars\":\"\",\"i8\":0,\"i16\":0,\"i32\":0,\"i64\":0,"   \
    "\"u8\":0,\"u16\":0,\"u32\":0,\"u64\":0,\"number\":0,\"truth\":false,"   \
    "\"id\":\"01890a5d-ac96-774b-bcce-b302099a8057\","                       \
    "\"at\":\"1970-01-01T00:00:00Z\",\"color\":\"red\",\"point\":{\"x\":0}," \
    "\"decimal\":0,\"texts\":[],\"charsList\":[],\"integers\":[],"           \
    "\"unsigneds\":[],\"numbers\":[],\"truths\":[],\"ids\":[],"              \
    "\"times\":[],\"colors\":[],\"points\":[],\"decimals\":[]"

static struct skr_decoded *
decode(const char *json, struct everything *value)
{
    struct skr_decoded *memory;
    struct skr_error error;
    if (skr_decode(&everything, &(struct skr_encoded){json, strlen(json), NULL},
                   value, &memory, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return memory;
}

static char *
encode(const struct skr_type *type, const void *value,
       const struct skr_codecs *codecs)
{
    char *json;
    size_t size;
    struct skr_error error;
    if (skr_encode(type, value, codecs, &json, &size, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(strlen(json), size);
    return json;
}

static void
assert_malformed(const char *json, const char *text)
{
    struct everything value, before;
    memset(&value, 0x55, sizeof(value));
    before = value;
    struct skr_decoded *memory = NULL;
    struct skr_error error = {.code = SKR_OK};
    assert_int_equal(skr_decode(&everything,
                                &(struct skr_encoded){json, strlen(json), NULL},
                                &value, &memory, &error),
                     SKR_MALFORMED);
    assert_string_equal(error.text, text);
    assert_int_equal(error.code, SKR_MALFORMED);
    assert_null(memory);
    assert_memory_equal(&value, &before, sizeof(value));
    // A caller that does not want the text gets the same answer.
    assert_int_equal(skr_decode(&everything,
                                &(struct skr_encoded){json, strlen(json), NULL},
                                &value, &memory, NULL),
                     SKR_MALFORMED);
}

static void
test_every_kind_survives_a_round_trip(void **state)
{
    (void)state;
    struct everything value;
    struct skr_decoded *memory = decode(everything_json, &value);
    assert_string_equal(value.text, "Gr\xc3\xbc\xc3\x9f \"dich\" \\ \n\001/");
    assert_string_equal(value.chars, "sevenby");
    assert_int_equal(value.i8, INT8_MIN);
    assert_true(value.i64 == INT64_MIN);
    assert_int_equal(value.u8, UINT8_MAX);
    assert_true(value.u64 == UINT64_MAX);
    assert_true(value.number == 100.14285714285714);
    assert_int_equal(value.id.bytes[0], 0x01);
    assert_int_equal(value.id.bytes[15], 0x57);
    assert_true(value.at_us == INT64_C(1759930200000000));
    assert_int_equal(value.color, RED);
    assert_false(value.point.has_y);
    assert_true(value.has_integer && value.has_point);
    assert_true(value.maybe_point.has_y && signbit(value.maybe_point.x));
    assert_non_null(value.maybe_numbers);
    assert_int_equal(value.maybe_number_count, 0);
    assert_string_equal(value.texts[1], "two");
    assert_string_equal(value.chars_list[1], "d");
    assert_true(value.unsigneds[0] == UINT64_C(9007199254740993));
    assert_true(value.times[0] == -500000);
    assert_int_equal(value.colors[0], GREEN);
    assert_true(value.points[0].y == 2);
    assert_null(value.children);

    char *json = encode(&everything, &value, NULL);
    assert_string_equal(json, everything_json);
    free(json);
    skr_decoded_free(memory);
    skr_decoded_free(NULL);
}

static void
test_absent_and_null_are_the_same_for_an_optional_field(void **state)
{
    (void)state;
    struct everything value;
    struct skr_decoded *memory =
        decode("{" MINIMUM ",\"maybeText\":null,\"maybePoint\":null}", &value);
    assert_null(value.maybe_text);
    assert_null(value.maybe_numbers);
    assert_false(value.has_integer || value.has_point);
    char *json = encode(&everything, &value, NULL);
    assert_null(strstr(json, "maybe"));
    free(json);
    skr_decoded_free(memory);
}

static void
test_unknown_fields_are_ignored_and_the_last_duplicate_counts(void **state)
{
    (void)state;
    struct everything value;
    struct skr_decoded *memory =
        decode(" { \"i8\" : \"x\" ," MINIMUM
               ",\"u8\":1,\"u8\":2,\"huge\":123456789012345678901234567890,"
               "\"1e999\":1e999,\"deep\":[[[{\"\\u0000\":\"\\u0000\"}]]]}\n",
               &value);
    assert_int_equal(value.u8, 2);
    assert_int_equal(value.i8, 0);
    skr_decoded_free(memory);
}

static void
test_what_is_wrong_is_said_with_its_path(void **state)
{
    (void)state;
    static const struct {
        const char *more, *text;
    } cases[] = {
        {"\"text\":1", "text: text is needed, not a number"},
        {"\"text\":null", "text: text is needed, not null"},
        {"\"text\":\"a\\u0000b\"", "text: the text has a zero character in it"},
        {"\"chars\":\"eightbyt\"",
         "chars: 8 bytes of text do not fit into char[8]"},
        {"\"charsList\":[\"abc\",\"abcd\"]",
         "charsList[1]: 4 bytes of text do not fit into char[4]"},
        {"\"i8\":128", "i8: a whole number from -128 to 127 is needed"},
        {"\"i8\":-129", "i8: a whole number from -128 to 127 is needed"},
        {"\"i16\":1.0", "i16: a whole number from -32768 to 32767 is needed"},
        {"\"i32\":1e3",
         "i32: a whole number from -2147483648 to 2147483647 is needed"},
        {"\"i64\":9223372036854775808",
         "i64: a whole number from -9223372036854775808 to "
         "9223372036854775807 is needed"},
        {"\"u8\":-1", "u8: a whole number from 0 to 255 is needed"},
        {"\"u64\":18446744073709551616",
         "u64: a whole number from 0 to 18446744073709551615 is needed"},
        {"\"u16\":\"1\"", "u16: a whole number is needed, not text"},
        {"\"number\":\"1\"", "number: a number is needed, not text"},
        {"\"number\":1e309", "number: the number is too large"},
        {"\"truth\":0", "truth: a boolean is needed, not a number"},
        {"\"id\":\"01890a5d\"", "id: a UUID is needed"},
        {"\"at\":\"yesterday\"",
         "at: a time such as 2025-10-08T13:30:00+00:00 is needed"},
        {"\"at\":1759930200", "at: text is needed, not a number"},
        {"\"color\":\"blue\"", "color: one of red, green is needed"},
        {"\"colors\":[\"red\",3]", "colors[1]: text is needed, not a number"},
        {"\"point\":[]", "point: an object is needed, not an array"},
        {"\"point\":{}", "point.x: is missing"},
        {"\"points\":{}", "points: an array is needed, not an object"},
        {"\"points\":[{\"x\":1},{\"x\":2},{\"x\":\"3\"}]",
         "points[2].x: a number is needed, not text"},
        {"\"decimal\":true", "decimal: a number is needed, not a boolean"},
        {"\"children\":[{" MINIMUM ",\"points\":[{\"x\":{}}]}]",
         "children[0].points[0].x: a number is needed, not an object"},
        {"\"children\":[{}]", "children[0].text: is missing"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char json[2048];
        snprintf(json, sizeof(json), "{" MINIMUM ",%s}", cases[i].more);
        assert_malformed(json, cases[i].text);
    }
}

static void
test_what_is_not_json_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"", "not JSON at byte 0: it ends too early"},
        {"[]", "an object is needed, not an array"},
        {"null", "an object is needed, not null"},
        {"{} {}", "not JSON at byte 3: something follows the value"},
        {"{\"a\":01}",
         "not JSON at byte 6: a comma or a closing bracket is needed"},
        {"{\"a\":+1}", "not JSON at byte 5: a value is needed"},
        {"{\"a\":1.}", "not JSON at byte 7: a digit is needed after the point"},
        {"{\"a\":1e}", "not JSON at byte 7: a digit is needed in the exponent"},
        {"{\"a\":NaN}", "not JSON at byte 5: a value is needed"},
        {"{\"a\":[1,]}", "not JSON at byte 8: a value is needed"},
        {"{\"a\":1,}", "not JSON at byte 7: a text in quotes is needed"},
        {"{\"a\" 1}", "not JSON at byte 5: a colon is needed"},
        {"{\"a", "not JSON at byte 2: a text does not end"},
        {"{\"a\\", "not JSON at byte 2: a text does not end"},
        {"{\"\n\":1}",
         "not JSON at byte 2: a control character stands in a text"},
        {"{\"\\x\":1}", "not JSON at byte 3: a wrong escape stands in a text"},
        {"{\"\\u12g4\":1}",
         "not JSON at byte 4: a wrong escape stands in a text"},
        {"{\"\\udc00\":1}",
         "not JSON at byte 8: a wrong escape stands in a text"},
        {"{\"\\ud83d\\u0041\":1}",
         "not JSON at byte 14: a wrong escape stands in a text"},
        {"{\"\\ud83d\":1}",
         "not JSON at byte 8: a wrong escape stands in a text"},
        {"{\"\xff\":1}", "not JSON: it is not well-formed UTF-8"},
        {"{\"\xc0\x80\":1}", "not JSON: it is not well-formed UTF-8"},
        {"\xef\xbb\xbf{}", "not JSON at byte 0: a value is needed"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_malformed(cases[i].json, cases[i].text);
    struct everything value;
    struct skr_decoded *memory;
    assert_int_equal(skr_decode(&everything,
                                &(struct skr_encoded){NULL, 0, NULL}, &value,
                                &memory, NULL),
                     SKR_MALFORMED);
}

static void
test_escapes_become_utf8(void **state)
{
    (void)state;
    struct everything value;
    struct skr_decoded *memory =
        decode("{" MINIMUM ",\"\\u0074ext\":"
               "\"\\u00fc\\u20ac\\ud83d\\uDE00\\/\\b\\f\\n\\r\\t\"}",
               &value);
    assert_string_equal(value.text, "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80/"
                                    "\b\f\n\r\t");
    skr_decoded_free(memory);
}

// What the process has taken and not given back; 0 where nothing tells.
static size_t
memory_in_use(void)
{
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

// Documents of many small values, of which those of the last two are asked for.
static const struct {
    const char *before, *value, *after;
    const char *asked;  // what MINIMUM has of it otherwise
    size_t size;        // of each, decoded
} many_values[] = {
    {"{\"unknown\":[", "{\"a\":1}", "],", NULL, 0},
    // Of two of one name the last counts.
    {"{\"unknown\":{\"deep\":[", "[]", "]},", NULL, 0},
    {"{\"integers\":[", "1", "],", "integers", sizeof(int16_t)},
    {"{\"points\":[", "{\"x\":1}", "],", "points", sizeof(struct point)},
};

static char *
write_many_values(size_t which, size_t count)
{
    struct skr_text json = {0};
    skr_text_add_string(&json, many_values[which].before);
    for (size_t k = 0; k < count; k++) {
        skr_text_add_string(&json, k == 0 ? "" : ",");
        skr_text_add_string(&json, many_values[which].value);
    }
    skr_text_add_string(&json, many_values[which].after);
    char *minimum = strdup(MINIMUM "}");
    assert_non_null(minimum);
    if (many_values[which].asked != NULL)
        memcpy(strstr(minimum, many_values[which].asked), "x", 1);
    skr_text_add_string(&json, minimum);
    free(minimum);
    assert_false(json.broken);
    return skr_text_take(&json);
}

// A document costs what is asked for, not what it holds.
static void
test_memory_is_that_of_the_fields(void **state)
{
    enum { REPEATS = 300000 };
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(many_values); i++) {
        struct everything value;
        char *json = write_many_values(i, REPEATS);
        size_t before = memory_in_use();
        struct skr_decoded *memory = decode(json, &value);
        size_t taken = memory_in_use() - before;
        if (taken > REPEATS * many_values[i].size + (128 << 10))
            fail_msg("%zu bytes for %zu of JSON", taken, strlen(json));
        skr_decoded_free(memory);
        free(json);
    }
}

// The exit code of a process that decodes it and may take little more than the
// document and what is asked for; a tree of it would take 320 MB.
static int
decode_under_ceiling(const char *json)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct everything value;
        struct skr_decoded *memory;
        skr_test_limit_memory(64);
        const struct skr_encoded document = {json, strlen(json), NULL};
        _exit(skr_decode(&everything, &document, &value, &memory, NULL) ==
                      SKR_OK
                  ? 0
                  : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
test_a_large_document_without_a_codec_takes_no_tree(void **state)
{
    (void)state;
    for (size_t i = 0; i < SKR_COUNT_OF(many_values); i++) {
        char *json = write_many_values(
            i, (8 << 20) / (strlen(many_values[i].value) + 1));
        if (decode_under_ceiling(json) != 0)
            fail_msg("%s...: no memory", many_values[i].before);
        free(json);
    }
}

static void
test_doubles_are_exact_and_short(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {1e300, "1e+300"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {-0.0, "-0.0"},
        {0.0, "0.0"},
        {100.0, "100.0"},
        {123.45, "123.45"},
        {100.14285714285714, "100.14285714285714"},
        {0.30000000000000004, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {9007199254740993.0, "9007199254740992.0"},
        {1e15, "1e+15"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct point before = {.x = cases[i].number}, after;
        char *json = encode(&point, &before, NULL), wanted[64];
        snprintf(wanted, sizeof(wanted), "{\"x\":%s}", cases[i].text);
        assert_string_equal(json, wanted);
        struct skr_decoded *memory;
        assert_int_equal(
            skr_decode(&point, &(struct skr_encoded){json, strlen(json), NULL},
                       &after, &memory, NULL),
            SKR_OK);
        assert_memory_equal(&after.x, &before.x, sizeof(before.x));
        skr_decoded_free(memory);
        free(json);
    }
}

static void
test_doubles_do_not_depend_on_the_locale(void **state)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL &&
        setlocale(LC_NUMERIC, "fr_FR.UTF-8") == NULL)
        skip();
    test_doubles_are_exact_and_short(state);
    setlocale(LC_NUMERIC, "C");
}

static void
test_times_are_read_with_any_offset_and_fraction(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t time_us;
        const char *written;
    } cases[] = {
        {"2025-10-08T13:30:00+00:00", INT64_C(1759930200000000), NULL},
        {"2025-10-08T13:30:00Z", INT64_C(1759930200000000),
         "2025-10-08T13:30:00+00:00"},
        {"2025-10-08 15:30:00+02:00", INT64_C(1759930200000000),
         "2025-10-08T13:30:00+00:00"},
        {"2025-10-08t08:00:00-0530", INT64_C(1759930200000000),
         "2025-10-08T13:30:00+00:00"},
        {"1970-01-01T00:00:00.000001+00:00", 1, NULL},
        {"1970-01-01T00:00:00.1000009z", 100000, "1970-01-01T00:00:00.1+00:00"},
        {"1969-12-31T23:59:59.999999+00:00", -1, NULL},
        {"2024-02-29T00:00:00+00:00", INT64_C(1709164800000000), NULL},
        {"2000-02-29T00:00:00+00:00", INT64_C(951782400000000), NULL},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800000000),
         "2017-01-01T00:00:00+00:00"},
        {"2017-01-01T00:59:60+01:00", INT64_C(1483228800000000),
         "2017-01-01T00:00:00+00:00"},
        {"0000-01-01T00:00:00+00:00", INT64_C(-62167219200000000), NULL},
        {"9999-12-31T23:59:59.999999+00:00", INT64_C(253402300799999999), NULL},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int64_t time_us;
        char written[SKR_TIME_TEXT_SIZE];
        assert_true(skr_time_parse(cases[i].text, &time_us));
        assert_true(time_us == cases[i].time_us);
        assert_true(skr_time_format(time_us, written));
        assert_string_equal(written, cases[i].written == NULL
                                         ? cases[i].text
                                         : cases[i].written);
    }
    char written[SKR_TIME_TEXT_SIZE];
    assert_false(skr_time_format(INT64_C(253402300800000000), written));
    assert_false(skr_time_format(INT64_C(-62167219200000001), written));
    assert_false(skr_time_format(INT64_MIN, written));
    assert_false(skr_time_format(INT64_MAX, written));
}

static void
test_times_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "2025-10-08",
        "2025-10-08T13:30:00",
        "2025-10-08T13:30Z",
        "2025-10-08T13:30:00.Z",
        "2025-10-08T13:30:00,5Z",
        "2025-10-08T13:30:00Z ",
        "2025-10-08T13:30:00+24:00",
        "2025-10-08T13:30:00+02:60",
        "2025-10-08T13:30:00+2:00",
        "2025-10-08T13:30:00+02",
        "2025-10-08T24:00:00Z",
        "2025-10-08T13:60:00Z",
        "2025-10-08T13:30:60Z",
        "2025-10-08T13:30:61Z",
        "2025-00-08T13:30:00Z",
        "2025-13-08T13:30:00Z",
        "2025-10-00T13:30:00Z",
        "2025-04-31T13:30:00Z",
        "2025-02-29T13:30:00Z",
        "1900-02-29T13:30:00Z",
        "+2025-10-08T13:30:00Z",
        "02025-10-08T13:30:00Z",
        "2025/10/08T13:30:00Z",
        "0000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int64_t time_us;
        if (skr_time_parse(cases[i], &time_us))
            fail_msg("'%s' was read as a time", cases[i]);
    }
}

// Every day from 1600 to 2400 is the one after the day before it.
static void
test_the_calendar_has_no_gaps(void **state)
{
    (void)state;
    const int64_t day_us = INT64_C(86400000000);
    char last[SKR_TIME_TEXT_SIZE] = "";
    for (int64_t day = -135140; day < 157054; day++) {
        char text[SKR_TIME_TEXT_SIZE];
        int64_t time_us;
        assert_true(skr_time_format(day * day_us, text));
        assert_true(strcmp(last, text) < 0);
        assert_true(skr_time_parse(text, &time_us));
        assert_true(time_us == day * day_us);
        memcpy(last, text, sizeof(last));
    }
    assert_string_equal(last, "2399-12-31T00:00:00+00:00");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_survives_a_round_trip),
        cmocka_unit_test(
            test_absent_and_null_are_the_same_for_an_optional_field),
        cmocka_unit_test(
            test_unknown_fields_are_ignored_and_the_last_duplicate_counts),
        cmocka_unit_test(test_what_is_wrong_is_said_with_its_path),
        cmocka_unit_test(test_what_is_not_json_is_refused),
        cmocka_unit_test(test_escapes_become_utf8),
        cmocka_unit_test(test_memory_is_that_of_the_fields),
        cmocka_unit_test(test_a_large_document_without_a_codec_takes_no_tree),
        cmocka_unit_test(test_doubles_are_exact_and_short),
        cmocka_unit_test(test_doubles_do_not_depend_on_the_locale),
        cmocka_unit_test(test_times_are_read_with_any_offset_and_fraction),
        cmocka_unit_test(test_times_that_do_not_exist_are_refused),
        cmocka_unit_test(test_the_calendar_has_no_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
