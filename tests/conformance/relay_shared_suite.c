// SPDX-License-Identifier: MIT
// Several relays on one queue: by leases on rows, and beside one that wants it
// for itself.

#include "conformance/relay_world.h"

enum { RELAYS = 3 };

struct crowd {
    struct skr_relay *relays[RELAYS];
    pthread_t threads[RELAYS];
};

static void *
run_relay(void *user)
{
    struct skr_error error = {0};
    if (skr_relay_run(user, &error) != SKR_STOPPED)
        fail_msg("%s", error.text);
    return NULL;
}

static void
start_relays(struct fixture *fixture, struct crowd *crowd)
{
    struct skr_error error = {0};
    for (size_t i = 0; i < RELAYS; i++) {
        if (skr_relay_make(&fixture->options, &crowd->relays[i], &error) !=
            SKR_OK)
            fail_msg("%s", error.text);
        pthread_create(&crowd->threads[i], NULL, run_relay, crowd->relays[i]);
    }
}

static void
stop_relays(struct crowd *crowd)
{
    for (size_t i = 0; i < RELAYS; i++)
        skr_relay_stop(crowd->relays[i]);
    for (size_t i = 0; i < RELAYS; i++) {
        pthread_join(crowd->threads[i], NULL);
        skr_relay_free(crowd->relays[i]);
    }
}

static void
assert_each_once(const struct skr_fake *fake, int count)
{
    int *seen = calloc((size_t)count, sizeof(int));
    for (size_t i = 0; i < fake->got_count; i++)
        seen[atoi(fake->got[i].body + 1)]++;
    for (int i = 0; i < count; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void
test_relays_share_a_queue_by_leases(void **state)
{
    struct fixture *fixture = *state;
    struct crowd crowd;
    fixture->options.claim = SKR_CLAIM_LEASED;
    fixture->options.in_flight = 100;
    insert(fixture, 0, 2000);
    start_relays(fixture, &crowd);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    insert(fixture, 2000, 4000);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop_relays(&crowd);
    assert_each_once(&fixture->fake, 4000);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static bool
second_stands_by(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->standbys, __ATOMIC_RELAXED) > 0;
}

static void
keep_apart(struct fixture *fixture, enum skr_claim first, enum skr_claim second)
{
    struct skr_relay *other = NULL;
    pthread_t thread;
    fixture->options.claim = first;
    start(fixture);
    insert(fixture, 0, 10);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    fixture->options.claim = second;
    assert_int_equal(skr_relay_make(&fixture->options, &other, NULL), SKR_OK);
    pthread_create(&thread, NULL, run_relay, other);
    assert_true(skr_test_eventually(second_stands_by, fixture, WAIT_MS));
    stop(fixture);
    insert(fixture, 10, 20);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    skr_relay_stop(other);
    pthread_join(thread, NULL);
    skr_relay_free(other);
    assert_each_once(&fixture->fake, 20);
}

static void
test_a_shared_relay_waits_for_an_exclusive_one(void **state)
{
    keep_apart(*state, SKR_CLAIM_NONE, SKR_CLAIM_LEASED);
}

static void
test_an_exclusive_relay_waits_for_a_shared_one(void **state)
{
    keep_apart(*state, SKR_CLAIM_LEASED, SKR_CLAIM_NONE);
}

static bool
broker_has_some(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) >= 50;
}

// A lease of 3 seconds, and a broker that takes longer.
static void
test_leases_are_kept_while_the_broker_takes_its_time(void **state)
{
    struct fixture *fixture = *state;
    struct crowd crowd;
    fixture->options.claim = SKR_CLAIM_LEASED;
    fixture->options.lease_ms = 3000;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 50);
    start_relays(fixture, &crowd);
    assert_true(skr_test_eventually(broker_has_some, fixture, WAIT_MS));
    int64_t end = skr_clock_ms() + 7000;
    while (skr_clock_ms() < end) {
        assert_int_equal(skr_fake_got(&fixture->fake), 50);
        skr_clock_sleep(-1, 50);
    }
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop_relays(&crowd);
    assert_each_once(&fixture->fake, 50);
}

static enum skr_publish_result
refuse_m5_for_good(const struct skr_fake_message *message, size_t count,
                   void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->body, "m5") == 0 ? SKR_REFUSED_FOR_GOOD
           : strcmp(message->body, "m7") == 0 && count == 1
               ? SKR_REFUSED_FOR_NOW
               : SKR_CONFIRMED;
}

static void
test_leased_rows_are_retried_and_fail_as_others_do(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_for_good;
    fixture->options.claim = SKR_CLAIM_LEASED;
    insert(fixture, 0, 100);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    assert_int_equal(fixture->fake.confirmed, 99);
    assert_int_equal(fixture->fake.got_count, 101);
}

// What is left behind by a relay that died, beside what is free.
static void
test_nothing_is_left_when_it_ends_empty(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.claim = SKR_CLAIM_LEASED;
    fixture->options.in_flight = 100;
    insert(fixture, 0, 1000);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = "
                              "'2020-01-01 00:00:00' WHERE body LIKE 'm_'");
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    insert(fixture, 1000, 2000);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = "
                              "'2020-01-01 00:00:00'");
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_each_once(&fixture->fake, 2000);
}

static bool
said_not_alone(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->not_alone, __ATOMIC_RELAXED) > 0;
}

static void
test_an_exclusive_relay_notices_another_worker(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 1);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET delivered_at = {now}",
                          NULL, 0);
    start(fixture);
    assert_true(skr_test_eventually(said_not_alone, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TABLES(test_relays_share_a_queue_by_leases),
        WITH_TABLES(test_a_shared_relay_waits_for_an_exclusive_one),
        WITH_TABLES(test_an_exclusive_relay_waits_for_a_shared_one),
        WITH_TABLES(test_leases_are_kept_while_the_broker_takes_its_time),
        WITH_TABLES(test_leased_rows_are_retried_and_fail_as_others_do),
        WITH_TABLES(test_nothing_is_left_when_it_ends_empty),
        WITH_TABLES(test_an_exclusive_relay_notices_another_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
