// SPDX-License-Identifier: MIT
// Recording what became of rows, so that the other relay understands it. Each
// result has a second form, for a row that the first is refused for: it writes
// as little as tells the result.

#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "db/run.h"
#include "store/apart.h"
#include "store/identity.h"
#include "store/kafka_outbox/layout.h"

#include <string.h>

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

static enum skr_code
finish_rows(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
            const struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = outbox->marks ? &outbox->sql[KAFKA_OUTBOX_COMPLETE]
                             : &outbox->sql[KAFKA_OUTBOX_REMOVE],
        .by_lists = outbox->marks && skr_list_has_gap(batch),
    };
    const struct skr_list_run marking = {
        .sql = &outbox->sql[KAFKA_OUTBOX_COMPLETE_LEAST]};
    enum skr_code code =
        skr_list_run_items(tx, &run, batch, skr_is_done, NULL, error);
    if (code == SKR_OK)
        code = skr_list_run_items(tx, &marking, batch, skr_is_done_and_stays,
                                  NULL, error);
    return code;
}

static enum skr_code
fail_row(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
         const struct skr_batch_item *item, struct skr_error *error)
{
    const struct skr_value row = skr_bind_integer(item->row);
    if (item->write == SKR_WRITE_LEAST)
        return skr_sql_run(
            tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_FAIL_LEAST),
            (struct skr_values){1, {row}}, NULL, error);
    return skr_sql_run(
        tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_FAIL),
        (struct skr_values){2, {bind_reason(&item->reason), row}}, NULL, error);
}

static enum skr_code
retry_row(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
          const struct skr_batch_item *item, struct skr_error *error)
{
    int64_t delay_s = (item->delay_ms + 999LL) / 1000;
    const struct skr_value lasted = skr_bind_integer(
        delay_s < KAFKA_OUTBOX_LEASE_S ? KAFKA_OUTBOX_LEASE_S - delay_s : 0);
    const struct skr_value row = skr_bind_integer(item->row);
    if (item->write == SKR_WRITE_LEAST)
        return skr_sql_run(
            tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_RETRY_LEAST),
            (struct skr_values){2, {lasted, row}}, NULL, error);
    const struct skr_value counted =
        skr_bind_integer(item->is_not_counted ? 0 : 1);
    return skr_sql_run(
        tx, skr_kafka_outbox_sql(outbox, KAFKA_OUTBOX_RETRY),
        (struct skr_values){4,
                            {lasted, bind_reason(&item->reason), counted, row}},
        NULL, error);
}

static enum skr_code
write_all(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
          const struct skr_batch *batch, struct skr_error *error)
{
    enum skr_code code = finish_rows(outbox, tx, batch, error);
    for (size_t i = 0; i < batch->count && code == SKR_OK; i++) {
        const struct skr_batch_item *item = &batch->items[i];
        if (!skr_is_written_now(item))
            continue;
        if (item->state == SKR_DEAD)
            code = fail_row(outbox, tx, item, error);
        else if (item->state == SKR_RETRY_LATER)
            code = retry_row(outbox, tx, item, error);
    }
    return code;
}

struct settling {
    const struct skr_kafka_outbox *outbox;
    struct skr_db *db;
};

static enum skr_code
settle_some(void *user, struct skr_batch *batch, struct skr_error *error)
{
    const struct settling *settling = user;
    const struct skr_kafka_outbox *outbox = settling->outbox;
    struct skr_db *db = settling->db;
    // Marks are one statement, which is done or not: a mark counts an attempt.
    // No transaction is open that would keep rows locked while this process is
    // frozen.
    bool is_unsure = batch->is_late || skr_identity_is_unsure(outbox->dialect);
    if (!is_unsure && skr_list_finishes(batch))
        return finish_rows(outbox, skr_db_tx(db), batch, error);
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    if (is_unsure)
        code = skr_identity_check(
            skr_db_tx(db), &outbox->sql[KAFKA_OUTBOX_IDENTIFY], batch, error);
    if (code == SKR_OK)
        code = write_all(outbox, skr_db_tx(db), batch, error);
    skr_failpoint("relay.marked");
    return skr_db_end(db, code, error);
}

static enum skr_code
settle(const struct skr_store *table, struct skr_db *db,
       struct skr_batch *batch, struct skr_error *error)
{
    struct settling settling = {skr_kafka_outbox_of(table), db};
    struct skr_error failure = {0};
    enum skr_code code = settle_some(&settling, batch, &failure);
    if (code != SKR_OK && failure.remedy == SKR_GIVE_UP)
        code = skr_apart_settle(batch, settle_some, &settling, &failure);
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &failure);
}

const struct skr_settle_ops skr_kafka_outbox_settling = {
    .write = settle,
};
