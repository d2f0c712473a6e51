// SPDX-License-Identifier: MIT
// Ordered queues that several relays share by row locks. Whoever has locked the
// head of a partition, the least id among all of its unfinished rows, has the
// partition; the rows behind it are then read without a lock, and nobody else
// gets to them. A head that is locked, or may not be sent yet, is passed over
// with its whole partition.
//
// Heads are found page by page, in the order of their keys and around again:
// the index leads from one partition to the next, however long they are.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "table/messenger/ordered.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_HEADS = SKR_MOST_PARTITIONS,
    MOST_FREE = 192,  // rows without a key; both fit one statement
    LEAST_PAUSE_MS = 10,
    LONGEST_PAUSE_MS = 1000,
    PAUSE = 20,  // times as long as it took to find nothing
};

// Parameters: queue, from id, redeliver timeout, limit.
static const char free_sql[] =
    "SELECT id FROM {table} WHERE {queue_is} AND partition_key = '' "
    "AND id > ? AND " SKR_MESSENGER_READY " ORDER BY id LIMIT ?";
// Parameters: queue, redeliver timeout, ids.
static const char lock_sql[] =
    "SELECT " SKR_MESSENGER_COLUMNS ", 1, partition_key "
    "FROM {table}{by_primary_key} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_READY " AND id IN ({ids}) ORDER BY id {lock_skip}";

bool
skr_messenger_fill_runs(struct skr_messenger *messenger)
{
    return !messenger->is_ordered ||
           (skr_messenger_fill(messenger, "{partition_heads}",
                               &messenger->sql.heads) &&
            skr_messenger_fill(messenger, free_sql, &messenger->sql.free) &&
            skr_messenger_fill_list(messenger, lock_sql,
                                    &messenger->sql.lock_heads));
}

struct claiming {
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_position *position;
    const struct skr_read *read;
    struct skr_batch *batch;
    int64_t rows[MOST_FREE + MOST_HEADS];  // to lock
    size_t count;
    size_t seen;  // by the statement under way
};

static enum skr_code
keep_free(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct claiming *claiming = user;
    claiming->seen++;
    claiming->rows[claiming->count++] = columns[0].integer;
    claiming->position->free_cursor = columns[0].integer;
    return SKR_OK;
}

static enum skr_code
keep_head(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    struct claiming *claiming = user;
    struct skr_position *position = claiming->position;
    claiming->seen++;
    claiming->rows[claiming->count++] = columns[1].integer;
    if (columns[0].size >= sizeof(position->partition_cursor))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table %s: a partition key is too long",
                        claiming->messenger->name);
    memcpy(position->partition_cursor, columns[0].bytes, columns[0].size);
    position->partition_cursor[columns[0].size] = '\0';
    return SKR_OK;
}

static enum skr_code
find(struct claiming *claiming, const char *sql, const struct skr_value *values,
     size_t count, skr_row_fn *each_row, struct skr_error *error)
{
    claiming->seen = 0;
    return skr_tx_run(skr_db_tx(claiming->db),
                      &(struct skr_statement){.sql = sql,
                                              .values = values,
                                              .value_count = count,
                                              .each_row = each_row,
                                              .user = claiming},
                      error);
}

// Rows that have no order.
static enum skr_code
find_free(struct claiming *claiming, size_t limit, struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    const struct skr_value values[] = {
        skr_bind_text(claiming->messenger->queue),
        skr_messenger_bind_cursor(position->free_cursor),
        skr_bind_integer(claiming->messenger->redeliver_timeout_s),
        skr_bind_integer((int64_t)limit),
    };
    enum skr_code code = find(claiming, claiming->messenger->sql.free, values,
                              SKR_COUNT_OF(values), keep_free, error);
    if (code == SKR_OK && claiming->seen < limit)
        position->free_cursor = 0;
    return code;
}

// The next page of heads. *is_last: the round is over.
static enum skr_code
find_heads(struct claiming *claiming, size_t limit, bool *is_last,
           struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    char from[SKR_POSITION_KEY_SIZE];
    memcpy(from, position->partition_cursor, sizeof(from));
    const struct skr_value queue = skr_bind_text(claiming->messenger->queue);
    const struct skr_value values[] = {queue, skr_bind_text(from), queue,
                                       skr_bind_integer((int64_t)limit)};
    enum skr_code code = find(claiming, claiming->messenger->sql.heads, values,
                              SKR_COUNT_OF(values), keep_head, error);
    *is_last = claiming->seen < limit;
    if (*is_last)
        position->partition_cursor[0] = '\0';
    return code;
}

static enum skr_code
take_locked(const struct skr_value *columns, size_t count, void *user,
            struct skr_error *error)
{
    (void)count;
    struct claiming *claiming = user;
    struct skr_batch *batch = claiming->batch;
    size_t size =
        columns[SKR_COLUMN_BODY].size + columns[SKR_COLUMN_HEADERS].size;
    skr_messenger_note_sizes(claiming->position, 1, size);
    // What finds no room stays locked until the end of the claim.
    if (batch->count == batch->capacity ||
        batch->count == claiming->read->max_rows ||
        (batch->count > 0 && size > skr_messenger_room(claiming->read, batch)))
        return SKR_OK;
    return skr_messenger_take_row(claiming->messenger,
                                  claiming->position->id_namespace, columns,
                                  batch, error);
}

static enum skr_code
lock_rows(struct claiming *claiming, struct skr_error *error)
{
    const struct skr_messenger *messenger = claiming->messenger;
    qsort(claiming->rows, claiming->count, sizeof(claiming->rows[0]),
          skr_compare_rows);
    const struct skr_list_run run = {
        .sql = &messenger->sql.lock_heads,
        .first = {skr_bind_text(messenger->queue),
                  skr_bind_integer(messenger->redeliver_timeout_s)},
        .first_count = 2,
        .rows = claiming->rows,
        .count = claiming->count,
        .each_row = take_locked,
        .user = claiming,
    };
    return skr_list_run(skr_db_tx(claiming->db), &run, error);
}

// What lies behind the heads that are ours.
static enum skr_code
read_behind(struct claiming *claiming, struct skr_error *error)
{
    struct skr_batch *batch = claiming->batch;
    struct skr_partition_read partitions[MOST_HEADS];
    size_t count = 0;
    for (size_t i = 0; i < batch->count && count < MOST_HEADS; i++)
        if (batch->items[i].partition_key[0] != '\0')
            partitions[count++] = (struct skr_partition_read){
                .key = batch->items[i].partition_key};
    if (count == 0 || batch->count >= claiming->read->max_rows)
        return SKR_OK;
    // The heads are here already.
    struct skr_read read = *claiming->read;
    read.in_hand_count = 0;
    read.done = claiming->rows;
    read.done_count = claiming->count;
    return skr_ordered_read(claiming->messenger, skr_db_tx(claiming->db),
                            claiming->position, &read, INT64_MAX, 1, partitions,
                            count, batch, error);
}

static enum skr_code
lock_and_read(struct claiming *claiming, struct skr_error *error)
{
    struct skr_batch *batch = claiming->batch;
    enum skr_code code = skr_db_begin(claiming->db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    code = lock_rows(claiming, error);
    if (code == SKR_OK && batch->count > 0)
        code =
            claiming->read->only == NULL
                ? read_behind(claiming, error)
                : skr_ordered_keep_head(claiming->messenger,
                                        skr_db_tx(claiming->db), batch, error);
    if (code == SKR_OK && batch->count > 0) {
        batch->claim = SKR_CLAIM_LOCKED;
        claiming->db->found_rows = true;
        return SKR_OK;
    }
    skr_db_rollback(claiming->db);
    skr_batch_clear(batch);
    return code;
}

// Where a whole round found nothing, one small statement tells whether another
// is worth while: there is a new row, or the time of one has come. What others
// had is looked at again now and then.
static enum skr_code
begin_round(struct claiming *claiming, int64_t now_ms, bool *is_worth,
            struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    struct skr_tx tx = skr_db_tx(claiming->db);
    int64_t last = 0;
    *is_worth = true;
    position->round_ms = now_ms;
    position->round_found = false;
    if (!position->is_quiet)
        return SKR_OK;
    enum skr_code code = SKR_OK;
    if (position->due_mark[0] == '\0')
        code = skr_messenger_now(claiming->messenger, tx, position->due_mark,
                                 error);
    if (code == SKR_OK)
        code = skr_messenger_ask_rest(claiming->messenger, tx, now_ms, position,
                                      &last, error);
    bool is_due = position->next_due_ms > 0 && position->next_due_ms <= now_ms;
    *is_worth =
        is_due || last > position->cursor || position->next_held_ms <= now_ms;
    if (code != SKR_OK || !*is_worth)
        return code;
    position->cursor = last;
    return skr_messenger_now(claiming->messenger, tx, position->due_mark,
                             error);
}

static void
end_round(struct skr_position *position)
{
    int64_t now_ms = skr_clock_ms();
    int64_t pause_ms = (now_ms - position->round_ms) * PAUSE;
    pause_ms = pause_ms < LEAST_PAUSE_MS     ? LEAST_PAUSE_MS
               : pause_ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS
                                             : pause_ms;
    // Before it is quiet one more round is made, which begins with a look at
    // what there is.
    position->has_more = position->round_found || !position->is_quiet;
    position->is_quiet = !position->round_found;
    position->held_from = 1;
    position->next_held_ms = now_ms + pause_ms;
}

static enum skr_code
claim_page(struct claiming *claiming, struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    const struct skr_read *read = claiming->read;
    size_t room = skr_messenger_rows_for(position, read->max_bytes);
    room = room < read->max_rows ? room : read->max_rows;
    room = room < 1 ? 1 : room;
    bool is_last = false;
    enum skr_code code = SKR_OK;
    if (position->partition_cursor[0] == '\0')
        code = find_free(claiming, room < MOST_FREE ? room : MOST_FREE, error);
    if (code == SKR_OK)
        code = find_heads(claiming, room < MOST_HEADS ? room : MOST_HEADS,
                          &is_last, error);
    if (code == SKR_OK && claiming->count > 0)
        code = lock_and_read(claiming, error);
    if (code != SKR_OK)
        return code;
    position->round_found = position->round_found || claiming->batch->count > 0;
    position->has_more = true;
    if (is_last)
        end_round(position);
    return SKR_OK;
}

static enum skr_code
claim_once(struct claiming *claiming, struct skr_error *error)
{
    struct skr_position *position = claiming->position;
    int64_t now_ms = skr_clock_ms();
    bool is_worth = true;
    enum skr_code code = SKR_OK;
    claiming->count = 0;
    if (claiming->read->only != NULL) {
        claiming->rows[claiming->count++] = *claiming->read->only;
        return lock_and_read(claiming, error);
    }
    if (position->partition_cursor[0] == '\0')
        code = begin_round(claiming, now_ms, &is_worth, error);
    if (code != SKR_OK)
        return code;
    if (is_worth)
        return claim_page(claiming, error);
    position->has_more = false;
    return SKR_OK;
}

enum skr_code
skr_messenger_hold_runs(const struct skr_table *table, struct skr_db *db,
                        struct skr_position *position,
                        const struct skr_read *read, struct skr_batch *batch,
                        struct skr_error *error)
{
    struct claiming claiming = {.messenger = skr_messenger_of(table),
                                .db = db,
                                .position = position,
                                .read = read,
                                .batch = batch};
    if (claiming.messenger->sql.lock_skip[0] == '\0')
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "this database cannot lock single rows; use "
                        "`claim: exclusive`");
    // It would wait for its own transactions.
    if (claiming.messenger->by_commits)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "row locks are transactions that hold back "
                        "commit_order themselves; use `claim: exclusive` or "
                        "`claim: lease`");
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct skr_error failure = {0};
    enum skr_code code =
        skr_messenger_learn(claiming.messenger, db, position, &failure);
    while (code == SKR_OK) {
        code = claim_once(&claiming, &failure);
        if (code == SKR_OK ||
            !skr_messenger_may_try_again(&tries, code, &failure))
            break;
        code = SKR_OK;
    }
    if (code != SKR_OK && error != NULL)
        *error = failure;
    return code;
}
