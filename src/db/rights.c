// SPDX-License-Identifier: MIT
// Statements that match no row, by which a missing privilege is found before
// the first message.

#include "db/rights.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/db.h"
#include "db/sql.h"

static const char insert_sql[] =
    "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0";
static const char update_sql[] =
    "UPDATE {table} SET {columns} = {columns} WHERE 1 = 0";
static const char delete_sql[] = "DELETE FROM {table} WHERE 1 = 0";

static bool
is_refused(struct skr_db *db, const char *template, const char *table,
           const char *columns, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}, {"columns", columns}};
    struct skr_arena arena = {0};
    struct skr_error found = {0};
    char *sql = skr_sql_fill(skr_db_dialect(db), &arena, template, words,
                             SKR_COUNT_OF(words));
    bool refused =
        sql != NULL &&
        skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                   &found) == SKR_REFUSED &&
        found.remedy == SKR_GIVE_UP;
    if (refused && error != NULL)
        *error = found;
    skr_arena_fini(&arena);
    return refused;
}

enum skr_code
skr_rights_check_insert(struct skr_db *db, const char *table,
                        const char *columns, struct skr_error *error)
{
    return is_refused(db, insert_sql, table, columns, error) ? SKR_REFUSED
                                                             : SKR_OK;
}

enum skr_code
skr_rights_check_change(struct skr_db *db, const char *table,
                        const char *column, struct skr_error *error)
{
    return is_refused(db, update_sql, table, column, NULL) &&
                   is_refused(db, delete_sql, table, column, error)
               ? SKR_REFUSED
               : SKR_OK;
}
