// SPDX-License-Identifier: MIT
// SQL templates, and what db.c adds to a driver.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/db.h"
#include "db/run.h"
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
    .product = "plain",
    .words = dialect_words,
    .word_count = SKR_COUNT_OF(dialect_words),
};
static const struct skr_dialect numbered = {
    .product = "numbered",
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
test_names_of_tables_are_folded_and_quoted(void **state)
{
    (void)state;
    static const struct skr_dialect keeping = {.quote = '`'};
    static const struct skr_dialect folding = {.quote = '"',
                                               .name_case = SKR_CASE_FOLDED};
    static const struct skr_word tables[] = {{"table", "Order_1"},
                                             {"failed_table", "group"}};
    static const char template[] =
        "{table}, {failed_table}, '{table:name}', {failed_table:name}_i";
    struct skr_arena arena = {0};
    assert_string_equal(skr_sql_fill(&keeping, &arena, template, tables, 2),
                        "`Order_1`, `group`, 'Order_1', group_i");
    assert_string_equal(skr_sql_fill(&folding, &arena, template, tables, 2),
                        "\"order_1\", \"group\", 'Order_1', group_i");
    skr_arena_fini(&arena);
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
    struct skr_row row = {
        .arena = &arena, .columns = columns, .count = 2, .found = true};
    row_count = 0;
    assert_int_equal(skr_sql_fetch(skr_db_tx(db), &statement, &row, NULL),
                     SKR_OK);
    assert_false(row.found);
    assert_int_equal(columns[0].kind, SKR_NULL);
    assert_int_equal(columns[0].integer, 0);
    row_count = 3;
    assert_int_equal(skr_sql_fetch(skr_db_tx(db), &statement, &row, NULL),
                     SKR_OK);
    assert_true(row.found);
    assert_string_equal(columns[0].bytes, "row 0");
    assert_int_equal(columns[1].integer, 0);
    // Without an arena there is nowhere to copy a text to.
    row.arena = NULL;
    assert_int_equal(
        skr_sql_row(skr_db_tx(db), "SELECT", SKR_NO_VALUES, &row, NULL),
        SKR_OK);
    assert_true(row.found);
    assert_int_equal(columns[0].kind, SKR_NULL);
    assert_null(columns[0].bytes);
    assert_int_equal(columns[1].kind, SKR_INTEGER);
    skr_arena_fini(&arena);
    skr_db_close(db);
}

// A driver that counts statements and gives rows of one number.
struct heard {
    size_t statements;
    size_t value_count;
    struct skr_value values[SKR_VALUES_ROOM];
    size_t row_count;
};

static enum skr_code
hear(struct skr_tx tx, const struct skr_statement *statement,
     struct skr_error *error)
{
    struct heard *heard = tx.connection;
    heard->statements++;
    heard->value_count = statement->value_count;
    for (size_t i = 0; i < statement->value_count; i++)
        heard->values[i] = statement->values[i];
    if (statement->affected != NULL)
        *statement->affected = 3;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < heard->row_count && code == SKR_OK; i++)
        code = statement->each_row(
            &(struct skr_value){.kind = SKR_INTEGER, .integer = 40}, 1,
            statement->user, error);
    return code;
}

static const struct skr_tx_ops hearing = {.dialect = &plain, .run = hear};
static const struct skr_tx_ops hearing_numbered = {.dialect = &numbered,
                                                   .run = hear};

static void
test_values_are_bound_in_their_order(void **state)
{
    (void)state;
    struct heard heard = {.statements = 0};
    struct skr_tx tx = {.ops = &hearing, .connection = &heard};
    // Volatile, since a compiler that knows better would warn of %s.
    const char *volatile absent = NULL;
    uint64_t affected = 0;
    assert_int_equal(
        skr_sql_run(tx, "a = ? AND b = ? AND c = ?",
                    skr_values("%s %jd%s", "abc", INT64_MIN, absent), &affected,
                    NULL),
        SKR_OK);
    assert_int_equal(affected, 3);
    assert_int_equal(heard.value_count, 3);
    assert_int_equal(heard.values[0].kind, SKR_TEXT);
    assert_memory_equal(heard.values[0].bytes, "abc", heard.values[0].size);
    assert_int_equal(heard.values[1].kind, SKR_INTEGER);
    assert_int_equal(heard.values[1].integer, INT64_MIN);
    assert_int_equal(heard.values[2].kind, SKR_NULL);
    struct skr_values blob = {1, {skr_bind_blob("a\0b", 3)}};
    assert_int_equal(skr_sql_run(tx, "?", blob, NULL, NULL), SKR_OK);
    assert_int_equal(heard.values[0].kind, SKR_BLOB);
    assert_int_equal(heard.values[0].size, 3);
}

static void
test_values_that_do_not_fit_the_text_are_refused_and_not_sent(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *numbered;
        size_t takes;
    } cases[] = {
        {"SELECT 1", "SELECT 1", 0},
        {"SELECT '?', 'it''s ?'", "SELECT '$1', 'it''s $2'", 0},
        {"a = ?", "a = $1", 1},
        {"a = '?' AND b = ?", "a = '$2' AND b = $1", 1},
        {"a = ? AND b = ?", "a = $2 AND b = $1", 2},
        {"?,?,?,?,?,?,?,?,?,?,?,?", "$$ $12 $", 12},
        {"?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?", "$16", 16},
        {"?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?", "$17", 17},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        for (size_t count = 0; count <= SKR_VALUES_ROOM; count++) {
            struct heard heard = {.statements = 0};
            struct skr_tx tx = {.ops = &hearing, .connection = &heard};
            struct skr_tx other = {.ops = &hearing_numbered,
                                   .connection = &heard};
            struct skr_values values = {.count = count};
            struct skr_error error = {0};
            bool fits = count == cases[i].takes;
            enum skr_code want = fits ? SKR_OK : SKR_INVALID;
            assert_int_equal(
                skr_sql_run(tx, cases[i].sql, values, NULL, &error), want);
            assert_int_equal(
                skr_sql_run(other, cases[i].numbered, values, NULL, &error),
                want);
            assert_int_equal(heard.statements, fits ? 2 : 0);
            assert_int_equal(error.code, want);
            assert_int_equal(error.remedy, fits ? error.remedy : SKR_GIVE_UP);
        }
}

static void
test_kinds_that_cannot_be_bound_are_refused(void **state)
{
    (void)state;
    struct heard heard = {.statements = 0};
    struct skr_tx tx = {.ops = &hearing, .connection = &heard};
    assert_int_equal(skr_sql_run(tx, "?", skr_values("%d", 1), NULL, NULL),
                     SKR_INVALID);
    assert_int_equal(
        skr_sql_run(tx, "SELECT 1", skr_values("none"), NULL, NULL),
        SKR_INVALID);
    assert_int_equal(
        skr_sql_run(tx, "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?",
                    skr_values("%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s", "", "", "",
                               "", "", "", "", "", "", "", "", "", "", "", "",
                               "", ""),
                    NULL, NULL),
        SKR_INVALID);
    assert_int_equal(heard.statements, 0);
}

static void
test_a_number_is_zero_without_a_row(void **state)
{
    (void)state;
    struct heard heard = {.row_count = 1};
    struct skr_tx tx = {.ops = &hearing, .connection = &heard};
    struct skr_value columns[2] = {{.integer = 5}, {.integer = 6}};
    struct skr_row row = {.columns = columns, .count = 2};
    int64_t number = 7;
    bool found = false;
    assert_int_equal(skr_sql_number(tx, "SELECT", SKR_NO_VALUES, &number, NULL),
                     SKR_OK);
    assert_int_equal(number, 40);
    assert_int_equal(skr_sql_finds(tx, "SELECT", SKR_NO_VALUES, &found, NULL),
                     SKR_OK);
    assert_true(found);
    assert_int_equal(skr_sql_row(tx, "SELECT", SKR_NO_VALUES, &row, NULL),
                     SKR_OK);
    assert_true(row.found);
    assert_int_equal(columns[0].integer, 40);
    assert_int_equal(columns[1].kind, SKR_NULL);
    heard.row_count = 0;
    assert_int_equal(skr_sql_number(tx, "SELECT", SKR_NO_VALUES, &number, NULL),
                     SKR_OK);
    assert_int_equal(number, 0);
    assert_int_equal(skr_sql_finds(tx, "SELECT", SKR_NO_VALUES, &found, NULL),
                     SKR_OK);
    assert_false(found);
    assert_int_equal(skr_sql_row(tx, "SELECT", SKR_NO_VALUES, &row, NULL),
                     SKR_OK);
    assert_false(row.found);
    assert_int_equal(columns[0].kind, SKR_NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_words_are_filled_from_the_caller_then_from_the_dialect),
        cmocka_unit_test(test_names_of_tables_are_folded_and_quoted),
        cmocka_unit_test(test_a_word_that_nobody_knows_ends_the_program),
        cmocka_unit_test(test_lists_have_few_sizes),
        cmocka_unit_test(test_values_keep_their_kind),
        cmocka_unit_test(test_a_connection_that_did_not_open_is_closed_once),
        cmocka_unit_test(test_one_row_is_copied_and_the_rest_ignored),
        cmocka_unit_test(test_values_are_bound_in_their_order),
        cmocka_unit_test(
            test_values_that_do_not_fit_the_text_are_refused_and_not_sent),
        cmocka_unit_test(test_kinds_that_cannot_be_bound_are_refused),
        cmocka_unit_test(test_a_number_is_zero_without_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
