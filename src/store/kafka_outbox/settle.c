// SPDX-License-Identifier: MIT
// Recording what became of rows, so that the other relay understands it. Each
// outcome has a second form, for a row that the first is refused for: it writes
// as little as tells the outcome.

#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "db/run.h"
#include "store/apart.h"
#include "store/identity.h"
#include "store/kafka_outbox/layout.h"

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
// Completed, and nothing else. Parameters: ids.
static const char complete_least_sql[] =
    "UPDATE {table}{by_primary_key} SET push_completed_at = {now} "
    "WHERE id IN ({ids})";
// A claim that ends when the row is due, for either relay.
// Parameters: seconds that the claim has lasted, reason and tries if they are
// written, id.
#define RETRY(reason)                                            \
    "UPDATE {table} SET batch_id = " KAFKA_OUTBOX_OWN_BATCH ", " \
    "push_started_at = {now_minus}" reason " WHERE id = ?"
static const char retry_sql[] = RETRY(", error_reason = ?, " COUNT_UP("?"));
static const char retry_least_sql[] = RETRY("");
// Parameters: reason if it is written, id.
#define FAIL(reason)                                              \
    "UPDATE {table} SET errored = 1, " reason "batch_id = NULL, " \
    "push_started_at = NULL WHERE id = ?"
static const char fail_sql[] = FAIL("error_reason = ?, " COUNT_UP("1") ", ");
static const char fail_least_sql[] = FAIL("");

bool
skr_kafka_outbox_fill_settle(struct skr_kafka_outbox *outbox)
{
    return skr_kafka_outbox_fill_list(outbox, SKR_IDENTITY_SQL, NULL,
                                      &outbox->sql.identify) &&
           skr_kafka_outbox_fill_list(outbox, "{remove_ids}", "{remove_range}",
                                      &outbox->sql.remove) &&
           skr_kafka_outbox_fill_list(outbox, COMPLETE SKR_IN_LIST,
                                      COMPLETE SKR_IN_RANGE,
                                      &outbox->sql.complete) &&
           skr_kafka_outbox_fill_list(outbox, complete_least_sql, NULL,
                                      &outbox->sql.complete_least) &&
           skr_kafka_outbox_fill(outbox, retry_sql, &outbox->sql.retry) &&
           skr_kafka_outbox_fill(outbox, retry_least_sql,
                                 &outbox->sql.retry_least) &&
           skr_kafka_outbox_fill(outbox, fail_sql, &outbox->sql.fail) &&
           skr_kafka_outbox_fill(outbox, fail_least_sql,
                                 &outbox->sql.fail_least);
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

static enum skr_code
finish_rows(const struct skr_kafka_outbox *outbox, struct skr_tx tx,
            const struct skr_batch *batch, struct skr_error *error)
{
    const struct skr_list_run run = {
        .sql = outbox->marks ? &outbox->sql.complete : &outbox->sql.remove,
        .by_lists = outbox->marks && skr_list_has_gap(batch),
    };
    const struct skr_list_run marking = {.sql = &outbox->sql.complete_least};
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
        return skr_sql_run(tx, outbox->sql.fail_least,
                           (struct skr_values){1, {row}}, NULL, error);
    return skr_sql_run(
        tx, outbox->sql.fail,
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
        return skr_sql_run(tx, outbox->sql.retry_least,
                           (struct skr_values){2, {lasted, row}}, NULL, error);
    const struct skr_value counted = skr_bind_integer(item->is_excused ? 0 : 1);
    return skr_sql_run(
        tx, outbox->sql.retry,
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
        if (item->state == SKR_HOPELESS)
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
        code = skr_identity_check(skr_db_tx(db), &outbox->sql.identify, batch,
                                  error);
    if (code == SKR_OK)
        code = write_all(outbox, skr_db_tx(db), batch, error);
    skr_failpoint("relay.marked");
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

enum skr_code
skr_kafka_outbox_settle(const struct skr_store *table, struct skr_db *db,
                        struct skr_batch *batch, struct skr_error *error)
{
    struct settling settling = {skr_kafka_outbox_of(table), db};
    struct skr_error failure = {0};
    enum skr_code code = settle_some(&settling, batch, &failure);
    if (code != SKR_OK && failure.remedy == SKR_GIVE_UP)
        code = skr_apart_settle(batch, settle_some, &settling, &failure);
    if (code != SKR_OK && error != NULL)
        *error = failure;
    return code;
}
