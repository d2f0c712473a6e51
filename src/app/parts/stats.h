// SPDX-License-Identifier: MIT
// What is to be known of every transport, asked of databases and brokers.

#ifndef SKR_APP_PARTS_STATS_H
#define SKR_APP_PARTS_STATS_H

#include "app/app.h"
#include "app/parts/partitions.h"
#include "app/parts/unread.h"
#include "broker/broker.h"
#include "db/db.h"
#include "store/messenger/inspect.h"

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
    bool has_depth;  // the broker tells
    struct skr_depth depth;
    struct skr_partition_stats *partitions;  // NULL: it has none
    // All that ever came, and what is gone of it, where that is known.
    bool has_written, has_taken;
    uint64_t written, taken;
    // By skr_stats_measure(). Who does not know what came and what went may
    // still tell by how much it became more, or fewer: net_rate is negative.
    bool has_in_rate, has_out_rate, has_net_rate;
    double in_rate, out_rate, net_rate;

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
    struct skr_unread_list unread;  // empty, unless the caller fills it
};

// Asks for everything. What cannot be reached is noted with its transport and
// does not keep from asking the others. only: transports by name; none: all.
SKR_MUST_CHECK enum skr_code
skr_stats_read(const struct skr_app *app, const struct skr_config *config,
               const char *const *only, size_t only_count,
               struct skr_stats *stats, struct skr_error *error);
// For how long the oldest message has been due. False: there is none, or that
// is not known.
bool skr_stats_find_oldest(const struct skr_transport_stats *stats,
                           int64_t *oldest_s);
// How many consume. False: that is not known, or it is an outbox.
bool skr_stats_find_consumers(const struct skr_transport_stats *stats,
                              uint64_t *consumers);
// What came and went, a second, since an earlier reading of the same.
void skr_stats_measure(struct skr_stats *stats, const struct skr_stats *earlier,
                       int64_t elapsed_ms);
void skr_stats_fini(struct skr_stats *stats);

#endif
