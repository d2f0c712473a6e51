// SPDX-License-Identifier: MIT
// Statements about many rows at once, by their ids.

#ifndef SKR_STORE_LIST_H
#define SKR_STORE_LIST_H

#include "db/db.h"
#include "db/sql.h"

// A statement whose last parameters are ids, for each length that lists have.
struct skr_list_sql {
    const char *sql[SKR_SQL_LIST_SIZES];
    // The same for ids without a gap, as {in_range} asks for them. NULL: always
    // by lists.
    const char *range;
    bool parts_last;  // from the range: it is a parameter of its own
};

#define SKR_IN_LIST "id IN ({ids})"
#define SKR_IN_RANGE "{in_range}"

// How a layout fills a template: with its own words and these.
typedef const char *skr_list_fill_fn(void *layout, const char *sql_template,
                                     const char *ids, const char *id_rows);
struct skr_list_filling {
    const struct skr_dialect *dialect;
    struct skr_arena *arena;
    skr_list_fill_fn *fill;
    void *layout;
};
// False: memory is out. range_template may be NULL.
SKR_MUST_CHECK bool
skr_list_fill(const struct skr_list_filling *filling, const char *list_template,
              const char *range_template, struct skr_list_sql *list);

// Runs it as often as the number of ids asks for, which is twice at the most
// for as many as one list takes.
struct skr_list_run {
    const struct skr_list_sql *sql;
    struct skr_value first[4];  // before the ids
    size_t first_count;
    const int64_t *rows;
    size_t count;
    skr_row_fn *each_row;
    void *user;
    uint64_t *affected;  // summed up; NULL: not wanted
    bool by_lists;       // even where a range would do: fewer statements
};
SKR_MUST_CHECK enum skr_code
skr_list_run(struct skr_tx tx, const struct skr_list_run *run,
             struct skr_error *error);
// The same for the rows of all items that is_wanted is true for (NULL: every
// one), and says how many there are. Always in the order of ids: two sessions
// that write the same rows wait for each other and do not deadlock.
struct skr_batch;
struct skr_batch_item;
typedef bool skr_item_test_fn(const struct skr_batch_item *item);
SKR_MUST_CHECK enum skr_code
skr_list_run_items(struct skr_tx tx, const struct skr_list_run *run,
                   const struct skr_batch *batch, skr_item_test_fn *is_wanted,
                   uint64_t *wanted, struct skr_error *error);
// Whether all rows of a batch are done and two statements at the most finish
// them: most batches. What is done may go in several steps, so that each
// commits by itself, which costs less than a transaction around them. It is one
// statement if the rows have no gap, or go by_lists.
bool skr_list_finishes(const struct skr_batch *batch);
// Whether ids are missing between the batch's rows.
bool skr_list_has_gap(const struct skr_batch *batch);

#endif
