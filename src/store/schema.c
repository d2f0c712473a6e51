// SPDX-License-Identifier: MIT
// Creates tables, columns and indexes from their descriptions, and adds those
// that an existing table lacks.

#include "store/schema.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// A name of its own where tables share one space of names for indexes. One
// that the database would cut is made to fit: indexes whose names begin alike
// would be taken for one.
static const char *
name_index(const struct skr_dialect *dialect, struct skr_arena *arena,
           const char *table, const char *index)
{
    size_t most = dialect->cuts_names_at;
    if (most == 0 || strlen(table) + 1 + strlen(index) <= most)
        return skr_arena_format(arena, "%s_%s", table, index);
    // The same however the table's name is spelt.
    const struct skr_word words[] = {{"table", table}};
    const char *folded = skr_sql_fill(dialect, arena, "{table}", words, 1);
    if (folded == NULL)
        return NULL;
    struct skr_hash hash = skr_hash_add_text(skr_hash_start(), folded);
    return skr_arena_format(arena, "%.*s_%08x_%s",
                            (int)(most - strlen("_01234567_") - strlen(index)),
                            table, (unsigned)(uint32_t)(hash.high ^ hash.low),
                            index);
}

// The table's words, and an index's beside them.
static const char *
fill_index(const struct skr_dialect *dialect, struct skr_arena *arena,
           const char *sql_template, const char *table,
           const struct skr_index *index)
{
    const char *own_index = name_index(dialect, arena, table, index->name);
    if (own_index == NULL)
        return NULL;
    const struct skr_word words[] = {{"table", table},
                                     {"index", index->name},
                                     {"own_index", own_index},
                                     {"columns", index->columns}};
    return skr_sql_fill(dialect, arena, sql_template, words,
                        SKR_COUNT_OF(words));
}

// sql as it was filled: NULL where memory is out, "" where nothing is to do.
static enum skr_code
give(const char *sql, skr_sql_text_fn *each, void *user,
     struct skr_error *error)
{
    if (sql == NULL)
        return skr_fail_memory(error);
    return sql[0] == '\0' ? SKR_OK : each(sql, user, error);
}

static enum skr_code
write_table(const struct skr_schema *schema, const char *table,
            const struct skr_schema_target *target, struct skr_arena *arena,
            struct skr_error *error)
{
    const struct skr_dialect *dialect = target->dialect;
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
    const char *columns = schema->columns;
    for (size_t i = 0; i < schema->late_column_count && columns != NULL; i++)
        columns = skr_arena_format(arena, "%s,\n    %s %s", columns,
                                   schema->late_columns[i].name,
                                   schema->late_columns[i].definition);
    if (columns == NULL)
        return skr_fail_memory(error);
    const struct skr_word words[] = {{"table", table},
                                     {"columns", columns},
                                     {"inline_indexes", inline_indexes}};
    const char *sql = skr_sql_fill(dialect, arena,
                                   "CREATE TABLE IF NOT EXISTS {table} (\n"
                                   "    {columns}{inline_indexes}\n"
                                   "){table_options}",
                                   words, SKR_COUNT_OF(words));
    return give(sql, target->each, target->user, error);
}

enum skr_code
skr_schema_has_table(struct skr_tx tx, const char *table, bool *has,
                     struct skr_error *error)
{
    struct skr_row row = {.count = 0};
    enum skr_code code =
        skr_sql_ask_table(tx, "{find_table}", table, &row, error);
    *has = row.found;
    return code;
}

enum skr_code
skr_schema_check_name(const char *table, struct skr_error *error)
{
    if (!skr_text_is_identifier(table))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table name '%.80s': letters, digits and underscores "
                        "are needed, at most 63, not beginning with a digit",
                        table);
    return SKR_OK;
}

// A table of another shape is not ours: nothing is added to it or beside it.
static enum skr_code
find_table(const struct skr_schema *schema, struct skr_tx tx, const char *table,
           bool *has, struct skr_error *error)
{
    const struct skr_needs needs = {table, schema->needed, schema->cure};
    enum skr_code code = skr_schema_has_table(tx, table, has, error);
    return code == SKR_OK && *has && schema->needed != NULL
               ? skr_schema_check(tx, &needs, error)
               : code;
}

enum skr_code
skr_schema_write(const struct skr_schema *schema, const char *table,
                 const struct skr_schema_target *target,
                 struct skr_error *error)
{
    struct skr_arena arena = {0};
    bool is_there = false;
    enum skr_code code = SKR_OK;
    if (target->db != NULL)
        code =
            find_table(schema, skr_db_tx(target->db), table, &is_there, error);
    if (code != SKR_OK || is_there)
        return code;
    code = write_table(schema, table, target, &arena, error);
    for (size_t i = 0; code == SKR_OK && i < schema->index_count; i++)
        code = give(fill_index(target->dialect, &arena, "{create_index}", table,
                               &schema->indexes[i]),
                    target->each, target->user, error);
    skr_arena_fini(&arena);
    return code;
}

bool
skr_schema_makes_table(const char *sql, char name[SKR_SCHEMA_NAME_SIZE])
{
    return sscanf(sql, "CREATE TABLE IF NOT EXISTS %*1[\"`]%63[^\"`]", name) ==
           1;
}

enum skr_code
skr_schema_run(const char *sql, void *user, struct skr_error *error)
{
    struct skr_db *db = user;
    enum skr_code code = skr_tx_run(
        skr_db_tx(db), &(struct skr_statement){.sql = sql, .takes_long = true},
        error);
    if (code != SKR_DUPLICATE)
        return code;
    // Where other processes cannot be kept out, one of them has just added the
    // row.
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
    code =
        give(skr_sql_fill(skr_db_dialect(db), &arena, "{setup_lock}", NULL, 0),
             skr_schema_run, db, error);
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

enum skr_code
skr_schema_check_engine(struct skr_tx tx, const char *table,
                        struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value engine;
    struct skr_row row = {.arena = &arena, .columns = &engine, .count = 1};
    enum skr_code code =
        skr_sql_ask_table(tx, "{unsafe_engine}", table, &row, error);
    if (code == SKR_OK && row.found)
        code = skr_fail(
            error, SKR_REFUSED, SKR_GIVE_UP,
            "table %s is of the engine %s, which cannot roll back: what is not "
            "committed would be sent; run ALTER TABLE %s ENGINE = InnoDB",
            table, engine.bytes == NULL ? "?" : (const char *)engine.bytes,
            table);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_schema_check_ids(struct skr_tx tx, const char *table, const char *columns,
                     const char *maker, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value lack;
    struct skr_row row = {.arena = &arena, .columns = &lack, .count = 1};
    enum skr_code code =
        skr_sql_ask_table(tx, "{reused_ids}", table, &row, error);
    if (code == SKR_OK && row.found)
        code = skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "table %s has no %s: an id is used again, and a late "
                        "DELETE hits a new message; stop all who use it, run "
                        "ALTER TABLE %s RENAME TO old; `%s`; INSERT INTO %s "
                        "SELECT %s FROM old",
                        table, (const char *)lack.bytes, table, maker, table,
                        columns);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_schema_has_column(struct skr_tx tx, const char *table, const char *column,
                      bool *has, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}, {"column", column}};
    struct skr_arena arena = {0};
    const char *sql = skr_sql_fill(tx.ops->dialect, &arena, "{find_column}",
                                   words, SKR_COUNT_OF(words));
    *has = false;
    enum skr_code code =
        sql == NULL ? skr_fail_memory(error)
                    : skr_sql_finds(tx, sql, SKR_NO_VALUES, has, error);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_schema_check(struct skr_tx tx, const struct skr_needs *needs,
                 struct skr_error *error)
{
    char name[SKR_SCHEMA_NAME_SIZE];
    bool has = false;
    enum skr_code code = skr_schema_has_table(tx, needs->table, &has, error);
    if (code == SKR_OK && !has)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no table %s; %s", needs->table, needs->cure);
    const char *at = needs->columns;
    for (; code == SKR_OK && has && *at != '\0'; at += strspn(at, ", ")) {
        size_t size = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)size, at);
        at += size;
        code = skr_schema_has_column(tx, needs->table, name, &has, error);
    }
    if (code == SKR_OK && !has)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table %s has no column %s: this is a table of another "
                        "shape; rename it or configure another name, and %s",
                        needs->table, name, needs->cure);
    return code == SKR_OK ? skr_schema_check_engine(tx, needs->table, error)
                          : code;
}

struct wanted_index {
    const char *const *parts;  // of three, NULL: any or none
    bool is_there;
};

static bool
is_column(const struct skr_value *value, const char *name)
{
    return value->kind == SKR_TEXT && strcasecmp(value->bytes, name) == 0;
}

static enum skr_code
compare_index(const struct skr_value *columns, size_t count, void *user,
              struct skr_error *error)
{
    (void)error;
    struct wanted_index *wanted = user;
    size_t i = 0;
    while (i < count && (wanted->parts[i] == NULL ||
                         is_column(&columns[i], wanted->parts[i])))
        i++;
    wanted->is_there = wanted->is_there || i == count;
    return SKR_OK;
}

static enum skr_code
find_index(struct skr_tx tx, const char *table, const char *const parts[3],
           bool *has, struct skr_error *error)
{
    struct wanted_index wanted = {.parts = parts};
    struct skr_arena arena = {0};
    const struct skr_word words[] = {{"table", table}};
    const char *sql =
        skr_sql_fill(tx.ops->dialect, &arena, "{find_indexes}", words, 1);
    enum skr_code code = sql == NULL
                             ? skr_fail_memory(error)
                             : skr_sql_each(tx, sql, SKR_NO_VALUES,
                                            compare_index, &wanted, error);
    *has = wanted.is_there;
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_schema_has_index(struct skr_tx tx, const char *table, const char *first,
                     const char *second, bool *has, struct skr_error *error)
{
    const char *const parts[3] = {first, second};
    return find_index(tx, table, parts, has, error);
}

static enum skr_code
has_index(struct skr_tx tx, const char *table, const struct skr_index *index,
          bool *has, struct skr_error *error)
{
    const char *const one[3] = {index->columns};
    const char *const other[3] = {index->other_first, index->other_second};
    enum skr_code code = find_index(
        tx, table, index->parts[0] == NULL ? one : index->parts, has, error);
    if (code == SKR_OK && !*has && index->other_first != NULL)
        code = find_index(tx, table, other, has, error);
    return code;
}

// What a table may lack: a column or an index.
struct part {
    const char *table;
    const struct skr_column *column;  // NULL: it is the index
    const struct skr_index *index;
};

static enum skr_code
has_part(struct skr_tx tx, const struct part *part, bool *has,
         struct skr_error *error)
{
    return part->column == NULL
               ? has_index(tx, part->table, part->index, has, error)
               : skr_schema_has_column(tx, part->table, part->column->name, has,
                                       error);
}

static const char *
fill_part(struct skr_tx tx, const struct part *part, const char *step,
          struct skr_arena *arena)
{
    if (part->column == NULL)
        return fill_index(tx.ops->dialect, arena, step, part->table,
                          part->index);
    const struct skr_word words[] = {{"table", part->table},
                                     {"column", part->column->name},
                                     {"definition", part->column->definition}};
    return skr_sql_fill(tx.ops->dialect, arena, step, words,
                        SKR_COUNT_OF(words));
}

static enum skr_code
has_remains(struct skr_tx tx, const struct part *part, struct skr_arena *arena,
            bool *has, struct skr_error *error)
{
    const char *sql = fill_part(tx, part, "{index_remains}", arena);
    if (sql == NULL)
        return skr_fail_memory(error);
    return sql[0] == '\0' ? SKR_OK
                          : skr_sql_finds(tx, sql, SKR_NO_VALUES, has, error);
}

static enum skr_code
add_part(struct skr_tx tx, const struct part *part, skr_sql_text_fn *each,
         void *user, struct skr_error *error)
{
    static const char *const steps[2][3] = {
        {"{prepare_index}", "{remove_remains}", "{add_index}"},
        {"{prepare_column}", NULL, "{add_column}"},
    };
    bool is_column = part->column != NULL, has = false, remains = false;
    struct skr_arena arena = {0};
    enum skr_code code = has_part(tx, part, &has, error);
    if (code == SKR_OK && !has && !is_column)
        code = has_remains(tx, part, &arena, &remains, error);
    for (size_t i = 0; !has && code == SKR_OK && i < 3; i++)
        if (i != 1 || remains)
            code = give(fill_part(tx, part, steps[is_column][i], &arena), each,
                        user, error);
    skr_arena_fini(&arena);
    // Another process may have been quicker, where it cannot be kept out.
    if (code != SKR_OK && code != SKR_NO_MEMORY &&
        has_part(tx, part, &has, NULL) == SKR_OK && has) {
        skr_error_clear(error);
        return SKR_OK;
    }
    // A statement does not wait for long to alter a table, as all writers would
    // have to wait behind it.
    if (code == SKR_CONFLICT)
        skr_error_prefix(error,
                         "%s was not added; run this again when the "
                         "transaction is over that uses the table",
                         is_column ? part->column->name : part->index->name);
    return code;
}

enum skr_code
skr_schema_complete(const struct skr_schema *schema, struct skr_db *db,
                    const char *table, skr_sql_text_fn *each, void *user,
                    struct skr_error *error)
{
    struct skr_tx tx = skr_db_tx(db);
    bool is_there = false;
    enum skr_code code = find_table(schema, tx, table, &is_there, error);
    if (code != SKR_OK || !is_there)
        return code;
    for (size_t i = 0; code == SKR_OK && i < schema->late_column_count; i++)
        code =
            add_part(tx, &(struct part){table, &schema->late_columns[i], NULL},
                     each, user, error);
    for (size_t i = 0; code == SKR_OK && i < schema->index_count; i++)
        code = add_part(tx, &(struct part){table, NULL, &schema->indexes[i]},
                        each, user, error);
    return code;
}
