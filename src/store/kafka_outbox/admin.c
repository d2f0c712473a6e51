// SPDX-License-Identifier: MIT
// What people do with the table: count, look at what failed, and remove what
// was completed long ago.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/cleaning.h"
#include "store/kafka_outbox/layout.h"

enum { EXACT = 100000 };

enum skr_code
skr_kafka_outbox_count(const struct skr_store *table, struct skr_db *db,
                       struct skr_kafka_outbox_counts *counts,
                       struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    int64_t estimate = 0;
    const struct {
        enum kafka_outbox_sql sql;
        int64_t *number;
    } asked[] = {
        {KAFKA_OUTBOX_QUEUED, &counts->queued},
        {KAFKA_OUTBOX_ERRORED, &counts->errored},
        {KAFKA_OUTBOX_TOTAL, &counts->total},
        {KAFKA_OUTBOX_ESTIMATE, &estimate},
    };
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(asked) && code == SKR_OK; i++)
        if (asked[i].number != &estimate || counts->total > EXACT)
            code = skr_sql_number(skr_db_tx(db),
                                  skr_kafka_outbox_sql(outbox, asked[i].sql),
                                  SKR_NO_VALUES, asked[i].number, error);
    if (estimate > counts->total)
        counts->total = estimate;
    return code;
}

static enum skr_code
fail_missing(const struct skr_errored_rows *rows, uint64_t found,
             struct skr_error *error)
{
    if (rows->id == 0 || found > 0)
        return SKR_OK;
    return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                    "there is no errored row %lld; `skirnir kafka-relay "
                    "errored show` lists them",
                    (long long)rows->id);
}

static struct skr_values
values_of(const struct skr_errored_rows *rows)
{
    return skr_values("%jd %jd %jd %jd %jd %s", (int64_t)(rows->id != 0),
                      rows->id, (int64_t)(rows->older_s != 0), rows->older_s,
                      (int64_t)(rows->before != NULL), rows->before);
}

struct showing {
    skr_errored_fn *each;
    void *user;
    uint64_t found;
};

static enum skr_code
show_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct showing *showing = user;
    const struct skr_errored_row row = {
        .id = columns[0].integer,
        .attempts = columns[3].integer,
        .topic = columns[1].bytes,
        .reason = columns[2].bytes,
        .created_at = columns[4].bytes,
    };
    (void)count;
    showing->found++;
    return showing->each(&row, showing->user, error);
}

enum skr_code
skr_kafka_outbox_show(const struct skr_store *table, struct skr_db *db,
                      const struct skr_errored_rows *rows, skr_errored_fn *each,
                      void *user, struct skr_error *error)
{
    struct showing showing = {.each = each, .user = user};
    enum skr_code code = skr_sql_each(
        skr_db_tx(db),
        skr_kafka_outbox_sql(skr_kafka_outbox_of(table), KAFKA_OUTBOX_SHOW),
        values_of(rows), show_row, &showing, error);
    return code == SKR_OK ? fail_missing(rows, showing.found, error) : code;
}

enum skr_code
skr_kafka_outbox_change(const struct skr_store *table, struct skr_db *db,
                        const struct skr_errored_rows *rows, bool removes,
                        uint64_t *changed, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    *changed = 0;
    enum skr_code code =
        skr_sql_run(skr_db_tx(db),
                    skr_kafka_outbox_sql(outbox, removes ? KAFKA_OUTBOX_DROP
                                                         : KAFKA_OUTBOX_REVIVE),
                    values_of(rows), changed, error);
    return code == SKR_OK ? fail_missing(rows, *changed, error) : code;
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
            .table = outbox->table.name,
            .find_sql = skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_FIND_OLD),
            .count_sql = skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_COUNT_OLD),
            .remove = skr_cleaning_remove_rows,
            .most = SKR_CLEANING_MOST_ROWS,
            .user = &outbox->sql[KAFKA_OUTBOX_REMOVE],
        },
        removed, error);
}
