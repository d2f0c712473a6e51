// SPDX-License-Identifier: MIT
// Rows that the database refuses to change: they hold up no other, and what was
// published is not sent again by this process.
#include "relay_ordered_world.h"

#define BAD "OLD.body LIKE 'bad%'"
#define GOOD_ROWS ROWS " WHERE body NOT LIKE 'bad%'"
#define BAD_ROWS ROWS " WHERE body LIKE 'bad%'"
#define HEADERS "{\"type\":\"order.placed\"}"
// A column that everything but the least of a retry writes.
#define BAD_HEADERS BAD " AND NEW.headers <> OLD.headers"

enum { GOOD = 1000, STOP_MS = 3000 };

static void
insert_bad(struct fixture *fixture, const char *key, int count)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < count; i++)
        if (key == NULL)
            insert_with_headers(fixture, HEADERS, "bad");
        else
            insert_on(fixture->db, key, "bad", 0);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static size_t
count_bad(struct fixture *fixture)
{
    size_t count = 0;
    pthread_mutex_lock(&fixture->fake.lock);
    for (size_t i = 0; i < fixture->fake.got_count; i++)
        count += strcmp(fixture->fake.got[i].body, "bad") == 0;
    pthread_mutex_unlock(&fixture->fake.lock);
    return count;
}

static bool
good_ones_are_gone(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, GOOD_ROWS) == 0;
}

static bool
bad_ones_are_gone(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, BAD_ROWS) == 0;
}

static bool
bad_one_is_done(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, BAD_ROWS
                           " AND delivered_at > '9999-12-31 00:00:00'") == 1;
}

static bool
has_parked(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->parked, __ATOMIC_RELAXED) > 0;
}

static bool
has_blocked(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->blocked, __ATOMIC_RELAXED) > 0;
}

// While the relay runs.
static int
judge_now(struct fixture *fixture, const char *key)
{
    pthread_mutex_lock(&fixture->fake.lock);
    int count = judge_key(&fixture->fake, key);
    pthread_mutex_unlock(&fixture->fake.lock);
    return count;
}

static void
assert_eventually(struct fixture *fixture, bool (*is_so)(void *user))
{
    if (skr_test_eventually(is_so, fixture, WAIT_MS))
        return;
    fail_msg("%lld good rows and %lld bad ones are left, %zu messages sent",
             (long long)skr_test_number(fixture->db, GOOD_ROWS),
             (long long)skr_test_number(fixture->db, BAD_ROWS),
             skr_fake_got(&fixture->fake));
}

static void
stop_quickly(struct fixture *fixture)
{
    int64_t began_ms = skr_clock_ms();
    stop(fixture);
    assert_true(skr_clock_ms() - began_ms < STOP_MS);
}

static enum skr_fate
refuse_bad(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->body, "bad") == 0 ? SKR_REFUSED_FOR_GOOD
                                             : SKR_CONFIRMED;
}

static enum skr_fate
refuse_bad_once(const struct skr_fake_message *message, size_t count,
                void *user)
{
    (void)user;
    return strcmp(message->body, "bad") == 0 && count == 1 ? SKR_REFUSED_ONCE
                                                           : SKR_CONFIRMED;
}

// ---------------------------------------------------------- what was published

static void
test_a_published_row_that_cannot_be_deleted_is_marked_as_done(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, 0, 10);
    insert_bad(fixture, NULL, 1);
    insert(fixture, 10, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    assert_eventually(fixture, bad_one_is_done);
    stop_quickly(fixture);
    assert_int_equal(fixture->stays, 1);
    assert_int_equal(fixture->parked, 0);
    assert_int_equal(fixture->settle_troubles, 0);
    // Whoever comes next knows as well that it is done.
    insert(fixture, GOOD, GOOD + 1);
    run_until_empty(fixture);
    assert_int_equal(skr_fake_got(&fixture->fake), GOOD + 2);
    assert_int_equal(count_bad(fixture), 1);
}

// More than are in flight at once, all in a row.
static void
test_published_rows_that_cannot_be_changed_are_parked(void **state)
{
    enum { PARKED = 1000 };
    struct fixture *fixture = *state;
    fixture->options.in_flight = 200;
    insert_bad(fixture, NULL, PARKED);
    insert(fixture, 0, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    // Neither a late row nor a sweep brings them back.
    insert(fixture, GOOD, GOOD + 1);
    assert_eventually(fixture, good_ones_are_gone);
    assert_int_equal(skr_test_number(fixture->db, BAD_ROWS), PARKED);
    assert_int_equal(fixture->settle_troubles, 0);
    assert_true(fixture->parked > 0);
    skr_test_allow(fixture->db, "UPDATE");
    skr_test_allow(fixture->db, "DELETE");
    assert_eventually(fixture, bad_ones_are_gone);
    stop_quickly(fixture);
    assert_true(fixture->unparked > 0);
    assert_int_equal(count_bad(fixture), PARKED);
    assert_int_equal(skr_fake_got(&fixture->fake), PARKED + GOOD + 1);
}

// A row that is larger than the window still travels alone beside them.
static void
test_parked_rows_do_not_count_as_in_flight(void **state)
{
    struct fixture *fixture = *state;
    char large[3000];
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    fixture->options.in_flight_bytes = 1000;
    insert_bad(fixture, NULL, 1);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, has_parked);
    insert_with_headers(fixture, HEADERS, large);
    insert(fixture, 0, 10);
    assert_eventually(fixture, good_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(count_bad(fixture), 1);
}

static void
test_an_end_with_parked_rows_is_no_empty_queue(void **state)
{
    struct fixture *fixture = *state;
    insert_bad(fixture, NULL, 2);
    insert(fixture, 0, 10);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    fixture->options.stop_when_empty = true;
    fixture->options.park_ms = 60000;
    start(fixture);
    join(fixture);
    assert_int_equal(fixture->ended_with, SKR_REFUSED);
    assert_int_equal(skr_fake_got(&fixture->fake), 12);
    assert_int_equal(fixture->parked, 2);
}

// What refuses every row refuses none in particular.
static void
test_a_table_that_cannot_be_written_parks_nothing(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.auto_setup = false;
    fixture->options.in_flight = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 300);
    start(fixture);
    while (skr_fake_got(&fixture->fake) < 100)
        skr_clock_sleep(-1, 2);
    skr_test_run(fixture->db, "ALTER TABLE messenger_outbox RENAME TO away");
    skr_fake_hold_back(&fixture->fake, false);
    while (__atomic_load_n(&fixture->settle_troubles, __ATOMIC_RELAXED) == 0)
        skr_clock_sleep(-1, 2);
    skr_test_run(fixture->db, "ALTER TABLE away RENAME TO messenger_outbox");
    assert_eventually(fixture, good_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(fixture->parked + fixture->stays, 0);
}

// ------------------------------------------------------------ what was refused

static void
test_a_dead_letter_that_cannot_be_removed_is_told_once(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad;
    insert_bad(fixture, NULL, 1);
    insert(fixture, 0, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    // It is tried again now and then.
    while (count_bad(fixture) < 3)
        skr_clock_sleep(-1, 2);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    assert_int_equal(fixture->parked, 1);
    skr_test_allow(fixture->db, "DELETE");
    assert_eventually(fixture, bad_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    assert_int_equal(fixture->settle_troubles, 0);
}

// The time to wait for is written where nothing else can be.
static void
test_a_retry_whose_headers_cannot_be_written_waits_all_the_same(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad_once;
    insert(fixture, 0, 10);
    insert_bad(fixture, NULL, 1);
    insert(fixture, 10, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD_HEADERS);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    assert_eventually(fixture, bad_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(count_bad(fixture), 2);
    assert_int_equal(fixture->stays, 1);
    assert_int_equal(fixture->parked, 0);
}

static void
test_a_retry_that_cannot_be_written_holds_up_nothing(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad_once;
    insert(fixture, 0, 10);
    insert_bad(fixture, NULL, 1);
    insert(fixture, 10, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    assert_eventually(fixture, bad_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(count_bad(fixture), 2);
    assert_int_equal(fixture->parked, 1);
}

// -------------------------------------------------------------- ordered queues

static int
set_up_ordered_tables(void **state)
{
    set_up_as(state, true);
    struct fixture *fixture = *state;
    fixture->options.blocks_partitions = true;
    assert_int_equal(skr_table_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    return 0;
}

// More of them than are read of a partition at once.
static void
test_a_partition_goes_on_behind_published_rows_that_stay(void **state)
{
    enum { PARKED = 150 };
    struct fixture *fixture = *state;
    insert_bad(fixture, "k0", PARKED);
    insert_keys(fixture, 2, 0, GOOD / 2);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    // And whoever reads the partition anew.
    insert_keyed(fixture, "k0", GOOD / 2);
    assert_eventually(fixture, good_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), GOOD / 2 + 1);
    assert_int_equal(judge_key(&fixture->fake, "k1"), GOOD / 2);
    assert_int_equal(count_bad(fixture), PARKED);
}

static void
test_a_head_that_cannot_be_blocked_holds_back_its_partition_alone(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad;
    insert_bad(fixture, "k9", 1);
    insert_keyed(fixture, "k9", 0);
    insert_keys(fixture, 4, 0, GOOD / 4);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    // Sweeps and its own time bring it back, and it is told of once.
    while (count_bad(fixture) < 3)
        skr_clock_sleep(-1, 2);
    insert_keys(fixture, 4, GOOD / 4, GOOD / 4 + 1);
    while (judge_now(fixture, "k3") <= GOOD / 4)
        skr_clock_sleep(-1, 2);
    assert_int_equal(judge_now(fixture, "k9"), 0);
    assert_int_equal(fixture->parked, 1);
    assert_int_equal(fixture->settle_troubles, 0);
    skr_test_allow(fixture->db, "UPDATE");
    assert_eventually(fixture, has_blocked);
    stop_quickly(fixture);
    assert_int_equal(skr_test_number(fixture->db,
                                     BAD_ROWS " AND available_at = "
                                              "'9999-12-31 23:59:59'"),
                     1);
    // Not in a loop: a few times a second at the most.
    assert_true(count_bad(fixture) < 40);
}

static void
test_a_head_whose_headers_cannot_be_written_is_blocked(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad;
    insert_bad(fixture, "k9", 1);
    insert_keyed(fixture, "k9", 0);
    insert_keys(fixture, 4, 0, GOOD / 4);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD_HEADERS);
    start(fixture);
    assert_eventually(fixture, has_blocked);
    while (skr_test_number(fixture->db, ROWS) > 2)
        skr_clock_sleep(-1, 2);
    stop_quickly(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k9"), 0);
    assert_int_equal(count_bad(fixture), 1);
    assert_int_equal(skr_test_number(fixture->db,
                                     BAD_ROWS " AND available_at = "
                                              "'9999-12-31 23:59:59'"),
                     1);
}

// on_failure: skip. The partition waits for a head that cannot move away.
static void
test_a_dead_letter_that_stays_holds_back_its_partition(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.fate = refuse_bad;
    fixture->options.blocks_partitions = false;
    insert_bad(fixture, "k9", 1);
    insert_keyed(fixture, "k9", 0);
    insert_keys(fixture, 4, 0, GOOD / 4);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    start(fixture);
    while (skr_test_number(fixture->db, ROWS) > 2 || count_bad(fixture) < 3)
        skr_clock_sleep(-1, 2);
    assert_int_equal(judge_now(fixture, "k9"), 0);
    assert_int_equal(fixture->parked, 1);
    assert_true(count_bad(fixture) < 40);
    skr_test_allow(fixture->db, "DELETE");
    assert_eventually(fixture, good_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k9"), 1);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
}

#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered_tables, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TABLES(
            test_a_published_row_that_cannot_be_deleted_is_marked_as_done),
        WITH_TABLES(test_published_rows_that_cannot_be_changed_are_parked),
        WITH_TABLES(test_parked_rows_do_not_count_as_in_flight),
        WITH_TABLES(test_an_end_with_parked_rows_is_no_empty_queue),
        WITH_TABLES(test_a_table_that_cannot_be_written_parks_nothing),
        WITH_TABLES(test_a_dead_letter_that_cannot_be_removed_is_told_once),
        WITH_TABLES(
            test_a_retry_whose_headers_cannot_be_written_waits_all_the_same),
        WITH_TABLES(test_a_retry_that_cannot_be_written_holds_up_nothing),
        ORDERED(test_a_partition_goes_on_behind_published_rows_that_stay),
        ORDERED(
            test_a_head_that_cannot_be_blocked_holds_back_its_partition_alone),
        ORDERED(test_a_head_whose_headers_cannot_be_written_is_blocked),
        ORDERED(test_a_dead_letter_that_stays_holds_back_its_partition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
