// SPDX-License-Identifier: MIT
// What people do with the table: count, and look at what failed.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/kafka_outbox/layout.h"

static const char queued_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE push_completed_at IS NULL";
static const char errored_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE push_completed_at IS NULL "
    "AND errored = 1";
// What is completed may be very much, and is counted up to here only.
#define BOUND "100001"
enum { EXACT = 100000 };
static const char total_sql[] =
    "SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} LIMIT " BOUND
    ") AS bounded";
static const char show_sql[] =
    "SELECT id, topic, error_reason, push_attempts FROM {table} "
    "WHERE errored = 1 ORDER BY id";
#define REVIVE                                                               \
    "UPDATE {table} SET errored = 0, error_reason = '', push_attempts = 0, " \
    "batch_id = NULL, push_started_at = NULL WHERE errored = 1"
#define DROP "DELETE FROM {table} WHERE errored = 1"

bool
skr_kafka_outbox_fill_care(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill(outbox, queued_sql, &outbox->sql.queued) &&
           skr_kafka_outbox_fill(outbox, errored_sql, &outbox->sql.errored) &&
           skr_kafka_outbox_fill(outbox, total_sql, &outbox->sql.total) &&
           skr_kafka_outbox_fill(outbox, "{row_estimate}",
                                 &outbox->sql.estimate) &&
           skr_kafka_outbox_fill(outbox, show_sql, &outbox->sql.show) &&
           skr_kafka_outbox_fill(outbox, REVIVE " AND id = ?",
                                 &outbox->sql.revive) &&
           skr_kafka_outbox_fill(outbox, REVIVE, &outbox->sql.revive_all) &&
           skr_kafka_outbox_fill(outbox, DROP " AND id = ?",
                                 &outbox->sql.drop) &&
           skr_kafka_outbox_fill(outbox, DROP, &outbox->sql.drop_all);
}

static enum skr_code
count_by(const char *sql, struct skr_db *db, int64_t *number,
         struct skr_error *error)
{
    return skr_sql_number(skr_db_tx(db), sql, SKR_NO_VALUES, number, error);
}

enum skr_code
skr_kafka_outbox_count(const struct skr_store *table, struct skr_db *db,
                       struct skr_kafka_outbox_counts *counts,
                       struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    enum skr_code code =
        count_by(outbox->sql.queued, db, &counts->queued, error);
    if (code == SKR_OK)
        code = count_by(outbox->sql.errored, db, &counts->errored, error);
    if (code == SKR_OK)
        code = count_by(outbox->sql.total, db, &counts->total, error);
    if (code != SKR_OK || counts->total <= EXACT)
        return code;
    int64_t estimate = 0;
    code = count_by(outbox->sql.estimate, db, &estimate, error);
    if (estimate > counts->total)
        counts->total = estimate;
    return code;
}

struct showing {
    skr_kafka_outbox_errored_fn *each;
    void *user;
};

static enum skr_code
show_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    const struct showing *showing = user;
    (void)count;
    return showing->each(columns[0].integer, columns[1].bytes, columns[2].bytes,
                         columns[3].integer, showing->user, error);
}

enum skr_code
skr_kafka_outbox_show(const struct skr_store *table, struct skr_db *db,
                      skr_kafka_outbox_errored_fn *each, void *user,
                      struct skr_error *error)
{
    struct showing showing = {.each = each, .user = user};
    return skr_sql_each(skr_db_tx(db), skr_kafka_outbox_of(table)->sql.show,
                        SKR_NO_VALUES, show_row, &showing, error);
}

static enum skr_code
change(struct skr_db *db, const char *one, const char *all, int64_t row,
       uint64_t *changed, struct skr_error *error)
{
    *changed = 0;
    enum skr_code code = skr_sql_run(
        skr_db_tx(db), row == 0 ? all : one,
        row == 0 ? SKR_NO_VALUES : skr_values("%jd", row), changed, error);
    if (code == SKR_OK && *changed == 0 && row != 0)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no errored row %lld", (long long)row);
    return code;
}

enum skr_code
skr_kafka_outbox_retry(const struct skr_store *table, struct skr_db *db,
                       int64_t row, uint64_t *changed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return change(db, outbox->sql.revive, outbox->sql.revive_all, row, changed,
                  error);
}

enum skr_code
skr_kafka_outbox_remove(const struct skr_store *table, struct skr_db *db,
                        int64_t row, uint64_t *changed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return change(db, outbox->sql.drop, outbox->sql.drop_all, row, changed,
                  error);
}
