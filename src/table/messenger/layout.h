// SPDX-License-Identifier: MIT
// The inside of the messenger layout, shared by its files alone.

#ifndef SKR_TABLE_MESSENGER_LAYOUT_H
#define SKR_TABLE_MESSENGER_LAYOUT_H

#include "base/arena.h"
#include "db/sql.h"
#include "table/messenger/messenger.h"

enum { SKR_LIST_SIZES = 5 };

// A statement whose last parameters are ids, for 1, 4, 16, 64 and 256 of them.
struct skr_list_sql {
    const char *sql[SKR_LIST_SIZES];
};

// How rows are found: to read them, or to claim them in a write transaction.
struct skr_scan_sql {
    const char *due_ids;    // behind the cursor, their time has come
    const char *sweep_ids;  // behind the cursor, for whatever reason
    const char *first;      // beyond a cursor that has not moved yet
    const char *beyond;
    const char *late_ids;  // behind the cursor, from the low-water mark on
    struct skr_list_sql by_id;
};

struct skr_messenger {
    struct skr_table table;
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
    const char *id_header;
    uint32_t redeliver_timeout_s;
    uint32_t sweep_ms;

    struct {
        const char *check, *check_failed;
        const char *find_namespace;
        const char *count_php;
        const char *now;

        struct skr_scan_sql read, claim;
        const char *horizon;  // "": nothing commits late
        const char *rest;

        const char *fail, *copy_to_failed;

        struct skr_list_sql remove;
        const char *retry, *retry_claimed;
        const char *raise_count;
        struct skr_list_sql mark, keep, unmark, find_held;
        const char *peek_expired, *find_expired;
        const char *page, *any;
    } sql;
};

static inline const struct skr_messenger *
skr_messenger_of(const struct skr_table *table)
{
    return (const struct skr_messenger *)table;
}

// Each file fills in the texts that it uses. False: memory is out.
SKR_MUST_CHECK bool skr_messenger_fill_read(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_foreign(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_failed(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_find(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_settle(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_lease(struct skr_messenger *messenger);
SKR_MUST_CHECK bool skr_messenger_fill_keep(struct skr_messenger *messenger);

SKR_MUST_CHECK bool
skr_messenger_fill(struct skr_messenger *messenger, const char *sql_template,
                   const char **sql);
// lock: the text of {lock}, "" or "{lock_skip}".
SKR_MUST_CHECK bool skr_messenger_fill_lock(struct skr_messenger *messenger,
                                            const char *sql_template,
                                            const char *lock, const char **sql);
SKR_MUST_CHECK bool
skr_messenger_fill_scan(struct skr_messenger *messenger, const char *lock,
                        struct skr_scan_sql *scan);
SKR_MUST_CHECK bool
skr_messenger_fill_list(struct skr_messenger *messenger,
                        const char *sql_template, const char *lock,
                        struct skr_list_sql *list);

// Runs a list statement as often as the number of ids asks for.
struct skr_list_run {
    const struct skr_list_sql *sql;
    struct skr_value first[2];  // before the ids
    size_t first_count;
    const int64_t *rows;
    size_t count;
    skr_row_fn *each_row;
    void *user;
    uint64_t *affected;  // summed up; NULL: not wanted
};
SKR_MUST_CHECK enum skr_code
skr_messenger_run_list(struct skr_tx tx, const struct skr_list_run *run,
                       struct skr_error *error);
// The same for the rows of all items in a state.
SKR_MUST_CHECK enum skr_code
skr_messenger_run_state(struct skr_tx tx, const struct skr_list_run *run,
                        const struct skr_batch *batch, enum skr_state state,
                        struct skr_error *error);

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

// Columns of a row, in this order.
enum {
    SKR_COLUMN_ID,
    SKR_COLUMN_BODY,
    SKR_COLUMN_HEADERS,
    SKR_COLUMN_CREATED_AT,
    SKR_COLUMN_CLAIMED,  // 1: delivered_at is set
    SKR_COLUMN_COUNT,
};
#define SKR_MESSENGER_COLUMNS         \
    "id, body, headers, created_at, " \
    "CASE WHEN delivered_at IS NULL THEN 0 ELSE 1 END"

// Adds a row to the batch, which has room for it.
SKR_MUST_CHECK enum skr_code
skr_messenger_take_row(const struct skr_messenger *messenger,
                       const char *id_namespace,
                       const struct skr_value *columns, struct skr_batch *batch,
                       struct skr_error *error);

// Fills the batch in whatever transaction tx is. position moves only on SKR_OK.
SKR_MUST_CHECK enum skr_code
skr_messenger_scan(const struct skr_messenger *messenger,
                   const struct skr_scan_sql *sql, struct skr_tx tx,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error);
// horizon.c: whether rows may still appear behind the cursor, and what is known
// now of transactions. The first is asked before, the second after a look at
// them, in the same transaction.
bool skr_messenger_is_late_possible(const struct skr_messenger *messenger,
                                    const struct skr_position *position);
SKR_MUST_CHECK enum skr_code
skr_messenger_follow_horizon(const struct skr_messenger *messenger,
                             struct skr_tx tx, int64_t now_ms,
                             struct skr_position *position,
                             struct skr_error *error);
skr_table_read_fn skr_messenger_read;
skr_table_settle_fn skr_messenger_settle;
skr_table_foreign_fn skr_messenger_foreign;

// Writes the headers column and picks the queue of a message that failed.
SKR_MUST_CHECK enum skr_code
skr_messenger_mark_failed(const struct skr_messenger *messenger,
                          struct skr_arena *arena,
                          struct skr_failed_message *message,
                          struct skr_text *json, const char **queue,
                          struct skr_error *error);
// What a RETRY_LATER item adds to its row: headers and seconds to wait.
SKR_MUST_CHECK enum skr_code
skr_messenger_mark_retry(struct skr_arena *arena,
                         const struct skr_batch_item *item,
                         struct skr_text *json, int64_t *delay_s,
                         struct skr_error *error);

#endif
