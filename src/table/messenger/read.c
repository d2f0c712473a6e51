// SPDX-License-Identifier: MIT
// Reading: a scan in a snapshot, if it is worth while.

#include "base/clock.h"
#include "base/text.h"
#include "table/messenger/scan.h"

// Parameters: queue, redeliver timeout.
static const char count_leased_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE {queue_is_unindexed} "
    "AND " SKR_MESSENGER_LEASED;

bool
skr_messenger_fill_read(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, count_leased_sql,
                              &messenger->sql.count_leased);
}

static enum skr_code
note_peek(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_scan *scan = user;
    scan->is_full = columns[2].kind == SKR_INTEGER &&
                    columns[2].integer > scan->position.cursor;
    skr_scan_note_due(columns, scan);
    return SKR_OK;
}

// Where commits are seen by other means nobody looks in vain.
enum skr_code
skr_messenger_is_worth_scanning(const struct skr_messenger *messenger,
                                struct skr_tx tx, struct skr_position *position,
                                bool *is_worth, struct skr_error *error)
{
    struct skr_scan scan = {.messenger = messenger,
                            .tx = tx,
                            .position = *position,
                            .now_ms = skr_clock_ms()};
    *is_worth = messenger->sql.horizon[0] == '\0' || position->cursor == 0 ||
                position->has_more || skr_scan_is_pass_due(&scan) ||
                skr_scan_is_held_due(&scan) ||
                skr_messenger_is_late_possible(messenger, position);
    if (*is_worth)
        return SKR_OK;
    enum skr_code code = skr_scan_ask_for_rest(&scan, note_peek, error);
    if (code != SKR_OK)
        return code;
    position->next_due_ms = scan.position.next_due_ms;
    *is_worth = scan.is_full || skr_scan_is_pass_due(&scan);
    return SKR_OK;
}

enum skr_code
skr_messenger_look(const struct skr_messenger *messenger,
                   enum skr_scan_kind kind, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    bool is_worth = read->only != NULL;
    enum skr_code code = SKR_OK;
    if (!is_worth)
        code = skr_messenger_is_worth_scanning(messenger, skr_db_tx(db),
                                               position, &is_worth, error);
    if (code != SKR_OK || !is_worth)
        return code;
    code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_scan(messenger, kind, skr_db_tx(db), position, read,
                              batch, error);
    skr_db_rollback(db);
    if (batch->count > 0)
        db->found_rows = true;
    return code;
}

enum skr_code
skr_messenger_read(const struct skr_table *table, struct skr_db *db,
                   struct skr_position *position, const struct skr_read *read,
                   struct skr_batch *batch, struct skr_error *error)
{
    return skr_messenger_look(skr_messenger_of(table), SKR_SCAN_READ, db,
                              position, read, batch, error);
}

enum skr_code
skr_messenger_leased(const struct skr_table *table, struct skr_db *db,
                     uint64_t *count, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_value values[] = {
        skr_bind_text(messenger->queue),
        skr_bind_integer(messenger->redeliver_timeout_s),
    };
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code =
        skr_tx_fetch_one(skr_db_tx(db),
                         &(struct skr_statement){
                             .sql = messenger->sql.count_leased,
                             .values = values,
                             .value_count = SKR_COUNT_OF(values),
                         },
                         &arena, &value, 1, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK)
        *count = (uint64_t)value.integer;
    return code;
}
