// SPDX-License-Identifier: MIT
#include "base/url.h"
#include "bench.h"
#include "database.h"

#include <skirnir/pgsql.h>
#include <stdio.h>
#include <string.h>

enum { MAX_COLUMNS = 8, MAX_PARAMETERS = 4 };

static void *
open_pgsql(const char *text)
{
    struct skr_url url;
    struct skr_error error = {0};
    char port[8];
    if (skr_url_parse(text, &url, &error) != SKR_OK)
        skr_bench_die("database", error.text);
    snprintf(port, sizeof(port), "%u", url.port);
    const char *const names[] = {"host",     "port",   "user",
                                 "password", "dbname", NULL};
    const char *const values[] = {url.host,     port,     url.user,
                                  url.password, url.path, NULL};
    PGconn *connection = PQconnectdbParams(names, values, 0);
    if (PQstatus(connection) != CONNECTION_OK)
        skr_bench_die("database", PQerrorMessage(connection));
    skr_url_fini(&url);
    return connection;
}

static void
close_pgsql(void *connection)
{
    PQfinish(connection);
}

static bool
is_conflict(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state != NULL &&
           (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0);
}

static void
give_rows(const PGresult *result, skr_bench_row_fn *each_row, void *user)
{
    struct skr_bench_bytes columns[MAX_COLUMNS + 1] = {{0}};
    int count = PQnfields(result);
    if (count > MAX_COLUMNS)
        skr_bench_die("result", "too many columns");
    for (int row = 0; row < PQntuples(result); row++) {
        for (int i = 0; i < count; i++)
            columns[i] = (struct skr_bench_bytes){
                PQgetisnull(result, row, i) ? NULL : PQgetvalue(result, row, i),
                (size_t)PQgetlength(result, row, i)};
        each_row(columns, user);
    }
}

static bool
run_pgsql(void *connection, const char *sql, skr_bench_row_fn *each_row,
          void *user)
{
    PGresult *result = PQexec(connection, sql);
    ExecStatusType status = PQresultStatus(result);
    bool works = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!works && !is_conflict(result))
        skr_bench_die(sql, PQerrorMessage(connection));
    if (works && each_row != NULL)
        give_rows(result, each_row, user);
    PQclear(result);
    return works;
}

static void
name_statement(int number, char name[16])
{
    snprintf(name, 16, "bench_%d", number);
}

static void
prepare_pgsql(void *connection, int number, const char *sql,
              int parameter_count)
{
    char name[16];
    name_statement(number, name);
    PGresult *result = PQprepare(connection, name, sql, parameter_count, NULL);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        skr_bench_die(sql, PQerrorMessage(connection));
    PQclear(result);
}

static void
execute_pgsql(void *connection, int number,
              const struct skr_bench_bytes *values, int count)
{
    char name[16];
    const char *bytes[MAX_PARAMETERS];
    int sizes[MAX_PARAMETERS], formats[MAX_PARAMETERS];
    name_statement(number, name);
    for (int i = 0; i < count; i++) {
        bytes[i] = values[i].bytes;
        sizes[i] = (int)values[i].size;
        formats[i] = 1;
    }
    PGresult *result =
        PQexecPrepared(connection, name, count, bytes, sizes, formats, 0);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        skr_bench_die("execute", PQerrorMessage(connection));
    PQclear(result);
}

static struct skr_tx
tx_pgsql(void *connection)
{
    return skr_pgsql_tx(connection);
}

const struct skr_bench_database_ops skr_bench_pgsql = {
    .lock_waits = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted",
    .remember = "INSERT INTO message_broker_deduplication "
                "(message_id, message_name, processed_at) "
                "VALUES ($1, 'order.placed', NOW() AT TIME ZONE 'UTC') "
                "ON CONFLICT (message_id) DO NOTHING",
    .effect = "INSERT INTO effect (id, body) VALUES ($1, $2)",
    .open = open_pgsql,
    .close = close_pgsql,
    .run = run_pgsql,
    .prepare = prepare_pgsql,
    .execute = execute_pgsql,
    .tx = tx_pgsql,
};
