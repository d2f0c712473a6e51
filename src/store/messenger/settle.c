// SPDX-License-Identifier: MIT
// Recording what became of rows, whichever way they are held.
//
// A row that is done may go, even when another relay has it by now; in an
// ordered queue that is divided only its owner may say so, too. Everything else
// is said of rows that are ours alone: a relay that claims nothing has the
// queue to itself, a lease on a row is asked for in the statement that writes,
// and leases on shards before it, in its transaction.
//
// Each result has a second form, for a row that the first is refused for: it
// writes as little as tells the result, and sends nothing of the row's
// content, so that a row of any size can be settled by it.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/apart.h"
#include "store/identity.h"
#include "store/messenger/layout.h"

#include <string.h>

struct settling {
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_tx tx;
    struct skr_batch *batch;
    struct skr_arena arena;
    bool is_leased;
    bool is_unsure;  // whether the rows are still those that were read
};

// Runs a statement about one row, or that which follows it. The last value is
// the lease, which is bound where the rows are leased.
static enum skr_code
run_fenced(const struct settling *settling, enum skr_messenger_sql sql,
           struct skr_value *values, size_t count, uint64_t *affected,
           struct skr_error *error)
{
    values[count - 1] = skr_bind_text(settling->batch->lease.time);
    return skr_tx_run(
        settling->tx,
        &(struct skr_statement){
            .sql = skr_messenger_sql(settling->messenger,
                                     settling->is_leased ? sql + 1 : sql),
            .values = values,
            .value_count = settling->is_leased ? count : count - 1,
            .affected = affected,
        },
        error);
}

// What a retry makes of the headers of its row.
static enum skr_code
mark_retry(struct skr_arena *arena, const struct skr_batch_item *item,
           struct skr_text *json, struct skr_error *error)
{
    if (item->envelope.headers.count == 0) {
        // What could not be parsed has no place for a count and stays as it is.
        skr_text_add(json, item->raw_headers, item->raw_headers_size);
        return json->broken ? skr_fail_memory(error) : SKR_OK;
    }
    struct skr_headers headers;
    enum skr_code code =
        skr_headers_copy(arena, &item->envelope.headers, &headers, error);
    if (code == SKR_OK)
        code = skr_failure_mark_retry(arena, &headers,
                                      item->envelope.retry_count +
                                          (item->is_not_counted ? 0 : 1),
                                      &item->reason, error);
    if (code == SKR_OK)
        code = skr_headers_write(headers.items, headers.count, json, error);
    return code;
}

static enum skr_code
retry_later(struct settling *settling, struct skr_batch_item *item,
            struct skr_error *error)
{
    bool is_least = item->write == SKR_WRITE_LEAST;
    struct skr_text json = {0};
    uint64_t affected = 0;
    int64_t delay_ms = item->delay_ms;
    enum skr_code code =
        is_least ? SKR_OK : mark_retry(&settling->arena, item, &json, error);
    if (code == SKR_OK) {
        struct skr_value values[] = {
            skr_bind_bytes(json.bytes, json.size), skr_bind_integer(delay_ms),
            skr_bind_integer(delay_ms + 1000),     skr_bind_integer(delay_ms),
            skr_bind_integer(item->row),           {.kind = SKR_NULL},
        };
        size_t first = is_least ? 1 : 0;
        code = run_fenced(
            settling, is_least ? SKR_SQL_RETRY_LEAST : SKR_SQL_RETRY,
            values + first, SKR_COUNT_OF(values) - first, &affected, error);
    }
    skr_text_fini(&json);
    item->lost = code == SKR_OK && settling->is_leased && affected == 0;
    return code;
}

// With the reason in its headers, and the count of retries as it was.
static enum skr_code
block(struct settling *settling, struct skr_batch_item *item,
      struct skr_error *error)
{
    const struct skr_messenger *messenger = settling->messenger;
    bool is_least = item->write == SKR_WRITE_LEAST;
    struct skr_text json = {0};
    item->is_not_counted = true;
    enum skr_code code =
        is_least ? SKR_OK : mark_retry(&settling->arena, item, &json, error);
    const struct skr_value values[] = {skr_bind_bytes(json.bytes, json.size),
                                       skr_bind_integer(item->row)};
    size_t first = is_least ? 1 : 0;
    if (code == SKR_OK)
        code = skr_tx_run(
            settling->tx,
            &(struct skr_statement){
                .sql = is_least
                           ? skr_messenger_sql(messenger, SKR_SQL_BLOCK_LEAST)
                           : skr_messenger_sql(messenger, SKR_SQL_BLOCK),
                .values = values + first,
                .value_count = SKR_COUNT_OF(values) - first,
            },
            error);
    skr_text_fini(&json);
    return code;
}

// The id that was derived for a row goes with it: in the failed table it would
// come out as another.
static enum skr_code
keep_id(struct skr_arena *arena, const struct skr_envelope *envelope,
        struct skr_headers *headers, struct skr_error *error)
{
    if (!envelope->has_id || skr_headers_get(headers, SKR_HEADER_ID) != NULL)
        return SKR_OK;
    char id[SKR_ID_TEXT_SIZE];
    skr_id_format(envelope->message.id, id);
    if (!skr_headers_add(arena, headers, SKR_HEADER_ID,
                         skr_arena_text(arena, id, strlen(id))))
        return skr_fail_memory(error);
    return SKR_OK;
}

// A row that another process has removed meanwhile is not ours to fail. Whether
// it was there is known when our own delete has removed it; if that did not,
// the copy was of a row that is gone, and everything is rolled back and done
// again.
static enum skr_code
copy_and_remove(const struct settling *settling, struct skr_batch_item *item,
                enum skr_messenger_sql sql, const struct skr_text *json,
                const char *queue, struct skr_error *error)
{
    const struct skr_messenger *messenger = settling->messenger;
    struct skr_value copy[] = {
        skr_bind_bytes(json->bytes, json->size),
        skr_bind_text(queue),
        skr_bind_integer(item->row),
        {.kind = SKR_NULL},
    };
    struct skr_value row[] = {skr_bind_integer(item->row), {.kind = SKR_NULL}};
    size_t first = sql == SKR_SQL_COPY_AS_IS ? 1 : 0;
    uint64_t copied = 0, removed = 0;
    enum skr_code code = run_fenced(settling, sql, copy + first,
                                    SKR_COUNT_OF(copy) - first, &copied, error);
    item->lost = code == SKR_OK && settling->is_leased && copied == 0;
    if (code != SKR_OK || copied == 0)
        return code;
    code = run_fenced(settling, SKR_SQL_REMOVE_FAILED, row, SKR_COUNT_OF(row),
                      &removed, error);
    if (code != SKR_OK || removed == 1)
        return code;
    return skr_fail(error, SKR_CONFLICT, SKR_TRY_AGAIN,
                    "row %lld of %s was taken by another connection",
                    (long long)item->row, messenger->table.name);
}

static enum skr_code
run_plain(const struct settling *settling, const char *sql,
          struct skr_error *error)
{
    return skr_tx_run(settling->tx, &(struct skr_statement){.sql = sql}, error);
}

// The server adds to the headers what failing adds to them. Those that are no
// JSON are copied as they are, and so are those that MySQL finds too large with
// the addition. On PostgreSQL a statement that failed would end the
// transaction.
static enum skr_code
copy_inside(struct settling *settling, struct skr_batch_item *item,
            struct skr_failed_message *message, struct skr_error *error)
{
    const struct skr_messenger *messenger = settling->messenger;
    struct skr_text json = {0};
    struct skr_error refusal = {.remedy = SKR_GIVE_UP};
    enum skr_code code = SKR_REFUSED;
    if (message->headers.count > 0) {
        code = run_plain(settling, "SAVEPOINT skr_copy", &refusal);
        if (code == SKR_OK)
            code = skr_messenger_list_added(messenger, &settling->arena,
                                            message, &json, &refusal);
        if (code == SKR_OK)
            code = copy_and_remove(settling, item, SKR_SQL_COPY_MERGED, &json,
                                   messenger->failed_aside, &refusal);
        if (error != NULL)
            *error = refusal;
    }
    if (code != SKR_OK && refusal.remedy == SKR_GIVE_UP) {
        code =
            message->headers.count == 0
                ? SKR_OK
                : run_plain(settling, "ROLLBACK TO SAVEPOINT skr_copy", error);
        if (code == SKR_OK)
            code = copy_and_remove(settling, item, SKR_SQL_COPY_AS_IS, &json,
                                   messenger->failed_aside, error);
    }
    skr_text_fini(&json);
    return code;
}

static enum skr_code
move_to_failed(struct settling *settling, struct skr_batch_item *item,
               struct skr_error *error)
{
    const struct skr_messenger *messenger = settling->messenger;
    struct skr_arena *arena = &settling->arena;
    const struct skr_envelope *envelope = &item->envelope;
    struct skr_failed_message message = {
        .raw_headers = item->raw_headers,
        .raw_headers_size = item->raw_headers_size,
        .body = envelope->message.body,
        .body_size = envelope->message.body_size,
        .partition_key = item->partition_key,
        .failure = {.transport = messenger->transport,
                    .retries = envelope->retry_count,
                    .reason = &item->reason},
    };
    struct skr_text json = {0};
    const char *queue = NULL;
    enum skr_code code =
        skr_headers_copy(arena, &envelope->headers, &message.headers, error);
    if (code == SKR_OK)
        code = keep_id(arena, envelope, &message.headers, error);
    if (code == SKR_OK && item->write == SKR_WRITE_LEAST)
        return copy_inside(settling, item, &message, error);
    if (code == SKR_OK)
        code = skr_messenger_mark_failed(messenger, arena, &message, &json,
                                         &queue, error);
    if (code == SKR_OK)
        code =
            copy_and_remove(settling, item, SKR_SQL_COPY, &json, queue, error);
    skr_text_fini(&json);
    return code;
}

static enum skr_code
settle_item(struct settling *settling, struct skr_batch_item *item,
            struct skr_error *error)
{
    if (item->lost || !skr_is_written_now(item))
        return SKR_OK;
    switch (item->state) {
    case SKR_READ:
    case SKR_DONE:
    case SKR_NOT_READY:
    case SKR_BEHIND: return SKR_OK;
    case SKR_BLOCKED: return block(settling, item, error);
    case SKR_RETRY_LATER: return retry_later(settling, item, error);
    case SKR_DEAD:
        if (settling->messenger->failed_table == NULL)
            return SKR_OK;
        return move_to_failed(settling, item, error);
    }
    return SKR_OK;
}

static bool
has_no_result(const struct skr_batch_item *item)
{
    return !item->lost && skr_is_written_now(item) && item->state == SKR_READ;
}

static bool
is_dead_letter(const struct skr_batch_item *item)
{
    return !item->lost && skr_is_written_now(item) && item->state == SKR_DEAD;
}

// What a plain queue has published may leave, also when another owns it now.
static bool
is_not_done(const struct skr_batch_item *item)
{
    return item->state != SKR_DONE;
}

static bool
has_other_results(const struct skr_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (is_not_done(&batch->items[i]) && skr_has_result(&batch->items[i]) &&
            skr_is_written_now(&batch->items[i]))
            return true;
    return false;
}

static bool
has_order(const struct settling *settling)
{
    return settling->messenger->table.partitions != NULL;
}

static bool
has_shards(const struct skr_batch *batch)
{
    return batch->lease.shards != 0;
}

static enum skr_code
finish_done(const struct settling *settling, struct skr_error *error)
{
    const struct skr_messenger *messenger = settling->messenger;
    bool keeps = messenger->sent_queue != NULL;
    const struct skr_list_run run = {
        .sql = skr_messenger_list(messenger,
                                  keeps ? SKR_SQL_KEEP_SENT : SKR_SQL_REMOVE),
        .first = {skr_bind_text(messenger->sent_queue)},
        .first_count = keeps ? 1 : 0,
        .by_lists =
            // Beside the statement that fences what is done.
        has_shards(settling->batch) && has_order(settling),
    };
    const struct skr_list_run marking = {
        .sql = skr_messenger_list(messenger, SKR_SQL_MARK_DONE)};
    enum skr_code code = skr_list_run_items(settling->tx, &run, settling->batch,
                                            skr_is_done, NULL, error);
    if (code == SKR_OK)
        code = skr_list_run_items(settling->tx, &marking, settling->batch,
                                  skr_is_done_and_stays, NULL, error);
    return code;
}

static enum skr_code
unmark(const struct settling *settling, skr_item_test_fn *is_wanted,
       struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = skr_messenger_list(settling->messenger, SKR_SQL_UNMARK),
        .first = {skr_bind_text(settling->batch->lease.time)},
        .first_count = 1,
    };
    return skr_list_run_items(settling->tx, &run, settling->batch, is_wanted,
                              NULL, error);
}

static enum skr_code
settle_all(struct settling *settling, struct skr_error *error)
{
    struct skr_batch *batch = settling->batch;
    enum skr_code code = SKR_OK;
    if (settling->is_unsure)
        code = skr_identity_check(
            settling->tx,
            skr_messenger_list(settling->messenger, SKR_SQL_IDENTIFY), batch,
            error);
    if (code == SKR_OK)
        code = finish_done(settling, error);
    if (code == SKR_OK && settling->is_leased)
        code = unmark(settling, has_no_result, error);
    // They have nowhere to go.
    if (code == SKR_OK && settling->is_leased &&
        settling->messenger->failed_table == NULL)
        code = unmark(settling, is_dead_letter, error);
    for (size_t i = 0; code == SKR_OK && i < batch->count; i++)
        code = settle_item(settling, &batch->items[i], error);
    return code;
}

// The rows are another owner's by now.
static void
lose(const struct settling *settling)
{
    for (size_t i = 0; i < settling->batch->count; i++) {
        struct skr_batch_item *item = &settling->batch->items[i];
        if (item->write == SKR_WRITE_DONE ||
            (!has_order(settling) && !is_not_done(item)))
            continue;
        item->state = SKR_READ;
        item->lost = true;
    }
}

static enum skr_code
settle_share(struct settling *settling, struct skr_error *error)
{
    bool is_ours = false;
    enum skr_code code =
        skr_messenger_fence(settling->messenger, settling->tx,
                            &settling->batch->lease, &is_ours, error);
    if (code != SKR_OK)
        return code;
    if (!is_ours)
        lose(settling);
    return settle_all(settling, error);
}

static enum skr_code
settle_once(struct settling *settling, struct skr_error *error)
{
    bool is_fenced =
        has_shards(settling->batch) &&
        (has_order(settling) || has_other_results(settling->batch));
    if (!is_fenced && !settling->is_unsure &&
        skr_list_finishes(settling->batch))
        return finish_done(settling, error);
    enum skr_code code = skr_db_begin(settling->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code =
        is_fenced ? settle_share(settling, error) : settle_all(settling, error);
    skr_arena_fini(&settling->arena);
    return skr_db_end(settling->db, code, error);
}

// Tried again when others were in the way.
static enum skr_code
try_to_settle(struct settling *settling, struct skr_error *error)
{
    struct skr_tries tries = {.started_ms = skr_clock_ms()};
    enum skr_code code;
    do
        code = settle_once(settling, error);
    while (code != SKR_OK && skr_messenger_may_try_again(&tries, code, error));
    return code;
}

static enum skr_code
settle_some(void *user, struct skr_batch *batch, struct skr_error *error)
{
    struct settling *settling = user;
    settling->batch = batch;
    return try_to_settle(settling, error);
}

static enum skr_code
settle(const struct skr_store *table, struct skr_db *db,
       struct skr_batch *batch, struct skr_error *error)
{
    struct settling settling = {
        .messenger = skr_messenger_of(table),
        .db = db,
        .tx = skr_db_tx(db),
        .batch = batch,
        .is_leased = batch->lease.time[0] != '\0',
        .is_unsure = batch->is_late ||
                     skr_identity_is_unsure(skr_messenger_of(table)->dialect),
    };
    struct skr_error failure = {0};
    enum skr_code code = try_to_settle(&settling, &failure);
    if (code != SKR_OK && failure.remedy == SKR_GIVE_UP)
        code = skr_apart_settle(batch, settle_some, &settling, &failure);
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &failure);
}

const struct skr_settle_ops skr_messenger_settling = {
    .write = settle,
};
