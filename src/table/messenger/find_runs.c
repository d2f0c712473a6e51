// SPDX-License-Identifier: MIT
// Which rows a claim of runs is to lock: ids of the first rows of the next
// partitions, as far as they may be sent, and of rows without a key. Sizes come
// along, so that nothing is locked that finds no room.
//
// To look at each partition by itself pays where there is more than a row or
// two of it. Where there is not, the next rows of the index are read as they
// follow each other, of however many partitions they are.

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "table/messenger/runs.h"

#include <string.h>

enum {
    MOST_OF_ONE = 63,  // rows of a partition
    // A page that fills less than that part of its room is better read row by
    // row, and so are the next ones.
    SHORT = 3,
    PAGES_ROW_BY_ROW = 16,
};

#define SIZE "OCTET_LENGTH(body) + OCTET_LENGTH(headers)"
// Whether it is ready, and its size. One parameter: redeliver timeout.
#define STATE "CASE WHEN " SKR_MESSENGER_READY " THEN 1 ELSE 0 END, " SIZE
// Parameters: queue, from id, redeliver timeout, limit.
static const char free_sql[] =
    "SELECT id, " SIZE " FROM {table} WHERE {queue_is} AND partition_key = '' "
    "AND id > ? AND " SKR_MESSENGER_READY " ORDER BY id LIMIT ?";
// The first rows of the partition of that number.
// Parameters: redeliver timeout, queue, key, twice, limit.
#define FIRST_ROWS                                                         \
    "{union_open}SELECT %zu, id, " STATE " FROM {table} WHERE {queue_is} " \
    "AND partition_key = ? AND {partition_bytes} = ? "                     \
    "AND " SKR_MESSENGER_UNFINISHED_UNINDEXED                              \
    " ORDER BY id LIMIT ?{union_close}"
enum { FIRST_ROWS_PARAMETERS = 5 };
_Static_assert(FIRST_ROWS_PARAMETERS *SKR_MOST_LONG_RUNS <= SKR_MOST_VALUES,
               "more than a statement takes");

// Parameters: redeliver timeout, queue, key, limit.
static const char row_by_row_sql[] =
    "SELECT {partition_text}, id, " STATE " FROM {table} WHERE {queue_is} "
    "AND partition_key > ? AND " SKR_MESSENGER_UNFINISHED_UNINDEXED
    " ORDER BY partition_key, id LIMIT ?";

// For 1, 2, 4, 8, 16, 32 and 64 of them.
static bool
fill_first_rows(struct skr_messenger *messenger)
{
    struct skr_text text = {0};
    bool ok = true;
    for (size_t i = 0, size = 1, filled = 0; ok && size <= SKR_MOST_LONG_RUNS;
         i++, size *= 2) {
        for (; filled < size; filled++)
            skr_text_add_format(&text, "%s" FIRST_ROWS,
                                filled == 0 ? "" : " UNION ALL ", filled);
        ok = !text.broken && skr_messenger_fill(messenger, text.bytes,
                                                &messenger->sql.first_rows[i]);
    }
    skr_text_fini(&text);
    return ok;
}

bool
skr_runs_fill(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, "{partition_heads}",
                              &messenger->sql.heads) &&
           skr_messenger_fill(messenger, "{partition_first_heads}",
                              &messenger->sql.first_heads) &&
           skr_messenger_fill(messenger, free_sql, &messenger->sql.free) &&
           skr_messenger_fill(messenger, row_by_row_sql,
                              &messenger->sql.row_by_row) &&
           fill_first_rows(messenger);
}

static enum skr_code
ask(struct skr_runs *runs, const char *sql, const struct skr_value *values,
    size_t count, skr_row_fn *each_row, struct skr_error *error)
{
    return skr_tx_run(skr_db_tx(runs->db),
                      &(struct skr_statement){.sql = sql,
                                              .values = values,
                                              .value_count = count,
                                              .each_row = each_row,
                                              .user = runs},
                      error);
}

// A row that is larger than all the room travels alone.
static bool
want(struct skr_runs *runs, int64_t row, int run, size_t size)
{
    bool has_room = runs->wanted_count < runs->most &&
                    (runs->wanted_count == 0 ||
                     runs->wanted_bytes + size <= runs->read->max_bytes);
    skr_messenger_note_sizes(runs->position, 1, size);
    if (!has_room)
        return false;
    runs->wanted[runs->wanted_count++] =
        (struct skr_run_row){.row = row, .run = run};
    runs->wanted_bytes += size;
    return true;
}

// What finds no room is where the next claim goes on.
static enum skr_code
keep_free(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_runs *runs = user;
    int64_t row = columns[0].integer;
    bool is_in_hand = skr_messenger_is_in_hand(runs->read, row);
    runs->is_held |= is_in_hand;
    if (runs->has_more_free)
        return SKR_OK;
    if (!is_in_hand && !want(runs, row, SKR_NO_RUN, (size_t)columns[1].integer))
        runs->has_more_free = true;
    else
        runs->free_cursor = row;
    runs->free_seen++;
    return SKR_OK;
}

// Rows that have no order.
static enum skr_code
find_free(struct skr_runs *runs, struct skr_error *error)
{
    size_t limit = runs->most - runs->wanted_count;
    const struct skr_value values[] = {
        skr_bind_text(runs->messenger->queue),
        skr_messenger_bind_cursor(runs->free_cursor),
        skr_bind_integer(runs->messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)limit),
    };
    runs->has_more_free = false;
    enum skr_code code = ask(runs, runs->messenger->sql.free, values,
                             SKR_COUNT_OF(values), keep_free, error);
    runs->has_more_free |= runs->free_seen == limit;
    if (!runs->has_more_free)
        runs->free_cursor = 0;
    return code;
}

static enum skr_code
keep_key(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    (void)count;
    struct skr_runs *runs = user;
    runs->keys_seen++;
    // Rows of '' have no order.
    if (columns[0].size == 0 || runs->count == runs->most_keys)
        return SKR_OK;
    const char *key =
        skr_arena_text(&runs->arena, columns[0].bytes, columns[0].size);
    if (key == NULL)
        return skr_fail_memory(error);
    runs->items[runs->count++] =
        (struct skr_run){.key = key, .key_size = columns[0].size};
    return SKR_OK;
}

// The next page of partitions, '' aside.
static enum skr_code
find_keys(struct skr_runs *runs, struct skr_error *error)
{
    size_t limit = runs->most_keys + 1;
    const struct skr_messenger *messenger = runs->messenger;
    const struct skr_position *position = runs->position;
    const struct skr_value queue = skr_bind_text(messenger->queue);
    const struct skr_value most = skr_bind_integer((int64_t)limit);
    const struct skr_value first[] = {queue, queue, most};
    const struct skr_value after[] = {
        queue,
        skr_bind_bytes(position->partition_cursor,
                       position->partition_cursor_size),
        queue,
        most,
    };
    bool is_first = position->partition_cursor_size == 0;
    enum skr_code code = skr_tx_run(
        skr_db_tx(runs->db),
        &(struct skr_statement){
            .sql = is_first ? messenger->sql.first_heads : messenger->sql.heads,
            .values = is_first ? first : after,
            .value_count = is_first ? SKR_COUNT_OF(first) : SKR_COUNT_OF(after),
            .is_planned_anew = true,
            .each_row = keep_key,
            .user = runs,
        },
        error);
    runs->is_last = runs->keys_seen < limit;
    return code;
}

// The next row of a partition. Columns: whether it is ready, its size.
static void
keep_row(struct skr_runs *runs, size_t number, int64_t row,
         const struct skr_value *columns)
{
    struct skr_run *run = &runs->items[number];
    bool is_ready = columns[0].integer != 0;
    runs->rows_seen++;
    if (skr_messenger_is_in_hand(runs->read, row))
        run->is_anothers = true;
    // What finds no room is not passed, nor are those behind it.
    if (run->is_anothers || run->has_ended || number > runs->room_ends)
        return;
    run->has_ended = !is_ready || run->length == MOST_OF_ONE ||
                     !want(runs, row, (int)number, (size_t)columns[1].integer);
    if (!run->has_ended)
        run->length++;
    else if (is_ready && run->length == 0)
        runs->room_ends = number;
}

// Those of one partition come in the order of their ids.
static enum skr_code
keep_first(const struct skr_value *columns, size_t count, void *user,
           struct skr_error *error)
{
    (void)count;
    (void)error;
    keep_row(user, (size_t)columns[0].integer, columns[1].integer, columns + 2);
    return SKR_OK;
}

// All the room, in even parts.
static int64_t
rows_of(const struct skr_runs *runs, size_t number)
{
    size_t room = runs->most - runs->wanted_count;
    size_t rows = room / runs->count + (number < room % runs->count);
    return (int64_t)(rows < MOST_OF_ONE ? rows : MOST_OF_ONE);
}

static enum skr_code
find_first_rows(struct skr_runs *runs, struct skr_error *error)
{
    const struct skr_messenger *messenger = runs->messenger;
    struct skr_value values[FIRST_ROWS_PARAMETERS * SKR_MOST_LONG_RUNS];
    size_t size = 1, place = 0;
    for (; size < runs->count; place++)
        size *= 2;
    for (size_t i = 0; i < size; i++) {
        // No partition is that of NULL.
        const struct skr_run *run = &runs->items[i];
        const struct skr_value key =
            i < runs->count ? skr_bind_bytes(run->key, run->key_size)
                            : skr_bind_text(NULL);
        const struct skr_value of_one[FIRST_ROWS_PARAMETERS] = {
            skr_bind_integer(messenger->redeliver_timeout_s),
            skr_bind_text(messenger->queue),
            key,
            key,
            skr_bind_integer(rows_of(runs, i)),
        };
        memcpy(values + i * FIRST_ROWS_PARAMETERS, of_one, sizeof(of_one));
    }
    return ask(runs, messenger->sql.first_rows[place], values,
               size * FIRST_ROWS_PARAMETERS, keep_first, error);
}

// The next page of partitions with their first rows.
static enum skr_code
find_by_partition(struct skr_runs *runs, size_t room, struct skr_error *error)
{
    runs->most_keys = room < SKR_MOST_LONG_RUNS ? room : SKR_MOST_LONG_RUNS;
    enum skr_code code = find_keys(runs, error);
    runs->room_ends = runs->count;
    if (code == SKR_OK && runs->count > 0)
        code = find_first_rows(runs, error);
    if (runs->count == SKR_MOST_LONG_RUNS && runs->rows_seen < room / SHORT)
        runs->position->pages_row_by_row = PAGES_ROW_BY_ROW;
    return code;
}

// Rows of one partition follow each other, unless the column takes several keys
// for the same.
static size_t
find_run(const struct skr_runs *runs, uint64_t hash,
         const struct skr_value *key)
{
    for (size_t i = runs->count; i-- > 0;) {
        const struct skr_run *run = &runs->items[i];
        if (run->hash == hash && run->key_size == key->size &&
            memcmp(run->key, key->bytes, key->size) == 0)
            return i;
    }
    return runs->count;
}

static enum skr_code
keep_next(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    struct skr_runs *runs = user;
    struct skr_hash hash =
        skr_hash_add(skr_hash_start(), columns[0].bytes, columns[0].size);
    size_t number = find_run(runs, hash.low, &columns[0]);
    if (number == runs->count) {
        enum skr_code code = keep_key(columns, count, user, error);
        if (code != SKR_OK || number == runs->count)
            return code;
        runs->items[number].hash = hash.low;
    } else {
        runs->keys_seen++;
    }
    keep_row(runs, number, columns[1].integer, columns + 2);
    return SKR_OK;
}

// What the page may have cut begins the next one: a row that commits late, with
// others behind it that another has, must be seen together with those.
static void
leave_last(struct skr_runs *runs)
{
    int last = (int)--runs->count;
    size_t kept = 0;
    for (size_t i = 0; i < runs->wanted_count; i++)
        if (runs->wanted[i].run != last)
            runs->wanted[kept++] = runs->wanted[i];
    runs->wanted_count = kept;
}

static enum skr_code
find_row_by_row(struct skr_runs *runs, size_t room, struct skr_error *error)
{
    struct skr_position *position = runs->position;
    const struct skr_value values[] = {
        skr_bind_integer(runs->messenger->redeliver_timeout_s),
        skr_bind_text(runs->messenger->queue),
        skr_bind_bytes(position->partition_cursor,
                       position->partition_cursor_size),
        skr_bind_integer((int64_t)room),
    };
    runs->most_keys = room;
    runs->room_ends = room;
    enum skr_code code = ask(runs, runs->messenger->sql.row_by_row, values,
                             SKR_COUNT_OF(values), keep_next, error);
    runs->is_last = runs->keys_seen < room;
    if (!runs->is_last && runs->count > 1)
        leave_last(runs);
    if (runs->room_ends > runs->count)
        runs->room_ends = runs->count;
    position->pages_row_by_row--;
    // They are long, or have no key.
    if (runs->count < room / SHORT)
        position->pages_row_by_row = 0;
    return code;
}

static enum skr_code
find_runs(struct skr_runs *runs, struct skr_error *error)
{
    const struct skr_position *position = runs->position;
    size_t room = runs->most - runs->wanted_count;
    bool is_row_by_row = position->pages_row_by_row > 0 &&
                         position->partition_cursor_size > 0 &&
                         room > SKR_MOST_LONG_RUNS;
    enum skr_code code = is_row_by_row ? find_row_by_row(runs, room, error)
                                       : find_by_partition(runs, room, error);
    runs->is_last = runs->is_last && runs->room_ends == runs->count;
    return code;
}

// While there is enough of both, partitions and rows without a key take turns.
enum skr_code
skr_runs_find(struct skr_runs *runs, struct skr_error *error)
{
    const struct skr_position *position = runs->position;
    bool begins_round = position->partition_cursor_size == 0;
    bool goes_first =
        (begins_round || position->has_more_free) && !position->free_had_turn;
    enum skr_code code = SKR_OK;
    if (goes_first)
        code = find_free(runs, error);
    if (code != SKR_OK || runs->wanted_count > runs->most / 2) {
        runs->free_had_turn = true;
        return code;
    }
    code = find_runs(runs, error);
    runs->free_had_turn = runs->count > 0 && runs->room_ends == 0;
    if (code == SKR_OK && !goes_first && position->has_more_free &&
        runs->wanted_count <= runs->most / 2)
        code = find_free(runs, error);
    return code;
}
