// SPDX-License-Identifier: MIT
// The PostgreSQL driver: from a URL to a session that is set up, and its
// transactions.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"

#include <libpq-events.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAST_VERSION = 130000,
    SYSTEM_ROOTS_VERSION = 160000,  // of libpq: knows sslrootcert=system
    DEFAULT_CONNECT_TIMEOUT_S = 10,
    DEFAULT_TIMEOUT_S = 30,
    DEFAULT_LOCK_TIMEOUT_MS = 5000,
    ROOM_FOR_ANSWER_MS = 1000,  // beyond the time that the server may take
    MAX_OPTIONS = 24,
};

#define VERIFIED "verify-full"

// Given to libpq as they are.
static const char *const passed_on[] = {"sslcert", "sslkey", "application_name",
                                        "target_session_attrs"};
static const char *const parameters[] = {"sslmode",
                                         "sslrootcert",
                                         "sslcert",
                                         "sslkey",
                                         "host",
                                         "connect_timeout",
                                         "timeout",
                                         "lock_timeout",
                                         "statement_timeout",
                                         "application_name",
                                         "target_session_attrs"};
static const char *const ssl_modes[] = {"disable", "allow",     "prefer",
                                        "require", "verify-ca", VERIFIED};
// By these it is the server, or a machine that claims to be it, that decides on
// TLS.
static const char *const weak_modes[] = {"disable", "allow", "prefer"};

#define ABSENT \
    "look whether the server runs; else correct host and port in the DSN"
#define OFFERS_NO_TLS                                                    \
    "the server offers no TLS: set ssl=on there, or sslmode=disable in " \
    "the DSN (" VERIFIED " is the default) if nobody can listen in between"

// What libpq is told: names and values, never one text that is put together.
struct options {
    const char *names[MAX_OPTIONS];
    const char *values[MAX_OPTIONS];
    size_t count;
};

struct limits {
    int64_t connect_timeout_s;
    int64_t timeout_ms;
    int64_t lock_timeout_ms;
    int64_t statement_timeout_ms;  // 0: the server's own
};

// One server of the DSN, which may name several.
struct server {
    struct skr_host host;  // a name that is "": the local socket
    char place[SKR_HOST_NAME_SIZE + 100];
    bool is_verified_by_default;
    bool must_encrypt;
};

static enum skr_code
check_parts(const struct skr_url *url, struct skr_error *error)
{
    if (url->path == NULL || url->path[0] == '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names no database; write "
                        "pgsql://user:password@host/shop");
    if (url->host != NULL && skr_url_find(url, "host") != NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the DSN names a host twice; write "
                        "pgsql://user@/shop?host=FOLDER for a local socket");
    enum skr_code code = skr_url_check_parameters(
        url, parameters, SKR_COUNT_OF(parameters), error);
    if (code != SKR_OK)
        return code;
    const char *mode = skr_url_find(url, "sslmode");
    if (mode != NULL &&
        !skr_text_is_among(mode, ssl_modes, SKR_COUNT_OF(ssl_modes)))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "sslmode is disable, allow, prefer, require, verify-ca "
                        "or verify-full, not %.80s",
                        mode);
    return SKR_OK;
}

// The server's own limits come first: it must have the time to say that one of
// them was reached.
static enum skr_code
fit_timeout(int64_t timeout_s, struct limits *limits, struct skr_error *error)
{
    int64_t longest_ms = limits->lock_timeout_ms > limits->statement_timeout_ms
                             ? limits->lock_timeout_ms
                             : limits->statement_timeout_ms;
    limits->timeout_ms =
        (timeout_s == 0 ? DEFAULT_TIMEOUT_S : timeout_s) * 1000;
    if (limits->timeout_ms >= longest_ms + ROOM_FOR_ANSWER_MS)
        return SKR_OK;
    if (timeout_s > 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "timeout=%lld in the DSN must be longer than "
                        "lock_timeout and statement_timeout, by a second",
                        (long long)timeout_s);
    limits->timeout_ms = longest_ms + ROOM_FOR_ANSWER_MS;
    return SKR_OK;
}

static enum skr_code
read_limits(const struct skr_url *url, struct limits *limits,
            struct skr_error *error)
{
    int64_t timeout_s = 0, lock_timeout_ms = DEFAULT_LOCK_TIMEOUT_MS;
    limits->connect_timeout_s = DEFAULT_CONNECT_TIMEOUT_S;
    enum skr_code code = skr_url_number(url, "connect_timeout", 1, 3600,
                                        &limits->connect_timeout_s, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "timeout", 2, 86400, &timeout_s, error);
    if (timeout_s > 0 &&
        timeout_s * 1000 < lock_timeout_ms + ROOM_FOR_ANSWER_MS)
        lock_timeout_ms = timeout_s * 1000 - ROOM_FOR_ANSWER_MS;
    limits->lock_timeout_ms = lock_timeout_ms;
    limits->statement_timeout_ms = 0;
    if (code == SKR_OK)
        code = skr_url_number(url, "lock_timeout", 1, 3600000,
                              &limits->lock_timeout_ms, error);
    if (code == SKR_OK)
        code = skr_url_number(url, "statement_timeout", 1, 86400000,
                              &limits->statement_timeout_ms, error);
    return code == SKR_OK ? fit_timeout(timeout_s, limits, error) : code;
}

// A name that stays on this machine, where no third party can listen or step
// between.
static bool
is_socket(const char *host)
{
    return host[0] == '\0' || host[0] == '/' || host[0] == '@';
}

// PGHOSTADDR leads libpq elsewhere, whatever the host is called.
static bool
is_local(const char *host)
{
    const char *address = getenv("PGHOSTADDR");
    if (address != NULL && address[0] != '\0')
        return skr_host_is_this_machine(address);
    return is_socket(host) || skr_host_is_this_machine(host);
}

// As the program's environment says where the DSN does not: libpq would look
// there by itself, and whether a host is another machine must be known.
static const char *
find_hosts(const struct skr_url *url)
{
    if (url->host != NULL)
        return url->host;
    const char *given = skr_url_find(url, "host");
    if (given == NULL)
        given = getenv("PGHOST");
    return given == NULL ? "" : given;
}

static enum skr_code
check_url(const struct skr_url *url, struct skr_error *error)
{
    struct limits unused;
    enum skr_code code = check_parts(url, error);
    if (code == SKR_OK)
        code = skr_host_check_list(url, error);
    if (code == SKR_OK)
        code = read_limits(url, &unused, error);
    return code;
}

static void
find_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    const char *mode = skr_url_find(url, "sslmode");
    const char *hosts = find_hosts(url);
    bool has_password = (url->password != NULL && url->password[0] != '\0') ||
                        getenv("PGPASSWORD") != NULL;
    said[0] = '\0';
    if (!has_password || mode == NULL ||
        !skr_text_is_among(mode, weak_modes, SKR_COUNT_OF(weak_modes)))
        return;
    while (hosts != NULL) {
        struct skr_host host;
        hosts = skr_host_next(hosts, &host);
        if (is_local(host.name))
            continue;
        snprintf(said, SKR_EXPOSURE_SIZE,
                 "sslmode=%s lets whoever listens on the way to %.80s read "
                 "the password and all messages; take sslmode out, and name "
                 "the server's authority in sslrootcert",
                 mode, host.name);
        return;
    }
}

static void
add(struct options *options, const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    options->names[options->count] = name;
    options->values[options->count++] = value;
}

// The certificates that this machine trusts, unless the user of this process
// has a file of its own where libpq looks for it.
static const char *
find_roots(void)
{
    static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                          "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/ca-bundle.pem",
                                          "/etc/ssl/cert.pem"};
    char own[4096];
    const char *home = getenv("HOME");
    snprintf(own, sizeof(own), "%s/.postgresql/root.crt",
             home == NULL ? "" : home);
    if (getenv("PGSSLROOTCERT") != NULL || access(own, R_OK) == 0)
        return NULL;
    if (PQlibVersion() >= SYSTEM_ROOTS_VERSION)
        return "system";
    for (size_t i = 0; i < SKR_COUNT_OF(bundles); i++)
        if (access(bundles[i], R_OK) == 0)
            return bundles[i];
    return NULL;
}

static void
add_tls(struct options *options, const struct skr_url *url,
        struct server *server)
{
    const char *mode = skr_url_find(url, "sslmode");
    const char *roots = skr_url_find(url, "sslrootcert");
    // A DSN that names an authority wants it to be asked, on this machine too.
    server->is_verified_by_default =
        mode == NULL && (!is_local(server->host.name) || roots != NULL);
    if (server->is_verified_by_default)
        mode = VERIFIED;
    server->must_encrypt =
        mode != NULL &&
        !skr_text_is_among(mode, weak_modes, SKR_COUNT_OF(weak_modes));
    if (roots == NULL && mode != NULL && strcmp(mode, VERIFIED) == 0)
        roots = find_roots();
    add(options, "sslmode", mode);
    add(options, "sslrootcert", roots);
}

static void
fill_options(struct options *options, const struct skr_url *url,
             struct server *server)
{
    add(options, "host", server->host.name);
    add(options, "port", server->host.port);
    add(options, "user", url->user);
    add(options, "password", url->password);
    add(options, "dbname", url->path);
    add_tls(options, url, server);
    if (skr_url_find(url, "application_name") == NULL)
        add(options, "application_name", "skirnir");
    for (size_t i = 0; i < SKR_COUNT_OF(passed_on); i++)
        add(options, passed_on[i], skr_url_find(url, passed_on[i]));
    add(options, "client_encoding", "UTF8");
    // A peer that is gone without a word is noticed in about ten seconds.
    add(options, "keepalives_idle", "4");
    add(options, "keepalives_interval", "2");
    add(options, "keepalives_count", "3");
    add(options, "tcp_user_timeout", "10000");
}

static void
ignore_notice(void *user, const char *message)
{
    (void)user;
    (void)message;
}

static enum skr_code
fail_connect(PGconn *connection, const struct server *server,
             struct skr_error *error)
{
    const char *text = PQerrorMessage(connection);
    const char *advice = ABSENT;
    if (strstr(text, "does not support SSL") != NULL)
        advice = OFFERS_NO_TLS;
    else if (strstr(text, "response to SSL negotiation") != NULL)
        advice = "what answers there is not PostgreSQL; correct host and port "
                 "in the DSN";
    else if (strstr(text, "private key file") != NULL)
        advice = "chmod 600 sslkey, and let it be the key of sslcert";
    else if (strstr(text, "SSL") != NULL || strstr(text, "certificate") != NULL)
        advice = server->is_verified_by_default
                     ? "sslmode is verify-full by default: give sslrootcert="
                       "FILE, the host as the certificate has it, or another "
                       "sslmode, in the DSN"
                     : "give sslrootcert=FILE in the DSN, and the host as the "
                       "certificate has it";
    return skr_pgsql_fail_connect(connection, server->place, advice, error);
}

// libpq refuses by itself; a session that is encrypted by Kerberos needs no
// TLS, and one by a socket leaves no machine.
static enum skr_code
check_tls(PGconn *connection, const struct server *server,
          struct skr_error *error)
{
    if (!server->must_encrypt || is_socket(server->host.name) ||
        PQsslInUse(connection) || PQgssEncInUse(connection))
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "%s: the connection is not encrypted; " OFFERS_NO_TLS,
                    server->place);
}

// By hand rather than in one call: only so is the SQLSTATE of a refusal to be
// had, and one dead server of several does not use up the time of all.
static enum skr_code
connect_to(const struct skr_url *url, struct server *server, int64_t timeout_ms,
           PGconn **connection, struct skr_error *error)
{
    struct options options = {.count = 0};
    fill_options(&options, url, server);
    PGconn *made = PQconnectStartParams(options.names, options.values, 0);
    if (made == NULL)
        return skr_fail_memory(error);
    PQsetErrorVerbosity(made, PQERRORS_VERBOSE);
    PQsetNoticeProcessor(made, ignore_notice, NULL);
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    PostgresPollingStatusType status = PQstatus(made) == CONNECTION_BAD
                                           ? PGRES_POLLING_FAILED
                                           : PGRES_POLLING_WRITING;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && status != PGRES_POLLING_OK) {
        if (status == PGRES_POLLING_FAILED)
            code = fail_connect(made, server, error);
        else if (skr_clock_await(PQsocket(made),
                                 status == PGRES_POLLING_READING ? POLLIN
                                                                 : POLLOUT,
                                 end_ms - skr_clock_ms()))
            status = PQconnectPoll(made);
        else
            code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                            "%s: no answer in %lld s; " ABSENT, server->place,
                            (long long)timeout_ms / 1000);
    }
    if (code == SKR_OK)
        code = check_tls(made, server, error);
    if (code != SKR_OK) {
        PQfinish(made);
        return code;
    }
    PQsetErrorVerbosity(made, PQERRORS_DEFAULT);
    *connection = made;
    return SKR_OK;
}

// Our texts and answers look the same whatever the server's defaults are. A
// commit stands for a confirm: it must survive a loss of power, while a server
// that asks for more, such as its standbys' word, has it. JIT compiles for
// longer than any of our statements runs. A client that is gone without a word
// is noticed, so that no session waits long for what its transaction has
// locked. Asked last: who it is, as a text, and why it cannot be written (NULL:
// it can). Parameters: lock_timeout, statement_timeout (NULL: as the server has
// it).
#define SESSION_SQL(identity)                                                \
    "SELECT set_config('TimeZone', 'UTC', false), "                          \
    "set_config('DateStyle', 'ISO, YMD', false), "                           \
    "set_config('standard_conforming_strings', 'on', false), "               \
    "set_config('jit', 'off', false), "                                      \
    "set_config('tcp_keepalives_idle', '5', false), "                        \
    "set_config('tcp_keepalives_interval', '3', false), "                    \
    "set_config('tcp_keepalives_count', '3', false), "                       \
    "set_config('tcp_user_timeout', '15s', false), "                         \
    "set_config('synchronous_commit', "                                      \
    "COALESCE(NULLIF(current_setting('synchronous_commit'), 'off'), 'on'), " \
    "false), "                                                               \
    "set_config('lock_timeout', $1, false), "                                \
    "set_config('statement_timeout', $2, false), " identity ", "             \
    "CASE WHEN pg_is_in_recovery() THEN 'it is a standby' "                  \
    "WHEN current_setting('default_transaction_read_only') = 'on' "          \
    "THEN 'default_transaction_read_only is on' END"

// A standby has the identifier of its primary, and begins a timeline when it
// becomes one. Both stay over a restart. No standby is worked on, and so its
// timeline is of no weight.
static const char session_sql[] = SESSION_SQL(
    "(SELECT CAST(system_identifier AS TEXT) FROM pg_control_system()) || "
    "CASE WHEN pg_is_in_recovery() THEN '' "
    "ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END");
// For a user, or a server, that has no such functions. When a server started
// tells it from all others, and from itself after a restart too.
static const char plain_session_sql[] =
    SESSION_SQL("CAST(pg_postmaster_start_time() AS TEXT)");

static enum skr_code
note_server(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)error;
    struct skr_pgsql *pgsql = user;
    const struct skr_value *identity = &columns[count - 2];
    const struct skr_value *reason = &columns[count - 1];
    pgsql->db.server =
        skr_hash_add(skr_hash_start(), identity->bytes, identity->size).low;
    if (reason->kind == SKR_NULL)
        skr_error_clear(&pgsql->db.read_only);
    else
        skr_pgsql_fail_read_only(pgsql->connection, reason->bytes,
                                 &pgsql->db.read_only);
    return SKR_OK;
}

static enum skr_code
set_up_session(struct skr_pgsql *pgsql, const struct limits *limits,
               struct skr_error *error)
{
    PGconn *connection = pgsql->connection;
    if (PQserverVersion(connection) < LEAST_VERSION)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "PostgreSQL 13 or newer is needed; this server is %d",
                        PQserverVersion(connection) / 10000);
    char lock_timeout[24], statement_timeout[24];
    snprintf(lock_timeout, sizeof(lock_timeout), "%lld",
             (long long)limits->lock_timeout_ms);
    snprintf(statement_timeout, sizeof(statement_timeout), "%lld",
             (long long)limits->statement_timeout_ms);
    bool is_limited = limits->statement_timeout_ms > 0;
    const struct skr_value values[] = {
        skr_bind_text(lock_timeout),
        skr_bind_text(is_limited ? statement_timeout : NULL),
    };
    struct skr_statement statement = {
        .sql = session_sql,
        .values = values,
        .value_count = SKR_COUNT_OF(values),
        .each_row = note_server,
        .user = pgsql,
    };
    struct skr_error refusal = {0};
    enum skr_code code = skr_pgsql_run(connection, pgsql, &statement, &refusal);
    if (code == SKR_OK)
        return SKR_OK;
    if (refusal.remedy == SKR_GIVE_UP) {
        statement.sql = plain_session_sql;
        return skr_pgsql_run(connection, pgsql, &statement, error);
    }
    return skr_fail_with(error, &refusal);
}

// What a URL says of the sessions that it opens.
struct opening {
    const struct skr_url *url;
    const struct limits *limits;
};

static enum skr_code
open_session(struct skr_db *db, const struct skr_host *host, const void *user,
             struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    const struct opening *opening = user;
    const struct skr_url *url = opening->url;
    struct server server = {.host = *host};
    if (url->port > 0)
        snprintf(server.host.port, sizeof(server.host.port), "%u", url->port);
    snprintf(server.place, sizeof(server.place), "PostgreSQL %s%s%s/%.64s",
             server.host.name, server.host.port[0] == '\0' ? "" : ":",
             server.host.port, url->path);
    PQfinish(pgsql->connection);
    pgsql->connection = NULL;
    pgsql->was_silent = false;
    enum skr_code code =
        connect_to(url, &server, opening->limits->connect_timeout_s * 1000,
                   &pgsql->connection, error);
    return code == SKR_OK ? set_up_session(pgsql, opening->limits, error)
                          : code;
}

static enum skr_code
connect_to_any(struct skr_pgsql *pgsql, const struct skr_url *url,
               struct skr_error *error)
{
    struct limits limits = {0};
    enum skr_code code = check_url(url, error);
    if (code == SKR_OK)
        code = read_limits(url, &limits, error);
    // libpq names the other files itself.
    if (code == SKR_OK)
        code = skr_db_check_files(url, (const char *const[]){"sslcert", NULL},
                                  error);
    if (code != SKR_OK)
        return code;
    pgsql->timeout_ms = limits.timeout_ms;
    pgsql->lock_backoff =
        (struct skr_backoff){.first_ms = 10, .longest_ms = 100};
    // Until it is known who answers.
    pgsql->cache.is_off = true;
    return skr_db_open_hosts(&pgsql->db, find_hosts(url), open_session,
                             &(struct opening){.url = url, .limits = &limits},
                             error);
}

// libpq tells of every result, also of those that a handler asked for by
// itself. That the transaction is aborted already is no reason.
static int
note_failure(PGEventId event, void *information, void *user)
{
    struct skr_pgsql *pgsql = user;
    if (event != PGEVT_RESULTCREATE)
        return 1;
    const PGEventResultCreate *created = information;
    const char *state = PQresultErrorField(created->result, PG_DIAG_SQLSTATE);
    if (state != NULL && strcmp(state, "25P02") != 0)
        snprintf(pgsql->last_failure, sizeof(pgsql->last_failure), "%s", state);
    return 1;
}

// Whether a pooler stands between us and the server, which may give us another
// session each time.
static enum skr_code
look_for_pooler(struct skr_pgsql *pgsql, struct skr_error *error)
{
    int64_t session = 0;
    pgsql->cache.is_off = true;
    enum skr_code code =
        skr_sql_number(skr_db_tx(&pgsql->db), "SELECT pg_backend_pid()",
                       SKR_NO_VALUES, &session, error);
    pgsql->has_pooler = session != PQbackendPID(pgsql->connection);
    pgsql->cache.is_off = pgsql->has_pooler;
    return code;
}

static enum skr_code
pgsql_open(struct skr_db *db, const struct skr_url *url,
           struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    enum skr_code code = connect_to_any(pgsql, url, error);
    if (code == SKR_OK &&
        !PQregisterEventProc(pgsql->connection, note_failure, "skirnir", pgsql))
        return skr_fail_memory(error);
    if (code == SKR_OK)
        code = look_for_pooler(pgsql, error);
    if (code == SKR_OK && !pgsql->has_pooler)
        code = skr_pgsql_bound_silence(pgsql, error);
    return code;
}

static void
pgsql_close(struct skr_db *db)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    // The server ends the session in its own time; a standby that waits for the
    // lock need not wait for that.
    skr_db_unlock(db);
    skr_pgsql_cache_clear(&pgsql->cache);
    // Saying farewell is no reason to wait either.
    if (pgsql->connection != NULL)
        PQsetnonblocking(pgsql->connection, 1);
    PQfinish(pgsql->connection);
    pgsql->connection = NULL;
}

// Readers go by the indexes that their statements leave to them, whatever the
// statistics say. For the whole session only where it is known to follow a
// table: handlers have statements of their own. Sent together, it is one round
// trip.
#define BY_INDEX                                                          \
    "; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off" \
    "; SET LOCAL max_parallel_workers_per_gather = 0"
// What claims is found by its id or by its partition, whichever it is: the
// first executions of a statement are not planned anew, which takes the server
// several times as long as to run it.
#define ONE_PLAN "; SET LOCAL plan_cache_mode = force_generic_plan"

#define WRITE "BEGIN ISOLATION LEVEL READ COMMITTED"
#define SNAPSHOT "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// By mode, and by whether the session is known to follow a table.
static const char *const begin_sql[][2] = {
    [SKR_BEGIN_WRITE] = {WRITE, WRITE},
    [SKR_BEGIN_CLAIM] = {WRITE BY_INDEX ONE_PLAN, WRITE},
    [SKR_BEGIN_SNAPSHOT] = {SNAPSHOT BY_INDEX, SNAPSHOT},
};

// Together with its bound, in one round trip. The session of a lock is bounded
// already.
static enum skr_code
begin_bounded(struct skr_pgsql *pgsql, const char *sql, struct skr_error *error)
{
    char text[320];
    int64_t bound_ms = SKR_SILENT_TRANSACTION_S * INT64_C(1000);
    if (bound_ms > 2 * pgsql->timeout_ms)
        bound_ms = 2 * pgsql->timeout_ms;
    if (pgsql->db.holds_lock)
        return skr_pgsql_exec(pgsql, sql, error);
    snprintf(text, sizeof(text),
             "%s; SET LOCAL idle_in_transaction_session_timeout = %lld", sql,
             (long long)bound_ms);
    return skr_pgsql_exec(pgsql, text, error);
}

static enum skr_code
pgsql_begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    // The server would only warn, and go on in the one that is open.
    if (pgsql->is_begin_due ||
        PQtransactionStatus(pgsql->connection) == PQTRANS_INTRANS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a transaction is open already");
    pgsql->is_guarded = pgsql->is_begin_due = mode == SKR_BEGIN_GUARDED;
    if (pgsql->is_begin_due)
        return SKR_OK;
    bool is_reader = pgsql->followed.table[0] != '\0';
    const char *sql = begin_sql[mode][is_reader];
    return mode == SKR_BEGIN_SNAPSHOT ? skr_pgsql_exec(pgsql, sql, error)
                                      : begin_bounded(pgsql, sql, error);
}

enum skr_code
skr_pgsql_begin_now(struct skr_pgsql *pgsql, struct skr_error *error)
{
    if (!pgsql->is_begin_due)
        return SKR_OK;
    pgsql->is_begin_due = false;
    return skr_pgsql_exec(
        pgsql, "BEGIN ISOLATION LEVEL READ COMMITTED; SAVEPOINT skr", error);
}

static void
pgsql_rollback(struct skr_db *db)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    pgsql->is_begin_due = false;
    PGTransactionStatusType status = PQtransactionStatus(pgsql->connection);
    // Also where a COPY was left behind: it is ended first.
    if (status == PQTRANS_IDLE || status == PQTRANS_UNKNOWN)
        return;
    enum skr_code ignored = skr_pgsql_exec(pgsql, "ROLLBACK", NULL);
    (void)ignored;
}

static enum skr_code
pgsql_commit(struct skr_db *db, struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    struct skr_tx tx = skr_db_tx(db);
    if (pgsql->is_begin_due) {
        pgsql->is_begin_due = false;
        return SKR_OK;
    }
    // COMMIT says yes to a transaction that has failed, and rolls it back.
    enum skr_code code = tx.ops->check(tx, error);
    // The savepoint is gone with the transaction that it was made in, and where
    // the first of two statements fails the server does not run the second.
    if (code == SKR_OK)
        code = skr_pgsql_exec(
            pgsql,
            pgsql->is_guarded ? "RELEASE SAVEPOINT skr; COMMIT" : "COMMIT",
            error);
    if (code != SKR_OK)
        pgsql_rollback(db);
    return code;
}

static const char *const file_parameters[] = {"sslrootcert", "sslcert",
                                              "sslkey", NULL};

const struct skr_db_ops skr_pgsql_db = {
    .scheme = "pgsql",
    .size = sizeof(struct skr_pgsql),
    .tx = &skr_pgsql_own_tx,
    .check_url = check_url,
    .exposure = find_exposure,
    .files = {.parameters = file_parameters},
    .open = pgsql_open,
    .close = pgsql_close,
    .begin = pgsql_begin,
    .commit = pgsql_commit,
    .rollback = pgsql_rollback,
    .locks = &skr_pgsql_locks,
    .follow = skr_pgsql_follow,
    .plan_by_index = skr_pgsql_plan_by_index,
    .wait = skr_pgsql_wait,
    .advise = skr_db_advise_nothing,
};
