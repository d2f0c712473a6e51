// SPDX-License-Identifier: MIT
// The MariaDB and MySQL driver: our own connections and their transactions.

#include "db/mysql/connection.h"

#include "base/error.h"
#include "base/url.h"
#include "db/mysql/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum skr_code
mysql_driver_check_url(const struct skr_url *url, struct skr_error *error)
{
    struct skr_mysql_options options;
    return skr_mysql_read_url(url, &options, error);
}

static enum skr_code
mysql_driver_open(struct skr_db *db, const struct skr_url *url,
                  struct skr_error *error)
{
    return skr_mysql_connect((struct skr_mysql *)db, url, error);
}

static void
mysql_driver_close(struct skr_db *db)
{
    skr_mysql_disconnect((struct skr_mysql *)db);
}

static enum skr_code
exec(struct skr_mysql *mysql, const char *sql, struct skr_error *error)
{
    enum skr_code code = skr_mysql_take_in(mysql, error);
    if (code != SKR_OK)
        return code;
    return skr_mysql_exec(mysql->connection, sql, NULL, error);
}

static bool
is_open(const struct skr_mysql *mysql)
{
    return (mysql->connection->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

// MySQL ends no transaction that rests, but sessions that do. Those of ours
// rest for long outside of transactions.
static bool
is_session_bounded(const struct skr_mysql *mysql)
{
    return mysql->is_bounded && !mariadb_connection(mysql->connection);
}

enum skr_code
skr_mysql_autocommit(struct skr_mysql *mysql, struct skr_error *error)
{
    bool frees_session = is_session_bounded(mysql);
    enum skr_code code = exec(
        mysql,
        frees_session ? "SET autocommit = 1, SESSION wait_timeout = DEFAULT"
                      : "SET autocommit = 1",
        error);
    mysql->has_savepoint = false;
    if (code == SKR_OK) {
        mysql->autocommit_is_off = false;
        mysql->is_bounded = mysql->is_bounded && !frees_session;
    }
    return code;
}

static void
mysql_driver_rollback(struct skr_db *db)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (!mysql->has_begun && !is_open(mysql))
        return;
    mysql->has_begun = false;
    mysql->is_rolled_back = false;
    mysql->has_savepoint = false;
    enum skr_code ignored = exec(mysql, "ROLLBACK", NULL);
    if (ignored == SKR_OK && is_session_bounded(mysql))
        ignored = skr_mysql_autocommit(mysql, NULL);
    (void)ignored;
}

// A round trip for the first of several transactions in a row, in which the
// server also hears for how long they may be silent.
static enum skr_code
leave_autocommit(struct skr_mysql *mysql, bool is_bounded,
                 struct skr_error *error)
{
    char sql[96] = "SET autocommit = 0", bound[16] = "DEFAULT";
    bool is_mariadb = mariadb_connection(mysql->connection);
    // The session of a lock is bounded whatever it does.
    bool changes =
        mysql->lock_name[0] == '\0' && (mysql->is_bounded != is_bounded);
    if (mysql->autocommit_is_off && !changes)
        return SKR_OK;
    unsigned bound_s = 2 * mysql->timeout_s;
    if (is_bounded && bound_s > SKR_SILENT_TRANSACTION_S)
        bound_s = SKR_SILENT_TRANSACTION_S;
    if (is_bounded || is_mariadb)
        snprintf(bound, sizeof(bound), "%u", bound_s);
    if (changes)
        snprintf(sql, sizeof(sql), "SET autocommit = 0, SESSION %s = %s",
                 is_mariadb ? "idle_transaction_timeout" : "wait_timeout",
                 bound);
    enum skr_code code = exec(mysql, sql, error);
    if (code == SKR_OK) {
        mysql->autocommit_is_off = true;
        mysql->is_bounded = changes ? is_bounded : mysql->is_bounded;
    }
    return code;
}

static enum skr_code
begin_write(struct skr_mysql *mysql, struct skr_error *error)
{
    enum skr_code code = leave_autocommit(mysql, true, error);
    mysql->has_savepoint = false;
    return code == SKR_OK ? exec(mysql, "START TRANSACTION", error) : code;
}

// With autocommit off a transaction begins by itself, right after the end of
// another. The savepoint stands at its beginning, and may have been made
// together with that end.
static enum skr_code
begin_guarded(struct skr_mysql *mysql, struct skr_error *error)
{
    enum skr_code code = leave_autocommit(mysql, false, error);
    if (code == SKR_OK && !mysql->has_savepoint)
        code = exec(mysql, "SAVEPOINT skr", error);
    mysql->has_savepoint = code == SKR_OK;
    return code;
}

// Two round trips: the session's own level has no snapshots.
static enum skr_code
begin_snapshot(struct skr_mysql *mysql, struct skr_error *error)
{
    mysql->has_savepoint = false;
    enum skr_code code =
        exec(mysql, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", error);
    if (code != SKR_OK)
        return code;
    return exec(mysql, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
                error);
}

static enum skr_code
mysql_driver_begin(struct skr_db *db, enum skr_begin mode,
                   struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    // The server would commit the one that is open.
    if (mysql->has_begun)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a transaction is open already");
    enum skr_code code = SKR_OK;
    switch (mode) {
    case SKR_BEGIN_WRITE:
    case SKR_BEGIN_CLAIM: code = begin_write(mysql, error); break;
    case SKR_BEGIN_GUARDED: code = begin_guarded(mysql, error); break;
    case SKR_BEGIN_SNAPSHOT: code = begin_snapshot(mysql, error); break;
    }
    mysql->has_begun = code == SKR_OK;
    mysql->is_guarded = mode == SKR_BEGIN_GUARDED;
    mysql->is_rolled_back = false;
    mysql->was_open = false;
    return code;
}

// In one round trip where the server has blocks, which MySQL has not: what
// follows a statement of a block that fails does not run. The savepoint of the
// next transaction goes along. Prepared, since reading such a text costs the
// server as much as running it.
static enum skr_code
release_and_commit(struct skr_mysql *mysql, struct skr_error *error)
{
    mysql->has_savepoint = false;
    if (!mariadb_connection(mysql->connection)) {
        enum skr_code code = exec(mysql, "RELEASE SAVEPOINT skr", error);
        return code == SKR_OK ? exec(mysql, "COMMIT", error) : code;
    }
    enum skr_code code = skr_mysql_take_in(mysql, error);
    if (code == SKR_OK)
        code = skr_mysql_exec_prepared(mysql,
                                       "BEGIN NOT ATOMIC RELEASE SAVEPOINT "
                                       "skr; COMMIT; SAVEPOINT skr; END",
                                       error);
    mysql->has_savepoint = code == SKR_OK;
    return code;
}

// The savepoint is gone with the transaction that it was made in. The server's
// number for that is also the one for a procedure that is not there.
static enum skr_code
commit_guarded(struct skr_mysql *mysql, struct skr_error *error)
{
    struct skr_error problem = {0};
    enum skr_code code = release_and_commit(mysql, &problem);
    if (code != SKR_OK && strcmp(problem.native, "1305") == 0)
        code = skr_fail(&problem, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "nothing to commit: one of its own statements has "
                        "ended the transaction");
    if (code != SKR_OK && error != NULL)
        *error = problem;
    return code;
}

static enum skr_code
mysql_driver_commit(struct skr_db *db, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    enum skr_code code;
    if (mysql->is_rolled_back)
        code = skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "nothing to commit: the server has rolled the "
                        "transaction back");
    else if (mysql->has_begun && mysql->is_guarded)
        code = commit_guarded(mysql, error);
    else if (!is_open(mysql))
        code = skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "nothing to commit: the transaction was ended by one "
                        "of its own statements");
    else if (is_session_bounded(mysql))
        code = skr_mysql_autocommit(mysql, error);
    else
        code = exec(mysql, "COMMIT", error);
    if (code != SKR_OK)
        mysql_driver_rollback(db);
    mysql->has_begun = false;
    return code;
}

static const char *const file_parameters[] = {"ssl_ca", "ssl_cert", "ssl_key",
                                              NULL};
static const struct skr_url_files files = {.parameters = file_parameters};

const struct skr_db_ops skr_mysql_db = {
    .scheme = "mysql",
    .size = sizeof(struct skr_mysql),
    .tx = &skr_mysql_own_tx,
    .check_url = mysql_driver_check_url,
    .exposure = skr_mysql_exposure,
    .files = &files,
    .open = mysql_driver_open,
    .close = mysql_driver_close,
    .begin = mysql_driver_begin,
    .commit = mysql_driver_commit,
    .rollback = mysql_driver_rollback,
    .lock = skr_mysql_lock,
    .check_lock = skr_mysql_check_lock,
    .unlock = skr_mysql_unlock,
    .holder = skr_mysql_holder,
    .attend = skr_mysql_attend,
    .attendance = skr_mysql_attendance,
    .wait = skr_mysql_wait,
};
