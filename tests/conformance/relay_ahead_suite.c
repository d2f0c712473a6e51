// SPDX-License-Identifier: MIT
// Rows that are claimed while the window is full, to be sent when it has room.

#include "conformance/relay_world.h"
#include "support/faulty_database.h"

#define LEASED ROWS " WHERE delivered_at IS NOT NULL"

enum { WINDOW = 100, HALF = WINDOW / 2, LEASE_MS = 3000 };

static int
set_up_leases(void **state)
{
    set_up_with_tables(state);
    struct fixture *fixture = *state;
    fixture->options.claim = SKR_CLAIM_LEASED;
    fixture->options.in_flight = WINDOW;
    fixture->options.lease_ms = LEASE_MS;
    fixture->options.stop_timeout_ms = 2000;
    skr_fake_hold_back(&fixture->fake, true);
    return 0;
}

static bool
has_claimed_ahead(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, LEASED) == WINDOW + HALF;
}

// A window full of messages without an answer, and half as many that wait.
static void
claim_ahead(struct fixture *fixture)
{
    start(fixture);
    assert_true(skr_test_eventually(has_claimed_ahead, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), WINDOW);
}

// Who stops gives them back: no other has to wait for its leases.
static void
test_none_is_sent_before_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 3 * WINDOW);
    claim_ahead(fixture);
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, WINDOW);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 3 * WINDOW);
    assert_int_equal(
        skr_test_number(fixture->db, LEASED " AND body LIKE 'm1__'"), 0);
}

static void
test_all_go_when_there_is(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 3 * WINDOW);
    claim_ahead(fixture);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_in_order(&fixture->fake, 3 * WINDOW);
    assert_in_range(fixture->fake.most_unanswered, 1, WINDOW);
}

static bool
is_full_but_for_one(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == WINDOW;
}

static void
test_a_window_that_is_odd_is_used(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = WINDOW + 1;
    insert(fixture, 0, 3 * WINDOW);
    start(fixture);
    assert_true(skr_test_eventually(is_full_but_for_one, fixture, WAIT_MS));
    stop(fixture);
}

// They have not been tried: a limit on failures is not to be passed by them.
static void
test_what_cannot_be_understood_goes_back_too(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.failure_limit = 10;
    insert(fixture, 0, WINDOW);
    for (int i = 0; i < WINDOW; i++)
        insert_with_headers(fixture, "no JSON", "bad");
    claim_ahead(fixture);
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 2 * WINDOW);
}

struct renewal {
    struct fixture *fixture;
    char *before;
};

static char *
oldest_lease(struct fixture *fixture)
{
    return skr_test_text(fixture->db,
                         "SELECT MIN(delivered_at) FROM messenger_outbox");
}

static bool
is_renewed(void *user)
{
    struct renewal *renewal = user;
    char *now = oldest_lease(renewal->fixture);
    bool is_other = strcmp(now, renewal->before) != 0;
    free(now);
    return is_other;
}

static void
wait_for_renewal(struct fixture *fixture)
{
    struct renewal renewal = {fixture, oldest_lease(fixture)};
    assert_true(skr_test_eventually(is_renewed, &renewal, WAIT_MS));
    free(renewal.before);
}

// Another had them while we were away, and has sent them.
static void
test_what_is_lost_is_not_sent(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, WINDOW + HALF);
    claim_ahead(fixture);
    skr_test_run(fixture->db, "DELETE FROM messenger_outbox WHERE body LIKE "
                              "'m1__'");
    // By the second, the first is over for every batch.
    wait_for_renewal(fixture);
    wait_for_renewal(fixture);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, WINDOW);
}

// It is not asked for again and again while it cannot be had.
static void
test_a_row_that_travels_alone_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    char large[7000];
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    fixture->options.in_flight_bytes = 10000;
    insert(fixture, 0, WINDOW);
    for (int i = 0; i < 3; i++)
        insert_with_headers(fixture, "{\"type\":\"order.placed\"}", large);
    start(fixture);
    assert_true(skr_test_eventually(is_full_but_for_one, fixture, WAIT_MS));
    wait_for_renewal(fixture);
    size_t runs = skr_faulty_runs();
    wait_for_renewal(fixture);
    assert_in_range(skr_faulty_runs() - runs, 1, 25);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, WINDOW + 3);
}

#define CASE(test) \
    cmocka_unit_test_setup_teardown(test, set_up_leases, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_none_is_sent_before_there_is_room),
        CASE(test_all_go_when_there_is),
        CASE(test_a_window_that_is_odd_is_used),
        CASE(test_what_cannot_be_understood_goes_back_too),
        CASE(test_what_is_lost_is_not_sent),
        CASE(test_a_row_that_travels_alone_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
