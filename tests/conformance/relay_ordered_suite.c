// SPDX-License-Identifier: MIT
// A relay on an ordered outbox: the messages of a partition one after the
// other, whatever becomes of each.

#include "conformance/relay_ordered_world.h"
#include "support/faulty_database.h"

static int
set_up_ordered(void **state)
{
    set_up_as(state, true);
    struct fixture *fixture = *state;
    fixture->options.blocks_partitions = true;
    struct skr_error error = {0};
    if (skr_store_create(fixture->table, fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return 0;
}

static void
test_partitions_arrive_in_order(void **state)
{
    struct fixture *fixture = *state;
    insert_keys(fixture, 50, 0, 60);
    run_until_empty(fixture);
    assert_int_equal(fixture->fake.got_count, 3000);
    judge(fixture, 50, 60);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
}

static bool
got_ten(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 10;
}

static void
test_one_message_of_a_partition_is_under_way(void **state)
{
    struct fixture *fixture = *state;
    skr_fake_hold_back(&fixture->fake, true);
    insert_keys(fixture, 10, 0, 20);
    start(fixture);
    assert_true(skr_test_eventually(got_ten, fixture, WAIT_MS));
    // It has nothing to do by now, and would send more if it ever did.
    skr_clock_sleep(-1, 100);
    assert_int_equal(skr_fake_got(&fixture->fake), 10);
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.most_unanswered, 10);
    judge(fixture, 10, 20);
}

static void
test_a_partition_that_is_longer_than_the_window_arrives_in_order(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = 100;
    insert_keys(fixture, 1, 0, 1000);
    insert_keys(fixture, 3, 1000, 1001);
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 1001);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
}

static void
test_messages_without_a_key_have_no_order(void **state)
{
    struct fixture *fixture = *state;
    skr_fake_hold_back(&fixture->fake, true);
    for (int i = 0; i < 10; i++)
        insert_on(fixture->db, "", "free:0", 0);
    start(fixture);
    assert_true(skr_test_eventually(got_ten, fixture, WAIT_MS));
    skr_fake_hold_back(&fixture->fake, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
}

static enum skr_publish_result
refuse_k1_5_once(const struct skr_fake_message *message, size_t count,
                 void *user)
{
    (void)user;
    return strcmp(message->body, "k1:5") == 0 && count == 1
               ? SKR_REFUSED_FOR_NOW
               : SKR_CONFIRMED;
}

static void
test_a_retry_holds_back_its_own_partition(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_k1_5_once;
    fixture->options.retry.delay_ms = 3000;
    insert_keys(fixture, 3, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 5);
    insert_keys(fixture, 3, 10, 12);
    assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 7);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 37);
    judge(fixture, 3, 12);
}

static void
test_what_is_scheduled_holds_back_its_own_partition(void **state)
{
    struct fixture *fixture = *state;
    insert_on(fixture->db, "k1", "k1:0", 4);
    insert_keyed(fixture, "k0", 0);
    insert_keyed(fixture, "k1", 1);
    insert_keyed(fixture, "k1", 2);
    start(fixture);
    assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 3);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k1"), 3);
}

static void
test_what_cannot_be_sent_blocks_its_partition_until_it_is_made_due(void **state)
{
    struct fixture *fixture = *state;
    bool is_mended = false;
    fixture->fake.result = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(is_blocked, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 5);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    __atomic_store_n(&is_mended, true, __ATOMIC_RELAXED);
    const struct skr_value one = skr_bind_integer(1);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = "
                          "{now_plus} WHERE body = 'k1:5'",
                          &one, 1);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, 3, 10);
    assert_int_equal(fixture->blocked, 1);
    assert_is_id_of(fixture, fixture->refused_id, "k1:5");
}

// An hour ahead, and no full scan comes meanwhile.
static void
insert_ahead(struct fixture *fixture, int count)
{
    make_table(fixture, true, 60000);
    for (int i = 0; i < count; i++) {
        char body[16];
        snprintf(body, sizeof(body), "k1:%d", i);
        const struct skr_value values[] = {
            skr_bind_text(body), skr_bind_text("{\"type\":\"order.placed\"}"),
            skr_bind_integer(3600), skr_bind_integer(3600)};
        skr_test_run_template(fixture->db,
                              "INSERT INTO messenger_outbox (body, headers, "
                              "queue_name, partition_key, created_at, "
                              "available_at) VALUES (?, ?, 'outbox', 'k1', "
                              "{now_plus}, {now_plus})",
                              values, SKR_COUNT_OF(values));
    }
}

static enum skr_publish_result
refuse_k1_3_once(const struct skr_fake_message *message, size_t count,
                 void *user)
{
    return strcmp(message->body, "k1:3") == 0 && count == 1
               ? SKR_REFUSED_FOR_NOW
               : refuse_k1_5_for_good(message, count, user);
}

static void
test_what_a_clock_ahead_wrote_is_tried_again_in_time(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    bool is_mended = false;
    int64_t row = 0;
    fixture->fake.result = refuse_k1_3_once;
    fixture->fake.user = &is_mended;
    insert_ahead(fixture, 10);
    start(fixture);
    assert_true(skr_test_eventually(is_blocked, fixture, WAIT_MS));
    __atomic_store_n(&is_mended, true, __ATOMIC_RELAXED);
    if (skr_messenger_end_block(fixture->table, fixture->db, "k1", false, &row,
                                &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k1"), 10);
}

static void
test_a_block_outlives_the_relay_and_does_not_keep_it_from_ending(void **state)
{
    struct fixture *fixture = *state;
    bool is_mended = false;
    fixture->fake.result = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    run_until_empty(fixture);
    is_mended = true;
    run_until_empty(fixture);
    assert_true(is_blocked(fixture));
    assert_int_equal(skr_test_number(fixture->db, ROWS), 5);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 10);
    assert_int_equal(judge_key(&fixture->fake, "k1"), 6);
}

static void
test_what_cannot_be_sent_may_be_skipped(void **state)
{
    struct fixture *fixture = *state;
    bool is_mended = false;
    fixture->options.blocks_partitions = false;
    fixture->fake.result = refuse_k1_5_for_good;
    fixture->fake.user = &is_mended;
    insert_keys(fixture, 3, 0, 10);
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
    judge(fixture, 3, 10);
}

static void
test_what_cannot_be_understood_waits_for_its_turn(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.blocks_partitions = false;
    for (int i = 0; i < 3; i++)
        insert_keyed(fixture, "k0", i);
    skr_test_run_template(
        fixture->db,
        "INSERT INTO messenger_outbox (body, headers, queue_name, "
        "partition_key, created_at, available_at) VALUES ('x', 'no json', "
        "'outbox', 'k0', {now}, {now})",
        NULL, 0);
    for (int i = 3; i < 6; i++)
        insert_keyed(fixture, "k0", i);
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 6);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1);
}

static enum skr_publish_result
close_k1_twice(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)user;
    return is_of(message, "k1") && count <= 2 && number_of(message) == 3
               ? SKR_ROUTE_UNAVAILABLE
               : SKR_CONFIRMED;
}

static void
test_a_closed_route_keeps_the_order(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = close_k1_twice;
    insert_keys(fixture, 3, 0, 10);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, 3, 10);
}

static enum skr_publish_result
refuse_for_a_while(const struct skr_fake_message *message, size_t count,
                   void *user)
{
    const bool *refuses = user;
    (void)message;
    (void)count;
    return __atomic_load_n(refuses, __ATOMIC_RELAXED) ? SKR_REFUSED_FOR_NOW
                                                      : SKR_CONFIRMED;
}

static bool
is_closed(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->closings, __ATOMIC_ACQUIRE) > 0;
}

// Rows are written all the while: before, while the route is closed, and while
// it is tried.
static void
test_all_partitions_go_on_after_a_run_of_refusals(void **state)
{
    enum { KEYS = 30, TRIES = 2 };
    struct fixture *fixture = *state;
    bool refuses = true;
    int each = 20;
    fixture->fake.result = refuse_for_a_while;
    fixture->fake.user = &refuses;
    fixture->options.in_flight = 60;
    make_table(fixture, true, 0);  // sweeps are as rare as by default
    insert_keys(fixture, KEYS, 0, each);
    start(fixture);
    assert_true(skr_test_eventually(is_closed, fixture, WAIT_MS));
    size_t refused = skr_fake_got(&fixture->fake);
    while (skr_fake_got(&fixture->fake) < refused + TRIES) {
        insert_keys(fixture, KEYS, each, each + 1);
        each++;
        skr_clock_sleep(-1, 100);
    }
    __atomic_store_n(&refuses, false, __ATOMIC_RELAXED);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    judge(fixture, KEYS, each);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_order_holds_whatever_the_broker_does(void **state)
{
    struct fixture *fixture = *state;
    unsigned seed = (unsigned)skr_clock_wall_us();
    print_message("seed %u\n", seed);
    fixture->fake.result = misbehave;
    fixture->fake.user = &seed;
    fixture->options.retry.max_retries = 100;
    fixture->options.in_flight = 60;
    insert_keys(fixture, 40, 0, 10);
    start(fixture);
    insert_keys(fixture, 30, 10, 20);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, 60000));
    stop(fixture);
    judge(fixture, 30, 20);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static bool
got_all_of_k1(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 20;
}

static bool
got_one_more(void *user)
{
    struct fixture *fixture = user;
    return skr_fake_got(&fixture->fake) == 21;
}

// Statements that read whole rows: the others are asked by time, too.
static void
count_reads(struct skr_tx real, const struct skr_statement *statement,
            void *user)
{
    static const char begins[] = "SELECT id, CASE";
    (void)real;
    if (strncmp(statement->sql, begins, sizeof(begins) - 1) == 0)
        __atomic_add_fetch((size_t *)user, 1, __ATOMIC_RELAXED);
}

// What lies behind a head that waits would fill batch after batch, to be left
// where it is. None of it is lost by not being read.
static void
test_a_long_partition_that_waits_is_passed(void **state)
{
    enum { ROWS_OF_A_READ = 10 };  // a quarter of in_flight
    struct fixture *fixture = *state;
    size_t reads = 0;
    fixture->options.database = skr_faulty_database(fixture->database.ops);
    skr_faulty_watch(count_reads, &reads);
    fixture->options.in_flight = 40;
    insert_on(fixture->db, "k0", "k0:0", 3600);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 1; i < 600; i++)
        insert_keyed(fixture, "k0", i);
    for (int i = 0; i < 20; i++)
        insert_keyed(fixture, "k1", i);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    start(fixture);
    assert_true(skr_test_eventually(got_all_of_k1, fixture, WAIT_MS));
    assert_in_range(__atomic_load_n(&reads, __ATOMIC_RELAXED), 1,
                    600 / ROWS_OF_A_READ / 2);
    insert_keyed(fixture, "k0", 600);
    insert_keyed(fixture, "k1", 20);
    assert_true(skr_test_eventually(got_one_more, fixture, WAIT_MS));
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET available_at = "
                              "created_at WHERE body = 'k0:0'");
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 601);
    skr_faulty_watch(NULL, NULL);
    assert_int_equal(judge_key(&fixture->fake, "k1"), 21);
    assert_int_equal(fixture->fake.got_count, 622);
}

// Where one writes at a time there is nothing to be passed: who begins later
// gets the later ids.
static void
assert_nobody_commits_late(struct fixture *fixture, struct skr_db *early)
{
    struct skr_db *other = skr_test_connect_impatient(&fixture->database);
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(other, SKR_BEGIN_WRITE, &error),
                     SKR_CONFLICT);
    insert_on(early, "k0", "k0:1", 0);
    assert_int_equal(skr_db_commit(early, NULL), SKR_OK);
    insert_on(other, "k0", "k0:2", 0);
    skr_db_close(other);
    skr_db_close(early);
    run_until_empty(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 3);
}

// Ids are given at the insert: what commits later with a smaller id is neither
// lost nor does it let its successor pass once both are there.
static void
test_what_commits_late_is_not_passed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *early = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(early, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_on(early, "k0", "k0:0", 0);
    if (!skr_test_writes_side_by_side(fixture->db)) {
        assert_nobody_commits_late(fixture, early);
        return;
    }
    insert_keyed(fixture, "k1", 0);
    start(fixture);
    assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS) ||
                skr_fake_got(&fixture->fake) > 0);
    for (int i = 1; i < 5; i++)
        insert_keyed(fixture, "k2", i - 1);
    insert_on(early, "k0", "k0:1", 0);
    assert_int_equal(skr_db_commit(early, NULL), SKR_OK);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 2);
    skr_db_close(early);
}

// The first message of a partition is under way, and the third follows it in
// the relay's memory, when the second becomes visible.
static void
test_a_late_row_cuts_the_chain_of_its_partition(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    make_table(fixture, true, 60000);
    skr_fake_hold_back(&fixture->fake, true);
    start(fixture);
    insert_keyed(fixture, "k0", 0);
    wait_for_count(fixture, 1);
    struct skr_db *late = begin_beside(fixture);
    insert_on(late, "k0", "k0:1", 0);
    insert_keyed(fixture, "k0", 2);
    insert_keyed(fixture, "k1", 0);
    wait_for_count(fixture, 2);
    assert_int_equal(skr_db_commit(late, NULL), SKR_OK);
    // A relay that has read this has also looked for what is late.
    insert_keyed(fixture, "k2", 0);
    wait_for_count(fixture, 3);
    skr_fake_hold_back(&fixture->fake, false);
    wait_for_count(fixture, 5);
    stop(fixture);
    assert_int_equal(judge_key(&fixture->fake, "k0"), 3);
    skr_db_close(late);
}

static void
test_the_youngest_open_transaction_is_not_passed(void **state)
{
    struct fixture *fixture = *state;
    if (!skr_test_writes_side_by_side(fixture->db))
        return;
    make_table(fixture, true, 60000);
    check_youngest_is_not_passed(fixture);
}

// More of them than are read at once, for as long as the low-water mark cannot
// pass them: each look for late rows finds them first.
static void
test_many_late_rows_of_a_partition_that_waits_hold_back_no_other(void **state)
{
    struct fixture *fixture = *state;
    bool are_late = skr_test_writes_side_by_side(fixture->db);
    insert_on(fixture->db, "k1", "k1:0", 3600);
    struct skr_db *late = begin_beside(fixture);
    for (int i = 0; i < 600; i++)
        insert_on(late, "k1", "k1:1", 0);
    if (!are_late)
        assert_int_equal(skr_db_commit(late, NULL), SKR_OK);
    struct skr_db *open = begin_beside(fixture);
    if (are_late)
        insert_on(open, "k2", "k2:0", 0);
    else
        assert_int_equal(skr_db_commit(open, NULL), SKR_OK);
    insert_keyed(fixture, "k0", 0);
    start(fixture);
    assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS));
    if (are_late)
        assert_int_equal(skr_db_commit(late, NULL), SKR_OK);
    for (int i = 1; i < 4; i++) {
        insert_keyed(fixture, "k0", i);
        assert_true(skr_test_eventually(others_are_through, fixture, WAIT_MS));
    }
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 601);
    skr_db_close(open);
    skr_db_close(late);
}

static bool
three_are_confirmed(void *user)
{
    struct fixture *fixture = user;
    pthread_mutex_lock(&fixture->fake.lock);
    bool is_so = fixture->fake.confirmed == 3;
    pthread_mutex_unlock(&fixture->fake.lock);
    return is_so;
}

static bool
later_one_is_gone(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS " WHERE body = 'k2:1'") == 0;
}

// k1:0 keeps the batch open in which k2:0 lies; k2:1 comes in the next. If that
// went first, a relay that is killed now would have k2:0 sent behind it.
static void
test_a_message_leaves_its_row_after_those_before_it(void **state)
{
    struct fixture *fixture = *state;
    static const struct skr_route_sender names[] = {{.name = "fake"},
                                                    {.name = "other"}};
    static const struct skr_route_rule rules[] = {
        {.pattern = "audit.#", .sender = 1}};
    static const struct skr_routes routes = {
        .rules = rules, .rule_count = 1, .senders = names};
    struct skr_sender_options both[] = {fixture->sender, fixture->sender};
    both[1].name = "other";
    both[1].options.url = "fake://other";
    fixture->options.senders = both;
    fixture->options.sender_count = 2;
    fixture->options.routes = &routes;
    fixture->options.in_flight = 8;
    skr_fake_set(&fixture->fake, &fixture->fake.other_is_silent, true);
    insert_keyed(fixture, "k1", 0);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET headers = "
                              "'{\"type\":\"audit.seen\"}'");
    insert_keyed(fixture, "k2", 0);
    insert_keyed(fixture, "k2", 1);
    insert_keyed(fixture, "k3", 0);
    start(fixture);
    assert_true(skr_test_eventually(three_are_confirmed, fixture, WAIT_MS));
    assert_false(skr_test_eventually(later_one_is_gone, fixture, 500));
    skr_fake_set(&fixture->fake, &fixture->fake.other_is_silent, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 4);
}

#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ORDERED(test_partitions_arrive_in_order),
        ORDERED(test_one_message_of_a_partition_is_under_way),
        ORDERED(
            test_a_partition_that_is_longer_than_the_window_arrives_in_order),
        ORDERED(test_messages_without_a_key_have_no_order),
        ORDERED(test_a_retry_holds_back_its_own_partition),
        ORDERED(test_what_is_scheduled_holds_back_its_own_partition),
        ORDERED(
            test_what_cannot_be_sent_blocks_its_partition_until_it_is_made_due),
        ORDERED(test_what_a_clock_ahead_wrote_is_tried_again_in_time),
        ORDERED(
            test_a_block_outlives_the_relay_and_does_not_keep_it_from_ending),
        ORDERED(test_what_cannot_be_sent_may_be_skipped),
        ORDERED(test_what_cannot_be_understood_waits_for_its_turn),
        ORDERED(test_a_closed_route_keeps_the_order),
        ORDERED(test_all_partitions_go_on_after_a_run_of_refusals),
        ORDERED(test_order_holds_whatever_the_broker_does),
        ORDERED(test_a_long_partition_that_waits_is_passed),
        ORDERED(test_a_message_leaves_its_row_after_those_before_it),
        ORDERED(test_what_commits_late_is_not_passed),
        ORDERED(test_a_late_row_cuts_the_chain_of_its_partition),
        ORDERED(test_the_youngest_open_transaction_is_not_passed),
        ORDERED(
            test_many_late_rows_of_a_partition_that_waits_hold_back_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
