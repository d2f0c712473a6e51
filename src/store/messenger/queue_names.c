// SPDX-License-Identifier: MIT
// Which queues a messenger table has, at a cost that grows with their number
// and not with that of the rows: each is found by one step along the index.

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/messenger/inspect.h"
#include "store/messenger/messenger.h"

enum { MOST_NAMES = 100 };

// Parameter: the name before it.
static const char next_sql[] =
    "SELECT MIN(queue_name) FROM {table} WHERE queue_name > ?";
// Where the collation takes "Orders" for "orders", the step passes one of them.
// Parameters: the name that was found, twice.
static const char alike_sql[] =
    "SELECT MIN(queue_name) FROM (SELECT queue_name FROM {table} "
    "WHERE queue_name = ? LIMIT 10000) AS firsts "
    "WHERE NOT ({queue_is_unindexed})";

struct stepping {
    struct skr_arena arena;
    struct skr_tx tx;
    const char *table;
};

// *found: NULL where there is none.
static enum skr_code
ask(struct stepping *stepping, const char *sql_template,
    struct skr_values values, const char **found, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", stepping->table}};
    struct skr_value column;
    struct skr_row row = {
        .arena = &stepping->arena, .columns = &column, .count = 1};
    const char *sql = skr_sql_fill(stepping->tx.ops->dialect, &stepping->arena,
                                   sql_template, words, SKR_COUNT_OF(words));
    if (sql == NULL)
        return skr_fail_memory(error);
    enum skr_code code = skr_sql_row(stepping->tx, sql, values, &row, error);
    *found = code == SKR_OK ? column.bytes : NULL;
    return code;
}

static enum skr_code
step_through(struct stepping *stepping, skr_queue_name_fn *each, void *user,
             struct skr_error *error)
{
    const char *name = "";
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < MOST_NAMES && code == SKR_OK; i++) {
        const char *alike = NULL;
        code = ask(stepping, next_sql, skr_values("%s", name), &name, error);
        if (code != SKR_OK || name == NULL)
            break;
        code = ask(stepping, alike_sql, skr_values("%s %s", name, name), &alike,
                   error);
        if (code == SKR_OK)
            code = each(name, user, error);
        if (code == SKR_OK && alike != NULL)
            code = each(alike, user, error);
    }
    return code;
}

enum skr_code
skr_queue_each_name(struct skr_db *db, const char *table,
                    skr_queue_name_fn *each, void *user,
                    struct skr_error *error)
{
    struct stepping stepping = {.tx = skr_db_tx(db), .table = table};
    enum skr_code code = skr_messenger_check_names(table, "any", error);
    if (code == SKR_OK)
        code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = step_through(&stepping, each, user, error);
    skr_arena_fini(&stepping.arena);
    // Nothing was written.
    skr_db_rollback(db);
    return code;
}
