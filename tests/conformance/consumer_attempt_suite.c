// SPDX-License-Identifier: MIT
// Deliveries that come again: counted before they are handled, stored once, and
// handled by one consumer at a time.
#include "retry_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static enum skr_verdict
die_at_chosen(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    if (is_chosen(user, delivery))
        _exit(42);
    return add_effect(delivery, tx, reason);
}

// The exit status of a consumer in a process of its own. What it had in hand
// the broker delivers again.
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
    skr_fake_queue_lose_holders(fake);
    return WEXITSTATUS(status);
}

static void
check_deaths(struct world *world, int32_t max_retries, int expected)
{
    world->options.max_retries = max_retries;
    int deaths = 0, status;
    while ((status = consume_in_child(world)) == 42)
        assert_in_range(++deaths, 1, 10);
    assert_int_equal(status, 0);
    assert_int_equal(deaths, expected);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(rows_of_failures(world), 1);
    assert_int_equal(retry_rows(world), 0);
    skr_test_assert_text(world->db, "SELECT body FROM messenger_messages",
                         "30");
    assert_int_equal(attempt_rows(world), 0);
}

static void
test_a_message_that_kills_its_consumer_runs_out_of_attempts(void **state)
{
    struct world *world = *state;
    world->chosen = 30;
    send(0, 100);
    check_deaths(world, 2, 3);
    assert_effects(world, 100, 30);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "not handled again after 3 deliveries"));
    free(headers);
}

static void
test_a_killer_without_retries_has_one_try_alone(void **state)
{
    struct world *world = *state;
    world->chosen = 30;
    send(0, 100);
    check_deaths(world, -1, 2);
    assert_effects(world, 100, 30);
}

static void
test_a_killer_without_an_id_runs_out_of_attempts(void **state)
{
    struct world *world = *state;
    world->chosen = 30;
    world->extras.handles_missing_ids = true;
    skr_fake_queue_add(fake, "{\"type\":\"order.placed\"}", "30", NULL);
    check_deaths(world, 2, 3);
}

// A consumer that is killed on its message's way into the failed table.
static void
die_storing(struct world *world)
{
    char path[] = "/tmp/skirnir-storing-XXXXXX";
    int file = mkstemp(path), status = 0;
    assert_true(file >= 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct skr_error error = {0};
        setenv("SKIRNIR_FAILPOINT", "consumer.storing", 1);
        setenv("SKIRNIR_FAILPOINT_FILE", path, 1);
        struct skr_consumer *consumer = open_consumer(world, NULL);
        _exit(skr_consumer_run(consumer, &error) == SKR_OK ? 0 : 1);
    }
    char byte;
    while (pread(file, &byte, 1, 0) == 0 &&
           waitpid(child, &status, WNOHANG) == 0)
        skr_clock_sleep(-1, 1);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(file);
    unlink(path);
    assert_true(WIFSIGNALED(status));
    skr_fake_queue_lose_holders(fake);
}

// Nothing but the count of its deliveries tells that the way into the failed
// table is what kills: it is counted like any other, and in the end the message
// is stored as it is.
static void
test_what_cannot_be_stored_alive_is_stored_unseen(void **state)
{
    struct world *world = *state;
    world->options.max_retries = 1;
    world->extras.failed_readable = true;
    skr_fake_queue_add(fake,
                       "{\"type\":\"order.unknown\","
                       "\"X-Message-Class\":\"App\\\\Unknown\","
                       "\"X-Message-Id\":"
                       "\"01890a5d-ac96-774b-bcce-000000000001\"}",
                       "{}", NULL);
    for (int64_t deaths = 1; deaths <= 3; deaths++) {
        die_storing(world);
        assert_int_equal(skr_test_number(world->db,
                                         "SELECT COALESCE(MAX(count), 0) "
                                         "FROM skirnir_attempt"),
                         deaths - 1);
    }
    consume(world, NULL);
    skr_test_assert_text(world->db, "SELECT queue_name FROM messenger_messages",
                         "failed.skirnir");
    skr_test_assert_text(world->db, "SELECT body FROM messenger_messages",
                         "{}");
    assert_int_equal(attempt_rows(world), 0);
}

static enum skr_verdict
note_attempt(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
             struct skr_error *reason)
{
    struct world *world = user;
    atomic_fetch_add(&world->calls, 1);
    world->last_attempt = delivery->attempt;
    return add_effect(delivery, tx, reason);
}

static void
redeliver_all(void)
{
    pthread_mutex_lock(&fake->lock);
    for (size_t i = 0; i < fake->count; i++)
        fake->items[i].redelivered = true;
    pthread_mutex_unlock(&fake->lock);
}

static void
test_what_is_handled_leaves_no_attempt_behind(void **state)
{
    struct world *world = *state;
    send(0, 5);
    redeliver_all();
    struct skr_consumer_counts counts = consume(world, note_attempt);
    assert_int_equal(counts.handled, 5);
    assert_int_equal(world->last_attempt, 2);
    assert_int_equal(attempt_rows(world), 0);
    // Nor does a duplicate.
    send(0, 5);
    redeliver_all();
    assert_int_equal(consume(world, note_attempt).duplicates, 5);
    assert_int_equal(attempt_rows(world), 0);
}

// A message that goes to several queues has its id in each of them.
static void
test_attempts_of_another_consumer_are_not_counted(void **state)
{
    struct world *world = *state;
    world->chosen = 0;
    send(0, 1);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(consume_in_child(world), 42);
    assert_int_equal(attempt_rows(world), 1);
    world->options.name = "bank";
    world->options.max_retries = 1;
    assert_int_equal(consume(world, note_attempt).handled, 1);
    assert_int_equal(world->last_attempt, 2);
    assert_int_equal(attempt_rows(world), 1);
}

static bool
has_struck_often(void *user)
{
    (void)user;
    return skr_faulty_failures() >= 5;
}

static void
test_trouble_with_the_database_is_no_attempt(void **state)
{
    struct world *world = *state;
    struct running running;
    consume(world, note_attempt);  // makes the tables
    world->options.max_retries = 1;
    world->options.database = skr_faulty_database(world->database.ops);
    static const enum skr_remedy remedies[] = {SKR_TRY_AGAIN, SKR_RECONNECT};
    for (size_t i = 0; i < SKR_COUNT_OF(remedies); i++) {
        send(i, 1);
        redeliver_all();
        skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_RUN,
                                           .sql = "INSERT INTO message_broker",
                                           .count = 30,
                                           .code = SKR_UNAVAILABLE,
                                           .remedy = remedies[i]});
        start_running(&running, world, note_attempt);
        assert_true(skr_test_eventually(has_struck_often, world, 30000));
        skr_faulty_set(NULL);
        assert_true(skr_test_eventually(has_nothing_waiting, world, 30000));
        stop_running(&running);
        assert_int_equal(world->last_attempt, 2);
        assert_int_equal(failed_rows(world), 0);
        assert_int_equal(attempt_rows(world), 0);
    }
    assert_effects(world, 2, NONE);
}

static enum skr_verdict
reject(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
       struct skr_error *reason)
{
    (void)delivery;
    (void)tx;
    struct world *world = user;
    atomic_fetch_add(&world->calls, 1);
    snprintf(reason->text, sizeof(reason->text), "not wanted");
    return SKR_REJECT;
}

static void
test_what_failed_before_its_acknowledgement_is_kept_once(void **state)
{
    struct world *world = *state;
    send(0, 1);
    lose_next_settle();
    consume(world, reject);
    assert_int_equal(world->calls, 2);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(rows_of_failures(world), 1);
    assert_int_equal(attempt_rows(world), 0);
}

// Nor what cannot be understood, or has no id.
static void
test_what_has_no_id_is_kept_once_as_well(void **state)
{
    static const char *const headers[] = {"{\"type\":\"order.placed\"}",
                                          "{\"other\":\"1\"}", "no JSON"};
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(headers); i++)
        skr_fake_queue_add(fake, headers[i], "1", NULL);
    lose_next_settle();
    consume(world, reject);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(rows_of_failures(world), SKR_COUNT_OF(headers));
    assert_int_equal(attempt_rows(world), 0);
    // What says the same and comes for the first time is another.
    skr_fake_queue_add(fake, headers[0], "1", NULL);
    consume(world, reject);
    assert_int_equal(rows_of_failures(world), SKR_COUNT_OF(headers) + 1);
}

static enum skr_verdict
retry_later(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
            struct skr_error *reason)
{
    (void)delivery;
    (void)tx;
    (void)reason;
    struct world *world = user;
    atomic_fetch_add(&world->calls, 1);
    return SKR_RETRY;
}

static void
test_what_waits_for_its_retry_does_so_once(void **state)
{
    struct world *world = *state;
    send(0, 1);
    lose_next_settle();
    consume(world, retry_later);
    assert_int_equal(world->calls, 2);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(retry_rows(world), 1);
    assert_int_equal(attempt_rows(world), 0);
}

static bool
was_called(void *user)
{
    struct world *world = user;
    return atomic_load(&world->calls) > 0;
}

// Someone has dealt with the row meanwhile: what comes again is news.
static void
test_a_mark_without_its_row_keeps_nothing_back(void **state)
{
    struct world *world = *state;
    send(0, 1);
    lose_next_settle();
    world->extras.is_over = was_called;
    world->extras.user = world;
    consume(world, reject);
    assert_int_equal(skr_fake_queue_waiting(fake), 1);
    assert_int_equal(attempt_rows(world), 1);
    skr_test_run(world->db, "DELETE FROM messenger_messages");
    world->extras.is_over = NULL;
    consume(world, reject);
    assert_int_equal(rows_of_failures(world), 1);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(attempt_rows(world), 0);
}

static void
test_one_message_may_fail_in_two_places(void **state)
{
    struct world *world = *state;
    send(0, 1);
    lose_next_settle();
    consume(world, reject);
    world->options.name = "stock";
    send(0, 1);
    lose_next_settle();
    consume(world, reject);
    assert_int_equal(failed_rows(world), 2);
}

// Whether a commit that had no answer was carried out shows only afterwards.
static void
test_an_unclear_commit_costs_and_doubles_nothing(void **state)
{
    struct world *world = *state;
    static const enum skr_faulty_call calls[] = {SKR_FAULTY_COMMIT,
                                                 SKR_FAULTY_UNCLEAR_COMMIT};
    consume(world, accept_order);  // makes the tables
    world->options.max_retries = -1;
    world->options.database = skr_faulty_database(world->database.ops);
    for (size_t i = 0; i < SKR_COUNT_OF(calls); i++) {
        // All together, and one alone.
        for (size_t size = 50; size > 0; size = size == 50 ? 1 : 0) {
            send(0, size);
            skr_faulty_set(&(struct skr_fault){.call = calls[i],
                                               .count = 1,
                                               .code = SKR_UNAVAILABLE,
                                               .remedy = SKR_RECONNECT});
            struct skr_consumer_counts counts = consume(world, accept_order);
            assert_int_equal(skr_faulty_failures(), 1);
            assert_int_equal(counts.handled, size);
            assert_int_equal(counts.duplicates, 0);
            assert_effects(world, size, NONE);
            skr_test_run(world->db, "DELETE FROM effects");
            skr_test_run(world->db, "DELETE FROM message_broker_deduplication");
        }
    }
    assert_int_equal(failed_rows(world), 0);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
}

static void
test_an_unclear_commit_of_a_failed_row_keeps_it_once(void **state)
{
    struct world *world = *state;
    consume(world, reject);
    world->options.database = skr_faulty_database(world->database.ops);
    send(0, 1);
    // The handler's transaction is rolled back: the first commit is the row's.
    skr_faulty_set(&(struct skr_fault){.call = SKR_FAULTY_UNCLEAR_COMMIT,
                                       .count = 1,
                                       .code = SKR_UNAVAILABLE,
                                       .remedy = SKR_RECONNECT});
    consume(world, reject);
    assert_int_equal(skr_faulty_failures(), 1);
    assert_int_equal(rows_of_failures(world), 1);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
}

static atomic_bool first_gives_up;

static bool
both_are_in_hand(void *user)
{
    (void)user;
    pthread_mutex_lock(&fake->lock);
    bool both = fake->items[0].holder != NULL && fake->items[1].holder != NULL;
    pthread_mutex_unlock(&fake->lock);
    return both;
}

// The first to come waits until the other has its copy, and long enough for it
// to stand before the same row.
static enum skr_verdict
handle_slowly(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    struct world *world = user;
    if (atomic_fetch_add(&world->calls, 1) == 0) {
        skr_test_eventually(both_are_in_hand, world, 10000);
        skr_clock_sleep(-1, 300);
        if (atomic_load(&first_gives_up))
            return SKR_REJECT;
    }
    return add_effect(delivery, tx, reason);
}

static void
check_same_id(struct world *world, bool gives_up)
{
    struct running running[2];
    struct skr_consumer_counts counts[2];
    atomic_store(&first_gives_up, gives_up);
    consume(world, handle_slowly);  // makes the tables
    world->options.batch = 1;
    send(0, 1);
    send(0, 1);
    for (size_t i = 0; i < 2; i++)
        start_running(&running[i], world, handle_slowly);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 30000));
    for (size_t i = 0; i < 2; i++) {
        counts[i] = skr_consumer_counts(running[i].consumer);
        stop_running(&running[i]);
    }
    assert_effects(world, 1, NONE);
    assert_int_equal(world->calls, gives_up ? 2 : 1);
    assert_int_equal(counts[0].handled + counts[1].handled, 1);
    assert_int_equal(counts[0].duplicates + counts[1].duplicates,
                     gives_up ? 0 : 1);
    assert_int_equal(counts[0].failed + counts[1].failed, gives_up ? 1 : 0);
}

static void
test_of_two_who_have_the_same_message_one_handles_it(void **state)
{
    check_same_id(*state, false);
}

static void
test_of_two_who_have_the_same_message_the_second_steps_in(void **state)
{
    check_same_id(*state, true);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_message_that_kills_its_consumer_runs_out_of_attempts),
        TEST(test_a_killer_without_retries_has_one_try_alone),
        TEST(test_a_killer_without_an_id_runs_out_of_attempts),
        TEST(test_what_cannot_be_stored_alive_is_stored_unseen),
        TEST(test_what_is_handled_leaves_no_attempt_behind),
        TEST(test_attempts_of_another_consumer_are_not_counted),
        TEST(test_trouble_with_the_database_is_no_attempt),
        TEST(test_what_failed_before_its_acknowledgement_is_kept_once),
        TEST(test_what_has_no_id_is_kept_once_as_well),
        TEST(test_what_waits_for_its_retry_does_so_once),
        TEST(test_a_mark_without_its_row_keeps_nothing_back),
        TEST(test_one_message_may_fail_in_two_places),
        TEST(test_an_unclear_commit_costs_and_doubles_nothing),
        TEST(test_an_unclear_commit_of_a_failed_row_keeps_it_once),
        TEST(test_of_two_who_have_the_same_message_one_handles_it),
        TEST(test_of_two_who_have_the_same_message_the_second_steps_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
