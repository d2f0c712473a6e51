// SPDX-License-Identifier: MIT
// The inside of the MariaDB and MySQL driver, shared by its files alone.

#ifndef SKR_DB_MYSQL_CONNECTION_H
#define SKR_DB_MYSQL_CONNECTION_H

#include "base/url.h"
#include "db/db.h"
#include "db/mysql/doorbell.h"
#include "db/pace.h"
#include "db/sql.h"

#include <skirnir/mysql.h>

enum {
    SKR_MYSQL_CACHE_SIZE = 64,
    SKR_MYSQL_LOCK_NAME_SIZE = 64 + 1,  // what servers allow
};

struct skr_mysql_prepared {
    MYSQL_STMT *handle;
    char *sql;
    uint64_t used_at;
    bool is_busy;  // its rows are being read
};

// Prepared statements by their text.
struct skr_mysql_cache {
    struct skr_mysql_prepared entries[SKR_MYSQL_CACHE_SIZE];
    size_t count;
    uint64_t uses;
};

struct skr_mysql_rows;

enum skr_mysql_wake {
    SKR_MYSQL_WAKE_AUTO,    // by the binary log where it can be
    SKR_MYSQL_WAKE_BINLOG,  // the same, and it is a warning where it cannot
    SKR_MYSQL_WAKE_POLL,
};

// How wait() learns of new rows.
struct skr_mysql_waking {
    enum skr_mysql_wake mode;
    int64_t most_bytes;  // of other tables a second, in the binary log
    struct skr_url url;  // of the doorbell's session
    char table[SKR_MYSQL_TABLE_SIZE];     // that is followed; "": none
    struct skr_mysql_doorbell *doorbell;  // NULL: none yet
    enum skr_mysql_doorbell_state state;  // as it was last heard
    bool was_own_look;                    // the last, without a ring
    bool was_ring_look;                   // or for one
    uint32_t untold;       // finds without a ring, since one with a ring
    uint64_t rings;        // for which no rows were found yet
    int64_t ring_look_ms;  // when to look for those; 0: there are none
    size_t tries;          // looks for them so far
    uint32_t vain_looks;   // for rings, since rows were last found
    int64_t looked_at_ms;
    bool has_said;
    char said[sizeof(((struct skr_error *)NULL)->text)];
};

struct skr_mysql {
    struct skr_db db;
    MYSQL *connection;
    unsigned timeout_s;  // for which the server may be silent
    struct skr_mysql_cache cache;
    // Rows that are still on their way to us: nothing else can be sent before
    // they have been taken in.
    struct skr_mysql_rows *coming;
    uint64_t max_packet;  // what the server takes at most

    bool has_begun;
    bool is_guarded;  // the transaction, by a savepoint
    // For how long the server lets a transaction be silent; 0: for ever. On
    // MySQL this bounds the session, which rests for longer.
    unsigned bound_s;
    // There is one, at the beginning of this transaction or of the next.
    bool has_savepoint;
    // The server has said that the transaction is open: it does not before the
    // first statement of one that was not begun by name.
    bool was_open;
    // Inside a transaction autocommit is off: should the server have rolled it
    // back (a deadlock), what is written next must not commit by itself. It is
    // switched on again when a statement comes outside of one.
    bool autocommit_is_off;
    bool is_rolled_back;  // by the server, before its time

    char gate[SKR_MYSQL_LOCK_NAME_SIZE];       // of the lock that is tried for
    char lock_name[SKR_MYSQL_LOCK_NAME_SIZE];  // "": none is held
    bool attends;  // by a numbered lock that no session waits for

    struct skr_pace pace;
    struct skr_mysql_waking waking;
};

// Whether the server says that a transaction is open.
static inline bool
skr_mysql_is_open(const struct skr_mysql *mysql)
{
    return (mysql->connection->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

// A connection that never was open knows nothing of its server.
static inline const char *
skr_mysql_product(MYSQL *connection)
{
    if (mysql_get_server_info(connection) == NULL)
        return "MariaDB or MySQL";
    return mariadb_connection(connection) ? "MariaDB" : "MySQL";
}

extern const struct skr_dialect skr_mysql_dialect;
extern const struct skr_tx_ops skr_mysql_own_tx;
extern const struct skr_lock_ops skr_mysql_locks;

// For the driver's own statements: what is counted or made to fail around the
// connection are the statements of its caller.
static inline struct skr_tx
skr_mysql_own(struct skr_mysql *mysql)
{
    return (struct skr_tx){.ops = &skr_mysql_own_tx, .connection = mysql};
}

// mysql.c: statements commit by themselves from here on. What is open is
// committed by that.
SKR_MUST_CHECK enum skr_code
skr_mysql_autocommit(struct skr_mysql *mysql, struct skr_error *error);

// errors.c: from the connection's last error, and from errno, which is 0 before
// a call that may fail: that the server was silent for too long is told there.
enum skr_code skr_mysql_fail(MYSQL *connection, struct skr_error *error);
// From a statement's last error, or the connection's where it has none.
enum skr_code skr_mysql_fail_statement(MYSQL *connection, MYSQL_STMT *handle,
                                       struct skr_error *error);
// For a server that can only be read.
enum skr_code skr_mysql_fail_read_only(MYSQL *connection, const char *reason,
                                       struct skr_error *error);
#define SKR_MYSQL_OFFERS_NO_TLS                                             \
    "the server offers no TLS: set ssl_cert, ssl_key and ssl_ca there, or " \
    "ssl=0 "                                                                \
    "in the DSN if nobody can listen in between"
enum skr_code skr_mysql_fail_silent(MYSQL *connection, unsigned timeout_s,
                                    struct skr_error *error);

// statement.c: own is NULL for a connection that is not ours.
SKR_MUST_CHECK enum skr_code
skr_mysql_run(MYSQL *connection, struct skr_mysql *own,
              const struct skr_statement *statement, struct skr_error *error);
// A text without parameters or rows, such as COMMIT: one round trip.
SKR_MUST_CHECK enum skr_code
skr_mysql_exec(MYSQL *connection, const char *sql, uint64_t *affected,
               struct skr_error *error);
// The same for one that comes often: the server reads its text once.
SKR_MUST_CHECK enum skr_code
skr_mysql_exec_prepared(struct skr_mysql *mysql, const char *sql,
                        struct skr_error *error);
// After the connection was closed: nothing is sent.
void skr_mysql_cache_clear(struct skr_mysql_cache *cache);

// wait.c
skr_db_follow_fn skr_mysql_follow;
skr_db_wait_fn skr_mysql_wait;

// lock.c: the server's name for a lock of a database.
void skr_mysql_lock_name(const char *database, const char *name,
                         char text[SKR_MYSQL_LOCK_NAME_SIZE]);

// Tells the server for how long this session may be silent, by whether it holds
// a lock.
SKR_MUST_CHECK enum skr_code
skr_mysql_bound_silence(struct skr_mysql *mysql, struct skr_error *error);

#endif
