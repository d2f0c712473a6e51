// SPDX-License-Identifier: MIT
// Every statement that a table object runs, by its name. statements.c has their
// texts, and says what each is bound to.

#ifndef SKR_STORE_MESSENGER_STATEMENTS_H
#define SKR_STORE_MESSENGER_STATEMENTS_H

#include "store/list.h"

enum skr_messenger_sql {
    // What the server is asked for once.
    SKR_SQL_FIND_NAMESPACE,
    SKR_SQL_NOW,
    SKR_SQL_OPEN_TRANSACTIONS,  // "": nothing commits late

    // Reading: ids behind the cursor, whole rows beyond it. Only those of a
    // claim lock rows.
    SKR_SQL_DUE,  // their time has come
    SKR_SQL_DUE_BY_QUEUE,
    SKR_SQL_FULL,  // for whatever reason
    SKR_SQL_FULL_ON,
    SKR_SQL_LATE,  // from the low watermark on
    SKR_SQL_LATE_PASSING,
    SKR_SQL_LATE_FIRST,  // where there is no watermark
    SKR_SQL_LATE_FIRST_PASSING,
    SKR_SQL_FOREIGN,  // that others had
    SKR_SQL_LEASED,   // that any reader has at the moment
    SKR_SQL_LEASED_BY_QUEUE,
    SKR_SQL_EXPIRED,  // whose lease ran out
    SKR_SQL_FIRST,    // beyond a cursor that has not moved yet
    SKR_SQL_FIRST_TIMED,
    SKR_SQL_FIRST_IDS,
    SKR_SQL_FIRST_TIMED_IDS,
    SKR_SQL_NEW,
    SKR_SQL_NEW_PASSING,
    SKR_SQL_CLAIM_NEW,
    SKR_SQL_BY_ID,
    SKR_SQL_LOCK,
    SKR_SQL_TAIL,
    SKR_SQL_TAIL_BY_QUEUE,
    SKR_SQL_PARTITIONS,  // the first rows of 1, 2, 4, .. of them
    SKR_SQL_HEAD,        // the first row of a partition

    // Claims of single rows.
    SKR_SQL_MARK,
    SKR_SQL_UNMARK,
    SKR_SQL_RENEW,
    SKR_SQL_FIND_LEASED,
    SKR_SQL_RAISE_COUNT,

    // Settling. What follows a name with _LEASED is about a row that is leased,
    // with the lease as one parameter more.
    SKR_SQL_IDENTIFY,
    SKR_SQL_REMOVE,
    SKR_SQL_KEEP_SENT,
    SKR_SQL_MARK_DONE,
    SKR_SQL_RETRY,
    SKR_SQL_RETRY_LEASED,
    SKR_SQL_RETRY_LEAST,
    SKR_SQL_RETRY_LEAST_LEASED,
    SKR_SQL_BLOCK,
    SKR_SQL_BLOCK_LEAST,
    SKR_SQL_COPY,
    SKR_SQL_COPY_LEASED,
    SKR_SQL_COPY_MERGED,
    SKR_SQL_COPY_MERGED_LEASED,
    SKR_SQL_COPY_AS_IS,
    SKR_SQL_COPY_AS_IS_LEASED,
    SKR_SQL_REMOVE_FAILED,
    SKR_SQL_REMOVE_FAILED_LEASED,

    // Leases on shards.
    SKR_SQL_SEE_SHARDS,
    SKR_SQL_ADD_SHARD,
    SKR_SQL_HOLD_OWNER_LOCK,
    SKR_SQL_GUARD,
    SKR_SQL_OTHER_KIND,
    SKR_SQL_OWNED,
    SKR_SQL_FIND_FREE,
    SKR_SQL_TAKE,
    SKR_SQL_RENEW_SHARDS,
    SKR_SQL_GIVE,
    SKR_SQL_FENCE,
    SKR_SQL_WRITE_FENCE,

    // Failed messages.
    SKR_SQL_FAIL,
    SKR_SQL_LAST_ROW,
    SKR_SQL_HOLDS,
    SKR_SQL_ANY,

    // What people ask for.
    SKR_SQL_COUNT_PHP,
    SKR_SQL_NEWEST,
    SKR_SQL_OLDEST_WRITER,
    SKR_SQL_COUNT_LEASED,
    SKR_SQL_COUNT_NEAR,
    SKR_SQL_WHOLE_HEAD,
    SKR_SQL_MAKE_DUE,
    SKR_SQL_TOUCH,
    SKR_SQL_SIZE,
    SKR_SQL_LARGEST,
    SKR_SQL_OLDEST,
    SKR_SQL_FIRST_ROW,
    SKR_SQL_FIRST_HEAD,
    SKR_SQL_BLOCKED,
    SKR_SQL_BLOCKED_BY_QUEUE,
    SKR_SQL_BLOCKED_ROW,
    SKR_SQL_LENGTH,

    SKR_SQL_COUNT,
};

// A text for one dialect. One that is about a list of ids has several, and by
// its parameters a reader knows what to bind: a letter each, as statements.c
// has them.
struct skr_messenger_statement {
    struct skr_list_sql list;
    const char *binds;
};

struct skr_messenger;
// False: memory is out.
SKR_MUST_CHECK bool skr_messenger_fill_all(struct skr_messenger *messenger);

// A word that statements and code share: how many rows of a partition.
enum { SKR_PARTITION_PARAMETERS = 6 };

#endif
