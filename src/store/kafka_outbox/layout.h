// SPDX-License-Identifier: MIT
// The inside of the kafka_outbox layout, shared by its files alone.

#ifndef SKR_STORE_KAFKA_OUTBOX_LAYOUT_H
#define SKR_STORE_KAFKA_OUTBOX_LAYOUT_H

#include "base/arena.h"
#include "base/hash.h"
#include "db/sql.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/list.h"

enum {
    KAFKA_OUTBOX_REASON_LENGTH = 255,
    KAFKA_OUTBOX_LEASE_S = 600,  // how long a claim lasts, for either relay
};

// A search for batches of the other relay finds none of these.
#define KAFKA_OUTBOX_OWN_BATCH "'00000000-0000-0000-0000-000000000000'"

#define KAFKA_OUTBOX_UNFINISHED "o.push_completed_at IS NULL AND o.errored = 0"
// Parameter: seconds. {or_others}: claims of another relay are void.
#define KAFKA_OUTBOX_FREE                                             \
    "(o.batch_id IS NULL OR o.push_started_at IS NULL {or_others}OR " \
    "o.push_started_at <= {now_minus})"

// A word behind a dot is a name, although `key` is reserved elsewhere.
#define KAFKA_OUTBOX_COLUMNS                                    \
    "o.id, o.topic, o.payload_json, o.payload_headers, o.key, " \
    "o.partition_key, o.push_attempts, o.created_at"
enum kafka_outbox_column {
    KAFKA_OUTBOX_ID,
    KAFKA_OUTBOX_TOPIC,
    KAFKA_OUTBOX_PAYLOAD,
    KAFKA_OUTBOX_HEADERS,
    KAFKA_OUTBOX_KEY,
    KAFKA_OUTBOX_PARTITION_KEY,
    KAFKA_OUTBOX_ATTEMPTS,
    KAFKA_OUTBOX_CREATED_AT,
    KAFKA_OUTBOX_COLUMN_COUNT,
};

struct skr_kafka_outbox {
    struct skr_store table;
    struct skr_arena arena;  // all texts
    const struct skr_dialect *dialect;
    const char *name;
    const char *migrations;  // the table of what was made
    bool marks;
    bool takes_over;
    bool publishes_tombstones;
    int64_t lease_s;

    struct {
        const char *check, *find, *find_maker;
        const char *beyond, *behind, *only;
        struct skr_list_sql by_id;
        const char *held_bounds, *held_rows;
        struct skr_list_sql places;
        const char *horizon;  // "": nothing commits late
        struct skr_list_sql identify;
        struct skr_list_sql remove, complete, complete_least;
        const char *retry, *retry_least, *fail, *fail_least;
        const char *find_old, *count_old, *queued, *errored, *total, *estimate;
        const char *show, *revive, *revive_all, *drop, *drop_all;
    } sql;
};

static inline const struct skr_kafka_outbox *
skr_kafka_outbox_of(const struct skr_store *table)
{
    return (const struct skr_kafka_outbox *)table;
}

bool skr_kafka_outbox_fill(struct skr_kafka_outbox *outbox,
                           const char *sql_template, const char **sql);
// range_template may be NULL.
bool skr_kafka_outbox_fill_list(struct skr_kafka_outbox *outbox,
                                const char *list_template,
                                const char *range_template,
                                struct skr_list_sql *list);

// row.c: columns as KAFKA_OUTBOX_COLUMNS has them.

// What the row is in order with; false: with nothing.
bool skr_kafka_outbox_partition(const struct skr_value *columns,
                                struct skr_hash *partition);
size_t skr_kafka_outbox_row_size(const struct skr_value *columns);
// Adds it to a batch that has room.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_take_row(const struct skr_kafka_outbox *outbox,
                          struct skr_batch *batch,
                          const struct skr_value *columns,
                          struct skr_error *error);

// Each file fills the statements that it runs.
bool skr_kafka_outbox_fill_read(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_held(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_settle(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_care(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_clean(struct skr_kafka_outbox *outbox);

skr_store_start_fn skr_kafka_outbox_start;
skr_store_read_fn skr_kafka_outbox_read;
skr_store_settle_fn skr_kafka_outbox_settle;

#endif
