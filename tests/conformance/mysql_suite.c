// SPDX-License-Identifier: MIT
// What only the driver for MariaDB and MySQL has to show: the rest is in the
// suites for all databases.

#include "db_world.h"

#include "base/clock.h"
#include "base/error.h"
#include "db/mysql/connection.h"
#include "db/run.h"
#include "store/deduplication/deduplication.h"
#include "store/messenger/messenger.h"

#include <skirnir/mysql.h>

static MYSQL *
raw(struct skr_db *db)
{
    return skr_mysql_connection(skr_db_tx(db));
}

static void
query(MYSQL *connection, const char *sql)
{
    if (mysql_query(connection, sql) != 0)
        fail_msg("%s: %s", sql, mysql_error(connection));
    mysql_free_result(mysql_store_result(connection));
}

// ----------------------------------------------------- the application's own

static void
test_autocommit_off_counts_as_a_transaction(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    skr_test_client_run(&client, "SET autocommit = 0");
    assert_int_equal(client.tx.ops->check(client.tx, &error), SKR_OK);
    const struct skr_statement insert = {
        .sql = "INSERT INTO thing (name) VALUES ('a')"};
    assert_int_equal(skr_tx_run(client.tx, &insert, &error), SKR_OK);
    assert_int_equal(count_things(fixture->db), 0);
    skr_test_client_rollback(&client);
    // Unless the connection may be replaced by one in autocommit unnoticed.
    my_bool on = 1;
    mysql_optionsv(client.connection, MYSQL_OPT_RECONNECT, &on);
    assert_int_equal(client.tx.ops->check(client.tx, &error),
                     SKR_NO_TRANSACTION);
    assert_non_null(strstr(error.text, "MYSQL_OPT_RECONNECT"));
    skr_test_client_begin(&client);
    assert_int_equal(client.tx.ops->check(client.tx, &error), SKR_OK);
    skr_test_client_close(&client);
    assert_int_equal(count_things(fixture->db), 0);
}

static void
test_a_connection_that_never_was_open_is_refused(void **state)
{
    (void)state;
    struct skr_error error = {0};
    MYSQL *connection = mysql_init(NULL);
    assert_non_null(connection);
    struct skr_tx tx = skr_mysql_tx(connection);
    const struct skr_statement insert = {
        .sql = "INSERT INTO thing (name) VALUES ('a')"};
    assert_int_equal(skr_tx_run(tx, &insert, &error), SKR_UNAVAILABLE);
    my_bool on = 1;
    mysql_optionsv(connection, MYSQL_OPT_RECONNECT, &on);
    assert_int_equal(tx.ops->check(tx, &error), SKR_NO_TRANSACTION);
    assert_non_null(strstr(error.text, "the MariaDB or MySQL connection"));
    mysql_close(connection);
}

static enum skr_code
count_row(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)columns;
    (void)count;
    (void)error;
    ++*(int *)user;
    return SKR_OK;
}

static void
test_mistakes_leave_the_applications_connection_in_step(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    const struct skr_value value = skr_bind_text("a");
    static const struct {
        const char *sql;
        enum skr_code code;
    } cases[] = {
        {"INSERT INTO thing (name) VALUES (?)", SKR_OK},
        {"INSERT INTO thing (name) VALUES (?)", SKR_DUPLICATE},
        {"INSERT INTO nowhere (name) VALUES (?)", SKR_MISSING},
        {"SELEC ?", SKR_INVALID},
        {"SELECT name FROM thing WHERE name <> ?", SKR_OK},
    };
    skr_test_client_begin(&client);
    for (int round = 0; round < 3; round++)
        for (size_t i = round == 0 ? 0 : 1; i < SKR_COUNT_OF(cases); i++) {
            int rows = 0;
            assert_int_equal(skr_tx_run(client.tx,
                                        &(struct skr_statement){
                                            .sql = cases[i].sql,
                                            .values = &value,
                                            .value_count = 1,
                                            .each_row = count_row,
                                            .user = &rows,
                                        },
                                        NULL),
                             cases[i].code);
            assert_int_equal(client.tx.ops->check(client.tx, NULL), SKR_OK);
        }
    skr_test_client_commit(&client);
    assert_int_equal(count_things(fixture->db), 1);
    // Nothing of ours stays on the server.
    assert_int_equal(mysql_query(client.connection,
                                 "SHOW STATUS LIKE 'Prepared_stmt_count'"),
                     0);
    mysql_free_result(mysql_store_result(client.connection));
    skr_test_client_close(&client);
}

static void
test_a_large_body_goes_through_the_applications_connection(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    size_t size = 12 * 1024 * 1024;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 'x', size);
    const struct skr_value value = skr_bind_bytes(bytes, size);
    skr_test_client_begin(&client);
    assert_int_equal(
        skr_tx_run(client.tx,
                   &(struct skr_statement){
                       .sql = "INSERT INTO thing (note) VALUES (?)",
                       .values = &value,
                       .value_count = 1},
                   NULL),
        SKR_OK);
    skr_test_client_commit(&client);
    assert_int_equal(
        skr_test_number(fixture->db, "SELECT LENGTH(note) FROM thing"),
        (int64_t)size);
    free(bytes);
    skr_test_client_close(&client);
}

// ---------------------------------------------------------------- transactions

typedef enum skr_code
run_fn(struct skr_db *db, const char *sql, struct skr_error *error);

struct deadlock {
    struct skr_db *db;
    enum skr_code code;
};

static void *
lock_second_then_first(void *user)
{
    struct deadlock *deadlock = user;
    deadlock->code = run(deadlock->db,
                         "UPDATE thing SET note = 'b' "
                         "WHERE id = 1",
                         NULL);
    return NULL;
}

// MySQL shows no statement while that of any session holds bytes that are no
// text.
static bool
is_waiting(struct skr_db *db)
{
    int64_t count = 0;
    struct skr_error error = {0};
    enum skr_code code =
        skr_sql_number(skr_db_tx(db),
                       "SELECT COUNT(*) FROM information_schema.processlist "
                       "WHERE info LIKE 'UPDATE%id = 1'",
                       SKR_NO_VALUES, &count, &error);
    if (code != SKR_OK && code != SKR_CONFLICT)
        fail_msg("%s", error.text);
    return count > 0;
}

// Both wait for each other; the one that has changed less loses, by the last
// statement.
static enum skr_code
make_deadlock(struct fixture *fixture, struct skr_db *other,
              enum skr_begin mode, run_fn *run_last, struct skr_error *error)
{
    skr_test_run(fixture->db, "INSERT INTO thing (id) VALUES (1), (2), (3)");
    assert_int_equal(skr_db_begin(fixture->db, mode, NULL), SKR_OK);
    skr_test_run(fixture->db, "UPDATE thing SET note = 'a' WHERE id = 1");
    assert_int_equal(skr_db_begin(other, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(other, "UPDATE thing SET note = 'b' WHERE id = 2");
    skr_test_run(other, "UPDATE thing SET note = 'b' WHERE id = 3");
    skr_test_run(other, "INSERT INTO thing (id) VALUES (4), (5), (6)");
    struct deadlock deadlock = {.db = other};
    pthread_t thread;
    assert_int_equal(
        pthread_create(&thread, NULL, lock_second_then_first, &deadlock), 0);
    while (!is_waiting(fixture->db))
        skr_clock_sleep(-1, 2);
    enum skr_code code = run_last(
        fixture->db, "UPDATE thing SET note = 'a' WHERE id = 2", error);
    pthread_join(thread, NULL);
    assert_int_equal(deadlock.code, SKR_OK);
    assert_int_equal(skr_db_commit(other, NULL), SKR_OK);
    return code;
}

static void
test_after_a_deadlock_nothing_more_is_written(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    struct skr_tx tx = skr_db_tx(fixture->db);
    struct skr_error error = {0};
    assert_int_equal(
        make_deadlock(fixture, other, SKR_BEGIN_WRITE, run, &error),
        SKR_CONFLICT);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    assert_string_equal(error.native, "1213");
    assert_int_equal(tx.ops->check(tx, NULL), SKR_NO_TRANSACTION);
    assert_int_equal(
        run(fixture->db, "INSERT INTO thing (id) VALUES (9)", &error),
        SKR_CONFLICT);
    // A handler that goes on by itself: what it writes does not commit alone.
    query(raw(fixture->db), "INSERT INTO thing (id) VALUES (10)");
    assert_int_equal(skr_db_commit(fixture->db, &error), SKR_CONFLICT);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    assert_int_equal(skr_test_number(other, "SELECT COUNT(*) FROM thing "
                                            "WHERE id > 6 OR note = 'a'"),
                     0);
    // And the connection is as good as new.
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (id) VALUES (11)");
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (id) VALUES (12)");
    assert_int_equal(count_things(other), 8);
    skr_db_close(other);
}

static enum skr_code
run_unseen(struct skr_db *db, const char *sql, struct skr_error *error)
{
    (void)error;
    assert_int_not_equal(mysql_query(raw(db), sql), 0);
    return mysql_errno(raw(db)) == 1213 ? SKR_CONFLICT : SKR_OK;
}

// A handler has the client's connection, and need not tell of what it met.
static void
test_a_deadlock_that_a_handler_hides_is_found_at_the_commit(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    struct skr_error error = {0};
    assert_int_equal(
        make_deadlock(fixture, other, SKR_BEGIN_GUARDED, run_unseen, &error),
        SKR_CONFLICT);
    query(raw(fixture->db), "INSERT INTO thing (id) VALUES (10)");
    assert_int_equal(skr_db_commit(fixture->db, &error), SKR_NO_TRANSACTION);
    assert_int_equal(count_things(other), 6);
    skr_db_close(other);
}

static void
test_an_open_transaction_is_not_committed_by_another(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL),
                     SKR_INVALID);
    skr_db_rollback(fixture->db);
    assert_int_equal(count_things(fixture->db), 0);
}

static void
test_the_session_is_what_tables_rely_on(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *sql, *answer;
    } cases[] = {
        {"SELECT @@time_zone", "+00:00"},
        {"SELECT @@character_set_connection", "utf8mb4"},
        {"SELECT @@sql_mode LIKE '%STRICT_ALL_TABLES%'", "1"},
        {"SELECT @@innodb_lock_wait_timeout", "5"},
        {"SELECT @@lock_wait_timeout", "5"},
        {"SELECT @@autocommit", "1"},
        {"SELECT CAST('2026-11-15 02:53:45' AS DATETIME)",
         "2026-11-15 02:53:45"},
        {"SELECT ABS(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())) <= 1", "1"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        skr_test_assert_text(fixture->db, cases[i].sql, cases[i].answer);
    // A row that is found counts, changed or not.
    uint64_t affected = 0;
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(
        skr_tx_run(skr_db_tx(fixture->db),
                   &(struct skr_statement){.sql = "UPDATE thing SET name = 'a'",
                                           .affected = &affected},
                   NULL),
        SKR_OK);
    assert_int_equal(affected, 1);
}

// ------------------------------------------------------------------ statements

static void
test_results_of_procedures_are_taken_in(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a'), ('b')");
    skr_test_run(fixture->db, "CREATE PROCEDURE two(IN given INTEGER) BEGIN "
                              "SELECT * FROM thing; SELECT given; "
                              "UPDATE thing SET note = given; END");
    const struct skr_value value = skr_bind_integer(7);
    for (int i = 0; i < 3; i++) {
        skr_test_run(fixture->db, "CALL two(1)");
        assert_int_equal(run_with(fixture->db, "CALL two(?)", &value, 1, NULL),
                         SKR_OK);
        skr_test_assert_text(fixture->db, "SELECT note FROM thing LIMIT 1",
                             "7");
    }
}

static enum skr_code
count_bytes(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)error;
    assert_int_equal(count, 2);
    *(uint64_t *)user += columns[1].size;
    return columns[0].integer == 40 ? SKR_STOPPED : SKR_OK;
}

static void
test_values_of_very_different_sizes_come_whole(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db,
                 "INSERT INTO thing (id, note) WITH RECURSIVE numbers AS "
                 "(SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers "
                 "WHERE n < 60) SELECT n, REPEAT('x', CASE n % 3 WHEN 0 THEN 0 "
                 "WHEN 1 THEN 10 ELSE n * 1000 END) FROM numbers");
    uint64_t bytes = 0;
    const struct skr_statement statement = {
        .sql = "SELECT id, note FROM thing ORDER BY id",
        .each_row = count_bytes,
        .user = &bytes,
    };
    // It stops in the middle; what was left on the wire disturbs no statement.
    for (int i = 0; i < 3; i++) {
        bytes = 0;
        assert_int_equal(skr_tx_run(skr_db_tx(fixture->db), &statement, NULL),
                         SKR_STOPPED);
        assert_int_equal(bytes, 14 * 10 + 1000 * 260);
        assert_int_equal(count_things(fixture->db), 60);
    }
}

static void
test_what_is_too_large_for_the_server_is_told_before_it_is_sent(void **state)
{
    struct fixture *fixture = *state;
    size_t size =
        (size_t)skr_test_number(fixture->db, "SELECT @@max_allowed_packet");
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    const struct skr_value value = skr_bind_blob(bytes, size);
    struct skr_error error = {0};
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(run_with(fixture->db,
                              "INSERT INTO thing (data) VALUES (?)", &value, 1,
                              &error),
                     SKR_INVALID);
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    assert_non_null(strstr(error.text, "max_allowed_packet"));
    assert_int_equal(skr_db_commit(fixture->db, NULL), SKR_OK);
    assert_int_equal(count_things(fixture->db), 1);
    free(bytes);
}

// --------------------------------------------------------------------- trouble

static void
test_error_numbers_have_their_codes(void **state)
{
    struct fixture *fixture = *state;
    skr_test_run(fixture->db,
                 "CREATE PROCEDURE raise(IN number INTEGER) "
                 "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = number, "
                 "MESSAGE_TEXT = 'as asked for'");
    static const struct {
        int number;
        enum skr_code code;
        enum skr_remedy remedy;
        const char *words;
    } cases[] = {
        {1213, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {1205, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {3572, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {1062, SKR_DUPLICATE, SKR_GIVE_UP, ""},
        {1146, SKR_MISSING, SKR_GIVE_UP, ""},
        {1054, SKR_INVALID, SKR_GIVE_UP, "another shape"},
        {1153, SKR_INVALID, SKR_GIVE_UP, "max_allowed_packet"},
        {1053, SKR_UNAVAILABLE, SKR_RECONNECT, "lost"},
        {1927, SKR_UNAVAILABLE, SKR_RECONNECT, "lost"},
        {4031, SKR_UNAVAILABLE, SKR_RECONNECT, "lost"},
        {1236, SKR_UNAVAILABLE, SKR_RECONNECT, ""},
        {1045, SKR_REFUSED, SKR_GIVE_UP, "password"},
        {1044, SKR_REFUSED, SKR_GIVE_UP, "GRANT"},
        {1142, SKR_REFUSED, SKR_GIVE_UP, "GRANT"},
        {1049, SKR_REFUSED, SKR_GIVE_UP, "create"},
        {1114, SKR_REFUSED, SKR_TRY_AGAIN, "space"},
        {1021, SKR_REFUSED, SKR_TRY_AGAIN, "space"},
        {1041, SKR_REFUSED, SKR_TRY_AGAIN, "memory"},
        {1290, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {1836, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {1665, SKR_REFUSED, SKR_GIVE_UP, "binlog_format"},
        // The server's trouble, and not the message's.
        {1030, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1026, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1016, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1024, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1034, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1194, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1296, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1712, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1812, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1815, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1877, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1878, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1932, SKR_REFUSED, SKR_TRY_AGAIN, "storage"},
        {1206, SKR_REFUSED, SKR_TRY_AGAIN, "room for more locks"},
        {1037, SKR_REFUSED, SKR_TRY_AGAIN, "memory"},
        {1436, SKR_REFUSED, SKR_TRY_AGAIN, "thread_stack"},
        {1598, SKR_REFUSED, SKR_TRY_AGAIN, "binary log"},
        {3098, SKR_REFUSED, SKR_TRY_AGAIN, "group"},
        {3100, SKR_REFUSED, SKR_TRY_AGAIN, "group"},
        {3101, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {3024, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {1180, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {1181, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {1297, SKR_CONFLICT, SKR_TRY_AGAIN, ""},
        {1223, SKR_CONFLICT, SKR_TRY_AGAIN, "lock"},
        {1135, SKR_UNAVAILABLE, SKR_RECONNECT, "room"},
        {3032, SKR_UNAVAILABLE, SKR_RECONNECT, ""},
        {3168, SKR_UNAVAILABLE, SKR_RECONNECT, ""},
        {1036, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {1792, SKR_REFUSED, SKR_RECONNECT, "writable"},
        {1999, SKR_INVALID, SKR_GIVE_UP, "as asked for"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        char sql[64], native[16];
        snprintf(sql, sizeof(sql), "CALL raise(%d)", cases[i].number);
        snprintf(native, sizeof(native), "%d", cases[i].number);
        assert_int_equal(run(fixture->db, sql, &error), cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        assert_string_equal(error.native, native);
        if (strstr(error.text, cases[i].words) == NULL ||
            strstr(error.text, "127.0.0.1:") == NULL ||
            strstr(error.text, "/skirnir_") == NULL)
            fail_msg("%s", error.text);
    }
}

// Puts something else into a URL.
static void
change(char url[256], const char *part, const char *instead)
{
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", url);
    char *at = strstr(copy, part);
    assert_non_null(at);
    *at = '\0';
    int length = snprintf(url, 256, "%s%s%s", copy, instead, at + strlen(part));
    assert_in_range(length, 1, 255);
}

static enum skr_code
open_changed(const struct fixture *fixture, const char *part,
             const char *instead, struct skr_error *error)
{
    char url[256];
    memcpy(url, fixture->database.url, sizeof(url));
    change(url, part, instead);
    struct skr_db *db = NULL;
    enum skr_code code = skr_db_open(fixture->database.ops, url, &db, error);
    skr_db_close(db);
    return code;
}

static void
test_who_may_not_come_in_is_told_why_and_keeps_the_password(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *part, *instead;
        enum skr_code code;
        enum skr_remedy remedy;
        const char *words;
    } cases[] = {
        {"p%40ss", "s3cret", SKR_REFUSED, SKR_GIVE_UP, "password"},
        {"/skirnir_", "/elsewhere_", SKR_REFUSED, SKR_GIVE_UP, "elsewhere_"},
        {"127.0.0.1", "host.invalid", SKR_UNAVAILABLE, SKR_RECONNECT,
         "host.invalid"},
        // One that does not speak TLS is not talked to without, unless told.
        {"?", "?ssl=1&", SKR_REFUSED, SKR_GIVE_UP, "ssl_ca"},
    };
    size_t count = SKR_COUNT_OF(cases);
    if (skr_test_mysql_certificates() != NULL)
        count--;
    for (size_t i = 0; i < count; i++) {
        struct skr_error error = {0};
        assert_int_equal(
            open_changed(fixture, cases[i].part, cases[i].instead, &error),
            cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        if (strstr(error.text, cases[i].words) == NULL)
            fail_msg("%s", error.text);
        assert_null(strstr(error.text, "s3cret"));
        assert_null(strstr(error.text, "p@ss"));
    }
}

static bool
is_encrypted(struct skr_db *db)
{
    struct skr_arena arena = {0};
    struct skr_value columns[2];
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 2};
    assert_int_equal(skr_sql_row(skr_db_tx(db),
                                 "SHOW SESSION STATUS LIKE 'Ssl_cipher'",
                                 SKR_NO_VALUES, &row, NULL),
                     SKR_OK);
    assert_true(row.found);
    bool is_encrypted = columns[1].size > 0;
    skr_arena_fini(&arena);
    return is_encrypted;
}

// A server with certificates is talked to by TLS, another not at all: neither
// MariaDB 10.11 nor MySQL as the tests start it makes some of its own.
static void
test_tls_without_proof_is_tls_all_the_same(void **state)
{
    struct fixture *fixture = *state;
    static const char *const parameters[] = {"?ssl_verify=0&",
                                             "?ssl=1&ssl_verify=0&"};
    bool has_tls = skr_test_mysql_certificates() != NULL;
    for (size_t i = 0; i < SKR_COUNT_OF(parameters); i++) {
        struct skr_error error = {0};
        enum skr_code code = open_changed(fixture, "?", parameters[i], &error);
        assert_int_equal(code, has_tls ? SKR_OK : SKR_REFUSED);
        if (has_tls)
            continue;
        assert_int_equal(error.remedy, SKR_GIVE_UP);
        if (strstr(error.text, "offers no TLS") == NULL ||
            strstr(error.text, "127.0.0.1") == NULL)
            fail_msg("%s", error.text);
    }
}

// Runs where the server was started with certificates: with-server mariadb+tls.
static void
test_tls_knows_its_server(void **state)
{
    struct fixture *fixture = *state;
    const char *folder = skr_test_mysql_certificates();
    if (folder == NULL)
        skip();
    static const struct {
        const char *parameters;  // every %s is the folder
        enum skr_code code;
        bool is_encrypted;
    } cases[] = {
        {"ssl_ca=%s/authority.pem", SKR_OK, true},
        {"ssl_ca=%s/authority.pem&ssl_cert=%s/client.pem"
         "&ssl_key=%s/client.key",
         SKR_OK, true},
        {"ssl_verify=0", SKR_OK, true},
        {"ssl=0", SKR_OK, false},
        {"serverVersion=8", SKR_OK, false},  // this very machine
        // It is not signed by one whom this machine, or the URL, trusts.
        {"ssl=1", SKR_REFUSED, false},
        {"ssl_ca=%s/stranger.pem", SKR_REFUSED, false},
        {"ssl_ca=%s/nothing.pem", SKR_INVALID, false},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_text url = {0};
        struct skr_error error = {0};
        struct skr_db *db = NULL;
        skr_text_add_format(&url, "%s&", fixture->database.url);
        for (const char *at = cases[i].parameters; *at != '\0'; at++) {
            bool is_folder = strncmp(at, "%s", 2) == 0;
            skr_text_add(&url, is_folder ? folder : at,
                         is_folder ? strlen(folder) : 1);
            at += is_folder;
        }
        enum skr_code code =
            skr_db_open(fixture->database.ops, url.bytes, &db, &error);
        if (code != cases[i].code)
            fail_msg("%s: %s", cases[i].parameters, error.text);
        if (code == SKR_OK)
            assert_int_equal(is_encrypted(db), cases[i].is_encrypted);
        skr_db_close(db);
        skr_text_fini(&url);
    }
}

// The same address, by a name that the certificate does not hold.
static void
test_tls_knows_its_servers_name(void **state)
{
    struct fixture *fixture = *state;
    const char *folder = skr_test_mysql_certificates();
    if (folder == NULL)
        skip();
    struct skr_error error = {0};
    char parameter[100];
    snprintf(parameter, sizeof(parameter), "?ssl_ca=%s/authority.pem&", folder);
    assert_int_equal(open_changed(fixture, "?", parameter, &error), SKR_OK);
    change(fixture->database.url, "127.0.0.1", "127.1");
    assert_int_equal(open_changed(fixture, "?", "?", &error), SKR_OK);
    assert_int_equal(open_changed(fixture, "?", parameter, &error),
                     SKR_REFUSED);
}

static void
test_a_killed_connection_is_lost(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *other = skr_test_connect(&fixture->database);
    struct skr_error error = {0};
    char sql[64];
    snprintf(sql, sizeof(sql), "KILL %lu", mysql_thread_id(raw(fixture->db)));
    assert_int_equal(skr_db_begin(fixture->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(fixture->db, "INSERT INTO thing (name) VALUES ('a')");
    skr_test_run(other, sql);
    assert_int_equal(skr_db_commit(fixture->db, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
    skr_db_rollback(fixture->db);
    assert_int_equal(run(fixture->db, "SELECT 1", &error), SKR_UNAVAILABLE);
    assert_int_equal(count_things(other), 0);
    skr_db_close(other);
}

static void
test_a_server_cannot_ask_for_files(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    char path[128], sql[300];
    snprintf(path, sizeof(path), "%s/secret", fixture->database.folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("secret\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    snprintf(sql, sizeof(sql),
             "LOAD DATA LOCAL INFILE '%s' INTO TABLE thing "
             "(name)",
             path);
    assert_int_not_equal(run(fixture->db, sql, &error), SKR_OK);
    assert_int_equal(count_things(fixture->db), 0);
}

// ---------------------------------------------------------------------- tables

static void
test_an_engine_without_transactions_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_store *table = NULL;
    struct skr_deduplication *deduplication = NULL;
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .failed_table = "messenger_messages",
    };
    assert_int_equal(skr_messenger_new(&options, &table, NULL), SKR_OK);
    assert_int_equal(
        skr_deduplication_new(options.dialect, NULL, &deduplication, NULL),
        SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    assert_int_equal(skr_deduplication_create(deduplication, fixture->db, NULL),
                     SKR_OK);
    assert_int_equal(table->admin->check(table, fixture->db, NULL), SKR_OK);
    static const char *const tables[] = {"messenger_outbox",
                                         "messenger_messages",
                                         "message_broker_deduplication"};
    for (size_t i = 0; i < SKR_COUNT_OF(tables); i++) {
        char sql[100];
        snprintf(sql, sizeof(sql), "ALTER TABLE %s ENGINE = MyISAM", tables[i]);
        skr_test_run(fixture->db, sql);
        enum skr_code code = table->admin->check(table, fixture->db, &error);
        if (code == SKR_OK)
            code = skr_deduplication_check(deduplication, fixture->db, &error);
        assert_int_equal(code, SKR_REFUSED);
        assert_non_null(strstr(error.text, tables[i]));
        assert_non_null(strstr(error.text, "ENGINE = InnoDB"));
        snprintf(sql, sizeof(sql), "ALTER TABLE %s ENGINE = InnoDB", tables[i]);
        skr_test_run(fixture->db, sql);
    }
    skr_deduplication_free(deduplication);
    skr_store_free(table);
}

static void
test_publishing_into_such_an_engine_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct skr_error error = {0};
    struct skr_outbox *outbox = NULL;
    const struct skr_message message = {
        .name = "order.placed", .body = "{}", .body_size = 2};
    skr_test_run(fixture->db,
                 "CREATE TABLE messenger_outbox (id INTEGER AUTO_INCREMENT "
                 "PRIMARY KEY, body TEXT, headers TEXT, queue_name TEXT, "
                 "created_at DATETIME, available_at DATETIME) ENGINE = MyISAM");
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    assert_int_equal(skr_outbox_new(NULL, &outbox, NULL), SKR_OK);
    skr_test_client_begin(&client);
    assert_int_equal(skr_publish(outbox, client.tx, &message, 1, NULL, &error),
                     SKR_REFUSED);
    assert_non_null(strstr(error.text, "ENGINE = InnoDB"));
    skr_test_client_rollback(&client);
    skr_test_run(fixture->db, "ALTER TABLE messenger_outbox ENGINE = InnoDB");
    for (int i = 0; i < 2; i++) {
        skr_test_client_begin(&client);
        assert_int_equal(
            skr_publish(outbox, client.tx, &message, 1, NULL, &error), SKR_OK);
        skr_test_client_run(&client, i == 0 ? "ROLLBACK" : "COMMIT");
    }
    assert_int_equal(skr_test_number(fixture->db, "SELECT COUNT(*) FROM "
                                                  "messenger_outbox"),
                     1);
    skr_outbox_free(outbox);
    skr_test_client_close(&client);
}

static enum skr_code
run_late(const char *sql, void *user, struct skr_error *error)
{
    return skr_tx_run(skr_db_tx(user), &(struct skr_statement){.sql = sql},
                      error);
}

static struct skr_store *
make_outbox(struct skr_db *db)
{
    struct skr_store *table = NULL;
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(db),
        .table = "messenger_outbox",
        .queue = "outbox",
    };
    assert_int_equal(skr_messenger_new(&options, &table, NULL), SKR_OK);
    assert_int_equal(skr_store_create(table, db, NULL), SKR_OK);
    return table;
}

// All who come later wait behind a session that waits to alter a table.
static void
test_an_index_waits_for_a_table_in_use_for_a_second(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = make_outbox(fixture->db);
    struct skr_error error = {0};
    skr_test_drop_index(fixture->db, "messenger_outbox", "idx_delivered_at");
    struct skr_test_client client = skr_test_client_open(&fixture->database);
    skr_test_client_begin(&client);
    skr_test_client_run(&client, "INSERT INTO messenger_outbox (body, headers, "
                                 "queue_name, created_at, available_at) VALUES "
                                 "('', '', 'outbox', NOW(), NOW())");
    int64_t began_us = skr_clock_wall_us();
    enum skr_code code = table->admin->complete(table, fixture->db, run_late,
                                                fixture->db, &error);
    int64_t took_us = skr_clock_wall_us() - began_us;
    skr_test_client_commit(&client);
    skr_test_client_close(&client);
    assert_int_equal(code, SKR_CONFLICT);
    assert_in_range(took_us, 500000, 4500000);  // five by default
    assert_int_equal(table->admin->complete(table, fixture->db, run_late,
                                            fixture->db, &error),
                     SKR_OK);
    skr_store_free(table);
}

static void
test_tables_are_as_symfony_makes_them(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = make_outbox(fixture->db);
    static const struct {
        const char *sql, *answer;
    } cases[] = {
        {"SELECT GROUP_CONCAT(index_name ORDER BY index_name) FROM "
         "information_schema.statistics WHERE table_name = 'messenger_outbox' "
         "AND table_schema = DATABASE()",
         "idx_available_at,idx_delivered_at,idx_queue_name,PRIMARY"},
        {"SELECT GROUP_CONCAT(column_name, ' ', REPLACE(column_type, '(20)', "
         "'') ORDER BY "
         "ordinal_position) FROM information_schema.columns WHERE table_name "
         "= 'messenger_outbox' AND table_schema = DATABASE()",
         "id bigint,body longtext,headers longtext,"
         "queue_name varchar(190),created_at datetime,available_at datetime,"
         "delivered_at datetime"},
        {"SELECT CONCAT(engine, ' ', table_collation) FROM "
         "information_schema.tables WHERE table_name = 'messenger_outbox' AND "
         "table_schema = DATABASE()",
         "InnoDB utf8mb4_unicode_ci"},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++)
        skr_test_assert_text(fixture->db, cases[i].sql, cases[i].answer);
    skr_store_free(table);
}

// --------------------------------------------------------------- lock and wait

static void
test_the_server_drops_a_silent_holder_of_a_lock(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    char *before = skr_test_text(db, "SELECT @@wait_timeout");
    assert_int_equal(skr_db_lock(db, "relay", SKR_LOCK_ALONE, -1, 0, NULL),
                     SKR_OK);
    assert_true(db->holds_lock);
    skr_test_assert_text(db, "SELECT @@wait_timeout", "15");
    skr_db_unlock(db);
    skr_test_assert_text(db, "SELECT @@wait_timeout", before);
    free(before);
}

// By what MariaDB has for that, and MySQL by the session's own limit. Sessions
// rest for long, but not in a transaction: on MySQL the bound of a guarded one
// stays for the next, and goes with a statement outside of them.
static void
test_a_transaction_is_bounded_and_a_session_is_not(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    bool is_mariadb =
        skr_test_number(db, "SELECT VERSION() LIKE '%MariaDB%'") == 1;
    const char *limit = is_mariadb ? "SELECT @@idle_transaction_timeout"
                                   : "SELECT @@wait_timeout";
    char *before = skr_test_text(db, "SELECT @@wait_timeout");
    for (int commits = 0; commits < 4; commits++) {
        assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
        skr_test_assert_text(db, limit, "15");
        if (commits % 2 == 1)
            assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
        else
            skr_db_rollback(db);
        skr_test_assert_text(db, "SELECT @@wait_timeout", before);
        assert_int_equal(skr_db_begin(db, SKR_BEGIN_GUARDED, NULL), SKR_OK);
        // As long as a handler may need.
        skr_test_assert_text(db, limit, "60");
        if (commits % 2 == 1)
            assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
        else
            skr_db_rollback(db);
        assert_int_equal(skr_db_begin(db, SKR_BEGIN_GUARDED, NULL), SKR_OK);
        skr_test_assert_text(db, limit, "60");
        skr_db_rollback(db);
        skr_test_assert_text(db, "SELECT @@wait_timeout", before);
    }
    free(before);
}

static enum skr_code
ask_once(struct skr_db *db, int64_t *oldest)
{
    struct skr_arena arena = {0};
    struct skr_value columns[2];
    struct skr_error error = {0};
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 2};
    const struct skr_statement ask = {
        .sql = skr_sql_fill(skr_db_dialect(db), &arena,
                            "{open_transactions_inside}", NULL, 0)};
    assert_non_null(ask.sql);
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_SNAPSHOT, NULL), SKR_OK);
    enum skr_code code = skr_sql_fetch(skr_db_tx(db), &ask, &row, &error);
    if (code == SKR_OK)
        *oldest = columns[0].integer;
    else if (code != SKR_CONFLICT || error.remedy != SKR_TRY_AGAIN)
        fail_msg("%s", error.text);
    skr_db_rollback(db);
    skr_arena_fini(&arena);
    return code;
}

// Others' statements may keep MySQL from answering for a while.
static int64_t
ask_oldest(struct skr_db *db)
{
    int64_t oldest = 0;
    while (ask_once(db, &oldest) != SKR_OK)
        skr_clock_sleep(-1, 20);
    return oldest;
}

static void *
run_bytes(void *user)
{
    static const char sql[] = "SELECT SLEEP(2), '\x89\n]\xAC\x96'";
    if (mysql_real_query(user, sql, sizeof(sql) - 1) != 0)
        fail_msg("%s", mysql_error(user));
    mysql_free_result(mysql_store_result(user));
    return NULL;
}

// MySQL shows each transaction with the text of its statement.
static void
test_bytes_in_a_statement_of_others_cost_an_answer_at_most(void **state)
{
    struct fixture *fixture = *state;
    struct skr_test_client other = skr_test_client_open(&fixture->database);
    bool is_mariadb = mariadb_connection(raw(fixture->db));
    size_t conflicts = 0;
    int64_t oldest;
    pthread_t thread;
    skr_test_client_begin(&other);
    skr_test_client_run(&other, "INSERT INTO thing (name) VALUES ('a')");
    assert_int_equal(pthread_create(&thread, NULL, run_bytes, other.connection),
                     0);
    for (int64_t end_ms = skr_clock_ms() + 1500; skr_clock_ms() < end_ms;) {
        conflicts += ask_once(fixture->db, &oldest) == SKR_CONFLICT;
        skr_clock_sleep(-1, 120);
    }
    pthread_join(thread, NULL);
    assert_true(is_mariadb || conflicts > 0);
    skr_test_client_rollback(&other);
    skr_test_client_close(&other);
    ask_oldest(fixture->db);
}

// InnoDB shows all who ask what it has shown before, as long as one asks
// every tenth of a second: a transaction that began since is not seen.
static void
test_what_was_shown_before_hides_no_transaction(void **state)
{
    enum { LOOKS = 40, FIRST_LOOKS = 5 };
    struct fixture *fixture = *state;
    struct skr_test_client other = skr_test_client_open(&fixture->database);
    struct skr_test_client writer = skr_test_client_open(&fixture->database);
    int64_t began_s = INT64_MAX;
    for (int look = 0; look < LOOKS; look++) {
        skr_test_client_run(
            &other, "SELECT COUNT(*) FROM information_schema.innodb_trx");
        if (look == FIRST_LOOKS) {
            skr_test_client_begin(&writer);
            skr_test_client_run(&writer,
                                "INSERT INTO thing (name) VALUES ('late')");
            began_s = skr_test_number(fixture->db, "SELECT UNIX_TIMESTAMP()");
        }
        assert_true(ask_oldest(fixture->db) <= began_s);
        skr_clock_sleep(-1, 60);
    }
    skr_test_client_rollback(&writer);
    skr_test_client_close(&writer);
    skr_test_client_close(&other);
}

static void
test_looking_gets_rare_while_nothing_comes_and_frequent_after(void **state)
{
    struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    assert_int_equal(db->ops->wait(db, -1, 0, NULL), SKR_OK);
    int64_t start = skr_clock_ms();
    // 1, 2, 4, 8, 16, 20, 20, ... ms.
    for (int looks = 0; looks < 12; looks++)
        assert_int_equal(db->ops->wait(db, -1, 1000, NULL), SKR_OK);
    assert_true(skr_clock_ms() - start >= 150);
    // Of several looks one is made as soon as it is meant to be, whatever else
    // the machine does.
    int64_t soonest_ms = INT64_MAX;
    for (int tries = 0; tries < 20; tries++) {
        db->found_rows = true;
        start = skr_clock_ms();
        assert_int_equal(db->ops->wait(db, -1, 1000, NULL), SKR_OK);
        int64_t took_ms = skr_clock_ms() - start;
        soonest_ms = took_ms < soonest_ms ? took_ms : soonest_ms;
    }
    assert_true(soonest_ms < 15);
    assert_int_equal(db->ops->wait(db, -1, 0, NULL), SKR_TIMEOUT);
}

static void
test_so_many_may_share_a_lock_and_no_more(void **state)
{
    const struct fixture *fixture = *state;
    struct skr_db *holders[65];
    struct skr_error error = {0};
    for (size_t i = 0; i < SKR_COUNT_OF(holders); i++) {
        holders[i] = skr_test_connect(&fixture->database);
        enum skr_code code =
            skr_db_lock(holders[i], "relay", SKR_LOCK_TOGETHER, -1, 0, &error);
        assert_int_equal(code, i < 64 ? SKR_OK : SKR_REFUSED);
    }
    assert_int_equal(error.remedy, SKR_GIVE_UP);
    assert_non_null(strstr(error.text, "64"));
    skr_db_close(holders[10]);
    // Its place is free, and the gate is not left locked.
    while (skr_db_lock(holders[64], "relay", SKR_LOCK_TOGETHER, -1, 1000,
                       &error) == SKR_REFUSED)
        ;
    assert_true(holders[64]->holds_lock);
    for (size_t i = 0; i < SKR_COUNT_OF(holders); i++)
        if (i != 10)
            skr_db_close(holders[i]);
}

static int64_t
count_statements(struct skr_db *db)
{
    return skr_test_status(db, "Questions");
}

// The next one begins along with the commit; on MySQL it takes one of its own,
// and the release one more.
static void
test_guarded_transactions_in_a_row_take_a_round_trip_each_on_mariadb(
    void **state)
{
    const struct fixture *fixture = *state;
    struct skr_db *db = fixture->db;
    MYSQL *connection = skr_mysql_connection(skr_db_tx(db));
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_GUARDED, NULL), SKR_OK);
    int64_t before = count_statements(db);
    assert_int_equal(skr_db_commit(db, NULL), SKR_OK);
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_GUARDED, NULL), SKR_OK);
    // The question itself is one, too.
    assert_int_equal(count_statements(db) - before,
                     1 + (mariadb_connection(connection) ? 1 : 3));
    skr_db_rollback(db);
}

// They may share it for days.
static void
test_who_waits_for_those_that_share_a_lock_asks_little(void **state)
{
    const struct fixture *fixture = *state;
    struct skr_db *member = skr_test_connect(&fixture->database);
    struct skr_error error = {0};
    assert_int_equal(
        skr_db_lock(member, "relay", SKR_LOCK_TOGETHER, -1, 0, &error), SKR_OK);
    assert_true(member->holds_lock);
    int64_t before = count_statements(fixture->db);
    int64_t start_ms = skr_clock_ms();
    assert_int_equal(
        skr_db_lock(fixture->db, "relay", SKR_LOCK_ALONE, -1, 1000, &error),
        SKR_OK);
    assert_false(fixture->db->holds_lock);
    assert_in_range(skr_clock_ms() - start_ms, 1000, 2000);
    assert_in_range(count_statements(fixture->db) - before, 1, 30);
    skr_db_close(member);
}

#define LARGE_ROWS "SELECT COUNT(*) FROM messenger_outbox WHERE body = 'large'"

// One row whose headers are all that the server takes at once, beside one that
// is published.
static void
settle_large(struct fixture *fixture, struct skr_store *table,
             enum skr_state state)
{
    struct skr_reader *reader = NULL;
    struct skr_batch batch;
    struct skr_error error = {0};
    skr_test_run(fixture->db, "DELETE FROM messenger_outbox");
    skr_test_run(fixture->db,
                 "INSERT INTO messenger_outbox (body, headers, queue_name, "
                 "created_at, available_at) VALUES "
                 "('small', '{\"type\":\"a.b\"}', 'outbox', "
                 "UTC_TIMESTAMP(), UTC_TIMESTAMP()), "
                 "('large', CONCAT('{\"type\":\"a.b\",\"x\":\"', "
                 "REPEAT('x', @@max_allowed_packet - 200), '\"}'), 'outbox', "
                 "UTC_TIMESTAMP(), UTC_TIMESTAMP())");
    assert_int_equal(skr_batch_init(&batch, 10, NULL), SKR_OK);
    const struct skr_read read = {.max_rows = 10, .max_bytes = 1 << 30};
    if (table->source->open(table, fixture->db, false, &reader, &error) !=
            SKR_OK ||
        table->source->read(reader, &read, &batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(batch.count, 2);
    batch.items[0].state = SKR_DONE;
    batch.items[1].state = state;
    skr_fail(&batch.items[1].reason, SKR_REFUSED, SKR_GIVE_UP, "unroutable");
    if (table->settle->write(table, fixture->db, &batch, &error) != SKR_OK)
        fail_msg("%s", error.text);
    assert_int_equal(batch.items[1].write, SKR_WRITE_DONE);
    assert_non_null(strstr(batch.items[1].refusal, "max_allowed_packet"));
    assert_int_equal(skr_test_number(fixture->db,
                                     "SELECT COUNT(*) FROM messenger_outbox "
                                     "WHERE body = 'small'"),
                     0);
    free(reader);
    skr_batch_fini(&batch);
}

static void
test_a_row_as_large_as_the_server_takes_is_settled(void **state)
{
    struct fixture *fixture = *state;
    struct skr_store *table = NULL;
    const struct skr_messenger_options options = {
        .dialect = skr_db_dialect(fixture->db),
        .table = "messenger_outbox",
        .queue = "outbox",
        .transport = "outbox",
        .failed_table = "messenger_messages",
        .failed_queue = "failed",
    };
    assert_int_equal(skr_messenger_new(&options, &table, NULL), SKR_OK);
    assert_int_equal(skr_store_create(table, fixture->db, NULL), SKR_OK);
    settle_large(fixture, table, SKR_RETRY_LATER);
    assert_int_equal(skr_test_number(fixture->db, LARGE_ROWS
                                     " AND available_at > created_at"),
                     1);
    settle_large(fixture, table, SKR_BLOCKED);
    assert_int_equal(
        skr_test_number(fixture->db,
                        LARGE_ROWS " AND available_at = '9999-12-31 23:59:59'"),
        1);
    settle_large(fixture, table, SKR_DEAD);
    assert_int_equal(skr_test_number(fixture->db, LARGE_ROWS), 0);
    assert_int_equal(
        skr_test_number(fixture->db,
                        "SELECT COUNT(*) FROM messenger_messages WHERE body = "
                        "'large' AND queue_name = 'failed.skirnir' AND "
                        "LENGTH(headers) > @@max_allowed_packet - 200"),
        1);
    skr_store_free(table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_autocommit_off_counts_as_a_transaction),
        TEST(test_a_connection_that_never_was_open_is_refused),
        TEST(test_mistakes_leave_the_applications_connection_in_step),
        TEST(test_a_large_body_goes_through_the_applications_connection),
        TEST(test_after_a_deadlock_nothing_more_is_written),
        TEST(test_a_deadlock_that_a_handler_hides_is_found_at_the_commit),
        TEST(test_an_open_transaction_is_not_committed_by_another),
        TEST(test_the_session_is_what_tables_rely_on),
        TEST(test_results_of_procedures_are_taken_in),
        TEST(test_values_of_very_different_sizes_come_whole),
        TEST(test_what_is_too_large_for_the_server_is_told_before_it_is_sent),
        TEST(test_a_row_as_large_as_the_server_takes_is_settled),
        TEST(test_error_numbers_have_their_codes),
        TEST(test_who_may_not_come_in_is_told_why_and_keeps_the_password),
        TEST(test_tls_without_proof_is_tls_all_the_same),
        TEST(test_tls_knows_its_server),
        TEST(test_tls_knows_its_servers_name),
        TEST(test_a_killed_connection_is_lost),
        TEST(test_a_server_cannot_ask_for_files),
        TEST(test_an_engine_without_transactions_is_refused),
        TEST(test_publishing_into_such_an_engine_is_refused),
        TEST(test_an_index_waits_for_a_table_in_use_for_a_second),
        TEST(test_tables_are_as_symfony_makes_them),
        TEST(test_the_server_drops_a_silent_holder_of_a_lock),
        TEST(test_a_transaction_is_bounded_and_a_session_is_not),
        TEST(test_what_was_shown_before_hides_no_transaction),
        TEST(test_bytes_in_a_statement_of_others_cost_an_answer_at_most),
        TEST(test_looking_gets_rare_while_nothing_comes_and_frequent_after),
        TEST(test_so_many_may_share_a_lock_and_no_more),
        TEST(test_who_waits_for_those_that_share_a_lock_asks_little),
        TEST(
            test_guarded_transactions_in_a_row_take_a_round_trip_each_on_mariadb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
