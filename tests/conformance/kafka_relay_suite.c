// SPDX-License-Identifier: MIT
// Rows of kafka_outbox on their way to a cluster that librdkafka plays: it
// refuses records when it is told to, as a real one hardly ever does. A minute
// is over when the test says so.

#include "conformance/databases.h"
#include "conformance/kafka_world.h"
#include "relay/relay.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <librdkafka/rdkafka_mock.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    KEYS = 10,
    ROUND = 300,  // rows in a transaction
    PRODUCE = 0,  // the number of that request
};

static atomic_int_fast64_t ahead_ms;

int64_t __real_skr_clock_ms(void);
int64_t __wrap_skr_clock_ms(void);

int64_t
__wrap_skr_clock_ms(void)
{
    return __real_skr_clock_ms() + atomic_load(&ahead_ms);
}

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
    struct skr_store *table;
    struct world *kafka;  // its brokers, and what it holds
    rd_kafka_mock_cluster_t *cluster;
    struct skr_sender_options sender;
    struct skr_relay *relay;
    struct skr_relay_tally tally;
    pthread_t thread;
    enum skr_code ended_with;
    int rows;         // inserted
    int64_t errored;  // so many are expected
    uint32_t failure_limit;
    atomic_int closings;  // of routes, that were told of
};

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct world *kafka = calloc(1, sizeof(*kafka));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    assert_int_equal(skr_kafka_outbox_new(
                         &(struct skr_kafka_outbox_options){
                             .dialect = skr_db_dialect(fixture->db),
                         },
                         &fixture->table, NULL),
                     SKR_OK);
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    kafka->raw = new_raw(RD_KAFKA_PRODUCER, "");
    fixture->cluster = rd_kafka_mock_cluster_new(kafka->raw, 1);
    assert_non_null(fixture->cluster);
    assert_int_equal(
        rd_kafka_mock_topic_create(fixture->cluster, "orders", PARTITIONS, 1),
        0);
    snprintf(kafka->brokers, sizeof(kafka->brokers), "%s",
             rd_kafka_mock_cluster_bootstraps(fixture->cluster));
    snprintf(kafka->url, sizeof(kafka->url), "kafka://%s", kafka->brokers);
    fixture->kafka = kafka;
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    forget_records(fixture->kafka);
    rd_kafka_mock_cluster_destroy(fixture->cluster);
    rd_kafka_destroy(fixture->kafka->raw);
    free(fixture->kafka);
    skr_store_free(fixture->table);
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static void *
run(void *user)
{
    struct fixture *fixture = user;
    struct skr_error error = {0};
    fixture->ended_with = skr_relay_run(fixture->relay, &error);
    return NULL;
}

static void
note_closing(void *user, enum skr_log_level level, const char *event,
             const struct skr_log_field *fields, size_t count)
{
    struct fixture *fixture = user;
    ignore_log(NULL, level, event, fields, count);
    if (strcmp(event, "relay.route_closed") == 0)
        atomic_fetch_add(&fixture->closings, 1);
}

static void
start_relay(struct fixture *fixture)
{
    fixture->sender = (struct skr_sender_options){
        .name = "kafka",
        .broker = &skr_kafka_broker,
        .options = {.url = fixture->kafka->url, .log = {.write = ignore_log}},
    };
    const struct skr_relay_settings options = {
        .name = "outbox",
        .database = fixture->database.ops,
        .database_url = fixture->database.url,
        .table = fixture->table,
        .senders = &fixture->sender,
        .sender_count = 1,
        .retry = {.max_retries = 100, .delay_ms = 3000, .multiplier = 1},
        .in_flight = 100,
        .failure_limit = fixture->failure_limit,
        .log = {.write = note_closing, .user = fixture},
        .tally = &fixture->tally,
    };
    memset(&fixture->tally, 0, sizeof(fixture->tally));
    assert_int_equal(skr_relay_make(&options, &fixture->relay, NULL), SKR_OK);
    pthread_create(&fixture->thread, NULL, run, fixture);
}

// How many rows were refused, and tried again.
static uint64_t
stop_relay(struct fixture *fixture)
{
    skr_relay_stop(fixture->relay);
    pthread_join(fixture->thread, NULL);
    assert_int_equal(fixture->ended_with, SKR_STOPPED);
    uint64_t retried = atomic_load(&fixture->tally.retried);
    skr_relay_free(fixture->relay);
    return retried;
}

// What is wrong with a row, in one way or another.
struct row {
    const char *topic, *payload, *headers;
};

static void
insert(struct fixture *fixture, const struct row *row, const char *key)
{
    const struct skr_value values[] = {
        skr_bind_text(row->topic),
        skr_bind_text(row->payload),
        skr_bind_text(row->headers),
        skr_bind_text(key),
    };
    skr_test_run_template(fixture->db,
                          "INSERT INTO kafka_outbox (topic, payload_json, "
                          "payload_headers, {key}) VALUES (?, ?, ?, ?)",
                          values, SKR_COUNT_OF(values));
}

// Numbers that go on, by keys in turn.
static void
insert_rows(struct fixture *fixture)
{
    for (int i = 0; i < ROUND; i++, fixture->rows++) {
        char key[16], payload[16];
        snprintf(key, sizeof(key), "key-%d", fixture->rows % KEYS);
        snprintf(payload, sizeof(payload), "%d", fixture->rows);
        insert(fixture, &(struct row){"orders", payload, "{}"}, key);
    }
}

static void
insert_round(struct fixture *fixture)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_rows(fixture);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static int64_t
rows_left(struct fixture *fixture)
{
    return skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox");
}

static bool
is_under_way(void *user)
{
    struct fixture *fixture = user;
    return rows_left(fixture) < fixture->rows;
}

static bool
is_empty(void *user)
{
    return rows_left(user) == 0;
}

static bool
only_errored_are_left(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox "
                                        "WHERE errored = 0") == 0;
}

static int64_t
count_errored(struct fixture *fixture)
{
    return skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox "
                                        "WHERE errored = 1");
}

// And what led to it is written.
static bool
a_route_is_closed(void *user)
{
    struct fixture *fixture = user;
    return atomic_load(&fixture->closings) > 0 &&
           count_errored(fixture) == fixture->errored;
}

static bool
some_wait(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, "SELECT COUNT(*) FROM kafka_outbox "
                                        "WHERE batch_id IS NOT NULL") > 0;
}

// All numbers have arrived, of each key the first occurrences in order.
static void
judge(struct fixture *fixture)
{
    int next[KEYS];
    for (int key = 0; key < KEYS; key++)
        next[key] = key;
    read_all(fixture->kafka, "orders", PARTITIONS);
    for (size_t i = 0; i < fixture->kafka->record_count; i++) {
        const rd_kafka_message_t *record = fixture->kafka->records[i];
        char text[16];
        snprintf(text, sizeof(text), "%.*s", (int)record->len,
                 (const char *)record->payload);
        int number = atoi(text);
        if (number > next[number % KEYS])
            fail_msg("%d came before %d", number, next[number % KEYS]);
        if (number == next[number % KEYS])
            next[number % KEYS] += KEYS;
    }
    for (int key = 0; key < KEYS; key++)
        assert_true(next[key] >= fixture->rows);
}

// Of requests that are under way each may meet one; those that are left are for
// records that go alone.
static void
refuse_some(struct fixture *fixture)
{
    rd_kafka_resp_err_t errors[9];
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        errors[i] = RD_KAFKA_RESP_ERR_INVALID_REQUEST;
    rd_kafka_mock_push_request_errors_array(fixture->cluster, PRODUCE,
                                            SKR_COUNT_OF(errors), errors);
}

// Not before they are about to commit: to insert takes a while, and by its end
// what was refused meanwhile might not wait any more.
static void
insert_refused_round(struct fixture *fixture)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_rows(fixture);
    refuse_some(fixture);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static void
test_nothing_of_its_key_passes_a_row_that_waits(void **state)
{
    struct fixture *fixture = *state;
    insert_round(fixture);
    start_relay(fixture);
    assert_true(skr_test_eventually(is_under_way, fixture, DEADLINE_MS));
    for (int i = 0; i < 2; i++) {
        insert_refused_round(fixture);
        assert_true(skr_test_eventually(some_wait, fixture, DEADLINE_MS));
        insert_round(fixture);
        assert_true(skr_test_eventually(is_empty, fixture, DEADLINE_MS));
    }
    assert_true(stop_relay(fixture) > 0);
    judge(fixture);
}

// One may fail, and does; the next, of key-0, waits.
static void
close_route(struct fixture *fixture, const struct row *bad)
{
    fixture->failure_limit = 1;
    fixture->errored++;
    snprintf(fixture->kafka->url, sizeof(fixture->kafka->url),
             "kafka://%s?message.max.bytes=1000", fixture->kafka->brokers);
    insert(fixture, bad, "another");
    insert(fixture, bad, "key-0");
    insert_round(fixture);
    start_relay(fixture);
    assert_true(skr_test_eventually(a_route_is_closed, fixture, DEADLINE_MS));
}

// A JSON string that is larger than a record may be here.
static const char *
large_payload(void)
{
    static char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[0] = text[sizeof(text) - 2] = '"';
    return text;
}

// When it could be sent after all, what follows it has not been sent before.
static void
expect_order_behind(struct fixture *fixture, const struct row *bad)
{
    // The row that waits is number 0.
    fixture->rows = 1;
    close_route(fixture, bad);
    stop_relay(fixture);
    snprintf(fixture->kafka->url, sizeof(fixture->kafka->url), "kafka://%s",
             fixture->kafka->brokers);
    skr_test_run(fixture->db, "UPDATE kafka_outbox SET payload_headers = '{}' "
                              "WHERE errored = 0");
    start_relay(fixture);
    assert_true(
        skr_test_eventually(only_errored_are_left, fixture, DEADLINE_MS));
    stop_relay(fixture);
    judge(fixture);
}

static void
test_nothing_of_its_key_passes_a_large_row_that_may_not_fail(void **state)
{
    expect_order_behind(*state, &(struct row){"orders", large_payload(), "{}"});
}

static void
test_nothing_of_its_key_passes_bad_headers_that_may_not_fail(void **state)
{
    expect_order_behind(*state, &(struct row){"orders", "0", "[1]"});
}

static void
test_a_row_that_may_not_fail_does_so_when_its_minute_is_over(void **state)
{
    const struct row bad[] = {
        {"orders", large_payload(), "{}"},
        {"orders", "0", "[1]"},
        {"no topic", "0", "{}"},
    };
    struct fixture *fixture = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(bad); i++) {
        atomic_store(&fixture->closings, 0);
        close_route(fixture, &bad[i]);
        atomic_fetch_add(&ahead_ms, 61000);
        assert_true(
            skr_test_eventually(only_errored_are_left, fixture, DEADLINE_MS));
        stop_relay(fixture);
        assert_int_equal(count_errored(fixture), ++fixture->errored);
    }
    judge(fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_nothing_of_its_key_passes_a_row_that_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_nothing_of_its_key_passes_a_large_row_that_may_not_fail,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_nothing_of_its_key_passes_bad_headers_that_may_not_fail,
            set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_row_that_may_not_fail_does_so_when_its_minute_is_over,
            set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
