// SPDX-License-Identifier: MIT
// skr_publish on an application's own connection.

#include "base/text.h"
#include "conformance/databases.h"
#include "message/headers.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/messenger.h"

#include <skirnir/typed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT "SELECT COUNT(*) FROM messenger_outbox"

struct fixture {
    struct skr_test_database database;
    struct skr_test_client client;
    struct skr_db *db;  // to look from outside
    struct skr_outbox *outbox;
};

static void
make_table(struct fixture *fixture, const char *name)
{
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = name,
        .queue = "outbox",
        .transport = "outbox",
    };
    struct skr_store *table = NULL;
    assert_int_equal(skr_messenger_new(&options, &table, NULL), SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    skr_store_free(table);
}

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    make_table(fixture, "messenger_outbox");
    fixture->client = skr_test_client_open(&fixture->database);
    assert_int_equal(skr_outbox_new(NULL, &fixture->outbox, NULL), SKR_OK);
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_outbox_free(fixture->outbox);
    skr_test_client_close(&fixture->client);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static struct skr_message
order(const char *body)
{
    return (struct skr_message){
        .name = "order.placed", .body = body, .body_size = strlen(body)};
}

static enum skr_code
publish(struct fixture *fixture, const struct skr_message *messages,
        size_t count, struct skr_error *error)
{
    return skr_publish(fixture->outbox, fixture->client.tx, messages, count,
                       NULL, error);
}

static void
test_commit_makes_the_message_appear(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{\"n\":1}");
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 0);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 1);
    skr_test_assert_text(fixture->db, "SELECT body FROM messenger_outbox",
                         "{\"n\":1}");
    skr_test_assert_text(fixture->db, "SELECT queue_name FROM messenger_outbox",
                         "outbox");
    assert_int_equal(skr_test_number(fixture->db,
                                     COUNT " WHERE delivered_at IS NULL AND "
                                           "available_at = created_at"),
                     1);
}

static void
test_the_id_that_was_made_is_told_and_in_the_row(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_message message = order("{}");
    struct skr_id ids[2];
    skr_test_client_begin(&fixture->client);
    // The same struct twice is two messages.
    for (int i = 0; i < 2; i++)
        assert_int_equal(skr_publish(fixture->outbox, fixture->client.tx,
                                     &message, 1, &ids[i], NULL),
                         SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(ids[0].bytes[6] >> 4, 7);
    assert_memory_not_equal(&ids[0], &ids[1], sizeof(ids[0]));
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(ids[0], id);
    char *headers = skr_test_text(
        fixture->db, "SELECT headers FROM messenger_outbox ORDER BY id");
    assert_non_null(strstr(headers, id));
    free(headers);
}

static void
test_two_messages_of_one_id_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message messages[] = {order("{}"), order("{}"), order("{}")};
    struct skr_error error = {0};
    assert_int_equal(skr_id_new(&messages[0].id, NULL), SKR_OK);
    messages[2].id = messages[0].id;
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 3, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "two messages have the id"));
    skr_test_client_commit(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 0);
}

struct order_placed {
    int64_t order_id;
};
static const struct skr_field order_placed_fields[] = {
    SKR_FIELD_INTEGER(struct order_placed, order_id, "orderId"),
};
static const struct skr_type order_placed =
    SKR_TYPE("order.placed", struct order_placed, order_placed_fields);

static void
test_a_struct_is_published_under_its_name(void **state)
{
    struct fixture *fixture = *state;
    const struct order_placed value = {.order_id = 42};
    struct skr_id id = {{0}};
    skr_test_client_begin(&fixture->client);
    assert_int_equal(skr_publish_typed(fixture->outbox, fixture->client.tx,
                                       &(struct skr_typed_message){
                                           &order_placed, &value, NULL},
                                       &id, NULL),
                     SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(id.bytes[6] >> 4, 7);
    skr_test_assert_text(fixture->db, "SELECT body FROM messenger_outbox",
                         "{\"orderId\":42}");
}

static const struct skr_type order_routed =
    SKR_TYPE("order.placed", struct order_placed, order_placed_fields,
             SKR_WITH_ROUTE("orders", "placed.v2"));

static void
test_a_type_says_where_its_messages_go(void **state)
{
    struct fixture *fixture = *state;
    const struct order_placed value = {.order_id = 42};
    const struct skr_header own = {"tenant", "a"};
    const struct skr_message extra = {.headers = &own, .header_count = 1};
    skr_test_client_begin(&fixture->client);
    assert_int_equal(skr_publish_typed(fixture->outbox, fixture->client.tx,
                                       &(struct skr_typed_message){
                                           &order_routed, &value, &extra},
                                       NULL, NULL),
                     SKR_OK);
    skr_test_client_commit(&fixture->client);
    char *headers =
        skr_test_text(fixture->db, "SELECT headers FROM messenger_outbox");
    assert_non_null(strstr(headers, "\"X-Skirnir-Type-Exchange\":\"orders\""));
    assert_non_null(
        strstr(headers, "\"X-Skirnir-Type-Routing-Key\":\"placed.v2\""));
    assert_non_null(strstr(headers, "\"tenant\":\"a\""));
    free(headers);
}

static void
test_a_time_at_the_end_of_all_time_is_not_now(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{}");
    message.due_at_us = INT64_MAX;
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(
        skr_test_number(fixture->db,
                        COUNT " WHERE available_at = '9999-12-31 23:59:59'"),
        1);
}

static void
test_an_id_that_was_given_is_kept(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{}");
    assert_int_equal(
        skr_id_parse("01ARZ3NDEKTSV4RRFFQ69G5FAV", &message.id, NULL), SKR_OK);
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    char *headers =
        skr_test_text(fixture->db, "SELECT headers FROM messenger_outbox");
    assert_non_null(strstr(headers, "01563e3a-b5d3-d676-4c61-efb99302bd5b"));
    free(headers);
}

static void
test_rollback_takes_the_message_along(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{}");
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
    skr_test_client_rollback(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 0);
}

static void
test_autocommit_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{}");
    struct skr_error error = {0};
    assert_int_equal(publish(fixture, &message, 1, &error), SKR_NO_TRANSACTION);
    assert_non_null(strstr(error.text, "BEGIN"));
    assert_int_equal(skr_test_number(fixture->db, COUNT), 0);
}

static void
test_many_messages_go_in_one_call_and_keep_their_order(void **state)
{
    struct fixture *fixture = *state;
    enum { MANY = 500 };
    static struct skr_message messages[MANY];
    static char bodies[MANY][24];
    for (int i = 0; i < MANY; i++) {
        snprintf(bodies[i], sizeof(bodies[i]), "{\"n\":%d}", i);
        messages[i] = order(bodies[i]);
    }
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, MANY, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), MANY);
    skr_test_assert_text(
        fixture->db, "SELECT body FROM messenger_outbox ORDER BY id LIMIT 1",
        "{\"n\":0}");
    skr_test_assert_text(
        fixture->db,
        "SELECT body FROM messenger_outbox ORDER BY id DESC LIMIT 1",
        "{\"n\":499}");
}

static void
test_one_mistake_among_many_writes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message messages[] = {order("{}"), order("{}"), order("{}")};
    messages[2].name = "Wrong";
    struct skr_error error = {0};
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 3, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "'Wrong'"));
    // The application's transaction is as good as before.
    messages[2].name = "order.placed";
    assert_int_equal(publish(fixture, messages, 3, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 3);
}

static void
test_a_due_time_is_never_early(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message message = order("{}");
    message.due_at_us = 4102444800500000;  // 2100-01-01, half a second past
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(
        skr_test_number(fixture->db,
                        COUNT " WHERE available_at = '2100-01-01 00:00:01'"),
        1);
}

static time_t
time_of(struct fixture *fixture, const char *sql)
{
    struct tm parts = {0};
    char *text = skr_test_text(fixture->db, sql);
    assert_non_null(strptime(text, "%Y-%m-%d %H:%M:%S", &parts));
    free(text);
    return timegm(&parts);
}

// By the server's clock, which is this machine's.
static void
test_times_are_utc_whatever_the_zone_of_the_session_is(void **state)
{
    enum { SLACK_S = 60 };
    struct fixture *fixture = *state;
    struct skr_message messages[] = {order("{}"), order("{}")};
    // SQLite knows no zones.
    if (!skr_test_client_move_east(&fixture->client))
        return;
    time_t before = time(NULL), later = before + 3600;
    messages[1].due_at_us = (int64_t)later * 1000000;
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 2, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    time_t after = time(NULL);
    static const char *const now[] = {
        "SELECT MIN(created_at) FROM messenger_outbox",
        "SELECT MAX(created_at) FROM messenger_outbox",
        "SELECT MIN(available_at) FROM messenger_outbox",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(now); i++)
        assert_in_range(time_of(fixture, now[i]), before - SLACK_S,
                        after + SLACK_S);
    assert_int_equal(
        time_of(fixture, "SELECT MAX(available_at) FROM messenger_outbox"),
        later);
}

static void
test_texts_of_every_kind_come_back_as_they_were(void **state)
{
    struct fixture *fixture = *state;
    static const char *const bodies[] = {
        "", "'; DROP TABLE messenger_outbox; --",
        "h\xc3\xa9llo \xf0\x9f\x98\x80", "\\ \" ' ? :x $1 %s",
        "\xe2\x80\xa8 line\nbreak\ttab"};
    for (size_t i = 0; i < SKR_COUNT_OF(bodies); i++) {
        struct skr_message message = order(bodies[i]);
        skr_test_client_begin(&fixture->client);
        assert_int_equal(publish(fixture, &message, 1, NULL), SKR_OK);
        skr_test_client_commit(&fixture->client);
        skr_test_assert_text(
            fixture->db,
            "SELECT body FROM messenger_outbox ORDER BY id DESC LIMIT 1",
            bodies[i]);
    }
}

// What a relay would find malformed is not written.
static void
test_headers_over_the_limit_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    char *value = malloc(SKR_MAX_HEADERS_SIZE + 1);
    const struct skr_header header = {"note", value};
    struct skr_message messages[] = {order("{}"), order("{}")};
    messages[1].headers = &header;
    messages[1].header_count = 1;
    memset(value, 'x', SKR_MAX_HEADERS_SIZE);
    value[SKR_MAX_HEADERS_SIZE] = '\0';
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 2, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "order.placed"));
    assert_non_null(strstr(error.text, "1048576"));
    // Id and type have room beside it.
    value[SKR_MAX_HEADERS_SIZE - 1000] = '\0';
    assert_int_equal(publish(fixture, &messages[1], 1, &error), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM messenger_outbox"),
        1);
    free(value);
}

static void
test_a_missing_table_says_how_to_make_it(void **state)
{
    struct fixture *fixture = *state;
    struct skr_outbox *outbox = NULL;
    const struct skr_outbox_options options = {.table = "not_there"};
    assert_int_equal(skr_outbox_new(&options, &outbox, NULL), SKR_OK);
    struct skr_message message = order("{}");
    struct skr_error error = {0};
    skr_test_client_begin(&fixture->client);
    assert_int_equal(
        skr_publish(outbox, fixture->client.tx, &message, 1, NULL, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "skirnir setup"));
    skr_test_client_rollback(&fixture->client);
    skr_outbox_free(outbox);
}

static void
test_names_that_are_no_identifiers_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "a b", "a;b", "1a", "a'b", "a.b"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++) {
        struct skr_outbox *outbox = NULL;
        const struct skr_outbox_options options = {.table = names[i]};
        assert_int_equal(skr_outbox_new(&options, &outbox, NULL), SKR_INVALID);
        assert_null(outbox);
    }
}

// A word of SQL is a name like others, and a table that was made without quotes
// is found.
static void
test_any_identifier_names_a_table(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = {"Order", "group", "Messenger_Outbox2"};
    for (size_t i = 0; i < SKR_COUNT_OF(names); i++) {
        struct skr_outbox *outbox = NULL;
        const struct skr_outbox_options options = {.table = names[i]};
        struct skr_message message = order("{}");
        struct skr_error error = {0};
        make_table(fixture, names[i]);
        make_table(fixture, names[i]);
        assert_int_equal(skr_outbox_new(&options, &outbox, NULL), SKR_OK);
        skr_test_client_begin(&fixture->client);
        if (skr_publish(outbox, fixture->client.tx, &message, 1, NULL,
                        &error) != SKR_OK)
            fail_msg("%s: %s", names[i], error.text);
        skr_test_client_commit(&fixture->client);
        skr_outbox_free(outbox);
    }
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM Messenger_Outbox2"),
        1);
}

static void
make_kafka_outbox(struct fixture *fixture, const char *topic)
{
    const struct skr_kafka_outbox_options layout = {
        .dialect = skr_db_dialect(fixture->db)};
    const struct skr_outbox_options options = {.is_kafka = true,
                                               .topic = topic};
    struct skr_store *table = NULL;
    assert_int_equal(skr_kafka_outbox_new(&layout, &table, NULL), SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    skr_store_free(table);
    skr_outbox_free(fixture->outbox);
    assert_int_equal(skr_outbox_new(&options, &fixture->outbox, NULL), SKR_OK);
}

static void
test_a_plain_outbox_refuses_a_partition_key(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message messages[] = {order("{}"), order("{}")};
    struct skr_error error = {0};
    messages[1].partition_key = "order-7";
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 2, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "order.placed"));
    assert_non_null(strstr(error.text, "order-7"));
    assert_non_null(strstr(error.text, "is_ordered"));
    // Without an order is what it is.
    messages[1].partition_key = "";
    assert_int_equal(publish(fixture, messages, 2, &error), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(skr_test_number(fixture->db, COUNT), 2);
}

static void
test_a_message_becomes_a_row_for_kafka(void **state)
{
    struct fixture *fixture = *state;
    // As MySQL's JSON columns write it.
    struct skr_message messages[] = {order("{\"n\": 1}"), order("{\"n\": 2}")};
    struct skr_id ids[2];
    char id[SKR_ID_TEXT_SIZE];
    make_kafka_outbox(fixture, NULL);
    messages[1].partition_key = "order-7";
    skr_test_client_begin(&fixture->client);
    assert_int_equal(skr_publish(fixture->outbox, fixture->client.tx, messages,
                                 2, ids, NULL),
                     SKR_OK);
    skr_test_client_commit(&fixture->client);
    skr_test_assert_text(fixture->db,
                         "SELECT o.topic FROM kafka_outbox o ORDER BY o.id",
                         "order.placed");
    skr_test_assert_text(
        fixture->db, "SELECT o.payload_json FROM kafka_outbox o ORDER BY o.id",
        "{\"n\": 1}");
    // The key is the partition's, else the id.
    skr_id_format(ids[0], id);
    skr_test_assert_text(fixture->db,
                         "SELECT o.key FROM kafka_outbox o ORDER BY o.id", id);
    skr_test_assert_text(fixture->db,
                         "SELECT o.key FROM kafka_outbox o ORDER BY o.id DESC",
                         "order-7");
    char *headers = skr_test_text(
        fixture->db,
        "SELECT o.payload_headers FROM kafka_outbox o ORDER BY o.id");
    assert_non_null(strstr(headers, id));
    assert_non_null(strstr(headers, "\"type\""));
    assert_non_null(strstr(headers, "\"order.placed\""));
    free(headers);
}

static void
test_kafka_takes_one_topic_for_all_and_refuses_what_it_cannot_hold(void **state)
{
    struct fixture *fixture = *state;
    struct skr_message messages[] = {order("{}"), order("no JSON")};
    struct skr_error error = {0};
    make_kafka_outbox(fixture, "shop.orders");
    skr_test_client_begin(&fixture->client);
    assert_int_equal(publish(fixture, messages, 2, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "must be JSON"));
    messages[1] = order("{}");
    messages[1].due_at_us = 1;
    assert_int_equal(publish(fixture, messages, 2, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "due time"));
    assert_int_equal(publish(fixture, messages, 1, NULL), SKR_OK);
    skr_test_client_commit(&fixture->client);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox"), 1);
    skr_test_assert_text(fixture->db, "SELECT o.topic FROM kafka_outbox o",
                         "shop.orders");
    struct skr_outbox *outbox = NULL;
    assert_int_equal(
        skr_outbox_new(
            &(struct skr_outbox_options){.is_kafka = true, .topic = "a b"},
            &outbox, &error),
        SKR_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commit_makes_the_message_appear,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_the_id_that_was_made_is_told_and_in_the_row, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_two_messages_of_one_id_are_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_struct_is_published_under_its_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_type_says_where_its_messages_go,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_time_at_the_end_of_all_time_is_not_now, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_id_that_was_given_is_kept,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rollback_takes_the_message_along,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_autocommit_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_many_messages_go_in_one_call_and_keep_their_order, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_one_mistake_among_many_writes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_due_time_is_never_early, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_times_are_utc_whatever_the_zone_of_the_session_is, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_texts_of_every_kind_come_back_as_they_were, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_headers_over_the_limit_are_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_missing_table_says_how_to_make_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_plain_outbox_refuses_a_partition_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_message_becomes_a_row_for_kafka,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_kafka_takes_one_topic_for_all_and_refuses_what_it_cannot_hold,
            set_up, tear_down),
        cmocka_unit_test(test_names_that_are_no_identifiers_are_refused),
        cmocka_unit_test_setup_teardown(test_any_identifier_names_a_table,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
