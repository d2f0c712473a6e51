// SPDX-License-Identifier: MIT
#include "app/drivers.h"

#include "base/text.h"
#include "broker/broker.h"
#include "db/db.h"

#include <skirnir/queue.h>
#ifdef SKR_WITH_SQLITE
#include <skirnir/sqlite.h>
#endif
#include <string.h>

static const struct {
    const char *scheme;
    const struct skr_db_ops *ops;
} databases[] = {
#ifdef SKR_WITH_SQLITE
    {"sqlite", &skr_sqlite_db},
#endif
    {NULL, NULL},
};

static const struct {
    const char *scheme;
    const struct skr_broker_ops *ops;
} brokers[] = {
    {"queue", &skr_queue_broker},
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
#ifdef SKR_WITH_SQLITE
    return "sqlite";
#else
    return "none";
#endif
}

const char *
skr_driver_brokers(void)
{
    return "queue";
}
