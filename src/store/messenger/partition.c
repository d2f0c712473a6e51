// SPDX-License-Identifier: MIT
// What people do with a partition that waits: look at its head, make it due, or
// move it out of the way.

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "store/messenger/layout.h"
#include "store/messenger/partitions.h"

#include <string.h>

// Parameters: queue, key, twice.
static const char head_sql[] =
    "SELECT " SKR_MESSENGER_COLUMNS ", 1, {partition_text}, available_at, "
    "CASE WHEN available_at = '9999-12-31 23:59:59' THEN 1 ELSE 0 END "
    "FROM {table} WHERE {queue_is} AND partition_key = ? "
    "AND {partition_bytes} = ? AND " SKR_MESSENGER_UNFINISHED
    " ORDER BY id LIMIT 1";
// A reader looks for times that have come since it last did, and are not those
// that rows were written at: this one is yet to come, by a second or two.
// Parameters: seconds, id, seconds.
#define MAKE_DUE                                                 \
    "UPDATE {table} SET available_at = {now_plus} WHERE id = ? " \
    "AND created_at <> {now_plus}"
static const char make_due_sql[] = MAKE_DUE;
// What waits for its own time goes on doing so.
static const char touch_sql[] = MAKE_DUE " AND " SKR_MESSENGER_DUE;

bool
skr_messenger_fill_partition(struct skr_messenger *messenger)
{
    return !messenger->is_ordered ||
           (skr_messenger_fill(messenger, head_sql,
                               &messenger->sql.whole_head) &&
            skr_messenger_fill(messenger, make_due_sql,
                               &messenger->sql.make_due) &&
            skr_messenger_fill(messenger, touch_sql, &messenger->sql.touch));
}

struct finding {
    const struct skr_messenger *messenger;
    struct skr_batch batch;
    struct skr_position position;  // for the ids of rows that have none
    bool is_blocked;
};

static enum skr_code
take_head(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    struct finding *finding = user;
    finding->is_blocked = columns[SKR_COLUMN_COUNT + 1].integer != 0;
    return skr_messenger_take_row(finding->messenger,
                                  finding->position.id_namespace, columns,
                                  &finding->batch, error);
}

static enum skr_code
find_head(struct finding *finding, struct skr_tx tx, const char *key,
          struct skr_error *error)
{
    const struct skr_messenger *messenger = finding->messenger;
    skr_batch_clear(&finding->batch);
    return skr_sql_each(tx, messenger->sql.whole_head,
                        skr_values("%s %s %s", messenger->queue, key, key),
                        take_head, finding, error);
}

static enum skr_code
set_due(const struct finding *finding, struct skr_tx tx, const char *sql,
        struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = SKR_OK;
    int64_t row = finding->batch.items[0].row;
    for (int64_t s = 1; s <= 2 && code == SKR_OK && affected == 0; s++)
        code = skr_sql_run(tx, sql, skr_values("%jd %jd %jd", s, row, s),
                           &affected, error);
    return code;
}

const char *
skr_messenger_blocked_reason(struct skr_batch *batch,
                             const struct skr_batch_item *item)
{
    const struct skr_headers *headers = &item->envelope.headers;
    const char *stamp =
        skr_headers_find(headers->items, headers->count, SKR_HEADER_ERROR);
    const char *text = NULL;
    if (stamp != NULL &&
        skr_stamp_read(&batch->arena, stamp, "exceptionMessage", &text, NULL) !=
            SKR_OK)
        text = NULL;
    return text;
}

static void
find_reason(struct finding *finding, struct skr_batch_item *item)
{
    const char *text = skr_messenger_blocked_reason(&finding->batch, item);
    // One that cannot be understood tells by itself.
    if (text == NULL && item->reason.code != SKR_OK)
        return;
    skr_fail(&item->reason, SKR_REFUSED, SKR_GIVE_UP, "%s",
             text == NULL ? "skipped by hand" : text);
}

static enum skr_code
refuse(const struct finding *finding, const char *key, struct skr_error *error)
{
    if (finding->batch.count == 0)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "table %s holds no message of the partition '%.80s'",
                        finding->messenger->name, key);
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "the partition '%.80s' is not blocked: its head, row %lld, "
                    "is on its way or waits for its time",
                    key, (long long)finding->batch.items[0].row);
}

static enum skr_code
skip_head(struct finding *finding, const struct skr_store *table,
          struct skr_db *db, const char *key, struct skr_error *error)
{
    struct skr_batch_item *item = &finding->batch.items[0];
    find_reason(finding, item);
    item->state = SKR_HOPELESS;
    enum skr_code code =
        table->settle->write(table, db, &finding->batch, error);
    if (code == SKR_OK)
        code = find_head(finding, skr_db_tx(db), key, error);
    if (code != SKR_OK || finding->batch.count == 0)
        return code;
    return set_due(finding, skr_db_tx(db), finding->messenger->sql.touch,
                   error);
}

static enum skr_code
begin_finding(struct finding *finding, const struct skr_store *table,
              struct skr_db *db, const char *key, struct skr_error *error)
{
    *finding = (struct finding){.messenger = skr_messenger_of(table)};
    enum skr_code code = skr_batch_init(&finding->batch, 1, error);
    if (code == SKR_OK)
        code = table->source->start(table, db, &finding->position, error);
    if (code == SKR_OK)
        code = find_head(finding, skr_db_tx(db), key, error);
    return code;
}

static bool
has_blocked(const struct finding *finding)
{
    return finding->batch.count > 0 && finding->is_blocked;
}

static enum skr_code
end_found(struct finding *finding, const struct skr_store *table,
          struct skr_db *db, const char *key, bool skips,
          struct skr_error *error)
{
    return skips ? skip_head(finding, table, db, key, error)
                 : set_due(finding, skr_db_tx(db),
                           finding->messenger->sql.make_due, error);
}

enum skr_code
skr_messenger_end_block(const struct skr_store *table, struct skr_db *db,
                        const char *key, bool skips, int64_t *row,
                        struct skr_error *error)
{
    struct finding finding;
    enum skr_code code = begin_finding(&finding, table, db, key, error);
    if (code == SKR_OK && !has_blocked(&finding)) {
        code = refuse(&finding, key, error);
    } else if (code == SKR_OK) {
        *row = finding.batch.items[0].row;
        code = end_found(&finding, table, db, key, skips, error);
    }
    skr_batch_fini(&finding.batch);
    return code;
}

enum skr_code
skr_messenger_end_blocked(const struct skr_store *table, struct skr_db *db,
                          const struct skr_blocked_head *head, bool skips,
                          bool *ended, struct skr_error *error)
{
    struct finding finding;
    enum skr_code code = begin_finding(&finding, table, db, head->key, error);
    *ended = code == SKR_OK && has_blocked(&finding) &&
             finding.batch.items[0].row == head->row;
    if (*ended)
        code = end_found(&finding, table, db, head->key, skips, error);
    skr_batch_fini(&finding.batch);
    return code;
}
