// SPDX-License-Identifier: MIT
// The layout of Symfony Messenger's tables: messenger_outbox as an outbox,
// messenger_messages as a queue and as the failed table.

#ifndef SKR_STORE_MESSENGER_MESSENGER_H
#define SKR_STORE_MESSENGER_MESSENGER_H

#include "store/place.h"
#include "store/store.h"

// What every messenger table has, in the order in which setup() makes it.
#define SKR_MESSENGER_ROW                                       \
    "id, body, headers, queue_name, created_at, available_at, " \
    "delivered_at"

struct skr_messenger_options {
    const struct skr_dialect *dialect;
    const char *table;
    const char *queue;
    // Age at which another's claim is void: 3 or more; 0: an hour.
    uint32_t redeliver_timeout_s;
    // How often to look behind the cursor at everything; 0: every minute.
    uint32_t full_scan_ms;
    // Confirmed rows stay, as rows of the queue "<queue>.sent" that no reader
    // claims. The name must leave room for that.
    bool keeps_sent;
    bool is_ordered;  // it has the column partition_key, and keeps to it
    // Relays divide the queue's shards among themselves: what is read is of
    // this object's share alone.
    bool is_sharded;
    // Ordered queues only: nothing is read before every transaction that began
    // to write earlier is over. The column transaction_id tells.
    bool by_commits;
    // Others write these rows: one whose headers are larger than those of a
    // message may be is malformed, and its headers are not read.
    bool limits_headers;
    // The header by which the partition key reaches the broker; NULL: none.
    const char *partition_header;
    const char *stamp_namespace;    // as skr_outbox_options
    const struct skr_names *names;  // borrowed; NULL: none
    // In which zone other writers write (db/zone.h), here and in the failed
    // table. NULL: UTC.
    const char *time_zone;
    const char *failed_time_zone;

    // Where dead letters go: in the same database. failed_readable: Symfony
    // reads that queue as JSON, so rows that it can decode may stand there;
    // all others go to "<failed_queue>.skirnir".
    const char *transport;     // where it failed; NULL: the queue's name
    const char *failed_table;  // NULL: rows never fail here
    const char *failed_queue;  // NULL: "failed"
    bool failed_readable;
};

// Copies the options' texts. SKR_INVALID for a name that is no identifier.
SKR_MUST_CHECK enum skr_code
skr_messenger_new(const struct skr_messenger_options *options,
                  struct skr_store **table, struct skr_error *error);

// One row to append. headers is JSON text.
struct skr_messenger_row {
    const void *body;
    size_t body_size;
    const char *headers;
    size_t headers_size;
    int64_t due_at_us;          // 0: at once
    uint32_t delay_ms;          // by the database's clock, where due_at_us is 0
    const char *partition_key;  // all have one, or none: for ordered tables
};

struct skr_arena;
// The same as SQL of a handler, that is due at once and has no key. The queue's
// name has no quote and no backslash.
SKR_MUST_CHECK enum skr_code
skr_messenger_insert_sql(const struct skr_dialect *dialect,
                         const struct skr_queue_place *place,
                         struct skr_arena *arena, const char **sql,
                         struct skr_error *error);

// A table is a plain identifier, a queue 1 to 190 bytes of text.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_names(const char *table, const char *queue,
                          struct skr_error *error);

// Whether a queue's name leaves room for that of what was sent.
SKR_MUST_CHECK enum skr_code
skr_messenger_check_sent(const char *queue, struct skr_error *error);

// SKR_REFUSED, with the reason, where the order of commits cannot be known.
SKR_MUST_CHECK enum skr_code
skr_messenger_know_commits(const struct skr_dialect *dialect,
                           struct skr_error *error);

// For a publisher, which has no table object: rows in order into a table and
// queue whose names were checked.
SKR_MUST_CHECK enum skr_code
skr_messenger_insert(struct skr_tx tx, const struct skr_queue_place *place,
                     const struct skr_messenger_row *rows, size_t count,
                     struct skr_error *error);

// Appends rows in order, in whatever transaction tx is. The table need not be
// started. queue NULL: the table's own.
SKR_MUST_CHECK enum skr_code
skr_messenger_append(const struct skr_store *table, struct skr_tx tx,
                     const char *queue, const struct skr_messenger_row *rows,
                     size_t count, struct skr_error *error);

// A message that failed, for the failed table of `table`, in tx. headers are
// those of the message, marked as failed in place; raw_headers where they could
// not be parsed (headers are then empty). A body that is no text is stored as
// base64, and a header says so: no text column but SQLite's would take it.
struct skr_failed_message {
    struct skr_headers headers;
    const void *raw_headers;
    size_t raw_headers_size;
    const void *body;
    size_t body_size;
    const char *body_encoding;  // NULL: as it came
    // Its body is not looked at: an earlier try to store the message ended the
    // process. It stands in "<failed_queue>.skirnir".
    bool is_unseen;
    const char *partition_key;  // NULL or "": none
    struct skr_failure failure;
};
SKR_MUST_CHECK enum skr_code
skr_messenger_store_failed(const struct skr_store *table, struct skr_tx tx,
                           struct skr_arena *arena,
                           struct skr_failed_message *message,
                           struct skr_error *error);

// Of an ordered queue: ends the block of a partition whose head could not be
// sent. The head is made due, or moved to the failed table if it is skipped;
// *row tells which it was. SKR_MISSING when the partition has no message,
// SKR_REFUSED when its head is not blocked. A relay notices it by itself.
SKR_MUST_CHECK enum skr_code
skr_messenger_end_block(const struct skr_store *table, struct skr_db *db,
                        const char *key, bool skips, int64_t *row,
                        struct skr_error *error);

// Whether the queue has any row, due or not: one small statement. If so,
// second_ms is how far the server's second has gone.
SKR_MUST_CHECK enum skr_code
skr_messenger_has_rows(const struct skr_store *table, struct skr_tx tx,
                       const char *queue, bool *has_rows, int64_t *second_ms,
                       struct skr_error *error);

// The row that this connection added last, to this table. 0: it cannot be told.
SKR_MUST_CHECK enum skr_code
skr_messenger_last_row(const struct skr_store *table, struct skr_tx tx,
                       int64_t *row, struct skr_error *error);
// Whether that row is still there, and of this queue; NULL: of one of the two
// of messages that failed.
SKR_MUST_CHECK enum skr_code
skr_messenger_holds(const struct skr_store *table, struct skr_tx tx,
                    int64_t row, const char *queue, bool *holds,
                    struct skr_error *error);

#endif
