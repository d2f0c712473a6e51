// SPDX-License-Identifier: MIT
// The inside of the messenger layout, shared by its files alone.

#ifndef SKR_STORE_MESSENGER_LAYOUT_H
#define SKR_STORE_MESSENGER_LAYOUT_H

#include "base/arena.h"
#include "db/sql.h"
#include "db/zone.h"
#include "store/low_watermark.h"
#include "store/messenger/messenger.h"
#include "store/messenger/statements.h"

struct skr_schema_target;

// Chosen once, with the table object. What a kind does otherwise stands in a
// table of kinds in the file that does it.
enum skr_queue_kind {
    SKR_QUEUE_PLAIN,
    SKR_QUEUE_ORDERED,     // by partition_key
    SKR_QUEUE_BY_COMMITS,  // and rows wait for transactions before their own
    SKR_QUEUE_KINDS,
};

struct skr_messenger {
    struct skr_store table;
    const struct skr_dialect *dialect;
    const struct skr_names *names;
    const char *transport;
    const char *failed_table;  // NULL: none
    const char *failed_queue;  // for rows that Symfony can decode
    const char *failed_aside;  // for all others
    bool failed_readable;
    bool limits_headers;
    enum skr_queue_kind kind;
    // The owner's name among leases: alone, and where it holds its liveness
    // lock. NULL: the queue is not sharded.
    const char *owner, *lock_owner;
    char *lease_name;      // of the queue among leases, as the server spells it
    struct skr_zone zone;  // that of its times
    const char *failed_now;  // the clock as the failed table has it
    const char *id_header;
    const char *partition_header;  // NULL: keys stay here
    const char *sent_queue;        // where confirmed rows stay; NULL: they go
    uint32_t redeliver_timeout_s;
    uint32_t full_scan_ms;

    struct skr_messenger_statement sql[SKR_SQL_COUNT];
};

static inline const struct skr_messenger *
skr_messenger_of(const struct skr_store *table)
{
    return (const struct skr_messenger *)table;
}

static inline const char *
skr_messenger_sql(const struct skr_messenger *messenger,
                  enum skr_messenger_sql id)
{
    return messenger->sql[id].list.sql[0];
}

static inline const struct skr_list_sql *
skr_messenger_list(const struct skr_messenger *messenger,
                   enum skr_messenger_sql id)
{
    return &messenger->sql[id].list;
}

// Whether something that has just failed is worth another try at once: a
// conflict that was found quickly, for the first few times.
struct skr_tries {
    int64_t started_ms;
    int failed;
};
bool skr_messenger_may_try_again(struct skr_tries *tries, enum skr_code code,
                                 const struct skr_error *error);

// The server's clock.
SKR_MUST_CHECK enum skr_code
skr_messenger_now(const struct skr_messenger *messenger, struct skr_tx tx,
                  char time[SKR_TIME_SIZE], struct skr_error *error);
void skr_messenger_copy_time(const struct skr_value *value,
                             char time[SKR_TIME_SIZE]);
// From one time of the server's to another. False: one of them is none.
bool skr_messenger_measure(const struct skr_value *from,
                           const struct skr_value *to, int64_t *distance_us);

// A row that was never delayed is due whatever the zone of its writer's clock.
#define SKR_MESSENGER_DUE \
    "(available_at <= {now} OR available_at <= created_at)"
// Rows that are done but not deleted have a claim in the year 9999.
#define SKR_MESSENGER_UNFINISHED \
    "(delivered_at IS NULL OR delivered_at < '9999-12-31 00:00:00')"
// The same in a way that keeps the planner from the index on claims, which it
// would weigh anew in each of many SELECTs.
#define SKR_MESSENGER_UNFINISHED_UNINDEXED             \
    "COALESCE(delivered_at, '1000-01-01 00:00:00') < " \
    "'9999-12-31 00:00:00'"

// The table of leases on shards, and how names of owners begin: of one that
// holds its liveness lock, so that one look tells, and after that of one of
// blocks of ids.
#define SKR_MESSENGER_LEASES "skirnir_lease"
#define SKR_MESSENGER_LOCK_PREFIX "l-"
#define SKR_MESSENGER_PLAIN_PREFIX "p-"

// Columns of a row, in this order.
enum {
    SKR_COLUMN_ID,
    SKR_COLUMN_BODY,  // in ordered queues NULL: the row may not be sent now
    SKR_COLUMN_HEADERS,
    SKR_COLUMN_CREATED_AT,
    SKR_COLUMN_CREATED_AT_UTC,  // NULL: the same
    SKR_COLUMN_MARKS,           // SKR_MARK_CLAIMED and kin
    SKR_COLUMN_IS_FREE,         // of rows that were locked: free, and due
    SKR_COLUMN_PARTITION,       // in ordered queues
    SKR_COLUMN_COUNT,
};
// delivered_at is set; available_at was not its time of creation; transactions
// before its own are open, where that counts.
enum { SKR_MARK_CLAIMED = 1, SKR_MARK_WAITED = 2, SKR_MARK_UNDECIDED = 4 };

// Whether a partition can have this key, "" included: text without a zero byte,
// and no longer than a cursor.
bool skr_messenger_is_key(const struct skr_value *key);

// Adds a row to the batch, which has room for it. In an ordered queue one that
// came without its body is SKR_NOT_READY, and one with a key that none can be
// is SKR_DEAD and of no partition.
SKR_MUST_CHECK enum skr_code
skr_messenger_take_row(const struct skr_messenger *messenger,
                       const char *id_namespace,
                       const struct skr_value *columns, struct skr_batch *batch,
                       struct skr_error *error);

// What the table's indexes are good for, which others may have made.
struct skr_messenger_indexes {
    bool are_known;
    bool dues_by_queue;  // due times are found by queue and time
    bool lacks_claims;   // no index leads to claims by their time
};
SKR_MUST_CHECK enum skr_code
skr_messenger_learn(const struct skr_messenger *messenger, struct skr_db *db,
                    struct skr_messenger_indexes *indexes,
                    struct skr_error *error);
// What ids of rows without one are derived from.
SKR_MUST_CHECK enum skr_code
skr_messenger_find_namespace(const struct skr_messenger *messenger,
                             struct skr_tx tx, char found[SKR_NAMESPACE_SIZE],
                             struct skr_error *error);
// The bytes of a queue's name, for {queue_is}; NULL: memory is out.
const char *skr_messenger_hex(struct skr_arena *arena, const char *queue);
// shards.c: the owner's name, the table of leases, and whether a batch is still
// ours, which stays so until the transaction ends.
SKR_MUST_CHECK enum skr_code
skr_messenger_name_owner(struct skr_messenger *messenger,
                         struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_setup_leases(const struct skr_messenger *messenger,
                           const struct skr_schema_target *target,
                           struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_check_leases(const struct skr_messenger *messenger,
                           struct skr_db *db, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_fence(const struct skr_messenger *messenger, struct skr_tx tx,
                    const struct skr_lease *lease, bool *is_ours,
                    struct skr_error *error);
// messenger.c. Tells db that it waits for this table's rows: its follow()
// says what that is good for.
SKR_MUST_CHECK enum skr_code
skr_messenger_follow(const struct skr_messenger *messenger, struct skr_db *db,
                     struct skr_error *error);
// Whether a table has the columns of every messenger table, and ids that are
// not used again; row: all that it has, for a copy.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_table(struct skr_tx tx, const char *name, const char *row,
                          struct skr_error *error);
// SKR_INVALID: the table lacks a column that queues of this kind need.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_columns(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error);

// The interfaces, each in the file that fills it, and what of them is written
// elsewhere.
extern const struct skr_source_ops skr_messenger_source;         // reader.c
extern const struct skr_settle_ops skr_messenger_settling;       // settle.c
extern const struct skr_lease_ops skr_messenger_leases;          // claim.c
extern const struct skr_shard_ops skr_messenger_shards;          // shards.c
extern const struct skr_partition_ops skr_messenger_partitions;  // partitions.c
extern const struct skr_diagnosis_ops skr_messenger_diagnosis;   // diagnosis.c
SKR_MUST_CHECK enum skr_code
skr_messenger_read_partitions(struct skr_reader *reader,
                              const struct skr_read *read,
                              struct skr_partition_read *partitions,
                              size_t count, struct skr_batch *batch,
                              struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_find_writer(const struct skr_store *table, struct skr_db *db,
                          struct skr_writer *writer, struct skr_error *error);

// Writes the headers column and picks the queue of a message that failed.
SKR_MUST_CHECK enum skr_code
skr_messenger_mark_failed(const struct skr_messenger *messenger,
                          struct skr_arena *arena,
                          struct skr_failed_message *message,
                          struct skr_text *json, const char **queue,
                          struct skr_error *error);
// Writes what that adds to the headers of the message, as JSON of its own.
SKR_MUST_CHECK enum skr_code
skr_messenger_list_added(const struct skr_messenger *messenger,
                         struct skr_arena *arena,
                         const struct skr_failed_message *message,
                         struct skr_text *json, struct skr_error *error);

#endif
