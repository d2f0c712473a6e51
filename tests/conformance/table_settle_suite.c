// SPDX-License-Identifier: MIT
// Tables: what becomes of rows, and rows that cannot be understood.

#include "db/run.h"
#include "store/identity.h"
#include "table_world.h"

static const struct skr_name_pair pairs[] = {
    {"order.placed", "App\\OrderPlaced"}};
static const struct skr_names names = {.pairs = pairs, .count = 1};

// ------------------------------------------------------------------------- ids

static void
test_derived_ids_are_stable_and_differ(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 2);
    assert_int_equal(read_rows(fixture), 2);
    struct skr_id first = fixture->batch.items[0].envelope.message.id;
    struct skr_id second = fixture->batch.items[1].envelope.message.id;
    assert_true(fixture->batch.items[0].envelope.has_id);
    assert_int_equal(first.bytes[6] >> 4, 8);
    assert_int_equal(first.bytes[8] >> 6, 2);
    assert_memory_not_equal(first.bytes, second.bytes, 16);
    set_states(fixture, SKR_RETRY_LATER);
    settle(fixture);
    // Another reader, started anew, sees the same id.
    struct skr_store *again = make_table(fixture, 0);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = {now}",
                          NULL, 0);
    skr_store_free(fixture->table);
    fixture->table = again;
    assert_int_equal(open_reader(again, fixture->db, &fixture->reader, NULL),
                     SKR_OK);
    assert_int_equal(read_rows(fixture), 2);
    assert_memory_equal(fixture->batch.items[0].envelope.message.id.bytes,
                        first.bytes, 16);
    assert_int_equal(fixture->batch.items[0].envelope.retry_count, 1);
    // It goes along to the failed table, where the row is another.
    set_states(fixture, SKR_DEAD);
    settle(fixture);
    char id[SKR_ID_TEXT_SIZE], sql[160];
    skr_id_format(first, id);
    snprintf(sql, sizeof(sql),
             "SELECT COUNT(*) FROM messenger_messages WHERE headers LIKE "
             "'%%\"X-Message-Id\":\"%s\"%%'",
             id);
    assert_int_equal(skr_test_number(fixture->db, sql), 1);
}

// -------------------------------------------------------------------- settling

static void
test_done_rows_leave_and_others_stay(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 90);
    assert_int_equal(read_rows(fixture), 90);
    for (size_t i = 0; i < 90; i++)
        fixture->batch.items[i].state = i % 3 == 0   ? SKR_DONE
                                        : i % 3 == 1 ? SKR_READ
                                                     : SKR_READ;
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 60);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE id % 3 = 1"),
                     0);
    // Once more is harmless.
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 60);
}

static void
test_more_rows_than_one_statement_takes_are_settled(void **state)
{
    struct fixture *fixture = *state;
    skr_batch_fini(&fixture->batch);
    assert_int_equal(skr_batch_init(&fixture->batch, 1000, NULL), SKR_OK);
    insert_many(fixture, 700);
    assert_int_equal(
        read_with(fixture,
                  &(struct skr_read){.max_rows = 1000, .max_bytes = 1 << 20}),
        700);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

// Ids without a gap are reached as a range. No other relay's row is in it.
static void
test_many_rows_leave_and_those_between_them_stay(void **state)
{
    struct fixture *fixture = *state;
    enum { FIRST = 60, UNSENT = 20 };
    insert_many(fixture, FIRST);
    insert(fixture, "other", "{}", HEADERS);
    insert_many(fixture, 30);
    assert_int_equal(read_rows(fixture), 90);
    set_states(fixture, SKR_DONE);
    settle(fixture);
    skr_test_assert_text(fixture->db, "SELECT queue_name FROM messenger_outbox",
                         "other");
    insert_many(fixture, FIRST);
    assert_int_equal(read_rows(fixture), FIRST);
    set_states(fixture, SKR_DONE);
    fixture->batch.items[UNSENT].state = SKR_READ;
    int64_t unsent = fixture->batch.items[UNSENT].row;
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 2);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT MAX(id) FROM messenger_outbox"),
        unsent);
}

// Nor does anyone wait for the row behind a range, which an application has not
// committed yet.
static void
test_settling_many_rows_waits_for_no_application(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client application =
        skr_test_client_open(&fixture->database);
    insert_many(fixture, 90);
    assert_int_equal(read_rows(fixture), 90);
    set_states(fixture, SKR_DONE);
    bool is_beside = skr_test_writes_side_by_side(fixture->db);
    if (is_beside) {
        skr_test_client_begin(&application);
        skr_test_client_run(&application,
                            "INSERT INTO messenger_outbox (body, headers, "
                            "queue_name, created_at, available_at) VALUES "
                            "('{}', '{}', 'outbox', '2020-01-01 00:00:00', "
                            "'2020-01-01 00:00:00')");
    }
    struct skr_db *impatient = skr_test_connect_impatient(&fixture->database);
    struct skr_error error = {0};
    if (fixture->table->settle->write(fixture->table, impatient,
                                      &fixture->batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_db_close(impatient);
    if (is_beside)
        skr_test_client_commit(&application);
    skr_test_client_close(&application);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), is_beside);
}

static void
test_a_retry_waits_in_its_place(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "{\"n\":1}",
           "{\"type\":\"order.placed\",\"X-Other\":\"yes\"}");
    assert_int_equal(read_rows(fixture), 1);
    fixture->batch.items[0].state = SKR_RETRY_LATER;
    fixture->batch.items[0].delay_ms = 10;
    snprintf(fixture->batch.items[0].reason.text,
             sizeof(fixture->batch.items[0].reason.text), "broker said no");
    settle(fixture);
    assert_int_equal(read_rows(fixture), 0);
    int64_t wait_ms = fixture->reader.at.next_due_ms - skr_clock_ms();
    assert_true(wait_ms > 0 && wait_ms <= 2001);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 1);
    int64_t end = skr_clock_ms() + 5000;
    while (read_rows(fixture) == 0 && skr_clock_ms() < end)
        skr_clock_sleep(-1, 5);
    assert_int_equal(fixture->batch.count, 1);
    const struct skr_batch_item *item = &fixture->batch.items[0];
    assert_int_equal(item->row, 1);
    assert_int_equal(item->envelope.retry_count, 1);
    assert_memory_equal(item->envelope.message.body, "{\"n\":1}", 7);
    assert_non_null(strstr(item->raw_headers, "broker said no"));
    assert_string_equal(skr_headers_find(item->envelope.headers.items,
                                         item->envelope.headers.count,
                                         "X-Other"),
                        "yes");
    skr_test_assert_text(fixture->db,
                         "SELECT delivered_at FROM messenger_outbox", NULL);
}

// A row whose two times are the same counts as never delayed, and no reader
// would look for it. Whichever second it is when they are settled, it is the
// time of creation of one of them.
static void
test_a_retry_is_never_due_when_it_was_written(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 6);
    assert_int_equal(read_rows(fixture), 6);
    for (size_t i = 0; i < 6; i++) {
        struct skr_batch_item *item = &fixture->batch.items[i];
        const struct skr_value values[] = {skr_bind_integer(4 + (int64_t)i),
                                           skr_bind_integer(item->row)};
        skr_test_run_template(fixture->db,
                              "UPDATE messenger_outbox SET created_at = "
                              "{now_plus} WHERE id = ?",
                              values, SKR_COUNT_OF(values));
        item->state = SKR_RETRY_LATER;
        item->delay_ms = 5000;
    }
    settle(fixture);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE available_at = created_at"),
                     0);
}

static void
test_a_hopeless_row_moves_to_the_failed_table(void **state)
{
    struct fixture *fixture = *state;
    insert(fixture, "outbox", "{\"n\":1}",
           "{\"type\":\"order.placed\",\"X-Message-Class\":\"App\\\\Placed\"}");
    insert(fixture, "outbox", "{\"n\":2}", HEADERS);
    insert(fixture, "outbox", "no json",
           "{\"type\":\"order.placed\",\"X-Message-Class\":\"App\\\\Placed\"}");
    assert_int_equal(read_rows(fixture), 3);
    for (size_t i = 0; i < 3; i++) {
        fixture->batch.items[i].state = SKR_DEAD;
        fixture->batch.items[i].reason.code = SKR_REFUSED;
        snprintf(fixture->batch.items[i].reason.text, 64, "unroutable");
    }
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
    // Symfony can decode the first alone: no class is known of the second,
    // and the third is no JSON.
    skr_test_assert_text(fixture->db,
                         "SELECT queue_name FROM messenger_messages "
                         "WHERE body = '{\"n\":1}'",
                         "failed");
    skr_test_assert_text(fixture->db,
                         "SELECT queue_name FROM messenger_messages "
                         "WHERE body = '{\"n\":2}'",
                         "failed.skirnir");
    skr_test_assert_text(fixture->db,
                         "SELECT queue_name FROM messenger_messages "
                         "WHERE body = 'no json'",
                         "failed.skirnir");
    char *headers =
        skr_test_text(fixture->db, "SELECT headers FROM messenger_messages "
                                   "WHERE queue_name = 'failed'");
    assert_non_null(strstr(headers, "\"type\":\"App\\\\Placed\""));
    assert_non_null(strstr(headers, "unroutable"));
    assert_non_null(strstr(headers, "SentToFailureTransportStamp"));
    free(headers);
    // A second time finds no row and makes no copy.
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 3);
}

static void
test_a_row_that_another_removed_does_not_fail(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 2);
    assert_int_equal(read_rows(fixture), 2);
    skr_test_run(fixture->db, "DELETE FROM messenger_outbox WHERE id = 1");
    set_states(fixture, SKR_DEAD);
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 1);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 0);
}

static void
test_settling_is_all_or_nothing_and_may_be_repeated(void **state)
{
    struct fixture *fixture = *state;
    insert_many(fixture, 3);
    assert_int_equal(read_rows(fixture), 3);
    fixture->batch.items[0].state = SKR_DONE;
    fixture->batch.items[1].state = SKR_RETRY_LATER;
    fixture->batch.items[2].state = SKR_DEAD;
    skr_test_run(fixture->db, "ALTER TABLE messenger_messages RENAME TO away");
    struct skr_error error = {0};
    assert_int_equal(fixture->table->settle->write(fixture->table, fixture->db,
                                                   &fixture->batch, &error),
                     SKR_MISSING);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 3);
    skr_test_assert_text(fixture->db,
                         "SELECT headers FROM messenger_outbox WHERE id = 2",
                         HEADERS);
    skr_test_run(fixture->db, "ALTER TABLE away RENAME TO messenger_messages");
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 1);
    assert_int_equal(count_rows(fixture, "messenger_messages"), 1);
    // The count was raised once, not once a try.
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET available_at = {now}",
                          NULL, 0);
    fixture->reader.at = (struct skr_cursor){0};
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].envelope.retry_count, 1);
}

// -------------------------------------------------------------- malformed rows

struct malformed {
    const char *body;
    size_t body_size;
    const char *headers;
    const char *reason;
};

static const struct malformed malformed[] = {
    {"{}", 2, "no json at all", "JSON"},
    {"{}", 2, "[]", "[]"},
    {"{}", 2, "{}", "type"},
    {"{}", 2, "{\"X-Other\":\"yes\"}", "type"},
    {"{}", 2, "{\"type\":\"order.placed\",\"X-Message-Id\":\"seven\"}", "id"},
    {"", 0, "", "JSON"},
    // Last, as not every database can hold it.
    {"\xff\xfe{", 3, HEADERS, "UTF-8"},
};

static void
test_malformed_rows_reach_the_failed_table_with_their_bytes(void **state)
{
    struct fixture *fixture = *state;
    size_t count = SKR_COUNT_OF(malformed);
    if (!fixture->database.text_holds_bytes)
        count--;
    for (size_t i = 0; i < count; i++) {
        insert_value(fixture, "outbox",
                     skr_bind_bytes(malformed[i].body, malformed[i].body_size),
                     skr_bind_text(malformed[i].headers));
        insert(fixture, "outbox", "{\"good\":true}", HEADERS);
    }
    assert_int_equal(read_rows(fixture), 2 * count);
    for (size_t i = 0; i < count; i++) {
        const struct skr_batch_item *item = &fixture->batch.items[2 * i];
        assert_int_equal(item->state, SKR_DEAD);
        assert_int_equal(item->reason.code, SKR_MALFORMED);
        if (strstr(item->reason.text, malformed[i].reason) == NULL)
            fail_msg("%s: %s", malformed[i].headers, item->reason.text);
        // And its neighbour is well.
        assert_int_equal(fixture->batch.items[2 * i + 1].state, SKR_READ);
    }
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), count);
    for (size_t i = 0; i < count; i++) {
        struct skr_arena arena = {0};
        struct skr_value columns[3];
        struct skr_row row = {.arena = &arena, .columns = columns, .count = 3};
        char sql[128];
        snprintf(sql, sizeof(sql),
                 "SELECT body, headers, queue_name FROM messenger_messages "
                 "WHERE id = %zu",
                 i + 1);
        assert_int_equal(
            skr_sql_row(skr_db_tx(fixture->db), sql, SKR_NO_VALUES, &row, NULL),
            SKR_OK);
        assert_true(row.found);
        assert_int_equal(columns[0].size, malformed[i].body_size);
        assert_memory_equal(columns[0].bytes, malformed[i].body,
                            malformed[i].body_size);
        assert_string_equal(columns[2].bytes, "failed.skirnir");
        struct skr_headers headers = {0};
        assert_int_equal(skr_headers_parse(&arena, columns[1].bytes,
                                           columns[1].size, &headers, NULL),
                         SKR_OK);
        const char *error_stamp =
            skr_headers_find(headers.items, headers.count, SKR_HEADER_ERROR);
        assert_non_null(error_stamp);
        assert_non_null(strstr(error_stamp, malformed[i].reason));
        const char *raw =
            skr_headers_find(headers.items, headers.count, SKR_HEADER_RAW);
        if (raw != NULL)
            assert_string_equal(raw, malformed[i].headers);
        skr_arena_fini(&arena);
    }
}

static void
test_rows_of_bytes_are_read_like_text(void **state)
{
    struct fixture *fixture = *state;
    if (!fixture->database.text_takes_blobs)
        return;
    // What is bound as bytes by another language's driver.
    insert_value(fixture, "outbox", skr_bind_blob("{\"n\":1}", 7),
                 skr_bind_blob(HEADERS, strlen(HEADERS)));
    assert_int_equal(read_rows(fixture), 1);
    assert_int_equal(fixture->batch.items[0].state, SKR_READ);
    assert_string_equal(fixture->batch.items[0].envelope.message.body,
                        "{\"n\":1}");
}

// ------------------------------------------------------------------- appending

static void
test_appended_rows_are_read_back(void **state)
{
    struct fixture *fixture = *state;
    int64_t now_us = skr_clock_wall_us();
    const struct skr_messenger_row rows[] = {
        {"{\"n\":1}", 7, HEADERS, strlen(HEADERS), 0, 0, NULL},
        {"{\"n\":2}", 7, HEADERS, strlen(HEADERS), now_us + 3600 * 1000000LL, 0,
         NULL},
        {"", 0, HEADERS, strlen(HEADERS), 0, 0, NULL},
    };
    assert_int_equal(skr_messenger_append(fixture->table,
                                          skr_db_tx(fixture->db), NULL, rows, 3,
                                          NULL),
                     SKR_OK);
    assert_int_equal(skr_messenger_append(fixture->table,
                                          skr_db_tx(fixture->db), "other", rows,
                                          1, NULL),
                     SKR_OK);
    assert_int_equal(read_rows(fixture), 2);
    assert_string_equal(fixture->batch.items[0].envelope.message.body,
                        "{\"n\":1}");
    assert_int_equal(fixture->batch.items[1].row, 3);
    assert_int_equal(fixture->batch.items[1].envelope.message.body_size, 0);
    int64_t wait_ms = fixture->reader.at.next_due_ms - skr_clock_ms();
    assert_true(wait_ms > 3590 * 1000 && wait_ms <= 3602 * 1000);
    skr_test_assert_text(fixture->db,
                         "SELECT queue_name FROM messenger_outbox WHERE id = 4",
                         "other");
}

static void
test_a_failed_message_is_stored_with_its_bytes(void **state)
{
    struct fixture *fixture = *state;
    struct skr_arena arena = {0};
    struct skr_error reason = {.code = SKR_MALFORMED, .text = "no use"};
    struct skr_failed_message message = {
        .raw_headers = "\xff\0x",
        .raw_headers_size = 3,
        .body = "\xff\0y",
        .body_size = 3,
        .failure = {.transport = "orders", .reason = &reason},
    };
    assert_int_equal(skr_messenger_store_failed(fixture->table,
                                                skr_db_tx(fixture->db), &arena,
                                                &message, NULL),
                     SKR_OK);
    struct skr_value columns[2];
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 2};
    assert_int_equal(skr_sql_row(skr_db_tx(fixture->db),
                                 "SELECT body, headers FROM messenger_messages "
                                 "WHERE queue_name = 'failed.skirnir'",
                                 SKR_NO_VALUES, &row, NULL),
                     SKR_OK);
    assert_true(row.found);
    assert_string_equal(columns[0].bytes, "/wB5");
    assert_non_null(strstr(columns[1].bytes,
                           "\"" SKR_HEADER_BODY_ENCODING "\":\"base64\""));
    assert_non_null(strstr(columns[1].bytes, SKR_HEADER_RAW_BASE64));
    assert_non_null(strstr(columns[1].bytes, "orders"));
    skr_arena_fini(&arena);
}

static void
test_a_failed_message_with_a_known_class_is_for_symfony(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = NULL;
    assert_int_equal(skr_messenger_new(
                         &(struct skr_messenger_options){
                             .dialect = skr_db_dialect(fixture->db),
                             .table = "messenger_messages",
                             .queue = "failed",
                             .names = &names,
                             .failed_table = "messenger_messages",
                             .failed_readable = true,
                         },
                         &table, NULL),
                     SKR_OK);
    struct skr_arena arena = {0};
    struct skr_error reason = {.code = SKR_REFUSED, .text = "no use"};
    struct skr_failed_message message = {
        .body = "{}",
        .body_size = 2,
        .failure = {.transport = "orders", .reason = &reason},
    };
    assert_true(
        skr_headers_add(&arena, &message.headers, "type", "order.placed"));
    assert_int_equal(skr_messenger_store_failed(table, skr_db_tx(fixture->db),
                                                &arena, &message, NULL),
                     SKR_OK);
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_messages "
                                     "WHERE queue_name = 'failed' AND headers "
                                     "LIKE '%OrderPlaced%'"),
                     1);
    skr_arena_fini(&arena);
    skr_store_free(table);
}

// ------------------------------------------------------- ids that are used
// anew

// The table is emptied, and gives the id of each row of the batch once more.
static void
use_ids_anew(struct fixture *fixture)
{
    skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
    for (size_t i = 0; i < fixture->batch.count; i++) {
        const struct skr_value row =
            skr_bind_integer(fixture->batch.items[i].row);
        skr_test_run_template(
            fixture->db,
            "INSERT INTO messenger_outbox (id, body, "
            "headers, queue_name, created_at, available_at) "
            "VALUES (?, 'new', 'new', 'outbox', {now}, {now})",
            &row, 1);
    }
}

// Rows that were written a minute ago.
static void
read_old_rows(struct fixture *fixture, size_t count)
{
    const struct skr_value age[] = {skr_bind_integer(60), skr_bind_integer(60)};
    fixture->reader.at.mark.cursor = 0;
    insert_many(fixture, count);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET created_at = "
                          "{now_minus}, available_at = {now_minus}",
                          age, 2);
    assert_int_equal(read_rows(fixture), count);
}

#define NEW_ROWS                                                              \
    "SELECT COUNT(*) FROM messenger_outbox WHERE body = 'new' AND headers = " \
    "'new' AND queue_name = 'outbox' AND available_at = created_at AND "      \
    "delivered_at IS NULL"

static void
check_new_rows_stay(struct fixture *fixture, bool is_late)
{
    static const enum skr_state states[] = {SKR_DONE, SKR_RETRY_LATER,
                                            SKR_BLOCKED, SKR_DEAD};
    enum { COUNT = 40 };
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        read_old_rows(fixture, COUNT);
        set_states(fixture, states[i]);
        fixture->batch.is_late = is_late;
        use_ids_anew(fixture);
        settle(fixture);
        assert_int_equal(skr_test_number(fixture->db, NEW_ROWS), COUNT);
        assert_int_equal(count_rows(fixture, "messenger_messages"), 0);
        for (size_t j = 0; j < COUNT; j++)
            assert_true(fixture->batch.items[j].is_replaced);
        skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
    }
}

static void
test_what_is_settled_late_does_not_hit_a_new_row_with_its_id(void **state)
{
    check_new_rows_stay(*state, true);
}

static void
test_where_ids_may_be_used_anew_nothing_hits_a_new_row(void **state)
{
    struct fixture *fixture = *state;
    if (skr_identity_is_unsure(skr_db_dialect(fixture->db)))
        check_new_rows_stay(fixture, false);
}

// Rows that are still there, and such that are gone, are settled all the same.
static void
test_a_new_row_keeps_no_other_from_being_settled(void **state)
{
    enum { COUNT = 40, GONE = 5, REPLACED = 17 };
    struct fixture *fixture = *state;
    read_old_rows(fixture, COUNT);
    set_states(fixture, SKR_DONE);
    fixture->batch.is_late = true;
    const struct skr_value gone =
                               skr_bind_integer(fixture->batch.items[GONE].row),
                           replaced = skr_bind_integer(
                               fixture->batch.items[REPLACED].row);
    skr_test_run_template(
        fixture->db, "DELETE FROM messenger_outbox WHERE id = ?", &gone, 1);
    skr_test_run_template(fixture->db,
                          "UPDATE messenger_outbox SET created_at = {now}, "
                          "body = 'new' WHERE id = ?",
                          &replaced, 1);
    settle(fixture);
    assert_int_equal(count_rows(fixture, "messenger_outbox"), 1);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(fixture->batch.items[i].is_replaced, i == REPLACED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_derived_ids_are_stable_and_differ),
        TEST(test_done_rows_leave_and_others_stay),
        TEST(test_more_rows_than_one_statement_takes_are_settled),
        TEST(test_many_rows_leave_and_those_between_them_stay),
        TEST(test_settling_many_rows_waits_for_no_application),
        TEST(test_a_retry_waits_in_its_place),
        TEST(test_a_retry_is_never_due_when_it_was_written),
        TEST(test_a_hopeless_row_moves_to_the_failed_table),
        TEST(test_a_row_that_another_removed_does_not_fail),
        TEST(test_settling_is_all_or_nothing_and_may_be_repeated),
        TEST(test_malformed_rows_reach_the_failed_table_with_their_bytes),
        TEST(test_rows_of_bytes_are_read_like_text),
        TEST(test_appended_rows_are_read_back),
        TEST(test_a_failed_message_is_stored_with_its_bytes),
        TEST(test_a_failed_message_with_a_known_class_is_for_symfony),
        TEST(test_what_is_settled_late_does_not_hit_a_new_row_with_its_id),
        TEST(test_where_ids_may_be_used_anew_nothing_hits_a_new_row),
        TEST(test_a_new_row_keeps_no_other_from_being_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
