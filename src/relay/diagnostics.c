// SPDX-License-Identifier: MIT
// The looks that a relay takes around itself, each bounded in how often.

#include "relay/diagnostics.h"

#include "base/clock.h"

enum {
    LOOK_AROUND_MS = 60000,
    FRESH_MS = 10000,
};

enum skr_code
skr_diagnostics_look_for_foreign(struct skr_diagnostics *diagnostics,
                                 struct skr_db *db, struct skr_error *error)
{
    const struct skr_relay_settings *options = diagnostics->options;
    const struct skr_store *table = options->table;
    int64_t now_ms = skr_clock_ms();
    if (table->diagnosis == NULL || diagnostics->logged_foreign ||
        now_ms < diagnostics->next_foreign_ms)
        return SKR_OK;
    diagnostics->next_foreign_ms = now_ms + LOOK_AROUND_MS;
    uint64_t count = 0;
    const char *cure = "";
    enum skr_code code =
        table->diagnosis->foreign(table, db, &count, &cure, error);
    if (code != SKR_OK || count == 0)
        return code;
    diagnostics->logged_foreign = true;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.foreign_rows",
            SKR_LOG_TEXT("name", options->name), SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", cure));
    return SKR_OK;
}

// A relay that claims no rows, and finds that another worker does, would send
// what that one sends as well.
static enum skr_code
look_for_claims(struct skr_diagnostics *diagnostics, struct skr_error *error)
{
    const struct skr_relay_settings *options = diagnostics->options;
    int64_t now_ms = skr_clock_ms();
    if (diagnostics->logged_claimed || !diagnostics->expects_no_other ||
        now_ms < diagnostics->next_claimed_ms)
        return SKR_OK;
    diagnostics->next_claimed_ms = now_ms + LOOK_AROUND_MS;
    uint64_t count = 0;
    enum skr_code code =
        skr_source_count_claimed(diagnostics->source, &count, error);
    if (code != SKR_OK || count == 0)
        return code;
    diagnostics->logged_claimed = true;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.not_alone",
            SKR_LOG_TEXT("name", options->name), SKR_LOG_NUMBER("rows", count),
            SKR_LOG_TEXT("cure", "another worker claims rows of this queue; "
                                 "stop it, or set `claim: lease` on this "
                                 "transport"));
    return SKR_OK;
}

// An open transaction holds back all that was written after it began.
static enum skr_code
look_for_writer(struct skr_diagnostics *diagnostics, struct skr_db *db,
                struct skr_error *error)
{
    const struct skr_relay_settings *options = diagnostics->options;
    const struct skr_store *table = options->table;
    struct skr_source_status status = skr_source_status(diagnostics->source);
    int64_t waited_ms = skr_clock_ms() - status.undecided_ms;
    struct skr_writer writer;
    if (status.undecided_ms == 0 ||
        status.undecided_row == diagnostics->logged_undecided ||
        waited_ms < options->long_open_ms)
        return SKR_OK;
    enum skr_code code =
        table->partitions->find_writer(table, db, &writer, error);
    if (code != SKR_OK)
        return code;
    diagnostics->logged_undecided = status.undecided_row;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.held_back",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_NUMBER("row", status.undecided_row),
            SKR_LOG_NUMBER("pid", writer.process),
            SKR_LOG_NUMBER("age_s",
                           writer.age_s > 0 ? writer.age_s : waited_ms / 1000),
            SKR_LOG_TEXT("writer", writer.name),
            SKR_LOG_TEXT("cure", "commit_order waits for this transaction: end "
                                 "it, or let it write and commit sooner"));
    return SKR_OK;
}

enum skr_code
skr_diagnostics_look(struct skr_diagnostics *diagnostics, struct skr_db *db,
                     struct skr_error *error)
{
    enum skr_code code = look_for_claims(diagnostics, error);
    return code == SKR_OK ? look_for_writer(diagnostics, db, error) : code;
}

// Warns of a writer in another time zone, whose rows would be sent hours late,
// or those that are to wait hours early. is_fresh: the newest row has just been
// written; otherwise an old time is no sign of anything.
static enum skr_code
look_for_skew(struct skr_diagnostics *diagnostics, struct skr_db *db,
              bool is_fresh, struct skr_error *error)
{
    const struct skr_relay_settings *options = diagnostics->options;
    const struct skr_store *table = options->table;
    int hours = 0;
    if (diagnostics->knows_skew || diagnostics->logged_skew ||
        table->diagnosis == NULL)
        return SKR_OK;
    enum skr_code code = table->diagnosis->skew(table, db, &hours, error);
    if (code != SKR_OK)
        return code;
    diagnostics->knows_skew = is_fresh;
    if (hours == 0 || (hours < 0 && !is_fresh))
        return SKR_OK;
    diagnostics->logged_skew = true;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.clock_skew",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_NUMBER("hours", hours < 0 ? -hours : hours),
            SKR_LOG_TEXT("direction", hours < 0 ? "behind" : "ahead"),
            SKR_LOG_TEXT("cure", "the newest row is of a writer in another "
                                 "zone: set time_zone of this transport to "
                                 "that zone"));
    return SKR_OK;
}

enum skr_code
skr_diagnostics_begin(struct skr_diagnostics *diagnostics, struct skr_db *db,
                      struct skr_error *error)
{
    return look_for_skew(diagnostics, db, false, error);
}

// Order is kept all the same, at a price: the database is asked for more.
static void
tell_of_hidden(struct skr_diagnostics *diagnostics)
{
    const struct skr_relay_settings *options = diagnostics->options;
    if (diagnostics->logged_hidden ||
        !skr_source_status(diagnostics->source).hides_open)
        return;
    diagnostics->logged_hidden = true;
    skr_log(&options->log, SKR_LOG_WARNING, "relay.right_missing",
            SKR_LOG_TEXT("name", options->name),
            SKR_LOG_TEXT("right", "PROCESS"),
            SKR_LOG_TEXT("cure", "order is kept more cheaply by one who sees "
                                 "open transactions: GRANT PROCESS ON *.* TO "
                                 "this user of the database, and start the "
                                 "relay again"));
}

enum skr_code
skr_diagnostics_after_read(struct skr_diagnostics *diagnostics,
                           struct skr_db *db, bool has_rows,
                           struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    int64_t cursor = skr_source_status(diagnostics->source).cursor;
    tell_of_hidden(diagnostics);
    if (!has_rows && !skr_source_may_have_more(diagnostics->source)) {
        diagnostics->empty_ms = now_ms;
        diagnostics->empty_cursor = cursor;
    }
    // A row beyond all that there were when nothing was left is fresh.
    if (!has_rows || diagnostics->empty_ms == 0 ||
        now_ms - diagnostics->empty_ms > FRESH_MS ||
        cursor <= diagnostics->empty_cursor)
        return SKR_OK;
    return look_for_skew(diagnostics, db, true, error);
}
