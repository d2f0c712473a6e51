// SPDX-License-Identifier: MIT
// Where the next rows of a queue come from. A source reads for one relay, on
// one thread and one connection. Its cursor, its low watermark and its timers
// are its own; so is what it knows of rows that the relay has:
//
//   given      read, and not released yet: never read twice
//   published  given, and stored by the broker: its partition may go on
//   left       given, and not sent: it lies in its row as it did, and only a
//              full scan, or its time, makes the source give it again
//   parked     the database refuses to change it: not given
//
// A full scan looks at all rows behind the cursor. It is rare, and rarer while
// many rows wait for a destination that takes nothing.

#ifndef SKR_STORE_SOURCE_H
#define SKR_STORE_SOURCE_H

#include "store/parked.h"
#include "store/store.h"

struct skr_source;

// Table and parked are borrowed; the relay changes what is parked. claims_rows:
// each by a lease of its own.
SKR_MUST_CHECK enum skr_code
skr_source_new(const struct skr_store *table, const struct skr_parked *parked,
               bool claims_rows, struct skr_source **source,
               struct skr_error *error);
void skr_source_free(struct skr_source *source);

// Reads from the start of the queue from now on, on this connection, which is
// borrowed until the next call. What was left is forgotten.
SKR_MUST_CHECK enum skr_code
skr_source_open(struct skr_source *source, struct skr_db *db,
                struct skr_error *error);

// How much may be read, and what need not be.
struct skr_source_request {
    size_t rows;
    size_t bytes;  // a larger row comes alone
    // Partitions that wait, and of which nothing is given: at most
    // SKR_MOST_PASSED.
    const char *const *passed;
    size_t passed_count;
    // Rows wait for a destination: a full scan would find those again.
    bool spares_full_scans;
};

// Fills an empty batch with the next rows, as read() and claim() in store.h
// say. One that cannot be claimed is not given.
SKR_MUST_CHECK enum skr_code
skr_source_next(struct skr_source *source,
                const struct skr_source_request *request,
                struct skr_batch *batch, struct skr_error *error);
// The one row, if it is there and free: a half-open circuit breaker probes with
// it. The batch stays empty otherwise.
SKR_MUST_CHECK enum skr_code
skr_source_fetch(struct skr_source *source,
                 const struct skr_source_request *request, int64_t row,
                 struct skr_batch *batch, struct skr_error *error);
// The first rows of partitions, as read() of struct skr_partition_ops says.
SKR_MUST_CHECK enum skr_code
skr_source_fetch_partitions(struct skr_source *source,
                            const struct skr_source_request *request,
                            struct skr_partition_read *partitions, size_t count,
                            struct skr_batch *batch, struct skr_error *error);

// Whether nothing is to be given before all that is given is released.
bool skr_source_is_restarting(const struct skr_source *source);
// Whether next() may find something now.
bool skr_source_may_have_more(const struct skr_source *source);
// Sleeps until the database tells of new rows, wake_fd is readable, or the time
// is over.
SKR_MUST_CHECK enum skr_code
skr_source_wait(struct skr_source *source, int wake_fd, uint32_t timeout_ms,
                struct skr_error *error);

// What becomes of rows that were given.

void skr_source_published(struct skr_source *source,
                          const struct skr_batch_item *item);
// It was not sent, and is not until the source gives it again.
void
skr_source_left(struct skr_source *source, const struct skr_batch_item *item);
// The same of a row that leaves its batch at once.
void skr_source_returned(struct skr_source *source,
                         const struct skr_batch_item *item);
// The rows of the batch are settled, or stay as they were.
void
skr_source_release(struct skr_source *source, const struct skr_batch *batch);
// A row waits for a retry, or the broker held it back behind one that it
// refused. Where that holds back others, and they are in no partitions, all is
// read from the start once nothing is given.
void skr_source_refused(struct skr_source *source, bool is_held_back);
// Looks at all rows behind the cursor once more. False: not now, as rows that
// are being settled would be passed over.
bool skr_source_rescan(struct skr_source *source, bool is_settling);

struct skr_source_status {
    int64_t cursor;   // moves with every row that is written to the table
    bool has_due;     // rows have become due, and were not read yet
    bool hides_open;  // open transactions cannot be asked for, and order counts
    // The row that waits for an open transaction, and since when by
    // skr_clock_ms(); 0: none.
    int64_t undecided_row, undecided_ms;
    // When next() may find something although nothing is written until then, by
    // skr_clock_ms(); 0: never.
    int64_t wake_ms;
};
struct skr_source_status skr_source_status(const struct skr_source *source);
// How many rows others claim at the moment; 0 where rows cannot be claimed.
SKR_MUST_CHECK enum skr_code
skr_source_count_claimed(struct skr_source *source, uint64_t *count,
                         struct skr_error *error);

#endif
