// SPDX-License-Identifier: MIT
// Runs one statement in one call. Values are bound, never written into the
// text, and are as many as the text has parameters: anything else is
// SKR_INVALID, and nothing is sent.
//
//   skr_sql_run(tx, sql, skr_values("%s %jd", queue, row), NULL, error)

#ifndef SKR_DB_RUN_H
#define SKR_DB_RUN_H

#include "db/db.h"

struct skr_arena;

enum { SKR_VALUES_ROOM = 16 };

// Texts and bytes are borrowed until the statement has run.
struct skr_values {
    size_t count;
    struct skr_value items[SKR_VALUES_ROOM];
};
#define SKR_NO_VALUES ((struct skr_values){.count = 0})

// The compiler checks the arguments as those of printf: %s is a text (NULL: SQL
// NULL), %jd an int64_t; blanks may stand between. Other kinds of values are
// written as they are: (struct skr_values){1, {skr_bind_id(..)}}.
struct skr_values
skr_values(const char *kinds, ...) __attribute__((format(printf, 1, 2)));

// affected may be NULL.
SKR_MUST_CHECK enum skr_code
skr_sql_run(struct skr_tx tx, const char *sql, struct skr_values values,
            uint64_t *affected, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_sql_each(struct skr_tx tx, const char *sql, struct skr_values values,
             skr_row_fn *each_row, void *user, struct skr_error *error);

// The first columns of the first row, copied into the arena where they are no
// numbers. Without a row all are NULL, and found is false.
struct skr_row {
    struct skr_arena *arena;  // NULL: what is no number comes as NULL
    struct skr_value *columns;
    size_t count;
    bool found;
};
SKR_MUST_CHECK enum skr_code
skr_sql_fetch(struct skr_tx tx, const struct skr_statement *statement,
              struct skr_row *row, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_sql_row(struct skr_tx tx, const char *sql, struct skr_values values,
            struct skr_row *row, struct skr_error *error);
// The same of a template that asks about a table, by its {table}. Where a
// database has nothing to ask ("") there is no row.
SKR_MUST_CHECK enum skr_code
skr_sql_ask_table(struct skr_tx tx, const char *sql_template, const char *table,
                  struct skr_row *row, struct skr_error *error);
// The first column of the only row; 0 where it is NULL or there is no row.
SKR_MUST_CHECK enum skr_code
skr_sql_number(struct skr_tx tx, const char *sql, struct skr_values values,
               int64_t *number, struct skr_error *error);
// The same of a text, cut where there is no room for it; "" where it is NULL or
// there is no row.
SKR_MUST_CHECK enum skr_code
skr_sql_text(struct skr_tx tx, const char *sql, struct skr_values values,
             char *text, size_t size, struct skr_error *error);
// Whether there is a row.
SKR_MUST_CHECK enum skr_code
skr_sql_finds(struct skr_tx tx, const char *sql, struct skr_values values,
              bool *found, struct skr_error *error);

// Whether the database's user may write to a table, asked by statements that
// change no row.
// columns: all that an INSERT has to give. SKR_REFUSED with SKR_GIVE_UP names
// the right that is missing; any other failure is left to the statements that
// follow.
SKR_MUST_CHECK enum skr_code
skr_rights_check_insert(struct skr_db *db, const char *table,
                        const char *columns, struct skr_error *error);
// The same of a user who may neither UPDATE nor DELETE. One of both is enough
// for some of the work, and the rest says what it misses.
SKR_MUST_CHECK enum skr_code
skr_rights_check_change(struct skr_db *db, const char *table,
                        const char *column, struct skr_error *error);

#endif
