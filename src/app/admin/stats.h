// SPDX-License-Identifier: MIT
// What is to be known of every transport, asked of databases and brokers.

#ifndef SKR_APP_ADMIN_STATS_H
#define SKR_APP_ADMIN_STATS_H

#include "app/admin/partitions.h"
#include "app/app.h"
#include "app/wiring/transports.h"
#include "broker/broker.h"
#include "db/db.h"
#include "store/messenger/inspect.h"

// All that ever came, or all of it that is gone.
struct skr_total {
    bool is_known;
    uint64_t count;
};

struct skr_transport_stats {
    const struct skr_config_transport *transport;
    // What could not be asked, and why; code SKR_OK: all of it could.
    struct skr_error trouble;

    bool is_failure;  // its depth is all failed messages, wherever they stand
    bool has_counts;  // it is a table
    struct skr_queue_counts counts;
    char holder[SKR_HOLDER_SIZE];  // who relays it; "": no relay
    // Of a table: relays that wait for their broker, or consumers; negative:
    // not known.
    int64_t attendance;
    bool has_depth;  // the broker tells, or the table of kafka-outbox-relay
    struct skr_depth depth;
    struct skr_partition_stats partitions;  // of no transport: it has none
    struct skr_total written, taken;

    uint64_t retries;  // wait beside the failed messages
    bool has_failed;   // they could be counted
    uint64_t failed;
    bool failed_is_estimate;  // there are at least so many
};

struct skr_stats {
    // Without the failure transport, unless it is asked for by its name.
    struct skr_transport_stats *items;
    size_t count;
    uint64_t failed;   // of all transports, configured or not
    uint64_t strayed;  // of those that are not configured
    bool failed_is_estimate;
    // Why those could not be counted; code SKR_OK: they could.
    struct skr_error failed_trouble;
    struct skr_report unread;  // queues; empty, unless the caller fills it
    struct skr_silent silent;
    // Another reading, so long before, since which rates are told; NULL: none.
    const struct skr_stats *earlier;
    int64_t elapsed_ms;
};

// Asks for everything. What cannot be reached is noted with its transport and
// does not keep from asking the others. Of the transports that the arguments
// name; none: of all.
SKR_MUST_CHECK enum skr_code
skr_stats_read(const struct skr_app *app, const struct skr_config *config,
               struct skr_stats *stats, struct skr_error *error);
void skr_stats_fini(struct skr_stats *stats);

// One row: "transports", a list, and what is known of all of them. The reports
// that stats has move into it.
void skr_stats_report(struct skr_stats *stats, struct skr_report *report);

// Rows without a reader: queues in the tables of a configuration that none of
// its transports reads, as after a typing error in an application's INSERT.
extern const struct skr_columns skr_unread_columns;

// Adds such queues in the tables of the transports that the arguments name to a
// report of these columns; none: of all. Cheap, whatever the size of the
// tables. A table that cannot be asked is passed over: the worker of that table
// logs it. silent: databases that are not asked, or NULL.
void skr_unread_find(const struct skr_app *app, const struct skr_config *config,
                     struct skr_silent *silent, struct skr_report *report);

#endif
