// SPDX-License-Identifier: MIT
// Who is woken by an insert, and what it costs whom.

#include "pgsql_world.h"

#include "db/pgsql/connection.h"
#include "store/messenger/messenger.h"

#include <pthread.h>

#define INSERT                                               \
    "INSERT INTO messenger_outbox "                          \
    "(body, headers, queue_name, created_at, available_at) " \
    "VALUES ('{}', '{\"type\":\"a.b\"}', 'outbox', now(), now())"
#define SLEEPERS                                                  \
    "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' "  \
    "AND mode = 'ExclusiveLock' AND objsubid = 2 AND database = " \
    "(SELECT oid FROM pg_database WHERE datname = current_database())"

static struct skr_store *
make_table(const struct world *world)
{
    struct skr_store *table = NULL;
    struct skr_error error = {0};
    if (skr_messenger_new(
            &(struct skr_messenger_options){
                .dialect = skr_db_dialect(world->db),
                .table = "messenger_outbox",
                .queue = "outbox",
            },
            &table, &error) != SKR_OK ||
        skr_store_create(table, world->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return table;
}

static void
set_notify(const struct world *world, bool wanted)
{
    struct skr_error error = {0};
    struct skr_store *table = make_table(world);
    if (skr_store_set_notify(table, world->db, wanted, &error) != SKR_OK)
        fail_msg("%s", error.text);
    skr_store_free(table);
}

static void
follow_as(struct skr_db *db, const char *table)
{
    struct skr_error error = {0};
    if (db->ops->follow(db, table, "outbox", &error) != SKR_OK)
        fail_msg("%s", error.text);
}

static void
follow(struct skr_db *db)
{
    follow_as(db, "messenger_outbox");
}

// Waits as a relay does that finds nothing, until nothing more is to be done.
static bool
is_asleep(struct skr_db *db, PGconn *server, uint32_t timeout_ms)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    while (skr_clock_ms() < end_ms) {
        enum skr_code code = db->ops->wait(db, -1, 100, NULL);
        assert_true(code == SKR_OK || code == SKR_TIMEOUT);
        PGresult *result = PQexec(server, SLEEPERS);
        bool is_armed = atoi(PQgetvalue(result, 0, 0)) > 0;
        PQclear(result);
        if (is_armed && code == SKR_TIMEOUT)
            return true;
    }
    return false;
}

struct later {
    PGconn *client;
    const char *sql;
};

static void *
run_later(void *user)
{
    struct later *later = user;
    skr_clock_sleep(-1, 100);
    PQclear(PQexec(later->client, later->sql));
    return NULL;
}

// The slow look comes after five seconds only.
static void
assert_woken_by(struct skr_db *db, struct later *later)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_later, later), 0);
    assert_int_equal(db->ops->wait(db, -1, 4000, NULL), SKR_OK);
    pthread_join(thread, NULL);
}

static void
test_an_insert_wakes_a_reader_that_sleeps(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    follow(world->db);
    assert_true(is_asleep(world->db, world->server, 10000));
    assert_woken_by(world->db, &(struct later){world->client, INSERT});
    // While it is awake no writer notifies.
    assert_int_equal(skr_test_number(world->db, SLEEPERS), 0);
}

// The server folds a name without quotes: both are the same table.
static void
test_a_reader_may_spell_the_table_in_another_case(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    follow_as(world->db, "Messenger_Outbox");
    assert_true(is_asleep(world->db, world->server, 10000));
    assert_woken_by(world->db, &(struct later){world->client, INSERT});
}

static void
test_nobody_is_told_while_nobody_sleeps(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    run_client(world->server, "LISTEN skirnir");
    run_client(world->client, INSERT);
    run_client(world->server, "SELECT 1");
    assert_null(PQnotifies(world->server));
}

static void
test_a_row_that_is_not_committed_yet_keeps_the_reader_awake(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    follow(world->db);
    run_client(world->client, "BEGIN");
    run_client(world->client, INSERT);
    assert_false(is_asleep(world->db, world->server, 500));
    run_client(world->client, "COMMIT");
    assert_true(is_asleep(world->db, world->server, 10000));
}

static void
test_a_second_reader_looks_by_itself(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    follow(world->db);
    struct skr_db *other = open_db(world->database.url);
    follow(other);
    assert_true(is_asleep(world->db, world->server, 10000));
    int looks = 0;
    for (int64_t end_ms = skr_clock_ms() + 300; skr_clock_ms() < end_ms;)
        looks += other->ops->wait(other, -1, 50, NULL) == SKR_OK;
    assert_in_range(looks, 5, 100);
    skr_db_close(other);
}

// Another sleeps, and may do so for hours.
static void
test_who_is_refused_sleep_asks_ever_more_rarely(void **state)
{
    enum { WATCHED_MS = 2000, MOST_ATTEMPTS = 10 };
    struct world *world = *state;
    set_notify(world, true);
    follow(world->db);
    struct skr_db *other = open_db(world->database.url);
    const struct skr_pgsql *pgsql = (const struct skr_pgsql *)other;
    follow(other);
    assert_true(is_asleep(world->db, world->server, 10000));
    int attempts = 0;
    for (int64_t end_ms = skr_clock_ms() + WATCHED_MS;
         skr_clock_ms() < end_ms;) {
        int64_t before_ms = pgsql->followed.armed_at_ms;
        (void)!other->ops->wait(other, -1, 50, NULL);
        attempts += pgsql->followed.armed_at_ms != before_ms;
    }
    assert_in_range(attempts, 1, MOST_ATTEMPTS);
    skr_db_close(other);
}

static void
test_a_row_of_another_queue_wakes_nobody(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    follow(world->db);
    assert_true(is_asleep(world->db, world->server, 10000));
    run_client(world->client,
               "INSERT INTO messenger_outbox "
               "(body, headers, queue_name, created_at, available_at) "
               "VALUES ('{}', '{}', 'other', now(), now())");
    assert_int_equal(world->db->ops->wait(world->db, -1, 300, NULL),
                     SKR_TIMEOUT);
}

// Two tables of one name, as applications have them that share a database.
static void
test_a_row_of_another_schema_wakes_nobody(void **state)
{
    struct world *world = *state;
    set_notify(world, true);
    assert_int_equal(run(world->db, "CREATE SCHEMA other", NULL), SKR_OK);
    assert_int_equal(run(world->db, "SET search_path TO other", NULL), SKR_OK);
    set_notify(world, true);
    struct skr_db *first = open_db(world->database.url);
    follow(first);
    follow(world->db);
    // Each has a lock of its own: neither keeps the other awake.
    assert_true(is_asleep(first, world->server, 10000));
    assert_true(is_asleep(world->db, world->server, 10000));
    assert_int_equal(skr_test_number(world->db, SLEEPERS), 2);
    run_client(world->client, "SET search_path TO other");
    run_client(world->client, INSERT);
    assert_int_equal(first->ops->wait(first, -1, 300, NULL), SKR_TIMEOUT);
    assert_int_equal(world->db->ops->wait(world->db, -1, 2000, NULL), SKR_OK);
    skr_db_close(first);
}

static bool
may_work_queue(const struct skr_store *table, struct skr_db *db)
{
    char name[SKR_LOCK_NAME_SIZE];
    assert_int_equal(
        skr_store_name_lock(db, table->name, table->queue, name, NULL), SKR_OK);
    assert_int_equal(skr_db_lock(db, name, SKR_LOCK_ALONE, -1, 0, NULL),
                     SKR_OK);
    return db->holds_lock;
}

static void
test_tables_of_one_name_in_two_schemas_are_worked_by_two(void **state)
{
    struct world *world = *state;
    skr_store_free(make_table(world));
    assert_int_equal(run(world->db, "CREATE SCHEMA other", NULL), SKR_OK);
    assert_int_equal(run(world->db, "SET search_path TO other", NULL), SKR_OK);
    struct skr_store *table = make_table(world);
    struct skr_db *first = open_db(world->database.url);
    struct skr_db *second = open_db(world->database.url);
    assert_true(may_work_queue(table, first));
    assert_true(may_work_queue(table, world->db));
    // The same table by another path is the same queue.
    assert_int_equal(run(second, "CREATE SCHEMA empty", NULL), SKR_OK);
    assert_int_equal(run(second, "SET search_path TO empty, other", NULL),
                     SKR_OK);
    assert_false(may_work_queue(table, second));
    skr_db_close(first);
    skr_db_close(second);
    skr_store_free(table);
}

static void
test_symfonys_trigger_is_listened_to(void **state)
{
    struct world *world = *state;
    skr_store_free(make_table(world));
    run_client(world->client,
               "CREATE FUNCTION notify_messenger_outbox() RETURNS TRIGGER AS "
               "$$ BEGIN PERFORM pg_notify('messenger_outbox', "
               "NEW.queue_name::text); RETURN NEW; END; $$ LANGUAGE plpgsql");
    run_client(world->client,
               "CREATE TRIGGER notify_trigger AFTER INSERT OR UPDATE ON "
               "messenger_outbox FOR EACH ROW EXECUTE PROCEDURE "
               "notify_messenger_outbox()");
    follow(world->db);
    assert_int_equal(world->db->ops->wait(world->db, -1, 0, NULL), SKR_OK);
    // Until it was heard once it is not relied on.
    run_client(world->client, INSERT);
    assert_int_equal(world->db->ops->wait(world->db, -1, 1000, NULL), SKR_OK);
    while (world->db->ops->wait(world->db, -1, 100, NULL) != SKR_TIMEOUT)
        ;
    assert_woken_by(world->db, &(struct later){world->client, INSERT});
}

static void
test_the_trigger_is_made_once_and_taken_away(void **state)
{
    struct world *world = *state;
    const char *triggers = "SELECT COUNT(*) FROM pg_trigger "
                           "WHERE tgname = 'skirnir_notify'";
    const char *functions = "SELECT COUNT(*) FROM pg_proc "
                            "WHERE proname = 'skirnir_notify'";
    set_notify(world, false);
    set_notify(world, true);
    set_notify(world, true);
    assert_int_equal(skr_test_number(world->db, triggers), 1);
    set_notify(world, false);
    assert_int_equal(skr_test_number(world->db, triggers), 0);
    assert_int_equal(skr_test_number(world->db, functions), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_insert_wakes_a_reader_that_sleeps),
        TEST(test_a_reader_may_spell_the_table_in_another_case),
        TEST(test_nobody_is_told_while_nobody_sleeps),
        TEST(test_a_row_that_is_not_committed_yet_keeps_the_reader_awake),
        TEST(test_a_second_reader_looks_by_itself),
        TEST(test_who_is_refused_sleep_asks_ever_more_rarely),
        TEST(test_a_row_of_another_queue_wakes_nobody),
        TEST(test_a_row_of_another_schema_wakes_nobody),
        TEST(test_tables_of_one_name_in_two_schemas_are_worked_by_two),
        TEST(test_symfonys_trigger_is_listened_to),
        TEST(test_the_trigger_is_made_once_and_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
