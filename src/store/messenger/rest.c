// SPDX-License-Identifier: MIT
// What lies beyond the cursor and is not to be read now, in one small
// statement: rows of other queues, and the time of those that wait.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/messenger/layout.h"

// The next time that a pass has to look for: after the last pass, not after
// now, as a row may have become due since the pass of this very snapshot. What
// was written to be sent at once has one time; another it has been given since,
// which is the earlier where the writer's clock is ahead. The last id is looked
// for beyond the cursor: from the end of the table the way leads over all rows
// that were deleted and are not cleaned away yet. Parameters: cursor, queue,
// mark of the last pass.
#define REST(queue)                                         \
    "SELECT {now}, {now_milliseconds}, "                    \
    "(SELECT MAX(id) FROM {table} WHERE id > ?), "          \
    "(SELECT available_at FROM {table} WHERE " queue        \
    " AND available_at > ? AND available_at <> created_at " \
    "ORDER BY available_at LIMIT 1)"
static const char rest_sql[] = REST("{queue_is_unindexed}");
static const char rest_by_queue_sql[] = REST("{queue_is}");

bool
skr_messenger_fill_rest(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, rest_sql, &messenger->sql.rest) &&
           skr_messenger_fill(messenger, rest_by_queue_sql,
                              &messenger->sql.rest_by_queue);
}

struct skr_value
skr_messenger_bind_cursor(int64_t cursor)
{
    return skr_bind_integer(cursor == 0 ? INT64_MIN : cursor);
}

struct rest {
    struct skr_position *position;
    int64_t now_ms;
    int64_t last;
};

// When the next row is due, as far as the last pass has not looked.
static enum skr_code
note(const struct skr_value *columns, size_t count, void *user,
     struct skr_error *error)
{
    (void)count;
    (void)error;
    struct rest *rest = user;
    if (columns[2].kind == SKR_INTEGER)
        rest->last = columns[2].integer;
    rest->position->next_due_ms = 0;
    char now[SKR_POSITION_TIME_SIZE], due[SKR_POSITION_TIME_SIZE];
    skr_messenger_copy_time(&columns[0], now);
    skr_messenger_copy_time(&columns[3], due);
    int64_t now_us = 0, due_us = 0;
    // Both by the server's clock; only the distance is carried over to ours.
    if (skr_clock_parse_timestamp(now, &now_us) &&
        skr_clock_parse_timestamp(due, &due_us)) {
        int64_t due_ms =
            rest->now_ms + (due_us - now_us) / 1000 - columns[1].integer + 1;
        rest->position->next_due_ms =
            due_ms > rest->now_ms ? due_ms : rest->now_ms;
    }
    return SKR_OK;
}

enum skr_code
skr_messenger_ask_rest(const struct skr_messenger *messenger, struct skr_tx tx,
                       int64_t now_ms, struct skr_position *position,
                       int64_t *last, struct skr_error *error)
{
    struct rest rest = {
        .position = position, .now_ms = now_ms, .last = position->cursor};
    const struct skr_value values[] = {
        skr_messenger_bind_cursor(position->cursor),
        skr_bind_text(messenger->queue),
        skr_bind_text(position->due_mark),
    };
    const char *sql = position->dues_by_queue ? messenger->sql.rest_by_queue
                                              : messenger->sql.rest;
    enum skr_code code =
        skr_tx_run(tx,
                   &(struct skr_statement){.sql = sql,
                                           .values = values,
                                           .value_count = SKR_COUNT_OF(values),
                                           .each_row = note,
                                           .user = &rest},
                   error);
    *last = rest.last;
    return code;
}

bool
skr_messenger_is_pass_due(const struct skr_position *position, int64_t now_ms)
{
    return position->pass_until[0] != '\0' ||
           position->next_sweep_ms <= now_ms ||
           (position->next_due_ms > 0 && position->next_due_ms <= now_ms);
}
