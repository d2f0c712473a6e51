// SPDX-License-Identifier: MIT
// SQL templates, and what db.c adds to a driver.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/db.h"
#include "db/sql.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct skr_word dialect_words[] = {
    {"now", "CLOCK()"},
    {"table", "never: the caller's word comes first"},
    {"create", "CREATE {index} ON {table}"},
    {"nothing", ""},
};
static const struct skr_dialect plain = {
    .name = "plain",
    .words = dialect_words,
    .word_count = SKR_COUNT_OF(dialect_words),
};
static const struct skr_dialect numbered = {
    .name = "numbered",
    .words = dialect_words,
    .word_count = SKR_COUNT_OF(dialect_words),
    .numbers_parameters = true,
};
static const struct skr_word words[] = {{"table", "outbox"}, {"index", "i"}};

static void
test_words_are_filled_from_the_caller_then_from_the_dialect(void **state)
{
    (void)state;
    static const struct {
        const char *template;
        const char *sql;
        const char *numbered;
    } cases[] = {
        {"", "", ""},
        {"SELECT 1", "SELECT 1", "SELECT 1"},
        {"{now}", "CLOCK()", "CLOCK()"},
        {"SELECT {now} FROM {table} {nothing}", "SELECT CLOCK() FROM outbox ",
         "SELECT CLOCK() FROM outbox "},
        {"{create}", "CREATE i ON outbox", "CREATE i ON outbox"},
        {"a = ? AND b = ?", "a = ? AND b = ?", "a = $1 AND b = $2"},
        {"a = '?' AND b = ?", "a = '?' AND b = ?", "a = '?' AND b = $1"},
        {"a = 'it''s?' AND b = ?", "a = 'it''s?' AND b = ?",
         "a = 'it''s?' AND b = $1"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        assert_string_equal(skr_sql_fill(&plain, &arena, cases[i].template,
                                         words, SKR_COUNT_OF(words)),
                            cases[i].sql);
        assert_string_equal(skr_sql_fill(&numbered, &arena, cases[i].template,
                                         words, SKR_COUNT_OF(words)),
                            cases[i].numbered);
        skr_arena_fini(&arena);
    }
}

static void
test_a_word_that_nobody_knows_ends_the_program(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        // The way out that is expected here is not worth a report.
        signal(SIGABRT, SIG_DFL);
        struct skr_arena arena = {0};
        skr_sql_fill(&plain, &arena, "SELECT {nowhere}", words, 1);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void
test_lists_have_few_sizes(void **state)
{
    (void)state;
    static const struct {
        size_t count, size;
    } cases[] = {{1, 1},     {2, 4},     {4, 4},    {5, 16},
                 {16, 16},   {17, 64},   {65, 256}, {256, 256},
                 {300, 512}, {512, 512}, {600, 512}};
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        assert_int_equal(skr_sql_list_size(cases[i].count), cases[i].size);
    struct skr_arena arena = {0};
    assert_string_equal(skr_sql_list(&arena, 1), "?");
    assert_string_equal(skr_sql_list(&arena, 4), "?, ?, ?, ?");
    assert_int_equal(strlen(skr_sql_list(&arena, 256)), 256 * 3 - 2);
    skr_arena_fini(&arena);
}

static void
test_values_keep_their_kind(void **state)
{
    (void)state;
    assert_int_equal(skr_bind_integer(-7).integer, -7);
    assert_int_equal(skr_bind_integer(-7).kind, SKR_INTEGER);
    assert_int_equal(skr_bind_text(NULL).kind, SKR_NULL);
    assert_int_equal(skr_bind_text("abc").kind, SKR_TEXT);
    assert_int_equal(skr_bind_text("abc").size, 3);
    // No bytes at all are an empty text, not NULL.
    assert_int_equal(skr_bind_bytes(NULL, 0).kind, SKR_TEXT);
    assert_non_null(skr_bind_bytes(NULL, 0).bytes);
    assert_int_equal(skr_bind_blob("a\0b", 3).kind, SKR_BLOB);
    assert_int_equal(skr_bind_blob("a\0b", 3).size, 3);
}

// A driver that does as it is told.
struct fake_db {
    struct skr_db db;
    int opened;
};
static int closed_count;
static size_t row_count;

static enum skr_code
fake_open(struct skr_db *db, const struct skr_url *url, struct skr_error *error)
{
    (void)url;
    struct fake_db *fake = (struct fake_db *)db;
    // Allocated zeroed.
    assert_int_equal(fake->opened, 0);
    fake->opened = 1;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, "nobody is home");
}

static enum skr_code
fake_open_well(struct skr_db *db, const struct skr_url *url,
               struct skr_error *error)
{
    (void)db;
    (void)url;
    (void)error;
    return SKR_OK;
}

static void
fake_close(struct skr_db *db)
{
    (void)db;
    closed_count++;
}

static enum skr_code
fake_run(struct skr_tx tx, const struct skr_statement *statement,
         struct skr_error *error)
{
    (void)tx;
    for (size_t i = 0; i < row_count; i++) {
        char text[32];
        snprintf(text, sizeof(text), "row %zu", i);
        const struct skr_value columns[] = {
            {.kind = SKR_TEXT, .bytes = text, .size = strlen(text)},
            {.kind = SKR_INTEGER, .integer = (int64_t)i},
            {.kind = SKR_NULL},
        };
        enum skr_code code = statement->each_row(columns, SKR_COUNT_OF(columns),
                                                 statement->user, error);
        if (code != SKR_OK)
            return code;
    }
    return SKR_OK;
}

static const struct skr_tx_ops fake_tx = {.dialect = &plain, .run = fake_run};
static const struct skr_db_ops failing = {
    .scheme = "fake",
    .size = sizeof(struct fake_db),
    .tx = &fake_tx,
    .open = fake_open,
    .close = fake_close,
};
static const struct skr_db_ops working = {
    .scheme = "fake",
    .size = sizeof(struct fake_db),
    .tx = &fake_tx,
    .open = fake_open_well,
    .close = fake_close,
};

static void
test_a_connection_that_did_not_open_is_closed_once(void **state)
{
    (void)state;
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    closed_count = 0;
    assert_int_equal(skr_db_open(&failing, "fake:///x", &db, &error),
                     SKR_UNAVAILABLE);
    assert_null(db);
    assert_int_equal(closed_count, 1);
    assert_string_equal(error.text, "nobody is home");
    // No driver is asked about a URL that is none.
    assert_int_equal(skr_db_open(&failing, "fake", &db, &error), SKR_INVALID);
    assert_int_equal(closed_count, 1);
    skr_db_close(NULL);
}

static void
test_one_row_is_copied_and_the_rest_ignored(void **state)
{
    (void)state;
    struct skr_db *db = NULL;
    assert_int_equal(skr_db_open(&working, "fake:///x", &db, NULL), SKR_OK);
    assert_ptr_equal(skr_db_dialect(db), &plain);
    struct skr_arena arena = {0};
    struct skr_value columns[2] = {{.integer = 5}, {.integer = 6}};
    const struct skr_statement statement = {.sql = "SELECT"};
    bool found = true;
    row_count = 0;
    assert_int_equal(skr_tx_fetch_one(skr_db_tx(db), &statement, &arena,
                                      columns, 2, &found, NULL),
                     SKR_OK);
    assert_false(found);
    assert_int_equal(columns[0].integer, 5);
    row_count = 3;
    assert_int_equal(skr_tx_fetch_one(skr_db_tx(db), &statement, &arena,
                                      columns, 2, &found, NULL),
                     SKR_OK);
    assert_true(found);
    assert_string_equal(columns[0].bytes, "row 0");
    assert_int_equal(columns[1].integer, 0);
    skr_arena_fini(&arena);
    skr_db_close(db);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_words_are_filled_from_the_caller_then_from_the_dialect),
        cmocka_unit_test(test_a_word_that_nobody_knows_ends_the_program),
        cmocka_unit_test(test_lists_have_few_sizes),
        cmocka_unit_test(test_values_keep_their_kind),
        cmocka_unit_test(test_a_connection_that_did_not_open_is_closed_once),
        cmocka_unit_test(test_one_row_is_copied_and_the_rest_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
