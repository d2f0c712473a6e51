// SPDX-License-Identifier: MIT
// What a relay notices beside its work, and says once.

#include "base/clock.h"
#include "outbox/pump.h"

enum {
    LOOK_AROUND_MS = 60000,
    FRESH_MS = 10000,
};

enum skr_code
skr_pump_look_for_foreign(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int64_t now = skr_clock_ms();
    if (table->ops->foreign == NULL || pump->said_foreign ||
        now < pump->next_foreign_ms)
        return SKR_OK;
    pump->next_foreign_ms = now + LOOK_AROUND_MS;
    uint64_t count = 0;
    const char *cure = "";
    enum skr_code code =
        table->ops->foreign(table, pump->db, &count, &cure, error);
    if (code != SKR_OK || count == 0)
        return code;
    pump->said_foreign = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.foreign_rows",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("rows", count), SKR_LOG_TEXT("cure", cure));
    return SKR_OK;
}

enum skr_code
skr_pump_look_for_others(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int64_t now = skr_clock_ms();
    if (table->ops->leased == NULL || pump->said_others ||
        pump->options->claim == SKR_CLAIM_LEASED || now < pump->next_others_ms)
        return SKR_OK;
    pump->next_others_ms = now + LOOK_AROUND_MS;
    uint64_t count = 0;
    enum skr_code code =
        table->ops->leased(table, pump->db, &pump->position, &count, error);
    if (code != SKR_OK || count == 0)
        return code;
    pump->said_others = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.not_alone",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", "another worker claims rows of this queue; "
                                 "stop it, or set `claim: lease` on this "
                                 "transport"));
    return SKR_OK;
}

enum skr_code
skr_pump_look_for_writer(struct skr_pump *pump, struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    const struct skr_position *position = &pump->position;
    int64_t waited_ms = skr_clock_ms() - position->undecided_ms;
    struct skr_writer writer;
    if (position->undecided_ms == 0 ||
        position->undecided_row == pump->said_undecided ||
        waited_ms < pump->options->long_open_ms)
        return SKR_OK;
    enum skr_code code =
        table->ops->find_writer(table, pump->db, &writer, error);
    if (code != SKR_OK)
        return code;
    pump->said_undecided = position->undecided_row;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.held_back",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("row", position->undecided_row),
            SKR_LOG_NUMBER("pid", writer.process),
            SKR_LOG_NUMBER("age_s",
                           writer.age_s > 0 ? writer.age_s : waited_ms / 1000),
            SKR_LOG_TEXT("writer", writer.name),
            SKR_LOG_TEXT("cure", "commit_order waits for this transaction: end "
                                 "it, or let it write and commit sooner"));
    return SKR_OK;
}

enum skr_code
skr_pump_look_for_skew(struct skr_pump *pump, bool is_fresh,
                       struct skr_error *error)
{
    const struct skr_table *table = pump->options->table;
    int hours = 0;
    if (pump->knows_skew || pump->said_skew || table->ops->skew == NULL)
        return SKR_OK;
    enum skr_code code = table->ops->skew(table, pump->db, &hours, error);
    if (code != SKR_OK)
        return code;
    pump->knows_skew = is_fresh;
    if (hours == 0 || (hours < 0 && !is_fresh))
        return SKR_OK;
    pump->said_skew = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.clock_skew",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_NUMBER("hours", hours < 0 ? -hours : hours),
            SKR_LOG_TEXT("direction", hours < 0 ? "behind" : "ahead"),
            SKR_LOG_TEXT("cure", "the newest row is of a writer in another "
                                 "zone: set time_zone of this transport to "
                                 "that zone"));
    return SKR_OK;
}

enum skr_code
skr_pump_look_at_fresh(struct skr_pump *pump, bool has_rows,
                       struct skr_error *error)
{
    int64_t now = skr_clock_ms();
    if (!has_rows && !pump->position.has_more) {
        pump->empty_ms = now;
        pump->empty_cursor = pump->position.cursor;
    }
    if (!has_rows || pump->empty_ms == 0 || now - pump->empty_ms > FRESH_MS ||
        pump->position.cursor <= pump->empty_cursor)
        return SKR_OK;
    return skr_pump_look_for_skew(pump, true, error);
}

void
skr_pump_tell_of_hidden(struct skr_pump *pump)
{
    const struct skr_table_ops *ops = pump->options->table->ops;
    if (!pump->position.horizon_hidden || pump->position.is_cluster ||
        pump->said_hidden || (ops->read_partitions == NULL && !ops->keeps_keys))
        return;
    pump->said_hidden = true;
    skr_log(&pump->options->log, SKR_LOG_WARNING, "relay.right_missing",
            SKR_LOG_TEXT("name", pump->options->name),
            SKR_LOG_TEXT("right", "PROCESS"),
            SKR_LOG_TEXT("cure", "order is kept more cheaply by one who sees "
                                 "open transactions: GRANT PROCESS ON *.* TO "
                                 "this user of the database, and start the "
                                 "relay again"));
}
