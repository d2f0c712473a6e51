// SPDX-License-Identifier: MIT
// Ordered queues: the texts of a scan that tells of partitions, and reading
// partitions from their heads.
//
// A row that may not be sent now still comes, without its body: it holds back
// what follows it.

#include "base/error.h"
#include "base/text.h"
#include "store/messenger/layout.h"

#include <string.h>

// Asked once a row, as it is what costs most of all.
// Parameter: redeliver timeout.
#define COLUMNS                                                      \
    "id, CASE WHEN " SKR_MESSENGER_READY "{decided} THEN body END, " \
    "headers, created_at, {created_at_utc}, " SKR_MESSENGER_MARKS    \
    "{undecided_mark}, 1, {partition_text}"

// Partitions that are passed. Parameters: SKR_MOST_PASSED keys.
#define PASSING " AND {partition_bytes} NOT IN (?, ?, ?, ?, ?, ?, ?, ?)"
_Static_assert(SKR_MOST_PASSED == 8, "as many as PASSING asks for");

// Parameters: redeliver timeout, queue, cursor, what else asks for, limit.
#define BEYOND(queue, else_)                                   \
    "SELECT " COLUMNS " FROM {table} WHERE " queue             \
    " AND id > ? AND " SKR_MESSENGER_UNFINISHED "{ours}" else_ \
    " ORDER BY id LIMIT ?"
static const char beyond_sql[] = BEYOND("{queue_is_beyond}", "");
static const char beyond_passing_sql[] = BEYOND("{queue_is_beyond}", PASSING);
static const char first_sql[] = BEYOND("{queue_is}", "");

// Only what had to wait: what had not was seen when the cursor passed it.
// Parameters: queue, from id, cursor, from time, until, timeout, limit.
#define DUE_IDS(queue)                                                         \
    "SELECT id, {partition_text}, 0{undecided_mark} FROM {table} WHERE " queue \
    " AND {no_index}id > ? AND {no_index}id <= ? "                             \
    "AND available_at > ? AND available_at <= ? "                              \
    "AND available_at <> created_at AND " SKR_MESSENGER_FREE                   \
    " AND NOT " SKR_MESSENGER_PHP "{ours} ORDER BY id LIMIT ?"
static const char due_ids_sql[] = DUE_IDS("{queue_is_unindexed}");
static const char due_by_queue_sql[] = DUE_IDS("{queue_is}");

// Parameters: queue, from id, cursor, redeliver timeout, limit.
#define SWEEP_IDS(queue)                                                       \
    "SELECT id, {partition_text}, 0{undecided_mark} FROM {table} WHERE " queue \
    " AND id > ? AND id <= ? AND " SKR_MESSENGER_READY                         \
    "{ours} ORDER BY id LIMIT ?"
static const char sweep_ids_sql[] = SWEEP_IDS("{queue_is}");
static const char sweep_on_ids_sql[] = SWEEP_IDS("{queue_is_beyond}");

// What is late and not ready holds back its partition all the same.
// Parameters: queue, from id, cursor, redeliver timeout, what else asks for,
// limit.
#define LATE_IDS(queue, else_)                                                 \
    "SELECT id, {partition_text}, 0{undecided_mark} FROM {table} WHERE " queue \
    " AND id > ? AND id <= ? AND " SKR_MESSENGER_UNFINISHED                    \
    " AND (partition_key <> '' OR (" SKR_MESSENGER_READY ")){ours}" else_      \
    " ORDER BY id LIMIT ?"
static const char late_ids_sql[] = LATE_IDS("{queue_is_beyond}", "");
static const char late_passing_sql[] = LATE_IDS("{queue_is_beyond}", PASSING);
// From the start of the queue, before which there may be much of others.
static const char late_first_sql[] = LATE_IDS("{queue_is}", "");
static const char late_first_passing_sql[] = LATE_IDS("{queue_is}", PASSING);

// Parameters: redeliver timeout, ids.
static const char by_id_sql[] =
    "SELECT " SKR_MESSENGER_COLUMNS ", CASE WHEN " SKR_MESSENGER_READY
    " THEN 1 ELSE 0 END, {partition_text} FROM {table} "
    "WHERE id IN ({ids}){ours} ORDER BY id";

// Parameters: redeliver timeout, queue, key, twice, cursor, limit.
#define PARTITION                                  \
    "{union_open}SELECT " COLUMNS " FROM {table} " \
    "WHERE {queue_is} AND partition_key = ? "      \
    "AND {partition_bytes} = ? AND id <= ? "       \
    "AND " SKR_MESSENGER_UNFINISHED_UNINDEXED      \
    "{ours} ORDER BY id LIMIT ?{union_close}"
enum {
    PARTITION_PARAMETERS = 6,
    MOST_ROWS = 64,  // of one partition
    FEW_ROWS = 8,
    FEW_PARTITIONS = 4,
};

_Static_assert(PARTITION_PARAMETERS *SKR_MOST_PARTITIONS <= SKR_MOST_VALUES,
               "more than a statement takes");

// Parameters: queue, key, twice.
static const char head_sql[] =
    "SELECT id FROM {table} WHERE {queue_is} AND partition_key = ? "
    "AND {partition_bytes} = ? AND " SKR_MESSENGER_UNFINISHED
    " ORDER BY id LIMIT 1";

// For 1, 2, 4, 8, 16 and 32 of them.
static bool
fill_partitions(struct skr_messenger *messenger)
{
    struct skr_list_sql *list = &messenger->sql.partitions;
    struct skr_text text = {0};
    bool ok = true;
    for (size_t i = 0, size = 1, filled = 0; ok && size <= SKR_MOST_PARTITIONS;
         i++, size *= 2) {
        for (; filled < size; filled++)
            skr_text_add_format(&text, "%s%s", filled == 0 ? "" : " UNION ALL ",
                                PARTITION);
        ok = !text.broken &&
             skr_messenger_fill(messenger, text.bytes, &list->sql[i]);
    }
    skr_text_fini(&text);
    return ok;
}

bool
skr_messenger_fill_ordered(struct skr_messenger *messenger)
{
    struct skr_scan_sql *scan = &messenger->sql.scan;
    if (!messenger->is_ordered)
        return true;
    return skr_messenger_fill(messenger, due_ids_sql, &scan->due_ids) &&
           skr_messenger_fill(messenger, due_by_queue_sql,
                              &scan->due_by_queue) &&
           skr_messenger_fill(messenger, sweep_ids_sql, &scan->sweep_ids) &&
           skr_messenger_fill(messenger, sweep_on_ids_sql,
                              &scan->sweep_on_ids) &&
           skr_messenger_fill(messenger, late_ids_sql, &scan->late_ids) &&
           skr_messenger_fill(messenger, first_sql, &scan->first) &&
           skr_messenger_fill(messenger, beyond_sql, &scan->beyond) &&
           skr_messenger_fill(messenger, beyond_passing_sql,
                              &scan->beyond_passing) &&
           skr_messenger_fill(messenger, late_passing_sql,
                              &scan->late_passing) &&
           skr_messenger_fill(messenger, late_first_sql, &scan->late_first) &&
           skr_messenger_fill(messenger, late_first_passing_sql,
                              &scan->late_first_passing) &&
           skr_messenger_fill_list(messenger, by_id_sql, &scan->by_id) &&
           skr_messenger_fill(messenger, head_sql, &messenger->sql.head) &&
           fill_partitions(messenger);
}

enum skr_code
skr_ordered_keep_head(const struct skr_messenger *messenger, struct skr_tx tx,
                      struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_batch_item *item = &batch->items[0];
    if (item->partition_key[0] == '\0')
        return SKR_OK;
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        skr_bind_text(item->partition_key),
        skr_bind_text(item->partition_key),
    };
    struct skr_arena arena = {0};
    struct skr_value head = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code =
        skr_tx_fetch_one(tx,
                         &(struct skr_statement){
                             .sql = messenger->sql.head,
                             .values = values,
                             .value_count = SKR_COUNT_OF(values),
                         },
                         &arena, &head, 1, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK && (!found || head.integer != item->row)) {
        batch->count = 0;
        batch->bytes = 0;
    }
    return code;
}

struct reading {
    const struct skr_messenger *messenger;
    const struct skr_position *position;
    const struct skr_read *read;
    struct skr_partition_read *partitions;
    size_t count;
    size_t current;  // the one that the last row was of
    size_t limit;    // rows of each
    size_t *seen;    // rows of each that came
    struct skr_batch *batch;
};

static struct skr_partition_read *
find_partition(struct reading *reading, const struct skr_value *key)
{
    for (size_t i = 0; i < reading->count; i++) {
        size_t at = (reading->current + i) % reading->count;
        const char *wanted = reading->partitions[at].key;
        if (strlen(wanted) == key->size &&
            memcmp(wanted, key->bytes, key->size) == 0) {
            reading->current = at;
            return &reading->partitions[at];
        }
    }
    return NULL;
}

// Rows of one partition come in the order of their ids.
static enum skr_code
take_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    (void)count;
    struct reading *reading = user;
    const struct skr_read *read = reading->read;
    struct skr_batch *batch = reading->batch;
    int64_t row = columns[SKR_COLUMN_ID].integer;
    struct skr_partition_read *partition =
        find_partition(reading, &columns[SKR_COLUMN_PARTITION]);
    if (partition == NULL)
        return SKR_OK;
    reading->seen[reading->current]++;
    // It has ended before this row.
    if (partition->end != SKR_PARTITION_EMPTY)
        return SKR_OK;
    if (skr_is_among_rows(row, read->done, read->done_count))
        return SKR_OK;
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    bool has_company = batch->count > 0 || read->in_hand_count > 0;
    if (skr_messenger_holds_back(read, row))
        partition->end = SKR_PARTITION_WAITS;
    else if (skr_messenger_is_in_hand(read, row))
        partition->end = SKR_PARTITION_IN_HAND;
    else if (columns[SKR_COLUMN_BODY].kind == SKR_NULL)
        partition->end = SKR_PARTITION_WAITS;
    else if (batch->count == batch->capacity ||
             batch->count == read->max_rows ||
             partition->given == MOST_ROWS - 1 ||
             (has_company && size > skr_messenger_room(read, batch)))
        partition->end = SKR_PARTITION_MORE;
    if (partition->end != SKR_PARTITION_EMPTY)
        return SKR_OK;
    partition->given++;
    return skr_messenger_take_row(reading->messenger,
                                  reading->position->id_namespace, columns,
                                  batch, error);
}

static enum skr_code
run(struct reading *reading, struct skr_tx tx, struct skr_arena *arena,
    struct skr_error *error)
{
    const struct skr_messenger *messenger = reading->messenger;
    size_t size = 1, place = 0;
    for (; size < reading->count; place++)
        size *= 2;
    struct skr_value *values =
        skr_arena_take(arena, size * PARTITION_PARAMETERS * sizeof(*values));
    if (values == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < size; i++) {
        // No partition is that of NULL.
        const char *key =
            i < reading->count ? reading->partitions[i].key : NULL;
        const struct skr_value of_one[PARTITION_PARAMETERS] = {
            skr_bind_integer(messenger->redeliver_timeout_s),
            skr_bind_text(messenger->queue),
            skr_bind_text(key),
            skr_bind_text(key),
            skr_bind_integer(reading->position->cursor),
            skr_bind_integer((int64_t)reading->limit),
        };
        memcpy(values + i * PARTITION_PARAMETERS, of_one, sizeof(of_one));
    }
    return skr_tx_run(tx,
                      &(struct skr_statement){
                          .sql = messenger->sql.partitions.sql[place],
                          .values = values,
                          .value_count = size * PARTITION_PARAMETERS,
                          .each_row = take_row,
                          .user = reading,
                      },
                      error);
}

// skipped: how many rows of a partition that are done may lie before those that
// are wanted. *is_hidden: of some partition nothing else was seen.
static enum skr_code
read_first_rows(const struct skr_messenger *messenger, struct skr_tx tx,
                const struct skr_position *position,
                const struct skr_read *read, size_t skipped,
                struct skr_partition_read *partitions, size_t count,
                struct skr_batch *batch, bool *is_hidden,
                struct skr_error *error)
{
    struct skr_arena arena = {0};
    size_t seen[SKR_MOST_PARTITIONS] = {0};
    size_t room =
        skr_messenger_rows_for(position, skr_messenger_room(read, batch));
    size_t left = read->max_rows - batch->count;
    room = (room < left ? room : left) / count;
    size_t most = MOST_ROWS - 1;
    struct reading reading = {
        .messenger = messenger,
        .position = position,
        .read = read,
        .partitions = partitions,
        .count = count,
        .limit = room < 1      ? 1
                 : room < most ? room
                               : most,
        .seen = seen,
        .batch = batch,
    };
    reading.limit += skipped;
    for (size_t i = 0; i < count; i++) {
        partitions[i].end = SKR_PARTITION_EMPTY;
        partitions[i].given = 0;
    }
    enum skr_code code = run(&reading, tx, &arena, error);
    *is_hidden = false;
    for (size_t i = 0; i < count; i++) {
        if (partitions[i].end != SKR_PARTITION_EMPTY || seen[i] < reading.limit)
            continue;
        partitions[i].end = SKR_PARTITION_MORE;
        *is_hidden = *is_hidden || partitions[i].given == 0;
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_read_partitions(const struct skr_store *table, struct skr_db *db,
                              const struct skr_position *position,
                              const struct skr_read *read,
                              struct skr_partition_read *partitions,
                              size_t count, struct skr_batch *batch,
                              struct skr_error *error)
{
    // Most have nothing of the kind, and would be read for nothing.
    size_t most = count <= FEW_PARTITIONS ? MOST_ROWS : FEW_ROWS;
    size_t skipped = read->done_count < most ? read->done_count : most;
    bool is_hidden = false;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code =
        read_first_rows(skr_messenger_of(table), skr_db_tx(db), position, read,
                        skipped, partitions, count, batch, &is_hidden, error);
    // More than that are done where rows are parked.
    if (code == SKR_OK && is_hidden && batch->count == 0)
        code = read_first_rows(skr_messenger_of(table), skr_db_tx(db), position,
                               read, read->done_count, partitions, count, batch,
                               &is_hidden, error);
    skr_db_rollback(db);
    if (code != SKR_OK)
        skr_batch_clear(batch);
    return code;
}
