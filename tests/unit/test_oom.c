// SPDX-License-Identifier: MIT
// Each allocation of a task fails once. The task then either says that memory
// is out or succeeds all the same; it never blames its input, crashes or keeps
// memory.
#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "base/url.h"
#include "message/envelope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oom.h"
#include "typed_everything.h"

// Frees all it takes, whatever it returns.
typedef enum skr_code task_fn(struct skr_error *error);

static void
assert_survives(const char *name, task_fn *task)
{
    size_t before = skr_oom_live();
    struct skr_error error = {0};
    assert_int_equal(task(&error), SKR_OK);
    size_t nth = 1;
    for (bool struck = true; struck; nth++) {
        skr_oom_arm(nth);
        enum skr_code code = task(&error);
        struck = skr_oom_disarm();
        if (code != SKR_OK && code != SKR_NO_MEMORY)
            fail_msg("%s: allocation %zu: %d %s", name, nth, code, error.text);
        if (code != SKR_OK && !struck)
            fail_msg("%s fails without cause: %s", name, error.text);
        if (skr_oom_live() != before)
            fail_msg("%s: allocation %zu: %zd are not freed", name, nth,
                     (ssize_t)(skr_oom_live() - before));
        // A task without an end would be a loop without one here.
        assert_true(nth < 10000);
    }
    // The last round had nothing left to fail; the first one must have.
    assert_true(nth > 2);
}

static enum skr_code
parse_url(struct skr_error *error)
{
    struct skr_url url;
    enum skr_code code =
        skr_url_parse("mysql://u:p@h:3306/db?a=1&b=2&c=3&d=%20", &url, error);
    if (code == SKR_OK)
        skr_url_fini(&url);
    return code;
}

static enum skr_code
mask_url(struct skr_error *error)
{
    char *masked = skr_url_mask("mysql://u:p@h/a-long-name-of-a-database-and-"
                                "more-than-the-first-growth?password=x");
    if (masked == NULL)
        return skr_fail_memory(error);
    free(masked);
    return SKR_OK;
}

static enum skr_code
grow_text(struct skr_error *error)
{
    struct skr_text text = {0};
    for (int i = 0; i < 100; i++) {
        skr_text_add_string(&text, "abcdefghij");
        skr_text_add_format(&text, "%d", i);
    }
    char *taken = skr_text_take(&text);
    if (taken == NULL)
        return skr_fail_memory(error);
    free(taken);
    return SKR_OK;
}

static enum skr_code
encode_base64(struct skr_error *error)
{
    char *encoded = skr_text_base64("foobar", 6);
    if (encoded == NULL)
        return skr_fail_memory(error);
    free(encoded);
    return SKR_OK;
}

static enum skr_code
fill_arena(struct skr_error *error)
{
    struct skr_arena arena = {0};
    enum skr_code code = SKR_OK;
    for (int i = 0; i < 20 && code == SKR_OK; i++) {
        if (skr_arena_take(&arena, i % 3 == 0 ? 100000 : 30000) == NULL ||
            skr_arena_text(&arena, "abc", 3) == NULL ||
            skr_arena_format(&arena, "%d", i) == NULL)
            code = skr_fail_memory(error);
        if (i == 10)
            skr_arena_reset(&arena);
    }
    skr_arena_fini(&arena);
    return code;
}

static const char stamped[] =
    "{\"list\":[1,2.5,{\"a\":\"b\"}],\"type\":\"App\\\\OrderPlaced\","
    "\"X-Message-Stamp-Freyr\\\\MessageBroker\\\\Inbox\\\\MessageIdStamp\":"
    "\"[{\\\"messageId\\\":\\\"01928f4e-7b3a-7c1d-9e2f-3a4b5c6d7e8f\\\"}]\","
    "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp\\\\"
    "RedeliveryStamp\":\"[{\\\"retryCount\\\":2}]\",\"Content-Type\":"
    "\"application/json\"}";

static enum skr_code
parse_headers(struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_headers headers = {0};
    enum skr_code code =
        skr_headers_parse(&arena, stamped, strlen(stamped), &headers, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
read_envelope(struct skr_error *error)
{
    static const struct skr_name_pair pairs[] = {
        {"order.placed", "App\\OrderPlaced"},
    };
    static const struct skr_names names = {pairs, 1};
    struct skr_arena arena = {0};
    struct skr_headers headers = {0};
    struct skr_envelope envelope = {0};
    const char *id_header = NULL;
    enum skr_code code =
        skr_headers_parse(&arena, stamped, strlen(stamped), &headers, error);
    if (code == SKR_OK)
        code =
            skr_envelope_read(&arena, &headers, NULL, &names, &envelope, error);
    // Out of memory must not look like a message without an id, or of another
    // name: it would be published or handled wrongly.
    if (code == SKR_OK) {
        assert_true(envelope.has_id);
        assert_string_equal(envelope.message.name, "order.placed");
        assert_int_equal(envelope.retry_count, 2);
        code = skr_envelope_id_header(&arena, NULL, &id_header, error);
    }
    if (code == SKR_OK)
        code =
            skr_envelope_to_wire(&arena, id_header, "X-Key", &envelope, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
write_headers(struct skr_error *error)
{
    static const struct skr_header extra[] = {
        {"X-Trace", "abc"},
        {"X-Tenant", "\xc3\xa9"},
    };
    struct skr_message message = {
        .id = {{1, 2, 3}},
        .name = "order.placed",
        .partition_key = "order-7",
        .body = "{}",
        .body_size = 2,
        .headers = extra,
        .header_count = SKR_COUNT_OF(extra),
    };
    struct skr_arena arena = {0};
    struct skr_text json = {0};
    const char *id_header = NULL;
    enum skr_code code =
        skr_envelope_id_header(&arena, NULL, &id_header, error);
    if (code == SKR_OK)
        code = skr_message_check(&message, error);
    if (code == SKR_OK)
        code = skr_message_write_headers(&message, &arena, id_header, &json,
                                         error);
    skr_text_fini(&json);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
decode_and_encode(struct skr_error *error)
{
    struct point points[3000] = {{.x = 0.1}};
    struct everything value = {.text = "text",
                               .color = RED,
                               .decimal = {.digits = "1"},
                               .points = points,
                               .point_count = SKR_COUNT_OF(points)};
    char *json;
    size_t size;
    enum skr_code code =
        skr_encode(&everything, &value, NULL, &json, &size, error);
    if (code != SKR_OK)
        return code;
    struct skr_decoded *memory;
    code = skr_decode(&everything, &(struct skr_encoded){json, size, NULL},
                      &value, &memory, error);
    free(json);
    if (code == SKR_OK)
        skr_decoded_free(memory);
    return code;
}

#define TASKS(X)     \
    X(parse_url)     \
    X(mask_url)      \
    X(grow_text)     \
    X(encode_base64) \
    X(fill_arena)    \
    X(parse_headers) \
    X(read_envelope) \
    X(write_headers) \
    X(decode_and_encode)

#define DEFINE_TEST(task)                            \
    static void test_##task##_survives(void **state) \
    {                                                \
        (void)state;                                 \
        assert_survives(#task, task);                \
    }
TASKS(DEFINE_TEST)

int
main(void)
{
#define LIST_TEST(task) cmocka_unit_test(test_##task##_survives),
    const struct CMUnitTest tests[] = {TASKS(LIST_TEST)};
    return cmocka_run_group_tests_name("oom", tests, NULL, NULL);
}
