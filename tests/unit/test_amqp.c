// SPDX-License-Identifier: MIT
// Properties, field tables and reply codes of the AMQP client, byte by byte.
#include "amqp/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PIECE(literal)                                                  \
    ((struct skr_amqp_piece){.bytes = (const unsigned char *)(literal), \
                             .size = sizeof(literal) - 1})

static void
assert_piece(struct skr_amqp_piece piece, const char *text)
{
    assert_int_equal(piece.size, strlen(text));
    assert_memory_equal(piece.bytes, text, piece.size);
}

static void
test_properties_are_written_as_they_were_read(void **state)
{
    (void)state;
    // Content type, headers with one text, delivery mode, id, time.
    static const char raw[] = "\xb0\xc0"
                              "\x0a"
                              "text/plain"
                              "\x00\x00\x00\x08"
                              "\x01"
                              "aS\x00\x00\x00\x01"
                              "b"
                              "\x02"
                              "\x02id"
                              "\x00\x00\x00\x00\x00\x00\x01\x02";
    struct skr_amqp_properties read;
    struct skr_text written = {0};
    struct skr_amqp_field field;
    assert_int_equal(skr_amqp_properties_read(PIECE(raw), &read, NULL), SKR_OK);
    assert_piece(read.pieces[SKR_AMQP_CONTENT_TYPE], "text/plain");
    assert_piece(read.pieces[SKR_AMQP_MESSAGE_ID], "id");
    assert_int_equal(skr_amqp_number(read.pieces[SKR_AMQP_TIMESTAMP]), 0x102);
    assert_int_equal(skr_amqp_number(read.pieces[SKR_AMQP_DELIVERY_MODE]),
                     SKR_AMQP_PERSISTENT);
    assert_null(read.pieces[SKR_AMQP_USER_ID].bytes);
    assert_true(
        skr_amqp_table_find(read.pieces[SKR_AMQP_HEADERS], "a", &field));
    assert_int_equal(field.kind, 'S');
    assert_piece(field.value, "b");
    skr_amqp_properties_write(&read, &written);
    assert_int_equal(written.size, sizeof(raw) - 1);
    assert_memory_equal(written.bytes, raw, written.size);
    skr_text_fini(&written);
}

static void
test_properties_that_end_too_early_are_malformed(void **state)
{
    (void)state;
    static const char whole[] = "\x80\x00\x03"
                                "abc";
    struct skr_amqp_properties read;
    struct skr_error error = {0};
    for (size_t size = 0; size < sizeof(whole) - 1; size++) {
        const struct skr_amqp_piece piece = {
            .bytes = (const unsigned char *)whole, .size = size};
        assert_int_equal(skr_amqp_properties_read(piece, &read, &error),
                         SKR_MALFORMED);
    }
    assert_int_equal(skr_amqp_properties_read(PIECE(whole), &read, &error),
                     SKR_OK);
    // Flags that AMQP 0-9-1 does not know.
    assert_int_equal(
        skr_amqp_properties_read(PIECE("\x00\x01\x00"), &read, &error),
        SKR_MALFORMED);
}

static void
test_integers_of_every_kind_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        int64_t number;
    } cases[] = {
        {"\x01nb\xff", 4, -1},
        {"\x01nB\xff", 4, 255},
        {"\x01ns\xff\xfe", 5, -2},
        {"\x01nu\xff\xfe", 5, 65534},
        {"\x01nI\xff\xff\xff\xfd", 7, -3},
        {"\x01ni\xff\xff\xff\xfd", 7, 4294967293},
        {"\x01nl\xff\xff\xff\xff\xff\xff\xff\xfc", 11, -4},
        {"\x01nL\xff\xff\xff\xff\xff\xff\xff\xff", 11, INT64_MAX},
        {"\x01nT\x00\x00\x00\x00\x00\x00\x00\x05", 11, 5},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_amqp_piece table = {
            .bytes = (const unsigned char *)cases[i].bytes,
            .size = cases[i].size};
        struct skr_amqp_field field;
        int64_t number = 0;
        assert_true(skr_amqp_table_next(&table, &field));
        assert_true(skr_amqp_field_is(&field, "n"));
        assert_int_equal(field.all.size, cases[i].size);
        assert_int_equal(table.size, 0);
        assert_true(skr_amqp_field_number(&field, &number));
        assert_int_equal(number, cases[i].number);
    }
    struct skr_amqp_field text = {.kind = 'S', .value = PIECE("1")};
    int64_t number = 7;
    assert_false(skr_amqp_field_number(&text, &number));
    assert_int_equal(number, 7);
}

static void
test_a_table_is_read_field_by_field_and_the_last_of_a_name_counts(void **state)
{
    (void)state;
    struct skr_text table = {0};
    struct skr_amqp_field field;
    static const char *const names[] = {"a", "b", "a"};
    static const char *const values[] = {"first", "", "last"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++)
        skr_amqp_table_add_text(&table, names[i], values[i]);
    const struct skr_amqp_piece all = {
        .bytes = (const unsigned char *)table.bytes, .size = table.size};
    struct skr_amqp_piece left = all;
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++) {
        assert_true(skr_amqp_table_next(&left, &field));
        assert_piece(field.name, names[i]);
        assert_piece(field.value, values[i]);
    }
    assert_false(skr_amqp_table_next(&left, &field));
    assert_int_equal(left.size, 0);
    assert_true(skr_amqp_table_find(all, "a", &field));
    assert_piece(field.value, "last");
    assert_false(skr_amqp_table_find(all, "c", &field));
    // A field that is cut short stays.
    left = (struct skr_amqp_piece){.bytes = all.bytes, .size = 4};
    assert_false(skr_amqp_table_next(&left, &field));
    assert_int_equal(left.size, 4);
    // So does one of a kind that is not known.
    left = PIECE("\x01nZ\x00");
    assert_false(skr_amqp_table_next(&left, &field));
    assert_int_equal(left.size, 4);
    skr_text_fini(&table);
}

static void
test_an_array_holds_values_without_names(void **state)
{
    (void)state;
    struct skr_amqp_piece array = PIECE("t\x01V"
                                        "b\x05");
    struct skr_amqp_field field;
    static const char kinds[] = {'t', 'V', 'b'};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        assert_true(skr_amqp_array_next(&array, &field));
        assert_int_equal(field.kind, kinds[i]);
        assert_int_equal(field.name.size, 0);
    }
    assert_false(skr_amqp_array_next(&array, &field));
    assert_int_equal(array.size, 0);
}

static void
test_a_reply_code_says_what_to_do(void **state)
{
    (void)state;
    static const struct {
        uint16_t code;
        enum skr_code meaning;
        enum skr_remedy remedy;
        bool blames_client;
        const char *native;
    } cases[] = {
        {320, SKR_UNAVAILABLE, SKR_RECONNECT, false, "320"},
        {SKR_AMQP_ACCESS_REFUSED, SKR_REFUSED, SKR_GIVE_UP, false, "403"},
        {SKR_AMQP_NOT_FOUND, SKR_MISSING, SKR_GIVE_UP, false, "404"},
        {405, SKR_REFUSED, SKR_TRY_AGAIN, false, "405"},
        {501, SKR_REFUSED, SKR_GIVE_UP, true, "501"},
        {541, SKR_REFUSED, SKR_TRY_AGAIN, true, "541"},
        {506, SKR_REFUSED, SKR_TRY_AGAIN, false, "506"},
        // One that no table has.
        {999, SKR_REFUSED, SKR_TRY_AGAIN, false, "999"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        const struct skr_amqp_reply reply = {.code = cases[i].code,
                                             .text = PIECE("NO - reason")};
        struct skr_error error = {0};
        assert_int_equal(skr_amqp_fail_reply(&error, reply), cases[i].meaning);
        assert_int_equal(error.code, cases[i].meaning);
        assert_int_equal(error.remedy, cases[i].remedy);
        assert_string_equal(error.native, cases[i].native);
        assert_non_null(strstr(error.text, "NO - reason"));
        assert_int_equal(skr_amqp_blames_client(cases[i].code),
                         cases[i].blames_client);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties_are_written_as_they_were_read),
        cmocka_unit_test(test_properties_that_end_too_early_are_malformed),
        cmocka_unit_test(test_integers_of_every_kind_are_read),
        cmocka_unit_test(
            test_a_table_is_read_field_by_field_and_the_last_of_a_name_counts),
        cmocka_unit_test(test_an_array_holds_values_without_names),
        cmocka_unit_test(test_a_reply_code_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
