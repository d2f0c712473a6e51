// SPDX-License-Identifier: MIT
// Ordered queues that are shared by row locks: who gets which rows of which
// partitions.

#include "table_world.h"

#include "base/error.h"

enum { ROOM = 100 };

static const struct skr_read everything = {.max_rows = ROOM,
                                           .max_bytes = 1 << 20};

static enum skr_code
hold(struct fixture *fixture, struct skr_db *db, struct skr_position *position,
     struct skr_batch *batch)
{
    struct skr_error error = {0};
    enum skr_code code = SKR_OK;
    *position = fixture->position;
    // A round may end before it has come to what is there.
    for (int i = 0; i < 3 && code == SKR_OK && batch->count == 0; i++)
        code = fixture->table->ops->hold(fixture->table, db, position,
                                         &everything, batch, &error);
    if (code != SKR_OK && code != SKR_REFUSED)
        fail_msg("%s", error.text);
    return code;
}

static void
finish(struct fixture *fixture)
{
    set_states(fixture, SKR_DONE);
    settle(fixture);
    skr_batch_clear(&fixture->batch);
}

// Two workers may not have two rows of one partition, however the first is
// taking its time: that is where order is lost.
static void
test_who_has_the_head_has_the_partition(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position mine, other;
    struct skr_batch batch;
    assert_int_equal(skr_batch_init(&batch, ROOM, NULL), SKR_OK);
    struct skr_db *second = skr_test_connect(&fixture->database);
    for (int i = 1; i <= 3; i++)
        insert_keyed(fixture->db, "a", "a");
    if (hold(fixture, fixture->db, &mine, &fixture->batch) != SKR_REFUSED) {
        assert_int_equal(fixture->batch.count, 3);
        assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
        assert_int_equal(batch.count, 0);
        insert_keyed(second, "b", "b1");
        insert_keyed(second, "a", "a4");
        assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
        assert_int_equal(batch.count, 1);
        assert_string_equal(batch.items[0].partition_key, "b");
        fixture->batch.items[0].state = SKR_DONE;
        fixture->batch.items[1].state = SKR_RETRY_LATER;
        fixture->batch.items[1].delay_ms = 60000;
        settle(fixture);
        set_states(fixture, SKR_DONE);
        skr_db_rollback(second);
        skr_batch_clear(&batch);
        // The second waits for its time, and the third behind it.
        assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
        assert_int_equal(batch.count, 1);
        assert_string_equal(batch.items[0].partition_key, "b");
    }
    skr_db_close(second);
    skr_batch_fini(&batch);
}

static bool
can_hold(struct fixture *fixture)
{
    struct skr_position position;
    return hold(fixture, fixture->db, &position, &fixture->batch) !=
           SKR_REFUSED;
}

static void
assert_body(const struct skr_batch *batch, size_t index, const char *body)
{
    const struct skr_message *message = &batch->items[index].envelope.message;
    assert_in_range(index, 0, batch->count - 1);
    assert_int_equal(message->body_size, strlen(body));
    assert_memory_equal(message->body, body, strlen(body));
}

// Ids are given at the insert: who commits late has the new head. He who has
// the rows behind it in hand has the partition all the same.
static void
test_what_commits_late_makes_nobody_else_its_owner(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position mine, other;
    struct skr_batch batch;
    if (!can_hold(fixture))
        return;
    assert_int_equal(skr_batch_init(&batch, ROOM, NULL), SKR_OK);
    struct skr_db *early = skr_test_connect(&fixture->database);
    struct skr_db *second = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(early, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_keyed(early, "a", "late");
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    assert_int_equal(hold(fixture, fixture->db, &mine, &fixture->batch),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 2);
    assert_int_equal(skr_db_commit(early, NULL), SKR_OK);
    assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
    assert_int_equal(batch.count, 0);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
    assert_int_equal(batch.count, 1);
    assert_body(&batch, 0, "late");
    skr_db_close(second);
    skr_db_close(early);
    skr_batch_fini(&batch);
}

// Symfony leaves such rows where it deletes them later.
static void
test_finished_rows_do_not_hide_their_partition(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position position;
    if (!can_hold(fixture))
        return;
    insert_keyed(fixture->db, "a", "finished");
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "b", "finished");
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = "
                              "'9999-12-31 23:59:59' WHERE body = 'finished'");
    assert_int_equal(hold(fixture, fixture->db, &position, &fixture->batch),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 1);
    assert_body(&fixture->batch, 0, "a1");
}

static void
test_a_run_ends_before_what_is_not_ready(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position position;
    if (!can_hold(fixture))
        return;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "O:8:stdClass");
    insert_keyed(fixture->db, "a", "a3");
    insert_keyed(fixture->db, "b", "blocked");
    insert_keyed(fixture->db, "b", "b2");
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET headers = '[]' "
                              "WHERE body LIKE 'O:%'");
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET available_at = "
                              "'9999-12-31 23:59:59' WHERE body = 'blocked'");
    assert_int_equal(hold(fixture, fixture->db, &position, &fixture->batch),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 1);
    assert_body(&fixture->batch, 0, "a1");
}

// What finds no room is not kept from others.
static void
test_what_finds_no_room_is_not_locked(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position mine = fixture->position, other;
    struct skr_batch batch;
    char body[1000];
    if (!can_hold(fixture))
        return;
    memset(body, 'x', sizeof(body));
    body[sizeof(body) - 1] = '\0';
    insert_keyed(fixture->db, "a", "small");
    insert_keyed(fixture->db, "b", body);
    insert_keyed(fixture->db, "c", "small");
    assert_int_equal(skr_batch_init(&batch, ROOM, NULL), SKR_OK);
    struct skr_db *second = skr_test_connect(&fixture->database);
    const struct skr_read little = {.max_rows = ROOM, .max_bytes = 500};
    assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                               &mine, &little, &fixture->batch,
                                               NULL),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 1);
    assert_int_equal(hold(fixture, second, &other, &batch), SKR_OK);
    assert_int_equal(batch.count, 2);
    finish(fixture);
    skr_db_rollback(second);
    // Nor is it passed, and it travels alone.
    assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                               &mine, &little, &fixture->batch,
                                               NULL),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 1);
    assert_string_equal(fixture->batch.items[0].partition_key, "b");
    skr_db_close(second);
    skr_batch_fini(&batch);
}

static void
test_rows_without_a_key_take_turns_with_partitions(void **state)
{
    enum { PARTITIONS = 200, ROWS = 4, FREE = 300, CLAIMS = 9 };
    struct fixture *fixture = *state;
    struct skr_position position = fixture->position;
    char key[16];
    if (!can_hold(fixture))
        return;
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < PARTITIONS * ROWS; i++) {
        snprintf(key, sizeof(key), "key %d", i % PARTITIONS);
        insert_keyed(fixture->db, key, "{}");
    }
    for (int i = 0; i < FREE; i++)
        insert_keyed(fixture->db, "", "{}");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    for (int i = 0; i < CLAIMS; i++) {
        assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                                   &position, &everything,
                                                   &fixture->batch, NULL),
                         SKR_OK);
        assert_in_range(fixture->batch.count, 1, ROOM);
        finish(fixture);
    }
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE partition_key = ''"),
                     0);
    assert_in_range(count_rows(fixture, "messenger_outbox"), 0,
                    PARTITIONS * ROWS - 100);
}

enum { WIDE = 400, MANY = WIDE + 200, MOST_CLAIMS = 200 };

// Each with that many rows, which are equal.
static void
insert_partitions(struct fixture *fixture, int rows, const char *body)
{
    char key[16];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < MANY * rows; i++) {
        snprintf(key, sizeof(key), "key %d", i % MANY);
        insert_keyed(fixture->db, key, body);
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
}

static size_t
hold_on(struct fixture *fixture, struct skr_db *db,
        struct skr_position *position, struct skr_batch *batch)
{
    const struct skr_read read = {.max_rows = WIDE, .max_bytes = 1 << 20};
    assert_int_equal(fixture->table->ops->hold(fixture->table, db, position,
                                               &read, batch, NULL),
                     SKR_OK);
    return batch->count;
}

// How many rows came until there were no more.
static size_t
drain(struct fixture *fixture, struct skr_position *position)
{
    size_t came = 0;
    int claims = 0;
    do {
        came += hold_on(fixture, fixture->db, position, &fixture->batch);
        finish(fixture);
        assert_in_range(++claims, 1, MOST_CLAIMS);
    } while (position->has_more);
    return came;
}

// What is learnt of the size of rows comes from a few.
static void
make_room(struct fixture *fixture, struct skr_position *position)
{
    skr_batch_fini(&fixture->batch);
    assert_int_equal(skr_batch_init(&fixture->batch, WIDE, NULL), SKR_OK);
    insert_keyed(fixture->db, "first", "{}");
    assert_int_equal(drain(fixture, position), 1);
    position->next_sweep_ms = 1;
}

static void
assert_no_partition_twice(const struct skr_batch *one,
                          const struct skr_batch *other)
{
    for (size_t i = 0; i < one->count; i++)
        for (size_t k = 0; k < other->count; k++)
            assert_string_not_equal(one->items[i].partition_key,
                                    other->items[k].partition_key);
}

// Each is read as far as the page goes.
static void
test_many_short_partitions_are_claimed_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position mine = fixture->position, other;
    struct skr_batch batch;
    if (!can_hold(fixture))
        return;
    make_room(fixture, &mine);
    insert_partitions(fixture, 2, "{}");
    assert_int_equal(skr_batch_init(&batch, WIDE, NULL), SKR_OK);
    struct skr_db *second = skr_test_connect(&fixture->database);
    // The first page tells that runs are short.
    size_t few = hold_on(fixture, fixture->db, &mine, &fixture->batch);
    assert_in_range(few, 1, WIDE / 3);
    finish(fixture);
    other = mine;
    // What the page cuts, perhaps, is left to the next.
    assert_int_equal(hold_on(fixture, fixture->db, &mine, &fixture->batch),
                     WIDE - 2);
    // That page is another's, and the next is not.
    assert_int_equal(hold_on(fixture, second, &other, &batch), 0);
    assert_true(other.has_more);
    assert_int_equal(hold_on(fixture, second, &other, &batch), WIDE - 2);
    assert_no_partition_twice(&batch, &fixture->batch);
    skr_db_rollback(second);
    finish(fixture);
    assert_int_equal(drain(fixture, &mine), MANY * 2 - few - (WIDE - 2));
    skr_db_close(second);
    skr_batch_fini(&batch);
}

static bool
has_partition(const struct skr_batch *batch, const char *key)
{
    for (size_t i = 0; i < batch->count; i++)
        if (strcmp(batch->items[i].partition_key, key) == 0)
            return true;
    return false;
}

static void
test_what_finds_no_room_among_many_is_not_locked(void **state)
{
    enum { SMALL = 80 };
    struct fixture *fixture = *state;
    struct skr_position mine = fixture->position, other;
    struct skr_batch batch;
    char large[2000], key[16];
    if (!can_hold(fixture))
        return;
    make_room(fixture, &mine);
    memset(large, 'x', sizeof(large));
    large[sizeof(large) - 1] = '\0';
    for (int i = 0; i < SMALL; i++) {
        snprintf(key, sizeof(key), "b%d", i);
        insert_keyed(fixture->db, key, "{}");
    }
    insert_keyed(fixture->db, "c", large);
    insert_keyed(fixture->db, "d", "{}");
    mine.partition_cursor[0] = 'a';
    mine.partition_cursor_size = 1;
    mine.pages_row_by_row = 1;
    mine.is_in_round = true;
    other = mine;
    assert_int_equal(skr_batch_init(&batch, WIDE, NULL), SKR_OK);
    struct skr_db *second = skr_test_connect(&fixture->database);
    const struct skr_read little = {
        .max_rows = WIDE, .max_bytes = (SMALL + 20) * (sizeof(HEADERS) + 1)};
    assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                               &mine, &little, &fixture->batch,
                                               NULL),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, SMALL);
    assert_int_equal(mine.pages_row_by_row, 0);
    // Nor is it passed.
    assert_int_equal(mine.partition_cursor[0], 'b');
    assert_true(hold_on(fixture, second, &other, &batch) > 0);
    assert_true(has_partition(&batch, "c"));
    skr_db_close(second);
    skr_batch_fini(&batch);
}

static void
test_finished_rows_do_not_hide_any_of_many_partitions(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position position = fixture->position;
    if (!can_hold(fixture))
        return;
    make_room(fixture, &position);
    insert_partitions(fixture, 1, "finished");
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = "
                              "'9999-12-31 23:59:59'");
    insert_partitions(fixture, 1, "{}");
    // Not even while there is enough to do without them.
    for (int i = 0; i < 60; i++) {
        char key[16];
        snprintf(key, sizeof(key), "other %d", i);
        insert_keyed(fixture->db, key, "other");
        hold_on(fixture, fixture->db, &position, &fixture->batch);
        finish(fixture);
    }
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE body = '{}'"),
                     0);
}

// They are no reason to go on for ever, and hide nobody behind them.
static void
test_many_partitions_that_wait_are_passed(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position position = fixture->position;
    if (!can_hold(fixture))
        return;
    make_room(fixture, &position);
    insert_partitions(fixture, 2, "{}");
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET available_at = "
                              "'9999-12-31 23:59:59'");
    insert_keyed(fixture->db, "key 9999", "{}");
    assert_int_equal(drain(fixture, &position), 1);
    assert_false(position.is_held);
}

// A batch that goes back as it was is given again when there is a reason, and
// a round that gave nothing else is no reason to begin another.
static void
test_what_was_given_in_vain_is_not_given_again_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_position position = fixture->position;
    struct skr_read read = everything;
    size_t given = 0;
    if (!can_hold(fixture))
        return;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "", "free");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                                   &position, &read,
                                                   &fixture->batch, NULL),
                         SKR_OK);
        given += fixture->batch.count > 0;
        read.in_vain = fixture->batch.count > 0;
        skr_db_rollback(fixture->db);
        skr_batch_clear(&fixture->batch);
    }
    assert_in_range(given, 1, 3);
    assert_false(position.has_more);
    position.next_sweep_ms = skr_clock_ms();
    read.in_vain = false;
    assert_int_equal(fixture->table->ops->hold(fixture->table, fixture->db,
                                               &position, &read,
                                               &fixture->batch, NULL),
                     SKR_OK);
    assert_int_equal(fixture->batch.count, 2);
}

struct silence {
    struct fixture *fixture;
    struct skr_position position;
};

// As if nothing had been found for long, and time went on from look to look.
static size_t
look_in_silence(struct silence *silence)
{
    struct skr_position *position = &silence->position;
    position->found_ms = skr_clock_ms() - 70000;
    return drain(silence->fixture, position);
}

static int64_t
next_round_in_ms(const struct silence *silence)
{
    return silence->position.next_held_ms - skr_clock_ms();
}

static bool
is_at_rest(void *user)
{
    struct silence *silence = user;
    assert_int_equal(look_in_silence(silence), 0);
    if (next_round_in_ms(silence) > 5000)
        return true;
    // InnoDB tells nothing new to one who asks more often.
    skr_clock_sleep(-1, 200);
    silence->position.next_held_ms = 1;
    silence->position.next_horizon_ms = 0;
    for (size_t i = 0; i < silence->position.mark_count; i++)
        silence->position.marks[i].at_ms -= 3600000;
    silence->position.next_print_ms = 0;
    return false;
}

static void
insert_blocked(struct skr_db *db, const char *key)
{
    const struct skr_value values[] = {
        skr_bind_text("{}"), skr_bind_text(HEADERS), skr_bind_text(key)};
    skr_test_run_template(db,
                          "INSERT INTO messenger_outbox (body, headers, "
                          "queue_name, partition_key, created_at, "
                          "available_at) VALUES (?, ?, 'outbox', ?, {now}, "
                          "'9999-12-31 23:59:59')",
                          values, SKR_COUNT_OF(values));
}

// A partition that waits keeps the table from being bare, and the late row has
// an id that was passed: nothing tells of it but its transaction.
static void
commit_late_in_silence(struct fixture *fixture, bool is_hidden)
{
    struct silence silence = {fixture, fixture->position};
    silence.position.horizon_hidden = is_hidden;
    struct skr_db *early = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(early, SKR_BEGIN_WRITE, NULL), SKR_OK);
    insert_keyed(early, "a", "late");
    insert_keyed(fixture->db, "b", "b1");
    insert_blocked(fixture->db, "z");
    assert_int_equal(drain(fixture, &silence.position), 1);
    for (int i = 0; i < 6; i++)
        assert_false(is_at_rest(&silence));
    silence.position.next_held_ms = 1;
    assert_int_equal(look_in_silence(&silence), 0);
    assert_int_equal(skr_db_commit(early, NULL), SKR_OK);
    skr_db_close(early);
    skr_clock_sleep(-1, next_round_in_ms(&silence) + 1);
    assert_int_equal(look_in_silence(&silence), 1);
    // And then it costs as little as before.
    assert_true(skr_test_eventually(is_at_rest, &silence, 60000));
}

static void
test_what_commits_late_in_silence_is_found_soon(void **state)
{
    struct fixture *fixture = *state;
    if (can_hold(fixture))
        commit_late_in_silence(fixture, false);
}

static void
test_hidden_transactions_that_end_late_are_no_different(void **state)
{
    struct fixture *fixture = *state;
    if (can_hold(fixture) &&
        skr_sql_word(skr_db_dialect(fixture->db), "rows_print")[0] != '\0')
        commit_late_in_silence(fixture, true);
}

#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ORDERED(test_who_has_the_head_has_the_partition),
        ORDERED(test_what_commits_late_makes_nobody_else_its_owner),
        ORDERED(test_finished_rows_do_not_hide_their_partition),
        ORDERED(test_a_run_ends_before_what_is_not_ready),
        ORDERED(test_what_finds_no_room_is_not_locked),
        ORDERED(test_rows_without_a_key_take_turns_with_partitions),
        ORDERED(test_many_short_partitions_are_claimed_at_once),
        ORDERED(test_what_finds_no_room_among_many_is_not_locked),
        ORDERED(test_finished_rows_do_not_hide_any_of_many_partitions),
        ORDERED(test_many_partitions_that_wait_are_passed),
        ORDERED(test_what_was_given_in_vain_is_not_given_again_at_once),
        ORDERED(test_what_commits_late_in_silence_is_found_soon),
        ORDERED(test_hidden_transactions_that_end_late_are_no_different),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
