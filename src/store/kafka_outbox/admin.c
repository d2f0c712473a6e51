// SPDX-License-Identifier: MIT
// What people do with the table: count, look at what failed, and remove what
// was completed long ago.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/cleaning.h"
#include "store/kafka_outbox/layout.h"

enum { EXACT = 100000 };

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
        count_by(skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_QUEUED), db,
                 &counts->queued, error);
    if (code == SKR_OK)
        code = count_by(skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_ERRORED), db,
                        &counts->errored, error);
    if (code == SKR_OK)
        code = count_by(skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_TOTAL), db,
                        &counts->total, error);
    if (code != SKR_OK || counts->total <= EXACT)
        return code;
    int64_t estimate = 0;
    code = count_by(skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_ESTIMATE), db,
                    &estimate, error);
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
    return skr_sql_each(
        skr_db_tx(db),
        skr_kafka_outbox_sql(skr_kafka_outbox_of(table), KAFKA_OUTBOX_SHOW),
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
    return change(db, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_REVIVE),
                  skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_REVIVE_ALL), row,
                  changed, error);
}

enum skr_code
skr_kafka_outbox_remove(const struct skr_store *table, struct skr_db *db,
                        int64_t row, uint64_t *changed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return change(db, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_DROP),
                  skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_DROP_ALL), row,
                  changed, error);
}

enum skr_code
skr_kafka_outbox_clean(const struct skr_store *table,
                       const struct skr_cleaning *cleaning, struct skr_db *db,
                       uint64_t *removed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    return skr_cleaning_run(
        cleaning, db,
        &(struct skr_cleaning_source){
            .table = outbox->name,
            .find_sql = skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_FIND_OLD),
            .count_sql = skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_COUNT_OLD),
            .remove = skr_cleaning_remove_rows,
            .most = SKR_CLEANING_MOST_ROWS,
            .user = &outbox->sql[KAFKA_OUTBOX_REMOVE],
        },
        removed, error);
}
