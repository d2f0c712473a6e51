// SPDX-License-Identifier: MIT
// The inside of the PostgreSQL driver, shared by its files alone.

#ifndef SKR_DB_PGSQL_CONNECTION_H
#define SKR_DB_PGSQL_CONNECTION_H

#include "base/backoff.h"
#include "db/db.h"
#include "db/pace.h"
#include "db/sql.h"

#include <skirnir/pgsql.h>

enum { SKR_PGSQL_CACHE_SIZE = 64 };

// Prepared statements by their text and by the kinds of what is bound.
struct skr_pgsql_cache {
    struct {
        char *key;  // kinds, a colon, the text
        uint64_t number;
        uint64_t used_at;
    } entries[SKR_PGSQL_CACHE_SIZE];
    size_t count;
    uint64_t uses;
    uint64_t last_number;  // names on the server are never used twice
    // Nothing is prepared: behind a pooler the next session would not know it.
    bool is_off;
};

enum { SKR_PGSQL_TABLE_SIZE = 64, SKR_PGSQL_QUEUE_SIZE = 256 };

// The queue that is read here, and what tells of its new rows.
struct skr_pgsql_followed {
    char table[SKR_PGSQL_TABLE_SIZE];  // "": none
    char queue[SKR_PGSQL_QUEUE_SIZE];
    char place[2 * SKR_PGSQL_TABLE_SIZE];  // its schema, a dot, its name
    int64_t asked_at_ms;                   // which triggers there are

    bool has_plain;              // Symfony's: tells of every row
    bool is_heard;               // and what it tells does reach us
    bool has_armed;              // ours: tells while a reader sleeps
    bool is_armed;               // which is us
    bool was_told;               // of rows, since some were found
    int64_t armed_at_ms;         // when it was last tried, too
    int64_t linger_ms;           // how long it must be quiet before we sleep
    struct skr_backoff refused;  // before that is tried again
};

struct skr_pgsql {
    struct skr_db db;
    PGconn *connection;
    int64_t timeout_ms;  // for which the server may be silent
    bool was_silent;     // for longer, so that we have hung up
    struct skr_pgsql_cache cache;
    // What failed last, in any caller's statement: a transaction that is
    // aborted does not say why.
    char last_failure[6];
    bool is_guarded;    // the transaction, by a savepoint
    bool is_begin_due;  // it begins with the first statement

    bool has_pooler;  // another session answers than at the start

    // A lock belongs to the server's session and ends with it.
    enum skr_lock_mode lock_mode;
    int64_t lock_key;
    int64_t lock_session;             // the server's process that holds it
    struct skr_backoff lock_backoff;  // while another holds it
    bool attends;                     // by a lock that is only ever shared

    struct skr_pace pace;
    int64_t looked_at_ms;
    struct skr_pgsql_followed followed;
};

extern const struct skr_dialect skr_pgsql_dialect;
extern const struct skr_tx_ops skr_pgsql_own_tx;
extern const struct skr_lock_ops skr_pgsql_locks;

// errors.c: fills error from a result that is not what it should be; result
// may be NULL, and sql too.
enum skr_code skr_pgsql_fail(PGconn *connection, const PGresult *result,
                             const char *sql, struct skr_error *error);
// The same for a connection that could not be made. place is what was tried;
// advice may be NULL.
enum skr_code
skr_pgsql_fail_connect(PGconn *connection, const char *place,
                       const char *advice, struct skr_error *error);

// For a server that can only be read.
enum skr_code skr_pgsql_fail_read_only(PGconn *connection, const char *reason,
                                       struct skr_error *error);

// For a connection of ours on which the server was silent for too long.
enum skr_code
skr_pgsql_fail_silent(const struct skr_pgsql *pgsql, struct skr_error *error);

// Whether another transaction was in the way, by the server's state.
bool skr_pgsql_is_conflict(const char *state);

// statement.c: own is NULL for a connection that is not ours, whose calls may
// block for as long as they like.
SKR_MUST_CHECK enum skr_code
skr_pgsql_run(PGconn *connection, struct skr_pgsql *own,
              const struct skr_statement *statement, struct skr_error *error);
// A text without parameters or rows, such as COMMIT, on a connection of ours.
SKR_MUST_CHECK enum skr_code
skr_pgsql_exec(struct skr_pgsql *pgsql, const char *sql,
               struct skr_error *error);
void skr_pgsql_cache_clear(struct skr_pgsql_cache *cache);

// lock.c: tells the server for how long a session without a lock may be silent.
SKR_MUST_CHECK enum skr_code
skr_pgsql_bound_silence(struct skr_pgsql *pgsql, struct skr_error *error);

// pgsql.c: begins what is due to begin.
SKR_MUST_CHECK enum skr_code
skr_pgsql_begin_now(struct skr_pgsql *pgsql, struct skr_error *error);

// wait.c
skr_db_follow_fn skr_pgsql_follow;
skr_db_plan_by_index_fn skr_pgsql_plan_by_index;
skr_db_wait_fn skr_pgsql_wait;

#endif
