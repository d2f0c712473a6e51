// SPDX-License-Identifier: MIT
// What an owner does with claimed rows: renews their lease and gives them up.
// lease.c says why the time of a claim tells whose a row is.

#include "base/error.h"
#include "base/text.h"
#include "table/messenger/layout.h"

#include <string.h>

// Parameters: new lease, lease, ids.
static const char keep_sql[] = "UPDATE {table} SET delivered_at = ? "
                               "WHERE delivered_at = ? AND id IN ({ids})";
// Parameters: lease, ids.
static const char find_held_sql[] = "SELECT id FROM {table} WHERE "
                                    "delivered_at = ? AND id IN ({ids}) {lock}";
// Parameters: lease, ids.
static const char unmark_sql[] = "UPDATE {table} SET delivered_at = NULL "
                                 "WHERE delivered_at = ? AND id IN ({ids})";
// Parameters: headers, seconds, id, lease.
static const char retry_claimed_sql[] =
    "UPDATE {table} SET headers = ?, available_at = {now_plus}, "
    "delivered_at = NULL WHERE id = ? AND delivered_at = ?";

bool
skr_messenger_fill_keep(struct skr_messenger *messenger)
{
    return skr_messenger_fill_list(messenger, keep_sql, "",
                                   &messenger->sql.keep) &&
           skr_messenger_fill_list(messenger, find_held_sql, "{lock_skip}",
                                   &messenger->sql.find_held) &&
           skr_messenger_fill_list(messenger, unmark_sql, "",
                                   &messenger->sql.unmark) &&
           skr_messenger_fill(messenger, retry_claimed_sql,
                              &messenger->sql.retry_claimed);
}

static enum skr_code
renew(const struct skr_messenger *messenger, struct skr_tx tx,
      const int64_t *rows, size_t count, const struct skr_lease *lease,
      struct skr_lease *renewed, uint64_t *affected, struct skr_error *error)
{
    *affected = 0;
    enum skr_code code = skr_messenger_now(messenger, tx, renewed->time, error);
    if (code != SKR_OK)
        return code;
    return skr_messenger_run_list(
        tx,
        &(struct skr_list_run){
            .sql = &messenger->sql.keep,
            .first = {skr_bind_text(renewed->time), skr_bind_text(lease->time)},
            .first_count = 2,
            .rows = rows,
            .count = count,
            .affected = affected,
        },
        error);
}

struct held {
    int64_t *rows;
    size_t count;
};

static enum skr_code
note_held(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct held *held = user;
    held->rows[held->count++] = columns[0].integer;
    return SKR_OK;
}

// Asks which rows are still ours before it renews them: afterwards they could
// not be told from those that another has claimed in this very second.
static enum skr_code
renew_held(const struct skr_messenger *messenger, struct skr_db *db,
           struct held *held, const int64_t *rows, size_t count,
           const struct skr_lease *lease, struct skr_lease *renewed,
           struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    struct skr_tx tx = skr_db_tx(db);
    code = skr_messenger_run_list(tx,
                                  &(struct skr_list_run){
                                      .sql = &messenger->sql.find_held,
                                      .first = {skr_bind_text(lease->time)},
                                      .first_count = 1,
                                      .rows = rows,
                                      .count = count,
                                      .each_row = note_held,
                                      .user = held,
                                  },
                                  error);
    if (code == SKR_OK)
        code = renew(messenger, tx, held->rows, held->count, lease, renewed,
                     &affected, error);
    if (code == SKR_OK && affected != held->count)
        code = skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "leases changed while they were renewed");
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

static enum skr_code
keep_some(const struct skr_messenger *messenger, struct skr_db *db,
          int64_t *rows, size_t *count, const struct skr_lease *lease,
          struct skr_lease *renewed, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct held held = {
        .rows = skr_arena_take(&arena, *count * sizeof(held.rows[0])),
    };
    enum skr_code code = held.rows == NULL
                             ? skr_fail_memory(error)
                             : renew_held(messenger, db, &held, rows, *count,
                                          lease, renewed, error);
    if (code == SKR_OK) {
        memcpy(rows, held.rows, held.count * sizeof(rows[0]));
        *count = held.count;
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_keep(const struct skr_table *table, struct skr_db *db,
                   int64_t *rows, size_t *count, struct skr_lease *lease,
                   struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_lease renewed = {{0}};
    uint64_t affected = 0;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = renew(messenger, skr_db_tx(db), rows, *count, lease, &renewed,
                 &affected, error);
    if (code == SKR_OK && affected == *count) {
        code = skr_db_commit(db, error);
    } else {
        skr_db_rollback(db);
        if (code == SKR_OK)
            code =
                keep_some(messenger, db, rows, count, lease, &renewed, error);
    }
    if (code == SKR_OK)
        *lease = renewed;
    return code;
}

static enum skr_code
retry_claimed(const struct skr_messenger *messenger, struct skr_tx tx,
              struct skr_arena *arena, struct skr_batch_item *item,
              const struct skr_lease *lease, struct skr_error *error)
{
    struct skr_text json = {0};
    uint64_t affected = 0;
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
                              .affected = &affected,
                          },
                          error);
    }
    skr_text_fini(&json);
    item->lost = code == SKR_OK && affected == 0;
    return code;
}

static enum skr_code
unmark(const struct skr_messenger *messenger, struct skr_tx tx,
       const struct skr_batch *batch, const struct skr_lease *lease,
       uint64_t *lost, struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code =
        skr_messenger_run_state(tx,
                                &(struct skr_list_run){
                                    .sql = &messenger->sql.unmark,
                                    .first = {skr_bind_text(lease->time)},
                                    .first_count = 1,
                                    .affected = &affected,
                                },
                                batch, SKR_READ, error);
    uint64_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += batch->items[i].state == SKR_READ;
    *lost += count > affected ? count - affected : 0;
    return code;
}

static enum skr_code
release_all(const struct skr_messenger *messenger, struct skr_tx tx,
            struct skr_batch *batch, const struct skr_lease *lease,
            uint64_t *lost, struct skr_error *error)
{
    enum skr_code code = skr_messenger_run_state(
        tx, &(struct skr_list_run){.sql = &messenger->sql.remove}, batch,
        SKR_DONE, error);
    if (code == SKR_OK)
        code = unmark(messenger, tx, batch, lease, lost, error);
    struct skr_arena arena = {0};
    for (size_t i = 0; code == SKR_OK && i < batch->count; i++) {
        struct skr_batch_item *item = &batch->items[i];
        if (item->state != SKR_RETRY_LATER)
            continue;
        code = retry_claimed(messenger, tx, &arena, item, lease, error);
        *lost += item->lost;
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_release(const struct skr_table *table, struct skr_db *db,
                      struct skr_batch *batch, const struct skr_lease *lease,
                      uint64_t *lost, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    *lost = 0;
    code = release_all(skr_messenger_of(table), skr_db_tx(db), batch, lease,
                       lost, error);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}
