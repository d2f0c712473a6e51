// SPDX-License-Identifier: MIT
// The partitions of an ordered outbox, for people: how many there are, and
// which wait for a person.

#ifndef SKR_APP_ADMIN_PARTITIONS_H
#define SKR_APP_ADMIN_PARTITIONS_H

#include "app/admin/failed.h"
#include "app/app.h"
#include "app/report/report.h"
#include "store/messenger/partitions.h"

// Whether it is an ordered outbox, and that of this name. only NULL: any.
bool skr_ordered_is_meant(const struct skr_config_transport *outbox,
                          const char *only);

struct skr_partition_stats {
    const char *transport;
    struct skr_partitions counts;
    struct skr_report blocked;  // a row for each head
    size_t blocked_count;
    bool has_more;     // are blocked
    uint64_t waiting;  // messages in those that are listed
};
extern const struct skr_columns skr_blocked_columns;

// Asks. The caller ends the report, unless it fails.
SKR_MUST_CHECK enum skr_code
skr_partition_stats_read(const struct skr_config *config,
                         const struct skr_config_transport *outbox,
                         struct skr_partition_stats *stats,
                         struct skr_error *error);
// The report of heads, which may have moved, as a table, and whether there are
// more.
SKR_MUST_CHECK enum skr_code
skr_blocked_print(const struct skr_partition_stats *stats,
                  const struct skr_report *blocked, FILE *out,
                  struct skr_error *error);

// One line that names the command for partitions that are blocked; nothing
// where none is. only: of one transport; NULL: of all.
SKR_MUST_CHECK enum skr_code
skr_blocked_remind(const struct skr_config *config, const char *only,
                   struct skr_error *error);

// A blocked head is named TRANSPORT/ROW.
bool skr_blocked_is_name(const char *text);
// Gives the message, with its body. SKR_MISSING: it does not block its
// partition; SKR_INVALID: that is no name.
SKR_MUST_CHECK enum skr_code
skr_blocked_find(const struct skr_config *config, const char *name,
                 skr_failed_found_fn *each, void *user,
                 struct skr_error *error);
// `skirnir failed retry` of such names: makes each due.
SKR_MUST_CHECK enum skr_code
skr_blocked_retry(const struct skr_app *app, const struct skr_config *config,
                  struct skr_error *error);

#endif
