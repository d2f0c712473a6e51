// SPDX-License-Identifier: MIT
// PostgreSQL side of the public API. Link with skirnir-pgsql.
//
// Threads: as the PGconn * itself. A connection that is busy with an
// asynchronous command, in pipeline mode, or whose transaction has failed is
// refused and left as it is. On PostgreSQL a statement that fails, one of
// skr_publish() included, aborts the whole transaction: roll it back, or back
// to a savepoint of your own.

#ifndef SKIRNIR_PGSQL_H
#define SKIRNIR_PGSQL_H

#include <libpq-fe.h>
#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

SKR_API extern const struct skr_db_ops skr_pgsql_db;

SKR_API struct skr_tx skr_pgsql_tx(PGconn *connection);

// NULL when tx is not a PostgreSQL transaction.
SKR_API PGconn *skr_pgsql_connection(struct skr_tx tx);

#ifdef __cplusplus
}
#endif

#endif
