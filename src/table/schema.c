// SPDX-License-Identifier: MIT
#include "table/schema.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

#include <string.h>

// The table's words, and an index's beside them.
static const char *
fill_index(const struct skr_dialect *dialect, struct skr_arena *arena,
           const char *sql_template, const char *table,
           const struct skr_index *index)
{
    const struct skr_word words[] = {
        {"table", table}, {"index", index->name}, {"columns", index->columns}};
    return skr_sql_fill(dialect, arena, sql_template, words,
                        SKR_COUNT_OF(words));
}

static enum skr_code
write_table(const struct skr_schema *schema, const struct skr_dialect *dialect,
            const char *table, struct skr_arena *arena, skr_sql_text_fn *each,
            void *user, struct skr_error *error)
{
    const char *inline_indexes = "";
    for (size_t i = 0; i < schema->index_count; i++) {
        const char *index = fill_index(dialect, arena, "{inline_index}", table,
                                       &schema->indexes[i]);
        if (index == NULL)
            return skr_fail_memory(error);
        inline_indexes = skr_arena_format(arena, "%s%s", inline_indexes, index);
        if (inline_indexes == NULL)
            return skr_fail_memory(error);
    }
    const struct skr_word words[] = {{"table", table},
                                     {"columns", schema->columns},
                                     {"inline_indexes", inline_indexes}};
    const char *sql = skr_sql_fill(dialect, arena,
                                   "CREATE TABLE IF NOT EXISTS {table} (\n"
                                   "    {columns}{inline_indexes}\n"
                                   "){table_options}",
                                   words, SKR_COUNT_OF(words));
    if (sql == NULL)
        return skr_fail_memory(error);
    return each(sql, user, error);
}

enum skr_code
skr_schema_write(const struct skr_schema *schema,
                 const struct skr_dialect *dialect, const char *table,
                 skr_sql_text_fn *each, void *user, struct skr_error *error)
{
    struct skr_arena arena = {0};
    enum skr_code code =
        write_table(schema, dialect, table, &arena, each, user, error);
    for (size_t i = 0; code == SKR_OK && i < schema->index_count; i++) {
        const char *sql = fill_index(dialect, &arena, "{create_index}", table,
                                     &schema->indexes[i]);
        if (sql == NULL)
            code = skr_fail_memory(error);
        else if (sql[0] != '\0')
            code = each(sql, user, error);
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_schema_run(const char *sql, void *user, struct skr_error *error)
{
    struct skr_db *db = user;
    enum skr_code code =
        skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = sql}, error);
    if (code != SKR_DUPLICATE)
        return code;
    // Where nobody can be kept out, another has just added the row.
    skr_error_clear(error);
    return SKR_OK;
}

enum skr_code
skr_schema_begin(struct skr_db *db, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, "{setup_lock}", NULL, 0);
    if (sql == NULL)
        code = skr_fail_memory(error);
    else if (sql[0] != '\0')
        code = skr_schema_run(sql, db, error);
    skr_arena_fini(&arena);
    if (code != SKR_OK)
        skr_db_rollback(db);
    return code;
}

enum skr_code
skr_schema_end(struct skr_db *db, enum skr_code code, struct skr_error *error)
{
    if (code != SKR_OK) {
        skr_db_rollback(db);
        return code;
    }
    code = skr_db_commit(db, error);
    if (code != SKR_NO_TRANSACTION)
        return code;
    // Where making a table ends a transaction nothing is left to commit.
    skr_error_clear(error);
    return SKR_OK;
}

static enum skr_code
refuse_engine(const struct skr_value *columns, size_t count, void *user,
              struct skr_error *error)
{
    (void)count;
    const char *table = user;
    const char *engine = columns[0].kind == SKR_TEXT ? columns[0].bytes : "?";
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "table %s is of the engine %s, which cannot roll back: "
                    "what is not committed would be sent; run ALTER TABLE %s "
                    "ENGINE = InnoDB",
                    table, engine, table);
}

enum skr_code
skr_schema_check_engine(struct skr_tx tx, const char *table,
                        struct skr_error *error)
{
    struct skr_arena arena = {0};
    const struct skr_word words[] = {{"table", table}};
    enum skr_code code = SKR_OK;
    const char *sql =
        skr_sql_fill(tx.ops->dialect, &arena, "{unsafe_engine}", words, 1);
    char *copy = skr_arena_text(&arena, table, strlen(table));
    if (sql == NULL || copy == NULL)
        code = skr_fail_memory(error);
    else if (sql[0] != '\0')
        code =
            skr_tx_run(tx,
                       &(struct skr_statement){
                           .sql = sql, .each_row = refuse_engine, .user = copy},
                       error);
    skr_arena_fini(&arena);
    return code;
}
