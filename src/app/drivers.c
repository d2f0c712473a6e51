// SPDX-License-Identifier: MIT
// The tables of databases and brokers that were compiled in, by scheme, and the
// package that a missing one comes with.

#include "app/drivers.h"

#include "base/text.h"
#include "broker/broker.h"
#include "db/db.h"

#include <skirnir/queue.h>
#ifdef SKR_WITH_KAFKA
#include <skirnir/kafka.h>
#endif
#ifdef SKR_WITH_MYSQL
#include <skirnir/mysql.h>
#endif
#ifdef SKR_WITH_PGSQL
#include <skirnir/pgsql.h>
#endif
#ifdef SKR_WITH_RABBITMQ
#include <skirnir/rabbitmq.h>
#endif
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *scheme;
    const struct skr_db_ops *ops;
} databases[] = {
#ifdef SKR_WITH_SQLITE
    {"sqlite", &skr_sqlite_db},
#endif
#ifdef SKR_WITH_MYSQL
    {"mysql", &skr_mysql_db},
    {"mariadb", &skr_mysql_db},
#endif
#ifdef SKR_WITH_PGSQL
    {"pgsql", &skr_pgsql_db},
    {"postgresql", &skr_pgsql_db},
    {"postgres", &skr_pgsql_db},
#endif
    {NULL, NULL},
};

static const struct {
    const char *scheme;
    const struct skr_broker_ops *ops;
} brokers[] = {
    {"queue", &skr_queue_broker},
#ifdef SKR_WITH_RABBITMQ
    {"amqp", &skr_rabbitmq_broker},
    {"amqps", &skr_rabbitmq_broker},
#endif
#ifdef SKR_WITH_KAFKA
    {"kafka", &skr_kafka_broker},
#endif
};

const struct skr_db_ops *
skr_driver_find_database(const char *scheme)
{
    for (size_t i = 0; databases[i].scheme != NULL; i++)
        if (strcmp(databases[i].scheme, scheme) == 0)
            return databases[i].ops;
    return NULL;
}

const struct skr_broker_ops *
skr_driver_find_broker(const char *scheme)
{
    for (size_t i = 0; i < SKR_COUNT_OF(brokers); i++)
        if (strcmp(brokers[i].scheme, scheme) == 0)
            return brokers[i].ops;
    return NULL;
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
    // As Debian and Ubuntu call them; others differ little.
    static const struct {
        const char *scheme, *package;
        bool is_broker;
    } packages[] = {
        {"sqlite", "libsqlite3-dev", false},
        {"mysql", "libmariadb-dev", false},
        {"mariadb", "libmariadb-dev", false},
        {"pgsql", "libpq-dev", false},
        {"postgresql", "libpq-dev", false},
        {"postgres", "libpq-dev", false},
        {"amqp", "librabbitmq-dev", true},
        {"amqps", "librabbitmq-dev", true},
        {"kafka", "librdkafka-dev", true},
    };
    size_t i = 0;
    while (i < SKR_COUNT_OF(packages) &&
           strcmp(packages[i].scheme, scheme) != 0)
        i++;
    if (i == SKR_COUNT_OF(packages))
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %.40s://; it has: %s, %s",
                 scheme, skr_driver_databases(), skr_driver_brokers());
    else
        snprintf(text, SKR_DRIVER_MISSING_SIZE,
                 "this build has no driver for %s://; it has: %s. Install %s "
                 "and build it again",
                 scheme,
                 packages[i].is_broker ? skr_driver_brokers()
                                       : skr_driver_databases(),
                 packages[i].package);
    return text;
}
