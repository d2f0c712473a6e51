// SPDX-License-Identifier: MIT
// Opening a connection of ours and setting up its session.

#include "db/mysql/connection.h"

#include "base/error.h"
#include "base/url.h"
#include "db/mysql/url.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

// The oldest servers that know SKIP LOCKED.
enum { LEAST_MARIADB = 100600, LEAST_MYSQL = 80001 };

static pthread_once_t library_is_ready = PTHREAD_ONCE_INIT;

static void
prepare_library(void)
{
    // The first mysql_init() would do it too, but for one thread only.
    mysql_library_init(0, NULL, NULL);
}

static void
set_safety(MYSQL *connection, const struct skr_mysql_options *options)
{
    unsigned off = 0;
    my_bool never = 0;
    // A server could ask for any file that this process may read.
    mysql_optionsv(connection, MYSQL_OPT_LOCAL_INFILE, &off);
    // A session that came back by itself has lost its transaction and lock.
    mysql_optionsv(connection, MYSQL_OPT_RECONNECT, &never);
    // Who claims to be the server could ask for the password in the clear; the
    // library connects without TLS to one that has none, unless it verifies.
    bool is_proven = options->uses_tls && options->verifies_server;
    if (!is_proven && options->socket == NULL)
        mysql_optionsv(connection, MARIADB_OPT_RESTRICTED_AUTH,
                       "mysql_native_password,client_ed25519,"
                       "caching_sha2_password,sha256_password");
}

static void
set_tls(MYSQL *connection, const struct skr_mysql_options *options)
{
    my_bool on = 1;
    my_bool verifies = options->verifies_server;
    if (!options->uses_tls)
        return;
    mysql_ssl_set(connection, options->key, options->certificate,
                  options->authority, NULL, NULL);
    mysql_optionsv(connection, MYSQL_OPT_SSL_ENFORCE, &on);
    mysql_optionsv(connection, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verifies);
}

// A host that is gone says nothing: its end of the connection is asked. Slow
// statements are not affected.
static void
set_keepalive(MYSQL *connection)
{
    int on = 1, idle_s = 5, interval_s = 2, probes = 3, unheard_ms = 11000;
    int fd = (int)mysql_get_socket(connection);
    // On a socket of this machine these mean nothing and fail.
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard_ms,
               sizeof(unheard_ms));
}

// The library takes MYSQL_OPT_SSL_ENFORCE for a wish if it is not to verify.
// What goes by a socket leaves no machine.
static enum skr_code
check_tls(MYSQL *connection, const struct skr_mysql_options *options,
          struct skr_error *error)
{
    if (!options->uses_tls || options->socket != NULL ||
        mysql_get_ssl_cipher(connection) != NULL)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "%.60s:%u/%.60s: " SKR_MYSQL_OFFERS_NO_TLS, options->host,
                    options->port, options->database);
}

static enum skr_code
log_in(MYSQL *connection, const struct skr_mysql_options *options,
       struct skr_error *error)
{
    unsigned protocol =
        options->socket == NULL ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET;
    mysql_optionsv(connection, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_optionsv(connection, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_optionsv(connection, MYSQL_OPT_CONNECT_TIMEOUT,
                   &options->connect_timeout_s);
    // Between two signs of life of a server that has not ended the connection.
    mysql_optionsv(connection, MYSQL_OPT_READ_TIMEOUT, &options->timeout_s);
    mysql_optionsv(connection, MYSQL_OPT_WRITE_TIMEOUT, &options->timeout_s);
    mysql_optionsv(connection, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name",
                   "skirnir");
    set_safety(connection, options);
    set_tls(connection, options);
    // Rows that an UPDATE finds count, also where it changes nothing: a lease
    // renewed within the same second is still ours.
    if (mysql_real_connect(connection, options->host, options->user,
                           options->password == NULL ? "" : options->password,
                           options->database, options->port, options->socket,
                           CLIENT_FOUND_ROWS) == NULL) {
        enum skr_code code = skr_mysql_fail(connection, error);
        // A client that is not connected cannot tell where it wanted to be.
        skr_error_prefix(error, "%.60s:%u/%.60s",
                         options->socket == NULL ? options->host
                                                 : options->socket,
                         options->port, options->database);
        return code;
    }
    set_keepalive(connection);
    return check_tls(connection, options, error);
}

static enum skr_code
check_version(MYSQL *connection, struct skr_error *error)
{
    unsigned long version = mysql_get_server_version(connection);
    unsigned long least =
        mariadb_connection(connection) ? LEAST_MARIADB : LEAST_MYSQL;
    if (version >= least)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "the server's version %.60s is too old; MariaDB 10.6 or "
                    "MySQL 8.0 is needed",
                    mysql_get_server_info(connection));
}

static enum skr_code
set_session(MYSQL *connection, const struct skr_mysql_options *options,
            struct skr_error *error)
{
    char sql[512];
    // The mode is the server's own, and strict: what does not fit is an error
    // and not cut. lock_wait_timeout is for those who alter a table meanwhile.
    snprintf(sql, sizeof(sql),
             "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = "
             "CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'), "
             "autocommit = 1, completion_type = 'NO_CHAIN', "
             "innodb_lock_wait_timeout = %u, lock_wait_timeout = %u",
             options->lock_timeout_s, options->lock_timeout_s);
    enum skr_code code = skr_mysql_exec(connection, sql, NULL, error);
    if (code != SKR_OK)
        return code;
    return skr_mysql_exec(connection,
                          "SET SESSION TRANSACTION ISOLATION LEVEL "
                          "READ COMMITTED",
                          NULL, error);
}

enum skr_code
skr_mysql_connect(struct skr_mysql *mysql, const struct skr_url *url,
                  struct skr_error *error)
{
    struct skr_mysql_options options;
    enum skr_code code = skr_mysql_read_url(url, &options, error);
    if (code != SKR_OK)
        return code;
    mysql->timeout_s = options.timeout_s;
    pthread_once(&library_is_ready, prepare_library);
    mysql->connection = mysql_init(NULL);
    if (mysql->connection == NULL)
        return skr_fail_memory(error);
    code = log_in(mysql->connection, &options, error);
    if (code == SKR_OK)
        code = check_version(mysql->connection, error);
    if (code == SKR_OK)
        code = set_session(mysql->connection, &options, error);
    if (code != SKR_OK)
        return code;
    mysql->max_packet = UINT64_MAX;
    if (mariadb_connection(mysql->connection))
        code = skr_mysql_bound_silence(mysql, error);
    if (code != SKR_OK)
        return code;
    int64_t max_packet = 0;
    code = skr_mysql_run(
        mysql->connection, mysql,
        &(struct skr_statement){.sql = "SELECT @@max_allowed_packet",
                                .each_row = skr_db_keep_number,
                                .user = &max_packet},
        error);
    if (code == SKR_OK)
        mysql->max_packet = (uint64_t)max_packet;
    return code;
}
