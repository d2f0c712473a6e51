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
    set_states(fixture, SKR_DONE);
    settle(fixture);
    skr_batch_clear(&fixture->batch);
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
    enum { PARTITIONS = 200, FREE = 300, CLAIMS = 9 };
    struct fixture *fixture = *state;
    struct skr_position position = fixture->position;
    char key[16];
    if (!can_hold(fixture))
        return;
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (int i = 0; i < PARTITIONS * 2; i++) {
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
        set_states(fixture, SKR_DONE);
        settle(fixture);
        skr_batch_clear(&fixture->batch);
    }
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE partition_key = ''"),
                     0);
    assert_in_range(count_rows(fixture, "messenger_outbox"), 0,
                    PARTITIONS * 2 - 100);
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
        ORDERED(test_what_was_given_in_vain_is_not_given_again_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
