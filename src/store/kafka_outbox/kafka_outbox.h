// SPDX-License-Identifier: MIT
// The layout of kafka_outbox: the table of kafka-outbox-relay, which that
// relay can go on with. Each row names its topic, key and partition itself.
//
// One reader has the table to itself and writes nothing to claim a row. Rows
// that the other relay has claimed (batch_id, push_started_at) are its own for
// ten minutes.

#ifndef SKR_STORE_KAFKA_OUTBOX_KAFKA_OUTBOX_H
#define SKR_STORE_KAFKA_OUTBOX_KAFKA_OUTBOX_H

#include "store/store.h"

// push_attempts is counted no further: that relay's column may hold no more.
enum { SKR_KAFKA_OUTBOX_MOST_ATTEMPTS = 127 };

struct skr_kafka_outbox_options {
    const struct skr_dialect *dialect;
    const char *table;  // NULL: "kafka_outbox"
    // Confirmed rows stay, with push_completed_at; else they are deleted.
    bool marks;
    bool takes_over;  // claims of another relay are void at once
    // A row whose payload is NULL becomes a record without a value, by which
    // Kafka deletes what it has of the key; else the row has failed.
    bool publishes_tombstones;
};

// SKR_INVALID for a name that is no identifier.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_new(const struct skr_kafka_outbox_options *options,
                     struct skr_store **table, struct skr_error *error);

// Whether the table was made before, and whether setup() made it.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_find_maker(const struct skr_store *table, struct skr_db *db,
                            bool *is_there, bool *is_ours,
                            struct skr_error *error);

// Removes rows that were completed longer ago. removed is added to.
struct skr_cleaning;
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_clean(const struct skr_store *table,
                       const struct skr_cleaning *cleaning, struct skr_db *db,
                       uint64_t *removed, struct skr_error *error);

struct skr_kafka_outbox_counts {
    int64_t queued;  // to be published, errored ones among them
    int64_t errored;
    int64_t total;  // beyond 100,000 an estimate
};
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_count(const struct skr_store *table, struct skr_db *db,
                       struct skr_kafka_outbox_counts *counts,
                       struct skr_error *error);

// Which errored rows are meant; zeroed: all of them.
struct skr_errored_rows {
    int64_t id;          // 0: any
    int64_t older_s;     // written more seconds ago; 0: at any time
    const char *before;  // written before this time; NULL: at any time
};
struct skr_errored_row {
    int64_t id, attempts;
    const char *topic, *reason, *created_at;
};
typedef enum skr_code skr_errored_fn(const struct skr_errored_row *row,
                                     void *user, struct skr_error *error);

// The oldest first. change() removes them, or has them published again.
// SKR_MISSING: there is no row of this id.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_show(const struct skr_store *table, struct skr_db *db,
                      const struct skr_errored_rows *rows, skr_errored_fn *each,
                      void *user, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_change(const struct skr_store *table, struct skr_db *db,
                        const struct skr_errored_rows *rows, bool removes,
                        uint64_t *changed, struct skr_error *error);

#endif
