// SPDX-License-Identifier: MIT
// MariaDB and MySQL side of the public API. Link with skirnir-mysql.
//
// Threads: as the MYSQL * itself. It must be a connection of libmariadb, which
// speaks to both servers; that of another client library is laid out
// differently. No result may be waiting to be read on it.
//
// A transaction is one begun with START TRANSACTION, or autocommit=0. Leave
// automatic reconnection off: a connection that came back has lost its
// transaction.

#ifndef SKIRNIR_MYSQL_H
#define SKIRNIR_MYSQL_H

#include <mysql.h>
#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

// For mysql:// and mariadb:// URLs.
SKR_API extern const struct skr_db_ops skr_mysql_db;

SKR_API struct skr_tx skr_mysql_tx(MYSQL *connection);

// NULL when tx is not a transaction on MariaDB or MySQL.
SKR_API MYSQL *skr_mysql_connection(struct skr_tx tx);

#ifdef __cplusplus
}
#endif

#endif
