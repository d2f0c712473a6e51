// SPDX-License-Identifier: MIT
// Leases. The time of the claim in delivered_at, of one second's precision,
// tells whose a row is. That is enough because of two rules:
// - A row changes hands only when its owner gives it back, after which that
//   owner has no say in it, or when its lease has run out. A lease lasts three
//   seconds or more, so that the next owner's time is always a later one.
// - An owner's time moves on only together with the row's. When leases are
//   renewed the owner lets go of every row that was not: another may have
//   claimed it in the very second that the others now carry.

#include "base/clock.h"
#include "base/error.h"
#include "store/messenger/layout.h"

#include <stdlib.h>

// Parameters: new lease, lease, ids.
static const char renew_sql[] = "UPDATE {table}{by_primary_key} "
                                "SET delivered_at = ? "
                                "WHERE delivered_at = ? AND id IN ({ids})";
// Parameters: lease, ids.
static const char find_leased_sql[] =
    "SELECT id FROM {table}{by_primary_key} "
    "WHERE delivered_at = ? AND id IN ({ids}) ORDER BY id {lock_skip}";

bool
skr_messenger_fill_lease(struct skr_messenger *messenger)
{
    return skr_messenger_fill_list(messenger, renew_sql,
                                   &messenger->sql.renew) &&
           skr_messenger_fill_list(messenger, find_leased_sql,
                                   &messenger->sql.find_leased);
}

struct renewal {
    const struct skr_messenger *messenger;
    struct skr_batch *batch;
    struct skr_lease renewed;
};

static bool
is_ours(const struct skr_batch_item *item)
{
    return !item->lost;
}

// False in *is_whole: some rows are not ours any more.
static enum skr_code
write_lease(struct renewal *renewal, struct skr_tx tx, bool *is_whole,
            struct skr_error *error)
{
    const struct skr_messenger *messenger = renewal->messenger;
    uint64_t affected = 0, wanted = 0;
    enum skr_code code =
        skr_messenger_now(messenger, tx, renewal->renewed.time, error);
    if (code != SKR_OK)
        return code;
    const struct skr_list_run run = {
        .sql = &messenger->sql.renew,
        .first = {skr_bind_text(renewal->renewed.time),
                  skr_bind_text(renewal->batch->lease.time)},
        .first_count = 2,
        .affected = &affected,
    };
    code =
        skr_list_run_items(tx, &run, renewal->batch, is_ours, &wanted, error);
    *is_whole = affected == wanted;
    return code;
}

static enum skr_code
mark_ours(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_batch *batch = user;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].row == columns[0].integer)
            batch->items[i].lost = false;
    return SKR_OK;
}

// Asks which rows are still ours before it renews them: afterwards they could
// not be told from those that another has claimed in this very second.
static enum skr_code
find_lost(struct renewal *renewal, struct skr_tx tx, struct skr_error *error)
{
    struct skr_batch *batch = renewal->batch;
    int64_t *rows = calloc(batch->count + 1, sizeof(*rows));
    if (rows == NULL)
        return skr_fail_memory(error);
    struct skr_list_run run = {
        .sql = &renewal->messenger->sql.find_leased,
        .first = {skr_bind_text(batch->lease.time)},
        .first_count = 1,
        .rows = rows,
        .each_row = mark_ours,
        .user = batch,
    };
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->items[i].lost)
            rows[run.count++] = batch->items[i].row;
        batch->items[i].lost = true;
    }
    enum skr_code code = skr_list_run(tx, &run, error);
    if (code != SKR_OK)
        // Nothing is known, and nothing was renewed.
        for (size_t i = 0; i < run.count; i++) {
            const struct skr_value row = skr_bind_integer(rows[i]);
            (void)mark_ours(&row, 1, batch, NULL);
        }
    free(rows);
    return code;
}

static enum skr_code
renew(struct renewal *renewal, struct skr_db *db, bool asks_first,
      bool *is_whole, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    struct skr_tx tx = skr_db_tx(db);
    if (asks_first)
        code = find_lost(renewal, tx, error);
    if (code == SKR_OK)
        code = write_lease(renewal, tx, is_whole, error);
    if (code == SKR_OK && *is_whole)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

static enum skr_code
renew_once(struct renewal *renewal, struct skr_db *db, struct skr_error *error)
{
    bool is_whole = false;
    enum skr_code code = renew(renewal, db, false, &is_whole, error);
    if (code == SKR_OK && !is_whole)
        code = renew(renewal, db, true, &is_whole, error);
    if (code == SKR_OK && !is_whole)
        return skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                        "leases changed while they were renewed");
    return code;
}

enum skr_code
skr_messenger_renew(const struct skr_store *table, struct skr_db *db,
                    struct skr_batch *batch, struct skr_error *error)
{
    struct renewal renewal = {.messenger = skr_messenger_of(table),
                              .batch = batch};
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    struct skr_error failure = {0};
    if (batch->claim != SKR_CLAIM_LEASED)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the batch is not leased");
    enum skr_code code;
    do
        code = renew_once(&renewal, db, &failure);
    while (code != SKR_OK &&
           skr_messenger_may_try_again(&tries, code, &failure));
    if (code == SKR_OK)
        batch->lease = renewal.renewed;
    else if (error != NULL)
        *error = failure;
    return code;
}
