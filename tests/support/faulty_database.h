// SPDX-License-Identifier: MIT
// A database that fails where a test says so, and counts its connections. It
// is another driver's in all else.

#ifndef SKR_TEST_FAULTY_DATABASE_H
#define SKR_TEST_FAULTY_DATABASE_H

#include "db/db.h"

// Begins of write transactions, commits, statements that begin with a text, or
// commits that are carried out all the same.
enum skr_faulty_call {
    SKR_FAULTY_BEGIN,
    SKR_FAULTY_COMMIT,
    SKR_FAULTY_RUN,
    SKR_FAULTY_UNCLEAR_COMMIT,
};

struct skr_fault {
    enum skr_faulty_call call;
    const char *sql;  // how the statement begins
    size_t after;     // so many succeed first
    size_t count;     // so many fail
    enum skr_code code;
    enum skr_remedy remedy;
};

// There is one at a time: this forgets the one before.
const struct skr_db_ops *skr_faulty_database(const struct skr_db_ops *real);
// Whether a statement begins so, whatever quotes the database has around
// identifiers.
bool skr_faulty_begins(const char *sql, const char *start);
// From now on, instead of any fault before; NULL: none.
void skr_faulty_set(const struct skr_fault *fault);
// Called before each statement that is run; NULL: none is. It may
// run others on the real connection.
typedef void
skr_faulty_watch_fn(struct skr_tx real, const struct skr_statement *statement,
                    void *user);
void skr_faulty_watch(skr_faulty_watch_fn *watch, void *user);
// Statements that begin with a text are not run: one row is their answer. NULL:
// there are none such. The caller keeps them for as long.
struct skr_faulty_answer {
    const char *sql;
    const struct skr_value *columns;
    size_t count;
};
void skr_faulty_answer(const struct skr_faulty_answer *answers, size_t count);
// Connections that are opened from now on are to a node of a cluster.
void skr_faulty_cluster(void);
// No lock can be relied on from now on, as behind a pooler of transactions.
void skr_faulty_refuse_locks(void);
// Failures so far of the fault that is set.
size_t skr_faulty_failures(void);
// Statements run so far, and transactions begun.
size_t skr_faulty_runs(void);
// Connections opened so far, and those that are open now.
size_t skr_faulty_opened(void);
size_t skr_faulty_open(void);

#endif
