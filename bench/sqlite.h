// SPDX-License-Identifier: MIT
// SQLite, as little of it as the programs of the benchmark need.

#ifndef SKR_BENCH_SQLITE_H
#define SKR_BENCH_SQLITE_H

#include <sqlite3.h>
#include <stdbool.h>

// In WAL mode with synchronous=FULL: every commit survives a loss of power.
sqlite3 *skr_bench_open(const char *path);
void skr_bench_close(sqlite3 *connection);
void skr_bench_run(sqlite3 *connection, const char *sql);
sqlite3_stmt *skr_bench_prepare(sqlite3 *connection, const char *sql);
// True: there is a row. False: there are no more, and it is reset.
bool skr_bench_step(sqlite3_stmt *statement);
void skr_bench_bind_text(sqlite3_stmt *statement, int at, const char *text);
// Passes a column on as it is; it is borrowed until `from` moves on.
void skr_bench_bind_column(sqlite3_stmt *statement, int at, sqlite3_stmt *from,
                           int column);

#endif
