// SPDX-License-Identifier: MIT
// Gives a suite a fresh database of its own. The one place in the tests that
// knows which databases there are: SKR_TEST_DATABASE chooses.
//
// Every function ends the test when something does not work.

#ifndef SKR_TEST_DATABASES_H
#define SKR_TEST_DATABASES_H

#include "db/db.h"

// cmocka wants these before its own header.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct skr_test_database {
    const struct skr_db_ops *ops;
    char folder[64];  // private, for a test's own files too
    char url[256];
    char impatient_url[256];    // the same, giving up on locks after 50 ms
    char alias_url[256];        // the same by another name
    char modest_url[256];       // the same for one who sees nothing of others
    char missing_url[256];      // a database that cannot be reached
    const char *bytes_type;     // of a column for any bytes
    bool text_holds_bytes;      // a text column takes what is no UTF-8 too
    bool text_takes_blobs;      // bytes that are bound go into it as they are
    const char *clock;          // how the driver's statements name the clock
    const char *time_words[2];  // before and after a time in UTC in its place
    bool wait_sees_commits;     // it ends for a commit, not to look for one
    const char *reader_answer;  // a word of what is said to one who may not
                                // write
    // Pairs: a URL that is a mistake, and a word of the answer; NULL at the
    // end.
    const char *const *bad_urls;
};

// Exits with 77 (skipped) when this build lacks the driver.
void skr_test_database_make(struct skr_test_database *database);
void skr_test_database_remove(struct skr_test_database *database);

struct skr_db *skr_test_connect(const struct skr_test_database *database);
// One that does not wait for locks.
struct skr_db *
skr_test_connect_impatient(const struct skr_test_database *database);

// Whether transactions can write at the same time.
bool skr_test_writes_side_by_side(struct skr_db *db);

// Plain SQL, run as it is.
void skr_test_run(struct skr_db *db, const char *sql);
// A template as in db/sql.h, with {now} and kin, and bound values.
void skr_test_run_template(struct skr_db *db, const char *sql_template,
                           const struct skr_value *values, size_t count);
// The first column of the first row.
int64_t skr_test_number(struct skr_db *db, const char *sql);
// The caller frees it; NULL when there is no row or it holds NULL.
char *skr_test_text(struct skr_db *db, const char *sql);
// As skr_test_text(), compared; expected may be NULL.
void
skr_test_assert_text(struct skr_db *db, const char *sql, const char *expected);

// An application's own connection, as the client library gives it.
struct skr_test_client {
    struct skr_tx tx;
    void *connection;
};
struct skr_test_client
skr_test_client_open(const struct skr_test_database *database);
void skr_test_client_close(struct skr_test_client *client);
void skr_test_client_run(struct skr_test_client *client, const char *sql);
void skr_test_client_begin(struct skr_test_client *client);
void skr_test_client_commit(struct skr_test_client *client);
void skr_test_client_rollback(struct skr_test_client *client);

// Its session's own clock goes five hours ahead from here on. False: sessions
// of this database have no zone.
bool skr_test_client_move_east(struct skr_test_client *client);

// How a statement would be run, in lines of columns with a | between them; the
// caller frees it. Costly: all of a table of messages is read for it, or much
// of it sorted.
char *skr_test_plan(struct skr_tx tx, const struct skr_statement *statement);
bool skr_test_plan_is_costly(const char *plan);
// Renews what the server knows of messenger_outbox, by which it makes plans.
void skr_test_count_anew(struct skr_db *db);

// Takes away an index that setup made.
void
skr_test_drop_index(struct skr_db *db, const char *table, const char *index);
// How much was read for the statements of this connection so far: rows, entries
// of indexes or pages, as the database counts.
int64_t skr_test_reads(struct skr_db *db);
// MariaDB and MySQL: the sum of the session's counters whose names are LIKE
// that, and the folder of the server's certificates; NULL: it has none.
int64_t skr_test_status(struct skr_db *db, const char *names);
const char *skr_test_mysql_certificates(void);

// For a forked child: from here on the process may read the database and not
// write it.
void skr_test_become_reader(const struct skr_test_database *database);
// A zone like Berlin's, which the server knows by its name; "": it knows none.
enum { SKR_TEST_ZONE_SIZE = 32 };
void skr_test_summer_zone(const struct skr_test_database *database,
                          char zone[SKR_TEST_ZONE_SIZE]);
// Takes away, behind its holder's back, the lock of this name that is held on
// the database.
void
skr_test_break_lock(const struct skr_test_database *database, const char *name);
// Begins a transaction on db in which others who write the table have to wait.
void skr_test_hold_up(struct skr_db *db, const char *table);
// Sets up the database in a way that a driver advises against.
void skr_test_spoil(struct skr_db *db);
// From here on db finds no room for more data.
void skr_test_make_full(struct skr_db *db);

// From here on the table refuses a change ("UPDATE", "DELETE", "INSERT") of the
// rows that a condition is true of, which knows a row as OLD and as NEW; or it
// does so no longer. Once at a time for each kind of change.
void skr_test_refuse(struct skr_db *db, const char *table, const char *change,
                     const char *rows);
void skr_test_allow(struct skr_db *db, const char *change);

// Asks every few milliseconds until the answer is yes; false after timeout_ms.
bool
skr_test_eventually(bool (*is_so)(void *user), void *user, uint32_t timeout_ms);

#endif
