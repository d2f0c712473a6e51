// SPDX-License-Identifier: MIT
// The MariaDB and MySQL driver: from a URL to a session that is set up, its
// transactions, and waiting for work.

#include "db/mysql/connection.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// What a mysql:// or mariadb:// URL asks for. Texts are the URL's own.
struct options {
    const char *hosts;   // one or several; NULL: by the socket
    const char *socket;  // NULL: by a host
    unsigned port;       // of a host that names none
    const char *user;
    const char *password;
    const char *database;
    unsigned connect_timeout_s;
    unsigned timeout_s;  // for which the server may be silent
    unsigned lock_timeout_s;

    bool uses_tls;  // to each of the hosts
    bool verifies_server;
    const char *authority, *certificate, *key;  // NULL: none

    enum skr_mysql_wake wake;
    const char *wake_dsn;  // NULL: the DSN itself
    int64_t wake_ceiling;  // bytes of other tables in a second
    int64_t idle_poll_ms;  // 0: as is usual
};

enum {
    DEFAULT_PORT = 3306,
    CONNECT_TIMEOUT_S = 10,
    TIMEOUT_S = 30,
    LOCK_TIMEOUT_S = 5,
    LEAST_REST_S = 10,  // longer than an idle consumer says nothing
    WAKE_CEILING = 1024 * 1024,
};

// The server tells its version itself, and the connection's character set is
// always utf8mb4.
static const char *const parameters[] = {
    "unix_socket", "connect_timeout", "timeout",  "lock_timeout", "ssl",
    "ssl_ca",      "ssl_cert",        "ssl_key",  "ssl_verify",   "wake",
    "wake_dsn",    "wake_ceiling",    "idle_poll"};

static const char *const file_parameters[] = {"ssl_ca", "ssl_cert", "ssl_key",
                                              NULL};

static enum skr_code
read_place(const struct skr_url *url, struct options *options,
           struct skr_error *error)
{
    options->socket = skr_url_find(url, "unix_socket");
    options->hosts = options->socket == NULL ? url->host : NULL;
    options->port = url->port == 0 ? DEFAULT_PORT : url->port;
    options->user = url->user;
    options->password = url->password;
    options->database = url->path;
    if (options->socket == NULL && url->host == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no host; write "
                        "mysql://user:password@host/database");
    if (url->path == NULL || url->path[0] == '\0' ||
        strchr(url->path, '/') != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no database; write "
                        "mysql://user:password@host/database");
    return skr_host_check_list(url, error);
}

// A password, or a message, does not cross a network in the clear unless the
// URL says so: where one host is another machine all have TLS.
static enum skr_code
read_tls(const struct skr_url *url, struct options *options,
         struct skr_error *error)
{
    options->authority = skr_url_find(url, "ssl_ca");
    options->certificate = skr_url_find(url, "ssl_cert");
    options->key = skr_url_find(url, "ssl_key");
    struct skr_host other;
    bool is_asked_for = options->authority != NULL ||
                        options->certificate != NULL || options->key != NULL ||
                        skr_url_find(url, "ssl_verify") != NULL;
    options->uses_tls =
        is_asked_for || skr_host_find_other(options->hosts, &other);
    options->verifies_server = true;
    enum skr_code code = skr_url_boolean(url, "ssl", &options->uses_tls, error);
    if (code == SKR_OK)
        code = skr_url_boolean(url, "ssl_verify", &options->verifies_server,
                               error);
    if (code != SKR_OK)
        return code;
    if (is_asked_for && !options->uses_tls)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "ssl=false contradicts the other ssl_ parameters");
    if ((options->certificate == NULL) != (options->key == NULL))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "ssl_cert and ssl_key belong together");
    return SKR_OK;
}

// A client that waits for a lock hears from the server that it was in vain, and
// so must wait for longer than the server does.
static enum skr_code
read_times(const struct skr_url *url, struct options *options,
           struct skr_error *error)
{
    int64_t connect_s = CONNECT_TIMEOUT_S, timeout_s = 0,
            lock_s = LOCK_TIMEOUT_S;
    enum skr_code code =
        skr_url_number(url, "connect_timeout", 1, 3600, &connect_s, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "timeout", 2, 86400, &timeout_s, error);
    bool is_given = timeout_s > 0;
    if (is_given && timeout_s <= lock_s)
        lock_s = timeout_s - 1;
    if (code == SKR_OK)
        code = skr_url_number(url, "lock_timeout", 1, 3600, &lock_s, error);
    if (code != SKR_OK)
        return code;
    if (is_given && timeout_s <= lock_s)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "timeout=%lld in the DSN must be longer than "
                        "lock_timeout, which is %lld",
                        (long long)timeout_s, (long long)lock_s);
    if (!is_given)
        timeout_s = lock_s < TIMEOUT_S ? TIMEOUT_S : lock_s + 1;
    options->connect_timeout_s = (unsigned)connect_s;
    options->timeout_s = (unsigned)timeout_s;
    options->lock_timeout_s = (unsigned)lock_s;
    return SKR_OK;
}

static enum skr_code
read_wake(const struct skr_url *url, struct options *options,
          struct skr_error *error)
{
    static const char *const names[] = {"auto", "binlog", "poll"};
    const char *wake = skr_url_find(url, "wake");
    size_t chosen = 0;
    while (wake != NULL && chosen < SKR_COUNT_OF(names) &&
           strcmp(wake, names[chosen]) != 0)
        chosen++;
    if (chosen == SKR_COUNT_OF(names))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "wake in the DSN must be auto, binlog or poll");
    options->wake = (enum skr_mysql_wake)chosen;
    options->wake_dsn = skr_url_find(url, "wake_dsn");
    options->wake_ceiling = WAKE_CEILING;
    enum skr_code code = skr_url_number(url, "wake_ceiling", 1, INT64_MAX,
                                        &options->wake_ceiling, error);
    return code == SKR_OK ? skr_url_number(url, "idle_poll", 20, 60000,
                                           &options->idle_poll_ms, error)
                          : code;
}

static enum skr_code
read_url_alone(const struct skr_url *url, struct options *options,
               struct skr_error *error)
{
    *options = (struct options){0};
    enum skr_code code = skr_url_check_parameters(
        url, parameters, SKR_COUNT_OF(parameters), error);
    if (code == SKR_OK)
        code = read_place(url, options, error);
    if (code == SKR_OK)
        code = read_tls(url, options, error);
    if (code == SKR_OK)
        code = read_times(url, options, error);
    return code == SKR_OK ? read_wake(url, options, error) : code;
}

// wake_dsn is a DSN of this driver as well.
static enum skr_code
read_wake_dsn(const char *text, struct skr_url *url, struct options *options,
              struct skr_error *error)
{
    enum skr_code code = skr_url_parse(text, url, error);
    if (code != SKR_OK)
        return code;
    if (strcmp(url->scheme, "mysql") != 0 &&
        strcmp(url->scheme, "mariadb") != 0)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "it is not one of mysql:// or mariadb://");
    else
        code = read_url_alone(url, options, error);
    if (code == SKR_OK && options->wake_dsn != NULL)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is another one in it");
    if (code != SKR_OK)
        skr_url_fini(url);
    return code;
}

static enum skr_code
read_url(const struct skr_url *url, struct options *options,
         struct skr_error *error)
{
    enum skr_code code = read_url_alone(url, options, error);
    if (code != SKR_OK || options->wake_dsn == NULL)
        return code;
    struct skr_url other = {0};
    struct options unused;
    code = read_wake_dsn(options->wake_dsn, &other, &unused, error);
    if (code != SKR_OK)
        skr_error_prefix(error, "wake_dsn in the DSN");
    skr_url_fini(&other);
    return code;
}

// Without TLS the login proves a password by a hash, or encrypts it with a key
// that the peer has sent, which may not be the server.
static void
find_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct options options;
    struct skr_host other;
    struct skr_url wake = {0};
    said[0] = '\0';
    const char *wake_dsn = skr_url_find(url, "wake_dsn");
    if (wake_dsn != NULL &&
        read_wake_dsn(wake_dsn, &wake, &options, NULL) == SKR_OK)
        find_exposure(&wake, said);
    skr_url_fini(&wake);
    if (said[0] != '\0')
        return;
    if (url->password == NULL || url->password[0] == '\0' ||
        read_url(url, &options, NULL) != SKR_OK || options.uses_tls ||
        !skr_host_find_other(options.hosts, &other))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "ssl=0 lets whoever listens on the way to %.80s read all "
             "messages, and whoever steps in between the password; take ssl "
             "out, and name the server's authority in ssl_ca",
             other.name);
}

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
set_safety(MYSQL *connection, const struct options *options)
{
    unsigned off = 0;
    my_bool never = 0;
    // A server could ask for any file that this process may read.
    mysql_optionsv(connection, MYSQL_OPT_LOCAL_INFILE, &off);
    // A session that came back by itself has lost its transaction and lock.
    mysql_optionsv(connection, MYSQL_OPT_RECONNECT, &never);
    // Without TLS a server, or a machine that claims to be it, could ask for
    // the password in the clear.
    if (!options->uses_tls && options->socket == NULL)
        mysql_optionsv(connection, MARIADB_OPT_RESTRICTED_AUTH,
                       "mysql_native_password,client_ed25519,"
                       "caching_sha2_password,sha256_password");
}

static void
set_tls(MYSQL *connection, const struct options *options)
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
check_tls(MYSQL *connection, const struct options *options,
          const struct skr_host *host, unsigned port, struct skr_error *error)
{
    if (!options->uses_tls || host == NULL ||
        mysql_get_ssl_cipher(connection) != NULL)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "MariaDB or MySQL %.60s:%u/%.60s: " SKR_MYSQL_OFFERS_NO_TLS,
                    host->name, port, options->database);
}

// host is NULL where there is a socket.
static enum skr_code
log_in(MYSQL *connection, const struct options *options,
       const struct skr_host *host, struct skr_error *error)
{
    unsigned protocol =
        host == NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    unsigned port = options->port;
    if (host != NULL && host->port[0] != '\0')
        port = (unsigned)strtoul(host->port, NULL, 10);
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
    if (mysql_real_connect(connection, host == NULL ? NULL : host->name,
                           options->user,
                           options->password == NULL ? "" : options->password,
                           options->database, port, options->socket,
                           CLIENT_FOUND_ROWS) == NULL) {
        enum skr_code code = skr_mysql_fail(connection, error);
        // A client that is not connected cannot tell where it wanted to be.
        skr_error_prefix(error, "MariaDB or MySQL %.60s:%u/%.60s",
                         host == NULL ? options->socket : host->name, port,
                         options->database);
        return code;
    }
    set_keepalive(connection);
    return check_tls(connection, options, host, port, error);
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
set_session(MYSQL *connection, const struct options *options,
            struct skr_error *error)
{
    char sql[512];
    // The mode is the server's own, and strict: what does not fit is an error
    // and not cut. lock_wait_timeout bounds the wait for a session that alters
    // a table meanwhile.
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

static void
close_session(struct skr_db *db)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (mysql->connection != NULL)
        mysql_close(mysql->connection);
    mysql->connection = NULL;
    skr_mysql_cache_clear(&mysql->cache);
}

// What the server says of itself.
struct answers {
    bool is_read_only;
    bool begins_read_only;  // its transactions, unless told otherwise
    bool is_galera;
    bool is_in_group, has_several_primaries;
    struct skr_hash server, cluster;
};

static bool
is_on(const struct skr_value *value)
{
    return strcmp(value->bytes, "OFF") != 0 && strcmp(value->bytes, "0") != 0;
}

// Columns: the name of a variable, its value.
static enum skr_code
note_variable(const struct skr_value *columns, size_t count, void *user,
              struct skr_error *error)
{
    static const char *const names[] = {"wsrep_cluster_name",
                                        "group_replication_group_name"};
    (void)error;
    struct answers *answers = user;
    if (count < 2 || columns[0].kind != SKR_TEXT || columns[1].kind != SKR_TEXT)
        return SKR_OK;
    const char *name = columns[0].bytes;
    const char *value = columns[1].bytes;
    if (strcmp(name, "read_only") == 0)
        answers->is_read_only = is_on(&columns[1]);
    else if (strcmp(name, "wsrep_on") == 0)
        answers->is_galera = is_on(&columns[1]);
    else if (strcmp(name, "group_replication_single_primary_mode") == 0)
        answers->has_several_primaries = !is_on(&columns[1]);
    else if (skr_text_is_among(name, names, SKR_COUNT_OF(names)))
        answers->cluster = skr_hash_add_text(skr_hash_start(), value);
    else if (strcmp(name, "hostname") == 0 || strcmp(name, "port") == 0 ||
             strcmp(name, "server_id") == 0)
        answers->server = skr_hash_add_text(answers->server, value);
    else
        answers->begins_read_only = is_on(&columns[1]);
    if (strcmp(name, "group_replication_group_name") == 0)
        answers->is_in_group = value[0] != '\0';
    return SKR_OK;
}

// A relay's settler may write through one server of a cluster and its session
// read through another, which applies that a moment later: a row that is gone
// would be sent again. Each read waits until its server has all that was
// committed.
static enum skr_code
wait_for_other_servers(struct skr_mysql *mysql, bool is_galera,
                       struct skr_error *error)
{
    return skr_mysql_exec(
        mysql->connection,
        is_galera ? "SET SESSION wsrep_sync_wait = 1"
                  : "SET SESSION group_replication_consistency = 'BEFORE'",
        NULL, error);
}

// Some users may write all the same, but nothing should be written to a
// replica. The servers of a cluster have the same rows; of two other servers
// one lags behind, and each has a number of its own.
static enum skr_code
note_server(struct skr_mysql *mysql, struct skr_error *error)
{
    struct answers answers = {.server = skr_hash_start()};
    enum skr_code code = skr_sql_each(
        skr_mysql_own(mysql),
        "SHOW VARIABLES WHERE Variable_name IN ('read_only', 'tx_read_only', "
        "'transaction_read_only', 'hostname', 'port', 'server_id', 'wsrep_on', "
        "'wsrep_cluster_name', 'group_replication_group_name', "
        "'group_replication_single_primary_mode')",
        SKR_NO_VALUES, note_variable, &answers, error);
    if (code != SKR_OK)
        return code;
    mysql->db.is_cluster = answers.is_galera || (answers.is_in_group &&
                                                 answers.has_several_primaries);
    mysql->db.server =
        mysql->db.is_cluster ? answers.cluster.low : answers.server.low;
    skr_error_clear(&mysql->db.read_only);
    if (answers.is_read_only || answers.begins_read_only)
        skr_mysql_fail_read_only(mysql->connection,
                                 answers.is_read_only
                                     ? "read_only is on"
                                     : "transactions are read-only by default",
                                 &mysql->db.read_only);
    return mysql->db.is_cluster
               ? wait_for_other_servers(mysql, answers.is_galera, error)
               : SKR_OK;
}

static enum skr_code
ask_max_packet(struct skr_mysql *mysql, struct skr_error *error)
{
    int64_t max_packet = 0;
    enum skr_code code =
        skr_sql_number(skr_mysql_own(mysql), "SELECT @@max_allowed_packet",
                       SKR_NO_VALUES, &max_packet, error);
    if (code == SKR_OK)
        mysql->max_packet = (uint64_t)max_packet;
    return code;
}

// host is NULL where there is a socket.
static enum skr_code
open_session(struct skr_db *db, const struct skr_host *host, const void *user,
             struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    const struct options *options = user;
    close_session(db);
    mysql->max_packet = UINT64_MAX;
    mysql->connection = mysql_init(NULL);
    if (mysql->connection == NULL)
        return skr_fail_memory(error);
    enum skr_code code = log_in(mysql->connection, options, host, error);
    if (code == SKR_OK)
        code = check_version(mysql->connection, error);
    if (code == SKR_OK)
        code = set_session(mysql->connection, options, error);
    if (code == SKR_OK && mariadb_connection(mysql->connection))
        code = skr_mysql_bound_silence(mysql, error);
    // A node that a Galera cluster has lost refuses this one.
    if (code == SKR_OK)
        code = ask_max_packet(mysql, error);
    return code == SKR_OK ? note_server(mysql, error) : code;
}

// The doorbell listens to the server that the session is with, unless it has a
// DSN of its own.
static enum skr_code
prepare_waking(struct skr_mysql *mysql, const struct skr_url *url,
               const struct options *options, struct skr_error *error)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    struct options unused;
    const char *host = NULL;
    unsigned port = options->port;
    waking->mode = options->wake;
    waking->most_bytes = options->wake_ceiling;
    mysql->pace.idle_pause_ms = options->idle_poll_ms;
    if (waking->mode == SKR_MYSQL_WAKE_POLL)
        return SKR_OK;
    if (options->wake_dsn != NULL)
        return read_wake_dsn(options->wake_dsn, &waking->url, &unused, error);
    enum skr_code code = skr_url_copy(url, &waking->url);
    if (code != SKR_OK)
        return skr_fail_memory(error);
    mariadb_get_infov(mysql->connection, MARIADB_CONNECTION_HOST, &host);
    mariadb_get_infov(mysql->connection, MARIADB_CONNECTION_PORT, &port);
    if (options->hosts == NULL || host == NULL)
        return SKR_OK;
    struct skr_text place = {0};
    bool is_address = strchr(host, ':') != NULL;
    skr_text_add_format(&place, "%s%s%s:%u", is_address ? "[" : "", host,
                        is_address ? "]" : "", port);
    free(waking->url.host);
    waking->url.host = skr_text_take(&place);
    return waking->url.host == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
open_database(struct skr_db *db, const struct skr_url *url,
              struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    struct options options;
    enum skr_code code = read_url(url, &options, error);
    if (code == SKR_OK)
        code = skr_db_check_files(url, file_parameters, error);
    if (code != SKR_OK)
        return code;
    mysql->timeout_s = options.timeout_s;
    pthread_once(&library_is_ready, prepare_library);
    if (options.hosts == NULL)
        code = open_session(db, NULL, &options, error);
    else
        code =
            skr_db_open_hosts(db, options.hosts, open_session, &options, error);
    return code == SKR_OK ? prepare_waking(mysql, url, &options, error) : code;
}

static void
close_database(struct skr_db *db)
{
    struct skr_mysql_waking *waking = &((struct skr_mysql *)db)->waking;
    skr_mysql_doorbell_close(waking->doorbell);
    waking->doorbell = NULL;
    skr_url_fini(&waking->url);
    close_session(db);
}

static enum skr_code
check_url(const struct skr_url *url, struct skr_error *error)
{
    struct options options;
    return read_url(url, &options, error);
}

static enum skr_code
exec(struct skr_mysql *mysql, const char *sql, struct skr_error *error)
{
    return skr_mysql_run(mysql->connection, mysql,
                         &(struct skr_statement){.sql = sql}, error);
}

// MySQL ends no transaction that rests, but sessions that do, and ours rest for
// long outside of them. What bounds a guarded one stays for the next, until a
// statement comes outside: an idle consumer sends one every few seconds.
static bool
is_session_bounded(const struct skr_mysql *mysql)
{
    return mysql->bound_s != 0 && !mariadb_connection(mysql->connection);
}

enum skr_code
skr_mysql_autocommit(struct skr_mysql *mysql, struct skr_error *error)
{
    bool frees_session = is_session_bounded(mysql);
    enum skr_code code = exec(
        mysql,
        frees_session ? "SET autocommit = 1, SESSION wait_timeout = DEFAULT"
                      : "SET autocommit = 1",
        error);
    mysql->has_savepoint = false;
    if (code == SKR_OK) {
        mysql->autocommit_is_off = false;
        mysql->bound_s = frees_session ? 0 : mysql->bound_s;
    }
    return code;
}

static void
rollback(struct skr_db *db)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (!mysql->has_begun && !skr_mysql_is_open(mysql))
        return;
    mysql->has_begun = false;
    mysql->is_rolled_back = false;
    mysql->has_savepoint = false;
    enum skr_code ignored = exec(mysql, "ROLLBACK", NULL);
    if (ignored == SKR_OK && !mysql->is_guarded && is_session_bounded(mysql))
        ignored = skr_mysql_autocommit(mysql, NULL);
    (void)ignored;
}

// A round trip for the first of several transactions in a row, in which the
// server also hears for how long they may be silent.
static enum skr_code
leave_autocommit(struct skr_mysql *mysql, unsigned bound_s,
                 struct skr_error *error)
{
    char sql[96] = "SET autocommit = 0";
    // The session of a lock is bounded whatever it does.
    bool changes = mysql->lock_name[0] == '\0' && mysql->bound_s != bound_s;
    if (mysql->autocommit_is_off && !changes)
        return SKR_OK;
    if (changes)
        snprintf(sql, sizeof(sql), "SET autocommit = 0, SESSION %s = %u",
                 mariadb_connection(mysql->connection)
                     ? "idle_transaction_timeout"
                     : "wait_timeout",
                 bound_s);
    enum skr_code code = exec(mysql, sql, error);
    if (code == SKR_OK) {
        mysql->autocommit_is_off = true;
        mysql->bound_s = changes ? bound_s : mysql->bound_s;
    }
    return code;
}

static enum skr_code
begin_write(struct skr_mysql *mysql, struct skr_error *error)
{
    unsigned bound_s = 2 * mysql->timeout_s;
    if (bound_s > SKR_SILENT_TRANSACTION_S)
        bound_s = SKR_SILENT_TRANSACTION_S;
    enum skr_code code = leave_autocommit(mysql, bound_s, error);
    mysql->has_savepoint = false;
    return code == SKR_OK ? exec(mysql, "START TRANSACTION", error) : code;
}

// With autocommit off a transaction begins by itself, right after the end of
// another. The savepoint stands at its beginning, and may have been made
// together with that end.
static enum skr_code
begin_guarded(struct skr_mysql *mysql, struct skr_error *error)
{
    unsigned bound_s = 2 * mysql->timeout_s;
    if (bound_s < LEAST_REST_S && !mariadb_connection(mysql->connection))
        bound_s = LEAST_REST_S;
    enum skr_code code = leave_autocommit(mysql, bound_s, error);
    if (code == SKR_OK && !mysql->has_savepoint)
        code = exec(mysql, "SAVEPOINT skr", error);
    mysql->has_savepoint = code == SKR_OK;
    return code;
}

// Two round trips: the session's own level has no snapshots.
static enum skr_code
begin_snapshot(struct skr_mysql *mysql, struct skr_error *error)
{
    mysql->has_savepoint = false;
    enum skr_code code =
        exec(mysql, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", error);
    if (code != SKR_OK)
        return code;
    return exec(mysql, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
                error);
}

static enum skr_code
begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    // The server would commit the one that is open.
    if (mysql->has_begun)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a transaction is open already");
    enum skr_code code = SKR_OK;
    switch (mode) {
    case SKR_BEGIN_WRITE:
    case SKR_BEGIN_CLAIM: code = begin_write(mysql, error); break;
    case SKR_BEGIN_GUARDED: code = begin_guarded(mysql, error); break;
    case SKR_BEGIN_SNAPSHOT: code = begin_snapshot(mysql, error); break;
    }
    mysql->has_begun = code == SKR_OK;
    mysql->is_guarded = mode == SKR_BEGIN_GUARDED;
    mysql->is_rolled_back = false;
    mysql->was_open = false;
    return code;
}

// In one round trip where the server has blocks, which MySQL has not: what
// follows a statement of a block that fails does not run. The savepoint of the
// next transaction goes along. Prepared, since reading such a text costs the
// server as much as running it.
static enum skr_code
release_and_commit(struct skr_mysql *mysql, struct skr_error *error)
{
    mysql->has_savepoint = false;
    if (!mariadb_connection(mysql->connection)) {
        enum skr_code code = exec(mysql, "RELEASE SAVEPOINT skr", error);
        return code == SKR_OK ? exec(mysql, "COMMIT", error) : code;
    }
    enum skr_code code = skr_mysql_exec_prepared(
        mysql,
        "BEGIN NOT ATOMIC RELEASE SAVEPOINT skr; COMMIT; SAVEPOINT skr; END",
        error);
    mysql->has_savepoint = code == SKR_OK;
    return code;
}

// The savepoint is gone with the transaction that it was made in. The server's
// number for that is also the one for a procedure that is not there.
static enum skr_code
commit_guarded(struct skr_mysql *mysql, struct skr_error *error)
{
    struct skr_error problem = {0};
    enum skr_code code = release_and_commit(mysql, &problem);
    if (code != SKR_OK && strcmp(problem.native, "1305") == 0)
        code = skr_fail(&problem, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "nothing to commit: one of its own statements has "
                        "ended the transaction");
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &problem);
}

static enum skr_code
commit(struct skr_db *db, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    enum skr_code code;
    if (mysql->is_rolled_back)
        code = skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "nothing to commit: the server has rolled the "
                        "transaction back");
    else if (mysql->has_begun && mysql->is_guarded)
        code = commit_guarded(mysql, error);
    else if (!skr_mysql_is_open(mysql))
        code = skr_fail(error, SKR_NO_TRANSACTION, SKR_GIVE_UP,
                        "nothing to commit: the transaction was ended by one "
                        "of its own statements");
    else if (is_session_bounded(mysql))
        code = skr_mysql_autocommit(mysql, error);
    else
        code = exec(mysql, "COMMIT", error);
    if (code != SKR_OK)
        rollback(db);
    mysql->has_begun = false;
    return code;
}

const struct skr_db_ops skr_mysql_db = {
    .scheme = "mysql",
    .size = sizeof(struct skr_mysql),
    .tx = &skr_mysql_own_tx,
    .check_url = check_url,
    .exposure = find_exposure,
    .files = {.parameters = file_parameters},
    .open = open_database,
    .close = close_database,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .locks = &skr_mysql_locks,
    .follow = skr_mysql_follow,
    .plan_by_index = skr_db_plan_nothing,
    .wait = skr_mysql_wait,
    .advise = skr_db_advise_nothing,
};
