// SPDX-License-Identifier: MIT
// The lines that a consumer and a handler's process exchange.
#include "base/arena.h"
#include "base/text.h"
#include "inbox/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct skr_header headers[] = {{"type", "App\\Placed"},
                                            {"X-Note", "a\nb"}};

static const struct skr_record_place record = {"seen", "App\\Placed"};

static struct skr_delivery
make_delivery(const void *body, size_t size)
{
    return (struct skr_delivery){
        .message = {.id = {{1, 137, 10, 93, 172, 150, 119, 75, 188, 206, 0, 0,
                            0, 0, 0, 7}},
                    .name = "order.placed",
                    .content_type = "application/json",
                    .body = body,
                    .body_size = size,
                    .headers = headers,
                    .header_count = 2},
        .attempt = 2,
        .source = "orders",
    };
}

static void
assert_ends_with(const void *body, size_t size, const char *end)
{
    struct skr_delivery delivery = make_delivery(body, size);
    struct skr_text line = {0};
    struct skr_error error = {0};
    assert_int_equal(skr_child_write_line(&delivery, &record, 1, &line, &error),
                     SKR_OK);
    if (!skr_text_ends_with(line.bytes, end))
        fail_msg("%s", line.bytes);
    skr_text_fini(&line);
}

static void
test_a_message_is_one_line(void **state)
{
    (void)state;
    struct skr_delivery delivery = make_delivery("{\"a\":\n1}", 8);
    struct skr_text line = {0};
    struct skr_error error = {0};
    delivery.message.partition_key = "k\"1";
    assert_int_equal(
        skr_child_write_line(&delivery, &record, 17, &line, &error), SKR_OK);
    assert_string_equal(
        line.bytes,
        "{\"delivery\":17,\"id\":\"01890a5d-ac96-774b-bcce-000000000007\","
        "\"name\":\"order.placed\",\"type\":\"App\\\\Placed\",\"attempt\":2,"
        "\"source\":\"orders\",\"partition_key\":\"k\\\"1\",\"content_type\":"
        "\"application/json\",\"traceparent\":null,\"tracestate\":null,"
        "\"deduplication\":{\"table\":\"seen\",\"name\":"
        "\"App\\\\Placed\"},"
        "\"headers\":{\"type\":\"App\\\\Placed\",\"X-Note\":\"a\\nb\"},"
        "\"body_encoding\":\"text\",\"body\":\"{\\\"a\\\":\\n1}\"}\n");
    skr_text_fini(&line);
}

// All zero is as good as none, and not to be taken for one.
static void
test_a_message_without_an_id_says_so(void **state)
{
    (void)state;
    struct skr_delivery delivery = make_delivery("1", 1);
    struct skr_text line = {0};
    struct skr_error error = {0};
    delivery.message.id = (struct skr_id){{0}};
    assert_int_equal(skr_child_write_line(&delivery, &record, 1, &line, &error),
                     SKR_OK);
    assert_non_null(strstr(line.bytes, "\"id\":null,"));
    skr_text_fini(&line);
}

static void
test_a_body_that_is_no_text_is_encoded(void **state)
{
    (void)state;
    assert_ends_with("", 0, "\"body_encoding\":\"text\",\"body\":\"\"}\n");
    assert_ends_with(NULL, 0, "\"body_encoding\":\"text\",\"body\":\"\"}\n");
    assert_ends_with("\xff\x00\x01", 3,
                     "\"body_encoding\":\"base64\",\"body\":\"/wAB\"}\n");
}

static void
test_an_answer_has_a_number_and_a_verdict(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum skr_code code;
        enum skr_verdict verdict;
        const char *error;  // of the answer, or what is said of it
    } cases[] = {
        {"{\"delivery\":7,\"verdict\":\"wait\"}\n", SKR_OK, SKR_RETRY, NULL},
        {"{\"delivery\":7,\"verdict\":\"accept\"}\n", SKR_OK, SKR_ACCEPT, NULL},
        {" {\"verdict\" : \"retry\", \"delivery\":7, \"more\":[1]} \r\n",
         SKR_OK, SKR_RETRY, NULL},
        {"{\"delivery\":7,\"verdict\":\"reject\",\"error\":\"no\"}\n", SKR_OK,
         SKR_REJECT, "no"},
        {"{\"delivery\":7,\"verdict\":\"accept\",\"error\":null}\n", SKR_OK,
         SKR_ACCEPT, NULL},
        {"\n", SKR_MALFORMED, SKR_ACCEPT, ""},
        {"accept\n", SKR_MALFORMED, SKR_ACCEPT, ""},
        {"[]\n", SKR_MALFORMED, SKR_ACCEPT, "object"},
        {"{\"verdict\":\"accept\"}\n", SKR_MALFORMED, SKR_ACCEPT, "delivery"},
        {"{\"delivery\":-7,\"verdict\":\"accept\"}\n", SKR_MALFORMED,
         SKR_ACCEPT, ""},
        {"{\"delivery\":\"7\",\"verdict\":\"accept\"}\n", SKR_MALFORMED,
         SKR_ACCEPT, ""},
        {"{\"delivery\":7}\n", SKR_MALFORMED, SKR_ACCEPT, "verdict"},
        {"{\"delivery\":7,\"verdict\":\"Accept\"}\n", SKR_MALFORMED, SKR_ACCEPT,
         "Accept"},
        {"{\"delivery\":7,\"verdict\":true}\n", SKR_MALFORMED, SKR_ACCEPT,
         "verdict"},
        {"{\"delivery\":7,\"verdict\":\"retry\",\"error\":5}\n", SKR_MALFORMED,
         SKR_ACCEPT, "error"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        struct skr_answer answer = {0};
        struct skr_error error = {0};
        enum skr_code code = skr_child_read_answer(
            cases[i].line, strlen(cases[i].line), &arena, &answer, &error);
        if (code != cases[i].code)
            fail_msg("%s: %s", cases[i].line, error.text);
        if (code != SKR_OK) {
            assert_non_null(strstr(error.text, cases[i].error));
        } else {
            assert_int_equal(answer.number, 7);
            assert_int_equal(answer.verdict, cases[i].verdict);
            assert_int_equal(answer.waits,
                             strstr(cases[i].line, "wait") != NULL);
            assert_true((answer.error == NULL) == (cases[i].error == NULL));
        }
        skr_arena_fini(&arena);
    }
}

static void
test_ready_is_said_in_one_way(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool is_ready;
        enum skr_recorder recorder;
    } cases[] = {
        {"{\"ready\":true,\"deduplicates\":true}\n", true,
         SKR_RECORDER_HANDLER},
        {"{\"ready\":true,\"deduplicates\":\"own\"}\n", true, SKR_RECORDER_OWN},
        // It says more than the configuration.
        {"{\"ready\":true,\"deduplicates\":false}\n", true,
         SKR_RECORDER_CONSUMER},
        {"{\"ready\":false,\"deduplicates\":true}\n", false, 0},
        {"{\"ready\":true,\"deduplicates\":\"yes\"}\n", false, 0},
        {"{\"ready\":true,\"deduplicates\":1}\n", false, 0},
        {"{\"ready\":true,\"deduplicates\":null}\n", false, 0},
        // The configuration's word, below.
        {"{\"ready\":true}\n", true, SKR_RECORDER_OWN},
        {"{\"ready\": true, \"v\":1}\n", true, SKR_RECORDER_OWN},
        {"{\"ready\":false}\n", false, 0},
        {"{\"ready\":1}\n", false, 0},
        {"{}\n", false, 0},
        {"ready\n", false, 0},
        {"\n", false, 0},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        enum skr_recorder recorder = SKR_RECORDER_OWN;
        bool is_ready = skr_child_is_ready_line(
            cases[i].line, strlen(cases[i].line), &arena, &recorder);
        assert_int_equal(is_ready, cases[i].is_ready);
        if (is_ready)
            assert_int_equal(recorder, cases[i].recorder);
        skr_arena_fini(&arena);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_is_one_line),
        cmocka_unit_test(test_a_message_without_an_id_says_so),
        cmocka_unit_test(test_a_body_that_is_no_text_is_encoded),
        cmocka_unit_test(test_an_answer_has_a_number_and_a_verdict),
        cmocka_unit_test(test_ready_is_said_in_one_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
