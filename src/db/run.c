// SPDX-License-Identifier: MIT
// Binds printf-checked values and runs a statement with them. The count of
// values is checked against the count of parameters.

#include "db/run.h"

#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"

#include <stdarg.h>
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

static enum skr_code
bind(struct skr_tx tx, struct skr_statement *statement,
     const struct skr_values *values, struct skr_error *error)
{
    size_t wanted = skr_sql_parameter_count(tx.ops->dialect, statement->sql);
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

enum skr_code
skr_sql_row(struct skr_tx tx, const char *sql, struct skr_values values,
            struct skr_row *row, struct skr_error *error)
{
    struct skr_statement statement = {.sql = sql};
    row->found = false;
    for (size_t i = 0; i < row->count; i++)
        row->columns[i] = (struct skr_value){.kind = SKR_NULL};
    enum skr_code code = bind(tx, &statement, &values, error);
    if (code != SKR_OK)
        return code;
    return skr_tx_fetch_one(tx, &statement, row->arena, row->columns,
                            row->count, &row->found, error);
}

enum skr_code
skr_sql_number(struct skr_tx tx, const char *sql, struct skr_values values,
               int64_t *number, struct skr_error *error)
{
    *number = 0;
    return skr_sql_each(tx, sql, values, skr_db_keep_number, number, error);
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
