// SPDX-License-Identifier: MIT
// The consumer in trouble: bad input, bad handlers, tables that are not there.
#include "consumer_world.h"

#include "support/memory_ceiling.h"

#include <sys/wait.h>
#include <unistd.h>

#define ID "\"X-Message-Id\":\"01890a5d-ac96-774b-bcce-999999999999\""

static const struct bad {
    const char *headers, *body;
    size_t body_size;
    const char *reason;  // a part of it, as the failed row shows it
    const char *kept;    // a part of the headers as they came
} bad_inputs[] = {
    {"not json", "{}", 2, "not JSON", "not json"},
    {"{\"type\":", "{}", 2, "not JSON", "{\\\"type\\\":"},
    {"[1]", "{}", 2, "not an object", "[1]"},
    {"[]", "{}", 2, "headers are []", "[]"},
    {"{" ID "}", "{}", 2, "no type", "999999999999"},
    {"{\"type\":\"order.placed\"}", "{}", 2, "has no id", "order.placed"},
    {"{\"type\":\"order.placed\",\"X-Message-Id\":\"seven\"}", "{}", 2,
     "neither", "seven"},
    {"{\"type\":\"order.lost\"," ID "}", "{}", 2, "order.lost", "999999999999"},
    {"{\"type\":\"App\\\\Lost\"," ID "}", "{}", 2, "unknown message type",
     "999999999999"},
    {"{\"type\":\"order.placed\"," ID "}", "\xff\xfe", 2, "UTF-8",
     "999999999999"},
};

static void
check_kept(struct world *world, const struct bad *bad)
{
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    if (headers == NULL || strstr(headers, bad->reason) == NULL ||
        strstr(headers, bad->kept) == NULL)
        fail_msg("%s: %s", bad->headers, headers);
    free(headers);
    char *body =
        skr_test_text(world->db, "SELECT body FROM messenger_messages");
    assert_non_null(body);
    bool is_text = skr_text_is_storable(bad->body, bad->body_size);
    char *expected = is_text ? strdup(bad->body)
                             : skr_text_base64(bad->body, bad->body_size);
    assert_string_equal(body, expected);
    free(expected);
    free(body);
}

static void
test_a_thousand_good_messages_pass_each_bad_one(void **state)
{
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(bad_inputs); i++) {
        const struct bad *bad = &bad_inputs[i];
        if (!skr_text_is_storable(bad->body, bad->body_size) &&
            !world->queue_database.text_holds_bytes)
            continue;
        publish(world, 0, 1);
        publish_raw(world, bad->headers, bad->body, bad->body_size);
        publish(world, 1, 1000);
        struct skr_consumer_counts counts = consume(world, accept_order);
        assert_effects(world, 1001, NONE);
        assert_int_equal(counts.failed, 1);
        assert_int_equal(waiting(world), 0);
        assert_int_equal(failed_rows(world), 1);
        check_kept(world, bad);
        skr_test_run(world->db, "DELETE FROM messenger_messages");
        skr_test_run(world->db, "DELETE FROM effects");
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
    assert_int_equal(world->troubles, 0);
}

static enum skr_verdict
die_at_chosen(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    if (is_chosen(user, delivery))
        _exit(42);
    return add_effect(delivery, tx, reason);
}

// The exit status of a consumer in a process of its own.
static int
consume_in_child(struct world *world)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct skr_error error = {0};
        struct skr_consumer *consumer = open_consumer(world, die_at_chosen);
        _exit(skr_consumer_run(consumer, &error) == SKR_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
check_deaths(struct world *world, int32_t max_retries, int expected)
{
    world->chosen = 30;
    world->options.max_retries = max_retries;
    publish(world, 0, 100);
    int deaths = 0, status;
    while ((status = consume_in_child(world)) == 42) {
        assert_in_range(++deaths, 1, 10);
        expire_leases(world);
    }
    assert_int_equal(status, 0);
    assert_int_equal(deaths, expected);
    assert_effects(world, 100, 30);
    assert_int_equal(waiting(world), 0);
    assert_int_equal(failed_rows(world), 1);
    skr_test_assert_text(world->db, "SELECT body FROM messenger_messages",
                         "30");
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "did not settle it in time"));
    free(headers);
}

static void
test_a_message_that_kills_its_consumer_runs_out_of_tries(void **state)
{
    check_deaths(*state, 2, 3);
}

// It is known to be guilty only when it was the only one in hand.
static void
test_a_killer_without_retries_is_given_one_try_alone(void **state)
{
    check_deaths(*state, -1, 2);
}

static const char *rogue_statements[2];

static enum skr_verdict
meddle_at_chosen(const struct skr_delivery *delivery, struct skr_tx tx,
                 void *user, struct skr_error *reason)
{
    struct world *world = user;
    // One that comes later in the same transaction changes its mind: had its
    // deduplication row been committed before, it would be lost.
    if (number_of(delivery) == world->chosen + 10 && !world->has_wavered) {
        world->has_wavered = true;
        return SKR_RETRY;
    }
    enum skr_verdict verdict = add_effect(delivery, tx, reason);
    if (!is_chosen(world, delivery))
        return verdict;
    for (size_t i = 0; i < 2 && rogue_statements[i] != NULL; i++)
        if (skr_tx_run(tx, &(struct skr_statement){.sql = rogue_statements[i]},
                       reason) != SKR_OK)
            return SKR_RETRY;
    return SKR_ACCEPT;
}

static void
test_a_handler_that_ends_the_transaction_loses_no_message(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *statements[2];
        bool is_undone;
    } cases[] = {
        {{"COMMIT", NULL}, false},
        {{"COMMIT", "BEGIN"}, false},
        {{"ROLLBACK", NULL}, true},
        {{"ROLLBACK", "BEGIN"}, true},
        {{"CREATE TABLE IF NOT EXISTS rogue (a INTEGER)", NULL}, false},
    };
    world->chosen = 50;
    world->options.max_retries = 1;
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        memcpy(rogue_statements, cases[i].statements, sizeof(rogue_statements));
        world->has_wavered = false;
        publish(world, 0, 120);
        for (int round = 0; round < 3; round++) {
            consume(world, meddle_at_chosen);
            make_retries_due(world);
        }
        assert_int_equal(waiting(world), 0);
        // What it rolled back it cannot have, and the table of failures says
        // so; every other message is there once.
        assert_int_equal(failed_rows(world), cases[i].is_undone ? 1 : 0);
        assert_effects(world, 120, cases[i].is_undone ? 50 : NONE);
        skr_test_run(world->db, "DELETE FROM messenger_messages");
        skr_test_run(world->db, "DELETE FROM effects");
        skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
    }
}

static bool
has_one_message(void *user)
{
    return waiting(user) == 1;
}

static void
test_without_a_failed_table_nothing_is_lost(void **state)
{
    struct world *world = *state;
    struct running running;
    consume(world, accept_order);  // makes the tables
    world->extras.auto_setup = false;
    publish(world, 0, 1);
    start_running(&running, world, accept_order);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));

    skr_test_run(world->db, "ALTER TABLE messenger_messages RENAME TO away");
    publish_raw(world, "{\"type\":\"order.lost\"," ID "}", "{}", 2);
    publish(world, 1, 50);
    assert_true(skr_test_eventually(has_one_message, world, 20000));
    assert_true(skr_test_eventually(has_trouble, world, 20000));
    assert_effects(world, 51, NONE);

    skr_test_run(world->db, "ALTER TABLE away RENAME TO messenger_messages");
    assert_true(skr_test_eventually(has_none_once_due, world, 30000));
    stop_running(&running);
    assert_int_equal(failed_rows(world), 1);
    // Said when it began, and not at every try.
    assert_int_equal(world->troubles, 1);
}

static void
test_a_table_that_vanishes_is_made_again_where_that_is_allowed(void **state)
{
    struct world *world = *state;
    struct running running;
    publish(world, 0, 1);
    start_running(&running, world, accept_order);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    skr_test_run(world->db, "DROP TABLE messenger_messages");
    publish_raw(world, "{\"type\":\"order.lost\"," ID "}", "{}", 2);
    assert_true(skr_test_eventually(has_no_messages, world, 20000));
    stop_running(&running);
    assert_int_equal(failed_rows(world), 1);
}

static void
test_a_locked_database_costs_no_try(void **state)
{
    struct world *world = *state;
    struct running running;
    consume(world, accept_order);
    world->options.database_url = world->database.impatient_url;
    world->options.max_retries = -1;
    skr_test_hold_up(world->db, "message_broker_deduplication");
    publish(world, 0, 20);
    start_running(&running, world, accept_order);
    assert_true(skr_test_eventually(has_trouble, world, 20000));
    assert_int_equal(waiting(world), 20);
    skr_db_rollback(world->db);
    assert_true(skr_test_eventually(has_no_messages, world, 30000));
    stop_running(&running);
    assert_effects(world, 20, NONE);
    assert_int_equal(failed_rows(world), 0);
}

static void
test_a_database_that_is_away_is_waited_for(void **state)
{
    struct world *world = *state;
    struct running running;
    world->options.database_url = world->database.missing_url;
    publish(world, 0, 3);
    start_running(&running, world, accept_order);
    assert_true(skr_test_eventually(has_trouble, world, 20000));
    stop_running(&running);
    assert_int_equal(waiting(world), 3);
    assert_int_equal(world->troubles, 1);
}

static enum skr_code
run_once(struct world *world, struct skr_error *error)
{
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    enum skr_code code = skr_consumer_run(consumer, error);
    skr_consumer_close(consumer);
    return code;
}

static void
test_missing_tables_are_named_with_their_cure(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    publish(world, 0, 1);
    world->extras.deduplication_auto_setup = false;
    assert_int_equal(run_once(world, &error), SKR_MISSING);
    assert_non_null(strstr(error.text, "message_broker_deduplication"));
    assert_non_null(
        strstr(error.text, "`skirnir setup-deduplication --force`"));

    world->extras.deduplication_auto_setup = true;
    world->extras.auto_setup = false;
    assert_int_equal(run_once(world, &error), SKR_MISSING);
    assert_non_null(strstr(error.text, "messenger_messages"));
    assert_non_null(strstr(error.text, "`skirnir setup`"));
    assert_int_equal(waiting(world), 1);

    world->extras.auto_setup = true;
    assert_int_equal(run_once(world, &error), SKR_OK);
    assert_effects(world, 1, NONE);
}

static void
test_options_that_are_missing_are_named(void **state)
{
    struct world *world = *state;
    const struct skr_consumer_options good = world->options;
    struct skr_consumer_options options[8];
    static const char *const named[] = {
        "name",  "database",         "database_url", "broker_url",
        "batch", "retry_multiplier", "retry_jitter", "table name 'no; table'"};
    for (size_t i = 0; i < SKR_COUNT_OF(options); i++)
        options[i] = good;
    options[0].name = NULL;
    options[1].database = NULL;
    options[2].database_url = NULL;
    options[3].broker_url = NULL;
    options[4].batch = 1000000;
    options[5].retry_multiplier = 0.5;
    options[6].retry_jitter = 1.5;
    options[7].deduplication_table = "no; table";
    for (size_t i = 0; i < SKR_COUNT_OF(options); i++) {
        struct skr_consumer *consumer = NULL;
        struct skr_error error = {0};
        assert_int_equal(skr_consumer_open(&options[i], &consumer, &error),
                         SKR_INVALID);
        if (strstr(error.text, named[i]) == NULL)
            fail_msg("%s: %s", named[i], error.text);
    }
    world->options.queue_database = NULL;
    struct skr_error error = {0};
    assert_int_equal(run_once(world, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "queue_database"));
}

static void
test_an_application_can_admit_messages_itself(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_id id;
    assert_int_equal(skr_id_new(&id, &error), SKR_OK);
    consume(world, accept_order);  // makes the tables
    struct skr_test_client client = skr_test_client_open(&world->database);
    assert_int_equal(
        skr_inbox_admit(client.tx, NULL, "order.placed", id, &error),
        SKR_NO_TRANSACTION);
    for (int round = 0; round < 2; round++) {
        // Gone with the rollback, there after the commit.
        skr_test_client_begin(&client);
        assert_int_equal(
            skr_inbox_admit(client.tx, NULL, "order.placed", id, &error),
            SKR_OK);
        if (round == 0)
            skr_test_client_rollback(&client);
        else
            skr_test_client_commit(&client);
    }
    skr_test_client_begin(&client);
    assert_int_equal(
        skr_inbox_admit(client.tx, NULL, "order.placed", id, &error),
        SKR_DUPLICATE);
    assert_int_equal(
        skr_inbox_admit(client.tx, "not there", "order.placed", id, &error),
        SKR_INVALID);
    skr_test_client_rollback(&client);
    skr_test_client_close(&client);
}

#define TEST(name)                                               \
    cmocka_unit_test_setup_teardown(name, consumer_world_set_up, \
                                    consumer_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_thousand_good_messages_pass_each_bad_one),
        TEST(test_a_message_that_kills_its_consumer_runs_out_of_tries),
        TEST(test_a_killer_without_retries_is_given_one_try_alone),
        TEST(test_a_handler_that_ends_the_transaction_loses_no_message),
        TEST(test_without_a_failed_table_nothing_is_lost),
        TEST(test_a_table_that_vanishes_is_made_again_where_that_is_allowed),
        TEST(test_a_locked_database_costs_no_try),
        TEST(test_a_database_that_is_away_is_waited_for),
        TEST(test_missing_tables_are_named_with_their_cure),
        TEST(test_options_that_are_missing_are_named),
        TEST(test_an_application_can_admit_messages_itself),
    };
    skr_test_limit_memory(SKR_TEST_CEILING_MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
