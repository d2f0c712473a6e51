// SPDX-License-Identifier: MIT
// The order of commits, where the database can tell it. Ids are given at the
// insert, so that of two transactions the one that commits last may have the
// smaller ids. A row with a key is undecided while a transaction is open that
// began to write before its own: nothing is sent that such a one might still
// come before. A reader stops in front of the first undecided row.
//
// Rows are sent by their ids all the same, and not by the numbers of their
// transactions: where writers of a key wait for each other, ids follow that,
// and a transaction that has written something else before is not older for it.

#include "base/error.h"
#include "base/text.h"
#include "store/messenger/scan.h"

#include <stdio.h>

// A look is followed by a pause of a part of the time that it has taken so far.
enum { LEAST_PAUSE_MS = 5, LONGEST_PAUSE_MS = 500, PAUSE_PART = 4 };

static const char check_commits_sql[] =
    "SELECT transaction_id FROM {table} LIMIT 0";

bool
skr_messenger_fill_commits(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, check_commits_sql,
                              &messenger->sql.check_commits) &&
           skr_messenger_fill(messenger, "{oldest_writer}",
                              &messenger->sql.oldest_writer);
}

enum skr_code
skr_messenger_know_commits(const struct skr_dialect *dialect,
                           struct skr_error *error)
{
    if (skr_sql_word(dialect, "is_decided")[0] != '\0')
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "commit_order needs PostgreSQL: %s does not tell which "
                    "transactions are over; let writers of a key wait for "
                    "each other",
                    dialect->name);
}

enum skr_code
skr_messenger_check_commits(const struct skr_messenger *messenger,
                            struct skr_db *db, struct skr_error *error)
{
    if (!messenger->by_commits)
        return SKR_OK;
    enum skr_code code = skr_tx_run(
        skr_db_tx(db),
        &(struct skr_statement){.sql = messenger->sql.check_commits}, error);
    if (code == SKR_OK || error == NULL || error->remedy != SKR_GIVE_UP)
        return code;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "table %s has no column transaction_id, which "
                    "commit_order needs; run `skirnir setup`",
                    messenger->name);
}

void
skr_scan_note_undecided(struct skr_scan *scan)
{
    struct skr_position *position = &scan->position;
    int64_t row = scan->undecided_row;
    if (row == 0) {
        position->undecided_row = 0;
        position->undecided_ms = 0;
        position->next_undecided_ms = 0;
        return;
    }
    if (position->undecided_row != row || position->undecided_ms == 0) {
        position->undecided_row = row;
        position->undecided_ms = scan->now_ms;
    }
    int64_t pause_ms = (scan->now_ms - position->undecided_ms) / PAUSE_PART;
    pause_ms = pause_ms < LEAST_PAUSE_MS     ? LEAST_PAUSE_MS
               : pause_ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS
                                             : pause_ms;
    position->next_undecided_ms = scan->now_ms + pause_ms;
}

enum skr_code
skr_messenger_find_writer(const struct skr_store *table, struct skr_db *db,
                          struct skr_writer *writer, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value columns[3] = {
        {.kind = SKR_NULL}, {.kind = SKR_NULL}, {.kind = SKR_NULL}};
    bool found = false;
    *writer = (struct skr_writer){.process = 0};
    enum skr_code code =
        skr_tx_fetch_one(skr_db_tx(db),
                         &(struct skr_statement){
                             .sql = skr_messenger_of(table)->sql.oldest_writer},
                         &arena, columns, SKR_COUNT_OF(columns), &found, error);
    if (code == SKR_OK && found) {
        writer->process = columns[0].integer;
        writer->age_s = columns[1].kind == SKR_NULL ? 0 : columns[1].integer;
        if (columns[2].kind != SKR_NULL)
            snprintf(writer->name, sizeof(writer->name), "%s",
                     (const char *)columns[2].bytes);
    }
    skr_arena_fini(&arena);
    return code;
}
