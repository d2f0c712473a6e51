// SPDX-License-Identifier: MIT
#include "sqlite.h"

#include "bench.h"

static void
check(sqlite3 *connection, int native, const char *what)
{
    if (native != SQLITE_OK)
        skr_bench_die(what, sqlite3_errmsg(connection));
}

sqlite3 *
skr_bench_open(const char *path)
{
    sqlite3 *connection = NULL;
    check(connection,
          sqlite3_open_v2(path, &connection,
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL),
          path);
    sqlite3_busy_timeout(connection, 5000);
    skr_bench_run(connection, "PRAGMA journal_mode = WAL");
    skr_bench_run(connection, "PRAGMA synchronous = FULL");
    return connection;
}

void
skr_bench_close(sqlite3 *connection)
{
    // Statements that are still prepared keep the connection open.
    for (sqlite3_stmt *statement;
         (statement = sqlite3_next_stmt(connection, NULL)) != NULL;)
        sqlite3_finalize(statement);
    check(connection, sqlite3_close(connection), "close");
}

void
skr_bench_run(sqlite3 *connection, const char *sql)
{
    check(connection, sqlite3_exec(connection, sql, NULL, NULL, NULL), sql);
}

sqlite3_stmt *
skr_bench_prepare(sqlite3 *connection, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    check(connection,
          sqlite3_prepare_v3(connection, sql, -1, SQLITE_PREPARE_PERSISTENT,
                             &statement, NULL),
          sql);
    return statement;
}

bool
skr_bench_step(sqlite3_stmt *statement)
{
    int native = sqlite3_step(statement);
    if (native == SQLITE_ROW)
        return true;
    if (native != SQLITE_DONE)
        skr_bench_die(sqlite3_sql(statement),
                      sqlite3_errmsg(sqlite3_db_handle(statement)));
    sqlite3_reset(statement);
    return false;
}

void
skr_bench_bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    check(sqlite3_db_handle(statement),
          sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC), "bind");
}

void
skr_bench_bind_column(sqlite3_stmt *statement, int at, sqlite3_stmt *from,
                      int column)
{
    const char *text = (const char *)sqlite3_column_text(from, column);
    check(sqlite3_db_handle(statement),
          sqlite3_bind_text(statement, at, text,
                            sqlite3_column_bytes(from, column), SQLITE_STATIC),
          "bind");
}
