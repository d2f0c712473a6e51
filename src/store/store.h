// SPDX-License-Identifier: MIT
// What a table layout provides: how a message lies in rows, and the few
// operations that a relay needs of them. Written once for all databases.
//
// A table object holds texts of SQL for one dialect and is immutable: [shared].

#ifndef SKR_STORE_STORE_H
#define SKR_STORE_STORE_H

#include "base/arena.h"
#include "base/log.h"
#include "db/db.h"
#include "message/failure.h"
#include "store/batch.h"

enum {
    SKR_TIME_SIZE = 20,
    SKR_NAMESPACE_SIZE = 64,
    SKR_KEY_SIZE = 1024,  // 255 characters of any kind
};

// What every layout does, and what some do besides. Each function of an
// interface is there; what a layout does not do, it has no interface for.
struct skr_store {
    const struct skr_admin_ops *admin;    // makes and checks its tables
    const struct skr_source_ops *source;  // reads what is to be published
    const struct skr_settle_ops *settle;  // writes what became of that
    struct skr_arena arena;               // all texts
    const char *name, *queue;             // "": the table has one queue

    const struct skr_partition_ops *partitions;  // rows of a key have an order
    const struct skr_lease_ops *leases;          // rows are claimed one by one
    const struct skr_shard_ops *shards;          // relays divide the queue
    const struct skr_diagnosis_ops *diagnosis;   // what people may have wrong
};

// The worker that makes tables which are missing: what its log is told.
struct skr_table_maker {
    const struct skr_log *log;
    const char *name;
    const char *database_url;
};

// Reads a queue for one worker, on one thread and one connection. Where it
// stands is known to its layout alone, which begins its own struct with this.
struct skr_reader {
    const struct skr_store *store;  // borrowed
    struct skr_db *db;              // borrowed
};

// What others may know of a reader. Times are by skr_clock_ms(); 0: never.
struct skr_reader_status {
    int64_t cursor;         // every row up to here has been looked at once
    int64_t low_watermark;  // no row can appear any more up to here
    bool has_more;          // the last read was full: rows were left
    int64_t wake_ms;        // when a read is worth while though nothing came
    int64_t next_due_ms;    // when the next row that waits is due
    int64_t next_full_scan_ms;
    bool is_scanning;  // a scan behind the cursor has begun and is not over
    bool hides_open;   // open transactions cannot be asked for
    bool is_cluster;   // as no server of a cluster knows those of the others
    // In the order of commits: the row that waits for an open transaction, and
    // since when; 0: none.
    int64_t undecided_row, undecided_ms;
};

enum { SKR_MOST_PASSED = 8 };

struct skr_read {
    size_t max_rows;
    size_t max_bytes;  // a larger row travels alone
    // Rows that were given and are not settled, in ascending order.
    const int64_t *in_flight;
    size_t in_flight_count;
    // Rows that are published and about to leave, in ascending order, all of
    // them in flight or parked. Ordered queues alone: a partition goes on
    // behind these, and ends at any other that is in flight.
    const int64_t *done;
    size_t done_count;
    // Rows that were given before and stay for now, in ascending order: a look
    // for what committed late leaves them alone, a full scan does not. Those up
    // to the low watermark need not be told.
    const int64_t *waiting;
    size_t waiting_count;
    // Rows that stay as the database refuses what is to be written to them, in
    // ascending order: none of them is given. Those that are published are
    // among `done` as well; in an ordered queue any other holds back its
    // partition.
    const int64_t *parked;
    size_t parked_count;
    // Rows that are not published and are or were parked, in ascending order,
    // for tables that keep keys: whether such a row is given or not, none of
    // its key that follows it is.
    const int64_t *unsettled;
    size_t unsettled_count;
    // Partitions that wait, and of which nothing is in flight: what lies beyond
    // the cursor of these is passed without being read. Ordered queues alone.
    const char *const *passed;
    size_t passed_count;  // at most SKR_MOST_PASSED
    // Just this row, if it is there and free, wherever the reader stands; NULL:
    // whatever comes next.
    const int64_t *only;
    // Claims alone: whether a row that another had and did not settle in time
    // counts as tried once more, which is written before it is given. Such
    // rows then come one at a time, as each may be what killed its owner. For
    // readers that run handlers; a relay, which only passes rows on, leaves it
    // false.
    bool counts_tries;
};

typedef enum skr_code
skr_sql_text_fn(const char *sql, void *user, struct skr_error *error);

struct skr_admin_ops {
    // Statements that make the table, each harmless when it has been run
    // before. Given one by one to each. With a db, only what is not there yet:
    // a table that another program made is not altered.
    enum skr_code (*setup)(const struct skr_store *table, struct skr_db *db,
                           skr_sql_text_fn *each, void *user,
                           struct skr_error *error);
    // Statements that add the indexes which a table that is there lacks, for
    // use while others work with it: not in a transaction.
    enum skr_code (*complete)(const struct skr_store *table, struct skr_db *db,
                              skr_sql_text_fn *each, void *user,
                              struct skr_error *error);
    // Statements by which new rows are told to a reader that sleeps, or by
    // which that ends: what is not wanted is taken away. Without a db, whatever
    // is there by now. SKR_REFUSED where the database cannot.
    enum skr_code (*notify)(const struct skr_store *table, struct skr_db *db,
                            bool wanted, skr_sql_text_fn *each, void *user,
                            struct skr_error *error);
    // SKR_OK when the table has the columns we need; SKR_MISSING when there is
    // no such table; SKR_INVALID names the column that another shape lacks.
    enum skr_code (*check)(const struct skr_store *table, struct skr_db *db,
                           struct skr_error *error);
};

struct skr_source_ops {
    // A row that waits holds back later ones of its key, as soon as that is
    // written and read by open().
    bool keeps_keys;
    // Makes a reader at the beginning of the queue. derives_ids: rows without
    // an id get one that is always the same. The store and db are borrowed
    // until it is given to free().
    enum skr_code (*open)(const struct skr_store *table, struct skr_db *db,
                          bool derives_ids, struct skr_reader **reader,
                          struct skr_error *error);
    // Fills an empty batch, in id order and from one snapshot, with rows that
    // are due, unfinished, and not another worker's. Rows that cannot be
    // understood come as SKR_DEAD with their reason. Writes nothing. A read
    // that fails leaves the reader where it was.
    enum skr_code (*read)(struct skr_reader *reader,
                          const struct skr_read *read, struct skr_batch *batch,
                          struct skr_error *error);
    struct skr_reader_status (*status)(const struct skr_reader *reader);
    // When everything behind the cursor is looked at next, by skr_clock_ms().
    void (*plan_scan)(struct skr_reader *reader, int64_t at_ms);
};

struct skr_settle_ops {
    // Records results in one transaction, or where all are done in steps of
    // which each may be the last: done rows leave, those to retry wait in
    // place, blocked ones for good, dead ones move to the failed table if
    // and only if our own delete removed them. What has no result (SKR_READ) is
    // not touched where nothing was claimed, else given back at once. After
    // SKR_TRY_AGAIN or SKR_RECONNECT it may be called again, on another
    // connection too.
    //
    // Leased: a row that is done leaves although another reader has it now; all
    // else only while the lease is ours; a retry or failure that came too late
    // is marked lost. By shards: whether all of the batch's are ours is asked
    // in the same transaction, and no other relay can take them before it ends.
    // If one is not, nothing is settled, all items are lost and as they were
    // read: the next owner sends them. Of a queue without an order what is done
    // leaves all the same, unasked.
    enum skr_code (*write)(const struct skr_store *table, struct skr_db *db,
                           struct skr_batch *batch, struct skr_error *error);
};

// Ordered queues. Their read() gives every unfinished row beyond the cursor, in
// id order: those that may not be sent now come as SKR_NOT_READY, as they hold
// back what follows them in their partition. What is found behind the cursor
// (its time has come, it committed late) comes before these as SKR_BEHIND. With
// `only` a row comes if it is the head of its partition. Rows without a key
// come as in any other queue.
enum { SKR_MOST_PARTITIONS = 32 };
enum skr_partition_end {
    SKR_PARTITION_MORE,       // there may be more than was asked for
    SKR_PARTITION_WAITS,      // the next is not ready
    SKR_PARTITION_IN_FLIGHT,  // the next is in flight
    SKR_PARTITION_EMPTY,      // nothing else is left of it up to the cursor
};
struct skr_partition_read {
    const char *key;  // not ""; no two are the same
    enum skr_partition_end end;
    size_t given;  // rows
};
// Who holds back a queue that is read in the order of commits: the writer whose
// transaction has been open for longest.
struct skr_writer {
    int64_t process;  // the server's number of it; 0: it has none, or is gone
    int64_t age_s;    // of its transaction; 0: the server does not say
    char name[64];    // what it calls itself, or its transaction
};

struct skr_partition_ops {
    // Gives the first rows of partitions up to the cursor, of each in id order,
    // until one is not ready, and says how each ended.
    enum skr_code (*read)(struct skr_reader *reader,
                          const struct skr_read *read,
                          struct skr_partition_read *partitions, size_t count,
                          struct skr_batch *batch, struct skr_error *error);
    // How many messages of a partition are not done; counted up to some hundred
    // thousand.
    enum skr_code (*measure)(const struct skr_store *table, struct skr_db *db,
                             const char *key, uint64_t *length,
                             struct skr_error *error);
    enum skr_code (*find_writer)(const struct skr_store *table,
                                 struct skr_db *db, struct skr_writer *writer,
                                 struct skr_error *error);
};

// Claims, for queues that several workers share. Rows are claimed by a lease,
// which is committed. It lasts for the table's redeliver_timeout unless it is
// renewed; the owner should stop sending at two thirds of it, by its own clock
// from before the call. Rows whose lease ran out come first.
typedef enum skr_code
skr_store_claim_fn(struct skr_reader *reader, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error);

struct skr_lease_ops {
    // As read(), but the rows are ours when it returns, and other readers that
    // claim do not get them. Order is kept within a batch only. Looks without a
    // lock first: where there is nothing to claim nothing is written, and no
    // transaction is left open. A reader is for read() or claim() alone.
    // Conflicts (deadlocks) are tried again inside; one that lasts comes as
    // SKR_CONFLICT with the remedy SKR_TRY_AGAIN. A row that the database
    // refuses to lease comes alone, as SKR_WRITE_REFUSED with its refusal: it
    // is not ours, and comes again unless it is told to be parked.
    skr_store_claim_fn *claim;
    // A row that was given back is to be found again.
    void (*rewind)(struct skr_reader *reader, int64_t row);
    // Moves the lease of a batch to now. Rows that are no longer ours are
    // marked lost: of them nothing is settled but that they are done, as the
    // lease that this leaves behind may by chance be their next owner's.
    enum skr_code (*renew)(const struct skr_store *table, struct skr_db *db,
                           struct skr_batch *batch, struct skr_error *error);
    // Gives back every row of a claimed batch, whatever its state says: as if
    // it had not been claimed. Leases that cannot be given back run out.
    enum skr_code (*release)(const struct skr_store *table, struct skr_db *db,
                             struct skr_batch *batch, struct skr_error *error);
};

// Shares of a queue, for relays that divide it among themselves by leases on
// its shards, which are called slots in the table skirnir_lease. The shard of a
// row is a hash of its key in an ordered queue, and else tells its block of
// ids. A shard is one relay's until its lease runs out, by the database's
// clock, or until the liveness lock of its owner is free. Reads of such a table
// give rows of shards that are ours alone, as is checked in the statement that
// reads. A member's row is leased in the same way, and says only that its owner
// is there.
enum { SKR_SHARDS = 60, SKR_MEMBERS = 40 };
struct skr_assignment {
    uint64_t shards, members;  // a bit each
    int64_t epochs;  // of the shards: a shard's grows with every owner
};
struct skr_assignments {
    struct skr_assignment ours;
    struct skr_assignment free;  // without an owner, or their leases ran out
    size_t others;               // relays that are there
    bool others_by_lock;  // some of them: when they are gone it shows at once
    // Until the first of their leases runs out, unless it is renewed; 0: none.
    int64_t others_for_s;
    // Relays are there that take the queue for one with an order, or without:
    // nothing can be taken before they are gone.
    bool has_other_kind;
};
enum skr_liveness {
    SKR_LIVES_BY_LEASES,  // there are no such locks: leases run out
    SKR_LIVES_BY_LOCK,
    SKR_LIVES_ELSEWHERE,  // an earlier session of ours has not ended, or
                          // another owner looks whether it has
};
// How what is taken or renewed is leased from now on.
struct skr_term {
    uint32_t lease_s;
    // This session holds our liveness lock: others may take the share as soon
    // as that is free.
    bool by_lock;
};

struct skr_shard_ops {
    // Takes the liveness lock of the owner of our share, where sessions of the
    // database can hold one, for as long as the session of db: before any share
    // is taken. For a db that holds a lock IN_SHARES (db.h) alone: a frozen
    // owner then loses both, and where no such lock can be had none is to be
    // relied on.
    enum skr_code (*live)(const struct skr_store *table, struct skr_db *db,
                          enum skr_liveness *liveness, struct skr_error *error);
    enum skr_code (*see)(const struct skr_store *table, struct skr_db *db,
                         struct skr_assignments *shares,
                         struct skr_error *error);
    // Takes what is still free of a share, and waits for no other owner:
    // afterwards see() tells what was.
    enum skr_code (*take)(const struct skr_store *table, struct skr_db *db,
                          const struct skr_assignment *share,
                          const struct skr_term *term, struct skr_error *error);
    // Moves the end of its leases. SKR_UNAVAILABLE when any of it is another's
    // by now; then nothing of the share is to be relied on. What an earlier
    // session of ours has taken is to be renewed before it is read: it may have
    // lived otherwise.
    enum skr_code (*renew)(const struct skr_store *table, struct skr_db *db,
                           const struct skr_assignment *share,
                           const struct skr_term *term,
                           struct skr_error *error);
    // Gives back what is ours of it. Nothing of it may be under way.
    enum skr_code (*give)(const struct skr_store *table, struct skr_db *db,
                          const struct skr_assignment *share,
                          struct skr_error *error);
};

struct skr_diagnosis_ops {
    // Counts rows of the queue that any reader has leased at the moment. A
    // reader that claims nothing, and finds some, is not alone on the table.
    // Cheap: it counts up to a thousand, and where no index leads to claims it
    // looks among the first rows of the table and those that this reader passed
    // last.
    enum skr_code (*count_claimed)(struct skr_reader *reader, uint64_t *count,
                                   struct skr_error *error);
    // Counts rows that are not ours to publish and stay untouched, and says
    // what would make them so: a text that lives as long as the program.
    enum skr_code (*foreign)(const struct skr_store *table, struct skr_db *db,
                             uint64_t *count, const char **cure,
                             struct skr_error *error);
    // How many whole hours the newest row's time is ahead of the server's
    // clock, or behind it; 0 when it is not about whole hours. Writers in
    // another zone give themselves away by that.
    enum skr_code (*skew)(const struct skr_store *table, struct skr_db *db,
                          int *hours, struct skr_error *error);
};

enum { SKR_LOCK_NAME_SIZE = 32 };
// The name of the lock of the relay that works a queue. Tables of one name in
// several schemas have several, and a table has one, however it is found.
SKR_MUST_CHECK enum skr_code
skr_store_name_lock(struct skr_db *db, const char *table, const char *queue,
                    char name[SKR_LOCK_NAME_SIZE], struct skr_error *error);

// What connections of a queue's workers attend under: of consumers, or of
// relays that wait for their broker.
enum skr_attendance { SKR_ATTEND_CONSUMING, SKR_ATTEND_WAITING };
void skr_store_name_attendance(const char lock_name[SKR_LOCK_NAME_SIZE],
                               enum skr_attendance kind,
                               char name[SKR_LOCK_NAME_SIZE]);

// Runs the statements of setup() in one go, safe from many hosts at once.
SKR_MUST_CHECK enum skr_code
skr_store_create(const struct skr_store *table, struct skr_db *db,
                 struct skr_error *error);
// The same for a worker, whose log tells which tables were missing.
SKR_MUST_CHECK enum skr_code
skr_store_create_for(const struct skr_store *table, struct skr_db *db,
                     const struct skr_table_maker *maker,
                     struct skr_error *error);
// tables: their names, with commas between.
void
skr_store_log_made(const struct skr_table_maker *maker, const char *tables);
// Runs those of notify() in the same way.
SKR_MUST_CHECK enum skr_code
skr_store_set_notify(const struct skr_store *table, struct skr_db *db,
                     bool wanted, struct skr_error *error);
void skr_store_free(struct skr_store *table);

#endif
