// SPDX-License-Identifier: MIT
// Running one statement. How it travels depends on whose connection it is and
// on what is wanted:
//
//   nothing bound, no rows wanted      as text: one round trip
//   ours                               prepared once, then one round trip
//   the application's                  prepared and executed at once: one round
//                                      trip on MariaDB, two on MySQL, and
//                                      nothing stays behind on the server

#include "db/mysql/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// Discards all results of a text; a procedure may give several.
static enum skr_code
discard_results(MYSQL *connection, struct skr_error *error)
{
    int more;
    do {
        // Rows are read from the wire and dropped one by one.
        mysql_free_result(mysql_use_result(connection));
        more = mysql_next_result(connection);
    } while (more == 0);
    return more > 0 ? skr_mysql_fail(connection, error) : SKR_OK;
}

static enum skr_code
take_text_results(MYSQL *connection, uint64_t *affected,
                  struct skr_error *error)
{
    bool has_rows = mysql_field_count(connection) > 0;
    if (affected != NULL)
        *affected = has_rows ? 0 : mysql_affected_rows(connection);
    return discard_results(connection, error);
}

enum skr_code
skr_mysql_exec(MYSQL *connection, const char *sql, uint64_t *affected,
               struct skr_error *error)
{
    errno = 0;
    if (mysql_real_query(connection, sql, strlen(sql)) != 0)
        return skr_mysql_fail(connection, error);
    return take_text_results(connection, affected, error);
}

// False: the time is over.
static bool
wait_for_answer(MYSQL *connection, int64_t timeout_ms)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    for (;;) {
        int64_t left_ms = end_ms - skr_clock_ms();
        struct pollfd socket = {.fd = (int)mysql_get_socket(connection),
                                .events = POLLIN};
        int ready = poll(&socket, 1, left_ms > 0 ? (int)left_ms : 0);
        if (ready == 0)
            return false;
        if (ready > 0 || errno != EINTR)
            return true;
    }
}

// The client library's own limit cannot be changed once it is connected: the
// answer is waited for before the library does.
static enum skr_code
exec_long(struct skr_mysql *mysql, const struct skr_statement *statement,
          struct skr_error *error)
{
    MYSQL *connection = mysql->connection;
    unsigned timeout_s = mysql->timeout_s > SKR_LONG_TIMEOUT_S
                             ? mysql->timeout_s
                             : SKR_LONG_TIMEOUT_S;
    errno = 0;
    if (mysql_send_query(connection, statement->sql, strlen(statement->sql)))
        return skr_mysql_fail(connection, error);
    if (!wait_for_answer(connection, INT64_C(1000) * timeout_s)) {
        enum skr_code code =
            skr_mysql_fail_silent(connection, timeout_s, error);
        // So that the library knows that it is over.
        shutdown((int)mysql_get_socket(connection), SHUT_RDWR);
        mysql_read_query_result(connection);
        return code;
    }
    if (mysql_read_query_result(connection))
        return skr_mysql_fail(connection, error);
    return take_text_results(connection, statement->affected, error);
}

static void
bind_value(const struct skr_value *value, MYSQL_BIND *bind)
{
    *bind = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_NULL};
    // The client library declares what it only reads as writable.
    union {
        const void *read;
        void *write;
    } bytes = {.read = value->bytes};
    switch (value->kind) {
    case SKR_NULL: return;
    case SKR_INTEGER:
        bytes.read = &value->integer;
        bind->buffer_type = MYSQL_TYPE_LONGLONG;
        bind->buffer = bytes.write;
        return;
    case SKR_TEXT:
    case SKR_BLOB:
        bind->buffer_type =
            value->kind == SKR_TEXT ? MYSQL_TYPE_STRING : MYSQL_TYPE_LONG_BLOB;
        if (value->bytes == NULL)
            bytes.read = "";
        bind->buffer = bytes.write;
        bind->buffer_length = value->size;
        bind->length_value = value->size;
        return;
    }
}

// NULL: memory is out.
static MYSQL_BIND *
make_binds(const struct skr_statement *statement)
{
    MYSQL_BIND *binds = calloc(statement->value_count + 1, sizeof(*binds));
    if (binds == NULL)
        return NULL;
    for (size_t i = 0; i < statement->value_count; i++) {
        bind_value(&statement->values[i], &binds[i]);
        binds[i].length = &binds[i].length_value;
    }
    return binds;
}

// A server that is given more than it takes closes the connection, and the
// reason is lost on the way.
static enum skr_code
check_size(const struct skr_mysql *mysql, const struct skr_statement *statement,
           struct skr_error *error)
{
    enum { ROOM_PER_VALUE = 32, ROOM_BESIDE = 1024 };
    uint64_t size = ROOM_BESIDE + statement->value_count * ROOM_PER_VALUE;
    for (size_t i = 0; i < statement->value_count; i++)
        size += statement->values[i].size;
    if (size <= mysql->max_packet)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%llu bytes are more than the server takes at once; raise "
                    "its max_allowed_packet, which is %llu",
                    (unsigned long long)size,
                    (unsigned long long)mysql->max_packet);
}

static enum skr_code
bind_values(MYSQL *connection, MYSQL_STMT *handle,
            const struct skr_statement *statement, MYSQL_BIND *binds,
            struct skr_error *error)
{
    unsigned long wanted = mysql_stmt_param_count(handle);
    if (wanted != statement->value_count)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%zu values for %lu parameters: %.200s",
                        statement->value_count, wanted, statement->sql);
    if (wanted > 0 && mysql_stmt_bind_param(handle, binds))
        return skr_mysql_fail_statement(connection, handle, error);
    return SKR_OK;
}

// Whatever is left of the results, so that the connection is free again.
static enum skr_code
finish(MYSQL *connection, MYSQL_STMT *handle, struct skr_error *error)
{
    int more;
    do {
        mysql_stmt_free_result(handle);
        more = mysql_stmt_next_result(handle);
    } while (more == 0);
    return more > 0 ? skr_mysql_fail_statement(connection, handle, error)
                    : SKR_OK;
}

static enum skr_code
take_results(MYSQL *connection, struct skr_mysql *own, MYSQL_STMT *handle,
             const struct skr_statement *statement, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    bool has_rows = mysql_stmt_field_count(handle) > 0;
    if (statement->affected != NULL)
        *statement->affected = has_rows ? 0 : mysql_stmt_affected_rows(handle);
    if (has_rows && statement->each_row != NULL)
        code = skr_mysql_give_rows(connection, own, handle, statement, error);
    enum skr_code finished =
        finish(connection, handle, code == SKR_OK ? error : NULL);
    return code == SKR_OK ? finished : code;
}

static enum skr_code
run_prepared(struct skr_mysql *mysql, const struct skr_statement *statement,
             MYSQL_BIND *binds, struct skr_error *error)
{
    struct skr_mysql_prepared one_off, *prepared = NULL;
    MYSQL *connection = mysql->connection;
    enum skr_code code =
        skr_mysql_prepare(mysql, statement->sql, &one_off, &prepared, error);
    if (code != SKR_OK)
        return code;
    MYSQL_STMT *handle = prepared->handle;
    code = bind_values(connection, handle, statement, binds, error);
    if (code == SKR_OK && mysql_stmt_execute(handle) != 0)
        code = skr_mysql_fail_statement(connection, handle, error);
    else if (code == SKR_OK)
        code = take_results(connection, mysql, handle, statement, error);
    skr_mysql_release(prepared, &one_off);
    return code;
}

enum skr_code
skr_mysql_exec_prepared(struct skr_mysql *mysql, const char *sql,
                        struct skr_error *error)
{
    MYSQL_BIND none;
    errno = 0;
    return run_prepared(mysql, &(struct skr_statement){.sql = sql}, &none,
                        error);
}

static enum skr_code
run_at_once(MYSQL *connection, const struct skr_statement *statement,
            MYSQL_BIND *binds, struct skr_error *error)
{
    MYSQL_STMT *handle = mysql_stmt_init(connection);
    if (handle == NULL)
        return skr_fail_memory(error);
    enum skr_code code = SKR_OK;
    unsigned count = (unsigned)statement->value_count;
    if (mysql_stmt_attr_set(handle, STMT_ATTR_PREBIND_PARAMS, &count) ||
        (count > 0 && mysql_stmt_bind_param(handle, binds)) ||
        mariadb_stmt_execute_direct(handle, statement->sql,
                                    strlen(statement->sql)) != 0)
        code = skr_mysql_fail_statement(connection, handle, error);
    else
        code = take_results(connection, NULL, handle, statement, error);
    mysql_stmt_close(handle);
    return code;
}

enum skr_code
skr_mysql_run(MYSQL *connection, struct skr_mysql *own,
              const struct skr_statement *statement, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (own != NULL)
        code = skr_mysql_take_in(own, error);
    if (code == SKR_OK && own != NULL)
        code = check_size(own, statement, error);
    if (code != SKR_OK)
        return code;
    if (own != NULL && statement->takes_long)
        return exec_long(own, statement, error);
    if (statement->value_count == 0 && statement->each_row == NULL &&
        strchr(statement->sql, '?') == NULL)
        return skr_mysql_exec(connection, statement->sql, statement->affected,
                              error);
    MYSQL_BIND *binds = make_binds(statement);
    if (binds == NULL)
        return skr_fail_memory(error);
    errno = 0;
    code = own == NULL ? run_at_once(connection, statement, binds, error)
                       : run_prepared(own, statement, binds, error);
    free(binds);
    return code;
}
