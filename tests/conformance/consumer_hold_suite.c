// SPDX-License-Identifier: MIT
// Trouble that is no message's fault, on a queue that drops what comes back too
// often: messages are deferred and tried again in place. Where one handler is
// in trouble, the messages of others go on.
#include "retry_world.h"

#include <unistd.h>

enum { LIMIT = 3, GOOD = 1000 };

#define BAD_ID "\"X-Message-Id\":\"01890a5d-ac96-774b-bccf-%012zu\""

static int
set_up(void **state)
{
    retry_world_set_up(state);
    struct world *world = *state;
    fake->limit = LIMIT;
    world->options.max_retries = -1;
    world->extras.stop_when_empty = false;
    return 0;
}

static void
add_sql_handler(struct world *world, const char *name, const char *table)
{
    struct skr_error error = {0};
    char text[120];
    snprintf(text, sizeof(text), "INSERT INTO %s (number) VALUES (1)", table);
    const char *const statements[] = {text};
    if (skr_consumer_handle_sql(world->consumer, name, statements, 1, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
}

static void
send_bad(size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        char headers[200];
        snprintf(headers, sizeof(headers),
                 "{\"type\":\"order.bad\"," BAD_ID "}", i);
        skr_fake_queue_add(fake, headers, "1", NULL);
    }
}

struct goal {
    struct world *world;
    const char *sql;
    int64_t value;
};

static bool
is_reached(void *user)
{
    const struct goal *goal = user;
    return skr_test_number(goal->world->db, goal->sql) == goal->value;
}

static void
await_number(struct world *world, const char *sql, int64_t value)
{
    struct goal goal = {.world = world, .sql = sql, .value = value};
    if (!skr_test_eventually(is_reached, &goal, 40000))
        fail_msg("%s is %lld", sql, (long long)skr_test_number(world->db, sql));
}

// It was tried more often than the queue would have borne.
static bool
is_held_often(void *user)
{
    struct goal *goal = user;
    return (int64_t)skr_fake_queue_holds(fake) >= goal->value;
}

static void
await_holds(size_t count)
{
    struct goal goal = {.value = (int64_t)count};
    assert_true(skr_test_eventually(is_held_often, &goal, 40000));
}

static bool
is_waiting(void *user)
{
    struct goal *goal = user;
    return (int64_t)skr_fake_queue_waiting(fake) == goal->value;
}

// The queue hears of messages after their commit.
static void
await_waiting(size_t count)
{
    struct goal goal = {.value = (int64_t)count};
    assert_true(skr_test_eventually(is_waiting, &goal, 40000));
}

static void
expect_no_harm(struct world *world)
{
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(fake->dropped, 0);
    assert_int_equal(fake->releases, 0);
    assert_int_equal(attempt_rows(world), 0);
}

static void
test_a_missing_table_of_a_handler_costs_nothing(void **state)
{
    enum { COUNT = 10 };
    struct world *world = *state;
    struct running running;
    struct skr_consumer *consumer = open_consumer(world, NULL);
    add_sql_handler(world, "order.bad", "absent");
    start_consumer(&running, consumer);
    // It was never there; and once it was, it goes away.
    for (size_t round = 0; round < 2; round++) {
        size_t holds = skr_fake_queue_holds(fake);
        send_bad(COUNT * round, COUNT);
        await_holds(holds + COUNT * (LIMIT + 2));
        assert_int_equal(skr_fake_queue_waiting(fake), COUNT);
        skr_test_run(world->db, "CREATE TABLE absent (number BIGINT)");
        await_number(world, "SELECT COUNT(*) FROM absent", COUNT);
        assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
        skr_test_run(world->db, "DROP TABLE absent");
    }
    stop_running(&running);
    expect_no_harm(world);
    assert_int_equal(failed_rows(world), 0);
    assert_int_equal(world->troubles, 2);
    assert_int_equal(world->recoveries, 2);
}

static void
test_a_process_that_does_not_start_costs_nothing(void **state)
{
    enum { COUNT = 10 };
    struct world *world = *state;
    struct running running;
    struct skr_error error = {0};
    char path[120], script[400];
    snprintf(path, sizeof(path), "%s/cure", world->database.folder);
    snprintf(script, sizeof(script),
             "test -e %s || exit 1; echo '{\"ready\":true}'; "
             "while read -r line; do n=${line#*:}; n=${n%%%%,*}; "
             "echo \"{\\\"delivery\\\":$n,\\\"verdict\\\":\\\"accept\\\"}\"; "
             "done",
             path);
    const char *const words[] = {"sh", "-c", script};
    const char *const withheld[] = {NULL};
    send_bad(0, COUNT);
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    const struct skr_handler_command command = {.words = words,
                                                .word_count = 3,
                                                .withheld = withheld,
                                                .timeout_ms = 10000};
    if (skr_consumer_handle_command(consumer, "order.bad", &command, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
    start_consumer(&running, consumer);
    await_holds(COUNT * (LIMIT + 2));
    // Others do not wait for it.
    send(0, 100);
    await_number(world, "SELECT COUNT(*) FROM effects", 100);
    await_waiting(COUNT);
    FILE *cure = fopen(path, "w");
    assert_non_null(cure);
    fclose(cure);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 40000));
    assert_int_equal(skr_consumer_counts(consumer).handled, COUNT + 100);
    stop_running(&running);
    unlink(path);
    expect_no_harm(world);
    assert_int_equal(failed_rows(world), 0);
    assert_int_equal(world->troubles, 1);
}

static enum skr_verdict
reject(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
       struct skr_error *reason)
{
    (void)delivery;
    (void)tx;
    (void)user;
    (void)reason;
    return SKR_REJECT;
}

static void
test_a_failed_table_that_refuses_costs_nothing(void **state)
{
    enum { COUNT = 10 };
    struct world *world = *state;
    struct running running;
    world->extras.stop_when_empty = true;
    consume(world, accept_order);  // makes the tables
    world->extras.auto_setup = false;
    send(0, 1);
    start_running(&running, world, reject);
    await_number(world, "SELECT COUNT(*) FROM messenger_messages", 1);
    skr_test_run(world->db, "ALTER TABLE messenger_messages RENAME TO away");
    send(1, COUNT);
    // After one second, and two.
    await_holds(COUNT * LIMIT);
    assert_int_equal(skr_fake_queue_waiting(fake), COUNT);
    skr_test_run(world->db, "ALTER TABLE away RENAME TO messenger_messages");
    assert_true(skr_test_eventually(has_nothing_waiting, world, 40000));
    stop_running(&running);
    expect_no_harm(world);
    assert_int_equal(rows_of_failures(world), COUNT + 1);
}

// A mistake does not move a backlog into the failed table: it waits, and others
// pass.
static void
test_beyond_its_limit_of_failures_a_handler_is_waited_for(void **state)
{
    enum { COUNT = 20, MOST = 3 };
    struct world *world = *state;
    struct running running;
    struct skr_error error = {0};
    world->extras.failure_limit = MOST;
    send_bad(0, COUNT);
    skr_fake_queue_add(fake, "not json", "{}", NULL);
    send(0, 100);
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    assert_int_equal(
        skr_consumer_handle(consumer, "order.bad", reject, world, &error),
        SKR_OK);
    start_consumer(&running, consumer);
    await_number(world, "SELECT COUNT(*) FROM effects", 100);
    await_waiting(COUNT - MOST);
    assert_int_equal(rows_of_failures(world), MOST + 1);
    assert_int_equal(skr_consumer_counts(consumer).failed, MOST + 1);
    assert_int_equal(skr_consumer_counts(consumer).retried, 0);
    assert_int_equal(world->troubles, 1);
    stop_running(&running);
    assert_int_equal(retry_rows(world), 0);
    assert_int_equal(fake->dropped, 0);
}

// What is not understood could wait in no row, and a queue that counts drops
// what it gets back too often.
static void
test_what_is_not_understood_fails_beyond_the_limit_too(void **state)
{
    enum { COUNT = 20, MOST = 3 };
    struct world *world = *state;
    struct running running;
    world->extras.failure_limit = MOST;
    fake->most_held = 1;
    for (size_t i = 0; i < COUNT; i++)
        skr_fake_queue_add(fake, "not json", "{}", NULL);
    send(0, 100);
    start_running(&running, world, accept_order);
    await_number(world, "SELECT COUNT(*) FROM effects", 100);
    await_waiting(0);
    stop_running(&running);
    assert_int_equal(rows_of_failures(world), COUNT);
    assert_int_equal(world->troubles, 0);
    assert_int_equal(fake->dropped, 0);
}

static enum skr_verdict
reject_every_other(const struct skr_delivery *delivery, struct skr_tx tx,
                   void *user, struct skr_error *reason)
{
    static size_t calls;
    return calls++ % 2 == 0 ? reject(delivery, tx, user, reason) : SKR_ACCEPT;
}

// A handler that works for others is not waited for.
static void
test_a_success_in_between_begins_the_count_anew(void **state)
{
    enum { COUNT = 20, MOST = 3 };
    struct world *world = *state;
    struct running running;
    struct skr_error error = {0};
    world->extras.failure_limit = MOST;
    world->options.batch = 1;
    send_bad(0, COUNT);
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    assert_int_equal(skr_consumer_handle(consumer, "order.bad",
                                         reject_every_other, world, &error),
                     SKR_OK);
    start_consumer(&running, consumer);
    await_waiting(0);
    stop_running(&running);
    assert_int_equal(rows_of_failures(world), COUNT / 2);
    assert_int_equal(world->troubles, 0);
}

static void
test_a_database_that_is_away_costs_nothing(void **state)
{
    enum { COUNT = 50 };
    struct world *world = *state;
    struct running running;
    world->extras.stop_when_empty = true;
    world->options.database = skr_faulty_database(world->database.ops);
    consume(world, accept_order);  // makes the tables
    send(0, COUNT);
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_BEGIN,
                                       .count = LIMIT + 2,
                                       .code = SKR_UNAVAILABLE,
                                       .remedy = SKR_TRY_AGAIN});
    start_running(&running, world, accept_order);
    await_number(world, "SELECT COUNT(*) FROM effects", COUNT);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    stop_running(&running);
    assert_int_equal(skr_faulty_failures(), LIMIT + 2);
    expect_no_harm(world);
    assert_effects(world, COUNT, NONE);
    assert_int_equal(world->troubles, 1);
    assert_int_equal(world->recoveries, 1);
}

static void
test_a_thousand_pass_one_whose_handler_is_in_trouble(void **state)
{
    struct world *world = *state;
    struct running running;
    send_bad(0, 1);
    send(0, GOOD);
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    add_sql_handler(world, "order.bad", "absent");
    start_consumer(&running, consumer);
    await_number(world, "SELECT COUNT(*) FROM effects", GOOD);
    await_waiting(1);
    // They went in company, but for what shared a transaction with the bad one.
    assert_in_range(atomic_load(&world->calls), GOOD, 2 * GOOD);
    assert_int_equal(world->recoveries, 0);
    skr_test_run(world->db, "CREATE TABLE absent (number BIGINT)");
    await_number(world, "SELECT COUNT(*) FROM absent", 1);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    stop_running(&running);
    expect_no_harm(world);
    assert_effects(world, GOOD, NONE);
    assert_int_equal(failed_rows(world), 0);
    assert_int_equal(world->troubles, 1);
}

// There is an end to what is deferred. More than that waits in rows, and none
// of it has spent a retry.
static void
test_more_than_can_be_held_waits_in_rows(void **state)
{
    enum { COUNT = 300, MOST = 20 };
    struct world *world = *state;
    struct running running;
    fake->most_held = MOST;
    send_bad(0, COUNT);
    send(0, 100);
    world->options.batch = 10;
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    add_sql_handler(world, "order.bad", "absent");
    start_consumer(&running, consumer);
    await_number(world, "SELECT COUNT(*) FROM effects", 100);
    assert_in_range(skr_fake_queue_waiting(fake), 1, 3 * MOST);
    assert_in_range(retry_rows(world), COUNT - 3 * MOST, COUNT - 1);
    assert_int_equal(rows_of_failures(world), 0);
    assert_int_equal(skr_consumer_counts(consumer).retried, 0);
    skr_test_run(world->db, "CREATE TABLE absent (number BIGINT)");
    make_rows_due(world);
    await_number(world, "SELECT COUNT(*) FROM absent", COUNT);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    await_number(world, "SELECT COUNT(*) FROM messenger_messages", 0);
    assert_int_equal(skr_consumer_counts(consumer).failed, 0);
    stop_running(&running);
    expect_no_harm(world);
}

static void *
cure(void *user)
{
    struct world *world = user;
    await_holds(LIMIT + 2);
    skr_test_run(world->db, "CREATE TABLE absent (number BIGINT)");
    return NULL;
}

// As it would go back to the queue, once for each run.
static void
test_a_queue_is_not_empty_while_messages_are_held(void **state)
{
    struct world *world = *state;
    pthread_t thread;
    world->extras.stop_when_empty = true;
    send_bad(0, 1);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    add_sql_handler(world, "order.bad", "absent");
    assert_int_equal(pthread_create(&thread, NULL, cure, world), 0);
    run_until_empty(consumer);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(skr_consumer_counts(consumer).handled, 1);
    skr_consumer_close(consumer);
    expect_no_harm(world);
}

// A consumer that is started again and again gives nothing back twice.
static void
test_a_stop_gives_back_what_is_held_once(void **state)
{
    struct world *world = *state;
    struct running running;
    send_bad(0, 5);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    add_sql_handler(world, "order.bad", "absent");
    start_consumer(&running, consumer);
    await_holds(20);
    stop_running(&running);
    assert_int_equal(skr_fake_queue_waiting(fake), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_null(fake->items[i].holder);
        assert_int_equal(fake->items[i].returns, 1);
    }
    consumer = open_consumer(world, NULL);
    add_sql_handler(world, "order.bad", "absent");
    start_consumer(&running, consumer);
    await_number(world, "SELECT COUNT(*) FROM messenger_messages", 5);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    stop_running(&running);
    assert_int_equal(retry_rows(world), 5);
    expect_no_harm(world);
}

// The first effect takes longer than the broker waits for its messages.
static void
delay_first_effect(struct skr_tx real, const struct skr_statement *statement,
                   void *user)
{
    static const char effect[] = "INSERT INTO effects";
    bool *is_delayed = user;
    (void)real;
    if (*is_delayed || strncmp(statement->sql, effect, strlen(effect)) != 0)
        return;
    *is_delayed = true;
    skr_clock_sleep(-1, (uint32_t)fake->hold_ms + 50);
}

static void
test_what_was_recorded_and_given_back_late_is_handled_later(void **state)
{
    enum { COUNT = 20 };
    struct world *world = *state;
    bool is_delayed = false;
    fake->hold_ms = 500;
    world->extras.stop_when_empty = true;
    world->options.batch = COUNT;
    world->options.database = skr_faulty_database(world->database.ops);
    send_bad(0, COUNT);
    struct skr_consumer *consumer = open_consumer(world, NULL);
    add_sql_handler(world, "order.bad", "effects");
    skr_faulty_watch(delay_first_effect, &is_delayed);
    run_until_empty(consumer);
    skr_faulty_watch(NULL, NULL);
    assert_true(is_delayed);
    assert_true(skr_fake_queue_releases(fake) >= COUNT - 1);
    struct skr_consumer_counts counts = skr_consumer_counts(consumer);
    skr_consumer_close(consumer);
    assert_int_equal(counts.handled, COUNT);
    assert_int_equal(counts.duplicates, 0);
    assert_int_equal(effect_rows(world), COUNT);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(failed_rows(world), 0);
}

#undef TEST
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, set_up, retry_world_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_missing_table_of_a_handler_costs_nothing),
        TEST(test_a_process_that_does_not_start_costs_nothing),
        TEST(test_a_failed_table_that_refuses_costs_nothing),
        TEST(test_beyond_its_limit_of_failures_a_handler_is_waited_for),
        TEST(test_what_is_not_understood_fails_beyond_the_limit_too),
        TEST(test_a_success_in_between_begins_the_count_anew),
        TEST(test_a_database_that_is_away_costs_nothing),
        TEST(test_a_thousand_pass_one_whose_handler_is_in_trouble),
        TEST(test_more_than_can_be_held_waits_in_rows),
        TEST(test_a_queue_is_not_empty_while_messages_are_held),
        TEST(test_a_stop_gives_back_what_is_held_once),
        TEST(test_what_was_recorded_and_given_back_late_is_handled_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
