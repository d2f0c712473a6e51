// SPDX-License-Identifier: MIT
// The SQL of handlers: which parameters are found, and what is refused.
#include "base/arena.h"
#include "base/text.h"
#include "db/sql.h"
#include "inbox/sql_handler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct skr_dialect plain = {.product = "plain",
                                         .hash_is_comment = true};
static const struct skr_dialect numbered = {.product = "numbered",
                                            .numbers_parameters = true};

static void
test_parameters_are_found_in_order(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    struct skr_sql_template parsed = {0};
    struct skr_error error = {0};
    const char *sql = "INSERT INTO t VALUES (:id,:id_text, :name,\n:body, "
                      ":headers, :partition_key, :id);";
    static const enum skr_sql_parameter expected[] = {
        SKR_SQL_ID,      SKR_SQL_ID_TEXT,       SKR_SQL_NAME, SKR_SQL_BODY,
        SKR_SQL_HEADERS, SKR_SQL_PARTITION_KEY, SKR_SQL_ID,
    };
    assert_int_equal(
        skr_sql_template_parse(sql, &plain, &arena, &parsed, &error), SKR_OK);
    assert_string_equal(parsed.sql,
                        "INSERT INTO t VALUES (?,?, ?,\n?, ?, ?, ?)");
    assert_int_equal(parsed.count, SKR_COUNT_OF(expected));
    assert_memory_equal(parsed.parameters, expected, sizeof(expected));
    skr_arena_fini(&arena);
}

static void
test_texts_become_what_the_database_reads(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *expected;
    } cases[] = {
        {"SELECT :id, :body", "SELECT $1, $2"},
        {"select :body::jsonb ->> 'a:id'", "select $1::jsonb ->> 'a:id'"},
        {"UPDATE t SET a = ':id', \"b:id\" = `c:id`",
         "UPDATE t SET a = ':id', \"b:id\" = `c:id`"},
        {"UPDATE t SET a = 'it''s :id' WHERE b = :id",
         "UPDATE t SET a = 'it''s :id' WHERE b = $1"},
        {"-- :id\nDELETE FROM t /* :name */ WHERE a = :id -- :body",
         " \nDELETE FROM t   WHERE a = $1  "},
        {"SELECT a$b, 0x1f, a[1 : 2]", "SELECT a$b, 0x1f, a[1 : 2]"},
        {"CALL p(a := :id)", "CALL p(a := $1)"},
        {"WITH x AS (SELECT 1) SELECT * FROM x;  -- end",
         "WITH x AS (SELECT 1) SELECT * FROM x   "},
        {"SELECT a @> b, '\\n', 'a\\b'", "SELECT a @> b, '\\n', 'a\\b'"},
        {"SELECT 'gr\xc3\xb6\xc3\x9f"
         "e', gr\xc3\xb6\xc3\x9f"
         "e",
         "SELECT 'gr\xc3\xb6\xc3\x9f"
         "e', gr\xc3\xb6\xc3\x9f"
         "e"},
        {"SELECT 5-:id/:id", "SELECT 5-$1/$2"},
        {"SELECT 5 - -1 --", "SELECT 5 - -1  "},
        {"SELECT 1 --\tone\n, 2 --\n, 3", "SELECT 1  \n, 2  \n, 3"},
        {"SELECT '5--1', :body::jsonb #>> '{a}'",
         "SELECT '5--1', $1::jsonb #>> '{a}'"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        struct skr_sql_template parsed = {0};
        struct skr_error error = {0};
        if (skr_sql_template_parse(cases[i].sql, &numbered, &arena, &parsed,
                                   &error) != SKR_OK)
            fail_msg("%s: %s", cases[i].sql, error.text);
        assert_string_equal(parsed.sql, cases[i].expected);
        skr_arena_fini(&arena);
    }
}

static void
test_what_must_not_run_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *named;
    } cases[] = {
        {"", "empty"},
        {" ; ", "cannot begin with ;"},
        {"-- nothing", "empty"},
        {"CREATE TABLE t (a)", "CREATE changes the schema"},
        {"  drop table t", "drop changes the schema"},
        {"/* x */ Alter TABLE t", "Alter changes the schema"},
        {"TRUNCATE t", "TRUNCATE"},
        {"RENAME TABLE a TO b", "RENAME"},
        {"GRANT ALL ON t TO u", "GRANT"},
        {"REVOKE ALL ON t FROM u", "REVOKE"},
        {"BEGIN", "BEGIN touches the transaction"},
        {"start transaction", "start"},
        {"COMMIT", "COMMIT"},
        {"END", "END"},
        {"ROLLBACK", "ROLLBACK"},
        {"SAVEPOINT a", "SAVEPOINT"},
        {"RELEASE a", "RELEASE"},
        {"LOCK TABLE t", "LOCK"},
        {"UNLOCK TABLES", "UNLOCK"},
        {"SET autocommit = 1", "SET"},
        {"PRAGMA journal_mode", "PRAGMA"},
        {"ATTACH 'a' AS b", "ATTACH"},
        {"DETACH b", "DETACH"},
        {"VACUUM", "VACUUM"},
        {"EXPLAIN SELECT 1", "cannot begin with EXPLAIN"},
        {"(SELECT 1)", "cannot begin with ("},
        {":id", "cannot begin with :"},
        {"SELECT 1; COMMIT", "second statement"},
        {"SELECT 1;;", "second statement"},
        {"SELECT :unknown", ":unknown is no parameter"},
        {"SELECT :ids", ":ids"},
        {"SELECT :ID", ":ID"},
        {"SELECT ?", "? is no parameter"},
        {"SELECT ?1", "?1"},
        {"SELECT $1", "$1"},
        {"SELECT $$COMMIT$$", "$"},
        {"SELECT @id", "@id"},
        {"SELECT a[1:2]", ":2"},
        {"SELECT 'a", "' is not closed"},
        {"SELECT \"a", "\" is not closed"},
        {"SELECT 'it\\'s :id'", "double the quote"},
        {"SELECT 1 /* a", "/* is not closed"},
        {"SELECT 1 /* a /* b */", "inside a comment"},
        {"SELECT 1 /*! ; COMMIT */", "/*!"},
        {"UPDATE t SET n = 5--1 WHERE id = 2", "-- without a blank"},
        {"--nothing\nSELECT 1", "-- without a blank"},
        {"SELECT 1 # :id", "# begins a comment"},
        {"# one\nSELECT 1", "# begins a comment"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_arena arena = {0};
        struct skr_sql_template parsed = {0};
        struct skr_error error = {0};
        enum skr_code code = skr_sql_template_parse(cases[i].sql, &plain,
                                                    &arena, &parsed, &error);
        if (code != SKR_INVALID || strstr(error.text, cases[i].named) == NULL)
            fail_msg("%s: %d %s", cases[i].sql, (int)code, error.text);
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        skr_arena_fini(&arena);
    }
}

static void
test_there_is_a_limit_to_parameters(void **state)
{
    (void)state;
    struct skr_arena arena = {0};
    struct skr_sql_template parsed = {0};
    struct skr_error error = {0};
    struct skr_text sql = {0};
    skr_text_add_string(&sql, "SELECT 1");
    for (int i = 0; i < SKR_SQL_MAX_PARAMETERS; i++)
        skr_text_add_string(&sql, ", :id");
    assert_int_equal(
        skr_sql_template_parse(sql.bytes, &plain, &arena, &parsed, &error),
        SKR_OK);
    assert_int_equal(parsed.count, SKR_SQL_MAX_PARAMETERS);
    skr_text_add_string(&sql, ", :id");
    assert_int_equal(
        skr_sql_template_parse(sql.bytes, &plain, &arena, &parsed, &error),
        SKR_INVALID);
    skr_text_fini(&sql);
    skr_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_found_in_order),
        cmocka_unit_test(test_texts_become_what_the_database_reads),
        cmocka_unit_test(test_what_must_not_run_is_refused_by_name),
        cmocka_unit_test(test_there_is_a_limit_to_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
