// SPDX-License-Identifier: MIT
// Passes over what lies behind the cursor: rows whose time has come since the
// last one, and now and then, in a sweep, whatever is ready.

#include "base/text.h"
#include "store/messenger/scan.h"

#include <string.h>

// A sweep is a pass that looks at everything behind the cursor; its mark is
// empty meanwhile.
static enum skr_code
begin_pass(struct skr_scan *scan, struct skr_error *error)
{
    struct skr_position *position = &scan->position;
    position->pass_cursor = 0;
    if (position->next_sweep_ms <= scan->now_ms) {
        position->due_mark[0] = '\0';
        position->next_sweep_ms = scan->now_ms + scan->messenger->sweep_ms;
    }
    return skr_messenger_now(scan->messenger, scan->tx, position->pass_until,
                             error);
}

static void
end_pass(struct skr_position *position)
{
    memcpy(position->due_mark, position->pass_until,
           sizeof(position->due_mark));
    position->pass_until[0] = '\0';
    position->pass_cursor = 0;
}

static enum skr_code
find_ids(struct skr_scan *scan, int64_t limit, struct skr_error *error)
{
    const struct skr_messenger *messenger = scan->messenger;
    const struct skr_position *position = &scan->position;
    const struct skr_value queue = skr_bind_text(messenger->queue);
    const struct skr_value from =
        skr_messenger_bind_cursor(position->pass_cursor);
    const struct skr_value to = skr_bind_integer(position->cursor);
    const struct skr_value timeout =
        skr_bind_integer(messenger->redeliver_timeout_s);
    if (position->due_mark[0] == '\0') {
        const struct skr_value values[] = {queue, from, to, timeout,
                                           skr_bind_integer(limit)};
        return skr_scan_find(scan,
                             position->pass_cursor == 0
                                 ? scan->sql->sweep_ids
                                 : scan->sql->sweep_on_ids,
                             values, SKR_COUNT_OF(values), error);
    }
    const struct skr_value values[] = {
        queue,
        from,
        to,
        skr_bind_text(position->due_mark),
        skr_bind_text(position->pass_until),
        timeout,
        skr_bind_integer(limit),
    };
    return skr_scan_find(scan,
                         position->dues_by_queue ? scan->sql->due_by_queue
                                                 : scan->sql->due_ids,
                         values, SKR_COUNT_OF(values), error);
}

enum skr_code
skr_scan_look_behind(struct skr_scan *scan, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    if (scan->position.pass_until[0] == '\0')
        code = begin_pass(scan, error);
    if (code != SKR_OK)
        return code;
    bool is_sweep = scan->position.due_mark[0] == '\0';
    // Where order counts a sweep only tells of partitions, however many rows
    // there are behind a head that waits: what is new is read beside it.
    size_t max_rows = scan->max_rows;
    bool shares = is_sweep && scan->messenger->is_ordered && max_rows > 1;
    if (shares)
        scan->max_rows /= 2;
    // Those in hand are skipped, so that many more may have to be asked for.
    size_t limit = scan->max_rows + skr_messenger_count_known(scan->read);
    code = find_ids(scan, (int64_t)limit, error);
    if (code != SKR_OK)
        return code;
    bool is_last =
        scan->seen < limit && scan->id_count < scan->max_rows && !scan->is_cut;
    code = skr_scan_fetch(scan, &scan->position.pass_cursor, error);
    scan->max_rows = max_rows;
    size_t count = scan->batch->count;
    scan->swept_some =
        is_sweep && count > 0 &&
        scan->batch->items[count - 1].row < scan->position.cursor;
    if (code == SKR_STOPPED && scan->is_full)
        return SKR_OK;
    if (code == SKR_OK && is_last)
        end_pass(&scan->position);
    else if (code == SKR_OK && scan->messenger->is_ordered)
        scan->position.pass_cursor = scan->last_id;
    if (shares)
        scan->sweeps_on = !is_last;
    scan->is_full = (scan->is_full || scan->is_cut) && !shares;
    return code;
}
