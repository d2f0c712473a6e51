// SPDX-License-Identifier: MIT
// The one place that knows which drivers this build has.

#ifndef SKR_APP_DRIVERS_H
#define SKR_APP_DRIVERS_H

#include <skirnir/skirnir.h>

// NULL for a scheme without a driver. Aliases such as postgresql are known.
const struct skr_db_ops *skr_driver_find_database(const char *scheme);
const struct skr_broker_ops *skr_driver_find_broker(const char *scheme);

// "this build has no driver for pgsql://; it has: sqlite. Install libpq-dev and
// build it again".
enum { SKR_DRIVER_MISSING_SIZE = 240 };
const char *
skr_driver_missing(const char *scheme, char text[SKR_DRIVER_MISSING_SIZE]);

// "sqlite, pgsql": for messages and --version.
const char *skr_driver_databases(void);
const char *skr_driver_brokers(void);

#endif
