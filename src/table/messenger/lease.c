// SPDX-License-Identifier: MIT
// Claims by lease, for queues that several consumers share. The time of the
// claim in delivered_at, of one second's precision, tells whose a row is. That
// is enough because of two rules:
// - A row changes hands only when its owner gives it back, after which he has
//   no say in it, or when its lease has run out. A lease lasts three seconds or
//   more, so that the next owner's time is always a later one.
// - An owner's time moves on only together with the row's. When leases are
//   renewed he lets go of every row that was not: another may have claimed it
//   in the very second that the others now carry.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

// Parameters: lease, ids.
static const char mark_sql[] =
    "UPDATE {table} SET delivered_at = ? WHERE id IN ({ids})";
// By the index on the times of claims: few have run out, however many rows
// wait. The oldest first.
// Parameters: queue, redeliver timeout.
static const char find_expired_sql[] =
    "SELECT id FROM {table} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_EXPIRED " AND " SKR_MESSENGER_DUE
    " AND NOT " SKR_MESSENGER_PHP " ORDER BY delivered_at LIMIT 1 {lock}";
// Parameters: headers, id.
static const char raise_count_sql[] =
    "UPDATE {table} SET headers = ? WHERE id = ?";

enum { MOST_EXPIRED_MS = 5000 };

bool
skr_messenger_fill_lease(struct skr_messenger *messenger)
{
    return skr_messenger_fill_scan(messenger, "{lock_skip}",
                                   &messenger->sql.claim) &&
           skr_messenger_fill_lock(messenger, find_expired_sql, "",
                                   &messenger->sql.peek_expired) &&
           skr_messenger_fill_lock(messenger, find_expired_sql, "{lock_skip}",
                                   &messenger->sql.find_expired) &&
           skr_messenger_fill_list(messenger, mark_sql, "",
                                   &messenger->sql.mark) &&
           skr_messenger_fill(messenger, raise_count_sql,
                              &messenger->sql.raise_count) &&
           skr_messenger_fill_keep(messenger);
}

// Counted at the claim, not at a failure: a consumer that dies leaves no other
// trace, and a message that kills its consumer must still run out of attempts.
static enum skr_code
raise_count(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_arena *arena, struct skr_batch_item *item,
            struct skr_error *error)
{
    struct skr_envelope *envelope = &item->envelope;
    // Headers that cannot be parsed have no place for a count.
    if (envelope->headers.count == 0)
        return SKR_OK;
    struct skr_error reason = {0};
    skr_fail(&reason, SKR_TIMEOUT, SKR_TRY_AGAIN,
             "the consumer that had it did not settle it in time");
    struct skr_text json = {0};
    enum skr_code code = skr_failure_mark_retry(
        arena, &envelope->headers, envelope->retry_count + 1, &reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(envelope->headers.items,
                                 envelope->headers.count, &json, error);
    if (code == SKR_OK) {
        const struct skr_value values[] = {
            skr_bind_bytes(json.bytes, json.size),
            skr_bind_integer(item->row),
        };
        code = skr_tx_run(tx,
                          &(struct skr_statement){
                              .sql = messenger->sql.raise_count,
                              .values = values,
                              .value_count = SKR_COUNT_OF(values),
                          },
                          error);
    }
    skr_text_fini(&json);
    if (code == SKR_OK)
        envelope->retry_count++;
    return code;
}

// Every item of the batch, whatever its state.
static enum skr_code
mark_all(const struct skr_messenger *messenger, struct skr_tx tx,
         struct skr_batch *batch, const struct skr_lease *lease,
         struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = &messenger->sql.mark,
        .first = {skr_bind_text(lease->time)},
        .first_count = 1,
    };
    enum skr_code code =
        skr_messenger_run_state(tx, &run, batch, SKR_READ, error);
    if (code == SKR_OK)
        code = skr_messenger_run_state(tx, &run, batch, SKR_HOPELESS, error);
    for (size_t i = 0; code == SKR_OK && i < batch->count; i++)
        if (batch->items[i].redelivered)
            code = raise_count(messenger, tx, &batch->arena, &batch->items[i],
                               error);
    return code;
}

// Looks without a lock first: consumers with nothing to do write nothing.
static enum skr_code
peek(const struct skr_table *table, struct skr_db *db,
     struct skr_position *position, const struct skr_read *read,
     struct skr_batch *batch, bool *is_empty, struct skr_error *error)
{
    struct skr_position looked = *position;
    struct skr_read one = *read;
    one.max_rows = 1;
    enum skr_code code =
        skr_messenger_read(table, db, &looked, &one, batch, error);
    if (code != SKR_OK)
        return code;
    *is_empty = batch->count == 0;
    if (*is_empty)
        *position = looked;
    skr_batch_clear(batch);
    return SKR_OK;
}

// Marks what was found in the transaction under way, and commits; when that,
// or the finding, has failed, nothing is claimed.
static enum skr_code
end_claim(const struct skr_messenger *messenger, struct skr_db *db,
          enum skr_code code, struct skr_batch *batch, struct skr_lease *lease,
          struct skr_error *error)
{
    struct skr_tx tx = skr_db_tx(db);
    struct skr_lease taken = {{0}};
    if (code == SKR_OK)
        code = skr_messenger_now(messenger, tx, taken.time, error);
    if (code == SKR_OK)
        code = mark_all(messenger, tx, batch, &taken, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    else
        skr_db_rollback(db);
    if (code == SKR_OK)
        *lease = taken;
    else
        skr_batch_clear(batch);
    return code;
}

static enum skr_code
find_expired(const struct skr_messenger *messenger, struct skr_tx tx,
             const char *sql, int64_t *row, bool *found,
             struct skr_error *error)
{
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        skr_bind_integer(messenger->redeliver_timeout_s),
    };
    struct skr_arena arena = {0};
    struct skr_value column = {.kind = SKR_NULL};
    enum skr_code code =
        skr_tx_fetch_one(tx,
                         &(struct skr_statement){
                             .sql = sql,
                             .values = values,
                             .value_count = SKR_COUNT_OF(values),
                         },
                         &arena, &column, 1, found, error);
    *row = column.integer;
    skr_arena_fini(&arena);
    return code;
}

struct taking {
    const struct skr_messenger *messenger;
    const struct skr_position *position;
    struct skr_batch *batch;
};

static enum skr_code
take(const struct skr_value *columns, size_t count, void *user,
     struct skr_error *error)
{
    (void)count;
    const struct taking *taking = user;
    return skr_messenger_take_row(taking->messenger,
                                  taking->position->id_namespace, columns,
                                  taking->batch, error);
}

// One row whose lease has run out. Such rows are given out one at a time
// anyway: each may be what killed its owner.
static enum skr_code
claim_expired(const struct skr_messenger *messenger, struct skr_db *db,
              const struct skr_position *position, struct skr_batch *batch,
              struct skr_lease *lease, struct skr_error *error)
{
    int64_t row = 0;
    bool found = false;
    struct skr_tx tx = skr_db_tx(db);
    enum skr_code code = find_expired(
        messenger, tx, messenger->sql.peek_expired, &row, &found, error);
    if (code != SKR_OK || !found)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    code = find_expired(messenger, tx, messenger->sql.find_expired, &row,
                        &found, error);
    if (code == SKR_OK && found)
        code = skr_messenger_run_list(
            tx,
            &(struct skr_list_run){
                .sql = &messenger->sql.claim.by_id,
                .rows = &row,
                .count = 1,
                .each_row = take,
                .user = &(struct taking){messenger, position, batch},
            },
            error);
    return end_claim(messenger, db, code, batch, lease, error);
}

static int64_t
expired_interval_ms(const struct skr_messenger *messenger)
{
    int64_t interval_ms = (int64_t)messenger->redeliver_timeout_s * 1000 / 4;
    return interval_ms < MOST_EXPIRED_MS ? interval_ms : MOST_EXPIRED_MS;
}

enum skr_code
skr_messenger_claim(const struct skr_table *table, struct skr_db *db,
                    struct skr_position *position, const struct skr_read *read,
                    struct skr_batch *batch, struct skr_lease *lease,
                    struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    int64_t now_ms = skr_clock_ms();
    bool is_empty = true;
    enum skr_code code = SKR_OK;
    if (position->next_expired_ms <= now_ms) {
        code = claim_expired(messenger, db, position, batch, lease, error);
        if (code != SKR_OK || batch->count > 0)
            return code;
        position->next_expired_ms = now_ms + expired_interval_ms(messenger);
    }
    code = peek(table, db, position, read, batch, &is_empty, error);
    if (code != SKR_OK || is_empty)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_CLAIM, error);
    if (code != SKR_OK)
        return code;
    struct skr_position moved = *position;
    code = skr_messenger_scan(messenger, &messenger->sql.claim, skr_db_tx(db),
                              &moved, read, batch, error);
    code = end_claim(messenger, db, code, batch, lease, error);
    if (code == SKR_OK)
        *position = moved;
    return code;
}
