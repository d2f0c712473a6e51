// SPDX-License-Identifier: MIT
// Binds printf-checked values and runs a statement with them. The count of
// values is checked against the count of parameters.

#include "db/run.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What no text takes, so that the statement is refused.
static const struct skr_values misbound = {.count = SIZE_MAX};

struct skr_values
skr_values(const char *kinds, ...)
{
    struct skr_values values = {.count = 0};
    va_list arguments;
    va_start(arguments, kinds);
    while (*kinds != '\0' && values.count < SKR_VALUES_ROOM) {
        struct skr_value *value = &values.items[values.count];
        if (*kinds == ' ') {
            kinds++;
        } else if (skr_text_starts_with(kinds, "%s")) {
            *value = skr_bind_text(va_arg(arguments, const char *));
            values.count++;
            kinds += strlen("%s");
        } else if (skr_text_starts_with(kinds, "%jd")) {
            *value = skr_bind_integer(va_arg(arguments, intmax_t));
            values.count++;
            kinds += strlen("%jd");
        } else {
            break;
        }
    }
    va_end(arguments);
    return *kinds == '\0' ? values : misbound;
}

// How many values a text takes. A quoted ? counts for nothing.
static size_t
count_parameters(const struct skr_dialect *dialect, const char *sql)
{
    size_t count = 0;
    bool in_string = false;
    for (const char *at = sql; *at != '\0'; at++) {
        if (*at == '\'')
            in_string = !in_string;
        if (in_string)
            continue;
        if (!dialect->numbers_parameters) {
            count += *at == '?';
        } else if (*at == '$') {
            size_t number = strtoul(at + 1, NULL, 10);
            count = number > count ? number : count;
        }
    }
    return count;
}

static enum skr_code
bind(struct skr_tx tx, struct skr_statement *statement,
     const struct skr_values *values, struct skr_error *error)
{
    size_t wanted = count_parameters(tx.ops->dialect, statement->sql);
    if (values->count != wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "values for %zu parameters are bound wrongly: %.200s",
                        wanted, statement->sql);
    statement->values = values->items;
    statement->value_count = values->count;
    return SKR_OK;
}

enum skr_code
skr_sql_run(struct skr_tx tx, const char *sql, struct skr_values values,
            uint64_t *affected, struct skr_error *error)
{
    struct skr_statement statement = {.sql = sql, .affected = affected};
    enum skr_code code = bind(tx, &statement, &values, error);
    return code != SKR_OK ? code : skr_tx_run(tx, &statement, error);
}

enum skr_code
skr_sql_each(struct skr_tx tx, const char *sql, struct skr_values values,
             skr_row_fn *each_row, void *user, struct skr_error *error)
{
    struct skr_statement statement = {
        .sql = sql, .each_row = each_row, .user = user};
    enum skr_code code = bind(tx, &statement, &values, error);
    return code != SKR_OK ? code : skr_tx_run(tx, &statement, error);
}

static enum skr_code
copy_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct skr_row *row = user;
    if (row->found)
        return SKR_OK;
    for (size_t i = 0; i < row->count && i < count; i++) {
        if (columns[i].bytes != NULL && row->arena == NULL)
            continue;
        row->columns[i] = columns[i];
        if (columns[i].bytes == NULL)
            continue;
        row->columns[i].bytes =
            skr_arena_text(row->arena, columns[i].bytes, columns[i].size);
        if (row->columns[i].bytes == NULL)
            return skr_fail_memory(error);
    }
    row->found = true;
    return SKR_OK;
}

static void
clear_row(struct skr_row *row)
{
    row->found = false;
    for (size_t i = 0; i < row->count; i++)
        row->columns[i] = (struct skr_value){.kind = SKR_NULL};
}

enum skr_code
skr_sql_fetch(struct skr_tx tx, const struct skr_statement *statement,
              struct skr_row *row, struct skr_error *error)
{
    struct skr_statement with_row = *statement;
    with_row.each_row = copy_row;
    with_row.user = row;
    clear_row(row);
    return skr_tx_run(tx, &with_row, error);
}

enum skr_code
skr_sql_row(struct skr_tx tx, const char *sql, struct skr_values values,
            struct skr_row *row, struct skr_error *error)
{
    struct skr_statement statement = {.sql = sql};
    enum skr_code code = bind(tx, &statement, &values, error);
    return code != SKR_OK ? code : skr_sql_fetch(tx, &statement, row, error);
}

enum skr_code
skr_sql_ask_table(struct skr_tx tx, const char *sql_template, const char *table,
                  struct skr_row *row, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}};
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(tx.ops->dialect, &arena, sql_template, words, 1);
    enum skr_code code = SKR_OK;
    clear_row(row);
    if (sql == NULL)
        code = skr_fail_memory(error);
    else if (sql[0] != '\0')
        code = skr_sql_row(tx, sql, SKR_NO_VALUES, row, error);
    skr_arena_fini(&arena);
    return code;
}

// 0 where it is NULL.
static enum skr_code
keep_number(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    (void)error;
    *(int64_t *)user = columns[0].kind == SKR_INTEGER ? columns[0].integer : 0;
    return SKR_OK;
}

enum skr_code
skr_sql_number(struct skr_tx tx, const char *sql, struct skr_values values,
               int64_t *number, struct skr_error *error)
{
    *number = 0;
    return skr_sql_each(tx, sql, values, keep_number, number, error);
}

enum skr_code
skr_sql_text(struct skr_tx tx, const char *sql, struct skr_values values,
             char *text, size_t size, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value value;
    struct skr_row row = {.arena = &arena, .columns = &value, .count = 1};
    enum skr_code code = skr_sql_row(tx, sql, values, &row, error);
    bool has_text = row.found && value.bytes != NULL;
    snprintf(text, size, "%s", has_text ? (const char *)value.bytes : "");
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_sql_finds(struct skr_tx tx, const char *sql, struct skr_values values,
              bool *found, struct skr_error *error)
{
    struct skr_row row = {.columns = NULL};
    enum skr_code code = skr_sql_row(tx, sql, values, &row, error);
    *found = row.found;
    return code;
}

// Statements that match no row, by which a missing privilege is found before
// the first message.
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
