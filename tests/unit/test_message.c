// SPDX-License-Identifier: MIT
// The message: ids, names, headers, what travels and what stays.

#include "base/arena.h"
#include "base/text.h"
#include "message/envelope.h"
#include "message/failure.h"
#include "message/json.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "01932b6e-7c00-7000-8000-000000000001"
#define ID_STAMP "X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp"

static struct skr_arena arena;

static int
reset(void **state)
{
    (void)state;
    skr_arena_fini(&arena);
    return 0;
}

static struct skr_headers
parse(const char *json)
{
    struct skr_headers headers = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_headers_parse(&arena, json, strlen(json), &headers, &error);
    if (code != SKR_OK)
        fail_msg("%s: %s", json, error.text);
    return headers;
}

static struct skr_envelope
read_envelope(const char *json, const struct skr_names *names)
{
    struct skr_headers headers = parse(json);
    struct skr_envelope envelope = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_envelope_read(&arena, &headers, NULL, names, &envelope, &error);
    if (code != SKR_OK)
        fail_msg("%s: %s", json, error.text);
    return envelope;
}

static const char *
wire_header(const struct skr_envelope *envelope, const char *name)
{
    return skr_headers_find(envelope->message.headers,
                            envelope->message.header_count, name);
}

static void
assert_id(struct skr_id id, const char *text)
{
    char formatted[SKR_ID_TEXT_SIZE];
    skr_id_format(id, formatted);
    assert_string_equal(formatted, text);
}

static void
test_new_ids_are_version_7_and_strictly_ascending(void **state)
{
    (void)state;
    struct skr_id last = {0};
    for (int i = 0; i < 20000; i++) {
        struct skr_id id;
        assert_int_equal(skr_id_new(&id, NULL), SKR_OK);
        assert_int_equal(id.bytes[6] >> 4, 7);
        assert_int_equal(id.bytes[8] >> 6, 2);
        assert_true(memcmp(last.bytes, id.bytes, 8) < 0);
        last = id;
    }
}

enum { THREADS = 4, IDS_EACH = 5000 };

static void *
make_ids(void *user)
{
    struct skr_id *ids = user;
    for (int i = 0; i < IDS_EACH; i++)
        if (skr_id_new(&ids[i], NULL) != SKR_OK)
            abort();
    return NULL;
}

static int
compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct skr_id));
}

static void
test_ids_of_many_threads_never_meet(void **state)
{
    (void)state;
    static struct skr_id ids[THREADS * IDS_EACH];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, make_ids, &ids[i * IDS_EACH]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qsort(ids, THREADS * IDS_EACH, sizeof(ids[0]), compare_ids);
    for (int i = 1; i < THREADS * IDS_EACH; i++)
        assert_true(compare_ids(&ids[i - 1], &ids[i]) != 0);
}

static void
test_uuid_and_ulid_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {ID, ID},
        {"01932B6E-7C00-7000-8000-000000000001", ID},
        {"00000000000000000000000000", "00000000-0000-0000-0000-000000000000"},
        {"7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
        {"01ARZ3NDEKTSV4RRFFQ69G5FAV", "01563e3a-b5d3-d676-4c61-efb99302bd5b"},
        {"01arz3ndektsv4rrffq69g5fav", "01563e3a-b5d3-d676-4c61-efb99302bd5b"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_id id = {0};
        assert_int_equal(skr_id_parse(cases[i].text, &id, NULL), SKR_OK);
        assert_id(id, cases[i].want);
    }
}

static void
test_what_is_neither_uuid_nor_ulid_is_named(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "42",
        "01932b6e-7c00-7000-8000-00000000000",
        "01932b6e-7c00-7000-8000-0000000000011",
        "01932b6e_7c00_7000_8000_000000000001",
        "01932b6e-7c00-7000-8000-00000000000g",
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "01ARZ3NDEKTSV4RRFFQ69G5FAU!",
        "01ARZ3NDEKTSV4RRFFQ69G5FAI",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_id id = {0};
        struct skr_error error = {0};
        assert_int_equal(skr_id_parse(cases[i], &id, &error), SKR_MALFORMED);
        assert_non_null(strstr(error.text, "neither a UUID nor a ULID"));
    }
}

static void
test_names_are_lower_case_words_joined_by_dots(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool valid;
    } cases[] = {
        {"order.placed", true},
        {"a.b", true},
        {"order2.placed3.v4", true},
        {"order", false},
        {"", false},
        {"Order.placed", false},
        {"order..placed", false},
        {".order.placed", false},
        {"order.placed.", false},
        {"order.2placed", false},
        {"order placed.x", false},
        {"order_x.placed", false},
        {"order.plac\xc3\xa9", false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_int_equal(skr_name_check(cases[i].name, NULL) == SKR_OK,
                         cases[i].valid);
}

static void
test_a_handler_is_found_by_name_class_and_pattern(void **state)
{
    (void)state;
    // Each fits better than the next, for order.placed of class App\\Placed.
    static const char *const falling[] = {
        "order.placed", "App\\Placed", "order.place*", "*der.placed*",
        "*.placed",     "order.*",     "App*",         "o*d",
        "**p*",         "*",
    };
    static const char *const foreign[] = {
        "",       "order",       "order.paid", "order.placed.*", "Placed",
        "*.paid", "app\\Placed", "*x*",        "order.placed ",
    };
    size_t before = SIZE_MAX;
    for (size_t i = 0; i < SKR_COUNT_OF(falling); i++) {
        size_t rank = skr_name_rank(falling[i], "order.placed", "App\\Placed");
        assert_true(rank > 0);
        assert_true(rank <= before);
        before = rank;
    }
    for (size_t i = 0; i < SKR_COUNT_OF(foreign); i++)
        assert_int_equal(
            skr_name_rank(foreign[i], "order.placed", "App\\Placed"), 0);
    assert_int_equal(skr_name_rank("*", "", NULL), 1);
    assert_int_equal(skr_name_rank("a*a", "a", NULL), 0);
    assert_true(skr_name_rank("a*b*c", "a.b.b.c.c", NULL) > 0);
    assert_true(skr_name_rank("Placed", "Placed", NULL) >
                skr_name_rank("Placed", "order.placed", "Placed"));
}

static void
test_headers_keep_their_order_and_values(void **state)
{
    (void)state;
    struct skr_headers headers = parse(
        "{\"type\":\"order.placed\",\"b\":\"1\",\"a\":\"h\\u00e9\\/\",\"n\":7,"
        "\"o\":{\"x\":[1]}}");
    assert_int_equal(headers.count, 5);
    assert_string_equal(headers.items[1].name, "b");
    assert_string_equal(headers.items[2].value, "h\xc3\xa9/");
    assert_string_equal(headers.items[3].value, "7");
    assert_string_equal(headers.items[4].value, "{\"x\":[1]}");
    struct skr_text json = {0};
    assert_int_equal(
        skr_headers_write(headers.items, headers.count, &json, NULL), SKR_OK);
    struct skr_headers again = parse(json.bytes);
    for (size_t i = 0; i < headers.count; i++) {
        assert_string_equal(again.items[i].name, headers.items[i].name);
        assert_string_equal(again.items[i].value, headers.items[i].value);
    }
    skr_text_fini(&json);
}

static void
test_headers_that_are_no_object_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"[]", "headers are []"},
        {"", "not JSON"},
        {"{", "not JSON"},
        {"\"x\"", "not an object"},
        {"[1]", "not an object"},
        {"{\"a\":\"\xff\"}", "not JSON"},
        {"{\"a\":\"\\u0000\"}", "zero byte"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_headers headers;
        struct skr_error error = {0};
        assert_int_equal(skr_headers_parse(&arena, cases[i].json,
                                           strlen(cases[i].json), &headers,
                                           &error),
                         SKR_MALFORMED);
        assert_non_null(strstr(error.text, cases[i].says));
    }
}

// Whatever it is made of, and a zero inside of it is its own business.
static void
test_a_value_that_is_no_text_is_its_shortest_json(void **state)
{
    (void)state;
    static const struct {
        const char *json, *value;
    } cases[] = {
        {"{\"a\": [ 1 , \"x\\/y\" , {\"b\" : null} ] }",
         "[1,\"x/y\",{\"b\":null}]"},
        {"{\"a\":{\"n\":-1.50e+3,\"u\":\"\\u00e9 \\n\"}}",
         "{\"n\":-1.50e+3,\"u\":\"\u00e9 \\n\"}"},
        {"{\"a\":[\"\\u0000\"]}", "[\"\\u0000\"]"},
        {"{\"a\":[ ]}", "[]"},
        {"{\"a\":true}", "true"},
        {"{\"a\":null}", "null"},
        {"{\"a\":12345678901234567890}", "12345678901234567890"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_headers headers = parse(cases[i].json);
        assert_int_equal(headers.count, 1);
        assert_string_equal(headers.items[0].value, cases[i].value);
    }
}

// What is scanned, walked or made a tree of is the same JSON.
static enum skr_code
count_child(void *user, const struct skr_json *child, struct skr_error *error)
{
    (void)child;
    (void)error;
    ++*(size_t *)user;
    return SKR_OK;
}

static void
test_scanning_and_walking_agree_with_the_tree(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        " [ ] ",
        "{\"a\":1}",
        "[1,2,[3,{\"a\":[]}]]",
        "null",
        "true",
        "-0.5e-7",
        "\"\\ud83d\\ude00\"",
        "\"\"",
        "{\"a\":{},\"a\":2}",
        // No JSON.
        "",
        " ",
        "{",
        "[1,",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "[1]]",
        "nul",
        "01",
        "1.",
        "1e",
        "\"\\x\"",
        "\"\\ud83d\"",
        "\"\n\"",
        "[\"]",
        "{\"a\":1,}",
        "[,]",
        "\xff",
        "[\xc3]",
        "+1",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        struct skr_error parsed = {0}, scanned = {0}, walked = {0};
        struct skr_json *tree = NULL;
        enum skr_json_kind kind = SKR_JSON_NULL, walked_kind = SKR_JSON_NULL;
        size_t size = strlen(texts[i]), count = 0, children = 0;
        enum skr_code code =
            skr_json_parse(&arena, &arena, texts[i], size, &tree, &parsed);
        assert_int_equal(skr_json_scan(texts[i], size, 0, &kind, &scanned),
                         code);
        assert_string_equal(scanned.text, parsed.text);
        assert_int_equal(
            skr_json_walk(&(struct skr_json_walker){.arena = &arena,
                                                    .take = count_child,
                                                    .user = &count},
                          texts[i], size, &walked_kind, &walked),
            code);
        assert_string_equal(walked.text, parsed.text);
        if (code != SKR_OK)
            continue;
        assert_int_equal(kind, tree->kind);
        assert_int_equal(walked_kind, tree->kind);
        for (struct skr_json *at = tree->first; at != NULL; at = at->next)
            children++;
        assert_int_equal(count, children);
    }
}

static void
test_the_id_is_found_in_every_form(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{\"type\":\"a.b\",\"X-Message-Stamp-Freyr\\\\MessageBroker\\\\Inbox"
        "\\\\MessageIdStamp\":\"[{\\\"messageId\\\":\\\"" ID "\\\"}]\"}",
        "{\"type\":\"a.b\",\"X-Message-Stamp-Freyr\\\\MessageBroker\\\\"
        "Contracts\\\\MessageIdStamp\":\"[{\\\"messageId\\\":\\\"" ID
        "\\\"}]\"}",
        "{\"type\":\"a.b\",\"X-Message-Stamp-MessageIdStamp\":"
        "\"[{\\\"messageId\\\":\\\"" ID "\\\"}]\"}",
        "{\"type\":\"a.b\",\"X-Message-Id\":\"" ID "\"}",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_envelope envelope = read_envelope(cases[i], NULL);
        assert_true(envelope.has_id);
        assert_id(envelope.message.id, ID);
    }
}

static void
test_the_brokers_own_id_counts_when_no_header_has_one(void **state)
{
    (void)state;
    struct skr_headers headers = parse("{\"type\":\"a.b\"}");
    struct skr_envelope envelope;
    assert_int_equal(
        skr_envelope_read(&arena, &headers, ID, NULL, &envelope, NULL), SKR_OK);
    assert_true(envelope.has_id);
    assert_id(envelope.message.id, ID);
}

static void
test_a_header_that_only_resembles_the_id_stamp_is_no_id(void **state)
{
    (void)state;
    struct skr_envelope envelope =
        read_envelope("{\"type\":\"a.b\",\"X-Message-Stamp-NotMessageIdStamp\":"
                      "\"[{\\\"messageId\\\":\\\"" ID "\\\"}]\"}",
                      NULL);
    assert_false(envelope.has_id);
}

static void
test_unusable_envelopes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{}", "no type"},
        {"{\"type\":\"\"}", "no type"},
        {"{\"type\":\"a.b\",\"X-Message-Id\":\"42\"}", "'42'"},
        {"{\"type\":\"a.b\",\"X-Message-Stamp-MessageIdStamp\":\"[]\"}",
         "holds no id"},
        {"{\"type\":\"a.b\",\"X-Message-Stamp-MessageIdStamp\":\"junk\"}",
         "holds no id"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_headers headers = parse(cases[i].json);
        struct skr_envelope envelope;
        struct skr_error error = {0};
        assert_int_equal(
            skr_envelope_read(&arena, &headers, NULL, NULL, &envelope, &error),
            SKR_MALFORMED);
        assert_non_null(strstr(error.text, cases[i].says));
    }
}

static const struct skr_name_pair pairs[] = {
    {"order.placed", "App\\Event\\OrderPlaced"}, {"order.paid", "OrderPaid"}};
static const struct skr_names names = {pairs, 2};

static void
test_a_word_of_other_programs_becomes_a_name_on_the_wire(void **state)
{
    (void)state;
    struct skr_envelope envelope = read_envelope(
        "{\"type\":\"OrderPaid\",\"X-Message-Id\":\"" ID "\"}", &names);
    assert_string_equal(envelope.message.name, "order.paid");
    assert_string_equal(envelope.class_name, "OrderPaid");
    assert_int_equal(
        skr_envelope_to_wire(&arena, ID_STAMP, NULL, &envelope, NULL), SKR_OK);
    assert_string_equal(wire_header(&envelope, "type"), "order.paid");
    assert_string_equal(wire_header(&envelope, "X-Message-Class"), "OrderPaid");
    envelope = read_envelope("{\"type\":\"OrderLost\"}", &names);
    assert_string_equal(envelope.message.name, "OrderLost");
    assert_null(envelope.class_name);
}

static void
test_a_class_becomes_its_semantic_name_on_the_wire(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const struct skr_names *names;
        const char *want_name;
    } cases[] = {
        {"{\"type\":\"App\\\\Event\\\\OrderPlaced\",\"X-Message-Id\":\"" ID
         "\"}",
         &names, "order.placed"},
        {"{\"type\":\"App\\\\Event\\\\OrderPlaced\",\"X-Message-Stamp-Freyr"
         "\\\\MessageBroker\\\\Contracts\\\\MessageNameStamp\":"
         "\"[{\\\"messageName\\\":\\\"order.done\\\"}]\"}",
         &names, "order.done"},
        {"{\"type\":\"App\\\\Event\\\\OrderPlaced\"}", NULL,
         "App\\Event\\OrderPlaced"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_envelope envelope =
            read_envelope(cases[i].json, cases[i].names);
        assert_string_equal(envelope.message.name, cases[i].want_name);
        assert_string_equal(envelope.class_name, "App\\Event\\OrderPlaced");
        assert_int_equal(
            skr_envelope_to_wire(&arena, ID_STAMP, NULL, &envelope, NULL),
            SKR_OK);
        assert_string_equal(wire_header(&envelope, "type"), cases[i].want_name);
        const char *class_name = wire_header(&envelope, "X-Message-Class");
        if (strchr(cases[i].want_name, '\\') == NULL)
            assert_string_equal(class_name, "App\\Event\\OrderPlaced");
        else
            assert_null(class_name);
    }
}

static void
test_stamps_of_the_sender_stay_home(void **state)
{
    (void)state;
    struct skr_envelope envelope = read_envelope(
        "{\"type\":\"order.placed\",\"" SKR_HEADER_ID "\":\"" ID "\","
        "\"X-Message-Stamp-A\\\\PartitionKeyStamp\":"
        "\"[{\\\"partitionKey\\\":\\\"k1\\\"}]\","
        "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp\\\\"
        "DelayStamp\":\"[{\\\"delay\\\":1}]\","
        "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp\\\\"
        "RedeliveryStamp\":\"[{\\\"retryCount\\\":2}]\","
        "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp\\\\"
        "BusNameStamp\":\"[{\\\"busName\\\":\\\"b\\\"}]\","
        "\"X-Message-Stamp-App\\\\TenantStamp\":\"[{}]\","
        "\"traceparent\":\"00-ab\",\"Content-Type\":\"application\\/json\"}",
        NULL);
    assert_string_equal(envelope.message.partition_key, "k1");
    assert_int_equal(envelope.retry_count, 2);
    assert_int_equal(
        skr_envelope_to_wire(&arena, ID_STAMP, NULL, &envelope, NULL), SKR_OK);
    // type, the id stamp that was lacking, X-Message-Id, the tenant, the trace
    assert_int_equal(envelope.message.header_count, 5);
    assert_string_equal(wire_header(&envelope, "traceparent"), "00-ab");
    assert_string_equal(
        wire_header(&envelope, "X-Message-Stamp-App\\TenantStamp"), "[{}]");
    assert_string_equal(wire_header(&envelope, ID_STAMP),
                        "[{\"messageId\":\"" ID "\"}]");
    assert_string_equal(envelope.message.content_type, "application/json");
    assert_int_equal(
        skr_envelope_to_wire(&arena, ID_STAMP, "X-Key", &envelope, NULL),
        SKR_OK);
    assert_int_equal(envelope.message.header_count, 6);
    assert_string_equal(wire_header(&envelope, "X-Key"), "k1");
}

static void
test_headers_that_have_a_meaning_are_known(void **state)
{
    (void)state;
    static const char *const taken[] = {
        "",
        "type",
        "Content-Type",
        "X-Message-Id",
        "X-Message-Class",
        "X-Message-Stamp-A\\B",
        "X-Skirnir-Exchange",
        "\xff",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(taken); i++)
        assert_false(skr_envelope_is_free_header(taken[i]));
    assert_true(skr_envelope_is_free_header("X-Partition-Key"));
}

static void
test_an_id_header_that_came_passes_unchanged(void **state)
{
    (void)state;
    const char *ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    struct skr_envelope envelope =
        read_envelope("{\"type\":\"a.b\",\"X-Message-Stamp-My\\\\"
                      "MessageIdStamp\":\"[{\\\"messageId\\\":"
                      "\\\"01ARZ3NDEKTSV4RRFFQ69G5FAV\\\"}]\"}",
                      NULL);
    assert_int_equal(
        skr_envelope_to_wire(&arena, ID_STAMP, NULL, &envelope, NULL), SKR_OK);
    assert_non_null(strstr(
        wire_header(&envelope, "X-Message-Stamp-My\\MessageIdStamp"), ulid));
    assert_null(wire_header(&envelope, ID_STAMP));
    assert_string_equal(wire_header(&envelope, "X-Message-Id"),
                        "01563e3a-b5d3-d676-4c61-efb99302bd5b");
}

static void
test_an_id_of_zeros_is_none(void **state)
{
    (void)state;
    struct skr_envelope envelope =
        read_envelope("{\"type\":\"a.b\",\"X-Message-Id\":"
                      "\"00000000-0000-0000-0000-000000000000\"}",
                      NULL);
    assert_false(envelope.has_id);
    assert_int_equal(skr_id_parse(ID, &envelope.message.id, NULL), SKR_OK);
    assert_int_equal(
        skr_envelope_to_wire(&arena, ID_STAMP, NULL, &envelope, NULL), SKR_OK);
    assert_int_equal(envelope.message.header_count, 3);
    assert_string_equal(wire_header(&envelope, "X-Message-Id"), ID);
}

static struct skr_headers
written(const struct skr_message *message, const char *id_header)
{
    struct skr_text json = {0};
    struct skr_error error = {0};
    enum skr_code code =
        skr_message_write_headers(message, &arena, id_header, &json, &error);
    if (code != SKR_OK)
        fail_msg("%s", error.text);
    struct skr_headers headers = parse(json.bytes);
    skr_text_fini(&json);
    return headers;
}

static void
test_a_published_row_has_the_headers_symfony_knows(void **state)
{
    (void)state;
    const struct skr_header own[] = {{"X-Shop", "north"}};
    struct skr_message message = {.name = "order.placed",
                                  .partition_key = "order-1",
                                  .headers = own,
                                  .header_count = 1};
    assert_int_equal(skr_id_parse(ID, &message.id, NULL), SKR_OK);
    struct skr_headers headers = written(&message, ID_STAMP);
    static const struct skr_header want[] = {
        {"type", "order.placed"},
        {ID_STAMP, "[{\"messageId\":\"" ID "\"}]"},
        {"X-Message-Id", ID},
        {"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\PartitionKeyStamp",
         "[{\"partitionKey\":\"order-1\"}]"},
        {"X-Shop", "north"},
        {"Content-Type", "application/json"},
    };
    assert_int_equal(headers.count, SKR_COUNT_OF(want));
    for (size_t i = 0; i < headers.count; i++) {
        assert_string_equal(headers.items[i].name, want[i].name);
        assert_string_equal(headers.items[i].value, want[i].value);
    }
    // No stamp at all: its class is one that the other side cannot load.
    struct skr_headers plain = written(&message, NULL);
    assert_int_equal(plain.count, SKR_COUNT_OF(want) - 2);
    for (size_t i = 0; i < plain.count; i++)
        assert_null(strstr(plain.items[i].name, "Stamp"));
}

static void
test_what_cannot_be_published_is_refused_by_name(void **state)
{
    (void)state;
    static const struct skr_header type[] = {{"type", "x.y"}};
    static const struct skr_header twice[] = {{"a", "1"}, {"a", "2"}};
    static const struct skr_header no_value[] = {{"a", NULL}};
    static const struct skr_header broken[] = {{"a\nb", "1"}};
    char long_key[300];
    memset(long_key, 'k', sizeof(long_key) - 1);
    long_key[sizeof(long_key) - 1] = '\0';
    char long_name[257] = "a.";
    memset(long_name + 2, 'b', sizeof(long_name) - 3);
    const struct {
        struct skr_message message;
        const char *says;
    } cases[] = {
        {{.name = NULL}, "no name"},
        {{.name = ""}, "no name"},
        {{.name = "Order"}, "'Order'"},
        {{.name = "order.1"}, "must begin with a lower case letter"},
        {{.name = "order."}, "must begin with a lower case letter"},
        {{.name = "order"}, "at least two words"},
        {{.name = "order.was_placed"}, "digits and dots only"},
        {{.name = long_name}, "longer than 255 bytes"},
        {{.name = "a.b", .content_type = ""}, "content type is empty"},
        {{.name = "a.b", .content_type = "a\r\nb"}, "control character"},
        {{.name = "a.b", .content_type = "\xff"}, "content type"},
        {{.name = "a.b", .headers = broken, .header_count = 1}, "header 0"},
        {{.name = "a.b", .body = "\xff", .body_size = 1}, "not UTF-8"},
        {{.name = "a.b", .body = "a\0b", .body_size = 3}, "zero byte"},
        {{.name = "a.b", .body = NULL, .body_size = 3}, "no body"},
        {{.name = "a.b", .partition_key = long_key}, "over 255"},
        {{.name = "a.b", .due_at_us = -1}, "before 1970"},
        {{.name = "a.b", .headers = type, .header_count = 1}, "'type'"},
        {{.name = "a.b", .headers = twice, .header_count = 2}, "twice"},
        {{.name = "a.b", .headers = no_value, .header_count = 1}, "no value"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        assert_int_equal(skr_message_check(&cases[i].message, &error),
                         SKR_INVALID);
        assert_non_null(strstr(error.text, cases[i].says));
    }
}

static void
test_retries_back_off_within_bounds(void **state)
{
    (void)state;
    const struct skr_retry_policy plain = SKR_DEFAULT_RETRY_POLICY;
    const struct skr_retry_policy capped = {.max_retries = 9,
                                            .delay_ms = 500,
                                            .multiplier = 3,
                                            .max_delay_ms = 4000};
    const struct skr_retry_policy flat = {
        .max_retries = 9, .delay_ms = 700, .multiplier = 1, .jitter = 0.1};
    const struct skr_retry_policy steady = {
        .max_retries = 9, .delay_ms = 700, .multiplier = 1};
    const struct skr_retry_policy wild = {
        .max_retries = 9, .delay_ms = 700, .multiplier = 1, .jitter = 1};
    const struct {
        const struct skr_retry_policy *policy;
        uint32_t retry, random, want_ms;
    } cases[] = {
        {&plain, 1, UINT32_MAX / 2, 1000},
        {&plain, 3, UINT32_MAX / 2, 4000},
        {&plain, 1, 0, 900},
        {&plain, 1, UINT32_MAX, 1100},
        {&capped, 9, UINT32_MAX, 4000},
        {&flat, UINT32_MAX, 0, 630},
        {&steady, 1, 0, 700},
        {&steady, 1, UINT32_MAX, 700},
        {&wild, 1, 0, 1},
        {&wild, 1, UINT32_MAX, 1400},
        {&plain, UINT32_MAX, UINT32_MAX, 24 * 60 * 60 * 1000},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_in_range(skr_retry_delay_ms(cases[i].policy, cases[i].retry,
                                           cases[i].random),
                        cases[i].want_ms - 1, cases[i].want_ms + 1);
}

static void
test_a_retry_counts_in_the_headers(void **state)
{
    (void)state;
    struct skr_headers headers = parse("{\"type\":\"a.b\"}");
    const struct skr_error reason = {.code = SKR_REFUSED,
                                     .text = "the broker said \xff no"};
    assert_int_equal(skr_failure_mark_retry(&arena, &headers, 2, &reason, NULL),
                     SKR_OK);
    struct skr_envelope envelope;
    assert_int_equal(
        skr_envelope_read(&arena, &headers, NULL, NULL, &envelope, NULL),
        SKR_OK);
    assert_int_equal(envelope.retry_count, 2);
    struct skr_text json = {0};
    assert_int_equal(
        skr_headers_write(headers.items, headers.count, &json, NULL), SKR_OK);
    skr_text_fini(&json);
}

static void
test_a_failed_row_is_one_that_symfony_reads(void **state)
{
    (void)state;
    struct skr_headers headers = parse("{\"type\":\"order.placed\"}");
    const struct skr_error reason = {.code = SKR_REFUSED, .text = "no route"};
    const struct skr_failure failure = {
        .transport = "outbox", .retries = 3, .reason = &reason};
    bool readable = false;
    assert_int_equal(skr_failure_mark_failed(&arena, &headers, &names, &failure,
                                             &readable, NULL),
                     SKR_OK);
    assert_true(readable);
    const char *type = skr_headers_find(headers.items, headers.count, "type");
    assert_string_equal(type, "App\\Event\\OrderPlaced");
    const char *sent = skr_headers_find(headers.items, headers.count,
                                        SKR_HEADER_SENT_TO_FAILURE);
    assert_string_equal(sent, "[{\"originalReceiverName\":\"outbox\"}]");
    const char *details =
        skr_headers_find(headers.items, headers.count, SKR_HEADER_ERROR);
    assert_non_null(strstr(details, "\"exceptionMessage\":\"no route\""));
    // and it finds its way back to the semantic name
    struct skr_envelope envelope;
    assert_int_equal(
        skr_envelope_read(&arena, &headers, NULL, NULL, &envelope, NULL),
        SKR_OK);
    assert_string_equal(envelope.message.name, "order.placed");
    assert_int_equal(envelope.retry_count, 3);
}

static void
test_a_failed_row_of_unknown_class_is_not_for_symfony(void **state)
{
    (void)state;
    struct skr_headers headers = parse("{\"type\":\"order.placed\"}");
    const struct skr_error reason = {.code = SKR_REFUSED, .text = "no"};
    const struct skr_failure failure = {.transport = "outbox",
                                        .reason = &reason};
    bool readable = true;
    assert_int_equal(skr_failure_mark_failed(&arena, &headers, NULL, &failure,
                                             &readable, NULL),
                     SKR_OK);
    assert_false(readable);
}

static void
test_headers_that_are_no_json_are_kept_as_they_are(void **state)
{
    (void)state;
    struct skr_headers headers;
    assert_int_equal(skr_failure_wrap_raw(&arena, "{nope", 5, &headers, NULL),
                     SKR_OK);
    assert_string_equal(
        skr_headers_find(headers.items, headers.count, SKR_HEADER_RAW),
        "{nope");
    assert_int_equal(skr_failure_wrap_raw(&arena, "\xff", 1, &headers, NULL),
                     SKR_OK);
    assert_string_equal(
        skr_headers_find(headers.items, headers.count, SKR_HEADER_RAW_BASE64),
        "/w==");
}

static void
expect_undone(const struct skr_headers *headers, const char *expected)
{
    struct skr_text json = {0};
    assert_int_equal(skr_failure_undo(&arena, headers, &json, NULL), SKR_OK);
    assert_string_equal(json.bytes, expected);
    skr_text_fini(&json);
}

static void
test_what_failing_did_to_headers_is_undone(void **state)
{
    (void)state;
    static const char before[] = "{\"type\":\"order.placed\",\"X-Shop\":\"n\"}";
    struct skr_headers headers = parse(before);
    struct skr_text json = {0};
    struct skr_failure_report report;
    const struct skr_error reason = {
        .code = SKR_REFUSED, .text = "no route", .native = "312"};
    const struct skr_failure failure = {
        .transport = "outbox", .retries = 3, .reason = &reason};
    bool readable = false;
    assert_int_equal(skr_failure_mark_failed(&arena, &headers, &names, &failure,
                                             &readable, NULL),
                     SKR_OK);
    expect_undone(&headers, before);
    // and what was written is what is read
    assert_int_equal(
        skr_headers_write(headers.items, headers.count, &json, NULL), SKR_OK);
    assert_int_equal(
        skr_failure_read(&arena, json.bytes, json.size, NULL, &report, NULL),
        SKR_OK);
    skr_text_fini(&json);
    assert_string_equal(report.transport, "outbox");
    assert_string_equal(report.name, "order.placed");
    assert_string_equal(report.class_name, "App\\Event\\OrderPlaced");
    assert_string_equal(report.error_text, "no route");
    assert_string_equal(report.error_code, "312");
    assert_int_equal(report.retries, 3);
    assert_false(report.has_id);
}

static void
test_headers_that_were_wrapped_are_unwrapped(void **state)
{
    (void)state;
    static const char *const cases[] = {"{nope", "", "\xff\xfe{"};
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_headers headers;
        struct skr_text json = {0};
        assert_int_equal(skr_failure_wrap_raw(&arena, cases[i],
                                              strlen(cases[i]), &headers, NULL),
                         SKR_OK);
        skr_text_add_string(&json, "");
        assert_int_equal(skr_failure_undo(&arena, &headers, &json, NULL),
                         SKR_OK);
        assert_string_equal(json.bytes, cases[i]);
        skr_text_fini(&json);
    }
}

static void
test_headers_of_any_kind_are_read_without_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *name;
        bool is_php;
    } cases[] = {
        {"[]", NULL, true},
        {"", NULL, false},
        {"{nope", NULL, false},
        {"{}", NULL, false},
        {"{\"type\":\"a.b\",\"X-Message-Id\":\"bad\"}", "a.b", false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_failure_report report;
        assert_int_equal(skr_failure_read(&arena, cases[i].json,
                                          strlen(cases[i].json), &names,
                                          &report, NULL),
                         SKR_OK);
        assert_int_equal(report.is_php, cases[i].is_php);
        assert_int_equal(report.name == NULL, cases[i].name == NULL);
        assert_false(report.has_id);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_ids_are_version_7_and_strictly_ascending),
        cmocka_unit_test(test_ids_of_many_threads_never_meet),
        cmocka_unit_test(test_uuid_and_ulid_are_read),
        cmocka_unit_test(test_what_is_neither_uuid_nor_ulid_is_named),
        cmocka_unit_test(test_names_are_lower_case_words_joined_by_dots),
        cmocka_unit_test(test_a_handler_is_found_by_name_class_and_pattern),
        cmocka_unit_test_teardown(test_headers_keep_their_order_and_values,
                                  reset),
        cmocka_unit_test_teardown(test_headers_that_are_no_object_are_named,
                                  reset),
        cmocka_unit_test_teardown(
            test_a_value_that_is_no_text_is_its_shortest_json, reset),
        cmocka_unit_test_teardown(test_scanning_and_walking_agree_with_the_tree,
                                  reset),
        cmocka_unit_test_teardown(test_the_id_is_found_in_every_form, reset),
        cmocka_unit_test_teardown(
            test_the_brokers_own_id_counts_when_no_header_has_one, reset),
        cmocka_unit_test_teardown(
            test_a_header_that_only_resembles_the_id_stamp_is_no_id, reset),
        cmocka_unit_test_teardown(test_unusable_envelopes_are_named, reset),
        cmocka_unit_test_teardown(
            test_a_class_becomes_its_semantic_name_on_the_wire, reset),
        cmocka_unit_test_teardown(
            test_a_word_of_other_programs_becomes_a_name_on_the_wire, reset),
        cmocka_unit_test_teardown(test_stamps_of_the_sender_stay_home, reset),
        cmocka_unit_test(test_headers_that_have_a_meaning_are_known),
        cmocka_unit_test_teardown(test_an_id_header_that_came_passes_unchanged,
                                  reset),
        cmocka_unit_test_teardown(test_an_id_of_zeros_is_none, reset),
        cmocka_unit_test_teardown(
            test_a_published_row_has_the_headers_symfony_knows, reset),
        cmocka_unit_test(test_what_cannot_be_published_is_refused_by_name),
        cmocka_unit_test(test_retries_back_off_within_bounds),
        cmocka_unit_test_teardown(test_a_retry_counts_in_the_headers, reset),
        cmocka_unit_test_teardown(test_a_failed_row_is_one_that_symfony_reads,
                                  reset),
        cmocka_unit_test_teardown(
            test_a_failed_row_of_unknown_class_is_not_for_symfony, reset),
        cmocka_unit_test_teardown(
            test_headers_that_are_no_json_are_kept_as_they_are, reset),
        cmocka_unit_test_teardown(test_what_failing_did_to_headers_is_undone,
                                  reset),
        cmocka_unit_test_teardown(test_headers_that_were_wrapped_are_unwrapped,
                                  reset),
        cmocka_unit_test_teardown(
            test_headers_of_any_kind_are_read_without_an_error, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
