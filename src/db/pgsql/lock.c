// SPDX-License-Identifier: MIT
// A lock is an advisory lock of the server's session: it is free as soon as
// the session is over, however that comes about.
//
// Sessions that are together, or in shares, have it shared, and beside it a
// lock of their kind. A new session takes that first and then looks whether
// sessions of the other kind are there: of two that come at once at least one
// sees the other.
//
// It is asked for again and again rather than waited for on the server: there
// a waiting statement holds back the removal of dead rows, and each time-out
// would be an error in the server's log.

#include "db/pgsql/connection.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "db/run.h"

#include <stdio.h>

enum {
    LIMITS_VERSION = 140000,  // knows idle_session_timeout
};

#define FOREIGN_SESSION                                                     \
    "statements of one connection to PostgreSQL reach several sessions "    \
    "of the server, so that no lock can be held: connect past the pooler, " \
    "set its pool_mode to session, or share the queue with `claim: shared`"

// The holder's session is bounded by the server from the same statement on: one
// that is frozen loses the lock within 15 seconds. One whose host is gone, or
// that stopped reading an answer under way, does so by the limits that every
// session of ours has.
// Parameter: key. A row is the session, and means that the lock is ours.
#define LOCK(function)                                                 \
    "SELECT pg_backend_pid(), "                                        \
    "set_config('idle_session_timeout', '15s', false), "               \
    "set_config('idle_in_transaction_session_timeout', '15s', false) " \
    "FROM (SELECT " function "($1) AS is_ours OFFSET 0) AS attempt "   \
    "WHERE is_ours"
#define UNLOCK(function)        \
    "SELECT " function "($1), " \
    "set_config('idle_session_timeout', NULL, false)"

// By mode.
static const char *const lock_sql[] = {
    [SKR_LOCK_ALONE] = LOCK("pg_try_advisory_lock"),
    [SKR_LOCK_TOGETHER] = LOCK("pg_try_advisory_lock_shared"),
    [SKR_LOCK_IN_SHARES] = LOCK("pg_try_advisory_lock_shared"),
};
static const char *const unlock_sql[] = {
    [SKR_LOCK_ALONE] = UNLOCK("pg_advisory_unlock"),
    [SKR_LOCK_TOGETHER] = UNLOCK("pg_advisory_unlock_shared"),
    [SKR_LOCK_IN_SHARES] = UNLOCK("pg_advisory_unlock_shared"),
};
// Parameter: the key of a kind.
static const char lock_kind_sql[] =
    "SELECT CASE WHEN pg_try_advisory_lock_shared($1) THEN 1 ELSE 0 END";
static const char unlock_kind_sql[] = "SELECT pg_advisory_unlock_shared($1)";

// Of a row of pg_locks. Parameter: key.
#define IS_LOCK                                                 \
    "l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 " \
    "AND (CAST(CAST(l.classid AS BIGINT) << 32 AS BIGINT) | "   \
    "CAST(l.objid AS BIGINT)) = $1"
#define IS_OF_DATABASE                           \
    "l.database = (SELECT oid FROM pg_database " \
    "WHERE datname = current_database())"

// Whether the session that this reaches has the lock, in whatever mode.
// Parameter: key.
static const char is_taken_sql[] =
    "SELECT COUNT(*) FROM pg_locks AS l WHERE l.pid = pg_backend_pid() "
    "AND " IS_LOCK;

// How many sessions of this database have it. Parameter: key.
static const char count_sql[] =
    "SELECT COUNT(*) FROM pg_locks AS l WHERE " IS_LOCK " AND " IS_OF_DATABASE;

static const char session_sql[] = "SELECT pg_backend_pid()";
// The same; 0 from a server that can no longer be written.
static const char writable_session_sql[] =
    "SELECT CASE WHEN pg_is_in_recovery() OR "
    "current_setting('default_transaction_read_only') = 'on' "
    "THEN 0 ELSE pg_backend_pid() END";

static int64_t
key_of(const char *name)
{
    return (int64_t)skr_hash_add_text(skr_hash_start(), name).low;
}

// Of the sessions that have the lock in this mode; it is not the lock's own.
static int64_t
kind_key(int64_t key, enum skr_lock_mode mode)
{
    return (int64_t)((uint64_t)key + (uint64_t)mode);
}

static enum skr_code
ask(struct skr_pgsql *pgsql, const char *sql, int64_t *number,
    struct skr_error *error)
{
    return skr_sql_number(skr_db_tx(&pgsql->db), sql, SKR_NO_VALUES, number,
                          error);
}

static enum skr_code
ask_key(struct skr_pgsql *pgsql, const char *sql, int64_t key, int64_t *number,
        struct skr_error *error)
{
    return skr_sql_number(skr_db_tx(&pgsql->db), sql, skr_values("%jd", key),
                          number, error);
}

// A transaction whose client is gone would hold its locks for as long as
// something between the two keeps the connection. Twice the time after which a
// client would give up in its turn, as a handler may be busy; begin() gives
// transactions without one less. Not behind a pooler, which may give the
// session to others.
enum skr_code
skr_pgsql_bound_silence(struct skr_pgsql *pgsql, struct skr_error *error)
{
    char sql[80] = "RESET idle_in_transaction_session_timeout";
    if (!pgsql->has_pooler)
        snprintf(sql, sizeof(sql),
                 "SET idle_in_transaction_session_timeout = %lld",
                 2 * (long long)pgsql->timeout_ms);
    return skr_pgsql_exec(pgsql, sql, error);
}

// A second connection to the same place.
static PGconn *
connect_again(PGconn *connection)
{
    const char *names[64], *values[64];
    size_t count = 0;
    PQconninfoOption *options = PQconninfo(connection);
    if (options == NULL)
        return NULL;
    for (size_t i = 0; options[i].keyword != NULL; i++) {
        if (options[i].val == NULL || count + 2 == SKR_COUNT_OF(names))
            continue;
        names[count] = options[i].keyword;
        values[count++] = options[i].val;
    }
    names[count] = "connect_timeout";
    values[count++] = "10";
    names[count] = NULL;
    values[count] = NULL;
    PGconn *made = PQconnectdbParams(names, values, 0);
    PQconninfoFree(options);
    return made;
}

// A pooler that gives out sessions by the transaction gives the one that has
// just answered us to the next client; one that gives them for good does not.
static enum skr_code
refuse_shared_session(struct skr_pgsql *pgsql, struct skr_error *error)
{
    int64_t ours = 0, theirs = 0;
    enum skr_code code = SKR_OK;
    PGconn *other = connect_again(pgsql->connection);
    struct skr_pgsql second = {.db.ops = pgsql->db.ops,
                               .connection = other,
                               .timeout_ms = pgsql->timeout_ms,
                               .cache = {.is_off = true}};
    // What it has asked before must not stand between the two answers.
    if (PQstatus(other) == CONNECTION_OK)
        code = ask(pgsql, session_sql, &ours, error);
    if (code == SKR_OK && ours != 0)
        code = ask(&second, session_sql, &theirs, error);
    PQfinish(other);
    if (code == SKR_OK && ours != 0 && ours == theirs)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, FOREIGN_SESSION);
    return code;
}

static enum skr_code
pgsql_check_lock(struct skr_db *db, struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    // An answer of the same session is the proof: nothing but its end, or its
    // own word, takes the lock away. Looking into pg_locks would make every
    // session of the server wait.
    int64_t session = 0;
    enum skr_code code = ask(pgsql, writable_session_sql, &session, error);
    if (code == SKR_OK && session == 0)
        code = skr_pgsql_fail_read_only(pgsql->connection,
                                        "it has become read-only", error);
    if (code == SKR_OK && session != pgsql->lock_session)
        code = skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT, FOREIGN_SESSION);
    if (code == SKR_OK)
        return SKR_OK;
    // Whatever the answer was, it was no proof.
    if (error != NULL) {
        error->code = SKR_UNAVAILABLE;
        error->remedy = SKR_RECONNECT;
    }
    return SKR_UNAVAILABLE;
}

// A pooler may hand us a session whose last user has taken the lock: the server
// would give it to us as well. Both statements reach one session.
static enum skr_code
take_lock_behind_pooler(struct skr_pgsql *pgsql, int64_t key,
                        enum skr_lock_mode mode, int64_t *session,
                        struct skr_error *error)
{
    int64_t is_taken = 0;
    enum skr_code code = skr_db_begin(&pgsql->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = ask_key(pgsql, is_taken_sql, key, &is_taken, error);
    if (code == SKR_OK && is_taken > 0)
        code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, FOREIGN_SESSION);
    if (code == SKR_OK)
        code = ask_key(pgsql, lock_sql[mode], key, session, error);
    return skr_db_end(&pgsql->db, code, error);
}

static void
drop_lock(struct skr_pgsql *pgsql, int64_t key, enum skr_lock_mode mode)
{
    int64_t number = 0;
    enum skr_code ignored = SKR_OK;
    if (mode != SKR_LOCK_ALONE)
        ignored =
            ask_key(pgsql, unlock_kind_sql, kind_key(key, mode), &number, NULL);
    ignored = ask_key(pgsql, unlock_sql[mode], key, &number, NULL);
    ignored = skr_pgsql_bound_silence(pgsql, NULL);
    (void)ignored;
}

// Joins those of our kind, unless there are some of the other.
static enum skr_code
join_kind(struct skr_pgsql *pgsql, int64_t key, enum skr_lock_mode mode,
          bool *has_joined, struct skr_error *error)
{
    int64_t ours = kind_key(key, mode);
    int64_t theirs =
        kind_key(key, mode == SKR_LOCK_TOGETHER ? SKR_LOCK_IN_SHARES
                                                : SKR_LOCK_TOGETHER);
    int64_t is_taken = 0, others = 0;
    enum skr_code code = ask_key(pgsql, lock_kind_sql, ours, &is_taken, error);
    if (code == SKR_OK)
        code = ask_key(pgsql, count_sql, theirs, &others, error);
    *has_joined = code == SKR_OK && is_taken == 1 && others == 0;
    return code;
}

static enum skr_code
try_lock(struct skr_pgsql *pgsql, int64_t key, enum skr_lock_mode mode,
         bool *granted, struct skr_error *error)
{
    int64_t session = 0, answering = 0;
    enum skr_code code =
        pgsql->has_pooler
            ? take_lock_behind_pooler(pgsql, key, mode, &session, error)
            : ask_key(pgsql, lock_sql[mode], key, &session, error);
    if (code != SKR_OK || session == 0)
        return code;
    // Behind a pooler this statement may already reach another session.
    code = ask(pgsql, session_sql, &answering, error);
    if (code == SKR_OK && answering != session)
        code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP, FOREIGN_SESSION);
    bool has_joined = mode == SKR_LOCK_ALONE;
    if (code == SKR_OK && !has_joined)
        code = join_kind(pgsql, key, mode, &has_joined, error);
    if (code == SKR_OK && !has_joined)
        drop_lock(pgsql, key, mode);
    if (code != SKR_OK || !has_joined)
        return code;
    *granted = true;
    pgsql->lock_mode = mode;
    pgsql->lock_key = key;
    pgsql->lock_session = session;
    return SKR_OK;
}

// Whether a lock of this server can be relied on.
static enum skr_code
check_server(struct skr_pgsql *pgsql, struct skr_error *error)
{
    int version = PQserverVersion(pgsql->connection);
    // A connection that is lost has none.
    if (version > 0 && version < LIMITS_VERSION)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "this PostgreSQL server cannot take a lock away from "
                        "a frozen holder; version 14 is needed, or `claim: "
                        "shared`");
    return pgsql->has_pooler ? refuse_shared_session(pgsql, error) : SKR_OK;
}

static enum skr_code
pgsql_try_lock(struct skr_db *db, struct skr_lock_attempt *attempt,
               struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    enum skr_code code =
        attempt->is_first ? check_server(pgsql, error) : SKR_OK;
    if (code == SKR_OK)
        code = try_lock(pgsql, key_of(attempt->name), attempt->mode,
                        &attempt->granted, error);
    if (attempt->granted)
        skr_backoff_reset(&pgsql->lock_backoff);
    else
        attempt->pause_ms = skr_backoff_next(&pgsql->lock_backoff);
    return code;
}

static void
pgsql_unlock(struct skr_db *db)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    // In a transaction that failed no statement would be run.
    db->ops->rollback(db);
    drop_lock(pgsql, pgsql->lock_key, pgsql->lock_mode);
}

// Parameter: key.
static const char holder_sql[] =
    "SELECT CONCAT('session ', l.pid, ' from ', "
    "COALESCE(host(a.client_addr), 'this host')) "
    "FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid "
    "WHERE " IS_LOCK " AND " IS_OF_DATABASE " LIMIT 1";

static enum skr_code
pgsql_holder(struct skr_db *db, const char *name, char holder[SKR_HOLDER_SIZE],
             struct skr_error *error)
{
    return skr_sql_text(skr_db_tx(db), holder_sql,
                        skr_values("%jd", key_of(name)), holder,
                        SKR_HOLDER_SIZE, error);
}

// Behind a pooler a session, and what it shows, may be another's next.
static enum skr_code
pgsql_attend(struct skr_db *db, const char *name, struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    int64_t number = 0;
    if (pgsql->has_pooler)
        return SKR_OK;
    if (pgsql->attends)
        return ask(pgsql, session_sql, &number, error);
    enum skr_code code =
        ask_key(pgsql, lock_kind_sql, key_of(name), &number, error);
    pgsql->attends = code == SKR_OK;
    return code;
}

static enum skr_code
pgsql_attendance(struct skr_db *db, const char *name, int64_t *count,
                 struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    *count = -1;
    if (pgsql->has_pooler)
        return SKR_OK;
    return ask_key(pgsql, count_sql, key_of(name), count, error);
}

const struct skr_lock_ops skr_pgsql_locks = {
    .shared_tries = 3,
    .try_lock = pgsql_try_lock,
    .check = pgsql_check_lock,
    .unlock = pgsql_unlock,
    .holder = pgsql_holder,
    .attend = pgsql_attend,
    .attendance = pgsql_attendance,
};
