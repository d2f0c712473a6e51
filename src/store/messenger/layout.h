// SPDX-License-Identifier: MIT
// The inside of the messenger layout, shared by its files alone.

#ifndef SKR_STORE_MESSENGER_LAYOUT_H
#define SKR_STORE_MESSENGER_LAYOUT_H

#include "base/arena.h"
#include "db/sql.h"
#include "db/zone.h"
#include "store/list.h"
#include "store/messenger/messenger.h"

// How rows are found. Only claim_beyond and lock_ids lock rows.
struct skr_scan_sql {
    const char *due_ids;       // behind the cursor, their time has come
    const char *due_by_queue;  // the same where the index is by queue
    const char *sweep_ids,
        *sweep_on_ids;     // behind the cursor, for whatever reason
    const char *late_ids;  // behind the cursor, from the low-water mark on
    // Ordered queues alone: the same where there is no mark, from the start of
    // the queue.
    const char *late_first, *late_first_passing;
    const char *free_ids;  // behind the cursor, that others had
    const char *first;     // beyond a cursor that has not moved yet
    const char *beyond;
    const char *first_ids;    // as `first`, ids alone
    const char *first_timed;  // both where the index is by queue and time
    const char *first_timed_ids;
    const char *claim_beyond;     // beyond, free to be locked
    const char *leased_ids;       // that any reader has at the moment
    const char *leased_by_queue;  // the same without an index on claims
    // beyond and late_ids, but for partitions that are passed
    const char *beyond_passing, *late_passing;
    struct skr_list_sql by_id, lock_ids;
};

// A statement about one row, and the same for one that is leased, which has the
// lease as its last parameter.
struct skr_fenced_sql {
    const char *plain, *leased;
};

struct skr_messenger {
    struct skr_store table;
    struct skr_arena arena;  // all texts
    const struct skr_dialect *dialect;
    const struct skr_names *names;
    const char *name;
    const char *queue;
    const char *queue_hex;  // its bytes, for {queue_is}
    const char *transport;
    const char *failed_table;  // NULL: none
    const char *failed_queue;  // for rows that Symfony can decode
    const char *failed_aside;  // for all others
    bool failed_readable;
    bool limits_headers;
    bool is_ordered;  // by partition_key
    bool by_commits;  // rows wait for transactions before their own
    // The owner's name among leases: alone, and where it holds its liveness
    // lock. NULL: the queue is not divided.
    const char *owner, *lock_owner;
    const char *lease_name;  // of the queue among leases
    struct skr_zone zone;    // that of its times
    const char *failed_now;  // the clock as the failed table has it
    const char *id_header;
    const char *partition_header;  // NULL: keys stay here
    const char *sent_queue;        // where confirmed rows stay; NULL: they go
    uint32_t redeliver_timeout_s;
    uint32_t sweep_ms;

    struct {
        const char *check, *check_failed, *check_ordered;
        const char *check_commits, *oldest_writer;
        const char *find_namespace;
        const char *count_php, *newest;
        const char *now;

        struct skr_scan_sql scan;
        const char *horizon;  // "": nothing commits late
        const char *rest, *rest_by_queue;

        const char *fail;

        struct skr_list_sql identify;
        struct skr_list_sql remove, keep_sent, mark_done;
        struct skr_fenced_sql copy_to_failed, copy_merged, copy_as_is;
        struct skr_fenced_sql remove_failed;
        struct skr_fenced_sql retry, retry_least;
        const char *block, *block_least;
        struct skr_list_sql partitions;  // the first rows of so many
        const char *head, *whole_head;   // the first row of a partition
        const char *make_due, *touch;
        const char *size, *largest, *oldest, *first_row, *first_head, *blocked,
            *blocked_by_queue, *length, *blocked_row;
        const char *shares, *add_share, *check_leases, *hold_owner_lock;
        const char *guard_share, *other_kind;
        struct skr_list_sql find_free_share, take_share, renew_share;
        struct skr_list_sql give_share, fence, write_fence;
        const char *raise_count;
        struct skr_list_sql mark, renew, unmark, find_leased;
        const char *find_expired, *count_leased, *count_near;
        const char *page, *any;
    } sql;
};

static inline const struct skr_messenger *
skr_messenger_of(const struct skr_store *table)
{
    return (const struct skr_messenger *)table;
}

// Each file fills in the texts that it uses. False: memory is out.
SKR_MUST_CHECK bool skr_messenger_fill_scan(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_read(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_others(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_failed(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_find(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_settle(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_claim(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_lease(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_ordered(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_commits(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_shares(struct skr_messenger *messenger);
SKR_MUST_CHECK bool
skr_messenger_fill_partition(struct skr_messenger *messenger);
SKR_MUST_CHECK bool
skr_messenger_fill_partitions(struct skr_messenger *messenger);

SKR_MUST_CHECK bool
skr_messenger_fill(struct skr_messenger *messenger, const char *sql_template,
                   const char **sql);
SKR_MUST_CHECK bool
skr_messenger_fill_list(struct skr_messenger *messenger,
                        const char *sql_template, struct skr_list_sql *list);
SKR_MUST_CHECK bool
skr_messenger_fill_ranged(struct skr_messenger *messenger,
                          const char *list_template, const char *range_template,
                          struct skr_list_sql *list);

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
                  char time[SKR_POSITION_TIME_SIZE], struct skr_error *error);
void skr_messenger_copy_time(const struct skr_value *value,
                             char time[SKR_POSITION_TIME_SIZE]);

// A claim by another worker holds until it is too old. Rows that are done but
// not deleted have a claim in the year 9999. One parameter: redeliver timeout.
#define SKR_MESSENGER_EXPIRED "delivered_at < {now_minus}"
#define SKR_MESSENGER_FREE "(delivered_at IS NULL OR " SKR_MESSENGER_EXPIRED ")"
// A row that was never delayed is due whatever the zone of its writer's clock.
#define SKR_MESSENGER_DUE \
    "(available_at <= {now} OR available_at <= created_at)"
// PHP's own serialisation, plain or in base64: for the Symfony worker alone.
#define SKR_MESSENGER_PHP                                \
    "(headers = '[]' AND (SUBSTR(body, 1, 2) = 'O:' OR " \
    "SUBSTR(body, 1, 3) = 'Tzo'))"

// Whether a row may be sent now. One parameter: redeliver timeout.
#define SKR_MESSENGER_READY \
    SKR_MESSENGER_FREE      \
    " AND " SKR_MESSENGER_DUE " AND NOT " SKR_MESSENGER_PHP
#define SKR_MESSENGER_UNFINISHED \
    "(delivered_at IS NULL OR delivered_at < '9999-12-31 00:00:00')"
// The same in a way that keeps the planner from the index on claims, which it
// would weigh anew in each of many SELECTs.
#define SKR_MESSENGER_UNFINISHED_UNINDEXED             \
    "COALESCE(delivered_at, '1000-01-01 00:00:00') < " \
    "'9999-12-31 00:00:00'"

// In the year 9999 are rows that are done but not deleted.
#define SKR_MESSENGER_LEASED           \
    "delivered_at >= {now_minus} AND " \
    "delivered_at < '9999-12-31 00:00:00'"

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
// before its own are open, where that counts (commits.c).
enum { SKR_MARK_CLAIMED = 1, SKR_MARK_WAITED = 2, SKR_MARK_UNDECIDED = 4 };
#define SKR_MESSENGER_MARKS                               \
    "CASE WHEN delivered_at IS NULL THEN 0 ELSE 1 END + " \
    "CASE WHEN available_at > created_at THEN 2 ELSE 0 END"
#define SKR_MESSENGER_COLUMNS \
    "id, body, headers, created_at, {created_at_utc}, " SKR_MESSENGER_MARKS

// Whether a partition can have this key, "" included: text without a zero byte,
// and no longer than a cursor.
bool skr_messenger_is_key(const struct skr_value *key);

// Adds a row to the batch, which has room for it. In an ordered queue one that
// came without its body is SKR_NOT_READY, and one with a key that none can be
// is SKR_HOPELESS and of no partition.
SKR_MUST_CHECK enum skr_code
skr_messenger_take_row(const struct skr_messenger *messenger,
                       const char *id_namespace,
                       const struct skr_value *columns, struct skr_batch *batch,
                       struct skr_error *error);

// What a look at the table is for.
enum skr_scan_kind {
    SKR_SCAN_READ,   // one reader, which has the queue to itself
    SKR_SCAN_PEEK,   // whether there is something that could be locked
    SKR_SCAN_CLAIM,  // rows are locked, and those that others have passed over
};
// Fills the batch in whatever transaction tx is. position moves only on SKR_OK.
SKR_MUST_CHECK enum skr_code
skr_messenger_scan(const struct skr_messenger *messenger,
                   enum skr_scan_kind kind, struct skr_tx tx,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error);
// After a look: up to where nothing can appear.
void skr_messenger_settle_mark(const struct skr_messenger *messenger,
                               struct skr_position *position);
// A read or a peek, in a snapshot of its own.
SKR_MUST_CHECK enum skr_code
skr_messenger_look(const struct skr_messenger *messenger,
                   enum skr_scan_kind kind, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error);
// room.c: the bytes that a batch has room for, how many whole rows that is by
// what is known of their size, and what was seen of it.
size_t
skr_messenger_room(const struct skr_read *read, const struct skr_batch *batch);
size_t skr_messenger_rows_for(const struct skr_position *position, size_t room);
void skr_messenger_note_sizes(struct skr_position *position, size_t rows,
                              size_t bytes);
// Finds out, once for a position, what the table's indexes are good for.
SKR_MUST_CHECK enum skr_code
skr_messenger_learn(const struct skr_messenger *messenger, struct skr_db *db,
                    struct skr_position *position, struct skr_error *error);
// rest.c: the last id in the table, if it is beyond the cursor, and when the
// next row is due, which goes into the position.
SKR_MUST_CHECK bool skr_messenger_fill_rest(struct skr_messenger *messenger);
SKR_MUST_CHECK enum skr_code
skr_messenger_ask_rest(const struct skr_messenger *messenger, struct skr_tx tx,
                       int64_t now_ms, struct skr_position *position,
                       int64_t *last, struct skr_error *error);
// Whether there are reasons to look behind the cursor.
bool
skr_messenger_is_pass_due(const struct skr_position *position, int64_t now_ms);
// A reader that has not begun stands before every id, also before ids below 1,
// which an application may have chosen.
struct skr_value skr_messenger_bind_cursor(int64_t cursor);
// partition.c: why a row was blocked, as its headers say; NULL: they do not.
const char *skr_messenger_blocked_reason(struct skr_batch *batch,
                                         const struct skr_batch_item *item);
// shares.c: the owner's name, the table of leases, and whether a batch is still
// ours, which stays so until the transaction ends.
SKR_MUST_CHECK enum skr_code
skr_messenger_name_owner(struct skr_messenger *messenger,
                         struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_setup_leases(const struct skr_messenger *messenger,
                           struct skr_db *db, skr_sql_text_fn *each, void *user,
                           struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_check_leases(const struct skr_messenger *messenger,
                           struct skr_db *db, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_messenger_fence(const struct skr_messenger *messenger, struct skr_tx tx,
                    const struct skr_lease *lease, bool *is_ours,
                    struct skr_error *error);
// messenger.c. Tells db that it waits for this table's rows: skr_db_follow()
// says what that is good for.
SKR_MUST_CHECK enum skr_code
skr_messenger_follow(const struct skr_messenger *messenger, struct skr_db *db,
                     struct skr_error *error);
// SKR_INVALID: the queue has an order, and the table no column for it.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_ordered(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error);
// commits.c: whether rows tell of their transactions, where that is needed.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_commits(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error);
// ordered.c: forgets the one row in the batch if it is not the head of its
// partition.
SKR_MUST_CHECK enum skr_code
skr_ordered_keep_head(const struct skr_messenger *messenger, struct skr_tx tx,
                      struct skr_batch *batch, struct skr_error *error);
// fetch.c: whether a row is not to be given, since it is in hand or parked; and
// whether it is parked and not published, so that its partition waits for it.
bool skr_messenger_is_in_hand(const struct skr_read *read, int64_t row);
bool skr_messenger_is_parked(const struct skr_read *read, int64_t row);
bool skr_messenger_holds_back(const struct skr_read *read, int64_t row);
// How many rows of those that a statement finds may be none to be given.
static inline size_t
skr_messenger_count_known(const struct skr_read *read)
{
    return read->in_hand_count + read->parked_count;
}
bool skr_messenger_is_waiting(const struct skr_read *read, int64_t row);
skr_store_notify_fn skr_messenger_notify;
skr_store_read_fn skr_messenger_read;                        // glance.c
skr_store_read_partitions_fn skr_messenger_read_partitions;  // ordered.c
skr_store_claim_fn skr_messenger_claim;
skr_store_renew_fn skr_messenger_renew;
skr_store_measure_fn skr_messenger_measure;  // partitions.c
skr_store_live_fn skr_messenger_live;        // shares.c
skr_store_see_shares_fn skr_messenger_see_shares;
skr_store_take_share_fn skr_messenger_take_share;
skr_store_renew_share_fn skr_messenger_renew_share;
skr_store_give_share_fn skr_messenger_give_share;
skr_store_find_writer_fn skr_messenger_find_writer;  // commits.c
skr_store_settle_fn skr_messenger_settle;
skr_store_release_fn skr_messenger_release;
skr_store_leased_fn skr_messenger_leased;
skr_store_lock_name_fn skr_messenger_lock_name;
skr_store_foreign_fn skr_messenger_foreign;
skr_store_skew_fn skr_messenger_skew;

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
