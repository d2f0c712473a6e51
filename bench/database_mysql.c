// SPDX-License-Identifier: MIT
#include "base/url.h"
#include "bench.h"
#include "database.h"

#include <skirnir/mysql.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 8, MAX_PARAMETERS = 4 };

struct connection {
    MYSQL *mysql;
    MYSQL_STMT *statements[SKR_BENCH_STATEMENTS];
};

static void *
open_mysql(const char *text)
{
    struct skr_url url;
    struct skr_error error = {0};
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL || skr_url_parse(text, &url, &error) != SKR_OK)
        skr_bench_die("database", error.text);
    connection->mysql = mysql_init(NULL);
    mysql_options(connection->mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (mysql_real_connect(connection->mysql, url.host, url.user, url.password,
                           url.path, url.port, NULL, 0) == NULL)
        skr_bench_die("database", mysql_error(connection->mysql));
    skr_url_fini(&url);
    return connection;
}

static void
close_mysql(void *user)
{
    struct connection *connection = user;
    for (int i = 0; i < SKR_BENCH_STATEMENTS; i++)
        if (connection->statements[i] != NULL)
            mysql_stmt_close(connection->statements[i]);
    mysql_close(connection->mysql);
    free(connection);
}

static bool
is_conflict(unsigned number)
{
    return number == 1213 || number == 1205;
}

static void
give_rows(MYSQL_RES *result, skr_bench_row_fn *each_row, void *user)
{
    struct skr_bench_bytes columns[MAX_COLUMNS + 1] = {{0}};
    unsigned count = mysql_num_fields(result);
    if (count > MAX_COLUMNS)
        skr_bench_die("result", "too many columns");
    for (MYSQL_ROW row; (row = mysql_fetch_row(result)) != NULL;) {
        const unsigned long *sizes = mysql_fetch_lengths(result);
        for (unsigned i = 0; i < count; i++)
            columns[i] = (struct skr_bench_bytes){row[i], sizes[i]};
        each_row(columns, user);
    }
}

static bool
run_mysql(void *user, const char *sql, skr_bench_row_fn *each_row,
          void *row_user)
{
    MYSQL *mysql = ((struct connection *)user)->mysql;
    MYSQL_RES *result = NULL;
    bool works = mysql_query(mysql, sql) == 0;
    bool has_rows = works && mysql_field_count(mysql) > 0;
    // A conflict may come among the rows.
    if (has_rows) {
        result = mysql_store_result(mysql);
        works = result != NULL;
    }
    if (!works && !is_conflict(mysql_errno(mysql)))
        skr_bench_die(sql, mysql_error(mysql));
    if (works && has_rows && each_row != NULL)
        give_rows(result, each_row, row_user);
    mysql_free_result(result);
    return works;
}

static void
prepare_mysql(void *user, int number, const char *sql, int parameter_count)
{
    struct connection *connection = user;
    MYSQL_STMT *statement = mysql_stmt_init(connection->mysql);
    connection->statements[number] = statement;
    if (statement == NULL ||
        mysql_stmt_prepare(statement, sql, strlen(sql)) != 0 ||
        mysql_stmt_param_count(statement) != (unsigned)parameter_count)
        skr_bench_die(sql, mysql_error(connection->mysql));
}

static void
execute_mysql(void *user, int number, const struct skr_bench_bytes *values,
              int count)
{
    MYSQL_STMT *statement = ((struct connection *)user)->statements[number];
    MYSQL_BIND binds[MAX_PARAMETERS];
    memset(binds, 0, sizeof(binds));
    for (int i = 0; i < count; i++) {
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        // The library only reads it, but does not say so.
        memcpy(&binds[i].buffer, &values[i].bytes, sizeof(void *));
        binds[i].buffer_length = values[i].size;
    }
    if (mysql_stmt_bind_param(statement, binds) != 0 ||
        mysql_stmt_execute(statement) != 0)
        skr_bench_die("execute", mysql_stmt_error(statement));
}

static struct skr_tx
tx_mysql(void *user)
{
    return skr_mysql_tx(((struct connection *)user)->mysql);
}

const struct skr_bench_database_ops skr_bench_mysql = {
    .read_committed = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    .lock_waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'",
    .counts_lock_waits = true,
    .remember = "INSERT INTO message_broker_deduplication "
                "(message_id, message_name, processed_at) "
                "VALUES (?, 'order.placed', UTC_TIMESTAMP())",
    .effect = "INSERT INTO effect (id, body) VALUES (?, ?)",
    .own_statements = "SHOW SESSION STATUS LIKE 'Questions'",
    .open = open_mysql,
    .close = close_mysql,
    .run = run_mysql,
    .prepare = prepare_mysql,
    .execute = execute_mysql,
    .tx = tx_mysql,
};
