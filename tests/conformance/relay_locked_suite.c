// SPDX-License-Identifier: MIT
// Relays that divide an ordered queue and live by locks of the database: what
// one had who is gone is taken at once.

#include "conformance/relay_divided_world.h"

static int
set_up_locked(void **state)
{
    return set_up_by(state, SKR_CLAIM_LOCKED);
}

static bool
some_are_through(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) < 200;
}

// His leases would last for ten minutes.
static void
test_the_share_of_one_who_lived_by_a_lock_is_taken_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_table *other = make_owner(fixture, SKR_CLAIM_LOCKED);
    struct skr_db *session = skr_test_connect(&fixture->database);
    struct skr_shares shares;
    bool is_alive = false;
    const struct skr_share share = {.slots = (UINT64_C(1) << 30) - 1,
                                    .seats = 1};
    assert_int_equal(other->ops->live(other, session, &is_alive, NULL), SKR_OK);
    assert_true(is_alive);
    assert_int_equal(other->ops->see_shares(other, session, &shares, NULL),
                     SKR_OK);
    assert_int_equal(other->ops->take_share(other, session, &share, 600, NULL),
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
    skr_table_free(other);
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
    bool is_alive = false;
    assert_int_equal(
        fixture->table->ops->live(fixture->table, earlier, &is_alive, NULL),
        SKR_OK);
    assert_true(is_alive);
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
    join_by(fixture, &leasing, SKR_CLAIM_SLOTS);
    insert_keys(fixture, 40, 0, 20);
    assert_true(eventually_even(fixture, 1));
    join_by(fixture, &locking, SKR_CLAIM_LOCKED);
    insert_keys(fixture, 40, 20, 40);
    assert_true(eventually_even(fixture, 2));
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&leasing);
    insert_keys(fixture, 40, 40, 50);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&locking);
    judge(fixture, 40, 50);
    assert_int_equal(fixture->fake.got_count, 40 * 50);
}

// As when an outbox becomes an ordered one, relay by relay.
static void
test_relays_that_divide_and_relays_that_lock_rows_do_not_mix(void **state)
{
    struct fixture *fixture = *state;
    bool is_mended = false;
    struct member ordered, plain;
    fixture->fake.fate = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    join_by(fixture, &ordered, SKR_CLAIM_LOCKED);
    assert_true(skr_test_eventually(is_blocked, fixture, WAIT_MS));
    join_with(fixture, &plain, make_messenger(fixture, false, SKR_CLAIM_LOCKED),
              SKR_CLAIM_LOCKED);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    leave(&plain);
    leave(&ordered);
    // Nobody has sent what is behind the head.
    assert_int_equal(judge_key(&fixture->fake, "k1"), 6);
}

#define LOCKED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_locked, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOCKED(test_relays_come_and_go_and_the_order_holds),
        LOCKED(test_order_holds_whatever_the_broker_does),
        LOCKED(test_the_share_of_one_who_lived_by_a_lock_is_taken_at_once),
        LOCKED(test_a_relay_that_lost_its_session_begins_anew),
        LOCKED(test_a_relay_goes_on_once_its_earlier_session_has_ended),
        LOCKED(test_relays_that_live_by_locks_and_by_leases_divide_a_queue),
        LOCKED(test_relays_that_divide_and_relays_that_lock_rows_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
