// SPDX-License-Identifier: MIT
// Typed messages: what cannot be written, codecs of the application, mistakes
// in descriptions, and publishing.

#include "../../examples/typed_order.h"
#include "typed_everything.h"

#include "base/text.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
// cmocka needs the three above.
#include <cmocka.h>

// skr_publish_typed() with a stand-in for the call below it.
#include "outbox/publish_typed.c"

static struct skr_message published;
static char published_body[1024];
static size_t publish_calls;

enum skr_code
skr_publish(const struct skr_outbox *outbox, struct skr_tx tx,
            const struct skr_message *messages, size_t count,
            struct skr_id *ids, struct skr_error *error)
{
    (void)outbox, (void)tx, (void)ids, (void)error;
    assert_int_equal(count, 1);
    assert_true(messages[0].body_size < sizeof(published_body));
    published = messages[0];
    memcpy(published_body, messages[0].body, messages[0].body_size);
    published_body[messages[0].body_size] = '\0';
    publish_calls++;
    return SKR_OK;
}

static void
assert_encodes(const struct skr_type *type, const void *value,
               const struct skr_codecs *codecs, const char *wanted)
{
    char *json;
    size_t size;
    struct skr_error error;
    if (skr_encode(type, value, codecs, &json, &size, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_string_equal(json, wanted);
    assert_int_equal(strlen(json), size);
    free(json);
}

static void
assert_invalid(const struct skr_type *type, const void *value,
               const struct skr_codecs *codecs, const char *text)
{
    char *json = NULL;
    struct skr_error error = {.code = SKR_OK};
    assert_int_equal(skr_encode(type, value, codecs, &json, NULL, &error),
                     SKR_INVALID);
    assert_string_equal(error.text, text);
    assert_null(json);
    assert_int_equal(skr_encode(type, value, codecs, &json, NULL, NULL),
                     SKR_INVALID);
}

static struct everything
minimum(void)
{
    return (struct everything){
        .text = "", .color = RED, .decimal = {.digits = "0"}};
}

static void
test_what_json_cannot_say_is_refused_with_its_path(void **state)
{
    (void)state;
    struct everything value = minimum();
    struct point points[] = {{.x = 1}, {.x = NAN}};
    value.points = points;
    value.point_count = 2;
    const char *nan_text = "points[1].x: JSON has no NaN and no infinity";
    assert_invalid(&everything, &value, NULL, nan_text);
    points[1].x = -INFINITY;
    assert_invalid(&everything, &value, NULL, nan_text);

    value = minimum();
    value.text = NULL;
    assert_invalid(&everything, &value, NULL, "text: text is needed, not NULL");
    value.text = "\xff";
    assert_invalid(&everything, &value, NULL,
                   "text: the text is not well-formed UTF-8");
    const char *texts[] = {"a", NULL};
    value = minimum();
    value.texts = texts;
    value.text_count = 2;
    assert_invalid(&everything, &value, NULL,
                   "texts[1]: text is needed, not NULL");
    value.texts = NULL;
    assert_invalid(&everything, &value, NULL,
                   "texts: 2 elements are needed, not NULL");
    value = minimum();
    memset(value.chars, 'x', sizeof(value.chars));
    assert_invalid(&everything, &value, NULL,
                   "chars: no terminating zero in char[8]");
    value = minimum();
    value.color = (enum color)3;
    assert_invalid(&everything, &value, NULL,
                   "color: 3 is not in its table of names");
    value = minimum();
    value.at_us = INT64_MAX;
    assert_invalid(&everything, &value, NULL,
                   "at: the time is not in the years 0000 to 9999");
}

struct node {
    struct node *children;
    size_t child_count;
};
static const struct skr_type node;
static const struct skr_field node_fields[] = {
    SKR_ARRAY_STRUCT(struct node, children, child_count, node, "c"),
};
static const struct skr_type node = SKR_PART(struct node, node_fields);

static void
test_nesting_is_bounded_in_both_directions(void **state)
{
    (void)state;
    // A node and its array are two levels: 16 nodes are the most.
    struct node chain[17] = {{.children = NULL}};
    for (size_t i = 0; i < 16; i++)
        chain[i] = (struct node){.children = &chain[i + 1], .child_count = 1};
    char *json;
    size_t size;
    struct skr_error error;
    assert_int_equal(skr_encode(&node, &chain[1], NULL, &json, &size, &error),
                     SKR_OK);
    struct node value;
    struct skr_decoded *memory;
    assert_int_equal(skr_decode(&node, &(struct skr_encoded){json, size, NULL},
                                &value, &memory, &error),
                     SKR_OK);
    skr_decoded_free(memory);
    free(json);
    assert_int_equal(skr_encode(&node, &chain[0], NULL, &json, &size, &error),
                     SKR_INVALID);
    assert_string_equal(strstr(error.text, ": "),
                        ": nested deeper than 32 levels");
    chain[16] = (struct node){.children = chain, .child_count = 1};
    assert_int_equal(skr_encode(&node, &chain[0], NULL, &json, &size, &error),
                     SKR_INVALID);

    char deep[2 * 33 + 1];
    memset(deep, '[', 33);
    memset(deep + 33, ']', 33);
    assert_int_equal(skr_decode(&node, &(struct skr_encoded){deep, 66, NULL},
                                &value, &memory, &error),
                     SKR_MALFORMED);
    assert_string_equal(error.text, "not JSON at byte 33: nested too deep");
}

static const char order_json[] =
    "{\"orderId\":\"01890a5d-ac96-774b-bcce-b302099a8057\","
    "\"customerId\":\"c-7\",\"totalAmount\":123.45,"
    "\"placedAt\":\"2025-10-08T13:30:00+00:00\",\"channel\":\"phone\","
    "\"items\":[{\"sku\":\"tea\",\"quantity\":2,"
    "\"price\":{\"cents\":1999,\"currency\":\"EUR\"}}],\"tags\":[\"new\"]}";

static struct order_placed
sample_order(void)
{
    static struct order_item items[] = {
        {.sku = "tea", .quantity = 2, .price = {1999, "EUR"}},
    };
    static const char *tags[] = {"new"};
    struct order_placed order = {.customer_id = "c-7",
                                 .total = 123.45,
                                 .placed_at_us = INT64_C(1759930200000000),
                                 .channel = CHANNEL_PHONE,
                                 .items = items,
                                 .item_count = 1,
                                 .tags = tags,
                                 .tag_count = 1};
    assert_int_equal(skr_id_parse("01890a5d-ac96-774b-bcce-b302099a8057",
                                  &order.order_id, NULL),
                     SKR_OK);
    return order;
}

static void
test_a_codec_handles_a_c_type_of_the_application(void **state)
{
    (void)state;
    struct order_placed order = sample_order();
    assert_encodes(&order_placed, &order, NULL, order_json);
    struct order_placed read;
    struct skr_decoded *memory;
    struct skr_error error;
    assert_int_equal(
        skr_decode(&order_placed,
                   &(struct skr_encoded){order_json, strlen(order_json), NULL},
                   &read, &memory, &error),
        SKR_OK);
    assert_int_equal(read.items[0].price.cents, 1999);
    assert_string_equal(read.items[0].price.currency, "EUR");
    assert_false(read.has_discount);
    skr_decoded_free(memory);

    char bad[sizeof(order_json)];
    memcpy(bad, order_json, sizeof(bad));
    memcpy(strstr(bad, "1999"), "1.99", 4);
    assert_int_equal(skr_decode(&order_placed,
                                &(struct skr_encoded){bad, strlen(bad), NULL},
                                &read, &memory, &error),
                     SKR_MALFORMED);
    assert_string_equal(error.text, "items[0].price: a whole number from "
                                    "-9223372036854775808 to "
                                    "9223372036854775807 is needed");
}

// Milliseconds as a number instead of RFC 3339.
static enum skr_code
time_encode(const struct skr_codec *codec, const struct skr_field *field,
            const void *value, struct skr_json_writer *writer,
            struct skr_error *error)
{
    (void)field, (void)error;
    const int64_t *factor = codec->user;
    skr_json_write_signed(writer, *(const int64_t *)value / *factor);
    return SKR_OK;
}

static enum skr_code
time_decode(const struct skr_codec *codec, const struct skr_field *field,
            const struct skr_json *json, void *value,
            struct skr_decoded *memory, struct skr_error *error)
{
    (void)field, (void)memory;
    const int64_t *factor = codec->user;
    int64_t number;
    enum skr_code code = skr_json_read_signed(json, &number, error);
    if (code == SKR_OK)
        *(int64_t *)value = number * *factor;
    return code;
}

static int64_t milliseconds = 1000, seconds = 1000000;
static const struct skr_codec millisecond_codec[] = {
    {.kind = SKR_KIND_TIME,
     .encode = time_encode,
     .decode = time_decode,
     .user = &milliseconds},
};
static const struct skr_codec second_codec[] = {
    {.kind = SKR_KIND_TIME,
     .encode = time_encode,
     .decode = time_decode,
     .user = &seconds},
};
static const struct skr_codecs in_milliseconds = SKR_CODECS(millisecond_codec);
static const struct skr_codecs in_seconds = SKR_CODECS(second_codec);

struct moment {
    int64_t at_us;
    int64_t *more;
    size_t more_count;
};
static const struct skr_field moment_fields[] = {
    SKR_FIELD_TIME(struct moment, at_us, "at"),
    SKR_ARRAY_TIME(struct moment, more, more_count, "more", SKR_OPTIONAL),
};
static const struct skr_type plain_moment =
    SKR_PART(struct moment, moment_fields);
static const struct skr_type own_moment =
    SKR_PART(struct moment, moment_fields, SKR_WITH_CODECS(in_milliseconds));

struct pair {
    struct moment plain, own;
};
static const struct skr_field pair_fields[] = {
    SKR_FIELD_STRUCT(struct pair, plain, plain_moment, "plain"),
    SKR_FIELD_STRUCT(struct pair, own, own_moment, "own"),
};
static const struct skr_type pair = SKR_PART(struct pair, pair_fields);

static void
test_the_callers_codecs_precede_the_types_and_those_the_built_in(void **state)
{
    (void)state;
    int64_t more[] = {2000000};
    struct pair value = {
        .own = {.at_us = 1000000, .more = more, .more_count = 1}};
    assert_encodes(&pair, &value, NULL,
                   "{\"plain\":{\"at\":\"1970-01-01T00:00:00+00:00\"},"
                   "\"own\":{\"at\":1000,\"more\":[2000]}}");
    const char *json = "{\"plain\":{\"at\":0},\"own\":{\"at\":1,\"more\":[2]}}";
    assert_encodes(&pair, &value, &in_seconds, json);
    struct pair read;
    struct skr_decoded *memory;
    struct skr_error error;
    assert_int_equal(
        skr_decode(&pair,
                   &(struct skr_encoded){json, strlen(json), &in_seconds},
                   &read, &memory, &error),
        SKR_OK);
    assert_int_equal(read.own.at_us, 1000000);
    assert_int_equal(read.own.more[0], 2000000);
    skr_decoded_free(memory);
    assert_int_equal(skr_decode(&pair,
                                &(struct skr_encoded){json, strlen(json), NULL},
                                &read, &memory, &error),
                     SKR_MALFORMED);
    assert_string_equal(error.text, "plain.at: text is needed, not a number");
}

static void
test_a_codec_for_one_direction_leaves_the_other_as_it_was(void **state)
{
    (void)state;
    static const struct skr_codec list[] = {
        {.kind = SKR_KIND_TIME, .encode = time_encode, .user = &seconds},
    };
    static const struct skr_codecs codecs = SKR_CODECS(list);
    struct moment value = {.at_us = 5000000};
    assert_encodes(&plain_moment, &value, &codecs, "{\"at\":5}");
    const char *json = "{\"at\":\"1970-01-01T00:00:05Z\"}";
    struct skr_decoded *memory;
    assert_int_equal(
        skr_decode(&plain_moment,
                   &(struct skr_encoded){json, strlen(json), &codecs}, &value,
                   &memory, NULL),
        SKR_OK);
    assert_int_equal(value.at_us, 5000000);
    skr_decoded_free(memory);
}

// What the codec under test writes is told by its user pointer.
static enum skr_code
faulty_encode(const struct skr_codec *codec, const struct skr_field *field,
              const void *value, struct skr_json_writer *writer,
              struct skr_error *error)
{
    (void)field, (void)value;
    switch (*(const char *)codec->user) {
    case '2':
        skr_json_write_null(writer);
        skr_json_write_null(writer);
        break;
    case '{': skr_json_begin_object(writer); break;
    case 'n': skr_json_write_double(writer, NAN); break;
    case '#': skr_json_write_digits(writer, "0x10"); break;
    case 'e': return skr_codec_fail(error, SKR_INVALID, "not today");
    case 's': return SKR_INVALID;
    }
    return SKR_OK;
}

static void
test_a_faulty_codec_does_not_spoil_the_message(void **state)
{
    (void)state;
    static const struct {
        char what[2];
        const char *text;
    } cases[] = {
        {"2", "at: its codec did not write one JSON value"},
        {"0", "at: its codec did not write one JSON value"},
        {"{", "at: its codec did not write one JSON value"},
        {"#", "at: its codec did not write one JSON value"},
        {"n", "at: JSON has no NaN and no infinity"},
        {"e", "at: not today"},
        {"s", "at: its codec failed"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        char what[2];
        memcpy(what, cases[i].what, sizeof(what));
        struct skr_codec codec = {
            .kind = SKR_KIND_TIME, .encode = faulty_encode, .user = what};
        struct skr_codecs codecs = {.items = &codec, .count = 1};
        struct moment value = {.at_us = 0};
        assert_invalid(&plain_moment, &value, &codecs, cases[i].text);
    }
}

static void
test_a_description_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct moment value = {.at_us = 0};
    const struct skr_field good = moment_fields[0];
    struct skr_field outside = good, no_pointer = good, wrong_size = good,
                     no_codec = good, no_type = good, no_kind = good;
    outside.offset = sizeof(struct moment) - 4;
    no_pointer.presence = SKR_ABSENT_IF_NULL;
    wrong_size.size = 4;
    no_codec.kind = SKR_KIND_OWN;
    no_codec.c_type = "struct unheard_of";
    no_type.kind = SKR_KIND_STRUCT;
    // As from headers of a later version.
    no_kind.kind = SKR_KIND_OWN + 1;
    const struct {
        const struct skr_field *field;
        const char *text;
    } cases[] = {
        {&outside, "at: the description points outside of its struct"},
        {&no_pointer,
         "at: the description has SKR_OPTIONAL, but there is no pointer that "
         "could be NULL: SKR_OPTIONAL_IF is needed"},
        {&wrong_size, "at: the description has another size than its type"},
        {&no_codec, "at: no codec writes struct unheard_of"},
        {&no_type, "at: the description has no type"},
        {&no_kind, "at: the description has an unknown kind"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_type type = {.c_type = "struct moment",
                                .size = sizeof(struct moment),
                                .fields = cases[i].field,
                                .field_count = 1};
        assert_invalid(&type, &value, NULL, cases[i].text);
        struct skr_decoded *memory;
        assert_int_equal(
            skr_decode(&type, &(struct skr_encoded){"{\"at\":1}", 8, NULL},
                       &value, &memory, NULL),
            SKR_INVALID);
    }
}

static void
test_a_struct_is_published_under_its_types_name(void **state)
{
    (void)state;
    struct order_placed order = sample_order();
    struct skr_tx tx = {0};
    struct skr_error error;
    assert_int_equal(
        skr_publish_typed(
            NULL, tx, &(struct skr_typed_message){&order_placed, &order, NULL},
            NULL, &error),
        SKR_OK);
    assert_string_equal(published.name, "order.placed");
    assert_string_equal(published_body, order_json);
    assert_null(published.partition_key);

    struct skr_message extra = {.partition_key = order.customer_id,
                                .due_at_us = 77};
    assert_int_equal(skr_publish_typed(NULL, tx,
                                       &(struct skr_typed_message){
                                           &order_placed, &order, &extra},
                                       NULL, &error),
                     SKR_OK);
    assert_string_equal(published.partition_key, "c-7");
    assert_int_equal(published.due_at_us, 77);

    publish_calls = 0;
    extra.name = "order.paid";
    assert_int_equal(skr_publish_typed(NULL, tx,
                                       &(struct skr_typed_message){
                                           &order_placed, &order, &extra},
                                       NULL, &error),
                     SKR_INVALID);
    assert_int_equal(skr_publish_typed(NULL, tx,
                                       &(struct skr_typed_message){
                                           &order_item, &order.items[0], NULL},
                                       NULL, &error),
                     SKR_INVALID);
    order.total = NAN;
    assert_int_equal(
        skr_publish_typed(
            NULL, tx, &(struct skr_typed_message){&order_placed, &order, NULL},
            NULL, &error),
        SKR_INVALID);
    assert_string_equal(error.text,
                        "totalAmount: JSON has no NaN and no infinity");
    assert_int_equal(publish_calls, 0);
}

struct small {
    int8_t number;
};
struct many {
    struct small *items;
    size_t count;
};

static enum skr_code
small_decode(const struct skr_codec *codec, const struct skr_field *field,
             const struct skr_json *json, void *value,
             struct skr_decoded *memory, struct skr_error *error)
{
    (void)codec, (void)field, (void)memory;
    int64_t number = 0;
    enum skr_code code = skr_json_read_signed(json, &number, error);
    ((struct small *)value)->number = (int8_t)number;
    return code;
}

static size_t
bytes_in_use(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// A node for each element would take many times what the message has.
static void
test_what_a_codec_has_read_takes_no_memory_afterwards(void **state)
{
    enum { COUNT = 200000 };
    static const struct skr_codec list[] = {
        {.c_type = "struct small", .decode = small_decode}};
    static const struct skr_codecs codecs = SKR_CODECS(list);
    static const struct skr_field fields[] = {
        SKR_ARRAY_OWN(struct many, items, count, struct small, "items")};
    static const struct skr_type type = {.c_type = "struct many",
                                         .size = sizeof(struct many),
                                         .fields = fields,
                                         .field_count = 1,
                                         .codecs = &codecs};
    struct skr_text json = {0};
    struct skr_decoded *memory;
    struct many many;
    (void)state;
    skr_text_add_string(&json, "{\"items\":[7");
    for (size_t i = 1; i < COUNT; i++)
        skr_text_add_string(&json, ",7");
    skr_text_add_string(&json, "]}");
    const struct skr_encoded encoded = {.json = json.bytes, .size = json.size};
    size_t before = bytes_in_use();
    assert_int_equal(skr_decode(&type, &encoded, &many, &memory, NULL), SKR_OK);
    assert_true(bytes_in_use() - before < 4 * json.size);
    assert_int_equal(many.count, COUNT);
    assert_int_equal(many.items[COUNT - 1].number, 7);
    skr_decoded_free(memory);
    skr_text_fini(&json);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_json_cannot_say_is_refused_with_its_path),
        cmocka_unit_test(test_nesting_is_bounded_in_both_directions),
        cmocka_unit_test(test_a_codec_handles_a_c_type_of_the_application),
        cmocka_unit_test(
            test_the_callers_codecs_precede_the_types_and_those_the_built_in),
        cmocka_unit_test(
            test_a_codec_for_one_direction_leaves_the_other_as_it_was),
        cmocka_unit_test(test_a_faulty_codec_does_not_spoil_the_message),
        cmocka_unit_test(test_what_a_codec_has_read_takes_no_memory_afterwards),
        cmocka_unit_test(test_a_description_that_makes_no_sense_is_refused),
        cmocka_unit_test(test_a_struct_is_published_under_its_types_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
