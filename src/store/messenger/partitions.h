// SPDX-License-Identifier: MIT
// What people want to know of the partitions of an ordered queue: how many
// there are, and which of them wait for a person. Bounded, as inspect.h is.

#ifndef SKR_STORE_MESSENGER_PARTITIONS_H
#define SKR_STORE_MESSENGER_PARTITIONS_H

#include "store/store.h"

struct skr_partitions {
    uint64_t count;
    // There are at least so many, and as long; another may be the longest.
    bool is_estimate;
    char largest[SKR_KEY_SIZE];  // key of the longest; "": none
    uint64_t largest_length;
    // The head that was published before all others; "": none was found.
    char oldest[SKR_KEY_SIZE];
    int64_t oldest_row;
    int64_t oldest_s;  // since then
};

// Partitions with a message that is not done. The table is one of an ordered
// queue; so for all that follows.
SKR_MUST_CHECK enum skr_code
skr_messenger_count_partitions(const struct skr_store *table, struct skr_db *db,
                               struct skr_partitions *partitions,
                               struct skr_error *error);

// The head of a partition that waits for people. Texts are borrowed.
struct skr_blocked_head {
    int64_t row;
    const char *key;
    const char *name;    // of the message; NULL: not known
    const char *reason;  // why it could not be sent
    uint64_t length;     // of the partition, the head included; 0: not asked
    bool is_estimate;    // it is at least so long
};
typedef enum skr_code skr_blocked_head_fn(const struct skr_blocked_head *head,
                                          void *user, struct skr_error *error);
struct skr_blocked_page {
    int64_t after;  // rows beyond this one; 0: from the first on
    size_t max;     // so many at most
    bool measures;  // how long their partitions are
};
// In the order of their rows. Statements may be run on db meanwhile.
SKR_MUST_CHECK enum skr_code
skr_messenger_each_blocked(const struct skr_store *table, struct skr_db *db,
                           const struct skr_blocked_page *page,
                           skr_blocked_head_fn *each, void *user,
                           struct skr_error *error);

// skr_messenger_end_block() of this head and no other: *ended is false where
// it blocks its partition no more, or stands behind another row of it.
SKR_MUST_CHECK enum skr_code
skr_messenger_end_blocked(const struct skr_store *table, struct skr_db *db,
                          const struct skr_blocked_head *head, bool skips,
                          bool *ended, struct skr_error *error);

// The one in this row. SKR_MISSING: it blocks no partition.
SKR_MUST_CHECK enum skr_code
skr_messenger_find_blocked(const struct skr_store *table, struct skr_db *db,
                           int64_t row, skr_blocked_head_fn *each, void *user,
                           struct skr_error *error);

#endif
