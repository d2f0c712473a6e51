// SPDX-License-Identifier: MIT
// The inside of the kafka_outbox layout, shared by its files alone.

#ifndef SKR_STORE_KAFKA_OUTBOX_LAYOUT_H
#define SKR_STORE_KAFKA_OUTBOX_LAYOUT_H

#include "base/arena.h"
#include "base/hash.h"
#include "db/sql.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/list.h"
#include "store/low_watermark.h"

enum {
    KAFKA_OUTBOX_REASON_LENGTH = 255,
    KAFKA_OUTBOX_LEASE_S = 600,  // how long a claim lasts, for either relay
};

// A search for batches of the other relay finds none of these.
#define KAFKA_OUTBOX_OWN_BATCH "'00000000-0000-0000-0000-000000000000'"

// Columns of a row, in this order.
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

// Every statement that a table object runs: statements.c has their texts.
enum kafka_outbox_sql {
    KAFKA_OUTBOX_OPEN_TRANSACTIONS,  // "": nothing commits late
    KAFKA_OUTBOX_BEYOND,
    KAFKA_OUTBOX_BEHIND,
    KAFKA_OUTBOX_ONLY,
    KAFKA_OUTBOX_BY_ID,
    KAFKA_OUTBOX_CLAIM_BOUNDS,
    KAFKA_OUTBOX_CLAIMED_ROWS,
    KAFKA_OUTBOX_PLACES,
    KAFKA_OUTBOX_IDENTIFY,
    KAFKA_OUTBOX_REMOVE,
    KAFKA_OUTBOX_COMPLETE,
    KAFKA_OUTBOX_COMPLETE_LEAST,
    KAFKA_OUTBOX_RETRY,
    KAFKA_OUTBOX_RETRY_LEAST,
    KAFKA_OUTBOX_FAIL,
    KAFKA_OUTBOX_FAIL_LEAST,
    KAFKA_OUTBOX_FIND_OLD,
    KAFKA_OUTBOX_COUNT_OLD,
    KAFKA_OUTBOX_QUEUED,
    KAFKA_OUTBOX_ERRORED,
    KAFKA_OUTBOX_TOTAL,
    KAFKA_OUTBOX_ESTIMATE,
    KAFKA_OUTBOX_SHOW,
    KAFKA_OUTBOX_REVIVE,
    KAFKA_OUTBOX_DROP,
    KAFKA_OUTBOX_SQL_COUNT,
};

struct skr_kafka_outbox {
    struct skr_store table;
    const struct skr_dialect *dialect;
    const char *migrations;  // the table of what was made
    bool marks;
    bool takes_over;
    bool publishes_tombstones;
    int64_t lease_s;

    struct skr_list_sql sql[KAFKA_OUTBOX_SQL_COUNT];
};

// Where a reader stands.
struct kafka_outbox_cursor {
    struct skr_low_watermark mark;
    int64_t scan_cursor;  // of the full scan under way; 0: none
    int64_t next_full_scan_ms;
    // Rows that others have lie between these, and are so many; 0: none.
    int64_t claimed_from, claimed_to, claimed_count;
    int64_t next_claims_ms;  // when to see whether they still do
    bool has_more;           // the last read was full
};

struct kafka_outbox_reader {
    struct skr_reader base;
    struct kafka_outbox_cursor at;
};

static inline const struct skr_kafka_outbox *
skr_kafka_outbox_of(const struct skr_store *table)
{
    return (const struct skr_kafka_outbox *)table;
}

static inline const char *
skr_kafka_outbox_sql(const struct skr_kafka_outbox *outbox,
                     enum kafka_outbox_sql id)
{
    return outbox->sql[id].sql[0];
}

// Fills all statements but the one that asks who made the table.
bool skr_kafka_outbox_fill(struct skr_kafka_outbox *outbox);

// The interfaces, each in the file that fills it.
extern const struct skr_source_ops skr_kafka_outbox_source;    // reader.c
extern const struct skr_settle_ops skr_kafka_outbox_settling;  // settle.c

#endif
