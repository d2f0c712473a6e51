// SPDX-License-Identifier: MIT
// The inside of the kafka_outbox layout, shared by its files alone.

#ifndef SKR_TABLE_KAFKA_OUTBOX_LAYOUT_H
#define SKR_TABLE_KAFKA_OUTBOX_LAYOUT_H

#include "base/arena.h"
#include "db/sql.h"
#include "table/kafka_outbox/kafka_outbox.h"

enum { KAFKA_OUTBOX_LIST_SIZES = 5, KAFKA_OUTBOX_REASON_LENGTH = 255 };

// A statement whose last parameters are ids, for 1, 4, 16, 64 and 256 of them.
struct kafka_outbox_list {
    const char *sql[KAFKA_OUTBOX_LIST_SIZES];
};

struct skr_kafka_outbox {
    struct skr_table table;
    struct skr_arena arena;  // all texts
    const struct skr_dialect *dialect;
    const char *name;
    bool marks;
    int64_t lease_s;    // of the other relay's claims
    bool commits_late;  // ids need not become visible in their order

    struct {
        const char *check, *find;
        const char *beyond, *behind, *only;
        struct kafka_outbox_list remove, complete;
        const char *retry, *fail;
        const char *find_old, *queued, *errored, *total;
        const char *show, *revive, *revive_all, *drop, *drop_all;
    } sql;
};

static inline const struct skr_kafka_outbox *
skr_kafka_outbox_of(const struct skr_table *table)
{
    return (const struct skr_kafka_outbox *)table;
}

bool skr_kafka_outbox_fill(struct skr_kafka_outbox *outbox,
                           const char *sql_template, const char **sql);
bool skr_kafka_outbox_fill_list(struct skr_kafka_outbox *outbox,
                                const char *sql_template,
                                struct kafka_outbox_list *list);
// Runs it on any number of rows, with no parameters before them.
SKR_MUST_CHECK enum skr_code
skr_kafka_outbox_run_list(struct skr_tx tx,
                          const struct kafka_outbox_list *list,
                          const int64_t *rows, size_t count,
                          struct skr_error *error);

// Each file fills the statements that it runs.
bool skr_kafka_outbox_fill_read(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_settle(struct skr_kafka_outbox *outbox);
bool skr_kafka_outbox_fill_care(struct skr_kafka_outbox *outbox);

skr_table_start_fn skr_kafka_outbox_start;
skr_table_read_fn skr_kafka_outbox_read;
skr_table_settle_fn skr_kafka_outbox_settle;

#endif
