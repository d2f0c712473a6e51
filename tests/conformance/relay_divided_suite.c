// SPDX-License-Identifier: MIT
// Relays that divide an ordered queue among themselves by leases on partitions:
// each works its share as if it were alone, and shares change hands when relays
// come, go and die.

#include "conformance/relay_divided_world.h"

#include <stdatomic.h>
#include <time.h>

#define SLOTS_OF_OTHERS \
    "SELECT COUNT(*) FROM skirnir_lease WHERE slot < 60 AND owner <> '' "

static int
set_up_divided(void **state)
{
    return set_up_shards(state, true);
}

static bool
has_seat(void *user)
{
    const struct fixture *fixture = user;
    return skr_test_number(fixture->db,
                           "SELECT COUNT(*) FROM skirnir_lease WHERE "
                           "slot >= 60 AND owner <> ''") == 1;
}

static void
test_a_relay_alone_has_all_of_it(void **state)
{
    struct fixture *fixture = *state;
    insert_keys(fixture, 50, 0, 20);
    for (int i = 0; i < 50; i++)
        insert_on(fixture->db, "", "free:0", 0);
    run_until_empty(fixture);
    judge(fixture, 50, 20);
    assert_int_equal(fixture->fake.got_count, 1050);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    // What was its own is free when it ends.
    assert_int_equal(skr_test_number(fixture->db, SLOTS_OF_OTHERS), 0);
}

static void
test_a_partition_is_blocked_and_the_others_go_on(void **state)
{
    struct fixture *fixture = *state;
    bool is_mended = false;
    fixture->fake.result = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    run_until_empty(fixture);
    assert_true(is_blocked(fixture));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 5);
    assert_int_equal(judge_key(&fixture->fake, "k1"), 6);
}

// A relay that was killed has left leases that are not renewed.
static void
test_the_share_of_a_dead_relay_is_taken_when_its_lease_runs_out(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *dead = make_owner(fixture);
    struct skr_assignments shares;
    const struct skr_assignment share = {.shards = (UINT64_C(1) << 30) - 1,
                                         .members = 1};
    assert_int_equal(dead->shards->see(dead, fixture->db, &shares, NULL),
                     SKR_OK);
    assert_int_equal(dead->shards->take(dead, fixture->db, &share,
                                        &(struct skr_term){.lease_s = 3}, NULL),
                     SKR_OK);
    int64_t began_ms = skr_clock_ms();
    insert_keys(fixture, 40, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    int64_t took_ms = skr_clock_ms() - began_ms;
    stop(fixture);
    judge(fixture, 40, 5);
    // Not before, by a clock of whole seconds, and not long after.
    assert_in_range(took_ms, 1900, 8000);
    skr_store_free(dead);
}

static bool
has_begun(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) > 0;
}

// Two who begin at once want the same slots: the one who got none asks again
// soon, however long leases are.
static void
test_slots_that_another_has_locked_are_taken_once_they_are_free(void **state)
{
    struct fixture *fixture = *state;
    struct member member;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    fixture->options.lease_ms = 600000;
    join_in(fixture, &member);
    assert_true(eventually_even(fixture, 1));
    leave(&member);
    struct skr_test_client other = skr_test_client_open(&fixture->database);
    skr_test_client_begin(&other);
    // Not the last: InnoDB locks the row behind as well, and that is a seat.
    skr_test_client_run(&other, "UPDATE skirnir_lease SET epoch = epoch + 1 "
                                "WHERE queue_name = "
                                "'outbox/messenger_outbox' AND slot < 59");
    join_in(fixture, &member);
    assert_true(skr_test_eventually(has_seat, fixture, WAIT_MS));
    skr_test_client_commit(&other);
    assert_true(eventually_even(fixture, 1));
    skr_test_client_close(&other);
    leave(&member);
}

// As two that are started at once may do: one takes a seat, sees that the other
// has all, and goes, while that other gives it half.
static void
test_one_who_ends_empty_leaves_nothing_that_nobody_has(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *other = make_owner(fixture);
    struct skr_assignments shares;
    const struct skr_assignment seat = {.members = 2};
    assert_int_equal(other->shards->see(other, fixture->db, &shares, NULL),
                     SKR_OK);
    assert_int_equal(other->shards->take(other, fixture->db, &seat,
                                         &(struct skr_term){.lease_s = 600},
                                         NULL),
                     SKR_OK);
    insert_keys(fixture, 40, 0, 5);
    skr_fake_hold_back(&fixture->fake, true);
    fixture->options.stop_when_empty = true;
    start(fixture);
    assert_true(skr_test_eventually(has_begun, fixture, WAIT_MS));
    assert_int_equal(other->shards->give(other, fixture->db, &seat, NULL),
                     SKR_OK);
    skr_fake_hold_back(&fixture->fake, false);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_OK);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    judge(fixture, 40, 5);
    skr_store_free(other);
}

static bool
got_half(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) >= 100;
}

// Another relay has its share, as after a freeze that was longer than the
// lease: it notices, settles nothing, and joins again.
static void
test_a_relay_that_lost_its_share_begins_anew(void **state)
{
    struct fixture *fixture = *state;
    skr_fake_hold_back(&fixture->fake, true);
    fixture->options.in_flight = 1000;
    insert_keys(fixture, 100, 0, 3);
    start(fixture);
    assert_true(skr_test_eventually(got_half, fixture, WAIT_MS));
    const struct skr_value seconds = skr_bind_integer(4);
    skr_test_run_template(fixture->db,
                          "UPDATE skirnir_lease SET owner = 'another', epoch = "
                          "epoch + 1, expires_at = {now_plus} WHERE owner <> "
                          "''",
                          &seconds, 1);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    assert_non_null(strstr(fixture->trouble, "leases on shards"));
    // What was confirmed meanwhile is the other one's business.
    assert_int_equal(skr_test_number(fixture->db, ROWS), 300);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, 100, 3);
}

static bool
has_more_trouble(void *user)
{
    (void)user;
    return skr_faulty_failures() > 4;
}

// Others might have its share at the end of the lease: it stops well before,
// by its own clock, although it is not told anything.
static void
test_nothing_is_sent_on_a_lease_that_is_not_renewed(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    insert_keys(fixture, 3, 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_RUN,
        .sql = "UPDATE skirnir_lease",
        .count = 1000000,
        .code = SKR_CONFLICT,
        .remedy = SKR_TRY_AGAIN,
    });
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    insert_keys(fixture, 3, 1, 2);
    assert_true(skr_test_eventually(has_more_trouble, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 3);
    skr_faulty_set(NULL);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, 3, 2);
}

static void
test_one_who_has_the_queue_to_himself_keeps_others_out(void **state)
{
    struct fixture *fixture = *state;
    struct member divided;
    struct skr_db *holder = skr_test_connect(&fixture->database);
    const struct skr_store *table = fixture->options.table;
    char name[SKR_LOCK_NAME_SIZE];
    assert_int_equal(
        skr_store_name_lock(holder, table->name, table->queue, name, NULL),
        SKR_OK);
    assert_int_equal(skr_db_lock(holder, name, SKR_LOCK_ALONE, -1, 1000, NULL),
                     SKR_OK);
    assert_true(holder->holds_lock);
    insert_keys(fixture, 3, 0, 5);
    join_in(fixture, &divided);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 0);
    skr_db_close(holder);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&divided);
    judge(fixture, 3, 5);
}

static bool
is_active(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->actives, __ATOMIC_RELAXED) == 1;
}

static bool
has_recovered(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->recoveries, __ATOMIC_RELAXED) > 0;
}

// There are seats for so many, and as many may sit. It is said once, whatever
// becomes of the connection.
static void
test_one_who_finds_no_seat_stands_by_and_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *others = make_owner(fixture);
    struct skr_assignments shares;
    const struct skr_assignment seats = {.members =
                                             (UINT64_C(1) << SKR_MEMBERS) - 1};
    assert_int_equal(others->shards->see(others, fixture->db, &shares, NULL),
                     SKR_OK);
    assert_int_equal(others->shards->take(others, fixture->db, &seats,
                                          &(struct skr_term){.lease_s = 600},
                                          NULL),
                     SKR_OK);
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    insert_keys(fixture, 3, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_RUN,
        .sql = "SELECT slot, epoch",
        .count = 1,
        .code = SKR_UNAVAILABLE,
        .remedy = SKR_RECONNECT,
    });
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    assert_true(skr_test_eventually(has_recovered, fixture, WAIT_MS));
    assert_false(is_active(fixture));
    assert_int_equal(skr_fake_got(&fixture->fake), 0);
    assert_int_equal(others->shards->give(others, fixture->db, &seats, NULL),
                     SKR_OK);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_true(skr_test_eventually(is_active, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->standbys, 1);
    judge(fixture, 3, 5);
    skr_store_free(others);
}

static int64_t
spent_ms(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000 + spent.tv_nsec / 1000000;
}

static enum skr_publish_result
close_all(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)message;
    (void)count;
    (void)user;
    return SKR_ROUTE_UNAVAILABLE;
}

static bool
one_is_closed(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->closings, __ATOMIC_ACQUIRE) > 0;
}

// It reads nothing, so that the gate which it knows to be closed is not for it
// to try.
static void
test_one_who_has_lost_its_share_rests(void **state)
{
    enum { GATE_MS = 2000, LOOK_MS = 1000 };
    struct fixture *fixture = *state;
    fixture->fake.result = close_all;
    insert_keys(fixture, 3, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(one_is_closed, fixture, WAIT_MS));
    skr_test_run(fixture->db,
                 "UPDATE skirnir_lease SET owner = 'another', epoch = epoch + "
                 "1, expires_at = '2999-01-01 00:00:00' WHERE slot < 60 OR "
                 "slot = 99");
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    skr_clock_sleep(-1, GATE_MS);  // the gate would be tried again
    int64_t before = spent_ms();
    skr_clock_sleep(-1, LOOK_MS);
    assert_in_range(spent_ms() - before, 0, LOOK_MS / 10);
    stop(fixture);
}

// What a node of a cluster says while a transaction is open on another node:
// that it is one, and that no transaction is open.
static void
test_in_a_cluster_open_transactions_are_not_asked_for(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_dialect *dialect = skr_db_dialect(fixture->db);
    if (strcmp(dialect->product, "MariaDB or MySQL") != 0)
        return;
    const struct skr_value nothing[] = {skr_bind_integer(INT64_MAX),
                                        skr_bind_integer(0)};
    const struct skr_faulty_answer answers[] = {
        {skr_sql_word(dialect, "open_transactions_inside"), nothing, 2},
    };
    skr_store_free(fixture->table);
    fixture->table = fixture->options.table =
        make_scanned(fixture, true, SKR_CLAIM_SHARDS, 60000);
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    skr_faulty_cluster();
    skr_faulty_answer(answers, SKR_COUNT_OF(answers));
    check_youngest_is_not_passed(fixture);
    assert_int_equal(fixture->troubles, 0);
}

static void
count_written_fence(struct skr_tx real, const struct skr_statement *statement,
                    void *user)
{
    atomic_int *count = user;
    (void)real;
    if (strncmp(statement->sql, "UPDATE skirnir_lease", 20) == 0 &&
        strstr(statement->sql, "SET expires_at = CASE") != NULL)
        atomic_fetch_add(count, 1);
}

// Its nodes compare what transactions write, and not what they lock.
static void
test_in_a_cluster_the_fence_writes(void **state)
{
    struct fixture *fixture = *state;
    for (int is_cluster = 0; is_cluster <= 1; is_cluster++) {
        atomic_int written = 0;
        fixture->options.database = skr_faulty_database(fixture->database.ops);
        if (is_cluster)
            skr_faulty_cluster();
        skr_faulty_watch(count_written_fence, &written);
        insert_keys(fixture, 3, 5 * is_cluster, 5 * (is_cluster + 1));
        start(fixture);
        assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
        stop(fixture);
        skr_faulty_watch(NULL, NULL);
        assert_int_equal(written > 0, is_cluster);
    }
    assert_int_equal(fixture->troubles, 0);
}

#define DIVIDED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_divided, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        DIVIDED(test_a_relay_alone_has_all_of_it),
        DIVIDED(test_relays_come_and_go_and_the_order_holds),
        DIVIDED(test_order_holds_whatever_the_broker_does),
        DIVIDED(test_in_a_cluster_open_transactions_are_not_asked_for),
        DIVIDED(test_in_a_cluster_the_fence_writes),
        DIVIDED(test_a_partition_is_blocked_and_the_others_go_on),
        DIVIDED(
            test_slots_that_another_has_locked_are_taken_once_they_are_free),
        DIVIDED(
            test_the_share_of_a_dead_relay_is_taken_when_its_lease_runs_out),
        DIVIDED(test_one_who_ends_empty_leaves_nothing_that_nobody_has),
        DIVIDED(test_a_relay_that_lost_its_share_begins_anew),
        DIVIDED(test_nothing_is_sent_on_a_lease_that_is_not_renewed),
        DIVIDED(test_one_who_has_the_queue_to_himself_keeps_others_out),
        DIVIDED(test_one_who_finds_no_seat_stands_by_and_says_so),
        DIVIDED(test_one_who_has_lost_its_share_rests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
