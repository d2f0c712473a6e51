// SPDX-License-Identifier: MIT
// The relay between a real database and a broker that does what it is told.

#include "conformance/relay_world.h"

static void
test_rows_arrive_in_order_and_leave_the_table(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 3000);
    run_until_empty(fixture);
    assert_in_order(&fixture->fake, 3000);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
}

static void
test_what_comes_while_it_runs_is_sent_too(void **state)
{
    struct fixture *fixture = *state;
    start(fixture);
    for (int i = 0; i < 20; i++) {
        insert(fixture, i, i + 1);
        assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    }
    stop(fixture);
    assert_in_order(&fixture->fake, 20);
}

static void
test_never_more_in_flight_than_asked_for(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = 100;
    insert(fixture, 0, 1000);
    run_until_empty(fixture);
    assert_in_order(&fixture->fake, 1000);
    assert_in_range(fixture->fake.most_unanswered, 1, 100);
}

static bool
window_is_full(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 100;
}

static void
test_a_silent_broker_gets_one_window_and_the_rows_stay(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 300);
    start(fixture);
    assert_true(skr_test_eventually(window_is_full, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 300);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_in_order(&fixture->fake, 300);
}

static void *
release_later(void *user)
{
    struct fixture *fixture = user;
    skr_relay_stop(fixture->relay);
    skr_fake_hold_back(&fixture->fake, false);
    return NULL;
}

static void
test_a_stop_finishes_what_is_in_flight(void **state)
{
    struct fixture *fixture = *state;
    pthread_t releaser;
    fixture->options.in_flight = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 100);
    start(fixture);
    assert_true(skr_test_eventually(window_is_full, fixture, WAIT_MS));
    pthread_create(&releaser, NULL, release_later, fixture);
    pthread_join(releaser, NULL);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_STOPPED);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
}

static enum skr_publish_result
refuse_m5_once(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)user;
    return strcmp(message->body, "m5") == 0 && count == 1 ? SKR_REFUSED_FOR_NOW
                                                          : SKR_CONFIRMED;
}

static void
test_a_refused_message_is_tried_again_with_its_id(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_once;
    fixture->options.log.each_message = true;
    insert(fixture, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 11);
    assert_is_id_of(fixture, fixture->refused_id, "m5");
    assert_string_equal(fixture->fake.got[10].body, "m5");
    assert_memory_equal(&fixture->fake.got[10].id, &fixture->fake.got[5].id,
                        sizeof(struct skr_id));
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static enum skr_publish_result
refuse_m5_always(const struct skr_fake_message *message, size_t count,
                 void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->body, "m5") == 0 ? SKR_REFUSED_FOR_NOW
                                            : SKR_CONFIRMED;
}

static void
test_retries_end_in_the_failed_table(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_always;
    insert(fixture, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 11);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    skr_test_assert_text(fixture->db, "SELECT body FROM messenger_messages",
                         "m5");
    char *headers =
        skr_test_text(fixture->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "the fake broker refuses m5"));
    assert_non_null(strstr(headers, "retryCount\\\":1"));
    free(headers);
}

static enum skr_publish_result
refuse_m5_for_good(const struct skr_fake_message *message, size_t count,
                   void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->body, "m5") == 0 ? SKR_REFUSED_FOR_GOOD
                                            : SKR_CONFIRMED;
}

static void
test_what_is_refused_for_good_fails_at_once(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_for_good;
    insert(fixture, 0, 10);
    run_until_empty(fixture);
    assert_int_equal(fixture->fake.got_count, 10);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    assert_is_id_of(fixture, fixture->refused_id, "m5");
}

// The connection breaks at m250 the first time it comes by.
static enum skr_publish_result
lose_at_m250(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)user;
    return strcmp(message->body, "m250") == 0 && count == 1 ? SKR_UNCERTAIN
                                                            : SKR_CONFIRMED;
}

static void
test_a_lost_broker_costs_duplicates_of_what_was_in_flight_only(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = 200;
    fixture->fake.result = lose_at_m250;
    insert(fixture, 0, 1000);
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(fixture->fake.confirmed, 1000);
    assert_in_range(fixture->fake.got_count, 1001, 1200);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static bool
relay_waits(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->troubles, __ATOMIC_RELAXED) > 0;
}

static void
test_a_broker_that_is_down_costs_no_retry_and_is_said_once(void **state)
{
    struct fixture *fixture = *state;
    skr_fake_set_down(&fixture->fake, true);
    insert(fixture, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(relay_waits, fixture, WAIT_MS));
    skr_fake_set_down(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_in_order(&fixture->fake, 10);
    assert_int_equal(fixture->troubles, 1);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static enum skr_publish_result
lose_three_times(const struct skr_fake_message *message, size_t count,
                 void *user)
{
    (void)message;
    (void)user;
    return count <= 3 ? SKR_UNCERTAIN : SKR_CONFIRMED;
}

static void
test_trouble_at_the_broker_is_named_once_until_it_is_over(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = lose_three_times;
    insert(fixture, 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 4);
    assert_int_equal(fixture->troubles, 1);
    assert_int_equal(fixture->recoveries, 1);
    assert_string_equal(fixture->trouble, "the fake broker refuses m0");
}

static void
test_a_limit_counts_what_got_through(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = lose_three_times;
    insert(fixture, 0, 10);
    fixture->options.limits.messages = 4;
    start(fixture);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_OK);
    assert_int_equal(fixture->fake.confirmed, 4);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 6);
}

static bool
says_yes(void *user)
{
    (void)user;
    return true;
}

static void
test_a_standby_ends_when_its_time_is_over(void **state)
{
    struct fixture *first = *state;
    insert(first, 0, 1);
    start(first);
    assert_true(skr_test_eventually(outbox_is_empty, first, WAIT_MS));
    struct fixture *second = calloc(1, sizeof(*second));
    second->options = first->options;
    second->options.log = (struct skr_log){0};
    second->options.limits.is_over = says_yes;
    start(second);
    join(second);
    free(second);
    stop(first);
}

static void
test_a_relay_that_never_gets_through_ends_when_its_time_is_over(void **state)
{
    struct fixture *fixture = *state;
    skr_fake_set_down(&fixture->fake, true);
    fixture->options.limits.is_over = says_yes;
    start(fixture);
    join(fixture);
    assert_int_equal(fixture->fake.got_count, 0);
}

static void
test_ids_below_one_are_rows_too(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value values[] = {
        skr_bind_text("{\"type\":\"order.placed\"}")};
    static const char *const ids[] = {"-4", "-1"};
    for (size_t i = 0; i < SKR_COUNT_OF(ids); i++) {
        char sql[240];
        snprintf(sql, sizeof(sql),
                 "INSERT INTO messenger_outbox (id, body, headers, queue_name, "
                 "created_at, available_at) VALUES (%s, 'm%s', ?, 'outbox', "
                 "{now}, {now})",
                 ids[i], ids[i]);
        skr_test_run_template(fixture->db, sql, values, 1);
    }
    insert(fixture, 0, 3);
    run_until_empty(fixture);
    assert_int_equal(fixture->fake.got_count, 5);
    assert_string_equal(fixture->fake.got[0].body, "m-4");
}

static void
test_a_large_row_travels_alone(void **state)
{
    struct fixture *fixture = *state;
    char *large = calloc(1, 5001);
    memset(large, 'x', 5000);
    fixture->options.in_flight_bytes = 1000;
    insert(fixture, 0, 20);
    insert_with_headers(fixture, "{\"type\":\"order.placed\"}", large);
    insert(fixture, 20, 40);
    free(large);
    run_until_empty(fixture);
    assert_int_equal(fixture->fake.got_count, 41);
    assert_string_equal(fixture->fake.got[40].body, "m39");
}

static void
test_bad_rows_fail_and_hold_up_nothing(void **state)
{
    struct fixture *fixture = *state;
    static const char *const bad[] = {
        "nonsense", "[]", "{}", "{\"type\":\"a.b\",\"X-Message-Id\":\"42\"}"};
    for (size_t i = 0; i < SKR_COUNT_OF(bad); i++)
        insert_with_headers(fixture, bad[i], "{\"bad\":true}");
    insert(fixture, 0, 1000);
    run_until_empty(fixture);
    assert_in_order(&fixture->fake, 1000);
    assert_int_equal(skr_test_number(fixture->db, FAILED), SKR_COUNT_OF(bad));
}

static bool
good_ones_are_through(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 1;
}

static void
test_a_failed_table_that_is_gone_holds_up_the_bad_row_only(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.auto_setup = false;
    insert(fixture, 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    skr_test_run(fixture->db,
                 "ALTER TABLE messenger_messages RENAME TO elsewhere");
    insert_with_headers(fixture, "nonsense", "x");
    insert(fixture, 1, 100);
    assert_true(skr_test_eventually(good_ones_are_through, fixture, WAIT_MS));
    skr_test_run(fixture->db,
                 "ALTER TABLE elsewhere RENAME TO messenger_messages");
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
}

static void
test_php_rows_are_left_for_php(void **state)
{
    struct fixture *fixture = *state;
    insert_with_headers(fixture, "[]",
                        "O:36:\\\"Symfony\\\\Component\\\\Messenger\\\\Env");
    insert(fixture, 0, 10);
    run_until_empty(fixture);
    assert_in_order(&fixture->fake, 10);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 1);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_a_scheduled_message_waits_for_its_time(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value values[] = {
        skr_bind_text("{\"type\":\"order.placed\"}"),
        skr_bind_integer(2),
    };
    skr_test_run_template(
        fixture->db,
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        "available_at) VALUES ('later', ?, 'outbox', {now}, {now_plus})",
        values, 2);
    insert(fixture, 0, 3);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 4);
    assert_string_equal(fixture->fake.got[3].body, "later");
}

static void
test_tables_are_made_on_first_use(void **state)
{
    struct fixture *fixture = *state;
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_missing_tables_are_waited_for(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.auto_setup = false;
    start(fixture);
    assert_true(skr_test_eventually(relay_waits, fixture, WAIT_MS));
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    insert(fixture, 0, 10);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_in_order(&fixture->fake, 10);
}

static void
test_a_second_relay_stands_by_and_takes_over(void **state)
{
    struct fixture *first = *state;
    insert(first, 0, 10);
    start(first);
    assert_true(skr_test_eventually(outbox_is_empty, first, WAIT_MS));
    struct fixture *second = calloc(1, sizeof(*second));
    second->options = first->options;
    second->options.log = (struct skr_log){0};
    start(second);
    insert(first, 10, 20);
    assert_true(skr_test_eventually(outbox_is_empty, first, WAIT_MS));
    stop(first);
    insert(first, 20, 30);
    assert_true(skr_test_eventually(outbox_is_empty, first, WAIT_MS));
    stop(second);
    free(second);
    assert_in_order(&first->fake, 30);
}

static void
test_a_limit_is_kept_to_the_message(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 100);
    fixture->options.limits.messages = 37;
    start(fixture);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_OK);
    assert_in_order(&fixture->fake, 37);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 63);
}

static void
test_a_plain_insert_gets_one_id_for_all_its_life(void **state)
{
    struct fixture *fixture = *state;
    static const struct skr_id none;
    fixture->fake.result = refuse_m5_once;
    insert(fixture, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    for (size_t i = 0; i < 10; i++) {
        assert_memory_not_equal(&fixture->fake.got[i].id, &none, sizeof(none));
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&fixture->fake.got[i].id,
                                    &fixture->fake.got[j].id, sizeof(none));
    }
    assert_int_equal(fixture->fake.got[5].id.bytes[6] >> 4, 8);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TABLES(test_rows_arrive_in_order_and_leave_the_table),
        WITH_TABLES(test_what_comes_while_it_runs_is_sent_too),
        WITH_TABLES(test_never_more_in_flight_than_asked_for),
        WITH_TABLES(test_a_silent_broker_gets_one_window_and_the_rows_stay),
        WITH_TABLES(test_a_stop_finishes_what_is_in_flight),
        WITH_TABLES(test_a_refused_message_is_tried_again_with_its_id),
        WITH_TABLES(test_retries_end_in_the_failed_table),
        WITH_TABLES(test_what_is_refused_for_good_fails_at_once),
        WITH_TABLES(
            test_a_lost_broker_costs_duplicates_of_what_was_in_flight_only),
        WITH_TABLES(test_a_broker_that_is_down_costs_no_retry_and_is_said_once),
        WITH_TABLES(test_trouble_at_the_broker_is_named_once_until_it_is_over),
        WITH_TABLES(test_a_limit_counts_what_got_through),
        WITH_TABLES(test_a_standby_ends_when_its_time_is_over),
        WITH_TABLES(
            test_a_relay_that_never_gets_through_ends_when_its_time_is_over),
        WITH_TABLES(test_ids_below_one_are_rows_too),
        WITH_TABLES(test_a_large_row_travels_alone),
        WITH_TABLES(test_bad_rows_fail_and_hold_up_nothing),
        WITH_TABLES(test_a_failed_table_that_is_gone_holds_up_the_bad_row_only),
        WITH_TABLES(test_php_rows_are_left_for_php),
        WITH_TABLES(test_a_scheduled_message_waits_for_its_time),
        cmocka_unit_test_setup_teardown(test_tables_are_made_on_first_use,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_missing_tables_are_waited_for,
                                        set_up, tear_down),
        WITH_TABLES(test_a_second_relay_stands_by_and_takes_over),
        WITH_TABLES(test_a_limit_is_kept_to_the_message),
        WITH_TABLES(test_a_plain_insert_gets_one_id_for_all_its_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
