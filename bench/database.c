// SPDX-License-Identifier: MIT
#include "database.h"

#include "bench.h"
#include "publish.h"

#include <stdlib.h>
#include <string.h>

void
skr_bench_database_open(struct skr_bench_database *database, const char *url)
{
    static const struct {
        const char *prefix;
        const struct skr_bench_database_ops *ops;
    } kinds[] = {
#ifdef SKR_WITH_MYSQL
        {"mysql://", &skr_bench_mysql},
#endif
#ifdef SKR_WITH_PGSQL
        {"pgsql://", &skr_bench_pgsql},
#endif
        {NULL, NULL},
    };
    for (size_t i = 0; kinds[i].prefix != NULL; i++)
        if (strncmp(url, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) {
            database->ops = kinds[i].ops;
            database->connection = kinds[i].ops->open(url);
            return;
        }
    skr_bench_die("database", "mysql:// or pgsql:// is needed");
}

void
skr_bench_database_close(struct skr_bench_database *database)
{
    database->ops->close(database->connection);
}

bool
skr_bench_database_try(struct skr_bench_database *database, const char *sql,
                       skr_bench_row_fn *each_row, void *user)
{
    return database->ops->run(database->connection, sql, each_row, user);
}

void
skr_bench_database_run(struct skr_bench_database *database, const char *sql)
{
    if (!skr_bench_database_try(database, sql, NULL, NULL))
        skr_bench_die(sql, "a conflict with another transaction");
}

struct number {
    bool is_known;
    int64_t value;
};

static void
keep_number(const struct skr_bench_bytes *columns, void *user)
{
    struct number *number = user;
    // SHOW STATUS puts the name first.
    const struct skr_bench_bytes *last = columns;
    while (last[1].bytes != NULL)
        last++;
    if (!number->is_known && last->bytes != NULL)
        number->value = atoll(last->bytes);
    number->is_known = true;
}

int64_t
skr_bench_database_number(struct skr_bench_database *database, const char *sql)
{
    struct number number = {0};
    if (!skr_bench_database_try(database, sql, keep_number, &number))
        skr_bench_die(sql, "a conflict with another transaction");
    return number.value;
}

void
skr_bench_database_fill(const char *url, const struct skr_outbox *outbox,
                        long rows, int64_t due_at_us)
{
    struct skr_bench_database database;
    skr_bench_database_open(&database, url);
    struct skr_tx tx = database.ops->tx(database.connection);
    for (long done = 0; done < rows; done += SKR_BENCH_MOST_MESSAGES) {
        long left = rows - done;
        skr_bench_database_run(&database, "BEGIN");
        if (!skr_bench_publish(outbox, tx, done,
                               left < SKR_BENCH_MOST_MESSAGES
                                   ? (size_t)left
                                   : SKR_BENCH_MOST_MESSAGES,
                               due_at_us))
            skr_bench_die("publish", "somebody else is at work");
        skr_bench_database_run(&database, "COMMIT");
    }
    skr_bench_database_close(&database);
}
