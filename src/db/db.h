// SPDX-License-Identifier: MIT
// What a database driver provides: a connection, statements, transactions, a
// lock that dies with the connection, and a way to wait. It knows nothing of
// messages; tables (src/store) are written once on top of it.
//
// A connection is used by one thread. Calls may block, but not for longer than
// the server is silent for the timeout in the URL: then they end with
// SKR_UNAVAILABLE and SKR_RECONNECT, all further ones do so at once, and
// close() does not wait. The time that a caller asks to wait for comes on top.
// On an application's connection they block for as long as it lets them. Native
// errors become a code and a remedy in one place per driver.

#ifndef SKR_DB_DB_H
#define SKR_DB_DB_H

#include "base/host.h"
#include "base/url.h"

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_log;
struct skr_dialect;

enum skr_value_kind { SKR_NULL, SKR_INTEGER, SKR_TEXT, SKR_BLOB };

// A bound parameter or a column. Text is not zero-terminated when bound; a
// column's is.
struct skr_value {
    enum skr_value_kind kind;
    int64_t integer;
    const void *bytes;
    size_t size;
};

struct skr_value skr_bind_integer(int64_t integer);
struct skr_value skr_bind_text(const char *text);  // NULL: SQL NULL
struct skr_value skr_bind_bytes(const void *bytes, size_t size);
struct skr_value skr_bind_blob(const void *bytes, size_t size);
struct skr_value skr_bind_id(const struct skr_id *id);  // its 16 bytes

// Called for each row; the values are borrowed for the call. An error ends the
// statement and is what run() returns.
typedef enum skr_code skr_row_fn(const struct skr_value *columns, size_t count,
                                 void *user, struct skr_error *error);

// Every driver takes so many values in a statement.
enum { SKR_MOST_VALUES = 520 };

struct skr_statement {
    const char *sql;  // one statement, parameters as the dialect writes them
    const struct skr_value *values;
    size_t value_count;
    skr_row_fn *each_row;  // NULL: rows are ignored
    void *user;
    uint64_t *affected;  // NULL: not wanted
    // The server may be silent for SKR_LONG_TIMEOUT_S, as when it makes an
    // index of a large table. Only without values and rows.
    bool takes_long;
};
enum { SKR_LONG_TIMEOUT_S = 3600 };

// Runs one statement on an open connection. SKR_DUPLICATE for a violated
// unique key, SKR_MISSING for a table that does not exist.
typedef enum skr_code
skr_tx_run_fn(struct skr_tx tx, const struct skr_statement *statement,
              struct skr_error *error);

// SKR_OK, or SKR_NO_TRANSACTION when what is written would commit by itself.
// On a connection of our own SKR_CONFLICT says that the transaction can only be
// rolled back, since another one was in its way.
typedef enum skr_code
skr_tx_check_fn(struct skr_tx tx, struct skr_error *error);

struct skr_tx_ops {
    const struct skr_dialect *dialect;
    skr_tx_run_fn *run;
    skr_tx_check_fn *check;
};

// The first member of every driver's own struct.
struct skr_db {
    const struct skr_db_ops *ops;
    // Set by a reader that found rows: wait() then looks again soon.
    bool found_rows;
    bool holds_lock;  // by skr_db_lock()
    bool may_create;  // for open()
    // Where wait() says how it learns of rows, and as whom; set by the owner of
    // the connection, borrowed. NULL: nowhere.
    const struct skr_log *log;
    const char *name;

    // Filled by open(). Whose rows these are: one number for all connections
    // to a server, or to a cluster whose nodes have the same rows. An id that
    // was read from one may mean another row elsewhere, as on a replica that
    // became the primary without the last rows. 0: a file.
    uint64_t server;
    // One number for all connections to a file, under whatever name: there the
    // transaction of one keeps all others from writing. 0: a server.
    uint64_t file;
    // A node of a Galera cluster, or one of several primaries of a MySQL group:
    // its locks, and the transactions that it knows to be open, are its own,
    // and the other servers have others.
    bool is_cluster;
    // Why nothing can be written here; SKR_OK: something can.
    struct skr_error read_only;
    // Why a host was passed over that can only be read; SKR_OK: none was.
    struct skr_error passed_over;
};

// SKR_INVALID when no database can be at this URL, whatever the server says: a
// part that is missing or means nothing, an unknown parameter, a bad value. The
// text repeats no password. Asks no server; open() refuses the same.
typedef enum skr_code
skr_db_check_url_fn(const struct skr_url *url, struct skr_error *error);
// Where the URL names several hosts: the first of them that can be written; one
// that can only be read where there is no other. SKR_MISSING: the database
// itself does not exist; where it is a file, and may_create says so, an empty
// one is made.
typedef enum skr_code
skr_db_open_fn(struct skr_db *db, const struct skr_url *url,
               struct skr_error *error);
// Safe after an open() that failed; rolls back and frees locks.
typedef void skr_db_close_fn(struct skr_db *db);

// A process that is frozen, or cut off, in a transaction keeps its rows locked:
// the server rolls back a transaction of ours in which it hears nothing for so
// long. In a guarded one a handler may be busy for twice the timeout in the
// URL.
enum { SKR_SILENT_TRANSACTION_S = 15 };

enum skr_begin {
    SKR_BEGIN_WRITE,     // READ COMMITTED where there is a choice
    SKR_BEGIN_GUARDED,   // the same, to run statements that are not ours; it
                         // may travel with the first, and fail with it
    SKR_BEGIN_CLAIM,     // the same, to look for rows and mark them
    SKR_BEGIN_SNAPSHOT,  // every statement sees one state; writes nothing
};

typedef enum skr_code skr_db_begin_fn(struct skr_db *db, enum skr_begin mode,
                                      struct skr_error *error);
// When it fails the transaction is over, and SKR_RECONNECT as remedy means
// that it is unknown whether it was committed. SKR_NO_TRANSACTION: there is
// none to commit; or, if it was guarded, not the one that was begun, since a
// statement or the server has ended that.
typedef enum skr_code
skr_db_commit_fn(struct skr_db *db, struct skr_error *error);
// Harmless outside a transaction. Never fails: a connection that cannot roll
// back fails at its next statement.
typedef void skr_db_rollback_fn(struct skr_db *db);

// A connection that holds a lock alone keeps out all others. Connections that
// hold it together keep out all but each other, and so do those that hold it in
// shares: there are two ways to work side by side, which do not mix.
enum skr_lock_mode {
    SKR_LOCK_ALONE,
    SKR_LOCK_TOGETHER,
    SKR_LOCK_IN_SHARES,
};

// An attempt of skr_db_lock() to get a lock.
struct skr_lock_attempt {
    const char *name;
    enum skr_lock_mode mode;
    bool is_first;   // of its call
    int64_t end_ms;  // of the time that the caller waits, by skr_clock_ms()
    // Filled in: whether the lock is held, and if not how long to wait before
    // the next attempt.
    bool granted;
    int64_t pause_ms;
};
// Tries once for a lock that ends with this connection at the latest. It may
// wait on the server for a part of the time that is left. The driver bounds how
// long the server keeps a silent connection alive, so that a frozen holder
// loses the lock.
typedef enum skr_code
skr_db_try_lock_fn(struct skr_db *db, struct skr_lock_attempt *attempt,
                   struct skr_error *error);
// Of a connection that holds one.
typedef enum skr_code
skr_db_check_lock_fn(struct skr_db *db, struct skr_error *error);
typedef void skr_db_unlock_fn(struct skr_db *db);

// Tells that this connection reads a queue of a table from now on, and waits
// for it: statements are planned for that, and where something in the database
// tells of new rows, wait() listens to it. One queue a connection; again for
// the same one is harmless.
typedef enum skr_code
skr_db_follow_fn(struct skr_db *db, const char *table, const char *queue,
                 struct skr_error *error);
// Tells that this connection runs statements of ours alone, which reach rows by
// indexes: they are planned so, whatever size the table has when they are
// planned. A plan is kept for long, and tables grow.
typedef enum skr_code
skr_db_plan_by_index_fn(struct skr_db *db, struct skr_error *error);
// Says who holds a lock, alone or together with others, without taking it: for
// people, such as "session 42 from 10.0.0.7". "": it is free.
enum { SKR_HOLDER_SIZE = 96 };
typedef enum skr_code
skr_db_holder_fn(struct skr_db *db, const char *name,
                 char holder[SKR_HOLDER_SIZE], struct skr_error *error);

// Shows under a name that this connection is there, until it is closed: any
// number of connections may, and none is kept out. Again with the same name it
// proves that the connection still does; a connection has one. Where the server
// has no means to count sessions, nothing is shown and nothing fails.
typedef enum skr_code
skr_db_attend_fn(struct skr_db *db, const char *name, struct skr_error *error);
// How many connections are shown under a name; negative: that cannot be known.
typedef enum skr_code
skr_db_attendance_fn(struct skr_db *db, const char *name, int64_t *count,
                     struct skr_error *error);

// Returns SKR_OK when there may be new rows since the last call, SKR_TIMEOUT
// when not, and SKR_STOPPED as soon as wake_fd is readable.
typedef enum skr_code
skr_db_wait_fn(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error);

// Says in one line what would make this database serve better, or "" when
// nothing would; changes it only when told to.
enum { SKR_ADVICE_SIZE = 240 };
typedef enum skr_code
skr_db_advise_fn(struct skr_db *db, bool change, char advice[SKR_ADVICE_SIZE],
                 struct skr_error *error);

struct skr_lock_ops {
    // How often a connection that is to share a lock tries at least, as one of
    // the other kind may look in for a moment.
    int shared_tries;
    skr_db_try_lock_fn *try_lock;
    skr_db_check_lock_fn *check;
    skr_db_unlock_fn *unlock;
    skr_db_holder_fn *holder;
    skr_db_attend_fn *attend;
    skr_db_attendance_fn *attendance;
};

struct skr_db_ops {
    const char *scheme;  // "mysql", "pgsql", "sqlite"
    size_t size;         // of the driver's struct; allocated zeroed
    bool is_file;        // a database is one
    // For our own connection: statements are prepared once per text.
    const struct skr_tx_ops *tx;

    skr_db_check_url_fn *check_url;
    skr_exposure_fn *exposure;
    struct skr_url_files files;
    skr_db_open_fn *open;
    skr_db_close_fn *close;
    skr_db_begin_fn *begin;
    skr_db_commit_fn *commit;
    skr_db_rollback_fn *rollback;
    const struct skr_lock_ops *locks;
    skr_db_follow_fn *follow;
    skr_db_plan_by_index_fn *plan_by_index;
    skr_db_wait_fn *wait;
    skr_db_advise_fn *advise;
};

// For a driver that has nothing to do there.
skr_db_follow_fn skr_db_follow_nothing;
skr_db_plan_by_index_fn skr_db_plan_nothing;
skr_db_advise_fn skr_db_advise_nothing;

// SKR_REFUSED with SKR_RECONNECT: nothing can be written there; SKR_INVALID:
// nothing ever will be, as it is a file.
SKR_MUST_CHECK enum skr_code
skr_db_open(const struct skr_db_ops *ops, const char *url, struct skr_db **db,
            struct skr_error *error);
// The same for a caller that only reads.
SKR_MUST_CHECK enum skr_code
skr_db_open_to_read(const struct skr_db_ops *ops, const char *url,
                    struct skr_db **db, struct skr_error *error);
// The same, but where there is no such database it may be made.
SKR_MUST_CHECK enum skr_code
skr_db_open_or_create(const struct skr_db_ops *ops, const char *url,
                      bool may_create, struct skr_db **db,
                      struct skr_error *error);
void skr_db_close(struct skr_db *db);
// Whether the session is still there.
SKR_MUST_CHECK enum skr_code
skr_db_check_alive(struct skr_db *db, struct skr_error *error);

// For drivers: refuses a file that one of these parameters, ending with NULL,
// names and that cannot be read. Client libraries pass over it, or do not say
// which one it is.
SKR_MUST_CHECK enum skr_code
skr_db_check_files(const struct skr_url *url, const char *const *parameters,
                   struct skr_error *error);

// For drivers: a server was silent for longer than the timeout in the URL.
// place is "" where the caller adds it.
enum skr_code skr_db_fail_silent(const char *place, int64_t timeout_s,
                                 struct skr_error *error);

// For drivers: open_host() opens a session with a host in place of the one that
// is open, and fills in read_only. It is asked for one host of the list
// after the other, those that hung of late last, until one can be written;
// where none can, the first that can be read is open in the end, and read_only
// says why the others are no better.
struct skr_host;
typedef enum skr_code
skr_db_open_host_fn(struct skr_db *db, const struct skr_host *host,
                    const void *user, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_db_open_hosts(struct skr_db *db, const char *hosts,
                  skr_db_open_host_fn *open_host, const void *user,
                  struct skr_error *error);

struct skr_tx skr_db_tx(struct skr_db *db);
const struct skr_dialect *skr_db_dialect(const struct skr_db *db);

SKR_MUST_CHECK enum skr_code
skr_tx_run(struct skr_tx tx, const struct skr_statement *statement,
           struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_db_begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_db_commit(struct skr_db *db, struct skr_error *error);
void skr_db_rollback(struct skr_db *db);
// Ends a transaction by what has come of it: commits if that is SKR_OK.
SKR_MUST_CHECK enum skr_code
skr_db_end(struct skr_db *db, enum skr_code code, struct skr_error *error);

// Waits up to timeout_ms, or until wake_fd is readable, for a lock that ends
// with this connection at the latest; a connection holds one. holds_lock says
// whether it was granted; if not, others hold it in a way that excludes this
// one. SKR_REFUSED with SKR_GIVE_UP: no lock can be relied on here (a pooler, a
// cluster whose nodes have locks of their own, an old server), or there are too
// many holders; the text says what to do.
SKR_MUST_CHECK enum skr_code
skr_db_lock(struct skr_db *db, const char *name, enum skr_lock_mode mode,
            int wake_fd, uint32_t timeout_ms, struct skr_error *error);
// Proves that the lock is still held, on a server that can be written: SKR_OK,
// or SKR_UNAVAILABLE when not.
SKR_MUST_CHECK enum skr_code
skr_db_check_lock(struct skr_db *db, struct skr_error *error);
// Harmless where none is held.
void skr_db_unlock(struct skr_db *db);

#endif
