// SPDX-License-Identifier: MIT
// MariaDB and PostgreSQL, as little of them as the programs of the benchmark
// need. What goes wrong ends the program, but for a conflict where the caller
// can say so.

#ifndef SKR_BENCH_DATABASE_H
#define SKR_BENCH_DATABASE_H

#include <skirnir/skirnir.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct skr_bench_bytes {
    const void *bytes;
    size_t size;
};

// Columns are texts, and borrowed until the call returns.
typedef void
skr_bench_row_fn(const struct skr_bench_bytes *columns, void *user);

struct skr_bench_database {
    const struct skr_bench_database_ops *ops;
    void *connection;
};

enum { SKR_BENCH_STATEMENTS = 2 };

struct skr_bench_database_ops {
    const char *read_committed;  // NULL: it is so by default
    const char *lock_waits;      // a number: so many were there, or are now
    bool counts_lock_waits;      // the number grows, it is not that of now
    const char *remember;        // id: the insert that finds duplicates
    const char *effect;          // id, body: the application's own insert
    // The statements of this session so far; NULL: they are not counted.
    const char *own_statements;

    void *(*open)(const char *url);
    void (*close)(void *connection);
    // False: the server chose this transaction to give way to another.
    bool (*run)(void *connection, const char *sql, skr_bench_row_fn *each_row,
                void *user);
    void (*prepare)(void *connection, int number, const char *sql,
                    int parameter_count);
    void (*execute)(void *connection, int number,
                    const struct skr_bench_bytes *values, int count);
    struct skr_tx (*tx)(void *connection);
};

extern const struct skr_bench_database_ops skr_bench_mysql;
extern const struct skr_bench_database_ops skr_bench_pgsql;

// mysql://USER@HOST:PORT/DATABASE or pgsql://...
void
skr_bench_database_open(struct skr_bench_database *database, const char *url);
void skr_bench_database_close(struct skr_bench_database *database);
void
skr_bench_database_run(struct skr_bench_database *database, const char *sql);
// False: a conflict with another transaction; this one is over.
SKR_MUST_CHECK bool
skr_bench_database_try(struct skr_bench_database *database, const char *sql,
                       skr_bench_row_fn *each_row, void *user);
// The last column of the first row; 0 when that is NULL.
int64_t
skr_bench_database_number(struct skr_bench_database *database, const char *sql);

// Publishes so many messages into the outbox, in large transactions.
void skr_bench_database_fill(const char *url, const struct skr_outbox *outbox,
                             long rows, int64_t due_at_us);

#endif
