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
static const struct database {
    const char *scheme;
    const struct skr_db_ops *ops;
    const char *package;
    const char *const *tls;  // by enum skr_driver_tls; NULL: a file
    const char *family;      // NULL: its own
} databases[] = {
    {"sqlite", SQLITE, "libsqlite3-dev", .tls = NULL},
    {"mysql", MYSQL, "libmariadb-dev", .tls = mysql_tls},
    {"mariadb", MYSQL, "libmariadb-dev", mysql_tls, "mysql"},
    {"pgsql", PGSQL, "libpq-dev", .tls = pgsql_tls},
    {"postgresql", PGSQL, "libpq-dev", pgsql_tls, "pgsql"},
    {"postgres", PGSQL, "libpq-dev", pgsql_tls, "pgsql"},
};

// An outbox is read from its database, without a broker.
static const struct transport {
    struct skr_scheme scheme;
    const struct skr_broker_ops *ops;
    const char *package;
    const char *family;  // NULL: its own
} transports[] = {
    {{"doctrine", .is_outbox = true}, .ops = NULL},
    {{"queue", .is_queue = true, .derives_ids = true},
     .ops = &skr_queue_broker},
    {{"ordered-doctrine", .is_outbox = true, .is_ordered = true}, .ops = NULL},
    {{"amqp", .has_exchanges = true}, RABBITMQ, .package = "librabbitmq-dev"},
    {{"amqps", .has_exchanges = true}, RABBITMQ, "librabbitmq-dev", "amqp"},
    {{"kafka", .has_topics = true, .derives_ids = true},
     KAFKA,
     .package = "librdkafka-dev"},
};

// All of it is NULL where there is none.
static const struct database *
find_database(const char *scheme)
{
    static const struct database none;
    for (size_t i = 0; i < SKR_COUNT_OF(databases); i++)
        if (strcmp(databases[i].scheme, scheme) == 0)
            return &databases[i];
    return &none;
}

static const struct transport *
find_transport(const char *scheme)
{
    static const struct transport none;
    for (size_t i = 0; i < SKR_COUNT_OF(transports) && scheme != NULL; i++)
        if (strcmp(transports[i].scheme.name, scheme) == 0)
            return &transports[i];
    return &none;
}

const struct skr_db_ops *
skr_driver_find_database(const char *scheme)
{
    return find_database(scheme)->ops;
}

const struct skr_broker_ops *
skr_driver_find_broker(const char *scheme)
{
    return find_transport(scheme)->ops;
}

bool
skr_driver_is_database(const char *scheme)
{
    return find_database(scheme)->scheme != NULL;
}

const char *
skr_driver_tls(const char *scheme, enum skr_driver_tls tls)
{
    const struct database *database = find_database(scheme);
    return database->tls == NULL ? NULL : database->tls[tls];
}

const struct skr_scheme *
skr_driver_scheme(const char *name)
{
    return &find_transport(name)->scheme;
}

const struct skr_scheme *
skr_driver_next_scheme(size_t *at)
{
    return *at == SKR_COUNT_OF(transports) ? NULL : &transports[(*at)++].scheme;
}

const char *
skr_driver_family(const char *scheme)
{
    const char *database = find_database(scheme)->family;
    const char *broker = find_transport(scheme)->family;
    return database != NULL ? database : broker != NULL ? broker : scheme;
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
    bool is_database = skr_driver_is_database(scheme);
    const char *package = is_database ? find_database(scheme)->package
                                      : find_transport(scheme)->package;
    if (package == NULL)
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %.40s://; it has: %s, %s",
                 scheme, skr_driver_databases(), skr_driver_brokers());
    else
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %s://; it has: %s. Install %s "
                 "and build it again",
                 scheme,
                 is_database ? skr_driver_databases() : skr_driver_brokers(),
                 package);
    return text;
}
