// SPDX-License-Identifier: MIT
// How full a queue of a messenger table is, at a cost that does not grow with
// it.

#ifndef SKR_STORE_MESSENGER_INSPECT_H
#define SKR_STORE_MESSENGER_INSPECT_H

#include "db/db.h"
#include "store/place.h"
#include "store/store.h"

// What is counted exactly, up to this; beyond it numbers are estimates.
enum { SKR_QUEUE_EXACT = 100000 };

struct skr_queue_counts {
    uint64_t depth;      // all that is not done
    uint64_t due;        // may be taken now
    uint64_t in_flight;  // claimed by a worker
    uint64_t delayed;    // its time has not come
    uint64_t blocked;    // waits for people
    // In PHP's own serialisation, of those in front: for a Symfony worker
    // alone, as their empty headers tell.
    uint64_t php;
    uint64_t sent;  // kept after it was sent
    // The first is of depth and due, which may then count other queues of the
    // table; the last of the others, which are at least so many.
    bool depth_is_estimate, sent_is_estimate, parts_are_estimates;
    bool has_oldest;
    int64_t oldest_s;  // since it was due
    uint64_t
        written;  // rows that the table ever had, of all queues; 0: unknown
};

// In one snapshot. SKR_MISSING: there is no such table.
SKR_MUST_CHECK enum skr_code
skr_queue_count(struct skr_db *db, const struct skr_queue_place *place,
                struct skr_queue_counts *counts, struct skr_error *error);

// The queues that the table has rows of, in order of their names; of very many
// the first. What is not SKR_OK ends it. SKR_MISSING: there is no such table.
typedef enum skr_code
skr_queue_name_fn(const char *queue, void *user, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_queue_each_name(struct skr_db *db, const char *table,
                    skr_queue_name_fn *each, void *user,
                    struct skr_error *error);

// Who works the queue, as skr_db_holder_fn has it.
SKR_MUST_CHECK enum skr_code
skr_queue_holder(struct skr_db *db, const struct skr_queue_place *place,
                 char holder[SKR_HOLDER_SIZE], struct skr_error *error);

// How many workers of that kind the queue has; negative: that cannot be known.
SKR_MUST_CHECK enum skr_code
skr_queue_attendance(struct skr_db *db, const struct skr_queue_place *place,
                     enum skr_attendance kind, int64_t *count,
                     struct skr_error *error);

#endif
