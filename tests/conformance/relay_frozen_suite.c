// SPDX-License-Identifier: MIT
// A relay beside rows that another session has locked: that of a relay which
// was frozen while it settled. The server ends the frozen session; until then
// the relay keeps what it has published in flight, and sends nothing again.

#include "conformance/relay_world.h"
#include "store/kafka_outbox/kafka_outbox.h"

enum {
    MESSAGES = 60,
    IN_FLIGHT = 20,
    BOUND_MS = 15000,
    SLACK_MS = 10000,
};

#define MARKED                                                      \
    "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS " \
    "NOT NULL"

// The second relay of a test, on kafka_outbox; the first has the fixture.
struct kafka_relay {
    struct skr_store *table;
    struct skr_relay *relay;
    pthread_t thread;
    enum skr_code ended_with;
};

static int
set_up_frozen(void **state)
{
    set_up_with_tables(state);
    struct fixture *fixture = *state;
    fixture->options.in_flight = IN_FLIGHT;
    return 0;
}

static void
make_kafka_outbox(struct fixture *fixture, struct kafka_relay *kafka)
{
    const struct skr_kafka_outbox_options options = {
        .dialect = skr_db_dialect(fixture->db), .marks = true};
    struct skr_error error = {0};
    assert_int_equal(skr_kafka_outbox_new(&options, &kafka->table, NULL),
                     SKR_OK);
    if (skr_store_create(kafka->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < MESSAGES; i++) {
        char payload[32];
        snprintf(payload, sizeof(payload), "\"k%d\"", i);
        const struct skr_value values[] = {skr_bind_text(payload),
                                           skr_bind_text("{}")};
        skr_test_run_template(fixture->db,
                              "INSERT INTO kafka_outbox (topic, payload_json, "
                              "payload_headers, {key}) VALUES ('orders', ?, "
                              "?, 'one')",
                              values, SKR_COUNT_OF(values));
    }
}

static void *
run_kafka(void *user)
{
    struct kafka_relay *kafka = user;
    struct skr_error error = {0};
    kafka->ended_with = skr_relay_run(kafka->relay, &error);
    return NULL;
}

static void
start_kafka(struct fixture *fixture, struct kafka_relay *kafka)
{
    struct skr_relay_settings options = fixture->options;
    options.name = "kafka_outbox";
    options.table = kafka->table;
    assert_int_equal(skr_relay_make(&options, &kafka->relay, NULL), SKR_OK);
    pthread_create(&kafka->thread, NULL, run_kafka, kafka);
}

static void
stop_kafka(struct kafka_relay *kafka)
{
    skr_relay_stop(kafka->relay);
    pthread_join(kafka->thread, NULL);
    assert_int_equal(kafka->ended_with, SKR_STOPPED);
    skr_relay_free(kafka->relay);
    skr_store_free(kafka->table);
}

static bool
all_are_settled(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 0 &&
           skr_test_number(fixture->db, MARKED) == MESSAGES;
}

static size_t
times_sent(const struct skr_fake *fake, const char *body)
{
    size_t count = 0;
    for (size_t i = 0; i < fake->got_count; i++)
        count += strcmp(fake->got[i].body, body) == 0;
    return count;
}

static void
assert_each_once(const struct skr_fake *fake)
{
    assert_int_equal(fake->got_count, 2 * MESSAGES);
    for (int i = 0; i < MESSAGES; i++) {
        char body[32];
        snprintf(body, sizeof(body), "m%d", i);
        assert_int_equal(times_sent(fake, body), 1);
        snprintf(body, sizeof(body), "\"k%d\"", i);
        assert_int_equal(times_sent(fake, body), 1);
    }
}

// A handler may be busy with other things for longer than that.
static struct skr_db *
begin_handling(struct fixture *fixture)
{
    struct skr_db *handler = skr_test_connect(&fixture->database);
    skr_test_run(fixture->db, "CREATE TABLE effect (id INTEGER)");
    assert_int_equal(skr_db_begin(handler, SKR_BEGIN_GUARDED, NULL), SKR_OK);
    skr_test_run(handler, "INSERT INTO effect (id) VALUES (1)");
    return handler;
}

static void
end_handling(struct skr_db *handler)
{
    struct skr_error error = {0};
    if (skr_db_commit(handler, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_db_close(handler);
}

static void
test_what_a_frozen_settler_has_locked_is_settled_and_sent_once(void **state)
{
    struct fixture *fixture = *state;
    struct kafka_relay kafka = {0};
    insert(fixture, 0, MESSAGES);
    make_kafka_outbox(fixture, &kafka);
    struct skr_db *handler = begin_handling(fixture);
    struct skr_db *frozen = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(frozen, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(frozen, "DELETE FROM messenger_outbox WHERE id <= 5");
    skr_test_run(frozen, "UPDATE kafka_outbox SET push_attempts = 1 "
                         "WHERE id <= 5");
    start(fixture);
    start_kafka(fixture, &kafka);
    assert_true(
        skr_test_eventually(all_are_settled, fixture, BOUND_MS + SLACK_MS));
    assert_each_once(&fixture->fake);
    stop_kafka(&kafka);
    stop(fixture);
    end_handling(handler);
    skr_db_close(frozen);
    // The broker was there all the time.
    assert_int_equal(fixture->troubles, 0);
}

static size_t
times_asked(struct skr_fake *fake)
{
    pthread_mutex_lock(&fake->lock);
    size_t asked = fake->asked;
    pthread_mutex_unlock(&fake->lock);
    return asked;
}

struct asking {
    struct skr_fake *fake;
    size_t least;
};

static bool
was_asked(void *user)
{
    const struct asking *asking = user;
    return times_asked(asking->fake) >= asking->least;
}

static bool
window_is_full(void *user)
{
    return skr_fake_got(user) == IN_FLIGHT;
}

// A broker ends a connection on which it hears nothing.
static void
test_the_broker_is_heard_of_while_rows_wait_to_be_settled(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    insert(fixture, 0, MESSAGES);
    assert_int_equal(skr_db_begin(other, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(other, "UPDATE messenger_outbox SET delivered_at = NULL");
    start(fixture);
    assert_true(skr_test_eventually(window_is_full, &fixture->fake, WAIT_MS));
    struct asking asking = {.fake = &fixture->fake,
                            .least = times_asked(&fixture->fake) + 20};
    assert_true(skr_test_eventually(was_asked, &asking, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), IN_FLIGHT);
    skr_db_rollback(other);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_in_order(&fixture->fake, MESSAGES);
    assert_int_equal(fixture->troubles, 0);
    skr_db_close(other);
}

int
main(void)
{
#define FROZEN(test) \
    cmocka_unit_test_setup_teardown(test, set_up_frozen, tear_down)
    const struct CMUnitTest tests[] = {
        FROZEN(test_what_a_frozen_settler_has_locked_is_settled_and_sent_once),
        FROZEN(test_the_broker_is_heard_of_while_rows_wait_to_be_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
