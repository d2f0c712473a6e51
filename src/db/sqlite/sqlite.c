// SPDX-License-Identifier: MIT
// The SQLite driver: from a URL to an open file, its transactions, waiting for
// work, and what would make the file serve better.

#include "db/sqlite/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_BUSY_TIMEOUT_MS = 5000, MAX_BUSY_TIMEOUT_MS = 3600000 };

static enum skr_code
check_url(const struct skr_url *url, struct skr_error *error)
{
    static const char *const parameters[] = {"busy_timeout"};
    if (url->host != NULL || url->user != NULL || url->port != 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "sqlite://%s: a file needs three slashes, "
                        "sqlite:///shop.db, or four where the path is "
                        "absolute, and neither host nor user",
                        url->host == NULL ? "" : url->host);
    if (url->path == NULL || url->path[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no file; write sqlite:///shop.db");
    if (strcmp(url->path, ":memory:") == 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "sqlite:///:memory: is refused: every connection would "
                        "have a database of its own, which no other sees");
    enum skr_code code = skr_url_check_parameters(
        url, parameters, SKR_COUNT_OF(parameters), error);
    if (code != SKR_OK)
        return code;
    int64_t unused = 0;
    return skr_url_number(url, "busy_timeout", 0, MAX_BUSY_TIMEOUT_MS, &unused,
                          error);
}

// As sqlite3_busy_timeout() does, with shorter pauses: transactions last a few
// milliseconds here, and a pause of 100 ms would be most of a message's way.
static int
wait_for_writer(void *user, int tries)
{
    struct skr_sqlite *sqlite = user;
    int64_t now_ms = skr_clock_ms();
    if (tries == 0)
        sqlite->busy_since_ms = now_ms;
    if (now_ms - sqlite->busy_since_ms >= sqlite->busy_timeout_ms)
        return 0;
    skr_clock_sleep(-1, tries < 4 ? 1 : 5);
    return 1;
}

// Servers have functions of this kind; here it is ours, on our connections.
static void
hash_value(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    struct skr_hash hash =
        skr_hash_add_text(skr_hash_start(), text == NULL ? "" : text);
    sqlite3_result_int64(context, (int64_t)((hash.low ^ hash.high) >> 1));
}

// For the driver's own statements: what is counted or made to fail around the
// connection are the statements of its caller.
static struct skr_tx
own_tx(struct skr_sqlite *sqlite)
{
    return (struct skr_tx){.ops = &skr_sqlite_own_tx, .connection = sqlite};
}

static enum skr_code
run(struct skr_sqlite *sqlite, const char *sql, struct skr_error *error)
{
    return skr_sql_run(own_tx(sqlite), sql, SKR_NO_VALUES, NULL, error);
}

static bool
is_missing(const char *path)
{
    struct stat status;
    return stat(path, &status) != 0 && errno == ENOENT;
}

enum { FOLDER_SIZE = 4096 };

// With the slash at its end. False: the path names none.
static bool
find_folder(const char *path, char folder[FOLDER_SIZE])
{
    snprintf(folder, FOLDER_SIZE, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[1] = '\0';
    return slash != NULL;
}

// was_missing: when it was looked for. It may be there by now.
static enum skr_code
fail_open(const char *path, int native, bool was_missing, sqlite3 *connection,
          struct skr_error *error)
{
    char folder[FOLDER_SIZE];
    bool has_folder = find_folder(path, folder);
    if (has_folder && access(folder, F_OK) != 0)
        return skr_fail(error, SKR_INVALID, SKR_RECONNECT,
                        "SQLite %s: there is no folder %s; make it first, or "
                        "correct the DSN: an absolute path has four slashes, "
                        "sqlite:////",
                        path, folder);
    struct stat status;
    if (was_missing)
        return skr_fail(error, SKR_MISSING, SKR_RECONNECT,
                        "SQLite %s: there is no such file; `skirnir setup` "
                        "makes it",
                        path);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return skr_fail(error, SKR_INVALID, SKR_RECONNECT,
                        "SQLite %s is a folder; a file is needed", path);
    if (access(path, R_OK) != 0 && errno == EACCES)
        return skr_fail(error, SKR_INVALID, SKR_RECONNECT,
                        "SQLite %s: this user may not read the file; make it "
                        "and its folder readable and writable for this user",
                        path);
    return skr_sqlite_fail_path(path, native,
                                connection == NULL ? sqlite3_errstr(native)
                                                   : sqlite3_errmsg(connection),
                                error);
}

static int
open_path(const char *path, int flags, sqlite3 **connection)
{
    return sqlite3_open_v2(path, connection,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | flags,
                           NULL);
}

enum { CREATE_TIMEOUT_MS = 5000 };

// The file appears with the first access, which may meet that of another
// process that does the same.
static int
create_file(const char *path, sqlite3 **connection)
{
    int native = open_path(path, SQLITE_OPEN_CREATE, connection);
    if (native == SQLITE_OK)
        native = sqlite3_busy_timeout(*connection, CREATE_TIMEOUT_MS);
    if (native == SQLITE_OK)
        native =
            sqlite3_exec(*connection, "PRAGMA user_version", NULL, NULL, NULL);
    return native;
}

// Another process made the file just after it was looked for. What SQLite
// cannot open for writing it tries for reading, by which time it may be there.
static bool
came_too_early(const char *path, int native, sqlite3 *connection)
{
    bool is_read_only =
        native == SQLITE_OK && sqlite3_db_readonly(connection, "main") == 1;
    return (native == SQLITE_CANTOPEN || is_read_only) &&
           access(path, R_OK | W_OK) == 0;
}

// A path that is mistyped must not become an empty database.
static enum skr_code
open_file(struct skr_sqlite *sqlite, const char *given, struct skr_error *error)
{
    struct stat status = {0};
    char *path = NULL;
    // With a slash in it a path is never one of SQLite's special names.
    if (asprintf(&path, "%s%s", given[0] == '/' ? "" : "./", given) < 0)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    int native = open_path(path, 0, &sqlite->connection);
    bool was_missing = native == SQLITE_CANTOPEN && is_missing(path);
    if (was_missing && sqlite->db.may_create) {
        sqlite3_close(sqlite->connection);
        native = create_file(path, &sqlite->connection);
        was_missing = native == SQLITE_CANTOPEN && is_missing(path);
    }
    if (!was_missing && came_too_early(path, native, sqlite->connection)) {
        sqlite3_close(sqlite->connection);
        native = open_path(path, 0, &sqlite->connection);
    }
    if (native != SQLITE_OK) {
        code = fail_open(path, native, was_missing, sqlite->connection, error);
        goto free_path;
    }
    // Resolved only now that the file exists for sure: relative and linked
    // paths must meet at one lock file.
    sqlite->path = realpath(path, NULL);
    if (sqlite->path == NULL || stat(path, &status) != 0)
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "SQLite %s: the path cannot be resolved", path);
    sqlite->db.file = (uint64_t)status.st_dev << 48 ^ (uint64_t)status.st_ino;
free_path:
    free(path);
    return code;
}

// Whether a table gives the id of its last row again once that is deleted. The
// text of its CREATE TABLE may speak of AUTOINCREMENT in a comment; SQLite
// knows. A view has no ids of its own.
static void
find_reused_ids(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    sqlite3 *connection = sqlite3_context_db_handle(context);
    const char *table = (const char *)sqlite3_value_text(values[0]);
    int is_autoincrement = 0;
    int found = table == NULL
                    ? SQLITE_NOMEM
                    : sqlite3_table_column_metadata(connection, NULL, table,
                                                    "id", NULL, NULL, NULL,
                                                    NULL, &is_autoincrement);
    sqlite3_result_int(context, found == SQLITE_OK && !is_autoincrement);
}

static enum skr_code
add_functions(struct skr_sqlite *sqlite, struct skr_error *error)
{
    if (sqlite3_create_function(sqlite->connection, "skirnir_hash", 1,
                                SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                hash_value, NULL, NULL) != SQLITE_OK ||
        sqlite3_create_function(sqlite->connection, "skirnir_reuses_ids", 1,
                                SQLITE_UTF8, NULL, find_reused_ids, NULL,
                                NULL) != SQLITE_OK)
        return skr_fail_memory(error);
    return SKR_OK;
}

static bool
has_file_beside(const char *path, const char *suffix)
{
    char beside[4096];
    snprintf(beside, sizeof(beside), "%s%s", path, suffix);
    return access(beside, F_OK) == 0;
}

// A journal is made in the folder, unless one stays there between transactions.
static bool
can_make_journal(const char *path)
{
    char folder[FOLDER_SIZE];
    bool has_folder = find_folder(path, folder);
    return !has_folder || access(folder, W_OK) == 0 ||
           has_file_beside(path, "-wal") || has_file_beside(path, "-journal");
}

// A server may become writable by a fail-over; a file does not.
static void
find_read_only(struct skr_sqlite *sqlite)
{
    if (sqlite3_db_readonly(sqlite->connection, "main") == 1 ||
        !can_make_journal(sqlite->path))
        skr_fail(&sqlite->db.read_only, SKR_INVALID, SKR_RECONNECT,
                 "SQLite %s: nothing can be written; make the file and its "
                 "folder writable for this user",
                 sqlite->path);
}

// The file is read for the first time: now it shows if it is a database.
static enum skr_code
prepare(struct skr_sqlite *sqlite, struct skr_error *error)
{
    // A commit stands for a confirm: it must survive a loss of power. The
    // journal's mode is the owner's choice and stays as it is.
    enum skr_code code = run(sqlite, "PRAGMA synchronous = FULL", error);
    if (code == SKR_OK)
        code = run(sqlite, "PRAGMA foreign_keys = ON", error);
    // In KiB. Rows come and go at the ends of a table: what is kept of its
    // middle is of no use, and a relay has three connections.
    if (code == SKR_OK)
        code = run(sqlite, "PRAGMA cache_size = -512", error);
    if (code == SKR_OK)
        code = run(sqlite, "SELECT 1 FROM sqlite_master LIMIT 1", error);
    // In WAL mode a reader, too, makes files in the folder.
    if (code != SKR_OK &&
        (sqlite3_errcode(sqlite->connection) & 0xff) == SQLITE_READONLY) {
        code = SKR_INVALID;
        if (error != NULL)
            error->code = code;
    }
    if (code == SKR_OK)
        find_read_only(sqlite);
    return code;
}

static enum skr_code
sqlite_open(struct skr_db *db, const struct skr_url *url,
            struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    sqlite->attend_fd = -1;
    sqlite->wait_backoff =
        (struct skr_backoff){.first_ms = 1, .longest_ms = 50};
    int64_t busy_timeout_ms = DEFAULT_BUSY_TIMEOUT_MS;
    enum skr_code code = check_url(url, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "busy_timeout", 0, MAX_BUSY_TIMEOUT_MS,
                              &busy_timeout_ms, error);
    if (code == SKR_OK)
        code = open_file(sqlite, url->path, error);
    if (code != SKR_OK)
        return code;
    sqlite->busy_timeout_ms = (uint32_t)busy_timeout_ms;
    sqlite3_extended_result_codes(sqlite->connection, 1);
    sqlite3_busy_handler(sqlite->connection, wait_for_writer, sqlite);
    code = add_functions(sqlite, error);
    return code == SKR_OK ? prepare(sqlite, error) : code;
}

static void
sqlite_close(struct skr_db *db)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    skr_sqlite_cache_clear(&sqlite->cache);
    sqlite3_close_v2(sqlite->connection);
    sqlite->connection = NULL;
    skr_db_unlock(db);
    skr_sqlite_leave(sqlite);
    free(sqlite->path);
}

enum skr_code
skr_sqlite_check_file(struct skr_sqlite *sqlite, struct skr_error *error)
{
    int has_moved = 0;
    if (sqlite3_file_control(sqlite->connection, "main", SQLITE_FCNTL_HAS_MOVED,
                             &has_moved) != SQLITE_OK ||
        !has_moved)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "SQLite %s: the file was deleted or replaced while open",
                    sqlite->path);
}

static void
sqlite_rollback(struct skr_db *db)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (sqlite3_get_autocommit(sqlite->connection))
        return;
    enum skr_code ignored = run(sqlite, "ROLLBACK", NULL);
    (void)ignored;
}

static enum skr_code
sqlite_begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    enum skr_code code = skr_sqlite_check_file(sqlite, error);
    if (code != SKR_OK)
        return code;
    sqlite->is_guarded = mode == SKR_BEGIN_GUARDED;
    // Taking the write lock at once: a transaction that reads first and writes
    // later fails when another has written in between.
    code =
        run(sqlite,
            mode == SKR_BEGIN_SNAPSHOT ? "BEGIN DEFERRED" : "BEGIN IMMEDIATE",
            error);
    if (code != SKR_OK || !sqlite->is_guarded)
        return code;
    code = run(sqlite, "SAVEPOINT skr", error);
    if (code != SKR_OK)
        sqlite_rollback(db);
    return code;
}

static enum skr_code
sqlite_commit(struct skr_db *db, struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    if (sqlite3_get_autocommit(sqlite->connection))
        return skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "SQLite %s: nothing to commit: the transaction was "
                        "ended by one of its own statements",
                        sqlite->path);
    enum skr_code code = SKR_OK;
    // The savepoint is gone with the transaction that it was made in.
    if (sqlite->is_guarded)
        code = run(sqlite, "RELEASE skr", error);
    if (code == SKR_OK)
        code = run(sqlite, "COMMIT", error);
    // A commit that found the file locked leaves the transaction open.
    if (code != SKR_OK)
        sqlite_rollback(db);
    return code;
}

// SQLite counts the commits of other connections, and asking for that number
// takes two microseconds and no lock that lasts. Where there was traffic there
// will soon be more: looking every millisecond
// for a while costs about a percent of a processor.
enum { LEAST_PAUSE_MS = 1, LINGER_MS = 200 };

static enum skr_code
look(struct skr_sqlite *sqlite, bool *changed, struct skr_error *error)
{
    int64_t version = 0;
    enum skr_code code = skr_sql_number(own_tx(sqlite), "PRAGMA data_version",
                                        SKR_NO_VALUES, &version, error);
    if (code != SKR_OK)
        return code;
    *changed = !sqlite->has_waited || version != sqlite->version;
    sqlite->has_waited = true;
    sqlite->version = version;
    return SKR_OK;
}

static enum skr_code
wait_for_commits(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
                 struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    int64_t end = skr_clock_ms() + timeout_ms;
    if (skr_clock_sleep(wake_fd, 0))
        return SKR_STOPPED;
    enum skr_code code = skr_sqlite_check_file(sqlite, error);
    if (code != SKR_OK)
        return code;
    for (;;) {
        bool changed = false;
        code = look(sqlite, &changed, error);
        if (code != SKR_OK)
            return code;
        if (changed) {
            skr_backoff_reset(&sqlite->wait_backoff);
            sqlite->linger_until_ms = skr_clock_ms() + LINGER_MS;
            return SKR_OK;
        }
        int64_t now_ms = skr_clock_ms();
        int64_t left = end - now_ms;
        if (left <= 0)
            return SKR_TIMEOUT;
        int64_t pause = now_ms < sqlite->linger_until_ms
                            ? LEAST_PAUSE_MS
                            : skr_backoff_next(&sqlite->wait_backoff);
        if (skr_clock_sleep(wake_fd, pause < left ? pause : left))
            return SKR_STOPPED;
    }
}

// The journal's mode is written into the file and concerns every process that
// opens it, so it is the owner's word.
static enum skr_code
ask_mode(struct skr_sqlite *sqlite, const char *sql, bool *is_wal,
         struct skr_error *error)
{
    char mode[16];
    enum skr_code code = skr_sql_text(own_tx(sqlite), sql, SKR_NO_VALUES, mode,
                                      sizeof(mode), error);
    *is_wal = strcmp(mode, "wal") == 0;
    return code;
}

static enum skr_code
advise(struct skr_db *db, bool change, char advice[SKR_ADVICE_SIZE],
       struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    bool is_wal = false, was_wal = false;
    enum skr_code code =
        ask_mode(sqlite, "PRAGMA journal_mode", &was_wal, error);
    if (code == SKR_OK && !was_wal && change)
        code = ask_mode(sqlite, "PRAGMA journal_mode = WAL", &is_wal, error);
    if (code != SKR_OK)
        return code;
    if (was_wal)
        advice[0] = '\0';
    else if (is_wal)
        snprintf(advice, SKR_ADVICE_SIZE,
                 "%.100s: the journal's mode is WAL from now on", sqlite->path);
    else
        snprintf(advice, SKR_ADVICE_SIZE,
                 "%.100s: readers and writers wait for each other; `skirnir "
                 "setup --tune` switches its journal to WAL",
                 sqlite->path);
    return SKR_OK;
}

const struct skr_db_ops skr_sqlite_db = {
    .scheme = "sqlite",
    .is_file = true,
    .size = sizeof(struct skr_sqlite),
    .tx = &skr_sqlite_own_tx,
    .check_url = check_url,
    .exposure = skr_exposure_none,
    .files = {.is_path = true},
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .locks = &skr_sqlite_locks,
    .follow = skr_db_follow_nothing,
    .plan_by_index = skr_db_plan_nothing,
    .wait = wait_for_commits,
    .advise = advise,
};
