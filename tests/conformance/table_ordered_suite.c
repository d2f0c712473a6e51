// SPDX-License-Identifier: MIT
// Tables with partitions: what a reader is given of each, and who has it.

#include "table_world.h"

#include "base/error.h"

enum { ROOM = 100 };

static void
delay(struct fixture *fixture, const char *body, int seconds)
{
    const struct skr_value values[] = {skr_bind_integer(seconds),
                                       skr_bind_text(body)};
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = "
                          "{now_plus} WHERE body = ?",
                          values, SKR_COUNT_OF(values));
}

static void
assert_item(const struct fixture *fixture, size_t index, enum skr_state state,
            const char *key, const char *body)
{
    const struct skr_batch_item *item = &fixture->batch.items[index];
    assert_in_range(index, 0, fixture->batch.count - 1);
    assert_int_equal(item->state, state);
    assert_string_equal(item->partition_key, key);
    if (body == NULL)
        return;
    assert_int_equal(item->envelope.message.body_size, strlen(body));
    assert_memory_equal(item->envelope.message.body, body, strlen(body));
}

static int64_t
id_of(struct fixture *fixture, const char *body)
{
    char sql[128];
    snprintf(sql, sizeof(sql),
             "SELECT id FROM messenger_outbox WHERE body = '%s'", body);
    return skr_test_number(fixture->db, sql);
}

static const struct skr_read everything = {.max_rows = ROOM,
                                           .max_bytes = 1 << 20};

static struct skr_partition_read
read_partition(struct fixture *fixture, const char *key,
               const struct skr_read *read)
{
    struct skr_partition_read partition = {.key = key};
    struct skr_error error = {0};
    skr_batch_clear(&fixture->batch);
    if (fixture->table->partitions->read(
            use_reader(&fixture->reader, fixture->table, fixture->db), read,
            &partition, 1, &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return partition;
}

static void
test_every_row_comes_with_its_key(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "", "free");
    insert_keyed(fixture->db, "b", "b1");
    insert_keyed(fixture->db, "a", "a2");
    delay(fixture, "b1", 60);
    assert_int_equal(read_rows(fixture), 4);
    assert_item(fixture, 0, SKR_READ, "a", "a1");
    assert_item(fixture, 1, SKR_READ, "", "free");
    assert_item(fixture, 2, SKR_NOT_READY, "b", "");
    assert_item(fixture, 3, SKR_READ, "a", "a2");
}

static void
test_an_error_moves_nothing_of_an_ordered_table(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    assert_int_equal(read_rows(fixture), 1);
    check_error_moves_nothing(fixture);
}

static void
test_what_another_has_holds_its_partition(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET delivered_at = {now} "
                          "WHERE body = 'a1'",
                          NULL, 0);
    assert_int_equal(read_rows(fixture), 2);
    assert_item(fixture, 0, SKR_NOT_READY, "a", "");
    assert_int_equal(read_partition(fixture, "a", &everything).end,
                     SKR_PARTITION_WAITS);
    assert_int_equal(fixture->batch.count, 0);
}

static bool
is_told(void *user)
{
    struct fixture *fixture = user;
    return read_rows(fixture) == 1;
}

static void
test_what_becomes_due_behind_the_cursor_is_told_by_its_key(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    delay(fixture, "a1", 2);
    assert_int_equal(read_rows(fixture), 2);
    assert_true(skr_test_eventually(is_told, fixture, 20000));
    assert_item(fixture, 0, SKR_BEHIND, "a", NULL);
    assert_int_equal(fixture->batch.items[0].row, id_of(fixture, "a1"));
}

static void
test_a_partition_is_read_from_its_head(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "A", "x1");
    insert_keyed(fixture->db, "a ", "y1");
    insert_keyed(fixture->db, "a", "a2");
    assert_int_equal(read_rows(fixture), 4);
    struct skr_partition_read read = read_partition(fixture, "a", &everything);
    assert_int_equal(read.end, SKR_PARTITION_EMPTY);
    assert_int_equal(read.given, 2);
    assert_item(fixture, 0, SKR_READ, "a", "a1");
    assert_item(fixture, 1, SKR_READ, "a", "a2");
    // What the cursor has not passed is not behind it.
    insert_keyed(fixture->db, "a", "a3");
    assert_int_equal(read_partition(fixture, "a", &everything).given, 2);
    assert_int_equal(read_partition(fixture, "none", &everything).end,
                     SKR_PARTITION_EMPTY);
}

static void
test_a_partition_goes_on_behind_what_is_done_alone(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    assert_int_equal(read_rows(fixture), 2);
    const int64_t first = id_of(fixture, "a1");
    struct skr_read read = everything;
    read.in_flight = &first;
    read.in_flight_count = 1;
    assert_int_equal(read_partition(fixture, "a", &read).end,
                     SKR_PARTITION_IN_FLIGHT);
    assert_int_equal(fixture->batch.count, 0);
    read.done = &first;
    read.done_count = 1;
    assert_int_equal(read_partition(fixture, "a", &read).given, 1);
    assert_item(fixture, 0, SKR_READ, "a", "a2");
}

static void
test_many_partitions_are_read_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct skr_partition_read partitions[SKR_MOST_PARTITIONS];
    char keys[SKR_MOST_PARTITIONS][16];
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    for (size_t i = 0; i < SKR_MOST_PARTITIONS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key-%zu", i);
        partitions[i] = (struct skr_partition_read){.key = keys[i]};
        insert_keyed(fixture->db, keys[i], "first");
        insert_keyed(fixture->db, keys[i], "second");
    }
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    while (read_rows(fixture) > 0)
        ;
    // There is room for one of each.
    const struct skr_read read = {.max_rows = SKR_MOST_PARTITIONS,
                                  .max_bytes = 1 << 20};
    assert_int_equal(
        fixture->table->partitions->read(
            use_reader(&fixture->reader, fixture->table, fixture->db), &read,
            partitions, SKR_MOST_PARTITIONS, &fixture->batch, NULL),
        SKR_OK);
    assert_int_equal(fixture->batch.count, SKR_MOST_PARTITIONS);
    for (size_t i = 0; i < SKR_MOST_PARTITIONS; i++) {
        assert_int_equal(partitions[i].given, 1);
        assert_int_equal(partitions[i].end, SKR_PARTITION_MORE);
        assert_item(fixture, i, SKR_READ, keys[i], "first");
    }
}

static void
test_one_row_is_given_if_it_is_the_head(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    assert_int_equal(read_rows(fixture), 2);
    int64_t row = id_of(fixture, "a2");
    struct skr_read read = everything;
    read.only = &row;
    assert_int_equal(read_with(fixture, &read), 0);
    row = id_of(fixture, "a1");
    assert_int_equal(read_with(fixture, &read), 1);
    assert_item(fixture, 0, SKR_READ, "a", "a1");
}

static void
test_a_blocked_head_stays_and_names_its_reason(void **state)
{
    struct fixture *fixture = *state;
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    assert_int_equal(read_rows(fixture), 2);
    fixture->batch.items[0].state = SKR_BLOCKED;
    skr_fail(&fixture->batch.items[0].reason, SKR_REFUSED, SKR_GIVE_UP,
             "nobody wants it");
    settle(fixture);
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM messenger_outbox WHERE "
                        "available_at = '9999-12-31 23:59:59' AND "
                        "headers LIKE '%nobody wants it%'"),
        1);
    assert_int_equal(read_partition(fixture, "a", &everything).end,
                     SKR_PARTITION_WAITS);
    int64_t row = 0;
    assert_int_equal(skr_messenger_end_block(fixture->table, fixture->db, "b",
                                             true, &row, NULL),
                     SKR_MISSING);
    assert_int_equal(skr_messenger_end_block(fixture->table, fixture->db, "a",
                                             true, &row, NULL),
                     SKR_OK);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 1);
    assert_int_equal(skr_messenger_end_block(fixture->table, fixture->db, "a",
                                             false, &row, NULL),
                     SKR_REFUSED);
}

// By the clock of its writer it was made an hour from now: it is due, and a
// reader that has passed it looks for times that changed.
static void
test_a_row_of_a_fast_clock_is_noticed_behind_a_skipped_head(void **state)
{
    struct fixture *fixture = *state;
    const struct skr_value ahead = skr_bind_integer(3600);
    insert_keyed(fixture->db, "a", "a1");
    insert_keyed(fixture->db, "a", "a2");
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET created_at = {now_plus}",
                          &ahead, 1);
    skr_test_run(fixture->db,
                 "UPDATE messenger_outbox SET available_at = created_at");
    assert_int_equal(read_rows(fixture), 2);
    fixture->batch.items[0].state = SKR_BLOCKED;
    settle(fixture);
    int64_t row = 0;
    assert_int_equal(skr_messenger_end_block(fixture->table, fixture->db, "a",
                                             true, &row, NULL),
                     SKR_OK);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE available_at <> created_at"),
                     1);
}

static enum skr_code
note_blocked(const struct skr_blocked_head *head, void *user,
             struct skr_error *error)
{
    (void)error;
    char *said = user;
    snprintf(said + strlen(said), 160 - strlen(said), "%s|%llu|%s|%s;",
             head->key, (unsigned long long)head->length, head->name,
             head->reason);
    return SKR_OK;
}

static void
list_blocked(struct fixture *fixture, int64_t after, char *said)
{
    const struct skr_blocked_page page = {
        .after = after, .max = 10, .measures = true};
    said[0] = '\0';
    assert_int_equal(skr_messenger_each_blocked(fixture->table, fixture->db,
                                                &page, note_blocked, said,
                                                NULL),
                     SKR_OK);
}

static void
test_partitions_are_counted_and_the_blocked_are_named(void **state)
{
    struct fixture *fixture = *state;
    struct skr_partitions found;
    char said[160] = "";
    assert_int_equal(skr_messenger_count_partitions(fixture->table, fixture->db,
                                                    &found, NULL),
                     SKR_OK);
    assert_int_equal(found.count, 0);
    assert_string_equal(found.oldest, "");
    insert_keyed(fixture->db, "", "free");
    insert_keyed(fixture->db, "b", "b1");
    for (int i = 0; i < 3; i++)
        insert_keyed(fixture->db, "A", "A");
    for (int i = 0; i < 2; i++)
        insert_keyed(fixture->db, "a", "a");
    assert_int_equal(skr_messenger_count_partitions(fixture->table, fixture->db,
                                                    &found, NULL),
                     SKR_OK);
    assert_int_equal(found.count, 3);
    assert_false(found.is_estimate);
    assert_string_equal(found.largest, "A");
    assert_int_equal(found.largest_length, 3);
    assert_string_equal(found.oldest, "b");
    assert_int_equal(found.oldest_row, id_of(fixture, "b1"));
    assert_in_range(found.oldest_s, 0, 60);
    assert_int_equal(read_rows(fixture), 7);
    set_states(fixture, SKR_READ);
    fixture->batch.items[2].state = SKR_BLOCKED;
    int64_t head = fixture->batch.items[2].row;
    skr_fail(&fixture->batch.items[2].reason, SKR_REFUSED, SKR_GIVE_UP,
             "nobody wants it");
    settle(fixture);
    list_blocked(fixture, 0, said);
    assert_string_equal(said, "A|3|order.placed|nobody wants it;");
    list_blocked(fixture, head - 1, said);
    assert_string_equal(said, "A|3|order.placed|nobody wants it;");
    list_blocked(fixture, head, said);
    assert_string_equal(said, "");
    assert_int_equal(skr_messenger_find_blocked(fixture->table, fixture->db,
                                                head + 1, note_blocked, said,
                                                NULL),
                     SKR_MISSING);
    assert_int_equal(skr_messenger_find_blocked(fixture->table, fixture->db,
                                                head, note_blocked, said, NULL),
                     SKR_OK);
    assert_string_equal(said, "A|3|order.placed|nobody wants it;");
    int64_t retried = 0;
    assert_int_equal(skr_messenger_end_block(fixture->table, fixture->db, "A",
                                             false, &retried, NULL),
                     SKR_OK);
    assert_int_equal(retried, head);
    list_blocked(fixture, 0, said);
    assert_string_equal(said, "");
}

static enum skr_code
run_late(const char *sql, void *user, struct skr_error *error)
{
    struct fixture *fixture = user;
    return skr_tx_run(skr_db_tx(fixture->db),
                      &(struct skr_statement){.sql = sql}, error);
}

static int statements;

static enum skr_code
count_late(const char *sql, void *user, struct skr_error *error)
{
    (void)sql;
    (void)user;
    (void)error;
    statements++;
    return SKR_OK;
}

static void
test_setup_adds_the_column_to_a_table_that_is_there(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *plain = make_table(fixture, 0);
    struct skr_error error = {0};
    assert_int_equal(skr_store_create(plain, fixture->db, NULL), SKR_OK);
    insert(fixture, "outbox", "old", HEADERS);
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_INVALID);
    assert_non_null(strstr(error.text, "partition_key"));
    assert_non_null(strstr(error.text, "skirnir setup"));
    if (fixture->table->admin->complete(fixture->table, fixture->db, run_late,
                                        fixture, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_OK);
    statements = 0;
    assert_int_equal(fixture->table->admin->complete(
                         fixture->table, fixture->db, count_late, NULL, NULL),
                     SKR_OK);
    assert_int_equal(statements, 0);
    start(fixture);
    assert_int_equal(read_rows(fixture), 1);
    assert_item(fixture, 0, SKR_READ, "", "old");
    skr_store_free(plain);
}

static void
test_publishing_stores_the_key_and_wants_one(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    struct skr_outbox *outbox = NULL;
    struct skr_error error = {0};
    char key[257];
    memset(key, 'k', 256);
    key[256] = '\0';
    struct skr_message message = {
        .name = "order.placed", .body = "{}", .body_size = 2};
    assert_int_equal(
        skr_outbox_new(&(struct skr_outbox_options){.is_ordered = true},
                       &outbox, NULL),
        SKR_OK);
    skr_test_client_begin(&client);
    assert_int_equal(skr_publish(outbox, client.tx, &message, 1, NULL, &error),
                     SKR_INVALID);
    assert_non_null(strstr(error.text, "order.placed has no partition key"));
    message.partition_key = key;
    assert_int_equal(skr_publish(outbox, client.tx, &message, 1, NULL, &error),
                     SKR_INVALID);
    key[255] = '\0';
    assert_int_equal(skr_publish(outbox, client.tx, &message, 1, NULL, &error),
                     SKR_OK);
    message.partition_key = "";
    message.due_at_us = skr_clock_wall_us() + 60000000;
    assert_int_equal(skr_publish(outbox, client.tx, &message, 1, NULL, &error),
                     SKR_OK);
    skr_test_client_commit(&client);
    skr_test_assert_text(fixture->db,
                         "SELECT partition_key FROM messenger_outbox "
                         "ORDER BY id LIMIT 1",
                         key);
    skr_test_assert_text(fixture->db,
                         "SELECT partition_key FROM messenger_outbox "
                         "ORDER BY id DESC LIMIT 1",
                         "");
    skr_outbox_free(outbox);
    skr_test_client_close(&client);
}

// However many rows lie behind the cursor, as behind a head that waits.
static void
test_new_rows_are_read_beside_a_sweep(void **state)
{
    struct fixture *fixture = *state;
    size_t behind = 0, fresh = 0;
    for (int i = 0; i < 3 * ROOM; i++)
        insert_keyed(fixture->db, "a", "a");
    while (read_rows(fixture) > 0)
        continue;
    insert_keyed(fixture->db, "b", "b");
    fixture->reader.at.next_full_scan_ms = 1;
    do {
        size_t count = read_rows(fixture);
        for (size_t i = 0; i < count; i++) {
            bool is_behind = fixture->batch.items[i].state == SKR_BEHIND;
            behind += is_behind;
            fresh += !is_behind;
        }
        assert_int_equal(fresh, 1);
    } while (fixture->reader.at.has_more);
    // In the end that one, which was not taken, lies behind as well.
    assert_int_equal(behind, 3 * ROOM + 1);
}

#define ORDERED(test) \
    cmocka_unit_test_setup_teardown(test, set_up_ordered, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ORDERED(test_every_row_comes_with_its_key),
        ORDERED(test_an_error_moves_nothing_of_an_ordered_table),
        ORDERED(test_what_another_has_holds_its_partition),
        ORDERED(test_what_becomes_due_behind_the_cursor_is_told_by_its_key),
        ORDERED(test_a_partition_is_read_from_its_head),
        ORDERED(test_a_partition_goes_on_behind_what_is_done_alone),
        ORDERED(test_many_partitions_are_read_at_once),
        ORDERED(test_one_row_is_given_if_it_is_the_head),
        ORDERED(test_a_blocked_head_stays_and_names_its_reason),
        ORDERED(test_a_row_of_a_fast_clock_is_noticed_behind_a_skipped_head),
        ORDERED(test_partitions_are_counted_and_the_blocked_are_named),
        cmocka_unit_test_setup_teardown(
            test_setup_adds_the_column_to_a_table_that_is_there,
            set_up_ordered_bare, tear_down),
        ORDERED(test_publishing_stores_the_key_and_wants_one),
        ORDERED(test_new_rows_are_read_beside_a_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
