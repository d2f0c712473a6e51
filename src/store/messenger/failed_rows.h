// SPDX-License-Identifier: MIT
// The failed table as people look at it: rows one by one, by their numbers.
//
// An object holds texts of SQL for one dialect and is immutable: [shared].

#ifndef SKR_STORE_MESSENGER_FAILED_ROWS_H
#define SKR_STORE_MESSENGER_FAILED_ROWS_H

#include "db/db.h"

struct skr_failed_rows;

struct skr_failed_rows_options {
    const struct skr_dialect *dialect;
    const char *table;
    // Rows stand in this queue, and in the one with ".skirnir" behind it.
    const char *queue;
    // Age at which another's claim is void: a Symfony worker that retries.
    uint32_t redeliver_timeout_s;
    const char *time_zone;  // of its times (db/zone.h); NULL: UTC
};

SKR_MUST_CHECK enum skr_code
skr_failed_rows_new(const struct skr_failed_rows_options *options,
                    struct skr_failed_rows **rows, struct skr_error *error);
void skr_failed_rows_free(struct skr_failed_rows *rows);

// SKR_MISSING: there is no such table.
SKR_MUST_CHECK enum skr_code
skr_failed_rows_check(const struct skr_failed_rows *rows, struct skr_tx tx,
                      struct skr_error *error);

// Texts are zero-terminated and borrowed for the call.
struct skr_failed_row {
    int64_t id;
    const char *queue;
    const char *created_at;  // "2026-11-15 02:53:45"
    const char *headers;
    size_t headers_size;
    const void *body;  // NULL in a list
    size_t body_size;
};
typedef enum skr_code skr_failed_row_fn(const struct skr_failed_row *row,
                                        void *user, struct skr_error *error);

// Gives up to `max` rows beyond `after`, which counts downwards where the
// newest come first: begin with INT64_MAX there, with 0 else. It becomes the
// last row that was looked at. No statement may be run on the connection
// meanwhile.
struct skr_failed_page {
    bool newest_first;
    int64_t after;
    size_t max;
    bool has_more;  // there may be others
};
SKR_MUST_CHECK enum skr_code
skr_failed_rows_list(const struct skr_failed_rows *rows, struct skr_tx tx,
                     struct skr_failed_page *page, skr_failed_row_fn *each,
                     void *user, struct skr_error *error);

// Gives one row with its body, if it is there. each may be NULL.
struct skr_failed_wanted {
    int64_t id;
    bool found;
};
SKR_MUST_CHECK enum skr_code
skr_failed_rows_find(const struct skr_failed_rows *rows, struct skr_tx tx,
                     struct skr_failed_wanted *wanted, skr_failed_row_fn *each,
                     void *user, struct skr_error *error);

// Removes a row, in whatever transaction tx is: the caller may put it elsewhere
// in the same transaction. SKR_MISSING: it is not there, or no longer.
// SKR_REFUSED: a worker has claimed it and may be at it.
SKR_MUST_CHECK enum skr_code
skr_failed_rows_remove(const struct skr_failed_rows *rows, struct skr_tx tx,
                       int64_t id, struct skr_error *error);

// The database's clock, in the zone of the table.
SKR_MUST_CHECK enum skr_code
skr_failed_rows_now(const struct skr_failed_rows *rows, struct skr_tx tx,
                    int64_t *wall_us, struct skr_error *error);

#endif
