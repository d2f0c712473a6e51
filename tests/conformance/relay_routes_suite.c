// SPDX-License-Identifier: MIT
// One route in trouble: who waits, who fails, and who goes on.

#include "conformance/relay_world.h"

#include <stdatomic.h>

static const struct skr_route_sender senders[] = {
    {.name = "fake"},
    {.name = "other"},
};
static const struct skr_routes plain_routes = {.senders = senders};

static atomic_bool trouble;

static int
set_up_routes(void **state)
{
    set_up_with_tables(state);
    struct fixture *fixture = *state;
    fixture->options.routes = &plain_routes;
    fixture->options.retry.max_retries = 1;
    atomic_store(&trouble, true);
    return 0;
}

static void
insert_named(struct fixture *fixture, const char *name, int from, int to)
{
    char headers[80], body[32];
    snprintf(headers, sizeof(headers), "{\"type\":\"%s\"}", name);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = from; i < to; i++) {
        snprintf(body, sizeof(body), "%.16s %d", name, i);
        insert_with_headers(fixture, headers, body);
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static size_t
count_confirmed(struct fixture *fixture)
{
    pthread_mutex_lock(&fixture->fake.lock);
    size_t count = fixture->fake.confirmed;
    pthread_mutex_unlock(&fixture->fake.lock);
    return count;
}

static bool
good_ones_arrived(void *user)
{
    return count_confirmed(user) >= 1000;
}

// First occurrences of what was confirmed, in order.
static void
assert_all_arrived(struct fixture *fixture, const char *name, int count)
{
    const struct skr_fake *fake = &fixture->fake;
    for (int i = 0; i < count; i++) {
        char body[32];
        size_t seen = 0;
        snprintf(body, sizeof(body), "%.16s %d", name, i);
        for (size_t k = 0; k < fake->got_count; k++)
            seen += strcmp(fake->got[k].body, body) == 0;
        assert_in_range(seen, 1, 100);
    }
}

static enum skr_publish_result
refuse_full(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->name, "order.full") == 0 && atomic_load(&trouble)
               ? SKR_REFUSED_FOR_NOW
               : SKR_CONFIRMED;
}

static void
test_a_full_queue_makes_its_route_wait_and_no_other(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_full;
    insert_named(fixture, "order.full", 0, 300);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    atomic_store(&trouble, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_all_arrived(fixture, "order.full", 300);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    // It was not asked again for each of them, and told of once.
    assert_in_range(fixture->fake.got_count, 1300, 2000);
    assert_int_equal(fixture->closings, 1);
}

static enum skr_publish_result
refuse_four_times(const struct skr_fake_message *message, size_t count,
                  void *user)
{
    (void)message;
    (void)user;
    return count <= 4 ? SKR_REFUSED_FOR_NOW : SKR_CONFIRMED;
}

static void
test_a_refusal_counts_only_while_others_get_through(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_four_times;
    insert_named(fixture, "order.alone", 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.got_count, 5);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static enum skr_publish_result
return_lost(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->name, "order.lost") == 0 && atomic_load(&trouble)
               ? SKR_UNROUTABLE
               : SKR_CONFIRMED;
}

static void
test_what_no_queue_takes_fails_by_default(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = return_lost;
    insert_named(fixture, "order.lost", 0, 20);
    insert_named(fixture, "order.good", 0, 1000);
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 20);
    assert_int_equal(fixture->fake.confirmed, 1000);
}

static void
test_what_no_queue_takes_may_be_dropped(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = return_lost;
    fixture->options.unroutable = SKR_UNROUTABLE_DROP;
    insert_named(fixture, "order.lost", 0, 20);
    insert_named(fixture, "order.good", 0, 1000);
    run_until_empty(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_what_no_queue_takes_may_wait_for_one(void **state)
{
    static const struct skr_route_rule rules[] = {
        {.pattern = "order.lost", .unroutable = SKR_UNROUTABLE_WAIT}};
    static const struct skr_routes routes = {
        .rules = rules, .rule_count = 1, .senders = senders};
    struct fixture *fixture = *state;
    fixture->fake.result = return_lost;
    fixture->options.routes = &routes;
    insert_named(fixture, "order.lost", 0, 700);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    atomic_store(&trouble, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_all_arrived(fixture, "order.lost", 700);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static enum skr_publish_result
return_nowhere(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strncmp(message->name, "nowhere.", 8) == 0 && atomic_load(&trouble)
               ? SKR_UNROUTABLE
               : SKR_CONFIRMED;
}

struct remainder {
    struct fixture *fixture;
    int64_t rows;
};

static bool
fewer_are_left(void *user)
{
    const struct remainder *remainder = user;
    return skr_test_number(remainder->fixture->db, ROWS) < remainder->rows;
}

static void
test_hundreds_of_routes_may_wait_beside_good_ones(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = return_nowhere;
    fixture->options.unroutable = SKR_UNROUTABLE_WAIT;
    for (int i = 0; i < 500; i++) {
        char name[32];
        snprintf(name, sizeof(name), "nowhere.at.key%d", i);
        insert_named(fixture, name, 0, 1);
        insert_named(fixture, "order.good", 2 * i, 2 * i + 2);
    }
    start(fixture);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    atomic_store(&trouble, false);
    // They are tried one after the other.
    struct remainder remainder = {.fixture = fixture};
    while ((remainder.rows = skr_test_number(fixture->db, ROWS)) > 0)
        assert_true(skr_test_eventually(fewer_are_left, &remainder, WAIT_MS));
    stop(fixture);
    assert_all_arrived(fixture, "order.good", 1000);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    assert_in_range(fixture->closings, 20, 40);
}

static enum skr_publish_result
return_stuck(const struct skr_fake_message *message, size_t count, void *user)
{
    return strcmp(message->name, "order.stuck") == 0
               ? SKR_UNROUTABLE
               : return_nowhere(message, count, user);
}

enum { SLOW_ROUTES = 10, EACH_ROUTE = 100 };

static bool
all_routes_wait(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->closings, __ATOMIC_ACQUIRE) > SLOW_ROUTES;
}

static bool
only_stuck_is_left(void *user)
{
    const struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 1;
}

// What waited at a gate is looked for in many reads, and meanwhile the next
// gate opens: what it holds lies before the place that was come to.
static void
test_routes_open_one_after_the_other_beside_one_that_stays_closed(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = return_stuck;
    fixture->options.unroutable = SKR_UNROUTABLE_WAIT;
    fixture->options.in_flight = 20;
    make_table(fixture, false, 0);  // sweeps are as rare as by default
    insert_named(fixture, "order.stuck", 0, 1);
    for (int i = 0; i < EACH_ROUTE; i++)
        for (int route = 0; route < SLOW_ROUTES; route++) {
            char name[32];
            snprintf(name, sizeof(name), "nowhere.at.key%d", route);
            insert_named(fixture, name, i, i + 1);
        }
    start(fixture);
    assert_true(skr_test_eventually(all_routes_wait, fixture, WAIT_MS));
    atomic_store(&trouble, false);
    assert_true(skr_test_eventually(only_stuck_is_left, fixture, WAIT_MS));
    stop(fixture);
}

static bool
many_failed_and_good_ones_arrived(void *user)
{
    struct fixture *fixture = user;
    return count_confirmed(fixture) >= 1000 &&
           skr_test_number(fixture->db, ROWS) == 200;
}

static void
test_one_mistake_does_not_fail_the_whole_backlog(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = return_lost;
    fixture->options.failure_limit = 100;
    insert_named(fixture, "order.lost", 0, 300);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(many_failed_and_good_ones_arrived, fixture,
                                    WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 100);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 200);
}

static void
test_rows_that_cannot_be_read_fail_so_many_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.failure_limit = 100;
    for (int i = 0; i < 300; i++)
        insert_with_headers(fixture, "{}", "no type");
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(many_failed_and_good_ones_arrived, fixture,
                                    WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 100);
}

static enum skr_publish_result
close_exchange(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->exchange, "gone.exchange") == 0 &&
                   atomic_load(&trouble)
               ? SKR_ROUTE_UNAVAILABLE
               : SKR_CONFIRMED;
}

static void
test_a_missing_exchange_makes_its_messages_wait(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = close_exchange;
    insert_named(fixture, "gone.exchange.a", 0, 600);
    insert_named(fixture, "gone.exchange.b", 0, 600);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    atomic_store(&trouble, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_all_arrived(fixture, "gone.exchange.a", 600);
    assert_all_arrived(fixture, "gone.exchange.b", 600);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static enum skr_publish_result
close_exchange_and_refuse_the_first(const struct skr_fake_message *message,
                                    size_t count, void *user)
{
    bool *was_refused = user;
    bool is_refused =
        strcmp(message->body, "gone.exchange.a 0") == 0 && count > 1;
    *was_refused = *was_refused || is_refused;
    return is_refused     ? SKR_REFUSED_FOR_NOW
           : *was_refused ? SKR_CONFIRMED
                          : SKR_ROUTE_UNAVAILABLE;
}

static bool
others_have_arrived(void *user)
{
    const struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 1;
}

// The one that found the exchange again waits for its own time, and may be
// another relay's then.
static void
test_one_that_tried_and_was_refused_holds_up_no_other(void **state)
{
    struct fixture *fixture = *state;
    bool was_refused = false;
    fixture->fake.result = close_exchange_and_refuse_the_first;
    fixture->fake.user = &was_refused;
    fixture->options.retry.delay_ms = 3600 * 1000;
    insert_named(fixture, "gone.exchange.a", 0, 100);
    start(fixture);
    assert_true(skr_test_eventually(others_have_arrived, fixture, WAIT_MS));
    stop(fixture);
}

static bool
others_wait(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->closings, __ATOMIC_ACQUIRE) > 0;
}

// What begins with "audit." goes to a sender of its own.
static void
add_other_sender(struct fixture *fixture, struct skr_sender_options both[2])
{
    static const struct skr_route_rule rules[] = {
        {.pattern = "audit.#", .sender = 1}};
    static const struct skr_routes routes = {
        .rules = rules, .rule_count = 1, .senders = senders};
    both[0] = both[1] = fixture->sender;
    both[1].name = "other";
    both[1].options.url = "fake://other";
    fixture->options.senders = both;
    fixture->options.sender_count = 2;
    fixture->options.routes = &routes;
}

// Messages for both, of which the other takes none while the flag is set.
static void
assert_first_is_not_held_up(struct fixture *fixture, bool *flag)
{
    struct skr_sender_options both[2];
    add_other_sender(fixture, both);
    skr_fake_set(&fixture->fake, flag, true);
    insert_named(fixture, "audit.seen", 0, 50);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    assert_true(skr_test_eventually(others_wait, fixture, WAIT_MS));
    skr_fake_set(&fixture->fake, flag, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
    assert_all_arrived(fixture, "audit.seen", 50);
}

static void
test_another_sender_may_be_away_without_holding_up_the_first(void **state)
{
    struct fixture *fixture = *state;
    assert_first_is_not_held_up(fixture, &fixture->fake.other_is_down);
    for (size_t i = 0; i < fixture->fake.got_count; i++) {
        const struct skr_fake_message *got = &fixture->fake.got[i];
        assert_string_equal(got->sender, strcmp(got->name, "audit.seen") == 0
                                             ? "other"
                                             : "test");
    }
}

static void
test_another_sender_may_hang_without_holding_up_the_first(void **state)
{
    struct fixture *fixture = *state;
    assert_first_is_not_held_up(fixture, &fixture->fake.other_hangs);
}

static void
test_another_sender_may_be_silent_without_holding_up_the_first(void **state)
{
    struct fixture *fixture = *state;
    // All of the window is the silent one's to begin with.
    fixture->options.in_flight = 40;
    assert_first_is_not_held_up(fixture, &fixture->fake.other_is_silent);
    assert_non_null(strstr(fixture->closed, "transport other waits"));
}

static void
test_another_sender_may_be_blocked_without_holding_up_the_first(void **state)
{
    struct fixture *fixture = *state;
    assert_first_is_not_held_up(fixture, &fixture->fake.other_is_blocked);
    assert_non_null(strstr(fixture->closed, "blocked"));
}

static enum skr_publish_result
lose_the_other(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)user;
    return strcmp(message->sender, "other") == 0 && count == 1 ? SKR_UNCERTAIN
                                                               : SKR_CONFIRMED;
}

static void
test_another_sender_that_is_lost_gets_its_messages_again(void **state)
{
    struct fixture *fixture = *state;
    struct skr_sender_options both[2];
    add_other_sender(fixture, both);
    fixture->fake.result = lose_the_other;
    insert_named(fixture, "audit.seen", 0, 3);
    insert_named(fixture, "order.good", 0, 1000);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->troubles, 0);
    assert_int_equal(fixture->fake.confirmed, 1003);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 0);
}

static void
test_another_sender_hears_of_a_stop_as_the_first_does(void **state)
{
    struct fixture *fixture = *state;
    struct skr_sender_options both[2];
    add_other_sender(fixture, both);
    insert_named(fixture, "audit.seen", 0, 1);
    insert_named(fixture, "order.good", 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(fixture->fake.other_wake_fd, fixture->fake.wake_fd);
}

static void
insert_by(struct skr_db *db, const char *headers)
{
    const struct skr_value value = skr_bind_text(headers);
    skr_test_run_template(
        db,
        "INSERT INTO messenger_outbox (body, headers, queue_name, created_at, "
        "available_at) VALUES ('late', ?, 'outbox', {now}, {now})",
        &value, 1);
}

// A transaction of another that has taken its id and not committed yet. On a
// database with one writer at a time there is no such thing.
static struct skr_db *
begin_late(struct fixture *fixture)
{
    if (!skr_test_writes_side_by_side(fixture->db))
        return NULL;
    struct skr_db *late = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(late, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_by(late, "{\"type\":\"order.late\"}");
    return late;
}

static void
commit_late(struct fixture *fixture, struct skr_db *late)
{
    if (late == NULL)
        insert_by(fixture->db, "{\"type\":\"order.late\"}");
    else
        assert_int_equal(skr_db_commit(late, NULL), SKR_OK);
    skr_db_close(late);
}

static bool
late_one_arrived(void *user)
{
    return count_confirmed(user) == 1001;
}

// Sweeps are rare, and rarer while something waits.
static void
assert_late_row_is_found_beside_closed_route(struct fixture *fixture)
{
    make_table(fixture, false, 0);
    fixture->fake.result = return_lost;
    fixture->options.unroutable = SKR_UNROUTABLE_WAIT;
    insert_named(fixture, "order.lost", 0, 700);
    start(fixture);
    assert_true(skr_test_eventually(others_wait, fixture, WAIT_MS));
    struct skr_db *late = begin_late(fixture);
    insert_named(fixture, "order.good", 0, 1000);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    commit_late(fixture, late);
    assert_true(skr_test_eventually(late_one_arrived, fixture, 60000));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, ROWS), 700);
}

static void
test_a_late_row_is_found_while_a_route_is_closed(void **state)
{
    assert_late_row_is_found_beside_closed_route(*state);
}

static void
test_a_late_row_is_found_by_one_who_sees_no_transactions(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.database_url = fixture->database.modest_url;
    assert_late_row_is_found_beside_closed_route(fixture);
}

static void
test_rows_that_cannot_be_failed_do_not_hold_up_others(void **state)
{
    struct fixture *fixture = *state;
    insert_named(fixture, "order.good", 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    skr_test_run(fixture->db, "ALTER TABLE messenger_messages "
                              "RENAME TO messenger_away");
    struct skr_db *late = begin_late(fixture);
    // More than a batch, and all of them stay where late ones are looked for.
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < 1200; i++)
        insert_with_headers(fixture, "{}", "no type");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    insert_named(fixture, "order.good", 1, 1000);
    assert_true(skr_test_eventually(good_ones_arrived, fixture, WAIT_MS));
    commit_late(fixture, late);
    assert_true(skr_test_eventually(late_one_arrived, fixture, WAIT_MS));
    skr_test_run(fixture->db, "ALTER TABLE messenger_away "
                              "RENAME TO messenger_messages");
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
    assert_int_equal(skr_test_number(fixture->db, FAILED), 1200);
}

static bool
two_are_closed(void *user)
{
    struct fixture *fixture = user;
    return __atomic_load_n(&fixture->closings, __ATOMIC_ACQUIRE) >= 2;
}

// What the other sender's broker says, or the only one's.
static atomic_int result_of_all;

static enum skr_publish_result
give_result_of_all(const struct skr_fake_message *message, size_t count,
                   void *user)
{
    (void)message;
    (void)count;
    (void)user;
    return (enum skr_publish_result)atomic_load(&result_of_all);
}

// The exchange is gone, then something else is the matter, then nothing.
static void
assert_two_gates_open(struct fixture *fixture, const char *name,
                      enum skr_publish_result second)
{
    fixture->fake.result = give_result_of_all;
    atomic_store(&result_of_all, SKR_ROUTE_UNAVAILABLE);
    insert_named(fixture, name, 0, 5);
    start(fixture);
    assert_true(skr_test_eventually(others_wait, fixture, WAIT_MS));
    atomic_store(&result_of_all, (int)second);
    assert_true(skr_test_eventually(two_are_closed, fixture, WAIT_MS));
    atomic_store(&result_of_all, SKR_CONFIRMED);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
}

static void
test_an_exchange_may_come_back_before_its_queue(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.unroutable = SKR_UNROUTABLE_WAIT;
    assert_two_gates_open(fixture, "gone.exchange.a", SKR_UNROUTABLE);
}

static void
test_another_sender_may_be_lost_while_its_exchange_is_tried(void **state)
{
    struct fixture *fixture = *state;
    struct skr_sender_options both[2];
    add_other_sender(fixture, both);
    assert_two_gates_open(fixture, "audit.seen", SKR_UNCERTAIN);
}

static bool
other_got_one(void *user)
{
    struct fixture *fixture = user;
    bool has_one = false;
    pthread_mutex_lock(&fixture->fake.lock);
    for (size_t i = 0; i < fixture->fake.got_count; i++)
        has_one = has_one || strcmp(fixture->fake.got[i].sender, "other") == 0;
    pthread_mutex_unlock(&fixture->fake.lock);
    return has_one;
}

static bool
six_are_left(void *user)
{
    const struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS) == 6;
}

// Of one batch some are under way, and some wait at a gate which opens.
static void
test_what_is_in_hand_when_its_gate_opens_goes_soon(void **state)
{
    struct fixture *fixture = *state;
    struct skr_sender_options both[2];
    add_other_sender(fixture, both);
    make_table(fixture, false, 0);  // sweeps are as rare as by default
    fixture->fake.result = close_exchange;
    insert_named(fixture, "gone.exchange.a", 0, 1);
    start(fixture);
    assert_true(skr_test_eventually(others_wait, fixture, WAIT_MS));
    skr_fake_set(&fixture->fake, &fixture->fake.other_is_silent, true);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_with_headers(fixture, "{\"type\":\"audit.seen\"}", "audit 0");
    for (int i = 1; i < 6; i++)
        insert_with_headers(fixture, "{\"type\":\"gone.exchange.a\"}", "gone");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_true(skr_test_eventually(other_got_one, fixture, WAIT_MS));
    atomic_store(&trouble, false);
    assert_true(skr_test_eventually(six_are_left, fixture, WAIT_MS));
    skr_fake_set(&fixture->fake, &fixture->fake.other_is_silent, false);
    assert_true(skr_test_eventually(outbox_is_empty, fixture, WAIT_MS));
    stop(fixture);
}

#define ROUTED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_routes, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ROUTED(test_a_full_queue_makes_its_route_wait_and_no_other),
        ROUTED(test_a_refusal_counts_only_while_others_get_through),
        ROUTED(test_what_no_queue_takes_fails_by_default),
        ROUTED(test_what_no_queue_takes_may_be_dropped),
        ROUTED(test_what_no_queue_takes_may_wait_for_one),
        ROUTED(test_hundreds_of_routes_may_wait_beside_good_ones),
        ROUTED(
            test_routes_open_one_after_the_other_beside_one_that_stays_closed),
        ROUTED(test_one_mistake_does_not_fail_the_whole_backlog),
        ROUTED(test_rows_that_cannot_be_read_fail_so_many_at_a_time),
        ROUTED(test_a_missing_exchange_makes_its_messages_wait),
        ROUTED(test_one_that_tried_and_was_refused_holds_up_no_other),
        ROUTED(test_an_exchange_may_come_back_before_its_queue),
        ROUTED(test_another_sender_may_be_lost_while_its_exchange_is_tried),
        ROUTED(test_what_is_in_hand_when_its_gate_opens_goes_soon),
        ROUTED(test_another_sender_may_be_away_without_holding_up_the_first),
        ROUTED(test_another_sender_may_hang_without_holding_up_the_first),
        ROUTED(test_another_sender_may_be_silent_without_holding_up_the_first),
        ROUTED(test_another_sender_may_be_blocked_without_holding_up_the_first),
        ROUTED(test_another_sender_that_is_lost_gets_its_messages_again),
        ROUTED(test_another_sender_hears_of_a_stop_as_the_first_does),
        ROUTED(test_a_late_row_is_found_while_a_route_is_closed),
        ROUTED(test_a_late_row_is_found_by_one_who_sees_no_transactions),
        ROUTED(test_rows_that_cannot_be_failed_do_not_hold_up_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
