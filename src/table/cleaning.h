// SPDX-License-Identifier: MIT
// Removing old rows in steps so small that nobody has to wait for them.

#ifndef SKR_TABLE_CLEANING_H
#define SKR_TABLE_CLEANING_H

#include "db/db.h"

struct skr_cleaning {
    uint32_t age_s;       // what is older goes
    uint32_t batch_size;  // rows of a step at most; fewer where that takes long
    bool dry_run;         // only count
    // How many times as long as a step took to leave to others after it.
    uint32_t pause_factor;
    // After each step, with the rows that it removed; false ends the cleaning,
    // well. NULL: nobody wants to know.
    bool (*each_step)(void *user, uint64_t rows);
    void *user;
};

// For those who write one. Finds the next rows, up to `size`, in a transaction
// that only reads, and remembers them. *found is how many.
typedef enum skr_code
skr_cleaning_find_fn(void *source, struct skr_tx tx, size_t size, size_t *found,
                     struct skr_error *error);
// Removes `count` of the rows that were found last, from number `first` on, in
// a transaction that is open. removed is added to.
typedef enum skr_code
skr_cleaning_step_fn(void *source, struct skr_tx tx, size_t first, size_t count,
                     uint64_t *removed, struct skr_error *error);

// Finds and removes until nothing is found. Each step is a transaction of its
// own, made so large that it holds its locks for 20 ms at most. removed is
// added to, also when it fails on the way.
SKR_MUST_CHECK enum skr_code
skr_cleaning_run(const struct skr_cleaning *cleaning, struct skr_db *db,
                 skr_cleaning_find_fn *find, skr_cleaning_step_fn *step,
                 void *source, uint64_t *removed, struct skr_error *error);

// Rows of a messenger table that were sent and stayed: those of the queue
// "<queue>.sent", by the time of their delivery, and those of the queue that
// Symfony has marked as done, by the time of their creation. removed is added
// to. time_zone: of its times (db/zone.h); NULL: UTC.
SKR_MUST_CHECK enum skr_code
skr_messenger_clean(const char *table, const char *queue, const char *time_zone,
                    const struct skr_cleaning *cleaning, struct skr_db *db,
                    uint64_t *removed, struct skr_error *error);

#endif
