// SPDX-License-Identifier: MIT
// Rows that the database refuses to change: they hold up no other, and what was
// published is not sent again by this process.
#include "relay_ordered_world.h"
#include "store/kafka_outbox/kafka_outbox.h"

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

// Gone, or marked: a row may be tried while the one is refused and the other no
// longer is.
static bool
mended_ones_are_settled(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, ROWS
                           " WHERE body = 'bad' AND (delivered_at IS NULL "
                           "OR delivered_at < '9999-12-31 00:00:00')") == 0;
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

static enum skr_publish_result
refuse_bad(const struct skr_fake_message *message, size_t count, void *user)
{
    (void)count;
    (void)user;
    return strcmp(message->body, "bad") == 0 ? SKR_REFUSED_FOR_GOOD
                                             : SKR_CONFIRMED;
}

static enum skr_publish_result
refuse_bad_once(const struct skr_fake_message *message, size_t count,
                void *user)
{
    (void)user;
    return strcmp(message->body, "bad") == 0 && count == 1 ? SKR_REFUSED_FOR_NOW
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
    // The next relay knows as well that it is done.
    insert(fixture, GOOD, GOOD + 1);
    run_until_empty(fixture);
    assert_int_equal(skr_fake_got(&fixture->fake), GOOD + 2);
    assert_int_equal(count_bad(fixture), 1);
}

// Rows are claimed one by one, as beside workers of Symfony.
static void
test_a_row_that_cannot_be_claimed_is_parked(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.claim = SKR_CLAIM_LEASED;
    insert(fixture, 0, 10);
    insert_bad(fixture, NULL, 2);
    insert(fixture, 10, GOOD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    insert(fixture, GOOD, GOOD + 1);
    assert_eventually(fixture, good_ones_are_gone);
    assert_int_equal(count_bad(fixture), 0);
    assert_int_equal(fixture->parked, 2);
    skr_test_allow(fixture->db, "UPDATE");
    assert_eventually(fixture, bad_ones_are_gone);
    stop_quickly(fixture);
    assert_int_equal(fixture->parked, 2);
    assert_int_equal(skr_fake_got(&fixture->fake), GOOD + 3);
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
    skr_test_allow(fixture->db, "DELETE");
    skr_test_allow(fixture->db, "UPDATE");
    assert_eventually(fixture, mended_ones_are_settled);
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

// All that are parked, however many are refused once more among them.
static void
test_all_parked_rows_are_tried_when_it_is_time(void **state)
{
    enum { PARKED = 600, STAYS = 50 };
    struct fixture *fixture = *state;
    fixture->options.park_ms = 4000;
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < PARKED; i++)
        insert_with_headers(fixture, HEADERS,
                            i % STAYS == 0 ? "bad stays" : "bad");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    insert(fixture, 0, 1);
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, good_ones_are_gone);
    skr_test_allow(fixture->db, "DELETE");
    skr_test_allow(fixture->db, "UPDATE");
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE",
                    "OLD.body = 'bad stays'");
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE",
                    "OLD.body = 'bad stays'");
    assert_eventually(fixture, mended_ones_are_settled);
    stop_quickly(fixture);
    assert_int_equal(skr_fake_got(&fixture->fake), PARKED + 1);
}

static bool
new_one_is_sent(void *user)
{
    struct fixture *fixture = user;
    bool is_sent = false;
    pthread_mutex_lock(&fixture->fake.lock);
    for (size_t i = 0; i < fixture->fake.got_count; i++)
        is_sent |= strcmp(fixture->fake.got[i].body, "new") == 0;
    pthread_mutex_unlock(&fixture->fake.lock);
    return is_sent;
}

// The table is made anew under the relay, and gives its ids once more.
static void
test_a_new_row_with_the_id_of_a_parked_one_is_sent(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value age = skr_bind_integer(60);
    insert_bad(fixture, NULL, 1);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET created_at = "
                          "{now_minus}",
                          &age, 1);
    const struct skr_value row = skr_bind_integer(
        skr_test_number(fixture->db, "SELECT MAX(id) FROM messenger_outbox"));
    skr_test_refuse(fixture->db, "messenger_outbox", "DELETE", BAD);
    skr_test_refuse(fixture->db, "messenger_outbox", "UPDATE", BAD);
    start(fixture);
    assert_eventually(fixture, has_parked);
    skr_test_run(fixture->db, "DROP TABLE messenger_outbox");
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    skr_test_run_template(fixture->db,
                          "INSERT INTO messenger_outbox (id, body, headers, "
                          "queue_name, created_at, available_at) VALUES "
                          "(?, 'new', '[]', 'outbox', {now}, {now})",
                          &row, 1);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET headers = '" HEADERS
                              "' WHERE body = 'new'");
    assert_eventually(fixture, outbox_is_empty);
    stop_quickly(fixture);
    assert_true(new_one_is_sent(fixture));
    assert_int_equal(count_bad(fixture), 1);
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
    fixture->fake.result = refuse_bad;
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
    fixture->fake.result = refuse_bad_once;
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
    fixture->fake.result = refuse_bad_once;
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
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
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
    // And a relay that reads the partition anew.
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
    fixture->fake.result = refuse_bad;
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
    assert_is_id_of(fixture, fixture->parked_id, "bad");
    assert_is_id_of(fixture, fixture->refused_id, "bad");
    // Not in a loop: a few times a second at the most.
    assert_true(count_bad(fixture) < 40);
}

static void
test_a_head_whose_headers_cannot_be_written_is_blocked(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_bad;
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
    fixture->fake.result = refuse_bad;
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

// ---------------------------------------------------------------- kafka_outbox

#define KAFKA_OPEN                                                       \
    "SELECT COUNT(*) FROM kafka_outbox WHERE push_completed_at IS NULL " \
    "AND errored = 0"
#define KAFKA_BAD "CAST(OLD.payload_json AS CHAR(40)) LIKE '%bad%'"

static int
set_up_kafka_outbox(void **state)
{
    set_up(state);
    struct fixture *fixture = *state;
    const struct skr_kafka_outbox_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .marks = true,
    };
    skr_store_free(fixture->table);
    assert_int_equal(skr_kafka_outbox_new(&options, &fixture->table, NULL),
                     SKR_OK);
    fixture->options.table = fixture->table;
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    return 0;
}

static void
insert_records(struct fixture *fixture, const char *key, const char *payload,
               int count)
{
    const struct skr_value values[] = {skr_bind_text(payload),
                                       skr_bind_text(key)};
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < count; i++)
        skr_test_run_template(fixture->db,
                              "INSERT INTO kafka_outbox (topic, payload_json, "
                              "{key}) VALUES ('orders', ?, ?)",
                              values, SKR_COUNT_OF(values));
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static size_t
count_records(struct fixture *fixture, const char *part)
{
    size_t count = 0;
    pthread_mutex_lock(&fixture->fake.lock);
    for (size_t i = 0; i < fixture->fake.got_count; i++)
        count += strstr(fixture->fake.got[i].body, part) != NULL;
    pthread_mutex_unlock(&fixture->fake.lock);
    return count;
}

static enum skr_publish_result
refuse_bad_record(const struct skr_fake_message *message, size_t count,
                  void *user)
{
    (void)count;
    (void)user;
    return strstr(message->body, "bad") != NULL ? SKR_REFUSED_FOR_GOOD
                                                : SKR_CONFIRMED;
}

static bool
one_record_is_open(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, KAFKA_OPEN) == 1;
}

static bool
two_records_are_open(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, KAFKA_OPEN) == 2;
}

static bool
no_record_is_open(void *user)
{
    struct fixture *fixture = user;
    return skr_test_number(fixture->db, KAFKA_OPEN) == 0;
}

static void
test_a_record_that_cannot_be_marked_is_sent_once(void **state)
{
    struct fixture *fixture = *state;
    insert_records(fixture, "k", "[\"bad\"]", 1);
    insert_records(fixture, "k", "[\"good\"]", GOOD);
    skr_test_refuse(fixture->db, "kafka_outbox", "UPDATE", KAFKA_BAD);
    start(fixture);
    assert_true(skr_test_eventually(one_record_is_open, fixture, WAIT_MS));
    assert_true(has_parked(fixture));
    skr_test_allow(fixture->db, "UPDATE");
    assert_true(skr_test_eventually(no_record_is_open, fixture, WAIT_MS));
    stop_quickly(fixture);
    assert_int_equal(count_records(fixture, "bad"), 1);
    assert_int_equal(count_records(fixture, "good"), GOOD);
    assert_int_equal(fixture->settle_troubles, 0);
}

// The table is made anew under the relay, and gives its ids once more.
static void
test_a_new_record_with_the_id_of_a_parked_one_is_sent(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value age = skr_bind_integer(60);
    insert_records(fixture, "k", "[\"bad\"]", 1);
    skr_test_run_template(fixture->db,
                          "UPDATE kafka_outbox SET created_at = {now_minus}",
                          &age, 1);
    const struct skr_value row = skr_bind_integer(
        skr_test_number(fixture->db, "SELECT MAX(id) FROM kafka_outbox"));
    skr_test_refuse(fixture->db, "kafka_outbox", "UPDATE", KAFKA_BAD);
    start(fixture);
    assert_true(skr_test_eventually(has_parked, fixture, WAIT_MS));
    skr_test_run(fixture->db, "DROP TABLE kafka_outbox");
    assert_int_equal(skr_store_create(fixture->table, fixture->db, NULL),
                     SKR_OK);
    skr_test_run_template(fixture->db,
                          "INSERT INTO kafka_outbox (id, topic, payload_json, "
                          "{key}) VALUES (?, 'orders', '[\"new\"]', 'k')",
                          &row, 1);
    assert_true(skr_test_eventually(no_record_is_open, fixture, WAIT_MS));
    stop_quickly(fixture);
    assert_int_equal(count_records(fixture, "new"), 1);
    assert_int_equal(count_records(fixture, "bad"), 1);
}

static void
test_a_parked_record_holds_back_its_key_alone(void **state)
{
    struct fixture *fixture = *state;
    fixture->fake.result = refuse_bad_record;
    insert_records(fixture, "bad key", "[\"bad\"]", 1);
    insert_records(fixture, "k", "[\"good\"]", GOOD);
    skr_test_refuse(fixture->db, "kafka_outbox", "UPDATE", KAFKA_BAD);
    start(fixture);
    assert_true(skr_test_eventually(has_parked, fixture, WAIT_MS));
    insert_records(fixture, "bad key", "[\"behind\"]", 1);
    insert_records(fixture, "k", "[\"good\"]", 10);
    // It is read and sent again now and then, and what is behind it is not.
    while (count_records(fixture, "bad") < 4)
        skr_clock_sleep(-1, 2);
    assert_true(skr_test_eventually(two_records_are_open, fixture, WAIT_MS));
    assert_int_equal(count_records(fixture, "behind"), 0);
    assert_int_equal(count_records(fixture, "good"), GOOD + 10);
    skr_test_allow(fixture->db, "UPDATE");
    assert_true(skr_test_eventually(no_record_is_open, fixture, WAIT_MS));
    stop_quickly(fixture);
    assert_int_equal(count_records(fixture, "behind"), 1);
    assert_int_equal(fixture->parked, 1);
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

// The second of the key lies in the next batch; if it was marked now, a relay
// that is killed would have the first sent once more, behind it.
static void
test_a_record_is_marked_after_earlier_ones_of_its_key(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.in_flight = 8;
    skr_fake_set(&fixture->fake, &fixture->fake.withholds, true);
    insert_records(fixture, "other key", "[\"slow\"]", 1);
    insert_records(fixture, "k", "[\"good\"]", 2);
    insert_records(fixture, "new key", "[\"good\"]", 1);
    start(fixture);
    assert_true(skr_test_eventually(three_are_confirmed, fixture, WAIT_MS));
    assert_false(skr_test_eventually(two_records_are_open, fixture, 500));
    skr_fake_set(&fixture->fake, &fixture->fake.withholds, false);
    assert_true(skr_test_eventually(no_record_is_open, fixture, WAIT_MS));
    stop_quickly(fixture);
    assert_int_equal(count_records(fixture, "good"), 3);
}

#define KAFKA_OUTBOX(test) \
    cmocka_unit_test_setup_teardown(test, set_up_kafka_outbox, tear_down)

#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered_tables, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TABLES(
            test_a_published_row_that_cannot_be_deleted_is_marked_as_done),
        WITH_TABLES(test_a_row_that_cannot_be_claimed_is_parked),
        WITH_TABLES(test_published_rows_that_cannot_be_changed_are_parked),
        WITH_TABLES(test_parked_rows_do_not_count_as_in_flight),
        WITH_TABLES(test_an_end_with_parked_rows_is_no_empty_queue),
        WITH_TABLES(test_all_parked_rows_are_tried_when_it_is_time),
        WITH_TABLES(test_a_new_row_with_the_id_of_a_parked_one_is_sent),
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
        KAFKA_OUTBOX(test_a_record_that_cannot_be_marked_is_sent_once),
        KAFKA_OUTBOX(test_a_new_record_with_the_id_of_a_parked_one_is_sent),
        KAFKA_OUTBOX(test_a_parked_record_holds_back_its_key_alone),
        KAFKA_OUTBOX(test_a_record_is_marked_after_earlier_ones_of_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
