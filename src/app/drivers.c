// SPDX-License-Identifier: MIT
// The schemes of databases and transports: the driver that was compiled in, the
// package that a missing one comes with, and what a scheme has.

#include "app/drivers.h"

#include "base/text.h"
#include "broker/broker.h"
#include "db/db.h"

#include <skirnir/queue.h>
#ifdef SKR_WITH_KAFKA
#include <skirnir/kafka.h>
#define KAFKA (&skr_kafka_broker)
#else
#define KAFKA NULL
#endif
#ifdef SKR_WITH_MYSQL
#include <skirnir/mysql.h>
#define MYSQL (&skr_mysql_db)
#else
#define MYSQL NULL
#endif
#ifdef SKR_WITH_PGSQL
#include <skirnir/pgsql.h>
#define PGSQL (&skr_pgsql_db)
#else
#define PGSQL NULL
#endif
#ifdef SKR_WITH_RABBITMQ
#include <skirnir/rabbitmq.h>
#define RABBITMQ (&skr_rabbitmq_broker)
#else
#define RABBITMQ NULL
#endif
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#define SQLITE (&skr_sqlite_db)
#else
#define SQLITE NULL
#endif
#include <stdio.h>
#include <string.h>

static const char *const mysql_tls[] = {"ssl=0", "ssl_verify=0",
                                        "ssl_verify=1"};
static const char *const pgsql_tls[] = {"sslmode=disable", "sslmode=require",
                                        "sslmode=verify-full"};

// Packages are called as Debian and Ubuntu call them; others differ little.
static const struct {
    const char *scheme;
    const struct skr_db_ops *ops;
    const char *package;
    const char *const *tls;  // by enum skr_driver_tls; NULL: a file
} databases[] = {
    {"sqlite", SQLITE, "libsqlite3-dev", NULL},
    {"mysql", MYSQL, "libmariadb-dev", mysql_tls},
    {"mariadb", MYSQL, "libmariadb-dev", mysql_tls},
    {"pgsql", PGSQL, "libpq-dev", pgsql_tls},
    {"postgresql", PGSQL, "libpq-dev", pgsql_tls},
    {"postgres", PGSQL, "libpq-dev", pgsql_tls},
};

// An outbox is read from its database, without a broker.
static const struct {
    struct skr_scheme scheme;
    const struct skr_broker_ops *ops;
    const char *package;
} transports[] = {
    {{"doctrine", .is_outbox = true}, NULL, NULL},
    {{"queue", .is_queue = true, .derives_ids = true}, &skr_queue_broker, NULL},
    {{"ordered-doctrine", .is_outbox = true, .is_ordered = true}, NULL, NULL},
    {{"amqp", .has_exchanges = true}, RABBITMQ, "librabbitmq-dev"},
    {{"amqps", .has_exchanges = true}, RABBITMQ, "librabbitmq-dev"},
    {{"kafka", .has_topics = true, .derives_ids = true},
     KAFKA,
     "librdkafka-dev"},
};

// Its place in the table; the end of it: there is none.
static size_t
find_database(const char *scheme)
{
    size_t i = 0;
    while (i < SKR_COUNT_OF(databases) &&
           strcmp(databases[i].scheme, scheme) != 0)
        i++;
    return i;
}

static size_t
find_transport(const char *scheme)
{
    size_t i = 0;
    while (i < SKR_COUNT_OF(transports) &&
           strcmp(transports[i].scheme.name, scheme) != 0)
        i++;
    return i;
}

const struct skr_db_ops *
skr_driver_find_database(const char *scheme)
{
    size_t i = find_database(scheme);
    return i == SKR_COUNT_OF(databases) ? NULL : databases[i].ops;
}

const struct skr_broker_ops *
skr_driver_find_broker(const char *scheme)
{
    size_t i = find_transport(scheme);
    return i == SKR_COUNT_OF(transports) ? NULL : transports[i].ops;
}

bool
skr_driver_is_database(const char *scheme)
{
    return find_database(scheme) < SKR_COUNT_OF(databases);
}

const char *
skr_driver_tls(const char *scheme, enum skr_driver_tls tls)
{
    size_t i = find_database(scheme);
    return i == SKR_COUNT_OF(databases) || databases[i].tls == NULL
               ? NULL
               : databases[i].tls[tls];
}

const struct skr_scheme *
skr_driver_scheme(const char *name)
{
    static const struct skr_scheme unknown = {.name = NULL};
    size_t i = name == NULL ? SKR_COUNT_OF(transports) : find_transport(name);
    return i == SKR_COUNT_OF(transports) ? &unknown : &transports[i].scheme;
}

const struct skr_scheme *
skr_driver_next_scheme(size_t *at)
{
    return *at == SKR_COUNT_OF(transports) ? NULL : &transports[(*at)++].scheme;
}

const char *
skr_driver_family(const char *scheme)
{
    size_t database = find_database(scheme), broker = find_transport(scheme);
    for (size_t i = 0; i < database && database < SKR_COUNT_OF(databases); i++)
        if (strcmp(databases[i].package, databases[database].package) == 0)
            return databases[i].scheme;
    if (broker == SKR_COUNT_OF(transports) ||
        transports[broker].package == NULL)
        return scheme;
    for (size_t i = 0; i < broker; i++)
        if (transports[i].package != NULL &&
            strcmp(transports[i].package, transports[broker].package) == 0)
            return transports[i].scheme.name;
    return scheme;
}

const char *
skr_driver_databases(void)
{
    static const char list[] = ""
#ifdef SKR_WITH_SQLITE
                               ", sqlite"
#endif
#ifdef SKR_WITH_MYSQL
                               ", mysql"
#endif
#ifdef SKR_WITH_PGSQL
                               ", pgsql"
#endif
        ;
    return sizeof(list) == 1 ? "none" : list + 2;
}

const char *
skr_driver_brokers(void)
{
    return "queue"
#ifdef SKR_WITH_RABBITMQ
           ", amqp, amqps"
#endif
#ifdef SKR_WITH_KAFKA
           ", kafka"
#endif
        ;
}

const char *
skr_driver_missing(const char *scheme, char text[SKR_DRIVER_MISSING_SIZE])
{
    size_t database = find_database(scheme), broker = find_transport(scheme);
    const char *package = NULL, *present = skr_driver_brokers();
    if (database < SKR_COUNT_OF(databases)) {
        package = databases[database].package;
        present = skr_driver_databases();
    } else if (broker < SKR_COUNT_OF(transports)) {
        package = transports[broker].package;
    }
    if (package == NULL)
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %.40s://; it has: %s, %s",
                 scheme, skr_driver_databases(), skr_driver_brokers());
    else
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %s://; it has: %s. Install %s "
                 "and build it again",
                 scheme, present, package);
    return text;
}
