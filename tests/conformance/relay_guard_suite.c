// SPDX-License-Identifier: MIT
// What keeps a relay from doing harm: the proof of its lock, leases that are
// renewed, the bound of what is in flight, and a stop that settles only what
// the broker has answered. The clock is the suite's own.
#include "relay_ordered_world.h"

#include "support/faulty_database.h"

#define LEASE "SELECT MIN(delivered_at) FROM messenger_outbox"
#define SHARE "SELECT MIN(expires_at) FROM skirnir_lease WHERE owner <> ''"

static int64_t ahead_ms;

int64_t __real_skr_clock_ms(void);
int64_t __wrap_skr_clock_ms(void);

int64_t
__wrap_skr_clock_ms(void)
{
    return __real_skr_clock_ms() + __atomic_load_n(&ahead_ms, __ATOMIC_RELAXED);
}

static void
pass_time(int64_t ms)
{
    __atomic_add_fetch(&ahead_ms, ms, __ATOMIC_RELAXED);
}

static int
set_up_guarded(void **state)
{
    __atomic_store_n(&ahead_ms, 0, __ATOMIC_RELAXED);
    return set_up_with_tables(state);
}

static int
set_up_shares(void **state)
{
    __atomic_store_n(&ahead_ms, 0, __ATOMIC_RELAXED);
    set_up_as(state, true);
    struct fixture *fixture = *state;
    struct skr_messenger_options options = outbox_options(fixture);
    options.is_ordered = true;
    options.is_sharded = true;
    use_outbox(fixture, &options);
    fixture->options.claim = SKR_CLAIM_SHARDS;
    fixture->options.lease_ms = 3000;
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    return 0;
}

static int
tear_down_guarded(void **state)
{
    skr_faulty_set(NULL);
    return tear_down(state);
}

static bool
is_active(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->actives, __ATOMIC_RELAXED) > 0;
}

static bool
has_trouble(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->troubles, __ATOMIC_ACQUIRE) > 0;
}

static bool
has_standby(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->standbys, __ATOMIC_RELAXED) > 0;
}

static bool
has_settle_trouble(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->settle_troubles, __ATOMIC_RELAXED) > 0;
}

static bool
has_settled_after_all(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->settle_recoveries, __ATOMIC_RELAXED) > 0;
}

struct goal {
    struct fixture *fixture;
    size_t count;
    const char *sql;
    char *before;
};

static bool
has_got_so_many(void *user)
{
    struct goal *goal = user;
    return skr_fake_got(&goal->fixture->fake) >= goal->count;
}

static void
wait_for_messages(struct fixture *fixture, size_t count)
{
    struct goal goal = {.fixture = fixture, .count = count};
    assert_true(skr_test_eventually(has_got_so_many, &goal, WAIT_MS));
}

static bool
was_asked_so_often(void *user)
{
    struct goal *goal = user;
    struct skr_fake *fake = &goal->fixture->fake;
    pthread_mutex_lock(&fake->lock);
    size_t asked = fake->asked;
    pthread_mutex_unlock(&fake->lock);
    return asked >= goal->count;
}

// The relay comes by so many times more.
static void
let_turn(struct fixture *fixture, size_t turns)
{
    struct goal goal = {.fixture = fixture};
    pthread_mutex_lock(&fixture->fake.lock);
    goal.count = fixture->fake.asked + turns;
    pthread_mutex_unlock(&fixture->fake.lock);
    assert_true(skr_test_eventually(was_asked_so_often, &goal, WAIT_MS));
}

static bool
has_moved(void *user)
{
    struct goal *goal = user;
    char *now = skr_test_text(goal->fixture->db, goal->sql);
    bool moved =
        now != NULL && goal->before != NULL && strcmp(now, goal->before) != 0;
    free(now);
    return moved;
}

// A time in the database is renewed while the broker says nothing.
static void
assert_renewed(struct fixture *fixture, const char *sql)
{
    struct goal goal = {.fixture = fixture,
                        .sql = sql,
                        .before = skr_test_text(fixture->db, sql)};
    bool moved = skr_test_eventually(has_moved, &goal, 6000);
    free(goal.before);
    assert_true(moved);
}

// As another relay, which has the queue from now on.
static struct skr_db *
take_lock(struct fixture *fixture)
{
    struct skr_db *other = skr_test_connect(&fixture->database);
    char name[SKR_LOCK_NAME_SIZE];
    assert_int_equal(skr_store_name_lock(other, fixture->table->name,
                                         fixture->table->queue, name, NULL),
                     SKR_OK);
    for (int i = 0; !other->holds_lock && i < 20; i++) {
        skr_test_break_lock(&fixture->database, name);
        assert_int_equal(skr_db_lock(other, name, SKR_LOCK_ALONE, -1, 50, NULL),
                         SKR_OK);
    }
    assert_true(other->holds_lock);
    return other;
}

// ---------------------------------------------------------- proof of the lock

static void
test_nothing_is_sent_on_an_old_proof_of_the_lock(void **state)
{
    struct fixture *fixture = *state;
    start(fixture);
    assert_true(skr_test_eventually(is_active, fixture, WAIT_MS));
    struct skr_db *other = take_lock(fixture);
    pass_time(11000);
    insert(fixture, 0, 10);
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 0);
    skr_db_close(other);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
}

static enum skr_publish_result
refuse(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)message;
    (void)count;
    (void)user;
    return SKR_REFUSED_FOR_GOOD;
}

// Another has the queue by the time that the result can be written: what
// becomes of the message is its business.
static void
test_an_result_is_not_written_without_the_lock(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse;
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 1);
    start(fixture);
    wait_for_messages(fixture, 1);
    skr_faulty_set(&(struct skr_fault){
        .call = SKR_FAULTY_BEGIN,
        .count = 100000,
        .code = SKR_CONFLICT,
        .remedy = SKR_TRY_AGAIN,
    });
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(has_settle_trouble, fixture, WAIT_MS));
    struct skr_db *other = take_lock(fixture);
    pass_time(11000);
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    // It waits for a while before it gives up its session.
    pass_time(6000);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    skr_faulty_set(NULL);
    assert_true(skr_test_eventually(has_settled_after_all, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 1);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    stop(fixture);
    skr_db_close(other);
}

// ----------------------------------------------------------------- leases

static void
test_leases_on_rows_are_renewed(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.claim = SKR_CLAIM_LEASED;
    fixture->options.lease_ms = 3000;
    fixture->options.stop_timeout_ms = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 10);
    start(fixture);
    wait_for_messages(fixture, 10);
    assert_renewed(fixture, LEASE);
    stop(fixture);
}

static void
test_leases_on_partitions_are_renewed(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.stop_timeout_ms = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert_keys(fixture, 10, 0, 1);
    start(fixture);
    wait_for_messages(fixture, 10);
    assert_renewed(fixture, SHARE);
    stop(fixture);
}

// ------------------------------------------------------- what is in flight

static void
test_bytes_in_flight_are_bounded_across_batches(void **state)
{
    struct fixture *fixture = *state;
    char body[400];
    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    fixture->options.in_flight_bytes = 1000;
    fixture->options.stop_timeout_ms = 100;
    skr_fake_hold_back(&fixture->fake, true);
    for (int i = 0; i < 40; i++)
        insert_with_headers(fixture, "{\"type\":\"order.placed\"}", body);
    start(fixture);
    wait_for_messages(fixture, 2);
    let_turn(fixture, 10);
    stop(fixture);
    assert_int_equal(skr_fake_got(&fixture->fake), 2);
}

static void
stop_in_flight(struct fixture *fixture)
{
    fixture->options.stop_timeout_ms = 100;
    skr_fake_hold_back(&fixture->fake, true);
    insert(fixture, 0, 50);
    start(fixture);
    wait_for_messages(fixture, 50);
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 50);
    assert_int_equal(
        skr_test_number(fixture->db, ROWS " WHERE delivered_at IS NULL"), 50);
    // The broker may have none of them.
    skr_fake_hold_back(&fixture->fake, false);
    run_until_empty(fixture);
    assert_int_equal(skr_fake_got(&fixture->fake), 100);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
}

static void
test_what_has_no_answer_at_a_stop_stays(void **state)
{
    stop_in_flight(*state);
}

static void
test_what_is_leased_and_has_no_answer_at_a_stop_stays(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.claim = SKR_CLAIM_LEASED;
    stop_in_flight(fixture);
}

#define GUARDED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_guarded, tear_down_guarded)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        GUARDED(test_nothing_is_sent_on_an_old_proof_of_the_lock),
        GUARDED(test_an_result_is_not_written_without_the_lock),
        GUARDED(test_leases_on_rows_are_renewed),
        cmocka_unit_test_setup_teardown(test_leases_on_partitions_are_renewed,
                                        set_up_shares, tear_down_guarded),
        GUARDED(test_bytes_in_flight_are_bounded_across_batches),
        GUARDED(test_what_has_no_answer_at_a_stop_stays),
        GUARDED(test_what_is_leased_and_has_no_answer_at_a_stop_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
