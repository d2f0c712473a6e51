// SPDX-License-Identifier: MIT
// What a table layout provides: how a message lies in rows, and the few
// operations that a relay needs of them. Written once for all databases.
//
// A table object holds texts of SQL for one dialect and is immutable: [shared].

#ifndef SKR_STORE_STORE_H
#define SKR_STORE_STORE_H

#include "db/db.h"
#include "message/batch.h"
#include "message/failure.h"

enum {
    SKR_POSITION_TIME_SIZE = 20,
    SKR_POSITION_NAMESPACE_SIZE = 64,
    SKR_POSITION_KEY_SIZE = 1024,  // 255 characters of any kind
};

enum { SKR_HORIZON_MARKS = 16 };

// What was known of transactions when the cursor stood somewhere.
struct skr_horizon_mark {
    int64_t cursor;
    int64_t next;  // transactions begun before are below this
    int64_t at_ms;
};

struct skr_store;
typedef void skr_store_free_fn(struct skr_store *store);

// What every layout does, and what some do besides. Each function of an
// interface is there; what a layout does not do, it has no interface for.
struct skr_store {
    const struct skr_admin_ops *admin;    // makes and checks its tables
    const struct skr_source_ops *source;  // reads what is to be published
    const struct skr_settle_ops *settle;  // writes what became of that
    skr_store_free_fn *free;

    const struct skr_partition_ops *partitions;  // rows of a key have an order
    const struct skr_lease_ops *leases;          // rows are claimed one by one
    const struct skr_shard_ops *shards;          // relays divide the queue
    const struct skr_diagnosis_ops *diagnosis;   // what people may have wrong
};

// Where a reader stands, kept by the layout between reads. A zeroed struct
// starts at the beginning of the queue.
struct skr_position {
    int64_t cursor;  // every row up to here has been looked at once

    // Rows behind the cursor that have become due, or free, are looked for in
    // passes: first those whose time came since the last pass, and now and
    // then all of them (leases that ran out, edits by hand).
    char due_mark[SKR_POSITION_TIME_SIZE];    // due up to here were looked for
    char pass_until[SKR_POSITION_TIME_SIZE];  // of the pass under way; "": none
    int64_t pass_cursor;
    int64_t next_sweep_ms;  // by skr_clock_ms()
    // Where several transactions write at once, rows may still appear behind
    // the cursor: ids are given at the insert, not at the commit. At or below
    // the low-water mark none can any more; 0: it is not known.
    int64_t low_water;
    // Beyond it every id up to the cursor was seen: none of them can appear.
    int64_t unbroken_from;
    struct skr_horizon_mark marks[SKR_HORIZON_MARKS];  // oldest first
    size_t mark_count;
    int64_t horizon;     // all transactions below it are over; 0: not known
    int64_t horizon_ms;  // since when, by skr_clock_ms(); 0: never asked
    // They are told by the seconds of the server's clock, which may be put
    // back: what it said last, plus one, when by skr_clock_ms(), and what it
    // has to pass again before what it says can be compared; 0: nothing.
    bool horizon_is_clock;
    int64_t clock_next, clock_ms, clock_bound;
    // Open transactions cannot be asked for: we may not, or the server is one
    // of a cluster and does not know those of the others.
    bool horizon_hidden;
    bool is_cluster;
    int64_t next_late_ms, next_horizon_ms;  // by skr_clock_ms()
    int64_t horizon_pause_ms;               // grows while nothing is read
    // Where little is read, what else lies in the table is asked now and then.
    int64_t next_rest_ms;
    bool has_glanced;        // since it was asked
    int64_t glanced_row_ms;  // when that last brought a row

    // Claims alone. Rows that others have are passed, and may come back: those
    // from here to the cursor are looked at again. 0: none were passed.
    int64_t held_from;
    int64_t next_held_ms;     // by skr_clock_ms(); kafka_outbox too
    int64_t next_expired_ms;  // when to look for leases that ran out

    // kafka_outbox alone: where what others have ends, and how many those are.
    int64_t held_to;
    int64_t held_count;

    // In the order of commits: the row that was not read yet, as transactions
    // are open that may come before it, and since when; 0: none.
    int64_t undecided_row;
    int64_t undecided_ms, next_undecided_ms;  // by skr_clock_ms()

    bool has_more;  // the last read was full: rows were left that are due

    int64_t next_due_ms;  // by skr_clock_ms(); 0: nothing waits for its time

    // What the table's indexes are good for, which others may have made.
    bool knows_indexes;
    bool dues_by_queue;  // due times are found by queue and time
    bool lacks_claims;   // no index leads to claims by their time

    size_t row_size;  // of rows lately: how many are asked for; 0: not known

    // What ids of rows without one are derived from; "": none are.
    char id_namespace[SKR_POSITION_NAMESPACE_SIZE];
};

enum { SKR_MOST_PASSED = 8 };

struct skr_read {
    size_t max_rows;
    size_t max_bytes;  // a larger row travels alone
    // Rows that are in the reader's hands already, in ascending order.
    const int64_t *in_hand;
    size_t in_hand_count;
    // Rows that are published and about to leave, in ascending order, all of
    // them in hand or parked. Ordered queues alone: a partition goes on behind
    // these, and ends at any other that is in hand.
    const int64_t *done;
    size_t done_count;
    // Rows that were given before and stay for now, in ascending order: a look
    // for what committed late leaves them alone, a sweep does not. Those up to
    // the low-water mark need not be told.
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
    // Partitions that wait, and of which nothing is in hand: what lies beyond
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

// Statements that make the table, each harmless when it has been run before.
// Given one by one to each. With a db, only what is not there yet: a table that
// another program made is not altered.
typedef enum skr_code
skr_sql_text_fn(const char *sql, void *user, struct skr_error *error);
typedef enum skr_code
skr_store_setup_fn(const struct skr_store *table, struct skr_db *db,
                   skr_sql_text_fn *each, void *user, struct skr_error *error);

// Statements that add the indexes which a table that is there lacks, for use
// while others work with it: not in a transaction.
typedef enum skr_code
skr_store_complete_fn(const struct skr_store *table, struct skr_db *db,
                      skr_sql_text_fn *each, void *user,
                      struct skr_error *error);

// Statements by which new rows are told to a reader that sleeps, or by which
// that ends: what is not wanted is taken away. db NULL: whatever is there by
// now. SKR_REFUSED where the database cannot.
typedef enum skr_code
skr_store_notify_fn(const struct skr_store *table, struct skr_db *db,
                    bool wanted, skr_sql_text_fn *each, void *user,
                    struct skr_error *error);

// SKR_OK when the table has the columns we need; SKR_MISSING when there is no
// such table; SKR_INVALID names the column that another shape lacks.
typedef enum skr_code
skr_store_check_fn(const struct skr_store *table, struct skr_db *db,
                   struct skr_error *error);

// Prepares a reader at the beginning of the queue: whatever must be known
// before rows can be published goes into its position.
typedef enum skr_code
skr_store_start_fn(const struct skr_store *table, struct skr_db *db,
                   struct skr_position *position, struct skr_error *error);

// Fills an empty batch, in id order and from one snapshot, with rows that are
// due, unfinished, and not another worker's. Rows that cannot be understood
// come as SKR_HOPELESS with their reason. Writes nothing.
typedef enum skr_code
skr_store_read_fn(const struct skr_store *table, struct skr_db *db,
                  struct skr_position *position, const struct skr_read *read,
                  struct skr_batch *batch, struct skr_error *error);

// Ordered queues. Their read() gives every unfinished row beyond the cursor, in
// id order: those that may not be sent now come as SKR_NOT_READY, as they hold
// back what follows them in their partition. What is found behind the cursor
// (its time has come, it committed late) comes before these as SKR_BEHIND. With
// `only` a row comes if it is the head of its partition. Rows without a key
// come as in any other queue.
//
// read_partitions() gives the first rows of partitions up to the cursor, of
// each in id order, until one is not ready, and says how each ended.
enum { SKR_MOST_PARTITIONS = 32 };
enum skr_partition_end {
    SKR_PARTITION_MORE,     // there may be more than was asked for
    SKR_PARTITION_WAITS,    // the next is not ready
    SKR_PARTITION_IN_HAND,  // the next is in the reader's hands
    SKR_PARTITION_EMPTY,    // nothing else is left of it up to the cursor
};
struct skr_partition_read {
    const char *key;  // not ""; no two are the same
    enum skr_partition_end end;
    size_t given;  // rows
};
typedef enum skr_code
skr_store_read_partitions_fn(const struct skr_store *table, struct skr_db *db,
                             const struct skr_position *position,
                             const struct skr_read *read,
                             struct skr_partition_read *partitions,
                             size_t count, struct skr_batch *batch,
                             struct skr_error *error);

// How many messages of a partition are not done; counted up to some hundred
// thousand.
typedef enum skr_code
skr_store_measure_fn(const struct skr_store *table, struct skr_db *db,
                     const char *key, uint64_t *length,
                     struct skr_error *error);

// Claims, for queues that several workers share. As read(), but the rows are
// ours when it returns, and other readers that claim do not get them. Order is
// kept within a batch only. Looks without a lock first: where there is nothing
// to claim nothing is written, and no transaction is left open. A position
// serves read() or claim() alone. Conflicts (deadlocks) are tried again inside;
// one that lasts comes as SKR_CONFLICT with the remedy SKR_TRY_AGAIN.
//
// Rows are claimed by a lease, which is committed. It lasts for the table's
// redeliver_timeout unless it is renewed; the owner should stop sending at two
// thirds of it, by its own clock from before the call. Rows whose lease ran
// out come first.
typedef enum skr_code
skr_store_claim_fn(const struct skr_store *table, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error);

// Shares of a queue, for relays that divide it among themselves by leases on
// its shards, which are called slots in the table skirnir_lease. The shard of a
// row is a hash of its key in an ordered queue, and else tells its block of
// ids. A shard is one relay's until its lease runs out, by the database's
// clock, or until the liveness lock of its owner is free. read() and
// read_partitions() of such a table give rows of shards that are ours alone, as
// is checked in the statement that reads. A seat is leased in the same way, and
// says only that its owner is there.
enum { SKR_SLOTS = 60, SKR_SEATS = 40 };
struct skr_share {
    uint64_t slots, seats;  // a bit each
    int64_t epochs;         // of the slots: a slot's grows with every owner
};
struct skr_shares {
    struct skr_share ours;
    struct skr_share free;  // without an owner, or their leases ran out
    size_t others;          // relays that are there
    bool others_by_lock;    // some of them: when they are gone it shows at once
    // Until the first of their leases runs out, unless it is renewed; 0: none.
    int64_t others_for_s;
    // Relays are there that take the queue for one with an order, or without:
    // nothing can be taken before they are gone.
    bool has_other_kind;
};
// Takes the liveness lock of the owner of our share, where sessions of the
// database can hold one, for as long as the session of db: before any share is
// taken. For a db that holds a lock IN_SHARES (db.h) alone: a frozen owner then
// loses both, and where no such lock can be had none is to be relied on.
enum skr_liveness {
    SKR_LIVES_BY_LEASES,  // there are no such locks: leases run out
    SKR_LIVES_BY_LOCK,
    SKR_LIVES_ELSEWHERE,  // an earlier session of ours has not ended, or
                          // another owner looks whether it has
};
typedef enum skr_code
skr_store_live_fn(const struct skr_store *table, struct skr_db *db,
                  enum skr_liveness *liveness, struct skr_error *error);
typedef enum skr_code
skr_store_see_shares_fn(const struct skr_store *table, struct skr_db *db,
                        struct skr_shares *shares, struct skr_error *error);
// How what is taken or renewed is leased from now on.
struct skr_term {
    uint32_t lease_s;
    // This session holds our liveness lock: others may take the share as soon
    // as that is free.
    bool by_lock;
};
// Takes what is still free of a share, and waits for no other owner: afterwards
// see_shares() tells what was.
typedef enum skr_code
skr_store_take_share_fn(const struct skr_store *table, struct skr_db *db,
                        const struct skr_share *share,
                        const struct skr_term *term, struct skr_error *error);
// Moves the end of its leases. SKR_UNAVAILABLE when any of it is another's by
// now; then nothing of the share is to be relied on. What an earlier session of
// ours has taken is to be renewed before it is read: it may have lived
// otherwise.
typedef enum skr_code
skr_store_renew_share_fn(const struct skr_store *table, struct skr_db *db,
                         const struct skr_share *share,
                         const struct skr_term *term, struct skr_error *error);
// Gives back what is ours of it. Nothing of it may be under way.
typedef enum skr_code
skr_store_give_share_fn(const struct skr_store *table, struct skr_db *db,
                        const struct skr_share *share, struct skr_error *error);

// Moves the lease of a batch to now. Rows that are no longer ours are marked
// lost: of them nothing is settled but that they are done, as the lease that
// this leaves behind may by chance be their next owner's. Only for leases.
typedef enum skr_code
skr_store_renew_fn(const struct skr_store *table, struct skr_db *db,
                   struct skr_batch *batch, struct skr_error *error);

// Records outcomes in one transaction, or where all are done in steps of which
// each may be the last: done rows leave, those to retry wait in place, blocked
// ones for good, hopeless ones move to the failed table if and only if our own
// delete removed them. What has no outcome (SKR_READ) is not touched
// where nothing was claimed, else given back at once. After SKR_TRY_AGAIN or
// SKR_RECONNECT it may be called again, on another connection too.
//
// Leased: a row that is done leaves although another reader has it now; all
// else only while the lease is ours; a retry or failure that came too late is
// marked lost. By shards: whether all of the batch's are ours is asked in the
// same transaction, and no other relay can take them before it ends. If one is
// not, nothing is settled, all items are lost and as they were read: the next
// owner sends them. Of a queue without an order what is done leaves all the
// same, unasked.
typedef enum skr_code
skr_store_settle_fn(const struct skr_store *table, struct skr_db *db,
                    struct skr_batch *batch, struct skr_error *error);

// Gives back every row of a claimed batch, whatever its state says: as if it
// had not been claimed. Leases that cannot be given back run out.
typedef enum skr_code
skr_store_release_fn(const struct skr_store *table, struct skr_db *db,
                     struct skr_batch *batch, struct skr_error *error);

// Who holds back a queue that is read in the order of commits: the writer whose
// transaction has been open for longest.
struct skr_writer {
    int64_t process;  // the server's number of it; 0: it has none, or is gone
    int64_t age_s;    // of its transaction; 0: the server does not say
    char name[64];    // what it calls itself, or its transaction
};
typedef enum skr_code
skr_store_find_writer_fn(const struct skr_store *table, struct skr_db *db,
                         struct skr_writer *writer, struct skr_error *error);

// Counts rows of the queue that any reader has leased at the moment. A reader
// that claims nothing, and finds some, is not alone on the table. Cheap: it
// counts up to a thousand, and where no index leads to claims it looks among
// the first rows of the table and those that this reader passed last.
typedef enum skr_code
skr_store_leased_fn(const struct skr_store *table, struct skr_db *db,
                    struct skr_position *position, uint64_t *count,
                    struct skr_error *error);

// Counts rows that are not ours to publish and stay untouched, and says what
// would make them so: a text that lives as long as the program.
typedef enum skr_code
skr_store_foreign_fn(const struct skr_store *table, struct skr_db *db,
                     uint64_t *count, const char **cure,
                     struct skr_error *error);

// How many whole hours the newest row's time is ahead of the server's clock, or
// behind it; 0 when it is not about whole hours. Writers in another zone give
// themselves away by that.
typedef enum skr_code
skr_store_skew_fn(const struct skr_store *table, struct skr_db *db, int *hours,
                  struct skr_error *error);

// The name of the lock of the relay that works the queue. Tables of one name in
// several schemas have several, and a table has one, however it is found.
enum { SKR_LOCK_NAME_SIZE = 32 };
typedef enum skr_code
skr_store_lock_name_fn(const struct skr_store *table, struct skr_db *db,
                       char name[SKR_LOCK_NAME_SIZE], struct skr_error *error);

struct skr_admin_ops {
    skr_store_setup_fn *setup;
    skr_store_complete_fn *complete;
    skr_store_notify_fn *notify;
    skr_store_check_fn *check;
};

struct skr_source_ops {
    // A row that waits holds back later ones of its key, as soon as that is
    // written and read by start().
    bool keeps_keys;
    skr_store_lock_name_fn *lock_name;
    skr_store_start_fn *start;
    skr_store_read_fn *read;
};

struct skr_settle_ops {
    skr_store_settle_fn *write;
};

struct skr_partition_ops {
    skr_store_read_partitions_fn *read;
    skr_store_measure_fn *measure;
    skr_store_find_writer_fn *find_writer;
};

struct skr_lease_ops {
    skr_store_claim_fn *claim;
    skr_store_renew_fn *renew;
    skr_store_release_fn *release;
};

struct skr_shard_ops {
    skr_store_live_fn *live;
    skr_store_see_shares_fn *see;
    skr_store_take_share_fn *take;
    skr_store_renew_share_fn *renew;
    skr_store_give_share_fn *give;
};

struct skr_diagnosis_ops {
    skr_store_leased_fn *count_claimed;
    skr_store_foreign_fn *foreign;
    skr_store_skew_fn *skew;
};

// When the next look is worth while although nothing was written since the last
// one: by skr_clock_ms(); 0: never.
int64_t skr_position_next_ms(const struct skr_position *position);
// Whether a pass has begun and goes on with the next read.
bool skr_position_is_in_pass(const struct skr_position *position);
// A row that the cursor has passed is to be found again.
void skr_position_rewind(struct skr_position *position, int64_t row);

// What lock_name() gives for a queue of a table.
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
// Runs those of notify() in the same way.
SKR_MUST_CHECK enum skr_code
skr_store_set_notify(const struct skr_store *table, struct skr_db *db,
                     bool wanted, struct skr_error *error);
void skr_store_free(struct skr_store *table);

#endif
