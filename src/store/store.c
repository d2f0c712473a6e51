// SPDX-License-Identifier: MIT
// What all layouts share: setup in one transaction, and the times and the
// rewind of a reader's position.

#include "store/store.h"

#include "base/clock.h"
#include "store/schema.h"

enum skr_code
skr_store_create(const struct skr_store *table, struct skr_db *db,
                 struct skr_error *error)
{
    // Setup may run from many hosts at once: where DDL is transactional the
    // second waits here and then finds everything in place.
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = table->admin->setup(table, db, skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

enum skr_code
skr_store_set_notify(const struct skr_store *table, struct skr_db *db,
                     bool wanted, struct skr_error *error)
{
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = table->admin->notify(table, db, wanted, skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

void
skr_store_free(struct skr_store *table)
{
    if (table != NULL)
        table->free(table);
}

int64_t
skr_position_next_ms(const struct skr_position *position)
{
    int64_t next_ms =
        skr_clock_earlier(position->next_due_ms, position->next_sweep_ms);
    next_ms = skr_clock_earlier(next_ms, position->next_expired_ms);
    next_ms = skr_clock_earlier(next_ms, position->next_undecided_ms);
    if (position->held_from != 0)
        next_ms = skr_clock_earlier(next_ms, position->next_held_ms);
    return next_ms;
}

bool
skr_position_is_in_pass(const struct skr_position *position)
{
    return position->pass_until[0] != '\0' || position->pass_cursor != 0;
}

void
skr_position_rewind(struct skr_position *position, int64_t row)
{
    if (position->cursor >= row)
        position->cursor = row - 1;
    if (position->unbroken_from > position->cursor)
        position->unbroken_from = position->cursor;
}
