// SPDX-License-Identifier: MIT
// A claim of runs while it is under way: which rows are wanted, and what became
// of them. For find_runs.c and runs.c alone.

#ifndef SKR_TABLE_MESSENGER_RUNS_H
#define SKR_TABLE_MESSENGER_RUNS_H

#include "base/arena.h"
#include "table/messenger/layout.h"

enum {
    SKR_MOST_RUN_ROWS = SKR_SQL_MAX_LIST,  // of all: one statement locks them
    SKR_MOST_RUNS = SKR_MOST_RUN_ROWS,
    SKR_NO_RUN = -1,
};

struct skr_run {
    const char *key;  // bytes, of whatever kind
    size_t key_size;
    uint64_t hash;     // of the key, where it is read row by row
    size_t length;     // rows that are wanted of it
    bool has_ended;    // before the next row
    bool is_anothers;  // some of it is, or is in our own hands already
};

struct skr_run_row {
    int64_t row;
    int run;  // SKR_NO_RUN: it has no key
};

struct skr_runs {
    const struct skr_messenger *messenger;
    struct skr_db *db;
    struct skr_position *position;
    const struct skr_read *read;
    struct skr_batch *batch;

    struct skr_arena arena;
    size_t most;  // rows
    struct skr_run items[SKR_MOST_RUNS];
    size_t count;
    size_t most_keys;  // of a page of partitions
    size_t keys_seen;  // on it, '' included
    size_t rows_seen;  // of its partitions
    size_t room_ends;  // the first that finds no room for its head
    bool is_last;      // page of partitions in this round
    int64_t free_cursor;
    size_t free_seen;
    bool has_more_free, free_had_turn;
    bool is_held;  // something is, by others or by ourselves

    struct skr_run_row wanted[SKR_MOST_RUN_ROWS];
    size_t wanted_count, wanted_bytes;
    size_t compared;                // with what was locked
    int run_of[SKR_MOST_RUN_ROWS];  // of items in the batch
};

SKR_MUST_CHECK bool skr_runs_fill(struct skr_messenger *messenger);
// Finds out what is wanted: no more than there is room for.
SKR_MUST_CHECK enum skr_code
skr_runs_find(struct skr_runs *runs, struct skr_error *error);

#endif
