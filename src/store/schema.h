// SPDX-License-Identifier: MIT
// How a layout describes a table, so that one description makes it in every
// dialect.

#ifndef SKR_STORE_SCHEMA_H
#define SKR_STORE_SCHEMA_H

#include "store/store.h"

struct skr_index {
    const char *name;
    const char *columns;
    // An index that begins with these two serves as well; NULL: none does.
    const char *other_first, *other_second;
    // Of an index on three columns these; NULL: it is on one.
    const char *parts[3];
};

// One that a table may lack which others made.
struct skr_column {
    const char *name;
    const char *definition;  // a template
};

struct skr_schema {
    const char *columns;  // a template
    // What a table that is there needs to be one of ours to complete, and the
    // cure of skr_schema_check(); NULL: it is left as it is.
    const char *needed, *cure;
    const struct skr_column *late_columns;  // not among those
    size_t late_column_count;
    const struct skr_index *indexes;
    size_t index_count;
};

// SKR_INVALID for a name of a table that is no plain identifier.
SKR_MUST_CHECK enum skr_code
skr_schema_check_name(const char *table, struct skr_error *error);
// Gives the statements that make the table, each harmless when run again. With
// a db, none for a table that is there: it is not ours to alter; SKR_INVALID
// for one of another shape.
struct skr_schema_target {
    const struct skr_dialect *dialect;
    struct skr_db *db;  // NULL: whatever is there
    skr_sql_text_fn *each;
    void *user;
};
SKR_MUST_CHECK enum skr_code
skr_schema_write(const struct skr_schema *schema, const char *table,
                 const struct skr_schema_target *target,
                 struct skr_error *error);
// Gives the statements that add what columns and indexes a table lacks that is
// there, to be run outside of a transaction: they make no session wait where
// the database can do that. None for a table that is not there; SKR_INVALID for
// one of another shape.
SKR_MUST_CHECK enum skr_code
skr_schema_complete(const struct skr_schema *schema, struct skr_db *db,
                    const char *table, skr_sql_text_fn *each, void *user,
                    struct skr_error *error);
// Whether an index begins with a column, and a second one if it is not NULL.
SKR_MUST_CHECK enum skr_code
skr_schema_has_index(struct skr_tx tx, const char *table, const char *first,
                     const char *second, bool *has, struct skr_error *error);

// Begins the transaction that tables are made in, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_schema_begin(struct skr_db *db, struct skr_error *error);
// Commits it, or rolls back when code tells of an error, which it returns.
SKR_MUST_CHECK enum skr_code
skr_schema_end(struct skr_db *db, enum skr_code code, struct skr_error *error);
// Whether a table can be worked with. SKR_MISSING: there is none; SKR_INVALID
// names the column that one of another shape lacks; SKR_REFUSED: as below. Each
// says what to do.
struct skr_needs {
    const char *table;
    const char *columns;  // with ", " between
    const char *cure;     // what makes the table
};
SKR_MUST_CHECK enum skr_code
skr_schema_check(struct skr_tx tx, const struct skr_needs *needs,
                 struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_schema_has_table(struct skr_tx tx, const char *table, bool *has,
                     struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_schema_has_column(struct skr_tx tx, const char *table, const char *column,
                      bool *has, struct skr_error *error);
// SKR_REFUSED for a table whose rows stay when a transaction is rolled back.
SKR_MUST_CHECK enum skr_code
skr_schema_check_engine(struct skr_tx tx, const char *table,
                        struct skr_error *error);
// SKR_REFUSED for a table in which an id is used again once its row is deleted,
// with the statements that cure it: columns are those of the new table, in
// their order, and maker is the command that makes it. Rows may be added to
// such a table, but it cannot be known which of them an id means: not to be
// read.
SKR_MUST_CHECK enum skr_code
skr_schema_check_ids(struct skr_tx tx, const char *table, const char *columns,
                     const char *maker, struct skr_error *error);
// Which table a statement of setup() makes; false: it makes none.
enum { SKR_SCHEMA_NAME_SIZE = 64 };
bool skr_schema_makes_table(const char *sql, char name[SKR_SCHEMA_NAME_SIZE]);
// For texts that setup() gives: user is the struct skr_db to run them on.
skr_sql_text_fn skr_schema_run;

#endif
