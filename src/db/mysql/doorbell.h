// SPDX-License-Identifier: MIT
// The binary log as a doorbell: a thread of its own reads it as a replica does,
// and rings when a transaction wrote rows to one table. Nothing depends on it:
// the table stays the truth, no position is kept, and what the log does not
// tell is found by looking. A commit on its way:
//
//   GTID, BEGIN               nothing
//   TABLE_MAP                 is it the table that is listened for?
//   WRITE_ROWS, UPDATE_ROWS   then the transaction has written to it
//   DELETE_ROWS               nothing: relays delete what they have sent
//   XID, COMMIT               the end: if it has written, ring
//   XA COMMIT                 ring: to what it has written is long past
//
// Nothing else of an event is looked at. A ring may come some milliseconds
// before its rows can be seen. A transaction that the server compressed as a
// whole hides its tables, and rings.

#ifndef SKR_DB_MYSQL_DOORBELL_H
#define SKR_DB_MYSQL_DOORBELL_H

#include "base/url.h"

#include <stdbool.h>

struct skr_mysql_doorbell;

enum { SKR_MYSQL_TABLE_SIZE = 3 * 64 + 1 };

struct skr_mysql_doorbell_options {
    const struct skr_url *url;  // of its session; copied
    const char *database, *table;
    int64_t most_bytes;  // of other tables in a second; more: it gives up
};

// What the thread does. It tries again by itself, ever more rarely.
enum skr_mysql_doorbell_state {
    SKR_MYSQL_DOORBELL_STARTING,
    SKR_MYSQL_DOORBELL_LISTENING,
    SKR_MYSQL_DOORBELL_RESTING,  // rows come so fast that it is of no use
    SKR_MYSQL_DOORBELL_FAILED,
};

struct skr_mysql_doorbell_news {
    enum skr_mysql_doorbell_state state;
    struct skr_error reason;  // why it failed
    uint64_t rings;           // since the last news; a change of state is one
};

// Does not wait for the server.
SKR_MUST_CHECK enum skr_code
skr_mysql_doorbell_open(const struct skr_mysql_doorbell_options *options,
                        struct skr_mysql_doorbell **doorbell,
                        struct skr_error *error);
// NULL is harmless. A thread that is still connecting ends by itself later.
void skr_mysql_doorbell_close(struct skr_mysql_doorbell *doorbell);

// Sleeps until there is news (SKR_OK), wake_fd is readable (SKR_STOPPED), or
// the time is over (SKR_TIMEOUT); *news is filled in the first case. doorbell
// may be NULL.
SKR_MUST_CHECK enum skr_code
skr_mysql_doorbell_await(struct skr_mysql_doorbell *doorbell, int wake_fd,
                         int64_t timeout_ms,
                         struct skr_mysql_doorbell_news *news);
// Rows come rarely again: one that rests may listen.
void skr_mysql_doorbell_resume(struct skr_mysql_doorbell *doorbell);

#endif
