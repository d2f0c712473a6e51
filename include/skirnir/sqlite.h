// SPDX-License-Identifier: MIT
// SQLite side of the public API. Link with skirnir-sqlite.
//
// Threads: as the sqlite3 * itself. Begin with BEGIN IMMEDIATE where you read
// before you write: a deferred transaction that read first fails with
// SQLITE_BUSY_SNAPSHOT as soon as the relay or another writer commits.

#ifndef SKIRNIR_SQLITE_H
#define SKIRNIR_SQLITE_H

#include <skirnir/skirnir.h>
#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

SKR_API extern const struct skr_db_ops skr_sqlite_db;

SKR_API struct skr_tx skr_sqlite_tx(sqlite3 *connection);

// NULL when tx is not an SQLite transaction.
SKR_API sqlite3 *skr_sqlite_connection(struct skr_tx tx);

#ifdef __cplusplus
}
#endif

#endif
