// SPDX-License-Identifier: MIT
// Claims by lease, for queues that several consumers share. The time of the
// claim in delivered_at tells whose it is: a lease lasts three seconds or more,
// so that the next owner's is always another.

#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

// Parameters: lease, ids.
static const char mark_sql[] =
    "UPDATE {table} SET delivered_at = ? WHERE id IN ({ids})";
// Parameters: new lease, lease, ids.
static const char keep_sql[] = "UPDATE {table} SET delivered_at = ? "
                               "WHERE delivered_at = ? AND id IN ({ids})";
// Parameters: lease, ids.
static const char unmark_sql[] = "UPDATE {table} SET delivered_at = NULL "
                                 "WHERE delivered_at = ? AND id IN ({ids})";
// Parameters: headers, id.
static const char raise_count_sql[] =
    "UPDATE {table} SET headers = ? WHERE id = ?";
// Parameters: headers, seconds, id, lease.
static const char retry_claimed_sql[] =
    "UPDATE {table} SET headers = ?, available_at = {now_plus}, "
    "delivered_at = NULL WHERE id = ? AND delivered_at = ?";

bool
skr_messenger_fill_lease(struct skr_messenger *messenger)
{
    return skr_messenger_fill_scan(messenger, "{lock_skip}",
                                   &messenger->sql.claim) &&
           skr_messenger_fill_list(messenger, mark_sql, "",
                                   &messenger->sql.mark) &&
           skr_messenger_fill_list(messenger, keep_sql, "",
                                   &messenger->sql.keep) &&
           skr_messenger_fill_list(messenger, unmark_sql, "",
                                   &messenger->sql.unmark) &&
           skr_messenger_fill(messenger, raise_count_sql,
                              &messenger->sql.raise_count) &&
           skr_messenger_fill(messenger, retry_claimed_sql,
                              &messenger->sql.retry_claimed);
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

enum skr_code
skr_messenger_claim(const struct skr_table *table, struct skr_db *db,
                    struct skr_position *position, const struct skr_read *read,
                    struct skr_batch *batch, struct skr_lease *lease,
                    struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    bool is_empty = true;
    enum skr_code code =
        peek(table, db, position, read, batch, &is_empty, error);
    if (code != SKR_OK || is_empty)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    struct skr_tx tx = skr_db_tx(db);
    struct skr_position moved = *position;
    struct skr_lease taken = {{0}};
    code = skr_messenger_scan(messenger, &messenger->sql.claim, tx, &moved,
                              read, batch, error);
    if (code == SKR_OK)
        code = skr_messenger_now(messenger, tx, taken.time, error);
    if (code == SKR_OK)
        code = mark_all(messenger, tx, batch, &taken, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    else
        skr_db_rollback(db);
    if (code != SKR_OK) {
        skr_batch_clear(batch);
        return code;
    }
    *position = moved;
    *lease = taken;
    return SKR_OK;
}

enum skr_code
skr_messenger_keep(const struct skr_table *table, struct skr_db *db,
                   const int64_t *rows, size_t count, struct skr_lease *lease,
                   uint64_t *kept, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    struct skr_tx tx = skr_db_tx(db);
    struct skr_lease renewed = {{0}};
    uint64_t affected = 0;
    code = skr_messenger_now(messenger, tx, renewed.time, error);
    if (code == SKR_OK)
        code = skr_messenger_run_list(tx,
                                      &(struct skr_list_run){
                                          .sql = &messenger->sql.keep,
                                          .first = {skr_bind_text(renewed.time),
                                                    skr_bind_text(lease->time)},
                                          .first_count = 2,
                                          .rows = rows,
                                          .count = count,
                                          .affected = &affected,
                                      },
                                      error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    else
        skr_db_rollback(db);
    if (code != SKR_OK)
        return code;
    *lease = renewed;
    *kept = affected;
    return SKR_OK;
}

static enum skr_code
retry_claimed(const struct skr_messenger *messenger, struct skr_tx tx,
              struct skr_arena *arena, const struct skr_batch_item *item,
              const struct skr_lease *lease, struct skr_error *error)
{
    struct skr_text json = {0};
    int64_t delay_s = 0;
    enum skr_code code =
        skr_messenger_mark_retry(arena, item, &json, &delay_s, error);
    if (code == SKR_OK) {
        const struct skr_value values[] = {
            skr_bind_bytes(json.bytes, json.size),
            skr_bind_integer(delay_s),
            skr_bind_integer(item->row),
            skr_bind_text(lease->time),
        };
        code = skr_tx_run(tx,
                          &(struct skr_statement){
                              .sql = messenger->sql.retry_claimed,
                              .values = values,
                              .value_count = SKR_COUNT_OF(values),
                          },
                          error);
    }
    skr_text_fini(&json);
    return code;
}

static enum skr_code
release_all(const struct skr_messenger *messenger, struct skr_tx tx,
            const struct skr_batch *batch, const struct skr_lease *lease,
            struct skr_error *error)
{
    enum skr_code code = skr_messenger_run_state(
        tx, &(struct skr_list_run){.sql = &messenger->sql.remove}, batch,
        SKR_DONE, error);
    if (code == SKR_OK)
        code =
            skr_messenger_run_state(tx,
                                    &(struct skr_list_run){
                                        .sql = &messenger->sql.unmark,
                                        .first = {skr_bind_text(lease->time)},
                                        .first_count = 1,
                                    },
                                    batch, SKR_READ, error);
    struct skr_arena arena = {0};
    for (size_t i = 0; code == SKR_OK && i < batch->count; i++)
        if (batch->items[i].state == SKR_RETRY_LATER)
            code = retry_claimed(messenger, tx, &arena, &batch->items[i], lease,
                                 error);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_release(const struct skr_table *table, struct skr_db *db,
                      const struct skr_batch *batch,
                      const struct skr_lease *lease, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = release_all(skr_messenger_of(table), skr_db_tx(db), batch, lease,
                       error);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}
