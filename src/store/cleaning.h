// SPDX-License-Identifier: MIT
// Removing old rows in steps so small that no other session has to wait for
// them.

#ifndef SKR_STORE_CLEANING_H
#define SKR_STORE_CLEANING_H

#include "db/db.h"
#include "store/place.h"

struct skr_cleaning {
    uint32_t age_s;       // what is older goes
    uint32_t batch_size;  // rows of a step at most; fewer where that takes long
    bool dry_run;         // only count
    // How many times as long as a step took to leave to others after it.
    uint32_t pause_factor;
    // After each step, with the rows that it removed; false ends the cleaning,
    // well. NULL: not called.
    bool (*each_step)(void *user, uint64_t rows);
    void *user;
};

// What a row is removed by.
union skr_cleaning_key {
    int64_t row;
    struct skr_id id;
};

// For a layout: which rows they are, and how they are removed.
struct skr_cleaning_source {
    const char *table;  // its name, for errors
    const char *queue;  // bound before all else; NULL: nothing is
    // Gives key and time, in the order of times. Parameters: the time to begin
    // at, which passes over what was deleted and is still in an index; seconds;
    // rows.
    const char *find_sql;
    const char *count_sql;  // parameter: seconds
    bool has_ids;           // the key is one of 16 bytes, not a number
    // Removes these rows, which are in the order of their keys, so that two
    // sessions that remove the same do not deadlock. removed is added to.
    enum skr_code (*remove)(const void *user, struct skr_tx tx,
                            const union skr_cleaning_key *keys, size_t count,
                            uint64_t *removed, struct skr_error *error);
    size_t most;  // that remove() takes at once
    const void *user;
};

// As remove() where the key is a number; user: a struct skr_list_sql that
// removes rows by their ids.
enum { SKR_CLEANING_MOST_ROWS = 100 };
SKR_MUST_CHECK enum skr_code
skr_cleaning_remove_rows(const void *user, struct skr_tx tx,
                         const union skr_cleaning_key *keys, size_t count,
                         uint64_t *removed, struct skr_error *error);

// Finds and removes until nothing is found; or counts. Each step is a
// transaction of its own. Locks are held for 50 ms at most: a step that has
// lasted for 20 ms removes no more and commits, and the next one is half as
// large. removed is added to, also when it fails on the way. SKR_REFUSED: rows
// that the database refuses to remove stay, and all others were removed.
SKR_MUST_CHECK enum skr_code
skr_cleaning_run(const struct skr_cleaning *cleaning, struct skr_db *db,
                 const struct skr_cleaning_source *source, uint64_t *removed,
                 struct skr_error *error);

// Rows of a messenger table that were sent and stayed: those of the queue
// "<queue>.sent", by the time of their delivery, and those of the queue that
// Symfony has marked as done, by the time of their creation. removed is added
// to.
SKR_MUST_CHECK enum skr_code
skr_messenger_clean(const struct skr_queue_place *place,
                    const struct skr_cleaning *cleaning, struct skr_db *db,
                    uint64_t *removed, struct skr_error *error);

// Rows of the queue of failed messages, and of "<queue>.skirnir" beside it, by
// the time at which they failed, but for those that a worker has claimed.
// Otherwise as above.
SKR_MUST_CHECK enum skr_code
skr_messenger_clean_failed(const struct skr_queue_place *place,
                           const struct skr_cleaning *cleaning,
                           struct skr_db *db, uint64_t *removed,
                           struct skr_error *error);

#endif
