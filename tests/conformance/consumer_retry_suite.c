// SPDX-License-Identifier: MIT
// Retries of deliveries whose broker cannot delay them.
#include "retry_world.h"

#include "inbox/consumer_internals.h"

#include <time.h>

static atomic_int second_attempts;

static enum skr_verdict
retry_chosen_once(const struct skr_delivery *delivery, struct skr_tx tx,
                  void *user, struct skr_error *reason)
{
    struct world *world = user;
    if (!is_chosen(world, delivery))
        return add_effect(delivery, tx, reason);
    world->last_attempt = delivery->attempt;
    if (delivery->attempt == 1)
        return SKR_RETRY;
    atomic_fetch_add(&second_attempts, 1);
    return add_effect(delivery, tx, reason);
}

static void
test_a_retry_is_a_row_and_the_original_is_acknowledged(void **state)
{
    struct world *world = *state;
    world->chosen = 1;
    send(0, 3);
    struct skr_consumer_counts counts = consume(world, retry_chosen_once);
    assert_int_equal(counts.handled, 2);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(fake->releases, 0);
    assert_effects(world, 3, 1);
    assert_int_equal(retry_rows(world), 1);
    assert_int_equal(failed_rows(world), 1);
    skr_test_assert_text(world->db, "SELECT body FROM messenger_messages", "1");
    assert_int_equal(skr_test_number(world->db,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE available_at > created_at"),
                     1);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "01890a5d-ac96-774b-bcce-000000000001"));
    assert_non_null(strstr(headers, "retryCount\\\":1"));
    free(headers);
    assert_int_equal(attempt_rows(world), 0);

    // Not due, it stays.
    assert_int_equal(consume(world, retry_chosen_once).handled, 0);
    make_rows_due(world);
    assert_int_equal(consume(world, retry_chosen_once).handled, 1);
    assert_int_equal(world->last_attempt, 2);
    assert_effects(world, 3, NONE);
    assert_int_equal(failed_rows(world), 0);
}

// A stranger's count of retries leaves a message its last try.
static void
test_a_count_from_outside_keeps_no_message_from_its_handler(void **state)
{
    struct world *world = *state;
    skr_fake_queue_add(
        fake,
        "{\"type\":\"order.placed\",\"X-Message-Id\":"
        "\"01890a5d-ac96-774b-bcce-000000000000\","
        "\"X-Message-Stamp-Symfony\\\\Component\\\\Messenger\\\\Stamp"
        "\\\\RedeliveryStamp\":\"[{\\\"retryCount\\\":1000000}]\"}",
        "0", NULL);
    world->options.max_retries = 2;
    world->chosen = NONE;
    assert_int_equal(consume(world, retry_chosen_once).handled, 1);
    assert_int_equal(failed_rows(world), 0);
    assert_effects(world, 1, NONE);
}

static int64_t
handled_with(struct world *world, const char *table, const char *before)
{
    world->chosen = NONE;
    world->options.deduplication_table = table;
    world->extras.deduplication_before = before;
    return (int64_t)consume(world, retry_chosen_once).handled;
}

// What the shared table held when this one was made counts, and what another
// consumer records there later does not.
static void
test_a_table_of_its_own_takes_over_from_the_shared_one(void **state)
{
    struct world *world = *state;
    world->extras.deduplication_auto_setup = true;
    send(0, 10);
    assert_int_equal(handled_with(world, NULL, NULL), 10);
    skr_test_run(world->db, "UPDATE message_broker_deduplication SET "
                            "processed_at = '2020-01-01 00:00:00'");
    // Each by itself, and many at once.
    send(0, 1);
    send(0, 100);
    assert_int_equal(
        handled_with(world, "own_dedup", "message_broker_deduplication"), 90);
    send(200, 80);
    assert_int_equal(handled_with(world, NULL, NULL), 80);
    send(200, 80);
    assert_int_equal(
        handled_with(world, "own_dedup", "message_broker_deduplication"), 80);
    // Without its mark, which cleaning takes away, nothing else is asked.
    skr_test_run(world->db,
                 "DELETE FROM own_dedup WHERE message_name LIKE 'message_b%'");
    send(0, 10);
    assert_int_equal(
        handled_with(world, "own_dedup", "message_broker_deduplication"), 10);
    skr_test_run(world->db, "DROP TABLE own_dedup");
}

static void
count_inheritances(void *user, enum skr_log_level level, const char *event,
                   const struct skr_log_field *fields, size_t count)
{
    int *inheritances = user;
    bool is_it = strcmp(event, "consumer.inherits") == 0;
    *inheritances += is_it;
    if (!is_it)
        return;
    assert_int_equal(level, SKR_LOG_WARNING);
    assert_int_equal(count, 4);
    assert_string_equal(fields[1].text, "own_dedup");
    assert_string_equal(fields[2].text, "message_broker_deduplication");
    assert_non_null(strstr(fields[3].text, "read_default: false"));
}

// It is said when it begins, and not to those who have said what they want.
static void
test_a_consumer_that_inherits_records_says_so_at_its_start(void **state)
{
    struct world *world = *state;
    static const char before[] = "message_broker_deduplication";
    int inheritances = 0;
    world->extras.warns_of_before = true;
    world->options.log = count_inheritances;
    world->options.log_user = &inheritances;
    // Nothing is recorded there yet.
    handled_with(world, NULL, NULL);
    handled_with(world, "own_dedup", before);
    assert_int_equal(inheritances, 0);
    skr_test_run(world->db, "DROP TABLE own_dedup");
    send(0, 10);
    handled_with(world, NULL, NULL);
    skr_test_run(world->db, "UPDATE message_broker_deduplication SET "
                            "processed_at = '2020-01-01 00:00:00'");
    world->extras.warns_of_before = false;
    handled_with(world, "own_dedup", before);
    assert_int_equal(inheritances, 0);
    world->extras.warns_of_before = true;
    handled_with(world, "own_dedup", before);
    assert_int_equal(inheritances, 1);
    // It has records of its own by now.
    send(20, 1);
    handled_with(world, "own_dedup", before);
    assert_int_equal(inheritances, 2);
    handled_with(world, "own_dedup", before);
    assert_int_equal(inheritances, 2);
    skr_test_run(world->db, "DROP TABLE own_dedup");
}

// A consumer that is new has nothing to take over.
static void
test_a_new_consumer_asks_no_other_table(void **state)
{
    struct world *world = *state;
    world->extras.deduplication_auto_setup = true;
    send(0, 10);
    assert_int_equal(handled_with(world, NULL, NULL), 10);
    skr_test_run(world->db, "UPDATE message_broker_deduplication SET "
                            "processed_at = '2020-01-01 00:00:00'");
    send(0, 10);
    assert_int_equal(handled_with(world, "own_dedup", NULL), 10);
    skr_test_run(world->db, "DROP TABLE own_dedup");
}

enum { DUPLICATES_MS = 20 };

struct warnings {
    struct skr_consumer *consumer;
    uint64_t over;        // deliveries that are over, in all
    atomic_int said;      // and the warnings
    atomic_int complete;  // those that name the table and the cure
};

static void
note_warning(void *user, enum skr_log_level level, const char *event,
             const struct skr_log_field *fields, size_t count)
{
    struct warnings *warnings = user;
    bool has_table = false, has_cure = false;
    if (strcmp(event, "consumer.only_duplicates") != 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const char *text = fields[i].text == NULL ? "" : fields[i].text;
        has_table |= strcmp(fields[i].name, "table") == 0 &&
                     strcmp(text, "message_broker_deduplication") == 0;
        has_cure |= strcmp(fields[i].name, "advice") == 0 &&
                    strstr(text, "deduplication.table_name") != NULL;
    }
    atomic_fetch_add(&warnings->complete,
                     level == SKR_LOG_WARNING && has_table && has_cure);
    atomic_fetch_add(&warnings->said, 1);
}

static bool
is_all_over(void *user)
{
    const struct warnings *warnings = user;
    struct skr_consumer_counts counts = skr_consumer_counts(warnings->consumer);
    return counts.handled + counts.duplicates == warnings->over;
}

static void
deliver(struct warnings *warnings, size_t first, size_t count)
{
    warnings->over += count;
    send(first, count);
    assert_true(skr_test_eventually(is_all_over, warnings, 20000));
}

// So many in a row, the last of them so late that it may be said.
static void
deliver_duplicates(struct warnings *warnings, size_t count)
{
    deliver(warnings, 0, count - 1);
    skr_clock_sleep(-1, 2 * DUPLICATES_MS);
    deliver(warnings, 0, 1);
}

// One that is handled; what was to be said of those before it has been.
static void
deliver_new(struct warnings *warnings)
{
    static size_t next = 100;
    deliver(warnings, next++, 1);
}

static void
test_a_consumer_that_finds_only_duplicates_says_so_once(void **state)
{
    struct world *world = *state;
    struct warnings warnings = {0};
    struct running running;
    world->chosen = NONE;
    world->extras.duplicates_ms = DUPLICATES_MS;
    world->options.log = note_warning;
    world->options.log_user = &warnings;
    send(0, 20);
    warnings.over = 20;
    start_running(&running, world, retry_chosen_once);
    warnings.consumer = running.consumer;
    assert_true(skr_test_eventually(is_all_over, &warnings, 20000));
    // Few may be chance.
    deliver_duplicates(&warnings, 9);
    deliver_new(&warnings);
    assert_int_equal(warnings.said, 0);
    deliver_duplicates(&warnings, 10);
    deliver_duplicates(&warnings, 10);
    deliver_new(&warnings);
    assert_int_equal(warnings.said, 1);
    deliver_duplicates(&warnings, 10);
    deliver_new(&warnings);
    assert_int_equal(warnings.said, 2);
    stop_running(&running);
    assert_int_equal(warnings.complete, 2);
}

struct told {
    struct skr_consumer *consumer;
    struct skr_db *db;
    bool is_gone;
    uint64_t lines;  // about the queue of retries
    int64_t end_ms;
};

static void
count_told(void *user, enum skr_log_level level, const char *event,
           const struct skr_log_field *fields, size_t count)
{
    struct told *told = user;
    (void)level;
    (void)fields;
    (void)count;
    told->lines += strcmp(event, "consumer.retry_trouble") == 0;
}

// Asked by the consumer's own thread: looks at once, and when it has done so
// some times without a line a minute has passed.
static bool
has_told_often(void *user)
{
    struct told *told = user;
    struct sources *sources = &told->consumer->sources;
    sources->retry_again_ms = 0;
    // Missing from the start it would be a mistake.
    if (told->consumer->connection.was_ready && !told->is_gone) {
        told->is_gone = true;
        skr_test_run(told->db, "ALTER TABLE messenger_messages RENAME TO away");
    }
    if (told->lines > 0 && sources->retry_trouble.repeats >= 3 * told->lines)
        sources->retry_trouble.logged_ms -= 60000;
    return told->lines == 3 || skr_clock_ms() > told->end_ms;
}

static void
test_a_queue_of_retries_that_is_gone_is_told_of_each_minute(void **state)
{
    struct world *world = *state;
    struct told told = {.db = world->db, .end_ms = skr_clock_ms() + 30000};
    consume(world, accept_order);  // makes the tables
    world->extras.auto_setup = false;
    world->extras.stop_when_empty = false;
    world->extras.sleep_ms = 1;
    world->extras.is_over = has_told_often;
    world->extras.user = &told;
    world->options.log = count_told;
    world->options.log_user = &told;
    told.consumer = open_consumer(world, accept_order);
    run_until_empty(told.consumer);
    skr_consumer_close(told.consumer);
    assert_int_equal(told.lines, 3);
}

static time_t
time_in(struct world *world, const char *column)
{
    char sql[80];
    struct tm parts = {0};
    snprintf(sql, sizeof(sql), "SELECT %s FROM messenger_messages", column);
    char *text = skr_test_text(world->db, sql);
    assert_non_null(strptime(text, "%Y-%m-%d %H:%M:%S", &parts));
    free(text);
    return timegm(&parts);
}

// The second in which the row was made may be all but over.
static void
test_a_retry_in_a_row_is_never_early(void **state)
{
    struct world *world = *state;
    world->options.retry_delay_ms = 3500;  // less than 4 s, and more than 3
    send(0, 1);
    consume(world, retry_chosen_once);
    int64_t delay_s =
        time_in(world, "available_at") - time_in(world, "created_at");
    assert_in_range(delay_s, 4, 5);
}

// A table keeps whole seconds: a retry is due with the first that is not early.
static void
test_a_retry_in_a_row_is_at_most_a_second_late(void **state)
{
    struct world *world = *state;
    int64_t least_s = INT64_MAX;
    world->options.retry_delay_ms = 1001;
    world->options.retry_jitter = -1;
    // In the last millisecond of a second it is one more.
    for (size_t i = 0; i < 5 && least_s != 2; i++) {
        send(i, 1);
        world->chosen = i;
        consume(world, retry_chosen_once);
        int64_t delay_s =
            time_in(world, "available_at") - time_in(world, "created_at");
        assert_in_range(delay_s, 2, 3);
        least_s = delay_s;
        skr_test_run(world->db, "DELETE FROM messenger_messages");
    }
    assert_int_equal(least_s, 2);
}

static void
test_retries_are_looked_for_with_each_second_of_the_server(void **state)
{
    (void)state;
    static const struct {
        bool has_rows;
        int64_t second_ms, least, most;
    } cases[] = {
        {false, 0, 1000, 1000},
        {true, 0, 1001, 1050},
        {true, 250, 751, 800},
        {true, 999, 2, 50},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        int64_t wait_ms = skr_retries_next_look_ms(77000, cases[i].has_rows,
                                                   cases[i].second_ms) -
                          77000;
        assert_in_range(wait_ms, cases[i].least, cases[i].most);
    }
}

static void
test_an_id_that_only_the_broker_knew_goes_with_the_row(void **state)
{
    struct world *world = *state;
    static const char id[] = "01890a5d-ac96-774b-bcce-000000000007";
    world->chosen = 7;
    skr_fake_queue_add(fake, "{\"type\":\"order.placed\"}", "7", id);
    consume(world, retry_chosen_once);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, id));
    free(headers);
    make_rows_due(world);
    assert_int_equal(consume(world, retry_chosen_once).handled, 1);
    // It is known to have been handled.
    skr_fake_queue_add(fake, "{\"type\":\"order.placed\"}", "7", id);
    assert_int_equal(consume(world, retry_chosen_once).duplicates, 1);
}

static void
test_retries_in_rows_run_out_into_the_failed_table(void **state)
{
    struct world *world = *state;
    world->chosen = 1;
    world->options.max_retries = 2;
    send(0, 3);
    for (size_t round = 0; round < 3; round++) {
        consume(world, always_retry_chosen);
        make_rows_due(world);
    }
    assert_int_equal(world->last_attempt, 3);
    assert_int_equal(retry_rows(world), 0);
    assert_int_equal(rows_of_failures(world), 1);
    assert_effects(world, 3, 1);
    char *headers =
        skr_test_text(world->db, "SELECT headers FROM messenger_messages");
    assert_non_null(strstr(headers, "no stock of apples"));
    assert_non_null(strstr(headers, "originalReceiverName\\\":\\\"shop"));
    free(headers);
    assert_int_equal(attempt_rows(world), 0);
}

static void
test_what_its_broker_cannot_delay_waits_in_a_row(void **state)
{
    struct world *world = *state;
    world->chosen = 1;
    fake->refuses_retries = true;
    send(0, 3);
    struct skr_consumer_counts counts = consume(world, retry_chosen_once);
    assert_int_equal(counts.handled, 2);
    assert_int_equal(counts.retried, 1);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(fake->releases, 0);
    assert_int_equal(retry_rows(world), 1);
    assert_int_equal(attempt_rows(world), 0);
    make_rows_due(world);
    assert_int_equal(consume(world, retry_chosen_once).handled, 1);
    assert_int_equal(world->last_attempt, 2);
    assert_effects(world, 3, NONE);
    assert_int_equal(failed_rows(world), 0);
}

static enum skr_verdict
retry_chosen_twice(const struct skr_delivery *delivery, struct skr_tx tx,
                   void *user, struct skr_error *reason)
{
    struct world *world = user;
    if (is_chosen(world, delivery) && skr_fake_queue_holds(fake) < 2)
        return SKR_RETRY;
    return add_effect(delivery, tx, reason);
}

static void
test_without_a_queue_of_retries_it_waits_in_hand(void **state)
{
    struct world *world = *state;
    world->chosen = 1;
    world->options.retry_broker = NULL;
    world->options.retry_delay_ms = 10;
    fake->refuses_retries = true;
    send(0, 3);
    assert_int_equal(consume(world, retry_chosen_twice).handled, 3);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
    assert_int_equal(skr_fake_queue_holds(fake), 2);
    assert_int_equal(fake->releases, 0);
    assert_effects(world, 3, NONE);
    assert_int_equal(failed_rows(world), 0);
}

static void
test_what_cannot_be_understood_never_waits_for_a_retry(void **state)
{
    struct world *world = *state;
    skr_fake_queue_add(fake, "not json", "{}", NULL);
    skr_fake_queue_add(fake, "{\"type\":\"order.placed\"}", "1", NULL);
    send(2, 1);
    assert_int_equal(consume(world, accept_order).failed, 2);
    assert_int_equal(retry_rows(world), 0);
    assert_int_equal(rows_of_failures(world), 2);
    assert_int_equal(skr_fake_queue_waiting(fake), 0);
}

static bool
has_no_retries(void *user)
{
    return retry_rows(user) == 0;
}

struct traffic {
    struct world *world;
    size_t next;
    bool is_busy;
};

static bool
is_retried(void *user)
{
    struct traffic *traffic = user;
    if (traffic->is_busy && skr_fake_queue_waiting(fake) < 20 &&
        traffic->next < 4000) {
        send(traffic->next, 20);
        traffic->next += 20;
    }
    return atomic_load(&second_attempts) > 0;
}

static void
check_promptness(struct world *world, bool is_busy)
{
    struct running running;
    struct traffic traffic = {.world = world, .next = 1, .is_busy = is_busy};
    consume(world, retry_chosen_once);  // makes the tables
    atomic_store(&second_attempts, 0);
    world->chosen = 0;
    world->options.retry_delay_ms = 1000;
    world->extras.sleep_ms = 60000;
    start_running(&running, world, retry_chosen_once);
    int64_t start_ms = skr_clock_ms();
    send(0, 1);
    assert_true(skr_test_eventually(is_retried, &traffic, 20000));
    // Up to two seconds until it is due, one until it is found, and what a slow
    // machine adds to it.
    assert_in_range(skr_clock_ms() - start_ms, 500, 6000);
    assert_true(skr_test_eventually(has_no_retries, world, 20000));
    stop_running(&running);
}

static void
test_a_due_retry_does_not_wait_for_a_silent_broker(void **state)
{
    check_promptness(*state, false);
}

static void
test_a_due_retry_passes_a_busy_broker(void **state)
{
    check_promptness(*state, true);
}

static enum skr_verdict
retry_all_once(const struct skr_delivery *delivery, struct skr_tx tx,
               void *user, struct skr_error *reason)
{
    struct world *world = user;
    atomic_fetch_add(&world->calls, 1);
    return delivery->attempt == 1 ? SKR_RETRY
                                  : add_effect(delivery, tx, reason);
}

static void
test_consumers_share_the_retries(void **state)
{
    struct world *world = *state;
    struct running running[3];
    send(0, 60);
    consume(world, retry_all_once);
    assert_int_equal(retry_rows(world), 60);
    make_rows_due(world);
    atomic_store(&world->calls, 0);
    for (size_t i = 0; i < SKR_COUNT_OF(running); i++)
        start_running(&running[i], world, retry_all_once);
    assert_true(skr_test_eventually(has_no_retries, world, 30000));
    for (size_t i = 0; i < SKR_COUNT_OF(running); i++)
        stop_running(&running[i]);
    assert_effects(world, 60, NONE);
    assert_int_equal(world->calls, 60);
}

static void
test_an_idle_consumer_asks_for_retries_once_a_second(void **state)
{
    struct world *world = *state;
    struct running running;
    consume(world, accept_order);
    world->options.database = skr_faulty_database(world->database.ops);
    start_running(&running, world, accept_order);
    // What the start costs is over by then.
    skr_clock_sleep(-1, 1500);
    size_t before = skr_faulty_runs();
    int64_t start_ms = skr_clock_ms();
    skr_clock_sleep(-1, 6000);
    size_t runs = skr_faulty_runs() - before;
    int64_t seconds = (skr_clock_ms() - start_ms + 999) / 1000;
    stop_running(&running);
    assert_in_range(runs, 4, seconds + 1);
}

static bool
chosen_has_passed(void *user)
{
    return effect_rows(user) == 3;
}

static void
test_retries_go_on_while_the_broker_is_away(void **state)
{
    struct world *world = *state;
    struct running running;
    world->chosen = 1;
    send(0, 3);
    consume(world, retry_chosen_once);
    assert_effects(world, 3, 1);
    skr_fake_queue_set_away(fake, true);
    start_running(&running, world, retry_chosen_once);
    assert_true(skr_test_eventually(has_trouble, world, 20000));
    make_rows_due(world);
    assert_true(skr_test_eventually(chosen_has_passed, world, 20000));
    // And so does the broker, as soon as it is back.
    skr_fake_queue_set_away(fake, false);
    send(3, 1);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    stop_running(&running);
    assert_effects(world, 4, NONE);
    assert_int_equal(failed_rows(world), 0);
}

static bool
others_have_passed(void *user)
{
    return effect_rows(user) == 30;
}

// What cannot be stored is deferred, tried slowly, and stored once it can be.
static void
check_unkept(struct world *world, skr_handler_fn *handler, int64_t retries,
             int64_t failures)
{
    struct running running;
    consume(world, handler);  // makes the tables
    world->extras.auto_setup = false;
    send(0, 1);
    start_running(&running, world, handler);
    assert_true(skr_test_eventually(has_nothing_waiting, world, 20000));
    skr_test_run(world->db, "ALTER TABLE messenger_messages RENAME TO away");
    world->chosen = 1;
    send(1, 30);
    assert_true(skr_test_eventually(others_have_passed, world, 20000));
    assert_true(skr_test_eventually(has_trouble, world, 20000));
    // The first pause, and some of the next.
    skr_clock_sleep(-1, 2500);
    assert_int_equal(skr_fake_queue_waiting(fake), 1);
    assert_in_range(skr_fake_queue_holds(fake), 1, 3);
    assert_int_equal(skr_fake_queue_releases(fake), 0);
    skr_test_run(world->db, "ALTER TABLE away RENAME TO messenger_messages");
    assert_true(skr_test_eventually(has_nothing_waiting, world, 30000));
    stop_running(&running);
    assert_int_equal(retry_rows(world), retries);
    assert_int_equal(rows_of_failures(world), failures);
    assert_effects(world, 31, 1);
    assert_int_equal(attempt_rows(world), 0);
}

static enum skr_verdict
reject_chosen(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
              struct skr_error *reason)
{
    return is_chosen(user, delivery) ? SKR_REJECT
                                     : add_effect(delivery, tx, reason);
}

static void
test_what_the_failed_table_does_not_take_does_not_spin(void **state)
{
    struct world *world = *state;
    world->chosen = NONE;
    check_unkept(world, reject_chosen, 0, 1);
}

static void
test_a_retry_that_cannot_be_stored_does_not_spin(void **state)
{
    struct world *world = *state;
    world->chosen = NONE;
    check_unkept(world, always_retry_chosen, 1, 0);
}

static void
test_without_a_place_for_retries_it_does_not_begin(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    world->options.retry_broker = NULL;
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    assert_int_equal(skr_consumer_run(consumer, &error), SKR_INVALID);
    assert_non_null(strstr(error.text, "retry_broker"));
    skr_consumer_close(consumer);
}

static void
test_a_missing_table_is_named_with_its_cure(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    consume(world, accept_order);
    world->extras = (struct skr_consumer_extras){.stop_when_empty = true};
    skr_test_run(world->db, "DROP TABLE skirnir_attempt");
    struct skr_consumer *consumer = open_consumer(world, accept_order);
    assert_int_equal(skr_consumer_run(consumer, &error), SKR_MISSING);
    assert_non_null(strstr(error.text, "skirnir_attempt"));
    assert_non_null(
        strstr(error.text, "`skirnir setup-deduplication --force`"));
    skr_consumer_close(consumer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_retry_is_a_row_and_the_original_is_acknowledged),
        TEST(test_a_retry_in_a_row_is_never_early),
        TEST(test_a_retry_in_a_row_is_at_most_a_second_late),
        TEST(test_retries_are_looked_for_with_each_second_of_the_server),
        TEST(test_a_count_from_outside_keeps_no_message_from_its_handler),
        TEST(test_a_table_of_its_own_takes_over_from_the_shared_one),
        TEST(test_a_new_consumer_asks_no_other_table),
        TEST(test_a_queue_of_retries_that_is_gone_is_told_of_each_minute),
        TEST(test_a_consumer_that_inherits_records_says_so_at_its_start),
        TEST(test_a_consumer_that_finds_only_duplicates_says_so_once),
        TEST(test_an_id_that_only_the_broker_knew_goes_with_the_row),
        TEST(test_retries_in_rows_run_out_into_the_failed_table),
        TEST(test_what_its_broker_cannot_delay_waits_in_a_row),
        TEST(test_without_a_queue_of_retries_it_waits_in_hand),
        TEST(test_what_cannot_be_understood_never_waits_for_a_retry),
        TEST(test_a_due_retry_does_not_wait_for_a_silent_broker),
        TEST(test_a_due_retry_passes_a_busy_broker),
        TEST(test_consumers_share_the_retries),
        TEST(test_an_idle_consumer_asks_for_retries_once_a_second),
        TEST(test_retries_go_on_while_the_broker_is_away),
        TEST(test_what_the_failed_table_does_not_take_does_not_spin),
        TEST(test_a_retry_that_cannot_be_stored_does_not_spin),
        TEST(test_without_a_place_for_retries_it_does_not_begin),
        TEST(test_a_missing_table_is_named_with_its_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
