// SPDX-License-Identifier: MIT
#include "table/schema.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

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
    return skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                      error);
}
