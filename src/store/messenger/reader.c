// SPDX-License-Identifier: MIT
// The reader as its relay or consumer has it, what all that read have in
// common, and reading partitions from their heads. Finding the next rows is
// probes.c.

#include "store/messenger/reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "db/run.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROWS_AT_FIRST = 8,  // while their size is not known
    // Of partitions that are read from their heads.
    MOST_ROWS = 64,  // of one partition
    FEW_ROWS = 8,
    FEW_PARTITIONS = 4,
};

bool
skr_read_parks(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->parked, read->parked_count);
}

bool
skr_read_knows(const struct skr_read *read, int64_t row)
{
    return skr_is_among_rows(row, read->in_flight, read->in_flight_count) ||
           skr_read_parks(read, row);
}

bool
skr_read_holds_back(const struct skr_read *read, int64_t row)
{
    return skr_read_parks(read, row) &&
           !skr_is_among_rows(row, read->done, read->done_count);
}

size_t
skr_batch_room(const struct skr_read *read, const struct skr_batch *batch)
{
    return read->max_bytes > batch->bytes ? read->max_bytes - batch->bytes : 0;
}

size_t
skr_cursor_rows_for(const struct skr_cursor *at, size_t room)
{
    return at->row_size == 0 ? ROWS_AT_FIRST : room / at->row_size;
}

// Larger rows count at once; that they are smaller again has to be seen a few
// times.
void
skr_cursor_note_sizes(struct skr_cursor *at, size_t rows, size_t bytes)
{
    if (rows == 0)
        return;
    size_t size = bytes / rows + 1;
    if (size < at->row_size)
        size = (size + at->row_size) / 2;
    at->row_size = size;
}

struct skr_value
skr_bind_cursor(int64_t cursor)
{
    return skr_bind_integer(cursor == 0 ? INT64_MIN : cursor);
}

struct skr_values
skr_reader_bind(const struct skr_messenger_reader *reader,
                const struct skr_cursor *at, enum skr_messenger_sql id,
                const struct skr_bounds *bounds)
{
    const struct skr_messenger *messenger =
        skr_messenger_of(reader->base.store);
    const struct skr_read *read = bounds->read;
    struct skr_values values = SKR_NO_VALUES;
    for (const char *kind = messenger->sql[id].binds; *kind != '\0'; kind++) {
        struct skr_value *value = &values.items[values.count++];
        switch (*kind) {
        case 'q': *value = skr_bind_text(messenger->table.queue); break;
        case 't':
            *value = skr_bind_integer(messenger->redeliver_timeout_s);
            break;
        case 'f': *value = skr_bind_cursor(bounds->after); break;
        case 'u': *value = skr_bind_integer(bounds->up_to); break;
        case 'd': *value = skr_bind_text(at->due_until); break;
        case 'n': *value = skr_bind_text(at->scan_until); break;
        case 'l': *value = skr_bind_integer((int64_t)bounds->limit); break;
        case 'p':
            values.count--;
            for (size_t i = 0; i < SKR_MOST_PASSED; i++)
                values.items[values.count++] =
                    skr_bind_text(read->passed[i % read->passed_count]);
            break;
        }
    }
    return values;
}

static enum skr_code
open_reader(const struct skr_store *table, struct skr_db *db, bool derives_ids,
            struct skr_reader **reader, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_messenger_reader *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->base = (struct skr_reader){.store = table, .db = db};
    skr_low_watermark_start(
        &made->at.mark, db,
        skr_messenger_sql(messenger, SKR_SQL_OPEN_TRANSACTIONS),
        table->partitions != NULL);
    enum skr_code code =
        derives_ids ? skr_messenger_find_namespace(messenger, skr_db_tx(db),
                                                   made->id_namespace, error)
                    : SKR_OK;
    if (code == SKR_OK)
        *reader = &made->base;
    else
        free(made);
    return code;
}

static struct skr_reader_status
status_of(const struct skr_reader *reader)
{
    const struct skr_cursor *at =
        &((const struct skr_messenger_reader *)reader)->at;
    int64_t wake_ms = skr_clock_earlier(at->next_due_ms, at->next_full_scan_ms);
    wake_ms = skr_clock_earlier(wake_ms, at->next_expired_ms);
    wake_ms = skr_clock_earlier(wake_ms, at->next_undecided_ms);
    if (at->foreign_from != 0)
        wake_ms = skr_clock_earlier(wake_ms, at->next_foreign_ms);
    return (struct skr_reader_status){
        .cursor = at->mark.cursor,
        .low_watermark = at->mark.low,
        .has_more = at->has_more,
        .wake_ms = wake_ms,
        .next_due_ms = at->next_due_ms,
        .next_full_scan_ms = at->next_full_scan_ms,
        .is_scanning = at->scan_until[0] != '\0' || at->scan_cursor != 0,
        .hides_open = at->mark.hides_open,
        .is_cluster = at->mark.is_cluster,
        .undecided_row = at->undecided_row,
        .undecided_ms = at->undecided_ms,
    };
}

static void
plan_scan(struct skr_reader *reader, int64_t at_ms)
{
    ((struct skr_messenger_reader *)reader)->at.next_full_scan_ms = at_ms;
}

static enum skr_code
read_next(struct skr_reader *base, const struct skr_read *read,
          struct skr_batch *batch, struct skr_error *error)
{
    struct skr_messenger_reader *reader = (struct skr_messenger_reader *)base;
    const struct skr_messenger *messenger = skr_messenger_of(base->store);
    struct skr_look look = {
        .reader = reader, .read = read, .batch = batch, .at = reader->at};
    bool is_enough = false;
    enum skr_code code = skr_messenger_follow(messenger, base->db, error);
    if (code == SKR_OK)
        code =
            skr_messenger_learn(messenger, base->db, &reader->indexes, error);
    if (code == SKR_OK && read->only == NULL)
        code = skr_look_fast(&look, &is_enough, error);
    if (code == SKR_OK && !is_enough)
        code = skr_look_run_alone(&look, error);
    if (code != SKR_OK)
        return code;
    // Rows of other shards tell of the pace at which rows come: of whose shard
    // the next one is, is chance.
    if (batch->count > 0 || (messenger->owner != NULL &&
                             look.at.mark.cursor > reader->at.mark.cursor))
        base->db->found_rows = true;
    reader->at = look.at;
    return SKR_OK;
}

const struct skr_source_ops skr_messenger_source = {
    .open = open_reader,
    .read = read_next,
    .status = status_of,
    .plan_scan = plan_scan,
};

// -------------------------------------------- partitions, from their heads

struct reading {
    const struct skr_messenger_reader *reader;
    const struct skr_messenger *messenger;
    const struct skr_read *read;
    struct skr_partition_read *partitions;
    size_t count;
    size_t current;                    // the one that the last row was of
    size_t limit;                      // rows of each
    size_t seen[SKR_MOST_PARTITIONS];  // rows of each that came
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
    bool has_company = batch->count > 0 || read->in_flight_count > 0;
    if (skr_read_holds_back(read, row))
        partition->end = SKR_PARTITION_WAITS;
    else if (skr_read_knows(read, row))
        partition->end = SKR_PARTITION_IN_FLIGHT;
    else if (columns[SKR_COLUMN_BODY].kind == SKR_NULL)
        partition->end = SKR_PARTITION_WAITS;
    else if (batch->count == batch->capacity ||
             batch->count == read->max_rows ||
             partition->given == MOST_ROWS - 1 ||
             (has_company && size > skr_batch_room(read, batch)))
        partition->end = SKR_PARTITION_MORE;
    if (partition->end != SKR_PARTITION_EMPTY)
        return SKR_OK;
    partition->given++;
    return skr_messenger_take_row(reading->messenger,
                                  reading->reader->id_namespace, columns, batch,
                                  error);
}

static enum skr_code
run(struct reading *reading, struct skr_tx tx, struct skr_arena *arena,
    struct skr_error *error)
{
    const struct skr_messenger *messenger = reading->messenger;
    size_t size = 1, place = 0;
    for (; size < reading->count; place++)
        size *= 2;
    struct skr_value *values = skr_arena_take(
        arena, size * SKR_PARTITION_PARAMETERS * sizeof(*values));
    if (values == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < size; i++) {
        // No partition is that of NULL.
        const char *key =
            i < reading->count ? reading->partitions[i].key : NULL;
        const struct skr_value of_one[SKR_PARTITION_PARAMETERS] = {
            skr_bind_integer(messenger->redeliver_timeout_s),
            skr_bind_text(messenger->table.queue),
            skr_bind_text(key),
            skr_bind_text(key),
            skr_bind_integer(reading->reader->at.mark.cursor),
            skr_bind_integer((int64_t)reading->limit),
        };
        memcpy(values + i * SKR_PARTITION_PARAMETERS, of_one, sizeof(of_one));
    }
    return skr_tx_run(
        tx,
        &(struct skr_statement){
            .sql =
                skr_messenger_list(messenger, SKR_SQL_PARTITIONS)->sql[place],
            .values = values,
            .value_count = size * SKR_PARTITION_PARAMETERS,
            .each_row = take_row,
            .user = reading,
        },
        error);
}

// skipped: how many rows of a partition that are done may lie before those that
// are wanted. *is_hidden: of some partition nothing else was seen.
static enum skr_code
read_first_rows(struct reading *reading, size_t skipped, bool *is_hidden,
                struct skr_error *error)
{
    const struct skr_read *read = reading->read;
    struct skr_partition_read *partitions = reading->partitions;
    struct skr_arena arena = {0};
    size_t room = skr_cursor_rows_for(&reading->reader->at,
                                      skr_batch_room(read, reading->batch));
    size_t left = read->max_rows - reading->batch->count;
    size_t most = MOST_ROWS - 1;
    room = (room < left ? room : left) / reading->count;
    reading->limit = (room < 1 ? 1 : room < most ? room : most) + skipped;
    for (size_t i = 0; i < reading->count; i++) {
        reading->seen[i] = 0;
        partitions[i].end = SKR_PARTITION_EMPTY;
        partitions[i].given = 0;
    }
    enum skr_code code =
        run(reading, skr_db_tx(reading->reader->base.db), &arena, error);
    *is_hidden = false;
    for (size_t i = 0; i < reading->count; i++) {
        if (partitions[i].end != SKR_PARTITION_EMPTY ||
            reading->seen[i] < reading->limit)
            continue;
        partitions[i].end = SKR_PARTITION_MORE;
        *is_hidden = *is_hidden || partitions[i].given == 0;
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_read_partitions(struct skr_reader *base,
                              const struct skr_read *read,
                              struct skr_partition_read *partitions,
                              size_t count, struct skr_batch *batch,
                              struct skr_error *error)
{
    struct reading reading = {
        .reader = (struct skr_messenger_reader *)base,
        .messenger = skr_messenger_of(base->store),
        .read = read,
        .partitions = partitions,
        .count = count,
        .batch = batch,
    };
    // Most have nothing of the kind, and would be read for nothing.
    size_t most = count <= FEW_PARTITIONS ? MOST_ROWS : FEW_ROWS;
    size_t skipped = read->done_count < most ? read->done_count : most;
    bool is_hidden = false;
    enum skr_code code = skr_db_begin(base->db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = read_first_rows(&reading, skipped, &is_hidden, error);
    // More than that are done where rows are parked.
    if (code == SKR_OK && is_hidden && batch->count == 0)
        code = read_first_rows(&reading, read->done_count, &is_hidden, error);
    skr_db_rollback(base->db);
    if (code != SKR_OK)
        skr_batch_clear(batch);
    return code;
}
