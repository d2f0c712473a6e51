// SPDX-License-Identifier: MIT
// A lock is one of GET_LOCK(): the server frees it with its session. A session
// that falls silent, as its process was stopped or its host cut off, is closed
// by the server after a few seconds, so that another can take over.

#include "db/mysql/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { POLL_MS = 20, SLICE_S = 1 };

#define SILENCE_S "15"

void
skr_mysql_lock_name(const char *database, const char *name,
                    char text[SKR_MYSQL_LOCK_NAME_SIZE])
{
    // Names are shared by all databases of a server, and short.
    struct skr_hash hash = skr_hash_start();
    hash = skr_hash_add_text(hash, database);
    hash = skr_hash_add_text(hash, name);
    snprintf(text, SKR_MYSQL_LOCK_NAME_SIZE, "skirnir-%016llx%016llx",
             (unsigned long long)hash.high, (unsigned long long)hash.low);
}

static enum skr_code
keep_number(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    (void)error;
    *(int64_t *)user = columns[0].kind == SKR_INTEGER ? columns[0].integer : 0;
    return SKR_OK;
}

// The first column of the first row; 0 for NULL or none.
static enum skr_code
ask(struct skr_mysql *mysql, const char *sql, const struct skr_value *values,
    size_t count, int64_t *number, struct skr_error *error)
{
    *number = 0;
    return skr_tx_run(skr_db_tx(&mysql->db),
                      &(struct skr_statement){.sql = sql,
                                              .values = values,
                                              .value_count = count,
                                              .each_row = keep_number,
                                              .user = number},
                      error);
}

struct naming {
    const char *name;
    char *text;
};

static enum skr_code
make_name(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct naming *naming = user;
    const char *database = columns[0].kind == SKR_NULL ? "" : columns[0].bytes;
    skr_mysql_lock_name(database, naming->name, naming->text);
    return SKR_OK;
}

// By the name that the server itself has for the database: a URL may write it
// differently.
static enum skr_code
find_name(struct skr_mysql *mysql, const char *name,
          char text[SKR_MYSQL_LOCK_NAME_SIZE], struct skr_error *error)
{
    struct naming naming = {.name = name, .text = text};
    return skr_tx_run(skr_db_tx(&mysql->db),
                      &(struct skr_statement){.sql = "SELECT DATABASE()",
                                              .each_row = make_name,
                                              .user = &naming},
                      error);
}

// Each node of a Galera cluster has locks of its own: two relays on two nodes
// would both hold "the" lock.
static enum skr_code
note_cluster(const struct skr_value *columns, size_t count, void *user,
             struct skr_error *error)
{
    (void)error;
    if (count > 1 && columns[1].kind == SKR_TEXT)
        *(bool *)user = strcmp(columns[1].bytes, "ON") == 0;
    return SKR_OK;
}

static enum skr_code
refuse_cluster(struct skr_mysql *mysql, struct skr_error *error)
{
    bool is_cluster = false;
    enum skr_code code = skr_tx_run(
        skr_db_tx(&mysql->db),
        &(struct skr_statement){.sql = "SHOW VARIABLES LIKE 'wsrep_on'",
                                .each_row = note_cluster,
                                .user = &is_cluster},
        error);
    if (code != SKR_OK || !is_cluster)
        return code;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "this is a Galera cluster, whose nodes do not share "
                    "locks: exclusive relays are not safe on it; use leases");
}

// Waits on the server for whole seconds, so that one who stands by costs next
// to nothing and is next at once; the rest by asking again.
static enum skr_code
wait_for_lock(struct skr_mysql *mysql, const char *name, int wake_fd,
              uint32_t timeout_ms, bool *granted, struct skr_error *error)
{
    int64_t end = skr_clock_ms() + timeout_ms;
    for (;;) {
        int64_t left = end - skr_clock_ms(), number = 0;
        const struct skr_value values[] = {
            skr_bind_text(name),
            skr_bind_integer(left >= SLICE_S * 1000 ? SLICE_S : 0),
        };
        enum skr_code code = ask(mysql, "SELECT GET_LOCK(?, ?)", values,
                                 SKR_COUNT_OF(values), &number, error);
        *granted = number == 1;
        if (code != SKR_OK || *granted)
            return code;
        left = end - skr_clock_ms();
        int64_t pause = left >= SLICE_S * 1000 ? 0 : POLL_MS;
        if (left <= 0 || skr_clock_sleep(wake_fd, left < pause ? left : pause))
            return SKR_OK;
    }
}

static enum skr_code
set_silence(struct skr_mysql *mysql, const char *sql, struct skr_error *error)
{
    return skr_tx_run(skr_db_tx(&mysql->db),
                      &(struct skr_statement){.sql = sql}, error);
}

enum skr_code
skr_mysql_lock(struct skr_db *db, const char *name, int wake_fd,
               uint32_t timeout_ms, bool *granted, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (mysql->lock_name[0] != '\0')
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection holds the lock %s already",
                        mysql->lock_name);
    char text[SKR_MYSQL_LOCK_NAME_SIZE];
    bool is_ours = false;
    enum skr_code code = find_name(mysql, name, text, error);
    if (code == SKR_OK)
        code = refuse_cluster(mysql, error);
    if (code == SKR_OK)
        code = wait_for_lock(mysql, text, wake_fd, timeout_ms, &is_ours, error);
    if (code == SKR_OK && is_ours) {
        memcpy(mysql->lock_name, text, sizeof(text));
        code =
            set_silence(mysql, "SET SESSION wait_timeout = " SILENCE_S, error);
        if (code != SKR_OK)
            skr_mysql_unlock(db);
    }
    if (code == SKR_OK)
        *granted = is_ours;
    return code;
}

enum skr_code
skr_mysql_check_lock(struct skr_db *db, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (mysql->lock_name[0] == '\0')
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "no lock is held on this connection");
    const struct skr_value name = skr_bind_text(mysql->lock_name);
    int64_t is_ours = 0;
    enum skr_code code = ask(mysql, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()",
                             &name, 1, &is_ours, error);
    if (code != SKR_OK || is_ours == 1)
        return code;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "the lock %s is no longer held by this connection",
                    mysql->lock_name);
}

void
skr_mysql_unlock(struct skr_db *db)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    if (mysql->lock_name[0] == '\0')
        return;
    const struct skr_value name = skr_bind_text(mysql->lock_name);
    int64_t ignored_number = 0;
    enum skr_code ignored =
        ask(mysql, "SELECT RELEASE_LOCK(?)", &name, 1, &ignored_number, NULL);
    mysql->lock_name[0] = '\0';
    ignored = set_silence(mysql, "SET SESSION wait_timeout = DEFAULT", NULL);
    (void)ignored;
}
