// SPDX-License-Identifier: MIT
// Whose fault a failure is: the message's, its handler's, or the database's.
#include "consumer_world.h"

#include "support/faulty_database.h"

#define ID "\"X-Message-Id\":\"01890a5d-ac96-774b-bcce-999999999999\""

static enum skr_verdict
always_retry_chosen(const struct skr_delivery *delivery, struct skr_tx tx,
                    void *user, struct skr_error *reason)
{
    if (!is_chosen(user, delivery))
        return add_effect(delivery, tx, reason);
    snprintf(reason->text, sizeof(reason->text), "no stock of apples");
    return SKR_RETRY;
}

static int64_t
count_effects(struct world *world)
{
    return skr_test_number(world->db, "SELECT COUNT(*) FROM effects");
}

static bool
one_has_passed(void *user)
{
    return count_effects(user) == 1;
}

static bool
others_have_passed(void *user)
{
    return count_effects(user) == 50;
}

static bool
is_put_off(void *user)
{
    struct world *world = user;
    return skr_test_number(world->queue,
                           "SELECT COUNT(*) FROM messenger_messages WHERE "
                           "delivered_at IS NULL AND available_at > "
                           "created_at") == 1;
}

static void
test_others_pass_a_message_that_the_failed_table_does_not_take(void **state)
{
    struct world *world = *state;
    struct running running;
    world->chosen = 0;
    world->options.max_retries = 1;
    publish(world, 0, 1);
    consume(world, always_retry_chosen);  // makes the tables
    world->extras.auto_setup = false;
    publish(world, 1, 1);
    start_running(&running, world, always_retry_chosen);
    assert_true(skr_test_eventually(one_has_passed, world, 20000));
    // There at the start, it goes away before it is needed.
    skr_test_run(world->db, "ALTER TABLE messenger_messages RENAME TO away");
    for (int round = 0; round < 2; round++) {
        make_retries_due(world);
        assert_true(skr_test_eventually(has_trouble, world, 20000));
        assert_true(skr_test_eventually(is_put_off, world, 20000));
    }
    publish(world, 2, 49);
    assert_true(skr_test_eventually(others_have_passed, world, 20000));
    assert_int_equal(world->troubles, 1);
    skr_test_run(world->db, "ALTER TABLE away RENAME TO messenger_messages");
    assert_true(skr_test_eventually(has_none_once_due, world, 30000));
    assert_int_equal(skr_consumer_counts(running.consumer).retried, 0);
    stop_running(&running);
    // With the reason that it failed for, however often it came since.
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(headers);
    assert_non_null(strstr(headers, "no stock of apples"));
    free(headers);
    assert_effects(world, 51, 0);
}

static enum skr_verdict
lose_lease_and_retry(const struct skr_delivery *delivery, struct skr_tx tx,
                     void *user, struct skr_error *reason)
{
    struct world *world = user;
    const struct skr_value age = skr_bind_integer(10);
    (void)delivery;
    (void)tx;
    (void)reason;
    skr_test_run_template(world->queue,
                          "UPDATE messenger_messages SET delivered_at = "
                          "{now_minus}",
                          &age, 1);
    return SKR_RETRY;
}

static void
test_a_retry_that_was_lost_is_not_counted(void **state)
{
    struct world *world = *state;
    publish(world, 0, 1);
    struct skr_consumer_counts counts = consume(world, lose_lease_and_retry);
    assert_int_equal(counts.retried, 0);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(waiting(world), 1);
    assert_int_equal(world->losses, 1);
}

// As after a consumer that died with them in hand.
static void
leave_in_hand(struct world *world)
{
    skr_test_run_template(world->queue,
                          "UPDATE messenger_messages SET delivered_at = {now}",
                          NULL, 0);
    expire_leases(world);
}

// Claimed once more, and not settled either.
static uint32_t
claim_and_die(struct world *world)
{
    struct skr_broker *broker = NULL;
    struct skr_incoming incoming;
    size_t count = 0;
    const struct skr_broker_options options = {
        .url = "queue://shop",
        .database = world->queue_database.ops,
        .database_url = world->queue_database.url,
        .wake_fd = -1,
    };
    assert_int_equal(
        skr_broker_open(&skr_queue_broker, &options, &broker, NULL), SKR_OK);
    assert_int_equal(
        broker->ops->receive(broker, &incoming, 1, &count, 0, NULL), SKR_OK);
    uint32_t tries = incoming.retry_count;
    skr_broker_close(broker);
    leave_in_hand(world);
    return tries;
}

static void
test_a_duplicate_is_acknowledged_whatever_its_count(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, 1);
    assert_int_equal(consume(world, accept_order).handled, 1);
    publish(world, 0, 1);
    leave_in_hand(world);
    for (uint32_t tries = 1; tries < 5; tries++)
        assert_int_equal(claim_and_die(world), tries);
    struct skr_consumer_counts counts = consume(world, accept_order);
    assert_int_equal(counts.duplicates, 1);
    assert_int_equal(counts.failed, 0);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(failed_rows(world), 0);
    assert_effects(world, 1, NONE);
}

static void
test_what_no_handler_has_seen_is_handled_even_without_retries(void **state)
{
    struct world *world = *state;
    world->options.max_retries = -1;
    publish(world, 0, 20);
    leave_in_hand(world);
    struct skr_consumer_counts counts = consume(world, accept_order);
    assert_int_equal(counts.handled, 20);
    assert_int_equal(counts.failed, 0);
    assert_effects(world, 20, NONE);
}

static void
test_a_failed_table_elsewhere_is_made_again_where_that_is_allowed(void **state)
{
    struct world *world = *state;
    struct running running;
    struct skr_test_database elsewhere;
    skr_test_database_make(&elsewhere);
    world->options.failed_database = elsewhere.ops;
    world->options.failed_database_url = elsewhere.url;
    publish(world, 0, 1);
    start_running(&running, world, accept_order);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    struct skr_db *db = skr_test_connect(&elsewhere);
    skr_test_run(db, "DROP TABLE messenger_messages");
    publish_raw(world, "{\"type\":\"order.lost\"," ID "}", "{}", 2);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    stop_running(&running);
    assert_int_equal(
        skr_test_number(db, "SELECT COUNT(*) FROM messenger_messages"), 1);
    skr_db_close(db);
    skr_test_database_remove(&elsewhere);
}

static void
test_a_consumer_that_does_not_run_holds_no_connection(void **state)
{
    struct world *world = *state;
    struct skr_test_database elsewhere;
    skr_test_database_make(&elsewhere);
    const struct skr_db_ops *faulty = skr_faulty_database(elsewhere.ops);
    world->options.database = faulty;
    world->options.queue_database = faulty;
    world->options.failed_database = faulty;
    world->options.failed_database_url = elsewhere.url;
    publish(world, 0, 10);
    publish_raw(world, "{\"type\":\"order.lost\"," ID "}", "{}", 2);
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    run_until_empty(consumer);
    assert_int_equal(skr_consumer_counts(consumer).failed, 1);
    assert_true(skr_faulty_opened() >= 3);
    assert_int_equal(skr_faulty_open(), 0);
    // And it can run again.
    publish(world, 10, 10);
    run_until_empty(consumer);
    assert_int_equal(skr_consumer_counts(consumer).handled, 20);
    assert_int_equal(skr_faulty_open(), 0);
    skr_consumer_close(consumer);
    skr_test_database_remove(&elsewhere);
}

static void
consume_type(struct world *world, const char *letter, size_t length,
             struct skr_consumer_counts *counts)
{
    struct skr_error error = {0};
    char name[600] = "", headers[800];
    for (size_t i = 0; i < length; i++)
        strcat(name, letter);
    snprintf(headers, sizeof(headers), "{\"type\":\"%s\"," ID "}", name);
    publish_raw(world, headers, "1", 1);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(
        skr_consumer_handle(consumer, name, accept_order, world, &error),
        SKR_OK);
    run_until_empty(consumer);
    *counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
}

static void
test_a_type_that_cannot_be_recorded_goes_to_the_failed_table(void **state)
{
    struct world *world = *state;
    struct skr_consumer_counts counts;
    // Columns count characters, not bytes.
    consume_type(world, "\xc3\xa9", 255, &counts);
    assert_int_equal(counts.handled, 1);
    skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    consume_type(world, "a", 256, &counts);
    assert_int_equal(counts.handled, 0);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(world->troubles, 0);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "255 characters"));
    free(headers);
}

static struct skr_consumer *
open_sql_consumer(struct world *world, const char *statement)
{
    struct skr_error error = {0};
    struct skr_consumer *consumer = open_consumer(world, NULL);
    assert_int_equal(skr_consumer_handle_sql(consumer, "order.placed",
                                             &statement, 1, &error),
                     SKR_OK);
    return consumer;
}

static void
test_a_mistake_in_a_handlers_sql_empties_no_queue(void **state)
{
    struct world *world = *state;
    static const char *const cases[][2] = {
        {"INSERT INTO absent (number) VALUES (1)",
         "CREATE TABLE absent (number BIGINT)"},
        {"INSERT INTO narrow (second) VALUES (1)",
         "ALTER TABLE narrow ADD COLUMN second BIGINT"},
    };
    skr_test_run(world->db, "CREATE TABLE narrow (first BIGINT)");
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct running running;
        publish(world, 100 * i, 20);
        start_consumer(&running, open_sql_consumer(world, cases[i][0]));
        assert_true(skr_test_eventually(has_trouble, world, 20000));
        assert_int_equal(waiting(world), 20);
        skr_test_run(world->db, cases[i][1]);
        assert_true(skr_test_eventually(has_no_messages, world, 30000));
        assert_int_equal(skr_consumer_counts(running.consumer).handled, 20);
        stop_running(&running);
        assert_int_equal(failed_rows(world), 0);
        // Said once for all of them.
        assert_int_equal(world->troubles, 1);
        world->troubles = 0;
    }
}

#define ADD_EFFECT "INSERT INTO effects (number) VALUES (1)"

static void
test_what_a_message_makes_of_a_sound_statement_is_its_own_fault(void **state)
{
    struct world *world = *state;
    world->options.database = skr_faulty_database(world->database.ops);
    publish(world, 0, 1);
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_RUN,
                                       .sql = ADD_EFFECT,
                                       .count = 1,
                                       .code = SKR_INVALID});
    struct skr_consumer *consumer = open_sql_consumer(world, ADD_EFFECT);
    run_until_empty(consumer);
    assert_int_equal(skr_consumer_counts(consumer).retried, 1);
    assert_int_equal(world->troubles, 0);
    make_retries_due(world);
    run_until_empty(consumer);
    assert_int_equal(skr_consumer_counts(consumer).handled, 1);
    skr_consumer_close(consumer);
}

static void
test_a_lock_conflict_costs_no_retry(void **state)
{
    struct world *world = *state;
    world->options.database = skr_faulty_database(world->database.ops);
    publish(world, 0, 10);
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_RUN,
                                       .sql = ADD_EFFECT,
                                       .after = 3,
                                       .count = 4,
                                       .code = SKR_CONFLICT,
                                       .remedy = SKR_TRY_AGAIN});
    struct skr_consumer *consumer = open_sql_consumer(world, ADD_EFFECT);
    run_until_empty(consumer);
    assert_int_equal(skr_faulty_failures(), 4);
    assert_int_equal(skr_consumer_counts(consumer).handled, 10);
    assert_int_equal(skr_consumer_counts(consumer).retried, 0);
    assert_int_equal(count_effects(world), 10);
    skr_consumer_close(consumer);
}

// As the victim of a deadlock finds itself.
static enum skr_verdict
lose_transaction_at_chosen(const struct skr_delivery *delivery,
                           struct skr_tx tx, void *user,
                           struct skr_error *reason)
{
    struct world *world = user;
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    if (!is_chosen(world, delivery) || atomic_load(&world->chosen_calls) > 3)
        return verdict;
    assert_int_equal(
        skr_tx_run(tx, &(struct skr_statement){.sql = "ROLLBACK"}, NULL),
        SKR_OK);
    return SKR_RETRY;
}

static void
test_a_transaction_that_the_server_ended_costs_no_retry(void **state)
{
    struct world *world = *state;
    world->chosen = 3;
    publish(world, 0, 10);
    struct skr_consumer_counts counts =
        consume(world, lose_transaction_at_chosen);
    assert_int_equal(counts.handled, 10);
    assert_int_equal(counts.retried, 0);
    assert_int_equal(world->chosen_calls, 4);
    assert_effects(world, 10, NONE);
}

static enum skr_verdict
blame_the_connection(const struct skr_delivery *delivery, struct skr_tx tx,
                     void *user, struct skr_error *reason)
{
    struct world *world = user;
    (void)delivery;
    (void)tx;
    atomic_fetch_add(&world->calls, 1);
    skr_fail(reason, SKR_UNAVAILABLE, SKR_RECONNECT, "so it says");
    return SKR_RETRY;
}

static void
test_of_what_a_handler_says_only_the_text_counts(void **state)
{
    struct world *world = *state;
    world->options.database = skr_faulty_database(world->database.ops);
    publish(world, 0, 1);
    struct skr_consumer_counts counts = consume(world, blame_the_connection);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(world->calls, 1);
    assert_int_equal(skr_faulty_opened(), 1);
    assert_int_equal(world->troubles, 0);
    char *headers =
        skr_test_text(world->queue, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "so it says"));
    assert_null(strstr(headers, "UNAVAILABLE"));
    free(headers);
}

static enum skr_verdict
lose_connection_once(const struct skr_delivery *delivery, struct skr_tx tx,
                     void *user, struct skr_error *reason)
{
    struct world *world = user;
    if (atomic_fetch_add(&world->calls, 1) > 0)
        return add_effect(delivery, tx, reason);
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_RUN,
                                       .sql = "",
                                       .count = 1,
                                       .code = SKR_UNAVAILABLE,
                                       .remedy = SKR_RECONNECT});
    return SKR_RETRY;
}

static void
test_a_connection_that_is_lost_in_a_handler_costs_no_retry(void **state)
{
    struct world *world = *state;
    world->options.database = skr_faulty_database(world->database.ops);
    publish(world, 0, 1);
    struct skr_consumer_counts counts = consume(world, lose_connection_once);
    assert_int_equal(skr_faulty_failures(), 1);
    assert_int_equal(counts.handled, 1);
    assert_int_equal(counts.retried, 0);
    assert_int_equal(skr_faulty_opened(), 2);
}

static atomic_int meeting;

static bool
both_are_there(void *user)
{
    (void)user;
    return atomic_load(&meeting) >= 2;
}

// Each locks a row of its own first and then the other's. Where writers take
// turns anyway they do not meet, and nothing is in the way.
static enum skr_verdict
cross(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
      struct skr_error *reason)
{
    struct world *world = user;
    size_t number = number_of(delivery);
    for (size_t i = 0; i < 2; i++) {
        char sql[80];
        snprintf(sql, sizeof(sql),
                 "UPDATE stock SET amount = amount + 1 WHERE item = %zu",
                 (number + i) % 2);
        if (skr_tx_run(tx, &(struct skr_statement){.sql = sql}, reason) !=
            SKR_OK)
            return SKR_RETRY;
        if (i == 0 && atomic_fetch_add(&meeting, 1) < 2)
            skr_test_eventually(both_are_there, world, 2000);
    }
    atomic_fetch_add(&world->calls, 1);
    return add_effect(delivery, tx, reason);
}

static void
test_a_deadlock_between_handlers_costs_no_retry(void **state)
{
    struct world *world = *state;
    struct running running[2];
    consume(world, cross);  // makes the tables
    skr_test_run(world->db, "CREATE TABLE stock (item INTEGER NOT NULL PRIMARY "
                            "KEY, amount INTEGER NOT NULL)");
    skr_test_run(world->db, "INSERT INTO stock VALUES (0, 0), (1, 0)");
    atomic_store(&meeting, 0);
    world->options.max_retries = -1;
    world->options.batch = 1;
    publish(world, 0, 2);
    for (size_t i = 0; i < 2; i++)
        start_running(&running[i], world, cross);
    assert_true(skr_test_eventually(has_no_messages, world, 30000));
    for (size_t i = 0; i < 2; i++)
        stop_running(&running[i]);
    assert_effects(world, 2, NONE);
    assert_int_equal(
        skr_test_number(world->db, "SELECT SUM(amount) FROM stock"), 4);
    assert_int_equal(failed_rows(world), 0);
    assert_int_equal(world->troubles, 0);
}

#define TEST(name)                                               \
    cmocka_unit_test_setup_teardown(name, consumer_world_set_up, \
                                    consumer_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_others_pass_a_message_that_the_failed_table_does_not_take),
        TEST(test_a_retry_that_was_lost_is_not_counted),
        TEST(test_a_duplicate_is_acknowledged_whatever_its_count),
        TEST(test_what_no_handler_has_seen_is_handled_even_without_retries),
        TEST(test_a_failed_table_elsewhere_is_made_again_where_that_is_allowed),
        TEST(test_a_consumer_that_does_not_run_holds_no_connection),
        TEST(test_a_type_that_cannot_be_recorded_goes_to_the_failed_table),
        TEST(test_a_mistake_in_a_handlers_sql_empties_no_queue),
        TEST(test_what_a_message_makes_of_a_sound_statement_is_its_own_fault),
        TEST(test_a_lock_conflict_costs_no_retry),
        TEST(test_a_transaction_that_the_server_ended_costs_no_retry),
        TEST(test_of_what_a_handler_says_only_the_text_counts),
        TEST(test_a_deadlock_between_handlers_costs_no_retry),
        TEST(test_a_connection_that_is_lost_in_a_handler_costs_no_retry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
