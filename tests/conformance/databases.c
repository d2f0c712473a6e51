// SPDX-License-Identifier: MIT
#include "databases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"

#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef SKR_WITH_MYSQL
#include "db/mysql/connection.h"
#endif
#ifdef SKR_WITH_PGSQL
#include <skirnir/pgsql.h>
#endif
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif

// What a suite needs of one kind of database.
struct kind {
    const char *name;
    const struct skr_db_ops *ops;
    void (*make)(struct skr_test_database *database);
    void (*remove)(const struct skr_test_database *database);  // or NULL
    struct skr_test_client (*connect)(const struct skr_test_database *database);
    void (*disconnect)(void *connection);
    void (*run)(void *connection, const char *sql);
    const char *begin;
    const char *move_east;  // SQL that sets a session's zone; NULL: it has none
    void (*become_reader)(const struct skr_test_database *database);
    void (*break_lock)(const struct skr_test_database *database,
                       const char *name);
    // NULL: any write to the table holds it up.
    void (*hold_up)(struct skr_db *db, const char *table);
    void (*summer_zone)(const struct skr_test_database *database,
                        char zone[SKR_TEST_ZONE_SIZE]);  // NULL: there is none
    void (*make_full)(struct skr_db *db);
    void (*refuse)(struct skr_db *db, const char *table, const char *change,
                   const char *rows);
    const char *allow[2];              // SQL before and after the change
    void (*spoil)(struct skr_db *db);  // NULL: no driver's advice is known
    const char *explain, *analyze, *drop_index;
    bool (*is_costly)(const char *plan);
    int64_t (*reads)(struct skr_db *db);
};

static void
run(struct skr_db *db, const struct skr_statement *statement)
{
    struct skr_error error = {0};
    if (skr_tx_run(skr_db_tx(db), statement, &error) != SKR_OK)
        fail_msg("%s: %s", statement->sql, error.text);
}

#ifdef SKR_WITH_SQLITE
static const char *const sqlite_bad_urls[] = {
    "sqlite:///:memory:",
    "own",
    "sqlite://",
    "no file",
    "sqlite:///",
    "no file",
    "sqlite://shop.db",
    "three slashes",
    "sqlite:///shop.db?colour=red",
    "colour",
    "sqlite:///shop.db?busy_timeout=soon",
    "busy_timeout",
    NULL,
};

static void
sqlite_make(struct skr_test_database *database)
{
    database->bad_urls = sqlite_bad_urls;
    database->bytes_type = "BLOB";
    database->wait_sees_commits = true;
    database->reader_answer = "writable";
    database->text_holds_bytes = true;
    database->text_takes_blobs = true;
    char link[128];
    snprintf(link, sizeof(link), "%s/alias.db", database->folder);
    assert_int_equal(symlink("test.db", link), 0);
    snprintf(database->alias_url, sizeof(database->alias_url),
             "sqlite:///%s/alias.db", database->folder);
    snprintf(database->url, sizeof(database->url), "sqlite:///%s/test.db",
             database->folder);
    snprintf(database->impatient_url, sizeof(database->impatient_url),
             "sqlite:///%s/test.db?busy_timeout=50", database->folder);
    snprintf(database->missing_url, sizeof(database->missing_url),
             "sqlite:///%s/missing/test.db", database->folder);
    // As setup proposes it.
    struct skr_db *db = skr_test_connect(database);
    skr_test_run(db, "PRAGMA journal_mode = WAL");
    skr_db_close(db);
}

static struct skr_test_client
sqlite_connect(const struct skr_test_database *database)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/test.db", database->folder);
    sqlite3 *connection = NULL;
    assert_int_equal(sqlite3_open(path, &connection), SQLITE_OK);
    sqlite3_busy_timeout(connection, 5000);
    return (struct skr_test_client){.tx = skr_sqlite_tx(connection),
                                    .connection = connection};
}

static void
sqlite_disconnect(void *connection)
{
    assert_int_equal(sqlite3_close(connection), SQLITE_OK);
}

static void
sqlite_run(void *connection, const char *sql)
{
    char *text = NULL;
    if (sqlite3_exec(connection, sql, NULL, NULL, &text) != SQLITE_OK)
        fail_msg("%s: %s", sql, text);
}

// Permissions do not hold back the superuser.
static void
sqlite_become_reader(const struct skr_test_database *database)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/test.db", database->folder);
    // A reader of a WAL needs to write its index; a rollback journal does not.
    struct skr_db *db = skr_test_connect(database);
    skr_test_run(db, "PRAGMA journal_mode = DELETE");
    skr_db_close(db);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(database->folder, 0555), 0);
    if (geteuid() == 0)
        assert_int_equal(seteuid(65534), 0);
}

static void
sqlite_break_lock(const struct skr_test_database *database, const char *name)
{
    (void)name;
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/*.lock", database->folder);
    glob_t found = {0};
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        assert_int_equal(unlink(found.gl_pathv[i]), 0);
    globfree(&found);
}

static void
sqlite_make_full(struct skr_db *db)
{
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %lld",
             (long long)skr_test_number(db, "PRAGMA page_count"));
    skr_test_run(db, sql);
}

static void
sqlite_refuse(struct skr_db *db, const char *table, const char *change,
              const char *rows)
{
    char sql[400];
    snprintf(sql, sizeof(sql),
             "CREATE TRIGGER refuse_%s BEFORE %s ON %s WHEN %s BEGIN "
             "SELECT RAISE(ABORT, 'refused by a trigger'); END",
             change, change, table, rows);
    skr_test_run(db, sql);
}

static int64_t
sqlite_reads(struct skr_db *db)
{
    sqlite3 *connection = skr_sqlite_connection(skr_db_tx(db));
    int hits = 0, misses = 0, most = 0;
    assert_non_null(connection);
    sqlite3_db_status(connection, SQLITE_DBSTATUS_CACHE_HIT, &hits, &most, 0);
    sqlite3_db_status(connection, SQLITE_DBSTATUS_CACHE_MISS, &misses, &most,
                      0);
    return (int64_t)hits + misses;
}

static void
sqlite_spoil(struct skr_db *db)
{
    skr_test_run(db, "PRAGMA journal_mode = DELETE");
}
#endif

#ifdef SKR_WITH_MYSQL
static const char *const mariadb_bad_urls[] = {
    "mysql://",
    "no host",
    "mysql://localhost",
    "no database",
    "mysql://localhost/",
    "no database",
    "mysql://one,/shop",
    "no name",
    "mysql://one:many,two/shop",
    "the port of one",
    "mysql://localhost/shop?colour=red",
    "colour",
    "mysql://localhost/shop?lock_timeout=soon",
    "lock_timeout",
    "mysql://localhost/shop?connect_timeout=0",
    "connect_timeout",
    "mysql://localhost/shop?timeout=soon",
    "timeout",
    "mysql://localhost/shop?timeout=1",
    "timeout",
    "mysql://localhost/shop?timeout=7&lock_timeout=7",
    "longer than lock_timeout",
    "mysql://localhost/shop?ssl=maybe",
    "ssl",
    "mysql://localhost/shop?ssl=",
    "ssl",
    "mysql://localhost/shop?ssl=off&ssl_ca=/a",
    "contradicts",
    "mysql://localhost/shop?ssl_cert=/a",
    "ssl_key",
    "mysql://localhost/shop?wake=bell",
    "auto, binlog or poll",
    "mysql://localhost/shop?wake_ceiling=0",
    "wake_ceiling",
    "mysql://localhost/shop?idle_poll=1",
    "idle_poll",
    "mysql://localhost/shop?wake_dsn=shop",
    "wake_dsn",
    "mysql://localhost/shop?wake_dsn=pgsql%3A%2F%2Flocalhost%2Fshop",
    "wake_dsn in the DSN: it is not one of",
    "mysql://localhost/shop?wake_dsn=mysql%3A%2F%2Flocalhost%2Fshop%3Fssl%3Da",
    "wake_dsn in the DSN: ssl",
    NULL,
};

static bool
is_mysql(void)
{
    return strcmp(getenv("SKR_TEST_DATABASE"), "mysql") == 0;
}

// Where tests/servers/with-server says that the server is: MariaDB or MySQL,
// which share a driver.
static const char *
mariadb_server(void)
{
    const char *variable = is_mysql() ? "SKR_MYSQL_URL" : "SKR_MARIADB_URL";
    const char *url = getenv(variable);
    if (url != NULL)
        return url;
    fprintf(stderr, "%s names no server\n", variable);
    exit(77);
}

static unsigned
mariadb_port(void)
{
    return (unsigned)strtoul(strrchr(mariadb_server(), ':') + 1, NULL, 10);
}

// A database and its user share their name.
static const char *
mariadb_name(const struct skr_test_database *database)
{
    return strrchr(database->folder, '-') + 1;
}

static MYSQL *
mariadb_open(const char *user, const char *password, const char *name)
{
    MYSQL *connection = mysql_init(NULL);
    assert_non_null(connection);
    mysql_optionsv(connection, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (mysql_real_connect(connection, "127.0.0.1", user, password, name,
                           mariadb_port(), NULL, 0) == NULL)
        fail_msg("%s", mysql_error(connection));
    return connection;
}

static void
mariadb_run(void *connection, const char *sql)
{
    if (mysql_query(connection, sql) != 0)
        fail_msg("%s: %s", sql, mysql_error(connection));
    mysql_free_result(mysql_store_result(connection));
}

// As the server's master; {name} is the test's.
static void
mariadb_run_on_server(const struct skr_test_database *database,
                      const char *sql_template)
{
    static const struct skr_dialect none;
    struct skr_arena arena = {0};
    const struct skr_word words[] = {{"name", mariadb_name(database)}};
    const char *sql = skr_sql_fill(&none, &arena, sql_template, words, 1);
    assert_non_null(sql);
    MYSQL *server = mariadb_open("root", NULL, NULL);
    mariadb_run(server, sql);
    mysql_close(server);
    skr_arena_fini(&arena);
}

static void
mariadb_make(struct skr_test_database *database)
{
    const char *name = mariadb_name(database);
    database->bad_urls = mariadb_bad_urls;
    database->bytes_type = "LONGBLOB";
    database->clock = "UTC_TIMESTAMP()";
    database->time_words[0] = "TIMESTAMP('";
    database->time_words[1] = "')";
    database->reader_answer = "INSERT";
    snprintf(database->url, sizeof(database->url),
             "mysql://%s:p%%40ss@127.0.0.1:%u/skirnir_%s?serverVersion=8.0",
             name, mariadb_port(), name);
    // The server counts seconds.
    snprintf(database->impatient_url, sizeof(database->impatient_url),
             "%.200s&lock_timeout=1", database->url);
    snprintf(database->alias_url, sizeof(database->alias_url),
             "mariadb://%s:p%%40ss@localhost:%u/skirnir_%s?charset=utf8mb4",
             name, mariadb_port(), name);
    snprintf(database->missing_url, sizeof(database->missing_url),
             "mysql:///shop?unix_socket=%s/missing", database->folder);
    mariadb_run_on_server(
        database, "CREATE DATABASE `skirnir_{name}` CHARACTER SET utf8mb4");
    mariadb_run_on_server(database, "CREATE USER '{name}'@'localhost' "
                                    "IDENTIFIED BY 'p@ss'");
    mariadb_run_on_server(database, "GRANT ALL ON `skirnir_{name}`.* "
                                    "TO '{name}'@'localhost'");
    mariadb_run_on_server(database,
                          "GRANT PROCESS ON *.* TO '{name}'@'localhost'");
    snprintf(database->modest_url, sizeof(database->modest_url),
             "mysql://%s_m:p%%40ss@127.0.0.1:%u/skirnir_%s", name,
             mariadb_port(), name);
    mariadb_run_on_server(database, "CREATE USER '{name}_m'@'localhost' "
                                    "IDENTIFIED BY 'p@ss'");
    mariadb_run_on_server(database, "GRANT ALL ON `skirnir_{name}`.* "
                                    "TO '{name}_m'@'localhost'");
}

static void
mariadb_remove(const struct skr_test_database *database)
{
    mariadb_run_on_server(database, "DROP DATABASE `skirnir_{name}`");
    mariadb_run_on_server(database, "DROP USER '{name}'@'localhost'");
    mariadb_run_on_server(database, "DROP USER '{name}_m'@'localhost'");
}

// The server has loaded none: this one changes in 2026 alone, as Berlin's does.
static void
mariadb_summer_zone(const struct skr_test_database *database,
                    char zone[SKR_TEST_ZONE_SIZE])
{
    char naming[120];
    MYSQL *server = mariadb_open("root", NULL, "mysql");
    snprintf(zone, SKR_TEST_ZONE_SIZE, "Summer/%s", mariadb_name(database));
    snprintf(naming, sizeof(naming),
             "INSERT INTO time_zone_name VALUES ('%s', @zone)", zone);
    const char *const statements[] = {
        "INSERT INTO time_zone (Use_leap_seconds) VALUES ('N')",
        "SET @zone = LAST_INSERT_ID()",
        naming,
        "INSERT INTO time_zone_transition_type VALUES "
        "(@zone, 0, 3600, 0, 'W'), (@zone, 1, 7200, 1, 'S')",
        "INSERT INTO time_zone_transition VALUES "
        "(@zone, 1774746000, 1), (@zone, 1792890000, 0)",
    };
    for (size_t i = 0; i < SKR_COUNT_OF(statements); i++)
        mariadb_run(server, statements[i]);
    mysql_close(server);
}

static struct skr_test_client
mariadb_connect_client(const struct skr_test_database *database)
{
    char name[32];
    snprintf(name, sizeof(name), "skirnir_%s", mariadb_name(database));
    MYSQL *connection = mariadb_open(mariadb_name(database), "p@ss", name);
    return (struct skr_test_client){.tx = skr_mysql_tx(connection),
                                    .connection = connection};
}

static void
mariadb_disconnect(void *connection)
{
    mysql_close(connection);
}

static void
mariadb_become_reader(const struct skr_test_database *database)
{
    mariadb_run_on_server(database, "REVOKE INSERT ON `skirnir_{name}`.* "
                                    "FROM '{name}'@'localhost'");
}

// The server has no list of locks; it must be asked by name. Returns once the
// lock is free.
static void
mariadb_break_lock(const struct skr_test_database *database, const char *name)
{
    char schema[32], lock[SKR_MYSQL_LOCK_NAME_SIZE], sql[200];
    snprintf(schema, sizeof(schema), "skirnir_%s", mariadb_name(database));
    skr_mysql_lock_name(schema, name, lock);
    MYSQL *server = mariadb_open("root", NULL, NULL);
    snprintf(sql, sizeof(sql), "SELECT IS_USED_LOCK('%s')", lock);
    assert_int_equal(mysql_query(server, sql), 0);
    MYSQL_RES *result = mysql_store_result(server);
    const char *holder = mysql_fetch_row(result)[0];
    assert_non_null(holder);
    snprintf(sql, sizeof(sql), "KILL %s", holder);
    mysql_free_result(result);
    mariadb_run(server, sql);
    snprintf(sql, sizeof(sql), "DO GET_LOCK('%s', 10), RELEASE_LOCK('%s')",
             lock, lock);
    mariadb_run(server, sql);
    mysql_close(server);
}

// Rows alone would not do: at this level the gaps between them are locked too.
static void
mariadb_hold_up(struct skr_db *db, const char *table)
{
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM %s FOR UPDATE", table);
    skr_test_run(db, "ROLLBACK");
    skr_test_run(db, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    skr_test_run(db, "START TRANSACTION");
    skr_test_run(db, sql);
}

static int64_t
mariadb_reads(struct skr_db *db)
{
    return skr_test_status(db, "Handler_read%");
}

// As root: with a binary log, MySQL lets no other user make triggers.
static void
mariadb_refuse(struct skr_db *db, const char *table, const char *change,
               const char *rows)
{
    char sql[500];
    char *schema = skr_test_text(db, "SELECT DATABASE()");
    MYSQL *server = mariadb_open("root", NULL, NULL);
    snprintf(sql, sizeof(sql),
             "CREATE TRIGGER %s.refuse_%s BEFORE %s ON %s.%s FOR EACH ROW "
             "BEGIN IF %s THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = "
             "'refused by a trigger'; END IF; END",
             schema, change, change, schema, table, rows);
    mariadb_run(server, sql);
    mysql_close(server);
    free(schema);
}

// A table whose engine counts its bytes with two of them.
static void
mariadb_make_full(struct skr_db *db)
{
    skr_test_run(db, "ALTER TABLE thing ENGINE = MyISAM, MAX_ROWS = 1, "
                     "AVG_ROW_LENGTH = 1");
}
#endif

#ifdef SKR_WITH_PGSQL
static const char *const pgsql_bad_urls[] = {
    "pgsql://",
    "no database",
    "pgsql://localhost/",
    "no database",
    "pgsql://localhost/shop?host=/run",
    "twice",
    "pgsql://localhost/shop?colour=red",
    "colour",
    "pgsql://localhost/shop?lock_timeout=soon",
    "lock_timeout",
    "pgsql://localhost/shop?connect_timeout=0",
    "connect_timeout",
    "pgsql://localhost/shop?timeout=soon",
    "timeout",
    "pgsql://localhost/shop?timeout=1",
    "timeout",
    "pgsql://localhost/shop?timeout=7&lock_timeout=7000",
    "longer than lock_timeout",
    "pgsql://localhost/shop?statement_timeout=7000&timeout=7",
    "longer than lock_timeout and statement_timeout",
    "pgsql://localhost/shop?sslmode=yes",
    "sslmode",
    "pgsql://one:5433,two:soon/shop",
    "port of two",
    "pgsql://one,:5433/shop",
    "no name",
    NULL,
};

// Where tests/servers/with-server says that the server is.
static const char *
pgsql_server(void)
{
    const char *url = getenv("SKR_POSTGRESQL_URL");
    if (url != NULL)
        return url;
    fprintf(stderr, "SKR_POSTGRESQL_URL names no server\n");
    exit(77);
}

// libpq knows the scheme by another name.
static PGconn *
pgsql_open(const char *url)
{
    char uri[300];
    snprintf(uri, sizeof(uri), "postgresql%s", strchr(url, ':'));
    PGconn *connection = PQconnectdb(uri);
    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    return connection;
}

static void
pgsql_run(void *connection, const char *sql)
{
    PGresult *result = PQexec(connection, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(connection));
    PQclear(result);
}

// As the server's master, on a database of its own; %s is the test's.
static void
pgsql_run_on_server(const struct skr_test_database *database,
                    const char *format)
{
    char sql[400];
    const char *name = strrchr(database->folder, '-') + 1;
    // The suites' texts are ours; so is this one.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(sql, sizeof(sql), format, name);
#pragma GCC diagnostic pop
    PGconn *server = pgsql_open(pgsql_server());
    pgsql_run(server, sql);
    PQfinish(server);
}

static void
pgsql_make(struct skr_test_database *database)
{
    const char *url = pgsql_server(), *name = strrchr(database->folder, '-');
    int length = (int)(strrchr(url, '/') - url);
    database->bad_urls = pgsql_bad_urls;
    database->bytes_type = "BYTEA";
    database->clock = "statement_timestamp()";
    database->time_words[0] = "TIMESTAMPTZ '";
    database->time_words[1] = "+00'";
    database->reader_answer = "writable";
    snprintf(database->url, sizeof(database->url), "%.*s/skirnir_%s", length,
             url, name + 1);
    snprintf(database->impatient_url, sizeof(database->impatient_url),
             "%.*s/skirnir_%s?lock_timeout=50", length, url, name + 1);
    snprintf(database->missing_url, sizeof(database->missing_url),
             "pgsql:///shop?host=%s/missing", database->folder);
    const char *at = strchr(url, '@'), *port = strrchr(url, ':');
    snprintf(database->alias_url, sizeof(database->alias_url),
             "postgres%.*slocalhost%.*s/skirnir_%s", (int)(at + 1 - url - 5),
             url + 5, (int)(url + length - port), port, name + 1);
    pgsql_run_on_server(database,
                        "CREATE DATABASE \"skirnir_%s\" TEMPLATE template0");
}

static void
pgsql_remove(const struct skr_test_database *database)
{
    pgsql_run_on_server(database, "DROP DATABASE \"skirnir_%s\" WITH (FORCE)");
}

static struct skr_test_client
pgsql_connect(const struct skr_test_database *database)
{
    PGconn *connection = pgsql_open(database->url);
    return (struct skr_test_client){.tx = skr_pgsql_tx(connection),
                                    .connection = connection};
}

static void
pgsql_disconnect(void *connection)
{
    PQfinish(connection);
}

static void
pgsql_become_reader(const struct skr_test_database *database)
{
    pgsql_run_on_server(database, "ALTER DATABASE \"skirnir_%s\" "
                                  "SET default_transaction_read_only = on");
}

static void
pgsql_break_lock(const struct skr_test_database *database, const char *name)
{
    (void)name;
    pgsql_run_on_server(
        database, "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks "
                  "JOIN pg_database ON pg_database.oid = pg_locks.database "
                  "WHERE locktype = 'advisory' AND datname = 'skirnir_%s'");
}

static void
pgsql_hold_up(struct skr_db *db, const char *table)
{
    char sql[128];
    snprintf(sql, sizeof(sql), "LOCK TABLE %s IN EXCLUSIVE MODE", table);
    skr_test_run(db, sql);
}

static void
pgsql_summer_zone(const struct skr_test_database *database,
                  char zone[SKR_TEST_ZONE_SIZE])
{
    (void)database;
    snprintf(zone, SKR_TEST_ZONE_SIZE, "Europe/Berlin");
}

static void
pgsql_refuse(struct skr_db *db, const char *table, const char *change,
             const char *rows)
{
    char sql[500];
    snprintf(sql, sizeof(sql),
             "CREATE FUNCTION refuse_%s() RETURNS trigger LANGUAGE plpgsql AS "
             "$$ BEGIN IF %s THEN RAISE EXCEPTION 'refused by a trigger'; "
             "END IF; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; "
             "RETURN NEW; END $$",
             change, rows);
    skr_test_run(db, sql);
    snprintf(sql, sizeof(sql),
             "CREATE TRIGGER refuse_%s BEFORE %s ON %s FOR EACH ROW "
             "EXECUTE FUNCTION refuse_%s()",
             change, change, table, change);
    skr_test_run(db, sql);
}

// A disk cannot be filled for one test alone; what the server then says can.
static void
pgsql_make_full(struct skr_db *db)
{
    skr_test_run(db, "CREATE FUNCTION refuse() RETURNS trigger "
                     "LANGUAGE plpgsql AS $$ BEGIN "
                     "RAISE EXCEPTION 'no space left on device' "
                     "USING ERRCODE = 'disk_full'; END $$");
    skr_test_run(db, "CREATE TRIGGER full_disk BEFORE INSERT ON thing "
                     "FOR EACH ROW EXECUTE FUNCTION refuse()");
}

// Counted at the end of a transaction, and then only now and then.
static int64_t
pgsql_reads(struct skr_db *db)
{
    skr_test_run(db, "SELECT pg_stat_force_next_flush()");
    return skr_test_number(
        db, "SELECT CAST((SELECT SUM(seq_tup_read + idx_tup_fetch) "
            "FROM pg_stat_user_tables) + (SELECT SUM(idx_tup_read) "
            "FROM pg_stat_user_indexes) AS BIGINT)");
}
#endif

enum { FEW_ROWS = 2000 };

#ifdef SKR_WITH_SQLITE
// It has no numbers; what has just become due is sorted, and that is little.
static bool
sqlite_is_costly(const char *plan)
{
    return strstr(plan, "SCAN messenger_outbox") != NULL ||
           (strstr(plan, "TEMP B-TREE") != NULL &&
            strstr(plan, "available_at>") == NULL);
}
#endif

#ifdef SKR_WITH_MYSQL
// Columns: id, select_type, table, type, keys, key, length, ref, rows, Extra;
// MySQL has partitions before the type and filtered before Extra.
static bool
mysql_line_is_costly(char *line)
{
    const char *columns[12] = {NULL};
    size_t count = 0;
    while (count < SKR_COUNT_OF(columns) && line != NULL)
        columns[count++] = strsep(&line, "|");
    if (count < 10 || columns[2][0] == '<')
        return false;
    size_t more = count > 10;
    const char *type = columns[3 + more];
    bool is_scan = strcmp(type, "ALL") == 0 || strcmp(type, "index") == 0;
    bool is_sorted = strstr(columns[count - 1], "filesort") != NULL;
    return (is_scan || is_sorted) && atol(columns[8 + more]) > FEW_ROWS;
}

static bool
mysql_is_costly(const char *plan)
{
    char *copy = strdup(plan), *rest = copy, *line;
    bool is_costly = false;
    while ((line = strsep(&rest, "\n")) != NULL)
        is_costly = is_costly || mysql_line_is_costly(line);
    free(copy);
    return is_costly;
}
#endif

#ifdef SKR_WITH_PGSQL
// Sort  (cost=1.00..2.00 rows=3 width=4)
static bool
pgsql_is_costly(const char *plan)
{
    const char *sort = strstr(plan, "Sort  (cost");
    const char *rows = sort == NULL ? NULL : strstr(sort, "rows=");
    return strstr(plan, "Seq Scan on messenger_outbox") != NULL ||
           (rows != NULL && atol(rows + strlen("rows=")) > FEW_ROWS);
}
#endif

#ifdef SKR_WITH_MYSQL
#define MARIADB_KIND(server)                                                   \
    {                                                                          \
        .name = (server), .ops = &skr_mysql_db, .make = mariadb_make,          \
        .remove = mariadb_remove, .connect = mariadb_connect_client,           \
        .disconnect = mariadb_disconnect, .run = mariadb_run,                  \
        .begin = "START TRANSACTION", .move_east = "SET time_zone = '+05:00'", \
        .become_reader = mariadb_become_reader,                                \
        .break_lock = mariadb_break_lock, .hold_up = mariadb_hold_up,          \
        .summer_zone = mariadb_summer_zone, .make_full = mariadb_make_full,    \
        .refuse = mariadb_refuse, .allow = {"DROP TRIGGER refuse_", ""},       \
        .explain = "EXPLAIN FORMAT = TRADITIONAL ",                            \
        .analyze = "ANALYZE TABLE messenger_outbox",                           \
        .drop_index = "DROP INDEX {index} ON {table}",                         \
        .is_costly = mysql_is_costly, .reads = mariadb_reads,                  \
    }
#endif

static const struct kind kinds[] = {
#ifdef SKR_WITH_SQLITE
    {.name = "sqlite",
     .ops = &skr_sqlite_db,
     .make = sqlite_make,
     .connect = sqlite_connect,
     .disconnect = sqlite_disconnect,
     .run = sqlite_run,
     .begin = "BEGIN IMMEDIATE",
     .become_reader = sqlite_become_reader,
     .break_lock = sqlite_break_lock,
     .make_full = sqlite_make_full,
     .refuse = sqlite_refuse,
     .allow = {"DROP TRIGGER refuse_", ""},
     .explain = "EXPLAIN QUERY PLAN ",
     .analyze = "ANALYZE",
     .drop_index = "DROP INDEX {table:name}_{index}",
     .is_costly = sqlite_is_costly,
     .reads = sqlite_reads,
     .spoil = sqlite_spoil},
#endif
#ifdef SKR_WITH_MYSQL
    MARIADB_KIND("mariadb"),
    MARIADB_KIND("mysql"),
#endif
#ifdef SKR_WITH_PGSQL
    {.name = "pgsql",
     .ops = &skr_pgsql_db,
     .make = pgsql_make,
     .remove = pgsql_remove,
     .connect = pgsql_connect,
     .disconnect = pgsql_disconnect,
     .run = pgsql_run,
     .begin = "BEGIN",
     .move_east = "SET TIME ZONE INTERVAL '+05:00' HOUR TO MINUTE",
     .become_reader = pgsql_become_reader,
     .break_lock = pgsql_break_lock,
     .hold_up = pgsql_hold_up,
     .summer_zone = pgsql_summer_zone,
     .make_full = pgsql_make_full,
     .refuse = pgsql_refuse,
     .allow = {"DROP FUNCTION refuse_", "() CASCADE"},
     .explain = "EXPLAIN ",
     .analyze = "ANALYZE",
     .drop_index = "DROP INDEX {table:name}_{index}",
     .is_costly = pgsql_is_costly,
     .reads = pgsql_reads},
#endif
    {0},
};

static const struct kind *
chosen(void)
{
    const char *name = getenv("SKR_TEST_DATABASE");
    if (name == NULL)
        name = "sqlite";
    for (size_t i = 0; kinds[i].name != NULL; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    fprintf(stderr, "no driver for %s in this build\n", name);
    exit(77);
}

void
skr_test_database_make(struct skr_test_database *database)
{
    const struct kind *kind = chosen();
    *database = (struct skr_test_database){.ops = kind->ops};
    const char *parent = getenv("TMPDIR");
    snprintf(database->folder, sizeof(database->folder), "%s/skirnir-XXXXXX",
             parent == NULL || strlen(parent) > 40 ? "/tmp" : parent);
    assert_non_null(mkdtemp(database->folder));
    kind->make(database);
    if (database->modest_url[0] == '\0')
        snprintf(database->modest_url, sizeof(database->modest_url), "%s",
                 database->url);
}

static int
remove_entry(const char *path, const struct stat *status, int type,
             struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void
skr_test_database_remove(struct skr_test_database *database)
{
    if (chosen()->remove != NULL)
        chosen()->remove(database);
    chmod(database->folder, 0700);
    nftw(database->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

struct skr_db *
skr_test_connect(const struct skr_test_database *database)
{
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    if (skr_db_open_or_create(database->ops, database->url, true, &db,
                              &error) != SKR_OK)
        fail_msg("%s", error.text);
    return db;
}

struct skr_db *
skr_test_connect_impatient(const struct skr_test_database *database)
{
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    if (skr_db_open(database->ops, database->impatient_url, &db, &error) !=
        SKR_OK)
        fail_msg("%s", error.text);
    return db;
}

void
skr_test_run(struct skr_db *db, const char *sql)
{
    run(db, &(struct skr_statement){.sql = sql});
}

static enum skr_code
note_plan(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    struct skr_text *plan = user;
    (void)error;
    for (size_t i = 0; i < count; i++) {
        if (columns[i].kind == SKR_INTEGER)
            skr_text_add_format(plan, "%lld", (long long)columns[i].integer);
        else if (columns[i].bytes != NULL)
            skr_text_add(plan, columns[i].bytes, columns[i].size);
        skr_text_add_string(plan, i + 1 < count ? "|" : "\n");
    }
    return SKR_OK;
}

char *
skr_test_plan(struct skr_tx tx, const struct skr_statement *statement)
{
    struct skr_text sql = {0}, plan = {0};
    struct skr_error error = {0};
    skr_text_add_format(&sql, "%s%s", chosen()->explain, statement->sql);
    skr_text_add_string(&plan, "");
    const struct skr_statement explained = {
        .sql = sql.bytes,
        .values = statement->values,
        .value_count = statement->value_count,
        .each_row = note_plan,
        .user = &plan,
    };
    if (tx.ops->run(tx, &explained, &error) != SKR_OK)
        fail_msg("%s: %s", sql.bytes, error.text);
    skr_text_fini(&sql);
    return skr_text_take(&plan);
}

void
skr_test_count_anew(struct skr_db *db)
{
    skr_test_run(db, chosen()->analyze);
}

void
skr_test_drop_index(struct skr_db *db, const char *table, const char *index)
{
    const struct skr_word words[] = {{"table", table}, {"index", index}};
    struct skr_arena arena = {0};
    const char *sql = skr_sql_fill(skr_db_dialect(db), &arena,
                                   chosen()->drop_index, words, 2);
    assert_non_null(sql);
    skr_test_run(db, sql);
    skr_arena_fini(&arena);
}

static enum skr_code
add_status(const struct skr_value *columns, size_t count, void *user,
           struct skr_error *error)
{
    int64_t *sum = user;
    (void)count, (void)error;
    *sum += strtoll(columns[1].bytes, NULL, 10);
    return SKR_OK;
}

int64_t
skr_test_status(struct skr_db *db, const char *names)
{
    // The one form that both servers know.
    char sql[100];
    int64_t sum = 0;
    snprintf(sql, sizeof(sql), "SHOW SESSION STATUS LIKE '%s'", names);
    run(db, &(struct skr_statement){
                .sql = sql, .each_row = add_status, .user = &sum});
    return sum;
}

const char *
skr_test_mysql_certificates(void)
{
    return getenv(strcmp(chosen()->name, "mysql") == 0
                      ? "SKR_MYSQL_CERTIFICATES"
                      : "SKR_MARIADB_CERTIFICATES");
}

int64_t
skr_test_reads(struct skr_db *db)
{
    return chosen()->reads(db);
}

bool
skr_test_plan_is_costly(const char *plan)
{
    return chosen()->is_costly(plan);
}

void
skr_test_summer_zone(const struct skr_test_database *database,
                     char zone[SKR_TEST_ZONE_SIZE])
{
    zone[0] = '\0';
    if (chosen()->summer_zone != NULL)
        chosen()->summer_zone(database, zone);
}

bool
skr_test_writes_side_by_side(struct skr_db *db)
{
    // Only then the dialect asks for what is under way.
    return skr_sql_word(skr_db_dialect(db), "open_transactions")[0] != '\0';
}

void
skr_test_run_template(struct skr_db *db, const char *sql_template,
                      const struct skr_value *values, size_t count)
{
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, sql_template, NULL, 0);
    assert_non_null(sql);
    run(db, &(struct skr_statement){
                .sql = sql, .values = values, .value_count = count});
    skr_arena_fini(&arena);
}

static struct skr_value
fetch(struct skr_db *db, const char *sql, struct skr_arena *arena)
{
    struct skr_value value = {.kind = SKR_NULL};
    struct skr_error error = {0};
    struct skr_row row = {.arena = arena, .columns = &value, .count = 1};
    if (skr_sql_row(skr_db_tx(db), sql, SKR_NO_VALUES, &row, &error) != SKR_OK)
        fail_msg("%s: %s", sql, error.text);
    return value;
}

int64_t
skr_test_number(struct skr_db *db, const char *sql)
{
    struct skr_arena arena = {0};
    struct skr_value value = fetch(db, sql, &arena);
    if (value.kind == SKR_TEXT)
        value.integer = strtoll(value.bytes, NULL, 10);
    else if (value.kind != SKR_INTEGER)
        fail_msg("%s: no number", sql);
    skr_arena_fini(&arena);
    return value.integer;
}

char *
skr_test_text(struct skr_db *db, const char *sql)
{
    struct skr_arena arena = {0};
    struct skr_value value = fetch(db, sql, &arena);
    char number[32];
    char *text = NULL;
    if (value.kind == SKR_INTEGER) {
        snprintf(number, sizeof(number), "%lld", (long long)value.integer);
        text = strdup(number);
    } else if (value.bytes != NULL) {
        text = strdup(value.bytes);
    }
    skr_arena_fini(&arena);
    return text;
}

void
skr_test_assert_text(struct skr_db *db, const char *sql, const char *expected)
{
    char *text = skr_test_text(db, sql);
    if (expected == NULL)
        assert_null(text);
    else if (text == NULL)
        fail_msg("%s: nothing, not %s", sql, expected);
    else
        assert_string_equal(text, expected);
    free(text);
}

struct skr_test_client
skr_test_client_open(const struct skr_test_database *database)
{
    return chosen()->connect(database);
}

void
skr_test_client_close(struct skr_test_client *client)
{
    chosen()->disconnect(client->connection);
    client->connection = NULL;
}

void
skr_test_client_run(struct skr_test_client *client, const char *sql)
{
    chosen()->run(client->connection, sql);
}

void
skr_test_client_begin(struct skr_test_client *client)
{
    skr_test_client_run(client, chosen()->begin);
}

bool
skr_test_client_move_east(struct skr_test_client *client)
{
    if (chosen()->move_east == NULL)
        return false;
    skr_test_client_run(client, chosen()->move_east);
    return true;
}

void
skr_test_client_commit(struct skr_test_client *client)
{
    skr_test_client_run(client, "COMMIT");
}

void
skr_test_client_rollback(struct skr_test_client *client)
{
    skr_test_client_run(client, "ROLLBACK");
}

void
skr_test_become_reader(const struct skr_test_database *database)
{
    chosen()->become_reader(database);
}

void
skr_test_break_lock(const struct skr_test_database *database, const char *name)
{
    chosen()->break_lock(database, name);
}

void
skr_test_hold_up(struct skr_db *db, const char *table)
{
    assert_int_equal(skr_db_begin(db, SKR_BEGIN_WRITE, NULL), SKR_OK);
    if (chosen()->hold_up != NULL) {
        chosen()->hold_up(db, table);
        return;
    }
    char sql[128];
    snprintf(sql, sizeof(sql), "DELETE FROM %s", table);
    skr_test_run(db, sql);
}

void
skr_test_make_full(struct skr_db *db)
{
    chosen()->make_full(db);
}

void
skr_test_refuse(struct skr_db *db, const char *table, const char *change,
                const char *rows)
{
    chosen()->refuse(db, table, change, rows);
}

void
skr_test_allow(struct skr_db *db, const char *change)
{
    char sql[100];
    snprintf(sql, sizeof(sql), "%s%s%s", chosen()->allow[0], change,
             chosen()->allow[1]);
    skr_test_run(db, sql);
}

void
skr_test_spoil(struct skr_db *db)
{
    chosen()->spoil(db);
}

bool
skr_test_eventually(bool (*is_so)(void *user), void *user, uint32_t timeout_ms)
{
    int64_t end = skr_clock_ms() + timeout_ms;
    while (!is_so(user)) {
        if (skr_clock_ms() > end)
            return false;
        skr_clock_sleep(-1, 5);
    }
    return true;
}
