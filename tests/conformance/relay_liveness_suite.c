// SPDX-License-Identifier: MIT
// Relays that divide an ordered queue where sessions hold locks: the share of a
// relay that is gone is taken at once. Where no lock can be relied on they live
// by their leases.

#include "conformance/relay_divided_world.h"

static int
set_up_locked(void **state)
{
    return set_up_shards(state, true);
}

static int
set_up_leased(void **state)
{
    set_up_shards(state, true);
    struct fixture *fixture = *state;
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    skr_faulty_refuse_locks();
    return 0;
}

#define OWNERS "SELECT COUNT(*) FROM skirnir_lease WHERE owner "

static bool
some_are_through(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) < 200;
}

// Its leases would last for ten minutes.
static void
test_the_share_of_one_who_lived_by_a_lock_is_taken_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_owner(fixture);
    struct skr_db *session = skr_test_connect(&fixture->database);
    struct skr_assignments shares;
    enum skr_liveness liveness = SKR_LIVES_ELSEWHERE;
    const struct skr_term term = {.lease_s = 600, .by_lock = true};
    const struct skr_assignment share = {.shards = (UINT64_C(1) << 30) - 1,
                                         .members = 1};
    assert_int_equal(other->shards->live(other, session, &liveness, NULL),
                     SKR_OK);
    assert_int_equal(liveness, SKR_LIVES_BY_LOCK);
    assert_int_equal(other->shards->see(other, session, &shares, NULL), SKR_OK);
    assert_int_equal(other->shards->take(other, session, &share, &term, NULL),
                     SKR_OK);
    start(fixture);
    assert_true(eventually_even(fixture, 2));
    insert_keys(fixture, 40, 0, 5);
    assert_true(skr_test_eventually(some_are_through, fixture, WAIT_MS));
    assert_int_not_equal(skr_test_number(fixture->db, ROWS), 0);
    skr_db_close(session);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_true(eventually_even(fixture, 1));
    stop(fixture);
    judge(fixture, 40, 5);
    skr_store_free(other);
}

// Others may have its share by the time that it is back.
static void
test_a_relay_that_lost_its_session_begins_anew(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    join_in(fixture, &members[0]);
    join_in(fixture, &members[1]);
    insert_keys(fixture, 40, 0, 20);
    assert_true(eventually_even(fixture, 2));
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_RUN,
        .sql = "SELECT slot, epoch",
        .count = 3,
        .code = SKR_UNAVAILABLE,
        .remedy = SKR_RECONNECT,
    });
    insert_keys(fixture, 40, 20, 40);
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_true(eventually_even(fixture, 2));
    leave(&members[0]);
    leave(&members[1]);
    judge(fixture, 40, 40);
}

// As when the server has not noticed yet that a connection is lost: the relay
// waits for that, and not for longer.
static void
test_a_relay_goes_on_once_its_earlier_session_has_ended(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *earlier = skr_test_connect(&fixture->database);
    enum skr_liveness liveness = SKR_LIVES_ELSEWHERE;
    assert_int_equal(
        fixture->table->shards->live(fixture->table, earlier, &liveness, NULL),
        SKR_OK);
    assert_int_equal(liveness, SKR_LIVES_BY_LOCK);
    insert_keys(fixture, 10, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 50);
    skr_db_close(earlier);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, 10, 5);
    assert_int_equal(fixture->troubles, 0);
}

static void
test_relays_that_live_by_locks_and_by_leases_divide_a_queue(void **state)
{
    struct fixture *fixture = *state;
    struct member leasing, locking;
    join_in(fixture, &leasing);
    insert_keys(fixture, 40, 0, 20);
    assert_true(eventually_even(fixture, 1));
    assert_int_equal(skr_test_number(fixture->db, OWNERS "LIKE 'l-%'"), 0);
    fixture->options.database = fixture->database.ops;
    join_in(fixture, &locking);
    insert_keys(fixture, 40, 20, 40);
    assert_true(eventually_even(fixture, 2));
    // Half of the shards, and a seat each.
    assert_int_equal(skr_test_number(fixture->db, OWNERS "LIKE 'l-%'"),
                     SKR_SHARDS / 2 + 1);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&leasing);
    insert_keys(fixture, 40, 40, 50);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&locking);
    judge(fixture, 40, 50);
    assert_int_equal(fixture->fake.got_count, 40 * 50);
}

// A session that could hold locks, and the next one cannot: what it had left is
// renewed under the name that leases alone keep.
static void
test_a_relay_that_can_hold_no_lock_any_more_lives_by_its_leases(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_store *table = fixture->table;
    struct skr_assignments shares;
    const struct skr_assignment share = {.shards = 7, .members = 1};
    const struct skr_term term = {.lease_s = 600, .by_lock = true};
    assert_int_equal(table->shards->see(table, fixture->db, &shares, NULL),
                     SKR_OK);
    assert_int_equal(
        table->shards->take(table, fixture->db, &share, &term, NULL), SKR_OK);
    assert_int_equal(skr_test_number(fixture->db, OWNERS "LIKE 'l-%'"), 4);
    insert_keys(fixture, 10, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, OWNERS "LIKE 'l-%'"), 0);
    assert_int_equal(skr_test_number(fixture->db, OWNERS "<> ''"),
                     SKR_SHARDS + 1);
    stop(fixture);
    judge(fixture, 10, 5);
    assert_int_equal(fixture->fake.got_count, 50);
}

// As when an outbox becomes an ordered one, relay by relay.
static void
do_not_mix(struct fixture *fixture, enum skr_claim claim)
{
    bool is_mended = false;
    struct member ordered, plain;
    fixture->fake.result = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    join_in(fixture, &ordered);
    assert_true(skr_test_eventually(is_blocked, fixture, WAIT_MS));
    join_with(fixture, &plain, make_messenger(fixture, false, claim), claim);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    leave(&plain);
    leave(&ordered);
    // What is behind the head was not sent.
    assert_int_equal(judge_key(&fixture->fake, "k1"), 6);
}

static void
test_relays_that_divide_and_relays_that_lease_rows_do_not_mix(void **state)
{
    do_not_mix(*state, SKR_CLAIM_LEASED);
}

static void
test_relays_with_and_without_an_order_do_not_mix(void **state)
{
    do_not_mix(*state, SKR_CLAIM_SHARDS);
}

#define LOCKED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_locked, tear_down)
#define LEASED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_leased, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOCKED(test_relays_come_and_go_and_the_order_holds),
        LOCKED(test_order_holds_whatever_the_broker_does),
        LOCKED(test_the_share_of_one_who_lived_by_a_lock_is_taken_at_once),
        LOCKED(test_a_relay_that_lost_its_session_begins_anew),
        LOCKED(test_a_relay_goes_on_once_its_earlier_session_has_ended),
        LEASED(test_relays_come_and_go_and_the_order_holds),
        LEASED(test_order_holds_whatever_the_broker_does),
        LEASED(test_relays_that_live_by_locks_and_by_leases_divide_a_queue),
        LEASED(test_a_relay_that_can_hold_no_lock_any_more_lives_by_its_leases),
        LOCKED(test_relays_that_divide_and_relays_that_lease_rows_do_not_mix),
        LOCKED(test_relays_with_and_without_an_order_do_not_mix),
        LEASED(test_relays_with_and_without_an_order_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
