// SPDX-License-Identifier: MIT
// The PostgreSQL driver: our own connections.

#include "db/pgsql/connection.h"

#include "base/error.h"
#include "base/url.h"

#include <libpq-events.h>
#include <stdio.h>
#include <string.h>

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

static enum skr_code
pgsql_open(struct skr_db *db, const struct skr_url *url,
           struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    enum skr_code code = skr_pgsql_connect(pgsql, url, error);
    if (code == SKR_OK &&
        !PQregisterEventProc(pgsql->connection, note_failure, "skirnir", pgsql))
        return skr_fail_memory(error);
    if (code == SKR_OK)
        code = skr_pgsql_look_for_pooler(pgsql, error);
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
    skr_pgsql_unlock(db);
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

// Together with its bound, in one round trip. The session of a lock is bounded
// already.
static enum skr_code
begin_bounded(struct skr_pgsql *pgsql, const char *sql, struct skr_error *error)
{
    char text[320];
    int64_t bound_ms = SKR_SILENT_TRANSACTION_S * INT64_C(1000);
    if (bound_ms > 2 * pgsql->timeout_ms)
        bound_ms = 2 * pgsql->timeout_ms;
    if (pgsql->holds_lock)
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
    const char *sql = NULL;
    pgsql->is_guarded = pgsql->is_begin_due = mode == SKR_BEGIN_GUARDED;
    bool is_reader = pgsql->followed.table[0] != '\0';
    switch (mode) {
    case SKR_BEGIN_GUARDED: return SKR_OK;
    case SKR_BEGIN_WRITE:
        sql = "BEGIN ISOLATION LEVEL READ COMMITTED";
        return begin_bounded(pgsql, sql, error);
    case SKR_BEGIN_CLAIM:
        if (is_reader)
            sql = "BEGIN ISOLATION LEVEL READ COMMITTED";
        else
            sql = "BEGIN ISOLATION LEVEL READ COMMITTED" BY_INDEX ONE_PLAN;
        return begin_bounded(pgsql, sql, error);
    case SKR_BEGIN_SNAPSHOT:
        if (is_reader)
            sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        else
            sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" BY_INDEX;
        break;
    }
    return skr_pgsql_exec(pgsql, sql, error);
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

void
skr_pgsql_rollback(struct skr_db *db)
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
        skr_pgsql_rollback(db);
    return code;
}

static const char *const file_parameters[] = {"sslrootcert", "sslcert",
                                              "sslkey", NULL};
static const struct skr_url_files files = {.parameters = file_parameters};

const struct skr_db_ops skr_pgsql_db = {
    .scheme = "pgsql",
    .size = sizeof(struct skr_pgsql),
    .tx = &skr_pgsql_own_tx,
    .check_url = skr_pgsql_check_url,
    .exposure = skr_pgsql_exposure,
    .files = &files,
    .open = pgsql_open,
    .close = pgsql_close,
    .begin = pgsql_begin,
    .commit = pgsql_commit,
    .rollback = skr_pgsql_rollback,
    .lock = skr_pgsql_lock,
    .check_lock = skr_pgsql_check_lock,
    .unlock = skr_pgsql_unlock,
    .holder = skr_pgsql_holder,
    .attend = skr_pgsql_attend,
    .attendance = skr_pgsql_attendance,
    .follow = skr_pgsql_follow,
    .plan_by_index = skr_pgsql_plan_by_index,
    .wait = skr_pgsql_wait,
};
