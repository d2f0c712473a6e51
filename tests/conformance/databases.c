// SPDX-License-Identifier: MIT
#include "databases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "db/sql.h"

#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif

// What a suite needs of one kind of database.
struct kind {
    const char *name;
    const struct skr_db_ops *ops;
    void (*make)(struct skr_test_database *database);
    struct skr_test_client (*connect)(const struct skr_test_database *database);
    void (*disconnect)(void *connection);
    void (*run)(void *connection, const char *sql);
    const char *begin;
    void (*become_reader)(const struct skr_test_database *database);
    void (*break_lock)(const struct skr_test_database *database);
    void (*make_full)(struct skr_db *db);
    void (*spoil)(struct skr_db *db);
};

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
sqlite_break_lock(const struct skr_test_database *database)
{
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
sqlite_spoil(struct skr_db *db)
{
    skr_test_run(db, "PRAGMA journal_mode = DELETE");
}
#endif

static const struct kind kinds[] = {
#ifdef SKR_WITH_SQLITE
    {"sqlite", &skr_sqlite_db, sqlite_make, sqlite_connect, sqlite_disconnect,
     sqlite_run, "BEGIN IMMEDIATE", sqlite_become_reader, sqlite_break_lock,
     sqlite_make_full, sqlite_spoil},
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
    chmod(database->folder, 0700);
    nftw(database->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

struct skr_db *
skr_test_connect(const struct skr_test_database *database)
{
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    if (skr_db_open(database->ops, database->url, &db, &error) != SKR_OK)
        fail_msg("%s", error.text);
    return db;
}

static void
run(struct skr_db *db, const struct skr_statement *statement)
{
    struct skr_error error = {0};
    if (skr_tx_run(skr_db_tx(db), statement, &error) != SKR_OK)
        fail_msg("%s: %s", statement->sql, error.text);
}

void
skr_test_run(struct skr_db *db, const char *sql)
{
    run(db, &(struct skr_statement){.sql = sql});
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
    bool found = false;
    if (skr_tx_fetch_one(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                         arena, &value, 1, &found, &error) != SKR_OK)
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
skr_test_break_lock(const struct skr_test_database *database)
{
    chosen()->break_lock(database);
}

void
skr_test_make_full(struct skr_db *db)
{
    chosen()->make_full(db);
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
