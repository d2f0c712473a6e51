// SPDX-License-Identifier: MIT
// Tables: how they are made, and what a reader sees of them.

#include "table_world.h"

// ----------------------------------------------------------------------- setup

static int
set_up_in_child(const struct fixture *fixture)
{
    struct skr_db *db = skr_test_connect(&fixture->database);
    struct skr_deduplication *deduplication = NULL;
    struct skr_error error = {0};
    if (skr_store_create(fixture->table, db, &error) != SKR_OK ||
        skr_deduplication_new(skr_db_dialect(db), NULL, &deduplication,
                              &error) != SKR_OK ||
        skr_deduplication_create(deduplication, db, &error) != SKR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    skr_deduplication_free(deduplication);
    skr_db_close(db);
    return 0;
}

static void
test_setup_runs_from_many_processes_at_once(void **state)
{
    struct fixture *fixture = *state;
    // The children open connections of their own.
    skr_db_close(fixture->db);
    run_in_processes(8, set_up_in_child, fixture);
    fixture->db = skr_test_connect(&fixture->database);
    assert_int_equal(count_rows(fixture, "skirnir_meta"), 1);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT LENGTH(value) FROM skirnir_meta "
                                     "WHERE name = 'id_namespace'"),
                     32);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
    assert_int_equal(count_rows(fixture, "message_broker_deduplication"), 0);
    // Once more changes nothing.
    char *before = skr_test_text(fixture->db, "SELECT value FROM skirnir_meta");
    start(fixture);
    skr_test_assert_text(fixture->db, "SELECT value FROM skirnir_meta", before);
    free(before);
}

static enum skr_code
collect(const char *sql, void *user, struct skr_error *error)
{
    (void)error;
    skr_text_add_format(user, "%s;\n", sql);
    return SKR_OK;
}

static void
test_setup_shows_complete_sql(void **state)
{
    struct fixture *fixture = *state;
    struct skr_text sql = {0};
    assert_int_equal(
        fixture->table->admin->setup(fixture->table, NULL, collect, &sql, NULL),
        SKR_OK);
    static const char *const words[] = {
        "messenger_outbox",        "messenger_messages", "skirnir_meta",
        "queue_name VARCHAR(190)", "idx_available_at",   "id_namespace",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(words); i++)
        assert_non_null(strstr(sql.bytes, words[i]));
    assert_null(strchr(sql.bytes, '?'));
    assert_null(strchr(sql.bytes, '{'));
    skr_text_fini(&sql);
}

static void
test_a_missing_table_is_told_with_the_cure(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "messenger_outbox"));
    assert_non_null(strstr(error.text, "skirnir setup"));
    assert_int_equal(
        open_reader(fixture->table, fixture->db, &fixture->reader, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "skirnir setup"));
    start(fixture);
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_OK);
    skr_test_run(fixture->db, "DROP TABLE messenger_messages");
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_MISSING);
    assert_non_null(strstr(error.text, "messenger_messages"));
}

static void
test_a_table_of_another_shape_names_the_column(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    skr_test_run(fixture->db, "CREATE TABLE messenger_outbox "
                              "(id INTEGER PRIMARY KEY, body TEXT)");
    assert_int_equal(
        fixture->table->admin->check(fixture->table, fixture->db, &error),
        SKR_INVALID);
    assert_non_null(strstr(error.text, "messenger_outbox"));
    assert_non_null(strstr(error.text, "headers"));
}

static void
test_names_that_are_no_identifiers_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = NULL;
    static const char *const bad[] = {"", "a b", "a;b", "1a", "a\"b"};
    for (size_t i = 0; i < SKR_COUNT_OF(bad); i++) {
        struct skr_messenger_options options = {.dialect =
                                                    skr_db_dialect(fixture->db),
                                                .table = bad[i],
                                                .queue = "outbox"};
        assert_int_equal(skr_messenger_new(&options, &table, NULL),
                         SKR_INVALID);
    }
    struct skr_deduplication *deduplication = NULL;
    assert_int_equal(skr_deduplication_new(skr_db_dialect(fixture->db), "a b",
                                           &deduplication, NULL),
                     SKR_INVALID);
}

// --------------------------------------------------------------------- reading

static void
test_rows_are_read_once_and_in_order(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 250);
    int64_t last = 0;
    size_t total = 0, count;
    while ((count = read_rows(fixture)) > 0) {
        total += count;
        for (size_t i = 0; i < count; i++) {
            assert_true(fixture->batch.items[i].row > last);
            last = fixture->batch.items[i].row;
            assert_int_equal(fixture->batch.items[i].state, SKR_READ);
        }
    }
    assert_int_equal(total, 250);
    assert_int_equal(fixture->reader.at.next_due_ms, 0);
    // What comes later is found from here on.
    insert(fixture, "outbox", "{\"n\":1}", HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    assert_true(fixture->batch.items[0].row > last);
}

static void
test_an_item_holds_what_the_row_says(void **state)
{
    struct fixture *fixture = *state;
    static const char headers[] =
        "{\"type\":\"order.placed\",\"X-Message-Id\":"
        "\"018f4e2a-7c1b-7def-8123-456789abcdef\",\"X-Other\":\"yes\"}";
    insert(fixture, "outbox", "{\"order\":7}", headers);
    assert_int_equal(read_rows(fixture), 1);
    const struct skr_batch_item *item = &fixture->batch.items[0];
    const struct skr_message *message = &item->envelope.message;
    assert_string_equal(message->name, "order.placed");
    assert_memory_equal(message->body, "{\"order\":7}", message->body_size);
    assert_int_equal(message->body_size, 11);
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(message->id, id);
    assert_string_equal(id, "018f4e2a-7c1b-7def-8123-456789abcdef");
    assert_true(item->envelope.has_id);
    assert_string_equal(item->raw_headers, headers);
    assert_int_equal(item->size, 11 + strlen(headers));
    assert_int_equal(fixture->batch.bytes, item->size);
    int64_t age_us = skr_clock_wall_us() - message->created_at_us;
    assert_true(age_us >= 0 && age_us < 60 * 1000000LL);
    // What leaves carries the id in every form.
    assert_string_equal(
        skr_headers_find(message->headers, message->header_count, "X-Other"),
        "yes");
    assert_non_null(skr_headers_find(
        message->headers, message->header_count,
        SKR_HEADER_STAMP SKR_DEFAULT_STAMP_NAMESPACE "\\MessageIdStamp"));
}

static void
test_rows_in_hand_are_not_read_again(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 30);
    assert_int_equal(read_rows(fixture), 30);
    int64_t in_hand[20];
    for (size_t i = 0; i < 20; i++)
        in_hand[i] = fixture->batch.items[i].row;
    const struct skr_read read = {.max_rows = 5,
                                  .max_bytes = 1 << 20,
                                  .in_flight = in_hand,
                                  .in_flight_count = 20};
    // From the start, as after a reconnect.
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(read_with(fixture, &read), 5);
    assert_int_equal(fixture->batch.items[0].row, in_hand[19] + 1);
    assert_int_equal(read_with(fixture, &read), 5);
    assert_int_equal(read_with(fixture, &read), 0);
    // And in a sweep of everything.
    fixture->reader.at.next_full_scan_ms = 1;
    assert_int_equal(read_with(fixture, &read), 5);
    assert_int_equal(fixture->batch.items[0].row, in_hand[19] + 1);
    assert_int_equal(read_with(fixture, &read), 5);
    assert_int_equal(read_with(fixture, &read), 0);
}

static void
test_a_batch_is_bounded_by_bytes(void **state)
{
    struct fixture *fixture = *state;
    char body[1001];
    memset(body, ' ', 1000);
    body[1000] = '\0';
    for (int i = 0; i < 5; i++)
        insert(fixture, "outbox", body, HEADERS);
    size_t size = 1000 + strlen(HEADERS);
    // Two fit; the third does not.
    const struct skr_read read = {.max_rows = 100,
                                  .max_bytes = size * 2 + size / 2};
    assert_int_equal(read_with(fixture, &read), 2);
    assert_int_equal(fixture->batch.bytes, size * 2);
    assert_int_equal(read_with(fixture, &read), 2);
    assert_int_equal(read_with(fixture, &read), 1);
    assert_int_equal(read_with(fixture, &read), 0);
    // One that is larger than all of it travels alone.
    const struct skr_read tiny = {.max_rows = 100, .max_bytes = 10};
    fixture->reader.at = (struct skr_cursor){0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(read_with(fixture, &tiny), 1);
    assert_int_equal(read_with(fixture, &tiny), 0);
}

static void
test_a_bounded_pass_over_due_rows_finds_each_once(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 40);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = "
                          "{now_plus}, created_at = {now}",
                          (const struct skr_value[]){skr_bind_integer(2)}, 1);
    const struct skr_read read = {.max_rows = 7,
                                  .max_bytes = 3 * (2 + strlen(HEADERS))};
    assert_int_equal(read_with(fixture, &read), 0);
    assert_int_equal(fixture->reader.at.mark.cursor, 40);
    int64_t last = 0;
    size_t total = 0;
    int64_t end = skr_clock_ms() + 10000;
    while (total < 40 && skr_clock_ms() < end) {
        skr_clock_sleep(-1, total == 0 ? 10 : 0);
        size_t count = read_with(fixture, &read);
        assert_true(count <= 3);
        for (size_t i = 0; i < count; i++) {
            assert_true(fixture->batch.items[i].row > last);
            last = fixture->batch.items[i].row;
        }
        total += count;
    }
    assert_int_equal(total, 40);
    assert_int_equal(read_with(fixture, &read), 0);
}

static void
test_rows_of_other_queues_are_passed_over(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 20; i++)
        insert(fixture, i % 2 == 0 ? "other" : "outbox", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(fixture->batch.items[i].row % 2, 0);
    insert(fixture, "other", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 0);
    // The cursor stands behind them: they are not looked at again.
    assert_int_equal(fixture->reader.at.mark.cursor, 21);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE queue_name = 'other'"),
                     11);
}

static void
test_names_of_queues_are_told_apart_to_the_byte(void **state)
{
    struct fixture *fixture = *state;
    static const char *const others[] = {"Outbox", "outbox ", "\xc3\xb6utbox",
                                         "outbox.sent", "outbo"};
    for (size_t i = 0; i < SKR_COUNT_OF(others); i++)
        insert(fixture, others[i], "{}", HEADERS);
    insert(fixture, "outbox", "{}", HEADERS);
    // From the start, from a cursor, and in a sweep of everything.
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, 6);
    insert(fixture, "OUTBOX", "{}", HEADERS);
    insert(fixture, "outbox", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, 8);
    fixture->reader.at.next_full_scan_ms = 1;
    assert_int_equal(read_rows(fixture), 2);
    assert_int_equal(fixture->batch.items[0].row, 6);
    assert_int_equal(fixture->batch.items[1].row, 8);
    // Neither does another's row that waits wake anyone.
    const struct skr_value soon = skr_bind_integer(5);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = "
                          "{now_plus} WHERE id <= 5",
                          &soon, 1);
    assert_int_equal(read_rows(fixture), 0);
    assert_int_equal(fixture->reader.at.next_due_ms, 0);
}

static void
test_delayed_rows_come_when_they_are_due(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET available_at = {now_plus} WHERE id = 2",
        (const struct skr_value[]){skr_bind_integer(2)}, 1);
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET available_at = {now_plus} WHERE id = 3",
        (const struct skr_value[]){skr_bind_integer(3600)}, 1);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, 1);
    int64_t wait_ms = fixture->reader.at.next_due_ms - skr_clock_ms();
    assert_true(wait_ms > 0 && wait_ms <= 2001);
    // Whatever comes in between does not delay it.
    insert(fixture, "outbox", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    skr_clock_sleep(-1, fixture->reader.at.next_due_ms - skr_clock_ms());
    // By the database's clock it may be a few milliseconds more.
    int64_t end = skr_clock_ms() + 5000;
    while (read_rows(fixture) == 0 && skr_clock_ms() < end)
        skr_clock_sleep(-1, 1);
    assert_int_equal(fixture->batch.count, 1);
    assert_int_equal(fixture->batch.items[0].row, 2);
    assert_int_equal(read_rows(fixture), 0);
    wait_ms = fixture->reader.at.next_due_ms - skr_clock_ms();
    assert_true(wait_ms > 3500 * 1000 && wait_ms < 3601 * 1000);
}

static void
test_a_row_that_was_never_delayed_is_due_in_any_zone(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "{}", HEADERS);
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET available_at = {now_plus}, "
        "created_at = {now_plus}",
        (const struct skr_value[]){skr_bind_integer(7200),
                                   skr_bind_integer(7200)},
        2);
    assert_int_equal(read_rows(fixture), 1);
}

static void
test_claims_of_others_are_left_alone_until_they_are_stale(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 4);
    static const struct {
        const char *sql;
        int64_t seconds;
    } claims[] = {
        {"UPDATE messenger_outbox SET delivered_at = {now_minus} WHERE id = 1",
         10},
        {"UPDATE messenger_outbox SET delivered_at = {now_minus} WHERE id = 2",
         70},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(claims); i++)
        skr_test_run_template(
            fixture->db, claims[i].sql,
            (const struct skr_value[]){skr_bind_integer(claims[i].seconds)}, 1);
    skr_test_run(fixture->db, "UPDATE messenger_outbox SET delivered_at = "
                              "'9999-12-31 23:59:59' WHERE id = 3");
    assert_int_equal(read_rows(fixture), 2);
    assert_int_equal(fixture->batch.items[0].row, 2);
    assert_true(fixture->batch.items[0].redelivered);
    assert_int_equal(fixture->batch.items[1].row, 4);
    assert_false(fixture->batch.items[1].redelivered);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    // The fresh one runs out behind the cursor: a sweep finds it, and not the
    // one that is done.
    skr_test_run_template(
        fixture->db,
        "UPDATE messenger_outbox SET delivered_at = {now_minus} WHERE id = 1",
        (const struct skr_value[]){skr_bind_integer(70)}, 1);
    assert_int_equal(read_rows(fixture), 0);
    fixture->reader.at.next_full_scan_ms = 1;
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, 1);
    assert_true(fixture->reader.at.next_full_scan_ms > skr_clock_ms());
    skr_test_assert_text(
        fixture->db, "SELECT delivered_at FROM messenger_outbox WHERE id = 3",
        "9999-12-31 23:59:59");
}

// As after TRUNCATE, or where the table was made again.
static void
test_ids_that_begin_anew_wait_for_one_sweep_at_most(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 50);
    assert_int_equal(read_rows(fixture), 50);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(read_rows(fixture), 0);
    for (int64_t id = 1; id <= 3; id++) {
        const struct skr_value values[] = {
            skr_bind_integer(id), skr_bind_text("{}"), skr_bind_text(HEADERS)};
        skr_test_run_template(
            fixture->db,
            "INSERT INTO messenger_outbox (id, body, headers, queue_name, "
            "created_at, available_at) "
            "VALUES (?, ?, ?, 'outbox', {now}, {now})",
            values, SKR_COUNT_OF(values));
        if (id == 1)
            fixture->reader.at.next_full_scan_ms = 1;
        assert_int_equal(read_rows(fixture), 1);
        assert_int_equal(fixture->batch.items[0].row, id);
        set_states(fixture, SKR_DONE);
        settle(fixture);
    }
}

static void
test_php_rows_are_counted_and_never_touched(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "O:36:\\\"Symfony\\\\Envelope\\\":2:{}", "[]");
    insert(fixture, "outbox", "TzozNjoiU3ltZm9ueQ==", "[]");
    insert(fixture, "other", "O:36:\\\"Symfony\\\\Envelope\\\":2:{}", "[]");
    insert(fixture, "outbox", "{}", HEADERS);
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].row, 4);
    fixture->reader.at.next_full_scan_ms = 1;
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(read_rows(fixture), 0);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 3);
    const char *cure = NULL;
    uint64_t count = 0;
    assert_int_equal(fixture->table->diagnosis->foreign(
                         fixture->table, fixture->db, &count, &cure, NULL),
                     SKR_OK);
    assert_int_equal(count, 2);
}

static void
test_an_error_moves_nothing(void **state)
{
    check_error_moves_nothing(*state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BARE_TEST(test_setup_runs_from_many_processes_at_once),
        BARE_TEST(test_setup_shows_complete_sql),
        BARE_TEST(test_a_missing_table_is_told_with_the_cure),
        BARE_TEST(test_a_table_of_another_shape_names_the_column),
        BARE_TEST(test_names_that_are_no_identifiers_are_refused),
        TEST(test_rows_are_read_once_and_in_order),
        TEST(test_an_item_holds_what_the_row_says),
        TEST(test_rows_in_hand_are_not_read_again),
        TEST(test_a_batch_is_bounded_by_bytes),
        TEST(test_a_bounded_pass_over_due_rows_finds_each_once),
        TEST(test_rows_of_other_queues_are_passed_over),
        TEST(test_names_of_queues_are_told_apart_to_the_byte),
        TEST(test_delayed_rows_come_when_they_are_due),
        TEST(test_a_row_that_was_never_delayed_is_due_in_any_zone),
        TEST(test_claims_of_others_are_left_alone_until_they_are_stale),
        TEST(test_ids_that_begin_anew_wait_for_one_sweep_at_most),
        TEST(test_php_rows_are_counted_and_never_touched),
        TEST(test_an_error_moves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
