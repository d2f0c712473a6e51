// SPDX-License-Identifier: MIT
// Statements that stay prepared on the server, by their text.

#include "db/mysql/connection.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static struct skr_mysql_prepared *
find(struct skr_mysql_cache *cache, const char *sql)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->entries[i].sql, sql) == 0)
            return &cache->entries[i];
    return NULL;
}

// A place for one more: a new one, or the one that was used the longest ago.
// NULL when the rows of all are being read.
static struct skr_mysql_prepared *
make_place(struct skr_mysql_cache *cache)
{
    if (cache->count < SKR_MYSQL_CACHE_SIZE)
        return &cache->entries[cache->count++];
    struct skr_mysql_prepared *oldest = NULL;
    for (size_t i = 0; i < cache->count; i++) {
        struct skr_mysql_prepared *entry = &cache->entries[i];
        if (!entry->is_busy &&
            (oldest == NULL || entry->used_at < oldest->used_at))
            oldest = entry;
    }
    if (oldest == NULL)
        return NULL;
    mysql_stmt_close(oldest->handle);
    free(oldest->sql);
    return oldest;
}

static enum skr_code
prepare(MYSQL *connection, const char *sql, struct skr_mysql_prepared *prepared,
        struct skr_error *error)
{
    MYSQL_STMT *handle = mysql_stmt_init(connection);
    if (handle == NULL)
        return skr_fail_memory(error);
    if (mysql_stmt_prepare(handle, sql, strlen(sql)) != 0) {
        enum skr_code code =
            skr_mysql_fail_statement(connection, handle, error);
        mysql_stmt_close(handle);
        return code;
    }
    *prepared = (struct skr_mysql_prepared){.handle = handle};
    return SKR_OK;
}

enum skr_code
skr_mysql_prepare(struct skr_mysql *mysql, const char *sql,
                  struct skr_mysql_prepared *one_off,
                  struct skr_mysql_prepared **prepared, struct skr_error *error)
{
    struct skr_mysql_cache *cache = &mysql->cache;
    struct skr_mysql_prepared *entry = find(cache, sql);
    bool is_new = entry == NULL;
    if (is_new || entry->is_busy) {
        // Prepared before there is a place for it: a mistake costs no other
        // statement its own.
        enum skr_code code = prepare(mysql->connection, sql, one_off, error);
        if (code != SKR_OK)
            return code;
        entry = one_off;
    }
    if (is_new) {
        char *copy = strdup(sql);
        struct skr_mysql_prepared *place =
            copy == NULL ? NULL : make_place(cache);
        if (place == NULL) {
            free(copy);
        } else {
            *place = *one_off;
            place->sql = copy;
            entry = place;
        }
    }
    entry->used_at = ++cache->uses;
    entry->is_busy = true;
    *prepared = entry;
    return SKR_OK;
}

void
skr_mysql_release(struct skr_mysql_prepared *prepared,
                  const struct skr_mysql_prepared *one_off)
{
    prepared->is_busy = false;
    if (prepared == one_off)
        mysql_stmt_close(prepared->handle);
}

void
skr_mysql_cache_clear(struct skr_mysql_cache *cache)
{
    for (size_t i = 0; i < cache->count; i++) {
        mysql_stmt_close(cache->entries[i].handle);
        free(cache->entries[i].sql);
    }
    cache->count = 0;
}
