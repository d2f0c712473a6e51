// SPDX-License-Identifier: MIT
// Rows that another relay has claimed and not finished, or that wait for their
// next try: what follows them in their partition waits as well.
//
// Few rows are claimed, and they lie close together: where they begin and end
// is found now and then, and between these they are read each time.

#include "store/kafka_outbox/held.h"

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "db/run.h"

#include <stdlib.h>
#include <string.h>

#define HELD KAFKA_OUTBOX_UNFINISHED " AND NOT " KAFKA_OUTBOX_FREE

// NULL, which reads as 0, where there are none; COALESCE() with a signed number
// would turn ids that are unsigned into decimals. Parameters: lease.
static const char bounds_sql[] =
    "SELECT MIN(o.id), MAX(o.id), COUNT(*) "
    "FROM {table} o WHERE o.batch_id IS NOT NULL AND " HELD;
#define PLACES "SELECT o.id, o.topic, o.key, o.partition_key FROM {table} o "
// Parameters: from, to, lease.
static const char rows_sql[] = PLACES "WHERE o.id >= ? AND o.id <= ? AND " HELD;
// Parameters: ids.
static const char places_sql[] =
    PLACES "WHERE " KAFKA_OUTBOX_UNFINISHED " AND o.id IN ({ids})";

bool
skr_kafka_outbox_fill_held(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill(outbox, bounds_sql,
                                 &outbox->sql.held_bounds) &&
           skr_kafka_outbox_fill(outbox, rows_sql, &outbox->sql.held_rows) &&
           skr_kafka_outbox_fill_list(outbox, places_sql, NULL,
                                      &outbox->sql.places);
}

enum skr_code
skr_kafka_outbox_find_held(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx, struct skr_position *position,
                           struct skr_error *error)
{
    struct skr_value columns[3];
    struct skr_row row = {.columns = columns, .count = SKR_COUNT_OF(columns)};
    enum skr_code code =
        skr_sql_row(tx, outbox->sql.held_bounds,
                    skr_values("%jd", outbox->lease_s), &row, error);
    if (code != SKR_OK)
        return code;
    position->held_from = columns[0].integer;
    position->held_to = columns[1].integer;
    position->held_count = columns[2].integer;
    return SKR_OK;
}

static enum skr_code
keep_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct kafka_outbox_held *held = user;
    struct skr_value all[KAFKA_OUTBOX_COLUMN_COUNT] = {{0}};
    struct kafka_outbox_hold hold = {.row = columns[0].integer};
    (void)count;
    all[KAFKA_OUTBOX_TOPIC] = columns[1];
    all[KAFKA_OUTBOX_KEY] = columns[2];
    all[KAFKA_OUTBOX_PARTITION_KEY] = columns[3];
    held->rows++;
    if (!skr_kafka_outbox_partition(all, &hold.partition))
        return SKR_OK;
    if (!skr_vec_insert(&held->items, &held->count, &held->capacity,
                        held->count, &hold, sizeof(hold)))
        return skr_fail_memory(error);
    return SKR_OK;
}

static int
compare_partitions(const struct skr_hash *a, const struct skr_hash *b)
{
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    return (a->low > b->low) - (a->low < b->low);
}

static int
compare_holds(const void *left, const void *right)
{
    const struct kafka_outbox_hold *a = left, *b = right;
    int order = compare_partitions(&a->partition, &b->partition);
    return order != 0 ? order : (a->row > b->row) - (a->row < b->row);
}

// Of each partition the first row holds back what the others do.
static void
keep_first_holds(struct kafka_outbox_held *held)
{
    size_t kept = 0;
    if (held->count > 0)
        qsort(held->items, held->count, sizeof(held->items[0]), compare_holds);
    for (size_t i = 0; i < held->count; i++)
        if (kept == 0 || compare_partitions(&held->items[kept - 1].partition,
                                            &held->items[i].partition) != 0)
            held->items[kept++] = held->items[i];
    held->count = kept;
}

enum skr_code
skr_kafka_outbox_read_held(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx,
                           const struct skr_position *position,
                           struct kafka_outbox_held *held,
                           struct skr_error *error)
{
    if (position->held_count == 0)
        return SKR_OK;
    enum skr_code code =
        skr_sql_each(tx, outbox->sql.held_rows,
                     skr_values("%jd %jd %jd", position->held_from,
                                position->held_to, outbox->lease_s),
                     keep_row, held, error);
    keep_first_holds(held);
    return code;
}

enum skr_code
skr_kafka_outbox_hold_rows(const struct skr_kafka_outbox *outbox,
                           struct skr_tx tx, const int64_t *rows, size_t count,
                           struct kafka_outbox_held *held,
                           struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = &outbox->sql.places,
        .rows = rows,
        .count = count,
        .each_row = keep_row,
        .user = held,
    };
    enum skr_code code = skr_list_run(tx, &run, error);
    keep_first_holds(held);
    return code;
}

static int
compare_with_partition(const void *key, const void *item)
{
    const struct kafka_outbox_hold *hold = item;
    return compare_partitions(key, &hold->partition);
}

bool
skr_kafka_outbox_is_held_back(const struct kafka_outbox_held *held,
                              const struct skr_value *columns)
{
    struct skr_hash partition;
    if (held->count == 0 || !skr_kafka_outbox_partition(columns, &partition))
        return false;
    const struct kafka_outbox_hold *hold =
        bsearch(&partition, held->items, held->count, sizeof(held->items[0]),
                compare_with_partition);
    return hold != NULL && hold->row < columns[KAFKA_OUTBOX_ID].integer;
}

void
skr_kafka_outbox_held_fini(struct kafka_outbox_held *held)
{
    free(held->items);
}
