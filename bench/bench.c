// SPDX-License-Identifier: MIT
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void
skr_bench_die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

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

void
skr_bench_timestamp(char text[SKR_BENCH_TIME_SIZE])
{
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, SKR_BENCH_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &parts);
}

int64_t
skr_bench_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

long
skr_bench_number(const char *text)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < 0)
        skr_bench_die(text, "a whole number is needed");
    return number;
}

void
skr_bench_mark(struct skr_bench_marks *marks, uint64_t rows)
{
    if (marks->count == marks->capacity) {
        marks->capacity = marks->capacity == 0 ? 1024 : marks->capacity * 2;
        void *grown =
            realloc(marks->marks, marks->capacity * sizeof(marks->marks[0]));
        if (grown == NULL)
            skr_bench_die("marks", "out of memory");
        marks->marks = grown;
    }
    marks->marks[marks->count].time_us = skr_bench_now_us();
    marks->marks[marks->count++].rows = rows;
}

void
skr_bench_report(struct skr_bench_marks *marks)
{
    uint64_t rows = marks->count == 0 ? 0 : marks->marks[marks->count - 1].rows;
    uint64_t first = 0, last = 0;
    for (uint64_t i = 0; i < marks->count; i++) {
        if (marks->marks[i].rows * 10 <= rows)
            first = i;
        if (marks->marks[i].rows * 10 <= rows * 9)
            last = i;
    }
    double rate = 0;
    if (last > first)
        rate =
            (double)(marks->marks[last].rows - marks->marks[first].rows) * 1e6 /
            (double)(marks->marks[last].time_us - marks->marks[first].time_us);
    printf("%llu rows, %.0f rows/s\n", (unsigned long long)rows, rate);
    free(marks->marks);
    *marks = (struct skr_bench_marks){0};
}
