// SPDX-License-Identifier: MIT
// What would make a database file serve better. The journal's mode is written
// into the file and concerns every process that opens it, so it is the owner's
// word.

#include "db/sqlite/connection.h"

#include <stdio.h>
#include <string.h>

static enum skr_code
note_mode(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    bool *is_wal = user;
    *is_wal =
        columns[0].kind == SKR_TEXT && strcmp(columns[0].bytes, "wal") == 0;
    return SKR_OK;
}

static enum skr_code
ask(struct skr_sqlite *sqlite, const char *sql, bool *is_wal,
    struct skr_error *error)
{
    return skr_sqlite_run(sqlite->connection, &sqlite->cache,
                          &(struct skr_statement){.sql = sql,
                                                  .each_row = note_mode,
                                                  .user = is_wal},
                          error);
}

enum skr_code
skr_sqlite_advise(struct skr_db *db, bool change, char advice[SKR_ADVICE_SIZE],
                  struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    bool is_wal = false, was_wal = false;
    enum skr_code code = ask(sqlite, "PRAGMA journal_mode", &was_wal, error);
    if (code == SKR_OK && !was_wal && change)
        code = ask(sqlite, "PRAGMA journal_mode = WAL", &is_wal, error);
    if (code != SKR_OK)
        return code;
    if (was_wal)
        advice[0] = '\0';
    else if (is_wal)
        snprintf(advice, SKR_ADVICE_SIZE,
                 "%.100s: the journal's mode is WAL from now on", sqlite->path);
    else
        snprintf(advice, SKR_ADVICE_SIZE,
                 "%.100s: readers and writers wait for each other; `skirnir "
                 "setup --tune` switches its journal to WAL",
                 sqlite->path);
    return SKR_OK;
}
