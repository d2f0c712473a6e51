// SPDX-License-Identifier: MIT
// What the suites of the PostgreSQL driver alone share.

#ifndef SKR_TEST_PGSQL_WORLD_H
#define SKR_TEST_PGSQL_WORLD_H

#include "databases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"

#include <skirnir/pgsql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { URL_SIZE = 300 };

struct world {
    struct skr_test_database database;
    char port[8];
    const char *name;  // of the database
    struct skr_test_client application;
    PGconn *client;  // its connection
    PGconn *server;  // to meddle with the others
    struct skr_db *db;
};

static inline int
set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    skr_test_database_make(&world->database);
    const char *slash = strrchr(world->database.url, '/');
    const char *port = strrchr(world->database.url, ':') + 1;
    world->name = slash + 1;
    snprintf(world->port, sizeof(world->port), "%.*s", (int)(slash - port),
             port);
    world->application = skr_test_client_open(&world->database);
    world->client = world->application.connection;
    world->server = skr_test_client_open(&world->database).connection;
    world->db = skr_test_connect(&world->database);
    *state = world;
    return 0;
}

static inline int
tear_down(void **state)
{
    struct world *world = *state;
    skr_db_close(world->db);
    PQfinish(world->client);
    PQfinish(world->server);
    skr_test_database_remove(&world->database);
    free(world);
    return 0;
}

static inline void
run_client(PGconn *client, const char *sql)
{
    PGresult *result = PQexec(client, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(client));
    PQclear(result);
}

static inline struct skr_db *
open_db(const char *url)
{
    struct skr_db *db = NULL;
    struct skr_error error = {0};
    if (skr_db_open(&skr_pgsql_db, url, &db, &error) != SKR_OK)
        fail_msg("%s: %s", url, error.text);
    return db;
}

static inline enum skr_code
run(struct skr_db *db, const char *sql, struct skr_error *error)
{
    return skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                      error);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
