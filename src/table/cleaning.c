// SPDX-License-Identifier: MIT
#include "table/cleaning.h"

#include "base/clock.h"

enum {
    FIRST_STEP = 100,
    LEAST_STEP = 10,
    GOOD_STEP_MS = 10,  // shorter ones may grow
    LONG_STEP_MS = 20,  // longer ones shrink
    MOST_TRIES = 5,     // of a step that others were in the way of
};

// Tables of all kinds are read by their index on time, whatever statistics say.
static enum skr_code
find_rows(struct skr_db *db, skr_cleaning_find_fn *find, void *source,
          size_t size, size_t *found, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = find(source, skr_db_tx(db), size, found, error);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

struct run {
    const struct skr_cleaning *cleaning;
    struct skr_db *db;
    skr_cleaning_step_fn *step;
    void *source;
    size_t size;  // of the next step
    bool is_over;
};

static enum skr_code
try_step(const struct run *run, size_t first, size_t count, uint64_t *removed,
         struct skr_error *error)
{
    struct skr_db *db = run->db;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = run->step(run->source, skr_db_tx(db), first, count, removed, error);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

static void
adapt(struct run *run, int64_t took_ms)
{
    if (took_ms > LONG_STEP_MS)
        run->size = run->size / 2 > LEAST_STEP ? run->size / 2 : LEAST_STEP;
    else if (took_ms < GOOD_STEP_MS)
        run->size *= 2;
    if (run->size > run->cleaning->batch_size)
        run->size = run->cleaning->batch_size;
}

static enum skr_code
do_step(struct run *run, size_t first, size_t count, uint64_t *removed,
        struct skr_error *error)
{
    const struct skr_cleaning *cleaning = run->cleaning;
    int64_t start_ms = skr_clock_ms();
    enum skr_code code = SKR_OK;
    uint64_t rows = 0;
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        rows = 0;
        code = try_step(run, first, count, &rows, error);
        if (code != SKR_CONFLICT)
            break;
    }
    if (code != SKR_OK)
        return code;
    int64_t took_ms = skr_clock_ms() - start_ms;
    adapt(run, took_ms);
    *removed += rows;
    run->is_over = cleaning->each_step != NULL &&
                   !cleaning->each_step(cleaning->user, rows);
    if (!run->is_over)
        skr_clock_sleep(-1, took_ms * cleaning->pause_factor);
    return SKR_OK;
}

enum skr_code
skr_cleaning_run(const struct skr_cleaning *cleaning, struct skr_db *db,
                 skr_cleaning_find_fn *find, skr_cleaning_step_fn *step,
                 void *source, uint64_t *removed, struct skr_error *error)
{
    struct run run = {
        .cleaning = cleaning,
        .db = db,
        .step = step,
        .source = source,
        .size = cleaning->batch_size < FIRST_STEP ? cleaning->batch_size
                                                  : FIRST_STEP,
    };
    uint64_t before;
    do {
        size_t found = 0;
        before = *removed;
        enum skr_code code =
            find_rows(db, find, source, cleaning->batch_size, &found, error);
        for (size_t first = 0;
             code == SKR_OK && first < found && !run.is_over;) {
            size_t left = found - first;
            size_t count = left < run.size ? left : run.size;
            code = do_step(&run, first, count, removed, error);
            first += count;
        }
        if (code != SKR_OK)
            return code;
        // Nothing was found, or someone else removes the same rows.
    } while (*removed > before && !run.is_over);
    return SKR_OK;
}
