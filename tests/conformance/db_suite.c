// SPDX-License-Identifier: MIT
// Drivers: transactions, statements and trouble.

#include "db_world.h"

#include "base/url.h"
#include "db/run.h"

// ---------------------------------------------------------------- transactions

static void
test_a_commit_is_seen_by_others_and_a_rollback_is_not(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(count_things(fixture->db), 1);
    assert_int_equal(count_things(other), 0);
    skr_db_rollback(fixture->db);
    assert_int_equal(count_things(fixture->db), 0);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('b')");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(count_things(other), 1);
    skr_db_close(other);
}

static void
test_a_rollback_outside_a_transaction_is_harmless(void **state)
{
    struct fixture *fixture = *state;
    skr_db_rollback(fixture->db);
    skr_db_rollback(fixture->db);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    skr_db_rollback(fixture->db);
    assert_int_equal(count_things(fixture->db), 1);
}

static void
test_closing_rolls_back(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(other, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(other, "INSERT INTO thing (name) VALUES ('a')");
    skr_db_close(other);
    assert_int_equal(count_things(fixture->db), 0);
}

static void
test_a_snapshot_sees_one_state(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_SNAPSHOT, NULL),
                     SKR_OK);
    assert_int_equal(count_things(fixture->db), 0);
    skr_test_run(other, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(count_things(fixture->db), 0);
    skr_db_rollback(fixture->db);
    assert_int_equal(count_things(fixture->db), 1);
    skr_db_close(other);
}

static void
test_autocommit_is_told_from_a_transaction(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_tx own = skr_db_tx(fixture->db);
    assert_int_equal(own.ops->check(own, &error), SKR_NO_TRANSACTION);
    assert_non_null(strstr(error.text, "BEGIN"));
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(own.ops->check(own, &error), SKR_OK);
    skr_db_rollback(fixture->db);

    struct skr_test_client client = skr_test_client_open(&fixture->database);
    assert_int_equal(client.tx.ops->check(client.tx, &error),
                     SKR_NO_TRANSACTION);
    skr_test_client_begin(&client);
    assert_int_equal(client.tx.ops->check(client.tx, &error), SKR_OK);
    skr_test_client_rollback(&client);
    skr_test_client_close(&client);
}

static void
test_a_commit_without_a_transaction_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "ROLLBACK");
    assert_int_equal(skr_db_commit(fixture->db, &error), SKR_NO_TRANSACTION);
}

static void
test_a_guarded_transaction_commits_and_rolls_back_like_any(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    for (int commits = 0; commits < 2; commits++) {
        assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
        assert_int_equal(count_things(other), 0);
        if (commits)
            assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
        else
            skr_db_rollback(fixture->db);
        assert_int_equal(count_things(other), commits);
    }
    // The next is as it says: nothing of the guard is left.
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "DELETE FROM thing");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(count_things(other), 0);
    skr_db_close(other);
}

// As of a message whose handler has nothing to write.
static void
test_a_guarded_transaction_may_be_empty(void **state)
{
    struct fixture *fixture = *state;
    struct skr_tx tx = skr_db_tx(fixture->db);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        assert_int_equal(tx.ops->check(tx, NULL), SKR_OK);
        assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
        assert_int_equal(tx.ops->check(tx, NULL), SKR_NO_TRANSACTION);
    }
}

static void
test_what_runs_between_guarded_transactions_commits_by_itself(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        skr_test_run(fixture->db, "UPDATE thing SET name = 'b'");
        assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
        skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
        assert_int_equal(count_things(other), i);
    }
    skr_db_close(other);
}

// Whatever stands in its place at the end is not committed.
static void
test_a_guarded_transaction_is_told_from_another_in_its_place(void **state)
{
    struct fixture *fixture = *state;
    static const char *const ends[] = {"COMMIT", "ROLLBACK"};
    for (size_t i = 0; i < SKR_COUNT_OF(ends); i++)
        for (int begins = 0; begins < 2; begins++) {
            struct skr_error error = {0};
            assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_GUARDED, NULL),
                             SKR_OK);
            skr_test_run(fixture->db, ends[i]);
            if (begins) {
                skr_test_run(fixture->db, "BEGIN");
                skr_test_run(fixture->db,
                             "INSERT INTO thing (name) VALUES ('a')");
            }
            assert_int_equal(skr_db_commit(fixture->db, &error),
                             SKR_NO_TRANSACTION);
            assert_int_equal(error.remedy, SKR_GIVE_UP);
            assert_int_equal(count_things(fixture->db), 0);
        }
}

static void
test_the_application_keeps_its_own_transaction(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    const struct skr_statement insert = {
        .sql = "INSERT INTO thing (name) VALUES ('a')"};
    skr_test_client_begin(&client);
    assert_int_equal(skr_tx_run(client.tx, &insert, NULL), SKR_OK);
    assert_int_equal(count_things(fixture->db), 0);
    skr_test_client_rollback(&client);
    assert_int_equal(count_things(fixture->db), 0);
    skr_test_client_begin(&client);
    assert_int_equal(skr_tx_run(client.tx, &insert, NULL), SKR_OK);
    skr_test_client_commit(&client);
    assert_int_equal(count_things(fixture->db), 1);
    // Nothing of ours is left on it that would keep it from closing.
    skr_test_client_close(&client);
}

// ------------------------------------------------------------------ statements

static void
test_values_come_back_as_they_were_bound(void **state)
{
    struct fixture *fixture = *state;
    size_t large = 3 * 1024 * 1024;
    char *text = malloc(large);
    assert_non_null(text);
    memset(text, 'x', large);
    const struct skr_value cases[] = {
        skr_bind_text(NULL),
        skr_bind_text(""),
        skr_bind_text("O'Brien; \xc3\xa9\xf0\x9f\x90\x8e"),
        skr_bind_bytes("abcdef", 3),
        skr_bind_bytes(text, large),
        skr_bind_blob("", 0),
        skr_bind_blob("\0\xff\0\x01", 4),
        skr_bind_blob(text, large),
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        skr_test_run(fixture->db, "DELETE FROM thing");
        bool is_blob = cases[i].kind == SKR_BLOB;
        const struct skr_value values[] = {
            skr_bind_integer(INT64_MAX - (int64_t)i),
            is_blob ? skr_bind_text(NULL) : cases[i],
            is_blob ? cases[i] : skr_bind_text(NULL)};
        skr_test_run_template(fixture->db,
                              "INSERT INTO thing (id, note, data) "
                              "VALUES (?, ?, ?)",
                              values, 3);
        struct skr_arena arena = {0};
        struct skr_value columns[3];
        struct skr_row row = {.arena = &arena, .columns = columns, .count = 3};
        assert_int_equal(skr_sql_row(skr_db_tx(fixture->db),
                                     "SELECT id, note, data FROM thing",
                                     SKR_NO_VALUES, &row, NULL),
                         SKR_OK);
        assert_true(row.found);
        assert_int_equal(columns[0].kind, SKR_INTEGER);
        assert_int_equal(columns[0].integer, INT64_MAX - (int64_t)i);
        const struct skr_value *value = &columns[is_blob ? 2 : 1];
        assert_int_equal(value->kind, cases[i].kind);
        assert_int_equal(value->size, cases[i].size);
        assert_int_equal(columns[is_blob ? 1 : 2].kind, SKR_NULL);
        if (cases[i].size > 0)
            assert_memory_equal(value->bytes, cases[i].bytes, cases[i].size);
        if (value->kind == SKR_TEXT)
            assert_int_equal(((const char *)value->bytes)[value->size], '\0');
        skr_arena_fini(&arena);
    }
    free(text);
}

static void
test_affected_rows_are_counted(void **state)
{
    struct fixture *fixture = *state;
    struct skr_tx tx = skr_db_tx(fixture->db);
    static const struct {
        const char *sql;
        uint64_t affected;
    } cases[] = {
        {"INSERT INTO thing (name) VALUES ('a'), ('b'), ('c')", 3},
        {"SELECT * FROM thing", 0},
        {"UPDATE thing SET data = NULL WHERE name = 'a'", 1},
        {"DELETE FROM thing WHERE name = 'z'", 0},
        {"DELETE FROM thing", 3},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        uint64_t affected = 99;
        assert_int_equal(
            skr_tx_run(tx,
                       &(struct skr_statement){.sql = cases[i].sql,
                                               .affected = &affected},
                       NULL),
            SKR_OK);
        assert_int_equal(affected, cases[i].affected);
    }
}

static void
test_many_texts_and_the_same_text_again_give_right_answers(void **state)
{
    struct fixture *fixture = *state;
    // More texts than any driver keeps prepared, twice over.
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 200; i++) {
            char sql[64];
            snprintf(sql, sizeof(sql), "SELECT %d + COUNT(*) FROM thing", i);
            assert_int_equal(skr_test_number(fixture->db, sql), i);
        }
    // A prepared statement survives a change of the table under it.
    skr_test_run(fixture->db, "ALTER TABLE thing ADD COLUMN extra INTEGER");
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT 7 + COUNT(*) FROM thing"), 7);
}

struct nesting {
    struct skr_db *db;
    int depth, rows;
};

static enum skr_code
nest(const struct skr_value *columns, size_t count, void *user,
     struct skr_error *error)
{
    (void)columns;
    (void)count;
    struct nesting *nesting = user;
    nesting->rows++;
    if (nesting->depth == 2)
        return SKR_OK;
    nesting->depth++;
    enum skr_code code = skr_tx_run(
        skr_db_tx(nesting->db),
        &(struct skr_statement){
            .sql = "SELECT id FROM thing", .each_row = nest, .user = nesting},
        error);
    nesting->depth--;
    return code;
}

static void
test_a_statement_may_run_inside_itself(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a'), ('b')");
    struct nesting nesting = {.db = fixture->db};
    assert_int_equal(nest(NULL, 0, &nesting, NULL), SKR_OK);
    assert_int_equal(nesting.rows, 1 + 2 + 2 * 2);
}

static enum skr_code
stop_at_second(const struct skr_value *columns, size_t count, void *user,
               struct skr_error *error)
{
    (void)columns;
    (void)count;
    (void)error;
    return ++*(int *)user == 2 ? SKR_STOPPED : SKR_OK;
}

static void
test_a_row_function_ends_the_statement(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db,
                 "INSERT INTO thing (name) VALUES ('a'), ('b'), ('c')");
    int rows = 0;
    const struct skr_statement statement = {.sql = "SELECT id FROM thing",
                                            .each_row = stop_at_second,
                                            .user = &rows};
    assert_int_equal(skr_tx_run(skr_db_tx(fixture->db), &statement, NULL),
                     SKR_STOPPED);
    assert_int_equal(rows, 2);
    // And leaves nothing open behind: others may write.
    struct skr_db *other = skr_test_connect_impatient(&fixture->database);
    skr_test_run(other, "DELETE FROM thing");
    skr_db_close(other);
}

static void
test_mistakes_have_their_codes(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db, "INSERT INTO thing (id, name) VALUES (1, 'a')");
    static const struct {
        const char *sql;
        enum skr_code code;
        enum skr_remedy remedy;
        const char *words;
    } cases[] = {
        {"INSERT INTO thing (id) VALUES (1)", SKR_DUPLICATE, SKR_GIVE_UP, ""},
        {"INSERT INTO thing (name) VALUES ('a')", SKR_DUPLICATE, SKR_GIVE_UP,
         ""},
        {"SELECT * FROM nowhere", SKR_MISSING, SKR_GIVE_UP, "nowhere"},
        {"INSERT INTO nowhere (id) VALUES (1)", SKR_MISSING, SKR_GIVE_UP,
         "nowhere"},
        {"SELECT colour FROM thing", SKR_INVALID, SKR_GIVE_UP, "colour"},
        {"INSERT INTO thing (colour) VALUES (1)", SKR_INVALID, SKR_GIVE_UP,
         "another shape"},
        {"SELEC 1", SKR_INVALID, SKR_GIVE_UP, "SELEC"},
        {"", SKR_INVALID, SKR_GIVE_UP, "statement"},
        {"SELECT 1; SELECT 2", SKR_INVALID, SKR_GIVE_UP, " one"},
        {"SELECT id FROM thing WHERE id = ?", SKR_INVALID, SKR_GIVE_UP,
         "parameter"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        assert_int_equal(run(fixture->db, cases[i].sql, &error), cases[i].code);
        assert_int_equal(error.code, cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        assert_non_null(strstr(error.text, cases[i].words));
    }
    // None of them has harmed the connection.
    assert_int_equal(count_things(fixture->db), 1);
}

// --------------------------------------------------------------------- trouble

static void
test_a_database_that_cannot_be_reached_is_named(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    enum skr_code code = skr_db_open(
        fixture->database.ops, fixture->database.missing_url, &db, &error);
    // A file whose folder is missing is a mistake in the URL.
    assert_true(code == SKR_UNAVAILABLE || code == SKR_INVALID);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    assert_non_null(strstr(error.text, "missing"));
    assert_null(db);
}

static void
test_a_url_that_is_a_mistake_is_refused_with_the_reason(void **state)
{
    struct fixture *fixture = *state;
    for (const char *const *at = fixture->database.bad_urls; *at != NULL;
         at += 2) {
        struct skr_db *db = NULL;
        struct skr_error error = {0};
        assert_int_equal(skr_db_open(fixture->database.ops, at[0], &db, &error),
                         SKR_INVALID);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        if (strstr(error.text, at[1]) == NULL)
            fail_msg("%s: %s", at[0], error.text);
        // The same without a connection.
        struct skr_url url;
        assert_int_equal(skr_url_parse(at[0], &url, &error), SKR_OK);
        assert_int_equal(fixture->database.ops->check_url(&url, &error),
                         SKR_INVALID);
        assert_non_null(strstr(error.text, at[1]));
        skr_url_fini(&url);
    }
}

static void
test_advice_is_followed_only_on_request_and_then_ends(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    char advice[SKR_ADVICE_SIZE] = "", again[SKR_ADVICE_SIZE] = "";
    if (db->ops->advise == skr_db_advise_nothing)
        return;
    skr_test_spoil(db);
    assert_int_equal(db->ops->advise(db, false, advice, NULL), SKR_OK);
    assert_true(advice[0] != '\0');
    assert_int_equal(db->ops->advise(db, false, again, NULL), SKR_OK);
    assert_string_equal(again, advice);
    assert_int_equal(db->ops->advise(db, true, again, NULL), SKR_OK);
    assert_string_not_equal(again, advice);
    assert_int_equal(db->ops->advise(db, false, again, NULL), SKR_OK);
    assert_string_equal(again, "");
}

static void
test_a_locked_database_is_a_conflict_that_passes(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *impatient = skr_test_connect_impatient(&fixture->database);
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (id) VALUES (1)");
    enum skr_code code = skr_db_begin(impatient, SKR_BEGIN_WRITE, &error);
    if (code == SKR_OK)
        code = run(impatient, "INSERT INTO thing (id) VALUES (1)", &error);
    assert_int_equal(code, SKR_CONFLICT);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    assert_true(error.native[0] != '\0');
    skr_db_rollback(impatient);
    skr_db_rollback(fixture->db);
    assert_int_equal(skr_db_begin(impatient, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(impatient, "INSERT INTO thing (id) VALUES (1)");
    assert_int_equal(skr_db_commit(impatient, NULL), SKR_OK);
    skr_db_close(impatient);
}

static void
test_a_full_disk_is_refused_and_may_pass(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    skr_test_make_full(fixture->db);
    char *data = calloc(1, 1 << 20);
    assert_non_null(data);
    const struct skr_value value = skr_bind_blob(data, 1 << 20);
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    assert_int_equal(run_with(fixture->db,
                              "INSERT INTO thing (data) VALUES (?)", &value, 1,
                              &error),
                     SKR_REFUSED);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    skr_db_rollback(fixture->db);
    assert_int_equal(count_things(fixture->db), 0);
    free(data);
}

// In a child, which gives up the right to write.
static int
write_as_reader(const struct fixture *fixture)
{
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    skr_test_become_reader(&fixture->database);
    if (skr_db_open_to_read(fixture->database.ops, fixture->database.url, &db,
                            &error) != SKR_OK)
        return 1;
    if (count_things(db) != 0)
        return 2;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, &error);
    if (code == SKR_OK)
        code = run(db, "INSERT INTO thing (id) VALUES (1)", &error);
    if (code != SKR_REFUSED || error.remedy == SKR_TRY_AGAIN)
        return 3;
    return strstr(error.text, fixture->database.reader_answer) == NULL ? 4 : 0;
}

static void
test_a_database_that_may_not_be_written_says_so(void **state)
{
    struct fixture *fixture = *state;
    skr_db_close(fixture->db);
    pid_t child = fork();
    if (child == 0)
        _exit(write_as_reader(fixture));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(skr_db_open_to_read(fixture->database.ops,
                                         fixture->database.url, &fixture->db,
                                         NULL),
                     SKR_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_commit_is_seen_by_others_and_a_rollback_is_not),
        TEST(test_a_rollback_outside_a_transaction_is_harmless),
        TEST(test_closing_rolls_back),
        TEST(test_a_snapshot_sees_one_state),
        TEST(test_autocommit_is_told_from_a_transaction),
        TEST(test_a_commit_without_a_transaction_is_an_error),
        TEST(test_a_guarded_transaction_commits_and_rolls_back_like_any),
        TEST(test_a_guarded_transaction_may_be_empty),
        TEST(test_what_runs_between_guarded_transactions_commits_by_itself),
        TEST(test_a_guarded_transaction_is_told_from_another_in_its_place),
        TEST(test_the_application_keeps_its_own_transaction),
        TEST(test_values_come_back_as_they_were_bound),
        TEST(test_affected_rows_are_counted),
        TEST(test_many_texts_and_the_same_text_again_give_right_answers),
        TEST(test_a_statement_may_run_inside_itself),
        TEST(test_a_row_function_ends_the_statement),
        TEST(test_mistakes_have_their_codes),
        TEST(test_a_database_that_cannot_be_reached_is_named),
        TEST(test_a_url_that_is_a_mistake_is_refused_with_the_reason),
        TEST(test_advice_is_followed_only_on_request_and_then_ends),
        TEST(test_a_locked_database_is_a_conflict_that_passes),
        TEST(test_a_full_disk_is_refused_and_may_pass),
        TEST(test_a_database_that_may_not_be_written_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
