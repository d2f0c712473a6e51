// SPDX-License-Identifier: MIT
// What the suites of a database driver share: one table.

#ifndef SKR_TEST_DB_WORLD_H
#define SKR_TEST_DB_WORLD_H

#include "databases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "db/sql.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    struct skr_test_database database;
    struct skr_db *db;
};

static inline int
set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    skr_test_database_make(&fixture->database);
    fixture->db = skr_test_connect(&fixture->database);
    char sql[200];
    snprintf(sql, sizeof(sql),
             "CREATE TABLE thing (id {row_id}, name VARCHAR(100) UNIQUE, "
             "note {long_text}, data %s)",
             fixture->database.bytes_type);
    skr_test_run_template(fixture->db, sql, NULL, 0);
    *state = fixture;
    return 0;
}

static inline int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    skr_db_close(fixture->db);
    skr_test_database_remove(&fixture->database);
    free(fixture);
    return 0;
}

static inline enum skr_code
run_with(struct skr_db *db, const char *sql_template,
         const struct skr_value *values, size_t count, struct skr_error *error)
{
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, sql_template, NULL, 0);
    assert_non_null(sql);
    enum skr_code code =
        skr_tx_run(skr_db_tx(db),
                   &(struct skr_statement){
                       .sql = sql, .values = values, .value_count = count},
                   error);
    skr_arena_fini(&arena);
    return code;
}

static inline enum skr_code
run(struct skr_db *db, const char *sql_template, struct skr_error *error)
{
    return run_with(db, sql_template, NULL, 0, error);
}

static inline int64_t
count_things(struct skr_db *db)
{
    return skr_test_number(db, "SELECT COUNT(*) FROM thing");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
