// SPDX-License-Identifier: MIT
// Words that mean something to a database.

#ifndef SKR_DB_WORDS_H
#define SKR_DB_WORDS_H

#include <stdbool.h>

// Whether an identifier cannot stand in SQL as the name of a table without
// quotes: a word that SQLite, MariaDB, MySQL 8 or PostgreSQL reserves, in any
// case of letters. One list for all, so that a table can move between them.
bool skr_sql_is_reserved(const char *word);

#endif
