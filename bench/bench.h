// SPDX-License-Identifier: MIT
// What the programs of the benchmark share. Each of them ends at the first
// thing that goes wrong: a run with an error in it measures nothing.

#ifndef SKR_BENCH_BENCH_H
#define SKR_BENCH_BENCH_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

_Noreturn void skr_bench_die(const char *what, const char *why);

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

enum { SKR_BENCH_TIME_SIZE = 20 };
// "2026-11-15 02:53:45", UTC.
void skr_bench_timestamp(char time[SKR_BENCH_TIME_SIZE]);
int64_t skr_bench_now_us(void);
long skr_bench_number(const char *text);

// When how many rows were done; the rate is that of the middle 80 %.
struct skr_bench_marks {
    struct {
        int64_t time_us;
        uint64_t rows;
    } * marks;
    uint64_t count, capacity;
};
void skr_bench_mark(struct skr_bench_marks *marks, uint64_t rows);
// Prints "ROWS rows, RATE rows/s" and frees the marks.
void skr_bench_report(struct skr_bench_marks *marks);

#endif
