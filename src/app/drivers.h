// SPDX-License-Identifier: MIT
// The one place that knows which drivers this build has, and what the schemes
// of transports have.

#ifndef SKR_APP_DRIVERS_H
#define SKR_APP_DRIVERS_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

// NULL for a scheme without a driver. Aliases such as postgresql are known.
const struct skr_db_ops *skr_driver_find_database(const char *scheme);
const struct skr_broker_ops *skr_driver_find_broker(const char *scheme);

// Whether there is a driver for it, in this build or in another.
bool skr_driver_is_database(const char *scheme);

// What a database's DSN says to have this. NULL: there is no server.
enum skr_driver_tls {
    SKR_DRIVER_PLAINTEXT,
    SKR_DRIVER_TLS_UNVERIFIED,  // the server does not prove who it is
    SKR_DRIVER_TLS_VERIFIED,
};
const char *skr_driver_tls(const char *scheme, enum skr_driver_tls tls);

// The scheme of a transport; the kinds of table are no broker's.
struct skr_scheme {
    const char *name;    // NULL: the scheme is not known, and has nothing
    bool is_outbox;      // a table that is relayed
    bool is_ordered;     // and partitioned
    bool is_queue;       // a table that is a broker
    bool has_exchanges;  // and queues, which setup-amqp declares
    bool has_topics;     // which groups read
    bool derives_ids;    // of messages that have none
};
const struct skr_scheme *skr_driver_scheme(const char *name);
// All of them, one a call; *at begins with 0. NULL: there are no more.
const struct skr_scheme *skr_driver_next_scheme(size_t *at);

// The first scheme that the driver of this one has: mysql of mariadb.
const char *skr_driver_family(const char *scheme);

// "this build has no driver for pgsql://; it has: sqlite. Install libpq-dev and
// build it again".
enum { SKR_DRIVER_MISSING_SIZE = 240 };
const char *
skr_driver_missing(const char *scheme, char text[SKR_DRIVER_MISSING_SIZE]);

// "sqlite, pgsql": for messages and --version.
const char *skr_driver_databases(void);
const char *skr_driver_brokers(void);

#endif
