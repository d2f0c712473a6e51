// SPDX-License-Identifier: MIT
// The loop of a cleanup: finds a batch of old rows, removes it in steps, and
// adapts the size of a step to the time that the last one took. A step that the
// database refuses is halved until the guilty row is alone, which stays.

#include "store/cleaning.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/vec.h"
#include "db/run.h"
#include "store/apart.h"
#include "store/list.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_STEP = 100,
    LEAST_STEP = 10,
    GOOD_STEP_MS = 10,     // shorter ones may grow
    LONG_STEP_MS = 20,     // longer ones end, and shrink
    MOST_TRIES = 5,        // of a step that others were in the way of
    MOST_REFUSED = 10000,  // rows, after which no more are tried
};

struct run {
    const struct skr_cleaning *cleaning;
    const struct skr_cleaning_source *source;
    struct skr_db *db;
    union skr_cleaning_key *keys;  // room for a batch
    size_t found;
    char last_time[32];  // of what was found
    size_t size;         // of the next step at the most
    bool is_over;
    union skr_cleaning_key *refused;  // that stay, in the order of their keys
    size_t refused_count, refused_capacity;
    struct skr_error refusal;  // of the first
};

static int
compare_rows(const void *a, const void *b)
{
    const union skr_cleaning_key *one = a, *other = b;
    return (one->row > other->row) - (one->row < other->row);
}

static int
compare_ids(const void *a, const void *b)
{
    const union skr_cleaning_key *one = a, *other = b;
    return memcmp(one->id.bytes, other->id.bytes, sizeof(one->id.bytes));
}

static skr_compare_fn *
comparison(const struct run *run)
{
    return run->source->has_ids ? compare_ids : compare_rows;
}

static enum skr_code
keep_key(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct run *run = user;
    union skr_cleaning_key key = {.row = 0};
    (void)count;
    if (!run->source->has_ids)
        key.row = columns[0].integer;
    else if (columns[0].size == sizeof(key.id.bytes))
        memcpy(key.id.bytes, columns[0].bytes, sizeof(key.id.bytes));
    else
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "%s has an id that is not of 16 bytes",
                        run->source->table);
    run->last_time[0] = '\0';
    strncat(run->last_time, columns[1].bytes, sizeof(run->last_time) - 1);
    if (run->found < run->cleaning->batch_size &&
        (run->refused_count == 0 ||
         bsearch(&key, run->refused, run->refused_count, sizeof(key),
                 comparison(run)) == NULL))
        run->keys[run->found++] = key;
    return SKR_OK;
}

static enum skr_code
run_find(struct run *run, struct skr_error *error)
{
    const struct skr_cleaning_source *source = run->source;
    int64_t age_s = run->cleaning->age_s;
    int64_t limit = run->cleaning->batch_size + (int64_t)run->refused_count;
    char last_time[sizeof(run->last_time)];
    // Rows that are found write a new one.
    memcpy(last_time, run->last_time, sizeof(last_time));
    run->found = 0;
    return skr_sql_each(skr_db_tx(run->db), source->find_sql,
                        source->queue == NULL
                            ? skr_values("%s %jd %jd", last_time, age_s, limit)
                            : skr_values("%s %s %jd %jd", source->queue,
                                         last_time, age_s, limit),
                        keep_key, run, error);
}

// Tables of all kinds are read by their index on time, whatever statistics say.
static enum skr_code
find_rows(struct run *run, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(run->db, SKR_BEGIN_SNAPSHOT, error);
    if (code != SKR_OK)
        return code;
    code = skr_db_end(run->db, run_find(run, error), error);
    qsort(run->keys, run->found, sizeof(run->keys[0]), comparison(run));
    return code;
}

enum skr_code
skr_cleaning_remove_rows(const void *user, struct skr_tx tx,
                         const union skr_cleaning_key *keys, size_t count,
                         uint64_t *removed, struct skr_error *error)
{
    int64_t rows[SKR_CLEANING_MOST_ROWS];
    for (size_t i = 0; i < count; i++)
        rows[i] = keys[i].row;
    const struct skr_list_run run = {
        .sql = user,
        .rows = rows,
        .count = count,
        .affected = removed,
        .by_lists = true,
    };
    return skr_list_run(tx, &run, error);
}

// What became of a step.
struct step {
    size_t first, count;  // rows that it is about; fewer when it ended early
    uint64_t removed;
    int64_t took_ms;  // since it could hold locks
};

static enum skr_code
remove_rows(const struct run *run, struct step *step, int64_t start_ms,
            struct skr_error *error)
{
    const struct skr_cleaning_source *source = run->source;
    enum skr_code code = SKR_OK;
    size_t done = 0;
    do {
        size_t left = step->count - done;
        size_t piece = left < source->most ? left : source->most;
        code = source->remove(source->user, skr_db_tx(run->db),
                              &run->keys[step->first + done], piece,
                              &step->removed, error);
        done += piece;
    } while (code == SKR_OK && done < step->count &&
             skr_clock_ms() - start_ms < LONG_STEP_MS);
    step->count = done;
    return code;
}

static enum skr_code
try_step(const struct run *run, struct step *step, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(run->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    int64_t start_ms = skr_clock_ms();
    code = remove_rows(run, step, start_ms, error);
    code = skr_db_end(run->db, code, error);
    step->took_ms = skr_clock_ms() - start_ms;
    return code;
}

static void
adapt(struct run *run, const struct step *step)
{
    if (step->took_ms > LONG_STEP_MS)
        run->size = step->count / 2 > LEAST_STEP ? step->count / 2 : LEAST_STEP;
    else if (step->took_ms < GOOD_STEP_MS)
        run->size *= 2;
    if (run->size > run->cleaning->batch_size)
        run->size = run->cleaning->batch_size;
}

// The row that was refused alone stays. Where the same is refused about no row
// it is no row's fault.
static enum skr_code
set_apart(struct run *run, const union skr_cleaning_key *key,
          const struct skr_error *refusal, struct skr_error *error)
{
    const struct skr_cleaning_source *source = run->source;
    union skr_cleaning_key none = {.row = SKR_NO_ROW};
    uint64_t removed = 0;
    enum skr_code code = SKR_OK;
    if (source->has_ids)
        memset(none.id.bytes, 0xff, sizeof(none.id.bytes));
    if (run->refused_count == 0) {
        run->refusal = *refusal;
        code = source->remove(source->user, skr_db_tx(run->db), &none, 1,
                              &removed, error);
    }
    if (code != SKR_OK)
        return code;
    size_t at = skr_vec_find(run->refused, run->refused_count, sizeof(*key),
                             key, comparison(run));
    bool ok = skr_vec_insert(&run->refused, &run->refused_count,
                             &run->refused_capacity, at, key, sizeof(*key));
    return ok ? SKR_OK : skr_fail_memory(error);
}

static void
end_step(struct run *run, const struct step *step)
{
    const struct skr_cleaning *cleaning = run->cleaning;
    run->is_over = (cleaning->each_step != NULL &&
                    !cleaning->each_step(cleaning->user, step->removed)) ||
                   run->refused_count >= MOST_REFUSED;
    if (!run->is_over)
        skr_clock_sleep(-1, step->took_ms * cleaning->pause_factor);
}

// Removes rows from number *first on, and moves it behind them.
static enum skr_code
do_step(struct run *run, size_t *first, uint64_t *removed,
        struct skr_error *error)
{
    size_t left = run->found - *first;
    size_t size = left < run->size ? left : run->size;
    struct skr_error failure = {0};
    struct step step;
    enum skr_code code;
    int tries = 0;
    bool goes_on;
    do {
        step = (struct step){.first = *first, .count = size};
        code = try_step(run, &step, &failure);
        bool is_refused = code != SKR_OK && failure.remedy == SKR_GIVE_UP;
        goes_on = is_refused ? size > 1
                             : code == SKR_CONFLICT && ++tries < MOST_TRIES;
        size = is_refused && goes_on ? size / 2 : size;
    } while (goes_on);
    if (code == SKR_OK) {
        adapt(run, &step);
        *removed += step.removed;
        skr_failpoint("cleaning.step");
    } else if (failure.remedy == SKR_GIVE_UP) {
        step = (struct step){.count = 1};
        code = set_apart(run, &run->keys[*first], &failure, error);
    } else {
        return skr_fail_with(error, &failure);
    }
    *first += step.count;
    if (code == SKR_OK)
        end_step(run, &step);
    return code;
}

static enum skr_code
remove_all(struct run *run, uint64_t *removed, struct skr_error *error)
{
    uint64_t before;
    do {
        before = *removed + run->refused_count;
        enum skr_code code = find_rows(run, error);
        for (size_t first = 0;
             code == SKR_OK && first < run->found && !run->is_over;)
            code = do_step(run, &first, removed, error);
        if (code != SKR_OK)
            return code;
        // Nothing was found, or another process removes the same rows.
    } while (*removed + run->refused_count > before && !run->is_over);
    if (run->refused_count == 0)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "rows of %s that cannot be removed, and stay: %zu; %s",
                    run->source->table, run->refused_count, run->refusal.text);
}

static enum skr_code
count_rows(const struct run *run, uint64_t *rows, struct skr_error *error)
{
    const struct skr_cleaning_source *source = run->source;
    int64_t age_s = run->cleaning->age_s, number = 0;
    enum skr_code code = skr_sql_number(
        skr_db_tx(run->db), source->count_sql,
        source->queue == NULL ? skr_values("%jd", age_s)
                              : skr_values("%s %jd", source->queue, age_s),
        &number, error);
    *rows += (uint64_t)number;
    return code;
}

enum skr_code
skr_cleaning_run(const struct skr_cleaning *cleaning, struct skr_db *db,
                 const struct skr_cleaning_source *source, uint64_t *removed,
                 struct skr_error *error)
{
    struct run run = {
        .cleaning = cleaning,
        .source = source,
        .db = db,
        .last_time = "1970-01-02 00:00:00",  // no TIMESTAMP is before this
        .size = FIRST_STEP,
    };
    if (cleaning->dry_run)
        return count_rows(&run, removed, error);
    run.keys = calloc(cleaning->batch_size, sizeof(run.keys[0]));
    if (run.keys == NULL)
        return skr_fail_memory(error);
    enum skr_code code = remove_all(&run, removed, error);
    free(run.keys);
    free(run.refused);
    return code;
}
