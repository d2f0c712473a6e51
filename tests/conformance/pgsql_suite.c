// SPDX-License-Identifier: MIT
// The PostgreSQL driver: the application's connections, sessions, statements.

#include "pgsql_world.h"

#include "db/run.h"
#include "db/sql.h"
#include "store/messenger/messenger.h"

static enum skr_code
check(PGconn *connection, struct skr_error *error)
{
    struct skr_tx tx = skr_pgsql_tx(connection);
    return tx.ops->check(tx, error);
}

static void
test_a_transaction_that_failed_is_refused_with_the_reason(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    run_client(world->client, "BEGIN");
    PQclear(PQexec(world->client, "SELECT 1 / 0"));
    assert_int_equal(check(world->client, &error), SKR_REFUSED);
    assert_non_null(strstr(error.text, "ROLLBACK"));
    run_client(world->client, "ROLLBACK");
    run_client(world->client, "BEGIN");
    assert_int_equal(check(world->client, &error), SKR_OK);
}

static void
test_a_busy_connection_is_refused_and_left_alone(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    run_client(world->client, "BEGIN");
    assert_int_equal(PQsendQuery(world->client, "SELECT 7"), 1);
    assert_int_equal(check(world->client, &error), SKR_REFUSED);
    assert_non_null(strstr(error.text, "PQgetResult"));
    PGresult *result = PQgetResult(world->client);
    assert_string_equal(PQgetvalue(result, 0, 0), "7");
    PQclear(result);
    assert_null(PQgetResult(world->client));
    assert_int_equal(check(world->client, &error), SKR_OK);
}

static void
test_a_pipeline_is_refused(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    run_client(world->client, "BEGIN");
    assert_int_equal(PQenterPipelineMode(world->client), 1);
    assert_int_equal(check(world->client, &error), SKR_REFUSED);
    assert_non_null(strstr(error.text, "pipeline"));
    assert_int_equal(PQexitPipelineMode(world->client), 1);
    assert_int_equal(check(world->client, &error), SKR_OK);
}

static void
test_a_lost_connection_is_told_from_one_without_a_transaction(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    char sql[80];
    snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%d, 5000)",
             PQbackendPID(world->client));
    run_client(world->server, sql);
    PQclear(PQexec(world->client, "SELECT 1"));
    assert_int_equal(check(world->client, &error), SKR_UNAVAILABLE);
    assert_int_equal(error.remedy, SKR_RECONNECT);
}

static void
test_times_are_utc_and_bytes_stay_whatever_the_session_says(void **state)
{
    struct world *world = *state;
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    const struct skr_messenger_options options = {.dialect =
                                                      skr_db_dialect(world->db),
                                                  .table = "messenger_outbox",
                                                  .queue = "outbox"};
    assert_int_equal(skr_messenger_new(&options, &table, &error), SKR_OK);
    assert_int_equal(skr_store_create(table, world->db, &error), SKR_OK);
    run_client(world->client, "SET TimeZone = 'Asia/Tokyo'");
    run_client(world->client, "SET DateStyle = 'German, DMY'");
    run_client(world->client, "SET bytea_output = 'escape'");
    run_client(world->client, "SET standard_conforming_strings = off");
    run_client(world->client, "BEGIN");
    const struct skr_messenger_row rows[] = {
        {"{\"a\":\"\\\\\"}", 10, "{}", 2, 0, 0, NULL},
        {"{}", 2, "{}", 2, INT64_C(1893456000000000), 0, NULL},
    };
    assert_int_equal(skr_messenger_append(table, skr_pgsql_tx(world->client),
                                          NULL, rows, 2, &error),
                     SKR_OK);
    run_client(world->client, "COMMIT");
    skr_test_assert_text(
        world->db,
        "SELECT CAST(COUNT(*) AS INTEGER) FROM messenger_outbox WHERE "
        "created_at BETWEEN now() - interval '9 seconds' AND now()",
        "2");
    skr_test_assert_text(world->db,
                         "SELECT body FROM messenger_outbox ORDER BY id",
                         "{\"a\":\"\\\\\"}");
    skr_test_assert_text(world->db,
                         "SELECT MAX(available_at) FROM messenger_outbox",
                         "2030-01-01 00:00:00");
    // And bytes that come back by way of that session.
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    struct skr_row row = {.arena = &arena, .columns = &value, .count = 1};
    assert_int_equal(skr_sql_row(skr_pgsql_tx(world->client),
                                 "SELECT decode('00ff275c', 'hex')",
                                 SKR_NO_VALUES, &row, &error),
                     SKR_OK);
    assert_int_equal(value.kind, SKR_BLOB);
    assert_int_equal(value.size, 4);
    assert_memory_equal(value.bytes, "\0\xff'\\", 4);
    skr_arena_fini(&arena);
    skr_store_free(table);
}

static void
test_seconds_are_cut_off_not_rounded(void **state)
{
    struct world *world = *state;
    struct skr_arena arena = {0};
    skr_test_run(world->db, "CREATE TABLE moment (at TIMESTAMP(0))");
    const char *sql =
        skr_sql_fill(skr_db_dialect(world->db), &arena,
                     "INSERT INTO moment (at) VALUES ({now})", NULL, 0);
    // At some of these moments the second is more than half over.
    int64_t end_ms = skr_clock_ms() + 1100;
    while (skr_clock_ms() < end_ms) {
        skr_test_run(world->db, sql);
        skr_clock_sleep(-1, 50);
    }
    skr_test_assert_text(
        world->db, "SELECT COUNT(*) FROM moment WHERE at > clock_timestamp()",
        "0");
    skr_arena_fini(&arena);
}

static void
test_a_session_is_set_up_for_its_work(void **state)
{
    struct world *world = *state;
    char sql[120], url[URL_SIZE + 60];
    snprintf(sql, sizeof(sql),
             "ALTER DATABASE \"%s\" SET synchronous_commit = off", world->name);
    run_client(world->server, sql);
    snprintf(url, sizeof(url), "%s?lock_timeout=1234&statement_timeout=4321",
             world->database.url);
    struct skr_db *db = open_db(url);
    skr_test_assert_text(db, "SHOW TimeZone", "UTC");
    skr_test_assert_text(db, "SHOW lock_timeout", "1234ms");
    skr_test_assert_text(db, "SHOW statement_timeout", "4321ms");
    skr_test_assert_text(db, "SHOW synchronous_commit", "on");
    skr_test_assert_text(db, "SHOW application_name", "skirnir");
    skr_test_assert_text(world->db, "SHOW lock_timeout", "5s");
    skr_test_assert_text(world->db, "SHOW statement_timeout", "0");
    skr_db_close(db);
}

static void
test_a_statement_that_got_stale_works_the_next_time(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT)");
    skr_test_run(world->db, "SELECT * FROM thing");
    run_client(world->client, "ALTER TABLE thing ADD COLUMN more TEXT");
    assert_int_equal(run(world->db, "SELECT * FROM thing", &error),
                     SKR_CONFLICT);
    assert_int_equal(error.remedy, SKR_TRY_AGAIN);
    skr_test_run(world->db, "SELECT * FROM thing");
    // As a handler, or a pooler between two clients, may do it.
    skr_test_run(world->db, "DEALLOCATE ALL");
    assert_int_equal(run(world->db, "SELECT * FROM thing", &error),
                     SKR_CONFLICT);
    skr_test_run(world->db, "SELECT * FROM thing");
}

static void
test_one_text_takes_values_of_every_kind(void **state)
{
    struct world *world = *state;
    skr_test_run(world->db, "CREATE TABLE thing (number BIGINT, text TEXT)");
    const struct skr_value values[][2] = {
        {skr_bind_text(NULL), skr_bind_text(NULL)},
        {skr_bind_integer(INT64_MIN), skr_bind_text("a")},
        {skr_bind_text("7"), skr_bind_text("b")},
        {skr_bind_integer(8), skr_bind_text(NULL)},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(values); i++) {
        struct skr_error error = {0};
        const struct skr_statement statement = {
            .sql = "INSERT INTO thing VALUES ($1, $2)",
            .values = values[i],
            .value_count = 2};
        if (skr_tx_run(skr_db_tx(world->db), &statement, &error) != SKR_OK)
            fail_msg("%zu: %s", i, error.text);
    }
    skr_test_assert_text(
        world->db,
        "SELECT string_agg(number || ' ' || coalesce(text, '-'), ',' "
        "ORDER BY number) FROM thing",
        "-9223372036854775808 a,7 b,8 -");
}

static void
test_text_that_would_be_cut_is_refused(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    const struct skr_value values[] = {skr_bind_bytes("a\0b", 3),
                                       skr_bind_bytes("a\xff", 2)};
    for (size_t i = 0; i < SKR_COUNT_OF(values); i++) {
        const struct skr_statement statement = {
            .sql = "SELECT length($1)", .values = &values[i], .value_count = 1};
        assert_int_equal(skr_tx_run(skr_db_tx(world->db), &statement, &error),
                         SKR_INVALID);
    }
}

static void
test_a_transaction_that_failed_does_not_commit(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT)");
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_test_run(world->db, "INSERT INTO thing VALUES (1)");
    assert_int_equal(run(world->db, "SELECT 1 / 0", &error), SKR_INVALID);
    assert_int_equal(run(world->db, "SELECT 1", &error), SKR_REFUSED);
    assert_int_equal(skr_db_commit(world->db, &error), SKR_REFUSED);
    skr_test_assert_text(world->db, "SELECT COUNT(*) FROM thing", "0");
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    skr_db_rollback(world->db);
}

static void
test_a_copy_is_refused_and_the_connection_lives_on(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT)");
    assert_int_equal(run(world->db, "COPY thing FROM STDIN", &error),
                     SKR_INVALID);
    assert_int_equal(run(world->db, "COPY thing TO STDOUT", &error),
                     SKR_INVALID);
    skr_test_assert_text(world->db, "SELECT COUNT(*) FROM thing", "0");
}

// What is no message's fault is tried again, or after a new connection.
static void
test_states_have_their_remedies(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *state;
        enum skr_code code;
        enum skr_remedy remedy;
    } cases[] = {
        {"40001", SKR_CONFLICT, SKR_TRY_AGAIN},
        {"40P01", SKR_CONFLICT, SKR_TRY_AGAIN},
        {"55P03", SKR_CONFLICT, SKR_TRY_AGAIN},
        {"57014", SKR_CONFLICT, SKR_TRY_AGAIN},
        {"72000", SKR_CONFLICT, SKR_TRY_AGAIN},
        {"53000", SKR_REFUSED, SKR_TRY_AGAIN},
        {"53100", SKR_REFUSED, SKR_TRY_AGAIN},
        {"53200", SKR_REFUSED, SKR_TRY_AGAIN},
        {"53300", SKR_REFUSED, SKR_TRY_AGAIN},
        {"HV00N", SKR_REFUSED, SKR_TRY_AGAIN},
        {"08006", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"25006", SKR_REFUSED, SKR_RECONNECT},
        {"25P04", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"57000", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"57P01", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"57P03", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"58030", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"F0001", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"XX000", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"XX001", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"XX002", SKR_UNAVAILABLE, SKR_RECONNECT},
        {"22001", SKR_INVALID, SKR_GIVE_UP},
        {"23514", SKR_REFUSED, SKR_GIVE_UP},
        {"54000", SKR_INVALID, SKR_GIVE_UP},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        struct skr_error error = {0};
        char sql[120];
        snprintf(sql, sizeof(sql),
                 "DO $$ BEGIN RAISE EXCEPTION 'as asked for' USING ERRCODE = "
                 "'%s'; END $$",
                 cases[i].state);
        assert_int_equal(run(world->db, sql, &error), cases[i].code);
        assert_int_equal(error.remedy, cases[i].remedy);
        assert_string_equal(error.native, cases[i].state);
    }
}

static size_t
count_in(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

static const char guarded_insert[] = "INSERT INTO thing VALUES (1)";

// It begins with its first statement, and its guard goes with its end.
static void
test_a_guarded_insert_costs_two_round_trips(void **state)
{
    struct world *world = *state;
    PGconn *connection = skr_pgsql_connection(skr_db_tx(world->db));
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT)");
    // With what is prepared once, and without.
    for (int round = 0; round < 2; round++) {
        char *text = NULL;
        size_t size = 0;
        FILE *trace = open_memstream(&text, &size);
        assert_non_null(trace);
        PQtrace(connection, trace);
        assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        skr_test_run(world->db, guarded_insert);
        assert_int_equal(skr_db_commit(world->db, NULL), SKR_OK);
        PQuntrace(connection);
        fclose(trace);
        assert_int_equal(count_in(text, "ReadyForQuery"), round == 0 ? 5 : 2);
        assert_int_equal(count_in(text, "RELEASE SAVEPOINT skr; COMMIT"), 1);
        free(text);
    }
    skr_test_assert_text(world->db, "SELECT COUNT(*) FROM thing", "2");
}

// Whatever comes first, it is inside; and with nothing in it there is nothing.
static void
test_a_guarded_transaction_begins_with_whatever_comes_first(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    struct skr_tx tx = skr_db_tx(world->db);
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT UNIQUE)");
    for (int first = 0; first < 4; first++) {
        assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_INVALID);
        assert_int_equal(tx.ops->check(tx, &error), SKR_OK);
        switch (first) {
        case 0: break;
        case 1: skr_test_run(world->db, guarded_insert); break;
        case 2:
            run_client(skr_pgsql_connection(tx),
                       "INSERT INTO thing VALUES (2)");
            break;
        default:
            skr_test_run(world->db, "DELETE FROM thing");
            assert_int_equal(run(world->db, "COPY thing FROM STDIN", &error),
                             SKR_INVALID);
        }
        skr_db_rollback(world->db);
        skr_test_assert_text(world->db, "SELECT COUNT(*) FROM thing", "0");
    }
    assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL), SKR_OK);
    assert_int_equal(skr_db_commit(world->db, NULL), SKR_OK);
    assert_int_equal(tx.ops->check(tx, &error), SKR_NO_TRANSACTION);
}

// A handler that meets one is run again, and its message pays nothing.
static void
test_serialization_failures_and_deadlocks_are_conflicts(void **state)
{
    static const char *const states[] = {"40001", "40P01"};
    struct world *world = *state;
    for (size_t i = 0; i < SKR_COUNT_OF(states); i++) {
        struct skr_error error = {0};
        char sql[80];
        snprintf(sql, sizeof(sql),
                 "DO $$BEGIN RAISE 'again' USING ERRCODE = '%s'; END$$",
                 states[i]);
        assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        assert_int_equal(run(world->db, sql, &error), SKR_CONFLICT);
        assert_int_equal(error.remedy, SKR_TRY_AGAIN);
        assert_string_equal(error.native, states[i]);
        skr_db_rollback(world->db);
    }
}

// A first statement that fails leaves a connection that works.
static void
test_a_guarded_transaction_may_fail_at_once(void **state)
{
    struct world *world = *state;
    struct skr_error error = {0};
    skr_test_run(world->db, "CREATE TABLE thing (id BIGINT UNIQUE)");
    skr_test_run(world->db, guarded_insert);
    static const struct {
        const char *before;
        enum skr_code code;
    } cases[] = {
        {"SELECT 1", SKR_DUPLICATE},
        // All that was prepared is gone.
        {"DEALLOCATE ALL", SKR_CONFLICT},
        {"SELECT 2", SKR_DUPLICATE},
        {"DROP TABLE thing", SKR_MISSING},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(cases); i++) {
        skr_test_run(world->db, cases[i].before);
        assert_int_equal(skr_db_begin(world->db, SKR_BEGIN_GUARDED, NULL),
                         SKR_OK);
        assert_int_equal(run(world->db, guarded_insert, &error), cases[i].code);
        assert_int_not_equal(skr_db_commit(world->db, &error), SKR_OK);
        assert_int_equal(
            PQpipelineStatus(skr_pgsql_connection(skr_db_tx(world->db))),
            PQ_PIPELINE_OFF);
    }
    skr_test_assert_text(world->db, "SELECT 3", "3");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_transaction_that_failed_is_refused_with_the_reason),
        TEST(test_a_busy_connection_is_refused_and_left_alone),
        TEST(test_a_pipeline_is_refused),
        TEST(test_a_lost_connection_is_told_from_one_without_a_transaction),
        TEST(test_times_are_utc_and_bytes_stay_whatever_the_session_says),
        TEST(test_seconds_are_cut_off_not_rounded),
        TEST(test_a_session_is_set_up_for_its_work),
        TEST(test_a_statement_that_got_stale_works_the_next_time),
        TEST(test_one_text_takes_values_of_every_kind),
        TEST(test_text_that_would_be_cut_is_refused),
        TEST(test_a_transaction_that_failed_does_not_commit),
        TEST(test_states_have_their_remedies),
        TEST(test_a_copy_is_refused_and_the_connection_lives_on),
        TEST(test_a_guarded_insert_costs_two_round_trips),
        TEST(test_a_guarded_transaction_begins_with_whatever_comes_first),
        TEST(test_serialization_failures_and_deadlocks_are_conflicts),
        TEST(test_a_guarded_transaction_may_fail_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
