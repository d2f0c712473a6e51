// SPDX-License-Identifier: MIT
// SQL written once for all databases: templates with {words}, filled from the
// dialect and from checked names. Values are never filled in, they are bound.

#ifndef SKR_DB_SQL_H
#define SKR_DB_SQL_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

struct skr_arena;

struct skr_word {
    const char *name;
    const char *text;
};

// What differs between databases, as data. Every dialect has these words, its
// own or those of sql.c:
//   now            the server's clock in UTC, to the second
//   now_milliseconds  how far that second has gone
//   now_plus       now, plus a bound number of seconds (one parameter)
//   now_after      the first whole second that is a bound number of
//                  milliseconds away (one parameter)
//   now_minus      now, minus a bound number of seconds (one parameter)
//   row_id         column type: a growing number that is never used twice
//   unsigned_row_id  the same, unsigned where there is such a type
//   long_text, timestamp, message_id   column types
//   json           column type: JSON text
//   key            the name of a column, key, which is reserved in some
//   table_options  tail of CREATE TABLE, with a blank before it, or ""
//   inline_index   an index inside CREATE TABLE, with a comma before it, or ""
//   create_index   an index as a statement of its own, or ""; both know the
//                  words table, index and columns, and own_index, which no
//                  index of another table has, for databases where they share
//                  one space of names
//   find_table     a SELECT that gives a row if there is the table; this and
//                  what follows know the word table
//   find_indexes   a SELECT of the first three columns, or NULL, of each index
//                  of the table that can be relied on
//   prepare_index, add_index   statements for an index on a table that is in
//                  use, outside of a transaction, or ""
//   index_remains  a SELECT that gives a row if a failed attempt to add this
//                  index to this table left something of its name behind, or
//                  ""; remove_remains drops that
//   find_column    a SELECT that gives a row if the table has the column; this
//                  and those for adding it know the words table and column
//   prepare_column, add_column   statements for a column, defined by
//   {definition},
//                  of a table that is in use, outside of a transaction, or ""
//   key_text       column type: up to 255 characters, compared by their bytes
//   partition_bytes  the column partition_key, exact to the byte
//   partition_text  to be read: '' where its collation takes it for that, and
//                  text for a number; this text finds the row as a key
//   union_open, union_close   around a SELECT with a LIMIT in a UNION
//   optimize_table  a statement that tidies up after many deletes, outside of a
//                  transaction; it knows the word table
//   unset_id       an id of zeros, which no message has
//   insert_once    tail of an INSERT that does nothing when the key exists, or
//                  "" where SKR_DUPLICATE is the only way to know
//   lock_skip      tail of a SELECT that claims rows others may want; "" where
//                  rows cannot be locked one by one
//   lock_rows      tail of a SELECT whose rows no other session writes before
//                  the transaction ends; "" where there is one writer at a time
//   hold_owner_lock  takes the lock of {lock_owner} for as long as its session
//                  lasts, and says whether it could; "" where sessions hold no
//                  such locks
//   owner_lock_is_free  whether no session has that of the column owner
//   is_in_share    whether a row's {shard}, one of {shard_count}, is leased to
//                  the owner that {is_owner} tells: the leases are looked up
//                  once a statement
//   shard_of_key   a row's shard in an ordered queue: a hash of its key, or of
//                  its id where it has none
//   by_primary_key  after a table's name: rows are reached by their ids, as the
//                  statement says, and no other row is locked on the way
//   remove_ids     a DELETE of the rows {ids}, reached in the same way; it
//                  knows the words table, ids and id_rows
//   in_range       whether a row is one of those from one id to another, two
//                  parameters. Where a session that writes a range waits for
//                  the row behind it there are three: the range ends before its
//                  last row, which stands by itself.
//   remove_range   a DELETE of such rows, reached by their ids
//   id_row         a column `id` of a bound number; of such {id_rows} is made
//   random_hex     32 random hexadecimal digits
//   no_index       before a column: leave its index out of the plan; "" where
//                  the planner knows the data well enough
//   queue_is       whether a row is of the queue that is bound (one parameter),
//                  by the index. Exact to the byte: where a collation takes "a"
//                  and "A" for the same, the word queue_hex says it in full.
//   queue_is_beyond     the same beside `id > ?` in the order of ids: by what
//                  leads straight to that id
//   queue_is_timed      the same in the order of ids, where the index on the
//                  queue goes on with a time: found by that, all rows of the
//                  queue would have to be sorted
//   queue_is_unindexed  the same, leaving the index out of the plan as no_index
//   unsafe_engine  a SELECT that gives a row, the engine's name, for a table
//                  that cannot be rolled back; it knows the word table. ""
//                  where there are none.
//   reused_ids     a SELECT that gives a row, the word that its definition
//                  lacks, for a table in which the id of a deleted row is given
//                  to a new one; it knows the word table, and is for
//                  connections of our own. "" where there are none.
//   open_transactions
//                  a SELECT of two numbers: all transactions below the first
//                  are over, and none that begins later is below the second. ""
//                  where rows become visible in the order of their ids.
//   open_transactions_inside
//                  the same inside a transaction, and never too high: where
//                  the server may show what was long ago it is known by that,
//                  or 0
//   writer_number  column definition: the number of the transaction that wrote
//                  the row, by default. "" where there is none; so are these:
//   is_decided     whether all transactions are over that began to write before
//                  that of a row with a key, by its column transaction_id; a
//                  number of another server, as in a copy, means nothing
//   oldest_writer  a SELECT of the process, the age in seconds and the name of
//                  the transaction before which all are over
//   notify_function, notify_trigger   statements that make inserts into a table
//                  wake readers that sleep until there are rows, or "";
//                  the second knows the word table
//   find_notify    a SELECT that gives a row if there is that trigger, or ""
//   drop_notify_trigger, drop_notify_function   take it away, or ""; the last
//                  does nothing while other tables use the function
//   zone_names     "yes" where zones are known by name, or ""
//   zone_offset    what stands before an offset that is a zone
//   zone_now, zone_now_plus, zone_now_after, zone_now_minus, zone_from_utc,
//   zone_created_at
//                  for db/zone.h: they know the words zone_text and zone_back
//   utc_now        as now, whatever zone a table is in
//   row_estimate   a SELECT of about how many rows a table has, at next to no
//                  cost; it knows the word table
//   rows_written   a SELECT of how many rows were ever given an id in a table,
//                  those that are gone included, or 0 where it is not
//                  known; it knows the word table
//   table_place    a SELECT of what the database calls the table that it finds
//                  under the name, with the schema where there are several;
//                  it knows the word table
//   setup_lock     a statement that keeps out others that set up tables until
//                  the end of the transaction, or "" where none is needed

// Of the name of a table without quotes: it tells tables apart, unless the
// server is set otherwise; it is kept, and the table found in any; it is lower.
enum skr_name_case { SKR_CASE_COUNTS, SKR_CASE_KEPT, SKR_CASE_FOLDED };

struct skr_dialect {
    const char *product;  // for people
    const struct skr_word *words;
    size_t word_count;
    char quote;  // around identifiers; 0: none
    enum skr_name_case name_case;
    size_t cuts_names_at;     // so many bytes, without a word; 0: it does not
    bool numbers_parameters;  // $1, $2 rather than ?
    bool hash_is_comment;     // # begins one
    // open_transactions tells of seconds, not of numbers.
    bool transactions_are_clock;
    bool locks_behind_range;  // in_range and remove_range have three parameters
};

// What the dialect says for a word, as it is. An unknown word aborts.
const char *skr_sql_word(const struct skr_dialect *dialect, const char *name);

// Whether the two spell one table. A dialect that is not known is NULL.
bool skr_sql_same_table(const struct skr_dialect *dialect, const char *a,
                        const char *b);

// Fills a template: {word} from words, then from the dialect; ? becomes $n
// where the dialect numbers parameters. A word of the caller that is called
// table, or ends so, is an identifier: it is folded as the server folds one
// without quotes, and quoted; {table:name} is the text itself, for what stands
// in quotes or is part of a longer name. An unknown word aborts: templates are
// ours. NULL when memory is out.
char *skr_sql_fill(const struct skr_dialect *dialect, struct skr_arena *arena,
                   const char *template, const struct skr_word *words,
                   size_t word_count);

// Lists of ids are bound in statements of a few fixed lengths, so that few
// texts are prepared: the text is for skr_sql_list_size(count) parameters, and
// the caller repeats its last id to fill it.
enum { SKR_SQL_MAX_LIST = 512, SKR_SQL_LIST_SIZES = 6 };
size_t skr_sql_list_size(size_t count);
// "?, ?, ?": for {ids}.
char *skr_sql_list(struct skr_arena *arena, size_t size);
// "SELECT {id_row} UNION ALL SELECT {id_row}": for {id_rows}.
char *skr_sql_rows(struct skr_arena *arena, size_t size);

#endif
