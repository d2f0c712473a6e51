// SPDX-License-Identifier: MIT
// Recording what became of rows, so that the other relay understands it.

#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "table/kafka_outbox/layout.h"

#include <string.h>

// The other relay's column may be a TINYINT; beyond it the statement would
// fail, for ever.
#define MOST "127"  // SKR_KAFKA_OUTBOX_MOST_ATTEMPTS
#define COUNT_UP(tries)                               \
    "push_attempts = CASE WHEN push_attempts < " MOST \
    " THEN push_attempts + " tries " ELSE push_attempts END"

// Parameters: ids.
#define COMPLETE                                                            \
    "UPDATE {table}{by_primary_key} SET batch_id = " KAFKA_OUTBOX_OWN_BATCH \
    ", push_started_at = {now}, push_completed_at = {now}, error_reason = " \
    "'', " COUNT_UP("1") " WHERE "
// A claim that ends when the row is due, for either relay.
// Parameters: seconds that the claim has lasted, reason, tries, id.
static const char retry_sql[] =
    "UPDATE {table} SET batch_id = " KAFKA_OUTBOX_OWN_BATCH ", "
    "push_started_at = {now_minus}, error_reason = ?, " COUNT_UP(
        "?") " WHERE id = ?";
// Parameters: reason, id.
static const char fail_sql[] =
    "UPDATE {table} SET errored = 1, error_reason = ?, batch_id = NULL, "
    "push_started_at = NULL, " COUNT_UP("1") " WHERE id = ?";

bool
skr_kafka_outbox_fill_settle(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill_list(outbox, "{remove_ids}", "{remove_range}",
                                      &outbox->sql.remove) &&
           skr_kafka_outbox_fill_list(outbox, COMPLETE SKR_IN_LIST,
                                      COMPLETE SKR_IN_RANGE,
                                      &outbox->sql.complete) &&
           skr_kafka_outbox_fill(outbox, retry_sql, &outbox->sql.retry) &&
           skr_kafka_outbox_fill(outbox, fail_sql, &outbox->sql.fail);
}

// As much of it as the column holds, in characters.
static struct skr_value
bind_reason(const struct skr_error *reason)
{
    size_t length = 0, size = 0;
    size_t storable =
        skr_text_storable_size(reason->text, strlen(reason->text));
    for (; size < storable; size++) {
        // Bytes that go on with a character look like 10xxxxxx.
        length += ((unsigned char)reason->text[size] & 0xc0) != 0x80;
        if (length > KAFKA_OUTBOX_REASON_LENGTH)
            break;
    }
    return skr_bind_bytes(reason->text, size);
}

static bool
is_done(const struct skr_batch_item *item)
{
    return item->state == SKR_DONE;
}

static enum skr_code
finish_rows(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
            const struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = outbox->marks ? &outbox->sql.complete : &outbox->sql.remove,
        .by_lists = outbox->marks && skr_list_has_gap(batch),
    };
    return skr_list_run_items(tx, &run, batch, is_done, NULL, error);
}

static enum skr_code
settle_one(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
           const struct skr_batch_item *item, struct skr_error *error)
{
    int64_t delay_s = (item->delay_ms + 999LL) / 1000;
    bool fails = item->state == SKR_HOPELESS;
    const struct skr_value failing[] = {
        bind_reason(&item->reason),
        skr_bind_integer(item->row),
    };
    const struct skr_value retrying[] = {
        skr_bind_integer(delay_s < KAFKA_OUTBOX_LEASE_S
                             ? KAFKA_OUTBOX_LEASE_S - delay_s
                             : 0),
        failing[0],
        skr_bind_integer(item->is_excused ? 0 : 1),
        failing[1],
    };
    return skr_tx_run(tx,
                      &(struct skr_statement){
                          .sql = fails ? outbox->sql.fail : outbox->sql.retry,
                          .values = fails ? failing : retrying,
                          .value_count = fails ? SKR_COUNT_OF(failing)
                                               : SKR_COUNT_OF(retrying),
                      },
                      error);
}

static enum skr_code
write_all(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
          const struct skr_batch *batch, struct skr_error *error)
{
    enum skr_code code = finish_rows(outbox, tx, batch, error);
    for (size_t i = 0; i < batch->count && code == SKR_OK; i++)
        if (batch->items[i].state == SKR_RETRY_LATER ||
            batch->items[i].state == SKR_HOPELESS)
            code = settle_one(outbox, tx, &batch->items[i], error);
    return code;
}

enum skr_code
skr_kafka_outbox_settle(const struct skr_table *table, struct skr_db *db,
                        struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_kafka_outbox *outbox = skr_kafka_outbox_of(table);
    // Marks are one statement, which is done or not: a mark counts an attempt.
    // No transaction is open that would keep rows locked while this process is
    // frozen.
    if (skr_list_finishes(batch))
        return finish_rows(outbox, skr_db_tx(db), batch, error);
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = write_all(outbox, skr_db_tx(db), batch, error);
    skr_failpoint("relay.marked");
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}
