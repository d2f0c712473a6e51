// SPDX-License-Identifier: MIT
// The table of attempts.
#include "databases.h"

#include "base/error.h"
#include "base/text.h"
#include "store/attempt/attempt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
};

static const struct skr_id key = {{1, 0, 255, 39}};
static const struct skr_id other = {{1, 0, 255, 40}};

static int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    *state = fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static void
create(struct fixture *fixture)
{
    struct skr_error error = {0};
    if (skr_attempts_create(fixture->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static uint32_t
raise_count(struct fixture *fixture, struct skr_id id)
{
    struct skr_error error = {0};
    uint32_t count = 0;
    if (skr_attempts_raise(fixture->db, id, &count, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return count;
}

static int64_t
rows(struct fixture *fixture)
{
    return skr_test_number(fixture->db, "SELECT COUNT(*) FROM skirnir_attempt");
}

static void
test_the_table_is_missed_and_made(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    assert_int_equal(skr_attempts_check(fixture->db, &error), SKR_MISSING);
    create(fixture);
    create(fixture);
    assert_int_equal(skr_attempts_check(fixture->db, &error), SKR_OK);
}

// Of a table that is large for its column, too.
static void
test_a_receipt_names_the_row_that_was_stored(void **state)
{
    static const int64_t numbers[] = {1, INT32_MAX, INT64_C(1) + INT32_MAX,
                                      INT64_C(5000000000001),
                                      INT64_C(5000000000002)};
    struct fixture *fixture = *state;
    struct skr_tx tx = skr_db_tx(fixture->db);
    struct skr_error error = {0};
    int64_t row = 1;
    create(fixture);
    assert_int_equal(skr_attempts_find_row(tx, key, &row, &error), SKR_OK);
    assert_int_equal(row, 0);
    assert_int_equal(skr_attempts_add_receipt(tx, key, &error), SKR_OK);
    assert_int_equal(skr_attempts_find_row(tx, key, &row, &error), SKR_OK);
    assert_int_equal(row, 0);
    for (size_t i = 0; i < SKR_COUNT_OF(numbers); i++) {
        if (skr_attempts_note_row(tx, key, numbers[i], &error) != SKR_OK ||
            skr_attempts_find_row(tx, key, &row, &error) != SKR_OK)
            fail_msg("%s", error.text);
        assert_int_equal(row, numbers[i]);
    }
    assert_int_equal(skr_attempts_find_row(tx, other, &row, &error), SKR_OK);
    assert_int_equal(row, 0);
}

static void *
create_too(void *user)
{
    struct skr_db *db = skr_test_connect(user);
    enum skr_code code = skr_attempts_create(db, NULL);
    skr_db_close(db);
    return (void *)(intptr_t)code;
}

static void
test_eight_may_make_it_at_once(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, create_too, &fixture->database),
            0);
    for (size_t i = 0; i < 8; i++) {
        void *code = NULL;
        pthread_join(threads[i], &code);
        assert_int_equal((intptr_t)code, SKR_OK);
    }
    assert_int_equal(rows(fixture), 0);
}

static void
test_attempts_are_counted_by_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture);
    assert_int_equal(raise_count(fixture, key), 1);
    assert_int_equal(raise_count(fixture, key), 2);
    assert_int_equal(raise_count(fixture, other), 1);
    assert_int_equal(skr_attempts_lower(skr_db_tx(fixture->db), key, NULL),
                     SKR_OK);
    assert_int_equal(raise_count(fixture, key), 2);
    bool was_there = false;
    assert_int_equal(
        skr_attempts_remove(skr_db_tx(fixture->db), key, &was_there, NULL),
        SKR_OK);
    assert_true(was_there);
    assert_int_equal(
        skr_attempts_remove(skr_db_tx(fixture->db), key, &was_there, NULL),
        SKR_OK);
    assert_false(was_there);
    assert_int_equal(rows(fixture), 1);
    assert_int_equal(raise_count(fixture, key), 1);
}

enum { ROUNDS = 20 };

static void *
raise_often(void *user)
{
    struct fixture *fixture = user;
    struct skr_db *db = skr_test_connect(&fixture->database);
    for (size_t i = 0; i < ROUNDS; i++) {
        uint32_t count = 0;
        enum skr_code code = SKR_CONFLICT;
        while (code == SKR_CONFLICT)
            code = skr_attempts_raise(db, key, &count, NULL);
        if (code != SKR_OK)
            break;
    }
    skr_db_close(db);
    return NULL;
}

static void
test_no_attempt_is_lost_among_many(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[4];
    create(fixture);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, raise_often, fixture), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(raise_count(fixture, key), 4 * ROUNDS + 1);
}

static void
test_a_receipt_is_there_once_and_rolls_back(void **state)
{
    struct fixture *fixture = *state;
    struct skr_tx tx = skr_db_tx(fixture->db);
    create(fixture);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(skr_attempts_add_receipt(tx, key, NULL), SKR_OK);
    skr_db_rollback(fixture->db);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(skr_attempts_add_receipt(tx, key, NULL), SKR_OK);
    assert_int_equal(skr_attempts_add_receipt(tx, key, NULL), SKR_DUPLICATE);
    // The transaction goes on.
    assert_int_equal(skr_attempts_add_receipt(tx, other, NULL), SKR_OK);
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(rows(fixture), 2);
}

static void
test_what_is_a_week_old_is_cleaned(void **state)
{
    struct fixture *fixture = *state;
    create(fixture);
    raise_count(fixture, key);
    const struct skr_value age = skr_bind_integer(8 * 24 * 3600);
    skr_test_run_template(
        fixture->db, "UPDATE skirnir_attempt SET since = {now_minus}", &age, 1);
    raise_count(fixture, other);
    assert_int_equal(skr_attempts_clean(skr_db_tx(fixture->db), NULL), SKR_OK);
    assert_int_equal(rows(fixture), 1);
    assert_int_equal(raise_count(fixture, other), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_table_is_missed_and_made),
        TEST(test_a_receipt_names_the_row_that_was_stored),
        TEST(test_eight_may_make_it_at_once),
        TEST(test_attempts_are_counted_by_key),
        TEST(test_no_attempt_is_lost_among_many),
        TEST(test_a_receipt_is_there_once_and_rolls_back),
        TEST(test_what_is_a_week_old_is_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
