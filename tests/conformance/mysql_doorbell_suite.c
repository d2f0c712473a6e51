// SPDX-License-Identifier: MIT
// The binary log as a doorbell: what rings, what does not, and that all goes on
// without it.

#include "db_world.h"

#include "base/log.h"
#include "db/mysql/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { DEADLINE_MS = 20000, SOON_MS = 50, QUIET_MS = 300 };

#define INSERT "INSERT INTO thing (note) VALUES ('a')"

// --------------------------------------------------------- ids of the readers

static atomic_int same_ids;

ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);

ssize_t
__wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
    if (size != sizeof(uint32_t) || atomic_fetch_sub(&same_ids, 1) <= 0)
        return __real_getrandom(bytes, size, flags);
    memset(bytes, 0x21, size);
    return (ssize_t)size;
}

// ------------------------------------------------------------- the library

static _Atomic(const char *) library;  // NULL: as it is

const char *__real_mysql_get_client_info(void);
const char *__wrap_mysql_get_client_info(void);

const char *
__wrap_mysql_get_client_info(void)
{
    const char *told = atomic_load(&library);
    return told == NULL ? __real_mysql_get_client_info() : told;
}

// -------------------------------------------------------------- the server

// Of root, who may change settings. The formats of others must not matter.
struct server {
    struct fixture *fixture;
    MYSQL *root;
    MYSQL *writer;
    char format[16];  // of the log, before the test
};

static MYSQL *
log_in(const struct fixture *fixture, bool has_database)
{
    struct skr_url url = {0};
    assert_int_equal(skr_url_parse(fixture->database.url, &url, NULL), SKR_OK);
    MYSQL *connection = mysql_init(NULL);
    assert_non_null(connection);
    if (mysql_real_connect(connection, "127.0.0.1", "root", NULL,
                           has_database ? url.path : NULL, url.port, NULL,
                           0) == NULL)
        fail_msg("%s", mysql_error(connection));
    skr_url_fini(&url);
    return connection;
}

static void
query(MYSQL *connection, const char *sql)
{
    if (mysql_query(connection, sql) != 0)
        fail_msg("%s: %s", sql, mysql_error(connection));
    mysql_free_result(mysql_store_result(connection));
}

static void
note_format(struct server *server)
{
    const char *sql = "SELECT @@GLOBAL.binlog_format";
    assert_int_equal(mysql_query(server->root, sql), 0);
    MYSQL_RES *result = mysql_store_result(server->root);
    snprintf(server->format, sizeof(server->format), "%s",
             mysql_fetch_row(result)[0]);
    mysql_free_result(result);
}

static bool
is_mariadb(const struct server *server)
{
    return mariadb_connection(server->root);
}

static int
start(void **state)
{
    struct server *server = calloc(1, sizeof(*server));
    assert_non_null(server);
    void *fixture = NULL;
    assert_int_equal(set_up(&fixture), 0);
    server->fixture = fixture;
    server->root = log_in(fixture, false);
    note_format(server);
    query(server->root, "SET GLOBAL binlog_format = 'ROW'");
    server->writer = log_in(fixture, true);
    query(server->writer, "CREATE TABLE other LIKE thing");
    atomic_store(&same_ids, 0);
    atomic_store(&library, NULL);
    *state = server;
    return 0;
}

static int
finish(void **state)
{
    struct server *server = *state;
    void *fixture = server->fixture;
    char sql[64];
    snprintf(sql, sizeof(sql), "SET GLOBAL binlog_format = '%s'",
             server->format);
    query(server->root, sql);
    mysql_close(server->writer);
    mysql_close(server->root);
    free(server);
    return tear_down(&fixture);
}

// --------------------------------------------------------------- the reader

struct reader {
    struct skr_db *db;
    struct skr_log log;
    char by[16];
    char reason[sizeof(((struct skr_error *)NULL)->text)];
    enum skr_log_level level;
    int lines;
};

static void
note_line(void *user, enum skr_log_level level, const char *event,
          const struct skr_log_field *fields, size_t count)
{
    struct reader *reader = user;
    assert_string_equal(event, "database.wake");
    assert_int_equal(count, 3);
    assert_string_equal(fields[0].text, "outbox");
    snprintf(reader->by, sizeof(reader->by), "%s", fields[1].text);
    snprintf(reader->reason, sizeof(reader->reason), "%s", fields[2].text);
    reader->level = level;
    reader->lines++;
}

// parameters begin with &.
static struct reader *
open_reader(const struct server *server, const char *parameters)
{
    const struct skr_test_database *database = &server->fixture->database;
    struct reader *reader = calloc(1, sizeof(*reader));
    assert_non_null(reader);
    struct skr_url own = {0};
    assert_int_equal(skr_url_parse(database->url, &own, NULL), SKR_OK);
    char url[1024];
    bool is_modest = strstr(parameters, "modest") != NULL;
    if (is_modest)
        snprintf(url, sizeof(url), "%s?timeout=6%s", database->modest_url,
                 strchr(parameters, '&'));
    else
        snprintf(url, sizeof(url), "mysql://root@127.0.0.1:%u/%s?timeout=6%s",
                 own.port, own.path, parameters);
    skr_url_fini(&own);
    struct skr_error error = {0};
    if (skr_db_open(database->ops, url, &reader->db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    reader->log = (struct skr_log){.write = note_line, .user = reader};
    reader->db->log = &reader->log;
    reader->db->name = "outbox";
    assert_int_equal(reader->db->ops->follow(reader->db, "thing", "q", &error),
                     SKR_OK);
    return reader;
}

static void
close_reader(struct reader *reader)
{
    skr_db_close(reader->db);
    free(reader);
}

static enum skr_code
wait_for(struct reader *reader, uint32_t timeout_ms)
{
    return reader->db->ops->wait(reader->db, -1, timeout_ms, NULL);
}

static struct skr_mysql_waking *
waking_of(struct reader *reader)
{
    return &((struct skr_mysql *)reader->db)->waking;
}

// Waits as a relay does that finds nothing.
static void
wait_until_said(struct reader *reader, const char *by, const char *reason)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (strcmp(reader->by, by) != 0 ||
           strstr(reader->reason, reason) == NULL) {
        enum skr_code code = wait_for(reader, 50);
        assert_true(code == SKR_OK || code == SKR_TIMEOUT);
        if (skr_clock_ms() > end_ms)
            fail_msg("by %s: %s", reader->by, reader->reason);
    }
}

// Until all looks for past rings are made, and some time is left before the
// reader looks by itself.
static void
settle(struct reader *reader)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (wait_for(reader, QUIET_MS) != SKR_TIMEOUT ||
           skr_clock_ms() - waking_of(reader)->looked_at_ms > 2000)
        assert_true(skr_clock_ms() < end_ms);
}

static void
listen_to_it(struct reader *reader)
{
    wait_until_said(reader, "binlog", "");
    settle(reader);
}

// Until the reader looks since it was rung for.
static void
wait_for_ring(struct reader *reader)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (wait_for(reader, QUIET_MS) != SKR_OK ||
           waking_of(reader)->was_own_look)
        assert_true(skr_clock_ms() < end_ms);
}

// Milliseconds from before the statement to the reader's look; its best of
// several, as a busy machine is slow, but not each time.
struct later {
    MYSQL *connection;
    const char *sql;
    int64_t began_ms;
};

static void *
run_later(void *user)
{
    struct later *later = user;
    skr_clock_sleep(-1, 20);
    later->began_ms = skr_clock_ms();
    query(later->connection, later->sql);
    return NULL;
}

static void
assert_woken_soon(struct reader *reader, MYSQL *connection, const char *sql)
{
    int64_t best_ms = DEADLINE_MS;
    for (int i = 0; i < 10 && best_ms > SOON_MS; i++) {
        struct later later = {connection, sql, 0};
        pthread_t thread;
        settle(reader);
        assert_int_equal(pthread_create(&thread, NULL, run_later, &later), 0);
        assert_int_equal(wait_for(reader, DEADLINE_MS), SKR_OK);
        int64_t end_ms = skr_clock_ms();
        bool was_rung = !waking_of(reader)->was_own_look;
        pthread_join(thread, NULL);
        if (was_rung && end_ms - later.began_ms < best_ms)
            best_ms = end_ms - later.began_ms;
        reader->db->found_rows = was_rung;
    }
    assert_in_range(best_ms, 0, SOON_MS);
}

static void
assert_not_woken(struct reader *reader, MYSQL *connection, const char *sql)
{
    settle(reader);
    query(connection, sql);
    // On a machine that stands still for seconds its own look may be due.
    assert_true(wait_for(reader, QUIET_MS) == SKR_TIMEOUT ||
                waking_of(reader)->was_own_look);
}

// --------------------------------------------------------------- what rings

static void
test_a_commit_wakes_a_reader_within_50_ms(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    assert_int_equal(reader->lines, 1);
    assert_int_equal(reader->level, SKR_LOG_INFO);
    assert_woken_soon(reader, server->writer, INSERT);
    assert_woken_soon(reader, server->writer, "UPDATE thing SET note = UUID()");
    close_reader(reader);
}

static void
test_what_is_no_new_row_wakes_nothing(void **state)
{
    const struct server *server = *state;
    query(server->writer, INSERT);
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    assert_not_woken(reader, server->writer,
                     "INSERT INTO other (note) VALUES ('a')");
    assert_not_woken(reader, server->writer, "DELETE FROM thing");
    query(server->writer, "BEGIN");
    assert_not_woken(reader, server->writer, INSERT);
    assert_not_woken(reader, server->writer, "ROLLBACK");
    query(server->writer, "BEGIN");
    query(server->writer, INSERT);
    settle(reader);
    query(server->writer, "COMMIT");
    wait_for_ring(reader);
    close_reader(reader);
}

// Servers name all tables of a statement before its first row.
static void
test_a_statement_may_write_to_several_tables(void **state)
{
    const struct server *server = *state;
    query(server->writer,
          "CREATE TRIGGER copy AFTER INSERT ON thing FOR EACH ROW "
          "INSERT INTO other (note) VALUES (NEW.note)");
    query(server->writer, "CREATE TABLE cause (note TEXT)");
    query(server->writer, "CREATE TRIGGER effect AFTER INSERT ON cause "
                          "FOR EACH ROW " INSERT);
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    assert_woken_soon(reader, server->writer, INSERT);
    assert_woken_soon(reader, server->writer, "INSERT INTO cause VALUES ('a')");
    assert_woken_soon(reader, server->writer,
                      "UPDATE thing, other SET thing.note = UUID(), "
                      "other.note = UUID() WHERE thing.id = other.id");
    close_reader(reader);
}

static int
count_rung_looks(struct reader *reader)
{
    int looks = 0;
    while (wait_for(reader, QUIET_MS) == SKR_OK)
        looks += !waking_of(reader)->was_own_look;
    return looks;
}

// Rows may be seen after the ring: the reader looks again, and no more than
// that.
static void
test_a_ring_is_looked_for_six_times(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    query(server->writer, INSERT);
    wait_for_ring(reader);
    assert_int_equal(1 + count_rung_looks(reader), 6);
    // Found at once there is one.
    query(server->writer, INSERT);
    wait_for_ring(reader);
    reader->db->found_rows = true;
    assert_int_equal(count_rung_looks(reader), 0);
    close_reader(reader);
}

static void
test_rings_in_vain_are_answered_more_slowly(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    int looks = 0;
    int64_t began_ms = skr_clock_ms(), took_ms = 0;
    while ((took_ms < 1000 || looks < 5) && took_ms < DEADLINE_MS) {
        query(server->writer, INSERT);
        looks += wait_for(reader, 1) == SKR_OK;
        took_ms = skr_clock_ms() - began_ms;
    }
    assert_in_range(looks, 5, 16 + took_ms / 20 + 5);
    close_reader(reader);
}

static void
test_a_compressed_transaction_rings(void **state)
{
    const struct server *server = *state;
    // MariaDB has no such setting.
    if (is_mariadb(server))
        return;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    query(server->writer, "SET SESSION binlog_transaction_compression = ON");
    assert_woken_soon(reader, server->writer, INSERT);
    assert_string_equal(reader->by, "binlog");
    close_reader(reader);
}

static void
test_partitioned_tables_are_as_others(void **state)
{
    const struct server *server = *state;
    query(server->writer, "DROP TABLE thing, other");
    query(server->writer, "CREATE TABLE thing (id INTEGER PRIMARY KEY "
                          "AUTO_INCREMENT, note TEXT) "
                          "PARTITION BY HASH (id) PARTITIONS 3");
    query(server->writer, "CREATE TABLE other LIKE thing");
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    assert_not_woken(reader, server->writer,
                     "INSERT INTO other (note) VALUES ('a')");
    assert_woken_soon(reader, server->writer, INSERT);
    assert_woken_soon(reader, server->writer, "UPDATE thing SET note = UUID()");
    assert_int_equal(reader->lines, 1);
    close_reader(reader);
}

static void
test_a_prepared_transaction_rings_when_it_is_committed(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    query(server->writer, "XA START 'skirnir_doorbell'");
    query(server->writer, INSERT);
    query(server->writer, "XA END 'skirnir_doorbell'");
    query(server->writer, "XA PREPARE 'skirnir_doorbell'");
    settle(reader);
    query(server->writer, "XA COMMIT 'skirnir_doorbell'");
    wait_for_ring(reader);
    close_reader(reader);
}

static void
test_twenty_readers_are_woken_by_one_commit(void **state)
{
    enum { READERS = 20 };
    const struct server *server = *state;
    struct reader *readers[READERS];
    for (int i = 0; i < READERS; i++)
        readers[i] = open_reader(server, "");
    for (int i = 0; i < READERS; i++)
        wait_until_said(readers[i], "binlog", "");
    // The first are due to look by themselves when the last is settled.
    for (int i = 0; i < READERS; i++)
        settle(readers[i]);
    query(server->writer, INSERT);
    for (int i = 0; i < READERS; i++) {
        wait_for_ring(readers[i]);
        close_reader(readers[i]);
    }
}

// ------------------------------------------------------------ what goes wrong

// Ends this test's sessions that read the binary log.
static void
cut_off(const struct server *server)
{
    assert_int_equal(mysql_query(server->writer,
                                 "SELECT id FROM information_schema."
                                 "processlist WHERE command LIKE "
                                 "'Binlog Dump%' AND db = DATABASE()"),
                     0);
    MYSQL_RES *result = mysql_store_result(server->writer);
    for (MYSQL_ROW row; (row = mysql_fetch_row(result)) != NULL;) {
        char sql[64];
        snprintf(sql, sizeof(sql), "KILL %s", row[0]);
        // One that was closed may be gone by now.
        (void)!mysql_query(server->root, sql);
    }
    mysql_free_result(result);
}

static void
test_a_lost_connection_is_polled_for_and_comes_back(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    cut_off(server);
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (reader->lines < 2) {
        (void)!wait_for(reader, 20);
        assert_true(skr_clock_ms() < end_ms);
    }
    // Rows are looked for meanwhile.
    assert_int_equal(wait_for(reader, 2000), SKR_OK);
    listen_to_it(reader);
    assert_woken_soon(reader, server->writer, INSERT);
    close_reader(reader);
}

static void
test_two_readers_with_one_id_both_listen_in_the_end(void **state)
{
    const struct server *server = *state;
    atomic_store(&same_ids, 2);
    struct reader *one = open_reader(server, "");
    wait_until_said(one, "binlog", "");
    struct reader *other = open_reader(server, "");
    wait_until_said(other, "binlog", "");
    assert_true(atomic_load(&same_ids) <= 0);
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (one->lines < 3 && skr_clock_ms() < end_ms)
        (void)!wait_for(one, 20);
    assert_woken_soon(one, server->writer, INSERT);
    assert_woken_soon(other, server->writer, INSERT);
    close_reader(one);
    close_reader(other);
}

static void
test_a_user_without_the_right_polls(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "modest&wake=binlog");
    wait_until_said(reader, "poll", "GRANT this user the right");
    assert_int_equal(reader->level, SKR_LOG_WARNING);
    assert_int_equal(reader->lines, 1);
    assert_int_equal(wait_for(reader, 2000), SKR_OK);
    close_reader(reader);
}

static void
test_the_doorbell_may_have_a_user_of_its_own(void **state)
{
    const struct server *server = *state;
    struct skr_url url = {0};
    char parameters[200];
    assert_int_equal(skr_url_parse(server->fixture->database.url, &url, NULL),
                     SKR_OK);
    snprintf(parameters, sizeof(parameters),
             "modest&wake_dsn=mysql%%3A%%2F%%2Froot%%40127.0.0.1%%3A%u%%2F"
             "information_schema",
             url.port);
    skr_url_fini(&url);
    struct reader *reader = open_reader(server, parameters);
    listen_to_it(reader);
    assert_woken_soon(reader, server->writer, INSERT);
    close_reader(reader);
}

static void
test_a_log_without_rows_is_polled(void **state)
{
    const struct server *server = *state;
    query(server->root, "SET GLOBAL binlog_format = 'MIXED'");
    struct reader *reader = open_reader(server, "");
    wait_until_said(reader, "poll", "binlog_format");
    assert_int_equal(reader->level, SKR_LOG_INFO);
    query(server->root, "SET GLOBAL binlog_format = 'ROW'");
    close_reader(reader);
}

static void
test_a_library_that_is_too_old_is_not_listened_with(void **state)
{
    const struct server *server = *state;
    const char *const too_old[] = {"3.3.19", "3.2.99", "2.9.99", ""};
    for (size_t i = 0; i < SKR_COUNT_OF(too_old); i++) {
        atomic_store(&library, too_old[i]);
        struct reader *reader = open_reader(server, "");
        wait_until_said(reader, "poll", "3.3.20 is needed");
        close_reader(reader);
    }
    atomic_store(&library, "3.4.0");
    struct reader *reader = open_reader(server, "");
    wait_until_said(reader, "binlog", "");
    close_reader(reader);
}

static void
test_logs_that_end_and_are_purged_do_not_matter(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    query(server->writer, "FLUSH BINARY LOGS");
    query(server->writer, "PURGE BINARY LOGS BEFORE NOW()");
    assert_woken_soon(reader, server->writer, INSERT);
    assert_int_equal(reader->lines, 1);
    close_reader(reader);
}

static void
wait_for_ring_look(struct reader *reader, MYSQL *connection)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    query(connection, "UPDATE thing SET note = UUID()");
    do {
        (void)!wait_for(reader, 50);
        assert_true(skr_clock_ms() < end_ms);
    } while (!waking_of(reader)->was_ring_look);
}

// Until no look for a ring is left.
static void
settle_polling(struct reader *reader)
{
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (waking_of(reader)->ring_look_ms != 0) {
        (void)!wait_for(reader, 50);
        assert_true(skr_clock_ms() < end_ms);
    }
}

static void
test_rows_that_the_log_does_not_tell_of_are_found(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    listen_to_it(reader);
    query(server->writer, "SET SESSION sql_log_bin = 0");
    // The first time it may have looked just before the ring.
    for (int i = 0; i < 2; i++) {
        assert_string_equal(reader->by, "binlog");
        query(server->writer, INSERT);
        assert_int_equal(wait_for(reader, DEADLINE_MS), SKR_OK);
        reader->db->found_rows = true;
        assert_true(waking_of(reader)->was_own_look);
        (void)!wait_for(reader, 0);
    }
    assert_string_equal(reader->by, "poll");
    assert_non_null(strstr(reader->reason, "sql_log_bin"));
    // From then on it looks, until it finds what it heard of.
    assert_int_equal(wait_for(reader, 2000), SKR_OK);
    query(server->writer, "SET SESSION sql_log_bin = 1");
    wait_for_ring_look(reader, server->writer);
    settle_polling(reader);
    assert_string_equal(reader->by, "poll");
    wait_for_ring_look(reader, server->writer);
    reader->db->found_rows = true;
    wait_until_said(reader, "binlog", "");
    assert_int_equal(reader->lines, 3);
    close_reader(reader);
}

static void
test_a_flood_of_other_tables_is_not_listened_to(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "&wake_ceiling=2000");
    listen_to_it(reader);
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (strcmp(reader->by, "poll") != 0) {
        query(server->writer,
              "INSERT INTO other (note) VALUES (REPEAT('a', 1000))");
        (void)!wait_for(reader, 1);
        assert_true(skr_clock_ms() < end_ms);
    }
    assert_non_null(strstr(reader->reason, "wake_ceiling"));
    close_reader(reader);
}

// How many of this test's sessions read the binary log.
static int
count_listeners(const struct server *server)
{
    assert_int_equal(mysql_query(server->writer,
                                 "SELECT COUNT(*) FROM information_schema."
                                 "processlist WHERE command LIKE "
                                 "'Binlog Dump%' AND db = DATABASE()"),
                     0);
    MYSQL_RES *result = mysql_store_result(server->writer);
    int count = atoi(mysql_fetch_row(result)[0]);
    mysql_free_result(result);
    return count;
}

// While its own table is written to without a pause the log is not read, which
// nothing says, as it is no trouble; the reader looks at its pace.
static void
test_a_busy_queue_is_not_listened_to_until_it_is_quiet(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "");
    const struct skr_mysql_waking *waking = waking_of(reader);
    listen_to_it(reader);
    int64_t end_ms = skr_clock_ms() + DEADLINE_MS;
    while (waking->state != SKR_MYSQL_DOORBELL_RESTING) {
        query(server->writer,
              "INSERT INTO thing (note) VALUES (REPEAT('a', 4000000))");
        reader->db->found_rows = wait_for(reader, 1) == SKR_OK;
        assert_true(skr_clock_ms() < end_ms);
    }
    while (count_listeners(server) > 0)
        assert_true(skr_clock_ms() < end_ms);
    // For as long as rows are found, which is longer than it rests at least.
    int64_t busy_ms = skr_clock_ms() + 1500;
    while (skr_clock_ms() < busy_ms) {
        reader->db->found_rows = true;
        assert_true(wait_for(reader, 50) != SKR_STOPPED);
        assert_int_equal(waking->state, SKR_MYSQL_DOORBELL_RESTING);
    }
    assert_int_equal(count_listeners(server), 0);
    assert_int_equal(reader->lines, 1);
    while (waking->state != SKR_MYSQL_DOORBELL_LISTENING) {
        (void)!wait_for(reader, 50);
        assert_true(skr_clock_ms() < end_ms);
    }
    assert_woken_soon(reader, server->writer, INSERT);
    assert_int_equal(reader->lines, 1);
    close_reader(reader);
}

// A doorbell that is connecting to a host that says nothing.
static void
test_a_stop_waits_for_no_doorbell(void **state)
{
    const struct server *server = *state;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 5), 0);
    getsockname(fd, (struct sockaddr *)&address, &size);
    char parameters[200];
    snprintf(parameters, sizeof(parameters),
             "&wake_dsn=mysql%%3A%%2F%%2Froot%%40127.0.0.1%%3A%u%%2Fshop%%3F"
             "connect_timeout%%3D3",
             ntohs(address.sin_port));
    struct reader *reader = open_reader(server, parameters);
    while (waking_of(reader)->doorbell == NULL)
        (void)!wait_for(reader, 50);
    int client = accept(fd, NULL, NULL);
    int64_t began_ms = skr_clock_ms();
    close_reader(reader);
    assert_in_range(skr_clock_ms() - began_ms, 0, 2000);
    close(client);
    close(fd);
}

static void
test_wake_poll_listens_to_nothing(void **state)
{
    const struct server *server = *state;
    struct reader *reader = open_reader(server, "&wake=poll&idle_poll=500");
    int64_t end_ms = skr_clock_ms() + 1000;
    while (skr_clock_ms() < end_ms)
        (void)!wait_for(reader, 50);
    assert_null(waking_of(reader)->doorbell);
    assert_int_equal(reader->lines, 0);
    close_reader(reader);
}

#define DOORBELL(name) cmocka_unit_test_setup_teardown(name, start, finish)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        DOORBELL(test_a_commit_wakes_a_reader_within_50_ms),
        DOORBELL(test_what_is_no_new_row_wakes_nothing),
        DOORBELL(test_a_statement_may_write_to_several_tables),
        DOORBELL(test_a_ring_is_looked_for_six_times),
        DOORBELL(test_rings_in_vain_are_answered_more_slowly),
        DOORBELL(test_a_compressed_transaction_rings),
        DOORBELL(test_partitioned_tables_are_as_others),
        DOORBELL(test_a_prepared_transaction_rings_when_it_is_committed),
        DOORBELL(test_twenty_readers_are_woken_by_one_commit),
        DOORBELL(test_a_lost_connection_is_polled_for_and_comes_back),
        DOORBELL(test_two_readers_with_one_id_both_listen_in_the_end),
        DOORBELL(test_a_user_without_the_right_polls),
        DOORBELL(test_the_doorbell_may_have_a_user_of_its_own),
        DOORBELL(test_a_log_without_rows_is_polled),
        DOORBELL(test_a_library_that_is_too_old_is_not_listened_with),
        DOORBELL(test_logs_that_end_and_are_purged_do_not_matter),
        DOORBELL(test_rows_that_the_log_does_not_tell_of_are_found),
        DOORBELL(test_a_flood_of_other_tables_is_not_listened_to),
        DOORBELL(test_a_busy_queue_is_not_listened_to_until_it_is_quiet),
        DOORBELL(test_a_stop_waits_for_no_doorbell),
        DOORBELL(test_wake_poll_listens_to_nothing),
    };
    return cmocka_run_group_tests_name("mysql_doorbell", tests, NULL, NULL);
}
