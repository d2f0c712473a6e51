// SPDX-License-Identifier: MIT
// The partitions of an ordered outbox, for people: how many there are, and
// which wait for a person.

#ifndef SKR_APP_PARTS_PARTITIONS_H
#define SKR_APP_PARTS_PARTITIONS_H

#include "app/app.h"
#include "store/messenger/partitions.h"

struct skr_json_writer;

// An ordered outbox, open.
struct skr_ordered {
    struct skr_db *db;
    struct skr_store *table;
};
SKR_MUST_CHECK enum skr_code
skr_ordered_open(const struct skr_config *config,
                 const struct skr_config_transport *outbox,
                 struct skr_ordered *ordered, struct skr_error *error);
void skr_ordered_close(struct skr_ordered *ordered);
// Whether it is an ordered outbox, and that of this name. only NULL: any.
bool skr_ordered_is_meant(const struct skr_config_transport *outbox,
                          const char *only);

struct skr_partition_stats {
    struct skr_partitions counts;
    struct skr_blocked_head *blocked;  // texts are its own
    size_t blocked_count;
    bool has_more;     // are blocked
    uint64_t waiting;  // messages in those that are listed
};

// Asks. The caller frees it with skr_partition_stats_free().
SKR_MUST_CHECK enum skr_code
skr_partition_stats_read(const struct skr_config *config,
                         const struct skr_config_transport *outbox,
                         struct skr_partition_stats **stats,
                         struct skr_error *error);
void skr_partition_stats_free(struct skr_partition_stats *stats);

// A table or two, below what else is said of a transport. width: of a
// terminal; 0: it is none.
SKR_MUST_CHECK enum skr_code
skr_partition_stats_print(const char *transport,
                          const struct skr_partition_stats *stats, size_t width,
                          FILE *out, struct skr_error *error);
// Members of the object that is begun: "partitions" and "blocked_partitions".
void skr_partition_stats_write(const struct skr_partition_stats *stats,
                               struct skr_json_writer *json);

// One line that names the command for partitions that are blocked; nothing
// where none is. only: as below.
SKR_MUST_CHECK enum skr_code
skr_blocked_remind(const struct skr_config *config, const char *only,
                   struct skr_error *error);

// The blocked heads of all ordered outboxes, as a table of its own; nothing
// where there are none. only: of one transport; NULL: of all.
SKR_MUST_CHECK enum skr_code
skr_blocked_print(const struct skr_config *config, const char *only,
                  struct skr_error *error);
// The same, each an object in the array that is begun.
SKR_MUST_CHECK enum skr_code
skr_blocked_write(const struct skr_config *config, const char *only,
                  struct skr_json_writer *json, struct skr_error *error);

#endif
