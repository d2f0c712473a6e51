// SPDX-License-Identifier: MIT
// The inside of the SQLite driver, shared by its files alone.

#ifndef SKR_DB_SQLITE_CONNECTION_H
#define SKR_DB_SQLITE_CONNECTION_H

#include "base/backoff.h"
#include "db/db.h"
#include "db/sql.h"

#include <skirnir/sqlite.h>

enum { SKR_SQLITE_CACHE_SIZE = 64 };

// Prepared statements by their text.
struct skr_sqlite_cache {
    struct {
        sqlite3_stmt *statement;
        uint64_t used_at;
    } entries[SKR_SQLITE_CACHE_SIZE];
    size_t count;
    uint64_t uses;
};

struct skr_sqlite {
    struct skr_db db;
    sqlite3 *connection;
    char *path;  // absolute, without symbolic links
    struct skr_sqlite_cache cache;

    uint32_t busy_timeout_ms;
    int64_t busy_since_ms;
    bool is_guarded;  // the transaction, by a savepoint

    // A lock is an open file with flock(): the kernel frees it with the
    // process, however that ends.
    int lock_fd;
    char *lock_path;
    // Likewise, shared by all workers that show that they are there.
    int attend_fd;  // negative: this one does not
    char *attend_path;

    bool has_waited;
    int64_t version;                  // of the data, as wait() saw it last
    struct skr_backoff wait_backoff;  // while nothing happens
    int64_t linger_until_ms;          // not before this
};

extern const struct skr_dialect skr_sqlite_dialect;
extern const struct skr_tx_ops skr_sqlite_own_tx;
extern const struct skr_lock_ops skr_sqlite_locks;

// Fills error from the connection's last error, whose result code is native.
enum skr_code
skr_sqlite_fail(sqlite3 *connection, int native, struct skr_error *error);
// The same, for when there is no usable connection.
enum skr_code
skr_sqlite_fail_path(const char *path, int native, const char *message,
                     struct skr_error *error);

// tx.c
void skr_sqlite_cache_clear(struct skr_sqlite_cache *cache);

// SKR_UNAVAILABLE when the path no longer names the file that is open: no other
// process would see what is written into that.
SKR_MUST_CHECK enum skr_code
skr_sqlite_check_file(struct skr_sqlite *sqlite, struct skr_error *error);

// Harmless where it does not attend.
void skr_sqlite_leave(struct skr_sqlite *sqlite);

#endif
