// SPDX-License-Identifier: MIT
// Relays that divide a queue without an order: its shards are blocks of ids.
// Each row is sent once, by the relay that has its shard; shards change hands
// when relays come, go and die; and what is not simply done is written by the
// owner of the shard alone.

#include "conformance/relay_divided_world.h"

enum { BLOCK = 256 };

// Leases last as long as they do by default: these are not about their end.
static int
set_up_plain(void **state)
{
    set_up_shards(state, false);
    struct fixture *fixture = *state;
    fixture->options.lease_ms = 15000;
    return 0;
}

// A table with a column for keys serves relays of both kinds.
static int
set_up_ordered(void **state)
{
    return set_up_shards(state, true);
}

static int
set_up_unlocked(void **state)
{
    set_up_plain(state);
    struct fixture *fixture = *state;
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    skr_faulty_refuse_locks();
    return 0;
}

static void
insert_row(struct skr_db *db, int64_t id, int number)
{
    char body[32];
    snprintf(body, sizeof(body), "m%d", number);
    const struct skr_value values[] = {
        skr_bind_integer(id), skr_bind_text(body),
        skr_bind_text("{\"type\":\"order.placed\"}")};
    skr_test_run_template(db,
                          "INSERT INTO messenger_outbox (id, body, headers, "
                          "queue_name, created_at, available_at) VALUES (?, ?, "
                          "?, 'outbox', {now}, {now})",
                          values, SKR_COUNT_OF(values));
}

// Messages from one number to another, a few of each block of ids.
static void
insert_spread(struct fixture *fixture, int from, int to)
{
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = from; i < to; i++)
        insert_row(fixture->db, 1 + (int64_t)i * (BLOCK / 4), i);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static void
count_each(const struct skr_fake *fake, int count, int *seen)
{
    memset(seen, 0, (size_t)count * sizeof(*seen));
    for (size_t i = 0; i < fake->got_count; i++)
        seen[atoi(fake->got[i].body + 1)]++;
}

static void
assert_each_once(const struct skr_fake *fake, int count)
{
    int *seen = calloc((size_t)count, sizeof(int));
    count_each(fake, count, seen);
    for (int i = 0; i < count; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void
assert_none_is_lost(const struct skr_fake *fake, int count)
{
    int *seen = calloc((size_t)count, sizeof(int));
    count_each(fake, count, seen);
    for (int i = 0; i < count; i++)
        assert_true(seen[i] > 0);
    free(seen);
}

// Gives how many messages it has published.
static uint64_t
leave_and_count(struct member *member)
{
    skr_relay_stop(member->relay);
    pthread_join(member->thread, NULL);
    uint64_t published = atomic_load(&member->tally.published);
    skr_relay_free(member->relay);
    skr_store_free(member->table);
    return published;
}

static void
test_relays_share_a_backlog_and_each_row_is_sent_once(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    for (int i = 0; i < 2; i++)
        join_in(fixture, &members[i]);
    assert_true(eventually_even(fixture, 2));
    insert_spread(fixture, 0, 2400);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    uint64_t first = leave_and_count(&members[0]);
    uint64_t second = leave_and_count(&members[1]);
    assert_each_once(&fixture->fake, 2400);
    // The shards are even, and rows lie in all of them.
    assert_int_equal(first, 1200);
    assert_int_equal(second, 1200);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

// Ids that follow each other change hands every few hundred rows.
static void
test_neighbouring_blocks_are_of_different_relays(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    // Two that begin at once take what each can get.
    for (int i = 0; i < 2; i++) {
        join_in(fixture, &members[i]);
        assert_true(eventually_even(fixture, i + 1));
    }
    insert(fixture, 0, 4 * BLOCK);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    uint64_t first = leave_and_count(&members[0]);
    assert_in_range(first, BLOCK, 3 * BLOCK);
    assert_in_range(leave_and_count(&members[1]), BLOCK, 3 * BLOCK);
    assert_each_once(&fixture->fake, 4 * BLOCK);
}

static void
test_relays_come_and_go_and_each_row_is_sent_once(void **state)
{
    struct fixture *fixture = *state;
    struct member members[3];
    join_in(fixture, &members[0]);
    insert_spread(fixture, 0, 800);
    assert_true(eventually_even(fixture, 1));
    join_in(fixture, &members[1]);
    insert_spread(fixture, 800, 1600);
    assert_true(eventually_even(fixture, 2));
    join_in(fixture, &members[2]);
    insert_spread(fixture, 1600, 2400);
    assert_true(eventually_even(fixture, 3));
    leave(&members[0]);
    insert_spread(fixture, 2400, 3200);
    assert_true(eventually_even(fixture, 2));
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&members[1]);
    leave(&members[2]);
    assert_each_once(&fixture->fake, 3200);
    assert_int_equal(fixture->fake.got_count, 3200);
    assert_int_equal(fixture->troubles, 0);
}

static bool
some_are_in_flight(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) >= 60;
}

static bool
second_has_seat(void *user)
{
    const struct fixture *fixture = user;
    return skr_test_number(fixture->db,
                           "SELECT COUNT(*) FROM skirnir_lease WHERE "
                           "slot >= 60 AND owner <> ''") == 2;
}

// A shard changes hands when nothing of it is on its way any more.
static void
test_shards_with_rows_in_flight_wait_for_the_broker(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    skr_fake_hold_back(&fixture->fake, true);
    insert_spread(fixture, 0, 600);
    join_in(fixture, &members[0]);
    assert_true(skr_test_eventually(some_are_in_flight, fixture, WAIT_MS));
    join_in(fixture, &members[1]);
    assert_true(skr_test_eventually(second_has_seat, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 60);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(eventually_even(fixture, 2));
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&members[0]);
    leave(&members[1]);
    assert_each_once(&fixture->fake, 600);
}

static void
test_nothing_is_lost_whatever_the_broker_does(void **state)
{
    struct fixture *fixture = *state;
    struct member members[MOST_RELAYS];
    unsigned seed = (unsigned)skr_clock_wall_us();
    print_message("seed %u\n", seed);
    fixture->fake.result = misbehave;
    fixture->fake.user = &seed;
    fixture->options.retry.max_retries = 100;
    insert_spread(fixture, 0, 600);
    for (int i = 0; i < MOST_RELAYS; i++)
        join_in(fixture, &members[i]);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, 60000));
    for (int i = 0; i < MOST_RELAYS; i++)
        leave(&members[i]);
    assert_none_is_lost(&fixture->fake, 600);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static bool
half_is_through(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 120;
}

// Its leases would last for ten minutes; where sessions hold no locks they are
// short.
static void
test_the_shards_of_a_relay_that_is_gone_are_taken_over(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *session = skr_test_connect(&fixture->database);
    struct skr_store *other = make_owner(fixture);
    enum skr_liveness liveness = SKR_LIVES_ELSEWHERE;
    assert_int_equal(other->shards->live(other, session, &liveness, NULL),
                     SKR_OK);
    bool by_lock = liveness == SKR_LIVES_BY_LOCK;
    assert_int_equal(by_lock, skr_test_writes_side_by_side(fixture->db));
    struct skr_assignments shares;
    const struct skr_assignment half = {.shards = (UINT64_C(1) << 30) - 1,
                                        .members = 1};
    const struct skr_term term = {.lease_s = by_lock ? 600 : 4,
                                  .by_lock = by_lock};
    assert_int_equal(other->shards->see(other, session, &shares, NULL), SKR_OK);
    assert_int_equal(other->shards->take(other, session, &half, &term, NULL),
                     SKR_OK);
    insert_spread(fixture, 0, 240);
    start(fixture);
    assert_true(skr_test_eventually(half_is_through, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 120);
    skr_db_close(session);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_true(eventually_even(fixture, 1));
    stop(fixture);
    assert_each_once(&fixture->fake, 240);
    skr_store_free(other);
}

static enum skr_publish_result
refuse_m5_for_good(const struct skr_fake_message *message, size_t count,
                   void *user)
{
    (void)user;
    return strcmp(message->body, "m5") == 0 ? SKR_REFUSED_FOR_GOOD
           : strcmp(message->body, "m7") == 0 && count == 1
               ? SKR_REFUSED_FOR_NOW
               : SKR_CONFIRMED;
}

static void
test_rows_of_shards_are_retried_and_fail_as_others_do(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_for_good;
    insert_spread(fixture, 0, 100);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    assert_int_equal(fixture->fake.confirmed, 99);
    assert_int_equal(fixture->fake.got_count, 101);
}

// As after a freeze that was longer than the leases: what is confirmed may go,
// and what was refused is for the next owner to decide.
static void
test_a_relay_that_lost_its_shards_decides_nothing_of_their_rows(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_m5_for_good;
    skr_fake_hold_back(&fixture->fake, true);
    insert_spread(fixture, 0, 60);
    start(fixture);
    assert_true(skr_test_eventually(some_are_in_flight, fixture, WAIT_MS));
    skr_test_run(fixture->db,
                 "UPDATE skirnir_lease SET owner = 'another', epoch = epoch + "
                 "1, expires_at = '2999-01-01 00:00:00' WHERE slot <= 60");
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(has_trouble, fixture, WAIT_MS));
    assert_non_null(strstr(fixture->trouble, "leases on shards"));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    assert_int_equal(skr_test_number(fixture->db, ROWS " WHERE body IN ('m5', "
                                                       "'m7') AND headers NOT "
                                                       "LIKE '%refuse%'"),
                     2);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 2);
}

static void
test_ids_below_one_have_shards_as_well(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    for (int i = 0; i < 2; i++)
        join_in(fixture, &members[i]);
    assert_true(eventually_even(fixture, 2));
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < 240; i++)
        insert_row(fixture->db, -1 - (int64_t)i * BLOCK, i);
    insert_row(fixture->db, 1, 240);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    uint64_t first = leave_and_count(&members[0]);
    uint64_t second = leave_and_count(&members[1]);
    assert_each_once(&fixture->fake, 241);
    assert_in_range(first, 120, 121);
    assert_int_equal(first + second, 241);
}

// Rows of both shares that commit when both cursors have passed their ids.
static void
test_what_commits_late_is_found_by_the_owner_of_its_shard(void **state)
{
    struct fixture *fixture = *state;
    struct member members[2];
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    for (int i = 0; i < 2; i++)
        join_in(fixture, &members[i]);
    assert_true(eventually_even(fixture, 2));
    struct skr_db *late = begin_beside(fixture);
    for (int i = 0; i < 60; i++)
        insert_row(late, 1 + (int64_t)i * BLOCK, i);
    for (int i = 60; i < 120; i++)
        insert_row(fixture->db, 2 + (int64_t)(i - 60) * BLOCK, i);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_int_equal(skr_fake_got(&fixture->fake), 60);
    assert_int_equal(skr_db_commit(late, NULL), SKR_OK);
    skr_db_close(late);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    for (int i = 0; i < 2; i++)
        leave(&members[i]);
    assert_each_once(&fixture->fake, 120);
}

// A relay of one kind works, and one of another waits until it is gone.
static void
keep_apart(struct fixture *fixture, struct skr_store *first,
           enum skr_claim first_claim, struct skr_store *second,
           enum skr_claim second_claim)
{
    struct member members[2];
    int standbys = __atomic_load_n(&fixture->standbys, __ATOMIC_RELAXED);
    join_with(fixture, &members[0], first, first_claim);
    insert(fixture, 0, 10);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    assert_int_equal(fixture->standbys, standbys);
    join_with(fixture, &members[1], second, second_claim);
    assert_true(skr_test_eventually(has_standby, fixture, WAIT_MS));
    leave(&members[0]);
    insert(fixture, 10, 20);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    leave(&members[1]);
    assert_each_once(&fixture->fake, 20);
}

static struct skr_store *
make_kind(const struct fixture *fixture, enum skr_claim claim)
{
    return make_messenger(fixture, false, claim);
}

static void
test_a_relay_of_shards_waits_for_an_exclusive_one(void **state)
{
    keep_apart(*state, make_kind(*state, SKR_CLAIM_NONE), SKR_CLAIM_NONE,
               make_owner(*state), SKR_CLAIM_SHARDS);
}

static void
test_an_exclusive_relay_waits_for_one_of_shards(void **state)
{
    keep_apart(*state, make_owner(*state), SKR_CLAIM_SHARDS,
               make_kind(*state, SKR_CLAIM_NONE), SKR_CLAIM_NONE);
}

static void
test_a_relay_of_shards_waits_for_one_that_leases_rows(void **state)
{
    keep_apart(*state, make_kind(*state, SKR_CLAIM_LEASED), SKR_CLAIM_LEASED,
               make_owner(*state), SKR_CLAIM_SHARDS);
}

static void
test_a_relay_that_leases_rows_waits_for_one_of_shards(void **state)
{
    keep_apart(*state, make_owner(*state), SKR_CLAIM_SHARDS,
               make_kind(*state, SKR_CLAIM_LEASED), SKR_CLAIM_LEASED);
}

// As when an outbox becomes an ordered one, relay by relay: what is a shard for
// the one is none for the other.
static void
test_a_relay_without_an_order_waits_for_those_that_keep_one(void **state)
{
    keep_apart(*state, make_owner(*state), SKR_CLAIM_SHARDS,
               make_kind(*state, SKR_CLAIM_SHARDS), SKR_CLAIM_SHARDS);
}

static void
test_a_relay_that_keeps_an_order_waits_for_those_without_one(void **state)
{
    keep_apart(*state, make_kind(*state, SKR_CLAIM_SHARDS), SKR_CLAIM_SHARDS,
               make_owner(*state), SKR_CLAIM_SHARDS);
}

static bool
said_not_alone(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->not_alone, __ATOMIC_RELAXED) > 0;
}

static void
test_a_relay_of_shards_notices_a_worker_that_leases_rows(void **state)
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

#define PLAIN(test) \
    cmocka_unit_test_setup_teardown(test, set_up_plain, tear_down)
#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered, tear_down)
#define UNLOCKED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_unlocked, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(test_relays_share_a_backlog_and_each_row_is_sent_once),
        UNLOCKED(test_relays_share_a_backlog_and_each_row_is_sent_once),
        PLAIN(test_neighbouring_blocks_are_of_different_relays),
        PLAIN(test_relays_come_and_go_and_each_row_is_sent_once),
        UNLOCKED(test_relays_come_and_go_and_each_row_is_sent_once),
        PLAIN(test_shards_with_rows_in_flight_wait_for_the_broker),
        PLAIN(test_nothing_is_lost_whatever_the_broker_does),
        PLAIN(test_the_shards_of_a_relay_that_is_gone_are_taken_over),
        PLAIN(test_rows_of_shards_are_retried_and_fail_as_others_do),
        PLAIN(test_a_relay_that_lost_its_shards_decides_nothing_of_their_rows),
        PLAIN(test_ids_below_one_have_shards_as_well),
        PLAIN(test_what_commits_late_is_found_by_the_owner_of_its_shard),
        PLAIN(test_a_relay_of_shards_waits_for_an_exclusive_one),
        PLAIN(test_an_exclusive_relay_waits_for_one_of_shards),
        PLAIN(test_a_relay_of_shards_waits_for_one_that_leases_rows),
        PLAIN(test_a_relay_that_leases_rows_waits_for_one_of_shards),
        ORDERED(test_a_relay_without_an_order_waits_for_those_that_keep_one),
        ORDERED(test_a_relay_that_keeps_an_order_waits_for_those_without_one),
        PLAIN(test_a_relay_of_shards_notices_a_worker_that_leases_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
