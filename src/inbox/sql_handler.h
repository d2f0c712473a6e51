// SPDX-License-Identifier: MIT
// Handlers written in SQL: named parameters are found once, values are bound.

#ifndef SKR_INBOX_SQL_HANDLER_H
#define SKR_INBOX_SQL_HANDLER_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_arena;
struct skr_dialect;

enum skr_sql_parameter {
    SKR_SQL_ID,             // :id, 16 bytes
    SKR_SQL_ID_TEXT,        // :id_text, the UUID as text
    SKR_SQL_NAME,           // :name
    SKR_SQL_BODY,           // :body
    SKR_SQL_HEADERS,        // :headers, one JSON object
    SKR_SQL_PARTITION_KEY,  // :partition_key, NULL when there is none
};

enum { SKR_SQL_MAX_PARAMETERS = 64 };

struct skr_sql_template {
    char *sql;  // parameters as the dialect writes them
    enum skr_sql_parameter parameters[SKR_SQL_MAX_PARAMETERS];
    size_t count;
    // It calls a procedure, which may commit on its own.
    bool calls;
};

// Checks one statement and finds its parameters outside of strings, quoted
// names and comments (PostgreSQL's :: is no parameter). SKR_INVALID names what
// is not allowed: an unknown parameter, a second statement after a semicolon,
// words that begin or end transactions, DDL.
SKR_MUST_CHECK enum skr_code
skr_sql_template_parse(const char *sql, const struct skr_dialect *dialect,
                       struct skr_arena *arena, struct skr_sql_template *parsed,
                       struct skr_error *error);

// What the database says of a statement that is not run: SKR_INVALID for a
// mistake in it, SKR_MISSING for a table that is not there. SKR_OK also where
// it cannot tell, as for CALL. Outside a transaction.
SKR_MUST_CHECK enum skr_code
skr_sql_statement_check(const char *sql, struct skr_tx tx,
                        struct skr_error *error);

// The statements of one handler, prepared.
struct skr_sql_handler;
void skr_sql_handler_free(struct skr_sql_handler *handler);
// SKR_MISSING when a table that the statements name is not there, SKR_INVALID
// for another mistake in them; other trouble is no answer. Outside a
// transaction.
SKR_MUST_CHECK enum skr_code
skr_sql_handler_check(const struct skr_sql_handler *handler, struct skr_tx tx,
                      struct skr_error *error);
// Whether the statements fail in this way without any message: a column that is
// not there, a right that is missing. Outside a transaction.
bool
skr_sql_handler_is_broken(const struct skr_sql_handler *handler,
                          struct skr_tx tx, const struct skr_error *reason);
// Whether it runs procedures, which may end the transaction.
bool skr_sql_handler_calls(const struct skr_sql_handler *handler);

#endif
